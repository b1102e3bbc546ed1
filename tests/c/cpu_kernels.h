/* For tests of single kernels: views made by hand, every instruction set this CPU has, and calls of one row of their tables. */
#ifndef TERN_TEST_CPU_KERNELS_H
#define TERN_TEST_CPU_KERNELS_H
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include "../../src/cpu/cpu.h"

/* Every table this CPU can run. */
static inline int test_tables(const tern_kernel_table *tables[4]) {
  int n = 0;
  tables[n++] = tern_kernels_baseline();
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) tables[n++] = tern_kernels_avx2();
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw")) tables[n++] = tern_kernels_avx512();
  if (tern_kernels_amx && tern_cpu_has_amx()) tables[n++] = tern_kernels_amx();
#endif
  return n;
}

static inline uint64_t test_random(uint64_t *state) {
  *state = *state * 6364136223846793005ull + 1442695040888963407ull;
  return *state >> 33;
}

static inline double test_load(tern_dtype dtype, const char *p) {
  switch (dtype) {
    case TERN_F32: return *(const float *)(const void *)p;
    case TERN_F64: return *(const double *)(const void *)p;
    case TERN_F16: return tern_f16_to_f32(*(const uint16_t *)(const void *)p);
    case TERN_BF16: return tern_bf16_to_f32(*(const uint16_t *)(const void *)p);
    case TERN_I32: return *(const int32_t *)(const void *)p;
    case TERN_I64: return (double)*(const int64_t *)(const void *)p;
    case TERN_U8: case TERN_BOOL: return *(const uint8_t *)(const void *)p;
    case TERN_I8: return *(const int8_t *)(const void *)p;
    case TERN_I16: return *(const int16_t *)(const void *)p;
    default: return 0;
  }
}
static inline void test_store(tern_dtype dtype, char *p, double x) {
  switch (dtype) {
    case TERN_F32: *(float *)(void *)p = (float)x; break;
    case TERN_F64: *(double *)(void *)p = x; break;
    case TERN_F16: *(uint16_t *)(void *)p = tern_f32_to_f16((float)x); break;
    case TERN_BF16: *(uint16_t *)(void *)p = tern_f32_to_bf16((float)x); break;
    case TERN_I32: *(int32_t *)(void *)p = (int32_t)x; break;
    case TERN_I64: *(int64_t *)(void *)p = (int64_t)x; break;
    case TERN_U8: *(uint8_t *)(void *)p = (uint8_t)(int64_t)x; break;
    case TERN_BOOL: *(uint8_t *)(void *)p = x != 0; break;
    case TERN_I8: *(int8_t *)(void *)p = (int8_t)(int64_t)x; break;
    case TERN_I16: *(int16_t *)(void *)p = (int16_t)x; break;
    default: break;
  }
}

typedef struct test_array {
  tern_cpu_view view;
  char *memory;
  size_t bytes;
} test_array;

static inline int64_t test_count(const tern_cpu_view *v) {
  int64_t count = 1;
  for (int i = 0; i < v->rank; i++) count *= v->dims[i];
  return count;
}
static inline char *test_at(const tern_cpu_view *v, const int64_t *index) {
  int64_t offset = 0;
  for (int i = 0; i < v->rank; i++) offset += index[i] * v->strides[i];
  return v->data + offset * (int64_t)tern_dtype_size(v->dtype);
}
/* Steps a row-major index; false after the last. */
static inline bool test_next(const tern_cpu_view *v, int64_t *index) {
  for (int i = v->rank - 1; i >= 0; i--) {
    if (++index[i] < v->dims[i]) return true;
    index[i] = 0;
  }
  return false;
}

/* An array whose memory order is the dimensions listed in `order` (outermost first; NULL: row-major), the innermost `step` elements apart; a
 * negative step reverses it. The memory ends with the last element, so that a sanitizer sees every read past it. */
static inline test_array array_new(tern_dtype dtype, int rank, const int64_t *dims, const int *order, int64_t step) {
  test_array a = {.view = {.dtype = dtype, .rank = rank}};
  int64_t stride = step < 0 ? -step : step, last = 0;
  for (int i = rank - 1; i >= 0; i--) {
    int d = order ? order[i] : i;
    a.view.dims[d] = dims[d];
    a.view.strides[d] = stride;
    if (dims[d] > 0) last += stride * (dims[d] - 1);
    stride *= dims[d] ? dims[d] : 1;
  }
  int64_t count = test_count(&a.view);
  a.bytes = (size_t)(count ? last + 1 : 0) * tern_dtype_size(dtype);
  /* Ends at the end of an aligned allocation; begins wherever that puts it. */
  a.memory = malloc(a.bytes ? a.bytes : 1);
  memset(a.memory, 0x7B, a.bytes);
  a.view.data = a.memory;
  if (step < 0 && rank) {
    int d = order ? order[rank - 1] : rank - 1;
    if (dims[d] > 0) a.view.data += (dims[d] - 1) * a.view.strides[d] * (int64_t)tern_dtype_size(dtype);
    a.view.strides[d] = -a.view.strides[d];
  }
  return a;
}
static inline void array_free(test_array *a) { free(a->memory); }

/* Small whole numbers: every sum of products is exact, so that results can be compared bit by bit whatever the order. */
static inline void array_fill_exact(test_array *a, uint64_t *state) {
  int64_t index[TERN_MAX_RANK] = {0};
  if (test_count(&a->view) == 0) return;
  do test_store(a->view.dtype, test_at(&a->view, index), (double)(test_random(state) % 7) - (a->view.dtype == TERN_U8 || a->view.dtype == TERN_BOOL ? 0 : 3));
  while (test_next(&a->view, index));
}
static inline void array_fill_random(test_array *a, uint64_t *state) {
  int64_t index[TERN_MAX_RANK] = {0};
  if (test_count(&a->view) == 0) return;
  do test_store(a->view.dtype, test_at(&a->view, index), (double)test_random(state) / 1073741824.0 - 1.0);
  while (test_next(&a->view, index));
}
static inline void array_copy(test_array *to, const test_array *from) {
  int64_t index[TERN_MAX_RANK] = {0};
  if (test_count(&to->view) == 0) return;
  do memcpy(test_at(&to->view, index), test_at(&from->view, index), tern_dtype_size(to->view.dtype));
  while (test_next(&to->view, index));
}

/* Runs a row with fresh scratch of exactly the size it asks for. */
static inline void test_run(const tern_kernel *kernel, const tern_op *op, const tern_cpu_view *in, const tern_cpu_view *out) {
  size_t bytes = kernel->scratch ? kernel->scratch(op, in, out) : 0;
  char *raw = malloc(bytes + 64), *scratch = raw + (64 - (uintptr_t)raw % 64) % 64;
  tern_kernel_context context = {.scratch = scratch};
  tern_status status = kernel->run(op, in, out, &context);
  if (status) print_error("%s\n", tern_error_message(status));
  assert_null(status);
  free(raw);
}

#endif
