/* trace: backend 3, which keeps every program it is given, for `tern check` to compile for chips that are not here. TERN_DEVICE says how values come about:
 *
 *   trace        nothing is computed and no array is allocated; reading a value is an error. For models too big for this machine.
 *   trace:zeros  as before, but what is read is zeros, and counted.
 *   trace:cpu    programs run on the embedded engine as well, so the program behaves as ever.
 *
 * Programs are cut, keyed and written as a static-shape compiler's are. backend.c is the table, keep.c what is kept, cost.c counts arithmetic and traffic.
 * It may use base, ir, composites, pjrt (the StableHLO text) and cpu (behind backend.h); nothing of eager or PyTorch.
 *
 * What is kept lives until tern_trace_forget. Thread-safe but for the walk over the programs, which wants a synchronized device. */
#ifndef TERN_TRACE_H
#define TERN_TRACE_H
#include "../backend.h"

/* An array that a program takes, gives, or makes on the way. The texts live for ever. */
typedef struct tern_trace_array {
  tern_dtype dtype;
  int32_t rank;
  int64_t dims[TERN_MAX_RANK];
  int64_t bytes;
  const char *operation;   /* what made it: "dot_general"; "upload" where it came from the host */
  const char *line;        /* the user's line that made it, or "" */
  bool is_replaced;        /* a parameter whose storage a result takes over, or that result */
  bool is_fresh;           /* a parameter that came from the host since the last mark */
} tern_trace_array;

/* Counted on the program as it is written, before any compiler has seen it. */
typedef struct tern_trace_cost {
  double contractions[TERN_DTYPE_COUNT]; /* floating-point operations of dots and convolutions, by the dtype of their operands; 2 for a multiply-add */
  double elementwise;                    /* all other arithmetic, one an element */
  double transcendentals;                /* of these, exp, log, tanh ... */
  double bytes;                          /* traffic if everything elementwise were fused: operands and results of contractions, reductions and moves, and the
                                          * program's own parameters and results */
} tern_trace_cost;

typedef struct tern_trace_program {
  int32_t number;                        /* from 0, in the order of first compilation */
  char *text;                            /* StableHLO; NULL where it could not be written */
  char *refusal;                         /* then why */
  char *line;                            /* the first user's line in it, or "" */
  int32_t n_operations;                  /* of the recording */
  int32_t n_parameters, n_results, n_scalars, n_intermediates;
  tern_trace_array *parameters, *results, *intermediates; /* intermediates: the largest, in falling order of size */
  int32_t *argument_of_parameter;        /* the text's argument, or -1 */
  uint32_t dtypes;                       /* 1 << dtype of everything in it */
  tern_trace_cost cost;
  int64_t launches;
  int64_t bytes_in_use;                  /* on the device when it was last launched, its inputs included */
  struct tern_trace_program *next;
} tern_trace_program;

/* A step of the user's program ends here. */
void tern_trace_mark(void);
int64_t tern_trace_marks(void); /* how many there were */
/* Programs in order of their numbers. */
const tern_trace_program *tern_trace_programs(void);
/* The launches in order: program numbers, and -1 for each mark. */
const int32_t *tern_trace_launches(size_t *n);
int64_t tern_trace_reads(void); /* values read as zeros */
void tern_trace_forget(void);   /* drops the launches; programs stay, with their counts at 0 */

#endif
