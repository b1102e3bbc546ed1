/* Settings: the environment read once on first use; an override (from the host language) wins. Thread-safe for readers. */
#include <pthread.h>
#include "base.h"

static const struct { const char *variable, *fallback, *help; } rows[] = {
#define TERN_SETTING(NAME, variable, fallback, help) {variable, fallback, help},
#include "settings.def"
#undef TERN_SETTING
};

static const char *values[TERN_SETTING_COUNT];
/* Every override ever made, the newest first. */
static struct kept {
  struct kept *before;
  const char *instead_of;
  char text[];
} *kept;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void read_environment(void) {
  for (int s = 0; s < TERN_SETTING_COUNT; s++) {
    const char *text = getenv(rows[s].variable);
    const char *copy = text && *text ? strdup(text) : NULL;
    values[s] = copy ? copy : rows[s].fallback;
  }
}

const char *tern_setting_text(tern_setting setting) {
  pthread_once(&once, read_environment);
  return __atomic_load_n(&values[setting], __ATOMIC_ACQUIRE);
}

void tern_setting_override(tern_setting setting, const char *value) {
  pthread_once(&once, read_environment);
  const char *text = value ? value : rows[setting].fallback;
  struct kept *copy = malloc(sizeof *copy + strlen(text) + 1);
  if (!copy) return;
  strcpy(copy->text, text);
  /* The old text stays, within reach of leak checkers: a reader may still hold it, and overrides are rare. */
  copy->before = __atomic_exchange_n(&kept, copy, __ATOMIC_ACQ_REL);
  copy->instead_of = __atomic_exchange_n(&values[setting], copy->text, __ATOMIC_ACQ_REL);
}

int64_t tern_setting_int(tern_setting setting, int64_t fallback) {
  const char *text = tern_setting_text(setting);
  char *end;
  long long number = strtoll(text, &end, 10);
  if (end == text) return fallback;
  switch (*end) {
    case 'k': case 'K': number <<= 10; end++; break;
    case 'm': case 'M': number <<= 20; end++; break;
    case 'g': case 'G': number <<= 30; end++; break;
    default: break;
  }
  return *end ? fallback : (int64_t)number;
}

bool tern_setting_has(tern_setting setting, const char *word) {
  size_t length = strlen(word);
  for (const char *p = tern_setting_text(setting); *p;) {
    const char *comma = strchr(p, ',');
    size_t n = comma ? (size_t)(comma - p) : strlen(p);
    if (n == length && !memcmp(p, word, n)) return true;
    p += n + (comma != NULL);
  }
  return false;
}

const char *tern_setting_variable(tern_setting setting) { return rows[setting].variable; }
const char *tern_setting_help(tern_setting setting) { return rows[setting].help; }
