/* A 64-bit hash by 128-bit multiplication (the folded-multiply family of wyhash and its relatives). */
#include <time.h>
#include "base.h"

static uint64_t load64(const unsigned char *p) {
  uint64_t v;
  memcpy(&v, p, 8);
  return v;
}

uint64_t tern_hash_bytes(const void *data, size_t size, uint64_t seed) {
  const unsigned char *p = data;
  uint64_t a = seed ^ 0xA0761D6478BD642Full, b = ~seed ^ size;
  size_t left = size;
  for (; left >= 16; p += 16, left -= 16) {
    a = tern_hash_mix(a ^ load64(p), b);
    b = b + load64(p + 8) + 0xE7037ED1A0B428DBull;
    b = (b << 31 | b >> 33) ^ a;
  }
  uint64_t tail[2] = {0, 0};
  if (left) memcpy(tail, p, left);
  return tern_hash_mix(tern_hash_mix(a ^ tail[0], b ^ tail[1]), size ^ 0x8EBC6AF09C88C6E3ull);
}

double tern_now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}
