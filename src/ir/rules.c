/* rules: the table from an operation's kind to its rule, and what the rules share. See rules.h. */
#include "rules.h"

static const struct { tern_rule rule; uint32_t optional; /* bit i: operand i may be TERN_NO_VALUE */ } table[TERN_OP_COUNT] = {
    [TERN_OP_PARAMETER] = {tern_rule_parameter, 0},
    [TERN_OP_CONSTANT] = {tern_rule_constant, 0},
    [TERN_OP_IOTA] = {tern_rule_iota, 0},
    [TERN_OP_PHILOX] = {tern_rule_philox, 0},
    [TERN_OP_ABS ... TERN_OP_BITCAST] = {tern_rule_unary, 0},
    [TERN_OP_ADD ... TERN_OP_COMPARE] = {tern_rule_binary, 0},
    [TERN_OP_SELECT] = {tern_rule_select, 0},
    [TERN_OP_BROADCAST] = {tern_rule_broadcast, 0},
    [TERN_OP_RESHAPE] = {tern_rule_reshape, 0},
    [TERN_OP_TRANSPOSE] = {tern_rule_transpose, 0},
    [TERN_OP_SLICE] = {tern_rule_slice, 0},
    [TERN_OP_REVERSE] = {tern_rule_reverse, 0},
    [TERN_OP_UPDATE_SLICE] = {tern_rule_update_slice, 0},
    [TERN_OP_PAD] = {tern_rule_pad, 0},
    [TERN_OP_CONCATENATE] = {tern_rule_concatenate, 0},
    [TERN_OP_REDUCE] = {tern_rule_reduce, 0},
    [TERN_OP_ARG_REDUCE] = {tern_rule_arg_reduce, 0},
    [TERN_OP_SCAN] = {tern_rule_scan, 0},
    [TERN_OP_SORT] = {tern_rule_sort, 0},
    [TERN_OP_DOT] = {tern_rule_dot, 0},
    [TERN_OP_CONV] = {tern_rule_conv, 0},
    [TERN_OP_CONV_INPUT_GRAD] = {tern_rule_conv_input_grad, 0},
    [TERN_OP_CONV_WEIGHT_GRAD] = {tern_rule_conv_weight_grad, 0},
    [TERN_OP_TAKE] = {tern_rule_take, 0},
    [TERN_OP_GATHER] = {tern_rule_gather, 0},
    [TERN_OP_PUT] = {tern_rule_put, 0},
    [TERN_OP_SCATTER] = {tern_rule_scatter, 0},
    [TERN_OP_CHECK] = {tern_rule_check_range, 0},
    [TERN_OP_SOFTMAX ... TERN_OP_LOG_SOFTMAX_GRAD] = {tern_rule_softmax, 0},
    [TERN_OP_LAYER_NORM] = {tern_rule_layer_norm, 1 << 1 | 1 << 2},
    [TERN_OP_LAYER_NORM_GRAD] = {tern_rule_layer_norm_grad, 1 << 4},
    [TERN_OP_BATCH_NORM] = {tern_rule_batch_norm, 1 << 1 | 1 << 2},
    [TERN_OP_BATCH_NORM_GRAD] = {tern_rule_batch_norm_grad, 1 << 2},
    [TERN_OP_GELU ... TERN_OP_GELU_GRAD] = {tern_rule_gelu, 0},
    [TERN_OP_ATTENTION] = {tern_rule_attention, 1 << 3},
    [TERN_OP_ATTENTION_GRAD] = {tern_rule_attention_grad, 1 << 6},
    [TERN_OP_LSTM] = {tern_rule_lstm, 1 << 2},
    [TERN_OP_LSTM_GRAD] = {tern_rule_lstm_grad, 1 << 0 | 1 << 1 | 1 << 2},
    [TERN_OP_MAX_POOL] = {tern_rule_max_pool, 0},
    [TERN_OP_MAX_POOL_GRAD] = {tern_rule_max_pool_grad, 0},
    [TERN_OP_AVG_POOL] = {tern_rule_avg_pool, 0},
    [TERN_OP_AVG_POOL_GRAD] = {tern_rule_avg_pool_grad, 0},
};

bool tern_op_operand_is_optional(tern_op_kind kind, int operand) { return table[kind].optional >> operand & 1; }

static tern_status infer(const tern_rule_call *call) {
  const tern_op_row *row = &tern_op_rows[call->kind];
  if (row->operands >= 0 && call->n_operands != row->operands)
    return tern_error_new(TERN_INVALID_ARGUMENT, "%d operands given, %d needed", call->n_operands, row->operands);
  for (int i = 0; i < call->n_operands; i++) {
    tern_value v = call->operands[i];
    if (v == TERN_NO_VALUE && tern_op_operand_is_optional(call->kind, i)) continue;
    if (v < 0 || v >= call->program->n_values) return tern_error_new(TERN_INVALID_ARGUMENT, "operand %d (%%%d) is no value of this program", i, (int)v);
  }
  return table[call->kind].rule(call);
}

tern_status tern_op_infer(const tern_rule_call *call) {
  tern_status error = infer(call);
  if (TERN_LIKELY(!error)) return NULL;
  char operands[1024], one[TERN_DESCRIBE_ROOM];
  size_t used = 0;
  operands[0] = 0;
  for (int i = 0; i < call->n_operands && used < sizeof operands - TERN_DESCRIBE_ROOM; i++) {
    int written = snprintf(operands + used, sizeof operands - used, "%s%s", i ? ", " : "", tern_value_describe(call->program, call->operands[i], one));
    used += (size_t)written;
  }
  return tern_error_prefix(error, "%s(%s)", tern_op_rows[call->kind].name, operands);
}

/* ---- shared by the rules ---- */
void tern_rule_result(const tern_rule_call *call, int i, tern_dtype dtype, int rank, const int64_t *dims) {
  tern_value_info *result = &call->results[i];
  result->dtype = dtype;
  result->rank = rank;
  if (rank > 0 && dims != result->dims) memcpy(result->dims, dims, (size_t)rank * sizeof *dims);
}

tern_status tern_rule_check_proposed(const tern_rule_call *call) {
  const tern_value_info *result = &call->results[0];
  char text[TERN_DESCRIBE_ROOM];
  if ((unsigned)result->dtype >= TERN_DTYPE_COUNT) return tern_error_new(TERN_INVALID_ARGUMENT, "%d is no dtype", (int)result->dtype);
  if (result->rank < 0 || result->rank > TERN_MAX_RANK)
    return tern_error_new(TERN_INVALID_ARGUMENT, "rank %d asked for; it must be between 0 and %d", (int)result->rank, TERN_MAX_RANK);
  int64_t count = 1;
  bool empty = false;
  for (int i = 0; i < result->rank; i++) {
    if (result->dims[i] < 0) return tern_error_new(TERN_INVALID_ARGUMENT, "negative size in %s", tern_dims_describe(result->rank, result->dims, text));
    empty |= result->dims[i] == 0;
  }
  for (int i = 0; i < result->rank && !empty; i++)
    if (__builtin_mul_overflow(count, result->dims[i], &count) || count > INT64_MAX / 16)
      return tern_error_new(TERN_INVALID_ARGUMENT, "%s has too many elements", tern_dims_describe(result->rank, result->dims, text));
  return NULL;
}

tern_status tern_rule_check_dim(const tern_rule_call *call, int64_t dim, int rank) {
  (void)call;
  if (dim >= 0 && dim < rank) return NULL;
  return tern_error_new(TERN_INVALID_ARGUMENT, "dimension %lld is not one of the %d there are", (long long)dim, rank);
}

tern_status tern_rule_check_same_dtype(const tern_rule_call *call, int first, int second) {
  tern_dtype a = tern_rule_operand(call, first)->dtype, b = tern_rule_operand(call, second)->dtype;
  if (a == b) return NULL;
  return tern_error_new(TERN_INVALID_ARGUMENT, "operands %d and %d have different dtypes, %s and %s; convert one of them", first, second, tern_dtype_name(a), tern_dtype_name(b));
}

tern_status tern_rule_check_scalar(const tern_rule_call *call, int operand) {
  if (tern_rule_operand(call, operand)->rank == 0) return NULL;
  return tern_error_new(TERN_INVALID_ARGUMENT, "operand %d must have rank 0", operand);
}

const char *tern_dims_describe(int rank, const int64_t *dims, char out[TERN_DESCRIBE_ROOM]) {
  int used = snprintf(out, TERN_DESCRIBE_ROOM, "[");
  for (int i = 0; i < rank && used < TERN_DESCRIBE_ROOM - 24; i++) used += snprintf(out + used, (size_t)(TERN_DESCRIBE_ROOM - used), "%s%lld", i ? "," : "", (long long)dims[i]);
  snprintf(out + used, (size_t)(TERN_DESCRIBE_ROOM - used), "]");
  return out;
}

const char *tern_value_describe(const tern_program *p, tern_value v, char out[TERN_DESCRIBE_ROOM]) {
  if (v < 0 || v >= p->n_values) {
    snprintf(out, TERN_DESCRIBE_ROOM, "nothing");
    return out;
  }
  int used = snprintf(out, TERN_DESCRIBE_ROOM, "%s", tern_dtype_name(p->values[v].dtype));
  char dims[TERN_DESCRIBE_ROOM];
  snprintf(out + used, (size_t)(TERN_DESCRIBE_ROOM - used), "%s", tern_dims_describe(p->values[v].rank, p->values[v].dims, dims));
  return out;
}
