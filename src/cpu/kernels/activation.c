/* GELU and its gradient, both forms. The formulas are in activation.h, the loops in activation_rows.h. */
#include "real.h"

enum { RUN = 1024, CHUNK_ELEMENTS = 16 * RUN };

typedef struct activation_job {
  const char *a, *b; /* x; or gy and x */
  char *out;
  tern_dtype dtype;
  bool tanh_form;
  int64_t n;
} activation_job;

#include "real_f32.h"
#include "activation.h"
#include "activation_rows.h"
#include "real_f64.h"
#include "activation.h"
#include "activation_rows.h"

static tern_status activation_run(const tern_op *op, const tern_cpu_view *in, const tern_cpu_view *out, tern_kernel_context *context) {
  (void)context;
  activation_job job = {.a = in[0].data, .b = op->n_operands == 2 ? in[1].data : NULL, .out = out->data, .dtype = out->dtype,
                        .tanh_form = op->attrs->ints[0] != 0, .n = tern_view_count(out)};
  tern_pool_run(tern_ceil_div(job.n, CHUNK_ELEMENTS), out->dtype == TERN_F64 ? activation_chunk_f64 : activation_chunk_f32, &job);
  return NULL;
}

void TERN_ISA_NAME(tern_register_activation)(tern_kernel *rows) {
  rows[TERN_OP_GELU] = (tern_kernel){.run = activation_run, .dense_inputs = 1u, .reuse = 1u};
  rows[TERN_OP_GELU_GRAD] = (tern_kernel){.run = activation_run, .dense_inputs = 3u, .reuse = 3u};
}
