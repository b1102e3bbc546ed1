/* softmax and log-softmax along one dimension, and their gradients. A line that is -inf throughout gives NaN, as in PyTorch. */
#include "composites.h"

static tern_value less_max(tern_program *p, tern_value x, int dim) { return tern_subtract(p, x, tern_part_reduce_keep(p, TERN_MAX, x, 1, &dim)); }

void tern_decompose_softmax(const tern_decomposition *d) {
  tern_program *p = d->p;
  int dim = (int)d->op->attrs->ints[0];
  tern_value e = tern_exp(p, less_max(p, tern_part_wide(d, 0), dim));
  tern_part_result(d, 0, tern_divide(p, e, tern_part_reduce_keep(p, TERN_SUM, e, 1, &dim)));
}

void tern_decompose_log_softmax(const tern_decomposition *d) {
  tern_program *p = d->p;
  int dim = (int)d->op->attrs->ints[0];
  tern_value x = less_max(p, tern_part_wide(d, 0), dim);
  tern_part_result(d, 0, tern_subtract(p, x, tern_log(p, tern_part_reduce_keep(p, TERN_SUM, tern_exp(p, x), 1, &dim))));
}

/* gx = y (gy - sum(gy y)) */
void tern_decompose_softmax_grad(const tern_decomposition *d) {
  tern_program *p = d->p;
  int dim = (int)d->op->attrs->ints[0];
  tern_value gy = tern_part_wide(d, 0), y = tern_part_wide(d, 1);
  tern_part_result(d, 0, tern_multiply(p, y, tern_subtract(p, gy, tern_part_reduce_keep(p, TERN_SUM, tern_multiply(p, gy, y), 1, &dim))));
}

/* gx = gy - exp(y) sum(gy) */
void tern_decompose_log_softmax_grad(const tern_decomposition *d) {
  tern_program *p = d->p;
  int dim = (int)d->op->attrs->ints[0];
  tern_value gy = tern_part_wide(d, 0), y = tern_part_wide(d, 1);
  tern_part_result(d, 0, tern_subtract(p, gy, tern_multiply(p, tern_exp(p, y), tern_part_reduce_keep(p, TERN_SUM, gy, 1, &dim))));
}
