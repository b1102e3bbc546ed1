/* composed_windows: pads, windows and pools written as selections and sums along one dimension after the other. Part of composed.h. */
#ifndef TERN_TORCH_COMPOSED_WINDOWS_H
#define TERN_TORCH_COMPOSED_WINDOWS_H
#include <ATen/ATen.h>
#include <ATen/OpMathType.h>
#include <ATen/WrapDimUtils.h>
#include <ATen/core/Reduction.h>
#include <torch/library.h>
#include "bridge.h"

namespace tern {

inline at::Tensor indices(const std::vector<int64_t> &values, const at::Tensor &like) { return at::tensor(values, at::kLong).to(like.device()); }

/* Selection along a dimension, and its adjoint: what was selected several times is added up. */
inline at::Tensor select_along(const at::Tensor &x, int64_t dim, const std::vector<int64_t> &places) { return at::index_select(x, dim, indices(places, x)); }
inline at::Tensor add_along(const at::Tensor &g, int64_t dim, const std::vector<int64_t> &places, int64_t size) {
  std::vector<int64_t> shape = g.sizes().vec();
  shape[(size_t)dim] = size;
  return at::index_add(at::zeros(shape, g.options()), dim, indices(places, g), g);
}

/* ---- rearrangements ---- */
inline std::vector<int64_t> joined(c10::IntArrayRef a, std::initializer_list<int64_t> b) {
  std::vector<int64_t> all = a.vec();
  all.insert(all.end(), b);
  return all;
}

inline at::Tensor pixel_shuffle(const at::Tensor &x, int64_t r) {
  int64_t h = x.size(-2), w = x.size(-1), c = x.size(-3) / (r * r), n = x.dim() - 3;
  c10::IntArrayRef batch = x.sizes().slice(0, (size_t)n);
  std::vector<int64_t> order;
  for (int64_t d = 0; d < n; d++) order.push_back(d);
  for (int64_t d : {0, 3, 1, 4, 2}) order.push_back(n + d);
  return x.reshape(joined(batch, {c, r, r, h, w})).permute(order).reshape(joined(batch, {c, h * r, w * r})).contiguous(x.suggest_memory_format());
}

inline at::Tensor pixel_unshuffle(const at::Tensor &x, int64_t r) {
  int64_t c = x.size(-3), h = x.size(-2) / r, w = x.size(-1) / r, n = x.dim() - 3;
  c10::IntArrayRef batch = x.sizes().slice(0, (size_t)n);
  std::vector<int64_t> order;
  for (int64_t d = 0; d < n; d++) order.push_back(d);
  for (int64_t d : {0, 2, 4, 1, 3}) order.push_back(n + d);
  return x.reshape(joined(batch, {c, h, r, w, r})).permute(order).reshape(joined(batch, {c * r * r, h, w})).contiguous(x.suggest_memory_format());
}

inline at::Tensor channel_shuffle(const at::Tensor &x, c10::SymInt groups_) {
  int64_t groups = groups_.guard_int(__FILE__, __LINE__);
  return x.reshape({x.size(0), groups, x.size(1) / groups, -1}).transpose(1, 2).reshape(x.sizes()).contiguous(x.suggest_memory_format());
}

inline at::Tensor narrow_copy(const at::Tensor &x, int64_t dim, c10::SymInt start, c10::SymInt length) {
  return x.narrow_symint(dim, std::move(start), std::move(length)).clone(at::MemoryFormat::Contiguous);
}

/* grad: as x.unfold gave it, windows at `dim`, their elements last. */
inline at::Tensor unfold_backward(const at::Tensor &grad, c10::SymIntArrayRef sizes, int64_t dim, int64_t size, int64_t step) {
  c10::IntArrayRef shape = C10_AS_INTARRAYREF_SLOW(sizes);
  if (shape.empty()) return grad.reshape({});
  dim = at::maybe_wrap_dim(dim, (int64_t)shape.size());
  std::vector<int64_t> places;
  for (int64_t window = 0; window < grad.size(dim); window++)
    for (int64_t i = 0; i < size; i++) places.push_back(window * step + i);
  return add_along(grad.movedim(-1, dim + 1).flatten(dim, dim + 1), dim, places, shape[(size_t)dim]);
}

/* ---- pads ---- */
inline std::vector<int64_t> padded_places(int64_t size, int64_t low, int64_t high, bool reflects) {
  std::vector<int64_t> places;
  for (int64_t i = -low; i < size + high; i++) {
    int64_t at = std::abs(i);
    places.push_back(reflects ? size - 1 - std::abs(size - 1 - at) : std::clamp<int64_t>(i, 0, size - 1));
  }
  return places;
}

template <int N, bool reflects>
at::Tensor pad_by(const at::Tensor &self, c10::SymIntArrayRef padding) {
  c10::IntArrayRef pads = C10_AS_INTARRAYREF_SLOW(padding);
  at::Tensor y = self;
  for (int d = 0; d < N; d++) y = select_along(y, y.dim() - 1 - d, padded_places(self.size(-1 - d), pads[(size_t)(2 * d)], pads[(size_t)(2 * d + 1)], reflects));
  return y.contiguous(N > 1 ? self.suggest_memory_format() : at::MemoryFormat::Contiguous);
}

template <int N, bool reflects>
at::Tensor pad_by_backward(const at::Tensor &grad, const at::Tensor &self, c10::SymIntArrayRef padding) {
  c10::IntArrayRef pads = C10_AS_INTARRAYREF_SLOW(padding);
  at::Tensor g = grad;
  for (int d = 0; d < N; d++)
    g = add_along(g, g.dim() - 1 - d, padded_places(self.size(-1 - d), pads[(size_t)(2 * d)], pads[(size_t)(2 * d + 1)], reflects), self.size(-1 - d));
  return g;
}

/* ---- columns of windows (unfold and fold of torch.nn.functional) ---- */
/* Where each element of each window lies, window elements outside and windows inside. */
inline std::vector<int64_t> window_places(int64_t size, int64_t kernel, int64_t dilation, int64_t stride, int64_t *windows) {
  *windows = (size - dilation * (kernel - 1) - 1) / stride + 1;
  std::vector<int64_t> places;
  for (int64_t k = 0; k < kernel; k++)
    for (int64_t w = 0; w < *windows; w++) places.push_back(k * dilation + w * stride);
  return places;
}

inline at::Tensor im2col(const at::Tensor &self, c10::IntArrayRef kernel, c10::IntArrayRef dilation, c10::IntArrayRef padding, c10::IntArrayRef stride) {
  at::Tensor x = at::constant_pad_nd(self.dim() == 3 ? self.unsqueeze(0) : self, {padding[1], padding[1], padding[0], padding[0]}, 0);
  int64_t rows, columns;
  auto down = window_places(x.size(2), kernel[0], dilation[0], stride[0], &rows), across = window_places(x.size(3), kernel[1], dilation[1], stride[1], &columns);
  at::Tensor y = select_along(select_along(x, 2, down), 3, across).reshape({x.size(0), x.size(1), kernel[0], rows, kernel[1], columns});
  y = y.permute({0, 1, 2, 4, 3, 5}).reshape({x.size(0), x.size(1) * kernel[0] * kernel[1], rows * columns});
  return self.dim() == 3 ? y.squeeze(0) : y;
}

inline at::Tensor col2im(const at::Tensor &self, c10::SymIntArrayRef size_, c10::IntArrayRef kernel, c10::IntArrayRef dilation, c10::IntArrayRef padding,
                         c10::IntArrayRef stride) {
  c10::IntArrayRef size = C10_AS_INTARRAYREF_SLOW(size_);
  at::Tensor x = self.dim() == 2 ? self.unsqueeze(0) : self;
  int64_t height = size[0] + 2 * padding[0], width = size[1] + 2 * padding[1], rows, columns, channels = x.size(1) / (kernel[0] * kernel[1]);
  auto down = window_places(height, kernel[0], dilation[0], stride[0], &rows), across = window_places(width, kernel[1], dilation[1], stride[1], &columns);
  at::Tensor y = x.reshape({x.size(0), channels, kernel[0], kernel[1], rows, columns}).permute({0, 1, 2, 4, 3, 5});
  y = y.reshape({x.size(0), channels, kernel[0] * rows, kernel[1] * columns});
  y = add_along(add_along(y, 3, across, width), 2, down, height).narrow(2, padding[0], size[0]).narrow(3, padding[1], size[1]).contiguous();
  return self.dim() == 2 ? y.squeeze(0) : y;
}

/* ---- pools ---- */
inline at::Tensor max_unpool(const at::Tensor &self, const at::Tensor &index, c10::IntArrayRef size) {
  size_t n = size.size();
  std::vector<int64_t> batch = self.sizes().slice(0, (size_t)self.dim() - n).vec(), flat = batch, out = batch;
  flat.push_back(1);
  for (int64_t s : size) flat.back() *= s, out.push_back(s);
  std::vector<int64_t> given = batch;
  given.push_back(-1);
  if (!self.numel()) return at::zeros(out, self.options());
  at::Tensor y = at::scatter(at::zeros(flat, self.options()), -1, index.reshape(given), self.reshape(given)).reshape(out);
  return n == 2 ? y.contiguous(self.suggest_memory_format()) : y;
}
inline at::Tensor max_unpool2d(const at::Tensor &self, const at::Tensor &index, c10::SymIntArrayRef size) { return max_unpool(self, index, C10_AS_INTARRAYREF_SLOW(size)); }
inline at::Tensor max_unpool3d(const at::Tensor &self, const at::Tensor &index, c10::SymIntArrayRef size, c10::IntArrayRef, c10::IntArrayRef) {
  return max_unpool(self, index, C10_AS_INTARRAYREF_SLOW(size));
}

/* The windows of an adaptive pool along one dimension, all as long as the longest: [out, length] places, of which the first counts[o] belong to window o. */
struct AdaptiveWindows {
  int64_t out, length = 0;
  std::vector<int64_t> places, counts;

  AdaptiveWindows(int64_t size, int64_t out_) : out(out_) {
    auto start = [&](int64_t o) { return o * size / out; };
    auto end = [&](int64_t o) { return ((o + 1) * size + out - 1) / out; };
    for (int64_t o = 0; o < out; o++) length = std::max(length, end(o) - start(o));
    for (int64_t o = 0; o < out; o++) {
      counts.push_back(end(o) - start(o));
      for (int64_t i = 0; i < length; i++) places.push_back(std::min(start(o) + i, end(o) - 1));
    }
  }
};

/* x with dimension `dim` replaced by [out, length]. */
inline at::Tensor spread(const at::Tensor &x, int64_t dim, const AdaptiveWindows &w) { return select_along(x, dim, w.places).unflatten(dim, {w.out, w.length}); }

/* [out, length] where the place belongs to the window, shaped to stand at `dim` of a tensor of that rank. */
inline at::Tensor belongs(const at::Tensor &like, int64_t dim, int64_t rank, const AdaptiveWindows &w) {
  std::vector<int64_t> shape((size_t)rank, 1);
  shape[(size_t)dim] = w.out, shape[(size_t)dim + 1] = w.length;
  return at::lt(at::arange(w.length, like.options().dtype(at::kLong)), indices(w.counts, like).unsqueeze(1)).reshape(shape);
}
inline at::Tensor counts_along(const at::Tensor &like, int64_t dim, int64_t rank, const AdaptiveWindows &w) {
  std::vector<int64_t> shape((size_t)rank, 1);
  shape[(size_t)dim] = w.out;
  return indices(w.counts, like).to(like.scalar_type()).reshape(shape);
}

inline at::Tensor adaptive_avg_pool3d(const at::Tensor &self, c10::SymIntArrayRef size_) {
  c10::IntArrayRef size = C10_AS_INTARRAYREF_SLOW(size_);
  at::Tensor y = self.to(at::toOpMathType(self.scalar_type()));
  for (int64_t d = 0; d < 3; d++) {
    int64_t dim = self.dim() - 3 + d;
    AdaptiveWindows w(self.size(dim), size[(size_t)d]);
    at::Tensor parts = spread(y, dim, w);
    y = at::sum(at::where(belongs(parts, dim, parts.dim(), w), parts, at::zeros({}, parts.options())), dim + 1) / counts_along(parts, dim, y.dim(), w);
  }
  return y.to(self.scalar_type());
}

inline at::Tensor adaptive_avg_pool3d_backward(const at::Tensor &grad, const at::Tensor &self) {
  at::Tensor g = grad.to(at::toOpMathType(grad.scalar_type()));
  for (int64_t d = 2; d >= 0; d--) {
    int64_t dim = self.dim() - 3 + d;
    AdaptiveWindows w(self.size(dim), grad.size(dim));
    at::Tensor share = (g / counts_along(g, dim, g.dim(), w)).unsqueeze(dim + 1);
    at::Tensor parts = at::where(belongs(g, dim, g.dim() + 1, w), share, at::zeros({}, g.options()));
    g = add_along(parts.flatten(dim, dim + 1), dim, w.places, self.size(dim));
  }
  return g.to(self.scalar_type());
}

/* The windows of all N dimensions side by side: [..., out..., elements], and for each element its place in the plane. */
template <int N>
std::tuple<at::Tensor, at::Tensor> adaptive_max_pool(const at::Tensor &self, c10::IntArrayRef size) {
  int64_t lead = self.dim() - N, elements = 1;
  at::Tensor parts = self, place = at::zeros({}, self.options().dtype(at::kLong));
  std::vector<int64_t> order, out = self.sizes().slice(0, (size_t)lead).vec();
  for (int64_t d = 0; d < lead; d++) order.push_back(d);
  for (int64_t d = 0; d < N; d++) {
    AdaptiveWindows w(self.size(lead + d), size[(size_t)d]);
    parts = spread(parts, lead + 2 * d, w);
    std::vector<int64_t> shape(2 * N, 1);
    shape[(size_t)(2 * d)] = w.out, shape[(size_t)(2 * d + 1)] = w.length;
    place = place * self.size(lead + d) + indices(w.places, self).reshape(shape);
    out.push_back(w.out);
    elements *= w.length;
  }
  std::vector<int64_t> planes = order;
  for (int64_t d = 0; d < N; d++) order.push_back(lead + 2 * d);
  for (int64_t d = 0; d < N; d++) order.push_back(lead + 2 * d + 1);
  std::vector<int64_t> plane_order;
  for (size_t d = (size_t)lead; d < order.size(); d++) plane_order.push_back(order[d] - lead);
  std::vector<int64_t> flat = out;
  flat.push_back(elements);
  /* A window's last place stands for those it is too short for: never the first of equals. */
  auto [values, which] = at::max(parts.permute(order).reshape(flat), -1);
  at::Tensor places = place.permute(plane_order).reshape(c10::IntArrayRef(flat).slice((size_t)lead)).expand(flat);
  at::Tensor index = at::gather(places, -1, which.unsqueeze(-1)).squeeze(-1);
  at::MemoryFormat format = N == 2 ? self.suggest_memory_format() : at::MemoryFormat::Contiguous;
  return {values.contiguous(format), index.contiguous(format)};
}

template <int N>
at::Tensor adaptive_max_pool_backward(const at::Tensor &grad, const at::Tensor &self, const at::Tensor &index) {
  std::vector<int64_t> flat = self.sizes().slice(0, (size_t)(self.dim() - N)).vec();
  int64_t count = 1;
  for (int64_t d = 1; d <= N; d++) count *= self.size(-d);
  std::vector<int64_t> given = flat;
  flat.push_back(count), given.push_back(-1);
  if (!grad.numel()) return at::zeros(self.sizes(), self.options());
  at::Tensor y = at::scatter_add(at::zeros(flat, grad.options()), -1, index.reshape(given), grad.reshape(given)).reshape(self.sizes());
  return N == 2 ? y.contiguous(self.suggest_memory_format()) : y;
}

}  // namespace tern
#endif
