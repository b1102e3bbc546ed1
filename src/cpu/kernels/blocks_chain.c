/* The block interpreter's super-instruction: a chain of f32 operations over a tile of vectors that stays in the processor's registers. Called by src/cpu/blocks_run.c.
 *
 * A tile goes through all steps before the next one begins, so that a step costs one load at most and its choice is paid for once a tile. */
#include "blocks_parts.h"
#include "vector.h"

enum { TILE = 8 };
#define UNROLL _Pragma("GCC unroll 8") for (int j = 0; j < vectors; j++)

/* One binary step: the operand is a number for all elements, or element by element. */
#define BINARY(kind, expression)                                                    \
  case kind: {                                                                      \
    if (s->scalar) {                                                                \
      const vf32 y = vf32_splat(*p);                                                \
      UNROLL { const vf32 x = v[j]; v[j] = (expression); }                          \
    } else {                                                                        \
      UNROLL { const vf32 x = v[j], y = LOAD(p + i + j * VF32_LANES); v[j] = (expression); } \
    }                                                                               \
    break;                                                                          \
  }
#define UNARY(kind, expression)                                       \
  case kind: {                                                        \
    UNROLL { const vf32 x = v[j]; v[j] = (expression); }              \
    break;                                                            \
  }
#define CHAIN_TILE                                                                                                        \
  vf32 v[TILE] = {{0}};                                                                                                   \
  for (const tern_chain_step *s = steps, *end = steps + n_steps; s < end; s++) {                                          \
    float *const p = (float *)(void *)registers[s->reg];                                                                  \
    switch ((tern_chain_kind)s->kind) {                                                                                   \
      BINARY(TERN_CHAIN_LOAD, ((void)x, y))                                                                               \
      BINARY(TERN_CHAIN_ADD, x + y)                                                                                       \
      BINARY(TERN_CHAIN_SUBTRACT, x - y)                                                                                  \
      BINARY(TERN_CHAIN_SUBTRACT_FROM, y - x)                                                                             \
      BINARY(TERN_CHAIN_MULTIPLY, x * y)                                                                                  \
      BINARY(TERN_CHAIN_DIVIDE, x / y)                                                                                    \
      BINARY(TERN_CHAIN_DIVIDE_INTO, y / x)                                                                               \
      BINARY(TERN_CHAIN_MAXIMUM, vf32_maximum(x, y))                                                                      \
      BINARY(TERN_CHAIN_MINIMUM, vf32_minimum(x, y))                                                                      \
      UNARY(TERN_CHAIN_SQUARE, x * x)                                                                                     \
      UNARY(TERN_CHAIN_SQRT, vf32_sqrt(x))                                                                                \
      UNARY(TERN_CHAIN_NEGATE, -x)                                                                                        \
      UNARY(TERN_CHAIN_ABS, vf32_abs(x))                                                                                  \
      case TERN_CHAIN_STORE: {                                                                                            \
        UNROLL STORE(p + i + j * VF32_LANES, v[j]);                                                                       \
        break;                                                                                                            \
      }                                                                                                                   \
    }                                                                                                                     \
  }

TERN_INLINE void run_tile(const tern_chain_step *steps, int32_t n_steps, char *const *registers, int64_t i, const int vectors) {
#define LOAD vf32_load
#define STORE vf32_store
  CHAIN_TILE
#undef LOAD
#undef STORE
}

/* The last elements, fewer than a vector. */
static void run_rest(const tern_chain_step *steps, int32_t n_steps, char *const *registers, int64_t i, int64_t left) {
  const int vectors = 1;
#define LOAD(p) vf32_load_n(p, left, 1.0f)
#define STORE(p, x) vf32_store_n(p, left, x)
  CHAIN_TILE
#undef LOAD
#undef STORE
}

static void run_chain(const tern_chain_step *steps, int32_t n_steps, char *const *registers, int64_t n) {
  int64_t i = 0;
  for (; i + TILE * VF32_LANES <= n; i += TILE * VF32_LANES) run_tile(steps, n_steps, registers, i, TILE);
  for (; i + VF32_LANES <= n; i += VF32_LANES) run_tile(steps, n_steps, registers, i, 1);
  if (i < n) run_rest(steps, n_steps, registers, i, n - i);
}

void TERN_ISA_NAME(tern_block_chains)(tern_block_machine *machine) { machine->chain = run_chain; }
