/* A whole product for one element type: included by gemm_run.c with T, REAL and DTYPE defined. */
#define NAME_(name, T) name##_##T
#define NAME(name, T) NAME_(name, T)
#define STRIP NAME(TERN_GEMM_STRIP, T)

typedef struct NAME(job, T) {
  const tern_gemm_product *product;
  cutting plan;
  REAL *packed;              /* SHARED: the columns [n_begin, n_end) as whole strips, each [k][strip] */
  int64_t first_batch, n_begin, n_end;
} NAME(job, T);

static void NAME(pack_chunk, T)(void *context, int64_t chunk, int thread) {
  (void)thread;
  const NAME(job, T) *j = context;
  const tern_gemm_product *g = j->product;
  tern_gemm_side b = side_of_batch(&g->b, g->batch_dims, g->b_batch_strides, g->n_batch_dims, j->first_batch);
  int64_t n0 = j->n_begin + chunk * STRIP, n = j->n_end - n0 < STRIP ? j->n_end - n0 : STRIP;
  REAL *to = j->packed + chunk * STRIP * g->k;
  for (int64_t p = 0; p < g->k; p += j->plan.k_block) {
    int64_t length = g->k - p < j->plan.k_block ? g->k - p : j->plan.k_block;
    TERN_ISA_NAME(NAME(tern_gemm_pack_strip, T))(&b, n0, n, p, length, to + p * STRIP);
  }
}

/* Rows [r0, r0 + rows) and columns [c0, c1) of one product of the batch. */
static void NAME(multiply_block, T)(const NAME(job, T) *j, int64_t batch, int64_t r0, int64_t rows, int64_t c0, int64_t c1) {
  const tern_gemm_product *g = j->product;
  REAL a_block[TERN_GEMM_BLOCK] __attribute__((aligned(64)));
  REAL panel[TERN_GEMM_K * STRIP] __attribute__((aligned(64)));
  float wide[TERN_GEMM_ROWS * HALF_COLUMNS] __attribute__((aligned(64)));
  tern_gemm_side a = side_of_batch(&g->a, g->batch_dims, g->a_batch_strides, g->n_batch_dims, batch);
  tern_gemm_side b = side_of_batch(&g->b, g->batch_dims, g->b_batch_strides, g->n_batch_dims, batch);
  char *c_rows = g->c + (batch * g->m * g->c_stride + r0 * g->c_stride) * (int64_t)tern_dtype_size(g->c_dtype);
  bool narrow = g->c_dtype != DTYPE;
  REAL *c = narrow ? (REAL *)(void *)wide : (REAL *)(void *)c_rows + c0;
  int64_t c_stride = narrow ? HALF_COLUMNS : g->c_stride;
  for (int64_t p = 0; p < g->k; p += j->plan.k_block) {
    int64_t length = g->k - p < j->plan.k_block ? g->k - p : j->plan.k_block;
    const REAL *a_from = (const REAL *)(const void *)a.data + r0 * a.outer_stride + p * a.k_stride;
    int64_t a_row = a.outer_stride, a_k = a.k_stride;
    if (!j->plan.a_direct) {
      TERN_ISA_NAME(NAME(tern_gemm_pack_rows, T))(&a, r0, rows, p, length, a_block, &a_row, &a_k);
      a_from = a_block;
    }
    for (int64_t n0 = c0; n0 < c1; n0 += STRIP) {
      int64_t n = c1 - n0 < STRIP ? c1 - n0 : STRIP, b_k = STRIP;
      const REAL *b_from = panel, *next = NULL;
      if (j->plan.b_mode == B_DIRECT) {
        b_from = (const REAL *)(const void *)b.data + p * b.k_stride + n0;
        b_k = b.k_stride;
      } else if (j->plan.b_mode == B_SHARED) {
        b_from = j->packed + (n0 - j->n_begin) * g->k + p * STRIP;
        next = n0 + STRIP < c1 ? b_from + STRIP * g->k : NULL;
      } else {
        TERN_ISA_NAME(NAME(tern_gemm_pack_strip, T))(&b, n0, n, p, length, panel);
      }
      TERN_ISA_NAME(NAME(tern_gemm_strip_ahead, T))(rows, n, length, a_from, a_row, a_k, b_from, b_k, c + (n0 - c0), c_stride, p > 0, next);
    }
  }
  if (g->k == 0)
    for (int64_t i = 0; i < rows; i++) memset(c + i * c_stride, 0, (size_t)(c1 - c0) * sizeof(REAL));
  if (narrow)
    for (int64_t i = 0; i < rows; i++) narrow_run(g->c_dtype, wide + i * HALF_COLUMNS, c1 - c0, c_rows + (i * g->c_stride + c0) * 2);
}

static void NAME(multiply_chunk, T)(void *context, int64_t chunk, int thread) {
  (void)thread;
  const NAME(job, T) *j = context;
  const cutting *plan = &j->plan;
  /* Row blocks run fastest: neighbours in time share the columns of B. */
  int64_t block = chunk % plan->row_blocks, group = chunk / plan->row_blocks % plan->groups, batches = chunk / plan->row_blocks / plan->groups;
  int64_t r0 = block * plan->rows, rows = j->product->m - r0 < plan->rows ? j->product->m - r0 : plan->rows;
  int64_t c0 = j->n_begin + group * plan->columns, c1 = j->n_end - c0 < plan->columns ? j->n_end : c0 + plan->columns;
  int64_t first = j->first_batch + batches * plan->batches_per_chunk, end = first + plan->batches_per_chunk;
  if (end > j->first_batch + plan->batches) end = j->first_batch + plan->batches;
  for (int64_t batch = first; batch < end; batch++) NAME(multiply_block, T)(j, batch, r0, rows, c0, c1);
}

static void NAME(run, T)(const tern_gemm_product *g, void *scratch) {
  NAME(job, T) j = {.product = g, .plan = plan_product(g), .packed = scratch, .n_end = g->n};
  if (j.plan.b_mode != B_SHARED) {
    tern_pool_run(j.plan.row_blocks * j.plan.groups * ((j.plan.batches + j.plan.batches_per_chunk - 1) / j.plan.batches_per_chunk), NAME(multiply_chunk, T), &j);
    return;
  }
  int64_t batches = j.plan.batches, n_block = shared_columns(g);
  j.plan.batches = j.plan.batches_per_chunk = 1;
  for (j.first_batch = 0; j.first_batch < batches; j.first_batch++)
    for (j.n_begin = 0; j.n_begin < g->n; j.n_begin = j.n_end) {
      j.n_end = g->n - j.n_begin < n_block ? g->n : j.n_begin + n_block;
      j.plan.groups = (j.n_end - j.n_begin + j.plan.columns - 1) / j.plan.columns;
      tern_pool_run((j.n_end - j.n_begin + STRIP - 1) / STRIP, NAME(pack_chunk, T), &j);
      tern_pool_run(j.plan.row_blocks * j.plan.groups, NAME(multiply_chunk, T), &j);
    }
}

#undef NAME_
#undef NAME
#undef STRIP
