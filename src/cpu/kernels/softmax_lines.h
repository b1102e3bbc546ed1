/* Softmax of one line, and of a tile of lines side by side: a template over REAL (real.h), included by softmax.c.
 *
 * A tile is [n][TILE] with one line per column; its arithmetic is vertical. Sums are made of runs of
 * LINE_RUN elements or TILE_RUN rows, each summed in a fixed number of accumulators, folded by a fixed tree: the order depends on n alone, and long sums stay accurate. */

/* ---- one contiguous line ---- */

static REAL R(line_largest)(const REAL *x, int64_t n) {
  VECTOR a = V(splat)(-(REAL)INFINITY), b = a, c = a, d = a;
  int64_t i = 0;
  for (; i + 4 * LANES <= n; i += 4 * LANES) {
    a = V(max)(V(load)(x + i), a);
    b = V(max)(V(load)(x + i + LANES), b);
    c = V(max)(V(load)(x + i + 2 * LANES), c);
    d = V(max)(V(load)(x + i + 3 * LANES), d);
  }
  for (; i + LANES <= n; i += LANES) a = V(max)(V(load)(x + i), a);
  if (i < n) a = V(max)(V(load_n)(x + i, n - i, -(REAL)INFINITY), a);
  return V(largest)(V(max)(V(max)(a, b), V(max)(c, d)));
}

/* Sum of e^(x - top) over n <= LINE_RUN elements; the terms go to y unless it is NULL. */
static VECTOR R(run_exp_sum)(const REAL *x, REAL *y, int64_t n, VECTOR top) {
  VECTOR a = {0}, b = {0};
  int64_t i = 0;
  for (; i + 2 * LANES <= n; i += 2 * LANES) {
    VECTOR p = V(exp_below)(V(load)(x + i) - top), q = V(exp_below)(V(load)(x + i + LANES) - top);
    a += p;
    b += q;
    if (y) {
      V(store)(y + i, p);
      V(store)(y + i + LANES, q);
    }
  }
  for (; i < n; i += LANES) {
    int64_t left = n - i < LANES ? n - i : LANES;
    VECTOR p = V(exp_below)(V(load_n)(x + i, left, -(REAL)INFINITY) - top);
    if (left < LANES) p = V(load_n)((REAL *)&p, left, 0); /* x of -inf throughout makes NaN in the padding too */
    a += p;
    if (y) V(store_n)(y + i, left, p);
  }
  return a + b;
}

static REAL R(line_exp_sum)(const REAL *x, REAL *y, int64_t n, REAL largest) {
  VECTOR total = {0};
  for (int64_t run = 0; run < n; run += LINE_RUN)
    total += R(run_exp_sum)(x + run, y ? y + run : NULL, tern_min_i64(LINE_RUN, n - run), V(splat)(largest));
  return V(sum)(total);
}

static void R(line_scale)(REAL *y, int64_t n, REAL factor) {
  int64_t i = 0;
  for (; i + LANES <= n; i += LANES) V(store)(y + i, V(load)(y + i) * factor);
  for (; i < n; i++) y[i] *= factor;
}

static void R(line_softmax)(const REAL *x, REAL *y, int64_t n) {
  REAL sum = R(line_exp_sum)(x, y, n, R(line_largest)(x, n));
  R(line_scale)(y, n, 1 / sum);
}

static void R(line_log_softmax)(const REAL *x, REAL *y, int64_t n) {
  REAL largest = R(line_largest)(x, n), log_sum = (REAL)log((double)R(line_exp_sum)(x, NULL, n, largest));
  int64_t i = 0;
  /* Two subtractions: largest + log_sum would lose the small part of log_sum. */
  for (; i + LANES <= n; i += LANES) V(store)(y + i, V(load)(x + i) - largest - log_sum);
  for (; i < n; i++) y[i] = x[i] - largest - log_sum;
}

/* Sum of gy y, or of gy where y is NULL. */
static REAL R(line_grad_sum)(const REAL *gy, const REAL *y, int64_t n) {
  const VECTOR one = V(splat)(1);
  VECTOR total = {0};
  for (int64_t run = 0; run < n; run += LINE_RUN) {
    const int64_t end = tern_min_i64(n, run + LINE_RUN);
    VECTOR a = {0}, b = {0};
    int64_t i = run;
    for (; i + 2 * LANES <= end; i += 2 * LANES) {
      a = V(fma)(V(load)(gy + i), y ? V(load)(y + i) : one, a);
      b = V(fma)(V(load)(gy + i + LANES), y ? V(load)(y + i + LANES) : one, b);
    }
    for (; i < end; i += LANES) {
      int64_t left = end - i < LANES ? end - i : LANES;
      a = V(fma)(V(load_n)(gy + i, left, 0), y ? V(load_n)(y + i, left, 0) : one, a);
    }
    total += a + b;
  }
  return V(sum)(total);
}

/* gx = (gy - sum(gy y)) y */
static void R(line_softmax_grad)(const REAL *gy, const REAL *y, REAL *gx, int64_t n) {
  const REAL sum = R(line_grad_sum)(gy, y, n);
  int64_t i = 0;
  for (; i + LANES <= n; i += LANES) V(store)(gx + i, (V(load)(gy + i) - sum) * V(load)(y + i));
  for (; i < n; i++) gx[i] = (gy[i] - sum) * y[i];
}

/* gx = gy - e^y sum(gy) */
static void R(line_log_softmax_grad)(const REAL *gy, const REAL *y, REAL *gx, int64_t n) {
  const REAL sum = R(line_grad_sum)(gy, NULL, n);
  int64_t i = 0;
  for (; i + LANES <= n; i += LANES) V(store)(gx + i, V(load)(gy + i) - V(exp)(V(load)(y + i)) * sum);
  if (i < n) V(store_n)(gx + i, n - i, V(load_n)(gy + i, n - i, 0) - V(exp)(V(load_n)(y + i, n - i, 0)) * sum);
}

/* ---- tiles ---- */

#define AT(tile, row) V(load)((tile) + (row) * TILE + lane)
#define PUT(tile, row, v) V(store)((tile) + (row) * TILE + lane, v)

static void R(tile_softmax)(REAL *tile, int64_t n, bool is_log) {
  for (int64_t lane = 0; lane < TILE; lane += LANES) {
    VECTOR top = V(splat)(-(REAL)INFINITY), sum = {0};
    for (int64_t i = 0; i < n; i++) top = V(max)(AT(tile, i), top);
    for (int64_t run = 0; run < n; run += TILE_RUN) {
      VECTOR part = {0};
      for (int64_t i = run; i < tern_min_i64(n, run + TILE_RUN); i++) {
        VECTOR p = V(exp_below)(AT(tile, i) - top);
        part += p;
        if (!is_log) PUT(tile, i, p);
      }
      sum += part;
    }
    if (is_log) {
      VECTOR log_sum = V(log)(sum);
      for (int64_t i = 0; i < n; i++) PUT(tile, i, AT(tile, i) - top - log_sum);
    } else {
      VECTOR factor = 1 / sum;
      for (int64_t i = 0; i < n; i++) PUT(tile, i, AT(tile, i) * factor);
    }
  }
}

/* In gy's place. */
static void R(tile_softmax_grad)(REAL *gy, const REAL *y, int64_t n, bool is_log) {
  for (int64_t lane = 0; lane < TILE; lane += LANES) {
    VECTOR sum = {0};
    for (int64_t run = 0; run < n; run += TILE_RUN) {
      VECTOR part = {0};
      for (int64_t i = run; i < tern_min_i64(n, run + TILE_RUN); i++) part = is_log ? part + AT(gy, i) : V(fma)(AT(gy, i), AT(y, i), part);
      sum += part;
    }
    for (int64_t i = 0; i < n; i++) PUT(gy, i, is_log ? AT(gy, i) - V(exp)(AT(y, i)) * sum : (AT(gy, i) - sum) * AT(y, i));
  }
}
#undef AT
#undef PUT

/* `columns` <= TILE lines of n elements, `along` a line and `across` lines apart in elements, to a tile; unused columns are 0. */
static void R(tile_load)(tern_dtype dtype, const char *source, int64_t along, int64_t across, int64_t n, int64_t columns, REAL *tile) {
  const int64_t element = (int64_t)tern_dtype_size(dtype);
  if (across == 1)
    for (int64_t i = 0; i < n; i++) {
      REAL *row = tile + i * TILE;
      const REAL *loaded = R(row_load)(dtype, source + i * along * element, columns, row);
      if (loaded != row) memcpy(row, loaded, (size_t)columns * sizeof(REAL));
      for (int64_t c = columns; c < TILE; c++) row[c] = 0;
    }
  else {
    for (int64_t c = 0; c < columns; c++)
      for (int64_t i = 0; i < n; i++) tile[i * TILE + c] = R(element_load)(dtype, source + (c * across + i * along) * element);
    for (int64_t i = 0; i < n; i++)
      for (int64_t c = columns; c < TILE; c++) tile[i * TILE + c] = 0;
  }
}
static void R(tile_store)(tern_dtype dtype, const REAL *tile, int64_t along, int64_t across, int64_t n, int64_t columns, char *out) {
  const int64_t element = (int64_t)tern_dtype_size(dtype);
  if (across == 1)
    for (int64_t i = 0; i < n; i++) R(row_store)(dtype, tile + i * TILE, columns, out + i * along * element);
  else
    for (int64_t c = 0; c < columns; c++)
      for (int64_t i = 0; i < n; i++) R(element_store)(dtype, tile[i * TILE + c], out + (c * across + i * along) * element);
}

/* ---- chunks ---- */

/* Whole lines, last dimension. `room`: two rows of this thread. */
static void R(softmax_whole_lines)(const softmax_job *job, int64_t first, int64_t end, REAL *room) {
  const int64_t n = job->lines.length, bytes = n * (int64_t)tern_dtype_size(job->dtype);
  for (int64_t line = first; line < end; line++) {
    const REAL *a = R(row_load)(job->dtype, job->a + line * bytes, n, room);
    REAL *out = R(row_place)(job->dtype, job->out + line * bytes, room);
    if (job->b) {
      const REAL *b = R(row_load)(job->dtype, job->b + line * bytes, n, room + n);
      (job->is_log ? R(line_log_softmax_grad) : R(line_softmax_grad))(a, b, out, n);
    } else (job->is_log ? R(line_log_softmax) : R(line_softmax))(a, out, n);
    R(row_store)(job->dtype, out, n, job->out + line * bytes);
  }
}

/* Tile number `at`: neighbouring lines across the inner dimensions, or short lines one after another. `room`: two tiles. */
static void R(softmax_one_tile)(const softmax_job *job, int64_t at, REAL *room) {
  const tern_dense_lines l = job->lines;
  const int64_t element = (int64_t)tern_dtype_size(job->dtype);
  int64_t along, across, column, columns, offset;
  if (l.inner == 1) {
    along = 1, across = l.length;
    column = at * TILE, columns = tern_min_i64(TILE, l.outer - column);
    offset = column * l.length * element;
  } else {
    const int64_t tiles = tern_ceil_div(l.inner, TILE);
    along = l.inner, across = 1;
    column = at % tiles * TILE, columns = tern_min_i64(TILE, l.inner - column);
    offset = (at / tiles * l.length * l.inner + column) * element;
  }
  R(tile_load)(job->dtype, job->a + offset, along, across, l.length, columns, room);
  if (job->b) {
    REAL *b = room + l.length * TILE;
    R(tile_load)(job->dtype, job->b + offset, along, across, l.length, columns, b);
    R(tile_softmax_grad)(room, b, l.length, job->is_log);
  } else R(tile_softmax)(room, l.length, job->is_log);
  R(tile_store)(job->dtype, room, along, across, l.length, columns, job->out + offset);
}

static void R(softmax_chunk)(void *context, int64_t chunk, int thread) {
  const softmax_job *job = context;
  REAL *room = (REAL *)(job->scratch + (size_t)thread * job->scratch_each);
  const int64_t first = chunk * job->items_per_chunk, end = tern_min_i64(job->items, first + job->items_per_chunk);
  if (!job->tiled) R(softmax_whole_lines)(job, first, end, room);
  else
    for (int64_t at = first; at < end; at++) R(softmax_one_tile)(job, at, room);
}
