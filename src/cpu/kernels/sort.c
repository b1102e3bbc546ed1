/* SORT: a stable sort along one dimension, with the indices; NaN is the largest, -0 and 0 are equal.
 *
 * Every dtype is mapped to unsigned keys whose order is the one wanted (inverted for descending, which keeps equals in their order); sort_keys.h sorts the
 * keys. A line belongs to one chunk. */
#include "lines.h"

enum {
  INSERTION = 40,      /* lines up to this long are sorted by insertion */
  LARGE_LINE = 1 << 14,/* lines from here on use the larger digit: fewer passes, more counters */
  SMALL_DIGIT = 8,
  LARGE_DIGIT = 11,
  CHUNK_ELEMENTS = 4096,
  SELECT_SHARE = 8,    /* the first n / SELECT_SHARE of a line, or fewer, are selected rather than sorted */
  SELECT_BLOCK = 64,   /* elements compared with the last of them at once */
  SELECT_ROOM = 512,   /* more records than wanted that gather before they are sorted */
};

typedef struct sort_job {
  const char *x;
  char *out;
  int64_t *index;
  tern_dtype dtype;
  size_t element;
  bool descending;
  int64_t first;       /* elements of a line that are wanted */
  tern_dense_lines lines;
  int64_t lines_per_chunk;
  char *scratch;
  size_t scratch_each; /* bytes per thread: two arrays of records */
} sort_job;

/* ---- keys ---- */

#define FLIP_32(bits) ((bits) & 0x80000000u ? ~(bits) : (bits) | 0x80000000u)
#define FLIP_64(bits) ((bits) >> 63 ? ~(bits) : (bits) | 1ull << 63)
static inline uint32_t key_of_f32(uint32_t bits) {
  const uint32_t size = bits & 0x7FFFFFFF;
  return size > 0x7F800000 ? UINT32_MAX : size == 0 ? 0x80000000u : FLIP_32(bits);
}
static inline uint64_t key_of_f64(uint64_t bits) {
  const uint64_t size = bits & INT64_MAX;
  return size > 0x7FF0000000000000u ? UINT64_MAX : size == 0 ? 1ull << 63 : FLIP_64(bits);
}
static inline uint32_t key_of_f16(uint16_t bits) { /* NaN above infinity; as the upper half of a 32-bit pattern of its own */
  const uint32_t size = bits & 0x7FFFu;
  return size > 0x7C00 ? UINT32_MAX : size == 0 ? 0x80000000u : FLIP_32((uint32_t)bits << 16);
}

/* The keys of n elements, job->lines.inner apart. */
#define LOAD_LOOP(TYPE, key_of)                        \
  if (step == 1)                                       \
    for (int64_t i = 0; i < n; i++) {                  \
      const TYPE value = ((const TYPE *)x)[i];         \
      keys[i] = (key_of) ^ invert;                     \
    }                                                  \
  else                                                 \
    for (int64_t i = 0; i < n; i++) {                  \
      const TYPE value = ((const TYPE *)x)[i * step];  \
      keys[i] = (key_of) ^ invert;                     \
    }                                                  \
  break

static void load_keys_32(const sort_job *job, const char *x, int64_t n, uint32_t *keys);
static void load_keys_64(const sort_job *job, const char *x, int64_t n, uint64_t *keys);

#define KEY uint32_t
#define K(name) name##_32
#include "sort_keys.h"
#define KEY uint64_t
#define K(name) name##_64
#include "sort_keys.h"

static void load_keys_32(const sort_job *job, const char *x, int64_t n, uint32_t *keys) {
  const int64_t step = job->lines.inner;
  const uint32_t invert = job->descending ? UINT32_MAX : 0;
  switch (job->dtype) {
    case TERN_I8: LOAD_LOOP(int8_t, (uint32_t)value ^ 0x80000000u);
    case TERN_I16: LOAD_LOOP(int16_t, (uint32_t)value ^ 0x80000000u);
    case TERN_I32: LOAD_LOOP(int32_t, (uint32_t)value ^ 0x80000000u);
    case TERN_U16: LOAD_LOOP(uint16_t, value);
    case TERN_U32: LOAD_LOOP(uint32_t, value);
    case TERN_F16: LOAD_LOOP(uint16_t, key_of_f16(value));
    case TERN_BF16: LOAD_LOOP(uint16_t, key_of_f32((uint32_t)value << 16));
    case TERN_F32: LOAD_LOOP(uint32_t, key_of_f32(value));
    default: LOAD_LOOP(uint8_t, value); /* bool, u8 */
  }
}

static void load_keys_64(const sort_job *job, const char *x, int64_t n, uint64_t *keys) {
  const int64_t step = job->lines.inner;
  const uint64_t invert = job->descending ? UINT64_MAX : 0;
  switch (job->dtype) {
    case TERN_I64: LOAD_LOOP(uint64_t, value ^ 1ull << 63);
    case TERN_F64: LOAD_LOOP(uint64_t, key_of_f64(value));
    default: LOAD_LOOP(uint64_t, value); /* u64 */
  }
}

/* ---- the kernel ---- */

static size_t sort_scratch_each(const tern_cpu_view *x, int dim) {
  const size_t record = tern_dtype_size(x->dtype) == 8 ? sizeof(record_64) : sizeof(record_32);
  return (2 * (size_t)(x->rank ? x->dims[dim] : 1) * record + 63) / 64 * 64;
}

static size_t sort_scratch(const tern_op *op, const tern_cpu_view *in, const tern_cpu_view *out) {
  (void)out;
  return sort_scratch_each(&in[0], op->attrs->sort.dim) * (size_t)tern_pool_threads();
}

static tern_status sort_run(const tern_op *op, const tern_cpu_view *in, const tern_cpu_view *out, tern_kernel_context *context) {
  const int dim = op->attrs->sort.dim;
  sort_job job = {.x = in[0].data, .out = out[0].data, .index = (int64_t *)out[1].data, .dtype = in[0].dtype, .element = tern_dtype_size(in[0].dtype),
                  .descending = op->attrs->sort.descending, .lines = tern_dense_lines_make(&in[0], dim), .scratch = context->scratch};
  if (tern_dtype_is_complex(job.dtype)) return tern_error_new(TERN_UNSUPPORTED, "sort is not defined for %s: complex numbers have no order", tern_dtype_name(job.dtype));
  if (tern_view_count(&in[0]) == 0) return NULL;
  if (job.lines.length > UINT32_MAX) return tern_error_new(TERN_UNSUPPORTED, "a line of %lld elements is too long to sort: 2^32 - 1 are possible", (long long)job.lines.length);
  job.first = op->attrs->sort.first > 0 ? tern_min_i64(op->attrs->sort.first, job.lines.length) : job.lines.length;
  job.scratch_each = sort_scratch_each(&in[0], dim);
  job.lines_per_chunk = tern_chunk_items(job.lines.length, CHUNK_ELEMENTS);
  tern_pool_run(tern_ceil_div(job.lines.outer * job.lines.inner, job.lines_per_chunk), job.element == 8 ? sort_chunk_64 : sort_chunk_32, &job);
  return NULL;
}

void TERN_ISA_NAME(tern_register_sort)(tern_kernel *rows) {
  rows[TERN_OP_SORT] = (tern_kernel){.run = sort_run, .scratch = sort_scratch, .dense_inputs = 1u};
}
