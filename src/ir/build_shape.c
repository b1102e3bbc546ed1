/* build_shape: the builder's views, moves, reductions, contractions and indexing. Operations that change nothing give their operand back. */
#include "build.h"

/* ---- views ---- */
tern_value tern_broadcast_in_dim(tern_program *p, tern_value x, int rank, const int64_t *dims, const int *result_dims) {
  if (!tern_build_check(p, TERN_OP_BROADCAST, x)) return TERN_NO_VALUE;
  tern_attrs attrs = {.dims = {.n = p->values[x].rank}};
  if (!tern_build_dims(p, TERN_OP_BROADCAST, attrs.dims.n, result_dims, attrs.dims.dims)) return TERN_NO_VALUE;
  return tern_build(p, TERN_OP_BROADCAST, 1, &x, &attrs, (tern_proposal){TERN_F32, rank, dims});
}

tern_value tern_broadcast_to(tern_program *p, tern_value x, int rank, const int64_t *dims) {
  if (!tern_build_check(p, TERN_OP_BROADCAST, x)) return TERN_NO_VALUE;
  const tern_value_info *from = &p->values[x];
  if (tern_dims_equal(from->rank, from->dims, rank, dims)) return x;
  int result_dims[TERN_MAX_RANK];
  for (int i = 0; i < from->rank; i++) result_dims[i] = rank - from->rank + i; /* the rule refuses negative ones */
  return tern_broadcast_in_dim(p, x, rank, dims, result_dims);
}

tern_value tern_reshape(tern_program *p, tern_value x, int rank, const int64_t *dims) {
  if (!tern_build_check(p, TERN_OP_RESHAPE, x)) return TERN_NO_VALUE;
  if (tern_dims_equal(p->values[x].rank, p->values[x].dims, rank, dims)) return x;
  return tern_build(p, TERN_OP_RESHAPE, 1, &x, NULL, (tern_proposal){TERN_F32, rank, dims});
}

tern_value tern_transpose(tern_program *p, tern_value x, const int *permutation) {
  if (!tern_build_check(p, TERN_OP_TRANSPOSE, x)) return TERN_NO_VALUE;
  tern_attrs attrs = {.dims = {.n = p->values[x].rank}};
  bool changes = false;
  for (int i = 0; i < attrs.dims.n; i++) {
    attrs.dims.dims[i] = permutation[i];
    changes |= permutation[i] != i;
  }
  return changes ? tern_build(p, TERN_OP_TRANSPOSE, 1, &x, &attrs, TERN_PROPOSE_NOTHING) : x;
}

tern_value tern_slice(tern_program *p, tern_value x, const int64_t *start, const int64_t *limit, const int64_t *stride) {
  if (!tern_build_check(p, TERN_OP_SLICE, x)) return TERN_NO_VALUE;
  tern_attrs attrs = {0};
  bool changes = false;
  for (int i = 0; i < p->values[x].rank; i++) {
    attrs.slice.start[i] = start[i];
    attrs.slice.limit[i] = limit[i];
    attrs.slice.stride[i] = stride[i];
    changes |= start[i] != 0 || limit[i] != p->values[x].dims[i] || stride[i] != 1;
  }
  return changes ? tern_build(p, TERN_OP_SLICE, 1, &x, &attrs, TERN_PROPOSE_NOTHING) : x;
}

tern_value tern_reverse(tern_program *p, tern_value x, int n, const int *dims) {
  tern_attrs attrs = {.dims = {.n = n}};
  if (!tern_build_check(p, TERN_OP_REVERSE, x) || !tern_build_dims(p, TERN_OP_REVERSE, n, dims, attrs.dims.dims)) return TERN_NO_VALUE;
  return n == 0 ? x : tern_build(p, TERN_OP_REVERSE, 1, &x, &attrs, TERN_PROPOSE_NOTHING);
}

/* ---- moves ---- */
tern_value tern_update_slice(tern_program *p, tern_value base, tern_value update, const int64_t *start, const int64_t *stride) {
  if (!tern_build_check(p, TERN_OP_UPDATE_SLICE, base)) return TERN_NO_VALUE;
  tern_attrs attrs = {0};
  for (int i = 0; i < p->values[base].rank; i++) {
    attrs.slice.start[i] = start[i];
    attrs.slice.stride[i] = stride[i];
  }
  return tern_build(p, TERN_OP_UPDATE_SLICE, 2, (tern_value[]){base, update}, &attrs, TERN_PROPOSE_NOTHING);
}

tern_value tern_pad(tern_program *p, tern_value x, tern_value value, const int64_t *low, const int64_t *high, const int64_t *interior) {
  if (!tern_build_check(p, TERN_OP_PAD, x)) return TERN_NO_VALUE;
  tern_attrs attrs = {0};
  for (int i = 0; i < p->values[x].rank; i++) {
    attrs.pad.low[i] = low[i];
    attrs.pad.high[i] = high[i];
    attrs.pad.interior[i] = interior[i];
  }
  return tern_build(p, TERN_OP_PAD, 2, (tern_value[]){x, value}, &attrs, TERN_PROPOSE_NOTHING);
}

tern_value tern_concatenate(tern_program *p, int n, const tern_value *values, int dim) {
  if (n == 1 && tern_build_check(p, TERN_OP_CONCATENATE, values[0]) && dim >= 0 && dim < p->values[values[0]].rank) return values[0];
  if (n > UINT16_MAX) return tern_build_fail(p, tern_error_new(TERN_INVALID_ARGUMENT, "concatenate: %d operands; at most %d are possible", n, UINT16_MAX));
  return tern_build(p, TERN_OP_CONCATENATE, n, values, &(tern_attrs){.axis = {dim}}, TERN_PROPOSE_NOTHING);
}

/* ---- reductions ---- */
tern_value tern_reduce(tern_program *p, tern_reduction how, tern_value x, int n, const int *dims) {
  tern_attrs attrs = {.reduce = {.how = how, .n = n}};
  if (!tern_build_check(p, TERN_OP_REDUCE, x) || !tern_build_dims(p, TERN_OP_REDUCE, n, dims, attrs.reduce.dims)) return TERN_NO_VALUE;
  if (n == 0) return x;
  for (int i = 1; i < n; i++) /* ascending, whatever order the caller has */
    for (int j = i; j > 0 && attrs.reduce.dims[j - 1] > attrs.reduce.dims[j]; j--) {
      int32_t larger = attrs.reduce.dims[j - 1];
      attrs.reduce.dims[j - 1] = attrs.reduce.dims[j];
      attrs.reduce.dims[j] = larger;
    }
  return tern_build(p, TERN_OP_REDUCE, 1, &x, &attrs, TERN_PROPOSE_NOTHING);
}

static tern_attrs along(tern_reduction how, int dim) { return (tern_attrs){.reduce = {.how = how, .n = 1, .dims = {dim}}}; }

/* Gives the second result through `index`, which may be NULL. */
static tern_value with_index(tern_value first, tern_value *index) {
  if (index) *index = first == TERN_NO_VALUE ? TERN_NO_VALUE : first + 1;
  return first;
}

tern_value tern_arg_reduce(tern_program *p, tern_reduction how, tern_value x, int dim, tern_value *index) {
  tern_attrs attrs = along(how, dim);
  return with_index(tern_build(p, TERN_OP_ARG_REDUCE, 1, &x, &attrs, TERN_PROPOSE_NOTHING), index);
}

tern_value tern_scan(tern_program *p, tern_reduction how, tern_value x, int dim) {
  tern_attrs attrs = along(how, dim);
  return tern_build(p, TERN_OP_SCAN, 1, &x, &attrs, TERN_PROPOSE_NOTHING);
}

tern_value tern_sort(tern_program *p, tern_value x, int dim, bool descending, tern_value *index) {
  return with_index(tern_build(p, TERN_OP_SORT, 1, &x, &(tern_attrs){.sort = {.dim = dim, .descending = descending}}, TERN_PROPOSE_NOTHING), index);
}
tern_value tern_sort_first(tern_program *p, tern_value x, int dim, bool descending, int64_t first, tern_value *index) {
  return with_index(tern_build(p, TERN_OP_SORT, 1, &x, &(tern_attrs){.sort = {.dim = dim, .descending = descending, .first = first}}, TERN_PROPOSE_NOTHING), index);
}

/* ---- contractions ---- */
tern_value tern_dot(tern_program *p, tern_value lhs, tern_value rhs, int n_batch, const int *lhs_batch, const int *rhs_batch, int n_contract, const int *lhs_contract,
                    const int *rhs_contract) {
  tern_attrs attrs = {.dot = {.n_batch = n_batch, .n_contract = n_contract}};
  if (!tern_build_dims(p, TERN_OP_DOT, n_batch, lhs_batch, attrs.dot.lhs_batch) || !tern_build_dims(p, TERN_OP_DOT, n_batch, rhs_batch, attrs.dot.rhs_batch) ||
      !tern_build_dims(p, TERN_OP_DOT, n_contract, lhs_contract, attrs.dot.lhs_contract) || !tern_build_dims(p, TERN_OP_DOT, n_contract, rhs_contract, attrs.dot.rhs_contract))
    return TERN_NO_VALUE;
  return tern_build(p, TERN_OP_DOT, 2, (tern_value[]){lhs, rhs}, &attrs, TERN_PROPOSE_NOTHING);
}

tern_value tern_convolution(tern_program *p, tern_value x, tern_value w, const tern_window *window) {
  return tern_build(p, TERN_OP_CONV, 2, (tern_value[]){x, w}, &(tern_attrs){.window = *window}, TERN_PROPOSE_NOTHING);
}

tern_value tern_conv_input_grad(tern_program *p, tern_value gy, tern_value w, const tern_window *window, const int64_t *x_dims) {
  return tern_build(p, TERN_OP_CONV_INPUT_GRAD, 2, (tern_value[]){gy, w}, &(tern_attrs){.window = *window}, (tern_proposal){TERN_F32, window->spatial + 2, x_dims});
}

tern_value tern_conv_weight_grad(tern_program *p, tern_value x, tern_value gy, const tern_window *window, const int64_t *w_dims) {
  return tern_build(p, TERN_OP_CONV_WEIGHT_GRAD, 2, (tern_value[]){x, gy}, &(tern_attrs){.window = *window}, (tern_proposal){TERN_F32, window->spatial + 2, w_dims});
}

/* ---- indexing ---- */
tern_value tern_take(tern_program *p, tern_value x, tern_value index, int dim) {
  return tern_build(p, TERN_OP_TAKE, 2, (tern_value[]){x, index}, &(tern_attrs){.axis = {dim}}, TERN_PROPOSE_NOTHING);
}

tern_value tern_gather(tern_program *p, tern_value x, tern_value index, int dim) {
  return tern_build(p, TERN_OP_GATHER, 2, (tern_value[]){x, index}, &(tern_attrs){.axis = {dim}}, TERN_PROPOSE_NOTHING);
}

tern_value tern_put(tern_program *p, tern_value base, tern_value index, tern_value update, int dim, tern_combine how) {
  return tern_build(p, TERN_OP_PUT, 3, (tern_value[]){base, index, update}, &(tern_attrs){.scatter = {dim, how}}, TERN_PROPOSE_NOTHING);
}

tern_value tern_scatter(tern_program *p, tern_value base, tern_value index, tern_value update, int dim, tern_combine how) {
  return tern_build(p, TERN_OP_SCATTER, 3, (tern_value[]){base, index, update}, &(tern_attrs){.scatter = {dim, how}}, TERN_PROPOSE_NOTHING);
}
