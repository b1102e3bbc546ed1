/* The program cache of one device: from the words of a recording to an executable. Touched only by whoever holds the execution role. Bounded: when it is full,
 * the half that was used least recently goes. */
#include "internal.h"

enum { MOST_PROGRAMS = 1024 };

static size_t slot_of(const tern_program_cache *c, uint64_t hash, const uint64_t *key, size_t n_key) {
  size_t at = (size_t)hash & (c->n_slots - 1);
  for (; c->slots[at]; at = (at + 1) & (c->n_slots - 1)) {
    const tern_cached_program *p = c->slots[at];
    if (p->hash == hash && p->n_key == n_key && !memcmp(p->key, key, n_key * sizeof *key)) break;
  }
  return at;
}

tern_cached_program *tern_cache_find(tern_program_cache *c, const uint64_t *key, size_t n_key, uint64_t hash) {
  if (!c->n_slots) return NULL;
  tern_cached_program *p = c->slots[slot_of(c, hash, key, n_key)];
  if (p) p->last_use = ++c->clock;
  return p;
}

void tern_cached_program_free(tern_device *device, tern_cached_program *p) {
  if (!p) return;
  if (p->executable) device->backend->release_executable(p->executable);
  free(p->key);
  free(p->parameter_locals);
  free(p->result_locals);
  free(p->replaced);
  free(p);
}

static int by_last_use(const void *a, const void *b) {
  const tern_cached_program *x = *(tern_cached_program *const *)a, *y = *(tern_cached_program *const *)b;
  return (x->last_use > y->last_use) - (x->last_use < y->last_use);
}

/* Makes room: a larger table, or the older half gone. */
static tern_status make_room(tern_device *device) {
  tern_program_cache *c = &device->cache;
  size_t n = 0, n_slots = MOST_PROGRAMS * 2;
  tern_cached_program **kept = calloc(MOST_PROGRAMS + 1, sizeof *kept), **fresh = calloc(n_slots, sizeof *fresh);
  if (!kept || !fresh) {
    free(kept);
    free(fresh);
    return tern_error_new(TERN_OUT_OF_MEMORY, "no host memory for the program cache");
  }
  for (size_t i = 0; i < c->n_slots; i++)
    if (c->slots[i]) kept[n++] = c->slots[i];
  size_t gone = n >= MOST_PROGRAMS ? n / 2 : 0;
  qsort(kept, n, sizeof *kept, by_last_use);
  for (size_t i = 0; i < gone; i++) tern_cached_program_free(device, kept[i]);
  free(c->slots);
  c->slots = fresh;
  c->n_slots = n_slots;
  c->n_used = n - gone;
  for (size_t i = gone; i < n; i++) c->slots[slot_of(c, kept[i]->hash, kept[i]->key, kept[i]->n_key)] = kept[i];
  free(kept);
  atomic_fetch_sub(&tern_count.cached, (long long)gone);
  return NULL;
}

tern_status tern_cache_add(tern_device *device, const uint64_t *key, size_t n_key, uint64_t hash, tern_cached_program *p) {
  tern_program_cache *c = &device->cache;
  if (!c->n_slots || c->n_used >= MOST_PROGRAMS) TERN_TRY(make_room(device));
  p->key = malloc(n_key * sizeof *key);
  if (!p->key) return tern_error_new(TERN_OUT_OF_MEMORY, "no host memory for the program cache");
  memcpy(p->key, key, n_key * sizeof *key);
  p->n_key = n_key;
  p->hash = hash;
  p->last_use = ++c->clock;
  c->slots[slot_of(c, hash, key, n_key)] = p;
  c->n_used++;
  atomic_fetch_add(&tern_count.cached, 1);
  return NULL;
}
