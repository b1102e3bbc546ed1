/* plan_steps: what the planner's files share while they build one executable. */
#ifndef TERN_CPU_PLAN_STEPS_H
#define TERN_CPU_PLAN_STEPS_H
#include "../opt/fuse.h"
#include "plan.h"

typedef struct tern_planner {
  const tern_program *program;
  tern_executable *out;
  tern_arena scratch;            /* freed when planning ends */
  tern_value_view *views;        /* per value */
  tern_fusion fusion;
  int32_t *location;             /* per value (roots only): its location or -1 */
  int32_t *step_ops, *first_op;  /* operations of step s: step_ops[first_op[s] .. first_op[s + 1]), in program order */
  const uint32_t *tags;          /* of the operations of the step that is being emitted */
  int32_t n_tags;
  int32_t *claim;                /* per location: the result it becomes, or -1 */
  int32_t last_check;            /* the last step that may fail on an index, or -1 */
} tern_planner;

tern_status tern_plan_add_location(tern_planner *planner, tern_location location, int32_t *out);
/* plan_emit.c: appends the steps of one step of the fusion. */
tern_status tern_plan_emit(tern_planner *planner, int32_t step);
/* plan_emit.c: appends what makes every result an array of its own. */
tern_status tern_plan_emit_results(tern_planner *planner);
/* plan_place.c: decides where every location lies. */
tern_status tern_plan_place(tern_planner *planner);
/* plan_measure.c: makes `times` for an executable whose steps are known. `lines` has one text per step, in the executable's arena. */
void tern_plan_times_new(tern_executable *executable, char **lines);
#endif
