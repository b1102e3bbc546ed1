/* nn: what the families of neural-network operators (matmul, conv, norm, pooling, loss, embedding, index, attention, random, optimizer ...) share: a few
 * checks and layouts while inferring, a few idioms while lowering. Private to them. */
#ifndef TERN_ATEN_NN_H
#define TERN_ATEN_NN_H
#include "families.h"
#include "helpers.h"
#include "layout.h"

/* ---- inferring ---- */
static inline bool tern_nn_is_float(const tern_tensor *tensor) { return tern_dtype_is_float((tern_dtype)tensor->dtype); }
static inline tern_dtype tern_nn_wide(const tern_tensor *tensor) { return tern_compute_dtype((tern_dtype)tensor->dtype); }
static inline bool tern_nn_is_index(const tern_tensor *tensor) { return tensor->dtype == TERN_I64 || tensor->dtype == TERN_I32; }
bool tern_nn_has_sizes(const tern_tensor *tensor, int rank, const int64_t *sizes);
bool tern_nn_same_sizes(const tern_tensor *a, const tern_tensor *b);
/* Whether the tensor broadcasts to `sizes` as they are (expand). */
bool tern_nn_expands(const tern_tensor *tensor, int rank, const int64_t *sizes);
/* Adds operands in order; NULL adds an absent one. TERN_RECORD, or the first other verdict. */
tern_verdict tern_nn_operands(tern_draft *draft, int n, const tern_tensor *const *tensors);
/* An output with the sizes of a tensor and the strides of torch.empty_like. */
tern_draft_output *tern_nn_result_like(tern_draft *draft, tern_dtype dtype, const tern_tensor *tensor);
/* Gives an output of rank 4 or 5 channels-last strides where `input` has them, as PyTorch's CPU kernels do. */
void tern_nn_keep_channels_last(tern_draft_output *output, const tern_tensor *input);
/* A list argument that PyTorch expands: a single value stands for all `n`; an empty list gives false. */
bool tern_nn_expand_ints(const tern_call *call, int argument, int n, int64_t *out);
/* Argument `i` is a bool[] and has true at place k. */
bool tern_nn_mask_has(const tern_call *call, int i, int k);

/* ---- lowering ---- */
/* Convert that lets TERN_NO_VALUE, an absent operand, pass. */
static inline tern_value tern_nn_as(tern_program *p, tern_value v, tern_dtype dtype) { return v == TERN_NO_VALUE ? v : tern_convert(p, v, dtype); }
static inline tern_value tern_nn_widen(tern_program *p, tern_value v) {
  return v == TERN_NO_VALUE ? v : tern_convert(p, v, tern_compute_dtype(tern_value_dtype(p, v)));
}
tern_value tern_nn_number(tern_program *p, tern_dtype dtype, double value); /* rank 0 */
tern_value tern_nn_zeros(tern_program *p, tern_dtype dtype, int rank, const int64_t *dims);
/* [n] as [1, ..., n, ..., 1] of that rank, n at dimension `dim`. */
tern_value tern_nn_along(tern_program *p, tern_value v, int rank, int dim);
tern_value tern_nn_flat(tern_program *p, tern_value v);
/* Rank 0 as [1]; else itself: torch counts a scalar as one-dimensional in gather, sort and the like. */
tern_value tern_nn_at_least_1d(tern_program *p, tern_value v);
/* Inserts a dimension of size 1. */
tern_value tern_nn_unsqueeze(tern_program *p, tern_value v, int dim);
/* The sum over every dimension but `kept`. */
tern_value tern_nn_sum_but(tern_program *p, tern_value v, int kept);
int64_t tern_nn_count(const tern_program *p, tern_value v);
/* Result i of the node: `v` in its dtype and shape (the same number of elements). */
tern_value tern_nn_result(const tern_lowering *node, int i, tern_value v);
/* A condition that is true where x is the value. */
static inline tern_value tern_nn_equals(tern_program *p, tern_value x, tern_value y) { return tern_compare(p, TERN_EQ, x, y); }

#endif
