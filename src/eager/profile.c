/* Events for `tern profile`: keeps what a watcher is told (watch.c) until Python asks for it. */
#include <pthread.h>
#include "profile.h"

enum { MOST_EVENTS = 1 << 20, MOST_NAMES = 6, NAME_SIZE = 256 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static tern_profile_event *events;
static size_t n_events, cap_events, n_lost;

/* "add mul tanh": the operators without namespace and overload, runs of equal ones once. */
static void name_operators(const tern_kernel_event *e, char *out) {
  const char *last = NULL;
  size_t used = 0;
  int named = 0;
  for (int i = 0; i < e->n_operations; i++) {
    const char *name = e->operations[i], *colon = strrchr(name, ':');
    if (name == last) continue;
    last = name;
    if (named++ == MOST_NAMES) {
      snprintf(out + used, NAME_SIZE - used, " ...");
      return;
    }
    if (colon) name = colon + 1;
    size_t length = strcspn(name, ".");
    if (used + length + 6 > NAME_SIZE) return;
    used += (size_t)snprintf(out + used, NAME_SIZE - used, "%s%.*s", used ? " " : "", (int)length, name);
  }
}

/* The line that most of the operations come from; of equals the last. */
static uint32_t main_line(const tern_kernel_event *e) {
  uint32_t best = 0;
  int most = 0;
  for (int i = e->n_operations - 1; i >= 0; i--) {
    int count = 0;
    for (int k = 0; k < e->n_operations; k++) count += e->lines[k] == e->lines[i];
    if (e->lines[i] && count > most) most = count, best = e->lines[i];
  }
  return best;
}

static void keep(const tern_kernel_event *e) {
  char operators[NAME_SIZE] = "";
  name_operators(e, operators);
  pthread_mutex_lock(&lock);
  if (n_events == cap_events && cap_events < MOST_EVENTS) {
    size_t cap = cap_events ? 2 * cap_events : 1024;
    tern_profile_event *grown = realloc(events, cap * sizeof *grown);
    if (grown) events = grown, cap_events = cap;
  }
  char *copy = n_events < cap_events ? strdup(operators) : NULL;
  if (copy)
    events[n_events++] = (tern_profile_event){.kernel = e->what, .operators = copy, .n_operators = e->n_operations, .line = main_line(e), .device = e->device,
                                              .program = e->program, .start = (int64_t)(e->start * 1e9), .end = (int64_t)(e->end * 1e9), .flops = e->flops, .bytes = e->bytes};
  else
    n_lost++;
  pthread_mutex_unlock(&lock);
}

static void forget(void) {
  for (size_t i = 0; i < n_events; i++) free(events[i].operators);
  free(events);
  events = NULL;
  n_events = cap_events = n_lost = 0;
}

void tern_profile_start(void) {
  pthread_mutex_lock(&lock);
  forget();
  pthread_mutex_unlock(&lock);
  tern_watch(keep);
}

void tern_profile_stop(void) { tern_watch(NULL); }

int64_t tern_profile_each(void (*each)(void *context, const tern_profile_event *event), void *context) {
  pthread_mutex_lock(&lock);
  for (size_t i = 0; i < n_events; i++) each(context, &events[i]);
  int64_t lost = (int64_t)n_lost;
  pthread_mutex_unlock(&lock);
  return lost;
}
