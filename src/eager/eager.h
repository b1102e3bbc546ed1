/* eager: deferred execution. Operations are recorded against buffers, cut into programs, looked up in a cache, compiled on a miss, and run in order by
 * one thread per device. It knows nothing of PyTorch: tests drive it from C.
 *
 * A *buffer* is the storage of a tensor: its identity. Its contents at a point of the queue are a *version*. An operation is recorded as a
 * *node*: which table row, on which views of which buffers, with which attributes and scalars, writing which views. Nothing is computed until
 * somebody reads; then all recorded nodes become one program in which results that nobody can see any more are never written.
 *
 * Threads: everything here may be called from any thread; one process-wide lock guards recording. Functions that wait (tern_buffer_read_*,
 * tern_device_synchronize) hold no lock while they do; the caller should have given up the GIL. */
#ifndef TERN_EAGER_H
#define TERN_EAGER_H
#include "../backend.h"
#include "../geometry/geometry.h"

typedef struct tern_device tern_device;  /* one open device with its queue; lives until the process ends */
typedef struct tern_buffer tern_buffer;
typedef struct tern_pin tern_pin;

/* ---- devices ---- */
/* Chooses the backend by TERN_DEVICE and opens device `ordinal` on first use. Thread-safe; a failure is returned each time, in words. */
tern_status tern_device_get(int ordinal, tern_device **out);
/* The device if it is open, else NULL. */
tern_device *tern_device_if_open(int ordinal);
/* How many devices there are; 0 with an error. Does not open one. */
tern_status tern_device_count(int *out);
int tern_device_ordinal(const tern_device *device);
const tern_backend_info *tern_device_info(const tern_device *device);
void tern_device_stats(tern_device *device, tern_backend_stats *out);
void tern_device_reset_peak(tern_device *device);
void tern_device_reset_totals(tern_device *device);
void tern_device_empty_cache(tern_device *device);
/* At most this part (0 < fraction <= 1) of the device's memory may be used from now on; an error where the device does not say how much it has. */
tern_status tern_device_set_memory_fraction(tern_device *device, double fraction);
double tern_device_memory_fraction(const tern_device *device);
/* What the hardware can do at best: f32 operations and bytes per second, 0 where unknown. */
void tern_device_limits(tern_device *device, double *flops, double *bytes);

/* Tensors that are alive and have contents, alike ones (line, dtype, dims, pending) as one row, the largest total first: the number of rows, to be freed by the caller. */
typedef struct tern_live {
  uint32_t line;            /* that made them; 0 = unknown */
  int count;
  bool is_pending;          /* a program that has not run will make the contents */
  int64_t bytes;            /* of all of them */
  tern_dtype dtype;
  int rank;
  int64_t dims[TERN_MAX_TENSOR_RANK];
} tern_live;
int tern_device_live(tern_device *device, tern_live **out);

/* Finishes what is recorded, without raising anything: a failure stays for the next wait. What figures about memory are asked behind. */
void tern_device_settle(tern_device *device);

/* The memory of live tensors, piece by piece; the caller frees *out. */
typedef struct tern_memory_block {
  uint64_t address;         /* stands for the memory, as in the history; no pointer */
  int64_t bytes;
  uint32_t line;            /* that made the tensor */
  tern_dtype dtype;
  int rank;
  int64_t dims[TERN_MAX_TENSOR_RANK];
} tern_memory_block;
int tern_device_blocks(tern_device *device, tern_memory_block **out);

/* ---- the history of memory: off until started; the newest `most` events are kept ---- */
typedef enum tern_memory_action { TERN_MEMORY_MADE, TERN_MEMORY_FREED, TERN_MEMORY_REFUSED } tern_memory_action;
typedef struct tern_memory_event {
  tern_memory_action action;
  int device;
  uint64_t address;         /* REFUSED: the bytes that were in use */
  int64_t bytes, microseconds; /* time of day */
  uint32_t line;            /* 0 = unknown */
  const char *operation;    /* that made it, or NULL: came from the host. Static */
} tern_memory_event;
tern_status tern_history_start(size_t most); /* forgets what was kept */
void tern_history_stop(void);                /* keeps it */
size_t tern_history_events(tern_memory_event **out); /* oldest first; the caller frees *out */

/* ---- buffers ---- */
/* A buffer of `bytes` whose contents are undefined. No memory is taken until something is written. `line` may be 0. */
tern_status tern_buffer_new(tern_device *device, size_t bytes, uint32_t line, tern_buffer **out);
/* The tensor that owned the storage is gone: contents need not exist any more. Safe from any thread and in a forked child. */
void tern_buffer_release(tern_buffer *buffer);
size_t tern_buffer_bytes(const tern_buffer *buffer);
tern_device *tern_buffer_device(const tern_buffer *buffer);
/* A number that stands for the storage's address: unique among live buffers, as wide as the buffer, never mapped. */
uintptr_t tern_buffer_address(const tern_buffer *buffer);
/* The live buffer with this address on an open device, or NULL: also where its contents are undefined Hands over what is recorded; slow, for callers that were given an address
 * alone. */
tern_buffer *tern_buffer_at(uintptr_t address);

/* Writes host data (dense, row-major) as the whole new contents; the source may be reused at once. rank and dims describe the array that the buffer
 * holds from now on: count * size == bytes of the buffer, or less. */
tern_status tern_buffer_write(tern_buffer *buffer, tern_dtype dtype, int rank, const int64_t *dims, const void *host);
/* Finishes everything recorded up to now that the contents depend on, then copies `bytes` from byte `offset`. */
tern_status tern_buffer_read(tern_buffer *buffer, size_t offset, size_t bytes, void *host);
/* Host-addressable devices: finishes, and gives the storage itself, to be read and written by the caller until the next operation is recorded
 * on this buffer. *out is NULL for an empty buffer. `TERN_UNSUPPORTED` on other devices. */
tern_status tern_buffer_map(tern_buffer *buffer, void **out);
/* Host-addressable devices: a buffer over somebody else's memory (no copy); release_owner(owner) when it is no longer needed. */
tern_status tern_buffer_adopt(tern_device *device, void *data, size_t bytes, void (*release_owner)(void *), void *owner, tern_buffer **out);
/* Host-addressable devices: memory that tern and somebody outside use in turns. What tern writes is there once the device was waited for; what is written outside is seen by
 * operations recorded afterwards. tern_buffer_pin finishes what is pending and gives the storage's memory, until tern_buffer_unpin (safe from any thread); it outlives the
 * buffer. tern_buffer_share makes a buffer over the caller's memory; on an error `owner` stays the caller's. */
tern_status tern_buffer_pin(tern_buffer *buffer, tern_pin **out);
void *tern_pin_data(const tern_pin *pin);
void tern_buffer_unpin(tern_pin *pin);
tern_status tern_buffer_share(tern_device *device, void *data, size_t bytes, void (*release_owner)(void *), void *owner, tern_buffer **out);
/* Changes the size; keeps the first min(old, new) bytes. Finishes pending work on the buffer. */
tern_status tern_buffer_resize(tern_buffer *buffer, size_t bytes);

/* ---- recording ---- */
typedef struct tern_operand {
  tern_buffer *buffer;      /* NULL: an absent optional operand */
  tern_dtype dtype;
  tern_geometry view;       /* in elements of dtype */
} tern_operand;

typedef struct tern_output {
  tern_buffer *buffer;
  tern_dtype dtype;         /* of the destination */
  tern_dtype computed;      /* of what the lowering gives; converted where it differs */
  tern_geometry view;       /* in elements of dtype; sizes equal the lowering's result */
} tern_output;

typedef struct tern_scalar_argument {
  tern_dtype dtype;         /* what the lowering wants: bool, i32, i64, u32, u64, f32, f64 */
  uint8_t kind;             /* tern_scalar_kind where it changes the algebra, else 0: part of the program's key */
  uint64_t bits;            /* the value in that dtype, low bytes: not part of the key */
} tern_scalar_argument;
enum tern_scalar_kind { TERN_SCALAR_ANY, TERN_SCALAR_ZERO, TERN_SCALAR_ONE, TERN_SCALAR_MINUS_ONE, TERN_SCALAR_TWO, TERN_SCALAR_HALF,
                        TERN_SCALAR_MINUS_HALF, TERN_SCALAR_THREE, TERN_SCALAR_MINUS_TWO };

/* Packs a number as a scalar argument; with `classify` its kind is set. */
tern_scalar_argument tern_scalar_double(tern_dtype dtype, double value, bool classify);
tern_scalar_argument tern_scalar_int(tern_dtype dtype, int64_t value, bool classify);

/* What a lowering sees of its node. */
typedef struct tern_lowering {
  tern_program *program;
  int n_operands, n_attrs, n_scalars, n_outputs;
  const tern_value *operands;   /* values of the views' shapes; TERN_NO_VALUE where absent */
  const int64_t *attrs;
  const tern_value *scalars;    /* rank 0 */
  const uint8_t *scalar_kinds;
  const tern_output *outputs;   /* computed dtype and view.sizes are what each result must have; the buffers are not to be touched */
} tern_lowering;

/* One kind of node: what src/aten has one of per row. Lives for ever. */
typedef struct tern_operation {
  const char *name;             /* "aten::add.Tensor" */
  uint16_t id;                  /* unique, dense: part of the key */
  /* Appends operations and gives one value per output, of exactly outputs[i].view.sizes and outputs[i].computed. */
  tern_status (*lower)(const tern_lowering *node, tern_value *results);
} tern_operation;

typedef struct tern_node {
  const tern_operation *operation;
  tern_device *device;
  uint32_t line;                /* diag: where in the user's program; 0 = unknown */
  int n_operands, n_outputs, n_attrs, n_scalars;
  const tern_operand *operands;
  const tern_output *outputs;
  const int64_t *attrs;         /* part of the key: dims, flags */
  const tern_scalar_argument *scalars;
} tern_node;

/* Records the node; in strict mode also runs it. All arrays are copied. Versions are queue order: readers recorded earlier see the old contents of what this
 * node writes. */
tern_status tern_record(const tern_node *node);

/* ---- running ---- */
typedef enum tern_mode { TERN_MODE_FUSED, TERN_MODE_STRICT, TERN_MODE_DEBUG } tern_mode;
tern_mode tern_mode_get(void);
void tern_mode_set(tern_mode mode); /* process-wide; what is queued already runs as it was recorded */

/* Cuts a program here and hands it to the device; does not wait. The end of an optimizer step is such a place. */
tern_status tern_device_flush(tern_device *device);
/* How long the device has been running programs since it was opened. */
double tern_device_busy_seconds(const tern_device *device);
/* Flushes and waits; returns (once) the error of a failed program. */
tern_status tern_device_synchronize(tern_device *device);
tern_status tern_synchronize_all(void);

/* ---- positions: where a queue stands, which is what events are ---- */
/* The position behind everything recorded up to now. Cuts nothing, so that recording an event costs nothing and changes no program. */
uint64_t tern_device_position(tern_device *device);
/* Whether the device has done everything before the position. Hands over what is recorded before it, and does not wait. */
tern_status tern_device_has_reached(tern_device *device, uint64_t position, bool *out);
/* Waits until it has; returns (once) the error of a failed program. */
tern_status tern_device_wait_for(tern_device *device, uint64_t position);
/* The time at which the device will have done everything recorded up to now: cuts a program here. One owner. */
typedef struct tern_timestamp tern_timestamp;
tern_status tern_timestamp_new(tern_device *device, tern_timestamp **out);
uint64_t tern_timestamp_position(const tern_timestamp *timestamp);
/* Seconds of the monotonic clock; meaningful once the device has reached the timestamp's position. */
double tern_timestamp_seconds(const tern_timestamp *timestamp);
void tern_timestamp_release(tern_timestamp *timestamp); /* NULL is fine; safe in a forked child */

/* Calls `show` with the program that the operations recorded up to now would become, with the results somebody can still see; they stay recorded. `show` runs under the
 * record lock: it must neither record nor wait. TERN_INVALID_ARGUMENT where nothing is recorded. */
tern_status tern_device_show(tern_device *device, tern_status (*show)(void *context, const tern_program *program), void *context);

typedef struct tern_eager_stats {
  int64_t nodes;             /* operations recorded */
  int64_t programs;          /* programs run */
  int64_t hits;              /* programs run that were in the cache */
  int64_t compiled;          /* programs compiled: in no cache */
  int64_t loaded;            /* programs whose executable an earlier process left on disk */
  int64_t cached;            /* programs in the cache */
  int64_t fallbacks;         /* operators served by PyTorch's CPU kernels (counted by tern_stats_fallback) */
  int64_t host_draws;        /* random operators that drew from PyTorch's CPU stream because the program asked for it (counted by tern_stats_host_draw) */
  int64_t gathers;           /* views that could not be recovered and were gathered from the flat storage */
  int64_t live_buffers, live_versions;
  double compile_seconds;    /* spent making programs */
} tern_eager_stats;
void tern_stats(tern_eager_stats *out);
void tern_stats_host_draw(void);
void tern_stats_reset(void); /* the counters, not what is alive */
/* A program that had to be made: what, how long, and what set it apart from earlier ones. */
typedef struct tern_compile_entry {
  int64_t number;            /* from 1 */
  uint32_t operations;       /* recorded ones */
  uint32_t line, changed_line; /* of the last operation; of the one where it differs from an earlier program, 0: none */
  double seconds;
  bool from_disk;            /* an executable kept by an earlier process: nothing was compiled */
  char reason[256];          /* "operand 0 of aten::mm: 7x64 became 8x64" */
} tern_compile_entry;
/* The newest entries in order. `each` must not call back into eager. */
void tern_compile_log(void (*each)(void *context, const tern_compile_entry *entry), void *context);
/* Counts a fallback of the operator at the line; tern_stats_fallbacks lists them. */
void tern_stats_fallback(const char *operator_name, uint32_t line);
void tern_stats_fallbacks(void (*each)(void *context, const char *operator_name, uint32_t line, int64_t count), void *context);

/* ---- random numbers: Philox streams. Each device has one; a program's generators are others, owned by whoever made them ---- */
typedef struct tern_stream {
  int64_t seed, offset; /* offset: the next counter. Read and written by the functions below only: they take a lock */
} tern_stream;
tern_stream *tern_device_stream(tern_device *device); /* lives as long as the device */
/* Reserves `counters` 128-bit counters for one draw; gives seed and first counter. Recorded draws keep their counters: running later changes no number. */
void tern_stream_draw(tern_stream *stream, int64_t counters, int64_t *seed, int64_t *offset);
void tern_stream_get(tern_stream *stream, int64_t *seed, int64_t *offset);
void tern_stream_set(tern_stream *stream, int64_t seed, int64_t offset);

/* ---- fork ---- */
/* True in a child of the process that opened a device. */
bool tern_is_forked_child(void);

#endif
