/* What this instruction set can do at most: independent multiply-adds in registers, and nothing else. Called by src/cpu/limits.c. */
#include "tile.h"

enum { SUMS = 12 }; /* latency times multipliers, on every processor we know of */

/* Returns the multiply-adds done, times two. */
double TERN_ISA_NAME(tern_peak_run)(int64_t rounds) {
  tile_f32 sum[SUMS], x = tile_splat_f32(0.5f), y = tile_splat_f32(0.25f);
  float out[TILE_LANES_f32];
  TILE_UNROLL for (int i = 0; i < SUMS; i++) sum[i] = tile_splat_f32((float)i);
  for (int64_t r = 0; r < rounds; r++) /* no barrier for the compiler in here: it would put the sums in memory each round */
    TILE_UNROLL for (int i = 0; i < SUMS; i++) sum[i] = tile_fma_f32(sum[i], x, y);
  for (int i = 1; i < SUMS; i++) sum[0] = tile_fma_f32(sum[i], x, sum[0]);
  tile_store_f32(out, sum[0]);
  volatile float keep = out[0]; /* so that the loop is not dropped */
  (void)keep;
  return 2.0 * (double)rounds * SUMS * TILE_LANES_f32;
}
