/* cpu: the embedded engine, backend 1. This is the room's inner contract.
 *
 * plan.c turns a program into a list of kernel calls once per program (no code is generated; planning costs microseconds); execute.c runs it. Kernels
 * are C functions over plain views, compiled once per instruction set (src/cpu/kernels/, one tern_kernel_table each); they know nothing of
 * programs beyond the one tern_op they serve. Threads come from one pool (pool.c).
 *
 * Same bits at any thread count: a kernel cuts its work by shape alone, never by the number of threads. */
#ifndef TERN_CPU_H
#define TERN_CPU_H
#include "../backend.h"

/* ---- the thread pool: one per process ---- */
typedef void (*tern_task)(void *context, int64_t chunk, int thread);
/* Runs task(context, 0..n_chunks-1), each chunk once, on the caller and the workers; chunks are handed out dynamically. Returns when all are done.
 * `thread` < tern_pool_threads() tells which scratch the chunk may use. Safe from several threads (calls take turns); a call from inside a task runs inline. */
void tern_pool_run(int64_t n_chunks, tern_task task, void *context);
int tern_pool_threads(void);
void tern_pool_set_threads(int n); /* 0: the default. Not while the pool runs. */
/* At least `bytes` of the calling thread's own scratch, 64-byte aligned, undefined contents, reused by the thread's next call: for a chunk that calls nothing
 * else which asks for it. NULL without memory. */
void *tern_pool_scratch(size_t bytes);

/* ---- views and kernels ---- */
typedef struct tern_cpu_view {
  char *data;               /* the first element */
  tern_dtype dtype;
  int32_t rank;
  int64_t dims[TERN_MAX_RANK];
  int64_t strides[TERN_MAX_RANK]; /* in elements; 0 for a broadcast, negative for a reverse */
} tern_cpu_view;

typedef struct tern_kernel_context {
  char *scratch;            /* as many bytes as the kernel's scratch() asked for; 64-byte aligned */
  int64_t failed_index;     /* set by check before it fails */
} tern_kernel_context;

typedef struct tern_kernel {
  /* in[i].data is NULL for an absent optional operand. out[i] is dense row-major unless `any_output_strides`. */
  tern_status (*run)(const tern_op *op, const tern_cpu_view *in, const tern_cpu_view *out, tern_kernel_context *context);
  /* Bytes of scratch for these shapes; NULL: none. */
  size_t (*scratch)(const tern_op *op, const tern_cpu_view *in, const tern_cpu_view *out);
  uint32_t dense_inputs;    /* bit i: operand i must be dense row-major (the planner copies it if it is not) */
  uint32_t reuse;           /* bit i: result 0 may be written over operand i (same size, dense) */
} tern_kernel;

/* One per instruction set. rows[kind].run is NULL where no kernel serves the operation directly (elementwise operations: interpret). */
typedef struct tern_kernel_table {
  const char *isa;          /* "baseline", "avx2", "avx512", "avx512_bf16", "amx", "neon" */
  tern_kernel rows[TERN_OP_COUNT];
  double (*peak)(int64_t rounds);          /* runs multiply-adds in registers; returns how many floating-point operations that were */
  const struct tern_block_machine *blocks; /* the block interpreter's instructions for this instruction set (blocks.h) */
} tern_kernel_table;

/* NULL functions where the build left a set out (TERN_BUILD_ISAS). */
__attribute__((weak)) const tern_kernel_table *tern_kernels_baseline(void);
__attribute__((weak)) const tern_kernel_table *tern_kernels_avx2(void);    /* AVX2, FMA, F16C, BMI */
__attribute__((weak)) const tern_kernel_table *tern_kernels_avx512(void);  /* AVX-512 F, BW, DQ, VL, CD and the above */
__attribute__((weak)) const tern_kernel_table *tern_kernels_avx512_bf16(void); /* AVX512-BF16 and the above */
__attribute__((weak)) const tern_kernel_table *tern_kernels_amx(void);     /* AMX-TILE, AMX-BF16 and AVX-512; the process must have asked for its state (select.c) */
__attribute__((weak)) const tern_kernel_table *tern_kernels_neon(void);    /* AArch64 */
bool tern_cpu_has_amx(void); /* asks the system for the state, once */
/* Every table that this build has and this CPU can run, the best first; TERN_MOST_ISAS at most. Gives how many. */
enum { TERN_MOST_ISAS = 8 };
int tern_kernels_all(const tern_kernel_table *tables[TERN_MOST_ISAS]);
/* The best this CPU has, or what TERN_ISA forces (an error if the CPU lacks it). Decided once. */
tern_status tern_kernels_select(const tern_kernel_table **out);

#endif
