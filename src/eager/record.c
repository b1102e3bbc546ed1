/* Recording: a node becomes words appended to the device's recording. This is the hot path of every operation: no allocation in the steady state, one lock,
 * about one word per number. The words are the program's key as they stand: operations, shapes, dtypes, which buffer is which; no pointer, no scalar value.
 *
 * Cuts. A program ends where somebody reads, where the caller says so (tern_device_flush: the end of an optimizer step), or, as the last resort, where the
 * recording grows long. A long recording is cut just before a node like its first one (same operation, same line): a loop that nobody reads is then cut at the same
 * phase each time, and its programs repeat. */
#include "internal.h"

tern_lock tern_record_lock;

static bool reserve(void **array, uint32_t *cap, size_t need, size_t size) {
  if (TERN_LIKELY(need <= *cap)) return true;
  size_t more = *cap ? (size_t)*cap * 2 : 64;
  if (more < need) more = need;
  void *grown = realloc(*array, more * size);
  if (!grown) return false;
  *array = grown;
  *cap = (uint32_t)more;
  return true;
}

static bool reserve_words(tern_recording *r, size_t more) {
  if (TERN_LIKELY(r->n_words + more <= r->cap_words)) return true;
  size_t cap = r->cap_words ? r->cap_words * 2 : 4096;
  while (cap < r->n_words + more) cap *= 2;
  uint64_t *grown = realloc(r->words, cap * sizeof *grown);
  if (!grown) return false;
  r->words = grown;
  r->cap_words = cap;
  return true;
}

tern_status tern_recording_take(tern_device *device, tern_recording **out) {
  static uint64_t next_id = 1;
  tern_recording *r = device->spare;
  if (r) {
    device->spare = r->next;
  } else if (!(r = calloc(1, sizeof *r))) {
    return tern_error_new(TERN_OUT_OF_MEMORY, "no host memory to record operations");
  }
  r->id = next_id++;
  r->next = NULL;
  r->n_words = 0;
  r->n_nodes = r->n_scalars = r->n_locals = 0;
  r->released_bytes = 0;
  *out = r;
  return NULL;
}

void tern_recording_give_back(tern_device *device, tern_recording *r) {
  /* A long queue's arrays are freed, an ordinary step's are kept. */
  if (r->cap_words > (size_t)1 << 20) {
    free(r->words);
    r->words = NULL;
    r->cap_words = 0;
  }
  r->next = device->spare;
  device->spare = r;
}

/* The buffer's number in the recording; on the first meeting the words that describe it are appended. */
static inline bool number_buffer(tern_recording *r, tern_buffer *b, uint32_t *local) {
  if (TERN_LIKELY(b->recording == r->id)) {
    *local = b->local;
    return true;
  }
  if (!reserve((void **)&r->locals, &r->cap_locals, (size_t)r->n_locals + 1, sizeof *r->locals)) return false;
  uint32_t n = r->n_locals++;
  r->locals[n] = (tern_local){.buffer = b};
  b->recording = r->id;
  b->local = n;
  bool defined = b->version != NULL;
  int rank = defined ? b->base.rank : 0;
  uint64_t *w = r->words + r->n_words;
  *w++ = TERN_WORD_BUFFER | (uint64_t)(defined ? b->base.dtype : 0) << 8 | (uint64_t)rank << 16 | (uint64_t)defined << 24 | (uint64_t)n << 32;
  *w++ = b->bytes;
  for (int d = 0; d < rank; d++) *w++ = (uint64_t)b->base.dims[d];
  r->n_words = (size_t)(w - r->words);
  *local = n;
  return true;
}

/* On a compiler for static shapes, which rows of an array a view takes must not be part of the key, or reading batch after batch from one array would compile a
 * program each time. True for a view that is a run of whole rows of contents made before this recording; gives the first row. */
static bool moving_rows(const tern_recording *r, const tern_buffer *b, const tern_operand *o, int64_t *first_row) {
  const tern_base *base = &b->base;
  if (!b->version || r->locals[b->local].first_write || base->rank == 0 || base->dtype != o->dtype) return false;
  int64_t row = 1, count = 1;
  for (int d = 1; d < base->rank; d++) row *= base->dims[d];
  for (int d = 0; d < o->view.rank; d++) count *= o->view.sizes[d];
  enum { MOST_SINGLE_ELEMENTS = 1 << 16 }; /* of a flat array, each element is a row that is fetched on its own */
  if (!row || !count || count % row || o->view.offset % row || count / row >= base->dims[0] || (row == 1 && count > MOST_SINGLE_ELEMENTS)) return false;
  if (!tern_geometry_is_contiguous(&o->view)) return false;
  *first_row = o->view.offset / row;
  return true;
}

static inline uint64_t *put_view(uint64_t *w, uint64_t head, const tern_geometry *g) {
  *w++ = head | (uint64_t)g->rank << 40;
  *w++ = (uint64_t)g->offset;
  for (int d = 0; d < g->rank; d++) *w++ = (uint64_t)g->sizes[d];
  for (int d = 0; d < g->rank; d++) *w++ = (uint64_t)g->strides[d];
  return w;
}

/* Whether contents described as `base` can be read as `dtype` by a bit cast inside a program. */
static inline bool can_bitcast(tern_dtype base, tern_dtype dtype) {
  return base == dtype || (tern_dtype_size(base) == tern_dtype_size(dtype) && base != TERN_BOOL && dtype != TERN_BOOL &&
                           !tern_dtype_is_complex(base) && !tern_dtype_is_complex(dtype));
}

/* The contents are to be seen as another dtype of another width: described anew, through the host where the backend keeps typed arrays.
 * Record lock held; given up and taken again where it waits. */
static tern_status relabel(tern_buffer *b, tern_dtype dtype, bool *submitted) {
  tern_device *device = b->device;
  if (b->recording == device->recording->id) TERN_TRY(tern_cut(device, submitted));
  int64_t count = (int64_t)(b->bytes / tern_dtype_size(dtype));
  tern_status status = NULL;
  if (b->version && !device->info.host_addressable) {
    tern_version *version = b->version;
    tern_version_retain(version);
    tern_lock_give(&tern_record_lock);
    void *host = NULL;
    tern_version *fresh = NULL;
    status = tern_wait(device, version);
    if (!status && (!(host = malloc(b->bytes ? b->bytes : 1)) || !(fresh = tern_version_new(device))))
      status = tern_error_new(TERN_OUT_OF_MEMORY, "no host memory to reinterpret %zu bytes", b->bytes);
    if (!status) status = device->backend->download(device->hardware, version->memory, host, device->backend->size(version->memory));
    if (!status) status = tern_upload(device, dtype, 1, &count, host, &fresh->memory);
    free(host);
    tern_lock_take(&tern_record_lock);
    if (!status) {
      atomic_store_explicit(&fresh->state, TERN_VERSION_READY, memory_order_release);
      tern_version_release(b->version);
      b->version = fresh;
      fresh = NULL;
    }
    tern_version_release(fresh);
    tern_version_release(version);
  }
  if (!status) b->base = (tern_base){.dtype = dtype, .rank = 1, .dims = {count}};
  return status;
}

static tern_status check_node(const tern_node *node) {
  TERN_TRY(tern_check_not_forked());
  if (TERN_UNLIKELY(!node->device)) return tern_error_new(TERN_INVALID_ARGUMENT, "%s: no device", node->operation->name);
  for (int i = 0; i < node->n_operands; i++)
    if (TERN_UNLIKELY(node->operands[i].buffer && node->operands[i].buffer->device != node->device))
      return tern_error_new(TERN_INVALID_ARGUMENT, "%s: operand %d is on device %d, not %d", node->operation->name, i, node->operands[i].buffer->device->ordinal,
                            node->device->ordinal);
  return NULL;
}

static tern_status append_node(const tern_node *node, tern_recording *r) {
  const tern_device *device = node->device;
  /* Room for the worst case once, then no more checks. */
  size_t most = 1 + (size_t)node->n_attrs + (size_t)node->n_scalars +
                (size_t)(node->n_operands + node->n_outputs) * (4 + 3 * TERN_MAX_TENSOR_RANK);
  if (TERN_UNLIKELY(!reserve_words(r, most)) ||
      !reserve((void **)&r->nodes, &r->cap_nodes, (size_t)r->n_nodes + 1, sizeof *r->nodes) ||
      !reserve((void **)&r->scalars, &r->cap_scalars, (size_t)r->n_scalars + (size_t)(node->n_scalars + node->n_operands), sizeof *r->scalars))
    return tern_error_new(TERN_OUT_OF_MEMORY, "no host memory to record operations");

  uint32_t number = r->n_nodes, start = (uint32_t)r->n_words;
  uint32_t locals[128];
  TERN_CHECK(node->n_operands + node->n_outputs <= (int)TERN_COUNT(locals));
  int n = 0;
  for (int i = 0; i < node->n_operands; i++)
    if (node->operands[i].buffer && !number_buffer(r, node->operands[i].buffer, &locals[n++])) goto out_of_memory;
  for (int i = 0; i < node->n_outputs; i++)
    if (!number_buffer(r, node->outputs[i].buffer, &locals[n++])) goto out_of_memory;

  uint64_t *w = r->words + r->n_words;
  *w++ = TERN_WORD_NODE | (uint64_t)node->operation->id << 8 | (uint64_t)node->n_operands << 24 | (uint64_t)node->n_outputs << 32 |
         (uint64_t)node->n_attrs << 40 | (uint64_t)node->n_scalars << 48;
  n = 0;
  for (int i = 0; i < node->n_operands; i++) {
    const tern_operand *o = &node->operands[i];
    if (!o->buffer) {
      *w++ = TERN_OPERAND_ABSENT;
      continue;
    }
    uint64_t head = locals[n++] | (uint64_t)o->dtype << 32, *words = w;
    int64_t first_row;
    w = put_view(w, head, &o->view);
    if (device->info.static_shapes && moving_rows(r, o->buffer, o, &first_row)) {
      words[0] |= TERN_OPERAND_MOVING;
      words[1] = 0;
      r->scalars[r->n_scalars++] = (uint64_t)first_row;
    }
  }
  for (int i = 0; i < node->n_outputs; i++) {
    const tern_output *o = &node->outputs[i];
    uint32_t local = locals[n++];
    w = put_view(w, local | (uint64_t)o->dtype << 32 | (uint64_t)o->computed << 48, &o->view);
    tern_local *l = &r->locals[local];
    l->last_write = number + 1;
    if (!l->first_write) l->first_write = number + 1;
    tern_base_write(&o->buffer->base, &o->buffer->has_contents, o->buffer->bytes, o, NULL);
  }
  for (int i = 0; i < node->n_attrs; i++) *w++ = (uint64_t)node->attrs[i];
  for (int i = 0; i < node->n_scalars; i++) {
    *w++ = (uint64_t)node->scalars[i].dtype | (uint64_t)node->scalars[i].kind << 8;
    r->scalars[r->n_scalars++] = node->scalars[i].bits;
  }
  r->n_words = (size_t)(w - r->words);
  r->nodes[r->n_nodes++] = (tern_recorded_node){.operation = node->operation, .line = node->line, .start = start};
  return NULL;

out_of_memory:
  return tern_error_new(TERN_OUT_OF_MEMORY, "no host memory to record operations");
}

tern_status tern_record(const tern_node *node) {
  TERN_TRY(check_node(node));
  tern_device *device = node->device;
  uint64_t kind = (uint64_t)node->operation->id << 32 | node->line;
  bool submitted = false;
  tern_status status = NULL;

  tern_lock_take(&tern_record_lock);
  tern_recording *r = device->recording;
  if (TERN_UNLIKELY(r->n_nodes >= device->soft_limit && (kind == r->first_kind || r->n_nodes >= device->hard_limit)) ||
      TERN_UNLIKELY(r->released_bytes > device->released_limit)) {
    tern_lock_give(&tern_record_lock);
    tern_wait_backlog(device, 2);
    tern_lock_take(&tern_record_lock);
    status = tern_cut(device, &submitted);
  }
  for (int i = 0; i < node->n_operands && TERN_LIKELY(!status); i++) {
    tern_buffer *b = node->operands[i].buffer;
    if (b && b->has_contents && TERN_UNLIKELY(!can_bitcast(b->base.dtype, node->operands[i].dtype))) status = relabel(b, node->operands[i].dtype, &submitted);
  }
  for (int i = 0; i < node->n_outputs && TERN_LIKELY(!status); i++) {
    const tern_output *o = &node->outputs[i];
    if (o->buffer->has_contents && TERN_UNLIKELY(!can_bitcast(o->buffer->base.dtype, o->dtype))) {
      tern_base base = o->buffer->base;
      bool has_contents = true;
      if (tern_base_write(&base, &has_contents, o->buffer->bytes, o, NULL) == TERN_WRITE_PART) status = relabel(o->buffer, o->dtype, &submitted);
    }
  }
  if (TERN_LIKELY(!status)) {
    r = device->recording;
    if (!r->n_nodes) r->first_kind = kind;
    status = append_node(node, r);
    tern_count.nodes++;
  }
  tern_lock_give(&tern_record_lock);

  if (TERN_UNLIKELY(submitted)) tern_worker_wake(device);
  if (TERN_UNLIKELY(atomic_load_explicit(&tern_current_mode, memory_order_relaxed) != TERN_MODE_FUSED) && !status) status = tern_device_synchronize(device);
  return status;
}

/* ---- cutting ---- */

tern_status tern_cut(tern_device *device, bool *submitted) {
  tern_recording *r = device->recording, *fresh = NULL;
  if (!r->n_nodes) return NULL;
  tern_job *job = calloc(1, sizeof *job);
  if (job) {
    job->inputs = calloc(r->n_locals, sizeof *job->inputs);
    job->outputs = calloc(r->n_locals, sizeof *job->outputs);
  }
  tern_status status = !job || !job->inputs || !job->outputs ? tern_error_new(TERN_OUT_OF_MEMORY, "no host memory for a program") : tern_recording_take(device, &fresh);
  for (uint32_t i = 0; i < r->n_locals && !status; i++) {
    tern_buffer *b = r->locals[i].buffer;
    const bool is_seen = b->is_live || TERN_UNLIKELY(tern_pin_is_seen(b->pin));
    if (is_seen && r->locals[i].last_write && !(job->outputs[i] = tern_version_new(device)))
      status = tern_error_new(TERN_OUT_OF_MEMORY, "no host memory for a program");
  }
  if (status || !reserve_words(r, 2 + r->n_locals / 32)) {
    if (!status) status = tern_error_new(TERN_OUT_OF_MEMORY, "no host memory for a program");
    if (fresh) tern_recording_give_back(device, fresh);
    if (job) {
      for (uint32_t i = 0; job->outputs && i < r->n_locals; i++) tern_version_release(job->outputs[i]);
      free(job->inputs);
      free(job->outputs);
      free(job);
    }
    return status;
  }
  /* Which results somebody may still see is part of the key: 32 to a word. */
  for (uint32_t i = 0; i < r->n_locals; i += 32) {
    uint64_t mask = 0;
    for (uint32_t k = i; k < i + 32 && k < r->n_locals; k++) mask |= (uint64_t)(job->outputs[k] != NULL) << (k - i);
    r->words[r->n_words++] = TERN_WORD_LIVE | mask << 32;
  }
  for (uint32_t i = 0; i < r->n_locals; i++) {
    tern_buffer *b = r->locals[i].buffer;
    job->inputs[i] = b->version;
    if (job->outputs[i]) {
      b->version = job->outputs[i];
      tern_version_retain(b->version);
      tern_buffer_hold(b);
      if (TERN_UNLIKELY(b->pin != NULL)) {
        if (tern_pin_is_seen(b->pin)) {
          b->version->pin = tern_pin_retain(b->pin);
        } else {
          tern_pin_release(b->pin);
          b->pin = NULL;
        }
      }
    } else if (b->is_live) {
      tern_version_retain(b->version);
    } else {
      b->version = NULL;
    }
    b->recording = 0;
    if (!b->is_live) tern_buffer_free(b);
    r->locals[i].buffer = NULL;
  }
  job->recording = r;
  device->recording = fresh;
  tern_submit(device, job);
  *submitted = true;
  return NULL;
}

tern_status tern_device_flush(tern_device *device) {
  tern_wait_backlog(device, 2);
  bool submitted = false;
  tern_lock_take(&tern_record_lock);
  tern_status status = tern_cut(device, &submitted);
  tern_lock_give(&tern_record_lock);
  if (submitted) tern_worker_wake(device);
  return status;
}

void tern_device_settle(tern_device *device) {
  tern_error_free(tern_device_flush(device)); /* no host memory to cut: then nothing is finished either */
  tern_wait_backlog(device, 0);
}

tern_status tern_device_synchronize(tern_device *device) { return tern_device_wait_for(device, tern_device_position(device)); }

/* ---- scalars ---- */

static uint8_t scalar_kind(double v) {
  static const struct { double value; uint8_t kind; } known[] = {{0, TERN_SCALAR_ZERO}, {1, TERN_SCALAR_ONE}, {-1, TERN_SCALAR_MINUS_ONE}, {2, TERN_SCALAR_TWO},
                                                                 {0.5, TERN_SCALAR_HALF}, {-0.5, TERN_SCALAR_MINUS_HALF}, {3, TERN_SCALAR_THREE},
                                                                 {-2, TERN_SCALAR_MINUS_TWO}};
  for (size_t i = 0; i < TERN_COUNT(known); i++)
    if (v == known[i].value) return known[i].kind;
  return TERN_SCALAR_ANY;
}

tern_scalar_argument tern_scalar_double(tern_dtype dtype, double value, bool classify) {
  tern_scalar_argument s = {.dtype = dtype, .kind = classify ? scalar_kind(value) : 0};
  float single = (float)value;
  switch (dtype) {
    case TERN_F64: memcpy(&s.bits, &value, 8); break;
    case TERN_F32: memcpy(&s.bits, &single, 4); break;
    case TERN_BOOL: s.bits = value != 0; break;
    default: return tern_scalar_int(dtype, (int64_t)value, classify);
  }
  return s;
}

tern_scalar_argument tern_scalar_int(tern_dtype dtype, int64_t value, bool classify) {
  if (dtype == TERN_F64 || dtype == TERN_F32) return tern_scalar_double(dtype, (double)value, classify);
  tern_scalar_argument s = {.dtype = dtype, .kind = classify ? scalar_kind((double)value) : 0};
  s.bits = dtype == TERN_BOOL ? value != 0 : tern_dtype_size(dtype) == 4 ? (uint32_t)value : (uint64_t)value;
  return s;
}
