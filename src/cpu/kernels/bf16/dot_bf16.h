/* dot_bf16: products of bf16 on processors with instructions for them: a matrix unit (AMX-TILE, AMX-BF16) or AVX512-BF16. These are few kernels: each such instruction
 * set's table is AVX-512's with some rows replaced (table.c). */
#ifndef TERN_DOT_BF16_H
#define TERN_DOT_BF16_H
#include "../dot.h"

/* Whether a product is one for these instructions: by types and shape alone. */
bool TERN_ISA_NAME(tern_dot_bf16_serves)(const tern_gemm_product *product);
size_t TERN_ISA_NAME(tern_dot_bf16_scratch)(const tern_gemm_product *product); /* pointers in the product are not read */
tern_status TERN_ISA_NAME(tern_dot_bf16_run)(const tern_gemm_product *product, void *scratch);

#endif
