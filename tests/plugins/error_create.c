/* Has no chip, and says so. */
#include "plugin.h"

static pjrt_error *refuse(struct pjrt_Client_Create *a) { return (void)a, error_new(9, "no chip on this machine"); }

static void break_it(pjrt_api *api) { api->Client_Create = refuse; }
