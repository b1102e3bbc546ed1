/* Draws: reserved when recorded, equal for equal seeds, in no program's key; dropout's mask; permutations. */
#include "aten_nn_fixture.h"

enum { COUNT = 1000 };
static const int64_t sizes[1] = {COUNT};

static void uniform(tensor t, double from, double to) { MUST("uniform_", of(&t), number(from), number(to), none()); }

static void the_stream_moves_when_a_draw_is_recorded(void **state) {
  (void)state;
  float first[COUNT], second[COUNT], again[COUNT];
  tensor a = empty_on(the_device(), TERN_F32, 1, sizes), b = empty_on(the_device(), TERN_F32, 1, sizes);
  tern_stream_set(tern_device_stream(the_device()), 42, 0);
  uniform(a, 0, 1), uniform(b, 0, 1);
  read_floats(a, first), read_floats(b, second);
  assert_memory_not_equal(first, second, sizeof first);
  /* The same, but nobody reads the first draw. */
  tern_stream_set(tern_device_stream(the_device()), 42, 0);
  uniform(a, 0, 1);
  drop(a);
  uniform(b, 0, 1);
  read_floats(b, again);
  assert_memory_equal(second, again, sizeof second);
  drop(b);
}

static void uniform_numbers_fill_their_range(void **state) {
  (void)state;
  float got[COUNT];
  double sum = 0;
  tensor t = empty_on(the_device(), TERN_F32, 1, sizes);
  tern_stream_set(tern_device_stream(the_device()), 7, 0);
  uniform(t, -2, 4);
  read_floats(t, got);
  for (int i = 0; i < COUNT; i++) {
    assert_true(got[i] >= -2 && got[i] < 4);
    sum += (double)got[i] / COUNT;
  }
  assert_true(sum > 0.8 && sum < 1.2);
  assert_int_equal(RUN("uniform_", of(&t), number(1), number(0), none()), TERN_REJECT); /* PyTorch says what is wrong */
  drop(t);
}

static void seeds_and_bounds_compile_nothing(void **state) {
  (void)state;
  tensor t = empty_on(the_device(), TERN_F32, 1, sizes);
  tern_eager_stats before, after;
  for (int i = 0; i < 4; i++) {
    tern_stream_set(tern_device_stream(the_device()), i, 0);
    uniform(t, -i, i);
    must(tern_device_synchronize(the_device()));
    tern_stats(i < 2 ? &before : &after); /* the first draw found an empty buffer */
  }
  assert_int_equal(before.compiled, after.compiled);
  drop(t);
}

static void dropout_scales_what_it_keeps(void **state) {
  (void)state;
  float ones[COUNT], got[COUNT];
  uint8_t mask[COUNT];
  int kept = 0;
  for (int i = 0; i < COUNT; i++) ones[i] = 1;
  tensor x = from_floats(1, sizes, ones);
  tern_stream_set(tern_device_stream(the_device()), 3, 0);
  MUST("native_dropout", of(&x), number(0.25), truth(true));
  read_floats(asked.made[0], got);
  must(tern_buffer_read(asked.made[1].buffer, 0, sizeof mask, mask));
  for (int i = 0; i < COUNT; i++) {
    assert_true(got[i] == (mask[i] ? (float)(1 / 0.75) : 0));
    kept += mask[i];
  }
  assert_true(kept > 680 && kept < 820);
  drop_results(), drop(x);
}

static void integers_stay_between_their_bounds(void **state) {
  (void)state;
  int64_t got[COUNT];
  int seen[6] = {0};
  tensor t = empty_on(the_device(), TERN_I64, 1, sizes);
  MUST("random_.from", of(&t), integer(-2), integer(4), none());
  must(tern_buffer_read(t.buffer, 0, sizeof got, got));
  for (int i = 0; i < COUNT; i++) {
    assert_true(got[i] >= -2 && got[i] < 4);
    seen[got[i] + 2]++;
  }
  for (int i = 0; i < 6; i++) assert_true(seen[i] > COUNT / 12);
  drop(t);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(the_stream_moves_when_a_draw_is_recorded), cmocka_unit_test(uniform_numbers_fill_their_range),
      cmocka_unit_test(seeds_and_bounds_compile_nothing),         cmocka_unit_test(dropout_scales_what_it_keeps),
      cmocka_unit_test(integers_stay_between_their_bounds),
  };
  return cmocka_run_group_tests(tests, NULL, release_last);
}
