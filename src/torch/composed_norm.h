/* composed_norm: the parts of batch norm that torch.nn.SyncBatchNorm puts together across processes, and PyTorch's newer names for the whole. Part of composed.h.
 *
 * Statistics are [C], of the batch and all positions, in f32 for f16 and bf16. The schemas are CUDA's (aten/src/ATen/native/cuda/Normalization.cuh); the CPU has no
 * kernels for most. */
#ifndef TERN_TORCH_COMPOSED_NORM_H
#define TERN_TORCH_COMPOSED_NORM_H
#include <ATen/ATen.h>
#include <ATen/OpMathType.h>
#include "bridge.h"

namespace tern {

using MaybeTensor = std::optional<at::Tensor>;
inline bool has(const MaybeTensor &t) { return t && t->defined(); }
inline at::Tensor widened(const at::Tensor &t) { return t.to(at::toOpMathType(t.scalar_type())); }
/* [C] against x, whose channels are dimension 1. */
inline at::Tensor along_channels(const at::Tensor &statistic, const at::Tensor &x) {
  std::vector<int64_t> shape((size_t)x.dim(), 1);
  shape[1] = -1;
  return widened(statistic).reshape(shape);
}
inline std::vector<int64_t> all_but_channels(const at::Tensor &x) {
  std::vector<int64_t> dims;
  for (int64_t d = 0; d < x.dim(); d++)
    if (d != 1) dims.push_back(d);
  return dims;
}
inline int64_t per_channel(const at::Tensor &x) { return x.size(1) ? x.numel() / x.size(1) : 0; }
inline void update_running(const MaybeTensor &running, const at::Tensor &now, double momentum) {
  if (has(running)) running->mul_(1 - momentum).add_(now.to(running->scalar_type()), momentum);
}

inline std::tuple<at::Tensor, at::Tensor> batch_norm_stats(const at::Tensor &x, double eps) {
  auto [var, mean] = at::var_mean(widened(x), all_but_channels(x), /*correction=*/0, false);
  return {mean, at::rsqrt(var + eps)};
}

inline at::Tensor batch_norm_elemt(const at::Tensor &x, const MaybeTensor &weight, const MaybeTensor &bias, const at::Tensor &mean, const at::Tensor &invstd, double) {
  at::Tensor y = (widened(x) - along_channels(mean, x)) * along_channels(invstd, x);
  if (has(weight)) y = y * along_channels(*weight, x);
  if (has(bias)) y = y + along_channels(*bias, x);
  return y.to(x.scalar_type());
}

/* mean, invstd: [processes, C]; counts: how many elements each process has seen per channel, [processes]. Chan's parallel algorithm. */
inline std::tuple<at::Tensor, at::Tensor> batch_norm_gather_stats_with_counts(const at::Tensor &, const at::Tensor &mean, const at::Tensor &invstd,
                                                                              const MaybeTensor &running_mean, const MaybeTensor &running_var, double momentum, double eps,
                                                                              const at::Tensor &counts) {
  at::Tensor count = counts.to(mean.scalar_type()).reshape({-1, 1}), total = count.sum(), all_mean = (mean * count).sum(0) / total;
  at::Tensor var = at::reciprocal(invstd * invstd) - eps, gap = mean - all_mean, squares = ((var + gap * gap) * count).sum(0);
  update_running(running_mean, all_mean, momentum);
  update_running(running_var, squares / (total - 1), momentum);
  return {all_mean, at::rsqrt(squares / total + eps)};
}
inline std::tuple<at::Tensor, at::Tensor> batch_norm_gather_stats(const at::Tensor &x, const at::Tensor &mean, const at::Tensor &invstd, const MaybeTensor &running_mean,
                                                                  const MaybeTensor &running_var, double momentum, double eps, int64_t count) {
  return tern::batch_norm_gather_stats_with_counts(x, mean, invstd, running_mean, running_var, momentum, eps, at::full({mean.size(0)}, count, mean.options()));
}

/* -> the sums of gy and of gy (x - mean), and the gradients of weight and bias, of this process. */
inline std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor> batch_norm_backward_reduce(const at::Tensor &gy, const at::Tensor &x, const at::Tensor &mean,
                                                                                             const at::Tensor &invstd, const MaybeTensor &weight, bool for_input,
                                                                                             bool for_weight, bool for_bias) {
  at::Tensor g = widened(gy), sum = g.sum(all_but_channels(x)), sum_product = (g * (widened(x) - along_channels(mean, x))).sum(all_but_channels(x));
  auto in_its_dtype = [&](const at::Tensor &t) { return has(weight) ? t.to(weight->scalar_type()) : t; };
  return {for_input ? sum : at::Tensor(), for_input ? sum_product : at::Tensor(), for_weight ? in_its_dtype(sum_product * widened(invstd)) : at::Tensor(),
          for_bias ? in_its_dtype(sum) : at::Tensor()};
}

/* The sums, and the count of elements per channel, are now those of all processes. */
inline at::Tensor batch_norm_backward_elemt(const at::Tensor &gy, const at::Tensor &x, const at::Tensor &mean, const at::Tensor &invstd, const MaybeTensor &weight,
                                            const at::Tensor &sum, const at::Tensor &sum_product, const at::Tensor &count) {
  at::Tensor total = count.sum().to(sum.scalar_type()), wide_invstd = widened(invstd);
  at::Tensor slope = sum_product / total * wide_invstd * wide_invstd, scale = has(weight) ? wide_invstd * widened(*weight) : wide_invstd;
  at::Tensor gx = widened(gy) - along_channels(sum / total, x) - (widened(x) - along_channels(mean, x)) * along_channels(slope, x);
  return (gx * along_channels(scale, x)).to(x.scalar_type());
}

/* -> mean, var (biased) */
inline std::tuple<at::Tensor, at::Tensor> batch_norm_update_stats(const at::Tensor &x, const MaybeTensor &running_mean, const MaybeTensor &running_var, double momentum) {
  auto [var, mean] = at::var_mean(widened(x), all_but_channels(x), /*correction=*/0, false);
  double n = (double)per_channel(x);
  update_running(running_mean, mean, momentum);
  update_running(running_var, var * (n / (n - 1)), momentum);
  return {mean, var};
}

/* ---- the whole, by its newer names; the reserve is cuDNN's and empty ---- */
using Normalised = std::tuple<at::Tensor, at::Tensor, at::Tensor>;

inline std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor> batch_norm_with_update(const at::Tensor &x, const MaybeTensor &weight, const MaybeTensor &bias,
                                                                                         at::Tensor &running_mean, at::Tensor &running_var, double momentum, double eps) {
  auto [y, mean, invstd] = at::_native_batch_norm_legit(x, weight, bias, running_mean, running_var, /*training=*/true, momentum, eps);
  return {y, mean, invstd, at::empty({0}, x.options().dtype(at::kByte))};
}
inline Normalised batch_norm_backward(const at::Tensor &gy, const at::Tensor &x, const at::Tensor &weight, const MaybeTensor &running_mean, const MaybeTensor &running_var,
                                      const MaybeTensor &mean, const MaybeTensor &invstd, bool update, double eps, std::array<bool, 3> mask, const at::Tensor &) {
  return at::native_batch_norm_backward(gy, x, weight, running_mean, running_var, mean, invstd, update, eps, mask);
}
inline Normalised native_batch_norm(const at::Tensor &x, const MaybeTensor &weight, const MaybeTensor &bias, const MaybeTensor &mean, const MaybeTensor &var, bool training,
                                    double momentum, double eps) {
  return at::native_batch_norm(x, weight, bias, mean, var, training, momentum, eps);
}
inline Normalised batch_norm_without_running(const at::Tensor &x, const MaybeTensor &weight, const MaybeTensor &bias, bool training, double momentum, double eps) {
  return at::_native_batch_norm_legit(x, weight, bias, training, momentum, eps);
}

}  // namespace tern
#endif
