/* One row in its three forms, driven as the shim drives it, on the embedded engine: what the host is asked for, what is written, what is refused. */
#include "eager_fixture.h"
#include "aten/helpers.h"

/* ---- a host that makes plain structs ---- */
typedef struct host_log {
  int results, returned, resized, undefined;
  int device, returned_index;
  tern_dtype dtype;
  tensor made[4];
  int64_t sizes[TERN_MAX_TENSOR_RANK], strides[TERN_MAX_TENSOR_RANK];
} host_log;

static tern_status new_result(void *call, int device, tern_dtype dtype, int rank, const int64_t *sizes, const int64_t *strides, uint32_t line,
                              tern_buffer **out) {
  host_log *log = call;
  tensor *t = &log->made[log->results++];
  *t = empty_on(the_device(), dtype, rank, sizes);
  memcpy(t->view.strides, strides, (size_t)rank * sizeof *strides);
  log->device = device;
  log->dtype = dtype;
  (void)line;
  *out = t->buffer;
  return NULL;
}
static void return_argument(void *call, int index) {
  host_log *log = call;
  log->returned++;
  log->returned_index = index;
}
static void return_undefined(void *call) { ((host_log *)call)->undefined++; }
static tern_status resize_argument(void *call, int index, int rank, const int64_t *sizes, const int64_t *strides, tern_tensor *out) {
  host_log *log = call;
  tensor *t = &log->made[log->results++];
  (void)index;
  *t = empty_on(the_device(), TERN_F32, rank, sizes);
  if (rank) memcpy(t->view.strides, strides, (size_t)rank * sizeof *strides);
  memcpy(log->sizes, sizes, (size_t)rank * sizeof *sizes);
  memcpy(log->strides, strides, (size_t)rank * sizeof *strides);
  *out =
      (tern_tensor){.buffer = t->buffer, .sizes = log->sizes, .strides = log->strides, .count = tern_geometry_count(&t->view), .rank = rank, .dtype = TERN_F32};
  log->resized++;
  return NULL;
}
static const tern_host host = {
    .new_result = new_result, .return_argument = return_argument, .return_undefined = return_undefined, .resize_argument = resize_argument};

static host_log asked;

static tern_argument of(const tensor *t) {
  return (tern_argument){.tag = TERN_ARG_TENSOR,
                         .u.tensor = {.buffer = t->buffer,
                                      .sizes = t->view.sizes,
                                      .strides = t->view.strides,
                                      .offset = t->view.offset,
                                      .count = tern_geometry_count(&t->view),
                                      .rank = t->view.rank,
                                      .dtype = (uint8_t)t->dtype}};
}
static tern_argument number(double value) { return (tern_argument){.tag = TERN_ARG_DOUBLE, .u.d = value}; }
static tern_argument integer(int64_t value) { return (tern_argument){.tag = TERN_ARG_INT, .u.i = value}; }

static const tern_aten_row *row_named(const char *name) {
  for (int i = 0; i < tern_aten_row_count(); i++) {
    const tern_aten_row *row = tern_aten_row_at(i);
    const char *names[] = {row->functional, row->inplace, row->out, row->internal};
    for (int k = 0; k < 4; k++)
      if (names[k] && strcmp(names[k], name) == 0) return row;
  }
  fail_msg("no row %s", name);
  return NULL;
}

static tern_status last_status;
static tern_verdict run(const char *name, tern_form form, int n, const tern_argument *arguments) {
  tern_call call = {.row = row_named(name), .form = form, .n_arguments = n, .arguments = arguments, .host = &host, .shim = &asked};
  memset(&asked, 0, sizeof asked);
  tern_error_free(last_status);
  return tern_aten_call(&call, &last_status);
}
#define RUN(name, form, ...) run(name, form, (int)TERN_COUNT(((const tern_argument[]){__VA_ARGS__})), (const tern_argument[]){__VA_ARGS__})

static const float six[] = {1, 2, 3, 4, 5, 6};

/* ---- forms ---- */

static void functional_makes_a_tensor(void **state) {
  (void)state;
  tensor x = from_floats(2, (const int64_t[]){2, 3}, six), y = vector(3, six);
  assert_int_equal(RUN("add.Tensor", TERN_FUNCTIONAL, of(&x), of(&y), integer(1)), TERN_RECORD);
  must(last_status);
  assert_int_equal(asked.results, 1);
  assert_int_equal(asked.returned, 0);
  assert_int_equal(asked.dtype, TERN_F32);
  EXPECT(asked.made[0], 2, 4, 6, 5, 7, 9);
  drop(asked.made[0]), drop(x), drop(y);
}

static void results_keep_their_operands_order(void **state) {
  (void)state;
  tensor base = from_floats(2, (const int64_t[]){3, 2}, six), x = view(base, 2, (const int64_t[]){2, 3}, (const int64_t[]){1, 2}, 0);
  assert_int_equal(RUN("mul.Scalar", TERN_FUNCTIONAL, of(&x), number(10)), TERN_RECORD);
  must(last_status);
  assert_int_equal(asked.made[0].view.strides[0], 1);
  assert_int_equal(asked.made[0].view.strides[1], 2);
  EXPECT(asked.made[0], 10, 30, 50, 20, 40, 60);
  drop(asked.made[0]), drop(base);
}

static void in_place_writes_its_first_argument(void **state) {
  (void)state;
  tensor base = vector(6, six), x = slice(base, 1, 2, 3);
  assert_int_equal(RUN("mul_.Scalar", TERN_INPLACE, of(&x), number(10)), TERN_RECORD);
  must(last_status);
  assert_int_equal(asked.results, 0);
  assert_int_equal(asked.returned, 1);
  assert_int_equal(asked.returned_index, 0);
  EXPECT(base, 1, 20, 3, 4, 50, 6);
  drop(base);
}

static void in_place_keeps_the_targets_dtype(void **state) {
  (void)state;
  tensor x = vector(3, six), y = vector(3, (const float[]){3, 2, 1});
  assert_int_equal(RUN("gt_.Tensor", TERN_INPLACE, of(&x), of(&y)), TERN_RECORD);
  must(last_status);
  EXPECT(x, 0, 0, 1);
  drop(x), drop(y);
}

static void out_writes_its_last_argument(void **state) {
  (void)state;
  tensor x = vector(3, six), y = vector(3, six), out = vector(3, six);
  assert_int_equal(RUN("add.out", TERN_OUT, of(&x), of(&y), integer(2), of(&out)), TERN_RECORD);
  must(last_status);
  assert_int_equal(asked.resized, 0);
  assert_int_equal(asked.returned_index, 3);
  EXPECT(out, 3, 6, 9);
  drop(x), drop(y), drop(out);
}

static void out_is_resized(void **state) {
  (void)state;
  tensor x = vector(3, six), y = vector(3, six), out = vector(2, six);
  assert_int_equal(RUN("add.out", TERN_OUT, of(&x), of(&y), integer(1), of(&out)), TERN_RECORD);
  must(last_status);
  assert_int_equal(asked.resized, 1);
  EXPECT(asked.made[0], 2, 4, 6);
  drop(asked.made[0]), drop(x), drop(y), drop(out);
}

static void several_results(void **state) {
  (void)state;
  tensor x = from_floats(2, (const int64_t[]){2, 3}, (const float[]){1, 5, 2, 9, 0, 9});
  assert_int_equal(RUN("max.dim", TERN_FUNCTIONAL, of(&x), integer(1), {.tag = TERN_ARG_BOOL, .u.i = 0}), TERN_RECORD);
  must(last_status);
  assert_int_equal(asked.results, 2);
  EXPECT(asked.made[0], 5, 9);
  int64_t indices[2];
  must(tern_buffer_read(asked.made[1].buffer, 0, sizeof indices, indices));
  assert_int_equal(indices[0], 1);
  assert_int_equal(indices[1], 0);
  drop(asked.made[0]), drop(asked.made[1]), drop(x);
}

static void numbers_on_the_cpu_are_scalars(void **state) {
  (void)state;
  tensor x = vector(3, six);
  double half = 0.5;
  tern_argument scalar = {.tag = TERN_ARG_TENSOR, .u.tensor = {.device = TERN_ON_CPU, .dtype = TERN_F64, .host = &half, .count = 1}};
  assert_int_equal(RUN("mul.Tensor", TERN_FUNCTIONAL, of(&x), scalar), TERN_RECORD);
  must(last_status);
  EXPECT(asked.made[0], 0.5, 1, 1.5);
  drop(asked.made[0]);
  assert_int_equal(RUN("sub.Tensor", TERN_FUNCTIONAL, scalar, of(&x), integer(1)), TERN_RECORD);
  must(last_status);
  EXPECT(asked.made[0], -0.5, -1.5, -2.5);
  drop(asked.made[0]), drop(x);
}

static void an_expanded_tensor_can_be_filled(void **state) {
  (void)state;
  tensor base = vector(2, six), x = view(base, 2, (const int64_t[]){2, 3}, (const int64_t[]){1, 0}, 0);
  assert_int_equal(RUN("fill_.Scalar", TERN_INPLACE, of(&x), number(7)), TERN_RECORD);
  must(last_status);
  assert_int_equal(asked.returned, 1);
  EXPECT(base, 7, 7);
  drop(base);
}

static void empty_results_record_nothing(void **state) {
  (void)state;
  tern_eager_stats before, after;
  tensor x = empty_on(the_device(), TERN_F32, 2, (const int64_t[]){0, 3});
  tern_stats(&before);
  assert_int_equal(RUN("exp", TERN_FUNCTIONAL, of(&x)), TERN_RECORD);
  must(last_status);
  tern_stats(&after);
  assert_int_equal(asked.results, 1);
  assert_int_equal(after.nodes, before.nodes);
  drop(asked.made[0]), drop(x);
}

/* ---- refusals ---- */

static void wrong_calls_are_rejected(void **state) {
  (void)state;
  tensor x = vector(3, six), y = vector(2, six), integers = empty_on(the_device(), TERN_I64, 1, (const int64_t[]){3});
  float data[3] = {0};
  tern_argument on_cpu = of(&x);
  on_cpu.u.tensor.device = TERN_ON_CPU;
  on_cpu.u.tensor.host = data;
  assert_int_equal(RUN("add.Tensor", TERN_FUNCTIONAL, of(&x), of(&y), integer(1)), TERN_REJECT);      /* shapes do not broadcast */
  assert_int_equal(RUN("add_.Tensor", TERN_INPLACE, of(&integers), of(&x), integer(1)), TERN_REJECT); /* f32 into i64 */
  assert_int_equal(RUN("add.Tensor", TERN_FUNCTIONAL, of(&x), on_cpu, integer(1)), TERN_REJECT);      /* two devices */
  tensor row = view(x, 2, (const int64_t[]){1, 3}, (const int64_t[]){3, 1}, 0), matrix = view(x, 2, (const int64_t[]){3, 1}, (const int64_t[]){1, 1}, 0);
  assert_int_equal(RUN("add_.Tensor", TERN_INPLACE, of(&row), of(&matrix), integer(1)), TERN_REJECT); /* the target would have to grow */
  assert_int_equal(asked.results + asked.returned, 0);
  drop(x), drop(y), drop(integers);
}

static void what_is_not_native_falls_back(void **state) {
  (void)state;
  tensor complex = empty_on(the_device(), TERN_C64, 1, (const int64_t[]){3}), integers = empty_on(the_device(), TERN_I64, 1, (const int64_t[]){3});
  assert_int_equal(RUN("add.Tensor", TERN_FUNCTIONAL, of(&complex), of(&complex), integer(1)), TERN_FALL_BACK);
  assert_int_equal(RUN("add.Tensor", TERN_FUNCTIONAL, of(&integers), of(&integers), number(0.5)), TERN_FALL_BACK);
  drop(complex), drop(integers);
}

static void overlapping_memory_is_an_error_in_torchs_words(void **state) {
  (void)state;
  tensor base = vector(6, six), front = slice(base, 0, 5, 1), back = slice(base, 1, 5, 1);
  tensor expanded = view(base, 2, (const int64_t[]){2, 3}, (const int64_t[]){1, 0}, 0);
  assert_int_equal(RUN("add_.Tensor", TERN_INPLACE, of(&front), of(&back), integer(1)), TERN_RECORD);
  assert_non_null(strstr(tern_error_message(last_status), "some elements of the input tensor and the written-to tensor"));
  assert_int_equal(RUN("mul_.Scalar", TERN_INPLACE, of(&expanded), number(2)), TERN_RECORD);
  assert_non_null(strstr(tern_error_message(last_status), "more than one element of the written-to tensor"));
  EXPECT(base, 1, 2, 3, 4, 5, 6);
  drop(base);
}

/* ---- the table ---- */

static void every_row_has_its_own_number_and_a_lowering(void **state) {
  (void)state;
  for (int i = 0; i < tern_aten_row_count(); i++) {
    const tern_aten_row *row = tern_aten_row_at(i);
    const tern_operation *operation = tern_aten_operation(row);
    assert_non_null(operation);
    assert_int_equal(operation->id, i + 1);
    assert_true(row->functional || row->inplace || row->out || row->internal);
    if (!row->infer && !row->custom && !row->internal) fail_msg("%s can never be called", operation->name);
    if (!row->lower && !row->custom) fail_msg("%s has no lowering", operation->name);
  }
  assert_string_equal(tern_aten_operation(row_named("add.Tensor"))->name, "aten::add.Tensor");
  assert_null(tern_aten_row_at(tern_aten_row_count()));
}

static int release_last(void **state) {
  (void)state;
  tern_error_free(last_status);
  return 0;
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(functional_makes_a_tensor),
      cmocka_unit_test(results_keep_their_operands_order),
      cmocka_unit_test(in_place_writes_its_first_argument),
      cmocka_unit_test(in_place_keeps_the_targets_dtype),
      cmocka_unit_test(out_writes_its_last_argument),
      cmocka_unit_test(out_is_resized),
      cmocka_unit_test(several_results),
      cmocka_unit_test(numbers_on_the_cpu_are_scalars),
      cmocka_unit_test(an_expanded_tensor_can_be_filled),
      cmocka_unit_test(empty_results_record_nothing),
      cmocka_unit_test(wrong_calls_are_rejected),
      cmocka_unit_test(what_is_not_native_falls_back),
      cmocka_unit_test(overlapping_memory_is_an_error_in_torchs_words),
      cmocka_unit_test(every_row_has_its_own_number_and_a_lowering),
  };
  return cmocka_run_group_tests(tests, NULL, release_last);
}
