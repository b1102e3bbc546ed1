/* tern_trace_backend: compile keeps the program; execute makes arrays that are only descriptions, or has the embedded engine run it. See trace.h. */
#include <pthread.h>
#include "inner.h"

struct tern_backend_device {
  tern_backend_device *engine; /* the embedded engine's; NULL where nothing is computed */
  bool zeros;                  /* what is read is zeros; else reading is an error */
  pthread_mutex_t lock;        /* guards the counters: release comes from any thread */
  tern_backend_stats stats;
};

struct tern_memory {
  tern_memory *array;          /* the engine's; NULL where nothing is computed */
  size_t bytes;
  const char *operation, *line;
  int64_t marks;               /* how many there had been when it was made */
  bool from_host;
};

struct tern_executable {
  tern_backend_device *device;
  tern_executable *engine;
  tern_trace_program *program;
  int32_t *reuses;             /* per result: the parameter whose contents it replaces, or -1 */
};

static const tern_backend *const engine = &tern_cpu_backend;

static tern_status trace_device_count(const char *spec, int *out) {
  (void)spec;
  return engine->device_count("cpu", out);
}

static tern_status trace_open(const char *spec, int ordinal, tern_backend_device **out) {
  const char *values = strchr(spec, ':');
  values = values ? values + 1 : "";
  if (*values && strcmp(values, "zeros") && strcmp(values, "cpu"))
    return tern_error_new(TERN_INVALID_ARGUMENT, "TERN_DEVICE=%s: it is trace, trace:zeros or trace:cpu", spec);
  tern_backend_device *device = calloc(1, sizeof *device);
  if (!device) return tern_error_new(TERN_OUT_OF_MEMORY, "no host memory to open a device");
  tern_status status = strcmp(values, "cpu") ? NULL : engine->open("cpu", ordinal, &device->engine);
  if (status) {
    free(device);
    return status;
  }
  device->zeros = !strcmp(values, "zeros");
  pthread_mutex_init(&device->lock, NULL);
  *out = device;
  return NULL;
}

static void trace_close(tern_backend_device *device) {
  if (!device) return;
  if (device->engine) engine->close(device->engine);
  pthread_mutex_destroy(&device->lock);
  free(device);
}

static void trace_info(tern_backend_device *device, tern_backend_info *out) {
  if (device->engine) engine->info(device->engine, out);
  else *out = (tern_backend_info){.has_f64 = true, .has_i64 = true, .platform = "no values"};
  snprintf(out->name, sizeof out->name, "trace");
  out->static_shapes = true;
}

static void trace_stats(tern_backend_device *device, tern_backend_stats *out) {
  pthread_mutex_lock(&device->lock);
  *out = device->stats;
  pthread_mutex_unlock(&device->lock);
  out->memory.reserved = out->memory.bytes;
}

static void trace_reset_peak(tern_backend_device *device) {
  pthread_mutex_lock(&device->lock);
  tern_memory_stats_reset_peaks(&device->stats.memory);
  pthread_mutex_unlock(&device->lock);
}

static void trace_reset_totals(tern_backend_device *device) {
  pthread_mutex_lock(&device->lock);
  tern_memory_stats_reset_totals(&device->stats.memory);
  pthread_mutex_unlock(&device->lock);
}

static void trace_empty_cache(tern_backend_device *device) {
  if (device->engine) engine->empty_cache(device->engine);
}
static void trace_set_limit(tern_backend_device *device, int64_t bytes) {
  if (device->engine) engine->set_limit(device->engine, bytes);
}

static void count(tern_backend_device *device, int64_t bytes, int64_t arrays) {
  pthread_mutex_lock(&device->lock);
  tern_stat_add(&device->stats.memory.bytes, bytes);
  tern_stat_add(&device->stats.memory.blocks, arrays);
  pthread_mutex_unlock(&device->lock);
}

/* ---- memory ---- */

/* Takes `array` over. */
static tern_status wrap(tern_backend_device *device, tern_memory *array, int64_t bytes, const char *operation, const char *line, tern_memory **out) {
  tern_memory *memory = malloc(sizeof *memory);
  if (!memory) {
    if (array) engine->release(device->engine, array);
    return tern_error_new(TERN_OUT_OF_MEMORY, "no host memory to describe an array");
  }
  *memory = (tern_memory){.array = array, .bytes = (size_t)bytes, .operation = operation, .line = line, .marks = tern_trace_marks()};
  count(device, bytes, 1);
  *out = memory;
  return NULL;
}

static int64_t array_bytes(tern_dtype dtype, int rank, const int64_t *dims) { return tern_dims_count(rank, dims) * (int64_t)tern_dtype_size(dtype); }

static tern_status trace_allocate(tern_backend_device *device, tern_dtype dtype, int rank, const int64_t *dims, tern_memory **out) {
  tern_memory *array = NULL;
  if (device->engine) TERN_TRY(engine->allocate(device->engine, dtype, rank, dims, &array));
  return wrap(device, array, array_bytes(dtype, rank, dims), "allocate", "", out);
}

static tern_status trace_upload(tern_backend_device *device, tern_dtype dtype, int rank, const int64_t *dims, const void *host, tern_memory **out) {
  tern_memory *array = NULL;
  if (device->engine) TERN_TRY(engine->upload(device->engine, dtype, rank, dims, host, &array));
  TERN_TRY(wrap(device, array, array_bytes(dtype, rank, dims), "upload", "", out));
  (*out)->from_host = true;
  return NULL;
}

static void trace_release(tern_backend_device *device, tern_memory *memory) {
  if (!memory) return;
  if (memory->array) engine->release(device->engine, memory->array);
  count(device, -(int64_t)memory->bytes, -1);
  free(memory);
}

static tern_status trace_download(tern_backend_device *device, tern_memory *memory, void *host, size_t bytes) {
  if (device->engine) return engine->download(device->engine, memory->array, host, bytes);
  if (bytes != memory->bytes) return tern_error_new(TERN_INVALID_ARGUMENT, "a download of %zu bytes from an array of %zu", bytes, memory->bytes);
  if (!device->zeros)
    return tern_error_new(TERN_UNSUPPORTED, "TERN_DEVICE=trace computes nothing, so there is no value to read here: with trace:zeros it is zeros, with trace:cpu the "
                                            "embedded engine computes it");
  tern_trace_count_read();
  memset(host, 0, bytes);
  return NULL;
}

static void *trace_host_pointer(tern_memory *memory) { return memory->array ? engine->host_pointer(memory->array) : NULL; }
static size_t trace_size(tern_memory *memory) { return memory->bytes; }

static tern_status trace_adopt(tern_backend_device *device, void *data, size_t bytes, void (*release_owner)(void *owner), void *owner, tern_memory **out) {
  if (!device->engine) return tern_error_new(TERN_UNSUPPORTED, "TERN_DEVICE=trace cannot use host memory in place: copy it to the device");
  tern_memory *array = NULL;
  TERN_TRY(engine->adopt(device->engine, data, bytes, release_owner, owner, &array));
  return wrap(device, array, (int64_t)bytes, "upload", "", out);
}

/* ---- programs ---- */

static void trace_release_executable(tern_executable *e) {
  if (!e) return;
  if (e->engine) engine->release_executable(e->engine);
  free(e->reuses);
  free(e);
}

static tern_status trace_compile(tern_backend_device *device, const tern_program *program, tern_executable **out) {
  tern_executable *e = calloc(1, sizeof *e);
  if (e) e->reuses = calloc((size_t)program->n_results + 1, sizeof *e->reuses);
  tern_status status = e && e->reuses ? NULL : tern_error_new(TERN_OUT_OF_MEMORY, "no host memory for an executable");
  if (!status) {
    e->device = device;
    for (int32_t i = 0; i < program->n_results; i++) e->reuses[i] = program->results[i].reuses;
    status = tern_trace_keep(program, &e->program);
  }
  if (!status && device->engine) status = engine->compile(device->engine, program, &e->engine);
  if (status) trace_release_executable(e);
  else *out = e;
  return status;
}

/* The engine's launch on the engine's arrays. On an error they may have changed places with equal ones. */
static tern_status run_engine(tern_executable *e, tern_launch *launch, tern_memory **arrays) {
  int32_t n = e->program->n_parameters;
  for (int32_t i = 0; i < n; i++) arrays[i] = launch->inputs[i]->array;
  tern_launch inner = *launch;
  inner.inputs = arrays;
  tern_status status = engine->execute(e->engine, &inner);
  launch->failed_tag = inner.failed_tag;
  launch->failed_index = inner.failed_index;
  if (status)
    for (int32_t i = 0; i < n; i++) launch->inputs[i]->array = arrays[i];
  return status;
}

static tern_status trace_execute(tern_executable *e, tern_launch *launch) {
  tern_backend_device *device = e->device;
  tern_trace_program *program = e->program;
  for (int32_t i = 0; i < program->n_parameters; i++) {
    program->parameters[i].operation = launch->inputs[i]->operation;
    program->parameters[i].line = launch->inputs[i]->line;
    program->parameters[i].is_fresh = launch->inputs[i]->from_host && launch->inputs[i]->marks == tern_trace_marks();
  }
  tern_backend_stats now;
  trace_stats(device, &now);
  tern_trace_launched(program, now.memory.bytes.current);

  if (device->engine) {
    tern_memory **arrays = calloc((size_t)program->n_parameters + 1, sizeof *arrays);
    if (!arrays) return tern_error_new(TERN_OUT_OF_MEMORY, "no host memory for a launch");
    tern_status status = run_engine(e, launch, arrays);
    free(arrays);
    if (status) return status;
  }
  /* The outputs hold the engine's arrays so far (or nothing); each gets its description. What fails here fails half-way: give back what there is. */
  tern_status status = NULL;
  for (int32_t i = 0; i < program->n_results; i++) {
    const tern_trace_array *result = &program->results[i];
    const tern_memory *old = e->reuses[i] >= 0 ? launch->inputs[e->reuses[i]] : NULL;
    tern_memory *array = device->engine ? launch->outputs[i] : NULL;
    launch->outputs[i] = NULL;
    if (!status) status = wrap(device, array, result->bytes, old ? old->operation : result->operation, old ? old->line : result->line, &launch->outputs[i]);
    else if (array) engine->release(device->engine, array);
  }
  for (int32_t i = 0; i < program->n_parameters; i++) {
    if (!launch->donated[i]) continue;
    if (device->engine) launch->inputs[i]->array = NULL; /* spent by the engine's launch */
    trace_release(device, launch->inputs[i]);
    launch->inputs[i] = NULL;
  }
  return status;
}

const tern_backend tern_trace_backend = {
    .name = "trace",
    .open = trace_open,
    .close = trace_close,
    .device_count = trace_device_count,
    .info = trace_info,
    .stats = trace_stats,
    .reset_peak = trace_reset_peak,
    .reset_totals = trace_reset_totals,
    .empty_cache = trace_empty_cache,
    .set_limit = trace_set_limit,
    .allocate = trace_allocate,
    .release = trace_release,
    .upload = trace_upload,
    .download = trace_download,
    .host_pointer = trace_host_pointer,
    .adopt = trace_adopt,
    .size = trace_size,
    .compile = trace_compile,
    .release_executable = trace_release_executable,
    .execute = trace_execute,
};
