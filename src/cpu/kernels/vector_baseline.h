/* Any machine: 16-byte vectors (SSE2, NEON) and plain C. */
#ifndef TERN_VECTOR_BASELINE_H
#define TERN_VECTOR_BASELINE_H
TERN_VECTOR_TYPES(16)
#define VF32_NUMBERS {0, 1, 2, 3}
#define VF64_NUMBERS {0, 1}
#include "vector_generic.h"
#endif
