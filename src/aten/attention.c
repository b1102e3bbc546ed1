/* attention: scaled dot product attention as one composite, forward and backward. PyTorch brings it here where the shim's _fused_sdp_choice says so; everything
 * else goes to its own math decomposition.
 *
 * Dropout inside attention and the debug mask are refused by that choice: there is no CPU kernel to fall back on. Results and gradients lie in memory as
 * query, key and value do: those usually are [batch, length, heads, size] seen transposed, and then the .transpose(1, 2).reshape(...) behind attention copies
 * nothing. */
#include <math.h>
#include "nn.h"

/* q [B, H, L, E], k [B, Hk, S, E], v [B, Hk, S, Ev] of one floating dtype, H a multiple of Hk. */
static bool is_attended(const tern_tensor *q, const tern_tensor *k, const tern_tensor *v) {
  if (!q || !k || !v || q->rank != 4 || k->rank != 4 || v->rank != 4 || !tern_nn_is_float(q) || k->dtype != q->dtype || v->dtype != q->dtype) return false;
  const int64_t *Q = q->sizes, *K = k->sizes, *V = v->sizes;
  return Q[0] == K[0] && K[0] == V[0] && K[1] == V[1] && K[2] == V[2] && Q[3] == K[3] && K[1] > 0 && Q[1] % K[1] == 0 && q->count > 0 && v->count > 0;
}

static bool is_mask(const tern_tensor *mask, const tern_tensor *q, const tern_tensor *k) {
  if (!mask) return true;
  const int64_t full[4] = {q->sizes[0], q->sizes[1], q->sizes[2], k->sizes[2]};
  return (mask->dtype == TERN_BOOL || tern_nn_is_float(mask)) && tern_nn_expands(mask, 4, full);
}

static tern_dtype sum_dtype(const tern_tensor *q) { return q->dtype == TERN_F64 ? TERN_F64 : TERN_F32; }

static void draft_scale(const tern_call *call, tern_draft *draft, int i, const tern_tensor *q) {
  double scale = tern_arg_is_none(call, i) ? 1 / sqrt((double)q->sizes[3]) : tern_arg_double(call, i, 1);
  tern_draft_double(draft, sum_dtype(q), scale, false);
}

/* (query, key, value, attn_bias?, dropout_p, is_causal, return_debug_mask, *, scale?) -> output, logsumexp, cum_seq_q, cum_seq_k, max_q, max_k, philox_seed,
 * philox_offset, debug_attn_mask: those of packed sequences and of dropout are undefined. attrs: causal */
static tern_verdict call_attention(const tern_call *call, tern_status *status) {
  const tern_tensor *q = tern_arg_tensor(call, 0), *k = tern_arg_tensor(call, 1), *v = tern_arg_tensor(call, 2), *mask = tern_arg_tensor(call, 3);
  tern_draft draft;
  if (!is_attended(q, k, v) || !is_mask(mask, q, k)) return TERN_FALL_BACK;
  if (tern_arg_double(call, 4, 0) != 0 || tern_arg_bool(call, 6, false) || !call->host->return_int) return TERN_FALL_BACK;
  tern_draft_start(&draft);
  tern_verdict verdict = tern_nn_operands(&draft, 4, (const tern_tensor *[]){q, k, v, mask});
  if (verdict != TERN_RECORD) return verdict;
  tern_draft_attr(&draft, tern_arg_bool(call, 5, false));
  draft_scale(call, &draft, 7, q);
  const int64_t sizes[4] = {q->sizes[0], q->sizes[1], q->sizes[2], v->sizes[3]};
  if (v->sizes[3] == q->sizes[3])
    tern_nn_result_like(&draft, (tern_dtype)q->dtype, q);
  else
    tern_draft_result(&draft, (tern_dtype)q->dtype, 4, sizes);
  tern_draft_result(&draft, sum_dtype(q), 3, sizes);
  *status = tern_draft_record(call, &draft, call->row, NULL);
  if (*status) return TERN_RECORD;
  for (int i = 0; i < 2; i++) call->host->return_undefined(call->shim);
  call->host->return_int(call->shim, q->sizes[2]);
  call->host->return_int(call->shim, k->sizes[2]);
  for (int i = 0; i < 3; i++) call->host->return_undefined(call->shim);
  return TERN_RECORD;
}

static tern_status lower_attention(const tern_lowering *node, tern_value *results) {
  const tern_value *in = node->operands;
  tern_attention(node->program, in[0], in[1], in[2], in[3], node->scalars[0], node->attrs[0], results);
  return NULL;
}

/* (grad_out, query, key, value, attn_bias, grad_input_mask, out, logsumexp, cum_seq_q, cum_seq_k, max_q, max_k, dropout_p, is_causal, philox_seed,
 * philox_offset, *, scale?) -> the gradients of query, key, value and attn_bias. attrs: causal, whether the mask's gradient is wanted */
static tern_verdict infer_backward(const tern_call *call, tern_draft *draft) {
  const tern_tensor *gout = tern_arg_tensor(call, 0), *q = tern_arg_tensor(call, 1), *k = tern_arg_tensor(call, 2), *v = tern_arg_tensor(call, 3),
                    *mask = tern_arg_tensor(call, 4);
  const tern_tensor *out = tern_arg_tensor(call, 6), *sums = tern_arg_tensor(call, 7), *inputs[3] = {q, k, v};
  bool wants_mask = mask && tern_nn_is_float(mask) && tern_nn_mask_has(call, 5, 3);
  if (!gout || !out || !sums || !is_attended(q, k, v) || !is_mask(mask, q, k) || tern_arg_double(call, 12, 0) != 0) return TERN_FALL_BACK;
  const int64_t sizes[4] = {q->sizes[0], q->sizes[1], q->sizes[2], v->sizes[3]};
  if (!tern_nn_has_sizes(gout, 4, sizes) || !tern_nn_has_sizes(out, 4, sizes) || !tern_nn_has_sizes(sums, 3, sizes)) return TERN_FALL_BACK;
  if (gout->dtype != q->dtype || out->dtype != q->dtype || sums->dtype != sum_dtype(q) || (wants_mask && q->sizes[1] != k->sizes[1])) return TERN_FALL_BACK;
  tern_draft_attr(draft, tern_arg_bool(call, 13, false));
  tern_draft_attr(draft, wants_mask);
  draft_scale(call, draft, 16, q);
  for (int i = 0; i < 3; i++) {
    tern_nn_result_like(draft, (tern_dtype)q->dtype, inputs[i])->undefined = !tern_nn_mask_has(call, 5, i);
  }
  if (wants_mask)
    tern_draft_result(draft, (tern_dtype)mask->dtype, mask->rank, mask->sizes);
  else
    tern_draft_result(draft, (tern_dtype)q->dtype, 0, NULL)->undefined = true;
  return tern_nn_operands(draft, 7, (const tern_tensor *[]){gout, q, k, v, out, sums, mask});
}

/* The gradient of an added mask is that of the scores: p * (gout v' - rowsum(gout * out)), summed to the mask's shape. */
static tern_value mask_gradient(const tern_lowering *node) {
  static const int batch[2] = {0, 1}, last = 3;
  tern_program *p = node->program;
  tern_value in[7];
  for (int i = 0; i < 7; i++) in[i] = tern_nn_widen(p, node->operands[i]);
  tern_value scores = tern_multiply(p, tern_dot(p, in[1], in[2], 2, batch, batch, 1, &last, &last), node->scalars[0]);
  tern_value scored = tern_add(p, scores, tern_convert(p, in[6], tern_value_dtype(p, scores)));
  tern_value weights = tern_exp(p, tern_subtract(p, scored, tern_nn_unsqueeze(p, in[5], 3)));
  tern_value given = tern_dot(p, in[0], in[3], 2, batch, batch, 1, &last, &last);
  tern_value taken = tern_nn_unsqueeze(p, tern_reduce(p, TERN_SUM, tern_multiply(p, in[0], in[4]), 1, &last), 3);
  tern_value gradient = tern_multiply(p, weights, tern_subtract(p, given, taken));
  const int64_t *dims = tern_value_dims(p, gradient);
  const tern_geometry *view = &node->outputs[3].view;
  int64_t square[2] = {tern_value_rank(p, gradient) == 4 ? dims[2] : 0, tern_value_rank(p, gradient) == 4 ? dims[3] : 0};
  tern_value zero = tern_nn_number(p, tern_value_dtype(p, gradient), 0);
  if (node->attrs[0]) {
    tern_value seen = tern_compare(p, TERN_GE, tern_iota(p, TERN_I32, 2, square, 0), tern_iota(p, TERN_I32, 2, square, 1));
    gradient = tern_select(p, seen, gradient, zero);
  }
  int summed[4], n = 0;
  for (int d = 0; d < 4; d++)
    if (d < 4 - view->rank || view->sizes[d - 4 + view->rank] == 1) summed[n++] = d;
  return tern_nn_result(node, 3, tern_reduce(p, TERN_SUM, gradient, n, summed));
}

static tern_status lower_backward(const tern_lowering *node, tern_value *results) {
  tern_program *p = node->program;
  const tern_value *in = node->operands;
  tern_attention_grad(p, in[0], in[1], in[2], in[3], in[4], in[5], in[6], node->scalars[0], node->attrs[0], results);
  results[3] = node->attrs[1] ? mask_gradient(node) : tern_nn_zeros(p, node->outputs[3].computed, node->outputs[3].view.rank, node->outputs[3].view.sizes);
  return NULL;
}

const tern_aten_row tern_aten_attention[] = {
    {.functional = "_scaled_dot_product_fused_attention_overrideable", .custom = call_attention, .lower = lower_attention},
    {.functional = "_scaled_dot_product_fused_attention_overrideable_backward", .infer = infer_backward, .lower = lower_backward},
};
TERN_ATEN_FAMILY_END(attention)
