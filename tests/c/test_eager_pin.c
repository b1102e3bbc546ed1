/* Pinned memory: what tern writes is in the memory that somebody outside looks at, whatever became of the buffer; and memory of others serves as a buffer. */
#include "eager_fixture.h"

static void test_results_lie_in_the_pinned_memory(void **state) {
  (void)state;
  tern_device *d = the_device();
  tensor x = vector(3, (float[]){1, 2, 3}), y = vector(3, (float[]){10, 20, 30});
  tern_pin *pin, *again;
  must(tern_buffer_pin(x.buffer, &pin));
  const float *seen = tern_pin_data(pin);
  assert_float_equal(seen[2], 3, 0);
  add_to(x, y);
  tensor old = add(x, x);
  add_to(x, y); /* `old` was recorded before: it reads the contents between the two writes */
  must(tern_device_synchronize(d));
  assert_float_equal(seen[0], 21, 0);
  EXPECT(old, 22, 44, 66);
  must(tern_buffer_pin(x.buffer, &again));
  assert_ptr_equal(tern_pin_data(again), seen);
  tern_buffer_unpin(again);
  copy_to(x, y);
  tern_buffer_release(x.buffer); /* recorded, but nobody on this side can see it any more */
  must(tern_device_synchronize(d));
  assert_float_equal(seen[1], 20, 0);
  tern_buffer_unpin(pin);
}

static void test_writes_from_the_host_go_both_ways(void **state) {
  (void)state;
  tensor x = vector(2, (float[]){1, 2});
  tern_pin *pin;
  must(tern_buffer_pin(x.buffer, &pin));
  float *seen = tern_pin_data(pin);
  must(tern_buffer_write(x.buffer, TERN_F32, 1, (int64_t[]){2}, (float[]){5, 6}));
  assert_float_equal(seen[1], 6, 0);
  seen[0] = 9;
  EXPECT(add(x, x), 18, 12);
  tern_buffer_unpin(pin);
  add_to(x, x); /* the pin is taken off here; contents are as ever */
  EXPECT(x, 18, 12);
}

static int released;
static void count_release(void *owner) { released += *(int *)owner; }

static void test_a_buffer_over_others_memory(void **state) {
  (void)state;
  tern_device *d = the_device();
  float memory[4] = {1, 2, 3, 4};
  int one = 1;
  tensor x = {.dtype = TERN_F32};
  must(tern_buffer_share(d, memory, sizeof memory, count_release, &one, &x.buffer));
  tern_geometry_set_contiguous(&x.view, 1, (int64_t[]){4}, 0);
  add_to(x, x);
  must(tern_device_synchronize(d));
  assert_float_equal(memory[3], 8, 0);
  memory[0] = -1;
  EXPECT(x, -1, 4, 6, 8);
  must(tern_buffer_resize(x.buffer, 32)); /* a larger storage lies elsewhere */
  memory[1] = 100;
  EXPECT(x, -1, 4, 6, 8);
  must(tern_device_synchronize(d));
  tern_buffer_release(x.buffer);
  assert_int_equal(released, 1);
}

static void test_a_failure_keeps_the_contents(void **state) {
  (void)state;
  tern_device *d = the_device();
  tensor x = vector(2, (float[]){1, 2});
  tern_pin *pin;
  must(tern_buffer_pin(x.buffer, &pin));
  tensor index = empty_on(d, TERN_I64, 1, (int64_t[]){2});
  must(tern_buffer_write(index.buffer, TERN_I64, 1, (int64_t[]){2}, (int64_t[]){0, 7}));
  must(record_to(&op_take, &x, &index, NULL, x));
  tern_status status = tern_device_synchronize(d);
  assert_non_null(status);
  tern_error_free(status);
  assert_float_equal(((float *)tern_pin_data(pin))[1], 2, 0);
  add_to(x, x);
  must(tern_device_synchronize(d));
  assert_float_equal(((float *)tern_pin_data(pin))[1], 4, 0);
  tern_buffer_unpin(pin);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_results_lie_in_the_pinned_memory),
      cmocka_unit_test(test_writes_from_the_host_go_both_ways),
      cmocka_unit_test(test_a_buffer_over_others_memory),
      cmocka_unit_test(test_a_failure_keeps_the_contents),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
