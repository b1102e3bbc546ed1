/* base: what every other room may use: errors (errors.def), arenas, hashing, element types, settings. It knows nothing of tensors or programs.
 *
 * This header is the room's contract; status.c, arena.c, hash.c, dtype.c, settings.c and growable.h hold the rest. */
#ifndef TERN_BASE_H
#define TERN_BASE_H
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "tern/dtype.h"
#include "tern/status.h"

/* The most dimensions a value inside a program may have. Views recovered from strides need more than the tensor itself. */
#define TERN_MAX_RANK 16
/* The most dimensions of a tensor that tern handles natively; tensors with more are served by the fallback. */
#define TERN_MAX_TENSOR_RANK 8

#define TERN_COUNT(array) (sizeof(array) / sizeof((array)[0]))
#define TERN_LIKELY(x) __builtin_expect(!!(x), 1)
#define TERN_UNLIKELY(x) __builtin_expect(!!(x), 0)

/* A broken invariant becomes an error with its place, never an abort. */
#define TERN_CHECK(condition)                                                                             \
  do {                                                                                                    \
    if (TERN_UNLIKELY(!(condition)))                                                                      \
      return tern_error_new(TERN_INTERNAL, "internal error: '%s' does not hold at %s:%d; please report it", \
                            #condition, __FILE__, __LINE__);                                              \
  } while (0)

/* What Python raises for a code: the third column of errors.def. */
typedef enum tern_exception {
  TERN_RAISES_RuntimeError, TERN_RAISES_IndexError, TERN_RAISES_OutOfMemoryError, TERN_RAISES_NotImplementedError, TERN_RAISES_ValueError, TERN_RAISES_ImportError
} tern_exception;
tern_exception tern_code_exception(tern_code code);

/* ---- arena: bump allocation, freed at once. Not thread-safe. ---- */
typedef struct tern_arena_block tern_arena_block;
typedef struct tern_arena {
  tern_arena_block *blocks;
  char *next, *end;
  size_t used; /* bytes handed out, for statistics */
} tern_arena; /* zero-initialise */

/* `size` bytes aligned to 16, zeroed; NULL when the host has no memory. */
void *tern_arena_alloc(tern_arena *arena, size_t size);
void *tern_arena_copy(tern_arena *arena, const void *source, size_t size);
void tern_arena_free(tern_arena *arena); /* frees everything and leaves a usable empty arena */

/* ---- hashing: 64 bits, not cryptographic, stable within a process and across runs. ---- */
uint64_t tern_hash_bytes(const void *data, size_t size, uint64_t seed);
static inline uint64_t tern_hash_mix(uint64_t a, uint64_t b) {
  unsigned __int128 product = (unsigned __int128)(a ^ 0x9E3779B97F4A7C15ull) * (b ^ 0xD1B54A32D192ED03ull);
  return (uint64_t)product ^ (uint64_t)(product >> 64);
}

/* ---- element types beyond the public part ---- */
char tern_dtype_kind(tern_dtype dtype);               /* 'B', 'U', 'I', 'F' or 'C' */
const char *tern_dtype_stablehlo(tern_dtype dtype);   /* "ui8", "complex<f32>" */
int tern_dtype_to_torch(tern_dtype dtype);            /* c10::ScalarType as a number */
int tern_dtype_from_torch(int scalar_type);           /* a tern_dtype, or -1 where tern has none */

uint16_t tern_f32_to_f16(float value);   /* round to nearest even */
float tern_f16_to_f32(uint16_t bits);
uint16_t tern_f32_to_bf16(float value);  /* round to nearest even; NaN stays NaN */
float tern_bf16_to_f32(uint16_t bits);

/* ---- settings: every environment variable, one row each in settings.def; read once, overridable by the host language ---- */
typedef enum tern_setting {
#define TERN_SETTING(NAME, variable, fallback, help) TERN_SETTING_##NAME,
#include "settings.def"
#undef TERN_SETTING
  TERN_SETTING_COUNT
} tern_setting;

/* The value as text; never NULL. Valid until the setting is changed. */
const char *tern_setting_text(tern_setting setting);
/* The value as an integer (suffixes K, M, G are powers of 1024); `fallback` where it is empty or no number. */
int64_t tern_setting_int(tern_setting setting, int64_t fallback);
/* True for a comma-separated list that has `word` (TERN_PRINT=ir,plan). */
bool tern_setting_has(tern_setting setting, const char *word);
void tern_setting_override(tern_setting setting, const char *value);
const char *tern_setting_variable(tern_setting setting); /* "TERN_MODE" */
const char *tern_setting_help(tern_setting setting);

/* ---- the machine ---- */
int64_t tern_machine_memory(void); /* bytes that this process may have: the machine's, or less where a container says so */
/* "1.50 GiB". Returns `out`. */
const char *tern_bytes_text(int64_t bytes, char *out, size_t size);

/* ---- time ---- */
double tern_now(void); /* seconds, monotonic */

#endif
