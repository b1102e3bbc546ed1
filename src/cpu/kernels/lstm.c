/* An LSTM and its gradient, step by step. A step's product and what follows it are one pass: a chunk makes all four gates of one vector of hidden units for some samples, and with
 * them the units' cells and states; the gradient's chunk makes two vectors' gradients of the states and with them those of their gates. Weights are packed once for all steps.
 *
 * Sums run over k in order, whatever the cut. The steps follow one another; chunks of a step are independent. */
#include "kernels.h"
#include "math.h"
#include "vector.h"

enum {
  LANES = VF32_LANES,
  MANY_REGISTERS = LANES == 16,         /* AVX-512 has 32 vectors, others 16 */
  ROWS = MANY_REGISTERS ? 6 : 3,        /* samples at once, times four gates */
  GRAD_ROWS = MANY_REGISTERS ? 12 : 6,  /* samples at once, times two vectors */
  SAMPLES = 48,                         /* of a chunk: a multiple of both */
};
#define FOR(i, n) _Pragma("GCC unroll 12") for (int i = 0; i < (n); i++)

typedef struct lstm_job {
  int64_t steps, batch, hidden, t;  /* t: the step at hand, in time */
  int64_t slices, sample_blocks;
  float *packed;
  /* forward */
  const float *bias; /* [4 H], or NULL */
  const float *gates, *w, *hidden_before, *cell_before; /* of this step: [B, H] */
  float *states, *cells, *activated;                    /* of this step */
  /* gradient; NULL: none */
  const float *gstates, *ghidden, *before_gates;        /* before_gates: [B, 4 H], the gradients of the step that was done before, whose product with w is added */
  float *ggates, *gcell, *ghidden_out;                  /* ghidden_out: the product is all that is left to do */
  const float *gcell_in;                                /* where it begins */
} lstm_job;

static vf32 load_units(const float *p, int64_t units) { return units >= LANES ? vf32_load(p) : vf32_load_n(p, units, 0.0f); }
static void store_units(float *p, int64_t units, vf32 v) {
  if (units >= LANES) vf32_store(p, v);
  else vf32_store_n(p, units, v);
}
static int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }
static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

/* ---- forward ---- */

/* packed[slice][k][gate][lane] = w[gate H + slice LANES + lane][k] */
static void pack_forward(void *context, int64_t slice, int thread) {
  (void)thread;
  const lstm_job *job = context;
  const int64_t H = job->hidden, units = least(LANES, H - slice * LANES);
  float *out = job->packed + slice * H * 4 * LANES;
  memset(out, 0, (size_t)(H * 4 * LANES) * sizeof *out);
  for (int64_t gate = 0; gate < 4; gate++)
    for (int64_t lane = 0; lane < units; lane++) {
      const float *row = job->w + (gate * H + slice * LANES + lane) * H;
      for (int64_t k = 0; k < H; k++) out[(k * 4 + gate) * LANES + lane] = row[k];
    }
}

TERN_INLINE void forward_rows(const lstm_job *job, int64_t slice, int64_t sample, const int rows) {
  const int64_t H = job->hidden, unit = slice * LANES, units = H - unit;
  const float *w = job->packed + slice * H * 4 * LANES, *h = job->hidden_before + sample * H;
  vf32 sum[ROWS][4];
  FOR(r, rows) FOR(g, 4) sum[r][g] = vf32_splat(0.0f);
  for (int64_t k = 0; k < H; k++, w += 4 * LANES) {
    vf32 column[4];
    FOR(g, 4) column[g] = vf32_load(w + g * LANES);
    FOR(r, rows) {
      const vf32 x = vf32_splat(h[r * H + k]);
      FOR(g, 4) sum[r][g] = vf32_fma(x, column[g], sum[r][g]);
    }
  }
  FOR(r, rows) {
    const int64_t at = (sample + r) * H + unit, gates_at = (sample + r) * 4 * H + unit;
    vf32 gate[4];
    FOR(g, 4) gate[g] = load_units(job->gates + gates_at + g * H, units) + (job->bias ? sum[r][g] + load_units(job->bias + g * H + unit, units) : sum[r][g]);
    gate[0] = tern_v_logistic(gate[0]);
    gate[1] = tern_v_logistic(gate[1]);
    gate[2] = tern_v_tanh(gate[2]);
    gate[3] = tern_v_logistic(gate[3]);
    const vf32 cell = gate[1] * load_units(job->cell_before + at, units) + gate[0] * gate[2];
    FOR(g, 4) store_units(job->activated + gates_at + g * H, units, gate[g]);
    store_units(job->cells + at, units, cell);
    store_units(job->states + at, units, gate[3] * tern_v_tanh(cell));
  }
}

static void forward_chunk(void *context, int64_t chunk, int thread) {
  (void)thread;
  const lstm_job *job = context;
  const int64_t slice = chunk / job->sample_blocks, first = chunk % job->sample_blocks * SAMPLES, end = least(job->batch, first + SAMPLES);
  for (int64_t sample = first; sample < end;) {
    const int64_t left = end - sample;
    if (left >= ROWS) forward_rows(job, slice, sample, ROWS), sample += ROWS;
    else if (left >= 4 && ROWS > 4) forward_rows(job, slice, sample, ROWS > 4 ? 4 : 1), sample += 4;
    else if (left >= 2) forward_rows(job, slice, sample, 2), sample += 2;
    else forward_rows(job, slice, sample, 1), sample += 1;
  }
}

/* ---- gradient ---- */

/* packed[slice][k][2][lane] = w[k][slice 2 LANES + ...] */
static void pack_gradient(void *context, int64_t slice, int thread) {
  (void)thread;
  const lstm_job *job = context;
  const int64_t H = job->hidden, units = least(2 * LANES, H - slice * 2 * LANES);
  float *out = job->packed + slice * 4 * H * 2 * LANES;
  for (int64_t k = 0; k < 4 * H; k++, out += 2 * LANES) {
    memset(out, 0, 2 * LANES * sizeof *out);
    memcpy(out, job->w + k * H + slice * 2 * LANES, (size_t)units * sizeof *out);
  }
}

/* The gradients of one vector of units of a sample, given that of their states. */
TERN_INLINE void gradient_of_units(const lstm_job *job, int64_t sample, int64_t unit, vf32 gh) {
  const int64_t H = job->hidden, units = H - unit, at = sample * H + unit, gates_at = sample * 4 * H + unit;
  if (job->ghidden_out) {
    store_units(job->ghidden_out + at, units, gh);
    return;
  }
  const vf32 one = vf32_splat(1.0f), squashed = tern_v_tanh(load_units(job->cells + at, units));
  vf32 gate[4];
  FOR(g, 4) gate[g] = load_units(job->activated + gates_at + g * H, units);
  if (job->gstates) gh = gh + load_units(job->gstates + at, units);
  vf32 gc = gh * gate[3] * (one - squashed * squashed);
  if (job->gcell_in) gc = load_units(job->gcell_in + at, units) + gc;
  store_units(job->ggates + gates_at, units, gc * gate[2] * (gate[0] * (one - gate[0])));
  store_units(job->ggates + gates_at + H, units, gc * load_units(job->cell_before + at, units) * (gate[1] * (one - gate[1])));
  store_units(job->ggates + gates_at + 2 * H, units, gc * gate[0] * (one - gate[2] * gate[2]));
  store_units(job->ggates + gates_at + 3 * H, units, gh * squashed * (gate[3] * (one - gate[3])));
  store_units(job->gcell + at, units, gc * gate[1]);
}

TERN_INLINE void gradient_rows(const lstm_job *job, int64_t slice, int64_t sample, const int rows) {
  const int64_t H = job->hidden, unit = slice * 2 * LANES;
  vf32 sum[GRAD_ROWS][2];
  FOR(r, rows) FOR(v, 2) sum[r][v] = vf32_splat(0.0f);
  if (job->before_gates) {
    const float *w = job->packed + slice * 4 * H * 2 * LANES, *g = job->before_gates + sample * 4 * H;
    for (int64_t k = 0; k < 4 * H; k++, w += 2 * LANES) {
      const vf32 low = vf32_load(w), high = vf32_load(w + LANES);
      FOR(r, rows) {
        const vf32 x = vf32_splat(g[r * 4 * H + k]);
        sum[r][0] = vf32_fma(x, low, sum[r][0]);
        sum[r][1] = vf32_fma(x, high, sum[r][1]);
      }
    }
  }
  FOR(r, rows) FOR(v, 2) {
    const int64_t from = unit + v * LANES;
    if (from >= H) continue;
    vf32 gh = sum[r][v];
    if (job->ghidden) gh = gh + load_units(job->ghidden + (sample + r) * H + from, H - from);
    gradient_of_units(job, sample + r, from, gh);
  }
}

static void gradient_chunk(void *context, int64_t chunk, int thread) {
  (void)thread;
  const lstm_job *job = context;
  const int64_t slice = chunk / job->sample_blocks, first = chunk % job->sample_blocks * SAMPLES, end = least(job->batch, first + SAMPLES);
  for (int64_t sample = first; sample < end;) {
    const int64_t left = end - sample;
    if (left >= GRAD_ROWS) gradient_rows(job, slice, sample, GRAD_ROWS), sample += GRAD_ROWS;
    else if (left >= 8 && GRAD_ROWS > 8) gradient_rows(job, slice, sample, GRAD_ROWS > 8 ? 8 : 1), sample += 8;
    else if (left >= 4) gradient_rows(job, slice, sample, 4), sample += 4;
    else if (left >= 2) gradient_rows(job, slice, sample, 2), sample += 2;
    else gradient_rows(job, slice, sample, 1), sample += 1;
  }
}

/* ---- the kernels ---- */

static size_t packed_bytes(int64_t hidden) { return (size_t)(ceil_div(hidden, 2 * LANES) * 2 * LANES * 4 * hidden) * sizeof(float); }
static size_t forward_scratch(const tern_op *op, const tern_cpu_view *in, const tern_cpu_view *out) {
  (void)op, (void)out;
  return packed_bytes(in[1].dims[1]);
}
static size_t gradient_scratch(const tern_op *op, const tern_cpu_view *in, const tern_cpu_view *out) {
  (void)op, (void)out;
  return packed_bytes(in[6].dims[1]);
}

static tern_status forward_run(const tern_op *op, const tern_cpu_view *in, const tern_cpu_view *out, tern_kernel_context *context) {
  const int64_t T = in[0].dims[0], B = in[0].dims[1], H = in[1].dims[1];
  const bool reverse = op->attrs->ints[0] != 0;
  lstm_job job = {.steps = T, .batch = B, .hidden = H, .slices = ceil_div(H, LANES), .sample_blocks = ceil_div(B, SAMPLES), .packed = (float *)context->scratch,
                  .w = (const float *)in[1].data, .bias = (const float *)in[2].data, .hidden_before = (const float *)in[3].data, .cell_before = (const float *)in[4].data};
  if (!T || !B || !H) return NULL;
  tern_pool_run(job.slices, pack_forward, &job);
  for (int64_t s = 0; s < T; s++) {
    const int64_t t = reverse ? T - 1 - s : s;
    job.gates = (const float *)in[0].data + t * B * 4 * H;
    job.states = (float *)out[0].data + t * B * H;
    job.cells = (float *)out[1].data + t * B * H;
    job.activated = (float *)out[2].data + t * B * 4 * H;
    tern_pool_run(job.slices * job.sample_blocks, forward_chunk, &job);
    job.hidden_before = job.states;
    job.cell_before = job.cells;
  }
  return NULL;
}

/* At no steps, what comes in goes out. */
static void pass_on(const tern_cpu_view *in, const tern_cpu_view *out, int64_t n) {
  if (in->data) memcpy(out->data, in->data, (size_t)n * sizeof(float));
  else memset(out->data, 0, (size_t)n * sizeof(float));
}

static tern_status gradient_run(const tern_op *op, const tern_cpu_view *in, const tern_cpu_view *out, tern_kernel_context *context) {
  const int64_t T = in[3].dims[0], B = in[3].dims[1], H = in[6].dims[1];
  const bool reverse = op->attrs->ints[0] != 0;
  lstm_job job = {.steps = T, .batch = B, .hidden = H, .slices = ceil_div(H, 2 * LANES), .sample_blocks = ceil_div(B, SAMPLES), .packed = (float *)context->scratch,
                  .w = (const float *)in[6].data, .ghidden = (const float *)in[1].data, .gcell_in = (const float *)in[2].data, .gcell = (float *)out[2].data};
  if (!T) pass_on(&in[1], &out[1], B * H), pass_on(&in[2], &out[2], B * H);
  if (!T || !B || !H) return NULL;
  tern_pool_run(job.slices, pack_gradient, &job);
  const int64_t chunks = job.slices * job.sample_blocks;
  for (int64_t s = T - 1; s >= 0; s--) {
    const int64_t t = reverse ? T - 1 - s : s, before = reverse ? t + 1 : t - 1;
    job.gstates = in[0].data ? (const float *)in[0].data + t * B * H : NULL;
    job.activated = (float *)in[3].data + t * B * 4 * H;
    job.cells = (float *)in[4].data + t * B * H;
    job.cell_before = s == 0 ? (const float *)in[5].data : (const float *)in[4].data + before * B * H;
    job.ggates = (float *)out[0].data + t * B * 4 * H;
    tern_pool_run(chunks, gradient_chunk, &job);
    job.before_gates = job.ggates;
    job.ghidden = NULL;
    job.gcell_in = job.gcell;
  }
  job.ghidden_out = (float *)out[1].data;
  tern_pool_run(chunks, gradient_chunk, &job);
  return NULL;
}

void TERN_ISA_NAME(tern_register_lstm)(tern_kernel *rows) {
  rows[TERN_OP_LSTM] = (tern_kernel){.run = forward_run, .scratch = forward_scratch, .dense_inputs = 0x1F};
  rows[TERN_OP_LSTM_GRAD] = (tern_kernel){.run = gradient_run, .scratch = gradient_scratch, .dense_inputs = 0x7F};
}
