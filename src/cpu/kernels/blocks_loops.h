/* blocks_loops: how an instruction of the block interpreter is written: a loop that the compiler makes into vectors. */
#ifndef TERN_BLOCKS_LOOPS_H
#define TERN_BLOCKS_LOOPS_H
#include "../blocks.h"
#include "kernels.h"

/* Element i of the result may lie on element i of an operand, never elsewhere: iterations are independent. */
#define BLOCK_FOR _Pragma("GCC ivdep") for (int64_t i = 0; i < n; i++)

#define BLOCK_UNARY(name, FROM, TO, expression)                                                     \
  static void name(void *out, const void *a, const void *b, const void *c, int64_t n) {             \
    (void)b, (void)c;                                                                               \
    TO *o = out;                                                                                    \
    const FROM *p = a;                                                                              \
    BLOCK_FOR {                                                                                     \
      const FROM x = p[i];                                                                          \
      o[i] = (TO)(expression);                                                                      \
    }                                                                                               \
  }
#define BLOCK_BINARY(name, FROM, TO, expression)                                                    \
  static void name(void *out, const void *a, const void *b, const void *c, int64_t n) {             \
    (void)c;                                                                                        \
    TO *o = out;                                                                                    \
    const FROM *p = a, *q = b;                                                                      \
    BLOCK_FOR {                                                                                     \
      const FROM x = p[i], y = q[i];                                                                \
      o[i] = (TO)(expression);                                                                      \
    }                                                                                               \
  }
#endif
