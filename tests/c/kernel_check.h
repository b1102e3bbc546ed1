/* What the kernel tests share: arrays of any dtype and stride, and a way to run one kernel of one instruction set as the planner would.
 *
 * Every run is done with one and with two threads and must give the same bits. Arrays live until the test ends (arrays_free). */
#ifndef TERN_KERNEL_CHECK_H
#define TERN_KERNEL_CHECK_H
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <float.h>
#include <math.h>
#include "../../src/cpu/cpu.h"

/* ---- arrays ---- */

static void *arrays[4096];
static int n_arrays;

static inline void arrays_free(void) {
  while (n_arrays) free(arrays[--n_arrays]);
}
static inline int teardown_arrays(void **state) {
  (void)state;
  arrays_free();
  return 0;
}
static inline void *array_alloc(size_t bytes) {
  void *memory = aligned_alloc(64, (bytes + 127) / 64 * 64);
  assert_non_null(memory);
  assert_true(n_arrays < 4096);
  memset(memory, 0xA5, (bytes + 127) / 64 * 64);
  arrays[n_arrays++] = memory;
  return memory;
}

static inline tern_cpu_view array_new(tern_dtype dtype, int rank, const int64_t *dims) {
  tern_cpu_view v = {.dtype = dtype, .rank = rank};
  int64_t count = 1;
  for (int d = rank - 1; d >= 0; d--) {
    v.dims[d] = dims[d];
    v.strides[d] = count;
    count *= dims[d];
  }
  v.data = array_alloc((size_t)count * tern_dtype_size(dtype));
  return v;
}
#define DIMS(...) (int)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)), (int64_t[]){__VA_ARGS__}

/* The same dims with other strides: dimensions stored in reverse order, each `gap` times too wide. */
static inline tern_cpu_view array_strided(tern_dtype dtype, int rank, const int64_t *dims, int64_t gap) {
  int64_t stored[TERN_MAX_RANK];
  for (int d = 0; d < rank; d++) stored[rank - 1 - d] = dims[d] * gap;
  tern_cpu_view v = array_new(dtype, rank, stored), result = v;
  for (int d = 0; d < rank; d++) {
    result.dims[d] = dims[d];
    result.strides[d] = v.strides[rank - 1 - d] * gap;
  }
  return result;
}

static inline int64_t array_count(const tern_cpu_view *v) {
  int64_t count = 1;
  for (int d = 0; d < v->rank; d++) count *= v->dims[d];
  return count;
}
/* The place of the element with row-major number `at`. */
static inline char *array_at(const tern_cpu_view *v, int64_t at) {
  int64_t offset = 0;
  for (int d = v->rank - 1; d >= 0; d--) {
    offset += at % v->dims[d] * v->strides[d];
    at /= v->dims[d];
  }
  return v->data + offset * (int64_t)tern_dtype_size(v->dtype);
}
static inline double array_get(const tern_cpu_view *v, int64_t at) {
  const void *p = array_at(v, at);
  switch (v->dtype) {
    case TERN_BOOL: case TERN_U8: return *(const uint8_t *)p;
    case TERN_I8: return *(const int8_t *)p;
    case TERN_I16: return *(const int16_t *)p;
    case TERN_U16: return *(const uint16_t *)p;
    case TERN_I32: return *(const int32_t *)p;
    case TERN_U32: return *(const uint32_t *)p;
    case TERN_I64: return (double)*(const int64_t *)p;
    case TERN_U64: return (double)*(const uint64_t *)p;
    case TERN_F16: return (double)tern_f16_to_f32(*(const uint16_t *)p);
    case TERN_BF16: return (double)tern_bf16_to_f32(*(const uint16_t *)p);
    case TERN_F32: case TERN_C64: return (double)*(const float *)p;
    case TERN_F64: case TERN_C128: return *(const double *)p;
    default: fail_msg("array_get: dtype"); return 0;
  }
}
static inline void array_set(const tern_cpu_view *v, int64_t at, double x) {
  void *p = array_at(v, at);
  switch (v->dtype) {
    case TERN_BOOL: *(uint8_t *)p = x != 0; break;
    case TERN_U8: *(uint8_t *)p = (uint8_t)x; break;
    case TERN_I8: *(int8_t *)p = (int8_t)x; break;
    case TERN_I16: *(int16_t *)p = (int16_t)x; break;
    case TERN_U16: *(uint16_t *)p = (uint16_t)x; break;
    case TERN_I32: *(int32_t *)p = (int32_t)x; break;
    case TERN_U32: *(uint32_t *)p = (uint32_t)x; break;
    case TERN_I64: *(int64_t *)p = (int64_t)x; break;
    case TERN_U64: *(uint64_t *)p = (uint64_t)x; break;
    case TERN_F16: *(uint16_t *)p = tern_f32_to_f16((float)x); break;
    case TERN_BF16: *(uint16_t *)p = tern_f32_to_bf16((float)x); break;
    case TERN_F32: *(float *)p = (float)x; break;
    case TERN_F64: *(double *)p = x; break;
    case TERN_C64: ((float *)p)[0] = (float)x; ((float *)p)[1] = (float)(2 - x); break;
    case TERN_C128: ((double *)p)[0] = x; ((double *)p)[1] = 2 - x; break;
    default: fail_msg("array_set: dtype");
  }
}

/* xorshift64*: the tests' own numbers, the same at each run. */
static uint64_t random_state = 88172645463325252u;
static inline uint64_t random_bits(void) {
  random_state ^= random_state >> 12;
  random_state ^= random_state << 25;
  random_state ^= random_state >> 27;
  return random_state * 0x2545F4914F6CDD1Du;
}
static inline double random_between(double low, double high) { return low + (high - low) * ((double)(random_bits() >> 11) * 0x1p-53); }
static inline void array_fill_random(const tern_cpu_view *v, double low, double high) {
  for (int64_t i = 0; i < array_count(v); i++) array_set(v, i, random_between(low, high));
}
/* Whole numbers in [low, high]. */
static inline void array_fill_integers(const tern_cpu_view *v, int64_t low, int64_t high) {
  for (int64_t i = 0; i < array_count(v); i++) array_set(v, i, (double)(low + (int64_t)(random_bits() % (uint64_t)(high - low + 1))));
}
static inline void array_fill(const tern_cpu_view *v, double x) {
  for (int64_t i = 0; i < array_count(v); i++) array_set(v, i, x);
}
static inline tern_cpu_view array_scalar(tern_dtype dtype, double x) {
  tern_cpu_view v = array_new(dtype, 0, NULL);
  array_set(&v, 0, x);
  return v;
}
/* A dense copy. */
static inline tern_cpu_view array_copy(const tern_cpu_view *v) {
  tern_cpu_view copy = array_new(v->dtype, v->rank, v->dims);
  size_t element = tern_dtype_size(v->dtype);
  for (int64_t i = 0; i < array_count(v); i++) memcpy(copy.data + (size_t)i * element, array_at(v, i), element);
  return copy;
}

/* ---- instruction sets ---- */

/* The tables this CPU can run, ended by NULL. */
static inline const tern_kernel_table *const *kernel_tables(void) {
  static const tern_kernel_table *tables[5];
  int n = 0;
  tables[n++] = tern_kernels_baseline();
#if defined(__x86_64__)
  __builtin_cpu_init();
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c")) tables[n++] = tern_kernels_avx2();
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl"))
    tables[n++] = tern_kernels_avx512();
  if (tern_kernels_amx && tern_cpu_has_amx()) tables[n++] = tern_kernels_amx();
#endif
  return tables;
}
#define FOR_EACH_ISA(table) for (const tern_kernel_table *table, *const *next_##table = kernel_tables(); (table = *next_##table++) != NULL;)

/* ---- running one kernel ---- */

static int64_t kernel_failed_index;

static inline tern_status kernel_once(const tern_kernel *kernel, const tern_op *op, const tern_cpu_view *in, const tern_cpu_view *out) {
  size_t bytes = kernel->scratch ? kernel->scratch(op, in, out) : 0;
  char *scratch = NULL;
  if (bytes) { /* exactly as much as asked for, so that a sanitizer sees every byte too many */
    assert_int_equal(posix_memalign((void **)&scratch, 64, bytes), 0);
    memset(scratch, 0xA5, bytes);
  }
  tern_kernel_context context = {.scratch = scratch, .failed_index = -1};
  tern_status status = kernel->run(op, in, out, &context);
  kernel_failed_index = context.failed_index;
  free(scratch);
  return status;
}

/* Runs the kernel with one and with two threads; the outputs of both runs are compared bit by bit. Operands the kernel wants dense are copied, as the planner does. */
static inline tern_status kernel_run_status(const tern_kernel_table *table, tern_op_kind kind, const tern_attrs *attrs, int n_in, const tern_cpu_view *in, int n_out,
                                            const tern_cpu_view *out) {
  const tern_kernel *kernel = &table->rows[kind];
  assert_non_null(kernel->run);
  tern_attrs attributes = *attrs;
  tern_op op = {.kind = (uint16_t)kind, .n_operands = (uint16_t)n_in, .n_results = (uint16_t)n_out, .attrs = &attributes};
  tern_cpu_view inputs[16], again[8];
  for (int i = 0; i < n_in; i++) inputs[i] = in[i].data && kernel->dense_inputs >> i & 1 ? array_copy(&in[i]) : in[i];
  tern_pool_set_threads(1);
  tern_status status = kernel_once(kernel, &op, inputs, out);
  if (status) return status;
  tern_pool_set_threads(2);
  for (int o = 0; o < n_out; o++) again[o] = array_new(out[o].dtype, out[o].rank, out[o].dims);
  status = kernel_once(kernel, &op, inputs, again);
  if (status) return status;
  for (int o = 0; o < n_out; o++)
    if (memcmp(out[o].data, again[o].data, (size_t)array_count(&out[o]) * tern_dtype_size(out[o].dtype)))
      fail_msg("%s: result %d differs between one and two threads", tern_op_rows[kind].name, o);
  /* Result 0 over operand i, as the planner may decide. */
  for (int i = 0; i < n_in; i++) {
    if (!(kernel->reuse >> i & 1) || !in[i].data || in[i].dtype != out[0].dtype || array_count(&in[i]) != array_count(&out[0])) continue;
    tern_cpu_view kept = inputs[i];
    inputs[i] = array_copy(&kept);
    again[0].data = inputs[i].data;
    status = kernel_once(kernel, &op, inputs, again);
    if (status) return status;
    if (memcmp(out[0].data, again[0].data, (size_t)array_count(&out[0]) * tern_dtype_size(out[0].dtype)))
      fail_msg("%s: result 0 differs when it is written over operand %d", tern_op_rows[kind].name, i);
    inputs[i] = kept;
  }
  return NULL;
}

static inline void kernel_run(const tern_kernel_table *table, tern_op_kind kind, const tern_attrs *attrs, int n_in, const tern_cpu_view *in, int n_out,
                              const tern_cpu_view *out) {
  tern_status status = kernel_run_status(table, kind, attrs, n_in, in, n_out, out);
  if (status) fail_msg("%s (%s): %s", tern_op_rows[kind].name, table->isa, tern_error_message(status));
}

/* ---- comparing ---- */

/* Half a unit in the last place of the dtype, relative. */
static inline double dtype_epsilon(tern_dtype dtype) {
  return dtype == TERN_F16 ? 0x1p-11 : dtype == TERN_BF16 ? 0x1p-8 : dtype == TERN_F32 ? 0x1p-24 : 0x1p-53;
}

/* |got - expected| <= absolute + (relative + half a unit of the dtype) * |expected|; NaN and infinity must be the same. */
static inline void expect_close(const char *what, const tern_cpu_view *got, const double *expected, double relative, double absolute) {
  for (int64_t i = 0; i < array_count(got); i++) {
    double g = array_get(got, i), e = expected[i];
    if (g == e || (isnan(g) && isnan(e))) continue;
    double limit = absolute + (relative + dtype_epsilon(got->dtype)) * fabs(e);
    if (!(fabs(g - e) <= limit)) fail_msg("%s: element %lld is %.9g, expected %.9g (limit %.3g)", what, (long long)i, g, e, limit);
  }
}
static inline void expect_equal(const char *what, const tern_cpu_view *got, const double *expected) {
  for (int64_t i = 0; i < array_count(got); i++) {
    double g = array_get(got, i);
    if (g != expected[i] && !(isnan(g) && isnan(expected[i]))) fail_msg("%s: element %lld is %.17g, expected %.17g", what, (long long)i, g, expected[i]);
  }
}
/* Room for the expected values of an array, freed with the arrays. */
static inline double *expected_new(const tern_cpu_view *v) { return array_alloc((size_t)array_count(v) * sizeof(double)); }

#endif
