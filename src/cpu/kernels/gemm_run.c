/* Whole products on the thread pool (gemm.h): how C is cut into chunks, and which operands are packed.
 *
 * B is read in place where its columns are contiguous and few rows of A reuse it; packed by the chunk that uses it where one block of rows covers C;
 * otherwise packed once, in parallel, for everybody. A is read in place unless its strides would thrash the cache. */
#include "gemm.h"

#define HALF_COLUMNS 256               /* most columns of a chunk whose result is half precision: its f32 sums are on the stack */
#define SHARED_BYTES ((int64_t)32 << 20) /* of packed B at a time */
#define CHUNKS_PER_THREAD 6            /* where B is shared: enough that the last ones end together */
#define DIRECT_BYTES 32768             /* B this small stays in the first-level cache as it is */
#define FAR_BYTES 2048                 /* a stride from here on meets few cache sets and a new page every other step */

typedef enum b_mode { B_DIRECT, B_LOCAL, B_SHARED } b_mode;

typedef struct cutting {
  int64_t batches, batches_per_chunk;
  int64_t k_block, row_blocks, rows;   /* rows of each block but the last */
  int64_t groups, columns;             /* columns of each group but the last: whole strips */
  b_mode b_mode;
  bool a_direct;
} cutting;

static int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }
static int64_t distance(int64_t stride) { return stride < 0 ? -stride : stride; }
static int64_t real_size(const tern_gemm_product *g) { return g->a.dtype == TERN_F64 ? 8 : 4; }
static int64_t strip_of(const tern_gemm_product *g) { return g->a.dtype == TERN_F64 ? TERN_GEMM_STRIP_f64 : TERN_GEMM_STRIP_f32; }
static bool is_plain(const tern_gemm_side *s) {
  return (s->dtype == TERN_F32 || s->dtype == TERN_F64) && !s->outer_offsets && !s->k_offsets;
}

static int64_t batch_count(const tern_gemm_product *g) {
  int64_t count = 1;
  for (int i = 0; i < g->n_batch_dims; i++) count *= g->batch_dims[i];
  return count;
}

/* Columns of B packed at a time in SHARED. */
static int64_t shared_columns(const tern_gemm_product *g) {
  int64_t columns = SHARED_BYTES / (real_size(g) * (g->k ? g->k : 1)) / TERN_GEMM_COLUMNS * TERN_GEMM_COLUMNS;
  return columns < TERN_GEMM_COLUMNS ? TERN_GEMM_COLUMNS : columns;
}

/* By shape and strides alone. None of it changes a bit of the result. */
static cutting plan_product(const tern_gemm_product *g) {
  int64_t strip = strip_of(g), size = real_size(g), work = g->m * g->n * g->k;
  cutting p = {.batches = batch_count(g), .batches_per_chunk = 1, .k_block = tern_gemm_k_block(g->k)};
  p.row_blocks = ceil_div(g->m, TERN_GEMM_ROWS);
  p.rows = ceil_div(g->m, p.row_blocks);
  p.row_blocks = ceil_div(g->m, p.rows);
  if (is_plain(&g->b) && g->b.outer_stride == 1 && (g->m <= 4 * TILE_ROWS || g->n * g->k * size <= DIRECT_BYTES)) p.b_mode = B_DIRECT;
  else if (p.row_blocks == 1 || work * p.batches <= 2 * TERN_GEMM_GRAIN || (p.batches > 1 && work <= 8 * TERN_GEMM_GRAIN)) p.b_mode = B_LOCAL;
  else p.b_mode = B_SHARED;

  int64_t most = (g->c_dtype == TERN_F32 || g->c_dtype == TERN_F64) ? TERN_GEMM_COLUMNS : HALF_COLUMNS;
  int64_t strips = ceil_div(g->n, strip), groups_wanted = ceil_div(work, 2 * TERN_GEMM_GRAIN * p.row_blocks);
  if (p.b_mode == B_SHARED) groups_wanted = ceil_div(CHUNKS_PER_THREAD * tern_pool_threads(), p.row_blocks); /* every group packs all of A again */
  int64_t group = ceil_div(strips, groups_wanted < 1 ? 1 : groups_wanted);
  if (p.b_mode == B_SHARED && group * strip < 256) group = 256 / strip;
  if (group * strip > most) group = most / strip;
  if (group < 1) group = 1;
  p.columns = group * strip;
  p.groups = ceil_div(g->n, p.columns);
  int64_t chunk_work = work / (p.row_blocks * p.groups);
  if (p.batches > 1 && chunk_work < TERN_GEMM_GRAIN) p.batches_per_chunk = ceil_div(TERN_GEMM_GRAIN, chunk_work + 1);
  if (p.batches_per_chunk > p.batches) p.batches_per_chunk = p.batches;

  int64_t far = distance(g->a.outer_stride) > distance(g->a.k_stride) ? distance(g->a.outer_stride) : distance(g->a.k_stride);
  p.a_direct = is_plain(&g->a) && (p.columns <= 2 * strip || far * size < FAR_BYTES);
  return p;
}

static tern_gemm_side side_of_batch(const tern_gemm_side *side, const int64_t *dims, const int64_t *strides, int n_dims, int64_t batch) {
  tern_gemm_side s = *side;
  int64_t offset = 0;
  for (int i = n_dims - 1; i >= 0; i--) {
    offset += batch % dims[i] * strides[i];
    batch /= dims[i];
  }
  s.data += offset * (int64_t)tern_dtype_size(s.dtype);
  return s;
}

static void narrow_run(tern_dtype dtype, const float *from, int64_t n, char *to) {
  uint16_t *halves = (uint16_t *)(void *)to;
  if (dtype == TERN_BF16) tile_narrow_bf16(halves, from, n);
  else tile_narrow_f16(halves, from, n);
}

#define T f32
#define REAL float
#define DTYPE TERN_F32
#include "gemm_run_template.h"
#undef T
#undef REAL
#undef DTYPE
#define T f64
#define REAL double
#define DTYPE TERN_F64
#include "gemm_run_template.h"

size_t TERN_ISA_NAME(tern_gemm_scratch)(const tern_gemm_product *g) {
  if (g->m == 0 || g->n == 0 || batch_count(g) == 0 || plan_product(g).b_mode != B_SHARED) return 0;
  int64_t columns = shared_columns(g), strip = strip_of(g);
  if (columns > g->n) columns = ceil_div(g->n, strip) * strip;
  return (size_t)(columns * g->k * real_size(g));
}

void TERN_ISA_NAME(tern_gemm_run)(const tern_gemm_product *g, void *scratch) {
  if (g->m == 0 || g->n == 0 || batch_count(g) == 0) return;
  if (g->a.dtype == TERN_F64) run_f64(g, scratch);
  else run_f32(g, scratch);
}
