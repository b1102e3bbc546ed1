/* Element types. The rows live in src/base/dtypes.def; this list is in the same order (tested). */
#ifndef TERN_DTYPE_H
#define TERN_DTYPE_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "tern/status.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum tern_dtype {
  TERN_BOOL, TERN_U8, TERN_I8, TERN_I16, TERN_I32, TERN_I64, TERN_U16, TERN_U32, TERN_U64,
  TERN_F16, TERN_BF16, TERN_F32, TERN_F64, TERN_C64, TERN_C128,
  TERN_DTYPE_COUNT
} tern_dtype;

TERN_API const char *tern_dtype_name(tern_dtype dtype); /* "f32" */
TERN_API size_t tern_dtype_size(tern_dtype dtype);      /* bytes of one element */
TERN_API bool tern_dtype_is_float(tern_dtype dtype);    /* f16, bf16, f32, f64 */
TERN_API bool tern_dtype_is_complex(tern_dtype dtype);
TERN_API bool tern_dtype_is_integer(tern_dtype dtype);  /* signed or unsigned, bool not among them */
TERN_API bool tern_dtype_is_signed(tern_dtype dtype);   /* false for bool and unsigned integers */

#ifdef __cplusplus
}
#endif
#endif
