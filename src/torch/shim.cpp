/* shim: the only C++ of tern, for what PyTorch offers to C++ alone. The parts are the headers beside this file, each with one subject; here they are registered.
 *
 *   bridge.h      errors both ways, open devices, tensors over tern's buffers
 *   device.h      guard, streams, events, generators, pinned memory, hooks
 *   storage.h     operators that make or re-view storages
 *   fallback.h    PyTorch's CPU kernels on the device's memory; errors by replay on Meta
 *   copy.h        contents across the border
 *   compare.h     debug mode
 *   trampoline.h  every row of src/aten's table
 *   composed.h    operators written as other operators
 *   foreach.h     _foreach_*: rows over lists
 *   profiler.h    torch.profiler's device events
 *   policies.h    autocast, attention's choice, recurrent cells
 *   recurrent.h   whole LSTM and GRU layers
 *   share.h       memory that tern and the host have in common
 *
 * Built for one minor version of PyTorch: its C++ interface promises nothing across them. */
#include "composed.h"
#include "foreach.h"
#include "policies.h"
#include "profiler.h"
#include "recurrent.h"
#include "share.h"
#include "sparse.h"
#include "storage.h"

namespace tern {

/* Names that this file serves itself, whatever the table says. */
static const std::unordered_set<std::string> own_names = {
    "empty.memory_format", "empty_strided", "_efficientzerotensor", "as_strided", "view", "_reshape_alias", "unfold", "view_as_real", "view_as_complex", "resize_",
    "set_.source_Storage", "set_.source_Storage_storage_offset", "set_.source_Tensor", "set_", "is_set_to", "record_stream", "_has_compatible_shallow_copy_type",
    "conj_physical_", "copy_", "_copy_from", "_copy_from_and_resize", "_local_scalar_dense", "equal",
    "_fused_sdp_choice", "_thnn_fused_lstm_cell", "_thnn_fused_lstm_cell_backward_impl", "_thnn_fused_gru_cell", "_thnn_fused_gru_cell_backward", "lstm.input", "gru.input"};

static void register_all() {
  register_device();
  register_profiler();
  /* Leaked on purpose: a Library takes its operators back when it is destroyed. */
  auto *aten = new torch::Library(torch::Library::IMPL, "aten", c10::DispatchKey::PrivateUse1, __FILE__, __LINE__);
  auto *any = new torch::Library(torch::Library::IMPL, "_", c10::DispatchKey::PrivateUse1, __FILE__, __LINE__);
  register_storage(*aten);
  register_copy(*aten);
  register_rows(*aten, own_names);
  register_composed(*aten);
  register_foreach(*aten);
  register_policies(*aten);
  register_recurrent(*aten);
  register_share();
  std::unordered_set<std::string> native = own_names;
  native.insert(table.names.begin(), table.names.end());
  register_fallback(*any, *aten, native);
  register_sparse();
}

}  // namespace tern

/* Runs C++ for the C side: PyTorch's exceptions become statuses. */
template <class F>
static tern_status as_status(F &&function) {
  try {
    function();
    return nullptr;
  } catch (const c10::Error &error) {
    return tern_error_new(TERN_INVALID_ARGUMENT, "%s", error.what_without_backtrace());
  } catch (const std::exception &error) {
    return tern_error_new(TERN_INTERNAL, "%s", error.what());
  }
}

extern "C" tern_status tern_shim_register(void) {
  return as_status(tern::register_all);
}

extern "C" int tern_shim_missing(const char *const **names) {
  *names = tern::table.missing.data();
  return (int)tern::table.missing.size();
}

extern "C" tern_status tern_shim_device(int ordinal, tern_device **out) {
  return as_status([&] { *out = tern::device_at(tern::device_index((c10::DeviceIndex)ordinal)); });
}

static tern::Generator &generator_of(int ordinal) {
  return *static_cast<tern::Generator *>(at::detail::getPrivateUse1Hooks().getDefaultGenerator((c10::DeviceIndex)ordinal).unsafeGetGeneratorImpl());
}

extern "C" tern_status tern_shim_random_get(int ordinal, uint64_t *seed, uint64_t *offset) {
  return as_status([&] { std::tie(*seed, *offset) = generator_of(ordinal).get(); });
}

extern "C" tern_status tern_shim_random_set(int ordinal, uint64_t seed, uint64_t offset) {
  return as_status([&] {
    tern::Generator &generator = generator_of(ordinal);
    generator.set_current_seed(seed);
    if (offset) generator.set_offset(offset);
  });
}

extern "C" tern_status tern_shim_random_state_get(int ordinal, void (*take)(void *, const void *, size_t), void *context) {
  return as_status([&] {
    at::Tensor state(generator_of(ordinal).get_state());
    take(context, state.const_data_ptr(), state.nbytes());
  });
}

extern "C" tern_status tern_shim_random_state_set(int ordinal, const void *bytes, size_t count) {
  return as_status([&] {
    at::Tensor state = at::detail::empty_cpu({(int64_t)count}, at::kByte);
    if (count) memcpy(state.mutable_data_ptr(), bytes, count);
    generator_of(ordinal).set_state(*state.unsafeGetTensorImpl());
  });
}

extern "C" bool tern_shim_draws_on_host_get(void) { return tern::draws_on_host.load(); }

extern "C" void tern_shim_draws_on_host_set(bool on) { tern::draws_on_host.store(on); }

extern "C" tern_status tern_shim_flush(void) {
  for (auto &slot : tern::open_devices)
    if (tern_device *device = slot.load(std::memory_order_acquire)) TERN_TRY(tern_device_flush(device));
  return nullptr;
}

extern "C" int tern_shim_current_device(void) { return tern::current_device_index; }

extern "C" void tern_shim_sync_debug_set(int mode) { tern::sync_debug_mode.store(mode); }
extern "C" int tern_shim_sync_debug_get(void) { return tern::sync_debug_mode.load(); }

extern "C" void tern_shim_host_memory(int64_t figures[4][4]) {
  at::HostStats stats = tern::pinned_allocator.get_stats();
  const c10::CachingAllocator::Stat *rows[] = {&stats.active_requests, &stats.active_bytes, &stats.allocations, &stats.allocated_bytes};
  for (int i = 0; i < 4; i++) {
    const int64_t row[] = {rows[i]->current, rows[i]->peak, rows[i]->allocated, rows[i]->freed};
    memcpy(figures[i], row, sizeof row);
  }
}
extern "C" void tern_shim_host_memory_reset_peaks(void) { tern::pinned_allocator.reset_peak_stats(); }
extern "C" void tern_shim_host_memory_reset_totals(void) { tern::pinned_allocator.reset_accumulated_stats(); }

extern "C" void tern_shim_exit(void) { tern::exiting.store(true); }
