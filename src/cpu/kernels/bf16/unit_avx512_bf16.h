/* AVX512-BF16: VDPBF16PS adds to 16 sums the products of 16 pairs of k, so one row of a strip's tile is one register and a pair of a row is one broadcast. Eight rows by 32
 * columns of sums stay in registers: enough to hide the instruction's latency of 5 to 6 cycles, with two loads and eight broadcasts for each 16 products. Included by unit.h. */
static inline void unit_begin(void) {}
static inline void unit_end(void) {}

TILE_INLINE __m512bh pair_splat(const uint16_t *at) {
  int32_t pair;
  memcpy(&pair, at, sizeof pair);
  return (__m512bh)_mm512_set1_epi32(pair);
}

/* `n` rows (a constant) `row_bytes` apart, at `a` and in the last tile at `last`, times `tiles` tiles of columns (1 or 2, a constant). */
TILE_INLINE void group_multiply(const int n, const int tiles, const char *a, const char *last, const row_tiles *rows, int64_t k_tiles, const uint16_t *b, float *sums, bool more) {
  __m512 sum[8][2];
  int64_t row_bytes = rows->row_bytes;
  TILE_UNROLL for (int r = 0; r < n; r++)
    TILE_UNROLL for (int c = 0; c < tiles; c++) sum[r][c] = more ? _mm512_loadu_ps(sums + r * STRIP + c * SIDE) : _mm512_setzero_ps();
  for (int64_t t = 0; t < k_tiles; t++, a += 2 * rows->step, b += 2 * TILE_WORDS) {
    if (t == k_tiles - 1 && last) a = last, row_bytes = 2 * DEPTH;
    for (int64_t q = 0; q < SIDE; q++) {
      __m512bh column[2];
      TILE_UNROLL for (int c = 0; c < tiles; c++) column[c] = (__m512bh)_mm512_loadu_si512(b + c * TILE_WORDS + q * DEPTH);
      TILE_UNROLL for (int r = 0; r < n; r++) {
        const __m512bh pair = pair_splat((const uint16_t *)(const void *)(a + r * row_bytes) + 2 * q);
        TILE_UNROLL for (int c = 0; c < tiles; c++) sum[r][c] = _mm512_dpbf16_ps(sum[r][c], pair, column[c]);
      }
    }
  }
  TILE_UNROLL for (int r = 0; r < n; r++)
    TILE_UNROLL for (int c = 0; c < tiles; c++) _mm512_storeu_ps(sums + r * STRIP + c * SIDE, sum[r][c]);
}

static void unit_multiply(const row_tiles *rows, int64_t n_rows, int64_t columns, int64_t k_tiles, const uint16_t *b, float *sums, bool more) {
  for (int64_t r = 0; r < n_rows; r += 8) {
    /* Rows past the end are zero, and sums have room for them: a group is 8 rows, or 4 where no more are left. */
    const char *a = (const char *)(rows->data + r / SIDE * rows->second) + r % SIDE * rows->row_bytes;
    const char *last = rows->last ? (const char *)(rows->last + r / SIDE * TILE_WORDS + r % SIDE * DEPTH) : NULL;
    float *to = sums + r * STRIP;
    if (columns <= SIDE) group_multiply(8, 1, a, last, rows, k_tiles, b, to, more);
    else if (n_rows - r <= 4) group_multiply(4, 2, a, last, rows, k_tiles, b, to, more);
    else group_multiply(8, 2, a, last, rows, k_tiles, b, to, more);
  }
}
