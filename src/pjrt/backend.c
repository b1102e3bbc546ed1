/* tern_pjrt_backend: opening devices of a plug-in, and what is known of them. The rest of the table lies in memory.c and executable.c. */
#include "pjrt.h"

static void read_id(tern_backend_device *device) {
  const pjrt_api *api = device->client->api;
  device->id = device->ordinal;
  if (!TERN_PJRT_HAS(api, Device_GetDescription) || !TERN_PJRT_HAS(api, DeviceDescription_Id)) return;
  TERN_PJRT_ARGS(Device_GetDescription, get, .device = device->device);
  tern_status status = tern_pjrt_status(api, api->Device_GetDescription(&get), "PJRT_Device_GetDescription");
  if (!status) {
    TERN_PJRT_ARGS(DeviceDescription_Id, id, .device_description = get.device_description);
    status = tern_pjrt_status(api, api->DeviceDescription_Id(&id), "PJRT_DeviceDescription_Id");
    if (!status) device->id = id.id;
  }
  tern_error_free(status);
}

static tern_status open_device(const char *spec, int ordinal, tern_backend_device **out) {
  tern_pjrt_client *client;
  TERN_TRY(tern_pjrt_client_get(spec, &client));
  tern_backend_device *device = NULL;
  tern_status status = NULL;
  if (ordinal < 0 || (size_t)ordinal >= client->n_devices)
    status =
        tern_error_new(TERN_NO_DEVICE, "device %d of '%s' does not exist: the plug-in shows %zu (numbered from 0)", ordinal, spec, client->n_devices);
  else if (!(device = calloc(1, sizeof *device)))
    status = tern_error_new(TERN_OUT_OF_MEMORY, "no host memory for device %d of '%s'", ordinal, spec);
  if (status) {
    tern_pjrt_client_release(client, true);
    return status;
  }
  device->client = client;
  device->device = client->devices[ordinal];
  device->ordinal = ordinal;
  /* A path is a poor name; the platform's own is better. */
  snprintf(device->name, sizeof device->name, "%s", strchr(spec, '/') ? client->platform_name : spec);
  device->limit = tern_setting_int(TERN_SETTING_MEMORY_LIMIT, 0);
  pthread_mutex_init(&device->lock, NULL);
  read_id(device);
  *out = device;
  return NULL;
}

static void close_device(tern_backend_device *device) {
  if (!device) return;
  tern_pjrt_client_release(device->client, false);
  pthread_mutex_destroy(&device->lock);
  free(device);
}

static tern_status count_devices(const char *spec, int *out) {
  tern_pjrt_client *client;
  *out = 0;
  TERN_TRY(tern_pjrt_client_get(spec, &client));
  *out = (int)client->n_devices;
  tern_pjrt_client_release(client, true); /* most likely to be opened next */
  return NULL;
}

/* False where the plug-in does not tell. */
static bool memory_stats(tern_backend_device *device, struct pjrt_Device_MemoryStats *out) {
  const pjrt_api *api = device->client->api;
  *out = (struct pjrt_Device_MemoryStats){.struct_size = pjrt_Device_MemoryStats_size, .device = device->device};
  if (!TERN_PJRT_HAS(api, Device_MemoryStats)) return false;
  tern_status status = tern_pjrt_status(api, api->Device_MemoryStats(out), "PJRT_Device_MemoryStats");
  bool told = !status;
  tern_error_free(status);
  return told;
}

static void info(tern_backend_device *device, tern_backend_info *out) {
  const tern_pjrt_client *client = device->client;
  *out = (tern_backend_info){.static_shapes = true, .compute_units = 1};
  snprintf(out->name, sizeof out->name, "%s", device->name);
  snprintf(out->platform, sizeof out->platform, "%s%s%.100s, PJRT %d.%d", client->platform_name, *client->platform ? ", " : "", client->platform,
           client->api->version.major_version, client->api->version.minor_version);
  out->has_f64 = !(client->target->lacks & 1u << TERN_F64);
  out->has_i64 = !(client->target->lacks & 1u << TERN_I64);
  out->has_complex = !(client->target->lacks & 1u << TERN_C64);
  struct pjrt_Device_MemoryStats told;
  if (memory_stats(device, &told) && told.bytes_limit_is_set) out->memory_limit = told.bytes_limit;
  /* A plug-in for the CPU that does not tell has the machine's memory. */
  if (!out->memory_limit && !strcmp(client->platform_name, "cpu")) out->memory_limit = tern_machine_memory();
  if (device->limit && (!out->memory_limit || device->limit < out->memory_limit)) out->memory_limit = device->limit;
}

/* Arrays are counted here; what the plug-in's allocator holds beyond them, only it knows. */
static void stats(tern_backend_device *device, tern_backend_stats *out) {
  struct pjrt_Device_MemoryStats told;
  bool tells = memory_stats(device, &told);
  pthread_mutex_lock(&device->lock);
  tern_stat *reserved = &device->stats.memory.reserved;
  int64_t now = device->stats.memory.bytes.current, pool = tells ? told.pool_bytes_is_set ? told.pool_bytes : told.bytes_in_use : 0;
  tern_stat_add(reserved, (pool > now ? pool : now) - reserved->current);
  if (device->stats.memory.bytes.peak > reserved->peak) reserved->peak = device->stats.memory.bytes.peak;
  *out = device->stats;
  pthread_mutex_unlock(&device->lock);
}

static void reset_peak(tern_backend_device *device) {
  pthread_mutex_lock(&device->lock);
  tern_memory_stats_reset_peaks(&device->stats.memory);
  pthread_mutex_unlock(&device->lock);
}

static void reset_totals(tern_backend_device *device) {
  pthread_mutex_lock(&device->lock);
  tern_memory_stats_reset_totals(&device->stats.memory);
  pthread_mutex_unlock(&device->lock);
}

static void set_limit(tern_backend_device *device, int64_t bytes) { device->limit = bytes; }

/* What the plug-in's allocator keeps is its own affair: the interface has no call for it. */
static void empty_cache(tern_backend_device *device) { (void)device; }

static void *host_pointer(tern_memory *memory) {
  (void)memory;
  return NULL;
}

static tern_status adopt(tern_backend_device *device, void *data, size_t bytes, void (*release_owner)(void *owner), void *owner, tern_memory **out) {
  (void)data, (void)bytes, (void)release_owner, (void)owner, (void)out;
  return tern_error_new(TERN_UNSUPPORTED, "%s cannot use host memory in place: copy it to the device", device->name);
}

const tern_backend tern_pjrt_backend = {
    .name = "pjrt",
    .open = open_device,
    .close = close_device,
    .device_count = count_devices,
    .info = info,
    .stats = stats,
    .reset_peak = reset_peak,
    .reset_totals = reset_totals,
    .set_limit = set_limit,
    .empty_cache = empty_cache,
    .allocate = tern_pjrt_allocate,
    .release = tern_pjrt_release,
    .upload = tern_pjrt_upload,
    .download = tern_pjrt_download,
    .host_pointer = host_pointer,
    .adopt = adopt,
    .size = tern_pjrt_size,
    .compile = tern_pjrt_compile,
    .release_executable = tern_pjrt_executable_release,
    .execute = tern_pjrt_execute,
};
