/* geometry: sizes, strides and overlap of views, and the way back from strides to operations.
 *
 * A storage holds a dense, row-major base array of known dims. A tensor on it is a view: sizes, strides and an offset, in elements. PyTorch makes
 * views by slicing, transposing, splitting, merging and broadcasting; here those steps are found again, so that a program needs no strides. */
#ifndef TERN_GEOMETRY_H
#define TERN_GEOMETRY_H
#include "../base/base.h"

typedef struct tern_geometry {
  int32_t rank;
  int64_t offset;
  int64_t sizes[TERN_MAX_TENSOR_RANK], strides[TERN_MAX_TENSOR_RANK];
} tern_geometry;

/* A view of a base array as five steps in this order; every step may be the identity:
 *   reshape the base to (refined_rank, refined) -> slice [start, limit) by step -> reshape to (kept_rank, kept), which takes away the dimensions of size 1 that no
 *   view dimension uses, adds the view's own, and may split a dimension -> transpose by permutation -> broadcast_in_dim to the view's sizes with result_dims. */
typedef struct tern_view_steps {
  int refined_rank;
  int64_t refined[TERN_MAX_RANK], start[TERN_MAX_RANK], limit[TERN_MAX_RANK], step[TERN_MAX_RANK];
  int kept_rank;
  int64_t kept[TERN_MAX_RANK];
  int permutation[TERN_MAX_RANK];
  int result_dims[TERN_MAX_RANK];     /* for each dimension after the transpose: its dimension in the view */
  bool is_whole;                       /* the view covers every element of the base exactly once */
  bool overlaps;                       /* a broadcast: several view elements share one base element */
} tern_view_steps;

int64_t tern_geometry_count(const tern_geometry *g);          /* elements */
bool tern_geometry_is_contiguous(const tern_geometry *g);     /* row-major and dense; the offset does not matter */
/* True where no two elements share a place for certain (false may also mean: not decided). */
bool tern_geometry_is_injective(const tern_geometry *g);
/* Dense: covers some interval of the storage exactly once. Fills `order` (may be NULL) with its dimensions from the slowest to the fastest. */
bool tern_geometry_is_dense(const tern_geometry *g, int *order);
/* First and one past the last element that it can touch; both 0 for an empty view. */
void tern_geometry_bounds(const tern_geometry *g, int64_t *first, int64_t *end);
void tern_geometry_set_contiguous(tern_geometry *g, int rank, const int64_t *sizes, int64_t offset);

/* Finds the steps from a dense row-major base to the view. False where there are none (overlapping windows of as_strided and the like):
 * the caller then gathers from the flat base, which is counted. Cost: O(rank^2), no allocation. */
bool tern_view_recover(int base_rank, const int64_t *base_dims, const tern_geometry *view, tern_view_steps *steps);
/* The flat base index of each view element, row-major, for the last resort and for tests. `out` has room for tern_geometry_count. */
void tern_geometry_enumerate(const tern_geometry *g, int64_t *out);

#endif
