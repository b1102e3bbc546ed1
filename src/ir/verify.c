/* verify: every rule of a program, checked on the whole of it, for programs that came from somewhere else than the builder (rewrites) and as the
 * last word before a backend sees one. One pass, each operation asked of its own rule. */
#include "rules.h"

/* Operations are in order, results are consecutive, and each operation's rule gives exactly the results it has. */
static tern_status verify_op(const tern_program *p, int32_t number, tern_value expected_first) {
  const tern_op *op = &p->ops[number];
  if (op->kind >= TERN_OP_COUNT) return tern_error_new(TERN_INTERNAL, "%u is no kind of operation", op->kind);
  tern_op_kind kind = (tern_op_kind)op->kind;
  if (op->n_results != tern_op_rows[kind].results) return tern_error_new(TERN_INTERNAL, "%u results instead of %d", op->n_results, tern_op_rows[kind].results);
  if (op->n_results && op->first_result != expected_first) return tern_error_new(TERN_INTERNAL, "its first result is %%%d, not %%%d", (int)op->first_result, (int)expected_first);
  for (int i = 0; i < op->n_operands; i++)
    if (op->operands[i] >= expected_first) return tern_error_new(TERN_INTERNAL, "operand %d (%%%d) is not defined yet", i, (int)op->operands[i]);
  int64_t dims[TERN_MAX_RESULTS][TERN_MAX_RANK];
  tern_value_info results[TERN_MAX_RESULTS];
  for (int i = 0; i < op->n_results; i++) {
    const tern_value_info *value = &p->values[expected_first + i];
    if (value->op != number) return tern_error_new(TERN_INTERNAL, "result %d does not know it", i);
    if (value->rank < 0 || value->rank > TERN_MAX_RANK) return tern_error_new(TERN_INTERNAL, "result %d has rank %d", i, (int)value->rank);
    results[i] = *value;
    results[i].dims = memcpy(dims[i], value->dims, (size_t)value->rank * sizeof *value->dims);
  }
  TERN_TRY(tern_op_infer(&(tern_rule_call){p, kind, op->n_operands, op->operands, op->attrs, results}));
  for (int i = 0; i < op->n_results; i++) {
    const tern_value_info *value = &p->values[expected_first + i];
    char text[2][TERN_DESCRIBE_ROOM];
    if (value->dtype != results[i].dtype || !tern_dims_equal(value->rank, value->dims, results[i].rank, results[i].dims))
      return tern_error_new(TERN_INTERNAL, "result %d is %s but must be %s%s", i, tern_value_describe(p, expected_first + i, text[0]), tern_dtype_name(results[i].dtype),
                            tern_dims_describe(results[i].rank, results[i].dims, text[1]));
  }
  return NULL;
}

/* Parameters are numbered in order, and the lists of them agree. */
static tern_status verify_parameters(const tern_program *p) {
  for (int scalars = 0; scalars < 2; scalars++) {
    const tern_value *list = scalars ? p->scalars : p->parameters;
    for (int i = 0; i < (scalars ? p->n_scalars : p->n_parameters); i++) {
      const tern_op *op = list[i] >= 0 && list[i] < p->n_values ? &p->ops[p->values[list[i]].op] : NULL;
      if (!op || op->kind != TERN_OP_PARAMETER || op->attrs->parameter.number != i || op->attrs->parameter.is_scalar != scalars)
        return tern_error_new(TERN_INTERNAL, "%s %d is not the operation it should be", scalars ? "scalar" : "parameter", i);
    }
  }
  return NULL;
}

static tern_status verify_results(const tern_program *p) {
  for (int i = 0; i < p->n_results; i++) {
    const tern_result_info *result = &p->results[i];
    if (result->value < 0 || result->value >= p->n_values) return tern_error_new(TERN_INTERNAL, "result %d is no value", i);
    if (result->reuses == -1) continue;
    if (result->reuses < 0 || result->reuses >= p->n_parameters)
      return tern_error_new(TERN_INVALID_ARGUMENT, "result %d reuses parameter %d, but there are only %d", i, (int)result->reuses, (int)p->n_parameters);
    tern_value parameter = p->parameters[result->reuses];
    char text[2][TERN_DESCRIBE_ROOM];
    if ((size_t)tern_value_count(p, parameter) * tern_dtype_size(p->values[parameter].dtype) != (size_t)tern_value_count(p, result->value) * tern_dtype_size(p->values[result->value].dtype))
      return tern_error_new(TERN_INVALID_ARGUMENT, "result %d (%s) cannot reuse parameter %d (%s): the sizes differ", i, tern_value_describe(p, result->value, text[0]), (int)result->reuses,
                            tern_value_describe(p, parameter, text[1]));
  }
  return NULL;
}

/* Each parameter is reused at most once. */
static tern_status verify_reuse(const tern_program *p) {
  if (p->n_parameters == 0 || p->n_results == 0) return NULL;
  bool *reused = calloc((size_t)p->n_parameters, sizeof *reused);
  if (!reused) return tern_error_new(TERN_OUT_OF_MEMORY, "the host has no memory to verify a program");
  tern_status error = NULL;
  for (int i = 0; i < p->n_results && !error; i++) {
    int32_t number = p->results[i].reuses;
    if (number < 0) continue;
    if (reused[number]) error = tern_error_new(TERN_INVALID_ARGUMENT, "parameter %d is reused by two results", (int)number);
    reused[number] = true;
  }
  free(reused);
  return error;
}

tern_status tern_program_verify(const tern_program *p) {
  tern_value next = 0;
  for (int32_t i = 0; i < p->n_ops; i++) {
    tern_status error = verify_op(p, i, next);
    if (error) return tern_error_prefix(error, "operation %d", (int)i);
    next += p->ops[i].n_results;
  }
  TERN_CHECK(next == p->n_values);
  TERN_TRY(verify_parameters(p));
  TERN_TRY(verify_results(p));
  return verify_reuse(p);
}
