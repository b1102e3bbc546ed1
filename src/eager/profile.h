/* profile: events for profilers. Python starts and stops it; worker.c reports launches. */
#ifndef TERN_EAGER_PROFILE_H
#define TERN_EAGER_PROFILE_H
#include "eager.h"

/* A kernel, or on backends that do not show theirs a whole program. */
typedef struct tern_profile_event {
  const char *kernel;    /* "dot", "loop", "program"; static text */
  char *operators;       /* PyTorch's operators in it: "add mul tanh" */
  int32_t n_operators;
  uint32_t line;         /* diag: the line most of them come from */
  int device;
  int64_t program;       /* the number of the program, in order of compilation; 0: run once, not kept */
  int64_t start, end;    /* nanoseconds of tern_now's clock */
  int64_t flops, bytes;  /* of tern_kernel_event; 0: unknown */
} tern_profile_event;

void tern_profile_start(void); /* forgets what was noted before */
void tern_profile_stop(void);
/* In the order they ran. Gives how many more were lost: at most a million are kept. */
int64_t tern_profile_each(void (*each)(void *context, const tern_profile_event *event), void *context);
#endif
