/* The compile log: each program that had to be made, how long that took, and what set it apart from the ones before: the shape or guard that changed, and on which
 * line. Written by worker.c, read by the host language. Bounded: the newest entries are kept, and fewer of their keys.
 *
 * What changed is found by comparing keys (the words of recordings) node by node: with an earlier program of the same operations if there is one, else with the
 * one that has the longest beginning in common. */
#include "internal.h"

enum { MOST_ENTRIES = 1024, MOST_KEYS = 32, MOST_KEY_WORDS = 1 << 16 };

typedef struct old_key {
  uint64_t *words;
  size_t n_words;
  uint32_t n_nodes;
  uint64_t operations; /* a hash of the operations alone */
} old_key;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static tern_compile_entry *entries[MOST_ENTRIES];
static int64_t n_made;
static old_key keys[MOST_KEYS];
static size_t n_keys;

/* ---- walking the words ---- */

typedef struct part {
  const uint64_t *introductions, *node, *views, *attrs, *end;
  int n_operands, n_outputs, n_attrs, n_scalars;
} part;

/* Only operands may be absent: a result's first word says something else with that bit. */
static bool is_absent(const uint64_t *w, bool is_operand) { return is_operand && *w & TERN_OPERAND_ABSENT; }
static const uint64_t *skip_view(const uint64_t *w, bool is_operand) { return is_absent(w, is_operand) ? w + 1 : w + 2 + 2 * (*w >> 40 & 0xFF); }

/* The node that starts at w (its introductions included). */
static part read_part(const uint64_t *w) {
  part p = {.introductions = w};
  while ((*w & 0xFF) == TERN_WORD_BUFFER) w += 2 + (*w >> 16 & 0xFF);
  p.node = w;
  uint64_t head = *w++;
  p.n_operands = (int)(head >> 24 & 0xFF), p.n_outputs = (int)(head >> 32 & 0xFF), p.n_attrs = (int)(head >> 40 & 0xFF), p.n_scalars = (int)(head >> 48 & 0xFF);
  p.views = w;
  for (int i = 0; i < p.n_operands + p.n_outputs; i++) w = skip_view(w, i < p.n_operands);
  p.attrs = w;
  p.end = w + p.n_attrs + p.n_scalars;
  return p;
}

static bool same_words(const uint64_t *a, const uint64_t *a_end, const uint64_t *b, const uint64_t *b_end) {
  return a_end - a == b_end - b && !memcmp(a, b, (size_t)(a_end - a) * sizeof *a);
}

/* ---- describing a difference ---- */

static int put_sizes(char *out, size_t size, const uint64_t *view) {
  int n = 0, rank = (int)(*view >> 40 & 0xFF);
  for (int d = 0; d < rank && (size_t)n < size; d++) n += snprintf(out + n, size - (size_t)n, "%s%lld", d ? "x" : "", (long long)view[2 + d]);
  return rank ? n : snprintf(out, size, "a scalar");
}

/* The first difference within a node of equal operation; false where there is none. */
static bool describe_change(const char *name, const part *old, const part *new, char *out, size_t size) {
  if (same_words(old->introductions, old->end, new->introductions, new->end)) return false;
  if (old->n_operands != new->n_operands || old->n_outputs != new->n_outputs) return snprintf(out, size, "%s has another number of operands", name), true;
  const uint64_t *a = old->views, *b = new->views;
  for (int i = 0; i < new->n_operands + new->n_outputs; i++) {
    bool is_operand = i < new->n_operands, absent_a = is_absent(a, is_operand), absent_b = is_absent(b, is_operand);
    const uint64_t *a_end = skip_view(a, is_operand), *b_end = skip_view(b, is_operand);
    if (absent_a != absent_b) return snprintf(out, size, "operand %d of %s %s", i, name, absent_b ? "is missing now" : "is given now"), true;
    int rank_a = (int)(*a >> 40 & 0xFF), rank_b = (int)(*b >> 40 & 0xFF);
    if (!absent_a && (rank_a != rank_b || memcmp(a + 2, b + 2, (size_t)rank_a * sizeof *a))) {
      char from[80], to[80];
      put_sizes(from, sizeof from, a);
      put_sizes(to, sizeof to, b);
      return snprintf(out, size, "%s %d of %s: %s became %s", is_operand ? "operand" : "result", is_operand ? i : i - new->n_operands, name, from, to), true;
    }
    if (!absent_a && (*a >> 32 & 0xFF) != (*b >> 32 & 0xFF)) {
      const char *from = tern_dtype_name((tern_dtype)(*a >> 32 & 0xFF)), *to = tern_dtype_name((tern_dtype)(*b >> 32 & 0xFF));
      return snprintf(out, size, "operand %d of %s: %s became %s", i, name, from, to), true;
    }
    if (!absent_a && !same_words(a + 1, a_end, b + 1, b_end)) return snprintf(out, size, "operand %d of %s lies elsewhere in its storage", i, name), true;
    a = a_end, b = b_end;
  }
  for (int i = 0; i < new->n_attrs; i++)
    if (old->attrs[i] != new->attrs[i])
      return snprintf(out, size, "attribute %d of %s: %lld became %lld", i, name, (long long)old->attrs[i], (long long)new->attrs[i]), true;
  for (int i = 0; i < new->n_scalars; i++)
    if (old->attrs[old->n_attrs + i] != new->attrs[new->n_attrs + i]) return snprintf(out, size, "scalar %d of %s is (or was) one of 0, 1, -1, 2, 0.5 ...", i, name), true;
  return snprintf(out, size, "a tensor that %s uses comes from elsewhere, or was written differently", name), true;
}

static uint64_t hash_operations(const tern_recording *r, uint32_t n_nodes) {
  uint64_t h = n_nodes;
  for (uint32_t i = 0; i < n_nodes; i++) h = tern_hash_mix(h, r->nodes[i].operation->id);
  return h;
}

static uint16_t operation_of(const part *p) { return (uint16_t)(*p->node >> 8); }

/* What sets the recording apart from the old program, and at which node. Gives the number of nodes that are alike. */
static uint32_t compare(const old_key *old, const tern_recording *r, uint32_t n_nodes, char *out, size_t size, uint32_t *line) {
  const uint64_t *w = old->words;
  for (uint32_t i = 0; i < n_nodes; i++) {
    const char *name = r->nodes[i].operation->name;
    *line = r->nodes[i].line;
    if (i >= old->n_nodes) return snprintf(out, size, "%s and what follows were not in the program before", name), i;
    part before = read_part(w), now = read_part(r->words + r->nodes[i].start);
    if (operation_of(&before) != operation_of(&now)) return snprintf(out, size, "%s where there was another operation", name), i;
    if (describe_change(name, &before, &now, out, size)) return i;
    w = before.end;
  }
  *line = n_nodes ? r->nodes[n_nodes - 1].line : 0;
  if (old->n_nodes > n_nodes) snprintf(out, size, "the program ends earlier than the one before");
  else snprintf(out, size, "other results are still wanted afterwards");
  return n_nodes;
}

/* ---- the log ---- */

static void keep_key(const tern_recording *r, uint32_t n_nodes, uint64_t operations) {
  if (n_nodes != r->n_nodes || r->n_words > MOST_KEY_WORDS) return;
  uint64_t *words = malloc((r->n_words + 1) * sizeof *words);
  if (!words) return;
  memcpy(words, r->words, r->n_words * sizeof *words);
  old_key *slot = &keys[n_keys++ % MOST_KEYS];
  free(slot->words);
  *slot = (old_key){.words = words, .n_words = r->n_words, .n_nodes = n_nodes, .operations = operations};
}

const tern_compile_entry *tern_compile_note(const tern_recording *r, uint32_t n_nodes, double seconds, bool loaded) {
  tern_compile_entry *e = calloc(1, sizeof *e);
  if (!e) return NULL;
  *e = (tern_compile_entry){.operations = n_nodes, .seconds = seconds, .from_disk = loaded, .line = n_nodes ? r->nodes[n_nodes - 1].line : 0};
  uint64_t operations = hash_operations(r, n_nodes);
  pthread_mutex_lock(&lock);
  const old_key *same = NULL;
  uint32_t alike = 0;
  snprintf(e->reason, sizeof e->reason, "the first program");
  for (size_t k = n_keys; k > 0 && k + MOST_KEYS > n_keys && !same; k--) {
    const old_key *old = &keys[(k - 1) % MOST_KEYS];
    if (old->operations == operations) same = old;
  }
  if (same) {
    compare(same, r, n_nodes, e->reason, sizeof e->reason, &e->changed_line);
  } else {
    for (size_t k = n_keys; k > 0 && k + MOST_KEYS > n_keys; k--) {
      char reason[sizeof e->reason];
      uint32_t line, n = compare(&keys[(k - 1) % MOST_KEYS], r, n_nodes, reason, sizeof reason, &line);
      if (n < alike || (n == alike && k != n_keys)) continue;
      alike = n;
      memcpy(e->reason, reason, sizeof reason);
      e->changed_line = line;
    }
    if (n_keys && alike * 2 < n_nodes) snprintf(e->reason, sizeof e->reason, "other operations than in any program before");
  }
  keep_key(r, n_nodes, operations);
  e->number = ++n_made;
  tern_compile_entry **slot = &entries[(n_made - 1) % MOST_ENTRIES];
  free(*slot);
  *slot = e;
  pthread_mutex_unlock(&lock);
  return e;
}

void tern_compile_log(void (*each)(void *context, const tern_compile_entry *entry), void *context) {
  pthread_mutex_lock(&lock);
  for (int64_t n = n_made > MOST_ENTRIES ? n_made - MOST_ENTRIES : 0; n < n_made; n++) each(context, entries[n % MOST_ENTRIES]);
  pthread_mutex_unlock(&lock);
}
