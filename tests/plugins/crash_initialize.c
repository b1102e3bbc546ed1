/* Crashes in its initialisation. */
#include <signal.h>
#include "plugin.h"

static pjrt_error *crash(struct pjrt_Plugin_Initialize *a) {
  (void)a;
  fprintf(stderr, "the driver is about to fall over\n");
  raise(SIGSEGV);
  return NULL;
}

static void break_it(pjrt_api *api) { api->Plugin_Initialize = crash; }
