/* Keeping programs: each as StableHLO text with its arrays and costs, and the order in which they were launched. Called by backend.c; read by the host language. */
#include <pthread.h>
#include "../pjrt/pjrt.h"
#include "inner.h"

enum { MOST_INTERMEDIATES = 24 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static tern_trace_program *programs, **last = &programs;
static int32_t n_programs;
static int32_t *launches;
static size_t n_launches, cap_launches;
static int64_t reads, marks;

/* ---- texts ---- */

typedef struct interned {
  struct interned *next;
  char text[];
} interned;
enum { BUCKETS = 1 << 12 };
static interned *buckets[BUCKETS];

const char *tern_trace_intern(const char *text) {
  if (!text || !*text) return "";
  size_t length = strlen(text);
  pthread_mutex_lock(&lock);
  interned **link = &buckets[tern_hash_bytes(text, length, 0) & (BUCKETS - 1)];
  while (*link && strcmp((*link)->text, text)) link = &(*link)->next;
  if (!*link && (*link = malloc(sizeof **link + length + 1))) {
    (*link)->next = NULL;
    memcpy((*link)->text, text, length + 1);
  }
  const char *kept = *link ? (*link)->text : "";
  pthread_mutex_unlock(&lock);
  return kept;
}

/* ---- arrays ---- */

static const char *line_of(const tern_program *p, uint32_t tag) {
  return p->describe_tag && tag ? tern_trace_intern(p->describe_tag(p->describe_context, tag)) : "";
}

static tern_trace_array describe(const tern_program *p, tern_value v) {
  const tern_value_info *info = &p->values[v];
  const tern_op *op = &p->ops[info->op];
  tern_trace_array a = {.dtype = info->dtype, .rank = info->rank, .operation = tern_op_rows[op->kind].name};
  if (info->rank) memcpy(a.dims, info->dims, (size_t)info->rank * sizeof *a.dims);
  a.bytes = tern_dims_count(info->rank, info->dims) * (int64_t)tern_dtype_size(info->dtype);
  a.line = op->kind == TERN_OP_PARAMETER ? "" : line_of(p, op->tag);
  return a;
}

/* The largest arrays that are neither parameters nor views of others, kept sorted by insertion. */
static int32_t largest(const tern_program *p, tern_trace_array *out) {
  int32_t n = 0;
  for (int32_t v = 0; v < p->n_values; v++) {
    const tern_op *op = &p->ops[p->values[v].op];
    tern_op_class class = tern_op_rows[op->kind].class;
    if (class == TERN_CLASS_LEAF || class == TERN_CLASS_VIEW) continue;
    tern_trace_array a = describe(p, v);
    if (n == MOST_INTERMEDIATES && a.bytes <= out[n - 1].bytes) continue;
    int32_t at = n < MOST_INTERMEDIATES ? n++ : n - 1;
    for (; at > 0 && out[at - 1].bytes < a.bytes; at--) out[at] = out[at - 1];
    out[at] = a;
  }
  return n;
}

/* ---- a program ---- */

/* The text and what it needs of the decomposed program; a refusal is kept in words. */
static tern_status write_text(const tern_program *program, tern_trace_program *kept) {
  tern_program *legal = NULL;
  tern_pjrt_signature signature = {0};
  tern_status status = tern_pjrt_legalise(program, tern_pjrt_target_of(""), "this target", &legal);
  if (!status) {
    tern_trace_count_cost(legal, &kept->cost);
    kept->n_intermediates = largest(legal, kept->intermediates);
    for (int32_t v = 0; v < legal->n_values; v++) kept->dtypes |= 1u << legal->values[v].dtype;
    status = tern_pjrt_text(legal, TERN_TEXT_LOCATIONS, false, &kept->text, &signature);
  }
  if (!status)
    for (int32_t i = 0; i < kept->n_parameters; i++) kept->argument_of_parameter[i] = signature.parameter_argument[i];
  tern_pjrt_signature_free(&signature);
  tern_program_free(legal);
  if (!status) return NULL;
  kept->refusal = strdup(tern_error_message(status));
  tern_error_free(status);
  return kept->refusal ? NULL : tern_error_new(TERN_OUT_OF_MEMORY, "no host memory to keep a program");
}

static void forget_program(tern_trace_program *k) {
  free(k->parameters);
  free(k->results);
  free(k->intermediates);
  free(k->argument_of_parameter);
  free(k->text);
  free(k->line);
  free(k);
}

tern_status tern_trace_keep(const tern_program *program, tern_trace_program **out) {
  tern_trace_program *k = calloc(1, sizeof *k);
  if (!k) return tern_error_new(TERN_OUT_OF_MEMORY, "no host memory to keep a program");
  k->n_parameters = program->n_parameters, k->n_results = program->n_results, k->n_scalars = program->n_scalars;
  k->parameters = calloc((size_t)k->n_parameters + 1, sizeof *k->parameters);
  k->results = calloc((size_t)k->n_results + 1, sizeof *k->results);
  k->intermediates = calloc(MOST_INTERMEDIATES, sizeof *k->intermediates);
  k->argument_of_parameter = calloc((size_t)k->n_parameters + 1, sizeof *k->argument_of_parameter);
  const char *line = "";
  uint32_t tag = 0;
  for (int32_t o = 0; o < program->n_ops; o++) {
    if (!*line) line = line_of(program, program->ops[o].tag);
    k->n_operations += program->ops[o].tag && program->ops[o].tag != tag;
    tag = program->ops[o].tag;
  }
  k->line = strdup(line);
  tern_status status = k->parameters && k->results && k->intermediates && k->argument_of_parameter && k->line
                           ? NULL
                           : tern_error_new(TERN_OUT_OF_MEMORY, "no host memory to keep a program");
  for (int32_t i = 0; i < k->n_parameters && !status; i++) {
    k->parameters[i] = describe(program, program->parameters[i]);
    k->argument_of_parameter[i] = -1;
  }
  for (int32_t i = 0; i < k->n_results && !status; i++) {
    k->results[i] = describe(program, program->results[i].value);
    if (program->results[i].reuses >= 0) k->parameters[program->results[i].reuses].is_replaced = k->results[i].is_replaced = true;
  }
  if (!status) status = write_text(program, k);
  if (status) {
    forget_program(k);
    return status;
  }
  pthread_mutex_lock(&lock);
  k->number = n_programs++;
  *last = k;
  last = &k->next;
  pthread_mutex_unlock(&lock);
  *out = k;
  return NULL;
}

/* ---- launches ---- */

/* Lock held. Without memory the log has a gap, no more. */
static void log_launch(int32_t what) {
  if (n_launches == cap_launches) {
    size_t cap = cap_launches ? 2 * cap_launches : 1024;
    int32_t *more = realloc(launches, cap * sizeof *more);
    if (!more) return;
    launches = more;
    cap_launches = cap;
  }
  launches[n_launches++] = what;
}

void tern_trace_launched(tern_trace_program *k, int64_t bytes_in_use) {
  pthread_mutex_lock(&lock);
  k->launches++;
  k->bytes_in_use = bytes_in_use;
  log_launch(k->number);
  pthread_mutex_unlock(&lock);
}

void tern_trace_mark(void) {
  pthread_mutex_lock(&lock);
  log_launch(-1);
  __atomic_fetch_add(&marks, 1, __ATOMIC_RELAXED);
  pthread_mutex_unlock(&lock);
}

int64_t tern_trace_marks(void) { return __atomic_load_n(&marks, __ATOMIC_RELAXED); }
void tern_trace_count_read(void) { __atomic_fetch_add(&reads, 1, __ATOMIC_RELAXED); }
int64_t tern_trace_reads(void) { return __atomic_load_n(&reads, __ATOMIC_RELAXED); }
const tern_trace_program *tern_trace_programs(void) { return programs; }

const int32_t *tern_trace_launches(size_t *n) {
  *n = n_launches;
  return launches;
}

void tern_trace_forget(void) {
  pthread_mutex_lock(&lock);
  n_launches = 0;
  for (tern_trace_program *k = programs; k; k = k->next) k->launches = 0;
  pthread_mutex_unlock(&lock);
}
