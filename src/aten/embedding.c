/* embedding: rows of a table by their numbers, and the gradient that adds them up. embedding_bag and sparse gradients are PyTorch's. */
#include "nn.h"

/* (weight, indices, padding_idx, scale_grad_by_freq, sparse): the last three concern the gradient only. */
static tern_verdict infer_embedding(const tern_call *call, tern_draft *draft) {
  const tern_tensor *weight = tern_arg_tensor(call, 0), *index = tern_arg_tensor(call, 1);
  int64_t sizes[TERN_MAX_TENSOR_RANK + 1];
  if (!weight || !index || weight->rank != 2 || !tern_nn_is_index(index)) return TERN_REJECT;
  if (index->rank + 1 > TERN_MAX_TENSOR_RANK || (weight->sizes[0] == 0 && index->count > 0)) return TERN_FALL_BACK;
  for (int d = 0; d < index->rank; d++) sizes[d] = index->sizes[d];
  sizes[index->rank] = weight->sizes[1];
  tern_draft_result(draft, (tern_dtype)weight->dtype, index->rank + 1, sizes);
  return tern_nn_operands(draft, 2, (const tern_tensor *[]){weight, index});
}

static tern_status lower_embedding(const tern_lowering *node, tern_value *results) {
  tern_program *p = node->program;
  tern_value weight = node->operands[0], index = node->operands[1];
  tern_check_index(p, index, 0, tern_value_dims(p, weight)[0] - 1);
  results[0] = tern_take(p, weight, index, 0);
  return NULL;
}

/* (grad_output, indices, num_weights, padding_idx, scale_grad_by_freq). attrs: padding_idx or -1 */
static tern_verdict infer_embedding_backward(const tern_call *call, tern_draft *draft) {
  const tern_tensor *gy = tern_arg_tensor(call, 0), *index = tern_arg_tensor(call, 1);
  int64_t rows = tern_arg_int(call, 2, -1), padding = tern_arg_int(call, 3, -1), sizes[2];
  if (!gy || !index || !tern_nn_is_index(index) || rows < 0 || gy->rank < 1 || gy->count != index->count * gy->sizes[gy->rank - 1]) return TERN_REJECT;
  if (tern_arg_bool(call, 4, false) || !tern_nn_is_float(gy) || (rows == 0 && index->count > 0)) return TERN_FALL_BACK;
  sizes[0] = rows;
  sizes[1] = gy->sizes[gy->rank - 1];
  tern_draft_attr(draft, padding < 0 ? -1 : padding);
  tern_draft_result(draft, (tern_dtype)gy->dtype, 2, sizes);
  return tern_nn_operands(draft, 2, (const tern_tensor *[]){gy, index});
}

static tern_status lower_embedding_backward(const tern_lowering *node, tern_value *results) {
  tern_program *p = node->program;
  const int64_t *sizes = node->outputs[0].view.sizes;
  tern_value gy = tern_nn_widen(p, node->operands[0]), index = tern_nn_flat(p, node->operands[1]);
  int64_t count = tern_nn_count(p, index);
  tern_check_index(p, index, 0, sizes[0] - 1);
  gy = tern_reshape(p, gy, 2, (int64_t[]){count, sizes[1]});
  if (node->attrs[0] >= 0) {
    tern_value is_padding = tern_nn_equals(p, index, tern_constant_int(p, tern_value_dtype(p, index), 0, NULL, node->attrs[0]));
    gy = tern_select(p, tern_reshape(p, is_padding, 2, (int64_t[]){count, 1}), tern_nn_number(p, tern_value_dtype(p, gy), 0), gy);
  }
  results[0] = tern_nn_result(node, 0, tern_put(p, tern_nn_zeros(p, tern_value_dtype(p, gy), 2, sizes), index, gy, 0, TERN_COMBINE_ADD));
  return NULL;
}

const tern_aten_row tern_aten_embedding[] = {
    {.functional = "embedding", .infer = infer_embedding, .lower = lower_embedding},
    {.functional = "embedding_dense_backward", .infer = infer_embedding_backward, .lower = lower_embedding_backward},
};
TERN_ATEN_FAMILY_END(embedding)
