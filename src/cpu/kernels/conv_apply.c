/* Forward convolution and input gradient (conv.h): a product of the weights with the image's positions, packed strip by strip.
 *
 * An item is a band of one image, or several small images whole. Mostly each chunk packs its item a block of k at a time and multiplies; where items are too few for the
 * pool, or the weights too large to be read for each, panels are packed once for everybody and chunks are blocks of rows. */
#include <stdatomic.h>
#include "conv.h"

#define FEW_ROWS 2                          /* results per group up to which the image is not packed: depthwise convolution */
#define IMAGE_BYTES ((int64_t)384 << 10)    /* of the image of one band: stays in the second-level cache */
#define WANTED_CHUNKS 16                    /* so many, where the work is worth it */
#define ITEM_POSITIONS 448                  /* of merged images, at most */
#define TOGETHER_ROWS 256                   /* rows of weights used together: a block of k of them stays in the second-level cache */
#define LEAST_POSITIONS 192                 /* of a band: fewer would pack too little for the weights they read */
#define LEAST_ROWS 128                      /* of a chunk, where rows are split: each reads all panels again */
#define LARGE_WEIGHTS ((int64_t)512 << 10)  /* bytes from which on reading them for each item hurts */
#define SHARED_BYTES ((int64_t)5 << 19)     /* of all panels, at most: more would come from the third-level cache, and packing again costs less than that */
#define COPY_STRIPS 4                       /* strips from which on weights are copied side by side before they are used */
#define PREPARE_ROWS 8

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

typedef struct cutting {
  int64_t merged;                    /* images of one item */
  int64_t items, items_per_chunk;
  int64_t row_blocks, rows;          /* rows of each block but the last */
  bool shared;
  int64_t strips;                    /* shared: of an item, at most */
  int64_t channel_blocks, channels;  /* shared: chunks of packing */
  int64_t panel_item;                /* shared: elements of an item's panels */
} cutting;

/* Weights already are [group][row][k]. */
static bool weights_are_ready(const tern_conv *c, tern_dtype dtype) {
  if (c->weights_dtype != dtype || c->weight_group != c->rows * c->weight_row || c->weight_channel != c->taps) return false;
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
/* Elements of `rows` rows of weights copied side by side. */
static int64_t gathered(int64_t rows, int64_t k) { return (rows < TOGETHER_ROWS ? rows : TOGETHER_ROWS) * ((tern_gemm_k_block(k) + 15) / 16 * 16 + 16); }
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

static int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }
static int64_t larger(int64_t a, int64_t b) { return a > b ? a : b; }

/* Another height of the bands, about as many, that leaves fewer lanes of vectors empty. */
static void fit_bands(tern_conv *c, int64_t lanes, int64_t size) {
  const int64_t height = c->axis[1].out, width = c->axis[2].out, given = c->band[1];
  if (c->bands[0] != 1 || c->axis[0].out != 1 || c->bands[1] <= 1) return;
  int64_t best = given, least = INT64_MAX;
  for (int64_t h = larger(1, given * 3 / 4); h <= smaller(given * 2, height); h++) {
    const int64_t vectors = height / h * tern_conv_ceil(h * width, lanes) + tern_conv_ceil(height % h * width, lanes), cost = vectors * 64 + tern_conv_ceil(height, h);
    if (cost >= least || c->channels * (h + tern_conv_reach(&c->axis[1])) * c->image[2] * tern_conv_phases(&c->axis[1]) * tern_conv_phases(&c->axis[2]) * size > IMAGE_BYTES) continue;
    least = cost;
    best = h;
  }
  c->plane = c->plane / c->image[1] * (c->image[1] + best - given);
  c->image[1] += best - given;
  c->band[1] = best;
  c->bands[1] = tern_conv_ceil(height, best);
}

static int64_t work_of(const tern_conv *c) {
  int64_t work = c->images * c->groups * c->rows * c->channels;
  for (int i = 0; i < 3; i++) work *= c->axis[i].taps * c->axis[i].out;
  return work;
}

/* By shape and element type alone; sets the bands too. None of it changes a bit of the result. */
static cutting cut_apply(tern_conv *c) {
  const int64_t size = c->source.dtype == TERN_F64 ? 8 : 4, strip = size == 8 ? TERN_GEMM_STRIP_f64 : TERN_GEMM_STRIP_f32;
  const int64_t plane = c->axis[0].out * c->axis[1].out * c->axis[2].out, k = c->channels * c->axis[0].taps * c->axis[1].taps * c->axis[2].taps;
  const int64_t sets = c->images * c->groups, worthwhile = smaller(work_of(c) / TERN_GEMM_GRAIN + 1, WANTED_CHUNKS);
  cutting cut = {.merged = 1, .items_per_chunk = 1, .row_blocks = 1, .rows = c->rows};
  TERN_ISA_NAME(tern_conv_plan)(c, c->channels, size, IMAGE_BYTES, smaller(tern_conv_ceil(worthwhile, sets * larger(1, c->rows / LEAST_ROWS)), larger(1, plane / LEAST_POSITIONS)));
  fit_bands(c, strip / TERN_GEMM_VECTORS, size);
  const int64_t bands = c->bands[0] * c->bands[1], block = tern_gemm_k_block(k);
  const bool few = c->rows <= FEW_ROWS, large = c->rows * k * size > LARGE_WEIGHTS;
  if (bands == 1 && !few && plane % strip) {
    cut.merged = smaller(larger(1, ITEM_POSITIONS / plane), c->images);
    if (!large) cut.merged = smaller(cut.merged, larger(1, sets / worthwhile));
    if (!large) cut.merged = smaller(cut.merged, larger(1, IMAGE_BYTES / (c->channels * c->plane * size)));
    cut.merged = tern_conv_ceil(c->images, tern_conv_ceil(c->images, cut.merged));
  }
  cut.items = tern_conv_ceil(c->images, cut.merged) * c->groups * bands;
  const int64_t positions = c->band[0] * c->band[1] * c->axis[2].out * cut.merged, strips = tern_conv_ceil(positions, strip);
  if (cut.items < worthwhile && !few) {
    while (cut.row_blocks * cut.items < worthwhile && c->rows >= 2 * cut.row_blocks * LEAST_ROWS) cut.row_blocks *= 2;
    cut.rows = tern_conv_ceil(c->rows, cut.row_blocks);
    cut.row_blocks = tern_conv_ceil(c->rows, cut.rows);
  }
  cut.panel_item = tern_conv_ceil(k, larger(1, block)) * block * strips * strip;
  if (cut.row_blocks > 1 && positions <= ITEM_POSITIONS && cut.items * cut.panel_item * size <= SHARED_BYTES) {
    cut.shared = true;
    cut.strips = strips;
    cut.channel_blocks = smaller(c->channels, larger(1, tern_conv_ceil(worthwhile, cut.items)));
    cut.channels = tern_conv_ceil(c->channels, cut.channel_blocks);
    cut.channel_blocks = tern_conv_ceil(c->channels, cut.channels);
  } else {
    const int64_t each = cut.rows * k * positions;
    if (each < TERN_GEMM_GRAIN) cut.items_per_chunk = TERN_GEMM_GRAIN / (each + 1) + 1;
  }
  return cut;
}

size_t TERN_ISA_NAME(tern_conv_apply_scratch)(const tern_conv *given) {
  tern_conv c = *given;
  c.k = c.channels * c.axis[0].taps * c.axis[1].taps * c.axis[2].taps;
  if (work_of(&c) == 0) return 0;
  const cutting cut = cut_apply(&c);
  return offsets_bytes(&c) + (size_t)(c.groups * c.rows * prepared_row(c.k) + (cut.shared ? cut.items * cut.panel_item : 0)) * (c.source.dtype == TERN_F64 ? 8 : 4);
}

tern_status TERN_ISA_NAME(tern_conv_apply)(tern_conv *c, void *scratch) {
  if (work_of(c) == 0) return NULL;
  const cutting cut = cut_apply(c);
  return c->source.dtype == TERN_F64 ? apply_f64(c, &cut, scratch) : apply_f32(c, &cut, scratch);
}
