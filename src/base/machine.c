/* What the machine has, and sizes in words people read. */
#include <unistd.h>
#include "base.h"

/* A limit that a container sets: a number in a file, or "max". */
static int64_t limit_in(const char *path) {
  FILE *file = fopen(path, "re");
  long long bytes = 0;
  bool is_set = file && fscanf(file, "%lld", &bytes) == 1 && bytes > 0;
  if (file) fclose(file);
  return is_set ? (int64_t)bytes : INT64_MAX;
}

int64_t tern_machine_memory(void) {
  long pages = sysconf(_SC_PHYS_PAGES), size = sysconf(_SC_PAGE_SIZE);
  int64_t least = pages > 0 && size > 0 ? (int64_t)pages * size : INT64_MAX;
  static const char *const files[] = {"/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"};
  for (size_t f = 0; f < TERN_COUNT(files); f++) {
    int64_t limit = limit_in(files[f]);
    if (limit < least) least = limit;
  }
  return least;
}

const char *tern_bytes_text(int64_t bytes, char *out, size_t size) {
  static const char *const units[] = {"bytes", "KiB", "MiB", "GiB", "TiB", "PiB"};
  double value = (double)bytes;
  size_t unit = 0;
  while (value >= 1024 && unit + 1 < TERN_COUNT(units)) value /= 1024, unit++;
  if (unit) snprintf(out, size, "%.*f %s", value < 100 ? 2 : 1, value, units[unit]);
  else snprintf(out, size, "%lld bytes", (long long)bytes);
  return out;
}
