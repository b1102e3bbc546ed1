/* build: what the builder's files share. Private to src/ir. */
#ifndef TERN_IR_BUILD_H
#define TERN_IR_BUILD_H
#include "rules.h"

/* Keeps `error` as the program's first one (later ones are dropped: they follow from it). Takes ownership. Returns TERN_NO_VALUE. */
tern_value tern_build_fail(tern_program *p, tern_status error);
/* What a caller settles of an operation's first result: `rank` < 0 where the operands settle it. */
typedef struct tern_proposal {
  tern_dtype dtype;
  int rank;
  const int64_t *dims;
} tern_proposal;
#define TERN_PROPOSE_NOTHING ((tern_proposal){TERN_F32, -1, NULL})
/* Asks the rule and appends. The first result, or TERN_NO_VALUE. */
tern_value tern_build(tern_program *p, tern_op_kind kind, int n_operands, const tern_value *operands, const tern_attrs *attrs, tern_proposal proposal);
/* True where v is a value of the program. Otherwise fails, naming the operation, unless an earlier error explains it. */
bool tern_build_check(tern_program *p, tern_op_kind kind, tern_value v);
/* Copies `n` dimension numbers; false, with an error, where n is out of range. */
bool tern_build_dims(tern_program *p, tern_op_kind kind, int n, const int *dims, int32_t *out);

#endif
