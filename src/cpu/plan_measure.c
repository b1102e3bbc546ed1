/* TERN_PRINT=plan, second part: what each step costs. After a few launches of an executable its steps are printed again with bytes, floating-point
 * operations (plan_cost.c), microseconds (the fastest launch of each step) and the share of what this machine can do (limits.c): of its arithmetic or of its memory,
 * whichever the step comes closer to. A share above 1 means that the data came from a cache.
 *
 * Called by plan_print.c and execute.c; nothing here runs without TERN_PRINT=plan. */
#include "../diag/diag.h"
#include "backend_device.h"
#include "plan_steps.h"

enum { LAUNCHES = 4 }; /* the first one meets cold memory; then it is printed */

struct tern_plan_times {
  char **lines;
  double *seconds;
  int launches;
};

void tern_plan_times_new(tern_executable *x, char **lines) {
  struct tern_plan_times *t = tern_arena_alloc(&x->arena, sizeof *t);
  if (!t) return;
  t->lines = lines;
  t->seconds = tern_arena_alloc(&x->arena, (size_t)(x->n_steps + 1) * sizeof *t->seconds);
  if (!t->seconds) return;
  for (int32_t s = 0; s < x->n_steps; s++) t->seconds[s] = 1e30;
  x->times = t;
}

void tern_plan_times_step(tern_executable *x, int32_t step, double seconds) {
  if (seconds < x->times->seconds[step]) x->times->seconds[step] = seconds;
}

void tern_plan_times_end(tern_executable *x) {
  struct tern_plan_times *t = x->times;
  if (++t->launches != LAUNCHES) return;
  double most_flops, most_bytes;
  tern_cpu_limits(x->device, &most_flops, &most_bytes);
  double all = 0;
  for (int32_t s = 0; s < x->n_steps; s++) all += t->seconds[s];
  tern_print("plan, the fastest of %d launches: %d steps, %.1f us; this machine's limits: %.0f GFLOP/s (f32), %.1f GB/s\n", LAUNCHES, x->n_steps, all * 1e6,
             most_flops * 1e-9, most_bytes * 1e-9);
  for (int32_t s = 0; s < x->n_steps; s++) {
    int64_t flops, bytes;
    tern_step_cost(&x->steps[s], &flops, &bytes);
    const double took = t->seconds[s] > 0 ? t->seconds[s] : 1e-9;
    const double arithmetic = (double)flops / took / most_flops, memory = (double)bytes / took / most_bytes;
    tern_print("  %3d %9.1f us %5.1f%% %10.0f KB %10.0f KFLOP  %4.0f%% of %s  %s\n", s, took * 1e6, 100 * took / all, (double)bytes / 1024, (double)flops / 1000,
               100 * (arithmetic > memory ? arithmetic : memory), arithmetic > memory ? "arithmetic" : "memory    ", t->lines[s] ? t->lines[s] : "");
  }
}
