/* evaluate: a slow, plain evaluator of programs: the oracle of the engine's and the decompositions' tests. Straight loops over dense arrays, one
 * operation after the other, every sum in double; nothing is clever, so that it can be believed. Composites are decomposed first, except erf.
 *
 *   tern_status evaluate(program, parameters, scalars, results)
 * parameters: one dense array each; scalars: one 64-bit word each; results: filled with arrays that the caller frees. Include it once per test. */
#ifndef TERN_TESTS_EVALUATE_H
#define TERN_TESTS_EVALUATE_H
#include <math.h>
#include "../../src/ir/ir.h"

/* ---- one element of any dtype: real and imaginary part, or an integer (unsigned ones and bool too) ---- */
typedef struct evaluate_number { double re, im; int64_t i; } evaluate_number;

static inline bool evaluate_is_real_dtype(tern_dtype d) { return tern_dtype_is_float(d); }

static evaluate_number evaluate_load_number(tern_dtype dtype, const void *array, int64_t at) {
  evaluate_number n = {0, 0, 0};
  const char *p = (const char *)array + (size_t)at * tern_dtype_size(dtype);
  uint16_t half;
  float single[2];
  double wide[2];
  switch (dtype) {
    case TERN_F16: memcpy(&half, p, 2); n.re = (double)tern_f16_to_f32(half); break;
    case TERN_BF16: memcpy(&half, p, 2); n.re = (double)tern_bf16_to_f32(half); break;
    case TERN_F32: memcpy(single, p, 4); n.re = (double)single[0]; break;
    case TERN_F64: memcpy(&n.re, p, 8); break;
    case TERN_C64: memcpy(single, p, 8); n.re = (double)single[0]; n.im = (double)single[1]; break;
    case TERN_C128: memcpy(wide, p, 16); n.re = wide[0]; n.im = wide[1]; break;
    default: {
      uint64_t bits = 0;
      int size = (int)tern_dtype_size(dtype);
      memcpy(&bits, p, (size_t)size);
      n.i = tern_dtype_is_signed(dtype) ? (int64_t)(bits << (64 - 8 * size)) >> (64 - 8 * size) : (int64_t)bits;
    }
  }
  return n;
}

static void evaluate_store_number(tern_dtype dtype, void *array, int64_t at, evaluate_number n) {
  char *p = (char *)array + (size_t)at * tern_dtype_size(dtype);
  float single[2] = {(float)n.re, (float)n.im};
  double wide[2] = {n.re, n.im};
  uint16_t half;
  switch (dtype) {
    case TERN_F16: half = tern_f32_to_f16(single[0]); memcpy(p, &half, 2); break;
    case TERN_BF16: half = tern_f32_to_bf16(single[0]); memcpy(p, &half, 2); break;
    case TERN_F32: memcpy(p, single, 4); break;
    case TERN_F64: memcpy(p, wide, 8); break;
    case TERN_C64: memcpy(p, single, 8); break;
    case TERN_C128: memcpy(p, wide, 16); break;
    case TERN_BOOL: *p = n.i != 0; break;
    default: memcpy(p, &n.i, tern_dtype_size(dtype)); break; /* wraps; little endian */
  }
}

/* a < b; NaN is the largest. */
static bool evaluate_number_less(tern_dtype dtype, evaluate_number a, evaluate_number b) {
  if (evaluate_is_real_dtype(dtype)) return isnan(b.re) ? !isnan(a.re) : a.re < b.re;
  return dtype == TERN_U64 ? (uint64_t)a.i < (uint64_t)b.i : a.i < b.i;
}

static evaluate_number evaluate_convert_number(tern_dtype from, tern_dtype to, evaluate_number n) {
  bool from_float = evaluate_is_real_dtype(from) || tern_dtype_is_complex(from), to_float = evaluate_is_real_dtype(to) || tern_dtype_is_complex(to);
  if (to == TERN_BOOL) return (evaluate_number){0, 0, from_float ? n.re != 0 || n.im != 0 : n.i != 0};
  if (from_float && to_float) return n;
  if (to_float) return (evaluate_number){from == TERN_U64 ? (double)(uint64_t)n.i : (double)n.i, 0, 0};
  if (!from_float) return n;
  if (isnan(n.re)) return (evaluate_number){0, 0, 0};
  int bits = 8 * (int)tern_dtype_size(to);
  bool is_signed = tern_dtype_is_signed(to);
  double low = is_signed ? -ldexp(1, bits - 1) : 0, high = ldexp(1, is_signed ? bits - 1 : bits), t = trunc(n.re);
  if (t < low) return (evaluate_number){0, 0, is_signed ? (int64_t)(~0ull << (bits - 1)) : 0};
  if (t >= high) return (evaluate_number){0, 0, (int64_t)(is_signed ? (1ull << (bits - 1)) - 1 : bits == 64 ? ~0ull : (1ull << bits) - 1)};
  return (evaluate_number){0, 0, is_signed ? (int64_t)t : (int64_t)(uint64_t)t};
}

/* ---- elementwise ---- */
static double evaluate_unary_double(tern_op_kind kind, double x) {
  switch (kind) {
    case TERN_OP_ABS: return fabs(x);
    case TERN_OP_NEGATE: return -x;
    case TERN_OP_SIGN: return isnan(x) || x == 0 ? x : x > 0 ? 1 : -1;
    case TERN_OP_FLOOR: return floor(x);
    case TERN_OP_CEIL: return ceil(x);
    case TERN_OP_ROUND_EVEN: return nearbyint(x);
    case TERN_OP_EXP: return exp(x);
    case TERN_OP_EXPM1: return expm1(x);
    case TERN_OP_LOG: return log(x);
    case TERN_OP_LOG1P: return log1p(x);
    case TERN_OP_SQRT: return sqrt(x);
    case TERN_OP_RSQRT: return 1 / sqrt(x);
    case TERN_OP_TANH: return tanh(x);
    case TERN_OP_LOGISTIC: return 1 / (1 + exp(-x));
    case TERN_OP_SINE: return sin(x);
    case TERN_OP_COSINE: return cos(x);
    case TERN_OP_ERF: return erf(x);
    case TERN_OP_ERFC: return erfc(x);
    case TERN_OP_LGAMMA: return lgamma(x);
    default: return NAN;
  }
}

static evaluate_number evaluate_unary_number(tern_op_kind kind, tern_dtype dtype, tern_dtype result, evaluate_number x) {
  if (kind == TERN_OP_CONVERT) return evaluate_convert_number(dtype, result, x);
  if (kind == TERN_OP_IS_FINITE) return (evaluate_number){0, 0, isfinite(x.re)};
  if (kind == TERN_OP_NOT) return (evaluate_number){0, 0, dtype == TERN_BOOL ? !x.i : ~x.i};
  if (evaluate_is_real_dtype(dtype)) return (evaluate_number){evaluate_unary_double(kind, x.re), 0, 0};
  if (tern_dtype_is_complex(dtype)) {
    double angle = exp(x.re);
    if (kind == TERN_OP_NEGATE) return (evaluate_number){-x.re, -x.im, 0};
    if (kind == TERN_OP_ABS) return (evaluate_number){hypot(x.re, x.im), 0, 0};
    if (kind == TERN_OP_EXP) return (evaluate_number){angle * cos(x.im), angle * sin(x.im), 0};
    return (evaluate_number){NAN, NAN, 0}; /* the tests need no more of the complex functions */
  }
  switch (kind) {
    case TERN_OP_ABS: return (evaluate_number){0, 0, tern_dtype_is_signed(dtype) && x.i < 0 ? (int64_t)(0 - (uint64_t)x.i) : x.i};
    case TERN_OP_NEGATE: return (evaluate_number){0, 0, (int64_t)(0 - (uint64_t)x.i)};
    case TERN_OP_SIGN: return (evaluate_number){0, 0, tern_dtype_is_signed(dtype) ? (x.i > 0) - (x.i < 0) : x.i != 0};
    default: return x;
  }
}

static evaluate_number evaluate_binary_float(tern_op_kind kind, evaluate_number x, evaluate_number y) {
  double a = x.re, b = y.re, r;
  switch (kind) {
    case TERN_OP_ADD: r = a + b; break;
    case TERN_OP_SUBTRACT: r = a - b; break;
    case TERN_OP_MULTIPLY: r = a * b; break;
    case TERN_OP_DIVIDE: r = a / b; break;
    case TERN_OP_REMAINDER: r = fmod(a, b); break;
    case TERN_OP_POWER: r = pow(a, b); break;
    case TERN_OP_MAXIMUM: r = isnan(a) || isnan(b) ? NAN : a > b || (a == b && !signbit(a)) ? a : b; break;
    case TERN_OP_MINIMUM: r = isnan(a) || isnan(b) ? NAN : a < b || (a == b && signbit(a)) ? a : b; break;
    default: r = atan2(a, b); break;
  }
  return (evaluate_number){r, 0, 0};
}

static evaluate_number evaluate_binary_complex(tern_op_kind kind, evaluate_number x, evaluate_number y) {
  double d = y.re * y.re + y.im * y.im;
  switch (kind) {
    case TERN_OP_ADD: return (evaluate_number){x.re + y.re, x.im + y.im, 0};
    case TERN_OP_SUBTRACT: return (evaluate_number){x.re - y.re, x.im - y.im, 0};
    case TERN_OP_MULTIPLY: return (evaluate_number){x.re * y.re - x.im * y.im, x.re * y.im + x.im * y.re, 0};
    case TERN_OP_DIVIDE: return (evaluate_number){(x.re * y.re + x.im * y.im) / d, (x.im * y.re - x.re * y.im) / d, 0};
    default: return (evaluate_number){NAN, NAN, 0};
  }
}

static uint64_t evaluate_power_integer(uint64_t base, uint64_t exponent) {
  uint64_t result = 1;
  for (; exponent; exponent >>= 1, base *= base)
    if (exponent & 1) result *= base;
  return result;
}

static evaluate_number evaluate_binary_integer(tern_op_kind kind, tern_dtype dtype, evaluate_number x, evaluate_number y) {
  bool is_signed = tern_dtype_is_signed(dtype);
  int bits = 8 * (int)tern_dtype_size(dtype);
  uint64_t a = (uint64_t)x.i, b = (uint64_t)y.i, r;
  bool beyond = b >= (uint64_t)bits; /* a negative shift too */
  switch (kind) {
    case TERN_OP_ADD: r = dtype == TERN_BOOL ? a | b : a + b; break;
    case TERN_OP_SUBTRACT: r = a - b; break;
    case TERN_OP_MULTIPLY: r = a * b; break;
    case TERN_OP_DIVIDE: r = b == 0 ? 0 : !is_signed ? a / b : y.i == -1 ? 0 - a : (uint64_t)(x.i / y.i); break;
    case TERN_OP_REMAINDER: r = b == 0 ? 0 : !is_signed ? a % b : y.i == -1 ? 0 : (uint64_t)(x.i % y.i); break;
    case TERN_OP_POWER:
      r = is_signed && y.i < 0 ? x.i == 1 ? 1 : x.i == -1 ? (y.i & 1 ? ~0ull : 1) : 0 : evaluate_power_integer(a, b);
      break;
    case TERN_OP_MAXIMUM: r = evaluate_number_less(dtype, x, y) ? b : a; break;
    case TERN_OP_MINIMUM: r = evaluate_number_less(dtype, y, x) ? b : a; break;
    case TERN_OP_AND: r = a & b; break;
    case TERN_OP_OR: r = a | b; break;
    case TERN_OP_XOR: r = a ^ b; break;
    case TERN_OP_SHIFT_LEFT: r = beyond ? 0 : a << b; break;
    default: r = is_signed ? (uint64_t)(x.i >> (beyond ? 63 : b)) : beyond ? 0 : a >> b; break;
  }
  return (evaluate_number){0, 0, (int64_t)r};
}

static evaluate_number evaluate_binary_number(tern_op_kind kind, tern_dtype dtype, evaluate_number x, evaluate_number y) {
  if (evaluate_is_real_dtype(dtype)) return evaluate_binary_float(kind, x, y);
  return tern_dtype_is_complex(dtype) ? evaluate_binary_complex(kind, x, y) : evaluate_binary_integer(kind, dtype, x, y);
}

static bool evaluate_compare_numbers(tern_comparison how, tern_dtype dtype, evaluate_number x, evaluate_number y) {
  bool unordered = isnan(x.re) || isnan(y.re) || isnan(x.im) || isnan(y.im), equal = x.re == y.re && x.im == y.im && x.i == y.i;
  bool less = !unordered && evaluate_number_less(dtype, x, y), greater = !unordered && evaluate_number_less(dtype, y, x);
  switch (how) {
    case TERN_EQ: return equal;
    case TERN_NE: return !equal;
    case TERN_LT: return less;
    case TERN_LE: return less || equal;
    case TERN_GT: return greater;
    default: return greater || equal;
  }
}

static evaluate_number evaluate_reduction_start(tern_reduction how, tern_dtype dtype) {
  bool is_signed = tern_dtype_is_signed(dtype);
  int bits = dtype == TERN_BOOL ? 1 : 8 * (int)tern_dtype_size(dtype);
  int64_t largest = (int64_t)(bits == 64 && !is_signed ? ~0ull : (1ull << (is_signed ? bits - 1 : bits)) - 1), smallest = is_signed ? -largest - 1 : 0;
  switch (how) {
    case TERN_SUM: case TERN_ANY: return (evaluate_number){0, 0, 0};
    case TERN_PROD: case TERN_ALL: return (evaluate_number){1, 0, 1};
    case TERN_MAX: return (evaluate_number){-INFINITY, 0, smallest};
    default: return (evaluate_number){INFINITY, 0, largest};
  }
}

static evaluate_number evaluate_reduce_two(tern_reduction how, tern_dtype dtype, evaluate_number x, evaluate_number y) {
  static const tern_op_kind kinds[] = {TERN_OP_ADD, TERN_OP_MULTIPLY, TERN_OP_MAXIMUM, TERN_OP_MINIMUM, TERN_OP_AND, TERN_OP_OR};
  return evaluate_binary_number(kinds[how], dtype, x, y);
}

/* ---- places ---- */
static void evaluate_unflatten(int64_t flat, int rank, const int64_t *dims, int64_t *position) {
  for (int d = rank - 1; d >= 0; d--) position[d] = flat % dims[d], flat /= dims[d];
}
static int64_t evaluate_flatten(int rank, const int64_t *dims, const int64_t *position) {
  int64_t flat = 0;
  for (int d = 0; d < rank; d++) flat = flat * dims[d] + position[d];
  return flat;
}

typedef struct evaluation {
  const tern_program *p;
  const tern_op *op;
  void **arrays; /* of each value */
} evaluation;
static const tern_value_info *evaluate_info_of(const evaluation *e, int operand) { return &e->p->values[e->op->operands[operand]]; }
static evaluate_number evaluate_get(const evaluation *e, int operand, int64_t at) { return evaluate_load_number(evaluate_info_of(e, operand)->dtype, e->arrays[e->op->operands[operand]], at); }
static const tern_value_info *evaluate_result_of(const evaluation *e, int i) { return &e->p->values[e->op->first_result + i]; }
static void evaluate_set(const evaluation *e, int i, int64_t at, evaluate_number n) { evaluate_store_number(evaluate_result_of(e, i)->dtype, e->arrays[e->op->first_result + i], at, n); }

static void evaluate_elementwise(const evaluation *e, int64_t i) {
  tern_op_kind kind = (tern_op_kind)e->op->kind;
  tern_dtype dtype = evaluate_info_of(e, 0)->dtype;
  if (kind == TERN_OP_BITCAST) {
    size_t size = tern_dtype_size(dtype);
    memcpy((char *)e->arrays[e->op->first_result] + (size_t)i * size, (char *)e->arrays[e->op->operands[0]] + (size_t)i * size, size);
  } else if (kind == TERN_OP_SELECT) {
    evaluate_set(e, 0, i, evaluate_get(e, evaluate_get(e, 0, i).i ? 1 : 2, i));
  } else if (kind == TERN_OP_COMPARE) {
    evaluate_set(e, 0, i, (evaluate_number){0, 0, evaluate_compare_numbers(e->op->attrs->compare.how, dtype, evaluate_get(e, 0, i), evaluate_get(e, 1, i))});
  } else if (tern_op_rows[kind].class == TERN_CLASS_UNARY) {
    evaluate_set(e, 0, i, evaluate_unary_number(kind, dtype, evaluate_result_of(e, 0)->dtype, evaluate_get(e, 0, i)));
  } else {
    evaluate_set(e, 0, i, evaluate_binary_number(kind, dtype, evaluate_get(e, 0, i), evaluate_get(e, 1, i)));
  }
}

/* ---- views and moves: where result element `i` comes from ---- */
static void evaluate_view(const evaluation *e, int64_t i) {
  const tern_value_info *x = evaluate_info_of(e, 0), *r = evaluate_result_of(e, 0);
  const tern_attrs *a = e->op->attrs;
  int64_t to[TERN_MAX_RANK], from[TERN_MAX_RANK];
  if (e->op->kind == TERN_OP_RESHAPE) {
    evaluate_set(e, 0, i, evaluate_get(e, 0, i));
    return;
  }
  evaluate_unflatten(i, r->rank, r->dims, to);
  for (int d = 0; d < x->rank; d++) {
    switch (e->op->kind) {
      case TERN_OP_BROADCAST: from[d] = x->dims[d] == 1 ? 0 : to[a->dims.dims[d]]; break;
      case TERN_OP_TRANSPOSE: from[a->dims.dims[d]] = to[d]; break;
      case TERN_OP_SLICE: from[d] = a->slice.start[d] + to[d] * a->slice.stride[d]; break;
      default: from[d] = to[d]; break;
    }
  }
  if (e->op->kind == TERN_OP_REVERSE)
    for (int j = 0; j < a->dims.n; j++) from[a->dims.dims[j]] = x->dims[a->dims.dims[j]] - 1 - from[a->dims.dims[j]];
  evaluate_set(e, 0, i, evaluate_get(e, 0, evaluate_flatten(x->rank, x->dims, from)));
}

static void evaluate_copy_operand(const evaluation *e) {
  for (int64_t i = 0; i < tern_value_count(e->p, e->op->operands[0]); i++) evaluate_set(e, 0, i, evaluate_get(e, 0, i));
}

static void evaluate_move(const evaluation *e) {
  const tern_value_info *r = evaluate_result_of(e, 0);
  const tern_attrs *a = e->op->attrs;
  int64_t from[TERN_MAX_RANK], to[TERN_MAX_RANK], before = 0;
  if (e->op->kind == TERN_OP_UPDATE_SLICE) evaluate_copy_operand(e);
  if (e->op->kind == TERN_OP_PAD)
    for (int64_t i = 0; i < tern_value_count(e->p, e->op->first_result); i++) evaluate_set(e, 0, i, evaluate_get(e, 1, 0));
  for (int operand = e->op->kind == TERN_OP_UPDATE_SLICE; operand < (e->op->kind == TERN_OP_PAD ? 1 : e->op->n_operands); operand++) {
    const tern_value_info *x = evaluate_info_of(e, operand);
    for (int64_t i = 0; i < tern_value_count(e->p, e->op->operands[operand]); i++) {
      evaluate_unflatten(i, x->rank, x->dims, from);
      bool inside = true;
      for (int d = 0; d < x->rank; d++) {
        to[d] = e->op->kind == TERN_OP_CONCATENATE ? from[d] + (d == a->axis.dim ? before : 0)
                : e->op->kind == TERN_OP_PAD       ? a->pad.low[d] + from[d] * (1 + a->pad.interior[d])
                                                   : a->slice.start[d] + from[d] * a->slice.stride[d];
        inside = inside && to[d] >= 0 && to[d] < r->dims[d];
      }
      if (inside) evaluate_set(e, 0, evaluate_flatten(r->rank, r->dims, to), evaluate_get(e, operand, i));
    }
    if (e->op->kind == TERN_OP_CONCATENATE) before += x->dims[a->axis.dim];
  }
}

/* ---- reductions ---- */
static void evaluate_reduce(const evaluation *e) {
  const tern_value_info *x = evaluate_info_of(e, 0), *r = evaluate_result_of(e, 0);
  tern_reduction how = e->op->attrs->reduce.how;
  int64_t n = tern_dims_count(r->rank, r->dims), from[TERN_MAX_RANK], to[TERN_MAX_RANK];
  evaluate_number *sums = malloc((size_t)(n + 1) * sizeof *sums);
  for (int64_t i = 0; i < n; i++) sums[i] = evaluate_reduction_start(how, x->dtype);
  for (int64_t i = 0; i < tern_dims_count(x->rank, x->dims); i++) {
    evaluate_unflatten(i, x->rank, x->dims, from);
    int rank = 0;
    for (int d = 0, next = 0; d < x->rank; d++) {
      if (next < e->op->attrs->reduce.n && e->op->attrs->reduce.dims[next] == d) next++;
      else to[rank++] = from[d];
    }
    int64_t at = evaluate_flatten(r->rank, r->dims, to);
    sums[at] = evaluate_reduce_two(how, x->dtype, sums[at], evaluate_get(e, 0, i));
  }
  for (int64_t i = 0; i < n; i++) evaluate_set(e, 0, i, sums[i]);
  free(sums);
}

/* arg_reduce, scan and sort go along one line at a time; `result` starts where the line does, counted without the dimension for arg_reduce. */
typedef struct evaluate_along { int64_t first, step, n, number; } evaluate_along;

static bool evaluate_comes_before(tern_dtype dtype, bool descending, evaluate_number a, evaluate_number b) { return descending ? evaluate_number_less(dtype, b, a) : evaluate_number_less(dtype, a, b); }

static void evaluate_line(const evaluation *e, evaluate_along l) {
  tern_dtype dtype = evaluate_info_of(e, 0)->dtype;
  tern_reduction how = e->op->attrs->reduce.how;
  if (e->op->kind == TERN_OP_SCAN) {
    evaluate_number sum = evaluate_reduction_start(how, dtype);
    for (int64_t j = 0; j < l.n; j++) {
      sum = evaluate_reduce_two(how, dtype, sum, evaluate_get(e, 0, l.first + j * l.step));
      evaluate_set(e, 0, l.first + j * l.step, sum);
    }
  } else if (e->op->kind == TERN_OP_ARG_REDUCE) {
    int64_t best = 0;
    for (int64_t j = 1; j < l.n; j++) {
      evaluate_number x = evaluate_get(e, 0, l.first + j * l.step), y = evaluate_get(e, 0, l.first + best * l.step);
      bool better = evaluate_is_real_dtype(dtype) && (isnan(x.re) || isnan(y.re)) ? isnan(x.re) && !isnan(y.re) : evaluate_comes_before(dtype, how == TERN_MAX, x, y);
      if (better) best = j;
    }
    evaluate_set(e, 0, l.number, evaluate_get(e, 0, l.first + best * l.step));
    evaluate_set(e, 1, l.number, (evaluate_number){0, 0, best});
  } else {
    for (int64_t j = 0; j < l.n; j++) { /* insertion: stable */
      evaluate_number x = evaluate_get(e, 0, l.first + j * l.step);
      int64_t at = j;
      for (; at > 0; at--) {
        evaluate_number y = evaluate_load_number(dtype, e->arrays[e->op->first_result], l.first + (at - 1) * l.step);
        if (!evaluate_comes_before(dtype, e->op->attrs->sort.descending, x, y)) break;
        evaluate_set(e, 0, l.first + at * l.step, y);
        evaluate_set(e, 1, l.first + at * l.step, evaluate_load_number(TERN_I64, e->arrays[e->op->first_result + 1], l.first + (at - 1) * l.step));
      }
      evaluate_set(e, 0, l.first + at * l.step, x);
      evaluate_set(e, 1, l.first + at * l.step, (evaluate_number){0, 0, j});
    }
  }
}

static void evaluate_lines(const evaluation *e, int dim) {
  const tern_value_info *x = evaluate_info_of(e, 0);
  int64_t outer = tern_dims_count(dim, x->dims), inner = tern_dims_count(x->rank - dim - 1, x->dims + dim + 1), n = x->dims[dim];
  for (int64_t o = 0; o < outer; o++)
    for (int64_t i = 0; i < inner; i++) evaluate_line(e, (evaluate_along){o * n * inner + i, inner, n, o * inner + i});
}

/* ---- contractions ---- */
static evaluate_number evaluate_multiply_add(tern_dtype dtype, evaluate_number sum, evaluate_number x, evaluate_number y) { return evaluate_binary_number(TERN_OP_ADD, dtype, sum, evaluate_binary_number(TERN_OP_MULTIPLY, dtype, x, y)); }

static void evaluate_dot(const evaluation *e) {
  const tern_value_info *sides[2] = {evaluate_info_of(e, 0), evaluate_info_of(e, 1)}, *r = evaluate_result_of(e, 0);
  const tern_attrs *a = e->op->attrs;
  int nb = a->dot.n_batch, nc = a->dot.n_contract;
  const int32_t *batch[2] = {a->dot.lhs_batch, a->dot.rhs_batch}, *contract[2] = {a->dot.lhs_contract, a->dot.rhs_contract};
  int64_t sizes[TERN_MAX_RANK], position[TERN_MAX_RANK], along[TERN_MAX_RANK], from[2][TERN_MAX_RANK];
  for (int i = 0; i < nc; i++) sizes[i] = sides[0]->dims[contract[0][i]];
  for (int64_t i = 0; i < tern_dims_count(r->rank, r->dims); i++) {
    evaluate_unflatten(i, r->rank, r->dims, position);
    int next = nb;
    for (int side = 0; side < 2; side++) {
      uint32_t taken = 0;
      for (int j = 0; j < nb; j++) from[side][batch[side][j]] = position[j], taken |= 1u << batch[side][j];
      for (int j = 0; j < nc; j++) taken |= 1u << contract[side][j];
      for (int d = 0; d < sides[side]->rank; d++)
        if (!(taken >> d & 1)) from[side][d] = position[next++];
    }
    evaluate_number sum = {0, 0, 0};
    for (int64_t k = 0; k < tern_dims_count(nc, sizes); k++) {
      evaluate_unflatten(k, nc, sizes, along);
      for (int side = 0; side < 2; side++)
        for (int j = 0; j < nc; j++) from[side][contract[side][j]] = along[j];
      sum = evaluate_multiply_add(r->dtype, sum, evaluate_get(e, 0, evaluate_flatten(sides[0]->rank, sides[0]->dims, from[0])), evaluate_get(e, 1, evaluate_flatten(sides[1]->rank, sides[1]->dims, from[1])));
    }
    evaluate_set(e, 0, i, sum);
  }
}

static void evaluate_conv(const evaluation *e) {
  const tern_value_info *x = evaluate_info_of(e, 0), *w = evaluate_info_of(e, 1), *y = evaluate_result_of(e, 0);
  const tern_window *window = &e->op->attrs->window;
  int64_t to[5], along[5], from[5], weight[5], per_group = w->dims[0] / window->groups;
  for (int64_t i = 0; i < tern_dims_count(y->rank, y->dims); i++) {
    evaluate_unflatten(i, y->rank, y->dims, to);
    evaluate_number sum = {0, 0, 0};
    for (int64_t k = 0; k < tern_dims_count(w->rank - 1, w->dims + 1); k++) { /* channels of the group and the window */
      evaluate_unflatten(k, w->rank - 1, w->dims + 1, along);
      from[0] = to[0];
      from[1] = to[1] / per_group * w->dims[1] + along[0];
      weight[0] = to[1];
      weight[1] = along[0];
      bool inside = true;
      for (int d = 0; d < window->spatial; d++) {
        weight[d + 2] = along[d + 1];
        from[d + 2] = to[d + 2] * window->stride[d] - window->pad_low[d] + along[d + 1] * window->dilation[d];
        inside = inside && from[d + 2] >= 0 && from[d + 2] < x->dims[d + 2];
      }
      if (inside) sum = evaluate_multiply_add(y->dtype, sum, evaluate_get(e, 0, evaluate_flatten(x->rank, x->dims, from)), evaluate_get(e, 1, evaluate_flatten(w->rank, w->dims, weight)));
    }
    evaluate_set(e, 0, i, sum);
  }
}

/* ---- indexing ---- */
static evaluate_number evaluate_combine_numbers(tern_combine how, tern_dtype dtype, evaluate_number old, evaluate_number update) {
  static const tern_op_kind kinds[] = {TERN_OP_COUNT, TERN_OP_ADD, TERN_OP_MULTIPLY, TERN_OP_MAXIMUM, TERN_OP_MINIMUM};
  return how == TERN_SET ? update : evaluate_binary_number(kinds[how], dtype, old, update);
}

/* take and put: element i of the taken array is element *base of the base. False where the index is outside. */
static bool evaluate_take_place(const evaluation *e, int dim, int64_t i, int64_t *base) {
  const tern_value_info *x = evaluate_info_of(e, 0);
  int64_t inner = tern_dims_count(x->rank - dim - 1, x->dims + dim + 1), n = tern_value_count(e->p, e->op->operands[1]);
  int64_t index = evaluate_get(e, 1, i / inner % n).i;
  *base = (i / inner / n * x->dims[dim] + index) * inner + i % inner;
  return index >= 0 && index < x->dims[dim];
}

/* gather and scatter: element i of the index points at element *base of the base. */
static bool evaluate_gather_place(const evaluation *e, int dim, int64_t i, int64_t *base) {
  const tern_value_info *x = evaluate_info_of(e, 0), *index = evaluate_info_of(e, 1);
  int64_t position[TERN_MAX_RANK];
  evaluate_unflatten(i, index->rank, index->dims, position);
  position[dim] = evaluate_get(e, 1, i).i;
  *base = evaluate_flatten(x->rank, x->dims, position);
  return position[dim] >= 0 && position[dim] < x->dims[dim];
}

static tern_status evaluate_index(const evaluation *e) {
  bool takes = e->op->kind == TERN_OP_TAKE || e->op->kind == TERN_OP_PUT, reads = e->op->kind == TERN_OP_TAKE || e->op->kind == TERN_OP_GATHER;
  int dim = reads ? e->op->attrs->axis.dim : e->op->attrs->scatter.dim;
  tern_dtype dtype = evaluate_info_of(e, 0)->dtype;
  void *result = e->arrays[e->op->first_result];
  if (!reads) evaluate_copy_operand(e);
  int64_t n = e->op->kind == TERN_OP_TAKE ? tern_value_count(e->p, e->op->first_result) : tern_value_count(e->p, e->op->operands[takes ? 2 : 1]), base;
  for (int64_t i = 0; i < n; i++) {
    if (!(takes ? evaluate_take_place(e, dim, i, &base) : evaluate_gather_place(e, dim, i, &base))) return tern_error_new(TERN_INDEX_OUT_OF_RANGE, "%s: index out of range", tern_op_rows[e->op->kind].name);
    if (reads) {
      evaluate_set(e, 0, i, evaluate_get(e, 0, base));
      continue;
    }
    int64_t position[TERN_MAX_RANK], from = i;
    if (!takes) {
      evaluate_unflatten(i, evaluate_info_of(e, 1)->rank, evaluate_info_of(e, 1)->dims, position);
      from = evaluate_flatten(evaluate_info_of(e, 2)->rank, evaluate_info_of(e, 2)->dims, position);
    }
    evaluate_store_number(dtype, result, base, evaluate_combine_numbers(e->op->attrs->scatter.how, dtype, evaluate_load_number(dtype, result, base), evaluate_get(e, 2, from)));
  }
  return NULL;
}

/* ---- the program ---- */
static tern_status evaluate_op(const evaluation *e) {
  const tern_op *op = e->op;
  int64_t n = op->n_results ? tern_value_count(e->p, op->first_result) : 0;
  if (tern_op_is_elementwise((tern_op_kind)op->kind)) {
    for (int64_t i = 0; i < n; i++) evaluate_elementwise(e, i);
    return NULL;
  }
  if (tern_op_rows[op->kind].class == TERN_CLASS_VIEW) {
    for (int64_t i = 0; i < n; i++) evaluate_view(e, i);
    return NULL;
  }
  switch (op->kind) {
    case TERN_OP_CONSTANT:
      for (int64_t i = 0; i < n; i++) evaluate_set(e, 0, i, evaluate_load_number(evaluate_result_of(e, 0)->dtype, op->attrs->constant.bits, 0));
      return NULL;
    case TERN_OP_IOTA:
      for (int64_t i = 0; i < n; i++) {
        int64_t position[TERN_MAX_RANK];
        evaluate_unflatten(i, evaluate_result_of(e, 0)->rank, evaluate_result_of(e, 0)->dims, position);
        evaluate_set(e, 0, i, (evaluate_number){(double)position[op->attrs->axis.dim], 0, position[op->attrs->axis.dim]});
      }
      return NULL;
    case TERN_OP_UPDATE_SLICE: case TERN_OP_PAD: case TERN_OP_CONCATENATE: evaluate_move(e); return NULL;
    case TERN_OP_REDUCE: evaluate_reduce(e); return NULL;
    case TERN_OP_ARG_REDUCE: case TERN_OP_SCAN: evaluate_lines(e, op->attrs->reduce.dims[0]); return NULL;
    case TERN_OP_SORT: evaluate_lines(e, op->attrs->sort.dim); return NULL;
    case TERN_OP_DOT: evaluate_dot(e); return NULL;
    case TERN_OP_CONV: evaluate_conv(e); return NULL;
    case TERN_OP_TAKE: case TERN_OP_GATHER: case TERN_OP_PUT: case TERN_OP_SCATTER: return evaluate_index(e);
    case TERN_OP_CHECK:
      for (int64_t i = 0; i < tern_value_count(e->p, op->operands[0]); i++)
        if (evaluate_get(e, 0, i).i < op->attrs->check.low || evaluate_get(e, 0, i).i > op->attrs->check.high)
          return tern_check_failure(&op->attrs->check, evaluate_get(e, 0, i).i);
      return NULL;
    default: return tern_error_new(TERN_UNSUPPORTED, "the evaluator does not know %s", tern_op_rows[op->kind].name);
  }
}

/* Evaluates a program as it stands, without decomposing it. */
static tern_status evaluate_plain(const tern_program *p, const void *const *parameters, const uint64_t *scalars, void **results) {
  void **arrays = calloc((size_t)p->n_values + 1, sizeof *arrays);
  tern_status error = NULL;
  for (int32_t i = 0; i < p->n_ops && !error; i++) {
    const tern_op *op = &p->ops[i];
    for (int r = 0; r < op->n_results; r++) arrays[op->first_result + r] = calloc((size_t)tern_value_count(p, op->first_result + r) + 1, tern_dtype_size(p->values[op->first_result + r].dtype));
    if (op->kind == TERN_OP_PARAMETER) {
      const void *from = op->attrs->parameter.is_scalar ? (const void *)&scalars[op->attrs->parameter.number] : parameters[op->attrs->parameter.number];
      memcpy(arrays[op->first_result], from, (size_t)tern_value_count(p, op->first_result) * tern_dtype_size(p->values[op->first_result].dtype));
    } else {
      error = evaluate_op(&(evaluation){p, op, arrays});
    }
  }
  for (int i = 0; i < p->n_results && !error; i++) {
    tern_value v = p->results[i].value;
    size_t bytes = (size_t)tern_value_count(p, v) * tern_dtype_size(p->values[v].dtype);
    results[i] = memcpy(malloc(bytes + 16), arrays[v], bytes);
  }
  for (int i = 0; i < p->n_values; i++) free(arrays[i]);
  free(arrays);
  return error;
}

static bool evaluator_keeps(tern_op_kind kind) { return tern_op_rows[kind].class != TERN_CLASS_COMPOSITE; }

static inline tern_status evaluate(const tern_program *program, const void *const *parameters, const uint64_t *scalars, void **results) {
  tern_program *plain;
  TERN_TRY(tern_program_decompose(program, evaluator_keeps, &plain));
  tern_status error = evaluate_plain(plain, parameters, scalars, results);
  tern_program_free(plain);
  return error;
}

#endif
