/* Running an executable: give every location an address, run the steps in order, hand the results over. Called by backend.c; one launch per device at a time. */
#include "backend_device.h"

static tern_cpu_view view_at(char *const *base, const tern_place_view *v) {
  tern_cpu_view view = {.data = v->location < 0 ? NULL : base[v->location] + v->offset, .dtype = v->dtype, .rank = v->rank};
  for (int d = 0; d < v->rank; d++) {
    view.dims[d] = v->dims[d];
    view.strides[d] = v->strides[d];
  }
  return view;
}

/* ---- copies ---- */

typedef struct copy_job {
  const tern_block_machine *machine;
  const tern_copy_step *step;
  tern_cpu_view from, to;
} copy_job;

static void copy_piece(void *context, int64_t chunk, int thread) {
  (void)thread;
  const copy_job *job = context;
  const int d = job->step->pieces_dim;
  const int64_t n = job->to.dims[d], first = n * chunk / job->step->n_chunks, end = n * (chunk + 1) / job->step->n_chunks;
  const int64_t element = (int64_t)tern_dtype_size(job->to.dtype);
  tern_cpu_view from = job->from, to = job->to;
  from.dims[d] = to.dims[d] = end - first;
  from.data += first * from.strides[d] * element;
  to.data += first * to.strides[d] * element;
  job->machine->copy(&from, &to);
}

static void run_copy(const tern_copy_step *step, const tern_block_machine *machine, char *const *base) {
  copy_job job = {.machine = machine, .step = step, .from = view_at(base, &step->from), .to = view_at(base, &step->to)};
  if (step->n_chunks == 0) return; /* the result took the operand's storage over */
  if (step->n_chunks == 1) machine->copy(&job.from, &job.to);
  else tern_pool_run(step->n_chunks, copy_piece, &job);
}

/* ---- kernels ---- */

enum { FEW_VIEWS = 16 };

static tern_status run_kernel(const tern_kernel_step *k, char *const *base, char *scratch, tern_launch *launch) {
  tern_cpu_view few[FEW_VIEWS], *views = few;
  if (k->n_in + k->n_out > FEW_VIEWS) {
    views = malloc((size_t)(k->n_in + k->n_out) * sizeof *views);
    if (!views) return tern_error_new(TERN_OUT_OF_MEMORY, "no host memory to run '%s'", tern_op_rows[k->op.kind].name);
  }
  for (int32_t i = 0; i < k->n_in; i++) views[i] = view_at(base, &k->in[i]);
  for (int32_t i = 0; i < k->n_out; i++) views[k->n_in + i] = view_at(base, &k->out[i]);
  tern_kernel_context context = {.scratch = scratch};
  tern_status status = k->kernel->run(&k->op, views, views + k->n_in, &context);
  if (views != few) free(views);
  if (status && tern_is_check_failure(status)) {
    launch->failed_tag = k->op.tag;
    launch->failed_index = context.failed_index;
  }
  return status;
}

static inline tern_status run_step(const tern_executable *x, const tern_step *s, char *const *base, char *scratch, int64_t per_thread, tern_launch *launch) {
  const tern_block_machine *machine = x->kernels->blocks;
  switch (s->kind) {
    case TERN_STEP_GROUP: tern_group_run(s->group, machine, base, scratch, per_thread); break;
    case TERN_STEP_KERNEL: return run_kernel(s->kernel, base, scratch, launch);
    case TERN_STEP_COPY: run_copy(s->copy, machine, base); break;
    case TERN_STEP_FILL: {
      const tern_fill_step *f = s->fill;
      machine->fill(tern_dtype_size(f->value.dtype), base[f->value.location] + f->value.offset, f->count, base[f->location]);
    }
  }
  return NULL;
}

static tern_status run_steps(const tern_executable *x, char *const *base, char *scratch, int64_t per_thread, tern_launch *launch) {
  for (const tern_step *s = x->steps, *end = s + x->n_steps; s < end; s++) TERN_TRY(run_step(x, s, base, scratch, per_thread, launch));
  return NULL;
}

/* The same, timed: for a profiler that the launch tells, and for TERN_PRINT=plan. */
static tern_status run_steps_watched(tern_executable *x, char *const *base, char *scratch, int64_t per_thread, tern_launch *launch) {
  for (const tern_step *s = x->steps, *end = s + x->n_steps; s < end; s++) {
    tern_kernel_event event = {.kernel = tern_step_name(s), .tags = s->n_tags ? s->tags : &s->tag, .n_tags = s->n_tags ? s->n_tags : 1};
    tern_step_cost(s, &event.flops, &event.bytes);
    const double start = tern_now();
    TERN_TRY(run_step(x, s, base, scratch, per_thread, launch));
    const double finish = tern_now();
    event.start = (int64_t)(start * 1e9);
    event.end = (int64_t)(finish * 1e9);
    const bool in_place = s->kind == TERN_STEP_COPY && !s->copy->n_chunks; /* nothing ran */
    if (launch->on_kernel && !in_place) launch->on_kernel(launch->on_kernel_context, &event);
    if (x->times) tern_plan_times_step(x, (int32_t)(s - x->steps), finish - start);
  }
  if (x->times) tern_plan_times_end(x);
  return NULL;
}

/* ---- a launch ---- */

typedef struct launching {
  tern_executable *x;
  tern_launch *launch;
  tern_memory **fresh; /* per result: new memory, or NULL where it takes an input's */
  tern_memory **input; /* per parameter: what to read: the caller's, or a copy where a result needs to write it and it was not donated */
  char **base;
  char *slab;
} launching;

static tern_status check_inputs(const tern_executable *x, const tern_launch *launch) {
  for (int32_t i = 0; i < x->n_inputs; i++)
    if (!launch->inputs[i] || launch->inputs[i]->bytes < (size_t)x->input_bytes[i])
      return tern_error_new(TERN_INVALID_ARGUMENT, "input %d has %zu bytes, the program's parameter %lld", i, launch->inputs[i] ? launch->inputs[i]->bytes : 0,
                            (long long)x->input_bytes[i]);
  return NULL;
}

/* Everything that can run out of memory happens here, before a donated input is touched. */
static tern_status prepare(launching *l, int64_t slab_bytes) {
  tern_executable *x = l->x;
  tern_launch *launch = l->launch;
  for (int32_t i = 0; i < x->n_inputs; i++) l->input[i] = launch->inputs[i];
  for (int32_t r = 0; r < x->n_outputs; r++) {
    const int32_t takes = x->output_takes[r];
    if (takes >= 0 && launch->donated && launch->donated[takes]) continue;
    TERN_TRY(tern_cpu_memory_new(x->device, (size_t)x->output_bytes[r], &l->fresh[r]));
    if (takes < 0) continue;
    memcpy(l->fresh[r]->data, launch->inputs[takes]->data, (size_t)x->input_bytes[takes]);
    l->input[takes] = l->fresh[r];
  }
  void *slab = NULL;
  if (slab_bytes) TERN_TRY(tern_allocate(x->device->allocator, (size_t)slab_bytes, &slab));
  launch->temporary_bytes = slab_bytes;
  l->slab = slab;
  for (int32_t i = 0; i < x->n_locations; i++) {
    const tern_location *at = &x->locations[i];
    switch (at->place) {
      case TERN_PLACE_INPUT: l->base[i] = l->input[at->index]->data; break;
      case TERN_PLACE_SCALAR: l->base[i] = (char *)(uintptr_t)&launch->scalars[at->index]; break;
      case TERN_PLACE_CONSTANT: l->base[i] = x->constants + at->offset; break;
      case TERN_PLACE_SLAB: l->base[i] = l->slab + at->offset; break;
      case TERN_PLACE_OUTPUT: l->base[i] = l->fresh[at->index]->data; break;
    }
  }
  return NULL;
}

tern_status tern_cpu_execute(tern_executable *x, tern_launch *launch) {
  TERN_TRY(check_inputs(x, launch));
  const int64_t per_thread = (x->scratch + 63) & ~(int64_t)63, threads = tern_pool_threads();
  /* Kernels ask for scratch of their own; groups share theirs out among threads. */
  const int64_t scratch = per_thread * threads > x->kernel_scratch ? per_thread * threads : x->kernel_scratch;
  const size_t pointers = (size_t)(x->n_outputs + x->n_inputs + x->n_locations) + 1;
  void **table = calloc(pointers, sizeof *table);
  if (!table) return tern_error_new(TERN_OUT_OF_MEMORY, "no host memory to launch a program");
  launching l = {.x = x, .launch = launch, .fresh = (tern_memory **)table, .input = (tern_memory **)table + x->n_outputs,
                 .base = (char **)table + x->n_outputs + x->n_inputs};
  tern_status status = prepare(&l, x->slab + scratch);
  if (!status) status = launch->on_kernel || x->times ? run_steps_watched(x, l.base, l.slab + x->slab, per_thread, launch) : run_steps(x, l.base, l.slab + x->slab, per_thread, launch);
  tern_deallocate(x->device->allocator, l.slab);
  for (int32_t r = 0; r < x->n_outputs; r++) {
    if (status) {
      tern_cpu_memory_free(x->device, l.fresh[r]);
    } else if (l.fresh[r]) {
      launch->outputs[r] = l.fresh[r];
    } else {
      launch->outputs[r] = launch->inputs[x->output_takes[r]];
      l.input[x->output_takes[r]] = NULL;
    }
  }
  if (!status && launch->donated)
    for (int32_t i = 0; i < x->n_inputs; i++)
      if (launch->donated[i] && l.input[i]) tern_cpu_memory_free(x->device, launch->inputs[i]);
  free(table);
  return status;
}
