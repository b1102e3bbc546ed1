/* dot: what dot.c hands its products to, apart from gemm. */
#ifndef TERN_DOT_H
#define TERN_DOT_H
#include "gemm.h"

/* The product that an operation asks for. Where dimensions do not merge, tables of offsets are put at `entries` (NULL: they are only measured, and must not be
 * followed). Returns the bytes that they take. */
size_t TERN_ISA_NAME(tern_dot_describe)(const tern_op *op, const tern_cpu_view *in, const tern_cpu_view *out, tern_gemm_product *product, int64_t *entries);
/* Products with m == 1 or n == 1 (a vector times a matrix), floating point: as fast as the matrix can be read. */
void TERN_ISA_NAME(tern_dot_narrow)(const tern_gemm_product *product);
/* Every other element type: plain loops in k's order; integers wrap, bool is or of ands. */
tern_status TERN_ISA_NAME(tern_dot_plain)(const tern_gemm_product *product);

static inline int64_t tern_side_at(const tern_gemm_side *s, int64_t outer, int64_t k) {
  return (s->outer_offsets ? s->outer_offsets[outer] : outer * s->outer_stride) + (s->k_offsets ? s->k_offsets[k] : k * s->k_stride);
}
static inline int64_t tern_batch_offset(const tern_gemm_product *g, const int64_t *strides, int64_t batch) {
  int64_t offset = 0;
  for (int i = g->n_batch_dims - 1; i >= 0; i--) {
    offset += batch % g->batch_dims[i] * strides[i];
    batch /= g->batch_dims[i];
  }
  return offset;
}
static inline int64_t tern_batch_count(const tern_gemm_product *g) {
  int64_t count = 1;
  for (int i = 0; i < g->n_batch_dims; i++) count *= g->batch_dims[i];
  return count;
}

#endif
