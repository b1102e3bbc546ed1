/* memory_plan: where temporaries lie in one slab. A pass of opt. */
#ifndef TERN_MEMORY_PLAN_H
#define TERN_MEMORY_PLAN_H
#include "../base/base.h"

typedef struct tern_memory_item {
  int64_t bytes;
  int32_t first, last; /* the steps that write it first and use it last, inclusive */
  int64_t offset;      /* out: a multiple of 64 */
} tern_memory_item;

/* Gives every item a place such that no two overlap while both live. Items must be sorted by `first`. *total: bytes of the slab. */
tern_status tern_memory_plan(int32_t n, tern_memory_item *items, tern_arena *arena, int64_t *total);
#endif
