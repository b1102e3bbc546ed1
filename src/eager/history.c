/* The history of a device's memory, for those who ask where it went: a bounded ring of events (made, freed, refused), off unless asked for.
 *
 * Addresses in it stand for memory and are no pointers: each piece gets a range of its own that is never used again, so that tools which draw memory over time can tell
 * pieces apart on any backend. They stay far below 2^53, which is where such tools' numbers end. */
#include <time.h>
#include "internal.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static tern_memory_event *ring;
static size_t room, first, count;
static uint64_t next_address = (uint64_t)1 << 32;
atomic_bool tern_history_on;

tern_status tern_history_start(size_t most) {
  tern_memory_event *fresh = malloc((most ? most : 1) * sizeof *fresh);
  if (!fresh) return tern_error_new(TERN_OUT_OF_MEMORY, "no host memory for a history of %zu events", most);
  pthread_mutex_lock(&lock);
  free(ring);
  ring = fresh;
  room = most ? most : 1;
  first = count = 0;
  pthread_mutex_unlock(&lock);
  atomic_store(&tern_history_on, true);
  return NULL;
}

void tern_history_stop(void) { atomic_store(&tern_history_on, false); }

uint64_t tern_history_address(int64_t bytes) {
  pthread_mutex_lock(&lock);
  uint64_t address = next_address;
  next_address += ((uint64_t)bytes + 511) & ~(uint64_t)511;
  if (!bytes) next_address += 512;
  pthread_mutex_unlock(&lock);
  return address;
}

void tern_history_note(tern_memory_event event) {
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  event.microseconds = (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000;
  pthread_mutex_lock(&lock);
  if (ring) {
    ring[(first + count) % room] = event;
    if (count < room) count++;
    else first = (first + 1) % room;
  }
  pthread_mutex_unlock(&lock);
}

size_t tern_history_events(tern_memory_event **out) {
  pthread_mutex_lock(&lock);
  size_t n = count;
  tern_memory_event *copy = n ? malloc(n * sizeof *copy) : NULL;
  for (size_t i = 0; i < n && copy; i++) copy[i] = ring[(first + i) % room];
  pthread_mutex_unlock(&lock);
  *out = copy;
  return copy ? n : 0;
}

void tern_history_made(tern_version *v, const char *operation, uint32_t line) {
  if (!v->memory) return;
  int64_t bytes = (int64_t)v->device->backend->size(v->memory);
  uint64_t address = tern_history_address(bytes);
  atomic_store_explicit(&v->address, address, memory_order_relaxed);
  tern_history_note((tern_memory_event){.action = TERN_MEMORY_MADE, .device = v->device->ordinal, .address = address, .bytes = bytes, .line = line, .operation = operation});
}

void tern_history_freed(tern_version *v, const tern_memory *memory) {
  uint64_t address = atomic_exchange_explicit(&v->address, 0, memory_order_relaxed);
  if (!address || !memory || !atomic_load_explicit(&tern_history_on, memory_order_relaxed)) return;
  tern_history_note((tern_memory_event){
      .action = TERN_MEMORY_FREED, .device = v->device->ordinal, .address = address, .bytes = (int64_t)v->device->backend->size((tern_memory *)(uintptr_t)memory)});
}

int tern_device_blocks(tern_device *device, tern_memory_block **out) {
  int n = 0, cap = 0;
  tern_lock_take(&tern_record_lock);
  for (tern_buffer *b = device->held; b; b = b->next_held) cap++;
  tern_memory_block *blocks = cap ? calloc((size_t)cap, sizeof *blocks) : NULL;
  for (tern_buffer *b = device->held; b && blocks; b = b->next_held) {
    if (!b->version || !b->is_live || atomic_load_explicit(&b->version->state, memory_order_acquire) != TERN_VERSION_READY) continue;
    uint64_t address = atomic_load_explicit(&b->version->address, memory_order_relaxed), unknown = 0;
    /* Made while no history was kept: it gets its place now. */
    if (!address) {
      address = tern_history_address((int64_t)b->bytes);
      if (!atomic_compare_exchange_strong(&b->version->address, &unknown, address)) address = unknown;
    }
    tern_memory_block *block = &blocks[n++];
    *block = (tern_memory_block){.address = address, .bytes = (int64_t)b->bytes, .line = b->line, .dtype = b->base.dtype, .rank = b->base.rank};
    memcpy(block->dims, b->base.dims, (size_t)b->base.rank * sizeof *block->dims);
  }
  tern_lock_give(&tern_record_lock);
  *out = blocks;
  return n;
}
