/* Compiling and launching. A launch is one call of the plug-in's execute and waits for its end, so that what fails in it is an error of this launch and
 * not of some later read. Called by backend.c.
 *
 * A launch that fails leaves its inputs as they were. Where index checks fail, the results that took over inputs' storage hold the old values (text.c
 * sees to it) and change places with the inputs. Where the plug-in itself fails, it normally has not touched donated inputs yet; if it has, those arrays are
 * marked lost, and using them is an error in words. */
#include "../diag/diag.h"
#include "pjrt.h"

struct tern_executable {
  tern_backend_device *device;
  pjrt_loaded_executable *loaded; /* NULL: nothing to compute, every result is without elements */
  tern_pjrt_signature signature;
  int32_t n_parameters, n_results, n_scalars;
  tern_value_info *results; /* dtype and dims of each; dims are in `dims` */
  int64_t *dims;
  int64_t output_bytes; /* of results that take no input's storage over */
  tern_dtype *scalar_dtypes;
};

/* ---- compile ---- */

static void count_executable(tern_backend_device *device, bool loaded) {
  pthread_mutex_lock(&device->lock);
  device->stats.compiled += !loaded;
  device->stats.loaded += loaded;
  pthread_mutex_unlock(&device->lock);
}

/* From disk where it lies there, else from the compiler, and then to disk. */
static tern_status compile_text(tern_backend_device *device, char *text, bool overrides, pjrt_loaded_executable **out) {
  const pjrt_api *api = device->client->api;
  pjrt_program program = {.struct_size = sizeof program, .code = text, .code_size = strlen(text), .format = "mlir", .format_size = 4};
  char *options;
  size_t size;
  /* Without an assignment a program is for the first device. */
  TERN_TRY(tern_pjrt_compile_options(1, device->ordinal ? &device->id : NULL, overrides, &options, &size));
  tern_pjrt_cache_entry entry;
  tern_pjrt_cache_key(device, text, options, size, &entry);
  *out = tern_pjrt_cache_load(device, &entry);
  bool loaded = *out != NULL;
  tern_status status = NULL;
  if (!loaded) {
    TERN_PJRT_ARGS(Client_Compile, compile, .client = device->client->handle, .program = &program, .compile_options = options, .compile_options_size = size);
    status = tern_pjrt_status(api, api->Client_Compile(&compile), "PJRT_Client_Compile");
    if (!status && !compile.executable) status = tern_error_new(TERN_PLUGIN_FAILED, "PJRT_Client_Compile gave no executable");
    if (!status) {
      *out = compile.executable;
      tern_pjrt_cache_store(device, &entry, *out);
    }
  }
  if (!status) count_executable(device, loaded);
  tern_pjrt_cache_entry_free(&entry);
  free(options);
  return status;
}

/* The text for people has the user's lines in it, and so is another one than what is compiled: lines must not be in the key on disk. */
static void print_text(const tern_program *legal, bool guard_nan) {
  char *text;
  tern_pjrt_signature signature;
  tern_status status = tern_pjrt_text(legal, TERN_TEXT_COMMENTS, guard_nan, &text, &signature);
  if (!status) {
    tern_print("%s", text);
    tern_pjrt_signature_free(&signature);
    free(text);
  }
  tern_error_free(status);
}

/* A plug-in that refuses the options gets the program without them: what they are for is only a matter of rounding. */
static tern_status write_and_compile(tern_executable *e, const tern_program *legal) {
  const tern_pjrt_target *target = e->device->client->target;
  char *text;
  TERN_TRY(tern_pjrt_text(legal, TERN_TEXT_PLAIN, target->forgets_nan, &text, &e->signature));
  if (tern_setting_has(TERN_SETTING_PRINT, "stablehlo")) print_text(legal, target->forgets_nan);
  tern_status status = NULL;
  for (int overrides = target->option_overrides; overrides >= 0 && e->signature.n_outputs; overrides--) {
    tern_error_free(status);
    status = compile_text(e->device, text, overrides, &e->loaded);
    if (!status) break;
  }
  free(text);
  return status;
}

/* A plug-in that disagrees on the number of outputs would write past our list. */
static tern_status check_outputs(const tern_executable *e) {
  const pjrt_api *api = e->device->client->api;
  if (!TERN_PJRT_HAS(api, LoadedExecutable_GetExecutable) || !TERN_PJRT_HAS(api, Executable_NumOutputs) || !TERN_PJRT_HAS(api, Executable_Destroy)) return NULL;
  TERN_PJRT_ARGS(LoadedExecutable_GetExecutable, get, .loaded_executable = e->loaded);
  tern_status status = tern_pjrt_status(api, api->LoadedExecutable_GetExecutable(&get), "PJRT_LoadedExecutable_GetExecutable");
  if (status) {
    tern_error_free(status);
    return NULL;
  }
  TERN_PJRT_ARGS(Executable_NumOutputs, count, .executable = get.executable);
  status = tern_pjrt_status(api, api->Executable_NumOutputs(&count), "PJRT_Executable_NumOutputs");
  bool wrong = !status && count.num_outputs != (size_t)e->signature.n_outputs;
  tern_error_free(status);
  TERN_PJRT_ARGS(Executable_Destroy, destroy, .executable = get.executable);
  tern_error_free(tern_pjrt_status(api, api->Executable_Destroy(&destroy), "PJRT_Executable_Destroy"));
  return wrong ? tern_error_new(TERN_PLUGIN_FAILED, "the plug-in compiled a program of %d outputs to one of %zu", e->signature.n_outputs, count.num_outputs)
               : NULL;
}

/* The results' types, for wrapping outputs: the executable keeps no reference to the program. */
static tern_status keep_types(tern_executable *e, const tern_program *p) {
  size_t total = 0;
  for (int32_t i = 0; i < p->n_results; i++) total += (size_t)p->values[p->results[i].value].rank;
  e->n_parameters = p->n_parameters, e->n_results = p->n_results, e->n_scalars = p->n_scalars;
  e->results = calloc((size_t)p->n_results + 1, sizeof *e->results);
  e->dims = calloc(total + 1, sizeof *e->dims);
  e->scalar_dtypes = calloc((size_t)p->n_scalars + 1, sizeof *e->scalar_dtypes);
  if (!e->results || !e->dims || !e->scalar_dtypes) return tern_error_new(TERN_OUT_OF_MEMORY, "no host memory for an executable");
  int64_t *dims = e->dims;
  for (int32_t i = 0; i < p->n_results; i++) {
    e->results[i] = p->values[p->results[i].value];
    if (e->results[i].rank) memcpy(dims, e->results[i].dims, (size_t)e->results[i].rank * sizeof *dims);
    e->results[i].dims = dims;
    dims += e->results[i].rank;
    e->output_bytes += tern_dims_count(e->results[i].rank, e->results[i].dims) * (int64_t)tern_dtype_size(e->results[i].dtype);
  }
  for (int32_t i = 0; i < p->n_scalars; i++) e->scalar_dtypes[i] = p->values[p->scalars[i]].dtype;
  return NULL;
}

tern_status tern_pjrt_compile(tern_backend_device *device, const tern_program *program, tern_executable **out) {
  tern_program *legal = NULL;
  TERN_TRY(tern_pjrt_legalise(program, device->client->target, device->client->platform_name, &legal));
  tern_executable *e = calloc(1, sizeof *e);
  tern_status status = NULL;
  if (!e)
    status = tern_error_new(TERN_OUT_OF_MEMORY, "no host memory for an executable");
  else if (legal->n_parameters != program->n_parameters || legal->n_results != program->n_results || legal->n_scalars != program->n_scalars)
    status = tern_error_new(TERN_INTERNAL, "internal error: the decomposition of a program has another signature; please report it");
  if (!status) {
    e->device = device;
    status = keep_types(e, program);
  }
  if (!status) status = write_and_compile(e, legal);
  if (!status && e->loaded) status = check_outputs(e);
  tern_program_free(legal);
  if (status) {
    tern_pjrt_executable_release(e);
    return status;
  }
  *out = e;
  return NULL;
}

void tern_pjrt_executable_release(tern_executable *e) {
  if (!e) return;
  if (e->loaded) {
    const pjrt_api *api = e->device->client->api;
    TERN_PJRT_ARGS(LoadedExecutable_Destroy, destroy, .executable = e->loaded);
    tern_error_free(tern_pjrt_status(api, api->LoadedExecutable_Destroy(&destroy), "PJRT_LoadedExecutable_Destroy"));
  }
  tern_pjrt_signature_free(&e->signature);
  free(e->results);
  free(e->dims);
  free(e->scalar_dtypes);
  free(e);
}

/* ---- execute ---- */

/* What one launch needs beside the plug-in's call. */
typedef struct launch_scratch {
  pjrt_buffer **arguments, **outputs;
  int64_t *kept; /* arguments the plug-in must not take over */
  size_t n_kept;
  tern_memory **fresh; /* the results' descriptions */
  pjrt_buffer *words, *doubles;
} launch_scratch;

/* The scalars in one upload per kind; the caller destroys the buffers, also after an error. */
static tern_status upload_scalars(const tern_executable *e, const uint64_t *scalars, launch_scratch *s) {
  const tern_pjrt_signature *signature = &e->signature;
  const pjrt_api *api = e->device->client->api;
  uint64_t few[64], *packed = few;
  if (e->n_scalars > (int32_t)TERN_COUNT(few) && !(packed = malloc((size_t)e->n_scalars * sizeof *packed)))
    return tern_error_new(TERN_OUT_OF_MEMORY, "no host memory for %d scalars", e->n_scalars);
  tern_status status = NULL;
  for (int doubles = 0; doubles < 2 && !status; doubles++) {
    int64_t n = 0;
    for (int32_t i = 0; i < e->n_scalars; i++)
      if ((e->scalar_dtypes[i] == TERN_F64) == doubles) packed[n++] = e->scalar_dtypes[i] == TERN_BOOL ? scalars[i] & 0xFF : scalars[i];
    if (!n) continue;
    int64_t count = doubles ? n : 2 * n;
    pjrt_event *done;
    pjrt_buffer **buffer = doubles ? &s->doubles : &s->words;
    status = tern_pjrt_status(api, tern_pjrt_buffer_from_host(e->device, doubles ? PJRT_TYPE_F64 : PJRT_TYPE_U32, &count, 1, packed, buffer, &done),
                              "PJRT_Client_BufferFromHostBuffer");
    if (!status) status = tern_pjrt_await(api, done, "PJRT_Client_BufferFromHostBuffer");
    s->arguments[doubles ? signature->doubles_argument : signature->words_argument] = *buffer;
  }
  if (packed != few) free(packed);
  return tern_error_prefix(status, "cannot hand scalars to %s:%d", e->device->name, e->device->ordinal);
}

/* Lists the arguments, and those that must be kept: promised to a result at compile time, but not given away in this launch, or passed twice. */
static tern_status list_arguments(const tern_executable *e, const tern_launch *launch, launch_scratch *s) {
  const tern_pjrt_signature *signature = &e->signature;
  for (int32_t i = 0; i < e->n_parameters; i++) launch->inputs[i]->uses = 0;
  for (int32_t i = 0; i < e->n_parameters; i++) {
    tern_memory *memory = launch->inputs[i];
    if (memory->lost) return tern_error_new(TERN_PLUGIN_FAILED, "the contents of input %d were lost when the plug-in failed in an earlier launch", i);
    memory->uses++;
  }
  for (int32_t i = 0; i < e->n_parameters; i++) {
    int32_t argument = signature->parameter_argument[i];
    if (argument < 0) continue;
    s->arguments[argument] = launch->inputs[i]->buffer;
    if (signature->aliased_result[i] >= 0 && (!launch->donated[i] || launch->inputs[i]->uses > 1)) s->kept[s->n_kept++] = argument;
  }
  return NULL;
}

static bool was_kept(const launch_scratch *s, int32_t argument) {
  for (size_t k = 0; k < s->n_kept; k++)
    if (s->kept[k] == argument) return true;
  return false;
}

static tern_status run(const tern_executable *e, launch_scratch *s) {
  const pjrt_api *api = e->device->client->api;
  pjrt_execute_options options = {.struct_size = sizeof options, .non_donatable_input_indices = s->kept, .num_non_donatable_input_indices = s->n_kept};
  pjrt_buffer *const *const argument_lists[1] = {s->arguments};
  pjrt_buffer **const output_lists[1] = {s->outputs};
  pjrt_event *event = NULL;
  TERN_PJRT_ARGS(LoadedExecutable_Execute, execute, .executable = e->loaded, .options = &options, .argument_lists = argument_lists, .num_devices = 1,
                 .num_args = (size_t)e->signature.n_arguments, .output_lists = output_lists, .device_complete_events = &event);
  TERN_TRY(tern_pjrt_status(api, api->LoadedExecutable_Execute(&execute), "PJRT_LoadedExecutable_Execute"));
  TERN_TRY(tern_pjrt_await(api, event, "PJRT_LoadedExecutable_Execute"));
  for (int32_t i = 0; i < e->signature.n_outputs; i++)
    if (!s->outputs[i]) return tern_error_new(TERN_PLUGIN_FAILED, "PJRT_LoadedExecutable_Execute gave no output %d", i);
  return NULL;
}

/* Reads the checks' output: the failure of the first check that failed. */
static tern_status read_checks(const tern_executable *e, const launch_scratch *s, tern_launch *launch) {
  const tern_pjrt_signature *signature = &e->signature;
  if (!signature->n_checks) return NULL;
  int64_t n = 2 * (int64_t)signature->n_checks, few[32], *pairs = n <= 32 ? few : malloc((size_t)n * sizeof *pairs);
  if (!pairs) return tern_error_new(TERN_OUT_OF_MEMORY, "no host memory for the outcome of %d checks", signature->n_checks);
  tern_memory outcome = {.buffer = s->outputs[signature->checks_output], .bytes = (size_t)n * sizeof *pairs, .dtype = TERN_I64, .rank = 1, .dims = {n}};
  tern_status status = tern_pjrt_download(e->device, &outcome, pairs, outcome.bytes);
  for (int32_t c = 0; c < signature->n_checks && !status; c++) {
    if (pairs[2 * c]) continue;
    launch->failed_tag = signature->checks[c].tag;
    launch->failed_index = pairs[2 * c + 1];
    status = tern_check_failure(&signature->checks[c].check, launch->failed_index);
  }
  if (pairs != few) free(pairs);
  return status;
}

/* Checks failed: each input that was taken over gets its old value back, which its result holds. */
static void restore_inputs(const tern_executable *e, launch_scratch *s, tern_launch *launch) {
  const tern_pjrt_signature *signature = &e->signature;
  for (int32_t i = 0; i < e->n_parameters; i++) {
    int32_t result = signature->aliased_result[i], argument = signature->parameter_argument[i];
    if (result < 0 || was_kept(s, argument)) continue;
    pjrt_buffer **output = &s->outputs[signature->result_output[result]];
    tern_pjrt_buffer_destroy(e->device->client->api, launch->inputs[i]->buffer);
    launch->inputs[i]->buffer = *output;
    *output = NULL;
  }
}

/* The plug-in failed: whatever it consumed on the way is gone. */
static void mark_lost_inputs(const tern_executable *e, const launch_scratch *s, tern_launch *launch) {
  const pjrt_api *api = e->device->client->api;
  if (!TERN_PJRT_HAS(api, Buffer_IsDeleted)) return;
  for (int32_t i = 0; i < e->n_parameters; i++) {
    int32_t argument = e->signature.parameter_argument[i];
    if (e->signature.aliased_result[i] < 0 || was_kept(s, argument)) continue;
    TERN_PJRT_ARGS(Buffer_IsDeleted, deleted, .buffer = launch->inputs[i]->buffer);
    tern_status status = tern_pjrt_status(api, api->Buffer_IsDeleted(&deleted), "PJRT_Buffer_IsDeleted");
    if (!status && deleted.is_deleted) {
      tern_pjrt_buffer_destroy(api, launch->inputs[i]->buffer);
      launch->inputs[i]->buffer = NULL;
      launch->inputs[i]->lost = true;
    }
    tern_error_free(status);
  }
}

/* Success: outputs become results, spent inputs go. */
static void hand_over(const tern_executable *e, launch_scratch *s, tern_launch *launch) {
  const tern_pjrt_signature *signature = &e->signature;
  int64_t bytes = 0;
  for (int32_t i = 0; i < e->n_results; i++) {
    int32_t output = signature->result_output[i];
    if (output >= 0) {
      s->fresh[i]->buffer = s->outputs[output];
      s->outputs[output] = NULL;
    }
    bytes += (int64_t)s->fresh[i]->bytes;
    launch->outputs[i] = s->fresh[i];
    s->fresh[i] = NULL;
  }
  /* Storage taken over is not in use twice: what is spent goes before what is new comes. */
  for (int32_t i = 0; i < e->n_parameters; i++) {
    if (!launch->donated[i] || !launch->inputs[i]) continue;
    tern_memory *spent = launch->inputs[i];
    for (int32_t j = i + 1; spent->uses > 1 && j < e->n_parameters; j++)
      if (launch->inputs[j] == spent) launch->inputs[j] = NULL;
    launch->inputs[i] = NULL;
    tern_pjrt_release(e->device, spent);
  }
  tern_pjrt_count(e->device, bytes, e->n_results);
}

tern_status tern_pjrt_execute(tern_executable *e, tern_launch *launch) {
  const pjrt_api *api = e->device->client->api;
  size_t n_arguments = (size_t)e->signature.n_arguments, n_outputs = (size_t)e->signature.n_outputs, n_results = (size_t)e->n_results;
  void *room = calloc(2 * n_arguments + n_outputs + n_results + 1, sizeof(void *));
  if (!room) return tern_error_new(TERN_OUT_OF_MEMORY, "no host memory for a launch");
  launch_scratch s = {.arguments = room, .outputs = (pjrt_buffer **)room + n_arguments};
  s.fresh = (tern_memory **)(s.outputs + n_outputs);
  _Static_assert(sizeof(int64_t) <= sizeof(void *), "room is counted in pointers");
  s.kept = (int64_t *)(s.fresh + n_results);

  tern_status status = NULL;
  for (int32_t i = 0; i < e->n_results && !status; i++)
    if (!(s.fresh[i] = tern_pjrt_memory_new(e->results[i].dtype, e->results[i].rank, e->results[i].dims)))
      status = tern_error_new(TERN_OUT_OF_MEMORY, "no host memory for the results of a launch");
  if (!status) status = list_arguments(e, launch, &s);
  if (!status && e->device->limit) {
    int64_t taken_over = 0;
    for (int32_t i = 0; i < e->n_parameters; i++)
      if (launch->donated[i]) taken_over += (int64_t)launch->inputs[i]->bytes;
    status = tern_pjrt_make_room(e->device, e->output_bytes - taken_over);
  }
  if (!status && e->loaded) {
    status = upload_scalars(e, launch->scalars, &s);
    if (!status) {
      status = run(e, &s);
      if (status) {
        mark_lost_inputs(e, &s, launch);
        status = tern_error_prefix(status, "a launch on %s:%d failed", e->device->name, e->device->ordinal);
      } else if ((status = read_checks(e, &s, launch))) {
        if (tern_is_check_failure(status))
          restore_inputs(e, &s, launch);
        else
          mark_lost_inputs(e, &s, launch);
      }
    }
  }
  if (!status) hand_over(e, &s, launch);

  tern_pjrt_buffer_destroy(api, s.words);
  tern_pjrt_buffer_destroy(api, s.doubles);
  for (size_t i = 0; i < n_outputs; i++) tern_pjrt_buffer_destroy(api, s.outputs[i]);
  for (size_t i = 0; i < n_results; i++) free(s.fresh[i]);
  free(room);
  return status;
}
