/* optimizer: PyTorch's fused optimizers, _fused_adam_, _fused_adamw_, _fused_sgd_ and _fused_adagrad_: lists of tensors updated in place. Each parameter is one node that reads
 * the parameter, its gradient and its state and writes them back; the formulas and their order are those of FusedAdamKernel.cpp and FusedSGDKernel.cpp.
 *
 * Everything that changes from step to step (learning rate, step count) is a scalar or an operand, never part of a program's key. The bias corrections are
 * computed as 1 - beta^t = -expm1(t * log(beta)), which is exact enough in f32 where 1 - pow(beta, t) is not. A gradient scaler's found_inf leaves everything
 * as it was. */
#include <math.h>
#include "nn.h"

/* ---- lists ---- */

typedef struct list {
  int n;
  const tern_tensor *tensors;
} list;

static list list_at(const tern_call *call, int i) {
  list l = {0, NULL};
  if (i < call->n_arguments && call->arguments[i].tag == TERN_ARG_TENSORS) l = (list){call->arguments[i].n, call->arguments[i].u.tensors};
  return l;
}

/* Whether the list has a tensor of tern's, like the parameter's, for every parameter. */
static bool matches(list l, list parameters) {
  if (l.n != parameters.n) return false;
  for (int i = 0; i < l.n; i++) {
    const tern_tensor *t = &l.tensors[i], *p = &parameters.tensors[i];
    if (!t->sizes || t->device != p->device || t->device < 0 || t->dtype != p->dtype || !tern_nn_same_sizes(t, p)) return false;
  }
  return true;
}

static bool is_updatable(list parameters) {
  for (int i = 0; i < parameters.n; i++)
    if (!parameters.tensors[i].sizes || parameters.tensors[i].device < 0 || parameters.tensors[i].rank > TERN_MAX_TENSOR_RANK ||
        !tern_nn_is_float(&parameters.tensors[i]))
      return false;
  return true;
}

/* A number of a node: an operand where it lives on the device, else a scalar. Both places are always there, so that numbering does not depend on it. */
static tern_verdict draft_number_or_tensor(tern_draft *draft, const tern_argument *argument, tern_dtype wide) {
  const tern_tensor *tensor = argument->tag == TERN_ARG_TENSOR && argument->u.tensor.device >= 0 ? &argument->u.tensor : NULL;
  if (tensor && tensor->count != 1) return TERN_FALL_BACK;
  if (tensor)
    tern_draft_double(draft, wide, 0, false);
  else if (!tern_draft_number(draft, argument, wide, false))
    return TERN_FALL_BACK;
  return tern_draft_optional(draft, tensor);
}

static tern_value number_or_tensor(const tern_lowering *node, int operand, int scalar, tern_dtype wide) {
  tern_program *p = node->program;
  if (node->operands[operand] == TERN_NO_VALUE) return node->scalars[scalar];
  return tern_convert(p, tern_reshape(p, node->operands[operand], 0, NULL), wide);
}

/* The value of a number argument; 0 for a tensor of the device's, whose value nobody knows yet. */
static double known_number(const tern_argument *argument) {
  bool is_double;
  double d;
  int64_t i;
  if (!tern_number_read(argument, &is_double, &d, &i)) return 0;
  return is_double ? d : (double)i;
}

/* ---- recording ---- */

typedef tern_verdict (*drafter)(const tern_call *call, tern_draft *draft, const tern_tensor **targets, const list *lists, int i);

/* A node per parameter; every parameter is checked before the first is touched. */
static tern_verdict record_each(const tern_call *call, tern_status *status, const list *lists, drafter draft_one) {
  tern_draft draft;
  const tern_tensor *targets[TERN_MAX_OUTPUTS];
  for (int i = 0; i < lists[0].n; i++) {
    tern_verdict verdict = draft_one(call, &draft, targets, lists, i);
    if (verdict != TERN_RECORD) return verdict;
  }
  for (int i = 0; i < lists[0].n && !*status; i++) {
    draft_one(call, &draft, targets, lists, i);
    *status = tern_draft_record(call, &draft, call->row, targets);
  }
  return TERN_RECORD;
}

/* ---- what Adam and SGD share ---- */

/* The unscaled gradient and the condition under which nothing happens (TERN_NO_VALUE: never). */
typedef struct gradient {
  tern_value raw, unscaled, is_skipped;
} gradient;

static gradient read_gradient(const tern_lowering *node, int grad, int scale, int found_inf, tern_dtype wide) {
  tern_program *p = node->program;
  gradient g = {tern_convert(p, node->operands[grad], wide), TERN_NO_VALUE, TERN_NO_VALUE};
  g.unscaled = g.raw;
  if (node->operands[scale] != TERN_NO_VALUE) g.unscaled = tern_divide(p, g.raw, number_or_tensor(node, scale, 0, wide));
  if (node->operands[found_inf] != TERN_NO_VALUE) g.is_skipped = tern_nn_equals(p, number_or_tensor(node, found_inf, 0, wide), tern_nn_number(p, wide, 1));
  return g;
}

static tern_value unless_skipped(const tern_lowering *node, const gradient *g, tern_value updated, int operand) {
  tern_program *p = node->program;
  if (g->is_skipped == TERN_NO_VALUE || node->operands[operand] == TERN_NO_VALUE) return updated;
  return tern_select(p, g->is_skipped, tern_convert(p, node->operands[operand], tern_value_dtype(p, updated)), updated);
}

/* Adds output i, like `target`, and notes where it is written. */
static void draft_target(tern_draft *draft, const tern_tensor **targets, const tern_tensor *target) {
  tern_draft_output *output = tern_draft_result(draft, (tern_dtype)target->dtype, target->rank, target->sizes);
  output->computed = tern_nn_wide(target);
  targets[draft->n_outputs - 1] = target;
}

/* ---- Adam. attrs: decoupled weight decay (AdamW), decays, AMSGrad, maximises, small first coefficient, writes the gradient back ---- */

enum { DECOUPLED, DECAYS, AMSGRAD, MAXIMIZES, SMALL_LERP, WRITES_GRAD, ADAM_ATTRS };
enum { PARAM, GRAD, EXP_AVG, EXP_AVG_SQ, MAX_EXP_AVG_SQ, GRAD_SCALE, FOUND_INF, STEP, LR };        /* operands */
enum { S_STEP, S_LR, S_BETA1, S_REST1, S_BETA2, S_REST2, S_LOG1, S_LOG2, S_DECAY, S_EPS, S_KEEP }; /* scalars */
enum { A_LR = 6, A_BETA1, A_BETA2, A_DECAY, A_EPS, A_AMSGRAD, A_MAXIMIZE, A_SCALE, A_FOUND };      /* arguments */

static tern_verdict draft_any_adam(const tern_call *call, tern_draft *draft, const tern_tensor **targets, const list *lists, int i, bool decoupled) {
  const tern_tensor *param = &lists[0].tensors[i], *max = lists[4].n ? &lists[4].tensors[i] : NULL, *step = &lists[5].tensors[i];
  const tern_tensor *scale = tern_arg_tensor(call, A_SCALE), *found = tern_arg_tensor(call, A_FOUND);
  double beta1 = tern_arg_double(call, A_BETA1, 0), beta2 = tern_arg_double(call, A_BETA2, 0), decay = tern_arg_double(call, A_DECAY, 0);
  tern_dtype wide = tern_nn_wide(param);
  tern_draft_start(draft);
  tern_verdict verdict =
      tern_nn_operands(draft, 7, (const tern_tensor *[]){param, &lists[1].tensors[i], &lists[2].tensors[i], &lists[3].tensors[i], max, scale, found});
  if (verdict == TERN_RECORD) verdict = draft_number_or_tensor(draft, &(tern_argument){.tag = TERN_ARG_TENSOR, .u.tensor = *step}, wide);
  if (verdict == TERN_RECORD) verdict = draft_number_or_tensor(draft, &call->arguments[A_LR], wide);
  if (verdict != TERN_RECORD) return verdict;
  const double numbers[] = {
      beta1, 1 - beta1, beta2, 1 - beta2, log(beta1), log(beta2), decay, tern_arg_double(call, A_EPS, 0), 1 - known_number(&call->arguments[A_LR]) * decay};
  for (size_t k = 0; k < TERN_COUNT(numbers); k++) tern_draft_double(draft, wide, numbers[k], false);
  bool amsgrad = tern_arg_bool(call, A_AMSGRAD, false);
  tern_draft_attrs(draft, ADAM_ATTRS, (int64_t[]){decoupled, decay != 0, amsgrad, tern_arg_bool(call, A_MAXIMIZE, false), 1 - beta1 < 0.5, scale != NULL});
  draft_target(draft, targets, param);
  draft_target(draft, targets, &lists[2].tensors[i]);
  draft_target(draft, targets, &lists[3].tensors[i]);
  if (amsgrad) draft_target(draft, targets, max);
  if (scale) draft_target(draft, targets, &lists[1].tensors[i]);
  return TERN_RECORD;
}

static tern_verdict draft_adam(const tern_call *call, tern_draft *draft, const tern_tensor **targets, const list *lists, int i) {
  return draft_any_adam(call, draft, targets, lists, i, false);
}
static tern_verdict draft_adamw(const tern_call *call, tern_draft *draft, const tern_tensor **targets, const list *lists, int i) {
  return draft_any_adam(call, draft, targets, lists, i, true);
}

/* (self, grads, exp_avgs, exp_avg_sqs, max_exp_avg_sqs, state_steps, *, lr, beta1, beta2, weight_decay, eps, amsgrad, maximize, grad_scale?, found_inf?) */
static tern_verdict call_any_adam(const tern_call *call, tern_status *status, drafter draft) {
  list lists[6];
  if (call->n_arguments < A_FOUND + 1) return TERN_FALL_BACK;
  for (int i = 0; i < 6; i++) lists[i] = list_at(call, i);
  if (!is_updatable(lists[0]) || lists[5].n != lists[0].n ||
      (tern_arg_bool(call, A_AMSGRAD, false) ? !matches(lists[4], lists[0]) : lists[4].n != 0 && !matches(lists[4], lists[0])))
    return TERN_FALL_BACK;
  for (int i = 1; i < 4; i++)
    if (!matches(lists[i], lists[0])) return TERN_FALL_BACK;
  return record_each(call, status, lists, draft);
}

static tern_verdict call_adam(const tern_call *call, tern_status *status) { return call_any_adam(call, status, draft_adam); }
static tern_verdict call_adamw(const tern_call *call, tern_status *status) { return call_any_adam(call, status, draft_adamw); }

/* 1 - beta^step */
static tern_value bias_correction(tern_program *p, tern_value log_beta, tern_value step) {
  return tern_negate(p, tern_expm1(p, tern_multiply(p, step, log_beta)));
}

static tern_status lower_adam(const tern_lowering *node, tern_value *results) {
  tern_program *p = node->program;
  const int64_t *attrs = node->attrs;
  const tern_value *s = node->scalars;
  tern_dtype wide = tern_compute_dtype(tern_value_dtype(p, node->operands[PARAM]));
  tern_value param = tern_convert(p, node->operands[PARAM], wide), one = tern_nn_number(p, wide, 1);
  tern_value avg = tern_convert(p, node->operands[EXP_AVG], wide), avg_sq = tern_convert(p, node->operands[EXP_AVG_SQ], wide);
  tern_value step = number_or_tensor(node, STEP, S_STEP, wide), lr = number_or_tensor(node, LR, S_LR, wide);
  gradient g = read_gradient(node, GRAD, GRAD_SCALE, FOUND_INF, wide);
  tern_value grad = attrs[MAXIMIZES] ? tern_negate(p, g.unscaled) : g.unscaled;
  if (attrs[DECAYS] && attrs[DECOUPLED]) {
    bool lr_is_tensor = node->operands[LR] != TERN_NO_VALUE;
    param = tern_multiply(p, param, lr_is_tensor ? tern_subtract(p, one, tern_multiply(p, lr, s[S_DECAY])) : s[S_KEEP]);
  } else if (attrs[DECAYS]) {
    grad = tern_add(p, grad, tern_multiply(p, param, s[S_DECAY]));
  }
  /* at::lerp's two forms, by whether its weight 1 - beta1 is below a half */
  tern_value apart = tern_subtract(p, grad, avg);
  if (attrs[SMALL_LERP])
    avg = tern_add(p, avg, tern_multiply(p, s[S_REST1], apart));
  else
    avg = tern_subtract(p, grad, tern_multiply(p, apart, tern_subtract(p, one, s[S_REST1])));
  avg_sq = tern_add(p, tern_multiply(p, avg_sq, s[S_BETA2]), tern_multiply(p, tern_multiply(p, s[S_REST2], grad), grad));
  tern_value spread = avg_sq;
  if (attrs[AMSGRAD]) spread = tern_maximum(p, tern_convert(p, node->operands[MAX_EXP_AVG_SQ], wide), avg_sq);
  tern_value correction = tern_sqrt(p, bias_correction(p, s[S_LOG2], step)), step_size = tern_divide(p, lr, bias_correction(p, s[S_LOG1], step));
  tern_value denominator = tern_add(p, tern_divide(p, tern_sqrt(p, spread), correction), s[S_EPS]);
  param = tern_add(p, param, tern_divide(p, tern_multiply(p, tern_negate(p, step_size), avg), denominator));
  int n = 0;
  results[n++] = unless_skipped(node, &g, param, PARAM);
  results[n++] = unless_skipped(node, &g, avg, EXP_AVG);
  results[n++] = unless_skipped(node, &g, avg_sq, EXP_AVG_SQ);
  if (attrs[AMSGRAD]) results[n++] = unless_skipped(node, &g, spread, MAX_EXP_AVG_SQ);
  if (attrs[WRITES_GRAD]) results[n++] = unless_skipped(node, &g, g.unscaled, GRAD);
  return NULL;
}

/* ---- SGD. attrs: decays, has momentum, first step, Nesterov, maximises, writes the gradient back ---- */

enum { SGD_DECAYS, SGD_MOMENTUM, SGD_FIRST, SGD_NESTEROV, SGD_MAXIMIZES, SGD_WRITES_GRAD, SGD_ATTRS };
enum { SGD_PARAM, SGD_GRAD, SGD_BUFFER, SGD_SCALE, SGD_FOUND, SGD_LR }; /* operands */
enum { SGD_S_LR, SGD_S_DECAY, SGD_S_MOMENTUM, SGD_S_UNDAMPED };         /* scalars */

static tern_verdict draft_sgd(const tern_call *call, tern_draft *draft, const tern_tensor **targets, const list *lists, int i) {
  const tern_tensor *param = &lists[0].tensors[i], *buffer = lists[2].n ? &lists[2].tensors[i] : NULL;
  const tern_tensor *scale = tern_arg_tensor(call, 10), *found = tern_arg_tensor(call, 11);
  double decay = tern_arg_double(call, 3, 0), momentum = tern_arg_double(call, 4, 0);
  tern_dtype wide = tern_nn_wide(param);
  bool has_momentum = momentum != 0, first = tern_arg_bool(call, 9, false);
  tern_draft_start(draft);
  /* On the first step the buffer holds nothing yet: it is no operand, so that it is not read. */
  const tern_tensor *old = has_momentum && (!first || found) ? buffer : NULL;
  tern_verdict verdict = tern_nn_operands(draft, 5, (const tern_tensor *[]){param, &lists[1].tensors[i], old, scale, found});
  if (verdict == TERN_RECORD) verdict = draft_number_or_tensor(draft, &call->arguments[5], wide);
  if (verdict != TERN_RECORD) return verdict;
  tern_draft_double(draft, wide, decay, false);
  tern_draft_double(draft, wide, momentum, false);
  tern_draft_double(draft, wide, 1 - tern_arg_double(call, 6, 0), false);
  tern_draft_attrs(draft, SGD_ATTRS, (int64_t[]){decay != 0, has_momentum, first, tern_arg_bool(call, 7, false), tern_arg_bool(call, 8, false), scale != NULL});
  draft_target(draft, targets, param);
  if (has_momentum) draft_target(draft, targets, buffer);
  if (scale) draft_target(draft, targets, &lists[1].tensors[i]);
  return TERN_RECORD;
}

/* (self, grads, momentum_buffer_list, *, weight_decay, momentum, lr, dampening, nesterov, maximize, is_first_step, grad_scale?, found_inf?) */
static tern_verdict call_sgd(const tern_call *call, tern_status *status) {
  list lists[3];
  if (call->n_arguments < 12) return TERN_FALL_BACK;
  for (int i = 0; i < 3; i++) lists[i] = list_at(call, i);
  if (!is_updatable(lists[0]) || !matches(lists[1], lists[0])) return TERN_FALL_BACK;
  if (tern_arg_double(call, 4, 0) != 0 ? !matches(lists[2], lists[0]) : false) return TERN_FALL_BACK;
  return record_each(call, status, lists, draft_sgd);
}

static tern_status lower_sgd(const tern_lowering *node, tern_value *results) {
  tern_program *p = node->program;
  const int64_t *attrs = node->attrs;
  const tern_value *s = node->scalars;
  tern_dtype wide = tern_compute_dtype(tern_value_dtype(p, node->operands[SGD_PARAM]));
  tern_value param = tern_convert(p, node->operands[SGD_PARAM], wide), lr = number_or_tensor(node, SGD_LR, SGD_S_LR, wide), buffer = TERN_NO_VALUE;
  gradient g = read_gradient(node, SGD_GRAD, SGD_SCALE, SGD_FOUND, wide);
  tern_value grad = attrs[SGD_MAXIMIZES] ? tern_negate(p, g.unscaled) : g.unscaled;
  if (attrs[SGD_DECAYS]) grad = tern_add(p, grad, tern_multiply(p, param, s[SGD_S_DECAY]));
  if (attrs[SGD_MOMENTUM]) {
    buffer = grad;
    if (!attrs[SGD_FIRST]) {
      tern_value old = tern_convert(p, node->operands[SGD_BUFFER], wide);
      buffer = tern_add(p, tern_multiply(p, old, s[SGD_S_MOMENTUM]), tern_multiply(p, grad, s[SGD_S_UNDAMPED]));
    }
    grad = attrs[SGD_NESTEROV] ? tern_add(p, grad, tern_multiply(p, buffer, s[SGD_S_MOMENTUM])) : buffer;
  }
  param = tern_subtract(p, param, tern_multiply(p, grad, lr));
  int n = 0;
  results[n++] = unless_skipped(node, &g, param, SGD_PARAM);
  if (attrs[SGD_MOMENTUM]) results[n++] = unless_skipped(node, &g, buffer, SGD_BUFFER);
  if (attrs[SGD_WRITES_GRAD]) results[n++] = unless_skipped(node, &g, g.unscaled, SGD_GRAD);
  return NULL;
}

/* ---- Adagrad. attrs: decays, maximises, writes the gradient back ---- */

enum { ADAGRAD_DECAYS, ADAGRAD_MAXIMIZES, ADAGRAD_WRITES_GRAD, ADAGRAD_ATTRS };
enum { ADAGRAD_PARAM, ADAGRAD_GRAD, ADAGRAD_SUM, ADAGRAD_SCALE, ADAGRAD_FOUND, ADAGRAD_STEP, ADAGRAD_LR };     /* operands */
enum { ADAGRAD_S_STEP, ADAGRAD_S_LR, ADAGRAD_S_LR_DECAY, ADAGRAD_S_DECAY, ADAGRAD_S_EPS };                      /* scalars */

static tern_verdict draft_adagrad(const tern_call *call, tern_draft *draft, const tern_tensor **targets, const list *lists, int i) {
  const tern_tensor *param = &lists[0].tensors[i], *scale = tern_arg_tensor(call, 9), *found = tern_arg_tensor(call, 10);
  double decay = tern_arg_double(call, 6, 0);
  tern_dtype wide = tern_nn_wide(param);
  tern_draft_start(draft);
  tern_verdict verdict = tern_nn_operands(draft, 5, (const tern_tensor *[]){param, &lists[1].tensors[i], &lists[2].tensors[i], scale, found});
  if (verdict == TERN_RECORD) verdict = draft_number_or_tensor(draft, &(tern_argument){.tag = TERN_ARG_TENSOR, .u.tensor = lists[3].tensors[i]}, wide);
  if (verdict == TERN_RECORD) verdict = draft_number_or_tensor(draft, &call->arguments[4], wide);
  if (verdict != TERN_RECORD) return verdict;
  for (int k = 5; k < 8; k++) tern_draft_double(draft, wide, tern_arg_double(call, k, 0), false);
  tern_draft_attrs(draft, ADAGRAD_ATTRS, (int64_t[]){decay != 0, tern_arg_bool(call, 8, false), scale != NULL});
  draft_target(draft, targets, param);
  draft_target(draft, targets, &lists[2].tensors[i]);
  if (scale) draft_target(draft, targets, &lists[1].tensors[i]);
  return TERN_RECORD;
}

/* (self, grads, state_sums, state_steps, *, lr, lr_decay, weight_decay, eps, maximize, grad_scale?, found_inf?) */
static tern_verdict call_adagrad(const tern_call *call, tern_status *status) {
  list lists[4];
  if (call->n_arguments < 11) return TERN_FALL_BACK;
  for (int i = 0; i < 4; i++) lists[i] = list_at(call, i);
  if (!is_updatable(lists[0]) || !matches(lists[1], lists[0]) || !matches(lists[2], lists[0]) || lists[3].n != lists[0].n) return TERN_FALL_BACK;
  return record_each(call, status, lists, draft_adagrad);
}

static tern_status lower_adagrad(const tern_lowering *node, tern_value *results) {
  tern_program *p = node->program;
  const int64_t *attrs = node->attrs;
  const tern_value *s = node->scalars;
  tern_dtype wide = tern_compute_dtype(tern_value_dtype(p, node->operands[ADAGRAD_PARAM]));
  tern_value param = tern_convert(p, node->operands[ADAGRAD_PARAM], wide), one = tern_nn_number(p, wide, 1);
  tern_value step = number_or_tensor(node, ADAGRAD_STEP, ADAGRAD_S_STEP, wide), lr = number_or_tensor(node, ADAGRAD_LR, ADAGRAD_S_LR, wide);
  gradient g = read_gradient(node, ADAGRAD_GRAD, ADAGRAD_SCALE, ADAGRAD_FOUND, wide);
  tern_value grad = attrs[ADAGRAD_MAXIMIZES] ? tern_negate(p, g.unscaled) : g.unscaled;
  if (attrs[ADAGRAD_DECAYS]) grad = tern_add(p, grad, tern_multiply(p, param, s[ADAGRAD_S_DECAY]));
  tern_value rate = tern_divide(p, lr, tern_add(p, one, tern_multiply(p, tern_subtract(p, step, one), s[ADAGRAD_S_LR_DECAY])));
  tern_value sum = tern_add(p, tern_convert(p, node->operands[ADAGRAD_SUM], wide), tern_multiply(p, grad, grad));
  param = tern_subtract(p, param, tern_divide(p, tern_multiply(p, grad, rate), tern_add(p, tern_sqrt(p, sum), s[ADAGRAD_S_EPS])));
  int n = 0;
  results[n++] = unless_skipped(node, &g, param, ADAGRAD_PARAM);
  results[n++] = unless_skipped(node, &g, sum, ADAGRAD_SUM);
  if (attrs[ADAGRAD_WRITES_GRAD]) results[n++] = unless_skipped(node, &g, g.unscaled, ADAGRAD_GRAD);
  return NULL;
}

const tern_aten_row tern_aten_optimizer[] = {
    {.inplace = "_fused_adam_", .custom = call_adam, .lower = lower_adam},   {.inplace = "_fused_adam_.tensor_lr", .custom = call_adam, .lower = lower_adam},
    {.inplace = "_fused_adamw_", .custom = call_adamw, .lower = lower_adam}, {.inplace = "_fused_adamw_.tensor_lr", .custom = call_adamw, .lower = lower_adam},
    {.inplace = "_fused_sgd_", .custom = call_sgd, .lower = lower_sgd},      {.inplace = "_fused_sgd_.tensor_lr", .custom = call_sgd, .lower = lower_sgd},
    {.inplace = "_fused_adagrad_", .custom = call_adagrad, .lower = lower_adagrad},
    {.inplace = "_fused_adagrad_.tensor_lr", .custom = call_adagrad, .lower = lower_adagrad},
};
TERN_ATEN_FAMILY_END(optimizer)
