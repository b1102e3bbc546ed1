/* Bounds: long recordings, programs that repeat, threads, two devices, a forked child. */
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>
#include "eager_fixture.h"

static void unread_work_is_bounded_and_repeats(void **state) {
  (void)state;
  tern_eager_stats before, after;
  tensor x = vector(16, (float[16]){1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1}), total = scale(x, 0);
  must(tern_synchronize_all());
  tern_stats(&before);
  for (int i = 0; i < 100000; i++) {
    tensor y = mul(x, x);
    add_to(total, y);
    drop(y);
  }
  tern_stats(&after);
  assert_true(after.live_buffers - before.live_buffers < 10000);
  float got[16];
  read_floats(total, got);
  assert_true(got[0] == 100000 && got[15] == 100000);
  tern_stats(&after);
  assert_true(after.compiled - before.compiled < 5); /* cut at the same phase of the loop each time */
  assert_int_equal(after.live_buffers, before.live_buffers);
  drop(x), drop(total);
}

static void reading_every_37th_step_compiles_few_programs(void **state) {
  (void)state;
  tern_eager_stats before, after;
  tensor w = vector(4, (float[]){1, 2, 3, 4}), g = vector(4, (float[]){1, 1, 1, 1});
  must(tern_synchronize_all());
  tern_stats(&before);
  for (int i = 1; i <= 1000; i++) {
    tensor loss = mul(w, g), step = scale(loss, 0.001f * (float)i);
    add_to(w, step);
    drop(step);
    must(tern_device_flush(the_device())); /* the end of an optimizer step */
    float sink[4];
    if (i % 37 == 0) read_floats(loss, sink);
    drop(loss);
  }
  must(tern_synchronize_all());
  tern_stats(&after);
  assert_true(after.compiled - before.compiled < 5);
  assert_int_equal(after.programs - before.programs, 1000);
  drop(w), drop(g);
}

static void *record_from_a_thread(void *argument) {
  float seed = *(float *)argument;
  for (int i = 0; i < 300; i++) {
    tensor x = vector(4, (float[]){seed, seed, seed, seed}), square = mul(x, x), z = add(square, x);
    float got[4];
    if (i % 7 == 0) must(tern_device_flush(the_device()));
    read_floats(z, got);
    assert_true(got[0] == seed * seed + seed && got[3] == got[0]);
    drop(x), drop(square), drop(z);
  }
  return NULL;
}

static void sixteen_threads_at_once(void **state) {
  (void)state;
  pthread_t threads[16];
  float seeds[16];
  for (int i = 0; i < 16; i++) {
    seeds[i] = (float)(i + 1);
    assert_int_equal(pthread_create(&threads[i], NULL, record_from_a_thread, &seeds[i]), 0);
  }
  for (int i = 0; i < 16; i++) pthread_join(threads[i], NULL);
}

static void two_devices_are_alike(void **state) {
  (void)state;
  tern_device *second;
  must(tern_device_get(1, &second));
  tensor a = empty_on(second, TERN_F32, 1, (int64_t[]){3});
  int64_t n = 3;
  must(tern_buffer_write(a.buffer, TERN_F32, 1, &n, (float[]){1, 2, 3}));
  tensor b = add(a, a), c = vector(3, (float[]){1, 1, 1});
  EXPECT(b, 2, 4, 6);
  tern_status status = record_to(&op_add, &b, &c, NULL, b);
  assert_int_equal(tern_error_code(status), TERN_INVALID_ARGUMENT);
  tern_error_free(status);
  tern_device *none;
  status = tern_device_get(7, &none);
  assert_int_equal(tern_error_code(status), TERN_NO_DEVICE);
  tern_error_free(status);
  assert_true(tern_buffer_address(b.buffer) != tern_buffer_address(c.buffer));
  drop(a), drop(b), drop(c);
}

static void a_forked_child_is_told(void **state) {
  (void)state;
  tensor x = vector(2, (float[]){1, 2}), y = add(x, x);
  pid_t child = fork();
  if (!child) {
    float sink[2];
    tern_status recording = record_to(&op_add, &x, &x, NULL, y), reading = tern_buffer_read(y.buffer, 0, 8, sink);
    drop(x); /* does nothing, and does not hang */
    _exit(tern_error_code(recording) == TERN_BAD_FORK && tern_error_code(reading) == TERN_BAD_FORK ? 0 : 1);
  }
  int exit_status;
  assert_int_equal(waitpid(child, &exit_status, 0), child);
  assert_true(WIFEXITED(exit_status) && WEXITSTATUS(exit_status) == 0);
  EXPECT(y, 2, 4);
  drop(x), drop(y);
}

int main(void) {
  tern_setting_override(TERN_SETTING_DEVICE_COUNT, "2");
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(unread_work_is_bounded_and_repeats), cmocka_unit_test(reading_every_37th_step_compiles_few_programs),
      cmocka_unit_test(sixteen_threads_at_once),            cmocka_unit_test(two_devices_are_alike),
      cmocka_unit_test(a_forked_child_is_told),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
