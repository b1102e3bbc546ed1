/* build_elementwise: the builder's leaves and elementwise operations. Binary operations broadcast their operands by NumPy's rule; nothing else in the builder does. */
#include "build.h"

/* ---- constants: one element's bits, in its dtype ---- */
static void put_float(tern_dtype dtype, double value, uint64_t bits[2]) {
  bits[0] = bits[1] = 0;
  float single = (float)value;
  uint16_t half;
  switch (dtype) {
    case TERN_F16: half = tern_f32_to_f16(single); memcpy(bits, &half, sizeof half); break;
    case TERN_BF16: half = tern_f32_to_bf16(single); memcpy(bits, &half, sizeof half); break;
    case TERN_F32: case TERN_C64: memcpy(bits, &single, sizeof single); break;
    default: memcpy(bits, &value, sizeof value); break;
  }
}

static void put_int(tern_dtype dtype, int64_t value, uint64_t bits[2]) {
  bits[0] = dtype == TERN_BOOL ? value != 0 : (uint64_t)value;
  bits[1] = 0;
  size_t size = tern_dtype_size(dtype);
  if (size < 8) bits[0] &= (1ull << 8 * size) - 1;
}

tern_value tern_constant_int(tern_program *p, tern_dtype dtype, int rank, const int64_t *dims, int64_t value) {
  tern_attrs attrs = {0};
  if (tern_dtype_is_float(dtype) || tern_dtype_is_complex(dtype)) put_float(dtype, (double)value, attrs.constant.bits);
  else put_int(dtype, value, attrs.constant.bits);
  return tern_build(p, TERN_OP_CONSTANT, 0, NULL, &attrs, (tern_proposal){dtype, rank, dims});
}

tern_value tern_constant_float(tern_program *p, tern_dtype dtype, int rank, const int64_t *dims, double value) {
  tern_attrs attrs = {0};
  if (tern_dtype_is_float(dtype) || tern_dtype_is_complex(dtype)) {
    put_float(dtype, value, attrs.constant.bits);
  } else if (dtype == TERN_BOOL) {
    attrs.constant.bits[0] = value != 0; /* NaN is true, as in PyTorch */
  } else {
    bool fits = value >= -0x1p63 && value < 0x1p63;
    put_int(dtype, fits ? (int64_t)value : value >= 0x1p63 && value < 0x1p64 ? (int64_t)(uint64_t)value : value > 0 ? INT64_MAX : value < 0 ? INT64_MIN : 0, attrs.constant.bits);
  }
  return tern_build(p, TERN_OP_CONSTANT, 0, NULL, &attrs, (tern_proposal){dtype, rank, dims});
}

tern_value tern_iota(tern_program *p, tern_dtype dtype, int rank, const int64_t *dims, int dim) {
  return tern_build(p, TERN_OP_IOTA, 0, NULL, &(tern_attrs){.axis = {dim}}, (tern_proposal){dtype, rank, dims});
}

tern_value tern_philox(tern_program *p, tern_value seed, tern_value offset, int rank, const int64_t *dims) {
  return tern_build(p, TERN_OP_PHILOX, 2, (tern_value[]){seed, offset}, NULL, (tern_proposal){TERN_U32, rank, dims});
}

/* ---- one operand ---- */
#define UNARY(function, KIND) \
  tern_value function(tern_program *p, tern_value x) { return tern_build(p, TERN_OP_##KIND, 1, &x, NULL, TERN_PROPOSE_NOTHING); }
UNARY(tern_abs, ABS)
UNARY(tern_negate, NEGATE)
UNARY(tern_sign, SIGN)
UNARY(tern_floor, FLOOR)
UNARY(tern_ceil, CEIL)
UNARY(tern_round_even, ROUND_EVEN)
UNARY(tern_exp, EXP)
UNARY(tern_expm1, EXPM1)
UNARY(tern_log, LOG)
UNARY(tern_log1p, LOG1P)
UNARY(tern_sqrt, SQRT)
UNARY(tern_rsqrt, RSQRT)
UNARY(tern_tanh, TANH)
UNARY(tern_logistic, LOGISTIC)
UNARY(tern_sine, SINE)
UNARY(tern_cosine, COSINE)
UNARY(tern_erf, ERF)
UNARY(tern_erfc, ERFC)
UNARY(tern_lgamma, LGAMMA)
UNARY(tern_not, NOT)
UNARY(tern_is_finite, IS_FINITE)

static tern_value to_dtype(tern_program *p, tern_op_kind kind, tern_value x, tern_dtype dtype) {
  if (!tern_build_check(p, kind, x)) return TERN_NO_VALUE;
  if (p->values[x].dtype == dtype) return x;
  return tern_build(p, kind, 1, &x, NULL, (tern_proposal){dtype, -1, NULL});
}
tern_value tern_convert(tern_program *p, tern_value x, tern_dtype dtype) { return to_dtype(p, TERN_OP_CONVERT, x, dtype); }
tern_value tern_bitcast(tern_program *p, tern_value x, tern_dtype dtype) { return to_dtype(p, TERN_OP_BITCAST, x, dtype); }

/* ---- two and three operands ---- */
/* Gives all operands one shape; false (with an error) where they have none. */
static bool broadcast(tern_program *p, tern_op_kind kind, int n, tern_value *operands) {
  for (int i = 0; i < n; i++)
    if (!tern_build_check(p, kind, operands[i])) return false;
  int rank = 0;
  bool same = true;
  for (int i = 0; i < n; i++) {
    const tern_value_info *x = &p->values[operands[i]], *first = &p->values[operands[0]];
    if (x->rank > rank) rank = x->rank;
    same = same && tern_dims_equal(x->rank, x->dims, first->rank, first->dims);
  }
  if (same) return true;
  int64_t dims[TERN_MAX_RANK];
  for (int d = 0; d < rank; d++) {
    dims[d] = 1;
    for (int i = 0; i < n; i++) {
      const tern_value_info *x = &p->values[operands[i]];
      int own = d - (rank - x->rank);
      int64_t size = own < 0 ? 1 : x->dims[own];
      if (size == 1 || size == dims[d]) continue;
      if (dims[d] == 1) {
        dims[d] = size;
        continue;
      }
      char text[3][TERN_DESCRIBE_ROOM];
      text[2][0] = 0;
      for (int j = 0; j < n; j++) tern_value_describe(p, operands[j], text[j]);
      tern_build_fail(p, tern_error_new(TERN_INVALID_ARGUMENT, "%s: the shapes of %s, %s%s%s do not broadcast: %lld and %lld differ in dimension %d", tern_op_rows[kind].name, text[0],
                                        text[1], n > 2 ? ", " : "", text[2], (long long)dims[d], (long long)size, d));
      return false;
    }
  }
  for (int i = 0; i < n; i++) {
    operands[i] = tern_broadcast_to(p, operands[i], rank, dims);
    if (operands[i] == TERN_NO_VALUE) return false;
  }
  return true;
}

static tern_value binary(tern_program *p, tern_op_kind kind, tern_value x, tern_value y, const tern_attrs *attrs) {
  tern_value operands[2] = {x, y};
  if (!broadcast(p, kind, 2, operands)) return TERN_NO_VALUE;
  return tern_build(p, kind, 2, operands, attrs, TERN_PROPOSE_NOTHING);
}

#define BINARY(function, KIND) \
  tern_value function(tern_program *p, tern_value x, tern_value y) { return binary(p, TERN_OP_##KIND, x, y, NULL); }
BINARY(tern_add, ADD)
BINARY(tern_subtract, SUBTRACT)
BINARY(tern_multiply, MULTIPLY)
BINARY(tern_divide, DIVIDE)
BINARY(tern_remainder, REMAINDER)
BINARY(tern_power, POWER)
BINARY(tern_maximum, MAXIMUM)
BINARY(tern_minimum, MINIMUM)
BINARY(tern_atan2, ATAN2)
BINARY(tern_and, AND)
BINARY(tern_or, OR)
BINARY(tern_xor, XOR)
BINARY(tern_shift_left, SHIFT_LEFT)
BINARY(tern_shift_right, SHIFT_RIGHT)

tern_value tern_compare(tern_program *p, tern_comparison how, tern_value x, tern_value y) {
  return binary(p, TERN_OP_COMPARE, x, y, &(tern_attrs){.compare = {how}});
}

tern_value tern_select(tern_program *p, tern_value condition, tern_value x, tern_value y) {
  tern_value operands[3] = {condition, x, y};
  if (!broadcast(p, TERN_OP_SELECT, 3, operands)) return TERN_NO_VALUE;
  return tern_build(p, TERN_OP_SELECT, 3, operands, NULL, TERN_PROPOSE_NOTHING);
}
