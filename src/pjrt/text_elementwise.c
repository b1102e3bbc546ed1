/* Elementwise operations as StableHLO. Most are their namesakes; here is where ops.def asks for more than StableHLO promises. See text.h. */
#include "text.h"

/* ops.def: integers divided by zero give 0. StableHLO leaves it open, and some chips trap. */
static tern_text_value divide(tern_text *t, const char *name, tern_text_value x, tern_text_value y) {
  if (!tern_dtype_is_integer(x.dtype)) return tern_text_binary(t, name, x, y);
  tern_text_value zero = tern_text_constant_int(t, y, 0), one = tern_text_constant_int(t, y, 1);
  tern_text_value bad = tern_text_compare(t, TERN_EQ, y, zero);
  return tern_text_select(t, bad, zero, tern_text_binary(t, name, x, tern_text_select(t, bad, one, y)));
}

/* NaN where one of the two is: StableHLO's meaning, which not every compiler keeps. */
static tern_text_value extreme(tern_text *t, const char *name, tern_text_value x, tern_text_value y) {
  tern_text_value result = tern_text_binary(t, name, x, y);
  if (!t->guard_nan || !tern_dtype_is_float(x.dtype)) return result;
  result = tern_text_select(t, tern_text_compare(t, TERN_NE, y, y), y, result);
  return tern_text_select(t, tern_text_compare(t, TERN_NE, x, x), x, result);
}

static tern_text_value convert(tern_text *t, tern_text_value x, tern_dtype dtype) {
  if (dtype == TERN_BOOL && x.dtype != TERN_BOOL) return tern_text_compare(t, TERN_NE, x, tern_text_constant_int(t, x, 0));
  if (tern_dtype_is_complex(x.dtype) && !tern_dtype_is_complex(dtype)) {
    tern_dtype part = x.dtype == TERN_C64 ? TERN_F32 : TERN_F64;
    return tern_text_convert(t, tern_text_op(t, "real", tern_text_like(x, part), 1, &x), dtype);
  }
  return tern_text_convert(t, x, dtype);
}

/* A bool is a bit to StableHLO and a byte to ops.def. */
static tern_text_value bitcast(tern_text *t, tern_text_value x, tern_dtype dtype) {
  if (dtype == x.dtype) return x;
  if (x.dtype == TERN_BOOL || dtype == TERN_BOOL) return convert(t, x, dtype);
  return tern_text_op(t, "bitcast_convert", tern_text_like(x, dtype), 1, &x);
}

static bool is_float_or_complex(tern_dtype dtype) { return tern_dtype_is_float(dtype) || tern_dtype_is_complex(dtype); }

void tern_text_write_elementwise(tern_text *t, const tern_op *op) {
  const char *name = tern_op_rows[op->kind].stablehlo;
  if (name) name += sizeof "stablehlo." - 1;
  tern_text_value shape = tern_text_result_shape(t, op, 0), operands[3] = {0}, result;
  for (int i = 0; i < op->n_operands && i < 3; i++) operands[i] = tern_text_operand(t, op, i);
  tern_text_value x = operands[0], y = operands[1];
  bool is_bool = x.dtype == TERN_BOOL;

  switch (op->kind) {
    case TERN_OP_FLOOR: case TERN_OP_CEIL: case TERN_OP_ROUND_EVEN:
      result = is_float_or_complex(x.dtype) ? tern_text_unary(t, name, x) : x;
      break;
    case TERN_OP_ABS:
      result = tern_dtype_is_signed(x.dtype) ? tern_text_op(t, name, shape, 1, &x) : x;
      break;
    case TERN_OP_SIGN: /* StableHLO has no sign of unsigned numbers */
      result = tern_dtype_is_signed(x.dtype) ? tern_text_unary(t, name, x)
                                             : tern_text_convert(t, tern_text_compare(t, TERN_NE, x, tern_text_constant_int(t, x, 0)), x.dtype);
      break;
    case TERN_OP_IS_FINITE:
      result = is_float_or_complex(x.dtype) ? tern_text_op(t, name, shape, 1, &x) : tern_text_constant_int(t, shape, 1);
      break;
    case TERN_OP_CONVERT: result = convert(t, x, shape.dtype); break;
    case TERN_OP_BITCAST: result = bitcast(t, x, shape.dtype); break;
    case TERN_OP_ADD: result = tern_text_binary(t, is_bool ? "or" : name, x, y); break;
    case TERN_OP_MULTIPLY: result = tern_text_binary(t, is_bool ? "and" : name, x, y); break;
    case TERN_OP_DIVIDE: case TERN_OP_REMAINDER: result = divide(t, name, x, y); break;
    case TERN_OP_MAXIMUM: case TERN_OP_MINIMUM: result = extreme(t, name, x, y); break;
    case TERN_OP_SHIFT_RIGHT: result = tern_text_binary(t, tern_dtype_is_signed(x.dtype) ? "shift_right_arithmetic" : "shift_right_logical", x, y); break;
    case TERN_OP_COMPARE: result = tern_text_compare(t, op->attrs->compare.how, x, y); break;
    default: result = tern_text_op(t, name, shape, op->n_operands, operands); break;
  }
  tern_text_set(t, op, 0, result);
}
