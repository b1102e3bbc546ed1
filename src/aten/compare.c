/* compare: comparisons and logic of two tensors, or a tensor and a number. The result is bool; in-place and out= targets take it as 0 and 1. */
#include "pointwise.h"

static const tern_pointwise_rule compare_rule = {.n_operands = 2, .operands = {0, 1}, .serves = TERN_SERVES_ALL, .to_bool = true};

TERN_POINTWISE(eq, compare_rule, tern_compare(p, TERN_EQ, x, y))
TERN_POINTWISE(ne, compare_rule, tern_compare(p, TERN_NE, x, y))
TERN_POINTWISE(lt, compare_rule, tern_compare(p, TERN_LT, x, y))
TERN_POINTWISE(le, compare_rule, tern_compare(p, TERN_LE, x, y))
TERN_POINTWISE(gt, compare_rule, tern_compare(p, TERN_GT, x, y))
TERN_POINTWISE(ge, compare_rule, tern_compare(p, TERN_GE, x, y))

/* A value other than 0 is true, NaN included. */
static tern_value truth(const tern_pointwise *w, tern_value x) {
  return w->dtype == TERN_BOOL ? x : tern_compare(w->p, TERN_NE, x, tern_number(w->p, w->dtype, 0));
}

TERN_POINTWISE(logical_and, compare_rule, tern_and(p, truth(&w, x), truth(&w, y)))
TERN_POINTWISE(logical_or, compare_rule, tern_or(p, truth(&w, x), truth(&w, y)))
TERN_POINTWISE(logical_xor, compare_rule, tern_xor(p, truth(&w, x), truth(&w, y)))

/* clang-format off */
#define COMPARE(id)                                                                       \
  {#id ".Tensor", #id "_.Tensor", #id ".Tensor_out", NULL, infer_##id, lower_##id, NULL}, \
  {#id ".Scalar", #id "_.Scalar", #id ".Scalar_out", NULL, infer_##id, lower_##id, NULL}
#define LOGIC(id) {#id, #id "_", #id ".out", NULL, infer_##id, lower_##id, NULL}
/* clang-format on */
const tern_aten_row tern_aten_compare[] = {
    COMPARE(eq), COMPARE(ne), COMPARE(lt), COMPARE(le), COMPARE(gt), COMPARE(ge), LOGIC(logical_and), LOGIC(logical_or), LOGIC(logical_xor),
};
#undef COMPARE
#undef LOGIC
TERN_ATEN_FAMILY_END(compare)
