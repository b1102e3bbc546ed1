/* Pins: memory that somebody outside tern looks at (another library's array, a CPU tensor), and that a buffer therefore keeps as its own.
 *
 * A program's results lie where the engine puts them. Of a pinned buffer they are brought into the pinned memory when the program has run, so whoever looks from outside sees
 * each write once the device has been waited for, and tern sees what is written outside before the next operation. This costs one copy for each program that writes the
 * buffer; reading costs nothing. A pin that nobody outside holds any more is taken off at the next cut. */
#include "internal.h"

static tern_pin *pin_new(void *data, size_t bytes, int outside, void (*release_owner)(void *), void *owner) {
  tern_pin *pin = malloc(sizeof *pin);
  if (pin) *pin = (tern_pin){.references = 1, .outside = outside, .data = data, .bytes = bytes, .release_owner = release_owner, .owner = owner};
  return pin;
}

tern_pin *tern_pin_retain(tern_pin *pin) {
  if (pin) atomic_fetch_add_explicit(&pin->references, 1, memory_order_relaxed);
  return pin;
}

void tern_pin_release(tern_pin *pin) {
  if (!pin || atomic_fetch_sub_explicit(&pin->references, 1, memory_order_acq_rel) != 1) return;
  pin->release_owner(pin->owner);
  free(pin);
}

bool tern_pin_is_seen(const tern_pin *pin) { return pin && atomic_load_explicit(&pin->outside, memory_order_acquire) > 0; }

static void release_reference(void *pin) { tern_pin_release(pin); }
static void release_version(void *version) { tern_version_release(version); }

tern_memory *tern_pin_settle(tern_device *device, tern_pin *pin, tern_memory *memory) {
  const tern_backend *backend = device->backend;
  void *data = backend->host_pointer(memory);
  if (data == pin->data) return memory;
  size_t bytes = backend->size(memory);
  memcpy(pin->data, data, bytes < pin->bytes ? bytes : pin->bytes);
  tern_memory *pinned;
  tern_status status = backend->adopt(device->hardware, pin->data, pin->bytes, release_reference, tern_pin_retain(pin), &pinned);
  if (status) {
    /* No host memory for a description of 40 bytes: what is seen outside is right until it is written there. */
    tern_error_free(status);
    tern_pin_release(pin);
    return memory;
  }
  backend->release(device->hardware, memory);
  return pinned;
}

tern_status tern_buffer_pin(tern_buffer *b, tern_pin **out) {
  const tern_backend *backend = b->device->backend;
  if (!b->bytes) return tern_error_new(TERN_INVALID_ARGUMENT, "a storage of no bytes has no memory to look at");
  for (;;) {
    void *data;
    TERN_TRY(tern_buffer_map(b, &data));
    tern_lock_take(&tern_record_lock);
    tern_version *version = b->version;
    if (b->recording == b->device->recording->id || atomic_load(&version->state) != TERN_VERSION_READY || backend->host_pointer(version->memory) != data) {
      tern_lock_give(&tern_record_lock); /* another thread has written in the meantime */
      continue;
    }
    tern_pin *pin = b->pin, *old = NULL;
    /* What nobody holds any more may lie elsewhere by now. */
    if (pin && pin->data != data) old = pin, pin = b->pin = NULL;
    if (!pin && (pin = pin_new(data, b->bytes, 0, release_version, version))) {
      tern_version_retain(version); /* and so it is never given up as scratch memory */
      b->pin = pin;
    }
    if (pin) {
      tern_pin_retain(pin);
      atomic_fetch_add_explicit(&pin->outside, 1, memory_order_relaxed);
    }
    tern_lock_give(&tern_record_lock);
    tern_pin_release(old);
    *out = pin;
    return pin ? NULL : tern_error_new(TERN_OUT_OF_MEMORY, "no host memory to pin a storage");
  }
}

void *tern_pin_data(const tern_pin *pin) { return pin->data; }

void tern_buffer_unpin(tern_pin *pin) {
  if (!pin || atomic_load_explicit(&tern_forked, memory_order_relaxed)) return;
  atomic_fetch_sub_explicit(&pin->outside, 1, memory_order_release);
  tern_pin_release(pin);
}

tern_status tern_buffer_share(tern_device *device, void *data, size_t bytes, void (*release_owner)(void *), void *owner, tern_buffer **out) {
  tern_pin *pin = pin_new(data, bytes, 1, release_owner, owner); /* whoever gave the memory away can always look at it */
  if (!pin) return tern_error_new(TERN_OUT_OF_MEMORY, "no host memory to pin a storage");
  tern_status status = tern_buffer_adopt(device, data, bytes, release_reference, tern_pin_retain(pin), out);
  if (status) {
    tern_pin_release(pin); /* the reference that was to be adopted */
    free(pin);             /* and the last one, without the owner: it stays the caller's */
    return status;
  }
  (*out)->pin = pin;
  (*out)->version->pin = tern_pin_retain(pin);
  return NULL;
}
