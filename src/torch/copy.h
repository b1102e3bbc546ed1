/* copy: contents across the border and from tensor to tensor.
 *
 * From the host: a snapshot at the call, whatever non_blocking says. To the host: waits for what the contents depend on. On one device a copy is a recorded node
 * of the row "copy", which converts and broadcasts. */
#ifndef TERN_TORCH_COPY_H
#define TERN_TORCH_COPY_H
#include <ATen/ExpandUtils.h>
#include <ATen/MemoryOverlap.h>
#include <ATen/ops/_local_scalar_dense.h>
#include <ATen/ops/all.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/eq.h>
#include <ATen/ops/view_as_real.h>
#include "fallback.h"

namespace tern {

/* Records target := source (converted). Sizes are equal. */
inline tern_status record_copy(const tern_operand &source, tern_buffer *target, const tern_tensor &shape, uint32_t line) {
  static const tern_operation *copy = [] {
    for (int i = 0; i < tern_aten_row_count(); i++)
      if (const tern_aten_row *row = tern_aten_row_at(i); row->internal && !strcmp(row->internal, "copy")) return tern_aten_operation(row);
    return (const tern_operation *)nullptr;
  }();
  if (!copy) return tern_error_new(TERN_INTERNAL, "the operator table has no row \"copy\"");
  tern_output output;
  output.buffer = target;
  output.dtype = (tern_dtype)shape.dtype, output.computed = source.dtype;
  output.view = geometry_of(shape);
  tern_node node{};
  node.operation = copy, node.device = tern_buffer_device(target), node.line = line;
  node.n_operands = 1, node.operands = &source;
  node.n_outputs = 1, node.outputs = &output;
  return tern_record(&node);
}

/* A temporary buffer for the length of a call. */
class Temporary {
 public:
  tern_buffer *buffer = nullptr;
  Temporary(tern_device *device, size_t bytes, uint32_t line) { check(tern_buffer_new(device, bytes, line, &buffer), line); }
  ~Temporary() { tern_buffer_release(buffer); }
  Temporary(const Temporary &) = delete;
};

/* CPU tensors over the tensors' own storages: what has no native form (more dimensions, unnamed element types) is copied by PyTorch. */
inline void copy_on_host(const at::Tensor &to, const at::Tensor &from) {
  HostView view(HostView::SHARED);
  at::Tensor host_to = view.to_cpu(to);
  host_to.copy_(view.to_cpu(from));
  view.written(to, host_to);
}

inline void copy_from_host(const at::Tensor &to, const tern_tensor &target, const at::Tensor &from, uint32_t line) {
  /* As a dense array of the target's shape and dtype; where nothing changes this copies nothing. */
  at::Tensor dense = from.to(to.scalar_type()).expand(to.sizes()).contiguous();
  const void *host = dense.const_data_ptr();
  tern_dtype dtype = (tern_dtype)target.dtype;
  if (to.is_contiguous() && !target.offset && to.nbytes() == to.storage().nbytes())
    return check(tern_buffer_write(target.buffer, dtype, target.rank, target.sizes, host), line);
  Temporary temporary(tern_buffer_device(target.buffer), to.nbytes(), line);
  check(tern_buffer_write(temporary.buffer, dtype, target.rank, target.sizes, host), line);
  tern_operand source{temporary.buffer, dtype, {}};
  tern_geometry_set_contiguous(&source.view, target.rank, target.sizes, 0);
  check(record_copy(source, target.buffer, target, line), line);
}

inline void copy_to_host(const at::Tensor &to, const at::Tensor &from, const tern_tensor &source, uint32_t line) {
  if (to.sizes() != from.sizes() || to.scalar_type() != from.scalar_type() || !to.is_contiguous()) {
    at::Tensor staged = at::empty(from.sizes(), from.options().device(c10::kCPU));
    copy_to_host(staged, from, source, line);
    to.copy_(staged);
    return;
  }
  announce_wait("a copy to the CPU", line);
  size_t bytes = from.nbytes(), size = from.itemsize();
  void *host = to.mutable_data_ptr();
  if (from.is_contiguous()) return wait([&] { return tern_buffer_read(source.buffer, (size_t)source.offset * size, bytes, host); });
  /* The device gathers a strided view: it may be a small part of a large storage. */
  Temporary temporary(tern_buffer_device(source.buffer), bytes, line);
  tern_tensor shape = source;
  int64_t strides[TERN_MAX_TENSOR_RANK];
  tern_geometry dense;
  tern_geometry_set_contiguous(&dense, source.rank, source.sizes, 0);
  std::copy_n(dense.strides, source.rank, strides);
  shape.strides = strides, shape.offset = 0;
  check(record_copy({source.buffer, (tern_dtype)source.dtype, geometry_of(source)}, temporary.buffer, shape, line), line);
  wait([&] { return tern_buffer_read(temporary.buffer, 0, bytes, host); });
}

inline void copy_on_device(const tern_tensor &target, const tern_tensor &source, uint32_t line) {
  tern_operand operand{source.buffer, (tern_dtype)source.dtype, {}};
  tern_geometry &view = operand.view;
  view.rank = target.rank, view.offset = source.offset;
  int missing = target.rank - source.rank;
  for (int d = 0; d < target.rank; d++) {
    bool stretched = d < missing || source.sizes[d - missing] != target.sizes[d];
    view.sizes[d] = target.sizes[d];
    view.strides[d] = stretched ? 0 : source.strides[d - missing];
  }
  check(record_copy(operand, target.buffer, target, line), line);
}

/* The imaginary parts of a tensor without lazy conjugation, negated. */
inline at::Tensor &conjugate_(at::Tensor &self) {
  if (self.is_complex()) at::view_as_real(self).select(-1, 1).neg_();
  return self;
}

inline at::Tensor &copy_(at::Tensor &self, const at::Tensor &from, bool) {
  if (self.is_same(from)) return self;
  TORCH_CHECK(self.defined() && from.defined(), "copy_: the tensor is undefined");
  if (self.sizes() != from.sizes()) {
    auto common = at::infer_size_dimvector(self.sizes(), from.sizes());
    TORCH_CHECK(self.sizes() == c10::IntArrayRef(common), "output with shape ", self.sizes(), " doesn't match the broadcast shape ", c10::IntArrayRef(common));
  }
  /* Meta holds nothing, so it takes anything and gives nothing. */
  if (self.is_meta()) return self;
  TORCH_CHECK_NOT_IMPLEMENTED(!from.is_meta(), "Cannot copy out of meta tensor; no data!");
  at::assert_no_internal_overlap(self);
  at::assert_no_partial_overlap(self, from);
  if (!self.numel()) return self;

  /* copy_ is called with lazy conjugation and negation still on. */
  if (self.is_conj() != from.is_conj() || self.is_neg() != from.is_neg()) {
    at::Tensor plain = from.alias(), target = self.alias();
    bool conjugate = self.is_conj() != from.is_conj(), negate = self.is_neg() != from.is_neg();
    for (const at::Tensor *tensor : {&plain, &target}) tensor->_set_conj(false), tensor->_set_neg(false);
    if (self.is_same(from) || self.is_alias_of(from)) plain = plain.clone();
    target.copy_(plain);
    if (conjugate) conjugate_(target);
    if (negate) target.neg_();
    return self;
  }

  uint32_t line = line_here();
  bool to_tern = is_tern(self), from_tern = is_tern(from);
  if ((to_tern && !from_tern && !from.is_cpu()) || (from_tern && !to_tern && !self.is_cpu())) { /* another accelerator: by way of the host */
    self.copy_(from.cpu());
    return self;
  }
  tern_tensor target, source;
  bool native = describe(self, &target);
  native = describe(from, &source) && native;
  /* Engines move complex numbers but convert none. */
  if (native && source.dtype != target.dtype) native = !tern_dtype_is_complex((tern_dtype)source.dtype) && !tern_dtype_is_complex((tern_dtype)target.dtype);
  bool devices_differ = to_tern && from_tern && self.device() != from.device();
  if (devices_differ) self.copy_(from.cpu());
  else if (!native) copy_on_host(self, from);
  else if (!from_tern) copy_from_host(self, target, from, line);
  else if (!to_tern) copy_to_host(self, from, source, line);
  else copy_on_device(target, source, line);
  return self;
}

inline at::Tensor copy_from(const at::Tensor &self, const at::Tensor &target, bool non_blocking) {
  at::Tensor to = target;
  return copy_(to, self, non_blocking);
}

inline at::Tensor copy_from_and_resize(const at::Tensor &self, const at::Tensor &target) {
  if (self.sizes() != target.sizes()) target.resize_(self.sizes());
  return copy_from(self, target, false);
}

inline c10::Scalar local_scalar_dense(const at::Tensor &self) {
  tern_buffer *buffer = buffer_of(self);
  at::Tensor host = at::detail::empty_cpu({}, self.scalar_type());
  size_t size = self.itemsize(), offset = (size_t)self.storage_offset() * size;
  void *to = host.mutable_data_ptr();
  if (sync_debug_mode.load(std::memory_order_relaxed)) [[unlikely]] announce_wait("the value of an element (item, bool, float ...)", line_here());
  wait([&] { return tern_buffer_read(buffer, offset, size, to); });
  if (self.is_conj()) host._set_conj(true);
  if (self.is_neg()) host._set_neg(true);
  return at::_local_scalar_dense(host.resolve_conj().resolve_neg());
}

inline bool equal(const at::Tensor &self, const at::Tensor &other) {
  TORCH_CHECK(self.device() == other.device(), "Cannot compare two tensors on different devices. Got: ", self.device(), " and ", other.device());
  if (self.sizes() != other.sizes()) return false;
  return !self.numel() || at::all(at::eq(self, other)).item<bool>();
}

inline void register_copy(torch::Library &library) {
  library.impl("conj_physical_", TORCH_FN(conjugate_));
  library.impl("copy_", TORCH_FN(copy_));
  library.impl("_copy_from", TORCH_FN(copy_from));
  library.impl("_copy_from_and_resize", TORCH_FN(copy_from_and_resize));
  library.impl("_local_scalar_dense", TORCH_FN(local_scalar_dense));
  library.impl("equal", TORCH_FN(equal));
}

}  // namespace tern
#endif
