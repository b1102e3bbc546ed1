/* Attention and its gradient against the plain formulas in f64: grouped heads, masks, causal order, strided inputs, every dtype. */
#include "kernel_check.h"

typedef struct shape { int64_t B, H, Hk, L, S, E, Ev; } shape;
typedef enum mask_kind { NO_MASK, BOOL_FULL, BOOL_PADDING, FLOAT_LS, FLOAT_HEADS, BOOL_NOTHING, BOOL_LOWER } mask_kind;
static const char *const mask_names[] = {"none", "bool [B,H,L,S]", "bool [B,1,1,S]", "float [L,S]", "float [H,1,S]", "bool, a row of false", "lower"};

/* dims [B, H, L, E] stored as [B, L, 3, H, E], third `part`; or dense. */
static tern_cpu_view random_heads(tern_dtype dtype, const int64_t dims[4], bool split) {
  tern_cpu_view v = array_new(dtype, 4, dims);
  if (split) {
    tern_cpu_view whole = array_new(dtype, DIMS(dims[0], dims[2], 3, dims[1], dims[3]));
    v.data = whole.data + whole.strides[2] * (int64_t)tern_dtype_size(dtype);
    v.strides[0] = whole.strides[0];
    v.strides[1] = whole.strides[3];
    v.strides[2] = whole.strides[1];
    v.strides[3] = 1;
  }
  array_fill_random(&v, -1.5, 1.5);
  return v;
}
static double *values_of(const tern_cpu_view *v) {
  double *values = expected_new(v);
  for (int64_t i = 0; i < array_count(v); i++) values[i] = array_get(v, i);
  return values;
}

static tern_cpu_view make_mask(mask_kind kind, tern_dtype dtype, const shape *s) {
  tern_cpu_view mask = {.data = NULL};
  switch (kind) {
    case NO_MASK: break;
    case BOOL_FULL: case BOOL_NOTHING: case BOOL_LOWER: mask = array_new(TERN_BOOL, DIMS(s->B, s->H, s->L, s->S)); break;
    case BOOL_PADDING: mask = array_new(TERN_BOOL, DIMS(s->B, 1, 1, s->S)); break;
    case FLOAT_LS: mask = array_new(dtype, DIMS(s->L, s->S)); break;
    case FLOAT_HEADS: mask = array_new(TERN_F32, DIMS(s->H, 1, s->S)); break;
  }
  if (!mask.data) return mask;
  if (mask.dtype == TERN_BOOL) array_fill_integers(&mask, 0, 1);
  else array_fill_random(&mask, -2, 2);
  if (kind == BOOL_NOTHING)
    for (int64_t i = 0; i < array_count(&mask); i++)
      if (i / s->S % 3 == 0) array_set(&mask, i, 0);
  if (kind == BOOL_LOWER) /* whole blocks are forbidden */
    for (int64_t i = 0; i < array_count(&mask); i++) array_set(&mask, i, i % s->S <= i / s->S % s->L);
  if (kind == FLOAT_LS && array_count(&mask)) array_set(&mask, 0, -(double)INFINITY);
  return mask;
}
/* What the mask adds to the score. */
static double mask_at(const tern_cpu_view *mask, const shape *s, int64_t b, int64_t h, int64_t l, int64_t j) {
  if (!mask->data) return 0;
  const int64_t at[4] = {b, h, l, j};
  int64_t index = 0;
  (void)s;
  for (int d = 0; d < mask->rank; d++) index = index * mask->dims[d] + (mask->dims[d] == 1 ? 0 : at[4 - mask->rank + d]);
  double value = array_get(mask, index);
  return mask->dtype != TERN_BOOL ? value : value != 0 ? 0 : -(double)INFINITY;
}

static void check_case(tern_dtype dtype, shape s, bool causal, mask_kind kind, bool split) {
  const int64_t q_dims[4] = {s.B, s.H, s.L, s.E}, k_dims[4] = {s.B, s.Hk, s.S, s.E}, v_dims[4] = {s.B, s.Hk, s.S, s.Ev}, o_dims[4] = {s.B, s.H, s.L, s.Ev};
  tern_cpu_view q = random_heads(dtype, q_dims, split), k = random_heads(dtype, k_dims, split), v = random_heads(dtype, v_dims, split), gout = random_heads(dtype, o_dims, split);
  tern_cpu_view mask = make_mask(kind, dtype, &s), scale = array_scalar(TERN_F64, 0.3);
  const tern_dtype wide = dtype == TERN_F64 ? TERN_F64 : TERN_F32;
  tern_cpu_view out = array_new(dtype, 4, o_dims), lse = array_new(wide, 3, q_dims);
  double *qs = values_of(&q), *ks = values_of(&k), *vs = values_of(&v), *gs = values_of(&gout), *os = expected_new(&out), *lses = expected_new(&lse);
  double *gqs = expected_new(&q), *gks = expected_new(&k), *gvs = expected_new(&v), *p = array_alloc((size_t)(s.S + 1) * sizeof(double)), *dp = array_alloc((size_t)(s.S + 1) * sizeof(double));
  memset(gqs, 0, (size_t)array_count(&q) * 8);
  memset(gks, 0, (size_t)array_count(&k) * 8);
  memset(gvs, 0, (size_t)array_count(&v) * 8);
  for (int64_t b = 0; b < s.B; b++)
    for (int64_t h = 0; h < s.H; h++)
      for (int64_t l = 0; l < s.L; l++) {
        const int64_t row = (b * s.H + h) * s.L + l, head = b * s.Hk + h / (s.H / s.Hk);
        double top = -(double)INFINITY, sum = 0, mean = 0;
        for (int64_t j = 0; j < s.S; j++) {
          p[j] = mask_at(&mask, &s, b, h, l, j);
          if (causal && j > l) p[j] = -(double)INFINITY;
          double dot = 0;
          for (int64_t e = 0; e < s.E; e++) dot += qs[row * s.E + e] * ks[(head * s.S + j) * s.E + e];
          p[j] += dot * 0.3;
          top = fmax(top, p[j]);
        }
        for (int64_t j = 0; j < s.S; j++) {
          p[j] = top == -(double)INFINITY ? 0 : exp(p[j] - top);
          sum += p[j];
        }
        lses[row] = top + log(sum);
        for (int64_t e = 0; e < s.Ev; e++) os[row * s.Ev + e] = 0;
        for (int64_t j = 0; j < s.S; j++) {
          p[j] = sum > 0 ? p[j] / sum : 0;
          dp[j] = 0;
          for (int64_t e = 0; e < s.Ev; e++) {
            os[row * s.Ev + e] += p[j] * vs[(head * s.S + j) * s.Ev + e];
            dp[j] += gs[row * s.Ev + e] * vs[(head * s.S + j) * s.Ev + e];
            gvs[(head * s.S + j) * s.Ev + e] += p[j] * gs[row * s.Ev + e];
          }
          mean += p[j] * dp[j];
        }
        for (int64_t j = 0; j < s.S; j++)
          for (int64_t e = 0; e < s.E; e++) {
            const double ds = p[j] * (dp[j] - mean) * 0.3;
            gqs[row * s.E + e] += ds * ks[(head * s.S + j) * s.E + e];
            gks[(head * s.S + j) * s.E + e] += ds * qs[row * s.E + e];
          }
      }
  const double tiny = dtype == TERN_F64 ? 1e-13 : 3e-6, saved = dtype_epsilon(dtype) * 4; /* the gradient sees the rounded result */
  FOR_EACH_ISA(table) {
    const tern_attrs attrs = {.ints = {causal}};
    char what[128];
    snprintf(what, sizeof what, "B%d H%d/%d L%d S%d E%d/%d %s mask %s %s %s: ", (int)s.B, (int)s.H, (int)s.Hk, (int)s.L, (int)s.S, (int)s.E, (int)s.Ev, causal ? "causal" : "", mask_names[kind], tern_dtype_name(dtype), table->isa);
    kernel_run(table, TERN_OP_ATTENTION, &attrs, 5, (tern_cpu_view[]){q, k, v, mask, scale}, 2, (tern_cpu_view[]){out, lse});
    expect_close(what, &out, os, tiny, tiny);
    expect_close(what, &lse, lses, tiny, tiny);
    tern_cpu_view gq = array_new(dtype, 4, q_dims), gk = array_new(dtype, 4, k_dims), gv = array_new(dtype, 4, v_dims);
    kernel_run(table, TERN_OP_ATTENTION_GRAD, &attrs, 8, (tern_cpu_view[]){gout, q, k, v, out, lse, mask, scale}, 3, (tern_cpu_view[]){gq, gk, gv});
    const double limit = (tiny + saved) * (2 + sqrt((double)(s.L * s.H / s.Hk)));
    expect_close(what, &gq, gqs, tiny, limit);
    expect_close(what, &gk, gks, tiny, limit);
    expect_close(what, &gv, gvs, tiny, limit);
  }
  arrays_free();
}

static void test_dtypes(void **state) {
  (void)state;
  const tern_dtype dtypes[] = {TERN_F32, TERN_F64, TERN_BF16, TERN_F16};
  for (size_t t = 0; t < TERN_COUNT(dtypes); t++)
    for (int causal = 0; causal < 2; causal++)
      for (int split = 0; split < 2; split++) {
        check_case(dtypes[t], (shape){2, 3, 3, 70, 70, 16, 16}, causal, NO_MASK, split);
        check_case(dtypes[t], (shape){1, 4, 2, 5, 9, 7, 5}, causal, BOOL_FULL, split);
      }
}

static void test_masks(void **state) {
  (void)state;
  for (mask_kind kind = NO_MASK; kind <= BOOL_NOTHING; kind++)
    for (int causal = 0; causal < 2; causal++) {
      check_case(TERN_F32, (shape){2, 4, 2, 37, 81, 24, 40}, causal, kind, true);
      check_case(TERN_F32, (shape){1, 6, 2, 3, 130, 16, 16}, causal, kind, false);
      check_case(TERN_F64, (shape){1, 2, 1, 9, 11, 4, 4}, causal, kind, false);
      check_case(TERN_BF16, (shape){1, 2, 1, 9, 70, 4, 4}, causal, kind, true);
    }
}

static void test_sizes(void **state) {
  (void)state;
  check_case(TERN_F32, (shape){1, 1, 1, 1, 1, 1, 1}, false, NO_MASK, false);
  check_case(TERN_F32, (shape){1, 8, 2, 1, 200, 64, 64}, false, NO_MASK, false); /* decoding: one query a head, heads share keys */
  check_case(TERN_F32, (shape){2, 2, 2, 128, 128, 64, 64}, true, NO_MASK, true);
  check_case(TERN_F32, (shape){1, 1, 1, 200, 300, 32, 32}, true, NO_MASK, false);
  check_case(TERN_F32, (shape){1, 1, 1, 300, 100, 33, 65}, true, NO_MASK, false);
  check_case(TERN_F32, (shape){1, 1, 1, 20, 20, 500, 400}, false, NO_MASK, true); /* wider than a block of the matrix product */
  check_case(TERN_F32, (shape){1, 2, 1, 3, 5, 450, 3}, false, NO_MASK, true);
  check_case(TERN_F32, (shape){1, 2, 2, 3, 0, 4, 4}, false, NO_MASK, false);      /* no keys: zeros */
  check_case(TERN_F32, (shape){1, 2, 2, 0, 3, 4, 4}, false, NO_MASK, false);
  check_case(TERN_F32, (shape){0, 2, 2, 2, 3, 4, 4}, false, NO_MASK, false);
}

/* Scores far apart: without the running maximum the exponentials would overflow. */
static void test_large_scores(void **state) {
  (void)state;
  tern_cpu_view q = array_new(TERN_F32, DIMS(1, 1, 2, 1)), k = array_new(TERN_F32, DIMS(1, 1, 150, 1)), v = array_new(TERN_F32, DIMS(1, 1, 150, 1)), scale = array_scalar(TERN_F32, 1);
  tern_cpu_view out = array_new(TERN_F32, DIMS(1, 1, 2, 1)), lse = array_new(TERN_F32, DIMS(1, 1, 2)), none = {.data = NULL};
  array_set(&q, 0, 1);
  array_set(&q, 1, -1);
  for (int i = 0; i < 150; i++) {
    array_set(&k, i, i * 100 - 7000);
    array_set(&v, i, i);
  }
  FOR_EACH_ISA(table) {
    kernel_run(table, TERN_OP_ATTENTION, &(tern_attrs){0}, 5, (tern_cpu_view[]){q, k, v, none, scale}, 2, (tern_cpu_view[]){out, lse});
    expect_close("out", &out, (double[]){149, 0}, 0, 1e-6);
    expect_close("lse", &lse, (double[]){7900, 7000}, 0, 1e-3);
  }
}

/* Few queries of a key head are done one at a time; blocks that a mask forbids whole are not done at all. */
static void test_few_queries_and_skipped_blocks(void **state) {
  (void)state;
  for (mask_kind kind = NO_MASK; kind <= BOOL_LOWER; kind++)
    for (int causal = 0; causal < 2; causal++) {
      check_case(TERN_F32, (shape){1, 2, 1, 150, 200, 8, 8}, causal, kind, false);
      check_case(TERN_F32, (shape){2, 4, 2, 2, 130, 24, 70}, causal, kind, true);
      check_case(TERN_F64, (shape){1, 2, 2, 1, 70, 20, 33}, causal, kind, false);
      check_case(TERN_BF16, (shape){2, 3, 3, 3, 67, 64, 64}, causal, kind, true);
    }
}

int main(void) {
  const struct CMUnitTest tests[] = {
    cmocka_unit_test_teardown(test_dtypes, teardown_arrays),
    cmocka_unit_test_teardown(test_masks, teardown_arrays),
    cmocka_unit_test_teardown(test_sizes, teardown_arrays),
    cmocka_unit_test_teardown(test_large_scores, teardown_arrays),
    cmocka_unit_test_teardown(test_few_queries_and_skipped_blocks, teardown_arrays),
  };
  return cmocka_run_group_tests_name("cpu/attention", tests, NULL, NULL);
}
