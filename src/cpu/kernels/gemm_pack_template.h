/* Packing for one element type: included by gemm_pack.c with T, REAL, DTYPE and WIDEN (a run of elements of a side's own type, widened) defined. */
#define NAME_(name, T) name##_##T
#define NAME(name, T) NAME_(name, T)
#define LANES NAME(TILE_LANES, T)
#define SQUARE NAME(TILE_SQUARE, T)
#define STRIP (TERN_GEMM_VECTORS * LANES)

/* panel[p][column] = columns[column * stride + p], by squares. */
static void NAME(transpose, T)(const REAL *columns, int64_t stride, int64_t n, int64_t k, REAL *panel) {
  int64_t j = 0;
  for (; j + SQUARE <= n; j += SQUARE) {
    const REAL *from = columns + j * stride;
    int64_t p = 0;
    for (; p + SQUARE <= k; p += SQUARE) {
      if (p % (64 / (int64_t)sizeof(REAL)) == 0) /* the next square's rows are far away: a hardware prefetcher follows none of them long enough */
        TILE_UNROLL for (int64_t c = 0; c < SQUARE; c++) __builtin_prefetch(from + (SQUARE + c) * stride + p, 0, 3);
      NAME(tile_transpose, T)(from + p, stride, panel + p * STRIP + j, STRIP);
    }
    for (; p < k; p++)
      for (int64_t c = 0; c < SQUARE; c++) panel[p * STRIP + j + c] = from[c * stride + p];
  }
  for (; j < n; j++)
    for (int64_t p = 0; p < k; p++) panel[p * STRIP + j] = columns[j * stride + p];
}

static REAL NAME(element, T)(const tern_gemm_side *side, int64_t at) {
  REAL x;
  NAME(widen, T)(side->dtype, side->data, at, 1, &x);
  return x;
}

void TERN_ISA_NAME(NAME(tern_gemm_pack_strip, T))(const tern_gemm_side *b, int64_t n0, int64_t n, int64_t k0, int64_t k, REAL *panel) {
  int64_t used = (n + LANES - 1) / LANES * LANES;
  if (used > n)
    for (int64_t p = 0; p < k; p++)
      for (int64_t j = n; j < used; j++) panel[p * STRIP + j] = 0;
  int64_t first = (b->outer_offsets ? 0 : n0 * b->outer_stride) + (b->k_offsets ? 0 : k0 * b->k_stride);
  if (!b->outer_offsets && b->outer_stride == 1) {
    if (b->dtype == DTYPE && n == STRIP) { /* a fixed length: a few vector moves a row */
      const REAL *data = (const REAL *)(const void *)b->data + first;
      for (int64_t p = 0; p < k; p++) memcpy(panel + p * STRIP, data + (b->k_offsets ? b->k_offsets[k0 + p] : p * b->k_stride), STRIP * sizeof(REAL));
    } else {
      for (int64_t p = 0; p < k; p++) NAME(widen, T)(b->dtype, b->data, first + (b->k_offsets ? b->k_offsets[k0 + p] : p * b->k_stride), n, panel + p * STRIP);
    }
    return;
  }
  if (!b->k_offsets && b->k_stride == 1) {
    if (b->dtype == DTYPE && !b->outer_offsets) {
      NAME(transpose, T)((const REAL *)(const void *)b->data + first, b->outer_stride, n, k, panel);
      return;
    }
    REAL rows[SQUARE * TERN_GEMM_K];
    for (int64_t j = 0; j < n; j += SQUARE) {
      int64_t count = n - j < SQUARE ? n - j : SQUARE;
      for (int64_t c = 0; c < count; c++) {
        int64_t column = b->outer_offsets ? b->outer_offsets[n0 + j + c] : (j + c) * b->outer_stride;
        NAME(widen, T)(b->dtype, b->data, first + column, k, rows + c * TERN_GEMM_K);
      }
      NAME(transpose, T)(rows, TERN_GEMM_K, count, k, panel + j);
    }
    return;
  }
  for (int64_t p = 0; p < k; p++) {
    int64_t row = first + (b->k_offsets ? b->k_offsets[k0 + p] : p * b->k_stride);
    for (int64_t j = 0; j < n; j++) panel[p * STRIP + j] = NAME(element, T)(b, row + (b->outer_offsets ? b->outer_offsets[n0 + j] : j * b->outer_stride));
  }
}

/* Rows stay rows where k runs fastest (copies, no transpose), and k stays outside where rows do. */
void TERN_ISA_NAME(NAME(tern_gemm_pack_rows, T))(const tern_gemm_side *a, int64_t m0, int64_t m, int64_t k0, int64_t k, REAL *block, int64_t *row_stride,
                                                 int64_t *k_stride) {
  int64_t first = (a->outer_offsets ? 0 : m0 * a->outer_stride) + (a->k_offsets ? 0 : k0 * a->k_stride);
  if (!a->outer_offsets && a->outer_stride == 1 && (a->k_offsets || a->k_stride != 1)) {
    *row_stride = 1;
    *k_stride = m;
    for (int64_t p = 0; p < k; p++) NAME(widen, T)(a->dtype, a->data, first + (a->k_offsets ? a->k_offsets[k0 + p] : p * a->k_stride), m, block + p * m);
    return;
  }
  /* Whole cache lines and one more: rows then start in different cache sets. */
  int64_t length = (k + 15) / 16 * 16 + 16;
  *row_stride = length;
  *k_stride = 1;
  for (int64_t i = 0; i < m; i++) {
    int64_t row = first + (a->outer_offsets ? a->outer_offsets[m0 + i] : i * a->outer_stride);
    if (!a->k_offsets && a->k_stride == 1) NAME(widen, T)(a->dtype, a->data, row, k, block + i * length);
    else
      for (int64_t p = 0; p < k; p++) block[i * length + p] = NAME(element, T)(a, row + (a->k_offsets ? a->k_offsets[k0 + p] : p * a->k_stride));
  }
}

#undef NAME_
#undef NAME
#undef LANES
#undef SQUARE
#undef STRIP
