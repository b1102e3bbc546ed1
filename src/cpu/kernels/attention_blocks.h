/* Attention on blocks: a template over REAL (real.h), included by attention.c, which explains the method.
 *
 * Scores are kept transposed: s[key][query], STRIP queries side by side. So a product takes keys and values where they lie (rows of K and V), only the queries
 * are packed, and maximum, exponential and sum over the keys run down the vectors with nothing to do across lanes. */

#define STRIP R(TERN_GEMM_STRIP)

/* Rows [first, first + n) of a [B, H, length, width] array from `offset` on, as REAL with contiguous rows: in place if they are so, else in `room`. */
static const REAL *R(rows_load)(const tern_cpu_view *x, int64_t offset, int64_t first, int64_t n, REAL *room, int64_t *stride) {
  const int64_t element = (int64_t)tern_dtype_size(x->dtype), width = x->dims[3];
  const char *data = x->data + (offset + first * x->strides[2]) * element;
  const bool contiguous = x->strides[3] == 1 || width == 1;
  *stride = x->strides[2];
  if (contiguous && element == sizeof(REAL)) return (const REAL *)data;
  *stride = width;
  for (int64_t row = 0; row < n; row++, data += x->strides[2] * element) {
    REAL *to = room + row * width;
    if (contiguous) (void)R(row_load)(x->dtype, data, width, to);
    else
      for (int64_t e = 0; e < width; e++) to[e] = R(element_load)(x->dtype, data + e * x->strides[3] * element);
  }
  return room;
}

/* c[m, n] (+)= a[m, k] b[k, n] for any n. */
static void R(multiply)(int64_t m, int64_t n, int64_t k, const REAL *a, int64_t a_row, int64_t a_k, const REAL *b, int64_t b_k, REAL *c, int64_t c_row, bool accumulate) {
  for (int64_t column = 0; column < n; column += STRIP)
    TERN_ISA_NAME(R(tern_gemm_strip))(m, tern_min_i64(STRIP, n - column), k, a, a_row, a_k, b + column, b_k, c + column, c_row, accumulate);
}

/* A strip of queries (or rows of the result's gradient) as panel[width][STRIP], times `factor`; the unused lanes of its last vector are 0. */
static void R(pack_queries)(const tern_cpu_view *x, const attention_strip *strip, REAL factor, REAL *panel) {
  const int64_t width = x->dims[3], lanes = tern_ceil_div(strip->n, LANES) * LANES;
  int64_t offsets[STRIP];
  for (int64_t i = 0; i < strip->n; i++) offsets[i] = attention_row_offset(x, strip, i);
  tern_gemm_side side = {.data = x->data, .dtype = x->dtype, .outer_stride = x->strides[2], .k_stride = x->strides[3]};
  if (strip->head[0] == strip->head[strip->n - 1]) side.data += offsets[0] * (int64_t)tern_dtype_size(x->dtype);
  else side.outer_offsets = offsets;
  for (int64_t e = 0; e < width; e += TERN_GEMM_K)
    TERN_ISA_NAME(R(tern_gemm_pack_strip))(&side, 0, strip->n, e, tern_min_i64(TERN_GEMM_K, width - e), panel + e * STRIP);
  if (factor != 1)
    for (int64_t e = 0; e < width; e++)
      for (int64_t lane = 0; lane < lanes; lane += LANES) V(store)(panel + e * STRIP + lane, V(load)(panel + e * STRIP + lane) * factor);
}

/* ---- masks ---- */

static REAL R(mask_value)(const tern_cpu_view *mask, const char *p) {
  if (mask->dtype == TERN_BOOL) return *(const uint8_t *)p ? 0 : -(REAL)INFINITY;
  return mask->dtype == TERN_F64 ? (REAL) * (const double *)p : (REAL)element_load_f32(mask->dtype, p);
}

/* A row of the mask as numbers to add; whether any of them lets a key through. */
static bool R(mask_row)(const tern_cpu_view *mask, const char *p, int64_t step, int64_t keys, REAL *to) {
  if (mask->dtype == TERN_BOOL && step == 1) {
    uint8_t any = 0;
    for (int64_t j = 0; j < keys; j++) {
      any |= (uint8_t)p[j];
      to[j] = p[j] ? 0 : -(REAL)INFINITY;
    }
    return any;
  }
  if (mask->dtype == TERN_F32 && step == 4) {
    const float *from = (const float *)(const void *)p;
    for (int64_t j = 0; j < keys; j++) to[j] = (REAL)from[j];
    return true;
  }
  for (int64_t j = 0; j < keys; j++) to[j] = R(mask_value)(mask, p + j * step);
  return true;
}
static const char *R(mask_at)(const attention_job *job, const attention_strip *strip, int64_t i, int64_t key) {
  const tern_cpu_view *mask = &job->mask;
  return mask->data + (strip->batch * mask->strides[0] + strip->head[i] * mask->strides[1] + strip->position[i] * mask->strides[2] + key * mask->strides[3]) * (int64_t)tern_dtype_size(mask->dtype);
}

/* The mask of a strip at keys [key, key + keys) as numbers to add to the scores, laid out as they are: m[key][STRIP], or m[key] where all queries have the same. False
 * where a boolean mask forbids all of them. */
static bool R(mask_make)(const attention_job *job, const attention_strip *strip, int64_t key, int64_t keys, REAL *m, bool *same_for_all) {
  enum { SQUARE = R(TILE_SQUARE) };
  const tern_cpu_view *mask = &job->mask;
  const int64_t step = mask->strides[3] * (int64_t)tern_dtype_size(mask->dtype);
  *same_for_all = mask->strides[2] == 0 && (mask->strides[1] == 0 || strip->head[0] == strip->head[strip->n - 1]);
  if (*same_for_all) return R(mask_row)(mask, R(mask_at)(job, strip, 0, key), step, keys, m);
  REAL rows[SQUARE][BLOCK_KEYS];
  bool any = false;
  for (int64_t i = 0; i < tern_ceil_div(strip->n, LANES) * LANES; i += SQUARE) {
    for (int64_t r = 0; r < SQUARE; r++) {
      if (i + r < strip->n) any |= R(mask_row)(mask, R(mask_at)(job, strip, i + r, key), step, keys, rows[r]);
      else memset(rows[r], 0, sizeof rows[r]);
    }
    for (int64_t j = 0; j < keys; j += SQUARE) R(tile_transpose)(rows[0] + j, BLOCK_KEYS, m + j * STRIP + i, STRIP); /* whole squares: BLOCK_KEYS is a multiple */
  }
  return any;
}

static void R(mask_add)(const attention_strip *strip, int64_t keys, const REAL *m, bool same_for_all, REAL *s) {
  const int64_t lanes = tern_ceil_div(strip->n, LANES) * LANES;
  for (int64_t j = 0; j < keys; j++)
    for (int64_t lane = 0; lane < lanes; lane += LANES) {
      REAL *at = s + j * STRIP + lane;
      V(store)(at, V(load)(at) + (same_for_all ? V(splat)(m[j]) : V(load)(m + j * STRIP + lane)));
    }
}

/* Causal: -inf where a key comes after its query. */
static void R(mask_causal)(const attention_strip *strip, int64_t key, int64_t keys, REAL *s) {
  REAL last[STRIP] = {0}; /* the last key each query sees, counted from `key` */
  for (int64_t i = 0; i < strip->n; i++) last[i] = (REAL)(strip->position[i] - key);
  const int64_t lanes = tern_ceil_div(strip->n, LANES) * LANES;
  for (int64_t lane = 0; lane < lanes; lane += LANES) {
    const VECTOR limit = V(load)(last + lane), never = V(splat)(-(REAL)INFINITY);
    for (int64_t j = 0; j < keys; j++) {
      REAL *at = s + j * STRIP + lane;
      V(store)(at, V(select)(limit < (REAL)j, never, V(load)(at)));
    }
  }
}

/* Scores of `keys` keys from `key` on against the packed strip; those that the masks forbid are -inf. Keys after the strip's last query are not in `keys`. False where
 * a mask forbids all of them: there are no scores then. */
static bool R(scores)(const attention_job *job, const attention_strip *strip, const REAL *panel, const REAL *k, int64_t k_stride, int64_t key, int64_t keys, REAL *s) {
  REAL m[BLOCK_KEYS * STRIP];
  bool same_for_all = false;
  if (job->mask.data && !R(mask_make)(job, strip, key, keys, m, &same_for_all)) return false;
  TERN_ISA_NAME(R(tern_gemm_strip))(keys, tern_ceil_div(strip->n, LANES) * LANES, job->width, k, k_stride, 1, panel, STRIP, s, STRIP, false);
  if (job->mask.data) R(mask_add)(strip, keys, m, same_for_all, s);
  if (job->causal && key + keys - 1 > strip->first_position) R(mask_causal)(strip, key, keys, s);
  return true;
}

/* ---- forward ---- */

/* Scores become e^(s - top), with `top` and `sum` carried from block to block; `shrink` is what earlier sums are to be multiplied by. */
static void R(online_softmax)(REAL *s, int64_t keys, int64_t n, REAL *top, REAL *sum, REAL *shrink) {
  for (int64_t lane = 0; lane < n; lane += LANES) {
    const VECTOR before = V(load)(top + lane);
    VECTOR largest = before, other = before, total = {0};
    int64_t j = 0;
    for (; j + 2 <= keys; j += 2) {
      largest = V(max)(V(load)(s + j * STRIP + lane), largest);
      other = V(max)(V(load)(s + (j + 1) * STRIP + lane), other);
    }
    if (j < keys) largest = V(max)(V(load)(s + j * STRIP + lane), largest);
    largest = V(max)(largest, other);
    const VECTOR safe = V(select)(largest == -(REAL)INFINITY, V(splat)(0), largest); /* a query that has seen nothing yet: e^(-inf - 0) is 0 */
    for (j = 0; j < keys; j++) {
      VECTOR p = V(exp_below)(V(load)(s + j * STRIP + lane) - safe);
      V(store)(s + j * STRIP + lane, p);
      total += p;
    }
    const VECTOR factor = V(exp_below)(before - safe);
    V(store)(shrink + lane, factor);
    V(store)(sum + lane, V(fma)(V(load)(sum + lane), factor, total));
    V(store)(top + lane, largest);
  }
}

/* The results of `rows` queries from sums, and their lse. */
static void R(attention_finish)(const attention_job *job, const attention_place *place, int64_t first, int64_t rows, REAL *result, REAL *top, REAL *sum) {
  const int64_t value_width = job->value_width;
  const int64_t element = (int64_t)tern_dtype_size(job->out->dtype), first_row = place->first_row + first;
  for (int64_t i = 0; i < rows; i += LANES) { /* sum becomes the factor of the result, top the logarithm of the sum */
    const VECTOR total = V(load)(sum + i);
    V(store)(top + i, V(load)(top + i) + V(log)(total));
    V(store)(sum + i, V(select)(total == 0, V(splat)(0), 1 / total)); /* nothing to attend to: 0 */
  }
  memcpy((REAL *)job->lse->data + first_row, top, (size_t)rows * sizeof(REAL));
  for (int64_t i = 0; i < rows; i++) {
    char *out = job->out->data + (first_row + i) * value_width * element;
    REAL *from = result + i * value_width, *to = R(row_place)(job->out->dtype, out, from);
    for (int64_t e = 0; e < value_width; e++) to[e] = from[e] * sum[i];
    R(row_store)(job->out->dtype, to, value_width, out);
  }
}

/* ---- few queries: one at a time, vectors along the width ---- */

/* s[j] = query * k[j] for n keys. */
static void R(narrow_scores)(const REAL *query, const REAL *k, int64_t k_stride, int64_t width, int64_t n, REAL *s) {
  for (int64_t j = 0; j < n; j++, k += k_stride) {
    VECTOR a = {0}, b = {0};
    int64_t e = 0;
    for (; e + 2 * LANES <= width; e += 2 * LANES) {
      a = V(fma)(V(load)(query + e), V(load)(k + e), a);
      b = V(fma)(V(load)(query + e + LANES), V(load)(k + e + LANES), b);
    }
    for (; e < width; e += LANES) {
      const int64_t left = tern_min_i64(LANES, width - e);
      a = V(fma)(V(load_n)(query + e, left, 0), V(load_n)(k + e, left, 0), a);
    }
    s[j] = V(sum)(a + b);
  }
}

/* out = out * shrink + sum over n keys of p[j] v[j]; out is not read where `fresh`. */
static void R(narrow_values)(const REAL *p, const REAL *v, int64_t v_stride, int64_t width, int64_t n, REAL shrink, bool fresh, REAL *out) {
  int64_t e = 0;
  for (; e + 4 * LANES <= width; e += 4 * LANES) {
    VECTOR sum[4] = {{0}, {0}, {0}, {0}};
    for (int i = 0; i < 4 && !fresh; i++) sum[i] = V(load)(out + e + i * LANES) * shrink;
    for (int64_t j = 0; j < n; j++) {
      const VECTOR weight = V(splat)(p[j]);
      for (int i = 0; i < 4; i++) sum[i] = V(fma)(weight, V(load)(v + j * v_stride + e + i * LANES), sum[i]);
    }
    for (int i = 0; i < 4; i++) V(store)(out + e + i * LANES, sum[i]);
  }
  for (; e < width; e += LANES) {
    const int64_t left = tern_min_i64(LANES, width - e);
    VECTOR sum = {0};
    if (!fresh) sum = V(load_n)(out + e, left, 0) * shrink;
    for (int64_t j = 0; j < n; j++) sum = V(fma)(V(splat)(p[j]), V(load_n)(v + j * v_stride + e, left, 0), sum);
    V(store_n)(out + e, left, sum);
  }
}

/* p[j] = e^(p[j] - top) for n scores, -inf up to the next whole vector; carries top and sum, returns what earlier sums shrink by. */
static REAL R(narrow_softmax)(REAL *p, int64_t n, REAL *top, REAL *sum) {
  VECTOR largest = V(splat)(*top), total = {0};
  for (int64_t j = 0; j < n; j += LANES) largest = V(max)(V(load)(p + j), largest);
  const REAL most = V(largest)(largest), safe = most == -(REAL)INFINITY ? 0 : most;
  for (int64_t j = 0; j < n; j += LANES) {
    const VECTOR e = V(exp_below)(V(load)(p + j) - safe);
    V(store)(p + j, e);
    total += e;
  }
  const VECTOR factor = V(exp_below)(V(splat)(*top) - safe);
  const REAL shrink = factor[0];
  *sum = *sum * shrink + V(sum)(total);
  *top = most;
  return shrink;
}

static void R(attention_narrow)(const attention_job *job, const attention_place *place, REAL *room) {
  const int64_t width = job->width, value_width = job->value_width, rows = job->rows;
  REAL *k_room = room, *v_room = k_room + BLOCK_KEYS * width, *result = v_room + BLOCK_KEYS * value_width, *queries = result + NARROW_ROWS * value_width;
  REAL p[BLOCK_KEYS + LANES], m[BLOCK_KEYS], top[STRIP], sum[STRIP];
  attention_strip strip;
  attention_strip_make(job, place, 0, rows, &strip);
  bool begun[NARROW_ROWS] = {false};
  for (int64_t i = 0; i < STRIP; i++) {
    top[i] = -(REAL)INFINITY;
    sum[i] = 0;
  }
  const int64_t element = (int64_t)tern_dtype_size(job->q->dtype);
  for (int64_t i = 0; i < rows; i++)
    for (int64_t e = 0; e < width; e++)
      queries[i * width + e] = R(element_load)(job->q->dtype, job->q->data + (attention_row_offset(job->q, &strip, i) + e * job->q->strides[3]) * element) * (REAL)job->scale;
  for (int64_t key = 0; key < job->keys && !(job->causal && key > strip.last_position); key += BLOCK_KEYS) {
    const int64_t block = tern_min_i64(BLOCK_KEYS, job->keys - key);
    int64_t k_stride, v_stride;
    const REAL *k = R(rows_load)(job->k, place->k, key, block, k_room, &k_stride), *v = R(rows_load)(job->v, place->v, key, block, v_room, &v_stride);
    for (int64_t i = 0; i < rows; i++) {
      const int64_t keys = job->causal ? tern_min_i64(block, strip.position[i] + 1 - key) : block;
      if (keys <= 0) continue;
      if (job->mask.data && !R(mask_row)(&job->mask, R(mask_at)(job, &strip, i, key), job->mask.strides[3] * (int64_t)tern_dtype_size(job->mask.dtype), keys, m)) continue;
      R(narrow_scores)(queries + i * width, k, k_stride, width, keys, p);
      for (int64_t j = 0; j < keys && job->mask.data; j++) p[j] += m[j];
      for (int64_t j = keys; j < keys + LANES; j++) p[j] = -(REAL)INFINITY;
      const REAL shrink = R(narrow_softmax)(p, keys, &top[i], &sum[i]);
      R(narrow_values)(p, v, v_stride, value_width, keys, shrink, !begun[i], result + i * value_width);
      begun[i] = true;
    }
  }
  for (int64_t i = 0; i < rows; i++)
    if (!begun[i]) memset(result + i * value_width, 0, (size_t)value_width * sizeof(REAL));
  R(attention_finish)(job, place, 0, rows, result, top, sum);
}

/* Chunk: BLOCK_ROWS queries of one key head (all query heads that share it, one after another). */
static void R(attention_chunk)(void *context, int64_t chunk, int thread) {
  const attention_job *job = context;
  const attention_place place = attention_place_of(job, chunk / job->row_blocks);
  if (job->rows <= NARROW_ROWS) {
    R(attention_narrow)(job, &place, (REAL *)(job->scratch + (size_t)thread * job->scratch_each));
    return;
  }
  const int64_t first = chunk % job->row_blocks * BLOCK_ROWS, rows = tern_min_i64(BLOCK_ROWS, job->rows - first), n_strips = tern_ceil_div(rows, STRIP);
  const int64_t width = job->width, value_width = job->value_width;
  REAL *room = (REAL *)(job->scratch + (size_t)thread * job->scratch_each);
  REAL *panels = room, *k_room = panels + (BLOCK_ROWS + STRIP) * width, *v_room = k_room + BLOCK_KEYS * width, *result = v_room + BLOCK_KEYS * value_width;
  REAL s[BLOCK_KEYS * STRIP], top[BLOCK_ROWS + STRIP], sum[BLOCK_ROWS + STRIP], shrink[STRIP];
  attention_strip strips[MAX_STRIPS];
  bool begun[MAX_STRIPS] = {false}; /* its result holds something */
  for (int64_t t = 0; t < n_strips; t++) {
    attention_strip *strip = &strips[t];
    attention_strip_make(job, &place, first + t * STRIP, tern_min_i64(STRIP, rows - t * STRIP), strip);
    R(pack_queries)(job->q, strip, (REAL)job->scale, panels + t * STRIP * width);
    for (int64_t i = 0; i < STRIP; i++) {
      top[t * STRIP + i] = -(REAL)INFINITY;
      sum[t * STRIP + i] = 0;
    }
  }
  for (int64_t key = 0; key < job->keys; key += BLOCK_KEYS) {
    const int64_t block = tern_min_i64(BLOCK_KEYS, job->keys - key);
    int64_t k_stride, v_stride, last = -1;
    for (int64_t t = 0; t < n_strips; t++) last = tern_max_i64(last, strips[t].last_position);
    if (job->causal && key > last) break;
    const REAL *k = R(rows_load)(job->k, place.k, key, block, k_room, &k_stride), *v = R(rows_load)(job->v, place.v, key, block, v_room, &v_stride);
    for (int64_t t = 0; t < n_strips; t++) {
      const attention_strip *strip = &strips[t];
      const int64_t keys = job->causal ? tern_min_i64(block, strip->last_position + 1 - key) : block;
      if (keys <= 0) continue;
      REAL *out = result + t * STRIP * value_width;
      if (!R(scores)(job, strip, panels + t * STRIP * width, k, k_stride, key, keys, s)) continue;
      R(online_softmax)(s, keys, strip->n, top + t * STRIP, sum + t * STRIP, shrink);
      if (begun[t])
        for (int64_t i = 0; i < strip->n; i++)
          if (shrink[i] != 1)
            for (int64_t e = 0; e < value_width; e++) out[i * value_width + e] *= shrink[i];
      R(multiply)(strip->n, value_width, keys, s, 1, STRIP, v, v_stride, out, value_width, begun[t]);
      begun[t] = true;
    }
  }
  for (int64_t t = 0; t < n_strips; t++)
    if (!begun[t]) memset(result + t * STRIP * value_width, 0, (size_t)(strips[t].n * value_width) * sizeof(REAL));
  R(attention_finish)(job, &place, first, rows, result, top, sum);
}

/* ---- gradient ---- */

/* s becomes the probabilities, d (the gradient by probability) becomes the gradient by score, times scale. */
static void R(probabilities_grad)(REAL *s, REAL *d, int64_t keys, int64_t n, const REAL *lse, const REAL *delta, REAL scale) {
  for (int64_t lane = 0; lane < n; lane += LANES) {
    const VECTOR total = V(load)(lse + lane), mean = V(load)(delta + lane);
    for (int64_t j = 0; j < keys; j++) {
      VECTOR p = V(exp_below)(V(load)(s + j * STRIP + lane) - total), g = (V(load)(d + j * STRIP + lane) - mean) * p * scale;
      V(store)(s + j * STRIP + lane, p);
      V(store)(d + j * STRIP + lane, g);
    }
  }
}

/* The strip's lse, and delta = sum over e of gout * out (what the softmax's gradient subtracts). */
static void R(strip_prepare)(const attention_job *job, const attention_strip *strip, REAL *lse, REAL *delta, REAL *room) {
  const int64_t element = (int64_t)tern_dtype_size(job->gout->dtype), width = job->value_width;
  for (int64_t i = 0; i < STRIP; i++) {
    lse[i] = (REAL)INFINITY; /* e^(s - inf) is 0: unused lanes, and queries that saw nothing */
    delta[i] = 0;
    if (i >= strip->n) continue;
    const REAL saved = ((const REAL *)job->lse->data)[(strip->batch * job->heads + strip->head[i]) * job->length + strip->position[i]];
    if (saved != -(REAL)INFINITY) lse[i] = saved;
    const char *g = job->gout->data + attention_row_offset(job->gout, strip, i) * element, *y = job->out->data + attention_row_offset(job->out, strip, i) * element;
    REAL sum = 0;
    if (job->gout->strides[3] == 1 && job->out->strides[3] == 1) {
      const REAL *a = R(row_load)(job->gout->dtype, g, width, room), *b = R(row_load)(job->out->dtype, y, width, room + width);
      VECTOR total = {0};
      for (int64_t e = 0; e < width; e += LANES) {
        const int64_t left = tern_min_i64(LANES, width - e);
        total = left == LANES ? V(fma)(V(load)(a + e), V(load)(b + e), total) : V(fma)(V(load_n)(a + e, left, 0), V(load_n)(b + e, left, 0), total);
      }
      sum = V(sum)(total);
    } else
      for (int64_t e = 0; e < width; e++)
        sum += R(element_load)(job->gout->dtype, g + e * job->gout->strides[3] * element) * R(element_load)(job->out->dtype, y + e * job->out->strides[3] * element);
    delta[i] = sum;
  }
}

/* Chunk: one key head of one sample, with every query that uses it. */
static void R(attention_grad_chunk)(void *context, int64_t chunk, int thread) {
  const attention_job *job = context;
  const attention_place place = attention_place_of(job, chunk);
  const int64_t width = job->width, value_width = job->value_width, strips_each = tern_ceil_div(job->length, STRIP), n_strips = strips_each * job->group;
  const int64_t q_element = (int64_t)tern_dtype_size(job->gq->dtype), k_element = (int64_t)tern_dtype_size(job->gk->dtype);
  REAL *at = (REAL *)(job->scratch + (size_t)thread * job->scratch_each);
#define TAKE(count) (at += (count), at - (count))
  REAL *q_panels = TAKE(n_strips * STRIP * width), *g_panels = TAKE(n_strips * STRIP * value_width), *lse = TAKE(n_strips * STRIP), *delta = TAKE(n_strips * STRIP);
  REAL *k_room = TAKE(BLOCK_KEYS * width), *v_room = TAKE(BLOCK_KEYS * value_width), *q_room = TAKE(STRIP * width), *g_room = TAKE(2 * STRIP * value_width);
  REAL *gk = TAKE(BLOCK_KEYS * width), *gv = TAKE(BLOCK_KEYS * value_width), *gq_room = TAKE(job->rows * width);
#undef TAKE
  REAL s[BLOCK_KEYS * STRIP], d[BLOCK_KEYS * STRIP];
  char *gq_out = job->gq->data + place.first_row * width * q_element;
  REAL *gq = R(row_place)(job->gq->dtype, gq_out, gq_room);
  if (job->keys == 0) memset(gq, 0, (size_t)(job->rows * width) * sizeof(REAL));

  for (int64_t t = 0; t < n_strips; t++) {
    attention_strip strip;
    attention_strip_make_grad(job, &place, t, strips_each, STRIP, &strip);
    R(pack_queries)(job->q, &strip, (REAL)job->scale, q_panels + t * STRIP * width);
    R(pack_queries)(job->gout, &strip, 1, g_panels + t * STRIP * value_width);
    R(strip_prepare)(job, &strip, lse + t * STRIP, delta + t * STRIP, g_room);
  }

  for (int64_t key = 0; key < job->keys; key += BLOCK_KEYS) {
    const int64_t block = tern_min_i64(BLOCK_KEYS, job->keys - key);
    int64_t k_stride, v_stride, q_stride, g_stride;
    const REAL *k = R(rows_load)(job->k, place.k, key, block, k_room, &k_stride), *v = R(rows_load)(job->v, place.v, key, block, v_room, &v_stride);
    memset(gk, 0, (size_t)(BLOCK_KEYS * width) * sizeof(REAL));
    memset(gv, 0, (size_t)(BLOCK_KEYS * value_width) * sizeof(REAL));
    for (int64_t t = 0; t < n_strips; t++) {
      attention_strip strip;
      attention_strip_make_grad(job, &place, t, strips_each, STRIP, &strip);
      const int64_t keys = job->causal ? tern_min_i64(block, strip.last_position + 1 - key) : block;
      if (keys <= 0) continue;
      if (!R(scores)(job, &strip, q_panels + t * STRIP * width, k, k_stride, key, keys, s)) {
        if (key == 0) memset(gq + strip.row * width, 0, (size_t)(strip.n * width) * sizeof(REAL));
        continue;
      }
      R(multiply)(keys, tern_ceil_div(strip.n, LANES) * LANES, value_width, v, v_stride, 1, g_panels + t * STRIP * value_width, STRIP, d, STRIP, false);
      R(probabilities_grad)(s, d, keys, strip.n, lse + t * STRIP, delta + t * STRIP, (REAL)job->scale);
      const REAL *q = R(rows_load)(job->q, attention_head_offset(job->q, &strip), strip.first_position, strip.n, q_room, &q_stride);
      const REAL *g = R(rows_load)(job->gout, attention_head_offset(job->gout, &strip), strip.first_position, strip.n, g_room, &g_stride);
      R(multiply)(keys, value_width, strip.n, s, STRIP, 1, g, g_stride, gv, value_width, true);
      R(multiply)(keys, width, strip.n, d, STRIP, 1, q, q_stride, gk, width, true);
      R(multiply)(strip.n, width, keys, d, 1, STRIP, k, k_stride, gq + strip.row * width, width, key != 0);
    }
    R(row_store)(job->gk->dtype, gk, block * width, job->gk->data + (chunk * job->keys + key) * width * k_element);
    R(row_store)(job->gv->dtype, gv, block * value_width, job->gv->data + (chunk * job->keys + key) * value_width * k_element);
  }
  R(row_store)(job->gq->dtype, gq, job->rows * width, gq_out);
}

/* Elements of scratch per thread. */
static int64_t R(attention_room)(const attention_job *job) {
  return (BLOCK_ROWS + STRIP) * (job->width + job->value_width) + BLOCK_KEYS * (job->width + job->value_width);
}
static int64_t R(attention_grad_room)(const attention_job *job) {
  const int64_t padded = tern_ceil_div(job->length, STRIP) * STRIP * job->group, both = job->width + job->value_width;
  return padded * (both + 2) + 2 * BLOCK_KEYS * both + STRIP * (job->width + 2 * job->value_width) + job->rows * job->width;
}
#undef STRIP
