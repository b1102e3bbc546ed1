/* Every gradient among the composites against central differences of its forward composite, in f64, and forwards against direct formulas. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include "evaluate.h"

#define DIMS(...) ((int64_t[]){__VA_ARGS__})

static uint64_t seed = 0x2545F4914F6CDD1Dull;
static double uniform(void) {
  seed ^= seed << 13, seed ^= seed >> 7, seed ^= seed << 17;
  return (double)(seed >> 11) * 0x1p-53 * 2 - 1;
}
static int64_t pick(int64_t below) {
  uniform();
  return (int64_t)((seed >> 20) % (uint64_t)below);
}

/* A function of up to four f64 arrays under test: builds forward results, and the gradients of sum(gy * first result). */
enum { MOST = 4 };
typedef struct subject {
  int n;                         /* inputs */
  int rank[MOST];
  int64_t dims[MOST][TERN_MAX_RANK];
  void (*forward)(tern_program *p, const struct subject *s, const tern_value *inputs, tern_value *results); /* fills up to 4 results */
  void (*backward)(tern_program *p, const struct subject *s, tern_value gy, const tern_value *inputs, const tern_value *results, tern_value *gradients);
  tern_window window;
  int option;
} subject;

static void run(tern_program *p, const void *const *parameters, void **results) {
  tern_status status = tern_program_finish(p);
  if (!status) status = evaluate(p, parameters, NULL, results);
  if (status) print_error("%s\n", tern_error_message(status));
  assert_null(status);
}

static void check_gradients(const subject *s) {
  double *inputs[MOST + 1], *gradients[MOST], *gy;
  int64_t counts[MOST];
  for (int i = 0; i < s->n; i++) {
    counts[i] = tern_dims_count(s->rank[i], s->dims[i]);
    inputs[i] = malloc(sizeof(double) * (size_t)(counts[i] + 1));
    for (int64_t j = 0; j < counts[i]; j++) inputs[i][j] = uniform();
  }
  tern_program *forward, *backward;
  tern_value values[MOST], results[4], grads[MOST];
  assert_null(tern_program_new(&forward));
  for (int i = 0; i < s->n; i++) values[i] = tern_parameter(forward, TERN_F64, s->rank[i], s->dims[i]);
  s->forward(forward, s, values, results);
  tern_result(forward, results[0], -1);
  if (forward->error) print_error("%s\n", tern_error_message(forward->error));
  assert_null(forward->error);

  assert_null(tern_program_new(&backward));
  for (int i = 0; i < s->n; i++) values[i] = tern_parameter(backward, TERN_F64, s->rank[i], s->dims[i]);
  s->forward(backward, s, values, results);
  tern_value seed_value = tern_parameter(backward, TERN_F64, tern_value_rank(backward, results[0]), tern_value_dims(backward, results[0]));
  int64_t y_count = tern_value_count(backward, results[0]);
  gy = malloc(sizeof(double) * (size_t)(y_count + 1));
  for (int64_t j = 0; j < y_count; j++) gy[j] = uniform();
  for (int i = 0; i < MOST; i++) grads[i] = TERN_NO_VALUE;
  s->backward(backward, s, seed_value, values, results, grads);
  int n_grads = 0;
  for (int i = 0; i < s->n; i++)
    if (grads[i] != TERN_NO_VALUE || backward->error) tern_result(backward, grads[i], -1), n_grads++;
  inputs[s->n] = gy;
  run(backward, (const void *const *)inputs, (void **)gradients);

  const double h = 1e-5;
  for (int i = 0, g = 0; i < s->n; i++) {
    if (grads[i] == TERN_NO_VALUE) continue;
    for (int64_t j = 0; j < counts[i]; j++) {
      double loss[2], at = inputs[i][j];
      for (int side = 0; side < 2; side++) {
        double *y;
        inputs[i][j] = side ? at + h : at - h;
        run(forward, (const void *const *)inputs, (void **)&y);
        loss[side] = 0;
        for (int64_t k = 0; k < y_count; k++) loss[side] += gy[k] * y[k];
        free(y);
      }
      inputs[i][j] = at;
      double expected = (loss[1] - loss[0]) / (2 * h);
      if (!(fabs(gradients[g][j] - expected) <= 1e-7 * (1 + fabs(expected)))) fail_msg("gradient of input %d at %d: %.12g, by differences %.12g", i, (int)j, gradients[g][j], expected);
    }
    free(gradients[g++]);
  }
  for (int i = 0; i < s->n; i++) free(inputs[i]);
  free(gy);
  tern_program_free(forward);
  tern_program_free(backward);
  (void)n_grads;
}

static tern_value number(tern_program *p, double value) { return tern_constant_float(p, TERN_F64, 0, NULL, value); }

/* ---- softmax ---- */
static void softmax_forward(tern_program *p, const subject *s, const tern_value *in, tern_value *out) {
  out[0] = s->option & 1 ? tern_log_softmax(p, in[0], s->option >> 1) : tern_softmax(p, in[0], s->option >> 1);
}
static void softmax_backward(tern_program *p, const subject *s, tern_value gy, const tern_value *in, const tern_value *out, tern_value *g) {
  (void)in;
  g[0] = s->option & 1 ? tern_log_softmax_grad(p, gy, out[0], s->option >> 1) : tern_softmax_grad(p, gy, out[0], s->option >> 1);
}
static void test_softmax(void **state) {
  (void)state;
  for (int option = 0; option < 6; option++) check_gradients(&(subject){1, {3}, {{2, 5, 3}}, softmax_forward, softmax_backward, {0}, option});
}

/* ---- gelu ---- */
static void gelu_forward(tern_program *p, const subject *s, const tern_value *in, tern_value *out) { out[0] = tern_gelu(p, in[0], s->option); }
static void gelu_backward(tern_program *p, const subject *s, tern_value gy, const tern_value *in, const tern_value *out, tern_value *g) {
  (void)out;
  g[0] = tern_gelu_grad(p, gy, in[0], s->option);
}
static void test_gelu(void **state) {
  (void)state;
  for (int option = 0; option < 2; option++) check_gradients(&(subject){1, {1}, {{40}}, gelu_forward, gelu_backward, {0}, option});
}

/* ---- normalisation; option: how many dimensions, or for batch norm 1 training ---- */
static void layer_forward(tern_program *p, const subject *s, const tern_value *in, tern_value *out) {
  tern_layer_norm(p, in[0], s->n > 1 ? in[1] : TERN_NO_VALUE, s->n > 2 ? in[2] : TERN_NO_VALUE, number(p, 1e-3), s->option, out);
}
static void layer_backward(tern_program *p, const subject *s, tern_value gy, const tern_value *in, const tern_value *out, tern_value *g) {
  tern_layer_norm_grad(p, gy, in[0], out[1], out[2], s->n > 1 ? in[1] : TERN_NO_VALUE, s->option, g);
}
static void test_layer_norm(void **state) {
  (void)state;
  check_gradients(&(subject){3, {3, 1, 1}, {{2, 3, 4}, {4}, {4}}, layer_forward, layer_backward, {0}, 1});
  check_gradients(&(subject){3, {3, 2, 2}, {{2, 3, 4}, {3, 4}, {3, 4}}, layer_forward, layer_backward, {0}, 2});
  check_gradients(&(subject){3, {2, 2, 2}, {{3, 4}, {3, 4}, {3, 4}}, layer_forward, layer_backward, {0}, 2});
  check_gradients(&(subject){1, {3}, {{2, 3, 4}}, layer_forward, layer_backward, {0}, 1});
}

static void batch_forward(tern_program *p, const subject *s, const tern_value *in, tern_value *out) {
  tern_value weight = s->n > 1 ? in[1] : TERN_NO_VALUE, bias = s->n > 2 ? in[2] : TERN_NO_VALUE;
  tern_batch_norm(p, in[0], weight, bias, number(p, 1e-3), out);
}
static void batch_backward(tern_program *p, const subject *s, tern_value gy, const tern_value *in, const tern_value *out, tern_value *g) {
  tern_batch_norm_grad(p, gy, in[0], s->n > 1 ? in[1] : TERN_NO_VALUE, out[1], out[2], true, g);
}
static void evaluation_forward(tern_program *p, const subject *s, const tern_value *in, tern_value *out) {
  (void)s;
  int64_t channels[4] = {1, 3, 1, 1};
  out[1] = tern_constant_float(p, TERN_F64, 1, DIMS(3), 0.25);
  out[2] = tern_constant_float(p, TERN_F64, 1, DIMS(3), 1.5);
  tern_value normal = tern_multiply(p, tern_subtract(p, in[0], tern_reshape(p, out[1], 4, channels)), tern_reshape(p, out[2], 4, channels));
  out[0] = tern_add(p, tern_multiply(p, normal, tern_reshape(p, in[1], 4, channels)), tern_reshape(p, in[2], 4, channels));
}
static void evaluation_backward(tern_program *p, const subject *s, tern_value gy, const tern_value *in, const tern_value *out, tern_value *g) {
  (void)s;
  tern_batch_norm_grad(p, gy, in[0], in[1], out[1], out[2], false, g);
}
static void test_batch_norm(void **state) {
  (void)state;
  check_gradients(&(subject){3, {4, 1, 1}, {{2, 3, 2, 2}, {3}, {3}}, batch_forward, batch_backward, {0}, 0});
  check_gradients(&(subject){1, {2}, {{5, 3}}, batch_forward, batch_backward, {0}, 0});
  check_gradients(&(subject){3, {4, 1, 1}, {{2, 3, 2, 2}, {3}, {3}}, evaluation_forward, evaluation_backward, {0}, 0});
}

/* ---- attention; option bits: 1 causal, 2 bool mask, 4 float mask per head ---- */
static tern_value mask_of(tern_program *p, const subject *s) {
  int64_t L = s->dims[0][2], S = s->dims[1][2], H = s->dims[0][1], plane[3] = {H, L, S};
  if (!(s->option & 6)) return TERN_NO_VALUE;
  tern_value pattern = tern_remainder(p, tern_add(p, tern_iota(p, TERN_I64, 3, plane, 1), tern_iota(p, TERN_I64, 3, plane, 2)), tern_constant_int(p, TERN_I64, 0, NULL, 3));
  if (s->option & 4) return tern_multiply(p, tern_convert(p, pattern, TERN_F64), tern_iota(p, TERN_F64, 3, plane, 0));
  tern_value allowed = tern_compare(p, TERN_NE, pattern, tern_constant_int(p, TERN_I64, 0, NULL, 0)); /* and row 1 sees nothing */
  allowed = tern_and(p, allowed, tern_compare(p, TERN_NE, tern_iota(p, TERN_I64, 3, plane, 1), tern_constant_int(p, TERN_I64, 0, NULL, 1)));
  return tern_slice(p, allowed, DIMS(0, 0, 0), DIMS(1, L, S), DIMS(1, 1, 1));
}
static void attention_forward(tern_program *p, const subject *s, const tern_value *in, tern_value *out) {
  tern_attention(p, in[0], in[1], in[2], mask_of(p, s), number(p, 0.7), s->option & 1, out);
}
static void attention_backward(tern_program *p, const subject *s, tern_value gy, const tern_value *in, const tern_value *out, tern_value *g) {
  tern_attention_grad(p, gy, in[0], in[1], in[2], out[0], out[1], mask_of(p, s), number(p, 0.7), s->option & 1, g);
}
static void test_attention(void **state) {
  (void)state;
  for (int option = 0; option < 8; option++) {
    check_gradients(&(subject){3, {4, 4, 4}, {{2, 2, 4, 3}, {2, 2, 4, 3}, {2, 2, 4, 2}}, attention_forward, attention_backward, {0}, option});
    check_gradients(&(subject){3, {4, 4, 4}, {{1, 4, 3, 2}, {1, 2, 5, 2}, {1, 2, 5, 3}}, attention_forward, attention_backward, {0}, option});
  }
}

/* ---- convolution: random windows ---- */
static void conv_forward(tern_program *p, const subject *s, const tern_value *in, tern_value *out) { out[0] = tern_convolution(p, in[0], in[1], &s->window); }
static void conv_backward(tern_program *p, const subject *s, tern_value gy, const tern_value *in, const tern_value *out, tern_value *g) {
  (void)out;
  g[0] = tern_conv_input_grad(p, gy, in[1], &s->window, s->dims[0]);
  g[1] = tern_conv_weight_grad(p, in[0], gy, &s->window, s->dims[1]);
}
static void test_convolution(void **state) {
  (void)state;
  for (int round = 0; round < 60; round++) {
    subject s = {.n = 2, .forward = conv_forward, .backward = conv_backward};
    int spatial = 1 + round % 3;
    s.window = (tern_window){.spatial = spatial, .groups = 1 + pick(3)};
    s.rank[0] = s.rank[1] = spatial + 2;
    int64_t per_group[2] = {1 + pick(2), 1 + pick(2)};
    s.dims[0][0] = 1 + pick(2), s.dims[0][1] = s.window.groups * per_group[0];
    s.dims[1][0] = s.window.groups * per_group[1], s.dims[1][1] = per_group[0];
    for (int i = 0; i < spatial; i++) {
      s.window.stride[i] = 1 + pick(3);
      s.window.dilation[i] = 1 + pick(2);
      s.window.pad_low[i] = pick(4) - 1;
      s.window.pad_high[i] = pick(4) - 1;
      s.dims[0][i + 2] = 2 + pick(spatial == 3 ? 2 : 5);
      s.dims[1][i + 2] = 1 + pick(spatial == 3 ? 2 : 3);
    }
    check_gradients(&s);
  }
}

/* ---- pooling: random windows; option: 0 max, 1 average, 2 average that counts padding, 3 average with a divisor ---- */
static void pooled_sizes(const subject *s, int64_t *y) {
  for (int i = 0; i < s->window.spatial; i++) {
    int64_t in = s->dims[0][i + 2], reach = s->window.dilation[i] * (s->window.size[i] - 1) + 1, room = in + 2 * s->window.pad_low[i] - reach;
    y[i] = (room + (pick(2) ? s->window.stride[i] - 1 : 0)) / s->window.stride[i] + 1; /* floor or ceil */
    if ((y[i] - 1) * s->window.stride[i] >= in + s->window.pad_low[i]) y[i]--;
  }
}
static int64_t pooled[3];
static void pool_forward(tern_program *p, const subject *s, const tern_value *in, tern_value *out) {
  if (s->option) out[0] = tern_avg_pool(p, in[0], &s->window, pooled);
  else tern_max_pool(p, in[0], &s->window, pooled, out);
}
static void pool_backward(tern_program *p, const subject *s, tern_value gy, const tern_value *in, const tern_value *out, tern_value *g) {
  (void)in;
  g[0] = s->option ? tern_avg_pool_grad(p, gy, &s->window, s->dims[0]) : tern_max_pool_grad(p, gy, out[1], &s->window, s->dims[0]);
}
static subject random_pool(int round) {
  subject s = {.n = 1, .forward = pool_forward, .backward = pool_backward, .option = round % 4};
  int spatial = 1 + round / 4 % 3;
  s.window = (tern_window){.spatial = spatial, .groups = 1, .count_padding = s.option == 2, .divisor = s.option == 3 ? 5 : 0};
  s.rank[0] = spatial + 2;
  s.dims[0][0] = 1 + pick(2), s.dims[0][1] = 1 + pick(2);
  for (int i = 0; i < spatial; i++) {
    s.window.size[i] = 1 + pick(3);
    s.window.stride[i] = 1 + pick(3);
    s.window.dilation[i] = s.option ? 1 : 1 + pick(2);
    s.window.pad_low[i] = s.window.pad_high[i] = pick(s.window.size[i] / 2 + 1);
    s.dims[0][i + 2] = s.window.dilation[i] * (s.window.size[i] - 1) + 1 + pick(4);
  }
  pooled_sizes(&s, pooled);
  return s;
}
static void test_pooling(void **state) {
  (void)state;
  for (int round = 0; round < 80; round++) {
    subject s = random_pool(round);
    check_gradients(&s);
  }
}

/* The element of PyTorch's loops: avg_pool's divisor and max_pool's index, straight from their definition. */
static void test_pooling_forward(void **state) {
  (void)state;
  for (int round = 0; round < 200; round++) {
    subject s = random_pool(round);
    tern_program *p;
    assert_null(tern_program_new(&p));
    tern_value x = tern_parameter(p, TERN_F64, s.rank[0], s.dims[0]), out[4];
    pool_forward(p, &s, &x, out);
    tern_result(p, out[0], -1);
    if (s.option == 0) tern_result(p, out[1], -1);
    int64_t n = tern_dims_count(s.rank[0], s.dims[0]), plane = tern_dims_count(s.window.spatial, s.dims[0] + 2), y_plane = tern_dims_count(s.window.spatial, pooled);
    double *input = malloc(sizeof(double) * (size_t)n);
    static const double values[] = {1, 2, 3, -INFINITY, NAN, 0, 5, -1};
    for (int64_t i = 0; i < n; i++) input[i] = s.option ? uniform() : values[pick(round % 3 ? 4 : 8)];
    void *results[2];
    run(p, (const void *const[]){input}, results);
    for (int64_t i = 0; i < tern_value_count(p, out[0]); i++) {
      const tern_window *w = &s.window;
      int64_t at[3], along[3], from[3], best = -1, counted = 1;
      double most = 0, sum = 0, held = 0;
      evaluate_unflatten(i % y_plane, w->spatial, pooled, at);
      for (int64_t k = 0; k < tern_dims_count(w->spatial, w->size); k++) {
        evaluate_unflatten(k, w->spatial, w->size, along);
        bool inside = true;
        for (int d = 0; d < w->spatial; d++) {
          from[d] = at[d] * w->stride[d] - w->pad_low[d] + along[d] * w->dilation[d];
          inside = inside && from[d] >= 0 && from[d] < s.dims[0][d + 2];
        }
        if (!inside) continue;
        int64_t index = evaluate_flatten(w->spatial, s.dims[0] + 2, from);
        double value = input[i / y_plane * plane + index];
        sum += value, held++;
        if (best < 0 || value > most || isnan(value)) most = value, best = index;
      }
      for (int d = 0; d < w->spatial; d++) {
        int64_t start = at[d] * w->stride[d] - w->pad_low[d], end = start + w->size[d], limit = s.dims[0][d + 2] + w->pad_high[d];
        counted *= (end < limit ? end : limit) - start;
      }
      double found = ((double *)results[0])[i];
      if (s.option == 0) {
        assert_true(found == most || (isnan(found) && isnan(most)));
        assert_int_equal(((int64_t *)results[1])[i], best);
      } else {
        double expected = sum / (s.option == 1 ? held : s.option == 2 ? (double)counted : 5);
        assert_true(fabs(found - expected) < 1e-12);
      }
    }
    for (int i = 0; i < p->n_results; i++) free(results[i]);
    free(input);
    tern_program_free(p);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_softmax),   cmocka_unit_test(test_gelu),        cmocka_unit_test(test_layer_norm), cmocka_unit_test(test_batch_norm),
      cmocka_unit_test(test_attention), cmocka_unit_test(test_convolution), cmocka_unit_test(test_pooling),    cmocka_unit_test(test_pooling_forward),
  };
  return cmocka_run_group_tests_name("composites: gradients", tests, NULL, NULL);
}
