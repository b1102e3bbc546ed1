/* view: what a value is in memory. VIEW operations move nothing: a value that is a view is a stride pattern over its root, the value that has storage. */
#ifndef TERN_CPU_VIEW_H
#define TERN_CPU_VIEW_H
#include "blocks.h"

/* How a value lies over its root; its dims are the value's own. */
typedef struct tern_value_view {
  tern_value root;
  bool linear;      /* element i of the value is element i of the root, and there are equally many */
  int64_t offset;   /* in elements */
  int64_t strides[TERN_MAX_RANK];
} tern_value_view;

/* One per value of the program, in the arena. A constant is one stored element (all strides 0). An iota is stored nowhere: its element at some offset is
 * that offset. A reshape that strides cannot express is its own root: it copies (or rather, is fused like an elementwise
 * operation whose operand is read in row-major order). */
tern_status tern_views_resolve(const tern_program *program, tern_arena *arena, tern_value_view **out);

/* The same pattern with as few dimensions as possible; rank at least 1. `order` (may be NULL) gives the dimensions from the slowest to the fastest. */
void tern_walk_make(tern_block_walk *walk, int rank, const int64_t *dims, const int64_t *strides, const int *order, size_t element);
/* Strides of a dense row-major array. */
void tern_strides_dense(int rank, const int64_t *dims, int64_t *strides);
/* Strides of the same elements under other dims, or false where there are none. Any count but 0. */
bool tern_strides_reshape(int rank, const int64_t *dims, const int64_t *strides, int new_rank, const int64_t *new_dims, int64_t *new_strides);
#endif
