/* The block interpreter's reductions: along rows (64 lanes, folded) and down columns (row added to row). Called by src/cpu/execute.c. */
#include "blocks_parts.h"
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
  static const tern_reduction either[] = {TERN_SUM, TERN_MAX, TERN_ANY}, both[] = {TERN_PROD, TERN_MIN, TERN_ALL};
  for (size_t i = 0; i < TERN_COUNT(either); i++) {
    machine->reduce_rows[either[i]][TERN_BOOL] = rows_any;
    machine->reduce_columns[either[i]][TERN_BOOL] = columns_any;
    machine->reduce_rows[both[i]][TERN_BOOL] = rows_all;
    machine->reduce_columns[both[i]][TERN_BOOL] = columns_all;
  }
}
