/* fold: one operation said more simply, one function a kind; called by canonicalise.c in program order, so that chains of any length fold step by step. Every rule is
 * exact to the bit: x + 0.0 stays, because -0.0 + 0.0 is 0.0. */
#include "opt.h"

static tern_op *maker(const tern_rewrite *r, tern_value v) { return &r->ops[r->in->values[v].op]; }
static const tern_value_info *info(const tern_rewrite *r, tern_value v) { return &r->in->values[v]; }
static bool same_type(const tern_value_info *a, const tern_value_info *b) { return a->dtype == b->dtype && tern_dims_equal(a->rank, a->dims, b->rank, b->dims); }

/* Turns `op` into another kind on one operand. Without memory it stays as it was, which is right too. */
static void become(tern_rewrite *r, tern_op *op, tern_op_kind kind, tern_value operand, const tern_attrs *attrs) {
  tern_value *operands = tern_arena_copy(&r->arena, &operand, sizeof operand);
  tern_attrs *copy = tern_arena_copy(&r->arena, attrs, sizeof *attrs);
  if (!operands || !copy) return;
  op->kind = (uint16_t)kind;
  op->n_operands = 1;
  op->operands = operands;
  op->attrs = copy;
}

/* ---- views ---- */
static tern_value fold_reshape(tern_rewrite *r, tern_op *op) {
  static const tern_attrs none;
  tern_value x = op->operands[0];
  while (maker(r, x)->kind == TERN_OP_RESHAPE) x = maker(r, x)->operands[0];
  if (same_type(info(r, x), info(r, op->first_result))) return x;
  if (x != op->operands[0]) become(r, op, TERN_OP_RESHAPE, x, &none);
  return TERN_NO_VALUE;
}

/* A transpose that leaves the dimensions of more than one element in order is a reshape. */
static bool keeps_order(const tern_value_info *x, const tern_attrs *attrs) {
  int last = -1;
  for (int i = 0; i < x->rank; i++) {
    int from = attrs->dims.dims[i];
    if (x->dims[from] == 1) continue;
    if (from < last) return false;
    last = from;
  }
  return true;
}

static tern_value fold_transpose(tern_rewrite *r, tern_op *op) {
  tern_value x = op->operands[0];
  tern_op *inner = maker(r, x);
  tern_attrs attrs = *op->attrs;
  if (inner->kind == TERN_OP_TRANSPOSE) {
    x = inner->operands[0];
    for (int i = 0; i < attrs.dims.n; i++) attrs.dims.dims[i] = inner->attrs->dims.dims[op->attrs->dims.dims[i]];
  }
  bool changes = false;
  for (int i = 0; i < attrs.dims.n; i++) changes |= attrs.dims.dims[i] != i;
  if (!changes) return x;
  if (keeps_order(info(r, x), &attrs)) {
    become(r, op, TERN_OP_RESHAPE, x, &(tern_attrs){0});
    return fold_reshape(r, op);
  }
  if (x != op->operands[0]) become(r, op, TERN_OP_TRANSPOSE, x, &attrs);
  return TERN_NO_VALUE;
}

/* Where a reshape from x to y only adds dimensions of size 1: the dimension of y that each of x's became. */
static bool only_adds_ones(const tern_value_info *x, const tern_value_info *y, int32_t *to) {
  int i = 0;
  for (int j = 0; j < y->rank; j++) {
    if (i < x->rank && x->dims[i] == y->dims[j]) to[i++] = j;
    else if (y->dims[j] != 1) return false;
  }
  return i == x->rank;
}

static tern_value fold_broadcast(tern_rewrite *r, tern_op *op) {
  tern_value x = op->operands[0];
  tern_attrs attrs = *op->attrs;
  for (tern_op *inner = maker(r, x);; inner = maker(r, x)) {
    int32_t to[TERN_MAX_RANK];
    bool adds = inner->kind == TERN_OP_RESHAPE && only_adds_ones(info(r, inner->operands[0]), info(r, x), to);
    if (!adds && inner->kind != TERN_OP_BROADCAST) break;
    int rank = info(r, inner->operands[0])->rank;
    tern_attrs outer = attrs;
    attrs = (tern_attrs){.dims = {.n = rank}};
    for (int i = 0; i < rank; i++) attrs.dims.dims[i] = outer.dims.dims[adds ? to[i] : inner->attrs->dims.dims[i]];
    x = inner->operands[0];
  }
  const tern_value_info *from = info(r, x), *result = info(r, op->first_result);
  bool ascending = true;
  for (int i = 1; i < attrs.dims.n; i++) ascending = ascending && attrs.dims.dims[i] > attrs.dims.dims[i - 1];
  if (ascending && tern_dims_count(from->rank, from->dims) == tern_dims_count(result->rank, result->dims)) {
    become(r, op, TERN_OP_RESHAPE, x, &(tern_attrs){0});
    return fold_reshape(r, op);
  }
  if (x != op->operands[0]) become(r, op, TERN_OP_BROADCAST, x, &attrs);
  return TERN_NO_VALUE;
}

/* What a slice of base[start + i*stride] reads of an update of it. */
typedef enum overlap { OVERLAP_SOME, OVERLAP_NONE, OVERLAP_EXACT } overlap;
static overlap slice_of_update(const tern_rewrite *r, const tern_op *slice, const tern_op *update) {
  const tern_value_info *read = info(r, slice->first_result), *written = info(r, update->operands[1]);
  overlap found = OVERLAP_EXACT;
  for (int i = 0; i < read->rank; i++) {
    int64_t start = slice->attrs->slice.start[i], stride = slice->attrs->slice.stride[i], other = update->attrs->slice.start[i], other_stride = update->attrs->slice.stride[i];
    if (read->dims[i] == 0 || written->dims[i] == 0 || start > other + (written->dims[i] - 1) * other_stride || other > start + (read->dims[i] - 1) * stride) return OVERLAP_NONE;
    if (start != other || read->dims[i] != written->dims[i] || (stride != other_stride && read->dims[i] > 1)) found = OVERLAP_SOME;
  }
  return found;
}

static bool is_whole_slice(const tern_rewrite *r, tern_value x, const tern_attrs *attrs) {
  for (int i = 0; i < info(r, x)->rank; i++)
    if (attrs->slice.start[i] != 0 || attrs->slice.limit[i] != info(r, x)->dims[i] || attrs->slice.stride[i] != 1) return false;
  return true;
}

static tern_value fold_slice(tern_rewrite *r, tern_op *op) {
  if (is_whole_slice(r, op->operands[0], op->attrs)) return op->operands[0];
  const tern_value_info *result = info(r, op->first_result);
  tern_op *inner = maker(r, op->operands[0]);
  if (inner->kind == TERN_OP_SLICE) {
    tern_attrs attrs = {0};
    for (int i = 0; i < result->rank; i++) {
      int64_t first = inner->attrs->slice.stride[i], n = result->dims[i];
      attrs.slice.start[i] = n ? inner->attrs->slice.start[i] + op->attrs->slice.start[i] * first : 0;
      attrs.slice.stride[i] = n > 1 ? op->attrs->slice.stride[i] * first : 1;
      attrs.slice.limit[i] = n ? attrs.slice.start[i] + (n - 1) * attrs.slice.stride[i] + 1 : 0;
    }
    become(r, op, TERN_OP_SLICE, inner->operands[0], &attrs);
    return op->operands[0] == inner->operands[0] ? fold_slice(r, op) : TERN_NO_VALUE;
  }
  if (inner->kind == TERN_OP_UPDATE_SLICE) {
    overlap reads = slice_of_update(r, op, inner);
    if (reads == OVERLAP_EXACT) return inner->operands[1];
    if (reads == OVERLAP_NONE) {
      become(r, op, TERN_OP_SLICE, inner->operands[0], op->attrs);
      if (op->operands[0] == inner->operands[0]) return fold_slice(r, op);
    }
  }
  return TERN_NO_VALUE;
}

/* ---- moves ---- */
static tern_value fold_update_slice(tern_rewrite *r, tern_op *op) { return same_type(info(r, op->operands[1]), info(r, op->first_result)) ? op->operands[1] : TERN_NO_VALUE; }

static tern_value fold_pad(tern_rewrite *r, tern_op *op) {
  const tern_value_info *x = info(r, op->operands[0]);
  for (int i = 0; i < x->rank; i++)
    if (op->attrs->pad.low[i] || op->attrs->pad.high[i] || (op->attrs->pad.interior[i] && x->dims[i] > 1)) return TERN_NO_VALUE;
  return op->operands[0];
}

/* Operands without elements add nothing; one that is all of the result is the result. */
static tern_value fold_concatenate(tern_rewrite *r, tern_op *op) {
  for (int i = 0; i < op->n_operands; i++)
    if (same_type(info(r, op->operands[i]), info(r, op->first_result))) return op->operands[i];
  return TERN_NO_VALUE;
}

/* ---- arithmetic ---- */
/* A number that every element of v is: a constant, however it was stretched. */
static bool is_constant(const tern_rewrite *r, tern_value v, const uint64_t **bits) {
  tern_op *op = maker(r, v);
  while (op->kind == TERN_OP_BROADCAST || op->kind == TERN_OP_RESHAPE) op = maker(r, op->operands[0]);
  if (op->kind != TERN_OP_CONSTANT) return false;
  *bits = op->attrs->constant.bits;
  return true;
}

enum { ZERO, NEGATIVE_ZERO, ONE };
static bool is_number(const tern_rewrite *r, tern_value v, int wanted) {
  const uint64_t *bits;
  if (!is_constant(r, v, &bits) || bits[1] != 0) return false;
  static const uint64_t floats[][3] = {{0, 0x8000, 0x3C00}, {0, 0x8000, 0x3F80}, {0, 0x80000000, 0x3F800000}, {0, 1ull << 63, 0x3FF0000000000000}};
  switch (info(r, v)->dtype) {
    case TERN_F16: return bits[0] == floats[0][wanted];
    case TERN_BF16: return bits[0] == floats[1][wanted];
    case TERN_F32: return bits[0] == floats[2][wanted];
    case TERN_F64: return bits[0] == floats[3][wanted];
    case TERN_C64: case TERN_C128: return false;
    default: return wanted == ONE ? bits[0] == 1 : bits[0] == 0;
  }
}

static tern_value fold_add(tern_rewrite *r, tern_op *op) { /* -0.0 is the float that changes nothing; integers have one zero */
  for (int i = 0; i < 2; i++)
    if (is_number(r, op->operands[i], NEGATIVE_ZERO)) return op->operands[1 - i];
  return TERN_NO_VALUE;
}
static tern_value fold_subtract(tern_rewrite *r, tern_op *op) { return is_number(r, op->operands[1], ZERO) ? op->operands[0] : TERN_NO_VALUE; }
static tern_value fold_multiply(tern_rewrite *r, tern_op *op) {
  for (int i = 0; i < 2; i++)
    if (is_number(r, op->operands[i], ONE)) return op->operands[1 - i];
  return TERN_NO_VALUE;
}
static tern_value fold_divide(tern_rewrite *r, tern_op *op) { return is_number(r, op->operands[1], ONE) ? op->operands[0] : TERN_NO_VALUE; }

/* Whether every value of `narrow` is one of `wide`, so that going there and back changes nothing. Floats are left alone: NaNs may change. */
static bool holds(tern_dtype wide, tern_dtype narrow) {
  if (narrow == TERN_BOOL) return true;
  if (!tern_dtype_is_integer(narrow) || !tern_dtype_is_integer(wide)) return false;
  if (tern_dtype_is_signed(narrow)) return tern_dtype_is_signed(wide) && tern_dtype_size(wide) >= tern_dtype_size(narrow);
  return tern_dtype_size(wide) > tern_dtype_size(narrow) || (!tern_dtype_is_signed(wide) && tern_dtype_size(wide) == tern_dtype_size(narrow));
}

static tern_value fold_convert(tern_rewrite *r, tern_op *op) {
  tern_value x = op->operands[0];
  tern_op *inner = maker(r, x);
  tern_dtype to = info(r, op->first_result)->dtype;
  if (info(r, x)->dtype == to) return x;
  if (inner->kind != TERN_OP_CONVERT) return TERN_NO_VALUE;
  tern_dtype from = info(r, inner->operands[0])->dtype;
  return from == to && holds(info(r, x)->dtype, from) ? inner->operands[0] : TERN_NO_VALUE;
}

static tern_value (*const folds[TERN_OP_COUNT])(tern_rewrite *r, tern_op *op) = {
    [TERN_OP_RESHAPE] = fold_reshape,   [TERN_OP_TRANSPOSE] = fold_transpose,       [TERN_OP_BROADCAST] = fold_broadcast,
    [TERN_OP_SLICE] = fold_slice,       [TERN_OP_UPDATE_SLICE] = fold_update_slice, [TERN_OP_PAD] = fold_pad,
    [TERN_OP_CONCATENATE] = fold_concatenate, [TERN_OP_ADD] = fold_add,             [TERN_OP_SUBTRACT] = fold_subtract,
    [TERN_OP_MULTIPLY] = fold_multiply, [TERN_OP_DIVIDE] = fold_divide,             [TERN_OP_CONVERT] = fold_convert,
    [TERN_OP_BITCAST] = fold_convert,
};

tern_value tern_fold(tern_rewrite *r, int32_t number) {
  tern_op *op = &r->ops[number];
  return folds[op->kind] ? folds[op->kind](r, op) : TERN_NO_VALUE;
}
