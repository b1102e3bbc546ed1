/* vector: the one vocabulary of every kernel: vectors as wide as the instruction set, and the few operations that C lacks.
 *
 * Kernels are compiled once per instruction set with TERN_ISA naming it; this header takes the operations of that set from vector_<isa>.h, so that no
 * kernel has an #ifdef. Everything that GCC's vector types can say (+ - * /, comparisons, shifts) is written with operators; the rest is vf32_*, vf64_*.
 * Function names that differ per set are made by TERN_KERNEL(name).
 *
 * Masks are integer vectors of 0 and -1 per lane, as GCC's comparisons give them. Vectors are passed between inlined functions only. */
#ifndef TERN_VECTOR_H
#define TERN_VECTOR_H
#include "../cpu.h"

#define TERN_PASTE_(a, b) a##_##b
#define TERN_PASTE(a, b) TERN_PASTE_(a, b)
#define TERN_QUOTE_(x) #x
#define TERN_QUOTE(x) TERN_QUOTE_(x)
/* TERN_KERNEL(tern_dot) is tern_dot_avx512 in the objects built for AVX-512. */
#define TERN_KERNEL(name) TERN_PASTE(name, TERN_ISA)
#define TERN_INLINE static inline __attribute__((always_inline, unused))

#define TERN_VECTOR_HEADER_(isa) TERN_QUOTE(vector_##isa.h)
#define TERN_VECTOR_HEADER(isa) TERN_VECTOR_HEADER_(isa)
#define TERN_VECTOR_TYPES(bytes)                                   \
  typedef float vf32 __attribute__((vector_size(bytes)));          \
  typedef double vf64 __attribute__((vector_size(bytes)));         \
  typedef int32_t vi32 __attribute__((vector_size(bytes)));        \
  typedef uint32_t vu32 __attribute__((vector_size(bytes)));       \
  typedef int64_t vi64 __attribute__((vector_size(bytes)));        \
  typedef uint64_t vu64 __attribute__((vector_size(bytes)));       \
  enum { VF32_LANES = (bytes) / 4, VF64_LANES = (bytes) / 8 };

/* The header of the set defines the types, VF32_NUMBERS and VF64_NUMBERS (the initialiser of a vector with each lane's number) and: vf32_fma, vf32_fnma, vf32_sqrt, vf32_select, vf32_max and vf32_min (x if it is
 * the larger, or smaller, else y: so y where one is NaN), vf32_where_nan (x where x is NaN, else y), vf32_any, vf32_round, vf32_floor, vf32_scale (by 2^n, n an int), vf32_scale_whole (n a whole
 * number in an f32), vf32_load_f16,
 * vf32_store_f16, vf32_load_bf16, vf32_reciprocal (1/x to 1 ulp for 1 <= x < 2^100, faster than a division), for doubles vf64_fma,
 * vf64_select, vf64_load_n, vf64_store_n; and vu64_multiply_u32. */
#include TERN_VECTOR_HEADER(TERN_ISA)

/* ---- loads and stores: unaligned ---- */
TERN_INLINE vf32 vf32_load(const float *p) { vf32 v; memcpy(&v, p, sizeof v); return v; }
TERN_INLINE void vf32_store(float *p, vf32 v) { memcpy(p, &v, sizeof v); }
TERN_INLINE vf64 vf64_load(const double *p) { vf64 v; memcpy(&v, p, sizeof v); return v; }
TERN_INLINE void vf64_store(double *p, vf64 v) { memcpy(p, &v, sizeof v); }
TERN_INLINE vi32 vi32_load(const int32_t *p) { vi32 v; memcpy(&v, p, sizeof v); return v; }
TERN_INLINE void vi32_store(int32_t *p, vi32 v) { memcpy(p, &v, sizeof v); }

/* ---- making, choosing ---- */
TERN_INLINE vf32 vf32_splat(float x) { return x - (vf32){0}; } /* x - 0 is x for every x, -0 too */
TERN_INLINE vf64 vf64_splat(double x) { return x - (vf64){0}; }
TERN_INLINE vi32 vi32_splat(int32_t x) { return x + (vi32){0}; }
TERN_INLINE vi32 vf32_bits(vf32 v) { return (vi32)v; }
TERN_INLINE vf32 vf32_abs(vf32 v) { return (vf32)((vi32)v & 0x7FFFFFFF); }
TERN_INLINE vf32 vf32_copysign(vf32 size, vf32 sign) { return (vf32)(((vi32)size & 0x7FFFFFFF) | ((vi32)sign & INT32_MIN)); }
/* ops.def's maximum and minimum: NaN wins; of equal zeros y. */
TERN_INLINE vf32 vf32_maximum(vf32 x, vf32 y) { return vf32_where_nan(x, vf32_max(x, y)); }
TERN_INLINE vf32 vf32_minimum(vf32 x, vf32 y) { return vf32_where_nan(x, vf32_min(x, y)); }
/* Truncates; lanes out of int32's range give INT32_MIN. */
#if defined(__x86_64__)
TERN_INLINE vi32 vf32_to_i32(vf32 v) { return __builtin_convertvector(v, vi32); }
#else /* other machines saturate */
TERN_INLINE vi32 vf32_to_i32(vf32 v) {
  vi32 inside = (vf32_abs(v) < 0x1p31f);
  return (inside & __builtin_convertvector(v, vi32)) | (~inside & INT32_MIN);
}
#endif
TERN_INLINE vf32 vf32_from_i32(vi32 v) { return __builtin_convertvector(v, vf32); }

/* ---- across lanes: a fixed tree, halves folded onto each other ---- */
/* Every lane gets the one `half` away (half a power of two). */
TERN_INLINE vf32 vf32_swap(vf32 v, const int half) {
  return __builtin_shuffle(v, (vi32)VF32_NUMBERS ^ half);
}
TERN_INLINE float vf32_sum(vf32 v) {
#pragma GCC unroll 8
  for (int half = VF32_LANES / 2; half > 0; half /= 2) v += vf32_swap(v, half);
  return v[0];
}
/* NaN wins. */
TERN_INLINE float vf32_largest(vf32 v) {
#pragma GCC unroll 8
  for (int half = VF32_LANES / 2; half > 0; half /= 2) v = vf32_maximum(v, vf32_swap(v, half));
  return v[0];
}

/* ---- bf16: the upper half of an f32, rounded to nearest even; NaN stays NaN (quiet) ---- */
/* The rounding alone, kept in an f32. */
TERN_INLINE vf32 vf32_round_bf16(vf32 v) {
  vu32 bits = (vu32)v, rounded = (bits + 0x7FFFu + ((bits >> 16) & 1u)) & 0xFFFF0000u;
  return vf32_select(v != v, (vf32)((bits | 0x00400000u) & 0xFFFF0000u), (vf32)rounded);
}
TERN_INLINE void vf32_store_bf16(uint16_t *p, vf32 v) {
  typedef uint16_t half __attribute__((vector_size(sizeof(vf32) / 2)));
  half h = __builtin_convertvector((vu32)vf32_round_bf16(v) >> 16, half);
  memcpy(p, &h, sizeof h);
}
#endif
