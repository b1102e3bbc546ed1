/* The block machine of every instruction set this CPU has: each instruction against the plain evaluator, elementary functions against the C library in double over
 * the whole range of f32, reductions against sums in double. */
#include "cpu_program.h"
#include "../../src/cpu/blocks.h"

enum { N = 1027 }; /* no multiple of any vector */

static const tern_kernel_table *tables[TERN_MOST_ISAS];
static int n_tables;

static int find_tables(void **state) {
  (void)state;
  n_tables = tern_kernels_all(tables);
  return 0;
}

/* Values with every corner among them. */
static void fill_corners(tern_dtype dtype, void *out, int n) {
  static const double corners[] = {0, -0.0, 1, -1, 0.5, 2, -2, 3, 100, -100, INFINITY, -INFINITY, NAN, 1e-40, 1e38, -1e38, 0x1p31, 0x1p63, 2.5, 3.5};
  for (int i = 0; i < n; i++) {
    double x = random_below(3) ? (random_below(2000001) - 1000000) / 9e4 : corners[random_below((int)TERN_COUNT(corners))];
    int64_t bits = (int64_t)((uint64_t)random_u32() << 33 ^ (uint64_t)random_u32() << 2 ^ random_u32());
    int64_t whole = random_below(3) ? random_below(21) - 10 : random_below(3) ? bits : INT64_MIN;
    evaluate_store_number(dtype, out, i, (evaluate_number){x, 0, dtype == TERN_BOOL ? random_below(2) : whole});
  }
}

static bool same_number(tern_dtype dtype, evaluate_number x, evaluate_number y, double tolerance) {
  if (!tern_dtype_is_float(dtype)) return x.i == y.i;
  return x.re == y.re || (isnan(x.re) && isnan(y.re)) || fabs(x.re - y.re) <= tolerance * fabs(y.re);
}

static bool is_approximate(tern_op_kind kind) {
  switch (kind) {
    case TERN_OP_EXP: case TERN_OP_EXPM1: case TERN_OP_LOG: case TERN_OP_LOG1P: case TERN_OP_TANH: case TERN_OP_LOGISTIC: case TERN_OP_SINE: case TERN_OP_COSINE:
    case TERN_OP_ERF: case TERN_OP_ERFC: case TERN_OP_LGAMMA: case TERN_OP_POWER: case TERN_OP_ATAN2: case TERN_OP_RSQRT: return true;
    default: return false;
  }
}

static void every_operation(void **state) {
  (void)state;
  static _Alignas(64) char a[N * 8], b[N * 8], out[N * 8], in_place[N * 8];
  for (int t = 0; t < n_tables; t++)
    for (int kind = 0; kind < TERN_OP_COUNT; kind++)
      for (int d = 0; d < TERN_DTYPE_COUNT; d++) {
        const tern_dtype dtype = (tern_dtype)d;
        const tern_block_function run = tables[t]->blocks->operation[kind][d];
        if (!run || (dtype == TERN_BOOL && (kind == TERN_OP_SUBTRACT || kind == TERN_OP_POWER))) continue;
        const tern_dtype result = kind == TERN_OP_IS_FINITE ? TERN_BOOL : dtype;
        fill_corners(dtype, a, N);
        fill_corners(dtype, b, N);
        memcpy(in_place, a, sizeof a);
        run(out, a, b, b, N);
        if (result == dtype) {
          run(in_place, in_place, b, b, N);
          assert_memory_equal(in_place, out, N * tern_dtype_size(dtype));
        }
        for (int i = 0; i < N; i++) {
          evaluate_number x = evaluate_load_number(dtype, a, i), y = evaluate_load_number(dtype, b, i), got = evaluate_load_number(result, out, i);
          evaluate_number want = tern_op_rows[kind].operands == 1 ? evaluate_unary_number((tern_op_kind)kind, dtype, result, x) : evaluate_binary_number((tern_op_kind)kind, dtype, x, y);
          if (kind == TERN_OP_SIGN && isnan(x.re)) want.re = 0; /* as PyTorch */
          char rounded[16];
          evaluate_store_number(result, rounded, 0, want);
          want = evaluate_load_number(result, rounded, 0);
          if (!same_number(result, got, want, is_approximate((tern_op_kind)kind) && fabs(want.re) > 1e-37 ? 4e-7 : is_approximate((tern_op_kind)kind) ? 1 : 0))
            fail_msg("%s: %s of %s: f(%.9g, %.9g) = %.9g, should be %.9g (%lld, %lld: %lld, %lld)", tables[t]->isa, tern_op_rows[kind].name, tern_dtype_name(dtype), x.re, y.re,
                     got.re, want.re, (long long)x.i, (long long)y.i, (long long)got.i, (long long)want.i);
        }
      }
}

static void every_comparison(void **state) {
  (void)state;
  static _Alignas(64) char a[N * 8], b[N * 8], out[N];
  for (int t = 0; t < n_tables; t++)
    for (int how = 0; how <= TERN_GE; how++)
      for (int d = 0; d < TERN_DTYPE_COUNT; d++) {
        const tern_block_function run = tables[t]->blocks->compare[how][d];
        if (!run) continue;
        fill_corners((tern_dtype)d, a, N);
        fill_corners((tern_dtype)d, b, N);
        run(out, a, b, b, N);
        for (int i = 0; i < N; i++)
          assert_int_equal(out[i], evaluate_compare_numbers((tern_comparison)how, (tern_dtype)d, evaluate_load_number((tern_dtype)d, a, i), evaluate_load_number((tern_dtype)d, b, i)));
      }
}

/* Where the result is defined for both judges: in range, and NaN for the wide types. */
static void every_conversion(void **state) {
  (void)state;
  static _Alignas(64) char a[N * 8], out[N * 8];
  for (int t = 0; t < n_tables; t++)
    for (int from = 0; from < TERN_DTYPE_COUNT; from++)
      for (int to = 0; to < TERN_DTYPE_COUNT; to++) {
        const tern_block_function run = tables[t]->blocks->convert[from][to];
        if (!run) continue;
        fill_corners((tern_dtype)from, a, N);
        run(out, a, a, a, N);
        for (int i = 0; i < N; i++) {
          evaluate_number x = evaluate_load_number((tern_dtype)from, a, i), want = evaluate_convert_number((tern_dtype)from, (tern_dtype)to, x);
          if (tern_dtype_is_float((tern_dtype)from) && tern_dtype_size((tern_dtype)to) < 4 && !tern_dtype_is_float((tern_dtype)to) && to != TERN_BOOL && !(fabs(x.re) < 127 && (x.re > -1 || tern_dtype_is_signed((tern_dtype)to)))) continue;
          char rounded[16];
          evaluate_store_number((tern_dtype)to, rounded, 0, want);
          want = evaluate_load_number((tern_dtype)to, rounded, 0);
          evaluate_number got = evaluate_load_number((tern_dtype)to, out, i);
          if (!same_number((tern_dtype)to, got, want, 0))
            fail_msg("%s: %s to %s: %.9g %lld gives %.9g %lld, should be %.9g %lld", tables[t]->isa, tern_dtype_name((tern_dtype)from), tern_dtype_name((tern_dtype)to), x.re, (long long)x.i,
                     got.re, (long long)got.i, want.re, (long long)want.i);
        }
      }
}

/* ---- elementary functions over the whole range ---- */

static double logistic(double x) { return 1 / (1 + exp(-x)); }
static const struct {
  tern_op_kind kind;
  double (*exact)(double);
  double ulps; /* as stated in math.h */
} functions[] = {
    {TERN_OP_EXP, exp, 1.1},   {TERN_OP_EXPM1, expm1, 2}, {TERN_OP_LOG, log, 1.2},  {TERN_OP_LOG1P, log1p, 2}, {TERN_OP_TANH, tanh, 5.5},
    {TERN_OP_LOGISTIC, logistic, 3}, {TERN_OP_ERF, erf, 2.5}, {TERN_OP_SINE, sin, 2.2}, {TERN_OP_COSINE, cos, 2.2},
};

static void functions_over_all_floats(void **state) {
  (void)state;
  enum { BATCH = 4096, STEP = 4099 }; /* a prime: mantissas and exponents of every kind, a million of them */
  static float x[BATCH], y[BATCH];
  for (int t = 0; t < n_tables; t++)
    for (size_t f = 0; f < TERN_COUNT(functions); f++)
      for (uint64_t first = 0; first < (uint64_t)1 << 32; first += (uint64_t)BATCH * STEP) {
        for (int i = 0; i < BATCH; i++) {
          uint32_t bits = (uint32_t)(first + (uint64_t)i * STEP);
          memcpy(&x[i], &bits, sizeof bits);
        }
        tables[t]->blocks->operation[functions[f].kind][TERN_F32](y, x, x, x, BATCH);
        for (int i = 0; i < BATCH; i++) {
          const double exact = functions[f].exact((double)x[i]);
          const float nearest = (float)exact;
          if (nearest == y[i] || (isnan(nearest) && isnan(y[i]))) continue;
          const double ulp = fabs(exact) < 0x1p-126 ? 0x1p-149 : ldexp(1, ilogb(exact) - 23);
          if (!(fabs((double)y[i] - exact) <= functions[f].ulps * ulp))
            fail_msg("%s: %s(%a) = %a, should be %a", tables[t]->isa, tern_op_rows[functions[f].kind].name, (double)x[i], (double)y[i], exact);
        }
      }
}

/* An element's result does not depend on where it stands or how many stand beside it. */
static void results_do_not_depend_on_place(void **state) {
  (void)state;
  static float x[N], whole[N], part[N];
  fill_corners(TERN_F32, x, N);
  for (int t = 0; t < n_tables; t++)
    for (int kind = 0; kind < TERN_OP_COUNT; kind++) {
      const tern_block_function run = tables[t]->blocks->operation[kind][TERN_F32];
      if (!run || kind == TERN_OP_IS_FINITE) continue;
      run(whole, x, x, x, N);
      for (int n = 1; n < 70; n++) {
        run(part, x + n, x + n, x + n, n);
        for (int i = 0; i < n; i++) assert_true(memcmp(&part[i], &whole[n + i], 4) == 0 || (isnan(part[i]) && isnan(whole[n + i])));
      }
    }
}

/* ---- reductions ---- */

static void sums_are_accurate(void **state) {
  (void)state;
  static const int shapes[][2] = {{1, 1000000}, {1000000, 1}, {300, 7}, {7, 300}, {4096, 33}, {33, 4096}, {513, 1025}, {70000, 3}, {3, 70000}, {16, 16}, {17, 2049}};
  for (size_t s = 0; s < TERN_COUNT(shapes); s++)
    for (int dim = 0; dim < 2; dim++) {
      tern_program *p;
      check(tern_program_new(&p));
      const int64_t dims[2] = {shapes[s][0], shapes[s][1]};
      tern_result(p, tern_reduce(p, TERN_SUM, tern_parameter(p, TERN_F32, 2, dims), 1, (int[]){dim}), -1);
      check(tern_program_finish(p));
      float *x = malloc((size_t)(dims[0] * dims[1]) * sizeof *x);
      for (int64_t i = 0; i < dims[0] * dims[1]; i++) x[i] = (float)random_below(1000000) * 1e-6f; /* all positive: errors add up in a naive sum */
      float **results = (float **)run(p, (void *[]){x}, NULL, false);
      for (int64_t k = 0; k < dims[1 - dim]; k++) {
        double exact = 0;
        for (int64_t i = 0; i < dims[dim]; i++) exact += (double)(dim == 0 ? x[i * dims[1] + k] : x[k * dims[1] + i]);
        if (!(fabs(results[0][k] - exact) <= 3e-7 * exact)) fail_msg("[%d,%d] over %d: %.9g, should be %.9g", shapes[s][0], shapes[s][1], dim, (double)results[0][k], exact);
      }
      free(x);
      free_arrays((void **)results, 1);
      tern_program_free(p);
    }
}

static void nan_wins_reductions(void **state) {
  (void)state;
  for (int how = TERN_MAX; how <= TERN_MIN; how++)
    for (int length = 1; length < 200; length += 3) {
      tern_program *p;
      check(tern_program_new(&p));
      const int64_t dims[2] = {33, length};
      tern_value x = tern_parameter(p, TERN_F32, 2, dims);
      tern_result(p, tern_reduce(p, (tern_reduction)how, x, 1, (int[]){1}), -1);
      tern_result(p, tern_reduce(p, (tern_reduction)how, x, 1, (int[]){0}), -1);
      check(tern_program_finish(p));
      void **inputs = make_inputs(p, false);
      float *array = inputs[0];
      for (int k = 0; k < 5; k++) array[random_below(33 * length)] = NAN;
      void **got = run(p, inputs, NULL, false), *want[2];
      check(evaluate(p, (const void *const *)inputs, NULL, want));
      close_to(p, got, want, 0);
      free(want[0]), free(want[1]);
      free_arrays(got, 2), free_arrays(inputs, 1);
      tern_program_free(p);
    }
}

static int open_all(void **state) { return find_tables(state) || open_device(state); }

/* Chains against their operations one by one, bit for bit: whole tiles, single vectors and a rest, scalar operands, results stored on the way, and a result over an operand. */
static void chains(void **state) {
  (void)state;
  static const struct { tern_op_kind op; bool swapped; } meaning[] = {
      [TERN_CHAIN_ADD] = {TERN_OP_ADD, false},         [TERN_CHAIN_SUBTRACT] = {TERN_OP_SUBTRACT, false}, [TERN_CHAIN_SUBTRACT_FROM] = {TERN_OP_SUBTRACT, true},
      [TERN_CHAIN_MULTIPLY] = {TERN_OP_MULTIPLY, false}, [TERN_CHAIN_DIVIDE] = {TERN_OP_DIVIDE, false},   [TERN_CHAIN_DIVIDE_INTO] = {TERN_OP_DIVIDE, true},
      [TERN_CHAIN_MAXIMUM] = {TERN_OP_MAXIMUM, false}, [TERN_CHAIN_MINIMUM] = {TERN_OP_MINIMUM, false},   [TERN_CHAIN_SQRT] = {TERN_OP_SQRT, false},
      [TERN_CHAIN_NEGATE] = {TERN_OP_NEGATE, false},   [TERN_CHAIN_ABS] = {TERN_OP_ABS, false}};
  enum { REGISTERS = 6, STEPS = 12 };
  static float memory[REGISTERS][N], expected[REGISTERS][N], x[N], y[N];
  for (int t = 0; t < n_tables; t++)
    for (int round = 0; round < 300; round++) {
      const tern_block_machine *m = tables[t]->blocks;
      const int n = 1 + random_below(round % 2 ? N : 40);
      tern_chain_step steps[STEPS] = {{TERN_CHAIN_LOAD, random_below(4) == 0, (uint16_t)random_below(REGISTERS)}};
      for (int r = 0; r < REGISTERS; r++) fill_corners(TERN_F32, memory[r], N);
      memcpy(expected, memory, sizeof memory);
      for (int i = 0; i < N; i++) x[i] = memory[steps[0].reg][steps[0].scalar ? 0 : i];
      uint32_t stored = 0; /* a scalar operand is never what the chain stores */
      for (int k = 1; k < STEPS; k++) {
        tern_chain_step *s = &steps[k];
        *s = (tern_chain_step){(uint8_t)(1 + random_below(TERN_CHAIN_STORE)), random_below(3) == 0, (uint16_t)random_below(REGISTERS)};
        if (k == STEPS - 1) s->kind = TERN_CHAIN_STORE;
        for (int before = 0; before < k; before++)
          if (s->kind == TERN_CHAIN_STORE && steps[before].scalar && steps[before].reg == s->reg) s->kind = TERN_CHAIN_ABS;
        s->scalar &= s->kind != TERN_CHAIN_STORE && !(stored >> s->reg & 1);
        if (s->kind == TERN_CHAIN_STORE) {
          memcpy(expected[s->reg], x, sizeof x[0] * (size_t)n);
          stored |= 1u << s->reg;
          continue;
        }
        for (int i = 0; i < N; i++) y[i] = s->kind == TERN_CHAIN_SQUARE ? x[i] : expected[s->reg][s->scalar ? 0 : i];
        const tern_op_kind op = s->kind == TERN_CHAIN_SQUARE ? TERN_OP_MULTIPLY : meaning[s->kind].op;
        const bool swapped = s->kind != TERN_CHAIN_SQUARE && meaning[s->kind].swapped;
        m->operation[op][TERN_F32](x, swapped ? y : x, swapped ? x : y, x, n);
      }
      char *registers[REGISTERS];
      for (int r = 0; r < REGISTERS; r++) registers[r] = (char *)memory[r];
      m->chain(steps, STEPS, registers, n);
      for (int r = 0; r < REGISTERS; r++)
        for (int i = 0; i < N; i++) assert_true(memory[r][i] == expected[r][i] || (isnan(memory[r][i]) && isnan(expected[r][i])));
    }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(every_operation),
      cmocka_unit_test(chains),      cmocka_unit_test(every_comparison),  cmocka_unit_test(every_conversion), cmocka_unit_test(functions_over_all_floats),
      cmocka_unit_test(results_do_not_depend_on_place), cmocka_unit_test(sums_are_accurate), cmocka_unit_test(nan_wins_reductions),
  };
  return cmocka_run_group_tests(tests, open_all, close_device);
}
