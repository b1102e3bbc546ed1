/* GELU over arrays: a template over REAL (real.h), included by activation.c. */

#define APPLY(expression, loads)                                      \
  do {                                                                \
    int64_t i = 0;                                                    \
    for (; i + LANES <= n; i += LANES) {                              \
      loads(V(load)(a + i), V(load)(b + i))                           \
      V(store)(out + i, expression);                                  \
    }                                                                 \
    if (i < n) { /* padded: the same arithmetic wherever it stands */ \
      loads(V(load_n)(a + i, n - i, 0), V(load_n)(b + i, n - i, 0))   \
      V(store_n)(out + i, n - i, expression);                         \
    }                                                                 \
  } while (0)
#define ONE(first, second) VECTOR x = first;
#define TWO(first, second) VECTOR gy = first, x = second;

static void R(activation_row)(const activation_job *job, const REAL *a, const REAL *b, REAL *out, int64_t n) {
  if (!b) {
    if (job->tanh_form) APPLY(V(gelu_tanh)(x), ONE);
    else APPLY(V(gelu_erf)(x), ONE);
  } else if (job->tanh_form) APPLY(V(gelu_tanh_grad)(gy, x), TWO);
  else APPLY(V(gelu_erf_grad)(gy, x), TWO);
}
#undef APPLY
#undef ONE
#undef TWO

static void R(activation_chunk)(void *context, int64_t chunk, int thread) {
  (void)thread;
  const activation_job *job = context;
  const int64_t element = (int64_t)tern_dtype_size(job->dtype), end = tern_min_i64(job->n, (chunk + 1) * CHUNK_ELEMENTS);
  REAL room[2][RUN];
  for (int64_t at = chunk * CHUNK_ELEMENTS; at < end; at += RUN) {
    const int64_t n = tern_min_i64(RUN, end - at);
    const REAL *a = R(row_load)(job->dtype, job->a + at * element, n, room[0]), *b = job->b ? R(row_load)(job->dtype, job->b + at * element, n, room[1]) : NULL;
    REAL *out = R(row_place)(job->dtype, job->out + at * element, room[0]);
    R(activation_row)(job, a, b, out, n);
    R(row_store)(job->dtype, out, n, job->out + at * element);
  }
}
