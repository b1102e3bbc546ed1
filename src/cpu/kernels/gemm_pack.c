/* Packing blocks of a product's operands (gemm.h): any strides or offset tables; half precision becomes f32 here. */
#include "gemm.h"

TILE_INLINE void widen_f32(tern_dtype dtype, const char *data, int64_t at, int64_t n, float *to) {
  if (dtype == TERN_F32) {
    const float *from = (const float *)(const void *)data + at;
    int64_t i = 0;
    for (; i + TILE_LANES_f32 <= n; i += TILE_LANES_f32) tile_store_f32(to + i, tile_load_f32(from + i));
    for (; i < n; i++) to[i] = from[i];
  } else if (dtype == TERN_BF16) {
    tile_widen_bf16(to, (const uint16_t *)(const void *)data + at, n);
  } else {
    tile_widen_f16(to, (const uint16_t *)(const void *)data + at, n);
  }
}
TILE_INLINE void widen_f64(tern_dtype dtype, const char *data, int64_t at, int64_t n, double *to) {
  (void)dtype;
  const double *from = (const double *)(const void *)data + at;
  for (int64_t i = 0; i < n; i++) to[i] = from[i];
}

#define T f32
#define REAL float
#define DTYPE TERN_F32
#include "gemm_pack_template.h"
#undef T
#undef REAL
#undef DTYPE
#define T f64
#define REAL double
#define DTYPE TERN_F64
#include "gemm_pack_template.h"
