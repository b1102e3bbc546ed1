/* Crashes while it is loaded, before anybody calls it. */
#include "plugin.h"

__attribute__((constructor)) static void crash(void) { abort(); }

static void break_it(pjrt_api *api) { (void)api; }
