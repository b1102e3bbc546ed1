/* Reductions, scans, sorts, contractions and the check of indices as StableHLO. See text.h. */
#include "text.h"

/* ---- regions ---- */

static void append_scalar(tern_text_buffer *b, tern_dtype dtype) { tern_text_append_type(b, dtype, 0, NULL); }

/* "^bb0(%a: tensor<f32>, %b: tensor<f32>):" for the given names. */
static void region_begin(tern_text *t, int n, const char *const *names, const tern_dtype *dtypes) {
  tern_text_append(&t->region, "    ^bb0(");
  for (int i = 0; i < n; i++) {
    tern_text_append(&t->region, "%s%%%s: ", i ? ", " : "", names[i]);
    append_scalar(&t->region, dtypes[i]);
  }
  tern_text_append(&t->region, "):\n");
}

/* "%result = op(%x, %y)" on values of one dtype. */
static void region_binary(tern_text *t, const char *result, const char *name, const char *x, const char *y, tern_dtype dtype) {
  tern_text_append(&t->region, "      %%%s = \"stablehlo.%s\"(%%%s, %%%s) : (", result, name, x, y);
  append_scalar(&t->region, dtype);
  tern_text_append(&t->region, ", ");
  append_scalar(&t->region, dtype);
  tern_text_append(&t->region, ") -> ");
  append_scalar(&t->region, dtype);
  tern_text_append(&t->region, "\n");
}

static void region_compare(tern_text *t, const char *result, const char *how, const char *x, const char *y, tern_dtype dtype) {
  tern_text_append(&t->region,
                   "      %%%s = \"stablehlo.compare\"(%%%s, %%%s) <{comparison_direction = #stablehlo<comparison_direction %s>, compare_type = "
                   "#stablehlo<comparison_type %s>}> : (",
                   result, x, y, how, tern_text_compare_type(dtype));
  append_scalar(&t->region, dtype);
  tern_text_append(&t->region, ", ");
  append_scalar(&t->region, dtype);
  tern_text_append(&t->region, ") -> tensor<i1>\n");
}

static void region_select(tern_text *t, const char *result, const char *condition, const char *x, const char *y, tern_dtype dtype) {
  tern_text_append(&t->region, "      %%%s = \"stablehlo.select\"(%%%s, %%%s, %%%s) : (tensor<i1>, ", result, condition, x, y);
  append_scalar(&t->region, dtype);
  tern_text_append(&t->region, ", ");
  append_scalar(&t->region, dtype);
  tern_text_append(&t->region, ") -> ");
  append_scalar(&t->region, dtype);
  tern_text_append(&t->region, "\n");
}

static void region_return(tern_text *t, int n, const char *const *names, const tern_dtype *dtypes) {
  tern_text_append(&t->region, "      \"stablehlo.return\"(");
  for (int i = 0; i < n; i++) tern_text_append(&t->region, "%s%%%s", i ? ", " : "", names[i]);
  tern_text_append(&t->region, ") : (");
  for (int i = 0; i < n; i++) {
    if (i) tern_text_append(&t->region, ", ");
    append_scalar(&t->region, dtypes[i]);
  }
  tern_text_append(&t->region, ") -> ()");
}

/* A region that combines two scalars; without a name it gives the second. */
void tern_text_region_binary(tern_text *t, const char *name, tern_dtype dtype) {
  region_begin(t, 2, (const char *const[]){"a", "b"}, (tern_dtype[]){dtype, dtype});
  if (name) region_binary(t, "c", name, "a", "b", dtype);
  bool guarded = name && t->guard_nan && tern_dtype_is_float(dtype) && (!strcmp(name, "maximum") || !strcmp(name, "minimum"));
  if (guarded) {
    region_compare(t, "anan", "NE", "a", "a", dtype);
    region_compare(t, "bnan", "NE", "b", "b", dtype);
    region_select(t, "d", "bnan", "b", "c", dtype);
    region_select(t, "e", "anan", "a", "d", dtype);
  }
  region_return(t, 1, (const char *const[]){guarded ? "e" : name ? "c" : "b"}, &dtype);
}

const char *tern_text_reduction_name(tern_reduction how) {
  static const char *const names[] = {
      [TERN_SUM] = "add", [TERN_PROD] = "multiply", [TERN_MAX] = "maximum", [TERN_MIN] = "minimum", [TERN_ALL] = "and", [TERN_ANY] = "or"};
  return names[how];
}

/* On bools a sum is "any" and a product "all": StableHLO's add and multiply of i1, which not every plug-in has. */
static tern_reduction on_bools(tern_reduction how) {
  return how == TERN_SUM || how == TERN_MAX ? TERN_ANY : how == TERN_PROD || how == TERN_MIN ? TERN_ALL : how;
}

/* The half-width formats add and multiply up in f32. */
static tern_dtype accumulator(tern_dtype dtype, tern_reduction how) {
  return (dtype == TERN_F16 || dtype == TERN_BF16) && (how == TERN_SUM || how == TERN_PROD) ? TERN_F32 : dtype;
}

/* ---- reductions ---- */

static tern_text_value without_dims(tern_text_value x, int n, const int32_t *dims) {
  tern_text_value shape = tern_text_shape(x.dtype, 0, NULL);
  for (int d = 0, r = 0; d < x.rank; d++) {
    if (r < n && dims[r] == d)
      r++;
    else
      shape.dims[shape.rank++] = x.dims[d];
  }
  return shape;
}

static tern_text_value reduce(tern_text *t, tern_reduction how, tern_text_value x, int n, const int32_t *dims) {
  if (x.dtype == TERN_BOOL) how = on_bools(how);
  tern_text_value start = tern_text_identity(t, how, x.dtype);
  tern_text_property_dims(t, "dimensions", n, dims);
  tern_text_region_binary(t, tern_text_reduction_name(how), x.dtype);
  return tern_text_op(t, "reduce", without_dims(x, n, dims), 2, (tern_text_value[]){x, start});
}

void tern_text_write_reduce(tern_text *t, const tern_op *op) {
  tern_text_value x = tern_text_operand(t, op, 0), shape = tern_text_result_shape(t, op, 0);
  tern_reduction how = op->attrs->reduce.how;
  tern_text_value wide = tern_text_convert(t, x, accumulator(x.dtype, how));
  tern_text_value result = op->attrs->reduce.n ? reduce(t, how, wide, op->attrs->reduce.n, op->attrs->reduce.dims) : wide;
  tern_text_set(t, op, 0, tern_text_convert(t, result, shape.dtype));
}

/* Reduces pairs (value, place): `better` than the other, or a NaN, or equal and earlier, wins. Symmetric, so that any order of combining gives the same. */
void tern_text_write_arg_reduce(tern_text *t, const tern_op *op) {
  tern_text_value x = tern_text_operand(t, op, 0);
  int dim = op->attrs->reduce.dims[0];
  const char *better = op->attrs->reduce.how == TERN_MAX ? "GT" : "LT";
  bool is_float = tern_dtype_is_float(x.dtype);
  tern_text_value places = tern_text_iota(t, tern_text_like(x, TERN_I64), dim);
  tern_text_value start =
      tern_text_identity(t, x.dtype == TERN_BOOL ? (op->attrs->reduce.how == TERN_MAX ? TERN_ANY : TERN_ALL) : op->attrs->reduce.how, x.dtype);
  /* Past the end: a tie with the start is the array's to win. */
  tern_text_value past = tern_text_constant_int(t, tern_text_shape(TERN_I64, 0, NULL), x.dims[dim]);

  tern_dtype v = x.dtype, i = TERN_I64, b = TERN_BOOL;
  region_begin(t, 4, (const char *const[]){"v", "i", "w", "j"}, (tern_dtype[]){v, i, v, i});
  region_compare(t, "wins", better, "v", "w", v);
  region_compare(t, "ties", "EQ", "v", "w", v);
  region_compare(t, "earlier", "LT", "i", "j", i);
  if (is_float) {
    region_compare(t, "vnan", "NE", "v", "v", v);
    region_compare(t, "wnan", "NE", "w", "w", v);
    region_compare(t, "only", "GT", "vnan", "wnan", b);
    region_binary(t, "both", "and", "vnan", "wnan", b);
    region_binary(t, "wins2", "or", "wins", "only", b);
    region_binary(t, "ties2", "or", "ties", "both", b);
  }
  region_binary(t, "first", "and", is_float ? "ties2" : "ties", "earlier", b);
  region_binary(t, "left", "or", is_float ? "wins2" : "wins", "first", b);
  region_select(t, "value", "left", "v", "w", v);
  region_select(t, "place", "left", "i", "j", i);
  region_return(t, 2, (const char *const[]){"value", "place"}, (tern_dtype[]){v, i});

  tern_text_property_dims(t, "dimensions", 1, &dim);
  tern_text_value results[2] = {without_dims(x, 1, &dim), tern_text_like(without_dims(x, 1, &dim), TERN_I64)};
  tern_text_op_many(t, "reduce", 2, results, 4, (tern_text_value[]){x, places, start, past});
  tern_text_set(t, op, 0, results[0]);
  tern_text_set(t, op, 1, results[1]);
}

/* A window over all that came before; XLA makes it logarithmic. */
void tern_text_write_scan(tern_text *t, const tern_op *op) {
  tern_text_value x = tern_text_operand(t, op, 0), shape = tern_text_result_shape(t, op, 0);
  tern_reduction how = x.dtype == TERN_BOOL ? on_bools(op->attrs->reduce.how) : op->attrs->reduce.how;
  int dim = op->attrs->reduce.dims[0];
  tern_text_value wide = tern_text_convert(t, x, accumulator(x.dtype, how));
  tern_text_value start = tern_text_identity(t, how, wide.dtype);
  int64_t window[TERN_MAX_RANK], ones[TERN_MAX_RANK];
  for (int d = 0; d < x.rank; d++) window[d] = d == dim ? x.dims[d] : 1, ones[d] = 1;
  tern_text_property_array(t, "window_dimensions", x.rank, window);
  tern_text_property_array(t, "window_strides", x.rank, ones);
  tern_text_property_array(t, "base_dilations", x.rank, ones);
  tern_text_property_array(t, "window_dilations", x.rank, ones);
  tern_text_append(&t->properties, ", padding = dense<[");
  for (int d = 0; d < x.rank; d++) tern_text_append(&t->properties, "%s[%lld, 0]", d ? ", " : "", (long long)(window[d] - 1));
  tern_text_append(&t->properties, "]> : tensor<%dx2xi64>", x.rank);
  tern_text_region_binary(t, tern_text_reduction_name(how), wide.dtype);
  tern_text_value result = tern_text_op(t, "reduce_window", wide, 2, (tern_text_value[]){wide, start});
  tern_text_set(t, op, 0, tern_text_convert(t, result, shape.dtype));
}

/* Sorts pairs (value, place) by value alone, stably. NaN is the largest: "a before b" is a < b, or b is the only NaN; downwards the mirror of it. */
void tern_text_write_sort(tern_text *t, const tern_op *op) {
  tern_text_value x = tern_text_operand(t, op, 0);
  bool down = op->attrs->sort.descending;
  tern_text_value places = tern_text_iota(t, tern_text_like(x, TERN_I64), op->attrs->sort.dim);
  tern_dtype v = x.dtype, i = TERN_I64, b = TERN_BOOL;
  region_begin(t, 4, (const char *const[]){"v", "w", "i", "j"}, (tern_dtype[]){v, v, i, i});
  region_compare(t, "before", down ? "GT" : "LT", "v", "w", v);
  if (tern_dtype_is_float(v)) {
    region_compare(t, "vnan", "NE", "v", "v", v);
    region_compare(t, "wnan", "NE", "w", "w", v);
    region_compare(t, "only", down ? "GT" : "LT", "vnan", "wnan", b);
    region_binary(t, "either", "or", "before", "only", b);
  }
  region_return(t, 1, (const char *const[]){tern_dtype_is_float(v) ? "either" : "before"}, &b);
  tern_text_property(t, "dimension", "%d : i64", op->attrs->sort.dim);
  tern_text_property(t, "is_stable", "true");
  tern_text_value results[2] = {x, tern_text_like(x, TERN_I64)};
  tern_text_op_many(t, "sort", 2, results, 2, (tern_text_value[]){x, places});
  tern_text_set(t, op, 0, results[0]);
  tern_text_set(t, op, 1, results[1]);
}

/* ---- contractions ---- */

static void property_precision(tern_text *t) {
  /* f32 means f32: without this a chip may multiply in bf16 or tf32. */
  tern_text_property(t, "precision_config", "[#stablehlo<precision HIGHEST>, #stablehlo<precision HIGHEST>]");
}

static void append_dims(tern_text_buffer *b, const char *name, int n, const int32_t *dims) {
  tern_text_append(b, "%s = [", name);
  for (int i = 0; i < n; i++) tern_text_append(b, "%s%d", i ? ", " : "", dims[i]);
  tern_text_append(b, "]");
}

void tern_text_write_dot(tern_text *t, const tern_op *op) {
  tern_text_value lhs = tern_text_operand(t, op, 0), rhs = tern_text_operand(t, op, 1), shape = tern_text_result_shape(t, op, 0);
  int nb = op->attrs->dot.n_batch, nc = op->attrs->dot.n_contract;
  tern_text_buffer *b = &t->properties;
  tern_text_append(b, "dot_dimension_numbers = #stablehlo.dot<");
  append_dims(b, "lhs_batching_dimensions", nb, op->attrs->dot.lhs_batch);
  append_dims(b, ", rhs_batching_dimensions", nb, op->attrs->dot.rhs_batch);
  append_dims(b, ", lhs_contracting_dimensions", nc, op->attrs->dot.lhs_contract);
  append_dims(b, ", rhs_contracting_dimensions", nc, op->attrs->dot.rhs_contract);
  tern_text_append(b, ">");
  property_precision(t);
  tern_text_value result = tern_text_op(t, "dot_general", tern_text_like(shape, accumulator(shape.dtype, TERN_SUM)), 2, (tern_text_value[]){lhs, rhs});
  tern_text_set(t, op, 0, tern_text_convert(t, result, shape.dtype));
}

void tern_text_write_convolution(tern_text *t, const tern_op *op) {
  tern_text_value x = tern_text_operand(t, op, 0), w = tern_text_operand(t, op, 1), shape = tern_text_result_shape(t, op, 0);
  const tern_window *window = &op->attrs->window;
  int n = window->spatial;
  static const char *const spatial[] = {"", "0", "0, 1", "0, 1, 2"};
  static const char *const no[] = {"", "false", "false, false", "false, false, false"};
  int64_t ones[3] = {1, 1, 1};
  tern_text_property_array(t, "window_strides", n, window->stride);
  tern_text_append(&t->properties, ", padding = dense<[");
  for (int d = 0; d < n; d++) tern_text_append(&t->properties, "%s[%lld, %lld]", d ? ", " : "", (long long)window->pad_low[d], (long long)window->pad_high[d]);
  tern_text_append(&t->properties, "]> : tensor<%dx2xi64>", n);
  tern_text_property_array(t, "lhs_dilation", n, ones);
  tern_text_property_array(t, "rhs_dilation", n, window->dilation);
  tern_text_property(t, "window_reversal", "array<i1: %s>", no[n]);
  tern_text_property(t, "dimension_numbers", "#stablehlo.conv<[b, f, %s]x[o, i, %s]->[b, f, %s]>", spatial[n], spatial[n], spatial[n]);
  tern_text_property(t, "feature_group_count", "%lld : i64", (long long)window->groups);
  tern_text_property(t, "batch_group_count", "1 : i64");
  property_precision(t);
  tern_text_value result = tern_text_op(t, "convolution", tern_text_like(shape, accumulator(shape.dtype, TERN_SUM)), 2, (tern_text_value[]){x, w});
  tern_text_set(t, op, 0, tern_text_convert(t, result, shape.dtype));
}

/* ---- checks ---- */

/* Writes i64[2]: 1 and anything where all are in range, else 0 and the first index that is not. */
void tern_text_write_check(tern_text *t, const tern_op *op) {
  tern_text_value index = tern_text_operand(t, op, 0);
  if (!tern_text_count(&index)) return;
  index = tern_text_convert(t, index, TERN_I64);
  int64_t n = tern_text_count(&index), one = 1;
  tern_text_value flat = tern_text_reshape(t, index, 1, &n);
  tern_text_value low = tern_text_constant_int(t, flat, op->attrs->check.low), high = tern_text_constant_int(t, flat, op->attrs->check.high);
  tern_text_value bad = tern_text_binary(t, "or", tern_text_compare(t, TERN_LT, flat, low), tern_text_compare(t, TERN_GT, flat, high));
  tern_text_value places = tern_text_select(t, bad, tern_text_iota(t, flat, 0), tern_text_constant_int(t, flat, n));
  tern_text_value scalar = tern_text_shape(TERN_I64, 0, NULL);
  tern_text_value past = tern_text_constant_int(t, scalar, n), zero = tern_text_constant_int(t, scalar, 0);

  tern_dtype i = TERN_I64;
  region_begin(t, 4, (const char *const[]){"i", "v", "j", "w"}, (tern_dtype[]){i, i, i, i});
  region_compare(t, "left", "LE", "i", "j", i);
  region_select(t, "place", "left", "i", "j", i);
  region_select(t, "value", "left", "v", "w", i);
  region_return(t, 2, (const char *const[]){"place", "value"}, (tern_dtype[]){i, i});
  tern_text_property_dims(t, "dimensions", 1, &(int32_t){0});
  tern_text_value first[2] = {scalar, scalar};
  tern_text_op_many(t, "reduce", 2, first, 4, (tern_text_value[]){places, flat, past, zero});

  tern_text_value passed = tern_text_compare(t, TERN_EQ, first[0], past);
  t->all_passed = t->checked ? tern_text_binary(t, "and", t->all_passed, passed) : passed;
  t->checked = true;
  tern_text_value pair[2] = {tern_text_reshape(t, tern_text_convert(t, passed, TERN_I64), 1, &one), tern_text_reshape(t, first[1], 1, &one)};
  int64_t two = 2;
  tern_text_property(t, "dimension", "0 : i64");
  t->checks[t->signature->n_checks] = tern_text_op(t, "concatenate", tern_text_shape(TERN_I64, 1, &two), 2, pair);
  t->signature->checks[t->signature->n_checks++] = (tern_pjrt_check){op->tag, op->attrs->check};
}
