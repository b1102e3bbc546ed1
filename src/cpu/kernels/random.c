/* PHILOX: random words, many blocks of src/rng/philox.h at once. One lane of a vector is one block; which words come out does not depend on the split. */
#include "../../rng/philox.h"
#include "lines.h"
#include "vector.h"

enum {
  VECTORS = (VF64_LANES + 1) / 2, /* made side by side, to hide the multiplication's latency; as many as the registers hold */
  LANES = VECTORS * VF64_LANES,
  CHUNK_BLOCKS = 2048, /* blocks of one chunk */
};

typedef struct random_job {
  uint64_t seed, offset;
  uint32_t *out;
  int64_t n; /* words */
} random_job;

/* Blocks number .. number + LANES - 1 of the stream, four words each, in order. Every 64-bit lane holds one word in its lower half; what the upper halves
 * gather is ignored by the multiplication and cut off at the end. */
static void make_blocks(uint64_t seed, uint64_t number, uint32_t *restrict out) {
  const vu64 multiply0 = TERN_PHILOX_M0 + (vu64){0}, multiply1 = TERN_PHILOX_M1 + (vu64){0};
  uint64_t key0 = (uint32_t)seed, key1 = seed >> 32, first[LANES];
  vu64 w0[VECTORS], w1[VECTORS], w2[VECTORS], w3[VECTORS];
  for (int i = 0; i < LANES; i++) first[i] = number + (uint64_t)i;
  memcpy(w0, first, sizeof first);
  for (int v = 0; v < VECTORS; v++) {
    w1[v] = w0[v] >> 32;
    w2[v] = w3[v] = (vu64){0};
  }
  for (int round = 0; round < TERN_PHILOX_ROUNDS; round++) {
    for (int v = 0; v < VECTORS; v++) {
      vu64 product0 = vu64_multiply_u32(w0[v], multiply0), product1 = vu64_multiply_u32(w2[v], multiply1);
      w0[v] = (product1 >> 32) ^ w1[v] ^ key0;
      w1[v] = product1;
      w2[v] = (product0 >> 32) ^ w3[v] ^ key1;
      w3[v] = product0;
    }
    key0 += TERN_PHILOX_W0;
    key1 += TERN_PHILOX_W1;
  }
  for (int v = 0; v < VECTORS; v++) {
    vu64 low = (w0[v] & UINT32_MAX) | w1[v] << 32, high = (w2[v] & UINT32_MAX) | w3[v] << 32;
    for (int i = 0; i < VF64_LANES; i++, out += 4) memcpy(out, (uint64_t[]){low[i], high[i]}, 16);
  }
}

static void random_chunk(void *context, int64_t chunk, int thread) {
  (void)thread;
  const random_job *job = context;
  const int64_t end = tern_min_i64(job->n, (chunk + 1) * CHUNK_BLOCKS * 4);
  int64_t i = chunk * CHUNK_BLOCKS * 4;
  for (; i + LANES * 4 <= end; i += LANES * 4) make_blocks(job->seed, job->offset + (uint64_t)i / 4, job->out + i);
  if (i == end) return;
  uint32_t last[LANES * 4];
  make_blocks(job->seed, job->offset + (uint64_t)i / 4, last);
  memcpy(job->out + i, last, (size_t)(end - i) * sizeof(uint32_t));
}

static tern_status random_run(const tern_op *op, const tern_cpu_view *in, const tern_cpu_view *out, tern_kernel_context *context) {
  (void)op;
  (void)context;
  random_job job = {.out = (uint32_t *)out->data, .n = tern_view_count(out)};
  memcpy(&job.seed, in[0].data, sizeof job.seed);
  memcpy(&job.offset, in[1].data, sizeof job.offset);
  tern_pool_run(tern_ceil_div(job.n, CHUNK_BLOCKS * 4), random_chunk, &job);
  return NULL;
}

void TERN_ISA_NAME(tern_register_random)(tern_kernel *rows) { rows[TERN_OP_PHILOX] = (tern_kernel){.run = random_run}; }
