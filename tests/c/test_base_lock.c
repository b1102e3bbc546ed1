/* The recording lock: many threads, a counter that is no atomic; and threads that sleep for it wake up. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <pthread.h>
#include <unistd.h>
#include "base/lock.h"

enum { THREADS = 8, ROUNDS = 20000 };
static tern_lock lock;
static long counter;

static void *count(void *argument) {
  for (int i = 0; i < ROUNDS; i++) {
    tern_lock_take(&lock);
    counter++;
    tern_lock_give(&lock);
  }
  return argument;
}

static void in_threads(void) {
  pthread_t threads[THREADS];
  for (int i = 0; i < THREADS; i++) assert_int_equal(pthread_create(&threads[i], NULL, count, NULL), 0);
  for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
}

static void excludes(void **state) {
  (void)state;
  counter = 0;
  in_threads();
  assert_int_equal(counter, (long)THREADS * ROUNDS);
  assert_int_equal(atomic_load(&lock.state), 0);
}

static void wakes_all_sleepers(void **state) {
  (void)state;
  counter = 0;
  pthread_t threads[THREADS];
  tern_lock_take(&lock);
  for (int i = 0; i < THREADS; i++) assert_int_equal(pthread_create(&threads[i], NULL, count, NULL), 0);
  usleep(20000); /* long enough that they sleep */
  assert_int_equal(counter, 0);
  tern_lock_give(&lock);
  for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
  assert_int_equal(counter, (long)THREADS * ROUNDS);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(excludes), cmocka_unit_test(wakes_all_sleepers)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
