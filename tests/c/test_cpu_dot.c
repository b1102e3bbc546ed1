/* dot_general on every instruction set: against plain loops, exactly, over sizes, layouts, batches and element types. */
#include "cpu_kernels.h"

static uint64_t seed = 1;

/* out = batch dims, lhs free, rhs free; the two inputs as described by the attributes. Sums in double, which is exact for the values used. */
static void reference(const tern_op *op, const tern_cpu_view *in, const tern_cpu_view *out) {
  if (test_count(out) == 0) return;
  int nb = op->attrs->dot.n_batch, nc = op->attrs->dot.n_contract;
  int64_t at[TERN_MAX_RANK] = {0};
  do {
    int64_t index[2][TERN_MAX_RANK] = {{0}};
    int d = 0;
    for (; d < nb; d++) {
      index[0][op->attrs->dot.lhs_batch[d]] = at[d];
      index[1][op->attrs->dot.rhs_batch[d]] = at[d];
    }
    for (int side = 0; side < 2; side++)
      for (int i = 0; i < in[side].rank; i++) {
        const int32_t *batch = side ? op->attrs->dot.rhs_batch : op->attrs->dot.lhs_batch;
        const int32_t *contract = side ? op->attrs->dot.rhs_contract : op->attrs->dot.lhs_contract;
        bool is_free = true;
        for (int b = 0; b < nb; b++) is_free &= batch[b] != i;
        for (int c = 0; c < nc; c++) is_free &= contract[c] != i;
        if (is_free) index[side][i] = at[d++];
      }
    tern_cpu_view k = {.rank = nc};
    for (int c = 0; c < nc; c++) k.dims[c] = in[0].dims[op->attrs->dot.lhs_contract[c]];
    int64_t p[TERN_MAX_RANK] = {0};
    double sum = 0;
    if (test_count(&k)) do {
        for (int c = 0; c < nc; c++) index[0][op->attrs->dot.lhs_contract[c]] = index[1][op->attrs->dot.rhs_contract[c]] = p[c];
        double x = test_load(in[0].dtype, test_at(&in[0], index[0])), y = test_load(in[1].dtype, test_at(&in[1], index[1]));
        sum += x * y;
      } while (test_next(&k, p));
    test_store(out->dtype, test_at(out, at), sum);
  } while (test_next(out, at));
}

/* Runs on every table, with one thread and three, and compares with the loops. */
static void check(const tern_op *op, const test_array *lhs, const test_array *rhs, int out_rank, const int64_t *out_dims) {
  test_array expected = array_new(lhs->view.dtype, out_rank, out_dims, NULL, 1), got = array_new(lhs->view.dtype, out_rank, out_dims, NULL, 1);
  tern_cpu_view in[2] = {lhs->view, rhs->view};
  reference(op, in, &expected.view);
  const tern_kernel_table *tables[4];
  int n = test_tables(tables);
  for (int i = 0; i < n; i++)
    for (int threads = 1; threads <= 3; threads += 2) {
      tern_pool_set_threads(threads);
      memset(got.memory, 0x55, got.bytes);
      test_run(&tables[i]->rows[TERN_OP_DOT], op, in, &got.view);
      if (memcmp(expected.memory, got.memory, got.bytes) != 0) {
        int64_t at[TERN_MAX_RANK] = {0};
        do {
          double e = test_load(got.view.dtype, test_at(&expected.view, at)), g = test_load(got.view.dtype, test_at(&got.view, at));
          if (e != g) {
            print_error("%s %s, %d threads: [%ld %ld %ld] is %g, not %g\n", tables[i]->isa, tern_dtype_name(got.view.dtype), threads, (long)at[0], (long)at[1], (long)at[2], g, e);
            break;
          }
        } while (test_next(&got.view, at));
      }
      assert_memory_equal(expected.memory, got.memory, got.bytes);
    }
  array_free(&expected);
  array_free(&got);
}

typedef struct layout {
  const char *name;
  int a_order[3], b_order[3];
  int64_t step;
} layout;
/* [batch, m, k] x [batch, k, n]: rows or columns contiguous, the batch inside, and spread out or reversed. */
static const layout layouts[] = {
    {"plain", {0, 1, 2}, {0, 1, 2}, 1},   {"b transposed", {0, 1, 2}, {0, 2, 1}, 1}, {"a transposed", {0, 2, 1}, {0, 1, 2}, 1},
    {"both", {0, 2, 1}, {0, 2, 1}, 1},    {"batch inside", {1, 0, 2}, {1, 0, 2}, 1}, {"spread", {0, 1, 2}, {0, 2, 1}, 3},
    {"innermost", {1, 2, 0}, {2, 1, 0}, 1}, {"reversed", {0, 1, 2}, {0, 1, 2}, -1},
};

static tern_attrs batched(void) {
  tern_attrs attrs = {0};
  attrs.dot.n_batch = attrs.dot.n_contract = 1;
  attrs.dot.lhs_contract[0] = 2;
  attrs.dot.rhs_contract[0] = 1;
  return attrs;
}

static void check_matrix(tern_dtype dtype, const layout *l, int64_t batch, int64_t m, int64_t n, int64_t k) {
  tern_attrs attrs = batched();
  tern_op op = {.kind = TERN_OP_DOT, .n_operands = 2, .n_results = 1, .attrs = &attrs};
  test_array a = array_new(dtype, 3, (int64_t[]){batch, m, k}, l->a_order, l->step);
  test_array b = array_new(dtype, 3, (int64_t[]){batch, k, n}, l->b_order, l->step);
  array_fill_exact(&a, &seed);
  array_fill_exact(&b, &seed);
  check(&op, &a, &b, 3, (int64_t[]){batch, m, n});
  array_free(&a);
  array_free(&b);
}

static void every_layout_and_type(void **state) {
  (void)state;
  static const int64_t shapes[][4] = {{1, 1, 1, 1}, {2, 3, 5, 7}, {1, 17, 33, 9}, {3, 1, 19, 40}, {2, 40, 1, 21}, {1, 15, 70, 65}, {1, 4, 3, 0}, {0, 4, 3, 2}, {2, 0, 3, 2}, {1, 1, 1, 300}};
  static const tern_dtype dtypes[] = {TERN_F32, TERN_F64, TERN_BF16, TERN_F16, TERN_I32, TERN_I64};
  for (size_t l = 0; l < TERN_COUNT(layouts); l++)
    for (size_t d = 0; d < TERN_COUNT(dtypes); d++)
      for (size_t s = 0; s < TERN_COUNT(shapes); s++) check_matrix(dtypes[d], &layouts[l], shapes[s][0], shapes[s][1], shapes[s][2], shapes[s][3]);
}

/* Past every block size: several blocks of k, of rows, and groups of columns; packed once for all. */
static void large_sizes(void **state) {
  (void)state;
  static const int64_t shapes[][4] = {{1, 180, 300, 70}, {1, 97, 65, 801}, {1, 10, 1100, 390}, {1, 200, 1, 5000}, {1, 1, 700, 2100}, {30, 9, 40, 33}, {2, 190, 140, 130}};
  for (size_t s = 0; s < TERN_COUNT(shapes); s++)
    for (size_t l = 0; l < 4; l++) {
      check_matrix(TERN_F32, &layouts[l], shapes[s][0], shapes[s][1], shapes[s][2], shapes[s][3]);
      check_matrix(s % 2 ? TERN_F64 : TERN_BF16, &layouts[l], shapes[s][0], shapes[s][1], shapes[s][2], shapes[s][3]);
    }
}

static void every_small_size(void **state) {
  (void)state;
  for (int64_t m = 1; m <= 16; m++)
    for (int64_t n = 1; n <= 66; n += m % 2 ? 13 : 16) check_matrix(TERN_F32, &layouts[m % 2], 1, m, n, 5);
}

/* Several contracted, free and batch dimensions that do not merge: offset tables. */
static void dimensions_that_do_not_merge(void **state) {
  (void)state;
  tern_attrs attrs = {0};
  attrs.dot.n_batch = 2;
  attrs.dot.n_contract = 2;
  /* lhs [b0, k0, m0, b1, k1, m1], rhs [k1, b1, n0, k0, n1, b0] */
  memcpy(attrs.dot.lhs_batch, (int32_t[]){0, 3}, 8);
  memcpy(attrs.dot.rhs_batch, (int32_t[]){5, 1}, 8);
  memcpy(attrs.dot.lhs_contract, (int32_t[]){1, 4}, 8);
  memcpy(attrs.dot.rhs_contract, (int32_t[]){3, 0}, 8);
  tern_op op = {.kind = TERN_OP_DOT, .n_operands = 2, .n_results = 1, .attrs = &attrs};
  static const tern_dtype dtypes[] = {TERN_F32, TERN_F64, TERN_F16, TERN_I64};
  static const int orders[][6] = {{0, 1, 2, 3, 4, 5}, {0, 2, 4, 1, 3, 5}, {5, 3, 1, 4, 2, 0}, {0, 3, 1, 4, 2, 5}};
  for (size_t d = 0; d < TERN_COUNT(dtypes); d++)
    for (size_t o = 0; o < TERN_COUNT(orders); o++)
      for (int64_t m = 1; m <= 5; m += 4) {
        test_array a = array_new(dtypes[d], 6, (int64_t[]){2, 3, m, 4, 5, m == 1 ? 1 : 6}, orders[o], 1);
        test_array b = array_new(dtypes[d], 6, (int64_t[]){5, 4, 7, 3, 9, 2}, orders[(o + 1) % TERN_COUNT(orders)], 1);
        array_fill_exact(&a, &seed);
        array_fill_exact(&b, &seed);
        check(&op, &a, &b, 6, (int64_t[]){2, 4, m, m == 1 ? 1 : 6, 7, 9});
        array_free(&a);
        array_free(&b);
      }
}

static void broadcast_batches(void **state) {
  (void)state;
  tern_attrs attrs = batched();
  tern_op op = {.kind = TERN_OP_DOT, .n_operands = 2, .n_results = 1, .attrs = &attrs};
  test_array a = array_new(TERN_F32, 3, (int64_t[]){1, 20, 30}, NULL, 1), b = array_new(TERN_F32, 3, (int64_t[]){6, 30, 40}, NULL, 1);
  array_fill_exact(&a, &seed);
  array_fill_exact(&b, &seed);
  a.view.dims[0] = 6;
  a.view.strides[0] = 0;
  check(&op, &a, &b, 3, (int64_t[]){6, 20, 40});
  array_free(&a);
  array_free(&b);
}

/* With values whose sums round: the bits depend neither on the layout nor on the threads. */
static void bits_depend_on_the_shape_only(void **state) {
  (void)state;
  static const int64_t shapes[][3] = {{64, 64, 64}, {1, 200, 900}, {200, 1, 900}, {130, 270, 850}, {10, 40, 1000}, {150, 33, 70}};
  static const tern_dtype dtypes[] = {TERN_F32, TERN_F64, TERN_BF16};
  tern_attrs attrs = batched();
  tern_op op = {.kind = TERN_OP_DOT, .n_operands = 2, .n_results = 1, .attrs = &attrs};
  const tern_kernel_table *tables[4];
  int n_tables = test_tables(tables);
  for (size_t s = 0; s < TERN_COUNT(shapes); s++)
    for (size_t d = 0; d < TERN_COUNT(dtypes); d++)
      for (int t = 0; t < n_tables; t++) {
        int64_t m = shapes[s][0], n = shapes[s][1], k = shapes[s][2];
        test_array first = {0}, a0 = {0}, b0 = {0};
        for (size_t l = 0; l < TERN_COUNT(layouts); l++) {
          test_array a = array_new(dtypes[d], 3, (int64_t[]){1, m, k}, layouts[l].a_order, layouts[l].step);
          test_array b = array_new(dtypes[d], 3, (int64_t[]){1, k, n}, layouts[l].b_order, layouts[l].step);
          test_array c = array_new(dtypes[d], 3, (int64_t[]){1, m, n}, NULL, 1);
          if (l == 0) {
            array_fill_random(&a, &seed);
            array_fill_random(&b, &seed);
          } else {
            array_copy(&a, &a0);
            array_copy(&b, &b0);
          }
          for (int threads = 1; threads <= 2; threads++) {
            tern_pool_set_threads(threads);
            test_run(&tables[t]->rows[TERN_OP_DOT], &op, (tern_cpu_view[]){a.view, b.view}, &c.view);
            if (l == 0 && threads == 1) {
              first = array_new(dtypes[d], 3, (int64_t[]){1, m, n}, NULL, 1);
              memcpy(first.memory, c.memory, c.bytes);
            }
            if (memcmp(first.memory, c.memory, c.bytes) != 0) print_error("%s, %s: %ld x %ld x %ld\n", tables[t]->isa, layouts[l].name, (long)m, (long)n, (long)k);
            assert_memory_equal(first.memory, c.memory, c.bytes);
          }
          array_free(&c);
          if (l == 0) a0 = a, b0 = b;
          else array_free(&a), array_free(&b);
        }
        array_free(&a0);
        array_free(&b0);
        array_free(&first);
      }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(every_layout_and_type), cmocka_unit_test(every_small_size),  cmocka_unit_test(large_sizes),
      cmocka_unit_test(dimensions_that_do_not_merge), cmocka_unit_test(broadcast_batches), cmocka_unit_test(bits_depend_on_the_shape_only),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
