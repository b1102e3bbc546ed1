/* For tests that run programs on a real plug-in: XLA's CPU from the package xla-cpu-pjrt, or what TERN_TEST_PLUGIN names. One device per test program.
 * Without a plug-in the tests are skipped and say why. */
#ifndef TERN_TESTS_PJRT_FIXTURE_H
#define TERN_TESTS_PJRT_FIXTURE_H
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include "../../src/diag/diag.h"
#include "../../src/pjrt/pjrt.h"
#include "evaluate.h"

#define DIMS(...) ((int64_t[]){__VA_ARGS__})
#define INTS(...) ((int[]){__VA_ARGS__})

static const tern_backend *const backend = &tern_pjrt_backend;
static tern_backend_device *device;
static char why_not[1024];

static int open_test_device(void **state) {
  (void)state;
  const char *spec = getenv("TERN_TEST_PLUGIN");
#ifdef TERN_TEST_SITE_PACKAGES
  if (!*tern_setting_text(TERN_SETTING_PLUGIN_PATH)) tern_setting_override(TERN_SETTING_PLUGIN_PATH, TERN_TEST_SITE_PACKAGES);
#endif
#ifdef __SANITIZE_THREAD__
  snprintf(why_not, sizeof why_not, "the plug-in is not built for ThreadSanitizer");
  return 0;
#endif
  tern_status status = backend->open(spec ? spec : "xla-cpu", 0, &device);
  if (status) snprintf(why_not, sizeof why_not, "%s", tern_error_message(status));
  /* A plug-in that is missing skips the tests; one that is there and fails does not. */
  int failed = status && tern_error_code(status) != TERN_NOT_FOUND;
  if (failed) print_error("%s\n", why_not);
  tern_error_free(status);
  return failed;
}

static int close_test_device(void **state) {
  (void)state;
  if (!device) return 0;
  tern_backend_stats stats;
  backend->stats(device, &stats);
  if (stats.memory.bytes.current || stats.memory.blocks.current)
    print_error("%lld bytes in %lld arrays are left over\n", (long long)stats.memory.bytes.current, (long long)stats.memory.blocks.current);
  backend->close(device);
  return stats.memory.bytes.current || stats.memory.blocks.current;
}

#define NEED_DEVICE()                          \
  do {                                         \
    if (!device) {                             \
      print_message("skipped: %s\n", why_not); \
      skip();                                  \
    }                                          \
  } while (0)

static void expect_ok(tern_status status) {
  if (status) fail_msg("%s: %s", tern_code_name(tern_error_code(status)), tern_error_message(status));
}

#ifdef __SANITIZE_ADDRESS__
/* What the plug-in itself never frees is not tern's. */
const char *__lsan_default_suppressions(void);
const char *__lsan_default_suppressions(void) { return "leak:_pjrt\nleak:pjrt_c_api\n"; }
#endif

static tern_program *begin(void) {
  tern_program *p;
  expect_ok(tern_program_new(&p));
  return p;
}

/* ---- data ---- */
static uint64_t random_state = 1;
static uint32_t next_random(void) {
  random_state = random_state * 6364136223846793005ull + 1442695040888963407ull;
  return (uint32_t)(random_state >> 33);
}

/* Small whole and broken numbers with the awkward ones among them (for floats only where `awkward`). */
static void fill(tern_dtype dtype, int64_t n, void *out, bool awkward) {
  static const double floats[] = {0.0, -0.0, INFINITY, -INFINITY, NAN, 1, -1, 0.5, -0.5, 2.5, -2.5, 1e-3, 300, -300, 70000, 3e9, -3e9};
  static const int64_t integers[] = {0, 1, -1, 2, 127, 128, 255, -128, 32767, -32768, INT32_MAX, INT32_MIN, INT64_MAX, INT64_MIN, 31, 32, 63, 64, 7};
  for (int64_t i = 0; i < n; i++) {
    evaluate_number x = {0, 0, 0};
    uint32_t r = next_random();
    if (tern_dtype_is_float(dtype) || tern_dtype_is_complex(dtype)) {
      x.re = awkward && r % 3 == 0 ? floats[r / 3 % TERN_COUNT(floats)] : (double)(int)(next_random() % 2000) / 250.0 - 4;
      x.im = (double)(int)(next_random() % 2000) / 500.0 - 2;
    } else {
      x.i = awkward && r % 3 == 0 ? integers[r / 3 % TERN_COUNT(integers)] : (int64_t)(next_random() % 20) - (tern_dtype_is_signed(dtype) ? 10 : 0);
    }
    evaluate_store_number(dtype, out, i, x);
  }
}

/* ---- comparing ---- */
static bool close_enough(double got, double wanted, double tolerance) {
  if (isnan(wanted)) return isnan(got);
  if (got == wanted) return true;
  return fabs(got - wanted) <= tolerance * (1 + fabs(wanted));
}

static double tolerance_of(tern_dtype dtype) {
  return dtype == TERN_F16 ? 2e-3 : dtype == TERN_BF16 ? 1.6e-2 : dtype == TERN_F64 || dtype == TERN_C128 ? 1e-12 : 4e-6;
}

/* Where the values differ most, `loose` times the dtype's tolerance is granted (sums of many, functions of many steps). */
static void compare_result(const tern_program *p, int r, const void *got, const void *wanted, double loose) {
  const tern_value_info *v = &p->values[p->results[r].value];
  int64_t n = tern_dims_count(v->rank, v->dims);
  for (int64_t i = 0; i < n; i++) {
    evaluate_number a = evaluate_load_number(v->dtype, got, i), b = evaluate_load_number(v->dtype, wanted, i);
    bool same = tern_dtype_is_float(v->dtype) || tern_dtype_is_complex(v->dtype)
                    ? close_enough(a.re, b.re, loose * tolerance_of(v->dtype)) && close_enough(a.im, b.im, loose * tolerance_of(v->dtype))
                    : a.i == b.i;
    if (same) continue;
    const tern_op *op = &p->ops[v->op];
    print_error("result %d (%s of %s), element %lld: %.9g + %.9gi / %lld instead of %.9g + %.9gi / %lld\n", r, tern_op_rows[op->kind].name,
                tern_dtype_name(v->dtype), (long long)i, a.re, a.im, (long long)a.i, b.re, b.im, (long long)b.i);
    char *text = tern_program_text(p);
    if (text && p->n_ops < 40) print_error("%s", text);
    free(text);
    fail();
  }
}

/* Finishes the program, runs it on the plug-in and in the evaluator on the same data, compares all results, frees it.
 * data[i] may be NULL: made up (awkward or not). */
static void check_program(tern_program *p, const void *const *data, const uint64_t *scalars, bool awkward, double loose) {
  expect_ok(tern_program_finish(p));
  tern_executable *executable;
  expect_ok(backend->compile(device, p, &executable));
  int n = p->n_parameters, m = p->n_results;
  void **host = calloc((size_t)n + 1, sizeof *host), **wanted = calloc((size_t)m + 1, sizeof *wanted);
  tern_memory **inputs = calloc((size_t)n + 1, sizeof *inputs), **outputs = calloc((size_t)m + 1, sizeof *outputs);
  bool *donated = calloc((size_t)n + 1, sizeof *donated);
  for (int i = 0; i < n; i++) {
    const tern_value_info *v = &p->values[p->parameters[i]];
    int64_t count = tern_dims_count(v->rank, v->dims);
    host[i] = calloc((size_t)count + 1, tern_dtype_size(v->dtype));
    if (data && data[i])
      memcpy(host[i], data[i], (size_t)count * tern_dtype_size(v->dtype));
    else
      fill(v->dtype, count, host[i], awkward);
    expect_ok(backend->upload(device, v->dtype, v->rank, v->dims, host[i], &inputs[i]));
  }
  expect_ok(evaluate(p, (const void *const *)host, scalars, wanted));
  tern_launch launch = {.inputs = inputs, .donated = donated, .scalars = scalars, .outputs = outputs};
  expect_ok(backend->execute(executable, &launch));
  for (int r = 0; r < m; r++) {
    size_t bytes = backend->size(outputs[r]);
    void *got = calloc(1, bytes + 1);
    expect_ok(backend->download(device, outputs[r], got, bytes));
    compare_result(p, r, got, wanted[r], loose);
    free(got);
    free(wanted[r]);
    backend->release(device, outputs[r]);
  }
  for (int i = 0; i < n; i++) {
    backend->release(device, inputs[i]);
    free(host[i]);
  }
  backend->release_executable(executable);
  free(host), free(wanted), free(inputs), free(outputs), free(donated);
  tern_program_free(p);
}
#endif
