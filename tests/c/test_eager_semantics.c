/* Deferred execution from C: what a program of separate statements must mean, whatever is cut, fused or left out. */
#include "eager_fixture.h"

static void computes(void **state) {
  (void)state;
  tensor x = vector(4, (float[]){1, -2, 3, -4}), y = vector(4, (float[]){10, 10, 10, 10});
  tensor product = mul(x, y), sum = add(product, x), z = relu(sum);
  EXPECT(z, 11, 0, 33, 0);
  EXPECT(z, 11, 0, 33, 0); /* read again: nothing pending */
  drop(x), drop(y), drop(product), drop(sum), drop(z);
}

static void a_write_after_a_recorded_read_does_not_change_the_read(void **state) {
  (void)state;
  tensor x = vector(3, (float[]){1, 2, 3});
  tensor q = mul(x, x);
  fill(x, 0);
  tensor after = add(x, x);
  EXPECT(q, 1, 4, 9);
  EXPECT(after, 0, 0, 0);
  EXPECT(x, 0, 0, 0);
  drop(x), drop(q), drop(after);
}

static void a_host_write_comes_after_what_was_recorded(void **state) {
  (void)state;
  tensor x = vector(2, (float[]){1, 2});
  tensor y = add(x, x);
  int64_t n = 2;
  must(tern_buffer_write(x.buffer, TERN_F32, 1, &n, (float[]){5, 6}));
  tensor z = add(x, x);
  EXPECT(y, 2, 4);
  EXPECT(z, 10, 12);
  drop(x), drop(y), drop(z);
}

static void writes_through_views(void **state) {
  (void)state;
  tensor x = vector(8, (float[]){0, 1, 2, 3, 4, 5, 6, 7});
  fill(slice(x, 1, 3, 2), 100); /* 1, 3, 5 */
  EXPECT(x, 0, 100, 2, 100, 4, 100, 6, 7);
  add_to(slice(x, 0, 4, 1), slice(x, 4, 4, 1));
  EXPECT(x, 4, 200, 8, 107, 4, 100, 6, 7);
  /* transposed rows of a matrix */
  tensor m = from_floats(2, (int64_t[]){2, 3}, (float[]){1, 2, 3, 4, 5, 6});
  tensor t = view(m, 2, (int64_t[]){3, 2}, (int64_t[]){1, 3}, 0);
  EXPECT(t, 1, 4, 2, 5, 3, 6);
  copy_to(view(m, 2, (int64_t[]){2, 2}, (int64_t[]){1, 3}, 1), view(m, 2, (int64_t[]){2, 2}, (int64_t[]){3, 1}, 0));
  EXPECT(m, 1, 1, 4, 4, 2, 5);
  drop(x), drop(m);
}

static void overlapping_reads_and_writes(void **state) {
  (void)state;
  /* A node reads all it needs before it writes: shifting in place is exact. */
  tensor x = vector(6, (float[]){1, 2, 3, 4, 5, 6});
  copy_to(slice(x, 1, 5, 1), slice(x, 0, 5, 1));
  EXPECT(x, 1, 1, 2, 3, 4, 5);
  /* Overlapping windows (as_strided) are no slice: they are gathered. */
  tensor windows = view(x, 2, (int64_t[]){4, 3}, (int64_t[]){1, 1}, 0);
  tensor copy = empty_on(the_device(), TERN_F32, 2, (int64_t[]){4, 3});
  copy_to(copy, windows);
  EXPECT(copy, 1, 1, 2, 1, 2, 3, 2, 3, 4, 3, 4, 5);
  /* An expanded operand. */
  tensor row = view(x, 2, (int64_t[]){2, 3}, (int64_t[]){0, 1}, 3);
  tensor wide = empty_on(the_device(), TERN_F32, 2, (int64_t[]){2, 3});
  copy_to(wide, row);
  EXPECT(wide, 3, 4, 5, 3, 4, 5);
  drop(x), drop(copy), drop(wide);
}

static void results_nobody_sees_are_not_kept(void **state) {
  (void)state;
  tern_eager_stats before, after;
  tensor x = vector(2, (float[]){1, 2});
  must(tern_synchronize_all());
  tern_stats(&before);
  tensor a = add(x, x), b = mul(a, a), c = add(b, x);
  drop(a), drop(b);
  EXPECT(c, 5, 18);
  tern_stats(&after);
  assert_int_equal(after.live_buffers - before.live_buffers, 1);
  assert_int_equal(after.live_versions - before.live_versions, 1);
  assert_int_equal(after.programs - before.programs, 1);
  drop(x), drop(c);
}

static void scalars_are_not_part_of_the_key(void **state) {
  (void)state;
  tern_eager_stats before, after;
  tensor x = vector(2, (float[]){1, 2});
  tensor warm = scale(x, 0.1f);
  EXPECT(warm, 0.1f, 0.2f);
  tern_stats(&before);
  for (int i = 1; i <= 1000; i++) {
    tensor y = scale(x, (float)i);
    float got[2];
    read_floats(y, got);
    assert_true(got[0] == (float)i && got[1] == (float)i * 2);
    drop(y);
  }
  tern_stats(&after);
  assert_int_equal(after.compiled - before.compiled, 0);
  assert_int_equal(after.programs - before.programs, 1000);
  drop(x), drop(warm);
}

static void strict_equals_fused(void **state) {
  (void)state;
  float values[64], fused[64], strict[64];
  for (int i = 0; i < 64; i++) values[i] = 0.37f * (float)(i - 30);
  for (int mode = 0; mode < 2; mode++) {
    tern_mode_set(mode ? TERN_MODE_STRICT : TERN_MODE_FUSED);
    tensor x = vector(64, values);
    tensor square = mul(x, x), scaled = scale(x, 0.3f), y = add(square, scaled), positive = relu(y);
    add_to(y, positive);
    read_floats(y, mode ? strict : fused);
    drop(x), drop(square), drop(scaled), drop(y), drop(positive);
  }
  tern_mode_set(TERN_MODE_FUSED);
  assert_memory_equal(fused, strict, sizeof fused);
}

static void storages_resize_and_reinterpret(void **state) {
  (void)state;
  tensor x = vector(4, (float[]){1, 2, 3, 4});
  must(tern_buffer_resize(x.buffer, 6 * sizeof(float)));
  fill(slice(x, 4, 2, 1), 9);
  x.view.sizes[0] = 6;
  EXPECT(x, 1, 2, 3, 4, 9, 9);
  /* The same bytes as i32 and as bytes. */
  tensor bits = x;
  bits.dtype = TERN_I32;
  tensor copy = empty_on(the_device(), TERN_I32, 1, (int64_t[]){6});
  copy_to(copy, bits);
  int32_t got[6];
  must(tern_buffer_read(copy.buffer, 0, sizeof got, got));
  assert_int_equal(got[0], 0x3F800000);
  tensor bytes = view(x, 1, (int64_t[]){4}, (int64_t[]){1}, 4);
  bytes.dtype = TERN_U8;
  tensor byte_copy = empty_on(the_device(), TERN_U8, 1, (int64_t[]){4});
  copy_to(byte_copy, bytes);
  uint8_t four[4];
  must(tern_buffer_read(byte_copy.buffer, 0, 4, four));
  assert_memory_equal(four, ((uint8_t[]){0, 0, 0, 0x40}), 4);
  must(tern_buffer_resize(x.buffer, 0));
  must(tern_buffer_resize(x.buffer, 8));
  fill(slice(x, 0, 2, 1), 5);
  EXPECT(slice(x, 0, 2, 1), 5, 5);
  drop(x), drop(copy), drop(byte_copy);
}

static void empty_tensors(void **state) {
  (void)state;
  tensor x = empty_on(the_device(), TERN_F32, 2, (int64_t[]){0, 3}), y = add(x, x);
  must(tern_device_synchronize(the_device()));
  assert_int_equal(tern_buffer_address(y.buffer), 0);
  tensor z = vector(3, (float[]){1, 2, 3});
  copy_to(slice(z, 1, 0, 1), slice(z, 0, 0, 1)); /* writes nothing */
  EXPECT(z, 1, 2, 3);
  drop(x), drop(y), drop(z);
}

static void contents_nobody_wrote_read_as_zero(void **state) {
  (void)state;
  tensor x = empty_on(the_device(), TERN_F32, 1, (int64_t[]){3});
  fill(slice(x, 1, 1, 1), 7);
  EXPECT(x, 0, 7, 0);
  drop(x);
}

static void mapped_memory_is_the_storage(void **state) {
  (void)state;
  tensor x = vector(3, (float[]){1, 2, 3}), y = add(x, x);
  void *memory;
  must(tern_buffer_map(x.buffer, &memory));
  ((float *)memory)[0] = 50;
  tensor z = add(x, x);
  EXPECT(y, 2, 4, 6);
  EXPECT(z, 100, 4, 6);
  drop(x), drop(y), drop(z);
}

static int released;
static void count_release(void *owner) { *(int *)owner += 1; }

static void adopted_memory_is_not_copied(void **state) {
  (void)state;
  static _Alignas(64) float host[4] = {1, 2, 3, 4};
  tensor x = {.dtype = TERN_F32};
  must(tern_buffer_adopt(the_device(), host, sizeof host, count_release, &released, &x.buffer));
  tern_geometry_set_contiguous(&x.view, 1, (int64_t[]){4}, 0);
  void *memory;
  must(tern_buffer_map(x.buffer, &memory));
  assert_ptr_equal(memory, host);
  tensor y = add(x, x);
  EXPECT(y, 2, 4, 6, 8);
  assert_int_equal(released, 0);
  drop(x), drop(y);
  assert_int_equal(released, 1);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(computes),
      cmocka_unit_test(a_write_after_a_recorded_read_does_not_change_the_read),
      cmocka_unit_test(a_host_write_comes_after_what_was_recorded),
      cmocka_unit_test(writes_through_views),
      cmocka_unit_test(overlapping_reads_and_writes),
      cmocka_unit_test(results_nobody_sees_are_not_kept),
      cmocka_unit_test(scalars_are_not_part_of_the_key),
      cmocka_unit_test(strict_equals_fused),
      cmocka_unit_test(storages_resize_and_reinterpret),
      cmocka_unit_test(empty_tensors),
      cmocka_unit_test(contents_nobody_wrote_read_as_zero),
      cmocka_unit_test(mapped_memory_is_the_storage),
      cmocka_unit_test(adopted_memory_is_not_copied),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
