/* Bump allocation: see base.h. Blocks double in size so that n allocations cost O(n). */
#include "base.h"

struct tern_arena_block {
  tern_arena_block *previous;
  size_t size;
  _Alignas(16) char bytes[];
};

void *tern_arena_alloc(tern_arena *arena, size_t size) {
  size = (size + 15) & ~(size_t)15;
  if (!arena->next || (size_t)(arena->end - arena->next) < size) {
    size_t room = arena->blocks ? arena->blocks->size * 2 : 4096;
    if (room > ((size_t)1 << 20)) room = (size_t)1 << 20;
    if (room < size) room = size;
    tern_arena_block *block = malloc(sizeof *block + room);
    if (!block) return NULL;
    block->previous = arena->blocks;
    block->size = room;
    arena->blocks = block;
    arena->next = block->bytes;
    arena->end = block->bytes + room;
  }
  void *result = arena->next;
  arena->next += size;
  arena->used += size;
  return memset(result, 0, size);
}

void *tern_arena_copy(tern_arena *arena, const void *source, size_t size) {
  void *copy = tern_arena_alloc(arena, size);
  if (copy && size) memcpy(copy, source, size);
  return copy;
}

void tern_arena_free(tern_arena *arena) {
  for (tern_arena_block *block = arena->blocks; block;) {
    tern_arena_block *previous = block->previous;
    free(block);
    block = previous;
  }
  *arena = (tern_arena){0};
}
