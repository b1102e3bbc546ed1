/* Forward values of the composites against direct formulas and known functions, in every float dtype they take; and what decomposing promises: nothing is left, tags,
 * parameters and results stay. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include "../../src/rng/philox.h"
#include "evaluate.h"

#define DIMS(...) ((int64_t[]){__VA_ARGS__})

static tern_program *begin(void) {
  tern_program *p;
  assert_null(tern_program_new(&p));
  return p;
}

/* Decomposes everything, erf too, and evaluates; frees the program. */
static void run(tern_program *p, const void *const *parameters, const uint64_t *scalars, void **results) {
  tern_program *plain = NULL;
  tern_status status = tern_program_finish(p);
  if (!status) status = tern_program_decompose(p, NULL, &plain);
  if (!status) status = tern_program_finish(plain);
  if (!status) status = evaluate_plain(plain, parameters, scalars, results);
  if (status) print_error("%s\n", tern_error_message(status));
  assert_null(status);
  tern_program_free(plain);
  tern_program_free(p);
}

static void test_erf(void **state) {
  (void)state;
  enum { N = 4001 };
  double x[N], worst[2] = {0, 0}, *wide;
  float single[N], *narrow;
  for (int i = 0; i < N; i++) x[i] = (i - N / 2) * 0.004, single[i] = (float)x[i];
  int64_t n = N;
  tern_program *p = begin();
  tern_result(p, tern_erf(p, tern_parameter(p, TERN_F64, 1, &n)), -1);
  run(p, (const void *[]){x}, NULL, (void **)&wide);
  p = begin();
  tern_result(p, tern_erf(p, tern_parameter(p, TERN_F32, 1, &n)), -1);
  run(p, (const void *[]){single}, NULL, (void **)&narrow);
  for (int i = 0; i < N; i++) {
    worst[0] = fmax(worst[0], fabs(wide[i] - erf(x[i])));
    worst[1] = fmax(worst[1], fabs((double)narrow[i] - erf((double)single[i])));
    assert_true(fabsf(narrow[i]) <= 1);
  }
  print_message("erf: largest error %.2g in f64, %.2g in f32\n", worst[0], worst[1]);
  assert_true(worst[0] < 1e-15);
  assert_true(worst[1] < 1.5e-7);
  free(wide);
  free(narrow);
  double special[5] = {NAN, INFINITY, -INFINITY, 0, 1e300}, *out;
  p = begin();
  tern_result(p, tern_erf(p, tern_parameter(p, TERN_F64, 1, DIMS(5))), -1);
  run(p, (const void *[]){special}, NULL, (void **)&out);
  assert_true(isnan(out[0]) && out[1] == 1 && out[2] == -1 && out[3] == 0 && out[4] == 1);
  free(out);
}

/* Relative where the value is large, absolute near lgamma's zeros; erfc's tail keeps its digits. */
static void check_function(tern_value (*build)(tern_program *, tern_value), double (*exact)(double), double low, double high, double bound, double bound_f32) {
  enum { N = 4001 };
  double x[N], worst[2] = {0, 0}, *wide;
  float single[N], *narrow;
  for (int i = 0; i < N; i++) x[i] = low + (high - low) * (i + 0.37) / N, single[i] = (float)x[i];
  int64_t n = N;
  tern_program *p = begin();
  tern_result(p, build(p, tern_parameter(p, TERN_F64, 1, &n)), -1);
  run(p, (const void *[]){x}, NULL, (void **)&wide);
  p = begin();
  tern_result(p, build(p, tern_parameter(p, TERN_F32, 1, &n)), -1);
  run(p, (const void *[]){single}, NULL, (void **)&narrow);
  for (int i = 0; i < N; i++) {
    double want = exact(x[i]), want_f32 = exact((double)single[i]), scale = low > 0 ? fabs(want) : fmax(1, fabs(want));
    worst[0] = fmax(worst[0], fabs(wide[i] - want) / scale);
    worst[1] = fmax(worst[1], fabs((double)narrow[i] - want_f32) / (low > 0 ? fabs(want_f32) : fmax(1, fabs(want_f32))));
  }
  print_message("[%g, %g]: largest error %.2g in f64, %.2g in f32\n", low, high, worst[0], worst[1]);
  assert_true(worst[0] < bound);
  assert_true(worst[1] < bound_f32);
  free(wide);
  free(narrow);
}

static void test_erfc(void **state) {
  (void)state;
  check_function(tern_erfc, erfc, -6, 1, 1e-15, 3e-7);
  check_function(tern_erfc, erfc, 0.5, 9, 1e-14, 3e-6);
}

static void test_lgamma(void **state) {
  (void)state;
  check_function(tern_lgamma, lgamma, -20, 4, 1e-12, 5e-5);
  check_function(tern_lgamma, lgamma, 4, 1e4, 1e-13, 2e-6);
}

static void test_philox(void **state) {
  (void)state;
  static const uint64_t seeds[] = {0, 1, 0x123456789ABCDEF0ull, ~0ull}, offsets[] = {0, 7, 0xFFFFFFFEull, 0x1FFFFFFFFull};
  for (int s = 0; s < 4; s++)
    for (int o = 0; o < 4; o++) {
      tern_program *p = begin();
      tern_value seed = tern_scalar(p, TERN_I64), offset = tern_scalar(p, TERN_I64);
      tern_result(p, tern_philox(p, seed, offset, 2, DIMS(3, 7)), -1);
      uint32_t *found, words[4];
      run(p, NULL, (uint64_t[]){seeds[s], offsets[o]}, (void **)&found);
      for (int i = 0; i < 21; i++) {
        tern_philox_block(seeds[s], offsets[o] + (uint64_t)i / 4, words);
        assert_int_equal(found[i], words[i % 4]);
      }
      free(found);
    }
}

static void test_softmax_values(void **state) {
  (void)state;
  float x[2][4] = {{1, 2, 3, -INFINITY}, {500, 500, -500, 500}}, *y, *log_y;
  tern_program *p = begin();
  tern_value v = tern_parameter(p, TERN_F32, 2, DIMS(2, 4));
  tern_result(p, tern_softmax(p, v, 1), -1);
  tern_result(p, tern_log_softmax(p, v, 1), -1);
  void *results[2];
  run(p, (const void *[]){x}, NULL, results);
  y = results[0], log_y = results[1];
  for (int i = 0; i < 2; i++) {
    double sum = 0, most = i ? 500 : 3;
    for (int j = 0; j < 4; j++) sum += exp((double)x[i][j] - most);
    for (int j = 0; j < 4; j++) {
      double expected = exp((double)x[i][j] - most) / sum;
      assert_true(fabs((double)y[4 * i + j] - expected) < 1e-7);
      assert_true(expected == 0 ? log_y[4 * i + j] < -900 : fabs((double)log_y[4 * i + j] - log(expected)) < 1e-6);
    }
  }
  free(y);
  free(log_y);
}

/* bf16 is computed in f32 and rounded once: the result is the nearest bf16 to the formula's. */
static void test_half_types_round_once(void **state) {
  (void)state;
  enum { N = 64 };
  uint16_t x[N];
  double wide[N];
  for (int i = 0; i < N; i++) x[i] = tern_f32_to_bf16((float)(0.11 * i - 3.3)), wide[i] = (double)tern_bf16_to_f32(x[i]);
  tern_program *p = begin();
  int64_t n = N;
  tern_value v = tern_parameter(p, TERN_BF16, 1, &n);
  tern_result(p, tern_gelu(p, v, false), -1);
  tern_value out[4];
  tern_layer_norm(p, v, TERN_NO_VALUE, TERN_NO_VALUE, tern_constant_float(p, TERN_F32, 0, NULL, 1e-5), 1, out);
  for (int i = 0; i < 3; i++) tern_result(p, out[i], -1);
  assert_int_equal(tern_value_dtype(p, out[1]), TERN_F32);
  void *results[4];
  run(p, (const void *[]){x}, NULL, results);
  double mean = 0, variance = 0;
  for (int i = 0; i < N; i++) mean += wide[i] / N;
  for (int i = 0; i < N; i++) variance += (wide[i] - mean) * (wide[i] - mean) / N;
  assert_true(fabs((double)*(float *)results[2] - mean) < 1e-6 && fabs((double)*(float *)results[3] - 1 / sqrt(variance + 1e-5)) < 1e-6);
  int apart = 0;
  for (int i = 0; i < N; i++) {
    double gelu = wide[i] * 0.5 * (1 + erf(wide[i] * M_SQRT1_2)), normal = (wide[i] - mean) / sqrt(variance + 1e-5);
    apart += ((uint16_t *)results[0])[i] != tern_f32_to_bf16((float)gelu);
    assert_true(fabs((double)tern_bf16_to_f32(((uint16_t *)results[0])[i]) - gelu) <= 0.004 * fabs(gelu) + 4e-7);
    assert_true(fabs((double)tern_bf16_to_f32(((uint16_t *)results[1])[i]) - normal) <= 0.004 * fabs(normal) + 1e-6);
  }
  assert_true(apart <= 3);
  for (int i = 0; i < 4; i++) free(results[i]);
}

static void test_gelu_tanh_values(void **state) {
  (void)state;
  double x[9] = {-6, -3, -1, -0.1, 0, 0.1, 1, 3, 6}, *y;
  tern_program *p = begin();
  tern_result(p, tern_gelu(p, tern_parameter(p, TERN_F64, 1, DIMS(9)), true), -1);
  run(p, (const void *[]){x}, NULL, (void **)&y);
  for (int i = 0; i < 9; i++) assert_true(fabs(y[i] - 0.5 * x[i] * (1 + tanh(sqrt(2 / M_PI) * (x[i] + 0.044715 * x[i] * x[i] * x[i])))) < 1e-14);
  free(y);
}

static void test_batch_norm_values(void **state) {
  (void)state;
  enum { N = 3, C = 2, S = 4 };
  double x[N][C][S], weight[C] = {2, -1}, bias[C] = {0.5, 3};
  for (int i = 0; i < N * C * S; i++) ((double *)x)[i] = sin(i * 1.7) * 3 + 1000;
  tern_program *p = begin();
  tern_value in = tern_parameter(p, TERN_F64, 3, DIMS(N, C, S)), w = tern_parameter(p, TERN_F64, 1, DIMS(C)), b = tern_parameter(p, TERN_F64, 1, DIMS(C)), out[4];
  tern_batch_norm(p, in, w, b, tern_scalar(p, TERN_F64), out);
  for (int i = 0; i < 4; i++) tern_result(p, out[i], -1);
  double eps = 1e-3, *results[4];
  uint64_t eps_bits;
  memcpy(&eps_bits, &eps, 8);
  run(p, (const void *[]){x, weight, bias}, &eps_bits, (void **)results);
  for (int c = 0; c < C; c++) {
    double mean = 0, variance = 0;
    for (int i = 0; i < N * S; i++) mean += x[i / S][c][i % S] / (N * S);
    for (int i = 0; i < N * S; i++) variance += (x[i / S][c][i % S] - mean) * (x[i / S][c][i % S] - mean) / (N * S);
    assert_true(fabs(results[1][c] - mean) < 1e-10 && fabs(results[3][c] - variance) < 1e-10 && fabs(results[2][c] - 1 / sqrt(variance + eps)) < 1e-10);
    for (int i = 0; i < N * S; i++)
      assert_true(fabs(results[0][(i / S * C + c) * S + i % S] - ((x[i / S][c][i % S] - mean) / sqrt(variance + eps) * weight[c] + bias[c])) < 1e-9);
  }
  for (int i = 0; i < 4; i++) free(results[i]);
}

/* Attention by its definition, four query heads on two key heads. */
static void test_attention_values(void **state) {
  (void)state;
  enum { B = 2, H = 4, HK = 2, L = 3, S = 5, E = 2, EV = 3 };
  double q[B][H][L][E], k[B][HK][S][E], v[B][HK][S][EV];
  bool mask[L][S];
  for (int i = 0; i < B * H * L * E; i++) ((double *)q)[i] = sin(i * 2.3);
  for (int i = 0; i < B * HK * S * E; i++) ((double *)k)[i] = cos(i * 1.1);
  for (int i = 0; i < B * HK * S * EV; i++) ((double *)v)[i] = sin(i * 0.7 + 1);
  for (int i = 0; i < L * S; i++) ((bool *)mask)[i] = i % 3 != 0;
  for (int j = 0; j < S; j++) mask[1][j] = false;
  for (int option = 0; option < 4; option++) { /* 1 causal, 2 masked */
    tern_program *p = begin();
    tern_value Q = tern_parameter(p, TERN_F64, 4, DIMS(B, H, L, E)), K = tern_parameter(p, TERN_F64, 4, DIMS(B, HK, S, E)), V = tern_parameter(p, TERN_F64, 4, DIMS(B, HK, S, EV));
    tern_value M = tern_parameter(p, TERN_BOOL, 2, DIMS(L, S)), out[2];
    tern_attention(p, Q, K, V, option & 2 ? M : TERN_NO_VALUE, tern_constant_float(p, TERN_F64, 0, NULL, 0.6), option & 1, out);
    tern_result(p, out[0], -1);
    tern_result(p, out[1], -1);
    double *results[2];
    run(p, (const void *[]){q, k, v, mask}, NULL, (void **)results);
    for (int row = 0; row < B * H * L; row++) {
      int b = row / (H * L), h = row / L % H, l = row % L;
      double weights[S], sum = 0;
      for (int s = 0; s < S; s++) {
        bool sees = !(option & 1 && s > l) && !(option & 2 && !mask[l][s]);
        double score = 0;
        for (int e = 0; e < E; e++) score += q[b][h][l][e] * k[b][h / 2][s][e];
        sum += weights[s] = sees ? exp(0.6 * score) : 0;
      }
      for (int e = 0; e < EV; e++) {
        double expected = 0;
        for (int s = 0; s < S && sum > 0; s++) expected += weights[s] / sum * v[b][h / 2][s][e];
        assert_true(fabs(results[0][row * EV + e] - expected) < 1e-13);
      }
      assert_true(sum > 0 ? fabs(results[1][row] - log(sum)) < 1e-13 : results[1][row] == -INFINITY);
    }
    for (int i = 0; i < 2; i++) free(results[i]);
  }
}

static bool keep_softmax(tern_op_kind kind) { return kind == TERN_OP_SOFTMAX; }

static void test_decomposing_keeps_what_is_around(void **state) {
  (void)state;
  tern_program *p = begin(), *out;
  tern_value x = tern_parameter(p, TERN_F32, 2, DIMS(2, 3));
  tern_parameter(p, TERN_F32, 0, NULL); /* unused, but numbered */
  tern_value index = tern_parameter(p, TERN_I64, 1, DIMS(2));
  tern_check_index(p, index, 0, 1);
  tern_log(p, x); /* dead */
  tern_program_tag(p, 5);
  tern_value y = tern_gelu(p, tern_softmax(p, x, 1), false);
  tern_program_tag(p, 6);
  tern_result(p, tern_floor(p, y), 0);
  assert_null(tern_program_decompose(p, keep_softmax, &out));
  assert_null(tern_program_finish(out));
  assert_int_equal(out->n_parameters, 3);
  assert_int_equal(out->results[0].reuses, 0);
  int softmaxes = 0, checks = 0, composites = 0, logs = 0;
  for (int32_t i = 0; i < out->n_ops; i++) {
    tern_op_kind kind = (tern_op_kind)out->ops[i].kind;
    softmaxes += kind == TERN_OP_SOFTMAX;
    checks += kind == TERN_OP_CHECK;
    logs += kind == TERN_OP_LOG;
    composites += tern_op_rows[kind].class == TERN_CLASS_COMPOSITE || kind == TERN_OP_ERF;
    if (kind == TERN_OP_MULTIPLY) assert_int_equal(out->ops[i].tag, 5);
    if (kind == TERN_OP_FLOOR) assert_int_equal(out->ops[i].tag, 6);
  }
  assert_int_equal(softmaxes, 1);
  assert_int_equal(checks, 1);
  assert_int_equal(logs, 0);
  assert_int_equal(composites, 1);
  tern_program_free(out);
  tern_program_free(p);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_erf),
      cmocka_unit_test(test_erfc),
      cmocka_unit_test(test_lgamma),
      cmocka_unit_test(test_philox),
      cmocka_unit_test(test_softmax_values),
      cmocka_unit_test(test_half_types_round_once),
      cmocka_unit_test(test_gelu_tanh_values),
      cmocka_unit_test(test_batch_norm_values),
      cmocka_unit_test(test_attention_values),
      cmocka_unit_test(test_decomposing_keeps_what_is_around),
  };
  return cmocka_run_group_tests_name("composites: values", tests, NULL, NULL);
}
