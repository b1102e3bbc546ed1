/* special: inverse trigonometric and hyperbolic functions, and the special functions that are written in elementary ones: of one tensor, or two. Where a formula
 * cancels or overflows, it is split or turned; the bounds are PyTorch's own tolerances, over the whole range (tests/python/test_ops_special.py). */
#include <math.h>
#include "pointwise.h"

static const tern_pointwise_rule float_rule = {.serves = TERN_SERVES_FLOATS, .to_float = true};
static const tern_pointwise_rule only_float_rule = {.serves = TERN_SERVES_FLOATS, .exact_out = true};
static const tern_pointwise_rule test_rule = {.serves = TERN_SERVES_ALL, .to_bool = true, .exact_out = true};
static const tern_pointwise_rule pair_rule = {.n_operands = 2, .operands = {0, 1}, .serves = TERN_SERVES_FLOATS};
static const tern_pointwise_rule float_pair_rule = {.n_operands = 2, .operands = {0, 1}, .serves = TERN_SERVES_FLOATS, .to_float = true};
static const tern_pointwise_rule same_pair_rule = {.n_operands = 2, .operands = {0, 1}, .serves = TERN_SERVES_ALL, .same_dtypes = true};
static const tern_pointwise_rule shrink_rule = {.serves = TERN_SERVES_FLOATS, .exact_out = true, .n_numbers = 1, .numbers = {{1, false, 0.5}}};
static const tern_pointwise_rule shrink_grad_rule = {
    .n_operands = 2, .operands = {0, 1}, .serves = TERN_SERVES_FLOATS, .n_numbers = 1, .numbers = {{2, false, 0.5}}};

#define NUMBER(value) tern_number(p, dtype, value)
#define PI 3.14159265358979323846
#define LN2 0.693147180559945309417

static tern_value is_equal(tern_program *p, tern_dtype dtype, tern_value x, double value) { return tern_compare(p, TERN_EQ, x, NUMBER(value)); }
static tern_value is_below(tern_program *p, tern_dtype dtype, tern_value x, double value) { return tern_compare(p, TERN_LT, x, NUMBER(value)); }
static tern_value square_of(tern_program *p, tern_value x) { return tern_multiply(p, x, x); }

/* The sign bit, which zeros and NaN have as well. */
static tern_value has_sign(tern_program *p, tern_dtype dtype, tern_value x) {
  if (!tern_dtype_is_float(dtype)) return tern_dtype_is_signed(dtype) ? is_below(p, dtype, x, 0) : tern_constant_int(p, TERN_BOOL, 0, NULL, 0);
  tern_dtype bits = dtype == TERN_F64 ? TERN_I64 : TERN_I32;
  return tern_compare(p, TERN_LT, tern_bitcast(p, x, bits), tern_constant_int(p, bits, 0, NULL, 0));
}

static tern_value with_sign_of(tern_program *p, tern_dtype dtype, tern_value size, tern_value x) {
  return tern_select(p, has_sign(p, dtype, x), tern_negate(p, size), size);
}

/* c[0] x^(n-1) + ... + c[n-1] */
static tern_value polynomial(tern_program *p, tern_dtype dtype, tern_value x, int n, const double *c) {
  tern_value sum = NUMBER(c[0]);
  for (int i = 1; i < n; i++) sum = tern_add(p, tern_multiply(p, sum, x), NUMBER(c[i]));
  return sum;
}

/* ---- inverse trigonometric functions, by the angle of a point on the circle ---- */

static tern_value other_leg(tern_program *p, tern_dtype dtype, tern_value x) { /* sqrt(1 - x^2) without cancellation at 1 */
  return tern_sqrt(p, tern_multiply(p, tern_subtract(p, NUMBER(1), x), tern_add(p, NUMBER(1), x)));
}

/* ---- inverse hyperbolic functions: log1p near their zeros, log + ln 2 where squares would overflow ---- */

static tern_value asinh_of(tern_program *p, tern_dtype dtype, tern_value x) {
  tern_value size = tern_abs(p, x), square = square_of(p, size), one = NUMBER(1);
  tern_value root = tern_sqrt(p, tern_add(p, square, one));
  tern_value near = tern_log1p(p, tern_add(p, size, tern_divide(p, square, tern_add(p, root, one))));
  tern_value far = tern_add(p, tern_log(p, size), NUMBER(LN2));
  return with_sign_of(p, dtype, tern_select(p, tern_compare(p, TERN_GT, size, NUMBER(1e9)), far, near), x);
}

static tern_value acosh_of(tern_program *p, tern_dtype dtype, tern_value x) {
  tern_value above = tern_subtract(p, x, NUMBER(1)); /* with t = x - 1: log1p(t + sqrt(2 t + t^2)) */
  tern_value root = tern_sqrt(p, tern_multiply(p, above, tern_add(p, above, NUMBER(2))));
  tern_value near = tern_select(p, is_below(p, dtype, x, 1), NUMBER((double)NAN), tern_log1p(p, tern_add(p, above, root)));
  return tern_select(p, tern_compare(p, TERN_GT, x, NUMBER(1e9)), tern_add(p, tern_log(p, x), NUMBER(LN2)), near);
}

static tern_value atanh_of(tern_program *p, tern_dtype dtype, tern_value x) {
  tern_value size = tern_abs(p, x), both = tern_subtract(p, tern_log1p(p, size), tern_log1p(p, tern_negate(p, size)));
  return with_sign_of(p, dtype, tern_multiply(p, both, NUMBER(0.5)), x);
}

/* ---- of one tensor ---- */

static tern_value sinc_of(tern_program *p, tern_dtype dtype, tern_value x) {
  tern_value angle = tern_multiply(p, x, NUMBER(PI));
  return tern_select(p, is_equal(p, dtype, x, 0), NUMBER(1), tern_divide(p, tern_sine(p, angle), angle));
}

/* -x log(x); 0 at 0, -inf below. */
static tern_value entropy_of(tern_program *p, tern_dtype dtype, tern_value x) {
  tern_value inside = tern_negate(p, tern_multiply(p, x, tern_log(p, x)));
  tern_value outside = tern_select(p, is_equal(p, dtype, x, 0), NUMBER(0), tern_select(p, is_below(p, dtype, x, 0), NUMBER(-(double)INFINITY), x));
  return tern_select(p, tern_compare(p, TERN_GT, x, NUMBER(0)), inside, outside);
}

/* A rational start, then two steps of Newton's method (G. Pavlis, as PyTorch's calc_erfinv). */
static tern_value erfinv_of(tern_program *p, tern_dtype dtype, tern_value y) {
  static const double a[] = {-0.140543331, 0.914624893, -1.645349621, 0.886226899}, b[] = {0.012229801, -0.329097515, 1.442710462, -2.118377725, 1};
  static const double c[] = {1.641345311, 3.429567803, -1.624906493, -1.970840454}, d[] = {1.637067800, 3.543889200, 1};
  tern_value size = tern_abs(p, y), square = square_of(p, y);
  tern_value middle = tern_divide(p, tern_multiply(p, y, polynomial(p, dtype, square, 4, a)), polynomial(p, dtype, square, 5, b));
  tern_value z = tern_sqrt(p, tern_negate(p, tern_log(p, tern_multiply(p, tern_subtract(p, NUMBER(1), size), NUMBER(0.5)))));
  tern_value end = tern_divide(p, with_sign_of(p, dtype, polynomial(p, dtype, z, 4, c), y), polynomial(p, dtype, z, 3, d));
  tern_value x = tern_select(p, tern_compare(p, TERN_LE, size, NUMBER(0.7)), middle, end);
  for (int step = 0; step < 2; step++) {
    tern_value slope = tern_multiply(p, NUMBER(1.12837916709551257390), tern_exp(p, tern_negate(p, square_of(p, x))));
    x = tern_subtract(p, x, tern_divide(p, tern_subtract(p, tern_erf(p, x), y), slope));
  }
  x = tern_select(p, is_equal(p, dtype, size, 1), with_sign_of(p, dtype, NUMBER((double)INFINITY), y), x);
  return tern_select(p, tern_compare(p, TERN_GT, size, NUMBER(1)), NUMBER((double)NAN), x);
}

/* Cephes psi.c: reflected below 0, pushed up to 10 by the recurrence, then the asymptotic series. */
static tern_value digamma_of(tern_program *p, tern_dtype dtype, tern_value x) {
  static const double series[] = {8.33333333333333333333e-2, -2.10927960927960927961e-2, 7.57575757575757575758e-3, -4.16666666666666666667e-3,
                                  3.96825396825396825397e-3, -8.33333333333333333333e-3, 8.33333333333333333333e-2};
  tern_value negative = is_below(p, dtype, x, 0), whole = tern_ceil(p, x), one = NUMBER(1); /* looked at below 0 only: towards zero */
  tern_value y = tern_select(p, negative, tern_subtract(p, one, x), x), sum = NUMBER(0);
  for (int step = 0; step < 10; step++) {
    tern_value low = is_below(p, dtype, y, 10);
    sum = tern_select(p, low, tern_subtract(p, sum, tern_divide(p, one, y)), sum);
    y = tern_select(p, low, tern_add(p, y, one), y);
  }
  tern_value z = tern_divide(p, one, square_of(p, y)), tail = tern_multiply(p, z, polynomial(p, dtype, z, 7, series));
  tern_value value = tern_subtract(p, tern_subtract(p, tern_add(p, sum, tern_log(p, y)), tern_divide(p, NUMBER(0.5), y)), tail);
  tern_value angle = tern_multiply(p, tern_subtract(p, x, whole), NUMBER(PI));
  tern_value reflected = tern_subtract(p, value, tern_divide(p, tern_multiply(p, NUMBER(PI), tern_cosine(p, angle)), tern_sine(p, angle)));
  value = tern_select(p, negative, reflected, value);
  value = tern_select(p, tern_and(p, negative, tern_compare(p, TERN_EQ, x, whole)), NUMBER((double)NAN), value);
  tern_value pole = with_sign_of(p, dtype, NUMBER(-(double)INFINITY), x);
  value = tern_select(p, is_equal(p, dtype, x, 0), pole, value);
  return tern_select(p, is_equal(p, dtype, x, (double)INFINITY), x, value);
}

TERN_POINTWISE(asin, float_rule, tern_atan2(p, x, other_leg(p, dtype, x)))
TERN_POINTWISE(acos, float_rule, tern_atan2(p, other_leg(p, dtype, x), x))
TERN_POINTWISE(asinh, float_rule, asinh_of(p, dtype, x))
TERN_POINTWISE(acosh, float_rule, acosh_of(p, dtype, x))
TERN_POINTWISE(atanh, float_rule, atanh_of(p, dtype, x))
TERN_POINTWISE(sinc, float_rule, sinc_of(p, dtype, x))
TERN_POINTWISE(entr, float_rule, entropy_of(p, dtype, x))
TERN_POINTWISE(erfc, float_rule, tern_erfc(p, x))
TERN_POINTWISE(erfinv, float_rule, erfinv_of(p, dtype, x))
TERN_POINTWISE(lgamma, float_rule, tern_lgamma(p, x))
TERN_POINTWISE(digamma, float_rule, digamma_of(p, dtype, x))
TERN_POINTWISE(angle, float_rule, tern_select(p, tern_compare(p, TERN_NE, x, x), x, tern_select(p, is_below(p, dtype, x, 0), NUMBER(PI), NUMBER(0))))
TERN_POINTWISE(signbit, test_rule, has_sign(p, dtype, x))

/* round(x, decimals=): attrs[1] the number of decimals */
static tern_verdict infer_round(const tern_call *call, tern_draft *draft) {
  tern_verdict verdict = tern_pointwise_infer(call, draft, &only_float_rule);
  int64_t decimals = tern_arg_int(call, 1, 0);
  if (decimals < -300 || decimals > 300) return TERN_FALL_BACK;
  tern_draft_attr(draft, decimals);
  return verdict;
}
static tern_value round_of(tern_program *p, tern_dtype dtype, tern_value x, int64_t decimals) {
  if (!decimals) return tern_round_even(p, x);
  tern_value power = NUMBER(pow(10, (double)(decimals < 0 ? -decimals : decimals)));
  if (decimals < 0) return tern_multiply(p, tern_round_even(p, tern_divide(p, x, power)), power);
  return tern_divide(p, tern_round_even(p, tern_multiply(p, x, power)), power);
}
TERN_POINTWISE_LOWER(round, only_float_rule, round_of(p, dtype, x, node->attrs[1]))

/* logit(x, eps=None): attrs[1] whether there is an eps, which is s[0] */
static tern_verdict draft_eps(const tern_call *call, tern_draft *draft, int at, tern_verdict verdict) {
  if (verdict != TERN_RECORD) return verdict;
  tern_draft_attr(draft, !tern_arg_is_none(call, at));
  if (!tern_arg_is_none(call, at)) tern_draft_double(draft, tern_compute_dtype(draft->outputs[0].dtype), tern_arg_double(call, at, 0), false);
  return TERN_RECORD;
}
static tern_verdict infer_logit(const tern_call *call, tern_draft *draft) {
  return draft_eps(call, draft, 1, tern_pointwise_infer(call, draft, &float_rule));
}
static tern_value logit_of(const tern_pointwise *w, tern_value x, bool bounded) {
  tern_program *p = w->p;
  tern_dtype dtype = bounded ? w->dtype : w->common; /* without bounds, PyTorch's vectors of halves round every step */
  tern_value one = tern_number(p, dtype, 1);
  x = tern_convert(p, x, dtype);
  if (bounded) {
    tern_value high = tern_subtract(p, one, w->s[0]);
    x = tern_select(p, tern_compare(p, TERN_LT, x, w->s[0]), w->s[0], tern_select(p, tern_compare(p, TERN_GT, x, high), high, x));
  }
  return tern_log(p, tern_divide(p, x, tern_subtract(p, one, x)));
}
TERN_POINTWISE_LOWER(logit, float_rule, logit_of(&w, x, node->attrs[1]))

static tern_verdict infer_logit_grad(const tern_call *call, tern_draft *draft) {
  return draft_eps(call, draft, 2, tern_pointwise_infer(call, draft, &pair_rule));
}
static tern_value logit_grad(const tern_pointwise *w, tern_value gy, tern_value x, bool bounded) {
  tern_program *p = w->p;
  tern_dtype dtype = w->dtype;
  tern_value one = NUMBER(1), low = bounded ? w->s[0] : NUMBER(0), high = bounded ? tern_subtract(p, one, w->s[0]) : one;
  tern_value outside = tern_or(p, tern_compare(p, TERN_LT, x, low), tern_compare(p, TERN_GT, x, high));
  tern_value edge = tern_or(p, is_equal(p, dtype, x, 0), is_equal(p, dtype, x, 1));
  tern_value slope = tern_divide(p, gy, tern_multiply(p, x, tern_subtract(p, one, x)));
  slope = tern_select(p, edge, tern_multiply(p, gy, NUMBER((double)INFINITY)), slope);
  return tern_select(p, outside, bounded ? NUMBER(0) : NUMBER((double)NAN), slope);
}
TERN_POINTWISE_LOWER(logit_grad, pair_rule, logit_grad(&w, x, y, node->attrs[1]))

/* ---- shrinking ---- */

static tern_value is_small(tern_program *p, tern_value x, tern_value limit) {
  return tern_and(p, tern_compare(p, TERN_GE, x, tern_negate(p, limit)), tern_compare(p, TERN_LE, x, limit));
}
static tern_value softshrink_of(const tern_pointwise *w, tern_value x) {
  tern_program *p = w->p;
  tern_value limit = w->s[0], flat = tern_multiply(p, x, tern_number(p, w->dtype, 0)); /* NaN stays */
  tern_value below = tern_select(p, tern_compare(p, TERN_LT, x, tern_negate(p, limit)), tern_add(p, x, limit), flat);
  return tern_select(p, tern_compare(p, TERN_GT, x, limit), tern_subtract(p, x, limit), below);
}
TERN_POINTWISE(hardshrink, shrink_rule, tern_select(p, is_small(p, x, w.s[0]), NUMBER(0), x))
TERN_POINTWISE(shrink_grad, shrink_grad_rule, tern_select(p, is_small(p, y, w.s[0]), NUMBER(0), x))
static tern_verdict infer_softshrink(const tern_call *call, tern_draft *draft) {
  return tern_arg_double(call, 1, 0.5) < 0 ? TERN_REJECT : tern_pointwise_infer(call, draft, &shrink_rule);
}
TERN_POINTWISE_LOWER(softshrink, shrink_rule, softshrink_of(&w, x))

/* ---- of two tensors ---- */

/* The larger leg times sqrt(1 + ratio^2): squares neither overflow nor vanish. */
static tern_value hypot_of(tern_program *p, tern_dtype dtype, tern_value x, tern_value y) {
  x = tern_abs(p, x);
  y = tern_abs(p, y);
  tern_value large = tern_maximum(p, x, y), ratio = tern_divide(p, tern_minimum(p, x, y), large);
  tern_value length = tern_multiply(p, large, tern_sqrt(p, tern_add(p, NUMBER(1), square_of(p, ratio))));
  length = tern_select(p, is_equal(p, dtype, large, 0), large, length);
  tern_value infinite = tern_or(p, is_equal(p, dtype, x, (double)INFINITY), is_equal(p, dtype, y, (double)INFINITY));
  return tern_select(p, infinite, NUMBER((double)INFINITY), length);
}

static tern_value log_add(tern_program *p, tern_dtype dtype, tern_value x, tern_value y, double base) {
  tern_value large = tern_maximum(p, x, y), gap = tern_negate(p, tern_abs(p, tern_subtract(p, x, y)));
  tern_value sum = base == 1 ? tern_log1p(p, tern_exp(p, gap)) : tern_divide(p, tern_log1p(p, tern_exp(p, tern_multiply(p, gap, NUMBER(base)))), NUMBER(base));
  tern_value equal = tern_and(p, tern_compare(p, TERN_EQ, x, y), is_equal(p, dtype, tern_abs(p, x), (double)INFINITY)); /* there the gap is NaN */
  return tern_select(p, equal, x, tern_add(p, large, sum));
}

static tern_value x_log1p_y(tern_program *p, tern_dtype dtype, tern_value x, tern_value y) {
  tern_value product = tern_select(p, is_equal(p, dtype, x, 0), NUMBER(0), tern_multiply(p, x, tern_log1p(p, y)));
  return tern_select(p, tern_compare(p, TERN_NE, y, y), y, product);
}

static tern_value step_at_zero(tern_program *p, tern_dtype dtype, tern_value x, tern_value at_zero) {
  tern_value positive = dtype == TERN_BOOL ? x : tern_compare(p, TERN_GT, x, NUMBER(0));
  return tern_select(p, tern_compare(p, TERN_EQ, x, NUMBER(0)), at_zero, tern_convert(p, positive, dtype));
}

/* The neighbour in y's direction is the neighbour among the bit patterns. */
static tern_value next_after(tern_program *p, tern_dtype dtype, tern_value x, tern_value y) {
  tern_dtype bits = dtype == TERN_F64 ? TERN_I64 : TERN_I32;
  tern_value one = tern_constant_int(p, bits, 0, NULL, 1), minus = tern_constant_int(p, bits, 0, NULL, -1), pattern = tern_bitcast(p, x, bits);
  tern_value away = tern_compare(p, TERN_EQ, tern_compare(p, TERN_LT, x, y), tern_compare(p, TERN_GT, x, NUMBER(0)));
  tern_value next = tern_bitcast(p, tern_add(p, pattern, tern_select(p, away, one, minus)), dtype);
  next = tern_select(p, is_equal(p, dtype, x, 0), with_sign_of(p, dtype, tern_bitcast(p, one, dtype), y), next);
  next = tern_select(p, tern_compare(p, TERN_EQ, x, y), y, next);
  return tern_select(p, tern_compare(p, TERN_NE, x, x), x, tern_select(p, tern_compare(p, TERN_NE, y, y), y, next));
}

TERN_POINTWISE(hypot, pair_rule, hypot_of(p, dtype, x, y))
TERN_POINTWISE(logaddexp, pair_rule, log_add(p, dtype, x, y, 1))
TERN_POINTWISE(logaddexp2, pair_rule, log_add(p, dtype, x, y, LN2))
TERN_POINTWISE(xlog1py, float_pair_rule, x_log1p_y(p, dtype, x, y))
TERN_POINTWISE(copysign, float_pair_rule, with_sign_of(p, dtype, tern_abs(p, x), y))
TERN_POINTWISE(heaviside, same_pair_rule, step_at_zero(p, dtype, x, y))
static tern_verdict infer_nextafter(const tern_call *call, tern_draft *draft) {
  tern_verdict verdict = tern_pointwise_infer(call, draft, &pair_rule);
  return verdict == TERN_RECORD && draft->outputs[0].dtype < TERN_F32 ? TERN_FALL_BACK : verdict; /* a neighbour in f32 is none in bf16 */
}
TERN_POINTWISE_LOWER(nextafter, pair_rule, next_after(p, dtype, x, y))

/* clang-format off */
#define ROW(name, id) {name, name "_", name ".out", NULL, infer_##id, lower_##id, NULL}
#define SPECIAL(name, id) {"special_" name, NULL, "special_" name ".out", NULL, infer_##id, lower_##id, NULL}
/* clang-format on */
const tern_aten_row tern_aten_special[] = {
    ROW("asin", asin),
    ROW("acos", acos),
    ROW("asinh", asinh),
    ROW("acosh", acosh),
    ROW("atanh", atanh),
    ROW("sinc", sinc),
    ROW("erfc", erfc),
    ROW("erfinv", erfinv),
    ROW("lgamma", lgamma),
    ROW("digamma", digamma),
    ROW("logit", logit),
    ROW("hypot", hypot),
    ROW("heaviside", heaviside),
    ROW("nextafter", nextafter),
    {"angle", NULL, "angle.out", NULL, infer_angle, lower_angle, NULL},
    {"signbit", NULL, "signbit.out", NULL, infer_signbit, lower_signbit, NULL},
    {"round.decimals", "round_.decimals", "round.decimals_out", NULL, infer_round, lower_round, NULL},
    {"logit_backward", NULL, "logit_backward.grad_input", NULL, infer_logit_grad, lower_logit_grad, NULL},
    {"hardshrink", NULL, "hardshrink.out", NULL, infer_hardshrink, lower_hardshrink, NULL},
    {"hardshrink_backward", NULL, "hardshrink_backward.grad_input", NULL, infer_shrink_grad, lower_shrink_grad, NULL},
    {"softshrink", NULL, "softshrink.out", NULL, infer_softshrink, lower_softshrink, NULL},
    {"softshrink_backward", NULL, "softshrink_backward.grad_input", NULL, infer_shrink_grad, lower_shrink_grad, NULL},
    {"logaddexp", NULL, "logaddexp.out", NULL, infer_logaddexp, lower_logaddexp, NULL},
    {"logaddexp2", NULL, "logaddexp2.out", NULL, infer_logaddexp2, lower_logaddexp2, NULL},
    {"copysign.Tensor", "copysign_.Tensor", "copysign.out", NULL, infer_copysign, lower_copysign, NULL},
    {"special_xlog1py", NULL, "special_xlog1py.out", NULL, infer_xlog1py, lower_xlog1py, NULL},
    SPECIAL("entr", entr),
};
#undef ROW
#undef SPECIAL
TERN_ATEN_FAMILY_END(special)
