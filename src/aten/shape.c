/* shape: operators that move elements: copies, concatenation, triangles, flips, rolls, padding. Views need no row: the shim makes them by strides alone. */
#include "layout.h"
#include "pointwise.h"

static bool is_plain(tern_dtype dtype) { return dtype < TERN_C64; }

/* ---- copy: what the shim records for tensor.copy_(tensor); the source's view already has the target's sizes, and eager converts at the write ---- */

static tern_status lower_copy(const tern_lowering *node, tern_value *results) {
  results[0] = tern_broadcast_to(node->program, node->operands[0], node->outputs[0].view.rank, node->outputs[0].view.sizes);
  return NULL;
}

/* ---- cat: attrs[0] = the dimension ---- */

static bool is_skipped(const tern_tensor *t) { return t->rank == 1 && t->sizes[0] == 0; } /* PyTorch lets an empty list join any shape */

/* The channels-last order of dimensions, fastest first: 1, last ... 2, 0. Ranks 4 and 5 have one. */
static int channels_last_dim(int rank, int i) { return i == 0 ? 1 : i == rank - 1 ? 0 : rank - i; }

/* Whether the strides say channels-last (c10/core/MemoryFormat.h: is_channels_last_strides_2d and _3d, their ambiguous cases decided alike). */
static bool looks_channels_last(const tern_tensor *t) {
  int64_t smallest = 0;
  if ((t->rank != 4 && t->rank != 5) || t->strides[1] == 0) return false;
  for (int i = 0; i < t->rank; i++) {
    int d = channels_last_dim(t->rank, i);
    if (t->sizes[d] == 0 || t->strides[d] < smallest || (d == 0 && smallest == t->strides[1])) return false;
    smallest = t->strides[d] * (t->sizes[d] > 1 ? t->sizes[d] : 1);
  }
  return true;
}

static void set_channels_last(tern_draft_output *output) {
  int64_t next = 1;
  output->layout = TERN_GIVEN;
  for (int i = 0; i < output->rank; i++) {
    int d = channels_last_dim(output->rank, i);
    output->strides[d] = next;
    next *= output->sizes[d] > 1 ? output->sizes[d] : 1;
  }
}

/* What the result looks like. Adds an operand for each part where `operands` says so. */
static tern_verdict describe_cat(const tern_call *call, tern_draft *draft, bool operands) {
  const tern_argument *list = &call->arguments[0];
  const tern_tensor *first = NULL;
  tern_promotion promotion = TERN_PROMOTION_START;
  int dim = 0, present = 0;
  bool channels_last = true;
  int64_t sizes[TERN_MAX_TENSOR_RANK], length = 0;
  if (list->tag != TERN_ARG_TENSORS || list->n == 0) return TERN_REJECT;
  tern_promotion_add(&promotion, list);
  tern_dtype common = tern_promotion_result(&promotion);
  if (common >= TERN_DTYPE_COUNT) return TERN_FALL_BACK;
  for (int i = 0; i < list->n; i++) {
    const tern_tensor *t = &list->u.tensors[i];
    if (t->rank > TERN_MAX_TENSOR_RANK) return TERN_FALL_BACK;
    if (t->device < 0 || t->rank == 0) return TERN_REJECT;
    if (is_skipped(t)) continue;
    present++;
    channels_last = channels_last && looks_channels_last(t);
    if (!first) {
      first = t;
      if (!tern_wrap_dim(tern_arg_int(call, 1, 0), t->rank, &dim)) return TERN_REJECT;
    }
    if (t->rank != first->rank) return TERN_REJECT;
    for (int d = 0; d < t->rank; d++)
      if (d != dim && t->sizes[d] != first->sizes[d]) return TERN_REJECT;
    length += t->sizes[dim];
    tern_verdict verdict = operands ? tern_draft_tensor(draft, t) : TERN_RECORD;
    if (verdict != TERN_RECORD) return verdict;
  }
  if (!present) return TERN_FALL_BACK;
  for (int d = 0; d < first->rank; d++) sizes[d] = d == dim ? length : first->sizes[d];
  tern_draft_attr(draft, dim);
  tern_draft_output *output = tern_draft_result(draft, common, first->rank, sizes);
  if (channels_last) set_channels_last(output);
  return TERN_RECORD;
}

static tern_verdict infer_cat(const tern_call *call, tern_draft *draft) {
  return call->arguments[0].n > TERN_MAX_OPERANDS ? TERN_FALL_BACK : describe_cat(call, draft, true);
}

/* A list too long for one node: each node joins as many parts as it can take into a slice of the result. */
static tern_verdict call_cat(const tern_call *call, tern_status *status) {
  tern_draft whole;
  tern_draft_start(&whole);
  if (call->form != TERN_FUNCTIONAL || call->arguments[0].n <= TERN_MAX_OPERANDS) return TERN_FALL_BACK;
  tern_verdict verdict = describe_cat(call, &whole, false);
  if (verdict != TERN_RECORD) return verdict;
  tern_draft_output *result = &whole.outputs[0];
  const tern_tensor *parts = call->arguments[0].u.tensors;
  int n = call->arguments[0].n, dim = (int)whole.attrs[0];
  tern_geometry contiguous;
  tern_geometry_set_contiguous(&contiguous, result->rank, result->sizes, 0);
  const int64_t *strides = result->layout == TERN_GIVEN ? result->strides : contiguous.strides;
  tern_tensor slice = {.strides = strides, .rank = result->rank, .device = parts[0].device, .dtype = (uint8_t)result->dtype};
  *status = call->host->new_result(call->shim, parts[0].device, result->dtype, result->rank, result->sizes, strides, call->line, &slice.buffer);
  for (int at = 0; at < n && !*status;) {
    tern_draft draft;
    tern_draft_start(&draft);
    int64_t sizes[TERN_MAX_TENSOR_RANK], length = 0;
    for (int k = 0; at < n && k < TERN_MAX_OPERANDS; k++, at++) {
      if (is_skipped(&parts[at])) continue;
      if (tern_draft_tensor(&draft, &parts[at]) != TERN_RECORD) return *status = tern_error_new(TERN_INTERNAL, "cat: a part changed while it was joined"), TERN_RECORD;
      length += parts[at].sizes[dim];
    }
    if (!length) continue;
    for (int d = 0; d < result->rank; d++) sizes[d] = d == dim ? length : result->sizes[d];
    tern_draft_attr(&draft, dim);
    tern_draft_result(&draft, result->computed, result->rank, sizes);
    slice.sizes = sizes;
    slice.count = tern_dims_count(result->rank, sizes);
    *status = tern_draft_record(call, &draft, call->row, (const tern_tensor *const[]){&slice});
    slice.offset += length * strides[dim];
  }
  return TERN_RECORD;
}

static tern_status lower_cat(const tern_lowering *node, tern_value *results) {
  tern_value parts[TERN_MAX_OPERANDS];
  for (int i = 0; i < node->n_operands; i++) parts[i] = tern_convert(node->program, node->operands[i], node->outputs[0].computed);
  results[0] = node->n_operands == 1 ? parts[0] : tern_concatenate(node->program, node->n_operands, parts, (int)node->attrs[0]);
  return NULL;
}

/* ---- tril, triu: attrs[0] = the diagonal ---- */

static tern_verdict infer_triangle(const tern_call *call, tern_draft *draft) {
  const tern_tensor *x = tern_arg_tensor(call, 0);
  if (!x || x->rank < 2) return TERN_REJECT;
  tern_verdict verdict = tern_draft_tensor(draft, x);
  if (verdict != TERN_RECORD) return verdict;
  if (!is_plain((tern_dtype)x->dtype)) return TERN_FALL_BACK;
  tern_draft_attr(draft, tern_arg_int(call, 1, 0));
  tern_draft_result(draft, (tern_dtype)x->dtype, x->rank, x->sizes);
  return TERN_RECORD;
}
static tern_status lower_triangle(const tern_lowering *node, tern_value *results, tern_comparison keep) {
  tern_program *p = node->program;
  tern_value x = node->operands[0];
  tern_dtype dtype = tern_value_dtype(p, x);
  int rank = tern_value_rank(p, x);
  const int64_t matrix[2] = {tern_value_dims(p, x)[rank - 2], tern_value_dims(p, x)[rank - 1]};
  tern_value column = tern_iota(p, TERN_I64, 2, matrix, 1);
  tern_value limit = tern_add(p, tern_iota(p, TERN_I64, 2, matrix, 0), tern_constant_int(p, TERN_I64, 0, NULL, node->attrs[0]));
  tern_value zero = tern_dtype_is_float(dtype) ? tern_constant_float(p, dtype, 0, NULL, 0) : tern_constant_int(p, dtype, 0, NULL, 0);
  results[0] = tern_select(p, tern_compare(p, keep, column, limit), x, zero);
  return NULL;
}
static tern_status lower_tril(const tern_lowering *node, tern_value *results) { return lower_triangle(node, results, TERN_LE); }
static tern_status lower_triu(const tern_lowering *node, tern_value *results) { return lower_triangle(node, results, TERN_GE); }

/* ---- flip: attrs = the dimensions ---- */

static tern_verdict infer_flip(const tern_call *call, tern_draft *draft) {
  const tern_tensor *x = tern_arg_tensor(call, 0);
  const int64_t *dims;
  int n, dim;
  uint32_t seen = 0;
  if (!x || !tern_arg_ints(call, 1, &n, &dims)) return TERN_REJECT;
  tern_verdict verdict = tern_draft_tensor(draft, x);
  if (verdict != TERN_RECORD) return verdict;
  for (int i = 0; i < n; i++) {
    if (!tern_wrap_dim(dims[i], x->rank, &dim) || seen >> dim & 1) return TERN_REJECT;
    seen |= 1u << dim;
    if (x->rank) tern_draft_attr(draft, dim);
  }
  tern_draft_output *output = tern_draft_result(draft, (tern_dtype)x->dtype, x->rank, x->sizes);
  output->layout = TERN_GIVEN;
  tern_layout_strides_like(x, output->strides);
  return TERN_RECORD;
}
static tern_status lower_flip(const tern_lowering *node, tern_value *results) {
  int dims[TERN_MAX_TENSOR_RANK];
  for (int i = 0; i < node->n_attrs; i++) dims[i] = (int)node->attrs[i];
  results[0] = node->n_attrs ? tern_reverse(node->program, node->operands[0], node->n_attrs, dims) : node->operands[0];
  return NULL;
}

/* ---- roll: attrs = pairs (dimension, shift in [0, size)); dimension -1: the flattened tensor ---- */

static tern_verdict infer_roll(const tern_call *call, tern_draft *draft) {
  const tern_tensor *x = tern_arg_tensor(call, 0);
  const int64_t *shifts, *dims;
  int n, n_dims, dim = -1;
  if (!x || !tern_arg_ints(call, 1, &n, &shifts) || !tern_arg_ints(call, 2, &n_dims, &dims)) return TERN_REJECT;
  if (n == 0 || (n_dims == 0 ? n != 1 : n != n_dims)) return TERN_REJECT;
  tern_verdict verdict = tern_draft_tensor(draft, x);
  if (verdict != TERN_RECORD) return verdict;
  bool moves = true;
  for (int i = 0; i < n; i++) {
    if (n_dims && (x->rank == 0 || !tern_wrap_dim(dims[i], x->rank, &dim))) return TERN_REJECT;
    int64_t size = n_dims ? x->sizes[dim] : x->count, shift = size ? shifts[i] % size : 0;
    tern_draft_attr(draft, n_dims ? dim : -1);
    tern_draft_attr(draft, shift < 0 ? shift + size : shift);
    moves = moves && shift != 0;
  }
  tern_draft_output *output = tern_draft_result(draft, (tern_dtype)x->dtype, x->rank, x->sizes);
  if (x->count == 0) { /* PyTorch clones what is empty */
    output->layout = TERN_GIVEN;
    tern_layout_strides_like(x, output->strides);
  } else if (n_dims && moves && looks_channels_last(x)) set_channels_last(output); /* PyTorch joins two slices with cat, which an empty one makes contiguous */
  return TERN_RECORD;
}

static tern_value roll_dim(tern_program *p, tern_value x, int dim, int64_t shift) {
  int64_t start[TERN_MAX_TENSOR_RANK] = {0}, limit[TERN_MAX_TENSOR_RANK], stride[TERN_MAX_TENSOR_RANK];
  tern_value parts[2];
  int rank = tern_value_rank(p, x);
  if (shift == 0) return x;
  for (int d = 0; d < rank; d++) limit[d] = tern_value_dims(p, x)[d], stride[d] = 1;
  int64_t size = limit[dim];
  start[dim] = size - shift;
  parts[0] = tern_slice(p, x, start, limit, stride);
  start[dim] = 0;
  limit[dim] = size - shift;
  parts[1] = tern_slice(p, x, start, limit, stride);
  return tern_concatenate(p, 2, parts, dim);
}
static tern_status lower_roll(const tern_lowering *node, tern_value *results) {
  tern_program *p = node->program;
  tern_value x = node->operands[0];
  if (node->attrs[0] < 0) {
    int64_t count = 1;
    for (int d = 0; d < node->outputs[0].view.rank; d++) count *= node->outputs[0].view.sizes[d];
    x = roll_dim(p, tern_reshape(p, x, 1, &count), 0, node->attrs[1]);
    results[0] = tern_reshape(p, x, node->outputs[0].view.rank, node->outputs[0].view.sizes);
    return NULL;
  }
  for (int i = 0; i < node->n_attrs; i += 2) x = roll_dim(p, x, (int)node->attrs[i], node->attrs[i + 1]);
  results[0] = x;
  return NULL;
}

/* ---- constant_pad_nd(x, pad, value=0): pad = (low, high) of the last dimension, then of the one before ... ; attrs = low and high of each dimension ---- */

static tern_verdict infer_pad(const tern_call *call, tern_draft *draft) {
  const tern_tensor *x = tern_arg_tensor(call, 0);
  const int64_t *pad;
  int n;
  int64_t sizes[TERN_MAX_TENSOR_RANK];
  if (!x || !tern_arg_ints(call, 1, &n, &pad) || n % 2 || n / 2 > x->rank) return TERN_REJECT;
  tern_verdict verdict = tern_draft_tensor(draft, x);
  if (verdict != TERN_RECORD) return verdict;
  if (!is_plain((tern_dtype)x->dtype)) return TERN_FALL_BACK;
  for (int d = 0; d < x->rank; d++) {
    int pair = 2 * (x->rank - 1 - d);
    int64_t low = pair < n ? pad[pair] : 0, high = pair < n ? pad[pair + 1] : 0;
    sizes[d] = x->sizes[d] + low + high;
    if (sizes[d] < 0) return TERN_REJECT;
    if (-low > x->sizes[d] || -high > x->sizes[d]) return TERN_FALL_BACK; /* removes more than there is and adds on the other side */
    tern_draft_attr(draft, low);
    tern_draft_attr(draft, high);
  }
  if (tern_arg_is_none(call, 2))
    tern_draft_double(draft, (tern_dtype)x->dtype, 0, false);
  else if (!tern_number_fits(&call->arguments[2], (tern_dtype)x->dtype) || !tern_draft_number(draft, &call->arguments[2], (tern_dtype)x->dtype, false))
    return TERN_FALL_BACK;
  tern_draft_output *output = tern_draft_result(draft, (tern_dtype)x->dtype, x->rank, sizes);
  if (looks_channels_last(x)) set_channels_last(output);
  return TERN_RECORD;
}
static tern_status lower_pad(const tern_lowering *node, tern_value *results) {
  tern_program *p = node->program;
  int64_t low[TERN_MAX_TENSOR_RANK], high[TERN_MAX_TENSOR_RANK], interior[TERN_MAX_TENSOR_RANK] = {0};
  for (int d = 0; d < node->n_attrs / 2; d++) low[d] = node->attrs[2 * d], high[d] = node->attrs[2 * d + 1];
  results[0] = tern_pad(p, node->operands[0], tern_convert(p, node->scalars[0], node->outputs[0].computed), low, high, interior);
  return NULL;
}

const tern_aten_row tern_aten_shape[] = {
    {NULL, NULL, NULL, "copy", NULL, lower_copy, NULL},
    {"cat", NULL, "cat.out", NULL, infer_cat, lower_cat, call_cat},
    {"tril", "tril_", "tril.out", NULL, infer_triangle, lower_tril, NULL},
    {"triu", "triu_", "triu.out", NULL, infer_triangle, lower_triu, NULL},
    {"flip", NULL, NULL, NULL, infer_flip, lower_flip, NULL},
    {"roll", NULL, NULL, NULL, infer_roll, lower_roll, NULL},
    {"constant_pad_nd", NULL, NULL, NULL, infer_pad, lower_pad, NULL},
};
TERN_ATEN_FAMILY_END(shape)
