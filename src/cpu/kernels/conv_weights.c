/* Weight gradient (conv.h): a product over positions. Its rows are (channel, tap), copied from the image; its columns are gy's channels, transposed.
 *
 * Chunks are blocks of channels; where those are few, the images are split as well, by shape alone, and the partial results added in order. */
#include <stdatomic.h>
#include "conv.h"

#define FEW_ROWS 2
#define IMAGE_BYTES ((int64_t)256 << 10)
#define PARTIAL_BYTES ((int64_t)16 << 20)   /* of all splits together */
#define WANTED_CHUNKS 16
#define TAP_ROW (TERN_GEMM_K + 32)          /* whole-vector moves write past the end; rows start in different cache sets */
#define REDUCE_ROWS 16

typedef struct cutting {
  int64_t channels, blocks, splits;
  size_t offsets_bytes, positions_bytes;
} cutting;

static float element_f32(tern_dtype dtype, const char *data, int64_t at) {
  if (dtype == TERN_F32) return ((const float *)(const void *)data)[at];
  uint16_t bits = ((const uint16_t *)(const void *)data)[at];
  return dtype == TERN_BF16 ? tern_bf16_to_f32(bits) : tern_f16_to_f32(bits);
}
static double element_f64(tern_dtype dtype, const char *data, int64_t at) {
  (void)dtype;
  return ((const double *)(const void *)data)[at];
}
static void put_f32(tern_dtype dtype, float x, char *data, int64_t at) {
  if (dtype == TERN_F32) ((float *)(void *)data)[at] = x;
  else ((uint16_t *)(void *)data)[at] = dtype == TERN_BF16 ? tern_f32_to_bf16(x) : tern_f32_to_f16(x);
}
static void put_f64(tern_dtype dtype, double x, char *data, int64_t at) {
  (void)dtype;
  ((double *)(void *)data)[at] = x;
}
static int64_t tern_conv_side_at(const tern_gemm_side *s, int64_t outer, int64_t k) { return outer * s->outer_stride + (s->k_offsets ? s->k_offsets[k] : k); }

static bool positions_are_contiguous(const tern_conv *c) {
  const int64_t *s = c->out.strides;
  return (s[4] == 1 || c->axis[2].out == 1) && (s[3] == c->axis[2].out || c->axis[1].out == 1) && (s[2] == c->axis[1].out * c->axis[2].out || c->axis[0].out == 1);
}
static void list_positions(const tern_conv *c, int64_t *offsets) {
  for (int64_t d = 0; d < c->axis[0].out; d++)
    for (int64_t h = 0; h < c->axis[1].out; h++)
      for (int64_t w = 0; w < c->axis[2].out; w++) *offsets++ = d * c->out.strides[2] + h * c->out.strides[3] + w * c->out.strides[4];
}

#define T f32
#define REAL float
#define DTYPE TERN_F32
#include "conv_weights_template.h"
#undef T
#undef REAL
#undef DTYPE
#define T f64
#define REAL double
#define DTYPE TERN_F64
#include "conv_weights_template.h"

static int64_t positions_of(const tern_conv *c) { return c->axis[0].out * c->axis[1].out * c->axis[2].out; }
static int64_t element_bytes(const tern_conv *c) { return c->source.dtype == TERN_F64 ? 8 : 4; }

static cutting cut_weights(const tern_conv *c) {
  int64_t taps = c->axis[0].taps * c->axis[1].taps * c->axis[2].taps, results = c->groups * c->channels * taps * c->rows;
  cutting cut = {.channels = TERN_GEMM_ROWS / taps};
  if (cut.channels < 1) cut.channels = 1;
  if (cut.channels > c->channels) cut.channels = c->channels;
  cut.blocks = tern_conv_ceil(c->channels, cut.channels);
  cut.channels = tern_conv_ceil(c->channels, cut.blocks);
  cut.blocks = tern_conv_ceil(c->channels, cut.channels);
  int64_t worthwhile = results * positions_of(c) * c->images / TERN_GEMM_GRAIN + 1, wanted = worthwhile < WANTED_CHUNKS ? worthwhile : WANTED_CHUNKS;
  cut.splits = tern_conv_ceil(wanted, cut.blocks * c->groups);
  int64_t most = PARTIAL_BYTES / (results * element_bytes(c));
  if (cut.splits > most) cut.splits = most;
  if (cut.splits > c->images) cut.splits = c->images;
  if (cut.splits < 1) cut.splits = 1;
  cut.offsets_bytes = (size_t)tern_conv_ceil(cut.channels * taps * 8, 64) * 64;
  cut.positions_bytes = positions_are_contiguous(c) ? 0 : (size_t)tern_conv_ceil(positions_of(c) * 8, 64) * 64;
  return cut;
}

static int64_t result_count(const tern_conv *c) { return c->groups * c->rows * c->channels * c->axis[0].taps * c->axis[1].taps * c->axis[2].taps; }

size_t TERN_ISA_NAME(tern_conv_weights_scratch)(const tern_conv *c) {
  if (result_count(c) == 0) return 0;
  cutting cut = cut_weights(c);
  return cut.offsets_bytes + cut.positions_bytes + (size_t)(cut.splits * result_count(c) * element_bytes(c));
}

tern_status TERN_ISA_NAME(tern_conv_weights)(tern_conv *c, char *gw, void *scratch) {
  if (result_count(c) == 0) return NULL;
  if (c->images * positions_of(c) == 0) {
    memset(gw, 0, (size_t)result_count(c) * tern_dtype_size(c->source.dtype));
    return NULL;
  }
  cutting cut = cut_weights(c);
  TERN_ISA_NAME(tern_conv_plan)(c, cut.channels, element_bytes(c), IMAGE_BYTES, 1);
  return c->source.dtype == TERN_F64 ? weights_f64(c, &cut, gw, scratch) : weights_f32(c, &cut, gw, scratch);
}
