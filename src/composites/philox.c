/* Philox4x32-10 as operations on u32 and u64 arrays: src/rng/philox.h, whole blocks at a time. */
#include "../rng/philox.h"
#include "composites.h"

/* The low and the high 32 bits of a u64 array, as u32. */
static void split(tern_program *p, tern_value x, tern_value *low, tern_value *high) {
  tern_value mask = tern_constant_int(p, TERN_U64, 0, NULL, 0xFFFFFFFF), half = tern_constant_int(p, TERN_U64, 0, NULL, 32);
  *low = tern_convert(p, tern_and(p, x, mask), TERN_U32);
  *high = tern_convert(p, tern_shift_right(p, x, half), TERN_U32);
}

static void multiply_wide(tern_program *p, tern_value x, uint32_t factor, tern_value *low, tern_value *high) {
  split(p, tern_multiply(p, tern_convert(p, x, TERN_U64), tern_constant_int(p, TERN_U64, 0, NULL, factor)), low, high);
}

static tern_value add_word(tern_program *p, tern_value x, uint32_t word) { return tern_add(p, x, tern_constant_int(p, TERN_U32, 0, NULL, word)); }

void tern_decompose_philox(const tern_decomposition *d) {
  tern_program *p = d->p;
  int64_t n = tern_dims_count(d->results[0].rank, d->results[0].dims), blocks = (n + 3) / 4;
  if (n == 0) {
    d->out[0] = tern_part_zeros(d, 0);
    return;
  }
  tern_value words[4], key[2];
  split(p, tern_bitcast(p, d->operands[0], TERN_U64), &key[0], &key[1]);
  split(p, tern_add(p, tern_iota(p, TERN_U64, 1, &blocks, 0), tern_bitcast(p, d->operands[1], TERN_U64)), &words[0], &words[1]);
  words[2] = words[3] = tern_constant_int(p, TERN_U32, 1, &blocks, 0);
  for (int round = 0; round < TERN_PHILOX_ROUNDS; round++) {
    tern_value low0, high0, low1, high1;
    multiply_wide(p, words[0], TERN_PHILOX_M0, &low0, &high0);
    multiply_wide(p, words[2], TERN_PHILOX_M1, &low1, &high1);
    words[0] = tern_xor(p, tern_xor(p, high1, words[1]), key[0]);
    words[2] = tern_xor(p, tern_xor(p, high0, words[3]), key[1]);
    words[1] = low1;
    words[3] = low0;
    key[0] = add_word(p, key[0], TERN_PHILOX_W0);
    key[1] = add_word(p, key[1], TERN_PHILOX_W1);
  }
  for (int i = 0; i < 4; i++) words[i] = tern_reshape(p, words[i], 2, (int64_t[]){blocks, 1});
  tern_value flat = tern_reshape(p, tern_concatenate(p, 4, words, 1), 1, (int64_t[]){4 * blocks});
  tern_part_result(d, 0, tern_slice(p, flat, (int64_t[]){0}, &n, (int64_t[]){1}));
}
