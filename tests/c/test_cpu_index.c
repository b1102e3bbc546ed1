/* Indexing kernels against plain loops: every dtype, odd sizes, strides, empty arrays, bad indices. */
#include "kernel_check.h"

static const tern_dtype every_dtype[] = {TERN_BOOL, TERN_U8,  TERN_I8,   TERN_I16, TERN_I32, TERN_I64, TERN_U16, TERN_U32,
                                         TERN_U64,  TERN_F16, TERN_BF16, TERN_F32, TERN_F64, TERN_C64, TERN_C128};

/* Row-major position to coordinates and back. */
static void unravel(const tern_cpu_view *v, int64_t at, int64_t *coordinates) {
  for (int d = v->rank - 1; d >= 0; d--) {
    coordinates[d] = at % v->dims[d];
    at /= v->dims[d];
  }
}
static int64_t ravel(const tern_cpu_view *v, const int64_t *coordinates) {
  int64_t at = 0;
  for (int d = 0; d < v->rank; d++) at = at * v->dims[d] + coordinates[d];
  return at;
}

static void test_take_case(tern_dtype dtype, tern_dtype index_dtype, int rank, const int64_t *dims, int dim, int index_rank, const int64_t *index_dims, int64_t gap) {
  tern_cpu_view x = gap ? array_strided(dtype, rank, dims, gap) : array_new(dtype, rank, dims), index = array_new(index_dtype, index_rank, index_dims);
  array_fill_integers(&x, 0, 100);
  array_fill_integers(&index, 0, dims[dim] - 1);
  int64_t out_dims[TERN_MAX_RANK];
  int out_rank = 0;
  for (int d = 0; d < dim; d++) out_dims[out_rank++] = dims[d];
  for (int d = 0; d < index_rank; d++) out_dims[out_rank++] = index_dims[d];
  for (int d = dim + 1; d < rank; d++) out_dims[out_rank++] = dims[d];
  tern_cpu_view out = array_new(dtype, out_rank, out_dims);
  double *expected = expected_new(&out);
  for (int64_t i = 0; i < array_count(&out); i++) {
    int64_t at[TERN_MAX_RANK], from[TERN_MAX_RANK];
    unravel(&out, i, at);
    memcpy(from, at, sizeof(int64_t) * (size_t)dim);
    from[dim] = (int64_t)array_get(&index, ravel(&index, at + dim));
    for (int d = dim + 1; d < rank; d++) from[d] = at[d - 1 + index_rank];
    expected[i] = array_get(&x, ravel(&x, from));
  }
  tern_attrs attrs = {.axis.dim = dim};
  FOR_EACH_ISA(table) {
    kernel_run(table, TERN_OP_TAKE, &attrs, 2, (tern_cpu_view[]){x, index}, 1, &out);
    expect_equal("take", &out, expected);
  }
  arrays_free();
}

static void test_take(void **state) {
  (void)state;
  for (size_t i = 0; i < TERN_COUNT(every_dtype); i++) {
    test_take_case(every_dtype[i], TERN_I64, DIMS(7, 5), 0, DIMS(3, 2), 0);
    test_take_case(every_dtype[i], TERN_I32, DIMS(3, 7), 1, DIMS(9), 0);
  }
  test_take_case(TERN_F32, TERN_I64, DIMS(1000, 64), 0, DIMS(40, 70), 0);
  test_take_case(TERN_F32, TERN_I64, DIMS(13, 300, 7), 1, DIMS(700), 0);
  test_take_case(TERN_F32, TERN_I64, DIMS(5000), 0, DIMS(20000), 0);
  test_take_case(TERN_BF16, TERN_I64, DIMS(4, 5, 6, 3), 1, DIMS(8), 2);
  test_take_case(TERN_F64, TERN_I64, DIMS(4, 5, 6, 3), 3, DIMS(2, 2), 1);
  test_take_case(TERN_F32, TERN_I64, DIMS(6), 0, 0, NULL, 0);       /* an index of rank 0 */
  test_take_case(TERN_F32, TERN_I64, DIMS(6, 2), 0, DIMS(0), 0);    /* nothing taken */
  test_take_case(TERN_F32, TERN_I64, DIMS(6, 0), 0, DIMS(3), 0);    /* empty rows */
}

static void test_take_clamps(void **state) {
  (void)state;
  tern_cpu_view x = array_new(TERN_F32, DIMS(3, 2)), index = array_new(TERN_I64, DIMS(2)), out = array_new(TERN_F32, DIMS(2, 2));
  for (int i = 0; i < 6; i++) array_set(&x, i, i);
  array_set(&index, 0, -1e15);
  array_set(&index, 1, 1e15);
  FOR_EACH_ISA(table) {
    kernel_run(table, TERN_OP_TAKE, &(tern_attrs){.axis.dim = 0}, 2, (tern_cpu_view[]){x, index}, 1, &out);
    expect_equal("take", &out, (double[]){0, 1, 4, 5});
    tern_cpu_view empty = array_new(TERN_F32, DIMS(0, 2));
    tern_status status = kernel_run_status(table, TERN_OP_TAKE, &(tern_attrs){.axis.dim = 0}, 2, (tern_cpu_view[]){empty, index}, 1, &out);
    assert_int_equal(tern_error_code(status), TERN_INDEX_OUT_OF_RANGE);
    tern_error_free(status);
  }
}

/* gather and scatter over an index of `index_dims` (each at most dims, but along dim). */
static void test_lines_case(tern_dtype dtype, tern_dtype index_dtype, int rank, const int64_t *dims, const int64_t *index_dims, int dim, int64_t gap) {
  tern_cpu_view x = gap ? array_strided(dtype, rank, dims, gap) : array_new(dtype, rank, dims);
  tern_cpu_view index = gap ? array_strided(index_dtype, rank, index_dims, gap) : array_new(index_dtype, rank, index_dims);
  tern_cpu_view update = gap ? array_strided(dtype, rank, index_dims, gap) : array_new(dtype, rank, index_dims);
  array_fill_integers(&x, 0, 6);
  array_fill_integers(&update, 0, 6);
  array_fill_integers(&index, 0, rank ? dims[dim] - 1 : 0);
  tern_cpu_view gathered = array_new(dtype, rank, index_dims), scattered = array_new(dtype, rank, dims);
  double *expected = expected_new(&gathered);
  int64_t *place = array_alloc((size_t)array_count(&index) * sizeof(int64_t) + 8);
  for (int64_t i = 0; i < array_count(&index); i++) {
    int64_t at[TERN_MAX_RANK];
    unravel(&index, i, at);
    if (rank) at[dim] = (int64_t)array_get(&index, i);
    place[i] = ravel(&x, at);
    expected[i] = array_get(&x, place[i]);
  }
  FOR_EACH_ISA(table) {
    kernel_run(table, TERN_OP_GATHER, &(tern_attrs){.axis.dim = dim}, 2, (tern_cpu_view[]){x, index}, 1, &gathered);
    expect_equal("gather", &gathered, expected);
  }
  bool is_complex = tern_dtype_is_complex(dtype);
  for (tern_combine how = TERN_SET; how <= (is_complex ? TERN_COMBINE_ADD : TERN_COMBINE_MIN); how++) {
    tern_cpu_view model = array_copy(&x);
    for (int64_t i = 0; i < array_count(&index); i++) {
      double a = array_get(&model, place[i]), b = array_get(&update, i);
      array_set(&model, place[i], how == TERN_SET ? b : how == TERN_COMBINE_ADD ? a + b : how == TERN_COMBINE_MULTIPLY ? (double)(int64_t)fmod(a * b, 1e18) : how == TERN_COMBINE_MAX ? fmax(a, b) : fmin(a, b));
    }
    /* Products of integers wrap around in the model only where they stay small; keep to a few updates per place for the others. */
    if (how == TERN_COMBINE_MULTIPLY && array_count(&index) > 12) continue;
    double *wanted = expected_new(&scattered);
    for (int64_t i = 0; i < array_count(&model); i++) wanted[i] = array_get(&model, i);
    FOR_EACH_ISA(table) {
      kernel_run(table, TERN_OP_SCATTER, &(tern_attrs){.scatter = {dim, how}}, 3, (tern_cpu_view[]){x, index, update}, 1, &scattered);
      expect_equal("scatter", &scattered, wanted);
    }
  }
  arrays_free();
}

static void test_gather_and_scatter(void **state) {
  (void)state;
  for (size_t i = 0; i < TERN_COUNT(every_dtype); i++) {
    test_lines_case(every_dtype[i], TERN_I64, DIMS(7, 5), (int64_t[]){4, 3}, 0, 0);
    test_lines_case(every_dtype[i], TERN_I32, DIMS(4, 7), (int64_t[]){2, 3}, 1, 1);
  }
  test_lines_case(TERN_F32, TERN_I64, DIMS(40, 50, 3), (int64_t[]){37, 50, 3}, 0, 0);
  test_lines_case(TERN_F32, TERN_I64, DIMS(5, 3, 600), (int64_t[]){5, 300, 599}, 1, 0);
  test_lines_case(TERN_F32, TERN_I64, DIMS(5, 3, 60), (int64_t[]){5, 30, 59}, 1, 2);
  test_lines_case(TERN_F32, TERN_I64, DIMS(64, 1000), (int64_t[]){64, 1}, 1, 0); /* the target's probability, cross entropy */
  test_lines_case(TERN_F64, TERN_I64, DIMS(30000), (int64_t[]){40000}, 0, 0);
  test_lines_case(TERN_F32, TERN_I64, DIMS(5, 4), (int64_t[]){0, 4}, 0, 0);
  test_lines_case(TERN_F32, TERN_I64, 0, NULL, NULL, 0, 0);
}

/* An expanded index: stride 0. */
static void test_scatter_expanded_index(void **state) {
  (void)state;
  tern_cpu_view base = array_new(TERN_F32, DIMS(3, 4)), index = array_new(TERN_I64, DIMS(5, 4)), update = array_new(TERN_F32, DIMS(5, 4)), out = array_new(TERN_F32, DIMS(3, 4));
  index.strides[1] = 0;
  index.strides[0] = 1;
  double expected[12] = {0};
  array_fill(&base, 0);
  for (int i = 0; i < 5; i++) array_set(&index, i * 4, i % 2);
  for (int i = 0; i < 20; i++) {
    array_set(&update, i, i);
    expected[i / 4 % 2 * 4 + i % 4] += i;
  }
  FOR_EACH_ISA(table) {
    kernel_run(table, TERN_OP_SCATTER, &(tern_attrs){.scatter = {0, TERN_COMBINE_ADD}}, 3, (tern_cpu_view[]){base, index, update}, 1, &out);
    expect_equal("scatter", &out, expected);
  }
}

static void test_scatter_nan_wins(void **state) {
  (void)state;
  tern_cpu_view base = array_new(TERN_F32, DIMS(4)), index = array_new(TERN_I64, DIMS(4)), update = array_new(TERN_F32, DIMS(4)), out = array_new(TERN_F32, DIMS(4));
  for (int i = 0; i < 4; i++) {
    array_set(&index, i, i);
    array_set(&base, i, i == 0 ? (double)NAN : 1);
    array_set(&update, i, i == 1 ? (double)NAN : i);
  }
  FOR_EACH_ISA(table) {
    kernel_run(table, TERN_OP_SCATTER, &(tern_attrs){.scatter = {0, TERN_COMBINE_MAX}}, 3, (tern_cpu_view[]){base, index, update}, 1, &out);
    expect_equal("max", &out, (double[]){(double)NAN, (double)NAN, 2, 3});
    kernel_run(table, TERN_OP_SCATTER, &(tern_attrs){.scatter = {0, TERN_COMBINE_MIN}}, 3, (tern_cpu_view[]){base, index, update}, 1, &out);
    expect_equal("min", &out, (double[]){(double)NAN, (double)NAN, 1, 1});
  }
  tern_cpu_view complex_base = array_new(TERN_C64, DIMS(4));
  FOR_EACH_ISA(table) {
    tern_status status = kernel_run_status(table, TERN_OP_SCATTER, &(tern_attrs){.scatter = {0, TERN_COMBINE_MAX}}, 3, (tern_cpu_view[]){complex_base, index, complex_base}, 1, &complex_base);
    assert_int_equal(tern_error_code(status), TERN_UNSUPPORTED);
    tern_error_free(status);
  }
}

static void test_put_case(tern_dtype dtype, int rank, const int64_t *dims, int dim, int64_t n, tern_combine how) {
  tern_cpu_view base = array_new(dtype, rank, dims), index = array_new(TERN_I64, DIMS(n)), out = array_new(dtype, rank, dims);
  int64_t update_dims[TERN_MAX_RANK];
  memcpy(update_dims, dims, sizeof(int64_t) * (size_t)rank);
  update_dims[dim] = n;
  tern_cpu_view update = array_new(dtype, rank, update_dims);
  if (tern_dtype_is_float(dtype)) { /* random numbers: the order of the additions shows */
    array_fill_random(&base, -1, 1);
    array_fill_random(&update, -1, 1);
  } else {
    array_fill_integers(&base, 0, 3);
    array_fill_integers(&update, 0, 3);
  }
  array_fill_integers(&index, 0, dims[dim] - 1);
  tern_cpu_view model = array_copy(&base);
  for (int64_t i = 0; i < array_count(&update); i++) {
    int64_t at[TERN_MAX_RANK];
    unravel(&update, i, at);
    at[dim] = (int64_t)array_get(&index, at[dim]);
    int64_t place = ravel(&base, at);
    array_set(&model, place, how == TERN_SET ? array_get(&update, i) : array_get(&model, place) + array_get(&update, i));
  }
  double *expected = expected_new(&out);
  for (int64_t i = 0; i < array_count(&out); i++) expected[i] = array_get(&model, i);
  FOR_EACH_ISA(table) {
    kernel_run(table, TERN_OP_PUT, &(tern_attrs){.scatter = {dim, how}}, 3, (tern_cpu_view[]){base, index, update}, 1, &out);
    expect_equal("put", &out, expected);
  }
  arrays_free();
}

static void test_put(void **state) {
  (void)state;
  for (size_t i = 0; i < TERN_COUNT(every_dtype); i++)
    for (tern_combine how = TERN_SET; how <= TERN_COMBINE_ADD; how++) test_put_case(every_dtype[i], DIMS(5, 3), 0, 11, how);
  for (tern_combine how = TERN_SET; how <= TERN_COMBINE_ADD; how++) {
    test_put_case(TERN_F32, DIMS(65, 64), 0, 1024, how);
    test_put_case(TERN_F32, DIMS(20, 1500), 0, 70, how);
    test_put_case(TERN_F32, DIMS(9, 7, 33), 1, 300, how);
    test_put_case(TERN_F32, DIMS(9, 700), 1, 900, how);
    test_put_case(TERN_F32, DIMS(9), 0, 0, how);
  }
}

static void test_check_index(void **state) {
  (void)state;
  const tern_dtype dtypes[] = {TERN_I32, TERN_I64};
  for (size_t t = 0; t < 2; t++) {
    tern_cpu_view index = array_new(dtypes[t], DIMS(3, 9001)), empty = array_new(dtypes[t], DIMS(0));
    FOR_EACH_ISA(table) {
      array_fill_integers(&index, -3, 7);
      const tern_attrs attrs = {.check = {-3, 7}};
      kernel_run(table, TERN_OP_CHECK, &attrs, 1, &index, 0, NULL);
      kernel_run(table, TERN_OP_CHECK, &attrs, 1, &empty, 0, NULL);
      array_set(&index, 26000, 99);
      array_set(&index, 17001, -4); /* the first one is reported */
      tern_status status = kernel_run_status(table, TERN_OP_CHECK, &attrs, 1, &index, 0, NULL);
      assert_int_equal(tern_error_code(status), TERN_INDEX_OUT_OF_RANGE);
      assert_string_equal(tern_error_message(status), "index -4 is out of range [-3, 7]");
      assert_int_equal(kernel_failed_index, -4);
      tern_error_free(status);
    }
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
    cmocka_unit_test_teardown(test_take, teardown_arrays),
    cmocka_unit_test_teardown(test_take_clamps, teardown_arrays),
    cmocka_unit_test_teardown(test_gather_and_scatter, teardown_arrays),
    cmocka_unit_test_teardown(test_scatter_expanded_index, teardown_arrays),
    cmocka_unit_test_teardown(test_scatter_nan_wins, teardown_arrays),
    cmocka_unit_test_teardown(test_put, teardown_arrays),
    cmocka_unit_test_teardown(test_check_index, teardown_arrays),
  };
  return cmocka_run_group_tests_name("cpu/index", tests, NULL, NULL);
}
