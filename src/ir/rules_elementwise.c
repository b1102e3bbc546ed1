/* Rules of the leaves and the elementwise operations: which dtypes each takes, and that shapes are equal (the builder broadcast them). */
#include "rules.h"

tern_status tern_rule_parameter(const tern_rule_call *call) {
  TERN_TRY(tern_rule_check_proposed(call));
  const tern_value_info *result = &call->results[0];
  if (!call->attrs->parameter.is_scalar) return NULL;
  if (result->rank != 0) return tern_error_new(TERN_INVALID_ARGUMENT, "a scalar has rank 0, not %d", (int)result->rank);
  switch (result->dtype) {
    case TERN_BOOL: case TERN_I32: case TERN_I64: case TERN_U32: case TERN_U64: case TERN_F32: case TERN_F64: return NULL;
    default: return tern_error_new(TERN_INVALID_ARGUMENT, "a scalar cannot be %s; pass a wider one and convert it", tern_dtype_name(result->dtype));
  }
}

tern_status tern_rule_constant(const tern_rule_call *call) { return tern_rule_check_proposed(call); }

tern_status tern_rule_iota(const tern_rule_call *call) {
  TERN_TRY(tern_rule_check_proposed(call));
  if (call->results[0].dtype == TERN_BOOL) return tern_error_new(TERN_INVALID_ARGUMENT, "counts; a bool cannot");
  return tern_rule_check_dim(call, call->attrs->axis.dim, call->results[0].rank);
}

tern_status tern_rule_philox(const tern_rule_call *call) {
  TERN_TRY(tern_rule_check_proposed(call));
  for (int i = 0; i < 2; i++) {
    TERN_TRY(tern_rule_check_scalar(call, i));
    if (tern_rule_operand(call, i)->dtype != TERN_I64) return tern_error_new(TERN_INVALID_ARGUMENT, "operand %d must be i64", i);
  }
  call->results[0].dtype = TERN_U32;
  return NULL;
}

enum { BOOL = 1, INT = 2, FLOAT = 4, COMPLEX = 8, NUMBER = INT | FLOAT | COMPLEX, ANY = BOOL | NUMBER };

static const uint8_t accepts[TERN_OP_COUNT] = {
    [TERN_OP_ABS] = NUMBER, [TERN_OP_NEGATE] = NUMBER, [TERN_OP_SIGN] = NUMBER,
    [TERN_OP_FLOOR] = FLOAT, [TERN_OP_CEIL] = FLOAT, [TERN_OP_ROUND_EVEN] = FLOAT,
    [TERN_OP_EXP] = FLOAT | COMPLEX, [TERN_OP_EXPM1] = FLOAT | COMPLEX, [TERN_OP_LOG] = FLOAT | COMPLEX, [TERN_OP_LOG1P] = FLOAT | COMPLEX,
    [TERN_OP_SQRT] = FLOAT | COMPLEX, [TERN_OP_RSQRT] = FLOAT | COMPLEX, [TERN_OP_TANH] = FLOAT | COMPLEX, [TERN_OP_LOGISTIC] = FLOAT | COMPLEX,
    [TERN_OP_SINE] = FLOAT | COMPLEX, [TERN_OP_COSINE] = FLOAT | COMPLEX, [TERN_OP_ERF] = FLOAT, [TERN_OP_ERFC] = FLOAT, [TERN_OP_LGAMMA] = FLOAT,
    [TERN_OP_NOT] = BOOL | INT, [TERN_OP_IS_FINITE] = FLOAT, [TERN_OP_CONVERT] = ANY, [TERN_OP_BITCAST] = ANY,
    [TERN_OP_ADD] = ANY, [TERN_OP_SUBTRACT] = NUMBER, [TERN_OP_MULTIPLY] = ANY, [TERN_OP_DIVIDE] = NUMBER, [TERN_OP_REMAINDER] = INT | FLOAT,
    [TERN_OP_POWER] = NUMBER, [TERN_OP_MAXIMUM] = BOOL | INT | FLOAT, [TERN_OP_MINIMUM] = BOOL | INT | FLOAT, [TERN_OP_ATAN2] = FLOAT,
    [TERN_OP_AND] = BOOL | INT, [TERN_OP_OR] = BOOL | INT, [TERN_OP_XOR] = BOOL | INT, [TERN_OP_SHIFT_LEFT] = INT, [TERN_OP_SHIFT_RIGHT] = INT,
    [TERN_OP_COMPARE] = ANY,
};

static tern_status check_accepts(const tern_rule_call *call, tern_dtype dtype) {
  uint8_t is = tern_dtype_is_complex(dtype) ? COMPLEX : tern_dtype_is_float(dtype) ? FLOAT : tern_dtype_is_integer(dtype) ? INT : BOOL;
  if (accepts[call->kind] & is) return NULL;
  return tern_error_new(TERN_INVALID_ARGUMENT, "is not defined for %s", tern_dtype_name(dtype));
}

tern_status tern_rule_unary(const tern_rule_call *call) {
  const tern_value_info *x = tern_rule_operand(call, 0);
  TERN_TRY(check_accepts(call, x->dtype));
  tern_dtype dtype = x->dtype, asked = call->results[0].dtype;
  switch (call->kind) {
    case TERN_OP_ABS: dtype = dtype == TERN_C64 ? TERN_F32 : dtype == TERN_C128 ? TERN_F64 : dtype; break;
    case TERN_OP_IS_FINITE: dtype = TERN_BOOL; break;
    case TERN_OP_CONVERT:
    case TERN_OP_BITCAST:
      if ((unsigned)asked >= TERN_DTYPE_COUNT) return tern_error_new(TERN_INVALID_ARGUMENT, "%d is no dtype", (int)asked);
      if (call->kind == TERN_OP_BITCAST && tern_dtype_size(asked) != tern_dtype_size(dtype))
        return tern_error_new(TERN_INVALID_ARGUMENT, "%s has another width than %s", tern_dtype_name(asked), tern_dtype_name(dtype));
      dtype = asked;
      break;
    default: break;
  }
  tern_rule_result(call, 0, dtype, x->rank, x->dims);
  return NULL;
}

static tern_status check_same_shape(const tern_rule_call *call, int first, int second) {
  const tern_value_info *a = tern_rule_operand(call, first), *b = tern_rule_operand(call, second);
  if (tern_dims_equal(a->rank, a->dims, b->rank, b->dims)) return NULL;
  return tern_error_new(TERN_INVALID_ARGUMENT, "operands %d and %d have different shapes", first, second);
}

tern_status tern_rule_binary(const tern_rule_call *call) {
  const tern_value_info *x = tern_rule_operand(call, 0);
  TERN_TRY(tern_rule_check_same_dtype(call, 0, 1));
  TERN_TRY(check_same_shape(call, 0, 1));
  TERN_TRY(check_accepts(call, x->dtype));
  if (call->kind == TERN_OP_COMPARE) {
    if ((unsigned)call->attrs->compare.how > TERN_GE) return tern_error_new(TERN_INVALID_ARGUMENT, "%d is no comparison", (int)call->attrs->compare.how);
    if (tern_dtype_is_complex(x->dtype) && call->attrs->compare.how > TERN_NE) return tern_error_new(TERN_INVALID_ARGUMENT, "complex numbers have no order");
  }
  tern_rule_result(call, 0, call->kind == TERN_OP_COMPARE ? TERN_BOOL : x->dtype, x->rank, x->dims);
  return NULL;
}

tern_status tern_rule_select(const tern_rule_call *call) {
  const tern_value_info *x = tern_rule_operand(call, 1);
  if (tern_rule_operand(call, 0)->dtype != TERN_BOOL) return tern_error_new(TERN_INVALID_ARGUMENT, "the condition must be bool");
  TERN_TRY(tern_rule_check_same_dtype(call, 1, 2));
  TERN_TRY(check_same_shape(call, 0, 1));
  TERN_TRY(check_same_shape(call, 1, 2));
  tern_rule_result(call, 0, x->dtype, x->rank, x->dims);
  return NULL;
}
