/* conv: convolutions and their gradients as matrix products over taps.
 *
 * Everything here is three-dimensional; a window of fewer dimensions has leading ones. All three operations are one picture: a source image, padded and split by
 * the stride's residues ("phases"), so that whatever one tap multiplies is a contiguous row; and the taps, each an offset into that image.
 *
 *   forward       out[row, position] = sum over (channel, tap) weight[row, (channel, tap)] * image[channel, position + tap]
 *   input grad    the same with gy for the source, once for each residue of the input positions, with the taps that reach it
 *   weight grad   out[(channel, tap), row] = sum over positions image[channel, position + tap] * gy[row, position]
 *
 * The image of a band of rows is made in the thread's own scratch, which stays in its cache. */
#ifndef TERN_CONV_H
#define TERN_CONV_H
#include "gemm.h"

/* One spatial dimension. Tap t of position z reads the source at (z + shift(t)) * scale + residue(t) - pad. */
typedef struct tern_conv_axis {
  int64_t in, out, taps;
  int64_t scale, dilation, pad;
  int64_t period;                      /* residues repeat after this many taps */
  bool reversed;                       /* taps run backwards (input grad) */
  int64_t kernel_first, kernel_step;   /* the weight's index of tap t */
} tern_conv_axis;

typedef struct tern_conv_array {
  char *data;
  tern_dtype dtype;
  int64_t strides[5];                  /* image, channel, depth, height, width; in elements */
} tern_conv_array;

typedef struct tern_conv {
  int64_t images, groups, channels, rows; /* channels: of the source, rows: of the result, both per group */
  tern_conv_axis axis[3];
  tern_conv_array source;
  tern_conv_array out;                 /* forward and input grad: the result; weight grad: gy */
  const char *weights;                 /* as given; forward and input grad */
  tern_dtype weights_dtype;
  int64_t weight_group, weight_row, weight_channel, weight_tap[3]; /* strides in elements */

  /* Made by tern_conv_plan. */
  int64_t taps, k;                     /* taps of one channel; taps of all channels of a group */
  int64_t band[2], bands[2];           /* depth and height: output rows of one band, and how many bands */
  int64_t image[3], plane;             /* the image's depth, height and width of one phase; elements of one channel */
} tern_conv;

static inline int64_t tern_conv_ceil(int64_t a, int64_t b) { return (a + b - 1) / b; }
static inline int64_t tern_conv_phases(const tern_conv_axis *a) { return a->taps < a->period ? a->taps : a->period; }
/* How far the last tap lies from the first, in positions. */
static inline int64_t tern_conv_reach(const tern_conv_axis *a) { return a->taps ? (a->taps - 1) * a->dilation / a->scale : 0; }

/* Sets the bands so that the image of `channels` channels is about `bytes`, and there are about `wanted` bands or more. */
void TERN_ISA_NAME(tern_conv_plan)(tern_conv *c, int64_t channels, int64_t element_size, int64_t bytes, int64_t wanted);
/* offsets[channel * taps + tap] into the image, for `channels` channels. */
void TERN_ISA_NAME(tern_conv_offsets)(const tern_conv *c, int64_t channels, int64_t *offsets);

/* Bytes of scratch, and the work. f64 where the source is f64, else f32 inside. */
size_t TERN_ISA_NAME(tern_conv_apply_scratch)(const tern_conv *c);
tern_status TERN_ISA_NAME(tern_conv_apply)(tern_conv *c, void *scratch);
size_t TERN_ISA_NAME(tern_conv_weights_scratch)(const tern_conv *c);
/* gw[group][row][channel][tap] by the weight strides; `gw` has the source's dtype. */
tern_status TERN_ISA_NAME(tern_conv_weights)(tern_conv *c, char *gw, void *scratch);

#define TERN_CONV_DECLARE(T, REAL)                                                                                                         \
  /* Fills the image of channels [channel, channel + channels) of group `group`, for the band that starts at output rows (depth, height). \
   * `is_clean`: it was filled before, for as many channels and the same band of another image: its padding is there. */                    \
  void TERN_ISA_NAME(tern_conv_fill_##T)(const tern_conv *c, int64_t n, int64_t group, int64_t channel, int64_t channels, int64_t depth,    \
                                         int64_t height, bool is_clean, REAL *image);
TERN_CONV_DECLARE(f32, float)
TERN_CONV_DECLARE(f64, double)
#undef TERN_CONV_DECLARE

/* Elements after an image that whole-vector loads may touch. */
#define TERN_CONV_SLACK 64

/* Positions [first, first + n) of a band as moves of `piece` elements: to[k...] = image[offset + from[k]...]; a later move overwrites what an earlier one
 * wrote too far. Returns how many; `n` is their most. */
static inline int64_t tern_conv_moves(const tern_conv *c, int64_t first, int64_t n, int64_t piece, int32_t *from, int32_t *to) {
  int64_t width = c->axis[2].out, row = first / width, w = first - row * width, moves = 0;
  int64_t depth = row / c->band[1], height = row - depth * c->band[1];
  for (int64_t done = 0; done < n;) {
    int64_t run = width - w < n - done ? width - w : n - done, at = (depth * c->image[1] + height) * c->image[2] + w;
    for (int64_t i = 0; i < run; i += piece) {
      from[moves] = (int32_t)(at + i);
      to[moves] = (int32_t)(done + i);
      moves++;
    }
    done += run;
    w = 0;
    if (++height == c->band[1]) height = 0, depth++;
  }
  return moves;
}
/* The smallest piece that takes a row at once: a quarter, a half or the whole of a vector. Wider moves of short rows would straddle cache lines. */
static inline int64_t tern_conv_piece(const tern_conv *c, int64_t lanes) {
  int64_t width = c->axis[2].out;
  return lanes >= 16 && width <= lanes / 4 ? lanes / 4 : lanes >= 8 && width <= lanes / 2 ? lanes / 2 : lanes;
}

#endif
