/* lines: how softmax, norms, sorts, scans and indexing walk an array along one dimension.
 *
 * A line is what remains when every other dimension is fixed. The other dimensions are merged where all views allow it; the last of them is kept apart as
 * the `panel`: neighbouring lines that a kernel may handle side by side, because along the panel memory is often contiguous where along the line it is not.
 * Everything here is arithmetic on shapes: no kernel, no dtype. */
#ifndef TERN_KERNEL_LINES_H
#define TERN_KERNEL_LINES_H
#include "kernels.h"

enum { TERN_LINES_VIEWS = 3 }; /* views walked together */

typedef struct tern_lines {
  int64_t length;                     /* elements of a line */
  int64_t along[TERN_LINES_VIEWS];    /* stride along the line, of each view */
  int64_t panel;                      /* neighbouring lines; 1 where the line's dimension is the only one */
  int64_t across[TERN_LINES_VIEWS];   /* stride across the panel */
  int64_t outer;                      /* panels: the product of the dimensions below */
  int rank;
  int64_t dims[TERN_MAX_RANK], strides[TERN_LINES_VIEWS][TERN_MAX_RANK];
} tern_lines;

static inline int64_t tern_view_count(const tern_cpu_view *v) { return tern_dims_count(v->rank, v->dims); }

static inline bool tern_view_is_dense(const tern_cpu_view *v) {
  int64_t expected = 1;
  for (int d = v->rank - 1; d >= 0; d--) {
    if (v->dims[d] != 1 && v->strides[d] != expected) return false;
    expected *= v->dims[d];
  }
  return true;
}

/* The lines of views[0] along `dim`; the other views are walked over the same coordinates (their dims may be larger). */
static inline void tern_lines_make(tern_lines *l, int n_views, const tern_cpu_view *const *views, int dim) {
  const tern_cpu_view *first = views[0];
  *l = (tern_lines){.length = first->rank ? first->dims[dim] : 1, .panel = 1, .outer = 1};
  for (int v = 0; v < n_views; v++) l->along[v] = views[v]->rank ? views[v]->strides[dim] : 0;
  for (int d = 0; d < first->rank; d++) {
    if (d == dim || first->dims[d] == 1) continue;
    bool merges = l->rank > 0;
    for (int v = 0; v < n_views && merges; v++) merges = l->strides[v][l->rank - 1] == first->dims[d] * views[v]->strides[d];
    if (!merges) l->dims[l->rank++] = 1;
    l->dims[l->rank - 1] *= first->dims[d];
    for (int v = 0; v < n_views; v++) l->strides[v][l->rank - 1] = views[v]->strides[d];
  }
  if (l->rank) {
    l->rank--;
    l->panel = l->dims[l->rank];
    for (int v = 0; v < n_views; v++) l->across[v] = l->strides[v][l->rank];
  }
  for (int d = 0; d < l->rank; d++) l->outer *= l->dims[d];
}

/* Where panel number `panel` of view `v` starts, in elements. */
static inline int64_t tern_lines_offset(const tern_lines *l, int v, int64_t panel) {
  int64_t offset = 0;
  for (int d = l->rank - 1; d >= 0; d--) {
    offset += panel % l->dims[d] * l->strides[v][d];
    panel /= l->dims[d];
  }
  return offset;
}

/* A dense array seen as [outer, length, inner] around one dimension. */
typedef struct tern_dense_lines {
  int64_t outer, length, inner;
} tern_dense_lines;

static inline tern_dense_lines tern_dense_lines_make(const tern_cpu_view *v, int dim) {
  tern_dense_lines l = {1, v->rank ? v->dims[dim] : 1, 1};
  for (int d = 0; d < v->rank; d++)
    if (d < dim) l.outer *= v->dims[d];
    else if (d > dim) l.inner *= v->dims[d];
  return l;
}

static inline int64_t tern_min_i64(int64_t a, int64_t b) { return a < b ? a : b; }
static inline int64_t tern_max_i64(int64_t a, int64_t b) { return a > b ? a : b; }
static inline int64_t tern_ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

/* How many items one chunk takes so that it handles about `target` elements, at least one item. */
static inline int64_t tern_chunk_items(int64_t elements_per_item, int64_t target) {
  return elements_per_item >= target ? 1 : elements_per_item > 0 ? target / elements_per_item : target;
}

#endif
