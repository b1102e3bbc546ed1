/* Placing: where every location lies, and which results take over the storage of what they are made from. Called by plan.c, last.
 *
 * A location may take over another's storage when the step that first writes it is the last that reads the other, and that step reads each element before it
 * writes it. Chains of such locations share one storage. A storage that ends as a result which reuses a donated parameter is the parameter's own memory if
 * nobody reads the old value later and no check of indices can fail later: a launch that fails must leave its inputs as they were. Other
 * results get memory of their own; the rest shares the slab. */
#include "plan_steps.h"
#include "../opt/memory_plan.h"

typedef struct placer {
  tern_planner *pl;
  tern_location *locations;
  int32_t *storage;    /* per location: the location that stands for its storage */
  int32_t *first, *last, *claim; /* per storage */
  bool *taken;         /* per parameter: its memory is some result's */
  int32_t end;         /* a step after all */
} placer;

/* Whether the storage that becomes result `claim` at step `step` may be the memory of the parameter that the result reuses. `reads_first`: the step
 * reads every element of the parameter before it writes it. */
static bool may_take_parameter(const placer *z, int32_t location, int32_t step, int32_t source) {
  const tern_planner *pl = z->pl;
  const int32_t claim = z->claim[z->storage[location]];
  if (claim < 0) return false;
  const int32_t parameter = pl->program->results[claim].reuses;
  if (parameter < 0 || z->taken[parameter] || step <= pl->last_check) return false;
  const int32_t its = pl->location[pl->program->parameters[parameter]];
  if (z->locations[its].bytes != z->locations[location].bytes) return false;
  return z->locations[its].last < step || (source == its && z->locations[its].last == step);
}

static void take_parameter(placer *z, int32_t location) {
  const int32_t storage = z->storage[location], claim = z->claim[storage];
  const int32_t parameter = z->pl->program->results[claim].reuses;
  z->taken[parameter] = true;
  z->pl->out->output_takes[claim] = parameter;
}

/* The step writes `location` first, and may write it over `source`. */
static bool offer(placer *z, int32_t step, int32_t location, int32_t source) {
  tern_location *to = &z->locations[location], *from = &z->locations[source];
  if (location == source || to->first != step || to->bytes != from->bytes || z->storage[location] != location) return false;
  if (z->claim[location] >= 0 && z->pl->out->output_takes[z->claim[location]] >= 0) return false; /* decided */
  if (from->place == TERN_PLACE_INPUT) {
    const int32_t claim = z->claim[location], parameter = claim < 0 ? -1 : z->pl->program->results[claim].reuses;
    if (parameter != from->index || !may_take_parameter(z, location, step, source)) return false;
    take_parameter(z, location);
    return true;
  }
  if (from->place != TERN_PLACE_SLAB) return false;
  const int32_t storage = z->storage[source];
  if (z->claim[storage] >= 0 || z->last[storage] != step || from->last != step) return false;
  if (may_take_parameter(z, location, step, -1)) return false; /* it has a better place */
  z->storage[location] = storage;
  z->last[storage] = z->last[location];
  z->claim[storage] = z->claim[location];
  return true;
}

static void offer_group(placer *z, int32_t step, const tern_group *g) {
  for (int pass = 0; pass < 2; pass++) /* parameters first */
    for (int32_t i = 0; i < g->n_sinks; i++)
      for (int32_t k = 0; k < g->n_sources; k++) {
        const tern_sink *sink = &g->sinks[i];
        const tern_source *s = &g->sources[k];
        if (sink->strided || s->kind != TERN_SOURCE_DIRECT || s->offset != 0 || s->last_read > sink->write) continue;
        if ((z->locations[s->location].place == TERN_PLACE_INPUT) != (pass == 0)) continue;
        /* Another operand may be another view of the same storage. */
        bool alone = true;
        for (int32_t m = 0; m < g->n_sources; m++)
          alone &= m == k || g->sources[m].location < 0 || z->storage[g->sources[m].location] != z->storage[s->location];
        if (alone) offer(z, step, sink->location, s->location);
      }
}

static void offer_kernel(placer *z, int32_t step, const tern_kernel_step *k) {
  for (int32_t i = 0; i < k->n_in && i < 32; i++) {
    const tern_place_view *v = &k->in[i];
    if (!(k->kernel->reuse >> i & 1) || v->location < 0 || k->n_out == 0 || v->offset != 0) continue;
    int64_t expected = 1;
    bool dense = true, alone = true;
    for (int d = v->rank - 1; d >= 0; d--) {
      dense &= v->dims[d] == 1 || v->strides[d] == expected;
      expected *= v->dims[d];
    }
    for (int32_t m = 0; m < k->n_in; m++)
      alone &= m == i || k->in[m].location < 0 || z->storage[k->in[m].location] != z->storage[v->location];
    if (dense && alone && offer(z, step, k->out[0].location, v->location)) return;
  }
}

static bool is_whole_copy(const tern_copy_step *c) {
  if (c->from.offset != 0 || c->to.offset != 0) return false;
  int64_t expected = 1;
  for (int d = c->to.rank - 1; d >= 0; d--) {
    if (c->to.dims[d] != 1 && (c->from.strides[d] != expected || c->to.strides[d] != expected)) return false;
    expected *= c->to.dims[d];
  }
  return true;
}

static tern_status place_slab(placer *z, tern_planner *pl) {
  tern_executable *x = pl->out;
  int32_t n = 0, *owner = tern_arena_alloc(&pl->scratch, (size_t)(x->n_locations + 1) * sizeof *owner);
  tern_memory_item *items = tern_arena_alloc(&pl->scratch, (size_t)(x->n_locations + 1) * sizeof *items);
  int32_t *first_of_step = tern_arena_alloc(&pl->scratch, (size_t)(x->n_steps + 2) * sizeof *first_of_step);
  if (!items || !owner || !first_of_step) return tern_error_new(TERN_OUT_OF_MEMORY, "no host memory to plan a program");
  /* Sorted by first step: counting. */
  for (int32_t pass = 0; pass < 2; pass++) {
    for (int32_t i = 0; i < x->n_locations; i++) {
      if (x->locations[i].place != TERN_PLACE_SLAB || z->storage[i] != i || z->claim[i] >= 0 || z->first[i] < 0) continue;
      if (pass == 0) {
        first_of_step[z->first[i] + 1]++;
        n++;
      } else {
        int32_t at = first_of_step[z->first[i]]++;
        owner[at] = i;
        items[at] = (tern_memory_item){.bytes = x->locations[i].bytes, .first = z->first[i], .last = z->last[i]};
      }
    }
    if (pass == 0)
      for (int32_t s = 0; s <= x->n_steps; s++) first_of_step[s + 1] += first_of_step[s];
  }
  TERN_TRY(tern_memory_plan(n, items, &pl->scratch, &x->slab));
  for (int32_t i = 0; i < n; i++) x->locations[owner[i]].offset = items[i].offset;
  return NULL;
}

tern_status tern_plan_place(tern_planner *pl) {
  tern_executable *x = pl->out;
  const size_t n = (size_t)x->n_locations + 1;
  placer z = {.pl = pl, .locations = x->locations, .end = x->n_steps};
  z.storage = tern_arena_alloc(&pl->scratch, n * sizeof *z.storage);
  z.first = tern_arena_alloc(&pl->scratch, n * sizeof *z.first);
  z.last = tern_arena_alloc(&pl->scratch, n * sizeof *z.last);
  z.claim = tern_arena_alloc(&pl->scratch, n * sizeof *z.claim);
  z.taken = tern_arena_alloc(&pl->scratch, (size_t)x->n_inputs + 1);
  if (!z.storage || !z.first || !z.last || !z.claim || !z.taken) return tern_error_new(TERN_OUT_OF_MEMORY, "no host memory to plan a program");
  for (int32_t i = 0; i < x->n_locations; i++) {
    tern_location *l = &x->locations[i];
    z.storage[i] = i;
    z.claim[i] = pl->claim[i];
    if (z.claim[i] >= 0) l->last = z.end;
    z.first[i] = l->first;
    z.last[i] = l->last;
  }
  for (int32_t r = 0; r < x->n_outputs; r++)
    if (x->output_takes[r] >= 0) z.taken[x->output_takes[r]] = true;
  for (int32_t s = 0; s < x->n_steps; s++) {
    tern_step *step = &x->steps[s];
    if (step->kind == TERN_STEP_GROUP) offer_group(&z, s, step->group);
    else if (step->kind == TERN_STEP_KERNEL) offer_kernel(&z, s, step->kernel);
    else if (step->kind == TERN_STEP_COPY && is_whole_copy(step->copy) && offer(&z, s, step->copy->to.location, step->copy->from.location))
      step->copy->n_chunks = 0; /* it is there already */
  }
  /* Results that may have a donated parameter's memory though no step could write over it element by element. */
  for (int32_t i = 0; i < x->n_locations; i++)
    if (z.storage[i] == i && z.claim[i] >= 0 && x->output_takes[z.claim[i]] < 0 && x->locations[i].place == TERN_PLACE_SLAB && z.first[i] >= 0 &&
        may_take_parameter(&z, i, z.first[i], -1))
      take_parameter(&z, i);
  TERN_TRY(place_slab(&z, pl));
  for (int32_t i = 0; i < x->n_locations; i++) {
    tern_location *l = &x->locations[i];
    if (l->place != TERN_PLACE_SLAB) continue;
    const int32_t claim = z.claim[z.storage[i]];
    if (claim < 0) {
      l->offset = x->locations[z.storage[i]].offset;
    } else if (x->output_takes[claim] >= 0) {
      l->place = TERN_PLACE_INPUT;
      l->index = x->output_takes[claim];
    } else {
      l->place = TERN_PLACE_OUTPUT;
      l->index = claim;
    }
  }
  return NULL;
}
