/* shim: what the C++ side offers to the C side of the Python module (module.c). None of these throws. */
#ifndef TERN_TORCH_SHIM_H
#define TERN_TORCH_SHIM_H
#include "../eager/eager.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Registers guard, hooks, allocator and every operator with PyTorch; once. */
tern_status tern_shim_register(void);
/* The names in tern's operator table that this PyTorch has no schema for. Empty unless the table is wrong. */
int tern_shim_missing(const char *const **names);
/* The device, opened if need be, with a seed set earlier applied. ordinal -1: the current one. */
tern_status tern_shim_device(int ordinal, tern_device **out);
/* Flushes every device that is open; opens none. */
tern_status tern_shim_flush(void);
/* The current device's number, of this thread. */
int tern_shim_current_device(void);
/* Seed and offset of a device's random stream; these open no device that is not open. */
tern_status tern_shim_random_get(int ordinal, uint64_t *seed, uint64_t *offset);
tern_status tern_shim_random_set(int ordinal, uint64_t seed, uint64_t offset);
/* The state of a device's default generator, as a generator's get_state() gives it: calls take(context, bytes, count). */
tern_status tern_shim_random_state_get(int ordinal, void (*take)(void *context, const void *bytes, size_t count), void *context);
tern_status tern_shim_random_state_set(int ordinal, const void *bytes, size_t count);
/* Whether random operators draw from PyTorch's CPU stream; process-wide. */
bool tern_shim_draws_on_host_get(void);
void tern_shim_draws_on_host_set(bool on);
/* torch.tern.set_sync_debug_mode: 0 nothing, 1 warn, 2 raise where a program waits for values. */
void tern_shim_sync_debug_set(int mode);
int tern_shim_sync_debug_get(void);
/* Pinned host memory. Figures in this order: active blocks, active bytes, blocks, bytes; each as current, peak, allocated, freed. */
void tern_shim_host_memory(int64_t figures[4][4]);
void tern_shim_host_memory_reset_peaks(void);
void tern_shim_host_memory_reset_totals(void);
/* From now on storages leak instead of being released: the interpreter is going away. */
void tern_shim_exit(void);

#ifdef __cplusplus
}
#endif
#endif
