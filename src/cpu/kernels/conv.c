/* The three convolution operations: from views and windows to conv.h's picture, or to a plain matrix product where every tap is one pixel. */
#include "conv.h"

/* Strides of [image, channel, spatial...] with leading spatial dimensions of size one. */
static tern_conv_array array_of(const tern_cpu_view *v, int spatial) {
  tern_conv_array a = {.data = v->data, .dtype = v->dtype, .strides = {v->strides[0], v->strides[1]}};
  for (int i = 0; i < spatial; i++) a.strides[5 - spatial + i] = v->strides[2 + i];
  /* A missing dimension's stride is the extent of what is inside it, as in a dense array. */
  for (int i = 4 - spatial; i >= 2; i--) a.strides[i] = i == 4 - spatial ? a.strides[i + 1] * v->dims[2] : a.strides[i + 1];
  return a;
}

static int64_t greatest_divisor(int64_t a, int64_t b) {
  while (b) {
    int64_t rest = a % b;
    a = b;
    b = rest;
  }
  return a;
}

/* Shapes and strides that the three operations share: x is the forward input, w the weight, y the forward output, and any may be a gradient. */
static tern_conv describe(const tern_window *window, const tern_cpu_view *x, const tern_cpu_view *w, const tern_cpu_view *y) {
  int spatial = window->spatial;
  tern_conv c = {.images = x->dims[0], .groups = window->groups, .channels = w->dims[1], .rows = w->dims[0] / window->groups,
                 .weights = w->data, .weights_dtype = w->dtype, .weight_row = w->strides[0], .weight_channel = w->strides[1]};
  c.weight_group = c.rows * c.weight_row;
  for (int i = 0; i < 3; i++) {
    int from = i - (3 - spatial);
    c.axis[i] = (tern_conv_axis){.in = 1, .out = 1, .taps = 1, .scale = 1, .dilation = 1, .period = 1, .kernel_step = 1};
    if (from < 0) continue;
    tern_conv_axis *a = &c.axis[i];
    a->in = x->dims[2 + from];
    a->out = y->dims[2 + from];
    a->taps = w->dims[2 + from];
    a->scale = window->stride[from];
    a->dilation = window->dilation[from];
    a->pad = window->pad_low[from];
    a->period = a->scale / greatest_divisor(a->scale, a->dilation);
    c.weight_tap[i] = w->strides[2 + from];
  }
  for (int i = 0; i < 3 - spatial; i++) c.weight_tap[i] = 0;
  c.source = array_of(x, spatial);
  c.out = array_of(y, spatial);
  return c;
}

static bool is_pointwise(const tern_window *window, const tern_cpu_view *w) {
  for (int i = 0; i < window->spatial; i++)
    if (w->dims[2 + i] != 1 || window->stride[i] != 1 || window->pad_low[i] != 0 || window->pad_high[i] != 0) return false;
  return window->groups == 1;
}

/* The stride of an array's positions, or 0 where they need more than one. */
static int64_t position_stride(const tern_conv_array *a, const tern_conv_axis *axis, bool is_output) {
  int64_t stride = 1, next = 0;
  for (int i = 2; i >= 0; i--) {
    int64_t dim = is_output ? axis[i].out : axis[i].in;
    if (dim == 1) continue;
    if (!next) stride = a->strides[2 + i];
    else if (a->strides[2 + i] != next) return 0;
    next = a->strides[2 + i] * dim;
  }
  return stride;
}

/* to[n] = W or its transpose times from[n], as one product per image. False where strides do not allow it. */
static bool pointwise_product(const tern_conv *c, bool transposed, const tern_conv_array *from, const tern_conv_array *to, tern_gemm_product *g) {
  int64_t positions = c->axis[0].in * c->axis[1].in * c->axis[2].in, stride = position_stride(from, c->axis, false);
  if (stride == 0) return false;
  int64_t rows = transposed ? c->channels : c->rows, k = transposed ? c->rows : c->channels;
  *g = (tern_gemm_product){.m = rows, .n = positions, .k = k, .c = to->data, .c_dtype = to->dtype, .c_stride = positions, .n_batch_dims = 1};
  g->a = (tern_gemm_side){.data = c->weights, .dtype = c->weights_dtype, .outer_stride = transposed ? c->weight_channel : c->weight_row,
                          .k_stride = transposed ? c->weight_row : c->weight_channel};
  g->b = (tern_gemm_side){.data = from->data, .dtype = from->dtype, .outer_stride = stride, .k_stride = from->strides[1]};
  g->batch_dims[0] = c->images;
  g->b_batch_strides[0] = from->strides[0];
  return true;
}

static tern_status check_dtype(const tern_cpu_view *v, const char *name) {
  if (tern_dtype_is_float(v->dtype)) return NULL;
  return tern_error_new(TERN_UNSUPPORTED, "%s: element type %s has no kernel; convert to a floating-point type", name, tern_dtype_name(v->dtype));
}

static void clear(const tern_cpu_view *v) {
  size_t count = 1;
  for (int i = 0; i < v->rank; i++) count *= (size_t)v->dims[i];
  if (count) memset(v->data, 0, count * tern_dtype_size(v->dtype));
}

/* ---- forward ---- */

static size_t forward_scratch(const tern_op *op, const tern_cpu_view *in, const tern_cpu_view *out) {
  const tern_window *window = &op->attrs->window;
  tern_conv c = describe(window, &in[0], &in[1], &out[0]);
  tern_gemm_product g;
  if (is_pointwise(window, &in[1]) && pointwise_product(&c, false, &c.source, &c.out, &g)) return TERN_ISA_NAME(tern_gemm_scratch)(&g);
  return TERN_ISA_NAME(tern_conv_apply_scratch)(&c);
}

static tern_status forward_run(const tern_op *op, const tern_cpu_view *in, const tern_cpu_view *out, tern_kernel_context *context) {
  TERN_TRY(check_dtype(&out[0], "convolution"));
  const tern_window *window = &op->attrs->window;
  tern_conv c = describe(window, &in[0], &in[1], &out[0]);
  tern_gemm_product g;
  if (is_pointwise(window, &in[1]) && pointwise_product(&c, false, &c.source, &c.out, &g)) {
    TERN_ISA_NAME(tern_gemm_run)(&g, context->scratch);
    return NULL;
  }
  if (c.channels * c.axis[0].taps * c.axis[1].taps * c.axis[2].taps == 0) {
    clear(&out[0]);
    return NULL;
  }
  return TERN_ISA_NAME(tern_conv_apply)(&c, context->scratch);
}

/* ---- input gradient: in = (gy, w), out = gx ---- */

/* From the forward picture to the gradient's: gy is the source, channels and rows change places. */
static tern_conv turn_around(const tern_conv *forward) {
  tern_conv c = *forward;
  c.source = forward->out;
  c.out = forward->source;
  c.channels = forward->rows;
  c.rows = forward->channels;
  c.weight_row = forward->weight_channel;
  c.weight_channel = forward->weight_row;
  return c;
}

/* One dimension of the inputs i with (i + pad) % stride == residue: i = first + stride * z. Taps k reach them where k * dilation leaves the same residue;
 * output position (i + pad - k * dilation) / stride falls as k grows, so taps run backwards. False where no input has the residue. */
static bool input_axis(const tern_conv_axis *f, int64_t residue, tern_conv_axis *a, int64_t *first) {
  int64_t z0 = f->pad > residue ? tern_conv_ceil(f->pad - residue, f->scale) : -((residue - f->pad) / f->scale); /* the least z with i >= 0 */
  *first = residue - f->pad + f->scale * z0;
  if (*first >= f->in) return false;
  int64_t divisor = greatest_divisor(f->scale, f->dilation);
  *a = (tern_conv_axis){.in = f->out, .out = (f->in - 1 - *first) / f->scale + 1, .scale = 1, .dilation = f->dilation / divisor, .period = 1, .reversed = true, .kernel_step = f->period};
  while (a->kernel_first < f->period && a->kernel_first * f->dilation % f->scale != residue) a->kernel_first++;
  if (a->kernel_first < f->period && a->kernel_first < f->taps) a->taps = (f->taps - 1 - a->kernel_first) / f->period + 1;
  if (a->taps) {
    int64_t last = a->kernel_first + (a->taps - 1) * f->period; /* the tap that reads farthest back */
    a->pad = (last * f->dilation - residue) / f->scale - z0;
  }
  return true;
}

/* The part of the gradient `c` at input positions of residue number `number` of all dimensions together: a convolution of its own. False where it is empty. */
static int64_t input_parts(const tern_conv *forward) { return forward->axis[0].scale * forward->axis[1].scale * forward->axis[2].scale; }
static bool input_part(const tern_conv *forward, const tern_conv *c, int64_t number, tern_conv *part) {
  const tern_conv_axis *f = forward->axis;
  const int64_t residue[3] = {number / f[2].scale / f[1].scale, number / f[2].scale % f[1].scale, number % f[2].scale};
  int64_t offset = 0;
  *part = *c;
  for (int i = 0; i < 3; i++) {
    int64_t first = 0;
    if (!input_axis(&f[i], residue[i], &part->axis[i], &first) || part->axis[i].taps == 0) return false;
    offset += first * c->out.strides[2 + i];
    part->out.strides[2 + i] = c->out.strides[2 + i] * f[i].scale;
  }
  if (part->out.data) part->out.data += offset * (int64_t)tern_dtype_size(part->out.dtype);
  return true;
}

static size_t input_scratch(const tern_op *op, const tern_cpu_view *in, const tern_cpu_view *out) {
  const tern_window *window = &op->attrs->window;
  tern_conv forward = describe(window, &out[0], &in[1], &in[0]), c = turn_around(&forward), part;
  tern_gemm_product g;
  if (is_pointwise(window, &in[1]) && pointwise_product(&forward, true, &c.source, &c.out, &g)) return TERN_ISA_NAME(tern_gemm_scratch)(&g);
  size_t most = 0;
  for (int64_t i = 0; i < input_parts(&forward); i++) {
    const size_t bytes = input_part(&forward, &c, i, &part) ? TERN_ISA_NAME(tern_conv_apply_scratch)(&part) : 0;
    if (bytes > most) most = bytes;
  }
  return most;
}

static tern_status input_run(const tern_op *op, const tern_cpu_view *in, const tern_cpu_view *out, tern_kernel_context *context) {
  TERN_TRY(check_dtype(&out[0], "convolution's input gradient"));
  const tern_window *window = &op->attrs->window;
  tern_conv forward = describe(window, &out[0], &in[1], &in[0]), c = turn_around(&forward);
  tern_gemm_product g;
  if (is_pointwise(window, &in[1]) && pointwise_product(&forward, true, &c.source, &c.out, &g)) {
    TERN_ISA_NAME(tern_gemm_run)(&g, context->scratch);
    return NULL;
  }
  const tern_conv_axis *f = forward.axis;
  bool reaches_all = c.channels > 0 && f[0].out * f[1].out * f[2].out > 0;
  for (int i = 0; i < 3; i++) reaches_all &= f[i].taps >= f[i].period && f[i].period == f[i].scale; /* every residue has a tap */
  if (!reaches_all) clear(&out[0]);
  if (c.channels == 0 || f[0].out * f[1].out * f[2].out == 0) return NULL;
  for (int64_t i = 0; i < input_parts(&forward); i++) {
    tern_conv part;
    if (input_part(&forward, &c, i, &part)) TERN_TRY(TERN_ISA_NAME(tern_conv_apply)(&part, context->scratch));
  }
  return NULL;
}

/* ---- weight gradient: in = (x, gy), out = gw ---- */

static size_t weight_scratch(const tern_op *op, const tern_cpu_view *in, const tern_cpu_view *out) {
  tern_conv c = describe(&op->attrs->window, &in[0], &out[0], &in[1]);
  return TERN_ISA_NAME(tern_conv_weights_scratch)(&c);
}

static tern_status weight_run(const tern_op *op, const tern_cpu_view *in, const tern_cpu_view *out, tern_kernel_context *context) {
  TERN_TRY(check_dtype(&out[0], "convolution's weight gradient"));
  tern_conv c = describe(&op->attrs->window, &in[0], &out[0], &in[1]);
  return TERN_ISA_NAME(tern_conv_weights)(&c, out[0].data, context->scratch);
}

void TERN_ISA_NAME(tern_register_conv)(tern_kernel *rows) {
  rows[TERN_OP_CONV] = (tern_kernel){.run = forward_run, .scratch = forward_scratch};
  rows[TERN_OP_CONV_INPUT_GRAD] = (tern_kernel){.run = input_run, .scratch = input_scratch};
  rows[TERN_OP_CONV_WEIGHT_GRAD] = (tern_kernel){.run = weight_run, .scratch = weight_scratch};
}
