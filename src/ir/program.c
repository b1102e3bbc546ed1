/* program: the life of a program, its values, and appending to it. Everything a program holds hangs on its arena; arrays grow by doubling, and
 * what they outgrow stays in the arena, so growth costs at most as much again as the program itself. */
#include "build.h"

const tern_op_row tern_op_rows[TERN_OP_COUNT] = {
#define TERN_OP(NAME, text, stablehlo, operands, results, class) [TERN_OP_##NAME] = {text, stablehlo, operands, results, TERN_CLASS_##class},
#include "ops.def"
#undef TERN_OP
};

tern_status tern_program_new(tern_program **out) {
  *out = calloc(1, sizeof **out);
  return *out ? NULL : tern_error_new(TERN_OUT_OF_MEMORY, "the host has no memory for a program");
}

void tern_program_free(tern_program *p) {
  if (!p) return;
  tern_error_free(p->error);
  tern_arena_free(&p->arena);
  free(p);
}

tern_status tern_program_finish(tern_program *p) { return p->error ? tern_error_clone(p->error) : tern_program_verify(p); }

size_t tern_op_attrs_size(tern_op_kind kind) {
  static const tern_attrs *a; /* only for sizeof */
  switch (kind) {
    case TERN_OP_PARAMETER: return sizeof a->parameter;
    case TERN_OP_CONSTANT: return sizeof a->constant;
    case TERN_OP_IOTA: case TERN_OP_CONCATENATE: case TERN_OP_TAKE: case TERN_OP_GATHER: return sizeof a->axis;
    case TERN_OP_COMPARE: return sizeof a->compare;
    case TERN_OP_BROADCAST: case TERN_OP_TRANSPOSE: case TERN_OP_REVERSE: return sizeof a->dims;
    case TERN_OP_SLICE: case TERN_OP_UPDATE_SLICE: return sizeof a->slice;
    case TERN_OP_PAD: return sizeof a->pad;
    case TERN_OP_REDUCE: case TERN_OP_ARG_REDUCE: case TERN_OP_SCAN: return sizeof a->reduce;
    case TERN_OP_SORT: return sizeof a->sort;
    case TERN_OP_DOT: return sizeof a->dot;
    case TERN_OP_PUT: case TERN_OP_SCATTER: return sizeof a->scatter;
    case TERN_OP_CHECK: return sizeof a->check;
    case TERN_OP_CONV: case TERN_OP_CONV_INPUT_GRAD: case TERN_OP_CONV_WEIGHT_GRAD: return sizeof a->window;
    case TERN_OP_MAX_POOL: case TERN_OP_AVG_POOL: case TERN_OP_AVG_POOL_GRAD: return sizeof a->window;
    default: return tern_op_rows[kind].class == TERN_CLASS_COMPOSITE ? sizeof a->ints : 0;
  }
}

/* ---- errors ---- */
tern_value tern_build_fail(tern_program *p, tern_status error) {
  if (p->error) tern_error_free(error);
  else p->error = error;
  return TERN_NO_VALUE;
}

static tern_value fail_memory(tern_program *p) { return tern_build_fail(p, tern_error_new(TERN_OUT_OF_MEMORY, "the host has no memory for a larger program")); }

bool tern_build_check(tern_program *p, tern_op_kind kind, tern_value v) {
  if (v >= 0 && v < p->n_values) return true;
  if (!p->error) tern_build_fail(p, tern_error_new(TERN_INVALID_ARGUMENT, "%s: operand %%%d is no value of this program", tern_op_rows[kind].name, (int)v));
  return false;
}

bool tern_build_dims(tern_program *p, tern_op_kind kind, int n, const int *dims, int32_t *out) {
  if (n < 0 || n > TERN_MAX_RANK) {
    tern_build_fail(p, tern_error_new(TERN_INVALID_ARGUMENT, "%s: %d dimensions given; at most %d are possible", tern_op_rows[kind].name, n, TERN_MAX_RANK));
    return false;
  }
  for (int i = 0; i < n; i++) out[i] = dims[i];
  return true;
}

/* ---- appending ---- */
/* Room for `more` elements after the first n; false without memory. */
static bool grow(tern_arena *arena, void **array, int32_t n, int32_t *capacity, int32_t more, size_t size) {
  if (n + more <= *capacity) return true;
  int32_t wanted = *capacity ? *capacity * 2 : 16;
  while (wanted < n + more) wanted *= 2;
  void *larger = tern_arena_alloc(arena, (size_t)wanted * size);
  if (!larger) return false;
  if (n) memcpy(larger, *array, (size_t)n * size);
  *array = larger;
  *capacity = wanted;
  return true;
}
#define GROW(p, array, more) grow(&(p)->arena, (void **)&(p)->array, (p)->n_##array, &(p)->cap_##array, more, sizeof *(p)->array)

tern_value tern_program_append(tern_program *p, tern_op_kind kind, int n_operands, const tern_value *operands, const tern_attrs *attrs, int n_results,
                               const tern_value_info *results) {
  if (p->error) return TERN_NO_VALUE;
  if (!GROW(p, ops, 1) || !GROW(p, values, n_results)) return fail_memory(p);
  static tern_attrs none; /* shared by all operations without attributes; never written */
  bool has_attrs = attrs && tern_op_attrs_size(kind) > 0;
  tern_op *op = &p->ops[p->n_ops];
  *op = (tern_op){
      .kind = (uint16_t)kind,
      .n_operands = (uint16_t)n_operands,
      .n_results = (uint16_t)n_results,
      .tag = p->tag,
      .first_result = n_results ? p->n_values : TERN_NO_VALUE,
      .operands = tern_arena_copy(&p->arena, operands, (size_t)n_operands * sizeof *operands),
      .attrs = has_attrs ? tern_arena_copy(&p->arena, attrs, sizeof *attrs) : &none,
  };
  if (!op->operands || !op->attrs) return fail_memory(p);
  for (int i = 0; i < n_results; i++) {
    tern_value_info *value = &p->values[p->n_values + i];
    *value = results[i];
    value->op = p->n_ops;
    value->dims = tern_arena_copy(&p->arena, results[i].dims, (size_t)results[i].rank * sizeof *value->dims);
    if (!value->dims) return fail_memory(p);
  }
  p->n_values += n_results;
  p->n_ops++;
  if (kind == TERN_OP_PARAMETER) {
    bool room = op->attrs->parameter.is_scalar ? GROW(p, scalars, 1) : GROW(p, parameters, 1);
    if (!room) return fail_memory(p);
    if (op->attrs->parameter.is_scalar) p->scalars[p->n_scalars++] = op->first_result;
    else p->parameters[p->n_parameters++] = op->first_result;
  }
  return op->first_result;
}

tern_value tern_build(tern_program *p, tern_op_kind kind, int n_operands, const tern_value *operands, const tern_attrs *attrs, tern_proposal proposal) {
  if (p->error) return TERN_NO_VALUE;
  static const tern_attrs none;
  int64_t dims[TERN_MAX_RESULTS][TERN_MAX_RANK];
  tern_value_info results[TERN_MAX_RESULTS];
  for (int i = 0; i < TERN_MAX_RESULTS; i++) results[i] = (tern_value_info){.dtype = proposal.dtype, .rank = 0, .dims = dims[i], .op = -1};
  if (proposal.rank > TERN_MAX_RANK)
    return tern_build_fail(p, tern_error_new(TERN_INVALID_ARGUMENT, "%s: rank %d asked for; at most %d is possible", tern_op_rows[kind].name, proposal.rank, TERN_MAX_RANK));
  results[0].rank = proposal.rank;
  if (proposal.rank > 0) memcpy(dims[0], proposal.dims, (size_t)proposal.rank * sizeof *dims[0]);
  tern_status error = tern_op_infer(&(tern_rule_call){p, kind, n_operands, operands, attrs ? attrs : &none, results});
  if (error) return tern_build_fail(p, error);
  return tern_program_append(p, kind, n_operands, operands, attrs, tern_op_rows[kind].results, results);
}

/* ---- parameters and results ---- */
tern_value tern_parameter(tern_program *p, tern_dtype dtype, int rank, const int64_t *dims) {
  return tern_build(p, TERN_OP_PARAMETER, 0, NULL, &(tern_attrs){.parameter = {p->n_parameters, false}}, (tern_proposal){dtype, rank, dims});
}

tern_value tern_scalar(tern_program *p, tern_dtype dtype) {
  return tern_build(p, TERN_OP_PARAMETER, 0, NULL, &(tern_attrs){.parameter = {p->n_scalars, true}}, (tern_proposal){dtype, 0, NULL});
}

void tern_result(tern_program *p, tern_value value, int reuses) {
  if (p->error) return;
  if (value < 0 || value >= p->n_values) {
    tern_build_fail(p, tern_error_new(TERN_INVALID_ARGUMENT, "result %d: %%%d is no value of this program", p->n_results, (int)value));
  } else if (!GROW(p, results, 1)) {
    fail_memory(p);
  } else {
    p->results[p->n_results++] = (tern_result_info){value, reuses};
  }
}

/* ---- what a value is. After an error a lowering goes on with TERN_NO_VALUE, so that must be safe to ask about ---- */
static const int64_t no_dims[TERN_MAX_RANK];
static bool is_value(const tern_program *p, tern_value v) { return v >= 0 && v < p->n_values; }
tern_dtype tern_value_dtype(const tern_program *p, tern_value v) { return is_value(p, v) ? p->values[v].dtype : TERN_F32; }
int tern_value_rank(const tern_program *p, tern_value v) { return is_value(p, v) ? p->values[v].rank : 0; }
const int64_t *tern_value_dims(const tern_program *p, tern_value v) { return is_value(p, v) ? p->values[v].dims : no_dims; }

int64_t tern_dims_count(int rank, const int64_t *dims) {
  int64_t count = 1;
  for (int i = 0; i < rank; i++) count *= dims[i];
  return count;
}
