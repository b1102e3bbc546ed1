/* TERN_PRINT=plan, second part: what each step costs. After a few launches of an executable its steps are printed again with bytes, floating-point
 * operations, microseconds (the fastest launch of each step) and the share of what this machine can do: of its arithmetic or of its memory, whichever the
 * step comes closer to. Both limits are measured once, here, on the pool: the first with nothing but multiply-adds, the second by reading and writing arrays
 * that no cache holds. A share above 1 means that the data came from a cache.
 *
 * Called by plan_print.c and execute.c; nothing here runs without TERN_PRINT=plan. */
#include <stdlib.h>
#include "../diag/diag.h"
#include "plan_steps.h"

enum { LAUNCHES = 4 }; /* the first one meets cold memory; then it is printed */

struct tern_plan_times {
  char **lines;
  double *seconds, began;
  int launches;
};

/* ---- the machine's limits ---- */

typedef struct limits { double flops, bandwidth; } limits; /* per second */

enum { PIECE = 1 << 20, PIECES = 64, PEAK_ROUNDS = 100000 };

typedef struct limit_job {
  const tern_kernel_table *kernels;
  char *memory;
  double flops;
} limit_job;

static void peak_chunk(void *context, int64_t chunk, int thread) {
  limit_job *job = context;
  (void)thread;
  const double flops = job->kernels->peak(PEAK_ROUNDS);
  if (chunk == 0) job->flops = flops;
}
/* Half of the array is added to the other half: two reads and a write. */
static void memory_chunk(void *context, int64_t chunk, int thread) {
  (void)thread;
  const limit_job *job = context;
  char *to = job->memory + chunk * PIECE, *from = to + (int64_t)PIECES * PIECE;
  job->kernels->blocks->operation[TERN_OP_ADD][TERN_F32](to, to, from, NULL, PIECE / 4);
}

static limits measure_limits(const tern_kernel_table *kernels) {
  static limits known; /* written with about the same value by whoever comes first */
  if (known.flops > 0) return known;
  limits found = {1, 1};
  limit_job job = {.kernels = kernels};
  const int threads = tern_pool_threads();
  for (int i = 0; i < 5; i++) {
    const double start = tern_now();
    tern_pool_run(threads, peak_chunk, &job);
    const double flops = job.flops * threads / (tern_now() - start);
    if (flops > found.flops) found.flops = flops;
  }
  job.memory = malloc((size_t)2 * PIECES * PIECE);
  if (job.memory) {
    memset(job.memory, 0, (size_t)2 * PIECES * PIECE);
    for (int i = 0; i < 4; i++) {
      const double start = tern_now();
      tern_pool_run(PIECES, memory_chunk, &job);
      const double bandwidth = 3.0 * PIECES * PIECE / (tern_now() - start);
      if (bandwidth > found.bandwidth) found.bandwidth = bandwidth;
    }
    free(job.memory);
  }
  known = found;
  return known;
}

/* ---- what a step must do ---- */

static double view_bytes(const tern_place_view *v) {
  double bytes = v->location < 0 ? 0 : (double)tern_dtype_size(v->dtype);
  for (int d = 0; d < v->rank; d++) bytes *= v->strides[d] == 0 ? 1 : (double)v->dims[d];
  return bytes;
}
static double view_count(const tern_place_view *v) { return (double)tern_dims_count(v->rank, v->dims); }

static double kernel_flops(const tern_kernel_step *k) {
  const tern_attrs *attrs = k->op.attrs;
  switch ((tern_op_kind)k->op.kind) {
    case TERN_OP_DOT: {
      double length = 1;
      for (int i = 0; i < attrs->dot.n_contract; i++) length *= (double)k->in[0].dims[attrs->dot.lhs_contract[i]];
      return 2 * view_count(&k->out[0]) * length;
    }
    /* Each output element meets one group's channels of its window: the weight's elements over the output channels. */
    case TERN_OP_CONV: return 2 * view_count(&k->out[0]) * view_count(&k->in[1]) / (double)k->in[1].dims[0];
    case TERN_OP_CONV_INPUT_GRAD: return 2 * view_count(&k->in[0]) * view_count(&k->in[1]) / (double)k->in[1].dims[0];
    case TERN_OP_CONV_WEIGHT_GRAD: return 2 * view_count(&k->in[1]) * view_count(&k->out[0]) / (double)k->out[0].dims[0];
    case TERN_OP_ATTENTION:
    case TERN_OP_ATTENTION_GRAD: { /* two products forward, five backward; half of them where it is causal */
      const bool grad = k->op.kind == TERN_OP_ATTENTION_GRAD;
      const tern_place_view *q = &k->in[grad ? 1 : 0], *key = &k->in[grad ? 2 : 1], *value = &k->in[grad ? 3 : 2];
      const double scores = view_count(q) / (double)q->dims[3] * (double)key->dims[2] * (attrs->ints[0] ? 0.5 : 1);
      return 2 * scores * (double)(grad ? 3 * q->dims[3] + 2 * value->dims[3] : q->dims[3] + value->dims[3]);
    }
    default: return view_count(&k->out[0]);
  }
}

static void step_cost(const tern_step *s, double *bytes, double *flops) {
  *bytes = *flops = 0;
  if (s->kind == TERN_STEP_GROUP) {
    const tern_group *g = s->group;
    for (int32_t i = 0; i < g->n_sources; i++) {
      const tern_source *source = &g->sources[i];
      double elements = source->kind == TERN_SOURCE_IOTA ? 0 : 1;
      for (int d = 0; d < source->walk.rank; d++) elements *= source->walk.strides[d] == 0 ? 1 : (double)source->walk.dims[d];
      *bytes += elements * source->walk.element;
    }
    for (int32_t i = 0; i < g->n_sinks; i++) *bytes += (double)g->count * g->sinks[i].element;
    *flops = (double)g->count * (g->n_instructions + g->n_reducers);
  } else if (s->kind == TERN_STEP_KERNEL) {
    const tern_kernel_step *k = s->kernel;
    for (int32_t i = 0; i < k->n_in; i++) *bytes += view_bytes(&k->in[i]);
    for (int32_t i = 0; i < k->n_out; i++) *bytes += view_bytes(&k->out[i]);
    if (k->n_out) *flops = kernel_flops(k);
  } else if (s->kind == TERN_STEP_COPY) {
    if (s->copy->n_chunks) *bytes = 2 * view_bytes(&s->copy->to);
  } else {
    *bytes = (double)s->fill->count * (double)tern_dtype_size(s->fill->value.dtype);
  }
}

/* ---- measuring ---- */

void tern_plan_times_new(tern_executable *x, char **lines) {
  struct tern_plan_times *t = tern_arena_alloc(&x->arena, sizeof *t);
  if (!t) return;
  t->lines = lines;
  t->seconds = tern_arena_alloc(&x->arena, (size_t)(x->n_steps + 1) * sizeof *t->seconds);
  if (!t->seconds) return;
  for (int32_t s = 0; s < x->n_steps; s++) t->seconds[s] = 1e30;
  x->times = t;
}

void tern_plan_times_begin(tern_executable *x) { x->times->began = tern_now(); }

void tern_plan_times_step(tern_executable *x, int32_t step) {
  const double now = tern_now(), took = now - x->times->began;
  if (took < x->times->seconds[step]) x->times->seconds[step] = took;
  x->times->began = tern_now();
}

void tern_plan_times_end(tern_executable *x) {
  struct tern_plan_times *t = x->times;
  if (++t->launches != LAUNCHES) return;
  const limits most = measure_limits(x->kernels);
  double all = 0;
  for (int32_t s = 0; s < x->n_steps; s++) all += t->seconds[s];
  tern_print("plan, the fastest of %d launches: %d steps, %.1f us; this machine's limits: %.0f GFLOP/s (f32), %.1f GB/s\n", LAUNCHES, x->n_steps, all * 1e6,
             most.flops * 1e-9, most.bandwidth * 1e-9);
  for (int32_t s = 0; s < x->n_steps; s++) {
    double bytes, flops;
    step_cost(&x->steps[s], &bytes, &flops);
    const double took = t->seconds[s] > 0 ? t->seconds[s] : 1e-9, arithmetic = flops / took / most.flops, memory = bytes / took / most.bandwidth;
    tern_print("  %3d %9.1f us %5.1f%% %10.0f KB %10.0f KFLOP  %4.0f%% of %s  %s\n", s, took * 1e6, 100 * took / all, bytes / 1024, flops / 1000,
               100 * (arithmetic > memory ? arithmetic : memory), arithmetic > memory ? "arithmetic" : "memory    ", t->lines[s] ? t->lines[s] : "");
  }
}
