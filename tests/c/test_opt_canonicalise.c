/* canonicalise: what it folds, and that it never changes a bit: random programs are evaluated before and after. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include "../../src/opt/opt.h"
#include "evaluate.h"

#define DIMS(...) ((int64_t[]){__VA_ARGS__})
#define INTS(...) ((int[]){__VA_ARGS__})

static tern_program *begin(void) {
  tern_program *p;
  assert_null(tern_program_new(&p));
  return p;
}

/* Canonicalises `p` (freed) and compares its text. */
static void expect(tern_program *p, const char *expected) {
  tern_program *out;
  assert_null(tern_program_finish(p));
  assert_null(tern_canonicalise(p, &out));
  assert_null(tern_program_finish(out));
  char *text = tern_program_text(out);
  assert_string_equal(text, expected);
  free(text);
  tern_program_free(out);
  tern_program_free(p);
}

static void test_views_of_views(void **state) {
  (void)state;
  tern_program *p = begin();
  tern_value x = tern_parameter(p, TERN_F32, 2, DIMS(6, 4));
  tern_result(p, tern_reshape(p, tern_reshape(p, x, 1, DIMS(24)), 2, DIMS(6, 4)), -1);
  tern_result(p, tern_transpose(p, tern_transpose(p, x, INTS(1, 0)), INTS(1, 0)), -1);
  tern_result(p, tern_slice(p, tern_slice(p, x, DIMS(1, 0), DIMS(6, 4), DIMS(2, 1)), DIMS(1, 1), DIMS(3, 4), DIMS(1, 2)), -1);
  expect(p, "%0 = parameter 0 : f32[6,4]\n"
            "%1 = slice %0 {start = [3,1], limit = [6,4], stride = [2,2]} : f32[2,2]\n"
            "return %0, %0, %1\n");
  p = begin();
  x = tern_parameter(p, TERN_F32, 1, DIMS(3));
  tern_value row = tern_reshape(p, x, 4, DIMS(1, 3, 1, 1));
  tern_result(p, tern_broadcast_to(p, row, 4, DIMS(2, 3, 4, 5)), -1);
  tern_result(p, tern_broadcast_in_dim(p, tern_broadcast_in_dim(p, x, 2, DIMS(3, 7), INTS(0)), 3, DIMS(7, 2, 3), INTS(2, 0)), -1);
  tern_result(p, tern_transpose(p, row, INTS(1, 0, 3, 2)), -1);
  expect(p, "%0 = parameter 0 : f32[3]\n"
            "%1 = broadcast_in_dim %0 {dims = [1]} : f32[2,3,4,5]\n"
            "%2 = broadcast_in_dim %0 {dims = [2]} : f32[7,2,3]\n"
            "%3 = reshape %0 : f32[3,1,1,1]\n"
            "return %1, %2, %3\n");
}

static void test_moves(void **state) {
  (void)state;
  tern_program *p = begin();
  tern_value x = tern_parameter(p, TERN_F32, 1, DIMS(8)), u = tern_parameter(p, TERN_F32, 1, DIMS(3));
  tern_value updated = tern_update_slice(p, x, u, DIMS(1), DIMS(2));
  tern_result(p, tern_slice(p, updated, DIMS(1), DIMS(6), DIMS(2)), -1); /* what was written */
  tern_result(p, tern_slice(p, updated, DIMS(6), DIMS(8), DIMS(1)), -1); /* beside it */
  tern_result(p, tern_update_slice(p, x, tern_negate(p, x), DIMS(0), DIMS(1)), -1);
  tern_result(p, tern_pad(p, x, tern_constant_float(p, TERN_F32, 0, NULL, 0), DIMS(0), DIMS(0), DIMS(0)), -1);
  expect(p, "%0 = parameter 0 : f32[8]\n%1 = parameter 1 : f32[3]\n"
            "%2 = slice %0 {start = [6], limit = [8]} : f32[2]\n%3 = negate %0 : f32[8]\nreturn %1, %2, %3, %0\n");
}

static void test_arithmetic_is_folded_only_where_exact(void **state) {
  (void)state;
  tern_program *p = begin();
  tern_value x = tern_parameter(p, TERN_F32, 1, DIMS(8)), n = tern_parameter(p, TERN_I32, 1, DIMS(8));
  tern_value zero = tern_constant_float(p, TERN_F32, 0, NULL, 0.0), minus_zero = tern_constant_float(p, TERN_F32, 0, NULL, -0.0), one = tern_constant_float(p, TERN_F32, 0, NULL, 1);
  tern_result(p, tern_add(p, x, zero), -1); /* stays */
  tern_result(p, tern_add(p, minus_zero, x), -1);
  tern_result(p, tern_subtract(p, x, zero), -1);
  tern_result(p, tern_divide(p, tern_multiply(p, one, x), one), -1);
  tern_result(p, tern_add(p, n, tern_constant_int(p, TERN_I32, 0, NULL, 0)), -1);
  tern_result(p, tern_convert(p, tern_convert(p, n, TERN_I64), TERN_I32), -1);
  tern_result(p, tern_convert(p, tern_convert(p, n, TERN_I16), TERN_I32), -1); /* stays */
  expect(p, "%0 = parameter 0 : f32[8]\n%1 = parameter 1 : i32[8]\n%2 = constant 0 : f32[]\n%3 = broadcast_in_dim %2 {dims = []} : f32[8]\n%4 = add %0, %3 : f32[8]\n"
            "%5 = convert %1 : i16[8]\n%6 = convert %5 : i32[8]\nreturn %4, %0, %0, %0, %1, %1, %6\n");
}

static void test_equal_small_operations_are_done_once(void **state) {
  (void)state;
  tern_program *p = begin();
  tern_value x = tern_parameter(p, TERN_F32, 1, DIMS(8)), large = tern_parameter(p, TERN_F32, 1, DIMS(100000)), index = tern_parameter(p, TERN_I64, 1, DIMS(2));
  tern_check_index(p, index, 0, 7);
  tern_check_index(p, index, 0, 7);
  tern_result(p, tern_add(p, tern_exp(p, x), tern_exp(p, x)), -1);
  tern_value first = tern_exp(p, large), second = tern_exp(p, large);
  tern_result(p, tern_add(p, first, second), 1); /* as in activation checkpointing: not merged */
  tern_exp(p, tern_log(p, x));                                            /* dead */
  expect(p, "%0 = parameter 0 : f32[8]\n%1 = parameter 1 : f32[100000]\n%2 = parameter 2 : i64[2]\ncheck %2 {low = 0, high = 7}\n"
            "%3 = exponential %0 : f32[8]\n%4 = add %3, %3 : f32[8]\n%5 = exponential %1 : f32[100000]\n%6 = exponential %1 : f32[100000]\n%7 = add %5, %6 : f32[100000]\n"
            "return %4, %7 (reuses 1)\n");
}

/* ---- random programs ---- */
static uint64_t seed = 0x9E3779B97F4A7C15ull;
static int64_t pick(int64_t below) {
  seed ^= seed << 13, seed ^= seed >> 7, seed ^= seed << 17;
  return (int64_t)((seed >> 11) % (uint64_t)below);
}

static tern_value random_view(tern_program *p, tern_value x) {
  int rank = tern_value_rank(p, x);
  int64_t dims[TERN_MAX_RANK], start[TERN_MAX_RANK], limit[TERN_MAX_RANK], stride[TERN_MAX_RANK];
  int order[TERN_MAX_RANK];
  for (int i = 0; i < rank; i++) dims[i] = tern_value_dims(p, x)[i], order[i] = i;
  switch (pick(6)) {
    case 0: /* reshape: flat, or a dimension of size 1 more */
      if (pick(2) || rank >= 5) return tern_reshape(p, x, 1, DIMS(tern_dims_count(rank, dims)));
      int at = (int)pick(rank + 1);
      for (int i = rank; i > at; i--) dims[i] = dims[i - 1];
      dims[at] = 1;
      return tern_reshape(p, x, rank + 1, dims);
    case 1: { /* split */
      int at2 = rank ? (int)pick(rank) : 0;
      if (!rank || rank >= 5 || dims[at2] % 2) return x;
      for (int i = rank; i > at2; i--) dims[i] = dims[i - 1];
      dims[at2] /= 2, dims[at2 + 1] = 2;
      return tern_reshape(p, x, rank + 1, dims);
    }
    case 2:
      for (int i = rank - 1; i > 0; i--) {
        int j = (int)pick(i + 1), other = order[i];
        order[i] = order[j], order[j] = other;
      }
      return tern_transpose(p, x, order);
    case 3:
      for (int i = 0; i < rank; i++) {
        start[i] = pick(3) ? 0 : pick(dims[i] + 1);
        limit[i] = pick(3) ? dims[i] : start[i] + pick(dims[i] - start[i] + 1);
        stride[i] = 1 + pick(2);
        if (limit[i] == start[i] && dims[i] && pick(4)) start[i] = 0, limit[i] = dims[i];
      }
      return tern_slice(p, x, start, limit, stride);
    case 4: /* broadcast */
      if (rank >= 5 || tern_dims_count(rank, dims) > 500) return x;
      for (int i = rank - 1; i >= 0; i--) dims[i + 1] = dims[i] == 1 && pick(2) ? 3 : dims[i];
      dims[0] = 1 + pick(2);
      return tern_broadcast_to(p, x, rank + 1, dims);
    default: return rank ? tern_reverse(p, x, 1, INTS((int)pick(rank))) : x;
  }
}

static tern_value random_op(tern_program *p, const tern_value *values, int n) {
  tern_value x = values[pick(n)], constant = tern_constant_float(p, TERN_F32, 0, NULL, (const double[]){0, -0.0, 1, 2}[pick(4)]);
  int rank = tern_value_rank(p, x);
  const int64_t *dims = tern_value_dims(p, x);
  switch (pick(8)) {
    case 0: return tern_add(p, x, constant);
    case 1: return tern_multiply(p, constant, x);
    case 2: return tern_subtract(p, x, tern_negate(p, x));
    case 3: { /* write through a view, read again */
      int64_t start[TERN_MAX_RANK], limit[TERN_MAX_RANK], stride[TERN_MAX_RANK];
      for (int i = 0; i < rank; i++) start[i] = dims[i] ? pick(dims[i]) : 0, stride[i] = 1 + pick(2), limit[i] = dims[i];
      tern_value part = tern_slice(p, x, start, limit, stride), updated = tern_update_slice(p, x, tern_negate(p, part), start, stride);
      if (pick(2)) return updated;
      for (int i = 0; i < rank; i++)
        if (pick(3) == 0) start[i] = 0, limit[i] = dims[i] ? 1 : 0;
      return tern_slice(p, updated, start, limit, stride);
    }
    case 4: {
      tern_value both[2] = {x, x};
      return rank && tern_dims_count(rank, dims) < 500 ? tern_concatenate(p, 2, both, (int)pick(rank)) : x;
    }
    default: return random_view(p, x);
  }
}

static void test_random_programs_keep_their_results(void **state) {
  (void)state;
  float inputs[2][24];
  for (int i = 0; i < 48; i++) inputs[i / 24][i % 24] = i % 7 ? (float)(i * 37 % 11 - 5) : -0.0f;
  const void *parameters[2] = {inputs[0], inputs[1]};
  int64_t before = 0, after = 0;
  for (int round = 0; round < 3000; round++) {
    tern_program *p = begin(), *out;
    tern_value values[40];
    int n = 0;
    values[n++] = tern_parameter(p, TERN_F32, 2, DIMS(4, 6));
    values[n++] = tern_parameter(p, TERN_F32, 3, DIMS(2, 3, 4));
    for (int i = (int)pick(20); i >= 0; i--, n++) values[n] = random_op(p, values, n);
    for (int i = 0; i < 3; i++) tern_result(p, values[n - 1 - pick(n < 6 ? n : 6)], -1);
    if (p->error) print_error("%s\n", tern_error_message(p->error));
    assert_null(p->error);
    assert_null(tern_program_finish(p));
    assert_null(tern_canonicalise(p, &out));
    tern_status status = tern_program_finish(out);
    if (status) print_error("%s\n%s", tern_error_message(status), tern_program_text(out));
    assert_null(status);
    void *expected[3], *found[3];
    assert_null(evaluate_plain(p, parameters, NULL, expected));
    assert_null(evaluate_plain(out, parameters, NULL, found));
    for (int i = 0; i < 3; i++) {
      size_t bytes = (size_t)tern_value_count(p, p->results[i].value) * sizeof(float);
      assert_int_equal(tern_value_count(p, p->results[i].value), tern_value_count(out, out->results[i].value));
      if (memcmp(expected[i], found[i], bytes) != 0) fail_msg("before:\n%safter:\n%s", tern_program_text(p), tern_program_text(out));
      free(expected[i]);
      free(found[i]);
    }
    before += p->n_ops, after += out->n_ops;
    tern_program_free(p);
    tern_program_free(out);
  }
  print_message("%lld operations became %lld\n", (long long)before, (long long)after);
  assert_true(after < before);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_views_of_views),
      cmocka_unit_test(test_moves),
      cmocka_unit_test(test_arithmetic_is_folded_only_where_exact),
      cmocka_unit_test(test_equal_small_operations_are_done_once),
      cmocka_unit_test(test_random_programs_keep_their_results),
  };
  return cmocka_run_group_tests_name("opt: canonicalise", tests, NULL, NULL);
}
