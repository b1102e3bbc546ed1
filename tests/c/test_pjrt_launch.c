/* Launches on a real plug-in: storage taken over, index checks and what they leave behind, scalars, arrays without elements, a training step run many times. */
#include "pjrt_fixture.h"

static tern_executable *compile(tern_program *p) {
  tern_executable *executable;
  expect_ok(tern_program_finish(p));
  expect_ok(backend->compile(device, p, &executable));
  tern_program_free(p);
  return executable;
}

static tern_memory *upload(tern_dtype dtype, int rank, const int64_t *dims, const void *host) {
  tern_memory *memory;
  expect_ok(backend->upload(device, dtype, rank, dims, host, &memory));
  return memory;
}

static void expect_floats(tern_memory *memory, int n, const float *wanted) {
  float got[64];
  expect_ok(backend->download(device, memory, got, (size_t)n * sizeof *got));
  for (int i = 0; i < n; i++)
    if (got[i] != wanted[i]) fail_msg("element %d is %g instead of %g", i, (double)got[i], (double)wanted[i]);
}

static bool is_deleted(const tern_memory *memory) {
  TERN_PJRT_ARGS(Buffer_IsDeleted, deleted, .buffer = memory->buffer);
  expect_ok(tern_pjrt_status(device->client->api, device->client->api->Buffer_IsDeleted(&deleted), ""));
  return deleted.is_deleted;
}

static int64_t bytes_in_use(void) {
  tern_backend_stats stats;
  backend->stats(device, &stats);
  return stats.memory.bytes.current;
}

static void test_donation(void **state) {
  (void)state;
  NEED_DEVICE();
  tern_program *p = begin();
  tern_value x = tern_parameter(p, TERN_F32, 1, DIMS(4)), y = tern_parameter(p, TERN_F32, 1, DIMS(4));
  tern_result(p, tern_add(p, x, y), 0);
  tern_result(p, tern_multiply(p, x, y), -1);
  tern_executable *executable = compile(p);
  float a[4] = {1, 2, 3, 4}, b[4] = {10, 20, 30, 40}, sum[4] = {11, 22, 33, 44}, product[4] = {10, 40, 90, 160}, twice[4] = {2, 4, 6, 8};
  tern_memory *inputs[2] = {upload(TERN_F32, 1, DIMS(4), a), upload(TERN_F32, 1, DIMS(4), b)}, *outputs[2];

  /* Promised, but not given in this launch: the input stays. */
  bool donated[2] = {false, false};
  tern_launch launch = {.inputs = inputs, .donated = donated, .outputs = outputs};
  expect_ok(backend->execute(executable, &launch));
  expect_floats(outputs[0], 4, sum), expect_floats(outputs[1], 4, product), expect_floats(inputs[0], 4, a);
  backend->release(device, outputs[0]), backend->release(device, outputs[1]);

  /* The same array twice: it cannot be given away under the other's eyes. */
  tern_memory *same[2] = {inputs[0], inputs[0]};
  launch.inputs = same;
  expect_ok(backend->execute(executable, &launch));
  expect_floats(outputs[0], 4, twice), expect_floats(inputs[0], 4, a);
  backend->release(device, outputs[0]), backend->release(device, outputs[1]);

  /* Given: the memory in use does not grow by the result that takes the storage over. */
  launch.inputs = inputs;
  donated[0] = true;
  assert_int_equal(bytes_in_use(), 32);
  backend->reset_peak(device);
  expect_ok(backend->execute(executable, &launch));
  assert_int_equal(bytes_in_use(), 48);
  expect_floats(outputs[0], 4, sum), expect_floats(outputs[1], 4, product), expect_floats(inputs[1], 4, b);
  backend->release(device, outputs[0]), backend->release(device, outputs[1]), backend->release(device, inputs[1]);
  backend->release_executable(executable);
}

/* The plug-in honours the promise: the input's buffer is gone after the launch. Seen on the buffer itself, under the backend's eyes. */
static void test_donation_is_honoured(void **state) {
  (void)state;
  NEED_DEVICE();
  tern_program *p = begin();
  tern_value x = tern_parameter(p, TERN_F32, 1, DIMS(1024));
  tern_result(p, tern_add(p, x, x), 0);
  expect_ok(tern_program_finish(p));
  char *text;
  tern_pjrt_signature signature;
  tern_program *legal;
  expect_ok(tern_pjrt_legalise(p, device->client->target, "cpu", &legal));
  expect_ok(tern_pjrt_text(legal, false, false, &text, &signature));
  assert_non_null(strstr(text, "tf.aliasing_output = 0 : i32"));
  const pjrt_api *api = device->client->api;
  pjrt_program program = {.struct_size = sizeof program, .code = text, .code_size = strlen(text), .format = "mlir", .format_size = 4};
  static const char options[] = {0x1a, 0x04, 0x20, 0x01, 0x28, 0x01};
  TERN_PJRT_ARGS(Client_Compile, compile_it, .client = device->client->handle, .program = &program, .compile_options = options,
                 .compile_options_size = sizeof options);
  expect_ok(tern_pjrt_status(api, api->Client_Compile(&compile_it), ""));
  float host[1024] = {3};
  tern_memory *memory = upload(TERN_F32, 1, DIMS(1024), host);
  for (int kept = 1; kept >= 0; kept--) {
    int64_t none = 0;
    pjrt_execute_options execute_options = {
        .struct_size = sizeof execute_options, .non_donatable_input_indices = &none, .num_non_donatable_input_indices = (size_t)kept};
    pjrt_buffer *output = NULL, **outputs = &output, *const *inputs = &memory->buffer;
    pjrt_event *event;
    TERN_PJRT_ARGS(LoadedExecutable_Execute, execute, .executable = compile_it.executable, .options = &execute_options, .argument_lists = &inputs,
                   .num_devices = 1, .num_args = 1, .output_lists = &outputs, .device_complete_events = &event);
    expect_ok(tern_pjrt_status(api, api->LoadedExecutable_Execute(&execute), ""));
    expect_ok(tern_pjrt_await(api, event, ""));
    assert_int_equal(is_deleted(memory), !kept);
    tern_pjrt_buffer_destroy(api, output);
  }
  TERN_PJRT_ARGS(LoadedExecutable_Destroy, destroy, .executable = compile_it.executable);
  expect_ok(tern_pjrt_status(api, api->LoadedExecutable_Destroy(&destroy), ""));
  backend->release(device, memory);
  tern_pjrt_signature_free(&signature);
  free(text);
  tern_program_free(legal);
  tern_program_free(p);
}

/* table[index] += 1, with two checks; the table's storage is taken over, and so is a counter's. */
static void test_checks(void **state) {
  (void)state;
  NEED_DEVICE();
  tern_program *p = begin();
  tern_value table = tern_parameter(p, TERN_F32, 1, DIMS(5)), index = tern_parameter(p, TERN_I64, 1, DIMS(3)), counter = tern_parameter(p, TERN_F32, 0, NULL),
             narrow = tern_parameter(p, TERN_I32, 2, DIMS(2, 2));
  tern_program_tag(p, 41);
  tern_check_index(p, index, 0, 4);
  tern_program_tag(p, 42);
  tern_check_index(p, narrow, -2, 1);
  tern_value one = tern_constant_float(p, TERN_F32, 0, NULL, 1);
  tern_result(p, tern_put(p, table, index, tern_broadcast_to(p, one, 1, DIMS(3)), 0, TERN_COMBINE_ADD), 0);
  tern_result(p, tern_add(p, counter, one), 2);
  tern_result(p, tern_take(p, table, index, 0), -1);
  tern_executable *executable = compile(p);

  float values[5] = {0, 1, 2, 3, 4}, count = 0;
  int64_t good[3] = {4, 1, 4}, bad[3] = {0, 5, -7};
  int32_t fine[4] = {-2, 1, 0, 0}, off[4] = {0, 0, 0, -3};
  tern_memory *held = upload(TERN_F32, 1, DIMS(5), values), *counting = upload(TERN_F32, 0, NULL, &count);
  tern_memory *at[2] = {upload(TERN_I64, 1, DIMS(3), good), upload(TERN_I64, 1, DIMS(3), bad)};
  tern_memory *beside[2] = {upload(TERN_I32, 2, DIMS(2, 2), fine), upload(TERN_I32, 2, DIMS(2, 2), off)};
  static const struct {
    int at, beside;
    uint32_t tag;
    int64_t index;
    bool given;
  } cases[] = {{1, 0, 41, 5, true}, {0, 1, 42, -3, true}, {1, 1, 41, 5, true}, {1, 0, 41, 5, false}, {0, 0, 0, 0, false}, {0, 0, 0, 0, true}};
  int64_t in_use = bytes_in_use();
  for (size_t c = 0; c < TERN_COUNT(cases); c++) {
    tern_memory *inputs[4] = {held, at[cases[c].at], counting, beside[cases[c].beside]}, *outputs[3] = {NULL};
    bool given = cases[c].given, donated[4] = {given, false, given, false};
    tern_launch launch = {.inputs = inputs, .donated = donated, .outputs = outputs};
    tern_status status = backend->execute(executable, &launch);
    if (cases[c].tag) {
      assert_non_null(status);
      if (tern_error_code(status) != TERN_INDEX_OUT_OF_RANGE) fail_msg("%s", tern_error_message(status));
      tern_error_free(status);
      assert_int_equal(launch.failed_tag, cases[c].tag);
      assert_int_equal(launch.failed_index, cases[c].index);
      held = inputs[0], counting = inputs[2];
      expect_floats(held, 5, values), expect_floats(counting, 1, &count);
      assert_int_equal(bytes_in_use(), in_use);
      continue;
    }
    expect_ok(status);
    expect_floats(outputs[0], 5, (float[]){0, 2, 2, 3, 6}), expect_floats(outputs[1], 1, (float[]){1}), expect_floats(outputs[2], 3, (float[]){4, 1, 4});
    backend->release(device, outputs[2]);
    if (given)
      held = outputs[0], counting = outputs[1];
    else
      backend->release(device, outputs[0]), backend->release(device, outputs[1]);
  }
  backend->release(device, held), backend->release(device, counting);
  for (int i = 0; i < 2; i++) backend->release(device, at[i]), backend->release(device, beside[i]);
  backend->release_executable(executable);
}

static void test_without_elements(void **state) {
  (void)state;
  NEED_DEVICE();
  tern_program *p = begin();
  tern_value x = tern_parameter(p, TERN_F32, 2, DIMS(0, 3));
  tern_result(p, tern_add(p, x, x), 0);
  tern_result(p, tern_parameter(p, TERN_BOOL, 1, DIMS(0)), -1);
  tern_executable *executable = compile(p);
  tern_memory *inputs[2] = {upload(TERN_F32, 2, DIMS(0, 3), NULL), upload(TERN_BOOL, 1, DIMS(0), NULL)}, *outputs[2];
  bool donated[2] = {true, false};
  tern_launch launch = {.inputs = inputs, .donated = donated, .outputs = outputs};
  expect_ok(backend->execute(executable, &launch));
  assert_int_equal(backend->size(outputs[0]), 0);
  backend->release(device, inputs[1]), backend->release(device, outputs[0]), backend->release(device, outputs[1]);
  backend->release_executable(executable);
}

/* One value as several results, a parameter as a result, a result that takes over a parameter of another shape. */
static void test_odd_results(void **state) {
  (void)state;
  NEED_DEVICE();
  tern_program *p = begin();
  tern_value x = tern_parameter(p, TERN_F32, 2, DIMS(2, 2)), y = tern_parameter(p, TERN_F32, 1, DIMS(4));
  tern_value z = tern_negate(p, x);
  tern_result(p, z, -1), tern_result(p, z, -1), tern_result(p, x, -1), tern_result(p, y, 1), tern_result(p, tern_reshape(p, z, 1, DIMS(4)), 0);
  tern_executable *executable = compile(p);
  float a[4] = {1, 2, 3, 4}, b[4] = {5, 6, 7, 8}, minus[4] = {-1, -2, -3, -4};
  tern_memory *inputs[2] = {upload(TERN_F32, 2, DIMS(2, 2), a), upload(TERN_F32, 1, DIMS(4), b)}, *outputs[5];
  bool donated[2] = {true, true};
  tern_launch launch = {.inputs = inputs, .donated = donated, .outputs = outputs};
  expect_ok(backend->execute(executable, &launch));
  const float *wanted[5] = {minus, minus, a, b, minus};
  for (int i = 0; i < 5; i++) {
    expect_floats(outputs[i], 4, wanted[i]);
    backend->release(device, outputs[i]);
  }
  backend->release_executable(executable);
}

static void test_bytes(void **state) {
  (void)state;
  NEED_DEVICE();
  static const tern_dtype all[] = {TERN_BOOL, TERN_U8, TERN_I16, TERN_I64, TERN_F16, TERN_BF16, TERN_F64, TERN_C64, TERN_C128};
  for (size_t d = 0; d < TERN_COUNT(all); d++) {
    char host[12 * 16] = {0}, back[12 * 16];
    size_t bytes = 12 * tern_dtype_size(all[d]);
    for (size_t i = 0; i < bytes; i++) host[i] = (char)(all[d] == TERN_BOOL ? i & 1 : i + 1);
    tern_memory *memory = upload(all[d], 3, DIMS(2, 3, 2), host);
    expect_ok(backend->download(device, memory, back, bytes));
    assert_memory_equal(host, back, bytes);
    tern_status status = backend->download(device, memory, back, bytes - 1);
    assert_int_equal(tern_error_code(status), TERN_INVALID_ARGUMENT);
    tern_error_free(status);
    backend->release(device, memory);
  }
}

/* A two-layer perceptron learns to tell two halves of a plane apart: one program, 200 launches, its weights never leave the device. */
static void test_training(void **state) {
  (void)state;
  NEED_DEVICE();
  enum { BATCH = 64, HIDDEN = 16 };
  tern_program *p = begin();
  tern_value w1 = tern_parameter(p, TERN_F32, 2, DIMS(2, HIDDEN)), b1 = tern_parameter(p, TERN_F32, 1, DIMS(HIDDEN)),
             w2 = tern_parameter(p, TERN_F32, 2, DIMS(HIDDEN, 1));
  tern_value x = tern_parameter(p, TERN_F32, 2, DIMS(BATCH, 2)), label = tern_parameter(p, TERN_F32, 2, DIMS(BATCH, 1)), rate = tern_scalar(p, TERN_F64);
  tern_value zero = tern_constant_float(p, TERN_F32, 0, NULL, 0), one = tern_constant_float(p, TERN_F32, 0, NULL, 1);
  tern_value before = tern_add(p, tern_dot(p, x, w1, 0, NULL, NULL, 1, INTS(1), INTS(0)), b1), hidden = tern_maximum(p, before, zero);
  tern_value guess = tern_logistic(p, tern_dot(p, hidden, w2, 0, NULL, NULL, 1, INTS(1), INTS(0)));
  tern_value right = tern_select(p, tern_compare(p, TERN_EQ, label, one), guess, tern_subtract(p, one, guess));
  tern_value loss =
      tern_negate(p, tern_divide(p, tern_reduce(p, TERN_SUM, tern_log(p, right), 2, INTS(0, 1)), tern_constant_float(p, TERN_F32, 0, NULL, BATCH)));
  tern_value g = tern_divide(p, tern_subtract(p, guess, label), tern_constant_float(p, TERN_F32, 0, NULL, BATCH));
  tern_value g2 = tern_dot(p, hidden, g, 0, NULL, NULL, 1, INTS(0), INTS(0));
  tern_value gh = tern_select(p, tern_compare(p, TERN_GT, before, zero), tern_dot(p, g, w2, 0, NULL, NULL, 1, INTS(1), INTS(1)), zero);
  tern_value g1 = tern_dot(p, x, gh, 0, NULL, NULL, 1, INTS(0), INTS(0)), gb = tern_reduce(p, TERN_SUM, gh, 1, INTS(0));
  tern_value step = tern_convert(p, rate, TERN_F32);
  tern_result(p, tern_subtract(p, w1, tern_multiply(p, g1, step)), 0);
  tern_result(p, tern_subtract(p, b1, tern_multiply(p, gb, step)), 1);
  tern_result(p, tern_subtract(p, w2, tern_multiply(p, g2, step)), 2);
  tern_result(p, loss, -1);
  tern_executable *executable = compile(p);

  float first[2 * HIDDEN], bias[HIDDEN] = {0}, second[HIDDEN], points[2 * BATCH], labels[BATCH];
  for (int i = 0; i < 2 * HIDDEN; i++) first[i] = (float)(next_random() % 1000) / 500 - 1;
  for (int i = 0; i < HIDDEN; i++) second[i] = (float)(next_random() % 1000) / 1000 - 0.5f;
  for (int i = 0; i < 2 * BATCH; i++) points[i] = (float)(next_random() % 1000) / 500 - 1;
  for (int i = 0; i < BATCH; i++) labels[i] = points[2 * i] * points[2 * i + 1] > 0;
  tern_memory *inputs[5] = {upload(TERN_F32, 2, DIMS(2, HIDDEN), first), upload(TERN_F32, 1, DIMS(HIDDEN), bias), upload(TERN_F32, 2, DIMS(HIDDEN, 1), second),
                            upload(TERN_F32, 2, DIMS(BATCH, 2), points), upload(TERN_F32, 2, DIMS(BATCH, 1), labels)};
  float losses[2] = {0};
  int64_t in_use = bytes_in_use();
  for (int i = 0; i < 200; i++) {
    double learning_rate = i < 100 ? 1.0 : 0.5;
    uint64_t scalar;
    memcpy(&scalar, &learning_rate, 8);
    bool donated[5] = {true, true, true, false, false};
    tern_memory *given[5], *outputs[4];
    memcpy(given, inputs, sizeof given);
    tern_launch launch = {.inputs = given, .donated = donated, .scalars = &scalar, .outputs = outputs};
    expect_ok(backend->execute(executable, &launch));
    memcpy(inputs, outputs, 3 * sizeof *inputs);
    if (i == 0 || i == 199) expect_ok(backend->download(device, outputs[3], &losses[i > 0], 4));
    backend->release(device, outputs[3]);
    assert_int_equal(bytes_in_use(), in_use);
  }
  print_message("loss %.3f -> %.3f\n", (double)losses[0], (double)losses[1]);
  assert_true(losses[1] < 0.5f * losses[0]);
  for (int i = 0; i < 5; i++) backend->release(device, inputs[i]);
  backend->release_executable(executable);
}

/* What is rounded to half precision stays rounded, though a compiler that fuses could keep it in f32. (A multiply and an add of f16, f32 or f64 are
 * another matter: XLA's CPU contracts them into one rounding and offers no way to forbid it.) */
static void test_halves_are_rounded(void **state) {
  (void)state;
  NEED_DEVICE();
  tern_program *p = begin();
  tern_value x = tern_parameter(p, TERN_BF16, 1, DIMS(4096)), y = tern_parameter(p, TERN_BF16, 1, DIMS(4096)),
             wide = tern_parameter(p, TERN_F32, 1, DIMS(4096));
  tern_value z = tern_add(p, tern_multiply(p, x, y), tern_multiply(p, y, y));
  for (int i = 0; i < 4; i++) z = tern_add(p, tern_multiply(p, z, tern_constant_float(p, TERN_BF16, 0, NULL, 0.3)), y);
  tern_result(p, z, -1);
  tern_value third = tern_divide(p, wide, tern_constant_float(p, TERN_F32, 0, NULL, 3));
  tern_result(p, tern_convert(p, tern_convert(p, third, TERN_BF16), TERN_F32), -1);
  tern_result(p, tern_convert(p, tern_convert(p, third, TERN_F16), TERN_F32), -1);
  check_program(p, NULL, NULL, false, 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_donation),         cmocka_unit_test(test_donation_is_honoured), cmocka_unit_test(test_checks),
                                     cmocka_unit_test(test_without_elements), cmocka_unit_test(test_odd_results),          cmocka_unit_test(test_bytes),
                                     cmocka_unit_test(test_training),         cmocka_unit_test(test_halves_are_rounded)};
  return cmocka_run_group_tests(tests, open_test_device, close_test_device);
}
