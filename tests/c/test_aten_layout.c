/* The strides of elementwise results: cases whose expectation torch 2.13 printed. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include "aten/layout.h"

typedef struct shape {
  int rank;
  int64_t sizes[TERN_MAX_TENSOR_RANK], strides[TERN_MAX_TENSOR_RANK];
} shape;
typedef struct layout_case {
  const char *name;
  int n_operands;
  shape operands[3];
  int numbers;
  shape expected;
} layout_case;

static const layout_case cases[] = {
    {"contiguous", 2, {{2, {2, 3}, {3, 1}}, {2, {2, 3}, {3, 1}}}, 0, {2, {2, 3}, {3, 1}}},
    {"transposed, alike", 2, {{2, {2, 3}, {1, 2}}, {2, {2, 3}, {1, 2}}}, 0, {2, {2, 3}, {1, 2}}},
    {"transposed and contiguous: the first decides", 2, {{2, {2, 3}, {1, 2}}, {2, {2, 3}, {3, 1}}}, 0, {2, {2, 3}, {1, 2}}},
    {"contiguous and transposed", 2, {{2, {2, 3}, {3, 1}}, {2, {2, 3}, {1, 2}}}, 0, {2, {2, 3}, {3, 1}}},
    {"channels-last", 2, {{4, {2, 3, 4, 5}, {60, 1, 15, 3}}, {4, {2, 3, 4, 5}, {60, 1, 15, 3}}}, 0, {4, {2, 3, 4, 5}, {60, 1, 15, 3}}},
    {"channels-last and a bias", 2, {{4, {2, 3, 4, 5}, {60, 1, 15, 3}}, {3, {3, 1, 1}, {1, 1, 1}}}, 0, {4, {2, 3, 4, 5}, {60, 1, 15, 3}}},
    {"bias first", 2, {{3, {3, 1, 1}, {1, 1, 1}}, {4, {2, 3, 4, 5}, {60, 1, 15, 3}}}, 0, {4, {2, 3, 4, 5}, {60, 1, 15, 3}}},
    {"channels-last times a number", 1, {{4, {2, 3, 4, 5}, {60, 1, 15, 3}}}, 1, {4, {2, 3, 4, 5}, {60, 1, 15, 3}}},
    {"ambiguous: N C 1 1", 1, {{4, {2, 3, 1, 1}, {3, 1, 3, 3}}}, 0, {4, {2, 3, 1, 1}, {3, 1, 1, 1}}},
    {"ambiguous, with a number", 1, {{4, {2, 3, 1, 1}, {3, 1, 3, 3}}}, 1, {4, {2, 3, 1, 1}, {3, 1, 3, 3}}},
    {"dense permutation", 1, {{3, {2, 3, 4}, {3, 1, 6}}}, 0, {3, {2, 3, 4}, {3, 1, 6}}},
    {"gaps: an order, no gaps in the result", 1, {{2, {3, 4}, {2, 6}}}, 0, {2, {3, 4}, {1, 3}}},
    {"expanded", 1, {{2, {3, 4}, {1, 0}}}, 0, {2, {3, 4}, {4, 1}}},
    {"expanded twice", 1, {{2, {3, 4}, {0, 0}}}, 0, {2, {3, 4}, {4, 1}}},
    {"expanded and transposed", 2, {{2, {3, 4}, {1, 0}}, {2, {3, 4}, {1, 3}}}, 0, {2, {3, 4}, {1, 3}}},
    {"size 1 with an odd stride", 1, {{2, {1, 3}, {1, 1}}}, 1, {2, {1, 3}, {1, 1}}},
    {"size 1 with an odd stride, alone", 1, {{2, {1, 3}, {1, 1}}}, 0, {2, {1, 3}, {3, 1}}},
    {"scalar tensor", 2, {{2, {2, 3}, {1, 2}}, {0, {}, {}}}, 0, {2, {2, 3}, {1, 2}}},
    {"three operands", 3, {{2, {2, 3}, {1, 2}}, {2, {2, 1}, {1, 1}}, {1, {3}, {1}}}, 0, {2, {2, 3}, {1, 2}}},
    {"empty", 2, {{2, {3, 0}, {1, 3}}, {2, {3, 1}, {1, 1}}}, 0, {2, {3, 0}, {1, 3}}},
    {"rank 5", 1, {{5, {2, 4, 2, 3, 3}, {72, 6, 3, 1, 24}}}, 0, {5, {2, 4, 2, 3, 3}, {72, 6, 3, 1, 24}}},
    {"two orders", 2, {{3, {4, 2, 3}, {1, 12, 4}}, {3, {4, 2, 3}, {6, 1, 2}}}, 0, {3, {4, 2, 3}, {1, 12, 4}}},
    {"overlapping windows", 1, {{2, {3, 4}, {1, 1}}}, 0, {2, {3, 4}, {1, 3}}},
};

static tern_draft draft;

static void draft_operands(const layout_case *c) {
  tern_draft_start(&draft);
  for (int i = 0; i < c->n_operands; i++) {
    tern_tensor tensor = {
        .buffer = (tern_buffer *)&draft, .sizes = c->operands[i].sizes, .strides = c->operands[i].strides, .rank = c->operands[i].rank, .dtype = TERN_F32};
    assert_int_equal(tern_draft_tensor(&draft, &tensor), TERN_RECORD);
  }
  draft.n_number_operands = c->numbers;
}

static void results_are_laid_out_as_in_torch(void **state) {
  (void)state;
  for (size_t i = 0; i < TERN_COUNT(cases); i++) {
    const shape *expected = &cases[i].expected;
    int64_t strides[TERN_MAX_TENSOR_RANK];
    draft_operands(&cases[i]);
    tern_draft_output *output = tern_draft_result(&draft, TERN_F32, expected->rank, expected->sizes);
    output->layout = TERN_LIKE_OPERANDS;
    tern_layout_strides(&draft, output, strides);
    for (int d = 0; d < expected->rank; d++)
      if (strides[d] != expected->strides[d]) fail_msg("%s: stride %d is %d, not %d", cases[i].name, d, (int)strides[d], (int)expected->strides[d]);
  }
}

static void absent_operands_do_not_count(void **state) {
  (void)state;
  static const shape transposed = {2, {2, 3}, {1, 2}};
  const layout_case c = {"", 1, {transposed}, 0, transposed};
  int64_t strides[TERN_MAX_TENSOR_RANK];
  draft_operands(&c);
  tern_draft_optional(&draft, NULL);
  tern_draft_output *output = tern_draft_result(&draft, TERN_F32, 2, transposed.sizes);
  output->layout = TERN_LIKE_OPERANDS;
  tern_layout_strides(&draft, output, strides);
  assert_memory_equal(strides, transposed.strides, 2 * sizeof *strides);
}

static tern_output target_of(int rank, const int64_t *sizes, const int64_t *strides, int64_t offset) {
  tern_output target = {.buffer = (tern_buffer *)&draft, .dtype = TERN_F32, .view = {.rank = rank, .offset = offset}};
  memcpy(target.view.sizes, sizes, (size_t)rank * sizeof *sizes);
  memcpy(target.view.strides, strides, (size_t)rank * sizeof *strides);
  return target;
}

static void expect_refused(tern_status status, bool refused) {
  assert_int_equal(status != NULL, refused);
  tern_error_free(status);
}

static void targets_that_share_places_are_refused(void **state) {
  (void)state;
  const int64_t nine = 9, one = 1, square[2] = {3, 3}, rows[2] = {3, 1}, columns[2] = {1, 3}, none[2] = {1, 0};
  tern_output expanded = target_of(2, square, none, 0), front = target_of(1, &nine, &one, 0), matrix = target_of(2, square, rows, 0);
  expect_refused(tern_layout_check_target(&expanded), true);
  expect_refused(tern_layout_check_target(&front), false);
  struct {
    tern_output target;
    int rank;
    const int64_t *sizes, *strides;
    int64_t offset;
    bool refused;
  } pairs[] = {
      {front, 1, &nine, &one, 0, false},     /* itself */
      {front, 1, &nine, &one, 1, true},      /* shifted by one */
      {front, 1, &nine, &one, 9, false},     /* the next nine */
      {matrix, 2, square, columns, 0, true}, /* its own transpose */
      {front, 2, square, none, 0, false},    /* expanded: PyTorch finds it too hard to tell */
  };
  for (size_t i = 0; i < TERN_COUNT(pairs); i++) {
    tern_output other = target_of(pairs[i].rank, pairs[i].sizes, pairs[i].strides, pairs[i].offset);
    tern_operand operand = {other.buffer, TERN_F32, other.view};
    expect_refused(tern_layout_check_operand(&pairs[i].target, &operand), pairs[i].refused);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(results_are_laid_out_as_in_torch),
      cmocka_unit_test(absent_operands_do_not_count),
      cmocka_unit_test(targets_that_share_places_are_refused),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
