/* NEON (AArch64, where it is always there): 16-byte vectors. */
#ifndef TERN_VECTOR_NEON_H
#define TERN_VECTOR_NEON_H
#include <arm_neon.h>
TERN_VECTOR_TYPES(16)
#define VF32_NUMBERS {0, 1, 2, 3}
#define VF64_NUMBERS {0, 1}

TERN_INLINE vf32 vf32_fma(vf32 a, vf32 b, vf32 c) { return (vf32)vfmaq_f32((float32x4_t)c, (float32x4_t)a, (float32x4_t)b); }
TERN_INLINE vf32 vf32_fnma(vf32 a, vf32 b, vf32 c) { return (vf32)vfmsq_f32((float32x4_t)c, (float32x4_t)a, (float32x4_t)b); }
TERN_INLINE vf64 vf64_fma(vf64 a, vf64 b, vf64 c) { return (vf64)vfmaq_f64((float64x2_t)c, (float64x2_t)a, (float64x2_t)b); }
TERN_INLINE vf32 vf32_sqrt(vf32 v) { return (vf32)vsqrtq_f32((float32x4_t)v); }
TERN_INLINE vf32 vf32_select(vi32 mask, vf32 yes, vf32 no) { return (vf32)vbslq_f32((uint32x4_t)mask, (float32x4_t)yes, (float32x4_t)no); }
TERN_INLINE vf64 vf64_select(vi64 mask, vf64 yes, vf64 no) { return (vf64)vbslq_f64((uint64x2_t)mask, (float64x2_t)yes, (float64x2_t)no); }
/* Not vmaxq_f32, which gives NaN where either is one. */
TERN_INLINE vf32 vf32_max(vf32 x, vf32 y) { return vf32_select(x > y, x, y); }
TERN_INLINE vf32 vf32_min(vf32 x, vf32 y) { return vf32_select(x < y, x, y); }
/* 8 bits, doubled three times by Newton's step. */
TERN_INLINE vf32 vf32_reciprocal(vf32 x) {
  float32x4_t v = (float32x4_t)x, r = vrecpeq_f32(v);
  r = vmulq_f32(r, vrecpsq_f32(v, r));
  r = vmulq_f32(r, vrecpsq_f32(v, r));
  return (vf32)vfmaq_f32(r, r, vfmsq_f32(vdupq_n_f32(1.0f), v, r));
}
TERN_INLINE vf32 vf32_where_nan(vf32 x, vf32 y) { return vf32_select(x != x, x, y); }
TERN_INLINE bool vf32_any(vi32 mask) { return vmaxvq_u32((uint32x4_t)mask) != 0; }
TERN_INLINE vf32 vf32_round(vf32 v) { return (vf32)vrndnq_f32((float32x4_t)v); }
TERN_INLINE vf32 vf32_floor(vf32 v) { return (vf32)vrndmq_f32((float32x4_t)v); }
/* v * 2^n for -252 <= n <= 254: in two exact steps, so that only the last may round or overflow. */
TERN_INLINE vf32 vf32_scale(vf32 v, vi32 n) {
  vi32 half = n >> 1;
  return v * (vf32)((half + 127) << 23) * (vf32)((n - half + 127) << 23);
}
TERN_INLINE vf32 vf32_scale_whole(vf32 v, vf32 n) { return vf32_scale(v, __builtin_convertvector(n, vi32)); }
/* The 64-bit products of the lower 32 bits of each lane; the upper halves are ignored. */
TERN_INLINE vu64 vu64_multiply_u32(vu64 a, vu64 b) { return (vu64)vmull_u32(vmovn_u64((uint64x2_t)a), vmovn_u64((uint64x2_t)b)); }
/* The first n lanes; the others are `rest`. */
TERN_INLINE vf32 vf32_load_n(const float *p, int64_t n, float rest) {
  vf32 v = rest - (vf32){0};
  memcpy(&v, p, (size_t)n * sizeof(float));
  return v;
}
TERN_INLINE void vf32_store_n(float *p, int64_t n, vf32 v) { memcpy(p, &v, (size_t)n * sizeof(float)); }
TERN_INLINE vf64 vf64_load_n(const double *p, int64_t n, double rest) {
  vf64 v = rest - (vf64){0};
  memcpy(&v, p, (size_t)n * sizeof(double));
  return v;
}
TERN_INLINE void vf64_store_n(double *p, int64_t n, vf64 v) { memcpy(p, &v, (size_t)n * sizeof(double)); }
TERN_INLINE vf32 vf32_load_bf16(const uint16_t *p) { return (vf32)vshll_n_u16(vld1_u16(p), 16); }
TERN_INLINE vf32 vf32_load_f16(const uint16_t *p) { return (vf32)vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(p))); }
TERN_INLINE void vf32_store_f16(uint16_t *p, vf32 v) { vst1_u16(p, vreinterpret_u16_f16(vcvt_f16_f32((float32x4_t)v))); }
#endif
