/* Indexing: take (embedding, index_select), gather, put (their gradients, index_add, index_copy), scatter, and the check that guards them.
 *
 * Programs check indices before they use them (CHECK); here a bad index is clamped, so that a broken caller reads wrong values, never wrong memory.
 * Updates of one place are combined in index order. Work is split so that one place is always handled by one chunk: results do not depend on threads. */
#include <stdatomic.h>
#include "lines.h"

enum {
  BLOCK = 256,             /* indices decoded at once */
  CHUNK_BYTES = 64 * 1024, /* moved by one chunk of take */
  CHUNK_ELEMENTS = 8192,   /* elements or indices of one chunk elsewhere */
  SHORT_LINE = 8,
};

/* ---- indices ---- */

static tern_status check_index_dtype(const tern_cpu_view *index) {
  if (index->dtype == TERN_I64 || index->dtype == TERN_I32) return NULL;
  return tern_error_new(TERN_UNSUPPORTED, "an index of dtype %s is not supported: convert it to i64 or i32", tern_dtype_name(index->dtype));
}

/* Clamping needs at least one element to clamp to. */
static tern_status check_indexed(const tern_cpu_view *x, int dim) {
  if (x->rank == 0 || x->dims[dim] > 0) return NULL;
  return tern_error_new(TERN_INDEX_OUT_OF_RANGE, "an index into dimension %d, which has no elements", dim);
}

/* out[i] = i * step + (index number first + i * stride, clamped to [0, bound)) * scale; n <= BLOCK. */
static void decode_places(const tern_cpu_view *index, int64_t first, int64_t stride, int64_t n, int64_t bound, int64_t scale, int64_t step, int64_t *out) {
  const int64_t last = bound - 1;
  if (index->dtype == TERN_I64) {
    const int64_t *source = (const int64_t *)index->data + first;
    for (int64_t i = 0; i < n; i++) out[i] = source[i * stride];
  } else {
    const int32_t *source = (const int32_t *)index->data + first;
    for (int64_t i = 0; i < n; i++) out[i] = source[i * stride];
  }
  for (int64_t i = 0; i < n; i++) {
    int64_t at = out[i] < 0 ? 0 : out[i] > last ? last : out[i];
    out[i] = at * scale + i * step;
  }
}

/* ---- moving elements of any size ---- */

typedef struct { uint64_t low, high; } pair16;

#define MOVE_FUNCTIONS(TYPE, bits)                                                                                                  \
  static void pick_##bits(int64_t n, void *out_data, int64_t step, const void *from_data, const int64_t *place) {                   \
    TYPE *out = out_data;                                                                                                           \
    const TYPE *from = from_data;                                                                                                   \
    for (int64_t i = 0; i < n; i++) out[i * step] = from[place[i]];                                                                 \
  }                                                                                                                                 \
  static void drop_##bits(int64_t n, void *out_data, const int64_t *place, const void *from_data, int64_t step) {                   \
    TYPE *out = out_data;                                                                                                           \
    const TYPE *from = from_data;                                                                                                   \
    if (!place)                                                                                                                     \
      for (int64_t i = 0; i < n; i++) out[i] = from[i * step];                                                                      \
    else                                                                                                                            \
      for (int64_t i = 0; i < n; i++) out[place[i]] = from[i * step];                                                               \
  }
MOVE_FUNCTIONS(uint8_t, 8)
MOVE_FUNCTIONS(uint16_t, 16)
MOVE_FUNCTIONS(uint32_t, 32)
MOVE_FUNCTIONS(uint64_t, 64)
MOVE_FUNCTIONS(pair16, 128)
#undef MOVE_FUNCTIONS

typedef void (*pick_function)(int64_t n, void *out, int64_t step, const void *from, const int64_t *place);
typedef void (*combine_function)(int64_t n, void *out, const int64_t *place, const void *update, int64_t step);
static const pick_function pick_rows[17] = {[1] = pick_8, [2] = pick_16, [4] = pick_32, [8] = pick_64, [16] = pick_128};
static const combine_function drop_rows[17] = {[1] = drop_8, [2] = drop_16, [4] = drop_32, [8] = drop_64, [16] = drop_128};

/* ---- combining elements, by dtype ---- */

#define LOAD(x) (x)
#define STORE(x) (TYPE)(x)
#define ADD(a, b) ((a) | (b))
#define MULTIPLY(a, b) ((a) & (b))
#define MAX(a, b) ((a) | (b))
#define MIN(a, b) ((a) & (b))
#define TYPE uint8_t
#define NAME boolean /* not bool: that is a macro */
#include "index_combine.h"
#undef ADD
#undef MULTIPLY
#undef MAX
#undef MIN
#undef LOAD
#undef STORE

/* Integers wrap around: sums and products are made in the unsigned type of the same width (at least 32 bits). */
#define LOAD(x) (x)
#define STORE(x) (TYPE)(x)
#define MAX(a, b) ((a) > (b) ? (a) : (b))
#define MIN(a, b) ((a) < (b) ? (a) : (b))
#define ADD(a, b) ((uint32_t)(a) + (uint32_t)(b))
#define MULTIPLY(a, b) ((uint32_t)(a) * (uint32_t)(b))
#define TYPE uint8_t
#define NAME u8
#include "index_combine.h"
#define TYPE int8_t
#define NAME i8
#include "index_combine.h"
#define TYPE int16_t
#define NAME i16
#include "index_combine.h"
#define TYPE uint16_t
#define NAME u16
#include "index_combine.h"
#define TYPE int32_t
#define NAME i32
#include "index_combine.h"
#define TYPE uint32_t
#define NAME u32
#include "index_combine.h"
#undef ADD
#undef MULTIPLY
#define ADD(a, b) ((uint64_t)(a) + (uint64_t)(b))
#define MULTIPLY(a, b) ((uint64_t)(a) * (uint64_t)(b))
#define TYPE int64_t
#define NAME i64
#include "index_combine.h"
#define TYPE uint64_t
#define NAME u64
#include "index_combine.h"
#undef ADD
#undef MULTIPLY
#undef MAX
#undef MIN

/* NaN wins. */
#define ADD(a, b) ((a) + (b))
#define MULTIPLY(a, b) ((a) * (b))
#define MAX(a, b) ((a) != (a) || (a) > (b) ? (a) : (b))
#define MIN(a, b) ((a) != (a) || (a) < (b) ? (a) : (b))
#define TYPE float
#define NAME f32
#include "index_combine.h"
#define TYPE double
#define NAME f64
#include "index_combine.h"
#undef LOAD
#undef STORE
#define LOAD(x) tern_f16_to_f32(x)
#define STORE(x) tern_f32_to_f16(x)
#define TYPE uint16_t
#define NAME f16
#include "index_combine.h"
#undef LOAD
#undef STORE
#define LOAD(x) tern_bf16_to_f32(x)
#define STORE(x) tern_f32_to_bf16(x)
#define TYPE uint16_t
#define NAME bf16
#include "index_combine.h"
#undef MAX
#undef MIN
#undef LOAD
#undef STORE
#define LOAD(x) (x)
#define STORE(x) (x)
#define TYPE float _Complex
#define NAME c64
#include "index_combine.h"
#define TYPE double _Complex
#define NAME c128
#include "index_combine.h"
#undef LOAD
#undef STORE
#undef ADD
#undef MULTIPLY

#define ORDERED_ROW(NAME, name)                                                                                                \
  [TERN_##NAME] = {[TERN_COMBINE_ADD] = combine_add_##name, [TERN_COMBINE_MULTIPLY] = combine_multiply_##name,                 \
                   [TERN_COMBINE_MAX] = combine_max_##name, [TERN_COMBINE_MIN] = combine_min_##name}
#define COMPLEX_ROW(NAME, name) \
  [TERN_##NAME] = {[TERN_COMBINE_ADD] = combine_add_##name, [TERN_COMBINE_MULTIPLY] = combine_multiply_##name}
static const combine_function combine_rows[TERN_DTYPE_COUNT][TERN_COMBINE_MIN + 1] = {
  ORDERED_ROW(BOOL, boolean), ORDERED_ROW(U8, u8),   ORDERED_ROW(I8, i8),   ORDERED_ROW(I16, i16),   ORDERED_ROW(I32, i32),
  ORDERED_ROW(I64, i64),   ORDERED_ROW(U16, u16), ORDERED_ROW(U32, u32), ORDERED_ROW(U64, u64),   ORDERED_ROW(F16, f16),
  ORDERED_ROW(BF16, bf16), ORDERED_ROW(F32, f32), ORDERED_ROW(F64, f64), COMPLEX_ROW(C64, c64),   COMPLEX_ROW(C128, c128),
};

static tern_status find_combine(tern_combine how, tern_dtype dtype, combine_function *out) {
  *out = how == TERN_SET ? drop_rows[tern_dtype_size(dtype)] : combine_rows[dtype][how];
  if (*out) return NULL;
  return tern_error_new(TERN_UNSUPPORTED, "scatter with maximum or minimum is not defined for %s: complex numbers have no order", tern_dtype_name(dtype));
}

/* ---- take ---- */

typedef struct take_job {
  const tern_cpu_view *x, *index, *out;
  int dim, inner_dim;        /* x.dims[inner_dim..] is contiguous; between dim and inner_dim it is not */
  int64_t n, rows, pieces;   /* indices; rows = outer * n; contiguous pieces of a row */
  size_t piece_bytes, element;
  int64_t rows_per_chunk;
} take_job;

/* Offset of the row-major position `at` within dims [from, to) of a view. */
static int64_t offset_within(const tern_cpu_view *v, int from, int to, int64_t at) {
  int64_t offset = 0;
  for (int d = to - 1; d >= from; d--) {
    offset += at % v->dims[d] * v->strides[d];
    at /= v->dims[d];
  }
  return offset;
}

static void take_chunk(void *context, int64_t chunk, int thread) {
  (void)thread;
  const take_job *job = context;
  const tern_cpu_view *x = job->x;
  const int64_t first = chunk * job->rows_per_chunk, end = tern_min_i64(job->rows, first + job->rows_per_chunk);
  char *out = job->out->data + (size_t)(first * job->pieces) * job->piece_bytes;
  int64_t place[BLOCK];
  for (int64_t row = first; row < end;) {
    const int64_t outer = row / job->n, i = row % job->n, count = tern_min_i64(tern_min_i64(BLOCK, end - row), job->n - i);
    const char *source = x->data + (size_t)offset_within(x, 0, job->dim, outer) * job->element;
    decode_places(job->index, i, 1, count, x->dims[job->dim], x->strides[job->dim], 0, place);
    if (job->pieces == 1 && job->piece_bytes == job->element) {
      pick_rows[job->element](count, out, 1, source, place);
      out += (size_t)count * job->element;
    } else {
      for (int64_t r = 0; r < count; r++)
        for (int64_t piece = 0; piece < job->pieces; piece++, out += job->piece_bytes) {
          int64_t at = place[r] + (job->pieces == 1 ? 0 : offset_within(x, job->dim + 1, job->inner_dim, piece));
          memcpy(out, source + (size_t)at * job->element, job->piece_bytes);
        }
    }
    row += count;
  }
}

static tern_status take_run(const tern_op *op, const tern_cpu_view *in, const tern_cpu_view *out, tern_kernel_context *context) {
  (void)context;
  if (tern_view_count(out) == 0) return NULL;
  TERN_TRY(check_index_dtype(&in[1]));
  TERN_TRY(check_indexed(&in[0], op->attrs->axis.dim));
  take_job job = {.x = &in[0], .index = &in[1], .out = out, .dim = op->attrs->axis.dim, .inner_dim = in[0].rank,
                  .n = tern_view_count(&in[1]), .pieces = 1, .element = tern_dtype_size(in[0].dtype)};
  int64_t contiguous = 1;
  while (job.inner_dim > job.dim + 1 && (job.x->dims[job.inner_dim - 1] == 1 || job.x->strides[job.inner_dim - 1] == contiguous))
    contiguous *= job.x->dims[--job.inner_dim];
  for (int d = job.dim + 1; d < job.inner_dim; d++) job.pieces *= job.x->dims[d];
  job.piece_bytes = (size_t)contiguous * job.element;
  job.rows = tern_view_count(out) / (job.pieces * contiguous);
  job.rows_per_chunk = tern_chunk_items(job.pieces * contiguous * (int64_t)job.element, CHUNK_BYTES);
  tern_pool_run(tern_ceil_div(job.rows, job.rows_per_chunk), take_chunk, &job);
  return NULL;
}

/* ---- gather and scatter: every line of the index along one dimension, a panel of neighbouring lines at a time ---- */

typedef struct line_job {
  const tern_cpu_view *index;   /* view 0 of the lines */
  const tern_cpu_view *far;     /* view 1: what is indexed: x of gather, the result of scatter */
  const tern_cpu_view *near;    /* view 2: shaped like the index: the result of gather, the update of scatter */
  tern_lines lines;
  bool along_line;              /* the inner loop runs along the line, not across the panel */
  size_t element;
  int64_t bound;
  int64_t blocks, block;        /* each panel is cut into blocks of `block` lines */
  int64_t items_per_chunk;      /* blocks of one chunk */
  pick_function pick;           /* gather */
  combine_function combine;     /* scatter */
} line_job;

/* One inner loop of n elements: the index from `index` by index_step, near by near_step, far by far_step apart from the indexed dimension. */
static void line_pass(const line_job *job, int64_t n, int64_t index, int64_t index_step, int64_t far, int64_t far_step, int64_t near, int64_t near_step) {
  int64_t place[BLOCK];
  for (int64_t done = 0; done < n; done += BLOCK) {
    int64_t count = tern_min_i64(BLOCK, n - done);
    decode_places(job->index, index + done * index_step, index_step, count, job->bound, job->lines.along[1], far_step, place);
    char *far_data = job->far->data + (far + done * far_step) * (int64_t)job->element, *near_data = job->near->data + (near + done * near_step) * (int64_t)job->element;
    if (job->pick) job->pick(count, near_data, near_step, far_data, place);
    else job->combine(count, far_data, place, near_data, near_step);
  }
}

static void line_chunk(void *context, int64_t chunk, int thread) {
  (void)thread;
  const line_job *job = context;
  const tern_lines *l = &job->lines;
  const int64_t end = tern_min_i64(l->outer * job->blocks, (chunk + 1) * job->items_per_chunk);
  for (int64_t item = chunk * job->items_per_chunk; item < end; item++) {
    const int64_t panel = item / job->blocks, line = item % job->blocks * job->block, lines = tern_min_i64(job->block, l->panel - line);
    const int64_t index = tern_lines_offset(l, 0, panel) + line * l->across[0], far = tern_lines_offset(l, 1, panel) + line * l->across[1],
                  near = tern_lines_offset(l, 2, panel) + line * l->across[2];
    if (job->along_line)
      for (int64_t i = 0; i < lines; i++)
        line_pass(job, l->length, index + i * l->across[0], l->along[0], far + i * l->across[1], 0, near + i * l->across[2], l->along[2]);
    else
      for (int64_t i = 0; i < l->length; i++)
        line_pass(job, lines, index + i * l->along[0], l->across[0], far, l->across[1], near + i * l->along[2], l->across[2]);
  }
}

static void line_run(line_job *job, int dim) {
  const tern_cpu_view *views[3] = {job->index, job->far, job->near};
  tern_lines *l = &job->lines;
  tern_lines_make(l, 3, views, dim);
  job->element = tern_dtype_size(job->far->dtype);
  job->bound = job->far->rank ? job->far->dims[dim] : 1;
  /* The inner loop goes where memory does, unless lines are too short to be worth a loop each (the targets of cross entropy). */
  job->along_line = l->panel == 1 || (l->along[2] <= l->across[2] && l->length >= SHORT_LINE);
  job->block = job->along_line ? 1 : tern_min_i64(BLOCK, l->panel);
  if (job->pick && l->outer * l->panel == 1) { /* one line: gather may cut it (scatter may not: two updates can meet) */
    l->panel = l->length;
    for (int v = 0; v < 3; v += 2) l->across[v] = l->along[v];
    l->across[1] = 0;
    l->length = 1;
    job->along_line = false;
    job->block = CHUNK_ELEMENTS;
  }
  job->blocks = tern_ceil_div(l->panel, job->block);
  job->items_per_chunk = tern_chunk_items(job->block * l->length, CHUNK_ELEMENTS);
  tern_pool_run(tern_ceil_div(l->outer * job->blocks, job->items_per_chunk), line_chunk, job);
}

static tern_status gather_run(const tern_op *op, const tern_cpu_view *in, const tern_cpu_view *out, tern_kernel_context *context) {
  (void)context;
  if (tern_view_count(out) == 0) return NULL;
  TERN_TRY(check_index_dtype(&in[1]));
  TERN_TRY(check_indexed(&in[0], op->attrs->axis.dim));
  line_job job = {.index = &in[1], .far = &in[0], .near = out, .pick = pick_rows[tern_dtype_size(out->dtype)]};
  line_run(&job, op->attrs->axis.dim);
  return NULL;
}

/* ---- the base of put and scatter ---- */

typedef struct copy_job {
  char *to;
  const char *from;
  size_t bytes;
} copy_job;

static void copy_chunk(void *context, int64_t chunk, int thread) {
  (void)thread;
  const copy_job *job = context;
  size_t first = (size_t)chunk * CHUNK_BYTES * 4, left = job->bytes - first;
  memcpy(job->to + first, job->from + first, left < CHUNK_BYTES * 4 ? left : CHUNK_BYTES * 4);
}

/* The planner may have given the result the base's own memory: then it is there already. */
static void copy_base(const tern_cpu_view *base, const tern_cpu_view *out) {
  copy_job job = {out->data, base->data, (size_t)tern_view_count(out) * tern_dtype_size(out->dtype)};
  if (job.to != job.from) tern_pool_run(tern_ceil_div((int64_t)job.bytes, CHUNK_BYTES * 4), copy_chunk, &job);
}

static tern_status scatter_run(const tern_op *op, const tern_cpu_view *in, const tern_cpu_view *out, tern_kernel_context *context) {
  (void)context;
  line_job job = {.index = &in[1], .far = out, .near = &in[2]};
  TERN_TRY(find_combine(op->attrs->scatter.how, out->dtype, &job.combine));
  TERN_TRY(check_index_dtype(&in[1]));
  copy_base(&in[0], out);
  if (tern_view_count(&in[1]) == 0 || tern_view_count(out) == 0) return NULL;
  line_run(&job, op->attrs->scatter.dim);
  return NULL;
}

/* ---- put: rows of the update go to rows of the base ---- */

enum {
  PUT_COLUMNS = 512,      /* a row at least twice as long is cut into blocks of columns */
  PUT_SPLIT_INNER = 16,   /* rows at least this long are worth looking through the indices once per bucket */
};

typedef struct put_job {
  const tern_cpu_view *index, *update, *out;
  combine_function combine;
  tern_dense_lines lines;  /* of the result */
  int64_t n;               /* indices */
  int64_t parts;           /* per outer position: blocks of columns, or buckets of target rows */
  bool by_columns;
} put_job;

static void put_chunk(void *context, int64_t chunk, int thread) {
  (void)thread;
  const put_job *job = context;
  const tern_dense_lines l = job->lines;
  const size_t element = tern_dtype_size(job->out->dtype);
  const int64_t outer = chunk / job->parts, part = chunk % job->parts;
  int64_t column = 0, columns = l.inner, row_first = 0, row_end = l.length;
  if (job->by_columns) {
    column = part * PUT_COLUMNS;
    columns = tern_min_i64(PUT_COLUMNS, l.inner - column);
  } else {
    row_first = l.length * part / job->parts;
    row_end = l.length * (part + 1) / job->parts;
  }
  char *out = job->out->data + (size_t)(outer * l.length * l.inner + column) * element;
  const char *update = job->update->data + (size_t)(outer * job->n * l.inner + column) * element;
  int64_t place[BLOCK];
  for (int64_t i = 0; i < job->n; i += BLOCK) {
    const int64_t count = tern_min_i64(BLOCK, job->n - i);
    decode_places(job->index, i, 1, count, l.length, 1, 0, place);
    if (l.inner == 1) job->combine(count, out, place, update + (size_t)i * element, 1); /* then there is one part */
    else
      for (int64_t r = 0; r < count; r++)
        if (place[r] >= row_first && place[r] < row_end)
          job->combine(columns, out + (size_t)(place[r] * l.inner) * element, NULL, update + (size_t)((i + r) * l.inner) * element, 1);
  }
}

static tern_status put_run(const tern_op *op, const tern_cpu_view *in, const tern_cpu_view *out, tern_kernel_context *context) {
  (void)context;
  put_job job = {.index = &in[1], .update = &in[2], .out = out, .lines = tern_dense_lines_make(out, op->attrs->scatter.dim),
                 .n = tern_view_count(&in[1]), .parts = 1};
  TERN_TRY(find_combine(op->attrs->scatter.how, out->dtype, &job.combine));
  TERN_TRY(check_index_dtype(&in[1]));
  copy_base(&in[0], out);
  if (job.n == 0 || tern_view_count(out) == 0) return NULL;
  const tern_dense_lines *l = &job.lines;
  job.by_columns = l->inner >= 2 * PUT_COLUMNS;
  if (job.by_columns) job.parts = tern_ceil_div(l->inner, PUT_COLUMNS);
  else if (l->inner >= PUT_SPLIT_INNER && l->outer < 8) /* each bucket looks at every index; how many there are does not change the result */
    job.parts = tern_min_i64(tern_min_i64(2 * tern_pool_threads(), l->length), tern_ceil_div(job.n * l->inner, CHUNK_ELEMENTS));
  tern_pool_run(l->outer * job.parts, put_chunk, &job);
  return NULL;
}

/* ---- check ---- */

typedef struct check_job {
  const tern_cpu_view *index;
  int64_t n, low, high;
  _Atomic int64_t first_bad; /* the smallest position found so far; n: none */
} check_job;

/* The first position in [first, end) outside the range, or end. */
#define CHECK_FUNCTION(TYPE, name)                                                                        \
  static int64_t check_##name(const TYPE *index, int64_t first, int64_t end, int64_t low, int64_t high) { \
    int64_t bad = 0;                                                                                      \
    for (int64_t i = first; i < end; i++) bad |= (int64_t)(index[i] < low) | (int64_t)(index[i] > high);  \
    if (!bad) return end;                                                                                 \
    while (index[first] >= low && index[first] <= high) first++;                                          \
    return first;                                                                                         \
  }
CHECK_FUNCTION(int32_t, i32)
CHECK_FUNCTION(int64_t, i64)
#undef CHECK_FUNCTION

static void check_chunk(void *context, int64_t chunk, int thread) {
  (void)thread;
  check_job *job = context;
  const int64_t first = chunk * CHUNK_ELEMENTS, end = tern_min_i64(job->n, first + CHUNK_ELEMENTS);
  const int64_t at = job->index->dtype == TERN_I64 ? check_i64((const int64_t *)job->index->data, first, end, job->low, job->high)
                                                   : check_i32((const int32_t *)job->index->data, first, end, job->low, job->high);
  if (at == end) return;
  for (int64_t seen = atomic_load(&job->first_bad); at < seen && !atomic_compare_exchange_weak(&job->first_bad, &seen, at);) {}
}

static tern_status check_run(const tern_op *op, const tern_cpu_view *in, const tern_cpu_view *out, tern_kernel_context *context) {
  (void)out;
  TERN_TRY(check_index_dtype(&in[0]));
  const int64_t n = tern_view_count(&in[0]);
  check_job job = {.index = &in[0], .n = n, .low = op->attrs->check.low, .high = op->attrs->check.high, .first_bad = n};
  tern_pool_run(tern_ceil_div(n, CHUNK_ELEMENTS), check_chunk, &job);
  const int64_t at = atomic_load(&job.first_bad);
  if (at == n) return NULL;
  context->failed_index = in[0].dtype == TERN_I64 ? ((const int64_t *)in[0].data)[at] : ((const int32_t *)in[0].data)[at];
  return tern_check_failure(&op->attrs->check, context->failed_index);
}

void TERN_ISA_NAME(tern_register_index)(tern_kernel *rows) {
  rows[TERN_OP_TAKE] = (tern_kernel){.run = take_run, .dense_inputs = 1u << 1};
  rows[TERN_OP_GATHER] = (tern_kernel){.run = gather_run};
  rows[TERN_OP_PUT] = (tern_kernel){.run = put_run, .dense_inputs = 7u, .reuse = 1u};
  rows[TERN_OP_SCATTER] = (tern_kernel){.run = scatter_run, .dense_inputs = 1u, .reuse = 1u};
  rows[TERN_OP_CHECK] = (tern_kernel){.run = check_run, .dense_inputs = 1u};
}
