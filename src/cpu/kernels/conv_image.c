/* The image that taps read (conv.h): how it is cut into bands, where taps lie in it, and how it is filled. */
#include "conv.h"

static int64_t image_size(const tern_conv *c, int64_t channels) {
  int64_t size = channels;
  for (int i = 0; i < 3; i++) {
    int64_t out = i < 2 ? c->band[i] : c->axis[2].out;
    size *= tern_conv_phases(&c->axis[i]) * (out + tern_conv_reach(&c->axis[i]));
  }
  return size;
}

void TERN_ISA_NAME(tern_conv_plan)(tern_conv *c, int64_t channels, int64_t element_size, int64_t bytes, int64_t wanted) {
  c->taps = c->axis[0].taps * c->axis[1].taps * c->axis[2].taps;
  c->k = c->channels * c->taps;
  /* Halve the band until it fits and there are enough: first by depth, then by height. Whole images where that is possible. */
  c->band[0] = c->axis[0].out;
  c->band[1] = c->axis[1].out;
  for (;;) {
    for (int i = 0; i < 2; i++) c->bands[i] = c->band[i] ? tern_conv_ceil(c->axis[i].out, c->band[i]) : 0;
    if (image_size(c, channels) * element_size <= bytes && c->bands[0] * c->bands[1] >= wanted) break;
    int i = c->band[0] > 1 ? 0 : 1;
    if (c->band[i] <= 1) break;
    c->band[i] = (c->band[i] + 1) / 2;
  }
  c->plane = 1;
  for (int i = 0; i < 3; i++) {
    c->image[i] = (i < 2 ? c->band[i] : c->axis[2].out) + tern_conv_reach(&c->axis[i]);
    c->plane *= c->image[i] * tern_conv_phases(&c->axis[i]);
  }
}

void TERN_ISA_NAME(tern_conv_offsets)(const tern_conv *c, int64_t channels, int64_t *offsets) {
  int64_t where[3], phase[3];
  for (int64_t ch = 0; ch < channels; ch++)
    for (int64_t t = 0; t < c->taps; t++) {
      int64_t tap[3] = {t / (c->axis[1].taps * c->axis[2].taps), t / c->axis[2].taps % c->axis[1].taps, t % c->axis[2].taps};
      for (int i = 0; i < 3; i++) {
        const tern_conv_axis *a = &c->axis[i];
        int64_t step = a->reversed ? a->taps - 1 - tap[i] : tap[i];
        phase[i] = step % a->period;
        where[i] = step * a->dilation / a->scale;
      }
      int64_t p = (phase[0] * tern_conv_phases(&c->axis[1]) + phase[1]) * tern_conv_phases(&c->axis[2]) + phase[2];
      *offsets++ = ch * c->plane + ((p * c->image[0] + where[0]) * c->image[1] + where[1]) * c->image[2] + where[2];
    }
}

TILE_INLINE void widen_f32(tern_dtype dtype, const char *data, int64_t at, int64_t n, float *to) {
  if (dtype == TERN_F32) {
    const float *from = (const float *)(const void *)data + at;
    int64_t i = 0;
    for (; i + TILE_LANES_f32 <= n; i += TILE_LANES_f32) tile_store_f32(to + i, tile_load_f32(from + i));
    if (i < n) tile_store_first_f32(to + i, tile_load_first_f32(from + i, n - i), n - i);
  } else if (dtype == TERN_BF16) {
    tile_widen_bf16(to, (const uint16_t *)(const void *)data + at, n);
  } else {
    tile_widen_f16(to, (const uint16_t *)(const void *)data + at, n);
  }
}
static void gather_f32(tern_dtype dtype, const char *data, int64_t at, int64_t stride, int64_t n, float *to) {
  if (dtype == TERN_F32) {
    const float *from = (const float *)(const void *)data;
    for (int64_t i = 0; i < n; i++) to[i] = from[at + i * stride];
  } else {
    const uint16_t *from = (const uint16_t *)(const void *)data;
    for (int64_t i = 0; i < n; i++) to[i] = dtype == TERN_BF16 ? tern_bf16_to_f32(from[at + i * stride]) : tern_f16_to_f32(from[at + i * stride]);
  }
}
TILE_INLINE void widen_f64(tern_dtype dtype, const char *data, int64_t at, int64_t n, double *to) {
  (void)dtype;
  if (n > 0) memcpy(to, data + at * 8, (size_t)n * 8);
}
static void gather_f64(tern_dtype dtype, const char *data, int64_t at, int64_t stride, int64_t n, double *to) {
  (void)dtype;
  const double *from = (const double *)(const void *)data;
  for (int64_t i = 0; i < n; i++) to[i] = from[at + i * stride];
}

#define T f32
#define REAL float
#define DTYPE TERN_F32
#include "conv_image_template.h"
#undef T
#undef REAL
#undef DTYPE
#define T f64
#define REAL double
#define DTYPE TERN_F64
#include "conv_image_template.h"
