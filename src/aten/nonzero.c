/* nonzero: operators whose results' sizes depend on data: nonzero, masked_select, masks as indices, repeat_interleave, bincount; and their kin of fixed size,
 * masked_scatter and histc.
 *
 * The device finds the places and counts them; the count is read, which cuts the program; then a second node takes as many as there are. */
#include <math.h>
#include "index.h"
#include "nonzero.h"

/* ---- shared with unique.c ---- */

tern_status tern_scratch_new(tern_scratch *scratch, int device, tern_dtype dtype, int rank, const int64_t *sizes) {
  if (rank) memcpy(scratch->sizes, sizes, (size_t)rank * sizeof *sizes);
  return tern_temporary(device, dtype, rank, scratch->sizes, scratch->strides, &scratch->tensor);
}

tern_status tern_call_read(const tern_call *call, const tern_tensor *tensor, int n, int64_t *out) {
  size_t bytes = (size_t)n * sizeof *out;
  if (call->host->read) return call->host->read(call->shim, tensor->buffer, bytes, out);
  return tern_buffer_read(tensor->buffer, 0, bytes, out);
}

tern_status tern_record_sized(const tern_call *call, tern_draft *draft, const tern_aten_row *row) {
  const tern_draft_output *wanted = &draft->outputs[0];
  int last = call->n_arguments - 1;
  tern_tensor target;
  if (call->form != TERN_OUT) return tern_draft_record(call, draft, row, NULL);
  const tern_tensor *given = tern_arg_tensor(call, last);
  tern_output as_given = {.view.rank = given->rank};
  memcpy(as_given.view.sizes, given->sizes, (size_t)given->rank * sizeof *given->sizes);
  memcpy(as_given.view.strides, given->strides, (size_t)given->rank * sizeof *given->strides);
  TERN_TRY(tern_layout_check_target(&as_given)); /* refused as it is, before it is resized */
  int64_t strides[TERN_MAX_TENSOR_RANK];
  tern_layout_strides(draft, wanted, strides);
  TERN_TRY(call->host->resize_argument(call->shim, last, wanted->rank, wanted->sizes, strides, &target));
  TERN_TRY(tern_draft_record(call, draft, row, (const tern_tensor *[]){&target}));
  call->host->return_argument(call->shim, last);
  return NULL;
}

const tern_aten_row *tern_internal_row(const tern_aten_row *rows, int count, const char *name) {
  for (int i = 0; i < count; i++)
    if (rows[i].internal && strcmp(rows[i].internal, name) == 0) return &rows[i];
  return NULL;
}

static tern_value integer(tern_program *p, int64_t value) { return tern_constant_int(p, TERN_I64, 0, NULL, value); }

tern_value tern_true_places(tern_program *p, tern_value condition, tern_value *count) {
  int64_t n = tern_nn_count(p, condition), more = n + 1;
  tern_value seen = tern_scan(p, TERN_SUM, tern_convert(p, condition, TERN_I64), 0);
  *count = tern_reshape(p, tern_slice(p, seen, (int64_t[]){n - 1}, &n, (int64_t[]){1}), 0, NULL);
  /* Each true element writes its place where it belongs; the others write one element that nobody looks at. */
  tern_value to = tern_select(p, condition, tern_subtract(p, seen, integer(p, 1)), integer(p, n));
  tern_value places = tern_put(p, tern_nn_zeros(p, TERN_I64, 1, &more), to, tern_iota(p, TERN_I64, 1, &n, 0), 0, TERN_SET);
  return tern_slice(p, places, (int64_t[]){0}, &n, (int64_t[]){1});
}

/* ---- places ---- */

static const tern_aten_row *internal(const char *name);

static bool is_condition(const tern_tensor *x) { return x->dtype < TERN_C64 && x->rank <= TERN_MAX_TENSOR_RANK; }

/* (condition) -> places, count */
static tern_status lower_places(const tern_lowering *node, tern_value *results) {
  tern_program *p = node->program;
  results[0] = tern_true_places(p, tern_convert(p, tern_nn_flat(p, node->operands[0]), TERN_BOOL), &results[1]);
  return NULL;
}

/* The flat places of a condition's true elements; *places has as many elements. */
static tern_status find_places(const tern_call *call, const tern_tensor *condition, tern_scratch *places) {
  tern_scratch count = {0};
  tern_draft draft;
  int64_t found = 0;
  places->tensor.buffer = NULL;
  tern_status status = tern_scratch_new(places, condition->device, TERN_I64, 1, &condition->count);
  if (condition->count == 0) return status;
  if (!status) status = tern_scratch_new(&count, condition->device, TERN_I64, 0, NULL);
  if (!status) {
    tern_draft_start(&draft);
    tern_draft_tensor(&draft, condition);
    tern_draft_result(&draft, TERN_I64, 1, &condition->count);
    tern_draft_result(&draft, TERN_I64, 0, NULL);
    status = tern_draft_record(call, &draft, internal("places"), (const tern_tensor *[]){&places->tensor, &count.tensor});
  }
  if (!status) status = tern_call_read(call, &count.tensor, 1, &found);
  if (!status) tern_scratch_shorten(places, found);
  tern_scratch_drop(&count);
  if (status) tern_scratch_drop(places);
  return status;
}

/* ---- nonzero(self): the places by dimension. attrs: whether a row for each place or one for each dimension, the condition's sizes ---- */

static void draft_coordinates(tern_draft *draft, const tern_tensor *places, const tern_tensor *condition, bool by_place) {
  tern_draft_start(draft);
  tern_draft_attr(draft, by_place);
  tern_draft_attrs(draft, condition->rank, condition->sizes);
  tern_draft_tensor(draft, places);
}

static tern_status lower_coordinates(const tern_lowering *node, tern_value *results) {
  tern_program *p = node->program;
  const int64_t *sizes = node->attrs + 1;
  int rank = node->n_attrs - 1;
  tern_value left = node->operands[0], columns[TERN_MAX_TENSOR_RANK];
  for (int d = rank - 1; d >= 0; d--) {
    columns[d] = tern_nn_unsqueeze(p, d ? tern_remainder(p, left, integer(p, sizes[d])) : left, node->attrs[0] ? 1 : 0);
    left = tern_divide(p, left, integer(p, sizes[d]));
  }
  results[0] = tern_concatenate(p, rank, columns, node->attrs[0] ? 1 : 0);
  return NULL;
}

/* The result [places, dims] lies by dimension, as PyTorch's does. */
static tern_verdict call_nonzero(const tern_call *call, tern_status *status) {
  const tern_tensor *x = tern_arg_tensor(call, 0), *out = call->form == TERN_OUT ? tern_arg_tensor(call, 1) : NULL;
  tern_scratch places;
  tern_draft draft;
  if (!x || x->device < 0) return TERN_REJECT;
  if (!is_condition(x) || (out && (out->dtype != TERN_I64 || out->device != x->device))) return TERN_FALL_BACK;
  *status = find_places(call, x, &places);
  if (*status) return TERN_RECORD;
  const int64_t sizes[2] = {places.tensor.count, x->rank};
  draft_coordinates(&draft, &places.tensor, x, true);
  tern_draft_output *result = tern_draft_result(&draft, TERN_I64, 2, sizes);
  result->layout = TERN_GIVEN;
  result->strides[0] = 1;
  result->strides[1] = sizes[0];
  *status = tern_record_sized(call, &draft, internal("coordinates"));
  tern_scratch_drop(&places);
  return TERN_RECORD;
}

/* ---- masked_select(self, mask): both broadcast ---- */

/* The tensor as if it had those sizes; `strides` is room for it. */
static bool expand(const tern_tensor *x, int rank, const int64_t *sizes, int64_t *strides, tern_tensor *out) {
  if (!tern_nn_expands(x, rank, sizes)) return false;
  *out = *x;
  out->rank = rank;
  out->sizes = sizes;
  out->strides = strides;
  out->count = 1;
  for (int d = 0; d < rank; d++) {
    int from = d - (rank - x->rank);
    strides[d] = from < 0 || (x->sizes[from] == 1 && sizes[d] != 1) ? 0 : x->strides[from];
    out->count *= sizes[d];
  }
  return true;
}

static tern_verdict call_masked_select(const tern_call *call, tern_status *status) {
  const tern_tensor *x = tern_arg_tensor(call, 0), *mask = tern_arg_tensor(call, 1), *out = call->form == TERN_OUT ? tern_arg_tensor(call, 2) : NULL;
  tern_tensor wide_x, wide_mask;
  tern_scratch places;
  tern_draft draft;
  int rank = 0;
  int64_t sizes[TERN_MAX_TENSOR_RANK], strides[2][TERN_MAX_TENSOR_RANK];
  if (!x || !mask || x->device < 0 || mask->device != x->device || mask->dtype != TERN_BOOL) return TERN_REJECT;
  if (x->rank > TERN_MAX_TENSOR_RANK || mask->rank > TERN_MAX_TENSOR_RANK || (out && (out->dtype != x->dtype || out->device != x->device))) return TERN_FALL_BACK;
  if (!tern_broadcast_shape(&rank, sizes, x->rank, x->sizes) || !tern_broadcast_shape(&rank, sizes, mask->rank, mask->sizes)) return TERN_REJECT;
  if (!expand(x, rank, sizes, strides[0], &wide_x) || !expand(mask, rank, sizes, strides[1], &wide_mask)) return TERN_REJECT;
  *status = find_places(call, &wide_mask, &places);
  if (*status) return TERN_RECORD;
  tern_draft_start(&draft);
  tern_draft_tensor(&draft, &wide_x);
  tern_draft_tensor(&draft, &places.tensor);
  tern_draft_result(&draft, (tern_dtype)x->dtype, 1, &places.tensor.count);
  *status = tern_record_sized(call, &draft, call->row);
  tern_scratch_drop(&places);
  return TERN_RECORD;
}

static tern_status lower_masked_select(const tern_lowering *node, tern_value *results) {
  results[0] = tern_take(node->program, tern_nn_flat(node->program, node->operands[0]), node->operands[1], 0);
  return NULL;
}

/* ---- x[mask] and x[mask] = y, with other indices or without: each mask becomes the index tensors of its true places, and the row is called again ---- */

static bool is_mask_at(const tern_tensor *mask, const tern_tensor *x, int dim) {
  if (mask->dtype != TERN_BOOL || mask->device != x->device || mask->rank < 1 || dim + mask->rank > x->rank) return false;
  for (int d = 0; d < mask->rank; d++)
    if (mask->sizes[d] != x->sizes[dim + d]) return false;
  return true;
}

/* The coordinates of a mask's true places, one tensor for each of its dimensions. */
static tern_status index_tensors_of(const tern_call *call, const tern_tensor *mask, tern_scratch *columns, tern_tensor *out) {
  tern_scratch places;
  tern_draft draft;
  TERN_TRY(find_places(call, mask, &places));
  const int64_t sizes[2] = {mask->rank, places.tensor.count};
  tern_status status = tern_scratch_new(columns, mask->device, TERN_I64, 2, sizes);
  if (!status) {
    draft_coordinates(&draft, &places.tensor, mask, false);
    tern_draft_result(&draft, TERN_I64, 2, sizes);
    status = tern_draft_record(call, &draft, internal("coordinates"), (const tern_tensor *[]){&columns->tensor});
  }
  tern_scratch_drop(&places);
  for (int d = 0; d < mask->rank && !status; d++) {
    out[d] = columns->tensor;
    out[d].rank = 1;
    out[d].count = sizes[1];
    out[d].sizes = columns->sizes + 1;
    out[d].strides = columns->strides + 1;
    out[d].offset = d * sizes[1];
  }
  return status;
}

tern_verdict tern_index_masks(const tern_call *call, tern_status *status) {
  enum { MOST_ARGUMENTS = 8 };
  const tern_tensor *x = tern_arg_tensor(call, 0);
  const tern_argument *list = &call->arguments[1];
  tern_tensor indices[TERN_MAX_TENSOR_RANK];
  tern_scratch columns[TERN_MAX_TENSOR_RANK];
  tern_argument arguments[MOST_ARGUMENTS];
  int n = 0, masks = 0;
  if (!x || x->device < 0 || x->rank > TERN_MAX_TENSOR_RANK || list->tag != TERN_ARG_TENSORS || call->n_arguments > MOST_ARGUMENTS) return TERN_FALL_BACK;
  /* All are looked at before the first is recorded. */
  for (int i = 0; i < list->n; i++) {
    const tern_tensor *index = &list->u.tensors[i];
    bool is_mask = index->sizes && index->dtype == TERN_BOOL;
    if (is_mask ? !is_mask_at(index, x, n) : n + 1 > x->rank) return TERN_REJECT;
    n += is_mask ? index->rank : 1;
    masks += is_mask;
  }
  if (!masks) return TERN_FALL_BACK;
  tern_verdict verdict = TERN_RECORD;
  n = masks = 0;
  for (int i = 0; i < list->n && !*status; i++) {
    const tern_tensor *index = &list->u.tensors[i];
    if (!index->sizes || index->dtype != TERN_BOOL) {
      indices[n++] = *index;
      continue;
    }
    columns[masks].tensor.buffer = NULL;
    *status = index_tensors_of(call, index, &columns[masks++], indices + n);
    n += index->rank;
  }
  if (!*status) {
    memcpy(arguments, call->arguments, (size_t)call->n_arguments * sizeof *arguments);
    arguments[1] = (tern_argument){.tag = TERN_ARG_TENSORS, .n = n, .u.tensors = indices};
    tern_call again = *call;
    again.arguments = arguments;
    verdict = tern_aten_call(&again, status);
  }
  for (int i = 0; i < masks; i++) tern_scratch_drop(&columns[i]);
  return verdict;
}

/* ---- masked_scatter_(self, mask, source): the true places take the source's elements in order ---- */

static tern_verdict infer_masked_scatter(const tern_call *call, tern_draft *draft) {
  const tern_tensor *x = tern_arg_tensor(call, 0), *mask = tern_arg_tensor(call, 1), *source = tern_arg_tensor(call, 2);
  if (!x || !mask || !source || source->dtype != x->dtype || mask->dtype != TERN_BOOL) return TERN_REJECT;
  if (!tern_nn_expands(mask, x->rank, x->sizes) || (source->count == 0 && x->count > 0)) return TERN_FALL_BACK;
  tern_draft_result(draft, (tern_dtype)x->dtype, x->rank, x->sizes);
  return tern_nn_operands(draft, 3, (const tern_tensor *[]){x, mask, source});
}

static tern_status lower_masked_scatter(const tern_lowering *node, tern_value *results) {
  tern_program *p = node->program;
  tern_value x = node->operands[0], source = tern_nn_flat(p, node->operands[2]);
  tern_value mask = tern_nn_flat(p, tern_broadcast_to(p, node->operands[1], tern_value_rank(p, x), tern_value_dims(p, x)));
  tern_value from = tern_subtract(p, tern_scan(p, TERN_SUM, tern_convert(p, mask, TERN_I64), 0), integer(p, 1));
  from = tern_select(p, mask, from, integer(p, 0));
  tern_check_index(p, from, 0, tern_nn_count(p, source) - 1);
  results[0] = tern_nn_result(node, 0, tern_select(p, mask, tern_take(p, source, from, 0), tern_nn_flat(p, x)));
  return NULL;
}

/* ---- repeat_interleave.Tensor(repeats, *, output_size): number i as many times as repeats[i] says ---- */

/* Numbers about a vector of integers: its least, its largest and their sum, [3] i64. */
enum { LEAST, LARGEST, TOTAL, ABOUT };

static tern_status lower_about(const tern_lowering *node, tern_value *results) {
  static const tern_reduction how[ABOUT] = {TERN_MIN, TERN_MAX, TERN_SUM};
  tern_program *p = node->program;
  int dim = 0;
  tern_value x = tern_convert(p, node->operands[0], TERN_I64), numbers[ABOUT];
  for (int i = 0; i < ABOUT; i++) numbers[i] = tern_nn_unsqueeze(p, tern_reduce(p, how[i], x, 1, &dim), 0);
  results[0] = tern_concatenate(p, ABOUT, numbers, 0);
  return NULL;
}

static tern_status read_about(const tern_call *call, const tern_tensor *x, int64_t numbers[ABOUT]) {
  const int64_t size = ABOUT;
  tern_scratch about = {0};
  tern_draft draft;
  tern_status status = tern_scratch_new(&about, x->device, TERN_I64, 1, &size);
  tern_draft_start(&draft);
  tern_draft_tensor(&draft, x);
  tern_draft_result(&draft, TERN_I64, 1, &size);
  if (!status) status = tern_draft_record(call, &draft, internal("about"), (const tern_tensor *[]){&about.tensor});
  if (!status) status = tern_call_read(call, &about.tensor, ABOUT, numbers);
  tern_scratch_drop(&about);
  return status;
}

static tern_verdict call_repeat(const tern_call *call, tern_status *status) {
  const tern_tensor *repeats = tern_arg_tensor(call, 0);
  int64_t total = tern_arg_int(call, 1, -1), numbers[ABOUT];
  tern_draft draft;
  if (!repeats || repeats->device < 0 || repeats->rank != 1) return TERN_REJECT;
  if (!tern_nn_is_index(repeats) || repeats->count == 0 || call->form == TERN_OUT) return TERN_FALL_BACK;
  if (total < 0) {
    *status = read_about(call, repeats, numbers);
    if (*status) return TERN_RECORD;
    if (numbers[LEAST] < 0) return TERN_REJECT;
    total = numbers[TOTAL];
  }
  tern_draft_start(&draft);
  tern_draft_tensor(&draft, repeats);
  tern_draft_result(&draft, (tern_dtype)repeats->dtype, 1, &total);
  *status = tern_draft_record(call, &draft, call->row, NULL);
  return TERN_RECORD;
}

/* Element j is the number of repeats that end at or before j. */
static tern_status lower_repeat(const tern_lowering *node, tern_value *results) {
  tern_program *p = node->program;
  int64_t n = tern_nn_count(p, node->operands[0]), total = node->outputs[0].view.sizes[0], more = total + 1;
  tern_value repeats = tern_convert(p, node->operands[0], TERN_I64), one = integer(p, 1);
  tern_check_index(p, repeats, 0, total);
  tern_value ends = tern_scan(p, TERN_SUM, repeats, 0);
  tern_check_index(p, tern_slice(p, ends, (int64_t[]){n - 1}, &n, (int64_t[]){1}), total, total);
  tern_value marks = tern_put(p, tern_nn_zeros(p, TERN_I64, 1, &more), ends, tern_broadcast_to(p, one, 1, &n), 0, TERN_COMBINE_ADD);
  results[0] = tern_nn_result(node, 0, tern_slice(p, tern_scan(p, TERN_SUM, marks, 0), (int64_t[]){0}, &total, (int64_t[]){1}));
  return NULL;
}

/* ---- bincount(self, weights, minlength) ---- */

static tern_verdict call_bincount(const tern_call *call, tern_status *status) {
  const tern_tensor *x = tern_arg_tensor(call, 0), *weights = tern_arg_tensor(call, 1);
  int64_t numbers[ABOUT], size = tern_arg_int(call, 2, 0);
  tern_draft draft;
  if (!x || x->device < 0 || x->rank != 1 || size < 0 || (weights && (weights->rank != 1 || weights->count != x->count))) return TERN_REJECT;
  if (x->dtype > TERN_I64 || x->dtype == TERN_BOOL || x->count == 0 || (weights && weights->dtype >= TERN_C64) || call->form == TERN_OUT) return TERN_FALL_BACK;
  *status = read_about(call, x, numbers);
  if (*status) return TERN_RECORD;
  if (numbers[LEAST] < 0) return TERN_REJECT;
  if (size < numbers[LARGEST] + 1) size = numbers[LARGEST] + 1;
  tern_draft_start(&draft);
  tern_verdict verdict = tern_nn_operands(&draft, 2, (const tern_tensor *[]){x, weights});
  if (verdict != TERN_RECORD) return verdict;
  tern_draft_result(&draft, !weights ? TERN_I64 : weights->dtype == TERN_F32 ? TERN_F32 : TERN_F64, 1, &size);
  *status = tern_draft_record(call, &draft, call->row, NULL);
  return TERN_RECORD;
}

static tern_status lower_bincount(const tern_lowering *node, tern_value *results) {
  tern_program *p = node->program;
  tern_dtype dtype = node->outputs[0].computed;
  tern_value x = tern_convert(p, node->operands[0], TERN_I64), weights = tern_nn_as(p, node->operands[1], dtype);
  if (weights == TERN_NO_VALUE) weights = tern_broadcast_to(p, integer(p, 1), 1, tern_value_dims(p, x));
  results[0] = tern_put(p, tern_nn_zeros(p, dtype, 1, node->outputs[0].view.sizes), x, weights, 0, TERN_COMBINE_ADD);
  return NULL;
}

/* ---- histc(self, bins, min, max): equal bins; min == max: from the least element to the largest. Elements outside and NaN count nowhere. Integers, which
 * PyTorch's CPU refuses, count as on CUDA. attrs: whether the range is the data's ---- */

static tern_verdict infer_histc(const tern_call *call, tern_draft *draft) {
  const tern_tensor *x = tern_arg_tensor(call, 0);
  int64_t bins = tern_arg_int(call, 1, 100);
  double low = tern_arg_double(call, 2, 0), high = tern_arg_double(call, 3, 0);
  if (!x || bins < 1) return TERN_REJECT;
  if (x->dtype >= TERN_C64 || x->dtype == TERN_BOOL || !(low <= high) || !isfinite(low) || !isfinite(high) || x->count == 0) return TERN_FALL_BACK;
  tern_dtype dtype = tern_nn_is_float(x) ? (x->dtype == TERN_F64 ? TERN_F64 : TERN_F32) : TERN_I64;
  tern_draft_attr(draft, low == high);
  for (int i = 0; i < 2; i++) tern_draft_number(draft, &(tern_argument){.tag = TERN_ARG_DOUBLE, .u.d = i ? high : low}, dtype, false);
  tern_draft_result(draft, (tern_dtype)x->dtype, 1, &bins);
  return tern_draft_tensor(draft, x);
}

static tern_status lower_histc(const tern_lowering *node, tern_value *results) {
  tern_program *p = node->program;
  int64_t bins = node->outputs[0].view.sizes[0];
  int dim = 0;
  tern_value low = node->scalars[0], high = node->scalars[1];
  tern_dtype dtype = tern_value_dtype(p, low);
  tern_value x = tern_convert(p, tern_nn_flat(p, node->operands[0]), dtype), one = tern_nn_number(p, dtype, 1);
  if (node->attrs[0]) {
    low = tern_reduce(p, TERN_MIN, x, 1, &dim);
    high = tern_reduce(p, TERN_MAX, x, 1, &dim);
    tern_value is_point = tern_nn_equals(p, low, high);
    low = tern_select(p, is_point, tern_subtract(p, low, one), low);
    high = tern_select(p, is_point, tern_add(p, high, one), high);
  }
  tern_value inside = tern_and(p, tern_compare(p, TERN_GE, x, low), tern_compare(p, TERN_LE, x, high));
  tern_value from = tern_select(p, inside, tern_subtract(p, x, low), tern_nn_number(p, dtype, 0));
  tern_value bin = tern_divide(p, tern_multiply(p, from, tern_nn_number(p, dtype, (double)bins)), tern_subtract(p, high, low));
  bin = tern_minimum(p, tern_convert(p, bin, TERN_I64), integer(p, bins - 1)); /* the last bin holds its upper end */
  tern_value counts = tern_put(p, tern_nn_zeros(p, TERN_I64, 1, &bins), bin, tern_convert(p, inside, TERN_I64), 0, TERN_COMBINE_ADD);
  results[0] = tern_nn_result(node, 0, counts);
  return NULL;
}

const tern_aten_row tern_aten_nonzero[] = {
    {.internal = "places", .lower = lower_places},
    {.internal = "coordinates", .lower = lower_coordinates},
    {.internal = "about", .lower = lower_about},
    {.functional = "nonzero", .out = "nonzero.out", .custom = call_nonzero},
    {.functional = "masked_select", .out = "masked_select.out", .custom = call_masked_select, .lower = lower_masked_select},
    {.inplace = "masked_scatter_", .infer = infer_masked_scatter, .lower = lower_masked_scatter},
    {.functional = "repeat_interleave.Tensor", .custom = call_repeat, .lower = lower_repeat},
    {.functional = "bincount", .custom = call_bincount, .lower = lower_bincount},
    {.functional = "histc", .out = "histc.out", .infer = infer_histc, .lower = lower_histc},
};
TERN_ATEN_FAMILY_END(nonzero)

static const tern_aten_row *internal(const char *name) { return tern_internal_row(tern_aten_nonzero, tern_aten_nonzero_count, name); }
