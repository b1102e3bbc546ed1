/* Buffers and versions: a storage's identity, its contents, and the ways in and out of them for the host. */
#include "internal.h"

/* Addresses come from a range that no program can map (bits above what x86-64 and AArch64 translate), so an address is never mistaken for memory,
 * and each device hands out 2^57 bytes before it would start again: they are not reused. */
static const uintptr_t first_address = (uintptr_t)1 << 60, addresses_of_a_device = (uintptr_t)1 << 57;

/* ---- versions ---- */

tern_version *tern_version_new(tern_device *device) {
  tern_version *v = calloc(1, sizeof *v);
  if (!v) return NULL;
  atomic_init(&v->references, 1);
  atomic_init(&v->state, TERN_VERSION_PENDING);
  v->device = device;
  atomic_fetch_add_explicit(&tern_count.live_versions, 1, memory_order_relaxed);
  return v;
}

void tern_version_retain(tern_version *v) {
  if (v) atomic_fetch_add_explicit(&v->references, 1, memory_order_relaxed);
}

void tern_version_release(tern_version *v) {
  if (!v || atomic_fetch_sub_explicit(&v->references, 1, memory_order_acq_rel) != 1) return;
  if (v->memory) {
    if (TERN_UNLIKELY(atomic_load_explicit(&v->address, memory_order_relaxed) != 0)) tern_history_freed(v, v->memory);
    v->device->backend->release(v->device->hardware, v->memory);
  }
  tern_failure_release(v->failure);
  tern_pin_release(v->pin);
  free(v);
  atomic_fetch_sub_explicit(&tern_count.live_versions, 1, memory_order_relaxed);
}

/* ---- buffers ---- */

static uintptr_t address_at(const tern_device *device, uintptr_t at) {
  return first_address + (uintptr_t)device->ordinal * addresses_of_a_device + at % (addresses_of_a_device / 2);
}

tern_status tern_buffer_new(tern_device *device, size_t bytes, uint32_t line, tern_buffer **out) {
  TERN_TRY(tern_check_not_forked());
  int64_t limit = tern_device_memory_may_hold(device);
  if (TERN_UNLIKELY(bytes > (size_t)1 << 56 || (limit > 0 && bytes > (size_t)limit))) {
    char texts[2][32];
    return tern_shortage_report(device, tern_error_new(TERN_OUT_OF_MEMORY, "out of memory: a tensor of %s cannot fit on tern:%d, which may hold %s%s",
                                                       tern_bytes_text((int64_t)bytes, texts[0], sizeof texts[0]), device->ordinal,
                                                       tern_bytes_text(limit, texts[1], sizeof texts[1]),
                                                       *tern_setting_text(TERN_SETTING_MEMORY_LIMIT) ? " (TERN_MEMORY_LIMIT)" : ""));
  }
  uintptr_t room = bytes ? (bytes + 127) & ~(uintptr_t)63 : 0; /* at least one byte between neighbours */
  tern_lock_take(&tern_record_lock);
  tern_buffer *b = device->spare_buffers;
  if (TERN_LIKELY(b != NULL)) {
    device->spare_buffers = b->next_spare;
    device->n_spare_buffers--;
  }
  uintptr_t at = device->next_address;
  device->next_address += room;
  tern_count.live_buffers++;
  tern_lock_give(&tern_record_lock);
  if (TERN_UNLIKELY(!b) && !(b = malloc(sizeof *b))) {
    tern_lock_take(&tern_record_lock);
    tern_count.live_buffers--;
    tern_lock_give(&tern_record_lock);
    return tern_error_new(TERN_OUT_OF_MEMORY, "no host memory for a tensor's description");
  }
  /* Field by field: `base` need not be cleared, and this is on the way of every operation. */
  b->device = device;
  b->bytes = bytes;
  b->address = 0;
  b->line = line;
  b->is_live = true;
  b->has_contents = false;
  b->local = 0;
  b->recording = 0;
  b->version = NULL;
  b->held_at = NULL;
  b->pin = NULL;
  if (bytes) b->address = address_at(device, at);
  *out = b;
  return NULL;
}

void tern_buffer_hold(tern_buffer *b) {
  if (b->held_at) return;
  tern_device *device = b->device;
  b->next_held = device->held;
  if (b->next_held) b->next_held->held_at = &b->next_held;
  b->held_at = &device->held;
  device->held = b;
}

/* A few descriptions are kept for the tensors to come: a step makes and drops thousands. */
void tern_buffer_free(tern_buffer *b) {
  enum { MOST_SPARE = 4096 };
  tern_device *device = b->device;
  tern_version_release(b->version);
  if (TERN_UNLIKELY(b->pin != NULL)) tern_pin_release(b->pin);
  if (b->held_at) {
    *b->held_at = b->next_held;
    if (b->next_held) b->next_held->held_at = b->held_at;
  }
  tern_count.live_buffers--;
  if (device->n_spare_buffers < MOST_SPARE) {
    b->next_spare = device->spare_buffers;
    device->spare_buffers = b;
    device->n_spare_buffers++;
  } else {
    free(b);
  }
}

void tern_buffer_release(tern_buffer *b) {
  if (!b || atomic_load_explicit(&tern_forked, memory_order_relaxed)) return; /* in a child the locks may be held for ever: leak */
  tern_lock_take(&tern_record_lock);
  b->is_live = false;
  tern_recording *r = b->device->recording;
  if (b->recording == r->id) {
    if (b->version) r->released_bytes += b->bytes;
  } else {
    tern_buffer_free(b);
  }
  tern_lock_give(&tern_record_lock);
}

size_t tern_buffer_bytes(const tern_buffer *b) { return b->bytes; }
tern_device *tern_buffer_device(const tern_buffer *b) { return b->device; }
uintptr_t tern_buffer_address(const tern_buffer *b) { return b->address; }

tern_buffer *tern_buffer_at(uintptr_t address) {
  if (address < first_address) return NULL;
  tern_device *device = tern_device_if_open((int)((address - first_address) / addresses_of_a_device));
  if (!device || tern_is_forked_child()) return NULL;
  tern_error_free(tern_device_flush(device)); /* what is about to be given contents is in the list then */
  tern_lock_take(&tern_record_lock);
  tern_buffer *b = device->held;
  while (b && (b->address != address || !b->is_live)) b = b->next_held;
  tern_lock_give(&tern_record_lock);
  return b;
}

/* ---- what a write does to the description ---- */

static bool is_row_major(const tern_geometry *g) {
  int64_t stride = 1;
  for (int d = g->rank - 1; d >= 0; d--) {
    if (g->sizes[d] != 1 && g->strides[d] != stride) return false;
    stride *= g->sizes[d];
  }
  return true;
}

tern_write_kind tern_base_write(tern_base *base, bool *has_contents, size_t bytes, const tern_output *output, int *order) {
  const tern_geometry *g = &output->view;
  size_t size = tern_dtype_size(output->dtype);
  if (g->offset == 0) {
    size_t count = 1;
    for (int d = 0; d < g->rank; d++) count *= (size_t)g->sizes[d];
    int place[TERN_MAX_TENSOR_RANK];
    bool whole = count * size == bytes;
    if (whole && is_row_major(g))
      for (int d = 0; d < g->rank; d++) place[d] = d;
    else
      whole = whole && tern_geometry_is_dense(g, place);
    if (whole) {
      base->dtype = output->dtype;
      base->rank = g->rank;
      for (int d = 0; d < g->rank; d++) {
        base->dims[d] = g->sizes[place[d]];
        if (order) order[d] = place[d];
      }
      *has_contents = true;
      return TERN_WRITE_WHOLE;
    }
  }
  if (!*has_contents) {
    *base = (tern_base){.dtype = output->dtype, .rank = 1, .dims = {(int64_t)(bytes / size)}};
    *has_contents = true;
  }
  base->dtype = output->dtype;
  /* A write beyond what was described (a storage that grew) makes the description the whole storage. */
  int64_t first, end, count = 1;
  tern_geometry_bounds(g, &first, &end);
  for (int d = 0; d < base->rank; d++) count *= base->dims[d];
  if (end > count) *base = (tern_base){.dtype = output->dtype, .rank = 1, .dims = {(int64_t)(bytes / size)}};
  return TERN_WRITE_PART;
}

/* ---- the host's ways in and out ---- */

tern_status tern_upload(tern_device *device, tern_dtype dtype, int rank, const int64_t *dims, const void *host, tern_memory **out) {
  const tern_backend *backend = device->backend;
  tern_status status = backend->upload(device->hardware, dtype, rank, dims, host, out);
  if (tern_error_code(status) != TERN_OUT_OF_MEMORY) return status;
  /* What queued work still holds, and what is kept for reuse, may be what is missing. */
  tern_error_free(status);
  TERN_TRY(tern_device_flush(device));
  tern_wait_backlog(device, 0);
  backend->empty_cache(device->hardware);
  return tern_shortage_report(device, backend->upload(device->hardware, dtype, rank, dims, host, out));
}

/* Replaces the contents by ready memory, which is taken over. Work recorded before still sees the old ones. */
static tern_status replace_contents(tern_buffer *b, tern_memory *memory, const tern_base *base) {
  tern_device *device = b->device;
  tern_version *fresh = tern_version_new(device);
  if (!fresh) {
    device->backend->release(device->hardware, memory);
    return tern_error_new(TERN_OUT_OF_MEMORY, "no host memory for a tensor's description");
  }
  fresh->memory = memory;
  if (TERN_UNLIKELY(atomic_load_explicit(&tern_history_on, memory_order_relaxed))) tern_history_made(fresh, NULL, b->line);
  atomic_store_explicit(&fresh->state, TERN_VERSION_READY, memory_order_release);
  bool submitted = false;
  tern_lock_take(&tern_record_lock);
  tern_status status = b->recording == device->recording->id ? tern_cut(device, &submitted) : NULL;
  tern_version *old = b->version;
  if (!status) {
    b->version = fresh;
    b->base = *base;
    b->has_contents = true;
    tern_buffer_hold(b);
    fresh = old;
  }
  tern_lock_give(&tern_record_lock);
  if (submitted) tern_worker_wake(device);
  tern_version_release(fresh);
  return status;
}

tern_status tern_buffer_write(tern_buffer *b, tern_dtype dtype, int rank, const int64_t *dims, const void *host) {
  size_t count = 1;
  for (int d = 0; d < rank; d++) count *= (size_t)dims[d];
  if (rank > TERN_MAX_TENSOR_RANK || count * tern_dtype_size(dtype) > b->bytes)
    return tern_error_new(TERN_INVALID_ARGUMENT, "a write of %zu elements of %s does not fit in a storage of %zu bytes", count, tern_dtype_name(dtype), b->bytes);
  if (!count) return NULL;
  tern_base base = {.dtype = dtype, .rank = rank};
  if (rank) memcpy(base.dims, dims, (size_t)rank * sizeof *dims);
  if (TERN_UNLIKELY(tern_pin_is_seen(b->pin))) {
    void *data;
    TERN_TRY(tern_buffer_map(b, &data));
    memmove(data, host, count * tern_dtype_size(dtype));
    tern_lock_take(&tern_record_lock);
    b->base = base;
    tern_lock_give(&tern_record_lock);
    return NULL;
  }
  tern_memory *memory;
  TERN_TRY(tern_upload(b->device, dtype, rank, dims, host, &memory));
  return replace_contents(b, memory, &base);
}

/* Cuts what is recorded if the buffer is part of it, and gives its version (retained; NULL: undefined contents). */
static tern_status current_version(tern_buffer *b, tern_version **out) {
  tern_device *device = b->device;
  TERN_TRY(tern_check_not_forked());
  bool submitted = false; /* no wake: the caller waits, and so runs the program itself where the device is idle */
  tern_lock_take(&tern_record_lock);
  tern_status status = b->recording == device->recording->id ? tern_cut(device, &submitted) : NULL;
  *out = status ? NULL : b->version;
  tern_version_retain(*out);
  tern_lock_give(&tern_record_lock);
  return status;
}

tern_status tern_buffer_read(tern_buffer *b, size_t offset, size_t bytes, void *host) {
  tern_device *device = b->device;
  const tern_backend *backend = device->backend;
  if (offset > b->bytes || bytes > b->bytes - offset)
    return tern_error_new(TERN_INVALID_ARGUMENT, "a read of %zu bytes at %zu is outside a storage of %zu bytes", bytes, offset, b->bytes);
  tern_version *version;
  TERN_TRY(current_version(b, &version));
  tern_status status = NULL;
  if (!version) {
    memset(host, 0, bytes); /* contents that nobody ever wrote */
  } else if (!(status = tern_wait(device, version)) && bytes) {
    size_t have = backend->size(version->memory);
    size_t within = offset >= have ? 0 : bytes < have - offset ? bytes : have - offset;
    void *direct = backend->host_pointer ? backend->host_pointer(version->memory) : NULL;
    if (within < bytes) memset((char *)host + within, 0, bytes - within);
    if (!within) {
    } else if (direct) {
      memcpy(host, (char *)direct + offset, within);
    } else if (!offset && within == have) {
      status = backend->download(device->hardware, version->memory, host, have);
    } else {
      char *all = malloc(have);
      status = all ? backend->download(device->hardware, version->memory, all, have) : tern_error_new(TERN_OUT_OF_MEMORY, "no host memory to read %zu bytes", have);
      if (!status) memcpy(host, all + offset, within);
      free(all);
    }
  }
  tern_version_release(version);
  return status;
}

/* Memory of the buffer's full size with the old contents in front; the rest is zero. */
static tern_status grown_copy(tern_buffer *b, size_t bytes, tern_memory *old, tern_memory **out) {
  const tern_backend *backend = b->device->backend;
  size_t have = old ? backend->size(old) : 0, keep = have < bytes ? have : bytes;
  char *host = calloc(1, bytes ? bytes : 1);
  if (!host) return tern_error_new(TERN_OUT_OF_MEMORY, "no host memory to resize a storage to %zu bytes", bytes);
  tern_status status = NULL;
  if (keep && have == keep) {
    status = backend->download(b->device->hardware, old, host, have);
  } else if (keep) {
    char *all = malloc(have);
    status = all ? backend->download(b->device->hardware, old, all, have) : tern_error_new(TERN_OUT_OF_MEMORY, "no host memory to read %zu bytes", have);
    if (!status) memcpy(host, all, keep);
    free(all);
  }
  size_t size = b->has_contents ? tern_dtype_size(b->base.dtype) : 1;
  tern_dtype dtype = b->has_contents && bytes % size == 0 ? b->base.dtype : TERN_U8;
  int64_t count = (int64_t)(bytes / tern_dtype_size(dtype));
  if (!status) status = tern_upload(b->device, dtype, 1, &count, host, out);
  free(host);
  return status;
}

static void flat_base(tern_buffer *b, size_t bytes, tern_base *out) {
  tern_dtype dtype = b->has_contents && bytes % tern_dtype_size(b->base.dtype) == 0 ? b->base.dtype : TERN_U8;
  *out = (tern_base){.dtype = dtype, .rank = 1, .dims = {(int64_t)(bytes / tern_dtype_size(dtype))}};
}

tern_status tern_buffer_map(tern_buffer *b, void **out) {
  tern_device *device = b->device;
  if (!device->info.host_addressable)
    return tern_error_new(TERN_UNSUPPORTED, "the memory of device '%s' cannot be addressed by the host: copy it", device->info.name);
  *out = NULL;
  tern_version *version;
  TERN_TRY(current_version(b, &version));
  /* The caller may write: whoever was to read the old contents has to be done. */
  tern_status status = tern_wait(device, version && atomic_load(&version->references) == 2 ? version : NULL);
  if (!status && version) status = tern_wait(device, version);
  if (!status && b->bytes && (!version || device->backend->size(version->memory) < b->bytes)) {
    tern_memory *memory;
    tern_base base;
    status = grown_copy(b, b->bytes, version ? version->memory : NULL, &memory);
    flat_base(b, b->bytes, &base);
    if (!status) status = replace_contents(b, memory, &base);
    if (!status) *out = device->backend->host_pointer(memory);
  } else if (!status && version) {
    *out = device->backend->host_pointer(version->memory);
  }
  tern_version_release(version);
  return status;
}

tern_status tern_buffer_adopt(tern_device *device, void *data, size_t bytes, void (*release_owner)(void *), void *owner, tern_buffer **out) {
  tern_buffer *b;
  tern_memory *memory;
  if (!device->backend->adopt)
    return tern_error_new(TERN_UNSUPPORTED, "device '%s' cannot use the host's memory: copy it", device->info.name);
  TERN_TRY(tern_buffer_new(device, bytes, 0, &b));
  tern_base base = {.dtype = TERN_U8, .rank = 1, .dims = {(int64_t)bytes}};
  tern_status status = device->backend->adopt(device->hardware, data, bytes, release_owner, owner, &memory);
  if (!status) status = replace_contents(b, memory, &base);
  if (status) {
    tern_buffer_release(b);
    return status;
  }
  *out = b;
  return NULL;
}

tern_status tern_buffer_resize(tern_buffer *b, size_t bytes) {
  if (bytes == b->bytes) return NULL;
  tern_version *version;
  TERN_TRY(current_version(b, &version));
  tern_memory *memory = NULL;
  tern_status status = version ? tern_wait(b->device, version) : NULL;
  if (!status && version && bytes) {
    tern_base base;
    status = grown_copy(b, bytes, version->memory, &memory);
    flat_base(b, bytes, &base);
    if (!status) status = replace_contents(b, memory, &base);
  }
  tern_version_release(version);
  if (status) return status;
  /* A wider storage gets a place of its own, as a reallocation would. */
  tern_lock_take(&tern_record_lock);
  tern_pin *pin = b->pin; /* whoever looks keeps the old place */
  b->pin = NULL;
  b->bytes = bytes;
  b->address = bytes ? address_at(b->device, b->device->next_address) : 0;
  if (bytes) b->device->next_address += (bytes + 127) & ~(uintptr_t)63;
  if (!bytes) {
    tern_version *old = b->version;
    b->version = NULL;
    b->has_contents = false;
    tern_lock_give(&tern_record_lock);
    tern_version_release(old);
    tern_pin_release(pin);
    return NULL;
  }
  tern_lock_give(&tern_record_lock);
  tern_pin_release(pin);
  return NULL;
}
