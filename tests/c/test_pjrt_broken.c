/* Plug-ins that are broken on purpose (tests/plugins): each must become an error in words, in bounded time, with this process alive. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <unistd.h>
#include "../../src/pjrt/pjrt.h"

#ifndef TERN_TEST_PLUGINS
#define TERN_TEST_PLUGINS "tests/plugins"
#endif

static char path[4096];
static const char *plugin(const char *name) {
  snprintf(path, sizeof path, "%s/%s.so", TERN_TEST_PLUGINS, name);
  if (access(path, R_OK)) {
    print_message("skipped: %s is not built\n", path);
    skip();
  }
  return path;
}

/* `status` must have the code and say both pieces of text. Frees it. */
static void expect(tern_status status, tern_code code, const char *piece, const char *other) {
  if (!status) fail_msg("no error where %s was expected", tern_code_name(code));
  if (tern_error_code(status) != code)
    fail_msg("%s instead of %s: %s", tern_code_name(tern_error_code(status)), tern_code_name(code), tern_error_message(status));
  if (!strstr(tern_error_message(status), piece)) fail_msg("'%s' is not in: %s", piece, tern_error_message(status));
  if (other && !strstr(tern_error_message(status), other)) fail_msg("'%s' is not in: %s", other, tern_error_message(status));
  tern_error_free(status);
}

static void test_refused(void **state) {
  (void)state;
  static const struct {
    const char *name;
    tern_code code;
    const char *piece, *other;
  } cases[] = {
      {"wrong_version", TERN_PLUGIN_FAILED, "version 7.81", "an older plug-in"},
      {"too_old", TERN_PLUGIN_FAILED, "version 0.28", "a newer plug-in"},
      {"short_table", TERN_PLUGIN_FAILED, "has no PJRT_Client_Compile", NULL},
      {"missing_entry", TERN_PLUGIN_FAILED, "has no PJRT_Buffer_ToHostBuffer", NULL},
      {"not_a_plugin", TERN_PLUGIN_FAILED, "no GetPjrtApi", "not_a_plugin.so"},
      {"no_table", TERN_PLUGIN_FAILED, "returned NULL", NULL},
      {"crash_load", TERN_PLUGIN_FAILED, "crashed (Aborted)", "being loaded"},
      {"crash_initialize", TERN_PLUGIN_FAILED, "crashed (Segmentation fault)", "the driver is about to fall over"},
      {"exit_create", TERN_PLUGIN_FAILED, "ended the process (exit status 3)", "no licence found"},
      {"error_create", TERN_PLUGIN_FAILED, "FAILED_PRECONDITION", "no chip on this machine"},
      {"no_devices", TERN_PLUGIN_FAILED, "no device", NULL},
  };
  for (size_t c = 0; c < TERN_COUNT(cases); c++) {
    tern_backend_device *device = NULL;
    expect(tern_pjrt_backend.open(plugin(cases[c].name), 0, &device), cases[c].code, cases[c].piece, cases[c].other);
    assert_null(device);
    int count = -1;
    expect(tern_pjrt_backend.device_count(plugin(cases[c].name), &count), cases[c].code, cases[c].piece, NULL);
    assert_int_equal(count, 0);
  }
}

static void test_hang(void **state) {
  (void)state;
  tern_setting_override(TERN_SETTING_PLUGIN_TIMEOUT, "1");
  tern_backend_device *device = NULL;
  double begin = tern_now();
  expect(tern_pjrt_backend.open(plugin("hang_create"), 0, &device), TERN_TIMEOUT, "PJRT_Client_Create", "waiting for the metadata server");
  double seconds = tern_now() - begin;
  tern_setting_override(TERN_SETTING_PLUGIN_TIMEOUT, NULL);
  assert_true(seconds > 0.9 && seconds < 5);
}

static void test_not_found(void **state) {
  (void)state;
  tern_backend_device *device = NULL;
  tern_setting_override(TERN_SETTING_PLUGIN_PATH, "/nowhere:named=/nowhere/named.so");
  expect(tern_pjrt_backend.open("tpu", 0, &device), TERN_NOT_FOUND, "pip install libtpu", "/nowhere");
  expect(tern_pjrt_backend.open("CUDA", 0, &device), TERN_NOT_FOUND, "pip install jax-cuda12-pjrt", NULL);
  expect(tern_pjrt_backend.open("frobnicator", 0, &device), TERN_NOT_FOUND, "frobnicator.so", "xla-cpu");
  expect(tern_pjrt_backend.open("named", 0, &device), TERN_NOT_FOUND, "/nowhere/named.so", NULL);
  expect(tern_pjrt_backend.open("/nowhere/plugin.so", 0, &device), TERN_NOT_FOUND, "does not exist", NULL);
  tern_setting_override(TERN_SETTING_PLUGIN_PATH, NULL);
}

static void test_found(void **state) {
  (void)state;
  char setting[8192], *found;
  snprintf(setting, sizeof setting, "/nowhere:my_chip=%s", plugin("out_of_memory"));
  tern_setting_override(TERN_SETTING_PLUGIN_PATH, setting);
  assert_null(tern_pjrt_find("my-chip", &found));
  assert_non_null(strstr(found, "/out_of_memory.so"));
  free(found);
  tern_setting_override(TERN_SETTING_PLUGIN_PATH, TERN_TEST_PLUGINS);
  assert_null(tern_pjrt_find("late-failure", &found));
  assert_non_null(strstr(found, "/late_failure.so"));
  free(found);
  /* Known as "tpu", listed under its package's name: found by its place. */
  tern_setting_override(TERN_SETTING_PLUGIN_PATH, "libtpu=/nowhere/site-packages/libtpu/libtpu.so");
  expect(tern_pjrt_find("tpu", &found), TERN_NOT_FOUND, "no PJRT plug-in at '/nowhere/site-packages/libtpu/libtpu.so'", "for 'tpu'");
  tern_setting_override(TERN_SETTING_PLUGIN_PATH, NULL);
}

/* x + 1, over x's storage. */
static tern_executable *compile_increment(tern_backend_device *device, tern_status *status) {
  tern_program *p;
  tern_executable *executable = NULL;
  assert_null(tern_program_new(&p));
  int64_t dims[] = {4};
  tern_value x = tern_parameter(p, TERN_F32, 1, dims);
  tern_result(p, tern_add(p, x, tern_constant_float(p, TERN_F32, 0, NULL, 1)), 0);
  assert_null(tern_program_finish(p));
  *status = tern_pjrt_backend.compile(device, p, &executable);
  tern_program_free(p);
  return executable;
}

static void test_errors_everywhere(void **state) {
  (void)state;
  const tern_backend *b = &tern_pjrt_backend;
  tern_backend_device *device;
  tern_status status = b->open(plugin("error_everywhere"), 0, &device);
  assert_null(status);
  tern_backend_info info;
  tern_backend_stats stats;
  b->info(device, &info);
  b->stats(device, &stats);
  assert_string_equal(info.name, "broken");
  tern_memory *memory = NULL;
  float host[4] = {0};
  int64_t dims[] = {4};
  expect(b->upload(device, TERN_F32, 1, dims, host, &memory), TERN_PLUGIN_FAILED, "Client_BufferFromHostBuffer is broken", NULL);
  expect(b->allocate(device, TERN_F32, 1, dims, &memory), TERN_PLUGIN_FAILED, "is broken", NULL);
  compile_increment(device, &status);
  expect(status, TERN_PLUGIN_FAILED, "Client_Compile is broken", NULL);
  expect(b->open(path, 1, &device), TERN_NO_DEVICE, "device 1", NULL);
  b->stats(device, &stats);
  assert_int_equal(stats.bytes_in_use, 0);
  b->close(device);
}

static void test_out_of_memory(void **state) {
  (void)state;
  const tern_backend *b = &tern_pjrt_backend;
  tern_backend_device *device;
  assert_null(b->open(plugin("out_of_memory"), 0, &device));
  float host[4] = {1, 2, 3, 4}, back[4] = {0};
  int64_t dims[] = {4}, many[] = {100000};
  tern_memory *memory, *none = NULL, *output = NULL;
  assert_null(b->upload(device, TERN_F32, 1, dims, host, &memory));
  expect(b->allocate(device, TERN_F32, 1, many, &none), TERN_OUT_OF_MEMORY, "HBM is full", NULL);
  tern_status status;
  tern_executable *executable = compile_increment(device, &status);
  assert_null(status);
  bool donated = true;
  tern_launch launch = {.inputs = &memory, .donated = &donated, .outputs = &output};
  expect(b->execute(executable, &launch), TERN_OUT_OF_MEMORY, "HBM is full", "PJRT_LoadedExecutable_Execute");
  assert_null(output);
  assert_null(b->download(device, memory, back, sizeof back)); /* as it was */
  assert_memory_equal(host, back, sizeof host);
  b->release(device, memory);
  tern_backend_stats stats;
  b->stats(device, &stats);
  assert_int_equal(stats.bytes_in_use, 0);
  assert_int_equal(stats.allocations, 0);
  b->release_executable(executable);
  b->close(device);
}

static void test_late_failure(void **state) {
  (void)state;
  const tern_backend *b = &tern_pjrt_backend;
  tern_backend_device *device;
  assert_null(b->open(plugin("late_failure"), 0, &device));
  float host[4] = {1, 2, 3, 4}, back[4];
  int64_t dims[] = {4};
  tern_memory *memory, *output = NULL;
  tern_status status;
  tern_executable *executable = compile_increment(device, &status);
  assert_null(status);
  assert_null(b->upload(device, TERN_F32, 1, dims, host, &memory));
  bool donated = false;
  tern_launch launch = {.inputs = &memory, .donated = &donated, .outputs = &output};
  expect(b->execute(executable, &launch), TERN_PLUGIN_FAILED, "the work behind this event failed", NULL);
  assert_null(b->download(device, memory, back, sizeof back)); /* not donated: untouched */
  assert_memory_equal(host, back, sizeof host);
  donated = true;
  expect(b->execute(executable, &launch), TERN_PLUGIN_FAILED, "the work behind this event failed", NULL);
  expect(b->download(device, memory, back, sizeof back), TERN_PLUGIN_FAILED, "were lost", NULL);
  expect(b->execute(executable, &launch), TERN_PLUGIN_FAILED, "were lost", NULL);
  b->release(device, memory);
  b->release_executable(executable);
  b->close(device);
}

static void test_limit(void **state) {
  (void)state;
  const tern_backend *b = &tern_pjrt_backend;
  tern_setting_override(TERN_SETTING_MEMORY_LIMIT, "1K");
  tern_backend_device *device;
  assert_null(b->open(plugin("late_failure"), 0, &device));
  tern_setting_override(TERN_SETTING_MEMORY_LIMIT, NULL);
  int64_t dims[] = {200}, empty[] = {0, 7};
  tern_memory *memory, *more = NULL;
  assert_null(b->allocate(device, TERN_F32, 1, dims, &memory));
  expect(b->allocate(device, TERN_F32, 1, dims, &more), TERN_OUT_OF_MEMORY, "800 bytes in use", "1.00 KiB");
  b->release(device, memory);
  assert_null(b->allocate(device, TERN_F32, 2, empty, &memory)); /* never reaches the plug-in */
  assert_int_equal(b->size(memory), 0);
  assert_null(b->download(device, memory, NULL, 0));
  b->release(device, memory);
  b->close(device);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_refused),           cmocka_unit_test(test_hang),          cmocka_unit_test(test_not_found),    cmocka_unit_test(test_found),
      cmocka_unit_test(test_errors_everywhere), cmocka_unit_test(test_out_of_memory), cmocka_unit_test(test_late_failure), cmocka_unit_test(test_limit)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
