/* Rules of reductions, dot products and convolutions. */
#include "rules.h"

static const char *const reduction_names[] = {"sum", "prod", "max", "min", "all", "any"};

static tern_status check_reduction(const tern_rule_call *call, tern_dtype dtype, uint32_t allowed) {
  tern_reduction how = call->attrs->reduce.how;
  if ((unsigned)how > TERN_ANY || !(allowed >> how & 1)) return tern_error_new(TERN_INVALID_ARGUMENT, "%d is no reduction it can do", (int)how);
  bool fits = how >= TERN_ALL ? dtype == TERN_BOOL : how >= TERN_MAX ? !tern_dtype_is_complex(dtype) : dtype != TERN_BOOL;
  return fits ? NULL : tern_error_new(TERN_INVALID_ARGUMENT, "%s is not defined for %s", reduction_names[how], tern_dtype_name(dtype));
}

tern_status tern_rule_reduce(const tern_rule_call *call) {
  const tern_value_info *x = tern_rule_operand(call, 0);
  TERN_TRY(check_reduction(call, x->dtype, 63));
  int n = call->attrs->reduce.n;
  if (n < 0 || n > x->rank) return tern_error_new(TERN_INVALID_ARGUMENT, "more dimensions given than there are");
  int64_t dims[TERN_MAX_RANK];
  int rank = 0;
  for (int i = 0, next = 0; i < x->rank; i++) {
    if (next < n && call->attrs->reduce.dims[next] == i) next++;
    else dims[rank++] = x->dims[i];
  }
  if (rank != x->rank - n) return tern_error_new(TERN_INVALID_ARGUMENT, "the dimensions must be distinct, ascending and among the %d there are", (int)x->rank);
  tern_rule_result(call, 0, x->dtype, rank, dims);
  return NULL;
}

static tern_status check_one_dim(const tern_rule_call *call, uint32_t allowed) {
  const tern_value_info *x = tern_rule_operand(call, 0);
  TERN_TRY(check_reduction(call, x->dtype, allowed));
  if (call->attrs->reduce.n != 1) return tern_error_new(TERN_INVALID_ARGUMENT, "goes along one dimension");
  return tern_rule_check_dim(call, call->attrs->reduce.dims[0], x->rank);
}

tern_status tern_rule_arg_reduce(const tern_rule_call *call) {
  TERN_TRY(check_one_dim(call, 1u << TERN_MAX | 1u << TERN_MIN));
  TERN_TRY(tern_rule_reduce(call));
  const tern_value_info *x = tern_rule_operand(call, 0), *value = &call->results[0];
  if (x->dims[call->attrs->reduce.dims[0]] == 0 && tern_dims_count(value->rank, value->dims) > 0)
    return tern_error_new(TERN_INVALID_ARGUMENT, "dimension %d is empty and has no extreme", (int)call->attrs->reduce.dims[0]);
  tern_rule_result(call, 1, TERN_I64, value->rank, value->dims);
  return NULL;
}

tern_status tern_rule_scan(const tern_rule_call *call) {
  const tern_value_info *x = tern_rule_operand(call, 0);
  TERN_TRY(check_one_dim(call, 15));
  tern_rule_result(call, 0, x->dtype, x->rank, x->dims);
  return NULL;
}

tern_status tern_rule_sort(const tern_rule_call *call) {
  const tern_value_info *x = tern_rule_operand(call, 0);
  if (tern_dtype_is_complex(x->dtype)) return tern_error_new(TERN_INVALID_ARGUMENT, "complex numbers have no order");
  TERN_TRY(tern_rule_check_dim(call, call->attrs->sort.dim, x->rank));
  tern_rule_result(call, 0, x->dtype, x->rank, x->dims);
  tern_rule_result(call, 1, TERN_I64, x->rank, x->dims);
  return NULL;
}

tern_status tern_rule_dot(const tern_rule_call *call) {
  const tern_value_info *sides[2] = {tern_rule_operand(call, 0), tern_rule_operand(call, 1)};
  int n_batch = call->attrs->dot.n_batch, n_contract = call->attrs->dot.n_contract;
  const int32_t *batch[2] = {call->attrs->dot.lhs_batch, call->attrs->dot.rhs_batch}, *contract[2] = {call->attrs->dot.lhs_contract, call->attrs->dot.rhs_contract};
  TERN_TRY(tern_rule_check_same_dtype(call, 0, 1));
  if (sides[0]->dtype == TERN_BOOL) return tern_error_new(TERN_INVALID_ARGUMENT, "is not defined for bool");
  if (n_batch < 0 || n_contract < 0 || n_batch + n_contract > TERN_MAX_RANK) return tern_error_new(TERN_INVALID_ARGUMENT, "more dimensions given than there are");
  uint32_t used[2] = {0, 0};
  for (int i = 0; i < n_batch + n_contract; i++) {
    int64_t sizes[2];
    for (int side = 0; side < 2; side++) {
      int dim = i < n_batch ? batch[side][i] : contract[side][i - n_batch];
      TERN_TRY(tern_rule_check_dim(call, dim, sides[side]->rank));
      if (used[side] >> dim & 1) return tern_error_new(TERN_INVALID_ARGUMENT, "dimension %d of operand %d is given twice", dim, side);
      used[side] |= 1u << dim;
      sizes[side] = sides[side]->dims[dim];
    }
    if (sizes[0] != sizes[1])
      return tern_error_new(TERN_INVALID_ARGUMENT, "the %s sizes differ: %lld and %lld", i < n_batch ? "batch" : "contracted", (long long)sizes[0], (long long)sizes[1]);
  }
  int64_t dims[2 * TERN_MAX_RANK];
  int rank = 0;
  for (int i = 0; i < n_batch; i++) dims[rank++] = sides[0]->dims[batch[0][i]];
  for (int side = 0; side < 2; side++)
    for (int d = 0; d < sides[side]->rank; d++)
      if (!(used[side] >> d & 1)) dims[rank++] = sides[side]->dims[d];
  if (rank > TERN_MAX_RANK) return tern_error_new(TERN_INVALID_ARGUMENT, "the result would have rank %d; at most %d is possible", rank, TERN_MAX_RANK);
  tern_rule_result(call, 0, sides[0]->dtype, rank, dims);
  return tern_rule_check_proposed(call);
}

/* ---- convolutions ---- */
/* The dims of convolution(x, w); every convolution rule comes down to it. */
static tern_status convolve_dims(const tern_window *window, int x_rank, const int64_t *x, int w_rank, const int64_t *w, int64_t *y) {
  int spatial = window->spatial;
  if (spatial < 1 || spatial > 3) return tern_error_new(TERN_INVALID_ARGUMENT, "%d spatial dimensions; 1, 2 or 3 are possible", spatial);
  if (x_rank != spatial + 2 || w_rank != spatial + 2) return tern_error_new(TERN_INVALID_ARGUMENT, "input and weight must have rank %d", spatial + 2);
  if (window->groups < 1) return tern_error_new(TERN_INVALID_ARGUMENT, "groups must be at least 1, not %lld", (long long)window->groups);
  if (x[1] != w[1] * window->groups || w[0] % window->groups != 0)
    return tern_error_new(TERN_INVALID_ARGUMENT, "%lld input channels and a weight of %lld by %lld channels do not fit %lld groups", (long long)x[1], (long long)w[0],
                          (long long)w[1], (long long)window->groups);
  y[0] = x[0];
  y[1] = w[0];
  for (int i = 0; i < spatial; i++) {
    if (window->stride[i] < 1 || window->dilation[i] < 1)
      return tern_error_new(TERN_INVALID_ARGUMENT, "stride %lld and dilation %lld must be at least 1", (long long)window->stride[i], (long long)window->dilation[i]);
    if (window->stride[i] > INT32_MAX || window->dilation[i] > INT32_MAX || window->pad_low[i] > INT32_MAX || window->pad_high[i] > INT32_MAX || window->pad_low[i] < INT32_MIN ||
        window->pad_high[i] < INT32_MIN || w[i + 2] > INT32_MAX)
      return tern_error_new(TERN_INVALID_ARGUMENT, "stride, dilation, padding and window must fit in 32 bits");
    int64_t room = x[i + 2] + window->pad_low[i] + window->pad_high[i] - window->dilation[i] * (w[i + 2] - 1) - 1;
    y[i + 2] = room < 0 || w[i + 2] == 0 ? 0 : room / window->stride[i] + 1;
  }
  return NULL;
}

static tern_status check_convolves(const tern_rule_call *call, int x_rank, const int64_t *x, int w_rank, const int64_t *w, const tern_value_info *y) {
  int64_t dims[TERN_MAX_RANK];
  char text[TERN_DESCRIBE_ROOM];
  TERN_TRY(convolve_dims(&call->attrs->window, x_rank, x, w_rank, w, dims));
  if (tern_dims_equal(x_rank, dims, y->rank, y->dims)) return NULL;
  return tern_error_new(TERN_INVALID_ARGUMENT, "the forward result has the shape %s, the gradient given has not", tern_dims_describe(x_rank, dims, text));
}

static tern_status check_conv_dtype(const tern_rule_call *call) {
  TERN_TRY(tern_rule_check_same_dtype(call, 0, 1));
  if (tern_rule_operand(call, 0)->dtype == TERN_BOOL) return tern_error_new(TERN_INVALID_ARGUMENT, "is not defined for bool");
  call->results[0].dtype = tern_rule_operand(call, 0)->dtype;
  return NULL;
}

tern_status tern_rule_conv(const tern_rule_call *call) {
  const tern_value_info *x = tern_rule_operand(call, 0), *w = tern_rule_operand(call, 1);
  int64_t dims[TERN_MAX_RANK];
  TERN_TRY(check_conv_dtype(call));
  TERN_TRY(convolve_dims(&call->attrs->window, x->rank, x->dims, w->rank, w->dims, dims));
  tern_rule_result(call, 0, x->dtype, x->rank, dims);
  return tern_rule_check_proposed(call);
}

tern_status tern_rule_conv_input_grad(const tern_rule_call *call) {
  const tern_value_info *w = tern_rule_operand(call, 1), *gx = &call->results[0];
  TERN_TRY(check_conv_dtype(call));
  TERN_TRY(tern_rule_check_proposed(call));
  return check_convolves(call, gx->rank, gx->dims, w->rank, w->dims, tern_rule_operand(call, 0));
}

tern_status tern_rule_conv_weight_grad(const tern_rule_call *call) {
  const tern_value_info *x = tern_rule_operand(call, 0), *gw = &call->results[0];
  TERN_TRY(check_conv_dtype(call));
  TERN_TRY(tern_rule_check_proposed(call));
  return check_convolves(call, x->rank, x->dims, gw->rank, gw->dims, tern_rule_operand(call, 1));
}
