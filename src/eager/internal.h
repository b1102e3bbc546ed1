/* eager's inner structures. Who may touch what:
 *   - a buffer, the recording of its device and `submitted` are guarded by the record lock (tern_record_lock);
 *   - a job, the program cache and a version's contents belong to whoever holds the device's execution role (worker.c);
 *   - a version's state is published with release order and may be read by anybody. */
#ifndef TERN_EAGER_INTERNAL_H
#define TERN_EAGER_INTERNAL_H
#include <pthread.h>
#include <stdatomic.h>
#include "../base/lock.h"
#include "../diag/diag.h"
#include "eager.h"

/* How a storage is described: a dense row-major array in the storage's own order of dimensions. */
typedef struct tern_base {
  tern_dtype dtype;
  int32_t rank;
  int64_t dims[TERN_MAX_TENSOR_RANK];
} tern_base;

/* Why a device's queue failed. Shared by every version that it poisoned. */
typedef struct tern_failure {
  atomic_int references;
  tern_status status;      /* without the place */
  const char *operation;   /* or NULL */
  uint32_t line;
} tern_failure;

enum { TERN_VERSION_PENDING, TERN_VERSION_READY, TERN_VERSION_FAILED };

/* Memory that somebody outside looks at: see pin.c. */
struct tern_pin {
  atomic_int references;
  atomic_int outside;      /* who looks; 0: it may be taken off */
  void *data;
  size_t bytes;
  void (*release_owner)(void *owner);
  void *owner;
};

/* The contents of a buffer at one point of the queue: memory that exists or that a job will make. */
typedef struct tern_version {
  atomic_int references;
  atomic_int state;
  tern_device *device;
  tern_memory *memory;     /* owned; set when ready */
  tern_failure *failure;   /* owned reference; set when failed */
  _Atomic uint64_t address; /* its memory's place in the history; 0: none */
  tern_pin *pin;           /* owned reference: where its memory has to lie, or NULL. Set before it is submitted */
} tern_version;

struct tern_buffer {
  tern_device *device;
  size_t bytes;
  uintptr_t address;
  uint32_t line;
  bool is_live;            /* a tensor's storage still owns it */
  bool has_contents;       /* `base` means something: written, or about to be by a recorded node */
  uint32_t local;          /* its number in the recording `recording` */
  uint64_t recording;
  union {
    tern_version *version;       /* contents before the current recording; NULL: undefined */
    struct tern_buffer *next_spare; /* of one that is kept for reuse */
  };
  struct tern_buffer *next_held, **held_at; /* in the device's list of those that were given contents; held_at is NULL for others */
  tern_base base;          /* of the contents at the end of the current recording */
  tern_pin *pin;           /* owned reference, or NULL */
};

/* ---- a recording: the nodes since the last cut, as the words of their key ---- */
typedef struct tern_recorded_node {
  const tern_operation *operation;
  uint32_t line;
  uint32_t start;          /* first word, the introductions of its new buffers included */
} tern_recorded_node;

typedef struct tern_local {
  tern_buffer *buffer;
  uint32_t first_write, last_write; /* node numbers + 1; 0: not written */
} tern_local;

typedef struct tern_recording {
  uint64_t id;
  uint64_t *words;
  size_t n_words, cap_words;
  tern_recorded_node *nodes;
  uint32_t n_nodes, cap_nodes;
  uint64_t *scalars;
  uint32_t n_scalars, cap_scalars;
  tern_local *locals;
  uint32_t n_locals, cap_locals;
  uint64_t first_kind;     /* operation and line of the first node: where a loop starts again */
  size_t released_bytes;   /* contents that only this recording keeps alive */
  struct tern_recording *next; /* in the list of spare recordings */
} tern_recording;

/* Words of the key. Buffers are numbered in the order in which the recording meets them, so equal work has equal words. */
enum { TERN_WORD_BUFFER = 1, TERN_WORD_NODE = 2, TERN_WORD_LIVE = 3 };

/* Bits of an operand's first word: no operand; a run of rows whose first row is a scalar of the launch. */
#define TERN_OPERAND_ABSENT ((uint64_t)1 << 48)
#define TERN_OPERAND_MOVING ((uint64_t)1 << 49)

/* ---- a job: a recording on its way ---- */
typedef struct tern_job {
  struct tern_job *next;
  tern_recording *recording;
  tern_version **inputs;   /* one per local: the contents before it, or NULL; owned references */
  tern_version **outputs;  /* one per local: what the job makes, or NULL; owned references */
} tern_job;

/* ---- a compiled program ---- */
typedef struct tern_cached_program {
  uint64_t hash;
  uint64_t *key;
  size_t n_key;
  tern_executable *executable;
  uint32_t n_parameters, n_results;
  uint32_t *parameter_locals, *result_locals;
  int64_t number;          /* in order of compilation, from 1 */
  bool *replaced;          /* per parameter: a result replaces its contents, so its memory may be given up */
  int64_t last_use;
} tern_cached_program;

typedef struct tern_program_cache {
  tern_cached_program **slots; /* open addressing by hash */
  size_t n_slots, n_used;
  int64_t clock;
} tern_program_cache;

struct tern_device {
  int ordinal;
  const tern_backend *backend;
  tern_backend_device *hardware;
  tern_backend_info info;
  uintptr_t next_address;        /* record lock */
  tern_buffer *spare_buffers;    /* record lock */
  int n_spare_buffers;
  tern_buffer *held;              /* record lock: the buffers that were given contents */
  tern_recording *recording;      /* record lock */
  tern_recording *spare;          /* record lock */
  uint32_t soft_limit, hard_limit; /* nodes */
  size_t released_limit;          /* bytes */
  _Atomic double memory_fraction; /* of info.memory_limit, that may be used */
  tern_stream stream; /* record lock */

  pthread_mutex_t lock;           /* the job queue */
  pthread_cond_t changed;         /* a job came or one was finished */
  tern_job *first_job, *last_job;
  atomic_int n_jobs;              /* queued or running; changed under the lock, read without */
  bool busy;                      /* somebody holds the execution role */
  atomic_ullong submitted, reached; /* recordings that were handed over and that are done, by number; changed under the lock, read without */
  atomic_llong busy_nanoseconds;  /* spent running jobs */
  tern_timestamp *timestamps;     /* waiting for their positions; owned references */
  tern_failure *failure;          /* not raised yet; owned reference */
  tern_program_cache cache;       /* execution role */
};

extern tern_lock tern_record_lock;

/* ---- buffer.c ---- */
tern_version *tern_version_new(tern_device *device); /* pending, one reference; NULL without memory */
void tern_version_retain(tern_version *version);
void tern_version_release(tern_version *version);    /* NULL is fine */
void tern_buffer_hold(tern_buffer *buffer);          /* record lock held: it is given contents, for tern_device_live */
void tern_buffer_free(tern_buffer *buffer);          /* record lock held; it must not be live nor recorded */
typedef enum tern_write_kind { TERN_WRITE_WHOLE, TERN_WRITE_PART } tern_write_kind;
/* What a write does to the description of the contents: recording and lowering must agree, so both ask here. *has_contents is updated. */
tern_write_kind tern_base_write(tern_base *base, bool *has_contents, size_t bytes, const tern_output *output, int *order);

/* The backend's upload. Where memory is short, what is queued is finished and what is kept for reuse given back, and it is tried again. No lock held. */
tern_status tern_upload(tern_device *device, tern_dtype dtype, int rank, const int64_t *dims, const void *host, tern_memory **out);

/* ---- pin.c ---- */
tern_pin *tern_pin_retain(tern_pin *pin); /* NULL is fine, here and below */
void tern_pin_release(tern_pin *pin);
bool tern_pin_is_seen(const tern_pin *pin);
/* Brings a result into the pinned memory; takes `memory` over and gives what stands for the pinned memory. */
tern_memory *tern_pin_settle(tern_device *device, tern_pin *pin, tern_memory *memory);

/* ---- record.c ---- */
tern_status tern_recording_take(tern_device *device, tern_recording **out); /* record lock held */
void tern_recording_give_back(tern_device *device, tern_recording *recording); /* record lock held */
/* Hands the current recording to the device as a job. Record lock held; *submitted is set where there was one: wake
 * the worker once the lock is given up. */
tern_status tern_cut(tern_device *device, bool *submitted);

/* ---- lower.c ---- */
typedef struct tern_lowered {
  tern_program *program;
  uint32_t n_parameters, n_results;
  uint32_t *parameter_locals, *result_locals; /* in the program's arena */
} tern_lowered;
/* Builds the program of the first n_nodes nodes, without those that `skipped` (or NULL) marks; wanted[local] says whose contents must be results (where written). On an error *failed_node is the node
 * to blame, or n_nodes. */
tern_status tern_lower(const tern_recording *recording, uint32_t n_nodes, const bool *skipped, const bool *wanted, tern_lowered *out, uint32_t *failed_node);
/* Which nodes depend on contents that an earlier program failed to make. failures[local] is the failure of its contents before the recording, or NULL, and
 * afterwards of those behind it; skipped[node] is set where the node cannot run. A node that would spoil good contents that somebody can still see
 * (visible[local]) ends the walk: its number is returned and its failure given in *raised; without one the number of nodes is returned. Without host memory: 0. */
uint32_t tern_recording_spread_failures(const tern_recording *recording, const bool *visible, const tern_failure **failures, bool *skipped, const tern_failure **raised);

/* ---- shortage.c ---- */
/* The node among the first n_nodes at which an eager run would have had no memory, with `in_use` bytes at the start; without one the node with the largest results, or
 * n_nodes. dies[local]: nobody but the recording sees it. *bytes: what that node's results take. */
uint32_t tern_recording_blame_memory(const tern_recording *recording, uint32_t n_nodes, const bool *dies, int64_t in_use, int64_t limit, size_t *bytes);
/* Takes an error and adds, where memory ran out, the largest live tensors and what to try, on lines of their own. No lock held. */
tern_status tern_shortage_report(tern_device *device, tern_status status);

/* ---- history.c ---- */
extern atomic_bool tern_history_on; /* whoever makes or frees memory asks this first */
uint64_t tern_history_address(int64_t bytes);
void tern_history_note(tern_memory_event event);
void tern_history_made(tern_version *version, const char *operation, uint32_t line);
void tern_history_freed(tern_version *version, const tern_memory *memory); /* before the memory is given up */

/* ---- worker.c ---- */
tern_status tern_worker_start(tern_device *device);
void tern_submit(tern_device *device, tern_job *job);
void tern_job_free(tern_device *device, tern_job *job);
/* Wakes the worker for what was submitted. */
void tern_worker_wake(tern_device *device);
/* Waits until at most `most` jobs are on their way. */
void tern_wait_backlog(tern_device *device, int most);
/* Waits for the version (NULL: for every job), running jobs on this thread where nobody does. Returns the device's unraised failure, or the version's own. */
tern_status tern_wait(tern_device *device, tern_version *version);
tern_status tern_wait_position(tern_device *device, uint64_t position);
void tern_failure_release(tern_failure *failure);

/* ---- profile.c ---- */
extern atomic_bool tern_profiling;
typedef struct tern_profile_launch {
  const struct tern_recording *recording;
  int device;
  int64_t program;
  int64_t n_kernels; /* reported so far */
} tern_profile_launch;
void tern_profile_kernel(void *launch, const tern_kernel_event *event); /* a tern_launch's on_kernel */
/* The launch is over: one event for all of it where the backend reported no kernels. */
void tern_profile_program(tern_profile_launch *launch, int64_t start, int64_t end);

/* ---- position.c ---- */
/* The device has done the recordings up to `position`. The queue's lock is held. */
void tern_position_reached(tern_device *device, uint64_t position);

/* ---- cache.c ---- */
tern_cached_program *tern_cache_find(tern_program_cache *cache, const uint64_t *key, size_t n_key, uint64_t hash);
/* Takes the program over; the key is copied. */
tern_status tern_cache_add(tern_device *device, const uint64_t *key, size_t n_key, uint64_t hash, tern_cached_program *program);
void tern_cached_program_free(tern_device *device, tern_cached_program *program);

/* ---- compile_log.c ---- */
/* Notes that the first n_nodes nodes became a program. The entry is valid until 1,024 more were noted; NULL without host memory. */
const tern_compile_entry *tern_compile_note(const tern_recording *recording, uint32_t n_nodes, double seconds, bool loaded);

/* ---- stats.c ---- */
typedef struct tern_counters {
  atomic_llong programs, hits, compiled, loaded, cached, gathers, live_versions, compile_nanoseconds;
  long long nodes, live_buffers; /* record lock */
} tern_counters;
extern tern_counters tern_count;

extern atomic_int tern_current_mode;
extern atomic_bool tern_forked;

/* ---- device.c ---- */
/* Bytes that arrays may take: the device's memory, or the part of it that tern_device_set_memory_fraction() left; 0 where unknown. */
int64_t tern_device_memory_may_hold(const tern_device *device);
tern_status tern_fork_error(void);
/* An error in a child of the process that opened a device; one load otherwise, for it is on the way of every operation. */
static inline tern_status tern_check_not_forked(void) {
  return TERN_UNLIKELY(atomic_load_explicit(&tern_forked, memory_order_relaxed)) ? tern_fork_error() : NULL;
}

#endif
