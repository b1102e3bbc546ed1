/* recurrent: whole LSTM and GRU layers. PyTorch's own composition multiplies by the input's weights, and adds to the weights' gradients, once a step; here the products that
 * do not wait for the step before are one for the whole sequence, and an LSTM's steps in f32 are one operation. Forward values equal
 * the composition's bit for bit, because the order of a product's additions depends on its inner length alone. Served is what torch.nn.LSTM and torch.nn.GRU call; projections, autocast, forward-mode AD and whatever does not fit are left to the composition,
 * which also raises PyTorch's errors. */
#ifndef TERN_TORCH_RECURRENT_H
#define TERN_TORCH_RECURRENT_H
#include <ATen/autocast_mode.h>
#include <ATen/ops/gru_native.h>
#include <ATen/ops/lstm_native.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>
#include "policies.h"

namespace tern {

/* One direction of one layer, time first: x [T, B, I], hidden (and cell) [B, H], w_ih [G H, I], w_hh [G H, H], biases [G H] or undefined; G = 4 for LSTM, 3 for GRU.
 * Gives y [T, B, H], the last hidden state and, for LSTM, the last cell. */
struct recurrent_layer : torch::autograd::Function<recurrent_layer> {
  using context = torch::autograd::AutogradContext;
  using tensors = torch::autograd::variable_list;
  enum { X, HIDDEN, CELL, W_INPUT, W_HIDDEN, B_INPUT, B_HIDDEN, N_INPUTS };

  /* Whether the steps are one operation. Their results are then saved behind y: the activated gates and the cells of all steps. */
  static bool is_whole(const at::Tensor &x, bool is_lstm) { return is_lstm && x.scalar_type() == at::kFloat; }

  static tensors forward(context *ctx, const at::Tensor &x, const at::Tensor &hidden, const std::optional<at::Tensor> &cell, const at::Tensor &w_input,
                         const at::Tensor &w_hidden, const std::optional<at::Tensor> &b_input, const std::optional<at::Tensor> &b_hidden, bool reverse) {
    const int64_t steps = x.size(0), batch = x.size(1);
    const bool is_lstm = cell.has_value();
    auto tensor = [](const std::optional<at::Tensor> &t) { return t ? *t : at::Tensor(); };
    ctx->saved_data["reverse"] = reverse;
    ctx->set_materialize_grads(false);
    if (is_whole(x, is_lstm)) {
      at::Tensor flat = x.reshape({steps * batch, x.size(2)}), bias = tensor(b_input);
      at::Tensor gates = (bias.defined() ? at::addmm(bias, flat, w_input.t()) : flat.mm(w_input.t())).view({steps, batch, w_input.size(0)});
      auto results = record_internal("lstm", {gates, w_hidden, tensor(b_hidden), hidden, *cell}, reverse);
      ctx->save_for_backward({x, hidden, *cell, w_input, w_hidden, tensor(b_input), tensor(b_hidden), results[0], results[2], results[1]});
      const int64_t last = reverse ? 0 : steps - 1;
      return {results[0], results[0].select(0, last).clone(), results[1].select(0, last).clone()};
    }
    at::Tensor gates = x.reshape({steps * batch, x.size(2)}).mm(w_input.t()).view({steps, batch, w_input.size(0)}), h = hidden, c = tensor(cell);
    tensors saved{x, hidden, c, w_input, w_hidden, tensor(b_input), tensor(b_hidden)}, outputs((size_t)steps), cells, spaces;
    for (int64_t s = 0; s < steps; s++) {
      const int64_t t = reverse ? steps - 1 - s : s;
      at::Tensor space;
      if (is_lstm) std::tie(h, c, space) = lstm_cell(gates.select(0, t), h.mm(w_hidden.t()), c, b_input, b_hidden);
      else std::tie(h, space) = gru_cell(gates.select(0, t), h.mm(w_hidden.t()), h, b_input, b_hidden);
      outputs[(size_t)t] = h;
      if (is_lstm) cells.push_back(c);
      spaces.push_back(space);
    }
    at::Tensor y = at::stack(outputs, 0);
    saved.push_back(y);
    saved.insert(saved.end(), spaces.begin(), spaces.end());
    saved.insert(saved.end(), cells.begin(), cells.end());
    ctx->save_for_backward(saved);
    return is_lstm ? tensors{y, h.alias(), c.alias()} : tensors{y, h.alias()};
  }

  static tensors backward(context *ctx, tensors grads) {
    const tensors saved = ctx->get_saved_variables();
    const bool reverse = ctx->saved_data["reverse"].toBool();
    if (at::GradMode::is_enabled()) return twice(saved, reverse, grads);
    const at::Tensor &x = saved[X], &first = saved[HIDDEN], &w_input = saved[W_INPUT], &w_hidden = saved[W_HIDDEN], &y = saved[N_INPUTS];
    const int64_t steps = x.size(0), batch = x.size(1);
    const bool is_lstm = saved[CELL].defined();
    auto space = [&](int64_t s) { return saved[(size_t)(N_INPUTS + 1 + s)]; };
    auto cell = [&](int64_t s) { return s < 0 ? saved[CELL] : saved[(size_t)(N_INPUTS + 1 + steps + s)]; };
    at::Tensor gh = grads[1], gc = is_lstm ? grads[2] : at::Tensor(), g_input, g_hidden;
    const bool whole = is_whole(x, is_lstm);
    if (whole) {
      auto results = record_internal("lstm_backward", {grads[0], gh, gc, saved[N_INPUTS + 1], saved[N_INPUTS + 2], saved[CELL], w_hidden}, reverse);
      g_input = g_hidden = results[0].view({steps * batch, w_hidden.size(0)}), gh = results[1], gc = results[2];
    }
    tensors into_input((size_t)steps), into_hidden((size_t)steps);
    for (int64_t s = steps - 1; s >= 0 && !whole; s--) {
      const size_t t = (size_t)(reverse ? steps - 1 - s : s);
      if (grads[0].defined()) gh = gh.defined() ? gh + grads[0].select(0, (int64_t)t) : grads[0].select(0, (int64_t)t);
      if (is_lstm) {
        if (!gh.defined() && !gc.defined()) gh = at::zeros_like(first);
        std::tie(into_input[t], gc, std::ignore) = lstm_cell_backward(gh, gc, cell(s - 1), cell(s), space(s), false);
        gh = into_input[t].mm(w_hidden);
      } else {
        if (!gh.defined()) gh = at::zeros_like(first);
        at::Tensor directly;
        std::tie(into_input[t], into_hidden[t], directly, std::ignore, std::ignore) = gru_cell_backward(gh, space(s), false);
        gh = directly + into_hidden[t].mm(w_hidden);
      }
    }
    tensors result(N_INPUTS + 1);
    auto needs = [&](int i) { return ctx->needs_input_grad((size_t)(i - (i > CELL && !is_lstm))); }; /* absent inputs have no number */
    if (!whole) g_input = at::cat(into_input, 0), g_hidden = is_lstm ? g_input : at::cat(into_hidden, 0);
    if (needs(X)) result[X] = g_input.mm(w_input).view(x.sizes());
    if (needs(HIDDEN)) result[HIDDEN] = gh;
    if (is_lstm && needs(CELL)) result[CELL] = gc;
    if (needs(W_INPUT)) result[W_INPUT] = g_input.t().mm(x.reshape({steps * batch, x.size(2)}));
    if (needs(W_HIDDEN)) {
      const at::Tensor start = first.unsqueeze(0), before = reverse ? at::cat({y.narrow(0, 1, steps - 1), start}) : at::cat({start, y.narrow(0, 0, steps - 1)});
      result[W_HIDDEN] = g_hidden.t().mm(before.view({steps * batch, first.size(1)}));
    }
    if (saved[B_INPUT].defined() && needs(B_INPUT)) result[B_INPUT] = g_input.sum(0);
    if (saved[B_HIDDEN].defined() && needs(B_HIDDEN)) result[B_HIDDEN] = is_lstm && result[B_INPUT].defined() ? result[B_INPUT].clone() : g_hidden.sum(0);
    return result;
  }

  /* Gradients that are differentiated again: through PyTorch's composition. */
  static tensors twice(const tensors &saved, bool reverse, const tensors &grads) {
    const bool is_lstm = saved[CELL].defined(), has_bias = saved[B_INPUT].defined();
    const at::Tensor x = reverse ? saved[X].flip(0) : saved[X], h = saved[HIDDEN].unsqueeze(0);
    tensors params{saved[W_INPUT], saved[W_HIDDEN]}, outputs;
    if (has_bias) params.insert(params.end(), {saved[B_INPUT], saved[B_HIDDEN]});
    if (is_lstm) {
      auto [y, last, cell] = at::native::lstm(x, tensors{h, saved[CELL].unsqueeze(0)}, params, has_bias, 1, 0.0, false, false, false);
      outputs = {reverse ? y.flip(0) : y, last.squeeze(0), cell.squeeze(0)};
    } else {
      auto [y, last] = at::native::gru(x, h, params, has_bias, 1, 0.0, false, false, false);
      outputs = {reverse ? y.flip(0) : y, last.squeeze(0)};
    }
    tensors inputs, roots, root_grads, result(N_INPUTS + 1);
    for (int i = 0; i < N_INPUTS; i++)
      if (saved[(size_t)i].defined() && saved[(size_t)i].requires_grad()) inputs.push_back(saved[(size_t)i]);
    for (size_t i = 0; i < outputs.size(); i++)
      if (grads[i].defined()) {
        roots.push_back(outputs[i]);
        root_grads.push_back(grads[i]);
      }
    if (roots.empty()) return result;
    const tensors found = torch::autograd::grad(roots, inputs, root_grads, true, true, true);
    for (size_t i = 0, next = 0; i < N_INPUTS; i++)
      if (saved[i].defined() && saved[i].requires_grad()) result[i] = found[next++];
    return result;
  }
};

/* Whether these are the arguments of a plain stack of layers; `gates` is 4 for LSTM and 3 for GRU. */
inline bool is_plain_recurrent(const at::Tensor &input, at::TensorList states, at::TensorList params, bool has_biases, int64_t layers, bool bidirectional, bool batch_first,
                               int64_t gates) {
  if (at::autocast::is_autocast_enabled(c10::DeviceType::PrivateUse1) || !input.defined() || input.dim() != 3 || input.numel() == 0 || layers < 1) return false;
  const int64_t directions = bidirectional ? 2 : 1, each = has_biases ? 4 : 2;
  if ((int64_t)params.size() != layers * directions * each) return false;
  auto fits = [&](const at::Tensor &t, at::IntArrayRef sizes) {
    return t.defined() && t.sizes() == sizes && t.device() == input.device() && t.scalar_type() == input.scalar_type() && !t._fw_grad(0).defined();
  };
  if (!at::isFloatingType(input.scalar_type()) || input._fw_grad(0).defined() || states.empty() || !states[0].defined() || states[0].dim() != 3) return false;
  const int64_t batch = input.size(batch_first ? 0 : 1), hidden = states[0].size(2);
  for (const at::Tensor &state : states)
    if (!fits(state, {layers * directions, batch, hidden})) return false;
  for (int64_t i = 0; i < layers * directions; i++) {
    const at::Tensor *p = &params[(size_t)(i * each)];
    const int64_t width = i < directions ? input.size(2) : hidden * directions;
    if (!fits(p[0], {gates * hidden, width}) || !fits(p[1], {gates * hidden, hidden})) return false;
    for (int64_t b = 2; b < each; b++)
      if (!fits(p[b], {gates * hidden})) return false;
  }
  return hidden > 0;
}

/* All layers: what the last gives, and the last states of each direction of each layer. */
inline std::vector<at::Tensor> recurrent_layers(const at::Tensor &input, at::TensorList states, at::TensorList params, bool has_biases, int64_t layers, double dropout,
                                                bool train, bool bidirectional, bool batch_first) {
  const int64_t directions = bidirectional ? 2 : 1;
  const size_t each = has_biases ? 4 : 2;
  auto given = [](const at::Tensor &t) { return std::optional<at::Tensor>(t); };
  at::Tensor x = batch_first ? input.transpose(0, 1) : input;
  std::vector<std::vector<at::Tensor>> last(states.size());
  for (int64_t layer = 0; layer < layers; layer++) {
    std::vector<at::Tensor> outputs;
    for (int64_t d = 0; d < directions; d++) {
      const int64_t i = layer * directions + d;
      const at::Tensor *p = &params[(size_t)i * each];
      auto result = recurrent_layer::apply(x, states[0].select(0, i), states.size() > 1 ? given(states[1].select(0, i)) : std::nullopt, p[0], p[1],
                                           has_biases ? given(p[2]) : std::nullopt, has_biases ? given(p[3]) : std::nullopt, d == 1);
      outputs.push_back(result[0]);
      for (size_t s = 0; s < states.size(); s++) last[s].push_back(result[1 + s]);
    }
    x = directions == 1 ? outputs[0] : at::cat(outputs, 2);
    if (train && dropout > 0 && layer + 1 < layers) x = at::dropout(x, dropout, true);
  }
  std::vector<at::Tensor> results{batch_first ? x.transpose(0, 1) : x};
  for (auto &states_of : last) results.push_back(at::stack(states_of, 0));
  return results;
}

inline std::tuple<at::Tensor, at::Tensor, at::Tensor> lstm(const at::Tensor &input, at::TensorList states, at::TensorList params, bool has_biases, int64_t layers,
                                                           double dropout, bool train, bool bidirectional, bool batch_first) {
  if (states.size() != 2 || !is_plain_recurrent(input, states, params, has_biases, layers, bidirectional, batch_first, 4))
    return at::native::lstm(input, states, params, has_biases, layers, dropout, train, bidirectional, batch_first);
  auto results = recurrent_layers(input, states, params, has_biases, layers, dropout, train, bidirectional, batch_first);
  return {results[0], results[1], results[2]};
}

inline std::tuple<at::Tensor, at::Tensor> gru(const at::Tensor &input, const at::Tensor &state, at::TensorList params, bool has_biases, int64_t layers, double dropout,
                                              bool train, bool bidirectional, bool batch_first) {
  if (!is_plain_recurrent(input, state, params, has_biases, layers, bidirectional, batch_first, 3))
    return at::native::gru(input, state, params, has_biases, layers, dropout, train, bidirectional, batch_first);
  auto results = recurrent_layers(input, state, params, has_biases, layers, dropout, train, bidirectional, batch_first);
  return {results[0], results[1]};
}

inline void register_recurrent(torch::Library &library) {
  auto *autograd = new torch::Library(torch::Library::IMPL, "aten", c10::DispatchKey::AutogradPrivateUse1, __FILE__, __LINE__);
  for (torch::Library *each : {&library, autograd}) {
    each->impl("lstm.input", TORCH_FN(lstm));
    each->impl("gru.input", TORCH_FN(gru));
  }
}

}  // namespace tern
#endif
