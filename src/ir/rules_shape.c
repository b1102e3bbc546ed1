/* Rules of the operations that move or view elements without arithmetic. */
#include "rules.h"

/* Whether dims[0..n) are distinct dimensions of `rank`. */
static tern_status check_distinct(const tern_rule_call *call, int n, const int32_t *dims, int rank) {
  uint32_t seen = 0;
  for (int i = 0; i < n; i++) {
    TERN_TRY(tern_rule_check_dim(call, dims[i], rank));
    if (seen >> dims[i] & 1) return tern_error_new(TERN_INVALID_ARGUMENT, "dimension %d is given twice", (int)dims[i]);
    seen |= 1u << dims[i];
  }
  return NULL;
}

tern_status tern_rule_broadcast(const tern_rule_call *call) {
  const tern_value_info *x = tern_rule_operand(call, 0), *result = &call->results[0];
  call->results[0].dtype = x->dtype;
  TERN_TRY(tern_rule_check_proposed(call));
  if (call->attrs->dims.n != x->rank)
    return tern_error_new(TERN_INVALID_ARGUMENT, "%d dimensions given for an operand of rank %d", (int)call->attrs->dims.n, (int)x->rank);
  TERN_TRY(check_distinct(call, x->rank, call->attrs->dims.dims, result->rank));
  char text[TERN_DESCRIBE_ROOM];
  for (int i = 0; i < x->rank; i++) {
    int to = call->attrs->dims.dims[i];
    if (x->dims[i] != 1 && x->dims[i] != result->dims[to])
      return tern_error_new(TERN_INVALID_ARGUMENT, "dimension %d of size %lld does not fit dimension %d of %s: it must be 1 or equal", i, (long long)x->dims[i], to,
                            tern_dims_describe(result->rank, result->dims, text));
  }
  return NULL;
}

tern_status tern_rule_reshape(const tern_rule_call *call) {
  const tern_value_info *x = tern_rule_operand(call, 0), *result = &call->results[0];
  call->results[0].dtype = x->dtype;
  TERN_TRY(tern_rule_check_proposed(call));
  char text[TERN_DESCRIBE_ROOM];
  if (tern_dims_count(x->rank, x->dims) != tern_dims_count(result->rank, result->dims))
    return tern_error_new(TERN_INVALID_ARGUMENT, "%lld elements cannot take the shape %s", (long long)tern_dims_count(x->rank, x->dims),
                          tern_dims_describe(result->rank, result->dims, text));
  return NULL;
}

tern_status tern_rule_transpose(const tern_rule_call *call) {
  const tern_value_info *x = tern_rule_operand(call, 0);
  if (call->attrs->dims.n != x->rank) return tern_error_new(TERN_INVALID_ARGUMENT, "%d dimensions given, %d needed", (int)call->attrs->dims.n, (int)x->rank);
  TERN_TRY(check_distinct(call, x->rank, call->attrs->dims.dims, x->rank));
  int64_t dims[TERN_MAX_RANK];
  for (int i = 0; i < x->rank; i++) dims[i] = x->dims[call->attrs->dims.dims[i]];
  tern_rule_result(call, 0, x->dtype, x->rank, dims);
  return NULL;
}

tern_status tern_rule_slice(const tern_rule_call *call) {
  const tern_value_info *x = tern_rule_operand(call, 0);
  int64_t dims[TERN_MAX_RANK];
  for (int i = 0; i < x->rank; i++) {
    int64_t start = call->attrs->slice.start[i], limit = call->attrs->slice.limit[i], stride = call->attrs->slice.stride[i];
    if (start < 0 || limit < start || limit > x->dims[i] || stride < 1)
      return tern_error_new(TERN_INVALID_ARGUMENT, "[%lld:%lld:%lld] is no range of dimension %d of size %lld", (long long)start, (long long)limit, (long long)stride, i,
                            (long long)x->dims[i]);
    dims[i] = limit == start ? 0 : (limit - start - 1) / stride + 1; /* a stride may be huge: x[::2**63 - 1] */
  }
  tern_rule_result(call, 0, x->dtype, x->rank, dims);
  return NULL;
}

tern_status tern_rule_reverse(const tern_rule_call *call) {
  const tern_value_info *x = tern_rule_operand(call, 0);
  if (call->attrs->dims.n < 0 || call->attrs->dims.n > x->rank) return tern_error_new(TERN_INVALID_ARGUMENT, "more dimensions given than there are");
  TERN_TRY(check_distinct(call, call->attrs->dims.n, call->attrs->dims.dims, x->rank));
  tern_rule_result(call, 0, x->dtype, x->rank, x->dims);
  return NULL;
}

tern_status tern_rule_update_slice(const tern_rule_call *call) {
  const tern_value_info *base = tern_rule_operand(call, 0), *update = tern_rule_operand(call, 1);
  TERN_TRY(tern_rule_check_same_dtype(call, 0, 1));
  if (base->rank != update->rank) return tern_error_new(TERN_INVALID_ARGUMENT, "the ranks differ");
  for (int i = 0; i < base->rank; i++) {
    int64_t start = call->attrs->slice.start[i], stride = call->attrs->slice.stride[i], n = update->dims[i];
    if (start < 0 || stride < 1 || (n > 0 && (start >= base->dims[i] || (base->dims[i] - 1 - start) / stride < n - 1)))
      return tern_error_new(TERN_INVALID_ARGUMENT, "%lld elements from %lld by %lld do not fit in dimension %d of size %lld", (long long)n, (long long)start, (long long)stride, i,
                            (long long)base->dims[i]);
  }
  tern_rule_result(call, 0, base->dtype, base->rank, base->dims);
  return NULL;
}

tern_status tern_rule_pad(const tern_rule_call *call) {
  const tern_value_info *x = tern_rule_operand(call, 0);
  TERN_TRY(tern_rule_check_same_dtype(call, 0, 1));
  TERN_TRY(tern_rule_check_scalar(call, 1));
  int64_t dims[TERN_MAX_RANK];
  for (int i = 0; i < x->rank; i++) {
    int64_t interior = call->attrs->pad.interior[i], between;
    bool overflows = __builtin_mul_overflow(x->dims[i] > 1 ? x->dims[i] - 1 : 0, interior, &between) || __builtin_add_overflow(x->dims[i], between, &dims[i]) ||
                     __builtin_add_overflow(dims[i], call->attrs->pad.low[i], &dims[i]) || __builtin_add_overflow(dims[i], call->attrs->pad.high[i], &dims[i]);
    if (overflows || interior < 0 || dims[i] < 0)
      return tern_error_new(TERN_INVALID_ARGUMENT, "low %lld, high %lld, interior %lld make no size of dimension %d", (long long)call->attrs->pad.low[i],
                            (long long)call->attrs->pad.high[i], (long long)interior, i);
  }
  tern_rule_result(call, 0, x->dtype, x->rank, dims);
  return tern_rule_check_proposed(call);
}

tern_status tern_rule_concatenate(const tern_rule_call *call) {
  if (call->n_operands < 1) return tern_error_new(TERN_INVALID_ARGUMENT, "nothing to concatenate");
  const tern_value_info *first = tern_rule_operand(call, 0);
  int dim = call->attrs->axis.dim;
  TERN_TRY(tern_rule_check_dim(call, dim, first->rank));
  int64_t dims[TERN_MAX_RANK];
  memcpy(dims, first->dims, (size_t)first->rank * sizeof *dims);
  for (int i = 1; i < call->n_operands; i++) {
    const tern_value_info *next = tern_rule_operand(call, i);
    TERN_TRY(tern_rule_check_same_dtype(call, 0, i));
    if (next->rank != first->rank) return tern_error_new(TERN_INVALID_ARGUMENT, "operand %d has another rank", i);
    for (int d = 0; d < first->rank; d++)
      if (d != dim && next->dims[d] != first->dims[d]) return tern_error_new(TERN_INVALID_ARGUMENT, "operand %d has another size in dimension %d", i, d);
    dims[dim] += next->dims[dim];
  }
  tern_rule_result(call, 0, first->dtype, first->rank, dims);
  return tern_rule_check_proposed(call);
}
