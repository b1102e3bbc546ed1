/* Pooling and its gradients, one spatial dimension after the other: a window of sizes 3 x 3 costs 3 + 3 steps, and compilers fuse them. */
#include "composites.h"

/* x with dimension `dim` padded so that windows of `size` by `dilation` at 0, stride, ... exist for `out` results (padding may be negative: a crop). */
static tern_value pad_for_windows(tern_program *p, tern_value x, double filling, const tern_window *window, int i, int64_t out) {
  int64_t low[TERN_MAX_RANK] = {0}, high[TERN_MAX_RANK] = {0}, interior[TERN_MAX_RANK] = {0};
  int64_t needed = (out - 1) * window->stride[i] + (window->size[i] - 1) * window->dilation[i] + 1;
  low[i + 2] = window->pad_low[i];
  high[i + 2] = needed - tern_value_dims(p, x)[i + 2] - low[i + 2];
  if (low[i + 2] == 0 && high[i + 2] == 0) return x;
  return tern_pad(p, x, tern_part_number(p, x, filling), low, high, interior);
}

/* Element k of every window along spatial dimension i of an array that pad_for_windows made. */
static tern_value window_element(tern_program *p, tern_value x, const tern_window *window, int i, int64_t k, int64_t out) {
  int64_t start[TERN_MAX_RANK] = {0}, limit[TERN_MAX_RANK], stride[TERN_MAX_RANK];
  for (int d = 0; d < tern_value_rank(p, x); d++) limit[d] = tern_value_dims(p, x)[d], stride[d] = 1;
  start[i + 2] = k * window->dilation[i];
  limit[i + 2] = start[i + 2] + (out - 1) * window->stride[i] + 1;
  stride[i + 2] = window->stride[i];
  return tern_slice(p, x, start, limit, stride);
}

/* Places within a plane are i32 while they are worked with: TPUs have no other integers. */
static tern_dtype place_dtype(int64_t plane) { return plane <= INT32_MAX ? TERN_I32 : TERN_I64; }

/* The larger of two, with its index. An index below 0 is padding: it never wins, and loses to everything. NaN wins, and of several the last, as in PyTorch. */
static void keep_larger(tern_program *p, tern_value *best, tern_value *index, tern_value value, tern_value value_index) {
  tern_value zero = tern_constant_int(p, tern_value_dtype(p, *index), 0, NULL, 0);
  tern_value wins = tern_or(p, tern_compare(p, TERN_LT, *index, zero), tern_compare(p, TERN_GT, value, *best));
  if (tern_dtype_is_float(tern_value_dtype(p, value))) wins = tern_or(p, wins, tern_compare(p, TERN_NE, value, value));
  wins = tern_and(p, wins, tern_compare(p, TERN_GE, value_index, zero));
  *best = tern_select(p, wins, value, *best);
  *index = tern_select(p, wins, value_index, *index);
}

/* Windows up to this many elements are compared element by element; larger ones along one dimension after the other. */
enum { DIRECT_WINDOW = 16 };

/* Where element k of the windows along spatial dimension i lies, for each result: [1, ..., out, ..., 1]. */
static tern_value place_along(tern_program *p, const tern_window *window, int i, int64_t k, int64_t out, int rank, tern_dtype dtype) {
  int64_t dims[TERN_MAX_RANK];
  for (int d = 0; d < rank; d++) dims[d] = d == i + 2 ? out : 1;
  tern_value place = tern_multiply(p, tern_iota(p, dtype, 1, &out, 0), tern_constant_int(p, dtype, 0, NULL, window->stride[i]));
  return tern_reshape(p, tern_add(p, place, tern_constant_int(p, dtype, 0, NULL, k * window->dilation[i] - window->pad_low[i])), rank, dims);
}

/* The place in its plane of element k (a number per spatial dimension) of every window; -1 where that is padding. */
static tern_value place_of(tern_program *p, const tern_window *window, const int64_t *k, const int64_t *in, const int64_t *y, int rank, tern_dtype dtype) {
  tern_value place = TERN_NO_VALUE, inside = TERN_NO_VALUE;
  int64_t step = 1;
  for (int i = window->spatial - 1; i >= 0; step *= in[i + 2], i--) {
    const int64_t out = y[i + 2], first = k[i] * window->dilation[i] - window->pad_low[i], last = first + (out - 1) * window->stride[i];
    tern_value at = place_along(p, window, i, k[i], out, rank, dtype);
    tern_value far = tern_multiply(p, at, tern_constant_int(p, dtype, 0, NULL, step));
    place = place == TERN_NO_VALUE ? far : tern_add(p, place, far);
    if (first >= 0 && last < in[i + 2]) continue;
    tern_value within = tern_and(p, tern_compare(p, TERN_GE, at, tern_constant_int(p, dtype, 0, NULL, 0)), tern_compare(p, TERN_LT, at, tern_constant_int(p, dtype, 0, NULL, in[i + 2])));
    inside = inside == TERN_NO_VALUE ? within : tern_and(p, inside, within);
  }
  if (inside != TERN_NO_VALUE) place = tern_select(p, inside, place, tern_constant_int(p, dtype, 0, NULL, -1));
  return tern_broadcast_to(p, place, rank, y);
}

static void pool_directly(const tern_decomposition *d, tern_dtype dtype) {
  tern_program *p = d->p;
  const tern_window *window = &d->op->attrs->window;
  const int64_t *y = d->results[0].dims, *in = tern_value_dims(p, d->operands[0]);
  const int rank = d->results[0].rank;
  int64_t elements = tern_dims_count(window->spatial, window->size), k[3] = {0};
  int64_t low[TERN_MAX_RANK] = {0}, high[TERN_MAX_RANK] = {0}, none[TERN_MAX_RANK] = {0}, start[TERN_MAX_RANK] = {0}, limit[TERN_MAX_RANK], stride[TERN_MAX_RANK];
  bool pads = false;
  for (int i = 0; i < rank; i++) limit[i] = y[i], stride[i] = 1;
  for (int i = 0; i < window->spatial; i++) {
    low[i + 2] = window->pad_low[i];
    high[i + 2] = (y[i + 2] - 1) * window->stride[i] + (window->size[i] - 1) * window->dilation[i] + 1 - in[i + 2] - low[i + 2];
    stride[i + 2] = window->stride[i];
    pads |= low[i + 2] || high[i + 2];
  }
  int64_t dims[TERN_MAX_RANK];
  memcpy(dims, in, (size_t)rank * sizeof *dims);
  /* Halves are compared wide: a TPU's compiler gives up on packed values beside unpacked places. */
  tern_value x = tern_part_wide(d, 0), best = TERN_NO_VALUE, index = TERN_NO_VALUE;
  if (pads) x = tern_pad(p, x, tern_part_number(p, x, 0), low, high, none);
  for (int64_t element = 0; element < elements; element++) {
    for (int64_t i = window->spatial - 1, rest = element; i >= 0; rest /= window->size[i], i--) {
      k[i] = rest % window->size[i];
      start[i + 2] = k[i] * window->dilation[i];
      limit[i + 2] = start[i + 2] + (y[i + 2] - 1) * window->stride[i] + 1;
    }
    tern_value value = tern_slice(p, x, start, limit, stride), place = place_of(p, window, k, dims, y, rank, dtype);
    if (element) keep_larger(p, &best, &index, value, place);
    else best = value, index = place;
  }
  d->out[0] = tern_convert(p, best, d->results[0].dtype);
  d->out[1] = tern_convert(p, index, TERN_I64);
}

void tern_decompose_max_pool(const tern_decomposition *d) {
  tern_program *p = d->p;
  if (p->error) return;
  const tern_window *window = &d->op->attrs->window;
  const tern_value_info *y = &d->results[0];
  if (tern_dims_count(y->rank, y->dims) == 0) {
    for (int i = 0; i < 2; i++) d->out[i] = tern_part_zeros(d, i);
    return;
  }
  if (tern_dims_count(window->spatial, window->size) <= DIRECT_WINDOW) {
    pool_directly(d, place_dtype(tern_dims_count(y->rank - 2, tern_value_dims(p, d->operands[0]) + 2)));
    return;
  }
  tern_value best = tern_part_wide(d, 0);
  int rank = tern_value_rank(p, best);
  const int64_t *dims = tern_value_dims(p, best);
  int64_t plane = tern_dims_count(rank - 2, dims + 2), one_plane[TERN_MAX_RANK] = {1, 1};
  memcpy(one_plane + 2, dims + 2, (size_t)(rank - 2) * sizeof *dims);
  tern_value index = tern_broadcast_to(p, tern_reshape(p, tern_iota(p, place_dtype(plane), 1, &plane, 0), rank, one_plane), rank, dims);
  for (int i = window->spatial - 1; i >= 0; i--) { /* the fastest first: then the first of equals is the first in memory */
    int64_t out = y->dims[i + 2];
    tern_value from = pad_for_windows(p, best, 0, window, i, out), from_index = pad_for_windows(p, index, -1, window, i, out);
    best = window_element(p, from, window, i, 0, out);
    index = window_element(p, from_index, window, i, 0, out);
    for (int64_t k = 1; k < window->size[i]; k++) keep_larger(p, &best, &index, window_element(p, from, window, i, k, out), window_element(p, from_index, window, i, k, out));
  }
  d->out[0] = tern_convert(p, best, y->dtype);
  d->out[1] = tern_convert(p, index, TERN_I64);
}

/* Windows up to this many elements are gone through one by one; the gradients of larger ones are scattered. */
enum { DENSE_WINDOW = 64 };

/* v spread by the stride, so that result o of dimension i lies at o * stride, with room for every window that reaches the input's ends. */
static tern_value spread(tern_program *p, tern_value v, tern_value filling, const tern_window *window, const int64_t *in) {
  int64_t low[TERN_MAX_RANK] = {0}, high[TERN_MAX_RANK] = {0}, interior[TERN_MAX_RANK] = {0};
  for (int i = 0; i < window->spatial; i++) {
    low[i + 2] = (window->size[i] - 1) * window->dilation[i] - window->pad_low[i];
    interior[i + 2] = window->stride[i] - 1;
    high[i + 2] = in[i + 2] + window->pad_low[i] - ((tern_value_dims(p, v)[i + 2] - 1) * window->stride[i] + 1);
  }
  return tern_pad(p, v, filling, low, high, interior);
}

/* A scatter adds one element after the other on most chips. So each element of the input asks, for each place that it may have in a window, whether that window
 * chose it: shifted views of the spread gradients and choices, which compilers make one kernel of. */
static tern_value gather_from_choosers(const tern_decomposition *d, tern_value gy) {
  tern_program *p = d->p;
  const tern_window *window = &d->op->attrs->window;
  const tern_value_info *gx = &d->results[0];
  const int rank = gx->rank;
  int64_t plane = tern_dims_count(rank - 2, gx->dims + 2), one_plane[TERN_MAX_RANK] = {1, 1}, elements = tern_dims_count(window->spatial, window->size);
  int64_t start[TERN_MAX_RANK] = {0}, limit[TERN_MAX_RANK], stride[TERN_MAX_RANK];
  const tern_dtype dtype = place_dtype(plane);
  tern_value zero = tern_part_number(p, gy, 0), sum = TERN_NO_VALUE, chosen = tern_convert(p, d->operands[1], dtype);
  chosen = spread(p, chosen, tern_constant_int(p, dtype, 0, NULL, -1), window, gx->dims);
  gy = spread(p, gy, zero, window, gx->dims);
  for (int i = 0; i < rank; i++) limit[i] = gx->dims[i], stride[i] = 1;
  memcpy(one_plane + 2, gx->dims + 2, (size_t)(rank - 2) * sizeof *one_plane);
  tern_value place = tern_reshape(p, tern_iota(p, dtype, 1, &plane, 0), rank, one_plane);
  for (int64_t element = 0; element < elements; element++) {
    for (int64_t i = window->spatial - 1, rest = element; i >= 0; rest /= window->size[i], i--) {
      start[i + 2] = (window->size[i] - 1 - rest % window->size[i]) * window->dilation[i];
      limit[i + 2] = start[i + 2] + gx->dims[i + 2];
    }
    tern_value is_chosen = tern_compare(p, TERN_EQ, tern_slice(p, chosen, start, limit, stride), place);
    tern_value share = tern_select(p, is_chosen, tern_slice(p, gy, start, limit, stride), zero);
    sum = sum == TERN_NO_VALUE ? share : tern_add(p, sum, share);
  }
  return sum;
}

void tern_decompose_max_pool_grad(const tern_decomposition *d) {
  tern_program *p = d->p;
  const tern_window *window = &d->op->attrs->window;
  const tern_value_info *gx = &d->results[0];
  tern_value gy = tern_part_wide(d, 0);
  if (p->error) return;
  if (tern_value_count(p, gy) == 0 || tern_dims_count(gx->rank, gx->dims) == 0) {
    d->out[0] = tern_part_zeros(d, 0);
    return;
  }
  if (tern_dims_count(window->spatial, window->size) <= DENSE_WINDOW) {
    tern_part_result(d, 0, gather_from_choosers(d, gy));
    return;
  }
  const int64_t *dims = tern_value_dims(p, gy);
  int rank = gx->rank;
  int64_t flat[3] = {dims[0], dims[1], tern_dims_count(rank - 2, dims + 2)}, plane[3] = {dims[0], dims[1], tern_dims_count(rank - 2, gx->dims + 2)};
  tern_value zeros = tern_constant_int(p, tern_value_dtype(p, gy), 3, plane, 0);
  tern_part_result(d, 0, tern_scatter(p, zeros, tern_reshape(p, d->operands[1], 3, flat), tern_reshape(p, gy, 3, flat), 2, TERN_COMBINE_ADD));
}

/* ---- average pooling ---- */
/* How many elements the window of result `o` along spatial dimension i is divided by. */
static int64_t window_count(const tern_window *window, int i, int64_t in, int64_t o) {
  int64_t start = o * window->stride[i] - window->pad_low[i], end = start + window->size[i], most = window->count_padding ? in + window->pad_high[i] : in;
  if (end > most) end = most;
  if (start < 0 && !window->count_padding) start = 0;
  return end - start;
}

/* The same for every o at once, in the order of dimension i of an array of rank `rank`. */
static tern_value window_counts(tern_program *p, tern_dtype dtype, const tern_window *window, int i, int64_t in, int64_t out, int rank) {
  tern_value start = tern_iota(p, TERN_I64, 1, &out, 0);
  start = tern_multiply(p, start, tern_constant_int(p, TERN_I64, 0, NULL, window->stride[i]));
  start = tern_subtract(p, start, tern_constant_int(p, TERN_I64, 0, NULL, window->pad_low[i]));
  tern_value end = tern_add(p, start, tern_constant_int(p, TERN_I64, 0, NULL, window->size[i]));
  end = tern_minimum(p, end, tern_constant_int(p, TERN_I64, 0, NULL, window->count_padding ? in + window->pad_high[i] : in));
  if (!window->count_padding) start = tern_maximum(p, start, tern_constant_int(p, TERN_I64, 0, NULL, 0));
  int64_t dims[TERN_MAX_RANK];
  for (int k = 0; k < rank; k++) dims[k] = k == i + 2 ? out : 1;
  return tern_reshape(p, tern_convert(p, tern_subtract(p, end, start), dtype), rank, dims);
}

/* y divided by what its windows hold. `in`: the dims of the pooled array. */
static tern_value divide_by_counts(tern_program *p, tern_value y, const tern_window *window, const int64_t *in) {
  if (window->divisor) return tern_divide(p, y, tern_part_number(p, y, (double)window->divisor));
  int rank = tern_value_rank(p, y);
  int64_t uniform = 1; /* of the dimensions whose windows all hold as much */
  tern_value counts = TERN_NO_VALUE;
  for (int i = 0; i < window->spatial; i++) {
    int64_t out = tern_value_dims(p, y)[i + 2], first = window_count(window, i, in[i + 2], 0);
    bool same = true;
    for (int64_t o = 1; o < out && same; o++) same = window_count(window, i, in[i + 2], o) == first;
    if (same) {
      uniform *= first;
      continue;
    }
    tern_value own = window_counts(p, tern_value_dtype(p, y), window, i, in[i + 2], out, rank);
    counts = counts == TERN_NO_VALUE ? own : tern_multiply(p, counts, own);
  }
  tern_value number = tern_part_number(p, y, (double)uniform);
  return tern_divide(p, y, counts == TERN_NO_VALUE ? number : tern_multiply(p, counts, number));
}

void tern_decompose_avg_pool(const tern_decomposition *d) {
  tern_program *p = d->p;
  if (p->error) return;
  const tern_window *window = &d->op->attrs->window;
  const tern_value_info *y = &d->results[0];
  if (tern_dims_count(y->rank, y->dims) == 0) {
    d->out[0] = tern_part_zeros(d, 0);
    return;
  }
  tern_value sum = tern_part_wide(d, 0);
  for (int i = window->spatial - 1; i >= 0; i--) {
    int64_t out = y->dims[i + 2];
    tern_value from = pad_for_windows(p, sum, 0, window, i, out);
    sum = window_element(p, from, window, i, 0, out);
    for (int64_t k = 1; k < window->size[i]; k++) sum = tern_add(p, sum, window_element(p, from, window, i, k, out));
  }
  tern_part_result(d, 0, divide_by_counts(p, sum, window, tern_value_dims(p, d->operands[0])));
}

/* Each result's share goes back to every element of its window: along one dimension, gy spread by the stride and added at size places. */
void tern_decompose_avg_pool_grad(const tern_decomposition *d) {
  tern_program *p = d->p;
  if (p->error) return;
  const tern_window *window = &d->op->attrs->window;
  const tern_value_info *gx = &d->results[0];
  if (tern_value_count(p, d->operands[0]) == 0 || tern_dims_count(gx->rank, gx->dims) == 0) {
    d->out[0] = tern_part_zeros(d, 0);
    return;
  }
  tern_value share = divide_by_counts(p, tern_part_wide(d, 0), window, gx->dims), zero = tern_part_number(p, share, 0);
  for (int i = 0; i < window->spatial; i++) {
    int64_t low[TERN_MAX_RANK] = {0}, high[TERN_MAX_RANK] = {0}, interior[TERN_MAX_RANK] = {0}, out = tern_value_dims(p, share)[i + 2];
    tern_value sum = TERN_NO_VALUE;
    interior[i + 2] = window->stride[i] - 1;
    for (int64_t k = 0; k < window->size[i]; k++) {
      low[i + 2] = k - window->pad_low[i];
      high[i + 2] = gx->dims[i + 2] - low[i + 2] - ((out - 1) * window->stride[i] + 1);
      tern_value placed = tern_pad(p, share, zero, low, high, interior);
      sum = sum == TERN_NO_VALUE ? placed : tern_add(p, sum, placed);
    }
    share = sum;
  }
  tern_part_result(d, 0, share);
}
