/* Views: what strides say, and the way back from strides to operations. The heart is a property: whatever PyTorch's view functions can make of a
 * base is recovered, and the steps read exactly the elements the strides read. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include "../../src/geometry/geometry.h"

#define DIMS(...) ((int64_t[]){__VA_ARGS__})

static tern_geometry geometry(int rank, const int64_t *sizes, const int64_t *strides, int64_t offset) {
  tern_geometry g = {.rank = rank, .offset = offset};
  for (int i = 0; i < rank; i++) g.sizes[i] = sizes[i], g.strides[i] = strides[i];
  return g;
}

static int64_t product(int rank, const int64_t *dims) {
  int64_t count = 1;
  for (int i = 0; i < rank; i++) count *= dims[i];
  return count;
}

/* The flat base index of each element that the steps give, by doing the steps on an array of indices; caller frees. */
static int64_t *perform(const tern_view_steps *s, const tern_geometry *view) {
  int64_t strides[TERN_MAX_RANK], sizes[TERN_MAX_RANK], offset = 0, stride = 1;
  for (int i = s->refined_rank - 1; i >= 0; i--) {
    strides[i] = stride * s->step[i];
    offset += s->start[i] * stride;
    sizes[i] = (s->limit[i] - s->start[i] + s->step[i] - 1) / s->step[i];
    stride *= s->refined[i];
  }
  /* the slice, flat, row-major: that is what the reshape to `kept` reads */
  int64_t sliced_count = product(s->refined_rank, sizes);
  assert_int_equal(sliced_count, product(s->kept_rank, s->kept));
  int64_t *sliced = malloc(sizeof *sliced * (size_t)(sliced_count + 1));
  for (int64_t i = 0; i < sliced_count; i++) {
    int64_t rest = i, at = offset;
    for (int d = s->refined_rank - 1; d >= 0; d--) at += rest % sizes[d] * strides[d], rest /= sizes[d];
    sliced[i] = at;
  }
  int64_t kept_strides[TERN_MAX_RANK], view_strides[TERN_MAX_TENSOR_RANK] = {0};
  stride = 1;
  for (int i = s->kept_rank - 1; i >= 0; i--) kept_strides[i] = stride, stride *= s->kept[i];
  for (int i = 0; i < s->kept_rank; i++) {
    int64_t size = s->kept[s->permutation[i]];
    assert_true(size == 1 || size == view->sizes[s->result_dims[i]]);
    view_strides[s->result_dims[i]] = size == 1 ? 0 : kept_strides[s->permutation[i]];
  }
  int64_t count = tern_geometry_count(view), *out = malloc(sizeof *out * (size_t)(count + 1));
  for (int64_t i = 0; i < count; i++) {
    int64_t rest = i, at = 0;
    for (int d = view->rank - 1; d >= 0; d--) at += rest % view->sizes[d] * view_strides[d], rest /= view->sizes[d];
    out[i] = sliced[at];
  }
  free(sliced);
  return out;
}

static void expect_recovered(int base_rank, const int64_t *base, const tern_geometry *view, tern_view_steps *steps) {
  if (!tern_view_recover(base_rank, base, view, steps)) {
    print_error("base rank %d:", base_rank);
    for (int i = 0; i < base_rank; i++) print_error(" %lld", (long long)base[i]);
    print_error("; view offset %lld:", (long long)view->offset);
    for (int i = 0; i < view->rank; i++) print_error(" %lld:%lld", (long long)view->sizes[i], (long long)view->strides[i]);
    fail_msg(" not recovered");
  }
  assert_int_equal(product(steps->refined_rank, steps->refined), product(base_rank, base));
  int64_t count = tern_geometry_count(view), *expected = malloc(sizeof *expected * (size_t)(count + 1)), *found = perform(steps, view);
  tern_geometry_enumerate(view, expected);
  assert_memory_equal(found, expected, (size_t)count * sizeof *found);
  free(found);
  free(expected);
}

static void expect_identity(int base_rank, const int64_t *base, const tern_view_steps *steps) {
  assert_true(steps->is_whole);
  assert_int_equal(steps->refined_rank, base_rank);
  assert_memory_equal(steps->refined, base, (size_t)base_rank * sizeof *base);
  assert_int_equal(steps->kept_rank, base_rank);
  for (int i = 0; i < base_rank; i++) {
    assert_int_equal(steps->start[i], 0);
    assert_int_equal(steps->limit[i], base[i]);
    assert_int_equal(steps->step[i], 1);
    assert_int_equal(steps->permutation[i], i);
    assert_int_equal(steps->result_dims[i], i);
  }
}

static void test_whole_views_are_identities(void **state) {
  (void)state;
  const struct { int rank; int64_t dims[4]; } bases[] = {{0, {0}}, {1, {7}}, {2, {6, 4}}, {3, {4, 1, 6}}, {4, {1, 2, 1, 1}}, {2, {0, 3}}, {1, {1}}};
  for (size_t i = 0; i < TERN_COUNT(bases); i++) {
    tern_geometry view;
    tern_view_steps steps;
    tern_geometry_set_contiguous(&view, bases[i].rank, bases[i].dims, 0);
    expect_recovered(bases[i].rank, bases[i].dims, &view, &steps);
    expect_identity(bases[i].rank, bases[i].dims, &steps);
  }
}

static void test_a_plain_slice_leaves_the_base_as_it_is(void **state) {
  (void)state;
  tern_view_steps s;
  /* x[1:3, ::2] of [4, 6] */
  tern_geometry view = geometry(2, DIMS(2, 3), DIMS(6, 2), 6);
  expect_recovered(2, DIMS(4, 6), &view, &s);
  assert_int_equal(s.refined_rank, 2);
  assert_memory_equal(s.refined, DIMS(4, 6), 16);
  assert_memory_equal(s.start, DIMS(1, 0), 16);
  assert_memory_equal(s.limit, DIMS(3, 5), 16);
  assert_memory_equal(s.step, DIMS(1, 2), 16);
  assert_false(s.is_whole);
  /* x[:, 2] of [4, 6, 10] keeps the base's dimensions too */
  view = geometry(2, DIMS(4, 10), DIMS(60, 1), 20);
  expect_recovered(3, DIMS(4, 6, 10), &view, &s);
  assert_int_equal(s.refined_rank, 3);
  assert_int_equal(s.kept_rank, 2);
  assert_memory_equal(s.start, DIMS(0, 2, 0), 24);
  /* x.t() */
  view = geometry(2, DIMS(6, 4), DIMS(1, 6), 0);
  expect_recovered(2, DIMS(4, 6), &view, &s);
  assert_memory_equal(s.refined, DIMS(4, 6), 16);
  assert_true(s.is_whole);
  assert_int_equal(s.permutation[0], 1);
}

static void test_reshapes(void **state) {
  (void)state;
  tern_view_steps s;
  tern_geometry view = geometry(1, DIMS(24), DIMS(1), 0);
  expect_recovered(2, DIMS(4, 6), &view, &s);
  assert_int_equal(s.refined_rank, 1);
  view = geometry(3, DIMS(2, 4, 3), DIMS(3, 6, 1), 0); /* x.view(4,2,3).transpose(0,1) */
  expect_recovered(2, DIMS(4, 6), &view, &s);
  assert_memory_equal(s.kept, DIMS(4, 2, 3), 24);
  view = geometry(2, DIMS(2, 3), DIMS(3, 1), 2); /* x[2:8].view(2, 3) of [8] */
  expect_recovered(1, DIMS(8), &view, &s);
  assert_int_equal(s.refined_rank, 1);
  view = geometry(4, DIMS(2, 4, 5, 8), DIMS(480, 8, 96, 1), 32); /* the keys of an attention's [2, 5, 96] = 3 x (4 heads of 8) */
  expect_recovered(3, DIMS(2, 5, 96), &view, &s);
  assert_memory_equal(s.refined, DIMS(2, 5, 96), 24);
  assert_memory_equal(s.kept, DIMS(2, 5, 4, 8), 32);
  view = geometry(1, DIMS(5), DIMS(6), 0); /* the diagonal of [5, 5] */
  expect_recovered(2, DIMS(5, 5), &view, &s);
  view = geometry(1, DIMS(3), DIMS(8), 1); /* and one beside that of [3, 7] */
  expect_recovered(2, DIMS(3, 7), &view, &s);
}

static void test_broadcasts_scalars_and_empty_views(void **state) {
  (void)state;
  tern_view_steps s;
  tern_geometry view = geometry(3, DIMS(4, 5, 6), DIMS(6, 0, 1), 0);
  expect_recovered(2, DIMS(4, 6), &view, &s);
  assert_true(s.overlaps);
  assert_false(s.is_whole);
  view = geometry(0, NULL, NULL, 13);
  expect_recovered(2, DIMS(4, 6), &view, &s);
  assert_int_equal(s.refined_rank, 2);
  assert_int_equal(s.kept_rank, 0);
  view = geometry(2, DIMS(1, 3), DIMS(99, 0), 0);
  expect_recovered(0, NULL, &view, &s);
  assert_true(s.overlaps);
  view = geometry(3, DIMS(4, 0, 6), DIMS(6, 6, 1), 9);
  expect_recovered(2, DIMS(4, 6), &view, &s);
  assert_false(s.is_whole);
  expect_recovered(1, DIMS(0), &view, &s);
  assert_true(s.is_whole);
}

static void test_what_cannot_be_recovered(void **state) {
  (void)state;
  tern_view_steps s;
  tern_geometry view = geometry(2, DIMS(5, 3), DIMS(1, 1), 0); /* unfold: overlapping windows */
  assert_false(tern_view_recover(1, DIMS(7), &view, &s));
  assert_false(tern_geometry_is_injective(&view));
  view = geometry(2, DIMS(4, 4), DIMS(2, 1), 0);
  assert_false(tern_view_recover(1, DIMS(16), &view, &s));
  view = geometry(1, DIMS(5), DIMS(2), 0); /* beyond the end */
  assert_false(tern_view_recover(1, DIMS(8), &view, &s));
  view = geometry(1, DIMS(2), DIMS(1), 8);
  assert_false(tern_view_recover(1, DIMS(8), &view, &s));
  view = geometry(1, DIMS(2), DIMS(-1), 3);
  assert_false(tern_view_recover(1, DIMS(8), &view, &s));
  view = geometry(1, DIMS(1), DIMS(1), 0);
  assert_false(tern_view_recover(1, DIMS(0), &view, &s));
}

static void test_properties(void **state) {
  (void)state;
  int order[8];
  tern_geometry g = geometry(3, DIMS(4, 1, 6), DIMS(1, 77, 4), 3);
  assert_true(tern_geometry_is_dense(&g, order));
  assert_true(tern_geometry_is_injective(&g));
  assert_false(tern_geometry_is_contiguous(&g));
  int64_t first, end;
  tern_geometry_bounds(&g, &first, &end);
  assert_int_equal(first, 3);
  assert_int_equal(end, 27);
  g = geometry(2, DIMS(3, 2), DIMS(1, 4), 0);
  assert_false(tern_geometry_is_dense(&g, order));
  assert_int_equal(order[0], 1);
  assert_true(tern_geometry_is_injective(&g));
  g = geometry(2, DIMS(0, 2), DIMS(1, 4), 5);
  tern_geometry_bounds(&g, &first, &end);
  assert_int_equal(end, 0);
  assert_true(tern_geometry_is_contiguous(&g));
  assert_true(tern_geometry_is_dense(&g, NULL));
}

static uint64_t seed = 88172645463325252ull;
static int64_t pick(int64_t below) {
  seed ^= seed << 13, seed ^= seed >> 7, seed ^= seed << 17;
  return (int64_t)(seed % (uint64_t)below);
}

/* A slice that was split, and sliced again within, may be given up (recover.c says so); everything else must be found. */
static struct { bool sliced, split, sliced_again; } history;

/* One of PyTorch's view functions on `g`, where it applies. */
static void random_step(tern_geometry *g) {
  int kind = (int)pick(7), dim = g->rank ? (int)pick(g->rank) : 0;
  if (g->rank == 0) kind = 5;
  switch (kind) {
    case 0: { /* slice */
      int64_t size = g->sizes[dim], start = pick(size + 1), step = 1 + pick(3), n = (size - start + step - 1) / step;
      if (n == 0 && pick(10)) break;
      if (n > 1 && pick(2)) n = 1 + pick(n);
      history.sliced = true;
      history.sliced_again |= history.split;
      g->offset += start * g->strides[dim];
      g->strides[dim] *= step;
      g->sizes[dim] = n;
      break;
    }
    case 1: /* select */
      if (g->sizes[dim] == 0 || g->rank < 2) break;
      g->offset += pick(g->sizes[dim]) * g->strides[dim];
      history.sliced_again |= history.split;
      g->rank--;
      for (int i = dim; i < g->rank; i++) g->sizes[i] = g->sizes[i + 1], g->strides[i] = g->strides[i + 1];
      break;
    case 2: { /* transpose */
      int other = (int)pick(g->rank);
      int64_t size = g->sizes[dim], stride = g->strides[dim];
      g->sizes[dim] = g->sizes[other], g->strides[dim] = g->strides[other];
      g->sizes[other] = size, g->strides[other] = stride;
      break;
    }
    case 3: { /* split a dimension */
      int64_t size = g->sizes[dim], factor = 2 + pick(3);
      if (g->rank == TERN_MAX_TENSOR_RANK || size % factor || size == 0) break;
      for (int i = g->rank; i > dim; i--) g->sizes[i] = g->sizes[i - 1], g->strides[i] = g->strides[i - 1];
      g->rank++;
      history.split |= history.sliced;
      g->sizes[dim] = size / factor, g->sizes[dim + 1] = factor;
      g->strides[dim] = g->strides[dim + 1] * factor;
      break;
    }
    case 4: /* merge two that allow it */
      if (dim + 1 >= g->rank || g->strides[dim] != g->strides[dim + 1] * g->sizes[dim + 1]) break;
      g->sizes[dim] *= g->sizes[dim + 1], g->strides[dim] = g->strides[dim + 1];
      g->rank--;
      for (int i = dim + 1; i < g->rank; i++) g->sizes[i] = g->sizes[i + 1], g->strides[i] = g->strides[i + 1];
      break;
    case 5: /* unsqueeze */
      if (g->rank == TERN_MAX_TENSOR_RANK) break;
      for (int i = g->rank; i > dim; i--) g->sizes[i] = g->sizes[i - 1], g->strides[i] = g->strides[i - 1];
      g->rank++;
      g->sizes[dim] = 1, g->strides[dim] = pick(20);
      break;
    default: /* expand */
      if (g->sizes[dim] == 1 && pick(2)) g->sizes[dim] = 2 + pick(3), g->strides[dim] = 0;
      break;
  }
}

static void test_random_chains_are_recovered(void **state) {
  (void)state;
  int given_up = 0;
  for (int round = 0; round < 100000; round++) {
    int64_t base[4];
    int rank = (int)pick(5);
    for (int i = 0; i < rank; i++) base[i] = 1 + pick(8);
    tern_geometry view;
    tern_view_steps steps;
    tern_geometry_set_contiguous(&view, rank, base, 0);
    memset(&history, 0, sizeof history);
    for (int step = 0, steps_wanted = (int)pick(7); step < steps_wanted; step++) random_step(&view);
    if (tern_geometry_count(&view) > 10000) continue;
    if (history.sliced_again && !tern_view_recover(rank, base, &view, &steps)) given_up++;
    else expect_recovered(rank, base, &view, &steps);
  }
  assert_true(given_up < 100);
}

/* Whatever recover says yes to must be right, also for strides nobody would make. */
static void test_random_strides_are_never_wrong(void **state) {
  (void)state;
  int recovered = 0;
  for (int round = 0; round < 50000; round++) {
    int64_t base[3];
    int rank = 1 + (int)pick(3);
    for (int i = 0; i < rank; i++) base[i] = 1 + pick(6);
    tern_geometry view = {.rank = 1 + (int32_t)pick(3), .offset = pick(6)};
    for (int i = 0; i < view.rank; i++) view.sizes[i] = 1 + pick(4), view.strides[i] = pick(12);
    tern_view_steps steps;
    if (!tern_view_recover(rank, base, &view, &steps)) continue;
    recovered++;
    expect_recovered(rank, base, &view, &steps);
  }
  assert_true(recovered > 1000);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_whole_views_are_identities), cmocka_unit_test(test_a_plain_slice_leaves_the_base_as_it_is), cmocka_unit_test(test_reshapes),
      cmocka_unit_test(test_broadcasts_scalars_and_empty_views), cmocka_unit_test(test_what_cannot_be_recovered), cmocka_unit_test(test_properties),
      cmocka_unit_test(test_random_chains_are_recovered), cmocka_unit_test(test_random_strides_are_never_wrong),
  };
  return cmocka_run_group_tests_name("geometry: recover", tests, NULL, NULL);
}
