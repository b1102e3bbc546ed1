/* index_tensors: indexing with several tensors at once, x[i, :, j], read and written.
 *
 * The index tensors broadcast against each other. Where the dimensions they index lie side by side they are seen as one flat dimension, indexed by one
 * combined index, and the broadcast shape takes their place; otherwise they are first moved to the front, and the broadcast shape comes first (NumPy's rule,
 * see aten/src/ATen/native/TensorAdvancedIndexing.cpp). Masks, but for x[mask] = number, are made
 * into index tensors first (nonzero.c). */
#include "index.h"
#include "layout.h"

typedef struct plan {
  int k;                          /* index tensors */
  int dims[TERN_MAX_TENSOR_RANK]; /* the dimension each indexes */
  int index_rank;                 /* of their broadcast */
  int64_t index_sizes[TERN_MAX_TENSOR_RANK];
  bool adjacent;
  int rank; /* of the result */
  int64_t sizes[TERN_MAX_TENSOR_RANK];
} plan;

/* attrs of both kinds of node; index_put adds one of its own before */
enum { K, ADJACENT, DIMS };

static void draft_plan(tern_draft *draft, const plan *l) {
  tern_draft_attr(draft, l->k);
  tern_draft_attr(draft, l->adjacent);
  for (int i = 0; i < l->k; i++) tern_draft_attr(draft, l->dims[i]);
}

static void append(plan *l, int n, const int64_t *sizes) {
  for (int i = 0; i < n; i++) l->sizes[l->rank++] = sizes[i];
}

/* The result's sizes; false where it has too many dimensions. */
static bool finish_plan(const tern_tensor *x, plan *l) {
  l->adjacent = l->dims[l->k - 1] - l->dims[0] == l->k - 1;
  l->rank = 0;
  if (x->rank - l->k + l->index_rank > TERN_MAX_TENSOR_RANK) return false;
  if (!l->adjacent) append(l, l->index_rank, l->index_sizes);
  for (int d = 0, i = 0; d < x->rank; d++) {
    if (i == l->k || l->dims[i] != d)
      append(l, 1, &x->sizes[d]);
    else if (i++ == 0 && l->adjacent)
      append(l, l->index_rank, l->index_sizes);
  }
  return true;
}

/* Plans x[indices], the tensors in arguments[1]; adds them as operands behind the draft's. */
static tern_verdict make_plan(const tern_call *call, tern_draft *draft, const tern_tensor *x, plan *l) {
  const tern_argument *list = &call->arguments[1];
  int64_t indexed = 1, count = 1;
  l->k = l->index_rank = 0;
  if (list->tag != TERN_ARG_TENSORS || list->n > x->rank) return list->tag == TERN_ARG_TENSORS ? TERN_REJECT : TERN_FALL_BACK;
  for (int i = 0; i < list->n; i++) {
    const tern_tensor *index = &list->u.tensors[i];
    if (!index->sizes) continue;
    if (!tern_nn_is_index(index) || index->device < 0) return TERN_FALL_BACK;
    if (!tern_broadcast_shape(&l->index_rank, l->index_sizes, index->rank, index->sizes)) return TERN_REJECT;
    tern_verdict verdict = tern_draft_tensor(draft, index);
    if (verdict != TERN_RECORD) return verdict;
    indexed *= x->sizes[i];
    l->dims[l->k++] = i;
  }
  for (int d = 0; d < l->index_rank; d++) count *= l->index_sizes[d];
  if (l->k == 0 || !finish_plan(x, l)) return TERN_FALL_BACK;
  return indexed == 0 && count > 0 ? TERN_FALL_BACK : TERN_RECORD;
}

/* TensorIterator's strides over the base as the result walks it (stride 0 along the index's dimensions) and the index tensors (of size 1 along what follows them). */
static void set_result_strides(const tern_draft *draft, const tern_tensor *x, const plan *l, tern_draft_output *result) {
  tern_draft walked = *draft;
  tern_draft_output like = *result;
  tern_geometry *base = &walked.operands[0].view;
  int first = l->adjacent ? l->dims[0] : 0, d = 0;
  base->rank = l->rank;
  memcpy(base->sizes, l->sizes, (size_t)l->rank * sizeof *l->sizes);
  for (int r = 0, i = 0; r < l->rank; r++) {
    bool is_index = r >= first && r < first + l->index_rank;
    for (; !is_index && i < l->k && l->dims[i] == d; i++) d++;
    base->strides[r] = is_index ? 0 : x->strides[d++];
  }
  for (int i = 1; i <= l->k; i++) {
    tern_geometry *index = &walked.operands[i].view;
    for (int r = first + l->index_rank; r < l->rank; r++) index->sizes[index->rank] = 1, index->strides[index->rank++] = 0;
  }
  like.layout = TERN_LIKE_OPERANDS;
  result->layout = TERN_GIVEN;
  tern_layout_strides(&walked, &like, result->strides);
}

tern_verdict tern_index_infer(const tern_call *call, tern_draft *draft) {
  const tern_tensor *x = tern_arg_tensor(call, 0);
  plan l;
  if (!x || call->n_arguments < 2) return TERN_REJECT;
  tern_verdict verdict = tern_draft_tensor(draft, x);
  if (verdict != TERN_RECORD) return verdict;
  verdict = make_plan(call, draft, x, &l);
  if (verdict != TERN_RECORD) return verdict;
  draft_plan(draft, &l);
  set_result_strides(draft, x, &l, tern_draft_result(draft, (tern_dtype)x->dtype, l.rank, l.sizes));
  return TERN_RECORD;
}

/* ---- writing ---- */

enum { ACCUMULATES, IS_MASK, HAS_TENSOR, PLAN };

/* x[..., mask] = one number: a select, whatever the mask holds. Gives the mask and its first dimension; NULL where it is something else. */
static const tern_tensor *mask_of(const tern_call *call, const tern_tensor *x, int *first) {
  const tern_argument *list = &call->arguments[1];
  const tern_tensor *mask = NULL;
  if (list->tag != TERN_ARG_TENSORS) return NULL;
  for (int i = 0; i < list->n; i++) {
    const tern_tensor *index = &list->u.tensors[i];
    if (!index->sizes) continue;
    if (mask || index->dtype != TERN_BOOL || index->device < 0) return NULL;
    mask = index;
    *first = i;
  }
  if (!mask || *first + mask->rank > x->rank) return NULL;
  for (int d = 0; d < mask->rank; d++)
    if (mask->sizes[d] != x->sizes[*first + d]) return NULL;
  return mask;
}

/* (self, indices, values, accumulate, ...) */
tern_verdict tern_index_put_infer(const tern_call *call, tern_draft *draft) {
  const tern_tensor *x = tern_arg_tensor(call, 0), *values = tern_arg_tensor(call, 2);
  plan l;
  int first = 0;
  if (!x || !values || call->n_arguments < 3) return TERN_REJECT;
  bool accumulate = tern_arg_bool(call, 3, false), on_device = values->device >= 0;
  if (values->dtype != x->dtype || (accumulate && x->dtype >= TERN_C64) || tern_layout_writes_repeats(call, x)) return TERN_FALL_BACK;
  tern_verdict verdict = tern_draft_tensor(draft, x);
  if (verdict != TERN_RECORD) return verdict;
  const tern_tensor *mask = values->count == 1 && !accumulate ? mask_of(call, x, &first) : NULL;
  tern_draft_attrs(draft, 3, (int64_t[]){accumulate, mask != NULL, on_device});
  if (mask) {
    tern_draft_attr(draft, first);
    verdict = tern_draft_tensor(draft, mask);
  } else {
    verdict = make_plan(call, draft, x, &l);
    if (verdict == TERN_RECORD) draft_plan(draft, &l);
    if (verdict == TERN_RECORD && !tern_nn_expands(values, l.rank, l.sizes)) verdict = TERN_REJECT;
  }
  if (verdict != TERN_RECORD) return verdict;
  if (!on_device && !tern_draft_number(draft, &call->arguments[2], (tern_dtype)x->dtype, false)) return TERN_FALL_BACK;
  if (on_device) verdict = tern_draft_tensor(draft, values);
  tern_draft_result(draft, (tern_dtype)x->dtype, x->rank, x->sizes);
  return verdict;
}

/* ---- lowering ---- */

tern_value tern_index_wrapped(tern_program *p, tern_value index, int64_t range) {
  index = tern_nn_as(p, index, TERN_I64);
  tern_check_index(p, index, -range, range - 1);
  tern_value zero = tern_constant_int(p, TERN_I64, 0, NULL, 0), size = tern_constant_int(p, TERN_I64, 0, NULL, range);
  return tern_select(p, tern_compare(p, TERN_LT, index, zero), tern_add(p, index, size), index);
}

/* The base with its indexed dimensions as one, `dim`, and the combined index into that. */
typedef struct flattened {
  tern_value base, index;
  int dim;
  int moved_rank; /* of the base with the indexed dimensions moved to the front */
  int64_t moved[TERN_MAX_RANK];
  int permutation[TERN_MAX_RANK]; /* that did it */
} flattened;

static flattened flatten(const tern_lowering *node, const int64_t *attrs, const tern_value *indices) {
  tern_program *p = node->program;
  tern_value x = node->operands[0];
  int k = (int)attrs[K], rank = tern_value_rank(p, x), n = 0;
  const int64_t *dims = tern_value_dims(p, x);
  flattened f = {.index = TERN_NO_VALUE, .moved_rank = rank, .dim = attrs[ADJACENT] ? (int)attrs[DIMS] : 0};
  bool is_indexed[TERN_MAX_RANK] = {false};
  for (int i = 0; i < k; i++) {
    int dim = (int)attrs[DIMS + i];
    tern_value index = tern_index_wrapped(p, indices[i], dims[dim]);
    is_indexed[dim] = true;
    f.index = i == 0 ? index : tern_add(p, tern_multiply(p, f.index, tern_constant_int(p, TERN_I64, 0, NULL, dims[dim])), index);
    if (!attrs[ADJACENT]) f.permutation[n++] = dim;
  }
  for (int d = 0; d < rank; d++)
    if (attrs[ADJACENT] || !is_indexed[d]) f.permutation[n++] = d;
  f.base = tern_transpose(p, x, f.permutation);
  int64_t merged[TERN_MAX_RANK];
  int m = 0;
  for (int d = 0; d < rank; d++) {
    f.moved[d] = dims[f.permutation[d]];
    if (d > f.dim && d < f.dim + k)
      merged[m - 1] *= f.moved[d];
    else
      merged[m++] = f.moved[d];
  }
  f.base = tern_reshape(p, f.base, m, merged);
  return f;
}

tern_status tern_index_lower(const tern_lowering *node, tern_value *results) {
  flattened f = flatten(node, node->attrs, node->operands + 1);
  results[0] = tern_take(node->program, f.base, f.index, f.dim);
  return NULL;
}

static tern_status lower_mask(const tern_lowering *node, tern_value *results) {
  tern_program *p = node->program;
  tern_value x = node->operands[0], mask = node->operands[1], value = node->attrs[HAS_TENSOR] ? node->operands[2] : node->scalars[0];
  int rank = tern_value_rank(p, x), first = (int)node->attrs[PLAN];
  int64_t dims[TERN_MAX_RANK];
  for (int d = 0; d < rank; d++) dims[d] = d >= first && d < first + tern_value_rank(p, mask) ? tern_value_dims(p, x)[d] : 1;
  value = tern_convert(p, tern_reshape(p, value, 0, NULL), tern_value_dtype(p, x));
  results[0] = tern_nn_result(node, 0, tern_select(p, tern_reshape(p, mask, rank, dims), value, x));
  return NULL;
}

tern_status tern_index_put_lower(const tern_lowering *node, tern_value *results) {
  tern_program *p = node->program;
  if (node->attrs[IS_MASK]) return lower_mask(node, results);
  const int64_t *attrs = node->attrs + PLAN;
  int k = (int)attrs[K];
  flattened f = flatten(node, attrs, node->operands + 1);
  tern_combine how = node->attrs[ACCUMULATES] ? TERN_COMBINE_ADD : TERN_SET;
  tern_dtype dtype = tern_index_combined_in(tern_value_dtype(p, f.base), how);
  /* The shape that values are expanded to is that of reading the same places. */
  int64_t sizes[TERN_MAX_RANK];
  int rank = 0, base_rank = tern_value_rank(p, f.base), index_rank = tern_value_rank(p, f.index);
  for (int d = 0; d < base_rank; d++) {
    if (d != f.dim)
      sizes[rank++] = tern_value_dims(p, f.base)[d];
    else
      for (int i = 0; i < index_rank; i++) sizes[rank++] = tern_value_dims(p, f.index)[i];
  }
  tern_value values = tern_convert(p, node->attrs[HAS_TENSOR] ? node->operands[1 + k] : node->scalars[0], dtype);
  values = tern_broadcast_to(p, values, rank, sizes);
  tern_value put = tern_put(p, tern_convert(p, f.base, dtype), f.index, values, f.dim, how);
  int back[TERN_MAX_RANK];
  for (int d = 0; d < f.moved_rank; d++) back[f.permutation[d]] = d;
  put = tern_transpose(p, tern_reshape(p, put, f.moved_rank, f.moved), back);
  results[0] = tern_nn_result(node, 0, put);
  return NULL;
}
