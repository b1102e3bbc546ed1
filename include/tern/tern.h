/* tern without PyTorch: open a chip, make arrays, compile a program (tern/ir.h), run it.
 *
 *   tern_chip *chip;
 *   tern_chip_open("", 0, &chip);                       // the embedded CPU engine; or "xla-cpu", or a path to a PJRT plug-in
 *   tern_program *program; ... tern_program_finish(program);
 *   tern_compiled *compiled;
 *   tern_compile(chip, program, &compiled);
 *   tern_run(compiled, inputs, scalars, outputs);
 *
 * examples/hello.c is a whole program. Every function is thread-safe except that one chip runs one program at a time: calls of tern_run on one chip must not
 * overlap. Objects are freed by the function of the same name; arrays and compiled programs before their chip. */
#ifndef TERN_H
#define TERN_H
#include "tern/ir.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tern_chip tern_chip;         /* one open device */
typedef struct tern_array tern_array;       /* a dense, row-major array in its memory */
typedef struct tern_compiled tern_compiled; /* a program made ready for a chip */

/* spec as TERN_DEVICE has it ("" or "cpu": the embedded engine); ordinal counts from 0. */
TERN_API tern_status tern_chip_open(const char *spec, int ordinal, tern_chip **out);
TERN_API void tern_chip_close(tern_chip *chip);
/* For people: "cpu: avx512, 2 threads". Valid while the chip is open. */
TERN_API const char *tern_chip_describe(const tern_chip *chip);

/* A new array with a copy of `host` (row-major, dims in elements). */
TERN_API tern_status tern_array_from_host(tern_chip *chip, tern_dtype dtype, int rank, const int64_t *dims, const void *host, tern_array **out);
/* Copies all of it; `bytes` must be its size. */
TERN_API tern_status tern_array_to_host(tern_array *array, void *host, size_t bytes);
TERN_API size_t tern_array_bytes(const tern_array *array);
TERN_API void tern_array_free(tern_array *array); /* NULL is fine */

/* The program must be finished; it may be freed afterwards. */
TERN_API tern_status tern_compile(tern_chip *chip, const tern_program *program, tern_compiled **out);
TERN_API void tern_compiled_free(tern_compiled *compiled);
/* Runs it and waits. inputs: one per parameter, of its dtype and dims; those that a result reuses (tern_result) are spent by a successful run: only
 * tern_array_free may be called on them. scalars: one 64-bit word each, the value in its low bytes; may be NULL where there are none. outputs: one
 * new array per result. After an error the inputs are as they were. */
TERN_API tern_status tern_run(tern_compiled *compiled, tern_array *const *inputs, const uint64_t *scalars, tern_array **outputs);

#ifdef __cplusplus
}
#endif
#endif
