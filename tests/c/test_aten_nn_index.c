/* Indexing with tensors against loops: side by side and apart, negative, broadcast; accumulating; out of range. */
#include "aten_nn_fixture.h"

enum { RANK = 4 };
static const int64_t sizes[RANK] = {3, 4, 2, 5};
enum { COUNT = 3 * 4 * 2 * 5 };

/* One way of indexing: which dimensions have an index tensor, [2, 3] or [3] each. */
typedef struct plan {
  int k, dims[RANK], ranks[RANK];
  int64_t values[RANK][6];
  tensor tensors[RANK];
  tern_tensor list[RANK];
} plan;

static void make_plan(plan *p, unsigned which) {
  static const int64_t index_sizes[2] = {2, 3};
  *p = (plan){0};
  for (int d = 0; d < RANK; d++) {
    if (!(which >> d & 1)) continue;
    int i = p->k++;
    p->dims[i] = d;
    p->ranks[i] = i == 0 ? 2 : 1 + (int)noise_below(2); /* the first is [2, 3], so that all broadcast to that */
    for (int n = 0; n < 6; n++) p->values[i][n] = noise_below(2 * sizes[d]) - sizes[d];
    p->tensors[i] = from_indices(p->ranks[i], index_sizes + 2 - p->ranks[i], p->values[i]);
    p->list[d] = described(&p->tensors[i]);
  }
}

static void drop_plan(plan *p) {
  for (int i = 0; i < p->k; i++) drop(p->tensors[i]);
}

/* NumPy's rule, element by element: gives the result's dims, and for each result element the flat place in x. */
static int64_t enumerate(const plan *p, int *rank, int64_t *dims, int64_t *places) {
  bool adjacent = p->dims[p->k - 1] - p->dims[0] == p->k - 1, indexed[RANK] = {false};
  int kept[RANK], n_kept = 0, before = 0;
  for (int i = 0; i < p->k; i++) indexed[p->dims[i]] = true;
  for (int d = 0; d < RANK; d++)
    if (!indexed[d]) {
      if (adjacent && d < p->dims[0]) before++;
      kept[n_kept++] = d;
    }
  *rank = 0;
  for (int i = 0; i < before; i++) dims[(*rank)++] = sizes[kept[i]];
  dims[(*rank)++] = 2, dims[(*rank)++] = 3;
  for (int i = before; i < n_kept; i++) dims[(*rank)++] = sizes[kept[i]];
  int64_t count = 1, at[RANK + 2];
  for (int d = 0; d < *rank; d++) count *= dims[d];
  for (int64_t e = 0; e < count; e++) {
    int64_t rest = e, position[RANK], flat = 0;
    for (int d = *rank - 1; d >= 0; d--) at[d] = rest % dims[d], rest /= dims[d];
    for (int i = 0; i < n_kept; i++) position[kept[i]] = at[i < before ? i : i + 2];
    for (int i = 0; i < p->k; i++) {
      int64_t index = p->values[i][p->ranks[i] == 2 ? at[before] * 3 + at[before + 1] : at[before + 1]];
      position[p->dims[i]] = index < 0 ? index + sizes[p->dims[i]] : index;
    }
    for (int d = 0; d < RANK; d++) flat = flat * sizes[d] + position[d];
    places[e] = flat;
  }
  return count;
}

static void every_way_of_reading(void **state) {
  (void)state;
  float x[COUNT], got[1024];
  int64_t dims[RANK + 2], places[1024];
  for (unsigned which = 1; which < 1u << RANK; which++) {
    plan p;
    int rank;
    tensor t = noisy(RANK, sizes, x);
    make_plan(&p, which);
    int64_t count = enumerate(&p, &rank, dims, places);
    MUST("index.Tensor", of(&t), list_of(p.list, RANK));
    assert_int_equal(asked.made[0].view.rank, rank);
    assert_memory_equal(asked.made[0].view.sizes, dims, (size_t)rank * sizeof *dims);
    read_floats(asked.made[0], got);
    for (int64_t i = 0; i < count; i++) assert_true(got[i] == x[places[i]]);
    drop_results(), drop_plan(&p), drop(t);
  }
}

static void every_way_of_writing(void **state) {
  (void)state;
  float x[COUNT], values[1024], got[COUNT];
  double expected[COUNT];
  int64_t dims[RANK + 2], places[1024];
  for (unsigned which = 1; which < 1u << RANK; which++)
    for (int accumulate = 0; accumulate < 2; accumulate++) {
      plan p;
      int rank;
      tensor t = noisy(RANK, sizes, x);
      make_plan(&p, which);
      int64_t count = enumerate(&p, &rank, dims, places);
      tensor v = noisy(rank, dims, values);
      for (int i = 0; i < COUNT; i++) expected[i] = (double)x[i];
      for (int64_t i = 0; i < count; i++) expected[places[i]] = (accumulate ? expected[places[i]] : 0) + (double)values[i];
      MUST("index_put_", of(&t), list_of(p.list, RANK), of(&v), truth(accumulate));
      if (accumulate) {
        expect_near(t, expected, 1e-6);
      } else { /* the last of equal places wins */
        read_floats(t, got);
        for (int i = 0; i < COUNT; i++) assert_true((double)got[i] == expected[i]);
      }
      drop(v), drop_plan(&p), drop(t);
    }
}

static void masks_read_what_they_keep_and_write_a_number_where_they_say(void **state) {
  (void)state;
  static const int64_t six[1] = {6}, none_left[1] = {1};
  static const float x[6] = {1, 2, 3, 4, 5, 6}, seven[1] = {7};
  static const uint8_t bits[6] = {0, 1, 0, 0, 1, 1};
  tensor t = from_floats(1, six, x), mask = empty_on(the_device(), TERN_BOOL, 1, six), value = from_floats(1, none_left, seven);
  must(tern_buffer_write(mask.buffer, TERN_BOOL, 1, six, bits));
  tern_tensor list[1] = {described(&mask)};
  MUST("index.Tensor", of(&t), list_of(list, 1)); /* its size depends on the data, which are read */
  EXPECT(asked.made[0], 2, 5, 6);
  drop_results();
  MUST("index_put_", of(&t), list_of(list, 1), of(&value), truth(false));
  EXPECT(t, 1, 7, 3, 4, 7, 7);
  drop(t), drop(mask), drop(value);
}

/* A bad index fails the launch before anything is written. */
static void out_of_range_changes_nothing(void **state) {
  (void)state;
  static const int64_t two[1] = {2}, shape[2] = {3, 2};
  static const float x[6] = {1, 2, 3, 4, 5, 6};
  static const int64_t bad[3][2] = {{0, 3}, {-4, 0}, {1, -1}};
  const struct {
    const char *name;
    const int64_t *index;
    bool fails;
  } cases[] = {
      {"index_put_", bad[0], true}, {"index_put_", bad[1], true}, {"index_put_", bad[2], false}, {"index_add_", bad[0], true}, {"index_add_", bad[2], true}};
  for (size_t i = 0; i < TERN_COUNT(cases); i++) {
    float got[6];
    tensor t = from_floats(2, shape, x), index = from_indices(1, two, cases[i].index), v = from_floats(2, (const int64_t[]){2, 2}, x);
    tern_tensor list[1] = {described(&index)};
    if (strcmp(cases[i].name, "index_add_") == 0)
      MUST("index_add_", of(&t), integer(0), of(&index), of(&v), integer(1));
    else
      MUST("index_put_", of(&t), list_of(list, 1), of(&v), truth(false));
    tern_status status = tern_device_synchronize(the_device());
    assert_int_equal(tern_error_code(status), cases[i].fails ? TERN_INDEX_OUT_OF_RANGE : TERN_OK);
    tern_error_free(status);
    if (cases[i].fails) {
      status = tern_buffer_read(t.buffer, 0, sizeof got, got);
      if (!status) assert_memory_equal(got, x, sizeof got);
      tern_error_free(status);
    }
    drop(t), drop(index), drop(v);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(every_way_of_reading),
      cmocka_unit_test(every_way_of_writing),
      cmocka_unit_test(masks_read_what_they_keep_and_write_a_number_where_they_say),
      cmocka_unit_test(out_of_range_changes_nothing),
  };
  return cmocka_run_group_tests(tests, NULL, release_last);
}
