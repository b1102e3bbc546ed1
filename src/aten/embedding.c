/* embedding: rows of a table by their numbers, the gradient that adds them up, and sums and means of bags of rows. Sparse gradients, maxima of bags and padding in bags are
 * PyTorch's. */
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

/* ---- bags: numbers [N] cut at offsets [B], which begin with 0 and ascend ---- */

enum { BAG_SUM, BAG_MEAN };

static bool bags_are_served(const tern_call *call, int mode, int padding) {
  const int64_t how = tern_arg_int(call, mode, -1);
  return (how == BAG_SUM || how == BAG_MEAN) && tern_arg_int(call, padding, -1) < 0;
}

/* (weight, indices, offsets, scale_grad_by_freq, mode, sparse, per_sample_weights, include_last_offset, padding_idx) -> bags, the bag of each index, bags' sizes, and a
 * place for maxima that sums and means do not use. attrs: mode */
static tern_verdict infer_bag(const tern_call *call, tern_draft *draft) {
  const tern_tensor *weight = tern_arg_tensor(call, 0), *index = tern_arg_tensor(call, 1), *offsets = tern_arg_tensor(call, 2), *scale = tern_arg_tensor(call, 6);
  if (!weight || !index || !offsets || weight->rank != 2 || index->rank != 1 || offsets->rank != 1 || !tern_nn_is_index(index) || !tern_nn_is_index(offsets)) return TERN_REJECT;
  if (!bags_are_served(call, 4, 8) || tern_arg_bool(call, 7, false) || !tern_nn_is_float(weight) || weight->count == 0 || index->count == 0 || offsets->count == 0) return TERN_FALL_BACK;
  if (scale && (scale->dtype != weight->dtype || !tern_nn_same_sizes(scale, index) || tern_arg_int(call, 4, 0) != BAG_SUM)) return TERN_REJECT;
  tern_draft_attr(draft, tern_arg_int(call, 4, 0));
  tern_draft_result(draft, (tern_dtype)weight->dtype, 2, (int64_t[]){offsets->count, weight->sizes[1]});
  tern_draft_result(draft, (tern_dtype)index->dtype, 1, index->sizes);
  tern_draft_result(draft, (tern_dtype)offsets->dtype, 1, offsets->sizes);
  tern_draft_result(draft, (tern_dtype)offsets->dtype, 1, offsets->sizes);
  return tern_nn_operands(draft, 4, (const tern_tensor *[]){weight, index, offsets, scale});
}

static tern_value at_least_one(tern_program *p, tern_value sizes, tern_dtype dtype, int64_t bags) {
  return tern_reshape(p, tern_convert(p, tern_maximum(p, sizes, tern_constant_int(p, tern_value_dtype(p, sizes), 0, NULL, 1)), dtype), 2, (int64_t[]){bags, 1});
}

static tern_status lower_bag(const tern_lowering *node, tern_value *results) {
  tern_program *p = node->program;
  tern_value weight = node->operands[0], index = node->operands[1], offsets = tern_convert(p, node->operands[2], TERN_I64), scale = node->operands[3];
  const int64_t count = tern_nn_count(p, index), bags = tern_nn_count(p, offsets), width = tern_value_dims(p, weight)[1], zero = 0, one = 1;
  tern_check_index(p, index, 0, tern_value_dims(p, weight)[0] - 1);
  tern_check_index(p, tern_slice(p, offsets, &zero, &one, &one), 0, 0);
  tern_check_index(p, offsets, 0, count);
  /* An index belongs to as many bags as begin at it or before it, less one. */
  tern_value begins = tern_put(p, tern_nn_zeros(p, TERN_I64, 1, (int64_t[]){count + 1}), offsets, tern_constant_int(p, TERN_I64, 1, &bags, 1), 0, TERN_COMBINE_ADD);
  tern_value begun = tern_slice(p, tern_scan(p, TERN_SUM, begins, 0), &zero, &count, &one), bag = tern_subtract(p, begun, tern_constant_int(p, TERN_I64, 0, NULL, 1));
  tern_value end = tern_constant_int(p, TERN_I64, 1, &one, count);
  if (bags > 1) end = tern_concatenate(p, 2, (tern_value[]){tern_slice(p, offsets, &one, &bags, &one), end}, 0);
  tern_value sizes = tern_subtract(p, end, offsets);
  tern_check_index(p, sizes, 0, count);
  tern_value rows = tern_nn_widen(p, tern_take(p, weight, index, 0));
  const tern_dtype wide = tern_value_dtype(p, rows);
  if (scale != TERN_NO_VALUE) rows = tern_multiply(p, rows, tern_reshape(p, tern_convert(p, scale, wide), 2, (int64_t[]){count, 1}));
  tern_value sums = tern_put(p, tern_nn_zeros(p, wide, 2, (int64_t[]){bags, width}), bag, rows, 0, TERN_COMBINE_ADD);
  if (node->attrs[0] == BAG_MEAN) sums = tern_divide(p, sums, at_least_one(p, sizes, wide, bags));
  results[0] = tern_nn_result(node, 0, sums);
  results[1] = tern_nn_result(node, 1, bag);
  results[2] = results[3] = tern_nn_result(node, 2, sizes);
  return NULL;
}

/* (grad, indices, [offsets,] offset2bag, bag_size, maximum_indices, num_weights, scale_grad_by_freq, mode, [sparse,] per_sample_weights, padding_idx). attrs: mode */
static tern_verdict infer_bag_gradient(const tern_call *call, tern_draft *draft, int with_offsets) {
  const tern_tensor *gy = tern_arg_tensor(call, 0), *index = tern_arg_tensor(call, 1), *bag = tern_arg_tensor(call, 2 + with_offsets), *sizes = tern_arg_tensor(call, 3 + with_offsets);
  const int rest = 5 + with_offsets;
  const tern_tensor *scale = tern_arg_tensor(call, rest + 3 + with_offsets);
  const int64_t rows = tern_arg_int(call, rest, -1);
  if (!gy || !index || !bag || !sizes || gy->rank != 2 || !tern_nn_is_index(index) || rows < 0) return TERN_REJECT;
  if (!bags_are_served(call, rest + 2, rest + 4 + with_offsets) || tern_arg_bool(call, rest + 1, false) || (with_offsets && tern_arg_bool(call, rest + 3, false)) ||
      !tern_nn_is_float(gy) || gy->count == 0 || rows == 0 || index->count == 0 || bag->count != index->count || sizes->count != gy->sizes[0])
    return TERN_FALL_BACK;
  tern_draft_attr(draft, tern_arg_int(call, rest + 2, 0));
  tern_draft_result(draft, (tern_dtype)gy->dtype, 2, (int64_t[]){rows, gy->sizes[1]});
  return tern_nn_operands(draft, 5, (const tern_tensor *[]){gy, index, bag, sizes, scale});
}
static tern_verdict infer_bag_backward(const tern_call *call, tern_draft *draft) { return infer_bag_gradient(call, draft, 1); }
static tern_verdict infer_bag_dense_backward(const tern_call *call, tern_draft *draft) { return infer_bag_gradient(call, draft, 0); }

static tern_status lower_bag_backward(const tern_lowering *node, tern_value *results) {
  tern_program *p = node->program;
  tern_value gy = tern_nn_widen(p, node->operands[0]), index = node->operands[1], bag = node->operands[2], sizes = node->operands[3], scale = node->operands[4];
  const tern_dtype wide = tern_value_dtype(p, gy);
  const int64_t *out = node->outputs[0].view.sizes, bags = tern_value_dims(p, gy)[0], count = tern_nn_count(p, index);
  tern_check_index(p, index, 0, out[0] - 1);
  tern_check_index(p, bag, 0, bags - 1);
  if (node->attrs[0] == BAG_MEAN) gy = tern_divide(p, gy, at_least_one(p, sizes, wide, bags));
  tern_value rows = tern_take(p, gy, bag, 0);
  if (scale != TERN_NO_VALUE) rows = tern_multiply(p, rows, tern_reshape(p, tern_convert(p, scale, wide), 2, (int64_t[]){count, 1}));
  results[0] = tern_nn_result(node, 0, tern_put(p, tern_nn_zeros(p, wide, 2, out), index, rows, 0, TERN_COMBINE_ADD));
  return NULL;
}

const tern_aten_row tern_aten_embedding[] = {
    {.functional = "embedding", .infer = infer_embedding, .lower = lower_embedding},
    {.functional = "embedding_dense_backward", .infer = infer_embedding_backward, .lower = lower_embedding_backward},
    {.functional = "_embedding_bag", .infer = infer_bag, .lower = lower_bag},
    {.functional = "_embedding_bag_forward_only", .infer = infer_bag, .lower = lower_bag},
    {.functional = "_embedding_bag_backward", .infer = infer_bag_backward, .lower = lower_bag_backward},
    {.functional = "_embedding_bag_dense_backward", .infer = infer_bag_dense_backward, .lower = lower_bag_backward},
};
TERN_ATEN_FAMILY_END(embedding)
