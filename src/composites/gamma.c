/* log |gamma(x)|, which StableHLO lacks: Lanczos' approximation, and the reflection formula below one half. */
#include <math.h>
#include "composites.h"

/* C. Lanczos with g = 7 and nine terms (Godfrey's coefficients): log gamma(z + 1) for z >= -1/2. */
static tern_value lanczos(tern_program *p, tern_value z) {
  static const double terms[] = {676.520368121885098567, -1259.13921672240287047, 771.323428777653078849, -176.615029162140599066,
                                 12.5073432786869048145, -0.138571095265720116896, 9.98436957801957085956e-6, 1.50563273514931155834e-7};
  tern_value sum = tern_part_number(p, z, 0.99999999999980993227684700473478);
  for (int i = 0; i < (int)TERN_COUNT(terms); i++)
    sum = tern_add(p, sum, tern_divide(p, tern_part_number(p, z, terms[i]), tern_add(p, z, tern_part_number(p, z, i + 1))));
  /* (z + 1/2) log(t) - t + log(sqrt(2 pi) sum), t = z + 7.5, with log(t) = log(7.5) + log1p(z / 7.5) */
  tern_value log_t = tern_add(p, tern_log1p(p, tern_divide(p, z, tern_part_number(p, z, 7.5))), tern_part_number(p, z, log(7.5)));
  tern_value half = tern_add(p, z, tern_part_number(p, z, 0.5));
  tern_value main_part = tern_multiply(p, tern_subtract(p, half, tern_divide(p, tern_add(p, z, tern_part_number(p, z, 7.5)), log_t)), log_t);
  return tern_add(p, tern_add(p, main_part, tern_part_number(p, z, 0.91893853320467274178)), tern_log(p, sum));
}

void tern_decompose_lgamma(const tern_decomposition *d) {
  tern_program *p = d->p;
  tern_value x = tern_part_wide(d, 0), low = tern_compare(p, TERN_LT, x, tern_part_number(p, x, 0.5));
  tern_value z = tern_select(p, low, tern_negate(p, x), tern_subtract(p, x, tern_part_number(p, x, 1))), upper = lanczos(p, z);
  /* log(pi / |sin(pi x)|) - lgamma(1 - x); sin is periodic, so that the fraction suffices. */
  tern_value size = tern_abs(p, x), fraction = tern_subtract(p, size, tern_floor(p, size));
  fraction = tern_minimum(p, fraction, tern_subtract(p, tern_part_number(p, x, 1), fraction));
  tern_value sine = tern_sine(p, tern_part_scaled(p, fraction, 3.14159265358979323846));
  tern_value lower = tern_subtract(p, tern_subtract(p, tern_part_number(p, x, 1.14472988584940017414), tern_log(p, sine)), upper);
  tern_value infinite = tern_part_number(p, x, (double)INFINITY);
  lower = tern_select(p, tern_compare(p, TERN_EQ, fraction, tern_part_number(p, x, 0)), infinite, lower);
  tern_value both = tern_select(p, low, lower, upper);
  tern_part_result(d, 0, tern_select(p, tern_compare(p, TERN_EQ, size, infinite), infinite, both));
}
