/* Errors as objects: every code has its row, labels are told apart, prefixes keep the code. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include "base/base.h"

static void every_code_has_a_row(void **state) {
  (void)state;
  for (int c = 0; c < TERN_CODE_COUNT; c++) {
    assert_non_null(tern_code_name((tern_code)c));
    assert_int_equal(strncmp(tern_code_label((tern_code)c), "TERN-", 5), 0);
    for (int other = 0; other < c; other++) assert_string_not_equal(tern_code_label((tern_code)c), tern_code_label((tern_code)other));
  }
  assert_string_equal(tern_code_label(TERN_OUT_OF_MEMORY), "TERN-OOM");
  assert_string_equal(tern_code_name(TERN_OTHER_DEVICE), "OTHER_DEVICE");
  assert_int_equal(tern_code_exception(TERN_INDEX_OUT_OF_RANGE), TERN_RAISES_IndexError);
  assert_string_equal(tern_code_name((tern_code)999), "UNKNOWN");
}

static void a_prefix_keeps_the_code(void **state) {
  (void)state;
  tern_status status = tern_error_prefix(tern_error_new(TERN_TIMEOUT, "after %d s", 3), "waiting for %s", "a chip");
  assert_int_equal(tern_error_code(status), TERN_TIMEOUT);
  assert_string_equal(tern_error_message(status), "waiting for a chip: after 3 s");
  tern_status copy = tern_error_clone(status);
  tern_error_free(status);
  assert_string_equal(tern_error_message(copy), "waiting for a chip: after 3 s");
  tern_error_free(copy);
  assert_null(tern_error_prefix(NULL, "nothing"));
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(every_code_has_a_row), cmocka_unit_test(a_prefix_keeps_the_code)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
