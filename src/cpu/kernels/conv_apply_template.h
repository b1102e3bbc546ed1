/* Forward convolution and input gradient for one element type: included by conv_apply.c with T, REAL and DTYPE defined. */
#define NAME_(name, T) name##_##T
#define NAME(name, T) NAME_(name, T)
#define VECTOR NAME(tile, T)
#define LANES NAME(TILE_LANES, T)
#define DO(what) NAME(tile_##what, T)
#define STRIP NAME(TERN_GEMM_STRIP, T)

typedef struct NAME(job, T) {
  const tern_conv *c;
  cutting cut;
  int64_t positions;          /* of one image of a whole band */
  const int64_t *offsets;     /* [k] into the image; of the first channels where those of a block */
  const REAL *weights;        /* [group][row][k], rows `weight_row` apart */
  int64_t weight_row;
  REAL *prepared;             /* where weights are made, if they are */
  REAL *panels;               /* shared: [item][block of k][strip][k of a block][strip] */
  bool direct;                /* results go straight to the output */
  _Atomic bool no_memory;
} NAME(job, T);

/* A band of one image, or whole images. */
typedef struct NAME(item, T) {
  int64_t group, n, images, depth, height, positions;
  int64_t at;                 /* its first result, in the output */
} NAME(item, T);

/* PREPARE_ROWS rows of weights in the order of the taps. */
static void NAME(prepare_chunk, T)(void *context, int64_t chunk, int thread) {
  (void)thread;
  NAME(job, T) *j = context;
  const tern_conv *c = j->c;
  const tern_conv_axis *axis = c->axis;
  const int64_t blocks = tern_conv_ceil(c->rows, PREPARE_ROWS), group = chunk / blocks, first = chunk % blocks * PREPARE_ROWS, width = axis[2].taps;
  const int64_t rows = c->rows - first < PREPARE_ROWS ? c->rows - first : PREPARE_ROWS, step = axis[2].kernel_step * c->weight_tap[2];
  REAL *out = j->prepared + (group * c->rows + first) * j->weight_row;
  const int64_t base = group * c->weight_group + first * c->weight_row + axis[0].kernel_first * c->weight_tap[0] + axis[1].kernel_first * c->weight_tap[1] + axis[2].kernel_first * c->weight_tap[2];
  for (int64_t ch = 0; ch < c->channels; ch++)
    for (int64_t r = 0; r < rows; r++) {
      REAL *to = out + r * j->weight_row + ch * c->taps;
      const int64_t plane = base + r * c->weight_row + ch * c->weight_channel;
      for (int64_t d = 0; d < axis[0].taps; d++)
        for (int64_t h = 0; h < axis[1].taps; h++, to += width) {
          const int64_t at = plane + d * axis[0].kernel_step * c->weight_tap[0] + h * axis[1].kernel_step * c->weight_tap[1];
          if (c->weights_dtype == DTYPE) {
            const REAL *from = (const REAL *)(const void *)c->weights + at;
            for (int64_t w = 0; w < width; w++) to[w] = from[w * step];
          } else {
            for (int64_t w = 0; w < width; w++) to[w] = NAME(element, T)(c->weights_dtype, c->weights, at + w * step);
          }
        }
    }
}

/* One row of a panel: `moves` moves of `piece` elements. The last may write up to a vector too far. */
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
static void NAME(pack_rows, T)(const REAL *image, const int64_t *offsets, int64_t k, int64_t piece, int64_t moves, const int32_t *from, const int32_t *to, REAL *panel) {
  if (piece == LANES) NAME(pack_pieces, T)(LANES, moves, image, offsets, k, from, to, panel);
  else if (piece == LANES / 2) NAME(pack_pieces, T)(LANES / 2, moves, image, offsets, k, from, to, panel);
  else NAME(pack_pieces, T)(LANES / 4, moves, image, offsets, k, from, to, panel);
}

/* Positions [n0, n0 + n) of an item, which may cross from one of its images to the next, as moves (tern_conv_moves). */
static int64_t NAME(strip_moves, T)(const NAME(job, T) *j, int64_t n0, int64_t n, int64_t image_stride, int64_t piece, int32_t *from, int32_t *to) {
  int64_t moves = 0;
  for (int64_t done = 0; done < n;) {
    const int64_t image = (n0 + done) / j->positions, first = n0 + done - image * j->positions, rest = j->positions - first, run = rest < n - done ? rest : n - done;
    const int64_t count = tern_conv_moves(j->c, first, run, piece, from + moves, to + moves);
    for (int64_t i = moves; i < moves + count; i++) {
      from[i] += (int32_t)(image * image_stride);
      to[i] += (int32_t)done;
    }
    moves += count;
    done += run;
  }
  return moves;
}

/* panel[p][position] = image[offsets[p] + position] for p < k and n positions from n0 on, writing nothing outside the k rows. */
static void NAME(pack_positions, T)(const NAME(job, T) *j, const REAL *image, int64_t image_stride, const int64_t *offsets, int64_t k, int64_t n0, int64_t n, REAL *panel) {
  int32_t from[STRIP], to[STRIP];
  REAL last[STRIP + LANES] __attribute__((aligned(64)));
  const int64_t piece = tern_conv_piece(j->c, LANES), moves = NAME(strip_moves, T)(j, n0, n, image_stride, piece, from, to), used = (n + LANES - 1) / LANES * LANES;
  NAME(pack_rows, T)(image, offsets, k - 1, piece, moves, from, to, panel);
  NAME(pack_rows, T)(image, offsets + k - 1, 1, piece, moves, from, to, last);
  memcpy(panel + (k - 1) * STRIP, last, (size_t)n * sizeof(REAL));
  for (int64_t p = 0; p < k && used > n; p++)
    for (int64_t i = n; i < used; i++) panel[p * STRIP + i] = 0;
}

/* Few rows: packing would cost more than the products, so taps are read from the image directly, EIGHT vectors of the output side by side. */
static void NAME(multiply_few, T)(const NAME(job, T) *j, const REAL *image, const REAL *weights, int64_t positions, REAL *out, int64_t out_row) {
  enum { EIGHT = 8 };
  const tern_conv *c = j->c;
  const int64_t width = c->axis[2].out, vectors = tern_conv_ceil(width, LANES), units = positions / width * vectors;
  for (int64_t r = 0; r < c->rows; r++) {
    const REAL *w = weights + r * j->weight_row;
    REAL *to_row = out + r * out_row;
    int64_t depth = 0, height = 0, x = 0, to = 0;
    for (int64_t unit = 0; unit < units; unit += EIGHT) {
      const REAL *from[EIGHT];
      int64_t place[EIGHT], length[EIGHT];
      const int64_t n = units - unit < EIGHT ? units - unit : EIGHT;
      for (int64_t i = 0; i < EIGHT; i++) {
        from[i] = image + (depth * c->image[1] + height) * c->image[2] + x; /* past the end: the last again, not stored */
        place[i] = to + x;
        length[i] = width - x < LANES ? width - x : LANES;
        if (i + 1 >= n || (x += LANES) < width) continue;
        x = 0;
        to += width;
        if (++height == c->band[1]) height = 0, depth++;
      }
      VECTOR sum[EIGHT];
      TILE_UNROLL for (int i = 0; i < EIGHT; i++) sum[i] = DO(zero)();
      for (int64_t p = 0; p < c->k; p++) {
        const int64_t offset = j->offsets[p];
        const VECTOR tap = DO(splat)(w[p]);
        TILE_UNROLL for (int i = 0; i < EIGHT; i++) sum[i] = DO(fma)(tap, DO(load)(from[i] + offset), sum[i]);
      }
      for (int64_t i = 0; i < n; i++) {
        if (length[i] == LANES) DO(store)(to_row + place[i], sum[i]);
        else DO(store_first)(to_row + place[i], sum[i], length[i]);
      }
      if ((x += LANES) < width) continue;
      x = 0;
      to += width;
      if (++height == c->band[1]) height = 0, depth++;
    }
  }
}

/* Rows of weights, k of each, for use with `count` positions. Where many strips will meet them they are copied side by side: whatever their distance in memory, they
 * then come from the second-level cache line after line, while the panel of one strip stays in the first. */
static const REAL *NAME(gather_weights, T)(const NAME(job, T) *j, const REAL *weights, int64_t rows, int64_t k, int64_t count, REAL *room, int64_t *a_row) {
  *a_row = j->weight_row;
  if (count < COPY_STRIPS * STRIP && j->weight_row * (int64_t)sizeof(REAL) % 1024) return weights;
  *a_row = (k + 15) / 16 * 16 + 16; /* whole cache lines and one more: rows then start in different cache sets */
  for (int64_t i = 0; i < rows; i++) memcpy(room + i * *a_row, weights + i * j->weight_row, (size_t)k * sizeof(REAL));
  return room;
}

/* From dense rows [rows][item's positions] to wherever the output's strides say; the item starts at image n, depth and height. */
static void NAME(scatter, T)(const NAME(job, T) *j, const REAL *wide, const NAME(item, T) *item, int64_t row, int64_t rows) {
  const tern_conv *c = j->c;
  const int64_t *strides = c->out.strides, width = c->axis[2].out, each = item->positions / item->images;
  for (int64_t r = 0; r < rows; r++)
    for (int64_t p = 0; p < item->positions; p += width) {
      const int64_t image = p / each, line = p % each / width;
      const int64_t where = item->at + image * strides[0] + (row + r) * strides[1] + line / c->band[1] * strides[2] + line % c->band[1] * strides[3];
      NAME(put, T)(c->out.dtype, wide + r * item->positions + p, width, c->out.data, where, strides[4]);
    }
}

static NAME(item, T) NAME(item_of, T)(const NAME(job, T) *j, int64_t number) {
  const tern_conv *c = j->c;
  const int64_t bands = c->bands[0] * c->bands[1], band = number % bands, set = number / bands / c->groups;
  NAME(item, T) item = {.group = number / bands % c->groups, .n = set * j->cut.merged, .depth = band / c->bands[1] * c->band[0], .height = band % c->bands[1] * c->band[1]};
  const int64_t depths = c->axis[0].out - item.depth < c->band[0] ? c->axis[0].out - item.depth : c->band[0];
  const int64_t heights = c->axis[1].out - item.height < c->band[1] ? c->axis[1].out - item.height : c->band[1];
  item.images = c->images - item.n < j->cut.merged ? c->images - item.n : j->cut.merged;
  item.positions = depths * heights * c->axis[2].out * item.images;
  item.at = item.n * c->out.strides[0] + item.group * c->rows * c->out.strides[1] + item.depth * c->out.strides[2] + item.height * c->out.strides[3];
  return item;
}

/* ---- every chunk packs for itself: (item, block of rows) ---- */

static void NAME(multiply_item, T)(const NAME(job, T) *j, const NAME(item, T) *item, const REAL *image, int64_t image_stride, const REAL *weights, int64_t rows, REAL *room,
                                   REAL *out, int64_t out_row) {
  REAL panel[TERN_GEMM_K * STRIP] __attribute__((aligned(64)));
  const int64_t k_all = j->c->k, block = tern_gemm_k_block(k_all);
  const int64_t most = tern_conv_ceil(rows, tern_conv_ceil(rows, TOGETHER_ROWS));
  for (int64_t first = 0; first < rows; first += most) {
    const int64_t together = rows - first < most ? rows - first : most;
    for (int64_t p = 0; p < k_all; p += block) {
      const int64_t k = k_all - p < block ? k_all - p : block;
      int64_t a_row;
      const REAL *a = NAME(gather_weights, T)(j, weights + first * j->weight_row + p, together, k, item->positions, room, &a_row);
      for (int64_t n0 = 0; n0 < item->positions; n0 += STRIP) {
        const int64_t n = item->positions - n0 < STRIP ? item->positions - n0 : STRIP;
        NAME(pack_positions, T)(j, image, image_stride, j->offsets + p, k, n0, n, panel);
        TERN_ISA_NAME(NAME(tern_gemm_strip, T))(together, n, k, a, a_row, 1, panel, STRIP, out + first * out_row + n0, out_row, p > 0);
      }
    }
  }
}

static void NAME(apply_chunk, T)(void *context, int64_t chunk, int thread) {
  (void)thread;
  NAME(job, T) *j = context;
  const tern_conv *c = j->c;
  const cutting *cut = &j->cut;
  const int64_t image_stride = c->channels * c->plane, image_room = (cut->merged * image_stride + TERN_CONV_SLACK + 15) / 16 * 16;
  const int64_t weights_room = c->rows <= FEW_ROWS ? 0 : gathered(cut->rows, c->k), most = c->band[0] * c->band[1] * c->axis[2].out * cut->merged;
  REAL *image = tern_pool_scratch((size_t)(image_room + weights_room + (j->direct ? 0 : cut->rows * most)) * sizeof(REAL));
  if (!image) {
    atomic_store(&j->no_memory, true);
    return;
  }
  REAL *room = image + image_room, *wide = room + weights_room;
  const int64_t end = (chunk / cut->row_blocks + 1) * cut->items_per_chunk, begin = end - cut->items_per_chunk;
  const int64_t row = chunk % cut->row_blocks * cut->rows, rows = c->rows - row < cut->rows ? c->rows - row : cut->rows;
  for (int64_t number = begin; number < end && number < cut->items; number++) {
    const NAME(item, T) item = NAME(item_of, T)(j, number);
    const bool clean = c->bands[0] * c->bands[1] == 1 && cut->merged == 1 && number > begin;
    for (int64_t i = 0; i < item.images; i++)
      TERN_ISA_NAME(NAME(tern_conv_fill, T))(c, item.n + i, item.group, 0, c->channels, item.depth, item.height, clean, image + i * image_stride);
    REAL *out = j->direct ? (REAL *)(void *)c->out.data + item.at + row * c->out.strides[1] : wide;
    const int64_t out_row = j->direct ? c->out.strides[1] : item.positions;
    const REAL *weights = j->weights + (item.group * c->rows + row) * j->weight_row;
    if (c->rows <= FEW_ROWS) NAME(multiply_few, T)(j, image, weights, item.positions, out, out_row);
    else NAME(multiply_item, T)(j, &item, image, image_stride, weights, rows, room, out, out_row);
    if (!j->direct) NAME(scatter, T)(j, wide, &item, row, rows);
  }
}

/* ---- items too few, or weights too large: panels are packed once for all, by blocks of channels; then multiplied by blocks of rows ---- */

static REAL *NAME(shared_panels, T)(const NAME(job, T) *j, int64_t item) { return j->panels + item * j->cut.panel_item; }

static void NAME(share_chunk, T)(void *context, int64_t chunk, int thread) {
  (void)thread;
  NAME(job, T) *j = context;
  const tern_conv *c = j->c;
  const cutting *cut = &j->cut;
  const int64_t channel = chunk % cut->channel_blocks * cut->channels, channels = c->channels - channel < cut->channels ? c->channels - channel : cut->channels;
  const NAME(item, T) item = NAME(item_of, T)(j, chunk / cut->channel_blocks);
  const int64_t image_stride = channels * c->plane, block = tern_gemm_k_block(c->k);
  REAL *image = tern_pool_scratch((size_t)(item.images * image_stride + TERN_CONV_SLACK) * sizeof(REAL)), *panels = NAME(shared_panels, T)(j, chunk / cut->channel_blocks);
  if (!image) {
    atomic_store(&j->no_memory, true);
    return;
  }
  for (int64_t i = 0; i < item.images; i++)
    TERN_ISA_NAME(NAME(tern_conv_fill, T))(c, item.n + i, item.group, channel, channels, item.depth, item.height, false, image + i * image_stride);
  for (int64_t p = channel * c->taps, end = p + channels * c->taps, next; p < end; p = next) {
    const int64_t b = p / block, limit = (b + 1) * block;
    next = end < limit ? end : limit;
    for (int64_t s = 0; s * STRIP < item.positions; s++) {
      const int64_t n = item.positions - s * STRIP < STRIP ? item.positions - s * STRIP : STRIP;
      NAME(pack_positions, T)(j, image, image_stride, j->offsets + (p - channel * c->taps), next - p, s * STRIP, n, panels + ((b * cut->strips + s) * block + p - b * block) * STRIP);
    }
  }
}

static void NAME(shared_chunk, T)(void *context, int64_t chunk, int thread) {
  (void)thread;
  NAME(job, T) *j = context;
  const tern_conv *c = j->c;
  const cutting *cut = &j->cut;
  const int64_t number = chunk / cut->row_blocks, block = tern_gemm_k_block(c->k);
  const int64_t row = chunk % cut->row_blocks * cut->rows, rows = c->rows - row < cut->rows ? c->rows - row : cut->rows;
  const NAME(item, T) item = NAME(item_of, T)(j, number);
  const int64_t weights_room = gathered(cut->rows, c->k);
  REAL *room = tern_pool_scratch((size_t)(weights_room + (j->direct ? 0 : cut->rows * item.positions)) * sizeof(REAL)), *wide = room + weights_room;
  if (!room) {
    atomic_store(&j->no_memory, true);
    return;
  }
  REAL *out = j->direct ? (REAL *)(void *)c->out.data + item.at + row * c->out.strides[1] : wide;
  const int64_t out_row = j->direct ? c->out.strides[1] : item.positions;
  const REAL *weights = j->weights + (item.group * c->rows + row) * j->weight_row, *panels = NAME(shared_panels, T)(j, number);
  for (int64_t p = 0; p < c->k; p += block) {
    const int64_t k = c->k - p < block ? c->k - p : block;
    int64_t a_row;
    const REAL *a = NAME(gather_weights, T)(j, weights + p, rows, k, item.positions, room, &a_row);
    for (int64_t n0 = 0; n0 < item.positions; n0 += STRIP)
      TERN_ISA_NAME(NAME(tern_gemm_strip, T))(rows, item.positions - n0 < STRIP ? item.positions - n0 : STRIP, k, a, a_row, 1, panels + p * cut->strips * STRIP + n0 * block, STRIP,
                                              out + n0, out_row, p > 0);
  }
  if (!j->direct) NAME(scatter, T)(j, wide, &item, row, rows);
}

static tern_status NAME(apply, T)(tern_conv *c, const cutting *cut, void *scratch) {
  NAME(job, T) j = {.c = c, .offsets = scratch, .cut = *cut, .positions = c->band[0] * c->band[1] * c->axis[2].out};
  TERN_ISA_NAME(tern_conv_offsets)(c, c->channels, scratch);
  REAL *room = (REAL *)(void *)((char *)scratch + offsets_bytes(c));
  if (weights_are_ready(c, DTYPE)) {
    j.weights = (const REAL *)(const void *)c->weights;
    j.weight_row = c->weight_row;
  } else {
    j.weight_row = prepared_row(c->k);
    j.weights = j.prepared = room;
    room += c->groups * c->rows * j.weight_row;
    tern_pool_run(c->groups * tern_conv_ceil(c->rows, PREPARE_ROWS), NAME(prepare_chunk, T), &j);
  }
  j.panels = room;
  const int64_t *strides = c->out.strides;
  j.direct = cut->merged == 1 && c->out.dtype == DTYPE && strides[4] == 1 && strides[3] == c->axis[2].out && strides[2] == strides[3] * c->axis[1].out;
  if (cut->shared) {
    tern_pool_run(cut->items * cut->channel_blocks, NAME(share_chunk, T), &j);
    if (!atomic_load(&j.no_memory)) tern_pool_run(cut->items * cut->row_blocks, NAME(shared_chunk, T), &j);
  } else {
    tern_pool_run(tern_conv_ceil(cut->items, cut->items_per_chunk) * cut->row_blocks, NAME(apply_chunk, T), &j);
  }
  return atomic_load(&j.no_memory) ? tern_error_new(TERN_OUT_OF_MEMORY, "convolution: the host has no memory for a working image of %lld elements", (long long)(c->channels * c->plane)) : NULL;
}

#undef NAME_
#undef NAME
#undef VECTOR
#undef LANES
#undef DO
#undef STRIP
