/* The padded, phase-split image of a convolution for one element type: included by conv_image.c with T, REAL, DTYPE and widen defined. */
#define NAME_(name, T) name##_##T
#define NAME(name, T) NAME_(name, T)
#define LANES NAME(TILE_LANES, T)
#define DO(what) NAME(tile_##what, T)

/* One row: positions q in [0, n) read the source at q * scale + residue - pad, `stride` elements apart; zero outside. */
static void NAME(fill_row, T)(const tern_conv_axis *a, int64_t residue, tern_dtype dtype, const char *data, int64_t at, int64_t stride, int64_t n, REAL *to) {
  int64_t first = residue - a->pad, low = first < 0 ? (-first + a->scale - 1) / a->scale : 0;
  int64_t high = first >= a->in ? 0 : (a->in - 1 - first) / a->scale + 1;
  if (high > n) high = n;
  if (low > high) low = high = 0;
  for (int64_t q = 0; q < low; q++) to[q] = 0;
  if (a->scale * stride == 1) NAME(widen, T)(dtype, data, at + low + first, high - low, to + low);
  else NAME(gather, T)(dtype, data, at + (low * a->scale + first) * stride, a->scale * stride, high - low, to + low);
  for (int64_t q = high; q < n; q++) to[q] = 0;
}

/* The common picture: stride one, contiguous source rows of the same type. Only rows and columns inside the source are copied, over zeros. */
static void NAME(fill_plain, T)(const tern_conv *c, int64_t base, int64_t channels, int64_t depth, int64_t height, REAL *to) {
  const tern_conv_axis *axis = c->axis;
  const int64_t *strides = c->source.strides;
  int64_t start[3] = {depth - axis[0].pad, height - axis[1].pad, -axis[2].pad}, low[3], high[3];
  for (int i = 0; i < 3; i++) {
    low[i] = start[i] < 0 ? -start[i] : 0;
    high[i] = axis[i].in - start[i] < c->image[i] ? axis[i].in - start[i] : c->image[i];
    if (high[i] <= low[i]) return;
  }
  int64_t count = high[2] - low[2], whole = count / LANES * LANES;
  for (int64_t ch = 0; ch < channels; ch++)
    for (int64_t d = low[0]; d < high[0]; d++) {
      const REAL *from = (const REAL *)(const void *)c->source.data + base + ch * strides[1] + (start[0] + d) * strides[2] + (start[1] + low[1]) * strides[3] + start[2] + low[2];
      REAL *row = to + ch * c->plane + (d * c->image[1] + low[1]) * c->image[2] + low[2];
      for (int64_t h = low[1]; h < high[1]; h++, from += strides[3], row += c->image[2]) {
        if (count == LANES / 2) { /* short rows, exactly: a wider move would straddle cache lines */
          memcpy(row, from, sizeof(REAL) * (LANES / 2));
        } else if (LANES >= 16 && count == LANES / 4) {
          memcpy(row, from, sizeof(REAL) * (LANES / 4));
        } else {
          for (int64_t w = 0; w < whole; w += LANES) DO(store)(row + w, DO(load)(from + w));
          if (whole < count) DO(store_first)(row + whole, DO(load_first)(from + whole, count - whole), count - whole);
        }
      }
    }
}

void TERN_ISA_NAME(NAME(tern_conv_fill, T))(const tern_conv *c, int64_t n, int64_t group, int64_t channel, int64_t channels, int64_t depth, int64_t height,
                                            bool is_clean, REAL *image) {
  const tern_conv_axis *axis = c->axis;
  const int64_t *strides = c->source.strides;
  REAL *to = image;
  if (c->source.dtype == DTYPE && strides[4] == 1 && axis[0].scale * axis[1].scale * axis[2].scale == 1) {
    if (!is_clean) memset(image, 0, (size_t)(channels * c->plane + TERN_CONV_SLACK) * sizeof(REAL));
    NAME(fill_plain, T)(c, n * strides[0] + (group * c->channels + channel) * strides[1], channels, depth, height, image);
    return;
  }
  for (int64_t ch = 0; ch < channels; ch++) {
    int64_t base = n * strides[0] + (group * c->channels + channel + ch) * strides[1];
    for (int64_t pd = 0; pd < tern_conv_phases(&axis[0]); pd++)
      for (int64_t ph = 0; ph < tern_conv_phases(&axis[1]); ph++)
        for (int64_t pw = 0; pw < tern_conv_phases(&axis[2]); pw++)
          for (int64_t d = 0; d < c->image[0]; d++) {
            int64_t from_d = (depth + d) * axis[0].scale + pd * axis[0].dilation % axis[0].scale - axis[0].pad;
            for (int64_t h = 0; h < c->image[1]; h++, to += c->image[2]) {
              int64_t from_h = (height + h) * axis[1].scale + ph * axis[1].dilation % axis[1].scale - axis[1].pad;
              if (from_d < 0 || from_d >= axis[0].in || from_h < 0 || from_h >= axis[1].in)
                for (int64_t w = 0; w < c->image[2]; w++) to[w] = 0;
              else
                NAME(fill_row, T)(&axis[2], pw * axis[2].dilation % axis[2].scale, c->source.dtype, c->source.data, base + from_d * strides[2] + from_h * strides[3],
                                  strides[4], c->image[2], to);
            }
          }
  }
  for (int i = 0; i < TERN_CONV_SLACK; i++) to[i] = 0;
}

#undef NAME_
#undef NAME
#undef LANES
#undef DO
