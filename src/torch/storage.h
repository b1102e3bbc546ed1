/* storage: operators that make tensors, look at a storage in another way, or change which storage a tensor has. None of them records anything.
 *
 * Every view operator must be here: a view that reached the fallback would be a copy. */
#ifndef TERN_TORCH_STORAGE_H
#define TERN_TORCH_STORAGE_H
#include <ATen/native/Resize.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/set_native.h>
#include <ATen/ops/unfold_native.h>
#include <ATen/ops/view_as_complex_native.h>
#include <ATen/ops/view_as_real_native.h>
#include <ATen/ops/view_native.h>
#include <c10/core/DefaultDtype.h>
#include <torch/library.h>
#include "bridge.h"

namespace tern {

inline c10::DeviceIndex factory_device(std::optional<c10::Layout> layout, std::optional<c10::Device> device, std::optional<bool> pin_memory) {
  require(layout.value_or(c10::kStrided) == c10::kStrided, TERN_INVALID_ARGUMENT, "tern tensors are strided; layout ", layout.value_or(c10::kStrided), " is not supported");
  TORCH_CHECK(!pin_memory.value_or(false), "Only dense CPU tensors can be pinned");
  return device_index(device ? device->index() : (c10::DeviceIndex)-1);
}

inline at::Tensor empty(c10::SymIntArrayRef symbolic_sizes, std::optional<c10::ScalarType> dtype, std::optional<c10::Layout> layout,
                        std::optional<c10::Device> device, std::optional<bool> pin_memory, std::optional<c10::MemoryFormat> format) {
  c10::IntArrayRef sizes = C10_AS_INTARRAYREF_SLOW(symbolic_sizes);
  c10::DeviceIndex index = factory_device(layout, device, pin_memory);
  at::detail::check_size_nonnegative(sizes);
  c10::ScalarType type = dtype ? *dtype : c10::get_default_dtype_as_scalartype();
  size_t bytes = at::detail::computeStorageNbytesContiguous(sizes, c10::elementSize(type));
  at::Tensor tensor =
      at::detail::make_tensor<c10::TensorImpl>(storage_over(Allocator::allocate_on(index, bytes), bytes), kTernKeys, c10::scalarTypeToTypeMeta(type));
  tensor.unsafeGetTensorImpl()->set_sizes_contiguous(sizes);
  if (format && *format != c10::MemoryFormat::Contiguous && *format != c10::MemoryFormat::Preserve)
    tensor.unsafeGetTensorImpl()->empty_tensor_restride(*format);
  return tensor;
}

inline at::Tensor empty_strided(c10::SymIntArrayRef sizes, c10::SymIntArrayRef strides, std::optional<c10::ScalarType> dtype,
                                std::optional<c10::Layout> layout, std::optional<c10::Device> device, std::optional<bool> pin_memory) {
  c10::IntArrayRef plain_sizes = C10_AS_INTARRAYREF_SLOW(sizes);
  at::detail::check_size_nonnegative(plain_sizes);
  return tensor_new(factory_device(layout, device, pin_memory), dtype ? *dtype : c10::get_default_dtype_as_scalartype(), plain_sizes,
                    C10_AS_INTARRAYREF_SLOW(strides));
}

/* Zeros that are known to be zeros (a key says so) and have no contents: what derivatives that vanish are made of. */
inline at::Tensor efficient_zero_tensor(c10::SymIntArrayRef sizes, std::optional<c10::ScalarType> dtype, std::optional<c10::Layout> layout,
                                        std::optional<c10::Device> device, std::optional<bool> pin_memory) {
  at::Tensor like = empty(sizes, dtype, layout, device, pin_memory, std::nullopt);
  at::Tensor zeros = at::detail::make_tensor<c10::TensorImpl>(c10::Storage(like.storage()), kTernKeys.add(c10::DispatchKey::ZeroTensor), like.dtype());
  zeros.unsafeGetTensorImpl()->set_sizes_contiguous(like.sizes());
  return zeros;
}

/* Makes the storage of a tensor hold what its sizes and strides reach. */
inline void storage_grow(c10::TensorImpl *tensor) {
  if (!tensor->numel()) return;
  size_t bytes = at::detail::computeStorageNbytes(tensor->sizes(), tensor->strides(), tensor->itemsize(), (size_t)tensor->storage_offset());
  c10::StorageImpl *storage = tensor->unsafe_storage().unsafeGetStorageImpl();
  if (bytes <= storage->nbytes()) return;
  TORCH_CHECK(storage->resizable(), "Trying to resize storage that is not resizable");
  storage_resize(storage, bytes);
}

inline const at::Tensor &resize_(const at::Tensor &self, c10::SymIntArrayRef sizes, std::optional<c10::MemoryFormat> format) {
  c10::TensorImpl *impl = self.unsafeGetTensorImpl();
  c10::IntArrayRef plain_sizes = C10_AS_INTARRAYREF_SLOW(sizes);
  at::detail::check_size_nonnegative(plain_sizes);
  if (impl->sizes() != plain_sizes) impl->set_sizes_contiguous(plain_sizes);
  if (format) {
    TORCH_CHECK(*format != c10::MemoryFormat::Preserve, "Unsupported memory format", *format);
    impl->empty_tensor_restride(*format);
  }
  storage_grow(impl);
  return self;
}

inline at::Tensor &set_storage_offset_(at::Tensor &self, at::Storage source, c10::SymInt offset, c10::SymIntArrayRef sizes, c10::SymIntArrayRef strides) {
  c10::IntArrayRef plain_sizes = C10_AS_INTARRAYREF_SLOW(sizes), plain_strides = C10_AS_INTARRAYREF_SLOW(strides);
  int64_t plain_offset = offset.guard_int(__FILE__, __LINE__);
  at::detail::check_size_nonnegative(plain_sizes);
  bool given = !plain_strides.empty() || plain_sizes.empty();
  TORCH_CHECK(!given || plain_sizes.size() == plain_strides.size(), "unequal size length (", plain_sizes.size(), ") and stride length (",
              plain_strides.size(), ")");
  TORCH_CHECK(plain_offset >= 0, "Tensor: invalid storage offset ", plain_offset);
  TORCH_CHECK(self.storage().device() == source.device(), "Attempted to set the storage of a tensor on device \"", self.storage().device(),
              "\" to a storage on different device \"", source.device(), "\".  This is no longer allowed; the devices must match.");
  c10::TensorImpl *impl = self.unsafeGetTensorImpl();
  impl->set_storage_keep_dtype(std::move(source));
  if (given) {
    impl->set_sizes_and_strides(plain_sizes, plain_strides, plain_offset);
  } else {
    impl->set_storage_offset(plain_offset);
    impl->set_sizes_contiguous(plain_sizes);
  }
  storage_grow(impl);
  return self;
}

inline at::Tensor &set_storage_(at::Tensor &self, at::Storage source) {
  int64_t count = (int64_t)(source.nbytes() / self.dtype().itemsize());
  return set_storage_offset_(self, std::move(source), 0, c10::SymIntArrayRef(c10::SymInt(count)), {});
}

inline at::Tensor &set_nothing_(at::Tensor &self) {
  c10::DeviceIndex index = self.device().index();
  return set_storage_offset_(self, storage_over(Allocator::allocate_on(index, 0), 0), 0, c10::SymIntArrayRef(c10::SymInt(0)), {});
}

inline bool is_set_to(const at::Tensor &self, const at::Tensor &other) {
  return self.storage().unsafeGetStorageImpl() == other.storage().unsafeGetStorageImpl() && self.storage_offset() == other.storage_offset() &&
         self.sizes() == other.sizes() && self.strides() == other.strides();
}

/* Whether `to.data = from` may be: PyTorch's rule for its own devices, so that module.to("tern") keeps each parameter's identity: tied weights stay tied, and an
 * optimizer made before goes on with the same parameters. */
inline bool has_compatible_shallow_copy_type(const at::Tensor &to, const at::Tensor &from) {
  auto is_dense = [](const at::Tensor &tensor) {
    return tensor.layout() == c10::kStrided && tensor.key_set().has_any(c10::DispatchKeySet(c10::DispatchKey::Dense)) &&
           (is_tern(tensor) || tensor.unsafeGetTensorImpl()->has_compatible_shallow_copy_type(c10::DispatchKeySet(c10::DispatchKey::CPU)));
  };
  return is_dense(to) && is_dense(from);
}

inline void record_stream(at::Tensor &, c10::Stream) {} /* one queue per device keeps the order by itself */

inline void register_storage(torch::Library &library) {
  library.impl("empty.memory_format", TORCH_FN(empty));
  library.impl("empty_strided", TORCH_FN(empty_strided));
  library.impl("_efficientzerotensor", TORCH_FN(efficient_zero_tensor));
  library.impl("as_strided", TORCH_FN(at::native::as_strided_tensorimpl));
  library.impl("view", TORCH_FN(at::native::view));
  library.impl("_reshape_alias", TORCH_FN(at::native::_reshape_alias));
  library.impl("unfold", TORCH_FN(at::native::unfold));
  library.impl("view_as_real", TORCH_FN(at::native::view_as_real));
  library.impl("view_as_complex", TORCH_FN(at::native::view_as_complex));
  library.impl("resize_", TORCH_FN(resize_));
  library.impl("set_.source_Storage", TORCH_FN(set_storage_));
  library.impl("set_.source_Storage_storage_offset", TORCH_FN(set_storage_offset_));
  library.impl("set_.source_Tensor", TORCH_FN(at::native::set_tensor_));
  library.impl("set_", TORCH_FN(set_nothing_));
  library.impl("is_set_to", TORCH_FN(is_set_to));
  library.impl("_has_compatible_shallow_copy_type", TORCH_FN(has_compatible_shallow_copy_type));
  library.impl("record_stream", TORCH_FN(record_stream));
}

}  // namespace tern
#endif
