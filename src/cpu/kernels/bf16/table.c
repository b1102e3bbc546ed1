/* The kernel table of AMX, and of AVX512-BF16: AVX-512's, but for the operations that have a kernel of their own here. */
#include <pthread.h>
#include "dot_bf16.h"

size_t tern_dot_describe_avx512(const tern_op *op, const tern_cpu_view *in, const tern_cpu_view *out, tern_gemm_product *product, int64_t *entries);

static tern_kernel_table table;
static tern_kernel dot; /* AVX-512's */
static pthread_once_t once = PTHREAD_ONCE_INIT;

static size_t dot_scratch(const tern_op *op, const tern_cpu_view *in, const tern_cpu_view *out) {
  tern_gemm_product g;
  (void)tern_dot_describe_avx512(op, in, out, &g, NULL);
  return TERN_ISA_NAME(tern_dot_bf16_serves)(&g) ? TERN_ISA_NAME(tern_dot_bf16_scratch)(&g) : dot.scratch(op, in, out);
}

static tern_status dot_run(const tern_op *op, const tern_cpu_view *in, const tern_cpu_view *out, tern_kernel_context *context) {
  tern_gemm_product g;
  if (out->dtype == TERN_BF16) {
    (void)tern_dot_describe_avx512(op, in, out, &g, NULL); /* without its tables of offsets: a product that needs them is not served here */
    if (TERN_ISA_NAME(tern_dot_bf16_serves)(&g)) return tern_batch_count(&g) ? TERN_ISA_NAME(tern_dot_bf16_run)(&g, context->scratch) : NULL;
  }
  return dot.run(op, in, out, context);
}

static void fill(void) {
  table = *tern_kernels_avx512();
  table.isa = TERN_ISA_TEXT(TERN_ISA);
  dot = table.rows[TERN_OP_DOT];
  table.rows[TERN_OP_DOT] = (tern_kernel){.run = dot_run, .scratch = dot_scratch};
}

const tern_kernel_table *TERN_ISA_NAME(tern_kernels)(void) {
  pthread_once(&once, fill);
  return &table;
}
