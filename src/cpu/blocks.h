/* blocks: the block interpreter's instructions, the contract between the planner and src/cpu/kernels/blocks_*.c (one machine per instruction set).
 *
 * A fused group runs over blocks of consecutive elements of its iteration space, short enough to stay in the first-level cache. A register is a buffer
 * of one block in some dtype; an instruction is a C function from registers to a register. f16 and bf16 live in registers as f32, rounded after every operation; every
 * other dtype as itself, bool as bytes 0 and 1. An instruction may write over a register it reads (element i is read before it is written).
 *
 * A chain is a super-instruction: several f32 operations, each on the result of the one before, with a few vectors of elements kept in the processor's registers from
 * the first to the last. What a chain computes is what its operations would one by one.
 *
 * Every element's result depends on that element alone, whatever the block's length: that is why fused and unfused programs agree bit for bit. */
#ifndef TERN_BLOCKS_H
#define TERN_BLOCKS_H
#include "cpu.h"

enum {
  TERN_BLOCK_SEGMENT = 1024, /* reductions along a row are cut into segments of this many elements */
  TERN_BLOCK_STEP = 16,      /* reductions down columns add this many rows, then add that sum to the next level's, */
  TERN_BLOCK_TALL = 256,     /* and end after this many; what the pieces give is reduced in turn */
};

typedef void (*tern_block_function)(void *out, const void *a, const void *b, const void *c, int64_t n);

/* An operand that is not simply consecutive in memory: element number i of the iteration space is at the sum over dims of index * stride, in elements. */
typedef struct tern_block_walk {
  int32_t rank;
  uint32_t element; /* bytes: 1, 2, 4, 8, 16 */
  int64_t dims[TERN_MAX_RANK], strides[TERN_MAX_RANK];
} tern_block_walk;

/* One step of a chain. x is the chain's value, y the operand: register `reg`, or its first element where `scalar`. */
typedef enum tern_chain_kind {
  TERN_CHAIN_LOAD,          /* x = y */
  TERN_CHAIN_ADD,           /* x + y */
  TERN_CHAIN_SUBTRACT,      /* x - y */
  TERN_CHAIN_SUBTRACT_FROM, /* y - x */
  TERN_CHAIN_MULTIPLY,      /* x * y */
  TERN_CHAIN_DIVIDE,        /* x / y */
  TERN_CHAIN_DIVIDE_INTO,   /* y / x */
  TERN_CHAIN_MAXIMUM,       /* NaN wins in both */
  TERN_CHAIN_MINIMUM,
  TERN_CHAIN_SQUARE,        /* x * x */
  TERN_CHAIN_SQRT,
  TERN_CHAIN_NEGATE,
  TERN_CHAIN_ABS,
  TERN_CHAIN_STORE,         /* register `reg` = x, which stays */
} tern_chain_kind;
typedef struct tern_chain_step {
  uint8_t kind; /* tern_chain_kind */
  bool scalar;
  uint16_t reg;
} tern_chain_step;

typedef struct tern_block_machine {
  /* Elementwise operations by the dtype of their (second, for select the first data) operand; NULL where ops.def does not define them. */
  tern_block_function operation[TERN_OP_COUNT][TERN_DTYPE_COUNT];
  tern_block_function compare[TERN_GE + 1][TERN_DTYPE_COUNT];
  /* From memory or register to register or memory; [f16][f32] loads, [f32][f16] stores. */
  tern_block_function convert[TERN_DTYPE_COUNT][TERN_DTYPE_COUNT];
  tern_block_function select[17];     /* by element size; a: condition bytes */
  tern_block_function copy_block[17]; /* by element size */
  tern_block_function round[TERN_DTYPE_COUNT]; /* f32 -> f32 with the precision of f16 or bf16 */

  /* The steps, the first of which loads, over n elements of the registers. Element i of a register is read before and after it is stored in the order of the steps. */
  void (*chain)(const tern_chain_step *steps, int32_t n_steps, char *const *registers, int64_t n);

  /* out[0..n) = elements start..start+n of the walk. */
  void (*gather)(const tern_block_walk *walk, const char *base, int64_t start, int64_t n, void *out);
  void (*scatter)(const tern_block_walk *walk, char *base, int64_t start, int64_t n, const void *in);
  void (*iota)(const tern_block_walk *walk, tern_dtype dtype, int64_t offset, int64_t start, int64_t n, void *out);
  void (*fill)(size_t element, const void *value, int64_t n, void *out);
  /* One array onto another of the same dims, any strides in `in`, positive ones in `out`; serial. */
  void (*copy)(const tern_cpu_view *in, const tern_cpu_view *out);

  /* out[row] = reduction of the `length` <= TERN_BLOCK_SEGMENT elements of each of `rows` consecutive rows: element i goes to lane i % 64, lanes are folded
   * in halves. */
  void (*reduce_rows[TERN_ANY + 1][TERN_DTYPE_COUNT])(void *out, const void *x, int64_t rows, int64_t length);
  /* sum[c] = sum[c] + x[0][c] + x[1][c] ...: in this order. `fresh`: start from x[0]. */
  void (*reduce_columns[TERN_ANY + 1][TERN_DTYPE_COUNT])(void *sum, const void *x, int64_t rows, int64_t columns, bool fresh);
} tern_block_machine;

/* The register dtype of a memory dtype. */
static inline tern_dtype tern_block_dtype(tern_dtype dtype) { return dtype == TERN_F16 || dtype == TERN_BF16 ? TERN_F32 : dtype; }

#endif
