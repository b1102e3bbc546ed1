/* plan: an executable of the embedded engine: a list of steps over locations. Made once by plan.c and blocks_build.c, run by execute.c, immutable. */
#ifndef TERN_CPU_PLAN_H
#define TERN_CPU_PLAN_H
#include "view.h"

/* Where an array lies. At a launch each location gets its address. */
typedef enum tern_place {
  TERN_PLACE_INPUT,     /* parameter `index` */
  TERN_PLACE_SCALAR,    /* scalar word `index` */
  TERN_PLACE_CONSTANT,  /* byte `offset` of the executable's constants */
  TERN_PLACE_SLAB,      /* byte `offset` of the launch's slab */
  TERN_PLACE_OUTPUT,    /* new memory that becomes result `index` */
} tern_place;

typedef struct tern_location {
  tern_place place;
  int32_t index;
  int64_t offset, bytes;
  int32_t first, last;  /* steps that write it first and use it last; -1: none */
  int32_t takes;        /* a location whose storage it takes over, or -1 */
} tern_location;

/* ---- groups: fused loops over blocks ---- */

typedef enum tern_source_kind {
  TERN_SOURCE_DIRECT,   /* consecutive over the whole iteration space: read where it lies */
  TERN_SOURCE_SPLAT,    /* one element: a register filled once per chunk */
  TERN_SOURCE_SCALAR,   /* one element that only chains read, as a scalar: where it lies */
  TERN_SOURCE_PERIODIC, /* repeats every row, and blocks are whole rows: a register filled once per chunk */
  TERN_SOURCE_WALK,     /* loaded block by block, or read where it lies if the block is within one consecutive row */
  TERN_SOURCE_IOTA,     /* computed from the offset */
} tern_source_kind;

typedef struct tern_source {
  tern_source_kind kind;
  int32_t location;
  tern_dtype dtype;
  tern_value root;      /* while planning: equal operands share a source */
  int64_t offset;       /* elements */
  tern_block_walk walk;
  uint16_t reg;
  int16_t last_read;    /* the last instruction that reads it */
} tern_source;

typedef struct tern_instruction {
  tern_block_function run;      /* NULL: a chain */
  uint16_t out, a, b, c;        /* of a chain: what its last step stores, three times; see blocks.h */
  int32_t first_step, n_steps;  /* of a chain */
} tern_instruction;

typedef struct tern_sink { /* an elementwise result */
  int32_t location;
  uint32_t element;     /* bytes */
  uint16_t reg;
  int16_t write;        /* the instruction that makes it */
  bool strided;         /* the iteration is permuted: stored through `walk` */
  tern_block_walk walk;
} tern_sink;

typedef struct tern_reducer {
  tern_reduction how;
  tern_dtype dtype;     /* of the register and of partial results */
  tern_dtype stored;    /* of the location */
  int32_t location;
  uint16_t reg;
} tern_reducer;

typedef enum tern_group_form { TERN_GROUP_MAP, TERN_GROUP_ROWS, TERN_GROUP_COLUMNS } tern_group_form;

typedef struct tern_group {
  tern_group_form form;
  int64_t count;             /* elements of the iteration space */
  int64_t row;               /* MAP: blocks do not cross multiples of this; ROWS: elements reduced; COLUMNS: the columns */
  int64_t block;             /* most elements of a block */
  int64_t blocks_per_row;    /* row > block: blocks of one row. COLUMNS: tiles of a row */
  int64_t n_units;           /* blocks; COLUMNS: tall pieces times tiles */
  int64_t units_per_chunk, n_chunks;
  int32_t n_sources, n_instructions, n_sinks, n_reducers, n_registers;
  tern_source *sources;
  tern_instruction *instructions;
  tern_chain_step *steps;    /* of all chains */
  int32_t n_operations;      /* instructions, chains counted by what they compute */
  tern_sink *sinks;
  tern_reducer *reducers;
  uint8_t *register_bytes;   /* per register: bytes of an element */
  int32_t *register_place;   /* per register: its buffer, in bytes per element of the block before it; -1: none */
  int64_t scratch;           /* bytes per thread */
  int64_t sums;              /* byte offset in scratch of the reducers' sums */
} tern_group;

/* ---- steps ---- */

typedef struct tern_place_view { /* a view without an address */
  int32_t location;
  tern_dtype dtype;
  int32_t rank;
  int64_t offset;            /* bytes */
  int64_t dims[TERN_MAX_RANK], strides[TERN_MAX_RANK];
} tern_place_view;

typedef struct tern_kernel_step {
  const tern_kernel *kernel;
  tern_op op;                /* its attributes are the executable's own */
  int32_t n_in, n_out;
  tern_place_view *in, *out; /* location -1: an absent operand */
  int64_t scratch;
} tern_kernel_step;

typedef struct tern_copy_step {
  tern_place_view from, to;
  int32_t pieces_dim;        /* cut along this dimension into n_chunks pieces; -1: whole */
  int64_t n_chunks;
} tern_copy_step;

typedef struct tern_fill_step {
  int32_t location;
  tern_place_view value;     /* one element */
  int64_t count;
} tern_fill_step;

typedef enum tern_step_kind { TERN_STEP_GROUP, TERN_STEP_KERNEL, TERN_STEP_COPY, TERN_STEP_FILL } tern_step_kind;

typedef struct tern_step {
  tern_step_kind kind;
  uint32_t tag;              /* of its last operation */
  int32_t n_tags;
  const uint32_t *tags;      /* of all its operations */
  union {
    tern_group *group;
    tern_kernel_step *kernel;
    tern_copy_step *copy;
    tern_fill_step *fill;
  };
} tern_step;

struct tern_executable {
  struct tern_backend_device *device;
  const tern_kernel_table *kernels;
  tern_arena arena;
  tern_step *steps;
  int32_t n_steps, cap_steps;
  tern_location *locations;
  int32_t n_locations, cap_locations;
  char *constants;           /* 16 bytes each */
  int32_t n_constants;
  int32_t n_inputs, n_scalars, n_outputs;
  int64_t *input_bytes;
  int32_t *output_location;  /* per result: the location it is handed over from */
  int64_t *output_bytes;
  int32_t *output_takes;     /* per result: the donated input whose memory it becomes, or -1 */
  int64_t slab;              /* bytes of temporaries */
  struct tern_plan_times *times;   /* with TERN_PRINT=plan: what each step took so far (plan_measure.c); else NULL */
  int64_t scratch, kernel_scratch; /* bytes of scratch: of a group, per thread; of a kernel, in all */
};

/* ---- planning a group (blocks_build.c) ---- */

/* What the builder needs to know of the program around the group. */
typedef struct tern_group_input {
  const tern_program *program;
  const tern_value_view *views;
  const tern_block_machine *machine;
  tern_arena *arena;
  int32_t n_ops;
  const int32_t *ops;        /* the group's operations, in program order */
  const int32_t *step_of;    /* per operation: its step ... */
  int32_t step;              /* ... and this one */
  const int32_t *location;   /* per value: where its root is stored, or -1 */
} tern_group_input;

/* Instructions and operands; reductions store to location[result]. */
tern_status tern_group_build(const tern_group_input *input, tern_group **out);
/* blocks_chain.c: makes chains of instructions. Called last by tern_group_build. */
tern_status tern_group_make_chains(tern_group *group, const tern_block_machine *machine, tern_arena *arena);
/* Buffers, block length, chunks: after the last change to the instructions. */
tern_status tern_group_finish(tern_group *group, tern_arena *arena);
/* A group that reduces `partial` results [rows, length] (or [length, columns]) further, into the same reducers' dtype. */
tern_status tern_group_build_partial(const tern_group *first, tern_arena *arena, const int32_t *from_locations, tern_group **out);
/* Rows (or row pieces) that each reducer of the group gives: more than one per result needs another group. */
int64_t tern_group_partials(const tern_group *group);

/* ---- the rest ---- */
tern_status tern_plan_program(const tern_program *program, const tern_kernel_table *kernels, tern_executable *out);
/* Prints the steps, and keeps their lines to print again with times after a few launches. */
void tern_plan_print(tern_executable *executable, const tern_program *program);
/* plan_measure.c, where `times` is set: a step ran for so many seconds; a launch is over. */
void tern_plan_times_step(tern_executable *executable, int32_t step, double seconds);
void tern_plan_times_end(tern_executable *executable);
/* plan_cost.c: what a step costs at least: arithmetic operations, and bytes if every operand comes from memory once. */
void tern_step_cost(const tern_step *step, int64_t *flops, int64_t *bytes);
const char *tern_step_name(const tern_step *step); /* "loop", "copy", or the name of an ir operation: static text */
void tern_group_run(const tern_group *group, const tern_block_machine *machine, char *const *base, char *scratch, int64_t scratch_per_thread);
#endif
