/* Showing what is recorded and not cut yet, as the program it would become. Driven by the host language; nothing is cut or run. */
#include "internal.h"

tern_status tern_device_show(tern_device *device, tern_status (*show)(void *context, const tern_program *program), void *context) {
  TERN_TRY(tern_check_not_forked());
  tern_lock_take(&tern_record_lock);
  const tern_recording *r = device->recording;
  bool *wanted = calloc((size_t)r->n_locals + 1, sizeof *wanted);
  tern_lowered lowered = {0};
  uint32_t failed_node;
  tern_status status = wanted ? NULL : tern_error_new(TERN_OUT_OF_MEMORY, "no host memory to show a program");
  if (!status && !r->n_nodes) status = tern_error_new(TERN_INVALID_ARGUMENT, "nothing is recorded on tern:%d that has not run already", device->ordinal);
  for (uint32_t i = 0; i < r->n_locals && !status; i++) wanted[i] = r->locals[i].buffer->is_live && r->locals[i].last_write;
  if (!status) status = tern_lower(r, r->n_nodes, NULL, wanted, &lowered, &failed_node);
  if (!status) status = show(context, lowered.program);
  tern_program_free(lowered.program);
  free(wanted);
  tern_lock_give(&tern_record_lock);
  return status;
}
