/* The machine's limits, measured once when somebody asks: f32 operations and bytes per second of all threads of the pool. A profile shows kernels beside them. */
#include <pthread.h>
#include "backend_device.h"

enum {
  ROUNDS = 100000,       /* of a chain: about a millisecond */
  PIECE = 1 << 20,       /* bytes; twice 64 of them are beyond the caches */
  PIECES = 64,
};

typedef struct limit_job {
  const tern_kernel_table *kernels;
  char *memory;
} limit_job;

static void compute(void *context, int64_t chunk, int thread) {
  (void)chunk, (void)thread;
  ((const limit_job *)context)->kernels->peak(ROUNDS);
}

/* Half of the array is added to the other half: two reads and a write. */
static void move(void *context, int64_t chunk, int thread) {
  (void)thread;
  const limit_job *job = context;
  char *to = job->memory + chunk * PIECE, *from = to + (int64_t)PIECES * PIECE;
  job->kernels->blocks->operation[TERN_OP_ADD][TERN_F32](to, to, from, NULL, PIECE / 4);
}

/* The best of some 40 milliseconds, and of four: somebody else may use the machine. */
static double best_seconds(int64_t n_chunks, tern_task task, void *context) {
  double best = 1e9;
  const double end = tern_now() + 0.04;
  for (int i = 0; i < 4 || tern_now() < end; i++) {
    const double start = tern_now();
    tern_pool_run(n_chunks, task, context);
    const double seconds = tern_now() - start;
    if (seconds < best) best = seconds;
  }
  return best;
}

void tern_cpu_limits(tern_backend_device *device, double *flops, double *bytes) {
  static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
  static double known_flops, known_bytes = 1;
  pthread_mutex_lock(&lock);
  if (!known_flops) {
    limit_job job = {device->kernels, malloc((size_t)2 * PIECES * PIECE)};
    const int threads = tern_pool_threads();
    known_flops = threads * job.kernels->peak(1) * ROUNDS / best_seconds(threads, compute, &job);
    if (job.memory) {
      memset(job.memory, 0, (size_t)2 * PIECES * PIECE);
      known_bytes = 3.0 * PIECES * PIECE / best_seconds(PIECES, move, &job);
    }
    free(job.memory);
  }
  *flops = known_flops;
  *bytes = known_bytes;
  pthread_mutex_unlock(&lock);
}
