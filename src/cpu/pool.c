/* The thread pool: one per process, made when first used. Kernels call tern_pool_run; nothing else in the library has threads that compute.
 *
 * A call publishes one job, hands its chunks out through an atomic counter, works along, closes the job and waits for the workers that joined it. A worker that
 * is still asleep is never waited for: on a busy machine the caller simply does more of the chunks itself. Idle workers spin for a moment,
 * because the next job of a training step mostly comes within microseconds, and then sleep in a futex.
 *
 * How a worker joins without a lock: it counts itself into `active`, then looks whether a job is `open`; the caller closes the job, then waits for
 * `active` to be zero. Both orders are sequentially consistent, so either the worker sees the job closed or the caller sees the worker. */
#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/syscall.h>
#include <unistd.h>
#include "cpu.h"

#define MAX_THREADS 256
#define WORKER_SPIN 40e-6  /* seconds an idle worker watches for the next job before it sleeps */
#define CALLER_SPIN 100e-6 /* seconds a caller watches for the last chunks before it sleeps */
#define PAUSES_PER_LOOK 16 /* between two looks at the clock */

typedef struct job {
  tern_task task;
  void *context;
  int64_t n_chunks;
  int caller_cpu;
} job;

static struct {
  pthread_mutex_t turn;   /* held by the caller whose job runs, and by who starts or stops workers */
  pthread_t workers[MAX_THREADS];
  int n_workers;          /* running; changed under `turn` */
  cpu_set_t allowed;      /* what workers may use: the process's mask when they were started */
  job job;                /* written while no worker is in `active` and none is open */
  _Alignas(64) _Atomic int64_t next; /* the next chunk to hand out */
  _Alignas(64) _Atomic uint32_t generation; /* counts jobs; workers watch it and sleep on it */
  _Atomic uint32_t open;     /* a job may be joined */
  _Atomic uint32_t sleepers; /* workers in, or about to enter, the futex */
  _Atomic uint32_t stopping;
  _Alignas(64) _Atomic uint32_t active; /* workers inside a job; the caller sleeps on it */
  _Atomic uint32_t caller_sleeps;
} pool = {.turn = PTHREAD_MUTEX_INITIALIZER};

static _Atomic int wanted_threads; /* 0: not decided yet */
static pthread_once_t fork_once = PTHREAD_ONCE_INIT;
static _Thread_local bool inside;     /* this thread runs a task now */
static _Thread_local int inside_index; /* the thread number of that task */

static void futex_wait(_Atomic uint32_t *word, uint32_t seen) { (void)syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, seen, NULL, NULL, 0); }
static void futex_wake(_Atomic uint32_t *word, int count) { (void)syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, count, NULL, NULL, 0); }

static void pause_briefly(void) {
  for (int i = 0; i < PAUSES_PER_LOOK; i++) {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
  }
}

/* ---- workers ---- */

static void take_chunks(const job *j, int thread) {
  inside = true;
  inside_index = thread;
  for (;;) {
    int64_t chunk = atomic_fetch_add_explicit(&pool.next, 1, memory_order_relaxed);
    if (chunk >= j->n_chunks) break;
    j->task(j->context, chunk, thread);
  }
  inside = false;
}

/* On the caller's CPU a worker only takes the caller's time: leave it for any other CPU the process may use. Only the worker's own mask changes. */
static void leave_cpu(int cpu) {
  cpu_set_t others = pool.allowed;
  CPU_CLR((size_t)cpu, &others);
  if (CPU_COUNT(&others)) (void)sched_setaffinity(0, sizeof others, &others);
}

/* Returns the generation after `seen`; `spin` says whether watching for it is polite. */
static uint32_t await_job(uint32_t seen, bool spin) {
  uint32_t now;
  if (spin) {
    double limit = tern_now() + WORKER_SPIN;
    do {
      if ((now = atomic_load_explicit(&pool.generation, memory_order_acquire)) != seen) return now;
      pause_briefly();
    } while (tern_now() < limit);
  }
  atomic_fetch_add(&pool.sleepers, 1);
  while ((now = atomic_load(&pool.generation)) == seen) futex_wait(&pool.generation, seen);
  atomic_fetch_sub(&pool.sleepers, 1);
  return now;
}

static void *worker_main(void *argument) {
  int thread = (int)(intptr_t)argument;
  uint32_t seen = 0;
  bool spin = false;
  for (;;) {
    seen = await_job(seen, spin);
    if (atomic_load_explicit(&pool.stopping, memory_order_acquire)) return NULL;
    atomic_fetch_add(&pool.active, 1);
    if (atomic_load(&pool.open)) {
      int caller_cpu = pool.job.caller_cpu;
      if (sched_getcpu() == caller_cpu) leave_cpu(caller_cpu);
      take_chunks(&pool.job, thread);
      spin = sched_getcpu() != caller_cpu;
    }
    if (atomic_fetch_sub(&pool.active, 1) == 1 && atomic_load(&pool.caller_sleeps)) futex_wake(&pool.active, 1);
  }
}

/* Under `turn`. */
static void stop_workers(void) {
  atomic_store(&pool.stopping, 1);
  atomic_fetch_add(&pool.generation, 1);
  futex_wake(&pool.generation, INT_MAX);
  for (int i = 0; i < pool.n_workers; i++) pthread_join(pool.workers[i], NULL);
  pool.n_workers = 0;
  atomic_store(&pool.stopping, 0);
  atomic_store(&pool.generation, 0); /* new workers start from 0 */
}

/* Under `turn`. A machine that refuses threads leaves fewer workers: the caller works anyway. */
static void start_workers(int count) {
  if (sched_getaffinity(0, sizeof pool.allowed, &pool.allowed) != 0) CPU_ZERO(&pool.allowed);
  sigset_t all, before; /* signals belong to the host program's own threads */
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  while (pool.n_workers < count) {
    pthread_t *worker = &pool.workers[pool.n_workers];
    if (pthread_create(worker, NULL, worker_main, (void *)(intptr_t)(pool.n_workers + 1)) != 0) break;
    (void)pthread_setname_np(*worker, "tern-worker");
    pool.n_workers++;
  }
  pthread_sigmask(SIG_SETMASK, &before, NULL);
}

/* ---- fork: the child has this thread only; its pool starts over ---- */

static void forget_workers(void) {
  (void)pthread_mutex_init(&pool.turn, NULL);
  pool.n_workers = 0;
  atomic_store(&pool.open, 0);
  atomic_store(&pool.generation, 0);
  atomic_store(&pool.sleepers, 0);
  atomic_store(&pool.stopping, 0);
  atomic_store(&pool.active, 0);
  atomic_store(&pool.caller_sleeps, 0);
}
static void watch_forks(void) { (void)pthread_atfork(NULL, NULL, forget_workers); }

/* ---- each thread's scratch, kept until the thread ends ---- */

static pthread_key_t scratch_key;
static pthread_once_t scratch_once = PTHREAD_ONCE_INIT;
static bool scratch_is_freed; /* there is a key to free it by */
static _Thread_local void *scratch;
static _Thread_local size_t scratch_bytes;

static void make_scratch_key(void) { scratch_is_freed = pthread_key_create(&scratch_key, free) == 0; }

void *tern_pool_scratch(size_t bytes) {
  if (bytes <= scratch_bytes) return scratch;
  pthread_once(&scratch_once, make_scratch_key);
  size_t room = (bytes + bytes / 4 + 4095) / 4096 * 4096;
  free(scratch);
  scratch = aligned_alloc(64, room);
  scratch_bytes = scratch ? room : 0;
  if (scratch_is_freed) (void)pthread_setspecific(scratch_key, scratch);
  return scratch;
}

/* ---- calls ---- */

static int default_threads(void) {
  int64_t asked = tern_setting_int(TERN_SETTING_NUM_THREADS, 0);
  if (asked <= 0) {
    cpu_set_t set;
    asked = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : sysconf(_SC_NPROCESSORS_ONLN);
  }
  return asked < 1 ? 1 : asked > MAX_THREADS ? MAX_THREADS : (int)asked;
}

int tern_pool_threads(void) {
  int threads = atomic_load_explicit(&wanted_threads, memory_order_relaxed);
  if (threads) return threads;
  int none = 0;
  threads = default_threads();
  return atomic_compare_exchange_strong(&wanted_threads, &none, threads) ? threads : none;
}

void tern_pool_set_threads(int n) {
  pthread_mutex_lock(&pool.turn);
  if (pool.n_workers) stop_workers();
  atomic_store(&wanted_threads, n < 0 ? 0 : n > MAX_THREADS ? MAX_THREADS : n);
  pthread_mutex_unlock(&pool.turn);
}

static void run_inline(int64_t n_chunks, tern_task task, void *context) {
  bool nested = inside;
  int thread = nested ? inside_index : 0;
  inside = true;
  inside_index = thread;
  for (int64_t chunk = 0; chunk < n_chunks; chunk++) task(context, chunk, thread);
  inside = nested;
}

static void await_workers(void) {
  if (!atomic_load(&pool.active)) return;
  double limit = tern_now() + CALLER_SPIN;
  do {
    pause_briefly();
    if (!atomic_load(&pool.active)) return;
  } while (tern_now() < limit);
  atomic_store(&pool.caller_sleeps, 1);
  for (uint32_t active; (active = atomic_load(&pool.active)) != 0;) futex_wait(&pool.active, active);
  atomic_store(&pool.caller_sleeps, 0);
}

void tern_pool_run(int64_t n_chunks, tern_task task, void *context) {
  int threads = tern_pool_threads();
  if (n_chunks <= 1 || threads <= 1 || inside) {
    run_inline(n_chunks, task, context);
    return;
  }
  pthread_once(&fork_once, watch_forks);
  pthread_mutex_lock(&pool.turn);
  if (TERN_UNLIKELY(pool.n_workers == 0)) start_workers(threads - 1);
  pool.job = (job){task, context, n_chunks, sched_getcpu()};
  atomic_store_explicit(&pool.next, 0, memory_order_relaxed);
  atomic_store(&pool.open, 1);
  atomic_fetch_add(&pool.generation, 1);
  uint32_t asleep = atomic_load(&pool.sleepers);
  if (asleep) futex_wake(&pool.generation, (int64_t)asleep < n_chunks - 1 ? (int)asleep : (int)(n_chunks - 1));
  take_chunks(&pool.job, 0);
  atomic_store(&pool.open, 0);
  await_workers();
  pthread_mutex_unlock(&pool.turn);
}
