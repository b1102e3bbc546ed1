/* gemm: matrix products C[m, n] = sum over k of A[m, k] * B[k, n], for f32 and f64; f16 and bf16 operands are widened to f32 while they are packed.
 *
 * Three layers. The tile (gemm.c): up to TILE_ROWS rows times one strip of columns, whose sums stay in registers. Packing (gemm_pack.c): copies a block of an
 * operand into the form that a tile reads best. The product (gemm_run.c): cuts C into chunks for the thread pool and packs only what is worth it.
 * dot.c and conv.c call them; other kernels may.
 *
 * The order of additions depends on k alone: k is cut into equal blocks of at most TERN_GEMM_K; inside a block a sum starts from zero and takes one
 * product after the other; blocks are added in order. It does not depend on strides, on packing, on tiles, or on threads. */
#ifndef TERN_GEMM_H
#define TERN_GEMM_H
#include "kernels.h"
#include "tile.h"

#define TERN_GEMM_K 256                          /* most of k in one block: a packed strip and the rows that meet it then stay in the first-level cache */
#define TERN_GEMM_ROWS (TILE_ROWS * (168 / TILE_ROWS)) /* most rows of C in one chunk: the packed block of A stays in the second-level cache */
#define TERN_GEMM_VECTORS 2                      /* vectors in a strip */
#define TERN_GEMM_STRIP_f32 (TERN_GEMM_VECTORS * TILE_LANES_f32)
#define TERN_GEMM_STRIP_f64 (TERN_GEMM_VECTORS * TILE_LANES_f64)
#define TERN_GEMM_COLUMNS 1024                   /* most columns of C in one chunk */
/* Elements of a packed block of A for one chunk; on the stack of the thread that works on it. */
#define TERN_GEMM_BLOCK (TERN_GEMM_ROWS * (TERN_GEMM_K + 32))
/* Multiply-adds below which a chunk is not worth handing to another thread: some ten microseconds. */
#define TERN_GEMM_GRAIN 500000

/* How A is found at (row, k), or B at (column, k): `outer` is the row or the column. In elements. */
typedef struct tern_gemm_side {
  const char *data;
  tern_dtype dtype;                       /* f32, f64; f16 and bf16 in an f32 product */
  int64_t outer_stride, k_stride;
  const int64_t *outer_offsets, *k_offsets; /* where given, instead of the stride: element offsets of each index */
} tern_gemm_side;

typedef struct tern_gemm_product {
  int64_t m, n, k;
  tern_gemm_side a, b;
  char *c;                                /* [batch, m, n], rows c_stride apart, m * c_stride elements per batch */
  tern_dtype c_dtype;                     /* the product's type, or f16 or bf16 for an f32 product */
  int64_t c_stride;
  int32_t n_batch_dims;                   /* the batch as up to TERN_MAX_RANK dimensions; 0: one product */
  int64_t batch_dims[TERN_MAX_RANK], a_batch_strides[TERN_MAX_RANK], b_batch_strides[TERN_MAX_RANK];
} tern_gemm_product;

/* Bytes of scratch that tern_gemm_run wants; pointers in the product are not read. */
size_t TERN_ISA_NAME(tern_gemm_scratch)(const tern_gemm_product *product);
/* The whole product, on the pool. `scratch` is 64-byte aligned. */
void TERN_ISA_NAME(tern_gemm_run)(const tern_gemm_product *product, void *scratch);

/* The length of the equal blocks that k is cut into. */
static inline int64_t tern_gemm_k_block(int64_t k) {
  int64_t blocks = (k + TERN_GEMM_K - 1) / TERN_GEMM_K;
  return blocks ? ((k + blocks - 1) / blocks + 3) / 4 * 4 : 0;
}

#define TERN_GEMM_DECLARE(T, REAL)                                                                                                                        \
  /* C[m, n] (+)= A[m, k] B[k, n] for n up to one strip, on this thread. a[row * a_row + p * a_k]; b[p * b_k + column]; c[row * c_row + column]. */       \
  void TERN_ISA_NAME(tern_gemm_strip_##T)(int64_t m, int64_t n, int64_t k, const REAL *a, int64_t a_row, int64_t a_k, const REAL *b, int64_t b_k, REAL *c, \
                                          int64_t c_row, bool accumulate);                                                                                \
  /* The same; meanwhile brings what will be read after it towards the caches: `next`, as large as this strip's B, or NULL. */                            \
  void TERN_ISA_NAME(tern_gemm_strip_ahead_##T)(int64_t m, int64_t n, int64_t k, const REAL *a, int64_t a_row, int64_t a_k, const REAL *b, int64_t b_k,    \
                                                REAL *c, int64_t c_row, bool accumulate, const REAL *next);                                                                                \
  /* Packs columns [n0, n0 + n) of B at k in [k0, k0 + k) as panel[k][strip]; lanes past n in the last vector are 0. n up to one strip. */                \
  void TERN_ISA_NAME(tern_gemm_pack_strip_##T)(const tern_gemm_side *b, int64_t n0, int64_t n, int64_t k0, int64_t k, REAL *panel);                       \
  /* Packs rows [m0, m0 + m) of A at k in [k0, k0 + k); `block` has TERN_GEMM_BLOCK elements; returns its strides. */                                     \
  void TERN_ISA_NAME(tern_gemm_pack_rows_##T)(const tern_gemm_side *a, int64_t m0, int64_t m, int64_t k0, int64_t k, REAL *block, int64_t *row_stride,     \
                                              int64_t *k_stride);                                                                                         \
  /* A small product on this thread: any m, n, k. b[p * b_k + column * b_column]. */                                                                      \
  void TERN_ISA_NAME(tern_gemm_small_##T)(int64_t m, int64_t n, int64_t k, const REAL *a, int64_t a_row, int64_t a_k, const REAL *b, int64_t b_k,          \
                                          int64_t b_column, REAL *c, int64_t c_row);
TERN_GEMM_DECLARE(f32, float)
TERN_GEMM_DECLARE(f64, double)
#undef TERN_GEMM_DECLARE

#endif
