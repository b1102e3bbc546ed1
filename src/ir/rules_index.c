/* Rules of the operations that read or write at indices. That indices are in range is not a rule: check sees to it while a program runs. */
#include "rules.h"

static tern_status check_index_dtype(const tern_rule_call *call, int operand) {
  tern_dtype dtype = tern_rule_operand(call, operand)->dtype;
  if (dtype == TERN_I64 || dtype == TERN_I32) return NULL;
  return tern_error_new(TERN_INVALID_ARGUMENT, "indices must be i64 or i32, not %s", tern_dtype_name(dtype));
}

/* The dims of take(x, index). */
static tern_status take_dims(const tern_rule_call *call, int dim, int *rank, int64_t *dims) {
  const tern_value_info *x = tern_rule_operand(call, 0), *index = tern_rule_operand(call, 1);
  TERN_TRY(check_index_dtype(call, 1));
  TERN_TRY(tern_rule_check_dim(call, dim, x->rank));
  *rank = x->rank - 1 + index->rank;
  if (*rank > TERN_MAX_RANK) return tern_error_new(TERN_INVALID_ARGUMENT, "the result would have rank %d; at most %d is possible", *rank, TERN_MAX_RANK);
  int n = 0;
  for (int i = 0; i < dim; i++) dims[n++] = x->dims[i];
  for (int i = 0; i < index->rank; i++) dims[n++] = index->dims[i];
  for (int i = dim + 1; i < x->rank; i++) dims[n++] = x->dims[i];
  return NULL;
}

tern_status tern_rule_take(const tern_rule_call *call) {
  int64_t dims[TERN_MAX_RANK];
  int rank;
  TERN_TRY(take_dims(call, call->attrs->axis.dim, &rank, dims));
  tern_rule_result(call, 0, tern_rule_operand(call, 0)->dtype, rank, dims);
  return tern_rule_check_proposed(call);
}

tern_status tern_rule_put(const tern_rule_call *call) {
  const tern_value_info *base = tern_rule_operand(call, 0), *update = tern_rule_operand(call, 2);
  int64_t dims[TERN_MAX_RANK];
  int rank;
  char text[TERN_DESCRIBE_ROOM];
  TERN_TRY(tern_rule_check_same_dtype(call, 0, 2));
  TERN_TRY(take_dims(call, call->attrs->scatter.dim, &rank, dims));
  if (call->attrs->scatter.how != TERN_SET && call->attrs->scatter.how != TERN_COMBINE_ADD)
    return tern_error_new(TERN_INVALID_ARGUMENT, "sets or adds only; use scatter for the rest");
  if (!tern_dims_equal(rank, dims, update->rank, update->dims))
    return tern_error_new(TERN_INVALID_ARGUMENT, "the update must have the shape %s", tern_dims_describe(rank, dims, text));
  tern_rule_result(call, 0, base->dtype, base->rank, base->dims);
  return NULL;
}

/* Whether index fits within `other` in every dimension but `except`. */
static tern_status check_within(const tern_rule_call *call, int other, int except) {
  const tern_value_info *x = tern_rule_operand(call, other), *index = tern_rule_operand(call, 1);
  if (x->rank != index->rank) return tern_error_new(TERN_INVALID_ARGUMENT, "index and operand %d must have the same rank", other);
  for (int d = 0; d < x->rank; d++)
    if (d != except && index->dims[d] > x->dims[d])
      return tern_error_new(TERN_INVALID_ARGUMENT, "index has size %lld in dimension %d, operand %d only %lld", (long long)index->dims[d], d, other, (long long)x->dims[d]);
  return NULL;
}

tern_status tern_rule_gather(const tern_rule_call *call) {
  const tern_value_info *x = tern_rule_operand(call, 0), *index = tern_rule_operand(call, 1);
  TERN_TRY(check_index_dtype(call, 1));
  TERN_TRY(tern_rule_check_dim(call, call->attrs->axis.dim, x->rank));
  TERN_TRY(check_within(call, 0, call->attrs->axis.dim));
  tern_rule_result(call, 0, x->dtype, index->rank, index->dims);
  return NULL;
}

tern_status tern_rule_scatter(const tern_rule_call *call) {
  const tern_value_info *base = tern_rule_operand(call, 0);
  TERN_TRY(check_index_dtype(call, 1));
  TERN_TRY(tern_rule_check_same_dtype(call, 0, 2));
  TERN_TRY(tern_rule_check_dim(call, call->attrs->scatter.dim, base->rank));
  if ((unsigned)call->attrs->scatter.how > TERN_COMBINE_MIN) return tern_error_new(TERN_INVALID_ARGUMENT, "%d is no way to combine", (int)call->attrs->scatter.how);
  if (call->attrs->scatter.how >= TERN_COMBINE_MAX && tern_dtype_is_complex(base->dtype)) return tern_error_new(TERN_INVALID_ARGUMENT, "complex numbers have no order");
  TERN_TRY(check_within(call, 0, call->attrs->scatter.dim));
  TERN_TRY(check_within(call, 2, -1));
  tern_rule_result(call, 0, base->dtype, base->rank, base->dims);
  return NULL;
}

tern_status tern_rule_check_range(const tern_rule_call *call) { return check_index_dtype(call, 0); }
