/* Rules of the composites. What each computes is said in ops.def and, exactly, by its decomposition in src/composites. */
#include "rules.h"

static tern_status check_float(const tern_rule_call *call, int operand) {
  tern_dtype dtype = tern_rule_operand(call, operand)->dtype;
  return tern_dtype_is_float(dtype) ? NULL : tern_error_new(TERN_INVALID_ARGUMENT, "operand %d must be a floating-point array, not %s", operand, tern_dtype_name(dtype));
}

static tern_status check_float_scalar(const tern_rule_call *call, int operand) {
  TERN_TRY(check_float(call, operand));
  return tern_rule_check_scalar(call, operand);
}

static tern_status check_dims(const tern_rule_call *call, int operand, int rank, const int64_t *dims) {
  const tern_value_info *value = tern_rule_operand(call, operand);
  char text[TERN_DESCRIBE_ROOM];
  if (tern_dims_equal(value->rank, value->dims, rank, dims)) return NULL;
  return tern_error_new(TERN_INVALID_ARGUMENT, "operand %d must have the shape %s", operand, tern_dims_describe(rank, dims, text));
}

static tern_status check_dtype(const tern_rule_call *call, int operand, tern_dtype dtype) {
  if (tern_rule_operand(call, operand)->dtype == dtype) return NULL;
  return tern_error_new(TERN_INVALID_ARGUMENT, "operand %d must be %s", operand, tern_dtype_name(dtype));
}

/* Operand 1 is like operand 0. */
static tern_status check_pair(const tern_rule_call *call) {
  TERN_TRY(tern_rule_check_same_dtype(call, 0, 1));
  return check_dims(call, 1, tern_rule_operand(call, 0)->rank, tern_rule_operand(call, 0)->dims);
}

static void result_like(const tern_rule_call *call, int result, int operand) {
  const tern_value_info *x = tern_rule_operand(call, operand);
  tern_rule_result(call, result, x->dtype, x->rank, x->dims);
}

/* softmax, log_softmax and their gradients */
tern_status tern_rule_softmax(const tern_rule_call *call) {
  TERN_TRY(check_float(call, 0));
  TERN_TRY(tern_rule_check_dim(call, call->attrs->ints[0], tern_rule_operand(call, 0)->rank));
  if (call->n_operands == 2) TERN_TRY(check_pair(call));
  result_like(call, 0, 0);
  return NULL;
}

/* gelu and gelu_grad */
tern_status tern_rule_gelu(const tern_rule_call *call) {
  TERN_TRY(check_float(call, 0));
  if (call->n_operands == 2) TERN_TRY(check_pair(call));
  result_like(call, 0, 0);
  return NULL;
}

/* ---- normalisation: weights may have x's dtype or the one statistics are kept in ---- */
static tern_status check_weight(const tern_rule_call *call, int operand, int x, int rank, const int64_t *dims) {
  if (!tern_rule_has(call, operand)) return NULL;
  tern_dtype dtype = tern_rule_operand(call, operand)->dtype, x_dtype = tern_rule_operand(call, x)->dtype;
  if (dtype != x_dtype) TERN_TRY(check_dtype(call, operand, tern_dtype_wide(x_dtype)));
  return check_dims(call, operand, rank, dims);
}

/* The dims of mean and rstd: x's, with 1 for those normalised. */
static tern_status layer_dims(const tern_rule_call *call, const tern_value_info *x, int64_t *dims) {
  int64_t n = call->attrs->ints[0];
  if (n < 1 || n > x->rank) return tern_error_new(TERN_INVALID_ARGUMENT, "%lld normalised dimensions; between 1 and %d are possible", (long long)n, (int)x->rank);
  for (int i = 0; i < x->rank; i++) dims[i] = i < x->rank - n ? x->dims[i] : 1;
  return NULL;
}

tern_status tern_rule_layer_norm(const tern_rule_call *call) {
  const tern_value_info *x = tern_rule_operand(call, 0);
  int64_t dims[TERN_MAX_RANK];
  TERN_TRY(check_float(call, 0));
  TERN_TRY(layer_dims(call, x, dims));
  int n = (int)call->attrs->ints[0];
  for (int i = 1; i <= 2; i++) TERN_TRY(check_weight(call, i, 0, n, x->dims + x->rank - n));
  TERN_TRY(check_float_scalar(call, 3));
  result_like(call, 0, 0);
  for (int i = 1; i <= 2; i++) tern_rule_result(call, i, tern_dtype_wide(x->dtype), x->rank, dims);
  return NULL;
}

tern_status tern_rule_layer_norm_grad(const tern_rule_call *call) {
  const tern_value_info *x = tern_rule_operand(call, 1);
  int64_t dims[TERN_MAX_RANK];
  TERN_TRY(check_float(call, 0));
  TERN_TRY(check_pair(call));
  TERN_TRY(layer_dims(call, x, dims));
  int n = (int)call->attrs->ints[0];
  for (int i = 2; i <= 3; i++) {
    TERN_TRY(check_dtype(call, i, tern_dtype_wide(x->dtype)));
    TERN_TRY(check_dims(call, i, x->rank, dims));
  }
  TERN_TRY(check_weight(call, 4, 1, n, x->dims + x->rank - n));
  result_like(call, 0, 1);
  tern_dtype weight = tern_rule_has(call, 4) ? tern_rule_operand(call, 4)->dtype : x->dtype;
  for (int i = 1; i <= 2; i++) tern_rule_result(call, i, weight, n, x->dims + x->rank - n);
  return NULL;
}

static tern_status check_has_channels(const tern_value_info *x) {
  return x->rank >= 2 ? NULL : tern_error_new(TERN_INVALID_ARGUMENT, "the input must have at least 2 dimensions: batch and channels");
}

tern_status tern_rule_batch_norm(const tern_rule_call *call) {
  const tern_value_info *x = tern_rule_operand(call, 0);
  TERN_TRY(check_float(call, 0));
  TERN_TRY(check_has_channels(x));
  for (int i = 1; i <= 2; i++) TERN_TRY(check_weight(call, i, 0, 1, x->dims + 1));
  TERN_TRY(check_float_scalar(call, 3));
  result_like(call, 0, 0);
  for (int i = 1; i <= 3; i++) tern_rule_result(call, i, tern_dtype_wide(x->dtype), 1, x->dims + 1);
  return NULL;
}

tern_status tern_rule_batch_norm_grad(const tern_rule_call *call) {
  const tern_value_info *x = tern_rule_operand(call, 1);
  TERN_TRY(check_float(call, 0));
  TERN_TRY(check_pair(call));
  TERN_TRY(check_has_channels(x));
  TERN_TRY(check_weight(call, 2, 1, 1, x->dims + 1));
  for (int i = 3; i <= 4; i++) {
    TERN_TRY(check_dtype(call, i, tern_dtype_wide(x->dtype)));
    TERN_TRY(check_dims(call, i, 1, x->dims + 1));
  }
  result_like(call, 0, 1);
  tern_dtype weight = tern_rule_has(call, 2) ? tern_rule_operand(call, 2)->dtype : x->dtype;
  for (int i = 1; i <= 2; i++) tern_rule_result(call, i, weight, 1, x->dims + 1);
  return NULL;
}

/* ---- attention: q, k, v are three operands in a row, the first is number `q` ---- */
static tern_status check_attention(const tern_rule_call *call, int q, int mask, int scale) {
  const tern_value_info *Q = tern_rule_operand(call, q), *K = tern_rule_operand(call, q + 1), *V = tern_rule_operand(call, q + 2);
  TERN_TRY(check_float(call, q));
  for (int i = 1; i <= 2; i++) TERN_TRY(tern_rule_check_same_dtype(call, q, q + i));
  if (Q->rank != 4 || K->rank != 4 || V->rank != 4) return tern_error_new(TERN_INVALID_ARGUMENT, "q, k and v must have rank 4: batch, heads, length, size");
  if (Q->dims[0] != K->dims[0] || K->dims[0] != V->dims[0] || K->dims[1] != V->dims[1] || K->dims[2] != V->dims[2] || Q->dims[3] != K->dims[3])
    return tern_error_new(TERN_INVALID_ARGUMENT, "the shapes of q, k and v do not fit: [B,H,L,E], [B,Hk,S,E], [B,Hk,S,Ev]");
  if (K->dims[1] == 0 ? Q->dims[1] != 0 : Q->dims[1] % K->dims[1] != 0)
    return tern_error_new(TERN_INVALID_ARGUMENT, "%lld query heads are no multiple of %lld key heads", (long long)Q->dims[1], (long long)K->dims[1]);
  TERN_TRY(check_float_scalar(call, scale));
  if (!tern_rule_has(call, mask)) return NULL;
  const tern_value_info *M = tern_rule_operand(call, mask);
  int64_t full[4] = {Q->dims[0], Q->dims[1], Q->dims[2], K->dims[2]};
  char text[TERN_DESCRIBE_ROOM];
  if (M->dtype != TERN_BOOL) TERN_TRY(check_float(call, mask));
  bool fits = M->rank <= 4;
  for (int i = 0; i < M->rank && fits; i++) fits = M->dims[i] == 1 || M->dims[i] == full[4 - M->rank + i];
  return fits ? NULL : tern_error_new(TERN_INVALID_ARGUMENT, "the mask must broadcast to %s", tern_dims_describe(4, full, text));
}

/* The logarithm of a row's sum is kept wide: f32, and f64 for f64. */
static tern_dtype lse_dtype(tern_dtype dtype) { return dtype == TERN_F64 ? TERN_F64 : TERN_F32; }

tern_status tern_rule_attention(const tern_rule_call *call) {
  TERN_TRY(check_attention(call, 0, 3, 4));
  const tern_value_info *q = tern_rule_operand(call, 0), *v = tern_rule_operand(call, 2);
  tern_rule_result(call, 0, q->dtype, 4, (int64_t[]){q->dims[0], q->dims[1], q->dims[2], v->dims[3]});
  tern_rule_result(call, 1, lse_dtype(q->dtype), 3, q->dims);
  return NULL;
}

tern_status tern_rule_attention_grad(const tern_rule_call *call) {
  TERN_TRY(check_attention(call, 1, 6, 7));
  const tern_value_info *q = tern_rule_operand(call, 1), *v = tern_rule_operand(call, 3);
  int64_t out[4] = {q->dims[0], q->dims[1], q->dims[2], v->dims[3]};
  for (int i = 0; i <= 4; i += 4) {
    TERN_TRY(check_dtype(call, i, q->dtype));
    TERN_TRY(check_dims(call, i, 4, out));
  }
  TERN_TRY(check_dtype(call, 5, lse_dtype(q->dtype)));
  TERN_TRY(check_dims(call, 5, 3, q->dims));
  for (int i = 0; i < 3; i++) result_like(call, i, i + 1);
  return NULL;
}

/* ---- lstm ---- */
/* Operand `gates` is [T, B, 4 H]; the others that are given must fit. */
static tern_status check_lstm(const tern_rule_call *call, int gates, int weight, int n, const int *states, int64_t *dims) {
  const tern_value_info *g = tern_rule_operand(call, gates);
  if (g->dtype != TERN_F32) return tern_error_new(TERN_INVALID_ARGUMENT, "the gates are %s; only f32 is possible", tern_dtype_name(g->dtype));
  if (g->rank != 3 || g->dims[2] % 4 != 0) return tern_error_new(TERN_INVALID_ARGUMENT, "the gates must be [steps, batch, 4 hidden]");
  memcpy(dims, (int64_t[]){g->dims[0], g->dims[1], g->dims[2] / 4}, 3 * sizeof *dims);
  TERN_TRY(check_dtype(call, weight, TERN_F32));
  TERN_TRY(check_dims(call, weight, 2, (int64_t[]){4 * dims[2], dims[2]}));
  for (int i = 0; i < n; i++) {
    if (!tern_rule_has(call, states[i])) continue;
    TERN_TRY(check_dtype(call, states[i], TERN_F32));
    TERN_TRY(check_dims(call, states[i], 2, dims + 1));
  }
  return NULL;
}

tern_status tern_rule_lstm(const tern_rule_call *call) {
  int64_t dims[3];
  TERN_TRY(check_lstm(call, 0, 1, 2, (int[]){3, 4}, dims));
  if (tern_rule_has(call, 2)) {
    TERN_TRY(check_dtype(call, 2, TERN_F32));
    TERN_TRY(check_dims(call, 2, 1, (int64_t[]){4 * dims[2]}));
  }
  for (int i = 0; i < 2; i++) tern_rule_result(call, i, TERN_F32, 3, dims);
  result_like(call, 2, 0);
  return NULL;
}

tern_status tern_rule_lstm_grad(const tern_rule_call *call) {
  int64_t dims[3];
  TERN_TRY(check_lstm(call, 3, 6, 3, (int[]){1, 2, 5}, dims));
  for (int i = 0; i <= 4; i += 4) {
    if (!tern_rule_has(call, i)) continue;
    TERN_TRY(check_dtype(call, i, TERN_F32));
    TERN_TRY(check_dims(call, i, 3, dims));
  }
  result_like(call, 0, 3);
  for (int i = 1; i < 3; i++) tern_rule_result(call, i, TERN_F32, 2, dims + 1);
  return NULL;
}

/* ---- pooling ---- */
/* Whether the window makes `y` from `x` (both [N, C, spatial]). The result's spatial sizes are given, not computed, since PyTorch's ceil_mode adds a window that may
 * hang over; every window must hold at least one element of x. */
static tern_status check_pool(const tern_window *window, const int64_t *x, const int64_t *y, bool dilates) {
  for (int i = 0; i < window->spatial; i++) {
    int64_t size = window->size[i], stride = window->stride[i], low = window->pad_low[i], dilation = window->dilation[i], in = x[i + 2], out = y[i + 2];
    if (size < 1 || stride < 1 || dilation < 1) return tern_error_new(TERN_INVALID_ARGUMENT, "size %lld, stride %lld and dilation %lld must be at least 1", (long long)size, (long long)stride, (long long)dilation);
    if (size > INT32_MAX || stride > INT32_MAX || dilation > INT32_MAX || low > INT32_MAX || low < INT32_MIN || window->pad_high[i] > INT32_MAX || window->pad_high[i] < INT32_MIN || out > INT32_MAX)
      return tern_error_new(TERN_INVALID_ARGUMENT, "size, stride, dilation, padding and result must fit in 32 bits");
    if (!dilates && dilation != 1) return tern_error_new(TERN_INVALID_ARGUMENT, "average pooling has no dilation");
    if (out == 0) continue;
    bool holds = (out - 1) * stride - low < in;
    for (int64_t start = -low, n = 0; holds && start < 0 && n < out; start += stride, n++) {
      int64_t steps = (-start + dilation - 1) / dilation;
      holds = steps < size && start + steps * dilation < in;
    }
    if (!holds) return tern_error_new(TERN_INVALID_ARGUMENT, "a window lies outside of the %lld elements of dimension %d: less padding or fewer results are possible", (long long)in, i + 2);
  }
  return NULL;
}

static tern_status check_planes(const tern_value_info *x, int spatial) {
  if (spatial < 1 || spatial > 3) return tern_error_new(TERN_INVALID_ARGUMENT, "%d spatial dimensions; 1, 2 or 3 are possible", spatial);
  return x->rank == spatial + 2 ? NULL : tern_error_new(TERN_INVALID_ARGUMENT, "the rank must be %d: batch, channels, spatial", spatial + 2);
}

static tern_status pool_forward(const tern_rule_call *call, bool dilates) {
  const tern_value_info *x = tern_rule_operand(call, 0), *y = &call->results[0];
  TERN_TRY(check_planes(x, call->attrs->window.spatial));
  call->results[0].dtype = x->dtype;
  TERN_TRY(tern_rule_check_proposed(call));
  if (y->rank != x->rank || y->dims[0] != x->dims[0] || y->dims[1] != x->dims[1]) return tern_error_new(TERN_INVALID_ARGUMENT, "the result has another batch or channels");
  return check_pool(&call->attrs->window, x->dims, y->dims, dilates);
}

tern_status tern_rule_max_pool(const tern_rule_call *call) {
  if (tern_dtype_is_complex(tern_rule_operand(call, 0)->dtype)) return tern_error_new(TERN_INVALID_ARGUMENT, "complex numbers have no order");
  TERN_TRY(pool_forward(call, true));
  tern_rule_result(call, 1, TERN_I64, call->results[0].rank, call->results[0].dims);
  return NULL;
}

tern_status tern_rule_max_pool_grad(const tern_rule_call *call) {
  const tern_value_info *gy = tern_rule_operand(call, 0), *gx = &call->results[0];
  call->results[0].dtype = gy->dtype;
  TERN_TRY(tern_rule_check_proposed(call));
  TERN_TRY(check_dtype(call, 1, TERN_I64));
  TERN_TRY(check_dims(call, 1, gy->rank, gy->dims));
  TERN_TRY(check_planes(gy, call->attrs->window.spatial));
  if (gx->rank != gy->rank || gx->dims[0] != gy->dims[0] || gx->dims[1] != gy->dims[1]) return tern_error_new(TERN_INVALID_ARGUMENT, "the result has another batch or channels");
  return check_pool(&call->attrs->window, gx->dims, gy->dims, true);
}

tern_status tern_rule_avg_pool(const tern_rule_call *call) {
  TERN_TRY(check_float(call, 0));
  return pool_forward(call, false);
}

tern_status tern_rule_avg_pool_grad(const tern_rule_call *call) {
  const tern_value_info *gy = tern_rule_operand(call, 0), *gx = &call->results[0];
  TERN_TRY(check_float(call, 0));
  TERN_TRY(check_planes(gy, call->attrs->window.spatial));
  call->results[0].dtype = gy->dtype;
  TERN_TRY(tern_rule_check_proposed(call));
  if (gx->rank != gy->rank || gx->dims[0] != gy->dims[0] || gx->dims[1] != gy->dims[1]) return tern_error_new(TERN_INVALID_ARGUMENT, "the result has another batch or channels");
  return check_pool(&call->attrs->window, gx->dims, gy->dims, false);
}
