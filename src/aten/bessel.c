/* bessel: Bessel functions of orders 0 and 1 and the special functions that need tables: erfcx, log_ndtr, ndtri, and trigamma.
 *
 * A function is cut into intervals; on each, what is smooth of it is a Chebyshev series (bessel_tables.h) and what is not (growth, poles, oscillation) is written out.
 * The identities are those of M. Abramowitz, I. Stegun, Handbook of Mathematical Functions, chapters 6, 7, 9 and 26. */
#include "bessel_tables.h"
#include <math.h>
#include "pointwise.h"

static const tern_pointwise_rule float_rule = {.serves = TERN_SERVES_FLOATS, .to_float = true};

#define NUMBER(value) tern_number(p, dtype, value)
#define PI 3.14159265358979323846
#define SERIES(table, x, low, high) series(p, dtype, TERN_COUNT(table), table, x, low, high)

/* sum c[k] T_k(t), x in [low, high] mapped to t in [-1, 1], by Clenshaw's recurrence. x outside is moved to the end: the other branch is taken there. */
static tern_value series(tern_program *p, tern_dtype dtype, int n, const double *c, tern_value x, double low, double high) {
  x = tern_minimum(p, tern_maximum(p, x, NUMBER(low)), NUMBER(high));
  tern_value t = tern_multiply(p, tern_subtract(p, x, NUMBER((low + high) / 2)), NUMBER(4 / (high - low))); /* 2 t */
  tern_value b = NUMBER(c[n - 1]), before = NUMBER(0);
  for (int k = n - 2; k > 0; k--) {
    tern_value next = tern_add(p, tern_subtract(p, tern_multiply(p, t, b), before), NUMBER(c[k]));
    before = b;
    b = next;
  }
  return tern_add(p, tern_subtract(p, tern_multiply(p, tern_multiply(p, t, NUMBER(0.5)), b), before), NUMBER(c[0]));
}

static tern_value reciprocal(tern_program *p, tern_dtype dtype, tern_value x) { return tern_divide(p, NUMBER(1), x); }
static tern_value is_above(tern_program *p, tern_dtype dtype, tern_value x, double bound) { return tern_compare(p, TERN_GT, x, NUMBER(bound)); }
static tern_value is_below(tern_program *p, tern_dtype dtype, tern_value x, double bound) { return tern_compare(p, TERN_LT, x, NUMBER(bound)); }
static tern_value square_of(tern_program *p, tern_value x) { return tern_multiply(p, x, x); }
static tern_value negate_where(tern_program *p, tern_value condition, tern_value x) { return tern_select(p, condition, tern_negate(p, x), x); }

/* ---- I, modified of the first kind: exp(-|x|) times it ---- */

static tern_value i0_scaled(tern_program *p, tern_dtype dtype, tern_value x) {
  tern_value size = tern_abs(p, x), far = tern_divide(p, SERIES(i0_large, reciprocal(p, dtype, size), 0, 0.125), tern_sqrt(p, size));
  return tern_select(p, is_above(p, dtype, size, 8), far, SERIES(i0_small, size, 0, 8));
}
static tern_value i1_scaled(tern_program *p, tern_dtype dtype, tern_value x) {
  tern_value size = tern_abs(p, x), far = tern_divide(p, SERIES(i1_large, reciprocal(p, dtype, size), 0, 0.125), tern_sqrt(p, size));
  tern_value value = tern_select(p, is_above(p, dtype, size, 8), far, tern_multiply(p, SERIES(i1_small, size, 0, 8), size));
  return negate_where(p, is_below(p, dtype, x, 0), value);
}
static tern_value grown(tern_program *p, tern_value x, tern_value scaled) { return tern_multiply(p, tern_exp(p, tern_abs(p, x)), scaled); }

/* ---- K, modified of the second kind: NaN below 0, infinite at 0; exp(x) times it where `scaled` ---- */

static tern_value k_of(tern_program *p, tern_dtype dtype, tern_value x, int order, bool scaled) {
  tern_value square = square_of(p, x), logarithm = tern_log(p, tern_multiply(p, x, NUMBER(0.5))), inverse = reciprocal(p, dtype, x), near, far;
  if (order == 0) {
    near = tern_subtract(p, SERIES(k0_small, square, 0, 4), tern_multiply(p, logarithm, grown(p, x, i0_scaled(p, dtype, x))));
    far = SERIES(k0_large, inverse, 0, 0.5);
  } else {
    near = tern_add(p, tern_multiply(p, logarithm, grown(p, x, i1_scaled(p, dtype, x))), tern_divide(p, SERIES(k1_small, square, 0, 4), x));
    far = SERIES(k1_large, inverse, 0, 0.5);
  }
  far = tern_divide(p, far, tern_sqrt(p, x));
  if (scaled) near = tern_multiply(p, near, tern_exp(p, x));
  if (!scaled) far = tern_multiply(p, far, tern_exp(p, tern_negate(p, x)));
  tern_value value = tern_select(p, is_above(p, dtype, x, 2), far, near);
  value = tern_select(p, tern_compare(p, TERN_EQ, x, NUMBER(0)), NUMBER((double)INFINITY), value);
  return tern_select(p, is_below(p, dtype, x, 0), NUMBER((double)NAN), value);
}

/* ---- J and Y: series up to 8, then sqrt(2 / (pi x)) times a slowly changing wave ---- */

static tern_value wave(tern_program *p, tern_dtype dtype, tern_value x, int order, bool second_kind) {
  tern_value v = square_of(p, tern_divide(p, NUMBER(8), x)), angle = tern_subtract(p, x, NUMBER(order ? 3 * PI / 4 : PI / 4));
  tern_value in_phase = order ? SERIES(p1, v, 0, 1) : SERIES(p0, v, 0, 1), across = tern_divide(p, order ? SERIES(q1, v, 0, 1) : SERIES(q0, v, 0, 1), x);
  tern_value sine = tern_sine(p, angle), cosine = tern_cosine(p, angle);
  tern_value sum = second_kind ? tern_add(p, tern_multiply(p, in_phase, sine), tern_multiply(p, across, cosine))
                               : tern_subtract(p, tern_multiply(p, in_phase, cosine), tern_multiply(p, across, sine));
  return tern_multiply(p, tern_sqrt(p, tern_divide(p, NUMBER(2 / PI), x)), sum);
}
static tern_value j_near(tern_program *p, tern_dtype dtype, tern_value x, int order) {
  return order ? tern_multiply(p, x, SERIES(j1_small, square_of(p, x), 0, 64)) : SERIES(j0_small, square_of(p, x), 0, 64);
}
static tern_value j_of(tern_program *p, tern_dtype dtype, tern_value x, int order) {
  tern_value size = tern_abs(p, x), value = tern_select(p, is_above(p, dtype, size, 8), wave(p, dtype, size, order, false), j_near(p, dtype, size, order));
  return order ? negate_where(p, is_below(p, dtype, x, 0), value) : value;
}
static tern_value y_of(tern_program *p, tern_dtype dtype, tern_value x, int order) {
  tern_value singular = tern_multiply(p, tern_log(p, x), j_near(p, dtype, x, order)), smooth;
  if (order) {
    singular = tern_subtract(p, singular, reciprocal(p, dtype, x));
    smooth = tern_multiply(p, x, SERIES(y1_small, square_of(p, x), 0, 64));
  } else {
    smooth = SERIES(y0_small, square_of(p, x), 0, 64);
  }
  tern_value near = tern_add(p, smooth, tern_multiply(p, NUMBER(2 / PI), singular));
  tern_value value = tern_select(p, is_above(p, dtype, x, 8), wave(p, dtype, x, order, true), near);
  value = tern_select(p, tern_compare(p, TERN_EQ, x, NUMBER(0)), NUMBER(-(double)INFINITY), value);
  return tern_select(p, is_below(p, dtype, x, 0), NUMBER((double)NAN), value);
}

/* sin(x) / x; near 0 its Taylor series, and 0 at infinity. */
static tern_value spherical_j0(tern_program *p, tern_dtype dtype, tern_value x) {
  tern_value square = square_of(p, x), near = NUMBER(1);
  for (int k = 8; k > 0; k--) near = tern_subtract(p, NUMBER(1), tern_multiply(p, tern_multiply(p, square, NUMBER(1.0 / (2 * k * (2 * k + 1)))), near));
  tern_value value = tern_select(p, is_below(p, dtype, tern_abs(p, x), 0.5), near, tern_divide(p, tern_sine(p, x), x));
  return tern_select(p, tern_compare(p, TERN_EQ, tern_abs(p, x), NUMBER((double)INFINITY)), NUMBER(0), value);
}

/* ---- the error function's kin ---- */

/* exp(x^2) erfc(x); below 0 by erfc(x) = 2 - erfc(-x). */
static tern_value erfcx_of(tern_program *p, tern_dtype dtype, tern_value x) {
  tern_value size = tern_abs(p, x), moved = tern_divide(p, tern_subtract(p, size, NUMBER(3.75)), tern_add(p, size, NUMBER(3.75)));
  moved = tern_select(p, tern_compare(p, TERN_EQ, size, NUMBER((double)INFINITY)), NUMBER(1), moved);
  tern_value value = tern_divide(p, SERIES(erfcx, moved, -1, 1), tern_add(p, NUMBER(1), tern_multiply(p, NUMBER(2), size)));
  tern_value below = tern_subtract(p, tern_multiply(p, NUMBER(2), tern_exp(p, square_of(p, x))), value);
  return tern_select(p, is_below(p, dtype, x, 0), below, value);
}

/* log of the normal distribution: of exp(-x^2 / 2) erfcx(-x / sqrt 2) / 2 far below 0, where the distribution itself vanishes. */
static tern_value log_ndtr_of(tern_program *p, tern_dtype dtype, tern_value x) {
  tern_value t = tern_multiply(p, x, NUMBER(0.70710678118654752440));
  tern_value tail = tern_log(p, tern_multiply(p, NUMBER(0.5), erfcx_of(p, dtype, tern_negate(p, t))));
  tern_value middle = tern_log1p(p, tern_multiply(p, NUMBER(-0.5), tern_erfc(p, t)));
  return tern_select(p, is_below(p, dtype, x, -1), tern_subtract(p, tail, square_of(p, t)), middle);
}

/* The normal quantile of y: around 1/2 a series in (y - 1/2)^2, in the tails one in 1 / sqrt(-2 log y). */
static tern_value ndtri_of(tern_program *p, tern_dtype dtype, tern_value y) {
  const double edge = 0.13533528323661269189; /* exp(-2) */
  tern_value is_high = is_above(p, dtype, y, 1 - edge), tail = tern_select(p, is_high, tern_subtract(p, NUMBER(1), y), y);
  tern_value centred = tern_subtract(p, y, NUMBER(0.5)), middle = tern_multiply(p, centred, SERIES(quantile_middle, square_of(p, centred), 0, 0.1345));
  tern_value x = tern_sqrt(p, tern_multiply(p, NUMBER(-2), tern_log(p, tail))), inverse = reciprocal(p, dtype, x);
  tern_value start = tern_subtract(p, x, tern_divide(p, tern_log(p, x), x));
  tern_value less = tern_select(p, is_below(p, dtype, x, 8), SERIES(quantile_tail, inverse, 0.125, 0.5), SERIES(quantile_far, inverse, 0.025, 0.125));
  tern_value outer = negate_where(p, tern_not(p, is_high), tern_subtract(p, start, less));
  tern_value value = tern_select(p, is_above(p, dtype, tail, edge), middle, outer);
  value = tern_select(p, tern_compare(p, TERN_EQ, y, NUMBER(0)), NUMBER(-(double)INFINITY), value);
  value = tern_select(p, tern_compare(p, TERN_EQ, y, NUMBER(1)), NUMBER((double)INFINITY), value);
  tern_value outside = tern_or(p, is_below(p, dtype, y, 0), is_above(p, dtype, y, 1));
  return tern_select(p, outside, NUMBER((double)NAN), value);
}

/* The second derivative of log gamma: reflected below 1/2, moved up by 6, then the asymptotic series. */
static tern_value trigamma_of(tern_program *p, tern_dtype dtype, tern_value x) {
  tern_value reflects = is_below(p, dtype, x, 0.5), sine = tern_sine(p, tern_multiply(p, x, NUMBER(PI)));
  tern_value z = tern_select(p, reflects, tern_subtract(p, NUMBER(1), x), x), sum = NUMBER(0);
  sum = tern_select(p, reflects, tern_negate(p, tern_divide(p, NUMBER(PI * PI), square_of(p, sine))), sum);
  for (int i = 0; i < 6; i++) {
    sum = tern_add(p, sum, reciprocal(p, dtype, square_of(p, z)));
    z = tern_add(p, z, NUMBER(1));
  }
  tern_value v = reciprocal(p, dtype, square_of(p, z));
  tern_value inner = tern_subtract(p, NUMBER(1.0 / 30), tern_multiply(p, v, NUMBER(1.0 / 42)));
  inner = tern_multiply(p, v, tern_subtract(p, NUMBER(1.0 / 6), tern_multiply(p, v, inner)));
  inner = tern_add(p, tern_add(p, NUMBER(1), tern_divide(p, NUMBER(0.5), z)), inner);
  return negate_where(p, reflects, tern_add(p, sum, tern_divide(p, inner, z)));
}

TERN_POINTWISE(i0, float_rule, grown(p, x, i0_scaled(p, dtype, x)))
TERN_POINTWISE(i0e, float_rule, i0_scaled(p, dtype, x))
TERN_POINTWISE(i1, float_rule, grown(p, x, i1_scaled(p, dtype, x)))
TERN_POINTWISE(i1e, float_rule, i1_scaled(p, dtype, x))
TERN_POINTWISE(erfcx, float_rule, erfcx_of(p, dtype, x))
TERN_POINTWISE(log_ndtr, float_rule, log_ndtr_of(p, dtype, x))
TERN_POINTWISE(ndtri, float_rule, ndtri_of(p, dtype, x))

/* Those that the CPU has in f32 and f64 only; other floats are its to refuse. */
static tern_verdict infer_single(const tern_call *call, tern_draft *draft) {
  tern_verdict verdict = tern_pointwise_infer(call, draft, &float_rule);
  return verdict == TERN_RECORD && draft->outputs[0].dtype < TERN_F32 ? TERN_FALL_BACK : verdict;
}
TERN_POINTWISE_LOWER(j0, float_rule, j_of(p, dtype, x, 0))
TERN_POINTWISE_LOWER(j1, float_rule, j_of(p, dtype, x, 1))
TERN_POINTWISE_LOWER(y0, float_rule, y_of(p, dtype, x, 0))
TERN_POINTWISE_LOWER(y1, float_rule, y_of(p, dtype, x, 1))
TERN_POINTWISE_LOWER(k0, float_rule, k_of(p, dtype, x, 0, false))
TERN_POINTWISE_LOWER(k1, float_rule, k_of(p, dtype, x, 1, false))
TERN_POINTWISE_LOWER(k0_scaled, float_rule, k_of(p, dtype, x, 0, true))
TERN_POINTWISE_LOWER(k1_scaled, float_rule, k_of(p, dtype, x, 1, true))
TERN_POINTWISE_LOWER(spherical_j0, float_rule, spherical_j0(p, dtype, x))

/* polygamma(n, self): n = 1 */
static const tern_pointwise_rule order_rule = {.n_operands = 1, .operands = {1}, .serves = TERN_SERVES_FLOATS, .to_float = true};
static tern_verdict infer_polygamma(const tern_call *call, tern_draft *draft) {
  return tern_arg_int(call, 0, -1) == 1 ? tern_pointwise_infer(call, draft, &order_rule) : TERN_FALL_BACK;
}
TERN_POINTWISE_LOWER(polygamma, order_rule, trigamma_of(p, dtype, x))

/* clang-format off */
#define SPECIAL(name, infer_id, id) {"special_" name, NULL, "special_" name ".out", NULL, infer_##infer_id, lower_##id, NULL}
/* clang-format on */
const tern_aten_row tern_aten_bessel[] = {
    {"i0", "i0_", "i0.out", NULL, infer_i0, lower_i0, NULL},
    {"polygamma", NULL, "polygamma.out", NULL, infer_polygamma, lower_polygamma, NULL},
    SPECIAL("i0e", i0e, i0e),
    SPECIAL("i1", i1, i1),
    SPECIAL("i1e", i1e, i1e),
    SPECIAL("erfcx", erfcx, erfcx),
    SPECIAL("log_ndtr", log_ndtr, log_ndtr),
    SPECIAL("ndtri", ndtri, ndtri),
    SPECIAL("bessel_j0", single, j0),
    SPECIAL("bessel_j1", single, j1),
    SPECIAL("bessel_y0", single, y0),
    SPECIAL("bessel_y1", single, y1),
    SPECIAL("modified_bessel_i0", single, i0),
    SPECIAL("modified_bessel_i1", single, i1),
    SPECIAL("modified_bessel_k0", single, k0),
    SPECIAL("modified_bessel_k1", single, k1),
    SPECIAL("scaled_modified_bessel_k0", single, k0_scaled),
    SPECIAL("scaled_modified_bessel_k1", single, k1_scaled),
    SPECIAL("spherical_bessel_j0", single, spherical_j0),
};
#undef SPECIAL
TERN_ATEN_FAMILY_END(bessel)
