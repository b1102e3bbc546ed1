/* pjrt: backend 2, which drives any PJRT plug-in. This is the room's inner contract; the outside sees only tern_pjrt_backend (src/backend.h).
 *
 *   find.c        a name such as "tpu" -> a plug-in's file
 *   probe.c       tries a plug-in's set-up in a forked child, so that one that crashes or hangs there is an error and not our end
 *   client.c      loads a plug-in, checks versions and entries, makes its client; errors and events of the plug-in as tern_status
 *   legalise.c    program -> program of operations that text*.c write; what a target lacks, in words
 *   text.c ...    program -> StableHLO in MLIR's generic text form
 *   memory.c      arrays: allocate, upload, download, release, counting
 *   options.c     compile options
 *   disk_cache.c  executables on disk
 *   executable.c  compile and execute
 *   ahead.c       compile for chips that are not in this machine
 *   backend.c     the table
 *
 * It may use base, diag, ir and composites, and nothing of eager, cpu or PyTorch. */
#ifndef TERN_PJRT_H
#define TERN_PJRT_H
#include <pthread.h>
#include "../backend.h"
#include "api.h"

/* ---- find.c ---- */
/* The plug-in's file for `spec` (a path, or a name looked up along TERN_PLUGIN_PATH); *path is the caller's, free() it.
 * TERN_NOT_FOUND says what was looked for, where, and which package has it. */
tern_status tern_pjrt_find(const char *spec, char **path);

/* ---- client.c ---- */
/* How far a set-up got; in the order of the steps. */
typedef enum tern_pjrt_stage { TERN_PJRT_LOADING, TERN_PJRT_INITIALISING, TERN_PJRT_CREATING, TERN_PJRT_READY } tern_pjrt_stage;

/* Loads the plug-in's library, checks versions and entries, initialises it. `stablehlo` as in tern_pjrt_set_up. */
tern_status tern_pjrt_library_open(const char *path, void (*progress)(void *context, tern_pjrt_stage stage), void *context, const pjrt_api **api,
                                   int64_t stablehlo[3]);

typedef struct tern_pjrt_set_up {
  const pjrt_api *api;
  pjrt_client *client;
  int64_t stablehlo[3];       /* the newest StableHLO the plug-in reads; zeros where it does not say */
} tern_pjrt_set_up;

/* Loads the plug-in and makes its client, with `devices` devices where it lets us choose. `progress` (may be NULL) is told each stage as it begins. */
tern_status tern_pjrt_set_up_run(const char *path, int devices, void (*progress)(void *context, tern_pjrt_stage stage), void *context, tern_pjrt_set_up *out);

/* One client per plug-in file and process; its devices share it. Kept until its last device closes. */
typedef struct tern_pjrt_client {
  const pjrt_api *api;
  pjrt_client *handle;
  pjrt_device *const *devices; /* the plug-in's */
  size_t n_devices;
  char *path;
  char platform_name[64];      /* "cpu", "tpu", "cuda": what the plug-in says */
  char platform[192];          /* its version, for people */
  const struct tern_pjrt_target *target;
  int64_t stablehlo[3];
  int references;              /* open devices; under the list's lock */
  struct tern_pjrt_client *next;
} tern_pjrt_client;

tern_status tern_pjrt_client_get(const char *spec, tern_pjrt_client **out); /* adds a reference */
/* Takes a reference away. With `keep`, the client stays even if it was the last one. */
void tern_pjrt_client_release(tern_pjrt_client *client, bool keep);

/* Takes the plug-in's error over: NULL for NULL; else "<doing>: the plug-in answered <CODE>: <message>", TERN_OUT_OF_MEMORY for RESOURCE_EXHAUSTED,
 * TERN_UNSUPPORTED for UNIMPLEMENTED, TERN_PLUGIN_FAILED for all else. */
tern_status tern_pjrt_status(const pjrt_api *api, pjrt_error *error, const char *doing);
/* Waits for the event and destroys it; NULL is ready. */
tern_status tern_pjrt_await(const pjrt_api *api, pjrt_event *event, const char *doing);

/* ---- probe.c ---- */
/* Runs the set-up in a forked child for at most `seconds`. An error of any kind says what the plug-in was doing and what it last wrote to stderr. */
tern_status tern_pjrt_probe(const char *path, int devices, double seconds);

/* ---- devices and memory: backend.c, memory.c ---- */
struct tern_backend_device {
  tern_pjrt_client *client;
  pjrt_device *device;
  int ordinal;
  int id;                      /* the plug-in's number of the device */
  char name[64];
  _Atomic int64_t limit;       /* bytes of arrays: TERN_MEMORY_LIMIT, what set_limit said, or 0 = the plug-in decides */
  pthread_mutex_t lock;        /* guards the counters: release comes from any thread */
  tern_backend_stats stats;
};

struct tern_memory {
  pjrt_buffer *buffer;         /* NULL for an array without elements, which never reaches the plug-in, and for a lost one */
  size_t bytes;
  tern_dtype dtype;
  int32_t rank;
  bool lost;                   /* a failed launch consumed the array: its contents are gone */
  int32_t uses;                /* scratch of a launch: how often it is passed */
  int64_t dims[TERN_MAX_RANK];
};

tern_status tern_pjrt_allocate(tern_backend_device *device, tern_dtype dtype, int rank, const int64_t *dims, tern_memory **out);
tern_status tern_pjrt_upload(tern_backend_device *device, tern_dtype dtype, int rank, const int64_t *dims, const void *host, tern_memory **out);
tern_status tern_pjrt_download(tern_backend_device *device, tern_memory *memory, void *host, size_t bytes);
void tern_pjrt_release(tern_backend_device *device, tern_memory *memory);
size_t tern_pjrt_size(tern_memory *memory);
/* A description without a buffer, not counted yet; NULL without host memory. */
tern_memory *tern_pjrt_memory_new(tern_dtype dtype, int rank, const int64_t *dims);
void tern_pjrt_count(tern_backend_device *device, int64_t bytes, int64_t arrays); /* adds to the counters; negative takes away */
/* TERN_OUT_OF_MEMORY where `bytes` more would pass the device's limit. */
tern_status tern_pjrt_make_room(tern_backend_device *device, int64_t bytes);
void tern_pjrt_buffer_destroy(const pjrt_api *api, pjrt_buffer *buffer); /* NULL is fine */
pjrt_error *tern_pjrt_buffer_from_host(tern_backend_device *device, int type, const int64_t *dims, size_t rank, const void *host, pjrt_buffer **out,
                                       pjrt_event **done); /* `done`: when the host's data may be reused */
int tern_pjrt_type(tern_dtype dtype); /* PJRT_TYPE_... */

/* ---- legalise.c ---- */
/* What is known of a platform beyond what its plug-in tells: a bit per dtype that it lacks. */
typedef struct tern_pjrt_target {
  const char *platform;        /* compared with the start of platform_name, ignoring case */
  uint32_t lacks;              /* 1u << dtype */
  bool option_overrides;       /* takes XLA's debug options per program */
  bool forgets_nan;            /* its maximum and minimum may give a number where one of the two is NaN */
} tern_pjrt_target;

const tern_pjrt_target *tern_pjrt_target_of(const char *platform_name);
/* A program of operations that tern_pjrt_text writes; the caller frees it. */
tern_status tern_pjrt_legalise(const tern_program *program, const tern_pjrt_target *target, const char *platform_name, tern_program **out);

/* ---- text.c ---- */
/* One check of the program: the operation that failed, and in which words. */
typedef struct tern_pjrt_check {
  uint32_t tag;
  tern_check check;
} tern_pjrt_check;

/* What the text's function takes and gives, beside the program's own parameters and results. Arrays without elements take no part. */
typedef struct tern_pjrt_signature {
  int32_t n_arguments;         /* parameters with elements, then the packed words, then the packed f64 scalars */
  int32_t *parameter_argument; /* per parameter: its argument or -1 */
  int32_t *result_output;      /* per result: its output or -1 */
  int32_t *aliased_result;     /* per parameter: the result that takes over its storage, or -1 */
  int32_t n_outputs;           /* results with elements, then the checks */
  int32_t n_words, words_argument;     /* scalars that travel as pairs of u32 words; argument or -1 */
  int32_t n_doubles, doubles_argument; /* f64 scalars; argument or -1 */
  int32_t n_checks, checks_output;     /* i64[2 * n_checks]: for each check its passed (1 or 0) and the first index found outside; output or -1 */
  tern_pjrt_check *checks;
} tern_pjrt_signature;

/* How the user's lines go into the text: not at all; as comments, for people; as MLIR locations, which compilers put into their messages. */
typedef enum tern_text_lines { TERN_TEXT_PLAIN, TERN_TEXT_COMMENTS, TERN_TEXT_LOCATIONS } tern_text_lines;

/* The program, legalised, as MLIR text (free() it), and its signature (tern_pjrt_signature_free).
 * `guard_nan`: this compiler's maximum and minimum may forget NaN, so the text must see to it. */
tern_status tern_pjrt_text(const tern_program *program, tern_text_lines lines, bool guard_nan, char **text, tern_pjrt_signature *signature);
void tern_pjrt_signature_free(tern_pjrt_signature *signature);

/* ---- options.c ---- */
/* Serialised compile options (*out is the caller's, free() it) for one replica of `partitions` partitions on these devices (NULL: the plug-in's choice); `overrides`:
 * with XLA's debug options, which not every plug-in takes. */
tern_status tern_pjrt_compile_options(int partitions, const int *device_ids, bool overrides, char **out, size_t *size);

/* ---- disk_cache.c ---- */
typedef struct tern_pjrt_cache_entry {
  char *key;                   /* NULL: nothing is cached (switched off, or the plug-in cannot) */
  size_t key_size;
  char folder[512], path[576];
} tern_pjrt_cache_entry;

/* The entry for a program and its options on this device; tern_pjrt_cache_entry_free it. */
void tern_pjrt_cache_key(const tern_backend_device *device, const char *text, const char *options, size_t options_size, tern_pjrt_cache_entry *entry);
void tern_pjrt_cache_entry_free(tern_pjrt_cache_entry *entry);
pjrt_loaded_executable *tern_pjrt_cache_load(const tern_backend_device *device, const tern_pjrt_cache_entry *entry); /* NULL: not there */
void tern_pjrt_cache_store(const tern_backend_device *device, const tern_pjrt_cache_entry *entry, pjrt_loaded_executable *loaded);

/* ---- ahead.c: compiling for a topology, with no such chip in the machine ---- */
typedef struct tern_pjrt_topology {
  const pjrt_api *api;
  pjrt_topology *handle;
  int n_devices;
  int64_t memory_limit;        /* bytes of a device; 0 where the plug-in does not say */
  char platform[192];          /* the compiler's version, for people */
} tern_pjrt_topology;

/* What the compiler says of a program; a negative number: it does not say. Bytes and operations are those of one device. */
typedef struct tern_pjrt_ahead_report {
  double seconds;              /* spent compiling */
  int64_t argument_bytes, output_bytes, alias_bytes, temporary_bytes, peak_bytes, code_bytes, serialized_bytes;
  double flops, bytes_accessed, transcendentals, optimal_seconds;
} tern_pjrt_ahead_report;

/* name: "v5e:2x2", as the plug-in spells it. `config`: what the plug-in must be told of a chip it cannot ask (target_config of XLA's GPU), or NULL.
 * Loads the plug-in in this process: call it in one that may die. */
tern_status tern_pjrt_topology_open(const char *path, const char *name, const char *config, tern_pjrt_topology *out);
void tern_pjrt_topology_close(tern_pjrt_topology *topology);
tern_status tern_pjrt_compile_ahead(const tern_pjrt_topology *topology, const char *text, int partitions, tern_pjrt_ahead_report *out);

/* ---- executable.c ---- */
tern_status tern_pjrt_compile(tern_backend_device *device, const tern_program *program, tern_executable **out);
void tern_pjrt_executable_release(tern_executable *executable);
tern_status tern_pjrt_execute(tern_executable *executable, tern_launch *launch);

#endif
