/* norm: layer norm, batch norm and group norm with their gradients.
 *
 * Means and reciprocal deviations are kept in f32 for f16 and bf16. Batch norm in training also writes the running statistics, which its schema does not
 * say: a custom row. attrs of each node are listed at its lowering. */
#include "nn.h"

/* Weights are taken in x's dtype or the wide one; anything else is widened. */
static tern_value weight_for(tern_program *p, tern_value weight, tern_value x) {
  if (weight == TERN_NO_VALUE) return weight;
  tern_dtype dtype = tern_value_dtype(p, weight), x_dtype = tern_value_dtype(p, x);
  return dtype == x_dtype ? weight : tern_convert(p, weight, tern_compute_dtype(x_dtype));
}

static bool all_float(int n, const tern_tensor *const *tensors) {
  for (int i = 0; i < n; i++)
    if (tensors[i] && !tern_nn_is_float(tensors[i])) return false;
  return true;
}

/* The dtype of a weight's gradient. */
static tern_dtype weight_dtype(const tern_tensor *weight, const tern_tensor *x) { return (tern_dtype)(weight ? weight : x)->dtype; }

/* ---- layer norm ---- */

static bool is_normalised(const tern_tensor *x, int n, const int64_t *shape) {
  return n >= 1 && n <= x->rank && memcmp(x->sizes + x->rank - n, shape, (size_t)n * sizeof *shape) == 0;
}

static int64_t count_of(int n, const int64_t *sizes) {
  int64_t count = 1;
  for (int i = 0; i < n; i++) count *= sizes[i];
  return count;
}

/* (input, normalized_shape, weight?, bias?, eps) -> y, mean, rstd */
static tern_verdict infer_layer_norm(const tern_call *call, tern_draft *draft) {
  const tern_tensor *x = tern_arg_tensor(call, 0), *weight = tern_arg_tensor(call, 2), *bias = tern_arg_tensor(call, 3), *operands[3] = {x, weight, bias};
  int n;
  const int64_t *shape;
  int64_t kept[TERN_MAX_TENSOR_RANK];
  if (!x || !tern_arg_ints(call, 1, &n, &shape) || !is_normalised(x, n, shape)) return TERN_REJECT;
  if ((weight && !tern_nn_has_sizes(weight, n, shape)) || (bias && !tern_nn_has_sizes(bias, n, shape))) return TERN_REJECT;
  if (!all_float(3, operands) || x->rank > TERN_MAX_TENSOR_RANK || count_of(n, shape) == 0) return TERN_FALL_BACK;
  for (int d = 0; d < x->rank; d++) kept[d] = d < x->rank - n ? x->sizes[d] : 1;
  tern_draft_attr(draft, n);
  tern_draft_double(draft, tern_nn_wide(x), tern_arg_double(call, 4, 1e-5), false);
  tern_draft_result(draft, (tern_dtype)x->dtype, x->rank, x->sizes);
  tern_draft_result(draft, tern_nn_wide(x), x->rank, kept);
  tern_draft_result(draft, tern_nn_wide(x), x->rank, kept);
  return tern_nn_operands(draft, 3, operands);
}

/* attrs: number of normalised dimensions */
static tern_status lower_layer_norm(const tern_lowering *node, tern_value *results) {
  tern_program *p = node->program;
  tern_value x = node->operands[0];
  tern_layer_norm(p, x, weight_for(p, node->operands[1], x), weight_for(p, node->operands[2], x), node->scalars[0], (int)node->attrs[0], results);
  return NULL;
}

/* (grad_out, input, normalized_shape, mean, rstd, weight?, bias?, output_mask) */
static tern_verdict infer_layer_norm_backward(const tern_call *call, tern_draft *draft) {
  const tern_tensor *gy = tern_arg_tensor(call, 0), *x = tern_arg_tensor(call, 1), *mean = tern_arg_tensor(call, 3), *rstd = tern_arg_tensor(call, 4);
  const tern_tensor *weight = tern_arg_tensor(call, 5), *bias = tern_arg_tensor(call, 6), *operands[5] = {gy, x, mean, rstd, weight};
  int n;
  const int64_t *shape;
  if (!gy || !x || !mean || !rstd || !tern_arg_ints(call, 2, &n, &shape) || !is_normalised(x, n, shape) || !tern_nn_same_sizes(gy, x)) return TERN_REJECT;
  if (weight && !tern_nn_has_sizes(weight, n, shape)) return TERN_REJECT;
  if (!all_float(5, operands) || x->rank > TERN_MAX_TENSOR_RANK || count_of(n, shape) == 0) return TERN_FALL_BACK;
  if (mean->count != count_of(x->rank - n, x->sizes) || rstd->count != mean->count) return TERN_FALL_BACK;
  tern_draft_attr(draft, n);
  tern_draft_result(draft, (tern_dtype)x->dtype, x->rank, x->sizes)->undefined = !tern_nn_mask_has(call, 7, 0);
  tern_draft_result(draft, weight_dtype(weight, x), n, shape)->undefined = !tern_nn_mask_has(call, 7, 1);
  tern_draft_result(draft, weight_dtype(bias ? bias : weight, x), n, shape)->undefined = !tern_nn_mask_has(call, 7, 2);
  return tern_nn_operands(draft, 5, operands);
}

static tern_status lower_layer_norm_backward(const tern_lowering *node, tern_value *results) {
  tern_program *p = node->program;
  tern_value x = node->operands[1], gy = tern_convert(p, node->operands[0], tern_value_dtype(p, x)), statistics[2];
  int rank = tern_value_rank(p, x), n = (int)node->attrs[0];
  int64_t kept[TERN_MAX_RANK];
  for (int d = 0; d < rank; d++) kept[d] = d < rank - n ? tern_value_dims(p, x)[d] : 1;
  for (int i = 0; i < 2; i++) statistics[i] = tern_reshape(p, tern_convert(p, node->operands[2 + i], tern_compute_dtype(tern_value_dtype(p, x))), rank, kept);
  tern_layer_norm_grad(p, gy, x, statistics[0], statistics[1], weight_for(p, node->operands[4], x), n, results);
  for (int i = 0; i < 3; i++) results[i] = tern_nn_as(p, results[i], node->outputs[i].computed);
  return NULL;
}

/* ---- batch norm ---- */

enum { TRAINING, UPDATES };

/* -> y, save_mean, save_invstd, and in training with running statistics the new ones, written in place.
 * attrs: training, whether running statistics are written; scalars: eps, momentum, 1 - momentum */
static tern_verdict batch_norm(const tern_call *call, tern_status *status, bool has_running) {
  int shift = has_running ? 2 : 0;
  const tern_tensor *x = tern_arg_tensor(call, 0), *weight = tern_arg_tensor(call, 1), *bias = tern_arg_tensor(call, 2);
  const tern_tensor *mean = has_running ? tern_arg_tensor(call, 3) : NULL, *var = has_running ? tern_arg_tensor(call, 4) : NULL;
  const tern_tensor *operands[5] = {x, weight, bias, mean, var};
  bool training = tern_arg_bool(call, 3 + shift, false), updates = training && mean && var;
  double momentum = tern_arg_double(call, 4 + shift, 0.1), eps = tern_arg_double(call, 5 + shift, 1e-5);
  tern_draft draft;
  if (!x || x->rank < 2 || (!training && (!mean || !var))) return TERN_REJECT;
  for (int i = 1; i < 5; i++)
    if (operands[i] && !tern_nn_has_sizes(operands[i], 1, &x->sizes[1])) return TERN_REJECT;
  if (!all_float(5, operands) || x->rank > TERN_MAX_TENSOR_RANK) return TERN_FALL_BACK;
  tern_draft_start(&draft);
  tern_verdict verdict = tern_nn_operands(&draft, training && !updates ? 3 : 5, operands);
  if (verdict != TERN_RECORD) return verdict;
  tern_dtype wide = tern_nn_wide(x);
  int64_t saved = training ? x->sizes[1] : 0;
  tern_draft_attr(&draft, training);
  tern_draft_attr(&draft, updates);
  tern_draft_double(&draft, wide, eps, false);
  tern_draft_double(&draft, wide, momentum, false);
  tern_draft_double(&draft, wide, 1 - momentum, false);
  tern_nn_keep_channels_last(tern_draft_result(&draft, (tern_dtype)x->dtype, x->rank, x->sizes), x);
  tern_draft_result(&draft, wide, 1, &saved);
  tern_draft_result(&draft, wide, 1, &saved);
  const tern_tensor *targets[5] = {NULL, NULL, NULL, mean, var};
  for (int i = 3; i < 5 && updates; i++) tern_draft_result(&draft, wide, 1, &saved);
  *status = tern_draft_record(call, &draft, call->row, targets);
  return TERN_RECORD;
}

static tern_verdict call_batch_norm(const tern_call *call, tern_status *status) { return batch_norm(call, status, true); }
static tern_verdict call_batch_norm_no_stats(const tern_call *call, tern_status *status) { return batch_norm(call, status, false); }

/* (1 - momentum) * running + momentum * statistic */
static tern_value running(const tern_lowering *node, int operand, tern_value statistic) {
  tern_program *p = node->program;
  tern_value old = tern_convert(p, node->operands[operand], tern_value_dtype(p, statistic));
  return tern_add(p, tern_multiply(p, statistic, node->scalars[1]), tern_multiply(p, old, node->scalars[2]));
}

/* PyTorch folds the statistics into one factor and one term a channel: y = x * alpha + beta. */
static tern_value normalise_by(tern_program *p, tern_value x, tern_value mean, tern_value invstd, tern_value weight, tern_value bias) {
  tern_dtype dtype = tern_value_dtype(p, x), wide = tern_compute_dtype(dtype);
  int rank = tern_value_rank(p, x);
  tern_value alpha = weight == TERN_NO_VALUE ? invstd : tern_multiply(p, invstd, tern_convert(p, weight, wide));
  tern_value shift = tern_multiply(p, mean, alpha);
  tern_value beta = bias == TERN_NO_VALUE ? tern_negate(p, shift) : tern_subtract(p, tern_convert(p, bias, wide), shift);
  tern_value y = tern_multiply(p, tern_convert(p, x, wide), tern_nn_along(p, alpha, rank, 1));
  return tern_convert(p, tern_add(p, y, tern_nn_along(p, beta, rank, 1)), dtype);
}

static tern_value inverse_deviation(tern_program *p, tern_value var, tern_value eps) {
  return tern_divide(p, tern_nn_number(p, tern_value_dtype(p, var), 1), tern_sqrt(p, tern_add(p, var, eps)));
}

static tern_status lower_batch_norm(const tern_lowering *node, tern_value *results) {
  tern_program *p = node->program;
  tern_value x = node->operands[0], weight = node->operands[1], bias = node->operands[2];
  tern_dtype wide = tern_compute_dtype(tern_value_dtype(p, x));
  if (!node->attrs[TRAINING]) {
    int64_t none = 0;
    tern_value mean = tern_convert(p, node->operands[3], wide), var = tern_convert(p, node->operands[4], wide);
    results[0] = normalise_by(p, x, mean, inverse_deviation(p, var, node->scalars[0]), weight, bias);
    results[1] = results[2] = tern_nn_zeros(p, wide, 1, &none);
    return NULL;
  }
  tern_value normalised[4]; /* y, mean, invstd, var */
  tern_batch_norm(p, x, weight_for(p, weight, x), weight_for(p, bias, x), node->scalars[0], normalised);
  memcpy(results, normalised, 3 * sizeof *results);
  if (!node->attrs[UPDATES]) return NULL;
  int64_t channels = tern_value_dims(p, x)[1], n = channels ? tern_nn_count(p, x) / channels : 0;
  tern_value unbiased = tern_multiply(p, normalised[3], tern_nn_number(p, wide, (double)n / (double)(n - 1)));
  results[3] = running(node, 3, normalised[1]);
  results[4] = running(node, 4, unbiased);
  return NULL;
}

/* (grad_out, input, weight?, running_mean?, running_var?, save_mean?, save_invstd?, train, eps, output_mask). attrs: training */
static tern_verdict infer_batch_norm_backward(const tern_call *call, tern_draft *draft) {
  bool training = tern_arg_bool(call, 7, false);
  const tern_tensor *gy = tern_arg_tensor(call, 0), *x = tern_arg_tensor(call, 1), *weight = tern_arg_tensor(call, 2);
  const tern_tensor *operands[5] = {gy, x, weight, tern_arg_tensor(call, training ? 5 : 3), tern_arg_tensor(call, training ? 6 : 4)};
  if (!gy || !x || !operands[3] || !operands[4] || x->rank < 2 || !tern_nn_same_sizes(gy, x)) return TERN_REJECT;
  for (int i = 2; i < 5; i++)
    if (operands[i] && !tern_nn_has_sizes(operands[i], 1, &x->sizes[1])) return TERN_REJECT;
  if (!all_float(5, operands) || x->rank > TERN_MAX_TENSOR_RANK) return TERN_FALL_BACK;
  tern_draft_attr(draft, training);
  tern_draft_double(draft, tern_nn_wide(x), tern_arg_double(call, 8, 1e-5), false);
  tern_draft_output *gx = tern_draft_result(draft, (tern_dtype)x->dtype, x->rank, x->sizes);
  tern_nn_keep_channels_last(gx, x);
  gx->undefined = !tern_nn_mask_has(call, 9, 0);
  for (int i = 1; i < 3; i++) tern_draft_result(draft, weight_dtype(weight, x), 1, &x->sizes[1])->undefined = !tern_nn_mask_has(call, 9, i);
  return tern_nn_operands(draft, 5, operands);
}

static tern_status lower_batch_norm_backward(const tern_lowering *node, tern_value *results) {
  tern_program *p = node->program;
  tern_value x = node->operands[1], gy = tern_convert(p, node->operands[0], tern_value_dtype(p, x));
  tern_dtype wide = tern_compute_dtype(tern_value_dtype(p, x));
  tern_value mean = tern_convert(p, node->operands[3], wide), invstd = tern_convert(p, node->operands[4], wide);
  if (!node->attrs[TRAINING]) invstd = inverse_deviation(p, invstd, node->scalars[0]);
  tern_batch_norm_grad(p, gy, x, weight_for(p, node->operands[2], x), mean, invstd, node->attrs[TRAINING], results);
  for (int i = 0; i < 3; i++) results[i] = tern_nn_as(p, results[i], node->outputs[i].computed);
  return NULL;
}

/* ---- group norm: [N, C, HxW] seen as [N, groups, C / groups * HxW] ---- */

static bool fits_groups(const tern_tensor *x, int64_t n, int64_t c, int64_t hw, int64_t groups) {
  return x->rank >= 2 && n >= 0 && groups > 0 && c % groups == 0 && x->count == n * c * hw && x->sizes[0] == n && x->sizes[1] == c;
}

/* (input, weight?, bias?, N, C, HxW, group, eps) -> y, mean[N, group], rstd[N, group]. attrs: N, C, HxW, group */
static tern_verdict infer_group_norm(const tern_call *call, tern_draft *draft) {
  const tern_tensor *x = tern_arg_tensor(call, 0), *weight = tern_arg_tensor(call, 1), *bias = tern_arg_tensor(call, 2), *operands[3] = {x, weight, bias};
  int64_t n = tern_arg_int(call, 3, -1), c = tern_arg_int(call, 4, -1), hw = tern_arg_int(call, 5, -1), groups = tern_arg_int(call, 6, 0),
          kept[2] = {n, groups};
  if (!x || !fits_groups(x, n, c, hw, groups)) return TERN_REJECT;
  if ((weight && !tern_nn_has_sizes(weight, 1, &c)) || (bias && !tern_nn_has_sizes(bias, 1, &c))) return TERN_REJECT;
  if (!all_float(3, operands) || x->rank > TERN_MAX_TENSOR_RANK || x->count == 0) return TERN_FALL_BACK;
  tern_draft_attrs(draft, 4, (int64_t[]){n, c, hw, groups});
  tern_draft_double(draft, tern_nn_wide(x), tern_arg_double(call, 7, 1e-5), false);
  tern_nn_keep_channels_last(tern_draft_result(draft, (tern_dtype)x->dtype, x->rank, x->sizes), x);
  tern_draft_result(draft, tern_nn_wide(x), 2, kept);
  tern_draft_result(draft, tern_nn_wide(x), 2, kept);
  return tern_nn_operands(draft, 3, operands);
}

typedef struct grouping {
  int64_t n, c, hw, groups, per_group;
} grouping;

static grouping groups_of(const int64_t *attrs) { return (grouping){attrs[0], attrs[1], attrs[2], attrs[3], attrs[1] / attrs[3]}; }
/* A value of one number a group, [N, groups], for each of the group's channels: [N, C, 1]. */
static tern_value for_channels(tern_program *p, grouping g, tern_value v) {
  v = tern_broadcast_to(p, tern_reshape(p, v, 3, (int64_t[]){g.n, g.groups, 1}), 3, (int64_t[]){g.n, g.groups, g.per_group});
  return tern_reshape(p, v, 3, (int64_t[]){g.n, g.c, 1});
}
/* A number a channel, [C], as [1, C, 1] in the wide dtype. */
static tern_value channel_weight(tern_program *p, grouping g, tern_value v, tern_dtype wide) {
  return tern_reshape(p, tern_convert(p, v, wide), 3, (int64_t[]){1, g.c, 1});
}

static tern_status lower_group_norm(const tern_lowering *node, tern_value *results) {
  tern_program *p = node->program;
  grouping g = groups_of(node->attrs);
  tern_value x = tern_nn_widen(p, node->operands[0]), norm[3];
  tern_dtype wide = tern_value_dtype(p, x);
  tern_layer_norm(p, tern_reshape(p, x, 3, (int64_t[]){g.n, g.groups, g.per_group * g.hw}), TERN_NO_VALUE, TERN_NO_VALUE, node->scalars[0], 1, norm);
  tern_value mean = tern_reshape(p, norm[1], 2, (int64_t[]){g.n, g.groups}), rstd = tern_reshape(p, norm[2], 2, (int64_t[]){g.n, g.groups});
  tern_value scale = for_channels(p, g, rstd);
  if (node->operands[1] != TERN_NO_VALUE) scale = tern_multiply(p, scale, channel_weight(p, g, node->operands[1], wide));
  tern_value shift = tern_negate(p, tern_multiply(p, scale, for_channels(p, g, mean)));
  if (node->operands[2] != TERN_NO_VALUE) shift = tern_add(p, shift, channel_weight(p, g, node->operands[2], wide));
  tern_value y = tern_add(p, tern_multiply(p, tern_reshape(p, x, 3, (int64_t[]){g.n, g.c, g.hw}), scale), shift);
  results[0] = tern_nn_result(node, 0, y);
  results[1] = mean;
  results[2] = rstd;
  return NULL;
}

/* (grad_out, input, mean, rstd, weight?, N, C, HxW, group, output_mask) */
static tern_verdict infer_group_norm_backward(const tern_call *call, tern_draft *draft) {
  const tern_tensor *gy = tern_arg_tensor(call, 0), *x = tern_arg_tensor(call, 1), *weight = tern_arg_tensor(call, 4);
  const tern_tensor *operands[5] = {gy, x, tern_arg_tensor(call, 2), tern_arg_tensor(call, 3), weight};
  int64_t n = tern_arg_int(call, 5, -1), c = tern_arg_int(call, 6, -1), hw = tern_arg_int(call, 7, -1), groups = tern_arg_int(call, 8, 0);
  if (!gy || !x || !operands[2] || !operands[3] || !fits_groups(x, n, c, hw, groups) || !tern_nn_same_sizes(gy, x)) return TERN_REJECT;
  if (operands[2]->count != n * groups || operands[3]->count != n * groups || (weight && !tern_nn_has_sizes(weight, 1, &c))) return TERN_REJECT;
  if (!all_float(5, operands) || x->rank > TERN_MAX_TENSOR_RANK || x->count == 0) return TERN_FALL_BACK;
  tern_draft_attrs(draft, 4, (int64_t[]){n, c, hw, groups});
  tern_draft_output *gx = tern_draft_result(draft, (tern_dtype)x->dtype, x->rank, x->sizes);
  tern_nn_keep_channels_last(gx, x);
  gx->undefined = !tern_nn_mask_has(call, 9, 0);
  for (int i = 1; i < 3; i++) tern_draft_result(draft, weight_dtype(weight, x), 1, &c)->undefined = !tern_nn_mask_has(call, 9, i);
  return tern_nn_operands(draft, 5, operands);
}

/* As GroupNormKernel.cpp: with ds = sum gy * x and db = sum gy of each channel, gx = gy * rstd * weight + x * a + b for one a and b a group. */
static tern_status lower_group_norm_backward(const tern_lowering *node, tern_value *results) {
  tern_program *p = node->program;
  grouping g = groups_of(node->attrs);
  const int64_t image[3] = {g.n, g.c, g.hw}, grouped[3] = {g.n, g.groups, g.per_group}, one_each[2] = {g.n, g.groups};
  static const int last = 2, first = 0;
  tern_dtype wide = tern_compute_dtype(tern_value_dtype(p, node->operands[1]));
  tern_value gy = tern_reshape(p, tern_convert(p, node->operands[0], wide), 3, image), x = tern_reshape(p, tern_convert(p, node->operands[1], wide), 3, image);
  tern_value mean = tern_reshape(p, tern_convert(p, node->operands[2], wide), 2, one_each),
             rstd = tern_reshape(p, tern_convert(p, node->operands[3], wide), 2, one_each);
  tern_value ds = tern_reduce(p, TERN_SUM, tern_multiply(p, gy, x), 1, &last), db = tern_reduce(p, TERN_SUM, gy, 1, &last); /* [N, C] */
  tern_value scale = for_channels(p, g, rstd), weighted_ds = ds, weighted_db = db;
  if (node->operands[4] != TERN_NO_VALUE) {
    tern_value weight = tern_convert(p, node->operands[4], wide);
    scale = tern_multiply(p, scale, channel_weight(p, g, node->operands[4], wide));
    weighted_ds = tern_multiply(p, ds, weight);
    weighted_db = tern_multiply(p, db, weight);
  }
  tern_value group_ds = tern_reduce(p, TERN_SUM, tern_reshape(p, weighted_ds, 3, grouped), 1, &last); /* [N, groups] */
  tern_value group_db = tern_reduce(p, TERN_SUM, tern_reshape(p, weighted_db, 3, grouped), 1, &last);
  tern_value share = tern_nn_number(p, wide, 1.0 / (double)(g.per_group * g.hw));
  tern_value cube = tern_multiply(p, tern_multiply(p, rstd, rstd), rstd);
  tern_value a = tern_multiply(p, tern_multiply(p, tern_subtract(p, tern_multiply(p, group_db, mean), group_ds), cube), share);
  tern_value b = tern_subtract(p, tern_negate(p, tern_multiply(p, a, mean)), tern_multiply(p, tern_multiply(p, group_db, rstd), share));
  tern_value gx = tern_add(p, tern_add(p, tern_multiply(p, gy, scale), tern_multiply(p, x, for_channels(p, g, a))), for_channels(p, g, b));
  tern_value mean_of_channel = tern_reshape(p, for_channels(p, g, mean), 2, image), rstd_of_channel = tern_reshape(p, for_channels(p, g, rstd), 2, image);
  tern_value each = tern_multiply(p, tern_subtract(p, ds, tern_multiply(p, db, mean_of_channel)), rstd_of_channel);
  results[0] = tern_nn_result(node, 0, gx);
  results[1] = tern_nn_result(node, 1, tern_reduce(p, TERN_SUM, each, 1, &first));
  results[2] = tern_nn_result(node, 2, tern_reduce(p, TERN_SUM, db, 1, &first));
  return NULL;
}

const tern_aten_row tern_aten_norm[] = {
    {.functional = "native_layer_norm", .infer = infer_layer_norm, .lower = lower_layer_norm},
    {.functional = "native_layer_norm_backward", .infer = infer_layer_norm_backward, .lower = lower_layer_norm_backward},
    {.functional = "native_batch_norm", .custom = call_batch_norm, .lower = lower_batch_norm},
    {.functional = "_native_batch_norm_legit", .custom = call_batch_norm, .lower = lower_batch_norm},
    {.functional = "_native_batch_norm_legit.no_stats", .custom = call_batch_norm_no_stats, .lower = lower_batch_norm},
    {.functional = "native_batch_norm_backward", .infer = infer_batch_norm_backward, .lower = lower_batch_norm_backward},
    {.functional = "native_group_norm", .infer = infer_group_norm, .lower = lower_group_norm},
    {.functional = "native_group_norm_backward", .infer = infer_group_norm_backward, .lower = lower_group_norm_backward},
};
TERN_ATEN_FAMILY_END(norm)
