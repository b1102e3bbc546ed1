/* backend: the one seam to hardware. A backend is a table of functions; eager and the public API drive it and know no other.
 *
 * Threading: `execute` calls of one device never overlap (its queue is in order); everything else may be called from any thread at any time, also while
 * a program runs. No function takes a lock of another room or calls back into one.
 * Errors: a status; nothing aborts; after any error the device stays usable. */
#ifndef TERN_BACKEND_H
#define TERN_BACKEND_H
#include "ir/ir.h"
#include "memory/memory.h"

typedef struct tern_backend_device tern_backend_device; /* one chip, opaque: each backend's own */
typedef struct tern_memory tern_memory;                 /* one array on it, opaque: each backend's own; one owner at a time */
typedef struct tern_executable tern_executable;         /* one compiled program; immutable, usable from any thread */

typedef struct tern_backend_info {
  char name[64];           /* "cpu", "xla-cpu" */
  char platform[192];      /* for people: ISA and threads, or the plug-in's platform version */
  bool host_addressable;   /* memory is plain host memory: host_pointer works, a fallback copies nothing */
  bool static_shapes;      /* compiling is expensive and per shape: programs are cut where they repeat */
  bool has_f64, has_i64, has_complex;
  int64_t memory_limit;    /* bytes, 0 = unknown */
  int compute_units;       /* what runs at the same time: the embedded engine's threads; 1 = unknown */
} tern_backend_info;

typedef struct tern_backend_stats {
  tern_memory_stats memory;  /* of arrays and of what programs need while they run */
  int64_t compiled, loaded;  /* executables that a compiler made, and that came from disk instead */
} tern_backend_stats;

/* A kernel that ran, for profilers. */
typedef struct tern_kernel_event {
  const char *kernel;       /* "dot", "loop", "copy"; lives as long as the process */
  const uint32_t *tags;     /* the operations in it (tern_op.tag), in program order; valid during the call */
  int32_t n_tags;
  int64_t start, end;       /* nanoseconds of tern_now's clock */
  int64_t flops, bytes;     /* arithmetic operations; bytes read and written if every operand came from memory once */
} tern_kernel_event;

/* What one launch is given and gives back. */
typedef struct tern_launch {
  /* One per parameter. Where donated[i] is set, the launch takes the memory over if it succeeds: it is released or becomes an output. When the
   * launch fails, inputs[i] (possibly replaced by an equal one) still belongs to the caller and holds its old value. */
  tern_memory **inputs;
  const bool *donated;
  /* One 64-bit word per scalar, in the scalar's dtype, in the low bytes (little endian). */
  const uint64_t *scalars;
  /* One per result, filled on success; owned by the caller. */
  tern_memory **outputs;
  int64_t temporary_bytes; /* set by the backend: memory for intermediates that this launch took and gave back; 0 where unknown */
  /* Where a check of the program failed (tern_is_check_failure below): the tag of that operation, and the value found. */
  uint32_t failed_tag;
  int64_t failed_index;
  /* Where set, called after each kernel, on the thread that launches. A backend that cannot see its kernels never calls it. */
  void (*on_kernel)(void *context, const tern_kernel_event *event);
  void *on_kernel_context;
} tern_launch;

static inline bool tern_is_check_failure(tern_status status) {
  const tern_code code = tern_error_code(status);
  return code == TERN_INDEX_OUT_OF_RANGE || code == TERN_OUT_OF_DOMAIN;
}

typedef struct tern_backend {
  const char *name;
  /* `spec`: what TERN_DEVICE said. Opens device number `ordinal`. Idempotent per ordinal is not required: eager opens each once. */
  tern_status (*open)(const char *spec, int ordinal, tern_backend_device **out);
  void (*close)(tern_backend_device *device);
  tern_status (*device_count)(const char *spec, int *out);
  void (*info)(tern_backend_device *device, tern_backend_info *out);
  void (*stats)(tern_backend_device *device, tern_backend_stats *out);
  void (*reset_peak)(tern_backend_device *device);
  void (*reset_totals)(tern_backend_device *device);
  void (*empty_cache)(tern_backend_device *device); /* give back what the allocator keeps */
  /* From now on at most `bytes` of arrays, whatever the limit was when the device was opened. What is there stays. */
  void (*set_limit)(tern_backend_device *device, int64_t bytes);

  /* Uninitialised memory (a backend that cannot may zero it). Dense, row-major. */
  tern_status (*allocate)(tern_backend_device *device, tern_dtype dtype, int rank, const int64_t *dims, tern_memory **out);
  void (*release)(tern_backend_device *device, tern_memory *memory);
  /* New memory with a copy of host data (the source may be reused when the call returns). */
  tern_status (*upload)(tern_backend_device *device, tern_dtype dtype, int rank, const int64_t *dims, const void *host, tern_memory **out);
  /* Waits for the memory and copies all of it. `bytes` must be its size. */
  tern_status (*download)(tern_backend_device *device, tern_memory *memory, void *host, size_t bytes);
  /* Host-addressable backends only: the array itself, 64-byte aligned. */
  void *(*host_pointer)(tern_memory *memory);
  /* Host-addressable backends only: memory that is somebody else's array; release(owner) is called when it is released. */
  tern_status (*adopt)(tern_backend_device *device, void *data, size_t bytes, void (*release_owner)(void *owner), void *owner, tern_memory **out);
  size_t (*size)(tern_memory *memory); /* bytes */

  /* The program is finished and verified; the backend keeps no reference to it. */
  tern_status (*compile)(tern_backend_device *device, const tern_program *program, tern_executable **out);
  void (*release_executable)(tern_executable *executable);
  tern_status (*execute)(tern_executable *executable, tern_launch *launch);
  /* What the hardware can do at best, measured or from its maker: f32 operations and bytes per second. NULL: not known. May take a tenth of a second. */
  void (*limits)(tern_backend_device *device, double *flops, double *bytes);
} tern_backend;

extern const tern_backend tern_cpu_backend;  /* the embedded engine: spec "" or "cpu" */
extern const tern_backend tern_trace_backend; /* programs are kept, not run: "trace", "trace:zeros", "trace:cpu" (src/trace/trace.h) */
extern const tern_backend tern_pjrt_backend; /* every other spec */

#endif
