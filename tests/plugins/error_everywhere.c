/* Opens, and then answers every call with an error. */
#include "plugin.h"

#define REFUSE(name) static pjrt_error *refuse_##name(struct pjrt_##name *a) { return (void)a, error_new(PJRT_CODE_INTERNAL, #name " is broken"); }
REFUSE(Plugin_Attributes)
REFUSE(Client_Destroy)
REFUSE(Client_PlatformVersion)
REFUSE(Client_Compile)
REFUSE(Client_BufferFromHostBuffer)
REFUSE(Client_CreateUninitializedBuffer)
REFUSE(Device_GetDescription)
REFUSE(Device_MemoryStats)

static void break_it(pjrt_api *api) {
#define TAKE(name) api->name = refuse_##name;
  TAKE(Plugin_Attributes)
  TAKE(Client_Destroy)
  TAKE(Client_PlatformVersion)
  TAKE(Client_Compile)
  TAKE(Client_BufferFromHostBuffer)
  TAKE(Client_CreateUninitializedBuffer)
  TAKE(Device_GetDescription)
  TAKE(Device_MemoryStats)
}
