/* The caching allocator: see memory.h. Sizes are rounded up to one of eight classes per power of two, so at most 12.5 % is lost; each class keeps a list.
 *
 * A block is preceded by a 64-byte header. Large blocks come from aligned_alloc, which for them maps fresh pages: keeping them avoids a page fault per 4 KiB. */
#include "memory.h"
#include <pthread.h>
#include <sys/mman.h>

enum { CLASSES = 64 * 8, HEADER = 64, SMALLEST_LOG2 = 6 };

typedef struct block {
  struct block *next;   /* in a list of kept blocks */
  size_t asked, room;   /* bytes asked for; bytes after the header */
  int class;
} block;
_Static_assert(sizeof(block) <= HEADER, "the header has room for the block's description");

struct tern_allocator {
  pthread_mutex_t lock;
  block *kept[CLASSES];
  _Atomic int64_t limit;
  _Atomic(const char *) limit_is; /* for messages: whose the limit is */
  tern_memory_stats stats;
};

static int class_of(size_t bytes, size_t *room) {
  if (bytes <= ((size_t)1 << SMALLEST_LOG2)) {
    *room = (size_t)1 << SMALLEST_LOG2;
    return 0;
  }
  int log2 = 63 - __builtin_clzll(bytes - 1); /* 2^log2 < bytes <= 2^(log2+1), bytes >= 65 */
  size_t step = (size_t)1 << log2 >> 3, eighth = (bytes - ((size_t)1 << log2) + step - 1) / step;
  *room = ((size_t)1 << log2) + eighth * step;
  return (log2 - SMALLEST_LOG2) * 8 + (int)eighth;
}

tern_status tern_allocator_new(int64_t limit, tern_allocator **out) {
  tern_allocator *a = calloc(1, sizeof *a);
  if (!a) return tern_error_new(TERN_OUT_OF_MEMORY, "no host memory for an allocator");
  pthread_mutex_init(&a->lock, NULL);
  a->limit = limit > 0 ? limit : tern_setting_int(TERN_SETTING_MEMORY_LIMIT, tern_machine_memory());
  a->limit_is = limit > 0 ? "set for this process" : *tern_setting_text(TERN_SETTING_MEMORY_LIMIT) ? "TERN_MEMORY_LIMIT" : "this machine's memory; TERN_MEMORY_LIMIT sets another";
  *out = a;
  return NULL;
}

static void trim_locked(tern_allocator *a) {
  for (int c = 0; c < CLASSES; c++)
    while (a->kept[c]) {
      block *b = a->kept[c];
      a->kept[c] = b->next;
      tern_stat_add(&a->stats.reserved, -(int64_t)b->room);
      tern_stat_add(&a->stats.segments, -1);
      free(b);
    }
}

void tern_allocator_free(tern_allocator *a) {
  if (!a) return;
  trim_locked(a);
  pthread_mutex_destroy(&a->lock);
  free(a);
}

static tern_status refused(const tern_allocator *a, size_t bytes, int64_t in_use) {
  char texts[3][32];
  return tern_error_new(TERN_OUT_OF_MEMORY, "out of memory: %s asked for, %s in use, the limit is %s (%s)", tern_bytes_text((int64_t)bytes, texts[0], sizeof texts[0]),
                        tern_bytes_text(in_use, texts[1], sizeof texts[1]), tern_bytes_text(a->limit, texts[2], sizeof texts[2]), a->limit_is);
}

tern_status tern_allocate(tern_allocator *a, size_t bytes, void **out) {
  size_t room = 0;
  int class = bytes <= (size_t)1 << 48 ? class_of(bytes, &room) : -1;
  pthread_mutex_lock(&a->lock);
  if (class < 0 || (int64_t)bytes > a->limit - a->stats.bytes.current) {
    int64_t in_use = a->stats.bytes.current;
    a->stats.refusals++;
    pthread_mutex_unlock(&a->lock);
    return refused(a, bytes, in_use);
  }
  block *b = a->kept[class];
  if (b) {
    a->kept[class] = b->next;
  } else {
    if (a->stats.reserved.current + (int64_t)room > a->limit) {
      trim_locked(a);
      a->stats.retries++;
    }
    size_t total = HEADER + room;
    b = aligned_alloc(64, (total + 63) & ~(size_t)63);
    if (!b) {
      trim_locked(a);
      a->stats.retries++;
      b = aligned_alloc(64, (total + 63) & ~(size_t)63);
    }
    if (!b) {
      int64_t in_use = a->stats.bytes.current;
      a->stats.refusals++;
      pthread_mutex_unlock(&a->lock);
      return tern_error_new(TERN_OUT_OF_MEMORY, "out of memory: the system refused %zu bytes with %lld in use", bytes, (long long)in_use);
    }
    /* Large arrays are read and written whole: huge pages save most page faults and TLB misses. Advice only. */
    if (room >= (size_t)4 << 20) {
      uintptr_t first = ((uintptr_t)b + 4095) & ~(uintptr_t)4095, end = ((uintptr_t)b + total) & ~(uintptr_t)4095;
      if (end > first) (void)madvise((void *)first, end - first, MADV_HUGEPAGE);
    }
    b->room = room;
    b->class = class;
    tern_stat_add(&a->stats.reserved, (int64_t)room);
    tern_stat_add(&a->stats.segments, 1);
  }
  b->next = NULL;
  b->asked = bytes;
  tern_stat_add(&a->stats.blocks, 1);
  tern_stat_add(&a->stats.bytes, (int64_t)bytes);
  pthread_mutex_unlock(&a->lock);
  *out = (char *)b + HEADER;
  return NULL;
}

void tern_deallocate(tern_allocator *a, void *memory) {
  if (!memory) return;
  block *b = (block *)((char *)memory - HEADER);
  pthread_mutex_lock(&a->lock);
  tern_stat_add(&a->stats.bytes, -(int64_t)b->asked);
  tern_stat_add(&a->stats.blocks, -1);
  b->next = a->kept[b->class];
  a->kept[b->class] = b;
  pthread_mutex_unlock(&a->lock);
}

size_t tern_block_bytes(const void *memory) { return ((const block *)((const char *)memory - HEADER))->asked; }

void tern_memory_stats_reset_peaks(tern_memory_stats *s) {
  for (tern_stat *all[] = {&s->bytes, &s->blocks, &s->reserved, &s->segments}, **stat = all; stat < all + 4; stat++) (*stat)->peak = (*stat)->current;
}

void tern_memory_stats_reset_totals(tern_memory_stats *s) {
  /* What is there now was added at some time: freed = total - current stays right. */
  for (tern_stat *all[] = {&s->bytes, &s->blocks, &s->reserved, &s->segments}, **stat = all; stat < all + 4; stat++) (*stat)->total = (*stat)->current;
  s->retries = s->refusals = 0;
}

void tern_allocator_get_stats(tern_allocator *a, tern_memory_stats *out) {
  pthread_mutex_lock(&a->lock);
  *out = a->stats;
  pthread_mutex_unlock(&a->lock);
}

void tern_allocator_reset_peak(tern_allocator *a) {
  pthread_mutex_lock(&a->lock);
  tern_memory_stats_reset_peaks(&a->stats);
  pthread_mutex_unlock(&a->lock);
}

void tern_allocator_reset_totals(tern_allocator *a) {
  pthread_mutex_lock(&a->lock);
  tern_memory_stats_reset_totals(&a->stats);
  pthread_mutex_unlock(&a->lock);
}

void tern_allocator_trim(tern_allocator *a) {
  pthread_mutex_lock(&a->lock);
  trim_locked(a);
  pthread_mutex_unlock(&a->lock);
}

int64_t tern_allocator_limit(const tern_allocator *a) { return a->limit; }
void tern_allocator_set_limit(tern_allocator *a, int64_t limit) {
  a->limit = limit;
  a->limit_is = "set for this process";
}
