/* TERN_PRINT=plan: the steps of an executable with the user's lines. Called by backend.c after planning. */
#include "../diag/diag.h"
#include "plan_steps.h"

static const char *place_name(const tern_executable *x, int32_t location, char *out, size_t size) {
  static const char *const names[] = {"input", "scalar", "constant", "slab+", "result"};
  if (location < 0) return "-";
  const tern_location *l = &x->locations[location];
  long long number = l->place == TERN_PLACE_SLAB || l->place == TERN_PLACE_CONSTANT ? (long long)l->offset : l->index;
  snprintf(out, size, "%s%lld", names[l->place], number);
  return out;
}

static void append(char *line, size_t size, const char *format, ...) __attribute__((format(printf, 3, 4)));
static void append(char *line, size_t size, const char *format, ...) {
  size_t used = strlen(line);
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(line + used, size - used, format, arguments);
  va_end(arguments);
}

static void append_view(char *line, size_t size, const tern_executable *x, const tern_place_view *v) {
  char place[48];
  if (v->location < 0) {
    append(line, size, " -");
    return;
  }
  append(line, size, " %s:%s[", place_name(x, v->location, place, sizeof place), tern_dtype_name(v->dtype));
  for (int d = 0; d < v->rank; d++) append(line, size, "%s%lld", d ? "," : "", (long long)v->dims[d]);
  append(line, size, "]");
}

static void append_group(char *line, size_t size, const tern_executable *x, const tern_group *g) {
  static const char *const forms[] = {"map", "reduce rows", "reduce columns"};
  char place[48];
  append(line, size, "%s of %lld", forms[g->form], (long long)g->count);
  if (g->form != TERN_GROUP_MAP) append(line, size, " by %lld", (long long)g->row);
  append(line, size, ", %d instructions, blocks of %lld, %lld chunks, from", g->n_instructions, (long long)g->block, (long long)g->n_chunks);
  for (int32_t i = 0; i < g->n_sources; i++) append(line, size, " %s", g->sources[i].kind == TERN_SOURCE_IOTA ? "iota" : place_name(x, g->sources[i].location, place, sizeof place));
  append(line, size, " to");
  for (int32_t i = 0; i < g->n_sinks; i++) append(line, size, " %s", place_name(x, g->sinks[i].location, place, sizeof place));
  for (int32_t i = 0; i < g->n_reducers; i++) append(line, size, " %s", place_name(x, g->reducers[i].location, place, sizeof place));
}

void tern_plan_print(tern_executable *x, const tern_program *program) {
  char **lines = tern_arena_alloc(&x->arena, (size_t)(x->n_steps + 1) * sizeof *lines);
  tern_print("plan: %d operations in %d steps, %lld bytes of temporaries, kernels %s\n", program->n_ops, x->n_steps, (long long)x->slab, x->kernels->isa);
  for (int32_t s = 0; s < x->n_steps; s++) {
    const tern_step *step = &x->steps[s];
    char line[2048] = "";
    if (step->kind == TERN_STEP_GROUP) {
      append_group(line, sizeof line, x, step->group);
    } else if (step->kind == TERN_STEP_KERNEL) {
      const tern_kernel_step *k = step->kernel;
      append(line, sizeof line, "%s from", tern_op_rows[k->op.kind].name);
      for (int32_t i = 0; i < k->n_in; i++) append_view(line, sizeof line, x, &k->in[i]);
      append(line, sizeof line, " to");
      for (int32_t i = 0; i < k->n_out; i++) append_view(line, sizeof line, x, &k->out[i]);
    } else if (step->kind == TERN_STEP_COPY) {
      append(line, sizeof line, "%s from", step->copy->n_chunks ? "copy" : "nothing: in place");
      append_view(line, sizeof line, x, &step->copy->from);
      append(line, sizeof line, " to");
      append_view(line, sizeof line, x, &step->copy->to);
    } else {
      char place[48];
      append(line, sizeof line, "fill %lld to %s", (long long)step->fill->count, place_name(x, step->fill->location, place, sizeof place));
    }
    const char *where = program->describe_tag ? program->describe_tag(program->describe_context, step->tag) : "";
    if (where && *where) append(line, sizeof line, "  # %s", where);
    tern_print("  %3d %s\n", s, line);
    if (lines) lines[s] = tern_arena_copy(&x->arena, line, strlen(line) + 1);
  }
  if (lines) tern_plan_times_new(x, lines);
}
