/* recurrent: the steps of an LSTM's layer as one operation, in f32. PyTorch has no such operator: the shim composes lstm of it and products (src/torch/recurrent.h). */
#include "nn.h"

/* (gates [T, B, 4 H], w [4 H, H], bias [4 H]?, hidden [B, H], cell [B, H], reverse) -> states [T, B, H], cells [T, B, H], activated gates. attrs: reverse */
static tern_verdict infer_lstm(const tern_call *call, tern_draft *draft) {
  const tern_tensor *gates = tern_arg_tensor(call, 0), *w = tern_arg_tensor(call, 1), *bias = tern_arg_tensor(call, 2);
  const tern_tensor *hidden = tern_arg_tensor(call, 3), *cell = tern_arg_tensor(call, 4);
  if (!gates || !w || !hidden || !cell || gates->dtype != TERN_F32 || gates->rank != 3 || w->rank != 2) return TERN_REJECT;
  const int64_t sizes[3] = {gates->sizes[0], gates->sizes[1], w->sizes[1]};
  tern_draft_attr(draft, tern_arg_bool(call, 5, false));
  tern_draft_result(draft, TERN_F32, 3, sizes);
  tern_draft_result(draft, TERN_F32, 3, sizes);
  tern_draft_result(draft, TERN_F32, 3, gates->sizes);
  return tern_nn_operands(draft, 5, (const tern_tensor *[]){gates, w, bias, hidden, cell});
}

static tern_status lower_lstm(const tern_lowering *node, tern_value *results) {
  const tern_value *x = node->operands;
  tern_lstm(node->program, x[0], x[1], x[2], x[3], x[4], node->attrs[0], results);
  return NULL;
}

/* (gstates?, ghidden?, gcell?, activated, cells, cell, w, reverse) -> the gradients of the gates, and of the first hidden state and cell. attrs: reverse */
static tern_verdict infer_lstm_backward(const tern_call *call, tern_draft *draft) {
  const tern_tensor *operands[7];
  for (int i = 0; i < 7; i++) operands[i] = tern_arg_tensor(call, i);
  for (int i = 3; i < 7; i++)
    if (!operands[i] || operands[i]->dtype != TERN_F32) return TERN_REJECT;
  tern_draft_attr(draft, tern_arg_bool(call, 7, false));
  tern_draft_result(draft, TERN_F32, 3, operands[3]->sizes);
  tern_draft_result(draft, TERN_F32, 2, operands[5]->sizes);
  tern_draft_result(draft, TERN_F32, 2, operands[5]->sizes);
  return tern_nn_operands(draft, 7, operands);
}

static tern_status lower_lstm_backward(const tern_lowering *node, tern_value *results) {
  const tern_value *x = node->operands;
  tern_lstm_grad(node->program, x[0], x[1], x[2], x[3], x[4], x[5], x[6], node->attrs[0], results);
  return NULL;
}

const tern_aten_row tern_aten_recurrent[] = {
    {.internal = "lstm", .infer = infer_lstm, .lower = lower_lstm},
    {.internal = "lstm_backward", .infer = infer_lstm_backward, .lower = lower_lstm_backward},
};
TERN_ATEN_FAMILY_END(recurrent)
