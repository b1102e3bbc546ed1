/* unit: what multiplies a block of rows by a strip, in the instructions that this object is built for. Each unit_*.h defines
 *
 *     unit_begin(), unit_end()     around the products of a chunk
 *     unit_multiply(...)           sums[row][column] = (`more`: +=) row times column, for a block of rows and a strip of columns
 *
 * for the forms of rows and strips below. Denormal numbers count as zero in both; the order of additions depends on k alone. */
#ifndef TERN_BF16_UNIT_H
#define TERN_BF16_UNIT_H
#include <immintrin.h>
#include "../tile.h"

enum {
  SIDE = 16,                 /* rows, and columns, of a tile of sums */
  STRIP = 2 * SIDE,          /* columns of a strip, rows of a block */
  DEPTH = 32,                /* of k in one tile */
  TILE_WORDS = SIDE * DEPTH, /* elements of a tile */
};

/* 32 rows: 16 of them `row_bytes` apart, the others `second` elements on; the next tile of k is `step` elements on, the last one may be elsewhere: there rows are 64 bytes
 * apart and the others one tile on. */
typedef struct row_tiles {
  const uint16_t *data, *last;
  int64_t row_bytes, second, step;
} row_tiles;

#ifdef __AMX_TILE__
#include "unit_amx.h"
#else
#include "unit_avx512_bf16.h"
#endif
#endif
