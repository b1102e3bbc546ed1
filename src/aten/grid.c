/* grid: grid_sample in two and three dimensions, forward and backward: bilinear, nearest and (in two dimensions) bicubic; zeros, border and reflection padding.
 *
 * A point of the grid reads some elements of the input, its taps: along each dimension one, two or four indices with weights, and the taps are their products. Taps
 * outside of the input have weight 0. Formulas: aten/src/ATen/native/GridSampler.h. */
#include "nn.h"

enum { BILINEAR, NEAREST, BICUBIC };   /* interpolation_mode */
enum { ZEROS, BORDER, REFLECTION };    /* padding_mode */
enum { SPATIAL, MODE, PADDING, ALIGNED, WANTS_INPUT }; /* attrs */
enum { MAX_TAPS = 4 };

/* (input [N, C, spatial], grid [N, out, spatial dims], interpolation_mode, padding_mode, align_corners), from argument `first` */
static tern_verdict draft_grid(const tern_call *call, tern_draft *draft, int spatial, int first) {
  const tern_tensor *x = tern_arg_tensor(call, first), *grid = tern_arg_tensor(call, first + 1);
  int64_t mode = tern_arg_int(call, first + 2, 0), padding = tern_arg_int(call, first + 3, 0);
  if (!x || !grid || x->rank != spatial + 2 || grid->rank != spatial + 2) return TERN_REJECT;
  if (grid->sizes[0] != x->sizes[0] || grid->sizes[spatial + 1] != spatial || grid->dtype != x->dtype) return TERN_REJECT;
  if (!tern_nn_is_float(x) || !x->count || !grid->count || mode < 0 || mode > (spatial == 2 ? BICUBIC : NEAREST) || padding < 0 || padding > 2)
    return TERN_FALL_BACK;
  tern_draft_attrs(draft, 4, (int64_t[]){spatial, mode, padding, tern_arg_bool(call, first + 4, false)});
  return tern_nn_operands(draft, 2, (const tern_tensor *[]){x, grid});
}

static tern_verdict infer(const tern_call *call, tern_draft *draft, int spatial) {
  tern_verdict verdict = draft_grid(call, draft, spatial, 0);
  if (verdict != TERN_RECORD) return verdict;
  const tern_tensor *x = tern_arg_tensor(call, 0), *grid = tern_arg_tensor(call, 1);
  int64_t sizes[5] = {x->sizes[0], x->sizes[1]};
  memcpy(sizes + 2, grid->sizes + 1, (size_t)spatial * sizeof *sizes);
  tern_draft_result(draft, (tern_dtype)x->dtype, x->rank, sizes);
  return TERN_RECORD;
}

/* (grad_output, input, grid, interpolation_mode, padding_mode, align_corners, output_mask) */
static tern_verdict infer_backward(const tern_call *call, tern_draft *draft, int spatial) {
  tern_verdict verdict = draft_grid(call, draft, spatial, 1);
  if (verdict != TERN_RECORD) return verdict;
  const tern_tensor *gy = tern_arg_tensor(call, 0), *x = tern_arg_tensor(call, 1), *grid = tern_arg_tensor(call, 2);
  bool wants_input = tern_nn_mask_has(call, 6, 0);
  if (!gy || gy->rank != x->rank || gy->count * spatial != grid->count * x->sizes[1]) return TERN_REJECT;
  if (gy->dtype != x->dtype) return TERN_FALL_BACK;
  tern_draft_attr(draft, wants_input);
  tern_draft_result(draft, (tern_dtype)x->dtype, x->rank, x->sizes)->undefined = !wants_input;
  tern_draft_result(draft, (tern_dtype)x->dtype, grid->rank, grid->sizes);
  return tern_draft_tensor(draft, gy);
}

static tern_verdict infer_2d(const tern_call *call, tern_draft *draft) { return infer(call, draft, 2); }
static tern_verdict infer_3d(const tern_call *call, tern_draft *draft) { return infer(call, draft, 3); }
static tern_verdict infer_2d_backward(const tern_call *call, tern_draft *draft) { return infer_backward(call, draft, 2); }
static tern_verdict infer_3d_backward(const tern_call *call, tern_draft *draft) { return infer_backward(call, draft, 3); }

/* ---- lowering: coordinates ---- */

static tern_value like(tern_program *p, tern_value x, double number) { return tern_nn_number(p, tern_value_dtype(p, x), number); }
static tern_value plus(tern_program *p, tern_value x, double number) { return tern_add(p, x, like(p, x, number)); }
static tern_value times(tern_program *p, tern_value x, double number) { return tern_multiply(p, x, like(p, x, number)); }

/* A coordinate in elements of the input, and its slope by the grid's value; a slope of TERN_NO_VALUE is 1. */
typedef struct coordinate {
  tern_value at, slope;
} coordinate;

static void multiply_slope(tern_program *p, coordinate *c, tern_value by) { c->slope = c->slope == TERN_NO_VALUE ? by : tern_multiply(p, c->slope, by); }

/* NaN becomes 0, as in PyTorch. */
static void clip(tern_program *p, coordinate *c, int64_t size) {
  tern_value zero = like(p, c->at, 0), most = like(p, c->at, (double)(size - 1));
  tern_value above = tern_compare(p, TERN_GT, c->at, zero), below = tern_compare(p, TERN_LT, c->at, most);
  multiply_slope(p, c, tern_convert(p, tern_and(p, above, below), tern_value_dtype(p, c->at)));
  c->at = tern_minimum(p, tern_select(p, above, c->at, zero), most);
}

/* Reflects between the middles of the outermost elements (aligned), or between the edges. */
static void reflect(tern_program *p, coordinate *c, int64_t size, bool aligned) {
  double low = aligned ? 0 : -0.5, span = aligned ? (double)(size - 1) : (double)size;
  tern_value zero = like(p, c->at, 0), one = like(p, c->at, 1), back = like(p, c->at, -1);
  if (span == 0) {
    multiply_slope(p, c, zero);
    c->at = tern_multiply(p, c->at, zero);
    return;
  }
  tern_value apart = plus(p, c->at, -low), distance = tern_abs(p, apart), flips = tern_floor(p, tern_divide(p, distance, like(p, apart, span)));
  tern_value extra = tern_subtract(p, distance, times(p, flips, span));
  tern_value is_odd = tern_compare(p, TERN_NE, times(p, tern_floor(p, times(p, flips, 0.5)), 2), flips);
  tern_value inside = tern_select(p, is_odd, plus(p, tern_negate(p, extra), span), extra);
  tern_value turns = tern_xor(p, is_odd, tern_compare(p, TERN_LT, apart, zero));
  multiply_slope(p, c, tern_select(p, turns, back, one));
  c->at = plus(p, inside, low);
  clip(p, c, size);
}

static void pad(const tern_lowering *node, coordinate *c, int64_t size) {
  if (node->attrs[PADDING] == BORDER) clip(node->program, c, size);
  if (node->attrs[PADDING] == REFLECTION) reflect(node->program, c, size, node->attrs[ALIGNED]);
}

/* ---- lowering: taps ---- */

typedef struct tap {
  tern_value index, weight, slope; /* i64 and the computing dtype, [N, points]; slope: of the weight by the coordinate */
} tap;

typedef struct axis {
  int n;
  tap taps[MAX_TAPS];
  tern_value scale; /* slope of the coordinate by the grid's value */
} axis;

/* Masks weights outside of the input, and makes an index of the coordinate. */
static tap finish_tap(tern_program *p, tern_value at, tern_value weight, tern_value slope, int64_t size) {
  tern_value zero = like(p, at, 0), most = like(p, at, (double)(size - 1));
  tern_value inside = tern_and(p, tern_compare(p, TERN_GE, at, zero), tern_compare(p, TERN_LE, at, most));
  tap t = {.weight = tern_select(p, inside, weight, zero), .slope = tern_select(p, inside, slope, zero)};
  t.index = tern_convert(p, tern_minimum(p, tern_select(p, inside, at, zero), most), TERN_I64);
  return t;
}

/* Keys' cubic with A = -0.75 at distance u, in [0, 1] and in [1, 2], and its derivative. */
static const double A = -0.75;
static tern_value cubic(tern_program *p, tern_value u, bool is_far) {
  if (is_far) return plus(p, tern_multiply(p, plus(p, tern_multiply(p, plus(p, times(p, u, A), -5 * A), u), 8 * A), u), -4 * A);
  return plus(p, tern_multiply(p, tern_multiply(p, plus(p, times(p, u, A + 2), -(A + 3)), u), u), 1);
}
static tern_value cubic_slope(tern_program *p, tern_value u, bool is_far) {
  if (is_far) return plus(p, tern_multiply(p, plus(p, times(p, u, 3 * A), -10 * A), u), 8 * A);
  return tern_multiply(p, plus(p, times(p, u, 3 * (A + 2)), -2 * (A + 3)), u);
}

static axis axis_of(const tern_lowering *node, tern_value grid, int64_t size) {
  tern_program *p = node->program;
  bool aligned = node->attrs[ALIGNED];
  double scale = aligned ? (double)(size - 1) / 2 : (double)size / 2;
  axis a = {.n = node->attrs[MODE] == NEAREST ? 1 : node->attrs[MODE] == BILINEAR ? 2 : 4};
  coordinate c = {times(p, plus(p, grid, 1), scale), TERN_NO_VALUE};
  if (!aligned) c.at = plus(p, c.at, -0.5);
  if (node->attrs[MODE] != BICUBIC) pad(node, &c, size);
  a.scale = c.slope == TERN_NO_VALUE ? like(p, grid, scale) : times(p, c.slope, scale);
  if (node->attrs[MODE] == NEAREST) {
    a.taps[0] = finish_tap(p, tern_round_even(p, c.at), like(p, grid, 1), like(p, grid, 0), size);
    return a;
  }
  tern_value first = tern_floor(p, c.at), beyond = tern_subtract(p, c.at, first), before = plus(p, tern_negate(p, beyond), 1);
  if (node->attrs[MODE] == BILINEAR) {
    a.taps[0] = finish_tap(p, first, before, like(p, grid, -1), size);
    a.taps[1] = finish_tap(p, plus(p, first, 1), beyond, like(p, grid, 1), size);
    return a;
  }
  for (int i = 0; i < 4; i++) {
    bool is_far = i == 0 || i == 3, is_before = i < 2;
    coordinate at = {plus(p, first, i - 1), TERN_NO_VALUE};
    tern_value distance = is_far ? plus(p, is_before ? beyond : before, 1) : is_before ? beyond : before;
    tern_value slope = cubic_slope(p, distance, is_far);
    pad(node, &at, size);
    a.taps[i] = finish_tap(p, at.at, cubic(p, distance, is_far), is_before ? slope : tern_negate(p, slope), size);
  }
  return a;
}

/* ---- lowering: points ---- */

typedef struct points {
  int spatial, rank; /* rank of the flattened arrays: [N, C, elements] */
  int64_t n, channels, count, elements;
  axis axes[3];
  int64_t sizes[3]; /* of the input */
} points;

static points points_of(const tern_lowering *node) {
  tern_program *p = node->program;
  points all = {.spatial = (int)node->attrs[SPATIAL], .rank = 3, .elements = 1};
  tern_value grid = tern_nn_widen(p, node->operands[1]);
  const int64_t *dims = tern_value_dims(p, node->operands[0]);
  all.n = dims[0];
  all.channels = dims[1];
  for (int d = 0; d < all.spatial; d++) all.elements *= all.sizes[d] = dims[2 + d];
  all.count = tern_nn_count(p, grid) / (all.n * all.spatial);
  grid = tern_reshape(p, grid, 3, (int64_t[]){all.n, all.count, all.spatial});
  for (int d = 0; d < all.spatial; d++) {
    int last = all.spatial - 1 - d; /* the grid's numbers are x, y, z: the last dimension first */
    tern_value one = tern_slice(p, grid, (int64_t[]){0, 0, last}, (int64_t[]){all.n, all.count, last + 1}, (int64_t[]){1, 1, 1});
    all.axes[d] = axis_of(node, tern_reshape(p, one, 2, (int64_t[]){all.n, all.count}), all.sizes[d]);
  }
  return all;
}

static int combinations(const points *all) {
  int n = 1;
  for (int d = 0; d < all->spatial; d++) n *= all->axes[d].n;
  return n;
}
/* The tap along dimension d of combination k. */
static const tap *tap_of(const points *all, int k, int d) {
  for (int e = 0; e < d; e++) k /= all->axes[e].n;
  return &all->axes[d].taps[k % all->axes[d].n];
}

/* The flat index of combination k for every channel: [N, C, points]. */
static tern_value index_of(tern_program *p, const points *all, int k) {
  tern_value index = tap_of(all, k, 0)->index;
  for (int d = 1; d < all->spatial; d++)
    index = tern_add(p, tern_multiply(p, index, tern_constant_int(p, TERN_I64, 0, NULL, all->sizes[d])), tap_of(all, k, d)->index);
  return tern_broadcast_to(p, tern_nn_unsqueeze(p, index, 1), 3, (int64_t[]){all->n, all->channels, all->count});
}

/* The product of the weights of combination k, that along `sloped` replaced by its slope; [N, points]. */
static tern_value weight_of(tern_program *p, const points *all, int k, int sloped) {
  tern_value product = TERN_NO_VALUE;
  for (int d = 0; d < all->spatial; d++) {
    const tap *t = tap_of(all, k, d);
    tern_value factor = d == sloped ? t->slope : t->weight;
    product = product == TERN_NO_VALUE ? factor : tern_multiply(p, product, factor);
  }
  return product;
}

static tern_value accumulate(tern_program *p, tern_value sum, tern_value v) { return sum == TERN_NO_VALUE ? v : tern_add(p, sum, v); }

static tern_value flat_input(tern_program *p, tern_value v, const points *all, int64_t elements) {
  return tern_reshape(p, tern_nn_widen(p, v), 3, (int64_t[]){all->n, all->channels, elements});
}

static tern_status lower(const tern_lowering *node, tern_value *results) {
  tern_program *p = node->program;
  points all = points_of(node);
  tern_value x = flat_input(p, node->operands[0], &all, all.elements), sum = TERN_NO_VALUE;
  for (int k = 0; k < combinations(&all); k++) {
    tern_value weight = tern_nn_unsqueeze(p, weight_of(p, &all, k, -1), 1);
    sum = accumulate(p, sum, tern_multiply(p, tern_gather(p, x, index_of(p, &all, k), 2), weight));
  }
  results[0] = tern_nn_result(node, 0, sum);
  return NULL;
}

static tern_status lower_backward(const tern_lowering *node, tern_value *results) {
  tern_program *p = node->program;
  points all = points_of(node);
  tern_value x = flat_input(p, node->operands[0], &all, all.elements), gy = flat_input(p, node->operands[2], &all, all.count);
  tern_value gx = tern_nn_zeros(p, tern_value_dtype(p, x), 3, (int64_t[]){all.n, all.channels, all.elements}), slopes[3];
  int channels = 1;
  for (int d = 0; d < 3; d++) slopes[d] = TERN_NO_VALUE;
  for (int k = 0; k < combinations(&all); k++) {
    tern_value index = index_of(p, &all, k);
    if (node->attrs[WANTS_INPUT])
      gx = tern_scatter(p, gx, index, tern_multiply(p, gy, tern_nn_unsqueeze(p, weight_of(p, &all, k, -1), 1)), 2, TERN_COMBINE_ADD);
    if (node->attrs[MODE] == NEAREST) continue; /* a step function: no slope */
    tern_value given = tern_reduce(p, TERN_SUM, tern_multiply(p, tern_gather(p, x, index, 2), gy), 1, &channels);
    for (int d = 0; d < all.spatial; d++) slopes[d] = accumulate(p, slopes[d], tern_multiply(p, given, weight_of(p, &all, k, d)));
  }
  results[0] = tern_nn_result(node, 0, gx);
  if (node->attrs[MODE] == NEAREST) {
    results[1] = tern_nn_zeros(p, node->outputs[1].computed, node->outputs[1].view.rank, node->outputs[1].view.sizes);
    return NULL;
  }
  tern_value parts[3];
  for (int d = 0; d < all.spatial; d++) parts[all.spatial - 1 - d] = tern_nn_unsqueeze(p, tern_multiply(p, slopes[d], all.axes[d].scale), 2);
  results[1] = tern_nn_result(node, 1, tern_concatenate(p, all.spatial, parts, 2));
  return NULL;
}

const tern_aten_row tern_aten_grid[] = {
    {.functional = "grid_sampler_2d", .out = "grid_sampler_2d.out", .infer = infer_2d, .lower = lower},
    {.functional = "grid_sampler_2d_backward", .out = "grid_sampler_2d_backward.out", .infer = infer_2d_backward, .lower = lower_backward},
    {.functional = "grid_sampler_3d", .out = "grid_sampler_3d.out", .infer = infer_3d, .lower = lower},
    {.functional = "grid_sampler_3d_backward", .out = "grid_sampler_3d_backward.out", .infer = infer_3d_backward, .lower = lower_backward},
};
TERN_ATEN_FAMILY_END(grid)
