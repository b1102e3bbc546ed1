/* When a node fails: the effects before it stand, everything behind it is discarded, storages keep their last good contents, the error names the
 * operation, and the device goes on. */
#include "eager_fixture.h"

static tensor indices(int64_t n, const int64_t *values) {
  tensor t = empty_on(the_device(), TERN_I64, 1, &n);
  must(tern_buffer_write(t.buffer, TERN_I64, 1, &n, values));
  return t;
}

static tensor take(tensor x, tensor index) {
  tensor r = empty_on(the_device(), TERN_F32, 1, index.view.sizes);
  must(record_to(&op_take, &x, &index, NULL, r));
  return r;
}

static void expect_failure(tern_status status) {
  assert_non_null(status);
  assert_int_equal(tern_error_code(status), TERN_INDEX_OUT_OF_RANGE);
  assert_non_null(strstr(tern_error_message(status), "test::take"));
  assert_non_null(strstr(tern_error_message(status), "7"));
  tern_error_free(status);
}

static void an_index_out_of_range(void **state) {
  (void)state;
  float sink[8];
  tensor table = vector(3, (float[]){1, 2, 3}), good = indices(2, (int64_t[]){2, 0}), bad = indices(2, (int64_t[]){0, 7});
  tensor before = add(table, table), counter = vector(3, (float[]){0, 0, 0});
  add_to(counter, table); /* before the failure: stands */
  tensor lost = take(table, bad);
  tensor after = add(lost, lost);
  add_to(counter, table); /* behind it: discarded */
  fill(table, 99);        /* behind it: discarded, the table keeps its contents */
  expect_failure(tern_buffer_read(after.buffer, 0, 8, sink));
  EXPECT(before, 2, 4, 6);
  EXPECT(counter, 1, 2, 3);
  EXPECT(table, 1, 2, 3);
  expect_failure(tern_buffer_read(lost.buffer, 0, 8, sink)); /* poisoned: each time it is read */
  expect_failure(tern_buffer_read(after.buffer, 0, 8, sink));
  tensor fine = take(table, good);
  EXPECT(fine, 3, 1);
  drop(table), drop(good), drop(bad), drop(before), drop(counter), drop(lost), drop(after), drop(fine);
}

static void the_failure_is_raised_at_the_next_wait(void **state) {
  (void)state;
  float sink[8];
  tensor table = vector(3, (float[]){1, 2, 3}), bad = indices(1, (int64_t[]){7});
  tensor parameter = vector(2, (float[]){1, 1}), other = vector(2, (float[]){4, 5});
  tensor lost = take(table, bad);
  must(tern_device_flush(the_device()));
  add_to(parameter, other); /* the optimizer's step of a failed forward, in a program of its own */
  must(tern_device_flush(the_device()));
  expect_failure(tern_buffer_read(parameter.buffer, 0, 8, sink));
  EXPECT(parameter, 1, 1);
  add_to(parameter, other);
  EXPECT(parameter, 5, 6);
  drop(table), drop(bad), drop(parameter), drop(other), drop(lost);
}

/* The device goes on after a failure: only what is made of the lost contents is lost as well. */
static void what_does_not_depend_on_a_failure_runs(void **state) {
  (void)state;
  float sink[8];
  tensor table = vector(3, (float[]){1, 2, 3}), bad = indices(2, (int64_t[]){0, 7}), counter = vector(2, (float[]){5, 5});
  tensor lost = take(table, bad);
  expect_failure(tern_device_synchronize(the_device()));
  tensor made_of_it = add(lost, lost), unrelated = add(table, table), refilled = add(lost, lost);
  add_to(counter, counter);
  fill(refilled, 3); /* whole: nothing lost is left in it */
  fill(slice(made_of_it, 0, 1, 1), 3); /* a part: the rest is still lost */
  EXPECT(unrelated, 2, 4, 6);
  EXPECT(counter, 10, 10);
  EXPECT(refilled, 3, 3);
  expect_failure(tern_buffer_read(made_of_it.buffer, 0, 8, sink));
  /* Writing the lost value into good contents is an error of that line, at the next wait at the latest; what stood before it has run. */
  add_to(counter, counter);
  add_to(counter, lost);
  tensor behind = add(table, table);
  expect_failure(tern_device_synchronize(the_device()));
  EXPECT(counter, 20, 20);
  expect_failure(tern_buffer_read(behind.buffer, 0, 8, sink));
  must(tern_device_synchronize(the_device()));
  drop(table), drop(bad), drop(counter), drop(lost), drop(made_of_it), drop(unrelated), drop(refilled), drop(behind);
}

static void a_dead_check_still_fails(void **state) {
  (void)state;
  tensor table = vector(3, (float[]){1, 2, 3}), bad = indices(1, (int64_t[]){7});
  drop(take(table, bad));
  expect_failure(tern_device_synchronize(the_device()));
  must(tern_device_synchronize(the_device())); /* raised once */
  drop(table), drop(bad);
}

static void strict_mode_raises_at_once(void **state) {
  (void)state;
  tensor table = vector(3, (float[]){1, 2, 3}), bad = indices(1, (int64_t[]){7});
  tern_mode_set(TERN_MODE_STRICT);
  tensor r = empty_on(the_device(), TERN_F32, 1, bad.view.sizes);
  tern_status status = record_to(&op_take, &table, &bad, NULL, r);
  tern_mode_set(TERN_MODE_FUSED);
  expect_failure(status);
  drop(table), drop(bad), drop(r);
}

static void what_cannot_fit_is_refused(void **state) {
  (void)state;
  tern_buffer *huge;
  tern_status status = tern_buffer_new(the_device(), (size_t)4 << 40, 0, &huge);
  assert_int_equal(tern_error_code(status), TERN_OUT_OF_MEMORY);
  tern_error_free(status);
  tensor x = vector(2, (float[]){1, 2}), y = add(x, x);
  EXPECT(y, 2, 4);
  drop(x), drop(y);
}

static void a_program_that_runs_out_of_memory(void **state) {
  (void)state;
  tern_buffer *big[8];
  tern_backend_stats stats;
  float sink[2];
  int64_t limit = tern_device_info(the_device())->memory_limit;
  if (limit <= 0) skip();
  int64_t n = limit / 4 * 3 / 4; /* each takes three quarters */
  tensor kept = vector(2, (float[]){1, 2});
  for (int i = 0; i < 2; i++) {
    tensor t = {.dtype = TERN_F32};
    must(tern_buffer_new(the_device(), (size_t)n * 4, 0, &t.buffer));
    tern_geometry_set_contiguous(&t.view, 1, &n, 0);
    fill(t, 1);
    big[i] = t.buffer;
  }
  add_to(kept, kept);
  tern_status status = tern_buffer_read(big[1], 0, 8, sink);
  assert_int_equal(tern_error_code(status), TERN_OUT_OF_MEMORY);
  /* The second fill is the one too many; the tensors alive are listed, and what came before is done. */
  assert_int_equal(strncmp(tern_error_message(status), "test::fill: out of memory", 25), 0);
  assert_non_null(strstr(tern_error_message(status), "f32[2]"));
  assert_non_null(strstr(tern_error_message(status), "To try: "));
  tern_error_free(status);
  must(tern_buffer_read(big[0], 0, 8, sink));
  assert_true(sink[0] == 1 && sink[1] == 1);
  tern_buffer_release(big[0]);
  tern_buffer_release(big[1]);
  EXPECT(kept, 1, 2);
  tern_device_stats(the_device(), &stats);
  assert_true(stats.memory.bytes.current < 4096);
  drop(kept);
}

int main(void) {
  tern_setting_override(TERN_SETTING_MEMORY_LIMIT, "64M");
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(an_index_out_of_range),
      cmocka_unit_test(the_failure_is_raised_at_the_next_wait),
      cmocka_unit_test(what_does_not_depend_on_a_failure_runs),
      cmocka_unit_test(a_dead_check_still_fails),
      cmocka_unit_test(strict_mode_raises_at_once),
      cmocka_unit_test(what_cannot_fit_is_refused),
      cmocka_unit_test(a_program_that_runs_out_of_memory),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
