/* Layer norm and batch norm against loops in f64. */
#include "kernel_check.h"

static const tern_dtype float_dtypes[] = {TERN_F32, TERN_F64, TERN_BF16, TERN_F16};
static tern_dtype wide_of(tern_dtype dtype) { return dtype == TERN_F64 ? TERN_F64 : TERN_F32; }
static double *values_of(const tern_cpu_view *v) {
  double *values = expected_new(v);
  for (int64_t i = 0; i < array_count(v); i++) values[i] = array_get(v, i);
  return values;
}
static tern_cpu_view random_array(tern_dtype dtype, int rank, const int64_t *dims, double low, double high) {
  tern_cpu_view v = array_new(dtype, rank, dims);
  array_fill_random(&v, low, high);
  return v;
}
/* Overwrites `expected` (rounded) into an array, so that the gradient starts from the same statistics as the kernel. */
static double *rounded_to(const tern_cpu_view *v, const double *expected) {
  for (int64_t i = 0; i < array_count(v); i++) array_set(v, i, expected[i]);
  return values_of(v);
}

static const tern_cpu_view absent = {.data = NULL};

static void layer_case(tern_dtype dtype, tern_dtype weight_dtype, int64_t rows, int64_t n, bool has_weight, bool has_bias) {
  tern_cpu_view x = random_array(dtype, DIMS(rows, n), -1, 3), gy = random_array(dtype, DIMS(rows, n), -1, 1), y = array_new(dtype, DIMS(rows, n));
  tern_cpu_view weight = has_weight ? random_array(weight_dtype, DIMS(n), 0.5, 2) : absent, bias = has_bias ? random_array(weight_dtype, DIMS(n), -1, 1) : absent;
  tern_cpu_view mean = array_new(wide_of(dtype), DIMS(rows, 1)), rstd = array_new(wide_of(dtype), DIMS(rows, 1)), eps = array_scalar(TERN_F64, 1e-5);
  tern_cpu_view gw = array_new(weight_dtype, DIMS(n)), gb = array_new(weight_dtype, DIMS(n));
  double *xs = values_of(&x), *gys = values_of(&gy), *ws = has_weight ? values_of(&weight) : NULL, *bs = has_bias ? values_of(&bias) : NULL;
  double *ys = expected_new(&y), *means = expected_new(&mean), *rstds = expected_new(&rstd), *gxs = expected_new(&x), *gws = expected_new(&gw), *gbs = expected_new(&gb);
  for (int64_t r = 0; r < rows; r++) {
    double sum = 0, squares = 0;
    for (int64_t i = 0; i < n; i++) sum += xs[r * n + i];
    means[r] = sum / (double)n;
    for (int64_t i = 0; i < n; i++) squares += pow(xs[r * n + i] - means[r], 2);
    rstds[r] = 1 / sqrt(squares / (double)n + 1e-5);
    for (int64_t i = 0; i < n; i++) ys[r * n + i] = (xs[r * n + i] - means[r]) * rstds[r] * (ws ? ws[i] : 1) + (bs ? bs[i] : 0);
  }
  const double tiny = dtype == TERN_F64 ? 1e-13 : 2e-6;
  FOR_EACH_ISA(table) {
    kernel_run(table, TERN_OP_LAYER_NORM, &(tern_attrs){.ints = {1}}, 4, (tern_cpu_view[]){x, weight, bias, eps}, 3, (tern_cpu_view[]){y, mean, rstd});
    expect_close("layer_norm", &y, ys, tiny, tiny * 3);
    expect_close("mean", &mean, means, tiny, tiny);
    expect_close("rstd", &rstd, rstds, tiny, 0);
  }
  means = rounded_to(&mean, means);
  rstds = rounded_to(&rstd, rstds);
  memset(gws, 0, (size_t)n * sizeof(double));
  memset(gbs, 0, (size_t)n * sizeof(double));
  for (int64_t r = 0; r < rows; r++) {
    double sum = 0, sum_h = 0;
    for (int64_t i = 0; i < n; i++) {
      double g = gys[r * n + i], h = (xs[r * n + i] - means[r]) * rstds[r], a = g * (ws ? ws[i] : 1);
      sum += a;
      sum_h += a * h;
      gws[i] += g * h;
      gbs[i] += g;
    }
    for (int64_t i = 0; i < n; i++)
      gxs[r * n + i] = rstds[r] * (gys[r * n + i] * (ws ? ws[i] : 1) - sum / (double)n - (xs[r * n + i] - means[r]) * rstds[r] * sum_h / (double)n);
  }
  FOR_EACH_ISA(table) {
    tern_cpu_view gx = array_new(dtype, DIMS(rows, n));
    kernel_run(table, TERN_OP_LAYER_NORM_GRAD, &(tern_attrs){.ints = {1}}, 5, (tern_cpu_view[]){gy, x, mean, rstd, weight}, 3, (tern_cpu_view[]){gx, gw, gb});
    expect_close("gx", &gx, gxs, tiny, tiny * 8);
    expect_close("gweight", &gw, gws, tiny, tiny * sqrt((double)rows + 1));
    expect_close("gbias", &gb, gbs, tiny, tiny * sqrt((double)rows + 1));
  }
  arrays_free();
}

static void test_layer_norm(void **state) {
  (void)state;
  for (size_t t = 0; t < TERN_COUNT(float_dtypes); t++) {
    const tern_dtype dtype = float_dtypes[t];
    layer_case(dtype, dtype, 5, 7, true, true);
    layer_case(dtype, wide_of(dtype), 37, 64, true, true);
    layer_case(dtype, dtype, 300, 129, true, false);
    layer_case(dtype, dtype, 3, 33, false, false);
    layer_case(dtype, dtype, 0, 5, true, true);
  }
  layer_case(TERN_F32, TERN_F32, 1100, 768, true, true);
  layer_case(TERN_F32, TERN_F32, 2, 5000, true, true);
  layer_case(TERN_F32, TERN_F32, 9, 1, true, true);
}

/* Several normalised dimensions, and a row far from zero: E[x^2] - E[x]^2 would have no digit right. */
static void test_layer_norm_far_from_zero(void **state) {
  (void)state;
  tern_cpu_view x = array_new(TERN_F32, DIMS(2, 3, 100)), y = array_new(TERN_F32, DIMS(2, 3, 100)), mean = array_new(TERN_F32, DIMS(2, 1, 1)), rstd = array_new(TERN_F32, DIMS(2, 1, 1));
  tern_cpu_view eps = array_scalar(TERN_F32, 0);
  for (int64_t i = 0; i < 600; i++) array_set(&x, i, 100000 + (double)(i % 2));
  double *expected = expected_new(&y);
  for (int64_t i = 0; i < 600; i++) expected[i] = i % 2 ? 1 : -1;
  FOR_EACH_ISA(table) {
    kernel_run(table, TERN_OP_LAYER_NORM, &(tern_attrs){.ints = {2}}, 4, (tern_cpu_view[]){x, absent, absent, eps}, 3, (tern_cpu_view[]){y, mean, rstd});
    expect_close("layer_norm", &y, expected, 0.02, 0);
  }
}

static void batch_case(tern_dtype dtype, tern_dtype weight_dtype, int rank, const int64_t *dims, bool has_weight, bool has_bias, double center) {
  const int64_t samples = dims[0], channels = dims[1], plane = rank == 2 ? 1 : array_count(&(tern_cpu_view){.rank = rank - 2, .dims = {dims[2], rank > 3 ? dims[3] : 1}});
  tern_cpu_view x = random_array(dtype, rank, dims, center - 1, center + 2), gy = random_array(dtype, rank, dims, -1, 1), y = array_new(dtype, rank, dims);
  tern_cpu_view weight = has_weight ? random_array(weight_dtype, DIMS(channels), 0.5, 2) : absent, bias = has_bias ? random_array(weight_dtype, DIMS(channels), -1, 1) : absent;
  tern_cpu_view mean = array_new(wide_of(dtype), DIMS(channels)), invstd = array_copy(&mean), variance = array_copy(&mean), eps = array_scalar(TERN_F32, 1e-5);
  tern_cpu_view gw = array_new(weight_dtype, DIMS(channels)), gb = array_new(weight_dtype, DIMS(channels));
  double *xs = values_of(&x), *gys = values_of(&gy), *ws = has_weight ? values_of(&weight) : NULL, *bs = has_bias ? values_of(&bias) : NULL;
  double *ys = expected_new(&y), *means = expected_new(&mean), *invstds = expected_new(&mean), *variances = expected_new(&mean), *gxs = expected_new(&x), *gws = expected_new(&gw), *gbs = expected_new(&gb);
  const double epsilon = (double)1e-5f, count = (double)(samples * plane);
#define EACH_OF_CHANNEL(at) for (int64_t s_ = 0; s_ < samples; s_++) for (int64_t i_ = 0, at = (s_ * channels + c) * plane; i_ < plane; i_++, at++)
  for (int64_t c = 0; c < channels; c++) {
    double sum = 0, squares = 0;
    EACH_OF_CHANNEL(at) sum += xs[at];
    means[c] = sum / count;
    EACH_OF_CHANNEL(at) squares += pow(xs[at] - means[c], 2);
    variances[c] = squares / count;
    invstds[c] = 1 / sqrt(variances[c] + epsilon);
    EACH_OF_CHANNEL(at) ys[at] = (xs[at] - means[c]) * invstds[c] * (ws ? ws[c] : 1) + (bs ? bs[c] : 0);
  }
  const double tiny = (dtype == TERN_F64 ? 1e-13 : 2e-6) * (1 + fabs(center));
  FOR_EACH_ISA(table) {
    kernel_run(table, TERN_OP_BATCH_NORM, &(tern_attrs){0}, 4, (tern_cpu_view[]){x, weight, bias, eps}, 4, (tern_cpu_view[]){y, mean, invstd, variance});
    expect_close("batch_norm", &y, ys, tiny, tiny * 3);
    expect_close("mean", &mean, means, tiny, tiny);
    expect_close("invstd", &invstd, invstds, tiny, 0);
    expect_close("variance", &variance, variances, tiny, 0);
  }
  means = rounded_to(&mean, means);
  invstds = rounded_to(&invstd, invstds);
  for (int training = 0; training < 2; training++) {
    for (int64_t c = 0; c < channels; c++) {
      double sum = 0, sum_h = 0, factor = invstds[c] * (ws ? ws[c] : 1);
      EACH_OF_CHANNEL(at) {
        sum += gys[at];
        sum_h += gys[at] * (xs[at] - means[c]) * invstds[c];
      }
      gws[c] = sum_h;
      gbs[c] = sum;
      EACH_OF_CHANNEL(at) gxs[at] = training ? factor * (gys[at] - sum / count - (xs[at] - means[c]) * invstds[c] * sum_h / count) : factor * gys[at];
    }
    FOR_EACH_ISA(table) {
      tern_cpu_view gx = array_new(dtype, rank, dims);
      kernel_run(table, TERN_OP_BATCH_NORM_GRAD, &(tern_attrs){.ints = {training}}, 5, (tern_cpu_view[]){gy, x, weight, mean, invstd}, 3, (tern_cpu_view[]){gx, gw, gb});
      expect_close("gx", &gx, gxs, tiny, tiny * 8);
      expect_close("gweight", &gw, gws, tiny, tiny * sqrt(count + 1));
      expect_close("gbias", &gb, gbs, tiny, tiny * sqrt(count + 1));
    }
  }
  arrays_free();
}

static void test_batch_norm(void **state) {
  (void)state;
  for (size_t t = 0; t < TERN_COUNT(float_dtypes); t++) {
    const tern_dtype dtype = float_dtypes[t];
    batch_case(dtype, dtype, DIMS(33, 70), true, true, 0);          /* after a linear layer */
    batch_case(dtype, wide_of(dtype), DIMS(5, 3, 7, 9), true, true, 0);
    batch_case(dtype, dtype, DIMS(300, 5, 3), true, false, 1);      /* short planes */
    batch_case(dtype, dtype, DIMS(2, 3, 41, 33), false, false, 0);
  }
  batch_case(TERN_F32, TERN_F32, DIMS(40, 7, 28, 28), true, true, 0);
  batch_case(TERN_F32, TERN_F32, DIMS(3, 2, 100, 100), true, true, 1000); /* a large mean */
  batch_case(TERN_F32, TERN_F32, DIMS(1000, 3), true, true, 1000);
  batch_case(TERN_F32, TERN_F32, DIMS(4, 0, 3), true, true, 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {
    cmocka_unit_test_teardown(test_layer_norm, teardown_arrays),
    cmocka_unit_test_teardown(test_layer_norm_far_from_zero, teardown_arrays),
    cmocka_unit_test_teardown(test_batch_norm, teardown_arrays),
  };
  return cmocka_run_group_tests_name("cpu/norm", tests, NULL, NULL);
}
