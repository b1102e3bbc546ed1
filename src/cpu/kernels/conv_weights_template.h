/* Weight gradient for one element type: included by conv_weights.c with T, REAL and DTYPE defined. */
#define NAME_(name, T) name##_##T
#define NAME(name, T) NAME_(name, T)
#define VECTOR NAME(tile, T)
#define LANES NAME(TILE_LANES, T)
#define DO(what) NAME(tile_##what, T)
#define STRIP NAME(TERN_GEMM_STRIP, T)

typedef struct NAME(job, T) {
  const tern_conv *c;
  cutting cut;
  const int64_t *offsets;          /* [channels of a block][tap] into the image */
  const int64_t *position_offsets; /* of gy's positions; NULL where they are contiguous */
  REAL *partial;                   /* [split][group][channel, tap][row] */
  char *gw;
  _Atomic bool no_memory;
} NAME(job, T);

/* What one chunk works on, in the thread's own scratch. */
typedef struct NAME(work, T) {
  REAL *image;
  REAL *taps;     /* [channel, tap][TAP_ROW]: positions of the image, run by run */
  REAL *panels;   /* [strip of rows][position][strip]: gy, transposed */
  REAL *sums;     /* few rows: [row][channel, tap][lane] */
  int64_t filled; /* positions in taps and panels */
  bool started;   /* the partial result holds something */
} NAME(work, T);

static tern_gemm_side NAME(gradient, T)(const NAME(job, T) *j, int64_t n, int64_t group) {
  const tern_conv_array *gy = &j->c->out;
  tern_gemm_side side = {.data = gy->data + (n * gy->strides[0] + group * j->c->rows * gy->strides[1]) * (int64_t)tern_dtype_size(gy->dtype),
                         .dtype = gy->dtype, .outer_stride = gy->strides[1], .k_stride = 1, .k_offsets = j->position_offsets};
  return side;
}

static void NAME(flush, T)(const NAME(job, T) *j, NAME(work, T) *w, int64_t rows, REAL *to) {
  if (!w->filled) return;
  for (int64_t n0 = 0; n0 < j->c->rows; n0 += STRIP) {
    int64_t n = j->c->rows - n0 < STRIP ? j->c->rows - n0 : STRIP;
    TERN_ISA_NAME(NAME(tern_gemm_strip, T))(rows, n, w->filled, w->taps, TAP_ROW, 1, w->panels + n0 * TERN_GEMM_K, STRIP, to + n0, j->c->rows, w->started);
  }
  w->started = true;
  w->filled = 0;
}

TILE_INLINE void NAME(copy_taps, T)(const int64_t piece, const NAME(job, T) *j, NAME(work, T) *w, int64_t taps, int64_t moves, const int32_t *from, const int32_t *to) {
  for (int64_t t = 0; t < taps; t++) {
    const REAL *base = w->image + j->offsets[t];
    REAL *row = w->taps + t * TAP_ROW + w->filled;
    for (int64_t i = 0; i < moves; i++) memcpy(row + to[i], base + from[i], (size_t)piece * sizeof(REAL));
  }
}

/* Positions [first, first + n) of the band whose image is made; `position` is the first one's number within gy's plane. */
static void NAME(append, T)(const NAME(job, T) *j, NAME(work, T) *w, const tern_gemm_side *gy, int64_t taps, int64_t first, int64_t n, int64_t position) {
  int32_t from[TERN_GEMM_K + 1], to[TERN_GEMM_K + 1];
  int64_t piece = tern_conv_piece(j->c, LANES), moves = tern_conv_moves(j->c, first, n, piece, from, to);
  if (piece == LANES) NAME(copy_taps, T)(LANES, j, w, taps, moves, from, to);
  else if (piece == LANES / 2) NAME(copy_taps, T)(LANES / 2, j, w, taps, moves, from, to);
  else NAME(copy_taps, T)(LANES / 4, j, w, taps, moves, from, to);
  for (int64_t n0 = 0; n0 < j->c->rows; n0 += STRIP) {
    int64_t rows = j->c->rows - n0 < STRIP ? j->c->rows - n0 : STRIP;
    TERN_ISA_NAME(NAME(tern_gemm_pack_strip, T))(gy, n0, rows, position, n, w->panels + n0 * TERN_GEMM_K + w->filled * STRIP);
  }
  w->filled += n;
}

/* One or two rows: no matrix product; each tap is a running dot product along the positions, lane by lane. */
static void NAME(append_few, T)(const NAME(job, T) *j, NAME(work, T) *w, const tern_gemm_side *gy, int64_t taps, int64_t depths, int64_t heights, int64_t position) {
  const tern_conv *c = j->c;
  int64_t width = c->axis[2].out;
  for (int64_t r = 0; r < c->rows; r++)
    for (int64_t row = 0; row < depths * heights; row++) {
      int64_t at = (row / heights * c->image[1] + row % heights) * c->image[2];
      for (int64_t x = 0; x < width; x += LANES) {
        int64_t n = width - x < LANES ? width - x : LANES;
        REAL dense[LANES];
        for (int64_t i = 0; i < n; i++) dense[i] = NAME(element, T)(gy->dtype, gy->data, tern_conv_side_at(gy, r, position + row * width + x + i));
        VECTOR g = DO(load_first)(dense, n);
        for (int64_t t = 0; t < taps; t++) {
          REAL *sum = w->sums + (r * taps + t) * LANES;
          DO(store)(sum, DO(fma)(g, DO(load_first)(w->image + j->offsets[t] + at + x, n), DO(load)(sum)));
        }
      }
    }
}

static void NAME(weights_chunk, T)(void *context, int64_t chunk, int thread) {
  (void)thread;
  NAME(job, T) *j = context;
  const tern_conv *c = j->c;
  const cutting *cut = &j->cut;
  int64_t block = chunk % cut->blocks, group = chunk / cut->blocks % c->groups, split = chunk / cut->blocks / c->groups;
  int64_t channel = block * cut->channels, channels = c->channels - channel < cut->channels ? c->channels - channel : cut->channels, taps = channels * c->taps;
  int64_t first = c->images * split / cut->splits, end = c->images * (split + 1) / cut->splits;
  bool few = c->rows <= FEW_ROWS;
  int64_t image_room = (channels * c->plane + TERN_CONV_SLACK + 15) / 16 * 16, strips = tern_conv_ceil(c->rows, STRIP);
  int64_t room = few ? c->rows * taps * LANES : (taps * TAP_ROW + 15) / 16 * 16 + strips * STRIP * TERN_GEMM_K;
  NAME(work, T) w = {.image = tern_pool_scratch((size_t)(image_room + room) * sizeof(REAL))};
  if (!w.image) {
    atomic_store(&j->no_memory, true);
    return;
  }
  w.taps = w.sums = w.image + image_room;
  w.panels = w.taps + (taps * TAP_ROW + 15) / 16 * 16;
  REAL *to = j->partial + (((split * c->groups + group) * c->channels + channel) * c->taps) * c->rows;
  if (few) memset(w.sums, 0, (size_t)room * sizeof(REAL));
  int64_t width = c->axis[2].out;
  for (int64_t n = first; n < end; n++) {
    tern_gemm_side gy = NAME(gradient, T)(j, n, group);
    for (int64_t depth = 0; depth < c->axis[0].out; depth += c->band[0])
      for (int64_t height = 0; height < c->axis[1].out; height += c->band[1]) {
        int64_t depths = c->axis[0].out - depth < c->band[0] ? c->axis[0].out - depth : c->band[0];
        int64_t heights = c->axis[1].out - height < c->band[1] ? c->axis[1].out - height : c->band[1];
        int64_t positions = depths * heights * width, position = (depth * c->axis[1].out + height) * width;
        TERN_ISA_NAME(NAME(tern_conv_fill, T))(c, n, group, channel, channels, depth, height, c->bands[0] * c->bands[1] == 1 && n > first, w.image);
        if (few) {
          NAME(append_few, T)(j, &w, &gy, taps, depths, heights, position);
          continue;
        }
        int64_t length = tern_gemm_k_block(positions);
        for (int64_t p = 0; p < positions; p += length) {
          int64_t count = positions - p < length ? positions - p : length;
          if (w.filled + count > TERN_GEMM_K) NAME(flush, T)(j, &w, taps, to);
          NAME(append, T)(j, &w, &gy, taps, p, count, position + p);
        }
      }
  }
  if (!few) {
    NAME(flush, T)(j, &w, taps, to);
    return;
  }
  for (int64_t r = 0; r < c->rows; r++)
    for (int64_t t = 0; t < taps; t++) {
      REAL *sum = w.sums + (r * taps + t) * LANES;
      for (int half = LANES / 2; half > 0; half /= 2)
        for (int l = 0; l < half; l++) sum[l] += sum[l + half];
      to[t * c->rows + r] = sum[0];
    }
}

/* Adds the splits in order, and turns [tap][row] around. */
static void NAME(reduce_chunk, T)(void *context, int64_t chunk, int thread) {
  (void)thread;
  const NAME(job, T) *j = context;
  const tern_conv *c = j->c;
  int64_t blocks = tern_conv_ceil(c->rows, REDUCE_ROWS), group = chunk / blocks, first = chunk % blocks * REDUCE_ROWS;
  int64_t rows = c->rows - first < REDUCE_ROWS ? c->rows - first : REDUCE_ROWS, split = c->groups * c->k * c->rows;
  for (int64_t t = 0; t < c->k; t++) {
    const REAL *from = j->partial + (group * c->k + t) * c->rows + first;
    REAL sum[REDUCE_ROWS];
    for (int64_t r = 0; r < rows; r++) sum[r] = from[r];
    for (int64_t s = 1; s < j->cut.splits; s++)
      for (int64_t r = 0; r < rows; r++) sum[r] += from[s * split + r];
    for (int64_t r = 0; r < rows; r++) NAME(put, T)(c->source.dtype, sum[r], j->gw, (group * c->rows + first + r) * c->k + t);
  }
}

static tern_status NAME(weights, T)(tern_conv *c, const cutting *cut, char *gw, char *scratch) {
  NAME(job, T) j = {.c = c, .cut = *cut, .gw = gw, .offsets = (const int64_t *)(void *)scratch};
  TERN_ISA_NAME(tern_conv_offsets)(c, cut->channels, (int64_t *)(void *)scratch);
  scratch += cut->offsets_bytes;
  if (cut->positions_bytes) {
    j.position_offsets = (const int64_t *)(void *)scratch;
    list_positions(c, (int64_t *)(void *)scratch);
    scratch += cut->positions_bytes;
  }
  j.partial = (REAL *)(void *)scratch;
  tern_pool_run(cut->splits * c->groups * cut->blocks, NAME(weights_chunk, T), &j);
  if (atomic_load(&j.no_memory)) return tern_error_new(TERN_OUT_OF_MEMORY, "weight gradient of a convolution: the host has no memory for a working image of %lld elements", (long long)(cut->channels * c->plane));
  tern_pool_run(c->groups * tern_conv_ceil(c->rows, REDUCE_ROWS), NAME(reduce_chunk, T), &j);
  return NULL;
}

#undef NAME_
#undef NAME
#undef VECTOR
#undef LANES
#undef DO
#undef STRIP
