/* Arrays on a PJRT device: each tern_memory wraps one buffer of the plug-in with the dtype and dims it was made with. Called by backend.c and executable.c.
 *
 * Arrays without elements never reach the plug-in: many plug-ins handle them badly, and there is nothing to handle. A bool is one byte (PRED). */
#include "pjrt.h"

static const int types[TERN_DTYPE_COUNT] = {
    [TERN_BOOL] = PJRT_TYPE_PRED, [TERN_U8] = PJRT_TYPE_U8,   [TERN_I8] = PJRT_TYPE_S8,   [TERN_I16] = PJRT_TYPE_S16, [TERN_I32] = PJRT_TYPE_S32,
    [TERN_I64] = PJRT_TYPE_S64,   [TERN_U16] = PJRT_TYPE_U16, [TERN_U32] = PJRT_TYPE_U32, [TERN_U64] = PJRT_TYPE_U64, [TERN_F16] = PJRT_TYPE_F16,
    [TERN_BF16] = PJRT_TYPE_BF16, [TERN_F32] = PJRT_TYPE_F32, [TERN_F64] = PJRT_TYPE_F64, [TERN_C64] = PJRT_TYPE_C64, [TERN_C128] = PJRT_TYPE_C128};

int tern_pjrt_type(tern_dtype dtype) { return types[dtype]; }

/* ---- counting ---- */

void tern_pjrt_count(tern_backend_device *device, int64_t bytes, int64_t arrays) {
  pthread_mutex_lock(&device->lock);
  tern_stat_add(&device->stats.memory.bytes, bytes);
  tern_stat_add(&device->stats.memory.blocks, arrays);
  pthread_mutex_unlock(&device->lock);
}

tern_status tern_pjrt_make_room(tern_backend_device *device, int64_t bytes) {
  if (!device->limit) return NULL;
  pthread_mutex_lock(&device->lock);
  int64_t used = device->stats.memory.bytes.current;
  bool fits = bytes <= device->limit - used;
  if (!fits) device->stats.memory.refusals++;
  pthread_mutex_unlock(&device->lock);
  if (fits) return NULL;
  char texts[3][32];
  return tern_error_new(TERN_OUT_OF_MEMORY, "out of memory on %s:%d: %s asked for, %s in use, the limit is %s (%s)", device->name, device->ordinal,
                        tern_bytes_text(bytes, texts[0], sizeof texts[0]), tern_bytes_text(used, texts[1], sizeof texts[1]),
                        tern_bytes_text(device->limit, texts[2], sizeof texts[2]), *tern_setting_text(TERN_SETTING_MEMORY_LIMIT) ? "TERN_MEMORY_LIMIT" : "set for this process");
}

/* ---- buffers ---- */

tern_memory *tern_pjrt_memory_new(tern_dtype dtype, int rank, const int64_t *dims) {
  tern_memory *memory = calloc(1, sizeof *memory);
  if (!memory) return NULL;
  memory->dtype = dtype;
  memory->rank = rank;
  if (rank) memcpy(memory->dims, dims, (size_t)rank * sizeof *dims);
  memory->bytes = (size_t)tern_dims_count(rank, dims) * tern_dtype_size(dtype);
  return memory;
}

void tern_pjrt_buffer_destroy(const pjrt_api *api, pjrt_buffer *buffer) {
  if (!buffer) return;
  TERN_PJRT_ARGS(Buffer_Destroy, destroy, .buffer = buffer);
  tern_error_free(tern_pjrt_status(api, api->Buffer_Destroy(&destroy), "PJRT_Buffer_Destroy"));
}

pjrt_error *tern_pjrt_buffer_from_host(tern_backend_device *device, int type, const int64_t *dims, size_t rank, const void *host, pjrt_buffer **out,
                                       pjrt_event **done) {
  TERN_PJRT_ARGS(Client_BufferFromHostBuffer, from, .client = device->client->handle, .data = host, .type = type, .dims = dims, .num_dims = rank,
                 .host_buffer_semantics = PJRT_HOST_BUFFER_IMMUTABLE_ONLY_DURING_CALL, .device = device->device);
  pjrt_error *error = device->client->api->Client_BufferFromHostBuffer(&from);
  *out = error ? NULL : from.buffer;
  *done = error ? NULL : from.done_with_host_buffer;
  return error;
}

/* A description with room made for it; the buffer is the caller's to fill in. */
static tern_status prepare(tern_backend_device *device, tern_dtype dtype, int rank, const int64_t *dims, tern_memory **out) {
  if (device->client->target->lacks & 1u << dtype)
    return tern_error_new(TERN_UNSUPPORTED, "%s has no %s: convert the tensor to another dtype, or keep it on the CPU", device->client->platform_name,
                          tern_dtype_name(dtype));
  tern_memory *memory = tern_pjrt_memory_new(dtype, rank, dims);
  if (!memory) return tern_error_new(TERN_OUT_OF_MEMORY, "no host memory for the description of an array");
  tern_status status = tern_pjrt_make_room(device, (int64_t)memory->bytes);
  if (status) {
    free(memory);
    return status;
  }
  *out = memory;
  return NULL;
}

static tern_status upload_into(tern_backend_device *device, tern_memory *memory, const void *host) {
  pjrt_event *done;
  const pjrt_api *api = device->client->api;
  pjrt_error *error = tern_pjrt_buffer_from_host(device, types[memory->dtype], memory->dims, (size_t)memory->rank, host, &memory->buffer, &done);
  tern_status status = tern_pjrt_status(api, error, "PJRT_Client_BufferFromHostBuffer");
  if (!status) status = tern_pjrt_await(api, done, "PJRT_Client_BufferFromHostBuffer");
  if (!status && !memory->buffer) status = tern_error_new(TERN_PLUGIN_FAILED, "PJRT_Client_BufferFromHostBuffer gave no buffer");
  return tern_error_prefix(status, "cannot copy %zu bytes to %s:%d", memory->bytes, device->name, device->ordinal);
}

tern_status tern_pjrt_allocate(tern_backend_device *device, tern_dtype dtype, int rank, const int64_t *dims, tern_memory **out) {
  tern_memory *memory = NULL;
  TERN_TRY(prepare(device, dtype, rank, dims, &memory));
  tern_status status = NULL;
  if (memory->bytes) {
    const pjrt_api *api = device->client->api;
    if (TERN_PJRT_HAS(api, Client_CreateUninitializedBuffer)) {
      TERN_PJRT_ARGS(Client_CreateUninitializedBuffer, create, .client = device->client->handle, .shape_dims = memory->dims, .shape_num_dims = (size_t)rank,
                     .shape_element_type = types[dtype], .device = device->device);
      status = tern_pjrt_status(api, api->Client_CreateUninitializedBuffer(&create), "PJRT_Client_CreateUninitializedBuffer");
      if (!status) memory->buffer = create.buffer;
    }
    /* The entry is young; a plug-in that does not serve it is given zeros. Only want of memory is final. */
    if (!memory->buffer && tern_error_code(status) != TERN_OUT_OF_MEMORY) {
      tern_error_free(status);
      void *host = calloc(1, memory->bytes);
      status = host ? upload_into(device, memory, host) : tern_error_new(TERN_OUT_OF_MEMORY, "no host memory for %zu zeros", memory->bytes);
      free(host);
    }
  }
  if (status) {
    tern_pjrt_buffer_destroy(device->client->api, memory->buffer);
    free(memory);
    return status;
  }
  tern_pjrt_count(device, (int64_t)memory->bytes, 1);
  *out = memory;
  return NULL;
}

tern_status tern_pjrt_upload(tern_backend_device *device, tern_dtype dtype, int rank, const int64_t *dims, const void *host, tern_memory **out) {
  tern_memory *memory = NULL;
  TERN_TRY(prepare(device, dtype, rank, dims, &memory));
  tern_status status = memory->bytes ? upload_into(device, memory, host) : NULL;
  if (status) {
    tern_pjrt_buffer_destroy(device->client->api, memory->buffer);
    free(memory);
    return status;
  }
  tern_pjrt_count(device, (int64_t)memory->bytes, 1);
  *out = memory;
  return NULL;
}

tern_status tern_pjrt_download(tern_backend_device *device, tern_memory *memory, void *host, size_t bytes) {
  if (bytes != memory->bytes) return tern_error_new(TERN_INVALID_ARGUMENT, "download of %zu bytes from an array of %zu", bytes, memory->bytes);
  if (!bytes) return NULL;
  if (memory->lost) return tern_error_new(TERN_PLUGIN_FAILED, "the contents of this array were lost when the plug-in failed in an earlier launch");
  /* The device may keep another order of dimensions; the host wants row-major. */
  int64_t order[TERN_MAX_RANK];
  for (int d = 0; d < memory->rank; d++) order[d] = memory->rank - 1 - d;
  pjrt_layout layout = {.struct_size = sizeof layout,
                        .type = PJRT_LAYOUT_TILED,
                        .tiled = {.struct_size = sizeof layout.tiled, .minor_to_major = order, .minor_to_major_size = (size_t)memory->rank}};
  const pjrt_api *api = device->client->api;
  TERN_PJRT_ARGS(Buffer_ToHostBuffer, to, .src = memory->buffer, .host_layout = &layout, .dst = host, .dst_size = bytes);
  tern_status status = tern_pjrt_status(api, api->Buffer_ToHostBuffer(&to), "PJRT_Buffer_ToHostBuffer");
  if (!status) status = tern_pjrt_await(api, to.event, "PJRT_Buffer_ToHostBuffer");
  return tern_error_prefix(status, "cannot copy %zu bytes from %s:%d", bytes, device->name, device->ordinal);
}

void tern_pjrt_release(tern_backend_device *device, tern_memory *memory) {
  if (!memory) return;
  tern_pjrt_buffer_destroy(device->client->api, memory->buffer);
  tern_pjrt_count(device, -(int64_t)memory->bytes, -1);
  free(memory);
}

size_t tern_pjrt_size(tern_memory *memory) { return memory->bytes; }
