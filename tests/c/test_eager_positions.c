/* Positions in a device's queue: recording one cuts nothing, asking hands the work over and does not wait, waiting waits for what is before it, and timestamps tell when. */
#include "eager_fixture.h"

static int64_t programs(void) {
  tern_eager_stats s;
  tern_stats(&s);
  return s.programs;
}

static void test_a_position_cuts_nothing(void **state) {
  (void)state;
  must(tern_device_synchronize(the_device()));
  int64_t before = programs();
  tensor x = vector(2, (float[]){1, 2});
  for (int i = 0; i < 3; i++) {
    x = add(x, x);
    tern_device_position(the_device());
  }
  EXPECT(x, 8, 16);
  assert_int_equal(programs(), before + 1);
}

static void test_positions_are_in_order(void **state) {
  (void)state;
  tern_device *d = the_device();
  must(tern_device_synchronize(d));
  uint64_t idle = tern_device_position(d);
  bool reached = false;
  must(tern_device_has_reached(d, idle, &reached));
  assert_true(reached);
  tensor x = add(vector(2, (float[]){1, 2}), vector(2, (float[]){1, 1}));
  uint64_t after = tern_device_position(d);
  assert_true(after > idle);
  must(tern_device_has_reached(d, idle, &reached)); /* what is recorded later does not matter */
  assert_true(reached);
  must(tern_device_has_reached(d, after, &reached));
  must(tern_device_wait_for(d, after));
  must(tern_device_has_reached(d, after, &reached));
  assert_true(reached);
  EXPECT(x, 2, 3);
}

static void test_asking_hands_the_work_over(void **state) {
  (void)state;
  tern_device *d = the_device();
  must(tern_device_synchronize(d));
  int64_t before = programs();
  tensor x = add(vector(1, (float[]){1}), vector(1, (float[]){1}));
  uint64_t position = tern_device_position(d);
  bool reached = false;
  for (const double end = tern_now() + 30; !reached && tern_now() < end;) must(tern_device_has_reached(d, position, &reached));
  assert_true(reached); /* nobody waited: the worker ran it */
  assert_int_equal(programs(), before + 1);
  EXPECT(x, 2);
}

static void test_timestamps(void **state) {
  (void)state;
  tern_device *d = the_device();
  must(tern_device_synchronize(d));
  double start = tern_now();
  tern_timestamp *first, *second, *dropped;
  must(tern_timestamp_new(d, &first)); /* nothing before it: now */
  tensor x = vector(1024, (float[1024]){1});
  for (int i = 0; i < 100; i++) x = add(x, x), x = scale(x, 0.5f);
  must(tern_timestamp_new(d, &second));
  must(tern_timestamp_new(d, &dropped));
  tern_timestamp_release(dropped); /* while the device may still have it */
  must(tern_device_wait_for(d, tern_timestamp_position(second)));
  assert_true(start <= tern_timestamp_seconds(first));
  assert_true(tern_timestamp_seconds(first) < tern_timestamp_seconds(second));
  assert_true(tern_timestamp_seconds(second) <= tern_now());
  tern_timestamp_release(first);
  tern_timestamp_release(second);
  tern_timestamp_release(NULL);
}

static void test_a_failure_is_raised_by_the_wait(void **state) {
  (void)state;
  tern_device *d = the_device();
  must(tern_device_synchronize(d));
  tensor x = vector(2, (float[]){1, 2}), index = empty_on(d, TERN_I64, 1, (int64_t[]){1}), r = empty_on(d, TERN_F32, 1, (int64_t[]){1});
  must(tern_buffer_write(index.buffer, TERN_I64, 1, (int64_t[]){1}, (int64_t[]){7}));
  must(record_to(&op_take, &x, &index, NULL, r));
  uint64_t position = tern_device_position(d);
  tern_status status = tern_device_wait_for(d, position);
  assert_int_equal(tern_error_code(status), TERN_INDEX_OUT_OF_RANGE);
  tern_error_free(status);
  must(tern_device_wait_for(d, position)); /* once */
  EXPECT(add(x, x), 2, 4);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_a_position_cuts_nothing), cmocka_unit_test(test_positions_are_in_order),
                                     cmocka_unit_test(test_asking_hands_the_work_over), cmocka_unit_test(test_timestamps),
                                     cmocka_unit_test(test_a_failure_is_raised_by_the_wait)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
