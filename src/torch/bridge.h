/* bridge: what every part of the shim uses: errors both ways, the open devices, and tensors over tern's buffers.
 *
 * Included by shim.cpp only, like every C++ header of this folder. Invariant: the storage of each tern tensor has a tern_buffer as the context of its data
 * pointer (or, for the other way round, a buffer is owned by exactly one StorageImpl, whose deleter releases it). C++ exceptions never cross C frames: what
 * tern's C code calls back into catches everything and returns a status; a status becomes a C++ exception only here, on the way to PyTorch. */
#ifndef TERN_TORCH_BRIDGE_H
#define TERN_TORCH_BRIDGE_H
#include <ATen/EmptyTensor.h>
#include <ATen/core/Tensor.h>
#include <ATen/record_function.h>
#include <ATen/SequenceNumber.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/GeneratorImpl.h>
#include <c10/core/ScalarTypeToTypeMeta.h>
#include <c10/core/StorageImpl.h>
#include <torch/csrc/autograd/node.h>
#include <atomic>
#include <mutex>
#include <string>

/* The core's headers are C: one has a member of that name. */
#define class class_
extern "C" {
#include "../aten/aten.h"
#include "../aten/helpers.h"
#include "../diag/diag.h"
}
#undef class
#include "pyframe.h"
#include "shim.h"

namespace tern {

constexpr c10::DeviceType kTern = c10::DeviceType::PrivateUse1;
constexpr c10::DispatchKeySet kTernKeys{c10::DispatchKey::PrivateUse1};
constexpr int kMaxDevices = 64;

/* ---- where in the user's program ---- */
/* In backward an operator belongs to the line of its forward; there is often no Python frame at all. */
inline uint32_t line_here() {
  if (auto node = torch::autograd::get_current_node()) [[unlikely]] {
    if (uint32_t line = tern_forward_line_get(node->thread_id(), node->sequence_nr())) return line;
  }
  return tern_python_line();
}

inline std::string line_text(uint32_t line) {
  char text[1024];
  return tern_line_describe(line, text, sizeof text);
}

/* ---- errors ---- */
/* "[TERN-OOM] message": every error and warning of tern's own begins with its code. What repeats PyTorch's words for a device's kernels (TORCH_CHECK) has none, as on
 * every other device. */
inline std::string coded(tern_code code, const std::string &message) { return c10::str("[", tern_code_label(code), "] ", message); }

[[noreturn, gnu::noinline]] inline void throw_error(tern_code code, const std::string &message) {
  switch (tern_code_exception(code)) {
    case TERN_RAISES_IndexError: C10_THROW_ERROR(IndexError, message);
    case TERN_RAISES_OutOfMemoryError: C10_THROW_ERROR(OutOfMemoryError, message);
    case TERN_RAISES_NotImplementedError: C10_THROW_ERROR(NotImplementedError, message);
    case TERN_RAISES_ValueError: C10_THROW_ERROR(ValueError, message);
    default: C10_THROW_ERROR(Error, message);
  }
}

/* Raises where the condition does not hold; the rest is the message, in parts. */
template <class... Parts>
void require(bool condition, tern_code code, const Parts &...parts) {
  if (!condition) [[unlikely]] throw_error(code, coded(code, c10::str(parts...)));
}

[[noreturn, gnu::noinline]] inline void throw_status(tern_status status, uint32_t line) {
  tern_code code = tern_error_code(status);
  std::string message = coded(code, tern_error_message(status)), where = line_text(line);
  tern_error_free(status);
  /* An error of deferred work names its own line already, which is not the line that waited for it. */
  if (!where.empty() && message.find("recorded at ") == std::string::npos) message.insert(std::min(message.find('\n'), message.size()), "\n  at " + where);
  /* PyTorch's kernels raise an IndexError for x[index] and its kin, but a plain RuntimeError here. */
  if (code == TERN_INDEX_OUT_OF_RANGE && (message.find(" aten::gather") != std::string::npos || message.find(" aten::scatter") != std::string::npos))
    C10_THROW_ERROR(Error, message);
  throw_error(code, message);
}

inline void check(tern_status status, uint32_t line = 0) {
  if (status) [[unlikely]] throw_status(status, line ? line : line_here());
}

/* Runs a function that waits for a device, without the GIL. */
template <class F>
void wait(F &&function) {
  void *gil = tern_python_gil_release();
  tern_status status = function();
  tern_python_gil_restore(gil);
  check(status);
}

/* torch.tern.set_sync_debug_mode: tells where a program waits for values, and so where tern's programs end. 0 says nothing, 1 warns, 2 raises. */
inline std::atomic<int> sync_debug_mode{0};
inline void announce_wait(const char *what, uint32_t line) {
  int mode = sync_debug_mode.load(std::memory_order_relaxed);
  if (!mode) [[likely]] return;
  std::string where = line_text(line), text = c10::str("called a synchronizing tern operation: ", what, where.empty() ? "" : "\n  at " + where);
  require(mode != 2, TERN_WAITS, text);
  TORCH_WARN(coded(TERN_WAITS, text));
}

/* Runs C++ on behalf of C code: an exception is kept for after the C frames, which see a status. */
template <class F>
tern_status guarded(std::exception_ptr &kept, F &&function) noexcept {
  try {
    return function();
  } catch (...) {
    kept = std::current_exception();
    return tern_error_new(TERN_INTERNAL, "an exception of PyTorch, kept by the shim");
  }
}

/* ---- element types ---- */
/* -1 for those that tern has no name for (quantised, complex half ...): they live on the device, and the CPU kernels serve them. */
inline int dtype_from_torch(c10::ScalarType type) {
  static const auto table = [] {
    std::array<int8_t, 64> t;
    for (int i = 0; i < 64; i++) t[(size_t)i] = (int8_t)tern_dtype_from_torch(i);
    return t;
  }();
  return (size_t)type < table.size() ? table[(size_t)type] : -1;
}
inline c10::ScalarType dtype_to_torch(tern_dtype dtype) { return (c10::ScalarType)tern_dtype_to_torch(dtype); }

/* ---- devices ---- */
inline thread_local c10::DeviceIndex current_device_index = 0;

inline int device_count() noexcept {
  static std::atomic<int> known{0};
  int n = known.load(std::memory_order_relaxed);
  if (n > 0) return n;
  tern_status status = tern_device_count(&n);
  if (status) return tern_error_free(status), 0;
  n = std::min(n, kMaxDevices);
  known.store(n, std::memory_order_relaxed);
  return n;
}

inline c10::DeviceIndex device_index(c10::DeviceIndex index) {
  if (index < 0) return current_device_index;
  if (index >= device_count()) [[unlikely]] {
    int n = 0;
    check(tern_device_count(&n)); /* says why there is none, if that is the reason */
    require(false, TERN_NO_DEVICE, "tern:", (int)index, " does not exist: there ", n == 1 ? "is 1 tern device" : c10::str("are ", n, " tern devices"));
  }
  return index;
}
inline c10::Device tern_device_of(c10::DeviceIndex index) { return {kTern, index}; }

/* The seed that a device gets when it is opened: the one set before, or PyTorch's own first seed. */
struct PendingSeed { std::atomic<bool> set{true}; uint64_t seed = c10::default_rng_seed_val, offset = 0; };
inline PendingSeed pending_seeds[kMaxDevices];
inline std::atomic<tern_device *> open_devices[kMaxDevices];

[[gnu::noinline]] inline tern_device *device_open(c10::DeviceIndex index) {
  static std::mutex lock;
  index = device_index(index);
  tern_device *device = nullptr;
  wait([&] { return tern_device_get(index, &device); });
  std::lock_guard<std::mutex> guard(lock);
  PendingSeed &pending = pending_seeds[index];
  if (pending.set.exchange(false)) tern_stream_set(tern_device_stream(device), (int64_t)pending.seed, (int64_t)pending.offset);
  open_devices[index].store(device, std::memory_order_release);
  return device;
}

/* `index` must be valid. */
inline tern_device *device_at(c10::DeviceIndex index) {
  tern_device *device = open_devices[index].load(std::memory_order_acquire);
  return device ? device : device_open(index);
}

/* ---- buffers and storages ---- */
inline std::atomic<bool> exiting{false};

/* The deleter of every tern storage. Once the interpreter goes, what is left is leaked on purpose: the device may be gone before its tensors. */
inline void buffer_deleter(void *context) {
  if (!exiting.load(std::memory_order_relaxed)) tern_buffer_release((tern_buffer *)context);
}

inline c10::DataPtr data_pointer(tern_buffer *buffer, c10::DeviceIndex index) {
  return {(void *)tern_buffer_address(buffer), buffer, &buffer_deleter, tern_device_of(index)};
}

/* A storage that PyTorch made over an address alone (from_blob: pickle, storage files, DLPack). The address of one of our storages leads to its buffer, which the
 * caller keeps alive; nothing leads to one without contents. */
[[gnu::noinline]] inline tern_buffer *buffer_by_address(c10::StorageImpl *storage) {
  const c10::DataPtr &pointer = storage->_mutable_data_ptr_no_checks();
  if (!storage->nbytes()) {
    tern_buffer *empty = nullptr;
    c10::DeviceIndex index = device_index(pointer.device().index());
    check(tern_buffer_new(device_at(index), 0, 0, &empty));
    storage->set_data_ptr_noswap(data_pointer(empty, index));
    return empty;
  }
  tern_buffer *buffer = tern_buffer_at((uintptr_t)pointer.get());
  require(buffer && storage->nbytes() <= tern_buffer_bytes(buffer), TERN_STORAGE, "this storage names the device tern, but is not one that tern made, or one that was never written, or it begins inside "
          "another: by its address a tern storage is only found from its start. Make tensors with device=\"tern\", fill them, and clone() a view before its address is handed on");
  return buffer;
}

inline tern_buffer *buffer_of(const c10::StorageImpl *storage) {
  const c10::DataPtr &pointer = const_cast<c10::StorageImpl *>(storage)->_mutable_data_ptr_no_checks();
  if (pointer.get_deleter() != &buffer_deleter) [[unlikely]] return buffer_by_address(const_cast<c10::StorageImpl *>(storage));
  return (tern_buffer *)pointer.get_context();
}
inline tern_buffer *buffer_of(const at::TensorBase &tensor) { return buffer_of(tensor.unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl()); }

inline bool is_tern(const at::TensorBase &tensor) { return tensor.unsafeGetTensorImpl()->device_type() == kTern; }

struct Allocator final : c10::DeviceAllocator {
  c10::DataPtr allocate(size_t bytes) override { return allocate_on(current_device_index, bytes); }
  static c10::DataPtr allocate_on(c10::DeviceIndex index, size_t bytes) {
    tern_buffer *buffer = nullptr;
    uint32_t line = line_here();
    check(tern_buffer_new(device_at(index), bytes, line, &buffer), line);
    return data_pointer(buffer, index);
  }
  /* PyTorch asks for this where a pointer is its own context; ours never is. */
  c10::DeleterFnPtr raw_deleter() const override { return nullptr; }
  void copy_data(void *, const void *, size_t) const override {
    require(false, TERN_STORAGE, "a tern storage's address stands for it and cannot be read through: copy tensors with copy_() or clone()");
  }

  /* Work is deferred: figures mean something once what is recorded has run. */
  static tern_memory_stats settled_stats(tern_device *device) {
    tern_backend_stats now{};
    wait([&] { return tern_device_settle(device), tern_device_stats(device, &now), tern_status(nullptr); });
    return now.memory;
  }
  bool initialized() override { return true; }
  void emptyCache(c10::MempoolId_t) override {
    for (auto &device : open_devices)
      if (tern_device *open = device.load()) wait([&] { return tern_device_settle(open), tern_device_empty_cache(open), tern_status(nullptr); });
  }
  void recordStream(const c10::DataPtr &, c10::Stream) override {} /* one queue per device: order is kept by itself */
  c10::CachingDeviceAllocator::DeviceStats getDeviceStats(c10::DeviceIndex index) override {
    tern_memory_stats now = settled_stats(device_at(device_index(index)));
    c10::CachingDeviceAllocator::DeviceStats stats;
    /* There is one pool; it counts as the large one. */
    auto set = [](c10::CachingAllocator::StatArray &array, const tern_stat &figure) {
      for (auto pool : {c10::CachingAllocator::StatType::AGGREGATE, c10::CachingAllocator::StatType::LARGE_POOL}) {
        c10::CachingAllocator::Stat &stat = array[(size_t)pool];
        stat.current = figure.current, stat.peak = figure.peak, stat.allocated = figure.total, stat.freed = figure.total - figure.current;
      }
    };
    for (auto *array : {&stats.allocation, &stats.active}) set(*array, now.blocks);
    for (auto *array : {&stats.allocated_bytes, &stats.active_bytes, &stats.requested_bytes}) set(*array, now.bytes);
    set(stats.segment, now.segments);
    set(stats.reserved_bytes, now.reserved);
    stats.num_alloc_retries = now.retries, stats.num_ooms = now.refusals;
    stats.num_device_alloc = now.segments.total, stats.num_device_free = now.segments.total - now.segments.current;
    return stats;
  }
  void resetAccumulatedStats(c10::DeviceIndex index) override { tern_device_reset_totals(device_at(device_index(index))); }
  void resetPeakStats(c10::DeviceIndex index) override {
    tern_device *device = device_at(device_index(index));
    settled_stats(device); /* what was recorded before belongs to the time before */
    tern_device_reset_peak(device);
  }
  std::pair<size_t, size_t> getMemoryInfo(c10::DeviceIndex index) override {
    tern_device *device = device_at(device_index(index));
    auto limit = (size_t)tern_device_info(device)->memory_limit, used = (size_t)settled_stats(device).bytes.current;
    return {limit > used ? limit - used : 0, limit};
  }
};
inline Allocator allocator;

inline c10::Storage storage_over(c10::DataPtr pointer, size_t bytes) {
  return c10::make_intrusive<c10::StorageImpl>(c10::StorageImpl::use_byte_size_t(), (int64_t)bytes, std::move(pointer), &allocator, /*resizable=*/true);
}

inline at::Tensor tensor_over(c10::Storage storage, caffe2::TypeMeta type, c10::IntArrayRef sizes, c10::IntArrayRef strides, int64_t offset = 0) {
  at::Tensor tensor = at::detail::make_tensor<c10::TensorImpl>(std::move(storage), kTernKeys, type);
  tensor.unsafeGetTensorImpl()->set_sizes_and_strides(sizes, strides, offset);
  return tensor;
}

/* A new, uninitialised tensor. `index` must be valid. */
inline at::Tensor tensor_new(c10::DeviceIndex index, c10::ScalarType type, c10::IntArrayRef sizes, c10::IntArrayRef strides) {
  size_t bytes = at::detail::computeStorageNbytes(sizes, strides, c10::elementSize(type));
  return tensor_over(storage_over(Allocator::allocate_on(index, bytes), bytes), c10::scalarTypeToTypeMeta(type), sizes, strides);
}

/* Changes the size of a storage; its address may change with it. */
inline void storage_resize(c10::StorageImpl *storage, size_t bytes) {
  tern_buffer *buffer = buffer_of(storage);
  wait([&] { return tern_buffer_resize(buffer, bytes); });
  c10::DataPtr &pointer = storage->_mutable_data_ptr_no_checks();
  c10::DeviceIndex index = pointer.device().index();
  pointer.release_context(); /* the same buffer goes on, so it is not to be released */
  storage->set_data_ptr_noswap(data_pointer(buffer, index));
  storage->set_nbytes(bytes);
}

/* ---- tensors as tern's C code sees them ---- */
/* False where tern has no native form of the tensor (too many dimensions, an element type without a name): the CPU kernels serve it. */
inline bool describe(const at::Tensor &tensor, tern_tensor *out) {
  c10::TensorImpl *impl = tensor.unsafeGetTensorImpl();
  out->handle = impl;
  c10::IntArrayRef sizes = impl->sizes(), strides = impl->strides();
  out->sizes = sizes.data(), out->strides = strides.data();
  out->rank = (int32_t)sizes.size();
  out->offset = impl->storage_offset(), out->count = impl->numel();
  int dtype = dtype_from_torch(c10::typeMetaToScalarType(impl->dtype()));
  out->dtype = (uint8_t)dtype;
  out->is_wrapped_number = impl->is_wrapped_number();
  c10::Device device = impl->device();
  if (device.type() == kTern) {
    out->buffer = buffer_of(impl->unsafe_storage().unsafeGetStorageImpl());
    out->device = device.index();
    out->host = nullptr;
  } else {
    out->buffer = nullptr;
    out->device = device.is_cpu() ? TERN_ON_CPU : TERN_ON_OTHER;
    out->host = device.is_cpu() && impl->has_storage() && impl->numel() ? impl->data() : nullptr;
  }
  return dtype >= 0 && out->rank <= TERN_MAX_TENSOR_RANK && impl->layout() == c10::kStrided;
}

inline tern_geometry geometry_of(const tern_tensor &tensor) {
  tern_geometry g;
  g.rank = tensor.rank, g.offset = tensor.offset;
  for (int d = 0; d < g.rank; d++) g.sizes[d] = tensor.sizes[d], g.strides[d] = tensor.strides[d];
  return g;
}

}  // namespace tern
#endif
