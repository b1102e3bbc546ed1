/* math: elementary functions on f32 vectors, and the loops that apply them to arrays.
 *
 * Polynomials are minimax fits (Remez, weighted for relative error of the function) on the stated ranges. Bounds are in units in the last place (ulp) of the true
 * value, measured against double precision over the whole range of f32 by tests/c/test_cpu_blocks.c; infinities, NaN, zeros, denormal arguments and
 * denormal results are right. Sine and cosine leave arguments beyond 8192 to the C library, lane by lane. */
#ifndef TERN_MATH_H
#define TERN_MATH_H
#include <math.h>
#include "vector.h"

/* e^r - 1 for |r| <= ln(2)/2: r + r^2 times a polynomial, whose halves are computed side by side (Estrin), because latency is what limits it. */
TERN_INLINE vf32 tern_v_exp_less_one(vf32 r) {
  vf32 square = r * r;
  vf32 low = vf32_fma(vf32_splat(0.16666666819f), r, vf32_splat(0.5f)), middle = vf32_fma(vf32_splat(8.3332725944e-3f), r, vf32_splat(4.1666352351e-2f));
  vf32 high = vf32_fma(vf32_splat(1.9914446148e-4f), r, vf32_splat(1.3941202755e-3f));
  vf32 q = vf32_fma(vf32_fma(high, square, middle), square, low);
  return vf32_fma(q, square, r);
}

/* x = n ln(2) + r with |r| <= ln(2)/2 (a little more at the ends), for |x| < 2^20. Adding 1.5 * 2^23 leaves the nearest whole number in the lowest bits. ln(2) in
 * two parts, the first with zeros at its end, so n times it is exact. */
TERN_INLINE vf32 tern_v_exp_reduce(vf32 x, vf32 *n) {
  *n = vf32_fma(x, vf32_splat(1.44269504089f), vf32_splat(0x1.8p23f)) - 0x1.8p23f;
  vf32 r = vf32_fnma(*n, vf32_splat(0.693359375f), x);
  return vf32_fnma(*n, vf32_splat(-2.12194440e-4f), r);
}

/* e^x: 1.1 ulp. */
TERN_INLINE vf32 tern_v_exp(vf32 x) {
  vf32 n, bounded = vf32_min(vf32_splat(100.0f), vf32_max(vf32_splat(-110.0f), x)); /* in this order, NaN stays */
  vf32 r = tern_v_exp_reduce(bounded, &n);
  return vf32_scale_whole(1.0f + tern_v_exp_less_one(r), n);
}

/* e^x - 1: 2 ulp. */
TERN_INLINE vf32 tern_v_expm1(vf32 x) {
  vf32 n, bounded = vf32_min(vf32_max(x, vf32_splat(-25.0f)), vf32_splat(89.0f));
  vf32 r = tern_v_exp_reduce(bounded, &n);
  vf32 small = tern_v_exp_less_one(r);
  /* 2^n (e^r - 1) + (2^n - 1), all halved so that n = 128 does not overflow too early. */
  vf32 half_power = vf32_scale(vf32_splat(1.0f), vf32_to_i32(n) - 1);
  vf32 y = 2.0f * vf32_fma(half_power, small, half_power - 0.5f);
  y = vf32_select(n == 0.0f, small, y);
  return vf32_select((x != x) | (x == 0.0f), x, y); /* -0 stays */
}

/* ln(1 + f) for 1/sqrt(2) <= 1 + f <= sqrt(2), plus e ln(2). */
TERN_INLINE vf32 tern_v_log_kernel(vf32 f, vf32 e) {
  const vf32 square = f * f;
  vf32 p = vf32_splat(6.9155449651e-2f);
  p = vf32_fma(p, square, vf32_fma(vf32_splat(-0.11789739853f), f, vf32_splat(0.11872852496f)));
  p = vf32_fma(p, square, vf32_fma(vf32_splat(-0.12384353212f), f, vf32_splat(0.14218677585f)));
  p = vf32_fma(p, square, vf32_fma(vf32_splat(-0.16669251136f), f, vf32_splat(0.20002225496f)));
  p = vf32_fma(p, square, vf32_fma(vf32_splat(-0.2499998658f), f, vf32_splat(0.33333310461f)));
  vf32 low = vf32_fma(p * f, square, e * -2.12194440e-4f);
  low = vf32_fma(square, vf32_splat(-0.5f), low);
  return vf32_fma(e, vf32_splat(0.693359375f), f + low);
}
/* x = m 2^e with m in [1/sqrt(2), sqrt(2)), for x > 0 finite, denormal too. Returns m - 1. */
TERN_INLINE vf32 tern_v_log_split(vf32 x, vf32 *e) {
  vi32 tiny = x < 0x1p-126f;
  x = vf32_select(tiny, x * 0x1p23f, x);
  vi32 bits = (vi32)((vu32)x - 0x3F3504F3u), exponent = bits >> 23; /* 0x3F3504F3 is 1/sqrt(2) */
  *e = vf32_from_i32(exponent + (tiny & -23));
  return (vf32)((bits & 0x7FFFFF) + 0x3F3504F3) - 1.0f;
}
TERN_INLINE vf32 tern_v_log_ends(vf32 x, vf32 y) { /* what the formula does not say */
  y = vf32_select(x == 0.0f, vf32_splat(-INFINITY), y);
  y = vf32_select(x == INFINITY, x, y);
  return vf32_select((x < 0.0f) | (x != x), vf32_splat(NAN), y);
}

/* ln x: 1.2 ulp. */
TERN_INLINE vf32 tern_v_log(vf32 x) {
  vf32 e, f = tern_v_log_split(x, &e);
  return tern_v_log_ends(x, tern_v_log_kernel(f, e));
}

/* ln(1 + x): 2 ulp. The rounding of u = 1 + x is put back to first order: ln(1+x) = ln(u) + (x - (u - 1)) / u. */
TERN_INLINE vf32 tern_v_log1p(vf32 x) {
  vf32 u = 1.0f + x, e, f = tern_v_log_split(u, &e);
  vf32 lost = vf32_select(u > 1e9f, vf32_splat(0.0f), vf32_select(vf32_abs(x) < 1.0f, x - (u - 1.0f), 1.0f - (u - x)));
  vf32 y = tern_v_log_kernel(f, e) + lost / u;
  y = vf32_select(u == 1.0f, x, y);
  return vf32_select(x == 0.0f, x, tern_v_log_ends(u, y));
}

/* tanh x: 5.5 ulp (3.3e-7). A quotient x P(x^2) / Q(x^2) fitted up to 9.2; beyond 9.02 the nearest f32 is 1. */
TERN_INLINE vf32 tern_v_tanh(vf32 x) {
  const vf32 bounded = vf32_max(vf32_splat(-9.02f), vf32_min(vf32_splat(9.02f), x)), square = bounded * bounded; /* in this order, NaN stays */
  const vf32 fourth = square * square;
  vf32 even = vf32_fma(vf32_splat(-7.9804066278e-14f), fourth, vf32_splat(-1.981846717e-8f));
  even = vf32_fma(even, fourth, vf32_splat(3.0944518567e-3f));
  even = vf32_fma(even, fourth, vf32_splat(1.0f));
  vf32 odd = vf32_fma(vf32_splat(5.0809680725e-11f), fourth, vf32_splat(1.1054569045e-5f));
  odd = vf32_fma(odd, fourth, vf32_splat(0.1307551021f));
  const vf32 p = vf32_fma(odd, square, even);
  vf32 q = vf32_fma(vf32_splat(2.5322863132e-4f), square, vf32_splat(2.445735735e-2f));
  q = vf32_fma(q, square, vf32_splat(0.46408835914f));
  q = vf32_fma(q, square, vf32_splat(1.0f));
  const vf32 y = bounded * (p * vf32_reciprocal(q));
  return vf32_max(vf32_splat(-1.0f), vf32_min(vf32_splat(1.0f), y));
}

/* 1 / (1 + e^-x): 3 ulp; e^-|x| never overflows, so that tails are exact down to denormals. */
TERN_INLINE vf32 tern_v_logistic(vf32 x) {
  vf32 e = tern_v_exp((vf32)((vi32)x | INT32_MIN));
  return vf32_select((vi32)x >> 31, e, vf32_splat(1.0f)) * vf32_reciprocal(1.0f + e);
}

/* erf x: 1.5e-7. x (1 + P(x^2)) below 1, elsewhere 1 - exp(Q(x)) with Q a fit of ln(erfc). */
TERN_INLINE vf32 tern_v_erf(vf32 x) {
  const vf32 square = x * x, fourth = square * square, size = vf32_min(vf32_splat(4.0f), vf32_abs(x)), size2 = size * size; /* in this order, NaN stays */
  vf32 p = vf32_fma(vf32_splat(-9.680143112e-6f), square, vf32_splat(1.1270546838e-4f));
  p = vf32_fma(p, fourth, vf32_fma(vf32_splat(-8.4847117704e-4f), square, vf32_splat(5.2210748998e-3f)));
  p = vf32_fma(p, fourth, vf32_fma(vf32_splat(-2.6865445829e-2f), square, vf32_splat(0.11283782747f)));
  p = vf32_fma(p, fourth, vf32_fma(vf32_splat(-0.37612638484f), square, vf32_splat(0.12837916706f)));
  const vf32 near = vf32_fma(p, x, x);
  vf32 q = vf32_fma(vf32_splat(-2.0433816122e-5f), size, vf32_splat(4.266010944e-4f));
  q = vf32_fma(q, size2, vf32_fma(vf32_splat(-4.1318450004e-3f), size, vf32_splat(2.5012955427e-2f)));
  q = vf32_fma(q, size2, vf32_fma(vf32_splat(-0.10811008817f), size, vf32_splat(-0.63350665636f)));
  q = vf32_fma(q, size2, vf32_fma(vf32_splat(-1.1294330635f), size, vf32_splat(1.5701989635e-4f)));
  vf32 n, r = tern_v_exp_reduce(q, &n);
  const vf32 far = vf32_copysign(1.0f - vf32_scale_whole(1.0f + tern_v_exp_less_one(r), n), x);
  return vf32_select(vf32_abs(x) < 1.0f, near, far);
}

/* 2 Phi(x) = 1 + erf(x / sqrt 2): 1.8e-7 (1.2e-7 below 0). exp(Q(|x|)) is the tail that is left, with Q a fit of ln(erfc(|x| / sqrt 2)) weighted by it. */
TERN_INLINE vf32 tern_v_twice_normal_cdf(vf32 x) {
  const vf32 size = vf32_min(vf32_splat(10.5f), vf32_abs(x)), square = size * size; /* in this order, NaN stays; beyond, the tail is 0 */
  vf32 q = vf32_fma(vf32_splat(-1.965003382e-6f), size, vf32_splat(2.729443772e-5f));
  q = vf32_fma(q, square, vf32_fma(vf32_splat(-1.290498636e-4f), size, vf32_splat(-9.491807497e-5f)));
  q = vf32_fma(q, square, vf32_fma(vf32_splat(4.895990978e-3f), size, vf32_splat(-3.638757878e-2f)));
  q = vf32_fma(q, square, vf32_fma(vf32_splat(-0.3182988666f), size, vf32_splat(-0.7978853276f)));
  vf32 n, r = tern_v_exp_reduce(q * size, &n);
  const vf32 tail = vf32_scale_whole(1.0f + tern_v_exp_less_one(r), n);
  return vf32_select((vi32)x >> 31, tail, 2.0f - tail);
}

/* sin (quarter 0) or cos (quarter 1) for |x| <= 8192: 2 ulp. pi/2 in four parts, the first three so short that n times them is exact. */
TERN_INLINE vf32 tern_v_sine_quarter(vf32 x, int quarter) {
  vf32 n = vf32_round(x * 0.636619772368f);
  vf32 r = vf32_fnma(n, vf32_splat(1.5703125f), x);
  r = vf32_fnma(n, vf32_splat(4.837512969970703125e-4f), r);
  r = vf32_fnma(n, vf32_splat(7.549533620476723e-8f), r);
  r = vf32_fnma(n, vf32_splat(2.5633440682570896e-12f), r);
  vf32 square = r * r;
  vf32 s = vf32_splat(2.7182376727e-6f);
  s = vf32_fma(s, square, vf32_splat(-1.9839327187e-4f));
  s = vf32_fma(s, square, vf32_splat(8.3333293625e-3f));
  s = vf32_fma(s, square, vf32_splat(-0.16666666641f));
  s = vf32_fma(s * square, r, r);
  vf32 c = vf32_splat(-2.7209563162e-7f);
  c = vf32_fma(c, square, vf32_splat(2.4799511979e-5f));
  c = vf32_fma(c, square, vf32_splat(-1.3888883724e-3f));
  c = vf32_fma(c, square, vf32_splat(4.1666666622e-2f));
  c = vf32_fma(c, square * square, vf32_fma(square, vf32_splat(-0.5f), vf32_splat(1.0f)));
  vi32 which = vf32_to_i32(n) + quarter;
  vf32 y = vf32_select((which & 1) != 0, c, s);
  return (vf32)((vu32)y ^ ((vu32)(which & 2) << 30));
}
TERN_INLINE vf32 tern_v_sine(vf32 x) {
  vi32 large = ~(vf32_abs(x) <= 8192.0f);
  vf32 y = tern_v_sine_quarter(x, 0);
  if (__builtin_expect(vf32_any(large), 0))
    for (int i = 0; i < VF32_LANES; i++)
      if (large[i]) y[i] = sinf(x[i]);
  return vf32_select(x == 0.0f, x, y);
}
TERN_INLINE vf32 tern_v_cosine(vf32 x) {
  vi32 large = ~(vf32_abs(x) <= 8192.0f);
  vf32 y = tern_v_sine_quarter(x, 1);
  if (__builtin_expect(vf32_any(large), 0))
    for (int i = 0; i < VF32_LANES; i++)
      if (large[i]) y[i] = cosf(x[i]);
  return y;
}

/* out[i] = function(x[i]) for n elements, any alignment; out may be x. The last lanes go through a padded vector, so every element has the same bits
 * wherever it stands. */
#define TERN_V_MAP(function, out, x, n)                                                                                  \
  do {                                                                                                                   \
    int64_t map_i_ = 0, map_n_ = (n);                                                                                    \
    float *map_out_ = (out);                                                                                             \
    const float *map_x_ = (x);                                                                                           \
    for (; map_i_ + VF32_LANES <= map_n_; map_i_ += VF32_LANES) vf32_store(map_out_ + map_i_, function(vf32_load(map_x_ + map_i_))); \
    if (map_i_ < map_n_)                                                                                                 \
      vf32_store_n(map_out_ + map_i_, map_n_ - map_i_, function(vf32_load_n(map_x_ + map_i_, map_n_ - map_i_, 1.0f)));   \
  } while (0)
#endif
