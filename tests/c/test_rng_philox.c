/* Philox4x32-10 against the known-answer vectors of the paper's reference implementation (Random123, kat_vectors). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include "../../src/base/base.h"
#include "../../src/rng/philox.h"

static void test_known_answers(void **state) {
  (void)state;
  static const struct { uint32_t counter[4], key[2], expected[4]; } rows[] = {
    {{0, 0, 0, 0}, {0, 0}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
    {{~0u, ~0u, ~0u, ~0u}, {~0u, ~0u}, {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
    {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}, {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
  };
  for (size_t i = 0; i < TERN_COUNT(rows); i++) {
    uint32_t words[4];
    memcpy(words, rows[i].counter, sizeof words);
    tern_philox_rounds(words, rows[i].key[0], rows[i].key[1]);
    assert_memory_equal(words, rows[i].expected, sizeof words);
  }
}

static void test_block_places_seed_and_number(void **state) {
  (void)state;
  uint32_t words[4], expected[4] = {0x89ABCDEF, 0x01234567, 0, 0};
  tern_philox_block(0xFEDCBA9876543210u, 0x0123456789ABCDEFu, words);
  tern_philox_rounds(expected, 0x76543210, 0xFEDCBA98);
  assert_memory_equal(words, expected, sizeof words);
}

/* Not a proof of randomness (the paper has that): a wrong word order or a stuck lane shows here. */
static void test_words_look_uniform(void **state) {
  (void)state;
  int ones[4] = {0};
  enum { BLOCKS = 4096 };
  for (uint64_t n = 0; n < BLOCKS; n++) {
    uint32_t words[4];
    tern_philox_block(1234, n, words);
    for (int lane = 0; lane < 4; lane++) ones[lane] += __builtin_popcount(words[lane]);
  }
  for (int lane = 0; lane < 4; lane++) {
    double z = (ones[lane] - BLOCKS * 16.0) / (0.5 * __builtin_sqrt(BLOCKS * 32.0));
    assert_true(z > -5 && z < 5);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_known_answers),
    cmocka_unit_test(test_block_places_seed_and_number),
    cmocka_unit_test(test_words_look_uniform),
  };
  return cmocka_run_group_tests_name("rng/philox", tests, NULL, NULL);
}
