/* promotion: PyTorch's rules for the dtype of a result (c10/core/ScalarType.cpp, aten/src/ATen/native/TypeProperties.cpp).
 *
 * Rows call these while they infer; nothing here touches a tensor's data or allocates. */
#include "helpers.h"

/* No common type: PyTorch refuses to mix u16, u32 and u64 with other integers, so rows fall back and PyTorch raises. */
enum { X = TERN_DTYPE_COUNT };
#define B TERN_BOOL
#define U8 TERN_U8
#define I8 TERN_I8
#define I16 TERN_I16
#define I32 TERN_I32
#define I64 TERN_I64
#define U16 TERN_U16
#define U32 TERN_U32
#define U64 TERN_U64
#define H TERN_F16
#define G TERN_BF16
#define F TERN_F32
#define D TERN_F64
#define C TERN_C64
#define Z TERN_C128
/* torch.promote_types for every pair, in the order of dtypes.def. */
static const uint8_t common[TERN_DTYPE_COUNT][TERN_DTYPE_COUNT] = {
    /*         b    u8   i8   i16  i32  i64  u16  u32  u64  f16 bf16 f32 f64 c64 c128 */
    /* bool */ {B, U8, I8, I16, I32, I64, X, X, X, H, G, F, D, C, Z},
    /* u8   */ {U8, U8, I16, I16, I32, I64, X, X, X, H, G, F, D, C, Z},
    /* i8   */ {I8, I16, I8, I16, I32, I64, X, X, X, H, G, F, D, C, Z},
    /* i16  */ {I16, I16, I16, I16, I32, I64, X, X, X, H, G, F, D, C, Z},
    /* i32  */ {I32, I32, I32, I32, I32, I64, X, X, X, H, G, F, D, C, Z},
    /* i64  */ {I64, I64, I64, I64, I64, I64, X, X, X, H, G, F, D, C, Z},
    /* u16  */ {X, X, X, X, X, X, U16, X, X, H, G, F, D, X, X},
    /* u32  */ {X, X, X, X, X, X, X, U32, X, H, G, F, D, X, X},
    /* u64  */ {X, X, X, X, X, X, X, X, U64, H, G, F, D, X, X},
    /* f16  */ {H, H, H, H, H, H, H, H, H, H, F, F, D, C, Z},
    /* bf16 */ {G, G, G, G, G, G, G, G, G, F, G, F, D, C, Z},
    /* f32  */ {F, F, F, F, F, F, F, F, F, F, F, F, D, C, Z},
    /* f64  */ {D, D, D, D, D, D, D, D, D, D, D, D, D, Z, Z},
    /* c64  */ {C, C, C, C, C, C, X, X, X, C, C, C, Z, C, Z},
    /* c128 */ {Z, Z, Z, Z, Z, Z, X, X, X, Z, Z, Z, Z, Z, Z},
};
#undef B
#undef U8
#undef I8
#undef I16
#undef I32
#undef I64
#undef U16
#undef U32
#undef U64
#undef H
#undef G
#undef F
#undef D
#undef C
#undef Z

static uint8_t default_dtype = TERN_F32; /* torch.get_default_dtype(); one byte, so that a torn read is impossible */

void tern_aten_set_default_dtype(tern_dtype dtype) { __atomic_store_n(&default_dtype, (uint8_t)dtype, __ATOMIC_RELAXED); }
tern_dtype tern_aten_default_dtype(void) { return (tern_dtype)__atomic_load_n(&default_dtype, __ATOMIC_RELAXED); }

tern_dtype tern_promote_types(tern_dtype a, tern_dtype b) {
  return a >= TERN_DTYPE_COUNT || b >= TERN_DTYPE_COUNT ? TERN_DTYPE_COUNT : (tern_dtype)common[a][b];
}

static int promote_present(int a, int b) {
  if (a < 0) return b;
  if (b < 0) return a;
  return (int)tern_promote_types((tern_dtype)a, (tern_dtype)b);
}

void tern_promotion_add_tensor(tern_promotion *p, const tern_tensor *tensor) {
  int dtype = tensor->dtype;
  if (TERN_UNLIKELY(dtype >= TERN_DTYPE_COUNT)) {
    p->dimensioned = TERN_DTYPE_COUNT;
  } else if (TERN_LIKELY(tensor->rank > 0)) {
    p->dimensioned = p->dimensioned == dtype ? dtype : promote_present(p->dimensioned, dtype);
  } else if (tensor->is_wrapped_number) {
    if (tern_dtype_is_float((tern_dtype)dtype)) dtype = (int)tern_aten_default_dtype();
    if (tern_dtype_is_complex((tern_dtype)dtype)) dtype = tern_aten_default_dtype() == TERN_F64 ? TERN_C128 : TERN_C64;
    p->wrapped = promote_present(p->wrapped, dtype);
  } else {
    p->zero_dim = promote_present(p->zero_dim, dtype);
  }
}

void tern_promotion_add(tern_promotion *p, const tern_argument *argument) {
  switch (argument->tag) {
    case TERN_ARG_TENSOR:
      tern_promotion_add_tensor(p, &argument->u.tensor);
      break;
    case TERN_ARG_TENSORS:
      for (int i = 0; i < argument->n; i++)
        if (argument->u.tensors[i].sizes) tern_promotion_add_tensor(p, &argument->u.tensors[i]);
      break;
    case TERN_ARG_INT:
      p->wrapped = promote_present(p->wrapped, TERN_I64);
      break;
    case TERN_ARG_DOUBLE:
      p->wrapped = promote_present(p->wrapped, (int)tern_aten_default_dtype());
      break;
    case TERN_ARG_BOOL:
      p->wrapped = promote_present(p->wrapped, TERN_BOOL);
      break;
    default:
      break;
  }
}

/* A higher category decides alone unless the lower one is of a higher kind (bool < integer < float < complex). */
static int combine_categories(int higher, int lower) {
  if (higher < 0 || higher >= TERN_DTYPE_COUNT) return higher < 0 ? lower : higher;
  if (lower < 0) return higher;
  if (lower >= TERN_DTYPE_COUNT) return lower;
  if (tern_dtype_is_complex((tern_dtype)higher)) return higher;
  if (tern_dtype_is_float((tern_dtype)higher)) {
    if (!tern_dtype_is_complex((tern_dtype)lower)) return higher;
    return higher == TERN_F64 ? TERN_C128 : higher == TERN_F16 ? X : TERN_C64; /* PyTorch's ComplexHalf is not among tern's dtypes */
  }
  if (tern_dtype_is_complex((tern_dtype)lower)) return lower;
  if (higher == TERN_BOOL || tern_dtype_is_float((tern_dtype)lower)) return promote_present(higher, lower);
  return higher;
}

tern_dtype tern_promotion_result(const tern_promotion *p) {
  int dtype = p->dimensioned;
  if (TERN_UNLIKELY((p->zero_dim & p->wrapped) >= 0 || dtype < 0)) /* at least one lower category */
    dtype = combine_categories(dtype, combine_categories(p->zero_dim, p->wrapped));
  return dtype < 0 ? TERN_DTYPE_COUNT : (tern_dtype)dtype;
}

bool tern_can_cast(tern_dtype from, tern_dtype to) {
  if (tern_dtype_is_complex(from) && !tern_dtype_is_complex(to)) return false;
  if (tern_dtype_is_float(from) && tern_dtype_is_integer(to)) return false;
  return from == TERN_BOOL || to != TERN_BOOL;
}

tern_dtype tern_compute_dtype(tern_dtype dtype) { return dtype == TERN_F16 || dtype == TERN_BF16 ? TERN_F32 : dtype; }
