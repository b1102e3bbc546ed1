/* Scaled dot-product attention and its gradient. With several query heads to one key head (H = Hk * group), queries are seen as [B, Hk, group, L, E], so that keys and
 * values are never repeated. The gradient recomputes the probabilities from lse, the logarithm of each row's sum. A row that attends to nothing gives 0, and 0 gradients. */
#include "composites.h"

typedef struct heads { int64_t B, Hk, group, L, S; } heads;

static heads heads_of(const tern_decomposition *d, int q) {
  const int64_t *Q = tern_value_dims(d->p, d->operands[q]), *K = tern_value_dims(d->p, d->operands[q + 1]);
  return (heads){Q[0], K[1], K[1] ? Q[1] / K[1] : 0, Q[2], K[2]};
}

/* [B, H, L, last] -> [B, Hk, group, L, last], wide */
static tern_value grouped(const tern_decomposition *d, const heads *h, int operand) {
  const int64_t *dims = tern_value_dims(d->p, d->operands[operand]);
  return tern_reshape(d->p, tern_part_wide(d, operand), 5, (int64_t[]){h->B, h->Hk, h->group, h->L, dims[3]});
}

static tern_value dot5(tern_program *p, tern_value x, tern_value y, int n, const int *x_contract, const int *y_contract) {
  static const int batch[] = {0, 1};
  return tern_dot(p, x, y, 2, batch, batch, n, x_contract, y_contract);
}

static tern_value minus_infinity(tern_program *p, tern_value like) { return tern_part_number(p, like, -(double)__builtin_inff()); }

/* A mask that broadcasts to [B, H, L, S], laid out to broadcast to [B, Hk, group, L, S]. */
static tern_value grouped_mask(tern_program *p, const heads *h, tern_value mask) {
  int rank = tern_value_rank(p, mask);
  int64_t four[4] = {1, 1, 1, 1};
  for (int i = 0; i < rank; i++) four[4 - rank + i] = tern_value_dims(p, mask)[i];
  bool per_head = four[1] != 1;
  return tern_reshape(p, mask, 5, (int64_t[]){four[0], per_head ? h->Hk : 1, per_head ? h->group : 1, four[2], four[3]});
}

/* scale q k^T [B, Hk, group, L, S], with -inf where nothing is to be attended to */
static tern_value scores(const tern_decomposition *d, const heads *h, tern_value q, tern_value k, tern_value mask, tern_value scale) {
  tern_program *p = d->p;
  tern_value s = dot5(p, q, k, 1, (int[]){4}, (int[]){3});
  s = tern_multiply(p, s, tern_convert(p, scale, tern_value_dtype(p, s)));
  if (mask != TERN_NO_VALUE) {
    tern_value m = grouped_mask(p, h, mask);
    if (tern_value_dtype(p, m) == TERN_BOOL) s = tern_select(p, m, s, minus_infinity(p, s));
    else s = tern_add(p, s, tern_convert(p, m, tern_value_dtype(p, s)));
  }
  if (d->op->attrs->ints[0]) {
    int64_t square[2] = {h->L, h->S};
    tern_value sees = tern_compare(p, TERN_GE, tern_iota(p, TERN_I64, 2, square, 0), tern_iota(p, TERN_I64, 2, square, 1));
    s = tern_select(p, sees, s, minus_infinity(p, s));
  }
  return s;
}

void tern_decompose_attention(const tern_decomposition *d) {
  tern_program *p = d->p;
  heads h = heads_of(d, 0);
  static const int last[] = {4};
  tern_value k = tern_part_wide(d, 1), v = tern_part_wide(d, 2), s = scores(d, &h, grouped(d, &h, 0), k, d->operands[3], d->operands[4]);
  tern_value zero = tern_part_number(p, s, 0), lowest = minus_infinity(p, s);
  tern_value most = tern_part_reduce_keep(p, TERN_MAX, s, 1, last);
  most = tern_select(p, tern_compare(p, TERN_EQ, most, lowest), zero, most); /* -inf - -inf would be NaN */
  tern_value e = tern_exp(p, tern_subtract(p, s, most)), sum = tern_part_reduce_keep(p, TERN_SUM, e, 1, last);
  tern_value weighted = dot5(p, e, v, 1, last, (int[]){2});
  tern_value nothing = tern_compare(p, TERN_EQ, sum, zero);
  tern_part_result(d, 0, tern_divide(p, weighted, tern_select(p, nothing, tern_part_number(p, s, 1), sum)));
  tern_part_result(d, 1, tern_add(p, most, tern_log(p, sum)));
}

void tern_decompose_attention_grad(const tern_decomposition *d) {
  tern_program *p = d->p;
  heads h = heads_of(d, 1);
  static const int keys[] = {4}, rows[] = {2, 3};
  tern_value gout = grouped(d, &h, 0), q = grouped(d, &h, 1), k = tern_part_wide(d, 2), v = tern_part_wide(d, 3), out = grouped(d, &h, 4), scale = d->operands[7];
  tern_value s = scores(d, &h, q, k, d->operands[6], scale);
  tern_value lse = tern_reshape(p, tern_convert(p, d->operands[5], tern_value_dtype(p, s)), 5, (int64_t[]){h.B, h.Hk, h.group, h.L, 1});
  tern_value masked = tern_compare(p, TERN_EQ, s, minus_infinity(p, s));
  tern_value probability = tern_select(p, masked, tern_part_number(p, s, 0), tern_exp(p, tern_subtract(p, s, lse)));
  tern_value gprobability = dot5(p, gout, v, 1, keys, (int[]){3});
  tern_value row = tern_part_reduce_keep(p, TERN_SUM, tern_multiply(p, gout, out), 1, keys);
  tern_value gscores = tern_multiply(p, tern_multiply(p, probability, tern_subtract(p, gprobability, row)), tern_convert(p, scale, tern_value_dtype(p, s)));
  tern_part_result(d, 0, dot5(p, gscores, k, 1, keys, (int[]){2}));
  tern_part_result(d, 1, dot5(p, gscores, q, 2, rows, rows));
  tern_part_result(d, 2, dot5(p, probability, gout, 2, rows, rows));
}
