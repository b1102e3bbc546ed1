/* The tile of a matrix product, for one element type: included by gemm.c with T (f32) and REAL (float) defined.
 *
 * One body, made for every number of rows and vectors, because only constants let the sums stay in registers. Operand A is read in place by any strides, one
 * splat per row and step; operand B by whole vectors. The rows' addresses hang on a third as many pointers: p, p + stride, p + 2 strides
 * are one addressing mode each. While it multiplies, the tile asks for the lines of C that it will write, and for `ahead` bytes a step of what comes next. */
#define NAME_(name, T) name##_##T
#define NAME(name, T) NAME_(name, T)
#define VECTOR NAME(tile, T)
#define LANES NAME(TILE_LANES, T)
#define DO(what) NAME(tile_##what, T)

typedef void (*NAME(tile_function, T))(int64_t k, const REAL *a, int64_t a_row, int64_t a_k, const REAL *b, int64_t b_k, REAL *c, int64_t c_row, int64_t last,
                                       bool accumulate, const char *next, int64_t ahead);

TILE_INLINE void NAME(multiply, T)(const int rows, const int vectors, const bool partial, int64_t k, const REAL *a, int64_t a_row, int64_t a_k, const REAL *b,
                                   int64_t b_k, REAL *c, int64_t c_row, int64_t last, bool accumulate, const char *next, int64_t ahead) {
  enum { POINTERS = (TILE_ROWS + 2) / 3 };
  VECTOR sum[TILE_ROWS][TERN_GEMM_VECTORS];
  const REAL *row[POINTERS];
  TILE_UNROLL for (int i = 0; i < POINTERS; i++) row[i] = a + 3 * i * a_row;
  TILE_UNROLL for (int i = 0; i < rows; i++) {
    TILE_UNROLL for (int v = 0; v < vectors; v++) sum[i][v] = DO(zero)();
  }
  TILE_UNROLL for (int i = 0; i < rows; i++) {
    TILE_UNROLL for (int v = 0; v < vectors; v++) __builtin_prefetch(c + i * c_row + v * LANES, 1);
  }
  for (; k > 0; k--) {
    VECTOR column[TERN_GEMM_VECTORS];
    TILE_UNROLL for (int v = 0; v < vectors; v++) {
      column[v] = partial && v == vectors - 1 ? DO(load_first)(b + v * LANES, last) : DO(load)(b + v * LANES);
    }
    TILE_UNROLL for (int i = 0; i < rows; i++) {
      VECTOR x = DO(splat)(row[i / 3][i % 3 * a_row]);
      TILE_UNROLL for (int v = 0; v < vectors; v++) sum[i][v] = DO(fma)(x, column[v], sum[i][v]);
    }
    b += b_k;
    __builtin_prefetch(next, 0, 2);
    next += ahead;
    TILE_UNROLL for (int i = 0; i < POINTERS; i++) row[i] += a_k;
  }
  TILE_UNROLL for (int i = 0; i < rows; i++) {
    TILE_UNROLL for (int v = 0; v < vectors; v++) {
      REAL *to = c + i * c_row + v * LANES;
      bool first = partial && v == vectors - 1;
      if (accumulate) sum[i][v] += first ? DO(load_first)(to, last) : DO(load)(to);
      if (first) DO(store_first)(to, sum[i][v], last);
      else DO(store)(to, sum[i][v]);
    }
  }
}

#define DEFINE_TILE(rows, vectors, partial)                                                                                                              \
  static void NAME(tile_##rows##_##vectors##_##partial, T)(int64_t k, const REAL *a, int64_t a_row, int64_t a_k, const REAL *b, int64_t b_k, REAL *c,     \
                                                           int64_t c_row, int64_t last, bool accumulate, const char *next, int64_t ahead) {                    \
    NAME(multiply, T)(rows, vectors, partial, k, a, a_row, a_k, b, b_k, c, c_row, last, accumulate, next, ahead);                                              \
  }
#define LIST_TILE(rows, vectors, partial) NAME(tile_##rows##_##vectors##_##partial, T),
#if TILE_PARTIAL_IS_FREE
TILE_EACH_ROWS(DEFINE_TILE, 1, 1)
TILE_EACH_ROWS(DEFINE_TILE, 2, 1)
static const NAME(tile_function, T) NAME(tiles, T)[2][TERN_GEMM_VECTORS][TILE_ROWS] = {
    {{TILE_EACH_ROWS(LIST_TILE, 1, 1)}, {TILE_EACH_ROWS(LIST_TILE, 2, 1)}},
    {{TILE_EACH_ROWS(LIST_TILE, 1, 1)}, {TILE_EACH_ROWS(LIST_TILE, 2, 1)}},
};
#else
TILE_EACH_ROWS(DEFINE_TILE, 1, 0)
TILE_EACH_ROWS(DEFINE_TILE, 2, 0)
TILE_EACH_ROWS(DEFINE_TILE, 1, 1)
TILE_EACH_ROWS(DEFINE_TILE, 2, 1)
static const NAME(tile_function, T) NAME(tiles, T)[2][TERN_GEMM_VECTORS][TILE_ROWS] = {
    {{TILE_EACH_ROWS(LIST_TILE, 1, 0)}, {TILE_EACH_ROWS(LIST_TILE, 2, 0)}},
    {{TILE_EACH_ROWS(LIST_TILE, 1, 1)}, {TILE_EACH_ROWS(LIST_TILE, 2, 1)}},
};
#endif

/* Rows are cut evenly: 64 rows are 5 tiles of 13 or 12, which keep the multipliers busier than 4 of 14 and one of 8. */
void TERN_ISA_NAME(NAME(tern_gemm_strip_ahead, T))(int64_t m, int64_t n, int64_t k, const REAL *a, int64_t a_row, int64_t a_k, const REAL *b, int64_t b_k,
                                                   REAL *c, int64_t c_row, bool accumulate, const REAL *next) {
  int64_t vectors = (n + LANES - 1) / LANES, last = n - (vectors - 1) * LANES;
  const NAME(tile_function, T) *rows_of = NAME(tiles, T)[last < LANES][vectors - 1];
  int64_t tiles = (m + TILE_ROWS - 1) / TILE_ROWS, rows = m / (tiles ? tiles : 1), longer = m - rows * tiles;
  /* Each tile brings its share of the next strip, a step of k a few bytes; with nothing to bring it looks at its own. */
  int64_t share = next ? (b_k * (int64_t)sizeof(REAL) + tiles - 1) / (tiles ? tiles : 1) : 0;
  const char *coming = (const char *)(next ? next : b);
  for (int64_t t = 0; t < tiles; t++) {
    int64_t r = rows + (t < longer);
    rows_of[r - 1](k, a, a_row, a_k, b, b_k, c, c_row, last, accumulate, coming, share);
    coming += k * share;
    a += r * a_row;
    c += r * c_row;
  }
}

void TERN_ISA_NAME(NAME(tern_gemm_strip, T))(int64_t m, int64_t n, int64_t k, const REAL *a, int64_t a_row, int64_t a_k, const REAL *b, int64_t b_k, REAL *c,
                                             int64_t c_row, bool accumulate) {
  TERN_ISA_NAME(NAME(tern_gemm_strip_ahead, T))(m, n, k, a, a_row, a_k, b, b_k, c, c_row, accumulate, NULL);
}

void TERN_ISA_NAME(NAME(tern_gemm_small, T))(int64_t m, int64_t n, int64_t k, const REAL *a, int64_t a_row, int64_t a_k, const REAL *b, int64_t b_k,
                                             int64_t b_column, REAL *c, int64_t c_row) {
  enum { STRIP = TERN_GEMM_VECTORS * LANES };
  REAL panel[TERN_GEMM_K * STRIP] __attribute__((aligned(64)));
  int64_t block = tern_gemm_k_block(k);
  if (k == 0)
    for (int64_t i = 0; i < m; i++) memset(c + i * c_row, 0, (size_t)n * sizeof(REAL));
  for (int64_t j = 0; j < n; j += STRIP) {
    int64_t columns = n - j < STRIP ? n - j : STRIP;
    for (int64_t p = 0; p < k; p += block) {
      int64_t length = k - p < block ? k - p : block;
      const REAL *from = b + p * b_k + j;
      int64_t from_k = b_k;
      if (b_column != 1) {
        tern_gemm_side side = {.data = (const char *)b, .dtype = NAME(TILE_DTYPE, T), .outer_stride = b_column, .k_stride = b_k};
        TERN_ISA_NAME(NAME(tern_gemm_pack_strip, T))(&side, j, columns, p, length, panel);
        from = panel;
        from_k = STRIP;
      }
      TERN_ISA_NAME(NAME(tern_gemm_strip, T))(m, columns, length, a + p * a_k, a_row, a_k, from, from_k, c + j, c_row, p > 0);
    }
  }
}

#undef NAME_
#undef NAME
#undef VECTOR
#undef LANES
#undef DO
#undef DEFINE_TILE
#undef LIST_TILE
