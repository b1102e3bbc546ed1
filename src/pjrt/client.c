/* A plug-in and its client: loading, agreeing on versions, and the plug-in's errors and events in tern's terms. Called by backend.c; the set-up also
 * runs in probe.c's child.
 *
 * A plug-in, once loaded, stays loaded: runtimes with threads of their own do not survive being unmapped. */
#include <dlfcn.h>
#include <limits.h>
#include "pjrt.h"

/* ---- errors and events ---- */

static const char *code_word(int code) {
  static const char *const words[] = {"OK",        "CANCELLED",      "UNKNOWN",           "INVALID_ARGUMENT",   "DEADLINE_EXCEEDED",
                                      "NOT_FOUND", "ALREADY_EXISTS", "PERMISSION_DENIED", "RESOURCE_EXHAUSTED", "FAILED_PRECONDITION",
                                      "ABORTED",   "OUT_OF_RANGE",   "UNIMPLEMENTED",     "INTERNAL",           "UNAVAILABLE",
                                      "DATA_LOSS", "UNAUTHENTICATED"};
  return code >= 0 && code < (int)TERN_COUNT(words) ? words[code] : "an unknown code";
}

tern_status tern_pjrt_status(const pjrt_api *api, pjrt_error *error, const char *doing) {
  if (!error) return NULL;
  TERN_PJRT_ARGS(Error_Message, message, .error = error);
  api->Error_Message(&message);
  TERN_PJRT_ARGS(Error_GetCode, code, .error = error, .code = PJRT_CODE_INTERNAL);
  pjrt_error *second = api->Error_GetCode(&code);
  if (second) {
    TERN_PJRT_ARGS(Error_Destroy, destroy, .error = second);
    api->Error_Destroy(&destroy);
  }
  /* Compilers put whole programs into their messages. */
  int length = message.message ? (message.message_size > 8000 ? 8000 : (int)message.message_size) : 0;
  tern_status status = tern_error_new(code.code == PJRT_CODE_RESOURCE_EXHAUSTED ? TERN_OUT_OF_MEMORY
                                      : code.code == PJRT_CODE_UNIMPLEMENTED    ? TERN_UNSUPPORTED
                                                                                : TERN_PLUGIN_FAILED,
                                      "%s: the plug-in answered %s: %.*s", doing, code_word(code.code), length, length ? message.message : "");
  TERN_PJRT_ARGS(Error_Destroy, destroy, .error = error);
  api->Error_Destroy(&destroy);
  return status;
}

tern_status tern_pjrt_await(const pjrt_api *api, pjrt_event *event, const char *doing) {
  if (!event) return NULL;
  TERN_PJRT_ARGS(Event_Await, await, .event = event);
  tern_status status = tern_pjrt_status(api, api->Event_Await(&await), doing);
  TERN_PJRT_ARGS(Event_Destroy, destroy, .event = event);
  tern_error_free(tern_pjrt_status(api, api->Event_Destroy(&destroy), doing));
  return status;
}

/* ---- set-up ---- */

static tern_status check_entries(const char *path, const pjrt_api *api) {
  if (api->struct_size < offsetof(pjrt_api, version) + sizeof api->version)
    return tern_error_new(TERN_PLUGIN_FAILED, "the plug-in %s is not usable: its function table says it has %zu bytes", path, api->struct_size);
  int major = api->version.major_version, minor = api->version.minor_version;
  if (major != TERN_PJRT_MAJOR || minor < TERN_PJRT_OLDEST_MINOR)
    return tern_error_new(TERN_PLUGIN_FAILED, "the plug-in %s speaks version %d.%d of the PJRT C API, and tern speaks %d.%d and later %d.x: install %s", path,
                          major, minor, TERN_PJRT_MAJOR, TERN_PJRT_OLDEST_MINOR, TERN_PJRT_MAJOR,
                          major > TERN_PJRT_MAJOR ? "an older plug-in or a newer tern" : "a newer plug-in");
#define TERN_PJRT_ENTRY(name)    \
  if (!TERN_PJRT_HAS(api, name)) \
    return tern_error_new(TERN_PLUGIN_FAILED, "the plug-in %s (PJRT C API %d.%d) has no PJRT_%s, which tern needs", path, major, minor, #name);
#define TERN_PJRT_REPORT(name) TERN_PJRT_ENTRY(name)
#define TERN_PJRT_OPTIONAL(name)
#define TERN_PJRT_UNUSED(name)
#include "entries.def"
#undef TERN_PJRT_ENTRY
#undef TERN_PJRT_REPORT
#undef TERN_PJRT_OPTIONAL
#undef TERN_PJRT_UNUSED
  return NULL;
}

static tern_status load(const char *path, const pjrt_api **out) {
  /* XLA logs to stderr while it loads and opens; errors come back as errors, so only those are worth a line. What the user has set stays. */
  setenv("TF_CPP_MIN_LOG_LEVEL", "2", 0);
  void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (!library) return tern_error_new(TERN_PLUGIN_FAILED, "cannot load the plug-in %s: %s", path, dlerror());
  void *symbol = dlsym(library, "GetPjrtApi");
  if (!symbol) return tern_error_new(TERN_PLUGIN_FAILED, "%s is not a PJRT plug-in: it has no GetPjrtApi", path);
  const pjrt_api *(*get)(void);
  memcpy(&get, &symbol, sizeof get); /* ISO C has no cast from object to function */
  *out = get();
  if (!*out) return tern_error_new(TERN_PLUGIN_FAILED, "the plug-in %s gave no function table (GetPjrtApi returned NULL)", path);
  return check_entries(path, *out);
}

/* The newest StableHLO the plug-in reads. What tern writes has been in StableHLO since 1.0, which plug-ins older than that are not held to read. */
static tern_status negotiate(const char *path, const pjrt_api *api, int64_t version[3]) {
  memset(version, 0, 3 * sizeof *version);
  if (!TERN_PJRT_HAS(api, Plugin_Attributes)) return NULL;
  TERN_PJRT_ARGS(Plugin_Attributes, attributes, 0);
  tern_status status = tern_pjrt_status(api, api->Plugin_Attributes(&attributes), "PJRT_Plugin_Attributes");
  if (status) { /* a plug-in need not know */
    tern_error_free(status);
    return NULL;
  }
  static const char wanted[] = "stablehlo_current_version";
  for (size_t i = 0; i < attributes.num_attributes; i++) {
    const pjrt_named_value *a = &attributes.attributes[i];
    if (a->type == PJRT_VALUE_INT64_LIST && a->value_size == 3 && a->name_size == sizeof wanted - 1 && !memcmp(a->name, wanted, sizeof wanted - 1))
      memcpy(version, a->int64_array_value, 3 * sizeof *version);
  }
  if (version[0] == 0 && version[1] > 0)
    return tern_error_new(TERN_PLUGIN_FAILED, "the plug-in %s reads StableHLO up to %d.%d.%d, and tern writes 1.0: install a newer plug-in", path,
                          (int)version[0], (int)version[1], (int)version[2]);
  return NULL;
}

tern_status tern_pjrt_library_open(const char *path, void (*progress)(void *context, tern_pjrt_stage stage), void *context, const pjrt_api **api,
                                   int64_t stablehlo[3]) {
  if (progress) progress(context, TERN_PJRT_LOADING);
  TERN_TRY(load(path, api));
  if (progress) progress(context, TERN_PJRT_INITIALISING);
  TERN_PJRT_ARGS(Plugin_Initialize, initialise, 0);
  TERN_TRY(tern_error_prefix(tern_pjrt_status(*api, (*api)->Plugin_Initialize(&initialise), "PJRT_Plugin_Initialize"), "cannot initialise the plug-in %s", path));
  return negotiate(path, *api, stablehlo);
}

tern_status tern_pjrt_set_up_run(const char *path, int devices, void (*progress)(void *context, tern_pjrt_stage stage), void *context, tern_pjrt_set_up *out) {
  *out = (tern_pjrt_set_up){0};
  TERN_TRY(tern_pjrt_library_open(path, progress, context, &out->api, out->stablehlo));
  if (progress) progress(context, TERN_PJRT_CREATING);
  /* XLA on a CPU shows as many devices as it is told; others would refuse the option, so it goes only to a file named so. */
  pjrt_named_value count = {
      .struct_size = sizeof count, .name = "cpu_device_count", .name_size = 16, .type = PJRT_VALUE_INT64, .int64_value = devices, .value_size = 1};
  const char *slash = strrchr(path, '/');
  TERN_PJRT_ARGS(Client_Create, create, .create_options = &count, .num_options = strstr(slash ? slash : path, "cpu") != NULL);
  pjrt_error *error = out->api->Client_Create(&create);
  if (error && create.num_options) {
    tern_error_free(tern_pjrt_status(out->api, error, ""));
    create = (struct pjrt_Client_Create){.struct_size = pjrt_Client_Create_size};
    error = out->api->Client_Create(&create);
  }
  TERN_TRY(tern_error_prefix(tern_pjrt_status(out->api, error, "PJRT_Client_Create"), "cannot open the plug-in %s", path));
  if (!create.client) return tern_error_new(TERN_PLUGIN_FAILED, "cannot open the plug-in %s: PJRT_Client_Create gave no client", path);
  out->client = create.client;
  if (progress) progress(context, TERN_PJRT_READY);
  return NULL;
}

/* ---- the list of clients ---- */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static tern_pjrt_client *clients;

static void destroy(tern_pjrt_client *client) {
  if (client->handle) {
    TERN_PJRT_ARGS(Client_Destroy, arguments, .client = client->handle);
    tern_error_free(tern_pjrt_status(client->api, client->api->Client_Destroy(&arguments), "PJRT_Client_Destroy"));
  }
  free(client->path);
  free(client);
}

static void copy_text(char *out, size_t size, const char *text, size_t length) {
  snprintf(out, size, "%.*s", text ? (length > INT_MAX ? INT_MAX : (int)length) : 0, text ? text : "");
}

static tern_status describe(tern_pjrt_client *client) {
  TERN_PJRT_ARGS(Client_PlatformName, name, .client = client->handle);
  TERN_TRY(tern_pjrt_status(client->api, client->api->Client_PlatformName(&name), "PJRT_Client_PlatformName"));
  copy_text(client->platform_name, sizeof client->platform_name, name.platform_name, name.platform_name_size);
  if (TERN_PJRT_HAS(client->api, Client_PlatformVersion)) {
    TERN_PJRT_ARGS(Client_PlatformVersion, version, .client = client->handle);
    tern_status status = tern_pjrt_status(client->api, client->api->Client_PlatformVersion(&version), "PJRT_Client_PlatformVersion");
    if (!status) copy_text(client->platform, sizeof client->platform, version.platform_version, version.platform_version_size);
    tern_error_free(status);
  }
  client->target = tern_pjrt_target_of(client->platform_name);
  TERN_PJRT_ARGS(Client_AddressableDevices, devices, .client = client->handle);
  TERN_TRY(tern_pjrt_status(client->api, client->api->Client_AddressableDevices(&devices), "PJRT_Client_AddressableDevices"));
  if (!devices.num_addressable_devices) return tern_error_new(TERN_PLUGIN_FAILED, "the plug-in %s found no device on this machine", client->path);
  client->devices = devices.addressable_devices;
  client->n_devices = devices.num_addressable_devices;
  return NULL;
}

static tern_status make(char *path, tern_pjrt_client **out) {
  int devices = (int)tern_setting_int(TERN_SETTING_DEVICE_COUNT, 1);
  if (devices < 1) devices = 1;
  double seconds = (double)tern_setting_int(TERN_SETTING_PLUGIN_TIMEOUT, 60);
  /* A plug-in that is loaded already has shown what it does here; a forked copy of its threads would only deadlock. */
  void *loaded = dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD);
  if (loaded) dlclose(loaded);
  if (!loaded && seconds > 0) TERN_TRY(tern_pjrt_probe(path, devices, seconds));

  tern_pjrt_set_up set_up;
  TERN_TRY(tern_pjrt_set_up_run(path, devices, NULL, NULL, &set_up));
  tern_pjrt_client *client = calloc(1, sizeof *client);
  if (!client) return tern_error_new(TERN_OUT_OF_MEMORY, "no host memory for the client of the plug-in %s", path);
  client->api = set_up.api;
  client->handle = set_up.client;
  memcpy(client->stablehlo, set_up.stablehlo, sizeof client->stablehlo);
  client->path = strdup(path);
  tern_status status = client->path ? describe(client) : tern_error_new(TERN_OUT_OF_MEMORY, "no host memory for the client of the plug-in %s", path);
  if (status) {
    destroy(client);
    return status;
  }
  *out = client;
  return NULL;
}

tern_status tern_pjrt_client_get(const char *spec, tern_pjrt_client **out) {
  char *path;
  TERN_TRY(tern_pjrt_find(spec, &path));
  pthread_mutex_lock(&lock); /* held through the set-up: a second opener waits for the first one's client */
  tern_status status = NULL;
  tern_pjrt_client *client = clients;
  while (client && strcmp(client->path, path)) client = client->next;
  if (!client && !(status = make(path, &client))) {
    client->next = clients;
    clients = client;
  }
  if (!status) {
    client->references++;
    *out = client;
  }
  pthread_mutex_unlock(&lock);
  free(path);
  return status;
}

void tern_pjrt_client_release(tern_pjrt_client *client, bool keep) {
  pthread_mutex_lock(&lock);
  if (--client->references == 0 && !keep) {
    tern_pjrt_client **link = &clients;
    while (*link != client) link = &(*link)->next;
    *link = client->next;
    destroy(client);
  }
  pthread_mutex_unlock(&lock);
}
