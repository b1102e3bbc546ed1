/* fill: operators that write without reading: fill_, zero_, arange, linspace, eye. They come in place and out=; PyTorch composes the other forms. */
#include <math.h>
#include "pointwise.h"

/* ---- fill_, zero_ ---- */

/* PyTorch lets an expanded tensor be filled: every element is written once, through the dimensions that have an extent in memory. */
static tern_tensor without_repeats(const tern_tensor *target, int64_t *sizes) {
  tern_tensor t = *target;
  for (int d = 0; d < t.rank; d++) sizes[d] = t.strides[d] == 0 && t.sizes[d] > 1 ? 1 : t.sizes[d];
  t.sizes = sizes;
  return t;
}

static tern_verdict fill_target(const tern_call *call, tern_draft *draft, const tern_tensor *target, tern_status *status) {
  int64_t sizes[TERN_MAX_TENSOR_RANK];
  tern_tensor written = without_repeats(target, sizes);
  const tern_tensor *targets[1] = {&written};
  draft->device = target->device;
  /* Only 0 (not -0) and 1 are worth programs of their own. */
  tern_scalar_argument *scalar = &draft->scalars[0];
  if (draft->n_scalars && scalar->kind != TERN_SCALAR_ONE && (scalar->kind != TERN_SCALAR_ZERO || scalar->bits != 0)) scalar->kind = TERN_SCALAR_ANY;
  tern_draft_result(draft, (tern_dtype)target->dtype, written.rank, written.sizes);
  *status = tern_draft_record(call, draft, call->row, targets);
  if (!*status && call->form != TERN_FUNCTIONAL) call->host->return_argument(call->shim, call->form == TERN_OUT ? call->n_arguments - 1 : 0);
  return TERN_RECORD;
}

static tern_verdict fill(const tern_call *call, tern_status *status) {
  const tern_tensor *target = tern_arg_tensor(call, 0);
  const tern_argument *value = &call->arguments[1];
  tern_draft draft;
  if (!target || target->device < 0) return TERN_REJECT;
  tern_dtype dtype = (tern_dtype)target->dtype;
  if (target->rank > TERN_MAX_TENSOR_RANK || dtype >= TERN_C64) return TERN_FALL_BACK;
  tern_draft_start(&draft);
  if (value->tag == TERN_ARG_TENSOR && value->u.tensor.device >= 0) {
    if (value->u.tensor.rank != 0) return TERN_REJECT;
    if (value->u.tensor.dtype >= TERN_C64) return TERN_FALL_BACK;
    tern_verdict verdict = tern_draft_tensor(&draft, &value->u.tensor);
    if (verdict != TERN_RECORD) return verdict;
    if (draft.device != target->device) return TERN_REJECT;
  } else if (!tern_number_fits(value, dtype) || !tern_draft_number(&draft, value, dtype, true)) {
    return TERN_FALL_BACK;
  }
  return fill_target(call, &draft, target, status);
}

static tern_verdict zero(const tern_call *call, tern_status *status) {
  const tern_tensor *target = tern_arg_tensor(call, 0);
  tern_draft draft;
  if (!target || target->device < 0) return TERN_REJECT;
  if (target->rank > TERN_MAX_TENSOR_RANK || target->dtype >= TERN_C64) return TERN_FALL_BACK;
  tern_draft_start(&draft);
  tern_draft_int(&draft, (tern_dtype)target->dtype, 0, true);
  return fill_target(call, &draft, target, status);
}

static tern_value constant(tern_program *p, tern_dtype dtype, int64_t value) {
  return tern_dtype_is_float(dtype) ? tern_constant_float(p, dtype, 0, NULL, (double)value) : tern_constant_int(p, dtype, 0, NULL, value);
}

static tern_status lower_fill(const tern_lowering *node, tern_value *results) {
  tern_program *p = node->program;
  const tern_output *o = &node->outputs[0];
  tern_value v = node->n_operands ? node->operands[0] : node->scalars[0];
  if (!node->n_operands && node->scalar_kinds[0] == TERN_SCALAR_ZERO)
    v = constant(p, o->computed, 0);
  else if (!node->n_operands && node->scalar_kinds[0] == TERN_SCALAR_ONE)
    v = constant(p, o->computed, 1);
  results[0] = tern_broadcast_to(p, tern_convert(p, v, o->computed), o->view.rank, o->view.sizes);
  return NULL;
}

/* ---- arange.start_out(start, end, step=1, *, out): scalars start, step; computed in i64 or in out's own dtype ---- */

static tern_verdict infer_arange(const tern_call *call, tern_draft *draft) {
  const tern_tensor *out = tern_arg_tensor(call, 3);
  if (!out || call->arguments[0].tag == TERN_ARG_OTHER || call->arguments[1].tag == TERN_ARG_OTHER) return TERN_FALL_BACK;
  tern_dtype dtype = (tern_dtype)out->dtype;
  if (dtype == TERN_BOOL || dtype >= TERN_C64 || (dtype >= TERN_U16 && dtype <= TERN_U64)) return TERN_FALL_BACK;
  double start = tern_arg_double(call, 0, 0), end = tern_arg_double(call, 1, 0), step = tern_arg_double(call, 2, 1), length;
  if (!isfinite(start) || !isfinite(end) || step == 0 || !isfinite(step) || (step > 0 ? end < start : end > start)) return TERN_REJECT;
  tern_dtype work = tern_dtype_is_float(dtype) ? tern_compute_dtype(dtype) : TERN_I64;
  if (work == TERN_I64) {
    for (int i = 0; i < 3; i++)
      if (call->arguments[i].tag == TERN_ARG_DOUBLE) return TERN_FALL_BACK; /* each integer type has rules of its own for fractions */
    int64_t i_start = tern_arg_int(call, 0, 0), i_end = tern_arg_int(call, 1, 0), i_step = tern_arg_int(call, 2, 1);
    if (i_step == 0) return TERN_REJECT;
    length = ceil((double)(i_end - i_start) / (double)i_step);
    tern_draft_int(draft, work, i_start, false);
    tern_draft_int(draft, work, i_step, false);
  } else {
    length = ceil((end - start) / step);
    tern_draft_double(draft, work, start, false);
    tern_draft_double(draft, work, step, false);
  }
  if (!(length >= 0 && length < 0x1p40)) return TERN_REJECT;
  int64_t size = (int64_t)length;
  if (out->count == size && out->rank != 1) return TERN_FALL_BACK; /* an out= of the right size keeps its shape */
  draft->device = out->device;
  tern_draft_result(draft, dtype, 1, &size);
  return TERN_RECORD;
}
static tern_status lower_arange(const tern_lowering *node, tern_value *results) {
  tern_program *p = node->program;
  tern_dtype work = tern_value_dtype(p, node->scalars[0]);
  tern_value place = tern_iota(p, work, 1, node->outputs[0].view.sizes, 0);
  results[0] = tern_convert(p, tern_add(p, node->scalars[0], tern_multiply(p, node->scalars[1], place)), node->outputs[0].computed);
  return NULL;
}

/* ---- linspace.out(start, end, steps, *, out): counted from the nearer end, as PyTorch does; scalars start, end, step ---- */

static tern_verdict infer_linspace(const tern_call *call, tern_draft *draft) {
  const tern_tensor *out = tern_arg_tensor(call, 3);
  int64_t steps = tern_arg_int(call, 2, -1);
  if (!out || !tern_dtype_is_float((tern_dtype)out->dtype) || (out->count == steps && out->rank != 1)) return TERN_FALL_BACK;
  if (steps < 0) return TERN_REJECT;
  tern_dtype dtype = (tern_dtype)out->dtype, work = tern_compute_dtype(dtype);
  double start = tern_arg_double(call, 0, 0), end = tern_arg_double(call, 1, 0);
  double step =
      work == TERN_F64 ? (end - start) / (double)(steps > 1 ? steps - 1 : 1) : (double)(((float)end - (float)start) / (float)(steps > 1 ? steps - 1 : 1));
  tern_draft_double(draft, work, start, false);
  tern_draft_double(draft, work, steps > 1 ? end : start, false);
  tern_draft_double(draft, work, step, false);
  draft->device = out->device;
  tern_draft_result(draft, dtype, 1, &steps);
  return TERN_RECORD;
}
static tern_status lower_linspace(const tern_lowering *node, tern_value *results) {
  tern_program *p = node->program;
  const int64_t *steps = node->outputs[0].view.sizes;
  tern_value start = node->scalars[0], end = node->scalars[1], step = node->scalars[2];
  tern_dtype work = tern_value_dtype(p, start);
  tern_value place = tern_iota(p, work, 1, steps, 0);
  tern_value left = tern_subtract(p, tern_constant_float(p, work, 0, NULL, (double)(*steps - 1)), place);
  tern_value first_half = tern_compare(p, TERN_LT, tern_iota(p, TERN_I64, 1, steps, 0), tern_constant_int(p, TERN_I64, 0, NULL, *steps / 2));
  tern_value v = tern_select(p, first_half, tern_add(p, start, tern_multiply(p, step, place)), tern_subtract(p, end, tern_multiply(p, step, left)));
  results[0] = tern_convert(p, v, node->outputs[0].computed);
  return NULL;
}

/* ---- eye.m_out(n, m, *, out) ---- */

static tern_verdict infer_eye(const tern_call *call, tern_draft *draft, bool is_square) {
  const tern_tensor *out = tern_arg_tensor(call, call->n_arguments - 1);
  int64_t sizes[2] = {tern_arg_int(call, 0, -1), 0};
  sizes[1] = is_square ? sizes[0] : tern_arg_int(call, 1, -1);
  if (!out || sizes[0] < 0 || sizes[1] < 0) return TERN_REJECT;
  if (out->dtype >= TERN_C64) return TERN_FALL_BACK;
  draft->device = out->device;
  tern_draft_result(draft, (tern_dtype)out->dtype, 2, sizes);
  return TERN_RECORD;
}
static tern_verdict infer_eye_square(const tern_call *call, tern_draft *draft) { return infer_eye(call, draft, true); }
static tern_verdict infer_eye_any(const tern_call *call, tern_draft *draft) { return infer_eye(call, draft, false); }
static tern_status lower_eye(const tern_lowering *node, tern_value *results) {
  tern_program *p = node->program;
  const int64_t *sizes = node->outputs[0].view.sizes;
  tern_value diagonal = tern_compare(p, TERN_EQ, tern_iota(p, TERN_I64, 2, sizes, 0), tern_iota(p, TERN_I64, 2, sizes, 1));
  results[0] = tern_convert(p, diagonal, node->outputs[0].computed);
  return NULL;
}

const tern_aten_row tern_aten_fill[] = {
    {NULL, "fill_.Scalar", NULL, NULL, NULL, lower_fill, fill},
    {NULL, "fill_.Tensor", NULL, NULL, NULL, lower_fill, fill},
    {NULL, "zero_", NULL, NULL, NULL, lower_fill, zero},
    {NULL, NULL, "arange.start_out", NULL, infer_arange, lower_arange, NULL},
    {NULL, NULL, "linspace.out", NULL, infer_linspace, lower_linspace, NULL},
    {NULL, NULL, "eye.out", NULL, infer_eye_square, lower_eye, NULL},
    {NULL, NULL, "eye.m_out", NULL, infer_eye_any, lower_eye, NULL},
};
TERN_ATEN_FAMILY_END(fill)
