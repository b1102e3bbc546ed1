/* The gradients of a convolution, as convolutions. In one dimension, with stride s, dilation t, padding l and a window of size n:
 *   y[o] = sum_k x[o s + k t - l] w[k]
 * so gx is gy, spread by s, convolved with the reversed window, and gw is x convolved with gy as the window, stride and dilation changing places. */
#include "composites.h"

/* Spreads the spatial elements of x apart: `stride` - 1 zeros between two. */
static tern_value spread(tern_program *p, tern_value x, const tern_window *window) {
  int64_t none[TERN_MAX_RANK] = {0}, interior[TERN_MAX_RANK] = {0};
  bool changes = false;
  for (int i = 0; i < window->spatial; i++) {
    interior[i + 2] = window->stride[i] - 1;
    changes |= interior[i + 2] > 0;
  }
  return changes ? tern_pad(p, x, tern_constant_int(p, tern_value_dtype(p, x), 0, NULL, 0), none, none, interior) : x;
}

/* Dims [first, second] + the spatial ones of x. */
static tern_value reshape_to(tern_program *p, tern_value x, int n, const int64_t *leading, int spatial) {
  int rank = tern_value_rank(p, x);
  int64_t dims[TERN_MAX_RANK];
  memcpy(dims, leading, (size_t)n * sizeof *dims);
  for (int i = 0; i < spatial; i++) dims[n + i] = tern_value_dims(p, x)[rank - spatial + i];
  return tern_reshape(p, x, n + spatial, dims);
}

/* Permutes the leading dimensions; the spatial ones behind them stay. */
static tern_value permute(tern_program *p, tern_value x, int n, const int *leading) {
  int permutation[TERN_MAX_RANK];
  for (int i = 0; i < tern_value_rank(p, x); i++) permutation[i] = i < n ? leading[i] : i;
  return tern_transpose(p, x, permutation);
}

static bool is_empty(const tern_program *p, tern_value v) { return tern_value_count(p, v) == 0; }

void tern_decompose_conv_input_grad(const tern_decomposition *d) {
  tern_program *p = d->p;
  if (p->error) return;
  const tern_window *window = &d->op->attrs->window;
  tern_value gy = d->operands[0], w = d->operands[1];
  if (is_empty(p, gy) || is_empty(p, w)) {
    d->out[0] = tern_part_zeros(d, 0);
    return;
  }
  int spatial = window->spatial, reversed[3];
  int64_t O = tern_value_dims(p, w)[0], C = tern_value_dims(p, w)[1], groups = window->groups;
  tern_window back = {.spatial = spatial, .groups = groups};
  for (int i = 0; i < spatial; i++) {
    int64_t reach = window->dilation[i] * (tern_value_dims(p, w)[i + 2] - 1), spread_size = (tern_value_dims(p, gy)[i + 2] - 1) * window->stride[i] + 1;
    reversed[i] = i + 2;
    back.stride[i] = 1;
    back.dilation[i] = window->dilation[i];
    back.pad_low[i] = reach - window->pad_low[i];
    back.pad_high[i] = d->results[0].dims[i + 2] - spread_size - back.pad_low[i] + reach; /* what the stride left over included */
  }
  /* [O, C/groups] -> [C, O/groups], within each group */
  w = reshape_to(p, w, 3, (int64_t[]){groups, O / groups, C}, spatial);
  w = permute(p, w, 3, (int[]){0, 2, 1});
  w = reshape_to(p, w, 2, (int64_t[]){groups * C, O / groups}, spatial);
  w = tern_reverse(p, w, spatial, reversed);
  d->out[0] = tern_convolution(p, spread(p, gy, window), w, &back);
}

void tern_decompose_conv_weight_grad(const tern_decomposition *d) {
  tern_program *p = d->p;
  if (p->error) return;
  const tern_window *window = &d->op->attrs->window;
  tern_value x = d->operands[0], gy = d->operands[1];
  if (is_empty(p, x) || is_empty(p, gy)) {
    d->out[0] = tern_part_zeros(d, 0);
    return;
  }
  int spatial = window->spatial;
  int64_t N = tern_value_dims(p, x)[0], groups = window->groups, C = tern_value_dims(p, x)[1] / groups;
  tern_window across = {.spatial = spatial, .groups = groups};
  for (int i = 0; i < spatial; i++) {
    across.stride[i] = window->dilation[i];
    across.dilation[i] = window->stride[i];
    across.pad_low[i] = window->pad_low[i];
    across.pad_high[i] = (d->results[0].dims[i + 2] - 1) * window->dilation[i] + (tern_value_dims(p, gy)[i + 2] - 1) * window->stride[i] + 1 - tern_value_dims(p, x)[i + 2] - window->pad_low[i];
  }
  /* x: [N, groups, C/groups] -> batch C/groups, channels groups x N; gy: [N, O] -> a weight [O, N] */
  x = reshape_to(p, x, 3, (int64_t[]){N, groups, C}, spatial);
  x = permute(p, x, 3, (int[]){2, 1, 0});
  x = reshape_to(p, x, 2, (int64_t[]){C, groups * N}, spatial);
  gy = permute(p, gy, 2, (int[]){1, 0});
  tern_value gw = tern_convolution(p, x, gy, &across); /* [C/groups, O] */
  d->out[0] = permute(p, gw, 2, (int[]){1, 0});
}
