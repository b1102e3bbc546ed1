/* nonzero: what the operators share whose results' sizes depend on data: nonzero.c and unique.c. */
#ifndef TERN_ATEN_NONZERO_H
#define TERN_ATEN_NONZERO_H
#include "nn.h"

/* A temporary of a custom row: a contiguous tensor over a buffer that tern_scratch_drop releases. */
typedef struct tern_scratch {
  tern_tensor tensor;
  int64_t sizes[TERN_MAX_TENSOR_RANK], strides[TERN_MAX_TENSOR_RANK];
} tern_scratch;
tern_status tern_scratch_new(tern_scratch *scratch, int device, tern_dtype dtype, int rank, const int64_t *sizes);
static inline void tern_scratch_drop(tern_scratch *scratch) {
  if (scratch->tensor.buffer) tern_buffer_release(scratch->tensor.buffer);
  scratch->tensor.buffer = NULL;
}
/* The first `count` elements of a temporary of rank 1; its sizes change. */
static inline void tern_scratch_shorten(tern_scratch *scratch, int64_t count) { scratch->sizes[0] = scratch->tensor.count = count; }

/* Cuts here and reads the first number of an i64 tensor. */
tern_status tern_call_read(const tern_call *call, const tern_tensor *tensor, int n, int64_t *out);

/* Records the draft, whose only output goes where the form of the call says: a new result, or the out= argument, resized. */
tern_status tern_record_sized(const tern_call *call, tern_draft *draft, const tern_aten_row *row);

/* While lowering: in an array of `n` elements, the places of the true ones of the flat `condition` come first, in order (n elements, the rest undefined); *count: how
 * many are true, i64 of rank 0. */
tern_value tern_true_places(tern_program *p, tern_value condition, tern_value *count);

/* The row of this family with that internal name. */
const tern_aten_row *tern_internal_row(const tern_aten_row *rows, int count, const char *name);

#endif
