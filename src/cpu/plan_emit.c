/* Emitting: every step of the fusion becomes one or more steps over locations. Called by plan.c. */
#include "plan_steps.h"

enum {
  PIECE_BYTES = 256 * 1024,     /* of one chunk of a copy */
  TRANSPOSE_LINES = 256,        /* at least, of one chunk of a transposing copy */
  TRANSPOSE_BYTES = 16 * 1024,  /* a strided operand of a group that is larger is made dense first */
};

static tern_status no_memory(void) { return tern_error_new(TERN_OUT_OF_MEMORY, "no host memory to plan a program"); }

static tern_status add_step(tern_planner *pl, tern_step_kind kind, uint32_t tag, void *body) {
  tern_executable *x = pl->out;
  if (!body) return no_memory();
  if (x->n_steps == x->cap_steps) {
    int32_t cap = x->cap_steps ? 2 * x->cap_steps : 64;
    tern_step *grown = tern_arena_alloc(&x->arena, (size_t)cap * sizeof *grown);
    if (!grown) return no_memory();
    if (x->n_steps) memcpy(grown, x->steps, (size_t)x->n_steps * sizeof *grown);
    x->steps = grown;
    x->cap_steps = cap;
  }
  x->steps[x->n_steps++] = (tern_step){.kind = kind, .tag = tag, .n_tags = pl->n_tags, .tags = pl->tags, .group = body};
  return NULL;
}

/* The step being added reads, or writes, a location. */
static void mark_read(tern_planner *pl, int32_t location) {
  if (location >= 0) pl->out->locations[location].last = pl->out->n_steps;
}
static void mark_written(tern_planner *pl, int32_t location) {
  tern_location *l = &pl->out->locations[location];
  if (l->first < 0) l->first = pl->out->n_steps;
  l->last = pl->out->n_steps;
}

static tern_status new_temporary(tern_planner *pl, int64_t bytes, int32_t *out) {
  return tern_plan_add_location(pl, (tern_location){.place = TERN_PLACE_SLAB, .bytes = bytes}, out);
}

/* ---- views ---- */

static void set_dims(tern_place_view *v, int rank, const int64_t *dims) {
  v->rank = rank;
  for (int d = 0; d < rank; d++) v->dims[d] = dims[d];
}
static tern_place_view view_of(const tern_planner *pl, tern_value value) {
  const tern_value_info *info = &pl->program->values[value];
  const tern_value_view *view = &pl->views[value];
  tern_place_view v = {.location = pl->location[view->root], .dtype = info->dtype, .offset = view->offset * (int64_t)tern_dtype_size(info->dtype)};
  set_dims(&v, info->rank, info->dims);
  for (int d = 0; d < info->rank; d++) v.strides[d] = view->strides[d];
  return v;
}
static tern_place_view dense_view(int32_t location, const tern_value_info *info) {
  tern_place_view v = {.location = location, .dtype = info->dtype};
  set_dims(&v, info->rank, info->dims);
  tern_strides_dense(v.rank, v.dims, v.strides);
  return v;
}
static bool view_is_dense(const tern_place_view *v) {
  int64_t expected = 1;
  for (int d = v->rank - 1; d >= 0; d--) {
    if (v->dims[d] != 1 && v->strides[d] != expected) return false;
    expected *= v->dims[d];
  }
  return true;
}

/* ---- copies ---- */

static tern_status emit_copy(tern_planner *pl, uint32_t tag, const tern_place_view *from, const tern_place_view *to) {
  tern_copy_step *c = tern_arena_alloc(&pl->out->arena, sizeof *c);
  if (!c) return no_memory();
  *c = (tern_copy_step){.from = *from, .to = *to, .pieces_dim = -1, .n_chunks = 1};
  const int64_t bytes = tern_dims_count(to->rank, to->dims) * (int64_t)tern_dtype_size(to->dtype);
  if (bytes == 0) return NULL;
  if (bytes > 2 * PIECE_BYTES) {
    /* Along the slowest dimension of the destination that is long enough. */
    int best = -1;
    int64_t pieces = (bytes + PIECE_BYTES - 1) / PIECE_BYTES;
    for (int d = 0; d < to->rank; d++)
      if (to->dims[d] > 1 && (best < 0 || (to->dims[d] > to->dims[best] && to->dims[best] < pieces))) best = d;
    /* A piece of a transposition is a panel of lines: thin pieces would touch every page of the source again. */
    if (from->strides[best] == 1 && pieces > to->dims[best] / TRANSPOSE_LINES) pieces = to->dims[best] / TRANSPOSE_LINES > 1 ? to->dims[best] / TRANSPOSE_LINES : 1;
    c->pieces_dim = best;
    c->n_chunks = to->dims[best] < pieces ? to->dims[best] : pieces;
  }
  mark_read(pl, from->location);
  mark_written(pl, to->location);
  return add_step(pl, TERN_STEP_COPY, tag, c);
}

static tern_status emit_fill(tern_planner *pl, uint32_t tag, const tern_place_view *value, int32_t location, int64_t count) {
  tern_fill_step *f = tern_arena_alloc(&pl->out->arena, sizeof *f);
  if (!f) return no_memory();
  *f = (tern_fill_step){.location = location, .value = *value, .count = count};
  if (count == 0) return NULL;
  mark_read(pl, value->location);
  mark_written(pl, location);
  return add_step(pl, TERN_STEP_FILL, tag, f);
}

/* ---- groups ---- */

static tern_status add_group(tern_planner *pl, uint32_t tag, tern_group *g) {
  TERN_TRY(tern_group_finish(g, &pl->out->arena));
  for (int32_t i = 0; i < g->n_sources; i++) mark_read(pl, g->sources[i].location);
  for (int32_t i = 0; i < g->n_sinks; i++) mark_written(pl, g->sinks[i].location);
  for (int32_t i = 0; i < g->n_reducers; i++) mark_written(pl, g->reducers[i].location);
  if (g->scratch > pl->out->scratch) pl->out->scratch = g->scratch;
  return add_step(pl, TERN_STEP_GROUP, tag, g);
}

/* Reading columns element by element misses the cache; a copy that works in tiles does not. */
static tern_status straighten_sources(tern_planner *pl, uint32_t tag, tern_group *g) {
  for (int32_t i = 0; i < g->n_sources; i++) {
    tern_source *s = &g->sources[i];
    const tern_block_walk *w = &s->walk;
    const int64_t bytes = g->count * (int64_t)w->element, inner = w->strides[w->rank - 1];
    if (s->kind != TERN_SOURCE_WALK || inner == 0 || inner == 1 || bytes < TRANSPOSE_BYTES) continue;
    bool transposed = false, repeats = false;
    for (int d = 0; d < w->rank - 1; d++) {
      transposed |= w->strides[d] == 1;
      repeats |= w->strides[d] == 0;
    }
    if (!transposed || repeats) continue;
    tern_place_view from = {.location = s->location, .dtype = s->dtype, .offset = s->offset * (int64_t)w->element}, to = {.dtype = s->dtype};
    set_dims(&from, w->rank, w->dims);
    set_dims(&to, w->rank, w->dims);
    memcpy(from.strides, w->strides, sizeof from.strides);
    tern_strides_dense(to.rank, to.dims, to.strides);
    TERN_TRY(new_temporary(pl, bytes, &to.location));
    TERN_TRY(emit_copy(pl, tag, &from, &to));
    s->kind = TERN_SOURCE_DIRECT;
    s->location = to.location;
    s->offset = 0;
    s->walk = (tern_block_walk){.rank = 1, .element = w->element, .dims = {g->count}, .strides = {1}};
  }
  return NULL;
}

static tern_status emit_group(tern_planner *pl, int32_t step) {
  const tern_program *p = pl->program;
  const int32_t *ops = pl->step_ops + pl->first_op[step];
  int32_t n_ops = pl->first_op[step + 1] - pl->first_op[step];
  const tern_op *last = &p->ops[ops[n_ops - 1]];
  if (n_ops == 1 && last->kind == TERN_OP_RESHAPE && p->ops[p->values[pl->views[last->operands[0]].root].op].kind != TERN_OP_IOTA) {
    tern_place_view from = view_of(pl, last->operands[0]);
    tern_place_view to = dense_view(pl->location[last->first_result], &p->values[last->operands[0]]);
    return emit_copy(pl, last->tag, &from, &to);
  }
  for (int32_t i = 0; i < n_ops; i++)
    if (p->ops[ops[i]].kind != TERN_OP_REDUCE && tern_value_count(p, p->ops[ops[i]].first_result) == 0) return NULL;
  tern_group_input in = {.program = p, .views = pl->views, .machine = pl->out->kernels->blocks, .arena = &pl->out->arena, .n_ops = n_ops, .ops = ops,
                         .step_of = pl->fusion.step, .step = step, .location = pl->location};
  tern_group *g;
  TERN_TRY(tern_group_build(&in, &g));
  TERN_TRY(straighten_sources(pl, last->tag, g));
  /* Reductions in pieces: the group gives partial results, another group reduces those, until one piece is left. */
  while (tern_group_partials(g) > 1) {
    const int64_t partials = tern_group_partials(g), results = g->form == TERN_GROUP_COLUMNS ? g->row : g->count / g->row;
    int32_t *from = tern_arena_alloc(&pl->scratch, (size_t)g->n_reducers * sizeof *from);
    tern_group *rest;
    if (!from) return no_memory();
    for (int32_t i = 0; i < g->n_reducers; i++)
      TERN_TRY(new_temporary(pl, partials * results * (int64_t)tern_dtype_size(g->reducers[i].dtype), &from[i]));
    TERN_TRY(tern_group_build_partial(g, &pl->out->arena, from, &rest));
    for (int32_t i = 0; i < g->n_reducers; i++) {
      g->reducers[i].location = from[i];
      g->reducers[i].stored = g->reducers[i].dtype;
    }
    TERN_TRY(add_group(pl, last->tag, g));
    g = rest;
    pl->tags += pl->n_tags - 1, pl->n_tags = 1; /* only the reduction goes on */
  }
  return add_group(pl, last->tag, g);
}

/* A dense array with the elements of a view of an iota: a group that loads and stores. */
static tern_status emit_iota(tern_planner *pl, uint32_t tag, tern_value value, int32_t location) {
  const tern_value_info *info = &pl->program->values[value];
  const tern_value_view *view = &pl->views[value];
  const tern_block_machine *m = pl->out->kernels->blocks;
  const tern_dtype dtype = tern_block_dtype(info->dtype);
  const int64_t count = tern_value_count(pl->program, value);
  if (count == 0) return NULL;
  tern_group *g = tern_arena_alloc(&pl->out->arena, sizeof *g);
  if (!g) return no_memory();
  *g = (tern_group){.count = count, .n_sources = 1, .n_instructions = 1, .n_operations = 1, .n_sinks = 1, .n_registers = 2};
  g->sources = tern_arena_alloc(&pl->out->arena, sizeof *g->sources);
  g->instructions = tern_arena_alloc(&pl->out->arena, sizeof *g->instructions);
  g->sinks = tern_arena_alloc(&pl->out->arena, sizeof *g->sinks);
  g->register_bytes = tern_arena_alloc(&pl->out->arena, 2);
  if (!g->sources || !g->instructions || !g->sinks || !g->register_bytes) return no_memory();
  g->sources[0] = (tern_source){.kind = TERN_SOURCE_IOTA, .location = -1, .dtype = dtype, .root = view->root, .offset = view->offset};
  tern_walk_make(&g->sources[0].walk, info->rank, info->dims, view->strides, NULL, tern_dtype_size(dtype));
  g->instructions[0] = (tern_instruction){.run = dtype == info->dtype ? m->copy_block[tern_dtype_size(dtype)] : m->convert[dtype][info->dtype], .out = 1};
  g->sinks[0] = (tern_sink){.location = location, .element = (uint32_t)tern_dtype_size(info->dtype), .reg = 1};
  g->register_bytes[0] = (uint8_t)tern_dtype_size(dtype);
  g->register_bytes[1] = (uint8_t)tern_dtype_size(info->dtype);
  return add_group(pl, tag, g);
}

/* ---- operands of steps other than groups ---- */

/* The view that a kernel is given: of memory, and dense where the kernel says so. */
static tern_status operand_view(tern_planner *pl, const tern_op *op, tern_value value, bool dense, tern_place_view *out) {
  const tern_program *p = pl->program;
  const tern_value_info *info = &p->values[value];
  const int64_t bytes = tern_value_count(p, value) * (int64_t)tern_dtype_size(info->dtype);
  *out = view_of(pl, value);
  const bool iota = p->ops[p->values[pl->views[value].root].op].kind == TERN_OP_IOTA;
  if (!iota && (!dense || bytes == 0 || view_is_dense(out))) return NULL;
  tern_place_view from = *out;
  int32_t location;
  TERN_TRY(new_temporary(pl, bytes, &location));
  *out = dense_view(location, info);
  return iota ? emit_iota(pl, op->tag, value, location) : emit_copy(pl, op->tag, &from, out);
}

static tern_status emit_update_slice(tern_planner *pl, const tern_op *op) {
  tern_place_view base, update, out = dense_view(pl->location[op->first_result], &pl->program->values[op->first_result]), part;
  TERN_TRY(operand_view(pl, op, op->operands[0], false, &base));
  TERN_TRY(operand_view(pl, op, op->operands[1], false, &update));
  TERN_TRY(emit_copy(pl, op->tag, &base, &out)); /* dropped where the result takes the base's storage over */
  part = out;
  const size_t element = tern_dtype_size(out.dtype);
  for (int d = 0; d < out.rank; d++) {
    part.offset += op->attrs->slice.start[d] * out.strides[d] * (int64_t)element;
    part.strides[d] = out.strides[d] * op->attrs->slice.stride[d];
    part.dims[d] = update.dims[d];
  }
  return emit_copy(pl, op->tag, &update, &part);
}

static tern_status emit_concatenate(tern_planner *pl, const tern_op *op) {
  tern_place_view out = dense_view(pl->location[op->first_result], &pl->program->values[op->first_result]);
  const int dim = op->attrs->axis.dim;
  int64_t at = 0;
  for (int i = 0; i < op->n_operands; i++) {
    tern_place_view x, part = out;
    TERN_TRY(operand_view(pl, op, op->operands[i], false, &x));
    part.offset = at * out.strides[dim] * (int64_t)tern_dtype_size(out.dtype);
    part.dims[dim] = x.dims[dim];
    at += x.dims[dim];
    TERN_TRY(emit_copy(pl, op->tag, &x, &part));
  }
  return NULL;
}

/* Fill, then copy what of the operand lands inside. Element i of a dimension lands at low + i * (interior + 1). */
static tern_status emit_pad(tern_planner *pl, const tern_op *op) {
  const tern_value_info *info = &pl->program->values[op->first_result];
  tern_place_view x, value, out = dense_view(pl->location[op->first_result], info), part = out;
  TERN_TRY(operand_view(pl, op, op->operands[0], false, &x));
  TERN_TRY(operand_view(pl, op, op->operands[1], false, &value));
  TERN_TRY(emit_fill(pl, op->tag, &value, out.location, tern_dims_count(out.rank, out.dims)));
  const int64_t element = (int64_t)tern_dtype_size(out.dtype);
  for (int d = 0; d < out.rank; d++) {
    const int64_t low = op->attrs->pad.low[d], step = op->attrs->pad.interior[d] + 1;
    int64_t first = low < 0 ? (-low + step - 1) / step : 0;                          /* the first element at 0 or after */
    int64_t end = out.dims[d] - low <= 0 ? 0 : (out.dims[d] - low + step - 1) / step; /* one past the last before the end */
    if (end > x.dims[d]) end = x.dims[d];
    if (end <= first) return NULL;
    x.offset += first * x.strides[d] * element;
    x.dims[d] = part.dims[d] = end - first;
    part.offset += (low + first * step) * out.strides[d] * element;
    part.strides[d] = out.strides[d] * step;
  }
  return emit_copy(pl, op->tag, &x, &part);
}

/* A reduction of nothing gives the identity. */
static tern_status emit_empty_reduce(tern_planner *pl, const tern_op *op) {
  const tern_dtype dtype = pl->program->values[op->first_result].dtype;
  const tern_reduction how = op->attrs->reduce.how;
  const int bits = 8 * (int)tern_dtype_size(dtype);
  uint64_t value = 0;
  if (how == TERN_PROD || how == TERN_ALL) {
    value = 1;
    if (dtype == TERN_F16) value = 0x3C00;
    else if (dtype == TERN_BF16) value = 0x3F80;
    else if (dtype == TERN_F32) value = 0x3F800000;
    else if (dtype == TERN_F64) value = 0x3FF0000000000000;
  } else if (how == TERN_MAX || how == TERN_MIN) {
    const bool lowest = how == TERN_MAX;
    if (dtype == TERN_BOOL) value = !lowest;
    else if (dtype == TERN_F16) value = lowest ? 0xFC00 : 0x7C00;
    else if (dtype == TERN_BF16) value = lowest ? 0xFF80 : 0x7F80;
    else if (dtype == TERN_F32) value = lowest ? 0xFF800000 : 0x7F800000;
    else if (dtype == TERN_F64) value = lowest ? 0xFFF0000000000000 : 0x7FF0000000000000;
    else if (tern_dtype_is_signed(dtype)) value = lowest ? (uint64_t)1 << (bits - 1) : ((uint64_t)1 << (bits - 1)) - 1;
    else value = lowest ? 0 : UINT64_MAX;
  }
  char *constant = tern_arena_alloc(&pl->out->arena, 16);
  if (!constant) return no_memory();
  memcpy(constant, &value, sizeof value);
  tern_place_view v = {.dtype = dtype};
  TERN_TRY(tern_plan_add_location(pl, (tern_location){.place = TERN_PLACE_CONSTANT, .offset = constant - pl->out->constants, .bytes = 16}, &v.location));
  return emit_fill(pl, op->tag, &v, pl->location[op->first_result], tern_value_count(pl->program, op->first_result));
}

/* ---- kernels ---- */

static tern_cpu_view view_for_scratch(const tern_place_view *v) {
  tern_cpu_view view = {.data = v->location < 0 ? NULL : (char *)64, .dtype = v->dtype, .rank = v->rank}; /* only whether it is there matters */
  memcpy(view.dims, v->dims, sizeof view.dims);
  memcpy(view.strides, v->strides, sizeof view.strides);
  return view;
}

static tern_status kernel_scratch(tern_planner *pl, tern_kernel_step *k) {
  if (!k->kernel->scratch) return NULL;
  tern_cpu_view *views = tern_arena_alloc(&pl->scratch, (size_t)(k->n_in + k->n_out + 1) * sizeof *views);
  if (!views) return no_memory();
  for (int32_t i = 0; i < k->n_in; i++) views[i] = view_for_scratch(&k->in[i]);
  for (int32_t i = 0; i < k->n_out; i++) views[k->n_in + i] = view_for_scratch(&k->out[i]);
  k->scratch = (int64_t)k->kernel->scratch(&k->op, views, views + k->n_in);
  return NULL;
}

static tern_status emit_kernel(tern_planner *pl, const tern_op *op) {
  const tern_program *p = pl->program;
  tern_executable *x = pl->out;
  const tern_kernel *kernel = &x->kernels->rows[op->kind];
  if (!kernel->run) return tern_error_new(TERN_UNSUPPORTED, "the CPU engine has no kernel for '%s'", tern_op_rows[op->kind].name);
  tern_kernel_step *k = tern_arena_alloc(&x->arena, sizeof *k);
  if (!k) return no_memory();
  *k = (tern_kernel_step){.kernel = kernel, .op = *op, .n_in = op->n_operands, .n_out = op->n_results};
  k->in = tern_arena_alloc(&x->arena, (size_t)(k->n_in + 1) * sizeof *k->in);
  k->out = tern_arena_alloc(&x->arena, (size_t)(k->n_out + 1) * sizeof *k->out);
  k->op.attrs = tern_arena_copy(&x->arena, op->attrs, sizeof *op->attrs);
  k->op.operands = tern_arena_copy(&x->arena, op->operands, op->n_operands * sizeof *op->operands);
  if (!k->in || !k->out || !k->op.attrs || !k->op.operands) return no_memory();
  for (int32_t i = 0; i < k->n_in; i++) {
    if (op->operands[i] == TERN_NO_VALUE) k->in[i].location = -1;
    else TERN_TRY(operand_view(pl, op, op->operands[i], kernel->dense_inputs >> i & 1, &k->in[i]));
  }
  for (int32_t i = 0; i < k->n_out; i++)
    k->out[i] = dense_view(pl->location[op->first_result + i], &p->values[op->first_result + i]);
  TERN_TRY(kernel_scratch(pl, k));
  if (k->scratch > x->kernel_scratch) x->kernel_scratch = k->scratch;
  for (int32_t i = 0; i < k->n_in; i++) mark_read(pl, k->in[i].location);
  for (int32_t i = 0; i < k->n_out; i++) mark_written(pl, k->out[i].location);
  if (op->kind == TERN_OP_CHECK) pl->last_check = x->n_steps;
  return add_step(pl, TERN_STEP_KERNEL, op->tag, k);
}

/* The tags of a step's operations, each once: neighbours mostly share one, since an operation of the user's makes several. */
static tern_status collect_tags(tern_planner *pl, int32_t step) {
  const int32_t first = pl->first_op[step], n = pl->first_op[step + 1] - first;
  uint32_t *tags = tern_arena_alloc(&pl->out->arena, (size_t)n * sizeof *tags);
  if (!tags) return no_memory();
  pl->n_tags = 0;
  for (int32_t i = 0; i < n; i++) {
    const uint32_t tag = pl->program->ops[pl->step_ops[first + i]].tag;
    if (!pl->n_tags || tags[pl->n_tags - 1] != tag) tags[pl->n_tags++] = tag;
  }
  pl->tags = tags;
  return NULL;
}

tern_status tern_plan_emit(tern_planner *pl, int32_t step) {
  TERN_TRY(collect_tags(pl, step));
  const tern_op *op = &pl->program->ops[pl->step_ops[pl->first_op[step]]];
  switch ((tern_op_kind)op->kind) {
    case TERN_OP_UPDATE_SLICE: return emit_update_slice(pl, op);
    case TERN_OP_CONCATENATE: return emit_concatenate(pl, op);
    case TERN_OP_PAD: return emit_pad(pl, op);
    case TERN_OP_REDUCE:
      if (tern_value_count(pl->program, op->operands[0]) == 0) return emit_empty_reduce(pl, op);
      return emit_group(pl, step);
    default: break;
  }
  if (tern_op_is_elementwise((tern_op_kind)op->kind) || tern_op_rows[op->kind].class == TERN_CLASS_VIEW) return emit_group(pl, step);
  return emit_kernel(pl, op);
}

/* ---- results ---- */

/* A result is the location of its value where that is an array of its own; else a copy. A parameter handed back in its own storage costs nothing. */
tern_status tern_plan_emit_results(tern_planner *pl) {
  const tern_program *p = pl->program;
  tern_executable *x = pl->out;
  const size_t n = (size_t)p->n_results + 1;
  x->output_location = tern_arena_alloc(&x->arena, n * sizeof *x->output_location);
  x->output_bytes = tern_arena_alloc(&x->arena, n * sizeof *x->output_bytes);
  x->output_takes = tern_arena_alloc(&x->arena, n * sizeof *x->output_takes);
  if (!x->output_location || !x->output_bytes || !x->output_takes) return no_memory();
  pl->n_tags = 0; /* copies at the end: no operation's own */
  for (int32_t r = 0; r < p->n_results; r++) {
    const tern_value v = p->results[r].value;
    const tern_value_view *view = &pl->views[v];
    const tern_op *maker = &p->ops[p->values[view->root].op];
    const int32_t location = pl->location[view->root];
    x->output_bytes[r] = tern_value_count(p, v) * (int64_t)tern_dtype_size(p->values[v].dtype);
    x->output_takes[r] = -1;
    if (maker->kind == TERN_OP_PARAMETER && !maker->attrs->parameter.is_scalar && view->linear && p->results[r].reuses == maker->attrs->parameter.number) {
      x->output_location[r] = location;
      x->output_takes[r] = p->results[r].reuses;
      x->locations[location].last = INT32_MAX;
      continue;
    }
    if (maker->kind != TERN_OP_PARAMETER && maker->kind != TERN_OP_CONSTANT && maker->kind != TERN_OP_IOTA && view->linear && pl->claim[location] < 0) {
      pl->claim[location] = r;
      x->output_location[r] = location;
      continue;
    }
    int32_t copy;
    TERN_TRY(new_temporary(pl, x->output_bytes[r], &copy));
    pl->claim[copy] = r;
    x->output_location[r] = copy;
    tern_place_view from = view_of(pl, v), to = dense_view(copy, &p->values[v]);
    TERN_TRY(maker->kind == TERN_OP_IOTA ? emit_iota(pl, maker->tag, v, copy) : emit_copy(pl, maker->tag, &from, &to));
  }
  return NULL;
}
