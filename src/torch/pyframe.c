/* The user's line: which line of whose Python code called the operator that is being recorded.
 *
 * The shim asks at every operator, so this must cost little: it reads the frames of its own thread (they cannot change while the thread is here), which
 * needs no GIL, and looks each code object up in a table that says whether it belongs to a library (PyTorch, torch_tern) or to the user. A code object seen for
 * the first time is classified under the GIL and kept alive for ever; then its file name may be read at any time, by any thread, without the GIL.
 *
 * CPython's frames have no stable interface: the layout of each version is under its own #if below and nowhere else. Other versions record no lines. */
#define Py_BUILD_CORE 1
#include <Python.h>
#include <internal/pycore_code.h>
#include <internal/pycore_frame.h>
#undef Py_BUILD_CORE
#include <stdatomic.h>
#include <unistd.h>
#include "../diag/diag.h"
#include "pyframe.h"

/* ---- the layout of frames, per version ---- */
typedef struct _PyInterpreterFrame frame;

#if defined(Py_GIL_DISABLED) || PY_VERSION_HEX < 0x030B0000 || PY_VERSION_HEX >= 0x030E0000
static frame *frame_current(PyThreadState *state) { return (void)state, NULL; }
static frame *frame_outer(frame *f) { return f; }
static PyCodeObject *frame_code(frame *f) { return (void)f, NULL; }
static int32_t frame_offset(frame *f, PyCodeObject *code) { return (void)f, (void)code, 0; }
#elif PY_VERSION_HEX < 0x030C0000 /* 3.11 */
static frame *frame_current(PyThreadState *state) { return state->cframe->current_frame; }
static frame *frame_outer(frame *f) { return f->previous; }
static PyCodeObject *frame_code(frame *f) { return f->f_code; }
static int32_t frame_offset(frame *f, PyCodeObject *code) { return (int32_t)(f->prev_instr - _PyCode_CODE(code)); }
#elif PY_VERSION_HEX < 0x030D0000 /* 3.12: frames of C code have a code object without a file */
static frame *frame_current(PyThreadState *state) { return state->cframe->current_frame; }
static frame *frame_outer(frame *f) { return f->previous; }
static PyCodeObject *frame_code(frame *f) { return f->owner == FRAME_OWNED_BY_CSTACK ? NULL : f->f_code; }
static int32_t frame_offset(frame *f, PyCodeObject *code) { return (int32_t)(f->prev_instr - _PyCode_CODE(code)); }
#else /* 3.13 */
static frame *frame_current(PyThreadState *state) { return state->current_frame; }
static frame *frame_outer(frame *f) { return f->previous; }
static PyCodeObject *frame_code(frame *f) {
  return f->owner != FRAME_OWNED_BY_CSTACK && f->f_executable && PyCode_Check(f->f_executable) ? (PyCodeObject *)f->f_executable : NULL;
}
static int32_t frame_offset(frame *f, PyCodeObject *code) { return (int32_t)(f->instr_ptr - _PyCode_CODE(code)); }
#endif

/* ---- code objects: whose are they ---- */
enum { DEPTH = 16, CODES = 1 << 14, ROOTS = 8 };

typedef struct known_code {
  _Atomic(PyCodeObject *) code; /* NULL: free. Written last, once. */
  bool users;
  const char *file, *function;  /* text inside the code object, which lives for ever */
} known_code;

static known_code codes[CODES];
static int n_codes;             /* under the GIL */
static char *roots[ROOTS];
static int n_roots;
static char working_folder[4096];
static atomic_bool stopped;

static known_code *code_slot(PyCodeObject *code) {
  uint64_t h = tern_hash_mix((uint64_t)(uintptr_t)code, 1);
  for (;; h++) {
    known_code *slot = &codes[h & (CODES - 1)];
    PyCodeObject *there = atomic_load_explicit(&slot->code, memory_order_acquire);
    if (!there || there == code) return slot;
  }
}

static bool is_users_file(const char *file) {
  /* Generated code: graphs, dataclasses and the like; but what is typed at a prompt or given with -c is the user's. */
  if (file[0] == '<') return !strcmp(file, "<string>") || !strcmp(file, "<stdin>") || !strncmp(file, "<ipython", 8);
  for (int i = 0; i < n_roots; i++)
    if (!strncmp(file, roots[i], strlen(roots[i]))) return false;
  return true;
}

/* The slot of a code object that was not known, or NULL when the table is full (half: probing stays short). */
static known_code *code_learn(PyCodeObject *code) {
  PyGILState_STATE gil = PyGILState_Ensure();
  known_code *slot = code_slot(code);
  if (!atomic_load_explicit(&slot->code, memory_order_relaxed)) {
    const char *file = n_codes < CODES / 2 ? PyUnicode_AsUTF8(code->co_filename) : NULL;
    const char *function = file ? PyUnicode_AsUTF8(code->co_qualname) : NULL;
    if (function) {
      Py_INCREF(code);
      slot->users = is_users_file(file);
      slot->file = file, slot->function = function;
      n_codes++;
      atomic_store_explicit(&slot->code, code, memory_order_release);
    } else {
      PyErr_Clear();
      slot = NULL;
    }
  }
  PyGILState_Release(gil);
  return slot;
}

uint32_t tern_python_line(void) {
  if (TERN_UNLIKELY(atomic_load_explicit(&stopped, memory_order_relaxed))) return 0;
  PyThreadState *state = PyGILState_GetThisThreadState();
  if (!state) return 0;
  frame *f = frame_current(state);
  for (int depth = 0; f && depth < DEPTH; depth++, f = frame_outer(f)) {
    PyCodeObject *code = frame_code(f);
    if (!code) continue;
    known_code *known = code_slot(code);
    if (TERN_UNLIKELY(!atomic_load_explicit(&known->code, memory_order_relaxed)) && !(known = code_learn(code))) return 0;
    if (known->users) return tern_line_intern(code, frame_offset(f, code));
  }
  return 0;
}

/* Reads only what code_learn has fixed, so it needs no GIL and may be called under any lock. */
static void describe(const void *key, int32_t offset, char *out, size_t size) {
  PyCodeObject *code = (PyCodeObject *)(uintptr_t)key;
  known_code *known = code_slot(code);
  if (!atomic_load_explicit(&known->code, memory_order_acquire) || atomic_load(&stopped)) return;
  const char *file = known->file;
  size_t folder = strlen(working_folder);
  if (folder > 1 && !strncmp(file, working_folder, folder) && file[folder] == '/') file += folder + 1;
  snprintf(out, size, "%s:%d (%s)", file, PyCode_Addr2Line(code, offset * (int)sizeof(_Py_CODEUNIT)), known->function);
}

void tern_python_lines_install(void) {
  if (!getcwd(working_folder, sizeof working_folder)) working_folder[0] = 0;
  tern_line_set_resolver(describe);
}

void tern_python_library_root(const char *folder) {
  char *copy = n_roots < ROOTS ? strdup(folder) : NULL;
  if (copy) roots[n_roots++] = copy;
}

void tern_python_lines_stop(void) { atomic_store(&stopped, true); }

/* ---- lines of autograd nodes ---- */
/* Direct-mapped; an entry is one 64-bit word (a check of 32 bits and the line), so that readers never see halves of two entries. */
enum { FORWARD_LINES = 1 << 16 };
static _Atomic uint64_t forward_lines[FORWARD_LINES];

void tern_forward_line_put(uint64_t thread, uint64_t sequence, uint32_t line) {
  uint64_t h = tern_hash_mix(thread + 1, sequence);
  atomic_store_explicit(&forward_lines[h & (FORWARD_LINES - 1)], (h & 0xFFFFFFFF00000000ull) | line, memory_order_relaxed);
}

uint32_t tern_forward_line_get(uint64_t thread, uint64_t sequence) {
  uint64_t h = tern_hash_mix(thread + 1, sequence);
  uint64_t entry = atomic_load_explicit(&forward_lines[h & (FORWARD_LINES - 1)], memory_order_relaxed);
  return (entry ^ h) >> 32 ? 0 : (uint32_t)entry;
}

/* ---- the GIL around waits ---- */
void *tern_python_gil_release(void) {
  return !atomic_load_explicit(&stopped, memory_order_relaxed) && PyGILState_Check() ? PyEval_SaveThread() : NULL;
}

void tern_python_gil_restore(void *state) {
  if (state) PyEval_RestoreThread(state);
}

/* ---- calls that need the GIL, from threads that must not wait for it ---- */
/* CPython keeps a few pending calls only, so ours are a list and one pending call empties it. */
typedef struct later {
  struct later *next;
  void (*function)(void *);
  void *argument;
} later;

static _Atomic(later *) later_calls;

static int call_all(void *unused) {
  (void)unused;
  for (later *call = atomic_exchange(&later_calls, NULL), *next; call; call = next) {
    next = call->next;
    call->function(call->argument);
    free(call);
  }
  return 0;
}

void tern_python_call_later(void (*function)(void *), void *argument) {
  later *call = malloc(sizeof *call);
  if (!call) return; /* without memory even for this: what was to be given back is leaked */
  *call = (later){.next = atomic_load(&later_calls), .function = function, .argument = argument};
  while (!atomic_compare_exchange_weak(&later_calls, &call->next, call)) {}
  /* Where the list of pending calls is full, the next call empties ours as well. */
  if (!atomic_load(&stopped)) Py_AddPendingCall(call_all, NULL);
}
