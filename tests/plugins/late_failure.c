/* Execute consumes its donated inputs and reports failure only through the completion event. */
#include "plugin.h"

static pjrt_error *fail_late(struct pjrt_LoadedExecutable_Execute *a) {
  for (size_t i = 0; i < a->num_args; i++) {
    bool kept = false;
    for (size_t k = 0; k < a->options->num_non_donatable_input_indices; k++) kept = kept || a->options->non_donatable_input_indices[k] == (int64_t)i;
    a->argument_lists[0][i]->deleted = !kept;
  }
  pjrt_error *error = execute(a);
  a->device_complete_events[0]->code = PJRT_CODE_INTERNAL;
  return error;
}

static void break_it(pjrt_api *api) { api->LoadedExecutable_Execute = fail_late; }
