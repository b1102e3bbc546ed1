/* reduce: sums, products, extrema, their indices and tests. f16 and bf16 accumulate in f32 and round once, at the end, as PyTorch's CPU kernels
 * do. */
#include "reduce.h"

/* ---- arguments ---- */

tern_verdict tern_reduced_dims(const tern_call *call, int at, const tern_tensor *x, tern_empty_dims empty, uint32_t *dims) {
  int n = 0, dim;
  const int64_t *values = NULL;
  *dims = x->rank ? (1u << x->rank) - 1 : 0;
  if (x->rank > TERN_MAX_TENSOR_RANK) return TERN_FALL_BACK;
  if (at < 0 || tern_arg_is_none(call, at)) return TERN_RECORD;
  if (!tern_arg_ints(call, at, &n, &values)) return TERN_FALL_BACK;
  if (n == 0 && empty == TERN_EMPTY_IS_ALL) return TERN_RECORD;
  *dims = 0;
  for (int i = 0; i < n; i++) {
    if (!tern_wrap_dim(values[i], x->rank, &dim) || *dims >> dim & 1) return TERN_REJECT;
    *dims |= 1u << dim;
  }
  if (x->rank == 0) *dims = 0;
  return TERN_RECORD;
}

int64_t tern_reduced_count(const tern_tensor *x, uint32_t dims) {
  int64_t count = 1;
  for (int d = 0; d < x->rank; d++)
    if (dims >> d & 1) count *= x->sizes[d];
  return count;
}

bool tern_reduction_dtype(const tern_call *call, int at, tern_dtype *dtype) {
  int number = TERN_DTYPE_COUNT;
  if (!tern_arg_is_none(call, at)) {
    number = tern_dtype_from_torch((int)tern_arg_int(call, at, -1));
  } else if (call->form == TERN_OUT) {
    const tern_tensor *out = tern_arg_tensor(call, call->n_arguments - 1);
    if (out) number = out->dtype;
  }
  if (number < 0) return false;
  *dtype = (tern_dtype)number;
  return true;
}

tern_draft_output *tern_draft_reduced_result(tern_draft *draft, const tern_tensor *x, uint32_t dims, bool keepdim, tern_dtype dtype) {
  int64_t sizes[TERN_MAX_TENSOR_RANK];
  int rank = 0;
  for (int d = 0; d < x->rank; d++) {
    bool reduced = dims >> d & 1;
    if (!reduced || keepdim) sizes[rank++] = reduced ? 1 : x->sizes[d];
  }
  return tern_draft_result(draft, dtype, rank, sizes);
}

tern_verdict tern_draft_reduction(tern_draft *draft, const tern_tensor *x, uint32_t dims, bool keepdim, tern_dtype work, tern_dtype dtype) {
  if (work >= TERN_C64 || dtype >= TERN_C64 || (work >= TERN_U16 && work <= TERN_U64) || x->dtype >= TERN_C64) return TERN_FALL_BACK;
  tern_verdict verdict = tern_draft_tensor(draft, x);
  if (verdict != TERN_RECORD) return verdict;
  tern_draft_attr(draft, keepdim);
  tern_draft_attr(draft, work);
  tern_draft_attr(draft, dims);
  tern_draft_reduced_result(draft, x, dims, keepdim, dtype);
  return TERN_RECORD;
}

/* ---- lowering ---- */

tern_value tern_lower_reduce(const tern_lowering *node, tern_reduction how, tern_value x) {
  int dims[TERN_MAX_TENSOR_RANK], n = 0;
  for (int d = 0; d < tern_value_rank(node->program, x); d++)
    if (node->attrs[2] >> d & 1) dims[n++] = d;
  return n ? tern_reduce(node->program, how, x, n, dims) : x;
}

tern_value tern_lower_reduce_kept(const tern_lowering *node, tern_reduction how, tern_value x) {
  int64_t sizes[TERN_MAX_TENSOR_RANK];
  int rank = tern_value_rank(node->program, x);
  const int64_t *dims = tern_value_dims(node->program, x);
  for (int d = 0; d < rank; d++) sizes[d] = node->attrs[2] >> d & 1 ? 1 : dims[d];
  return tern_reshape(node->program, tern_lower_reduce(node, how, x), rank, sizes);
}

tern_value tern_lower_reduced(const tern_lowering *node, int output, tern_value v) {
  const tern_output *o = &node->outputs[output];
  return tern_reshape(node->program, tern_convert(node->program, v, o->computed), o->view.rank, o->view.sizes);
}

static tern_value operand_to_work(const tern_lowering *node) { return tern_convert(node->program, node->operands[0], (tern_dtype)node->attrs[1]); }

/* ---- sum, prod: integers and bool give i64 ---- */

static tern_verdict infer_accumulation(const tern_call *call, tern_draft *draft, int dim_at, int keep_at, int dtype_at) {
  const tern_tensor *x = tern_arg_tensor(call, 0);
  uint32_t dims;
  tern_dtype dtype;
  if (!x) return TERN_REJECT;
  tern_verdict verdict = tern_reduced_dims(call, dim_at, x, TERN_EMPTY_IS_ALL, &dims);
  if (verdict != TERN_RECORD) return verdict;
  if (!tern_reduction_dtype(call, dtype_at, &dtype)) return TERN_FALL_BACK;
  if (dtype == TERN_DTYPE_COUNT) dtype = x->dtype < TERN_F16 ? TERN_I64 : (tern_dtype)x->dtype;
  if (dtype == TERN_BOOL) return TERN_FALL_BACK;
  return tern_draft_reduction(draft, x, dims, keep_at >= 0 && tern_arg_bool(call, keep_at, false), dtype, dtype);
}
static tern_verdict infer_accumulate_all(const tern_call *call, tern_draft *draft) { return infer_accumulation(call, draft, -1, -1, 1); }
static tern_verdict infer_accumulate_dims(const tern_call *call, tern_draft *draft) { return infer_accumulation(call, draft, 1, 2, 3); }

static tern_status lower_sum(const tern_lowering *node, tern_value *results) {
  results[0] = tern_lower_reduced(node, 0, tern_lower_reduce(node, TERN_SUM, operand_to_work(node)));
  return NULL;
}
static tern_status lower_prod(const tern_lowering *node, tern_value *results) {
  results[0] = tern_lower_reduced(node, 0, tern_lower_reduce(node, TERN_PROD, operand_to_work(node)));
  return NULL;
}

/* ---- amax, amin, max(), min() ---- */

static tern_verdict infer_extremum(const tern_call *call, tern_draft *draft, int dim_at, int keep_at) {
  const tern_tensor *x = tern_arg_tensor(call, 0);
  uint32_t dims;
  if (!x) return TERN_REJECT;
  tern_verdict verdict = tern_reduced_dims(call, dim_at, x, TERN_EMPTY_IS_ALL, &dims);
  if (verdict != TERN_RECORD) return verdict;
  if (tern_reduced_count(x, dims) == 0) return TERN_REJECT;
  return tern_draft_reduction(draft, x, dims, keep_at >= 0 && tern_arg_bool(call, keep_at, false), (tern_dtype)x->dtype, (tern_dtype)x->dtype);
}
static tern_verdict infer_extremum_all(const tern_call *call, tern_draft *draft) { return infer_extremum(call, draft, -1, -1); }
static tern_verdict infer_extremum_dims(const tern_call *call, tern_draft *draft) { return infer_extremum(call, draft, 1, 2); }

/* bool has an order only in PyTorch: the largest is any, the smallest is all. */
static tern_value reduce_extremum(const tern_lowering *node, tern_reduction how, tern_value x) {
  if (tern_value_dtype(node->program, x) == TERN_BOOL) how = how == TERN_MAX ? TERN_ANY : TERN_ALL;
  return tern_lower_reduce(node, how, x);
}
static tern_status lower_amax(const tern_lowering *node, tern_value *results) {
  results[0] = tern_lower_reduced(node, 0, reduce_extremum(node, TERN_MAX, node->operands[0]));
  return NULL;
}
static tern_status lower_amin(const tern_lowering *node, tern_value *results) {
  results[0] = tern_lower_reduced(node, 0, reduce_extremum(node, TERN_MIN, node->operands[0]));
  return NULL;
}

/* aminmax(x, *, dim=None, keepdim=False) -> min, max */
static tern_verdict infer_aminmax(const tern_call *call, tern_draft *draft) {
  const tern_tensor *x = tern_arg_tensor(call, 0);
  if (x && !(tern_out_is(call, 0, (tern_dtype)x->dtype) && tern_out_is(call, 1, (tern_dtype)x->dtype))) return TERN_REJECT;
  tern_verdict verdict = infer_extremum(call, draft, 1, 2);
  if (verdict == TERN_RECORD) tern_draft_result(draft, draft->outputs[0].dtype, draft->outputs[0].rank, draft->outputs[0].sizes);
  return verdict;
}
static tern_status lower_aminmax(const tern_lowering *node, tern_value *results) {
  results[0] = tern_lower_reduced(node, 0, reduce_extremum(node, TERN_MIN, node->operands[0]));
  results[1] = tern_lower_reduced(node, 1, reduce_extremum(node, TERN_MAX, node->operands[0]));
  return NULL;
}

/* ---- max, min over one dimension, with indices; argmax, argmin ---- */

static tern_verdict infer_max_dim(const tern_call *call, tern_draft *draft) {
  const tern_tensor *x = tern_arg_tensor(call, 0);
  int dim;
  if (!x || !tern_wrap_dim(tern_arg_int(call, 1, 0), x->rank, &dim)) return TERN_REJECT;
  if (x->rank > TERN_MAX_TENSOR_RANK) return TERN_FALL_BACK;
  uint32_t dims = x->rank ? 1u << dim : 0;
  bool keepdim = tern_arg_bool(call, 2, false);
  if (tern_reduced_count(x, dims) == 0) return TERN_REJECT;
  tern_verdict verdict = tern_draft_reduction(draft, x, dims, keepdim, (tern_dtype)x->dtype, (tern_dtype)x->dtype);
  if (verdict != TERN_RECORD) return verdict;
  tern_draft_reduced_result(draft, x, dims, keepdim, TERN_I64);
  tern_draft_attr(draft, dim);
  return TERN_RECORD;
}

/* A scalar counts as one element; bool compares as u8. */
static tern_value arg_reduce(const tern_lowering *node, tern_reduction how, int dim, tern_value x, tern_value *index) {
  const int64_t one = 1;
  if (tern_value_rank(node->program, x) == 0) x = tern_reshape(node->program, x, 1, &one);
  if (tern_value_dtype(node->program, x) == TERN_BOOL) x = tern_convert(node->program, x, TERN_U8);
  return tern_arg_reduce(node->program, how, x, dim, index);
}
static tern_status lower_select_dim(const tern_lowering *node, tern_value *results, tern_reduction how) {
  tern_value index;
  results[0] = tern_lower_reduced(node, 0, arg_reduce(node, how, (int)node->attrs[3], node->operands[0], &index));
  results[1] = tern_lower_reduced(node, 1, index);
  return NULL;
}
static tern_status lower_max_dim(const tern_lowering *node, tern_value *results) { return lower_select_dim(node, results, TERN_MAX); }
static tern_status lower_min_dim(const tern_lowering *node, tern_value *results) { return lower_select_dim(node, results, TERN_MIN); }

/* argmax(x, dim=None, keepdim=False): attrs[3] is the dimension, or -1 for the flattened tensor. */
static tern_verdict infer_arg(const tern_call *call, tern_draft *draft) {
  const tern_tensor *x = tern_arg_tensor(call, 0);
  int dim = -1;
  if (!x) return TERN_REJECT;
  if (x->rank > TERN_MAX_TENSOR_RANK || x->dtype == TERN_BOOL) return TERN_FALL_BACK;
  bool all = tern_arg_is_none(call, 1);
  if (!all && !tern_wrap_dim(tern_arg_int(call, 1, 0), x->rank, &dim)) return TERN_REJECT;
  uint32_t dims = x->rank == 0 ? 0 : all ? (1u << x->rank) - 1 : 1u << dim;
  if (tern_reduced_count(x, dims) == 0) return TERN_REJECT;
  tern_verdict verdict = tern_draft_reduction(draft, x, dims, tern_arg_bool(call, 2, false), (tern_dtype)x->dtype, TERN_I64);
  tern_draft_attr(draft, dim);
  return verdict;
}
static tern_status lower_arg(const tern_lowering *node, tern_value *results, tern_reduction how) {
  tern_value x = node->operands[0], index;
  int dim = (int)node->attrs[3];
  if (dim < 0) {
    int64_t count = 1;
    for (int d = 0; d < tern_value_rank(node->program, x); d++) count *= tern_value_dims(node->program, x)[d];
    x = tern_reshape(node->program, x, 1, &count);
    dim = 0;
  }
  arg_reduce(node, how, dim, x, &index);
  results[0] = tern_lower_reduced(node, 0, index);
  return NULL;
}
static tern_status lower_argmax(const tern_lowering *node, tern_value *results) { return lower_arg(node, results, TERN_MAX); }
static tern_status lower_argmin(const tern_lowering *node, tern_value *results) { return lower_arg(node, results, TERN_MIN); }

/* ---- any, all: bool, but u8 for u8 ---- */

static tern_verdict infer_test(const tern_call *call, tern_draft *draft, int dim_at) {
  const tern_tensor *x = tern_arg_tensor(call, 0);
  uint32_t dims;
  if (!x) return TERN_REJECT;
  tern_verdict verdict = tern_reduced_dims(call, dim_at, x, TERN_EMPTY_IS_NONE, &dims);
  if (verdict != TERN_RECORD) return verdict;
  return tern_draft_reduction(draft, x, dims, dim_at >= 0 && tern_arg_bool(call, 2, false), TERN_BOOL, x->dtype == TERN_U8 ? TERN_U8 : TERN_BOOL);
}
static tern_verdict infer_test_all(const tern_call *call, tern_draft *draft) { return infer_test(call, draft, -1); }
static tern_verdict infer_test_dims(const tern_call *call, tern_draft *draft) { return infer_test(call, draft, 1); }

/* dim=[] reduces nothing: bool of each element, but u8 stays as it is. */
static tern_status lower_test(const tern_lowering *node, tern_value *results, tern_reduction how) {
  bool is_copy = !node->attrs[2] && node->outputs[0].computed == TERN_U8 && tern_value_rank(node->program, node->operands[0]) > 0;
  results[0] = tern_lower_reduced(node, 0, is_copy ? node->operands[0] : tern_lower_reduce(node, how, operand_to_work(node)));
  return NULL;
}
static tern_status lower_any(const tern_lowering *node, tern_value *results) { return lower_test(node, results, TERN_ANY); }
static tern_status lower_all(const tern_lowering *node, tern_value *results) { return lower_test(node, results, TERN_ALL); }

const tern_aten_row tern_aten_reduce[] = {
    {"sum", NULL, "sum.out", NULL, infer_accumulate_all, lower_sum, NULL},
    {"sum.dim_IntList", NULL, "sum.IntList_out", NULL, infer_accumulate_dims, lower_sum, NULL},
    {"prod", NULL, "prod.out", NULL, infer_accumulate_all, lower_prod, NULL},
    {"prod.dim_int", NULL, "prod.int_out", NULL, infer_accumulate_dims, lower_prod, NULL},
    {"max", NULL, "max.unary_out", NULL, infer_extremum_all, lower_amax, NULL},
    {"min", NULL, "min.unary_out", NULL, infer_extremum_all, lower_amin, NULL},
    {"amax", NULL, "amax.out", NULL, infer_extremum_dims, lower_amax, NULL},
    {"amin", NULL, "amin.out", NULL, infer_extremum_dims, lower_amin, NULL},
    {"aminmax", NULL, "aminmax.out", NULL, infer_aminmax, lower_aminmax, NULL},
    {"max.dim", NULL, "max.dim_max", NULL, infer_max_dim, lower_max_dim, NULL},
    {"min.dim", NULL, "min.dim_min", NULL, infer_max_dim, lower_min_dim, NULL},
    {"argmax", NULL, "argmax.out", NULL, infer_arg, lower_argmax, NULL},
    {"argmin", NULL, "argmin.out", NULL, infer_arg, lower_argmin, NULL},
    {"any", NULL, "any.all_out", NULL, infer_test_all, lower_any, NULL},
    {"any.dim", NULL, "any.out", NULL, infer_test_dims, lower_any, NULL},
    {"any.dims", NULL, "any.dims_out", NULL, infer_test_dims, lower_any, NULL},
    {"all", NULL, "all.all_out", NULL, infer_test_all, lower_all, NULL},
    {"all.dim", NULL, "all.out", NULL, infer_test_dims, lower_all, NULL},
    {"all.dims", NULL, "all.dims_out", NULL, infer_test_dims, lower_all, NULL},
};
TERN_ATEN_FAMILY_END(reduce)
