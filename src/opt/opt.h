/* opt: passes over programs that every backend may run, one file each. Each takes a verified program and gives a new one (or facts about it: fuse.h, schedule.h,
 * memory_plan.h, for the embedded engine); none changes what is computed, bit for bit. */
#ifndef TERN_OPT_H
#define TERN_OPT_H
#include "../ir/ir.h"

/* A program that computes the same results, with less in it: views of views become one view, operations that change nothing vanish, equal small operations are
 * done once, dead ones go. Parameters, scalars and results keep their numbers, effects stay, tags stay. Linear in the operations. Two results may
 * become one value, and a result may become a parameter. The caller owns *out. */
tern_status tern_canonicalise(const tern_program *in, tern_program **out);

/* ---- between canonicalise.c and fold.c ---- */
/* The program being rewritten: one entry per operation of `in`, same results, perhaps other kind, operands and attributes. */
typedef struct tern_rewrite {
  const tern_program *in;
  tern_op *ops;
  tern_arena arena;
} tern_rewrite;

/* Tries to say operation `number`, whose operands are already rewritten, more simply: gives an earlier value that equals its only result, or rewrites the operation
 * in place and gives TERN_NO_VALUE. */
tern_value tern_fold(tern_rewrite *r, int32_t number);

#endif
