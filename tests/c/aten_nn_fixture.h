/* What the tests of the network rows share: calls made as the shim makes them, and the results as arrays. */
#ifndef ATEN_NN_FIXTURE_H
#define ATEN_NN_FIXTURE_H
#include "eager_fixture.h"
#include "aten/helpers.h"

typedef struct host_log {
  int results, undefined;
  tensor made[8];
} host_log;

static host_log asked;
static tern_status last_status;

static tern_status new_result(void *call, int device, tern_dtype dtype, int rank, const int64_t *sizes, const int64_t *strides, uint32_t line,
                              tern_buffer **out) {
  host_log *log = call;
  tensor *t = &log->made[log->results++];
  (void)device, (void)line;
  *t = empty_on(the_device(), dtype, rank, sizes);
  if (rank) memcpy(t->view.strides, strides, (size_t)rank * sizeof *strides);
  *out = t->buffer;
  return NULL;
}
static void return_argument(void *call, int index) { (void)call, (void)index; }
static void return_undefined(void *call) { ((host_log *)call)->undefined++; }
static tern_status resize_argument(void *call, int index, int rank, const int64_t *sizes, const int64_t *strides, tern_tensor *out) {
  (void)call, (void)index, (void)rank, (void)sizes, (void)strides, (void)out;
  return tern_error_new(TERN_UNSUPPORTED, "this host resizes nothing");
}
static const tern_host host = {
    .new_result = new_result, .return_argument = return_argument, .return_undefined = return_undefined, .resize_argument = resize_argument};

static inline tern_tensor described(const tensor *t) {
  return (tern_tensor){.buffer = t->buffer,
                       .sizes = t->view.sizes,
                       .strides = t->view.strides,
                       .offset = t->view.offset,
                       .count = tern_geometry_count(&t->view),
                       .rank = t->view.rank,
                       .dtype = (uint8_t)t->dtype};
}
static inline tern_argument of(const tensor *t) { return (tern_argument){.tag = TERN_ARG_TENSOR, .u.tensor = described(t)}; }
static inline tern_argument list_of(const tern_tensor *tensors, int n) { return (tern_argument){.tag = TERN_ARG_TENSORS, .n = n, .u.tensors = tensors}; }
static inline tern_argument number(double value) { return (tern_argument){.tag = TERN_ARG_DOUBLE, .u.d = value}; }
static inline tern_argument integer(int64_t value) { return (tern_argument){.tag = TERN_ARG_INT, .u.i = value}; }
static inline tern_argument truth(bool value) { return (tern_argument){.tag = TERN_ARG_BOOL, .u.i = value}; }
static inline tern_argument truths(const int64_t *values, int n) { return (tern_argument){.tag = TERN_ARG_BOOLS, .n = n, .u.ints = values}; }
static inline tern_argument none(void) { return (tern_argument){.tag = TERN_ARG_NONE}; }

static inline const tern_aten_row *row_named(const char *name) {
  for (int i = 0; i < tern_aten_row_count(); i++) {
    const tern_aten_row *row = tern_aten_row_at(i);
    const char *names[] = {row->functional, row->inplace, row->out};
    for (int k = 0; k < 3; k++)
      if (names[k] && strcmp(names[k], name) == 0) return row;
  }
  fail_msg("no row %s", name);
  return NULL;
}

/* The form is told by the row: in-place where that is the name asked for. */
static inline tern_verdict run(const char *name, int n, const tern_argument *arguments) {
  const tern_aten_row *row = row_named(name);
  tern_form form = row->inplace && strcmp(row->inplace, name) == 0 ? TERN_INPLACE : TERN_FUNCTIONAL;
  tern_call call = {.row = row, .form = form, .n_arguments = n, .arguments = arguments, .host = &host, .shim = &asked};
  memset(&asked, 0, sizeof asked);
  tern_error_free(last_status);
  return tern_aten_call(&call, &last_status);
}
#define RUN(name, ...) run(name, (int)TERN_COUNT(((const tern_argument[]){__VA_ARGS__})), (const tern_argument[]){__VA_ARGS__})
#define MUST(name, ...)                                    \
  do {                                                     \
    assert_int_equal(RUN(name, __VA_ARGS__), TERN_RECORD); \
    must(last_status);                                     \
  } while (0)

static inline void drop_results(void) {
  for (int i = 0; i < asked.results; i++) drop(asked.made[i]);
}
static inline int release_last(void **state) {
  (void)state;
  tern_error_free(last_status);
  last_status = NULL;
  return 0;
}

static inline tensor from_indices(int rank, const int64_t *sizes, const int64_t *values) {
  tensor t = empty_on(the_device(), TERN_I64, rank, sizes);
  must(tern_buffer_write(t.buffer, TERN_I64, rank, sizes, values));
  return t;
}

/* Numbers that repeat from run to run: a small linear congruence. */
static uint32_t noise_state = 1;
static inline float noise(void) {
  noise_state = noise_state * 1664525u + 1013904223u;
  return (float)(noise_state >> 8) / (float)(1 << 24) * 2 - 1;
}
static inline int64_t noise_below(int64_t n) { return (int64_t)((noise() + 1) / 2 * (float)n) % n; }
static inline tensor noisy(int rank, const int64_t *sizes, float *copy) {
  tern_geometry g;
  tern_geometry_set_contiguous(&g, rank, sizes, 0);
  for (int64_t i = 0; i < tern_geometry_count(&g); i++) copy[i] = noise();
  return from_floats(rank, sizes, copy);
}

static inline void expect_near(tensor t, const double *expected, double tolerance) {
  float got[4096];
  int64_t count = tern_geometry_count(&t.view);
  assert_true(count <= 4096);
  read_floats(t, got);
  for (int64_t i = 0; i < count; i++) {
    double bound = tolerance * (1 + (expected[i] < 0 ? -expected[i] : expected[i])), apart = (double)got[i] - expected[i];
    if (!(apart <= bound && -apart <= bound)) fail_msg("element %d is %.9g, not %.9g", (int)i, (double)got[i], expected[i]);
  }
}

#endif
