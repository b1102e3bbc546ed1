/* Convolution and its two gradients on every instruction set: against the definition, exactly, over windows, groups, layouts and element types. */
#include "cpu_kernels.h"

static uint64_t seed = 7;

typedef struct problem {
  int spatial;
  int64_t images, channels, rows, groups, in[3], kernel[3], stride[3], low[3], high[3], dilation[3];
} problem;

static const problem problems[] = {
    /* the common ones: 3x3 padded, digits */
    {2, 3, 1, 16, 1, {8, 8}, {3, 3}, {1, 1}, {1, 1}, {1, 1}, {1, 1}},
    {2, 2, 16, 32, 1, {8, 8}, {3, 3}, {1, 1}, {1, 1}, {1, 1}, {1, 1}},
    {2, 2, 5, 7, 1, {9, 11}, {3, 3}, {2, 2}, {1, 1}, {1, 1}, {1, 1}},
    {2, 1, 3, 19, 1, {17, 40}, {5, 3}, {1, 2}, {2, 1}, {2, 1}, {1, 1}},
    {2, 2, 4, 6, 1, {4, 4}, {4, 4}, {4, 4}, {0, 0}, {0, 0}, {1, 1}},       /* patches */
    {2, 2, 40, 50, 1, {7, 7}, {3, 3}, {1, 1}, {0, 0}, {0, 0}, {1, 1}},     /* several blocks of k */
    {2, 1, 64, 90, 1, {6, 7}, {3, 3}, {1, 1}, {1, 1}, {1, 1}, {1, 1}},
    /* pointwise, also with padding and stride */
    {2, 3, 20, 30, 1, {6, 7}, {1, 1}, {1, 1}, {0, 0}, {0, 0}, {1, 1}},
    {2, 2, 6, 5, 1, {9, 9}, {1, 1}, {2, 3}, {0, 0}, {0, 0}, {1, 1}},
    {2, 2, 6, 5, 1, {5, 4}, {1, 1}, {1, 1}, {1, 2}, {0, 1}, {1, 1}},
    /* dilation, stride and dilation with and without a common divisor */
    {2, 2, 3, 4, 1, {12, 13}, {3, 2}, {1, 1}, {2, 1}, {2, 1}, {2, 3}},
    {2, 2, 3, 4, 1, {15, 16}, {3, 3}, {2, 3}, {2, 2}, {2, 2}, {2, 2}},
    {2, 1, 2, 3, 1, {20, 19}, {3, 4}, {4, 3}, {1, 3}, {4, 0}, {2, 6}},
    /* asymmetric and negative padding; a stride longer than the kernel */
    {2, 2, 3, 5, 1, {8, 9}, {3, 3}, {1, 2}, {0, 2}, {2, 1}, {1, 1}},
    {2, 2, 3, 5, 1, {9, 9}, {3, 3}, {1, 1}, {-1, -2}, {-1, 1}, {1, 1}},
    {2, 1, 3, 4, 1, {13, 14}, {2, 2}, {3, 5}, {0, 1}, {0, 0}, {1, 1}},
    {2, 1, 3, 4, 1, {9, 9}, {3, 3}, {2, 2}, {-3, 5}, {0, 0}, {1, 1}},
    /* groups, depthwise, depthwise with a multiplier */
    {2, 2, 6, 9, 3, {7, 8}, {3, 3}, {1, 1}, {1, 1}, {1, 1}, {1, 1}},
    {2, 2, 8, 8, 8, {10, 9}, {3, 3}, {1, 1}, {1, 1}, {1, 1}, {1, 1}},
    {2, 2, 6, 12, 6, {10, 20}, {3, 3}, {2, 2}, {1, 1}, {1, 1}, {1, 1}},
    {2, 1, 6, 4, 2, {5, 5}, {1, 1}, {1, 1}, {0, 0}, {0, 0}, {1, 1}},
    /* one and three dimensions */
    {1, 2, 4, 6, 1, {50}, {5}, {1}, {2}, {2}, {1}},
    {1, 2, 3, 40, 1, {61}, {4}, {3}, {1}, {2}, {2}},
    {3, 2, 3, 5, 1, {5, 6, 7}, {3, 2, 3}, {1, 1, 1}, {1, 0, 1}, {1, 1, 1}, {1, 1, 1}},
    {3, 1, 2, 4, 2, {7, 6, 8}, {2, 3, 3}, {2, 1, 2}, {0, 1, 1}, {1, 1, 0}, {1, 2, 1}},
    /* several images packed together; panels shared by blocks of rows; both, with weights too large to be read for each image */
    {2, 7, 8, 20, 1, {5, 6}, {3, 3}, {1, 1}, {1, 1}, {1, 1}, {1, 1}},
    {2, 1, 40, 260, 1, {7, 7}, {3, 3}, {1, 1}, {1, 1}, {1, 1}, {1, 1}},
    {2, 3, 60, 264, 1, {5, 4}, {3, 3}, {1, 1}, {1, 1}, {1, 1}, {1, 1}},
    {2, 3, 30, 270, 2, {9, 9}, {3, 3}, {2, 2}, {1, 1}, {1, 1}, {1, 1}},
    /* nothing there */
    {2, 0, 3, 4, 1, {5, 5}, {3, 3}, {1, 1}, {1, 1}, {1, 1}, {1, 1}},
    {2, 2, 0, 4, 1, {5, 5}, {3, 3}, {1, 1}, {1, 1}, {1, 1}, {1, 1}},
    {2, 2, 3, 0, 1, {5, 5}, {3, 3}, {1, 1}, {1, 1}, {1, 1}, {1, 1}},
    {2, 2, 3, 4, 1, {2, 5}, {3, 3}, {1, 1}, {0, 0}, {0, 0}, {1, 1}},
    /* large images: several bands */
    {2, 1, 24, 3, 1, {50, 90}, {3, 3}, {1, 1}, {1, 1}, {1, 1}, {1, 1}},
    {2, 1, 12, 3, 1, {95, 111}, {3, 3}, {2, 2}, {1, 1}, {1, 1}, {1, 1}},
    {3, 1, 8, 3, 1, {12, 30, 30}, {2, 3, 3}, {1, 1, 1}, {1, 1, 1}, {1, 1, 1}, {1, 1, 1}},
};

typedef struct arrays {
  test_array x, w, y; /* of one element type */
} arrays;

static tern_attrs attributes(const problem *p) {
  tern_attrs attrs = {0};
  attrs.window.spatial = p->spatial;
  attrs.window.groups = p->groups;
  for (int i = 0; i < p->spatial; i++) {
    attrs.window.stride[i] = p->stride[i];
    attrs.window.pad_low[i] = p->low[i];
    attrs.window.pad_high[i] = p->high[i];
    attrs.window.dilation[i] = p->dilation[i];
  }
  return attrs;
}

/* 0: row-major; 1: channels last; 2: reversed and spread. */
static arrays make(const problem *p, tern_dtype dtype, int layout) {
  int64_t x[5] = {p->images, p->channels}, w[5] = {p->rows, p->channels / p->groups}, y[5] = {p->images, p->rows};
  for (int i = 0; i < p->spatial; i++) {
    x[2 + i] = p->in[i];
    w[2 + i] = p->kernel[i];
    y[2 + i] = (p->in[i] + p->low[i] + p->high[i] - (p->kernel[i] - 1) * p->dilation[i] - 1) / p->stride[i] + 1;
    if (p->in[i] + p->low[i] + p->high[i] < (p->kernel[i] - 1) * p->dilation[i] + 1) y[2 + i] = 0;
  }
  static const int last[4][5] = {{0}, {0, 2, 1}, {0, 2, 3, 1}, {0, 2, 3, 4, 1}};
  const int *order = layout == 1 ? last[p->spatial] : NULL;
  int64_t step = layout == 2 ? -2 : 1;
  int rank = p->spatial + 2;
  arrays a = {array_new(dtype, rank, x, order, step), array_new(dtype, rank, w, order, step), array_new(dtype, rank, y, order, step)};
  array_fill_exact(&a.x, &seed);
  array_fill_exact(&a.w, &seed);
  array_fill_exact(&a.y, &seed);
  return a;
}
static void release(arrays *a) {
  array_free(&a->x);
  array_free(&a->w);
  array_free(&a->y);
}

/* By the definition: for every product x * w of y, adds to y, gx or gw, in double. */
static void reference(const problem *p, const arrays *a, int which, double *out) {
  tern_cpu_view index_space = {.rank = 3 + 2 * p->spatial, .dims = {p->images, p->rows, p->channels / p->groups}};
  for (int i = 0; i < p->spatial; i++) {
    index_space.dims[3 + i] = a->y.view.dims[2 + i];
    index_space.dims[3 + p->spatial + i] = p->kernel[i];
  }
  if (test_count(&index_space) == 0) return;
  int64_t at[TERN_MAX_RANK] = {0};
  do {
    int64_t x[5] = {at[0], at[1] / (p->rows / p->groups) * (p->channels / p->groups) + at[2]}, w[5] = {at[1], at[2]}, y[5] = {at[0], at[1]};
    bool inside = true;
    for (int i = 0; i < p->spatial; i++) {
      y[2 + i] = at[3 + i];
      w[2 + i] = at[3 + p->spatial + i];
      x[2 + i] = y[2 + i] * p->stride[i] + w[2 + i] * p->dilation[i] - p->low[i];
      inside &= x[2 + i] >= 0 && x[2 + i] < p->in[i];
    }
    if (!inside) continue;
    const tern_cpu_view *views[3] = {&a->y.view, &a->x.view, &a->w.view};
    const int64_t *indices[3] = {y, x, w};
    int64_t flat = 0;
    for (int i = 0; i < p->spatial + 2; i++) flat = flat * views[which]->dims[i] + indices[which][i];
    double product = 1;
    for (int v = 0; v < 3; v++)
      if (v != which) product *= test_load(views[v]->dtype, test_at(views[v], indices[v]));
    out[flat] += product;
  } while (test_next(&index_space, at));
}

static const tern_op_kind kinds[3] = {TERN_OP_CONV, TERN_OP_CONV_INPUT_GRAD, TERN_OP_CONV_WEIGHT_GRAD};
static const char *const names[3] = {"forward", "input gradient", "weight gradient"};

static void run(const tern_kernel_table *table, int which, tern_attrs *attrs, const arrays *a, const tern_cpu_view *out) {
  tern_op op = {.kind = (uint16_t)kinds[which], .n_operands = 2, .n_results = 1, .attrs = attrs};
  const tern_cpu_view in[3][2] = {{a->x.view, a->w.view}, {a->y.view, a->w.view}, {a->x.view, a->y.view}};
  test_run(&table->rows[kinds[which]], &op, in[which], out);
}

static void check(size_t number, tern_dtype dtype, int layout) {
  const problem *p = &problems[number];
  arrays a = make(p, dtype, layout);
  tern_attrs attrs = attributes(p);
  const tern_kernel_table *tables[4];
  int n_tables = test_tables(tables);
  for (int which = 0; which < 3; which++) {
    const tern_cpu_view *like = which == 0 ? &a.y.view : which == 1 ? &a.x.view : &a.w.view;
    int64_t count = test_count(like);
    double *expected = calloc((size_t)count + 1, sizeof(double));
    reference(p, &a, which, expected);
    test_array got = array_new(dtype, like->rank, like->dims, NULL, 1);
    for (int t = 0; t < n_tables; t++)
      for (int threads = 1; threads <= 3; threads += 2) {
        tern_pool_set_threads(threads);
        memset(got.memory, 0x55, got.bytes);
        run(tables[t], which, &attrs, &a, &got.view);
        size_t size = tern_dtype_size(dtype);
        for (int64_t i = 0; i < count; i++) {
          char rounded[8];
          test_store(dtype, rounded, expected[i]);
          double e = test_load(dtype, rounded), g = test_load(dtype, got.memory + (size_t)i * size);
          if (e != g) print_error("problem %zu, %s, %s %s, layout %d, %d threads: element %ld is %g, not %g\n", number, names[which], tables[t]->isa, tern_dtype_name(dtype), layout, threads, (long)i, g, e);
          assert_true(e == g);
        }
      }
    array_free(&got);
    free(expected);
  }
  release(&a);
}

static void f32_in_every_layout(void **state) {
  (void)state;
  for (size_t i = 0; i < TERN_COUNT(problems); i++)
    for (int layout = 0; layout < 3; layout++) check(i, TERN_F32, layout);
}
static void other_types(void **state) {
  (void)state;
  for (size_t i = 0; i < TERN_COUNT(problems); i++) {
    check(i, TERN_F64, (int)(i % 3));
    check(i, TERN_BF16, (int)((i + 1) % 3));
    check(i, TERN_F16, 0);
  }
}

/* With values whose sums round. */
static void bits_depend_on_the_shape_only(void **state) {
  (void)state;
  const tern_kernel_table *tables[4];
  int n_tables = test_tables(tables);
  for (size_t i = 0; i < TERN_COUNT(problems); i++)
    for (int t = 0; t < n_tables; t++) {
      tern_attrs attrs = attributes(&problems[i]);
      arrays plain = make(&problems[i], TERN_F32, 0), last = make(&problems[i], TERN_F32, 1);
      array_fill_random(&plain.x, &seed);
      array_fill_random(&plain.w, &seed);
      array_fill_random(&plain.y, &seed);
      array_copy(&last.x, &plain.x);
      array_copy(&last.w, &plain.w);
      array_copy(&last.y, &plain.y);
      for (int which = 0; which < 3; which++) {
        const tern_cpu_view *like = which == 0 ? &plain.y.view : which == 1 ? &plain.x.view : &plain.w.view;
        test_array one = array_new(TERN_F32, like->rank, like->dims, NULL, 1), two = array_new(TERN_F32, like->rank, like->dims, NULL, 1);
        tern_pool_set_threads(1);
        run(tables[t], which, &attrs, &plain, &one.view);
        tern_pool_set_threads(2);
        run(tables[t], which, &attrs, &plain, &two.view);
        assert_memory_equal(one.memory, two.memory, one.bytes);
        run(tables[t], which, &attrs, &last, &two.view);
        assert_memory_equal(one.memory, two.memory, one.bytes);
        array_free(&one);
        array_free(&two);
      }
      release(&plain);
      release(&last);
    }
}

static void integers_are_refused_in_words(void **state) {
  (void)state;
  if (!tern_kernels_baseline) skip(); /* left out of this build (TERN_BUILD_ISAS) */
  const tern_kernel *kernel = &tern_kernels_baseline()->rows[TERN_OP_CONV];
  arrays a = make(&problems[0], TERN_I32, 0);
  tern_attrs attrs = attributes(&problems[0]);
  tern_op op = {.kind = TERN_OP_CONV, .n_operands = 2, .n_results = 1, .attrs = &attrs};
  tern_kernel_context context = {0};
  tern_status status = kernel->run(&op, (tern_cpu_view[]){a.x.view, a.w.view}, &a.y.view, &context);
  assert_int_equal(tern_error_code(status), TERN_UNSUPPORTED);
  assert_non_null(strstr(tern_error_message(status), "i32"));
  tern_error_free(status);
  release(&a);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(f32_in_every_layout), cmocka_unit_test(other_types), cmocka_unit_test(bits_depend_on_the_shape_only), cmocka_unit_test(integers_are_refused_in_words),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
