/* Batch norm of [N, C, S]: a template over REAL (real.h), included by norm.c.
 *
 * Statistics come in two steps. First, pieces of the array are summed where they lie in the cache: planes (one sample of one channel, S elements) where S is
 * long, else columns (one element of a sample, down a block of samples). Each piece gives two sums that are exact enough in REAL because the piece is short.
 * Then each channel combines its pieces in f64 in a fixed order. Forward: a piece is (mean, sum of squares about that mean), combined by the formula of
 * Chan, Golub and LeVeque (1979). Backward: a piece is (sum of gy, sum of gy (x - mean)). */

/* ---- planes ---- */

static void R(plane_moments)(const batch_job *job, int64_t group, int64_t channel, double *out) {
  const int64_t first = group * job->group, end = tern_min_i64(job->samples, first + job->group);
  REAL room[PLANE_RUN];
  double count = 0, mean = 0, squares = 0;
  for (int64_t sample = first; sample < end; sample++)
    for (int64_t at = 0; at < job->plane; at += PLANE_RUN) {
      const int64_t n = tern_min_i64(PLANE_RUN, job->plane - at);
      const REAL *x = R(row_load)(job->dtype, job->x + ((sample * job->channels + channel) * job->plane + at) * job->element, n, room);
      const REAL sum = R(row_sum)(x, n), here = sum / (REAL)n;
      combine_moments(&count, &mean, &squares, (double)n, (double)sum / (double)n, (double)R(row_square_sum)(x, n, here));
    }
  out[0] = mean;
  out[1] = squares;
}

static void R(plane_grad_sums)(const batch_job *job, int64_t group, int64_t channel, double *out) {
  const int64_t first = group * job->group, end = tern_min_i64(job->samples, first + job->group);
  const REAL mean = ((const REAL *)job->mean)[channel];
  REAL room[2][PLANE_RUN];
  out[0] = out[1] = 0;
  for (int64_t sample = first; sample < end; sample++)
    for (int64_t at = 0; at < job->plane; at += PLANE_RUN) {
      const int64_t n = tern_min_i64(PLANE_RUN, job->plane - at), offset = ((sample * job->channels + channel) * job->plane + at) * job->element;
      const REAL *x = R(row_load)(job->dtype, job->x + offset, n, room[0]), *gy = R(row_load)(job->dtype, job->gy + offset, n, room[1]);
      VECTOR sum = {0}, sum_x = {0}, more = {0}, more_x = {0};
      int64_t i = 0;
      for (; i + 2 * LANES <= n; i += 2 * LANES) {
        VECTOR g = V(load)(gy + i), h = V(load)(gy + i + LANES);
        sum += g;
        more += h;
        sum_x = V(fma)(g, V(load)(x + i) - mean, sum_x);
        more_x = V(fma)(h, V(load)(x + i + LANES) - mean, more_x);
      }
      for (; i < n; i += LANES) {
        const int64_t left = n - i < LANES ? n - i : LANES;
        VECTOR g = V(load_n)(gy + i, left, 0);
        sum += g;
        sum_x = V(fma)(g, V(load_n)(x + i, left, 0) - mean, sum_x);
      }
      out[0] += (double)V(sum)(sum + more);
      out[1] += (double)V(sum)(sum_x + more_x);
    }
}

/* ---- columns: COLUMNS neighbouring elements of a block of samples ---- */

static void R(column_moments)(const batch_job *job, int64_t group, int64_t block, double *out) {
  const int64_t width = job->channels * job->plane, column = block * COLUMNS, columns = tern_min_i64(COLUMNS, width - column);
  const int64_t first = group * job->group, end = tern_min_i64(job->samples, first + job->group);
  const char *x = job->x + column * job->element;
  REAL room[COLUMNS], sum[COLUMNS] = {0}, squares[COLUMNS] = {0};
  for (int64_t sample = first; sample < end; sample++) {
    const REAL *row = R(row_load)(job->dtype, x + sample * width * job->element, columns, room);
    for (int64_t c = 0; c < columns; c++) sum[c] += row[c];
  }
  for (int64_t c = 0; c < columns; c++) {
    out[2 * c] = (double)sum[c] / (double)(end - first);
    sum[c] = (REAL)out[2 * c];
  }
  for (int64_t sample = first; sample < end; sample++) {
    const REAL *row = R(row_load)(job->dtype, x + sample * width * job->element, columns, room);
    for (int64_t c = 0; c < columns; c++) squares[c] += (row[c] - sum[c]) * (row[c] - sum[c]);
  }
  for (int64_t c = 0; c < columns; c++) out[2 * c + 1] = (double)squares[c];
}

static void R(column_grad_sums)(const batch_job *job, int64_t group, int64_t block, double *out) {
  const int64_t width = job->channels * job->plane, column = block * COLUMNS, columns = tern_min_i64(COLUMNS, width - column);
  const int64_t first = group * job->group, end = tern_min_i64(job->samples, first + job->group);
  REAL room[2][COLUMNS], mean[COLUMNS], sum[COLUMNS] = {0}, sum_x[COLUMNS] = {0};
  for (int64_t c = 0; c < columns; c++) mean[c] = ((const REAL *)job->mean)[(column + c) / job->plane];
  for (int64_t sample = first; sample < end; sample++) {
    const int64_t offset = (sample * width + column) * job->element;
    const REAL *x = R(row_load)(job->dtype, job->x + offset, columns, room[0]), *gy = R(row_load)(job->dtype, job->gy + offset, columns, room[1]);
    for (int64_t c = 0; c < columns; c++) {
      sum[c] += gy[c];
      sum_x[c] += gy[c] * (x[c] - mean[c]);
    }
  }
  for (int64_t c = 0; c < columns; c++) {
    out[2 * c] = (double)sum[c];
    out[2 * c + 1] = (double)sum_x[c];
  }
}

/* Chunk: (group of samples, channel or block of columns). pieces is [groups][columns of the job][2]. */
static void R(batch_pieces_chunk)(void *context, int64_t chunk, int thread) {
  (void)thread;
  const batch_job *job = context;
  const int64_t group = chunk / job->blocks, block = chunk % job->blocks;
  double *out = job->pieces + 2 * (group * job->columns + (job->by_columns ? block * COLUMNS : block));
  if (job->by_columns) (job->gy ? R(column_grad_sums) : R(column_moments))(job, group, block, out);
  else (job->gy ? R(plane_grad_sums) : R(plane_moments))(job, group, block, out);
}

/* ---- one channel: its pieces in order, then its numbers ---- */

static void R(batch_finish_forward)(const batch_job *job) {
  const int64_t per_channel = job->columns / job->channels;
  for (int64_t c = 0; c < job->channels; c++) {
    double count = 0, mean = 0, squares = 0;
    for (int64_t group = 0; group < job->groups; group++)
      for (int64_t i = 0; i < per_channel; i++) {
        const double *piece = job->pieces + 2 * (group * job->columns + c * per_channel + i);
        const double samples = (double)tern_min_i64(job->group, job->samples - group * job->group);
        combine_moments(&count, &mean, &squares, samples * (double)(job->by_columns ? 1 : job->plane), piece[0], piece[1]);
      }
    const double variance = squares / count, invstd = 1 / sqrt(variance + job->eps);
    ((REAL *)job->out[1].data)[c] = (REAL)mean;
    ((REAL *)job->out[2].data)[c] = (REAL)invstd;
    ((REAL *)job->out[3].data)[c] = (REAL)variance;
    /* y = (x - mean) factor + bias */
    R(coefficients_set)(job, c, (REAL)mean, (REAL)(invstd * (job->weight ? (double)((const REAL *)job->weight)[c] : 1)), job->bias ? ((const REAL *)job->bias)[c] : 0);
  }
}

static void R(batch_finish_grad)(const batch_job *job) {
  const int64_t per_channel = job->columns / job->channels;
  const double count = (double)job->samples * (double)job->plane;
  for (int64_t c = 0; c < job->channels; c++) {
    double sum = 0, sum_x = 0;
    for (int64_t group = 0; group < job->groups; group++)
      for (int64_t i = 0; i < per_channel; i++) {
        const double *piece = job->pieces + 2 * (group * job->columns + c * per_channel + i);
        sum += piece[0];
        sum_x += piece[1];
      }
    const double mean = (double)((const REAL *)job->mean)[c], invstd = (double)((const REAL *)job->invstd)[c];
    const double factor = invstd * (job->weight ? (double)((const REAL *)job->weight)[c] : 1);
    R(element_store)(job->out[1].dtype, (REAL)(sum_x * invstd), job->out[1].data + c * (int64_t)tern_dtype_size(job->out[1].dtype));
    R(element_store)(job->out[2].dtype, (REAL)sum, job->out[2].data + c * (int64_t)tern_dtype_size(job->out[2].dtype));
    /* gx = gy factor + (x - mean) slope + shift; in evaluation the statistics are constants */
    R(coefficients_set)(job, c, (REAL)mean, (REAL)factor, job->training ? (REAL)(-factor * sum / count) : 0);
    R(slope_set)(job, c, job->training ? (REAL)(-factor * sum_x * invstd * invstd / count) : 0);
  }
}

/* ---- the second pass over the array ---- */

/* n elements; the coefficients are those of each element (step 1) or one for all (step 0). The result may stand where an operand stood: GCC's ivdep says so. */
TERN_INLINE void R(batch_apply)(const batch_job *job, int64_t offset, int64_t n, int64_t column, int step, REAL *room) {
  const REAL *mean = R(coefficient)(job, 0) + column, *factor = R(coefficient)(job, 1) + column, *shift = R(coefficient)(job, 2) + column, *slope = R(coefficient)(job, 3) + column;
  const REAL *x = R(row_load)(job->dtype, job->x + offset * job->element, n, room);
  const REAL *gy = job->gy ? R(row_load)(job->dtype, job->gy + offset * job->element, n, room + PLANE_RUN) : NULL;
  REAL *out = R(row_place)(job->dtype, job->out[0].data + offset * job->element, room);
  if (gy) {
#pragma GCC ivdep
    for (int64_t i = 0; i < n; i++) out[i] = gy[i] * factor[i * step] + (x[i] - mean[i * step]) * slope[i * step] + shift[i * step];
  } else {
#pragma GCC ivdep
    for (int64_t i = 0; i < n; i++) out[i] = (x[i] - mean[i * step]) * factor[i * step] + shift[i * step];
  }
  R(row_store)(job->dtype, out, n, job->out[0].data + offset * job->element);
}

static void R(batch_apply_chunk)(void *context, int64_t chunk, int thread) {
  (void)thread;
  const batch_job *job = context;
  const int64_t first = chunk * job->items_per_chunk, end = tern_min_i64(job->items, first + job->items_per_chunk);
  const int64_t length = job->by_columns ? job->columns : job->plane; /* an item is a sample, or a plane */
  REAL room[2 * PLANE_RUN];
  for (int64_t item = first; item < end; item++)
    for (int64_t at = 0; at < length; at += PLANE_RUN) {
      const int64_t n = tern_min_i64(PLANE_RUN, length - at);
      if (job->by_columns) R(batch_apply)(job, item * length + at, n, at, 1, room);
      else R(batch_apply)(job, item * length + at, n, item % job->channels, 0, room);
    }
}
