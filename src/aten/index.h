/* index: what index.c and index_tensors.c, one family in two files, share. */
#ifndef TERN_ATEN_INDEX_H
#define TERN_ATEN_INDEX_H
#include "nn.h"

/* Indices in [-range, range) as they are meant, in [0, range); the check fails the launch for others. i64. */
tern_value tern_index_wrapped(tern_program *p, tern_value index, int64_t range);

/* The dtype that values of `dtype` are combined in: bool is counted, in i32, and what is not 0 then is true. */
tern_dtype tern_index_combined_in(tern_dtype dtype, tern_combine how);

/* x[indices] and x[indices] = values, where indices are tensors: index.Tensor(self, indices) and index_put(self, indices, values, accumulate). */
tern_verdict tern_index_infer(const tern_call *call, tern_draft *draft);
tern_status tern_index_lower(const tern_lowering *node, tern_value *results);
tern_verdict tern_index_put_infer(const tern_call *call, tern_draft *draft);
tern_status tern_index_put_lower(const tern_lowering *node, tern_value *results);
/* The same with masks among the indices, whose results' sizes depend on data (nonzero.c). */
tern_verdict tern_index_masks(const tern_call *call, tern_status *status);

#endif
