/* A whole training step on the embedded engine: fused, in place, equal to one operation at a time bit for bit, and to the plain evaluator. */
#include "cpu_program.h"

static tern_value matrix(tern_program *p, int rows, int columns) { return tern_parameter(p, TERN_F32, 2, (int64_t[]){rows, columns}); }
static tern_value vector(tern_program *p, int n) { return tern_parameter(p, TERN_F32, 1, (int64_t[]){n}); }
static tern_value constant(tern_program *p, double x) { return tern_constant_float(p, TERN_F32, 0, NULL, x); }
static tern_value dot(tern_program *p, tern_value a, tern_value b, int of_a, int of_b) { return tern_dot(p, a, b, 0, NULL, NULL, 1, (int[]){of_a}, (int[]){of_b}); }
static tern_value sgd(tern_program *p, tern_value w, tern_value g, tern_value rate) { return tern_subtract(p, w, tern_multiply(p, g, rate)); }

static void perceptron_with_sgd(void **state) {
  (void)state;
  enum { BATCH = 64, IN = 196, HIDDEN = 128, OUT = 10 };
  tern_program *p;
  check(tern_program_new(&p));
  tern_value x = matrix(p, BATCH, IN), y = matrix(p, BATCH, OUT), w1 = matrix(p, HIDDEN, IN), b1 = vector(p, HIDDEN), w2 = matrix(p, OUT, HIDDEN), b2 = vector(p, OUT);
  tern_value rate = tern_scalar(p, TERN_F32);
  tern_value h = tern_maximum(p, tern_add(p, dot(p, x, tern_transpose(p, w1, (int[]){1, 0}), 1, 0), b1), constant(p, 0));
  tern_value z = tern_add(p, dot(p, h, tern_transpose(p, w2, (int[]){1, 0}), 1, 0), b2);
  tern_value log_p = tern_log_softmax(p, z, 1);
  tern_value loss = tern_negate(p, tern_multiply(p, tern_reduce(p, TERN_SUM, tern_multiply(p, log_p, y), 2, (int[]){0, 1}), constant(p, 1.0 / BATCH)));
  tern_value gz = tern_log_softmax_grad(p, tern_multiply(p, y, constant(p, -1.0 / BATCH)), log_p, 1);
  tern_value gh = tern_select(p, tern_compare(p, TERN_GT, h, constant(p, 0)), dot(p, gz, w2, 1, 0), constant(p, 0));
  tern_result(p, loss, -1);
  tern_result(p, sgd(p, w1, dot(p, gh, x, 0, 0), rate), 2);
  tern_result(p, sgd(p, b1, tern_reduce(p, TERN_SUM, gh, 1, (int[]){0}), rate), 3);
  tern_result(p, sgd(p, w2, dot(p, gz, h, 0, 0), rate), 4);
  tern_result(p, sgd(p, b2, tern_reduce(p, TERN_SUM, gz, 1, (int[]){0}), rate), 5);
  check_program(p, false, 2e-3); /* the activations are in the hundreds: the evaluator rounds elsewhere */
}

/* Statistics over batch and plane, written out: two permuted reductions share one pass. */
static void batch_statistics(void **state) {
  (void)state;
  tern_program *p;
  check(tern_program_new(&p));
  tern_value x = tern_parameter(p, TERN_F32, 4, (int64_t[]){8, 12, 14, 15}), g = tern_parameter(p, TERN_F32, 4, (int64_t[]){8, 12, 14, 15});
  const int dims[] = {0, 2, 3};
  tern_value n = constant(p, 1.0 / (8 * 14 * 15)), mean = tern_multiply(p, tern_reduce(p, TERN_SUM, x, 3, dims), n);
  tern_value centred = tern_subtract(p, x, tern_broadcast_in_dim(p, mean, 4, (int64_t[]){8, 12, 14, 15}, (int[]){1}));
  tern_value variance = tern_multiply(p, tern_reduce(p, TERN_SUM, tern_multiply(p, centred, centred), 3, dims), n);
  tern_result(p, mean, -1);
  tern_result(p, variance, -1);
  tern_result(p, tern_reduce(p, TERN_SUM, g, 3, dims), -1);
  tern_result(p, tern_reduce(p, TERN_SUM, tern_multiply(p, g, centred), 3, dims), -1);
  tern_result(p, centred, 0);
  check_program(p, false, 1e-3);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(perceptron_with_sgd), cmocka_unit_test(batch_statistics)};
  return cmocka_run_group_tests(tests, open_device, close_device);
}
