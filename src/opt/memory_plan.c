/* Offsets by walking through time: see memory_plan.h. At each item's first step the items that are over give their place back (neighbouring holes merge); the
 * new one takes the smallest hole that is large enough, else the end of the slab grows. Best fit in time order is within a few percent of
 * better packings for training steps and costs O(items * holes). */
#include "memory_plan.h"

typedef struct hole { int64_t offset, bytes; } hole;
typedef struct holes { hole *list; int32_t n; } holes; /* ascending offsets, never adjacent */

static void give_back(holes *h, int64_t offset, int64_t bytes) {
  int32_t at = h->n;
  while (at > 0 && h->list[at - 1].offset > offset) at--;
  bool joins_left = at > 0 && h->list[at - 1].offset + h->list[at - 1].bytes == offset;
  bool joins_right = at < h->n && offset + bytes == h->list[at].offset;
  if (joins_left && joins_right) {
    h->list[at - 1].bytes += bytes + h->list[at].bytes;
    memmove(h->list + at, h->list + at + 1, (size_t)(--h->n - at) * sizeof(hole));
  } else if (joins_left) {
    h->list[at - 1].bytes += bytes;
  } else if (joins_right) {
    h->list[at].offset = offset;
    h->list[at].bytes += bytes;
  } else {
    memmove(h->list + at + 1, h->list + at, (size_t)(h->n++ - at) * sizeof(hole));
    h->list[at] = (hole){offset, bytes};
  }
}

static int64_t take(holes *h, int64_t bytes, int64_t *end) {
  int32_t best = -1;
  for (int32_t i = 0; i < h->n; i++)
    if (h->list[i].bytes >= bytes && (best < 0 || h->list[i].bytes < h->list[best].bytes)) best = i;
  if (best >= 0) {
    int64_t offset = h->list[best].offset;
    h->list[best].offset += bytes;
    h->list[best].bytes -= bytes;
    if (h->list[best].bytes == 0) memmove(h->list + best, h->list + best + 1, (size_t)(--h->n - best) * sizeof(hole));
    return offset;
  }
  /* A hole at the end grows with the slab. */
  int64_t offset = *end;
  if (h->n && h->list[h->n - 1].offset + h->list[h->n - 1].bytes == *end) offset = h->list[--h->n].offset;
  *end = offset + bytes;
  return offset;
}

/* Live items as a heap by their last step: only those that are over are looked at. */
static void live_push(tern_memory_item **heap, int32_t *n, tern_memory_item *item) {
  int32_t at = (*n)++;
  for (int32_t up; at > 0 && item->last < heap[up = (at - 1) / 2]->last; at = up) heap[at] = heap[up];
  heap[at] = item;
}
static tern_memory_item *live_pop(tern_memory_item **heap, int32_t *n) {
  tern_memory_item *top = heap[0], *item = heap[--*n];
  int32_t at = 0;
  for (int32_t down; (down = 2 * at + 1) < *n; at = down) {
    if (down + 1 < *n && heap[down + 1]->last < heap[down]->last) down++;
    if (item->last <= heap[down]->last) break;
    heap[at] = heap[down];
  }
  heap[at] = item;
  return top;
}

tern_status tern_memory_plan(int32_t n, tern_memory_item *items, tern_arena *arena, int64_t *total) {
  holes h = {.list = tern_arena_alloc(arena, (size_t)(n + 1) * sizeof *h.list)};
  tern_memory_item **live = tern_arena_alloc(arena, (size_t)(n + 1) * sizeof *live);
  if (!h.list || !live) return tern_error_new(TERN_OUT_OF_MEMORY, "no host memory to plan %d temporaries", n);
  int64_t end = 0;
  int32_t n_live = 0;
  for (int32_t i = 0; i < n; i++) {
    while (n_live && live[0]->last < items[i].first) {
      tern_memory_item *over = live_pop(live, &n_live);
      give_back(&h, over->offset, (over->bytes + 63) & ~(int64_t)63);
    }
    int64_t bytes = (items[i].bytes + 63) & ~(int64_t)63;
    if (bytes == 0) continue; /* nothing is ever written there */
    items[i].offset = take(&h, bytes, &end);
    live_push(live, &n_live, &items[i]);
  }
  *total = end;
  return NULL;
}
