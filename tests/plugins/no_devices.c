/* A client without devices. */
#include "plugin.h"

static pjrt_error *none(struct pjrt_Client_AddressableDevices *a) { return a->num_addressable_devices = 0, NULL; }

static void break_it(pjrt_api *api) { api->Client_AddressableDevices = none; }
