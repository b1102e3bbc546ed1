/* Ends the process instead of answering. */
#include "plugin.h"

static pjrt_error *leave(struct pjrt_Client_Create *a) {
  (void)a;
  printf("no licence found\n");
  exit(3);
}

static void break_it(pjrt_api *api) { api->Client_Create = leave; }
