/* dispatch: one call, from the shim's plain structs to a recorded node.
 *
 * The row infers; this file then finds or makes the tensors that are written, by the form of the call, and records. The same row serves the three forms:
 * functional (new tensors), in-place (argument 0 is the target) and out= (the last arguments are). A node reads all its operands before it writes, so a target
 * that is also an operand needs no care beyond PyTorch's own refusals. Called for every operator: nothing here allocates, and a draft's arrays are never
 * cleared. */
#include "helpers.h"
#include "layout.h"

/* ---- recording ---- */

static bool is_empty(const tern_output *output) {
  for (int d = 0; d < output->view.rank; d++)
    if (output->view.sizes[d] == 0) return true;
  return false;
}

static tern_status record(const tern_call *call, const tern_draft *draft, const tern_aten_row *row, int n_outputs, const tern_output *outputs) {
  tern_node node;
  bool all_empty = n_outputs > 0;
  for (int i = 0; i < n_outputs && all_empty; i++) all_empty = is_empty(&outputs[i]);
  if (TERN_UNLIKELY(all_empty)) return NULL;
  node.operation = tern_aten_operation(row);
  TERN_CHECK(node.operation && row->lower);
  if (TERN_LIKELY(n_outputs > 0))
    node.device = tern_buffer_device(outputs[0].buffer);
  else
    TERN_TRY(tern_device_get(draft->device, &node.device));
  node.line = call->line;
  node.n_operands = draft->n_operands;
  node.n_outputs = n_outputs;
  node.n_attrs = draft->n_attrs;
  node.n_scalars = draft->n_scalars;
  node.operands = draft->operands;
  node.outputs = outputs;
  node.attrs = draft->attrs;
  node.scalars = draft->scalars;
  return tern_record(&node);
}

static void describe_target(tern_output *output, const tern_tensor *target, tern_dtype computed) {
  output->buffer = target->buffer;
  output->dtype = (tern_dtype)target->dtype;
  output->computed = computed;
  output->view.rank = target->rank;
  output->view.offset = target->offset;
  for (int d = 0; d < target->rank; d++) {
    output->view.sizes[d] = target->sizes[d];
    output->view.strides[d] = target->strides[d];
  }
}

static tern_status make_result(const tern_call *call, const tern_draft *draft, const tern_draft_output *wanted, tern_output *output) {
  output->dtype = wanted->dtype;
  output->computed = wanted->computed;
  output->view.rank = wanted->rank;
  output->view.offset = 0;
  for (int d = 0; d < wanted->rank; d++) output->view.sizes[d] = wanted->sizes[d];
  if (TERN_UNLIKELY(wanted->undefined)) {
    /* The lowering still gives a value for it; written to a buffer that nobody holds, it is dead code. */
    tern_device *device;
    int64_t count = 1;
    for (int d = 0; d < wanted->rank; d++) count *= wanted->sizes[d];
    tern_geometry_set_contiguous(&output->view, wanted->rank, wanted->sizes, 0);
    TERN_TRY(tern_device_get(draft->device, &device));
    return tern_buffer_new(device, (size_t)count * tern_dtype_size(wanted->dtype), call->line, &output->buffer);
  }
  tern_layout_strides(draft, wanted, output->view.strides);
  return call->host->new_result(call->shim, draft->device, wanted->dtype, wanted->rank, wanted->sizes, output->view.strides, call->line, &output->buffer);
}

/* Buffers of undefined results are ours and go once the node is recorded; the host is told in the order of the outputs. */
static tern_status record_new(const tern_call *call, const tern_draft *draft, const tern_aten_row *row, const tern_tensor *const *targets) {
  tern_output outputs[TERN_MAX_OUTPUTS];
  tern_status status = NULL;
  int made = 0;
  for (; made < draft->n_outputs && !status; made++) {
    const tern_draft_output *wanted = &draft->outputs[made];
    if (targets && targets[made]) {
      const tern_tensor *target = targets[made];
      TERN_CHECK(target->rank == wanted->rank && memcmp(target->sizes, wanted->sizes, (size_t)wanted->rank * sizeof *wanted->sizes) == 0);
      describe_target(&outputs[made], target, wanted->computed);
    } else {
      status = make_result(call, draft, wanted, &outputs[made]);
      if (status) break;
      if (wanted->undefined) call->host->return_undefined(call->shim);
    }
  }
  if (!status) status = record(call, draft, row, draft->n_outputs, outputs);
  for (int i = 0; i < made; i++)
    if (draft->outputs[i].undefined && !(targets && targets[i])) tern_buffer_release(outputs[i].buffer);
  return status;
}

tern_status tern_draft_record(const tern_call *call, const tern_draft *draft, const tern_aten_row *row, const tern_tensor *const *targets) {
  return record_new(call, draft, row, targets);
}

tern_status tern_temporary(int device, tern_dtype dtype, int rank, const int64_t *sizes, int64_t *strides_room, tern_tensor *out) {
  tern_device *opened;
  tern_geometry view;
  TERN_CHECK(rank <= TERN_MAX_TENSOR_RANK);
  tern_geometry_set_contiguous(&view, rank, sizes, 0);
  memcpy(strides_room, view.strides, (size_t)rank * sizeof *strides_room);
  *out = (tern_tensor){
      .sizes = sizes, .strides = strides_room, .count = tern_geometry_count(&view), .rank = rank, .device = (int16_t)device, .dtype = (uint8_t)dtype};
  TERN_TRY(tern_device_get(device, &opened));
  return tern_buffer_new(opened, (size_t)out->count * tern_dtype_size(dtype), 0, &out->buffer);
}

/* ---- in-place and out= ---- */

static bool has_sizes(const tern_tensor *tensor, const tern_draft_output *wanted) {
  return tensor->rank == wanted->rank && memcmp(tensor->sizes, wanted->sizes, (size_t)wanted->rank * sizeof *wanted->sizes) == 0;
}

static tern_status check_overlap(const tern_draft *draft, const tern_output *target) {
  TERN_TRY(tern_layout_check_target(target));
  for (int i = 0; i < draft->n_operands; i++) TERN_TRY(tern_layout_check_operand(target, &draft->operands[i]));
  return NULL;
}

static tern_verdict write_to_targets(const tern_call *call, tern_draft *draft, tern_status *status) {
  tern_output outputs[TERN_MAX_OUTPUTS];
  int n = draft->n_outputs, first = call->form == TERN_INPLACE ? 0 : call->n_arguments - n;
  if (first < 0 || n < 1 || (call->form == TERN_INPLACE && n != 1)) return TERN_REJECT;
  for (int i = 0; i < n; i++) {
    const tern_tensor *target = tern_arg_tensor(call, first + i);
    const tern_draft_output *wanted = &draft->outputs[i];
    if (!target || target->device < 0) return TERN_REJECT;
    if (target->rank > TERN_MAX_TENSOR_RANK || target->dtype >= TERN_DTYPE_COUNT) return TERN_FALL_BACK;
    if (draft->device < 0) draft->device = target->device;
    if (draft->device != target->device || !tern_can_cast(wanted->computed, (tern_dtype)target->dtype)) return TERN_REJECT;
    if (call->form == TERN_INPLACE && !has_sizes(target, wanted)) return TERN_REJECT;
  }
  for (int i = 0; i < n; i++) {
    const tern_tensor *target = tern_arg_tensor(call, first + i);
    const tern_draft_output *wanted = &draft->outputs[i];
    tern_tensor resized;
    if (!has_sizes(target, wanted)) {
      describe_target(&outputs[i], target, wanted->computed); /* refused as it is, before it is resized */
      *status = tern_layout_check_target(&outputs[i]);
      if (*status) return TERN_RECORD;
      int64_t strides[TERN_MAX_TENSOR_RANK];
      tern_layout_strides(draft, wanted, strides);
      *status = call->host->resize_argument(call->shim, first + i, wanted->rank, wanted->sizes, strides, &resized);
      if (*status) return TERN_RECORD;
      target = &resized;
    }
    describe_target(&outputs[i], target, wanted->computed);
    *status = check_overlap(draft, &outputs[i]);
    if (*status) return TERN_RECORD;
  }
  *status = record(call, draft, call->row, n, outputs);
  for (int i = 0; i < n && !*status; i++) call->host->return_argument(call->shim, first + i);
  return TERN_RECORD;
}

/* ---- the call ---- */

tern_verdict tern_aten_call(const tern_call *call, tern_status *status) {
  const tern_aten_row *row = call->row;
  tern_verdict verdict = TERN_FALL_BACK;
  *status = NULL;
  if (TERN_LIKELY(row->infer != NULL)) {
    tern_draft draft;
    tern_draft_start(&draft);
    verdict = row->infer(call, &draft);
    if (TERN_LIKELY(verdict == TERN_RECORD)) {
      if (call->form != TERN_FUNCTIONAL)
        verdict = write_to_targets(call, &draft, status);
      else if (TERN_LIKELY(draft.device >= 0))
        *status = record_new(call, &draft, row, NULL);
      else
        verdict = TERN_REJECT;
    }
  }
  if (verdict == TERN_FALL_BACK && row->custom) verdict = row->custom(call, status);
  return verdict;
}
