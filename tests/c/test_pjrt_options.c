/* Compile options byte for byte: what XLA parses must be what it was told. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include "pjrt/pjrt.h"

static void expect(int partitions, const int *ids, bool overrides, const unsigned char *bytes, size_t n) {
  char *options;
  size_t size;
  assert_null(tern_pjrt_compile_options(partitions, ids, overrides, &options, &size));
  assert_int_equal(size, n);
  assert_memory_equal(options, bytes, n);
  free(options);
}

static void test_one_device(void **state) {
  (void)state;
  expect(1, NULL, false, (unsigned char[]){0x1A, 4, 0x20, 1, 0x28, 1}, 6);
  /* Device 300: a varint of two bytes. */
  expect(1, &(int){300}, false, (unsigned char[]){0x1A, 16, 0x20, 1, 0x28, 1, 0x4A, 10, 8, 1, 0x10, 1, 0x1A, 4, 0x0A, 2, 0xAC, 2}, 18);
}

static void test_four_partitions(void **state) {
  (void)state;
  static const unsigned char bytes[] = {0x1A, 0x23, 0x20, 1, 0x28, 4, 0x30, 1, 0x4A, 0x18, 8, 1, 0x10, 4, 0x1A, 3, 0x0A, 1, 0, 0x1A, 3, 0x0A, 1, 1, 0x1A, 3, 0x0A, 1, 2,
                                        0x1A, 3, 0x0A, 1, 3, 0x98, 1, 1};
  expect(4, (int[]){0, 1, 2, 3}, false, bytes, sizeof bytes);
}

static void test_overrides(void **state) {
  (void)state;
  static const char name[] = "xla_allow_excess_precision";
  unsigned char bytes[64] = {0x1A, 4, 0x20, 1, 0x28, 1, 0x3A, 32, 0x0A, 26};
  memcpy(bytes + 10, name, 26);
  memcpy(bytes + 36, (unsigned char[]){0x12, 2, 0x10, 0}, 4);
  expect(1, NULL, true, bytes, 40);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_one_device), cmocka_unit_test(test_four_partitions), cmocka_unit_test(test_overrides)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
