/* amx: kernels for processors with a matrix unit (AMX-TILE, AMX-BF16). They are few: their table is AVX-512's with some rows replaced (table.c). */
#ifndef TERN_AMX_H
#define TERN_AMX_H
#include "../dot.h"

/* Whether a product is one for the matrix unit: by types and shape alone. */
bool tern_dot_bf16_serves_amx(const tern_gemm_product *product);
size_t tern_dot_bf16_scratch_amx(const tern_gemm_product *product); /* pointers in the product are not read */
tern_status tern_dot_bf16_run_amx(const tern_gemm_product *product, void *scratch);

#endif
