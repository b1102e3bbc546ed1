/* activation: the nonlinearities that are more than one elementwise formula: softmax and log softmax, GELU, GLU, PReLU, with their gradients. */
#include <math.h>
#include "nn.h"

/* ---- softmax ---- */

/* (self, dim, half_to_float) */
static tern_verdict infer_softmax(const tern_call *call, tern_draft *draft) {
  const tern_tensor *x = tern_arg_tensor(call, 0);
  int dim;
  if (!x || !tern_wrap_dim(tern_arg_int(call, 1, 0), x->rank, &dim)) return TERN_REJECT;
  bool to_float = tern_arg_bool(call, 2, false);
  if (!tern_nn_is_float(x) || (to_float && x->dtype != TERN_F16)) return TERN_FALL_BACK;
  tern_draft_attr(draft, dim);
  tern_nn_keep_channels_last(tern_draft_result(draft, to_float ? TERN_F32 : (tern_dtype)x->dtype, x->rank, x->sizes), x);
  return tern_draft_tensor(draft, x);
}

/* (self, dim, dtype?): rows with nothing but -inf give zeros. */
static tern_verdict infer_safe_softmax(const tern_call *call, tern_draft *draft) {
  const tern_tensor *x = tern_arg_tensor(call, 0);
  int dim;
  if (!x || !tern_wrap_dim(tern_arg_int(call, 1, 0), x->rank, &dim)) return TERN_REJECT;
  if (!tern_nn_is_float(x)) return TERN_FALL_BACK;
  int dtype = tern_arg_is_none(call, 2) ? x->dtype : tern_dtype_from_torch((int)tern_arg_int(call, 2, 0));
  if (dtype < 0 || !tern_dtype_is_float((tern_dtype)dtype)) return TERN_FALL_BACK;
  tern_draft_attr(draft, dim);
  tern_nn_keep_channels_last(tern_draft_result(draft, (tern_dtype)dtype, x->rank, x->sizes), x);
  return tern_draft_tensor(draft, x);
}

/* (grad_output, output, dim, input_dtype) */
static tern_verdict infer_softmax_backward(const tern_call *call, tern_draft *draft) {
  const tern_tensor *gy = tern_arg_tensor(call, 0), *y = tern_arg_tensor(call, 1);
  int dim;
  if (!gy || !y || !tern_nn_same_sizes(gy, y) || !tern_wrap_dim(tern_arg_int(call, 2, 0), y->rank, &dim)) return TERN_REJECT;
  int input = tern_dtype_from_torch((int)tern_arg_int(call, 3, tern_dtype_to_torch((tern_dtype)y->dtype)));
  if (!tern_nn_is_float(y) || gy->dtype != y->dtype || input < 0 || !tern_dtype_is_float((tern_dtype)input)) return TERN_FALL_BACK;
  tern_draft_attr(draft, dim);
  tern_nn_keep_channels_last(tern_draft_result(draft, (tern_dtype)input, y->rank, y->sizes), gy);
  return tern_nn_operands(draft, 2, (const tern_tensor *[]){gy, y});
}

typedef tern_value softmax_builder(tern_program *p, tern_value x, int dim);
typedef tern_value softmax_grad_builder(tern_program *p, tern_value gy, tern_value y, int dim);

/* Computed wide and rounded once. */
static tern_status lower_any_softmax(const tern_lowering *node, tern_value *results, softmax_builder *build) {
  tern_program *p = node->program;
  tern_value x = tern_nn_at_least_1d(p, node->operands[0]);
  if (tern_value_dtype(p, x) != node->outputs[0].computed) x = tern_nn_widen(p, x);
  results[0] = tern_nn_result(node, 0, build(p, x, (int)node->attrs[0]));
  return NULL;
}

static tern_status lower_any_softmax_backward(const tern_lowering *node, tern_value *results, softmax_grad_builder *build) {
  tern_program *p = node->program;
  tern_value gy = tern_nn_at_least_1d(p, node->operands[0]), y = tern_nn_at_least_1d(p, node->operands[1]);
  results[0] = tern_nn_result(node, 0, build(p, gy, y, (int)node->attrs[0]));
  return NULL;
}

static tern_value safe_softmax(tern_program *p, tern_value x, int dim) {
  tern_value most = tern_nn_unsqueeze(p, tern_reduce(p, TERN_MAX, x, 1, &dim), dim);
  tern_value nothing = tern_nn_equals(p, most, tern_nn_number(p, tern_value_dtype(p, x), -(double)INFINITY));
  return tern_select(p, nothing, tern_nn_number(p, tern_value_dtype(p, x), 0), tern_softmax(p, x, dim));
}

static tern_status lower_softmax(const tern_lowering *node, tern_value *results) { return lower_any_softmax(node, results, tern_softmax); }
static tern_status lower_log_softmax(const tern_lowering *node, tern_value *results) { return lower_any_softmax(node, results, tern_log_softmax); }
static tern_status lower_safe_softmax(const tern_lowering *node, tern_value *results) { return lower_any_softmax(node, results, safe_softmax); }
static tern_status lower_softmax_backward(const tern_lowering *node, tern_value *results) {
  return lower_any_softmax_backward(node, results, tern_softmax_grad);
}
static tern_status lower_log_softmax_backward(const tern_lowering *node, tern_value *results) {
  return lower_any_softmax_backward(node, results, tern_log_softmax_grad);
}

/* ---- GELU: attrs: 0 for erf, 1 for tanh ---- */

static bool draft_approximate(const tern_call *call, tern_draft *draft, int i) {
  const char *text = i < call->n_arguments && call->arguments[i].tag == TERN_ARG_TEXT ? call->arguments[i].u.text : "none";
  bool tanh_form = strcmp(text, "tanh") == 0;
  if (!tanh_form && strcmp(text, "none") != 0) return false;
  tern_draft_attr(draft, tanh_form);
  return true;
}

static tern_verdict infer_gelu(const tern_call *call, tern_draft *draft) {
  const tern_tensor *x = tern_arg_tensor(call, 0);
  if (!x) return TERN_REJECT;
  if (!tern_nn_is_float(x) || !draft_approximate(call, draft, 1)) return TERN_FALL_BACK;
  tern_draft_result(draft, (tern_dtype)x->dtype, x->rank, x->sizes)->layout = TERN_LIKE_OPERANDS;
  return tern_draft_tensor(draft, x);
}

static tern_verdict infer_gelu_backward(const tern_call *call, tern_draft *draft) {
  const tern_tensor *gy = tern_arg_tensor(call, 0), *x = tern_arg_tensor(call, 1);
  if (!gy || !x) return TERN_REJECT;
  if (!tern_nn_is_float(x) || gy->dtype != x->dtype || !tern_nn_same_sizes(gy, x) || !draft_approximate(call, draft, 2)) return TERN_FALL_BACK;
  tern_draft_result(draft, (tern_dtype)x->dtype, x->rank, x->sizes)->layout = TERN_LIKE_OPERANDS;
  return tern_nn_operands(draft, 2, (const tern_tensor *[]){gy, x});
}

static tern_status lower_gelu(const tern_lowering *node, tern_value *results) {
  results[0] = tern_gelu(node->program, node->operands[0], node->attrs[0]);
  return NULL;
}

static tern_status lower_gelu_backward(const tern_lowering *node, tern_value *results) {
  results[0] = tern_gelu_grad(node->program, node->operands[0], node->operands[1], node->attrs[0]);
  return NULL;
}

/* ---- GLU: a * logistic(b) of the two halves along a dimension. attrs: dim ---- */

static tern_verdict infer_glu(const tern_call *call, tern_draft *draft) {
  const tern_tensor *x = tern_arg_tensor(call, 0);
  int dim;
  if (!x || x->rank == 0 || !tern_wrap_dim(tern_arg_int(call, 1, -1), x->rank, &dim) || x->sizes[dim] % 2 != 0) return TERN_REJECT;
  if (!tern_nn_is_float(x)) return TERN_FALL_BACK;
  /* The operands are views of the two halves, as PyTorch's TensorIterator sees them: so the result's strides follow theirs. */
  tern_draft_output *output = tern_draft_result(draft, (tern_dtype)x->dtype, x->rank, x->sizes);
  output->sizes[dim] /= 2;
  output->layout = TERN_LIKE_OPERANDS;
  tern_tensor half[2] = {*x, *x};
  half[0].sizes = half[1].sizes = output->sizes;
  half[0].count = half[1].count = x->count / 2;
  half[1].offset += output->sizes[dim] * x->strides[dim];
  return tern_nn_operands(draft, 2, (const tern_tensor *[]){&half[0], &half[1]});
}

static tern_verdict infer_glu_backward(const tern_call *call, tern_draft *draft) {
  const tern_tensor *gy = tern_arg_tensor(call, 0), *x = tern_arg_tensor(call, 1);
  int dim;
  if (!gy || !x || x->rank == 0 || gy->rank != x->rank || !tern_wrap_dim(tern_arg_int(call, 2, -1), x->rank, &dim)) return TERN_REJECT;
  for (int d = 0; d < x->rank; d++)
    if (gy->sizes[d] * (d == dim ? 2 : 1) != x->sizes[d]) return TERN_REJECT;
  if (!tern_nn_is_float(x) || gy->dtype != x->dtype) return TERN_FALL_BACK;
  tern_draft_attr(draft, dim);
  tern_draft_result(draft, (tern_dtype)x->dtype, x->rank, x->sizes);
  return tern_nn_operands(draft, 2, (const tern_tensor *[]){gy, x});
}

static void halves(tern_program *p, tern_value x, int dim, tern_value out[2]) {
  int64_t start[TERN_MAX_RANK] = {0}, limit[TERN_MAX_RANK], stride[TERN_MAX_RANK];
  for (int d = 0; d < tern_value_rank(p, x); d++) {
    limit[d] = tern_value_dims(p, x)[d];
    stride[d] = 1;
  }
  int64_t half = limit[dim] / 2;
  for (int i = 0; i < 2; i++) {
    start[dim] = i * half;
    limit[dim] = (i + 1) * half;
    out[i] = tern_slice(p, x, start, limit, stride);
  }
}

static tern_status lower_glu(const tern_lowering *node, tern_value *results) {
  tern_program *p = node->program;
  results[0] = tern_nn_result(node, 0, tern_multiply(p, tern_nn_widen(p, node->operands[0]), tern_logistic(p, tern_nn_widen(p, node->operands[1]))));
  return NULL;
}

static tern_status lower_glu_backward(const tern_lowering *node, tern_value *results) {
  tern_program *p = node->program;
  tern_value gy = tern_nn_widen(p, node->operands[0]), half[2], parts[2];
  halves(p, tern_nn_widen(p, node->operands[1]), (int)node->attrs[0], half);
  tern_value gate = tern_logistic(p, half[1]), one = tern_nn_number(p, tern_value_dtype(p, gy), 1);
  parts[0] = tern_multiply(p, gate, gy);
  parts[1] = tern_multiply(p, tern_multiply(p, tern_multiply(p, tern_subtract(p, one, gate), gate), gy), half[0]);
  results[0] = tern_nn_result(node, 0, tern_concatenate(p, 2, parts, (int)node->attrs[0]));
  return NULL;
}

/* ---- PReLU: the weight was shaped to broadcast by PyTorch ---- */

static tern_verdict infer_prelu(const tern_call *call, tern_draft *draft, int n, int n_outputs) {
  const tern_tensor *operands[3];
  int rank = 0;
  int64_t sizes[TERN_MAX_TENSOR_RANK];
  for (int i = 0; i < n; i++) {
    operands[i] = tern_arg_tensor(call, i);
    if (!operands[i] || !tern_broadcast_shape(&rank, sizes, operands[i]->rank, operands[i]->sizes)) return TERN_REJECT;
    if (!tern_nn_is_float(operands[i]) || operands[i]->dtype != operands[0]->dtype) return TERN_FALL_BACK;
  }
  for (int i = 0; i < n_outputs; i++) tern_draft_result(draft, (tern_dtype)operands[0]->dtype, rank, sizes)->layout = TERN_LIKE_OPERANDS;
  return tern_nn_operands(draft, n, operands);
}

static tern_verdict infer_prelu_forward(const tern_call *call, tern_draft *draft) { return infer_prelu(call, draft, 2, 1); }
static tern_verdict infer_prelu_backward(const tern_call *call, tern_draft *draft) { return infer_prelu(call, draft, 3, 2); }

static tern_status lower_prelu(const tern_lowering *node, tern_value *results) {
  tern_program *p = node->program;
  tern_value x = tern_nn_widen(p, node->operands[0]), weight = tern_nn_widen(p, node->operands[1]);
  tern_value positive = tern_compare(p, TERN_GT, x, tern_nn_number(p, tern_value_dtype(p, x), 0));
  results[0] = tern_nn_result(node, 0, tern_select(p, positive, x, tern_multiply(p, weight, x)));
  return NULL;
}

static tern_status lower_prelu_backward(const tern_lowering *node, tern_value *results) {
  tern_program *p = node->program;
  tern_value gy = tern_nn_widen(p, node->operands[0]), x = tern_nn_widen(p, node->operands[1]), weight = tern_nn_widen(p, node->operands[2]);
  const tern_geometry *view = &node->outputs[0].view;
  tern_value zero = tern_nn_number(p, tern_value_dtype(p, x), 0), positive = tern_compare(p, TERN_GT, x, zero);
  tern_value gx = tern_select(p, positive, gy, tern_multiply(p, weight, gy)), gweight = tern_select(p, positive, zero, tern_multiply(p, x, gy));
  results[0] = tern_nn_result(node, 0, tern_broadcast_to(p, gx, view->rank, view->sizes));
  results[1] = tern_nn_result(node, 1, tern_broadcast_to(p, gweight, view->rank, view->sizes));
  return NULL;
}

const tern_aten_row tern_aten_activation[] = {
    {.functional = "gelu", .inplace = "gelu_", .out = "gelu.out", .infer = infer_gelu, .lower = lower_gelu},
    {.functional = "gelu_backward", .out = "gelu_backward.grad_input", .infer = infer_gelu_backward, .lower = lower_gelu_backward},
    {.functional = "_softmax", .out = "_softmax.out", .infer = infer_softmax, .lower = lower_softmax},
    {.functional = "_log_softmax", .out = "_log_softmax.out", .infer = infer_softmax, .lower = lower_log_softmax},
    {.functional = "_softmax_backward_data", .out = "_softmax_backward_data.out", .infer = infer_softmax_backward, .lower = lower_softmax_backward},
    {.functional = "_log_softmax_backward_data", .out = "_log_softmax_backward_data.out", .infer = infer_softmax_backward, .lower = lower_log_softmax_backward},
    {.functional = "_safe_softmax", .infer = infer_safe_softmax, .lower = lower_safe_softmax},
    {.functional = "glu", .out = "glu.out", .infer = infer_glu, .lower = lower_glu},
    {.functional = "glu_backward", .out = "glu_backward.grad_input", .infer = infer_glu_backward, .lower = lower_glu_backward},
    {.functional = "_prelu_kernel", .infer = infer_prelu_forward, .lower = lower_prelu},
    {.functional = "_prelu_kernel_backward", .infer = infer_prelu_backward, .lower = lower_prelu_backward},
};
TERN_ATEN_FAMILY_END(activation)
