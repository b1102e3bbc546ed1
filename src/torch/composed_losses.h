/* composed_losses: margin losses over classes and their gradients. Part of composed.h. */
#ifndef TERN_TORCH_COMPOSED_LOSSES_H
#define TERN_TORCH_COMPOSED_LOSSES_H
#include <ATen/ATen.h>
#include <ATen/core/Reduction.h>
#include "bridge.h"

namespace tern {

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

/* ---- multilabel margin loss: a row of targets ends at its first negative one ---- */
struct Labels {
  at::Tensor x, target, valid, is_target; /* [N, C] each; target with 0 where it is not valid, is_target in x's dtype */
};
inline Labels labels_of(const at::Tensor &self, const at::Tensor &target_) {
  int64_t classes = self.dim() ? self.size(-1) : 1;
  at::Tensor x = self.reshape({-1, classes}), target = target_.reshape({-1, classes});
  at::Tensor valid = at::cumprod(at::ge(target, 0).to(at::kLong), 1).to(at::kBool);
  target = at::where(valid, target, at::zeros_like(target));
  at::Tensor is_target = at::scatter_add(at::zeros_like(x), 1, target, valid.to(x.scalar_type())).clamp_max(1);
  return {x, target, valid, is_target};
}
/* [N, target, class]: what a class adds to the loss of a target. */
inline at::Tensor multilabel_margins(const Labels &l) {
  at::Tensor gap = (1 - l.x.gather(1, l.target).unsqueeze(2) + l.x.unsqueeze(1)).clamp_min(0);
  return gap * l.valid.unsqueeze(2) * (1 - l.is_target).unsqueeze(1);
}
inline std::tuple<at::Tensor, at::Tensor> multilabel_margin_loss_forward(const at::Tensor &self, const at::Tensor &target, int64_t reduction) {
  if (!self.numel()) return {reduced(at::zeros(self.dim() < 2 ? at::IntArrayRef{} : self.sizes().slice(0, 1), self.options()), reduction), at::zeros_like(self)};
  Labels l = labels_of(self, target);
  at::Tensor loss = multilabel_margins(l).sum({1, 2}) / (double)l.x.size(1);
  if (reduction == at::Reduction::None && self.dim() < 2) loss = loss.reshape({});
  return {reduced(loss, reduction), l.is_target.reshape(target.sizes())};
}
inline at::Tensor multilabel_margin_loss_backward(const at::Tensor &grad, const at::Tensor &self, const at::Tensor &target, int64_t reduction, const at::Tensor &) {
  if (!self.numel()) return at::zeros_like(self);
  Labels l = labels_of(self, target);
  at::Tensor slope = at::gt(multilabel_margins(l), 0).to(l.x.scalar_type());
  at::Tensor each = at::scatter_add(slope.sum(1), 1, l.target, -slope.sum(2));
  each = each / (double)(l.x.size(1) * (reduction == at::Reduction::Mean ? l.x.size(0) : 1));
  return (each * (reduction == at::Reduction::None && grad.dim() ? grad.reshape({-1, 1}) : grad)).reshape(self.sizes());
}

}  // namespace tern
#endif
