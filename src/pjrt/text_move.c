/* Views, moves and indexing as StableHLO. See text.h.
 *
 * Indices are in range by the time they get here (check guards them), so StableHLO's clamping and dropping never show. Scatter applies its updates in
 * index order on XLA's CPU, which makes "last wins" and the order of sums exact there; chips that scatter in parallel leave both open. */
#include "text.h"

/* ---- views ---- */

void tern_text_write_broadcast(tern_text *t, const tern_op *op) {
  tern_text_value x = tern_text_operand(t, op, 0);
  tern_text_property_dims(t, "broadcast_dimensions", x.rank, op->attrs->dims.dims);
  tern_text_set(t, op, 0, tern_text_op(t, "broadcast_in_dim", tern_text_result_shape(t, op, 0), 1, &x));
}

void tern_text_write_reshape(tern_text *t, const tern_op *op) {
  tern_text_value x = tern_text_operand(t, op, 0);
  tern_text_set(t, op, 0, tern_text_op(t, "reshape", tern_text_result_shape(t, op, 0), 1, &x));
}

void tern_text_write_transpose(tern_text *t, const tern_op *op) {
  tern_text_value x = tern_text_operand(t, op, 0);
  tern_text_property_dims(t, "permutation", x.rank, op->attrs->dims.dims);
  tern_text_set(t, op, 0, tern_text_op(t, "transpose", tern_text_result_shape(t, op, 0), 1, &x));
}

void tern_text_write_slice(tern_text *t, const tern_op *op) {
  tern_text_value x = tern_text_operand(t, op, 0);
  tern_text_property_array(t, "start_indices", x.rank, op->attrs->slice.start);
  tern_text_property_array(t, "limit_indices", x.rank, op->attrs->slice.limit);
  tern_text_property_array(t, "strides", x.rank, op->attrs->slice.stride);
  tern_text_set(t, op, 0, tern_text_op(t, "slice", tern_text_result_shape(t, op, 0), 1, &x));
}

void tern_text_write_reverse(tern_text *t, const tern_op *op) {
  tern_text_value x = tern_text_operand(t, op, 0);
  tern_text_property_dims(t, "dimensions", op->attrs->dims.n, op->attrs->dims.dims);
  tern_text_set(t, op, 0, tern_text_op(t, "reverse", tern_text_result_shape(t, op, 0), 1, &x));
}

/* ---- moves ---- */

static tern_text_value pad(tern_text *t, tern_text_value x, tern_text_value value, tern_text_value shape, const int64_t *low, const int64_t *high,
                           const int64_t *interior) {
  tern_text_property_array(t, "edge_padding_low", x.rank, low);
  tern_text_property_array(t, "edge_padding_high", x.rank, high);
  tern_text_property_array(t, "interior_padding", x.rank, interior);
  return tern_text_op(t, "pad", shape, 2, (tern_text_value[]){x, value});
}

void tern_text_write_pad(tern_text *t, const tern_op *op) {
  tern_text_set(t, op, 0,
                pad(t, tern_text_operand(t, op, 0), tern_text_operand(t, op, 1), tern_text_result_shape(t, op, 0), op->attrs->pad.low, op->attrs->pad.high,
                    op->attrs->pad.interior));
}

/* Without steps it is a dynamic_update_slice at a constant place. With steps the update is spread out by padding, and a mask spread likewise says where it
 * replaces the base. */
void tern_text_write_update_slice(tern_text *t, const tern_op *op) {
  tern_text_value base = tern_text_operand(t, op, 0), update = tern_text_operand(t, op, 1);
  const int64_t *start = op->attrs->slice.start, *stride = op->attrs->slice.stride;
  bool dense = true, whole = true;
  for (int d = 0; d < base.rank; d++) {
    dense = dense && (stride[d] == 1 || update.dims[d] == 1);
    whole = whole && update.dims[d] == base.dims[d];
  }
  if (!tern_text_count(&update) || whole) {
    tern_text_set(t, op, 0, tern_text_count(&update) ? update : base);
    return;
  }
  tern_text_value scalar = tern_text_shape(TERN_I32, 0, NULL);
  if (dense) {
    tern_text_value operands[2 + TERN_MAX_RANK] = {base, update};
    for (int d = 0; d < base.rank; d++) operands[2 + d] = tern_text_constant_int(t, start[d] > INT32_MAX ? tern_text_like(scalar, TERN_I64) : scalar, start[d]);
    /* The starts have one type. */
    for (int d = 0; d < base.rank; d++)
      if (operands[2 + d].dtype == TERN_I64)
        for (int e = 0; e < base.rank; e++) operands[2 + e] = tern_text_convert(t, operands[2 + e], TERN_I64);
    tern_text_set(t, op, 0, tern_text_op(t, "dynamic_update_slice", base, 2 + base.rank, operands));
    return;
  }
  int64_t high[TERN_MAX_RANK], interior[TERN_MAX_RANK];
  for (int d = 0; d < base.rank; d++) {
    interior[d] = stride[d] - 1;
    high[d] = base.dims[d] - (start[d] + (update.dims[d] - 1) * stride[d] + 1);
  }
  tern_text_value zero = tern_text_constant_int(t, tern_text_like(scalar, base.dtype), 0), no = tern_text_constant_int(t, tern_text_like(scalar, TERN_BOOL), 0);
  tern_text_value yes = tern_text_constant_int(t, tern_text_like(update, TERN_BOOL), 1);
  tern_text_value spread = pad(t, update, zero, base, start, high, interior);
  tern_text_value mask = pad(t, yes, no, tern_text_like(base, TERN_BOOL), start, high, interior);
  tern_text_set(t, op, 0, tern_text_select(t, mask, spread, base));
}

/* Pieces without elements are left out: plug-ins stumble over them. */
void tern_text_write_concatenate(tern_text *t, const tern_op *op) {
  tern_text_value *pieces = malloc(op->n_operands * sizeof *pieces);
  if (!pieces) {
    t->out.failed = true;
    return;
  }
  int n = 0;
  for (int i = 0; i < op->n_operands; i++) {
    tern_text_value piece = tern_text_operand(t, op, i);
    if (tern_text_count(&piece)) pieces[n++] = piece;
  }
  tern_text_value result = pieces[0];
  if (n != 1) {
    tern_text_property(t, "dimension", "%d : i64", op->attrs->axis.dim);
    result = tern_text_op(t, "concatenate", tern_text_result_shape(t, op, 0), n, pieces);
  }
  tern_text_set(t, op, 0, result);
  free(pieces);
}

/* ---- indexing ---- */

static void append_list(tern_text_buffer *buffer, const char *name, int n, const int *numbers) {
  tern_text_append(buffer, "%s = [", name);
  for (int i = 0; i < n; i++) tern_text_append(buffer, "%s%d", i ? ", " : "", numbers[i]);
  tern_text_append(buffer, "]");
}

/* The four lists that gather and scatter share, under either's names: which dims of the result (or update) run inside a slice, which dims of the
 * operand a slice has lost, which dims of the operand the index vector speaks of, and which dim of the indices is that vector. */
typedef struct index_lists {
  int n_window, window[TERN_MAX_RANK];
  int n_lost, lost[TERN_MAX_RANK];
  int n_indexed, indexed[TERN_MAX_RANK];
  int vector_dim;
} index_lists;

static void property_lists(tern_text *t, bool gather, const index_lists *lists) {
  tern_text_buffer *b = &t->properties;
  tern_text_append(b, gather ? "%sdimension_numbers = #stablehlo.gather<" : "%sscatter_dimension_numbers = #stablehlo.scatter<", b->length ? ", " : "");
  append_list(b, gather ? "offset_dims" : "update_window_dims", lists->n_window, lists->window);
  append_list(b, gather ? ", collapsed_slice_dims" : ", inserted_window_dims", lists->n_lost, lists->lost);
  append_list(b, gather ? ", start_index_map" : ", scatter_dims_to_operand_dims", lists->n_indexed, lists->indexed);
  tern_text_append(b, ", index_vector_dim = %d>", lists->vector_dim);
}

/* take and put: the index speaks of one dim; slices run along all others. */
static index_lists lists_along(tern_text_value x, tern_text_value index, int dim) {
  index_lists lists = {.n_lost = 1, .lost = {dim}, .n_indexed = 1, .indexed = {dim}, .vector_dim = index.rank};
  for (int d = 0; d < x.rank; d++)
    if (d != dim) lists.window[lists.n_window++] = d < dim ? d : d - 1 + index.rank;
  return lists;
}

/* gather and scatter: each index element speaks of one element, whose place in the other dims is its own. The index becomes an array of index
 * vectors; dims of size 1 in the operand need no entry. Returns the index vectors. */
static tern_text_value vectors_along(tern_text *t, tern_text_value x, tern_text_value index, int dim, index_lists *lists) {
  *lists = (index_lists){.vector_dim = index.rank};
  tern_text_value column = index, vector;
  column.dims[column.rank++] = 1;
  tern_text_value columns[TERN_MAX_RANK] = {0};
  columns[0] = column; /* `dim` itself is never passed over below, so there is one at least */
  for (int d = 0; d < x.rank; d++) {
    lists->lost[lists->n_lost++] = d;
    if (d != dim && index.dims[d] == 1) continue; /* place 0, which is also what an absent entry means */
    tern_text_value places = d == dim ? index : tern_text_iota(t, index, d);
    columns[lists->n_indexed] = tern_text_reshape(t, places, column.rank, column.dims);
    lists->indexed[lists->n_indexed++] = d;
  }
  vector = columns[0];
  if (lists->n_indexed > 1) {
    column.dims[column.rank - 1] = lists->n_indexed;
    tern_text_property(t, "dimension", "%d : i64", column.rank - 1);
    vector = tern_text_op(t, "concatenate", column, lists->n_indexed, columns);
  }
  return vector;
}

/* Narrow indices could not hold the places in the other dims. */
static tern_text_value wide_index(tern_text *t, tern_text_value index) {
  return index.dtype == TERN_I32 || index.dtype == TERN_I64 ? index : tern_text_convert(t, index, TERN_I64);
}

static tern_text_value write_gather(tern_text *t, tern_text_value x, tern_text_value index, tern_text_value shape, const index_lists *lists) {
  int64_t sizes[TERN_MAX_RANK];
  for (int d = 0; d < x.rank; d++) sizes[d] = x.dims[d];
  for (int i = 0; i < lists->n_lost; i++) sizes[lists->lost[i]] = 1;
  property_lists(t, true, lists);
  tern_text_property_array(t, "slice_sizes", x.rank, sizes);
  tern_text_property(t, "indices_are_sorted", "false");
  return tern_text_op(t, "gather", shape, 2, (tern_text_value[]){x, index});
}

void tern_text_write_take(tern_text *t, const tern_op *op) {
  tern_text_value x = tern_text_operand(t, op, 0), index = wide_index(t, tern_text_operand(t, op, 1));
  index_lists lists = lists_along(x, index, op->attrs->axis.dim);
  tern_text_set(t, op, 0, write_gather(t, x, index, tern_text_result_shape(t, op, 0), &lists));
}

void tern_text_write_gather(tern_text *t, const tern_op *op) {
  tern_text_value x = tern_text_operand(t, op, 0), index = wide_index(t, tern_text_operand(t, op, 1));
  if (!x.rank) { /* one element, whatever the index says */
    tern_text_set(t, op, 0, x);
    return;
  }
  index_lists lists;
  tern_text_value vectors = vectors_along(t, x, index, op->attrs->axis.dim, &lists);
  tern_text_set(t, op, 0, write_gather(t, x, vectors, tern_text_result_shape(t, op, 0), &lists));
}

static tern_text_value write_scatter(tern_text *t, tern_text_value base, tern_text_value index, tern_text_value update, tern_combine how,
                                     const index_lists *lists) {
  static const char *const names[] = {
      [TERN_COMBINE_ADD] = "add", [TERN_COMBINE_MULTIPLY] = "multiply", [TERN_COMBINE_MAX] = "maximum", [TERN_COMBINE_MIN] = "minimum"};
  bool is_bool = base.dtype == TERN_BOOL;
  property_lists(t, false, lists);
  tern_text_property(t, "indices_are_sorted", "false");
  tern_text_property(t, "unique_indices", "false");
  tern_text_region_binary(t,
                          how == TERN_SET                           ? NULL
                          : is_bool && how == TERN_COMBINE_ADD      ? "or"
                          : is_bool && how == TERN_COMBINE_MULTIPLY ? "and"
                                                                    : names[how],
                          base.dtype);
  return tern_text_op(t, "scatter", base, 3, (tern_text_value[]){base, index, update});
}

void tern_text_write_put(tern_text *t, const tern_op *op) {
  tern_text_value base = tern_text_operand(t, op, 0), index = wide_index(t, tern_text_operand(t, op, 1)), update = tern_text_operand(t, op, 2);
  index_lists lists = lists_along(base, index, op->attrs->scatter.dim);
  tern_text_set(t, op, 0, tern_text_count(&update) ? write_scatter(t, base, index, update, op->attrs->scatter.how, &lists) : base);
}

void tern_text_write_scatter(tern_text *t, const tern_op *op) {
  tern_text_value base = tern_text_operand(t, op, 0), index = wide_index(t, tern_text_operand(t, op, 1)), update = tern_text_operand(t, op, 2);
  if (!tern_text_count(&index)) {
    tern_text_set(t, op, 0, base);
    return;
  }
  int dim = op->attrs->scatter.dim, rank = base.rank;
  if (!rank) { /* as one row of one element */
    int64_t one = 1;
    base = tern_text_reshape(t, base, 1, &one), index = tern_text_reshape(t, index, 1, &one), update = tern_text_reshape(t, update, 1, &one);
  }
  int64_t zeros[TERN_MAX_RANK] = {0};
  if (memcmp(update.dims, index.dims, (size_t)index.rank * sizeof *index.dims))
    update = tern_text_slice(t, update, zeros, index.dims); /* torch.scatter reads its corner */
  index_lists lists;
  tern_text_value vectors = vectors_along(t, base, index, dim, &lists);
  tern_text_value result = write_scatter(t, base, vectors, update, op->attrs->scatter.how, &lists);
  tern_text_set(t, op, 0, rank ? result : tern_text_reshape(t, result, 0, NULL));
}
