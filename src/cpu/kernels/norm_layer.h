/* Layer norm of rows: a template over REAL (real.h), included by norm.c. */

/* ---- sums over one row: runs of RUN elements, each in a fixed number of accumulators ---- */

static REAL R(row_sum)(const REAL *x, int64_t n) {
  VECTOR total = {0};
  for (int64_t run = 0; run < n; run += RUN) {
    const int64_t end = tern_min_i64(n, run + RUN);
    VECTOR a = {0}, b = {0};
    int64_t i = run;
    for (; i + 2 * LANES <= end; i += 2 * LANES) {
      a += V(load)(x + i);
      b += V(load)(x + i + LANES);
    }
    for (; i + LANES <= end; i += LANES) a += V(load)(x + i);
    if (i < end) b += V(load_n)(x + i, end - i, 0);
    total += a + b;
  }
  return V(sum)(total);
}

/* Sum of (x - mean)^2. */
static REAL R(row_square_sum)(const REAL *x, int64_t n, REAL mean) {
  VECTOR total = {0};
  for (int64_t run = 0; run < n; run += RUN) {
    const int64_t end = tern_min_i64(n, run + RUN);
    VECTOR a = {0}, b = {0};
    int64_t i = run;
    for (; i + 2 * LANES <= end; i += 2 * LANES) {
      VECTOR p = V(load)(x + i) - mean, q = V(load)(x + i + LANES) - mean;
      a = V(fma)(p, p, a);
      b = V(fma)(q, q, b);
    }
    for (; i < end; i += LANES) {
      VECTOR p = V(load_n)(x + i, end - i < LANES ? end - i : LANES, mean) - mean;
      a = V(fma)(p, p, a);
    }
    total += a + b;
  }
  return V(sum)(total);
}

/* ---- forward ---- */

static void R(layer_row)(const REAL *x, REAL *y, int64_t n, const REAL *weight, const REAL *bias, REAL mean, REAL rstd) {
  int64_t i = 0;
  if (weight && bias)
    for (; i + LANES <= n; i += LANES) V(store)(y + i, V(fma)((V(load)(x + i) - mean) * rstd, V(load)(weight + i), V(load)(bias + i)));
  for (; i < n; i += LANES) {
    const int64_t left = n - i < LANES ? n - i : LANES;
    VECTOR v = (V(load_n)(x + i, left, 0) - mean) * rstd, w = weight ? V(load_n)(weight + i, left, 0) : V(splat)(1);
    V(store_n)(y + i, left, V(fma)(v, w, bias ? V(load_n)(bias + i, left, 0) : V(splat)(0)));
  }
}

static void R(layer_chunk)(void *context, int64_t chunk, int thread) {
  const layer_job *job = context;
  const int64_t n = job->n, bytes = n * (int64_t)tern_dtype_size(job->dtype), end = tern_min_i64(job->rows, (chunk + 1) * job->rows_per_chunk);
  REAL *room = (REAL *)(job->rooms + (size_t)thread * job->room_bytes);
  for (int64_t row = chunk * job->rows_per_chunk; row < end; row++) {
    const REAL *x = R(row_load)(job->dtype, job->x + row * bytes, n, room);
    REAL *y = R(row_place)(job->dtype, job->out[0].data + row * bytes, room);
    const REAL mean = R(row_sum)(x, n) / (REAL)n, rstd = 1 / (REAL)sqrt((double)(R(row_square_sum)(x, n, mean) / (REAL)n) + job->eps);
    R(layer_row)(x, y, n, job->weight, job->bias, mean, rstd);
    R(row_store)(job->dtype, y, n, job->out[0].data + row * bytes);
    ((REAL *)job->out[1].data)[row] = mean;
    ((REAL *)job->out[2].data)[row] = rstd;
  }
}

/* ---- gradient: with h = (x - mean) rstd and a = weight gy, gx = rstd (a - mean(a) - h mean(a h)); gweight = sum over rows of gy h, gbias of gy ---- */

/* Adds this row's gy h and gy to gweight and gbias; gives the row's sums of a and a h. */
static void R(layer_grad_sums)(const REAL *gy, const REAL *x, const REAL *weight, int64_t n, REAL mean, REAL rstd, REAL *gweight, REAL *gbias, REAL sums[2]) {
  VECTOR total = {0}, total_h = {0};
  for (int64_t run = 0; run < n; run += RUN) {
    const int64_t end = tern_min_i64(n, run + RUN);
    VECTOR sum = {0}, sum_h = {0};
    for (int64_t i = run; i < end; i += LANES) {
      if (TERN_LIKELY(end - i >= LANES)) {
        VECTOR g = V(load)(gy + i), h = (V(load)(x + i) - mean) * rstd, a = weight ? g * V(load)(weight + i) : g;
        V(store)(gweight + i, V(fma)(g, h, V(load)(gweight + i)));
        V(store)(gbias + i, V(load)(gbias + i) + g);
        sum += a;
        sum_h = V(fma)(a, h, sum_h);
      } else {
        VECTOR g = V(load_n)(gy + i, end - i, 0), h = (V(load_n)(x + i, end - i, mean) - mean) * rstd, a = weight ? g * V(load_n)(weight + i, end - i, 0) : g;
        V(store_n)(gweight + i, end - i, V(fma)(g, h, V(load_n)(gweight + i, end - i, 0)));
        V(store_n)(gbias + i, end - i, V(load_n)(gbias + i, end - i, 0) + g);
        sum += a;
        sum_h = V(fma)(a, h, sum_h);
      }
    }
    total += sum;
    total_h += sum_h;
  }
  sums[0] = V(sum)(total);
  sums[1] = V(sum)(total_h);
}

static void R(layer_grad_row)(const REAL *gy, const REAL *x, const REAL *weight, REAL *gx, int64_t n, REAL mean, REAL rstd, const REAL sums[2]) {
  const REAL mean_a = sums[0] / (REAL)n, mean_ah = sums[1] / (REAL)n;
  for (int64_t i = 0; i < n; i += LANES) {
    if (TERN_LIKELY(n - i >= LANES)) {
      VECTOR g = V(load)(gy + i), h = (V(load)(x + i) - mean) * rstd, a = weight ? g * V(load)(weight + i) : g;
      V(store)(gx + i, (a - mean_a - h * mean_ah) * rstd);
    } else {
      VECTOR g = V(load_n)(gy + i, n - i, 0), h = (V(load_n)(x + i, n - i, 0) - mean) * rstd, a = weight ? g * V(load_n)(weight + i, n - i, 0) : g;
      V(store_n)(gx + i, n - i, (a - mean_a - h * mean_ah) * rstd);
    }
  }
}

/* One chunk of rows, which has its own gweight and gbias. */
static void R(layer_grad_chunk)(void *context, int64_t chunk, int thread) {
  const layer_job *job = context;
  const int64_t n = job->n, bytes = n * (int64_t)tern_dtype_size(job->dtype), end = tern_min_i64(job->rows, (chunk + 1) * job->rows_per_chunk);
  REAL *room = (REAL *)(job->rooms + (size_t)thread * job->room_bytes), *gweight = (REAL *)job->partial + chunk * 2 * n, *gbias = gweight + n;
  memset(gweight, 0, (size_t)(2 * n) * sizeof(REAL));
  for (int64_t row = chunk * job->rows_per_chunk; row < end; row++) {
    const REAL *gy = R(row_load)(job->dtype, job->gy + row * bytes, n, room), *x = R(row_load)(job->dtype, job->x + row * bytes, n, room + n);
    REAL *gx = R(row_place)(job->dtype, job->out[0].data + row * bytes, room), sums[2];
    const REAL mean = ((const REAL *)job->mean)[row], rstd = ((const REAL *)job->rstd)[row];
    R(layer_grad_sums)(gy, x, job->weight, n, mean, rstd, gweight, gbias, sums);
    R(layer_grad_row)(gy, x, job->weight, gx, n, mean, rstd, sums);
    R(row_store)(job->dtype, gx, n, job->out[0].data + row * bytes);
  }
}

/* Adds the chunks' gweight and gbias in order, COMBINE_COLUMNS columns at a time. Columns 0..n-1 are gweight's, n..2n-1 gbias's. */
static void R(layer_combine_chunk)(void *context, int64_t chunk, int thread) {
  (void)thread;
  const layer_job *job = context;
  const int64_t n = job->n, blocks = tern_ceil_div(n, COMBINE_COLUMNS), first = chunk % blocks * COMBINE_COLUMNS, columns = tern_min_i64(COMBINE_COLUMNS, n - first);
  const bool is_bias = chunk >= blocks;
  const REAL *partial = (const REAL *)job->partial + (is_bias ? n : 0) + first;
  REAL sums[COMBINE_COLUMNS] = {0};
  for (int64_t part = 0; part < job->chunks; part++)
    for (int64_t i = 0; i < columns; i++) sums[i] += partial[part * 2 * n + i];
  const tern_cpu_view *out = &job->out[is_bias ? 2 : 1];
  R(row_store)(out->dtype, sums, columns, out->data + first * (int64_t)tern_dtype_size(out->dtype));
}
