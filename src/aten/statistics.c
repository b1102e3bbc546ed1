/* statistics: mean, variance, standard deviation and vector norms. The counts they divide by are shapes, and so part of the program. */
#include <math.h>
#include "reduce.h"

static tern_value number(tern_program *p, tern_dtype dtype, double value) { return tern_constant_float(p, dtype, 0, NULL, value); }

static double double_of_bits(int64_t bits) {
  double value;
  memcpy(&value, &bits, sizeof value);
  return value;
}
static void draft_double_attr(tern_draft *draft, double value) {
  int64_t bits;
  memcpy(&bits, &value, sizeof bits);
  tern_draft_attr(draft, bits);
}

static tern_value operand_to_compute(const tern_lowering *node) {
  tern_dtype work = (tern_dtype)node->attrs[1];
  return tern_convert(node->program, tern_convert(node->program, node->operands[0], work), tern_compute_dtype(work));
}

/* ---- mean: attrs[3] = elements per result ---- */

static tern_verdict infer_mean(const tern_call *call, tern_draft *draft, int dim_at, int keep_at, int dtype_at) {
  const tern_tensor *x = tern_arg_tensor(call, 0);
  uint32_t dims;
  tern_dtype dtype;
  if (!x) return TERN_REJECT;
  tern_verdict verdict = tern_reduced_dims(call, dim_at, x, TERN_EMPTY_IS_ALL, &dims);
  if (verdict != TERN_RECORD) return verdict;
  if (!tern_reduction_dtype(call, dtype_at, &dtype)) return TERN_FALL_BACK;
  if (dtype == TERN_DTYPE_COUNT) dtype = (tern_dtype)x->dtype;
  if (dtype < TERN_F16) return TERN_REJECT;
  verdict = tern_draft_reduction(draft, x, dims, keep_at >= 0 && tern_arg_bool(call, keep_at, false), dtype, dtype);
  tern_draft_attr(draft, tern_reduced_count(x, dims));
  return verdict;
}
static tern_verdict infer_mean_all(const tern_call *call, tern_draft *draft) { return infer_mean(call, draft, -1, -1, 1); }
static tern_verdict infer_mean_dims(const tern_call *call, tern_draft *draft) { return infer_mean(call, draft, 1, 2, 3); }

static tern_status lower_mean(const tern_lowering *node, tern_value *results) {
  /* dtype=f16 rounds only the result. */
  tern_value x = tern_convert(node->program, node->operands[0], tern_compute_dtype((tern_dtype)node->attrs[1])), sum = tern_lower_reduce(node, TERN_SUM, x);
  tern_value count = number(node->program, tern_value_dtype(node->program, x), (double)node->attrs[3]);
  results[0] = tern_lower_reduced(node, 0, tern_divide(node->program, sum, count));
  return NULL;
}

/* ---- var, std: attrs[3] = elements per result, attrs[4] = the divisor as the bits of a double ---- */

static tern_verdict infer_variance(const tern_call *call, tern_draft *draft, bool with_mean) {
  const tern_tensor *x = tern_arg_tensor(call, 0);
  uint32_t dims;
  if (!x) return TERN_REJECT;
  tern_verdict verdict = tern_reduced_dims(call, 1, x, TERN_EMPTY_IS_ALL, &dims);
  if (verdict != TERN_RECORD) return verdict;
  tern_dtype dtype = (tern_dtype)x->dtype;
  if (!tern_dtype_is_float(dtype)) return TERN_FALL_BACK;
  int64_t count = tern_reduced_count(x, dims);
  double divisor = (double)count - tern_arg_double(call, 2, 1);
  if (!(divisor > 0)) return TERN_FALL_BACK; /* PyTorch warns */
  bool keepdim = tern_arg_bool(call, 3, false);
  verdict = tern_draft_reduction(draft, x, dims, keepdim, dtype, dtype);
  if (verdict != TERN_RECORD) return verdict;
  tern_draft_attr(draft, count);
  draft_double_attr(draft, divisor);
  if (with_mean) tern_draft_reduced_result(draft, x, dims, keepdim, dtype);
  return TERN_RECORD;
}
static tern_verdict infer_var(const tern_call *call, tern_draft *draft) { return infer_variance(call, draft, false); }
static tern_verdict infer_var_mean(const tern_call *call, tern_draft *draft) { return infer_variance(call, draft, true); }

static tern_status lower_variance(const tern_lowering *node, tern_value *results, bool root) {
  tern_program *p = node->program;
  tern_value x = operand_to_compute(node);
  tern_dtype dtype = tern_value_dtype(p, x);
  tern_value mean = tern_divide(p, tern_lower_reduce_kept(node, TERN_SUM, x), number(p, dtype, (double)node->attrs[3]));
  tern_value centred = tern_subtract(p, x, mean);
  tern_value squares = tern_lower_reduce(node, TERN_SUM, tern_multiply(p, centred, centred));
  tern_value variance = tern_divide(p, squares, number(p, dtype, double_of_bits(node->attrs[4])));
  results[0] = tern_lower_reduced(node, 0, root ? tern_sqrt(p, variance) : variance);
  if (node->n_outputs > 1) results[1] = tern_lower_reduced(node, 1, mean);
  return NULL;
}
static tern_status lower_var(const tern_lowering *node, tern_value *results) { return lower_variance(node, results, false); }
static tern_status lower_std(const tern_lowering *node, tern_value *results) { return lower_variance(node, results, true); }

/* ---- norms: attrs[3] = which kind, and for the general one the scalar p ---- */

enum { NORM_TWO, NORM_ONE, NORM_LARGEST, NORM_SMALLEST, NORM_COUNT, NORM_GENERAL };

static int norm_kind(double p) {
  if (p == 2) return NORM_TWO;
  if (p == 1) return NORM_ONE;
  if (p == INFINITY) return NORM_LARGEST;
  if (p == -INFINITY) return NORM_SMALLEST;
  return p == 0 ? NORM_COUNT : NORM_GENERAL;
}

/* linalg_vector_norm(x, ord=2, dim=None, keepdim=False, *, dtype=None), and norm's variants, which have the same places. */
static tern_verdict infer_norm_over(const tern_call *call, tern_draft *draft, int dim_at, int dtype_at) {
  const tern_tensor *x = tern_arg_tensor(call, 0);
  uint32_t dims;
  tern_dtype dtype = TERN_DTYPE_COUNT;
  if (!x) return TERN_REJECT;
  tern_verdict verdict = tern_reduced_dims(call, dim_at, x, TERN_EMPTY_IS_ALL, &dims);
  if (verdict != TERN_RECORD) return verdict;
  if (!tern_dtype_is_float((tern_dtype)x->dtype)) return TERN_FALL_BACK;
  if (dtype_at >= 0 && !tern_arg_is_none(call, dtype_at) && !tern_reduction_dtype(call, dtype_at, &dtype)) return TERN_FALL_BACK;
  if (dtype == TERN_DTYPE_COUNT) dtype = (tern_dtype)x->dtype;
  double p = tern_arg_double(call, 1, 2);
  int kind = norm_kind(p);
  bool needs_elements = kind == NORM_LARGEST || kind == NORM_SMALLEST || p < 0;
  if (!tern_dtype_is_float(dtype) || tern_promote_types((tern_dtype)x->dtype, dtype) != dtype || (needs_elements && tern_reduced_count(x, dims) == 0))
    return TERN_FALL_BACK;
  verdict = tern_draft_reduction(draft, x, dims, dim_at >= 0 && tern_arg_bool(call, 3, false), dtype, dtype);
  tern_draft_attr(draft, kind);
  if (kind == NORM_GENERAL) {
    tern_draft_double(draft, tern_compute_dtype(dtype), p, false);
    tern_draft_double(draft, tern_compute_dtype(dtype), 1 / p, false);
  }
  return verdict;
}
static tern_verdict infer_norm(const tern_call *call, tern_draft *draft) { return infer_norm_over(call, draft, 2, 4); }
static tern_verdict infer_norm_no_dtype(const tern_call *call, tern_draft *draft) { return infer_norm_over(call, draft, 2, -1); }
static tern_verdict infer_norm_all(const tern_call *call, tern_draft *draft) { return infer_norm_over(call, draft, -1, -1); }

static tern_status lower_norm(const tern_lowering *node, tern_value *results) {
  tern_program *p = node->program;
  tern_value x = operand_to_compute(node), v;
  tern_dtype dtype = tern_value_dtype(p, x);
  switch (node->attrs[3]) {
    case NORM_TWO:
      v = tern_sqrt(p, tern_lower_reduce(node, TERN_SUM, tern_multiply(p, x, x)));
      break;
    case NORM_ONE:
      v = tern_lower_reduce(node, TERN_SUM, tern_abs(p, x));
      break;
    case NORM_LARGEST:
      v = tern_lower_reduce(node, TERN_MAX, tern_abs(p, x));
      break;
    case NORM_SMALLEST:
      v = tern_lower_reduce(node, TERN_MIN, tern_abs(p, x));
      break;
    case NORM_COUNT:
      v = tern_lower_reduce(node, TERN_SUM, tern_convert(p, tern_compare(p, TERN_NE, x, number(p, dtype, 0)), dtype));
      break;
    default:
      v = tern_power(p, tern_lower_reduce(node, TERN_SUM, tern_power(p, tern_abs(p, x), tern_convert(p, node->scalars[0], dtype))),
                     tern_convert(p, node->scalars[1], dtype));
      break;
  }
  results[0] = tern_lower_reduced(node, 0, v);
  return NULL;
}

const tern_aten_row tern_aten_statistics[] = {
    {"mean", NULL, "mean.dtype_out", NULL, infer_mean_all, lower_mean, NULL},
    {"mean.dim", NULL, "mean.out", NULL, infer_mean_dims, lower_mean, NULL},
    {"var.correction", NULL, "var.correction_out", NULL, infer_var, lower_var, NULL},
    {"std.correction", NULL, "std.correction_out", NULL, infer_var, lower_std, NULL},
    {"var_mean.correction", NULL, NULL, NULL, infer_var_mean, lower_var, NULL},
    {"std_mean.correction", NULL, NULL, NULL, infer_var_mean, lower_std, NULL},
    {"linalg_vector_norm", NULL, "linalg_vector_norm.out", NULL, infer_norm, lower_norm, NULL},
    {"norm.Scalar", NULL, NULL, NULL, infer_norm_all, lower_norm, NULL},
    {"norm.ScalarOpt_dim", NULL, "norm.out", NULL, infer_norm_no_dtype, lower_norm, NULL},
    {"norm.ScalarOpt_dim_dtype", NULL, "norm.dtype_out", NULL, infer_norm, lower_norm, NULL},
};
TERN_ATEN_FAMILY_END(statistics)
