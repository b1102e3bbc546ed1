/* fuse: which operations run together. A pass of opt, used by the embedded engine's planner; a PJRT plug-in fuses by itself.
 *
 * A step is what the engine runs as one: a single operation, or a group of elementwise operations (and reductions at its end) over one iteration space, each
 * element of which is loaded once and whose inner values are never stored. */
#ifndef TERN_FUSE_H
#define TERN_FUSE_H
#include "../ir/ir.h"

enum { TERN_FUSE_MAX_OPS = 64 }; /* of one group */

typedef struct tern_fusion {
  int32_t *step;      /* per operation: its step, or -1: it moves and computes nothing (leaf, view) or nobody uses it */
  int32_t n_steps;
} tern_fusion;

/* `root` and `linear` describe each value: the value whose storage it lies in, and whether element i of it is element i of that (a reshape). A VIEW
 * operation whose result is its own root copies, and is fused as elementwise. Memory comes from the arena. */
tern_status tern_fuse(const tern_program *program, const tern_value *root, const bool *linear, tern_arena *arena, tern_fusion *out);

/* The order of a reduction's iteration space: `order` lists its operand's dimensions from the slowest to the fastest. Where the fastest dimension of size > 1 is
 * reduced, the reduced dimensions come last (rows); otherwise first (columns). It depends on the shape alone. Returns true for rows. */
bool tern_reduce_order(const tern_program *program, const tern_op *op, int *order);
#endif
