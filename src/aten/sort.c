/* sort: sort and topk. NaN is the largest, and the order is stable whether asked for or not. */
#include "nn.h"

static bool is_ordered(const tern_tensor *x) { return x->dtype < TERN_C64; }

/* values and indices, with x's strides as PyTorch gives them. attrs: dim, descending */
static tern_verdict infer_any_sort(const tern_call *call, tern_draft *draft, int first) {
  const tern_tensor *x = tern_arg_tensor(call, 0);
  int dim;
  if (!x || !tern_wrap_dim(tern_arg_int(call, first, -1), x->rank, &dim)) return TERN_REJECT;
  if (!is_ordered(x)) return TERN_FALL_BACK;
  tern_draft_attr(draft, dim);
  tern_draft_attr(draft, tern_arg_bool(call, first + 1, false));
  tern_nn_result_like(draft, (tern_dtype)x->dtype, x);
  tern_nn_result_like(draft, TERN_I64, x);
  return tern_draft_tensor(draft, x);
}

static tern_verdict infer_sort(const tern_call *call, tern_draft *draft) { return infer_any_sort(call, draft, 1); }
static tern_verdict infer_sort_stable(const tern_call *call, tern_draft *draft) { return infer_any_sort(call, draft, 2); }

static tern_status lower_sort(const tern_lowering *node, tern_value *results) {
  tern_program *p = node->program;
  tern_value index, sorted = tern_sort(p, tern_nn_at_least_1d(p, node->operands[0]), (int)node->attrs[0], node->attrs[1], &index);
  results[0] = tern_nn_result(node, 0, sorted);
  results[1] = tern_nn_result(node, 1, index);
  return NULL;
}

/* (self, k, dim, largest, sorted). attrs: dim, largest */
static tern_verdict infer_topk(const tern_call *call, tern_draft *draft) {
  const tern_tensor *x = tern_arg_tensor(call, 0);
  int dim;
  int64_t k = tern_arg_int(call, 1, -1);
  if (!x || !tern_wrap_dim(tern_arg_int(call, 2, -1), x->rank, &dim)) return TERN_REJECT;
  if (k < 0 || k > (x->rank ? x->sizes[dim] : 1)) return TERN_REJECT;
  if (!is_ordered(x) || x->dtype == TERN_BOOL || (x->rank == 0 && k == 0)) return TERN_FALL_BACK;
  tern_draft_attr(draft, dim);
  tern_draft_attr(draft, tern_arg_bool(call, 3, true));
  for (int i = 0; i < 2; i++) {
    tern_draft_output *output = tern_draft_result(draft, i ? TERN_I64 : (tern_dtype)x->dtype, x->rank, x->sizes);
    if (x->rank) output->sizes[dim] = k;
  }
  return tern_draft_tensor(draft, x);
}

static tern_status lower_topk(const tern_lowering *node, tern_value *results) {
  tern_program *p = node->program;
  int64_t start[TERN_MAX_RANK] = {0}, stride[TERN_MAX_RANK];
  tern_value found[2] = {tern_nn_at_least_1d(p, node->operands[0])};
  const int64_t k = node->outputs[0].view.rank ? node->outputs[0].view.sizes[node->attrs[0]] : 1;
  found[0] = tern_sort_first(p, found[0], (int)node->attrs[0], node->attrs[1], k ? k : 1, &found[1]);
  for (int d = 0; d < TERN_MAX_RANK; d++) stride[d] = 1;
  const tern_geometry *view = &node->outputs[0].view;
  for (int i = 0; i < 2; i++) results[i] = tern_nn_result(node, i, view->rank ? tern_slice(p, found[i], start, view->sizes, stride) : found[i]);
  return NULL;
}

const tern_aten_row tern_aten_sort[] = {
    {.functional = "sort", .out = "sort.values", .infer = infer_sort, .lower = lower_sort},
    {.functional = "sort.stable", .out = "sort.values_stable", .infer = infer_sort_stable, .lower = lower_sort},
    {.functional = "topk", .out = "topk.values", .infer = infer_topk, .lower = lower_topk},
};
TERN_ATEN_FAMILY_END(sort)
