/* What the tests of src/eager share: a few operations of their own, tensors as plain structs, and the embedded engine under them. */
#ifndef EAGER_FIXTURE_H
#define EAGER_FIXTURE_H
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include "eager/eager.h"

static inline void must(tern_status status) {
  if (status) fail_msg("%s: %s", tern_code_name(tern_error_code(status)), tern_error_message(status));
}

static inline tern_device *the_device(void) {
  tern_device *device;
  must(tern_device_get(0, &device));
  return device;
}

/* A tensor of f32 (or i64 for indices): a view of a buffer. */
typedef struct tensor {
  tern_buffer *buffer;
  tern_dtype dtype;
  tern_geometry view;
} tensor;

static inline tensor empty_on(tern_device *device, tern_dtype dtype, int rank, const int64_t *sizes) {
  tensor t = {.dtype = dtype};
  int64_t count = 1;
  for (int d = 0; d < rank; d++) count *= sizes[d];
  must(tern_buffer_new(device, (size_t)count * tern_dtype_size(dtype), 0, &t.buffer));
  tern_geometry_set_contiguous(&t.view, rank, sizes, 0);
  return t;
}

static inline tensor from_floats(int rank, const int64_t *sizes, const float *values) {
  tensor t = empty_on(the_device(), TERN_F32, rank, sizes);
  must(tern_buffer_write(t.buffer, TERN_F32, rank, sizes, values));
  return t;
}

static inline tensor vector(int64_t n, const float *values) { return from_floats(1, &n, values); }

/* Reads through the view. */
static inline void read_floats(tensor t, float *out) {
  int64_t count = tern_geometry_count(&t.view);
  int64_t *at = malloc((size_t)(count + 1) * sizeof *at);
  size_t bytes = tern_buffer_bytes(t.buffer);
  float *all = malloc(bytes + 4);
  must(tern_buffer_read(t.buffer, 0, bytes, all));
  tern_geometry_enumerate(&t.view, at);
  for (int64_t i = 0; i < count; i++) out[i] = all[at[i]];
  free(at);
  free(all);
}

static inline void expect_floats(tensor t, const float *expected) {
  float got[1024];
  int64_t count = tern_geometry_count(&t.view);
  assert_true(count <= 1024);
  read_floats(t, got);
  for (int64_t i = 0; i < count; i++)
    if (got[i] != expected[i]) fail_msg("element %d is %g, not %g", (int)i, (double)got[i], (double)expected[i]);
}
#define EXPECT(t, ...) expect_floats(t, (const float[]){__VA_ARGS__})

/* ---- operations ---- */
static inline tern_status lower_add(const tern_lowering *n, tern_value *r) { return r[0] = tern_add(n->program, n->operands[0], n->operands[1]), (tern_status)NULL; }
static inline tern_status lower_mul(const tern_lowering *n, tern_value *r) { return r[0] = tern_multiply(n->program, n->operands[0], n->operands[1]), (tern_status)NULL; }
static inline tern_status lower_relu(const tern_lowering *n, tern_value *r) {
  return r[0] = tern_maximum(n->program, n->operands[0], tern_constant_float(n->program, TERN_F32, 0, NULL, 0)), (tern_status)NULL;
}
static inline tern_status lower_copy(const tern_lowering *n, tern_value *r) { return r[0] = n->operands[0], (tern_status)NULL; }
/* Also x * the scalar: what a learning rate does. */
static inline tern_status lower_scale(const tern_lowering *n, tern_value *r) { return r[0] = tern_multiply(n->program, n->operands[0], n->scalars[0]), (tern_status)NULL; }
static inline tern_status lower_fill(const tern_lowering *n, tern_value *r) {
  return r[0] = tern_broadcast_to(n->program, n->scalars[0], n->outputs[0].view.rank, n->outputs[0].view.sizes), (tern_status)NULL;
}
static inline tern_status lower_take(const tern_lowering *n, tern_value *r) {
  const tern_program *p = n->program;
  tern_check_index(n->program, n->operands[1], 0, tern_value_dims(p, n->operands[0])[0] - 1);
  return r[0] = tern_take(n->program, n->operands[0], n->operands[1], 0), (tern_status)NULL;
}
static const tern_operation op_add = {"test::add", 60001, lower_add}, op_mul = {"test::mul", 60002, lower_mul}, op_relu = {"test::relu", 60003, lower_relu},
                            op_copy = {"test::copy", 60004, lower_copy}, op_scale = {"test::scale", 60005, lower_scale}, op_fill = {"test::fill", 60006, lower_fill},
                            op_take = {"test::take", 60007, lower_take};

static inline tern_status record_to(const tern_operation *op, const tensor *a, const tensor *b, const float *scalar, tensor target) {
  tern_operand operands[2];
  int n = 0;
  if (a) operands[n++] = (tern_operand){a->buffer, a->dtype, a->view};
  if (b) operands[n++] = (tern_operand){b->buffer, b->dtype, b->view};
  tern_output output = {target.buffer, target.dtype, target.dtype, target.view};
  tern_scalar_argument s = tern_scalar_double(TERN_F32, scalar ? (double)*scalar : 0, false);
  tern_node node = {.operation = op, .device = tern_buffer_device(target.buffer), .n_operands = n, .operands = operands, .n_outputs = 1, .outputs = &output,
                    .n_scalars = scalar != NULL, .scalars = &s};
  return tern_record(&node);
}

static inline tensor binary(const tern_operation *op, tensor a, tensor b) {
  tensor r = empty_on(tern_buffer_device(a.buffer), TERN_F32, a.view.rank, a.view.sizes);
  must(record_to(op, &a, &b, NULL, r));
  return r;
}
static inline tensor add(tensor a, tensor b) { return binary(&op_add, a, b); }
static inline tensor mul(tensor a, tensor b) { return binary(&op_mul, a, b); }
static inline tensor relu(tensor a) {
  tensor r = empty_on(tern_buffer_device(a.buffer), TERN_F32, a.view.rank, a.view.sizes);
  must(record_to(&op_relu, &a, NULL, NULL, r));
  return r;
}
static inline tensor scale(tensor a, float by) {
  tensor r = empty_on(tern_buffer_device(a.buffer), TERN_F32, a.view.rank, a.view.sizes);
  must(record_to(&op_scale, &a, NULL, &by, r));
  return r;
}
static inline void fill(tensor t, float value) { must(record_to(&op_fill, NULL, NULL, &value, t)); }
static inline void add_to(tensor t, tensor by) { must(record_to(&op_add, &t, &by, NULL, t)); }
static inline void copy_to(tensor t, tensor from) { must(record_to(&op_copy, &from, NULL, NULL, t)); }
static inline void drop(tensor t) { tern_buffer_release(t.buffer); }

/* A view of the same buffer. */
static inline tensor view(tensor t, int rank, const int64_t *sizes, const int64_t *strides, int64_t offset) {
  t.view = (tern_geometry){.rank = rank, .offset = offset};
  memcpy(t.view.sizes, sizes, (size_t)rank * sizeof *sizes);
  memcpy(t.view.strides, strides, (size_t)rank * sizeof *strides);
  return t;
}
static inline tensor slice(tensor t, int64_t start, int64_t n, int64_t step) { return view(t, 1, &n, &step, t.view.offset + start); }

#endif
