/* unary: functions of one tensor. The formulas are PyTorch's CPU kernels' (aten/src/ATen/native/cpu/UnaryOpsKernel.cpp). */
#include <math.h>
#include "pointwise.h"

static const tern_pointwise_rule same_rule = {.serves = TERN_SERVES_NUMBERS, .exact_out = true}; /* keeps the dtype; PyTorch refuses bool */
static const tern_pointwise_rule any_rule = {.serves = TERN_SERVES_ALL, .exact_out = true};      /* keeps the dtype */
static const tern_pointwise_rule float_rule = {.serves = TERN_SERVES_FLOATS, .to_float = true};
static const tern_pointwise_rule only_float_rule = {.serves = TERN_SERVES_FLOATS, .exact_out = true};
static const tern_pointwise_rule bits_rule = {.serves = TERN_SERVES_INTEGRAL, .exact_out = true};
static const tern_pointwise_rule infinity_rule = {.serves = TERN_SERVES_ALL, .to_bool = true, .exact_out = true};
static const tern_pointwise_rule test_rule = {.serves = TERN_SERVES_ALL, .to_bool = true};

static bool is_float(const tern_pointwise *w) { return tern_dtype_is_float(w->dtype); }

static tern_value round_to_zero(tern_program *p, tern_dtype dtype, tern_value x) {
  return tern_select(p, tern_compare(p, TERN_LT, x, tern_number(p, dtype, 0)), tern_ceil(p, x), tern_floor(p, x));
}

/* Not the program's sign, which keeps NaN: PyTorch's is (0 < x) - (x < 0). */
static tern_value sign_of(const tern_pointwise *w, tern_value x) {
  tern_program *p = w->p;
  if (w->dtype == TERN_BOOL) return x;
  tern_value zero = tern_number(p, w->dtype, 0);
  tern_value lower = tern_dtype_is_signed(w->dtype) ? tern_select(p, tern_compare(p, TERN_LT, x, zero), tern_number(p, w->dtype, -1), zero) : zero;
  return tern_select(p, tern_compare(p, TERN_GT, x, zero), tern_number(p, w->dtype, 1), lower);
}

/* (e + e / (e + 1)) / 2 with e = exp(|x|) - 1: exact for small x, where exp(x) - exp(-x) would cancel. */
static tern_value sinh_of(tern_program *p, tern_dtype dtype, tern_value x) {
  tern_value e = tern_expm1(p, tern_abs(p, x)), one = tern_number(p, dtype, 1);
  tern_value size = tern_multiply(p, tern_number(p, dtype, 0.5), tern_add(p, e, tern_divide(p, e, tern_add(p, e, one))));
  size = tern_select(p, tern_compare(p, TERN_EQ, e, tern_number(p, dtype, INFINITY)), e, size); /* there e / (e + 1) is NaN */
  return tern_select(p, tern_compare(p, TERN_LT, x, tern_number(p, dtype, 0)), tern_negate(p, size), size);
}

static tern_value cosh_of(tern_program *p, tern_dtype dtype, tern_value x) {
  return tern_multiply(p, tern_number(p, dtype, 0.5), tern_add(p, tern_exp(p, x), tern_exp(p, tern_negate(p, x))));
}

static tern_value is_infinite(const tern_pointwise *w, tern_value x) {
  if (!is_float(w)) return tern_constant_int(w->p, TERN_BOOL, 0, NULL, 0);
  return tern_compare(w->p, TERN_EQ, tern_abs(w->p, x), tern_number(w->p, w->dtype, INFINITY));
}

static tern_value is_equal_to(const tern_pointwise *w, tern_value x, double value) {
  if (!is_float(w)) return tern_constant_int(w->p, TERN_BOOL, 0, NULL, 0);
  return tern_compare(w->p, TERN_EQ, x, tern_number(w->p, w->dtype, value));
}

TERN_POINTWISE(negate, same_rule, tern_negate(p, x))
TERN_POINTWISE(abs, same_rule, tern_dtype_is_signed(dtype) ? tern_abs(p, x) : x)
TERN_POINTWISE(sign, any_rule, sign_of(&w, x))
TERN_POINTWISE(floor, same_rule, is_float(&w) ? tern_floor(p, x) : x)
TERN_POINTWISE(ceil, same_rule, is_float(&w) ? tern_ceil(p, x) : x)
TERN_POINTWISE(round, same_rule, is_float(&w) ? tern_round_even(p, x) : x)
TERN_POINTWISE(trunc, same_rule, is_float(&w) ? round_to_zero(p, dtype, x) : x)
TERN_POINTWISE(frac, only_float_rule, tern_subtract(p, x, round_to_zero(p, dtype, x)))
TERN_POINTWISE(exp, float_rule, tern_exp(p, x))
TERN_POINTWISE(exp2, float_rule, tern_power(p, tern_number(p, dtype, 2), x))
TERN_POINTWISE(expm1, float_rule, tern_expm1(p, x))
TERN_POINTWISE(log, float_rule, tern_log(p, x))
TERN_POINTWISE(log1p, float_rule, tern_log1p(p, x))
TERN_POINTWISE(log2, float_rule, tern_divide(p, tern_log(p, x), tern_number(p, dtype, 0.693147180559945309417)))
TERN_POINTWISE(log10, float_rule, tern_divide(p, tern_log(p, x), tern_number(p, dtype, 2.302585092994045684018)))
TERN_POINTWISE(sqrt, float_rule, tern_sqrt(p, x))
TERN_POINTWISE(rsqrt, float_rule, tern_rsqrt(p, x))
TERN_POINTWISE(reciprocal, float_rule, tern_divide(p, tern_number(p, dtype, 1), x))
TERN_POINTWISE(sin, float_rule, tern_sine(p, x))
TERN_POINTWISE(cos, float_rule, tern_cosine(p, x))
TERN_POINTWISE(tan, float_rule, tern_divide(p, tern_sine(p, x), tern_cosine(p, x)))
TERN_POINTWISE(atan, float_rule, tern_atan2(p, x, tern_number(p, dtype, 1)))
TERN_POINTWISE(sinh, float_rule, sinh_of(p, dtype, x))
TERN_POINTWISE(cosh, float_rule, cosh_of(p, dtype, x))
TERN_POINTWISE(tanh, float_rule, tern_tanh(p, x))
TERN_POINTWISE(sigmoid, float_rule, tern_logistic(p, x))
TERN_POINTWISE(erf, float_rule, tern_erf(p, x))
TERN_POINTWISE(bitwise_not, bits_rule, tern_not(p, x))
TERN_POINTWISE(logical_not, test_rule, tern_compare(p, TERN_EQ, x, tern_number(p, dtype, 0)))
TERN_POINTWISE(isnan, test_rule, tern_compare(p, TERN_NE, x, x))
TERN_POINTWISE(isinf, test_rule, is_infinite(&w, x))
TERN_POINTWISE(isposinf, infinity_rule, is_equal_to(&w, x, INFINITY))
TERN_POINTWISE(isneginf, infinity_rule, is_equal_to(&w, x, -INFINITY))

/* ---- nan_to_num: the replacements' defaults depend on the dtype ---- */

static double largest_of(tern_dtype dtype) {
  return dtype == TERN_F16 ? 65504.0 : dtype == TERN_BF16 ? 0x1.FEp127 : dtype == TERN_F32 ? 0x1.FFFFFEp127 : 0x1.FFFFFFFFFFFFFp1023;
}

static tern_verdict infer_nan_to_num(const tern_call *call, tern_draft *draft) {
  tern_verdict verdict = tern_pointwise_infer(call, draft, &any_rule);
  tern_dtype dtype = draft->outputs[0].dtype;
  if (verdict != TERN_RECORD || !tern_dtype_is_float(dtype)) return verdict;
  tern_draft_double(draft, dtype, tern_arg_double(call, 1, 0), false);
  tern_draft_double(draft, dtype, tern_arg_double(call, 2, largest_of(dtype)), false);
  tern_draft_double(draft, dtype, tern_arg_double(call, 3, -largest_of(dtype)), false);
  return TERN_RECORD;
}
TERN_POINTWISE_LOWER(nan_to_num, any_rule,
                     !is_float(&w)
                         ? x
                         : tern_select(p, tern_compare(p, TERN_NE, x, x), w.s[0],
                                       tern_select(p, is_equal_to(&w, x, INFINITY), w.s[1], tern_select(p, is_equal_to(&w, x, -INFINITY), w.s[2], x))))

/* clang-format off */
#define ROW(name, id) {name, name "_", name ".out", NULL, infer_##id, lower_##id, NULL}
/* clang-format on */
const tern_aten_row tern_aten_unary[] = {
    ROW("neg", negate),
    ROW("abs", abs),
    ROW("sign", sign),
    ROW("sgn", sign),
    ROW("floor", floor),
    ROW("ceil", ceil),
    ROW("round", round),
    ROW("trunc", trunc),
    ROW("frac", frac),
    ROW("exp", exp),
    ROW("exp2", exp2),
    ROW("expm1", expm1),
    ROW("log", log),
    ROW("log1p", log1p),
    ROW("log2", log2),
    ROW("log10", log10),
    ROW("sqrt", sqrt),
    ROW("rsqrt", rsqrt),
    ROW("reciprocal", reciprocal),
    ROW("sin", sin),
    ROW("cos", cos),
    ROW("tan", tan),
    ROW("atan", atan),
    ROW("sinh", sinh),
    ROW("cosh", cosh),
    ROW("tanh", tanh),
    ROW("sigmoid", sigmoid),
    ROW("erf", erf),
    ROW("bitwise_not", bitwise_not),
    ROW("logical_not", logical_not),
    ROW("nan_to_num", nan_to_num),
    {"isnan", NULL, NULL, NULL, infer_isnan, lower_isnan, NULL},
    {"isinf", NULL, NULL, NULL, infer_isinf, lower_isinf, NULL},
    {"isposinf", NULL, "isposinf.out", NULL, infer_isposinf, lower_isposinf, NULL},
    {"isneginf", NULL, "isneginf.out", NULL, infer_isneginf, lower_isneginf, NULL},
};
#undef ROW
TERN_ATEN_FAMILY_END(unary)
