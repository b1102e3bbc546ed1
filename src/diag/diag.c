/* Line ids and the print sink: see diag.h. An open-addressing table under one lock; ids are dense. */
#include "diag.h"
#include <pthread.h>

typedef struct place { const void *key; int32_t detail; } place;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static place *places;          /* places[id]; places[0] is unused */
static uint32_t n_places = 1, cap_places;
static uint32_t *slots;        /* ids by hash; 0 = free */
static uint32_t n_slots;
static tern_line_resolver resolver;

static uint64_t place_hash(const void *key, int32_t detail) { return tern_hash_mix((uint64_t)(uintptr_t)key, (uint64_t)(uint32_t)detail + 1); }

static bool grow(void) {
  if (n_places >= cap_places) {
    uint32_t cap = cap_places ? cap_places * 2 : 1024;
    place *more = realloc(places, cap * sizeof *more);
    if (!more) return false;
    places = more;
    cap_places = cap;
  }
  if (n_places * 2 >= n_slots) {
    uint32_t n = n_slots ? n_slots * 2 : 4096;
    uint32_t *fresh = calloc(n, sizeof *fresh);
    if (!fresh) return false;
    for (uint32_t id = 1; id < n_places; id++) {
      uint64_t h = place_hash(places[id].key, places[id].detail);
      while (fresh[h & (n - 1)]) h++;
      fresh[h & (n - 1)] = id;
    }
    free(slots);
    slots = fresh;
    n_slots = n;
  }
  return true;
}

uint32_t tern_line_intern(const void *key, int32_t detail) {
  /* The last answer of this thread: loops ask for the same line again and again. */
  static _Thread_local struct { const void *key; int32_t detail; uint32_t id; } recent[64];
  uint64_t h = place_hash(key, detail);
  unsigned r = h & 63;
  if (recent[r].key == key && recent[r].detail == detail && key) return recent[r].id;
  pthread_mutex_lock(&lock);
  uint32_t id = 0;
  if (grow()) {
    while ((id = slots[h & (n_slots - 1)]) && !(places[id].key == key && places[id].detail == detail)) h++;
    if (!id) {
      id = n_places++;
      places[id] = (place){key, detail};
      slots[h & (n_slots - 1)] = id;
    }
  }
  pthread_mutex_unlock(&lock);
  recent[r].key = key, recent[r].detail = detail, recent[r].id = id;
  return id;
}

bool tern_line_place(uint32_t line, const void **key, int32_t *detail) {
  pthread_mutex_lock(&lock);
  bool known = line && line < n_places;
  if (known) *key = places[line].key, *detail = places[line].detail;
  pthread_mutex_unlock(&lock);
  return known;
}

void tern_line_set_resolver(tern_line_resolver r) { __atomic_store_n(&resolver, r, __ATOMIC_RELEASE); }

const char *tern_line_describe(uint32_t line, char *out, size_t size) {
  const void *key;
  int32_t detail;
  tern_line_resolver resolve = __atomic_load_n(&resolver, __ATOMIC_ACQUIRE);
  if (size) out[0] = 0;
  if (size && resolve && tern_line_place(line, &key, &detail)) resolve(key, detail, out, size);
  return out;
}

static void to_stderr(const char *text) { fputs(text, stderr); }
static void (*print_sink)(const char *text) = to_stderr;

void tern_print_set_sink(void (*sink)(const char *text)) { print_sink = sink ? sink : to_stderr; }

void tern_print(const char *format, ...) {
  char line[4096];
  va_list arguments, again;
  va_start(arguments, format);
  va_copy(again, arguments);
  int length = vsnprintf(line, sizeof line, format, arguments);
  char *text = line;
  if (length >= (int)sizeof line && (text = malloc((size_t)length + 1))) vsnprintf(text, (size_t)length + 1, format, again);
  va_end(again);
  va_end(arguments);
  print_sink(text ? text : line);
  if (text != line) free(text);
}
