/* Pooling over windows: maximum with its index, average, and their gradients; plane by plane (image and channel) on the pool.
 *
 * Windows of one and two dimensions have leading dimensions of size one. f16 and bf16 are f32 inside and round once. */
#include <math.h>
#include <stdatomic.h>
#include "kernels.h"
#include "tile.h"

#define ROW_BLOCK 256        /* results of a row at a time: their values, indices and divisors stay in registers and the first-level cache */
#define CHUNK_ELEMENTS 32768 /* of the larger side of a plane; about ten microseconds */

typedef struct window_axis {
  int64_t in, out, size, stride, low, high, dilation;
} window_axis;

typedef struct plane_array {
  const char *data;
  tern_dtype dtype;
  int64_t channels, dims[3], strides[5]; /* strides of image, channel, depth, height, width */
  bool is_dense;                          /* a plane is */
} plane_array;

typedef struct pooling {
  window_axis axis[3];         /* of the forward operation */
  plane_array source;          /* x, or gy */
  plane_array where;           /* max_pool_grad: the index */
  char *out;                   /* dense */
  int64_t *index;              /* max_pool: dense */
  tern_dtype dtype;
  int64_t planes, out_plane;   /* out_plane: elements of one plane of `out` */
  int64_t in_room, out_room;   /* elements of scratch for a plane of the source and of `out` */
  bool count_padding, is_pairs;
  int64_t divisor;
  size_t room;                 /* bytes of scratch */
  int64_t planes_per_chunk;
  void (*plane)(const struct pooling *p, int64_t number, char *room);
  _Atomic bool no_memory;
} pooling;

typedef struct span {
  int64_t first, end;
} span;

TILE_INLINE int64_t source_of(const window_axis *a, int64_t result, int64_t tap) { return result * a->stride + tap * a->dilation - a->low; }

/* The taps of a result's window that lie inside. */
TILE_INLINE span taps_inside(const window_axis *a, int64_t result) {
  int64_t start = source_of(a, result, 0);
  if (start >= 0 && start + (a->size - 1) * a->dilation < a->in) return (span){0, a->size}; /* the common case, without a division */
  span s = {.first = start < 0 ? (-start + a->dilation - 1) / a->dilation : 0, .end = start < a->in ? (a->in - 1 - start) / a->dilation + 1 : 0};
  if (s.end > a->size) s.end = a->size;
  return s;
}
TILE_INLINE int64_t first_inside(const window_axis *a, int64_t result) { return source_of(a, result, taps_inside(a, result).first); }

/* The results in [from, from + n), counted from `from`, for which one tap lies inside. */
TILE_INLINE span results_inside(const window_axis *a, int64_t tap, int64_t from, int64_t n) {
  int64_t start = source_of(a, from, tap);
  if (start >= 0 && start + (n - 1) * a->stride < a->in) return (span){0, n};
  span s = {.first = start < 0 ? (-start + a->stride - 1) / a->stride : 0, .end = start < a->in ? (a->in - 1 - start) / a->stride + 1 : 0};
  if (s.end > n) s.end = n;
  return s;
}

/* How many elements of a window count in an average, along one dimension. */
TILE_INLINE int64_t elements_counted(const pooling *p, int i, int64_t result) {
  const window_axis *a = &p->axis[i];
  int64_t start = source_of(a, result, 0), end = start + a->size, most = p->count_padding ? a->in + a->high : a->in;
  if (end > most) end = most;
  if (start < 0 && !p->count_padding) start = 0;
  return end - start;
}

static void take_f32(tern_dtype dtype, const char *data, int64_t at, int64_t stride, int64_t n, float *to) {
  if (dtype == TERN_F32) {
    for (int64_t i = 0; i < n; i++) to[i] = ((const float *)(const void *)data)[at + i * stride];
    return;
  }
  const uint16_t *from = (const uint16_t *)(const void *)data + at;
  if (stride == 1 && dtype == TERN_BF16) tile_widen_bf16(to, from, n);
  else if (stride == 1) tile_widen_f16(to, from, n);
  else
    for (int64_t i = 0; i < n; i++) to[i] = dtype == TERN_BF16 ? tern_bf16_to_f32(from[i * stride]) : tern_f16_to_f32(from[i * stride]);
}
static void take_f64(tern_dtype dtype, const char *data, int64_t at, int64_t stride, int64_t n, double *to) {
  (void)dtype;
  for (int64_t i = 0; i < n; i++) to[i] = ((const double *)(const void *)data)[at + i * stride];
}
static void put_f32(tern_dtype dtype, const float *from, int64_t n, char *to) {
  if (dtype == TERN_F32) memcpy(to, from, (size_t)n * 4);
  else if (dtype == TERN_BF16) tile_narrow_bf16((uint16_t *)(void *)to, from, n);
  else tile_narrow_f16((uint16_t *)(void *)to, from, n);
}
static void put_f64(tern_dtype dtype, const double *from, int64_t n, char *to) {
  (void)dtype;
  memcpy(to, from, (size_t)n * 8);
}

#define T f32
#define REAL float
#define WHERE int32_t
#define DTYPE TERN_F32
#include "window_template.h"
#undef T
#undef REAL
#undef WHERE
#undef DTYPE
#define T f64
#define REAL double
#define WHERE int64_t
#define DTYPE TERN_F64
#include "window_template.h"

/* ---- from operations to planes ---- */

static plane_array planes_of(const tern_cpu_view *v) {
  int spatial = v->rank - 2;
  plane_array a = {.data = v->data, .dtype = v->dtype, .channels = v->dims[1], .dims = {1, 1, 1}, .strides = {v->strides[0], v->strides[1]}, .is_dense = true};
  int64_t dense = 1;
  for (int i = spatial - 1; i >= 0; i--) {
    int at = 3 - spatial + i;
    a.dims[at] = v->dims[2 + i];
    a.strides[2 + at] = v->strides[2 + i];
    a.is_dense &= v->dims[2 + i] == 1 || v->strides[2 + i] == dense;
    dense *= v->dims[2 + i];
  }
  return a;
}

/* `in` and `out`: the forward operation's shapes. */
static void set_window(pooling *p, const tern_window *window, const tern_cpu_view *in, const tern_cpu_view *out) {
  int missing = 3 - (in->rank - 2);
  for (int i = 0; i < 3; i++) {
    int from = i - missing;
    p->axis[i] = from < 0 ? (window_axis){.in = 1, .out = 1, .size = 1, .stride = 1, .dilation = 1}
                          : (window_axis){.in = in->dims[2 + from], .out = out->dims[2 + from], .size = window->size[from], .stride = window->stride[from],
                                          .low = window->pad_low[from], .high = window->pad_high[from], .dilation = window->dilation[from]};
  }
  p->count_padding = window->count_padding;
  p->divisor = window->divisor;
}

static void planes_chunk(void *context, int64_t chunk, int thread) {
  (void)thread;
  pooling *p = context;
  char *room = tern_pool_scratch(p->room);
  if (!room) {
    atomic_store(&p->no_memory, true);
    return;
  }
  int64_t end = (chunk + 1) * p->planes_per_chunk;
  for (int64_t i = chunk * p->planes_per_chunk; i < end && i < p->planes; i++) p->plane(p, i, room);
}

static tern_status run_planes(pooling *p, const char *name, const tern_cpu_view *source, const tern_cpu_view *out) {
  if (!tern_dtype_is_float(source->dtype)) return tern_error_new(TERN_UNSUPPORTED, "%s: element type %s has no kernel; convert to a floating-point type", name, tern_dtype_name(source->dtype));
  p->source = planes_of(source);
  p->dtype = out->dtype;
  p->out = out->data;
  p->planes = out->dims[0] * out->dims[1];
  int64_t in_plane = p->source.dims[0] * p->source.dims[1] * p->source.dims[2];
  p->out_plane = 1;
  for (int i = 2; i < out->rank; i++) p->out_plane *= out->dims[i];
  if (p->planes == 0 || p->out_plane == 0) return NULL;
  int64_t larger = in_plane > p->out_plane ? in_plane : p->out_plane;
  if (p->dtype != TERN_F64 && larger > INT32_MAX) return tern_error_new(TERN_UNSUPPORTED, "%s: a plane of %lld elements; at most %d are supported", name, (long long)larger, INT32_MAX);
  p->in_room = (in_plane + 15) / 16 * 16;
  p->out_room = (p->out_plane + 15) / 16 * 16;
  p->room = (size_t)((p->is_pairs ? 3 : 1) * p->in_room + p->out_room) * (p->dtype == TERN_F64 ? 8 : 4);
  p->planes_per_chunk = CHUNK_ELEMENTS / larger + 1;
  tern_pool_run((p->planes + p->planes_per_chunk - 1) / p->planes_per_chunk, planes_chunk, p);
  return atomic_load(&p->no_memory) ? tern_error_new(TERN_OUT_OF_MEMORY, "%s: the host has no memory for a plane of %lld elements", name, (long long)larger) : NULL;
}

static tern_status max_pool(const tern_op *op, const tern_cpu_view *in, const tern_cpu_view *out, tern_kernel_context *context) {
  (void)context;
  pooling p = {.index = (int64_t *)(void *)out[1].data, .plane = out->dtype == TERN_F64 ? max_plane_f64 : max_plane_f32};
  set_window(&p, &op->attrs->window, &in[0], &out[0]);
  p.is_pairs = p.axis[0].size == 1 && p.axis[0].in == 1 && p.axis[0].out == 1 && p.axis[0].low == 0;
  for (int i = 1; i < 3; i++) p.is_pairs &= p.axis[i].size == 2 && p.axis[i].stride == 2 && p.axis[i].low == 0 && p.axis[i].dilation == 1 && p.axis[i].in == 2 * p.axis[i].out;
  return run_planes(&p, "max_pool", &in[0], &out[0]);
}

static tern_status max_pool_grad(const tern_op *op, const tern_cpu_view *in, const tern_cpu_view *out, tern_kernel_context *context) {
  (void)op;
  (void)context;
  pooling p = {.where = planes_of(&in[1]), .plane = out->dtype == TERN_F64 ? max_grad_plane_f64 : max_grad_plane_f32};
  return run_planes(&p, "max_pool_grad", &in[0], &out[0]);
}

static tern_status avg_pool(const tern_op *op, const tern_cpu_view *in, const tern_cpu_view *out, tern_kernel_context *context) {
  (void)context;
  pooling p = {.plane = out->dtype == TERN_F64 ? avg_plane_f64 : avg_plane_f32};
  set_window(&p, &op->attrs->window, &in[0], &out[0]);
  return run_planes(&p, "avg_pool", &in[0], &out[0]);
}

static tern_status avg_pool_grad(const tern_op *op, const tern_cpu_view *in, const tern_cpu_view *out, tern_kernel_context *context) {
  (void)context;
  pooling p = {.plane = out->dtype == TERN_F64 ? avg_grad_plane_f64 : avg_grad_plane_f32};
  set_window(&p, &op->attrs->window, &out[0], &in[0]);
  return run_planes(&p, "avg_pool_grad", &in[0], &out[0]);
}

void TERN_ISA_NAME(tern_register_window)(tern_kernel *rows) {
  rows[TERN_OP_MAX_POOL].run = max_pool;
  rows[TERN_OP_MAX_POOL_GRAD].run = max_pool_grad;
  rows[TERN_OP_AVG_POOL].run = avg_pool;
  rows[TERN_OP_AVG_POOL_GRAD].run = avg_pool_grad;
}
