/* conv: convolutions, 1 to 3 dimensional, plain and transposed. A PrivateUse1 device gets all of them through aten::convolution_overrideable and its backward;
 * the batch dimension is always there and the shapes were checked by aten::convolution.
 *
 * A transposed convolution is the gradient of a plain one with respect to its input, so the three kinds of node (forward, input gradient, weight gradient)
 * serve both. attrs: transposed, spatial, groups, then stride, padding, dilation and output padding of 3 each. */
#include "nn.h"

enum { TRANSPOSED, SPATIAL, GROUPS, STRIDE, PADDING = STRIDE + 3, DILATION = PADDING + 3, OUTPUT_PADDING = DILATION + 3, ATTRS = OUTPUT_PADDING + 3 };

/* Reads the arguments from `stride` on. False where they are no convolution. */
static bool draft_window(const tern_call *call, tern_draft *draft, int first, int spatial) {
  int64_t attrs[ATTRS] = {0};
  if (spatial < 1 || spatial > 3) return false;
  attrs[TRANSPOSED] = tern_arg_bool(call, first + 3, false);
  attrs[SPATIAL] = spatial;
  attrs[GROUPS] = tern_arg_int(call, first + 5, 1);
  if (attrs[GROUPS] < 1 || !tern_nn_expand_ints(call, first, spatial, attrs + STRIDE) || !tern_nn_expand_ints(call, first + 1, spatial, attrs + PADDING) ||
      !tern_nn_expand_ints(call, first + 2, spatial, attrs + DILATION))
    return false;
  if (attrs[TRANSPOSED] && !tern_nn_expand_ints(call, first + 4, spatial, attrs + OUTPUT_PADDING)) return false;
  tern_draft_attrs(draft, ATTRS, attrs);
  return true;
}

/* The result's sizes by the attrs; false where a dimension would be empty or the channels do not fit. */
static bool result_sizes(const int64_t *attrs, const tern_tensor *x, const tern_tensor *w, int64_t *sizes) {
  int64_t groups = attrs[GROUPS];
  bool transposed = attrs[TRANSPOSED];
  if (x->sizes[1] != (transposed ? w->sizes[0] : w->sizes[1] * groups) || w->sizes[0] % groups != 0) return false;
  sizes[0] = x->sizes[0];
  sizes[1] = transposed ? w->sizes[1] * groups : w->sizes[0];
  for (int i = 0; i < attrs[SPATIAL]; i++) {
    int64_t in = x->sizes[i + 2], stride = attrs[STRIDE + i], padding = attrs[PADDING + i], extent = attrs[DILATION + i] * (w->sizes[i + 2] - 1) + 1;
    if (stride < 1 || attrs[DILATION + i] < 1 || w->sizes[i + 2] < 1) return false;
    int64_t room = in + 2 * padding - extent;
    if (transposed)
      sizes[i + 2] = (in - 1) * stride - 2 * padding + extent + attrs[OUTPUT_PADDING + i];
    else
      sizes[i + 2] = room < 0 ? 0 : room / stride + 1;
    if (sizes[i + 2] < 1) return false;
  }
  return true;
}

/* aten::convolution leaves this to the backend, and there is no CPU kernel that would say it. */
static tern_status check_dtypes(const tern_tensor *x, const tern_tensor *w, const tern_tensor *bias) {
  if (w->dtype != x->dtype)
    return tern_error_new(TERN_INVALID_ARGUMENT, "Input type (%s) and weight type (%s) should be the same", tern_dtype_name((tern_dtype)x->dtype),
                          tern_dtype_name((tern_dtype)w->dtype));
  if (bias && bias->dtype != x->dtype)
    return tern_error_new(TERN_INVALID_ARGUMENT, "Input type (%s) and bias type (%s) should be the same", tern_dtype_name((tern_dtype)x->dtype),
                          tern_dtype_name((tern_dtype)bias->dtype));
  return NULL;
}

static tern_verdict infer_conv(const tern_call *call, tern_draft *draft, tern_status *status) {
  const tern_tensor *operands[3] = {tern_arg_tensor(call, 0), tern_arg_tensor(call, 1), tern_arg_tensor(call, 2)}, *x = operands[0], *w = operands[1],
                    *bias = operands[2];
  int64_t sizes[TERN_MAX_TENSOR_RANK];
  if (!x || !w || x->rank != w->rank || x->rank < 3 || x->rank > 5) return TERN_REJECT;
  if (!draft_window(call, draft, 3, x->rank - 2) || !result_sizes(draft->attrs, x, w, sizes)) return TERN_REJECT;
  if (bias && !tern_nn_has_sizes(bias, 1, &sizes[1])) return TERN_REJECT;
  *status = check_dtypes(x, w, bias);
  if (*status) return TERN_RECORD;
  if (!tern_nn_is_float(x)) return TERN_FALL_BACK;
  tern_nn_keep_channels_last(tern_draft_result(draft, (tern_dtype)x->dtype, x->rank, sizes), x);
  return tern_nn_operands(draft, 3, operands);
}

/* (gy, x, w, ...): three results, the unwanted undefined. */
static tern_verdict infer_backward(const tern_call *call, tern_draft *draft, tern_status *status) {
  const tern_tensor *operands[3] = {tern_arg_tensor(call, 0), tern_arg_tensor(call, 1), tern_arg_tensor(call, 2)}, *gy = operands[0], *x = operands[1],
                    *w = operands[2];
  int64_t sizes[TERN_MAX_TENSOR_RANK];
  if (!gy || !x || !w || x->rank != w->rank || gy->rank != x->rank || x->rank < 3 || x->rank > 5) return TERN_REJECT;
  if (!draft_window(call, draft, 3, x->rank - 2) || !result_sizes(draft->attrs, x, w, sizes)) return TERN_REJECT;
  if (!tern_nn_has_sizes(gy, x->rank, sizes)) return TERN_REJECT;
  *status = check_dtypes(x, w, gy);
  if (*status) return TERN_RECORD;
  if (!tern_nn_is_float(x)) return TERN_FALL_BACK;
  tern_draft_output *gx = tern_draft_result(draft, (tern_dtype)x->dtype, x->rank, x->sizes);
  tern_nn_keep_channels_last(gx, x);
  tern_draft_output *gw = tern_draft_result(draft, (tern_dtype)x->dtype, w->rank, w->sizes);
  tern_nn_keep_channels_last(gw, w);
  tern_draft_output *gb = tern_draft_result(draft, (tern_dtype)x->dtype, 1, &sizes[1]);
  gx->undefined = !tern_nn_mask_has(call, 9, 0);
  gw->undefined = !tern_nn_mask_has(call, 9, 1);
  gb->undefined = !tern_nn_mask_has(call, 9, 2);
  return tern_nn_operands(draft, 3, operands);
}

typedef tern_verdict infer_function(const tern_call *call, tern_draft *draft, tern_status *status);

static tern_verdict record(const tern_call *call, tern_status *status, infer_function *infer) {
  tern_draft draft;
  tern_draft_start(&draft);
  tern_verdict verdict = infer(call, &draft, status);
  if (verdict == TERN_RECORD && !*status) *status = tern_draft_record(call, &draft, call->row, NULL);
  return verdict;
}

static tern_verdict call_conv(const tern_call *call, tern_status *status) { return record(call, status, infer_conv); }
static tern_verdict call_backward(const tern_call *call, tern_status *status) { return record(call, status, infer_backward); }

/* ---- lowering ---- */

/* The window of the plain convolution: for a transposed one, of the convolution it is the gradient of. Where the output padding is a whole stride or
 * more, that convolution would see one window too many; it is kept off by less padding behind. */
static tern_window window_of(const int64_t *attrs) {
  tern_window window = {.spatial = (int32_t)attrs[SPATIAL], .groups = attrs[GROUPS]};
  for (int i = 0; i < window.spatial; i++) {
    int64_t extra = attrs[OUTPUT_PADDING + i];
    window.stride[i] = attrs[STRIDE + i];
    window.pad_low[i] = attrs[PADDING + i];
    window.pad_high[i] = attrs[PADDING + i] - (extra >= attrs[STRIDE + i] ? extra : 0);
    window.dilation[i] = attrs[DILATION + i];
  }
  return window;
}

static tern_status lower_conv(const tern_lowering *node, tern_value *results) {
  tern_program *p = node->program;
  tern_value x = node->operands[0], w = node->operands[1], bias = node->operands[2];
  tern_window window = window_of(node->attrs);
  const tern_output *output = &node->outputs[0];
  tern_value y = node->attrs[TRANSPOSED] ? tern_conv_input_grad(p, x, w, &window, output->view.sizes) : tern_convolution(p, x, w, &window);
  if (bias != TERN_NO_VALUE) y = tern_add(p, y, tern_nn_along(p, bias, output->view.rank, 1));
  results[0] = y;
  return NULL;
}

static tern_status lower_backward(const tern_lowering *node, tern_value *results) {
  tern_program *p = node->program;
  tern_value gy = node->operands[0], x = node->operands[1], w = node->operands[2];
  tern_window window = window_of(node->attrs);
  if (node->attrs[TRANSPOSED]) {
    results[0] = tern_convolution(p, gy, w, &window);
    results[1] = tern_conv_weight_grad(p, gy, x, &window, tern_value_dims(p, w));
  } else {
    results[0] = tern_conv_input_grad(p, gy, w, &window, tern_value_dims(p, x));
    results[1] = tern_conv_weight_grad(p, x, gy, &window, tern_value_dims(p, w));
  }
  results[2] = tern_nn_sum_but(p, gy, 1);
  return NULL;
}

const tern_aten_row tern_aten_conv[] = {
    {.functional = "convolution_overrideable", .custom = call_conv, .lower = lower_conv},
    {.functional = "convolution_backward_overrideable", .custom = call_backward, .lower = lower_backward},
};
TERN_ATEN_FAMILY_END(conv)
