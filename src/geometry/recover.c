/* recover: from strides back to reshape, slice, transpose and broadcast. Called by eager for every view of a base that is not the base itself.
 *
 * A dense base of N elements can be reshaped by any chain of *cuts* N = c0, c1, ..., 1, each dividing the one before: refined dimension j has size
 * c[j]/c[j+1] and stride c[j+1]. A view dimension (size n, stride s) is a slice of the refined dimension between the cuts H and L where
 *     L divides H and s,   and   offset mod H + (n-1)*s < H   (it does not run over the edge),
 * with step s/L. View dimensions need disjoint intervals [H, L], in the order of their strides. Both conditions only get easier as H grows
 * by factors, so going from the largest stride to the smallest with H = the last L (at first N) and L = gcd(H, s) finds a chain whenever there is one.
 * That chain is then moved onto the base's own cuts wherever those do as well, so that a plain slice stays a slice of the base as it is.
 *
 * View dimensions that continue each other (stride = size * stride of the next: the parts of a dimension that was split) may share one interval; the
 * reshape after the slice splits them again. Where the base has a cut between them they are first tried apart, then together, which asks less: flat[2:8].view(2, 3) of
 * 8 elements has no cut at 3. What is not found: a slice, split by a factor that divides no cut, and sliced again within; that is left to a gather. */
#include "geometry.h"

typedef struct used_dim {
  int n, dims[TERN_MAX_TENSOR_RANK]; /* of the view: one, or several that continue each other */
  int64_t size, stride;              /* of all of them as one */
  int64_t high, low;                 /* its interval of cuts */
} used_dim;

typedef struct cuts {
  int n;
  int64_t at[TERN_MAX_RANK + 1];  /* descending, from N to 1, no two equal */
  int used[TERN_MAX_RANK + 1];    /* the used_dim between at[i] and at[i+1], or -1 */
} cuts;

static int64_t gcd(int64_t a, int64_t b) {
  while (b) {
    int64_t rest = a % b;
    a = b;
    b = rest;
  }
  return a;
}

static bool fits(const used_dim *used, int64_t offset, int64_t high) { return offset % high + (used->size - 1) * used->stride < high; }

/* The view's dimensions that step through the base, by stride, the largest first. */
static int collect_used(const tern_geometry *view, used_dim *used) {
  int n = 0;
  for (int i = 0; i < view->rank; i++) {
    if (view->sizes[i] == 1 || view->strides[i] == 0) continue;
    int at = n++;
    for (; at > 0 && used[at - 1].stride < view->strides[i]; at--) used[at] = used[at - 1];
    used[at] = (used_dim){.n = 1, .dims = {i}, .size = view->sizes[i], .stride = view->strides[i]};
  }
  return n;
}

/* Joins dimensions that continue each other, but not across one of the `n_kept` cuts. Returns how many are left. */
static int join(int n, used_dim *used, int n_kept, const int64_t *kept_cuts) {
  int left = 0;
  for (int i = 0; i < n; i++) {
    used_dim *last = left ? &used[left - 1] : NULL;
    bool joins = last && last->stride == used[i].stride * used[i].size;
    for (int c = 0; c < n_kept && joins; c++) joins = kept_cuts[c] != last->stride;
    if (!joins) {
      used[left++] = used[i];
      continue;
    }
    last->dims[last->n++] = used[i].dims[0];
    last->size *= used[i].size;
    last->stride = used[i].stride;
  }
  return left;
}

static bool find_widest_chain(int n, used_dim *used, int64_t offset, int64_t total) {
  int64_t high = total;
  for (int i = 0; i < n; i++) {
    if (!fits(&used[i], offset, high)) return false;
    used[i].high = high;
    used[i].low = high = gcd(high, used[i].stride);
  }
  return true;
}

/* Narrows each interval to the base's cuts where they do, from the smallest stride up: low to the largest base cut, high to the smallest. */
static void prefer_base_cuts(int n, used_dim *used, int64_t offset, int n_base, const int64_t *base_cuts) {
  int64_t below = 1; /* the highest cut in use so far */
  for (int i = n - 1; i >= 0; i--) {
    int64_t widest_low = used[i].low, widest_high = used[i].high;
    for (int c = 0; c < n_base; c++)
      if (base_cuts[c] % below == 0 && widest_low % base_cuts[c] == 0) {
        used[i].low = base_cuts[c];
        break;
      }
    for (int c = n_base - 1; c >= 0; c--)
      if (base_cuts[c] % used[i].low == 0 && widest_high % base_cuts[c] == 0 && fits(&used[i], offset, base_cuts[c])) {
        used[i].high = base_cuts[c];
        break;
      }
    below = used[i].high;
  }
}

static bool push_cut(cuts *chain, int64_t cut, int used) {
  if (chain->n > 0 && chain->at[chain->n - 1] == cut) {
    if (used >= 0) chain->used[chain->n - 1] = used;
    return true;
  }
  if (chain->n > TERN_MAX_RANK) return false;
  chain->at[chain->n] = cut;
  chain->used[chain->n++] = used;
  return true;
}

/* The cuts of all intervals, with those of the base between intervals if `with_base`. */
static bool make_chain(int n, const used_dim *used, int64_t total, int n_base, const int64_t *base_cuts, bool with_base, cuts *chain) {
  chain->n = 0;
  if (!push_cut(chain, total, -1)) return false;
  for (int i = 0; i <= n; i++) {
    int64_t top = chain->at[chain->n - 1], bottom = i < n ? used[i].high : 1;
    for (int c = 0; c < n_base && with_base; c++)
      if (base_cuts[c] < top && base_cuts[c] > bottom && top % base_cuts[c] == 0 && base_cuts[c] % bottom == 0 && !push_cut(chain, base_cuts[c], -1)) return false;
    if (!push_cut(chain, bottom, i < n ? i : -1)) return false;
    if (i < n && !push_cut(chain, used[i].low, -1)) return false;
  }
  return true;
}

/* Whether the chain is the base's own: then the base needs no reshape, dimensions of size 1 included. */
static bool chain_is_base(const cuts *chain, int n_base, const int64_t *base_cuts) {
  return chain->n == n_base && memcmp(chain->at, base_cuts, (size_t)n_base * sizeof *base_cuts) == 0;
}

/* Fills the steps up to the slice. refined_used: the used_dim of each refined dimension, or -1. */
static bool fill_slice(const cuts *chain, bool is_base, int base_rank, const int64_t *base_dims, const used_dim *used, int64_t offset, tern_view_steps *steps, int *refined_used) {
  int rank = is_base ? base_rank : chain->n - 1;
  if (rank > TERN_MAX_RANK) return false;
  steps->refined_rank = rank;
  for (int i = 0, cut = 0; i < rank; i++) {
    steps->refined[i] = is_base ? base_dims[i] : chain->at[cut] / chain->at[cut + 1];
    refined_used[i] = -1;
    steps->start[i] = 0;
    steps->limit[i] = steps->step[i] = 1;
    if (steps->refined[i] == 1) continue; /* of the base: no cut of its own */
    int64_t high = chain->at[cut], low = chain->at[cut + 1];
    steps->start[i] = offset % high / low;
    steps->limit[i] = steps->start[i] + 1;
    refined_used[i] = chain->used[cut];
    if (refined_used[i] >= 0) {
      const used_dim *by = &used[refined_used[i]];
      steps->step[i] = by->stride / low;
      steps->limit[i] += (by->size - 1) * steps->step[i];
    }
    cut++;
  }
  return true;
}

/* Fills the steps after the slice. The view's dimensions of size 1 stand in `kept` behind the dimension that they follow in the view, so that
 * what is not transposed needs no transpose, and what is not broadcast needs no broadcast. */
static void fill_arrangement(const tern_geometry *view, const used_dim *used, const int *refined_used, tern_view_steps *steps) {
  int kept_dim[TERN_MAX_RANK], position[TERN_MAX_TENSOR_RANK], n = 0;
  for (int j = -1; j < steps->refined_rank; j++) {
    if (j >= 0 && refined_used[j] < 0) continue;
    for (int part = 0; part < (j < 0 ? 1 : used[refined_used[j]].n); part++) {
      int dim = j < 0 ? -1 : used[refined_used[j]].dims[part];
      if (dim >= 0) kept_dim[n++] = dim;
      for (int next = dim + 1; next < view->rank; next++) {
        bool broadcasts = view->sizes[next] != 1 && view->strides[next] == 0;
        if (view->sizes[next] == 1) kept_dim[n++] = next;
        else if (!broadcasts) break;
      }
    }
  }
  steps->kept_rank = n;
  for (int i = 0; i < n; i++) {
    steps->kept[i] = view->sizes[kept_dim[i]];
    position[kept_dim[i]] = i;
  }
  int out = 0;
  for (int dim = 0; dim < view->rank; dim++) {
    if (view->sizes[dim] != 1 && view->strides[dim] == 0) {
      steps->overlaps = true;
      continue;
    }
    steps->permutation[out] = position[dim];
    steps->result_dims[out++] = dim;
  }
}

/* Nothing to read: an empty slice of the flat base, broadcast to the view's sizes. */
static void fill_empty(int64_t total, const tern_geometry *view, tern_view_steps *steps) {
  int empty = 0;
  while (view->sizes[empty] != 0) empty++;
  steps->refined_rank = steps->kept_rank = 1;
  steps->refined[0] = total;
  steps->step[0] = 1;
  steps->result_dims[0] = empty;
  steps->is_whole = total == 0;
}

/* The whole base in order: at most a reshape. */
static void fill_whole(const tern_geometry *view, tern_view_steps *steps) {
  steps->refined_rank = steps->kept_rank = view->rank;
  steps->is_whole = true;
  for (int i = 0; i < view->rank; i++) {
    steps->refined[i] = steps->limit[i] = steps->kept[i] = view->sizes[i];
    steps->step[i] = 1;
    steps->permutation[i] = steps->result_dims[i] = i;
  }
}

/* The steps' own offset and strides, computed forwards, are the view's: a wrong answer here would be silent. */
static bool agrees(const tern_geometry *view, const tern_view_steps *steps) {
  int64_t stride = 1, offset = 0, kept_stride[TERN_MAX_RANK];
  int kept = steps->kept_rank - 1;
  for (int i = steps->refined_rank - 1; i >= 0; i--) {
    int64_t size = (steps->limit[i] - steps->start[i] + steps->step[i] - 1) / steps->step[i];
    if (steps->start[i] < 0 || steps->limit[i] > steps->refined[i] || steps->step[i] < 1) return false;
    offset += steps->start[i] * stride;
    for (int64_t part = 1; part < size; kept--) {
      if (kept < 0 || size % (part * steps->kept[kept]) != 0) return false;
      kept_stride[kept] = stride * steps->step[i] * part;
      part *= steps->kept[kept];
    }
    stride *= steps->refined[i];
  }
  for (; kept >= 0 && steps->kept[kept] == 1; kept--) kept_stride[kept] = 0;
  if (kept >= 0 || offset != view->offset) return false;
  int64_t strides[TERN_MAX_TENSOR_RANK] = {0}, sizes[TERN_MAX_TENSOR_RANK];
  for (int i = 0; i < view->rank; i++) sizes[i] = -1;
  for (int i = 0; i < steps->kept_rank; i++) {
    strides[steps->result_dims[i]] = kept_stride[steps->permutation[i]];
    sizes[steps->result_dims[i]] = steps->kept[steps->permutation[i]];
  }
  for (int i = 0; i < view->rank; i++) {
    if (view->sizes[i] != 1 && strides[i] != view->strides[i]) return false;
    if (sizes[i] != view->sizes[i] && !(sizes[i] == -1 && view->strides[i] == 0)) return false;
  }
  return true;
}

bool tern_view_recover(int base_rank, const int64_t *base_dims, const tern_geometry *view, tern_view_steps *steps) {
  *steps = (tern_view_steps){0};
  int64_t total = 1, base_cuts[TERN_MAX_RANK + 1];
  if (base_rank < 0 || base_rank > TERN_MAX_RANK || view->rank > TERN_MAX_TENSOR_RANK) return false;
  for (int i = 0; i < base_rank; i++) total *= base_dims[i];
  int64_t count = tern_geometry_count(view);
  if (count == total && (count == 0 || view->offset == 0) && tern_geometry_is_contiguous(view)) {
    fill_whole(view, steps);
    return true;
  }
  if (count == 0) {
    fill_empty(total, view, steps);
    return true;
  }
  if (view->offset < 0 || view->offset >= total) return false;
  for (int i = 0; i < view->rank; i++)
    if (view->strides[i] < 0 && view->sizes[i] > 1) return false;

  int n_base = 0;
  int64_t cut = total;
  base_cuts[n_base++] = total;
  for (int i = 0; i < base_rank; i++) {
    if (base_dims[i] == 1) continue;
    cut /= base_dims[i];
    base_cuts[n_base++] = cut;
  }

  used_dim apart[TERN_MAX_TENSOR_RANK], used[TERN_MAX_TENSOR_RANK];
  int n_apart = collect_used(view, apart), n = 0, refined_used[TERN_MAX_RANK];
  bool found = false;
  for (int n_kept = n_base; n_kept >= 0 && !found; n_kept -= n_base) {
    memcpy(used, apart, sizeof used);
    n = join(n_apart, used, n_kept, base_cuts);
    found = find_widest_chain(n, used, view->offset, total);
  }
  if (!found) return false;
  prefer_base_cuts(n, used, view->offset, n_base, base_cuts);
  cuts chain;
  bool is_base = make_chain(n, used, total, n_base, base_cuts, true, &chain) && chain_is_base(&chain, n_base, base_cuts);
  if (!is_base && !make_chain(n, used, total, n_base, base_cuts, false, &chain)) return false;
  if (!fill_slice(&chain, is_base, base_rank, base_dims, used, view->offset, steps, refined_used)) return false;
  fill_arrangement(view, used, refined_used, steps);
  steps->is_whole = !steps->overlaps && count == total;
  return agrees(view, steps);
}
