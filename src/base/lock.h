/* lock: a mutual exclusion lock for what is held for nanoseconds and taken at every operation. Two atomic instructions where nobody else wants it, about a third of
 * what a pthread mutex costs; who has to wait spins a little and then sleeps in the kernel (futex; elsewhere it yields). Not recursive, not fair, no condition
 * variable: anything else takes a pthread mutex.
 *
 * The states and their order are those of "mutex2" in U. Drepper, "Futexes Are Tricky" (2011). */
#ifndef TERN_LOCK_H
#define TERN_LOCK_H
#include <stdatomic.h>
#include "base.h"

typedef struct tern_lock {
  atomic_int state; /* zero-initialise; 0: free, 1: taken, 2: taken and somebody may sleep */
} tern_lock;

void tern_lock_wait(tern_lock *lock); /* the slow paths, in lock.c */
void tern_lock_wake(tern_lock *lock);

static inline void tern_lock_take(tern_lock *lock) {
  int free = 0;
  if (TERN_UNLIKELY(!atomic_compare_exchange_strong_explicit(&lock->state, &free, 1, memory_order_acquire, memory_order_relaxed))) tern_lock_wait(lock);
}

static inline void tern_lock_give(tern_lock *lock) {
  if (TERN_UNLIKELY(atomic_exchange_explicit(&lock->state, 0, memory_order_release) == 2)) tern_lock_wake(lock);
}

#endif
