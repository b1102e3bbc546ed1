/* The padded, phase-split image of a convolution for one element type: included by conv_image.c with T, REAL and widen defined. */
#define NAME_(name, T) name##_##T
#define NAME(name, T) NAME_(name, T)

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

void TERN_ISA_NAME(NAME(tern_conv_fill, T))(const tern_conv *c, int64_t n, int64_t group, int64_t channel, int64_t channels, int64_t depth, int64_t height,
                                            REAL *image) {
  const tern_conv_axis *axis = c->axis;
  const int64_t *strides = c->source.strides;
  REAL *to = image;
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
