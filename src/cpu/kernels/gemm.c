/* The tiles of matrix products, f32 and f64 (gemm.h). */
#include "gemm.h"

#if TILE_ROWS == 14
#define TILE_EACH_ROWS(F, vectors, partial)                                                                                                       \
  F(1, vectors, partial) F(2, vectors, partial) F(3, vectors, partial) F(4, vectors, partial) F(5, vectors, partial) F(6, vectors, partial)         \
  F(7, vectors, partial) F(8, vectors, partial) F(9, vectors, partial) F(10, vectors, partial) F(11, vectors, partial) F(12, vectors, partial)      \
  F(13, vectors, partial) F(14, vectors, partial)
#elif TILE_ROWS == 12
#define TILE_EACH_ROWS(F, vectors, partial)                                                                                                       \
  F(1, vectors, partial) F(2, vectors, partial) F(3, vectors, partial) F(4, vectors, partial) F(5, vectors, partial) F(6, vectors, partial)         \
  F(7, vectors, partial) F(8, vectors, partial) F(9, vectors, partial) F(10, vectors, partial) F(11, vectors, partial) F(12, vectors, partial)
#elif TILE_ROWS == 6
#define TILE_EACH_ROWS(F, vectors, partial) \
  F(1, vectors, partial) F(2, vectors, partial) F(3, vectors, partial) F(4, vectors, partial) F(5, vectors, partial) F(6, vectors, partial)
#elif TILE_ROWS == 4
#define TILE_EACH_ROWS(F, vectors, partial) F(1, vectors, partial) F(2, vectors, partial) F(3, vectors, partial) F(4, vectors, partial)
#else
#error "one tile function for each number of rows up to TILE_ROWS"
#endif

#define TILE_DTYPE_f32 TERN_F32
#define TILE_DTYPE_f64 TERN_F64
#define T f32
#define REAL float
#include "gemm_tile_template.h"
#undef T
#undef REAL
#define T f64
#define REAL double
#include "gemm_tile_template.h"
