/* dot_general: the operation's dimensions become the m, n, k and batch of matrix products.
 *
 * Dimensions of one role that lie one behind the other in memory are merged; where a role still has several, the operand is found through
 * a table of offsets. Floating point goes to gemm (or to dot_narrow.c for vectors), integers and complex numbers to plain loops (dot_plain.c). */
#include "dot.h"

/* Dimensions of one role, outermost first, with both operands' strides. */
typedef struct role {
  int n;
  int64_t dims[TERN_MAX_RANK], strides[2][TERN_MAX_RANK];
  int64_t count;
} role;

static void role_add(role *r, int64_t dim, int64_t stride0, int64_t stride1) {
  r->count *= dim;
  if (dim == 1) return;
  int last = r->n - 1;
  if (r->n && r->strides[0][last] == stride0 * dim && r->strides[1][last] == stride1 * dim) {
    r->dims[last] *= dim;
    r->strides[0][last] = stride0;
    r->strides[1][last] = stride1;
    return;
  }
  r->dims[r->n] = dim;
  r->strides[0][r->n] = stride0;
  r->strides[1][r->n] = stride1;
  r->n++;
}

/* Offset tables, one behind the other. Where `entries` is NULL they are only measured. */
typedef struct offset_tables {
  int64_t *entries;
  int64_t used;
} offset_tables;

/* One operand's strides of a role: a single stride, or a table of offsets. */
static int64_t role_stride(const role *r, int which, const int64_t **offsets, offset_tables *tables) {
  static const int64_t unmeasured = 0; /* stands for a table whose place is not known yet */
  *offsets = NULL;
  role merged = {.count = 1};
  for (int i = 0; i < r->n; i++) role_add(&merged, r->dims[i], r->strides[which][i], 0);
  if (merged.n == 0) return 1; /* one index: any stride will do */
  if (merged.n == 1) return merged.strides[0][0];
  *offsets = &unmeasured;
  if (tables->entries) {
    int64_t *table = tables->entries + tables->used, filled = 1;
    *offsets = table;
    table[0] = 0;
    for (int i = merged.n - 1; i >= 0; i--) { /* each outer dimension repeats what the inner ones made */
      for (int64_t d = 1; d < merged.dims[i]; d++)
        for (int64_t j = 0; j < filled; j++) table[d * filled + j] = table[j] + d * merged.strides[0][i];
      filled *= merged.dims[i];
    }
  }
  tables->used += r->count;
  return 0;
}

static bool listed(const int32_t *list, int n, int dim) {
  for (int i = 0; i < n; i++)
    if (list[i] == dim) return true;
  return false;
}

/* See dot.h. */
size_t TERN_ISA_NAME(tern_dot_describe)(const tern_op *op, const tern_cpu_view *in, const tern_cpu_view *out, tern_gemm_product *g, int64_t *entries) {
  const tern_cpu_view *lhs = &in[0], *rhs = &in[1];
  int nb = op->attrs->dot.n_batch, nc = op->attrs->dot.n_contract;
  const int32_t *lb = op->attrs->dot.lhs_batch, *rb = op->attrs->dot.rhs_batch, *lc = op->attrs->dot.lhs_contract, *rc = op->attrs->dot.rhs_contract;
  role batch = {.count = 1}, rows = {.count = 1}, columns = {.count = 1}, contract = {.count = 1};
  for (int i = 0; i < nb; i++) role_add(&batch, lhs->dims[lb[i]], lhs->strides[lb[i]], rhs->strides[rb[i]]);
  for (int i = 0; i < nc; i++) role_add(&contract, lhs->dims[lc[i]], lhs->strides[lc[i]], rhs->strides[rc[i]]);
  for (int i = 0; i < lhs->rank; i++)
    if (!listed(lb, nb, i) && !listed(lc, nc, i)) role_add(&rows, lhs->dims[i], lhs->strides[i], 0);
  for (int i = 0; i < rhs->rank; i++)
    if (!listed(rb, nb, i) && !listed(rc, nc, i)) role_add(&columns, rhs->dims[i], 0, rhs->strides[i]);

  offset_tables tables = {.entries = entries};
  *g = (tern_gemm_product){.m = rows.count, .n = columns.count, .k = contract.count, .c = out->data, .c_dtype = out->dtype, .c_stride = columns.count};
  g->a = (tern_gemm_side){.data = lhs->data, .dtype = lhs->dtype};
  g->b = (tern_gemm_side){.data = rhs->data, .dtype = rhs->dtype};
  if (g->m && g->n && g->k) {
    g->a.outer_stride = role_stride(&rows, 0, &g->a.outer_offsets, &tables);
    g->a.k_stride = role_stride(&contract, 0, &g->a.k_offsets, &tables);
    g->b.outer_stride = role_stride(&columns, 1, &g->b.outer_offsets, &tables);
    g->b.k_stride = role_stride(&contract, 1, &g->b.k_offsets, &tables);
  }
  if (batch.count == 0) { /* empty, however it merged */
    g->n_batch_dims = 1;
    g->batch_dims[0] = 0;
  } else {
    g->n_batch_dims = batch.n;
    memcpy(g->batch_dims, batch.dims, sizeof g->batch_dims);
    memcpy(g->a_batch_strides, batch.strides[0], sizeof g->a_batch_strides);
    memcpy(g->b_batch_strides, batch.strides[1], sizeof g->b_batch_strides);
  }
  return ((size_t)tables.used * sizeof(int64_t) + 63) / 64 * 64;
}

static size_t dot_scratch(const tern_op *op, const tern_cpu_view *in, const tern_cpu_view *out) {
  tern_gemm_product g;
  size_t offsets = TERN_ISA_NAME(tern_dot_describe)(op, in, out, &g, NULL);
  return offsets + (tern_dtype_is_float(out->dtype) && g.m != 1 && g.n != 1 ? TERN_ISA_NAME(tern_gemm_scratch)(&g) : 0);
}

static tern_status dot_run(const tern_op *op, const tern_cpu_view *in, const tern_cpu_view *out, tern_kernel_context *context) {
  tern_gemm_product g;
  size_t offsets = TERN_ISA_NAME(tern_dot_describe)(op, in, out, &g, (int64_t *)(void *)context->scratch);
  if (!tern_dtype_is_float(out->dtype)) return TERN_ISA_NAME(tern_dot_plain)(&g);
  if (g.m == 1 || g.n == 1) TERN_ISA_NAME(tern_dot_narrow)(&g);
  else TERN_ISA_NAME(tern_gemm_run)(&g, context->scratch + offsets);
  return NULL;
}

void TERN_ISA_NAME(tern_register_dot)(tern_kernel *rows) { rows[TERN_OP_DOT] = (tern_kernel){.run = dot_run, .scratch = dot_scratch}; }
