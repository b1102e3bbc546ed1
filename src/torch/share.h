/* share: memory that a tern tensor and a CPU tensor have in common, on devices whose memory the host can address. What torch.tern.cpu_view and torch.tern.from_dlpack are
 * made of; PyTorch's own DLPack functions leave no place for a device to say that its memory is the host's (docs/upstream.md). */
#ifndef TERN_TORCH_SHARE_H
#define TERN_TORCH_SHARE_H
#include "fallback.h"

namespace tern {

/* A CPU tensor over the tensor's own memory, which stays where it is for as long as a storage of the CPU's looks at it. */
inline at::Tensor cpu_view(const at::Tensor &self) {
  TORCH_CHECK(is_tern(self), "cpu_view looks at a tern tensor, and this is a tensor on ", self.device());
  size_t bytes = self.storage().nbytes();
  c10::DataPtr pointer(nullptr, c10::kCPU);
  if (bytes) {
    tern_buffer *buffer = buffer_of(self);
    tern_pin *pin = nullptr;
    wait([&] { return tern_buffer_pin(buffer, &pin); });
    pointer = c10::DataPtr(tern_pin_data(pin), pin, [](void *context) { tern_buffer_unpin((tern_pin *)context); }, c10::kCPU);
  }
  auto storage = c10::make_intrusive<c10::StorageImpl>(c10::StorageImpl::use_byte_size_t(), (int64_t)bytes, std::move(pointer), nullptr, false);
  return reshaped_over(c10::Storage(std::move(storage)), c10::DispatchKeySet(c10::DispatchKey::CPU), self);
}

/* The memory of another library may need the GIL to be given back, and is given up by whichever thread is last, perhaps under a lock: so later, by the main thread. */
inline void release_shared(void *storage) {
  tern_python_call_later([](void *later) { c10::raw::intrusive_ptr::decref((c10::StorageImpl *)later); }, storage);
}

/* A tern tensor over a CPU tensor's memory. */
inline at::Tensor from_cpu(const at::Tensor &self, c10::Device device) {
  TORCH_CHECK(self.is_cpu() && device.type() == kTern, "from_cpu makes a tern tensor of a CPU tensor, not one on ", device, " of one on ", self.device());
  c10::DeviceIndex index = device_index(device.index());
  c10::StorageImpl *storage = self.storage().unsafeGetStorageImpl();
  size_t bytes = storage->nbytes();
  tern_buffer *buffer = nullptr;
  if (bytes) {
    c10::raw::intrusive_ptr::incref(storage);
    tern_status status = tern_buffer_share(device_at(index), storage->mutable_data(), bytes, &release_shared, storage, &buffer);
    if (status) c10::raw::intrusive_ptr::decref(storage);
    check(status);
  } else {
    check(tern_buffer_new(device_at(index), 0, line_here(), &buffer));
  }
  return reshaped_over(storage_over(data_pointer(buffer, index), bytes), kTernKeys, self);
}

inline void register_share() {
  auto *own = new torch::Library(torch::Library::FRAGMENT, "tern", std::nullopt, __FILE__, __LINE__);
  own->def("cpu_view(Tensor self) -> Tensor", TORCH_FN(cpu_view));
  own->def("from_cpu(Tensor self, Device device) -> Tensor", TORCH_FN(from_cpu));
}

}  // namespace tern
#endif
