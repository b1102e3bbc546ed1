/* fallback: serves an operator with PyTorch's own CPU kernel, and lets PyTorch raise its own errors by replaying a call on Meta.
 *
 * HostView shows the tensors of one call as CPU tensors: one CPU storage for each tern storage, so that views stay views, aliases stay aliases and writes reach every
 * tensor they should. On a host-addressable device the CPU storage is the device's memory itself and nothing is copied; on others whole storages are
 * downloaded, and the written ones uploaded again. Each fallback is counted and, unless TERN_FALLBACK says otherwise, told once with the user's line. */
#ifndef TERN_TORCH_FALLBACK_H
#define TERN_TORCH_FALLBACK_H
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Context.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>
#include <ATen/ops/convolution.h>
#include <ATen/ops/convolution_backward.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/native_dropout_backward.h>
#include <ATen/ops/ones_like.h>
#include <unordered_set>
#include "device.h"
#include "sparse_form.h"

namespace tern {

/* ---- tensors of a stack ---- */
/* Rebuilds an argument with every tensor in it replaced by function(tensor). */
template <class F>
c10::IValue replace_tensors(const c10::IValue &value, F &&function) {
  if (value.isTensor()) return value.toTensor().defined() ? c10::IValue(function(value.toTensor())) : value;
  if (value.isTensorList()) {
    c10::List<at::Tensor> list;
    for (const at::Tensor &tensor : value.toTensorVector()) list.push_back(tensor.defined() ? function(tensor) : tensor);
    return list;
  }
  if (value.isOptionalTensorList()) {
    c10::List<std::optional<at::Tensor>> list;
    for (const auto &tensor : value.toOptionalTensorVector())
      list.push_back(tensor && tensor->defined() ? std::optional<at::Tensor>(function(*tensor)) : tensor);
    return list;
  }
  return value;
}

/* Calls function(tensor) for every defined tensor in an argument. */
template <class F>
void each_tensor(const c10::IValue &value, F &&function) {
  if (value.isTensor()) {
    if (value.toTensor().defined()) function(value.toTensor());
  } else if (value.isTensorList() || value.isOptionalTensorList()) {
    for (const c10::IValue &element : value.toListRef())
      if (element.isTensor() && element.toTensor().defined()) function(element.toTensor());
  }
}

inline at::Tensor reshaped_over(c10::Storage storage, c10::DispatchKeySet keys, const at::Tensor &like) {
  at::Tensor tensor = at::detail::make_tensor<c10::TensorImpl>(std::move(storage), keys, like.dtype());
  tensor.unsafeGetTensorImpl()->set_sizes_and_strides(like.sizes(), like.strides(), like.storage_offset());
  if (like.unsafeGetTensorImpl()->is_wrapped_number()) tensor.unsafeGetTensorImpl()->set_wrapped_number(true);
  if (like.is_conj()) tensor._set_conj(true);
  if (like.is_neg()) tensor._set_neg(true);
  return tensor;
}

/* ---- HostView ---- */
class HostView {
 public:
  enum Access { SHARED, COPIES }; /* COPIES: what the kernel writes is not written back (debug mode) */
  explicit HostView(Access how) : access(how) {}

  at::Tensor to_cpu(const at::Tensor &tensor) {
    if (!is_tern(tensor)) return access == COPIES && tensor.is_cpu() ? tensor.clone() : tensor;
    if (is_sparse(tensor)) return sparse_like(tensor, c10::DeviceType::CPU, [&](const at::Tensor &part) { return to_cpu(part); });
    return reshaped_over(c10::Storage(shared(tensor).cpu), c10::DispatchKeySet(c10::DispatchKey::CPU), tensor);
  }

  /* The kernel has written `cpu`, which to_cpu gave for `tensor`: brings shape and contents back. */
  void written(const at::Tensor &tensor, const at::Tensor &cpu) {
    if (!is_tern(tensor)) return;
    if (is_sparse(tensor)) return sparse_assign(tensor, cpu, [&](const at::Tensor &part) { return to_tern(part, tensor.device().index()); });
    c10::TensorImpl *impl = tensor.unsafeGetTensorImpl();
    if (tensor.sizes() != cpu.sizes() || tensor.strides() != cpu.strides() || tensor.storage_offset() != cpu.storage_offset())
      impl->set_sizes_and_strides(cpu.sizes(), cpu.strides(), cpu.storage_offset());
    if (tensor.is_conj() != cpu.is_conj()) tensor._set_conj(cpu.is_conj());
    Shared &entry = shared(tensor);
    if (entry.cpu->nbytes() > entry.bytes) { /* an out= argument that the kernel has made larger: it lies elsewhere now */
      storage_resize(impl->unsafe_storage().unsafeGetStorageImpl(), entry.cpu->nbytes());
      entry.bytes = entry.cpu->nbytes();
      entry.apart = true;
    }
    if (entry.apart) upload(buffer_of(tensor), entry, cpu);
  }

  /* A tensor that the kernel returned, as a tern tensor: a view of an argument's storage, or over the CPU kernel's memory, taken over without a copy. */
  at::Tensor to_tern(const at::Tensor &cpu, c10::DeviceIndex index) {
    if (is_sparse(cpu)) return sparse_like(cpu, kTern, [&](const at::Tensor &part) { return to_tern(part, index); });
    c10::StorageImpl *storage = cpu.storage().unsafeGetStorageImpl();
    for (Shared &entry : entries)
      if (entry.cpu.get() == storage) return reshaped_over(entry.tern, kTernKeys, cpu);
    size_t bytes = storage->nbytes();
    tern_device *device = device_at(index);
    tern_buffer *buffer = nullptr;
    if (bytes && tern_device_info(device)->host_addressable) {
      c10::raw::intrusive_ptr::incref(storage);
      tern_status status = tern_buffer_adopt(device, storage->mutable_data(), bytes, &release_cpu, storage, &buffer);
      if (status) release_cpu(storage);
      check(status);
    } else {
      check(tern_buffer_new(device, bytes, line_here(), &buffer));
    }
    Shared entry{storage_over(data_pointer(buffer, index), bytes), c10::intrusive_ptr<c10::StorageImpl>::reclaim_copy(storage), bytes, false};
    if (bytes && !tern_device_info(device)->host_addressable) upload(buffer, entry, cpu);
    entries.push_back(entry);
    return reshaped_over(entry.tern, kTernKeys, cpu);
  }

 private:
  struct Shared {
    c10::Storage tern;
    c10::intrusive_ptr<c10::StorageImpl> cpu;
    size_t bytes;
    bool apart; /* the CPU storage is a copy, not the device's memory */
  };
  Access access;
  std::vector<Shared> entries;

  static void release_cpu(void *storage) { c10::raw::intrusive_ptr::decref((c10::StorageImpl *)storage); }

  Shared &shared(const at::Tensor &tensor) {
    const c10::Storage &storage = tensor.unsafeGetTensorImpl()->unsafe_storage();
    for (Shared &entry : entries)
      if (entry.tern.unsafeGetStorageImpl() == storage.unsafeGetStorageImpl()) return entry;
    tern_buffer *buffer = buffer_of(tensor);
    size_t bytes = storage.nbytes();
    bool apart = access == COPIES || !tern_device_info(tern_buffer_device(buffer))->host_addressable;
    c10::DataPtr pointer;
    if (apart) {
      pointer = c10::GetCPUAllocator()->allocate(bytes);
      if (bytes) wait([&] { return tern_buffer_read(buffer, 0, bytes, pointer.mutable_get()); });
    } else {
      void *data = nullptr;
      wait([&] { return tern_buffer_map(buffer, &data); });
      pointer = c10::DataPtr(data, c10::kCPU);
    }
    entries.push_back({storage,
                       c10::make_intrusive<c10::StorageImpl>(c10::StorageImpl::use_byte_size_t(), (int64_t)bytes, std::move(pointer), c10::GetCPUAllocator(), true),
                       bytes, apart});
    return entries.back();
  }

  void upload(tern_buffer *buffer, const Shared &entry, const at::Tensor &like) {
    if (access == COPIES || !entry.bytes) return;
    int dtype = dtype_from_torch(like.scalar_type());
    int64_t count = (int64_t)(entry.bytes / (dtype < 0 ? 1 : like.itemsize()));
    bool whole = dtype >= 0 && like.is_contiguous() && !like.storage_offset() && like.numel() == count && like.dim() <= TERN_MAX_TENSOR_RANK;
    wait([&] {
      return whole ? tern_buffer_write(buffer, (tern_dtype)dtype, (int)like.dim(), like.sizes().data(), entry.cpu->data())
                   : tern_buffer_write(buffer, dtype < 0 ? TERN_U8 : (tern_dtype)dtype, 1, &count, entry.cpu->data());
    });
  }
};

/* ---- errors by replay ---- */
inline void check_one_device(const c10::OperatorHandle &op, c10::ArrayRef<c10::IValue> arguments) {
  std::optional<c10::Device> first;
  for (const c10::IValue &argument : arguments)
    each_tensor(argument, [&](const at::Tensor &tensor) {
      if (tensor.is_cpu() && tensor.dim() == 0) return;
      if (!first) first = tensor.device();
      TORCH_CHECK(*first == tensor.device(), "Expected all tensors to be on the same device, but found at least two devices, ", *first, " and ",
                  tensor.device(), "! (when checking arguments of ", op.schema().name(), ")");
    });
}

inline at::Tensor on_meta(const at::Tensor &tensor) {
  c10::Device meta(c10::kMeta);
  auto storage = c10::make_intrusive<c10::StorageImpl>(c10::StorageImpl::use_byte_size_t(), (int64_t)(tensor.has_storage() ? tensor.storage().nbytes() : 0),
                                                       c10::GetAllocator(c10::kMeta)->allocate(0), c10::GetAllocator(c10::kMeta), true);
  return reshaped_over(c10::Storage(std::move(storage)), c10::DispatchKeySet(c10::DispatchKey::Meta), tensor);
}

/* A CPU tensor of the same form whose storage holds zeros. */
inline at::Tensor as_zeros(const at::Tensor &tensor) {
  size_t bytes = tensor.has_storage() ? tensor.storage().nbytes() : 0;
  c10::DataPtr pointer = c10::GetCPUAllocator()->allocate(bytes);
  if (bytes) memset(pointer.mutable_get(), 0, bytes);
  auto storage = c10::make_intrusive<c10::StorageImpl>(c10::StorageImpl::use_byte_size_t(), (int64_t)bytes, std::move(pointer), c10::GetCPUAllocator(), true);
  return reshaped_over(c10::Storage(std::move(storage)), c10::DispatchKeySet(c10::DispatchKey::CPU), tensor);
}

template <class F>
void replay(const c10::OperatorHandle &op, c10::ArrayRef<c10::IValue> arguments, c10::DispatchKey key, c10::DeviceType device, F &&stand_in) {
  torch::jit::Stack stack;
  for (const c10::IValue &argument : arguments) {
    if (argument.isDevice()) stack.emplace_back(c10::Device(device));
    else if (argument.isGenerator()) stack.emplace_back();
    else stack.push_back(replace_tensors(argument, stand_in));
  }
  op.redispatchBoxed(c10::DispatchKeySet(key), &stack);
}

/* Replays a rejected call where it costs nothing, on Meta: returns if PyTorch finds nothing wrong. Meta's words differ from those that people know (its rules
 * are written in Python for some operators), so what it refuses is refused again by the CPU kernel, on zeros; if that takes it, the values decide. */
inline void replay_on_meta(const c10::OperatorHandle &op, c10::ArrayRef<c10::IValue> arguments) {
  check_one_device(op, arguments);
  if (!op.hasComputedKernelForDispatchKey(c10::DispatchKey::Meta)) return;
  try {
    replay(op, arguments, c10::DispatchKey::Meta, c10::kMeta, on_meta);
  } catch (const c10::NotImplementedError &) { /* Meta knows less than the CPU kernel, which is asked next */
  } catch (...) {
    constexpr size_t most = (size_t)256 << 20;
    size_t bytes = 0;
    for (const c10::IValue &argument : arguments)
      each_tensor(argument, [&](const at::Tensor &tensor) { bytes += tensor.has_storage() ? tensor.storage().nbytes() : 0; });
    if (bytes > most || !op.hasComputedKernelForDispatchKey(c10::DispatchKey::CPU)) throw;
    replay(op, arguments, c10::DispatchKey::CPU, c10::kCPU, as_zeros);
  }
}

/* ---- the fallback ---- */
inline bool draws(const c10::OperatorHandle &op) {
  for (const at::Tag tag : op.getTags())
    if (tag == at::Tag::nondeterministic_seeded) return true;
  return false;
}

/* The draws of a CPU kernel come from the tern stream: a CPU generator seeded by one draw. With draws_on_host, from the twin itself. */
inline at::Generator cpu_generator(c10::DeviceIndex index, const std::optional<at::Generator> &given) {
  Generator *generator = given ? &tern_generator(*given) : nullptr;
  if (draws_on_host.load(std::memory_order_relaxed)) return generator ? generator->twin() : at::detail::getDefaultCPUGenerator();
  int64_t seed, offset;
  tern_stream_draw(generator && !generator->is_default ? &generator->own : tern_device_stream(device_at(index)), 1, &seed, &offset);
  return at::detail::createCPUGenerator((uint64_t)tern_hash_mix((uint64_t)seed, (uint64_t)offset));
}

inline void announce_fallback(const c10::OperatorHandle &op, uint32_t line) {
  static std::mutex lock;
  static std::unordered_set<std::string> told;
  const c10::OperatorName &name = op.operator_name();
  std::string text = name.overload_name.empty() ? name.name : name.name + "." + name.overload_name;
  tern_stats_fallback(text.c_str(), line);
  const char *wish = tern_setting_text(TERN_SETTING_FALLBACK);
  std::string where = line_text(line);
  if (!strcmp(wish, "error"))
    require(false, TERN_FALLBACK, "tern has no native form of ", text, " for these arguments, and TERN_FALLBACK=error forbids PyTorch's CPU kernel: set TERN_FALLBACK=warn "
            "or allow to let it serve, or use other operators here", where.empty() ? "" : "\n  at " + where);
  if (tern_setting_has(TERN_SETTING_PRINT, "fallbacks")) tern_print("fallback %s at %s\n", text.c_str(), where.c_str());
  if (strcmp(wish, "warn")) return;
  {
    std::lock_guard<std::mutex> guard(lock);
    if (!told.insert(text).second) return;
  }
  TORCH_WARN(coded(TERN_FALLBACK, c10::str("tern serves ", text, " by PyTorch's CPU kernel", where.empty() ? "" : " (" + where + ")", ": right, but not fused; "
             "TERN_FALLBACK=allow hides this, =error forbids it, torch.tern.fallbacks() counts them")));
}

/* Operators that have no CPU kernel because the CPU goes another way: what the CPU would call instead. */
inline bool run_cpu_equivalent(const std::string &name, torch::jit::Stack &s) {
  auto symbols = [](const c10::IValue &list) { return list.toIntVector(); };
  if (name == "aten::convolution_overrideable") {
    at::Tensor y = at::convolution(s[0].toTensor(), s[1].toTensor(), s[2].toOptional<at::Tensor>(), symbols(s[3]), symbols(s[4]), symbols(s[5]), s[6].toBool(),
                                   symbols(s[7]), s[8].toInt());
    s.clear();
    s.emplace_back(std::move(y));
    return true;
  }
  if (name == "aten::convolution_backward_overrideable") {
    auto mask = s[9].toBoolList();
    auto grads = at::convolution_backward(s[0].toTensor(), s[1].toTensor(), s[2].toTensor(), c10::IntArrayRef{s[0].toTensor().size(1)}, symbols(s[3]), symbols(s[4]),
                                          symbols(s[5]), s[6].toBool(), symbols(s[7]), s[8].toInt(), {mask[0], mask[1], mask[2]});
    s.clear();
    for (at::Tensor &grad : std::array{std::get<0>(grads), std::get<1>(grads), std::get<2>(grads)}) s.emplace_back(std::move(grad));
    return true;
  }
  return false;
}

/* Runs the operator on the CPU tensors of `stack`, which becomes the results. */
inline void run_on_cpu(const c10::OperatorHandle &op, torch::jit::Stack &stack, c10::DeviceIndex index, c10::DispatchKey key = c10::DispatchKey::CPU) {
  if (run_cpu_equivalent(op.schema().name(), stack)) return;
  bool has_generator = draws_on_host.load(std::memory_order_relaxed);
  for (const c10::Argument &argument : op.schema().arguments()) has_generator |= argument.type()->str() == "Generator?" || argument.type()->str() == "Generator";
  if (has_generator || !draws(op)) return op.redispatchBoxed(c10::DispatchKeySet(key), &stack);
  /* It takes its numbers from the CPU's default generator, whose state is to stay as it is. */
  at::Generator normal = at::detail::getDefaultCPUGenerator(), seeded = cpu_generator(index, std::nullopt);
  at::Tensor before;
  auto exchange = [&](const at::Tensor &state) {
    std::lock_guard<std::mutex> guard(normal.mutex());
    at::Tensor old = normal.get_state();
    normal.set_state(state);
    return old;
  };
  before = exchange(seeded.get_state());
  try {
    op.redispatchBoxed(c10::DispatchKeySet(key), &stack);
  } catch (...) {
    exchange(before);
    throw;
  }
  exchange(before);
}

/* `rejected`: the row found the arguments wrong, so that the kernel is expected to raise; it is a fallback only if it does not. `key`: whose kernel serves. */
[[gnu::noinline]] inline void fall_back(const c10::OperatorHandle &op, torch::jit::Stack *stack, uint32_t line, bool rejected = false,
                                        c10::DispatchKey key = c10::DispatchKey::CPU) {
  const c10::FunctionSchema &schema = op.schema();
  size_t n = schema.arguments().size();
  std::vector<c10::IValue> arguments = torch::jit::pop(*stack, n);
  /* Indices may lie on the CPU whatever they index; everything else must be on one device. */
  if (schema.name().find("index") == std::string::npos && schema.name().find("copy_") == std::string::npos) check_one_device(op, arguments);

  c10::DeviceIndex index = -1;
  for (const c10::IValue &argument : arguments) {
    each_tensor(argument, [&](const at::Tensor &tensor) {
      if (index < 0 && is_tern(tensor)) index = tensor.device().index();
    });
    if (index < 0 && argument.isDevice() && argument.toDevice().type() == kTern) index = device_index(argument.toDevice().index());
  }
  index = device_index(index);
  announce_wait(schema.name().c_str(), line);
  bool random = draws(op);
  if (random && draws_on_host.load(std::memory_order_relaxed)) tern_stats_host_draw();
  else if (!rejected) announce_fallback(op, line);

  HostView view(HostView::SHARED);
  torch::jit::Stack cpu;
  for (size_t i = 0; i < n; i++) {
    const c10::IValue &argument = arguments[i];
    if (argument.isDevice()) cpu.emplace_back(c10::Device(c10::kCPU));
    else if (argument.isGenerator()) cpu.emplace_back(cpu_generator(index, argument.toGenerator()));
    else if (argument.isNone() && random && schema.arguments()[i].type()->str() == "Generator?") cpu.emplace_back(cpu_generator(index, std::nullopt));
    else cpu.push_back(replace_tensors(argument, [&](const at::Tensor &tensor) { return view.to_cpu(tensor); }));
  }
  std::vector<c10::IValue> given(cpu.begin(), cpu.end());
  run_on_cpu(op, cpu, index, key);
  if (rejected) announce_fallback(op, line);

  for (size_t i = 0; i < n; i++) {
    const c10::AliasInfo *alias = schema.arguments()[i].alias_info();
    if (!alias || !alias->isWrite()) continue;
    std::vector<at::Tensor> after;
    each_tensor(given[i], [&](const at::Tensor &tensor) { after.push_back(tensor); });
    size_t next = 0;
    each_tensor(arguments[i], [&](const at::Tensor &tensor) { view.written(tensor, after[next++]); });
  }
  for (size_t r = 0; r < cpu.size(); r++) {
    const c10::AliasInfo *alias = r < schema.returns().size() ? schema.returns()[r].alias_info() : nullptr;
    const c10::IValue *returned = nullptr;
    if (alias && alias->isWrite())
      for (size_t i = 0; i < n && !returned; i++) {
        const c10::AliasInfo *source = schema.arguments()[i].alias_info();
        if (source && *source == *alias) returned = &arguments[i];
      }
    stack->push_back(returned ? *returned : replace_tensors(cpu[r], [&](const at::Tensor &tensor) { return view.to_tern(tensor, index); }));
  }
}

/* torch.tern.rng("cpu"): the operator's CPU kernel, on PyTorch's CPU stream. Devices have one operator for dropout where the CPU draws a Bernoulli mask of the
 * input's dtype; the mask is drawn so, and applied on the device. */
[[gnu::noinline]] inline void draw_on_host(const c10::OperatorHandle &op, torch::jit::Stack *stack, uint32_t line) {
  if (op.schema().name() != "aten::native_dropout") return fall_back(op, stack, line);
  std::vector<c10::IValue> arguments = torch::jit::pop(*stack, 3);
  at::Tensor x = arguments[0].toTensor(), mask;
  double p = arguments[1].toDouble();
  if (arguments[2].isNone() || arguments[2].toBool()) {
    tern_stats_host_draw();
    mask = at::empty_like(x, x.options().device(c10::kCPU)).bernoulli_(1 - p).to(at::kBool).to(x.device());
  } else {
    mask = at::ones_like(x, x.options().dtype(at::kBool));
    p = 0;
  }
  stack->emplace_back(at::native_dropout_backward(x, mask, p == 1 ? 0 : 1 / (1 - p)));
  stack->emplace_back(std::move(mask));
}

inline void fall_back_always(const c10::OperatorHandle &op, torch::jit::Stack *stack) { fall_back(op, stack, line_here()); }

/* The backend's fallback, and the same by name for the functional forms of structured operators: PyTorch would turn those into empty_strided and the out= form. */
inline void register_fallback(torch::Library &any, torch::Library &aten, const std::unordered_set<std::string> &native) {
  any.fallback(torch::CppFunction::makeFromBoxedFunction<&fall_back_always>());
  auto &dispatcher = c10::Dispatcher::singleton();
  for (const c10::OperatorName &name : dispatcher.getAllOpNames()) {
    if (name.name.compare(0, 6, "aten::")) continue;
    std::string text = (name.overload_name.empty() ? name.name : name.name + "." + name.overload_name).substr(6);
    auto op = dispatcher.findOp(name);
    if (native.count(text) || !op || !op->hasSchema() || !op->hasKernelForDispatchKey(c10::DispatchKey::CPU)) continue;
    if (op->hasKernelForDispatchKey(c10::DispatchKey::CompositeExplicitAutogradNonFunctional) &&
        !op->hasKernelForDispatchKey(c10::DispatchKey::CompositeExplicitAutograd))
      aten.impl(text.c_str(), torch::CppFunction::makeFromBoxedFunction<&fall_back_always>());
  }
}

}  // namespace tern
#endif
