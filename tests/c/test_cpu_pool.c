/* The thread pool: every chunk once, any number of callers, nested calls, forks, and resizing. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>
#include "../../src/cpu/cpu.h"

#define CHUNKS 1000

typedef struct tally {
  _Atomic int times[CHUNKS];
  _Atomic int bad_thread;
} tally;

static void count_chunk(void *context, int64_t chunk, int thread) {
  tally *t = context;
  atomic_fetch_add(&t->times[chunk], 1);
  if (thread < 0 || thread >= tern_pool_threads()) atomic_store(&t->bad_thread, 1);
}

static bool each_once(const tally *t, int64_t n, int times) {
  for (int64_t i = 0; i < n; i++)
    if (atomic_load(&t->times[i]) != times) return false;
  return !atomic_load(&t->bad_thread);
}

static void every_chunk_runs_once(void **state) {
  (void)state;
  for (int threads = 1; threads <= 4; threads++) {
    tern_pool_set_threads(threads);
    assert_int_equal(tern_pool_threads(), threads);
    for (int64_t n = 0; n < 40; n++) {
      tally t = {0};
      tern_pool_run(n, count_chunk, &t);
      assert_true(each_once(&t, n, 1));
    }
    tally t = {0};
    for (int i = 0; i < 300; i++) tern_pool_run(CHUNKS, count_chunk, &t);
    assert_true(each_once(&t, CHUNKS, 300));
  }
}

/* Workers sleep between these calls: the futex path. */
static void sleeping_workers_wake(void **state) {
  (void)state;
  tern_pool_set_threads(3);
  tally t = {0};
  for (int i = 0; i < 50; i++) {
    usleep(300);
    tern_pool_run(7, count_chunk, &t);
  }
  assert_true(each_once(&t, 7, 50));
}

static void *caller_main(void *context) {
  for (int i = 0; i < 200; i++) tern_pool_run(50, count_chunk, context);
  return NULL;
}

static void callers_take_turns(void **state) {
  (void)state;
  tern_pool_set_threads(3);
  enum { CALLERS = 3 };
  static tally tallies[CALLERS];
  pthread_t callers[CALLERS];
  for (int i = 0; i < CALLERS; i++) assert_int_equal(pthread_create(&callers[i], NULL, caller_main, &tallies[i]), 0);
  for (int i = 0; i < CALLERS; i++) pthread_join(callers[i], NULL);
  for (int i = 0; i < CALLERS; i++) assert_true(each_once(&tallies[i], 50, 200));
}

typedef struct nest {
  tally inner[8];
  _Atomic int moved; /* a nested chunk ran under another thread number */
} nest;
typedef struct nest_call {
  tally *inner;
  nest *all;
  int thread;
} nest_call;

static void inner_chunk(void *context, int64_t chunk, int thread) {
  nest_call *call = context;
  if (thread != call->thread) atomic_store(&call->all->moved, 1);
  count_chunk(call->inner, chunk, thread);
}
static void outer_chunk(void *context, int64_t chunk, int thread) {
  nest *n = context;
  nest_call call = {&n->inner[chunk], n, thread};
  tern_pool_run(20, inner_chunk, &call);
}

static void nested_calls_run_inline(void **state) {
  (void)state;
  tern_pool_set_threads(2);
  for (int repeat = 0; repeat < 50; repeat++) {
    nest n = {0};
    tern_pool_run(8, outer_chunk, &n);
    for (int i = 0; i < 8; i++) assert_true(each_once(&n.inner[i], 20, 1));
    assert_int_equal(atomic_load(&n.moved), 0);
  }
}

static void a_forked_child_has_a_pool(void **state) {
  (void)state;
#ifdef __SANITIZE_THREAD__
  skip(); /* ThreadSanitizer allows no threads after a fork */
#endif
  if (getenv("TERN_TEST_EMULATED")) skip(); /* qemu allows no threads after a fork */
  tern_pool_set_threads(2);
  tally t = {0};
  tern_pool_run(10, count_chunk, &t);
  pid_t child = fork();
  if (child == 0) {
    tally mine = {0};
    for (int i = 0; i < 100; i++) tern_pool_run(CHUNKS, count_chunk, &mine);
    _exit(each_once(&mine, CHUNKS, 100) ? 0 : 1);
  }
  assert_true(child > 0);
  int status = -1;
  assert_int_equal(waitpid(child, &status, 0), child);
  assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  tern_pool_run(10, count_chunk, &t);
  assert_true(each_once(&t, 10, 2));
}

static void zero_threads_means_the_default(void **state) {
  (void)state;
  tern_setting_override(TERN_SETTING_NUM_THREADS, "3");
  tern_pool_set_threads(0);
  assert_int_equal(tern_pool_threads(), 3);
  tern_setting_override(TERN_SETTING_NUM_THREADS, "");
  tern_pool_set_threads(0);
  assert_true(tern_pool_threads() >= 1);
}

static void selecting_says_what_is_wrong(void **state) {
  (void)state;
  const tern_kernel_table *table = NULL;
  tern_setting_override(TERN_SETTING_ISA, "mmx");
  tern_status status = tern_kernels_select(&table);
  assert_int_equal(tern_error_code(status), TERN_BAD_SETTING);
  assert_non_null(strstr(tern_error_message(status), "TERN_ISA=mmx"));
  tern_error_free(status);
  tern_setting_override(TERN_SETTING_ISA, "baseline");
  assert_null(tern_kernels_select(&table));
  assert_string_equal(table->isa, "baseline");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(every_chunk_runs_once),   cmocka_unit_test(sleeping_workers_wake),     cmocka_unit_test(callers_take_turns),
      cmocka_unit_test(nested_calls_run_inline), cmocka_unit_test(a_forked_child_has_a_pool), cmocka_unit_test(zero_threads_means_the_default),
      cmocka_unit_test(selecting_says_what_is_wrong),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
