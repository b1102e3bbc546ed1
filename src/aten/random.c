/* random: draws from a Philox stream, the device's or a generator's: uniform, normal, Bernoulli, integers, exponential, dropout, permutations, multinomial.
 *
 * A draw reserves its counters of the stream when it is recorded, so that a value nobody reads still moves the stream on and running later or fused changes no
 * number. Seed and first counter are scalars 0 and 1 of every node here, never part of a program's key.
 *
 * From 32 random bits: f32 keeps 24 for a uniform number in [0, 1), f16 11 and bf16 8, so that rounding never reaches 1; f64 takes 53 of 64 bits. */
#include <math.h>
#include "nn.h"

enum { SEED, OFFSET, PARAMETERS }; /* scalars */

/* Reserves `words` numbers of 32 bits of the call's generator, or of the device. Scalars 0 and 1 of the draft. */
static tern_verdict draw(const tern_call *call, tern_draft *draft, int device, int64_t words) {
  tern_device *opened;
  int64_t seed, offset;
  tern_status status = tern_device_get(device, &opened);
  if (status) {
    tern_error_free(status);
    return TERN_FALL_BACK;
  }
  draft->device = device;
  tern_stream *stream = tern_device_stream(opened);
  for (int i = 0; i < call->n_arguments; i++)
    if (call->arguments[i].tag == TERN_ARG_GENERATOR && call->arguments[i].u.generator) stream = call->arguments[i].u.generator;
  tern_stream_draw(stream, (words + 3) / 4, &seed, &offset);
  tern_draft_int(draft, TERN_I64, seed, false);
  tern_draft_int(draft, TERN_I64, offset, false);
  return TERN_RECORD;
}

/* The words a uniform number in this dtype takes. */
static int64_t uniform_words(tern_dtype dtype) { return dtype == TERN_F64 ? 2 : 1; }

/* A draft whose one result is like argument 0, filled with draws of so many words an element. */
static tern_verdict start(const tern_call *call, tern_draft *draft, int64_t words) {
  const tern_tensor *x = tern_arg_tensor(call, 0);
  if (!x || x->device < 0) return TERN_REJECT;
  if (x->rank > TERN_MAX_TENSOR_RANK || x->dtype >= TERN_C64) return TERN_FALL_BACK;
  tern_nn_result_like(draft, (tern_dtype)x->dtype, x);
  return draw(call, draft, x->device, words * x->count);
}

/* ---- lowering: bits and uniform numbers ---- */

/* `n` arrays of random words of the given shape. */
static void words(const tern_lowering *node, int n, int rank, const int64_t *dims, tern_value *out) {
  tern_program *p = node->program;
  int64_t all[TERN_MAX_RANK] = {n}, first[TERN_MAX_RANK] = {0}, limit[TERN_MAX_RANK], stride[TERN_MAX_RANK];
  if (n == 1) {
    out[0] = tern_philox(p, node->scalars[SEED], node->scalars[OFFSET], rank, dims);
    return;
  }
  for (int d = 0; d <= rank; d++) {
    if (d > 0) all[d] = dims[d - 1];
    limit[d] = all[d];
    stride[d] = 1;
  }
  tern_value both = tern_philox(p, node->scalars[SEED], node->scalars[OFFSET], rank + 1, all);
  for (int i = 0; i < n; i++) {
    first[0] = i;
    limit[0] = i + 1;
    out[i] = tern_reshape(p, tern_slice(p, both, first, limit, stride), rank, dims);
  }
}

static tern_value shifted(tern_program *p, tern_value bits, int by) {
  return by ? tern_shift_right(p, bits, tern_constant_int(p, tern_value_dtype(p, bits), 0, NULL, by)) : bits;
}

/* The top `digits` of the words as a number in [0, 1), in f32, or f64 for 53 digits out of two words. */
static tern_value unit(tern_program *p, int digits, const tern_value *bits) {
  if (digits <= 24) {
    tern_value top = tern_convert(p, shifted(p, bits[0], 32 - digits), TERN_F32);
    return tern_multiply(p, top, tern_nn_number(p, TERN_F32, ldexp(1, -digits)));
  }
  tern_value high = tern_convert(p, shifted(p, bits[0], 5), TERN_F64), low = tern_convert(p, shifted(p, bits[1], 6), TERN_F64);
  tern_value sum = tern_add(p, tern_multiply(p, high, tern_nn_number(p, TERN_F64, 0x1p26)), low);
  return tern_multiply(p, sum, tern_nn_number(p, TERN_F64, 0x1p-53));
}

static int digits_of(tern_dtype dtype) { return dtype == TERN_F64 ? 53 : dtype == TERN_F16 ? 11 : dtype == TERN_BF16 ? 8 : 24; }

/* Uniform numbers in [0, 1) in the shape of output `o`, of the precision of `dtype`; f32 or f64. */
static tern_value uniform(const tern_lowering *node, int o, tern_dtype dtype) {
  const tern_geometry *view = &node->outputs[o].view;
  tern_value bits[2];
  words(node, (int)uniform_words(dtype), view->rank, view->sizes, bits);
  return unit(node->program, digits_of(dtype), bits);
}

/* ---- uniform_(self, from, to, *, generator) ---- */

static tern_verdict infer_uniform(const tern_call *call, tern_draft *draft) {
  const tern_tensor *x = tern_arg_tensor(call, 0);
  double from = tern_arg_double(call, 1, 0), to = tern_arg_double(call, 2, 1);
  if (!x) return TERN_REJECT;
  if (!(from <= to) || !isfinite(to - from)) return TERN_REJECT;
  if (!tern_nn_is_float(x)) return TERN_FALL_BACK;
  tern_verdict verdict = start(call, draft, uniform_words((tern_dtype)x->dtype));
  tern_draft_double(draft, tern_nn_wide(x), from, false);
  tern_draft_double(draft, tern_nn_wide(x), to - from, false);
  return verdict;
}

static tern_status lower_uniform(const tern_lowering *node, tern_value *results) {
  tern_program *p = node->program;
  tern_value u = uniform(node, 0, node->outputs[0].computed);
  results[0] = tern_nn_result(node, 0, tern_add(p, tern_multiply(p, u, node->scalars[PARAMETERS + 1]), node->scalars[PARAMETERS]));
  return NULL;
}

/* ---- normal numbers by Box and Muller: two words each (four in f64), of which the sine half is not used, so that it stays elementwise ---- */

static int64_t normal_words(tern_dtype dtype) { return dtype == TERN_F64 ? 4 : 2; }

/* In the shape of output 0, f32 or f64. */
static tern_value normal(const tern_lowering *node, tern_dtype dtype) {
  tern_program *p = node->program;
  const tern_geometry *view = &node->outputs[0].view;
  tern_value bits[4], radius_u, angle_u;
  words(node, (int)normal_words(dtype), view->rank, view->sizes, bits);
  if (dtype == TERN_F64) {
    radius_u = tern_subtract(p, tern_nn_number(p, TERN_F64, 1), unit(p, 53, bits));
    angle_u = unit(p, 53, bits + 2);
  } else {
    /* All 32 bits for the radius, in (0, 1]: the tail reaches 6.6 deviations. */
    tern_value word = tern_convert(p, bits[0], TERN_F32);
    radius_u = tern_multiply(p, tern_add(p, word, tern_nn_number(p, TERN_F32, 1)), tern_nn_number(p, TERN_F32, 0x1p-32));
    angle_u = unit(p, 24, bits + 1);
  }
  tern_dtype wide = tern_value_dtype(p, angle_u);
  tern_value radius = tern_sqrt(p, tern_multiply(p, tern_log(p, radius_u), tern_nn_number(p, wide, -2)));
  return tern_multiply(p, radius, tern_cosine(p, tern_multiply(p, angle_u, tern_nn_number(p, wide, 2 * M_PI))));
}

/* normal_(self, mean, std, *, generator) and log_normal_, the exponential of it. attrs: whether logarithmic */
static tern_verdict infer_any_normal(const tern_call *call, tern_draft *draft, bool logarithmic) {
  const tern_tensor *x = tern_arg_tensor(call, 0);
  double mean = tern_arg_double(call, 1, logarithmic), std = tern_arg_double(call, 2, 1 + logarithmic);
  if (!x) return TERN_REJECT;
  if (!(std >= 0) || (logarithmic && std == 0)) return TERN_REJECT;
  if (!tern_nn_is_float(x)) return TERN_FALL_BACK;
  tern_verdict verdict = start(call, draft, normal_words((tern_dtype)x->dtype));
  tern_draft_attr(draft, logarithmic);
  tern_draft_double(draft, tern_nn_wide(x), mean, false);
  tern_draft_double(draft, tern_nn_wide(x), std, false);
  return verdict;
}

static tern_verdict infer_normal(const tern_call *call, tern_draft *draft) { return infer_any_normal(call, draft, false); }
static tern_verdict infer_log_normal(const tern_call *call, tern_draft *draft) { return infer_any_normal(call, draft, true); }

static tern_status lower_normal(const tern_lowering *node, tern_value *results) {
  tern_program *p = node->program;
  tern_value x = tern_multiply(p, normal(node, node->outputs[0].computed), node->scalars[PARAMETERS + 1]);
  x = tern_add(p, x, node->scalars[PARAMETERS]);
  results[0] = tern_nn_result(node, 0, node->attrs[0] ? tern_exp(p, x) : x);
  return NULL;
}

/* normal(mean, std) where either is a tensor. attrs: whether mean, whether std is one */
static tern_verdict infer_normal_tensors(const tern_call *call, tern_draft *draft) {
  const tern_tensor *given[2] = {tern_arg_tensor(call, 0), tern_arg_tensor(call, 1)};
  int rank = 0, device = -1;
  int64_t sizes[TERN_MAX_TENSOR_RANK], count = 1;
  tern_dtype dtype = TERN_DTYPE_COUNT;
  for (int i = 0; i < 2; i++) {
    if (!given[i]) continue;
    if (!tern_broadcast_shape(&rank, sizes, given[i]->rank, given[i]->sizes)) return TERN_REJECT;
    if (given[i]->device < 0 || !tern_nn_is_float(given[i]) || (dtype != TERN_DTYPE_COUNT && given[i]->dtype != dtype)) return TERN_FALL_BACK;
    dtype = (tern_dtype)given[i]->dtype;
    device = given[i]->device;
  }
  if (!given[1] && tern_arg_double(call, 1, 1) < 0) return TERN_REJECT;
  if (dtype == TERN_DTYPE_COUNT) return TERN_FALL_BACK;
  for (int d = 0; d < rank; d++) count *= sizes[d];
  tern_draft_attrs(draft, 2, (int64_t[]){given[0] != NULL, given[1] != NULL});
  tern_draft_result(draft, dtype, rank, sizes);
  tern_verdict verdict = tern_nn_operands(draft, 2, given);
  if (verdict == TERN_RECORD) verdict = draw(call, draft, device, normal_words(dtype) * count);
  for (int i = 0; i < 2; i++) tern_draft_double(draft, tern_compute_dtype(dtype), given[i] ? 0 : tern_arg_double(call, i, i), false);
  return verdict;
}

static tern_status lower_normal_tensors(const tern_lowering *node, tern_value *results) {
  tern_program *p = node->program;
  tern_value z = normal(node, node->outputs[0].computed), given[2];
  for (int i = 0; i < 2; i++) given[i] = node->attrs[i] ? tern_nn_widen(p, node->operands[i]) : node->scalars[PARAMETERS + i];
  if (node->attrs[1]) tern_check_holds(p, tern_compare(p, TERN_GE, given[1], tern_nn_number(p, tern_value_dtype(p, given[1]), 0)), TERN_DOMAIN_DEVIATION);
  results[0] = tern_nn_result(node, 0, tern_add(p, tern_multiply(p, z, given[1]), given[0]));
  return NULL;
}

/* ---- Bernoulli: 1 where a uniform number is below p ---- */

static bool is_probability(double p) { return p >= 0 && p <= 1; }
/* New results are contiguous in PyTorch, whatever the strides of the argument. */
static tern_verdict start_contiguous(const tern_call *call, tern_draft *draft) {
  tern_verdict verdict = start(call, draft, 1);
  draft->outputs[0].layout = TERN_CONTIGUOUS;
  return verdict;
}

/* bernoulli_.float(self, p), bernoulli.p(self, p) */
static tern_verdict infer_bernoulli_float(const tern_call *call, tern_draft *draft) {
  double probability = tern_arg_double(call, 1, 0.5);
  if (!is_probability(probability)) return TERN_REJECT;
  tern_verdict verdict = start_contiguous(call, draft);
  tern_draft_double(draft, TERN_F32, probability, false);
  return verdict;
}

/* bernoulli(self): self holds the probabilities. bernoulli_.Tensor(self, p), bernoulli.Tensor(self, p): p does. */
static tern_verdict infer_bernoulli(const tern_call *call, tern_draft *draft) {
  const tern_tensor *x = tern_arg_tensor(call, 0);
  if (!x) return TERN_REJECT;
  if (!tern_nn_is_float(x)) return TERN_FALL_BACK;
  tern_verdict verdict = tern_draft_tensor(draft, x);
  return verdict == TERN_RECORD ? start_contiguous(call, draft) : verdict;
}

static tern_verdict infer_bernoulli_tensor(const tern_call *call, tern_draft *draft) {
  const tern_tensor *x = tern_arg_tensor(call, 0), *p = tern_arg_tensor(call, 1);
  if (!x || !p || !tern_nn_expands(p, x->rank, x->sizes)) return TERN_REJECT;
  if (!tern_nn_is_float(p) || p->device < 0) return TERN_FALL_BACK;
  tern_verdict verdict = tern_draft_tensor(draft, p);
  return verdict == TERN_RECORD ? start(call, draft, 1) : verdict;
}

static tern_status lower_bernoulli(const tern_lowering *node, tern_value *results) {
  tern_program *p = node->program;
  tern_value probability = node->n_operands ? tern_convert(p, node->operands[0], TERN_F32) : node->scalars[PARAMETERS];
  if (node->n_operands) {
    tern_value low = tern_compare(p, TERN_GE, probability, tern_nn_number(p, TERN_F32, 0)), high = tern_compare(p, TERN_LE, probability, tern_nn_number(p, TERN_F32, 1));
    tern_check_holds(p, tern_and(p, low, high), TERN_DOMAIN_PROBABILITY);
  }
  results[0] = tern_nn_result(node, 0, tern_compare(p, TERN_LT, uniform(node, 0, TERN_F32), probability));
  return NULL;
}

/* ---- dropout ---- */

/* What PyTorch's CPU multiplies the kept elements with: 1 / (1 - p) in f32, or in f64 for f64; tern_draft_double rounds it to f16 and bf16. */
static double dropout_factor(tern_dtype dtype, double kept) {
  if (kept == 0) return 0;
  return dtype == TERN_F64 ? 1 / kept : (double)(1 / (float)kept);
}

/* native_dropout(input, p, train?) -> output, mask. attrs: training; scalars: 1 - p and its reciprocal */
static tern_verdict infer_dropout(const tern_call *call, tern_draft *draft) {
  const tern_tensor *x = tern_arg_tensor(call, 0);
  double kept = 1 - tern_arg_double(call, 1, 0.5);
  bool training = tern_arg_is_none(call, 2) || tern_arg_bool(call, 2, true);
  if (!x) return TERN_REJECT;
  if (!is_probability(kept)) return TERN_REJECT;
  if (!tern_nn_is_float(x)) return TERN_FALL_BACK;
  tern_draft_attr(draft, training);
  tern_verdict verdict = tern_draft_tensor(draft, x);
  if (verdict != TERN_RECORD) return verdict;
  tern_nn_result_like(draft, (tern_dtype)x->dtype, x);
  tern_nn_result_like(draft, TERN_BOOL, x);
  if (!training) return TERN_RECORD;
  verdict = draw(call, draft, x->device, x->count);
  tern_draft_double(draft, TERN_F32, kept, false);
  tern_draft_double(draft, (tern_dtype)x->dtype, dropout_factor((tern_dtype)x->dtype, kept), false);
  return verdict;
}

/* The mask multiplies, so that NaN and infinity come through as in PyTorch. */
static tern_status lower_dropout(const tern_lowering *node, tern_value *results) {
  tern_program *p = node->program;
  const tern_geometry *view = &node->outputs[0].view;
  if (!node->attrs[0]) {
    results[0] = node->operands[0];
    results[1] = tern_constant_int(p, TERN_BOOL, view->rank, view->sizes, 1);
    return NULL;
  }
  tern_value x = tern_nn_widen(p, node->operands[0]), mask = tern_compare(p, TERN_LT, uniform(node, 0, TERN_F32), node->scalars[PARAMETERS]);
  tern_value kept = tern_multiply(p, x, tern_convert(p, mask, tern_value_dtype(p, x)));
  results[0] = tern_nn_result(node, 0, tern_multiply(p, kept, node->scalars[PARAMETERS + 1]));
  results[1] = mask;
  return NULL;
}

/* (grad_output, mask, scale) */
static tern_verdict infer_dropout_backward(const tern_call *call, tern_draft *draft) {
  const tern_tensor *gy = tern_arg_tensor(call, 0), *mask = tern_arg_tensor(call, 1);
  if (!gy || !mask) return TERN_REJECT;
  if (!tern_nn_is_float(gy) || mask->dtype != TERN_BOOL || !tern_nn_same_sizes(gy, mask)) return TERN_FALL_BACK;
  double scale = tern_arg_double(call, 2, 1);
  tern_draft_double(draft, (tern_dtype)gy->dtype, dropout_factor((tern_dtype)gy->dtype, scale == 0 ? 0 : 1 / scale), false);
  tern_nn_result_like(draft, (tern_dtype)gy->dtype, gy);
  return tern_nn_operands(draft, 2, (const tern_tensor *[]){gy, mask});
}

static tern_status lower_dropout_backward(const tern_lowering *node, tern_value *results) {
  tern_program *p = node->program;
  tern_value gy = tern_nn_widen(p, node->operands[0]);
  tern_value scale = tern_multiply(p, tern_convert(p, node->operands[1], tern_value_dtype(p, gy)), node->scalars[0]);
  results[0] = tern_nn_result(node, 0, tern_multiply(p, gy, scale));
  return NULL;
}

/* ---- integers: 64 bits modulo the range, so that no value is noticeably likelier. scalars: from, range ---- */

/* The largest value random_() gives: as far as every integer has its own number in the dtype. */
static uint64_t largest(tern_dtype dtype) {
  if (dtype == TERN_BOOL) return 1;
  if (tern_dtype_is_float(dtype)) return (uint64_t)1 << digits_of(dtype);
  int bits = (int)tern_dtype_size(dtype) * 8 - tern_dtype_is_signed(dtype);
  return bits >= 63 ? INT64_MAX : ((uint64_t)1 << bits) - 1;
}

/* `range` 0 stands for all of 2^64. */
static tern_verdict draft_integers(const tern_call *call, tern_draft *draft, int64_t from, uint64_t range) {
  tern_verdict verdict = start(call, draft, 2);
  tern_draft_attr(draft, range == 0);
  tern_draft_int(draft, TERN_I64, from, false);
  tern_draft_int(draft, TERN_U64, (int64_t)range, false);
  return verdict;
}

static tern_verdict infer_random(const tern_call *call, tern_draft *draft) {
  const tern_tensor *x = tern_arg_tensor(call, 0);
  if (!x) return TERN_REJECT;
  uint64_t most = largest((tern_dtype)x->dtype);
  return draft_integers(call, draft, 0, most + 1);
}

/* Whether [from, last] can be told apart in the dtype; where it cannot, PyTorch warns or raises in words of its own. */
static bool holds(tern_dtype dtype, int64_t from, int64_t last) {
  int64_t most = (int64_t)largest(dtype);
  int64_t least = tern_dtype_is_float(dtype) ? -most : tern_dtype_is_signed(dtype) ? -most - 1 : 0;
  return from >= least && last <= most;
}

/* random_.from(self, from, to?) and random_.to(self, to) */
static tern_verdict infer_random_between(const tern_call *call, tern_draft *draft, int64_t from, int to) {
  const tern_tensor *x = tern_arg_tensor(call, 0);
  if (!x) return TERN_REJECT;
  tern_dtype dtype = (tern_dtype)x->dtype;
  if (x->dtype >= TERN_C64) return TERN_FALL_BACK;
  int64_t last = tern_arg_is_none(call, to) ? (int64_t)largest(dtype) : tern_arg_int(call, to, 0) - 1;
  if (from > last) return TERN_REJECT;
  if (!holds(dtype, from, last)) return TERN_FALL_BACK;
  return draft_integers(call, draft, from, (uint64_t)last - (uint64_t)from + 1);
}

static tern_verdict infer_random_from(const tern_call *call, tern_draft *draft) { return infer_random_between(call, draft, tern_arg_int(call, 1, 0), 2); }
static tern_verdict infer_random_to(const tern_call *call, tern_draft *draft) { return infer_random_between(call, draft, 0, 1); }

/* 64 random bits of the shape of output 0, u64. */
static tern_value wide_words(const tern_lowering *node) {
  tern_program *p = node->program;
  const tern_geometry *view = &node->outputs[0].view;
  tern_value half[2];
  words(node, 2, view->rank, view->sizes, half);
  for (int i = 0; i < 2; i++) half[i] = tern_convert(p, half[i], TERN_U64);
  return tern_or(p, tern_shift_left(p, half[0], tern_constant_int(p, TERN_U64, 0, NULL, 32)), half[1]);
}

static tern_status lower_random(const tern_lowering *node, tern_value *results) {
  tern_program *p = node->program;
  tern_value bits = wide_words(node);
  if (!node->attrs[0]) bits = tern_remainder(p, bits, node->scalars[PARAMETERS + 1]);
  results[0] = tern_nn_result(node, 0, tern_add(p, tern_bitcast(p, bits, TERN_I64), node->scalars[PARAMETERS]));
  return NULL;
}

/* ---- exponential_(self, lambd): -log(1 - u) / lambd; geometric_(self, p): ceil(log(1 - u) / log(1 - p)) ---- */

static tern_verdict infer_inverted(const tern_call *call, tern_draft *draft, bool geometric) {
  const tern_tensor *x = tern_arg_tensor(call, 0);
  double parameter = tern_arg_double(call, 1, 1);
  if (!x) return TERN_REJECT;
  if (!(parameter > 0) || (geometric && parameter >= 1)) return TERN_REJECT;
  if (x->dtype >= TERN_C64 || (!geometric && !tern_nn_is_float(x))) return TERN_FALL_BACK;
  tern_dtype wide = x->dtype == TERN_F64 ? TERN_F64 : TERN_F32;
  tern_verdict verdict = start(call, draft, uniform_words(wide));
  tern_draft_attr(draft, geometric);
  tern_draft_double(draft, wide, geometric ? 1 / log1p(-parameter) : -1 / parameter, false);
  return verdict;
}

static tern_verdict infer_exponential(const tern_call *call, tern_draft *draft) { return infer_inverted(call, draft, false); }
static tern_verdict infer_geometric(const tern_call *call, tern_draft *draft) { return infer_inverted(call, draft, true); }

static tern_status lower_inverted(const tern_lowering *node, tern_value *results) {
  tern_program *p = node->program;
  tern_value u = uniform(node, 0, node->outputs[0].computed == TERN_F64 ? TERN_F64 : TERN_F32);
  tern_value x = tern_multiply(p, tern_log1p(p, tern_negate(p, u)), node->scalars[PARAMETERS]);
  if (node->attrs[0]) x = tern_maximum(p, tern_ceil(p, x), tern_nn_number(p, tern_value_dtype(p, x), 1));
  results[0] = tern_nn_result(node, 0, x);
  return NULL;
}

/* ---- randperm.generator_out(n, *, generator, out): the order that sorts random keys ---- */

static tern_verdict infer_permutation(const tern_call *call, tern_draft *draft) {
  int64_t n = tern_arg_int(call, 0, -1);
  const tern_tensor *out = tern_arg_tensor(call, call->n_arguments - 1);
  if (n < 0 || !out || out->device < 0) return TERN_REJECT;
  if (out->dtype >= TERN_C64 || (out->dtype != TERN_F64 && n > 0 && !holds((tern_dtype)out->dtype, 0, n - 1))) return TERN_FALL_BACK;
  tern_draft_result(draft, TERN_I64, 1, &n);
  return draw(call, draft, out->device, 2 * n);
}

static tern_status lower_permutation(const tern_lowering *node, tern_value *results) {
  tern_sort(node->program, tern_bitcast(node->program, wide_words(node), TERN_I64), 0, false, &results[0]);
  return NULL;
}

/* ---- multinomial(self, num_samples, replacement): the largest of probability / exponential, as PyTorch's own fast path ---- */

static tern_verdict infer_multinomial(const tern_call *call, tern_draft *draft) {
  const tern_tensor *x = tern_arg_tensor(call, 0);
  int64_t n = tern_arg_int(call, 1, 0), sizes[2];
  if (!x || x->rank < 1 || x->rank > 2 || !tern_out_is(call, 0, TERN_I64)) return TERN_REJECT;
  int64_t classes = x->sizes[x->rank - 1];
  if (classes > 1 << 24) return TERN_REJECT; /* PyTorch's limit */
  if (n < 1 || (n > classes && !tern_arg_bool(call, 2, false))) return TERN_REJECT;
  if (!tern_nn_is_float(x) || n > classes || (tern_arg_bool(call, 2, false) && n > 1)) return TERN_FALL_BACK;
  sizes[0] = x->sizes[0];
  sizes[x->rank - 1] = n;
  tern_draft_result(draft, TERN_I64, x->rank, sizes);
  tern_verdict verdict = tern_draft_tensor(draft, x);
  return verdict == TERN_RECORD ? draw(call, draft, x->device, x->count) : verdict;
}

static tern_status lower_multinomial(const tern_lowering *node, tern_value *results) {
  tern_program *p = node->program;
  tern_value x = tern_convert(p, node->operands[0], TERN_F32), bits, index;
  int rank = tern_value_rank(p, x);
  const tern_geometry *view = &node->outputs[0].view;
  int64_t first[2] = {0}, stride[2] = {1, 1};
  words(node, 1, rank, tern_value_dims(p, x), &bits);
  tern_value zero = tern_nn_number(p, TERN_F32, 0), is_weight = tern_compare(p, TERN_GE, x, zero);
  is_weight = tern_and(p, is_weight, tern_compare(p, TERN_LT, x, tern_nn_number(p, TERN_F32, INFINITY)));
  tern_check_holds(p, is_weight, TERN_DOMAIN_WEIGHT);
  tern_value counted = tern_select(p, is_weight, x, tern_nn_number(p, TERN_F32, 1)); /* what is no weight fails only the check above */
  tern_check_holds(p, tern_compare(p, TERN_GT, tern_reduce(p, TERN_SUM, counted, 1, (int[]){rank - 1}), zero), TERN_DOMAIN_WEIGHT_SUM);
  /* u in (0, 1]: the exponential is finite, and 0 only for u == 1, which the floor takes away. */
  tern_value u = tern_subtract(p, tern_nn_number(p, TERN_F32, 1), unit(p, 24, &bits));
  tern_value wait = tern_maximum(p, tern_negate(p, tern_log(p, u)), tern_nn_number(p, TERN_F32, 0x1p-25));
  tern_value score = tern_divide(p, x, wait);
  if (view->sizes[rank - 1] == 1) {
    tern_arg_reduce(p, TERN_MAX, score, rank - 1, &index);
    results[0] = tern_nn_result(node, 0, index);
    return NULL;
  }
  tern_sort(p, score, rank - 1, true, &index);
  results[0] = tern_slice(p, index, first, view->sizes, stride);
  return NULL;
}

const tern_aten_row tern_aten_random[] = {
    {.functional = "native_dropout", .infer = infer_dropout, .lower = lower_dropout},
    {.functional = "native_dropout_backward", .out = "native_dropout_backward.out", .infer = infer_dropout_backward, .lower = lower_dropout_backward},
    {.inplace = "uniform_", .infer = infer_uniform, .lower = lower_uniform},
    {.inplace = "normal_", .infer = infer_normal, .lower = lower_normal},
    {.inplace = "log_normal_", .infer = infer_log_normal, .lower = lower_normal},
    {.functional = "normal.Tensor_float", .infer = infer_normal_tensors, .lower = lower_normal_tensors},
    {.functional = "normal.float_Tensor", .infer = infer_normal_tensors, .lower = lower_normal_tensors},
    {.functional = "normal.Tensor_Tensor", .infer = infer_normal_tensors, .lower = lower_normal_tensors},
    {.functional = "bernoulli.p", .inplace = "bernoulli_.float", .infer = infer_bernoulli_float, .lower = lower_bernoulli},
    {.functional = "bernoulli", .out = "bernoulli.out", .infer = infer_bernoulli, .lower = lower_bernoulli},
    {.functional = "bernoulli.Tensor", .inplace = "bernoulli_.Tensor", .infer = infer_bernoulli_tensor, .lower = lower_bernoulli},
    {.inplace = "random_", .infer = infer_random, .lower = lower_random},
    {.inplace = "random_.from", .infer = infer_random_from, .lower = lower_random},
    {.inplace = "random_.to", .infer = infer_random_to, .lower = lower_random},
    {.inplace = "exponential_", .infer = infer_exponential, .lower = lower_inverted},
    {.inplace = "geometric_", .infer = infer_geometric, .lower = lower_inverted},
    {.out = "randperm.generator_out", .infer = infer_permutation, .lower = lower_permutation},
    {.functional = "multinomial", .out = "multinomial.out", .infer = infer_multinomial, .lower = lower_multinomial},
};
TERN_ATEN_FAMILY_END(random)
