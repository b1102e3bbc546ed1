/* sparse_form: what a sparse tensor is made of, COO or compressed (CSR, CSC, BSR, BSC): dense tensors of indices and values, and how another is made of such. */
#ifndef TERN_TORCH_SPARSE_FORM_H
#define TERN_TORCH_SPARSE_FORM_H
#include <ATen/SparseCsrTensorImpl.h>
#include <ATen/SparseTensorImpl.h>
#include "device.h"

namespace tern {

inline bool is_coo(const at::Tensor &tensor) { return tensor.layout() == at::kSparse; }
inline bool is_compressed(const at::Tensor &tensor) {
  at::Layout layout = tensor.layout();
  return layout == at::kSparseCsr || layout == at::kSparseCsc || layout == at::kSparseBsr || layout == at::kSparseBsc;
}
inline bool is_sparse(const at::Tensor &tensor) { return is_coo(tensor) || is_compressed(tensor); }

inline at::SparseTensorImpl *coo_of(const at::Tensor &tensor) { return static_cast<at::SparseTensorImpl *>(tensor.unsafeGetTensorImpl()); }
inline at::SparseCsrTensorImpl *compressed_of(const at::Tensor &tensor) { return static_cast<at::SparseCsrTensorImpl *>(tensor.unsafeGetTensorImpl()); }

/* `to` gets the form of `from`, its parts given by part(part of `from`). */
template <class F>
void sparse_assign(const at::Tensor &to, const at::Tensor &from, F &&part) {
  if (is_compressed(from)) {
    at::SparseCsrTensorImpl *impl = compressed_of(from);
    compressed_of(to)->set_member_tensors(part(impl->compressed_indices()), part(impl->plain_indices()), part(impl->values()), from.sizes());
    return;
  }
  at::SparseTensorImpl *impl = coo_of(from);
  coo_of(to)->raw_resize_(impl->sparse_dim(), impl->dense_dim(), from.sizes());
  coo_of(to)->set_indices_and_values_unsafe(part(impl->indices()), part(impl->values()));
  coo_of(to)->set_coalesced(impl->coalesced());
}

/* A sparse tensor on the CPU or on tern, made so. */
template <class F>
at::Tensor sparse_like(const at::Tensor &from, c10::DeviceType type, F &&part) {
  const bool on_cpu = type == c10::DeviceType::CPU;
  at::Tensor made;
  if (is_compressed(from)) {
    const c10::DispatchKeySet keys(on_cpu ? c10::DispatchKey::SparseCsrCPU : c10::DispatchKey::SparseCsrPrivateUse1);
    c10::Device device = on_cpu ? c10::Device(c10::kCPU) : part(compressed_of(from)->values()).device();
    made = at::detail::make_tensor<at::SparseCsrTensorImpl>(keys, device, from.layout(), from.dtype());
  } else {
    made = at::detail::make_tensor<at::SparseTensorImpl>(c10::DispatchKeySet(on_cpu ? c10::DispatchKey::SparseCPU : c10::DispatchKey::SparsePrivateUse1), from.dtype());
  }
  sparse_assign(made, from, part);
  return made;
}

}  // namespace tern
#endif
