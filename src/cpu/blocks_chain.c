/* Making chains, the block interpreter's super-instructions, of a group's instructions. Called by blocks_build.c.
 *
 * A chain grows from an instruction to the first reader of its result, as long as that can continue it; it runs where its last member stood. A result that others read
 * too, or that is the group's, is stored on the way, if nobody needs it before the chain has run. */
#include "plan.h"

typedef struct chainer {
  tern_group *g;
  const tern_block_machine *machine;
  int16_t *reads, *writes; /* per register: by instructions; reads by sinks and reducers as well */
  int8_t *kind;            /* per instruction: a tern_chain_kind, or -1 */
  int32_t *owner;          /* per instruction: the first member of its chain, or -1 */
  bool *is_splat;          /* per register */
} chainer;

static int chain_kind(const tern_block_machine *m, tern_block_function run) {
  static const struct { tern_op_kind op; tern_chain_kind kind; } pairs[] = {
      {TERN_OP_ADD, TERN_CHAIN_ADD},         {TERN_OP_SUBTRACT, TERN_CHAIN_SUBTRACT}, {TERN_OP_MULTIPLY, TERN_CHAIN_MULTIPLY},
      {TERN_OP_DIVIDE, TERN_CHAIN_DIVIDE},   {TERN_OP_MAXIMUM, TERN_CHAIN_MAXIMUM},   {TERN_OP_MINIMUM, TERN_CHAIN_MINIMUM},
      {TERN_OP_SQRT, TERN_CHAIN_SQRT},       {TERN_OP_NEGATE, TERN_CHAIN_NEGATE},     {TERN_OP_ABS, TERN_CHAIN_ABS},
  };
  for (size_t i = 0; i < TERN_COUNT(pairs); i++)
    if (run == m->operation[pairs[i].op][TERN_F32]) return pairs[i].kind;
  return -1;
}

static bool is_unary(int kind) { return kind == TERN_CHAIN_SQRT || kind == TERN_CHAIN_NEGATE || kind == TERN_CHAIN_ABS; }
static bool commutes(int kind) { return kind == TERN_CHAIN_ADD || kind == TERN_CHAIN_MULTIPLY; }
static bool reads(const tern_instruction *x, uint16_t reg) { return x->a == reg || x->b == reg || x->c == reg; }

/* The step for instruction k where the chain's value is register `value`; false where there is none but for a first member, whose value is in its register. */
static bool step_for(const chainer *c, int32_t k, uint16_t value, tern_chain_step *out) {
  const tern_instruction *x = &c->g->instructions[k];
  const int kind = c->kind[k];
  *out = (tern_chain_step){.kind = (uint8_t)kind, .reg = value};
  if (is_unary(kind)) return x->a == value;
  out->scalar = c->is_splat[value];
  if (x->a == value && x->b == value) {
    if (kind == TERN_CHAIN_MULTIPLY) out->kind = TERN_CHAIN_SQUARE;
    return kind == TERN_CHAIN_MULTIPLY;
  }
  out->reg = x->a == value ? x->b : x->a;
  out->scalar = c->is_splat[out->reg];
  if (x->a == value || commutes(kind)) return true;
  out->kind = kind == TERN_CHAIN_SUBTRACT ? TERN_CHAIN_SUBTRACT_FROM : TERN_CHAIN_DIVIDE_INTO;
  return kind == TERN_CHAIN_SUBTRACT || kind == TERN_CHAIN_DIVIDE; /* the order of equal zeros matters to maximum and minimum */
}

/* Registers written twice (rounded in place) may not move. */
static bool may_move(const chainer *c, int32_t k) {
  const tern_instruction *x = &c->g->instructions[k];
  return c->kind[k] >= 0 && c->writes[x->out] == 1 && c->writes[x->a] <= 1 && c->writes[x->b] <= 1;
}

static int32_t first_reader(const chainer *c, uint16_t reg, int32_t after) {
  for (int32_t k = after + 1; k < c->g->n_instructions; k++)
    if (reads(&c->g->instructions[k], reg)) return k;
  return -1;
}

/* Whether an instruction outside of chain `first` reads what the chain stores before instruction k. */
static bool is_awaited(const chainer *c, int32_t first, int32_t k) {
  for (int32_t m = first; m < k; m++) {
    if (c->owner[m] != first) continue;
    for (int32_t j = m + 1; j < k; j++)
      if (c->owner[j] != first && reads(&c->g->instructions[j], c->g->instructions[m].out)) return true;
  }
  return false;
}

/* The last member of the chain that begins at `first`. */
static int32_t grow(const chainer *c, int32_t first) {
  int32_t last = first;
  tern_chain_step step;
  c->owner[first] = first;
  for (;;) {
    const uint16_t value = c->g->instructions[last].out;
    const int32_t next = first_reader(c, value, last);
    if (next < 0 || c->owner[next] >= 0 || !may_move(c, next) || !step_for(c, next, value, &step) || is_awaited(c, first, next)) return last;
    c->owner[next] = first;
    last = next;
  }
}

/* Writes the chain's steps and returns how many; 0 where it is better left as it was. */
static int32_t write_steps(const chainer *c, int32_t first, int32_t last, tern_chain_step *out) {
  const tern_instruction *x = &c->g->instructions[first];
  const bool from_second = !is_unary(c->kind[first]) && c->is_splat[x->a] && !c->is_splat[x->b] && c->kind[first] != TERN_CHAIN_MAXIMUM && c->kind[first] != TERN_CHAIN_MINIMUM;
  uint16_t value = from_second ? x->b : x->a;
  int32_t n = 0, members = 0;
  bool has_scalar = c->is_splat[value];
  out[n++] = (tern_chain_step){.kind = TERN_CHAIN_LOAD, .scalar = c->is_splat[value], .reg = value};
  for (int32_t k = first; k <= last; k++) {
    if (c->owner[k] != first) continue;
    const uint16_t made = c->g->instructions[k].out;
    step_for(c, k, value, &out[n]);
    has_scalar |= out[n].scalar && !is_unary(c->kind[k]);
    if (is_unary(c->kind[k]) || out[n].kind == TERN_CHAIN_SQUARE) out[n].reg = made; /* reads nothing: a register that is there */
    n++;
    members++;
    int32_t inside = 0; /* readers among the members that take it from the chain's value */
    const int32_t next = k < last ? first_reader(c, made, k) : -1;
    if (next >= 0) inside = (c->g->instructions[next].a == made) + (c->g->instructions[next].b == made) + (c->g->instructions[next].c == made);
    if (k == last || c->reads[made] > inside) out[n++] = (tern_chain_step){.kind = TERN_CHAIN_STORE, .reg = made};
    value = made;
  }
  return members > 1 || has_scalar ? n : 0;
}

static void count_uses(chainer *c) {
  const tern_group *g = c->g;
  for (int32_t k = 0; k < g->n_instructions; k++) {
    const tern_instruction *x = &g->instructions[k];
    c->reads[x->a]++, c->reads[x->b]++, c->reads[x->c]++, c->writes[x->out]++;
    c->kind[k] = (int8_t)chain_kind(c->machine, x->run);
    c->owner[k] = -1;
  }
  for (int32_t i = 0; i < g->n_sinks; i++) c->reads[g->sinks[i].reg]++;
  for (int32_t i = 0; i < g->n_reducers; i++) c->reads[g->reducers[i].reg]++;
  for (int32_t i = 0; i < g->n_sources; i++)
    if (g->sources[i].kind == TERN_SOURCE_SPLAT && g->sources[i].dtype == TERN_F32) c->is_splat[g->sources[i].reg] = c->writes[g->sources[i].reg] == 0;
}

/* Splats that nothing but chains' scalar steps reads need no register of copies. */
static void keep_scalars(tern_group *g) {
  for (int32_t i = 0; i < g->n_sources; i++) {
    tern_source *s = &g->sources[i];
    if (s->kind != TERN_SOURCE_SPLAT) continue;
    bool scalar = true;
    for (int32_t k = 0; k < g->n_instructions; k++) scalar &= !g->instructions[k].run || !reads(&g->instructions[k], s->reg);
    for (int32_t k = 0; k < g->n_reducers; k++) scalar &= g->reducers[k].reg != s->reg;
    for (int32_t k = 0; k < g->n_sinks; k++) scalar &= g->sinks[k].reg != s->reg;
    if (scalar) s->kind = TERN_SOURCE_SCALAR;
  }
}

tern_status tern_group_make_chains(tern_group *g, const tern_block_machine *machine, tern_arena *arena) {
  const size_t n = (size_t)g->n_instructions, registers = (size_t)g->n_registers;
  g->n_operations = g->n_instructions;
  if (!machine->chain || n == 0) return NULL;
  chainer c = {.g = g, .machine = machine};
  c.reads = tern_arena_alloc(arena, registers * sizeof *c.reads);
  c.writes = tern_arena_alloc(arena, registers * sizeof *c.writes);
  c.is_splat = tern_arena_alloc(arena, registers);
  c.kind = tern_arena_alloc(arena, n);
  c.owner = tern_arena_alloc(arena, n * sizeof *c.owner);
  int32_t *ends = tern_arena_alloc(arena, n * sizeof *ends); /* per instruction: the first member of the chain that ends here, or -1 */
  tern_instruction *made = tern_arena_alloc(arena, n * sizeof *made);
  g->steps = tern_arena_alloc(arena, (2 * n + n) * sizeof *g->steps); /* each member: itself and a store; each chain: a load */
  if (!c.reads || !c.writes || !c.is_splat || !c.kind || !c.owner || !ends || !made || !g->steps) return tern_error_new(TERN_OUT_OF_MEMORY, "no host memory to plan a fused group");
  count_uses(&c);
  for (size_t k = 0; k < n; k++) ends[k] = -1;
  int32_t n_steps = 0, n_made = 0;
  for (int32_t k = 0; k < (int32_t)n; k++)
    if (c.owner[k] < 0 && may_move(&c, k)) ends[grow(&c, k)] = k;
  for (int32_t k = 0; k < (int32_t)n; k++) {
    const int32_t first = ends[k], length = first < 0 ? 0 : write_steps(&c, first, k, g->steps + n_steps);
    const uint16_t out = g->instructions[k].out;
    if (length) made[n_made++] = (tern_instruction){.out = out, .a = out, .b = out, .c = out, .first_step = n_steps, .n_steps = length};
    else if (c.owner[k] < 0 || first == k) made[n_made++] = g->instructions[k];
    n_steps += length;
  }
  g->instructions = made;
  g->n_instructions = n_made;
  keep_scalars(g);
  return NULL;
}
