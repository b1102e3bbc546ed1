/* The block interpreter's reductions: along rows (64 lanes, folded) and down columns (row added to row). Called by src/cpu/execute.c. */
#include <math.h>
#include "blocks_parts.h"
#include "vector.h"
#pragma GCC optimize("no-trapping-math")

enum { LANES = 64, SIDE = 16 };

/* One dtype: sum, product, maximum, minimum. */
#define PASTE_(a, b, c) a##_##b##_##c
#define PASTE(a, b, c) PASTE_(a, b, c)

#define GREATER(x, y) ((x) > (y) ? (x) : (y))
#define LESS(x, y) ((x) < (y) ? (x) : (y))
#define GREATER_OR_NAN(x, y) (((x) > (y)) | ((x) != (x)) ? (x) : (y))
#define LESS_OR_NAN(x, y) (((x) < (y)) | ((x) != (x)) ? (x) : (y))

#define SUM(x, y) ((uint32_t)(x) + (uint32_t)(y))
#define PROD(x, y) ((uint32_t)(x) * (uint32_t)(y))
#define MAX GREATER
#define MIN LESS
#define REAL uint8_t
#define DTYPE u8
#include "blocks_reduce_dtype.h"
#define REAL int8_t
#define DTYPE i8
#include "blocks_reduce_dtype.h"
#define REAL int16_t
#define DTYPE i16
#include "blocks_reduce_dtype.h"
#define REAL uint16_t
#define DTYPE u16
#include "blocks_reduce_dtype.h"
#define REAL int32_t
#define DTYPE i32
#include "blocks_reduce_dtype.h"
#define REAL uint32_t
#define DTYPE u32
#include "blocks_reduce_dtype.h"
#undef SUM
#undef PROD
#define SUM(x, y) ((uint64_t)(x) + (uint64_t)(y))
#define PROD(x, y) ((uint64_t)(x) * (uint64_t)(y))
#define REAL int64_t
#define DTYPE i64
#include "blocks_reduce_dtype.h"
#define REAL uint64_t
#define DTYPE u64
#include "blocks_reduce_dtype.h"
#undef SUM
#undef PROD
#undef MAX
#undef MIN
#define SUM(x, y) ((x) + (y))
#define PROD(x, y) ((x) * (y))
#define MAX GREATER_OR_NAN
#define MIN LESS_OR_NAN
#define REAL float
#define DTYPE f32
#include "blocks_reduce_dtype.h"
#define REAL double
#define DTYPE f64
#include "blocks_reduce_dtype.h"

/* bool: bytes 0 and 1; the sum is or, the product and. */
#define REAL uint8_t
#define COMBINE(x, y) ((x) | (y))
#define NAMED(x) x##_any
#include "blocks_reduce.h"
#undef COMBINE
#define COMBINE(x, y) ((x) & (y))
#define NAMED(x) x##_all
#include "blocks_reduce.h"
#undef COMBINE
#undef REAL

/* Rows of f32 with the lanes in registers: the order of the template's, which serves shorter rows. `nothing` changes no lane. */
#define VECTOR_ROWS(name, short_rows, COMBINE_VECTORS, nothing)                                                       \
  static void name(void *out, const void *in, int64_t rows, int64_t length) {                                         \
    enum { VECTORS = LANES / VF32_LANES };                                                                            \
    float *o = out;                                                                                                   \
    const float *p = in;                                                                                              \
    if (length < LANES) {                                                                                             \
      short_rows(out, in, rows, length);                                                                              \
      return;                                                                                                         \
    }                                                                                                                 \
    for (int64_t r = 0; r < rows; r++, p += length) {                                                                 \
      vf32 v[VECTORS];                                                                                                \
      int64_t i = LANES;                                                                                              \
      UNROLL(j, VECTORS) v[j] = vf32_load(p + j * VF32_LANES);                                                        \
      for (; i + LANES <= length; i += LANES) UNROLL(j, VECTORS) v[j] = COMBINE_VECTORS(v[j], vf32_load(p + i + j * VF32_LANES)); \
      UNROLL(j, VECTORS) {                                                                                            \
        const int64_t left = length - i - j * VF32_LANES;                                                             \
        if (left >= VF32_LANES) v[j] = COMBINE_VECTORS(v[j], vf32_load(p + i + j * VF32_LANES));                      \
        else if (left > 0) v[j] = COMBINE_VECTORS(v[j], vf32_load_n(p + i + j * VF32_LANES, left, nothing));          \
      }                                                                                                               \
      _Pragma("GCC unroll 8") for (int half = VECTORS / 2; half > 0; half /= 2) UNROLL(j, half) v[j] = COMBINE_VECTORS(v[j], v[j + half]); \
      _Pragma("GCC unroll 8") for (int half = VF32_LANES / 2; half > 0; half /= 2) v[0] = COMBINE_VECTORS(v[0], vf32_swap(v[0], half)); \
      o[r] = v[0][0];                                                                                                 \
    }                                                                                                                 \
  }
#define UNROLL(j, n) _Pragma("GCC unroll 16") for (int j = 0; j < (n); j++)
#define ADD_VECTORS(x, y) ((x) + (y))
VECTOR_ROWS(vector_rows_sum, rows_sum_f32, ADD_VECTORS, -0.0f)
VECTOR_ROWS(vector_rows_max, rows_max_f32, vf32_maximum, -INFINITY)
VECTOR_ROWS(vector_rows_min, rows_min_f32, vf32_minimum, INFINITY)

#define FILL(DTYPE, name)                                                                                        \
  do {                                                                                                           \
    machine->reduce_rows[TERN_SUM][TERN_##DTYPE] = rows_sum_##name;                                              \
    machine->reduce_rows[TERN_PROD][TERN_##DTYPE] = rows_prod_##name;                                            \
    machine->reduce_rows[TERN_MAX][TERN_##DTYPE] = rows_max_##name;                                              \
    machine->reduce_rows[TERN_MIN][TERN_##DTYPE] = rows_min_##name;                                              \
    machine->reduce_columns[TERN_SUM][TERN_##DTYPE] = columns_sum_##name;                                        \
    machine->reduce_columns[TERN_PROD][TERN_##DTYPE] = columns_prod_##name;                                      \
    machine->reduce_columns[TERN_MAX][TERN_##DTYPE] = columns_max_##name;                                        \
    machine->reduce_columns[TERN_MIN][TERN_##DTYPE] = columns_min_##name;                                        \
  } while (0)

void TERN_ISA_NAME(tern_block_reductions)(tern_block_machine *machine) {
  FILL(U8, u8);
  FILL(I8, i8);
  FILL(I16, i16);
  FILL(U16, u16);
  FILL(I32, i32);
  FILL(U32, u32);
  FILL(I64, i64);
  FILL(U64, u64);
  FILL(F32, f32);
  FILL(F64, f64);
  machine->reduce_rows[TERN_SUM][TERN_F32] = vector_rows_sum;
  machine->reduce_rows[TERN_MAX][TERN_F32] = vector_rows_max;
  machine->reduce_rows[TERN_MIN][TERN_F32] = vector_rows_min;
  static const tern_reduction either[] = {TERN_SUM, TERN_MAX, TERN_ANY}, both[] = {TERN_PROD, TERN_MIN, TERN_ALL};
  for (size_t i = 0; i < TERN_COUNT(either); i++) {
    machine->reduce_rows[either[i]][TERN_BOOL] = rows_any;
    machine->reduce_columns[either[i]][TERN_BOOL] = columns_any;
    machine->reduce_rows[both[i]][TERN_BOOL] = rows_all;
    machine->reduce_columns[both[i]][TERN_BOOL] = columns_all;
  }
}
