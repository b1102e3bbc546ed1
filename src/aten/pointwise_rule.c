/* pointwise_rule: infer and the frame of lower for every elementwise row, from its rule (pointwise.h).
 *
 * In a recorded node an absent operand stands for the next scalar: x + 2 is (x, absent) with one scalar. The scalars of operands come first, then the rule's
 * further numbers. attrs[0] is the common dtype. */
#include "pointwise.h"
#include <math.h>

static bool is_served(tern_serves serves, tern_dtype dtype) {
  static const uint32_t sets[] = {
      [TERN_SERVES_NUMBERS] =
          1u << TERN_U8 | 1u << TERN_I8 | 1u << TERN_I16 | 1u << TERN_I32 | 1u << TERN_I64 | 1u << TERN_F16 | 1u << TERN_BF16 | 1u << TERN_F32 | 1u << TERN_F64,
      [TERN_SERVES_ALL] = 1u << TERN_BOOL | 1u << TERN_U8 | 1u << TERN_I8 | 1u << TERN_I16 | 1u << TERN_I32 | 1u << TERN_I64 | 1u << TERN_F16 |
                          1u << TERN_BF16 | 1u << TERN_F32 | 1u << TERN_F64,
      [TERN_SERVES_FLOATS] = 1u << TERN_F16 | 1u << TERN_BF16 | 1u << TERN_F32 | 1u << TERN_F64,
      [TERN_SERVES_INTEGRAL] = 1u << TERN_BOOL | 1u << TERN_U8 | 1u << TERN_I8 | 1u << TERN_I16 | 1u << TERN_I32 | 1u << TERN_I64,
  };
  return dtype < TERN_DTYPE_COUNT && (sets[serves] >> dtype & 1);
}

bool tern_number_fits(const tern_argument *argument, tern_dtype dtype) {
  bool is_double;
  double d;
  int64_t i;
  if (!tern_number_read(argument, &is_double, &d, &i)) return false;
  if (dtype == TERN_BOOL || dtype == TERN_F64) return true;
  if (tern_dtype_is_float(dtype)) {
    double largest = dtype == TERN_F16 ? 65504.0 : dtype == TERN_BF16 ? 0x1.FEp127 : 0x1.FFFFFEp127;
    if (!is_double) d = (double)i;
    return isnan(d) || isinf(d) || fabs(d) <= largest;
  }
  int bits = (int)tern_dtype_size(dtype) * 8;
  if (tern_dtype_is_signed(dtype)) {
    double limit = ldexp(1, bits - 1);
    if (is_double) return d >= -limit && d < limit;
    return bits == 64 || (i >= -(INT64_C(1) << (bits - 1)) && i < INT64_C(1) << (bits - 1));
  }
  if (is_double) return d >= 0 && d < ldexp(1, bits);
  if (bits == 64) return true;
  return (i < 0 ? -i : i) < INT64_C(1) << bits; /* negative numbers may wrap around */
}

bool tern_pointwise_shape(const tern_argument *argument, int *rank, int64_t *sizes) {
  if (argument->tag != TERN_ARG_TENSOR) return true;
  return tern_broadcast_shape(rank, sizes, argument->u.tensor.rank, argument->u.tensor.sizes);
}

tern_verdict tern_pointwise_operand(const tern_call *call, tern_draft *draft, int argument, tern_dtype dtype) {
  const tern_argument *a = &call->arguments[argument];
  if (TERN_LIKELY(a->tag == TERN_ARG_TENSOR && a->u.tensor.device >= 0)) return tern_draft_tensor(draft, &a->u.tensor);
  if (!tern_draft_number(draft, a, dtype, false)) return TERN_REJECT;
  draft->n_number_operands++;
  return tern_draft_optional(draft, NULL);
}

/* A number that is 0; what a tensor holds is seen when the program runs. */
static bool is_zero(const tern_argument *argument) {
  bool is_double;
  double d;
  int64_t i;
  if (argument->tag == TERN_ARG_TENSOR && argument->u.tensor.device >= 0) return false;
  return !tern_number_read(argument, &is_double, &d, &i) || (is_double ? d == 0 : i == 0);
}

static bool is_bool(const tern_argument *argument) {
  return argument->tag == TERN_ARG_BOOL || (argument->tag == TERN_ARG_TENSOR && argument->u.tensor.dtype == TERN_BOOL);
}

/* alpha is left out where it is 1, is rounded to the common dtype, and may not be a fraction for integers. */
static tern_verdict draft_alpha(const tern_call *call, tern_draft *draft, int at, tern_dtype common) {
  const tern_argument *a = &call->arguments[at];
  if (TERN_LIKELY(a->tag == TERN_ARG_INT && a->u.i == 1) || tern_arg_is_none(call, at)) return TERN_RECORD;
  if ((common < TERN_F16 && (a->tag != TERN_ARG_INT || common == TERN_BOOL)) || a->tag == TERN_ARG_BOOL) return TERN_FALL_BACK;
  if (tern_arg_double(call, at, 0) == 1) return TERN_RECORD;
  return tern_number_fits(a, common) && tern_draft_number(draft, a, common, false) ? TERN_RECORD : TERN_FALL_BACK;
}

static tern_verdict draft_number(const tern_call *call, tern_draft *draft, int at, double fallback, tern_dtype common) {
  tern_dtype dtype = tern_compute_dtype(common);
  if (tern_arg_is_none(call, at)) {
    tern_draft_double(draft, dtype, fallback, false);
    return TERN_RECORD;
  }
  const tern_argument *a = &call->arguments[at];
  if (common < TERN_F16 && a->tag == TERN_ARG_DOUBLE && a->u.d != trunc(a->u.d)) return TERN_FALL_BACK;
  return tern_number_fits(a, dtype) && tern_draft_number(draft, a, dtype, false) ? TERN_RECORD : TERN_FALL_BACK;
}

/* The commonest call: tensors of one dtype and shape, or with a number that changes neither. Then there is nothing to promote or broadcast. */
static bool are_alike(const tern_argument *arguments, const tern_pointwise_rule *rule, int n) {
  const tern_argument *first = &arguments[rule->operands[0]];
  if (first->tag != TERN_ARG_TENSOR || first->u.tensor.rank == 0 || first->u.tensor.rank > TERN_MAX_TENSOR_RANK || first->u.tensor.dtype == TERN_BOOL)
    return false;
  const tern_tensor *x = &first->u.tensor;
  for (int i = 1; i < n; i++) {
    const tern_argument *a = &arguments[rule->operands[i]];
    if (a->tag == TERN_ARG_INT || (a->tag == TERN_ARG_DOUBLE && x->dtype >= TERN_F16)) continue;
    if (a->tag != TERN_ARG_TENSOR || a->u.tensor.dtype != x->dtype || a->u.tensor.rank != x->rank) return false;
    for (int d = 0; d < x->rank; d++)
      if (a->u.tensor.sizes[d] != x->sizes[d]) return false;
  }
  return true;
}

/* What the operands have in common, the general way. */
static tern_verdict combine(const tern_argument *arguments, const tern_pointwise_rule *rule, int n, tern_dtype *common, int *rank, int64_t *sizes) {
  tern_promotion promotion = TERN_PROMOTION_START;
  for (int i = 0; i < n; i++) {
    const tern_argument *a = &arguments[rule->operands[i]];
    if (a->tag == TERN_ARG_TENSOR && a->u.tensor.rank > TERN_MAX_TENSOR_RANK) return TERN_FALL_BACK;
    if (rule->refuses_bool && is_bool(a)) return TERN_REJECT;
    if (rule->same_dtypes && a->tag == TERN_ARG_TENSOR && a->u.tensor.dtype != arguments[rule->operands[0]].u.tensor.dtype) return TERN_REJECT;
    tern_promotion_add(&promotion, a);
    if (!tern_pointwise_shape(a, rank, sizes)) return TERN_REJECT;
  }
  *common = tern_promotion_result(&promotion);
  return TERN_RECORD;
}

tern_verdict tern_pointwise_infer(const tern_call *call, tern_draft *draft, const tern_pointwise_rule *rule) {
  int n = rule->n_operands ? rule->n_operands : 1, rank = 0;
  int64_t room[TERN_MAX_TENSOR_RANK];
  const int64_t *sizes = room;
  tern_dtype common;
  if (TERN_LIKELY(are_alike(call->arguments, rule, n))) {
    const tern_tensor *x = &call->arguments[rule->operands[0]].u.tensor;
    common = (tern_dtype)x->dtype;
    rank = x->rank;
    sizes = x->sizes;
  } else {
    tern_verdict verdict = combine(call->arguments, rule, n, &common, &rank, room);
    if (verdict != TERN_RECORD) return verdict;
  }
  if (rule->to_float && common < TERN_F16) common = tern_aten_default_dtype();
  if (TERN_UNLIKELY(!is_served(rule->serves, common))) return TERN_FALL_BACK;
  if (TERN_UNLIKELY(rule->checked_divisor && common < TERN_F16 && is_zero(&call->arguments[rule->operands[1]]))) return TERN_REJECT;
  tern_dtype number = rule->wide_numbers ? tern_compute_dtype(common) : common;
  for (int i = 0; i < n; i++) {
    tern_verdict verdict = tern_pointwise_operand(call, draft, rule->operands[i], i == 1 ? number : common);
    if (TERN_UNLIKELY(verdict != TERN_RECORD)) return verdict;
  }
  for (int i = 0; i < rule->n_numbers; i++) {
    tern_verdict verdict = rule->numbers[i].is_alpha ? draft_alpha(call, draft, rule->numbers[i].argument, common)
                                                     : draft_number(call, draft, rule->numbers[i].argument, rule->numbers[i].fallback, common);
    if (TERN_UNLIKELY(verdict != TERN_RECORD)) return verdict;
  }
  tern_dtype result = rule->to_bool ? TERN_BOOL : common;
  if (TERN_UNLIKELY(call->form == TERN_OUT && rule->exact_out && call->arguments[call->n_arguments - 1].u.tensor.dtype != result)) return TERN_REJECT;
  tern_draft_attr(draft, common);
  tern_draft_result(draft, result, rank, sizes)->layout = TERN_LIKE_OPERANDS;
  return TERN_RECORD;
}

static int64_t count(const tern_program *p, tern_value v) { /* elements */
  int64_t n = 1;
  for (int d = 0; d < tern_value_rank(p, v); d++) n *= tern_value_dims(p, v)[d];
  return n;
}

void tern_pointwise_begin(tern_pointwise *w, const tern_lowering *node, const tern_pointwise_rule *rule) {
  tern_program *p = w->p = node->program;
  int next = 0;
  w->node = node;
  w->common = (tern_dtype)node->attrs[0];
  w->dtype = tern_compute_dtype(w->common);
  for (int i = 0; i < TERN_POINTWISE_OPERANDS; i++) {
    tern_value v = w->x[i] = TERN_NO_VALUE;
    if (i >= node->n_operands) continue;
    v = node->operands[i];
    if (v == TERN_NO_VALUE) v = next < node->n_scalars ? node->scalars[next++] : TERN_NO_VALUE;
    /* As PyTorch: where a number keeps its precision, so does a tensor of one element. */
    else if (!(rule->wide_numbers && i == 1 && count(p, v) == 1))
      v = tern_convert(p, v, w->common);
    w->x[i] = tern_convert(p, v, w->dtype);
  }
  if (rule->checked_divisor && w->common < TERN_F16 && node->operands[1] != TERN_NO_VALUE)
    tern_check_holds(p, tern_compare(p, TERN_NE, w->x[1], tern_number(p, w->dtype, 0)), TERN_DOMAIN_DIVISOR);
  for (int i = 0; i < TERN_POINTWISE_NUMBERS; i++, next++) w->s[i] = next < node->n_scalars ? tern_convert(p, node->scalars[next], w->dtype) : TERN_NO_VALUE;
}

tern_value tern_pointwise_finish(const tern_lowering *node, int output, tern_value v) {
  const tern_output *o = &node->outputs[output];
  return tern_broadcast_to(node->program, tern_convert(node->program, v, o->computed), o->view.rank, o->view.sizes);
}
