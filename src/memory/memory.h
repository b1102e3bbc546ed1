/* memory: host memory for the embedded engine, cached by size so that a steady program never asks the system.
 *
 * An allocator hands out 64-byte aligned blocks, keeps freed ones for reuse, counts them, and refuses what goes beyond its limit (after giving back what it
 * keeps). Thread-safe. */
#ifndef TERN_MEMORY_H
#define TERN_MEMORY_H
#include "../base/base.h"

typedef struct tern_allocator tern_allocator;
typedef struct tern_allocator_stats {
  int64_t bytes_in_use, peak_bytes, allocations; /* handed out now, at most since the last reset, blocks */
  int64_t bytes_reserved;                         /* in use and kept */
} tern_allocator_stats;

/* limit: bytes in use at most; 0 takes TERN_MEMORY_LIMIT or the machine's memory. */
tern_status tern_allocator_new(int64_t limit, tern_allocator **out);
void tern_allocator_free(tern_allocator *allocator); /* every block must have been freed */
/* `bytes` may be 0: a valid pointer of its own. Fails with TERN_OUT_OF_MEMORY, saying asked, in use and limit. */
tern_status tern_allocate(tern_allocator *allocator, size_t bytes, void **out);
void tern_deallocate(tern_allocator *allocator, void *block); /* NULL is fine */
size_t tern_block_bytes(const void *block);                   /* as asked for */
void tern_allocator_get_stats(tern_allocator *allocator, tern_allocator_stats *out);
void tern_allocator_reset_peak(tern_allocator *allocator);
void tern_allocator_trim(tern_allocator *allocator);          /* gives back what it keeps */
int64_t tern_allocator_limit(const tern_allocator *allocator);
#endif
