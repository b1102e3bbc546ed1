/* A matrix times a vector for one element type of the matrix: included by dot_narrow.c with N (that type), STORED (its C type), and T, REAL, DTYPE (what is summed in) defined.
 * The matrix is widened in registers. */
#define NAME_(name, T) name##_##T
#define NAME(name, T) NAME_(name, T)
#define VECTOR NAME(tile, T)
#define LANES NAME(TILE_LANES, T)
#define DO(what) NAME(tile_##what, T)
#define LOAD NAME(tile_load, N)
#define LOAD_FIRST NAME(tile_load_first, N)

/* Partial sums [LANES][count], each `stride` apart, folded by halves: the one order of both layouts (sum_f32 and sum_f64 fold one vector so). */
TILE_INLINE void NAME(fold, N)(REAL *sums, int64_t count, int64_t stride) {
  for (int half = LANES / 2; half > 0; half /= 2)
    for (int l = 0; l < half; l++)
      for (int64_t i = 0; i < count; i++) sums[l * stride + i] += sums[(l + half) * stride + i];
}

/* sums[lane] += row[p] * x[p] for p = lane, lane + LANES, ...; four rows at once hide the latency of the additions. What is `ahead` elements on is fetched: the processor
 * does not follow rows that end within a page. */
TILE_INLINE void NAME(add_rows, N)(const int rows, const STORED *const row[4], int64_t ahead, const REAL *x, int64_t k, REAL *sums) {
  enum { LINE = 64 / (int)sizeof(STORED), VECTORS = LINE > LANES ? LINE / LANES : 1 };
  VECTOR sum[4];
  TILE_UNROLL for (int i = 0; i < rows; i++) sum[i] = DO(load)(sums + i * LANES);
  int64_t p = 0;
  for (; p + VECTORS * LANES <= k; p += VECTORS * LANES) {
    TILE_UNROLL for (int i = 0; i < rows; i++) __builtin_prefetch(row[i] + p + ahead, 0, 2);
    TILE_UNROLL for (int v = 0; v < VECTORS; v++) {
      const VECTOR of_x = DO(load)(x + p + v * LANES);
      TILE_UNROLL for (int i = 0; i < rows; i++) sum[i] = DO(fma)(of_x, LOAD(row[i] + p + v * LANES), sum[i]);
    }
  }
  for (; p + LANES <= k; p += LANES) {
    VECTOR v = DO(load)(x + p);
    TILE_UNROLL for (int i = 0; i < rows; i++) sum[i] = DO(fma)(v, LOAD(row[i] + p), sum[i]);
  }
  if (p < k) {
    VECTOR v = DO(load_first)(x + p, k - p);
    TILE_UNROLL for (int i = 0; i < rows; i++) sum[i] = DO(fma)(v, LOAD_FIRST(row[i] + p, k - p), sum[i]);
  }
  TILE_UNROLL for (int i = 0; i < rows; i++) DO(store)(sums + i * LANES, sum[i]);
}

/* The matrix's rows [0, count), each contiguous in k, or gathered where they are not. */
static void NAME(by_rows, N)(const tern_gemm_side *w, int64_t first, int64_t count, const REAL *x, int64_t k0, int64_t k, REAL *sums) {
  STORED gathered[4][K_BLOCK];
  const STORED *data = (const STORED *)(const void *)w->data;
  bool contiguous = !w->k_offsets && w->k_stride == 1;
  for (int64_t i = 0; i < count; i += 4) {
    int64_t rows = count - i < 4 ? count - i : 4;
    const STORED *row[4] = {NULL};
    for (int64_t r = 0; r < rows; r++) {
      row[r] = contiguous ? data + tern_side_at(w, first + i + r, k0) : gathered[r];
      for (int64_t p = 0; p < k && !contiguous; p++) gathered[r][p] = data[tern_side_at(w, first + i + r, k0 + p)];
    }
    const int64_t ahead = contiguous ? 4 * w->outer_stride : 0;
    if (rows == 4) NAME(add_rows, N)(4, row, ahead, x, k, sums + i * LANES);
    else
      for (int64_t r = 0; r < rows; r++) NAME(add_rows, N)(1, row + r, ahead, x, k, sums + (i + r) * LANES);
  }
}

/* sums[lane][column] += row[lane + r * LANES][column] * x, for r < rows in order: the sums pass through registers once for several rows. */
TILE_INLINE void NAME(add_columns, N)(const int rows, const STORED *const *row, const REAL *x, int64_t count, REAL *sum) {
  VECTOR scale[4];
  TILE_UNROLL for (int r = 0; r < rows; r++) scale[r] = DO(splat)(x[r * LANES]);
  int64_t j = 0;
  for (; j + LANES <= count; j += LANES) {
    VECTOR s = DO(load)(sum + j);
    TILE_UNROLL for (int r = 0; r < rows; r++) s = DO(fma)(scale[r], LOAD(row[r] + j), s);
    DO(store)(sum + j, s);
  }
  if (j == count) return;
  VECTOR s = DO(load_first)(sum + j, count - j);
  TILE_UNROLL for (int r = 0; r < rows; r++) s = DO(fma)(scale[r], LOAD_FIRST(row[r] + j, count - j), s);
  DO(store_first)(sum + j, s, count - j);
}

/* The same sums where the outer dimension is the contiguous one: lane p % LANES of every column, kept in the first-level cache. */
static void NAME(by_columns, N)(const tern_gemm_side *w, int64_t first, int64_t count, const REAL *x, int64_t k0, int64_t k, REAL *sums,
                                int64_t stride) {
  for (int64_t p = 0; p < k; p += 4 * LANES)
    for (int64_t lane = 0; lane < LANES && p + lane < k; lane++) {
      const STORED *row[4] = {NULL};
      int64_t rows = (k - p - lane + LANES - 1) / LANES;
      if (rows > 4) rows = 4;
      for (int64_t r = 0; r < rows; r++) row[r] = (const STORED *)(const void *)w->data + tern_side_at(w, first, k0 + p + lane + r * LANES);
      REAL *sum = sums + lane * stride;
      const REAL *from = x + p + lane;
      if (rows == 4) NAME(add_columns, N)(4, row, from, count, sum);
      else
        for (int64_t r = 0; r < rows; r++) NAME(add_columns, N)(1, row + r, from + r * LANES, count, sum);
    }
}

static void NAME(narrow_block, N)(const narrow *job, int64_t batch, int64_t first, int64_t count) {
  const tern_gemm_product *g = job->product;
  bool vector_is_a = g->m == 1;
  tern_gemm_side x = vector_is_a ? g->a : g->b, w = vector_is_a ? g->b : g->a;
  x.data += tern_batch_offset(g, vector_is_a ? g->a_batch_strides : g->b_batch_strides, batch) * (int64_t)tern_dtype_size(x.dtype);
  w.data += tern_batch_offset(g, vector_is_a ? g->b_batch_strides : g->a_batch_strides, batch) * (int64_t)tern_dtype_size(w.dtype);
  bool columns = !w.outer_offsets && w.outer_stride == 1 && count > 1 && (w.k_offsets || w.k_stride != 1);
  REAL sums[OUTER_BLOCK * LANES] __attribute__((aligned(64)));
  int64_t stride = (count + LANES - 1) / LANES * LANES; /* of columns' sums, lane by lane */
  memset(sums, 0, sizeof(REAL) * (size_t)(stride * LANES));
  for (int64_t p = 0; p < g->k; p += K_BLOCK) {
    REAL dense[K_BLOCK];
    int64_t k = g->k - p < K_BLOCK ? g->k - p : K_BLOCK;
    const REAL *from = dense;
    if (!x.k_offsets && x.k_stride == 1) {
      int64_t at = tern_side_at(&x, 0, p);
      if (x.dtype == DTYPE) from = (const REAL *)(const void *)x.data + at;
      else NAME(widen, T)(x.dtype, x.data, at, k, dense);
    } else {
      for (int64_t i = 0; i < k; i++) NAME(widen, T)(x.dtype, x.data, tern_side_at(&x, 0, p + i), 1, &dense[i]);
    }
    if (columns) NAME(by_columns, N)(&w, first, count, from, p, k, sums, stride);
    else NAME(by_rows, N)(&w, first, count, from, p, k, sums);
  }
  REAL results[OUTER_BLOCK];
  if (columns) {
    NAME(fold, N)(sums, count, stride);
    memcpy(results, sums, sizeof(REAL) * (size_t)count);
  } else {
    for (int64_t i = 0; i < count; i++) results[i] = NAME(sum, T)(sums + i * LANES);
  }
  char *to = g->c + (batch * g->m * g->c_stride + first) * (int64_t)tern_dtype_size(g->c_dtype);
  NAME(put, T)(g->c_dtype, results, count, to);
}

#undef NAME_
#undef NAME
#undef VECTOR
#undef LANES
#undef DO
#undef LOAD
#undef LOAD_FIRST
#undef N
#undef STORED
