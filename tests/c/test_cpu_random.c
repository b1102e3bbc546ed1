/* PHILOX against src/rng/philox.h, word by word. */
#include "../../src/rng/philox.h"
#include "kernel_check.h"

static void test_words(void **state) {
  (void)state;
  const int64_t sizes[] = {0, 1, 3, 4, 63, 64, 65, 8191, 8192, 8193, 20001};
  const uint64_t seed = 0xC0FFEE1234567890u, offsets[] = {0, 7, 0xFFFFFFF0u, UINT64_MAX - 5}; /* the counter's low word runs over; so does all of it */
  for (size_t s = 0; s < TERN_COUNT(sizes); s++)
    for (size_t o = 0; o < TERN_COUNT(offsets); o++) {
      tern_cpu_view in[2] = {array_new(TERN_I64, 0, NULL), array_new(TERN_I64, 0, NULL)}, out = array_new(TERN_U32, DIMS(sizes[s]));
      memcpy(in[0].data, &seed, 8);
      memcpy(in[1].data, &offsets[o], 8);
      FOR_EACH_ISA(table) {
        kernel_run(table, TERN_OP_PHILOX, &(tern_attrs){0}, 2, in, 1, &out);
        for (int64_t i = 0; i < sizes[s]; i++) {
          uint32_t words[4];
          tern_philox_block(seed, offsets[o] + (uint64_t)i / 4, words);
          assert_int_equal(((uint32_t *)out.data)[i], words[i % 4]);
        }
      }
      arrays_free();
    }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test_teardown(test_words, teardown_arrays)};
  return cmocka_run_group_tests_name("cpu/random", tests, NULL, NULL);
}
