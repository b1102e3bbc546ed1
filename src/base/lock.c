/* lock: what happens when the lock is taken (lock.h). */
#include "lock.h"
#ifdef __linux__
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>
static void sleep_while(tern_lock *lock, int state) { syscall(SYS_futex, &lock->state, FUTEX_WAIT_PRIVATE, state, NULL, NULL, 0); }
static void wake_one(tern_lock *lock) { syscall(SYS_futex, &lock->state, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0); }
#else
#include <sched.h>
static void sleep_while(tern_lock *lock, int state) { (void)lock, (void)state, sched_yield(); }
static void wake_one(tern_lock *lock) { (void)lock; }
#endif

static void pause_a_moment(void) {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ volatile("yield");
#endif
}

void tern_lock_wait(tern_lock *lock) {
  enum { SPINS = 100 }; /* about as long as recording an operation takes */
  for (int i = 0; i < SPINS; i++) {
    int free = 0;
    if (!atomic_load_explicit(&lock->state, memory_order_relaxed) &&
        atomic_compare_exchange_weak_explicit(&lock->state, &free, 1, memory_order_acquire, memory_order_relaxed))
      return;
    pause_a_moment();
  }
  /* From here on the state is 2: whoever gives the lock back wakes one sleeper. */
  while (atomic_exchange_explicit(&lock->state, 2, memory_order_acquire)) sleep_while(lock, 2);
}

void tern_lock_wake(tern_lock *lock) { wake_one(lock); }
