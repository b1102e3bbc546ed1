/* kernels: what every file of this folder shares. The folder is compiled once per instruction set, with TERN_ISA set to its name.
 *
 * A family is a file (or a few) that serves related operations. It defines one function
 *     void TERN_ISA_NAME(tern_register_<family>)(tern_kernel *rows)
 * that fills rows[TERN_OP_...] for what it serves, and is listed once below. Everything else in a kernel file is static, or named with TERN_ISA_NAME:
 * two instruction sets must never share a symbol, or the linker would keep one of the two bodies for both.
 *
 * A kernel reads views, writes its outputs and its scratch, calls tern_pool_run, and knows nothing else. */
#ifndef TERN_KERNELS_H
#define TERN_KERNELS_H
#include "../cpu.h"

#ifndef TERN_ISA
#define TERN_ISA baseline
#endif
#define TERN_ISA_PASTE_(name, isa) name##_##isa
#define TERN_ISA_PASTE(name, isa) TERN_ISA_PASTE_(name, isa)
/* tern_dot_run -> tern_dot_run_avx2 */
#define TERN_ISA_NAME(name) TERN_ISA_PASTE(name, TERN_ISA)
#define TERN_ISA_TEXT_(isa) #isa
#define TERN_ISA_TEXT(isa) TERN_ISA_TEXT_(isa)

#define TERN_KERNEL_FAMILIES(FAMILY) \
  FAMILY(dot)                        \
  FAMILY(conv)                       \
  FAMILY(window)                     \
  FAMILY(reduce)                     \
  FAMILY(copy)                       \
  FAMILY(softmax)                    \
  FAMILY(norm)                       \
  FAMILY(activation)                 \
  FAMILY(attention)                  \
  FAMILY(lstm)                       \
  FAMILY(index)                      \
  FAMILY(sort)                       \
  FAMILY(scan)                       \
  FAMILY(random)

/* Weak: a family that is not built leaves its rows empty, and the planner says which operation has no kernel. */
#define TERN_FAMILY_DECLARE(family) __attribute__((weak)) void TERN_ISA_NAME(tern_register_##family)(tern_kernel * rows);
TERN_KERNEL_FAMILIES(TERN_FAMILY_DECLARE)
#undef TERN_FAMILY_DECLARE

double TERN_ISA_NAME(tern_peak_run)(int64_t rounds); /* peak.c */

/* The block interpreter's instructions (blocks.h). */
struct tern_block_machine;
__attribute__((weak)) const struct tern_block_machine *TERN_ISA_NAME(tern_block_machine_get)(void);

#endif
