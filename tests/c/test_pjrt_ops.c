/* Every operation of ops.def as a plug-in computes it, against the plain evaluator. Many results share a program: compiling is what takes the time. */
#include "pjrt_fixture.h"

static const tern_dtype floats[] = {TERN_F32, TERN_F64, TERN_F16, TERN_BF16};
static const tern_dtype integers[] = {TERN_U8, TERN_I8, TERN_I16, TERN_I32, TERN_I64, TERN_U16, TERN_U32, TERN_U64};
static const tern_dtype all[] = {TERN_BOOL, TERN_U8,  TERN_I8,  TERN_I16,  TERN_I32, TERN_I64, TERN_U16,
                                 TERN_U32,  TERN_U64, TERN_F16, TERN_BF16, TERN_F32, TERN_F64};
typedef tern_value (*unary)(tern_program *p, tern_value x);
typedef tern_value (*binary)(tern_program *p, tern_value x, tern_value y);

static void keep(tern_program *p, tern_value v) { tern_result(p, v, -1); }

static void test_unary(void **state) {
  (void)state;
  NEED_DEVICE();
  static const unary on_floats[] = {tern_abs, tern_negate, tern_sign, tern_floor, tern_ceil, tern_round_even, tern_exp, tern_expm1,
                                    tern_log, tern_log1p,  tern_sqrt, tern_rsqrt, tern_tanh, tern_logistic,   tern_erf, tern_is_finite};
  static const unary on_integers[] = {tern_abs, tern_negate, tern_sign, tern_not};
  for (size_t d = 0; d < TERN_COUNT(floats); d++) {
    tern_program *p = begin();
    tern_value x = tern_parameter(p, floats[d], 1, DIMS(200));
    for (size_t u = 0; u < TERN_COUNT(on_floats); u++) keep(p, on_floats[u](p, x));
    check_program(p, NULL, NULL, true, 4);
    p = begin();
    x = tern_parameter(p, floats[d], 1, DIMS(200));
    keep(p, tern_sine(p, x));
    keep(p, tern_cosine(p, x));
    check_program(p, NULL, NULL, false, 4);
  }
  tern_program *p = begin();
  for (size_t d = 0; d < TERN_COUNT(integers); d++) {
    tern_value x = tern_parameter(p, integers[d], 1, DIMS(200));
    for (size_t u = 0; u < TERN_COUNT(on_integers); u++) keep(p, on_integers[u](p, x));
  }
  tern_value b = tern_parameter(p, TERN_BOOL, 1, DIMS(200));
  keep(p, tern_not(p, b));
  tern_value c = tern_parameter(p, TERN_C64, 1, DIMS(50));
  keep(p, tern_negate(p, c));
  keep(p, tern_exp(p, c));
  check_program(p, NULL, NULL, true, 4);
}

static void test_convert(void **state) {
  (void)state;
  NEED_DEVICE();
  tern_program *p = begin();
  for (size_t from = 0; from < TERN_COUNT(all); from++) {
    tern_value x = tern_parameter(p, all[from], 1, DIMS(300));
    for (size_t to = 0; to < TERN_COUNT(all); to++)
      if (from != to) keep(p, tern_convert(p, x, all[to]));
  }
  tern_value c = tern_parameter(p, TERN_C64, 1, DIMS(20));
  keep(p, tern_convert(p, c, TERN_C128));
  keep(p, tern_convert(p, tern_parameter(p, TERN_F32, 1, DIMS(20)), TERN_C64));
  keep(p, tern_bitcast(p, tern_parameter(p, TERN_F32, 1, DIMS(20)), TERN_U32));
  keep(p, tern_bitcast(p, tern_parameter(p, TERN_I64, 1, DIMS(20)), TERN_F64));
  keep(p, tern_bitcast(p, tern_parameter(p, TERN_BF16, 1, DIMS(20)), TERN_I16));
  check_program(p, NULL, NULL, true, 1);
}

static void test_binary(void **state) {
  (void)state;
  NEED_DEVICE();
  static const binary on_floats[] = {tern_add, tern_subtract, tern_multiply, tern_divide, tern_remainder, tern_power, tern_maximum, tern_minimum, tern_atan2};
  static const binary on_integers[] = {tern_add,     tern_subtract, tern_multiply, tern_divide, tern_remainder,  tern_maximum,
                                       tern_minimum, tern_and,      tern_or,       tern_xor,    tern_shift_left, tern_shift_right};
  static const binary on_bools[] = {tern_add, tern_multiply, tern_maximum, tern_minimum, tern_and, tern_or, tern_xor};
  for (size_t d = 0; d < TERN_COUNT(floats); d++) {
    tern_program *p = begin();
    tern_value x = tern_parameter(p, floats[d], 1, DIMS(400)), y = tern_parameter(p, floats[d], 1, DIMS(400));
    for (size_t u = 0; u < TERN_COUNT(on_floats); u++) keep(p, on_floats[u](p, x, y));
    for (int how = TERN_EQ; how <= TERN_GE; how++) keep(p, tern_compare(p, (tern_comparison)how, x, y));
    check_program(p, NULL, NULL, true, 8);
  }
  tern_program *p = begin();
  for (size_t d = 0; d < TERN_COUNT(integers); d++) {
    tern_value x = tern_parameter(p, integers[d], 1, DIMS(400)), y = tern_parameter(p, integers[d], 1, DIMS(400));
    for (size_t u = 0; u < TERN_COUNT(on_integers); u++) keep(p, on_integers[u](p, x, y));
    for (int how = TERN_EQ; how <= TERN_GE; how++) keep(p, tern_compare(p, (tern_comparison)how, x, y));
  }
  tern_value a = tern_parameter(p, TERN_BOOL, 1, DIMS(50)), b = tern_parameter(p, TERN_BOOL, 1, DIMS(50));
  for (size_t u = 0; u < TERN_COUNT(on_bools); u++) keep(p, on_bools[u](p, a, b));
  for (int how = TERN_EQ; how <= TERN_GE; how++) keep(p, tern_compare(p, (tern_comparison)how, a, b));
  tern_value c = tern_parameter(p, TERN_C64, 1, DIMS(50)), e = tern_parameter(p, TERN_C64, 1, DIMS(50));
  keep(p, tern_add(p, c, e));
  keep(p, tern_subtract(p, c, e));
  check_program(p, NULL, NULL, true, 4);
  p = begin();
  c = tern_parameter(p, TERN_C64, 1, DIMS(50)), e = tern_parameter(p, TERN_C64, 1, DIMS(50));
  keep(p, tern_multiply(p, c, e));
  keep(p, tern_divide(p, c, e));
  keep(p, tern_select(p, tern_parameter(p, TERN_BOOL, 1, DIMS(50)), c, e));
  check_program(p, NULL, NULL, false, 20);
}

/* A plug-in that takes no options and whose maximum forgets NaN: the text sees to it. */
static void test_guarded_nan(void **state) {
  (void)state;
  NEED_DEVICE();
  static const tern_pjrt_target forgetful = {"", 0, false, true};
  const tern_pjrt_target *real = device->client->target;
  device->client->target = &forgetful;
  tern_program *p = begin();
  for (size_t d = 0; d < TERN_COUNT(floats); d++) {
    tern_value x = tern_parameter(p, floats[d], 2, DIMS(10, 20)), y = tern_parameter(p, floats[d], 2, DIMS(10, 20));
    keep(p, tern_maximum(p, x, y));
    keep(p, tern_minimum(p, x, y));
    keep(p, tern_reduce(p, TERN_MAX, x, 1, INTS(1)));
    keep(p, tern_reduce(p, TERN_MIN, x, 2, INTS(0, 1)));
    keep(p, tern_scan(p, TERN_MAX, x, 1));
  }
  check_program(p, NULL, NULL, true, 1);
  device->client->target = real;
}

static void test_leaves(void **state) {
  (void)state;
  NEED_DEVICE();
  tern_program *p = begin();
  for (size_t d = 0; d < TERN_COUNT(all); d++) {
    keep(p, tern_constant_int(p, all[d], 1, DIMS(2), all[d] == TERN_BOOL ? 1 : 100));
    if (all[d] != TERN_BOOL) keep(p, tern_iota(p, all[d], 2, DIMS(3, 5), (int)(d % 2)));
    if (tern_dtype_is_signed(all[d])) keep(p, tern_constant_int(p, all[d], 0, NULL, -7));
    if (!tern_dtype_is_float(all[d])) continue;
    keep(p, tern_constant_float(p, all[d], 0, NULL, 0.1));
    keep(p, tern_constant_float(p, all[d], 0, NULL, INFINITY));
    keep(p, tern_constant_float(p, all[d], 0, NULL, -INFINITY));
    keep(p, tern_constant_float(p, all[d], 0, NULL, NAN));
  }
  keep(p, tern_constant_float(p, TERN_C64, 1, DIMS(2), 0.25));
  keep(p, tern_constant_float(p, TERN_C128, 0, NULL, -3));
  keep(p, tern_constant_int(p, TERN_I64, 0, NULL, INT64_MIN));
  keep(p, tern_constant_int(p, TERN_U64, 0, NULL, -1));
  check_program(p, NULL, NULL, true, 1);
}

static void test_scalars(void **state) {
  (void)state;
  NEED_DEVICE();
  static const tern_dtype kinds[] = {TERN_BOOL, TERN_I32, TERN_I64, TERN_U32, TERN_U64, TERN_F32, TERN_F64, TERN_F64, TERN_I64};
  double half = -0.5, tiny = 1e-300;
  float third = 1.0f / 3;
  uint64_t scalars[9] = {1, 0, (uint64_t)-5000000000, 0xFFFFFFFF, ~0ull - 1, 0, 0, 0, INT64_MAX};
  int32_t minus = -3;
  memcpy(&scalars[1], &minus, 4), memcpy(&scalars[5], &third, 4), memcpy(&scalars[6], &half, 8), memcpy(&scalars[7], &tiny, 8);
  tern_program *p = begin();
  for (size_t k = 0; k < TERN_COUNT(kinds); k++) keep(p, tern_broadcast_to(p, tern_scalar(p, kinds[k]), 1, DIMS(3)));
  check_program(p, NULL, scalars, true, 1);
}

static void test_views(void **state) {
  (void)state;
  NEED_DEVICE();
  tern_program *p = begin();
  static const tern_dtype some[] = {TERN_F32, TERN_BOOL, TERN_I64, TERN_BF16, TERN_C64};
  for (size_t d = 0; d < TERN_COUNT(some); d++) {
    tern_value x = tern_parameter(p, some[d], 3, DIMS(4, 1, 6));
    keep(p, tern_broadcast_in_dim(p, x, 4, DIMS(4, 3, 6, 2), INTS(0, 1, 2)));
    keep(p, tern_reshape(p, x, 2, DIMS(8, 3)));
    keep(p, tern_transpose(p, x, INTS(2, 0, 1)));
    keep(p, tern_slice(p, x, DIMS(1, 0, 0), DIMS(4, 1, 6), DIMS(2, 1, 3)));
    keep(p, tern_reverse(p, x, 2, INTS(0, 2)));
    keep(p, tern_concatenate(p, 3, (tern_value[]){x, x, tern_parameter(p, some[d], 3, DIMS(4, 2, 6))}, 1));
  }
  check_program(p, NULL, NULL, true, 1);
}

static void test_moves(void **state) {
  (void)state;
  NEED_DEVICE();
  tern_program *p = begin();
  static const tern_dtype some[] = {TERN_F32, TERN_BOOL, TERN_I64};
  for (size_t d = 0; d < TERN_COUNT(some); d++) {
    tern_value x = tern_parameter(p, some[d], 2, DIMS(5, 7)), zero = tern_constant_int(p, some[d], 0, NULL, 1);
    keep(p, tern_pad(p, x, zero, DIMS(1, 0), DIMS(2, 3), DIMS(0, 2)));
    keep(p, tern_pad(p, x, zero, DIMS(-1, 2), DIMS(1, -3), DIMS(1, 0)));
    keep(p, tern_update_slice(p, x, tern_parameter(p, some[d], 2, DIMS(2, 3)), DIMS(3, 4), DIMS(1, 1)));
    keep(p, tern_update_slice(p, x, tern_parameter(p, some[d], 2, DIMS(2, 3)), DIMS(1, 0), DIMS(3, 2)));
    keep(p, tern_update_slice(p, x, tern_parameter(p, some[d], 2, DIMS(5, 7)), DIMS(0, 0), DIMS(1, 1)));
    keep(p, tern_update_slice(p, x, tern_parameter(p, some[d], 2, DIMS(1, 1)), DIMS(4, 6), DIMS(1, 1)));
    tern_value empty = tern_parameter(p, some[d], 2, DIMS(0, 7));
    keep(p, tern_update_slice(p, x, empty, DIMS(2, 0), DIMS(1, 1)));
    keep(p, tern_concatenate(p, 2, (tern_value[]){x, empty}, 0));
    keep(p, tern_reduce(p, some[d] == TERN_BOOL ? TERN_ANY : TERN_SUM, empty, 1, INTS(0)));
    keep(p, tern_slice(p, x, DIMS(2, 0), DIMS(2, 7), DIMS(1, 1)));
  }
  check_program(p, NULL, NULL, true, 1);
}

static void test_reduce(void **state) {
  (void)state;
  NEED_DEVICE();
  for (int awkward = 0; awkward < 2; awkward++) {
    tern_program *p = begin();
    for (size_t d = 0; d < TERN_COUNT(all); d++) {
      tern_dtype t = all[d];
      tern_value x = tern_parameter(p, t, 3, DIMS(3, 40, 2));
      for (int how = TERN_SUM; how <= TERN_ANY; how++) {
        if ((how == TERN_ALL || how == TERN_ANY) != (t == TERN_BOOL)) continue;
        if (awkward && tern_dtype_is_float(t) && how <= TERN_PROD) continue; /* inf - inf depends on the order */
        if (how == TERN_PROD && (t == TERN_F16 || t == TERN_BF16)) continue; /* overflows */
        keep(p, tern_reduce(p, (tern_reduction)how, x, 1, INTS(1)));
        keep(p, tern_reduce(p, (tern_reduction)how, x, 2, INTS(0, 2)));
        if (how != TERN_PROD) keep(p, tern_reduce(p, (tern_reduction)how, x, 3, INTS(0, 1, 2)));
      }
    }
    check_program(p, NULL, NULL, awkward, 20);
  }
}

static void test_arg_reduce_and_sort(void **state) {
  (void)state;
  NEED_DEVICE();
  for (int awkward = 0; awkward < 2; awkward++) {
    tern_program *p = begin();
    for (size_t d = 0; d < TERN_COUNT(all); d++) {
      tern_value x = tern_parameter(p, all[d], 2, DIMS(5, 60)), index;
      for (int how = TERN_MAX; how <= TERN_MIN; how++)
        for (int dim = 0; dim < 2; dim++) {
          keep(p, tern_arg_reduce(p, (tern_reduction)how, x, dim, &index));
          keep(p, index);
        }
      keep(p, tern_sort(p, x, 1, awkward, &index));
      keep(p, index);
      keep(p, tern_sort(p, x, 0, !awkward, &index));
      keep(p, index);
    }
    check_program(p, NULL, NULL, awkward, 1);
  }
  tern_program *p = begin(); /* nothing but what a reduction starts from */
  float lowest[6] = {-INFINITY, -INFINITY, -INFINITY, NAN, -INFINITY, NAN};
  tern_value x = tern_parameter(p, TERN_F32, 2, DIMS(2, 3)), index;
  keep(p, tern_arg_reduce(p, TERN_MAX, x, 1, &index));
  keep(p, index);
  check_program(p, (const void *const[]){lowest}, NULL, false, 1);
}

static void test_scan(void **state) {
  (void)state;
  NEED_DEVICE();
  tern_program *p = begin();
  static const tern_dtype some[] = {TERN_F32, TERN_F64, TERN_BF16, TERN_I64, TERN_I32};
  for (size_t d = 0; d < TERN_COUNT(some); d++) {
    tern_value x = tern_parameter(p, some[d], 2, DIMS(6, 100));
    keep(p, tern_scan(p, TERN_SUM, x, 1));
    keep(p, tern_scan(p, TERN_SUM, x, 0));
    keep(p, tern_scan(p, TERN_MAX, x, 1));
    keep(p, tern_scan(p, TERN_MIN, x, 1));
    keep(p, tern_scan(p, TERN_PROD, x, 0));
  }
  check_program(p, NULL, NULL, false, 20);
  p = begin();
  tern_value x = tern_parameter(p, TERN_F32, 1, DIMS(1000));
  keep(p, tern_scan(p, TERN_MAX, x, 0));
  keep(p, tern_scan(p, TERN_MIN, x, 0));
  check_program(p, NULL, NULL, true, 1);
}

static void test_dot(void **state) {
  (void)state;
  NEED_DEVICE();
  for (size_t d = 0; d < TERN_COUNT(floats); d++) {
    tern_program *p = begin();
    tern_dtype t = floats[d];
    keep(p, tern_dot(p, tern_parameter(p, t, 2, DIMS(9, 33)), tern_parameter(p, t, 2, DIMS(33, 17)), 0, NULL, NULL, 1, INTS(1), INTS(0)));
    keep(p, tern_dot(p, tern_parameter(p, t, 3, DIMS(4, 9, 33)), tern_parameter(p, t, 3, DIMS(4, 17, 33)), 1, INTS(0), INTS(0), 1, INTS(2), INTS(2)));
    keep(p, tern_dot(p, tern_parameter(p, t, 3, DIMS(5, 3, 4)), tern_parameter(p, t, 3, DIMS(4, 5, 6)), 0, NULL, NULL, 2, INTS(0, 2), INTS(1, 0)));
    keep(p, tern_dot(p, tern_parameter(p, t, 1, DIMS(50)), tern_parameter(p, t, 1, DIMS(50)), 0, NULL, NULL, 1, INTS(0), INTS(0)));
    keep(p, tern_dot(p, tern_parameter(p, t, 2, DIMS(3, 0)), tern_parameter(p, t, 2, DIMS(0, 2)), 0, NULL, NULL, 1, INTS(1), INTS(0)));
    check_program(p, NULL, NULL, false, 30);
  }
  tern_program *p = begin();
  keep(p, tern_dot(p, tern_parameter(p, TERN_I64, 2, DIMS(3, 4)), tern_parameter(p, TERN_I64, 2, DIMS(4, 2)), 0, NULL, NULL, 1, INTS(1), INTS(0)));
  keep(p, tern_dot(p, tern_parameter(p, TERN_I32, 2, DIMS(3, 4)), tern_parameter(p, TERN_I32, 2, DIMS(4, 2)), 0, NULL, NULL, 1, INTS(1), INTS(0)));
  check_program(p, NULL, NULL, true, 1);
}

static void test_convolution(void **state) {
  (void)state;
  NEED_DEVICE();
  tern_program *p = begin();
  tern_window one = {.spatial = 1, .stride = {2}, .pad_low = {1}, .pad_high = {2}, .dilation = {2}, .groups = 1};
  tern_window two = {.spatial = 2, .stride = {1, 2}, .pad_low = {1, 0}, .pad_high = {1, 1}, .dilation = {1, 1}, .groups = 2};
  tern_window three = {.spatial = 3, .stride = {1, 1, 1}, .pad_low = {0, 1, 0}, .pad_high = {0, 1, 0}, .dilation = {1, 1, 1}, .groups = 1};
  tern_window negative = {.spatial = 2, .stride = {1, 1}, .pad_low = {-1, 0}, .pad_high = {0, -2}, .dilation = {1, 1}, .groups = 1};
  keep(p, tern_convolution(p, tern_parameter(p, TERN_F32, 3, DIMS(2, 3, 14)), tern_parameter(p, TERN_F32, 3, DIMS(4, 3, 3)), &one));
  keep(p, tern_convolution(p, tern_parameter(p, TERN_F32, 4, DIMS(2, 4, 8, 9)), tern_parameter(p, TERN_F32, 4, DIMS(6, 2, 3, 3)), &two));
  keep(p, tern_convolution(p, tern_parameter(p, TERN_F32, 5, DIMS(1, 2, 4, 5, 6)), tern_parameter(p, TERN_F32, 5, DIMS(3, 2, 2, 3, 2)), &three));
  keep(p, tern_convolution(p, tern_parameter(p, TERN_F32, 4, DIMS(1, 2, 8, 9)), tern_parameter(p, TERN_F32, 4, DIMS(3, 2, 3, 3)), &negative));
  keep(p, tern_convolution(p, tern_parameter(p, TERN_BF16, 4, DIMS(2, 4, 8, 9)), tern_parameter(p, TERN_BF16, 4, DIMS(6, 2, 3, 3)), &two));
  keep(p, tern_convolution(p, tern_parameter(p, TERN_F64, 4, DIMS(2, 4, 8, 9)), tern_parameter(p, TERN_F64, 4, DIMS(6, 2, 3, 3)), &two));
  keep(p, tern_conv_input_grad(p, tern_parameter(p, TERN_F32, 4, DIMS(2, 6, 8, 4)), tern_parameter(p, TERN_F32, 4, DIMS(6, 2, 3, 3)), &two, DIMS(2, 4, 8, 9)));
  keep(p, tern_conv_weight_grad(p, tern_parameter(p, TERN_F32, 4, DIMS(2, 4, 8, 9)), tern_parameter(p, TERN_F32, 4, DIMS(2, 6, 8, 4)), &two, DIMS(6, 2, 3, 3)));
  check_program(p, NULL, NULL, false, 40);
}

/* Indices in range, with repetitions. */
static int64_t *indices(int64_t n, int64_t limit) {
  int64_t *out = malloc((size_t)n * sizeof *out);
  for (int64_t i = 0; i < n; i++) out[i] = next_random() % limit;
  return out;
}

static void test_indexing(void **state) {
  (void)state;
  NEED_DEVICE();
  static const tern_dtype some[] = {TERN_F32, TERN_I64, TERN_BOOL, TERN_F64};
  static const tern_combine ways[] = {TERN_SET, TERN_COMBINE_ADD, TERN_COMBINE_MULTIPLY, TERN_COMBINE_MAX, TERN_COMBINE_MIN};
  for (size_t d = 0; d < TERN_COUNT(some); d++) {
    tern_program *p = begin();
    tern_dtype t = some[d];
    const void *data[8] = {NULL};
    tern_value x = tern_parameter(p, t, 3, DIMS(4, 5, 3)), at = tern_parameter(p, TERN_I64, 2, DIMS(2, 6)),
               places = tern_parameter(p, TERN_I64, 3, DIMS(3, 8, 3));
    tern_value update = tern_parameter(p, t, 4, DIMS(4, 2, 6, 3)), pieces = tern_parameter(p, t, 3, DIMS(3, 8, 3));
    tern_value narrow = tern_parameter(p, TERN_I32, 1, DIMS(3)), rows = tern_parameter(p, t, 3, DIMS(3, 5, 3));
    tern_value single = tern_parameter(p, TERN_I64, 0, NULL);
    int64_t *a = indices(12, 5), *b = indices(72, 5), one = 2;
    int32_t c[3] = {3, 0, 3};
    data[1] = a, data[2] = b, data[5] = c, data[7] = &one;
    keep(p, tern_take(p, x, at, 1));
    keep(p, tern_take(p, x, narrow, 0));
    keep(p, tern_take(p, x, single, 2));
    keep(p, tern_gather(p, x, places, 1));
    for (int w = 0; w < 5; w++) {
      if (t == TERN_BOOL && w > 1) continue;
      keep(p, tern_scatter(p, x, places, pieces, 1, ways[w]));
      if (w > 1) continue;
      keep(p, tern_put(p, x, at, update, 1, ways[w]));
      keep(p, tern_put(p, x, narrow, rows, 0, ways[w]));
    }
    check_program(p, data, NULL, false, 10);
    free(a), free(b);
  }
}

static void test_composites(void **state) {
  (void)state;
  NEED_DEVICE();
  tern_program *p = begin();
  tern_value x = tern_parameter(p, TERN_F32, 4, DIMS(2, 3, 6, 8)), g = tern_parameter(p, TERN_F32, 4, DIMS(2, 3, 6, 8)),
             eps = tern_constant_float(p, TERN_F32, 0, NULL, 1e-5);
  tern_value w = tern_parameter(p, TERN_F32, 1, DIMS(8)), b = tern_parameter(p, TERN_F32, 1, DIMS(8)), c = tern_parameter(p, TERN_F32, 1, DIMS(3)), r[4], y[4];
  tern_value soft = tern_softmax(p, x, 3), log_soft = tern_log_softmax(p, x, 1);
  keep(p, soft), keep(p, log_soft), keep(p, tern_softmax_grad(p, g, soft, 3)), keep(p, tern_log_softmax_grad(p, g, log_soft, 1));
  tern_layer_norm(p, x, w, b, eps, 1, r);
  keep(p, r[0]), keep(p, r[1]), keep(p, r[2]);
  tern_layer_norm_grad(p, g, x, r[1], r[2], w, 1, y);
  keep(p, y[0]), keep(p, y[1]), keep(p, y[2]);
  tern_batch_norm(p, x, c, c, eps, r);
  keep(p, r[0]), keep(p, r[1]), keep(p, r[2]), keep(p, r[3]);
  tern_batch_norm_grad(p, g, x, c, r[1], r[2], true, y);
  keep(p, y[0]), keep(p, y[1]), keep(p, y[2]);
  keep(p, tern_gelu(p, x, false)), keep(p, tern_gelu(p, x, true)), keep(p, tern_gelu_grad(p, g, x, false));
  check_program(p, NULL, NULL, false, 200);

  p = begin();
  tern_value q = tern_parameter(p, TERN_F32, 4, DIMS(2, 4, 6, 8)), k = tern_parameter(p, TERN_F32, 4, DIMS(2, 2, 6, 8)),
             v = tern_parameter(p, TERN_F32, 4, DIMS(2, 2, 6, 8));
  tern_value scale = tern_constant_float(p, TERN_F32, 0, NULL, 0.35);
  tern_attention(p, q, k, v, TERN_NO_VALUE, scale, true, r);
  keep(p, r[0]), keep(p, r[1]);
  tern_attention_grad(p, tern_parameter(p, TERN_F32, 4, DIMS(2, 4, 6, 8)), q, k, v, r[0], r[1], TERN_NO_VALUE, scale, true, y);
  keep(p, y[0]), keep(p, y[1]), keep(p, y[2]);
  check_program(p, NULL, NULL, false, 200);

  p = begin();
  tern_window pool = {.spatial = 2, .stride = {2, 1}, .pad_low = {1, 0}, .pad_high = {1, 0}, .dilation = {1, 1}, .size = {3, 2}, .groups = 1};
  x = tern_parameter(p, TERN_F32, 4, DIMS(2, 3, 6, 8));
  tern_max_pool(p, x, &pool, DIMS(3, 7), r);
  keep(p, r[0]), keep(p, r[1]);
  keep(p, tern_max_pool_grad(p, tern_parameter(p, TERN_F32, 4, DIMS(2, 3, 3, 7)), r[1], &pool, DIMS(2, 3, 6, 8)));
  keep(p, tern_avg_pool(p, x, &pool, DIMS(3, 7)));
  keep(p, tern_avg_pool_grad(p, tern_parameter(p, TERN_F32, 4, DIMS(2, 3, 3, 7)), &pool, DIMS(2, 3, 6, 8)));
  tern_value seed = tern_scalar(p, TERN_I64), offset = tern_scalar(p, TERN_I64);
  keep(p, tern_philox(p, seed, offset, 1, DIMS(37)));
  check_program(p, NULL, (uint64_t[]){0x123456789ABCDEFull, 77}, false, 10);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_unary),       cmocka_unit_test(test_convert),
                                     cmocka_unit_test(test_binary),      cmocka_unit_test(test_guarded_nan),
                                     cmocka_unit_test(test_leaves),      cmocka_unit_test(test_scalars),
                                     cmocka_unit_test(test_views),       cmocka_unit_test(test_moves),
                                     cmocka_unit_test(test_reduce),      cmocka_unit_test(test_arg_reduce_and_sort),
                                     cmocka_unit_test(test_scan),        cmocka_unit_test(test_dot),
                                     cmocka_unit_test(test_convolution), cmocka_unit_test(test_indexing),
                                     cmocka_unit_test(test_composites)};
  return cmocka_run_group_tests(tests, open_test_device, close_test_device);
}
