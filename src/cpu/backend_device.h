/* backend_device: the embedded engine's device and memory, shared by backend.c and execute.c. */
#ifndef TERN_CPU_BACKEND_DEVICE_H
#define TERN_CPU_BACKEND_DEVICE_H
#include "../memory/memory.h"
#include "plan.h"

struct tern_backend_device {
  tern_allocator *allocator;
  const tern_kernel_table *kernels;
  int ordinal;
};

struct tern_memory {
  char *data;
  size_t bytes;
  void (*release_owner)(void *owner); /* NULL: `data` is the allocator's */
  void *owner;
};

tern_status tern_cpu_memory_new(tern_backend_device *device, size_t bytes, tern_memory **out);
void tern_cpu_memory_free(tern_backend_device *device, tern_memory *memory);
/* Runs a launch: see tern_backend.execute. */
tern_status tern_cpu_execute(tern_executable *executable, tern_launch *launch);
/* limits.c: see tern_backend.limits. */
void tern_cpu_limits(tern_backend_device *device, double *flops, double *bytes);
#endif
