/* SORT against a stable insertion of each line: every dtype, both orders, any dimension, NaN, signed zeros, ties. */
#include "kernel_check.h"

static const tern_dtype sortable[] = {TERN_BOOL, TERN_U8, TERN_I8, TERN_I16, TERN_I32, TERN_I64, TERN_U16, TERN_U32, TERN_U64, TERN_F16, TERN_BF16, TERN_F32, TERN_F64};

/* Whether a comes strictly before b. */
static bool before(double a, double b, bool descending) {
  if (isnan(a) || isnan(b)) return descending ? isnan(a) && !isnan(b) : !isnan(a) && isnan(b);
  return descending ? a > b : a < b;
}

static double *model_values;
static bool model_descending;
static int64_t model_stride;
static int compare_places(const void *a, const void *b) {
  const int64_t i = *(const int64_t *)a, j = *(const int64_t *)b;
  if (before(model_values[i * model_stride], model_values[j * model_stride], model_descending)) return -1;
  if (before(model_values[j * model_stride], model_values[i * model_stride], model_descending)) return 1;
  return i < j ? -1 : i > j; /* stable */
}

static void check_first(tern_dtype dtype, int rank, const int64_t *dims, int dim, double range, bool odd_values, int64_t wanted) {
  tern_cpu_view x = array_new(dtype, rank, dims), out = array_new(dtype, rank, dims), index = array_new(TERN_I64, rank, dims);
  const bool is_float = tern_dtype_is_float(dtype);
  if (is_float) array_fill_random(&x, -range, range);
  else array_fill_integers(&x, tern_dtype_is_signed(dtype) ? -(int64_t)range : 0, (int64_t)range);
  const int64_t count = array_count(&x), n = rank ? dims[dim] : 1;
  int64_t inner = 1;
  for (int d = dim + 1; d < rank; d++) inner *= dims[d];
  if (odd_values)
    for (int64_t i = 0; i < count; i++) {
      const double odd[] = {(double)NAN, 0, -0.0, (double)INFINITY, -(double)INFINITY, 1, -1};
      array_set(&x, i, odd[random_bits() % TERN_COUNT(odd)]);
    }
  double *values = expected_new(&x), *sorted = expected_new(&x), *places = expected_new(&x);
  int64_t *order = array_alloc((size_t)(n + 1) * sizeof(int64_t));
  for (int64_t i = 0; i < count; i++) values[i] = array_get(&x, i);
  for (int descending = 0; descending < 2; descending++) {
    for (int64_t line = 0; n && line < count / n; line++) {
      const int64_t first = line / inner * n * inner + line % inner;
      model_values = values + first;
      model_stride = inner;
      model_descending = descending;
      for (int64_t i = 0; i < n; i++) order[i] = i;
      qsort(order, (size_t)n, sizeof(int64_t), compare_places);
      for (int64_t i = 0; i < n; i++) {
        places[first + i * inner] = (double)order[i];
        sorted[first + i * inner] = values[first + order[i] * inner];
      }
    }
    FOR_EACH_ISA(table) {
      tern_attrs attrs = {.sort = {.dim = dim, .descending = descending, .first = wanted}};
      if (!wanted) {
        kernel_run(table, TERN_OP_SORT, &attrs, 1, &x, 2, (tern_cpu_view[]){out, index});
      } else { /* without the comparison of every byte */
        const tern_op op = {.kind = TERN_OP_SORT, .n_operands = 1, .n_results = 2, .attrs = &attrs};
        tern_pool_set_threads(descending + 1);
        assert_null(kernel_once(&table->rows[TERN_OP_SORT], &op, &x, (tern_cpu_view[]){out, index}));
      }
      for (int64_t i = 0; i < count && wanted; i++) /* the others are unspecified */
        if (i / inner % n >= wanted) {
          array_set(&out, i, 0);
          array_set(&index, i, 0);
          sorted[i] = places[i] = 0;
        }
      expect_equal("sorted", &out, sorted);
      expect_equal("index", &index, places);
      for (int64_t i = 0; i < count; i++) /* the very element: -0 stays -0 */
        if (is_float) assert_int_equal(signbit(array_get(&out, i)), signbit(sorted[i]));
    }
  }
  arrays_free();
}
static void check_case(tern_dtype dtype, int rank, const int64_t *dims, int dim, double range, bool odd_values) { check_first(dtype, rank, dims, dim, range, odd_values, 0); }

static void test_sort(void **state) {
  (void)state;
  for (size_t t = 0; t < TERN_COUNT(sortable); t++) {
    check_case(sortable[t], DIMS(3, 5), 1, 100, false);
    check_case(sortable[t], DIMS(7, 500), 1, 100, false);
    check_case(sortable[t], DIMS(4, 90, 3), 1, 3, false); /* many ties */
    check_case(sortable[t], DIMS(20000), 0, 120, false);
    if (tern_dtype_is_float(sortable[t])) {
      check_case(sortable[t], DIMS(30, 30), 1, 1, true);
      check_case(sortable[t], DIMS(300, 3), 0, 1, true);
    }
  }
  check_case(TERN_I64, DIMS(1000), 0, 1e15, false);
  check_case(TERN_F64, DIMS(20000), 0, 1e300, false);
  check_case(TERN_F32, DIMS(0, 4), 0, 1, false);
  check_case(TERN_F32, DIMS(4, 0), 0, 1, false);
  check_case(TERN_F32, 0, NULL, 0, 1, false);
}

static void test_complex_is_refused(void **state) {
  (void)state;
  tern_cpu_view x = array_new(TERN_C64, DIMS(3)), index = array_new(TERN_I64, DIMS(3));
  FOR_EACH_ISA(table) {
    tern_status status = kernel_run_status(table, TERN_OP_SORT, &(tern_attrs){0}, 1, &x, 2, (tern_cpu_view[]){x, index});
    assert_int_equal(tern_error_code(status), TERN_UNSUPPORTED);
    tern_error_free(status);
  }
}

/* Only the first few: they gather, and are sorted and cut when there is no more room; ties keep their order. */
static void test_first(void **state) {
  (void)state;
  for (size_t t = 0; t < TERN_COUNT(sortable); t++)
    for (int64_t wanted = 1; wanted <= 90; wanted = 3 * wanted + 1) {
      check_first(sortable[t], 2, (int64_t[]){3, 1777}, 1, 100, false, wanted);
      check_first(sortable[t], 2, (int64_t[]){700, 2}, 0, 100, true, wanted);
      check_first(sortable[t], 1, (int64_t[]){5000}, 0, 1e4, false, wanted);
      check_first(sortable[t], 1, (int64_t[]){100}, 0, 10, false, wanted);
    }
}

int main(void) {
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_first),
      cmocka_unit_test_teardown(test_sort, teardown_arrays),
    cmocka_unit_test_teardown(test_complex_is_refused, teardown_arrays),
  };
  return cmocka_run_group_tests_name("cpu/sort", tests, NULL, NULL);
}
