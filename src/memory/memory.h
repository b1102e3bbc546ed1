/* memory: host memory for the embedded engine, cached by size so that a steady program never asks the system.
 *
 * An allocator hands out 64-byte aligned blocks, keeps freed ones for reuse, counts them, and refuses what goes beyond its limit (after giving back what it
 * keeps). Thread-safe. */
#ifndef TERN_MEMORY_H
#define TERN_MEMORY_H
#include "../base/base.h"

typedef struct tern_allocator tern_allocator;
/* A figure over time: now, at most since the last reset, and all that was ever added to it. */
typedef struct tern_stat { int64_t current, peak, total; } tern_stat;
typedef struct tern_memory_stats {
  tern_stat bytes;        /* handed out, as asked for */
  tern_stat blocks;       /* that they are in */
  tern_stat reserved;     /* bytes taken from the system: handed out (rounded up) and kept for reuse */
  tern_stat segments;     /* that those are in */
  int64_t retries, refusals; /* times that what is kept had to be given back first; times that nothing helped */
} tern_memory_stats;

/* Adds to a figure. */
static inline void tern_stat_add(tern_stat *stat, int64_t amount) {
  stat->current += amount;
  if (amount > 0) stat->total += amount;
  if (stat->current > stat->peak) stat->peak = stat->current;
}
void tern_memory_stats_reset_peaks(tern_memory_stats *stats);
void tern_memory_stats_reset_totals(tern_memory_stats *stats); /* and the counts of retries and refusals */

/* limit: bytes in use at most; 0 takes TERN_MEMORY_LIMIT or the machine's memory. */
tern_status tern_allocator_new(int64_t limit, tern_allocator **out);
void tern_allocator_free(tern_allocator *allocator); /* every block must have been freed */
/* `bytes` may be 0: a valid pointer of its own. Fails with TERN_OUT_OF_MEMORY, saying asked, in use and limit. */
tern_status tern_allocate(tern_allocator *allocator, size_t bytes, void **out);
void tern_deallocate(tern_allocator *allocator, void *block); /* NULL is fine */
size_t tern_block_bytes(const void *block);                   /* as asked for */
void tern_allocator_get_stats(tern_allocator *allocator, tern_memory_stats *out);
void tern_allocator_reset_peak(tern_allocator *allocator);
void tern_allocator_reset_totals(tern_allocator *allocator);
void tern_allocator_trim(tern_allocator *allocator);          /* gives back what it keeps */
int64_t tern_allocator_limit(const tern_allocator *allocator);
void tern_allocator_set_limit(tern_allocator *allocator, int64_t limit); /* bytes, > 0; what is in use stays */
#endif
