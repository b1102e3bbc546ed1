/* The matrix unit: a tile register holds 16 rows of 64 bytes, and TDPBF16PS adds to 16 x 16 sums the products of a tile of rows (16 rows, 32 of k) and a tile of a strip, in
 * which two consecutive k of a column lie side by side. Sums stay in tile registers. Included by unit.h. */
typedef struct tile_config {
  uint8_t palette, start_row, reserved[14];
  uint16_t row_bytes[16];
  uint8_t rows[16];
} tile_config;
static const tile_config whole_tiles = {.palette = 1, .row_bytes = {64, 64, 64, 64, 64, 64, 64, 64}, .rows = {16, 16, 16, 16, 16, 16, 16, 16}};

static inline void unit_begin(void) { _tile_loadconfig(&whole_tiles); }
static inline void unit_end(void) { _tile_release(); }

/* sums[32][32] = (`more`: +=) rows times a strip; of the rows and of the columns only the first 16 where the constants say so. */
TILE_INLINE void tiles_multiply(const bool all_rows, const bool all_columns, const row_tiles *rows, int64_t k_tiles, const uint16_t *b, float *sums, bool more) {
  if (more) {
    _tile_loadd(0, sums, STRIP * 4);
    if (all_columns) _tile_loadd(1, sums + SIDE, STRIP * 4);
    if (all_rows) _tile_loadd(2, sums + SIDE * STRIP, STRIP * 4);
    if (all_rows && all_columns) _tile_loadd(3, sums + SIDE * STRIP + SIDE, STRIP * 4);
  } else {
    _tile_zero(0);
    if (all_columns) _tile_zero(1);
    if (all_rows) _tile_zero(2);
    if (all_rows && all_columns) _tile_zero(3);
  }
  const uint16_t *a = rows->data;
  int64_t row_bytes = rows->row_bytes, second = rows->second;
  for (int64_t t = 0; t < k_tiles; t++, a += rows->step, b += 2 * TILE_WORDS) {
    if (t == k_tiles - 1 && rows->last) {
      a = rows->last;
      row_bytes = 2 * DEPTH;
      second = TILE_WORDS;
    }
    _tile_loadd(4, a, row_bytes);
    _tile_loadd(6, b, 64);
    if (all_columns) _tile_loadd(7, b + TILE_WORDS, 64);
    _tile_dpbf16ps(0, 4, 6);
    if (all_columns) _tile_dpbf16ps(1, 4, 7);
    if (!all_rows) continue;
    _tile_loadd(5, a + second, row_bytes);
    _tile_dpbf16ps(2, 5, 6);
    if (all_columns) _tile_dpbf16ps(3, 5, 7);
  }
  _tile_stored(0, sums, STRIP * 4);
  if (all_columns) _tile_stored(1, sums + SIDE, STRIP * 4);
  if (all_rows) _tile_stored(2, sums + SIDE * STRIP, STRIP * 4);
  if (all_rows && all_columns) _tile_stored(3, sums + SIDE * STRIP + SIDE, STRIP * 4);
}

static void unit_multiply(const row_tiles *rows, int64_t n_rows, int64_t columns, int64_t k_tiles, const uint16_t *b, float *sums, bool more) {
  if (n_rows <= SIDE) tiles_multiply(false, true, rows, k_tiles, b, sums, more);
  else if (columns <= SIDE) tiles_multiply(true, false, rows, k_tiles, b, sums, more);
  else tiles_multiply(true, true, rows, k_tiles, b, sums, more);
}
