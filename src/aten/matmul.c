/* matmul: products of matrices and vectors: mm, bmm, mv, dot, and their forms that add (addmm, baddbmm, addmv, addbmm).
 *
 * Every one is a dot that contracts the last dimension of its left side with the first one (behind the batch) of its right side. The results are contiguous, as
 * PyTorch's are. linear, matmul, einsum and tensordot come down to these in PyTorch itself. */
#include "nn.h"

/* What the CPU kernels multiply; complex numbers and bool are theirs. */
static bool is_multiplied(const tern_tensor *t) { return tern_dtype_is_float((tern_dtype)t->dtype) || tern_dtype_is_integer((tern_dtype)t->dtype); }

/* Checks two sides of the given ranks with `batch` leading batch dimensions and gives the sizes of their product. */
static tern_verdict check_sides(const tern_tensor *a, const tern_tensor *b, int rank_a, int rank_b, int batch, int *rank, int64_t *sizes) {
  if (!a || !b || a->rank != rank_a || b->rank != rank_b) return TERN_REJECT;
  for (int d = 0; d < batch; d++)
    if (a->sizes[d] != b->sizes[d]) return TERN_REJECT;
  if (a->sizes[rank_a - 1] != b->sizes[batch]) return TERN_REJECT;
  if (a->dtype != b->dtype || !is_multiplied(a)) return TERN_FALL_BACK;
  *rank = 0;
  for (int d = 0; d < rank_a - 1; d++) sizes[(*rank)++] = a->sizes[d];
  for (int d = batch + 1; d < rank_b; d++) sizes[(*rank)++] = b->sizes[d];
  return TERN_RECORD;
}

static tern_verdict infer_product(const tern_call *call, tern_draft *draft, int rank_a, int rank_b, int batch) {
  const tern_tensor *sides[2] = {tern_arg_tensor(call, 0), tern_arg_tensor(call, 1)};
  int rank;
  int64_t sizes[TERN_MAX_TENSOR_RANK];
  tern_verdict verdict = check_sides(sides[0], sides[1], rank_a, rank_b, batch, &rank, sizes);
  if (verdict != TERN_RECORD) return verdict;
  tern_draft_result(draft, (tern_dtype)sides[0]->dtype, rank, sizes);
  return tern_nn_operands(draft, 2, sides);
}

static tern_verdict infer_mm(const tern_call *call, tern_draft *draft) { return infer_product(call, draft, 2, 2, 0); }
static tern_verdict infer_bmm(const tern_call *call, tern_draft *draft) { return infer_product(call, draft, 3, 3, 1); }
static tern_verdict infer_mv(const tern_call *call, tern_draft *draft) { return infer_product(call, draft, 2, 1, 0); }
static tern_verdict infer_dot(const tern_call *call, tern_draft *draft) { return infer_product(call, draft, 1, 1, 0); }

/* beta or alpha: a number in the dtype of the sum. PyTorch refuses fractions where the tensors are integers. */
static bool draft_factor(tern_draft *draft, const tern_call *call, int i, tern_dtype dtype) {
  if (i >= call->n_arguments || (call->arguments[i].tag == TERN_ARG_DOUBLE && !tern_dtype_is_float(dtype))) return false;
  return tern_draft_number(draft, &call->arguments[i], dtype, true);
}

/* (self, a, b, *, beta, alpha): beta * self + alpha * product; self is expanded. `summed`: the product's leading dimension is summed away. */
static tern_verdict infer_sum(const tern_call *call, tern_draft *draft, int rank_a, int rank_b, int batch, bool summed) {
  const tern_tensor *operands[3] = {tern_arg_tensor(call, 0), tern_arg_tensor(call, 1), tern_arg_tensor(call, 2)};
  int rank;
  int64_t sizes[TERN_MAX_TENSOR_RANK];
  if (!operands[0]) return TERN_REJECT;
  tern_verdict verdict = check_sides(operands[1], operands[2], rank_a, rank_b, batch, &rank, sizes);
  if (verdict != TERN_RECORD) return verdict;
  if (!tern_nn_expands(operands[0], rank - summed, sizes + summed)) return TERN_REJECT;
  if (operands[0]->dtype != operands[1]->dtype) return TERN_FALL_BACK;
  tern_dtype wide = tern_nn_wide(operands[0]);
  if (!draft_factor(draft, call, 3, wide) || !draft_factor(draft, call, 4, wide)) return TERN_FALL_BACK;
  tern_draft_result(draft, (tern_dtype)operands[0]->dtype, rank - summed, sizes + summed);
  return tern_nn_operands(draft, 3, operands);
}

static tern_verdict infer_addmm(const tern_call *call, tern_draft *draft) { return infer_sum(call, draft, 2, 2, 0, false); }
static tern_verdict infer_baddbmm(const tern_call *call, tern_draft *draft) { return infer_sum(call, draft, 3, 3, 1, false); }
static tern_verdict infer_addmv(const tern_call *call, tern_draft *draft) { return infer_sum(call, draft, 2, 1, 0, false); }
static tern_verdict infer_addbmm(const tern_call *call, tern_draft *draft) { return infer_sum(call, draft, 3, 3, 1, true); }

/* ---- lowering ---- */

/* `summed`: the batch dimension is contracted as well. */
static tern_value product(tern_program *p, tern_value a, tern_value b, int batch, bool summed) {
  static const int leading[1] = {0};
  int contract_a[2] = {0}, contract_b[2] = {0}, n = 0;
  if (summed) contract_a[n] = contract_b[n] = 0, n++;
  contract_a[n] = tern_value_rank(p, a) - 1;
  contract_b[n] = batch;
  n++;
  return summed ? tern_dot(p, a, b, 0, NULL, NULL, n, contract_a, contract_b) : tern_dot(p, a, b, batch, leading, leading, n, contract_a, contract_b);
}

static int batch_of(const tern_lowering *node, int first) {
  return node->operands[first] != TERN_NO_VALUE && tern_value_rank(node->program, node->operands[first]) == 3;
}

static tern_status lower_product(const tern_lowering *node, tern_value *results) {
  results[0] = product(node->program, node->operands[0], node->operands[1], batch_of(node, 0), false);
  return NULL;
}

static tern_value scaled(const tern_lowering *node, int scalar, tern_value v) {
  tern_program *p = node->program;
  if (node->scalar_kinds[scalar] == TERN_SCALAR_ONE) return v;
  return tern_multiply(p, v, tern_convert(p, node->scalars[scalar], tern_value_dtype(p, v)));
}

/* beta == 0 drops self altogether, NaN included. */
static tern_status lower_any_sum(const tern_lowering *node, tern_value *results, bool summed) {
  tern_program *p = node->program;
  tern_dtype dtype = node->outputs[0].computed, wide = tern_compute_dtype(dtype);
  tern_value sum = scaled(node, 1, tern_nn_as(p, product(p, node->operands[1], node->operands[2], batch_of(node, 1), summed), wide));
  if (node->scalar_kinds[0] != TERN_SCALAR_ZERO) sum = tern_add(p, scaled(node, 0, tern_nn_as(p, node->operands[0], wide)), sum);
  results[0] = tern_nn_as(p, sum, dtype);
  return NULL;
}

static tern_status lower_sum(const tern_lowering *node, tern_value *results) { return lower_any_sum(node, results, false); }
static tern_status lower_addbmm(const tern_lowering *node, tern_value *results) { return lower_any_sum(node, results, true); }

const tern_aten_row tern_aten_matmul[] = {
    {.functional = "addmm", .inplace = "addmm_", .out = "addmm.out", .infer = infer_addmm, .lower = lower_sum},
    {.functional = "mm", .out = "mm.out", .infer = infer_mm, .lower = lower_product},
    {.functional = "bmm", .out = "bmm.out", .infer = infer_bmm, .lower = lower_product},
    {.functional = "baddbmm", .inplace = "baddbmm_", .out = "baddbmm.out", .infer = infer_baddbmm, .lower = lower_sum},
    {.functional = "addbmm", .inplace = "addbmm_", .out = "addbmm.out", .infer = infer_addbmm, .lower = lower_addbmm},
    {.functional = "mv", .out = "mv.out", .infer = infer_mv, .lower = lower_product},
    {.functional = "addmv", .inplace = "addmv_", .out = "addmv.out", .infer = infer_addmv, .lower = lower_sum},
    {.functional = "dot", .out = "dot.out", .infer = infer_dot, .lower = lower_product},
    {.functional = "vdot", .out = "vdot.out", .infer = infer_dot, .lower = lower_product},
};
TERN_ATEN_FAMILY_END(matmul)
