/* composed: operators written as other operators, which are recorded one by one and fuse like any others. For what is rare or many-sided enough that a row of
 * src/aten would say the same at more length.
 *
 * One function serves the functional, the in-place and the out= form. What PyTorch checks before its own kernels run, Meta checks here: each call is first replayed
 * there, so that errors are PyTorch's. Arguments that a function does not take (`serves`) go to the CPU kernel. */
#ifndef TERN_TORCH_COMPOSED_H
#define TERN_TORCH_COMPOSED_H
#include "composed_windows.h"
#include "trampoline.h"

namespace tern {

/* ---- reductions and order ---- */
inline at::Tensor trace(const at::Tensor &self) { return self.diagonal().sum(); }

inline at::Tensor nansum(const at::Tensor &self, at::OptionalIntArrayRef dim, bool keepdim, std::optional<at::ScalarType> dtype) {
  return at::sum(self.is_floating_point() ? at::masked_fill(self, at::isnan(self), 0) : self, dim, keepdim, dtype);
}

inline at::Tensor count_nonzero(const at::Tensor &self, c10::IntArrayRef dim) { return at::sum(at::ne(self, 0), dim); }

using Pair = std::tuple<at::Tensor, at::Tensor>;

/* The k-th of the sorted elements along a dimension, and where it stood. */
inline Pair at_rank(const at::Tensor &self, int64_t k, int64_t dim, bool keepdim) {
  if (!self.dim()) return {self.clone(), at::zeros({}, self.options().dtype(at::kLong))};
  auto [sorted, index] = at::sort(self, /*stable=*/true, dim, false);
  at::Tensor value = sorted.narrow(dim, k, 1), place = index.narrow(dim, k, 1);
  if (!keepdim) value = value.squeeze(dim), place = place.squeeze(dim);
  return {value.clone(), place.clone()};
}

inline Pair kthvalue(const at::Tensor &self, c10::SymInt k, int64_t dim, bool keepdim) { return at_rank(self, k.guard_int(__FILE__, __LINE__) - 1, dim, keepdim); }

/* The lower of the middle elements, or the first NaN. */
inline Pair median_along(const at::Tensor &self, int64_t dim, bool keepdim) {
  if (!self.dim()) return at_rank(self, 0, dim, keepdim);
  Pair middle = at_rank(self, (self.size(dim) - 1) / 2, dim, keepdim);
  if (!self.is_floating_point()) return middle;
  at::Tensor nan = at::isnan(self), any = nan.any(dim, keepdim);
  return {std::get<0>(middle).masked_fill(any, NAN), at::where(any, nan.to(at::kByte).argmax(dim, keepdim), std::get<1>(middle))};
}

inline at::Tensor median(const at::Tensor &self) {
  if (!self.numel()) return at::full({}, NAN, self.options());
  return std::get<0>(median_along(self.reshape(-1), 0, false));
}

/* ---- products and distances ---- */
inline at::Tensor addr(const at::Tensor &self, const at::Tensor &first, const at::Tensor &second, const at::Scalar &beta, const at::Scalar &alpha) {
  at::Tensor outer = at::mul(first.unsqueeze(1), second);
  if (alpha.toDouble() != 1) outer = outer * alpha;
  if (beta.toDouble() == 0) return outer.to(at::result_type(self, outer));
  return (beta.toDouble() == 1 ? self : self * beta) + outer;
}

inline at::Tensor cross(const at::Tensor &self, const at::Tensor &other, int64_t dim) {
  auto both = at::broadcast_tensors({self, other});
  const at::Tensor &a = both[0], &b = both[1];
  auto part = [&](const at::Tensor &t, int64_t i) { return t.narrow(dim, i, 1); };
  auto component = [&](int64_t i, int64_t j) { return part(a, i) * part(b, j) - part(a, j) * part(b, i); };
  return at::cat({component(1, 2), component(2, 0), component(0, 1)}, dim);
}

/* Rows along `dim` whose norm is above the limit are scaled down to it. */
inline at::Tensor renorm(const at::Tensor &self, const at::Scalar &p, int64_t dim, const at::Scalar &limit) {
  c10::DimVector others;
  dim = at::maybe_wrap_dim(dim, self.dim());
  for (int64_t d = 0; d < self.dim(); d++)
    if (d != dim) others.push_back(d);
  at::ScalarType wide = at::toOpMathType(self.scalar_type());
  at::Tensor norm = at::linalg_vector_norm(self, p, others, true, wide == self.scalar_type() ? std::nullopt : std::make_optional(wide));
  at::Tensor factor = at::where(norm > limit, limit.toDouble() / (norm + 1e-7), at::ones({}, norm.options()));
  return (self * factor).to(self.scalar_type());
}

inline at::Tensor cdist(const at::Tensor &x, const at::Tensor &y, double p, std::optional<int64_t> mode) {
  bool by_product = p == 2 && (mode.value_or(0) == 1 || (mode.value_or(0) == 0 && (x.size(-2) > 25 || y.size(-2) > 25)));
  if (by_product && x.numel() && y.numel()) return at::_euclidean_dist(x, y);
  return at::linalg_vector_norm(x.unsqueeze(-2) - y.unsqueeze(-3), p, c10::IntArrayRef{-1});
}

inline at::Tensor cdist_backward(const at::Tensor &grad, const at::Tensor &x, const at::Tensor &y, double p, const at::Tensor &distance) {
  at::Tensor gap = x.unsqueeze(-2) - y.unsqueeze(-3), d = distance.unsqueeze(-1), g = grad.unsqueeze(-1), slope;
  if (p == 0) return at::zeros_like(x, at::MemoryFormat::Contiguous);
  if (p == 1) slope = g * at::sign(gap);
  else if (std::isinf(p)) slope = g * at::sign(gap) * at::eq(at::abs(gap), d);
  else slope = at::masked_fill(g * (p == 2 ? gap / d : at::sign(gap) * at::pow(at::abs(gap) / d, p - 1)), at::eq(d, 0), 0);
  return at::sum(slope, -2);
}

/* ---- indexing ---- */
/* How many elements of the sorted sequences come before each value, by bisection: every step halves all intervals at once. */
inline at::Tensor searchsorted(const at::Tensor &sequence, const at::Tensor &values, bool narrow, bool right, std::optional<std::string_view> side,
                               const std::optional<at::Tensor> &sorter) {
  right |= side && *side == "right";
  at::Tensor sorted = sorter && sorter->defined() ? at::gather(sequence, -1, *sorter) : sequence;
  int64_t n = sorted.size(-1);
  at::ScalarType type = narrow ? at::kInt : at::kLong;
  if (!n || !values.numel()) return at::zeros(values.sizes(), values.options().dtype(type));
  at::Tensor low = at::zeros(values.sizes(), values.options().dtype(at::kLong)), high = at::full_like(low, n);
  for (int64_t span = n; span > 0; span /= 2) {
    at::Tensor middle = at::div(low + high, 2, "floor"), place = middle.clamp_max(n - 1);
    at::Tensor found = sorted.dim() == 1 ? at::index_select(sorted, 0, place.reshape(-1)).reshape(place.sizes()) : at::gather(sorted, -1, place);
    at::Tensor before = at::logical_and(at::logical_not(right ? at::gt(found, values) : at::ge(found, values)), at::lt(low, high));
    high = at::where(before, high, at::where(at::lt(low, high), middle, high));
    low = at::where(before, middle + 1, low);
  }
  return low.to(type);
}
inline at::Tensor searchsorted_number(const at::Tensor &sequence, const at::Scalar &value, bool narrow, bool right, std::optional<std::string_view> side,
                                      const std::optional<at::Tensor> &sorter) {
  return tern::searchsorted(sequence, at::full({}, value, sequence.options()), narrow, right, side, sorter);
}
inline at::Tensor bucketize(const at::Tensor &self, const at::Tensor &boundaries, bool narrow, bool right) {
  return tern::searchsorted(boundaries, self, narrow, right, std::nullopt, std::nullopt);
}
inline at::Tensor bucketize_number(const at::Scalar &self, const at::Tensor &boundaries, bool narrow, bool right) {
  return tern::searchsorted_number(boundaries, self, narrow, right, std::nullopt, std::nullopt);
}

inline at::Tensor isin(const at::Tensor &elements, const at::Tensor &tests, bool, bool invert) {
  at::Tensor found = at::eq(elements.unsqueeze(-1), tests.reshape(-1)).any(-1);
  return invert ? at::logical_not(found) : found;
}
inline at::Tensor isin_number(const at::Tensor &elements, const at::Scalar &test, bool, bool invert) { return invert ? at::ne(elements, test) : at::eq(elements, test); }

inline at::Tensor index_reduce(const at::Tensor &self, int64_t dim, const at::Tensor &index, const at::Tensor &source, std::string_view reduce, bool include_self) {
  if (!index.numel() || !self.dim()) return !index.numel() ? self.clone() : at::scatter_reduce(self, 0, index.reshape({}), source.reshape({}), reduce, include_self);
  std::vector<int64_t> shape(source.sizes().size(), 1);
  shape[(size_t)at::maybe_wrap_dim(dim, self.dim())] = index.numel();
  return at::scatter_reduce(self, dim, index.to(at::kLong).reshape(shape).expand(source.sizes()), source, reduce, include_self);
}

inline at::Tensor triangle(at::Tensor (*make)(int64_t, int64_t, int64_t, at::TensorOptions), int64_t rows, int64_t columns, int64_t offset,
                           std::optional<at::ScalarType> dtype, std::optional<c10::Device> device) {
  at::Tensor indices = make(rows, columns, offset, at::TensorOptions().dtype(dtype.value_or(at::kLong)).device(at::kCPU));
  return indices.to(c10::Device(kTern, device_index(device ? device->index() : (c10::DeviceIndex)-1)));
}
inline at::Tensor tril_indices(int64_t rows, int64_t columns, int64_t offset, std::optional<at::ScalarType> dtype, std::optional<c10::Layout>,
                               std::optional<c10::Device> device, std::optional<bool>) {
  return triangle([](int64_t r, int64_t c, int64_t o, at::TensorOptions options) { return at::tril_indices(r, c, o, options); }, rows, columns, offset, dtype, device);
}
inline at::Tensor triu_indices(int64_t rows, int64_t columns, int64_t offset, std::optional<at::ScalarType> dtype, std::optional<c10::Layout>,
                               std::optional<c10::Device> device, std::optional<bool>) {
  return triangle([](int64_t r, int64_t c, int64_t o, at::TensorOptions options) { return at::triu_indices(r, c, o, options); }, rows, columns, offset, dtype, device);
}

/* ---- losses ---- */
inline at::Tensor reduced(const at::Tensor &loss, int64_t reduction) { return reduction == at::Reduction::Mean ? loss.mean() : reduction == at::Reduction::Sum ? loss.sum() : loss; }

/* What each class adds to each row's loss, before the power: max(0, margin - x[target] + x), 0 at the target. */
inline at::Tensor margins(const at::Tensor &x, const at::Tensor &target, const at::Scalar &margin) {
  at::Tensor gap = (x - at::gather(x, 1, target) + margin).clamp_min(0);
  return gap.masked_fill(at::eq(at::arange(x.size(1), target.options()), target), 0);
}
inline at::Tensor multi_margin_loss(const at::Tensor &self, const at::Tensor &target, const at::Scalar &p, const at::Scalar &margin,
                                    const std::optional<at::Tensor> &weight, int64_t reduction) {
  at::Tensor x = self.dim() < 2 ? self.reshape({1, -1}) : self, t = target.reshape({-1, 1}), gap = margins(x, t, margin);
  if (p.toInt() == 2) gap = gap * gap;
  if (weight && weight->defined()) gap = gap * at::index_select(*weight, 0, t.reshape(-1)).unsqueeze(1);
  at::Tensor loss = gap.sum(1) / (double)x.size(1);
  return reduction == at::Reduction::None && self.dim() < 2 ? loss.reshape(target.sizes()) : reduced(loss, reduction);
}
inline at::Tensor multi_margin_loss_backward(const at::Tensor &grad, const at::Tensor &self, const at::Tensor &target, const at::Scalar &p, const at::Scalar &margin,
                                             const std::optional<at::Tensor> &weight, int64_t reduction) {
  at::Tensor x = self.dim() < 2 ? self.reshape({1, -1}) : self, t = target.reshape({-1, 1}), gap = margins(x, t, margin);
  at::Tensor slope = p.toInt() == 2 ? 2 * gap : at::gt(gap, 0).to(x.scalar_type());
  if (weight && weight->defined()) slope = slope * at::index_select(*weight, 0, t.reshape(-1)).unsqueeze(1);
  slope = slope / (double)(x.size(1) * (reduction == at::Reduction::Mean ? x.size(0) : 1));
  slope = at::where(at::eq(at::arange(x.size(1), t.options()), t), -slope.sum(1, true), slope);
  return (slope * (reduction == at::Reduction::None ? grad.reshape({-1, 1}) : grad)).reshape(self.sizes());
}

/* ---- registration ---- */
enum Serves { EVERYTHING, REALS, FLOATS };

inline bool takes(Serves serves, c10::ArrayRef<c10::IValue> arguments) {
  bool right = true;
  if (serves != EVERYTHING)
    for (const c10::IValue &argument : arguments)
      each_tensor(argument, [&](const at::Tensor &tensor) {
        at::ScalarType type = tensor.scalar_type();
        right &= dtype_from_torch(type) >= 0 && !at::isComplexType(type);
      });
  if (right && serves == FLOATS) right = arguments[0].isTensor() && at::isFloatingType(arguments[0].toTensor().scalar_type());
  return right;
}

class Composed final : public c10::OperatorKernel {
  c10::OperatorHandle op;
  tern_form form;
  Serves serves;
  c10::KernelFunction function;

 public:
  Composed(c10::OperatorHandle op_, tern_form form_, Serves serves_, c10::KernelFunction function_)
      : op(op_), form(form_), serves(serves_), function(std::move(function_)) {}

  void operator()(const c10::OperatorHandle &, c10::DispatchKeySet keys, torch::jit::Stack *stack) {
    size_t n = op.schema().arguments().size();
    uint32_t line = line_here();
    if (!takes(serves, torch::jit::last(*stack, n))) return fall_back(op, stack, line);
    replay_on_meta(op, torch::jit::last(*stack, n));
    if (form == TERN_FUNCTIONAL) return function.callBoxed(op, keys, stack);
    std::vector<at::Tensor> targets;
    if (form == TERN_INPLACE) {
      targets.push_back(torch::jit::peek(*stack, 0, n).toTensor());
    } else {
      size_t returns = op.schema().returns().size();
      for (const c10::IValue &target : torch::jit::last(*stack, returns)) targets.push_back(target.toTensor());
      torch::jit::drop(*stack, returns);
    }
    size_t before = stack->size() - (n - (form == TERN_OUT ? targets.size() : 0));
    function.callBoxed(op, keys, stack);
    for (size_t i = 0; i < targets.size(); i++) {
      const at::Tensor &result = (*stack)[before + i].toTensor();
      if (form == TERN_OUT) at::native::resize_output(targets[i], result.sizes());
      targets[i].copy_(result);
      (*stack)[before + i] = targets[i];
    }
  }
};

template <class F>
void compose(torch::Library &library, F function, Serves serves, const char *functional, const char *inplace = nullptr, const char *out = nullptr) {
  const std::pair<const char *, tern_form> forms[] = {{functional, TERN_FUNCTIONAL}, {inplace, TERN_INPLACE}, {out, TERN_OUT}};
  for (auto [name, form] : forms) {
    auto op = name ? table.claim(name) : std::nullopt;
    if (!op) continue;
    library.impl(name, torch::CppFunction::makeFromBoxedFunctor(
                           std::make_unique<Composed>(*op, form, serves, c10::KernelFunction::makeFromUnboxedFunction(function))));
  }
}

inline void register_composed(torch::Library &m) {
#define TERN_COMPOSE(function, ...) compose(m, TORCH_FN(function), __VA_ARGS__)
  TERN_COMPOSE(trace, REALS, "trace", nullptr, "trace.out");
  TERN_COMPOSE(nansum, REALS, "nansum", nullptr, "nansum.out");
  TERN_COMPOSE(count_nonzero, REALS, "count_nonzero.dim_IntList");
  TERN_COMPOSE(kthvalue, FLOATS, "kthvalue", nullptr, "kthvalue.values");
  TERN_COMPOSE(median, FLOATS, "median");
  TERN_COMPOSE(median_along, FLOATS, "median.dim", nullptr, "median.dim_values");
  TERN_COMPOSE(addr, FLOATS, "addr", nullptr, "addr.out");
  TERN_COMPOSE(cross, REALS, "linalg_cross", nullptr, "linalg_cross.out");
  TERN_COMPOSE(renorm, FLOATS, "renorm", "renorm_", "renorm.out");
  TERN_COMPOSE(cdist, FLOATS, "_cdist_forward");
  TERN_COMPOSE(cdist_backward, FLOATS, "_cdist_backward");
  TERN_COMPOSE(searchsorted, REALS, "searchsorted.Tensor", nullptr, "searchsorted.Tensor_out");
  TERN_COMPOSE(searchsorted_number, REALS, "searchsorted.Scalar", nullptr, "searchsorted.Scalar_out");
  TERN_COMPOSE(bucketize, REALS, "bucketize.Tensor", nullptr, "bucketize.Tensor_out");
  TERN_COMPOSE(bucketize_number, REALS, "bucketize.Scalar");
  TERN_COMPOSE(isin, REALS, "isin.Tensor_Tensor", nullptr, "isin.Tensor_Tensor_out");
  TERN_COMPOSE(isin_number, REALS, "isin.Tensor_Scalar", nullptr, "isin.Tensor_Scalar_out");
  TERN_COMPOSE(index_reduce, FLOATS, "index_reduce", "index_reduce_", "index_reduce.out");
  TERN_COMPOSE(tril_indices, EVERYTHING, "tril_indices");
  TERN_COMPOSE(triu_indices, EVERYTHING, "triu_indices");
  TERN_COMPOSE(multi_margin_loss, FLOATS, "multi_margin_loss", nullptr, "multi_margin_loss.out");
  TERN_COMPOSE(multi_margin_loss_backward, FLOATS, "multi_margin_loss_backward", nullptr, "multi_margin_loss_backward.grad_input");
  TERN_COMPOSE(pixel_shuffle, REALS, "pixel_shuffle");
  TERN_COMPOSE(pixel_unshuffle, REALS, "pixel_unshuffle");
  TERN_COMPOSE(channel_shuffle, REALS, "channel_shuffle");
  TERN_COMPOSE(channel_shuffle, REALS, "native_channel_shuffle");
  TERN_COMPOSE(narrow_copy, REALS, "narrow_copy", nullptr, "narrow_copy.out");
  TERN_COMPOSE(unfold_backward, FLOATS, "unfold_backward");
  TERN_COMPOSE((pad_by<1, true>), FLOATS, "reflection_pad1d", nullptr, "reflection_pad1d.out");
  TERN_COMPOSE((pad_by<2, true>), FLOATS, "reflection_pad2d", nullptr, "reflection_pad2d.out");
  TERN_COMPOSE((pad_by<3, true>), FLOATS, "reflection_pad3d", nullptr, "reflection_pad3d.out");
  TERN_COMPOSE((pad_by<1, false>), FLOATS, "replication_pad1d", nullptr, "replication_pad1d.out");
  TERN_COMPOSE((pad_by<2, false>), FLOATS, "replication_pad2d", nullptr, "replication_pad2d.out");
  TERN_COMPOSE((pad_by<3, false>), FLOATS, "replication_pad3d", nullptr, "replication_pad3d.out");
  TERN_COMPOSE((pad_by_backward<1, true>), FLOATS, "reflection_pad1d_backward", nullptr, "reflection_pad1d_backward.grad_input");
  TERN_COMPOSE((pad_by_backward<2, true>), FLOATS, "reflection_pad2d_backward", nullptr, "reflection_pad2d_backward.grad_input");
  TERN_COMPOSE((pad_by_backward<3, true>), FLOATS, "reflection_pad3d_backward", nullptr, "reflection_pad3d_backward.grad_input");
  TERN_COMPOSE((pad_by_backward<1, false>), FLOATS, "replication_pad1d_backward", nullptr, "replication_pad1d_backward.grad_input");
  TERN_COMPOSE((pad_by_backward<2, false>), FLOATS, "replication_pad2d_backward", nullptr, "replication_pad2d_backward.grad_input");
  TERN_COMPOSE((pad_by_backward<3, false>), FLOATS, "replication_pad3d_backward", nullptr, "replication_pad3d_backward.grad_input");
  TERN_COMPOSE(im2col, FLOATS, "im2col", nullptr, "im2col.out");
  TERN_COMPOSE(col2im, FLOATS, "col2im", nullptr, "col2im.out");
  TERN_COMPOSE(max_unpool2d, FLOATS, "max_unpool2d", nullptr, "max_unpool2d.out");
  TERN_COMPOSE(max_unpool3d, FLOATS, "max_unpool3d", nullptr, "max_unpool3d.out");
  TERN_COMPOSE(adaptive_avg_pool3d, FLOATS, "_adaptive_avg_pool3d");
  TERN_COMPOSE(adaptive_avg_pool3d_backward, FLOATS, "_adaptive_avg_pool3d_backward");
  TERN_COMPOSE((adaptive_max_pool<2>), FLOATS, "adaptive_max_pool2d", nullptr, "adaptive_max_pool2d.out");
  TERN_COMPOSE((adaptive_max_pool<3>), FLOATS, "adaptive_max_pool3d", nullptr, "adaptive_max_pool3d.out");
  TERN_COMPOSE((adaptive_max_pool_backward<2>), FLOATS, "adaptive_max_pool2d_backward", nullptr, "adaptive_max_pool2d_backward.grad_input");
  TERN_COMPOSE((adaptive_max_pool_backward<3>), FLOATS, "adaptive_max_pool3d_backward", nullptr, "adaptive_max_pool3d_backward.grad_input");
#undef TERN_COMPOSE
  m.impl("mode.values", torch::CppFunction::makeFromBoxedFunction<&fall_back_always>()); /* PyTorch's own form asks for the device's name */
}

}  // namespace tern
#endif
