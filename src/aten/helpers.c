/* helpers: reading a call's arguments and drafting nodes. Every family of rows is written with these; they run at record time, on the hot path, and
 * neither allocate nor touch device data. */
#include "helpers.h"

/* ---- reading arguments ---- */

static const tern_argument *argument_at(const tern_call *call, int i) {
  return i >= 0 && i < call->n_arguments && call->arguments[i].tag != TERN_ARG_NONE ? &call->arguments[i] : NULL;
}

const tern_tensor *tern_arg_tensor(const tern_call *call, int i) {
  const tern_argument *a = argument_at(call, i);
  return a && a->tag == TERN_ARG_TENSOR ? &a->u.tensor : NULL;
}

int64_t tern_arg_int(const tern_call *call, int i, int64_t fallback) {
  const tern_argument *a = argument_at(call, i);
  if (!a) return fallback;
  if (a->tag == TERN_ARG_DOUBLE) return (int64_t)a->u.d;
  return a->tag == TERN_ARG_INT || a->tag == TERN_ARG_BOOL || a->tag == TERN_ARG_DEVICE ? a->u.i : fallback;
}

bool tern_arg_bool(const tern_call *call, int i, bool fallback) {
  const tern_argument *a = argument_at(call, i);
  return a && (a->tag == TERN_ARG_BOOL || a->tag == TERN_ARG_INT) ? a->u.i != 0 : fallback;
}

double tern_arg_double(const tern_call *call, int i, double fallback) {
  const tern_argument *a = argument_at(call, i);
  if (!a) return fallback;
  if (a->tag == TERN_ARG_DOUBLE) return a->u.d;
  return a->tag == TERN_ARG_INT || a->tag == TERN_ARG_BOOL ? (double)a->u.i : fallback;
}

bool tern_arg_is_none(const tern_call *call, int i) { return !argument_at(call, i); }

bool tern_arg_ints(const tern_call *call, int i, int *n, const int64_t **values) {
  const tern_argument *a = argument_at(call, i);
  *n = 0;
  *values = NULL;
  if (!a) return true;
  if (a->tag == TERN_ARG_INT) {
    *n = 1;
    *values = &a->u.i;
    return true;
  }
  if (a->tag != TERN_ARG_INTS && a->tag != TERN_ARG_BOOLS) return false;
  *n = a->n;
  *values = a->u.ints;
  return true;
}

bool tern_out_is(const tern_call *call, int back, tern_dtype dtype) {
  const tern_tensor *out = call->form == TERN_OUT ? tern_arg_tensor(call, call->n_arguments - 1 - back) : NULL;
  return !out || out->dtype == dtype;
}

bool tern_wrap_dim(int64_t dim, int rank, int *out) {
  int64_t range = rank > 0 ? rank : 1;
  if (dim < -range || dim >= range) return false;
  *out = (int)(dim < 0 ? dim + range : dim);
  return true;
}

/* ---- operands and attributes ---- */

static bool has_present_operand(const tern_draft *draft) {
  for (int i = 0; i < draft->n_operands; i++)
    if (draft->operands[i].buffer) return true;
  return false;
}

tern_verdict tern_draft_tensor(tern_draft *draft, const tern_tensor *tensor) {
  if (TERN_UNLIKELY(!tensor || tensor->device < 0)) return TERN_REJECT;
  if (TERN_UNLIKELY(tensor->rank > TERN_MAX_TENSOR_RANK || tensor->dtype >= TERN_DTYPE_COUNT || draft->n_operands == TERN_MAX_OPERANDS)) return TERN_FALL_BACK;
  if (draft->device != tensor->device) {
    if (has_present_operand(draft)) return TERN_REJECT;
    draft->device = tensor->device;
  }
  tern_operand *operand = &draft->operands[draft->n_operands++];
  operand->buffer = tensor->buffer;
  operand->dtype = (tern_dtype)tensor->dtype;
  operand->view.rank = tensor->rank;
  operand->view.offset = tensor->offset;
  for (int d = 0; d < tensor->rank; d++) {
    operand->view.sizes[d] = tensor->sizes[d];
    operand->view.strides[d] = tensor->strides[d];
  }
  return TERN_RECORD;
}

tern_verdict tern_draft_optional(tern_draft *draft, const tern_tensor *tensor) {
  if (tensor && tensor->sizes) return tern_draft_tensor(draft, tensor);
  if (draft->n_operands == TERN_MAX_OPERANDS) return TERN_FALL_BACK;
  tern_operand *operand = &draft->operands[draft->n_operands++];
  operand->buffer = NULL;
  operand->dtype = TERN_F32;
  operand->view.rank = 0;
  operand->view.offset = 0;
  return TERN_RECORD;
}

void tern_draft_attr(tern_draft *draft, int64_t value) {
  if (draft->n_attrs < TERN_MAX_ATTRS) draft->attrs[draft->n_attrs++] = value;
}

void tern_draft_attrs(tern_draft *draft, int n, const int64_t *values) {
  for (int i = 0; i < n; i++) tern_draft_attr(draft, values[i]);
}

tern_draft_output *tern_draft_result(tern_draft *draft, tern_dtype dtype, int rank, const int64_t *sizes) {
  tern_draft_output *output = &draft->outputs[draft->n_outputs++];
  output->dtype = output->computed = dtype;
  output->rank = rank;
  for (int d = 0; d < rank; d++) output->sizes[d] = sizes[d];
  output->layout = TERN_CONTIGUOUS;
  output->undefined = false;
  return output;
}

/* ---- scalars ---- */

/* C leaves a conversion out of range undefined; PyTorch on x86 gives the smallest integer, and so do we. */
static int64_t int_of_double(double value) { return value >= -0x1p63 && value < 0x1p63 ? (int64_t)value : INT64_MIN; }

static int64_t wrap_int(tern_dtype dtype, int64_t value) {
  switch (tern_dtype_size(dtype)) {
    case 1:
      return dtype == TERN_I8 ? (int8_t)value : (uint8_t)value;
    case 2:
      return dtype == TERN_I16 ? (int16_t)value : (uint16_t)value;
    case 4:
      return dtype == TERN_I32 ? (int32_t)value : (int64_t)(uint32_t)value;
    default:
      return value;
  }
}

static double round_to_half(tern_dtype dtype, double value) {
  return (double)(dtype == TERN_F16 ? tern_f16_to_f32(tern_f32_to_f16((float)value)) : tern_bf16_to_f32(tern_f32_to_bf16((float)value)));
}

void tern_draft_double(tern_draft *draft, tern_dtype dtype, double value, bool classify) {
  if (tern_dtype_is_float(dtype)) {
    if (draft->n_scalars == TERN_MAX_SCALARS) return;
    if (tern_dtype_size(dtype) == 2) value = round_to_half(dtype, value);
    draft->scalars[draft->n_scalars++] = tern_scalar_double(dtype == TERN_F64 ? TERN_F64 : TERN_F32, value, classify);
  } else if (dtype == TERN_BOOL) {
    tern_draft_int(draft, dtype, value != 0, classify);
  } else {
    tern_draft_int(draft, dtype, int_of_double(value), classify);
  }
}

void tern_draft_int(tern_draft *draft, tern_dtype dtype, int64_t value, bool classify) {
  if (tern_dtype_is_float(dtype)) {
    tern_draft_double(draft, dtype, dtype == TERN_F64 ? (double)value : (double)(float)value, classify);
    return;
  }
  if (draft->n_scalars == TERN_MAX_SCALARS) return;
  if (dtype == TERN_BOOL)
    value = value != 0;
  else
    value = wrap_int(dtype, value);
  tern_dtype kept = dtype == TERN_BOOL || tern_dtype_size(dtype) >= 4 ? dtype : dtype == TERN_U16 ? TERN_U32 : TERN_I32;
  draft->scalars[draft->n_scalars++] = tern_scalar_int(kept, value, classify);
}

bool tern_arg_is_number(const tern_argument *argument) {
  switch (argument->tag) {
    case TERN_ARG_INT:
    case TERN_ARG_DOUBLE:
    case TERN_ARG_BOOL:
      return true;
    case TERN_ARG_TENSOR:
      return argument->u.tensor.device == TERN_ON_CPU && argument->u.tensor.rank == 0 && argument->u.tensor.host && argument->u.tensor.dtype < TERN_C64;
    default:
      return false;
  }
}

bool tern_number_read(const tern_argument *argument, bool *is_double, double *d, int64_t *i) {
  *is_double = false;
  *i = 0;
  *d = 0;
  if (argument->tag == TERN_ARG_INT || argument->tag == TERN_ARG_BOOL) {
    *i = argument->u.i;
    return true;
  }
  if (argument->tag == TERN_ARG_DOUBLE) {
    *is_double = true;
    *d = argument->u.d;
    return true;
  }
  if (!tern_arg_is_number(argument)) return false;
  union {
    uint8_t u8;
    int8_t i8;
    uint16_t u16;
    int16_t i16;
    uint32_t u32;
    int32_t i32;
    int64_t i64;
    float f32;
    double f64;
  } value = {0};
  tern_dtype dtype = (tern_dtype)argument->u.tensor.dtype;
  memcpy(&value, argument->u.tensor.host, tern_dtype_size(dtype));
  *is_double = tern_dtype_is_float(dtype);
  switch (dtype) {
    case TERN_F16:
      *d = (double)tern_f16_to_f32(value.u16);
      break;
    case TERN_BF16:
      *d = (double)tern_bf16_to_f32(value.u16);
      break;
    case TERN_F32:
      *d = (double)value.f32;
      break;
    case TERN_F64:
      *d = value.f64;
      break;
    case TERN_BOOL:
      *i = value.u8 != 0;
      break;
    case TERN_U8:
      *i = value.u8;
      break;
    case TERN_I8:
      *i = value.i8;
      break;
    case TERN_U16:
      *i = value.u16;
      break;
    case TERN_I16:
      *i = value.i16;
      break;
    case TERN_U32:
      *i = value.u32;
      break;
    case TERN_I32:
      *i = value.i32;
      break;
    default:
      *i = value.i64;
      break;
  }
  return true;
}

bool tern_draft_number(tern_draft *draft, const tern_argument *argument, tern_dtype dtype, bool classify) {
  bool is_double;
  double d;
  int64_t i;
  if (dtype >= TERN_C64 || draft->n_scalars == TERN_MAX_SCALARS || !tern_number_read(argument, &is_double, &d, &i)) return false;
  if (is_double)
    tern_draft_double(draft, dtype, d, classify);
  else
    tern_draft_int(draft, dtype, i, classify);
  return true;
}

/* ---- shapes ---- */

bool tern_broadcast_shape(int *rank, int64_t *sizes, int other_rank, const int64_t *other) {
  int grown = other_rank - *rank;
  if (grown > 0) {
    if (other_rank > TERN_MAX_TENSOR_RANK) return false;
    for (int d = *rank - 1; d >= 0; d--) sizes[d + grown] = sizes[d];
    for (int d = 0; d < grown; d++) sizes[d] = other[d];
    *rank = other_rank;
  }
  int first = grown < 0 ? -grown : 0; /* the dimension of `sizes` that other[0] is aligned with */
  for (int d = grown > 0 ? grown : 0; d < other_rank; d++) {
    int64_t *size = &sizes[first + d];
    if (*size == other[d] || other[d] == 1) continue;
    if (*size != 1) return false;
    *size = other[d];
  }
  return true;
}
