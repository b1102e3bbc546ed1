/* Making a program one that a plug-in can be given: composites become their decompositions, and what the target lacks is refused in words.
 * Called by executable.c. */
#include <strings.h>
#include "pjrt.h"

#define BIT(dtype) (1u << TERN_##dtype)

/* What plug-ins do not tell themselves. A platform that is not listed is taken to have everything; its compiler then says what it lacks.
 * Only XLA's CPU was tried here; the other rows are from the vendors' documentation. */
static const tern_pjrt_target targets[] = {
    {"cpu", 0, true, true},
    {"tpu", BIT(C128), false, false},
    {"metal", BIT(F64) | BIT(C64) | BIT(C128), false, false},
    {"neuron", BIT(F64) | BIT(C64) | BIT(C128), false, false},
    {"tt", BIT(F64) | BIT(I64) | BIT(U64) | BIT(C64) | BIT(C128), false, false},
    {"", 0, false, false},
};

const tern_pjrt_target *tern_pjrt_target_of(const char *platform_name) {
  const tern_pjrt_target *target = targets;
  while (strncasecmp(platform_name, target->platform, strlen(target->platform))) target++; /* the last row is every name's start */
  return target;
}

/* What text.c and its siblings write. Everything else has a decomposition into these. */
static bool is_written(tern_op_kind kind) {
  switch (kind) {
    case TERN_OP_ERF: case TERN_OP_ERFC: case TERN_OP_LGAMMA: case TERN_OP_PHILOX: return false;
    default: return tern_op_rows[kind].class != TERN_CLASS_COMPOSITE;
  }
}

tern_status tern_pjrt_legalise(const tern_program *program, const tern_pjrt_target *target, const char *platform_name, tern_program **out) {
  TERN_TRY(tern_program_decompose(program, is_written, out));
  const tern_program *legal = *out;
  tern_status status = NULL;
  for (int32_t o = 0; o < legal->n_ops && !status; o++) {
    const tern_op *op = &legal->ops[o];
    const char *name = tern_op_rows[op->kind].name;
    if (!is_written(op->kind)) status = tern_error_new(TERN_INTERNAL, "internal error: no decomposition of %s for a PJRT plug-in; please report it", name);
    for (int32_t r = 0; r < op->n_results && !status; r++) {
      tern_dtype dtype = legal->values[op->first_result + r].dtype;
      if (target->lacks & 1u << dtype)
        status = tern_error_new(TERN_UNSUPPORTED, "%s has no %s, which %s gives here: use another dtype, or keep this part on the CPU", platform_name,
                                tern_dtype_name(dtype), name);
    }
  }
  if (status) {
    tern_program_free(*out);
    *out = NULL;
  }
  return status;
}
