/* The trace backend: programs are kept with their text, arrays and costs; values come from nowhere, as zeros, or from the embedded engine. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include "ir/ir.h"
#include "trace/trace.h"

static const tern_backend *const trace = &tern_trace_backend;

static const char *line_of_tag(const void *context, uint32_t tag) {
  (void)context;
  return tag == 7 ? "train.py:12 (step)" : "";
}

/* y[2,4] = x[2,3] @ w[3,4] + b[2,4], which takes the storage of b over. */
static tern_program *linear(void) {
  tern_program *p;
  assert_null(tern_program_new(&p));
  p->describe_tag = line_of_tag;
  tern_program_tag(p, 7);
  tern_value x = tern_parameter(p, TERN_F32, 2, (int64_t[]){2, 3}), w = tern_parameter(p, TERN_F32, 2, (int64_t[]){3, 4});
  tern_value b = tern_parameter(p, TERN_F32, 2, (int64_t[]){2, 4});
  tern_value y = tern_add(p, tern_dot(p, x, w, 0, NULL, NULL, 1, (int[]){1}, (int[]){0}), b);
  tern_result(p, y, 2);
  assert_null(tern_program_finish(p));
  return p;
}

static tern_memory *upload(tern_backend_device *device, int64_t rows, int64_t columns, float value) {
  float data[16];
  for (int i = 0; i < rows * columns; i++) data[i] = value;
  tern_memory *memory;
  assert_null(trace->upload(device, TERN_F32, 2, (int64_t[]){rows, columns}, data, &memory));
  return memory;
}

/* Runs the linear program once on ones, and gives what reading its result says. */
static tern_status run(const char *spec, float out[8]) {
  tern_backend_device *device;
  assert_null(trace->open(spec, 0, &device));
  tern_program *p = linear();
  tern_executable *e;
  assert_null(trace->compile(device, p, &e));
  tern_program_free(p);
  tern_memory *inputs[] = {upload(device, 2, 3, 1), upload(device, 3, 4, 1), upload(device, 2, 4, 1)}, *output = NULL;
  tern_launch launch = {.inputs = inputs, .donated = (bool[]){false, false, true}, .outputs = &output};
  assert_null(trace->execute(e, &launch));
  assert_null(inputs[2]);
  assert_int_equal(trace->size(output), 32);
  tern_status status = trace->download(device, output, out, 32);
  tern_backend_stats stats;
  trace->stats(device, &stats);
  assert_int_equal(stats.memory.bytes.current, (6 + 12 + 8) * 4);
  trace->release(device, inputs[0]);
  trace->release(device, inputs[1]);
  trace->release(device, output);
  trace->release_executable(e);
  trace->close(device);
  return status;
}

static const tern_trace_program *last_program(void) {
  const tern_trace_program *k = tern_trace_programs();
  while (k && k->next) k = k->next;
  return k;
}

static void test_values(void **state) {
  (void)state;
  float y[8];
  tern_status status = run("trace", y);
  assert_int_equal(tern_error_code(status), TERN_UNSUPPORTED);
  assert_non_null(strstr(tern_error_message(status), "computes nothing"));
  tern_error_free(status);
  int64_t reads = tern_trace_reads();
  assert_null(run("trace:zeros", y));
  assert_int_equal(tern_trace_reads(), reads + 1);
  for (int i = 0; i < 8; i++) assert_true(y[i] == 0);
  assert_null(run("trace:cpu", y));
  for (int i = 0; i < 8; i++) assert_true(y[i] == 4);
  tern_backend_device *device;
  status = trace->open("trace:gpu", 0, &device);
  assert_int_equal(tern_error_code(status), TERN_INVALID_ARGUMENT);
  tern_error_free(status);
}

static void test_what_is_kept(void **state) {
  (void)state;
  float y[8];
  tern_trace_forget();
  tern_trace_mark();
  assert_null(run("trace:zeros", y));
  const tern_trace_program *k = last_program();
  size_t n;
  const int32_t *launches = tern_trace_launches(&n);
  assert_int_equal(n, 2);
  assert_int_equal(launches[0], -1);
  assert_int_equal(launches[1], k->number);
  assert_int_equal(k->launches, 1);
  assert_int_equal(k->bytes_in_use, (6 + 12 + 8) * 4);
  assert_int_equal(k->n_parameters, 3);
  assert_true(k->parameters[2].is_replaced && !k->parameters[1].is_replaced && k->parameters[0].is_fresh);
  assert_string_equal(k->parameters[0].operation, "upload");
  assert_string_equal(k->results[0].line, "train.py:12 (step)");
  assert_true(k->cost.contractions[TERN_F32] == 2 * 2 * 3 * 4);
  assert_true(k->cost.elementwise == 8);
  assert_int_equal(k->intermediates[0].bytes, 32);
  assert_non_null(strstr(k->text, "stablehlo.dot_general"));
  assert_non_null(strstr(k->text, "loc(\"dot_general\"(\"train.py\":12:0))"));
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_values), cmocka_unit_test(test_what_is_kept)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
