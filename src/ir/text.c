/* text: a program for people and for tests; docs/ir.md describes the form. One line an operation:
 *   %3 = add %1, %2 : f32[8,4]  // train.py:12 (step)
 * and a last line `return`. Nothing here can fail but for memory. */
#include "rules.h"

static const char *const comparisons[] = {"EQ", "NE", "LT", "LE", "GT", "GE"};
static const char *const reductions[] = {"sum", "prod", "max", "min", "all", "any"};
static const char *const combines[] = {"set", "add", "multiply", "max", "min"};

/* ---- attributes: each prints as " {name = value, ...}" ---- */
static void print_longs(FILE *out, const char *before, const char *name, int n, const int64_t *values) {
  fprintf(out, "%s%s = [", before, name);
  for (int i = 0; i < n; i++) fprintf(out, "%s%lld", i ? "," : "", (long long)values[i]);
  fputc(']', out);
}

static void print_ints(FILE *out, const char *before, const char *name, int n, const int32_t *values) {
  int64_t wide[TERN_MAX_RANK];
  for (int i = 0; i < n; i++) wide[i] = values[i];
  print_longs(out, before, name, n, wide);
}

/* Whether the numbers say something, that is, are not all `usual`. */
static bool unusual(int n, const int64_t *values, int64_t usual) {
  for (int i = 0; i < n; i++)
    if (values[i] != usual) return true;
  return false;
}

/* Decimal digits that give the same bits back; integers exactly. */
static void print_constant(FILE *out, tern_dtype dtype, const uint64_t *bits) {
  float single, imaginary;
  double wide, wide_imaginary;
  switch (dtype) {
    case TERN_BOOL: fputs(bits[0] & 1 ? " true" : " false", out); break;
    case TERN_F16: fprintf(out, " %.5g", (double)tern_f16_to_f32((uint16_t)bits[0])); break;
    case TERN_BF16: fprintf(out, " %.4g", (double)tern_bf16_to_f32((uint16_t)bits[0])); break;
    case TERN_F32: memcpy(&single, bits, 4); fprintf(out, " %.9g", (double)single); break;
    case TERN_F64: memcpy(&wide, bits, 8); fprintf(out, " %.17g", wide); break;
    case TERN_C64:
      memcpy(&single, bits, 4);
      memcpy(&imaginary, (const char *)bits + 4, 4);
      fprintf(out, " (%.9g,%.9g)", (double)single, (double)imaginary);
      break;
    case TERN_C128:
      memcpy(&wide, bits, 8);
      memcpy(&wide_imaginary, bits + 1, 8);
      fprintf(out, " (%.17g,%.17g)", wide, wide_imaginary);
      break;
    case TERN_I8: fprintf(out, " %d", (int)(int8_t)bits[0]); break;
    case TERN_I16: fprintf(out, " %d", (int)(int16_t)bits[0]); break;
    case TERN_I32: fprintf(out, " %d", (int)(int32_t)bits[0]); break;
    case TERN_I64: fprintf(out, " %lld", (long long)bits[0]); break;
    default: fprintf(out, " %llu", (unsigned long long)bits[0]); break;
  }
}

static void print_window(FILE *out, tern_op_kind kind, const tern_window *w) {
  int n = w->spatial < 0 ? 0 : w->spatial > 3 ? 3 : w->spatial;
  const char *before = " {";
  bool pools = kind == TERN_OP_MAX_POOL || kind == TERN_OP_AVG_POOL || kind == TERN_OP_AVG_POOL_GRAD, averages = pools && kind != TERN_OP_MAX_POOL;
  if (pools) print_longs(out, before, "size", n, w->size), before = ", ";
  print_longs(out, before, "stride", n, w->stride);
  if (unusual(n, w->pad_low, 0) || unusual(n, w->pad_high, 0)) {
    print_longs(out, ", ", "low", n, w->pad_low);
    print_longs(out, ", ", "high", n, w->pad_high);
  }
  if (unusual(n, w->dilation, 1)) print_longs(out, ", ", "dilation", n, w->dilation);
  if (!pools && w->groups != 1) fprintf(out, ", groups = %lld", (long long)w->groups);
  if (averages && w->count_padding) fputs(", count_padding", out);
  if (averages && w->divisor) fprintf(out, ", divisor = %lld", (long long)w->divisor);
  fputc('}', out);
}

static void print_slice(FILE *out, int rank, const tern_attrs *a, bool has_limit) {
  print_longs(out, " {", "start", rank, a->slice.start);
  if (has_limit) print_longs(out, ", ", "limit", rank, a->slice.limit);
  if (unusual(rank, a->slice.stride, 1)) print_longs(out, ", ", "stride", rank, a->slice.stride);
  fputc('}', out);
}

static void print_dot(FILE *out, const tern_attrs *a) {
  const char *before = " {";
  if (a->dot.n_batch) {
    print_ints(out, before, "lhs_batch", a->dot.n_batch, a->dot.lhs_batch);
    print_ints(out, ", ", "rhs_batch", a->dot.n_batch, a->dot.rhs_batch);
    before = ", ";
  }
  print_ints(out, before, "lhs_contract", a->dot.n_contract, a->dot.lhs_contract);
  print_ints(out, ", ", "rhs_contract", a->dot.n_contract, a->dot.rhs_contract);
  fputc('}', out);
}

static void print_attributes(FILE *out, const tern_program *p, const tern_op *op) {
  const tern_attrs *a = op->attrs;
  tern_op_kind kind = (tern_op_kind)op->kind;
  int rank = op->n_operands && op->operands[0] >= 0 ? p->values[op->operands[0]].rank : 0;
  switch (kind) {
    case TERN_OP_PARAMETER: fprintf(out, "%s %d", a->parameter.is_scalar ? " scalar" : "", (int)a->parameter.number); break;
    case TERN_OP_CONSTANT: print_constant(out, p->values[op->first_result].dtype, a->constant.bits); break;
    case TERN_OP_IOTA: case TERN_OP_CONCATENATE: case TERN_OP_TAKE: case TERN_OP_GATHER: fprintf(out, " {dim = %d}", (int)a->axis.dim); break;
    case TERN_OP_COMPARE: fprintf(out, " {%s}", comparisons[a->compare.how]); break;
    case TERN_OP_BROADCAST: case TERN_OP_TRANSPOSE: case TERN_OP_REVERSE:
      print_ints(out, " {", "dims", a->dims.n, a->dims.dims);
      fputc('}', out);
      break;
    case TERN_OP_SLICE: print_slice(out, rank, a, true); break;
    case TERN_OP_UPDATE_SLICE: print_slice(out, rank, a, false); break;
    case TERN_OP_PAD:
      print_longs(out, " {", "low", rank, a->pad.low);
      print_longs(out, ", ", "high", rank, a->pad.high);
      if (unusual(rank, a->pad.interior, 0)) print_longs(out, ", ", "interior", rank, a->pad.interior);
      fputc('}', out);
      break;
    case TERN_OP_REDUCE: case TERN_OP_ARG_REDUCE: case TERN_OP_SCAN:
      fprintf(out, " {%s, ", reductions[a->reduce.how]);
      print_ints(out, "", "dims", a->reduce.n, a->reduce.dims);
      fputc('}', out);
      break;
    case TERN_OP_SORT: 
      fprintf(out, " {dim = %d%s", (int)a->sort.dim, a->sort.descending ? ", descending" : "");
      if (a->sort.first) fprintf(out, ", first = %lld", (long long)a->sort.first);
      fprintf(out, "}");
      break;
    case TERN_OP_DOT: print_dot(out, a); break;
    case TERN_OP_CONV: case TERN_OP_CONV_INPUT_GRAD: case TERN_OP_CONV_WEIGHT_GRAD: case TERN_OP_MAX_POOL: case TERN_OP_MAX_POOL_GRAD: case TERN_OP_AVG_POOL: case TERN_OP_AVG_POOL_GRAD:
      print_window(out, kind, &a->window);
      break;
    case TERN_OP_PUT: case TERN_OP_SCATTER: fprintf(out, " {%s, dim = %d}", combines[a->scatter.how], (int)a->scatter.dim); break;
    case TERN_OP_CHECK:
      if (a->check.domain == TERN_DOMAIN_INDEX) fprintf(out, " {low = %lld, high = %lld}", (long long)a->check.low, (long long)a->check.high);
      else fprintf(out, " {\"%s\"}", tern_domain_words((tern_domain)a->check.domain));
      break;
    case TERN_OP_SOFTMAX: case TERN_OP_LOG_SOFTMAX: case TERN_OP_SOFTMAX_GRAD: case TERN_OP_LOG_SOFTMAX_GRAD: fprintf(out, " {dim = %lld}", (long long)a->ints[0]); break;
    case TERN_OP_LAYER_NORM: case TERN_OP_LAYER_NORM_GRAD: fprintf(out, " {dims = %lld}", (long long)a->ints[0]); break;
    case TERN_OP_BATCH_NORM_GRAD: fputs(a->ints[0] ? " {training}" : "", out); break;
    case TERN_OP_GELU: case TERN_OP_GELU_GRAD: fputs(a->ints[0] ? " {tanh}" : "", out); break;
    case TERN_OP_ATTENTION: case TERN_OP_ATTENTION_GRAD: fputs(a->ints[0] ? " {causal}" : "", out); break;
    case TERN_OP_LSTM: case TERN_OP_LSTM_GRAD: fputs(a->ints[0] ? " {reverse}" : "", out); break;
    default: break;
  }
}

static void print_op(FILE *out, const tern_program *p, const tern_op *op) {
  for (int i = 0; i < op->n_results; i++) fprintf(out, "%s%%%d", i ? ", " : "", (int)op->first_result + i);
  fprintf(out, "%s%s", op->n_results ? " = " : "", tern_op_rows[op->kind].name);
  for (int i = 0; i < op->n_operands; i++) {
    fputs(i ? ", " : " ", out);
    if (op->operands[i] == TERN_NO_VALUE) fputc('_', out);
    else fprintf(out, "%%%d", (int)op->operands[i]);
  }
  print_attributes(out, p, op);
  for (int i = 0; i < op->n_results; i++) {
    char type[TERN_DESCRIBE_ROOM];
    fprintf(out, "%s%s", i ? ", " : " : ", tern_value_describe(p, op->first_result + i, type));
  }
  const char *line = p->describe_tag ? p->describe_tag(p->describe_context, op->tag) : NULL;
  if (line && line[0]) fprintf(out, "  // %s", line);
  fputc('\n', out);
}

char *tern_program_text(const tern_program *p) {
  char *text = NULL;
  size_t size = 0;
  FILE *out = open_memstream(&text, &size);
  if (!out) return NULL;
  for (int32_t i = 0; i < p->n_ops; i++) print_op(out, p, &p->ops[i]);
  fputs("return", out);
  for (int i = 0; i < p->n_results; i++) {
    fprintf(out, "%s%%%d", i ? ", " : " ", (int)p->results[i].value);
    if (p->results[i].reuses >= 0) fprintf(out, " (reuses %d)", (int)p->results[i].reuses);
  }
  fputc('\n', out);
  if (p->error) fprintf(out, "// broken: %s\n", tern_error_message(p->error));
  if (fclose(out) != 0) {
    free(text);
    return NULL;
  }
  return text;
}
