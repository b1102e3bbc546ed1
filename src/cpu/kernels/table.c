/* The kernel table of one instruction set: every family of kernels.h fills its rows, once. Called through tern_kernels_select. */
#include <pthread.h>
#include "kernels.h"

static tern_kernel_table table = {.isa = TERN_ISA_TEXT(TERN_ISA)};
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void fill(void) {
#define TERN_FAMILY_FILL(family) \
  if (TERN_ISA_NAME(tern_register_##family)) TERN_ISA_NAME(tern_register_##family)(table.rows);
  TERN_KERNEL_FAMILIES(TERN_FAMILY_FILL)
#undef TERN_FAMILY_FILL
  table.peak = TERN_ISA_NAME(tern_peak_run);
  if (TERN_ISA_NAME(tern_block_machine_get)) table.blocks = TERN_ISA_NAME(tern_block_machine_get)();
}

const tern_kernel_table *TERN_ISA_NAME(tern_kernels)(void) {
  pthread_once(&once, fill);
  return &table;
}
