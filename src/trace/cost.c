/* Counting what a program computes and moves, from its shapes alone: the roofline's two numbers where no compiler tells. Called by keep.c. */
#include "inner.h"

static int64_t value_bytes(const tern_program *p, tern_value v) { return v == TERN_NO_VALUE ? 0 : tern_value_count(p, v) * (int64_t)tern_dtype_size(p->values[v].dtype); }

/* The parameter that a value shows through views, or NULL. */
static const tern_op *parameter_behind(const tern_program *p, tern_value v) {
  while (v != TERN_NO_VALUE) {
    const tern_op *op = &p->ops[p->values[v].op];
    if (op->kind == TERN_OP_PARAMETER) return op;
    if (tern_op_rows[op->kind].class != TERN_CLASS_VIEW) return NULL;
    v = op->operands[0];
  }
  return NULL;
}

/* Operands and results; not what shows a parameter, whose reading is counted once for the program as a whole. */
static double traffic(const tern_program *p, const tern_op *op) {
  double bytes = 0;
  for (int i = 0; i < op->n_operands; i++)
    if (!parameter_behind(p, op->operands[i])) bytes += (double)value_bytes(p, op->operands[i]);
  for (int i = 0; i < op->n_results; i++) bytes += (double)value_bytes(p, op->first_result + i);
  return bytes;
}

static double dot_depth(const tern_program *p, const tern_op *op) {
  double depth = 1;
  for (int i = 0; i < op->attrs->dot.n_contract; i++) depth *= (double)p->values[op->operands[0]].dims[op->attrs->dot.lhs_contract[i]];
  return depth;
}

/* A weight is [out, in / groups, window...]: each result element is a sum over all but its first dimension. */
static double conv_depth(const tern_program *p, const tern_op *op) {
  const tern_value_info *w = &p->values[op->operands[1]];
  double depth = 1;
  for (int d = 1; d < w->rank; d++) depth *= (double)w->dims[d];
  return depth;
}

static bool is_transcendental(uint16_t kind) {
  switch (kind) {
    case TERN_OP_EXP: case TERN_OP_EXPM1: case TERN_OP_LOG: case TERN_OP_LOG1P: case TERN_OP_SQRT: case TERN_OP_RSQRT: case TERN_OP_TANH: case TERN_OP_LOGISTIC:
    case TERN_OP_SINE: case TERN_OP_COSINE: case TERN_OP_POWER: case TERN_OP_ATAN2: case TERN_OP_ERF: return true;
    default: return false;
  }
}

void tern_trace_count_cost(const tern_program *p, tern_trace_cost *out) {
  *out = (tern_trace_cost){0};
  for (int32_t i = 0; i < p->n_parameters; i++) out->bytes += (double)value_bytes(p, p->parameters[i]);
  for (int32_t i = 0; i < p->n_results; i++) out->bytes += (double)value_bytes(p, p->results[i].value);
  for (int32_t o = 0; o < p->n_ops; o++) {
    const tern_op *op = &p->ops[o];
    if (!op->n_results) continue;
    double count = (double)tern_value_count(p, op->first_result);
    switch (tern_op_rows[op->kind].class) {
      case TERN_CLASS_CONTRACT:
        out->contractions[p->values[op->operands[0]].dtype] += 2 * count * (op->kind == TERN_OP_DOT ? dot_depth(p, op) : conv_depth(p, op));
        out->bytes += traffic(p, op);
        break;
      case TERN_CLASS_REDUCE:
        out->elementwise += (double)tern_value_count(p, op->operands[0]);
        out->bytes += traffic(p, op);
        break;
      case TERN_CLASS_INDEX:
        /* Rows fetched or written, not the whole table. */
        out->bytes += 2 * (double)value_bytes(p, op->n_operands > 2 ? op->operands[2] : op->first_result);
        break;
      case TERN_CLASS_UNARY: case TERN_CLASS_BINARY: case TERN_CLASS_TERNARY:
        out->elementwise += count;
        if (is_transcendental(op->kind)) out->transcendentals += count;
        break;
      default: break;
    }
  }
}
