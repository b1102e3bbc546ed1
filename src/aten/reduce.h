/* reduce: reading the `dim`, `keepdim` and `dtype` arguments of reductions. Private to the families reduce and statistics.
 *
 * A recorded reduction has attrs[0] = whether dimensions are kept, attrs[1] = the dtype of the work (converted to before), attrs[2] = a bit set of the reduced
 * dimensions; rows add more after these. */
#ifndef TERN_ATEN_REDUCE_H
#define TERN_ATEN_REDUCE_H
#include "families.h"
#include "helpers.h"

typedef enum tern_empty_dims { TERN_EMPTY_IS_ALL, TERN_EMPTY_IS_NONE } tern_empty_dims; /* what dim=[] (not None) means */

/* The dimensions as a bit set: argument `at` (None, an integer or a list; -1: all). TERN_REJECT where one is out of range or repeated. */
tern_verdict tern_reduced_dims(const tern_call *call, int at, const tern_tensor *x, tern_empty_dims empty, uint32_t *dims);
/* Drafts operand, attributes and one result (of `dtype`, which is also what the lowering computes). */
tern_verdict tern_draft_reduction(tern_draft *draft, const tern_tensor *x, uint32_t dims, bool keepdim, tern_dtype work, tern_dtype dtype);
tern_draft_output *tern_draft_reduced_result(tern_draft *draft, const tern_tensor *x, uint32_t dims, bool keepdim, tern_dtype dtype);
/* How many elements go into one result. */
int64_t tern_reduced_count(const tern_tensor *x, uint32_t dims);
/* The dtype argument at `at` (PyTorch's number), or TERN_DTYPE_COUNT where it is None; out= gives its own dtype where None. False: a dtype tern has not. */
bool tern_reduction_dtype(const tern_call *call, int at, tern_dtype *dtype);

/* ---- lowering ---- */
/* Reduces over the node's dimensions; they vanish. */
tern_value tern_lower_reduce(const tern_lowering *node, tern_reduction how, tern_value x);
/* Like reduce, but the dimensions stay with size 1, so that the value broadcasts against x. */
tern_value tern_lower_reduce_kept(const tern_lowering *node, tern_reduction how, tern_value x);
/* Converts to the result's dtype and puts kept dimensions back. */
tern_value tern_lower_reduced(const tern_lowering *node, int output, tern_value v);

#endif
