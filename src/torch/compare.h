/* compare: debug mode. After an operator ran on tern, PyTorch's CPU kernel runs on copies of the same inputs and the results must agree.
 *
 * The first operator that differs raises, with its name, the user's line and the largest difference. Random operators are not compared. */
#ifndef TERN_TORCH_COMPARE_H
#define TERN_TORCH_COMPARE_H
#include <ATen/ops/abs.h>
#include <ATen/ops/isclose.h>
#include <ATen/ops/nan_to_num.h>
#include "copy.h"

namespace tern {

class Comparison {
 public:
  /* Copies the inputs as they are now; in-place operators are about to change them. */
  Comparison(const c10::OperatorHandle &handle, c10::ArrayRef<c10::IValue> arguments) : op(handle), view(HostView::COPIES) {
    for (const c10::IValue &argument : arguments) {
      if (argument.isDevice()) inputs.emplace_back(c10::Device(c10::kCPU));
      else inputs.push_back(replace_tensors(argument, [&](const at::Tensor &tensor) { return view.to_cpu(tensor); }));
    }
  }

  void check(c10::ArrayRef<c10::IValue> arguments, c10::ArrayRef<c10::IValue> results, uint32_t line) {
    torch::jit::Stack stack(inputs.begin(), inputs.end());
    try {
      run_on_cpu(op, stack, current_device_index);
    } catch (const c10::NotImplementedError &) {
      return; /* an operator that only devices have: there is nothing to compare with */
    }
    for (size_t i = 0; i < arguments.size(); i++) {
      const c10::AliasInfo *alias = op.schema().arguments()[i].alias_info();
      if (alias && alias->isWrite()) compare(arguments[i], inputs[i], c10::str("argument ", op.schema().arguments()[i].name()), line);
    }
    c10::ArrayRef<c10::IValue> last = results.slice(results.size() - std::min(results.size(), stack.size()));
    for (size_t i = 0; i < last.size(); i++) compare(last[i], stack[i], c10::str("result ", i), line);
  }

 private:
  c10::OperatorHandle op;
  HostView view;
  std::vector<c10::IValue> inputs;

  void compare(const c10::IValue &ours, const c10::IValue &theirs, const std::string &what, uint32_t line) {
    std::vector<at::Tensor> mine, reference;
    each_tensor(ours, [&](const at::Tensor &tensor) { mine.push_back(tensor); });
    each_tensor(theirs, [&](const at::Tensor &tensor) { reference.push_back(tensor); });
    for (size_t i = 0; i < std::min(mine.size(), reference.size()); i++) compare_tensors(mine[i], reference[i], what, line);
  }

  void compare_tensors(const at::Tensor &tensor, const at::Tensor &reference, const std::string &what, uint32_t line) {
    auto fail = [&](const std::string &how) {
      std::string where = line_text(line);
      require(false, TERN_DIFFERS, "TERN_MODE=debug: ", what, " of ", toString(op.operator_name()), " differs from PyTorch's CPU kernel: ", how,
                  where.empty() ? "" : "\n  at " + where);
    };
    if (tensor.sizes() != reference.sizes()) fail(c10::str("sizes ", tensor.sizes(), " and ", reference.sizes()));
    if (tensor.scalar_type() != reference.scalar_type()) fail(c10::str("dtype ", tensor.scalar_type(), " and ", reference.scalar_type()));
    if (!tensor.numel()) return;
    at::Tensor mine = tensor.cpu();
    double relative = 0, absolute = 0;
    switch (tensor.scalar_type()) {
      case at::kDouble: case at::kComplexDouble: relative = 1e-9, absolute = 1e-10; break;
      case at::kFloat: case at::kComplexFloat: relative = 1e-4, absolute = 1e-5; break;
      case at::kHalf: relative = 5e-3, absolute = 1e-3; break;
      case at::kBFloat16: relative = 3e-2, absolute = 1e-2; break;
      default: break;
    }
    at::Tensor close = at::isclose(mine, reference, relative, absolute, /*equal_nan=*/true);
    if (close.all().item<bool>()) return;
    int64_t at = close.logical_not().flatten().to(at::kByte).argmax().item<int64_t>();
    fail(c10::str(close.logical_not().sum().item<int64_t>(), " of ", close.numel(), " elements, first at flat index ", at, ": tern ",
                  mine.flatten()[at].item<double>(), ", CPU ", reference.flatten()[at].item<double>()));
  }
};

}  // namespace tern
#endif
