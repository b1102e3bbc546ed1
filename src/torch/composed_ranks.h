/* composed_ranks: medians, k-th values and modes, by sorting. Part of composed.h. */
#ifndef TERN_TORCH_COMPOSED_RANKS_H
#define TERN_TORCH_COMPOSED_RANKS_H
#include <ATen/ATen.h>
#include <ATen/WrapDimUtils.h>
#include <cmath>
#include "bridge.h"

namespace tern {

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

/* The lower of the middle elements that are numbers; NaN sorts last, so their count says where it stands. */
inline Pair nanmedian_along(const at::Tensor &self, int64_t dim, bool keepdim) {
  if (!self.dim() || !self.is_floating_point()) return median_along(self, dim, keepdim);
  auto [sorted, index] = at::sort(self, /*stable=*/true, dim, false);
  at::Tensor middle = at::div((at::logical_not(at::isnan(self)).sum(dim, true) - 1).clamp_min(0), 2, "floor");
  at::Tensor value = sorted.gather(dim, middle), place = index.gather(dim, middle);
  return keepdim ? Pair{value, place} : Pair{value.squeeze(dim), place.squeeze(dim)};
}

inline at::Tensor nanmedian(const at::Tensor &self) {
  if (!self.numel()) return at::full({}, NAN, self.options());
  return std::get<0>(tern::nanmedian_along(self.reshape(-1), 0, false));
}

/* The most frequent element, the smallest of several: the end of the first longest run of the sorted elements. */
inline Pair mode(const at::Tensor &self, int64_t dim, bool keepdim) {
  if (!self.dim()) return at_rank(self, 0, 0, keepdim);
  dim = at::maybe_wrap_dim(dim, self.dim());
  auto [sorted, index] = at::sort(self, /*stable=*/true, dim, false);
  std::vector<int64_t> shape((size_t)self.dim(), 1);
  int64_t n = shape[(size_t)dim] = self.size(dim);
  at::Tensor place = at::arange(n, index.options()).reshape(shape).expand(self.sizes());
  at::Tensor begins = at::cat({at::ones_like(sorted.narrow(dim, 0, 1), at::kBool), at::ne(sorted.narrow(dim, 1, n - 1), sorted.narrow(dim, 0, n - 1))}, dim);
  at::Tensor begin = std::get<0>(at::cummax(at::where(begins, place, at::zeros_like(place)), dim));
  at::Tensor best = (place - begin).argmax(dim, true), value = sorted.gather(dim, best);
  place = index.gather(dim, best);
  return keepdim ? Pair{value, place} : Pair{value.squeeze(dim), place.squeeze(dim)};
}

}  // namespace tern
#endif
