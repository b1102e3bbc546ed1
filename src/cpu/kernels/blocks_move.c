/* The block interpreter's moves: loading operands that are not consecutive, storing results that are not, counting, filling, and copying one array onto
 * another. Called by src/cpu/execute.c. They depend on the size of an element only. */
#include "blocks_parts.h"

typedef struct { uint64_t low, high; } pair16;
enum { TILE = 16, PANEL = 256 }; /* elements: of a side of the square that a transposing copy moves at once; lines it works on */

/* Where a walk stands: the index of every dimension and the offset of the innermost row's start. */
typedef struct cursor {
  int64_t index[TERN_MAX_RANK];
  int64_t row; /* offset of the current innermost row */
} cursor;

static inline int64_t cursor_set(cursor *c, const tern_block_walk *w, int64_t start) {
  c->row = 0;
  for (int d = w->rank - 1; d >= 0; d--) {
    c->index[d] = start % w->dims[d];
    start /= w->dims[d];
    if (d < w->rank - 1) c->row += c->index[d] * w->strides[d];
  }
  return c->index[w->rank - 1];
}
static inline void cursor_next_row(cursor *c, const tern_block_walk *w) {
  for (int d = w->rank - 2; d >= 0; d--) {
    c->row += w->strides[d];
    if (++c->index[d] < w->dims[d]) return;
    c->row -= w->dims[d] * w->strides[d];
    c->index[d] = 0;
  }
}

#define MOVES(TYPE, size)                                                                                               \
  static void gather_##size(const tern_block_walk *w, const char *base, int64_t start, int64_t n, TYPE *out) {          \
    cursor c;                                                                                                           \
    const TYPE *in = (const TYPE *)(const void *)base;                                                                  \
    int64_t at = cursor_set(&c, w, start), inner = w->dims[w->rank - 1], stride = w->strides[w->rank - 1];              \
    for (TYPE *end = out + n; out < end; at = 0, cursor_next_row(&c, w)) {                                              \
      int64_t run = inner - at < end - out ? inner - at : end - out;                                                    \
      const TYPE *p = in + c.row + at * stride;                                                                         \
      if (stride == 1)                                                                                                  \
        for (int64_t i = 0; i < run; i++) out[i] = p[i];                                                                \
      else if (stride == 0)                                                                                             \
        for (int64_t i = 0; i < run; i++) out[i] = p[0];                                                                \
      else                                                                                                              \
        for (int64_t i = 0; i < run; i++) out[i] = p[i * stride];                                                       \
      out += run;                                                                                                       \
    }                                                                                                                   \
  }                                                                                                                     \
  static void scatter_##size(const tern_block_walk *w, char *base, int64_t start, int64_t n, const TYPE *in) {          \
    cursor c;                                                                                                           \
    TYPE *out = (TYPE *)(void *)base;                                                                                   \
    int64_t at = cursor_set(&c, w, start), inner = w->dims[w->rank - 1], stride = w->strides[w->rank - 1];              \
    for (const TYPE *end = in + n; in < end; at = 0, cursor_next_row(&c, w)) {                                          \
      int64_t run = inner - at < end - in ? inner - at : end - in;                                                      \
      TYPE *p = out + c.row + at * stride;                                                                              \
      if (stride == 1)                                                                                                  \
        memcpy(p, in, (size_t)run * sizeof *p);                                                                         \
      else                                                                                                              \
        for (int64_t i = 0; i < run; i++) p[i * stride] = in[i];                                                        \
      in += run;                                                                                                        \
    }                                                                                                                   \
  }                                                                                                                     \
  /* out[a * out_a + b] = in[a + b * in_b] for as x bs elements, at most TILE each: read in lines, written in lines. */   \
  static void square_##size(TYPE *out, int64_t out_a, const TYPE *in, int64_t in_b, int64_t as, int64_t bs) {           \
    TYPE square[TILE][TILE];                                                                                            \
    if (as < TILE || bs < TILE) {                                                                                       \
      for (int64_t a = 0; a < as; a++)                                                                                  \
        for (int64_t b = 0; b < bs; b++) out[a * out_a + b] = in[a + b * in_b];                                         \
      return;                                                                                                           \
    }                                                                                                                   \
    for (int b = 0; b < TILE; b++)                                                                                      \
      for (int a = 0; a < TILE; a++) square[a][b] = in[b * in_b + a];                                                   \
    for (int a = 0; a < TILE; a++) memcpy(out + a * out_a, square[a], sizeof square[a]);                                \
  }                                                                                                                     \
  /* PANEL lines of the result at a time: each is on a page of its own, and the processor knows only so many pages. */  \
  static void transpose_##size(TYPE *out, int64_t out_a, const TYPE *in, int64_t in_b, int64_t n_a, int64_t n_b) {      \
    for (int64_t panel = 0; panel < n_a; panel += PANEL) {                                                              \
      const int64_t end = n_a - panel < PANEL ? n_a : panel + PANEL;                                                    \
      for (int64_t b = 0; b < n_b; b += TILE)                                                                           \
        for (int64_t a = panel; a < end; a += TILE)                                                                     \
          square_##size(out + a * out_a + b, out_a, in + a + b * in_b, in_b, end - a < TILE ? end - a : TILE, n_b - b < TILE ? n_b - b : TILE); \
    }                                                                                                                   \
  }                                                                                                                     \
  static void strided_##size(TYPE *out, int64_t to, const TYPE *in, int64_t from, int64_t n) {                          \
    for (int64_t i = 0; i < n; i++) out[i * to] = in[i * from];                                                         \
  }                                                                                                                     \
  static void fill_##size(TYPE *out, const void *value, int64_t n) {                                                    \
    TYPE v;                                                                                                             \
    memcpy(&v, value, sizeof v);                                                                                        \
    for (int64_t i = 0; i < n; i++) out[i] = v;                                                                         \
  }
MOVES(uint8_t, 1)
MOVES(uint16_t, 2)
MOVES(uint32_t, 4)
MOVES(uint64_t, 8)
MOVES(pair16, 16)

/* Calls name_<size> with the arguments. */
#define BY_SIZE(bytes, name, ...)                                 \
  do {                                                            \
    if ((bytes) == 4) name##_4(__VA_ARGS__);                      \
    else if ((bytes) == 8) name##_8(__VA_ARGS__);                 \
    else if ((bytes) == 2) name##_2(__VA_ARGS__);                 \
    else if ((bytes) == 1) name##_1(__VA_ARGS__);                 \
    else name##_16(__VA_ARGS__);                                  \
  } while (0)

static void gather(const tern_block_walk *w, const char *base, int64_t start, int64_t n, void *out) { BY_SIZE(w->element, gather, w, base, start, n, out); }
static void scatter(const tern_block_walk *w, char *base, int64_t start, int64_t n, const void *in) { BY_SIZE(w->element, scatter, w, base, start, n, in); }
static void fill(size_t element, const void *value, int64_t n, void *out) { BY_SIZE(element, fill, out, value, n); }

static const tern_block_machine *this_machine;

/* The "element" of an iota at some offset is that offset itself. */
static void iota(const tern_block_walk *w, tern_dtype dtype, int64_t offset, int64_t start, int64_t n, void *out) {
  enum { PIECE = 256 };
  int64_t values[PIECE], filled = 0;
  cursor c;
  int64_t at = cursor_set(&c, w, start), inner = w->dims[w->rank - 1], stride = w->strides[w->rank - 1];
  char *o = out;
  while (n > 0) {
    int64_t run = inner - at < n ? inner - at : n;
    if (run > PIECE - filled) run = PIECE - filled;
    int64_t first = offset + c.row + at * stride;
    for (int64_t i = 0; i < run; i++) values[filled + i] = first + i * stride;
    filled += run;
    at += run;
    n -= run;
    if (at == inner) {
      at = 0;
      cursor_next_row(&c, w);
    }
    if (filled == PIECE || n == 0) {
      this_machine->convert[TERN_I64][dtype](o, values, NULL, NULL, filled);
      o += (size_t)filled * tern_dtype_size(dtype);
      filled = 0;
    }
  }
}

/* ---- one array onto another ---- */

typedef struct copy_shape {
  int rank;
  int64_t dims[TERN_MAX_RANK], from[TERN_MAX_RANK], to[TERN_MAX_RANK];
} copy_shape;

/* Sorts by the stride in `out` (largest first) and merges what is consecutive in both. */
static void copy_shape_make(copy_shape *s, const tern_cpu_view *in, const tern_cpu_view *out) {
  s->rank = 0;
  for (int d = 0; d < out->rank; d++) {
    if (out->dims[d] == 1) continue;
    int at = s->rank++;
    for (; at > 0 && s->to[at - 1] < out->strides[d]; at--) {
      s->dims[at] = s->dims[at - 1];
      s->from[at] = s->from[at - 1];
      s->to[at] = s->to[at - 1];
    }
    s->dims[at] = out->dims[d];
    s->from[at] = in->strides[d];
    s->to[at] = out->strides[d];
  }
  int kept = 0;
  for (int d = 1; d < s->rank; d++) {
    if (s->from[kept] == s->from[d] * s->dims[d] && s->to[kept] == s->to[d] * s->dims[d]) {
      s->dims[kept] *= s->dims[d];
    } else {
      kept++;
      s->dims[kept] = s->dims[d];
    }
    s->from[kept] = s->from[d];
    s->to[kept] = s->to[d];
  }
  if (s->rank) s->rank = kept + 1;
}

static void copy(const tern_cpu_view *in, const tern_cpu_view *out) {
  size_t element = tern_dtype_size(out->dtype);
  copy_shape s;
  for (int d = 0; d < out->rank; d++)
    if (out->dims[d] == 0) return;
  copy_shape_make(&s, in, out);
  if (s.rank == 0) {
    memcpy(out->data, in->data, element);
    return;
  }
  int inner = s.rank - 1, across = -1;
  if (s.to[inner] == 1 && s.from[inner] != 1 && s.from[inner] != 0)
    for (int d = 0; d < inner; d++)
      if (s.from[d] == 1 && s.dims[d] >= 4) across = d;
  int64_t outer = 1, index[TERN_MAX_RANK] = {0}, from = 0, to = 0;
  for (int d = 0; d < inner; d++)
    if (d != across) outer *= s.dims[d];
  for (int64_t k = 0; k < outer; k++) {
    char *o = out->data + to * (int64_t)element;
    const char *p = in->data + from * (int64_t)element;
    if (across >= 0)
      BY_SIZE(element, transpose, (void *)o, s.to[across], (const void *)p, s.from[inner], s.dims[across], s.dims[inner]);
    else if (s.to[inner] == 1 && s.from[inner] == 1)
      memcpy(o, p, (size_t)s.dims[inner] * element);
    else if (s.to[inner] == 1 && s.from[inner] == 0)
      BY_SIZE(element, fill, (void *)o, p, s.dims[inner]);
    else
      BY_SIZE(element, strided, (void *)o, s.to[inner], (const void *)p, s.from[inner], s.dims[inner]);
    for (int d = inner - 1; d >= 0; d--) {
      if (d == across) continue;
      from += s.from[d];
      to += s.to[d];
      if (++index[d] < s.dims[d]) break;
      from -= s.dims[d] * s.from[d];
      to -= s.dims[d] * s.to[d];
      index[d] = 0;
    }
  }
}

void TERN_ISA_NAME(tern_block_moves)(tern_block_machine *machine) {
  machine->gather = gather;
  machine->scatter = scatter;
  machine->iota = iota;
  machine->fill = fill;
  machine->copy = copy;
  this_machine = machine;
}
