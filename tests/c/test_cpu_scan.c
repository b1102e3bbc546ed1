/* SCAN and ARG_REDUCE against plain loops: every dtype, any dimension, NaN, ties. */
#include "kernel_check.h"

static const tern_dtype dtypes[] = {TERN_BOOL, TERN_U8, TERN_I8, TERN_I16, TERN_I32, TERN_I64, TERN_U16, TERN_U32, TERN_U64, TERN_F16, TERN_BF16, TERN_F32, TERN_F64};

static double round_to(tern_dtype dtype, double x) {
  return dtype == TERN_F32 ? (double)(float)x : dtype == TERN_F16 ? (double)tern_f16_to_f32(tern_f32_to_f16((float)x))
         : dtype == TERN_BF16 ? (double)tern_bf16_to_f32(tern_f32_to_bf16((float)x)) : dtype == TERN_BOOL ? x != 0 : x;
}

static double combine(tern_reduction how, tern_dtype dtype, double a, double b) {
  const double result = how == TERN_SUM ? a + b : how == TERN_PROD ? a * b : isnan(b) || (how == TERN_MAX ? b >= a : b <= a) ? b : a;
  return dtype == TERN_BOOL ? result != 0 : dtype == TERN_F16 || dtype == TERN_BF16 ? (double)(float)result : result; /* the running total's own rounding */
}

static void check_case(tern_dtype dtype, int rank, const int64_t *dims, int dim, bool with_nan) {
  tern_cpu_view x = array_new(dtype, rank, dims), out = array_new(dtype, rank, dims);
  const int64_t count = array_count(&x), n = rank ? dims[dim] : 1;
  int64_t inner = 1, reduced_dims[TERN_MAX_RANK];
  int reduced_rank = 0;
  for (int d = dim + 1; d < rank; d++) inner *= dims[d];
  for (int d = 0; d < rank; d++)
    if (d != dim) reduced_dims[reduced_rank++] = dims[d];
  if (tern_dtype_is_float(dtype)) array_fill_random(&x, -1.2, 1.2);
  else array_fill_integers(&x, 0, dtype == TERN_BOOL ? 1 : 2);
  if (with_nan)
    for (int64_t i = 0; i < count; i += 1 + (int64_t)(random_bits() % (uint64_t)(2 * n))) array_set(&x, i, (double)NAN);
  double *values = expected_new(&x), *expected = expected_new(&x);
  for (int64_t i = 0; i < count; i++) values[i] = array_get(&x, i);
  for (tern_reduction how = TERN_SUM; how <= TERN_MIN; how++) {
    if (how == TERN_SUM && dtype == TERN_U8 && n > 100) continue; /* they wrap around: see test_wraps */
    if (how == TERN_PROD && tern_dtype_is_integer(dtype)) continue;
    if (how == TERN_SUM && dtype == TERN_I8 && n > 60) continue;
    for (int64_t line = 0; n && line < count / n; line++) {
      const int64_t first = line / inner * n * inner + line % inner;
      double total = values[first];
      for (int64_t i = 0; i < n; i++) {
        if (i) total = combine(how, dtype, total, values[first + i * inner]);
        expected[first + i * inner] = round_to(dtype, total);
      }
    }
    FOR_EACH_ISA(table) {
      kernel_run(table, TERN_OP_SCAN, &(tern_attrs){.reduce = {how, 1, {dim}}}, 1, &x, 1, &out);
      expect_equal("scan", &out, expected);
    }
  }
  for (int is_max = 0; is_max < 2 && n; is_max++) {
    tern_cpu_view best = array_new(dtype, reduced_rank, reduced_dims), index = array_new(TERN_I64, reduced_rank, reduced_dims);
    double *bests = expected_new(&best), *places = expected_new(&index);
    for (int64_t line = 0; line < count / n; line++) {
      const int64_t first = line / inner * n * inner + line % inner;
      int64_t at = 0;
      for (int64_t i = 1; i < n; i++) {
        const double a = values[first + at * inner], b = values[first + i * inner];
        if (!isnan(a) && (isnan(b) || (is_max ? b > a : b < a))) at = i;
      }
      places[line] = (double)at;
      bests[line] = values[first + at * inner];
    }
    FOR_EACH_ISA(table) {
      kernel_run(table, TERN_OP_ARG_REDUCE, &(tern_attrs){.reduce = {is_max ? TERN_MAX : TERN_MIN, 1, {dim}}}, 1, &x, 2, (tern_cpu_view[]){best, index});
      expect_equal("value", &best, bests);
      expect_equal("index", &index, places);
    }
  }
  arrays_free();
}

static void test_lines(void **state) {
  (void)state;
  for (size_t t = 0; t < TERN_COUNT(dtypes); t++)
    for (int with_nan = 0; with_nan <= tern_dtype_is_float(dtypes[t]); with_nan++) {
      check_case(dtypes[t], DIMS(5, 33), 1, with_nan);
      check_case(dtypes[t], DIMS(300, 10), 1, with_nan);
      check_case(dtypes[t], DIMS(3, 17, 130), 1, with_nan);
      check_case(dtypes[t], DIMS(50, 3), 0, with_nan);
      check_case(dtypes[t], DIMS(2, 1, 3), 1, with_nan);
    }
  check_case(TERN_F32, DIMS(2, 50000), 1, false);
  check_case(TERN_F32, DIMS(0, 3), 1, false);
  check_case(TERN_F32, DIMS(3, 0), 1, false);
  check_case(TERN_F32, 0, NULL, 0, false);
}

static void test_wraps(void **state) {
  (void)state;
  tern_cpu_view x = array_new(TERN_I8, DIMS(3)), out = array_new(TERN_I8, DIMS(3));
  array_fill(&x, 100);
  FOR_EACH_ISA(table) {
    kernel_run(table, TERN_OP_SCAN, &(tern_attrs){.reduce = {TERN_SUM, 1, {0}}}, 1, &x, 1, &out);
    expect_equal("scan", &out, (double[]){100, -56, 44});
    kernel_run(table, TERN_OP_SCAN, &(tern_attrs){.reduce = {TERN_PROD, 1, {0}}}, 1, &x, 1, &out);
    expect_equal("scan", &out, (double[]){100, 16, 64});
  }
}

/* f32 totals are kept in f64: many small numbers after a large one are not lost. */
static void test_running_sum_is_accurate(void **state) {
  (void)state;
  tern_cpu_view x = array_new(TERN_F32, DIMS(1001)), out = array_copy(&x);
  array_fill(&x, 0.25);
  array_set(&x, 0, 1e8);
  FOR_EACH_ISA(table) {
    kernel_run(table, TERN_OP_SCAN, &(tern_attrs){.reduce = {TERN_SUM, 1, {0}}}, 1, &x, 1, &out);
    assert_true(array_get(&out, 1000) == 100000248 || array_get(&out, 1000) == 100000256);
  }
}

static void test_complex(void **state) {
  (void)state;
  tern_cpu_view x = array_new(TERN_C64, DIMS(3)), out = array_copy(&x), index = array_new(TERN_I64, 0, NULL);
  for (int i = 0; i < 3; i++) array_set(&x, i, i + 1); /* 1+1i, 2, 3-1i */
  FOR_EACH_ISA(table) {
    kernel_run(table, TERN_OP_SCAN, &(tern_attrs){.reduce = {TERN_PROD, 1, {0}}}, 1, &x, 1, &out);
    const float *z = (const float *)out.data;
    assert_true(z[2] == 2 && z[3] == 2 && z[4] == 8 && z[5] == 4); /* (2+2i)(3-1i) = 8+4i */
    tern_status status = kernel_run_status(table, TERN_OP_SCAN, &(tern_attrs){.reduce = {TERN_MAX, 1, {0}}}, 1, &x, 1, &out);
    assert_int_equal(tern_error_code(status), TERN_UNSUPPORTED);
    tern_error_free(status);
    status = kernel_run_status(table, TERN_OP_ARG_REDUCE, &(tern_attrs){.reduce = {TERN_MAX, 1, {0}}}, 1, &x, 2, (tern_cpu_view[]){x, index});
    assert_int_equal(tern_error_code(status), TERN_UNSUPPORTED);
    tern_error_free(status);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
    cmocka_unit_test_teardown(test_lines, teardown_arrays),
    cmocka_unit_test_teardown(test_wraps, teardown_arrays),
    cmocka_unit_test_teardown(test_running_sum_is_accurate, teardown_arrays),
    cmocka_unit_test_teardown(test_complex, teardown_arrays),
  };
  return cmocka_run_group_tests_name("cpu/scan", tests, NULL, NULL);
}
