/* dot_general of integers, bools and complex numbers: plain loops, row by row on the pool (dot.h). */
#include "dot.h"

typedef struct plain_job {
  const tern_gemm_product *g;
  int64_t rows_per_chunk;
} plain_job;

/* Integers are added and multiplied as unsigned, which wraps; WORK is at least as wide as int, or the promotion would be signed. */
#define PLAIN_ROWS(NAME, TYPE, WORK, STEP)                                                                          \
  static void rows_##NAME(const tern_gemm_product *g, int64_t row, int64_t batch) {                                 \
    const TYPE *a = (const TYPE *)(const void *)g->a.data + tern_batch_offset(g, g->a_batch_strides, batch);        \
    const TYPE *b = (const TYPE *)(const void *)g->b.data + tern_batch_offset(g, g->b_batch_strides, batch);        \
    TYPE *c = (TYPE *)(void *)g->c + (batch * g->m + row) * g->c_stride;                                            \
    for (int64_t j = 0; j < g->n; j++) {                                                                            \
      WORK sum = 0;                                                                                                 \
      for (int64_t p = 0; p < g->k; p++) {                                                                          \
        WORK x = (WORK)a[tern_side_at(&g->a, row, p)], y = (WORK)b[tern_side_at(&g->b, j, p)];                      \
        sum = STEP;                                                                                                 \
      }                                                                                                             \
      c[j] = (TYPE)sum;                                                                                             \
    }                                                                                                               \
  }
PLAIN_ROWS(8, uint8_t, uint32_t, sum + x * y)
PLAIN_ROWS(16, uint16_t, uint32_t, sum + x * y)
PLAIN_ROWS(32, uint32_t, uint32_t, sum + x * y)
PLAIN_ROWS(64, uint64_t, uint64_t, sum + x * y)
PLAIN_ROWS(bool, uint8_t, uint32_t, sum | (x & y))
#undef PLAIN_ROWS

/* Complex numbers are pairs; written out, because C's own operator calls a library function for infinities. */
#define COMPLEX_ROWS(NAME, REAL)                                                                                                  \
  static void rows_##NAME(const tern_gemm_product *g, int64_t row, int64_t batch) {                                               \
    const REAL *a = (const REAL *)(const void *)g->a.data + 2 * tern_batch_offset(g, g->a_batch_strides, batch);                  \
    const REAL *b = (const REAL *)(const void *)g->b.data + 2 * tern_batch_offset(g, g->b_batch_strides, batch);                  \
    REAL *c = (REAL *)(void *)g->c + 2 * (batch * g->m + row) * g->c_stride;                                                      \
    for (int64_t j = 0; j < g->n; j++) {                                                                                          \
      REAL real = 0, imaginary = 0;                                                                                               \
      for (int64_t p = 0; p < g->k; p++) {                                                                                        \
        const REAL *x = a + 2 * tern_side_at(&g->a, row, p), *y = b + 2 * tern_side_at(&g->b, j, p);                              \
        real += x[0] * y[0] - x[1] * y[1];                                                                                        \
        imaginary += x[0] * y[1] + x[1] * y[0];                                                                                   \
      }                                                                                                                           \
      c[2 * j] = real;                                                                                                            \
      c[2 * j + 1] = imaginary;                                                                                                   \
    }                                                                                                                             \
  }
COMPLEX_ROWS(c64, float)
COMPLEX_ROWS(c128, double)
#undef COMPLEX_ROWS

static void (*const rows_of[TERN_DTYPE_COUNT])(const tern_gemm_product *g, int64_t row, int64_t batch) = {
    [TERN_BOOL] = rows_bool, [TERN_U8] = rows_8,   [TERN_I8] = rows_8,   [TERN_I16] = rows_16, [TERN_U16] = rows_16,   [TERN_I32] = rows_32,
    [TERN_U32] = rows_32,    [TERN_I64] = rows_64, [TERN_U64] = rows_64, [TERN_C64] = rows_c64, [TERN_C128] = rows_c128,
};

static void plain_chunk(void *context, int64_t chunk, int thread) {
  (void)thread;
  const plain_job *job = context;
  int64_t all = job->g->m * tern_batch_count(job->g), end = (chunk + 1) * job->rows_per_chunk;
  for (int64_t row = chunk * job->rows_per_chunk; row < end && row < all; row++)
    rows_of[job->g->c_dtype](job->g, row % job->g->m, row / job->g->m);
}

tern_status TERN_ISA_NAME(tern_dot_plain)(const tern_gemm_product *g) {
  if (!rows_of[g->c_dtype]) return tern_error_new(TERN_UNSUPPORTED, "dot_general: element type %s has no kernel", tern_dtype_name(g->c_dtype));
  int64_t all = g->m * tern_batch_count(g), work = g->n * g->k;
  if (!all || !g->n) return NULL;
  int64_t rows = 20000 / (work + 1) + 1;
  plain_job job = {g, rows};
  tern_pool_run((all + rows - 1) / rows, plain_chunk, &job);
  return NULL;
}
