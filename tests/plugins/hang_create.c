/* Waits for ever for a client. */
#include "plugin.h"

static pjrt_error *hang(struct pjrt_Client_Create *a) {
  (void)a;
  fprintf(stderr, "waiting for the metadata server\n");
  for (volatile int for_ever = 1; for_ever;) sleep(1000);
  return NULL;
}

static void break_it(pjrt_api *api) { api->Client_Create = hang; }
