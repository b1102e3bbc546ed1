/* What the planner's tests share: running whole programs on the embedded engine, fused and one operation at a time, and comparing with the plain evaluator. */
#ifndef TERN_CPU_PROGRAM_H
#define TERN_CPU_PROGRAM_H
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include "../../src/backend.h"
#include "../../src/cpu/cpu.h"
#include "evaluate.h"

static tern_backend_device *device;

static inline void check(tern_status status) {
  if (status) fail_msg("%s", tern_error_message(status));
}
static inline int open_device(void **state) {
  (void)state;
  check(tern_cpu_backend.open("cpu", 0, &device));
  return 0;
}
static inline int close_device(void **state) {
  (void)state;
  tern_backend_stats stats;
  tern_cpu_backend.stats(device, &stats);
  assert_int_equal(stats.memory.blocks.current, 0);
  tern_cpu_backend.close(device);
  return 0;
}

/* A small generator of its own: tests are the same everywhere. */
static uint64_t random_state = 1;
static inline uint32_t random_u32(void) {
  random_state = random_state * 6364136223846793005ull + 1442695040888963407ull;
  return (uint32_t)(random_state >> 33);
}
static inline int random_below(int n) { return (int)(random_u32() % (uint32_t)n); }

static inline int64_t value_bytes(const tern_program *p, tern_value v) { return tern_value_count(p, v) * (int64_t)tern_dtype_size(tern_value_dtype(p, v)); }

/* An array for every parameter: small whole numbers (exact in every dtype), or any numbers. */
static inline void fill_array(tern_dtype dtype, int64_t count, bool whole, void *out) {
  for (int64_t i = 0; i < count; i++) {
    double x = whole ? random_below(9) - 4 : (random_below(20001) - 10000) / 3000.0;
    evaluate_number n = {x, 0, (int64_t)x};
    if (dtype == TERN_BOOL) n.i = random_below(2);
    else if (!tern_dtype_is_signed(dtype) && n.i < 0) n.i = -n.i;
    evaluate_store_number(dtype, out, i, n);
  }
}
static inline void **make_inputs(const tern_program *p, bool whole) {
  void **inputs = calloc((size_t)p->n_parameters + 1, sizeof *inputs);
  for (int i = 0; i < p->n_parameters; i++) {
    tern_value v = p->parameters[i];
    inputs[i] = malloc((size_t)value_bytes(p, v) + 1);
    fill_array(tern_value_dtype(p, v), tern_value_count(p, v), whole, inputs[i]);
  }
  return inputs;
}
static inline void free_arrays(void **arrays, int n) {
  for (int i = 0; i < n; i++) free(arrays[i]);
  free(arrays);
}

/* Runs a finished program; results are malloc'ed arrays. Parameters that a result reuses are donated if `donate`. */
static inline tern_status run_status(const tern_program *p, void *const *inputs, const uint64_t *scalars, bool donate, void **results, tern_launch *launch) {
  tern_executable *executable;
  tern_status status = tern_cpu_backend.compile(device, p, &executable);
  if (status) return status;
  tern_memory **in = calloc((size_t)p->n_parameters + 1, sizeof *in), **out = calloc((size_t)p->n_results + 1, sizeof *out);
  bool *donated = calloc((size_t)p->n_parameters + 1, sizeof *donated);
  for (int i = 0; i < p->n_parameters; i++) {
    tern_value v = p->parameters[i];
    check(tern_cpu_backend.upload(device, tern_value_dtype(p, v), tern_value_rank(p, v), tern_value_dims(p, v), inputs[i], &in[i]));
  }
  for (int r = 0; r < p->n_results; r++)
    if (p->results[r].reuses >= 0) donated[p->results[r].reuses] = donate;
  *launch = (tern_launch){.inputs = in, .donated = donated, .scalars = scalars, .outputs = out};
  status = tern_cpu_backend.execute(executable, launch);
  for (int i = 0; i < p->n_parameters; i++) {
    if (!status && donated[i]) continue;
    assert_memory_equal(tern_cpu_backend.host_pointer(in[i]), inputs[i], (size_t)value_bytes(p, p->parameters[i])); /* nobody wrote to it */
    tern_cpu_backend.release(device, in[i]);
  }
  for (int r = 0; r < p->n_results && !status; r++) {
    size_t bytes = (size_t)value_bytes(p, p->results[r].value);
    assert_int_equal(tern_cpu_backend.size(out[r]), bytes);
    results[r] = malloc(bytes + 1);
    check(tern_cpu_backend.download(device, out[r], results[r], bytes));
    tern_cpu_backend.release(device, out[r]);
  }
  tern_cpu_backend.release_executable(executable);
  free(in), free(out), free(donated);
  return status;
}
static inline void **run(const tern_program *p, void *const *inputs, const uint64_t *scalars, bool donate) {
  void **results = calloc((size_t)p->n_results + 1, sizeof *results);
  tern_launch launch;
  check(run_status(p, inputs, scalars, donate, results, &launch));
  return results;
}

/* Every operation as a program of its own: what strict mode does. */
static inline void **run_one_by_one(const tern_program *p, void *const *inputs, const uint64_t *scalars) {
  void **arrays = calloc((size_t)p->n_values + 1, sizeof *arrays);
  for (int32_t i = 0; i < p->n_ops; i++) {
    const tern_op *op = &p->ops[i];
    if (op->kind == TERN_OP_PARAMETER && op->attrs->parameter.is_scalar) {
      arrays[op->first_result] = malloc(8);
      memcpy(arrays[op->first_result], &scalars[op->attrs->parameter.number], 8);
      continue;
    }
    if (op->kind == TERN_OP_PARAMETER) {
      size_t bytes = (size_t)value_bytes(p, op->first_result);
      arrays[op->first_result] = malloc(bytes + 1);
      memcpy(arrays[op->first_result], inputs[op->attrs->parameter.number], bytes);
      continue;
    }
    tern_program *one;
    check(tern_program_new(&one));
    tern_value operands[16];
    void *in[16];
    for (int k = 0; k < op->n_operands; k++) {
      tern_value v = op->operands[k];
      operands[k] = tern_parameter(one, tern_value_dtype(p, v), tern_value_rank(p, v), tern_value_dims(p, v));
      in[k] = arrays[v];
    }
    tern_value r = tern_program_append(one, (tern_op_kind)op->kind, op->n_operands, operands, op->attrs, op->n_results, &p->values[op->first_result]);
    for (int k = 0; k < op->n_results; k++) tern_result(one, r + k, -1);
    check(tern_program_finish(one));
    void **results = run(one, in, NULL, false);
    for (int k = 0; k < op->n_results; k++) arrays[op->first_result + k] = results[k];
    free(results);
    tern_program_free(one);
  }
  void **results = calloc((size_t)p->n_results + 1, sizeof *results);
  for (int r = 0; r < p->n_results; r++) {
    size_t bytes = (size_t)value_bytes(p, p->results[r].value);
    results[r] = malloc(bytes + 1);
    memcpy(results[r], arrays[p->results[r].value], bytes);
  }
  free_arrays(arrays, p->n_values);
  return results;
}

static inline void print_program(const tern_program *p) {
  char *text = tern_program_text(p);
  fputs(text ? text : "", stderr);
  free(text);
}
static inline void same_bits(const tern_program *p, void **a, void **b, const char *what) {
  for (int r = 0; r < p->n_results; r++) {
    tern_dtype dtype = tern_value_dtype(p, p->results[r].value);
    size_t size = tern_dtype_size(dtype);
    for (int64_t i = 0; i < tern_value_count(p, p->results[r].value); i++) {
      if (memcmp((char *)a[r] + (size_t)i * size, (char *)b[r] + (size_t)i * size, size) == 0) continue;
      evaluate_number x = evaluate_load_number(dtype, a[r], i), y = evaluate_load_number(dtype, b[r], i);
      if (tern_dtype_is_float(dtype) && isnan(x.re) && isnan(y.re)) continue; /* a NaN's payload and sign are nobody's promise */
      print_program(p);
      fail_msg("%s: result %d (%s) differs at %lld: %g/%lld and %g/%lld", what, r, tern_dtype_name(dtype), (long long)i, x.re, (long long)x.i, y.re, (long long)y.i);
    }
  }
}
/* To `tolerance` of the element, and to a hundredth of it of the largest one: elements that come of cancellation. */
static inline void close_to(const tern_program *p, void **got, void **want, double tolerance) {
  for (int r = 0; r < p->n_results; r++) {
    tern_dtype dtype = tern_value_dtype(p, p->results[r].value);
    double largest = 0;
    for (int64_t i = 0; i < tern_value_count(p, p->results[r].value); i++) {
      double size = fabs(evaluate_load_number(dtype, want[r], i).re);
      if (isfinite(size) && size > largest) largest = size;
    }
    for (int64_t i = 0; i < tern_value_count(p, p->results[r].value); i++) {
      evaluate_number x = evaluate_load_number(dtype, got[r], i), y = evaluate_load_number(dtype, want[r], i);
      bool equal = x.i == y.i && (x.re == y.re || (isnan(x.re) && isnan(y.re)) || fabs(x.re - y.re) <= tolerance * (fabs(y.re) + 1e-2 * largest));
      if (equal) continue;
      print_program(p);
      fail_msg("result %d (%s) at %lld is %.9g/%lld, should be %.9g/%lld", r, tern_dtype_name(dtype), (long long)i, x.re, (long long)x.i, y.re, (long long)y.i);
    }
  }
}

/* Evaluator, fused with one and two threads, with donation, and one by one must agree: exactly among the engine's, to `tolerance` with the evaluator (NaN: skip it). */
static inline void check_program(tern_program *p, bool whole, double tolerance) {
  check(tern_program_finish(p));
  void **inputs = make_inputs(p, whole);
  uint64_t scalars[16];
  for (int i = 0; i < 16; i++) {
    scalars[i] = 3;
    if (i < p->n_scalars) {
      evaluate_number n = {1.75, 0, 3};
      evaluate_store_number(tern_value_dtype(p, p->scalars[i]), &scalars[i], 0, n);
    }
  }
  tern_pool_set_threads(1);
  void **one = run(p, inputs, scalars, false);
  tern_pool_set_threads(2);
  void **two = run(p, inputs, scalars, false), **donated = run(p, inputs, scalars, true), **strict = run_one_by_one(p, inputs, scalars);
  same_bits(p, one, two, "one and two threads");
  same_bits(p, one, donated, "with and without donation");
  same_bits(p, one, strict, "fused and one by one");
  if (!isnan(tolerance)) {
    void **want = calloc((size_t)p->n_results + 1, sizeof *want);
    check(evaluate(p, (const void *const *)inputs, scalars, want));
    close_to(p, one, want, tolerance);
    free_arrays(want, p->n_results);
  }
  free_arrays(one, p->n_results), free_arrays(two, p->n_results), free_arrays(donated, p->n_results), free_arrays(strict, p->n_results);
  free_arrays(inputs, p->n_parameters);
  tern_program_free(p);
}
#endif
