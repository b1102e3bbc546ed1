/* blocks_reduce: one reduction of one dtype: a template. REAL is the C type, COMBINE(x, y) the operation, NAMED(x) makes names. The order of
 * combination depends on the length alone (blocks.h). No include guard: included once per reduction and dtype by blocks_reduce.c. */

/* Short rows: SIDE of them side by side, so that every step of the same folding is a vector operation. */
static void NAMED(short_rows)(REAL *out, const REAL *p, int64_t length) {
  REAL lanes[LANES][SIDE];
  for (int r = 0; r < SIDE; r++)
    for (int64_t l = 0; l < length; l++) lanes[l][r] = p[r * length + l];
  int64_t used = length;
  for (int64_t half = LANES / 2; half > 0; half /= 2) {
    for (int64_t l = 0; l + half < used; l++)
      for (int r = 0; r < SIDE; r++) lanes[l][r] = (REAL)COMBINE(lanes[l][r], lanes[l + half][r]);
    if (used > half) used = half;
  }
  memcpy(out, lanes[0], sizeof lanes[0]);
}

static void NAMED(rows)(void *out, const void *x, int64_t rows, int64_t length) {
  REAL *o = out;
  const REAL *p = x;
  int64_t first = 0;
  if (length < LANES)
    for (; first + SIDE <= rows; first += SIDE, p += SIDE * length) NAMED(short_rows)(o + first, p, length);
  for (int64_t r = first; r < rows; r++, p += length) {
    REAL lanes[LANES];
    int64_t used = length < LANES ? length : LANES, i = LANES;
    if (length >= LANES) {
      memcpy(lanes, p, sizeof lanes);
      for (; i + LANES <= length; i += LANES)
        for (int l = 0; l < LANES; l++) lanes[l] = (REAL)COMBINE(lanes[l], p[i + l]);
      for (int l = 0; i + l < length; l++) lanes[l] = (REAL)COMBINE(lanes[l], p[i + l]);
      for (int half = LANES / 2; half > 0; half /= 2)
        for (int l = 0; l < half; l++) lanes[l] = (REAL)COMBINE(lanes[l], lanes[l + half]);
    } else {
      for (int64_t l = 0; l < used; l++) lanes[l] = p[l];
      for (int64_t half = LANES / 2; half > 0; half /= 2) {
        for (int64_t l = 0; l + half < used; l++) lanes[l] = (REAL)COMBINE(lanes[l], lanes[l + half]);
        if (used > half) used = half;
      }
    }
    o[r] = lanes[0];
  }
}

static void NAMED(columns)(void *sum, const void *x, int64_t rows, int64_t columns, bool fresh) {
  REAL *s = sum;
  const REAL *p = x;
  int64_t c = 0;
  for (; c + LANES <= columns; c += LANES) {
    REAL lanes[LANES];
    memcpy(lanes, fresh ? p + c : s + c, sizeof lanes);
    for (int64_t r = fresh; r < rows; r++)
      for (int l = 0; l < LANES; l++) lanes[l] = (REAL)COMBINE(lanes[l], p[r * columns + c + l]);
    memcpy(s + c, lanes, sizeof lanes);
  }
  if (c == columns) return;
  if (fresh) memcpy(s + c, p + c, (size_t)(columns - c) * sizeof(REAL));
  for (int64_t r = fresh; r < rows; r++)
    for (int64_t k = c; k < columns; k++) s[k] = (REAL)COMBINE(s[k], p[r * columns + k]);
}
#undef NAMED
