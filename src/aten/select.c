/* select: elementwise operators of three operands: clamp, where, masked_fill, lerp, addcmul, addcdiv. */
#include "pointwise.h"
#include "layout.h"
#include <math.h>

/* ---- addcmul, addcdiv: self + value * a * b, self + value * a / b, from left to right ---- */

static const tern_pointwise_rule addcmul_rule = {.n_operands = 3, .operands = {0, 1, 2}, .n_numbers = 1, .numbers = {{3, false, 1}}};
static const tern_pointwise_rule addcdiv_rule = {
    .n_operands = 3, .operands = {0, 1, 2}, .serves = TERN_SERVES_FLOATS, .n_numbers = 1, .numbers = {{3, false, 1}}};

TERN_POINTWISE(addcmul, addcmul_rule, tern_add(p, x, tern_multiply(p, tern_multiply(p, w.s[0], y), z)))
/* PyTorch refuses to divide integers here, whatever they are added to. */
static bool is_integral(const tern_argument *argument) { return argument->tag == TERN_ARG_TENSOR && argument->u.tensor.dtype < TERN_F16; }
static tern_verdict infer_addcdiv(const tern_call *call, tern_draft *draft) {
  if (is_integral(&call->arguments[1]) && is_integral(&call->arguments[2])) return TERN_REJECT;
  return tern_pointwise_infer(call, draft, &addcdiv_rule);
}
TERN_POINTWISE_LOWER(addcdiv, addcdiv_rule, tern_add(p, x, tern_divide(p, tern_multiply(p, w.s[0], y), z)))

/* ---- lerp: of the two equal formulas, the one that is exact at the nearer end ---- */

static const tern_pointwise_rule lerp_rule = {
    .n_operands = 2, .operands = {0, 1}, .serves = TERN_SERVES_FLOATS, .same_dtypes = true, .n_numbers = 1, .numbers = {{2, false, 0}}};
static const tern_pointwise_rule lerp_tensor_rule = {.n_operands = 3, .operands = {0, 1, 2}, .serves = TERN_SERVES_FLOATS, .same_dtypes = true};

static tern_value lerp_from_start(tern_program *p, tern_value start, tern_value end, tern_value weight) {
  return tern_add(p, start, tern_multiply(p, weight, tern_subtract(p, end, start)));
}
static tern_value lerp_from_end(tern_program *p, tern_dtype dtype, tern_value start, tern_value end, tern_value weight) {
  tern_value rest = tern_subtract(p, tern_number(p, dtype, 1), weight);
  return tern_subtract(p, end, tern_multiply(p, tern_subtract(p, end, start), rest));
}
static tern_value lerp_by_tensor(tern_program *p, tern_dtype dtype, tern_value start, tern_value end, tern_value weight) {
  tern_value is_near = tern_compare(p, TERN_LT, tern_abs(p, weight), tern_number(p, dtype, 0.5));
  return tern_select(p, is_near, lerp_from_start(p, start, end, weight), lerp_from_end(p, dtype, start, end, weight));
}

static tern_verdict infer_lerp(const tern_call *call, tern_draft *draft) {
  tern_verdict verdict = tern_pointwise_infer(call, draft, &lerp_rule);
  tern_draft_attr(draft, fabs(tern_arg_double(call, 2, 0)) < 0.5);
  return verdict;
}
TERN_POINTWISE_LOWER(lerp, lerp_rule, node->attrs[1] ? lerp_from_start(p, x, y, w.s[0]) : lerp_from_end(p, dtype, x, y, w.s[0]))
TERN_POINTWISE(lerp_tensor, lerp_tensor_rule, lerp_by_tensor(p, dtype, x, y, z))

/* ---- clamp: attrs = common dtype, then 1 for a lower and 2 for an upper bound. NaN stays; an upper bound below the lower one wins. ---- */

static tern_verdict infer_bounds(const tern_call *call, tern_draft *draft, int low, int high) {
  int present[3] = {0}, n = 1, rank = 0;
  int64_t sizes[TERN_MAX_TENSOR_RANK], which = 0;
  tern_promotion promotion = TERN_PROMOTION_START;
  if (low >= 0 && !tern_arg_is_none(call, low)) present[n++] = low, which |= 1;
  if (high >= 0 && !tern_arg_is_none(call, high)) present[n++] = high, which |= 2;
  if (!which) return TERN_REJECT;
  for (int i = 0; i < n; i++) {
    if (call->arguments[present[i]].tag == TERN_ARG_TENSOR && call->arguments[present[i]].u.tensor.rank > TERN_MAX_TENSOR_RANK) return TERN_FALL_BACK;
    tern_promotion_add(&promotion, &call->arguments[present[i]]);
    if (!tern_pointwise_shape(&call->arguments[present[i]], &rank, sizes)) return TERN_REJECT;
  }
  tern_dtype common = tern_promotion_result(&promotion);
  if (common == TERN_BOOL || common >= TERN_C64 || (common >= TERN_U16 && common <= TERN_U64)) return TERN_FALL_BACK;
  for (int i = 0; i < n; i++) {
    if (i && call->arguments[present[i]].tag != TERN_ARG_TENSOR && !tern_number_fits(&call->arguments[present[i]], common)) return TERN_FALL_BACK;
    tern_verdict verdict = tern_pointwise_operand(call, draft, present[i], common);
    if (verdict != TERN_RECORD) return verdict;
  }
  /* Bounds that are plain numbers are no operands of TensorIterator's. */
  if (call->arguments[present[1]].tag != TERN_ARG_TENSOR) draft->n_number_operands = 0;
  tern_draft_attr(draft, common);
  tern_draft_attr(draft, which);
  tern_draft_result(draft, common, rank, sizes)->layout = TERN_LIKE_OPERANDS;
  return TERN_RECORD;
}
static tern_verdict infer_clamp(const tern_call *call, tern_draft *draft) { return infer_bounds(call, draft, 1, 2); }
static tern_verdict infer_clamp_min(const tern_call *call, tern_draft *draft) { return infer_bounds(call, draft, 1, -1); }
static tern_verdict infer_clamp_max(const tern_call *call, tern_draft *draft) { return infer_bounds(call, draft, -1, 1); }

static const tern_pointwise_rule clamp_rule = {.n_operands = 3};
static tern_status lower_clamp(const tern_lowering *node, tern_value *results) {
  tern_pointwise w;
  int next = 1;
  tern_pointwise_begin(&w, node, &clamp_rule);
  tern_value v = w.x[0];
  if (node->attrs[1] & 1) v = tern_maximum(w.p, v, w.x[next++]);
  if (node->attrs[1] & 2) v = tern_minimum(w.p, v, w.x[next]);
  results[0] = tern_pointwise_finish(node, 0, v);
  return NULL;
}

/* ---- where ---- */

static tern_verdict infer_where(const tern_call *call, tern_draft *draft) {
  const tern_tensor *condition = tern_arg_tensor(call, 0);
  int rank = 0;
  int64_t sizes[TERN_MAX_TENSOR_RANK];
  tern_promotion promotion = TERN_PROMOTION_START;
  if (!condition || condition->device < 0) return condition && condition->rank == 0 ? TERN_FALL_BACK : TERN_REJECT;
  for (int i = 0; i < 3; i++) {
    if (call->arguments[i].tag == TERN_ARG_TENSOR && call->arguments[i].u.tensor.rank > TERN_MAX_TENSOR_RANK) return TERN_FALL_BACK;
    if (i) tern_promotion_add(&promotion, &call->arguments[i]);
    if (!tern_pointwise_shape(&call->arguments[i], &rank, sizes)) return TERN_REJECT;
  }
  tern_dtype common = tern_promotion_result(&promotion);
  if (condition->dtype != TERN_BOOL || common >= TERN_C64) return TERN_FALL_BACK; /* a u8 condition is deprecated, with a warning */
  for (int i = 0; i < 3; i++) {
    tern_verdict verdict = tern_pointwise_operand(call, draft, i, common);
    if (verdict != TERN_RECORD) return verdict;
  }
  tern_draft_attr(draft, common);
  tern_draft_result(draft, common, rank, sizes)->layout = TERN_LIKE_OPERANDS;
  return TERN_RECORD;
}
static tern_status lower_where(const tern_lowering *node, tern_value *results) {
  tern_dtype common = (tern_dtype)node->attrs[0];
  tern_value sides[2];
  for (int i = 0, next = 0; i < 2; i++) {
    tern_value v = node->operands[1 + i];
    if (v == TERN_NO_VALUE) v = node->scalars[next++];
    sides[i] = tern_convert(node->program, v, common);
  }
  results[0] = tern_pointwise_finish(node, 0, tern_select(node->program, node->operands[0], sides[0], sides[1]));
  return NULL;
}

/* ---- masked_fill: the value takes the tensor's dtype; a functional result is contiguous ---- */

static tern_verdict infer_masked_fill(const tern_call *call, tern_draft *draft) {
  const tern_tensor *x = tern_arg_tensor(call, 0), *mask = tern_arg_tensor(call, 1);
  const tern_argument *value = &call->arguments[2];
  int64_t sizes[TERN_MAX_TENSOR_RANK];
  if (!x || !mask || x->device < 0 || mask->device < 0) return TERN_REJECT;
  if (x->rank > TERN_MAX_TENSOR_RANK || mask->rank > TERN_MAX_TENSOR_RANK || x->dtype >= TERN_C64 || mask->dtype != TERN_BOOL) return TERN_FALL_BACK;
  if (tern_layout_writes_repeats(call, x)) return TERN_FALL_BACK;
  int rank = x->rank;
  for (int d = 0; d < rank; d++) sizes[d] = x->sizes[d];
  if (!tern_broadcast_shape(&rank, sizes, mask->rank, mask->sizes)) return TERN_REJECT;
  tern_verdict verdict = tern_draft_tensor(draft, x);
  if (verdict == TERN_RECORD) verdict = tern_draft_tensor(draft, mask);
  if (verdict != TERN_RECORD) return verdict;
  if (value->tag == TERN_ARG_TENSOR && value->u.tensor.device >= 0) {
    if (value->u.tensor.rank != 0) return TERN_REJECT;
    if (value->u.tensor.dtype >= TERN_C64) return TERN_FALL_BACK;
    verdict = tern_draft_tensor(draft, &value->u.tensor);
    if (verdict != TERN_RECORD) return verdict;
  } else if (!tern_number_fits(value, (tern_dtype)x->dtype) || !tern_draft_number(draft, value, (tern_dtype)x->dtype, false)) {
    return TERN_FALL_BACK;
  }
  tern_draft_result(draft, (tern_dtype)x->dtype, rank, sizes);
  return TERN_RECORD;
}
static tern_status lower_masked_fill(const tern_lowering *node, tern_value *results) {
  tern_program *p = node->program;
  tern_value x = node->operands[0], value = node->n_operands > 2 ? node->operands[2] : node->scalars[0];
  results[0] = tern_pointwise_finish(node, 0, tern_select(p, node->operands[1], tern_convert(p, value, tern_value_dtype(p, x)), x));
  return NULL;
}

const tern_aten_row tern_aten_select[] = {
    {"addcmul", "addcmul_", "addcmul.out", NULL, infer_addcmul, lower_addcmul, NULL},
    {"addcdiv", "addcdiv_", "addcdiv.out", NULL, infer_addcdiv, lower_addcdiv, NULL},
    {"lerp.Scalar", "lerp_.Scalar", "lerp.Scalar_out", NULL, infer_lerp, lower_lerp, NULL},
    {"lerp.Tensor", "lerp_.Tensor", "lerp.Tensor_out", NULL, infer_lerp_tensor, lower_lerp_tensor, NULL},
    {"clamp", "clamp_", "clamp.out", NULL, infer_clamp, lower_clamp, NULL},
    {"clamp.Tensor", "clamp_.Tensor", "clamp.Tensor_out", NULL, infer_clamp, lower_clamp, NULL},
    {"clamp_min", "clamp_min_", "clamp_min.out", NULL, infer_clamp_min, lower_clamp, NULL},
    {"clamp_min.Tensor", "clamp_min_.Tensor", "clamp_min.Tensor_out", NULL, infer_clamp_min, lower_clamp, NULL},
    {"clamp_max", "clamp_max_", "clamp_max.out", NULL, infer_clamp_max, lower_clamp, NULL},
    {"clamp_max.Tensor", "clamp_max_.Tensor", "clamp_max.Tensor_out", NULL, infer_clamp_max, lower_clamp, NULL},
    {"where.self", NULL, "where.self_out", NULL, infer_where, lower_where, NULL},
    {"masked_fill.Scalar", "masked_fill_.Scalar", "masked_fill.Scalar_out", NULL, infer_masked_fill, lower_masked_fill, NULL},
    {"masked_fill.Tensor", "masked_fill_.Tensor", "masked_fill.Tensor_out", NULL, infer_masked_fill, lower_masked_fill, NULL},
};
TERN_ATEN_FAMILY_END(select)
