/* amp: what torch.amp.GradScaler needs: unscaling the gradients while looking for infinities and NaN, and the next scale. Both stay on the device: nothing is
 * read back, so a step with a scaler is still one program. */
#include "nn.h"

static bool is_one_float(const tern_tensor *t) { return t && t->device >= 0 && t->dtype == TERN_F32 && t->count == 1; }

/* ---- _amp_foreach_non_finite_check_and_unscale_(self[], found_inf, inv_scale): one node for each gradient, writing it and found_inf ---- */

static tern_verdict draft_unscale(tern_draft *draft, const tern_tensor *grad, const tern_tensor *found, const tern_tensor *inverse) {
  tern_draft_start(draft);
  tern_draft_result(draft, (tern_dtype)grad->dtype, grad->rank, grad->sizes)->computed = tern_nn_wide(grad);
  tern_draft_result(draft, TERN_F32, found->rank, found->sizes);
  return tern_nn_operands(draft, 3, (const tern_tensor *[]){grad, found, inverse});
}

static tern_verdict call_unscale(const tern_call *call, tern_status *status) {
  const tern_argument *list = &call->arguments[0];
  const tern_tensor *found = tern_arg_tensor(call, 1), *inverse = tern_arg_tensor(call, 2);
  tern_draft draft;
  if (list->tag != TERN_ARG_TENSORS) return TERN_FALL_BACK;
  if (!is_one_float(found) || !is_one_float(inverse)) return TERN_FALL_BACK;
  for (int i = 0; i < list->n; i++) {
    const tern_tensor *grad = &list->u.tensors[i];
    if (!grad->sizes || !tern_nn_is_float(grad) || grad->device != found->device) return TERN_FALL_BACK;
    tern_verdict verdict = draft_unscale(&draft, grad, found, inverse);
    if (verdict != TERN_RECORD) return verdict;
  }
  for (int i = 0; i < list->n && !*status; i++) {
    draft_unscale(&draft, &list->u.tensors[i], found, inverse);
    *status = tern_draft_record(call, &draft, call->row, (const tern_tensor *[]){&list->u.tensors[i], found});
  }
  return TERN_RECORD;
}

static tern_status lower_unscale(const tern_lowering *node, tern_value *results) {
  tern_program *p = node->program;
  tern_value grad = tern_nn_widen(p, node->operands[0]), found = node->operands[1];
  tern_value scale = tern_convert(p, tern_reshape(p, node->operands[2], 0, NULL), tern_value_dtype(p, grad));
  tern_value broken = tern_not(p, tern_is_finite(p, grad));
  int dims[TERN_MAX_RANK], rank = tern_value_rank(p, grad);
  for (int d = 0; d < rank; d++) dims[d] = d;
  tern_value any = tern_reduce(p, TERN_ANY, broken, rank, dims);
  results[0] = tern_multiply(p, grad, scale);
  results[1] = tern_nn_result(node, 1, tern_select(p, any, tern_nn_number(p, TERN_F32, 1), tern_reshape(p, found, 0, NULL)));
  return NULL;
}

/* ---- _amp_update_scale_(self, growth_tracker, found_inf, growth_factor, backoff_factor, growth_interval): found an infinity: back off and count from 0;
 * a whole interval without: grow, unless that would be infinite, and count from 0. scalars: growth, backoff, interval ---- */

static tern_verdict call_update_scale(const tern_call *call, tern_status *status) {
  const tern_tensor *scale = tern_arg_tensor(call, 0), *tracker = tern_arg_tensor(call, 1), *found = tern_arg_tensor(call, 2);
  tern_draft draft;
  if (!is_one_float(scale) || !is_one_float(found) || !tracker || tracker->device != scale->device || tracker->dtype != TERN_I32 || tracker->count != 1)
    return TERN_FALL_BACK;
  tern_draft_start(&draft);
  tern_draft_double(&draft, TERN_F32, tern_arg_double(call, 3, 2), false);
  tern_draft_double(&draft, TERN_F32, tern_arg_double(call, 4, 0.5), false);
  tern_draft_int(&draft, TERN_I32, tern_arg_int(call, 5, 1), false);
  tern_draft_result(&draft, TERN_F32, scale->rank, scale->sizes);
  tern_draft_result(&draft, TERN_I32, tracker->rank, tracker->sizes);
  tern_verdict verdict = tern_nn_operands(&draft, 3, (const tern_tensor *[]){scale, tracker, found});
  if (verdict != TERN_RECORD) return verdict;
  *status = tern_draft_record(call, &draft, call->row, (const tern_tensor *[]){scale, tracker});
  if (!*status) call->host->return_argument(call->shim, 0);
  return TERN_RECORD;
}

static tern_status lower_update_scale(const tern_lowering *node, tern_value *results) {
  tern_program *p = node->program;
  tern_value in[3];
  for (int i = 0; i < 3; i++) in[i] = tern_reshape(p, node->operands[i], 0, NULL);
  tern_value zero = tern_nn_number(p, TERN_I32, 0);
  tern_value found = tern_compare(p, TERN_NE, in[2], tern_nn_number(p, TERN_F32, 0));
  tern_value successes = tern_add(p, in[1], tern_nn_number(p, TERN_I32, 1)), is_due = tern_nn_equals(p, successes, node->scalars[2]);
  tern_value grown = tern_multiply(p, in[0], node->scalars[0]);
  grown = tern_select(p, tern_and(p, is_due, tern_is_finite(p, grown)), grown, in[0]);
  results[0] = tern_nn_result(node, 0, tern_select(p, found, tern_multiply(p, in[0], node->scalars[1]), grown));
  results[1] = tern_nn_result(node, 1, tern_select(p, tern_or(p, found, is_due), zero, successes));
  return NULL;
}

const tern_aten_row tern_aten_amp[] = {
    {.inplace = "_amp_foreach_non_finite_check_and_unscale_", .custom = call_unscale, .lower = lower_unscale},
    {.inplace = "_amp_update_scale_", .custom = call_update_scale, .lower = lower_update_scale},
};
TERN_ATEN_FAMILY_END(amp)
