/* rng: Philox4x32-10, the counter-based generator behind every random number (J. Salmon, M. Moraes, R. Dror, D. Shaw: "Parallel random numbers:
 * as easy as 1, 2, 3", SC 2011).
 *
 * A stream is a 64-bit key (the user's seed). Block number n of a stream is a pure function of (key, n): four 32-bit words, so element i of an array
 * that starts at block `offset` is word i % 4 of block offset + i / 4, whichever thread, vector lane or chip makes it. The upper half of the 128-bit
 * counter stays 0. src/cpu/kernels/random.c is the same generator for many blocks at once; src/composites has it as operations for plug-ins. */
#ifndef TERN_PHILOX_H
#define TERN_PHILOX_H
#include <stdint.h>

/* The paper's constants: two multipliers and the two steps of the key schedule (the golden ratio and sqrt(3) - 1). */
#define TERN_PHILOX_M0 0xD2511F53u
#define TERN_PHILOX_M1 0xCD9E8D57u
#define TERN_PHILOX_W0 0x9E3779B9u
#define TERN_PHILOX_W1 0xBB67AE85u
enum { TERN_PHILOX_ROUNDS = 10 };

/* Replaces the counter words by the four random words of that counter. */
static inline void tern_philox_rounds(uint32_t words[4], uint32_t key0, uint32_t key1) {
  for (int round = 0; round < TERN_PHILOX_ROUNDS; round++) {
    uint64_t product0 = (uint64_t)TERN_PHILOX_M0 * words[0], product1 = (uint64_t)TERN_PHILOX_M1 * words[2];
    words[0] = (uint32_t)(product1 >> 32) ^ words[1] ^ key0;
    words[1] = (uint32_t)product1;
    words[2] = (uint32_t)(product0 >> 32) ^ words[3] ^ key1;
    words[3] = (uint32_t)product0;
    key0 += TERN_PHILOX_W0;
    key1 += TERN_PHILOX_W1;
  }
}

/* Block `number` of the stream `seed`. */
static inline void tern_philox_block(uint64_t seed, uint64_t number, uint32_t words[4]) {
  words[0] = (uint32_t)number;
  words[1] = (uint32_t)(number >> 32);
  words[2] = words[3] = 0;
  tern_philox_rounds(words, (uint32_t)seed, (uint32_t)(seed >> 32));
}

#endif
