/* text: writing StableHLO in MLIR's generic text form. Shared by text.c (driver, leaves), text_elementwise.c, text_move.c and text_reduce.c only.
 *
 * Only operations and attributes of StableHLO 1.0 are written, so that every plug-in's reader has them. A value of the text is a tern_text_value: its
 * number (%12), dtype and dims. Operations have three parts that come before their operands' types are known to the writer below: properties and a
 * region are collected first, and tern_text_op takes them. */
#ifndef TERN_PJRT_TEXT_H
#define TERN_PJRT_TEXT_H
#include "pjrt.h"

typedef struct tern_text_value {
  int32_t id;
  tern_dtype dtype;
  int32_t rank;
  int64_t dims[TERN_MAX_RANK];
} tern_text_value;

typedef struct tern_text_buffer {
  char *data;
  size_t length, capacity;
  bool failed; /* no host memory: nothing more is written */
} tern_text_buffer;

typedef struct tern_text {
  const tern_program *program;
  tern_text_buffer out, properties, region;
  tern_text_value *values;   /* of the program's values */
  int32_t next_id;
  tern_pjrt_signature *signature;
  tern_text_value *checks;   /* per check: i64[2]; see tern_pjrt_signature */
  tern_text_value all_passed; /* i1[]: every check so far */
  bool checked;
  tern_text_value words, doubles; /* the packed scalars */
  bool guard_nan;            /* see tern_pjrt_text */
  char location[512];        /* " loc(...)", written behind each operation, or "" */
} tern_text;

typedef void (*tern_text_writer)(tern_text *t, const tern_op *op);
extern const tern_text_writer tern_text_writers[TERN_OP_COUNT];

/* ---- pieces (text.c) ---- */
void tern_text_append(tern_text_buffer *buffer, const char *format, ...) __attribute__((format(printf, 2, 3)));
void tern_text_append_type(tern_text_buffer *buffer, tern_dtype dtype, int rank, const int64_t *dims);
/* ", name = format..." among the properties of the next operation. */
void tern_text_property(tern_text *t, const char *name, const char *format, ...) __attribute__((format(printf, 3, 4)));
void tern_text_property_array(tern_text *t, const char *name, int n, const int64_t *numbers);
void tern_text_property_dims(tern_text *t, const char *name, int n, const int32_t *dims);

tern_text_value tern_text_shape(tern_dtype dtype, int rank, const int64_t *dims); /* without a number */
/* The same dims with another dtype. */
tern_text_value tern_text_like(tern_text_value x, tern_dtype dtype);
int64_t tern_text_count(const tern_text_value *x);
/* Writes "name" with the pending properties and region; results[0..n) come in with shapes and leave with numbers. */
void tern_text_op_many(tern_text *t, const char *name, int n_results, tern_text_value *results, int n_operands, const tern_text_value *operands);
tern_text_value tern_text_op(tern_text *t, const char *name, tern_text_value shape, int n_operands, const tern_text_value *operands);

/* ---- small operations ---- */
tern_text_value tern_text_unary(tern_text *t, const char *name, tern_text_value x);
tern_text_value tern_text_binary(tern_text *t, const char *name, tern_text_value x, tern_text_value y);
tern_text_value tern_text_constant(tern_text *t, tern_text_value shape, const uint64_t bits[2]);
tern_text_value tern_text_constant_int(tern_text *t, tern_text_value shape, int64_t value); /* any dtype */
/* What a reduction starts from: 0, 1, -inf or the smallest, inf or the largest. */
tern_text_value tern_text_identity(tern_text *t, tern_reduction how, tern_dtype dtype);
tern_text_value tern_text_convert(tern_text *t, tern_text_value x, tern_dtype dtype);
tern_text_value tern_text_compare(tern_text *t, tern_comparison how, tern_text_value x, tern_text_value y);
tern_text_value tern_text_select(tern_text *t, tern_text_value condition, tern_text_value x, tern_text_value y);
tern_text_value tern_text_reshape(tern_text *t, tern_text_value x, int rank, const int64_t *dims);
tern_text_value tern_text_iota(tern_text *t, tern_text_value shape, int dim);
tern_text_value tern_text_slice(tern_text *t, tern_text_value x, const int64_t *start, const int64_t *limit); /* step 1 */

static inline tern_text_value tern_text_operand(const tern_text *t, const tern_op *op, int i) { return t->values[op->operands[i]]; }
static inline tern_text_value tern_text_result_shape(const tern_text *t, const tern_op *op, int i) {
  const tern_value_info *v = &t->program->values[op->first_result + i];
  return tern_text_shape(v->dtype, v->rank, v->dims);
}
static inline void tern_text_set(tern_text *t, const tern_op *op, int i, tern_text_value value) { t->values[op->first_result + i] = value; }

/* "FLOAT", "SIGNED", "UNSIGNED": how values of a dtype are compared. */
const char *tern_text_compare_type(tern_dtype dtype);

/* ---- writers ---- */
#define TERN_TEXT_WRITER(name) void tern_text_write_##name(tern_text *t, const tern_op *op)
TERN_TEXT_WRITER(elementwise);
TERN_TEXT_WRITER(broadcast);
TERN_TEXT_WRITER(reshape);
TERN_TEXT_WRITER(transpose);
TERN_TEXT_WRITER(slice);
TERN_TEXT_WRITER(reverse);
TERN_TEXT_WRITER(update_slice);
TERN_TEXT_WRITER(pad);
TERN_TEXT_WRITER(concatenate);
TERN_TEXT_WRITER(take);
TERN_TEXT_WRITER(gather);
TERN_TEXT_WRITER(put);
TERN_TEXT_WRITER(scatter);
TERN_TEXT_WRITER(check);
TERN_TEXT_WRITER(reduce);
TERN_TEXT_WRITER(arg_reduce);
TERN_TEXT_WRITER(scan);
TERN_TEXT_WRITER(sort);
TERN_TEXT_WRITER(dot);
TERN_TEXT_WRITER(convolution);

/* (text_reduce.c) The pending region becomes ^(a, b): name(a, b). */
void tern_text_region_binary(tern_text *t, const char *name, tern_dtype dtype);
/* (text_reduce.c) "stablehlo.add", "stablehlo.maximum" ... */
const char *tern_text_reduction_name(tern_reduction how);
#endif
