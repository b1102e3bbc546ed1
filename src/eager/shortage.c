/* When memory runs out: which operation to name, what is alive and whose lines made it, what to try.
 *
 * A program takes its memory as a whole, so a backend cannot say which operation was one too many. Eager execution could: walking through the recording and counting what
 * each node's results take and what dies behind it finds the node at which an eager run would have stopped. */
#include "internal.h"

/* ---- who to name ---- */

static const uint64_t *behind_view(const uint64_t *w) { return w + 2 + 2 * (*w >> 40 & 0xFF); }

typedef struct use {
  size_t bytes;
  uint32_t last;       /* the last node that touches it */
  bool has_memory, dies;
} use;

/* Calls each(local, is_output) for the operands and outputs of the node at w, which stands behind the introductions. */
#define EACH_LOCAL(w, local, is_output, action)                                                    \
  do {                                                                                             \
    const uint64_t *at_ = (w);                                                                     \
    int operands_ = (int)(*at_ >> 24 & 0xFF), outputs_ = (int)(*at_ >> 32 & 0xFF);                  \
    at_++;                                                                                         \
    for (int k_ = 0; k_ < operands_ + outputs_; k_++) {                                            \
      bool is_output = k_ >= operands_;                                                            \
      if (!is_output && (*at_ & TERN_OPERAND_ABSENT)) {                                            \
        at_++;                                                                                     \
        continue;                                                                                  \
      }                                                                                            \
      uint32_t local = (uint32_t)*at_;                                                             \
      at_ = behind_view(at_);                                                                      \
      (void)is_output;                                                                             \
      action;                                                                                      \
    }                                                                                              \
  } while (0)

uint32_t tern_recording_blame_memory(const tern_recording *r, uint32_t n_nodes, const bool *dies, int64_t in_use, int64_t limit, size_t *bytes) {
  use *uses = calloc((size_t)r->n_locals + 1, sizeof *uses);
  *bytes = 0;
  if (!uses) return n_nodes;
  for (uint32_t n = 0; n < n_nodes; n++) {
    const uint64_t *w = r->words + r->nodes[n].start;
    for (; (*w & 0xFF) == TERN_WORD_BUFFER; w += 2 + (*w >> 16 & 0xFF)) uses[*w >> 32] = (use){.bytes = (size_t)w[1], .has_memory = *w >> 24 & 1, .dies = dies[*w >> 32]};
    EACH_LOCAL(w, local, is_output, uses[local].last = n);
  }
  uint32_t largest = n_nodes, stop = n_nodes;
  for (uint32_t n = 0; n < n_nodes && stop == n_nodes; n++) {
    const uint64_t *w = r->words + r->nodes[n].start;
    while ((*w & 0xFF) == TERN_WORD_BUFFER) w += 2 + (*w >> 16 & 0xFF);
    size_t fresh = 0;
    EACH_LOCAL(w, local, is_output, if (is_output && !uses[local].has_memory) {
      uses[local].has_memory = true;
      fresh += uses[local].bytes;
    });
    in_use += (int64_t)fresh;
    if (fresh > *bytes) *bytes = fresh, largest = n;
    if (limit > 0 && in_use > limit && fresh) stop = n, *bytes = fresh;
    EACH_LOCAL(w, local, is_output, if (uses[local].last == n && uses[local].dies && uses[local].has_memory) {
      uses[local].has_memory = false;
      in_use -= (int64_t)uses[local].bytes;
    });
  }
  free(uses);
  return stop < n_nodes ? stop : largest;
}

/* ---- what is alive ---- */

static int by_kind(const void *a, const void *b) {
  const tern_live *x = a, *y = b;
  int order = memcmp(&x->line, &y->line, sizeof x->line);
  if (!order) order = (int)x->dtype - (int)y->dtype;
  if (!order) order = x->is_pending - y->is_pending;
  if (!order) order = x->rank - y->rank;
  return order ? order : memcmp(x->dims, y->dims, sizeof x->dims);
}

static int by_total(const void *a, const void *b) {
  int64_t x = ((const tern_live *)a)->bytes, y = ((const tern_live *)b)->bytes;
  return (x < y) - (x > y);
}

int tern_device_live(tern_device *device, tern_live **out) {
  int n = 0, cap = 0, kinds = 0;
  tern_live *live = NULL;
  *out = NULL;
  tern_lock_take(&tern_record_lock);
  for (tern_buffer *b = device->held; b; b = b->next_held) cap++;
  live = cap ? calloc((size_t)cap, sizeof *live) : NULL;
  for (tern_buffer *b = device->held; b && live; b = b->next_held) {
    int state = b->version ? atomic_load_explicit(&b->version->state, memory_order_relaxed) : TERN_VERSION_FAILED;
    if (!b->is_live || state == TERN_VERSION_FAILED) continue;
    tern_live *l = &live[n++];
    *l = (tern_live){.line = b->line, .count = 1, .is_pending = state == TERN_VERSION_PENDING, .bytes = (int64_t)b->bytes, .dtype = b->base.dtype, .rank = b->base.rank};
    memcpy(l->dims, b->base.dims, (size_t)b->base.rank * sizeof *l->dims);
  }
  tern_lock_give(&tern_record_lock);
  if (!n) {
    free(live);
    return 0;
  }
  qsort(live, (size_t)n, sizeof *live, by_kind);
  for (int i = 0; i < n; i++) {
    if (kinds && !by_kind(&live[kinds - 1], &live[i])) {
      live[kinds - 1].count++;
      live[kinds - 1].bytes += live[i].bytes;
    } else {
      live[kinds++] = live[i];
    }
  }
  qsort(live, (size_t)kinds, sizeof *live, by_total);
  *out = live;
  return kinds;
}

/* ---- the report ---- */

typedef struct text {
  char *room;
  size_t used, size;
} text;

static void put(text *t, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void put(text *t, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  int n = vsnprintf(t->room + t->used, t->size - t->used, format, arguments);
  va_end(arguments);
  if (n > 0) t->used = t->used + (size_t)n < t->size ? t->used + (size_t)n : t->size - 1;
}

tern_status tern_shortage_report(tern_device *device, tern_status status) {
  enum { MOST = 10 };
  if (tern_error_code(status) != TERN_OUT_OF_MEMORY || strstr(tern_error_message(status), "\n")) return status;
  text t = {.size = 6144};
  if (!(t.room = malloc(t.size))) return status;
  t.room[0] = 0;
  tern_live *live;
  int kinds = tern_device_live(device, &live), shown = kinds < MOST ? kinds : MOST;
  int64_t total = 0, rest = 0;
  int others = 0;
  char size[32], place[256];
  for (int i = 0; i < kinds; i++) {
    if (!live[i].is_pending) total += live[i].bytes;
    if (i >= shown) rest += live[i].bytes, others += live[i].count;
  }
  if (kinds) put(&t, "\n  Largest live tensors on tern:%d (%s in all):", device->ordinal, tern_bytes_text(total, size, sizeof size));
  else put(&t, "\n  No tensor is alive on tern:%d.", device->ordinal);
  for (int i = 0; i < shown; i++) {
    const tern_live *l = &live[i];
    put(&t, "\n  %12s  %s[", tern_bytes_text(l->bytes, size, sizeof size), tern_dtype_name(l->dtype));
    for (int d = 0; d < l->rank; d++) put(&t, "%s%lld", d ? ", " : "", (long long)l->dims[d]);
    put(&t, "]");
    if (l->count > 1) put(&t, " x %d", l->count);
    tern_line_describe(l->line, place, sizeof place);
    put(&t, "  %s%s", place[0] ? place : "(line unknown)", l->is_pending ? ", not made yet" : "");
  }
  if (others) put(&t, "\n  %12s  in %d more", tern_bytes_text(rest, size, sizeof size), others);
  put(&t, "\n  To try: free what is not needed (del, zero_grad(set_to_none=True)), a smaller batch, torch.utils.checkpoint, torch.no_grad() in evaluation, a narrower dtype; "
          "`tern explain TERN-OOM` says more.");
  tern_status longer = tern_error_new(TERN_OUT_OF_MEMORY, "%s%s", tern_error_message(status), t.room);
  free(live);
  free(t.room);
  tern_error_free(status);
  return longer;
}
