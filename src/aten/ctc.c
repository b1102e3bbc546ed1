/* ctc: connectionist temporal classification, forward and backward, by the recursions of aten/src/ATen/native/LossCTC.cpp over the label sequence with blanks between.
 *
 * Lengths and where a label stands in `targets` are data of the call, not part of a program's key: they come as one vector of numbers. The recursion over time is
 * unrolled. In comments T: time, B: batch, C: classes, S: the longest target, L = 2 S + 1. */
#include <math.h>
#include <stdlib.h>
#include "nonzero.h"

/* Beyond this a program gets long. */
enum { MOST_TIME = 2048 };
enum { BLANK, LONGEST, ZEROES_INFINITY }; /* attrs */

typedef struct lengths {
  int64_t longest;
  tern_scratch numbers; /* [B * (S + 2)]: places in the flat targets, input lengths, target lengths */
} lengths;

/* (log_probs [T, B, C], targets, input_lengths, target_lengths) from argument `first`. Drops what it made where it does not give TERN_RECORD. */
static tern_verdict read_lengths(const tern_call *call, int first, lengths *l, tern_status *status) {
  const tern_tensor *lp = tern_arg_tensor(call, first), *targets = tern_arg_tensor(call, first + 1);
  const int64_t *given[2];
  int n[2];
  l->longest = 0;
  l->numbers.tensor.buffer = NULL;
  if (!lp || !targets || lp->rank != 3 || targets->rank < 1 || targets->rank > 2) return TERN_REJECT;
  int64_t T = lp->sizes[0], B = lp->sizes[1], flat = 0;
  for (int i = 0; i < 2; i++)
    if (!tern_arg_ints(call, first + 2 + i, &n[i], &given[i]) || n[i] != B) return TERN_REJECT;
  if (lp->count == 0 || T > MOST_TIME || targets->dtype != TERN_I64 || targets->device != lp->device || (lp->dtype != TERN_F32 && lp->dtype != TERN_F64))
    return TERN_FALL_BACK;
  for (int64_t b = 0; b < B; b++) {
    if (given[0][b] < 0 || given[0][b] > T || given[1][b] < 0 || (targets->rank == 2 && given[1][b] > targets->sizes[1])) return TERN_REJECT;
    if (given[1][b] > l->longest) l->longest = given[1][b];
    flat += given[1][b];
  }
  if (targets->rank == 2 ? targets->sizes[0] != B : targets->count != flat) return TERN_REJECT;
  if (l->longest > 0 && targets->count == 0) return TERN_REJECT;
  int64_t size = B * (l->longest + 2), next = 0;
  int64_t *numbers = malloc((size_t)size * sizeof *numbers);
  if (!numbers) return TERN_FALL_BACK;
  for (int64_t b = 0, k = 0; b < B; b++) {
    for (int64_t s = 0; s < l->longest; s++) numbers[k++] = s >= given[1][b] ? 0 : targets->rank == 2 ? b * targets->sizes[1] + s : next + s;
    next += given[1][b];
  }
  for (int i = 0; i < 2; i++) memcpy(numbers + B * (l->longest + i), given[i], (size_t)B * sizeof *numbers);
  *status = tern_scratch_new(&l->numbers, lp->device, TERN_I64, 1, &size);
  if (!*status) *status = tern_buffer_write(l->numbers.tensor.buffer, TERN_I64, 1, &size, numbers);
  free(numbers);
  return TERN_RECORD;
}

/* (log_probs, targets, input_lengths, target_lengths, blank, zero_infinity) -> the losses [B], log alpha [B, T, L] */
static tern_verdict call_ctc(const tern_call *call, tern_status *status) {
  lengths l;
  tern_draft draft;
  tern_verdict verdict = read_lengths(call, 0, &l, status);
  if (verdict != TERN_RECORD) return verdict;
  const tern_tensor *lp = tern_arg_tensor(call, 0);
  int64_t blank = tern_arg_int(call, 4, 0);
  if (blank < 0 || blank >= lp->sizes[2]) verdict = TERN_REJECT;
  if (verdict == TERN_RECORD && !*status) {
    tern_draft_start(&draft);
    tern_draft_attrs(&draft, 2, (int64_t[]){blank, l.longest});
    verdict = tern_nn_operands(&draft, 3, (const tern_tensor *[]){lp, tern_arg_tensor(call, 1), &l.numbers.tensor});
    tern_draft_result(&draft, (tern_dtype)lp->dtype, 1, &lp->sizes[1]);
    tern_draft_result(&draft, (tern_dtype)lp->dtype, 3, (int64_t[]){lp->sizes[1], lp->sizes[0], 2 * l.longest + 1});
    if (verdict == TERN_RECORD) *status = tern_draft_record(call, &draft, call->row, NULL);
  }
  tern_scratch_drop(&l.numbers);
  return verdict;
}

/* (grad [B], log_probs, targets, input_lengths, target_lengths, losses, log_alpha, blank, zero_infinity) */
static tern_verdict call_ctc_backward(const tern_call *call, tern_status *status) {
  lengths l;
  tern_draft draft;
  const tern_tensor *grad = tern_arg_tensor(call, 0), *losses = tern_arg_tensor(call, 5), *alpha = tern_arg_tensor(call, 6);
  tern_verdict verdict = read_lengths(call, 1, &l, status);
  if (verdict != TERN_RECORD) return verdict;
  const tern_tensor *lp = tern_arg_tensor(call, 1);
  const int64_t sizes[3] = {lp->sizes[1], lp->sizes[0], 2 * l.longest + 1};
  if (!grad || !losses || !alpha || !tern_nn_has_sizes(grad, 1, sizes) || !tern_nn_has_sizes(losses, 1, sizes) || !tern_nn_has_sizes(alpha, 3, sizes) ||
      grad->dtype != lp->dtype)
    verdict = TERN_FALL_BACK;
  if (verdict == TERN_RECORD && !*status) {
    tern_draft_start(&draft);
    tern_draft_attrs(&draft, 3, (int64_t[]){tern_arg_int(call, 7, 0), l.longest, tern_arg_bool(call, 8, false)});
    verdict = tern_nn_operands(&draft, 6, (const tern_tensor *[]){lp, tern_arg_tensor(call, 2), &l.numbers.tensor, grad, losses, alpha});
    tern_draft_result(&draft, (tern_dtype)lp->dtype, 3, lp->sizes);
    if (verdict == TERN_RECORD) *status = tern_draft_record(call, &draft, call->row, NULL);
  }
  tern_scratch_drop(&l.numbers);
  return verdict;
}

/* ---- lowering ---- */

typedef struct ctc {
  tern_program *p;
  tern_dtype dtype;
  int64_t T, B, C, S, L;
  tern_value minus_infinity;
  tern_value labels;                      /* [B, L] with blanks */
  tern_value label_probs;                 /* [T, B, L]: the log probability of each label */
  tern_value input_lengths, target_lengths; /* [B, 1] */
  tern_value is_label;                    /* [B, L]: within the target and its blanks */
  tern_value skips;                       /* [B, L]: may come from two before */
} ctc;

static tern_value integer(tern_program *p, int64_t value) { return tern_constant_int(p, TERN_I64, 0, NULL, value); }

static tern_value cut(tern_program *p, tern_value x, int64_t from, int64_t to) { return tern_slice(p, x, &from, &to, (int64_t[]){1}); }

/* x [B, L] moved by `by` places along L; what comes in is `filler`. */
static tern_value moved(tern_program *p, tern_value x, int64_t by, tern_value filler) {
  return tern_pad(p, x, filler, (int64_t[]){0, by}, (int64_t[]){0, -by}, (int64_t[]){0, 0});
}

static tern_value at_time(const ctc *c, tern_value x, int64_t t) {
  const int64_t start[3] = {t, 0, 0}, limit[3] = {t + 1, c->B, c->L}, stride[3] = {1, 1, 1};
  return tern_reshape(c->p, tern_slice(c->p, x, start, limit, stride), 2, (int64_t[]){c->B, c->L});
}

static ctc ctc_of(const tern_lowering *node) {
  tern_program *p = node->program;
  const int64_t *dims = tern_value_dims(p, node->operands[0]);
  ctc c = {.p = p, .dtype = tern_value_dtype(p, node->operands[0]), .T = dims[0], .B = dims[1], .C = dims[2], .S = node->attrs[LONGEST]};
  c.L = 2 * c.S + 1;
  c.minus_infinity = tern_constant_float(p, c.dtype, 0, NULL, -INFINITY);
  tern_value numbers = node->operands[2], blank = integer(p, node->attrs[BLANK]);
  int64_t places = c.B * c.S, wide[2] = {c.B, c.L};
  c.input_lengths = tern_reshape(p, cut(p, numbers, places, places + c.B), 2, (int64_t[]){c.B, 1});
  c.target_lengths = tern_reshape(p, cut(p, numbers, places + c.B, places + 2 * c.B), 2, (int64_t[]){c.B, 1});
  if (c.S == 0) {
    c.labels = tern_broadcast_to(p, blank, 2, wide);
  } else {
    /* labels at the odd places of L, blanks at the even ones */
    tern_value labels = tern_take(p, tern_nn_flat(p, node->operands[1]), tern_reshape(p, cut(p, numbers, 0, places), 2, (int64_t[]){c.B, c.S}), 0);
    c.labels = tern_pad(p, labels, blank, (int64_t[]){0, 1}, (int64_t[]){0, 1}, (int64_t[]){0, 1});
  }
  tern_check_index(p, c.labels, 0, c.C - 1);
  tern_value index = tern_broadcast_to(p, tern_nn_unsqueeze(p, c.labels, 0), 3, (int64_t[]){c.T, c.B, c.L});
  c.label_probs = tern_gather(p, node->operands[0], index, 2);
  tern_value place = tern_iota(p, TERN_I64, 2, wide, 1), twice = tern_multiply(p, c.target_lengths, integer(p, 2));
  c.is_label = tern_compare(p, TERN_LE, place, tern_broadcast_to(p, twice, 2, wide));
  tern_value differs = tern_compare(p, TERN_NE, c.labels, moved(p, c.labels, 2, integer(p, -1)));
  c.skips = tern_and(p, tern_compare(p, TERN_NE, c.labels, blank), differs);
  return c;
}

/* The logarithm of the sum of the exponentials of three. */
static tern_value log_sum(const ctc *c, const tern_value *x) {
  tern_program *p = c->p;
  tern_value most = tern_maximum(p, tern_maximum(p, x[0], x[1]), x[2]), sum = TERN_NO_VALUE;
  most = tern_select(p, tern_nn_equals(p, most, c->minus_infinity), tern_nn_number(p, c->dtype, 0), most);
  for (int i = 0; i < 3; i++) {
    tern_value term = tern_exp(p, tern_subtract(p, x[i], most));
    sum = i ? tern_add(p, sum, term) : term;
  }
  return tern_add(p, tern_log(p, sum), most);
}

/* The steps [B, L], one for each time, as [B, T, L]. */
static tern_value joined(const ctc *c, tern_value *steps) {
  tern_value parts[64];
  int64_t n = c->T;
  for (int64_t t = 0; t < n; t++) steps[t] = tern_nn_unsqueeze(c->p, steps[t], 1);
  while (n > 1) {
    int64_t m = 0;
    for (int64_t t = 0; t < n; m++) {
      int k = 0;
      while (k < 64 && t < n) parts[k++] = steps[t++];
      steps[m] = k == 1 ? parts[0] : tern_concatenate(c->p, k, parts, 1);
    }
    n = m;
  }
  return steps[0];
}

static tern_status lower_ctc(const tern_lowering *node, tern_value *results) {
  tern_program *p = node->program;
  ctc c = ctc_of(node);
  tern_value *steps = malloc((size_t)c.T * sizeof *steps);
  if (!steps) return tern_error_new(TERN_OUT_OF_MEMORY, "no host memory to write a CTC loss as a program");
  const int64_t wide[2] = {c.B, c.L};
  tern_value first = tern_compare(p, TERN_LT, tern_iota(p, TERN_I64, 2, wide, 1), integer(p, 2));
  tern_value alpha = tern_select(p, tern_and(p, first, c.is_label), at_time(&c, c.label_probs, 0), c.minus_infinity);
  for (int64_t t = 0; t < c.T; t++) {
    if (t > 0) {
      tern_value from[3] = {alpha, moved(p, alpha, 1, c.minus_infinity), tern_select(p, c.skips, moved(p, alpha, 2, c.minus_infinity), c.minus_infinity)};
      alpha = tern_select(p, c.is_label, tern_add(p, log_sum(&c, from), at_time(&c, c.label_probs, t)), c.minus_infinity);
    }
    steps[t] = alpha;
  }
  results[1] = joined(&c, steps);
  free(steps);
  /* The last blank and the last label, at each sequence's end. */
  tern_value flat = tern_reshape(p, results[1], 2, (int64_t[]){c.B, c.T * c.L}), zero = integer(p, 0), one = integer(p, 1);
  tern_value last = tern_maximum(p, tern_subtract(p, c.input_lengths, one), zero), twice = tern_multiply(p, c.target_lengths, integer(p, 2)), ends[3];
  tern_value base = tern_multiply(p, last, integer(p, c.L)), has_label = tern_compare(p, TERN_GT, c.target_lengths, zero);
  ends[0] = tern_gather(p, flat, tern_add(p, base, twice), 1);
  ends[1] = tern_gather(p, flat, tern_add(p, base, tern_maximum(p, tern_subtract(p, twice, one), zero)), 1);
  ends[1] = tern_select(p, has_label, ends[1], c.minus_infinity);
  ends[2] = c.minus_infinity;
  tern_value loss = tern_negate(p, log_sum(&c, ends)), nothing = tern_select(p, has_label, tern_negate(p, c.minus_infinity), tern_nn_number(p, c.dtype, 0));
  results[0] = tern_nn_result(node, 0, tern_select(p, tern_nn_equals(p, c.input_lengths, zero), nothing, loss));
  return NULL;
}

static tern_status lower_ctc_backward(const tern_lowering *node, tern_value *results) {
  tern_program *p = node->program;
  ctc c = ctc_of(node);
  const int64_t wide[2] = {c.B, c.L}, all[3] = {c.T, c.B, c.L};
  tern_value *steps = malloc((size_t)c.T * sizeof *steps);
  if (!steps) return tern_error_new(TERN_OUT_OF_MEMORY, "no host memory to write a CTC loss as a program");
  tern_value place = tern_iota(p, TERN_I64, 2, wide, 1), one = integer(p, 1), twice = tern_multiply(p, c.target_lengths, integer(p, 2));
  tern_value is_end = tern_and(p, c.is_label, tern_compare(p, TERN_GE, place, tern_broadcast_to(p, tern_subtract(p, twice, one), 2, wide)));
  tern_value skips = moved(p, c.skips, -2, tern_constant_int(p, TERN_BOOL, 0, NULL, 0)), beta = tern_broadcast_to(p, c.minus_infinity, 2, wide);
  for (int64_t t = c.T - 1; t >= 0; t--) {
    tern_value from[3] = {beta, moved(p, beta, -1, c.minus_infinity), tern_select(p, skips, moved(p, beta, -2, c.minus_infinity), c.minus_infinity)};
    tern_value probs = at_time(&c, c.label_probs, t), inner = tern_add(p, log_sum(&c, from), probs);
    tern_value is_last = tern_nn_equals(p, c.input_lengths, integer(p, t + 1)), is_inside = tern_compare(p, TERN_GT, c.input_lengths, integer(p, t + 1));
    beta = tern_select(p, tern_and(p, tern_broadcast_to(p, is_last, 2, wide), is_end), probs, c.minus_infinity);
    beta = tern_select(p, tern_and(p, tern_broadcast_to(p, is_inside, 2, wide), c.is_label), inner, beta);
    steps[t] = beta;
  }
  tern_value both = tern_add(p, node->operands[5], joined(&c, steps));
  free(steps);
  both = tern_transpose(p, both, (const int[]){1, 0, 2});
  tern_value loss = tern_reshape(p, node->operands[4], 3, (int64_t[]){1, c.B, 1}), zero = tern_nn_number(p, c.dtype, 0);
  tern_value share = tern_exp(p, tern_subtract(p, tern_add(p, both, loss), c.label_probs));
  share = tern_select(p, tern_nn_equals(p, both, c.minus_infinity), zero, share);
  tern_value index = tern_broadcast_to(p, tern_nn_unsqueeze(p, c.labels, 0), 3, all);
  const int64_t *dims = node->outputs[0].view.sizes;
  tern_value shares = tern_scatter(p, tern_nn_zeros(p, c.dtype, 3, dims), index, share, 2, TERN_COMBINE_ADD);
  tern_value grad = tern_subtract(p, tern_exp(p, node->operands[0]), shares);
  /* No path at all: not a number, or nothing where infinities are to be zero. */
  tern_value is_impossible = tern_nn_equals(p, loss, tern_negate(p, c.minus_infinity));
  grad = tern_select(p, is_impossible, node->attrs[ZEROES_INFINITY] ? zero : tern_nn_number(p, c.dtype, (double)NAN), grad);
  grad = tern_multiply(p, grad, tern_reshape(p, node->operands[3], 3, (int64_t[]){1, c.B, 1}));
  tern_value time = tern_iota(p, TERN_I64, 3, (int64_t[]){c.T, 1, 1}, 0), until = tern_reshape(p, c.input_lengths, 3, (int64_t[]){1, c.B, 1});
  results[0] = tern_nn_result(node, 0, tern_select(p, tern_compare(p, TERN_LT, time, until), grad, zero));
  return NULL;
}

const tern_aten_row tern_aten_ctc[] = {
    {.functional = "_ctc_loss", .custom = call_ctc, .lower = lower_ctc},
    {.functional = "_ctc_loss_backward", .custom = call_ctc_backward, .lower = lower_ctc_backward},
};
TERN_ATEN_FAMILY_END(ctc)
