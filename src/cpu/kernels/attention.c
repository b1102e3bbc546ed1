/* Attention and its gradient without the matrix of scores: one pass over blocks of keys, with a running maximum and sum per query (M. Milakov,
 * N. Gimelshein 2018; T. Dao et al., "FlashAttention", 2022). Memory grows with the sequence, not with its square. attention_blocks.h has the arithmetic.
 *
 * A head of keys serves `group` heads of queries (grouped-query attention): their queries are lined up one head after another and share each block of keys.
 * Forward work is cut into (sample, key head, block of queries), the gradient's into (sample, key head): every sum has one owner and one order. The gradient
 * makes the probabilities again from lse. Inputs may have any strides: q, k and v are mostly slices of one array [B, L, 3 H E]. */
#include "gemm.h"
#include "real.h"

enum {
  BLOCK_KEYS = 64,  /* keys whose scores are worked on at once */
  BLOCK_ROWS = 64,  /* queries of one chunk */
  NARROW_ROWS = 4,  /* so few queries of a key head are done one at a time: decoding, whose speed is the memory's */
  MAX_STRIP = TERN_GEMM_STRIP_f32, /* queries of a strip, at most */
  MAX_STRIPS = BLOCK_ROWS / TERN_GEMM_STRIP_f64, /* strips of a chunk, at most */
};

typedef struct attention_job {
  const tern_cpu_view *q, *k, *v, *gout;
  const tern_cpu_view *out, *lse;   /* results of the forward, operands of the gradient */
  const tern_cpu_view *gq, *gk, *gv;
  tern_cpu_view mask;               /* rank 4, broadcast by strides of 0; data NULL: none */
  double scale;
  bool causal;
  int64_t heads, key_heads, group, length, keys, width, value_width;
  int64_t rows;                     /* queries of one key head: group * length */
  int64_t row_blocks;
  char *scratch;
  size_t scratch_each;              /* bytes per thread */
} attention_job;

/* One key head of one sample. */
typedef struct attention_place {
  int64_t batch, key_head;
  int64_t k, v;                     /* where its keys and values start, in elements */
  int64_t first_row;                /* its first query among all, in the dense order of the results */
} attention_place;

/* Neighbouring queries of one key head. */
typedef struct attention_strip {
  int64_t batch, row, n;            /* row: the first, among the key head's */
  int64_t first_position, last_position; /* the smallest and largest place in the sequence */
  int64_t head[MAX_STRIP], position[MAX_STRIP];
} attention_strip;

static attention_place attention_place_of(const attention_job *job, int64_t number) {
  attention_place place = {.batch = number / job->key_heads, .key_head = number % job->key_heads};
  place.k = place.batch * job->k->strides[0] + place.key_head * job->k->strides[1];
  place.v = place.batch * job->v->strides[0] + place.key_head * job->v->strides[1];
  place.first_row = number * job->rows;
  return place;
}

static void attention_strip_make(const attention_job *job, const attention_place *place, int64_t row, int64_t n, attention_strip *strip) {
  strip->batch = place->batch;
  strip->row = row;
  strip->n = n;
  strip->first_position = INT64_MAX;
  strip->last_position = -1;
  int64_t head = place->key_head * job->group + row / job->length, position = row % job->length;
  for (int64_t i = 0; i < n; i++) {
    strip->head[i] = head;
    strip->position[i] = position;
    strip->first_position = tern_min_i64(strip->first_position, position);
    strip->last_position = tern_max_i64(strip->last_position, position);
    if (++position == job->length) {
      position = 0;
      head++;
    }
  }
}

/* The gradient's strips stay within one head, so that their rows are evenly spaced. */
static void attention_strip_make_grad(const attention_job *job, const attention_place *place, int64_t number, int64_t strips_each, int64_t width, attention_strip *strip) {
  const int64_t position = number % strips_each * width;
  attention_strip_make(job, place, number / strips_each * job->length + position, tern_min_i64(width, job->length - position), strip);
}

static int64_t attention_head_offset(const tern_cpu_view *x, const attention_strip *strip) { return strip->batch * x->strides[0] + strip->head[0] * x->strides[1]; }
static int64_t attention_row_offset(const tern_cpu_view *x, const attention_strip *strip, int64_t i) {
  return strip->batch * x->strides[0] + strip->head[i] * x->strides[1] + strip->position[i] * x->strides[2];
}

#include "real_f32.h"
#include "attention_blocks.h"
#include "real_f64.h"
#include "attention_blocks.h"

static void attention_shape(attention_job *job, const tern_op *op, const tern_cpu_view *q, const tern_cpu_view *k, const tern_cpu_view *v, const tern_cpu_view *mask) {
  job->q = q;
  job->k = k;
  job->v = v;
  job->causal = op->attrs->ints[0] != 0;
  job->heads = q->dims[1];
  job->key_heads = k->dims[1];
  job->group = job->key_heads ? job->heads / job->key_heads : 0;
  job->length = q->dims[2];
  job->keys = k->dims[2];
  job->width = q->dims[3];
  job->value_width = v->dims[3];
  job->rows = job->group * job->length;
  job->row_blocks = tern_ceil_div(job->rows, BLOCK_ROWS);
  job->mask = (tern_cpu_view){.data = mask->data, .dtype = mask->dtype, .rank = 4};
  for (int d = 0; d < mask->rank; d++)
    if (mask->dims[d] != 1) job->mask.strides[4 - mask->rank + d] = mask->strides[d];
}

static size_t scratch_bytes(int64_t elements, tern_dtype dtype) {
  return ((size_t)elements * (dtype == TERN_F64 ? sizeof(double) : sizeof(float)) + 63) / 64 * 64;
}
static size_t forward_each(const attention_job *job) {
  const tern_dtype dtype = job->q->dtype;
  return scratch_bytes(dtype == TERN_F64 ? attention_room_f64(job) : attention_room_f32(job), dtype);
}
static size_t gradient_each(const attention_job *job) {
  const tern_dtype dtype = job->q->dtype;
  return scratch_bytes(dtype == TERN_F64 ? attention_grad_room_f64(job) : attention_grad_room_f32(job), dtype);
}

static size_t attention_scratch(const tern_op *op, const tern_cpu_view *in, const tern_cpu_view *out) {
  (void)out;
  attention_job job = {0};
  attention_shape(&job, op, &in[0], &in[1], &in[2], &in[3]);
  return forward_each(&job) * (size_t)tern_pool_threads();
}

static tern_status attention_run(const tern_op *op, const tern_cpu_view *in, const tern_cpu_view *out, tern_kernel_context *context) {
  attention_job job = {.out = &out[0], .lse = &out[1], .scale = view_number(&in[4]), .scratch = context->scratch};
  attention_shape(&job, op, &in[0], &in[1], &in[2], &in[3]);
  job.scratch_each = forward_each(&job);
  tern_pool_run(in[0].dims[0] * job.key_heads * job.row_blocks, in[0].dtype == TERN_F64 ? attention_chunk_f64 : attention_chunk_f32, &job);
  return NULL;
}

static size_t attention_grad_scratch(const tern_op *op, const tern_cpu_view *in, const tern_cpu_view *out) {
  (void)out;
  attention_job job = {0};
  attention_shape(&job, op, &in[1], &in[2], &in[3], &in[6]);
  return gradient_each(&job) * (size_t)tern_pool_threads();
}

static tern_status attention_grad_run(const tern_op *op, const tern_cpu_view *in, const tern_cpu_view *out, tern_kernel_context *context) {
  attention_job job = {.gout = &in[0], .out = &in[4], .lse = &in[5], .gq = &out[0], .gk = &out[1], .gv = &out[2], .scale = view_number(&in[7]),
                       .scratch = context->scratch};
  attention_shape(&job, op, &in[1], &in[2], &in[3], &in[6]);
  job.scratch_each = gradient_each(&job);
  tern_pool_run(in[1].dims[0] * job.key_heads, in[1].dtype == TERN_F64 ? attention_grad_chunk_f64 : attention_grad_chunk_f32, &job);
  return NULL;
}

void TERN_ISA_NAME(tern_register_attention)(tern_kernel *rows) {
  rows[TERN_OP_ATTENTION] = (tern_kernel){.run = attention_run, .scratch = attention_scratch};
  rows[TERN_OP_ATTENTION_GRAD] = (tern_kernel){.run = attention_grad_run, .scratch = attention_grad_scratch, .dense_inputs = 1u << 5};
}
