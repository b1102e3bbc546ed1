/* Lowering: the words of a recording become one program. Reads of views become reshape, slice, transpose and broadcast of the storage's array; writes
 * through views become update_slice of it; in between, each operation's own `lower` says what it computes. Runs once per program, not once per step. */
#include "internal.h"

/* A storage while the program is built. */
typedef struct contents {
  size_t bytes;
  tern_base base;
  bool has_contents;
  tern_value value;      /* of base's dims; TERN_NO_VALUE: not read so far, or undefined */
  bool is_defined;       /* the recording found contents: they become a parameter when they are first read */
  int32_t parameter;     /* its number, or -1 */
  bool is_written;
} contents;

typedef struct lowerer {
  const tern_recording *recording;
  tern_program *program;
  contents *contents;
  uint32_t *parameter_locals;
  uint32_t n_parameters;
} lowerer;

static void describe_base(const uint64_t *w, contents *c) {
  c->is_defined = *w >> 24 & 1;
  c->base.dtype = (tern_dtype)(*w >> 8 & 0xFF);
  c->base.rank = (int32_t)(*w >> 16 & 0xFF);
  c->bytes = (size_t)w[1];
  for (int d = 0; d < c->base.rank; d++) c->base.dims[d] = (int64_t)w[2 + d];
  c->has_contents = c->is_defined;
  c->value = TERN_NO_VALUE;
  c->parameter = -1;
}

/* The array of the storage as it stands; undefined contents are zeros of `dtype`. */
static tern_value current(lowerer *l, uint32_t local, tern_dtype dtype) {
  contents *c = &l->contents[local];
  if (c->value != TERN_NO_VALUE) return c->value;
  if (c->is_defined) {
    c->parameter = (int32_t)l->n_parameters;
    l->parameter_locals[l->n_parameters++] = local;
    c->value = tern_parameter(l->program, c->base.dtype, c->base.rank, c->base.dims);
  } else {
    if (!c->has_contents) c->base = (tern_base){.dtype = dtype, .rank = 1, .dims = {(int64_t)(c->bytes / tern_dtype_size(dtype))}};
    c->has_contents = true;
    c->value = tern_constant_int(l->program, c->base.dtype, c->base.rank, c->base.dims, 0);
  }
  return c->value;
}

static tern_value as_dtype(tern_program *p, tern_value v, tern_dtype dtype) {
  return v == TERN_NO_VALUE || tern_value_dtype(p, v) == dtype ? v : tern_bitcast(p, v, dtype);
}

/* The flat index of each element of a view: for views that are no slice of the storage (overlapping windows). */
static tern_value view_indices(tern_program *p, const tern_geometry *g) {
  tern_value index = tern_constant_int(p, TERN_I64, g->rank, g->sizes, g->offset);
  for (int d = 0; d < g->rank; d++) {
    if (g->sizes[d] == 1 || g->strides[d] == 0) continue;
    tern_value step = tern_constant_int(p, TERN_I64, g->rank, g->sizes, g->strides[d]);
    index = tern_add(p, index, tern_multiply(p, tern_iota(p, TERN_I64, g->rank, g->sizes, d), step));
  }
  return index;
}

static tern_value flatten(tern_program *p, tern_value v) {
  int64_t count = tern_dims_count(tern_value_rank(p, v), tern_value_dims(p, v));
  return tern_reshape(p, v, 1, &count);
}

static bool touches_only(int rank, const int64_t *dims, const tern_geometry *g) {
  int64_t first, end;
  tern_geometry_bounds(g, &first, &end);
  return first >= 0 && end <= tern_dims_count(rank, dims);
}

static tern_value read_view(lowerer *l, uint32_t local, tern_dtype dtype, const tern_geometry *g) {
  tern_program *p = l->program;
  tern_value v = as_dtype(p, current(l, local, dtype), dtype);
  if (v == TERN_NO_VALUE) return v;
  const tern_base *base = &l->contents[local].base;
  if (tern_geometry_count(g) == 0) return tern_constant_int(p, dtype, g->rank, g->sizes, 0);
  if (!touches_only(base->rank, base->dims, g)) {
    /* The storage is wider than what was written of it: the rest is undefined, zeros here. */
    int64_t count = tern_dims_count(base->rank, base->dims), low = 0, interior = 0;
    int64_t high = (int64_t)(l->contents[local].bytes / tern_dtype_size(dtype)) - count;
    v = tern_pad(p, flatten(p, v), tern_constant_int(p, dtype, 0, NULL, 0), &low, &high, &interior);
    return tern_take(p, v, view_indices(p, g), 0);
  }
  tern_view_steps s;
  if (!tern_view_recover(base->rank, base->dims, g, &s)) {
    atomic_fetch_add_explicit(&tern_count.gathers, 1, memory_order_relaxed);
    return tern_take(p, flatten(p, v), view_indices(p, g), 0);
  }
  v = tern_reshape(p, v, s.refined_rank, s.refined);
  v = tern_slice(p, v, s.start, s.limit, s.step);
  v = tern_reshape(p, v, s.kept_rank, s.kept);
  v = tern_transpose(p, v, s.permutation);
  if (v == TERN_NO_VALUE) return v;
  /* The broadcast is left out where it only says what the shape says already. */
  bool same = s.kept_rank == g->rank;
  for (int d = 0; d < g->rank && same; d++) same = s.result_dims[d] == d && tern_value_dims(p, v)[d] == g->sizes[d];
  if (same) return v;
  bool stretches = false;
  for (int d = 0; d < g->rank; d++) stretches |= g->strides[d] == 0 && g->sizes[d] > 1;
  return stretches ? tern_broadcast_in_dim(p, v, g->rank, g->sizes, s.result_dims) : tern_reshape(p, v, g->rank, g->sizes);
}

/* A run of rows that starts where a scalar of the launch says. */
static tern_value read_moving_rows(lowerer *l, uint32_t local, tern_dtype dtype, const tern_geometry *g) {
  tern_program *p = l->program;
  tern_value first = tern_scalar(p, TERN_I64), v = current(l, local, dtype);
  const tern_base *base = &l->contents[local].base;
  int64_t row = tern_dims_count(base->rank - 1, base->dims + 1), n = row ? tern_geometry_count(g) / row : 0;
  tern_value rows = tern_take(p, v, tern_add(p, tern_iota(p, TERN_I64, 1, &n, 0), first), 0);
  return tern_reshape(p, rows, g->rank, g->sizes);
}

static void write_view(lowerer *l, uint32_t local, const tern_output *o, tern_value v) {
  tern_program *p = l->program;
  contents *c = &l->contents[local];
  const tern_geometry *g = &o->view;
  int order[TERN_MAX_TENSOR_RANK];
  v = tern_convert(p, v, o->dtype);
  tern_base base = c->base;
  bool has_contents = c->has_contents;
  if (tern_base_write(&base, &has_contents, c->bytes, o, order) == TERN_WRITE_WHOLE) {
    c->base = base;
    c->has_contents = c->is_written = true;
    c->value = tern_transpose(p, v, order);
    return;
  }
  tern_value old = as_dtype(p, current(l, local, o->dtype), o->dtype);
  int64_t old_count = tern_dims_count(c->base.rank, c->base.dims), low = 0, interior = 0;
  int64_t high = tern_dims_count(base.rank, base.dims) - old_count;
  if (high > 0) old = tern_pad(p, flatten(p, old), tern_constant_int(p, o->dtype, 0, NULL, 0), &low, &high, &interior);
  c->base = base;
  c->is_written = true;
  c->value = old;
  if (old == TERN_NO_VALUE || v == TERN_NO_VALUE || tern_geometry_count(g) == 0) return;
  tern_view_steps s;
  if (!tern_view_recover(c->base.rank, c->base.dims, g, &s) || s.overlaps) {
    atomic_fetch_add_explicit(&tern_count.gathers, 1, memory_order_relaxed);
    tern_value flat = tern_put(p, flatten(p, old), flatten(p, view_indices(p, g)), flatten(p, v), 0, TERN_SET);
    c->value = tern_reshape(p, flat, c->base.rank, c->base.dims);
    return;
  }
  /* The steps of the view, backwards: drop the view's dimensions of size 1, transpose back, put the sliced dimensions' shape back. */
  int64_t transposed[TERN_MAX_RANK], sliced[TERN_MAX_RANK];
  int inverse[TERN_MAX_RANK];
  for (int d = 0; d < s.kept_rank; d++) {
    transposed[d] = s.kept[s.permutation[d]];
    inverse[s.permutation[d]] = d;
  }
  for (int d = 0; d < s.refined_rank; d++) sliced[d] = s.step[d] ? (s.limit[d] - s.start[d] + s.step[d] - 1) / s.step[d] : 0;
  v = tern_reshape(p, v, s.kept_rank, transposed);
  v = tern_transpose(p, v, inverse);
  v = tern_reshape(p, v, s.refined_rank, sliced);
  if (!s.is_whole) v = tern_update_slice(p, tern_reshape(p, old, s.refined_rank, s.refined), v, s.start, s.step);
  c->value = tern_reshape(p, v, c->base.rank, c->base.dims);
}

static const uint64_t *get_view(const uint64_t *w, tern_geometry *g) {
  g->rank = (int32_t)(*w++ >> 40 & 0xFF);
  g->offset = (int64_t)*w++;
  for (int d = 0; d < g->rank; d++) g->sizes[d] = (int64_t)*w++;
  for (int d = 0; d < g->rank; d++) g->strides[d] = (int64_t)*w++;
  return w;
}

/* What a lowering must keep: shapes and dtypes as it was told. */
static tern_status check_result(const tern_program *p, const char *name, int i, const tern_output *o, tern_value v) {
  TERN_CHECK(v >= 0 && v < p->n_values);
  bool same = tern_value_rank(p, v) == o->view.rank && tern_value_dtype(p, v) == o->computed;
  for (int d = 0; d < o->view.rank && same; d++) same = tern_value_dims(p, v)[d] == o->view.sizes[d];
  return same ? NULL : tern_error_new(TERN_INTERNAL, "%s: the lowering's result %d has another shape or dtype (%s) than was inferred (%s)", name, i,
                                      tern_dtype_name(tern_value_dtype(p, v)), tern_dtype_name(o->computed));
}

/* Lowers the node whose words start at w; gives the words after it. */
static tern_status lower_node(lowerer *l, const tern_recorded_node *node, const uint64_t *w, const uint64_t **end) {
  tern_program *p = l->program;
  uint64_t head = *w++;
  tern_value operands[64], scalars[64], results[64];
  uint8_t scalar_kinds[64];
  int64_t attrs[256];
  tern_output outputs[64];
  uint32_t targets[64];
  tern_lowering n = {.program = p,
                     .n_operands = (int)(head >> 24 & 0xFF),
                     .n_outputs = (int)(head >> 32 & 0xFF),
                     .n_attrs = (int)(head >> 40 & 0xFF),
                     .n_scalars = (int)(head >> 48 & 0xFF),
                     .operands = operands,
                     .attrs = attrs,
                     .scalars = scalars,
                     .scalar_kinds = scalar_kinds,
                     .outputs = outputs};
  TERN_CHECK(n.n_operands <= 64 && n.n_outputs <= 64 && n.n_scalars <= 64);
  for (int i = 0; i < n.n_operands; i++) {
    bool moving = *w & TERN_OPERAND_MOVING;
    if (*w & TERN_OPERAND_ABSENT) {
      operands[i] = TERN_NO_VALUE;
      w++;
      continue;
    }
    uint32_t local = (uint32_t)*w;
    tern_dtype dtype = (tern_dtype)(*w >> 32 & 0xFF);
    tern_geometry g;
    w = get_view(w, &g);
    operands[i] = moving ? read_moving_rows(l, local, dtype, &g) : read_view(l, local, dtype, &g);
  }
  for (int i = 0; i < n.n_outputs; i++) {
    targets[i] = (uint32_t)*w;
    outputs[i] = (tern_output){.dtype = (tern_dtype)(*w >> 32 & 0xFF), .computed = (tern_dtype)(*w >> 48 & 0xFF)};
    w = get_view(w, &outputs[i].view);
    results[i] = TERN_NO_VALUE;
  }
  for (int i = 0; i < n.n_attrs; i++) attrs[i] = (int64_t)*w++;
  for (int i = 0; i < n.n_scalars; i++, w++) {
    scalars[i] = tern_scalar(p, (tern_dtype)(*w & 0xFF));
    scalar_kinds[i] = (uint8_t)(*w >> 8);
  }
  *end = w;
  if (p->error) return tern_error_clone(p->error);
  TERN_TRY(node->operation->lower(&n, results));
  if (p->error) return tern_error_prefix(tern_error_clone(p->error), "%s", node->operation->name);
  for (int i = 0; i < n.n_outputs; i++) {
    TERN_TRY(check_result(p, node->operation->name, i, &outputs[i], results[i]));
    write_view(l, targets[i], &outputs[i], results[i]);
  }
  return p->error ? tern_error_clone(p->error) : NULL;
}

static const char *describe_tag(const void *context, uint32_t tag) {
  static _Thread_local char text[256];
  const tern_recording *r = context;
  return tag && tag <= r->n_nodes ? tern_line_describe(r->nodes[tag - 1].line, text, sizeof text) : "";
}

tern_status tern_lower(const tern_recording *r, uint32_t n_nodes, const bool *skipped, const bool *wanted, tern_lowered *out, uint32_t *failed_node) {
  lowerer l = {.recording = r};
  *failed_node = n_nodes;
  *out = (tern_lowered){0};
  TERN_TRY(tern_program_new(&l.program));
  tern_arena *arena = &l.program->arena;
  l.program->describe_tag = describe_tag;
  l.program->describe_context = r;
  l.contents = tern_arena_alloc(arena, (r->n_locals ? r->n_locals : 1) * sizeof *l.contents);
  l.parameter_locals = tern_arena_alloc(arena, (r->n_locals ? r->n_locals : 1) * sizeof *l.parameter_locals);
  uint32_t *results = tern_arena_alloc(arena, (r->n_locals ? r->n_locals : 1) * sizeof *results);
  tern_status status = l.contents && l.parameter_locals && results ? NULL : tern_error_new(TERN_OUT_OF_MEMORY, "no host memory to build a program");

  for (uint32_t i = 0; i < n_nodes && !status; i++) {
    const uint64_t *w = r->words + r->nodes[i].start, *end;
    while ((*w & 0xFF) == TERN_WORD_BUFFER) {
      describe_base(w, &l.contents[*w >> 32]);
      w += 2 + (*w >> 16 & 0xFF);
    }
    if (skipped && skipped[i]) continue;
    tern_program_tag(l.program, i + 1);
    status = lower_node(&l, &r->nodes[i], w, &end);
    if (status) *failed_node = i;
  }
  uint32_t n_results = 0;
  for (uint32_t i = 0; i < r->n_locals && !status; i++)
    if (wanted[i] && l.contents[i].is_written) {
      results[n_results++] = i;
      tern_result(l.program, l.contents[i].value, l.contents[i].parameter);
    }
  if (!status) status = tern_program_finish(l.program);
  if (status) {
    tern_program_free(l.program);
    return status;
  }
  *out = (tern_lowered){.program = l.program, .n_parameters = l.n_parameters, .n_results = n_results, .parameter_locals = l.parameter_locals, .result_locals = results};
  return NULL;
}

/* ---- what depends on a failure ---- */

/* A storage while failures are followed through a recording. */
typedef struct fate {
  size_t bytes;
  bool is_good; /* has contents that an operation which cannot run must not lose */
} fate;

static bool covers_whole(const tern_output *o, size_t bytes) {
  tern_base base = {.dtype = o->dtype};
  bool has_contents = false;
  return tern_base_write(&base, &has_contents, bytes, o, NULL) == TERN_WRITE_WHOLE;
}

uint32_t tern_recording_spread_failures(const tern_recording *r, const bool *visible, const tern_failure **failures, bool *skipped, const tern_failure **raised) {
  *raised = NULL;
  fate *fates = calloc((size_t)r->n_locals + 1, sizeof *fates);
  if (!fates) return 0;
  uint32_t stop = r->n_nodes;
  for (uint32_t i = 0; i < r->n_nodes; i++) {
    const uint64_t *w = r->words + r->nodes[i].start;
    for (; (*w & 0xFF) == TERN_WORD_BUFFER; w += 2 + (*w >> 16 & 0xFF)) {
      uint32_t local = (uint32_t)(*w >> 32);
      fates[local] = (fate){.bytes = (size_t)w[1], .is_good = (*w >> 24 & 1) && !failures[local]};
    }
    uint64_t head = *w++;
    int n_operands = (int)(head >> 24 & 0xFF), n_outputs = (int)(head >> 32 & 0xFF);
    const tern_failure *cause = NULL;
    tern_output output;
    for (int k = 0; k < n_operands; k++) {
      if (*w & TERN_OPERAND_ABSENT) {
        w++;
        continue;
      }
      if (!cause) cause = failures[(uint32_t)*w];
      w = get_view(w, &output.view);
    }
    const uint64_t *outputs = w;
    for (int k = 0; k < n_outputs; k++) {
      uint32_t local = (uint32_t)*w;
      output.dtype = (tern_dtype)(*w >> 32 & 0xFF);
      w = get_view(w, &output.view);
      /* A write to a part of what has failed leaves it failed. */
      if (!cause && failures[local] && !covers_whole(&output, fates[local].bytes)) cause = failures[local];
    }
    skipped[i] = cause != NULL;
    w = outputs;
    for (int k = 0; k < n_outputs && cause; k++) {
      if (fates[(uint32_t)*w].is_good && visible[(uint32_t)*w]) stop = i;
      w = get_view(w, &output.view);
    }
    if (stop == i) {
      *raised = cause;
      break;
    }
    w = outputs;
    for (int k = 0; k < n_outputs; k++) {
      failures[(uint32_t)*w] = cause;
      fates[(uint32_t)*w].is_good = !cause;
      w = get_view(w, &output.view);
    }
  }
  free(fates);
  return stop;
}
