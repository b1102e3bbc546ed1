/* Status: how every tern function reports what went wrong.
 *
 * A `tern_status` is NULL on success (success allocates nothing) and otherwise an owned, heap-allocated error with a code and a
 * message that says what was wrong with which argument and what to do about it. The caller frees it with tern_error_free or passes it on.
 * All functions here are thread-safe as long as one error object is used by one thread at a time. */
#ifndef TERN_STATUS_H
#define TERN_STATUS_H

#ifdef __cplusplus
extern "C" {
#endif

#ifndef TERN_API
#define TERN_API __attribute__((visibility("default")))
#endif

/* The rows, with label, cause and remedy, live in src/base/errors.def; this list is in the same order (tested). */
typedef enum tern_code {
  TERN_OK = 0,
  TERN_INVALID_ARGUMENT,   /* a wrong shape, dtype, value or handle */
  TERN_INDEX_OUT_OF_RANGE, /* an index found outside its dimension while a program ran */
  TERN_OUT_OF_MEMORY,      /* the device, the budget or the host has no room */
  TERN_UNSUPPORTED,        /* correct, but this backend cannot do it; the caller may fall back */
  TERN_NOT_FOUND,          /* a plug-in, file or name that is not there */
  TERN_PLUGIN_FAILED,      /* a PJRT plug-in answered with an error */
  TERN_TIMEOUT,            /* a wait ran past its limit */
  TERN_BAD_FORK,           /* the device was used in a child of the process that opened it */
  TERN_INTERNAL,           /* a broken invariant of tern itself: always a bug */
  TERN_NO_DEVICE,          /* a device number that does not exist */
  TERN_BAD_SETTING,        /* a setting with a value that it does not take */
  TERN_FALLBACK,           /* an operator without a native form where PyTorch's kernels are forbidden */
  TERN_DIFFERS,            /* debug mode: a result differs from PyTorch's */
  TERN_STORAGE,            /* a storage reached by its address */
  TERN_WAITS,              /* a program waited for a value where that was to be told */
  TERN_OUT_OF_DOMAIN,      /* a value that the operation is not defined for, found while a program ran */
  TERN_NOT_BUILT,          /* the rest are raised by the Python package */
  TERN_TORCH_VERSION,
  TERN_OTHER_DEVICE,
  TERN_CODE_COUNT
} tern_code;

typedef struct tern_error *tern_status;

/* Makes an error from a printf format. Never returns NULL: without memory it returns a static out-of-memory error. */
TERN_API tern_status tern_error_new(tern_code code, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* A second owned copy of `status`; NULL for NULL. */
TERN_API tern_status tern_error_clone(tern_status status);
/* Puts `format...` and ": " before the message; takes and returns ownership; NULL stays NULL. */
TERN_API tern_status tern_error_prefix(tern_status status, const char *format, ...) __attribute__((format(printf, 2, 3)));
TERN_API void tern_error_free(tern_status status);
/* TERN_OK for NULL. */
TERN_API tern_code tern_error_code(tern_status status);
/* Valid until the error is freed; "" for NULL. */
TERN_API const char *tern_error_message(tern_status status);
/* The field's name of a code, such as "OUT_OF_MEMORY". Static. */
TERN_API const char *tern_code_name(tern_code code);
/* What people see and search for, such as "TERN-OOM": `tern explain TERN-OOM` gives cause and remedy. Static, and the same for ever. */
TERN_API const char *tern_code_label(tern_code code);

/* Returns from the calling function if `expression` fails. */
#define TERN_TRY(expression)                 \
  do {                                       \
    tern_status tern_try_ = (expression);    \
    if (tern_try_) return tern_try_;         \
  } while (0)

#ifdef __cplusplus
}
#endif
#endif
