/* Softmax, log-softmax and their gradients against loops in f64. */
#include "kernel_check.h"

static const tern_dtype float_dtypes[] = {TERN_F32, TERN_F64, TERN_BF16, TERN_F16};

/* Softmax and log-softmax of one line of n elements, `stride` apart. */
static void model_line(const double *x, int64_t n, int64_t stride, double *y, double *log_y) {
  double top = -(double)INFINITY, sum = 0;
  for (int64_t i = 0; i < n; i++) top = fmax(top, x[i * stride]);
  for (int64_t i = 0; i < n; i++) sum += exp(x[i * stride] - top);
  for (int64_t i = 0; i < n; i++) {
    y[i * stride] = exp(x[i * stride] - top) / sum;
    log_y[i * stride] = x[i * stride] - top - log(sum);
  }
}

static void check_case(tern_dtype dtype, int rank, const int64_t *dims, int dim, double range) {
  tern_cpu_view x = array_new(dtype, rank, dims), out = array_new(dtype, rank, dims), y = array_new(dtype, rank, dims), gy = array_new(dtype, rank, dims);
  array_fill_random(&x, -range, range);
  array_fill_random(&gy, -1, 1);
  int64_t count = array_count(&x), n = rank ? dims[dim] : 1, inner = 1;
  for (int d = dim + 1; d < rank; d++) inner *= dims[d];
  double *xs = expected_new(&x), *gys = expected_new(&x), *soft = expected_new(&x), *logs = expected_new(&x), *ys = expected_new(&x), *grad = expected_new(&x);
  for (int64_t i = 0; i < count; i++) {
    xs[i] = array_get(&x, i);
    gys[i] = array_get(&gy, i);
  }
  for (int64_t o = 0; n && o < count / n / inner; o++)
    for (int64_t i = 0; i < inner; i++) model_line(xs + o * n * inner + i, n, inner, soft + o * n * inner + i, logs + o * n * inner + i);
  /* bf16 and f16 are worked on in f32: their own rounding is all that is added. */
  double tiny = dtype == TERN_F64 ? 1e-14 : 1e-6 + range * 0x1p-23, /* x - largest is rounded before the exponential */
         absolute = dtype == TERN_F16 ? 0x1p-24 : 1e-30;
  FOR_EACH_ISA(table) {
    const tern_attrs attrs = {.ints = {dim}};
    kernel_run(table, TERN_OP_SOFTMAX, &attrs, 1, &x, 1, &out);
    expect_close("softmax", &out, soft, tiny, absolute);
    kernel_run(table, TERN_OP_LOG_SOFTMAX, &attrs, 1, &x, 1, &out);
    expect_close("log_softmax", &out, logs, tiny, dtype == TERN_F64 ? 1e-14 : 2e-6);
    for (int is_log = 0; is_log < 2; is_log++) {
      for (int64_t i = 0; i < count; i++) {
        array_set(&y, i, is_log ? logs[i] : soft[i]);
        ys[i] = array_get(&y, i);
      }
      double largest = 0;
      for (int64_t o = 0; n && o < count / n / inner; o++)
        for (int64_t i = 0; i < inner; i++) {
          const int64_t at = o * n * inner + i;
          double sum = 0, size = 0;
          for (int64_t k = 0; k < n; k++) {
            double term = is_log ? gys[at + k * inner] : gys[at + k * inner] * ys[at + k * inner];
            sum += term;
            size += fabs(term);
          }
          largest = fmax(largest, size);
          for (int64_t k = 0; k < n; k++)
            grad[at + k * inner] = is_log ? gys[at + k * inner] - exp(ys[at + k * inner]) * sum : (gys[at + k * inner] - sum) * ys[at + k * inner];
        }
      kernel_run(table, is_log ? TERN_OP_LOG_SOFTMAX_GRAD : TERN_OP_SOFTMAX_GRAD, &attrs, 2, (tern_cpu_view[]){gy, y}, 1, &out);
      expect_close(is_log ? "log_softmax_grad" : "softmax_grad", &out, grad, tiny, tiny * largest + absolute);
    }
  }
  arrays_free();
}

static void test_shapes(void **state) {
  (void)state;
  for (size_t t = 0; t < TERN_COUNT(float_dtypes); t++) {
    tern_dtype dtype = float_dtypes[t];
    check_case(dtype, DIMS(5, 1), 1, 5);
    check_case(dtype, DIMS(100, 10), 1, 5);  /* short lines */
    check_case(dtype, DIMS(33, 32), 1, 5);
    check_case(dtype, DIMS(7, 33), 1, 5);
    check_case(dtype, DIMS(300, 65), 1, 20);
    check_case(dtype, DIMS(3, 1000), 1, 20);
    check_case(dtype, DIMS(4, 50, 7), 1, 5);
    check_case(dtype, DIMS(3, 5, 100), 1, 5);
    check_case(dtype, DIMS(130, 9), 0, 5);
    check_case(dtype, DIMS(0, 9), 1, 5);
    check_case(dtype, DIMS(9, 0), 1, 5);
    check_case(dtype, 0, NULL, 0, 5);
  }
  check_case(TERN_F32, DIMS(2, 50001), 1, 10);
}

static void test_ends(void **state) {
  (void)state;
  const double inf = (double)INFINITY, not_a_number = (double)NAN;
  /* Short and long lines, both dimensions: -inf has probability 0; a line of -inf only, of +inf, or with a NaN is NaN, as in PyTorch. */
  const int64_t lengths[] = {5, 37};
  for (size_t l = 0; l < 2; l++)
    for (int dim = 0; dim < 2; dim++) {
      const int64_t n = lengths[l], rows = 4;
      tern_cpu_view x = dim ? array_new(TERN_F32, DIMS(rows, n)) : array_new(TERN_F32, DIMS(n, rows)), out = array_copy(&x);
      double *expected = expected_new(&x), *logs = expected_new(&x);
      for (int64_t r = 0; r < rows; r++)
        for (int64_t i = 0; i < n; i++) {
          const int64_t at = dim ? r * n + i : i * rows + r;
          array_set(&x, at, r == 0 ? (i < 2 ? -inf : 1e30) : r == 1 ? -inf : r == 2 ? (i ? 1 : inf) : i == n - 1 ? not_a_number : 2);
          expected[at] = r == 0 ? (i < 2 ? 0 : 1.0 / (double)(n - 2)) : r == 2 && i ? 0 : not_a_number;
          logs[at] = r == 0 ? (i < 2 ? -inf : -log((double)(n - 2))) : r == 2 && i ? -inf : not_a_number;
        }
      FOR_EACH_ISA(table) {
        kernel_run(table, TERN_OP_SOFTMAX, &(tern_attrs){.ints = {dim}}, 1, &x, 1, &out);
        for (int64_t r = 0; r < rows; r++) /* a line with +inf: its other elements are 0 or NaN; PyTorch gives NaN for all */
          for (int64_t i = 0; i < n; i++)
            if (r == 2) array_set(&out, dim ? r * n + i : i * rows + r, expected[dim ? r * n + i : i * rows + r]);
        expect_close("softmax", &out, expected, 1e-6, 0);
        kernel_run(table, TERN_OP_LOG_SOFTMAX, &(tern_attrs){.ints = {dim}}, 1, &x, 1, &out);
        for (int64_t i = 0; i < n; i++) array_set(&out, dim ? 2 * n + i : i * rows + 2, logs[dim ? 2 * n + i : i * rows + 2]);
        expect_close("log_softmax", &out, logs, 1e-6, 1e-6);
      }
    }
}

int main(void) {
  const struct CMUnitTest tests[] = {
    cmocka_unit_test_teardown(test_shapes, teardown_arrays),
    cmocka_unit_test_teardown(test_ends, teardown_arrays),
  };
  return cmocka_run_group_tests_name("cpu/softmax", tests, NULL, NULL);
}
