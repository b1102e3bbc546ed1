/* The planner on hand-made and random programs: fused, one by one, on one and two threads, with and without donation. */
#include "cpu_program.h"

static tern_program *new_program(void) {
  tern_program *p;
  check(tern_program_new(&p));
  return p;
}
static tern_value parameter(tern_program *p, tern_dtype dtype, int rank, ...) {
  int64_t dims[8];
  va_list arguments;
  va_start(arguments, rank);
  for (int d = 0; d < rank; d++) dims[d] = va_arg(arguments, int);
  va_end(arguments);
  return tern_parameter(p, dtype, rank, dims);
}
static tern_value constant(tern_program *p, double x) { return tern_constant_float(p, TERN_F32, 0, NULL, x); }

/* ---- donation ---- */

/* One Adam step: three results in place of three parameters. */
static void adam_step_in_place(void **state) {
  (void)state;
  tern_program *p = new_program();
  tern_value w = parameter(p, TERN_F32, 2, 301, 97), g = parameter(p, TERN_F32, 2, 301, 97), m = parameter(p, TERN_F32, 2, 301, 97), v = parameter(p, TERN_F32, 2, 301, 97);
  tern_value rate = tern_scalar(p, TERN_F32);
  tern_value m1 = tern_add(p, tern_multiply(p, m, constant(p, 0.9)), tern_multiply(p, g, constant(p, 0.1)));
  tern_value g2 = tern_multiply(p, g, g);
  tern_value v1 = tern_maximum(p, tern_add(p, tern_multiply(p, v, constant(p, 0.99)), tern_multiply(p, g2, constant(p, 0.01))), constant(p, 0));
  tern_value w1 = tern_subtract(p, w, tern_multiply(p, rate, tern_divide(p, m1, tern_add(p, tern_sqrt(p, v1), constant(p, 1e-3)))));
  tern_result(p, w1, 0);
  tern_result(p, m1, 2);
  tern_result(p, v1, 3);
  check_program(p, false, 1e-5);
}

/* The old value is read after the new one is made: the parameter's storage must not be used too early. */
static void old_value_outlives_new(void **state) {
  (void)state;
  for (int form = 0; form < 3; form++) {
    tern_program *p = new_program();
    tern_value x = parameter(p, TERN_F32, 2, 64, 64);
    tern_value y = tern_add(p, x, constant(p, 1));
    tern_value z = form == 0 ? tern_multiply(p, y, x) : form == 1 ? tern_multiply(p, y, tern_transpose(p, x, (int[]){1, 0})) : tern_add(p, tern_transpose(p, y, (int[]){1, 0}), x);
    tern_result(p, y, 0);
    tern_result(p, z, -1);
    check_program(p, false, 1e-6);
  }
}

static void results_of_every_kind(void **state) {
  (void)state;
  tern_program *p = new_program();
  tern_value x = parameter(p, TERN_F32, 2, 6, 10), y = parameter(p, TERN_F32, 2, 6, 10);
  tern_value sum = tern_add(p, x, y);
  tern_result(p, x, 0);                                             /* a parameter in its own storage */
  tern_result(p, x, -1);                                            /* and copied */
  tern_result(p, sum, 1);
  tern_result(p, sum, -1);                                          /* one value twice */
  tern_result(p, tern_reshape(p, sum, 1, (int64_t[]){60}), -1);     /* and in another shape */
  tern_result(p, tern_transpose(p, y, (int[]){1, 0}), -1);          /* a view of a parameter */
  tern_result(p, tern_constant_int(p, TERN_I32, 1, (int64_t[]){7}, 5), -1);
  tern_result(p, tern_iota(p, TERN_F16, 2, (int64_t[]){3, 5}, 1), -1);
  tern_result(p, tern_reverse(p, tern_iota(p, TERN_I64, 1, (int64_t[]){9}, 0), 1, (int[]){0}), -1);
  tern_result(p, tern_scalar(p, TERN_I64), -1);
  tern_result(p, tern_broadcast_to(p, tern_slice(p, x, (int64_t[]){0, 1}, (int64_t[]){6, 2}, (int64_t[]){1, 1}), 2, (int64_t[]){6, 300}), -1);
  check_program(p, false, 1e-6);
}

static void update_slice_in_place(void **state) {
  (void)state;
  tern_program *p = new_program();
  tern_value x = parameter(p, TERN_F32, 2, 50, 40), u = parameter(p, TERN_F32, 2, 10, 7);
  tern_value y = tern_update_slice(p, x, u, (int64_t[]){3, 2}, (int64_t[]){2, 5});
  tern_value z = tern_update_slice(p, y, tern_multiply(p, u, u), (int64_t[]){30, 33}, (int64_t[]){1, 1});
  tern_value shifted = tern_update_slice(p, z, tern_slice(p, z, (int64_t[]){0, 0}, (int64_t[]){49, 40}, (int64_t[]){1, 1}), (int64_t[]){1, 0}, (int64_t[]){1, 1});
  tern_result(p, shifted, 0);
  check_program(p, false, 1e-6);
}

static void moves(void **state) {
  (void)state;
  tern_program *p = new_program();
  tern_value x = parameter(p, TERN_F32, 2, 5, 6), y = parameter(p, TERN_F32, 2, 6, 5), s = tern_scalar(p, TERN_F32);
  tern_value yt = tern_transpose(p, y, (int[]){1, 0});
  tern_result(p, tern_concatenate(p, 3, (tern_value[]){x, yt, tern_add(p, x, yt)}, 1), -1);
  tern_result(p, tern_concatenate(p, 2, (tern_value[]){x, tern_iota(p, TERN_F32, 2, (int64_t[]){2, 6}, 1)}, 0), -1);
  tern_result(p, tern_pad(p, x, s, (int64_t[]){1, -2}, (int64_t[]){2, 3}, (int64_t[]){0, 2}), -1);
  tern_result(p, tern_pad(p, yt, s, (int64_t[]){-7, 0}, (int64_t[]){0, 0}, (int64_t[]){3, 0}), -1);
  tern_result(p, tern_pad(p, x, s, (int64_t[]){0, -3}, (int64_t[]){0, -3}, (int64_t[]){0, 0}), -1);
  check_program(p, false, 1e-6);
}

/* A failing check leaves donated inputs as they were (run_status compares them). */
static void failed_check_keeps_inputs(void **state) {
  (void)state;
  tern_program *p = new_program();
  tern_value x = parameter(p, TERN_F32, 1, 1000), index = parameter(p, TERN_I64, 1, 3);
  tern_program_tag(p, 11);
  tern_value y = tern_multiply(p, x, x);
  tern_program_tag(p, 12);
  tern_check_index(p, index, 0, 1);
  tern_result(p, y, 0);
  check(tern_program_finish(p));
  void **inputs = make_inputs(p, true), *results[1];
  ((int64_t *)inputs[1])[0] = 0, ((int64_t *)inputs[1])[1] = 7, ((int64_t *)inputs[1])[2] = 1;
  tern_launch launch;
  tern_status status = run_status(p, inputs, NULL, true, results, &launch);
  assert_int_equal(tern_error_code(status), TERN_INDEX_OUT_OF_RANGE);
  assert_int_equal(launch.failed_tag, 12);
  assert_int_equal(launch.failed_index, 7);
  tern_error_free(status);
  ((int64_t *)inputs[1])[1] = 1;
  check(run_status(p, inputs, NULL, true, results, &launch));
  assert_true(((float *)results[0])[5] == ((float *)inputs[0])[5] * ((float *)inputs[0])[5]);
  free(results[0]);
  free_arrays(inputs, 2);
  tern_program_free(p);
}

static void empty_arrays(void **state) {
  (void)state;
  tern_program *p = new_program();
  tern_value x = parameter(p, TERN_F32, 2, 0, 5);
  tern_result(p, tern_add(p, x, x), -1);
  tern_result(p, tern_reduce(p, TERN_SUM, x, 1, (int[]){0}), -1);
  tern_result(p, tern_reduce(p, TERN_MAX, x, 1, (int[]){0}), -1);
  tern_result(p, tern_reduce(p, TERN_PROD, x, 1, (int[]){1}), -1);
  tern_result(p, tern_reshape(p, x, 3, (int64_t[]){5, 0, 2}), -1);
  check_program(p, true, 0);
}

/* ---- random programs ---- */

typedef struct pool { tern_value values[64]; int n; } pool;

static tern_value pick(tern_program *p, const pool *v, int dtype) {
  for (int tries = 0; tries < 40; tries++) {
    tern_value x = v->values[random_below(v->n)];
    if (dtype < 0 || (int)tern_value_dtype(p, x) == dtype) return x;
  }
  return TERN_NO_VALUE;
}

/* Keeps whole numbers small enough to be exact everywhere. */
static tern_value bounded(tern_program *p, tern_value x) {
  tern_dtype dtype = tern_value_dtype(p, x);
  if (dtype == TERN_BOOL) return x;
  tern_value high = tern_dtype_is_float(dtype) ? tern_constant_float(p, dtype, 0, NULL, 9) : tern_constant_int(p, dtype, 0, NULL, 9);
  return tern_minimum(p, tern_maximum(p, x, tern_negate(p, high)), high);
}

static bool compatible(tern_program *p, tern_value x, tern_value y) {
  int rx = tern_value_rank(p, x), ry = tern_value_rank(p, y);
  for (int d = 1; d <= rx && d <= ry; d++) {
    int64_t a = tern_value_dims(p, x)[rx - d], b = tern_value_dims(p, y)[ry - d];
    if (a != b && a != 1 && b != 1) return false;
  }
  return true;
}

static tern_value random_view(tern_program *p, tern_value x) {
  const int rank = tern_value_rank(p, x);
  int64_t dims[8], start[8], limit[8], stride[8];
  int order[8];
  for (int d = 0; d < rank; d++) dims[d] = tern_value_dims(p, x)[d], order[d] = d;
  switch (random_below(5)) {
    case 0:
      for (int d = rank - 1; d > 0; d--) {
        int other = random_below(d + 1), t = order[d];
        order[d] = order[other];
        order[other] = t;
      }
      return rank ? tern_transpose(p, x, order) : x;
    case 1:
      for (int d = 0; d < rank; d++) {
        stride[d] = 1 + random_below(2);
        start[d] = dims[d] > 2 ? random_below(2) : 0;
        limit[d] = dims[d];
      }
      return rank ? tern_slice(p, x, start, limit, stride) : x;
    case 2: return rank ? tern_reverse(p, x, 1, (int[]){random_below(rank)}) : x;
    case 3:
      if (rank >= 2) {
        dims[0] *= dims[1];
        for (int d = 1; d < rank - 1; d++) dims[d] = dims[d + 1];
        return tern_reshape(p, x, rank - 1, dims);
      }
      if (rank == 1 && dims[0] % 2 == 0) return tern_reshape(p, x, 2, (int64_t[]){2, dims[0] / 2});
      return x;
    default:
      if (rank > 3) return x;
      dims[rank] = 1;
      x = tern_reshape(p, x, rank + 1, dims);
      dims[rank] = 3;
      return tern_value_count(p, x) < 2000 ? tern_broadcast_to(p, x, rank + 1, dims) : x;
  }
}

static tern_value random_op(tern_program *p, const pool *v, bool whole) {
  static const tern_dtype dtypes[] = {TERN_F32, TERN_F32, TERN_F16, TERN_BF16, TERN_F64, TERN_I64, TERN_I32, TERN_U8, TERN_BOOL, TERN_I8};
  tern_value x = pick(p, v, -1), y = pick(p, v, (int)tern_value_dtype(p, x)), condition = pick(p, v, TERN_BOOL);
  tern_dtype dtype = tern_value_dtype(p, x);
  bool number = dtype != TERN_BOOL && dtype != TERN_U8;
  if (y == TERN_NO_VALUE || !compatible(p, x, y)) y = x;
  switch (random_below(14)) {
    case 0: return bounded(p, tern_add(p, x, y));
    case 1: return number ? bounded(p, tern_multiply(p, x, y)) : tern_multiply(p, x, y);
    case 2: return number ? bounded(p, tern_subtract(p, x, y)) : tern_maximum(p, x, y);
    case 3: return tern_minimum(p, x, y);
    case 4: return number ? tern_abs(p, x) : x;
    case 5: return tern_compare(p, (tern_comparison)random_below(6), x, y);
    case 6: return condition != TERN_NO_VALUE && compatible(p, condition, x) && compatible(p, condition, y) ? tern_select(p, condition, x, y) : x;
    case 7: {
      tern_dtype to = dtypes[random_below((int)TERN_COUNT(dtypes))];
      return to == TERN_U8 ? tern_convert(p, number ? tern_abs(p, x) : x, to) : tern_convert(p, x, to);
    }
    case 8: case 9: case 10: return random_view(p, x);
    case 11: {
      int rank = tern_value_rank(p, x), dims[8], n = 0;
      for (int d = 0; d < rank; d++)
        if (random_below(2)) dims[n++] = d;
      if (!n) return x;
      if (dtype == TERN_BOOL) return tern_reduce(p, random_below(2) ? TERN_ANY : TERN_ALL, x, n, dims);
      if (dtype == TERN_U8) return tern_reduce(p, random_below(2) ? TERN_MAX : TERN_MIN, x, n, dims);
      tern_value r = tern_reduce(p, (tern_reduction[]){TERN_SUM, TERN_SUM, TERN_MAX, TERN_MIN}[random_below(4)], x, n, dims);
      return bounded(p, r);
    }
    case 12:
      if (!whole && dtype == TERN_F32) return random_below(2) ? tern_tanh(p, x) : tern_logistic(p, x);
      return x;
    default:
      if (!whole && dtype == TERN_F32) return tern_divide(p, x, tern_add(p, tern_abs(p, y), tern_constant_float(p, TERN_F32, 0, NULL, 0.5)));
      return number ? tern_negate(p, x) : x;
  }
}

static void random_program(bool whole) {
  static const int64_t shapes[][3] = {{7, 33, 13}, {33, 13, 0}, {13, 0, 0}, {1, 13, 0}, {40, 66, 0}, {66, 0, 0}, {40, 1, 0}, {0, 0, 0}, {3, 1100, 0}, {70, 50, 3}, {2100, 3, 0}, {1, 1, 1}};
  static const tern_dtype dtypes[] = {TERN_F32, TERN_F32, TERN_F32, TERN_F16, TERN_BF16, TERN_I32, TERN_I64, TERN_U8, TERN_BOOL, TERN_F64};
  tern_program *p = new_program();
  pool v = {.n = 0};
  int n_inputs = 2 + random_below(4), n_ops = 3 + random_below(25);
  for (int i = 0; i < n_inputs; i++) {
    const int64_t *dims = shapes[random_below((int)TERN_COUNT(shapes))];
    int rank = 0;
    while (rank < 3 && dims[rank]) rank++;
    v.values[v.n++] = tern_parameter(p, dtypes[random_below((int)TERN_COUNT(dtypes))], rank, dims);
  }
  v.values[v.n++] = tern_scalar(p, TERN_F32);
  v.values[v.n++] = tern_iota(p, TERN_I32, 2, (int64_t[]){40, 66}, random_below(2));
  v.values[v.n - 1] = bounded(p, v.values[v.n - 1]);
  for (int i = 0; i < n_ops; i++) {
    tern_value x = random_op(p, &v, whole);
    if (tern_value_count(p, x) < 60000 && tern_value_rank(p, x) < 6) v.values[v.n++] = x;
  }
  bool reused[16] = {false};
  for (int i = n_inputs; i < v.n; i++) {
    if (i < v.n - 2 && random_below(4)) continue;
    int reuses = -1;
    for (int k = 0; k < n_inputs && reuses < 0; k++)
      if (!reused[k] && value_bytes(p, v.values[k]) == value_bytes(p, v.values[i]) && tern_value_dtype(p, v.values[k]) == tern_value_dtype(p, v.values[i]) &&
          tern_value_rank(p, v.values[k]) == tern_value_rank(p, v.values[i]) &&
          memcmp(tern_value_dims(p, v.values[k]), tern_value_dims(p, v.values[i]), (size_t)tern_value_rank(p, v.values[k]) * 8) == 0)
        reuses = k;
    if (reuses >= 0) reused[reuses] = true;
    tern_result(p, v.values[i], reuses);
  }
  check_program(p, whole, whole ? 0 : NAN);
}

static void random_exact(void **state) {
  (void)state;
  for (int i = 0; i < 400; i++) {
    random_state = (uint64_t)i * 7919 + 1;
    random_program(true);
  }
}
static void random_fused_equals_strict(void **state) {
  (void)state;
  for (int i = 0; i < 400; i++) {
    random_state = (uint64_t)i * 104729 + 5;
    random_program(false);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(adam_step_in_place),      cmocka_unit_test(old_value_outlives_new), cmocka_unit_test(results_of_every_kind),
      cmocka_unit_test(update_slice_in_place),   cmocka_unit_test(moves),                  cmocka_unit_test(failed_check_keeps_inputs),
      cmocka_unit_test(empty_arrays),            cmocka_unit_test(random_exact),           cmocka_unit_test(random_fused_equals_strict),
  };
  return cmocka_run_group_tests(tests, open_device, close_device);
}
