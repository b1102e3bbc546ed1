/* Compiles, and has no room when it comes to running; nor for large arrays. */
#include "plugin.h"

static pjrt_error *full(struct pjrt_LoadedExecutable_Execute *a) { return (void)a, error_new(PJRT_CODE_RESOURCE_EXHAUSTED, "HBM is full: 16.0G of 15.75G"); }

static pjrt_error *(*small)(struct pjrt_Client_BufferFromHostBuffer *a);
static pjrt_error *small_only(struct pjrt_Client_BufferFromHostBuffer *a) {
  return a->num_dims && a->dims[0] > 1000 ? error_new(PJRT_CODE_RESOURCE_EXHAUSTED, "HBM is full") : small(a);
}

static void break_it(pjrt_api *api) {
  api->LoadedExecutable_Execute = full;
  small = buffer_from_host;
  api->Client_BufferFromHostBuffer = small_only;
}
