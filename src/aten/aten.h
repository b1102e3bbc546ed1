/* aten: PyTorch's operators as rows: for each, how its result looks (shape, dtype, strides) and how it is written as a program.
 *
 * It knows PyTorch's rules but not its headers: the shim turns a call's arguments into the plain structs below, calls tern_aten_call, and turns what comes
 * back into tensors. One row serves the functional, the in-place and the out= form. Rows live in the family files (pointwise.c, reduce.c, ...), each with
 * a table `const tern_aten_row tern_aten_<family>[]`. */
#ifndef TERN_ATEN_H
#define TERN_ATEN_H
#include "../eager/eager.h"

/* ---- what the shim hands in ---- */
enum { TERN_ON_OTHER = -2, TERN_ON_CPU = -1 }; /* tern_tensor.device; >= 0: tern's device number */

typedef struct tern_tensor {
  void *handle;              /* the shim's; not to be touched */
  tern_buffer *buffer;       /* NULL unless device >= 0 */
  const int64_t *sizes, *strides; /* strides in elements */
  int64_t offset, count;     /* storage offset and number of elements */
  const void *host;          /* CPU tensors: the first element */
  int32_t rank;
  int16_t device;
  uint8_t dtype;             /* tern_dtype */
  bool is_wrapped_number;    /* a Python number made into a tensor: weak in type promotion */
} tern_tensor;

typedef enum tern_argument_tag {
  TERN_ARG_NONE,             /* None, or an undefined tensor */
  TERN_ARG_TENSOR, TERN_ARG_TENSORS, /* a list; undefined entries (Tensor?[]) have sizes == NULL */
  TERN_ARG_INT, TERN_ARG_DOUBLE, TERN_ARG_BOOL, /* also dtypes, layouts and memory formats, as PyTorch's numbers: INT */
  TERN_ARG_INTS, TERN_ARG_DOUBLES, TERN_ARG_BOOLS, TERN_ARG_SCALARS, /* SCALARS: TERN_ARG_TENSORS-like list of plain arguments (foreach scalars) */
  TERN_ARG_TEXT, TERN_ARG_GENERATOR, TERN_ARG_DEVICE, TERN_ARG_OTHER
} tern_argument_tag;

typedef struct tern_argument {
  tern_argument_tag tag;
  int32_t n;                 /* length of a list */
  union {
    tern_tensor tensor;
    const tern_tensor *tensors;
    int64_t i;               /* INT, BOOL, DEVICE index */
    double d;
    const int64_t *ints;     /* INTS and BOOLS */
    const double *doubles;
    const struct tern_argument *scalars;
    const char *text;
    tern_stream *generator;  /* NULL: the device's own stream */
  } u;
} tern_argument;

typedef enum tern_form { TERN_FUNCTIONAL, TERN_INPLACE, TERN_OUT } tern_form;

/* What a row may ask the shim for. `call` is the shim's own. */
typedef struct tern_host {
  /* A new tensor on `device` over a new storage: gives its buffer. Becomes the call's next returned value. line: where it was made. */
  tern_status (*new_result)(void *call, int device, tern_dtype dtype, int rank, const int64_t *sizes, const int64_t *strides, uint32_t line, tern_buffer **out);
  /* The call's next returned value is argument number `index` itself (in-place, out=). */
  void (*return_argument)(void *call, int index);
  /* The call's next returned value is an undefined tensor. */
  void (*return_undefined)(void *call);
  /* Resizes an out= argument as PyTorch does (warning where it must) to sizes in a dense layout, and gives its new description. */
  tern_status (*resize_argument)(void *call, int index, int rank, const int64_t *sizes, const int64_t *strides, tern_tensor *out);
  /* The call's next returned value is an integer (attention's max_q and max_k). NULL where the host has no such results. */
  void (*return_int)(void *call, int64_t value);
  /* Reads the first `bytes` of a buffer, finishing what they depend on. NULL: the host has nothing to let go of meanwhile, and tern_buffer_read will do. */
  tern_status (*read)(void *call, tern_buffer *buffer, size_t bytes, void *out);
} tern_host;

typedef struct tern_call {
  const struct tern_aten_row *row;
  tern_form form;
  int n_arguments;           /* all of the schema's, in its order: out= arguments last */
  const tern_argument *arguments;
  const tern_host *host;
  void *shim;                /* handed back to the host's functions */
  uint32_t line;
} tern_call;

/* ---- what a row says ---- */
typedef enum tern_verdict {
  TERN_RECORD,               /* the draft is complete */
  TERN_FALL_BACK,            /* right, but not native: PyTorch's CPU kernel serves it, counted */
  TERN_REJECT                /* wrong arguments: the call is replayed on Meta so that PyTorch raises its own error */
} tern_verdict;

#define TERN_MAX_OPERANDS 64
#define TERN_MAX_OUTPUTS 8
#define TERN_MAX_ATTRS 64
#define TERN_MAX_SCALARS 16

typedef enum tern_layout {
  TERN_CONTIGUOUS,           /* row-major */
  TERN_LIKE_OPERANDS,        /* TensorIterator's rule over the operands listed in the draft */
  TERN_GIVEN                 /* strides[] as filled in */
} tern_layout;

typedef struct tern_draft_output {
  tern_dtype dtype;          /* of a new result; an in-place or out= target keeps its own */
  tern_dtype computed;       /* what the lowering gives */
  int32_t rank;
  int64_t sizes[TERN_MAX_TENSOR_RANK];
  int64_t strides[TERN_MAX_TENSOR_RANK];
  tern_layout layout;
  bool undefined;            /* the result is an undefined tensor (output_mask) */
} tern_draft_output;

/* What infer fills in; it becomes a tern_node. */
typedef struct tern_draft {
  int n_operands, n_outputs, n_attrs, n_scalars;
  tern_operand operands[TERN_MAX_OPERANDS];
  tern_draft_output outputs[TERN_MAX_OUTPUTS];
  int64_t attrs[TERN_MAX_ATTRS];
  tern_scalar_argument scalars[TERN_MAX_SCALARS];
  int n_number_operands;     /* TensorIterator's operands that are numbers (x + 2) and so not in operands[]: TERN_LIKE_OPERANDS needs to know */
  int device;                /* set by the first tern operand */
} tern_draft;

typedef struct tern_aten_row {
  const char *functional, *inplace, *out; /* schema names without "aten::": "add.Tensor", "add_.Tensor", "add.out"; NULL where there is none */
  const char *internal;      /* the name of a row without a schema, recorded only by custom rows; NULL otherwise */
  tern_verdict (*infer)(const tern_call *call, tern_draft *draft);
  tern_status (*lower)(const tern_lowering *node, tern_value *results);
  /* Where the three forms do not fit (lists of targets, running statistics, several nodes): does everything itself with helpers.h, recording this row's or
   * other rows' operations. Called where infer is NULL, or falls back (a rare variant that takes several nodes). */
  tern_verdict (*custom)(const tern_call *call, tern_status *status);
} tern_aten_row;

/* All rows: rows[i].operation id is i + 1. */
int tern_aten_row_count(void);
const tern_aten_row *tern_aten_row_at(int index);

/* torch.get_default_dtype(), which decides what integers become in floating-point operations. f32 until set; the shim keeps it up to date. */
void tern_aten_set_default_dtype(tern_dtype dtype);

/* The row of that internal name, for a host that composes operators of its own; NULL where there is none. */
const tern_aten_row *tern_aten_internal_row(const char *name);

/* Runs one call. On TERN_RECORD *status tells how it went (an error of the device); nothing was returned to the host on the other verdicts. */
tern_verdict tern_aten_call(const tern_call *call, tern_status *status);

#endif
