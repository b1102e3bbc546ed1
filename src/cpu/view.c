/* Resolving VIEW operations to strides: see view.h. Called by plan.c; arithmetic on shapes only. */
#include "view.h"

void tern_strides_dense(int rank, const int64_t *dims, int64_t *strides) {
  int64_t step = 1;
  for (int d = rank - 1; d >= 0; d--) {
    strides[d] = step;
    step *= dims[d];
  }
}

void tern_walk_make(tern_block_walk *walk, int rank, const int64_t *dims, const int64_t *strides, const int *order, size_t element) {
  int n = 0;
  for (int i = 0; i < rank; i++) {
    int d = order ? order[i] : i;
    if (dims[d] == 1) continue;
    if (n && walk->strides[n - 1] == strides[d] * dims[d]) {
      walk->dims[n - 1] *= dims[d];
      walk->strides[n - 1] = strides[d];
    } else {
      walk->dims[n] = dims[d];
      walk->strides[n++] = strides[d];
    }
  }
  if (n == 0) {
    walk->dims[0] = 1;
    walk->strides[n++] = 0;
  }
  walk->rank = n;
  walk->element = (uint32_t)element;
}

/* Each run of old dimensions that is one arithmetic progression may be cut anew; runs and new dimensions are matched from the fastest. */
bool tern_strides_reshape(int rank, const int64_t *dims, const int64_t *strides, int new_rank, const int64_t *new_dims, int64_t *new_strides) {
  tern_block_walk runs;
  tern_walk_make(&runs, rank, dims, strides, NULL, 1);
  int run = runs.rank - 1;
  int64_t left = runs.dims[run], step = runs.strides[run]; /* what is left of the run, and its stride */
  for (int d = new_rank - 1; d >= 0; d--) {
    if (new_dims[d] == 1) {
      new_strides[d] = step;
      continue;
    }
    if (left == 1 && run > 0) {
      run--;
      left = runs.dims[run];
      step = runs.strides[run];
    }
    if (left % new_dims[d] != 0) return false;
    new_strides[d] = step;
    step *= new_dims[d];
    left /= new_dims[d];
  }
  return true;
}

static bool is_linear(const tern_program *p, tern_value v, const tern_value_view *view) {
  const tern_value_info *info = &p->values[v];
  if (view->offset != 0 || tern_value_count(p, v) != tern_value_count(p, view->root)) return false;
  int64_t expected = 1;
  for (int d = info->rank - 1; d >= 0; d--) {
    if (info->dims[d] != 1 && view->strides[d] != expected) return false;
    expected *= info->dims[d];
  }
  return true;
}

static void resolve_root(const tern_program *p, tern_value v, tern_value_view *view) {
  const tern_value_info *info = &p->values[v];
  const tern_op *op = &p->ops[info->op];
  view->root = v;
  view->linear = true;
  view->offset = 0;
  if (op->kind == TERN_OP_CONSTANT || op->kind == TERN_OP_IOTA) {
    for (int d = 0; d < info->rank; d++) view->strides[d] = op->kind == TERN_OP_IOTA && d == op->attrs->axis.dim;
    view->linear = is_linear(p, v, view);
  } else {
    tern_strides_dense(info->rank, info->dims, view->strides);
  }
}

static void resolve_view(const tern_program *p, const tern_op *op, tern_value_view *views) {
  const tern_value result = op->first_result, operand = op->operands[0];
  const tern_value_info *to = &p->values[result], *from = &p->values[operand];
  const tern_value_view *source = &views[operand];
  tern_value_view *view = &views[result];
  const tern_attrs *a = op->attrs;
  view->root = source->root;
  view->offset = source->offset;
  switch ((tern_op_kind)op->kind) {
    case TERN_OP_BROADCAST:
      for (int d = 0; d < to->rank; d++) view->strides[d] = 0;
      for (int d = 0; d < from->rank; d++)
        if (from->dims[d] == to->dims[a->dims.dims[d]]) view->strides[a->dims.dims[d]] = source->strides[d];
      break;
    case TERN_OP_TRANSPOSE:
      for (int d = 0; d < to->rank; d++) view->strides[d] = source->strides[a->dims.dims[d]];
      break;
    case TERN_OP_SLICE:
      for (int d = 0; d < to->rank; d++) {
        view->offset += a->slice.start[d] * source->strides[d];
        view->strides[d] = source->strides[d] * a->slice.stride[d];
      }
      break;
    case TERN_OP_REVERSE:
      for (int d = 0; d < to->rank; d++) view->strides[d] = source->strides[d];
      for (int i = 0; i < a->dims.n; i++) {
        int d = a->dims.dims[i];
        view->offset += (from->dims[d] - 1) * source->strides[d];
        view->strides[d] = -source->strides[d];
      }
      break;
    default: /* reshape */
      if (tern_value_count(p, result) == 0 || !tern_strides_reshape(from->rank, from->dims, source->strides, to->rank, to->dims, view->strides)) {
        resolve_root(p, result, view);
        return;
      }
  }
  view->linear = is_linear(p, result, view);
}

tern_status tern_views_resolve(const tern_program *p, tern_arena *arena, tern_value_view **out) {
  tern_value_view *views = tern_arena_alloc(arena, (size_t)p->n_values * sizeof *views);
  if (!views) return tern_error_new(TERN_OUT_OF_MEMORY, "no host memory to plan a program of %d values", p->n_values);
  for (int32_t i = 0; i < p->n_ops; i++) {
    const tern_op *op = &p->ops[i];
    if (tern_op_rows[op->kind].class == TERN_CLASS_VIEW) resolve_view(p, op, views);
    else
      for (int r = 0; r < op->n_results; r++) resolve_root(p, op->first_result + r, &views[op->first_result + r]);
  }
  *out = views;
  return NULL;
}
