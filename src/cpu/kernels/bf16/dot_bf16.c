/* dot_general of bf16 with instructions for it (unit.h): sums in f32, results rounded once to bf16.
 *
 * The instructions multiply pairs of consecutive k. So the side whose k is contiguous ("rows") is read where it lies, the other one is packed so that two consecutive k of a
 * column lie side by side ("strips" of 32 columns); where the second operand is the one with contiguous k the product is computed transposed.
 *
 * The order of additions is the instruction's and depends on k alone: neither on strides, nor on which side was packed, nor on threads. Denormal
 * numbers count as zero.
 * Products that are too small to pay, of other types, or with dimensions that do not merge, go to the AVX-512 kernels. Called through table.c. */
#include <stdatomic.h>
#include "dot_bf16.h"
#include "unit.h"

enum {
  BLOCKS = 8,                /* blocks of rows in one chunk, at most */
  STRIPS = 8,                /* strips in one chunk, at most */
  REUSE = 4,                 /* rows are packed, too, where at least so many strips read them */
  SMALL_WORK = 16 * 16 * 64, /* multiply-adds below which tiles do not pay */
  K_TILES = 12,              /* in one go: the strip's part of k then stays in the first-level cache while blocks of rows pass by */
  BATCH_WORK = 4000000,      /* products of a batch that are smaller are not cut further */
  CHUNK_WORK = 4000000,
};

/* One side of a product whose `outer` dimension is the rows or columns of the result. */
typedef struct side {
  const uint16_t *data;
  int64_t outer, outer_stride, k_stride;
} side;

typedef struct job {
  const tern_gemm_product *g;
  bool transposed;           /* the rows are B's columns */
  int64_t k, k_tiles;
  int64_t row_blocks, strips, blocks_per_chunk, strips_per_chunk, chunks_per_product;
  int64_t batch;             /* the product of this run, where each takes a run of its own */
  uint16_t *panels;          /* packed strips: [strip][k tile][2][16][32] */
  uint16_t *row_panels;      /* packed rows: [block][k tile][2][16][32], or NULL: rows are read where they lie */
  atomic_bool no_memory;     /* a chunk had none for its scratch */
} job;

static int64_t min_i64(int64_t a, int64_t b) { return a < b ? a : b; }
static int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

static side side_at(const tern_gemm_product *g, bool is_a, int64_t batch) {
  const tern_gemm_side *s = is_a ? &g->a : &g->b;
  const int64_t offset = tern_batch_offset(g, is_a ? g->a_batch_strides : g->b_batch_strides, batch);
  return (side){(const uint16_t *)(const void *)s->data + offset, is_a ? g->m : g->n, s->outer_stride, s->k_stride};
}

/* ---- packing ---- */

/* Columns [first, first + 32) as tiles; what is past the end is zero. */
static void pack_strip(const side *s, int64_t first, int64_t k, uint16_t *to) {
  const int64_t n = min_i64(STRIP, s->outer - first), k_tiles = ceil_div(k, DEPTH);
  const uint16_t *from = s->data + first * s->outer_stride;
  if (n < STRIP || k % DEPTH) memset(to, 0, (size_t)(k_tiles * 2 * TILE_WORDS) * sizeof *to);
  int64_t p = 0;
  if (s->outer_stride == 1 && n == STRIP) { /* rows of columns: two of them interleaved */
    const __m512i low = _mm512_set_epi16(47, 15, 46, 14, 45, 13, 44, 12, 43, 11, 42, 10, 41, 9, 40, 8, 39, 7, 38, 6, 37, 5, 36, 4, 35, 3, 34, 2, 33, 1, 32, 0);
    const __m512i high = _mm512_add_epi16(low, _mm512_set1_epi16(16));
    for (; p + 2 <= k; p += 2) {
      const __m512i even = _mm512_loadu_si512(from + p * s->k_stride), odd = _mm512_loadu_si512(from + (p + 1) * s->k_stride);
      uint16_t *row = to + p / DEPTH * 2 * TILE_WORDS + p % DEPTH / 2 * DEPTH;
      _mm512_storeu_si512(row, _mm512_permutex2var_epi16(even, low, odd));
      _mm512_storeu_si512(row + TILE_WORDS, _mm512_permutex2var_epi16(even, high, odd));
    }
  } else if (s->k_stride == 1) { /* pairs of k are words of 32 bits already: a transposition of those, by squares */
    const int64_t whole = n / TILE_SQUARE_f32 * TILE_SQUARE_f32, step = 2 * TILE_SQUARE_f32;
    for (; p + step <= k; p += step) {
      for (int64_t j = 0; j < n; j += TILE_SQUARE_f32) {
        uint16_t *row = to + (p / DEPTH * 2 + j / SIDE) * TILE_WORDS + p % DEPTH / 2 * DEPTH + j % SIDE * 2;
        if (j < whole) {
          /* Bits are moved, not numbers. The stride in words may be a half: rows are found one by one there. */
          if (s->outer_stride % 2 == 0) {
            tile_transpose_f32((const float *)(const void *)(from + j * s->outer_stride + p), s->outer_stride / 2, (float *)(void *)row, SIDE);
            continue;
          }
        }
        for (int64_t c = 0; c < TILE_SQUARE_f32 && j + c < n; c++)
          for (int64_t q = 0; q < TILE_SQUARE_f32; q++) memcpy(row + q * DEPTH + 2 * c, from + (j + c) * s->outer_stride + p + 2 * q, 4);
      }
    }
  }
  for (; p < k; p++)
    for (int64_t j = 0; j < n; j++)
      to[(p / DEPTH * 2 + j / SIDE) * TILE_WORDS + p % DEPTH / 2 * DEPTH + j % SIDE * 2 + p % 2] = from[j * s->outer_stride + p * s->k_stride];
}

/* Rows [first, first + 32) as [32][k tiles * 32]; what is past the end is zero. */
static void pack_rows(const side *s, int64_t first, int64_t k, int64_t length, uint16_t *to) {
  const int64_t n = min_i64(STRIP, s->outer - first);
  const uint16_t *from = s->data + first * s->outer_stride;
  if (n < STRIP || k < length) memset(to, 0, (size_t)(STRIP * length) * sizeof *to);
  if (s->k_stride == 1) {
    for (int64_t i = 0; i < n; i++) memcpy(to + i * length, from + i * s->outer_stride, (size_t)k * sizeof *to);
    return;
  }
  for (int64_t p = 0; p < k; p += DEPTH) /* by squares, which stay in the first-level cache */
    for (int64_t q = p; q < min_i64(k, p + DEPTH); q++)
      for (int64_t i = 0; i < n; i++) to[i * length + q] = from[i * s->outer_stride + q * s->k_stride];
}

/* Rows [first, first + 32) as tiles, in the order in which they are read; what is past the end is zero. */
static void pack_block(const side *s, int64_t first, int64_t k, uint16_t *to) {
  const int64_t n = min_i64(STRIP, s->outer - first), k_tiles = ceil_div(k, DEPTH);
  const uint16_t *from = s->data + first * s->outer_stride;
  if (n < STRIP || k % DEPTH) memset(to, 0, (size_t)(k_tiles * 2 * TILE_WORDS) * sizeof *to);
  for (int64_t t = 0; t < k_tiles; t++, to += 2 * TILE_WORDS) {
    const int64_t p = t * DEPTH, count = min_i64(DEPTH, k - p);
    if (s->k_stride == 1 && count == DEPTH)
      for (int64_t i = 0; i < n; i++) memcpy(to + i * DEPTH, from + i * s->outer_stride + p, DEPTH * sizeof *to);
    else
      for (int64_t q = 0; q < count; q++)
        for (int64_t i = 0; i < n; i++) to[i * DEPTH + q] = from[i * s->outer_stride + (p + q) * s->k_stride];
  }
}

/* ---- products ---- */

static void put(const job *j, int64_t batch, int64_t row, int64_t rows, int64_t column, int64_t columns, const float *sums) {
  const tern_gemm_product *g = j->g;
  uint16_t *c = (uint16_t *)(void *)g->c + batch * g->m * g->c_stride;
  float turned[STRIP * STRIP] __attribute__((aligned(64)));
  if (j->transposed) {
    for (int64_t i = 0; i < STRIP; i += TILE_SQUARE_f32)
      for (int64_t q = 0; q < STRIP; q += TILE_SQUARE_f32) tile_transpose_f32(sums + i * STRIP + q, STRIP, turned + q * STRIP + i, STRIP);
    for (int64_t i = 0; i < columns; i++) tile_narrow_bf16(c + (column + i) * g->c_stride + row, turned + i * STRIP, rows);
  } else {
    for (int64_t i = 0; i < rows; i++) tile_narrow_bf16(c + (row + i) * g->c_stride + column, sums + i * STRIP, columns);
  }
}

/* Elements of a packed row: an odd number of cache lines, so that rows spread over all sets. */
static int64_t room_row(const job *j) { return (j->k_tiles | 1) * DEPTH; }

static size_t sums_bytes(int64_t strips) { return (size_t)(strips * STRIP * STRIP) * sizeof(float); }

/* Where the rows of a block are read: packed, or where they lie; a block that is not whole, or whose k is not contiguous, is copied to `room`, and the end
 * of k that is not a whole tile to `tail`. */
static row_tiles find_rows(const job *j, const side *rows, int64_t block, uint16_t *room, uint16_t *tail) {
  if (j->row_panels) return (row_tiles){j->row_panels + block * j->k_tiles * 2 * TILE_WORDS, NULL, 2 * DEPTH, TILE_WORDS, 2 * TILE_WORDS};
  const int64_t first = block * STRIP, rest = j->k % DEPTH, length = room_row(j);
  if (rows->k_stride != 1 || rows->outer - first < STRIP) {
    pack_rows(rows, first, j->k, length, room);
    return (row_tiles){room, NULL, length * 2, SIDE * length, DEPTH};
  }
  row_tiles found = {rows->data + first * rows->outer_stride, NULL, rows->outer_stride * 2, SIDE * rows->outer_stride, DEPTH};
  if (rest) {
    side end = *rows;
    end.data += j->k - rest;
    pack_rows(&end, first, rest, DEPTH, tail);
    found.last = tail;
  }
  return found;
}

/* Row blocks [block, block_end) times strips [strip, strip_end) of one product; panels[0] is that of the first strip. */
static void multiply(const job *j, int64_t batch, int64_t block, int64_t block_end, int64_t strip, int64_t strip_end, const uint16_t *panels, char *scratch) {
  const side rows = side_at(j->g, !j->transposed, batch);
  const int64_t panel = j->k_tiles * 2 * TILE_WORDS, columns_all = j->transposed ? j->g->m : j->g->n;
  float *sums = (float *)(void *)scratch; /* [block][strip][32][32] */
  uint16_t *room = (uint16_t *)(void *)(scratch + sums_bytes((block_end - block) * (strip_end - strip)));
  uint16_t tail[STRIP * DEPTH] __attribute__((aligned(64)));
  unit_begin();
  /* Rows that are not packed are copied one block at a time, if at all. */
  const int64_t together = j->row_panels ? block_end - block : 1;
  for (; block < block_end; block += together) {
    row_tiles at = find_rows(j, &rows, block, room, tail);
    for (int64_t t = 0; t < j->k_tiles; t += K_TILES) {
      const int64_t tiles = min_i64(K_TILES, j->k_tiles - t);
      const bool ends = t + tiles == j->k_tiles;
      for (int64_t s = strip; s < strip_end; s++) {
        const int64_t column = s * STRIP, columns = min_i64(STRIP, columns_all - column);
        const uint16_t *b = panels + (s - strip) * panel + t * 2 * TILE_WORDS;
        for (int64_t r = 0; r < together; r++) {
          const int64_t first = (block + r) * STRIP, n_rows = min_i64(STRIP, rows.outer - first);
          float *sum = sums + ((s - strip) * together + r) * STRIP * STRIP;
          const row_tiles part = {at.data + r * panel + t * at.step, ends ? at.last : NULL, at.row_bytes, at.second, at.step};
          unit_multiply(&part, n_rows, columns, tiles, b, sum, t > 0);
          if (ends) put(j, batch, first, n_rows, column, columns, sum);
        }
      }
    }
  }
  unit_end();
}

static void pack_chunk(void *context, int64_t chunk, int thread) {
  (void)thread;
  const job *j = context;
  if (chunk < j->strips) {
    const side columns = side_at(j->g, j->transposed, j->batch);
    pack_strip(&columns, chunk * STRIP, j->k, j->panels + chunk * j->k_tiles * 2 * TILE_WORDS);
  } else {
    const side rows = side_at(j->g, !j->transposed, j->batch);
    const int64_t block = chunk - j->strips;
    pack_block(&rows, block * STRIP, j->k, j->row_panels + block * j->k_tiles * 2 * TILE_WORDS);
  }
}

static size_t room_bytes(const job *j) { return (size_t)(STRIP * room_row(j)) * sizeof(uint16_t); }

static void shared_chunk(void *context, int64_t chunk, int thread) {
  (void)thread;
  job *j = context;
  char *room = tern_pool_scratch(sums_bytes(j->blocks_per_chunk * j->strips_per_chunk) + room_bytes(j));
  if (!room) {
    atomic_store(&j->no_memory, true);
    return;
  }
  const int64_t groups = ceil_div(j->strips, j->strips_per_chunk);
  const int64_t block = chunk / groups * j->blocks_per_chunk, strip = chunk % groups * j->strips_per_chunk;
  multiply(j, j->batch, block, min_i64(j->row_blocks, block + j->blocks_per_chunk), strip, min_i64(j->strips, strip + j->strips_per_chunk),
           j->panels + strip * j->k_tiles * 2 * TILE_WORDS, room);
}

/* Whole products of a batch: `blocks_per_chunk` of them, one after the other. */
static void batch_chunk(void *context, int64_t chunk, int thread) {
  (void)thread;
  job *j = context;
  int64_t batch = chunk * j->blocks_per_chunk;
  const int64_t end = min_i64(tern_batch_count(j->g), batch + j->blocks_per_chunk);
  char *room = tern_pool_scratch(sums_bytes(j->row_blocks) + 2 * room_bytes(j));
  if (!room) {
    atomic_store(&j->no_memory, true);
    return;
  }
  for (; batch < end; batch++) {
    const side columns = side_at(j->g, j->transposed, batch);
    for (int64_t s = 0; s < j->strips; s++) {
      uint16_t *panel = (uint16_t *)(void *)(room + sums_bytes(j->row_blocks) + room_bytes(j));
      pack_strip(&columns, s * STRIP, j->k, panel);
      multiply(j, batch, 0, j->row_blocks, s, s + 1, panel, room);
    }
  }
}

bool TERN_ISA_NAME(tern_dot_bf16_serves)(const tern_gemm_product *g) {
  if (g->a.dtype != TERN_BF16 || g->b.dtype != TERN_BF16 || g->c_dtype != TERN_BF16 || g->m < 2 || g->n < 2) return false;
  return g->m * g->n * g->k >= SMALL_WORK && !g->a.outer_offsets && !g->a.k_offsets && !g->b.outer_offsets && !g->b.k_offsets;
}

static job plan(const tern_gemm_product *g) {
  job j = {.g = g, .k = g->k, .k_tiles = ceil_div(g->k, DEPTH)};
  /* Rows are what can be read as it lies; where both can, the larger one, because the other is the one that is packed. */
  const bool a_rows = g->a.k_stride == 1, b_rows = g->b.k_stride == 1;
  j.transposed = b_rows && (!a_rows || g->n > g->m);
  j.row_blocks = ceil_div(j.transposed ? g->n : g->m, STRIP);
  j.strips = ceil_div(j.transposed ? g->m : g->n, STRIP);
  return j;
}

static bool by_batches(const tern_gemm_product *g) { return tern_batch_count(g) > 1 && g->m * g->n * g->k <= BATCH_WORK; }

size_t TERN_ISA_NAME(tern_dot_bf16_scratch)(const tern_gemm_product *g) {
  const job j = plan(g);
  return by_batches(g) ? 0 : (size_t)((j.strips + (j.strips >= REUSE ? j.row_blocks : 0)) * j.k_tiles * 2 * TILE_WORDS) * sizeof(uint16_t);
}

static tern_status outcome(const job *j) {
  return atomic_load(&j->no_memory) ? tern_error_new(TERN_OUT_OF_MEMORY, "dot_general: no host memory to pack an operand") : NULL;
}

tern_status TERN_ISA_NAME(tern_dot_bf16_run)(const tern_gemm_product *g, void *scratch) {
  job j = plan(g);
  const int64_t batches = tern_batch_count(g), work = g->m * g->n * g->k;
  if (by_batches(g)) {
    j.blocks_per_chunk = CHUNK_WORK / work > 1 ? CHUNK_WORK / work : 1;
    tern_pool_run(ceil_div(batches, j.blocks_per_chunk), batch_chunk, &j);
    return outcome(&j);
  }
  j.panels = scratch;
  if (j.strips >= REUSE) j.row_panels = j.panels + j.strips * j.k_tiles * 2 * TILE_WORDS;
  j.strips_per_chunk = min_i64(j.strips, STRIPS);
  const int64_t per_block = work / j.row_blocks / ceil_div(j.strips, j.strips_per_chunk);
  j.blocks_per_chunk = min_i64(j.row_blocks, min_i64(BLOCKS, ceil_div(CHUNK_WORK, per_block + 1)));
  for (j.batch = 0; j.batch < batches; j.batch++) {
    tern_pool_run(j.strips + (j.row_panels ? j.row_blocks : 0), pack_chunk, &j);
    tern_pool_run(ceil_div(j.row_blocks, j.blocks_per_chunk) * ceil_div(j.strips, j.strips_per_chunk), shared_chunk, &j);
  }
  return outcome(&j);
}
