/* A function table that ends before the entries tern needs. */
#include "plugin.h"

static void break_it(pjrt_api *api) { api->struct_size = offsetof(pjrt_api, Client_Compile); }
