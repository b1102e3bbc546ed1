/* ir: the program as plain C structs. include/tern/ir.h builds it; this header is for those who read or rewrite it (opt, backends).
 *
 * Ownership: a program owns its arena, and everything hangs on that. Operations are in a valid order: operands are defined before use. */
#ifndef TERN_IR_INTERNAL_H
#define TERN_IR_INTERNAL_H
#include "../base/base.h"
#include "tern/ir.h"

typedef enum tern_op_kind {
#define TERN_OP(NAME, text, stablehlo, operands, results, class) TERN_OP_##NAME,
#include "ops.def"
#undef TERN_OP
  TERN_OP_COUNT
} tern_op_kind;

typedef enum tern_op_class {
  TERN_CLASS_LEAF, TERN_CLASS_UNARY, TERN_CLASS_BINARY, TERN_CLASS_TERNARY, TERN_CLASS_VIEW, TERN_CLASS_MOVE,
  TERN_CLASS_REDUCE, TERN_CLASS_CONTRACT, TERN_CLASS_INDEX, TERN_CLASS_EFFECT, TERN_CLASS_COMPOSITE
} tern_op_class;

/* What check demands of every element; domain: a tern_domain, as wide as the rest so that no byte is unset where attributes are compared. */
typedef struct tern_check {
  int64_t low, high, domain;
} tern_check;

tern_status tern_check_failure(const tern_check *check, int64_t found); /* found: an element that the check refuses */
const char *tern_domain_words(tern_domain domain);

typedef union tern_attrs {
  struct { int32_t number; bool is_scalar; } parameter;     /* number among parameters, or among scalars */
  struct { uint64_t bits[2]; } constant;                     /* one element in the value's dtype, in its low bytes */
  struct { int32_t dim; } axis;                              /* iota, concatenate, take, gather */
  struct { int32_t n; int32_t dims[TERN_MAX_RANK]; } dims;   /* broadcast_in_dim, transpose, reverse */
  struct { int64_t start[TERN_MAX_RANK], limit[TERN_MAX_RANK], stride[TERN_MAX_RANK]; } slice;
  struct { int64_t low[TERN_MAX_RANK], high[TERN_MAX_RANK], interior[TERN_MAX_RANK]; } pad;
  struct { tern_comparison how; } compare;
  struct { tern_reduction how; int32_t n; int32_t dims[TERN_MAX_RANK]; } reduce; /* reduce, arg_reduce, scan; dims ascending */
  struct { int32_t dim; bool descending; int64_t first; } sort; /* first: results beyond so many of a line are unspecified; 0: none are */
  struct { int32_t n_batch, n_contract; int32_t lhs_batch[TERN_MAX_RANK], rhs_batch[TERN_MAX_RANK], lhs_contract[TERN_MAX_RANK], rhs_contract[TERN_MAX_RANK]; } dot;
  tern_window window;                                        /* convolutions and pooling */
  struct { int32_t dim; tern_combine how; } scatter;         /* put, scatter */
  tern_check check;
  int64_t ints[4];                                           /* composites, as ops.def says */
} tern_attrs;

typedef struct tern_op {
  uint16_t kind;                /* tern_op_kind */
  uint16_t n_operands, n_results;
  uint32_t tag;                 /* the recorded node it came from (tern_program_tag), for lines and failures */
  tern_value first_result;      /* results are consecutive values */
  tern_value *operands;
  tern_attrs *attrs;            /* never NULL */
} tern_op;

typedef struct tern_value_info {
  tern_dtype dtype;
  int32_t rank;
  int64_t *dims;
  int32_t op;                   /* index of the operation that makes it */
} tern_value_info;

typedef struct tern_result_info {
  tern_value value;
  int32_t reuses;               /* parameter number or -1 */
} tern_result_info;

struct tern_program {
  tern_arena arena;
  tern_op *ops;
  int32_t n_ops, cap_ops;
  tern_value_info *values;
  int32_t n_values, cap_values;
  tern_value *parameters;       /* value of each parameter */
  int32_t n_parameters, cap_parameters;
  tern_value *scalars;
  int32_t n_scalars, cap_scalars;
  tern_result_info *results;
  int32_t n_results, cap_results;
  uint32_t tag;                 /* stamped on every operation appended from now on */
  tern_status error;            /* the first error of the builder; owned */
  const char *(*describe_tag)(const void *context, uint32_t tag); /* for printing: the user's line of a tag; may be NULL */
  const void *describe_context;
};

typedef struct tern_op_row {
  const char *name, *stablehlo;
  int operands, results;
  tern_op_class class;
} tern_op_row;
extern const tern_op_row tern_op_rows[TERN_OP_COUNT];
/* Bytes of the attributes that the kind uses, from the union's start; 0: it has none, and all such operations of all programs share one `attrs`. */
size_t tern_op_attrs_size(tern_op_kind kind);

/* Operations appended from now on carry this tag. */
static inline void tern_program_tag(tern_program *program, uint32_t tag) { program->tag = tag; }

/* Appends an operation with its results described by the caller, unchecked: for rewrites. The arrays are copied. Returns the first result
 * (TERN_NO_VALUE for none or on an error, which the program keeps). */
tern_value tern_program_append(tern_program *program, tern_op_kind kind, int n_operands, const tern_value *operands, const tern_attrs *attrs,
                               int n_results, const tern_value_info *results);

int64_t tern_dims_count(int rank, const int64_t *dims); /* elements; 1 for rank 0 */
static inline bool tern_dims_equal(int rank, const int64_t *a, int other_rank, const int64_t *b) {
  return rank == other_rank && (rank == 0 || memcmp(a, b, (size_t)rank * sizeof *a) == 0);
}
/* What f16 and bf16 are computed and accumulated in: f32; every other dtype is itself. */
static inline tern_dtype tern_dtype_wide(tern_dtype dtype) { return dtype == TERN_F16 || dtype == TERN_BF16 ? TERN_F32 : dtype; }
static inline int64_t tern_value_count(const tern_program *p, tern_value v) { return tern_dims_count(p->values[v].rank, p->values[v].dims); }
static inline bool tern_op_is_elementwise(tern_op_kind kind) {
  tern_op_class c = tern_op_rows[kind].class;
  return c == TERN_CLASS_UNARY || c == TERN_CLASS_BINARY || c == TERN_CLASS_TERNARY;
}

/* Every rule of ops.def, checked on a whole program; the message names the operation. */
tern_status tern_program_verify(const tern_program *program);

/* A structurally equal copy without dead operations, in which every composite for which `keep` answers false (NULL: all) and every operation
 * without a StableHLO form is replaced by its portable decomposition. In src/composites. */
tern_status tern_program_decompose(const tern_program *program, bool (*keep)(tern_op_kind kind), tern_program **out);

#endif
