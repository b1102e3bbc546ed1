/* Events for profilers: which kernel ran when, for which of the user's operators and lines. Off, it costs one relaxed load a program. */
#include "profile.h"
#include "internal.h"

enum { MOST_EVENTS = 1 << 20, MOST_NAMES = 6, NAME_SIZE = 256 };

atomic_bool tern_profiling;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static tern_profile_event *events;
static size_t n_events, cap_events, n_lost;

/* "add mul tanh": the operators of the tags without namespace and overload, runs of equal ones once. */
static void name_operators(const tern_recording *r, const uint32_t *tags, int32_t n_tags, char *out) {
  const char *last = NULL;
  size_t used = 0;
  int named = 0;
  for (int32_t i = 0; i < n_tags; i++) {
    if (!tags[i] || tags[i] > r->n_nodes) continue;
    const char *name = r->nodes[tags[i] - 1].operation->name, *colon = strrchr(name, ':');
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

/* Also which lines: the one most of its operations come from. */
static uint32_t main_line(const tern_recording *r, const uint32_t *tags, int32_t n_tags) {
  uint32_t best = 0;
  int32_t most = 0;
  for (int32_t i = n_tags - 1; i >= 0 && n_tags - i <= 64; i--) {
    if (!tags[i] || tags[i] > r->n_nodes) continue;
    uint32_t line = r->nodes[tags[i] - 1].line;
    int32_t count = 0;
    for (int32_t k = 0; k < n_tags && k < 64; k++) count += tags[k] && tags[k] <= r->n_nodes && r->nodes[tags[k] - 1].line == line;
    if (line && count > most) most = count, best = line;
  }
  return best;
}

static void keep(const tern_profile_event *event, const char *operators) {
  pthread_mutex_lock(&lock);
  if (n_events == cap_events && cap_events < MOST_EVENTS) {
    size_t cap = cap_events ? 2 * cap_events : 1024;
    tern_profile_event *grown = realloc(events, cap * sizeof *grown);
    if (grown) events = grown, cap_events = cap;
  }
  char *copy = n_events < cap_events ? strdup(operators) : NULL;
  if (copy) {
    events[n_events] = *event;
    events[n_events++].operators = copy;
  } else {
    n_lost++;
  }
  pthread_mutex_unlock(&lock);
}

void tern_profile_kernel(void *context, const tern_kernel_event *kernel) {
  tern_profile_launch *launch = context;
  const tern_recording *r = launch->recording;
  char operators[NAME_SIZE] = "";
  launch->n_kernels++;
  name_operators(r, kernel->tags, kernel->n_tags, operators);
  keep(&(tern_profile_event){.kernel = kernel->kernel, .line = main_line(r, kernel->tags, kernel->n_tags), .device = launch->device, .program = launch->program,
                           .start = kernel->start, .end = kernel->end, .flops = kernel->flops, .bytes = kernel->bytes, .n_operators = kernel->n_tags},
       operators);
}

void tern_profile_program(tern_profile_launch *launch, int64_t start, int64_t end) {
  if (launch->n_kernels) return; /* the backend showed them one by one */
  const tern_recording *r = launch->recording;
  uint32_t tags[64];
  int32_t n = 0;
  for (uint32_t i = 0; i < r->n_nodes && n < (int32_t)TERN_COUNT(tags); i++) tags[n++] = i + 1;
  char operators[NAME_SIZE] = "";
  name_operators(r, tags, n, operators);
  keep(&(tern_profile_event){.kernel = "program", .line = r->n_nodes ? r->nodes[r->n_nodes - 1].line : 0, .device = launch->device, .program = launch->program, .start = start,
                           .end = end, .n_operators = (int32_t)r->n_nodes},
       operators);
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
  atomic_store(&tern_profiling, true);
}

void tern_profile_stop(void) { atomic_store(&tern_profiling, false); }

int64_t tern_profile_each(void (*each)(void *context, const tern_profile_event *event), void *context) {
  pthread_mutex_lock(&lock);
  for (size_t i = 0; i < n_events; i++) each(context, &events[i]);
  int64_t lost = (int64_t)n_lost;
  pthread_mutex_unlock(&lock);
  return lost;
}
