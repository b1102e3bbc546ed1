/* Speaks a version older than tern knows. */
#include "plugin.h"

static void break_it(pjrt_api *api) { api->version.minor_version = TERN_PJRT_OLDEST_MINOR - 1; }
