/* What a step costs at least: arithmetic operations, and bytes moved if every operand comes from memory once. For people who ask how far a kernel is from what the
 * machine can do (execute.c's events, plan_measure.c); nothing is decided by it. */
#include "plan.h"

static int64_t size_of(tern_dtype dtype) { return (int64_t)tern_dtype_size(dtype); }

/* Distinct elements: a broadcast dimension is read once. */
static int64_t distinct(int rank, const int64_t *dims, const int64_t *strides) {
  int64_t n = 1;
  for (int d = 0; d < rank; d++)
    if (strides[d] || !dims[d]) n *= dims[d];
  return n;
}
static int64_t view_bytes(const tern_place_view *v) { return v->location < 0 ? 0 : distinct(v->rank, v->dims, v->strides) * size_of(v->dtype); }
static int64_t view_count(const tern_place_view *v) { return v->location < 0 ? 0 : tern_dims_count(v->rank, v->dims); }

/* ---- fused loops ---- */

static void group_cost(const tern_group *g, int64_t *flops, int64_t *bytes) {
  *flops = g->count * (g->n_operations + g->n_reducers);
  for (int32_t i = 0; i < g->n_sources; i++) {
    const tern_source *s = &g->sources[i];
    switch (s->kind) {
      case TERN_SOURCE_DIRECT: *bytes += g->count * size_of(s->dtype); break;
      case TERN_SOURCE_PERIODIC: *bytes += g->row * size_of(s->dtype); break;
      case TERN_SOURCE_WALK: *bytes += distinct(s->walk.rank, s->walk.dims, s->walk.strides) * size_of(s->dtype); break;
      default: break; /* one element, or none */
    }
  }
  for (int32_t i = 0; i < g->n_sinks; i++) *bytes += g->count * (int64_t)g->sinks[i].element;
  for (int32_t i = 0; i < g->n_reducers; i++)
    if (g->row > 0) *bytes += (g->form == TERN_GROUP_COLUMNS ? g->row : g->count / g->row) * size_of(g->reducers[i].stored);
}

/* ---- kernels ---- */

/* A multiplication and an addition for each element of the result and each of the contracted dimensions. */
static int64_t dot_flops(const tern_kernel_step *k) {
  int64_t n = 2 * view_count(&k->out[0]);
  for (int i = 0; i < k->op.attrs->dot.n_contract; i++) n *= k->in[0].dims[k->op.attrs->dot.lhs_contract[i]];
  return n;
}
/* `y` is what the forward convolution gives (or its gradient), `w` the weights [out channels, ...]. */
static int64_t conv_flops(const tern_place_view *y, const tern_place_view *w) { return w->dims[0] ? 2 * view_count(y) * (view_count(w) / w->dims[0]) : 0; }
/* Scores and sums: q [B, H, L, E], k [B, Hk, S, E], v [B, Hk, S, Ev]. */
static int64_t attention_flops(const tern_place_view *q, const tern_place_view *k, const tern_place_view *v, int64_t products_e, int64_t products_ev, bool causal) {
  const int64_t rows = q->dims[0] * q->dims[1] * q->dims[2];
  return 2 * rows * k->dims[2] * (products_e * q->dims[3] + products_ev * v->dims[3]) / (causal ? 2 : 1);
}

/* Operations for each element of the largest operand, where the kernel is no contraction: an estimate, a division or a function counted as one. */
static int64_t operations_per_element(tern_op_kind kind) {
  static const struct { uint16_t kind, operations; } known[] = {
      {TERN_OP_SOFTMAX, 5}, {TERN_OP_LOG_SOFTMAX, 5}, {TERN_OP_SOFTMAX_GRAD, 4}, {TERN_OP_LOG_SOFTMAX_GRAD, 4}, {TERN_OP_LAYER_NORM, 8}, {TERN_OP_LAYER_NORM_GRAD, 12},
      {TERN_OP_BATCH_NORM, 7}, {TERN_OP_BATCH_NORM_GRAD, 10}, {TERN_OP_GELU, 10}, {TERN_OP_GELU_GRAD, 16}, {TERN_OP_PHILOX, 25}};
  for (size_t i = 0; i < TERN_COUNT(known); i++)
    if (known[i].kind == kind) return known[i].operations;
  return 1;
}

static void kernel_cost(const tern_kernel_step *k, int64_t *flops, int64_t *bytes) {
  int64_t most = 0;
  for (int32_t i = 0; i < k->n_in; i++) *bytes += view_bytes(&k->in[i]), most = view_count(&k->in[i]) > most ? view_count(&k->in[i]) : most;
  for (int32_t i = 0; i < k->n_out; i++) *bytes += view_bytes(&k->out[i]), most = view_count(&k->out[i]) > most ? view_count(&k->out[i]) : most;
  switch ((tern_op_kind)k->op.kind) {
    case TERN_OP_DOT: *flops = dot_flops(k); break;
    case TERN_OP_CONV: *flops = conv_flops(&k->out[0], &k->in[1]); break;
    case TERN_OP_CONV_INPUT_GRAD: *flops = conv_flops(&k->in[0], &k->in[1]); break;
    case TERN_OP_CONV_WEIGHT_GRAD: *flops = conv_flops(&k->in[1], &k->out[0]); break;
    case TERN_OP_ATTENTION: *flops = attention_flops(&k->in[0], &k->in[1], &k->in[2], 1, 1, k->op.attrs->ints[0]); break;
    case TERN_OP_ATTENTION_GRAD: *flops = attention_flops(&k->in[1], &k->in[2], &k->in[3], 3, 2, k->op.attrs->ints[0]); break;
    case TERN_OP_LSTM: *flops = 2 * view_count(&k->in[0]) * k->in[1].dims[1]; break;
    case TERN_OP_LSTM_GRAD: *flops = 2 * view_count(&k->in[3]) * k->in[6].dims[1]; break;
    /* Only what the indices name is read of the table. */
    case TERN_OP_TAKE: case TERN_OP_GATHER: *flops = 0, *bytes = view_bytes(&k->in[1]) + 2 * view_bytes(&k->out[0]); break;
    default: *flops = most * operations_per_element((tern_op_kind)k->op.kind);
  }
}

void tern_step_cost(const tern_step *step, int64_t *flops, int64_t *bytes) {
  *flops = *bytes = 0;
  switch (step->kind) {
    case TERN_STEP_GROUP: group_cost(step->group, flops, bytes); break;
    case TERN_STEP_KERNEL: kernel_cost(step->kernel, flops, bytes); break;
    case TERN_STEP_COPY: *bytes = step->copy->n_chunks ? view_bytes(&step->copy->from) + view_bytes(&step->copy->to) : 0; break;
    case TERN_STEP_FILL: *bytes = step->fill->count * size_of(step->fill->value.dtype); break;
  }
}

const char *tern_step_name(const tern_step *step) {
  static const char *const forms[] = {"loop", "row reduction", "column reduction"};
  switch (step->kind) {
    case TERN_STEP_GROUP: return forms[step->group->form];
    case TERN_STEP_KERNEL: return tern_op_rows[step->kernel->op.kind].name;
    case TERN_STEP_COPY: return "copy";
    case TERN_STEP_FILL: return "fill";
  }
  return "?";
}
