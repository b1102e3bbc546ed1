/* diag: where in the user's program something was recorded, and how programs are shown.
 *
 * A line id stands for (code object, instruction offset), or for a file and line given by a C caller. The host language records ids cheaply and resolves them only
 * when somebody asks. Thread-safe. Id 0 means unknown. */
#ifndef TERN_DIAG_H
#define TERN_DIAG_H
#include "../base/base.h"

/* The id of an opaque place: `key` (a code object that stays alive for ever) and `detail` (an offset within). Equal places give equal ids. */
uint32_t tern_line_intern(const void *key, int32_t detail);
/* The place behind an id: false for 0 or an unknown id. */
bool tern_line_place(uint32_t line, const void **key, int32_t *detail);
/* Turns an opaque place into "file:number" (and the function's name); set once by the host language. It may take the GIL. */
typedef void (*tern_line_resolver)(const void *key, int32_t detail, char *out, size_t size);
void tern_line_set_resolver(tern_line_resolver resolver);
/* "train.py:12 (step)", or "" where unknown. Always terminated. Returns `out`. */
const char *tern_line_describe(uint32_t line, char *out, size_t size);

/* A sink for what TERN_PRINT asks for: stderr, or what the host language sets. */
void tern_print(const char *format, ...) __attribute__((format(printf, 1, 2)));
void tern_print_set_sink(void (*sink)(const char *text));
#endif
