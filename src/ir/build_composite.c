/* build_composite: the builder's named composites. Each is one operation here; src/composites knows what it stands for. */
#include "build.h"

/* Appends a composite and lists its results, all TERN_NO_VALUE on an error. */
static void several(tern_program *p, tern_op_kind kind, int n_operands, const tern_value *operands, const tern_attrs *attrs, tern_proposal proposal, tern_value *results) {
  tern_value first = tern_build(p, kind, n_operands, operands, attrs, proposal);
  for (int i = 0; i < tern_op_rows[kind].results; i++) results[i] = first == TERN_NO_VALUE ? TERN_NO_VALUE : first + i;
}

static tern_value with_int(tern_program *p, tern_op_kind kind, int n_operands, const tern_value *operands, int64_t value) {
  return tern_build(p, kind, n_operands, operands, &(tern_attrs){.ints = {value}}, TERN_PROPOSE_NOTHING);
}

tern_value tern_softmax(tern_program *p, tern_value x, int dim) { return with_int(p, TERN_OP_SOFTMAX, 1, &x, dim); }
tern_value tern_log_softmax(tern_program *p, tern_value x, int dim) { return with_int(p, TERN_OP_LOG_SOFTMAX, 1, &x, dim); }
tern_value tern_softmax_grad(tern_program *p, tern_value gy, tern_value y, int dim) { return with_int(p, TERN_OP_SOFTMAX_GRAD, 2, (tern_value[]){gy, y}, dim); }
tern_value tern_log_softmax_grad(tern_program *p, tern_value gy, tern_value y, int dim) { return with_int(p, TERN_OP_LOG_SOFTMAX_GRAD, 2, (tern_value[]){gy, y}, dim); }
tern_value tern_gelu(tern_program *p, tern_value x, bool tanh_form) { return with_int(p, TERN_OP_GELU, 1, &x, tanh_form); }
tern_value tern_gelu_grad(tern_program *p, tern_value gy, tern_value x, bool tanh_form) { return with_int(p, TERN_OP_GELU_GRAD, 2, (tern_value[]){gy, x}, tanh_form); }

void tern_layer_norm(tern_program *p, tern_value x, tern_value weight, tern_value bias, tern_value eps, int n_dims, tern_value results[3]) {
  several(p, TERN_OP_LAYER_NORM, 4, (tern_value[]){x, weight, bias, eps}, &(tern_attrs){.ints = {n_dims}}, TERN_PROPOSE_NOTHING, results);
}

void tern_layer_norm_grad(tern_program *p, tern_value gy, tern_value x, tern_value mean, tern_value rstd, tern_value weight, int n_dims, tern_value results[3]) {
  several(p, TERN_OP_LAYER_NORM_GRAD, 5, (tern_value[]){gy, x, mean, rstd, weight}, &(tern_attrs){.ints = {n_dims}}, TERN_PROPOSE_NOTHING, results);
}

void tern_batch_norm(tern_program *p, tern_value x, tern_value weight, tern_value bias, tern_value eps, tern_value results[4]) {
  several(p, TERN_OP_BATCH_NORM, 4, (tern_value[]){x, weight, bias, eps}, NULL, TERN_PROPOSE_NOTHING, results);
}

void tern_batch_norm_grad(tern_program *p, tern_value gy, tern_value x, tern_value weight, tern_value mean, tern_value invstd, bool training, tern_value results[3]) {
  several(p, TERN_OP_BATCH_NORM_GRAD, 5, (tern_value[]){gy, x, weight, mean, invstd}, &(tern_attrs){.ints = {training}}, TERN_PROPOSE_NOTHING, results);
}

void tern_attention(tern_program *p, tern_value q, tern_value k, tern_value v, tern_value mask, tern_value scale, bool causal, tern_value results[2]) {
  several(p, TERN_OP_ATTENTION, 5, (tern_value[]){q, k, v, mask, scale}, &(tern_attrs){.ints = {causal}}, TERN_PROPOSE_NOTHING, results);
}

void tern_attention_grad(tern_program *p, tern_value gout, tern_value q, tern_value k, tern_value v, tern_value out, tern_value lse, tern_value mask, tern_value scale, bool causal,
                         tern_value results[3]) {
  several(p, TERN_OP_ATTENTION_GRAD, 8, (tern_value[]){gout, q, k, v, out, lse, mask, scale}, &(tern_attrs){.ints = {causal}}, TERN_PROPOSE_NOTHING, results);
}

/* ---- pooling: the dims of y are x's batch and channels and the spatial sizes the caller gives ---- */
static bool pooled_dims(tern_program *p, tern_op_kind kind, tern_value x, const tern_window *window, const int64_t *y_spatial, int64_t *dims) {
  if (!tern_build_check(p, kind, x)) return false;
  if (window->spatial < 1 || window->spatial > 3 || p->values[x].rank != window->spatial + 2) {
    tern_build_fail(p, tern_error_new(TERN_INVALID_ARGUMENT, "%s: an input of rank %d does not fit %d spatial dimensions (1, 2 or 3) behind batch and channels", tern_op_rows[kind].name,
                                      (int)p->values[x].rank, (int)window->spatial));
    return false;
  }
  memcpy(dims, p->values[x].dims, 2 * sizeof *dims);
  memcpy(dims + 2, y_spatial, (size_t)window->spatial * sizeof *dims);
  return true;
}

void tern_max_pool(tern_program *p, tern_value x, const tern_window *window, const int64_t *y_spatial, tern_value results[2]) {
  int64_t dims[TERN_MAX_RANK];
  results[0] = results[1] = TERN_NO_VALUE;
  if (!pooled_dims(p, TERN_OP_MAX_POOL, x, window, y_spatial, dims)) return;
  several(p, TERN_OP_MAX_POOL, 1, &x, &(tern_attrs){.window = *window}, (tern_proposal){TERN_F32, window->spatial + 2, dims}, results);
}

void tern_lstm(tern_program *p, tern_value gates, tern_value w, tern_value bias, tern_value hidden, tern_value cell, bool reverse, tern_value results[3]) {
  several(p, TERN_OP_LSTM, 5, (tern_value[]){gates, w, bias, hidden, cell}, &(tern_attrs){.ints = {reverse}}, TERN_PROPOSE_NOTHING, results);
}

void tern_lstm_grad(tern_program *p, tern_value gstates, tern_value ghidden, tern_value gcell, tern_value activated, tern_value cells, tern_value cell, tern_value w, bool reverse,
                    tern_value results[3]) {
  several(p, TERN_OP_LSTM_GRAD, 7, (tern_value[]){gstates, ghidden, gcell, activated, cells, cell, w}, &(tern_attrs){.ints = {reverse}}, TERN_PROPOSE_NOTHING, results);
}

tern_value tern_max_pool_grad(tern_program *p, tern_value gy, tern_value index, const tern_window *window, const int64_t *x_dims) {
  if (!tern_build_check(p, TERN_OP_MAX_POOL_GRAD, gy)) return TERN_NO_VALUE;
  return tern_build(p, TERN_OP_MAX_POOL_GRAD, 2, (tern_value[]){gy, index}, &(tern_attrs){.window = *window}, (tern_proposal){TERN_F32, p->values[gy].rank, x_dims});
}

tern_value tern_avg_pool(tern_program *p, tern_value x, const tern_window *window, const int64_t *y_spatial) {
  int64_t dims[TERN_MAX_RANK];
  if (!pooled_dims(p, TERN_OP_AVG_POOL, x, window, y_spatial, dims)) return TERN_NO_VALUE;
  return tern_build(p, TERN_OP_AVG_POOL, 1, &x, &(tern_attrs){.window = *window}, (tern_proposal){TERN_F32, window->spatial + 2, dims});
}

tern_value tern_avg_pool_grad(tern_program *p, tern_value gy, const tern_window *window, const int64_t *x_dims) {
  return tern_build(p, TERN_OP_AVG_POOL_GRAD, 1, &gy, &(tern_attrs){.window = *window}, (tern_proposal){TERN_F32, window->spatial + 2, x_dims});
}
