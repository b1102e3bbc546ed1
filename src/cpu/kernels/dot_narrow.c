/* A vector times a matrix (dot.h): bound by reading the matrix once, so nothing is packed and the matrix is read in its own order.
 *
 * The sum over k is kept in as many partial sums as a vector has lanes (lane k % lanes), folded by halves at the end. Rows of the matrix give that order
 * with whole vectors along k; columns give it with one row of sums per lane. Either way the same bits, so that a transposed view and its copy agree. */
#include "dot.h"
#include "vector.h"

#define K_BLOCK 2048     /* of the vector at a time; a multiple of every lane count */
#define OUTER_BLOCK 1024 /* most results in one chunk */
#define ROWS_BLOCK 256   /* the same where the matrix is read row by row */
#define GRAIN 100000     /* elements of the matrix in one chunk, about */

typedef struct narrow {
  const tern_gemm_product *product;
  int64_t outer, batches;
  int64_t block, blocks, batches_per_chunk;
} narrow;

TILE_INLINE void widen_f32(tern_dtype dtype, const char *data, int64_t at, int64_t n, float *to) {
  if (dtype == TERN_F32) memcpy(to, data + at * 4, (size_t)n * 4);
  else if (dtype == TERN_BF16) tile_widen_bf16(to, (const uint16_t *)(const void *)data + at, n);
  else tile_widen_f16(to, (const uint16_t *)(const void *)data + at, n);
}
TILE_INLINE void widen_f64(tern_dtype dtype, const char *data, int64_t at, int64_t n, double *to) {
  (void)dtype;
  memcpy(to, data + at * 8, (size_t)n * 8);
}
static void put_f32(tern_dtype dtype, const float *from, int64_t n, char *to) {
  if (dtype == TERN_F32) memcpy(to, from, (size_t)n * 4);
  else if (dtype == TERN_BF16) tile_narrow_bf16((uint16_t *)(void *)to, from, n);
  else tile_narrow_f16((uint16_t *)(void *)to, from, n);
}
static void put_f64(tern_dtype dtype, const double *from, int64_t n, char *to) {
  (void)dtype;
  memcpy(to, from, (size_t)n * 8);
}

static inline float sum_f32(const float *lanes) { return vf32_sum(vf32_load(lanes)); }
static inline double sum_f64(double *lanes) {
  for (int half = TILE_LANES_f64 / 2; half > 0; half /= 2)
    for (int l = 0; l < half; l++) lanes[l] += lanes[l + half];
  return lanes[0];
}

/* One vector of f32 from half precision in memory. */
_Static_assert((int)TILE_LANES_f32 == (int)VF32_LANES, "a tile's vectors are vector.h's");
#define LOAD_HALF(N)                                                                           \
  TILE_INLINE tile_f32 tile_load_##N(const uint16_t *p) { return (tile_f32)vf32_load_##N(p); } \
  TILE_INLINE tile_f32 tile_load_first_##N(const uint16_t *p, int64_t n) {                     \
    uint16_t first[TILE_LANES_f32] = {0};                                                      \
    memcpy(first, p, (size_t)n * sizeof *p);                                                   \
    return tile_load_##N(first);                                                               \
  }
LOAD_HALF(bf16)
LOAD_HALF(f16)
#undef LOAD_HALF

#define T f32
#define REAL float
#define DTYPE TERN_F32
#define N f32
#define STORED float
#include "dot_narrow_template.h"
#define N bf16
#define STORED uint16_t
#include "dot_narrow_template.h"
#define N f16
#define STORED uint16_t
#include "dot_narrow_template.h"
#undef T
#undef REAL
#undef DTYPE
#define T f64
#define REAL double
#define DTYPE TERN_F64
#define N f64
#define STORED double
#include "dot_narrow_template.h"

static void narrow_chunk(void *context, int64_t chunk, int thread) {
  (void)thread;
  const narrow *job = context;
  int64_t first = chunk % job->blocks * job->block, count = job->outer - first < job->block ? job->outer - first : job->block;
  int64_t batch = chunk / job->blocks * job->batches_per_chunk, end = batch + job->batches_per_chunk;
  for (; batch < end && batch < job->batches; batch++) {
    switch (job->product->a.dtype) {
      case TERN_F64: narrow_block_f64(job, batch, first, count); break;
      case TERN_BF16: narrow_block_bf16(job, batch, first, count); break;
      case TERN_F16: narrow_block_f16(job, batch, first, count); break;
      default: narrow_block_f32(job, batch, first, count);
    }
  }
}

void TERN_ISA_NAME(tern_dot_narrow)(const tern_gemm_product *g) {
  narrow job = {.product = g, .outer = g->m == 1 ? g->n : g->m, .batches = tern_batch_count(g)};
  if (!job.outer || !job.batches) return;
  const tern_gemm_side *matrix = g->m == 1 ? &g->b : &g->a;
  int64_t least = 16, most = ROWS_BLOCK;
  if (matrix->outer_stride == 1 && matrix->k_stride != 1) { /* columns: long stretches of each row, or every row of every chunk is a new page */
    most = job.outer / 4 < ROWS_BLOCK ? ROWS_BLOCK : job.outer / 4 > OUTER_BLOCK ? OUTER_BLOCK : job.outer / 4 / 16 * 16;
    least = most;
  }
  job.block = GRAIN / (g->k + 1) / 16 * 16;
  if (job.block < least) job.block = least;
  if (job.block > most) job.block = most;
  job.blocks = (job.outer + job.block - 1) / job.block;
  job.batches_per_chunk = job.blocks > 1 ? 1 : GRAIN / (job.outer * (g->k + 1)) + 1;
  tern_pool_run(job.blocks * ((job.batches + job.batches_per_chunk - 1) / job.batches_per_chunk), narrow_chunk, &job);
}
