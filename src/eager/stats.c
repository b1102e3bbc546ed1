/* Counters, the list of fallbacks, and the mode. */
#include "internal.h"

tern_counters tern_count;
atomic_int tern_current_mode = -1;

/* ---- fallbacks by operator and line ---- */
typedef struct fallback {
  struct fallback *next;
  uint32_t line;
  int64_t count;
  char name[];
} fallback;

static pthread_mutex_t fallback_lock = PTHREAD_MUTEX_INITIALIZER;
static fallback *fallbacks;
static int64_t fallback_total;
static _Atomic int64_t host_draws;

void tern_stats_fallback(const char *name, uint32_t line) {
  pthread_mutex_lock(&fallback_lock);
  fallback_total++;
  fallback *f = fallbacks;
  while (f && !(f->line == line && !strcmp(f->name, name))) f = f->next;
  if (!f && (f = calloc(1, sizeof *f + strlen(name) + 1))) {
    strcpy(f->name, name);
    f->line = line;
    f->next = fallbacks;
    fallbacks = f;
  }
  if (f) f->count++;
  pthread_mutex_unlock(&fallback_lock);
}

void tern_stats_host_draw(void) { host_draws++; }

void tern_stats_fallbacks(void (*each)(void *, const char *, uint32_t, int64_t), void *context) {
  pthread_mutex_lock(&fallback_lock);
  for (fallback *f = fallbacks; f; f = f->next)
    if (f->count) each(context, f->name, f->line, f->count);
  pthread_mutex_unlock(&fallback_lock);
}

void tern_stats(tern_eager_stats *out) {
  tern_lock_take(&tern_record_lock);
  long long nodes = tern_count.nodes, live_buffers = tern_count.live_buffers;
  tern_lock_give(&tern_record_lock);
  *out = (tern_eager_stats){.nodes = nodes, .programs = tern_count.programs, .hits = tern_count.hits, .compiled = tern_count.compiled, .loaded = tern_count.loaded, .cached = tern_count.cached,
                            .gathers = tern_count.gathers, .host_draws = host_draws, .live_buffers = live_buffers,
                            .live_versions = tern_count.live_versions,
                            .compile_seconds = 1e-9 * (double)tern_count.compile_nanoseconds};
  pthread_mutex_lock(&fallback_lock);
  out->fallbacks = fallback_total;
  pthread_mutex_unlock(&fallback_lock);
}

void tern_stats_reset(void) {
  tern_lock_take(&tern_record_lock);
  tern_count.nodes = 0;
  tern_lock_give(&tern_record_lock);
  tern_count.programs = tern_count.hits = tern_count.compiled = tern_count.loaded = tern_count.gathers = tern_count.compile_nanoseconds = 0;
  host_draws = 0;
  pthread_mutex_lock(&fallback_lock);
  fallback_total = 0;
  for (fallback *f = fallbacks; f; f = f->next) f->count = 0; /* entries are kept: a reader of the list may come at any time */
  pthread_mutex_unlock(&fallback_lock);
}

/* ---- the mode ---- */
static tern_mode mode_from_setting(void) {
  const char *text = tern_setting_text(TERN_SETTING_MODE);
  return !strcmp(text, "strict") ? TERN_MODE_STRICT : !strcmp(text, "debug") ? TERN_MODE_DEBUG : TERN_MODE_FUSED;
}

tern_mode tern_mode_get(void) {
  int mode = atomic_load_explicit(&tern_current_mode, memory_order_relaxed);
  if (mode < 0) {
    int unknown = -1;
    atomic_compare_exchange_strong(&tern_current_mode, &unknown, (int)mode_from_setting());
    mode = atomic_load_explicit(&tern_current_mode, memory_order_relaxed);
  }
  return (tern_mode)mode;
}

void tern_mode_set(tern_mode mode) { atomic_store(&tern_current_mode, (int)mode); }
