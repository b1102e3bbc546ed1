/* AVX2 with FMA and F16C: 32-byte vectors. */
#ifndef TERN_VECTOR_AVX2_H
#define TERN_VECTOR_AVX2_H
#include <immintrin.h>
TERN_VECTOR_TYPES(32)
#define VF32_NUMBERS {0, 1, 2, 3, 4, 5, 6, 7}
#define VF64_NUMBERS {0, 1, 2, 3}

TERN_INLINE vf32 vf32_fma(vf32 a, vf32 b, vf32 c) { return (vf32)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)c); }
TERN_INLINE vf32 vf32_fnma(vf32 a, vf32 b, vf32 c) { return (vf32)_mm256_fnmadd_ps((__m256)a, (__m256)b, (__m256)c); }
TERN_INLINE vf64 vf64_fma(vf64 a, vf64 b, vf64 c) { return (vf64)_mm256_fmadd_pd((__m256d)a, (__m256d)b, (__m256d)c); }
TERN_INLINE vf32 vf32_sqrt(vf32 v) { return (vf32)_mm256_sqrt_ps((__m256)v); }
TERN_INLINE vf32 vf32_select(vi32 mask, vf32 yes, vf32 no) { return (vf32)_mm256_blendv_ps((__m256)no, (__m256)yes, (__m256)mask); }
TERN_INLINE vf64 vf64_select(vi64 mask, vf64 yes, vf64 no) { return (vf64)_mm256_blendv_pd((__m256d)no, (__m256d)yes, (__m256d)mask); }
TERN_INLINE vf32 vf32_max(vf32 x, vf32 y) { return (vf32)_mm256_max_ps((__m256)x, (__m256)y); }
TERN_INLINE vf32 vf32_min(vf32 x, vf32 y) { return (vf32)_mm256_min_ps((__m256)x, (__m256)y); }
/* 11 bits, doubled twice by Newton's step r + r (1 - x r). */
TERN_INLINE vf32 vf32_reciprocal(vf32 x) {
  vf32 r = (vf32)_mm256_rcp_ps((__m256)x);
  r = vf32_fma(r, vf32_fnma(x, r, 1.0f - (vf32){0}), r);
  return vf32_fma(r, vf32_fnma(x, r, 1.0f - (vf32){0}), r);
}
TERN_INLINE vf32 vf32_where_nan(vf32 x, vf32 y) { return vf32_select(x != x, x, y); }
TERN_INLINE bool vf32_any(vi32 mask) { return _mm256_movemask_ps((__m256)mask) != 0; }
TERN_INLINE vf32 vf32_round(vf32 v) { return (vf32)_mm256_round_ps((__m256)v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
TERN_INLINE vf32 vf32_floor(vf32 v) { return (vf32)_mm256_floor_ps((__m256)v); }
/* v * 2^n for -252 <= n <= 254: in two exact steps, so that only the last may round or overflow. */
TERN_INLINE vf32 vf32_scale(vf32 v, vi32 n) {
  vi32 half = n >> 1;
  return v * (vf32)((half + 127) << 23) * (vf32)((n - half + 127) << 23);
}
TERN_INLINE vf32 vf32_scale_whole(vf32 v, vf32 n) { return vf32_scale(v, __builtin_convertvector(n, vi32)); }
/* The 64-bit products of the lower 32 bits of each lane; the upper halves are ignored. */
TERN_INLINE vu64 vu64_multiply_u32(vu64 a, vu64 b) { return (vu64)_mm256_mul_epu32((__m256i)a, (__m256i)b); }
/* The first n lanes; the others are `rest`. */
TERN_INLINE __m256i vf32_first(int64_t n) { return _mm256_cmpgt_epi32(_mm256_set1_epi32((int)n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7)); }
TERN_INLINE __m256i vf64_first(int64_t n) { return _mm256_cmpgt_epi64(_mm256_set1_epi64x(n), _mm256_setr_epi64x(0, 1, 2, 3)); }
TERN_INLINE vf32 vf32_load_n(const float *p, int64_t n, float rest) {
  const __m256i first = vf32_first(n);
  return (vf32)_mm256_blendv_ps(_mm256_set1_ps(rest), _mm256_maskload_ps(p, first), (__m256)first);
}
TERN_INLINE void vf32_store_n(float *p, int64_t n, vf32 v) { _mm256_maskstore_ps(p, vf32_first(n), (__m256)v); }
TERN_INLINE vf64 vf64_load_n(const double *p, int64_t n, double rest) {
  const __m256i first = vf64_first(n);
  return (vf64)_mm256_blendv_pd(_mm256_set1_pd(rest), _mm256_maskload_pd(p, first), (__m256d)first);
}
TERN_INLINE void vf64_store_n(double *p, int64_t n, vf64 v) { _mm256_maskstore_pd(p, vf64_first(n), (__m256d)v); }
TERN_INLINE vf32 vf32_load_bf16(const uint16_t *p) { return (vf32)_mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128((const void *)p)), 16); }
TERN_INLINE vf32 vf32_load_f16(const uint16_t *p) { return (vf32)_mm256_cvtph_ps(_mm_loadu_si128((const void *)p)); }
TERN_INLINE void vf32_store_f16(uint16_t *p, vf32 v) { _mm_storeu_si128((void *)p, _mm256_cvtps_ph((__m256)v, _MM_FROUND_TO_NEAREST_INT)); }
#endif
