/* canonicalise: a program with less in it (opt.h). Called by backends before they plan or compile.
 *
 * One walk forwards folds each operation (fold.c) and finds equal ones; nothing is built yet: an operation that is superseded leaves an alias for its result.
 * One walk backwards finds what is live, and that is copied.
 *
 * Equal operations are done once only where their results are small, or cost nothing (leaves, views). Merging large ones would undo activation
 * checkpointing, where the user computes twice on purpose so as not to keep. */
#include "opt.h"

enum { SMALL_BYTES = 1 << 14 };

static uint64_t hash_op(const tern_rewrite *r, const tern_op *op) {
  uint64_t hash = tern_hash_bytes(op->operands, op->n_operands * sizeof *op->operands, op->kind);
  hash = tern_hash_bytes(op->attrs, tern_op_attrs_size((tern_op_kind)op->kind), hash);
  for (int i = 0; i < op->n_results; i++) {
    const tern_value_info *value = &r->in->values[op->first_result + i];
    hash = tern_hash_bytes(value->dims, (size_t)value->rank * sizeof *value->dims, tern_hash_mix(hash, (uint64_t)value->dtype));
  }
  return hash;
}

static bool equal_ops(const tern_rewrite *r, const tern_op *a, const tern_op *b) {
  if (a->kind != b->kind || a->n_operands != b->n_operands || a->n_results != b->n_results) return false;
  if (memcmp(a->operands, b->operands, a->n_operands * sizeof *a->operands) != 0 || memcmp(a->attrs, b->attrs, tern_op_attrs_size((tern_op_kind)a->kind)) != 0) return false;
  for (int i = 0; i < a->n_results; i++) {
    const tern_value_info *x = &r->in->values[a->first_result + i], *y = &r->in->values[b->first_result + i];
    if (x->dtype != y->dtype || !tern_dims_equal(x->rank, x->dims, y->rank, y->dims)) return false;
  }
  return true;
}

static bool may_merge(const tern_rewrite *r, const tern_op *op) {
  tern_op_class class = tern_op_rows[op->kind].class;
  if (op->kind == TERN_OP_PARAMETER) return false;
  if (class == TERN_CLASS_LEAF || class == TERN_CLASS_VIEW || class == TERN_CLASS_EFFECT) return true;
  size_t bytes = 0;
  for (int i = 0; i < op->n_results; i++) bytes += (size_t)tern_value_count(r->in, op->first_result + i) * tern_dtype_size(r->in->values[op->first_result + i].dtype);
  return bytes <= SMALL_BYTES;
}

/* Finds an earlier equal operation, or enters this one. The table holds numbers of operations + 1; its size is a power of two. */
static int32_t find_equal(const tern_rewrite *r, int32_t number, int32_t *table, uint32_t mask) {
  const tern_op *op = &r->ops[number];
  for (uint32_t at = (uint32_t)hash_op(r, op) & mask;; at = (at + 1) & mask) {
    if (!table[at]) {
      table[at] = number + 1;
      return -1;
    }
    if (equal_ops(r, &r->ops[table[at] - 1], op)) return table[at] - 1;
  }
}

/* The walk forwards. alias[v]: the value that stands for v. superseded[i]: operation i is not needed. */
static bool rewrite(tern_rewrite *r, tern_value *alias, bool *superseded) {
  uint32_t size = 16;
  while (size < 2 * (uint32_t)r->in->n_ops) size *= 2;
  int32_t *table = tern_arena_alloc(&r->arena, size * sizeof *table);
  if (!table) return false;
  for (int32_t i = 0; i < r->in->n_ops; i++) {
    tern_op *op = &r->ops[i];
    *op = r->in->ops[i];
    op->operands = tern_arena_copy(&r->arena, op->operands, op->n_operands * sizeof *op->operands);
    if (!op->operands) return false;
    for (int j = 0; j < op->n_operands; j++)
      if (op->operands[j] != TERN_NO_VALUE) op->operands[j] = alias[op->operands[j]];
    for (int j = 0; j < op->n_results; j++) alias[op->first_result + j] = op->first_result + j;
    tern_value folded = tern_fold(r, i);
    if (folded != TERN_NO_VALUE) {
      alias[op->first_result] = folded;
      superseded[i] = true;
      continue;
    }
    int32_t equal = may_merge(r, op) ? find_equal(r, i, table, size - 1) : -1;
    if (equal < 0) continue;
    superseded[i] = true;
    for (int j = 0; j < op->n_results; j++) alias[op->first_result + j] = r->ops[equal].first_result + j;
  }
  return true;
}

static void mark_live(const tern_rewrite *r, const tern_value *alias, const bool *superseded, bool *live) {
  const tern_program *in = r->in;
  for (int i = 0; i < in->n_results; i++) live[in->values[alias[in->results[i].value]].op] = true;
  for (int32_t i = in->n_ops - 1; i >= 0; i--) {
    const tern_op *op = &r->ops[i];
    bool effect = tern_op_rows[op->kind].class == TERN_CLASS_EFFECT && !superseded[i];
    if (op->kind == TERN_OP_PARAMETER || effect) live[i] = true;
    for (int j = 0; j < op->n_operands && live[i]; j++)
      if (op->operands[j] != TERN_NO_VALUE) live[in->values[op->operands[j]].op] = true;
  }
}

static void copy_live(tern_rewrite *r, const tern_value *alias, const bool *live, tern_value *map, tern_program *to) {
  const tern_program *in = r->in;
  for (int32_t i = 0; i < in->n_ops; i++) {
    tern_op *op = &r->ops[i];
    if (!live[i]) continue;
    for (int j = 0; j < op->n_operands; j++)
      if (op->operands[j] != TERN_NO_VALUE) op->operands[j] = map[op->operands[j]];
    tern_program_tag(to, op->tag);
    tern_value first = tern_program_append(to, (tern_op_kind)op->kind, op->n_operands, op->operands, op->attrs, op->n_results, op->n_results ? &in->values[op->first_result] : NULL);
    for (int j = 0; j < op->n_results; j++) map[op->first_result + j] = first + j;
  }
  for (int i = 0; i < in->n_results; i++) tern_result(to, map[alias[in->results[i].value]], in->results[i].reuses);
}

tern_status tern_canonicalise(const tern_program *in, tern_program **out) {
  *out = NULL;
  tern_program *to;
  TERN_TRY(tern_program_new(&to));
  to->describe_tag = in->describe_tag;
  to->describe_context = in->describe_context;
  tern_rewrite r = {.in = in};
  r.ops = tern_arena_alloc(&r.arena, (size_t)in->n_ops * sizeof *r.ops);
  tern_value *alias = tern_arena_alloc(&r.arena, (size_t)in->n_values * sizeof *alias), *map = tern_arena_alloc(&r.arena, (size_t)in->n_values * sizeof *map);
  bool *superseded = tern_arena_alloc(&r.arena, (size_t)in->n_ops), *live = tern_arena_alloc(&r.arena, (size_t)in->n_ops);
  tern_status error = NULL;
  if (!r.ops || !alias || !map || !superseded || !live || !rewrite(&r, alias, superseded)) {
    error = tern_error_new(TERN_OUT_OF_MEMORY, "the host has no memory to simplify a program");
  } else {
    mark_live(&r, alias, superseded, live);
    copy_live(&r, alias, live, map, to);
    error = tern_error_clone(to->error);
  }
  tern_arena_free(&r.arena);
  if (error) tern_program_free(to);
  else *out = to;
  return error;
}
