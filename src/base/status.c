/* Errors as objects: see include/tern/status.h. */
#include "base.h"

struct tern_error {
  tern_code code;
  char message[];
};

/* What is returned when even an error cannot be allocated; never freed. */
static struct tern_error *out_of_host_memory(void) {
  static union { struct tern_error error; char room[128]; } fixed;
  static const char text[] = "the host has no memory left to describe an error";
  fixed.error.code = TERN_OUT_OF_MEMORY;
  memcpy(fixed.room + offsetof(struct tern_error, message), text, sizeof text);
  return &fixed.error;
}

static tern_status error_from(tern_code code, const char *format, va_list arguments, const char *tail) {
  va_list again;
  va_copy(again, arguments);
  int length = vsnprintf(NULL, 0, format, again);
  va_end(again);
  if (length < 0) length = 0;
  size_t tail_length = strlen(tail);
  struct tern_error *error = malloc(sizeof *error + (size_t)length + tail_length + 1);
  if (!error) return out_of_host_memory();
  error->code = code;
  vsnprintf(error->message, (size_t)length + 1, format, arguments);
  memcpy(error->message + length, tail, tail_length + 1);
  return error;
}

tern_status tern_error_new(tern_code code, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  tern_status status = error_from(code, format, arguments, "");
  va_end(arguments);
  return status;
}

tern_status tern_error_clone(tern_status status) {
  return status ? tern_error_new(status->code, "%s", status->message) : NULL;
}

tern_status tern_error_prefix(tern_status status, const char *format, ...) {
  if (!status) return NULL;
  struct tern_error *tail = (struct tern_error *)tern_error_new(TERN_OK, ": %s", status->message);
  va_list arguments;
  va_start(arguments, format);
  tern_status prefixed = error_from(status->code, format, arguments, tail->message);
  va_end(arguments);
  tern_error_free(tail);
  tern_error_free(status);
  return prefixed;
}

void tern_error_free(tern_status status) {
  if (status && status != out_of_host_memory()) free(status);
}

tern_code tern_error_code(tern_status status) { return status ? status->code : TERN_OK; }

const char *tern_error_message(tern_status status) { return status ? status->message : ""; }

static const struct { const char *name, *label; tern_exception exception; } rows[] = {
#define TERN_ERROR(NAME, label, exception, title, cause, remedy) [TERN_##NAME] = {#NAME, label, TERN_RAISES_##exception},
#include "errors.def"
#undef TERN_ERROR
};
_Static_assert(TERN_COUNT(rows) == TERN_CODE_COUNT, "one row per code");

const char *tern_code_name(tern_code code) { return (unsigned)code < TERN_COUNT(rows) ? rows[code].name : "UNKNOWN"; }
const char *tern_code_label(tern_code code) { return (unsigned)code < TERN_COUNT(rows) ? rows[code].label : "TERN-INTERNAL"; }
tern_exception tern_code_exception(tern_code code) { return (unsigned)code < TERN_COUNT(rows) ? rows[code].exception : TERN_RAISES_RuntimeError; }
