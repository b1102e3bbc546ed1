/* blocks_float: the instructions that f32 and f64 share: a template. REAL is the C type, NAMED(x) makes names, LIBM(x) the C library's function of that type.
 * No include guard: included once per dtype by blocks_elementwise.c. */

BLOCK_UNARY(NAMED(abs), REAL, REAL, LIBM(fabs)(x))
BLOCK_UNARY(NAMED(negate), REAL, REAL, -x)
BLOCK_UNARY(NAMED(sign), REAL, REAL, (REAL)((x > 0) - (x < 0)))
BLOCK_UNARY(NAMED(sqrt), REAL, REAL, LIBM(sqrt)(x))
BLOCK_UNARY(NAMED(rsqrt), REAL, REAL, 1 / LIBM(sqrt)(x))
BLOCK_UNARY(NAMED(is_finite), REAL, uint8_t, LIBM(fabs)(x) < INFINITY)
BLOCK_BINARY(NAMED(add), REAL, REAL, x + y)
BLOCK_BINARY(NAMED(subtract), REAL, REAL, x - y)
BLOCK_BINARY(NAMED(multiply), REAL, REAL, x * y)
BLOCK_BINARY(NAMED(divide), REAL, REAL, x / y)
BLOCK_BINARY(NAMED(remainder), REAL, REAL, LIBM(fmod)(x, y))
BLOCK_BINARY(NAMED(power), REAL, REAL, LIBM(pow)(x, y))
BLOCK_BINARY(NAMED(atan2), REAL, REAL, LIBM(atan2)(x, y))
/* NaN wins: where x is no number, x > y is false but x != x is not. */
BLOCK_BINARY(NAMED(maximum), REAL, REAL, (x > y) | (x != x) ? x : y)
BLOCK_BINARY(NAMED(minimum), REAL, REAL, (x < y) | (x != x) ? x : y)
BLOCK_BINARY(NAMED(eq), REAL, uint8_t, x == y)
BLOCK_BINARY(NAMED(ne), REAL, uint8_t, x != y)
BLOCK_BINARY(NAMED(lt), REAL, uint8_t, x < y)
BLOCK_BINARY(NAMED(le), REAL, uint8_t, x <= y)
BLOCK_BINARY(NAMED(gt), REAL, uint8_t, x > y)
BLOCK_BINARY(NAMED(ge), REAL, uint8_t, x >= y)
BLOCK_UNARY(NAMED(to_bool), REAL, uint8_t, x != 0)
/* Out of range saturates, NaN is 0; the narrow types take the low bits of a 32-bit conversion, as PyTorch does. */
static inline int32_t NAMED(as_i32)(REAL x) { return x != x ? 0 : x >= (REAL)0x1p31 ? INT32_MAX : x < (REAL)-0x1p31 ? INT32_MIN : (int32_t)x; }
static inline int64_t NAMED(as_i64)(REAL x) { return x != x ? 0 : x >= (REAL)0x1p63 ? INT64_MAX : x < (REAL)-0x1p63 ? INT64_MIN : (int64_t)x; }
static inline uint64_t NAMED(as_u64)(REAL x) { return !(x > -1) ? 0 : x >= (REAL)0x1p64 ? UINT64_MAX : (uint64_t)x; }
static inline uint32_t NAMED(as_u32)(REAL x) { return !(x > -1) ? 0 : x >= (REAL)0x1p32 ? UINT32_MAX : (uint32_t)(int64_t)x; }
BLOCK_UNARY(NAMED(to_u8), REAL, uint8_t, NAMED(as_i32)(x))
BLOCK_UNARY(NAMED(to_i8), REAL, int8_t, NAMED(as_i32)(x))
BLOCK_UNARY(NAMED(to_i16), REAL, int16_t, NAMED(as_i32)(x))
BLOCK_UNARY(NAMED(to_u16), REAL, uint16_t, NAMED(as_i32)(x))
BLOCK_UNARY(NAMED(to_i32), REAL, int32_t, NAMED(as_i32)(x))
BLOCK_UNARY(NAMED(to_u32), REAL, uint32_t, NAMED(as_u32)(x))
BLOCK_UNARY(NAMED(to_i64), REAL, int64_t, NAMED(as_i64)(x))
BLOCK_UNARY(NAMED(to_u64), REAL, uint64_t, NAMED(as_u64)(x))
BLOCK_UNARY(NAMED(to_f32), REAL, float, x)
BLOCK_UNARY(NAMED(to_f64), REAL, double, x)
#undef REAL
#undef NAMED
#undef LIBM
