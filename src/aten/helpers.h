/* helpers: what every family of rows is written with: reading arguments, drafting nodes, PyTorch's promotion and broadcasting rules. */
#ifndef TERN_ATEN_HELPERS_H
#define TERN_ATEN_HELPERS_H
#include "aten.h"

/* ---- reading arguments: `i` counts the schema's arguments; a missing or None argument gives the default ---- */
const tern_tensor *tern_arg_tensor(const tern_call *call, int i); /* NULL where None or undefined */
int64_t tern_arg_int(const tern_call *call, int i, int64_t fallback);
bool tern_arg_bool(const tern_call *call, int i, bool fallback);
double tern_arg_double(const tern_call *call, int i, double fallback);  /* INT, BOOL and DOUBLE */
bool tern_arg_is_none(const tern_call *call, int i);
/* A list of integers: n and values; a single INT counts as a list of one. False where it is no list. None gives n = 0 and true. */
bool tern_arg_ints(const tern_call *call, int i, int *n, const int64_t **values);
/* Whether the out= tensor that is the call's last argument but `back` has the dtype; true for the other forms. For operators that do not convert on the way out. */
bool tern_out_is(const tern_call *call, int back, tern_dtype dtype);
/* Wraps a dimension; false where it is out of range (rank 0 counts as rank 1). */
bool tern_wrap_dim(int64_t dim, int rank, int *out);

/* ---- drafting ---- */
/* Empties a draft without touching its arrays, which are large: custom rows begin with it (dispatch has done it for infer). */
static inline void tern_draft_start(tern_draft *draft) {
  draft->n_operands = draft->n_outputs = draft->n_attrs = draft->n_scalars = draft->n_number_operands = 0;
  draft->device = -1;
}
/* Adds an operand. A CPU tensor of rank 0 is not an operand: use tern_draft_number. TERN_RECORD, or the verdict to return. */
tern_verdict tern_draft_tensor(tern_draft *draft, const tern_tensor *tensor);
/* The same for an optional tensor: NULL adds an absent operand. */
tern_verdict tern_draft_optional(tern_draft *draft, const tern_tensor *tensor);
void tern_draft_attr(tern_draft *draft, int64_t value);
void tern_draft_attrs(tern_draft *draft, int n, const int64_t *values);
/* Scalars are kept as f32 for f16 and bf16 (rounded to them first), as i32 for i8, i16 and u8, as u32 for u16 (wrapped first): a lowering converts. */
void tern_draft_double(tern_draft *draft, tern_dtype dtype, double value, bool classify);
void tern_draft_int(tern_draft *draft, tern_dtype dtype, int64_t value, bool classify);
/* Whether the argument is one that tern_draft_number takes. */
bool tern_arg_is_number(const tern_argument *argument);
/* The value of such an argument: in *d where *is_double, else in *i. False where it is none. */
bool tern_number_read(const tern_argument *argument, bool *is_double, double *d, int64_t *i);
/* A Python number argument, or a CPU tensor of rank 0, as a scalar of `dtype` (converted as PyTorch converts). False where it is neither. */
bool tern_draft_number(tern_draft *draft, const tern_argument *argument, tern_dtype dtype, bool classify);
/* Adds an output (contiguous; computed = dtype); fill in more through the pointer. */
tern_draft_output *tern_draft_result(tern_draft *draft, tern_dtype dtype, int rank, const int64_t *sizes);

/* ---- PyTorch's rules ---- */
/* Type promotion (torch.result_type): dimensioned tensors before rank-0 tensors before numbers. */
typedef struct tern_promotion { int dimensioned, zero_dim, wrapped; } tern_promotion; /* tern_dtype or -1; start with TERN_PROMOTION_START */
#define TERN_PROMOTION_START ((tern_promotion){-1, -1, -1})
/* TERN_DTYPE_COUNT where PyTorch has no common type (u16, u32, u64 with other integers): fall back, and PyTorch raises. */
tern_dtype tern_promote_types(tern_dtype a, tern_dtype b);
void tern_promotion_add_tensor(tern_promotion *p, const tern_tensor *tensor);
/* Adds a tensor or a number; other tags are ignored. */
void tern_promotion_add(tern_promotion *p, const tern_argument *argument);
tern_dtype tern_promotion_result(const tern_promotion *p); /* TERN_DTYPE_COUNT where there is none */
tern_dtype tern_aten_default_dtype(void);
/* Whether a result of dtype `from` may be written to a target of dtype `to` (torch.can_cast). */
bool tern_can_cast(tern_dtype from, tern_dtype to);
/* The dtype PyTorch accumulates or computes in: f32 for f16 and bf16, else itself. */
tern_dtype tern_compute_dtype(tern_dtype dtype);
/* Broadcasts `sizes` (in place) with another shape; false where they do not fit. */
bool tern_broadcast_shape(int *rank, int64_t *sizes, int other_rank, const int64_t *other);

/* ---- recording ---- */
const tern_operation *tern_aten_operation(const tern_aten_row *row); /* the operation that the row records */
/* For custom rows: records the draft as a node of `row`. targets[i] != NULL: output i is written to that existing tern tensor (converted to its dtype; it must
 * have the output's sizes) and nothing is returned to the host for it; NULL: a new tensor, the call's next returned value. targets may be NULL. */
tern_status tern_draft_record(const tern_call *call, const tern_draft *draft, const tern_aten_row *row, const tern_tensor *const *targets);
/* A fresh temporary buffer of that size and its description as a contiguous tern tensor (caller releases with tern_buffer_release): intermediate values of custom rows.
 * `sizes` and `strides_room` (rank entries) must outlive the tensor. */
tern_status tern_temporary(int device, tern_dtype dtype, int rank, const int64_t *sizes, int64_t *strides_room, tern_tensor *out);

#endif
