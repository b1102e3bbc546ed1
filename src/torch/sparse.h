/* sparse: sparse tensors of the device. Indices and values lie there; PyTorch's CPU kernels work on them (fallback.h), and what needs no kernel is answered here. */
#ifndef TERN_TORCH_SPARSE_H
#define TERN_TORCH_SPARSE_H
#include "fallback.h"

namespace tern {

inline void fall_back_coo(const c10::OperatorHandle &op, torch::jit::Stack *stack) { fall_back(op, stack, line_here(), false, c10::DispatchKey::SparseCPU); }
inline void fall_back_compressed(const c10::OperatorHandle &op, torch::jit::Stack *stack) { fall_back(op, stack, line_here(), false, c10::DispatchKey::SparseCsrCPU); }

inline at::Tensor coo_indices(const at::Tensor &self) { return coo_of(self)->indices(); }
inline at::Tensor coo_values(const at::Tensor &self) { return coo_of(self)->values(); }
inline int64_t coo_nnz(const at::Tensor &self) { return coo_of(self)->nnz(); }
inline int64_t coo_sparse_dim(const at::Tensor &self) { return coo_of(self)->sparse_dim(); }
inline int64_t coo_dense_dim(const at::Tensor &self) { return coo_of(self)->dense_dim(); }
inline bool coo_is_coalesced(const at::Tensor &self) { return coo_of(self)->coalesced(); }
inline at::Tensor &coo_set_coalesced(at::Tensor &self, bool coalesced) {
  coo_of(self)->set_coalesced(coalesced);
  return self;
}

/* What PyTorch has for every backend, and otherwise for sparse tensors of the CPU, is asked for by name; the backend's fallback would come after it. */
template <void (*serve)(const c10::OperatorHandle &, torch::jit::Stack *)>
torch::Library *register_layout(c10::DispatchKey key, c10::DispatchKey of_cpu, const std::unordered_set<std::string> &own) {
  auto *any = new torch::Library(torch::Library::IMPL, "_", key, __FILE__, __LINE__), *aten = new torch::Library(torch::Library::IMPL, "aten", key, __FILE__, __LINE__);
  any->fallback(torch::CppFunction::makeFromBoxedFunction<serve>());
  auto &dispatcher = c10::Dispatcher::singleton();
  for (const c10::OperatorName &name : dispatcher.getAllOpNames()) {
    auto op = dispatcher.findOp(name);
    if (name.name.compare(0, 6, "aten::") || !op || !op->hasSchema() || !op->hasKernelForDispatchKey(of_cpu)) continue;
    const std::string text = (name.overload_name.empty() ? name.name : name.name + "." + name.overload_name).substr(6);
    if (!own.count(text)) aten->impl(text.c_str(), torch::CppFunction::makeFromBoxedFunction<serve>());
  }
  return aten;
}

inline void register_sparse() {
  register_layout<&fall_back_compressed>(c10::DispatchKey::SparseCsrPrivateUse1, c10::DispatchKey::SparseCsrCPU, {});
  torch::Library *coo = register_layout<&fall_back_coo>(c10::DispatchKey::SparsePrivateUse1, c10::DispatchKey::SparseCPU,
                                                        {"_indices", "_values", "_nnz", "sparse_dim", "dense_dim", "is_coalesced", "_coalesced_"});
  coo->impl("_indices", TORCH_FN(coo_indices));
  coo->impl("_values", TORCH_FN(coo_values));
  coo->impl("_nnz", TORCH_FN(coo_nnz));
  coo->impl("sparse_dim", TORCH_FN(coo_sparse_dim));
  coo->impl("dense_dim", TORCH_FN(coo_dense_dim));
  coo->impl("is_coalesced", TORCH_FN(coo_is_coalesced));
  coo->impl("_coalesced_", TORCH_FN(coo_set_coalesced));
}

}  // namespace tern
#endif
