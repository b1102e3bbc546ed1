/* The block interpreter's elementwise instructions, and the machine that lists them all. Called through tern_kernel_table.blocks by src/cpu/execute.c. */
#include "blocks_loops.h"
#include "blocks_parts.h"
#include "math.h"

/* Comparisons may be evaluated for lanes that a condition leaves out: nobody looks at floating-point exceptions, and loops become vectors. */
#pragma GCC optimize("no-trapping-math")
/* One template serves signed and unsigned integers: "x < 0" is right for both. */
#pragma GCC diagnostic ignored "-Wtype-limits"

#define INT uint8_t
#define WIDE uint32_t
#define BITS 8
#define NAMED(x) x##_u8
#include "blocks_integer.h"
#define INT int8_t
#define WIDE uint32_t
#define BITS 8
#define NAMED(x) x##_i8
#include "blocks_integer.h"
#define INT int16_t
#define WIDE uint32_t
#define BITS 16
#define NAMED(x) x##_i16
#include "blocks_integer.h"
#define INT uint16_t
#define WIDE uint32_t
#define BITS 16
#define NAMED(x) x##_u16
#include "blocks_integer.h"
#define INT int32_t
#define WIDE uint32_t
#define BITS 32
#define NAMED(x) x##_i32
#include "blocks_integer.h"
#define INT uint32_t
#define WIDE uint32_t
#define BITS 32
#define NAMED(x) x##_u32
#include "blocks_integer.h"
#define INT int64_t
#define WIDE uint64_t
#define BITS 64
#define NAMED(x) x##_i64
#include "blocks_integer.h"
#define INT uint64_t
#define WIDE uint64_t
#define BITS 64
#define NAMED(x) x##_u64
#include "blocks_integer.h"

#define REAL float
#define NAMED(x) x##_f32
#define LIBM(x) x##f
#include "blocks_float.h"
#define REAL double
#define NAMED(x) x##_f64
#define LIBM(x) x
#include "blocks_float.h"

/* bool: bytes 0 and 1. Addition is or, multiplication is and. */
BLOCK_UNARY(not_bool, uint8_t, uint8_t, x ^ 1)
BLOCK_BINARY(power_bool, uint8_t, uint8_t, x | (y ^ 1))

/* ---- functions of f32 ---- */
#define BLOCK_MATH(name, function)                                                        \
  static void name(void *out, const void *a, const void *b, const void *c, int64_t n) {   \
    (void)b, (void)c;                                                                     \
    TERN_V_MAP(function, out, a, n);                                                      \
  }
BLOCK_MATH(exp_f32, tern_v_exp)
BLOCK_MATH(expm1_f32, tern_v_expm1)
BLOCK_MATH(log_f32, tern_v_log)
BLOCK_MATH(log1p_f32, tern_v_log1p)
BLOCK_MATH(tanh_f32, tern_v_tanh)
BLOCK_MATH(logistic_f32, tern_v_logistic)
BLOCK_MATH(erf_f32, tern_v_erf)
BLOCK_MATH(sine_f32, tern_v_sine)
BLOCK_MATH(cosine_f32, tern_v_cosine)
BLOCK_MATH(floor_f32, vf32_floor)
BLOCK_MATH(round_even_f32, vf32_round)
TERN_INLINE vf32 ceiling(vf32 x) { return -vf32_floor(-x); }
BLOCK_MATH(ceil_f32, ceiling)

/* ---- functions of f64: the C library's ---- */
BLOCK_UNARY(floor_f64, double, double, floor(x))
BLOCK_UNARY(ceil_f64, double, double, ceil(x))
BLOCK_UNARY(round_even_f64, double, double, rint(x))
BLOCK_UNARY(exp_f64, double, double, exp(x))
BLOCK_UNARY(expm1_f64, double, double, expm1(x))
BLOCK_UNARY(log_f64, double, double, log(x))
BLOCK_UNARY(log1p_f64, double, double, log1p(x))
BLOCK_UNARY(tanh_f64, double, double, tanh(x))
static inline double logistic(double x) {
  double e = exp(-fabs(x));
  return (x < 0 ? e : 1.0) / (1.0 + e);
}
BLOCK_UNARY(logistic_f64, double, double, logistic(x))
BLOCK_UNARY(erf_f64, double, double, erf(x))
/* What nobody asks for often enough to deserve vectors: the C library's in both. f32 goes through f64, whose library is the more exact one. */
static inline double log_gamma(double x) {
  int sign;
  return lgamma_r(x, &sign);
}
BLOCK_UNARY(erfc_f64, double, double, erfc(x))
BLOCK_UNARY(erfc_f32, float, float, (float)erfc((double)x))
BLOCK_UNARY(lgamma_f64, double, double, log_gamma(x))
BLOCK_UNARY(lgamma_f32, float, float, (float)log_gamma((double)x))
BLOCK_UNARY(sine_f64, double, double, sin(x))
BLOCK_UNARY(cosine_f64, double, double, cos(x))

/* ---- f16 and bf16 ---- */
#define BLOCK_HALF(name, load, store)                                                     \
  static void name##_load(void *out, const void *a, const void *b, const void *c, int64_t n) { \
    (void)b, (void)c;                                                                     \
    float *o = out;                                                                       \
    const uint16_t *p = a;                                                                \
    int64_t i = 0;                                                                        \
    for (; i + VF32_LANES <= n; i += VF32_LANES) vf32_store(o + i, load(p + i));          \
    if (i == n) return;                                                                   \
    uint16_t rest[VF32_LANES] = {0};                                                      \
    memcpy(rest, p + i, (size_t)(n - i) * sizeof *p);                                     \
    vf32_store_n(o + i, n - i, load(rest));                                               \
  }                                                                                       \
  static void name##_store(void *out, const void *a, const void *b, const void *c, int64_t n) { \
    (void)b, (void)c;                                                                     \
    uint16_t *o = out;                                                                    \
    const float *p = a;                                                                   \
    int64_t i = 0;                                                                        \
    for (; i + VF32_LANES <= n; i += VF32_LANES) store(o + i, vf32_load(p + i));          \
    if (i == n) return;                                                                   \
    uint16_t rest[VF32_LANES];                                                            \
    store(rest, vf32_load_n(p + i, n - i, 0.0f));                                         \
    memcpy(o + i, rest, (size_t)(n - i) * sizeof *o);                                     \
  }
BLOCK_HALF(f16, vf32_load_f16, vf32_store_f16)
BLOCK_HALF(bf16, vf32_load_bf16, vf32_store_bf16)
TERN_INLINE vf32 round_f16_vector(vf32 x) {
  uint16_t half[VF32_LANES];
  vf32_store_f16(half, x);
  return vf32_load_f16(half);
}
BLOCK_MATH(round_f16, round_f16_vector)
BLOCK_MATH(round_bf16, vf32_round_bf16)

/* ---- selection and plain copies, by size ---- */
typedef struct { uint64_t low, high; } pair16;
#define BLOCK_SELECT(name, TYPE)                                                          \
  static void name(void *out, const void *a, const void *b, const void *c, int64_t n) {   \
    TYPE *o = out;                                                                        \
    const uint8_t *condition = a;                                                         \
    const TYPE *p = b, *q = c;                                                            \
    BLOCK_FOR {                                                                           \
      const TYPE x = p[i], y = q[i];                                                      \
      o[i] = condition[i] ? x : y;                                                        \
    }                                                                                     \
  }
BLOCK_SELECT(select_1, uint8_t)
BLOCK_SELECT(select_2, uint16_t)
BLOCK_SELECT(select_4, uint32_t)
BLOCK_SELECT(select_8, uint64_t)
BLOCK_SELECT(select_16, pair16)
#define BLOCK_COPY(name, size)                                                            \
  static void name(void *out, const void *a, const void *b, const void *c, int64_t n) {   \
    (void)b, (void)c;                                                                     \
    memmove(out, a, (size_t)n * size);                                                    \
  }
BLOCK_COPY(copy_1, 1)
BLOCK_COPY(copy_2, 2)
BLOCK_COPY(copy_4, 4)
BLOCK_COPY(copy_8, 8)
BLOCK_COPY(copy_16, 16)

/* ---- the machine ---- */
#define INTEGERS(name)                                                                                          \
  [TERN_U8] = name##_u8, [TERN_I8] = name##_i8, [TERN_I16] = name##_i16, [TERN_I32] = name##_i32, [TERN_I64] = name##_i64, \
  [TERN_U16] = name##_u16, [TERN_U32] = name##_u32, [TERN_U64] = name##_u64
#define REALS(name) [TERN_F32] = name##_f32, [TERN_F64] = name##_f64
#define CONVERSIONS(DTYPE, name)                                                                          \
  [TERN_##DTYPE] = {[TERN_BOOL] = to_bool_##name, [TERN_U8] = to_u8_##name, [TERN_I8] = to_i8_##name, [TERN_I16] = to_i16_##name, \
                    [TERN_U16] = to_u16_##name, [TERN_I32] = to_i32_##name, [TERN_U32] = to_u32_##name, [TERN_I64] = to_i64_##name, \
                    [TERN_U64] = to_u64_##name, [TERN_F32] = to_f32_##name, [TERN_F64] = to_f64_##name

static tern_block_machine machine = {
    .operation =
        {
            [TERN_OP_ABS] = {INTEGERS(abs), REALS(abs)},
            [TERN_OP_NEGATE] = {INTEGERS(negate), REALS(negate)},
            [TERN_OP_SIGN] = {INTEGERS(sign), REALS(sign)},
            [TERN_OP_FLOOR] = {REALS(floor)},
            [TERN_OP_CEIL] = {REALS(ceil)},
            [TERN_OP_ROUND_EVEN] = {REALS(round_even)},
            [TERN_OP_EXP] = {REALS(exp)},
            [TERN_OP_EXPM1] = {REALS(expm1)},
            [TERN_OP_LOG] = {REALS(log)},
            [TERN_OP_LOG1P] = {REALS(log1p)},
            [TERN_OP_SQRT] = {REALS(sqrt)},
            [TERN_OP_RSQRT] = {REALS(rsqrt)},
            [TERN_OP_TANH] = {REALS(tanh)},
            [TERN_OP_LOGISTIC] = {REALS(logistic)},
            [TERN_OP_SINE] = {REALS(sine)},
            [TERN_OP_COSINE] = {REALS(cosine)},
            [TERN_OP_ERF] = {REALS(erf)},
            [TERN_OP_ERFC] = {REALS(erfc)},
            [TERN_OP_LGAMMA] = {REALS(lgamma)},
            [TERN_OP_NOT] = {INTEGERS(not), [TERN_BOOL] = not_bool},
            [TERN_OP_IS_FINITE] = {REALS(is_finite)},
            [TERN_OP_ADD] = {INTEGERS(add), REALS(add), [TERN_BOOL] = or_u8},
            [TERN_OP_SUBTRACT] = {INTEGERS(subtract), REALS(subtract), [TERN_BOOL] = xor_u8},
            [TERN_OP_MULTIPLY] = {INTEGERS(multiply), REALS(multiply), [TERN_BOOL] = and_u8},
            [TERN_OP_DIVIDE] = {INTEGERS(divide), REALS(divide)},
            [TERN_OP_REMAINDER] = {INTEGERS(remainder), REALS(remainder)},
            [TERN_OP_POWER] = {INTEGERS(power), REALS(power), [TERN_BOOL] = power_bool},
            [TERN_OP_MAXIMUM] = {INTEGERS(maximum), REALS(maximum), [TERN_BOOL] = or_u8},
            [TERN_OP_MINIMUM] = {INTEGERS(minimum), REALS(minimum), [TERN_BOOL] = and_u8},
            [TERN_OP_ATAN2] = {REALS(atan2)},
            [TERN_OP_AND] = {INTEGERS(and), [TERN_BOOL] = and_u8},
            [TERN_OP_OR] = {INTEGERS(or), [TERN_BOOL] = or_u8},
            [TERN_OP_XOR] = {INTEGERS(xor), [TERN_BOOL] = xor_u8},
            [TERN_OP_SHIFT_LEFT] = {INTEGERS(shift_left)},
            [TERN_OP_SHIFT_RIGHT] = {INTEGERS(shift_right)},
        },
    .compare =
        {
            [TERN_EQ] = {INTEGERS(eq), REALS(eq), [TERN_BOOL] = eq_u8},
            [TERN_NE] = {INTEGERS(ne), REALS(ne), [TERN_BOOL] = ne_u8},
            [TERN_LT] = {INTEGERS(lt), REALS(lt), [TERN_BOOL] = lt_u8},
            [TERN_LE] = {INTEGERS(le), REALS(le), [TERN_BOOL] = le_u8},
            [TERN_GT] = {INTEGERS(gt), REALS(gt), [TERN_BOOL] = gt_u8},
            [TERN_GE] = {INTEGERS(ge), REALS(ge), [TERN_BOOL] = ge_u8},
        },
    .convert =
        {
            CONVERSIONS(BOOL, u8)},
            CONVERSIONS(U8, u8)},
            CONVERSIONS(I8, i8)},
            CONVERSIONS(I16, i16)},
            CONVERSIONS(U16, u16)},
            CONVERSIONS(I32, i32)},
            CONVERSIONS(U32, u32)},
            CONVERSIONS(I64, i64)},
            CONVERSIONS(U64, u64)},
            CONVERSIONS(F32, f32), [TERN_F16] = f16_store, [TERN_BF16] = bf16_store},
            CONVERSIONS(F64, f64)},
            [TERN_F16] = {[TERN_F32] = f16_load},
            [TERN_BF16] = {[TERN_F32] = bf16_load},
        },
    .select = {[1] = select_1, [2] = select_2, [4] = select_4, [8] = select_8, [16] = select_16},
    .copy_block = {[1] = copy_1, [2] = copy_2, [4] = copy_4, [8] = copy_8, [16] = copy_16},
    .round = {[TERN_F16] = round_f16, [TERN_BF16] = round_bf16},
};

const tern_block_machine *TERN_ISA_NAME(tern_block_machine_get)(void) {
  TERN_ISA_NAME(tern_block_moves)(&machine);
  TERN_ISA_NAME(tern_block_reductions)(&machine);
  TERN_ISA_NAME(tern_block_chains)(&machine);
  return &machine;
}
