/* Pooling on every instruction set, against plain loops: windows, padding, dilation, ties, NaN, layouts, element types. */
#include <math.h>
#include "cpu_kernels.h"

static uint64_t seed = 3;

typedef struct problem {
  int spatial;
  int64_t images, channels, in[3], size[3], stride[3], low[3], high[3], dilation[3];
  bool ceil;
} problem;

static const problem problems[] = {
    {2, 3, 5, {8, 8}, {2, 2}, {2, 2}, {0, 0}, {0, 0}, {1, 1}, false},
    {2, 1, 2, {14, 66}, {2, 2}, {2, 2}, {0, 0}, {0, 0}, {1, 1}, false},
    {2, 2, 3, {9, 7}, {2, 2}, {2, 2}, {0, 0}, {0, 0}, {1, 1}, false},
    {2, 2, 3, {9, 7}, {2, 2}, {2, 2}, {0, 0}, {0, 0}, {1, 1}, true},
    {2, 2, 3, {11, 12}, {3, 3}, {2, 2}, {1, 1}, {1, 1}, {1, 1}, false},
    {2, 2, 3, {11, 12}, {3, 3}, {2, 2}, {1, 1}, {1, 1}, {1, 1}, true},
    {2, 1, 2, {13, 17}, {3, 2}, {1, 3}, {1, 0}, {1, 1}, {2, 3}, false},
    {2, 1, 2, {5, 6}, {5, 6}, {1, 1}, {0, 0}, {0, 0}, {1, 1}, false},
    {1, 2, 3, {600}, {4}, {1}, {2}, {2}, {1}, false},
    {1, 2, 3, {50}, {3}, {3}, {1}, {1}, {1}, false},
    {3, 2, 2, {5, 6, 7}, {2, 3, 2}, {2, 1, 2}, {1, 1, 0}, {1, 1, 0}, {1, 1, 1}, false},
    {3, 1, 2, {4, 4, 4}, {2, 2, 2}, {2, 2, 2}, {0, 0, 0}, {0, 0, 0}, {1, 1, 1}, false},
    {2, 0, 2, {4, 4}, {2, 2}, {2, 2}, {0, 0}, {0, 0}, {1, 1}, false},
    {2, 2, 0, {4, 4}, {2, 2}, {2, 2}, {0, 0}, {0, 0}, {1, 1}, false},
};

static tern_attrs attributes(const problem *p, bool count_padding, int64_t divisor) {
  tern_attrs attrs = {0};
  attrs.window.spatial = p->spatial;
  attrs.window.groups = 1;
  attrs.window.count_padding = count_padding;
  attrs.window.divisor = divisor;
  for (int i = 0; i < p->spatial; i++) {
    attrs.window.size[i] = p->size[i];
    attrs.window.stride[i] = p->stride[i];
    attrs.window.pad_low[i] = p->low[i];
    attrs.window.pad_high[i] = p->high[i];
    attrs.window.dilation[i] = p->dilation[i];
  }
  return attrs;
}

static void out_dims(const problem *p, int64_t *dims) {
  dims[0] = p->images;
  dims[1] = p->channels;
  for (int i = 0; i < p->spatial; i++) {
    int64_t room = p->in[i] + p->low[i] + p->high[i] - p->dilation[i] * (p->size[i] - 1) - 1;
    dims[2 + i] = (room + (p->ceil ? p->stride[i] - 1 : 0)) / p->stride[i] + 1;
    if ((dims[2 + i] - 1) * p->stride[i] >= p->in[i] + p->low[i]) dims[2 + i]--; /* no window begins in the padding behind */
  }
}

static test_array input(const problem *p, tern_dtype dtype, int rank, const int64_t *dims, int layout) {
  static const int last[4][5] = {{0}, {0, 2, 1}, {0, 2, 3, 1}, {0, 2, 3, 4, 1}};
  return array_new(dtype, rank, dims, layout == 1 ? last[p->spatial] : NULL, layout == 2 ? -2 : 1);
}

typedef struct expectation {
  double *value, *average, *max_grad, *avg_grad;
  int64_t *index;
} expectation;

/* Walks every window in PyTorch's order. `gy` may be NULL. */
static void reference(const problem *p, const tern_cpu_view *x, const tern_cpu_view *y, const tern_cpu_view *gy, bool count_padding, int64_t divisor, expectation *e) {
  if (test_count(y) == 0) return;
  int64_t at[TERN_MAX_RANK] = {0}, n = 0, plane = 1;
  for (int i = 0; i < p->spatial; i++) plane *= p->in[i];
  do {
    tern_cpu_view window = {.rank = p->spatial};
    for (int i = 0; i < p->spatial; i++) window.dims[i] = p->size[i];
    double best = -INFINITY, sum = 0, counted = 1, g = gy ? test_load(gy->dtype, test_at(gy, at)) : 0;
    int64_t where = -1, base = (at[0] * p->channels + at[1]) * plane;
    for (int i = 0; i < p->spatial; i++) {
      int64_t start = at[2 + i] * p->stride[i] - p->low[i], end = start + p->size[i], most = p->in[i] + (count_padding ? p->high[i] : 0);
      if (end > most) end = most;
      if (start < 0 && !count_padding) start = 0;
      counted *= (double)(end - start);
    }
    if (divisor) counted = (double)divisor;
    for (int pass = 0; pass < 2; pass++) { /* the average's gradient needs what the first pass counts */
      int64_t k[TERN_MAX_RANK] = {0};
      do {
        int64_t from[5] = {at[0], at[1]}, flat = 0;
        bool inside = true;
        for (int i = 0; i < p->spatial; i++) {
          from[2 + i] = at[2 + i] * p->stride[i] + k[i] * p->dilation[i] - p->low[i];
          inside &= from[2 + i] >= 0 && from[2 + i] < p->in[i];
          flat = flat * p->in[i] + from[2 + i];
        }
        if (!inside) continue;
        if (pass) {
          e->avg_grad[base + flat] += g / counted;
          continue;
        }
        double value = test_load(x->dtype, test_at(x, from));
        if (where < 0) where = flat;
        if (value > best || isnan(value)) best = value, where = flat;
        sum += value;
      } while (test_next(&window, k));
    }
    e->value[n] = best;
    e->index[n] = where;
    e->average[n] = sum / counted;
    if (where >= 0) e->max_grad[base + where] += g;
    n++;
  } while (test_next(y, at));
}

static bool close_enough(tern_dtype dtype, double expected, double got) {
  if (isnan(expected) || isinf(expected)) return isnan(expected) ? isnan(got) : expected == got;
  double unit = dtype == TERN_F64 ? 1e-14 : dtype == TERN_F32 ? 1e-6 : dtype == TERN_F16 ? 1e-3 : 8e-3;
  return fabs(expected - got) <= unit * (1 + fabs(expected));
}

static void check(size_t number, tern_dtype dtype, int layout, bool with_nan) {
  const problem *p = &problems[number];
  int rank = p->spatial + 2;
  int64_t x_dims[5] = {p->images, p->channels}, y_dims[5];
  for (int i = 0; i < p->spatial; i++) x_dims[2 + i] = p->in[i];
  out_dims(p, y_dims);
  test_array x = input(p, dtype, rank, x_dims, layout), gy = input(p, dtype, rank, y_dims, layout);
  test_array y = array_new(dtype, rank, y_dims, NULL, 1), index = array_new(TERN_I64, rank, y_dims, NULL, 1), gx = array_new(dtype, rank, x_dims, NULL, 1);
  array_fill_exact(&x, &seed); /* seven values: ties everywhere */
  array_fill_exact(&gy, &seed);
  if (with_nan && test_count(&x.view)) {
    int64_t at[TERN_MAX_RANK] = {0}, n = 0;
    do if (n++ % 11 == 5) test_store(dtype, test_at(&x.view, at), n % 2 ? NAN : -INFINITY);
    while (test_next(&x.view, at));
  }
  int64_t n_out = test_count(&y.view), n_in = test_count(&x.view);
  const tern_kernel_table *tables[4];
  int n_tables = test_tables(tables);
  for (int mode = 0; mode < 3; mode++) {
    bool count_padding = mode == 1;
    int64_t divisor = mode == 2 ? 5 : 0;
    expectation e = {calloc((size_t)n_out + 1, 8), calloc((size_t)n_out + 1, 8), calloc((size_t)n_in + 1, 8), calloc((size_t)n_in + 1, 8), calloc((size_t)n_out + 1, 8)};
    reference(p, &x.view, &y.view, &gy.view, count_padding, divisor, &e);
    tern_attrs attrs = attributes(p, count_padding, divisor);
    bool dilated = false; /* averages have no dilation */
    for (int i = 0; i < p->spatial; i++) dilated |= p->dilation[i] != 1;
    for (int t = 0; t < n_tables; t++)
      for (int threads = 1; threads <= 2; threads++) {
        tern_pool_set_threads(threads);
        tern_op op = {.kind = TERN_OP_MAX_POOL, .attrs = &attrs};
        if (mode == 0) {
          test_run(&tables[t]->rows[TERN_OP_MAX_POOL], &op, &x.view, (tern_cpu_view[]){y.view, index.view});
          for (int64_t i = 0; i < n_out; i++) {
            double got = test_load(dtype, y.memory + (size_t)i * tern_dtype_size(dtype));
            assert_true(isnan(e.value[i]) ? isnan(got) : e.value[i] == got);
            assert_int_equal(e.index[i], ((const int64_t *)(const void *)index.memory)[i]);
          }
          test_run(&tables[t]->rows[TERN_OP_MAX_POOL_GRAD], &op, (tern_cpu_view[]){gy.view, index.view}, &gx.view);
          for (int64_t i = 0; i < n_in; i++) assert_true(close_enough(dtype, e.max_grad[i], test_load(dtype, gx.memory + (size_t)i * tern_dtype_size(dtype))));
        }
        if (dilated) continue;
        test_run(&tables[t]->rows[TERN_OP_AVG_POOL], &op, &x.view, &y.view);
        for (int64_t i = 0; i < n_out; i++) assert_true(close_enough(dtype, e.average[i], test_load(dtype, y.memory + (size_t)i * tern_dtype_size(dtype))));
        test_run(&tables[t]->rows[TERN_OP_AVG_POOL_GRAD], &op, &gy.view, &gx.view);
        for (int64_t i = 0; i < n_in; i++) assert_true(close_enough(dtype, e.avg_grad[i], test_load(dtype, gx.memory + (size_t)i * tern_dtype_size(dtype))));
      }
    free(e.value), free(e.average), free(e.max_grad), free(e.avg_grad), free(e.index);
  }
  array_free(&x), array_free(&gy), array_free(&y), array_free(&index), array_free(&gx);
}

static void every_window_layout_and_type(void **state) {
  (void)state;
  static const tern_dtype dtypes[] = {TERN_F32, TERN_F64, TERN_BF16, TERN_F16};
  for (size_t i = 0; i < TERN_COUNT(problems); i++)
    for (size_t d = 0; d < TERN_COUNT(dtypes); d++)
      for (int layout = 0; layout < 3; layout++) check(i, dtypes[d], layout, false);
}
static void nan_and_infinity(void **state) {
  (void)state;
  for (size_t i = 0; i < TERN_COUNT(problems); i++) {
    check(i, TERN_F32, 0, true);
    check(i, TERN_F64, 1, true);
    check(i, TERN_BF16, 2, true);
  }
}

/* A dilated window may lie in the padding as a whole: minus infinity, and no gradient from it. */
static void windows_of_nothing(void **state) {
  (void)state;
  if (!tern_kernels_baseline) skip(); /* left out of this build (TERN_BUILD_ISAS) */
  const tern_kernel *kernel = &tern_kernels_baseline()->rows[TERN_OP_MAX_POOL], *grad = &tern_kernels_baseline()->rows[TERN_OP_MAX_POOL_GRAD];
  tern_attrs attrs = {0};
  attrs.window = (tern_window){.spatial = 1, .stride = {1}, .pad_low = {3}, .pad_high = {3}, .dilation = {5}, .size = {2}, .groups = 1};
  tern_op op = {.kind = TERN_OP_MAX_POOL, .attrs = &attrs};
  test_array x = array_new(TERN_F32, 3, (int64_t[]){1, 1, 2}, NULL, 1), y = array_new(TERN_F32, 3, (int64_t[]){1, 1, 3}, NULL, 1);
  test_array index = array_new(TERN_I64, 3, (int64_t[]){1, 1, 3}, NULL, 1), gx = array_new(TERN_F32, 3, (int64_t[]){1, 1, 2}, NULL, 1);
  test_store(TERN_F32, x.memory, 1);
  test_store(TERN_F32, x.memory + 4, 2);
  test_run(kernel, &op, &x.view, (tern_cpu_view[]){y.view, index.view});
  assert_true(test_load(TERN_F32, y.memory) == -INFINITY && test_load(TERN_F32, y.memory + 4) == -INFINITY && test_load(TERN_F32, y.memory + 8) == -INFINITY);
  test_run(grad, &op, (tern_cpu_view[]){y.view, index.view}, &gx.view);
  assert_true(test_load(TERN_F32, gx.memory) == 0 && test_load(TERN_F32, gx.memory + 4) == 0);
  array_free(&x), array_free(&y), array_free(&index), array_free(&gx);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(every_window_layout_and_type), cmocka_unit_test(nan_and_infinity), cmocka_unit_test(windows_of_nothing)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
