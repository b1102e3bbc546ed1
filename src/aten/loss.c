/* loss: negative log likelihood, mean squared error, smooth L1, Huber and binary cross entropy, with their gradients. cross_entropy, l1_loss, kl_div and
 * binary_cross_entropy_with_logits come down to other rows in PyTorch itself.
 *
 * `reduction` is ATen's number: 0 none, 1 mean, 2 sum. */
#include "nn.h"

enum { REDUCTION_NONE, REDUCTION_MEAN, REDUCTION_SUM };

/* ---- negative log likelihood: classes are dimension 1, or 0 where there is no batch ---- */

static bool is_reduction(int64_t reduction) { return reduction >= REDUCTION_NONE && reduction <= REDUCTION_SUM; }

/* Whether target [N, ...] fits self [N, C, ...]; for nll_loss self has rank 1 or 2, for nll_loss2d rank 4. */
static bool fits_target(const tern_tensor *x, const tern_tensor *target) {
  if (x->rank == 1) return target->rank == 0 || (target->rank == 1 && target->sizes[0] == 1);
  if (target->rank != x->rank - 1 || target->sizes[0] != x->sizes[0]) return false;
  for (int d = 1; d < target->rank; d++)
    if (target->sizes[d] != x->sizes[d + 1]) return false;
  return true;
}

static tern_verdict check_nll(const tern_tensor *x, const tern_tensor *target, const tern_tensor *weight, bool spatial, int64_t reduction) {
  if (!x || !target || !is_reduction(reduction)) return TERN_REJECT;
  if (spatial ? x->rank != 4 : x->rank < 1 || x->rank > 2) return TERN_REJECT;
  if (!fits_target(x, target)) return TERN_REJECT;
  int64_t classes = x->sizes[x->rank == 1 ? 0 : 1];
  if (weight && !tern_nn_has_sizes(weight, 1, &classes)) return TERN_REJECT;
  if (!tern_nn_is_float(x) || (weight && weight->dtype != x->dtype) || (target->dtype != TERN_I64 && target->dtype != TERN_U8)) return TERN_FALL_BACK;
  return classes > 0 ? TERN_RECORD : TERN_FALL_BACK;
}

/* (self, target, weight?, reduction, ignore_index) -> output, total_weight. attrs: reduction; scalars: ignore_index */
static tern_verdict infer_any_nll(const tern_call *call, tern_draft *draft, bool spatial) {
  const tern_tensor *x = tern_arg_tensor(call, 0), *target = tern_arg_tensor(call, 1), *weight = tern_arg_tensor(call, 2);
  int64_t reduction = tern_arg_int(call, 3, REDUCTION_MEAN);
  tern_verdict verdict = check_nll(x, target, weight, spatial, reduction);
  if (verdict != TERN_RECORD) return verdict;
  bool reduced = reduction != REDUCTION_NONE || x->rank == 1;
  tern_draft_attr(draft, reduction);
  tern_draft_int(draft, TERN_I64, tern_arg_int(call, 4, -100), false);
  tern_draft_result(draft, (tern_dtype)x->dtype, reduced ? 0 : target->rank, target->sizes);
  tern_draft_result(draft, (tern_dtype)x->dtype, 0, NULL);
  return tern_nn_operands(draft, 3, (const tern_tensor *[]){x, target, weight});
}

static tern_verdict infer_nll(const tern_call *call, tern_draft *draft) { return infer_any_nll(call, draft, false); }
static tern_verdict infer_nll_2d(const tern_call *call, tern_draft *draft) { return infer_any_nll(call, draft, true); }

/* (grad_output, self, target, weight?, reduction, ignore_index, total_weight) */
static tern_verdict infer_any_nll_backward(const tern_call *call, tern_draft *draft, bool spatial) {
  const tern_tensor *gy = tern_arg_tensor(call, 0), *x = tern_arg_tensor(call, 1), *target = tern_arg_tensor(call, 2), *weight = tern_arg_tensor(call, 3);
  const tern_tensor *total = tern_arg_tensor(call, 6);
  int64_t reduction = tern_arg_int(call, 4, REDUCTION_MEAN);
  tern_verdict verdict = check_nll(x, target, weight, spatial, reduction);
  if (verdict != TERN_RECORD) return verdict;
  if (!gy || !total || total->count != 1) return TERN_REJECT;
  bool reduced = reduction != REDUCTION_NONE || x->rank == 1;
  if (reduced ? gy->count != 1 : !tern_nn_same_sizes(gy, target)) return TERN_REJECT;
  if (gy->dtype != x->dtype || total->dtype != x->dtype) return TERN_FALL_BACK;
  tern_draft_attr(draft, reduction);
  tern_draft_int(draft, TERN_I64, tern_arg_int(call, 5, -100), false);
  tern_draft_result(draft, (tern_dtype)x->dtype, x->rank, x->sizes);
  return tern_nn_operands(draft, 5, (const tern_tensor *[]){x, target, weight, gy, total});
}

static tern_verdict infer_nll_backward(const tern_call *call, tern_draft *draft) { return infer_any_nll_backward(call, draft, false); }
static tern_verdict infer_nll_2d_backward(const tern_call *call, tern_draft *draft) { return infer_any_nll_backward(call, draft, true); }

/* Targets with a class dimension of size 1, checked; where they are to be ignored `counted` is false and the class is 0. */
typedef struct nll {
  int class_dim;
  int64_t classes;
  tern_value target, counted;
  tern_value weight; /* of each target's class, 0 where ignored; wide */
} nll;

static nll read_nll(const tern_lowering *node) {
  tern_program *p = node->program;
  tern_value x = node->operands[0], weight = node->operands[2];
  tern_dtype wide = tern_compute_dtype(tern_value_dtype(p, x));
  nll n = {.class_dim = tern_value_rank(p, x) == 1 ? 0 : 1};
  n.classes = tern_value_dims(p, x)[n.class_dim];
  tern_value target = tern_convert(p, node->operands[1], TERN_I64);
  if (tern_value_rank(p, x) == 1) target = tern_reshape(p, target, 0, NULL);
  target = tern_nn_unsqueeze(p, target, n.class_dim);
  n.counted = tern_compare(p, TERN_NE, target, node->scalars[0]);
  n.target = tern_select(p, n.counted, target, tern_nn_number(p, TERN_I64, 0));
  tern_check_index(p, n.target, 0, n.classes - 1);
  tern_value one = tern_nn_number(p, wide, 1), zero = tern_nn_number(p, wide, 0);
  if (weight != TERN_NO_VALUE) one = tern_take(p, tern_convert(p, weight, wide), n.target, 0);
  n.weight = tern_select(p, n.counted, one, zero);
  return n;
}

static tern_value sum_all(tern_program *p, tern_value v) { return tern_nn_sum_but(p, v, -1); }

static tern_status lower_nll(const tern_lowering *node, tern_value *results) {
  tern_program *p = node->program;
  int64_t reduction = node->attrs[0];
  nll n = read_nll(node);
  tern_dtype wide = tern_value_dtype(p, n.weight);
  tern_value picked = tern_convert(p, tern_gather(p, node->operands[0], n.target, n.class_dim), wide);
  tern_value loss = tern_select(p, n.counted, tern_multiply(p, tern_negate(p, picked), n.weight), tern_nn_number(p, wide, 0)), total = sum_all(p, n.weight);
  if (reduction == REDUCTION_NONE && node->outputs[0].view.rank > 0) {
    results[0] = tern_nn_result(node, 0, loss);
    results[1] = tern_nn_result(node, 1, tern_nn_number(p, wide, 0));
    return NULL;
  }
  tern_value sum = sum_all(p, loss);
  results[0] = tern_nn_result(node, 0, reduction == REDUCTION_MEAN ? tern_divide(p, sum, total) : sum);
  results[1] = tern_nn_result(node, 1, total);
  return NULL;
}

/* Each class asks whether it is the target: elementwise, so that it fuses with the gradient of log softmax that follows. */
static tern_status lower_nll_backward(const tern_lowering *node, tern_value *results) {
  tern_program *p = node->program;
  tern_value x = node->operands[0];
  nll n = read_nll(node);
  tern_dtype wide = tern_value_dtype(p, n.weight);
  tern_value gy = tern_convert(p, node->operands[3], wide);
  if (node->outputs[0].view.rank > 1 && node->attrs[0] == REDUCTION_NONE)
    gy = tern_nn_unsqueeze(p, gy, n.class_dim);
  else
    gy = tern_reshape(p, gy, 0, NULL);
  if (node->attrs[0] == REDUCTION_MEAN) gy = tern_divide(p, gy, tern_reshape(p, tern_convert(p, node->operands[4], wide), 0, NULL));
  tern_value each = tern_multiply(p, tern_negate(p, n.weight), gy);
  tern_value class = tern_iota(p, TERN_I32, tern_value_rank(p, x), tern_value_dims(p, x), n.class_dim);
  tern_value hit = tern_and(p, tern_nn_equals(p, class, tern_convert(p, n.target, TERN_I32)), n.counted);
  results[0] = tern_nn_result(node, 0, tern_select(p, hit, each, tern_nn_number(p, wide, 0)));
  return NULL;
}

/* ---- losses of pairs: elementwise in (self, target), then reduced. attrs: reduction; scalars: beta or delta ---- */

/* `parameter`: the argument that holds beta or delta, or 0. `gradient`: argument 0 is the gradient, the result is elementwise. */
static tern_verdict infer_pair(const tern_call *call, tern_draft *draft, bool gradient, int reduction_at, int parameter) {
  const tern_tensor *operands[3] = {tern_arg_tensor(call, 0), tern_arg_tensor(call, 1), gradient ? tern_arg_tensor(call, 2) : NULL};
  int n = gradient ? 3 : 2, rank = 0;
  int64_t sizes[TERN_MAX_TENSOR_RANK], reduction = tern_arg_int(call, reduction_at, REDUCTION_MEAN);
  tern_promotion promotion = TERN_PROMOTION_START;
  if (!is_reduction(reduction)) return TERN_REJECT;
  for (int i = 0; i < n; i++) {
    if (operands[i] && operands[i]->device < 0 && operands[i]->rank == 0) return TERN_FALL_BACK; /* a number in PyTorch's eyes */
    if (!operands[i] || !tern_broadcast_shape(&rank, sizes, operands[i]->rank, operands[i]->sizes)) return TERN_REJECT;
    if (i >= gradient) tern_promotion_add_tensor(&promotion, operands[i]);
  }
  tern_dtype dtype = tern_promotion_result(&promotion);
  if (!tern_dtype_is_float(dtype) || (gradient && operands[0]->dtype != dtype)) return TERN_FALL_BACK;
  if (gradient && (operands[1]->dtype != dtype || operands[2]->dtype != dtype)) return TERN_FALL_BACK;
  tern_draft_attr(draft, reduction);
  if (gradient) tern_draft_attr(draft, operands[1]->count);
  if (parameter) tern_draft_double(draft, tern_compute_dtype(dtype), tern_arg_double(call, parameter, 1), false);
  bool reduced = !gradient && reduction != REDUCTION_NONE;
  tern_draft_result(draft, dtype, reduced ? 0 : rank, sizes)->layout = reduced ? TERN_CONTIGUOUS : TERN_LIKE_OPERANDS;
  return tern_nn_operands(draft, n, operands);
}

static tern_verdict infer_mse(const tern_call *call, tern_draft *draft) { return infer_pair(call, draft, false, 2, 0); }
static tern_verdict infer_mse_backward(const tern_call *call, tern_draft *draft) { return infer_pair(call, draft, true, 3, 0); }
static tern_verdict infer_smooth_l1(const tern_call *call, tern_draft *draft) {
  return tern_arg_double(call, 3, 1) < 0 ? TERN_FALL_BACK : infer_pair(call, draft, false, 2, 3);
}
static tern_verdict infer_huber(const tern_call *call, tern_draft *draft) {
  return tern_arg_double(call, 3, 1) <= 0 ? TERN_FALL_BACK : infer_pair(call, draft, false, 2, 3); /* PyTorch's own check refuses it there */
}
static tern_verdict infer_huber_backward(const tern_call *call, tern_draft *draft) { return infer_pair(call, draft, true, 3, 4); }

/* PyTorch rounds each element to the result's dtype before it reduces. */
static tern_status finish(const tern_lowering *node, tern_value each, tern_value *results) {
  tern_program *p = node->program;
  tern_value loss = tern_convert(p, each, node->outputs[0].computed);
  if (node->attrs[0] != REDUCTION_NONE) {
    double count = (double)tern_nn_count(p, loss);
    loss = sum_all(p, tern_nn_widen(p, loss));
    if (node->attrs[0] == REDUCTION_MEAN) loss = tern_divide(p, loss, tern_nn_number(p, tern_value_dtype(p, loss), count));
  }
  results[0] = tern_nn_result(node, 0, loss);
  return NULL;
}

static tern_value difference(const tern_lowering *node, int first) {
  tern_program *p = node->program;
  tern_dtype wide = tern_compute_dtype(node->outputs[0].computed);
  return tern_subtract(p, tern_convert(p, node->operands[first], wide), tern_convert(p, node->operands[first + 1], wide));
}

static tern_value number_like(tern_program *p, tern_value v, double value) { return tern_nn_number(p, tern_value_dtype(p, v), value); }

/* What the mean divides by, as a factor of the gradient. */
static double share(const tern_lowering *node) { return node->attrs[0] == REDUCTION_MEAN ? 1.0 / (double)node->attrs[1] : 1.0; }

static tern_status lower_mse(const tern_lowering *node, tern_value *results) {
  tern_value d = difference(node, 0);
  return finish(node, tern_multiply(node->program, d, d), results);
}

/* The gradient of a pair's loss, broadcast to the result. */
static tern_status finish_gradient(const tern_lowering *node, tern_value slope, tern_value *results) {
  tern_program *p = node->program;
  const tern_geometry *view = &node->outputs[0].view;
  tern_value gx = tern_multiply(p, slope, tern_convert(p, node->operands[0], tern_value_dtype(p, slope)));
  results[0] = tern_nn_result(node, 0, tern_broadcast_to(p, gx, view->rank, view->sizes));
  return NULL;
}

static tern_status lower_mse_backward(const tern_lowering *node, tern_value *results) {
  tern_program *p = node->program;
  tern_value d = difference(node, 1);
  return finish_gradient(node, tern_multiply(p, number_like(p, d, 2 * share(node)), d), results);
}

/* |d| < beta: d * d / (2 * beta), else |d| - beta / 2 */
static tern_status lower_smooth_l1(const tern_lowering *node, tern_value *results) {
  tern_program *p = node->program;
  tern_value z = tern_abs(p, difference(node, 0)), beta = node->scalars[0], half = number_like(p, z, 0.5);
  tern_value square = tern_divide(p, tern_multiply(p, tern_multiply(p, half, z), z), beta);
  tern_value line = tern_subtract(p, z, tern_multiply(p, half, beta));
  return finish(node, tern_select(p, tern_compare(p, TERN_LT, z, beta), square, line), results);
}

/* d inside [-bound, bound] gives `inner`, outside the sign of d times `outer`. */
static tern_value bounded_slope(tern_program *p, tern_value d, tern_value bound, tern_value inner, tern_value outer) {
  tern_value above = tern_compare(p, TERN_GE, d, bound), below = tern_compare(p, TERN_LE, d, tern_negate(p, bound));
  return tern_select(p, below, tern_negate(p, outer), tern_select(p, above, outer, inner));
}

static tern_status lower_smooth_l1_backward(const tern_lowering *node, tern_value *results) {
  tern_program *p = node->program;
  tern_value d = difference(node, 1), norm = number_like(p, d, share(node)), beta = node->scalars[0];
  return finish_gradient(node, bounded_slope(p, d, beta, tern_divide(p, tern_multiply(p, norm, d), beta), norm), results);
}

/* |d| <= delta: d * d / 2, else delta * (|d| - delta / 2) */
static tern_status lower_huber(const tern_lowering *node, tern_value *results) {
  tern_program *p = node->program;
  tern_value z = tern_abs(p, difference(node, 0)), delta = node->scalars[0], half = number_like(p, z, 0.5);
  tern_value square = tern_multiply(p, tern_multiply(p, half, z), z);
  tern_value line = tern_multiply(p, delta, tern_subtract(p, z, tern_multiply(p, half, delta)));
  return finish(node, tern_select(p, tern_compare(p, TERN_LE, z, delta), square, line), results);
}

static tern_status lower_huber_backward(const tern_lowering *node, tern_value *results) {
  tern_program *p = node->program;
  tern_value d = difference(node, 1), norm = number_like(p, d, share(node)), delta = node->scalars[0];
  return finish_gradient(node, bounded_slope(p, d, delta, tern_multiply(p, norm, d), tern_multiply(p, norm, delta)), results);
}

/* ---- binary cross entropy ---- */

/* (self, target, weight?, reduction); `gradient`: after grad_output. attrs as for the pairs. */
static tern_verdict infer_bce(const tern_call *call, tern_draft *draft, bool gradient) {
  int first = gradient;
  const tern_tensor *x = tern_arg_tensor(call, first), *target = tern_arg_tensor(call, first + 1), *weight = tern_arg_tensor(call, first + 2);
  const tern_tensor *operands[4] = {x, target, weight, gradient ? tern_arg_tensor(call, 0) : NULL};
  int64_t reduction = tern_arg_int(call, first + 3, REDUCTION_MEAN);
  if (!x || !target || !is_reduction(reduction) || (gradient && !operands[3])) return TERN_REJECT;
  for (int i = 0; i < 4; i++)
    if (operands[i] && operands[i]->dtype != x->dtype) return TERN_FALL_BACK;
  if (!tern_nn_is_float(x) || !tern_nn_same_sizes(x, target)) return TERN_FALL_BACK;
  if (weight && !tern_nn_expands(weight, x->rank, x->sizes)) return TERN_FALL_BACK;
  if (gradient && !tern_nn_expands(operands[3], x->rank, x->sizes)) return TERN_FALL_BACK;
  bool reduced = !gradient && reduction != REDUCTION_NONE;
  tern_draft_attr(draft, reduction);
  tern_draft_attr(draft, x->count);
  if (reduced)
    tern_draft_result(draft, (tern_dtype)x->dtype, 0, NULL);
  else
    tern_nn_result_like(draft, (tern_dtype)x->dtype, x);
  return tern_nn_operands(draft, gradient ? 4 : 3, operands);
}

static tern_verdict infer_bce_forward(const tern_call *call, tern_draft *draft) { return infer_bce(call, draft, false); }
static tern_verdict infer_bce_backward(const tern_call *call, tern_draft *draft) { return infer_bce(call, draft, true); }

/* (target - 1) * max(log(1 - x), -100) - target * max(log(x), -100), as Loss.cpp has it */
static tern_status lower_bce(const tern_lowering *node, tern_value *results) {
  tern_program *p = node->program;
  tern_value x = tern_nn_widen(p, node->operands[0]), target = tern_nn_widen(p, node->operands[1]), floor = number_like(p, x, -100), one = number_like(p, x, 1);
  tern_value no = tern_multiply(p, tern_subtract(p, target, one), tern_maximum(p, tern_log1p(p, tern_negate(p, x)), floor));
  tern_value loss = tern_subtract(p, no, tern_multiply(p, target, tern_maximum(p, tern_log(p, x), floor)));
  if (node->operands[2] != TERN_NO_VALUE) loss = tern_multiply(p, loss, tern_nn_widen(p, node->operands[2]));
  return finish(node, loss, results);
}

static tern_status lower_bce_backward(const tern_lowering *node, tern_value *results) {
  tern_program *p = node->program;
  tern_value x = tern_nn_widen(p, node->operands[0]), target = tern_nn_widen(p, node->operands[1]), gy = tern_nn_widen(p, node->operands[3]);
  tern_value spread = tern_maximum(p, tern_multiply(p, tern_subtract(p, number_like(p, x, 1), x), x), number_like(p, x, 1e-12));
  tern_value gx = tern_divide(p, tern_multiply(p, gy, tern_subtract(p, x, target)), spread);
  if (node->operands[2] != TERN_NO_VALUE) gx = tern_multiply(p, gx, tern_nn_widen(p, node->operands[2]));
  if (node->attrs[0] == REDUCTION_MEAN) gx = tern_divide(p, gx, number_like(p, x, (double)node->attrs[1]));
  results[0] = tern_nn_result(node, 0, gx);
  return NULL;
}

const tern_aten_row tern_aten_loss[] = {
    {.functional = "nll_loss_forward", .out = "nll_loss_forward.output", .infer = infer_nll, .lower = lower_nll},
    {.functional = "nll_loss_backward", .out = "nll_loss_backward.grad_input", .infer = infer_nll_backward, .lower = lower_nll_backward},
    {.functional = "nll_loss2d_forward", .out = "nll_loss2d_forward.output", .infer = infer_nll_2d, .lower = lower_nll},
    {.functional = "nll_loss2d_backward", .out = "nll_loss2d_backward.grad_input", .infer = infer_nll_2d_backward, .lower = lower_nll_backward},
    {.functional = "mse_loss", .out = "mse_loss.out", .infer = infer_mse, .lower = lower_mse},
    {.functional = "mse_loss_backward", .out = "mse_loss_backward.grad_input", .infer = infer_mse_backward, .lower = lower_mse_backward},
    {.functional = "smooth_l1_loss", .out = "smooth_l1_loss.out", .infer = infer_smooth_l1, .lower = lower_smooth_l1},
    {.functional = "smooth_l1_loss_backward", .out = "smooth_l1_loss_backward.grad_input", .infer = infer_huber_backward, .lower = lower_smooth_l1_backward},
    {.functional = "huber_loss", .out = "huber_loss.out", .infer = infer_huber, .lower = lower_huber},
    {.functional = "huber_loss_backward", .out = "huber_loss_backward.out", .infer = infer_huber_backward, .lower = lower_huber_backward},
    {.functional = "binary_cross_entropy", .out = "binary_cross_entropy.out", .infer = infer_bce_forward, .lower = lower_bce},
    {.functional = "binary_cross_entropy_backward",
     .out = "binary_cross_entropy_backward.grad_input",
     .infer = infer_bce_backward,
     .lower = lower_bce_backward},
};
TERN_ATEN_FAMILY_END(loss)
