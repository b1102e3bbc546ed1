/* resample: interpolate: nearest, linear and cubic, in one, two and three dimensions, forward and backward.
 *
 * All are separable. Along each dimension an output element is a weighted sum of one, two or four input elements, its taps; indices and weights are computed from the
 * output's position by the formulas of aten/src/ATen/native/UpSample.h. The scale is a scalar of the node, one for each dimension: sizes are in a program's key,
 * scale factors are not. */
#include <math.h>
#include "nn.h"

enum { NEAREST, NEAREST_EXACT, LINEAR, CUBIC };
enum { KIND, SPATIAL, ALIGNED }; /* attrs */
enum { MAX_TAPS = 4 };

static bool is_nearest(int64_t kind) { return kind == NEAREST || kind == NEAREST_EXACT; }

/* PyTorch computes the scale of the nearest kinds in f32 whatever the dtype; of the others in the dtype that it computes in. */
static tern_dtype position_dtype(const tern_tensor *x, int64_t kind) { return x->dtype == TERN_F64 && !is_nearest(kind) ? TERN_F64 : TERN_F32; }

/* How far one step in the output goes in the input. `factor`: the user's scale factor, or 0. */
static double step(int64_t in, int64_t out, bool aligned, double factor) {
  if (aligned) return out > 1 ? (double)(in - 1) / (double)(out - 1) : 0;
  return factor > 0 ? 1 / factor : (double)in / (double)out;
}

/* (x, output_size, [input_size], [align_corners], scales ...); `to` and `from`: the sizes of interpolate's result and of its input. */
static tern_verdict draft_resampling(const tern_call *call, tern_draft *draft, int kind, int spatial, const int64_t *from, const int64_t *to, int first) {
  const tern_tensor *x = tern_arg_tensor(call, 0);
  bool aligned = !is_nearest(kind) && tern_arg_bool(call, first++, false);
  tern_dtype dtype = position_dtype(x, kind);
  tern_draft_attrs(draft, 3, (int64_t[]){kind, spatial, aligned});
  for (int i = 0; i < spatial; i++) {
    if (from[i] < 1 || to[i] < 1) return TERN_REJECT;
    if (from[i] >= (int64_t)1 << 24 || to[i] >= (int64_t)1 << 24) return TERN_FALL_BACK; /* positions are exact in f32 up to here */
    tern_draft_double(draft, dtype, step(from[i], to[i], aligned, tern_arg_double(call, first + i, 0)), false);
  }
  return tern_draft_tensor(draft, x);
}

static bool is_resampled(const tern_tensor *x, int kind) { return x->count > 0 && (tern_nn_is_float(x) || (x->dtype == TERN_U8 && is_nearest(kind))); }

static tern_verdict infer(const tern_call *call, tern_draft *draft, int kind, int spatial) {
  const tern_tensor *x = tern_arg_tensor(call, 0);
  int64_t to[3], sizes[5];
  if (!x || x->rank != spatial + 2 || !tern_nn_expand_ints(call, 1, spatial, to)) return TERN_REJECT;
  if (!is_resampled(x, kind)) return TERN_FALL_BACK;
  memcpy(sizes, x->sizes, 2 * sizeof *sizes);
  memcpy(sizes + 2, to, (size_t)spatial * sizeof *sizes);
  tern_nn_keep_channels_last(tern_draft_result(draft, (tern_dtype)x->dtype, x->rank, sizes), x);
  return draft_resampling(call, draft, kind, spatial, x->sizes + 2, to, 2);
}

/* (grad_output, output_size, input_size, ...) */
static tern_verdict infer_backward(const tern_call *call, tern_draft *draft, int kind, int spatial) {
  const tern_tensor *gy = tern_arg_tensor(call, 0);
  int64_t to[3];
  int n;
  const int64_t *sizes;
  if (!gy || gy->rank != spatial + 2 || !tern_nn_expand_ints(call, 1, spatial, to) || !tern_arg_ints(call, 2, &n, &sizes) || n != gy->rank) return TERN_REJECT;
  for (int d = 0; d < gy->rank; d++)
    if (gy->sizes[d] != (d < 2 ? sizes[d] : to[d - 2])) return TERN_REJECT;
  if (!is_resampled(gy, kind)) return TERN_FALL_BACK;
  tern_nn_keep_channels_last(tern_draft_result(draft, (tern_dtype)gy->dtype, n, sizes), gy);
  return draft_resampling(call, draft, kind, spatial, sizes + 2, to, 3);
}

/* ---- lowering ---- */

/* Where the outputs along one dimension look: each index and weight is a vector of the output's length. */
typedef struct taps {
  int n;
  tern_value index[MAX_TAPS], weight[MAX_TAPS]; /* weight TERN_NO_VALUE: 1 */
} taps;

static tern_value clamped(tern_program *p, tern_value x, double low, double high) {
  tern_dtype dtype = tern_value_dtype(p, x);
  return tern_minimum(p, tern_maximum(p, x, tern_nn_number(p, dtype, low)), tern_nn_number(p, dtype, high));
}

static tern_value plus(tern_program *p, tern_value x, double number) { return tern_add(p, x, tern_nn_number(p, tern_value_dtype(p, x), number)); }
static tern_value times(tern_program *p, tern_value x, double number) { return tern_multiply(p, x, tern_nn_number(p, tern_value_dtype(p, x), number)); }

/* Keys' cubic with A = -0.75, for distances up to 1 and from 1 to 2. */
static tern_value cubic_near(tern_program *p, tern_value x) {
  const double A = -0.75;
  return plus(p, tern_multiply(p, tern_multiply(p, plus(p, times(p, x, A + 2), -(A + 3)), x), x), 1);
}
static tern_value cubic_far(tern_program *p, tern_value x) {
  const double A = -0.75;
  return plus(p, tern_multiply(p, plus(p, tern_multiply(p, plus(p, times(p, x, A), -5 * A), x), 8 * A), x), -4 * A);
}

static taps nearest_taps(tern_program *p, tern_value at, tern_value scale, int64_t kind, int64_t in, int64_t out) {
  taps t = {.n = 1, .weight = {TERN_NO_VALUE}};
  if (kind == NEAREST && out == 2 * in)
    at = tern_floor(p, times(p, at, 0.5));
  else
    at = tern_floor(p, tern_multiply(p, kind == NEAREST_EXACT ? plus(p, at, 0.5) : at, scale));
  t.index[0] = tern_convert(p, clamped(p, at, 0, (double)(in - 1)), TERN_I64);
  return t;
}

static taps taps_along(const tern_lowering *node, int dim, int64_t in, int64_t out) {
  tern_program *p = node->program;
  int64_t kind = node->attrs[KIND];
  tern_value scale = node->scalars[dim], at = tern_iota(p, tern_value_dtype(p, scale), 1, &out, 0);
  if (is_nearest(kind)) return nearest_taps(p, at, scale, kind, in, out);
  taps t = {.n = kind == CUBIC ? 4 : 2};
  at = node->attrs[ALIGNED] ? tern_multiply(p, at, scale) : plus(p, tern_multiply(p, plus(p, at, 0.5), scale), -0.5);
  if (kind == LINEAR) at = tern_maximum(p, at, tern_nn_number(p, tern_value_dtype(p, at), 0));
  tern_value first = tern_minimum(p, tern_floor(p, at), tern_nn_number(p, tern_value_dtype(p, at), (double)(in - 1)));
  tern_value beyond = clamped(p, tern_subtract(p, at, first), 0, 1), before = plus(p, tern_negate(p, beyond), 1);
  for (int i = 0; i < t.n; i++) t.index[i] = tern_convert(p, clamped(p, plus(p, first, kind == CUBIC ? i - 1 : i), 0, (double)(in - 1)), TERN_I64);
  if (kind == LINEAR) {
    t.weight[0] = before;
    t.weight[1] = beyond;
  } else {
    t.weight[0] = cubic_far(p, plus(p, beyond, 1));
    t.weight[1] = cubic_near(p, beyond);
    t.weight[2] = cubic_near(p, before);
    t.weight[3] = cubic_far(p, plus(p, before, 1));
  }
  return t;
}

/* Along a dimension of equal sizes nothing changes, whatever the scale factor says; but for the exact kind, as in PyTorch. */
static bool is_unchanged(int64_t kind, int64_t in, int64_t out) { return in == out && (kind == NEAREST || kind == LINEAR); }

static tern_value weighted(tern_program *p, tern_value v, tern_value weight, int dim) {
  return weight == TERN_NO_VALUE ? v : tern_multiply(p, v, tern_nn_along(p, weight, tern_value_rank(p, v), dim));
}

static tern_status lower(const tern_lowering *node, tern_value *results) {
  tern_program *p = node->program;
  tern_value y = is_nearest(node->attrs[KIND]) ? node->operands[0] : tern_nn_widen(p, node->operands[0]);
  for (int i = 0; i < node->attrs[SPATIAL]; i++) {
    int64_t in = tern_value_dims(p, y)[2 + i], out = node->outputs[0].view.sizes[2 + i];
    if (is_unchanged(node->attrs[KIND], in, out)) continue;
    taps t = taps_along(node, i, in, out);
    tern_value sum = TERN_NO_VALUE;
    for (int k = 0; k < t.n; k++) {
      tern_value tap = weighted(p, tern_take(p, y, t.index[k], 2 + i), t.weight[k], 2 + i);
      sum = sum == TERN_NO_VALUE ? tap : tern_add(p, sum, tap);
    }
    y = sum;
  }
  results[0] = tern_nn_result(node, 0, y);
  return NULL;
}

static tern_status lower_backward(const tern_lowering *node, tern_value *results) {
  tern_program *p = node->program;
  tern_value gx = tern_nn_widen(p, node->operands[0]);
  int64_t dims[5];
  for (int i = (int)node->attrs[SPATIAL] - 1; i >= 0; i--) {
    int64_t out = tern_value_dims(p, gx)[2 + i], in = node->outputs[0].view.sizes[2 + i];
    if (is_unchanged(node->attrs[KIND], in, out)) continue;
    taps t = taps_along(node, i, in, out);
    int rank = tern_value_rank(p, gx);
    memcpy(dims, tern_value_dims(p, gx), (size_t)rank * sizeof *dims);
    dims[2 + i] = in;
    tern_value sum = tern_nn_zeros(p, tern_value_dtype(p, gx), rank, dims);
    for (int k = 0; k < t.n; k++) sum = tern_put(p, sum, t.index[k], weighted(p, gx, t.weight[k], 2 + i), 2 + i, TERN_COMBINE_ADD);
    gx = sum;
  }
  results[0] = tern_nn_result(node, 0, gx);
  return NULL;
}

/* ---- rows ---- */
#define RESAMPLING(F)                                \
  F(nearest1d, "upsample_nearest1d", NEAREST, 1)     \
  F(nearest2d, "upsample_nearest2d", NEAREST, 2)     \
  F(nearest3d, "upsample_nearest3d", NEAREST, 3)     \
  F(exact1d, "_upsample_nearest_exact1d", NEAREST_EXACT, 1) \
  F(exact2d, "_upsample_nearest_exact2d", NEAREST_EXACT, 2) \
  F(exact3d, "_upsample_nearest_exact3d", NEAREST_EXACT, 3) \
  F(linear1d, "upsample_linear1d", LINEAR, 1)        \
  F(bilinear2d, "upsample_bilinear2d", LINEAR, 2)    \
  F(trilinear3d, "upsample_trilinear3d", LINEAR, 3)  \
  F(bicubic2d, "upsample_bicubic2d", CUBIC, 2)

#define INFER(id, name, kind, spatial)                                                                                            \
  static tern_verdict infer_##id(const tern_call *call, tern_draft *draft) { return infer(call, draft, kind, spatial); }          \
  static tern_verdict infer_##id##_backward(const tern_call *call, tern_draft *draft) { return infer_backward(call, draft, kind, spatial); }
RESAMPLING(INFER)
#undef INFER

const tern_aten_row tern_aten_resample[] = {
#define ROWS(id, name, kind, spatial)                                                     \
  {.functional = name, .out = name ".out", .infer = infer_##id, .lower = lower},          \
      {.functional = name "_backward", .out = name "_backward.grad_input", .infer = infer_##id##_backward, .lower = lower_backward},
    RESAMPLING(ROWS)
#undef ROWS
};
TERN_ATEN_FAMILY_END(resample)
