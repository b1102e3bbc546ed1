/* composites: what the named composites mean, as programs of operations that every plug-in has. tern_program_decompose (ir/ir.h) is the room's
 * door; this header is for its files, one a family, and the table that leads to them.
 *
 * A decomposition computes f16 and bf16 in f32 and rounds once at the end. */
#ifndef TERN_COMPOSITES_H
#define TERN_COMPOSITES_H
#include "../ir/ir.h"

/* One operation to be replaced: its kind and attributes, its operands as values of the program `p` that is built (TERN_NO_VALUE where absent), and what its results
 * are. Appends to `p` and fills `out` with one value per result. Errors stay in `p`. */
typedef struct tern_decomposition {
  tern_program *p;
  const tern_op *op;
  const tern_value *operands;
  const tern_value_info *results;
  tern_value *out;
} tern_decomposition;
typedef void (*tern_decomposer)(const tern_decomposition *d);

/* NULL for operations that stay as they are. */
extern const tern_decomposer tern_decomposers[TERN_OP_COUNT];

void tern_decompose_erf(const tern_decomposition *d);
void tern_decompose_erfc(const tern_decomposition *d);
void tern_decompose_lgamma(const tern_decomposition *d);
void tern_decompose_philox(const tern_decomposition *d);
void tern_decompose_softmax(const tern_decomposition *d);
void tern_decompose_log_softmax(const tern_decomposition *d);
void tern_decompose_softmax_grad(const tern_decomposition *d);
void tern_decompose_log_softmax_grad(const tern_decomposition *d);
void tern_decompose_layer_norm(const tern_decomposition *d);
void tern_decompose_layer_norm_grad(const tern_decomposition *d);
void tern_decompose_batch_norm(const tern_decomposition *d);
void tern_decompose_batch_norm_grad(const tern_decomposition *d);
void tern_decompose_gelu(const tern_decomposition *d);
void tern_decompose_gelu_grad(const tern_decomposition *d);
void tern_decompose_attention(const tern_decomposition *d);
void tern_decompose_attention_grad(const tern_decomposition *d);
void tern_decompose_conv_input_grad(const tern_decomposition *d);
void tern_decompose_conv_weight_grad(const tern_decomposition *d);
void tern_decompose_lstm(const tern_decomposition *d);
void tern_decompose_lstm_grad(const tern_decomposition *d);
void tern_decompose_max_pool(const tern_decomposition *d);
void tern_decompose_max_pool_grad(const tern_decomposition *d);
void tern_decompose_avg_pool(const tern_decomposition *d);
void tern_decompose_avg_pool_grad(const tern_decomposition *d);

/* ---- parts that several families use; private to the room ---- */
/* Operand i in the dtype it is computed in. */
static inline tern_value tern_part_wide(const tern_decomposition *d, int i) {
  return tern_convert(d->p, d->operands[i], tern_dtype_wide(tern_value_dtype(d->p, d->operands[i])));
}
static inline bool tern_part_has(const tern_decomposition *d, int i) { return d->operands[i] != TERN_NO_VALUE; }
/* Result i is x, converted to the result's dtype and, where x has another shape of as many elements, reshaped. */
static inline void tern_part_result(const tern_decomposition *d, int i, tern_value x) {
  x = tern_convert(d->p, x, d->results[i].dtype);
  d->out[i] = tern_reshape(d->p, x, d->results[i].rank, d->results[i].dims);
}
/* A number of x's dtype and rank 0: binary operations stretch it. */
static inline tern_value tern_part_number(tern_program *p, tern_value x, double value) { return tern_constant_float(p, tern_value_dtype(p, x), 0, NULL, value); }
static inline tern_value tern_part_scaled(tern_program *p, tern_value x, double factor) { return tern_multiply(p, x, tern_part_number(p, x, factor)); }
static inline tern_value tern_part_zeros(const tern_decomposition *d, int i) {
  return tern_constant_int(d->p, d->results[i].dtype, d->results[i].rank, d->results[i].dims, 0);
}
/* Reduces, and keeps the dimensions with size 1. */
tern_value tern_part_reduce_keep(tern_program *p, tern_reduction how, tern_value x, int n, const int *dims);

#endif
