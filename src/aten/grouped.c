/* grouped: weight normalisation, and matrix products of groups of rows (mixtures of experts). */
#include "nn.h"

/* ---- _weight_norm_interface(v, g, dim) -> w = v * g / |v|, |v|: the norm over all dimensions but the first or the last. attrs: dim ---- */

static bool is_normed(const tern_tensor *v, const tern_tensor *g, int dim) {
  if (v->rank < 1 || g->rank != v->rank || (dim != 0 && dim != v->rank - 1) || !tern_nn_is_float(v) || g->dtype != v->dtype || v->count == 0) return false;
  for (int d = 0; d < v->rank; d++)
    if (g->sizes[d] != (d == dim ? v->sizes[d] : 1)) return false;
  return true;
}

static tern_verdict infer_weight_norm(const tern_call *call, tern_draft *draft) {
  const tern_tensor *v = tern_arg_tensor(call, 0), *g = tern_arg_tensor(call, 1);
  int dim;
  if (!v || !g || !tern_wrap_dim(tern_arg_int(call, 2, 0), v->rank, &dim)) return TERN_REJECT;
  if (!is_normed(v, g, dim)) return TERN_FALL_BACK;
  tern_draft_attr(draft, dim);
  tern_nn_result_like(draft, (tern_dtype)v->dtype, v);
  tern_draft_result(draft, v->dtype == TERN_BF16 ? TERN_F32 : (tern_dtype)g->dtype, g->rank, g->sizes);
  return tern_nn_operands(draft, 2, (const tern_tensor *[]){v, g});
}

/* The sum over all dimensions but `dim`, which stay with size 1. */
static tern_value sum_but(tern_program *p, tern_value x, int dim) { return tern_nn_along(p, tern_nn_sum_but(p, x, dim), tern_value_rank(p, x), dim); }

static tern_status lower_weight_norm(const tern_lowering *node, tern_value *results) {
  tern_program *p = node->program;
  tern_value v = tern_nn_widen(p, node->operands[0]), g = tern_nn_widen(p, node->operands[1]);
  tern_value norm = tern_sqrt(p, sum_but(p, tern_multiply(p, v, v), (int)node->attrs[0]));
  results[0] = tern_nn_result(node, 0, tern_multiply(p, v, tern_divide(p, g, norm)));
  results[1] = tern_nn_result(node, 1, norm);
  return NULL;
}

/* (grad_w, saved_v, saved_g, saved_norms, dim) -> the gradients of v and g */
static tern_verdict infer_weight_norm_backward(const tern_call *call, tern_draft *draft) {
  const tern_tensor *gw = tern_arg_tensor(call, 0), *v = tern_arg_tensor(call, 1), *g = tern_arg_tensor(call, 2), *norm = tern_arg_tensor(call, 3);
  int dim;
  if (!gw || !v || !g || !norm || !tern_wrap_dim(tern_arg_int(call, 4, 0), v->rank, &dim)) return TERN_REJECT;
  if (!is_normed(v, g, dim) || !tern_nn_same_sizes(gw, v) || gw->dtype != v->dtype || !tern_nn_same_sizes(norm, g)) return TERN_FALL_BACK;
  tern_draft_attr(draft, dim);
  tern_nn_result_like(draft, (tern_dtype)v->dtype, v);
  tern_draft_result(draft, (tern_dtype)g->dtype, g->rank, g->sizes);
  return tern_nn_operands(draft, 4, (const tern_tensor *[]){gw, v, g, norm});
}

static tern_status lower_weight_norm_backward(const tern_lowering *node, tern_value *results) {
  tern_program *p = node->program;
  tern_value in[4];
  for (int i = 0; i < 4; i++) in[i] = tern_nn_widen(p, node->operands[i]);
  tern_value along = tern_divide(p, sum_but(p, tern_multiply(p, in[0], in[1]), (int)node->attrs[0]), in[3]);
  tern_value across = tern_subtract(p, in[0], tern_multiply(p, in[1], tern_divide(p, along, in[3])));
  results[0] = tern_nn_result(node, 0, tern_multiply(p, tern_divide(p, in[2], in[3]), across));
  results[1] = tern_nn_result(node, 1, along);
  return NULL;
}

/* ---- _grouped_mm(self, mat2, offs, bias, out_dtype): offs[i] is where group i ends along the dimension that is cut into groups:
 *   [M, K] x [G, K, N]: the rows of the first;  [G, M, K] x [K, N]: the columns of the second;  [M, K] x [K, N] -> [G, M, N]: what is summed over.
 * Each group is a product with the others masked out, so that shapes do not depend on data. What lies behind the last group is 0. ---- */

static tern_verdict infer_grouped(const tern_call *call, tern_draft *draft) {
  const tern_tensor *a = tern_arg_tensor(call, 0), *b = tern_arg_tensor(call, 1), *offs = tern_arg_tensor(call, 2);
  int64_t sizes[3];
  if (!a || !b || !offs || a->rank < 2 || a->rank > 3 || b->rank < 2 || b->rank > 3 || offs->rank != 1) return TERN_FALL_BACK;
  int64_t groups = offs->sizes[0], m = a->sizes[a->rank - 2], n = b->sizes[b->rank - 1];
  bool both = a->rank == 2 && b->rank == 2;
  if (a->rank + b->rank == 6 || a->sizes[a->rank - 1] != b->sizes[b->rank - 2] || (!both && (a->rank == 3 ? a : b)->sizes[0] != groups)) return TERN_FALL_BACK;
  if (!tern_nn_is_float(a) || a->dtype != b->dtype || offs->dtype != TERN_I32 || !tern_arg_is_none(call, 3) || a->count == 0 || b->count == 0) return TERN_FALL_BACK;
  if (!tern_arg_is_none(call, 4)) return TERN_FALL_BACK;
  sizes[0] = groups;
  memcpy(sizes + both, (int64_t[]){m, n}, 2 * sizeof *sizes);
  tern_draft_result(draft, (tern_dtype)a->dtype, both ? 3 : 2, sizes);
  return tern_nn_operands(draft, 3, (const tern_tensor *[]){a, b, offs});
}

/* Whether element i of `n` is in group g, [G, n]. */
static tern_value membership(tern_program *p, tern_value offs, int64_t n) {
  int64_t groups = tern_nn_count(p, offs), none = 0;
  tern_value ends = tern_reshape(p, offs, 2, (int64_t[]){groups, 1}), at = tern_iota(p, TERN_I32, 2, (int64_t[]){1, n}, 1);
  tern_value begins = tern_pad(p, offs, tern_constant_int(p, TERN_I32, 0, NULL, 0), (int64_t[]){1}, (int64_t[]){-1}, &none);
  begins = tern_reshape(p, begins, 2, (int64_t[]){groups, 1});
  return tern_and(p, tern_compare(p, TERN_GE, at, begins), tern_compare(p, TERN_LT, at, ends));
}

static tern_status lower_grouped(const tern_lowering *node, tern_value *results) {
  static const int first = 0, second = 1, last = 2;
  tern_program *p = node->program;
  tern_value a = node->operands[0], b = node->operands[1], offs = node->operands[2];
  tern_dtype dtype = tern_value_dtype(p, a);
  int a_rank = tern_value_rank(p, a), b_rank = tern_value_rank(p, b);
  int64_t groups = tern_nn_count(p, offs), n = a_rank == 2 && b_rank == 3 ? tern_value_dims(p, a)[0] : tern_value_dims(p, b)[b_rank == 2 && a_rank == 3 ? 1 : 0];
  tern_value is_in = membership(p, offs, n), zero = tern_nn_number(p, dtype, 0);
  if (a_rank == 2 && b_rank == 2) { /* [G, M, K] masked x [K, N] */
    const int64_t *dims = tern_value_dims(p, a);
    int64_t wide[3] = {groups, dims[0], dims[1]};
    tern_value mask = tern_broadcast_to(p, tern_nn_unsqueeze(p, is_in, 1), 3, wide);
    tern_value masked = tern_select(p, mask, tern_broadcast_to(p, tern_nn_unsqueeze(p, a, 0), 3, wide), zero);
    results[0] = tern_nn_result(node, 0, tern_dot(p, masked, b, 0, NULL, NULL, 1, &last, &first));
    return NULL;
  }
  /* Every row with every group, [G, rows, N] or [G, M, columns], of which each keeps its own. */
  bool cuts_rows = a_rank == 2;
  tern_value all;
  if (cuts_rows)
    all = tern_transpose(p, tern_dot(p, a, b, 0, NULL, NULL, 1, &second, &second), (const int[]){1, 0, 2});
  else
    all = tern_dot(p, a, b, 0, NULL, NULL, 1, &last, &first);
  tern_value mask = tern_broadcast_to(p, tern_nn_unsqueeze(p, is_in, cuts_rows ? 2 : 1), 3, tern_value_dims(p, all));
  results[0] = tern_nn_result(node, 0, tern_reduce(p, TERN_SUM, tern_select(p, mask, all, zero), 1, &first));
  return NULL;
}

const tern_aten_row tern_aten_grouped[] = {
    {.functional = "_weight_norm_interface", .infer = infer_weight_norm, .lower = lower_weight_norm},
    {.functional = "_weight_norm_interface_backward", .infer = infer_weight_norm_backward, .lower = lower_weight_norm_backward},
    {.functional = "_grouped_mm", .infer = infer_grouped, .lower = lower_grouped},
};
TERN_ATEN_FAMILY_END(grouped)
