/* From a group of operations to instructions over registers, and from those to buffers, blocks and chunks. Called by plan.c.
 *
 * Every cut (blocks, chunks) depends on shapes and on the instructions alone, and no result depends on a cut: see blocks.h. */
#include "plan.h"
#include "../opt/fuse.h"

enum {
  MAX_BLOCK = 1024, MIN_BLOCK = 256,
  BLOCK_BYTES = 24 * 1024,      /* of the registers of one block: half of a first-level cache, the other half is for operands */
  INLINE_WORK = 64 * 1024,      /* elements times instructions that one thread does at once */
  CHUNK_WORK = 192 * 1024,      /* and that make a chunk */
  FEW_UNITS = 8, MIN_TILE_WORK = 16 * 1024,
  MAX_REGISTERS = 1024,
};

typedef struct builder {
  const tern_group_input *in;
  tern_group *g;
  int order[TERN_MAX_RANK];
  bool permuted;
  int n_made;
  struct { tern_value value; uint16_t reg; } made[TERN_FUSE_MAX_OPS];
} builder;

static tern_status no_memory(void) { return tern_error_new(TERN_OUT_OF_MEMORY, "no host memory to plan a fused group"); }

static uint16_t new_register(builder *b, size_t bytes) {
  b->g->register_bytes[b->g->n_registers] = (uint8_t)bytes;
  return (uint16_t)b->g->n_registers++;
}

static void emit(builder *b, tern_block_function run, uint16_t out, uint16_t a, uint16_t second, uint16_t third) {
  b->g->instructions[b->g->n_instructions++] = (tern_instruction){.run = run, .out = out, .a = a, .b = second, .c = third};
}
static uint16_t emit_new(builder *b, tern_block_function run, tern_dtype dtype, uint16_t a, uint16_t second, uint16_t third) {
  uint16_t out = new_register(b, tern_dtype_size(dtype));
  emit(b, run, out, a, second, third);
  return out;
}

/* The register of an operand from outside: each distinct pattern is loaded once. Halves are widened once. */
static uint16_t source_register(builder *b, tern_value value) {
  const tern_program *p = b->in->program;
  const tern_value_info *info = &p->values[value];
  const tern_value_view *view = &b->in->views[value];
  tern_group *g = b->g;
  const bool iota = p->ops[p->values[view->root].op].kind == TERN_OP_IOTA;
  tern_source *s = &g->sources[g->n_sources];
  *s = (tern_source){.location = b->in->location[view->root], .dtype = info->dtype, .root = view->root, .offset = view->offset};
  tern_walk_make(&s->walk, info->rank, info->dims, view->strides, b->permuted ? b->order : NULL, tern_dtype_size(info->dtype));
  for (tern_source *known = g->sources; known < s; known++)
    if (known->root == s->root && known->offset == s->offset && known->walk.rank == s->walk.rank &&
        memcmp(known->walk.dims, s->walk.dims, (size_t)s->walk.rank * sizeof *s->walk.dims) == 0 &&
        memcmp(known->walk.strides, s->walk.strides, (size_t)s->walk.rank * sizeof *s->walk.strides) == 0)
      return (uint16_t)known->last_read; /* while building: the register that holds it ready for use */
  bool splat = true;
  for (int d = 0; d < s->walk.rank; d++) splat &= s->walk.strides[d] == 0;
  s->kind = iota ? TERN_SOURCE_IOTA : splat ? TERN_SOURCE_SPLAT : s->walk.rank == 1 && s->walk.strides[0] == 1 ? TERN_SOURCE_DIRECT : TERN_SOURCE_WALK;
  if (g->count == 1 && !iota) s->kind = TERN_SOURCE_DIRECT;
  g->n_sources++;
  if (iota) s->dtype = tern_block_dtype(info->dtype);
  s->reg = new_register(b, tern_dtype_size(s->dtype));
  uint16_t ready = s->reg;
  tern_dtype dtype = tern_block_dtype(s->dtype);
  if (dtype != s->dtype) ready = emit_new(b, b->in->machine->convert[s->dtype][dtype], dtype, ready, ready, ready);
  if (iota && info->dtype != dtype) emit(b, b->in->machine->round[info->dtype], ready, ready, ready, ready);
  s->last_read = (int16_t)ready;
  return ready;
}

static tern_status operand_register(builder *b, tern_value value, uint16_t *out) {
  tern_value root = b->in->views[value].root;
  if (b->in->step_of[b->in->program->values[root].op] == b->in->step) {
    TERN_CHECK(b->in->views[value].linear);
    for (int i = b->n_made - 1; i >= 0; i--)
      if (b->made[i].value == root) {
        *out = b->made[i].reg;
        return NULL;
      }
  }
  *out = source_register(b, value);
  return NULL;
}

/* Results of these never need rounding to the half they were made from. */
static bool is_exact(tern_op_kind kind) {
  switch (kind) {
    case TERN_OP_ABS: case TERN_OP_NEGATE: case TERN_OP_SIGN: case TERN_OP_FLOOR: case TERN_OP_CEIL: case TERN_OP_ROUND_EVEN:
    case TERN_OP_MAXIMUM: case TERN_OP_MINIMUM: return true;
    default: return false;
  }
}

/* *alias: the value shares its register with another, so it cannot be written in place of it. */
static tern_status build_elementwise(builder *b, const tern_op *op, uint16_t *out, bool *alias) {
  const tern_block_machine *m = b->in->machine;
  const tern_program *p = b->in->program;
  uint16_t r[3] = {0};
  for (int i = 0; i < op->n_operands; i++) TERN_TRY(operand_register(b, op->operands[i], &r[i]));
  for (int i = op->n_operands; i < 3; i++) r[i] = r[0];
  const tern_dtype from = p->values[op->operands[0]].dtype, to = p->values[op->first_result].dtype;
  const tern_dtype in = tern_block_dtype(from), result = tern_block_dtype(to);
  tern_block_function run = NULL;
  bool round = result != to;
  *alias = false;
  switch ((tern_op_kind)op->kind) {
    case TERN_OP_CONVERT:
      run = m->convert[in][result];
      if (in == result && from != TERN_BOOL) run = round && from != to ? m->round[to] : NULL, round = false, *alias = !run;
      break;
    case TERN_OP_BITCAST:
      round = false;
      if (from != in && to != result) { /* f16 and bf16: through the bits */
        r[0] = emit_new(b, m->convert[in][from], from, r[0], r[0], r[0]);
        run = m->convert[to][result];
      } else if (from != in) run = m->convert[in][from];
      else if (to != result) run = m->convert[to][result];
      else *alias = true;
      break;
    case TERN_OP_RESHAPE: *alias = true; break;
    case TERN_OP_COMPARE: run = m->compare[op->attrs->compare.how][in]; break;
    case TERN_OP_SELECT:
      run = m->select[tern_dtype_size(result)];
      round = false;
      break;
    default:
      run = m->operation[op->kind][in];
      if (is_exact((tern_op_kind)op->kind)) round = false;
  }
  if (*alias) {
    *out = r[0];
    return NULL;
  }
  if (!run)
    return tern_error_new(TERN_UNSUPPORTED, "the CPU engine has no '%s' from %s to %s; convert to another dtype first", tern_op_rows[op->kind].name,
                          tern_dtype_name(from), tern_dtype_name(to));
  *out = emit_new(b, run, result, r[0], r[1], r[2]);
  if (round) emit(b, m->round[to], *out, *out, *out, *out);
  return NULL;
}

/* A value that others read is written to its location. */
static void add_sink(builder *b, tern_value value, uint16_t reg, bool alias) {
  const tern_value_info *info = &b->in->program->values[value];
  const tern_block_machine *m = b->in->machine;
  tern_group *g = b->g;
  const tern_dtype dtype = tern_block_dtype(info->dtype);
  for (int32_t i = 0; i < g->n_sinks; i++) alias |= g->sinks[i].reg == reg;
  if (dtype != info->dtype) reg = emit_new(b, m->convert[dtype][info->dtype], info->dtype, reg, reg, reg);
  else if (alias) reg = emit_new(b, m->copy_block[tern_dtype_size(dtype)], dtype, reg, reg, reg);
  tern_sink *s = &g->sinks[g->n_sinks++];
  *s = (tern_sink){.location = b->in->location[value], .element = (uint32_t)tern_dtype_size(info->dtype), .reg = reg,
                   .write = (int16_t)(g->n_instructions - 1), .strided = b->permuted};
  if (!b->permuted) return;
  int64_t strides[TERN_MAX_RANK];
  tern_strides_dense(info->rank, info->dims, strides);
  tern_walk_make(&s->walk, info->rank, info->dims, strides, b->order, s->element);
}

/* What an instruction touches: operands and result, or the registers of a chain's steps. */
static int32_t touches(const tern_instruction *x) { return x->run ? 4 : x->n_steps; }
static uint16_t touched(const tern_group *g, const tern_instruction *x, int32_t i, bool *writes) {
  if (!x->run) {
    const tern_chain_step *s = &g->steps[x->first_step + i];
    *writes = s->kind == TERN_CHAIN_STORE;
    return s->reg;
  }
  *writes = i == 3;
  return i == 0 ? x->a : i == 1 ? x->b : i == 2 ? x->c : x->out;
}

/* Which instruction reads a source last and which writes a sink, so that a result may take over an operand's storage. What a chain reads after it has stored something
 * counts as read by the next instruction: the chain's own results may not lie there. */
static void note_reads_and_writes(tern_group *g) {
  bool writes, stored;
  for (int32_t i = 0; i < g->n_sources; i++) g->sources[i].last_read = -1;
  for (int32_t k = 0; k < g->n_instructions; k++) {
    const tern_instruction *x = &g->instructions[k];
    stored = false;
    for (int32_t t = 0; t < touches(x); t++) {
      const uint16_t reg = touched(g, x, t, &writes);
      for (int32_t i = 0; i < g->n_sources && !writes; i++)
        if (g->sources[i].reg == reg) g->sources[i].last_read = (int16_t)(k + (stored && !x->run));
      for (int32_t i = 0; i < g->n_sinks && writes; i++)
        if (g->sinks[i].reg == reg) g->sinks[i].write = (int16_t)k;
      stored |= writes;
    }
  }
}

tern_status tern_group_build(const tern_group_input *in, tern_group **out) {
  const tern_program *p = in->program;
  builder b = {.in = in, .g = tern_arena_alloc(in->arena, sizeof(tern_group))};
  tern_group *g = b.g;
  if (!g) return no_memory();
  size_t n_operands = 0, n = (size_t)in->n_ops;
  for (int32_t i = 0; i < in->n_ops; i++) n_operands += p->ops[in->ops[i]].n_operands;
  const size_t registers = 2 * n_operands + 4 * n;
  TERN_CHECK(registers <= MAX_REGISTERS && n <= TERN_FUSE_MAX_OPS);
  g->sources = tern_arena_alloc(in->arena, (n_operands + 1) * sizeof *g->sources);
  g->instructions = tern_arena_alloc(in->arena, (2 * n_operands + 4 * n) * sizeof *g->instructions);
  g->sinks = tern_arena_alloc(in->arena, n * sizeof *g->sinks);
  g->reducers = tern_arena_alloc(in->arena, n * sizeof *g->reducers);
  g->register_bytes = tern_arena_alloc(in->arena, registers);
  if (!g->sources || !g->instructions || !g->sinks || !g->reducers || !g->register_bytes) return no_memory();
  g->count = -1;
  for (int32_t i = 0; i < in->n_ops; i++) {
    const tern_op *op = &p->ops[in->ops[i]];
    if (op->kind != TERN_OP_REDUCE) {
      if (g->count < 0) g->count = tern_value_count(p, op->first_result);
      continue;
    }
    const tern_value_info *x = &p->values[op->operands[0]];
    g->form = tern_reduce_order(p, op, b.order) ? TERN_GROUP_ROWS : TERN_GROUP_COLUMNS;
    g->count = tern_dims_count(x->rank, x->dims);
    int64_t results = tern_value_count(p, op->first_result);
    g->row = g->form == TERN_GROUP_ROWS ? g->count / results : results;
    int last = -1;
    for (int k = 0; k < x->rank; k++) {
      if (x->dims[b.order[k]] == 1) continue;
      b.permuted |= b.order[k] < last;
      last = b.order[k];
    }
    break;
  }
  for (int32_t i = 0; i < in->n_ops; i++) {
    const tern_op *op = &p->ops[in->ops[i]];
    uint16_t reg = 0;
    bool alias = false;
    if (op->kind == TERN_OP_REDUCE) {
      TERN_TRY(operand_register(&b, op->operands[0], &reg));
      tern_dtype stored = p->values[op->first_result].dtype, dtype = tern_block_dtype(stored);
      tern_reduction how = op->attrs->reduce.how;
      if (!in->machine->reduce_rows[how][dtype])
        return tern_error_new(TERN_UNSUPPORTED, "the CPU engine has no such reduction of %s; convert to another dtype first", tern_dtype_name(stored));
      g->reducers[g->n_reducers++] = (tern_reducer){.how = how, .dtype = dtype, .stored = stored, .location = in->location[op->first_result], .reg = reg};
      continue;
    }
    TERN_TRY(build_elementwise(&b, op, &reg, &alias));
    b.made[b.n_made].value = op->first_result;
    b.made[b.n_made++].reg = reg;
    if (in->location[op->first_result] >= 0) add_sink(&b, op->first_result, reg, alias);
  }
  TERN_TRY(tern_group_make_chains(g, in->machine, in->arena));
  note_reads_and_writes(g);
  for (int32_t k = 0; k < g->n_reducers; k++)
    for (int32_t i = 0; i < g->n_sources; i++)
      if (g->reducers[k].reg == g->sources[i].reg) g->sources[i].last_read = INT16_MAX;
  *out = g;
  return NULL;
}

/* ---- buffers ---- */

typedef struct placement {
  tern_group *g;
  int32_t *last;          /* per register: the instruction that touches it last */
  int32_t *freed, top[17]; /* stacks of buffers per element size, linked by register number + 1 */
  bool *kept, *written;   /* kept: not to be given back (again) */
  int64_t *bytes;
} placement;

static void take_buffer(placement *z, uint16_t r) {
  if (!z->written[r] && !z->kept[r]) {
    int32_t *stack = &z->top[z->g->register_bytes[r]];
    if (*stack) {
      z->g->register_place[r] = z->g->register_place[*stack - 1];
      *stack = z->freed[*stack - 1];
    } else {
      z->g->register_place[r] = (int32_t)*z->bytes;
      *z->bytes += z->g->register_bytes[r];
    }
  }
  z->written[r] = true;
}
static void give_back(placement *z, uint16_t r, int32_t k) {
  if (z->last[r] != k || z->kept[r] || !z->written[r]) return;
  z->kept[r] = true;
  z->freed[r] = z->top[z->g->register_bytes[r]];
  z->top[z->g->register_bytes[r]] = r + 1;
}

/* Linear scan: a register gets a buffer when written and gives it back after its last use. Buffers are of one element size, because an instruction
 * may write over its operand only at equal sizes. A chain writes over none: it may read it once more. */
static tern_status place_registers(tern_group *g, tern_arena *arena, int64_t *bytes) {
  const int32_t n = g->n_registers, end = g->n_instructions;
  bool writes;
  placement z = {.g = g, .bytes = bytes, .last = tern_arena_alloc(arena, (size_t)(n + 1) * sizeof *z.last), .freed = tern_arena_alloc(arena, (size_t)(n + 1) * sizeof *z.freed),
                 .kept = tern_arena_alloc(arena, (size_t)n + 1), .written = tern_arena_alloc(arena, (size_t)n + 1)};
  g->register_place = tern_arena_alloc(arena, (size_t)(n + 1) * sizeof *g->register_place);
  if (!z.last || !z.freed || !z.kept || !z.written || !g->register_place) return no_memory();
  *bytes = 0;
  for (int32_t r = 0; r < n; r++) z.last[r] = g->register_place[r] = -1;
  for (int32_t k = 0; k < end; k++)
    for (int32_t t = 0; t < touches(&g->instructions[k]); t++) z.last[touched(g, &g->instructions[k], t, &writes)] = k;
  for (int32_t i = 0; i < g->n_reducers; i++) z.last[g->reducers[i].reg] = end;
  for (int32_t i = 0; i < g->n_sinks; i++) {
    z.last[g->sinks[i].reg] = end;
    if (!g->sinks[i].strided) z.kept[g->sinks[i].reg] = true; /* it is the result itself */
  }
  for (int32_t i = 0; i < g->n_sources; i++) {
    const tern_source *s = &g->sources[i];
    z.kept[s->reg] = true; /* never given back: it may hold for the whole chunk, or not be a buffer at all */
    if (s->kind == TERN_SOURCE_DIRECT || s->kind == TERN_SOURCE_SCALAR) continue;
    g->register_place[s->reg] = (int32_t)*bytes;
    *bytes += g->register_bytes[s->reg];
  }
  for (int32_t k = 0; k < end; k++) {
    const tern_instruction *x = &g->instructions[k];
    for (int32_t t = 0; t < touches(x) && x->run; t++) {
      const uint16_t r = touched(g, x, t, &writes);
      if (r != x->out && g->register_bytes[r] == g->register_bytes[x->out]) give_back(&z, r, k);
    }
    for (int32_t t = 0; t < touches(x); t++) {
      const uint16_t r = touched(g, x, t, &writes);
      if (writes) take_buffer(&z, r);
    }
    for (int32_t t = 0; t < touches(x); t++) give_back(&z, touched(g, x, t, &writes), k); /* what could not be reused by this instruction is free after it */
  }
  return NULL;
}

/* ---- blocks and chunks ---- */

static int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

/* The row that blocks should not cross, so that row operands need no copy: the shortest inner run of some length, or the longest there is. */
static int64_t preferred_row(const tern_group *g) {
  int64_t row = 0, longest = 0;
  for (int32_t i = 0; i < g->n_sources; i++) {
    const tern_source *s = &g->sources[i];
    if (s->kind != TERN_SOURCE_WALK) continue;
    int64_t inner = s->walk.dims[s->walk.rank - 1];
    if (inner >= 64 && (row == 0 || inner < row)) row = inner;
    if (inner > longest) longest = inner;
  }
  return row ? row : longest ? longest : g->count;
}

static void cut_blocks(tern_group *g, int64_t limit) {
  g->blocks_per_row = 1;
  if (g->form == TERN_GROUP_COLUMNS) {
    const int64_t rows = g->count / g->row;
    if (g->row > MAX_BLOCK) {
      g->block = MAX_BLOCK;
      g->blocks_per_row = ceil_div(g->row, MAX_BLOCK);
    } else {
      int64_t fit = MAX_BLOCK / g->row, together = 1;
      while (together < TERN_BLOCK_STEP && together * 2 <= fit) together *= 2;
      if (together == TERN_BLOCK_STEP) together = fit / TERN_BLOCK_STEP * TERN_BLOCK_STEP;
      if (together > TERN_BLOCK_TALL) together = TERN_BLOCK_TALL;
      g->block = together * g->row;
    }
    /* Few rows, many columns: narrower tiles, so that there is work for several threads. */
    const int64_t pieces = ceil_div(rows, TERN_BLOCK_TALL);
    int64_t tile = g->row < MAX_BLOCK ? g->row : MAX_BLOCK;
    while (pieces * ceil_div(g->row, tile) < FEW_UNITS && tile >= 2 * MIN_BLOCK && rows * tile > MIN_TILE_WORK) tile = (tile / 2 + 63) & ~(int64_t)63;
    if (tile < g->row) {
      g->block = tile;
      g->blocks_per_row = ceil_div(g->row, tile);
    }
    g->n_units = pieces * g->blocks_per_row;
  } else if (g->form == TERN_GROUP_ROWS) {
    if (g->row > TERN_BLOCK_SEGMENT) {
      g->block = TERN_BLOCK_SEGMENT;
      g->blocks_per_row = ceil_div(g->row, g->block);
      g->n_units = g->count / g->row * g->blocks_per_row;
    } else {
      g->block = limit / g->row > 0 ? limit / g->row * g->row : g->row;
      g->n_units = ceil_div(g->count, g->block);
    }
  } else {
    g->row = preferred_row(g);
    if (g->row <= limit) {
      g->block = limit / g->row * g->row;
      g->n_units = ceil_div(g->count, g->block);
    } else {
      g->blocks_per_row = ceil_div(g->row, limit);
      g->block = (ceil_div(g->row, g->blocks_per_row) + 63) & ~(int64_t)63;
      if (g->block > limit) g->block = limit;
      g->blocks_per_row = ceil_div(g->row, g->block);
      g->n_units = g->count / g->row * g->blocks_per_row;
    }
  }
}

tern_status tern_group_finish(tern_group *g, tern_arena *arena) {
  int64_t bytes = 0;
  TERN_TRY(place_registers(g, arena, &bytes));
  int64_t limit = MAX_BLOCK;
  while (limit > MIN_BLOCK && limit * bytes > BLOCK_BYTES) limit /= 2;
  cut_blocks(g, limit);
  if (g->form != TERN_GROUP_COLUMNS && g->row <= g->block)
    for (int32_t i = 0; i < g->n_sources; i++) { /* blocks are whole rows: what repeats every row is loaded once */
      tern_source *s = &g->sources[i];
      if (s->kind != TERN_SOURCE_WALK || s->walk.rank < 2) continue;
      bool repeats = true;
      int64_t period = 1;
      for (int d = 0; d < s->walk.rank; d++)
        if (d == 0) repeats = s->walk.strides[0] == 0;
        else period *= s->walk.dims[d];
      if (repeats && g->block % period == 0) s->kind = TERN_SOURCE_PERIODIC;
    }
  const int64_t per_element = 1 + g->n_operations + g->n_sources / 2, work = g->count * per_element;
  int64_t unit = g->block * per_element;
  if (g->form == TERN_GROUP_COLUMNS) {
    const int64_t rows = g->count / g->row, columns = g->blocks_per_row > 1 ? g->block : g->row;
    unit = (rows < TERN_BLOCK_TALL ? rows : TERN_BLOCK_TALL) * columns * per_element;
  }
  g->units_per_chunk = work <= INLINE_WORK ? g->n_units : unit >= CHUNK_WORK ? 1 : CHUNK_WORK / unit;
  g->n_chunks = ceil_div(g->n_units, g->units_per_chunk);
  const int64_t room = (g->block + 63) & ~(int64_t)63;
  g->sums = bytes * room;
  const int64_t tile = g->row < MAX_BLOCK ? (g->row + 63) & ~(int64_t)63 : MAX_BLOCK;
  g->scratch = g->sums + (g->form == TERN_GROUP_MAP ? 0 : g->form == TERN_GROUP_ROWS ? 8 * MAX_BLOCK : 2 * 8 * tile * g->n_reducers);
  return NULL;
}

int64_t tern_group_partials(const tern_group *g) {
  if (g->form == TERN_GROUP_COLUMNS) return ceil_div(g->count / g->row, TERN_BLOCK_TALL);
  return g->form == TERN_GROUP_ROWS ? ceil_div(g->row, TERN_BLOCK_SEGMENT) : 1;
}

tern_status tern_group_build_partial(const tern_group *first, tern_arena *arena, const int32_t *from, tern_group **out) {
  tern_group *g = tern_arena_alloc(arena, sizeof *g);
  if (!g) return no_memory();
  const int64_t pieces = tern_group_partials(first), results = first->form == TERN_GROUP_COLUMNS ? first->row : first->count / first->row;
  *g = (tern_group){.form = first->form, .count = pieces * results, .row = first->form == TERN_GROUP_COLUMNS ? results : pieces,
                    .n_sources = first->n_reducers, .n_reducers = first->n_reducers, .n_registers = first->n_reducers};
  const size_t n = (size_t)first->n_reducers;
  g->sources = tern_arena_alloc(arena, n * sizeof *g->sources);
  g->reducers = tern_arena_copy(arena, first->reducers, n * sizeof *g->reducers);
  g->register_bytes = tern_arena_alloc(arena, n);
  if (!g->sources || !g->reducers || !g->register_bytes) return no_memory();
  for (size_t i = 0; i < n; i++) {
    tern_dtype dtype = first->reducers[i].dtype;
    g->register_bytes[i] = (uint8_t)tern_dtype_size(dtype);
    g->reducers[i].reg = (uint16_t)i;
    g->sources[i] = (tern_source){.kind = TERN_SOURCE_DIRECT, .location = from[i], .dtype = dtype, .root = TERN_NO_VALUE, .reg = (uint16_t)i, .last_read = INT16_MAX,
                                  .walk = {.rank = 1, .element = (uint32_t)tern_dtype_size(dtype), .dims = {g->count}, .strides = {1}}};
  }
  *out = g;
  return NULL;
}
