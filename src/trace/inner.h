/* What the files of src/trace share. */
#ifndef TERN_TRACE_INNER_H
#define TERN_TRACE_INNER_H
#include "trace.h"

/* Keeps the program: writes its text, lists its arrays, counts its cost. The result lives for ever. */
tern_status tern_trace_keep(const tern_program *program, tern_trace_program **out);
void tern_trace_launched(tern_trace_program *program, int64_t bytes_in_use);
void tern_trace_count_read(void);
/* A copy of the text that lives for ever; equal texts share one. */
const char *tern_trace_intern(const char *text);
/* Adds up a program whose composites are decomposed. */
void tern_trace_count_cost(const tern_program *legal, tern_trace_cost *out);

#endif
