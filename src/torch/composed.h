/* composed: operators written as other operators, which are recorded one by one and fuse like any others. For what is rare or many-sided enough that a row of
 * src/aten would say the same at more length.
 *
 * One function serves the functional, the in-place and the out= form. What PyTorch checks before its own kernels run, Meta checks here: each call is first replayed
 * there, so that errors are PyTorch's. Arguments that a function does not take (`serves`) go to the CPU kernel. */
#ifndef TERN_TORCH_COMPOSED_H
#define TERN_TORCH_COMPOSED_H
#include "composed_losses.h"
#include "composed_norm.h"
#include "composed_ranks.h"
#include "composed_windows.h"
#include "trampoline.h"

namespace tern {

/* ---- reductions ---- */
inline at::Tensor trace(const at::Tensor &self) { return self.diagonal().sum(); }

inline at::Tensor nansum(const at::Tensor &self, at::OptionalIntArrayRef dim, bool keepdim, std::optional<at::ScalarType> dtype) {
  return at::sum(self.is_floating_point() ? at::masked_fill(self, at::isnan(self), 0) : self, dim, keepdim, dtype);
}

inline at::Tensor count_nonzero(const at::Tensor &self, c10::IntArrayRef dim) { return at::sum(at::ne(self, 0), dim); }

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

/* The pairs i < j of n rows, as PyTorch orders them. */
inline at::Tensor row_pairs(int64_t n, const at::Tensor &like) { return at::triu_indices(n, n, 1, at::TensorOptions().dtype(at::kLong).device(at::kCPU)).to(like.device()); }
inline at::Tensor pdist(const at::Tensor &self, double p) {
  at::Tensor pairs = row_pairs(self.size(0), self);
  return at::linalg_vector_norm(self.index_select(0, pairs[0]) - self.index_select(0, pairs[1]), p, c10::IntArrayRef{-1});
}
inline at::Tensor pdist_backward(const at::Tensor &grad, const at::Tensor &self, double p, const at::Tensor &distance) {
  at::Tensor pairs = row_pairs(self.size(0), self), slope = at::zeros_like(self, at::MemoryFormat::Contiguous);
  if (!grad.numel() || p == 0) return slope;
  at::Tensor each = tern::cdist_backward(grad.reshape({-1, 1, 1}), self.index_select(0, pairs[0]).unsqueeze(1), self.index_select(0, pairs[1]).unsqueeze(1), p,
                                         distance.reshape({-1, 1, 1})).squeeze(1);
  return slope.index_add(0, pairs[0], each).index_add(0, pairs[1], each, -1);
}

/* ---- indexing ---- */
/* The rows that are named and whose norm is above the limit are scaled down to it. */
inline at::Tensor embedding_renorm(at::Tensor &self, const at::Tensor &indices, double limit, double p) {
  at::Tensor norm = at::linalg_vector_norm(self, p, c10::IntArrayRef{1}, true);
  at::Tensor named = at::zeros({self.size(0)}, norm.options().dtype(at::kBool)).index_fill(0, indices.reshape(-1), true).unsqueeze(1);
  return self.copy_(at::where(at::logical_and(named, norm > limit), self * (limit / (norm + 1e-7)), self));
}

inline Pair unique_sorted(const at::Tensor &self, bool sorted, bool inverse) {
  auto [values, places, counts] = at::_unique2(self, sorted, inverse, false);
  return {values, places};
}

/* The gradient of a bag's weights: each row against the bag's gradient. */
inline at::Tensor bag_weights_backward(const at::Tensor &grad, const at::Tensor &weight, const at::Tensor &indices, const at::Tensor &, const at::Tensor &bag, int64_t,
                                       int64_t padding) {
  at::Tensor products = (at::embedding(weight, indices) * grad.index_select(0, bag)).sum(1);
  return padding >= 0 ? products.masked_fill(at::eq(indices, padding), 0) : products;
}

inline at::Tensor nonzero_static(const at::Tensor &self, c10::SymInt size_, int64_t fill) {
  int64_t size = size_.guard_int(__FILE__, __LINE__);
  at::Tensor found = at::nonzero(self), result = at::full({size, self.dim()}, fill, found.options());
  int64_t n = std::min(size, found.size(0));
  if (n) result.narrow(0, 0, n).copy_(found.narrow(0, 0, n));
  return result;
}

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

/* x = mantissa * 2^exponent with a mantissa in [0.5, 1): the exponent's bits, after what is below the normal range was brought into it. Zeros, infinities and NaN are
 * their own mantissa. */
template <class Bits, at::ScalarType Kind, int kMantissa, int kExponent>
std::tuple<at::Tensor, at::Tensor> frexp_bits(const at::Tensor &x) {
  constexpr Bits exponent_mask = ((Bits)1 << kExponent) - 1, half = exponent_mask / 2 - 1;
  at::Tensor small = at::lt(at::abs(x), std::ldexp(1.0, 2 - (int)(exponent_mask / 2))), scaled = at::where(small, x * std::ldexp(1.0, kMantissa + 1), x);
  at::Tensor bits = scaled.contiguous().view(Kind), exponent = at::bitwise_and(at::bitwise_right_shift(bits, kMantissa), (int64_t)exponent_mask);
  at::Tensor mantissa = at::bitwise_or(at::bitwise_and(bits, (int64_t) ~(exponent_mask << kMantissa)), (int64_t)(half << kMantissa)).view(x.scalar_type());
  at::Tensor own = at::logical_or(at::eq(x, 0), at::logical_not(at::isfinite(x)));
  exponent = exponent.to(at::kInt) - (int64_t)half - at::where(small, kMantissa + 1, 0).to(at::kInt);
  return {at::where(own, x, mantissa), exponent.masked_fill(own, 0)};
}
inline std::tuple<at::Tensor, at::Tensor> frexp(const at::Tensor &self) {
  if (self.scalar_type() == at::kDouble) return frexp_bits<int64_t, at::kLong, 52, 11>(self);
  auto [mantissa, exponent] = frexp_bits<int32_t, at::kInt, 23, 8>(self.to(at::kFloat));
  return {mantissa.to(self.scalar_type()), exponent};
}

/* ---- registration ---- */
enum Serves { EVERYTHING, REALS, NUMBERS /* REALS but bool */, FLOATS };

inline bool takes(Serves serves, c10::ArrayRef<c10::IValue> arguments) {
  bool right = true;
  if (serves != EVERYTHING)
    for (const c10::IValue &argument : arguments)
      each_tensor(argument, [&](const at::Tensor &tensor) {
        at::ScalarType type = tensor.scalar_type();
        right &= dtype_from_torch(type) >= 0 && !at::isComplexType(type) && !at::isBarebonesUnsignedType(type) && (serves != NUMBERS || type != at::kBool);
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
  TERN_COMPOSE(kthvalue, NUMBERS, "kthvalue", nullptr, "kthvalue.values");
  TERN_COMPOSE(median, NUMBERS, "median");
  TERN_COMPOSE(median_along, NUMBERS, "median.dim", nullptr, "median.dim_values");
  TERN_COMPOSE(nanmedian, NUMBERS, "nanmedian");
  TERN_COMPOSE(nanmedian_along, NUMBERS, "nanmedian.dim", nullptr, "nanmedian.dim_values");
  TERN_COMPOSE(mode, REALS, "mode", nullptr, "mode.values");
  TERN_COMPOSE(frexp, FLOATS, "frexp.Tensor", nullptr, "frexp.Tensor_out");
  TERN_COMPOSE(addr, NUMBERS, "addr", nullptr, "addr.out");
  TERN_COMPOSE(cross, REALS, "linalg_cross", nullptr, "linalg_cross.out");
  TERN_COMPOSE(renorm, FLOATS, "renorm", "renorm_", "renorm.out");
  TERN_COMPOSE(cdist, FLOATS, "_cdist_forward");
  TERN_COMPOSE(cdist_backward, FLOATS, "_cdist_backward");
  TERN_COMPOSE(pdist, FLOATS, "_pdist_forward");
  TERN_COMPOSE(pdist_backward, FLOATS, "_pdist_backward");
  TERN_COMPOSE(embedding_renorm, FLOATS, nullptr, "embedding_renorm_");
  TERN_COMPOSE(bag_weights_backward, FLOATS, "_embedding_bag_per_sample_weights_backward");
  TERN_COMPOSE(unique_sorted, REALS, "_unique");
  TERN_COMPOSE(nonzero_static, REALS, "nonzero_static", nullptr, "nonzero_static.out");
  TERN_COMPOSE(batch_norm_stats, FLOATS, "batch_norm_stats");
  TERN_COMPOSE(batch_norm_elemt, FLOATS, "batch_norm_elemt", nullptr, "batch_norm_elemt.out");
  TERN_COMPOSE(batch_norm_gather_stats, FLOATS, "batch_norm_gather_stats");
  TERN_COMPOSE(batch_norm_gather_stats_with_counts, FLOATS, "batch_norm_gather_stats_with_counts");
  TERN_COMPOSE(batch_norm_backward_reduce, FLOATS, "batch_norm_backward_reduce");
  TERN_COMPOSE(batch_norm_backward_elemt, FLOATS, "batch_norm_backward_elemt");
  TERN_COMPOSE(batch_norm_update_stats, FLOATS, "batch_norm_update_stats");
  TERN_COMPOSE(batch_norm_with_update, FLOATS, "_batch_norm_with_update", nullptr, "_batch_norm_with_update.out");
  TERN_COMPOSE(batch_norm_backward, FLOATS, "batch_norm_backward");
  TERN_COMPOSE(native_batch_norm, FLOATS, nullptr, nullptr, "native_batch_norm.out");
  TERN_COMPOSE(native_batch_norm, FLOATS, nullptr, nullptr, "_native_batch_norm_legit.out");
  TERN_COMPOSE(batch_norm_without_running, FLOATS, nullptr, nullptr, "_native_batch_norm_legit.no_stats_out");
  TERN_COMPOSE(searchsorted, REALS, "searchsorted.Tensor", nullptr, "searchsorted.Tensor_out");
  TERN_COMPOSE(searchsorted_number, REALS, "searchsorted.Scalar", nullptr, "searchsorted.Scalar_out");
  TERN_COMPOSE(bucketize, REALS, "bucketize.Tensor", nullptr, "bucketize.Tensor_out");
  TERN_COMPOSE(bucketize_number, REALS, "bucketize.Scalar");
  TERN_COMPOSE(isin, REALS, "isin.Tensor_Tensor", nullptr, "isin.Tensor_Tensor_out");
  TERN_COMPOSE(isin_number, REALS, "isin.Tensor_Scalar", nullptr, "isin.Tensor_Scalar_out");
  TERN_COMPOSE(index_reduce, NUMBERS, "index_reduce", "index_reduce_", "index_reduce.out");
  TERN_COMPOSE(tril_indices, EVERYTHING, "tril_indices");
  TERN_COMPOSE(triu_indices, EVERYTHING, "triu_indices");
  TERN_COMPOSE(multi_margin_loss, FLOATS, "multi_margin_loss", nullptr, "multi_margin_loss.out");
  TERN_COMPOSE(multi_margin_loss_backward, FLOATS, "multi_margin_loss_backward", nullptr, "multi_margin_loss_backward.grad_input");
  TERN_COMPOSE(multilabel_margin_loss_forward, FLOATS, "multilabel_margin_loss_forward", nullptr, "multilabel_margin_loss_forward.output");
  TERN_COMPOSE(multilabel_margin_loss_backward, FLOATS, "multilabel_margin_loss_backward", nullptr, "multilabel_margin_loss_backward.grad_input");
  TERN_COMPOSE(pixel_shuffle, REALS, "pixel_shuffle");
  TERN_COMPOSE(pixel_unshuffle, REALS, "pixel_unshuffle");
  TERN_COMPOSE(channel_shuffle, REALS, "channel_shuffle");
  TERN_COMPOSE(channel_shuffle, REALS, "native_channel_shuffle");
  TERN_COMPOSE(narrow_copy, REALS, "narrow_copy", nullptr, "narrow_copy.out");
  TERN_COMPOSE(unfold_backward, FLOATS, "unfold_backward");
  TERN_COMPOSE((pad_by<1, true>), NUMBERS, "reflection_pad1d", nullptr, "reflection_pad1d.out");
  TERN_COMPOSE((pad_by<2, true>), NUMBERS, "reflection_pad2d", nullptr, "reflection_pad2d.out");
  TERN_COMPOSE((pad_by<3, true>), NUMBERS, "reflection_pad3d", nullptr, "reflection_pad3d.out");
  TERN_COMPOSE((pad_by<1, false>), NUMBERS, "replication_pad1d", nullptr, "replication_pad1d.out");
  TERN_COMPOSE((pad_by<2, false>), NUMBERS, "replication_pad2d", nullptr, "replication_pad2d.out");
  TERN_COMPOSE((pad_by<3, false>), NUMBERS, "replication_pad3d", nullptr, "replication_pad3d.out");
  TERN_COMPOSE((pad_by_backward<1, true>), FLOATS, "reflection_pad1d_backward", nullptr, "reflection_pad1d_backward.grad_input");
  TERN_COMPOSE((pad_by_backward<2, true>), FLOATS, "reflection_pad2d_backward", nullptr, "reflection_pad2d_backward.grad_input");
  TERN_COMPOSE((pad_by_backward<3, true>), FLOATS, "reflection_pad3d_backward", nullptr, "reflection_pad3d_backward.grad_input");
  TERN_COMPOSE((pad_by_backward<1, false>), FLOATS, "replication_pad1d_backward", nullptr, "replication_pad1d_backward.grad_input");
  TERN_COMPOSE((pad_by_backward<2, false>), FLOATS, "replication_pad2d_backward", nullptr, "replication_pad2d_backward.grad_input");
  TERN_COMPOSE((pad_by_backward<3, false>), FLOATS, "replication_pad3d_backward", nullptr, "replication_pad3d_backward.grad_input");
  TERN_COMPOSE(im2col, REALS, "im2col", nullptr, "im2col.out");
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
}

}  // namespace tern
#endif
