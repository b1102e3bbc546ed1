/* layout: TensorIterator's rule for the strides of a new result (aten/src/ATen/TensorIterator.cpp: fast_set_up, reorder_dimensions,
 * allocate_or_resize_outputs), and its checks for overlapping memory (aten/src/ATen/MemoryOverlap.cpp).
 *
 * A result of elementwise operators keeps its operands' order of dimensions in memory: a channels-last network stays channels-last. Strides are visible to
 * users (x.stride(), view()), so the rule is followed exactly, its ties included. */
#include "layout.h"

static bool is_contiguous(int rank, const int64_t *sizes, const int64_t *strides) {
  int64_t expected = 1;
  bool matches = true;
  for (int d = rank - 1; d >= 0; d--) {
    if (sizes[d] == 0) return true;
    if (sizes[d] == 1) continue;
    matches = matches && strides[d] == expected;
    expected *= sizes[d];
  }
  return matches;
}

static bool is_channels_last(int rank, const int64_t *sizes, const int64_t *strides) {
  static const int order[4] = {1, 3, 2, 0};
  int64_t expected = 1;
  if (rank != 4) return false;
  for (int i = 0; i < 4; i++) {
    int d = order[i];
    if (sizes[d] == 1) continue;
    if (strides[d] != expected) return false;
    expected *= sizes[d];
  }
  return true;
}

/* PyTorch's is_non_overlapping_and_dense: some order of the dimensions makes it contiguous; dimensions of size 0 and 1 do not matter. */
static bool is_dense(int rank, const int64_t *sizes, const int64_t *strides) {
  if (is_contiguous(rank, sizes, strides)) return true;
  int order[TERN_MAX_TENSOR_RANK], n = 0;
  for (int d = 0; d < rank; d++) {
    if (sizes[d] < 2) continue;
    int place = n++;
    for (; place > 0 && strides[order[place - 1]] > strides[d]; place--) order[place] = order[place - 1];
    order[place] = d;
  }
  int64_t expected = 1;
  for (int i = 0; i < n; i++) {
    if (strides[order[i]] != expected) return false;
    expected *= sizes[order[i]];
  }
  return true;
}

static void set_contiguous(int rank, const int64_t *sizes, int64_t *strides) {
  int64_t next = 1;
  for (int d = rank - 1; d >= 0; d--) {
    strides[d] = next;
    if (sizes[d] > 1) next *= sizes[d];
  }
}

/* ---- the order of dimensions ---- */

typedef struct sorter {
  int n;
  const int64_t *sizes;
  int64_t strides[TERN_MAX_OPERANDS][TERN_MAX_TENSOR_RANK]; /* of each operand, aligned with the result; 0 where it is broadcast */
} sorter;

/* 1: dimension a belongs after b (a is slower), -1: before, 0: undecided. */
static int compare_dims(const sorter *s, int a, int b) {
  for (int i = 0; i < s->n; i++) {
    int64_t stride_a = s->strides[i][a], stride_b = s->strides[i][b];
    if (stride_a == 0 || stride_b == 0) continue;
    if (stride_a != stride_b) return stride_a < stride_b ? -1 : 1;
    if (s->sizes[a] > s->sizes[b]) return 1;
  }
  return 0;
}

/* `order`: dimensions from the fastest to the slowest. The insertion sort is PyTorch's: with undecided pairs the algorithm is part of the rule. */
static void sort_dims(const sorter *s, int rank, int *order) {
  for (int i = 0; i < rank; i++) order[i] = rank - 1 - i;
  for (int i = 1; i < rank; i++) {
    int moving = i;
    for (int other = i - 1; other >= 0; other--) {
      int comparison = compare_dims(s, order[other], order[moving]);
      if (comparison < 0) break;
      if (comparison == 0) continue;
      int kept = order[other];
      order[other] = order[moving];
      order[moving] = kept;
      moving = other;
    }
  }
}

static void strides_by_order(int rank, const int64_t *sizes, const int *order, int64_t *strides) {
  int64_t next = 1;
  bool reversed = true;
  for (int i = 0; i < rank; i++) reversed = reversed && order[i] == rank - 1 - i;
  if (reversed) {
    set_contiguous(rank, sizes, strides);
    return;
  }
  for (int i = 0; i < rank; i++) {
    strides[order[i]] = next;
    next *= sizes[order[i]];
  }
}

static bool all_same_shape(const tern_draft *draft, const tern_draft_output *output) {
  if (draft->n_number_operands > 0 && output->rank > 0) return false;
  for (int i = 0; i < draft->n_operands; i++) {
    const tern_geometry *g = &draft->operands[i].view;
    if (!draft->operands[i].buffer) continue;
    if (g->rank != output->rank || memcmp(g->sizes, output->sizes, (size_t)g->rank * sizeof *g->sizes) != 0) return false;
  }
  return true;
}

/* PyTorch's shortcut for operands of one shape; it differs from the sort where dimensions of size 1 leave the order open. */
static bool strides_of_same_shapes(const tern_draft *draft, const tern_draft_output *output, int64_t *strides) {
  static const int channels_last_order[4] = {1, 3, 2, 0};
  bool contiguous = true, channels_last = true, dense = true, same_strides = true;
  const tern_geometry *last = NULL;
  for (int i = 0; i < draft->n_operands && contiguous; i++) {
    const tern_geometry *g = &draft->operands[i].view;
    contiguous = !draft->operands[i].buffer || is_contiguous(g->rank, g->sizes, g->strides);
  }
  if (TERN_LIKELY(contiguous)) {
    set_contiguous(output->rank, output->sizes, strides);
    return true;
  }
  for (int i = 0; i < draft->n_operands; i++) {
    const tern_geometry *g = &draft->operands[i].view;
    if (!draft->operands[i].buffer) continue;
    channels_last = channels_last && is_channels_last(g->rank, g->sizes, g->strides);
    dense = dense && is_dense(g->rank, g->sizes, g->strides);
    same_strides = same_strides && (!last || memcmp(g->strides, last->strides, (size_t)g->rank * sizeof *g->strides) == 0);
    last = g;
  }
  if (channels_last) {
    int64_t next = 1;
    for (int i = 0; i < 4; i++) {
      int64_t size = output->sizes[channels_last_order[i]];
      strides[channels_last_order[i]] = next;
      next *= size > 1 ? size : 1;
    }
    return true;
  }
  if (!dense || !same_strides || !last) return false;
  memcpy(strides, last->strides, (size_t)output->rank * sizeof *strides);
  return true;
}

static void strides_like_operands(const tern_draft *draft, const tern_draft_output *output, int64_t *strides) {
  if (output->rank < 2) {
    set_contiguous(output->rank, output->sizes, strides);
    return;
  }
  if (TERN_LIKELY(all_same_shape(draft, output)) && strides_of_same_shapes(draft, output, strides)) return;
  sorter s;
  int order[TERN_MAX_TENSOR_RANK];
  s.n = 0;
  s.sizes = output->sizes;
  for (int i = 0; i < draft->n_operands; i++) {
    const tern_geometry *g = &draft->operands[i].view;
    int grown = output->rank - g->rank;
    if (!draft->operands[i].buffer || grown < 0) continue;
    int64_t *row = s.strides[s.n++];
    for (int d = 0; d < grown; d++) row[d] = 0;
    for (int d = 0; d < g->rank; d++) row[grown + d] = g->sizes[d] == 1 && output->sizes[grown + d] != 1 ? 0 : g->strides[d];
  }
  sort_dims(&s, output->rank, order);
  strides_by_order(output->rank, output->sizes, order, strides);
}

void tern_layout_strides(const tern_draft *draft, const tern_draft_output *output, int64_t *strides) {
  switch (output->layout) {
    case TERN_LIKE_OPERANDS:
      strides_like_operands(draft, output, strides);
      break;
    case TERN_GIVEN:
      memcpy(strides, output->strides, (size_t)output->rank * sizeof *strides);
      break;
    default:
      set_contiguous(output->rank, output->sizes, strides);
      break;
  }
}

/* empty_like keeps the strides of a dense tensor; others get TensorIterator's order (at::infer_dense_strides). */
void tern_layout_strides_like(const tern_tensor *tensor, int64_t *strides) {
  if (is_dense(tensor->rank, tensor->sizes, tensor->strides)) {
    memcpy(strides, tensor->strides, (size_t)tensor->rank * sizeof *strides);
    return;
  }
  sorter s;
  int order[TERN_MAX_TENSOR_RANK];
  s.n = 1;
  s.sizes = tensor->sizes;
  for (int d = 0; d < tensor->rank; d++) s.strides[0][d] = tensor->strides[d];
  sort_dims(&s, tensor->rank, order);
  strides_by_order(tensor->rank, tensor->sizes, order, strides);
}

/* ---- overlapping memory ---- */

bool tern_layout_repeats(int rank, const int64_t *sizes, const int64_t *strides) {
  bool repeats = false;
  for (int d = 0; d < rank; d++) {
    if (TERN_UNLIKELY(sizes[d] == 0)) return false;
    repeats |= strides[d] == 0 && sizes[d] > 1;
  }
  return repeats;
}

tern_status tern_layout_check_target(const tern_output *target) {
  if (TERN_UNLIKELY(tern_layout_repeats(target->view.rank, target->view.sizes, target->view.strides)))
    return tern_error_new(TERN_INVALID_ARGUMENT,
                          "unsupported operation: more than one element of the written-to tensor refers to a single memory location. "
                          "Please clone() the tensor before performing the operation.");
  return NULL;
}

tern_status tern_layout_check_operand(const tern_output *target, const tern_operand *operand) {
  if (TERN_LIKELY(target->buffer != operand->buffer)) return NULL;
  const tern_geometry *a = &target->view, *b = &operand->view;
  if (!is_dense(a->rank, a->sizes, a->strides) || !is_dense(b->rank, b->sizes, b->strides)) return NULL; /* PyTorch finds it too hard to tell */
  int64_t count_a = 1, count_b = 1;
  for (int d = 0; d < a->rank; d++) count_a *= a->sizes[d];
  for (int d = 0; d < b->rank; d++) count_b *= b->sizes[d];
  int64_t size_a = (int64_t)tern_dtype_size(target->dtype), size_b = (int64_t)tern_dtype_size(operand->dtype);
  int64_t begin_a = a->offset * size_a, end_a = begin_a + count_a * size_a, begin_b = b->offset * size_b, end_b = begin_b + count_b * size_b;
  bool partial;
  if (count_a == 0 || count_b == 0)
    partial = false;
  else if (begin_a == begin_b && end_a == end_b)
    partial = a->rank != b->rank || memcmp(a->strides, b->strides, (size_t)a->rank * sizeof *a->strides) != 0;
  else
    partial = begin_a < end_b && begin_b < end_a;
  if (!partial) return NULL;
  return tern_error_new(TERN_INVALID_ARGUMENT,
                        "unsupported operation: some elements of the input tensor and the written-to tensor refer to a single memory location. "
                        "Please clone() the tensor before performing the operation.");
}
