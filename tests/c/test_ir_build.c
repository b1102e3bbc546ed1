/* The builder, its rules, the verifier and the text form. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include "../../src/ir/ir.h"

#define DIMS(...) ((int64_t[]){__VA_ARGS__})
#define INTS(...) ((int[]){__VA_ARGS__})

static tern_program *begin(void) {
  tern_program *p;
  assert_null(tern_program_new(&p));
  return p;
}

static void expect_text(tern_program *p, const char *expected) {
  tern_status status = tern_program_finish(p);
  if (status) print_error("%s\n", tern_error_message(status));
  assert_null(status);
  char *text = tern_program_text(p);
  assert_string_equal(text, expected);
  free(text);
  tern_program_free(p);
}

static void expect_error(tern_program *p, const char *part) {
  tern_status status = tern_program_finish(p);
  assert_non_null(status);
  if (!strstr(tern_error_message(status), part)) print_error("'%s' lacks '%s'\n", tern_error_message(status), part);
  assert_non_null(strstr(tern_error_message(status), part));
  tern_error_free(status);
  tern_program_free(p);
}

static const char *describe(const void *context, uint32_t tag) {
  (void)context;
  return tag == 7 ? "train.py:12 (step)" : "";
}

static void test_text(void **state) {
  (void)state;
  tern_program *p = begin();
  p->describe_tag = describe;
  tern_value x = tern_parameter(p, TERN_F32, 2, DIMS(8, 4)), lr = tern_scalar(p, TERN_F32);
  tern_program_tag(p, 7);
  tern_value y = tern_multiply(p, x, lr);
  tern_value index;
  tern_value sorted = tern_sort(p, y, 1, true, &index);
  tern_program_tag(p, 0);
  tern_value total = tern_reduce(p, TERN_SUM, sorted, 2, INTS(1, 0));
  tern_result(p, y, 0);
  tern_result(p, index, -1);
  tern_result(p, total, -1);
  expect_text(p, "%0 = parameter 0 : f32[8,4]\n"
                 "%1 = parameter scalar 0 : f32[]\n"
                 "%2 = broadcast_in_dim %1 {dims = []} : f32[8,4]  // train.py:12 (step)\n"
                 "%3 = multiply %0, %2 : f32[8,4]  // train.py:12 (step)\n"
                 "%4, %5 = sort %3 {dim = 1, descending} : f32[8,4], i64[8,4]  // train.py:12 (step)\n"
                 "%6 = reduce %4 {sum, dims = [0,1]} : f32[]\n"
                 "return %3 (reuses 0), %5, %6\n");
}

static void test_constants(void **state) {
  (void)state;
  tern_program *p = begin();
  tern_constant_float(p, TERN_BF16, 0, NULL, 1.0 / 3);
  tern_constant_float(p, TERN_F16, 1, DIMS(3), -2.5);
  tern_constant_float(p, TERN_F32, 0, NULL, 0.1);
  tern_constant_float(p, TERN_C64, 0, NULL, 2);
  tern_constant_int(p, TERN_I8, 0, NULL, -3);
  tern_constant_int(p, TERN_U8, 0, NULL, -1);
  tern_constant_int(p, TERN_BOOL, 0, NULL, 2);
  tern_constant_int(p, TERN_F64, 0, NULL, 7);
  tern_constant_float(p, TERN_I64, 0, NULL, -7.9);
  expect_text(p, "%0 = constant 0.334 : bf16[]\n%1 = constant -2.5 : f16[3]\n%2 = constant 0.100000001 : f32[]\n%3 = constant (2,0) : c64[]\n%4 = constant -3 : i8[]\n"
                 "%5 = constant 255 : u8[]\n%6 = constant true : bool[]\n%7 = constant 7 : f64[]\n%8 = constant -7 : i64[]\nreturn\n");
}

static void test_identities_return_their_operand(void **state) {
  (void)state;
  tern_program *p = begin();
  tern_value x = tern_parameter(p, TERN_F32, 2, DIMS(2, 3));
  assert_int_equal(tern_reshape(p, x, 2, DIMS(2, 3)), x);
  assert_int_equal(tern_transpose(p, x, INTS(0, 1)), x);
  assert_int_equal(tern_slice(p, x, DIMS(0, 0), DIMS(2, 3), DIMS(1, 1)), x);
  assert_int_equal(tern_broadcast_to(p, x, 2, DIMS(2, 3)), x);
  assert_int_equal(tern_convert(p, x, TERN_F32), x);
  assert_int_equal(tern_reduce(p, TERN_SUM, x, 0, NULL), x);
  assert_int_equal(tern_concatenate(p, 1, &x, 0), x);
  assert_int_equal(p->n_ops, 1);
  tern_program_free(p);
}

static void test_broadcasting(void **state) {
  (void)state;
  tern_program *p = begin();
  tern_value x = tern_parameter(p, TERN_F32, 3, DIMS(5, 1, 3)), y = tern_parameter(p, TERN_F32, 2, DIMS(4, 1));
  tern_value z = tern_add(p, x, y);
  assert_int_equal(tern_value_rank(p, z), 3);
  assert_memory_equal(tern_value_dims(p, z), DIMS(5, 4, 3), 24);
  tern_value chosen = tern_select(p, tern_compare(p, TERN_LT, x, y), x, tern_constant_float(p, TERN_F32, 0, NULL, 0));
  assert_memory_equal(tern_value_dims(p, chosen), DIMS(5, 4, 3), 24);
  assert_null(tern_program_finish(p));
  tern_program_free(p);
}

static void test_the_first_error_is_kept(void **state) {
  (void)state;
  tern_program *p = begin();
  tern_value x = tern_parameter(p, TERN_F32, 2, DIMS(8, 4)), y = tern_parameter(p, TERN_F32, 1, DIMS(3));
  tern_value z = tern_add(p, x, y);
  assert_int_equal(z, TERN_NO_VALUE);
  assert_int_equal(tern_value_rank(p, z), 0);
  tern_result(p, tern_reshape(p, tern_exp(p, z), 1, DIMS(9)), -1);
  expect_error(p, "add: the shapes of f32[8,4], f32[3] do not broadcast: 4 and 3 differ in dimension 1");
}

static void test_errors_say_what(void **state) {
  (void)state;
  tern_program *p = begin();
  tern_value x = tern_parameter(p, TERN_F32, 2, DIMS(8, 4));
  tern_reshape(p, x, 1, DIMS(33));
  expect_error(p, "reshape(f32[8,4]): 32 elements cannot take the shape [33]");
  p = begin();
  tern_exp(p, tern_parameter(p, TERN_I64, 0, NULL));
  expect_error(p, "exponential(i64[]): is not defined for i64");
  p = begin();
  tern_exp(p, 5);
  expect_error(p, "exponential(nothing): operand 0 (%5) is no value");
  p = begin();
  tern_add(p, tern_parameter(p, TERN_F32, 0, NULL), tern_parameter(p, TERN_F64, 0, NULL));
  expect_error(p, "different dtypes, f32 and f64");
  p = begin();
  x = tern_parameter(p, TERN_F32, 2, DIMS(8, 4));
  tern_dot(p, x, x, 0, NULL, NULL, 1, INTS(1), INTS(0));
  expect_error(p, "dot_general(f32[8,4], f32[8,4]): the contracted sizes differ: 4 and 8");
  p = begin();
  tern_parameter(p, TERN_F32, 3, DIMS(1ll << 40, 1ll << 20, 1ll << 20));
  expect_error(p, "too many elements");
  p = begin();
  tern_slice(p, tern_parameter(p, TERN_F32, 1, DIMS(8)), DIMS(2), DIMS(9), DIMS(1));
  expect_error(p, "[2:9:1] is no range of dimension 0 of size 8");
  p = begin();
  x = tern_parameter(p, TERN_F32, 1, DIMS(8));
  tern_result(p, x, 0);
  tern_result(p, x, 0);
  expect_error(p, "parameter 0 is reused by two results");
}

static void test_shapes(void **state) {
  (void)state;
  tern_program *p = begin();
  tern_value x = tern_parameter(p, TERN_F32, 4, DIMS(2, 6, 9, 8)), w = tern_parameter(p, TERN_F32, 4, DIMS(4, 3, 3, 2));
  tern_window window = {.spatial = 2, .stride = {2, 1}, .pad_low = {1, 0}, .pad_high = {1, 0}, .dilation = {1, 2}, .groups = 2};
  tern_value y = tern_convolution(p, x, w, &window);
  assert_memory_equal(tern_value_dims(p, y), DIMS(2, 4, 5, 6), 32);
  tern_conv_input_grad(p, y, w, &window, tern_value_dims(p, x));
  tern_conv_weight_grad(p, x, y, &window, tern_value_dims(p, w));
  tern_window pool = {.spatial = 2, .stride = {2, 2}, .size = {3, 3}, .pad_low = {1, 1}, .pad_high = {1, 1}, .dilation = {1, 1}};
  tern_value pooled[2];
  tern_max_pool(p, x, &pool, DIMS(5, 4), pooled);
  assert_int_equal(tern_value_dtype(p, pooled[1]), TERN_I64);
  tern_max_pool_grad(p, pooled[0], pooled[1], &pool, tern_value_dims(p, x));
  tern_avg_pool_grad(p, tern_avg_pool(p, x, &pool, DIMS(5, 4)), &pool, tern_value_dims(p, x));
  tern_value index = tern_parameter(p, TERN_I64, 2, DIMS(7, 5));
  tern_value taken = tern_take(p, x, index, 1);
  assert_memory_equal(tern_value_dims(p, taken), DIMS(2, 7, 5, 9, 8), 40);
  tern_put(p, x, index, taken, 1, TERN_COMBINE_ADD);
  tern_value padded = tern_pad(p, w, tern_constant_float(p, TERN_F32, 0, NULL, 0), DIMS(0, -1, 2, 0), DIMS(0, 0, 0, 1), DIMS(0, 0, 1, 3));
  assert_memory_equal(tern_value_dims(p, padded), DIMS(4, 2, 7, 6), 32);
  tern_value q = tern_parameter(p, TERN_BF16, 4, DIMS(2, 8, 5, 16)), k = tern_parameter(p, TERN_BF16, 4, DIMS(2, 4, 6, 16)), attended[2], gradients[3];
  tern_value scale = tern_scalar(p, TERN_F32), mask = tern_parameter(p, TERN_BOOL, 2, DIMS(1, 6));
  tern_attention(p, q, k, k, mask, scale, false, attended);
  assert_int_equal(tern_value_dtype(p, attended[1]), TERN_F32);
  tern_attention_grad(p, attended[0], q, k, k, attended[0], attended[1], TERN_NO_VALUE, scale, true, gradients);
  tern_value normed[4];
  tern_batch_norm(p, x, TERN_NO_VALUE, TERN_NO_VALUE, scale, normed);
  tern_batch_norm_grad(p, x, x, TERN_NO_VALUE, normed[1], normed[2], true, gradients);
  tern_layer_norm(p, q, TERN_NO_VALUE, TERN_NO_VALUE, scale, 2, normed);
  assert_memory_equal(tern_value_dims(p, normed[2]), DIMS(2, 8, 1, 1), 32);
  tern_layer_norm_grad(p, q, q, normed[1], normed[2], TERN_NO_VALUE, 2, gradients);
  tern_status status = tern_program_finish(p);
  if (status) print_error("%s\n", tern_error_message(status));
  assert_null(status);
  tern_program_free(p);
}

static void test_huge_numbers_do_not_overflow(void **state) {
  (void)state;
  tern_program *p = begin();
  tern_value x = tern_parameter(p, TERN_F32, 1, DIMS(8)), zero = tern_constant_float(p, TERN_F32, 0, NULL, 0);
  tern_value one = tern_slice(p, x, DIMS(2), DIMS(8), DIMS(INT64_MAX));
  assert_int_equal(tern_value_dims(p, one)[0], 1);
  tern_update_slice(p, x, one, DIMS(7), DIMS(INT64_MAX));
  assert_null(p->error);
  tern_pad(p, x, zero, DIMS(0), DIMS(0), DIMS(INT64_MAX / 2));
  expect_error(p, "make no size of dimension 0");
  p = begin();
  x = tern_parameter(p, TERN_F32, 3, DIMS(1, 1, 8));
  tern_convolution(p, x, x, &(tern_window){.spatial = 1, .stride = {1}, .dilation = {INT64_MAX / 2}, .groups = 1});
  expect_error(p, "must fit in 32 bits");
}

static void test_the_verifier_sees_broken_rewrites(void **state) {
  (void)state;
  tern_program *p = begin();
  tern_value x = tern_parameter(p, TERN_F32, 2, DIMS(2, 3));
  tern_program_append(p, TERN_OP_EXP, 1, &x, NULL, 1, &(tern_value_info){.dtype = TERN_F32, .rank = 2, .dims = DIMS(2, 4)});
  expect_error(p, "operation 1: result 0 is f32[2,4] but must be f32[2,3]");
  p = begin();
  x = tern_parameter(p, TERN_F32, 0, NULL);
  x = tern_exp(p, x);
  p->ops[1].operands[0] = x;
  expect_error(p, "operand 0 (%1) is not defined yet");
}

static void test_large_programs_grow(void **state) {
  (void)state;
  tern_program *p = begin();
  tern_value x = tern_parameter(p, TERN_F32, 1, DIMS(4));
  for (int i = 0; i < 100000; i++) x = tern_negate(p, x);
  tern_result(p, x, -1);
  assert_null(tern_program_finish(p));
  assert_int_equal(p->n_ops, 100001);
  tern_program_free(p);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_text),          cmocka_unit_test(test_constants), cmocka_unit_test(test_identities_return_their_operand), cmocka_unit_test(test_broadcasting),
      cmocka_unit_test(test_the_first_error_is_kept), cmocka_unit_test(test_errors_say_what), cmocka_unit_test(test_shapes), cmocka_unit_test(test_the_verifier_sees_broken_rewrites),
      cmocka_unit_test(test_large_programs_grow),   cmocka_unit_test(test_huge_numbers_do_not_overflow),
  };
  return cmocka_run_group_tests_name("ir: build", tests, NULL, NULL);
}
