/* GELU and its gradient against the formulas in f64; the same bits wherever an element stands. */
#include "kernel_check.h"

static const tern_dtype float_dtypes[] = {TERN_F32, TERN_F64, TERN_BF16, TERN_F16};

static double gelu(double x, bool tanh_form) {
  if (!tanh_form) return x * 0.5 * erfc(-x / sqrt(2));
  return 0.5 * x * (1 + tanh(sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
}
static double gelu_slope(double x, bool tanh_form) {
  if (!tanh_form) return 0.5 * erfc(-x / sqrt(2)) + x * exp(-x * x / 2) / sqrt(2 * M_PI);
  double t = tanh(sqrt(2 / M_PI) * (x + 0.044715 * x * x * x));
  return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * sqrt(2 / M_PI) * (1 + 3 * 0.044715 * x * x);
}

static void test_gelu(void **state) {
  (void)state;
  const int64_t sizes[] = {0, 1, 7, 33, 1024, 1031, 40003};
  for (size_t t = 0; t < TERN_COUNT(float_dtypes); t++)
    for (size_t s = 0; s < TERN_COUNT(sizes); s++)
      for (int form = 0; form < 2; form++) {
        const tern_dtype dtype = float_dtypes[t];
        tern_cpu_view x = array_new(dtype, DIMS(sizes[s])), gy = array_copy(&x), out = array_copy(&x);
        array_fill_random(&x, -8, 8);
        array_fill_random(&gy, -1, 1);
        double *y = expected_new(&x), *gx = expected_new(&x);
        for (int64_t i = 0; i < sizes[s]; i++) {
          y[i] = gelu(array_get(&x, i), form);
          gx[i] = array_get(&gy, i) * gelu_slope(array_get(&x, i), form);
        }
        const double tiny = dtype == TERN_F64 ? 1e-14 : 1e-6;
        FOR_EACH_ISA(table) {
          const tern_attrs attrs = {.ints = {form}};
          kernel_run(table, TERN_OP_GELU, &attrs, 1, &x, 1, &out);
          expect_close("gelu", &out, y, tiny, tiny);
          kernel_run(table, TERN_OP_GELU_GRAD, &attrs, 2, (tern_cpu_view[]){gy, x}, 1, &out);
          expect_close("gelu_grad", &out, gx, tiny, tiny * 8);
        }
        arrays_free();
      }
}

static void test_position_does_not_matter(void **state) {
  (void)state;
  enum { N = 1100 };
  tern_cpu_view x = array_new(TERN_F32, DIMS(N)), whole = array_copy(&x), part = array_copy(&x);
  array_fill_random(&x, -5, 5);
  FOR_EACH_ISA(table)
    for (int form = 0; form < 2; form++) {
      kernel_run(table, TERN_OP_GELU, &(tern_attrs){.ints = {form}}, 1, &x, 1, &whole);
      for (int64_t skip = 0; skip < N; skip += 13) {
        tern_cpu_view rest = x, out = part;
        rest.data += skip * 4;
        rest.dims[0] = out.dims[0] = N - skip;
        kernel_run(table, TERN_OP_GELU, &(tern_attrs){.ints = {form}}, 1, &rest, 1, &out);
        assert_memory_equal(out.data, whole.data + skip * 4, (size_t)(N - skip) * 4);
      }
    }
}

static void test_ends(void **state) {
  (void)state;
  const double inputs[] = {0, -0.0, (double)INFINITY, (double)NAN, 1e30, -1e10};
  tern_cpu_view x = array_new(TERN_F32, DIMS(6)), out = array_copy(&x);
  for (int i = 0; i < 6; i++) array_set(&x, i, inputs[i]);
  FOR_EACH_ISA(table)
    for (int form = 0; form < 2; form++) {
      kernel_run(table, TERN_OP_GELU, &(tern_attrs){.ints = {form}}, 1, &x, 1, &out);
      expect_close("gelu", &out, (double[]){0, 0, (double)INFINITY, (double)NAN, 1e30, 0}, 1e-6, 0);
    }
}

int main(void) {
  const struct CMUnitTest tests[] = {
    cmocka_unit_test_teardown(test_gelu, teardown_arrays),
    cmocka_unit_test_teardown(test_position_does_not_matter, teardown_arrays),
    cmocka_unit_test_teardown(test_ends, teardown_arrays),
  };
  return cmocka_run_group_tests_name("cpu/activation", tests, NULL, NULL);
}
