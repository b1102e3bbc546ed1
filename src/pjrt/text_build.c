/* The pieces of StableHLO text: buffers, types, properties, one operation, and the small operations that the writers are made of. See text.h. */
#include "text.h"

/* ---- buffers ---- */

void tern_text_append(tern_text_buffer *buffer, const char *format, ...) {
  if (buffer->failed) return;
  for (;;) {
    size_t room = buffer->capacity - buffer->length;
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(buffer->data ? buffer->data + buffer->length : NULL, room, format, arguments);
    va_end(arguments);
    if (length >= 0 && (size_t)length < room) {
      buffer->length += (size_t)length;
      return;
    }
    size_t capacity = (buffer->capacity ? buffer->capacity * 2 : 512) + (length > 0 ? (size_t)length : 0);
    char *data = length < 0 ? NULL : realloc(buffer->data, capacity);
    if (!data) {
      buffer->failed = true;
      return;
    }
    buffer->data = data;
    buffer->capacity = capacity;
  }
}

void tern_text_append_type(tern_text_buffer *buffer, tern_dtype dtype, int rank, const int64_t *dims) {
  tern_text_append(buffer, "tensor<");
  for (int d = 0; d < rank; d++) tern_text_append(buffer, "%lldx", (long long)dims[d]);
  tern_text_append(buffer, "%s>", tern_dtype_stablehlo(dtype));
}

static void append_type_of(tern_text_buffer *buffer, const tern_text_value *x) { tern_text_append_type(buffer, x->dtype, x->rank, x->dims); }

/* ---- properties ---- */

static void property_name(tern_text *t, const char *name) { tern_text_append(&t->properties, "%s%s = ", t->properties.length ? ", " : "", name); }

void tern_text_property(tern_text *t, const char *name, const char *format, ...) {
  char value[256];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(value, sizeof value, format, arguments);
  va_end(arguments);
  property_name(t, name);
  tern_text_append(&t->properties, "%s", value);
}

void tern_text_property_array(tern_text *t, const char *name, int n, const int64_t *numbers) {
  property_name(t, name);
  tern_text_append(&t->properties, "array<i64");
  for (int i = 0; i < n; i++) tern_text_append(&t->properties, "%s%lld", i ? ", " : ": ", (long long)numbers[i]);
  tern_text_append(&t->properties, ">");
}

void tern_text_property_dims(tern_text *t, const char *name, int n, const int32_t *dims) {
  int64_t numbers[TERN_MAX_RANK];
  for (int i = 0; i < n; i++) numbers[i] = dims[i];
  tern_text_property_array(t, name, n, numbers);
}

/* ---- one operation ---- */

tern_text_value tern_text_shape(tern_dtype dtype, int rank, const int64_t *dims) {
  tern_text_value shape = {.id = -1, .dtype = dtype, .rank = rank};
  if (rank) memcpy(shape.dims, dims, (size_t)rank * sizeof *dims);
  return shape;
}

tern_text_value tern_text_like(tern_text_value x, tern_dtype dtype) {
  x.dtype = dtype;
  return x;
}

int64_t tern_text_count(const tern_text_value *x) { return tern_dims_count(x->rank, x->dims); }

void tern_text_op_many(tern_text *t, const char *name, int n_results, tern_text_value *results, int n_operands, const tern_text_value *operands) {
  tern_text_buffer *out = &t->out;
  tern_text_append(out, "    ");
  for (int i = 0; i < n_results; i++) {
    results[i].id = t->next_id++;
    tern_text_append(out, "%s%%%d", i ? ", " : "", results[i].id);
  }
  tern_text_append(out, " = \"stablehlo.%s\"(", name);
  for (int i = 0; i < n_operands; i++) tern_text_append(out, "%s%%%d", i ? ", " : "", operands[i].id);
  tern_text_append(out, ")");
  if (t->properties.length) tern_text_append(out, " <{%s}>", t->properties.data);
  if (t->region.length) tern_text_append(out, " ({\n%s    })", t->region.data);
  tern_text_append(out, " : (");
  for (int i = 0; i < n_operands; i++) {
    if (i) tern_text_append(out, ", ");
    append_type_of(out, &operands[i]);
  }
  tern_text_append(out, ") -> %s", n_results > 1 ? "(" : "");
  for (int i = 0; i < n_results; i++) {
    if (i) tern_text_append(out, ", ");
    append_type_of(out, &results[i]);
  }
  tern_text_append(out, "%s%s\n", n_results > 1 ? ")" : "", t->location);
  if (t->properties.failed || t->region.failed) out->failed = true;
  t->properties.length = t->region.length = 0;
}

tern_text_value tern_text_op(tern_text *t, const char *name, tern_text_value shape, int n_operands, const tern_text_value *operands) {
  tern_text_op_many(t, name, 1, &shape, n_operands, operands);
  return shape;
}

/* ---- small operations ---- */

tern_text_value tern_text_unary(tern_text *t, const char *name, tern_text_value x) { return tern_text_op(t, name, x, 1, &x); }

tern_text_value tern_text_binary(tern_text *t, const char *name, tern_text_value x, tern_text_value y) {
  return tern_text_op(t, name, x, 2, (tern_text_value[]){x, y});
}

/* Floating-point numbers are written by their bits: exact, and the only way to say inf and NaN. */
tern_text_value tern_text_constant(tern_text *t, tern_text_value shape, const uint64_t bits[2]) {
  char number[64];
  switch (shape.dtype) {
    case TERN_BOOL: snprintf(number, sizeof number, "%s", bits[0] & 0xFF ? "true" : "false"); break;
    case TERN_U8: case TERN_U16: case TERN_U32: case TERN_U64: {
      uint64_t mask = tern_dtype_size(shape.dtype) == 8 ? ~(uint64_t)0 : ((uint64_t)1 << 8 * tern_dtype_size(shape.dtype)) - 1;
      snprintf(number, sizeof number, "%llu", (unsigned long long)(bits[0] & mask));
      break;
    }
    case TERN_I8: snprintf(number, sizeof number, "%d", (int8_t)bits[0]); break;
    case TERN_I16: snprintf(number, sizeof number, "%d", (int16_t)bits[0]); break;
    case TERN_I32: snprintf(number, sizeof number, "%d", (int32_t)bits[0]); break;
    case TERN_I64: snprintf(number, sizeof number, "%lld", (long long)bits[0]); break;
    case TERN_F16: case TERN_BF16: snprintf(number, sizeof number, "0x%04X", (unsigned)(bits[0] & 0xFFFF)); break;
    case TERN_F32: snprintf(number, sizeof number, "0x%08X", (unsigned)(uint32_t)bits[0]); break;
    case TERN_F64: snprintf(number, sizeof number, "0x%016llX", (unsigned long long)bits[0]); break;
    case TERN_C64: snprintf(number, sizeof number, "(0x%08X, 0x%08X)", (unsigned)(uint32_t)bits[0], (unsigned)(bits[0] >> 32)); break;
    case TERN_C128: snprintf(number, sizeof number, "(0x%016llX, 0x%016llX)", (unsigned long long)bits[0], (unsigned long long)bits[1]); break;
    default: number[0] = 0; break;
  }
  if (!tern_text_count(&shape)) number[0] = 0; /* no elements: dense<> */
  tern_text_append(&t->properties, "value = dense<%s> : ", number);
  append_type_of(&t->properties, &shape);
  return tern_text_op(t, "constant", shape, 0, NULL);
}

tern_text_value tern_text_constant_int(tern_text *t, tern_text_value shape, int64_t value) {
  uint64_t bits[2] = {(uint64_t)value, 0};
  double wide = (double)value;
  float narrow = (float)value;
  uint32_t word;
  memcpy(&word, &narrow, 4);
  switch (shape.dtype) {
    case TERN_F16: bits[0] = tern_f32_to_f16(narrow); break;
    case TERN_BF16: bits[0] = tern_f32_to_bf16(narrow); break;
    case TERN_F32: case TERN_C64: bits[0] = word; break;
    case TERN_F64: case TERN_C128: memcpy(bits, &wide, 8); break;
    default: break;
  }
  return tern_text_constant(t, shape, bits);
}

tern_text_value tern_text_identity(tern_text *t, tern_reduction how, tern_dtype dtype) {
  tern_text_value scalar = tern_text_shape(dtype, 0, NULL);
  if (how == TERN_SUM || how == TERN_ANY) return tern_text_constant_int(t, scalar, 0);
  if (how == TERN_PROD || how == TERN_ALL) return tern_text_constant_int(t, scalar, 1);
  bool max = how == TERN_MAX;
  unsigned bit_count = 8 * (unsigned)tern_dtype_size(dtype);
  uint64_t bits[2] = {0, 0};
  if (tern_dtype_is_float(dtype)) {
    static const uint64_t infinity[TERN_DTYPE_COUNT] = {[TERN_F16] = 0x7C00, [TERN_BF16] = 0x7F80, [TERN_F32] = 0x7F800000, [TERN_F64] = 0x7FF0000000000000};
    bits[0] = infinity[dtype] | (max ? (uint64_t)1 << (bit_count - 1) : 0);
  } else if (tern_dtype_is_signed(dtype)) {
    uint64_t top = (uint64_t)1 << (bit_count - 1);
    bits[0] = max ? (uint64_t)0 - top : top - 1;
  } else {
    bits[0] = max ? 0 : ~(uint64_t)0;
  }
  return tern_text_constant(t, scalar, bits);
}

tern_text_value tern_text_convert(tern_text *t, tern_text_value x, tern_dtype dtype) {
  return x.dtype == dtype ? x : tern_text_op(t, "convert", tern_text_like(x, dtype), 1, &x);
}

const char *tern_text_compare_type(tern_dtype dtype) {
  return tern_dtype_is_float(dtype) || tern_dtype_is_complex(dtype) ? "FLOAT" : tern_dtype_is_signed(dtype) ? "SIGNED" : "UNSIGNED";
}

tern_text_value tern_text_compare(tern_text *t, tern_comparison how, tern_text_value x, tern_text_value y) {
  static const char *const words[] = {[TERN_EQ] = "EQ", [TERN_NE] = "NE", [TERN_LT] = "LT", [TERN_LE] = "LE", [TERN_GT] = "GT", [TERN_GE] = "GE"};
  tern_text_property(t, "comparison_direction", "#stablehlo<comparison_direction %s>", words[how]);
  tern_text_property(t, "compare_type", "#stablehlo<comparison_type %s>", tern_text_compare_type(x.dtype));
  return tern_text_op(t, "compare", tern_text_like(x, TERN_BOOL), 2, (tern_text_value[]){x, y});
}

tern_text_value tern_text_select(tern_text *t, tern_text_value condition, tern_text_value x, tern_text_value y) {
  return tern_text_op(t, "select", x, 3, (tern_text_value[]){condition, x, y});
}

tern_text_value tern_text_reshape(tern_text *t, tern_text_value x, int rank, const int64_t *dims) {
  return tern_text_op(t, "reshape", tern_text_shape(x.dtype, rank, dims), 1, &x);
}

tern_text_value tern_text_iota(tern_text *t, tern_text_value shape, int dim) {
  tern_text_property(t, "iota_dimension", "%d : i64", dim);
  return tern_text_op(t, "iota", shape, 0, NULL);
}

tern_text_value tern_text_slice(tern_text *t, tern_text_value x, const int64_t *start, const int64_t *limit) {
  int64_t ones[TERN_MAX_RANK];
  tern_text_value shape = x;
  for (int d = 0; d < x.rank; d++) shape.dims[d] = limit[d] - start[d], ones[d] = 1;
  tern_text_property_array(t, "start_indices", x.rank, start);
  tern_text_property_array(t, "limit_indices", x.rank, limit);
  tern_text_property_array(t, "strides", x.rank, ones);
  return tern_text_op(t, "slice", shape, 1, &x);
}
