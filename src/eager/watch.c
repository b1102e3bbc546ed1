/* Watching: tells a profiler which kernels ran, when, and which operations of the user's program are in them. Costs a load per launch where nobody watches. */
#include "internal.h"

_Atomic(tern_watcher) tern_watching;

void tern_watch(tern_watcher watcher) { atomic_store(&tern_watching, watcher); }

/* Tags are node numbers + 1. NULL: every node. */
static void tell(const tern_watch_launch *w, const tern_kernel_run *run) {
  enum { MOST = 64 }; /* names beyond are of no use to a reader */
  const tern_recording *r = w->recording;
  const char *operations[MOST];
  uint32_t lines[MOST];
  int n = 0;
  for (uint32_t i = 0; i < (uint32_t)run->n_tags && n < MOST; i++) {
    uint32_t node = run->tags ? run->tags[i] - 1 : i; /* what belongs to no node has tag 0 */
    if (node >= r->n_nodes) continue;
    operations[n] = r->nodes[node].operation->name;
    lines[n++] = r->nodes[node].line;
  }
  tern_kernel_event event = {.device = w->device->ordinal, .program = w->program, .start = run->start, .end = run->end, .flops = run->flops, .bytes = run->bytes, .what = run->what,
                             .n_operations = n, .operations = operations, .lines = lines};
  w->watcher(&event);
}

void tern_watch_kernel(void *watch_launch, const tern_kernel_run *run) {
  tern_watch_launch *w = watch_launch;
  w->told = true;
  tell(w, run);
}

void tern_watch_program(tern_watch_launch *w, double start, double end) {
  if (!w->told) tell(w, &(tern_kernel_run){.what = "program", .n_tags = (int32_t)w->recording->n_nodes, .start = start, .end = end});
}
