/* Devices: which backend TERN_DEVICE means, opening each device once, random streams, fork. */
#include <unistd.h>
#include "internal.h"

enum { MOST_DEVICES = 16 };

static pthread_mutex_t open_lock = PTHREAD_MUTEX_INITIALIZER;
static tern_device *_Atomic devices[MOST_DEVICES];
atomic_bool tern_forked;

static const tern_backend *chosen_backend(const char **spec) {
  *spec = tern_setting_text(TERN_SETTING_DEVICE);
  if (!**spec || !strcmp(*spec, "cpu")) return &tern_cpu_backend;
  return !strncmp(*spec, "trace", 5) && strchr(":", (*spec)[5]) ? &tern_trace_backend : &tern_pjrt_backend;
}

tern_status tern_device_count(int *out) {
  const char *spec;
  const tern_backend *backend = chosen_backend(&spec);
  *out = 0;
  TERN_TRY(backend->device_count(spec, out));
  if (*out > MOST_DEVICES) *out = MOST_DEVICES;
  return NULL;
}

tern_status tern_fork_error(void) {
  return tern_error_new(TERN_BAD_FORK, "tern cannot be used in a child of the process that opened it (fork): start workers with the 'spawn' method, or use "
                                       "the device only in the parent");
}

static void in_child(void) { atomic_store(&tern_forked, true); }

static tern_status open_device(int ordinal, tern_device **out) {
  static bool watching_fork;
  if (!watching_fork) {
    pthread_atfork(NULL, NULL, in_child);
    watching_fork = true;
  }
  const char *spec;
  const tern_backend *backend = chosen_backend(&spec);
  int count;
  TERN_TRY(tern_device_count(&count));
  if (ordinal < 0 || ordinal >= count)
    return tern_error_new(TERN_NO_DEVICE, "there is no device tern:%d; '%s' has %d (tern:0 to tern:%d)", ordinal, *spec ? spec : "cpu", count, count - 1);
  tern_device *d = calloc(1, sizeof *d);
  if (!d) return tern_error_new(TERN_OUT_OF_MEMORY, "no host memory for a device");
  d->ordinal = ordinal;
  d->backend = backend;
  d->memory_fraction = 1;
  pthread_mutex_init(&d->lock, NULL);
  pthread_cond_init(&d->changed, NULL);
  tern_status status = backend->open(spec, ordinal, &d->hardware);
  if (status) {
    free(d);
    return status;
  }
  backend->info(d->hardware, &d->info);
  int64_t limit = tern_setting_int(TERN_SETTING_QUEUE_LIMIT, 8192);
  d->hard_limit = (uint32_t)(limit < 2 ? 2 : limit > 1 << 20 ? 1 << 20 : limit);
  d->soft_limit = d->hard_limit / 2;
  size_t eighth = (size_t)(d->info.memory_limit > 0 ? d->info.memory_limit : (int64_t)8 << 30) / 8;
  d->released_limit = eighth < (size_t)1 << 30 ? eighth : (size_t)1 << 30;
  tern_mode_get(); /* settle it before the first node asks */
  tern_lock_take(&tern_record_lock);
  status = tern_recording_take(d, &d->recording);
  tern_lock_give(&tern_record_lock);
  if (!status) status = tern_worker_start(d);
  if (status) {
    backend->close(d->hardware);
    free(d->recording);
    free(d);
    return status;
  }
  *out = d;
  return NULL;
}

tern_status tern_device_get(int ordinal, tern_device **out) {
  TERN_TRY(tern_check_not_forked());
  if (ordinal >= 0 && ordinal < MOST_DEVICES && (*out = atomic_load_explicit(&devices[ordinal], memory_order_acquire))) return NULL;
  pthread_mutex_lock(&open_lock);
  tern_status status = NULL;
  *out = ordinal >= 0 && ordinal < MOST_DEVICES ? atomic_load(&devices[ordinal]) : NULL;
  if (!*out && !(status = open_device(ordinal, out))) atomic_store_explicit(&devices[ordinal], *out, memory_order_release);
  pthread_mutex_unlock(&open_lock);
  return status;
}

tern_device *tern_device_if_open(int ordinal) {
  return ordinal >= 0 && ordinal < MOST_DEVICES ? atomic_load_explicit(&devices[ordinal], memory_order_acquire) : NULL;
}

int tern_device_ordinal(const tern_device *d) { return d->ordinal; }
const tern_backend_info *tern_device_info(const tern_device *d) { return &d->info; }
void tern_device_stats(tern_device *d, tern_backend_stats *out) { d->backend->stats(d->hardware, out); }
void tern_device_reset_peak(tern_device *d) { d->backend->reset_peak(d->hardware); }
void tern_device_limits(tern_device *device, double *flops, double *bytes) {
  *flops = *bytes = 0;
  if (device->backend->limits) device->backend->limits(device->hardware, flops, bytes);
}

void tern_device_reset_totals(tern_device *d) { d->backend->reset_totals(d->hardware); }
void tern_device_empty_cache(tern_device *d) { d->backend->empty_cache(d->hardware); }
double tern_device_memory_fraction(const tern_device *d) { return d->memory_fraction; }
int64_t tern_device_memory_may_hold(const tern_device *d) { return (int64_t)((double)d->info.memory_limit * d->memory_fraction); }
tern_status tern_device_set_memory_fraction(tern_device *d, double fraction) {
  if (!(fraction > 0 && fraction <= 1)) return tern_error_new(TERN_INVALID_ARGUMENT, "the fraction of a device's memory is above 0 and at most 1, not %g", fraction);
  if (!d->info.memory_limit) return tern_error_new(TERN_INVALID_ARGUMENT, "tern:%d does not say how much memory it has; set TERN_MEMORY_LIMIT", d->ordinal);
  d->memory_fraction = fraction;
  d->backend->set_limit(d->hardware, tern_device_memory_may_hold(d));
  return NULL;
}
double tern_device_busy_seconds(const tern_device *d) { return (double)d->busy_nanoseconds * 1e-9; }
bool tern_is_forked_child(void) { return atomic_load(&tern_forked); }

tern_status tern_synchronize_all(void) {
  tern_status first = NULL;
  if (tern_is_forked_child()) return NULL;
  for (int i = 0; i < MOST_DEVICES; i++) {
    tern_device *d = atomic_load(&devices[i]);
    tern_status status = d ? tern_device_synchronize(d) : NULL;
    if (!first) first = status;
    else tern_error_free(status);
  }
  return first;
}

/* ---- random numbers: a draw reserves counters when it is recorded, so a draw that nobody reads still advances the stream ---- */

tern_stream *tern_device_stream(tern_device *d) { return &d->stream; }

void tern_stream_draw(tern_stream *stream, int64_t counters, int64_t *seed, int64_t *offset) {
  tern_lock_take(&tern_record_lock);
  *seed = stream->seed;
  *offset = stream->offset;
  stream->offset += counters;
  tern_lock_give(&tern_record_lock);
}

void tern_stream_get(tern_stream *stream, int64_t *seed, int64_t *offset) { tern_stream_draw(stream, 0, seed, offset); }

void tern_stream_set(tern_stream *stream, int64_t seed, int64_t offset) {
  tern_lock_take(&tern_record_lock);
  *stream = (tern_stream){seed, offset};
  tern_lock_give(&tern_record_lock);
}
