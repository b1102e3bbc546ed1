/* Running a group: blocks of its iteration space through its instructions, on one thread or through the pool. Called by execute.c.
 *
 * A unit is a block (maps and rows) or a piece of TERN_BLOCK_TALL rows by one tile of columns. A chunk is a run of units. */
#include "plan.h"

typedef struct run {
  const tern_group *g;
  const tern_block_machine *machine;
  char *const *base;       /* per location */
  char *scratch;
  int64_t per_thread;
} run;

/* One thread's state while it runs chunks. */
typedef struct lane {
  const run *r;
  char *scratch;
  char *reg[]; /* per register: where it is for the present block */
} lane;

static int64_t min_i64(int64_t a, int64_t b) { return a < b ? a : b; }

static char *source_base(const run *r, const tern_source *s) { return r->base[s->location] + s->offset * (int64_t)s->walk.element; }

/* Registers that do not change from block to block. */
static void begin_chunk(lane *l) {
  const tern_group *g = l->r->g;
  const int64_t room = (g->block + 63) & ~(int64_t)63;
  for (int32_t i = 0; i < g->n_registers; i++) l->reg[i] = g->register_place[i] < 0 ? NULL : l->scratch + g->register_place[i] * room;
  for (int32_t i = 0; i < g->n_sources; i++) {
    const tern_source *s = &g->sources[i];
    int64_t n = min_i64(g->block, g->count);
    if (s->kind == TERN_SOURCE_SCALAR) l->reg[s->reg] = source_base(l->r, s);
    else if (s->kind == TERN_SOURCE_SPLAT) l->r->machine->fill(s->walk.element, source_base(l->r, s), n, l->reg[s->reg]);
    else if (s->kind == TERN_SOURCE_PERIODIC) l->r->machine->gather(&s->walk, source_base(l->r, s), 0, n, l->reg[s->reg]);
  }
}

/* A walk may be read where it lies when the block is within one consecutive row. */
static char *load_walk(lane *l, const tern_source *s, int64_t start, int64_t n, char *buffer) {
  const tern_block_walk *w = &s->walk;
  const char *base = source_base(l->r, s);
  const int inner = w->rank - 1;
  const int64_t at = start % w->dims[inner];
  if (w->strides[inner] == 1 && at + n <= w->dims[inner]) {
    int64_t offset = at, left = start / w->dims[inner];
    for (int d = inner - 1; d >= 0; d--) {
      offset += left % w->dims[d] * w->strides[d];
      left /= w->dims[d];
    }
    return (char *)(uintptr_t)(base + offset * (int64_t)w->element);
  }
  l->r->machine->gather(w, base, start, n, buffer);
  return buffer;
}

static void run_block(lane *l, int64_t start, int64_t n) {
  const tern_group *g = l->r->g;
  const int64_t room = (g->block + 63) & ~(int64_t)63;
  for (int32_t i = 0; i < g->n_sources; i++) {
    const tern_source *s = &g->sources[i];
    if (s->kind == TERN_SOURCE_DIRECT)
      l->reg[s->reg] = source_base(l->r, s) + start * (int64_t)s->walk.element;
    else if (s->kind == TERN_SOURCE_WALK)
      l->reg[s->reg] = load_walk(l, s, start, n, l->scratch + g->register_place[s->reg] * room);
    else if (s->kind == TERN_SOURCE_IOTA)
      l->r->machine->iota(&s->walk, s->dtype, s->offset, start, n, l->reg[s->reg]);
  }
  for (int32_t i = 0; i < g->n_sinks; i++)
    if (!g->sinks[i].strided) l->reg[g->sinks[i].reg] = l->r->base[g->sinks[i].location] + start * (int64_t)g->sinks[i].element;
  char **reg = l->reg;
  const tern_instruction *end = g->instructions + g->n_instructions;
  for (const tern_instruction *x = g->instructions; x < end; x++) {
    if (x->run) x->run(reg[x->out], reg[x->a], reg[x->b], reg[x->c], n);
    else l->r->machine->chain(g->steps + x->first_step, x->n_steps, reg, n);
  }
  for (int32_t i = 0; i < g->n_sinks; i++)
    if (g->sinks[i].strided) l->r->machine->scatter(&g->sinks[i].walk, l->r->base[g->sinks[i].location], start, n, reg[g->sinks[i].reg]);
}

/* Partial or final results number `at`, `n` of them, from the reducer's dtype to the location's. */
static void store_results(lane *l, const tern_reducer *d, const void *values, int64_t at, int64_t n) {
  char *out = l->r->base[d->location] + at * (int64_t)tern_dtype_size(d->stored);
  if (d->stored == d->dtype) memcpy(out, values, (size_t)n * tern_dtype_size(d->dtype));
  else l->r->machine->convert[d->dtype][d->stored](out, values, NULL, NULL, n);
}

static void run_rows_unit(lane *l, int64_t unit) {
  const tern_group *g = l->r->g;
  int64_t start, n, length, result;
  if (g->row > g->block) {
    int64_t row = unit / g->blocks_per_row, piece = unit % g->blocks_per_row;
    start = row * g->row + piece * g->block;
    length = n = min_i64(g->block, g->row - piece * g->block);
    result = unit;
  } else {
    start = unit * g->block;
    n = min_i64(g->block, g->count - start);
    length = g->row;
    result = start / g->row;
  }
  run_block(l, start, n);
  char *values = l->scratch + g->sums;
  for (int32_t i = 0; i < g->n_reducers; i++) {
    const tern_reducer *d = &g->reducers[i];
    l->r->machine->reduce_rows[d->how][d->dtype](values, l->reg[d->reg], n / length, length);
    store_results(l, d, values, result, n / length);
  }
}

/* Sixteen rows are added up in `step`, their sum is added to `tall`. */
static void run_columns_unit(lane *l, int64_t unit) {
  const tern_group *g = l->r->g;
  const int64_t rows = g->count / g->row, piece = unit / g->blocks_per_row, tile = unit % g->blocks_per_row;
  const int64_t first = piece * TERN_BLOCK_TALL, end = min_i64(rows, first + TERN_BLOCK_TALL);
  const bool tiled = g->blocks_per_row > 1;
  const int64_t column = tiled ? tile * g->block : 0, columns = tiled ? min_i64(g->block, g->row - column) : g->row;
  const int64_t together = tiled ? 1 : g->block / g->row;
  const int64_t room = ((tiled ? g->block : g->row) + 63) & ~(int64_t)63;
  for (int64_t row = first; row < end; row += together) {
    const int64_t n_rows = min_i64(together, end - row);
    run_block(l, row * g->row + column, n_rows * columns);
    for (int32_t i = 0; i < g->n_reducers; i++) {
      const tern_reducer *d = &g->reducers[i];
      const size_t element = tern_dtype_size(d->dtype);
      char *tall = l->scratch + g->sums + 16 * room * i, *step = tall + 8 * room, *x = l->reg[d->reg];
      for (int64_t done = 0; done < n_rows;) {
        const int64_t at = row + done - first, phase = at % TERN_BLOCK_STEP, take = min_i64(TERN_BLOCK_STEP - phase, n_rows - done);
        l->r->machine->reduce_columns[d->how][d->dtype](step, x + done * columns * (int64_t)element, take, columns, phase == 0);
        done += take;
        if (phase + take == TERN_BLOCK_STEP || row + done == end)
          l->r->machine->reduce_columns[d->how][d->dtype](tall, step, 1, columns, at < TERN_BLOCK_STEP);
      }
    }
  }
  for (int32_t i = 0; i < g->n_reducers; i++)
    store_results(l, &g->reducers[i], l->scratch + g->sums + 16 * room * i, piece * g->row + column, columns);
}

static void run_map_unit(lane *l, int64_t unit) {
  const tern_group *g = l->r->g;
  if (g->blocks_per_row > 1) {
    int64_t row = unit / g->blocks_per_row, piece = (unit % g->blocks_per_row) * g->block;
    run_block(l, row * g->row + piece, min_i64(g->block, g->row - piece));
  } else {
    run_block(l, unit * g->block, min_i64(g->block, g->count - unit * g->block));
  }
}

static void run_chunk(void *context, int64_t chunk, int thread) {
  const run *r = context;
  const tern_group *g = r->g;
  lane *l = __builtin_alloca(sizeof *l + (size_t)g->n_registers * sizeof *l->reg); /* at most 8 KiB: MAX_REGISTERS in blocks_build.c */
  l->r = r;
  l->scratch = r->scratch + thread * r->per_thread;
  const int64_t first = chunk * g->units_per_chunk, end = min_i64(g->n_units, first + g->units_per_chunk);
  begin_chunk(l);
  for (int64_t unit = first; unit < end; unit++) {
    if (g->form == TERN_GROUP_MAP) run_map_unit(l, unit);
    else if (g->form == TERN_GROUP_ROWS) run_rows_unit(l, unit);
    else run_columns_unit(l, unit);
  }
}

void tern_group_run(const tern_group *group, const tern_block_machine *machine, char *const *base, char *scratch, int64_t per_thread) {
  run r = {.g = group, .machine = machine, .base = base, .scratch = scratch, .per_thread = per_thread};
  if (group->n_chunks <= 1) run_chunk(&r, 0, 0);
  else tern_pool_run(group->n_chunks, run_chunk, &r);
}
