/* Type promotion, casts, numbers and broadcasting against tables that torch 2.13 printed (torch.result_type and torch.can_cast for every pair). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>
#include "aten/helpers.h"
#include "aten/pointwise.h"

/* One letter for each dtype, in the order of dtypes.def; '-' where torch has no common type, or one that tern has not (ComplexHalf). */
static const char letters[] = "?BbhilHIQegfdFD";
static const tern_dtype number_dtypes[] = {TERN_BOOL, TERN_I64, TERN_F64, TERN_C128}; /* what Python numbers become */

static char letter_of(tern_dtype dtype) { return dtype < TERN_DTYPE_COUNT ? letters[dtype] : '-'; }

enum { DIMENSIONED, ZERO_DIM, WRAPPED };
static tern_argument operand(tern_dtype dtype, int category) {
  static const int64_t one = 1;
  return (tern_argument){
      .tag = TERN_ARG_TENSOR,
      .u.tensor = {.sizes = &one, .strides = &one, .rank = category == DIMENSIONED, .dtype = (uint8_t)dtype, .is_wrapped_number = category == WRAPPED}};
}

static void expect_pair(tern_dtype a, int category_a, tern_dtype b, int category_b, char expected) {
  tern_argument operands[2] = {operand(a, category_a), operand(b, category_b)};
  for (int swapped = 0; swapped < 2; swapped++) {
    tern_promotion p = TERN_PROMOTION_START;
    tern_promotion_add(&p, &operands[swapped]);
    tern_promotion_add(&p, &operands[!swapped]);
    char got = letter_of(tern_promotion_result(&p));
    if (got != expected) fail_msg("%s (%d) and %s (%d): %c, not %c", tern_dtype_name(a), category_a, tern_dtype_name(b), category_b, got, expected);
  }
}

static void tensors_of_one_category(void **state) {
  (void)state;
  static const char *const expected[] = {
      "?Bbhil---egfdFD", "BBhhil---egfdFD", "bhbhil---egfdFD", "hhhhil---egfdFD", "iiiiil---egfdFD", "llllll---egfdFD", "------H--egfd--", "-------I-egfd--",
      "--------Qegfd--", "eeeeeeeeeeffdFD", "gggggggggfgfdFD", "ffffffffffffdFD", "dddddddddddddDD", "FFFFFF---FFFDFD", "DDDDDD---DDDDDD",
  };
  for (int a = 0; a < TERN_DTYPE_COUNT; a++)
    for (int b = 0; b < TERN_DTYPE_COUNT; b++) {
      expect_pair((tern_dtype)a, DIMENSIONED, (tern_dtype)b, DIMENSIONED, expected[a][b]);
      expect_pair((tern_dtype)a, ZERO_DIM, (tern_dtype)b, ZERO_DIM, expected[a][b]);
      assert_int_equal(letter_of(tern_promote_types((tern_dtype)a, (tern_dtype)b)), expected[a][b]);
    }
}

static void a_dimensioned_tensor_outranks_a_scalar_tensor(void **state) {
  (void)state;
  static const char *const expected[] = {
      "?Bbhil---egfdFD", "BBBBBBBBBegfdFD", "bbbbbbbbbegfdFD", "hhhhhhhhhegfdFD", "iiiiiiiiiegfdFD", "lllllllllegfdFD", "HHHHHHHHHegfdFD", "IIIIIIIIIegfdFD",
      "QQQQQQQQQegfdFD", "eeeeeeeeeeeee--", "gggggggggggggFF", "fffffffffffffFF", "dddddddddddddDD", "FFFFFFFFFFFFFFF", "DDDDDDDDDDDDDDD",
  };
  for (int a = 0; a < TERN_DTYPE_COUNT; a++)
    for (int b = 0; b < TERN_DTYPE_COUNT; b++) expect_pair((tern_dtype)a, DIMENSIONED, (tern_dtype)b, ZERO_DIM, expected[a][b]);
}

static void numbers_are_weak(void **state) {
  (void)state;
  static const char *const expected[] = {"?lfF", "BBfF", "bbfF", "hhfF", "iifF", "llfF", "HHfF", "IIfF",
                                         "QQfF", "eee-", "gggF", "fffF", "dddD", "FFFF", "DDDD"};
  static const char *const numbers[] = {"?lfF", "llfF", "fffF", "FFFF"};
  for (int a = 0; a < TERN_DTYPE_COUNT; a++)
    for (int b = 0; b < 4; b++) {
      expect_pair((tern_dtype)a, DIMENSIONED, number_dtypes[b], WRAPPED, expected[a][b]);
      expect_pair((tern_dtype)a, ZERO_DIM, number_dtypes[b], WRAPPED, expected[a][b]);
    }
  for (int a = 0; a < 4; a++)
    for (int b = 0; b < 4; b++) expect_pair(number_dtypes[a], WRAPPED, number_dtypes[b], WRAPPED, numbers[a][b]);
}

static void the_default_dtype_decides_for_numbers(void **state) {
  (void)state;
  tern_argument half = {.tag = TERN_ARG_DOUBLE, .u.d = 0.5}, integers = operand(TERN_I32, DIMENSIONED);
  tern_aten_set_default_dtype(TERN_F64);
  tern_promotion p = TERN_PROMOTION_START;
  tern_promotion_add(&p, &integers);
  tern_promotion_add(&p, &half);
  tern_aten_set_default_dtype(TERN_F32);
  assert_int_equal(tern_promotion_result(&p), TERN_F64);
}

static void casts(void **state) {
  (void)state;
  static const char *const expected[] = {
      "111111111111111", ".11111111111111", ".11111111111111", ".11111111111111", ".11111111111111", ".11111111111111", ".11111111111111", ".11111111111111",
      ".11111111111111", ".........111111", ".........111111", ".........111111", ".........111111", ".............11", ".............11",
  };
  for (int a = 0; a < TERN_DTYPE_COUNT; a++)
    for (int b = 0; b < TERN_DTYPE_COUNT; b++) assert_int_equal(tern_can_cast((tern_dtype)a, (tern_dtype)b), expected[a][b] == '1');
}

static void numbers_that_fit(void **state) {
  (void)state;
  const struct {
    tern_argument number;
    tern_dtype dtype;
    bool fits;
  } cases[] = {
      {{.tag = TERN_ARG_INT, .u.i = 255}, TERN_U8, true},           {{.tag = TERN_ARG_INT, .u.i = 256}, TERN_U8, false},
      {{.tag = TERN_ARG_INT, .u.i = -255}, TERN_U8, true},          {{.tag = TERN_ARG_INT, .u.i = -256}, TERN_U8, false},
      {{.tag = TERN_ARG_INT, .u.i = -128}, TERN_I8, true},          {{.tag = TERN_ARG_INT, .u.i = 128}, TERN_I8, false},
      {{.tag = TERN_ARG_DOUBLE, .u.d = 65504}, TERN_F16, true},     {{.tag = TERN_ARG_DOUBLE, .u.d = 65520}, TERN_F16, false},
      {{.tag = TERN_ARG_DOUBLE, .u.d = -INFINITY}, TERN_F16, true}, {{.tag = TERN_ARG_DOUBLE, .u.d = NAN}, TERN_I32, false},
      {{.tag = TERN_ARG_DOUBLE, .u.d = 1e39}, TERN_F32, false},     {{.tag = TERN_ARG_DOUBLE, .u.d = 1e39}, TERN_BF16, false},
      {{.tag = TERN_ARG_INT, .u.i = 7}, TERN_BOOL, true},
  };
  for (size_t i = 0; i < TERN_COUNT(cases); i++)
    if (tern_number_fits(&cases[i].number, cases[i].dtype) != cases[i].fits) fail_msg("case %d", (int)i);
}

static void numbers_are_converted_as_torch_does(void **state) {
  (void)state;
  static tern_draft draft;
  float single;
  tern_draft_start(&draft);
  tern_draft_int(&draft, TERN_U8, 300, false);      /* wraps to 44 */
  tern_draft_double(&draft, TERN_BF16, 0.1, false); /* rounds to bf16, kept as f32 */
  tern_draft_double(&draft, TERN_I32, -2.9, false); /* truncates */
  uint16_t bits = tern_f32_to_f16(1.5f);
  tern_argument number = {.tag = TERN_ARG_TENSOR, .u.tensor = {.device = TERN_ON_CPU, .dtype = TERN_F16, .host = &bits}};
  assert_true(tern_draft_number(&draft, &number, TERN_F32, true));
  assert_int_equal(draft.n_scalars, 4);
  assert_int_equal(draft.scalars[0].bits, 44);
  memcpy(&single, &draft.scalars[1].bits, 4);
  assert_true(single == 0.10009765625f);
  assert_int_equal(draft.scalars[1].dtype, TERN_F32);
  assert_int_equal((int32_t)draft.scalars[2].bits, -2);
  memcpy(&single, &draft.scalars[3].bits, 4);
  assert_true(single == 1.5f);
}

static void shapes_broadcast(void **state) {
  (void)state;
  int64_t sizes[TERN_MAX_TENSOR_RANK] = {3, 1};
  int rank = 2;
  assert_true(tern_broadcast_shape(&rank, sizes, 3, (const int64_t[]){2, 1, 4}));
  assert_int_equal(rank, 3);
  assert_memory_equal(sizes, ((const int64_t[]){2, 3, 4}), 3 * sizeof *sizes);
  assert_true(tern_broadcast_shape(&rank, sizes, 0, NULL));
  assert_true(tern_broadcast_shape(&rank, sizes, 1, (const int64_t[]){4}));
  assert_false(tern_broadcast_shape(&rank, sizes, 1, (const int64_t[]){3}));
  int64_t empty[TERN_MAX_TENSOR_RANK] = {1};
  rank = 1;
  assert_true(tern_broadcast_shape(&rank, empty, 1, (const int64_t[]){0}));
  assert_int_equal(empty[0], 0);
}

static void dimensions_wrap(void **state) {
  (void)state;
  int dim;
  assert_true(tern_wrap_dim(-1, 3, &dim) && dim == 2);
  assert_true(tern_wrap_dim(0, 0, &dim) && dim == 0);
  assert_true(tern_wrap_dim(-1, 0, &dim) && dim == 0);
  assert_false(tern_wrap_dim(3, 3, &dim));
  assert_false(tern_wrap_dim(-4, 3, &dim));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(tensors_of_one_category),
      cmocka_unit_test(a_dimensioned_tensor_outranks_a_scalar_tensor),
      cmocka_unit_test(numbers_are_weak),
      cmocka_unit_test(the_default_dtype_decides_for_numbers),
      cmocka_unit_test(casts),
      cmocka_unit_test(numbers_that_fit),
      cmocka_unit_test(numbers_are_converted_as_torch_does),
      cmocka_unit_test(shapes_broadcast),
      cmocka_unit_test(dimensions_wrap),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
