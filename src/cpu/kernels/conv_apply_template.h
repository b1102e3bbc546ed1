/* Forward convolution and input gradient for one element type: included by conv_apply.c with T, REAL and DTYPE defined. */
#define NAME_(name, T) name##_##T
#define NAME(name, T) NAME_(name, T)
#define VECTOR NAME(tile, T)
#define LANES NAME(TILE_LANES, T)
#define DO(what) NAME(tile_##what, T)
#define STRIP NAME(TERN_GEMM_STRIP, T)

typedef struct NAME(job, T) {
  const tern_conv *c;
  const int64_t *offsets;     /* [k] into the image */
  const REAL *weights;        /* [group][row][k], rows `weight_row` apart */
  int64_t weight_row;
  REAL *prepared;             /* where weights are made, if they are */
  int64_t items, items_per_chunk;
  bool direct;                /* results go straight to the output */
  _Atomic bool no_memory;
} NAME(job, T);

/* One row of weights in the order of the taps. */
static void NAME(prepare_chunk, T)(void *context, int64_t chunk, int thread) {
  (void)thread;
  NAME(job, T) *j = context;
  const tern_conv *c = j->c;
  int64_t group = chunk / c->rows, row = chunk % c->rows;
  REAL *to = j->prepared + chunk * j->weight_row;
  for (int64_t ch = 0; ch < c->channels; ch++)
    for (int64_t d = 0; d < c->axis[0].taps; d++)
      for (int64_t h = 0; h < c->axis[1].taps; h++) {
        int64_t at = group * c->weight_group + row * c->weight_row + ch * c->weight_channel + (c->axis[0].kernel_first + d * c->axis[0].kernel_step) * c->weight_tap[0] +
                     (c->axis[1].kernel_first + h * c->axis[1].kernel_step) * c->weight_tap[1] + c->axis[2].kernel_first * c->weight_tap[2];
        for (int64_t w = 0; w < c->axis[2].taps; w++) *to++ = NAME(element, T)(c->weights_dtype, c->weights, at + w * c->axis[2].kernel_step * c->weight_tap[2]);
      }
}

/* panel[p][position] = image[offsets[p] + position], by moves of `piece` elements. */
TILE_INLINE void NAME(pack_moves, T)(const int64_t piece, const int64_t moves, const REAL *image, const int64_t *offsets, int64_t k, const int32_t *from,
                                     const int32_t *to, REAL *panel) {
  for (int64_t p = 0; p < k; p++) {
    const REAL *base = image + offsets[p];
    REAL *row = panel + p * STRIP;
    TILE_UNROLL for (int64_t i = 0; i < moves; i++) memcpy(row + to[i], base + from[i], (size_t)piece * sizeof(REAL));
  }
}
TILE_INLINE void NAME(pack_pieces, T)(const int64_t piece, int64_t moves, const REAL *image, const int64_t *offsets, int64_t k, const int32_t *from, const int32_t *to,
                                      REAL *panel) {
  switch (moves) { /* the usual numbers as constants: their places then stay in registers */
    case 2: NAME(pack_moves, T)(piece, 2, image, offsets, k, from, to, panel); break;
    case 3: NAME(pack_moves, T)(piece, 3, image, offsets, k, from, to, panel); break;
    case 4: NAME(pack_moves, T)(piece, 4, image, offsets, k, from, to, panel); break;
    default: NAME(pack_moves, T)(piece, moves, image, offsets, k, from, to, panel);
  }
}
static void NAME(pack_positions, T)(const REAL *image, const int64_t *offsets, int64_t k, int64_t n, int64_t piece, int64_t moves, const int32_t *from, const int32_t *to,
                                    REAL *panel) {
  if (piece == LANES) NAME(pack_pieces, T)(LANES, moves, image, offsets, k, from, to, panel);
  else if (piece == LANES / 2) NAME(pack_pieces, T)(LANES / 2, moves, image, offsets, k, from, to, panel);
  else NAME(pack_pieces, T)(LANES / 4, moves, image, offsets, k, from, to, panel);
  int64_t used = (n + LANES - 1) / LANES * LANES;
  if (used > n)
    for (int64_t p = 0; p < k; p++)
      for (int64_t i = n; i < used; i++) panel[p * STRIP + i] = 0;
}

/* One or two rows: packing would cost more than the products, so taps are read from the image directly. */
static void NAME(multiply_few, T)(const NAME(job, T) *j, const REAL *image, const REAL *weights, int64_t positions, REAL *out, int64_t out_row) {
  const tern_conv *c = j->c;
  int32_t from[STRIP], to[STRIP];
  REAL row[STRIP + LANES];
  for (int64_t n0 = 0; n0 < positions; n0 += STRIP) {
    int64_t n = positions - n0 < STRIP ? positions - n0 : STRIP, moves = tern_conv_moves(c, n0, n, LANES, from, to);
    for (int64_t r = 0; r < c->rows; r++) {
      const REAL *w = weights + r * j->weight_row;
      int64_t i = 0;
      for (; i + 4 <= moves; i += 4) {
        VECTOR sum[4] = {DO(zero)(), DO(zero)(), DO(zero)(), DO(zero)()};
        for (int64_t p = 0; p < c->k; p++) {
          const REAL *base = image + j->offsets[p];
          VECTOR x = DO(splat)(w[p]);
          TILE_UNROLL for (int m = 0; m < 4; m++) sum[m] = DO(fma)(x, DO(load)(base + from[i + m]), sum[m]);
        }
        TILE_UNROLL for (int m = 0; m < 4; m++) DO(store)(row + to[i + m], sum[m]);
      }
      for (; i < moves; i++) {
        VECTOR sum = DO(zero)();
        for (int64_t p = 0; p < c->k; p++) sum = DO(fma)(DO(splat)(w[p]), DO(load)(image + j->offsets[p] + from[i]), sum);
        DO(store)(row + to[i], sum);
      }
      memcpy(out + r * out_row + n0, row, (size_t)n * sizeof(REAL));
    }
  }
}

static void NAME(multiply_taps, T)(const NAME(job, T) *j, const REAL *image, const REAL *weights, int64_t positions, REAL *out, int64_t out_row) {
  const tern_conv *c = j->c;
  int32_t from[STRIP], to[STRIP];
  REAL panel[TERN_GEMM_K * STRIP + LANES] __attribute__((aligned(64)));
  int64_t block = tern_gemm_k_block(c->k), piece = tern_conv_piece(c, LANES);
  for (int64_t p = 0; p < c->k; p += block) {
    int64_t k = c->k - p < block ? c->k - p : block;
    for (int64_t n0 = 0; n0 < positions; n0 += STRIP) {
      int64_t n = positions - n0 < STRIP ? positions - n0 : STRIP, moves = tern_conv_moves(c, n0, n, piece, from, to);
      NAME(pack_positions, T)(image, j->offsets + p, k, n, piece, moves, from, to, panel);
      TERN_ISA_NAME(NAME(tern_gemm_strip, T))(c->rows, n, k, weights + p, j->weight_row, 1, panel, STRIP, out + n0, out_row, p > 0);
    }
  }
}

/* From dense rows to wherever the output's strides say. */
static void NAME(scatter, T)(const tern_conv *c, const REAL *wide, int64_t positions, int64_t at) {
  const int64_t *strides = c->out.strides;
  int64_t width = c->axis[2].out;
  for (int64_t r = 0; r < c->rows; r++)
    for (int64_t p = 0; p < positions; p += width) {
      int64_t row = p / width, where = at + r * strides[1] + row / c->band[1] * strides[2] + row % c->band[1] * strides[3];
      NAME(put, T)(c->out.dtype, wide + r * positions + p, width, c->out.data, where, strides[4]);
    }
}

static void NAME(apply_chunk, T)(void *context, int64_t chunk, int thread) {
  (void)thread;
  NAME(job, T) *j = context;
  const tern_conv *c = j->c;
  int64_t bands = c->bands[0] * c->bands[1], most = c->band[0] * c->band[1] * c->axis[2].out;
  int64_t image_room = (c->channels * c->plane + TERN_CONV_SLACK + 15) / 16 * 16;
  REAL *image = tern_pool_scratch((size_t)(image_room + (j->direct ? 0 : c->rows * most)) * sizeof(REAL));
  if (!image) {
    atomic_store(&j->no_memory, true);
    return;
  }
  REAL *wide = image + image_room;
  int64_t end = (chunk + 1) * j->items_per_chunk;
  for (int64_t item = chunk * j->items_per_chunk; item < end && item < j->items; item++) {
    int64_t band = item % bands, group = item / bands % c->groups, n = item / bands / c->groups;
    int64_t depth = band / c->bands[1] * c->band[0], height = band % c->bands[1] * c->band[1];
    int64_t depths = c->axis[0].out - depth < c->band[0] ? c->axis[0].out - depth : c->band[0];
    int64_t heights = c->axis[1].out - height < c->band[1] ? c->axis[1].out - height : c->band[1];
    int64_t positions = depths * heights * c->axis[2].out;
    int64_t at = n * c->out.strides[0] + group * c->rows * c->out.strides[1] + depth * c->out.strides[2] + height * c->out.strides[3];
    TERN_ISA_NAME(NAME(tern_conv_fill, T))(c, n, group, 0, c->channels, depth, height, bands == 1 && item > chunk * j->items_per_chunk, image);
    REAL *out = j->direct ? (REAL *)(void *)c->out.data + at : wide;
    int64_t out_row = j->direct ? c->out.strides[1] : positions;
    const REAL *weights = j->weights + group * c->rows * j->weight_row;
    if (c->rows <= FEW_ROWS) NAME(multiply_few, T)(j, image, weights, positions, out, out_row);
    else NAME(multiply_taps, T)(j, image, weights, positions, out, out_row);
    if (!j->direct) NAME(scatter, T)(c, wide, positions, at);
  }
}

static tern_status NAME(apply, T)(tern_conv *c, void *scratch) {
  NAME(job, T) j = {.c = c, .offsets = scratch};
  TERN_ISA_NAME(tern_conv_offsets)(c, c->channels, scratch);
  if (weights_are_ready(c, DTYPE)) {
    j.weights = (const REAL *)(const void *)c->weights;
    j.weight_row = c->weight_row;
  } else {
    j.weight_row = prepared_row(c->k);
    j.prepared = (REAL *)(void *)((char *)scratch + offsets_bytes(c));
    j.weights = j.prepared;
    tern_pool_run(c->groups * c->rows, NAME(prepare_chunk, T), &j);
  }
  const int64_t *strides = c->out.strides;
  j.direct = c->out.dtype == DTYPE && strides[4] == 1 && strides[3] == c->axis[2].out && strides[2] == strides[3] * c->axis[1].out;
  int64_t work = c->rows * c->k * c->band[0] * c->band[1] * c->axis[2].out;
  j.items = c->images * c->groups * c->bands[0] * c->bands[1];
  j.items_per_chunk = work < TERN_GEMM_GRAIN ? TERN_GEMM_GRAIN / (work + 1) + 1 : 1;
  tern_pool_run(tern_conv_ceil(j.items, j.items_per_chunk), NAME(apply_chunk, T), &j);
  return atomic_load(&j.no_memory) ? tern_error_new(TERN_OUT_OF_MEMORY, "convolution: the host has no memory for a working image of %lld elements", (long long)(c->channels * c->plane)) : NULL;
}

#undef NAME_
#undef NAME
#undef VECTOR
#undef LANES
#undef DO
#undef STRIP
