/* Softmax, log-softmax and their gradients along any dimension; the arithmetic is in softmax_lines.h.
 *
 * Long lines of the last dimension are done one by one, in place where the dtype is the one arithmetic is done in. Every other case (other dimensions, lines
 * shorter than a few vectors) goes through tiles of lines side by side. */
#include "real.h"

enum {
  TILE = 32,             /* lines side by side: a multiple of every vector length */
  TILE_RUN = 64,         /* rows of a tile summed before they join the total */
  LINE_RUN = 1024,       /* elements of a line, likewise */
  SHORT_LINE = 32,       /* lines up to this long are cheaper side by side */
  CHUNK_ELEMENTS = 8192,
};

typedef struct softmax_job {
  const char *a, *b; /* x; or gy and y */
  char *out;
  tern_dtype dtype;
  tern_dense_lines lines;
  bool is_log, tiled;
  int64_t items, items_per_chunk; /* lines or tiles */
  char *scratch;
  size_t scratch_each;            /* bytes per thread */
} softmax_job;

#include "real_f32.h"
#include "softmax_lines.h"
#include "real_f64.h"
#include "softmax_lines.h"

static bool is_tiled(const tern_dense_lines *l) { return l->inner > 1 || l->length <= SHORT_LINE; }

/* Two rows or tiles, in cache lines of this thread's own. */
static size_t scratch_each(const tern_cpu_view *out, const tern_dense_lines *l) {
  const size_t real = out->dtype == TERN_F64 ? sizeof(double) : sizeof(float), row = (size_t)l->length * (is_tiled(l) ? TILE : 1) * real;
  return (2 * row + 63) / 64 * 64;
}

static size_t softmax_scratch(const tern_op *op, const tern_cpu_view *in, const tern_cpu_view *out) {
  (void)in;
  const tern_dense_lines l = tern_dense_lines_make(out, (int)op->attrs->ints[0]);
  return scratch_each(out, &l) * (size_t)tern_pool_threads();
}

static tern_status softmax_run(const tern_op *op, const tern_cpu_view *in, const tern_cpu_view *out, tern_kernel_context *context) {
  if (tern_view_count(out) == 0) return NULL;
  softmax_job job = {.a = in[0].data, .b = op->n_operands == 2 ? in[1].data : NULL, .out = out->data, .dtype = out->dtype,
                     .lines = tern_dense_lines_make(out, (int)op->attrs->ints[0]),
                     .is_log = op->kind == TERN_OP_LOG_SOFTMAX || op->kind == TERN_OP_LOG_SOFTMAX_GRAD, .scratch = context->scratch};
  const tern_dense_lines *l = &job.lines;
  job.scratch_each = scratch_each(out, l);
  job.tiled = is_tiled(l);
  job.items = !job.tiled ? l->outer : l->inner == 1 ? tern_ceil_div(l->outer, TILE) : l->outer * tern_ceil_div(l->inner, TILE);
  job.items_per_chunk = tern_chunk_items(l->length * (job.tiled ? TILE : 1), CHUNK_ELEMENTS);
  tern_pool_run(tern_ceil_div(job.items, job.items_per_chunk), out->dtype == TERN_F64 ? softmax_chunk_f64 : softmax_chunk_f32, &job);
  return NULL;
}

void TERN_ISA_NAME(tern_register_softmax)(tern_kernel *rows) {
  const tern_kernel forward = {.run = softmax_run, .scratch = softmax_scratch, .dense_inputs = 1u, .reuse = 1u},
                    backward = {.run = softmax_run, .scratch = softmax_scratch, .dense_inputs = 3u, .reuse = 3u};
  rows[TERN_OP_SOFTMAX] = rows[TERN_OP_LOG_SOFTMAX] = forward;
  rows[TERN_OP_SOFTMAX_GRAD] = rows[TERN_OP_LOG_SOFTMAX_GRAD] = backward;
}
