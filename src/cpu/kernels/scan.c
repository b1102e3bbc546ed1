/* Reductions that keep a place: SCAN (running sum, product, maximum, minimum) and ARG_REDUCE (the largest or smallest element and where it is).
 *
 * Sums are sequential along the line, as PyTorch's are: f32 in f64, f16 and bf16 in f32, rounded at each element. One line belongs to one chunk. */
#include "lines.h"

enum {
  COLUMNS = 64, /* lines side by side */
  WAYS = 16,    /* interleaved sublines of an arg reduction: a vector or more */
  CHUNK_ELEMENTS = 16384,
};

#define ORDERED 1
#define LOAD(x) (x)
#define STORE(x) (TYPE)(x)
#define ORDER(x) (x)
#define ORDER_TYPE TYPE
#define IS_NAN(x) 0
#define ADD(a, b) ((a) | (b))
#define MULTIPLY(a, b) ((a) & (b))
#define TOTAL uint8_t
#define TYPE uint8_t
#define NAME boolean
#include "scan_lines.h"
#undef ADD
#undef MULTIPLY
#undef TOTAL

/* Integers wrap around: in uint64_t, whose low bits are right for every width. */
#define ADD(a, b) ((a) + (b))
#define MULTIPLY(a, b) ((a) * (b))
#undef LOAD
#define LOAD(x) ((uint64_t)(x))
#define TOTAL uint64_t
#define TYPE uint8_t
#define NAME u8
#include "scan_lines.h"
#define TYPE int8_t
#define NAME i8
#include "scan_lines.h"
#define TYPE int16_t
#define NAME i16
#include "scan_lines.h"
#define TYPE uint16_t
#define NAME u16
#include "scan_lines.h"
#define TYPE int32_t
#define NAME i32
#include "scan_lines.h"
#define TYPE uint32_t
#define NAME u32
#include "scan_lines.h"
#define TYPE int64_t
#define NAME i64
#include "scan_lines.h"
#define TYPE uint64_t
#define NAME u64
#include "scan_lines.h"
#undef TOTAL
#undef LOAD
#undef IS_NAN

#define IS_NAN(x) ((x) != (x))
#define LOAD(x) ((double)(x))
#define TOTAL double
#define TYPE float
#define NAME f32
#include "scan_lines.h"
#define TYPE double
#define NAME f64
#include "scan_lines.h"
#undef TOTAL
#undef LOAD
#undef STORE
#undef ORDER
#undef ORDER_TYPE

#define ORDER_TYPE float
#define TOTAL float
#define LOAD(x) tern_f16_to_f32(x)
#define STORE(x) tern_f32_to_f16(x)
#define ORDER(x) tern_f16_to_f32(x)
#define TYPE uint16_t
#define NAME f16
#include "scan_lines.h"
#undef LOAD
#undef STORE
#undef ORDER
#define LOAD(x) tern_bf16_to_f32(x)
#define STORE(x) tern_f32_to_bf16(x)
#define ORDER(x) tern_bf16_to_f32(x)
#define TYPE uint16_t
#define NAME bf16
#include "scan_lines.h"
#undef LOAD
#undef STORE
#undef ORDER
#undef TOTAL
#undef ORDERED

#define ORDERED 0
#define LOAD(x) (x)
#define STORE(x) (TYPE)(x)
#define TOTAL double _Complex
#define TYPE float _Complex
#define NAME c64
#include "scan_lines.h"
#define TYPE double _Complex
#define NAME c128
#include "scan_lines.h"

typedef void (*scan_function)(const void *x, void *out, int64_t length, int64_t along, int64_t columns);
typedef void (*arg_function)(const void *x, int64_t length, int64_t along, int64_t columns, bool is_max, int64_t *index);
typedef struct dtype_row {
  scan_function scan[TERN_ANY + 1]; /* by tern_reduction */
  arg_function arg;
} dtype_row;

#define ROW(DTYPE, name)                                                                                                                    \
  [TERN_##DTYPE] = {{[TERN_SUM] = scan_sum_##name, [TERN_PROD] = scan_product_##name, [TERN_MAX] = scan_max_##name, [TERN_MIN] = scan_min_##name}, \
                    arg_columns_##name}
static const dtype_row dtype_rows[TERN_DTYPE_COUNT] = {
  [TERN_BOOL] = {{[TERN_SUM] = scan_sum_boolean, [TERN_PROD] = scan_product_boolean, [TERN_MAX] = scan_max_boolean, [TERN_MIN] = scan_min_boolean,
                  [TERN_ANY] = scan_sum_boolean, [TERN_ALL] = scan_product_boolean}, arg_columns_boolean},
  ROW(U8, u8), ROW(I8, i8), ROW(I16, i16), ROW(I32, i32), ROW(I64, i64), ROW(U16, u16), ROW(U32, u32), ROW(U64, u64),
  ROW(F16, f16), ROW(BF16, bf16), ROW(F32, f32), ROW(F64, f64),
  [TERN_C64] = {{[TERN_SUM] = scan_sum_c64, [TERN_PROD] = scan_product_c64}, NULL},
  [TERN_C128] = {{[TERN_SUM] = scan_sum_c128, [TERN_PROD] = scan_product_c128}, NULL},
};

typedef struct scan_job {
  const char *x;
  char *out;
  int64_t *index;         /* arg reduction only */
  size_t element;
  tern_dense_lines lines;
  scan_function scan;
  arg_function arg;
  bool is_max;
  int64_t blocks;         /* blocks of columns in each outer position */
  int64_t items, items_per_chunk;
} scan_job;

static void scan_chunk(void *context, int64_t chunk, int thread) {
  (void)thread;
  const scan_job *job = context;
  const tern_dense_lines l = job->lines;
  const int64_t end = tern_min_i64(job->items, (chunk + 1) * job->items_per_chunk);
  for (int64_t item = chunk * job->items_per_chunk; item < end; item++) {
    const int64_t outer = item / job->blocks, column = item % job->blocks * COLUMNS, columns = tern_min_i64(COLUMNS, l.inner - column);
    const char *x = job->x + (size_t)(outer * l.length * l.inner + column) * job->element;
    if (job->scan) job->scan(x, job->out + (x - job->x), l.length, l.inner, columns);
    else {
      int64_t *index = job->index + outer * l.inner + column;
      job->arg(x, l.length, l.inner, columns, job->is_max, index);
      char *out = job->out + (size_t)(outer * l.inner + column) * job->element;
      for (int64_t c = 0; c < columns; c++) memcpy(out + (size_t)c * job->element, x + (size_t)(index[c] * l.inner + c) * job->element, job->element);
    }
  }
}

static void scan_go(scan_job *job, const tern_cpu_view *x, int dim) {
  job->x = x->data;
  job->element = tern_dtype_size(x->dtype);
  job->lines = tern_dense_lines_make(x, dim);
  job->blocks = tern_ceil_div(job->lines.inner, COLUMNS);
  job->items = job->lines.outer * job->blocks;
  job->items_per_chunk = tern_chunk_items(job->lines.length * tern_min_i64(COLUMNS, job->lines.inner), CHUNK_ELEMENTS);
  tern_pool_run(tern_ceil_div(job->items, job->items_per_chunk), scan_chunk, job);
}

static tern_status unsupported(const char *what, tern_dtype dtype) {
  return tern_error_new(TERN_UNSUPPORTED, "%s is not defined for %s", what, tern_dtype_name(dtype));
}

static tern_status scan_run(const tern_op *op, const tern_cpu_view *in, const tern_cpu_view *out, tern_kernel_context *context) {
  (void)context;
  scan_job job = {.out = out->data, .scan = dtype_rows[in->dtype].scan[op->attrs->reduce.how]};
  if (!job.scan) return unsupported("this running reduction", in->dtype);
  if (tern_view_count(out)) scan_go(&job, in, op->attrs->reduce.dims[0]);
  return NULL;
}

static tern_status arg_run(const tern_op *op, const tern_cpu_view *in, const tern_cpu_view *out, tern_kernel_context *context) {
  (void)context;
  scan_job job = {.out = out[0].data, .index = (int64_t *)out[1].data, .arg = dtype_rows[in->dtype].arg, .is_max = op->attrs->reduce.how == TERN_MAX};
  const int dim = op->attrs->reduce.dims[0];
  if (!job.arg) return unsupported("the largest or smallest element", in->dtype);
  if (tern_view_count(out) == 0) return NULL;
  if (in->rank && (in->dims[dim] == 0 || in->dims[dim] > INT32_MAX))
    return tern_error_new(TERN_INVALID_ARGUMENT, "the largest or smallest of %lld elements: there must be at least one and less than 2^31", (long long)in->dims[dim]);
  scan_go(&job, in, dim);
  return NULL;
}

void TERN_ISA_NAME(tern_register_scan)(tern_kernel *rows) {
  rows[TERN_OP_SCAN] = (tern_kernel){.run = scan_run, .dense_inputs = 1u, .reuse = 1u};
  rows[TERN_OP_ARG_REDUCE] = (tern_kernel){.run = arg_run, .dense_inputs = 1u};
}
