/* Which instruction set's kernels run: the best this CPU has, or what TERN_ISA forces. Asked once, when the device opens. */
#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>
#include "cpu.h"

#if defined(__x86_64__)
static bool has_avx2(void) {
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c") && __builtin_cpu_supports("bmi") &&
         __builtin_cpu_supports("bmi2") && __builtin_cpu_supports("lzcnt");
}
static bool has_avx512(void) {
  return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
         __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512cd");
}

static bool has_avx512_bf16(void) { return has_avx512() && __builtin_cpu_supports("avx512bf16"); }

/* The tiles' state is large: Linux keeps it for processes that asked (arch_prctl, ARCH_REQ_XCOMP_PERM) and otherwise ends whoever touches it. */
static pthread_once_t amx_once = PTHREAD_ONCE_INIT;
static bool amx_granted;
static void ask_for_amx(void) {
  enum { REQUEST_PERMISSION = 0x1023, TILE_DATA = 18 };
  if (has_avx512() && __builtin_cpu_supports("amx-tile") && __builtin_cpu_supports("amx-bf16"))
    amx_granted = syscall(SYS_arch_prctl, REQUEST_PERMISSION, TILE_DATA) == 0;
}
bool tern_cpu_has_amx(void) {
  pthread_once(&amx_once, ask_for_amx);
  return amx_granted;
}
#endif
#if defined(__aarch64__)
static bool has_neon(void) { return true; }
#endif
static bool has_baseline(void) { return true; }

/* The best first. */
static const struct {
  const char *name;
  bool (*supported)(void);
  const tern_kernel_table *(*table)(void);
} levels[] = {
#if defined(__x86_64__)
    {"amx", tern_cpu_has_amx, tern_kernels_amx},
    {"avx512_bf16", has_avx512_bf16, tern_kernels_avx512_bf16},
    {"avx512", has_avx512, tern_kernels_avx512},
    {"avx2", has_avx2, tern_kernels_avx2},
#endif
#if defined(__aarch64__)
    {"neon", has_neon, tern_kernels_neon},
#endif
    {"baseline", has_baseline, tern_kernels_baseline},
};

tern_status tern_kernels_select(const tern_kernel_table **out) {
  static const tern_kernel_table *chosen; /* written with the same value by whoever comes first */
  const tern_kernel_table *table = __atomic_load_n(&chosen, __ATOMIC_ACQUIRE);
  if (!table) {
    const char *wanted = tern_setting_text(TERN_SETTING_ISA);
#if defined(__x86_64__)
    __builtin_cpu_init();
#endif
    for (size_t i = 0; i < TERN_COUNT(levels) && !table; i++) {
      if (*wanted && strcmp(wanted, levels[i].name) != 0) continue;
      if (!levels[i].table) {
        if (*wanted) return tern_error_new(TERN_BAD_SETTING, "TERN_ISA=%s, but this build of tern has no kernels for it (TERN_BUILD_ISAS)", wanted);
        continue;
      }
      if (levels[i].supported()) table = levels[i].table();
      else if (*wanted) return tern_error_new(TERN_BAD_SETTING, "TERN_ISA=%s, but this CPU does not have it; unset TERN_ISA to use the best one it has", wanted);
    }
    if (!table) return tern_error_new(TERN_BAD_SETTING, "TERN_ISA=%s is not known on this machine; it takes 'baseline', 'avx2', 'avx512', 'avx512_bf16' or 'amx' (x86-64), 'neon' (AArch64), or nothing", wanted);
    __atomic_store_n(&chosen, table, __ATOMIC_RELEASE);
  }
  *out = table;
  return NULL;
}

int tern_kernels_all(const tern_kernel_table *tables[TERN_MOST_ISAS]) {
  int n = 0;
#if defined(__x86_64__)
  __builtin_cpu_init();
#endif
  for (size_t i = 0; i < TERN_COUNT(levels); i++)
    if (levels[i].table && levels[i].supported()) tables[n++] = levels[i].table();
  return n;
}
