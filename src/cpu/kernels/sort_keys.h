/* A stable sort of (key, index) records by unsigned keys: a template, included by sort.c with
 *   KEY     uint32_t or uint64_t
 *   K(name) the name with the key's suffix
 * Short lines: insertion. Longer ones: radix sort from the lowest digit up, which skips digits that all keys share. */

typedef struct K(record) {
  KEY key;
  uint32_t index;
} K(record);

static void K(insertion_sort)(K(record) *records, int64_t n) {
  for (int64_t i = 1; i < n; i++) {
    const K(record) moved = records[i];
    int64_t j = i;
    for (; j > 0 && records[j - 1].key > moved.key; j--) records[j] = records[j - 1];
    records[j] = moved;
  }
}

/* Returns the sorted records: `records` or `other`. */
static K(record) *K(radix_sort)(K(record) *records, K(record) *other, int64_t n, const int digit_bits) {
  enum { MOST_DIGITS = (int)sizeof(KEY) };
  uint32_t counts[MOST_DIGITS << SMALL_DIGIT > ((int)sizeof(KEY) * 8 + LARGE_DIGIT - 1) / LARGE_DIGIT << LARGE_DIGIT
                    ? MOST_DIGITS << SMALL_DIGIT : ((int)sizeof(KEY) * 8 + LARGE_DIGIT - 1) / LARGE_DIGIT << LARGE_DIGIT];
  const int digits = ((int)sizeof(KEY) * 8 + digit_bits - 1) / digit_bits;
  const uint32_t buckets = 1u << digit_bits, mask = buckets - 1;
  memset(counts, 0, (size_t)digits * buckets * sizeof *counts);
  for (int64_t i = 0; i < n; i++) {
    KEY key = records[i].key;
    for (int d = 0; d < digits; d++, key >>= digit_bits) counts[((uint32_t)d << digit_bits) + ((uint32_t)key & mask)]++;
  }
  for (int d = 0; d < digits; d++) {
    uint32_t *count = counts + ((uint32_t)d << digit_bits), start = 0;
    const int shift = d * digit_bits;
    if (count[(uint32_t)(records[0].key >> shift) & mask] == (uint32_t)n) continue;
    for (uint32_t b = 0; b < buckets; b++) {
      const uint32_t here = count[b];
      count[b] = start;
      start += here;
    }
    for (int64_t i = 0; i < n; i++) other[count[(uint32_t)(records[i].key >> shift) & mask]++] = records[i];
    K(record) *swapped = records;
    records = other;
    other = swapped;
  }
  return records;
}

static K(record) *K(sort_records)(K(record) *records, K(record) *other, int64_t n) {
  if (n > INSERTION) return K(radix_sort)(records, other, n, n < LARGE_LINE ? SMALL_DIGIT : LARGE_DIGIT);
  K(insertion_sort)(records, n);
  return records;
}

static K(record) *K(sort_line)(const sort_job *job, const char *x, K(record) *records, K(record) *other) {
  KEY keys[SELECT_BLOCK];
  const int64_t n = job->lines.length, step = job->lines.inner * (int64_t)job->element;
  for (int64_t at = 0; at < n; at += SELECT_BLOCK) {
    const int64_t here = tern_min_i64(SELECT_BLOCK, n - at);
    K(load_keys)(job, x + at * step, here, keys);
    for (int64_t i = 0; i < here; i++) records[at + i] = (K(record)){keys[i], (uint32_t)(at + i)};
  }
  return K(sort_records)(records, other, n);
}

/* The first job->first records of the line, sorted. What may be among them gathers; whenever there is no more room it is sorted and cut. Later elements that equal the last
 * one come after it, so only smaller keys are kept. */
static K(record) *K(select_line)(const sort_job *job, const char *x, K(record) *records, K(record) *other) {
  KEY keys[SELECT_BLOCK], last = 0;
  const int64_t n = job->lines.length, step = job->lines.inner * (int64_t)job->element, room = job->first + SELECT_ROOM;
  bool is_cut = false;
  int64_t count = 0;
  for (int64_t at = 0; at < n; at += SELECT_BLOCK) {
    const int64_t here = tern_min_i64(SELECT_BLOCK, n - at);
    K(load_keys)(job, x + at * step, here, keys);
    if (is_cut) {
      KEY any = 0;
      for (int64_t i = 0; i < here; i++) any |= (KEY)(keys[i] < last);
      if (!any) continue;
    }
    for (int64_t i = 0; i < here; i++) {
      records[count] = (K(record)){keys[i], (uint32_t)(at + i)};
      count += !is_cut || keys[i] < last;
    }
    if (count + SELECT_BLOCK <= room) continue;
    K(record) *sorted = K(sort_records)(records, other, count);
    if (sorted != records) {
      other = records;
      records = sorted;
    }
    count = job->first;
    last = records[count - 1].key;
    is_cut = true;
  }
  return K(sort_records)(records, other, count);
}

/* Lines of one chunk. */
static void K(sort_chunk)(void *context, int64_t chunk, int thread) {
  const sort_job *job = context;
  const tern_dense_lines l = job->lines;
  K(record) *records = (K(record) *)(job->scratch + (size_t)thread * job->scratch_each), *other = records + l.length;
  const int64_t end = tern_min_i64(l.outer * l.inner, (chunk + 1) * job->lines_per_chunk);
  for (int64_t line = chunk * job->lines_per_chunk; line < end; line++) {
    const int64_t first = line / l.inner * l.length * l.inner + line % l.inner;
    const char *x = job->x + (size_t)first * job->element;
    const bool selects = job->first < l.length / SELECT_SHARE && job->first + SELECT_ROOM + SELECT_BLOCK <= l.length;
    const K(record) *sorted = (selects ? K(select_line) : K(sort_line))(job, x, records, other);
    /* Values are taken from the input: a key does not tell -0 from 0, nor one NaN from another. */
    char *out = job->out + (size_t)first * job->element;
    int64_t *index = job->index + first;
    for (int64_t i = 0; i < job->first; i++) index[i * l.inner] = sorted[i].index;
    switch (job->element) {
#define COPY_VALUES(TYPE)                                                                                     \
  for (int64_t i = 0; i < job->first; i++) ((TYPE *)out)[i * l.inner] = ((const TYPE *)x)[sorted[i].index * l.inner]; \
  break
      case 1: COPY_VALUES(uint8_t);
      case 2: COPY_VALUES(uint16_t);
      case 4: COPY_VALUES(uint32_t);
      default: COPY_VALUES(uint64_t);
#undef COPY_VALUES
    }
  }
}
#undef KEY
#undef K
