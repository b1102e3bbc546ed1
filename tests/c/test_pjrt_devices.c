/* Two devices of one plug-in: one client, arrays and executables of each device its own. And what the backend says of a device. */
#include "pjrt_fixture.h"

static void test_two_devices(void **state) {
  (void)state;
  NEED_DEVICE();
  int count;
  const char *spec = getenv("TERN_TEST_PLUGIN") ? getenv("TERN_TEST_PLUGIN") : "xla-cpu";
  expect_ok(backend->device_count(spec, &count));
  assert_int_equal(count, 2);
  tern_backend_device *devices[2] = {device, NULL};
  expect_ok(backend->open(spec, 1, &devices[1]));
  assert_ptr_equal(devices[0]->client, devices[1]->client);
  for (int d = 0; d < 2; d++) {
    tern_program *p = begin();
    tern_value x = tern_parameter(p, TERN_F32, 1, DIMS(3));
    tern_result(p, tern_multiply(p, x, tern_scalar(p, TERN_F32)), 0);
    expect_ok(tern_program_finish(p));
    tern_executable *executable;
    expect_ok(backend->compile(devices[d], p, &executable));
    tern_program_free(p);
    float host[3] = {1, 2, 3}, factor = (float)(d + 2);
    uint64_t scalar = 0;
    memcpy(&scalar, &factor, 4);
    tern_memory *memory, *output;
    expect_ok(backend->upload(devices[d], TERN_F32, 1, DIMS(3), host, &memory));
    bool donated = true;
    tern_launch launch = {.inputs = &memory, .donated = &donated, .scalars = &scalar, .outputs = &output};
    expect_ok(backend->execute(executable, &launch));
    expect_ok(backend->download(devices[d], output, host, sizeof host));
    for (int i = 0; i < 3; i++) assert_true(host[i] == factor * (float)(i + 1));
    backend->release(devices[d], output);
    backend->release_executable(executable);
  }
  tern_backend_device *none = NULL;
  tern_status status = backend->open(spec, 2, &none);
  assert_int_equal(tern_error_code(status), TERN_NO_DEVICE);
  tern_error_free(status);
  backend->close(devices[1]);
}

static char printed[65536];
static void collect(const char *text) { strncat(printed, text, sizeof printed - strlen(printed) - 1); }
static const char *describe(const void *context, uint32_t tag) {
  (void)context;
  return tag == 5 ? "train.py:12 (step)" : NULL;
}

static void test_info_and_print(void **state) {
  (void)state;
  NEED_DEVICE();
  tern_backend_info info;
  backend->info(device, &info);
  assert_true(info.static_shapes && !info.host_addressable && info.has_f64 && info.has_i64 && info.has_complex);
  assert_non_null(strstr(info.platform, "PJRT 0."));
  tern_print_set_sink(collect);
  tern_setting_override(TERN_SETTING_PRINT, "stablehlo");
  tern_program *p = begin();
  p->describe_tag = describe;
  tern_value x = tern_parameter(p, TERN_F32, 1, DIMS(3));
  tern_program_tag(p, 5);
  tern_result(p, tern_exp(p, x), -1);
  check_program(p, NULL, NULL, false, 1);
  tern_setting_override(TERN_SETTING_PRINT, NULL);
  tern_print_set_sink(NULL);
  assert_non_null(strstr(printed, "stablehlo.exponential"));
  assert_non_null(strstr(printed, "// train.py:12 (step)"));
}

/* A program with a dtype that the target lacks is refused before the plug-in sees it. */
static void test_lacking(void **state) {
  (void)state;
  NEED_DEVICE();
  static const tern_pjrt_target poor = {"", 1u << TERN_F64, false, false};
  const tern_pjrt_target *real = device->client->target;
  device->client->target = &poor;
  tern_program *p = begin();
  tern_result(p, tern_convert(p, tern_parameter(p, TERN_F32, 0, NULL), TERN_F64), -1);
  expect_ok(tern_program_finish(p));
  tern_executable *executable = NULL;
  tern_status status = backend->compile(device, p, &executable);
  assert_int_equal(tern_error_code(status), TERN_UNSUPPORTED);
  assert_non_null(strstr(tern_error_message(status), "has no f64, which convert gives"));
  tern_error_free(status);
  tern_memory *memory = NULL;
  status = backend->allocate(device, TERN_F64, 0, NULL, &memory);
  assert_int_equal(tern_error_code(status), TERN_UNSUPPORTED);
  tern_error_free(status);
  tern_program_free(p);
  device->client->target = real;
}

static int open_two(void **state) {
  tern_setting_override(TERN_SETTING_DEVICE_COUNT, "2");
  return open_test_device(state);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_two_devices), cmocka_unit_test(test_info_and_print), cmocka_unit_test(test_lacking)};
  return cmocka_run_group_tests(tests, open_two, close_test_device);
}
