/* policies: choices that PyTorch leaves to a device: autocast's lists, which attention kernel, and the recurrent cells that it asks accelerators for. */
#ifndef TERN_TORCH_POLICIES_H
#define TERN_TORCH_POLICIES_H
#include <ATen/Functions.h>
#include <ATen/autocast_mode.h>
#include <ATen/native/DispatchStub.h>
#include <ATen/native/transformers/attention.h>
#include <ATen/native/transformers/sdp_utils_cpp.h>
#include "trampoline.h"

namespace tern {

/* ---- attention ---- */
/* The fused kernel where nothing is dropped, nothing is broadcast and the mask needs no gradient; PyTorch's composition of simple operators elsewhere, and under
 * vmap, which has no rule for the fused one. */
inline int64_t fused_sdp_choice(const at::Tensor &query, const at::Tensor &key, const at::Tensor &value, const std::optional<at::Tensor> &mask, double dropout,
                                bool causal, std::optional<double>, bool grouped) {
  auto fits = [&](const at::Tensor &t) {
    return t.dim() == 4 && t.numel() && t.scalar_type() == query.scalar_type() && t.size(0) == query.size(0) &&
           (t.size(1) == query.size(1) || (grouped && query.size(1) % t.size(1) == 0));
  };
  auto type = query.scalar_type();
  for (const at::Tensor &tensor : {query, key, value})
    if (tensor.key_set().has(c10::DispatchKey::FuncTorchBatched)) return (int64_t)at::SDPBackend::math;
  bool fused = dropout == 0 && (type == at::kFloat || type == at::kBFloat16 || type == at::kHalf) && fits(query) && fits(key) && fits(value) &&
               key.size(3) == query.size(3) && value.size(2) == key.size(2) && value.size(1) == key.size(1) && (!mask || !mask->defined() || !mask->requires_grad()) &&
               !(causal && mask && mask->defined()) && at::globalContext().userEnabledOverrideableSDP();
  return (int64_t)(fused ? at::SDPBackend::overrideable : at::SDPBackend::math);
}

inline int64_t fused_sdp_choice_operator(const at::Tensor &query, const at::Tensor &key, const at::Tensor &value, const std::optional<at::Tensor> &mask,
                                         double dropout, bool causal, std::optional<double> scale, bool grouped) {
  return fused_sdp_choice(query, key, value, mask, dropout, causal, scale, grouped);
}

/* ---- recurrent cells: one step, written in simple operators, which fuse ---- */
inline at::Tensor with_bias(const at::Tensor &gates, const std::optional<at::Tensor> &bias) { return bias && bias->defined() ? gates + *bias : gates; }

inline std::tuple<at::Tensor, at::Tensor, at::Tensor> lstm_cell(const at::Tensor &input_gates, const at::Tensor &hidden_gates, const at::Tensor &cell,
                                                                const std::optional<at::Tensor> &input_bias, const std::optional<at::Tensor> &hidden_bias) {
  auto gates = at::chunk(with_bias(input_gates, input_bias) + with_bias(hidden_gates, hidden_bias), 4, 1);
  at::Tensor in = at::sigmoid(gates[0]), forget = at::sigmoid(gates[1]), candidate = at::tanh(gates[2]), out = at::sigmoid(gates[3]);
  at::Tensor next = forget * cell + in * candidate;
  return {out * at::tanh(next), next, at::cat({in, forget, candidate, out}, 1)};
}

inline std::tuple<at::Tensor, at::Tensor, at::Tensor> lstm_cell_backward(const std::optional<at::Tensor> &grad_hidden, const std::optional<at::Tensor> &grad_cell,
                                                                         const at::Tensor &cell, const at::Tensor &next, const at::Tensor &workspace, bool has_bias) {
  auto gates = at::chunk(workspace, 4, 1);
  const at::Tensor &in = gates[0], &forget = gates[1], &candidate = gates[2], &out = gates[3];
  bool through_hidden = grad_hidden && grad_hidden->defined(), through_cell = grad_cell && grad_cell->defined();
  if (!through_hidden && !through_cell) return {};
  at::Tensor squashed = at::tanh(next);
  at::Tensor grad_next = through_cell ? *grad_cell : at::zeros_like(next), grad_out = at::zeros_like(next);
  if (through_hidden) {
    grad_next = grad_next + *grad_hidden * out * (1 - squashed * squashed);
    grad_out = *grad_hidden * squashed * out * (1 - out);
  }
  at::Tensor grad_gates = at::cat({grad_next * candidate * in * (1 - in), grad_next * cell * forget * (1 - forget), grad_next * in * (1 - candidate * candidate), grad_out}, 1);
  return {grad_gates, grad_next * forget, has_bias ? grad_gates.sum(0) : at::Tensor()};
}

inline std::tuple<at::Tensor, at::Tensor> gru_cell(const at::Tensor &input_gates, const at::Tensor &hidden_gates, const at::Tensor &hidden,
                                                   const std::optional<at::Tensor> &input_bias, const std::optional<at::Tensor> &hidden_bias) {
  auto in = at::chunk(with_bias(input_gates, input_bias), 3, 1), last = at::chunk(with_bias(hidden_gates, hidden_bias), 3, 1);
  at::Tensor reset = at::sigmoid(in[0] + last[0]), update = at::sigmoid(in[1] + last[1]);
  at::Tensor candidate = at::tanh(in[2] + reset * last[2]);
  return {(hidden - candidate) * update + candidate, at::cat({reset, update, candidate, hidden, last[2]}, 1)};
}

inline std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor, at::Tensor> gru_cell_backward(const at::Tensor &grad, const at::Tensor &workspace, bool has_bias) {
  auto saved = at::chunk(workspace, 5, 1);
  const at::Tensor &reset = saved[0], &update = saved[1], &candidate = saved[2], &hidden = saved[3], &last = saved[4];
  at::Tensor grad_candidate = grad * (1 - update) * (1 - candidate * candidate);
  at::Tensor grad_update = grad * (hidden - candidate) * update * (1 - update);
  at::Tensor grad_reset = grad_candidate * last * reset * (1 - reset);
  at::Tensor grad_input = at::cat({grad_reset, grad_update, grad_candidate}, 1), grad_last = at::cat({grad_reset, grad_update, grad_candidate * reset}, 1);
  return {grad_input, grad_last, grad * update, has_bias ? grad_input.sum(0) : at::Tensor(), has_bias ? grad_last.sum(0) : at::Tensor()};
}

/* ---- autocast ---- */
inline at::Tensor binary_cross_entropy_under_autocast(const at::Tensor &, const at::Tensor &, const std::optional<at::Tensor> &, int64_t) {
  TORCH_CHECK(false, "torch.nn.functional.binary_cross_entropy and torch.nn.BCELoss are unsafe to autocast: probabilities round to 0 and 1 in low precision. "
                     "Use binary_cross_entropy_with_logits or BCEWithLogitsLoss, which are safe.");
}

inline void register_autocast() {
  using namespace at;
  using namespace at::autocast;
  auto *fall_through = new torch::Library(torch::Library::IMPL, "_", c10::DispatchKey::AutocastPrivateUse1, __FILE__, __LINE__);
  fall_through->fallback(torch::CppFunction::makeFallthrough());
  torch::Library &m = *new torch::Library(torch::Library::IMPL, "aten", c10::DispatchKey::AutocastPrivateUse1, __FILE__, __LINE__);
#define TERN_LOWER(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, lower_precision_fp)
#define TERN_FP32(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, fp32)
#define TERN_SET_DTYPE(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, fp32_set_opt_dtype)
#define TERN_PROMOTE(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, promote)
  AT_FORALL_LOWER_PRECISION_FP(TERN_LOWER)
  AT_FORALL_FP32(TERN_FP32)
  AT_FORALL_FP32_SET_OPT_DTYPE(TERN_SET_DTYPE)
  AT_FORALL_DIFFERENT_REDISPATCH_SIGNATURE(KERNEL_DIFFERENT_REDISPATCH_SIGNATURE_PRIVATEUSEONE)
  AT_FORALL_PROMOTE(TERN_PROMOTE)
#undef TERN_LOWER
#undef TERN_FP32
#undef TERN_SET_DTYPE
#undef TERN_PROMOTE
  m.impl("binary_cross_entropy", TORCH_FN(binary_cross_entropy_under_autocast));
}

inline void register_policies(torch::Library &library) {
  at::native::_fused_sdp_choice_stub.set_privateuse1_dispatch_ptr(&fused_sdp_choice);
  library.impl("_fused_sdp_choice", TORCH_FN(fused_sdp_choice_operator));
  library.impl("_thnn_fused_lstm_cell", TORCH_FN(lstm_cell));
  library.impl("_thnn_fused_lstm_cell_backward_impl", TORCH_FN(lstm_cell_backward));
  library.impl("_thnn_fused_gru_cell", TORCH_FN(gru_cell));
  library.impl("_thnn_fused_gru_cell_backward", TORCH_FN(gru_cell_backward));
  register_autocast();
}

}  // namespace tern
#endif
