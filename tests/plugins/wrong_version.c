/* Speaks a version of the interface that does not exist yet. */
#include "plugin.h"

static void break_it(pjrt_api *api) { api->version.major_version = 7; }
