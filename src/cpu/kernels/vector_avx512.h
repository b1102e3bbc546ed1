/* AVX-512 F, BW, DQ, VL: 64-byte vectors. */
#ifndef TERN_VECTOR_AVX512_H
#define TERN_VECTOR_AVX512_H
#include <immintrin.h>
TERN_VECTOR_TYPES(64)
#define VF32_NUMBERS {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}
#define VF64_NUMBERS {0, 1, 2, 3, 4, 5, 6, 7}

TERN_INLINE vf32 vf32_fma(vf32 a, vf32 b, vf32 c) { return (vf32)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c); }
TERN_INLINE vf32 vf32_fnma(vf32 a, vf32 b, vf32 c) { return (vf32)_mm512_fnmadd_ps((__m512)a, (__m512)b, (__m512)c); }
TERN_INLINE vf64 vf64_fma(vf64 a, vf64 b, vf64 c) { return (vf64)_mm512_fmadd_pd((__m512d)a, (__m512d)b, (__m512d)c); }
TERN_INLINE vf32 vf32_sqrt(vf32 v) { return (vf32)_mm512_sqrt_ps((__m512)v); }
TERN_INLINE vf32 vf32_select(vi32 mask, vf32 yes, vf32 no) {
  return (vf32)_mm512_ternarylogic_epi32((__m512i)mask, (__m512i)yes, (__m512i)no, 0xCA); /* bit by bit: mask ? yes : no */
}
TERN_INLINE vf64 vf64_select(vi64 mask, vf64 yes, vf64 no) {
  return (vf64)_mm512_ternarylogic_epi64((__m512i)mask, (__m512i)yes, (__m512i)no, 0xCA);
}
TERN_INLINE vf32 vf32_max(vf32 x, vf32 y) { return (vf32)_mm512_max_ps((__m512)x, (__m512)y); }
TERN_INLINE vf32 vf32_min(vf32 x, vf32 y) { return (vf32)_mm512_min_ps((__m512)x, (__m512)y); }
TERN_INLINE vf32 vf32_where_nan(vf32 x, vf32 y) { return (vf32)_mm512_mask_mov_ps((__m512)y, _mm512_cmp_ps_mask((__m512)x, (__m512)x, _CMP_UNORD_Q), (__m512)x); }
/* 14 bits, doubled by Newton's step r + r (1 - x r). */
TERN_INLINE vf32 vf32_reciprocal(vf32 x) {
  vf32 r = (vf32)_mm512_rcp14_ps((__m512)x);
  return vf32_fma(r, vf32_fnma(x, r, 1.0f - (vf32){0}), r);
}
TERN_INLINE bool vf32_any(vi32 mask) { return _mm512_movepi32_mask((__m512i)mask) != 0; }
TERN_INLINE vf32 vf32_round(vf32 v) { return (vf32)_mm512_roundscale_ps((__m512)v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
TERN_INLINE vf32 vf32_floor(vf32 v) { return (vf32)_mm512_roundscale_ps((__m512)v, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC); }
/* v * 2^n, one rounding. */
TERN_INLINE vf32 vf32_scale(vf32 v, vi32 n) { return (vf32)_mm512_scalef_ps((__m512)v, _mm512_cvtepi32_ps((__m512i)n)); }
TERN_INLINE vf32 vf32_scale_whole(vf32 v, vf32 n) { return (vf32)_mm512_scalef_ps((__m512)v, (__m512)n); }
/* The 64-bit products of the lower 32 bits of each lane; the upper halves are ignored. */
TERN_INLINE vu64 vu64_multiply_u32(vu64 a, vu64 b) { return (vu64)_mm512_mul_epu32((__m512i)a, (__m512i)b); }
/* The first n lanes; the others are `rest`. */
TERN_INLINE vf32 vf32_load_n(const float *p, int64_t n, float rest) { return (vf32)_mm512_mask_loadu_ps(_mm512_set1_ps(rest), (__mmask16)((1u << n) - 1), p); }
TERN_INLINE void vf32_store_n(float *p, int64_t n, vf32 v) { _mm512_mask_storeu_ps(p, (__mmask16)((1u << n) - 1), (__m512)v); }
TERN_INLINE vf64 vf64_load_n(const double *p, int64_t n, double rest) { return (vf64)_mm512_mask_loadu_pd(_mm512_set1_pd(rest), (__mmask8)((1u << n) - 1), p); }
TERN_INLINE void vf64_store_n(double *p, int64_t n, vf64 v) { _mm512_mask_storeu_pd(p, (__mmask8)((1u << n) - 1), (__m512d)v); }
TERN_INLINE vf32 vf32_load_bf16(const uint16_t *p) { return (vf32)_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_loadu_si256((const void *)p)), 16); }
TERN_INLINE vf32 vf32_load_f16(const uint16_t *p) { return (vf32)_mm512_cvtph_ps(_mm256_loadu_si256((const void *)p)); }
TERN_INLINE void vf32_store_f16(uint16_t *p, vf32 v) { _mm256_storeu_si256((void *)p, _mm512_cvtps_ph((__m512)v, _MM_FROUND_TO_NEAREST_INT)); }
#endif
