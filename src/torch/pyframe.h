/* pyframe: the user's line, the GIL around waits, and calls that need it. All that knows the inside of CPython is in pyframe.c. */
#ifndef TERN_TORCH_PYFRAME_H
#define TERN_TORCH_PYFRAME_H
#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The line id (diag) of the innermost frame of this thread that is the user's own: not in a library root. 0 where there is none. Needs no GIL; takes it once for
 * each code object seen for the first time, so no lock of tern may be held. */
uint32_t tern_python_line(void);
/* Installs the resolver of line ids. Call with the GIL. */
void tern_python_lines_install(void);
/* Code in files below this folder is never the user's line. Call with the GIL, before the first operation. */
void tern_python_library_root(const char *folder);
/* From now on no Python state is looked at: the interpreter is going away. */
void tern_python_lines_stop(void);

/* The line on which an autograd node was made: node = (thread, sequence number). A bounded table: the newest entries win; 0 where unknown. */
void tern_forward_line_put(uint64_t thread, uint64_t sequence, uint32_t line);
uint32_t tern_forward_line_get(uint64_t thread, uint64_t sequence);

/* Gives up the GIL where this thread holds it; the result goes to tern_python_gil_restore. */
void *tern_python_gil_release(void);
void tern_python_gil_restore(void *state);

/* Has the main thread call function(argument) with the GIL, soon; never once the interpreter is going away. From any thread, with or without the GIL, under any lock. */
void tern_python_call_later(void (*function)(void *), void *argument);

#ifdef __cplusplus
}
#endif
#endif
