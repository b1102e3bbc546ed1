/* The PJRT C API, as far as tern calls it: tern's own declarations of a public binary interface.
 *
 * Names are PJRT's with a lower-case prefix (PJRT_Client_Create is pjrt_Client_Create), so that this file and the interface's own header can meet in
 * one translation unit: tests/c/test_pjrt_layout.c compares every offset and size. Each argument struct begins with its own size, by which old and new
 * plug-ins understand each other; TERN_PJRT_ARGS fills it in. Fields marked "out" are written by the plug-in. Strings are not terminated.
 * Only src/pjrt and tests/plugins include this file. */
#ifndef TERN_PJRT_API_H
#define TERN_PJRT_API_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What these declarations were written against, and the oldest minor version whose structs begin alike. */
enum { TERN_PJRT_MAJOR = 0, TERN_PJRT_MINOR = 81, TERN_PJRT_OLDEST_MINOR = 29 };

/* ---- opaque objects of the plug-in ---- */
typedef struct pjrt_error pjrt_error;
typedef struct pjrt_event pjrt_event;
typedef struct pjrt_client pjrt_client;
typedef struct pjrt_device pjrt_device;
typedef struct pjrt_memory_space pjrt_memory_space; /* PJRT_Memory: a kind of memory, not an array */
typedef struct pjrt_device_description pjrt_device_description;
typedef struct pjrt_executable pjrt_executable;
typedef struct pjrt_loaded_executable pjrt_loaded_executable;
typedef struct pjrt_buffer pjrt_buffer;
typedef struct pjrt_topology pjrt_topology; /* PJRT_TopologyDescription: chips that may be elsewhere */
typedef struct pjrt_serialized_executable pjrt_serialized_executable;

typedef struct pjrt_extension {
  size_t struct_size;
  int type;
  struct pjrt_extension *next;
} pjrt_extension;

/* ---- values ---- */
enum { PJRT_CODE_RESOURCE_EXHAUSTED = 8, PJRT_CODE_UNIMPLEMENTED = 12, PJRT_CODE_INTERNAL = 13 }; /* the codes that tern tells apart */
enum { PJRT_VALUE_STRING, PJRT_VALUE_INT64, PJRT_VALUE_INT64_LIST, PJRT_VALUE_FLOAT, PJRT_VALUE_BOOL };
enum {
  PJRT_TYPE_PRED = 1, PJRT_TYPE_S8, PJRT_TYPE_S16, PJRT_TYPE_S32, PJRT_TYPE_S64, PJRT_TYPE_U8, PJRT_TYPE_U16, PJRT_TYPE_U32, PJRT_TYPE_U64,
  PJRT_TYPE_F16, PJRT_TYPE_F32, PJRT_TYPE_F64, PJRT_TYPE_BF16, PJRT_TYPE_C64, PJRT_TYPE_C128
};
enum { PJRT_HOST_BUFFER_IMMUTABLE_ONLY_DURING_CALL = 0 };
enum { PJRT_LAYOUT_TILED = 0, PJRT_LAYOUT_STRIDES = 1 };

typedef struct pjrt_named_value {
  size_t struct_size;
  pjrt_extension *extension_start;
  const char *name;
  size_t name_size;
  int type; /* PJRT_VALUE_... */
  union {
    const char *string_value;
    int64_t int64_value;
    const int64_t *int64_array_value;
    float float_value;
    bool bool_value;
  };
  size_t value_size; /* characters, elements, or 1 */
} pjrt_named_value;

typedef struct pjrt_layout_tiled {
  size_t struct_size;
  pjrt_extension *extension_start;
  const int64_t *minor_to_major;
  size_t minor_to_major_size;
  const int64_t *tile_dims;
  const size_t *tile_dim_sizes;
  size_t num_tiles;
} pjrt_layout_tiled;

typedef struct pjrt_layout {
  size_t struct_size;
  pjrt_extension *extension_start;
  pjrt_layout_tiled tiled; /* the larger arm of a union */
  int type;                /* PJRT_LAYOUT_... */
} pjrt_layout;

typedef struct pjrt_program {
  size_t struct_size;
  pjrt_extension *extension_start;
  char *code;
  size_t code_size;
  const char *format; /* "mlir" */
  size_t format_size;
} pjrt_program;

typedef struct pjrt_execute_options {
  size_t struct_size;
  pjrt_extension *extension_start;
  void *send_callbacks, *recv_callbacks;
  size_t num_send_ops, num_recv_ops;
  int launch_id;
  const int64_t *non_donatable_input_indices;
  size_t num_non_donatable_input_indices;
  void *context;
  const char *call_location;
  size_t num_tasks;
  int *task_ids;
  int64_t *incarnation_ids;
} pjrt_execute_options;

/* ---- arguments of the entries: TERN_PJRT_STRUCT(name, last field, fields) ---- */
#define TERN_PJRT_STRUCT(name, last, ...)                                                                                       \
  typedef struct pjrt_##name { size_t struct_size; pjrt_extension *extension_start; __VA_ARGS__ } pjrt_##name;                  \
  enum { pjrt_##name##_size = offsetof(struct pjrt_##name, last) + sizeof(((struct pjrt_##name *)0)->last) };
/* Declares `variable`, the zeroed arguments of an entry, with the given fields set. */
#define TERN_PJRT_ARGS(name, variable, ...) struct pjrt_##name variable = {.struct_size = pjrt_##name##_size, __VA_ARGS__}

TERN_PJRT_STRUCT(Error_Destroy, error, pjrt_error *error;)
TERN_PJRT_STRUCT(Error_Message, message_size, const pjrt_error *error; const char *message; size_t message_size;) /* out: message; lives as long as the error */
TERN_PJRT_STRUCT(Error_GetCode, code, const pjrt_error *error; int code;)                                         /* out: code */
TERN_PJRT_STRUCT(Plugin_Initialize, extension_start, )
TERN_PJRT_STRUCT(Plugin_Attributes, num_attributes, const pjrt_named_value *attributes; size_t num_attributes;) /* out */
TERN_PJRT_STRUCT(Event_Destroy, event, pjrt_event *event;)
TERN_PJRT_STRUCT(Event_Await, event, pjrt_event *event;)
TERN_PJRT_STRUCT(Client_Create, kv_try_get_user_arg,
  const pjrt_named_value *create_options; size_t num_options;
  void *kv_get_callback, *kv_get_user_arg, *kv_put_callback, *kv_put_user_arg;
  pjrt_client *client; /* out */
  void *kv_try_get_callback, *kv_try_get_user_arg;)
TERN_PJRT_STRUCT(Client_Destroy, client, pjrt_client *client;)
TERN_PJRT_STRUCT(Client_PlatformName, platform_name_size,
  pjrt_client *client; const char *platform_name; size_t platform_name_size;) /* out: name */
TERN_PJRT_STRUCT(Client_PlatformVersion, platform_version_size,
  pjrt_client *client; const char *platform_version; size_t platform_version_size;) /* out: version */
TERN_PJRT_STRUCT(Client_AddressableDevices, num_addressable_devices,
  pjrt_client *client; pjrt_device *const *addressable_devices; size_t num_addressable_devices;) /* out: devices; live as long as the client */
TERN_PJRT_STRUCT(Client_Compile, executable,
  pjrt_client *client; const pjrt_program *program;
  const char *compile_options; size_t compile_options_size; /* a serialised CompileOptionsProto */
  pjrt_loaded_executable *executable;)                      /* out */
TERN_PJRT_STRUCT(Client_BufferFromHostBuffer, buffer,
  pjrt_client *client; const void *data; int type; const int64_t *dims; size_t num_dims;
  const int64_t *byte_strides; size_t num_byte_strides; /* absent: dense, row-major */
  int host_buffer_semantics; pjrt_device *device; pjrt_memory_space *memory; pjrt_layout *device_layout;
  pjrt_event *done_with_host_buffer; pjrt_buffer *buffer;) /* out */
TERN_PJRT_STRUCT(Client_CreateUninitializedBuffer, buffer,
  pjrt_client *client; const int64_t *shape_dims; size_t shape_num_dims; int shape_element_type; pjrt_layout *shape_layout;
  pjrt_device *device; pjrt_memory_space *memory; pjrt_buffer *buffer;) /* out: buffer */
TERN_PJRT_STRUCT(Device_GetDescription, device_description, pjrt_device *device; pjrt_device_description *device_description;) /* out: description */
TERN_PJRT_STRUCT(DeviceDescription_Id, id, pjrt_device_description *device_description; int id;)                               /* out: id */
TERN_PJRT_STRUCT(DeviceDescription_Kind, device_kind_size,
  pjrt_device_description *device_description; const char *device_kind; size_t device_kind_size;) /* out: kind */
TERN_PJRT_STRUCT(Device_MemoryStats, peak_pool_bytes_is_set,
  pjrt_device *device; /* all else out; each `_is_set` speaks for the field before it */
  int64_t bytes_in_use;
  int64_t peak_bytes_in_use; bool peak_bytes_in_use_is_set;
  int64_t num_allocs; bool num_allocs_is_set;
  int64_t largest_alloc_size; bool largest_alloc_size_is_set;
  int64_t bytes_limit; bool bytes_limit_is_set;
  int64_t bytes_reserved; bool bytes_reserved_is_set;
  int64_t peak_bytes_reserved; bool peak_bytes_reserved_is_set;
  int64_t bytes_reservable_limit; bool bytes_reservable_limit_is_set;
  int64_t largest_free_block_bytes; bool largest_free_block_bytes_is_set;
  int64_t pool_bytes; bool pool_bytes_is_set;
  int64_t peak_pool_bytes; bool peak_pool_bytes_is_set;)
TERN_PJRT_STRUCT(Executable_Destroy, executable, pjrt_executable *executable;)
TERN_PJRT_STRUCT(Executable_NumOutputs, num_outputs, pjrt_executable *executable; size_t num_outputs;) /* out: count */
TERN_PJRT_STRUCT(LoadedExecutable_Destroy, executable, pjrt_loaded_executable *executable;)
TERN_PJRT_STRUCT(LoadedExecutable_GetExecutable, executable,
  pjrt_loaded_executable *loaded_executable; pjrt_executable *executable;) /* out: executable, the caller's */
TERN_PJRT_STRUCT(LoadedExecutable_Execute, execute_device,
  pjrt_loaded_executable *executable; pjrt_execute_options *options;
  pjrt_buffer *const *const *argument_lists; size_t num_devices, num_args; /* [device][argument] */
  pjrt_buffer **const *output_lists;                                       /* [device][output], the lists are the caller's */
  pjrt_event **device_complete_events;                                     /* [device] */
  pjrt_device *execute_device;)
TERN_PJRT_STRUCT(Buffer_Destroy, buffer, pjrt_buffer *buffer;)
TERN_PJRT_STRUCT(Buffer_IsDeleted, is_deleted, pjrt_buffer *buffer; bool is_deleted;) /* out: is_deleted */
TERN_PJRT_STRUCT(Buffer_ToHostBuffer, event,
  pjrt_buffer *src; pjrt_layout *host_layout; void *dst; size_t dst_size; pjrt_event *event;) /* out: event */

TERN_PJRT_STRUCT(Executable_GetCostAnalysis, properties,
  pjrt_executable *executable; size_t num_properties; const pjrt_named_value *properties;) /* out: properties; live as long as the executable */
TERN_PJRT_STRUCT(Executable_GetCompiledMemoryStats, peak_memory_in_bytes,
  pjrt_executable *executable; /* all else out, in bytes; host_... is memory of the host */
  int64_t generated_code_size_in_bytes, argument_size_in_bytes, output_size_in_bytes;
  int64_t alias_size_in_bytes; /* of the arguments: reused for outputs */
  int64_t temp_size_in_bytes;
  int64_t host_generated_code_size_in_bytes, host_argument_size_in_bytes, host_output_size_in_bytes, host_alias_size_in_bytes, host_temp_size_in_bytes;
  int64_t peak_memory_in_bytes;)
TERN_PJRT_STRUCT(Executable_Serialize, serialized_executable_deleter,
  const pjrt_executable *executable;
  const char *serialized_bytes; size_t serialized_bytes_size;     /* out; live as long as the next */
  pjrt_serialized_executable *serialized_executable;              /* out */
  void (*serialized_executable_deleter)(pjrt_serialized_executable *executable);) /* out; the caller calls it once */
TERN_PJRT_STRUCT(Executable_DeserializeAndLoad, overridden_serialized_compile_options_size,
  pjrt_client *client; const char *serialized_executable; size_t serialized_executable_size;
  pjrt_loaded_executable *loaded_executable; /* out */
  const char *overridden_serialized_compile_options; size_t overridden_serialized_compile_options_size;)
TERN_PJRT_STRUCT(TopologyDescription_Create, topology,
  const char *topology_name; size_t topology_name_size;
  const pjrt_named_value *create_options; size_t num_options;
  pjrt_topology *topology;) /* out */
TERN_PJRT_STRUCT(TopologyDescription_Destroy, topology, pjrt_topology *topology;)
TERN_PJRT_STRUCT(TopologyDescription_PlatformVersion, platform_version_size,
  pjrt_topology *topology; const char *platform_version; size_t platform_version_size;) /* out: version */
TERN_PJRT_STRUCT(TopologyDescription_GetDeviceDescriptions, num_descriptions,
  const pjrt_topology *topology; pjrt_device_description *const *descriptions; size_t num_descriptions;) /* out: descriptions */
TERN_PJRT_STRUCT(TopologyDescription_Attributes, num_attributes,
  pjrt_topology *topology; const pjrt_named_value *attributes; size_t num_attributes;) /* out: attributes */
TERN_PJRT_STRUCT(Compile, executable,
  const pjrt_topology *topology; const pjrt_program *program; const char *compile_options; size_t compile_options_size;
  pjrt_client *client; pjrt_executable *executable;) /* out: executable */

/* ---- the function table ---- */
typedef struct pjrt_api_version {
  size_t struct_size;
  pjrt_extension *extension_start;
  int major_version, minor_version;
} pjrt_api_version;

typedef struct pjrt_api {
  size_t struct_size; /* a plug-in older than an entry has a table too short for it */
  pjrt_extension *extension_start;
  pjrt_api_version version;
#define TERN_PJRT_ENTRY(name) pjrt_error *(*name)(struct pjrt_##name *arguments);
#define TERN_PJRT_OPTIONAL(name) TERN_PJRT_ENTRY(name)
#define TERN_PJRT_REPORT(name) void (*name)(struct pjrt_##name *arguments);
#define TERN_PJRT_UNUSED(name) void (*name)(void);
#include "entries.def"
#undef TERN_PJRT_ENTRY
#undef TERN_PJRT_OPTIONAL
#undef TERN_PJRT_REPORT
#undef TERN_PJRT_UNUSED
} pjrt_api;

/* True where the plug-in has the entry. */
#define TERN_PJRT_HAS(api, name) ((api)->struct_size >= offsetof(pjrt_api, name) + sizeof((api)->name) && (api)->name != NULL)

#endif
