/* activation_pointwise: elementwise activations and their derivatives, formula by formula PyTorch's CPU kernels' (aten/src/ATen/native/cpu/Activation.cpp).
 * Derivatives name their operands in the schema's order: usually x is the incoming gradient and y the forward's input or result. */
#include <math.h>
#include "pointwise.h"

static const tern_pointwise_rule number_rule = {.serves = TERN_SERVES_NUMBERS, .exact_out = true};
static const tern_pointwise_rule float_rule = {.serves = TERN_SERVES_FLOATS, .exact_out = true};
static const tern_pointwise_rule pair_rule = {.n_operands = 2, .operands = {0, 1}, .serves = TERN_SERVES_FLOATS};
static const tern_pointwise_rule threshold_rule = {.serves = TERN_SERVES_NUMBERS, .exact_out = true, .n_numbers = 2, .numbers = {{1, false, 0}, {2, false, 0}}};
static const tern_pointwise_rule threshold_grad_rule = {.n_operands = 2, .operands = {0, 1}, .n_numbers = 1, .numbers = {{2, false, 0}}};
static const tern_pointwise_rule leaky_rule = {.serves = TERN_SERVES_FLOATS, .exact_out = true, .n_numbers = 1, .numbers = {{1, false, 0.01}}};
static const tern_pointwise_rule leaky_grad_rule = {
    .n_operands = 2, .operands = {0, 1}, .serves = TERN_SERVES_FLOATS, .n_numbers = 1, .numbers = {{2, false, 0.01}}};
static const tern_pointwise_rule elu_rule = {
    .serves = TERN_SERVES_FLOATS, .exact_out = true, .n_numbers = 3, .numbers = {{1, false, 1}, {2, false, 1}, {3, false, 1}}};
static const tern_pointwise_rule elu_grad_rule = {
    .n_operands = 2, .operands = {0, 5}, .serves = TERN_SERVES_FLOATS, .n_numbers = 3, .numbers = {{1, false, 1}, {2, false, 1}, {3, false, 1}}};
static const tern_pointwise_rule hardtanh_rule = {.serves = TERN_SERVES_NUMBERS, .exact_out = true, .n_numbers = 2, .numbers = {{1, false, -1}, {2, false, 1}}};
static const tern_pointwise_rule hardtanh_grad_rule = {
    .n_operands = 2, .operands = {0, 1}, .serves = TERN_SERVES_FLOATS, .n_numbers = 2, .numbers = {{2, false, -1}, {3, false, 1}}};
static const tern_pointwise_rule softplus_rule = {.serves = TERN_SERVES_FLOATS, .exact_out = true, .n_numbers = 2, .numbers = {{1, false, 1}, {2, false, 20}}};
static const tern_pointwise_rule softplus_grad_rule = {
    .n_operands = 2, .operands = {0, 1}, .serves = TERN_SERVES_FLOATS, .n_numbers = 2, .numbers = {{2, false, 1}, {3, false, 20}}};
static const tern_pointwise_rule triple_rule = {.n_operands = 3, .operands = {0, 1, 2}, .serves = TERN_SERVES_FLOATS};

#define NUMBER(value) tern_number(p, dtype, value)

static tern_value positive(tern_program *p, tern_dtype dtype, tern_value x) { return tern_compare(p, TERN_GT, x, NUMBER(0)); }
static tern_value clamp(tern_program *p, tern_value x, tern_value low, tern_value high) { return tern_minimum(p, tern_maximum(p, x, low), high); }

/* relu6(x + 3), which hardsigmoid and hardswish share. */
static tern_value ramp(tern_program *p, tern_dtype dtype, tern_value x) { return clamp(p, tern_add(p, x, NUMBER(3)), NUMBER(0), NUMBER(6)); }

/* 1 / (1 + exp(-x)), written out as the kernels of SiLU and Mish do. */
static tern_value sigmoid(tern_program *p, tern_dtype dtype, tern_value x) {
  return tern_divide(p, NUMBER(1), tern_add(p, NUMBER(1), tern_exp(p, tern_negate(p, x))));
}

static tern_value silu_grad(tern_program *p, tern_dtype dtype, tern_value gy, tern_value x) { /* gy * s * (1 + x * (1 - s)) */
  tern_value s = sigmoid(p, dtype, x);
  return tern_multiply(p, tern_multiply(p, gy, s), tern_add(p, NUMBER(1), tern_multiply(p, x, tern_subtract(p, NUMBER(1), s))));
}

static tern_value tanh_of_softplus(tern_program *p, tern_value x) { return tern_tanh(p, tern_log1p(p, tern_exp(p, x))); }

static tern_value mish_grad(tern_program *p, tern_dtype dtype, tern_value gy, tern_value x) { /* gy * (t + x * s * (1 - t * t)) */
  tern_value s = sigmoid(p, dtype, x), t = tanh_of_softplus(p, x);
  tern_value slope = tern_multiply(p, tern_multiply(p, x, s), tern_subtract(p, NUMBER(1), tern_multiply(p, t, t)));
  return tern_multiply(p, gy, tern_add(p, t, slope));
}

/* s: alpha, scale, input_scale. Below zero: alpha * scale * (exp(x * input_scale) - 1), else scale * x. */
static tern_value elu(const tern_pointwise *w, tern_value x) {
  tern_program *p = w->p;
  tern_value below = tern_multiply(p, tern_expm1(p, tern_multiply(p, x, w->s[2])), tern_multiply(p, w->s[0], w->s[1]));
  return tern_select(p, tern_compare(p, TERN_LE, x, tern_number(p, w->dtype, 0)), below, tern_multiply(p, x, w->s[1]));
}

static tern_value elu_grad(const tern_pointwise *w, tern_value gy, tern_value x, bool is_result) {
  tern_program *p = w->p;
  tern_value factor = tern_multiply(p, w->s[0], w->s[1]), below;
  if (is_result)
    below = tern_multiply(p, tern_multiply(p, gy, w->s[2]), tern_add(p, x, factor));
  else
    below = tern_multiply(p, tern_multiply(p, tern_multiply(p, gy, w->s[2]), factor), tern_exp(p, tern_multiply(p, x, w->s[2])));
  return tern_select(p, tern_compare(p, TERN_LE, x, tern_number(p, w->dtype, 0)), below, tern_multiply(p, gy, w->s[1]));
}

/* s: beta, threshold. */
static tern_value softplus(const tern_pointwise *w, tern_value x) {
  tern_program *p = w->p;
  tern_value scaled = tern_multiply(p, x, w->s[0]);
  return tern_select(p, tern_compare(p, TERN_GT, scaled, w->s[1]), x, tern_divide(p, tern_log1p(p, tern_exp(p, scaled)), w->s[0]));
}

static tern_value softplus_grad(const tern_pointwise *w, tern_value gy, tern_value x) {
  tern_program *p = w->p;
  tern_value scaled = tern_multiply(p, x, w->s[0]), e = tern_exp(p, scaled);
  tern_value slope = tern_divide(p, tern_multiply(p, gy, e), tern_add(p, e, tern_number(p, w->dtype, 1)));
  return tern_select(p, tern_compare(p, TERN_GT, scaled, w->s[1]), gy, slope);
}

static tern_value within(tern_program *p, tern_comparison low, tern_comparison high, tern_value x, tern_value from, tern_value to) {
  return tern_and(p, tern_compare(p, low, x, from), tern_compare(p, high, x, to));
}

static tern_value hardswish_grad(tern_program *p, tern_dtype dtype, tern_value gy, tern_value x) {
  tern_value slope = tern_multiply(p, gy, tern_add(p, tern_divide(p, x, NUMBER(3)), NUMBER(0.5)));
  return tern_select(p, tern_compare(p, TERN_LE, x, NUMBER(-3)), NUMBER(0), tern_select(p, tern_compare(p, TERN_LT, x, NUMBER(3)), slope, gy));
}

static tern_value hardtanh_grad(const tern_pointwise *w, tern_value gy, tern_value x) {
  tern_program *p = w->p;
  tern_value outside = tern_or(p, tern_compare(p, TERN_LE, x, w->s[0]), tern_compare(p, TERN_GE, x, w->s[1]));
  return tern_select(p, outside, tern_number(p, w->dtype, 0), gy);
}

/* z: exp(-|x|), kept by the forward. */
static tern_value log_sigmoid_grad(tern_program *p, tern_dtype dtype, tern_value gy, tern_value x, tern_value z) {
  tern_value below = tern_compare(p, TERN_LT, x, NUMBER(0));
  tern_value slope = tern_select(p, below, NUMBER(1), NUMBER(0)), sign = tern_select(p, below, NUMBER(1), NUMBER(-1));
  return tern_multiply(p, gy, tern_subtract(p, slope, tern_multiply(p, sign, tern_divide(p, z, tern_add(p, NUMBER(1), z)))));
}

TERN_POINTWISE(relu, number_rule, tern_maximum(p, x, NUMBER(0)))
TERN_POINTWISE(threshold, threshold_rule, tern_select(p, tern_compare(p, TERN_LE, x, w.s[0]), w.s[1], x))
TERN_POINTWISE(threshold_grad, threshold_grad_rule, tern_select(p, tern_compare(p, TERN_LE, y, w.s[0]), NUMBER(0), x))
TERN_POINTWISE(leaky_relu, leaky_rule, tern_select(p, positive(p, dtype, x), x, tern_multiply(p, x, w.s[0])))
TERN_POINTWISE(leaky_relu_grad, leaky_grad_rule, tern_select(p, positive(p, dtype, y), x, tern_multiply(p, x, w.s[0])))
TERN_POINTWISE(elu, elu_rule, elu(&w, x))
TERN_POINTWISE(silu, float_rule, tern_divide(p, x, tern_add(p, NUMBER(1), tern_exp(p, tern_negate(p, x)))))
TERN_POINTWISE(silu_grad, pair_rule, silu_grad(p, dtype, x, y))
TERN_POINTWISE(mish, float_rule, tern_multiply(p, x, tanh_of_softplus(p, x)))
TERN_POINTWISE(mish_grad, pair_rule, mish_grad(p, dtype, x, y))
static tern_verdict infer_hardtanh(const tern_call *call, tern_draft *draft) {
  tern_verdict verdict = tern_pointwise_infer(call, draft, &hardtanh_rule);
  return verdict == TERN_RECORD && draft->outputs[0].dtype == TERN_U8 ? TERN_FALL_BACK : verdict; /* PyTorch refuses negative limits there */
}
TERN_POINTWISE_LOWER(hardtanh, hardtanh_rule, clamp(p, x, w.s[0], w.s[1]))
TERN_POINTWISE(hardtanh_grad, hardtanh_grad_rule, hardtanh_grad(&w, x, y))
TERN_POINTWISE(hardsigmoid, float_rule, tern_divide(p, ramp(p, dtype, x), NUMBER(6)))
TERN_POINTWISE(hardsigmoid_grad, pair_rule,
               tern_select(p, within(p, TERN_GT, TERN_LT, y, NUMBER(-3), NUMBER(3)), tern_multiply(p, x, NUMBER((double)(1.0f / 6.0f))), NUMBER(0)))
TERN_POINTWISE(hardswish, float_rule, tern_divide(p, tern_multiply(p, x, ramp(p, dtype, x)), NUMBER(6)))
TERN_POINTWISE(hardswish_grad, pair_rule, hardswish_grad(p, dtype, x, y))
TERN_POINTWISE(softplus, softplus_rule, softplus(&w, x))
TERN_POINTWISE(softplus_grad, softplus_grad_rule, softplus_grad(&w, x, y))
TERN_POINTWISE(sigmoid_grad, pair_rule, tern_multiply(p, tern_multiply(p, x, tern_subtract(p, NUMBER(1), y)), y))
TERN_POINTWISE(tanh_grad, pair_rule, tern_multiply(p, x, tern_subtract(p, NUMBER(1), tern_multiply(p, y, y))))
TERN_POINTWISE(log_sigmoid_grad, triple_rule, log_sigmoid_grad(p, dtype, x, y, z))

static tern_verdict infer_elu_grad(const tern_call *call, tern_draft *draft) {
  tern_verdict verdict = tern_pointwise_infer(call, draft, &elu_grad_rule);
  if (tern_arg_bool(call, 4, false) && tern_arg_double(call, 1, 1) < 0) return TERN_REJECT;
  tern_draft_attr(draft, tern_arg_bool(call, 4, false));
  return verdict;
}
TERN_POINTWISE_LOWER(elu_grad, elu_grad_rule, elu_grad(&w, x, y, node->attrs[1]))

/* ---- two results ---- */

/* log_sigmoid_forward: -log(1 + exp(-x)) without overflow, and exp(-|x|) for the backward; both contiguous. */
static tern_verdict infer_log_sigmoid(const tern_call *call, tern_draft *draft) {
  tern_verdict verdict = tern_pointwise_infer(call, draft, &float_rule);
  if (verdict != TERN_RECORD) return verdict;
  draft->outputs[0].layout = TERN_CONTIGUOUS;
  tern_draft_result(draft, draft->outputs[0].dtype, draft->outputs[0].rank, draft->outputs[0].sizes);
  return TERN_RECORD;
}
static tern_status lower_log_sigmoid(const tern_lowering *node, tern_value *results) {
  tern_pointwise w;
  tern_pointwise_begin(&w, node, &float_rule);
  tern_program *p = w.p;
  tern_value kept = tern_exp(p, tern_negate(p, tern_abs(p, w.x[0])));
  results[0] = tern_pointwise_finish(node, 0, tern_subtract(p, tern_minimum(p, w.x[0], tern_number(p, w.dtype, 0)), tern_log1p(p, kept)));
  results[1] = tern_pointwise_finish(node, 1, kept);
  return NULL;
}

const tern_aten_row tern_aten_activation_pointwise[] = {
    {"relu", "relu_", "relu.out", NULL, infer_relu, lower_relu, NULL},
    {"threshold", "threshold_", "threshold.out", NULL, infer_threshold, lower_threshold, NULL},
    {"threshold_backward", NULL, "threshold_backward.grad_input", NULL, infer_threshold_grad, lower_threshold_grad, NULL},
    {"leaky_relu", "leaky_relu_", "leaky_relu.out", NULL, infer_leaky_relu, lower_leaky_relu, NULL},
    {"leaky_relu_backward", NULL, "leaky_relu_backward.grad_input", NULL, infer_leaky_relu_grad, lower_leaky_relu_grad, NULL},
    {"elu", "elu_", "elu.out", NULL, infer_elu, lower_elu, NULL},
    {"elu_backward", NULL, "elu_backward.grad_input", NULL, infer_elu_grad, lower_elu_grad, NULL},
    {"silu", "silu_", "silu.out", NULL, infer_silu, lower_silu, NULL},
    {"silu_backward", NULL, "silu_backward.grad_input", NULL, infer_silu_grad, lower_silu_grad, NULL},
    {"mish", "mish_", "mish.out", NULL, infer_mish, lower_mish, NULL},
    {"mish_backward", NULL, NULL, NULL, infer_mish_grad, lower_mish_grad, NULL},
    {"hardtanh", "hardtanh_", "hardtanh.out", NULL, infer_hardtanh, lower_hardtanh, NULL},
    {"hardtanh_backward", NULL, "hardtanh_backward.grad_input", NULL, infer_hardtanh_grad, lower_hardtanh_grad, NULL},
    {"hardsigmoid", "hardsigmoid_", "hardsigmoid.out", NULL, infer_hardsigmoid, lower_hardsigmoid, NULL},
    {"hardsigmoid_backward", NULL, "hardsigmoid_backward.grad_input", NULL, infer_hardsigmoid_grad, lower_hardsigmoid_grad, NULL},
    {"hardswish", "hardswish_", "hardswish.out", NULL, infer_hardswish, lower_hardswish, NULL},
    {"hardswish_backward", NULL, NULL, NULL, infer_hardswish_grad, lower_hardswish_grad, NULL},
    {"softplus", NULL, "softplus.out", NULL, infer_softplus, lower_softplus, NULL},
    {"softplus_backward", NULL, "softplus_backward.grad_input", NULL, infer_softplus_grad, lower_softplus_grad, NULL},
    {"sigmoid_backward", NULL, "sigmoid_backward.grad_input", NULL, infer_sigmoid_grad, lower_sigmoid_grad, NULL},
    {"tanh_backward", NULL, "tanh_backward.grad_input", NULL, infer_tanh_grad, lower_tanh_grad, NULL},
    {"log_sigmoid_forward", NULL, "log_sigmoid_forward.output", NULL, infer_log_sigmoid, lower_log_sigmoid, NULL},
    {"log_sigmoid_backward", NULL, "log_sigmoid_backward.grad_input", NULL, infer_log_sigmoid_grad, lower_log_sigmoid_grad, NULL},
};
TERN_ATEN_FAMILY_END(activation_pointwise)
