/* List scheduling with a binary heap: see schedule.h. */
#include "schedule.h"

typedef struct heap {
  int32_t *items, n;
  const int32_t *keys;
} heap;

/* Equal keys go by number: the order is always the same. */
static bool goes_first(const heap *h, int32_t a, int32_t b) { return h->keys[a] != h->keys[b] ? h->keys[a] < h->keys[b] : a < b; }

static void heap_push(heap *h, int32_t item) {
  int32_t at = h->n++;
  for (int32_t up; at > 0 && goes_first(h, item, h->items[up = (at - 1) / 2]); at = up) h->items[at] = h->items[up];
  h->items[at] = item;
}

static int32_t heap_pop(heap *h) {
  int32_t top = h->items[0], item = h->items[--h->n], at = 0;
  for (int32_t down; (down = 2 * at + 1) < h->n; at = down) {
    if (down + 1 < h->n && goes_first(h, h->items[down + 1], h->items[down])) down++;
    if (!goes_first(h, h->items[down], item)) break;
    h->items[at] = h->items[down];
  }
  h->items[at] = item;
  return top;
}

tern_status tern_schedule(int32_t n, const int32_t *keys, int32_t n_edges, const tern_schedule_edge *edges, tern_arena *arena, int32_t *order) {
  int32_t *waits = tern_arena_alloc(arena, (size_t)(n + 1) * sizeof *waits);   /* edges into a step that are not yet done */
  int32_t *first = tern_arena_alloc(arena, (size_t)(n + 2) * sizeof *first);   /* edges out of step s: after[first[s] .. first[s + 1]) */
  int32_t *after = tern_arena_alloc(arena, (size_t)(n_edges + 1) * sizeof *after);
  heap h = {.items = tern_arena_alloc(arena, (size_t)(n + 1) * sizeof *h.items), .keys = keys};
  if (!waits || !first || !after || !h.items) return tern_error_new(TERN_OUT_OF_MEMORY, "no host memory to order %d steps", n);
  for (int32_t e = 0; e < n_edges; e++) {
    waits[edges[e].after]++;
    first[edges[e].before + 1]++;
  }
  for (int32_t s = 0; s < n; s++) first[s + 1] += first[s];
  int32_t *fill = tern_arena_copy(arena, first, (size_t)(n + 1) * sizeof *fill);
  if (!fill) return tern_error_new(TERN_OUT_OF_MEMORY, "no host memory to order %d steps", n);
  for (int32_t e = 0; e < n_edges; e++) after[fill[edges[e].before]++] = edges[e].after;
  for (int32_t s = 0; s < n; s++)
    if (!waits[s]) heap_push(&h, s);
  int32_t done = 0;
  while (h.n) {
    int32_t s = order[done++] = heap_pop(&h);
    for (int32_t e = first[s]; e < first[s + 1]; e++)
      if (--waits[after[e]] == 0) heap_push(&h, after[e]);
  }
  TERN_CHECK(done == n);
  return NULL;
}
