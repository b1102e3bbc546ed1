/* Batch norm against loops: what it returns, and the running statistics it writes on the side; one window of pooling's rules. */
#include <math.h>
#include "aten_nn_fixture.h"

enum { N = 4, C = 3, L = 5 };
static const int64_t shape[3] = {N, C, L}, channels[1] = {C};

typedef struct setting {
  float x[N * C * L], weight[C], bias[C], mean[C], var[C];
  tensor tx, tweight, tbias, tmean, tvar, storage;
} setting;

/* The running mean is a strided view of a larger storage, so that writing goes through a view. */
static void make(setting *s) {
  float wide[2 * C];
  s->tx = noisy(3, shape, s->x);
  s->tweight = noisy(1, channels, s->weight);
  s->tbias = noisy(1, channels, s->bias);
  for (int i = 0; i < 2 * C; i++) wide[i] = noise();
  s->storage = vector(2 * C, wide);
  s->tmean = slice(s->storage, 1, C, 2);
  for (int c = 0; c < C; c++) {
    s->mean[c] = wide[1 + 2 * c];
    s->var[c] = 1 + noise() / 2;
  }
  s->tvar = vector(C, s->var);
}

static void discard(setting *s) { drop(s->tx), drop(s->tweight), drop(s->tbias), drop(s->storage), drop(s->tvar); }

static void statistics(const setting *s, double *mean, double *var) {
  for (int c = 0; c < C; c++) {
    mean[c] = var[c] = 0;
    for (int i = 0; i < N * L; i++) mean[c] += (double)s->x[(i / L * C + c) * L + i % L] / (N * L);
    for (int i = 0; i < N * L; i++) var[c] += pow((double)s->x[(i / L * C + c) * L + i % L] - mean[c], 2) / (N * L);
  }
}

static void normalised(const setting *s, const double *mean, const double *var, double *y) {
  for (int i = 0; i < N * C * L; i++) {
    int c = i / L % C;
    y[i] = ((double)s->x[i] - mean[c]) / sqrt(var[c] + 1e-5) * (double)s->weight[c] + (double)s->bias[c];
  }
}

static void training_updates_the_running_statistics(void **state) {
  (void)state;
  static const double momentum = 0.3;
  setting s;
  double mean[C], var[C], invstd[C], y[N * C * L], new_mean[C], new_var[C];
  make(&s);
  statistics(&s, mean, var);
  normalised(&s, mean, var, y);
  for (int c = 0; c < C; c++) {
    invstd[c] = 1 / sqrt(var[c] + 1e-5);
    new_mean[c] = (1 - momentum) * (double)s.mean[c] + momentum * mean[c];
    new_var[c] = (1 - momentum) * (double)s.var[c] + momentum * var[c] * (N * L) / (N * L - 1);
  }
  MUST("native_batch_norm", of(&s.tx), of(&s.tweight), of(&s.tbias), of(&s.tmean), of(&s.tvar), truth(true), number(momentum), number(1e-5));
  assert_int_equal(asked.results, 3);
  expect_near(asked.made[0], y, 1e-5);
  expect_near(asked.made[1], mean, 1e-6);
  expect_near(asked.made[2], invstd, 1e-5);
  expect_near(s.tmean, new_mean, 1e-6);
  expect_near(s.tvar, new_var, 1e-6);
  drop_results(), discard(&s);
}

static void evaluation_uses_and_keeps_them(void **state) {
  (void)state;
  setting s;
  double mean[C], var[C], y[N * C * L];
  make(&s);
  for (int c = 0; c < C; c++) mean[c] = (double)s.mean[c], var[c] = (double)s.var[c];
  normalised(&s, mean, var, y);
  MUST("native_batch_norm", of(&s.tx), of(&s.tweight), of(&s.tbias), of(&s.tmean), of(&s.tvar), truth(false), number(0.1), number(1e-5));
  assert_int_equal(asked.results, 3);
  assert_int_equal(asked.made[1].view.sizes[0], 0); /* nothing is saved */
  expect_near(asked.made[0], y, 1e-5);
  expect_near(s.tmean, mean, 0);
  expect_near(s.tvar, var, 0);
  drop_results(), discard(&s);
}

static void unwanted_gradients_are_undefined(void **state) {
  (void)state;
  static const int64_t only_weight[3] = {0, 1, 0};
  setting s;
  float gradient[N * C * L];
  double mean[C], var[C], expected[C] = {0};
  make(&s);
  statistics(&s, mean, var);
  tensor gy = noisy(3, shape, gradient);
  float saved[2][C];
  for (int c = 0; c < C; c++) saved[0][c] = (float)mean[c], saved[1][c] = (float)(1 / sqrt(var[c] + 1e-5));
  tensor tmean = vector(C, saved[0]), tinvstd = vector(C, saved[1]);
  for (int i = 0; i < N * C * L; i++) expected[i / L % C] += (double)gradient[i] * ((double)s.x[i] - mean[i / L % C]) / sqrt(var[i / L % C] + 1e-5);
  MUST("native_batch_norm_backward", of(&gy), of(&s.tx), of(&s.tweight), of(&s.tmean), of(&s.tvar), of(&tmean), of(&tinvstd), truth(true), number(1e-5),
       truths(only_weight, 3));
  assert_int_equal(asked.results, 1);
  assert_int_equal(asked.undefined, 2);
  expect_near(asked.made[0], expected, 1e-5);
  drop_results(), drop(gy), drop(tmean), drop(tinvstd), discard(&s);
}

static void wrong_shapes_are_rejected(void **state) {
  (void)state;
  setting s;
  make(&s);
  tensor two = slice(s.storage, 0, 2, 1);
  assert_int_equal(RUN("native_batch_norm", of(&s.tx), of(&two), none(), none(), none(), truth(true), number(0.1), number(1e-5)), TERN_REJECT);
  assert_int_equal(RUN("native_batch_norm", of(&s.tx), none(), none(), none(), none(), truth(false), number(0.1), number(1e-5)), TERN_REJECT);
  discard(&s);
}

/* ceil_mode adds a window only if it begins inside the input or its left padding (PyTorch's pooling_output_shape). */
static void ceil_mode_adds_a_window_that_begins_inside(void **state) {
  (void)state;
  const struct {
    int64_t in, size, stride, padding, ceil, out;
  } cases[] = {{5, 2, 2, 0, 0, 2}, {5, 2, 2, 0, 1, 3}, {4, 2, 3, 1, 1, 2}, {4, 2, 3, 1, 0, 2}, {6, 3, 4, 1, 1, 2}, {3, 1, 4, 0, 1, 1}};
  for (size_t i = 0; i < TERN_COUNT(cases); i++) {
    float x[36];
    tensor t = noisy(3, (const int64_t[]){1, cases[i].in, cases[i].in}, x);
    MUST("max_pool2d_with_indices", of(&t), integer(cases[i].size), integer(cases[i].stride), integer(cases[i].padding), integer(1), truth(cases[i].ceil));
    assert_int_equal(asked.made[0].view.sizes[2], cases[i].out);
    must(tern_device_synchronize(the_device()));
    drop_results(), drop(t);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(training_updates_the_running_statistics),    cmocka_unit_test(evaluation_uses_and_keeps_them),
      cmocka_unit_test(unwanted_gradients_are_undefined),           cmocka_unit_test(wrong_shapes_are_rejected),
      cmocka_unit_test(ceil_mode_adds_a_window_that_begins_inside),
  };
  return cmocka_run_group_tests(tests, NULL, release_last);
}
