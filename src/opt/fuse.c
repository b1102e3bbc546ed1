/* Fusion: see fuse.h.
 *
 * Operations are visited from the last to the first, so that the consumers of a value are placed before its producer; a producer joins a group that consumes its
 * value element by element. Joining must not close a cycle. Instead of searching for paths, every step has a level: the longest way to the end of
 * the program seen so far; a step's producers have higher levels. A step may be lifted to a higher level as long as it stays below all its placed producers (its
 * ceiling). So a producer P of a group G may join it when P's other consumers are all below G, or G can be lifted above them: a consumer that G
 * itself depends on is at or above G's ceiling, and is refused. This refuses a few legal fusions and costs O(1) per use. */
#include "fuse.h"
#include <limits.h>

typedef struct step {
  int32_t parent;             /* union-find: groups merge */
  int32_t level, ceiling;
  int32_t n_ops;              /* 0: not a group */
  int32_t reduce;             /* a reduction in it, or -1 */
  bool permuted;              /* its reductions visit their operand in another order than row-major */
  bool uniform;               /* all its operations have the dims of `shape` */
  int64_t count;              /* elements of the iteration space */
  const tern_value_info *shape;
} step;

typedef struct use {
  int32_t step, next;         /* next: in the list of the value, or -1 */
  bool linear;                /* the step reads element i of the value for its element i */
} use;

typedef struct fuser {
  const tern_program *p;
  const tern_value *root;
  const bool *linear;
  step *steps;                /* one per operation */
  use *uses;
  int32_t n_uses, *first_use; /* per value */
} fuser;

bool tern_reduce_order(const tern_program *p, const tern_op *op, int *order) {
  const tern_value_info *x = &p->values[op->operands[0]];
  bool reduced[TERN_MAX_RANK] = {false}, rows = false;
  for (int i = 0; i < op->attrs->reduce.n; i++) reduced[op->attrs->reduce.dims[i]] = true;
  for (int d = x->rank - 1; d >= 0; d--)
    if (x->dims[d] != 1) {
      rows = reduced[d];
      break;
    }
  int n = 0;
  for (int pass = 0; pass < 2; pass++)
    for (int d = 0; d < x->rank; d++)
      if (reduced[d] == (rows ? pass == 1 : pass == 0)) order[n++] = d;
  return rows;
}

/* Whether the order differs from row-major where it matters: among dimensions larger than 1. */
static bool order_permutes(const tern_value_info *x, const int *order) {
  int last = -1;
  for (int i = 0; i < x->rank; i++) {
    if (x->dims[order[i]] == 1) continue;
    if (order[i] < last) return true;
    last = order[i];
  }
  return false;
}

static bool same_dims(const tern_value_info *a, const tern_value_info *b) {
  return a->rank == b->rank && memcmp(a->dims, b->dims, (size_t)a->rank * sizeof *a->dims) == 0;
}

static int32_t find(fuser *f, int32_t s) {
  while (f->steps[s].parent != s) s = f->steps[s].parent = f->steps[f->steps[s].parent].parent;
  return s;
}

static int32_t min_i32(int32_t a, int32_t b) { return a < b ? a : b; }

/* Whether two sets of operations can share one iteration space. */
static bool compatible(const fuser *f, const step *a, const step *b) {
  if (!a->n_ops || !b->n_ops || a->count != b->count || a->n_ops + b->n_ops > TERN_FUSE_MAX_OPS) return false;
  if ((a->permuted || b->permuted) && !(a->uniform && b->uniform && same_dims(a->shape, b->shape))) return false;
  if (a->reduce < 0 || b->reduce < 0) return true;
  const tern_attrs *x = f->p->ops[a->reduce].attrs, *y = f->p->ops[b->reduce].attrs;
  return same_dims(a->shape, b->shape) && a->uniform && b->uniform && x->reduce.n == y->reduce.n &&
         memcmp(x->reduce.dims, y->reduce.dims, (size_t)x->reduce.n * sizeof *x->reduce.dims) == 0;
}

static void merge_into(fuser *f, int32_t into, int32_t from, int32_t level) {
  step *g = &f->steps[into], *s = &f->steps[from];
  g->uniform = g->uniform && s->uniform && same_dims(g->shape, s->shape);
  g->n_ops += s->n_ops;
  g->level = level;
  g->ceiling = min_i32(g->ceiling, s->ceiling);
  g->permuted |= s->permuted;
  if (g->reduce < 0 && s->reduce >= 0) {
    g->reduce = s->reduce;
    g->shape = s->shape;
  }
  s->parent = into;
}

/* Joins the fresh step `at` (one operation, with its value's uses) to group `g` if no cycle comes of it. */
static bool join(fuser *f, int32_t at, int32_t g, tern_value value) {
  step *s = &f->steps[at], *group = &f->steps[g];
  if (!compatible(f, group, s)) return false;
  int32_t level = group->level;
  for (int32_t u = f->first_use[value]; u >= 0; u = f->uses[u].next) {
    int32_t other = find(f, f->uses[u].step);
    if (other == g && !f->uses[u].linear) return false; /* it also reads other elements, which must exist before */
    if (other != g && f->steps[other].level >= level) level = f->steps[other].level + 1;
  }
  if (level > group->level && level >= group->ceiling) return false;
  merge_into(f, g, at, level);
  return true;
}

/* Merges two groups at the higher of their levels. */
static bool merge(fuser *f, int32_t a, int32_t b) {
  if (f->steps[a].level < f->steps[b].level) {
    int32_t other = a;
    a = b;
    b = other;
  }
  if (!compatible(f, &f->steps[a], &f->steps[b])) return false;
  if (f->steps[b].level < f->steps[a].level && f->steps[a].level >= f->steps[b].ceiling) return false;
  merge_into(f, a, b, f->steps[a].level);
  return true;
}

/* Groups that read the same value element by element read it once when merged. */
static void merge_readers(fuser *f, tern_value value, int64_t count) {
  int32_t group = -1;
  for (int32_t u = f->first_use[value]; u >= 0; u = f->uses[u].next) {
    int32_t other = find(f, f->uses[u].step);
    if (!f->uses[u].linear || f->steps[other].n_ops == 0 || f->steps[other].count != count || other == group) continue;
    if (group < 0) group = other;
    else if (merge(f, group, other)) group = find(f, group);
  }
}

static bool is_used(const fuser *f, const tern_op *op) {
  if (tern_op_rows[op->kind].class == TERN_CLASS_EFFECT) return true;
  for (int r = 0; r < op->n_results; r++)
    if (f->first_use[op->first_result + r] >= 0) return true;
  return false;
}

static bool is_fusable(const fuser *f, const tern_op *op) {
  if (tern_op_is_elementwise((tern_op_kind)op->kind)) return true;
  if (op->kind == TERN_OP_REDUCE) return tern_value_count(f->p, op->operands[0]) > 0;
  return tern_op_rows[op->kind].class == TERN_CLASS_VIEW && f->root[op->first_result] == op->first_result;
}

static void add_uses(fuser *f, int32_t at, const tern_op *op) {
  for (int i = 0; i < op->n_operands; i++) {
    tern_value v = op->operands[i];
    if (v == TERN_NO_VALUE) continue;
    tern_value root = f->root[v];
    f->uses[f->n_uses] = (use){.step = at, .next = f->first_use[root], .linear = f->linear[v]};
    f->first_use[root] = f->n_uses++;
  }
}

/* Gives the operation a step: the best group that reads its value, or one of its own. */
static void place(fuser *f, int32_t at) {
  const tern_op *op = &f->p->ops[at];
  const bool fusable = is_fusable(f, op);
  step *s = &f->steps[at];
  *s = (step){.parent = at, .ceiling = INT_MAX, .reduce = -1, .uniform = true};
  if (fusable) {
    tern_value shape = op->kind == TERN_OP_REDUCE ? op->operands[0] : op->first_result;
    s->shape = &f->p->values[shape];
    s->count = tern_value_count(f->p, shape);
    s->n_ops = 1;
    s->uniform = tern_op_rows[op->kind].class != TERN_CLASS_VIEW;
    if (op->kind == TERN_OP_REDUCE) {
      int order[TERN_MAX_RANK];
      s->reduce = at;
      tern_reduce_order(f->p, op, order);
      s->permuted = order_permutes(s->shape, order);
    } else if (s->count > 0) {
      /* The highest group first: lifting it is the least likely to fail. */
      int32_t best = -1;
      for (int32_t u = f->first_use[op->first_result]; u >= 0; u = f->uses[u].next) {
        int32_t g = find(f, f->uses[u].step);
        if (f->uses[u].linear && f->steps[g].n_ops && (best < 0 || f->steps[g].level > f->steps[best].level)) best = g;
      }
      if (best >= 0 && join(f, at, best, op->first_result)) s = &f->steps[best];
    }
  }
  const int32_t mine = find(f, at);
  for (int r = 0; r < op->n_results; r++)
    for (int32_t u = f->first_use[op->first_result + r]; u >= 0; u = f->uses[u].next) {
      int32_t other = find(f, f->uses[u].step);
      if (other != mine && f->steps[other].level >= f->steps[mine].level) f->steps[mine].level = f->steps[other].level + 1;
    }
  for (int r = 0; r < op->n_results; r++)
    for (int32_t u = f->first_use[op->first_result + r]; u >= 0; u = f->uses[u].next) {
      step *other = &f->steps[find(f, f->uses[u].step)];
      if (other != &f->steps[mine]) other->ceiling = min_i32(other->ceiling, f->steps[mine].level);
    }
  for (int r = 0; r < op->n_results; r++)
    if (tern_value_count(f->p, op->first_result + r) > 0) merge_readers(f, op->first_result + r, tern_value_count(f->p, op->first_result + r));
  add_uses(f, at, op);
}

tern_status tern_fuse(const tern_program *p, const tern_value *root, const bool *linear, tern_arena *arena, tern_fusion *out) {
  size_t n_operands = 0;
  for (int32_t i = 0; i < p->n_ops; i++) n_operands += p->ops[i].n_operands;
  fuser f = {.p = p, .root = root, .linear = linear};
  /* One more step stands for what reads the results: the end, at level 0. */
  f.steps = tern_arena_alloc(arena, (size_t)(p->n_ops + 1) * sizeof *f.steps);
  f.uses = tern_arena_alloc(arena, (n_operands + (size_t)p->n_results + 1) * sizeof *f.uses);
  f.first_use = tern_arena_alloc(arena, (size_t)p->n_values * sizeof *f.first_use + 1);
  out->step = tern_arena_alloc(arena, (size_t)p->n_ops * sizeof *out->step + 1);
  if (!f.steps || !f.uses || !f.first_use || !out->step) return tern_error_new(TERN_OUT_OF_MEMORY, "no host memory to plan a program of %d operations", p->n_ops);
  for (int32_t v = 0; v < p->n_values; v++) f.first_use[v] = -1;
  for (int32_t i = 0; i < p->n_ops; i++) out->step[i] = -1;
  f.steps[p->n_ops] = (step){.parent = p->n_ops, .ceiling = INT_MAX, .reduce = -1};
  for (int32_t r = 0; r < p->n_results; r++) {
    tern_value v = root[p->results[r].value];
    f.uses[f.n_uses] = (use){.step = p->n_ops, .next = f.first_use[v]};
    f.first_use[v] = f.n_uses++;
  }
  for (int32_t i = p->n_ops - 1; i >= 0; i--) {
    const tern_op *op = &p->ops[i];
    tern_op_class class = tern_op_rows[op->kind].class;
    if (op->kind == TERN_OP_PARAMETER) {
      if (tern_value_count(p, op->first_result) > 0) merge_readers(&f, op->first_result, tern_value_count(p, op->first_result));
      continue;
    }
    if (class == TERN_CLASS_LEAF || (class == TERN_CLASS_VIEW && root[op->first_result] != op->first_result) || !is_used(&f, op)) continue;
    out->step[i] = i;
    place(&f, i);
  }
  int32_t *number = f.first_use; /* no longer needed */
  if (p->n_values < p->n_ops) number = tern_arena_alloc(arena, (size_t)p->n_ops * sizeof *number);
  if (!number) return tern_error_new(TERN_OUT_OF_MEMORY, "no host memory to plan a program of %d operations", p->n_ops);
  for (int32_t i = 0; i < p->n_ops; i++) number[i] = -1;
  out->n_steps = 0;
  for (int32_t i = 0; i < p->n_ops; i++) {
    if (out->step[i] < 0) continue;
    int32_t s = find(&f, i);
    if (number[s] < 0) number[s] = out->n_steps++;
    out->step[i] = number[s];
  }
  return NULL;
}
