/* pointwise: arithmetic of two tensors, or a tensor and a number. Each row is a rule (pointwise.h), a formula and its schemas; the formulas are PyTorch's CPU
 * kernels' (aten/src/ATen/native/cpu/BinaryOpsKernel.cpp), so that the numbers are too. */
#include "pointwise.h"

static const tern_pointwise_rule add_rule = {.n_operands = 2, .operands = {0, 1}, .serves = TERN_SERVES_ALL, .n_numbers = 1, .numbers = {{2, true, 1}}};
static const tern_pointwise_rule subtract_rule = {.n_operands = 2, .operands = {0, 1}, .refuses_bool = true, .n_numbers = 1, .numbers = {{2, true, 1}}};
static const tern_pointwise_rule reverse_rule = {
    .n_operands = 2, .operands = {1, 0}, .refuses_bool = true, .n_numbers = 1, .numbers = {{2, true, 1}}}; /* rsub is sub with its operands exchanged */
static const tern_pointwise_rule multiply_rule = {.n_operands = 2, .operands = {0, 1}, .serves = TERN_SERVES_ALL, .wide_numbers = true};
static const tern_pointwise_rule divide_rule = {.n_operands = 2, .operands = {0, 1}, .serves = TERN_SERVES_FLOATS, .to_float = true, .wide_numbers = true};
static const tern_pointwise_rule rounded_divide_rule = {.n_operands = 2, .operands = {0, 1}, .wide_numbers = true, .checked_divisor = true};
static const tern_pointwise_rule remainder_rule = {.n_operands = 2, .operands = {0, 1}, .checked_divisor = true};
static const tern_pointwise_rule extremum_rule = {.n_operands = 2, .operands = {0, 1}, .serves = TERN_SERVES_ALL};
static const tern_pointwise_rule float_rule = {.n_operands = 2, .operands = {0, 1}, .serves = TERN_SERVES_FLOATS, .to_float = true};
static const tern_pointwise_rule bits_rule = {.n_operands = 2, .operands = {0, 1}, .serves = TERN_SERVES_INTEGRAL};

/* ---- formulas ---- */

static tern_value scaled(const tern_pointwise *w, tern_value x) { return w->s[0] == TERN_NO_VALUE ? x : tern_multiply(w->p, w->s[0], x); }

static tern_value round_to_zero(tern_program *p, tern_value x) {
  tern_value zero = tern_number(p, tern_value_dtype(p, x), 0);
  return tern_select(p, tern_compare(p, TERN_LT, x, zero), tern_ceil(p, x), tern_floor(p, x));
}

static tern_value is_negative(tern_program *p, tern_value x) { return tern_compare(p, TERN_LT, x, tern_number(p, tern_value_dtype(p, x), 0)); }

/* A remainder that is not zero and has another sign than the divisor: the quotient that was rounded to zero is one above the floor. */
static tern_value needs_step(tern_program *p, tern_value remainder, tern_value divisor) {
  tern_value present = tern_compare(p, TERN_NE, remainder, tern_number(p, tern_value_dtype(p, remainder), 0));
  return tern_and(p, present, tern_xor(p, is_negative(p, remainder), is_negative(p, divisor)));
}

static tern_value divide_floor(tern_program *p, tern_dtype dtype, tern_value x, tern_value y) {
  tern_value zero = tern_number(p, dtype, 0), one = tern_number(p, dtype, 1), rest = tern_remainder(p, x, y);
  if (!tern_dtype_is_float(dtype)) {
    tern_value quotient = tern_divide(p, x, y);
    return tern_dtype_is_signed(dtype) ? tern_select(p, needs_step(p, rest, y), tern_subtract(p, quotient, one), quotient) : quotient;
  }
  tern_value exact = tern_divide(p, x, y);
  tern_value quotient = tern_divide(p, tern_subtract(p, x, rest), y);
  quotient = tern_select(p, needs_step(p, rest, y), tern_subtract(p, quotient, one), quotient);
  tern_value down = tern_floor(p, quotient);
  tern_value is_low = tern_compare(p, TERN_GT, tern_subtract(p, quotient, down), tern_number(p, dtype, 0.5));
  tern_value rounded = tern_select(p, is_low, tern_add(p, down, one), down);
  tern_value signed_zero = tern_multiply(p, zero, exact); /* finite wherever the quotient is 0 */
  rounded = tern_select(p, tern_compare(p, TERN_NE, quotient, zero), rounded, signed_zero);
  return tern_select(p, tern_compare(p, TERN_EQ, y, zero), exact, rounded);
}

static tern_value divide_toward_zero(tern_program *p, tern_dtype dtype, tern_value x, tern_value y) {
  tern_value quotient = tern_divide(p, x, y);
  return tern_dtype_is_float(dtype) ? round_to_zero(p, quotient) : quotient;
}

static tern_value python_remainder(tern_program *p, tern_dtype dtype, tern_value x, tern_value y) {
  tern_value rest = tern_remainder(p, x, y);
  if (!tern_dtype_is_float(dtype) && !tern_dtype_is_signed(dtype)) return rest;
  return tern_select(p, needs_step(p, rest, y), tern_add(p, rest, y), rest);
}

/* maximum and minimum of the program let NaN win; fmax and fmin let it lose. */
static tern_value ignore_nan(tern_program *p, tern_dtype dtype, tern_value x, tern_value y, tern_value extremum) {
  if (!tern_dtype_is_float(dtype)) return extremum;
  extremum = tern_select(p, tern_compare(p, TERN_NE, y, y), x, extremum);
  return tern_select(p, tern_compare(p, TERN_NE, x, x), y, extremum);
}

static tern_value x_log_y(tern_program *p, tern_dtype dtype, tern_value x, tern_value y) {
  tern_value zero = tern_number(p, dtype, 0);
  tern_value product = tern_select(p, tern_compare(p, TERN_EQ, x, zero), zero, tern_multiply(p, x, tern_log(p, y)));
  return tern_select(p, tern_compare(p, TERN_NE, y, y), y, product);
}

/* Shifts by a negative amount or by the width and more give 0, or the sign. */
static tern_value shift_amount(tern_program *p, tern_dtype dtype, tern_value y) {
  return tern_select(p, is_negative(p, y), tern_number(p, dtype, (double)(8 * tern_dtype_size(dtype))), y);
}

TERN_POINTWISE(add, add_rule, tern_add(p, x, scaled(&w, y)))
TERN_POINTWISE(subtract, subtract_rule, tern_subtract(p, x, scaled(&w, y)))
TERN_POINTWISE(reverse_subtract, reverse_rule, tern_subtract(p, x, scaled(&w, y)))
TERN_POINTWISE(multiply, multiply_rule, tern_multiply(p, x, y))
TERN_POINTWISE(divide, divide_rule, tern_divide(p, x, y))
TERN_POINTWISE(divide_floor, rounded_divide_rule, divide_floor(p, dtype, x, y))
TERN_POINTWISE_LOWER(divide_toward_zero, rounded_divide_rule, divide_toward_zero(p, dtype, x, y))
TERN_POINTWISE(remainder, remainder_rule, python_remainder(p, dtype, x, y))
TERN_POINTWISE(fmod, remainder_rule, tern_remainder(p, x, y))
TERN_POINTWISE(maximum, extremum_rule, tern_maximum(p, x, y))
TERN_POINTWISE(minimum, extremum_rule, tern_minimum(p, x, y))
TERN_POINTWISE(fmax, extremum_rule, ignore_nan(p, dtype, x, y, tern_maximum(p, x, y)))
TERN_POINTWISE(fmin, extremum_rule, ignore_nan(p, dtype, x, y, tern_minimum(p, x, y)))
TERN_POINTWISE(atan2, float_rule, tern_atan2(p, x, y))
TERN_POINTWISE(xlogy, float_rule, x_log_y(p, dtype, x, y))
TERN_POINTWISE(and, bits_rule, tern_and(p, x, y))
TERN_POINTWISE(or, bits_rule, tern_or(p, x, y))
TERN_POINTWISE(xor, bits_rule, tern_xor(p, x, y))

static const tern_pointwise_rule shift_rule = {.n_operands = 2, .operands = {0, 1}, .serves = TERN_SERVES_INTEGRAL};
static tern_verdict infer_shift(const tern_call *call, tern_draft *draft) {
  tern_verdict verdict = tern_pointwise_infer(call, draft, &shift_rule);
  return verdict == TERN_RECORD && draft->outputs[0].dtype == TERN_BOOL ? TERN_FALL_BACK : verdict;
}
static tern_status lower_shift(const tern_lowering *node, tern_value *results, tern_value (*shift)(tern_program *, tern_value, tern_value)) {
  tern_pointwise w;
  tern_pointwise_begin(&w, node, &shift_rule);
  results[0] = tern_pointwise_finish(node, 0, shift(w.p, w.x[0], shift_amount(w.p, w.dtype, w.x[1])));
  return NULL;
}
static tern_status lower_shift_left(const tern_lowering *node, tern_value *results) { return lower_shift(node, results, tern_shift_left); }
static tern_status lower_shift_right(const tern_lowering *node, tern_value *results) { return lower_shift(node, results, tern_shift_right); }

/* ---- division with a rounding mode: one schema, three operations; the other two are recorded under rows of their own ---- */

static tern_verdict infer_divide_mode(const tern_call *call, tern_draft *draft) {
  if (tern_arg_is_none(call, 2)) {
    tern_verdict verdict = infer_divide(call, draft);
    tern_draft_attr(draft, 0);
    return verdict;
  }
  const tern_argument *mode = &call->arguments[2];
  bool is_floor = mode->tag == TERN_ARG_TEXT && strcmp(mode->u.text, "floor") == 0;
  if (mode->tag != TERN_ARG_TEXT || (!is_floor && strcmp(mode->u.text, "trunc") != 0)) return TERN_REJECT;
  tern_verdict verdict = infer_divide_floor(call, draft);
  tern_draft_attr(draft, is_floor ? 1 : 2);
  return verdict;
}
static tern_status lower_divide_mode(const tern_lowering *node, tern_value *results) {
  static tern_status (*const lowers[])(const tern_lowering *, tern_value *) = {lower_divide, lower_divide_floor, lower_divide_toward_zero};
  return lowers[node->attrs[1]](node, results);
}

/* ---- power ---- */

static const tern_pointwise_rule power_rule = {.n_operands = 2, .operands = {0, 1}, .serves = TERN_SERVES_FLOATS};
static const tern_pointwise_rule power_number_rule = {.n_operands = 1, .serves = TERN_SERVES_ALL};

TERN_POINTWISE(power, power_rule, tern_power(p, x, y))

/* pow(x, number): PyTorch computes some exponents otherwise, and so the numbers differ: the exponent's class is in the key. Integers: the exponent is an
 * attribute. */
static tern_verdict infer_power_number(const tern_call *call, tern_draft *draft) {
  tern_promotion promotion = TERN_PROMOTION_START;
  tern_promotion_add(&promotion, &call->arguments[0]);
  tern_promotion_add(&promotion, &call->arguments[1]);
  tern_dtype common = tern_promotion_result(&promotion);
  const tern_tensor *x = tern_arg_tensor(call, 0);
  int64_t exponent = tern_arg_int(call, 1, -1);
  if (!x || x->device < 0) return TERN_REJECT;
  if (common >= TERN_C64 || (common >= TERN_U16 && common <= TERN_U64) || common == TERN_BOOL) return TERN_FALL_BACK;
  if (!tern_dtype_is_float(common) && (exponent < 0 || exponent > 63)) return TERN_FALL_BACK;
  tern_verdict verdict = tern_draft_tensor(draft, x);
  if (verdict != TERN_RECORD) return verdict;
  tern_draft_attr(draft, common);
  if (tern_dtype_is_float(common)) {
    if (!tern_draft_number(draft, &call->arguments[1], tern_compute_dtype(common), true)) return TERN_FALL_BACK;
  } else {
    tern_draft_attr(draft, exponent);
  }
  tern_draft_result(draft, common, x->rank, x->sizes)->layout = TERN_LIKE_OPERANDS;
  return TERN_RECORD;
}

static tern_value power_of_integer(tern_program *p, tern_dtype dtype, tern_value x, int64_t exponent) {
  tern_value result = TERN_NO_VALUE;
  for (tern_value square = x; exponent; exponent >>= 1) {
    if (exponent & 1) result = result == TERN_NO_VALUE ? square : tern_multiply(p, result, square);
    if (exponent > 1) square = tern_multiply(p, square, square);
  }
  return result == TERN_NO_VALUE ? tern_number(p, dtype, 1) : result;
}

static tern_value power_by_class(tern_program *p, tern_dtype dtype, tern_value x, tern_value exponent, uint8_t kind) {
  switch (kind) {
    case TERN_SCALAR_ZERO:
      return tern_number(p, dtype, 1);
    case TERN_SCALAR_ONE:
      return x;
    case TERN_SCALAR_TWO:
      return tern_multiply(p, x, x);
    case TERN_SCALAR_THREE:
      return tern_multiply(p, tern_multiply(p, x, x), x);
    case TERN_SCALAR_HALF:
      return tern_sqrt(p, x);
    case TERN_SCALAR_MINUS_HALF:
      return tern_rsqrt(p, x);
    case TERN_SCALAR_MINUS_ONE:
      return tern_divide(p, tern_number(p, dtype, 1), x);
    case TERN_SCALAR_MINUS_TWO:
      return tern_divide(p, tern_number(p, dtype, 1), tern_multiply(p, x, x));
    default:
      return tern_power(p, x, exponent);
  }
}

static tern_status lower_power_number(const tern_lowering *node, tern_value *results) {
  tern_pointwise w;
  tern_pointwise_begin(&w, node, &power_number_rule);
  tern_value v;
  if (!tern_dtype_is_float(w.common)) {
    v = power_of_integer(w.p, w.dtype, w.x[0], node->attrs[1]);
  } else {
    uint8_t kind = node->scalar_kinds[0];
    bool in_steps = w.common == TERN_BF16 && (kind == TERN_SCALAR_THREE || kind == TERN_SCALAR_MINUS_TWO); /* PyTorch's bf16 vectors round every product */
    tern_dtype dtype = in_steps ? TERN_BF16 : w.dtype;
    v = power_by_class(w.p, dtype, tern_convert(w.p, w.x[0], dtype), w.s[0], kind);
  }
  results[0] = tern_pointwise_finish(node, 0, v);
  return NULL;
}

const tern_aten_row tern_aten_pointwise[] = {
    {"add.Tensor", "add_.Tensor", "add.out", NULL, infer_add, lower_add, NULL},
    {"add.Scalar", "add_.Scalar", "add.Scalar_out", NULL, infer_add, lower_add, NULL},
    {"mul.Tensor", "mul_.Tensor", "mul.out", NULL, infer_multiply, lower_multiply, NULL},
    {"mul.Scalar", "mul_.Scalar", "mul.Scalar_out", NULL, infer_multiply, lower_multiply, NULL},
    {"sub.Tensor", "sub_.Tensor", "sub.out", NULL, infer_subtract, lower_subtract, NULL},
    {"sub.Scalar", "sub_.Scalar", "sub.Scalar_out", NULL, infer_subtract, lower_subtract, NULL},
    {"rsub.Tensor", NULL, "rsub.Tensor_out", NULL, infer_reverse_subtract, lower_reverse_subtract, NULL},
    {"rsub.Scalar", NULL, "rsub.Scalar_out", NULL, infer_reverse_subtract, lower_reverse_subtract, NULL},
    {"div.Tensor", "div_.Tensor", "div.out", NULL, infer_divide, lower_divide, NULL},
    {"div.Scalar", "div_.Scalar", "div.Scalar_out", NULL, infer_divide, lower_divide, NULL},
    {"div.Tensor_mode", "div_.Tensor_mode", "div.out_mode", NULL, infer_divide_mode, lower_divide_mode, NULL},
    {"div.Scalar_mode", "div_.Scalar_mode", "div.Scalar_mode_out", NULL, infer_divide_mode, lower_divide_mode, NULL},
    {"floor_divide", "floor_divide_.Tensor", "floor_divide.out", NULL, infer_divide_floor, lower_divide_floor, NULL},
    {"floor_divide.Scalar", "floor_divide_.Scalar", "floor_divide.Scalar_out", NULL, infer_divide_floor, lower_divide_floor, NULL},
    {"remainder.Tensor", "remainder_.Tensor", "remainder.Tensor_out", NULL, infer_remainder, lower_remainder, NULL},
    {"remainder.Scalar", "remainder_.Scalar", "remainder.Scalar_out", NULL, infer_remainder, lower_remainder, NULL},
    {"remainder.Scalar_Tensor", NULL, "remainder.Scalar_Tensor_out", NULL, infer_remainder, lower_remainder, NULL},
    {"fmod.Tensor", "fmod_.Tensor", "fmod.Tensor_out", NULL, infer_fmod, lower_fmod, NULL},
    {"fmod.Scalar", "fmod_.Scalar", "fmod.Scalar_out", NULL, infer_fmod, lower_fmod, NULL},
    {"pow.Tensor_Tensor", "pow_.Tensor", "pow.Tensor_Tensor_out", NULL, infer_power, lower_power, NULL},
    {"pow.Tensor_Scalar", "pow_.Scalar", "pow.Tensor_Scalar_out", NULL, infer_power_number, lower_power_number, NULL},
    {"pow.Scalar", NULL, "pow.Scalar_out", NULL, infer_power, lower_power, NULL},
    {"maximum", NULL, "maximum.out", NULL, infer_maximum, lower_maximum, NULL},
    {"minimum", NULL, "minimum.out", NULL, infer_minimum, lower_minimum, NULL},
    {"fmax", NULL, "fmax.out", NULL, infer_fmax, lower_fmax, NULL},
    {"fmin", NULL, "fmin.out", NULL, infer_fmin, lower_fmin, NULL},
    {"atan2", "atan2_", "atan2.out", NULL, infer_atan2, lower_atan2, NULL},
    {"xlogy.Tensor", "xlogy_.Tensor", "xlogy.OutTensor", NULL, infer_xlogy, lower_xlogy, NULL},
    {"bitwise_and.Tensor", "bitwise_and_.Tensor", "bitwise_and.Tensor_out", NULL, infer_and, lower_and, NULL},
    {"bitwise_and.Scalar", "bitwise_and_.Scalar", "bitwise_and.Scalar_out", NULL, infer_and, lower_and, NULL},
    {"bitwise_and.Scalar_Tensor", NULL, "bitwise_and.Scalar_Tensor_out", NULL, infer_and, lower_and, NULL},
    {"bitwise_or.Tensor", "bitwise_or_.Tensor", "bitwise_or.Tensor_out", NULL, infer_or, lower_or, NULL},
    {"bitwise_or.Scalar", "bitwise_or_.Scalar", "bitwise_or.Scalar_out", NULL, infer_or, lower_or, NULL},
    {"bitwise_or.Scalar_Tensor", NULL, "bitwise_or.Scalar_Tensor_out", NULL, infer_or, lower_or, NULL},
    {"bitwise_xor.Tensor", "bitwise_xor_.Tensor", "bitwise_xor.Tensor_out", NULL, infer_xor, lower_xor, NULL},
    {"bitwise_xor.Scalar", "bitwise_xor_.Scalar", "bitwise_xor.Scalar_out", NULL, infer_xor, lower_xor, NULL},
    {"bitwise_xor.Scalar_Tensor", NULL, "bitwise_xor.Scalar_Tensor_out", NULL, infer_xor, lower_xor, NULL},
    {"__lshift__.Tensor", "__ilshift__.Tensor", "__lshift__.Tensor_out", NULL, infer_shift, lower_shift_left, NULL},
    {"__lshift__.Scalar", "__ilshift__.Scalar", "__lshift__.Scalar_out", NULL, infer_shift, lower_shift_left, NULL},
    {"__rshift__.Tensor", "__irshift__.Tensor", "__rshift__.Tensor_out", NULL, infer_shift, lower_shift_right, NULL},
    {"__rshift__.Scalar", "__irshift__.Scalar", "__rshift__.Scalar_out", NULL, infer_shift, lower_shift_right, NULL},
    {"bitwise_left_shift.Tensor", "bitwise_left_shift_.Tensor", "bitwise_left_shift.Tensor_out", NULL, infer_shift, lower_shift_left, NULL},
    {"bitwise_right_shift.Tensor", "bitwise_right_shift_.Tensor", "bitwise_right_shift.Tensor_out", NULL, infer_shift, lower_shift_right, NULL},
};
TERN_ATEN_FAMILY_END(pointwise)
