/* rules: what every operation asks of its operands and what its results are, in one place. The builder asks a rule for the results of a new
 * operation; the verifier asks the same rule and compares. Private to src/ir. */
#ifndef TERN_IR_RULES_H
#define TERN_IR_RULES_H
#include "ir.h"

#define TERN_MAX_RESULTS 4

/* One question to a rule. `results` comes in with what the operands do not settle (the dims of a reshape, the dtype of a convert) and
 * leaves complete; results[i].dims has room for TERN_MAX_RANK. */
typedef struct tern_rule_call {
  const tern_program *program;
  tern_op_kind kind;
  int n_operands;
  const tern_value *operands;
  const tern_attrs *attrs;
  tern_value_info *results;
} tern_rule_call;
typedef tern_status (*tern_rule)(const tern_rule_call *call);

/* One per kind; rules_elementwise.c, rules_shape.c, rules_contract.c, rules_index.c and rules_composite.c hold the functions. */
tern_status tern_rule_parameter(const tern_rule_call *call);
tern_status tern_rule_constant(const tern_rule_call *call);
tern_status tern_rule_iota(const tern_rule_call *call);
tern_status tern_rule_philox(const tern_rule_call *call);
tern_status tern_rule_unary(const tern_rule_call *call);
tern_status tern_rule_binary(const tern_rule_call *call);
tern_status tern_rule_select(const tern_rule_call *call);
tern_status tern_rule_broadcast(const tern_rule_call *call);
tern_status tern_rule_reshape(const tern_rule_call *call);
tern_status tern_rule_transpose(const tern_rule_call *call);
tern_status tern_rule_slice(const tern_rule_call *call);
tern_status tern_rule_reverse(const tern_rule_call *call);
tern_status tern_rule_update_slice(const tern_rule_call *call);
tern_status tern_rule_pad(const tern_rule_call *call);
tern_status tern_rule_concatenate(const tern_rule_call *call);
tern_status tern_rule_reduce(const tern_rule_call *call);
tern_status tern_rule_arg_reduce(const tern_rule_call *call);
tern_status tern_rule_scan(const tern_rule_call *call);
tern_status tern_rule_sort(const tern_rule_call *call);
tern_status tern_rule_dot(const tern_rule_call *call);
tern_status tern_rule_conv(const tern_rule_call *call);
tern_status tern_rule_conv_input_grad(const tern_rule_call *call);
tern_status tern_rule_conv_weight_grad(const tern_rule_call *call);
tern_status tern_rule_take(const tern_rule_call *call);
tern_status tern_rule_gather(const tern_rule_call *call);
tern_status tern_rule_put(const tern_rule_call *call);
tern_status tern_rule_scatter(const tern_rule_call *call);
tern_status tern_rule_check_range(const tern_rule_call *call);
tern_status tern_rule_softmax(const tern_rule_call *call);
tern_status tern_rule_layer_norm(const tern_rule_call *call);
tern_status tern_rule_layer_norm_grad(const tern_rule_call *call);
tern_status tern_rule_batch_norm(const tern_rule_call *call);
tern_status tern_rule_batch_norm_grad(const tern_rule_call *call);
tern_status tern_rule_gelu(const tern_rule_call *call);
tern_status tern_rule_attention(const tern_rule_call *call);
tern_status tern_rule_attention_grad(const tern_rule_call *call);
tern_status tern_rule_lstm(const tern_rule_call *call);
tern_status tern_rule_lstm_grad(const tern_rule_call *call);
tern_status tern_rule_max_pool(const tern_rule_call *call);
tern_status tern_rule_max_pool_grad(const tern_rule_call *call);
tern_status tern_rule_avg_pool(const tern_rule_call *call);
tern_status tern_rule_avg_pool_grad(const tern_rule_call *call);

/* Checks the operands and fills the results; the error names the operation and its operands. */
tern_status tern_op_infer(const tern_rule_call *call);
bool tern_op_operand_is_optional(tern_op_kind kind, int operand);

/* ---- for the rules ---- */
static inline const tern_value_info *tern_rule_operand(const tern_rule_call *call, int i) { return &call->program->values[call->operands[i]]; }
static inline bool tern_rule_has(const tern_rule_call *call, int i) { return call->operands[i] != TERN_NO_VALUE; }
void tern_rule_result(const tern_rule_call *call, int i, tern_dtype dtype, int rank, const int64_t *dims);
/* Whether the dims proposed for result 0 are dims at all: a rank in range, none negative, a count that fits. */
tern_status tern_rule_check_proposed(const tern_rule_call *call);
tern_status tern_rule_check_dim(const tern_rule_call *call, int64_t dim, int rank);
tern_status tern_rule_check_same_dtype(const tern_rule_call *call, int first, int second);
tern_status tern_rule_check_scalar(const tern_rule_call *call, int operand); /* rank 0 */

/* "f32[8,4]"; "nothing" for TERN_NO_VALUE. Returns `out`. */
#define TERN_DESCRIBE_ROOM 256
const char *tern_value_describe(const tern_program *p, tern_value v, char out[TERN_DESCRIBE_ROOM]);
const char *tern_dims_describe(int rank, const int64_t *dims, char out[TERN_DESCRIBE_ROOM]); /* "[8,4]" */

#endif
