/* The public C API of include/tern/tern.h: a thin cover over backend.h. It knows neither eager nor PyTorch. */
#include "tern/tern.h"
#include "../backend.h"

struct tern_chip {
  const tern_backend *backend;
  tern_backend_device *device;
  char description[288];
};

struct tern_array {
  tern_chip *chip;
  tern_memory *memory; /* NULL once spent */
  tern_dtype dtype;
  int rank;
  int64_t dims[TERN_MAX_RANK];
};

typedef struct shape {
  tern_dtype dtype;
  int rank;
  int64_t dims[TERN_MAX_RANK];
} shape;

struct tern_compiled {
  tern_chip *chip;
  tern_executable *executable;
  int n_parameters, n_results, n_scalars;
  shape *parameters, *results;
  bool *spent; /* per parameter: a result reuses it */
};

tern_status tern_chip_open(const char *spec, int ordinal, tern_chip **out) {
  if (!spec || !out) return tern_error_new(TERN_INVALID_ARGUMENT, "tern_chip_open: spec and out must not be NULL");
  tern_chip *chip = calloc(1, sizeof *chip);
  if (!chip) return tern_error_new(TERN_OUT_OF_MEMORY, "no host memory for a chip");
  chip->backend = !*spec || !strcmp(spec, "cpu") ? &tern_cpu_backend : &tern_pjrt_backend;
  tern_status status = chip->backend->open(spec, ordinal, &chip->device);
  if (status) {
    free(chip);
    return status;
  }
  tern_backend_info info;
  chip->backend->info(chip->device, &info);
  snprintf(chip->description, sizeof chip->description, "%s: %s", info.name, info.platform);
  *out = chip;
  return NULL;
}

void tern_chip_close(tern_chip *chip) {
  if (!chip) return;
  chip->backend->close(chip->device);
  free(chip);
}

const char *tern_chip_describe(const tern_chip *chip) { return chip->description; }

static tern_array *new_array(tern_chip *chip, tern_dtype dtype, int rank, const int64_t *dims) {
  tern_array *array = calloc(1, sizeof *array);
  if (!array) return NULL;
  array->chip = chip;
  array->dtype = dtype;
  array->rank = rank;
  if (rank) memcpy(array->dims, dims, (size_t)rank * sizeof *dims);
  return array;
}

tern_status tern_array_from_host(tern_chip *chip, tern_dtype dtype, int rank, const int64_t *dims, const void *host, tern_array **out) {
  if ((unsigned)dtype >= TERN_DTYPE_COUNT || rank < 0 || rank > TERN_MAX_RANK)
    return tern_error_new(TERN_INVALID_ARGUMENT, "tern_array_from_host: rank must be 0 to %d and dtype one of tern_dtype", TERN_MAX_RANK);
  for (int d = 0; d < rank; d++)
    if (dims[d] < 0) return tern_error_new(TERN_INVALID_ARGUMENT, "tern_array_from_host: dimension %d is negative", d);
  tern_array *array = new_array(chip, dtype, rank, dims);
  if (!array) return tern_error_new(TERN_OUT_OF_MEMORY, "no host memory for an array");
  tern_status status = chip->backend->upload(chip->device, dtype, rank, dims, host, &array->memory);
  if (status) {
    free(array);
    return status;
  }
  *out = array;
  return NULL;
}

size_t tern_array_bytes(const tern_array *array) { return (size_t)tern_dims_count(array->rank, array->dims) * tern_dtype_size(array->dtype); }

static tern_status check_not_spent(const tern_array *array) {
  return array->memory ? NULL : tern_error_new(TERN_INVALID_ARGUMENT, "this array was spent by a run whose result reuses it");
}

tern_status tern_array_to_host(tern_array *array, void *host, size_t bytes) {
  TERN_TRY(check_not_spent(array));
  if (bytes != tern_array_bytes(array))
    return tern_error_new(TERN_INVALID_ARGUMENT, "tern_array_to_host: the array has %zu bytes, not %zu", tern_array_bytes(array), bytes);
  return array->chip->backend->download(array->chip->device, array->memory, host, bytes);
}

void tern_array_free(tern_array *array) {
  if (!array) return;
  if (array->memory) array->chip->backend->release(array->chip->device, array->memory);
  free(array);
}

static shape shape_of(const tern_program *p, tern_value v) {
  shape s = {.dtype = p->values[v].dtype, .rank = p->values[v].rank};
  if (s.rank) memcpy(s.dims, p->values[v].dims, (size_t)s.rank * sizeof *s.dims);
  return s;
}

void tern_compiled_free(tern_compiled *c) {
  if (!c) return;
  if (c->executable) c->chip->backend->release_executable(c->executable);
  free(c->parameters);
  free(c->results);
  free(c->spent);
  free(c);
}

tern_status tern_compile(tern_chip *chip, const tern_program *p, tern_compiled **out) {
  tern_compiled *c = calloc(1, sizeof *c);
  if (c) {
    *c = (tern_compiled){.chip = chip, .n_parameters = p->n_parameters, .n_results = p->n_results, .n_scalars = p->n_scalars};
    c->parameters = calloc((size_t)p->n_parameters + 1, sizeof *c->parameters);
    c->results = calloc((size_t)p->n_results + 1, sizeof *c->results);
    c->spent = calloc((size_t)p->n_parameters + 1, sizeof *c->spent);
  }
  tern_status status =
      c && c->parameters && c->results && c->spent ? tern_program_verify(p) : tern_error_new(TERN_OUT_OF_MEMORY, "no host memory for a program");
  if (!status) status = chip->backend->compile(chip->device, p, &c->executable);
  if (status) {
    tern_compiled_free(c);
    return status;
  }
  for (int i = 0; i < p->n_parameters; i++) c->parameters[i] = shape_of(p, p->parameters[i]);
  for (int i = 0; i < p->n_results; i++) {
    c->results[i] = shape_of(p, p->results[i].value);
    if (p->results[i].reuses >= 0) c->spent[p->results[i].reuses] = true;
  }
  *out = c;
  return NULL;
}

static tern_status check_input(const tern_compiled *c, int i, const tern_array *array) {
  const shape *want = &c->parameters[i];
  if (!array || array->chip != c->chip) return tern_error_new(TERN_INVALID_ARGUMENT, "tern_run: input %d is not an array of the program's chip", i);
  TERN_TRY(check_not_spent(array));
  if (array->dtype == want->dtype && array->rank == want->rank && (!want->rank || !memcmp(array->dims, want->dims, (size_t)want->rank * sizeof(int64_t)))) return NULL;
  return tern_error_new(TERN_INVALID_ARGUMENT, "tern_run: input %d is %s of rank %d; the program's parameter is %s of rank %d, or their dimensions differ", i,
                        tern_dtype_name(array->dtype), array->rank, tern_dtype_name(want->dtype), want->rank);
}

tern_status tern_run(tern_compiled *c, tern_array *const *inputs, const uint64_t *scalars, tern_array **outputs) {
  for (int i = 0; i < c->n_parameters; i++) TERN_TRY(check_input(c, i, inputs[i]));
  if (c->n_scalars && !scalars) return tern_error_new(TERN_INVALID_ARGUMENT, "tern_run: the program takes %d scalars; scalars is NULL", c->n_scalars);
  tern_memory **in = calloc((size_t)c->n_parameters + 1, sizeof *in), **made = calloc((size_t)c->n_results + 1, sizeof *made);
  tern_array **arrays = calloc((size_t)c->n_results + 1, sizeof *arrays);
  tern_status status = in && made && arrays ? NULL : tern_error_new(TERN_OUT_OF_MEMORY, "no host memory to run a program");
  for (int i = 0; i < c->n_results && !status; i++)
    if (!(arrays[i] = new_array(c->chip, c->results[i].dtype, c->results[i].rank, c->results[i].dims)))
      status = tern_error_new(TERN_OUT_OF_MEMORY, "no host memory to run a program");
  if (!status) {
    for (int i = 0; i < c->n_parameters; i++) in[i] = inputs[i]->memory;
    tern_launch launch = {.inputs = in, .donated = c->spent, .scalars = scalars, .outputs = made};
    status = c->chip->backend->execute(c->executable, &launch);
    for (int i = 0; i < c->n_parameters; i++) inputs[i]->memory = !status && c->spent[i] ? NULL : in[i];
  }
  for (int i = 0; i < c->n_results; i++) {
    if (status && arrays) free(arrays[i]);
    if (status) continue;
    arrays[i]->memory = made[i];
    outputs[i] = arrays[i];
  }
  free(in);
  free(made);
  free(arrays);
  return status;
}
