/* Layer norm and batch norm, with their gradients; the arithmetic is in norm_layer.h and norm_batch.h.
 *
 * Statistics are made in two passes or combined from short pieces, never as E[x^2] - E[x]^2. How rows are cut into chunks, and the order in which partial
 * sums are combined, depend on shapes only. Weights are converted once per call to the type of the arithmetic. */
#include "real.h"

enum {
  RUN = 1024,             /* elements summed before they join a row's total */
  CHUNK_ELEMENTS = 16384, /* of one chunk */
  GRAD_CHUNKS = 32,       /* at most so many partial gweight and gbias */
  COMBINE_COLUMNS = 256,
  PLANE_RUN = 1024,       /* elements of a plane handled at once */
  LONG_PLANE = 32,        /* shorter planes are summed down columns instead */
  COLUMNS = 64,           /* columns summed side by side */
  COLUMN_SAMPLES = 128,   /* samples of one piece of a column */
};

static size_t round_up(size_t bytes) { return (bytes + 63) / 64 * 64; }
static size_t real_size(const tern_cpu_view *x) { return x->dtype == TERN_F64 ? sizeof(double) : sizeof(float); }
typedef struct scratch_cursor { char *at; } scratch_cursor;
static char *take_bytes(scratch_cursor *cursor, size_t bytes) {
  char *taken = cursor->at;
  cursor->at += round_up(bytes);
  return taken;
}

/* The n elements of an optional weight in the type of the arithmetic; NULL where there is none. */
static const void *load_weight(const tern_cpu_view *weight, int64_t n, scratch_cursor *cursor) {
  char *room = take_bytes(cursor, (size_t)n * sizeof(double));
  if (!weight->data || weight->dtype == TERN_F64) return weight->data;
  return row_load_f32(weight->dtype, weight->data, n, (float *)room);
}

/* ---- layer norm ---- */

typedef struct layer_job {
  const char *x, *gy;            /* gy: of the gradient only */
  const void *weight, *bias, *mean, *rstd; /* in the type of the arithmetic */
  const tern_cpu_view *out;
  tern_dtype dtype;
  double eps;
  int64_t rows, n, rows_per_chunk, chunks;
  char *rooms;                   /* two rows for each thread */
  size_t room_bytes;
  char *partial;                 /* gweight and gbias of each chunk: [chunks][2][n] */
} layer_job;

/* Adds a piece's moments (sum of squares about its mean) to the total. */
static void combine_moments(double *count, double *mean, double *squares, double n, double piece_mean, double piece_squares) {
  const double total = *count + n, delta = piece_mean - *mean;
  *squares += piece_squares + delta * delta * (*count * n / total);
  *mean += delta * (n / total);
  *count = total;
}

#include "real_f32.h"
#include "norm_layer.h"
#include "real_f64.h"
#include "norm_layer.h"

static void layer_shape(const tern_op *op, const tern_cpu_view *x, layer_job *job) {
  job->dtype = x->dtype;
  job->n = tern_dims_count((int)op->attrs->ints[0], x->dims + x->rank - op->attrs->ints[0]);
  job->rows = tern_dims_count(x->rank - (int)op->attrs->ints[0], x->dims);
  job->room_bytes = round_up(2 * (size_t)job->n * real_size(x));
}
/* The gradient's chunks: few enough that adding up their partial results costs little, many enough to share out. */
static void layer_grad_chunks(layer_job *job) {
  const int64_t chunks = tern_min_i64(GRAD_CHUNKS, tern_max_i64(1, job->rows * job->n / CHUNK_ELEMENTS));
  job->rows_per_chunk = tern_max_i64(1, tern_ceil_div(job->rows, chunks));
  job->chunks = tern_ceil_div(job->rows, job->rows_per_chunk);
}

static size_t layer_scratch(const tern_op *op, const tern_cpu_view *in, const tern_cpu_view *out) {
  (void)out;
  layer_job job;
  layer_shape(op, &in[0], &job);
  return (size_t)tern_pool_threads() * job.room_bytes + 2 * round_up((size_t)job.n * sizeof(double));
}

static tern_status layer_run(const tern_op *op, const tern_cpu_view *in, const tern_cpu_view *out, tern_kernel_context *context) {
  layer_job job = {.x = in[0].data, .out = out};
  scratch_cursor cursor = {context->scratch};
  layer_shape(op, &in[0], &job);
  job.rooms = take_bytes(&cursor, (size_t)tern_pool_threads() * job.room_bytes);
  job.weight = load_weight(&in[1], job.n, &cursor);
  job.bias = load_weight(&in[2], job.n, &cursor);
  job.eps = view_number(&in[3]);
  job.rows_per_chunk = tern_chunk_items(job.n, CHUNK_ELEMENTS);
  tern_pool_run(tern_ceil_div(job.rows, job.rows_per_chunk), in[0].dtype == TERN_F64 ? layer_chunk_f64 : layer_chunk_f32, &job);
  return NULL;
}

static size_t layer_grad_scratch(const tern_op *op, const tern_cpu_view *in, const tern_cpu_view *out) {
  (void)out;
  layer_job job;
  layer_shape(op, &in[1], &job);
  layer_grad_chunks(&job);
  return (size_t)tern_pool_threads() * job.room_bytes + round_up((size_t)job.n * sizeof(double)) + round_up(2 * (size_t)(job.chunks * job.n) * real_size(&in[1]));
}

static tern_status layer_grad_run(const tern_op *op, const tern_cpu_view *in, const tern_cpu_view *out, tern_kernel_context *context) {
  layer_job job = {.gy = in[0].data, .x = in[1].data, .mean = in[2].data, .rstd = in[3].data, .out = out};
  scratch_cursor cursor = {context->scratch};
  layer_shape(op, &in[1], &job);
  layer_grad_chunks(&job);
  job.rooms = take_bytes(&cursor, (size_t)tern_pool_threads() * job.room_bytes);
  job.weight = load_weight(&in[4], job.n, &cursor);
  job.partial = take_bytes(&cursor, 2 * (size_t)(job.chunks * job.n) * real_size(&in[1]));
  const bool is_f64 = in[1].dtype == TERN_F64;
  tern_pool_run(job.chunks, is_f64 ? layer_grad_chunk_f64 : layer_grad_chunk_f32, &job);
  tern_pool_run(2 * tern_ceil_div(job.n, COMBINE_COLUMNS), is_f64 ? layer_combine_chunk_f64 : layer_combine_chunk_f32, &job);
  return NULL;
}

/* ---- batch norm ---- */

typedef struct batch_job {
  const char *x, *gy;       /* gy: of the gradient only */
  const void *weight, *bias, *mean, *invstd;
  const tern_cpu_view *out;
  tern_dtype dtype;
  int64_t element;          /* bytes */
  double eps;
  bool training, by_columns;
  int64_t samples, channels, plane;
  int64_t columns;          /* channels, or channels * plane by columns */
  int64_t group, groups;    /* samples of one piece; pieces down the batch */
  int64_t blocks;           /* chunks per group: channels, or blocks of columns */
  int64_t items, items_per_chunk; /* of the second pass: planes, or samples by columns */
  double *pieces;           /* [groups][columns][2] */
  void *coefficients;       /* [4][columns]: mean, factor, shift, slope */
} batch_job;

#define COEFFICIENT_FUNCTIONS(REAL, suffix)                                                                                                       \
  static REAL *coefficient_##suffix(const batch_job *job, int which) { return (REAL *)job->coefficients + which * job->columns; }                 \
  static void coefficient_set_##suffix(const batch_job *job, int which, int64_t channel, REAL value) {                                            \
    const int64_t per_channel = job->columns / job->channels;                                                                                     \
    for (int64_t i = 0; i < per_channel; i++) coefficient_##suffix(job, which)[channel * per_channel + i] = value;                                \
  }                                                                                                                                               \
  static void coefficients_set_##suffix(const batch_job *job, int64_t channel, REAL mean, REAL factor, REAL shift) {                              \
    coefficient_set_##suffix(job, 0, channel, mean);                                                                                              \
    coefficient_set_##suffix(job, 1, channel, factor);                                                                                            \
    coefficient_set_##suffix(job, 2, channel, shift);                                                                                             \
  }                                                                                                                                               \
  static void slope_set_##suffix(const batch_job *job, int64_t channel, REAL slope) { coefficient_set_##suffix(job, 3, channel, slope); }
COEFFICIENT_FUNCTIONS(float, f32)
COEFFICIENT_FUNCTIONS(double, f64)
#undef COEFFICIENT_FUNCTIONS

#include "real_f32.h"
#include "norm_batch.h"
#include "real_f64.h"
#include "norm_batch.h"

static void batch_shape(const tern_cpu_view *x, batch_job *job) {
  job->dtype = x->dtype;
  job->element = (int64_t)tern_dtype_size(x->dtype);
  job->samples = x->dims[0];
  job->channels = x->dims[1];
  job->plane = tern_dims_count(x->rank - 2, x->dims + 2);
  job->by_columns = job->plane < LONG_PLANE;
  job->columns = job->by_columns ? job->channels * job->plane : job->channels;
  job->group = job->by_columns ? COLUMN_SAMPLES : tern_chunk_items(job->plane, CHUNK_ELEMENTS);
  job->groups = tern_ceil_div(job->samples, job->group);
  job->blocks = job->by_columns ? tern_ceil_div(job->columns, COLUMNS) : job->channels;
  job->items = job->by_columns ? job->samples : job->samples * job->channels;
  job->items_per_chunk = tern_chunk_items(job->by_columns ? job->columns : job->plane, CHUNK_ELEMENTS);
}

static size_t batch_scratch_of(const tern_cpu_view *x) {
  batch_job job;
  batch_shape(x, &job);
  return 2 * round_up((size_t)job.channels * sizeof(double)) + round_up(2 * (size_t)(job.groups * job.columns) * sizeof(double)) +
         round_up(4 * (size_t)job.columns * real_size(x));
}
static size_t batch_scratch(const tern_op *op, const tern_cpu_view *in, const tern_cpu_view *out) {
  (void)op;
  (void)out;
  return batch_scratch_of(&in[0]);
}
static size_t batch_grad_scratch(const tern_op *op, const tern_cpu_view *in, const tern_cpu_view *out) {
  (void)op;
  (void)out;
  return batch_scratch_of(&in[1]);
}

static void batch_go(batch_job *job, const tern_cpu_view *x, const tern_cpu_view *weight, const tern_cpu_view *bias, char *scratch) {
  scratch_cursor cursor = {scratch};
  const tern_cpu_view absent = {.data = NULL};
  batch_shape(x, job);
  if (job->channels == 0) return;
  job->weight = load_weight(weight, job->channels, &cursor);
  job->bias = load_weight(bias ? bias : &absent, job->channels, &cursor);
  job->pieces = (double *)take_bytes(&cursor, 2 * (size_t)(job->groups * job->columns) * sizeof(double));
  job->coefficients = take_bytes(&cursor, 4 * (size_t)job->columns * real_size(x));
  const bool is_f64 = x->dtype == TERN_F64;
  tern_pool_run(job->groups * job->blocks, is_f64 ? batch_pieces_chunk_f64 : batch_pieces_chunk_f32, job);
  if (job->gy) (is_f64 ? batch_finish_grad_f64 : batch_finish_grad_f32)(job);
  else (is_f64 ? batch_finish_forward_f64 : batch_finish_forward_f32)(job);
  tern_pool_run(tern_ceil_div(job->items, job->items_per_chunk), is_f64 ? batch_apply_chunk_f64 : batch_apply_chunk_f32, job);
}

static tern_status batch_run(const tern_op *op, const tern_cpu_view *in, const tern_cpu_view *out, tern_kernel_context *context) {
  (void)op;
  batch_job job = {.x = in[0].data, .out = out, .eps = view_number(&in[3])};
  batch_go(&job, &in[0], &in[1], &in[2], context->scratch);
  return NULL;
}

static tern_status batch_grad_run(const tern_op *op, const tern_cpu_view *in, const tern_cpu_view *out, tern_kernel_context *context) {
  batch_job job = {.gy = in[0].data, .x = in[1].data, .mean = in[3].data, .invstd = in[4].data, .out = out, .training = op->attrs->ints[0] != 0};
  batch_go(&job, &in[1], &in[2], NULL, context->scratch);
  return NULL;
}

void TERN_ISA_NAME(tern_register_norm)(tern_kernel *rows) {
  rows[TERN_OP_LAYER_NORM] = (tern_kernel){.run = layer_run, .scratch = layer_scratch, .dense_inputs = 0xF, .reuse = 1u};
  rows[TERN_OP_LAYER_NORM_GRAD] = (tern_kernel){.run = layer_grad_run, .scratch = layer_grad_scratch, .dense_inputs = 0x1F, .reuse = 3u};
  rows[TERN_OP_BATCH_NORM] = (tern_kernel){.run = batch_run, .scratch = batch_scratch, .dense_inputs = 0xF, .reuse = 1u};
  rows[TERN_OP_BATCH_NORM_GRAD] = (tern_kernel){.run = batch_grad_run, .scratch = batch_grad_scratch, .dense_inputs = 0x1F, .reuse = 3u};
}
