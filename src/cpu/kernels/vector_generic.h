/* The operations of vector.h in plain vector C, for any instruction set; included by the headers of sets that lack the instructions. */
#ifndef TERN_VECTOR_GENERIC_H
#define TERN_VECTOR_GENERIC_H

/* Two roundings: without the instruction there is no fused form that is fast. */
TERN_INLINE vf32 vf32_fma(vf32 a, vf32 b, vf32 c) { return a * b + c; }
TERN_INLINE vf32 vf32_fnma(vf32 a, vf32 b, vf32 c) { return c - a * b; }
TERN_INLINE vf64 vf64_fma(vf64 a, vf64 b, vf64 c) { return a * b + c; }
TERN_INLINE vf32 vf32_sqrt(vf32 v) {
  for (int i = 0; i < VF32_LANES; i++) v[i] = __builtin_sqrtf(v[i]);
  return v;
}
TERN_INLINE vf32 vf32_select(vi32 mask, vf32 yes, vf32 no) { return (vf32)((mask & (vi32)yes) | (~mask & (vi32)no)); }
TERN_INLINE vf64 vf64_select(vi64 mask, vf64 yes, vf64 no) { return (vf64)((mask & (vi64)yes) | (~mask & (vi64)no)); }
TERN_INLINE vf32 vf32_max(vf32 x, vf32 y) { return vf32_select(x > y, x, y); }
TERN_INLINE vf32 vf32_min(vf32 x, vf32 y) { return vf32_select(x < y, x, y); }
TERN_INLINE vf32 vf32_reciprocal(vf32 x) { return 1.0f / x; }
TERN_INLINE vf32 vf32_where_nan(vf32 x, vf32 y) { return vf32_select(x != x, x, y); }
TERN_INLINE bool vf32_any(vi32 mask) {
  int32_t any = 0;
  for (int i = 0; i < VF32_LANES; i++) any |= mask[i];
  return any != 0;
}
/* To the nearest integer, ties to even. Adding and taking away 2^23 rounds below it; above, every f32 is an integer. */
TERN_INLINE vf32 vf32_round(vf32 v) {
  vf32 magnitude = (vf32)((vi32)v & 0x7FFFFFFF), rounded = (magnitude + 0x1p23f) - 0x1p23f;
  rounded = (vf32)((vi32)rounded | ((vi32)v & INT32_MIN));
  return vf32_select(magnitude < 0x1p23f, rounded, v);
}
TERN_INLINE vf32 vf32_floor(vf32 v) {
  vf32 rounded = vf32_round(v);
  return vf32_select(rounded > v, rounded - 1.0f, rounded);
}
/* v * 2^n for -252 <= n <= 254: in two exact steps, so that only the last may round or overflow. */
TERN_INLINE vf32 vf32_scale(vf32 v, vi32 n) {
  vi32 half = n >> 1;
  return v * (vf32)((half + 127) << 23) * (vf32)((n - half + 127) << 23);
}
TERN_INLINE vf32 vf32_scale_whole(vf32 v, vf32 n) { return vf32_scale(v, __builtin_convertvector(n, vi32)); }
/* The 64-bit products of the lower 32 bits of each lane; the upper halves are ignored. */
#if defined(__SSE2__)
TERN_INLINE vu64 vu64_multiply_u32(vu64 a, vu64 b) { return (vu64)__builtin_ia32_pmuludq128((vi32)a, (vi32)b); }
#else
TERN_INLINE vu64 vu64_multiply_u32(vu64 a, vu64 b) {
  for (int i = 0; i < VF64_LANES; i++) a[i] = (a[i] & UINT32_MAX) * (b[i] & UINT32_MAX);
  return a;
}
#endif
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
TERN_INLINE vf32 vf32_load_bf16(const uint16_t *p) {
  typedef uint16_t half __attribute__((vector_size(sizeof(vf32) / 2)));
  half h;
  memcpy(&h, p, sizeof h);
  return (vf32)(__builtin_convertvector(h, vu32) << 16);
}
TERN_INLINE vf32 vf32_load_f16(const uint16_t *p) {
  vf32 v;
  for (int i = 0; i < VF32_LANES; i++) v[i] = tern_f16_to_f32(p[i]);
  return v;
}
TERN_INLINE void vf32_store_f16(uint16_t *p, vf32 v) {
  for (int i = 0; i < VF32_LANES; i++) p[i] = tern_f32_to_f16(v[i]);
}
#endif
