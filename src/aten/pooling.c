/* pooling: max and average pooling in 2 and 3 dimensions (1-d pooling comes as 2-d), adaptive average pooling, and their gradients.
 *
 * The sizes follow PyTorch's pooling_output_shape, ceil_mode included: the last window must begin inside the input or its left padding. Inputs without a
 * batch dimension are seen with a batch of one. attrs: spatial, count_include_pad, divisor, then size, stride, padding, dilation of 3 each. */
#include "nn.h"

enum { SPATIAL, COUNT_PADDING, DIVISOR, SIZE, STRIDE = SIZE + 3, PADDING = STRIDE + 3, DILATION = PADDING + 3, ATTRS = DILATION + 3 };

static int64_t pooled_size(int64_t in, int64_t size, int64_t padding, int64_t stride, int64_t dilation, bool ceil_mode) {
  int64_t room = in + 2 * padding - dilation * (size - 1) - 1 + (ceil_mode ? stride - 1 : 0);
  int64_t out = (room >= 0 ? room / stride : -((-room + stride - 1) / stride)) + 1;
  return ceil_mode && (out - 1) * stride >= in + padding ? out - 1 : out;
}

/* Reads kernel_size, stride and padding from argument `first` on, and dilation where there is one; gives the result's sizes. False where PyTorch would refuse.
 */
static bool read_window(const tern_call *call, int first, bool dilates, bool ceil_mode, const tern_tensor *x, int spatial, int64_t *attrs, int64_t *sizes) {
  int n;
  const int64_t *values;
  memset(attrs, 0, ATTRS * sizeof *attrs);
  attrs[SPATIAL] = spatial;
  if (x->rank != spatial + 1 && x->rank != spatial + 2) return false;
  if (!tern_nn_expand_ints(call, first, spatial, attrs + SIZE) || !tern_nn_expand_ints(call, first + 2, spatial, attrs + PADDING)) return false;
  if (!tern_arg_ints(call, first + 1, &n, &values)) return false;
  if (n == 0)
    memcpy(attrs + STRIDE, attrs + SIZE, (size_t)spatial * sizeof *attrs);
  else if (!tern_nn_expand_ints(call, first + 1, spatial, attrs + STRIDE))
    return false;
  for (int i = 0; i < 3; i++) attrs[DILATION + i] = 1;
  if (dilates && !tern_nn_expand_ints(call, first + 3, spatial, attrs + DILATION)) return false;
  int outer = x->rank - spatial;
  for (int d = 0; d < outer; d++) sizes[d] = x->sizes[d];
  for (int i = 0; i < spatial; i++) {
    int64_t size = attrs[SIZE + i], stride = attrs[STRIDE + i], padding = attrs[PADDING + i], dilation = attrs[DILATION + i];
    if (size < 1 || stride < 1 || dilation < 1 || padding < 0 || padding > (dilation * (size - 1) + 1) / 2) return false;
    sizes[outer + i] = pooled_size(x->sizes[outer + i], size, padding, stride, dilation, ceil_mode);
    if (sizes[outer + i] < 1) return false;
  }
  return true;
}

/* Empty batches have empty results; of other empty inputs PyTorch decides which it refuses. */
static bool is_pooled(const tern_tensor *x, int spatial) {
  bool is_empty_batch = x->count == 0 && x->rank == spatial + 2 && x->sizes[0] == 0;
  for (int d = 1; d < x->rank && is_empty_batch; d++) is_empty_batch = x->sizes[d] > 0;
  return tern_nn_is_float(x) && (x->count > 0 || is_empty_batch);
}

/* (self, kernel_size, stride, padding, dilation, ceil_mode) -> values, indices */
static tern_verdict infer_max(const tern_call *call, tern_draft *draft, int spatial) {
  const tern_tensor *x = tern_arg_tensor(call, 0);
  int64_t attrs[ATTRS], sizes[TERN_MAX_TENSOR_RANK];
  if (!x || !read_window(call, 1, true, tern_arg_bool(call, 5, false), x, spatial, attrs, sizes)) return TERN_REJECT;
  if (!is_pooled(x, spatial)) return TERN_FALL_BACK;
  tern_draft_attrs(draft, ATTRS, attrs);
  tern_nn_keep_channels_last(tern_draft_result(draft, (tern_dtype)x->dtype, x->rank, sizes), x);
  tern_nn_keep_channels_last(tern_draft_result(draft, TERN_I64, x->rank, sizes), x);
  return tern_draft_tensor(draft, x);
}

/* (grad_output, self, kernel_size, stride, padding, dilation, ceil_mode, indices) */
static tern_verdict infer_max_backward(const tern_call *call, tern_draft *draft, int spatial) {
  const tern_tensor *gy = tern_arg_tensor(call, 0), *x = tern_arg_tensor(call, 1), *index = tern_arg_tensor(call, 7);
  int64_t attrs[ATTRS], sizes[TERN_MAX_TENSOR_RANK];
  if (!gy || !x || !index || !read_window(call, 2, true, tern_arg_bool(call, 6, false), x, spatial, attrs, sizes)) return TERN_REJECT;
  if (!tern_nn_has_sizes(gy, x->rank, sizes) || !tern_nn_has_sizes(index, x->rank, sizes)) return TERN_REJECT;
  if (!is_pooled(x, spatial) || gy->dtype != x->dtype || index->dtype != TERN_I64) return TERN_FALL_BACK;
  tern_draft_attrs(draft, ATTRS, attrs);
  tern_nn_keep_channels_last(tern_draft_result(draft, (tern_dtype)x->dtype, x->rank, x->sizes), x);
  return tern_nn_operands(draft, 2, (const tern_tensor *[]){gy, index});
}

/* Reads ceil_mode, count_include_pad and divisor_override; gives the draft its attrs. */
static tern_verdict draft_average(const tern_call *call, tern_draft *draft, int first, const tern_tensor *x, int spatial, int64_t *sizes) {
  int64_t attrs[ATTRS];
  if (!read_window(call, first, false, tern_arg_bool(call, first + 3, false), x, spatial, attrs, sizes)) return TERN_REJECT;
  attrs[COUNT_PADDING] = tern_arg_bool(call, first + 4, true);
  attrs[DIVISOR] = tern_arg_int(call, first + 5, 0);
  if (attrs[DIVISOR] == 0 && !tern_arg_is_none(call, first + 5)) return TERN_REJECT;
  tern_draft_attrs(draft, ATTRS, attrs);
  return is_pooled(x, spatial) ? TERN_RECORD : TERN_FALL_BACK;
}

static tern_verdict infer_avg(const tern_call *call, tern_draft *draft, int spatial) {
  const tern_tensor *x = tern_arg_tensor(call, 0);
  int64_t sizes[TERN_MAX_TENSOR_RANK];
  if (!x) return TERN_REJECT;
  tern_verdict verdict = draft_average(call, draft, 1, x, spatial, sizes);
  if (verdict != TERN_RECORD) return verdict;
  tern_nn_keep_channels_last(tern_draft_result(draft, (tern_dtype)x->dtype, x->rank, sizes), x);
  return tern_draft_tensor(draft, x);
}

static tern_verdict infer_avg_backward(const tern_call *call, tern_draft *draft, int spatial) {
  const tern_tensor *gy = tern_arg_tensor(call, 0), *x = tern_arg_tensor(call, 1);
  int64_t sizes[TERN_MAX_TENSOR_RANK];
  if (!gy || !x) return TERN_REJECT;
  tern_verdict verdict = draft_average(call, draft, 2, x, spatial, sizes);
  if (verdict != TERN_RECORD) return verdict;
  if (!tern_nn_has_sizes(gy, x->rank, sizes)) return TERN_REJECT;
  if (gy->dtype != x->dtype) return TERN_FALL_BACK;
  tern_nn_keep_channels_last(tern_draft_result(draft, (tern_dtype)x->dtype, x->rank, x->sizes), x);
  return tern_draft_tensor(draft, gy);
}

static tern_verdict infer_max_2d(const tern_call *call, tern_draft *draft) { return infer_max(call, draft, 2); }
static tern_verdict infer_max_3d(const tern_call *call, tern_draft *draft) { return infer_max(call, draft, 3); }
static tern_verdict infer_max_2d_backward(const tern_call *call, tern_draft *draft) { return infer_max_backward(call, draft, 2); }
static tern_verdict infer_max_3d_backward(const tern_call *call, tern_draft *draft) { return infer_max_backward(call, draft, 3); }
static tern_verdict infer_avg_2d(const tern_call *call, tern_draft *draft) { return infer_avg(call, draft, 2); }
static tern_verdict infer_avg_3d(const tern_call *call, tern_draft *draft) { return infer_avg(call, draft, 3); }
static tern_verdict infer_avg_2d_backward(const tern_call *call, tern_draft *draft) { return infer_avg_backward(call, draft, 2); }
static tern_verdict infer_avg_3d_backward(const tern_call *call, tern_draft *draft) { return infer_avg_backward(call, draft, 3); }

/* ---- lowering ---- */

static tern_window window_of(const int64_t *attrs) {
  tern_window window = {.spatial = (int32_t)attrs[SPATIAL], .groups = 1, .count_padding = attrs[COUNT_PADDING], .divisor = attrs[DIVISOR]};
  for (int i = 0; i < window.spatial; i++) {
    window.size[i] = attrs[SIZE + i];
    window.stride[i] = attrs[STRIDE + i];
    window.pad_low[i] = window.pad_high[i] = attrs[PADDING + i];
    window.dilation[i] = attrs[DILATION + i];
  }
  return window;
}

/* With a batch dimension: [N, C, spatial]. */
static tern_value batched(const tern_lowering *node, tern_value v) {
  return tern_value_rank(node->program, v) == node->attrs[SPATIAL] + 1 ? tern_nn_unsqueeze(node->program, v, 0) : v;
}
/* The spatial sizes of output 0, and its dims with the batch. */
static const int64_t *spatial_of(const tern_lowering *node) { return node->outputs[0].view.sizes + (node->outputs[0].view.rank - node->attrs[SPATIAL]); }
static void batched_dims(const tern_lowering *node, int64_t *dims) {
  const tern_geometry *view = &node->outputs[0].view;
  int missing = (int)node->attrs[SPATIAL] + 2 - view->rank;
  if (missing) dims[0] = 1;
  memcpy(dims + missing, view->sizes, (size_t)view->rank * sizeof *dims);
}

static tern_status lower_max(const tern_lowering *node, tern_value *results) {
  tern_window window = window_of(node->attrs);
  tern_value pooled[2];
  tern_max_pool(node->program, batched(node, node->operands[0]), &window, spatial_of(node), pooled);
  for (int i = 0; i < 2; i++) results[i] = tern_nn_result(node, i, pooled[i]);
  return NULL;
}

static tern_status lower_max_backward(const tern_lowering *node, tern_value *results) {
  tern_program *p = node->program;
  tern_window window = window_of(node->attrs);
  int64_t dims[TERN_MAX_RANK];
  batched_dims(node, dims);
  results[0] = tern_nn_result(node, 0, tern_max_pool_grad(p, tern_nn_widen(p, batched(node, node->operands[0])), batched(node, node->operands[1]), &window, dims));
  return NULL;
}

static tern_status lower_avg(const tern_lowering *node, tern_value *results) {
  tern_program *p = node->program;
  tern_window window = window_of(node->attrs);
  results[0] = tern_nn_result(node, 0, tern_avg_pool(p, tern_nn_widen(p, batched(node, node->operands[0])), &window, spatial_of(node)));
  return NULL;
}

static tern_status lower_avg_backward(const tern_lowering *node, tern_value *results) {
  tern_program *p = node->program;
  tern_window window = window_of(node->attrs);
  int64_t dims[TERN_MAX_RANK];
  batched_dims(node, dims);
  results[0] = tern_nn_result(node, 0, tern_avg_pool_grad(p, tern_nn_widen(p, batched(node, node->operands[0])), &window, dims));
  return NULL;
}

/* ---- adaptive average pooling: window i of `out` covers [floor(i * in / out), ceil((i + 1) * in / out)) ---- */

/* Uneven windows are sliced one by one: beyond this many the fallback is as good. */
enum { MAX_UNEVEN = 64 };

static int64_t window_start(int64_t i, int64_t in, int64_t out) { return i * in / out; }
static int64_t window_end(int64_t i, int64_t in, int64_t out) { return ((i + 1) * in + out - 1) / out; }

static tern_verdict check_adaptive(const tern_tensor *x, const int64_t *y_spatial) {
  if (x->rank != 3 && x->rank != 4) return TERN_REJECT;
  for (int i = 0; i < 2; i++) {
    int64_t in = x->sizes[x->rank - 2 + i];
    if (y_spatial[i] < 0 || in < 1) return TERN_REJECT;
    if (y_spatial[i] < 1 || (in % y_spatial[i] != 0 && y_spatial[i] > MAX_UNEVEN)) return TERN_FALL_BACK;
  }
  return is_pooled(x, 2) ? TERN_RECORD : TERN_FALL_BACK;
}

static tern_verdict infer_adaptive(const tern_call *call, tern_draft *draft) {
  const tern_tensor *x = tern_arg_tensor(call, 0);
  int64_t y_spatial[2], sizes[TERN_MAX_TENSOR_RANK];
  if (!x || !tern_nn_expand_ints(call, 1, 2, y_spatial)) return TERN_REJECT;
  tern_verdict verdict = check_adaptive(x, y_spatial);
  if (verdict != TERN_RECORD) return verdict;
  for (int d = 0; d < x->rank; d++) sizes[d] = d < x->rank - 2 ? x->sizes[d] : y_spatial[d - x->rank + 2];
  tern_nn_keep_channels_last(tern_draft_result(draft, (tern_dtype)x->dtype, x->rank, sizes), x);
  return tern_draft_tensor(draft, x);
}

static tern_verdict infer_adaptive_backward(const tern_call *call, tern_draft *draft) {
  const tern_tensor *gy = tern_arg_tensor(call, 0), *x = tern_arg_tensor(call, 1);
  if (!gy || !x || gy->rank != x->rank || (x->rank != 3 && x->rank != 4)) return TERN_REJECT;
  for (int d = 0; d < x->rank - 2; d++)
    if (gy->sizes[d] != x->sizes[d]) return TERN_REJECT;
  tern_verdict verdict = check_adaptive(x, gy->sizes + gy->rank - 2);
  if (verdict != TERN_RECORD) return verdict;
  if (gy->dtype != x->dtype) return TERN_FALL_BACK;
  tern_nn_keep_channels_last(tern_draft_result(draft, (tern_dtype)x->dtype, x->rank, x->sizes), x);
  return tern_draft_tensor(draft, gy);
}

/* The means of the windows along `dim`, which shrinks to `out`. */
static tern_value pool_along(tern_program *p, tern_value x, int dim, int64_t out) {
  int rank = tern_value_rank(p, x);
  int64_t in = tern_value_dims(p, x)[dim], start[TERN_MAX_RANK] = {0}, limit[TERN_MAX_RANK], stride[TERN_MAX_RANK], dims[TERN_MAX_RANK];
  tern_value parts[MAX_UNEVEN];
  for (int d = 0; d < rank; d++) {
    limit[d] = dims[d] = tern_value_dims(p, x)[d];
    stride[d] = 1;
  }
  if (in % out == 0) {
    for (int d = rank; d > dim + 1; d--) dims[d] = dims[d - 1];
    dims[dim] = out;
    dims[dim + 1] = in / out;
    int inner = dim + 1;
    tern_value sum = tern_reduce(p, TERN_SUM, tern_reshape(p, x, rank + 1, dims), 1, &inner);
    return tern_divide(p, sum, tern_nn_number(p, tern_value_dtype(p, x), (double)(in / out)));
  }
  for (int64_t i = 0; i < out; i++) {
    start[dim] = window_start(i, in, out);
    limit[dim] = window_end(i, in, out);
    tern_value sum = tern_nn_unsqueeze(p, tern_reduce(p, TERN_SUM, tern_slice(p, x, start, limit, stride), 1, &dim), dim);
    parts[i] = tern_divide(p, sum, tern_nn_number(p, tern_value_dtype(p, x), (double)(limit[dim] - start[dim])));
  }
  return tern_concatenate(p, (int)out, parts, dim);
}

/* The gradient of pool_along: each window's share spread over its elements. Windows may overlap by one element. */
static tern_value spread_along(tern_program *p, tern_value gy, int dim, int64_t in) {
  int rank = tern_value_rank(p, gy);
  tern_dtype dtype = tern_value_dtype(p, gy);
  int64_t out = tern_value_dims(p, gy)[dim], start[TERN_MAX_RANK] = {0}, limit[TERN_MAX_RANK], stride[TERN_MAX_RANK], dims[TERN_MAX_RANK];
  int64_t low[TERN_MAX_RANK] = {0}, high[TERN_MAX_RANK] = {0}, interior[TERN_MAX_RANK] = {0};
  for (int d = 0; d < rank; d++) {
    limit[d] = dims[d] = tern_value_dims(p, gy)[d];
    stride[d] = 1;
  }
  if (in % out == 0) {
    for (int d = rank; d > dim + 1; d--) dims[d] = dims[d - 1];
    dims[dim + 1] = in / out;
    tern_value share = tern_divide(p, gy, tern_nn_number(p, dtype, (double)(in / out)));
    tern_value spread = tern_broadcast_to(p, tern_nn_unsqueeze(p, share, dim + 1), rank + 1, dims);
    memcpy(dims, tern_value_dims(p, gy), (size_t)rank * sizeof *dims);
    dims[dim] = in;
    return tern_reshape(p, spread, rank, dims);
  }
  tern_value sum = TERN_NO_VALUE, zero = tern_nn_number(p, dtype, 0);
  for (int64_t i = 0; i < out; i++) {
    start[dim] = i;
    limit[dim] = i + 1;
    low[dim] = window_start(i, in, out);
    dims[dim] = window_end(i, in, out) - low[dim];
    high[dim] = in - low[dim] - dims[dim];
    tern_value share = tern_divide(p, tern_slice(p, gy, start, limit, stride), tern_nn_number(p, dtype, (double)dims[dim]));
    tern_value spread = tern_pad(p, tern_broadcast_to(p, share, rank, dims), zero, low, high, interior);
    sum = sum == TERN_NO_VALUE ? spread : tern_add(p, sum, spread);
  }
  return sum;
}

static tern_status lower_adaptive(const tern_lowering *node, tern_value *results) {
  tern_program *p = node->program;
  const tern_geometry *view = &node->outputs[0].view;
  tern_value y = tern_nn_widen(p, node->operands[0]);
  for (int d = view->rank - 2; d < view->rank; d++) y = pool_along(p, y, d, view->sizes[d]);
  results[0] = tern_nn_result(node, 0, y);
  return NULL;
}

static tern_status lower_adaptive_backward(const tern_lowering *node, tern_value *results) {
  tern_program *p = node->program;
  const tern_geometry *view = &node->outputs[0].view;
  tern_value gx = tern_nn_widen(p, node->operands[0]);
  for (int d = view->rank - 2; d < view->rank; d++) gx = spread_along(p, gx, d, view->sizes[d]);
  results[0] = tern_nn_result(node, 0, gx);
  return NULL;
}

const tern_aten_row tern_aten_pooling[] = {
    {.functional = "max_pool2d_with_indices", .out = "max_pool2d_with_indices.out", .infer = infer_max_2d, .lower = lower_max},
    {.functional = "max_pool2d_with_indices_backward",
     .out = "max_pool2d_with_indices_backward.grad_input",
     .infer = infer_max_2d_backward,
     .lower = lower_max_backward},
    {.functional = "max_pool3d_with_indices", .out = "max_pool3d_with_indices.out", .infer = infer_max_3d, .lower = lower_max},
    {.functional = "max_pool3d_with_indices_backward",
     .out = "max_pool3d_with_indices_backward.grad_input",
     .infer = infer_max_3d_backward,
     .lower = lower_max_backward},
    {.functional = "avg_pool2d", .out = "avg_pool2d.out", .infer = infer_avg_2d, .lower = lower_avg},
    {.functional = "avg_pool2d_backward", .out = "avg_pool2d_backward.grad_input", .infer = infer_avg_2d_backward, .lower = lower_avg_backward},
    {.functional = "avg_pool3d", .out = "avg_pool3d.out", .infer = infer_avg_3d, .lower = lower_avg},
    {.functional = "avg_pool3d_backward", .out = "avg_pool3d_backward.grad_input", .infer = infer_avg_3d_backward, .lower = lower_avg_backward},
    {.functional = "_adaptive_avg_pool2d", .out = "_adaptive_avg_pool2d.out", .infer = infer_adaptive, .lower = lower_adaptive},
    {.functional = "_adaptive_avg_pool2d_backward", .infer = infer_adaptive_backward, .lower = lower_adaptive_backward},
};
TERN_ATEN_FAMILY_END(pooling)
