/* Programs: building, verifying and printing tern's intermediate language.
 *
 * A program is a list of operations on values in static single assignment: every value is an N-dimensional array with a static dtype and
 * shape, made by one operation, never changed. Operations have StableHLO's names and meaning; src/ir/ops.def is the table and settles
 * every corner. Broadcasting is explicit. Strides and storage are not part of a program: parameters and results are dense, row-major.
 *
 * A builder appends to one program. Its functions return the new value; on an error (wrong shape, no memory) they return TERN_NO_VALUE and
 * the builder keeps the first error, so that a lowering can be written without a check per line: tern_program_finish reports it.
 * A program is used by one thread while it is built and may be shared, read-only, afterwards. */
#ifndef TERN_IR_H
#define TERN_IR_H
#include "tern/dtype.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tern_program tern_program;
typedef int32_t tern_value;      /* an index into the program's values */
#define TERN_NO_VALUE ((tern_value)-1)

typedef enum tern_comparison { TERN_EQ, TERN_NE, TERN_LT, TERN_LE, TERN_GT, TERN_GE } tern_comparison;
typedef enum tern_reduction { TERN_SUM, TERN_PROD, TERN_MAX, TERN_MIN, TERN_ALL, TERN_ANY } tern_reduction;
typedef enum tern_combine { TERN_SET, TERN_COMBINE_ADD, TERN_COMBINE_MULTIPLY, TERN_COMBINE_MAX, TERN_COMBINE_MIN } tern_combine;

/* A convolution or pooling window: `spatial` = 1, 2 or 3 dimensions; padding may be negative. */
typedef struct tern_window {
  int32_t spatial;
  int64_t stride[3], pad_low[3], pad_high[3], dilation[3];
  int64_t size[3];        /* pooling only */
  int64_t groups;         /* convolution only, >= 1 */
  bool count_padding;     /* average pooling only: padded zeros count in the divisor */
  int64_t divisor;        /* average pooling only: a fixed divisor, or 0 */
} tern_window;

/* ---- life ---- */
TERN_API tern_status tern_program_new(tern_program **out);
TERN_API void tern_program_free(tern_program *program);
/* Verifies and closes the program: the first error of the builder, or of the verifier. */
TERN_API tern_status tern_program_finish(tern_program *program);
/* The program as text (documented in docs/ir.md); owned by the caller, free() it. NULL without memory. */
TERN_API char *tern_program_text(const tern_program *program);

/* ---- parameters and results ---- */
/* A dense row-major array handed in at each launch. Parameters are numbered in the order of these calls. */
TERN_API tern_value tern_parameter(tern_program *p, tern_dtype dtype, int rank, const int64_t *dims);
/* A number handed in at each launch by value (learning rate, seed ...): a value of rank 0. Scalars are numbered in the order of these calls,
 * apart from parameters; dtype one of bool, i32, i64, u32, u64, f32, f64. A launch passes each as one 64-bit word. */
TERN_API tern_value tern_scalar(tern_program *p, tern_dtype dtype);
/* Makes `value` the next result. `reuses` is the number of the parameter whose storage the result may take over, or -1: the parameter
 * is then spent by the launch. Each parameter is reused at most once. */
TERN_API void tern_result(tern_program *p, tern_value value, int reuses);

/* ---- what a value is ---- */
TERN_API tern_dtype tern_value_dtype(const tern_program *p, tern_value v);
TERN_API int tern_value_rank(const tern_program *p, tern_value v);
TERN_API const int64_t *tern_value_dims(const tern_program *p, tern_value v);

/* ---- operations; the row of the same name in ops.def says what each means ---- */
TERN_API tern_value tern_constant_int(tern_program *p, tern_dtype dtype, int rank, const int64_t *dims, int64_t value);
TERN_API tern_value tern_constant_float(tern_program *p, tern_dtype dtype, int rank, const int64_t *dims, double value);
TERN_API tern_value tern_iota(tern_program *p, tern_dtype dtype, int rank, const int64_t *dims, int dim);
TERN_API tern_value tern_philox(tern_program *p, tern_value seed, tern_value offset, int rank, const int64_t *dims);

TERN_API tern_value tern_abs(tern_program *p, tern_value x);
TERN_API tern_value tern_negate(tern_program *p, tern_value x);
TERN_API tern_value tern_sign(tern_program *p, tern_value x);
TERN_API tern_value tern_floor(tern_program *p, tern_value x);
TERN_API tern_value tern_ceil(tern_program *p, tern_value x);
TERN_API tern_value tern_round_even(tern_program *p, tern_value x);
TERN_API tern_value tern_exp(tern_program *p, tern_value x);
TERN_API tern_value tern_expm1(tern_program *p, tern_value x);
TERN_API tern_value tern_log(tern_program *p, tern_value x);
TERN_API tern_value tern_log1p(tern_program *p, tern_value x);
TERN_API tern_value tern_sqrt(tern_program *p, tern_value x);
TERN_API tern_value tern_rsqrt(tern_program *p, tern_value x);
TERN_API tern_value tern_tanh(tern_program *p, tern_value x);
TERN_API tern_value tern_logistic(tern_program *p, tern_value x);
TERN_API tern_value tern_sine(tern_program *p, tern_value x);
TERN_API tern_value tern_cosine(tern_program *p, tern_value x);
TERN_API tern_value tern_erf(tern_program *p, tern_value x);
TERN_API tern_value tern_erfc(tern_program *p, tern_value x);
TERN_API tern_value tern_lgamma(tern_program *p, tern_value x);
TERN_API tern_value tern_not(tern_program *p, tern_value x);
TERN_API tern_value tern_is_finite(tern_program *p, tern_value x);
/* Returns x itself where it has the dtype already. */
TERN_API tern_value tern_convert(tern_program *p, tern_value x, tern_dtype dtype);
TERN_API tern_value tern_bitcast(tern_program *p, tern_value x, tern_dtype dtype);

/* Elementwise on two values of equal dtype. Here, and only here, shapes may differ: the builder inserts the explicit broadcast by
 * NumPy's rule (aligned at the last dimension, size 1 stretches). */
TERN_API tern_value tern_add(tern_program *p, tern_value x, tern_value y);
TERN_API tern_value tern_subtract(tern_program *p, tern_value x, tern_value y);
TERN_API tern_value tern_multiply(tern_program *p, tern_value x, tern_value y);
TERN_API tern_value tern_divide(tern_program *p, tern_value x, tern_value y);
TERN_API tern_value tern_remainder(tern_program *p, tern_value x, tern_value y);
TERN_API tern_value tern_power(tern_program *p, tern_value x, tern_value y);
TERN_API tern_value tern_maximum(tern_program *p, tern_value x, tern_value y);
TERN_API tern_value tern_minimum(tern_program *p, tern_value x, tern_value y);
TERN_API tern_value tern_atan2(tern_program *p, tern_value x, tern_value y);
TERN_API tern_value tern_and(tern_program *p, tern_value x, tern_value y);
TERN_API tern_value tern_or(tern_program *p, tern_value x, tern_value y);
TERN_API tern_value tern_xor(tern_program *p, tern_value x, tern_value y);
TERN_API tern_value tern_shift_left(tern_program *p, tern_value x, tern_value y);
TERN_API tern_value tern_shift_right(tern_program *p, tern_value x, tern_value y);
TERN_API tern_value tern_compare(tern_program *p, tern_comparison how, tern_value x, tern_value y);
TERN_API tern_value tern_select(tern_program *p, tern_value condition, tern_value x, tern_value y); /* broadcasts too */

TERN_API tern_value tern_broadcast_in_dim(tern_program *p, tern_value x, int rank, const int64_t *dims, const int *result_dims);
/* NumPy's broadcast_to. Returns x itself where nothing changes. */
TERN_API tern_value tern_broadcast_to(tern_program *p, tern_value x, int rank, const int64_t *dims);
TERN_API tern_value tern_reshape(tern_program *p, tern_value x, int rank, const int64_t *dims); /* x itself where nothing changes */
TERN_API tern_value tern_transpose(tern_program *p, tern_value x, const int *permutation);      /* x itself where nothing changes */
TERN_API tern_value tern_slice(tern_program *p, tern_value x, const int64_t *start, const int64_t *limit, const int64_t *stride); /* x itself where nothing changes */
TERN_API tern_value tern_reverse(tern_program *p, tern_value x, int n, const int *dims);
TERN_API tern_value tern_update_slice(tern_program *p, tern_value base, tern_value update, const int64_t *start, const int64_t *stride);
TERN_API tern_value tern_pad(tern_program *p, tern_value x, tern_value value, const int64_t *low, const int64_t *high, const int64_t *interior);
TERN_API tern_value tern_concatenate(tern_program *p, int n, const tern_value *values, int dim);

TERN_API tern_value tern_reduce(tern_program *p, tern_reduction how, tern_value x, int n, const int *dims);
/* *index may be NULL. */
TERN_API tern_value tern_arg_reduce(tern_program *p, tern_reduction how, tern_value x, int dim, tern_value *index);
TERN_API tern_value tern_scan(tern_program *p, tern_reduction how, tern_value x, int dim);
TERN_API tern_value tern_sort(tern_program *p, tern_value x, int dim, bool descending, tern_value *index); /* stable */
/* The same where only the first so many (> 0) of each line are read afterwards: the others are unspecified. */
TERN_API tern_value tern_sort_first(tern_program *p, tern_value x, int dim, bool descending, int64_t first, tern_value *index);

TERN_API tern_value tern_dot(tern_program *p, tern_value lhs, tern_value rhs, int n_batch, const int *lhs_batch, const int *rhs_batch,
                             int n_contract, const int *lhs_contract, const int *rhs_contract);
TERN_API tern_value tern_convolution(tern_program *p, tern_value x, tern_value w, const tern_window *window);
TERN_API tern_value tern_conv_input_grad(tern_program *p, tern_value gy, tern_value w, const tern_window *window, const int64_t *x_dims);
TERN_API tern_value tern_conv_weight_grad(tern_program *p, tern_value x, tern_value gy, const tern_window *window, const int64_t *w_dims);

TERN_API tern_value tern_take(tern_program *p, tern_value x, tern_value index, int dim);
TERN_API tern_value tern_gather(tern_program *p, tern_value x, tern_value index, int dim);
TERN_API tern_value tern_put(tern_program *p, tern_value base, tern_value index, tern_value update, int dim, tern_combine how);
TERN_API tern_value tern_scatter(tern_program *p, tern_value base, tern_value index, tern_value update, int dim, tern_combine how);
/* What a check guards, and so the words of its failure (src/ir/check.c). */
typedef enum tern_domain {
  TERN_DOMAIN_INDEX,       /* TERN_INDEX_OUT_OF_RANGE; the others TERN_OUT_OF_DOMAIN */
  TERN_DOMAIN_DIVISOR,     /* of an integer: not 0 */
  TERN_DOMAIN_PROBABILITY, /* within [0, 1] */
  TERN_DOMAIN_WEIGHT,      /* of a multinomial distribution: finite, not negative */
  TERN_DOMAIN_WEIGHT_SUM,  /* above 0 */
  TERN_DOMAIN_DEVIATION,   /* of a normal distribution: not negative */
  TERN_DOMAIN_COUNT
} tern_domain;

/* The launch fails with TERN_INDEX_OUT_OF_RANGE unless low <= every element <= high. */
TERN_API void tern_check_index(tern_program *p, tern_value index, int64_t low, int64_t high);
/* The launch fails with TERN_OUT_OF_DOMAIN unless every element of `holds`, bools of any shape, is true. */
TERN_API void tern_check_holds(tern_program *p, tern_value holds, tern_domain domain);

/* ---- composites: several results are returned in results[] ---- */
TERN_API tern_value tern_softmax(tern_program *p, tern_value x, int dim);
TERN_API tern_value tern_log_softmax(tern_program *p, tern_value x, int dim);
TERN_API tern_value tern_softmax_grad(tern_program *p, tern_value gy, tern_value y, int dim);
TERN_API tern_value tern_log_softmax_grad(tern_program *p, tern_value gy, tern_value y, int dim);
TERN_API void tern_layer_norm(tern_program *p, tern_value x, tern_value weight, tern_value bias, tern_value eps, int n_dims, tern_value results[3]);
TERN_API void tern_layer_norm_grad(tern_program *p, tern_value gy, tern_value x, tern_value mean, tern_value rstd, tern_value weight, int n_dims, tern_value results[3]);
TERN_API void tern_batch_norm(tern_program *p, tern_value x, tern_value weight, tern_value bias, tern_value eps, tern_value results[4]);
TERN_API void tern_batch_norm_grad(tern_program *p, tern_value gy, tern_value x, tern_value weight, tern_value mean, tern_value invstd, bool training, tern_value results[3]);
TERN_API tern_value tern_gelu(tern_program *p, tern_value x, bool tanh_form);
TERN_API tern_value tern_gelu_grad(tern_program *p, tern_value gy, tern_value x, bool tanh_form);
TERN_API void tern_attention(tern_program *p, tern_value q, tern_value k, tern_value v, tern_value mask, tern_value scale, bool causal, tern_value results[2]);
TERN_API void tern_attention_grad(tern_program *p, tern_value gout, tern_value q, tern_value k, tern_value v, tern_value out, tern_value lse,
                                  tern_value mask, tern_value scale, bool causal, tern_value results[3]);
TERN_API void tern_lstm(tern_program *p, tern_value gates, tern_value w, tern_value bias, tern_value hidden, tern_value cell, bool reverse, tern_value results[3]);
TERN_API void tern_lstm_grad(tern_program *p, tern_value gstates, tern_value ghidden, tern_value gcell, tern_value activated, tern_value cells, tern_value cell,
                             tern_value w, bool reverse, tern_value results[3]);
TERN_API void tern_max_pool(tern_program *p, tern_value x, const tern_window *window, const int64_t *y_spatial, tern_value results[2]);
TERN_API tern_value tern_max_pool_grad(tern_program *p, tern_value gy, tern_value index, const tern_window *window, const int64_t *x_dims);
TERN_API tern_value tern_avg_pool(tern_program *p, tern_value x, const tern_window *window, const int64_t *y_spatial);
TERN_API tern_value tern_avg_pool_grad(tern_program *p, tern_value gy, const tern_window *window, const int64_t *x_dims);

#ifdef __cplusplus
}
#endif
#endif
