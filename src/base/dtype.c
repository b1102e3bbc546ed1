/* Element types and the conversions of the two half-width formats. */
#include "base.h"

static const struct { const char *name, *stablehlo; size_t size; int torch; char kind; } rows[] = {
#define TERN_DTYPE(NAME, text, stablehlo, size, torch, kind) [TERN_##NAME] = {text, stablehlo, size, torch, kind},
#include "dtypes.def"
#undef TERN_DTYPE
};
_Static_assert(TERN_COUNT(rows) == TERN_DTYPE_COUNT, "one row per element type");

const char *tern_dtype_name(tern_dtype d) { return rows[d].name; }
const char *tern_dtype_stablehlo(tern_dtype d) { return rows[d].stablehlo; }
size_t tern_dtype_size(tern_dtype d) { return rows[d].size; }
char tern_dtype_kind(tern_dtype d) { return rows[d].kind; }
bool tern_dtype_is_float(tern_dtype d) { return rows[d].kind == 'F'; }
bool tern_dtype_is_complex(tern_dtype d) { return rows[d].kind == 'C'; }
bool tern_dtype_is_integer(tern_dtype d) { return rows[d].kind == 'I' || rows[d].kind == 'U'; }
bool tern_dtype_is_signed(tern_dtype d) { return rows[d].kind != 'U' && rows[d].kind != 'B'; }
int tern_dtype_to_torch(tern_dtype d) { return rows[d].torch; }

int tern_dtype_from_torch(int scalar_type) {
  for (int d = 0; d < TERN_DTYPE_COUNT; d++)
    if (rows[d].torch == scalar_type) return d;
  return -1;
}

static uint32_t bits_of(float f) {
  uint32_t u;
  memcpy(&u, &f, 4);
  return u;
}
static float float_of(uint32_t u) {
  float f;
  memcpy(&f, &u, 4);
  return f;
}

uint16_t tern_f32_to_f16(float value) {
  uint32_t u = bits_of(value), sign = u >> 16 & 0x8000, mag = u & 0x7FFFFFFF;
  if (mag >= 0x7F800000) return (uint16_t)(sign | 0x7C00 | (mag > 0x7F800000 ? 0x200 | (mag >> 13 & 0x3FF) : 0));
  if (mag >= 0x477FF000) return (uint16_t)(sign | 0x7C00); /* rounds to infinity */
  if (mag < 0x38800000) {                                 /* subnormal: let the adder round at 2^-24 */
    float rounded = float_of(mag) + 0.5f;
    return (uint16_t)(sign | (bits_of(rounded) - 0x3F000000));
  }
  uint32_t odd = mag >> 13 & 1;
  return (uint16_t)(sign | (mag - 0x38000000 + 0xFFF + odd) >> 13);
}

float tern_f16_to_f32(uint16_t bits) {
  uint32_t sign = (uint32_t)(bits & 0x8000) << 16, exponent = bits >> 10 & 31, mantissa = bits & 0x3FF;
  if (exponent == 31) return float_of(sign | 0x7F800000 | mantissa << 13);
  if (exponent == 0) return float_of(sign | bits_of((float)mantissa * 0x1p-24f));
  return float_of(sign | (exponent + 112) << 23 | mantissa << 13);
}

uint16_t tern_f32_to_bf16(float value) {
  uint32_t u = bits_of(value);
  if ((u & 0x7FFFFFFF) > 0x7F800000) return 0x7FC0; /* as PyTorch: every NaN becomes the quiet one */
  return (uint16_t)((u + 0x7FFF + (u >> 16 & 1)) >> 16);
}

float tern_bf16_to_f32(uint16_t bits) { return float_of((uint32_t)bits << 16); }
