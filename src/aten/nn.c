/* nn: the few helpers that the families of neural-network operators share (nn.h). No rows of its own. */
#include "nn.h"

/* ---- inferring ---- */

bool tern_nn_has_sizes(const tern_tensor *tensor, int rank, const int64_t *sizes) {
  return tensor->rank == rank && (rank == 0 || memcmp(tensor->sizes, sizes, (size_t)rank * sizeof *sizes) == 0);
}

bool tern_nn_same_sizes(const tern_tensor *a, const tern_tensor *b) { return tern_nn_has_sizes(a, b->rank, b->sizes); }

bool tern_nn_expands(const tern_tensor *tensor, int rank, const int64_t *sizes) {
  if (tensor->rank > rank) return false;
  for (int d = 0; d < tensor->rank; d++)
    if (tensor->sizes[d] != 1 && tensor->sizes[d] != sizes[rank - tensor->rank + d]) return false;
  return true;
}

tern_verdict tern_nn_operands(tern_draft *draft, int n, const tern_tensor *const *tensors) {
  for (int i = 0; i < n; i++) {
    tern_verdict verdict = tern_draft_optional(draft, tensors[i]);
    if (verdict != TERN_RECORD) return verdict;
  }
  return TERN_RECORD;
}

tern_draft_output *tern_nn_result_like(tern_draft *draft, tern_dtype dtype, const tern_tensor *tensor) {
  tern_draft_output *output = tern_draft_result(draft, dtype, tensor->rank, tensor->sizes);
  output->layout = TERN_GIVEN;
  tern_layout_strides_like(tensor, output->strides);
  return output;
}

/* The dimensions from the fastest to the slowest: channels, then space from the last to the first, then the batch. */
static int channels_last_dim(int rank, int place) { return place == 0 ? 1 : place == rank - 1 ? 0 : rank - place; }

/* PyTorch's suggest_memory_format: a tensor that is contiguous both ways (one channel) counts as contiguous. */
static bool suggests_channels_last(const tern_tensor *t) {
  if (t->rank != 4 && t->rank != 5) return false;
  if (t->strides[1] == 0) return false;
  int64_t least = 0;
  for (int i = 0; i < t->rank; i++) {
    int d = channels_last_dim(t->rank, i);
    if (t->sizes[d] == 0 || t->strides[d] < least) return false;
    if (d == 0 && least == t->strides[1]) return false;
    least = t->strides[d];
    if (t->sizes[d] > 1) least *= t->sizes[d];
  }
  return true;
}

void tern_nn_keep_channels_last(tern_draft_output *output, const tern_tensor *input) {
  if (output->rank != input->rank || !suggests_channels_last(input)) return;
  int64_t next = 1;
  output->layout = TERN_GIVEN;
  for (int i = 0; i < output->rank; i++) {
    int d = channels_last_dim(output->rank, i);
    output->strides[d] = next;
    next *= output->sizes[d] > 1 ? output->sizes[d] : 1;
  }
}

bool tern_nn_expand_ints(const tern_call *call, int argument, int n, int64_t *out) {
  int given;
  const int64_t *values;
  if (!tern_arg_ints(call, argument, &given, &values) || (given != 1 && given != n)) return false;
  for (int i = 0; i < n; i++) out[i] = values[given == 1 ? 0 : i];
  return true;
}

bool tern_nn_mask_has(const tern_call *call, int i, int k) {
  int n;
  const int64_t *values;
  return tern_arg_ints(call, i, &n, &values) && k < n && values[k] != 0;
}

/* ---- lowering ---- */

tern_value tern_nn_number(tern_program *p, tern_dtype dtype, double value) {
  return tern_dtype_is_float(dtype) ? tern_constant_float(p, dtype, 0, NULL, value) : tern_constant_int(p, dtype, 0, NULL, (int64_t)value);
}

tern_value tern_nn_zeros(tern_program *p, tern_dtype dtype, int rank, const int64_t *dims) { return tern_constant_int(p, dtype, rank, dims, 0); }

tern_value tern_nn_along(tern_program *p, tern_value v, int rank, int dim) {
  int64_t dims[TERN_MAX_RANK];
  if (v == TERN_NO_VALUE) return v;
  for (int d = 0; d < rank; d++) dims[d] = d == dim ? tern_nn_count(p, v) : 1;
  return tern_reshape(p, v, rank, dims);
}

tern_value tern_nn_flat(tern_program *p, tern_value v) {
  if (v == TERN_NO_VALUE) return v;
  int64_t count = tern_nn_count(p, v);
  return tern_reshape(p, v, 1, &count);
}

tern_value tern_nn_at_least_1d(tern_program *p, tern_value v) { return v != TERN_NO_VALUE && tern_value_rank(p, v) == 0 ? tern_nn_flat(p, v) : v; }

tern_value tern_nn_unsqueeze(tern_program *p, tern_value v, int dim) {
  int64_t dims[TERN_MAX_RANK];
  if (v == TERN_NO_VALUE) return v;
  int rank = tern_value_rank(p, v);
  for (int d = 0, from = 0; d <= rank; d++) dims[d] = d == dim ? 1 : tern_value_dims(p, v)[from++];
  return tern_reshape(p, v, rank + 1, dims);
}

tern_value tern_nn_sum_but(tern_program *p, tern_value v, int kept) {
  int dims[TERN_MAX_RANK], n = 0;
  if (v == TERN_NO_VALUE) return v;
  for (int d = 0; d < tern_value_rank(p, v); d++)
    if (d != kept) dims[n++] = d;
  return tern_reduce(p, TERN_SUM, v, n, dims);
}

int64_t tern_nn_count(const tern_program *p, tern_value v) {
  int64_t count = 1;
  if (v == TERN_NO_VALUE) return 0;
  for (int d = 0; d < tern_value_rank(p, v); d++) count *= tern_value_dims(p, v)[d];
  return count;
}

tern_value tern_nn_result(const tern_lowering *node, int i, tern_value v) {
  if (v == TERN_NO_VALUE) return v;
  const tern_output *output = &node->outputs[i];
  return tern_reshape(node->program, tern_convert(node->program, v, output->computed), output->view.rank, output->view.sizes);
}
