/* Pooling of planes for one element type: included by window.c with T, REAL, WHERE (an integer as wide as REAL), DTYPE and the conversions defined.
 *
 * Inside, a plane is dense and of type REAL. Output rows are made in blocks, tap by tap, with the loop over a row inside: it becomes vectors. */
#define NAME_(name, T) name##_##T
#define NAME(name, T) NAME_(name, T)

/* The dense plane `number` (image * channels + channel) of an array: in place, or copied to `room`. */
static const REAL *NAME(plane_of, T)(const plane_array *a, int64_t number, REAL *room) {
  int64_t base = number / a->channels * a->strides[0] + number % a->channels * a->strides[1];
  if (a->is_dense && a->dtype == DTYPE) return (const REAL *)(const void *)a->data + base;
  REAL *to = room;
  for (int64_t d = 0; d < a->dims[0]; d++)
    for (int64_t h = 0; h < a->dims[1]; h++, to += a->dims[2]) NAME(take, T)(a->dtype, a->data, base + d * a->strides[2] + h * a->strides[3], a->strides[4], a->dims[2], to);
  return room;
}

/* ---- maximum ---- */

/* Of several equal values the first wins, and of several NaN the last, as in PyTorch. */
TILE_INLINE void NAME(keep_larger, T)(const int64_t stride, int64_t n, const REAL *from, WHERE at, REAL *best, WHERE *where) {
  for (int64_t i = 0; i < n; i++) {
    REAL x = from[i * stride];
    bool wins = (x > best[i]) | (x != x);
    best[i] = wins ? x : best[i];
    where[i] = wins ? at + (WHERE)(i * stride) : where[i];
  }
}

static void NAME(max_row, T)(const pooling *p, const REAL *plane, int64_t od, int64_t oh, int64_t ow, int64_t n, REAL *best, WHERE *where) {
  const window_axis *a = p->axis;
  span depths = taps_inside(&a[0], od), heights = taps_inside(&a[1], oh);
  int64_t corner = (first_inside(&a[0], od) * a[1].in + first_inside(&a[1], oh)) * a[2].in;
  for (int64_t i = 0; i < n; i++) {
    best[i] = -(REAL)INFINITY;
    where[i] = (WHERE)(corner + first_inside(&a[2], ow + i));
  }
  for (int64_t kd = depths.first; kd < depths.end; kd++)
    for (int64_t kh = heights.first; kh < heights.end; kh++) {
      int64_t row = (source_of(&a[0], od, kd) * a[1].in + source_of(&a[1], oh, kh)) * a[2].in;
      for (int64_t kw = 0; kw < a[2].size; kw++) {
        span inside = results_inside(&a[2], kw, ow, n);
        if (inside.first >= inside.end) continue;
        int64_t at = row + source_of(&a[2], ow + inside.first, kw), count = inside.end - inside.first;
        REAL *b = best + inside.first;
        WHERE *w = where + inside.first;
        if (a[2].stride == 1) NAME(keep_larger, T)(1, count, plane + at, (WHERE)at, b, w);
        else if (a[2].stride == 2) NAME(keep_larger, T)(2, count, plane + at, (WHERE)at, b, w);
        else NAME(keep_larger, T)(a[2].stride, count, plane + at, (WHERE)at, b, w);
      }
    }
}

/* Windows of 2 x 2 side by side: pairs first, which are contiguous over the whole plane whatever its width, then the two rows. */
static void NAME(max_pairs, T)(const pooling *p, const REAL *plane, REAL *values, int64_t *index, REAL *pair, WHERE *pair_at) {
  int64_t width = p->axis[2].out, rows = p->axis[1].out, pairs = 2 * rows * width;
  for (int64_t i = 0; i < pairs; i++) {
    REAL x = plane[2 * i], y = plane[2 * i + 1];
    bool second = (y > x) | (y != y);
    pair[i] = second ? y : x;
    pair_at[i] = (WHERE)(2 * i) + (WHERE)second;
  }
  for (int64_t r = 0; r < rows; r++) {
    const REAL *above = pair + 2 * r * width, *below = above + width;
    const WHERE *above_at = pair_at + 2 * r * width, *below_at = above_at + width;
    for (int64_t i = 0; i < width; i++) {
      bool lower = (below[i] > above[i]) | (below[i] != below[i]);
      values[r * width + i] = lower ? below[i] : above[i];
      index[r * width + i] = lower ? below_at[i] : above_at[i];
    }
  }
}

static void NAME(max_plane, T)(const pooling *p, int64_t number, char *room) {
  REAL *dense = (REAL *)(void *)room, *values = dense + p->in_room;
  const REAL *plane = NAME(plane_of, T)(&p->source, number, dense);
  char *y = p->out + number * p->out_plane * (int64_t)tern_dtype_size(p->dtype);
  int64_t *index = p->index + number * p->out_plane;
  bool in_place = p->dtype == DTYPE;
  if (p->is_pairs) {
    REAL *to = in_place ? (REAL *)(void *)y : values, *pair = values + p->out_room;
    NAME(max_pairs, T)(p, plane, to, index, pair, (WHERE *)(void *)(pair + p->in_room));
    if (!in_place) NAME(put, T)(p->dtype, to, p->out_plane, y);
    return;
  }
  for (int64_t row = 0; row < p->axis[0].out * p->axis[1].out; row++)
    for (int64_t ow = 0; ow < p->axis[2].out; ow += ROW_BLOCK) {
      REAL best[ROW_BLOCK];
      WHERE where[ROW_BLOCK];
      int64_t n = p->axis[2].out - ow < ROW_BLOCK ? p->axis[2].out - ow : ROW_BLOCK, at = row * p->axis[2].out + ow;
      NAME(max_row, T)(p, plane, row / p->axis[1].out, row % p->axis[1].out, ow, n, best, where);
      NAME(put, T)(p->dtype, best, n, y + at * (int64_t)tern_dtype_size(p->dtype));
      for (int64_t i = 0; i < n; i++) index[at + i] = where[i];
    }
}

static void NAME(max_grad_plane, T)(const pooling *p, int64_t number, char *room) {
  REAL *dense = (REAL *)(void *)room;
  const REAL *gy = NAME(plane_of, T)(&p->source, number, dense);
  char *gx = p->out + number * p->out_plane * (int64_t)tern_dtype_size(p->dtype);
  REAL *sum = p->dtype == DTYPE ? (REAL *)(void *)gx : dense + p->in_room;
  memset(sum, 0, (size_t)p->out_plane * sizeof(REAL));
  const plane_array *ix = &p->where;
  int64_t base = number / ix->channels * ix->strides[0] + number % ix->channels * ix->strides[1];
  const int64_t *index = (const int64_t *)(const void *)ix->data + base;
  for (int64_t d = 0; d < ix->dims[0]; d++)
    for (int64_t h = 0; h < ix->dims[1]; h++) {
      const int64_t *row = index + d * ix->strides[2] + h * ix->strides[3];
      for (int64_t w = 0; w < ix->dims[2]; w++) {
        int64_t at = row[w * ix->strides[4]];
        if (at >= 0 && at < p->out_plane) sum[at] += *gy; /* a window of nothing but padding points nowhere */
        gy++;
      }
    }
  if (p->dtype != DTYPE) NAME(put, T)(p->dtype, sum, p->out_plane, gx);
}

/* ---- average ---- */

/* What the elements of results [ow, ow + n) of an output row are divided by. */
static void NAME(divisors, T)(const pooling *p, int64_t od, int64_t oh, int64_t ow, int64_t n, REAL *divisors) {
  int64_t outer = elements_counted(p, 0, od) * elements_counted(p, 1, oh);
  for (int64_t i = 0; i < n; i++) divisors[i] = (REAL)(p->divisor ? p->divisor : outer * elements_counted(p, 2, ow + i));
}

TILE_INLINE void NAME(add_strided, T)(const int64_t stride, int64_t n, const REAL *from, REAL *sum) {
  for (int64_t i = 0; i < n; i++) sum[i] += from[i * stride];
}
TILE_INLINE void NAME(spread_strided, T)(const int64_t stride, int64_t n, const REAL *from, REAL *to) {
  for (int64_t i = 0; i < n; i++) to[i * stride] += from[i];
}

static void NAME(avg_plane, T)(const pooling *p, int64_t number, char *room) {
  const window_axis *a = p->axis;
  const REAL *plane = NAME(plane_of, T)(&p->source, number, (REAL *)(void *)room);
  char *y = p->out + number * p->out_plane * (int64_t)tern_dtype_size(p->dtype);
  for (int64_t row = 0; row < a[0].out * a[1].out; row++)
    for (int64_t ow = 0; ow < a[2].out; ow += ROW_BLOCK) {
      REAL sum[ROW_BLOCK] = {0}, divisors[ROW_BLOCK];
      int64_t n = a[2].out - ow < ROW_BLOCK ? a[2].out - ow : ROW_BLOCK, od = row / a[1].out, oh = row % a[1].out;
      span depths = taps_inside(&a[0], od), heights = taps_inside(&a[1], oh);
      for (int64_t kd = depths.first; kd < depths.end; kd++)
        for (int64_t kh = heights.first; kh < heights.end; kh++) {
          const REAL *from = plane + (source_of(&a[0], od, kd) * a[1].in + source_of(&a[1], oh, kh)) * a[2].in;
          for (int64_t kw = 0; kw < a[2].size; kw++) {
            span inside = results_inside(&a[2], kw, ow, n);
            if (inside.first >= inside.end) continue;
            const REAL *x = from + source_of(&a[2], ow + inside.first, kw);
            int64_t count = inside.end - inside.first;
            if (a[2].stride == 1) NAME(add_strided, T)(1, count, x, sum + inside.first);
            else if (a[2].stride == 2) NAME(add_strided, T)(2, count, x, sum + inside.first);
            else NAME(add_strided, T)(a[2].stride, count, x, sum + inside.first);
          }
        }
      NAME(divisors, T)(p, od, oh, ow, n, divisors);
      for (int64_t i = 0; i < n; i++) sum[i] /= divisors[i];
      NAME(put, T)(p->dtype, sum, n, y + (row * a[2].out + ow) * (int64_t)tern_dtype_size(p->dtype));
    }
}

static void NAME(avg_grad_plane, T)(const pooling *p, int64_t number, char *room) {
  const window_axis *a = p->axis;
  REAL *dense = (REAL *)(void *)room;
  const REAL *gy = NAME(plane_of, T)(&p->source, number, dense);
  char *gx = p->out + number * p->out_plane * (int64_t)tern_dtype_size(p->dtype);
  REAL *sum = p->dtype == DTYPE ? (REAL *)(void *)gx : dense + p->in_room;
  memset(sum, 0, (size_t)p->out_plane * sizeof(REAL));
  for (int64_t row = 0; row < a[0].out * a[1].out; row++)
    for (int64_t ow = 0; ow < a[2].out; ow += ROW_BLOCK) {
      REAL share[ROW_BLOCK];
      int64_t n = a[2].out - ow < ROW_BLOCK ? a[2].out - ow : ROW_BLOCK, od = row / a[1].out, oh = row % a[1].out;
      NAME(divisors, T)(p, od, oh, ow, n, share);
      for (int64_t i = 0; i < n; i++) share[i] = gy[row * a[2].out + ow + i] / share[i];
      span depths = taps_inside(&a[0], od), heights = taps_inside(&a[1], oh);
      for (int64_t kd = depths.first; kd < depths.end; kd++)
        for (int64_t kh = heights.first; kh < heights.end; kh++) {
          REAL *to = sum + (source_of(&a[0], od, kd) * a[1].in + source_of(&a[1], oh, kh)) * a[2].in;
          for (int64_t kw = a[2].size - 1; kw >= 0; kw--) { /* backwards: an input then takes its shares in the order of the results */
            span inside = results_inside(&a[2], kw, ow, n);
            if (inside.first >= inside.end) continue;
            REAL *x = to + source_of(&a[2], ow + inside.first, kw);
            int64_t count = inside.end - inside.first;
            if (a[2].stride == 1) NAME(spread_strided, T)(1, count, share + inside.first, x);
            else if (a[2].stride == 2) NAME(spread_strided, T)(2, count, share + inside.first, x);
            else NAME(spread_strided, T)(a[2].stride, count, share + inside.first, x);
          }
        }
    }
  if (p->dtype != DTYPE) NAME(put, T)(p->dtype, sum, p->out_plane, gx);
}

#undef NAME_
#undef NAME
