/* Forward convolution and input gradient (conv.h): a product of the weights with the image's positions, packed strip by strip. */
#include <stdatomic.h>
#include "conv.h"

#define FEW_ROWS 2                          /* results per group up to which the image is not packed: depthwise convolution */
#define IMAGE_BYTES ((int64_t)384 << 10)    /* of the image of one band: stays in the second-level cache */
#define WANTED_CHUNKS 16                    /* so many, where the work is worth it */

static float element_f32(tern_dtype dtype, const char *data, int64_t at) {
  if (dtype == TERN_F32) return ((const float *)(const void *)data)[at];
  uint16_t bits = ((const uint16_t *)(const void *)data)[at];
  return dtype == TERN_BF16 ? tern_bf16_to_f32(bits) : tern_f16_to_f32(bits);
}
static double element_f64(tern_dtype dtype, const char *data, int64_t at) {
  (void)dtype;
  return ((const double *)(const void *)data)[at];
}
static void put_f32(tern_dtype dtype, const float *from, int64_t n, char *data, int64_t at, int64_t stride) {
  if (dtype == TERN_F32) {
    for (int64_t i = 0; i < n; i++) ((float *)(void *)data)[at + i * stride] = from[i];
  } else {
    uint16_t *to = (uint16_t *)(void *)data + at;
    if (stride == 1 && dtype == TERN_BF16) tile_narrow_bf16(to, from, n);
    else if (stride == 1) tile_narrow_f16(to, from, n);
    else
      for (int64_t i = 0; i < n; i++) to[i * stride] = dtype == TERN_BF16 ? tern_f32_to_bf16(from[i]) : tern_f32_to_f16(from[i]);
  }
}
static void put_f64(tern_dtype dtype, const double *from, int64_t n, char *data, int64_t at, int64_t stride) {
  (void)dtype;
  for (int64_t i = 0; i < n; i++) ((double *)(void *)data)[at + i * stride] = from[i];
}

/* Weights already are [group][row][k], and their rows do not all meet in the same cache sets. */
static bool weights_are_ready(const tern_conv *c, tern_dtype dtype) {
  if (c->weights_dtype != dtype || c->weight_group != c->rows * c->weight_row || c->weight_channel != c->taps || c->weight_row * (int64_t)tern_dtype_size(dtype) % 1024 == 0) return false;
  int64_t inner = 1;
  for (int i = 2; i >= 0; i--) {
    const tern_conv_axis *a = &c->axis[i];
    if (a->taps > 1 && a->kernel_step * c->weight_tap[i] != inner) return false;
    if (a->kernel_first != 0) return false;
    inner *= a->taps;
  }
  return true;
}
static int64_t prepared_row(int64_t k) { return (k + 15) / 16 * 16 + 16; }
static size_t offsets_bytes(const tern_conv *c) { return ((size_t)c->k * sizeof(int64_t) + 63) / 64 * 64; }

#define T f32
#define REAL float
#define DTYPE TERN_F32
#include "conv_apply_template.h"
#undef T
#undef REAL
#undef DTYPE
#define T f64
#define REAL double
#define DTYPE TERN_F64
#include "conv_apply_template.h"

size_t TERN_ISA_NAME(tern_conv_apply_scratch)(const tern_conv *given) {
  tern_conv c = *given;
  c.k = c.channels * c.axis[0].taps * c.axis[1].taps * c.axis[2].taps;
  return offsets_bytes(&c) + (size_t)(c.groups * c.rows * prepared_row(c.k)) * (c.source.dtype == TERN_F64 ? 8 : 4);
}

tern_status TERN_ISA_NAME(tern_conv_apply)(tern_conv *c, void *scratch) {
  int64_t work = c->images * c->groups * c->rows * c->channels;
  for (int i = 0; i < 3; i++) work *= c->axis[i].taps * c->axis[i].out;
  if (work == 0) return NULL;
  int64_t worthwhile = work / TERN_GEMM_GRAIN + 1, wanted = tern_conv_ceil(worthwhile < WANTED_CHUNKS ? worthwhile : WANTED_CHUNKS, c->images * c->groups);
  TERN_ISA_NAME(tern_conv_plan)(c, c->channels, c->source.dtype == TERN_F64 ? 8 : 4, IMAGE_BYTES, wanted);
  return c->source.dtype == TERN_F64 ? apply_f64(c, scratch) : apply_f32(c, scratch);
}
