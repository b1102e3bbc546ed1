/* blocks_integer: the instructions of one integer dtype: a template. INT is the C type, WIDE an unsigned type of the same width or 32 bits (arithmetic in
 * it wraps), NAMED(x) makes names, BITS is the width. No include guard: included once per dtype by blocks_elementwise.c. */

static inline INT NAMED(quotient)(INT x, INT y) {
  if (y == 0) return 0;
  if (y < 0 && y == (INT)-1) return (INT)(0 - (WIDE)x);
  INT result = (INT)(x / y);
  return result;
}
static inline INT NAMED(rest)(INT x, INT y) {
  if (y == 0 || (y < 0 && y == (INT)-1)) return 0;
  INT result = (INT)(x % y);
  return result;
}
static inline INT NAMED(integer_power)(INT x, INT y) {
  if (y < 0) return x == 1 ? (INT)1 : x == (INT)-1 ? (INT)(y % 2 ? -1 : 1) : (INT)0;
  WIDE result = 1, factor = (WIDE)x;
  for (uint64_t left = (uint64_t)y; left; left >>= 1) {
    if (left & 1) result = (WIDE)(result * factor);
    factor = (WIDE)(factor * factor);
  }
  return (INT)result;
}

BLOCK_UNARY(NAMED(abs), INT, INT, x < 0 ? 0 - (WIDE)x : (WIDE)x)
BLOCK_UNARY(NAMED(negate), INT, INT, 0 - (WIDE)x)
BLOCK_UNARY(NAMED(sign), INT, INT, (x > 0) - (x < 0))
BLOCK_UNARY(NAMED(not), INT, INT, ~x)
BLOCK_BINARY(NAMED(add), INT, INT, (WIDE)x + (WIDE)y)
BLOCK_BINARY(NAMED(subtract), INT, INT, (WIDE)x - (WIDE)y)
BLOCK_BINARY(NAMED(multiply), INT, INT, (WIDE)x * (WIDE)y)
BLOCK_BINARY(NAMED(divide), INT, INT, NAMED(quotient)(x, y))
BLOCK_BINARY(NAMED(remainder), INT, INT, NAMED(rest)(x, y))
BLOCK_BINARY(NAMED(power), INT, INT, NAMED(integer_power)(x, y))
BLOCK_BINARY(NAMED(maximum), INT, INT, x > y ? x : y)
BLOCK_BINARY(NAMED(minimum), INT, INT, x < y ? x : y)
BLOCK_BINARY(NAMED(and), INT, INT, x & y)
BLOCK_BINARY(NAMED(or), INT, INT, x | y)
BLOCK_BINARY(NAMED(xor), INT, INT, x ^ y)
/* Counts are taken as unsigned: a negative one is beyond the width. */
BLOCK_BINARY(NAMED(shift_left), INT, INT, (uint64_t)y >= BITS ? 0 : (WIDE)x << ((uint64_t)y & (BITS - 1)))
BLOCK_BINARY(NAMED(shift_right), INT, INT, (uint64_t)y < BITS ? x >> ((uint64_t)y & (BITS - 1)) : x < 0 ? -1 : 0)
BLOCK_BINARY(NAMED(eq), INT, uint8_t, x == y)
BLOCK_BINARY(NAMED(ne), INT, uint8_t, x != y)
BLOCK_BINARY(NAMED(lt), INT, uint8_t, x < y)
BLOCK_BINARY(NAMED(le), INT, uint8_t, x <= y)
BLOCK_BINARY(NAMED(gt), INT, uint8_t, x > y)
BLOCK_BINARY(NAMED(ge), INT, uint8_t, x >= y)
BLOCK_UNARY(NAMED(to_bool), INT, uint8_t, x != 0)
BLOCK_UNARY(NAMED(to_u8), INT, uint8_t, x)
BLOCK_UNARY(NAMED(to_i8), INT, int8_t, x)
BLOCK_UNARY(NAMED(to_i16), INT, int16_t, x)
BLOCK_UNARY(NAMED(to_u16), INT, uint16_t, x)
BLOCK_UNARY(NAMED(to_i32), INT, int32_t, x)
BLOCK_UNARY(NAMED(to_u32), INT, uint32_t, x)
BLOCK_UNARY(NAMED(to_i64), INT, int64_t, x)
BLOCK_UNARY(NAMED(to_u64), INT, uint64_t, x)
BLOCK_UNARY(NAMED(to_f32), INT, float, x)
BLOCK_UNARY(NAMED(to_f64), INT, double, x)
#undef INT
#undef WIDE
#undef BITS
#undef NAMED
