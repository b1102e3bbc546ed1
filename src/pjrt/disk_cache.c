/* Compiled executables on disk, so that a second process compiles nothing: for plug-ins that can serialise what they compiled. Called by executable.c.
 *
 * One file an executable, under TERN_CACHE_DIR/pjrt, named by a hash of its key and holding the key itself: the program's text, the compile options, and everything that
 * says which compiler for which machine this is. Weights, scalars and lines are in none of these. A file is written beside its name and renamed over it, so any
 * number of processes may share the folder; one that is damaged, of another version, or refused by the plug-in is removed and compiled anew. When the folder grows beyond
 * TERN_CACHE_LIMIT, files go in the order of their last use (their modification time, which a hit renews). No failure here is an error of the program's. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <strings.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <unistd.h>
#include "pjrt.h"

typedef struct header {
  char magic[8];
  uint64_t key_bytes, data_bytes, data_hash;
} header;
static const char magic[8] = "tern-x1";

/* ---- the folder ---- */

/* False where there is to be no cache. The folder is made where it is missing. */
static bool cache_folder(char *out, size_t size) {
  const char *setting = tern_setting_text(TERN_SETTING_CACHE_DIR), *home;
  int n;
  if (!strcmp(setting, "off")) return false;
  if (*setting) n = snprintf(out, size, "%s", setting);
  else if ((home = getenv("XDG_CACHE_HOME")) && *home) n = snprintf(out, size, "%s/tern", home);
  else if ((home = getenv("HOME")) && *home) n = snprintf(out, size, "%s/.cache/tern", home);
  else return false;
  if (n < 0 || (size_t)n + 8 > size) return false;
  strcpy(out + n, "/pjrt");
  for (char *slash = out + 1; (slash = strchr(slash, '/')); slash++) {
    *slash = 0;
    int made = mkdir(out, 0700);
    bool usable = made == 0 || errno == EEXIST;
    *slash = '/';
    if (!usable) return false;
  }
  return mkdir(out, 0700) == 0 || errno == EEXIST;
}

/* ---- the key ---- */

/* What the host's processor can do: a plug-in for it compiles for the machine it finds. */
static void append_processor(FILE *out) {
  struct utsname name;
  if (uname(&name) == 0) fprintf(out, "%s ", name.machine);
  FILE *file = fopen("/proc/cpuinfo", "re");
  char line[8192];
  while (file && fgets(line, sizeof line, file))
    if (!strncmp(line, "flags", 5) || !strncmp(line, "Features", 8)) {
      fputs(line, out);
      break;
    }
  if (file) fclose(file);
}

void tern_pjrt_cache_key(const tern_backend_device *device, const char *text, const char *options, size_t options_size, tern_pjrt_cache_entry *entry) {
  const tern_pjrt_client *client = device->client;
  *entry = (tern_pjrt_cache_entry){0};
  if (!TERN_PJRT_HAS(client->api, Executable_DeserializeAndLoad) || !TERN_PJRT_HAS(client->api, Executable_Serialize) ||
      !TERN_PJRT_HAS(client->api, LoadedExecutable_GetExecutable) || !cache_folder(entry->folder, sizeof entry->folder))
    return;
  FILE *out = open_memstream(&entry->key, &entry->key_size);
  if (!out) return;
  struct stat file = {0};
  if (stat(client->path, &file)) file.st_size = 0;
  fprintf(out, "%s\n%s\nPJRT %d.%d, %lld bytes of %lld\n", client->platform_name, client->platform, client->api->version.major_version,
          client->api->version.minor_version, (long long)file.st_size, (long long)file.st_mtime);
  if (!strcasecmp(client->platform_name, "cpu")) append_processor(out);
  fwrite(options, 1, options_size, out);
  fputc('\n', out);
  fputs(text, out);
  if (fclose(out)) {
    free(entry->key);
    *entry = (tern_pjrt_cache_entry){0};
    return;
  }
  snprintf(entry->path, sizeof entry->path, "%s/%016llx%016llx.exe", entry->folder, (unsigned long long)tern_hash_bytes(entry->key, entry->key_size, 1),
           (unsigned long long)tern_hash_bytes(entry->key, entry->key_size, 2));
}

void tern_pjrt_cache_entry_free(tern_pjrt_cache_entry *entry) { free(entry->key); }

/* ---- reading ---- */

static bool read_all(int file, void *data, size_t size) {
  for (char *at = data; size;) {
    ssize_t n = read(file, at, size);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    at += n, size -= (size_t)n;
  }
  return true;
}

/* The serialised executable (the caller frees it), or NULL: not there, or not this one. */
static char *read_entry(const tern_pjrt_cache_entry *entry, size_t *size) {
  int file = open(entry->path, O_RDONLY | O_CLOEXEC);
  if (file < 0) return NULL;
  header h;
  struct stat facts;
  char *key = NULL, *data = NULL;
  bool good = read_all(file, &h, sizeof h) && !memcmp(h.magic, magic, sizeof magic) && h.key_bytes == entry->key_size && fstat(file, &facts) == 0 &&
              (uint64_t)facts.st_size >= sizeof h + h.key_bytes && (uint64_t)facts.st_size - sizeof h - h.key_bytes == h.data_bytes;
  good = good && (key = malloc(h.key_bytes + 1)) && (data = malloc(h.data_bytes + 1)) && read_all(file, key, h.key_bytes) && !memcmp(key, entry->key, entry->key_size) &&
         read_all(file, data, h.data_bytes) && tern_hash_bytes(data, h.data_bytes, 0) == h.data_hash;
  if (good) {
    *size = h.data_bytes;
    futimens(file, NULL); /* used now */
  } else {
    free(data);
    data = NULL;
    unlink(entry->path);
  }
  close(file);
  free(key);
  return data;
}

pjrt_loaded_executable *tern_pjrt_cache_load(const tern_backend_device *device, const tern_pjrt_cache_entry *entry) {
  size_t size;
  char *data = entry->key ? read_entry(entry, &size) : NULL;
  if (!data) return NULL;
  const pjrt_api *api = device->client->api;
  TERN_PJRT_ARGS(Executable_DeserializeAndLoad, load, .client = device->client->handle, .serialized_executable = data, .serialized_executable_size = size);
  tern_status status = tern_pjrt_status(api, api->Executable_DeserializeAndLoad(&load), "PJRT_Executable_DeserializeAndLoad");
  free(data);
  if (status || !load.loaded_executable) unlink(entry->path);
  bool failed = status != NULL;
  tern_error_free(status);
  return failed ? NULL : load.loaded_executable;
}

/* ---- writing ---- */

typedef struct kept_file {
  char name[48];
  int64_t bytes;
  struct timespec used;
} kept_file;

static int by_use(const void *a, const void *b) {
  const struct timespec *x = &((const kept_file *)a)->used, *y = &((const kept_file *)b)->used;
  return x->tv_sec != y->tv_sec ? (x->tv_sec > y->tv_sec) - (x->tv_sec < y->tv_sec) : (x->tv_nsec > y->tv_nsec) - (x->tv_nsec < y->tv_nsec);
}

/* Removes the files that were not used for longest until the rest takes nine tenths of the limit. */
static void keep_within_limit(const char *folder) {
  int64_t limit = tern_setting_int(TERN_SETTING_CACHE_LIMIT, (int64_t)4 << 30), total = 0;
  DIR *list = opendir(folder);
  kept_file *files = NULL;
  size_t n = 0, cap = 0;
  for (struct dirent *one; list && (one = readdir(list));) {
    struct stat facts;
    if (one->d_name[0] == '.' || strlen(one->d_name) >= sizeof files->name || fstatat(dirfd(list), one->d_name, &facts, 0)) continue;
    if (n == cap) {
      kept_file *more = realloc(files, (cap = cap ? 2 * cap : 256) * sizeof *files);
      if (!more) break;
      files = more;
    }
    files[n] = (kept_file){.bytes = facts.st_size, .used = facts.st_mtim};
    strcpy(files[n++].name, one->d_name);
    total += facts.st_size;
  }
  if (total > limit) {
    qsort(files, n, sizeof *files, by_use);
    for (size_t i = 0; i < n && total > limit / 10 * 9; i++) {
      unlinkat(dirfd(list), files[i].name, 0);
      total -= files[i].bytes;
    }
  }
  free(files);
  if (list) closedir(list);
}

static bool write_all(int file, const void *data, size_t size) {
  for (const char *at = data; size;) {
    ssize_t n = write(file, at, size);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    at += n, size -= (size_t)n;
  }
  return true;
}

static void write_entry(const tern_pjrt_cache_entry *entry, const char *data, size_t size) {
  char temporary[sizeof entry->folder + 32];
  snprintf(temporary, sizeof temporary, "%s/.%d-XXXXXX", entry->folder, (int)getpid());
  int file = mkostemp(temporary, O_CLOEXEC);
  if (file < 0) return;
  header h = {.key_bytes = entry->key_size, .data_bytes = size, .data_hash = tern_hash_bytes(data, size, 0)};
  memcpy(h.magic, magic, sizeof magic);
  bool good = write_all(file, &h, sizeof h) && write_all(file, entry->key, entry->key_size) && write_all(file, data, size);
  good = close(file) == 0 && good;
  if (!good || rename(temporary, entry->path)) unlink(temporary);
  else keep_within_limit(entry->folder);
}

void tern_pjrt_cache_store(const tern_backend_device *device, const tern_pjrt_cache_entry *entry, pjrt_loaded_executable *loaded) {
  if (!entry->key) return;
  const pjrt_api *api = device->client->api;
  TERN_PJRT_ARGS(LoadedExecutable_GetExecutable, get, .loaded_executable = loaded);
  tern_status status = tern_pjrt_status(api, api->LoadedExecutable_GetExecutable(&get), "PJRT_LoadedExecutable_GetExecutable");
  if (!status) {
    TERN_PJRT_ARGS(Executable_Serialize, serialize, .executable = get.executable);
    status = tern_pjrt_status(api, api->Executable_Serialize(&serialize), "PJRT_Executable_Serialize");
    if (!status) {
      write_entry(entry, serialize.serialized_bytes, serialize.serialized_bytes_size);
      if (serialize.serialized_executable_deleter) serialize.serialized_executable_deleter(serialize.serialized_executable);
    }
    if (TERN_PJRT_HAS(api, Executable_Destroy)) {
      TERN_PJRT_ARGS(Executable_Destroy, destroy, .executable = get.executable);
      tern_error_free(tern_pjrt_status(api, api->Executable_Destroy(&destroy), "PJRT_Executable_Destroy"));
    }
  }
  tern_error_free(status); /* a plug-in that cannot serialise compiles anew in each process */
}
