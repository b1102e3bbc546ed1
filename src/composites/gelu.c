/* GELU in both forms with its gradients, and the error function and its complement, which StableHLO lacks. */
#include "composites.h"

/* The polynomial with these coefficients, the highest power first. */
static tern_value polynomial(tern_program *p, tern_value x, int n, const double *coefficients) {
  tern_value sum = tern_part_number(p, x, coefficients[0]);
  for (int i = 1; i < n; i++) sum = tern_add(p, tern_multiply(p, sum, x), tern_part_number(p, x, coefficients[i]));
  return sum;
}
#define POLYNOMIAL(p, x, table) polynomial(p, x, (int)TERN_COUNT(table), table)

/* S. Moshier, Cephes, ndtr.c: x T(x^2) / U(x^2) below 1, and 1 - exp(-x^2) P(|x|) / Q(|x|) above, where |x| is held below 6. Made for f64 and as good in f32: never
 * beyond 1, and the tail keeps its digits, which GELU multiplies by x. */
static const double P[] = {2.46196981473530512524e-10, 5.64189564831068821977e-1, 7.46321056442269912687e0, 4.86371970985681366614e1, 1.96520832956077098242e2,
                           5.26445194995477358631e2,  9.34528527171957607540e2,  1.02755188689515710272e3, 5.57535335369399327526e2};
static const double Q[] = {1, 1.32281951154744992508e1, 8.67072140885989742329e1, 3.54937778887819891062e2, 9.75708501743205489753e2, 1.82390916687909736289e3,
                           2.24633760818710981792e3, 1.65666309194161350182e3, 5.57535340817727675546e2};
static tern_value erf_of(tern_program *p, tern_value x) {
  static const double T[] = {9.60497373987051638749e0, 9.00260197203842689217e1, 2.23200534594684319226e3, 7.00332514112805075473e3, 5.55923013010394962768e4};
  static const double U[] = {1, 3.35617141647503099647e1, 5.21357949780152679795e2, 4.59432382970980127987e3, 2.26290000613890934246e4, 4.92673942608635921086e4};
  tern_value one = tern_part_number(p, x, 1), size = tern_minimum(p, tern_abs(p, x), tern_part_number(p, x, 6)), square = tern_multiply(p, size, size);
  tern_value near = tern_divide(p, tern_multiply(p, x, POLYNOMIAL(p, square, T)), POLYNOMIAL(p, square, U));
  tern_value tail = tern_divide(p, tern_multiply(p, tern_exp(p, tern_negate(p, square)), POLYNOMIAL(p, size, P)), POLYNOMIAL(p, size, Q));
  tern_value far = tern_multiply(p, tern_sign(p, x), tern_subtract(p, one, tail));
  return tern_select(p, tern_compare(p, TERN_LT, size, one), near, far); /* NaN goes far and stays NaN */
}

/* exp(-x^2), without the error that rounding x^2 would make for large x: x is cut into a part whose square is exact, and a rest. */
static tern_value exp_of_square(tern_program *p, tern_value x) {
  tern_value head = tern_part_scaled(p, tern_floor(p, tern_part_scaled(p, x, 16)), 0.0625);
  tern_value rest = tern_multiply(p, tern_subtract(p, x, head), tern_add(p, x, head));
  return tern_multiply(p, tern_exp(p, tern_negate(p, tern_multiply(p, head, head))), tern_exp(p, tern_negate(p, rest)));
}

/* From the same source: exp(-x^2) P(x) / Q(x) from 1 to 8 and exp(-x^2) R(x) / S(x) above; 2 minus that for negative x. */
void tern_decompose_erfc(const tern_decomposition *d) {
  static const double R[] = {5.64189583547755073984e-1, 1.27536670759978104416e0, 5.01905042251180477414e0,
                             6.16021097993053585195e0,  7.40974269950448939160e0, 2.97886665372100240670e0};
  static const double S[] = {1, 2.26052863220117276590e0, 9.39603524938001434673e0, 1.20489539808096656605e1, 1.70814450747565897222e1, 9.60896809063285878198e0,
                             3.36907645100081516050e0};
  tern_program *p = d->p;
  tern_value x = tern_part_wide(d, 0), one = tern_part_number(p, x, 1), size = tern_minimum(p, tern_abs(p, x), tern_part_number(p, x, 30));
  tern_value middle = tern_divide(p, POLYNOMIAL(p, size, P), POLYNOMIAL(p, size, Q)), end = tern_divide(p, POLYNOMIAL(p, size, R), POLYNOMIAL(p, size, S));
  tern_value far = tern_multiply(p, exp_of_square(p, size), tern_select(p, tern_compare(p, TERN_LT, size, tern_part_number(p, x, 8)), middle, end));
  far = tern_select(p, tern_compare(p, TERN_LT, x, tern_part_number(p, x, 0)), tern_subtract(p, tern_part_number(p, x, 2), far), far);
  tern_part_result(d, 0, tern_select(p, tern_compare(p, TERN_LT, size, one), tern_subtract(p, one, erf_of(p, x)), far));
}

void tern_decompose_erf(const tern_decomposition *d) { tern_part_result(d, 0, erf_of(d->p, tern_part_wide(d, 0))); }

static const double half_root = 0.70710678118654752440;      /* sqrt(1/2) */
static const double tanh_scale = 0.79788456080286535588;     /* sqrt(2/pi) */
static const double tanh_cubic = 0.044715;
static const double density_scale = 0.39894228040143267794;  /* 1/sqrt(2 pi) */

/* tanh(sqrt(2/pi) (x + 0.044715 x^3)) */
static tern_value inner_tanh(tern_program *p, tern_value x) {
  tern_value cube = tern_multiply(p, tern_multiply(p, x, x), x);
  return tern_tanh(p, tern_part_scaled(p, tern_add(p, x, tern_part_scaled(p, cube, tanh_cubic)), tanh_scale));
}

static tern_value one_plus(tern_program *p, tern_value x) { return tern_add(p, x, tern_part_number(p, x, 1)); }

void tern_decompose_gelu(const tern_decomposition *d) {
  tern_program *p = d->p;
  tern_value x = tern_part_wide(d, 0), inner = d->op->attrs->ints[0] ? inner_tanh(p, x) : tern_erf(p, tern_part_scaled(p, x, half_root));
  tern_part_result(d, 0, tern_multiply(p, tern_part_scaled(p, x, 0.5), one_plus(p, inner)));
}

/* gy (F(x) + x F'(x)), where gelu(x) = x F(x) */
void tern_decompose_gelu_grad(const tern_decomposition *d) {
  tern_program *p = d->p;
  tern_value gy = tern_part_wide(d, 0), x = tern_part_wide(d, 1), square = tern_multiply(p, x, x), inner, slope;
  if (d->op->attrs->ints[0]) {
    inner = inner_tanh(p, x);
    tern_value outer_slope = tern_subtract(p, tern_part_number(p, x, 1), tern_multiply(p, inner, inner));
    tern_value inner_slope = tern_part_scaled(p, one_plus(p, tern_part_scaled(p, square, 3 * tanh_cubic)), tanh_scale);
    slope = tern_part_scaled(p, tern_multiply(p, outer_slope, inner_slope), 0.5);
  } else {
    inner = tern_erf(p, tern_part_scaled(p, x, half_root));
    slope = tern_part_scaled(p, tern_exp(p, tern_part_scaled(p, square, -0.5)), density_scale);
  }
  tern_value whole = tern_add(p, tern_part_scaled(p, one_plus(p, inner), 0.5), tern_multiply(p, x, slope));
  tern_part_result(d, 0, tern_multiply(p, gy, whole));
}
