/* tile: the few vector operations that matrix tiles, convolutions and pooling need, once per instruction set and element type.
 *
 * For each of f32 and f64: a vector type, its lanes, loads and stores of whole vectors and of the first n lanes, splat, a + b * c in one rounding where the
 * instruction set has it (two on the x86-64 baseline), and the transpose of a small square block. Pointers need no more than element alignment. */
#ifndef TERN_TILE_H
#define TERN_TILE_H
#include "kernels.h"
#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

/* Objects for "neon" only: "baseline" is plain C on AArch64 too, as a reference. */
#if defined(TERN_NEON)
#define TILE_NEON 1
#else
#define TILE_NEON 0
#endif

#define TILE_INLINE static inline __attribute__((always_inline, unused))
#define TILE_UNROLL _Pragma("GCC unroll 16")

#if defined(__AVX512F__)

typedef __m512 tile_f32;
typedef __m512d tile_f64;
#define TILE_LANES_f32 16
#define TILE_LANES_f64 8
/* Rows of one tile of a matrix product: with two vectors a row its sums fill the registers, but for one splat and the two vectors of the other operand. */
#define TILE_ROWS 14
/* Loads and stores of the first lanes cost no more than whole ones, so that one body serves both. */
#define TILE_PARTIAL_IS_FREE 1
TILE_INLINE __mmask16 tile_mask_f32(int64_t n) { return (__mmask16)((1u << n) - 1); }
TILE_INLINE __mmask8 tile_mask_f64(int64_t n) { return (__mmask8)((1u << n) - 1); }
TILE_INLINE tile_f32 tile_zero_f32(void) { return _mm512_setzero_ps(); }
TILE_INLINE tile_f64 tile_zero_f64(void) { return _mm512_setzero_pd(); }
TILE_INLINE tile_f32 tile_splat_f32(float x) { return _mm512_set1_ps(x); }
TILE_INLINE tile_f64 tile_splat_f64(double x) { return _mm512_set1_pd(x); }
TILE_INLINE tile_f32 tile_load_f32(const float *p) { return _mm512_loadu_ps(p); }
TILE_INLINE tile_f64 tile_load_f64(const double *p) { return _mm512_loadu_pd(p); }
TILE_INLINE void tile_store_f32(float *p, tile_f32 x) { _mm512_storeu_ps(p, x); }
TILE_INLINE void tile_store_f64(double *p, tile_f64 x) { _mm512_storeu_pd(p, x); }
TILE_INLINE tile_f32 tile_load_first_f32(const float *p, int64_t n) { return _mm512_maskz_loadu_ps(tile_mask_f32(n), p); }
TILE_INLINE tile_f64 tile_load_first_f64(const double *p, int64_t n) { return _mm512_maskz_loadu_pd(tile_mask_f64(n), p); }
TILE_INLINE void tile_store_first_f32(float *p, tile_f32 x, int64_t n) { _mm512_mask_storeu_ps(p, tile_mask_f32(n), x); }
TILE_INLINE void tile_store_first_f64(double *p, tile_f64 x, int64_t n) { _mm512_mask_storeu_pd(p, tile_mask_f64(n), x); }
TILE_INLINE tile_f32 tile_fma_f32(tile_f32 x, tile_f32 y, tile_f32 sum) { return _mm512_fmadd_ps(x, y, sum); }
TILE_INLINE tile_f64 tile_fma_f64(tile_f64 x, tile_f64 y, tile_f64 sum) { return _mm512_fmadd_pd(x, y, sum); }

#elif defined(__AVX2__) && defined(__FMA__)

typedef __m256 tile_f32;
typedef __m256d tile_f64;
#define TILE_LANES_f32 8
#define TILE_LANES_f64 4
#define TILE_ROWS 6
#define TILE_PARTIAL_IS_FREE 0
TILE_INLINE __m256i tile_mask_f32(int64_t n) { return _mm256_cmpgt_epi32(_mm256_set1_epi32((int)n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7)); }
TILE_INLINE __m256i tile_mask_f64(int64_t n) { return _mm256_cmpgt_epi64(_mm256_set1_epi64x(n), _mm256_setr_epi64x(0, 1, 2, 3)); }
TILE_INLINE tile_f32 tile_zero_f32(void) { return _mm256_setzero_ps(); }
TILE_INLINE tile_f64 tile_zero_f64(void) { return _mm256_setzero_pd(); }
TILE_INLINE tile_f32 tile_splat_f32(float x) { return _mm256_set1_ps(x); }
TILE_INLINE tile_f64 tile_splat_f64(double x) { return _mm256_set1_pd(x); }
TILE_INLINE tile_f32 tile_load_f32(const float *p) { return _mm256_loadu_ps(p); }
TILE_INLINE tile_f64 tile_load_f64(const double *p) { return _mm256_loadu_pd(p); }
TILE_INLINE void tile_store_f32(float *p, tile_f32 x) { _mm256_storeu_ps(p, x); }
TILE_INLINE void tile_store_f64(double *p, tile_f64 x) { _mm256_storeu_pd(p, x); }
TILE_INLINE tile_f32 tile_load_first_f32(const float *p, int64_t n) { return _mm256_maskload_ps(p, tile_mask_f32(n)); }
TILE_INLINE tile_f64 tile_load_first_f64(const double *p, int64_t n) { return _mm256_maskload_pd(p, tile_mask_f64(n)); }
TILE_INLINE void tile_store_first_f32(float *p, tile_f32 x, int64_t n) { _mm256_maskstore_ps(p, tile_mask_f32(n), x); }
TILE_INLINE void tile_store_first_f64(double *p, tile_f64 x, int64_t n) { _mm256_maskstore_pd(p, tile_mask_f64(n), x); }
TILE_INLINE tile_f32 tile_fma_f32(tile_f32 x, tile_f32 y, tile_f32 sum) { return _mm256_fmadd_ps(x, y, sum); }
TILE_INLINE tile_f64 tile_fma_f64(tile_f64 x, tile_f64 y, tile_f64 sum) { return _mm256_fmadd_pd(x, y, sum); }

#else

typedef float tile_f32 __attribute__((vector_size(16)));
typedef double tile_f64 __attribute__((vector_size(16)));
#define TILE_LANES_f32 4
#define TILE_LANES_f64 2
/* NEON has 32 registers, SSE2 16. */
#if TILE_NEON
#define TILE_ROWS 12
#else
#define TILE_ROWS 4
#endif
#define TILE_PARTIAL_IS_FREE 0
TILE_INLINE tile_f32 tile_zero_f32(void) { return (tile_f32){0}; }
TILE_INLINE tile_f64 tile_zero_f64(void) { return (tile_f64){0}; }
TILE_INLINE tile_f32 tile_splat_f32(float x) { return (tile_f32){x, x, x, x}; }
TILE_INLINE tile_f64 tile_splat_f64(double x) { return (tile_f64){x, x}; }
#if TILE_NEON
TILE_INLINE tile_f32 tile_fma_f32(tile_f32 x, tile_f32 y, tile_f32 sum) { return (tile_f32)vfmaq_f32((float32x4_t)sum, (float32x4_t)x, (float32x4_t)y); }
TILE_INLINE tile_f64 tile_fma_f64(tile_f64 x, tile_f64 y, tile_f64 sum) { return (tile_f64)vfmaq_f64((float64x2_t)sum, (float64x2_t)x, (float64x2_t)y); }
#else
TILE_INLINE tile_f32 tile_fma_f32(tile_f32 x, tile_f32 y, tile_f32 sum) { return x * y + sum; }
TILE_INLINE tile_f64 tile_fma_f64(tile_f64 x, tile_f64 y, tile_f64 sum) { return x * y + sum; }
#endif
#define TILE_BASELINE(T, REAL)                                                                                                                             \
  TILE_INLINE tile_##T tile_load_##T(const REAL *p) { tile_##T x; memcpy(&x, p, sizeof x); return x; }                                                     \
  TILE_INLINE void tile_store_##T(REAL *p, tile_##T x) { memcpy(p, &x, sizeof x); }                                                                        \
  TILE_INLINE tile_##T tile_load_first_##T(const REAL *p, int64_t n) { tile_##T x = tile_zero_##T(); for (int64_t i = 0; i < n; i++) x[i] = p[i]; return x; } \
  TILE_INLINE void tile_store_first_##T(REAL *p, tile_##T x, int64_t n) { for (int64_t i = 0; i < n; i++) p[i] = x[i]; }
TILE_BASELINE(f32, float)
TILE_BASELINE(f64, double)
#undef TILE_BASELINE

#endif

/* ---- to[j * to_stride + i] = from[i * from_stride + j] for i, j < TILE_SQUARE ---- */
#if defined(__AVX2__)
#define TILE_SQUARE_f32 8
#define TILE_SQUARE_f64 4
TILE_INLINE void tile_transpose_f32(const float *from, int64_t from_stride, float *to, int64_t to_stride) {
  __m256 r[8], s[8];
  /* Rows i and i + 4 share a register by halves, which leaves only shuffles within halves. */
  TILE_UNROLL for (int i = 0; i < 4; i++) {
    const float *low = from + i * from_stride, *high = low + 4 * from_stride;
    r[i] = _mm256_insertf128_ps(_mm256_castps128_ps256(_mm_loadu_ps(low)), _mm_loadu_ps(high), 1);
    r[i + 4] = _mm256_insertf128_ps(_mm256_castps128_ps256(_mm_loadu_ps(low + 4)), _mm_loadu_ps(high + 4), 1);
  }
  TILE_UNROLL for (int h = 0; h < 8; h += 4) {
    s[h] = _mm256_unpacklo_ps(r[h], r[h + 1]);
    s[h + 1] = _mm256_unpackhi_ps(r[h], r[h + 1]);
    s[h + 2] = _mm256_unpacklo_ps(r[h + 2], r[h + 3]);
    s[h + 3] = _mm256_unpackhi_ps(r[h + 2], r[h + 3]);
    _mm256_storeu_ps(to + (h + 0) * to_stride, _mm256_shuffle_ps(s[h], s[h + 2], 0x44));
    _mm256_storeu_ps(to + (h + 1) * to_stride, _mm256_shuffle_ps(s[h], s[h + 2], 0xEE));
    _mm256_storeu_ps(to + (h + 2) * to_stride, _mm256_shuffle_ps(s[h + 1], s[h + 3], 0x44));
    _mm256_storeu_ps(to + (h + 3) * to_stride, _mm256_shuffle_ps(s[h + 1], s[h + 3], 0xEE));
  }
}
TILE_INLINE void tile_transpose_f64(const double *from, int64_t from_stride, double *to, int64_t to_stride) {
  TILE_UNROLL for (int h = 0; h < 4; h += 2) {
    __m256d a = _mm256_insertf128_pd(_mm256_castpd128_pd256(_mm_loadu_pd(from + h)), _mm_loadu_pd(from + 2 * from_stride + h), 1);
    __m256d b = _mm256_insertf128_pd(_mm256_castpd128_pd256(_mm_loadu_pd(from + from_stride + h)), _mm_loadu_pd(from + 3 * from_stride + h), 1);
    _mm256_storeu_pd(to + h * to_stride, _mm256_unpacklo_pd(a, b));
    _mm256_storeu_pd(to + (h + 1) * to_stride, _mm256_unpackhi_pd(a, b));
  }
}
#else
#define TILE_SQUARE_f32 4
#define TILE_SQUARE_f64 2
#define TILE_TRANSPOSE_PLAIN(T, REAL)                                                                                       \
  TILE_INLINE void tile_transpose_##T(const REAL *from, int64_t from_stride, REAL *to, int64_t to_stride) {                  \
    for (int i = 0; i < TILE_SQUARE_##T; i++)                                                                                \
      for (int j = 0; j < TILE_SQUARE_##T; j++) to[j * to_stride + i] = from[i * from_stride + j];                           \
  }
TILE_TRANSPOSE_PLAIN(f32, float)
TILE_TRANSPOSE_PLAIN(f64, double)
#undef TILE_TRANSPOSE_PLAIN
#endif

/* ---- half precision to and from f32: contiguous runs ---- */
TILE_INLINE void tile_widen_bf16(float *to, const uint16_t *from, int64_t n) {
  for (int64_t i = 0; i < n; i++) {
    uint32_t bits = (uint32_t)from[i] << 16;
    memcpy(&to[i], &bits, sizeof bits);
  }
}
TILE_INLINE void tile_narrow_bf16(uint16_t *to, const float *from, int64_t n) {
  for (int64_t i = 0; i < n; i++) {
    uint32_t bits;
    memcpy(&bits, &from[i], sizeof bits);
    uint32_t rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16;
    to[i] = (uint16_t)((bits & 0x7FFFFFFF) > 0x7F800000 ? 0x7FC0 : rounded); /* as tern_f32_to_bf16 */
  }
}
TILE_INLINE void tile_widen_f16(float *to, const uint16_t *from, int64_t n) {
  int64_t i = 0;
#if defined(__F16C__)
  for (; i + 8 <= n; i += 8) _mm256_storeu_ps(to + i, _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)(from + i))));
#elif TILE_NEON
  for (; i + 4 <= n; i += 4) vst1q_f32(to + i, vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(from + i))));
#endif
  for (; i < n; i++) to[i] = tern_f16_to_f32(from[i]);
}
TILE_INLINE void tile_narrow_f16(uint16_t *to, const float *from, int64_t n) {
  int64_t i = 0;
#if defined(__F16C__)
  for (; i + 8 <= n; i += 8) _mm_storeu_si128((__m128i *)(void *)(to + i), _mm256_cvtps_ph(_mm256_loadu_ps(from + i), _MM_FROUND_TO_NEAREST_INT));
#elif TILE_NEON
  for (; i + 4 <= n; i += 4) vst1_u16(to + i, vreinterpret_u16_f16(vcvt_f16_f32(vld1q_f32(from + i))));
#endif
  for (; i < n; i++) to[i] = tern_f32_to_f16(from[i]);
}

#endif
