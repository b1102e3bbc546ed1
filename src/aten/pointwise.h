/* pointwise: how an elementwise row says what it is. Private to the elementwise families (pointwise, unary, activation_pointwise, compare, select).
 *
 * A row's rule says which arguments are TensorIterator's operands, how their common dtype becomes the result's and which further numbers the formula needs; the
 * formula is an expression of program values, all in the dtype that PyTorch computes in. TERN_POINTWISE makes infer and lower from the two. */
#ifndef TERN_ATEN_POINTWISE_H
#define TERN_ATEN_POINTWISE_H
#include "families.h"
#include "helpers.h"

enum { TERN_POINTWISE_OPERANDS = 3, TERN_POINTWISE_NUMBERS = 4 };

/* Which common dtypes the row serves natively; for others PyTorch's CPU kernel answers, most often with its error. */
typedef enum tern_serves {
  TERN_SERVES_NUMBERS /* integers and floats */,
  TERN_SERVES_ALL /* and bool */,
  TERN_SERVES_FLOATS,
  TERN_SERVES_INTEGRAL /* integers and bool */
} tern_serves;

typedef struct tern_pointwise_rule {
  int8_t n_operands, operands[TERN_POINTWISE_OPERANDS]; /* the arguments that are operands; n_operands 0 stands for one: argument 0 */
  tern_serves serves;
  bool to_float;       /* integers become the default dtype */
  bool to_bool;        /* the result is bool */
  bool wide_numbers;   /* operand 1, where it is a number, keeps the precision PyTorch computes in instead of being rounded to the common dtype (mul, div) */
  bool same_dtypes;    /* operands of several dtypes are refused */
  bool exact_out;      /* an out= tensor must have the result's dtype */
  bool refuses_bool;   /* no operand may be bool */
  bool checked_divisor; /* integers: an error where operand 1 holds a 0; PyTorch's own for a number, found while the program runs for a tensor */
  int8_t n_numbers;    /* further numbers of the formula */
  struct {
    int8_t argument;
    bool is_alpha;
    double fallback;
  } numbers[TERN_POINTWISE_NUMBERS]; /* is_alpha: the multiplier of add and sub, see pointwise_rule.c */
} tern_pointwise_rule;

/* What a formula works on. */
typedef struct tern_pointwise {
  tern_program *p;
  tern_dtype common, dtype;              /* the operands' common dtype, and the one to compute in, which all values below have */
  tern_value x[TERN_POINTWISE_OPERANDS]; /* operands, in their own shapes */
  tern_value s[TERN_POINTWISE_NUMBERS];  /* numbers, rank 0 */
  const tern_lowering *node;
} tern_pointwise;

tern_verdict tern_pointwise_infer(const tern_call *call, tern_draft *draft, const tern_pointwise_rule *rule);
void tern_pointwise_begin(tern_pointwise *w, const tern_lowering *node, const tern_pointwise_rule *rule);
/* Gives the value its result's dtype and shape. */
tern_value tern_pointwise_finish(const tern_lowering *node, int output, tern_value v);

/* Operands of a row that infers for itself: a tensor, or a number (an absent operand and a scalar of `dtype`). */
tern_verdict tern_pointwise_operand(const tern_call *call, tern_draft *draft, int argument, tern_dtype dtype);
/* The broadcast shape of an operand joins the result's. */
bool tern_pointwise_shape(const tern_argument *argument, int *rank, int64_t *sizes);
/* Whether PyTorch converts the number to the dtype without "value cannot be converted ... without overflow". */
bool tern_number_fits(const tern_argument *argument, tern_dtype dtype);

/* A constant of rank 0, which every binary operation broadcasts. */
static inline tern_value tern_number(tern_program *p, tern_dtype dtype, double value) {
  return tern_dtype_is_float(dtype) ? tern_constant_float(p, dtype, 0, NULL, value) : tern_constant_int(p, dtype, 0, NULL, (int64_t)value);
}

#define TERN_POINTWISE_INFER(id, rule) \
  static tern_verdict infer_##id(const tern_call *call, tern_draft *draft) { return tern_pointwise_infer(call, draft, &(rule)); }
/* `formula` sees p, dtype, x, y, z (operands) and w.s[]. */
#define TERN_POINTWISE_LOWER(id, rule, formula)                                   \
  static tern_status lower_##id(const tern_lowering *node, tern_value *results) { \
    tern_pointwise w;                                                             \
    tern_pointwise_begin(&w, node, &(rule));                                      \
    tern_program *p = w.p;                                                        \
    tern_dtype dtype = w.dtype;                                                   \
    tern_value x = w.x[0], y = w.x[1], z = w.x[2];                                \
    (void)p, (void)dtype, (void)x, (void)y, (void)z;                              \
    results[0] = tern_pointwise_finish(node, 0, formula);                         \
    return NULL;                                                                  \
  }
#define TERN_POINTWISE(id, rule, formula) TERN_POINTWISE_INFER(id, rule) TERN_POINTWISE_LOWER(id, rule, formula)

#endif
