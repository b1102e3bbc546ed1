/* Finding a plug-in's file: a path is taken as it is; a name is looked up along TERN_PLUGIN_PATH, first among its name=path pairs, then in its folders.
 *
 * The core knows nothing of Python: the host language puts its installed packages' folders (site-packages) into the setting. Called by client.c. */
#include <ctype.h>
#include <unistd.h>
#include "pjrt.h"

static const struct {
  const char *name, *file, *folder, *package;
} known[] = {
#define TERN_PLUGIN(name, file, folder, package) {name, file, folder, package},
#include "plugins.def"
#undef TERN_PLUGIN
};

/* Names differ in neither case nor '-' against '_'. `n` characters of `a` against all of `b`. */
static bool same_name(const char *a, size_t n, const char *b) {
  if (strlen(b) != n) return false;
  for (size_t i = 0; i < n; i++) {
    int x = a[i] == '_' ? '-' : tolower((unsigned char)a[i]), y = b[i] == '_' ? '-' : tolower((unsigned char)b[i]);
    if (x != y) return false;
  }
  return true;
}

static bool ends_with(const char *text, const char *tail) {
  size_t n = strlen(text), m = strlen(tail);
  return n >= m && !strcmp(text + n - m, tail);
}

/* Takes `candidate` over: returns it where the file exists, else frees it. */
static char *existing(char *candidate) {
  if (candidate && access(candidate, R_OK) == 0) return candidate;
  free(candidate);
  return NULL;
}

static char *formatted(const char *format, ...) __attribute__((format(printf, 1, 2)));
static char *formatted(const char *format, ...) {
  char *text = NULL;
  va_list arguments;
  va_start(arguments, format);
  int length = vasprintf(&text, format, arguments);
  va_end(arguments);
  return length < 0 ? NULL : text;
}

/* A known plug-in lies in the folder itself or where its package puts it; an unknown one under one of the usual names. */
static char *look_in(const char *folder, int length, const char *spec, int row) {
  char *path;
  if (row >= 0) {
    if ((path = existing(formatted("%.*s/%s/%s", length, folder, known[row].folder, known[row].file)))) return path;
    return existing(formatted("%.*s/%s", length, folder, known[row].file));
  }
  static const char *const patterns[] = {"%.*s/%s.so", "%.*s/lib%s.so", "%.*s/pjrt_plugin_%s.so", "%.*s/pjrt_c_api_%s_plugin.so"};
  char name[64];
  for (int underscores = 0; underscores < 2; underscores++) {
    snprintf(name, sizeof name, "%s", spec);
    for (char *c = name; underscores && *c; c++)
      if (*c == '-') *c = '_';
    for (size_t p = 0; p < TERN_COUNT(patterns); p++) {
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
      if ((path = existing(formatted(patterns[p], length, folder, name)))) return path;
#pragma GCC diagnostic pop
    }
  }
  return NULL;
}

static tern_status not_found(const char *spec, int row) {
  const char *searched = tern_setting_text(TERN_SETTING_PLUGIN_PATH);
  const char *where = *searched ? searched : "(empty)";
  if (row >= 0)
    return tern_error_new(
        TERN_NOT_FOUND, "no PJRT plug-in '%s': looked for %s along TERN_PLUGIN_PATH=%s; install it (pip install %s), or set TERN_DEVICE to the path of its .so",
        spec, known[row].file, where, known[row].package);
  char names[512] = "";
  for (size_t k = 0, at = 0; k < TERN_COUNT(known) && at < sizeof names; k++)
    at += (size_t)snprintf(names + at, sizeof names - at, "%s%s", k ? ", " : "", known[k].name);
  return tern_error_new(TERN_NOT_FOUND,
                        "no PJRT plug-in '%s': not a name tern knows (%s), and no %s.so or lib%s.so along TERN_PLUGIN_PATH=%s; set TERN_DEVICE to the path of "
                        "the plug-in's .so, or add %s=<path> to TERN_PLUGIN_PATH",
                        spec, names, spec, spec, where, spec);
}

/* A pair serves a spec of its name; and one that is known by another name, where the path is the one its package gives the file. */
static bool pair_serves(const char *pair, size_t length, const char *equals, const char *spec, int row) {
  if (same_name(pair, (size_t)(equals - pair), spec)) return true;
  if (row < 0) return false;
  char *path = strndup(equals + 1, length - (size_t)(equals + 1 - pair)), *tail = formatted("/%s/%s", known[row].folder, known[row].file);
  bool serves = path && tail && ends_with(path, tail);
  free(path);
  free(tail);
  return serves;
}

tern_status tern_pjrt_find(const char *spec, char **path) {
  *path = NULL;
  if (strchr(spec, '/') || ends_with(spec, ".so") || ends_with(spec, ".dylib")) {
    /* realpath also makes two spellings of one file one client. */
    if (!(*path = realpath(spec, NULL))) return tern_error_new(TERN_NOT_FOUND, "no PJRT plug-in at '%s': the file does not exist or cannot be read", spec);
    return NULL;
  }
  int row = -1;
  for (size_t k = 0; k < TERN_COUNT(known); k++)
    if (same_name(spec, strlen(spec), known[k].name)) row = (int)k;

  for (int folders = 0; folders < 2 && !*path; folders++) {
    for (const char *p = tern_setting_text(TERN_SETTING_PLUGIN_PATH); *p && !*path;) {
      size_t length = strcspn(p, ":");
      const char *equals = memchr(p, '=', length);
      if (!folders && equals && pair_serves(p, length, equals, spec, row)) {
        size_t rest = length - (size_t)(equals + 1 - p);
        char *named = strndup(equals + 1, rest);
        if (!(*path = existing(named)))
          return tern_error_new(TERN_NOT_FOUND, "no PJRT plug-in at '%.*s', which TERN_PLUGIN_PATH gives for '%s'", (int)rest, equals + 1, spec);
      } else if (folders && !equals && length) {
        *path = look_in(p, (int)length, spec, row);
      }
      p += length + (p[length] == ':');
    }
  }
  if (!*path) return not_found(spec, row);
  char *real = realpath(*path, NULL);
  if (real) {
    free(*path);
    *path = real;
  }
  return NULL;
}
