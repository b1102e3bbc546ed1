/* Layer and batch normalisation and their gradients. Both subtract a mean and divide by a standard deviation over some dimensions; they differ in which, and in where
 * the weights lie. The variance is the mean square of the deviations, which no large mean can spoil. */
#include "composites.h"

typedef struct norm {
  int n;                    /* the dimensions normalised over */
  int dims[TERN_MAX_RANK];
  double count;             /* elements in one group */
  int rank;
  int64_t weight_dims[TERN_MAX_RANK]; /* weights, with dims of size 1 where they do not vary */
  int n_outer;              /* the dimensions that the weights' gradients sum over */
  int outer[TERN_MAX_RANK];
} norm;

static norm layer_shape(const tern_decomposition *d, int x) {
  norm s = {.rank = tern_value_rank(d->p, d->operands[x]), .count = 1};
  int first = s.rank - (int)d->op->attrs->ints[0];
  for (int i = 0; i < s.rank; i++) {
    int64_t size = tern_value_dims(d->p, d->operands[x])[i];
    if (i < first) s.outer[s.n_outer++] = i;
    else s.dims[s.n++] = i;
    s.weight_dims[i] = i < first ? 1 : size;
    s.count *= i < first ? 1 : (double)size;
  }
  return s;
}

static norm batch_shape(const tern_decomposition *d, int x) {
  norm s = {.rank = tern_value_rank(d->p, d->operands[x]), .count = 1};
  for (int i = 0; i < s.rank; i++) {
    int64_t size = tern_value_dims(d->p, d->operands[x])[i];
    if (i != 1) s.outer[s.n_outer++] = s.dims[s.n++] = i;
    s.weight_dims[i] = i == 1 ? size : 1;
    s.count *= i == 1 ? 1 : (double)size;
  }
  return s;
}

static tern_value mean_keep(tern_program *p, const norm *s, tern_value x) {
  tern_value sum = tern_part_reduce_keep(p, TERN_SUM, x, s->n, s->dims);
  return tern_divide(p, sum, tern_part_number(p, x, s->count));
}

/* An operand with the weights' elements, wide and laid out to stretch over x. */
static tern_value weight(const tern_decomposition *d, const norm *s, int operand) { return tern_reshape(d->p, tern_part_wide(d, operand), s->rank, s->weight_dims); }

/* Operands x, weight?, bias?, eps. Gives y as result 0, and the statistics. */
static void normalise(const tern_decomposition *d, const norm *s, tern_value *mean, tern_value *variance, tern_value *rstd) {
  tern_program *p = d->p;
  tern_value x = tern_part_wide(d, 0);
  *mean = mean_keep(p, s, x);
  tern_value centred = tern_subtract(p, x, *mean);
  *variance = mean_keep(p, s, tern_multiply(p, centred, centred));
  *rstd = tern_rsqrt(p, tern_add(p, *variance, tern_convert(p, d->operands[3], tern_value_dtype(p, x))));
  tern_value y = tern_multiply(p, centred, *rstd);
  if (tern_part_has(d, 1)) y = tern_multiply(p, y, weight(d, s, 1));
  if (tern_part_has(d, 2)) y = tern_add(p, y, weight(d, s, 2));
  tern_part_result(d, 0, y);
}

void tern_decompose_layer_norm(const tern_decomposition *d) {
  norm s = layer_shape(d, 0);
  tern_value mean, variance, rstd;
  normalise(d, &s, &mean, &variance, &rstd);
  tern_part_result(d, 1, mean);
  tern_part_result(d, 2, rstd);
}

void tern_decompose_batch_norm(const tern_decomposition *d) {
  norm s = batch_shape(d, 0);
  tern_value mean, variance, rstd;
  normalise(d, &s, &mean, &variance, &rstd);
  tern_part_result(d, 1, mean);
  tern_part_result(d, 2, rstd);
  tern_part_result(d, 3, variance);
}

/* With g = gy * weight and n the normalised x:
 *   gx = rstd (g - mean(g) - n mean(g n)),  gweight = sum(gy n),  gbias = sum(gy).
 * Where the statistics are constants (batch norm in evaluation), gx = rstd g. */
static void normalise_grad(const tern_decomposition *d, const norm *s, tern_value mean, tern_value rstd, int weight_operand, bool statistics_vary) {
  tern_program *p = d->p;
  tern_value gy = tern_part_wide(d, 0), x = tern_part_wide(d, 1);
  tern_value normal = tern_multiply(p, tern_subtract(p, x, mean), rstd);
  tern_value g = tern_part_has(d, weight_operand) ? tern_multiply(p, gy, weight(d, s, weight_operand)) : gy;
  tern_value inner = g;
  if (statistics_vary) {
    tern_value through_mean = mean_keep(p, s, g), through_rstd = tern_multiply(p, normal, mean_keep(p, s, tern_multiply(p, g, normal)));
    inner = tern_subtract(p, tern_subtract(p, g, through_mean), through_rstd);
  }
  tern_part_result(d, 0, tern_multiply(p, inner, rstd));
  tern_part_result(d, 1, tern_reduce(p, TERN_SUM, tern_multiply(p, gy, normal), s->n_outer, s->outer));
  tern_part_result(d, 2, tern_reduce(p, TERN_SUM, gy, s->n_outer, s->outer));
}

void tern_decompose_layer_norm_grad(const tern_decomposition *d) {
  norm s = layer_shape(d, 1);
  normalise_grad(d, &s, d->operands[2], d->operands[3], 4, true);
}

void tern_decompose_batch_norm_grad(const tern_decomposition *d) {
  norm s = batch_shape(d, 1);
  tern_value mean = tern_reshape(d->p, d->operands[3], s.rank, s.weight_dims), invstd = tern_reshape(d->p, d->operands[4], s.rank, s.weight_dims);
  normalise_grad(d, &s, mean, invstd, 2, d->op->attrs->ints[0] != 0);
}
