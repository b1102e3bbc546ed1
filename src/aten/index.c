/* index: index_select, gather, scatter, index_add and their kin: one tensor of indices along one dimension. Indexing with several tensors (x[i, j]) is in
 * index_tensors.c, its rows in the table here.
 *
 * Indices are checked while the program runs (check): an index out of range fails the launch before anything is written. Tensors of rank 0 count as
 * one-dimensional. f16 and bf16 accumulate in f32. */
#include <math.h>
#include "index.h"
#include "layout.h"

/* ---- reading along a dimension ---- */

static int64_t size_at(const tern_tensor *t, int dim) { return t->rank == 0 ? 1 : t->sizes[dim]; }
static int rank_of(const tern_tensor *t) { return t->rank == 0 ? 1 : t->rank; }
static bool is_index_vector(const tern_tensor *index) { return index->rank <= 1; }

/* (self, dim, index) */
static tern_verdict infer_select(const tern_call *call, tern_draft *draft) {
  const tern_tensor *x = tern_arg_tensor(call, 0), *index = tern_arg_tensor(call, 2);
  int dim;
  if (!x || !index || !tern_wrap_dim(tern_arg_int(call, 1, 0), x->rank, &dim) || !is_index_vector(index)) return TERN_REJECT;
  if (!tern_out_is(call, 0, (tern_dtype)x->dtype)) return TERN_REJECT;
  if (!tern_nn_is_index(index) || (index->count > 0 && size_at(x, dim) == 0) || (x->rank == 0 && index->count != 1)) return TERN_FALL_BACK;
  tern_draft_attr(draft, dim);
  tern_draft_output *result = tern_draft_result(draft, (tern_dtype)x->dtype, x->rank, x->sizes);
  if (x->rank) result->sizes[dim] = index->count;
  return tern_nn_operands(draft, 2, (const tern_tensor *[]){x, index});
}

static tern_status lower_select(const tern_lowering *node, tern_value *results) {
  tern_program *p = node->program;
  tern_value x = tern_nn_at_least_1d(p, node->operands[0]), index = tern_nn_at_least_1d(p, node->operands[1]);
  int dim = (int)node->attrs[0];
  tern_check_index(p, index, 0, tern_value_dims(p, x)[dim] - 1);
  results[0] = tern_nn_result(node, 0, tern_take(p, x, index, dim));
  return NULL;
}

/* Whether `index` is no larger than `other`, but perhaps in dimension `except`. */
static bool is_within(const tern_tensor *index, const tern_tensor *other, int except) {
  if (rank_of(index) != rank_of(other)) return false;
  for (int d = 0; d < rank_of(index); d++)
    if (d != except && size_at(index, d) > size_at(other, d)) return false;
  return true;
}

/* (self, dim, index, *, sparse_grad) */
static tern_verdict infer_gather(const tern_call *call, tern_draft *draft) {
  const tern_tensor *x = tern_arg_tensor(call, 0), *index = tern_arg_tensor(call, 2);
  int dim;
  if (!x || !index || !tern_wrap_dim(tern_arg_int(call, 1, 0), x->rank, &dim)) return TERN_REJECT;
  if (!tern_out_is(call, 0, (tern_dtype)x->dtype)) return TERN_REJECT;
  if (!tern_nn_is_index(index) && index->count > 0) return TERN_FALL_BACK; /* of an empty one PyTorch does not look at the dtype */
  if (index->count > 0 && !is_within(index, x, dim)) return TERN_REJECT;
  if (index->count > 0 && x->count == 0) return TERN_FALL_BACK;
  tern_draft_attr(draft, dim);
  tern_draft_result(draft, (tern_dtype)x->dtype, index->rank, index->sizes);
  return tern_nn_operands(draft, 2, (const tern_tensor *[]){x, index});
}

static tern_status lower_gather(const tern_lowering *node, tern_value *results) {
  tern_program *p = node->program;
  tern_value x = tern_nn_at_least_1d(p, node->operands[0]), index = tern_nn_at_least_1d(p, node->operands[1]);
  int dim = (int)node->attrs[0];
  tern_check_index(p, index, 0, tern_value_dims(p, x)[dim] - 1);
  results[0] = tern_nn_result(node, 0, tern_gather(p, x, index, dim));
  return NULL;
}

/* (self, index): the tensor as if it were flat */
static tern_verdict infer_take(const tern_call *call, tern_draft *draft) {
  const tern_tensor *x = tern_arg_tensor(call, 0), *index = tern_arg_tensor(call, 1);
  if (!x || !index) return TERN_REJECT;
  if (!tern_nn_is_index(index) || (x->count == 0 && index->count > 0)) return TERN_FALL_BACK;
  tern_draft_result(draft, (tern_dtype)x->dtype, index->rank, index->sizes);
  return tern_nn_operands(draft, 2, (const tern_tensor *[]){x, index});
}

static tern_status lower_take(const tern_lowering *node, tern_value *results) {
  tern_program *p = node->program;
  tern_value x = tern_nn_flat(p, node->operands[0]);
  results[0] = tern_take(p, x, tern_index_wrapped(p, node->operands[1], tern_nn_count(p, x)), 0);
  return NULL;
}

/* ---- scatter. attrs: dim, how; with include_self == false or mean, see scatter_reduce ---- */

enum { DIM, HOW, EXCLUDES_SELF, IS_MEAN };

static bool accumulates(const tern_tensor *x, int64_t how) { return how == TERN_SET || x->dtype < TERN_C64; }

tern_dtype tern_index_combined_in(tern_dtype dtype, tern_combine how) {
  return how == TERN_SET ? dtype : dtype == TERN_BOOL ? TERN_I32 : tern_compute_dtype(dtype);
}

/* `src`: argument 3 is a tensor at least as large as index; else a number. */
static tern_verdict infer_any_scatter(const tern_call *call, tern_draft *draft, bool src, int64_t how, bool excludes_self, bool mean) {
  const tern_tensor *x = tern_arg_tensor(call, 0), *index = tern_arg_tensor(call, 2), *update = src ? tern_arg_tensor(call, 3) : NULL;
  int dim;
  if (!x || !index || (src && !update) || !tern_wrap_dim(tern_arg_int(call, 1, 0), x->rank, &dim)) return TERN_REJECT;
  if (how < 0 || (!tern_nn_is_index(index) && index->count > 0) || !accumulates(x, how) || (mean && !tern_nn_is_float(x))) return TERN_FALL_BACK;
  if (index->count > 0 && (!is_within(index, x, dim) || (src && !is_within(index, update, -1)))) return TERN_REJECT;
  if (src && update->dtype != x->dtype) return TERN_REJECT;
  if (index->count > 0 && x->count == 0) return TERN_FALL_BACK;
  if (!src && (call->n_arguments < 4 || !tern_draft_number(draft, &call->arguments[3], (tern_dtype)x->dtype, false))) return TERN_FALL_BACK;
  tern_draft_attrs(draft, 4, (int64_t[]){dim, how, excludes_self, mean});
  tern_draft_result(draft, (tern_dtype)x->dtype, x->rank, x->sizes);
  return tern_nn_operands(draft, src ? 3 : 2, (const tern_tensor *[]){x, index, update});
}

/* The text argument `i` as a way to combine; -1 for another. */
static int64_t reduce_text(const tern_call *call, int i) {
  static const struct {
    const char *text;
    tern_combine how;
  } names[] = {
      {"add", TERN_COMBINE_ADD},  {"multiply", TERN_COMBINE_MULTIPLY}, {"sum", TERN_COMBINE_ADD},  {"prod", TERN_COMBINE_MULTIPLY},
      {"mean", TERN_COMBINE_ADD}, {"amax", TERN_COMBINE_MAX},          {"amin", TERN_COMBINE_MIN},
  };
  if (i >= call->n_arguments || call->arguments[i].tag != TERN_ARG_TEXT) return -1;
  for (size_t n = 0; n < TERN_COUNT(names); n++)
    if (strcmp(call->arguments[i].u.text, names[n].text) == 0) return names[n].how;
  return -1;
}

static tern_verdict infer_scatter(const tern_call *call, tern_draft *draft) { return infer_any_scatter(call, draft, true, TERN_SET, false, false); }
static tern_verdict infer_scatter_value(const tern_call *call, tern_draft *draft) { return infer_any_scatter(call, draft, false, TERN_SET, false, false); }
static tern_verdict infer_scatter_add(const tern_call *call, tern_draft *draft) { return infer_any_scatter(call, draft, true, TERN_COMBINE_ADD, false, false); }
static tern_verdict infer_scatter_reduce(const tern_call *call, tern_draft *draft) {
  return infer_any_scatter(call, draft, true, reduce_text(call, 4), false, false);
}
static tern_verdict infer_scatter_value_reduce(const tern_call *call, tern_draft *draft) {
  return infer_any_scatter(call, draft, false, reduce_text(call, 4), false, false);
}
/* (self, dim, index, src, reduce, *, include_self) */
static tern_verdict infer_scatter_reduce_two(const tern_call *call, tern_draft *draft) {
  int64_t how = reduce_text(call, 4);
  return infer_any_scatter(call, draft, true, how, !tern_arg_bool(call, 5, true), how >= 0 && strcmp(call->arguments[4].u.text, "mean") == 0);
}

/* The first elements of x in every dimension, as many as `like` has. */
static tern_value cut_to(tern_program *p, tern_value x, tern_value like) {
  int64_t start[TERN_MAX_RANK] = {0}, stride[TERN_MAX_RANK];
  for (int d = 0; d < TERN_MAX_RANK; d++) stride[d] = 1;
  return tern_slice(p, x, start, tern_value_dims(p, like), stride);
}

/* What combining starts from where self does not count. */
static tern_value identity(tern_program *p, tern_dtype dtype, tern_combine how) {
  if (how == TERN_COMBINE_ADD || how == TERN_COMBINE_MULTIPLY) return tern_nn_number(p, dtype, how == TERN_COMBINE_MULTIPLY);
  bool smallest = how == TERN_COMBINE_MAX;
  if (tern_dtype_is_float(dtype)) return tern_nn_number(p, dtype, smallest ? -(double)INFINITY : (double)INFINITY);
  int bits = (int)tern_dtype_size(dtype) * 8 - tern_dtype_is_signed(dtype);
  int64_t most = bits >= 63 ? INT64_MAX : ((int64_t)1 << bits) - 1;
  return tern_constant_int(p, dtype, 0, NULL, smallest ? (tern_dtype_is_signed(dtype) ? -most - 1 : 0) : most);
}

static tern_status lower_scatter(const tern_lowering *node, tern_value *results) {
  tern_program *p = node->program;
  const int64_t *attrs = node->attrs;
  int dim = (int)attrs[DIM];
  tern_combine how = (tern_combine)attrs[HOW];
  tern_value base = tern_nn_at_least_1d(p, node->operands[0]), index = tern_nn_at_least_1d(p, node->operands[1]);
  tern_dtype dtype = tern_index_combined_in(tern_value_dtype(p, base), how);
  if (tern_nn_count(p, index) == 0) {
    results[0] = node->operands[0];
    return NULL;
  }
  int rank = tern_value_rank(p, index);
  const int64_t *dims = tern_value_dims(p, index);
  tern_value update;
  if (node->n_operands == 3)
    update = cut_to(p, tern_convert(p, tern_nn_at_least_1d(p, node->operands[2]), dtype), index);
  else
    update = tern_broadcast_to(p, tern_convert(p, node->scalars[0], dtype), rank, dims);
  tern_check_index(p, index, 0, tern_value_dims(p, base)[dim] - 1);
  base = tern_convert(p, base, dtype);
  if (attrs[EXCLUDES_SELF]) base = tern_scatter(p, base, index, tern_broadcast_to(p, identity(p, dtype, how), rank, dims), dim, TERN_SET);
  tern_value sum = tern_scatter(p, base, index, update, dim, how);
  if (attrs[IS_MEAN]) {
    tern_value one = tern_nn_number(p, dtype, 1), start = tern_nn_number(p, dtype, attrs[EXCLUDES_SELF] ? 0 : 1);
    start = tern_broadcast_to(p, start, tern_value_rank(p, base), tern_value_dims(p, base));
    tern_value count = tern_scatter(p, start, index, tern_broadcast_to(p, one, rank, dims), dim, TERN_COMBINE_ADD);
    sum = tern_divide(p, sum, tern_maximum(p, count, one));
  }
  results[0] = tern_nn_result(node, 0, sum);
  return NULL;
}

/* ---- writing whole slices: index_add, index_copy, index_fill. attrs: dim, how, whether negative indices wrap ---- */

enum { WRAPS = 2 };

/* index_add(self, dim, index, source, *, alpha) and index_copy(self, dim, index, source) */
static tern_verdict infer_slices(const tern_call *call, tern_draft *draft, tern_combine how) {
  const tern_tensor *x = tern_arg_tensor(call, 0), *index = tern_arg_tensor(call, 2), *source = tern_arg_tensor(call, 3);
  int dim;
  if (!x || !index || !source || !tern_wrap_dim(tern_arg_int(call, 1, 0), x->rank, &dim) || !is_index_vector(index)) return TERN_REJECT;
  if (!tern_nn_is_index(index) || source->dtype != x->dtype || !accumulates(x, how)) return TERN_FALL_BACK;
  if (rank_of(source) != rank_of(x) || size_at(source, dim) != index->count) return TERN_FALL_BACK;
  for (int d = 0; d < x->rank && source->rank; d++)
    if (d != dim && source->sizes[d] != x->sizes[d]) return TERN_REJECT;
  if (x->count == 0 && source->count > 0) return TERN_FALL_BACK;
  if (how == TERN_COMBINE_ADD && (call->n_arguments < 5 || !tern_draft_number(draft, &call->arguments[4], tern_nn_wide(x), true))) return TERN_FALL_BACK;
  tern_draft_attrs(draft, 3, (int64_t[]){dim, how, false});
  tern_draft_result(draft, (tern_dtype)x->dtype, x->rank, x->sizes);
  return tern_nn_operands(draft, 3, (const tern_tensor *[]){x, index, source});
}

static tern_verdict infer_index_add(const tern_call *call, tern_draft *draft) { return infer_slices(call, draft, TERN_COMBINE_ADD); }
static tern_verdict infer_index_copy(const tern_call *call, tern_draft *draft) { return infer_slices(call, draft, TERN_SET); }

/* (self, dim, index, value): a number, or a tensor of rank 0 */
static tern_verdict infer_index_fill(const tern_call *call, tern_draft *draft) {
  const tern_tensor *x = tern_arg_tensor(call, 0), *index = tern_arg_tensor(call, 2), *value = tern_arg_tensor(call, 3);
  int dim;
  if (!x || !index || call->n_arguments < 4 || !tern_wrap_dim(tern_arg_int(call, 1, 0), x->rank, &dim) || !is_index_vector(index)) return TERN_REJECT;
  if (!tern_nn_is_index(index) || (x->count == 0 && index->count > 0) || tern_layout_writes_repeats(call, x)) return TERN_FALL_BACK;
  tern_draft_attrs(draft, 3, (int64_t[]){dim, TERN_SET, true});
  tern_draft_result(draft, (tern_dtype)x->dtype, x->rank, x->sizes);
  bool on_device = value && value->device >= 0;
  if (on_device && value->rank != 0) return TERN_FALL_BACK;
  if (!on_device && !tern_draft_number(draft, &call->arguments[3], (tern_dtype)x->dtype, false)) return TERN_FALL_BACK;
  return tern_nn_operands(draft, on_device ? 3 : 2, (const tern_tensor *[]){x, index, value});
}

static tern_status lower_slices(const tern_lowering *node, tern_value *results) {
  tern_program *p = node->program;
  int dim = (int)node->attrs[DIM];
  tern_combine how = (tern_combine)node->attrs[HOW];
  tern_value base = tern_nn_at_least_1d(p, node->operands[0]), index = tern_nn_at_least_1d(p, node->operands[1]);
  tern_dtype dtype = tern_index_combined_in(tern_value_dtype(p, base), how);
  int rank = tern_value_rank(p, base);
  int64_t dims[TERN_MAX_RANK], range = tern_value_dims(p, base)[dim];
  memcpy(dims, tern_value_dims(p, base), (size_t)rank * sizeof *dims);
  dims[dim] = tern_nn_count(p, index);
  tern_value update = tern_convert(p, node->n_operands == 3 ? node->operands[2] : node->scalars[0], dtype);
  update = tern_nn_count(p, update) == 1 ? tern_broadcast_to(p, tern_reshape(p, update, 0, NULL), rank, dims) : tern_reshape(p, update, rank, dims);
  if (node->attrs[HOW] == TERN_COMBINE_ADD && node->scalar_kinds[0] != TERN_SCALAR_ONE) update = tern_multiply(p, update, tern_convert(p, node->scalars[0], dtype));
  if (node->attrs[WRAPS])
    index = tern_index_wrapped(p, index, range);
  else
    tern_check_index(p, index, 0, range - 1);
  results[0] = tern_nn_result(node, 0, tern_put(p, tern_convert(p, base, dtype), index, update, dim, how));
  return NULL;
}

/* put_(self, index, source, accumulate): the tensor as if it were flat */
static tern_verdict infer_put(const tern_call *call, tern_draft *draft) {
  const tern_tensor *x = tern_arg_tensor(call, 0), *index = tern_arg_tensor(call, 1), *source = tern_arg_tensor(call, 2);
  if (!x || !index || !source) return TERN_REJECT;
  int64_t how = tern_arg_bool(call, 3, false) ? TERN_COMBINE_ADD : TERN_SET;
  if (index->dtype != TERN_I64 || source->dtype != x->dtype || source->count != index->count || x->count == 0 || !accumulates(x, how)) return TERN_FALL_BACK;
  tern_draft_attrs(draft, 2, (int64_t[]){0, how});
  tern_draft_result(draft, (tern_dtype)x->dtype, x->rank, x->sizes);
  return tern_nn_operands(draft, 3, (const tern_tensor *[]){x, index, source});
}

static tern_status lower_put(const tern_lowering *node, tern_value *results) {
  tern_program *p = node->program;
  tern_combine how = (tern_combine)node->attrs[HOW];
  tern_value base = tern_nn_flat(p, node->operands[0]);
  tern_dtype dtype = tern_index_combined_in(tern_value_dtype(p, base), how);
  tern_value index = tern_index_wrapped(p, tern_nn_flat(p, node->operands[1]), tern_nn_count(p, base));
  tern_value update = tern_convert(p, tern_nn_flat(p, node->operands[2]), dtype);
  results[0] = tern_nn_result(node, 0, tern_put(p, tern_convert(p, base, dtype), index, update, 0, how));
  return NULL;
}

/* ---- gradients of select and slice: the gradient placed in zeros. attrs: dim, first place, step ---- */

static tern_verdict draft_placed(tern_draft *draft, const tern_tensor *gy, int n, const int64_t *sizes, int dim, int64_t start, int64_t step) {
  tern_draft_attrs(draft, 3, (int64_t[]){dim, start, step});
  tern_draft_result(draft, (tern_dtype)gy->dtype, n, sizes);
  return tern_draft_tensor(draft, gy);
}

/* (grad_output, input_sizes, dim, index) */
static tern_verdict infer_select_backward(const tern_call *call, tern_draft *draft) {
  const tern_tensor *gy = tern_arg_tensor(call, 0);
  int n, dim;
  const int64_t *sizes;
  if (!gy || !tern_arg_ints(call, 1, &n, &sizes) || n < 1 || n != gy->rank + 1 || !tern_wrap_dim(tern_arg_int(call, 2, 0), n, &dim)) return TERN_REJECT;
  if (n > TERN_MAX_TENSOR_RANK || gy->dtype >= TERN_C64) return TERN_FALL_BACK;
  int64_t index = tern_arg_int(call, 3, 0);
  if (index < 0) index += sizes[dim];
  if (index < 0 || index >= sizes[dim]) return TERN_REJECT;
  for (int d = 0; d < n; d++)
    if (d != dim && sizes[d] != gy->sizes[d - (d > dim)]) return TERN_REJECT;
  return draft_placed(draft, gy, n, sizes, dim, index, 1);
}

/* (grad_output, input_sizes, dim, start, end, step) */
static tern_verdict infer_slice_backward(const tern_call *call, tern_draft *draft) {
  const tern_tensor *gy = tern_arg_tensor(call, 0);
  int n, dim;
  const int64_t *sizes;
  if (!gy || !tern_arg_ints(call, 1, &n, &sizes) || n < 1 || n != gy->rank || !tern_wrap_dim(tern_arg_int(call, 2, 0), n, &dim)) return TERN_REJECT;
  if (n > TERN_MAX_TENSOR_RANK || gy->dtype >= TERN_C64) return TERN_FALL_BACK;
  int64_t start = tern_arg_int(call, 3, 0), step = tern_arg_int(call, 5, 1), size = sizes[dim];
  if (start < 0) start += size;
  start = start < 0 ? 0 : start > size ? size : start;
  if (step < 1 || (gy->sizes[dim] > 0 && start + (gy->sizes[dim] - 1) * step >= size)) return TERN_REJECT;
  for (int d = 0; d < n; d++)
    if (d != dim && sizes[d] != gy->sizes[d]) return TERN_REJECT;
  return draft_placed(draft, gy, n, sizes, dim, start, step);
}

static tern_status lower_placed(const tern_lowering *node, tern_value *results) {
  tern_program *p = node->program;
  const tern_geometry *view = &node->outputs[0].view;
  tern_dtype dtype = node->outputs[0].computed;
  int dim = (int)node->attrs[0];
  int64_t start = node->attrs[1], step = node->attrs[2], low[TERN_MAX_RANK] = {0}, high[TERN_MAX_RANK] = {0}, interior[TERN_MAX_RANK] = {0};
  tern_value gy = node->operands[0];
  if (tern_value_rank(p, gy) < view->rank) gy = tern_nn_unsqueeze(p, gy, dim);
  int64_t n = tern_value_dims(p, gy)[dim];
  if (n == 0) {
    results[0] = tern_nn_zeros(p, dtype, view->rank, view->sizes);
    return NULL;
  }
  low[dim] = start;
  high[dim] = view->sizes[dim] - start - ((n - 1) * step + 1);
  interior[dim] = step - 1;
  results[0] = tern_pad(p, gy, tern_nn_zeros(p, dtype, 0, NULL), low, high, interior);
  return NULL;
}

const tern_aten_row tern_aten_index[] = {
    {.functional = "index_select", .out = "index_select.out", .infer = infer_select, .lower = lower_select},
    {.functional = "gather", .out = "gather.out", .infer = infer_gather, .lower = lower_gather},
    {.functional = "take", .out = "take.out", .infer = infer_take, .lower = lower_take},
    {.functional = "scatter.src", .inplace = "scatter_.src", .out = "scatter.src_out", .infer = infer_scatter, .lower = lower_scatter},
    {.functional = "scatter.value", .inplace = "scatter_.value", .out = "scatter.value_out", .infer = infer_scatter_value, .lower = lower_scatter},
    {.functional = "scatter.reduce", .inplace = "scatter_.reduce", .out = "scatter.reduce_out", .infer = infer_scatter_reduce, .lower = lower_scatter},
    {.functional = "scatter.value_reduce",
     .inplace = "scatter_.value_reduce",
     .out = "scatter.value_reduce_out",
     .infer = infer_scatter_value_reduce,
     .lower = lower_scatter},
    {.functional = "scatter_add", .inplace = "scatter_add_", .out = "scatter_add.out", .infer = infer_scatter_add, .lower = lower_scatter},
    {.functional = "scatter_reduce.two",
     .inplace = "scatter_reduce_.two",
     .out = "scatter_reduce.two_out",
     .infer = infer_scatter_reduce_two,
     .lower = lower_scatter},
    {.functional = "index_add", .inplace = "index_add_", .out = "index_add.out", .infer = infer_index_add, .lower = lower_slices},
    {.functional = "index_copy", .inplace = "index_copy_", .out = "index_copy.out", .infer = infer_index_copy, .lower = lower_slices},
    {.functional = "index_fill.int_Scalar", .inplace = "index_fill_.int_Scalar", .infer = infer_index_fill, .lower = lower_slices},
    {.functional = "index_fill.int_Tensor", .inplace = "index_fill_.int_Tensor", .infer = infer_index_fill, .lower = lower_slices},
    {.functional = "put", .inplace = "put_", .infer = infer_put, .lower = lower_put},
    {.functional = "index.Tensor", .out = "index.Tensor_out", .infer = tern_index_infer, .custom = tern_index_masks, .lower = tern_index_lower},
    {.functional = "_unsafe_index.Tensor", .infer = tern_index_infer, .custom = tern_index_masks, .lower = tern_index_lower},
    {.functional = "index_put", .inplace = "index_put_", .infer = tern_index_put_infer, .custom = tern_index_masks, .lower = tern_index_put_lower},
    {.functional = "_index_put_impl", .inplace = "_index_put_impl_", .infer = tern_index_put_infer, .custom = tern_index_masks, .lower = tern_index_put_lower},
    {.functional = "_unsafe_index_put", .infer = tern_index_put_infer, .custom = tern_index_masks, .lower = tern_index_put_lower},
    {.functional = "select_backward", .infer = infer_select_backward, .lower = lower_placed},
    {.functional = "slice_backward", .infer = infer_slice_backward, .lower = lower_placed},
};
TERN_ATEN_FAMILY_END(index)
