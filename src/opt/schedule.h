/* schedule: the order in which steps run. A pass of opt. */
#ifndef TERN_SCHEDULE_H
#define TERN_SCHEDULE_H
#include "../base/base.h"

typedef struct tern_schedule_edge { int32_t before, after; } tern_schedule_edge;

/* Orders steps 0..n-1 so that every edge is respected; among those that may run, the one with the smallest key goes first. Keys near the user's own order keep few
 * values alive. Fails with TERN_INTERNAL on a cycle. O((n + edges) log n). */
tern_status tern_schedule(int32_t n, const int32_t *keys, int32_t n_edges, const tern_schedule_edge *edges, tern_arena *arena, int32_t *order);
#endif
