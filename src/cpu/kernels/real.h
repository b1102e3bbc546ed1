/* real: one vocabulary for f32 and f64, so that softmax, norms and attention are written once as templates and included for both.
 *
 * A template is included between `#include "real_f32.h"` or `#include "real_f64.h"`, which define
 *   REAL       the type arithmetic is done in
 *   VECTOR     its vector, LANES how many
 *   V(name)    the vector operation: V(load) is vf32_load or vf64_load
 *   R(name)    a name with the type's suffix: R(softmax_row) is softmax_row_f32 or softmax_row_f64
 * f16 and bf16 arrays are worked on in f32, a row at a time: R(row_load) and R(row_store) convert where they must and cost nothing where not. */
#ifndef TERN_KERNEL_REAL_H
#define TERN_KERNEL_REAL_H
#include "lines.h"
#include "math.h"
#include "vector.h"

#define TERN_HELPER static __attribute__((unused))

/* ---- f32 ---- */
TERN_INLINE vf32 vf32_exp(vf32 x) { return tern_v_exp(x); }
/* e^x for the x of softmax: at most a little above 0, or NaN. What would be a denormal number is 0: they cost a hundred cycles each, and every -inf of a mask
 * would pass through them. */
TERN_INLINE vf32 vf32_exp_below(vf32 x) {
  vf32 n, r = tern_v_exp_reduce(vf32_max(vf32_splat(-87.0f), x), &n);
  return vf32_select(x < -87.0f, vf32_splat(0.0f), vf32_scale_whole(1.0f + tern_v_exp_less_one(r), n));
}
TERN_INLINE vf32 vf32_log(vf32 x) { return tern_v_log(x); }
TERN_INLINE vf32 vf32_twice_normal_cdf(vf32 x) { return tern_v_twice_normal_cdf(x); }
TERN_INLINE vf32 vf32_tanh(vf32 x) { return tern_v_tanh(x); }

/* ---- f64: what vector.h has for f32; the elementary functions are the C library's, lane by lane ---- */
TERN_INLINE vf64 vf64_max(vf64 x, vf64 y) { return vf64_select(x > y, x, y); }
TERN_INLINE vf64 vf64_swap(vf64 v, const int half) {
  return __builtin_shuffle(v, (vi64)VF64_NUMBERS ^ half);
}
TERN_INLINE double vf64_sum(vf64 v) {
#pragma GCC unroll 8
  for (int half = VF64_LANES / 2; half > 0; half /= 2) v += vf64_swap(v, half);
  return v[0];
}
TERN_INLINE double vf64_largest(vf64 v) {
#pragma GCC unroll 8
  for (int half = VF64_LANES / 2; half > 0; half /= 2) {
    const vf64 other = vf64_swap(v, half);
    v = vf64_select((v > other) | (v != v), v, other);
  }
  return v[0];
}
#define TERN_F64_BY_LANE(name)                                     \
  TERN_INLINE vf64 vf64_##name(vf64 x) {                           \
    for (int i = 0; i < VF64_LANES; i++) x[i] = name(x[i]);        \
    return x;                                                      \
  }
TERN_F64_BY_LANE(exp)
TERN_F64_BY_LANE(log)
TERN_F64_BY_LANE(erf)
TERN_F64_BY_LANE(tanh)
#undef TERN_F64_BY_LANE
TERN_INLINE vf64 vf64_exp_below(vf64 x) { return vf64_exp(x); }
TERN_INLINE vf64 vf64_twice_normal_cdf(vf64 x) { return 1.0 + vf64_erf(x * 0.70710678118654752440); }

/* ---- rows of any floating-point dtype ---- */

/* The n elements at `source` as f32: themselves, or converted into `room`. */
TERN_HELPER const float *row_load_f32(tern_dtype dtype, const void *source, int64_t n, float *room) {
  if (dtype == TERN_F32) return source;
  const uint16_t *half = source;
  int64_t i = 0;
  if (dtype == TERN_BF16) {
    for (; i + VF32_LANES <= n; i += VF32_LANES) vf32_store(room + i, vf32_load_bf16(half + i));
    for (; i < n; i++) room[i] = tern_bf16_to_f32(half[i]);
  } else {
    for (; i + VF32_LANES <= n; i += VF32_LANES) vf32_store(room + i, vf32_load_f16(half + i));
    for (; i < n; i++) room[i] = tern_f16_to_f32(half[i]);
  }
  return room;
}
/* Writes the row to an array of `dtype`; nothing to do where it is there already. */
TERN_HELPER void row_store_f32(tern_dtype dtype, const float *row, int64_t n, void *out) {
  if (dtype == TERN_F32) {
    if (out != row) memcpy(out, row, (size_t)n * sizeof(float));
    return;
  }
  uint16_t *half = out;
  int64_t i = 0;
  if (dtype == TERN_BF16) {
    for (; i + VF32_LANES <= n; i += VF32_LANES) vf32_store_bf16(half + i, vf32_load(row + i));
    for (; i < n; i++) half[i] = tern_f32_to_bf16(row[i]);
  } else {
    for (; i + VF32_LANES <= n; i += VF32_LANES) vf32_store_f16(half + i, vf32_load(row + i));
    for (; i < n; i++) half[i] = tern_f32_to_f16(row[i]);
  }
}
TERN_HELPER const double *row_load_f64(tern_dtype dtype, const void *source, int64_t n, double *room) {
  (void)dtype;
  (void)n;
  (void)room;
  return source;
}
TERN_HELPER void row_store_f64(tern_dtype dtype, const double *row, int64_t n, void *out) {
  (void)dtype;
  if (out != row) memcpy(out, row, (size_t)n * sizeof(double));
}
/* Where a row may be computed: in the output itself if it has the type, else in `room`. */
TERN_HELPER float *row_place_f32(tern_dtype dtype, void *out, float *room) { return dtype == TERN_F32 ? out : room; }
TERN_HELPER double *row_place_f64(tern_dtype dtype, void *out, double *room) {
  (void)dtype;
  (void)room;
  return out;
}

/* One element at any stride. */
TERN_HELPER float element_load_f32(tern_dtype dtype, const void *p) {
  return dtype == TERN_F32 ? *(const float *)p : dtype == TERN_BF16 ? tern_bf16_to_f32(*(const uint16_t *)p) : tern_f16_to_f32(*(const uint16_t *)p);
}
TERN_HELPER double element_load_f64(tern_dtype dtype, const void *p) {
  (void)dtype;
  return *(const double *)p;
}
TERN_HELPER void element_store_f32(tern_dtype dtype, float x, void *p) {
  if (dtype == TERN_F32) *(float *)p = x;
  else *(uint16_t *)p = dtype == TERN_BF16 ? tern_f32_to_bf16(x) : tern_f32_to_f16(x);
}
TERN_HELPER void element_store_f64(tern_dtype dtype, double x, void *p) {
  (void)dtype;
  *(double *)p = x;
}

/* A scalar operand (epsilon, scale) of any floating-point dtype. */
TERN_HELPER double view_number(const tern_cpu_view *v) {
  return v->dtype == TERN_F64 ? *(const double *)v->data : (double)element_load_f32(v->dtype, v->data);
}

#endif
