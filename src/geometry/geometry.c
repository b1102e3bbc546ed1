/* geometry: what a view's sizes and strides say about it. recover.c finds the way back to operations. Pure functions; see geometry.h. */
#include "geometry.h"

int64_t tern_geometry_count(const tern_geometry *g) {
  int64_t count = 1;
  for (int i = 0; i < g->rank; i++) count *= g->sizes[i];
  return count;
}

bool tern_geometry_is_contiguous(const tern_geometry *g) {
  int64_t expected = 1;
  bool strides_fit = true;
  for (int i = g->rank - 1; i >= 0; i--) {
    if (g->sizes[i] == 0) return true;
    if (g->sizes[i] == 1) continue;
    strides_fit = strides_fit && g->strides[i] == expected;
    expected *= g->sizes[i];
  }
  return strides_fit;
}

void tern_geometry_set_contiguous(tern_geometry *g, int rank, const int64_t *sizes, int64_t offset) {
  g->rank = rank;
  g->offset = offset;
  int64_t stride = 1;
  for (int i = rank - 1; i >= 0; i--) {
    g->sizes[i] = sizes[i];
    g->strides[i] = stride;
    stride *= sizes[i] > 1 ? sizes[i] : 1; /* as PyTorch: an empty dimension counts as one */
  }
}

/* Dimensions by stride, the largest first; equal ones stay in order. */
static void sort_by_stride(const tern_geometry *g, int *order) {
  for (int i = 0; i < g->rank; i++) {
    int at = i;
    for (; at > 0 && g->strides[order[at - 1]] < g->strides[i]; at--) order[at] = order[at - 1];
    order[at] = i;
  }
}

bool tern_geometry_is_injective(const tern_geometry *g) {
  if (tern_geometry_count(g) <= 1) return true;
  int order[TERN_MAX_TENSOR_RANK];
  sort_by_stride(g, order);
  int64_t reach = 0; /* how far the faster dimensions go together: a slower one must step beyond it */
  for (int i = g->rank - 1; i >= 0; i--) {
    int64_t size = g->sizes[order[i]], stride = g->strides[order[i]];
    if (size == 1) continue;
    if (stride <= reach) return false;
    reach += (size - 1) * stride;
  }
  return true;
}

bool tern_geometry_is_dense(const tern_geometry *g, int *order) {
  int own[TERN_MAX_TENSOR_RANK];
  if (!order) order = own;
  sort_by_stride(g, order);
  if (tern_geometry_count(g) == 0) return true;
  int64_t expected = 1;
  for (int i = g->rank - 1; i >= 0; i--) {
    int64_t size = g->sizes[order[i]];
    if (size == 1) continue;
    if (g->strides[order[i]] != expected) return false;
    expected *= size;
  }
  return true;
}

void tern_geometry_bounds(const tern_geometry *g, int64_t *first, int64_t *end) {
  *first = *end = 0;
  if (tern_geometry_count(g) == 0) return;
  int64_t low = g->offset, high = g->offset;
  for (int i = 0; i < g->rank; i++) {
    int64_t reach = (g->sizes[i] - 1) * g->strides[i];
    if (reach > 0) high += reach;
    else low += reach;
  }
  *first = low;
  *end = high + 1;
}

void tern_geometry_enumerate(const tern_geometry *g, int64_t *out) {
  int64_t count = tern_geometry_count(g), position[TERN_MAX_TENSOR_RANK] = {0}, at = g->offset;
  for (int64_t i = 0; i < count; i++) {
    out[i] = at;
    for (int d = g->rank - 1; d >= 0; d--) {
      at += g->strides[d];
      if (++position[d] < g->sizes[d]) break;
      at -= g->sizes[d] * g->strides[d];
      position[d] = 0;
    }
  }
}
