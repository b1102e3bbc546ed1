/* running: sums, products, extrema and log-sum-exps of all elements up to each, along one dimension. f16 and bf16 accumulate in f32 and round once, at the end. */
#include <math.h>
#include "nn.h"
#include "reduce.h"

/* ---- cumsum, cumprod ---- */

static tern_verdict infer_running(const tern_call *call, tern_draft *draft) {
  const tern_tensor *x = tern_arg_tensor(call, 0);
  int dim;
  tern_dtype dtype;
  if (!x || !tern_wrap_dim(tern_arg_int(call, 1, 0), x->rank, &dim)) return TERN_REJECT;
  if (!tern_reduction_dtype(call, 2, &dtype)) return TERN_FALL_BACK;
  if (dtype == TERN_DTYPE_COUNT) dtype = x->dtype >= TERN_F16 || call->form == TERN_INPLACE ? (tern_dtype)x->dtype : TERN_I64;
  if (dtype >= TERN_C64 || dtype == TERN_BOOL || (dtype >= TERN_U16 && dtype <= TERN_U64) || x->dtype >= TERN_C64) return TERN_FALL_BACK;
  tern_verdict verdict = tern_draft_tensor(draft, x);
  if (verdict != TERN_RECORD) return verdict;
  tern_draft_attr(draft, dim);
  tern_draft_result(draft, dtype, x->rank, x->sizes);
  return TERN_RECORD;
}
static tern_status lower_running(const tern_lowering *node, tern_value *results, tern_reduction how) {
  tern_program *p = node->program;
  tern_dtype dtype = node->outputs[0].computed;
  tern_value x = tern_convert(p, tern_convert(p, node->operands[0], dtype), tern_compute_dtype(dtype));
  if (tern_value_rank(p, x) > 0) x = tern_scan(p, how, x, (int)node->attrs[0]);
  results[0] = tern_convert(p, x, dtype);
  return NULL;
}
static tern_status lower_cumsum(const tern_lowering *node, tern_value *results) { return lower_running(node, results, TERN_SUM); }
static tern_status lower_cumprod(const tern_lowering *node, tern_value *results) { return lower_running(node, results, TERN_PROD); }

/* ---- cummax, cummin (self, dim) -> values, indices: of equal elements the last counts, and a NaN that has come stays. attrs: dim ---- */

static tern_verdict infer_running_extremum(const tern_call *call, tern_draft *draft) {
  const tern_tensor *x = tern_arg_tensor(call, 0);
  int dim;
  if (!x || !tern_wrap_dim(tern_arg_int(call, 1, 0), x->rank, &dim)) return TERN_REJECT;
  if (!tern_out_is(call, 1, (tern_dtype)x->dtype) || !tern_out_is(call, 0, TERN_I64)) return TERN_REJECT;
  if (x->dtype >= TERN_C64 || (x->dtype >= TERN_U16 && x->dtype <= TERN_U64) || (x->count > 0 && x->rank > 0 && x->sizes[dim] == 0)) return TERN_FALL_BACK;
  tern_draft_attr(draft, dim);
  tern_draft_result(draft, (tern_dtype)x->dtype, x->rank, x->sizes);
  tern_draft_result(draft, TERN_I64, x->rank, x->sizes);
  return tern_draft_tensor(draft, x);
}

static tern_status lower_running_extremum(const tern_lowering *node, tern_value *results, tern_reduction how) {
  tern_program *p = node->program;
  const int dim = (int)node->attrs[0];
  tern_value x = tern_nn_at_least_1d(p, node->operands[0]);
  if (tern_value_dtype(p, x) == TERN_BOOL) x = tern_convert(p, x, TERN_U8);
  tern_value best = tern_scan(p, how, x, dim), is_best = tern_compare(p, TERN_EQ, x, best);
  if (tern_dtype_is_float(tern_value_dtype(p, x))) is_best = tern_or(p, is_best, tern_compare(p, TERN_NE, x, x));
  tern_value place = tern_iota(p, TERN_I64, tern_value_rank(p, x), tern_value_dims(p, x), dim);
  place = tern_scan(p, TERN_MAX, tern_select(p, is_best, place, tern_constant_int(p, TERN_I64, 0, NULL, 0)), dim);
  results[0] = tern_nn_result(node, 0, best);
  results[1] = tern_nn_result(node, 1, place);
  return NULL;
}
static tern_status lower_cummax(const tern_lowering *node, tern_value *results) { return lower_running_extremum(node, results, TERN_MAX); }
static tern_status lower_cummin(const tern_lowering *node, tern_value *results) { return lower_running_extremum(node, results, TERN_MIN); }

/* ---- _logcumsumexp(self, dim). attrs: dim ---- */

static tern_verdict infer_log_sum(const tern_call *call, tern_draft *draft) {
  const tern_tensor *x = tern_arg_tensor(call, 0);
  int dim;
  if (!x || !tern_wrap_dim(tern_arg_int(call, 1, 0), x->rank, &dim)) return TERN_REJECT;
  if (!tern_nn_is_float(x)) return TERN_FALL_BACK;
  tern_draft_attr(draft, dim);
  tern_draft_result(draft, (tern_dtype)x->dtype, x->rank, x->sizes);
  return tern_draft_tensor(draft, x);
}

/* log(exp(x) + exp(y)); where both are the same infinity, that. */
static tern_value log_add(tern_program *p, tern_value x, tern_value y) {
  tern_value gap = tern_negate(p, tern_abs(p, tern_subtract(p, x, y))), sum = tern_add(p, tern_maximum(p, x, y), tern_log1p(p, tern_exp(p, gap)));
  tern_value infinite = tern_nn_equals(p, tern_abs(p, x), tern_nn_number(p, tern_value_dtype(p, x), (double)INFINITY));
  return tern_select(p, tern_and(p, infinite, tern_nn_equals(p, x, y)), x, sum);
}

/* Each round doubles how many elements a sum has seen (Hillis and Steele, 1986): no sum is ever shifted by a maximum that is far from its own. */
static tern_status lower_log_sum(const tern_lowering *node, tern_value *results) {
  tern_program *p = node->program;
  const int dim = (int)node->attrs[0];
  tern_value x = tern_nn_at_least_1d(p, tern_nn_widen(p, node->operands[0]));
  const int rank = tern_value_rank(p, x);
  const int64_t n = tern_value_dims(p, x)[dim];
  for (int64_t shift = 1; shift < n; shift *= 2) {
    int64_t start[TERN_MAX_RANK] = {0}, limit[TERN_MAX_RANK], stride[TERN_MAX_RANK], low[TERN_MAX_RANK] = {0}, none[TERN_MAX_RANK] = {0};
    for (int d = 0; d < rank; d++) limit[d] = tern_value_dims(p, x)[d], stride[d] = 1;
    limit[dim] = n - shift;
    low[dim] = shift;
    tern_value nothing = tern_nn_number(p, tern_value_dtype(p, x), -(double)INFINITY);
    x = log_add(p, x, tern_pad(p, tern_slice(p, x, start, limit, stride), nothing, low, none, none));
  }
  results[0] = tern_nn_result(node, 0, x);
  return NULL;
}

const tern_aten_row tern_aten_running[] = {
    {"cumsum", "cumsum_", "cumsum.out", NULL, infer_running, lower_cumsum, NULL},
    {"cumprod", "cumprod_", "cumprod.out", NULL, infer_running, lower_cumprod, NULL},
    {"cummax", NULL, "cummax.out", NULL, infer_running_extremum, lower_cummax, NULL},
    {"cummin", NULL, "cummin.out", NULL, infer_running_extremum, lower_cummin, NULL},
    {"_logcumsumexp", NULL, "_logcumsumexp.out", NULL, infer_log_sum, lower_log_sum, NULL},
};
TERN_ATEN_FAMILY_END(running)
