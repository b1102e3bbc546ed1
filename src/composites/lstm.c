/* An LSTM's steps and their gradients (S. Hochreiter, J. Schmidhuber 1997; PyTorch's gates: input, forget, candidate, output), one after the other: programs have no loops. */
#include "composites.h"

typedef struct lstm { int64_t steps, batch, hidden; bool reverse; } lstm;

static lstm lstm_of(const tern_decomposition *d, int gates) {
  const int64_t *dims = tern_value_dims(d->p, d->operands[gates]);
  return (lstm){dims[0], dims[1], dims[2] / 4, d->op->attrs->ints[0] != 0};
}

/* Columns [from, to) of row t of [T, B, width] as [B, to - from]. */
static tern_value at_step(tern_program *p, tern_value x, int64_t t, int64_t from, int64_t to) {
  const int64_t batch = tern_value_dims(p, x)[1];
  tern_value row = tern_slice(p, x, (int64_t[]){t, 0, from}, (int64_t[]){t + 1, batch, to}, (int64_t[]){1, 1, 1});
  return tern_reshape(p, row, 2, (int64_t[]){batch, to - from});
}
static tern_value gate(tern_program *p, tern_value gates, int number, int64_t hidden) {
  return tern_slice(p, gates, (int64_t[]){0, number * hidden}, (int64_t[]){tern_value_dims(p, gates)[0], (number + 1) * hidden}, (int64_t[]){1, 1});
}
static tern_value as_row(tern_program *p, tern_value x) { return tern_reshape(p, x, 3, (int64_t[]){1, tern_value_dims(p, x)[0], tern_value_dims(p, x)[1]}); }
static tern_value product(tern_program *p, tern_value x, tern_value w, int contracted) {
  return tern_dot(p, x, w, 0, NULL, NULL, 1, (int[]){1}, (int[]){contracted});
}
static tern_value one_minus_square(tern_program *p, tern_value x) { return tern_subtract(p, tern_part_number(p, x, 1), tern_multiply(p, x, x)); }
static tern_value slope_of_logistic(tern_program *p, tern_value x) { return tern_multiply(p, x, tern_subtract(p, tern_part_number(p, x, 1), x)); }

/* Rows, in the order of the steps, as [T, ...]. */
static tern_value in_time(tern_program *p, const lstm *l, tern_value *rows) {
  for (int64_t i = 0; l->reverse && i < l->steps / 2; i++) {
    tern_value row = rows[i];
    rows[i] = rows[l->steps - 1 - i];
    rows[l->steps - 1 - i] = row;
  }
  return tern_concatenate(p, (int)l->steps, rows, 0);
}

/* The rows of three results, or an empty answer. */
static tern_value *rows_for(const tern_decomposition *d, const lstm *l) {
  tern_value *rows = l->steps && !d->p->error ? malloc((size_t)l->steps * 3 * sizeof *rows) : NULL;
  for (int i = 0; i < 3 && !rows; i++) d->out[i] = tern_part_zeros(d, i);
  return rows;
}

void tern_decompose_lstm(const tern_decomposition *d) {
  tern_program *p = d->p;
  const lstm l = lstm_of(d, 0);
  tern_value h = d->operands[3], c = d->operands[4], *rows = rows_for(d, &l);
  if (!rows) return;
  for (int64_t s = 0; s < l.steps; s++) {
    tern_value from_state = product(p, h, d->operands[1], 1), part[4];
    if (tern_part_has(d, 2)) from_state = tern_add(p, from_state, tern_reshape(p, d->operands[2], 2, (int64_t[]){1, 4 * l.hidden}));
    tern_value gates = tern_add(p, at_step(p, d->operands[0], l.reverse ? l.steps - 1 - s : s, 0, 4 * l.hidden), from_state);
    for (int g = 0; g < 4; g++) part[g] = g == 2 ? tern_tanh(p, gate(p, gates, g, l.hidden)) : tern_logistic(p, gate(p, gates, g, l.hidden));
    c = tern_add(p, tern_multiply(p, part[1], c), tern_multiply(p, part[0], part[2]));
    h = tern_multiply(p, part[3], tern_tanh(p, c));
    rows[s] = as_row(p, h);
    rows[l.steps + s] = as_row(p, c);
    rows[2 * l.steps + s] = as_row(p, tern_concatenate(p, 4, part, 1));
  }
  for (int i = 0; i < 3; i++) d->out[i] = in_time(p, &l, rows + i * l.steps);
  free(rows);
}

void tern_decompose_lstm_grad(const tern_decomposition *d) {
  tern_program *p = d->p;
  const lstm l = lstm_of(d, 3);
  const int64_t n = l.hidden;
  tern_value gh = d->operands[1], gc = d->operands[2], *rows = rows_for(d, &l);
  if (!rows) {
    for (int i = 0; i < 2 && !p->error; i++)
      if (tern_part_has(d, 1 + i)) d->out[1 + i] = d->operands[1 + i];
    return;
  }
  for (int64_t s = l.steps - 1; s >= 0; s--) {
    const int64_t t = l.reverse ? l.steps - 1 - s : s, before = l.reverse ? t + 1 : t - 1;
    tern_value part[4], squashed = tern_tanh(p, at_step(p, d->operands[4], t, 0, n)), old = s == 0 ? d->operands[5] : at_step(p, d->operands[4], before, 0, n), slope[4];
    for (int g = 0; g < 4; g++) part[g] = at_step(p, d->operands[3], t, g * n, (g + 1) * n);
    if (tern_part_has(d, 0)) {
      tern_value gy = at_step(p, d->operands[0], t, 0, n);
      gh = gh == TERN_NO_VALUE ? gy : tern_add(p, gh, gy);
    }
    if (gh == TERN_NO_VALUE) gh = tern_constant_int(p, TERN_F32, 2, (int64_t[]){l.batch, n}, 0);
    tern_value through = tern_multiply(p, tern_multiply(p, gh, part[3]), one_minus_square(p, squashed));
    gc = gc == TERN_NO_VALUE ? through : tern_add(p, gc, through);
    slope[0] = tern_multiply(p, tern_multiply(p, gc, part[2]), slope_of_logistic(p, part[0]));
    slope[1] = tern_multiply(p, tern_multiply(p, gc, old), slope_of_logistic(p, part[1]));
    slope[2] = tern_multiply(p, tern_multiply(p, gc, part[0]), one_minus_square(p, part[2]));
    slope[3] = tern_multiply(p, tern_multiply(p, gh, squashed), slope_of_logistic(p, part[3]));
    tern_value gates = tern_concatenate(p, 4, slope, 1);
    rows[s] = as_row(p, gates);
    gh = product(p, gates, d->operands[6], 0);
    gc = tern_multiply(p, gc, part[1]);
  }
  d->out[0] = in_time(p, &l, rows);
  d->out[1] = gh;
  d->out[2] = gc;
  free(rows);
}
