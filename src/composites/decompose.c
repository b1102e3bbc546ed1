/* decompose: rebuilds a program with composites replaced, pass by pass until none is left (a decomposition may use another composite); the last pass
 * replaces nothing and leaves out what the replacements made dead. Called by backends before they compile. */
#include "composites.h"

const tern_decomposer tern_decomposers[TERN_OP_COUNT] = {
    [TERN_OP_ERF] = tern_decompose_erf,
    [TERN_OP_ERFC] = tern_decompose_erfc,
    [TERN_OP_LGAMMA] = tern_decompose_lgamma,
    [TERN_OP_PHILOX] = tern_decompose_philox,
    [TERN_OP_CONV_INPUT_GRAD] = tern_decompose_conv_input_grad,
    [TERN_OP_CONV_WEIGHT_GRAD] = tern_decompose_conv_weight_grad,
    [TERN_OP_SOFTMAX] = tern_decompose_softmax,
    [TERN_OP_LOG_SOFTMAX] = tern_decompose_log_softmax,
    [TERN_OP_SOFTMAX_GRAD] = tern_decompose_softmax_grad,
    [TERN_OP_LOG_SOFTMAX_GRAD] = tern_decompose_log_softmax_grad,
    [TERN_OP_LAYER_NORM] = tern_decompose_layer_norm,
    [TERN_OP_LAYER_NORM_GRAD] = tern_decompose_layer_norm_grad,
    [TERN_OP_BATCH_NORM] = tern_decompose_batch_norm,
    [TERN_OP_BATCH_NORM_GRAD] = tern_decompose_batch_norm_grad,
    [TERN_OP_GELU] = tern_decompose_gelu,
    [TERN_OP_GELU_GRAD] = tern_decompose_gelu_grad,
    [TERN_OP_ATTENTION] = tern_decompose_attention,
    [TERN_OP_ATTENTION_GRAD] = tern_decompose_attention_grad,
    [TERN_OP_MAX_POOL] = tern_decompose_max_pool,
    [TERN_OP_LSTM] = tern_decompose_lstm,
    [TERN_OP_LSTM_GRAD] = tern_decompose_lstm_grad,
    [TERN_OP_MAX_POOL_GRAD] = tern_decompose_max_pool_grad,
    [TERN_OP_AVG_POOL] = tern_decompose_avg_pool,
    [TERN_OP_AVG_POOL_GRAD] = tern_decompose_avg_pool_grad,
};

enum { MOST_OPERANDS = 8, MOST_RESULTS = 4, MOST_PASSES = 8 };

/* Which operations a result or an effect needs. */
static void mark_live(const tern_program *p, bool *live) {
  for (int i = 0; i < p->n_results; i++) live[p->values[p->results[i].value].op] = true;
  for (int32_t i = p->n_ops - 1; i >= 0; i--) {
    const tern_op *op = &p->ops[i];
    if (op->kind == TERN_OP_PARAMETER || tern_op_rows[op->kind].class == TERN_CLASS_EFFECT) live[i] = true;
    for (int j = 0; j < op->n_operands && live[i]; j++)
      if (op->operands[j] != TERN_NO_VALUE) live[p->values[op->operands[j]].op] = true;
  }
}

static bool is_replaced(tern_op_kind kind, bool (*keep)(tern_op_kind kind)) { return tern_decomposers[kind] && !(keep && keep(kind)); }

/* Copies one operation, or appends what it stands for; fills map for its results. `operands` has room for those of any operation of the program. */
static void rebuild_op(const tern_program *from, const tern_op *op, bool replaced, tern_value *map, tern_value *operands, tern_program *to) {
  tern_program_tag(to, op->tag);
  for (int i = 0; i < op->n_operands; i++) operands[i] = op->operands[i] == TERN_NO_VALUE ? TERN_NO_VALUE : map[op->operands[i]];
  const tern_value_info *results = op->n_results ? &from->values[op->first_result] : NULL;
  tern_value out[MOST_RESULTS];
  if (replaced) {
    tern_decomposers[op->kind](&(tern_decomposition){to, op, operands, results, out});
  } else {
    tern_value first = tern_program_append(to, (tern_op_kind)op->kind, op->n_operands, operands, op->attrs, op->n_results, results);
    for (int i = 0; i < op->n_results; i++) out[i] = first + i;
  }
  for (int i = 0; i < op->n_results; i++) map[op->first_result + i] = out[i];
}

/* One pass. *replaced: how many operations were. */
static tern_status rebuild(const tern_program *from, bool (*keep)(tern_op_kind kind), int *replaced, tern_program **out) {
  *replaced = 0;
  TERN_TRY(tern_program_new(out));
  tern_program *to = *out;
  to->describe_tag = from->describe_tag;
  to->describe_context = from->describe_context;
  int most_operands = MOST_OPERANDS;
  for (int32_t i = 0; i < from->n_ops; i++)
    if (from->ops[i].n_operands > most_operands) most_operands = from->ops[i].n_operands;
  bool *live = calloc((size_t)from->n_ops + 1, sizeof *live);
  tern_value *map = calloc((size_t)(from->n_values + most_operands), sizeof *map), *operands = map ? map + from->n_values : NULL;
  tern_status error = live && map ? NULL : tern_error_new(TERN_OUT_OF_MEMORY, "the host has no memory to decompose a program");
  if (!error) {
    mark_live(from, live);
    for (int32_t i = 0; i < from->n_ops && !to->error; i++) {
      if (!live[i]) continue;
      bool replaces = is_replaced((tern_op_kind)from->ops[i].kind, keep);
      *replaced += replaces;
      rebuild_op(from, &from->ops[i], replaces, map, operands, to);
      if (to->error && replaces) to->error = tern_error_prefix(to->error, "decomposing %s", tern_op_rows[from->ops[i].kind].name);
    }
    for (int i = 0; i < from->n_results && !to->error; i++) tern_result(to, map[from->results[i].value], from->results[i].reuses);
    error = tern_error_clone(to->error);
  }
  free(live);
  free(map);
  if (error) {
    tern_program_free(to);
    *out = NULL;
  }
  return error;
}

tern_status tern_program_decompose(const tern_program *program, bool (*keep)(tern_op_kind kind), tern_program **out) {
  int replaced, passes = 1;
  *out = NULL;
  tern_program *current;
  TERN_TRY(rebuild(program, keep, &replaced, &current));
  while (replaced) {
    tern_program *next;
    tern_status error = passes++ < MOST_PASSES ? rebuild(current, keep, &replaced, &next) : tern_error_new(TERN_INTERNAL, "composites decompose into each other without end");
    tern_program_free(current);
    if (error) return error;
    current = next;
  }
  *out = current;
  return NULL;
}

tern_value tern_part_reduce_keep(tern_program *p, tern_reduction how, tern_value x, int n, const int *dims) {
  int rank = tern_value_rank(p, x);
  int64_t kept[TERN_MAX_RANK];
  for (int i = 0; i < rank; i++) kept[i] = tern_value_dims(p, x)[i];
  for (int i = 0; i < n; i++) kept[dims[i]] = 1;
  return tern_reshape(p, tern_reduce(p, how, x, n, dims), rank, kept);
}
