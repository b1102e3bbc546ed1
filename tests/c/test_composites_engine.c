/* The embedded engine's kernels for composites against the decompositions, which define them: each composite alone, in several dtypes and shapes, with and without its
 * optional operands, on one and two threads. */
#include "cpu_program.h"

#define DIMS(...) ((int64_t[]){__VA_ARGS__})

static tern_program *new_program(void) {
  tern_program *p;
  check(tern_program_new(&p));
  return p;
}

/* Engine and evaluator give the same to `tolerance` of each result's largest element; integers and NaNs exactly. Frees the program. */
static void compare(tern_program *p, bool whole, double tolerance) {
  check(tern_program_finish(p));
  void **inputs = make_inputs(p, whole), **want = calloc((size_t)p->n_results + 1, sizeof *want);
  uint64_t scalars[2] = {0, 0};
  float scale = 0.37f;
  memcpy(scalars, &scale, sizeof scale);
  check(evaluate(p, (const void *const *)inputs, scalars, want));
  for (int threads = 1; threads <= 2; threads++) {
    tern_pool_set_threads(threads);
    void **got = run(p, inputs, scalars, false);
    for (int r = 0; r < p->n_results; r++) {
      tern_value v = p->results[r].value;
      tern_dtype dtype = tern_value_dtype(p, v);
      double largest = 1e-30;
      for (int64_t i = 0; i < tern_value_count(p, v); i++) {
        double size = fabs(evaluate_load_number(dtype, want[r], i).re);
        if (isfinite(size) && size > largest) largest = size;
      }
      for (int64_t i = 0; i < tern_value_count(p, v); i++) {
        evaluate_number x = evaluate_load_number(dtype, got[r], i), y = evaluate_load_number(dtype, want[r], i);
        if (x.i == y.i && (x.re == y.re || (isnan(x.re) && isnan(y.re)) || fabs(x.re - y.re) <= tolerance * largest)) continue;
        print_program(p);
        fail_msg("result %d (%s) at %lld is %.9g/%lld, should be %.9g/%lld (largest %g)", r, tern_dtype_name(dtype), (long long)i, x.re, (long long)x.i, y.re, (long long)y.i, largest);
      }
    }
    free_arrays(got, p->n_results);
  }
  tern_pool_set_threads(0);
  free_arrays(inputs, p->n_parameters);
  free_arrays(want, p->n_results);
  tern_program_free(p);
}

static const struct { tern_dtype dtype; double tolerance; } floats[] = {{TERN_F32, 2e-5}, {TERN_F64, 1e-11}, {TERN_BF16, 0.01}, {TERN_F16, 0.002}};

static void all_results(tern_program *p, int n, const tern_value *values) {
  for (int i = 0; i < n; i++) tern_result(p, values[i], -1);
}

static void test_softmax_and_gelu(void **state) {
  (void)state;
  for (size_t f = 0; f < TERN_COUNT(floats); f++)
    for (int dim = 0; dim < 3; dim++) {
      tern_program *p = new_program();
      tern_value x = tern_parameter(p, floats[f].dtype, 3, DIMS(3, 17, 33)), g = tern_parameter(p, floats[f].dtype, 3, DIMS(3, 17, 33));
      all_results(p, 8, (tern_value[]){tern_softmax(p, x, dim), tern_log_softmax(p, x, dim), tern_softmax_grad(p, g, x, dim), tern_log_softmax_grad(p, g, x, dim), tern_gelu(p, x, false),
                                       tern_gelu(p, x, true), tern_gelu_grad(p, g, x, false), tern_gelu_grad(p, g, x, true)});
      compare(p, false, floats[f].tolerance);
    }
}

static void test_norms(void **state) {
  (void)state;
  for (size_t f = 0; f < TERN_COUNT(floats); f++)
    for (int form = 0; form < 8; form++) { /* bits: weight, bias, two dimensions or evaluation */
      tern_program *p = new_program();
      tern_dtype dtype = floats[f].dtype;
      tern_value x = tern_parameter(p, dtype, 4, DIMS(3, 5, 6, 7)), g = tern_parameter(p, dtype, 4, DIMS(3, 5, 6, 7)), eps = tern_scalar(p, TERN_F32), out[4], back[3];
      int n = form & 4 ? 2 : 1;
      const int64_t *inner = n == 2 ? DIMS(6, 7) : DIMS(7);
      tern_value weight = form & 1 ? tern_parameter(p, dtype, n, inner) : TERN_NO_VALUE, bias = form & 2 ? tern_parameter(p, dtype, n, inner) : TERN_NO_VALUE;
      tern_layer_norm(p, x, weight, bias, eps, n, out);
      tern_layer_norm_grad(p, g, x, out[1], out[2], weight, n, back);
      all_results(p, 3, out);
      all_results(p, 3, back);
      weight = form & 1 ? tern_parameter(p, dtype, 1, DIMS(5)) : TERN_NO_VALUE, bias = form & 2 ? tern_parameter(p, dtype, 1, DIMS(5)) : TERN_NO_VALUE;
      tern_batch_norm(p, x, weight, bias, eps, out);
      tern_batch_norm_grad(p, g, x, weight, out[1], out[2], form & 4, back);
      all_results(p, 4, out);
      all_results(p, 3, back);
      compare(p, false, 2 * floats[f].tolerance);
    }
}

static void test_attention(void **state) {
  (void)state;
  for (size_t f = 0; f < TERN_COUNT(floats); f++)
    for (int form = 0; form < 12; form++) { /* causal; no mask, bool, float, one row for all; two query heads to a key head */
      tern_program *p = new_program();
      tern_dtype dtype = floats[f].dtype;
      int64_t L = 37, S = form & 1 ? 37 : 45, Hk = form % 3 == 2 ? 2 : 4;
      tern_value q = tern_parameter(p, dtype, 4, DIMS(2, 4, L, 16)), k = tern_parameter(p, dtype, 4, DIMS(2, Hk, S, 16)), v = tern_parameter(p, dtype, 4, DIMS(2, Hk, S, 24));
      tern_value g = tern_parameter(p, dtype, 4, DIMS(2, 4, L, 24)), scale = tern_scalar(p, TERN_F32), mask = TERN_NO_VALUE, out[2], back[3];
      if (form / 2 % 4 == 1) mask = tern_parameter(p, TERN_BOOL, 2, DIMS(L, S));
      if (form / 2 % 4 == 2) mask = tern_parameter(p, dtype, 4, DIMS(2, 4, L, S));
      if (form / 2 % 4 == 3) mask = tern_parameter(p, TERN_BOOL, 4, DIMS(2, 1, 1, S));
      tern_attention(p, q, k, v, mask, scale, form & 1, out);
      tern_attention_grad(p, g, q, k, v, out[0], out[1], mask, scale, form & 1, back);
      all_results(p, 2, out);
      all_results(p, 3, back);
      compare(p, false, 4 * floats[f].tolerance);
    }
}

/* Batches and units that do not fill vectors, both directions, with and without what is optional. */
static void test_lstm(void **state) {
  (void)state;
  static const int64_t shapes[][3] = {{3, 5, 7}, {1, 1, 1}, {4, 13, 33}, {2, 50, 16}, {5, 2, 40}, {3, 0, 4}, {2, 6, 64}};
  for (size_t i = 0; i < TERN_COUNT(shapes); i++)
    for (int form = 0; form < 8; form++) {
      const int64_t T = shapes[i][0], B = shapes[i][1], H = shapes[i][2];
      tern_program *p = new_program();
      tern_value gates = tern_parameter(p, TERN_F32, 3, DIMS(T, B, 4 * H)), w = tern_parameter(p, TERN_F32, 2, DIMS(4 * H, H));
      tern_value bias = form & 1 ? tern_parameter(p, TERN_F32, 1, DIMS(4 * H)) : TERN_NO_VALUE, h = tern_parameter(p, TERN_F32, 2, DIMS(B, H)), c = tern_parameter(p, TERN_F32, 2, DIMS(B, H));
      tern_value gy = form & 2 ? tern_parameter(p, TERN_F32, 3, DIMS(T, B, H)) : TERN_NO_VALUE, gh = form & 1 ? TERN_NO_VALUE : tern_parameter(p, TERN_F32, 2, DIMS(B, H));
      tern_value gc = form & 2 ? TERN_NO_VALUE : tern_parameter(p, TERN_F32, 2, DIMS(B, H)), out[3], back[3];
      tern_lstm(p, gates, w, bias, h, c, form & 4, out);
      tern_lstm_grad(p, gy, gh, gc, out[2], out[1], c, w, form & 4, back);
      all_results(p, 3, out);
      all_results(p, 3, back);
      compare(p, false, 1e-4); /* 1 - tanh^2 cancels */
    }
}

/* A convolution's three products, random windows. Whole numbers: exact in f32 and f64 whatever the order. */
static void test_convolutions(void **state) {
  (void)state;
  for (int round = 0; round < 90; round++) {
    int spatial = 1 + round % 3;
    tern_dtype dtype = floats[round / 3 % 2].dtype;
    tern_window window = {.spatial = spatial, .groups = 1 + random_below(3)};
    int64_t in = 1 + random_below(5), out = 1 + random_below(5), x_dims[5] = {1 + random_below(3), window.groups * in}, w_dims[5] = {window.groups * out, in};
    for (int i = 0; i < spatial; i++) {
      window.stride[i] = 1 + random_below(3);
      window.dilation[i] = 1 + random_below(2);
      window.pad_low[i] = random_below(4) - (round % 5 == 0);
      window.pad_high[i] = random_below(4) - (round % 5 == 0);
      x_dims[i + 2] = 3 + random_below(spatial == 3 ? 4 : 12);
      w_dims[i + 2] = 1 + random_below(3);
    }
    tern_program *p = new_program();
    tern_value x = tern_parameter(p, dtype, spatial + 2, x_dims), w = tern_parameter(p, dtype, spatial + 2, w_dims), y = tern_convolution(p, x, w, &window);
    tern_value g = tern_parameter(p, dtype, spatial + 2, tern_value_dims(p, y));
    all_results(p, 3, (tern_value[]){y, tern_conv_input_grad(p, g, w, &window, x_dims), tern_conv_weight_grad(p, x, g, &window, w_dims)});
    compare(p, true, 0);
  }
}

static void test_pools(void **state) {
  (void)state;
  for (int round = 0; round < 120; round++) {
    int spatial = 1 + round % 3;
    size_t f = (size_t)(round / 3) % TERN_COUNT(floats);
    tern_window window = {.spatial = spatial, .groups = 1, .count_padding = random_below(2), .divisor = random_below(4) ? 0 : 3};
    int64_t x_dims[5] = {1 + random_below(3), 1 + random_below(5)}, y_sizes[3];
    bool dilates = round % 2;
    for (int i = 0; i < spatial; i++) {
      window.size[i] = 1 + random_below(4);
      window.stride[i] = 1 + random_below(3);
      window.dilation[i] = dilates ? 1 + random_below(2) : 1;
      window.pad_low[i] = window.pad_high[i] = random_below((int)window.size[i] / 2 + 1);
      int64_t reach = window.dilation[i] * (window.size[i] - 1) + 1;
      x_dims[i + 2] = reach + random_below(6);
      y_sizes[i] = (x_dims[i + 2] + 2 * window.pad_low[i] - reach + (random_below(2) ? window.stride[i] - 1 : 0)) / window.stride[i] + 1;
      if ((y_sizes[i] - 1) * window.stride[i] >= x_dims[i + 2] + window.pad_low[i]) y_sizes[i]--;
    }
    tern_program *p = new_program();
    tern_value x = tern_parameter(p, floats[f].dtype, spatial + 2, x_dims), y[2];
    tern_max_pool(p, x, &window, y_sizes, y);
    tern_value g = tern_parameter(p, floats[f].dtype, spatial + 2, tern_value_dims(p, y[0]));
    all_results(p, 2, y);
    tern_result(p, tern_max_pool_grad(p, g, y[1], &window, x_dims), -1);
    if (!dilates) all_results(p, 2, (tern_value[]){tern_avg_pool(p, x, &window, y_sizes), tern_avg_pool_grad(p, g, &window, x_dims)});
    compare(p, true, floats[f].tolerance);
  }
}

static void test_philox(void **state) {
  (void)state;
  tern_program *p = new_program();
  tern_value seed = tern_constant_int(p, TERN_I64, 0, NULL, 1234567890123), offset = tern_constant_int(p, TERN_I64, 0, NULL, 0xFFFFFFF0);
  tern_result(p, tern_philox(p, seed, offset, 2, DIMS(13, 101)), -1);
  compare(p, false, 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_softmax_and_gelu), cmocka_unit_test(test_norms), cmocka_unit_test(test_attention),
      cmocka_unit_test(test_lstm), cmocka_unit_test(test_convolutions),     cmocka_unit_test(test_pools), cmocka_unit_test(test_philox),
  };
  return cmocka_run_group_tests_name("composites: engine", tests, open_device, close_device);
}
