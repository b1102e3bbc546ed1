/* trampoline: the one way from PyTorch's dispatcher into tern's operator table.
 *
 * One boxed kernel serves every row: it describes the call's arguments as plain C structs on the stack, lets the row record, and puts what the row made back on
 * PyTorch's stack. The commonest signatures also come unboxed, because boxing costs as much as the rest of recording; they share everything but the
 * reading of arguments. This is the hot path of deferred execution: it allocates nothing but the result's storage and tensor. */
#ifndef TERN_TORCH_TRAMPOLINE_H
#define TERN_TORCH_TRAMPOLINE_H
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/native/Resize.h>
#include "compare.h"

namespace tern {

constexpr int kMaxArguments = 24;

/* What is known of a registered name once and for all. */
struct Entry {
  const tern_aten_row *row;
  tern_form form;
  std::string name; /* without "aten::" */
  c10::OperatorHandle op;
  enum List : uint8_t { NOT, TENSORS, INTS, DOUBLES, BOOLS, SCALARS };
  uint8_t n = 0;
  List lists[kMaxArguments] = {};
  enum Returns : uint8_t { NOTHING, ONE_TENSOR, ONE_LIST, SEVERAL } returns;
  bool random = false;

  Entry(const tern_aten_row *row_, tern_form form_, const char *name_, c10::OperatorHandle op_) : row(row_), form(form_), name(name_), op(op_) {
    const c10::FunctionSchema &schema = op.schema();
    TORCH_INTERNAL_ASSERT(schema.arguments().size() <= kMaxArguments, "aten::", name, " has more arguments than the trampoline has room for");
    n = (uint8_t)schema.arguments().size();
    for (int i = 0; i < n; i++) {
      const c10::TypePtr &type = schema.arguments()[(size_t)i].type();
      c10::TypePtr inner = type->kind() == c10::TypeKind::OptionalType ? type->castRaw<c10::OptionalType>()->getElementType() : type;
      if (inner->kind() == c10::TypeKind::ListType) lists[i] = list_of(inner->castRaw<c10::ListType>()->getElementType()->kind());
    }
    auto &returned = schema.returns();
    returns = returned.empty() ? NOTHING
              : returned.size() > 1 ? SEVERAL
              : returned[0].type()->kind() == c10::TypeKind::ListType ? ONE_LIST : ONE_TENSOR;
    for (at::Tag tag : op.getTags()) random |= tag == at::Tag::nondeterministic_seeded;
    if (name == "_scaled_dot_product_fused_attention_overrideable") random = false; /* its row drops nothing: what drops is PyTorch's composition */
  }

 private:
  static List list_of(c10::TypeKind kind) {
    switch (kind) {
      case c10::TypeKind::TensorType: case c10::TypeKind::OptionalType: return TENSORS;
      case c10::TypeKind::IntType: case c10::TypeKind::SymIntType: return INTS;
      case c10::TypeKind::FloatType: return DOUBLES;
      case c10::TypeKind::BoolType: return BOOLS;
      case c10::TypeKind::NumberType: return SCALARS;
      default: return NOT;
    }
  }
};

/* Room for the lists of one call: a little on the stack, the rest (foreach) on the heap. */
class Room {
  alignas(16) char here[1024];
  size_t used = 0;
  std::vector<std::unique_ptr<char[]>> more;

 public:
  template <class T>
  T *take(size_t count) {
    size_t bytes = (count * sizeof(T) + 15) & ~(size_t)15;
    if (bytes <= sizeof here - used) return (T *)(here + std::exchange(used, used + bytes));
    more.push_back(std::unique_ptr<char[]>(new char[bytes]));
    return (T *)more.back().get();
  }
};

/* ---- what the row asks for ---- */
struct Call {
  const at::Tensor *const *targets;   /* by argument; NULL where it is no tensor */
  c10::SmallVector<at::Tensor, 4> results;
  c10::SmallVector<std::pair<int, int64_t>, 2> integers; /* (number of results before it, value) */
  std::exception_ptr kept;
};

inline tern_status host_new_result(void *shim, int device, tern_dtype dtype, int rank, const int64_t *sizes, const int64_t *strides, uint32_t line,
                                   tern_buffer **out) {
  Call &call = *(Call *)shim;
  return guarded(call.kept, [&]() -> tern_status {
    c10::ScalarType type = dtype_to_torch(dtype);
    c10::IntArrayRef size_list(sizes, (size_t)rank), stride_list(strides, (size_t)rank);
    size_t bytes = at::detail::computeStorageNbytes(size_list, stride_list, tern_dtype_size(dtype));
    tern_buffer *buffer = nullptr;
    TERN_TRY(tern_buffer_new(device_at((c10::DeviceIndex)device), bytes, line, &buffer));
    c10::DataPtr pointer = data_pointer(buffer, (c10::DeviceIndex)device);
    call.results.push_back(tensor_over(storage_over(std::move(pointer), bytes), c10::scalarTypeToTypeMeta(type), size_list, stride_list));
    *out = buffer;
    return nullptr;
  });
}

inline void host_return_argument(void *shim, int index) {
  Call &call = *(Call *)shim;
  call.results.push_back(*call.targets[index]);
}
inline void host_return_undefined(void *shim) { ((Call *)shim)->results.emplace_back(); }
inline void host_return_int(void *shim, int64_t value) {
  Call &call = *(Call *)shim;
  call.integers.emplace_back((int)call.results.size(), value);
}

inline tern_status host_resize_argument(void *shim, int index, int rank, const int64_t *sizes, const int64_t *strides, tern_tensor *out) {
  Call &call = *(Call *)shim;
  return guarded(call.kept, [&]() -> tern_status {
    const at::Tensor &target = *call.targets[index];
    c10::IntArrayRef size_list(sizes, (size_t)rank);
    if (at::native::resize_output(target, size_list)) target.unsafeGetTensorImpl()->set_sizes_and_strides(size_list, c10::IntArrayRef(strides, (size_t)rank));
    if (!describe(target, out)) return tern_error_new(TERN_UNSUPPORTED, "the out= tensor has a form that tern does not have");
    return nullptr;
  });
}

inline tern_status host_read(void *shim, tern_buffer *buffer, size_t bytes, void *out) {
  TERN_TRY(guarded(((Call *)shim)->kept, []() -> tern_status {
    if (sync_debug_mode.load(std::memory_order_relaxed)) [[unlikely]] announce_wait("a result whose size depends on values", line_here());
    return nullptr;
  }));
  void *gil = tern_python_gil_release();
  tern_status status = tern_buffer_read(buffer, 0, bytes, out);
  tern_python_gil_restore(gil);
  return status;
}

inline const tern_host host_functions = {host_new_result, host_return_argument, host_return_undefined, host_resize_argument, host_return_int, host_read};

/* ---- reading arguments ---- */
/* Each returns false where the CPU kernels must serve the call. */
inline bool read_tensor(const at::Tensor &tensor, tern_argument *out) {
  if (!tensor.defined()) return out->tag = TERN_ARG_NONE, true;
  out->tag = TERN_ARG_TENSOR;
  return describe(tensor, &out->u.tensor);
}

inline void read_scalar(const c10::IValue &value, tern_argument *out) {
  if (value.isInt()) out->tag = TERN_ARG_INT, out->u.i = value.toInt();
  else if (value.isDouble()) out->tag = TERN_ARG_DOUBLE, out->u.d = value.toDouble();
  else if (value.isBool()) out->tag = TERN_ARG_BOOL, out->u.i = value.toBool();
  else out->tag = TERN_ARG_OTHER;
}

inline void read_scalar(const c10::Scalar &value, tern_argument *out) {
  if (value.isIntegral(false)) out->tag = TERN_ARG_INT, out->u.i = value.toLong();
  else if (value.isFloatingPoint()) out->tag = TERN_ARG_DOUBLE, out->u.d = value.toDouble();
  else if (value.isBoolean()) out->tag = TERN_ARG_BOOL, out->u.i = value.toBool();
  else out->tag = TERN_ARG_OTHER;
}

inline bool read_list(const c10::IValue &value, Entry::List kind, Room &room, tern_argument *out) {
  c10::ArrayRef<c10::IValue> list = value.toListRef();
  out->n = (int32_t)list.size();
  switch (kind) {
    case Entry::TENSORS: {
      auto *tensors = room.take<tern_tensor>(list.size());
      out->tag = TERN_ARG_TENSORS, out->u.tensors = tensors;
      for (size_t i = 0; i < list.size(); i++) {
        if (list[i].isTensor() && list[i].toTensor().defined()) {
          if (!describe(list[i].toTensor(), &tensors[i])) return false;
        } else {
          tensors[i] = tern_tensor{};
        }
      }
      return true;
    }
    case Entry::INTS: case Entry::BOOLS: {
      auto *ints = room.take<int64_t>(list.size());
      out->tag = kind == Entry::INTS ? TERN_ARG_INTS : TERN_ARG_BOOLS, out->u.ints = ints;
      for (size_t i = 0; i < list.size(); i++) ints[i] = list[i].isBool() ? list[i].toBool() : list[i].toInt();
      return true;
    }
    case Entry::DOUBLES: {
      auto *doubles = room.take<double>(list.size());
      out->tag = TERN_ARG_DOUBLES, out->u.doubles = doubles;
      for (size_t i = 0; i < list.size(); i++) doubles[i] = list[i].toDouble();
      return true;
    }
    case Entry::SCALARS: {
      auto *scalars = room.take<tern_argument>(list.size());
      out->tag = TERN_ARG_SCALARS, out->u.scalars = scalars;
      for (size_t i = 0; i < list.size(); i++) read_scalar(list[i], &scalars[i]);
      return true;
    }
    default: out->tag = TERN_ARG_OTHER; return true;
  }
}

inline bool read_argument(const c10::IValue &value, Entry::List kind, Room &room, tern_argument *out) {
  if (value.isTensor()) return read_tensor(value.toTensor(), out);
  if (value.isNone()) return out->tag = TERN_ARG_NONE, true;
  if (value.isList()) return read_list(value, kind, room, out);
  if (value.isInt() || value.isDouble() || value.isBool()) return read_scalar(value, out), true;
  if (value.isGenerator()) {
    Generator &generator = tern_generator(value.toGenerator());
    out->tag = TERN_ARG_GENERATOR, out->u.generator = generator.is_default ? nullptr : &generator.own;
    return true;
  }
  if (value.isString()) return out->tag = TERN_ARG_TEXT, out->u.text = value.toStringRef().c_str(), true;
  if (value.isDevice()) {
    c10::Device device = value.toDevice();
    out->tag = TERN_ARG_DEVICE;
    out->u.i = device.type() == kTern ? device_index(device.index()) : (int64_t)(device.is_cpu() ? TERN_ON_CPU : TERN_ON_OTHER);
    return true;
  }
  out->tag = TERN_ARG_OTHER;
  return true;
}

/* ---- the call ---- */
/* PyTorch's default dtype decides what rows make of integers. */
inline void follow_default_dtype() {
  static std::atomic<int> known{-1};
  int now = (int)c10::typeMetaToScalarType(c10::get_default_dtype());
  if (now == known.load(std::memory_order_relaxed)) return;
  tern_aten_set_default_dtype((tern_dtype)dtype_from_torch((c10::ScalarType)now));
  known.store(now, std::memory_order_relaxed);
}

/* The autograd node of this call, if one was made, was the last made by this thread. */
[[gnu::noinline]] inline void remember_forward_line(uint32_t line) {
  static thread_local uint64_t seen = 0;
  uint64_t next = at::sequence_number::peek();
  if (next == seen) return;
  seen = next;
  static thread_local uint64_t thread = at::RecordFunction::currentThreadId();
  tern_forward_line_put(thread, next - 1, line);
}

inline tern_verdict record(const tern_aten_row *row, tern_form form, int n, const tern_argument *arguments, Call &call, uint32_t line) {
  tern_call plain;
  plain.row = row, plain.form = form;
  plain.n_arguments = n, plain.arguments = arguments;
  plain.host = &host_functions, plain.shim = &call;
  plain.line = line;
  tern_status status = nullptr;
  tern_verdict verdict = tern_aten_call(&plain, &status);
  if (call.kept) [[unlikely]] {
    tern_error_free(status);
    std::rethrow_exception(call.kept);
  }
  if (verdict == TERN_RECORD) check(status, line);
  return verdict;
}

inline tern_verdict record(const Entry &entry, const tern_argument *arguments, Call &call, uint32_t line) {
  return record(entry.row, entry.form, entry.n, arguments, call, line);
}

/* Records a row that PyTorch has no operator for: `tensors` (undefined ones are absent), then a flag. Gives its results. */
inline c10::SmallVector<at::Tensor, 4> record_internal(const char *name, std::initializer_list<at::Tensor> tensors, bool flag) {
  static constexpr size_t kMost = 16;
  tern_argument arguments[kMost];
  const at::Tensor *targets[kMost] = {};
  size_t n = 0;
  TORCH_INTERNAL_ASSERT(tensors.size() < kMost);
  for (const at::Tensor &tensor : tensors) TORCH_INTERNAL_ASSERT(read_tensor(tensor, &arguments[n++]));
  arguments[n].tag = TERN_ARG_BOOL, arguments[n++].u.i = flag;
  Call call{targets, {}, {}, nullptr};
  TORCH_INTERNAL_ASSERT(record(tern_aten_internal_row(name), TERN_FUNCTIONAL, (int)n, arguments, call, line_here()) == TERN_RECORD);
  return std::move(call.results);
}

/* The verdicts other than TERN_RECORD: the stack goes in as it came and comes out with the results. */
[[gnu::noinline]] inline void serve_otherwise(const Entry &entry, tern_verdict verdict, torch::jit::Stack *stack, uint32_t line) {
  if (verdict == TERN_REJECT) replay_on_meta(entry.op, torch::jit::last(*stack, entry.n));
  fall_back(entry.op, stack, line, verdict == TERN_REJECT);
}

inline void push_results(const Entry &entry, Call &call, torch::jit::Stack *stack) {
  torch::jit::drop(*stack, entry.n);
  if (entry.returns == Entry::ONE_TENSOR) [[likely]] {
    stack->emplace_back(std::move(call.results[0]));
  } else if (entry.returns == Entry::ONE_LIST) {
    c10::List<at::Tensor> list;
    list.reserve(call.results.size());
    for (at::Tensor &result : call.results) list.push_back(std::move(result));
    stack->emplace_back(std::move(list));
  } else if (entry.returns == Entry::SEVERAL) {
    size_t next = 0, integer = 0;
    for (const c10::Argument &returned : entry.op.schema().returns()) {
      bool is_tensor = returned.type()->kind() == c10::TypeKind::TensorType;
      if (is_tensor) stack->emplace_back(next < call.results.size() ? std::move(call.results[next]) : at::Tensor());
      else stack->emplace_back(integer < call.integers.size() ? call.integers[integer].second : (int64_t)0);
      is_tensor ? next++ : integer++;
    }
  }
}

struct Trampoline final : c10::OperatorKernel {
  const Entry &entry;
  explicit Trampoline(const Entry &e) : entry(e) {}

  void operator()(const c10::OperatorHandle &, c10::DispatchKeySet, torch::jit::Stack *stack) {
    uint32_t line = line_here();
    remember_forward_line(line);
    if (entry.random && draws_on_host.load(std::memory_order_relaxed)) [[unlikely]] return draw_on_host(entry.op, stack, line);
    follow_default_dtype();
    const c10::IValue *values = &*(stack->end() - entry.n);
    tern_argument arguments[kMaxArguments];
    const at::Tensor *targets[kMaxArguments];
    Room room;
    bool native = true;
    for (int i = 0; i < entry.n; i++) {
      native = read_argument(values[i], entry.lists[i], room, &arguments[i]) && native;
      targets[i] = values[i].isTensor() ? &values[i].toTensor() : nullptr;
    }
    if (!native) [[unlikely]] return fall_back(entry.op, stack, line);
    Call call{targets, {}, {}, nullptr};
    std::optional<Comparison> comparison;
    if (tern_mode_get() == TERN_MODE_DEBUG) [[unlikely]] {
      if (!entry.random) comparison.emplace(entry.op, c10::ArrayRef<c10::IValue>(values, entry.n));
    }
    tern_verdict verdict = record(entry, arguments, call, line);
    if (verdict != TERN_RECORD) [[unlikely]] return serve_otherwise(entry, verdict, stack, line);
    if (comparison) [[unlikely]] {
      std::vector<c10::IValue> after(values, values + entry.n);
      push_results(entry, call, stack);
      return comparison->check(after, c10::ArrayRef<c10::IValue>(*stack), line);
    }
    push_results(entry, call, stack);
  }
};

/* ---- the commonest signatures, unboxed ---- */
inline bool read_unboxed(const at::Tensor &tensor, tern_argument *out) { return read_tensor(tensor, out); }
inline bool read_unboxed(const c10::Scalar &scalar, tern_argument *out) { return read_scalar(scalar, out), true; }
inline bool read_unboxed(int64_t value, tern_argument *out) { return out->tag = TERN_ARG_INT, out->u.i = value, true; }
inline const at::Tensor *as_target(const at::Tensor &tensor) { return &tensor; }
template <class T>
const at::Tensor *as_target(const T &) { return nullptr; }

/* What is off the common path takes the boxed way from the start. */
template <class... Arguments>
[[gnu::noinline]] at::Tensor call_boxed(const Entry &entry, const Arguments &...values) {
  torch::jit::Stack stack;
  (stack.emplace_back(values), ...);
  Trampoline{entry}(entry.op, kTernKeys, &stack);
  return std::move(stack.back()).toTensor();
}

template <class... Arguments>
at::Tensor call_unboxed(const Entry &entry, const Arguments &...values) {
  if (tern_mode_get() == TERN_MODE_DEBUG) [[unlikely]] return call_boxed(entry, values...);
  tern_argument arguments[sizeof...(Arguments)];
  const at::Tensor *targets[] = {as_target(values)...};
  tern_argument *next = arguments;
  if (!(read_unboxed(values, next++) && ...)) [[unlikely]] return call_boxed(entry, values...);
  uint32_t line = line_here();
  /* Without an argument that takes part in autograd no node was made. */
  for (const at::Tensor *target : targets)
    if (target && target->unsafeGetTensorImpl()->requires_grad()) {
      remember_forward_line(line);
      break;
    }
  follow_default_dtype();
  Call call{targets, {}, {}, nullptr};
  if (record(entry, arguments, call, line) != TERN_RECORD) [[unlikely]] return call_boxed(entry, values...);
  return std::move(call.results[0]);
}

using T = const at::Tensor &;
using S = const c10::Scalar &;

/* The kernel for a name: an unboxed one where the signature is among the common ones, else the trampoline. */
inline torch::CppFunction kernel_for(const Entry &entry) {
  std::string signature;
  for (const c10::Argument &argument : entry.op.schema().arguments()) {
    switch (argument.type()->kind()) {
      case c10::TypeKind::TensorType: signature += 'T'; break;
      case c10::TypeKind::NumberType: signature += 'S'; break;
      default: signature += '?'; break;
    }
  }
  const Entry *e = &entry;
  if (entry.returns == Entry::ONE_TENSOR && entry.form == TERN_FUNCTIONAL) {
    if (signature == "T") return torch::CppFunction([e](T a) { return call_unboxed(*e, a); });
    if (signature == "TT") return torch::CppFunction([e](T a, T b) { return call_unboxed(*e, a, b); });
    if (signature == "TS") return torch::CppFunction([e](T a, S b) { return call_unboxed(*e, a, b); });
    if (signature == "TTS") return torch::CppFunction([e](T a, T b, S c) { return call_unboxed(*e, a, b, c); });
    if (signature == "TSS") return torch::CppFunction([e](T a, S b, S c) { return call_unboxed(*e, a, b, c); });
    if (signature == "TTT") return torch::CppFunction([e](T a, T b, T c) { return call_unboxed(*e, a, b, c); });
    if (signature == "TTTS") return torch::CppFunction([e](T a, T b, T c, S d) { return call_unboxed(*e, a, b, c, d); });
    if (signature == "TTTSS") return torch::CppFunction([e](T a, T b, T c, S d, S f) { return call_unboxed(*e, a, b, c, d, f); });
  }
  if (entry.returns == Entry::ONE_TENSOR && entry.form == TERN_INPLACE) {
    using M = at::Tensor &;
    if (signature == "T") return torch::CppFunction([e](M a) -> M { return call_unboxed(*e, a), a; });
    if (signature == "TT") return torch::CppFunction([e](M a, T b) -> M { return call_unboxed(*e, a, b), a; });
    if (signature == "TS") return torch::CppFunction([e](M a, S b) -> M { return call_unboxed(*e, a, b), a; });
    if (signature == "TTS") return torch::CppFunction([e](M a, T b, S c) -> M { return call_unboxed(*e, a, b, c), a; });
    if (signature == "TTTS") return torch::CppFunction([e](M a, T b, T c, S d) -> M { return call_unboxed(*e, a, b, c, d), a; });
  }
  return torch::CppFunction::makeFromBoxedFunctor(std::make_unique<Trampoline>(entry));
}

/* ---- registration ---- */
struct Table {
  std::vector<std::unique_ptr<Entry>> entries;
  std::vector<const char *> missing;
  std::unordered_set<std::string> names;

  /* The operator of a name that somebody is to serve; nothing where this PyTorch has none. A name is served once: the second claim is an error. */
  std::optional<c10::OperatorHandle> claim(const char *name) {
    const char *dot = strchr(name, '.');
    auto op = c10::Dispatcher::singleton().findSchema({"aten::" + (dot ? std::string(name, dot) : std::string(name)), dot ? dot + 1 : ""});
    TORCH_CHECK(names.insert(name).second, "aten::", name, " is served twice");
    if (!op) missing.push_back(name);
    return op;
  }
};
inline Table table;

inline void register_rows(torch::Library &library, const std::unordered_set<std::string> &taken) {
  for (int i = 0; i < tern_aten_row_count(); i++) {
    const tern_aten_row *row = tern_aten_row_at(i);
    const std::pair<const char *, tern_form> forms[] = {{row->functional, TERN_FUNCTIONAL}, {row->inplace, TERN_INPLACE}, {row->out, TERN_OUT}};
    for (auto [name, form] : forms) {
      if (!name || taken.count(name)) continue;
      auto op = table.claim(name);
      if (!op) continue;
      table.entries.push_back(std::make_unique<Entry>(row, form, name, *op));
      library.impl(name, kernel_for(*table.entries.back()));
    }
  }
}

}  // namespace tern
#endif
