/* A program as StableHLO text: the signature, the function, and one writer per operation. Called by executable.c on a legalised program.
 *
 * How tern's programs and a plug-in's functions differ, and what becomes of it:
 *   scalars    one u32 array of two words each, and one f64 array: two uploads a launch at most, whatever their number. f64 travels apart because chips
 *              that emulate it cannot make one from words.
 *   reuse      the parameter says tf.aliasing_output; only where result and parameter have the same type, as the compiler asks.
 *   checks     one more output, read after the launch. A result that takes over a parameter's storage becomes the old value where a check failed:
 *              the launch then gives every parameter back as it was.
 *   arrays without elements take no part: a parameter of that kind is a constant here, a result is made without the plug-in. */
#include "text.h"

/* ---- signature ---- */

static bool same_type(const tern_program *p, tern_value a, tern_value b) {
  const tern_value_info *x = &p->values[a], *y = &p->values[b];
  return x->dtype == y->dtype && x->rank == y->rank && !memcmp(x->dims, y->dims, (size_t)x->rank * sizeof *x->dims);
}

static tern_status make_signature(const tern_program *p, tern_pjrt_signature *s) {
  *s = (tern_pjrt_signature){.words_argument = -1, .doubles_argument = -1, .checks_output = -1};
  int32_t n_checks = 0;
  for (int32_t o = 0; o < p->n_ops; o++) n_checks += p->ops[o].kind == TERN_OP_CHECK;
  s->parameter_argument = malloc(((size_t)p->n_parameters + 1) * sizeof(int32_t));
  s->aliased_result = malloc(((size_t)p->n_parameters + 1) * sizeof(int32_t));
  s->result_output = malloc(((size_t)p->n_results + 1) * sizeof(int32_t));
  s->checks = malloc(((size_t)n_checks + 1) * sizeof *s->checks);
  if (!s->parameter_argument || !s->aliased_result || !s->result_output || !s->checks)
    return tern_error_new(TERN_OUT_OF_MEMORY, "no host memory for the signature of a program");

  for (int32_t i = 0; i < p->n_parameters; i++) {
    s->aliased_result[i] = -1;
    s->parameter_argument[i] = tern_value_count(p, p->parameters[i]) ? s->n_arguments++ : -1;
  }
  for (int32_t i = 0; i < p->n_scalars; i++) {
    if (p->values[p->scalars[i]].dtype == TERN_F64) s->n_doubles++;
    else s->n_words++;
  }
  if (s->n_words) s->words_argument = s->n_arguments++;
  if (s->n_doubles) s->doubles_argument = s->n_arguments++;

  for (int32_t i = 0; i < p->n_results; i++) {
    tern_value value = p->results[i].value;
    int32_t reuses = p->results[i].reuses;
    s->result_output[i] = tern_value_count(p, value) ? s->n_outputs++ : -1;
    if (reuses >= 0 && s->result_output[i] >= 0 && same_type(p, value, p->parameters[reuses])) s->aliased_result[reuses] = i;
  }
  return NULL;
}

void tern_pjrt_signature_free(tern_pjrt_signature *s) {
  free(s->parameter_argument);
  free(s->aliased_result);
  free(s->result_output);
  free(s->checks);
  *s = (tern_pjrt_signature){0};
}

/* ---- leaves ---- */

/* A scalar out of the packed words or doubles: `number` counts those of its kind. */
static tern_text_value unpack(tern_text *t, tern_dtype dtype, int32_t number) {
  tern_text_value scalar = tern_text_shape(dtype, 0, NULL);
  if (dtype == TERN_F64) {
    int64_t start = number, limit = number + 1;
    return tern_text_reshape(t, tern_text_slice(t, t->doubles, &start, &limit), 0, NULL);
  }
  int64_t start = 2 * (int64_t)number, middle = start + 1, limit = start + 2;
  tern_text_value low = tern_text_reshape(t, tern_text_slice(t, t->words, &start, &middle), 0, NULL);
  switch (dtype) {
    case TERN_BOOL: return tern_text_compare(t, TERN_NE, low, tern_text_constant_int(t, low, 0));
    case TERN_U32: return low;
    case TERN_I32: case TERN_F32: return tern_text_op(t, "bitcast_convert", scalar, 1, &low);
    default: { /* 64 bits, by arithmetic: chips that emulate them cannot make one by bitcast */
      tern_text_value high = tern_text_reshape(t, tern_text_slice(t, t->words, &middle, &limit), 0, NULL);
      if (dtype == TERN_I64) high = tern_text_op(t, "bitcast_convert", tern_text_like(high, TERN_I32), 1, &high);
      high = tern_text_binary(t, "shift_left", tern_text_convert(t, high, dtype), tern_text_constant_int(t, scalar, 32));
      return tern_text_binary(t, "or", high, tern_text_convert(t, low, dtype));
    }
  }
}

static void write_constant(tern_text *t, const tern_op *op) {
  tern_text_set(t, op, 0, tern_text_constant(t, tern_text_result_shape(t, op, 0), op->attrs->constant.bits));
}

static void write_iota(tern_text *t, const tern_op *op) {
  tern_text_value shape = tern_text_result_shape(t, op, 0);
  tern_dtype counted = shape.dtype == TERN_BOOL ? TERN_I32 : shape.dtype;
  tern_text_value numbers = tern_text_iota(t, tern_text_like(shape, counted), op->attrs->axis.dim);
  if (counted != shape.dtype) numbers = tern_text_compare(t, TERN_NE, numbers, tern_text_constant_int(t, numbers, 0));
  tern_text_set(t, op, 0, numbers);
}

/* Every operation that is neither elementwise nor a parameter. */
const tern_text_writer tern_text_writers[TERN_OP_COUNT] = {
    [TERN_OP_CONSTANT] = write_constant,
    [TERN_OP_IOTA] = write_iota,
    [TERN_OP_BROADCAST] = tern_text_write_broadcast,
    [TERN_OP_RESHAPE] = tern_text_write_reshape,
    [TERN_OP_TRANSPOSE] = tern_text_write_transpose,
    [TERN_OP_SLICE] = tern_text_write_slice,
    [TERN_OP_REVERSE] = tern_text_write_reverse,
    [TERN_OP_UPDATE_SLICE] = tern_text_write_update_slice,
    [TERN_OP_PAD] = tern_text_write_pad,
    [TERN_OP_CONCATENATE] = tern_text_write_concatenate,
    [TERN_OP_REDUCE] = tern_text_write_reduce,
    [TERN_OP_ARG_REDUCE] = tern_text_write_arg_reduce,
    [TERN_OP_SCAN] = tern_text_write_scan,
    [TERN_OP_SORT] = tern_text_write_sort,
    [TERN_OP_DOT] = tern_text_write_dot,
    [TERN_OP_CONV] = tern_text_write_convolution,
    [TERN_OP_TAKE] = tern_text_write_take,
    [TERN_OP_GATHER] = tern_text_write_gather,
    [TERN_OP_PUT] = tern_text_write_put,
    [TERN_OP_SCATTER] = tern_text_write_scatter,
    [TERN_OP_CHECK] = tern_text_write_check,
};

/* ---- the function ---- */

static tern_text_value value_shape(const tern_program *p, tern_value v) { return tern_text_shape(p->values[v].dtype, p->values[v].rank, p->values[v].dims); }

/* Names the arguments: %0 ... in order, which is what the entry block is then written with. */
static void number_arguments(tern_text *t) {
  const tern_program *p = t->program;
  const tern_pjrt_signature *s = t->signature;
  for (int32_t i = 0; i < p->n_parameters; i++) {
    tern_text_value *v = &t->values[p->parameters[i]];
    *v = value_shape(p, p->parameters[i]);
    if (s->parameter_argument[i] >= 0) v->id = s->parameter_argument[i];
  }
  t->words = tern_text_shape(TERN_U32, 1, &(int64_t){2 * (int64_t)s->n_words});
  t->words.id = s->words_argument;
  t->doubles = tern_text_shape(TERN_F64, 1, &(int64_t){s->n_doubles});
  t->doubles.id = s->doubles_argument;
  t->next_id = s->n_arguments;
}

/* The arguments with commas between: "%0: type", or "type" alone. */
static void append_arguments(tern_text *t, tern_text_buffer *b, bool named) {
  const tern_program *p = t->program;
  const tern_pjrt_signature *s = t->signature;
  int32_t n = 0;
#define TERN_ONE(v)                                                       \
  do {                                                                    \
    tern_text_append(b, "%s", n++ ? ", " : "");                           \
    if (named) tern_text_append(b, "%%%d: ", (v).id);                     \
    tern_text_append_type(b, (v).dtype, (v).rank, (v).dims);              \
  } while (0)
  for (int32_t i = 0; i < p->n_parameters; i++)
    if (s->parameter_argument[i] >= 0) TERN_ONE(t->values[p->parameters[i]]);
  if (s->n_words) TERN_ONE(t->words);
  if (s->n_doubles) TERN_ONE(t->doubles);
#undef TERN_ONE
}

static void append_argument_attributes(tern_text *t, tern_text_buffer *b) {
  const tern_pjrt_signature *s = t->signature;
  tern_text_append(b, "[");
  int32_t n = 0;
  for (int32_t i = 0; i < t->program->n_parameters; i++) {
    if (s->parameter_argument[i] < 0) continue;
    tern_text_append(b, n++ ? ", " : "");
    if (s->aliased_result[i] >= 0) tern_text_append(b, "{tf.aliasing_output = %d : i32}", s->result_output[s->aliased_result[i]]);
    else tern_text_append(b, "{}");
  }
  for (; n < s->n_arguments; n++) tern_text_append(b, n ? ", {}" : "{}");
  tern_text_append(b, "]");
}

/* "train.py:12 (step)" as the location of an operation: its name, then file and line. */
static void set_location(tern_text *t, const char *operation, const char *line) {
  t->location[0] = 0;
  const char *end = strstr(line, " ("), *colon = end ? end : line + strlen(line);
  while (colon > line && *colon != ':') colon--;
  if (*colon != ':' || strpbrk(line, "\"\\\n")) return;
  snprintf(t->location, sizeof t->location, " loc(\"%s\"(\"%.*s\":%d:0))", operation, (int)(colon - line < 400 ? colon - line : 400), line, atoi(colon + 1));
}

static void write_body(tern_text *t, tern_text_lines lines) {
  const tern_program *p = t->program;
  int32_t words = 0, doubles = 0;
  for (int32_t i = 0; i < p->n_scalars; i++) {
    tern_dtype dtype = p->values[p->scalars[i]].dtype;
    t->values[p->scalars[i]] = unpack(t, dtype, dtype == TERN_F64 ? doubles++ : words++);
  }
  uint32_t tag = 0;
  for (int32_t o = 0; o < p->n_ops; o++) {
    const tern_op *op = &p->ops[o];
    if (lines == TERN_TEXT_COMMENTS && p->describe_tag && op->tag != tag && op->kind != TERN_OP_PARAMETER) {
      tag = op->tag;
      const char *line = p->describe_tag(p->describe_context, tag);
      if (line && *line) tern_text_append(&t->out, "    // %s\n", line);
    }
    if (lines == TERN_TEXT_LOCATIONS && p->describe_tag) set_location(t, tern_op_rows[op->kind].name, p->describe_tag(p->describe_context, op->tag));
    bool empty = op->n_results > 0;
    for (int32_t r = 0; r < op->n_results; r++) empty = empty && !tern_value_count(p, op->first_result + r);
    if (empty) {
      for (int32_t r = 0; r < op->n_results; r++) tern_text_set(t, op, r, tern_text_constant_int(t, tern_text_result_shape(t, op, r), 0));
    } else if (op->kind != TERN_OP_PARAMETER) {
      (tern_text_writers[op->kind] ? tern_text_writers[op->kind] : tern_text_write_elementwise)(t, op);
    }
  }
}

static void write_return(tern_text *t) {
  const tern_program *p = t->program;
  tern_pjrt_signature *s = t->signature;
  tern_text_buffer types = {0}, *out = &t->out;
  tern_text_value *outputs = calloc((size_t)s->n_outputs + 1, sizeof *outputs);
  if (!outputs) {
    out->failed = true;
    return;
  }
  for (int32_t i = 0; i < p->n_results; i++)
    if (s->result_output[i] >= 0) outputs[s->result_output[i]] = t->values[p->results[i].value];
  if (s->n_checks) {
    for (int32_t i = 0; i < p->n_parameters; i++) {
      if (s->aliased_result[i] < 0) continue;
      tern_text_value *new = &outputs[s->result_output[s->aliased_result[i]]];
      *new = tern_text_select(t, t->all_passed, *new, t->values[p->parameters[i]]);
    }
    s->checks_output = s->n_outputs++;
    tern_text_value all = t->checks[0];
    if (s->n_checks > 1) {
      all.dims[0] = 2 * (int64_t)s->n_checks;
      tern_text_property(t, "dimension", "0 : i64");
      all = tern_text_op(t, "concatenate", all, s->n_checks, t->checks);
    }
    outputs[s->checks_output] = all;
  }
  tern_text_append(out, "    \"func.return\"(");
  for (int32_t i = 0; i < s->n_outputs; i++) {
    tern_text_append(out, "%s%%%d", i ? ", " : "", outputs[i].id);
    tern_text_append(&types, i ? ", " : "");
    tern_text_append_type(&types, outputs[i].dtype, outputs[i].rank, outputs[i].dims);
  }
  tern_text_append(out, ") : (%s) -> ()\n", types.data ? types.data : "");
  /* The function's type comes first in the text: kept aside for the caller. */
  tern_text_append(&t->region, "%s", types.data ? types.data : "");
  out->failed |= types.failed;
  free(types.data);
  free(outputs);
}

tern_status tern_pjrt_text(const tern_program *program, tern_text_lines lines, bool guard_nan, char **text, tern_pjrt_signature *signature) {
  *text = NULL;
  tern_text t = {.program = program, .signature = signature, .guard_nan = guard_nan};
  tern_text_buffer whole = {0};
  tern_status status = make_signature(program, signature);
  if (!status) {
    t.values = calloc((size_t)program->n_values + 1, sizeof *t.values);
    t.checks = calloc((size_t)program->n_ops + 1, sizeof *t.checks);
    if (!t.values || !t.checks) status = tern_error_new(TERN_OUT_OF_MEMORY, "no host memory for the text of a program");
  }
  if (!status) {
    number_arguments(&t);
    write_body(&t, lines);
    t.location[0] = 0;
    write_return(&t);
    tern_text_append(&whole, "\"builtin.module\"() <{sym_name = \"tern\"}> ({\n  \"func.func\"() <{arg_attrs = ");
    append_argument_attributes(&t, &whole);
    tern_text_append(&whole, ", function_type = (");
    append_arguments(&t, &whole, false);
    tern_text_append(&whole, ") -> (%s), sym_name = \"main\"}> ({\n  ^bb0(", t.region.data ? t.region.data : "");
    append_arguments(&t, &whole, true);
    tern_text_append(&whole, "):\n%s  }) : () -> ()\n", t.out.data ? t.out.data : "");
    tern_text_append(&whole, "}) {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} : () -> ()\n");
    if (t.out.failed || t.properties.failed || t.region.failed || whole.failed)
      status = tern_error_new(TERN_OUT_OF_MEMORY, "no host memory for the text of a program");
  }
  free(t.values);
  free(t.checks);
  free(t.out.data);
  free(t.properties.data);
  free(t.region.data);
  if (status) {
    free(whole.data);
    tern_pjrt_signature_free(signature);
    return status;
  }
  *text = whole.data;
  return NULL;
}
