/* foreach: torch._foreach_*, which are what torch.optim's loops over parameters are made of. Each is the row of its operator (_foreach_add.List: add.Tensor) once per
 * element of its lists, recorded in one call: no trip through the dispatcher per tensor.
 *
 * On the CPU these operators are loops over the plain ones, so an element's promotion, errors and fallbacks are the plain operator's. What concerns the lists
 * themselves (none at all, of several lengths) is left to PyTorch's own loop, which raises. */
#ifndef TERN_TORCH_FOREACH_H
#define TERN_TORCH_FOREACH_H
#include <ATen/native/ForeachUtils.h>
#include <deque>
#include "trampoline.h"

namespace tern {

class Foreach final : public c10::OperatorKernel {
  c10::OperatorHandle op;
  const Entry &base; /* of one element */
  size_t n;          /* arguments */
  int from[kMaxArguments]; /* the argument that each one of the element's is taken from; -1: its default */

 public:
  Foreach(c10::OperatorHandle op_, const Entry &base_) : op(op_), base(base_), n(op_.schema().arguments().size()) { match(op, base, from); }

  /* How many of the element operator's arguments keep their defaults; -1 where it cannot serve. Tensors and numbers are matched by place, the rest by name. */
  static int match(const c10::OperatorHandle &op, const Entry &base, int *from) {
    const auto &ours = op.schema().arguments(), &theirs = base.op.schema().arguments();
    size_t used = 0;
    for (size_t j = 0; j < theirs.size(); j++) {
      char kind = kind_of(theirs[j]);
      from[j] = -1;
      if (kind && j < ours.size() && kind_of(ours[j]) == kind) from[j] = (int)j;
      for (size_t i = 0; i < ours.size() && !kind; i++)
        if (ours[i].name() == theirs[j].name()) from[j] = (int)i;
      if (from[j] >= 0) used++;
      else if (!theirs[j].default_value()) return -1;
    }
    return used == ours.size() ? (int)(theirs.size() - used) : -1;
  }

  void operator()(const c10::OperatorHandle &, c10::DispatchKeySet, torch::jit::Stack *stack) {
    uint32_t line = line_here();
    size_t count = 0;
    bool even = true;
    for (const c10::IValue &value : torch::jit::last(*stack, n))
      if (value.isList()) {
        size_t length = value.toListRef().size();
        even &= length && (!count || length == count);
        count = length;
      }
    if (!even) return fall_back(op, stack, line, true);
    remember_forward_line(line);
    follow_default_dtype();
    std::vector<c10::IValue> values = torch::jit::pop(*stack, n);
    c10::List<at::Tensor> results;
    results.reserve(count);
    for (size_t k = 0; k < count; k++) call_element(values, k, line, results);
    if (base.form == TERN_FUNCTIONAL) stack->emplace_back(std::move(results));
  }

 private:
  static char kind_of(const c10::Argument &argument) {
    c10::TypePtr type = argument.type();
    if (type->kind() == c10::TypeKind::ListType) type = type->castRaw<c10::ListType>()->getElementType();
    return type->kind() == c10::TypeKind::TensorType ? 'T' : type->kind() == c10::TypeKind::NumberType ? 'S' : 0;
  }

  const c10::IValue &element(const std::vector<c10::IValue> &values, size_t argument, size_t k) const {
    if (from[argument] < 0) return *base.op.schema().arguments()[argument].default_value();
    const c10::IValue &value = values[(size_t)from[argument]];
    return value.isList() ? value.toListRef()[k] : value;
  }

  void call_element(const std::vector<c10::IValue> &values, size_t k, uint32_t line, c10::List<at::Tensor> &results) const {
    tern_argument arguments[kMaxArguments];
    const at::Tensor *targets[kMaxArguments];
    Room room;
    bool native = tern_mode_get() != TERN_MODE_DEBUG;
    for (uint8_t j = 0; j < base.n; j++) {
      const c10::IValue &value = element(values, j, k);
      native = read_argument(value, base.lists[j], room, &arguments[j]) && native;
      targets[j] = value.isTensor() ? &value.toTensor() : nullptr;
    }
    Call call{targets, {}, {}, nullptr};
    if (native && record(base, arguments, call, line) == TERN_RECORD) [[likely]] {
      if (base.form == TERN_FUNCTIONAL) results.push_back(std::move(call.results[0]));
      return;
    }
    torch::jit::Stack one;
    for (uint8_t j = 0; j < base.n; j++) one.push_back(element(values, j, k));
    Trampoline{base}(base.op, kTernKeys, &one);
    if (base.form == TERN_FUNCTIONAL) results.push_back(std::move(one.back()).toTensor());
  }
};

/* The row that serves one element: of the rows with the operator's name and form, the one that leaves the fewest arguments to their defaults. */
inline const Entry *element_entry(const c10::OperatorHandle &op) {
  static const std::pair<const char *, const char *> others[] = {{"maximum", "clamp_min"}, {"minimum", "clamp_max"}, {"norm", "linalg_vector_norm"}};
  std::string name = op.schema().name().substr(strlen("aten::_foreach_"));
  bool in_place = name.back() == '_';
  if (in_place) name.pop_back();
  for (auto [ours, theirs] : others)
    if (name == ours) name = theirs;
  name = "aten::" + name + (in_place ? "_" : "");
  const Entry *best = nullptr;
  int least = kMaxArguments, from[kMaxArguments];
  for (const auto &entry : table.entries) {
    if (entry->op.schema().name() != name || entry->form != (in_place ? TERN_INPLACE : TERN_FUNCTIONAL) || entry->returns != Entry::ONE_TENSOR) continue;
    int defaults = Foreach::match(op, *entry, from);
    if (defaults < 0 || defaults >= least) continue;
    least = defaults;
    best = entry.get();
  }
  return best;
}

/* The numbers of these come as one CPU tensor. */
template <auto function>
std::vector<at::Tensor> with_numbers(at::TensorList self, at::TensorList first, at::TensorList second, const at::Tensor &numbers) {
  return function(self, first, second, at::native::convert_tensor_to_scalar_list(numbers, (int64_t)self.size()));
}
template <auto function>
void with_numbers_in_place(at::TensorList self, at::TensorList first, at::TensorList second, const at::Tensor &numbers) {
  function(self, first, second, at::native::convert_tensor_to_scalar_list(numbers, (int64_t)self.size()));
}
using Numbers = at::ArrayRef<at::Scalar>;
inline std::vector<at::Tensor> addcdiv(at::TensorList a, at::TensorList b, at::TensorList c, Numbers s) { return at::_foreach_addcdiv(a, b, c, s); }
inline std::vector<at::Tensor> addcmul(at::TensorList a, at::TensorList b, at::TensorList c, Numbers s) { return at::_foreach_addcmul(a, b, c, s); }
inline void addcdiv_in_place(at::TensorList a, at::TensorList b, at::TensorList c, Numbers s) { at::_foreach_addcdiv_(a, b, c, s); }
inline void addcmul_in_place(at::TensorList a, at::TensorList b, at::TensorList c, Numbers s) { at::_foreach_addcmul_(a, b, c, s); }

inline void register_foreach(torch::Library &library) {
  auto own = [&](const char *name, auto &&function) {
    if (table.claim(name)) library.impl(name, std::forward<decltype(function)>(function));
  };
  own("_foreach_addcdiv.Tensor", TORCH_FN(with_numbers<addcdiv>));
  own("_foreach_addcmul.Tensor", TORCH_FN(with_numbers<addcmul>));
  own("_foreach_addcdiv_.Tensor", TORCH_FN(with_numbers_in_place<addcdiv_in_place>));
  own("_foreach_addcmul_.Tensor", TORCH_FN(with_numbers_in_place<addcmul_in_place>));
  static std::deque<std::string> names; /* live for ever, as the table's do */
  for (const c10::OperatorName &full : c10::Dispatcher::singleton().getAllOpNames()) {
    auto op = full.name.compare(0, 15, "aten::_foreach_") ? std::nullopt : c10::Dispatcher::singleton().findSchema(full);
    const Entry *base = op ? element_entry(*op) : nullptr;
    if (!base) continue;
    names.push_back((full.overload_name.empty() ? full.name : full.name + "." + full.overload_name).substr(6));
    if (table.names.count(names.back()) || full.overload_name.find("out") != std::string::npos) continue;
    own(names.back().c_str(), torch::CppFunction::makeFromBoxedFunctor(std::make_unique<Foreach>(*op, *base)));
  }
}

}  // namespace tern
#endif
