/* Execution: one queue of jobs per device, run in order by whoever holds the device's execution role: its worker thread, or a thread that waits for a result
 * and finds nobody running (then no thread has to be woken to compute what is wanted at once).
 *
 * Failure. When a program fails, its new results are poisoned, storages that it was to change keep their last good contents, and everything queued behind it is
 * discarded the same way, until the failure has been raised once to a caller that waits. A failed index check names the node: the nodes before it are run
 * again as a program of their own, so their effects stand, as if every operation had run on its own line.
 *
 * What an earlier failure poisoned spoils only what is made of it: the rest of a program that reads it runs. An operation that would write such a value into
 * a storage with good contents fails as if it had been raised there. */
#include <errno.h>
#include <unistd.h>
#include "internal.h"

void tern_failure_release(tern_failure *f) {
  if (!f || atomic_fetch_sub(&f->references, 1) != 1) return;
  tern_error_free(f->status);
  free(f);
}

static tern_failure *failure_retain(tern_failure *f) {
  if (f) atomic_fetch_add(&f->references, 1);
  return f;
}

static tern_failure *failure_new(tern_status status, const char *operation, uint32_t line) {
  tern_failure *f = malloc(sizeof *f);
  if (!f) {
    /* Without memory even for this: a static failure that is never freed. */
    static tern_failure last_resort = {.references = 1 << 30};
    tern_error_free(status);
    if (!last_resort.status) last_resort.status = tern_error_new(TERN_OUT_OF_MEMORY, "the host has no memory left");
    return &last_resort;
  }
  *f = (tern_failure){.references = 1, .status = status, .operation = operation, .line = line};
  return f;
}

/* The error as a caller sees it: operation, what was wrong, the user's line; below, what an error of several lines says more. */
static tern_status failure_status(const tern_failure *f) {
  char place[256];
  tern_line_describe(f->line, place, sizeof place);
  const char *message = tern_error_message(f->status), *more = strchrnul(message, '\n');
  tern_code code = tern_error_code(f->status);
  if (f->operation && place[0]) return tern_error_new(code, "%s: %.*s (recorded at %s)%s", f->operation, (int)(more - message), message, place, more);
  if (f->operation) return tern_error_new(code, "%s: %s", f->operation, message);
  return tern_error_clone(f->status);
}

void tern_job_free(tern_device *device, tern_job *job) {
  for (uint32_t i = 0; i < job->recording->n_locals; i++) {
    tern_version_release(job->inputs[i]);
    tern_version_release(job->outputs[i]);
  }
  tern_lock_take(&tern_record_lock);
  tern_recording_give_back(device, job->recording);
  tern_lock_give(&tern_record_lock);
  free(job->inputs);
  free(job->outputs);
  free(job);
}

/* ---- finishing a job's versions ---- */

static void publish(tern_version *v, tern_memory *memory) {
  v->memory = TERN_UNLIKELY(v->pin != NULL) ? tern_pin_settle(v->device, v->pin, memory) : memory;
  atomic_store_explicit(&v->state, TERN_VERSION_READY, memory_order_release);
}

static void poison(tern_version *v, tern_failure *failure) {
  v->failure = failure_retain(failure);
  atomic_store_explicit(&v->state, TERN_VERSION_FAILED, memory_order_release);
}

/* Gives `to` the contents of `from`: by taking the memory over where nobody else can see it, else by a copy. */
static bool inherit(tern_device *device, tern_version *to, tern_version *from, const tern_base *base) {
  if (!from || atomic_load(&from->state) != TERN_VERSION_READY) return false;
  if (atomic_load(&from->references) == 1) {
    tern_memory *memory = from->memory;
    from->memory = NULL;
    atomic_store_explicit(&to->address, atomic_exchange_explicit(&from->address, 0, memory_order_relaxed), memory_order_relaxed);
    publish(to, memory);
    return true;
  }
  const tern_backend *backend = device->backend;
  size_t bytes = backend->size(from->memory);
  void *host = malloc(bytes ? bytes : 1);
  tern_memory *memory = NULL;
  tern_status status = host ? backend->download(device->hardware, from->memory, host, bytes) : tern_error_new(TERN_OUT_OF_MEMORY, "no host memory");
  if (!status) status = backend->upload(device->hardware, base->dtype, base->rank, base->dims, host, &memory);
  free(host);
  if (status) {
    tern_error_free(status);
    return false;
  }
  publish(to, memory);
  return true;
}

/* What the recording's introduction said about a local's old contents. */
static void old_base(const tern_recording *r, uint32_t local, tern_base *out) {
  *out = (tern_base){.dtype = TERN_U8};
  for (uint32_t n = 0; n < r->n_nodes; n++)
    for (const uint64_t *w = r->words + r->nodes[n].start; (*w & 0xFF) == TERN_WORD_BUFFER; w += 2 + (*w >> 16 & 0xFF)) {
      if (*w >> 32 != local) continue;
      out->dtype = (tern_dtype)(*w >> 8 & 0xFF);
      out->rank = (int32_t)(*w >> 16 & 0xFF);
      for (int d = 0; d < out->rank; d++) out->dims[d] = (int64_t)w[2 + d];
      return;
    }
}

/* Nothing of this job will be computed: storages keep what they had, new results are poisoned. */
static void discard(tern_device *device, tern_job *job, tern_failure *failure) {
  for (uint32_t i = 0; i < job->recording->n_locals; i++) {
    tern_version *v = job->outputs[i];
    if (!v || atomic_load(&v->state) != TERN_VERSION_PENDING) continue;
    tern_base base;
    old_base(job->recording, i, &base);
    if (!inherit(device, v, job->inputs[i], &base)) poison(v, failure);
  }
}

/* ---- running a job ---- */

typedef struct launch_arrays {
  tern_memory **inputs, **outputs;
  bool *donated;
} launch_arrays;

static void launch_arrays_free(launch_arrays *a) {
  free(a->inputs);
  free(a->outputs);
  free(a->donated);
}

/* What a launch took for its intermediates and gave back: two events, named after the program's last operation. */
static void note_temporary(tern_device *device, const tern_job *job, int64_t bytes) {
  if (!bytes) return;
  const tern_recording *r = job->recording;
  tern_memory_event event = {.device = device->ordinal, .address = tern_history_address(bytes), .bytes = bytes, .operation = "intermediates of a program",
                             .line = r->nodes[r->n_nodes - 1].line};
  event.action = TERN_MEMORY_MADE;
  tern_history_note(event);
  event.action = TERN_MEMORY_FREED;
  tern_history_note(event);
}

/* Executes a program on the job's versions. On success the results are in the job's output versions. */
static tern_status launch(tern_device *device, tern_job *job, const tern_cached_program *program, uint32_t *failed_tag) {
  launch_arrays a = {.inputs = calloc(program->n_parameters + 1, sizeof *a.inputs),
                     .outputs = calloc(program->n_results + 1, sizeof *a.outputs),
                     .donated = calloc(program->n_parameters + 1, sizeof *a.donated)};
  tern_status status = a.inputs && a.outputs && a.donated ? NULL : tern_error_new(TERN_OUT_OF_MEMORY, "no host memory to run a program");
  for (uint32_t i = 0; i < program->n_parameters && !status; i++) {
    uint32_t local = program->parameter_locals[i];
    tern_version *v = job->inputs[local];
    if (!v || !v->memory) {
      status = tern_error_new(TERN_INTERNAL, "a program's input has no contents");
      break;
    }
    a.inputs[i] = v->memory;
    a.donated[i] = program->replaced[i] && !v->pin && atomic_load(&v->references) == 1; /* what is seen outside is no scratch memory */
  }
  tern_launch l = {.inputs = a.inputs, .donated = a.donated, .scalars = job->recording->scalars, .outputs = a.outputs};
  if (!status) {
    tern_profile_launch profile = {.recording = job->recording, .device = device->ordinal, .program = program->number};
    const bool profiled = TERN_UNLIKELY(atomic_load_explicit(&tern_profiling, memory_order_relaxed));
    if (profiled) l.on_kernel = tern_profile_kernel, l.on_kernel_context = &profile;
    const double start = profiled ? tern_now() : 0;
    status = device->backend->execute(program->executable, &l);
    if (profiled && !status) tern_profile_program(&profile, (int64_t)(start * 1e9), (int64_t)(tern_now() * 1e9));
    for (uint32_t i = 0; i < program->n_parameters; i++) {
      tern_version *v = job->inputs[program->parameter_locals[i]];
      bool gone = !status && a.donated[i];
      if (TERN_UNLIKELY(gone && atomic_load_explicit(&v->address, memory_order_relaxed))) tern_history_freed(v, v->memory);
      v->memory = gone ? NULL : a.inputs[i];
    }
    *failed_tag = status && tern_is_check_failure(status) ? l.failed_tag : 0;
  }
  bool noted = atomic_load_explicit(&tern_history_on, memory_order_relaxed);
  if (TERN_UNLIKELY(noted && !status)) note_temporary(device, job, l.temporary_bytes);
  for (uint32_t i = 0; i < program->n_results && !status; i++) {
    tern_version *v = job->outputs[program->result_locals[i]];
    publish(v, a.outputs[i]);
    if (TERN_UNLIKELY(noted)) {
      const tern_recorded_node *writer = &job->recording->nodes[job->recording->locals[program->result_locals[i]].last_write - 1];
      tern_history_made(v, writer->operation->name, writer->line);
    }
  }
  launch_arrays_free(&a);
  return status;
}

/* Compiles the first n_nodes nodes of the job but those that `skipped` (or NULL) marks. */
static tern_status compile(tern_device *device, const tern_job *job, uint32_t n_nodes, const bool *skipped, tern_cached_program **out, uint32_t *failed_node) {
  const tern_recording *r = job->recording;
  double start = tern_now();
  *failed_node = n_nodes;
  bool *wanted = calloc(r->n_locals + 1, sizeof *wanted);
  tern_cached_program *program = calloc(1, sizeof *program);
  tern_lowered lowered = {0};
  tern_status status = wanted && program ? NULL : tern_error_new(TERN_OUT_OF_MEMORY, "no host memory for a program");
  for (uint32_t i = 0; i < r->n_locals && !status; i++) wanted[i] = job->outputs[i] != NULL;
  if (!status) status = tern_lower(r, n_nodes, skipped, wanted, &lowered, failed_node);
  if (!status && tern_setting_has(TERN_SETTING_PRINT, "ir")) {
    char *text = tern_program_text(lowered.program);
    if (text) tern_print("# program of %u operations\n%s\n", n_nodes, text);
    free(text);
  }
  tern_backend_stats before, after;
  device->backend->stats(device->hardware, &before);
  if (!status) status = device->backend->compile(device->hardware, lowered.program, &program->executable);
  device->backend->stats(device->hardware, &after);
  if (!status) {
    program->n_parameters = lowered.n_parameters;
    program->n_results = lowered.n_results;
    program->parameter_locals = malloc((lowered.n_parameters + 1) * sizeof(uint32_t));
    program->result_locals = malloc((lowered.n_results + 1) * sizeof(uint32_t));
    program->replaced = calloc(lowered.n_parameters + 1, sizeof(bool));
    if (program->parameter_locals && program->result_locals && program->replaced) {
      for (int32_t i = 0; i < lowered.program->n_results; i++)
        if (lowered.program->results[i].reuses >= 0) program->replaced[lowered.program->results[i].reuses] = true;
      memcpy(program->parameter_locals, lowered.parameter_locals, lowered.n_parameters * sizeof(uint32_t));
      memcpy(program->result_locals, lowered.result_locals, lowered.n_results * sizeof(uint32_t));
    } else {
      status = tern_error_new(TERN_OUT_OF_MEMORY, "no host memory for a program");
    }
  }
  tern_program_free(lowered.program);
  free(wanted);
  if (status) {
    tern_cached_program_free(device, program);
    program = NULL;
  }
  double seconds = tern_now() - start;
  atomic_fetch_add(&tern_count.compile_nanoseconds, (long long)(seconds * 1e9));
  bool from_disk = after.loaded > before.loaded;
  atomic_fetch_add(from_disk ? &tern_count.loaded : &tern_count.compiled, 1);
  const tern_compile_entry *entry = status ? NULL : tern_compile_note(r, n_nodes, seconds, from_disk);
  if (entry && program) program->number = entry->number;
  if (entry && tern_setting_has(TERN_SETTING_PRINT, "compiles")) {
    char place[256], changed[256];
    tern_line_describe(entry->line, place, sizeof place);
    tern_line_describe(entry->changed_line, changed, sizeof changed);
    tern_print("tern: %s program %lld: %u operations in %.1f ms, up to %s; %s%s%s\n", from_disk ? "loaded" : "compiled", (long long)entry->number, n_nodes, seconds * 1e3,
               place[0] ? place : "?", entry->reason, changed[0] ? " at " : "", changed);
  }
  *out = program;
  return status;
}

/* Runs nodes of the job as a program of their own, which is not kept. */
static tern_status run_some(tern_device *device, tern_job *job, uint32_t n_nodes, const bool *skipped, uint32_t *failed_node) {
  *failed_node = n_nodes;
  if (!n_nodes) return NULL;
  tern_cached_program *program;
  uint32_t failed_tag = 0;
  tern_status status = compile(device, job, n_nodes, skipped, &program, failed_node);
  if (!status) status = launch(device, job, program, &failed_tag);
  if (failed_tag) *failed_node = failed_tag - 1;
  tern_cached_program_free(device, program);
  return status;
}

/* Names the node for which there was no memory among the first n_nodes, and says what its results take. */
static uint32_t blame_memory(tern_device *device, const tern_job *job, uint32_t n_nodes, tern_status *status) {
  const tern_recording *r = job->recording;
  bool *dies = calloc((size_t)r->n_locals + 1, sizeof *dies);
  if (!dies) return n_nodes;
  for (uint32_t i = 0; i < r->n_locals; i++) dies[i] = !job->outputs[i] && (!job->inputs[i] || atomic_load(&job->inputs[i]->references) == 1);
  tern_backend_stats stats;
  device->backend->stats(device->hardware, &stats);
  size_t bytes;
  uint32_t node = tern_recording_blame_memory(r, n_nodes, dies, stats.memory.bytes.current, tern_device_memory_may_hold(device), &bytes);
  if (status && atomic_load_explicit(&tern_history_on, memory_order_relaxed))
    tern_history_note((tern_memory_event){.action = TERN_MEMORY_REFUSED, .device = device->ordinal, .address = (uint64_t)stats.memory.bytes.current, .bytes = (int64_t)bytes,
                                          .line = node < r->n_nodes ? r->nodes[node].line : 0, .operation = node < r->n_nodes ? r->nodes[node].operation->name : NULL});
  free(dies);
  if (status && bytes) {
    char size[32];
    tern_status longer = tern_error_new(TERN_OUT_OF_MEMORY, "%s; the result of this operation takes %s", tern_error_message(*status),
                                        tern_bytes_text((int64_t)bytes, size, sizeof size));
    tern_error_free(*status);
    *status = longer;
  }
  return node;
}

/* A new failure at a node: those before it run on their own, so that their effects stand; everything behind is discarded. */
static tern_failure *fail_at(tern_device *device, tern_job *job, uint32_t failed_node, const bool *skipped, tern_status status) {
  const tern_recording *r = job->recording;
  if (tern_error_code(status) == TERN_OUT_OF_MEMORY) {
    if (failed_node >= r->n_nodes) failed_node = blame_memory(device, job, r->n_nodes, &status);
    status = tern_shortage_report(device, status);
  }
  const tern_recorded_node *node = failed_node < r->n_nodes ? &r->nodes[failed_node] : NULL;
  tern_failure *failure = failure_new(status, node ? node->operation->name : NULL, node ? node->line : r->nodes[r->n_nodes - 1].line);
  while (node && failed_node) {
    uint32_t ignored;
    tern_status again = run_some(device, job, failed_node, skipped, &ignored);
    tern_code code = tern_error_code(again);
    tern_error_free(again); /* the first failure is the one to report */
    if (code != TERN_OUT_OF_MEMORY) break;
    /* Even those do not fit together: fewer. */
    uint32_t fewer = blame_memory(device, job, failed_node, NULL);
    failed_node = fewer < failed_node ? fewer : failed_node - 1;
  }
  return failure;
}

/* The program, from the cache or compiled. Gives the device's new failure, or NULL. */
static tern_failure *run_whole(tern_device *device, tern_job *job) {
  const tern_recording *r = job->recording;
  uint64_t hash = tern_hash_bytes(r->words, r->n_words * sizeof *r->words, 0);
  tern_cached_program *program = tern_cache_find(&device->cache, r->words, r->n_words, hash);
  tern_status status = NULL;
  uint32_t failed_node = r->n_nodes, failed_tag = 0;
  if (program) atomic_fetch_add_explicit(&tern_count.hits, 1, memory_order_relaxed);
  else {
    status = compile(device, job, r->n_nodes, NULL, &program, &failed_node);
    if (!status && (status = tern_cache_add(device, r->words, r->n_words, hash, program))) tern_cached_program_free(device, program);
  }
  if (!status) {
    status = launch(device, job, program, &failed_tag);
    if (status && tern_error_code(status) == TERN_OUT_OF_MEMORY) {
      /* What earlier programs left for reuse may be what is missing. */
      tern_error_free(status);
      device->backend->empty_cache(device->hardware);
      status = launch(device, job, program, &failed_tag);
    }
    atomic_fetch_add(&tern_count.programs, 1);
  }
  if (failed_tag) failed_node = failed_tag - 1;
  return status ? fail_at(device, job, failed_node, NULL, status) : NULL;
}

/* The job reads contents that an earlier program failed to make: runs what does not depend on them and poisons the rest. Gives the device's new failure. */
static tern_failure *run_around_failures(tern_device *device, tern_job *job) {
  const tern_recording *r = job->recording;
  const tern_failure **failures = calloc((size_t)r->n_locals + 1, sizeof *failures), *raised = NULL;
  bool *skipped = calloc((size_t)r->n_nodes + 1, sizeof *skipped), *visible = calloc((size_t)r->n_locals + 1, sizeof *visible);
  tern_failure *failure = NULL;
  if (failures && skipped && visible) {
    for (uint32_t i = 0; i < r->n_locals; i++) {
      visible[i] = job->outputs[i] != NULL;
      if (job->inputs[i] && atomic_load(&job->inputs[i]->state) == TERN_VERSION_FAILED) failures[i] = job->inputs[i]->failure;
    }
    uint32_t n_nodes = tern_recording_spread_failures(r, visible, failures, skipped, &raised), failed_node;
    tern_status status = run_some(device, job, n_nodes, skipped, &failed_node);
    if (status) failure = fail_at(device, job, failed_node, skipped, status);
    else if (raised) failure = failure_retain((tern_failure *)raised);
    for (uint32_t i = 0; i < r->n_locals && !failure; i++)
      if (job->outputs[i] && failures[i] && atomic_load(&job->outputs[i]->state) == TERN_VERSION_PENDING) poison(job->outputs[i], (tern_failure *)failures[i]);
  } else {
    failure = failure_new(tern_error_new(TERN_OUT_OF_MEMORY, "no host memory to run a program"), NULL, 0);
  }
  free(failures);
  free(skipped);
  free(visible);
  return failure;
}

static void run_job(tern_device *device, tern_job *job) {
  pthread_mutex_lock(&device->lock);
  tern_failure *failure = failure_retain(device->failure);
  pthread_mutex_unlock(&device->lock);
  if (!failure) {
    bool reads_failed = false;
    for (uint32_t i = 0; i < job->recording->n_locals && !reads_failed; i++)
      reads_failed = job->inputs[i] && atomic_load(&job->inputs[i]->state) == TERN_VERSION_FAILED;
    failure = reads_failed ? run_around_failures(device, job) : run_whole(device, job);
    if (failure) {
      pthread_mutex_lock(&device->lock);
      if (!device->failure) device->failure = failure_retain(failure);
      pthread_mutex_unlock(&device->lock);
    }
  }
  if (failure) discard(device, job, failure);
  tern_failure_release(failure);
}

/* ---- the queue ---- */

void tern_submit(tern_device *device, tern_job *job) {
  pthread_mutex_lock(&device->lock);
  if (device->last_job) device->last_job->next = job;
  else device->first_job = job;
  device->last_job = job;
  device->n_jobs++;
  device->submitted = job->recording->id;
  pthread_mutex_unlock(&device->lock);
}

/* Takes and runs the first job. The lock is held on entry and on exit; nobody is busy and there is a job. */
static void run_first(tern_device *device) {
  tern_job *job = device->first_job;
  device->first_job = job->next;
  if (!device->first_job) device->last_job = NULL;
  device->busy = true;
  uint64_t position = job->recording->id;
  pthread_mutex_unlock(&device->lock);
  double start = tern_now();
  run_job(device, job);
  atomic_fetch_add_explicit(&device->busy_nanoseconds, (long long)((tern_now() - start) * 1e9), memory_order_relaxed);
  tern_job_free(device, job);
  pthread_mutex_lock(&device->lock);
  device->busy = false;
  device->n_jobs--;
  tern_position_reached(device, position);
  pthread_cond_broadcast(&device->changed);
}

static void *work(void *argument) {
  tern_device *device = argument;
  pthread_mutex_lock(&device->lock);
  for (;;) {
    if (device->first_job && !device->busy) run_first(device);
    else pthread_cond_wait(&device->changed, &device->lock);
  }
  return NULL;
}

tern_status tern_worker_start(tern_device *device) {
  pthread_t thread;
  int error = pthread_create(&thread, NULL, work, device);
  if (error) return tern_error_new(TERN_INTERNAL, "cannot start the device's thread: %s", strerror(error));
  pthread_detach(thread);
  return NULL;
}

void tern_worker_wake(tern_device *device) {
  pthread_mutex_lock(&device->lock);
  if (!device->busy) pthread_cond_broadcast(&device->changed);
  pthread_mutex_unlock(&device->lock);
}

void tern_wait_backlog(tern_device *device, int most) {
  if (atomic_load_explicit(&device->n_jobs, memory_order_relaxed) <= most) return;
  pthread_mutex_lock(&device->lock);
  while (device->n_jobs > most) {
    if (device->first_job && !device->busy) run_first(device);
    else pthread_cond_wait(&device->changed, &device->lock);
  }
  pthread_mutex_unlock(&device->lock);
}

/* For the version, or else for the position. */
static tern_status wait_until(tern_device *device, tern_version *version, uint64_t position) {
  pthread_mutex_lock(&device->lock);
  for (;;) {
    bool done = version ? atomic_load_explicit(&version->state, memory_order_acquire) != TERN_VERSION_PENDING : device->reached >= position;
    if (done) break;
    if (device->first_job && !device->busy) {
      run_first(device);
    } else if (device->busy) {
      pthread_cond_wait(&device->changed, &device->lock);
    } else {
      /* No job is left that could finish the version: never wait for ever. */
      pthread_mutex_unlock(&device->lock);
      return tern_error_new(TERN_INTERNAL, "internal error: a tensor's contents are pending but no program makes them; please report it");
    }
  }
  tern_failure *failure = device->failure;
  device->failure = NULL;
  pthread_mutex_unlock(&device->lock);
  if (!failure && version && atomic_load(&version->state) == TERN_VERSION_FAILED) failure = failure_retain(version->failure);
  tern_status status = failure ? failure_status(failure) : NULL;
  tern_failure_release(failure);
  return status;
}

tern_status tern_wait(tern_device *device, tern_version *version) { return wait_until(device, version, device->submitted); }
tern_status tern_wait_position(tern_device *device, uint64_t position) { return wait_until(device, NULL, position); }
