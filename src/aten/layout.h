/* layout: the strides of new results, and what PyTorch refuses to write to. Private to dispatch and the rows that place results themselves. */
#ifndef TERN_ATEN_LAYOUT_H
#define TERN_ATEN_LAYOUT_H
#include "helpers.h"

/* The strides that a new tensor for this output gets, by its layout. */
void tern_layout_strides(const tern_draft *draft, const tern_draft_output *output, int64_t *strides);
/* The strides of torch.empty_like(memory_format=torch.preserve_format). */
void tern_layout_strides_like(const tern_tensor *tensor, int64_t *strides);
/* Whether some element appears more than once because a dimension was expanded. */
bool tern_layout_repeats(int rank, const int64_t *sizes, const int64_t *strides);
/* An expanded tensor that is to be written in place. Most operators refuse it; PyTorch's masked_fill_, index_fill_ and index_put_ warn and go on, as their CPU kernels do. */
static inline bool tern_layout_writes_repeats(const tern_call *call, const tern_tensor *x) {
  return call->form == TERN_INPLACE && TERN_UNLIKELY(tern_layout_repeats(x->rank, x->sizes, x->strides));
}
/* The two refusals of at::assert_no_internal_overlap and at::assert_no_partial_overlap, in PyTorch's words; NULL where all is well. */
tern_status tern_layout_check_target(const tern_output *target);
tern_status tern_layout_check_operand(const tern_output *target, const tern_operand *operand);

#endif
