/* The embedded engine behind backend.h: memory is plain host memory from one allocator per device, an executable is a plan. */
#include "../opt/opt.h"
#include "backend_device.h"

enum { MAX_DEVICES = 64 };

static tern_status cpu_device_count(const char *spec, int *out) {
  (void)spec;
  int64_t n = tern_setting_int(TERN_SETTING_DEVICE_COUNT, 1);
  if (n < 1 || n > MAX_DEVICES)
    return tern_error_new(TERN_BAD_SETTING, "TERN_DEVICE_COUNT=%s: the embedded engine shows 1 to %d devices", tern_setting_text(TERN_SETTING_DEVICE_COUNT),
                          MAX_DEVICES);
  *out = (int)n;
  return NULL;
}

static tern_status cpu_open(const char *spec, int ordinal, tern_backend_device **out) {
  int n = 0;
  TERN_TRY(cpu_device_count(spec, &n));
  if (ordinal < 0 || ordinal >= n)
    return tern_error_new(TERN_NO_DEVICE, "device %d of %d: set TERN_DEVICE_COUNT to show more", ordinal, n);
  const tern_kernel_table *kernels = NULL;
  TERN_TRY(tern_kernels_select(&kernels));
  if (!kernels->blocks) return tern_error_new(TERN_INTERNAL, "the %s kernels have no block machine; please report it", kernels->isa);
  tern_backend_device *device = calloc(1, sizeof *device);
  if (!device) return tern_error_new(TERN_OUT_OF_MEMORY, "no host memory to open a device");
  device->kernels = kernels;
  device->ordinal = ordinal;
  tern_status status = tern_allocator_new(0, &device->allocator);
  if (status) free(device);
  else *out = device;
  return status;
}

static void cpu_close(tern_backend_device *device) {
  if (!device) return;
  tern_allocator_free(device->allocator);
  free(device);
}

static void cpu_info(tern_backend_device *device, tern_backend_info *out) {
  int threads = tern_pool_threads();
  *out = (tern_backend_info){.host_addressable = true, .has_f64 = true, .has_i64 = true, .memory_limit = tern_allocator_limit(device->allocator),
                             .compute_units = threads};
  snprintf(out->name, sizeof out->name, "cpu");
  snprintf(out->platform, sizeof out->platform, "%s, %d thread%s", device->kernels->isa, threads, threads == 1 ? "" : "s");
}

static void cpu_stats(tern_backend_device *device, tern_backend_stats *out) {
  out->compiled = out->loaded = 0; /* plans are made, nothing is compiled */
  tern_allocator_get_stats(device->allocator, &out->memory);
}
static void cpu_reset_peak(tern_backend_device *device) { tern_allocator_reset_peak(device->allocator); }
static void cpu_reset_totals(tern_backend_device *device) { tern_allocator_reset_totals(device->allocator); }
static void cpu_empty_cache(tern_backend_device *device) { tern_allocator_trim(device->allocator); }
static void cpu_set_limit(tern_backend_device *device, int64_t bytes) { tern_allocator_set_limit(device->allocator, bytes); }

/* ---- memory ---- */

tern_status tern_cpu_memory_new(tern_backend_device *device, size_t bytes, tern_memory **out) {
  tern_memory *m = malloc(sizeof *m);
  if (!m) return tern_error_new(TERN_OUT_OF_MEMORY, "no host memory to describe an array");
  void *data;
  tern_status status = tern_allocate(device->allocator, bytes, &data);
  if (status) {
    free(m);
    return status;
  }
  *m = (tern_memory){.data = data, .bytes = bytes};
  *out = m;
  return NULL;
}

void tern_cpu_memory_free(tern_backend_device *device, tern_memory *memory) {
  if (!memory) return;
  if (memory->release_owner) memory->release_owner(memory->owner);
  else tern_deallocate(device->allocator, memory->data);
  free(memory);
}

static tern_status cpu_allocate(tern_backend_device *device, tern_dtype dtype, int rank, const int64_t *dims, tern_memory **out) {
  int64_t bytes = (int64_t)tern_dtype_size(dtype);
  for (int d = 0; d < rank; d++)
    if (dims[d] < 0 || __builtin_mul_overflow(bytes, dims[d], &bytes))
      return tern_error_new(TERN_INVALID_ARGUMENT, "an array with dimension %d of %lld has no size", d, (long long)dims[d]);
  return tern_cpu_memory_new(device, (size_t)bytes, out);
}

static tern_status cpu_upload(tern_backend_device *device, tern_dtype dtype, int rank, const int64_t *dims, const void *host, tern_memory **out) {
  TERN_TRY(cpu_allocate(device, dtype, rank, dims, out));
  if ((*out)->bytes) memcpy((*out)->data, host, (*out)->bytes);
  return NULL;
}

static tern_status cpu_download(tern_backend_device *device, tern_memory *memory, void *host, size_t bytes) {
  (void)device;
  if (bytes != memory->bytes) return tern_error_new(TERN_INVALID_ARGUMENT, "a download of %zu bytes from an array of %zu", bytes, memory->bytes);
  if (bytes) memcpy(host, memory->data, bytes);
  return NULL;
}

static void *cpu_host_pointer(tern_memory *memory) { return memory->data; }
static size_t cpu_size(tern_memory *memory) { return memory->bytes; }

static tern_status cpu_adopt(tern_backend_device *device, void *data, size_t bytes, void (*release_owner)(void *owner), void *owner, tern_memory **out) {
  (void)device;
  if (!release_owner) return tern_error_new(TERN_INVALID_ARGUMENT, "adopted memory needs a function that releases it");
  tern_memory *m = malloc(sizeof *m);
  if (!m) return tern_error_new(TERN_OUT_OF_MEMORY, "no host memory to describe an array");
  *m = (tern_memory){.data = data, .bytes = bytes, .release_owner = release_owner, .owner = owner};
  *out = m;
  return NULL;
}

/* ---- programs ---- */

static bool has_kernel(tern_op_kind kind) {
  const tern_kernel_table *kernels = NULL;
  tern_status status = tern_kernels_select(&kernels); /* chosen when the device opened */
  bool has = !status && kernels->rows[kind].run;
  tern_error_free(status);
  return has;
}

static bool needs_decomposition(const tern_program *program) {
  for (int32_t i = 0; i < program->n_ops; i++)
    if (tern_op_rows[program->ops[i].kind].class == TERN_CLASS_COMPOSITE && !has_kernel((tern_op_kind)program->ops[i].kind)) return true;
  return false;
}

static void cpu_release_executable(tern_executable *executable) {
  if (!executable) return;
  tern_arena_free(&executable->arena);
  free(executable);
}

/* Canonicalise, decompose what has no kernel, plan. */
static tern_status cpu_compile(tern_backend_device *device, const tern_program *program, tern_executable **out) {
  tern_program *canonical = NULL, *decomposed = NULL;
  tern_executable *x = NULL;
  tern_status status = tern_canonicalise(program, &canonical);
  if (!status) program = canonical;
  if (!status && needs_decomposition(program)) {
    status = tern_program_decompose(program, has_kernel, &decomposed);
    if (!status) program = decomposed;
  }
  if (!status) {
    x = calloc(1, sizeof *x);
    if (!x) status = tern_error_new(TERN_OUT_OF_MEMORY, "no host memory for an executable");
  }
  if (!status) {
    x->device = device;
    status = tern_plan_program(program, device->kernels, x);
  }
  if (!status && tern_setting_has(TERN_SETTING_PRINT, "plan")) tern_plan_print(x, program);
  if (decomposed) tern_program_free(decomposed);
  if (canonical) tern_program_free(canonical);
  if (status) cpu_release_executable(x);
  else *out = x;
  return status;
}

const tern_backend tern_cpu_backend = {
    .name = "cpu",
    .open = cpu_open,
    .close = cpu_close,
    .device_count = cpu_device_count,
    .info = cpu_info,
    .stats = cpu_stats,
    .reset_peak = cpu_reset_peak,
    .reset_totals = cpu_reset_totals,
    .empty_cache = cpu_empty_cache,
    .set_limit = cpu_set_limit,
    .allocate = cpu_allocate,
    .release = tern_cpu_memory_free,
    .upload = cpu_upload,
    .download = cpu_download,
    .host_pointer = cpu_host_pointer,
    .adopt = cpu_adopt,
    .size = cpu_size,
    .compile = cpu_compile,
    .release_executable = cpu_release_executable,
    .execute = tern_cpu_execute,
    .limits = tern_cpu_limits,
};
