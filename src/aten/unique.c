/* unique: distinct elements, or slices along a dimension: sorted (_unique2, unique_dim) or where neighbours differ (unique_consecutive, unique_dim_consecutive).
 *
 * One node puts equal ones side by side, finds where a run begins and numbers the runs; their count is read, which cuts the program; then the firsts of the runs are
 * taken. NaN equals nothing, as in PyTorch. Slices are sorted by one stable sort for each of their elements, the last first. */
#include "nonzero.h"

/* Slices of more elements than this would make long programs. */
enum { MOST_COLUMNS = 64 };

static const tern_aten_row *internal(const char *name);

static tern_value integer(tern_program *p, int64_t value) { return tern_constant_int(p, TERN_I64, 0, NULL, value); }

/* ---- runs: (x [n] or [n, slice]) -> the order that puts equals side by side [n], the run of each [n], the first place of each run [n, filled up], how many.
 * attrs: whether to sort ---- */

static tern_value column(tern_program *p, tern_value x, int64_t i) {
  const int64_t *dims = tern_value_dims(p, x);
  int64_t n = dims[0];
  return tern_reshape(p, tern_slice(p, x, (int64_t[]){0, i}, (int64_t[]){n, i + 1}, (int64_t[]){1, 1}), 1, &n);
}

static tern_value sorting_order(tern_program *p, tern_value x) {
  tern_value order = TERN_NO_VALUE, next;
  for (int64_t i = tern_value_dims(p, x)[1] - 1; i >= 0; i--) {
    tern_value keys = column(p, x, i);
    if (tern_value_dtype(p, keys) == TERN_BOOL) keys = tern_convert(p, keys, TERN_U8);
    tern_sort(p, order == TERN_NO_VALUE ? keys : tern_take(p, keys, order, 0), 0, false, &next);
    order = order == TERN_NO_VALUE ? next : tern_take(p, order, next, 0);
  }
  return order;
}

static tern_status lower_runs(const tern_lowering *node, tern_value *results) {
  tern_program *p = node->program;
  tern_value x = node->operands[0];
  int64_t n = tern_value_dims(p, x)[0], slice = tern_nn_count(p, x) / n;
  x = tern_reshape(p, x, 2, (int64_t[]){n, slice});
  tern_value order = node->attrs[0] ? sorting_order(p, x) : tern_iota(p, TERN_I64, 1, &n, 0);
  tern_value sorted = node->attrs[0] ? tern_take(p, x, order, 0) : x;
  tern_value before = tern_slice(p, sorted, (int64_t[]){0, 0}, (int64_t[]){n - 1, slice}, (int64_t[]){1, 1});
  tern_value after = tern_slice(p, sorted, (int64_t[]){1, 0}, (int64_t[]){n, slice}, (int64_t[]){1, 1});
  tern_value parts[2] = {tern_constant_int(p, TERN_BOOL, 1, (int64_t[]){1}, 1), TERN_NO_VALUE};
  parts[1] = tern_reduce(p, TERN_ANY, tern_compare(p, TERN_NE, before, after), 1, (const int[]){1});
  tern_value begins = tern_concatenate(p, 2, parts, 0);
  tern_value number = tern_subtract(p, tern_scan(p, TERN_SUM, tern_convert(p, begins, TERN_I64), 0), integer(p, 1));
  results[0] = order;
  results[1] = node->attrs[0] ? tern_put(p, tern_nn_zeros(p, TERN_I64, 1, &n), order, number, 0, TERN_SET) : number;
  results[2] = tern_true_places(p, begins, &results[3]);
  return NULL;
}

/* ---- what is taken: the firsts (x, order, places) along dimension attrs[0], or flat (-1); the lengths of the runs (places), attrs: n ---- */

static tern_status lower_firsts(const tern_lowering *node, tern_value *results) {
  tern_program *p = node->program;
  bool is_flat = node->attrs[0] < 0;
  tern_value x = is_flat ? tern_nn_flat(p, node->operands[0]) : node->operands[0];
  results[0] = tern_take(p, x, tern_take(p, node->operands[1], node->operands[2], 0), is_flat ? 0 : (int)node->attrs[0]);
  return NULL;
}

static tern_status lower_lengths(const tern_lowering *node, tern_value *results) {
  tern_program *p = node->program;
  tern_value parts[2] = {node->operands[0], tern_constant_int(p, TERN_I64, 1, (int64_t[]){1}, node->attrs[0])};
  int64_t count = tern_nn_count(p, parts[0]), more = count + 1;
  tern_value ends = tern_slice(p, tern_concatenate(p, 2, parts, 0), (int64_t[]){1}, &more, (int64_t[]){1});
  results[0] = tern_subtract(p, ends, parts[0]);
  return NULL;
}

static tern_status lower_shaped(const tern_lowering *node, tern_value *results) {
  results[0] = tern_nn_result(node, 0, node->operands[0]);
  return NULL;
}

/* ---- the call ---- */

typedef struct request {
  const tern_tensor *x;
  int dim; /* -1: the elements of the tensor seen as flat */
  bool sorts, wants_inverse, wants_counts;
} request;

/* x as [n] or, with dimension `dim` in front, [n, ...]; the room lives in the scratch. */
static tern_tensor with_dim_first(const request *r, tern_scratch *room) {
  tern_tensor t = *r->x;
  t.sizes = room->sizes;
  t.strides = room->strides;
  for (int d = 0; d < t.rank; d++) {
    int from = d == 0 ? r->dim : d <= r->dim ? d - 1 : d;
    room->sizes[d] = r->x->sizes[from];
    room->strides[d] = r->x->strides[from];
  }
  return t;
}

static tern_status record_one(const tern_call *call, tern_draft *draft, const char *name) { return tern_draft_record(call, draft, internal(name), NULL); }

/* As if the dimension had been moved to the front, made contiguous and moved back. */
static void lie_by_slices(tern_draft_output *output, int dim) {
  int64_t next = 1;
  output->layout = TERN_GIVEN;
  for (int place = output->rank - 1; place >= 0; place--) {
    int d = place == 0 ? dim : place <= dim ? place - 1 : place;
    output->strides[d] = next;
    next *= output->sizes[d] > 1 ? output->sizes[d] : 1;
  }
}

static tern_status take_results(const tern_call *call, const request *r, tern_scratch *scratch, int64_t n, int64_t count) {
  tern_draft draft;
  const tern_tensor *x = r->x;
  int64_t sizes[TERN_MAX_TENSOR_RANK], none = 0;
  tern_scratch_shorten(&scratch[2], count);
  tern_draft_start(&draft);
  tern_draft_attr(&draft, r->dim);
  tern_draft_tensor(&draft, x);
  tern_draft_tensor(&draft, &scratch[0].tensor);
  tern_draft_tensor(&draft, &scratch[2].tensor);
  if (x->rank) memcpy(sizes, x->sizes, (size_t)x->rank * sizeof *sizes);
  if (r->dim >= 0) sizes[r->dim] = count;
  tern_draft_output *firsts = tern_draft_result(&draft, (tern_dtype)x->dtype, r->dim < 0 ? 1 : x->rank, r->dim < 0 ? &count : sizes);
  if (r->dim > 0) lie_by_slices(firsts, r->dim);
  TERN_TRY(record_one(call, &draft, "firsts"));
  tern_draft_start(&draft);
  tern_draft_tensor(&draft, &scratch[1].tensor);
  if (!r->wants_inverse)
    tern_draft_result(&draft, TERN_I64, 1, &none);
  else
    tern_draft_result(&draft, TERN_I64, r->dim < 0 ? x->rank : 1, r->dim < 0 ? x->sizes : &n);
  TERN_TRY(record_one(call, &draft, "shaped"));
  tern_draft_start(&draft);
  tern_draft_attr(&draft, n);
  tern_draft_tensor(&draft, &scratch[2].tensor);
  tern_draft_result(&draft, TERN_I64, 1, r->wants_counts ? &count : &none);
  return record_one(call, &draft, "lengths");
}

static tern_verdict call_any(const tern_call *call, tern_status *status, const request *r) {
  const tern_tensor *x = r->x;
  tern_scratch scratch[4] = {0}, room;
  const tern_tensor *targets[4];
  tern_draft draft;
  int64_t n = r->dim < 0 ? x->count : x->sizes[r->dim], count = 0;
  if (x->count == 0 || x->dtype >= TERN_C64 || x->rank > TERN_MAX_TENSOR_RANK || call->form == TERN_OUT) return TERN_FALL_BACK;
  if (r->dim >= 0 && r->sorts && x->count / n > MOST_COLUMNS) return TERN_FALL_BACK;
  for (int i = 0; i < 4 && !*status; i++) {
    *status = tern_scratch_new(&scratch[i], x->device, TERN_I64, i < 3, &n);
    targets[i] = &scratch[i].tensor;
  }
  if (!*status) {
    tern_tensor seen = r->dim < 0 ? *x : with_dim_first(r, &room);
    tern_draft_start(&draft);
    tern_draft_attr(&draft, r->sorts);
    tern_draft_tensor(&draft, &seen);
    for (int i = 0; i < 4; i++) tern_draft_result(&draft, TERN_I64, i < 3, &n);
    *status = tern_draft_record(call, &draft, internal(r->dim < 0 ? "runs flat" : "runs"), targets);
  }
  if (!*status) *status = tern_call_read(call, targets[3], 1, &count);
  if (!*status) *status = take_results(call, r, scratch, n, count);
  for (int i = 0; i < 4; i++) tern_scratch_drop(&scratch[i]);
  return TERN_RECORD;
}

static tern_status lower_runs_flat(const tern_lowering *node, tern_value *results) {
  tern_lowering flat = *node;
  tern_value x = tern_nn_flat(node->program, node->operands[0]);
  flat.operands = &x;
  return lower_runs(&flat, results);
}

/* _unique2(self, sorted, return_inverse, return_counts): sorted either way, as on the CPU */
static tern_verdict call_unique(const tern_call *call, tern_status *status) {
  request r = {tern_arg_tensor(call, 0), -1, true, tern_arg_bool(call, 2, false), tern_arg_bool(call, 3, false)};
  return !r.x || r.x->device < 0 ? TERN_REJECT : call_any(call, status, &r);
}

/* unique_dim(self, dim, sorted, return_inverse, return_counts): inverse and counts are given either way, as on the CPU */
static tern_verdict call_unique_dim(const tern_call *call, tern_status *status) {
  request r = {tern_arg_tensor(call, 0), 0, true, true, true};
  if (!r.x || r.x->device < 0 || r.x->rank == 0 || !tern_wrap_dim(tern_arg_int(call, 1, 0), r.x->rank, &r.dim)) return TERN_FALL_BACK;
  return call_any(call, status, &r);
}

/* unique_consecutive(self, return_inverse, return_counts, dim=None) */
static tern_verdict call_consecutive(const tern_call *call, tern_status *status) {
  request r = {tern_arg_tensor(call, 0), -1, false, tern_arg_bool(call, 1, false), tern_arg_bool(call, 2, false)};
  if (!r.x || r.x->device < 0) return TERN_REJECT;
  if (!tern_arg_is_none(call, 3)) {
    int dim;
    if (!tern_wrap_dim(tern_arg_int(call, 3, 0), r.x->rank, &dim)) return TERN_REJECT;
    if (r.x->rank != 1) r = (request){r.x, r.x->rank ? dim : -1, false, true, true};
  }
  return call_any(call, status, &r);
}

/* unique_dim_consecutive(self, dim, return_inverse, return_counts) */
static tern_verdict call_dim_consecutive(const tern_call *call, tern_status *status) {
  request r = {tern_arg_tensor(call, 0), 0, false, true, true};
  if (!r.x || r.x->device < 0 || r.x->rank == 0 || !tern_wrap_dim(tern_arg_int(call, 1, 0), r.x->rank, &r.dim)) return TERN_FALL_BACK;
  return call_any(call, status, &r);
}

const tern_aten_row tern_aten_unique[] = {
    {.internal = "runs", .lower = lower_runs},
    {.internal = "runs flat", .lower = lower_runs_flat},
    {.internal = "firsts", .lower = lower_firsts},
    {.internal = "shaped", .lower = lower_shaped},
    {.internal = "lengths", .lower = lower_lengths},
    {.functional = "_unique2", .custom = call_unique},
    {.functional = "unique_dim", .custom = call_unique_dim},
    {.functional = "unique_consecutive", .custom = call_consecutive},
    {.functional = "unique_dim_consecutive", .custom = call_dim_consecutive},
};
TERN_ATEN_FAMILY_END(unique)

static const tern_aten_row *internal(const char *name) { return tern_internal_row(tern_aten_unique, tern_aten_unique_count, name); }
