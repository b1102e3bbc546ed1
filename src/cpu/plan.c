/* The planner: from a program to steps over memory. No code is generated; the cost is a microsecond or so per operation.
 *
 * tern_plan_program is the table of contents: views, fusion, order, steps, places. */
#include "plan_steps.h"
#include "../opt/schedule.h"

static tern_status no_memory(void) { return tern_error_new(TERN_OUT_OF_MEMORY, "no host memory to plan a program"); }

tern_status tern_plan_add_location(tern_planner *pl, tern_location location, int32_t *out) {
  tern_executable *x = pl->out;
  if (x->n_locations == x->cap_locations) {
    int32_t cap = x->cap_locations ? 2 * x->cap_locations : 64;
    tern_location *grown = tern_arena_alloc(&x->arena, (size_t)cap * sizeof *grown);
    int32_t *claim = tern_arena_alloc(&pl->scratch, (size_t)cap * sizeof *claim);
    if (!grown || !claim) return no_memory();
    if (x->n_locations) {
      memcpy(grown, x->locations, (size_t)x->n_locations * sizeof *grown);
      memcpy(claim, pl->claim, (size_t)x->n_locations * sizeof *claim);
    }
    x->locations = grown;
    x->cap_locations = cap;
    pl->claim = claim;
  }
  location.first = location.last = -1;
  x->locations[x->n_locations] = location;
  pl->claim[x->n_locations] = -1;
  *out = x->n_locations++;
  return NULL;
}

static int64_t value_bytes(const tern_program *p, tern_value v) { return tern_value_count(p, v) * (int64_t)tern_dtype_size(p->values[v].dtype); }

/* Parameters, scalars and constants; then every value that another step, or the caller, reads. */
static tern_status place_values(tern_planner *pl) {
  const tern_program *p = pl->program;
  tern_executable *x = pl->out;
  pl->location = tern_arena_alloc(&pl->scratch, (size_t)(p->n_values + 1) * sizeof *pl->location);
  if (!pl->location) return no_memory();
  int32_t n_constants = 0;
  for (int32_t v = 0; v < p->n_values; v++) pl->location[v] = -1;
  for (int32_t i = 0; i < p->n_ops; i++) n_constants += p->ops[i].kind == TERN_OP_CONSTANT;
  x->constants = tern_arena_alloc(&x->arena, (size_t)n_constants * 16 + 16);
  if (!x->constants) return no_memory();
  for (int32_t i = 0; i < p->n_ops; i++) {
    const tern_op *op = &p->ops[i];
    const tern_value v = op->first_result;
    tern_location l = {.place = TERN_PLACE_SLAB};
    if (op->kind == TERN_OP_PARAMETER) {
      l.place = op->attrs->parameter.is_scalar ? TERN_PLACE_SCALAR : TERN_PLACE_INPUT;
      l.index = op->attrs->parameter.number;
      l.bytes = value_bytes(p, v);
    } else if (op->kind == TERN_OP_CONSTANT) {
      l.place = TERN_PLACE_CONSTANT;
      l.offset = 16 * (int64_t)x->n_constants++;
      l.bytes = 16;
      memcpy(x->constants + l.offset, op->attrs->constant.bits, 16);
    } else {
      const int32_t step = pl->fusion.step[i];
      if (step < 0) continue;
      for (int k = 0; k < op->n_operands; k++) {
        if (op->operands[k] == TERN_NO_VALUE) continue;
        tern_value root = pl->views[op->operands[k]].root;
        int32_t maker = p->values[root].op;
        if (pl->location[root] >= 0 || pl->fusion.step[maker] < 0 || pl->fusion.step[maker] == step) continue;
        TERN_TRY(tern_plan_add_location(pl, (tern_location){.place = TERN_PLACE_SLAB, .bytes = value_bytes(p, root)}, &pl->location[root]));
      }
      if (tern_op_is_elementwise((tern_op_kind)op->kind) || tern_op_rows[op->kind].class == TERN_CLASS_VIEW) continue;
      for (int r = 0; r < op->n_results; r++) /* a kernel writes all of its results */
        if (pl->location[v + r] < 0)
          TERN_TRY(tern_plan_add_location(pl, (tern_location){.place = TERN_PLACE_SLAB, .bytes = value_bytes(p, v + r)}, &pl->location[v + r]));
      continue;
    }
    TERN_TRY(tern_plan_add_location(pl, l, &pl->location[v]));
  }
  for (int32_t r = 0; r < p->n_results; r++) {
    tern_value root = pl->views[p->results[r].value].root;
    if (pl->location[root] < 0 && pl->fusion.step[p->values[root].op] >= 0)
      TERN_TRY(tern_plan_add_location(pl, (tern_location){.place = TERN_PLACE_SLAB, .bytes = value_bytes(p, root)}, &pl->location[root]));
  }
  return NULL;
}

static tern_status fuse(tern_planner *pl) {
  const tern_program *p = pl->program;
  tern_value *root = tern_arena_alloc(&pl->scratch, (size_t)(p->n_values + 1) * sizeof *root);
  bool *linear = tern_arena_alloc(&pl->scratch, (size_t)p->n_values + 1);
  if (!root || !linear) return no_memory();
  for (int32_t v = 0; v < p->n_values; v++) {
    root[v] = pl->views[v].root;
    linear[v] = pl->views[v].linear;
  }
  TERN_TRY(tern_fuse(p, root, linear, &pl->scratch, &pl->fusion));
  const int32_t n = pl->fusion.n_steps;
  pl->first_op = tern_arena_alloc(&pl->scratch, (size_t)(n + 2) * sizeof *pl->first_op);
  pl->step_ops = tern_arena_alloc(&pl->scratch, (size_t)(p->n_ops + 1) * sizeof *pl->step_ops);
  if (!pl->first_op || !pl->step_ops) return no_memory();
  for (int32_t i = 0; i < p->n_ops; i++)
    if (pl->fusion.step[i] >= 0) pl->first_op[pl->fusion.step[i] + 1]++;
  for (int32_t s = 0; s < n; s++) pl->first_op[s + 1] += pl->first_op[s];
  int32_t *next = tern_arena_copy(&pl->scratch, pl->first_op, (size_t)(n + 1) * sizeof *next);
  if (!next) return no_memory();
  for (int32_t i = 0; i < p->n_ops; i++)
    if (pl->fusion.step[i] >= 0) pl->step_ops[next[pl->fusion.step[i]]++] = i;
  return NULL;
}

/* In the user's order as far as it goes (a group runs where its last operation stood), but checks of indices, and what they need, as early as they can: no
 * donated input may be overwritten before the last of them. */
static tern_status order_steps(tern_planner *pl, int32_t **out) {
  const tern_program *p = pl->program;
  const int32_t n = pl->fusion.n_steps;
  size_t n_operands = 0;
  for (int32_t i = 0; i < p->n_ops; i++) n_operands += p->ops[i].n_operands;
  int32_t *keys = tern_arena_alloc(&pl->scratch, (size_t)(n + 1) * sizeof *keys), *order = tern_arena_alloc(&pl->scratch, (size_t)(n + 1) * sizeof *order);
  tern_schedule_edge *edges = tern_arena_alloc(&pl->scratch, (n_operands + 1) * sizeof *edges);
  bool *urgent = tern_arena_alloc(&pl->scratch, (size_t)p->n_ops + 1);
  if (!keys || !order || !edges || !urgent) return no_memory();
  int32_t n_edges = 0;
  for (int32_t i = p->n_ops - 1; i >= 0; i--) {
    const tern_op *op = &p->ops[i];
    const int32_t step = pl->fusion.step[i];
    if (step < 0) continue;
    urgent[i] |= op->kind == TERN_OP_CHECK;
    const int32_t key = urgent[i] ? i - p->n_ops : i;
    if (urgent[i] || keys[step] == 0) keys[step] = keys[step] < 0 && keys[step] > key ? keys[step] : key;
    for (int k = 0; k < op->n_operands; k++) {
      if (op->operands[k] == TERN_NO_VALUE) continue;
      const int32_t maker = p->values[pl->views[op->operands[k]].root].op, before = pl->fusion.step[maker];
      if (before < 0) continue;
      urgent[maker] |= urgent[i];
      if (before != step) edges[n_edges++] = (tern_schedule_edge){before, step};
    }
  }
  *out = order;
  return tern_schedule(n, keys, n_edges, edges, &pl->scratch, order);
}

tern_status tern_plan_program(const tern_program *program, const tern_kernel_table *kernels, tern_executable *x) {
  tern_planner pl = {.program = program, .out = x, .last_check = -1};
  x->kernels = kernels;
  x->n_inputs = program->n_parameters;
  x->n_scalars = program->n_scalars;
  x->n_outputs = program->n_results;
  tern_status status = NULL;
  int32_t *order = NULL;
  x->input_bytes = tern_arena_alloc(&x->arena, (size_t)(x->n_inputs + 1) * sizeof *x->input_bytes);
  if (!x->input_bytes) status = no_memory();
  for (int32_t i = 0; i < x->n_inputs && !status; i++) x->input_bytes[i] = value_bytes(program, program->parameters[i]);
  if (!status) status = tern_views_resolve(program, &pl.scratch, &pl.views);
  if (!status) status = fuse(&pl);
  if (!status) status = place_values(&pl);
  if (!status) status = order_steps(&pl, &order);
  for (int32_t s = 0; s < pl.fusion.n_steps && !status; s++) status = tern_plan_emit(&pl, order[s]);
  if (!status) status = tern_plan_emit_results(&pl);
  if (!status) status = tern_plan_place(&pl);
  tern_arena_free(&pl.scratch);
  return status;
}
