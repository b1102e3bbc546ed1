/* Positions: a recording's number is a place in its device's queue, for recordings are cut and run in order. Events are built of them: whether the device is past
 * a place, waiting until it is, and the time at which it came there. */
#include "internal.h"

/* Owned by its maker and, until the device is there, by the device's list. */
struct tern_timestamp {
  atomic_int references;
  uint64_t position;
  double seconds;          /* the queue's lock */
  tern_timestamp *next;    /* the queue's lock */
};

uint64_t tern_device_position(tern_device *device) {
  tern_lock_take(&tern_record_lock);
  uint64_t position = device->recording->n_nodes ? device->recording->id : device->submitted;
  tern_lock_give(&tern_record_lock);
  return position;
}

/* Hands over what is recorded, if that is before the position. */
static tern_status hand_over(tern_device *device, uint64_t position, bool wake) {
  TERN_TRY(tern_check_not_forked());
  if (device->submitted >= position) return NULL;
  bool submitted = false;
  tern_lock_take(&tern_record_lock);
  tern_status status = device->recording->id <= position ? tern_cut(device, &submitted) : NULL;
  tern_lock_give(&tern_record_lock);
  if (submitted && wake) tern_worker_wake(device);
  return status;
}

tern_status tern_device_has_reached(tern_device *device, uint64_t position, bool *out) {
  *out = false;
  TERN_TRY(hand_over(device, position, true));
  *out = device->reached >= position;
  return NULL;
}

tern_status tern_device_wait_for(tern_device *device, uint64_t position) {
  TERN_TRY(hand_over(device, position, false));
  return tern_wait_position(device, position);
}

void tern_position_reached(tern_device *device, uint64_t position) {
  device->reached = position;
  double now = device->timestamps ? tern_now() : 0;
  for (tern_timestamp **at = &device->timestamps; *at;) {
    tern_timestamp *t = *at;
    if (t->position > position) {
      at = &t->next;
      continue;
    }
    t->seconds = now;
    *at = t->next;
    tern_timestamp_release(t);
  }
}

tern_status tern_timestamp_new(tern_device *device, tern_timestamp **out) {
  tern_timestamp *t = calloc(1, sizeof *t);
  if (!t) return tern_error_new(TERN_OUT_OF_MEMORY, "no host memory for an event");
  t->position = tern_device_position(device);
  tern_status status = hand_over(device, t->position, true);
  if (status) {
    free(t);
    return status;
  }
  pthread_mutex_lock(&device->lock);
  bool waits = device->reached < t->position;
  atomic_init(&t->references, waits ? 2 : 1);
  if (waits) {
    t->next = device->timestamps;
    device->timestamps = t;
  } else {
    t->seconds = tern_now();
  }
  pthread_mutex_unlock(&device->lock);
  *out = t;
  return NULL;
}

uint64_t tern_timestamp_position(const tern_timestamp *t) { return t->position; }
double tern_timestamp_seconds(const tern_timestamp *t) { return t->seconds; }

void tern_timestamp_release(tern_timestamp *t) {
  if (t && atomic_fetch_sub(&t->references, 1) == 1) free(t);
}
