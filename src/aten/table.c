/* table: all families as one table, and for each row the operation that eager records.
 *
 * Rows are constants spread over the family files; their numbers (which the program cache's keys carry) follow from the order in families.h. The operations are
 * made on the first use and live for ever. */
#include <pthread.h>
#include "families.h"
#include "helpers.h"

typedef struct family {
  const tern_aten_row *rows;
  int count, first; /* the number of rows, and of rows before */
} family;

static family families[] = {
#define TERN_ATEN_FAMILY(name) {tern_aten_##name, 0, 0},
    TERN_ATEN_FAMILIES(TERN_ATEN_FAMILY)
#undef TERN_ATEN_FAMILY
};
static const int *const counts[] = {
#define TERN_ATEN_FAMILY(name) &tern_aten_##name##_count,
    TERN_ATEN_FAMILIES(TERN_ATEN_FAMILY)
#undef TERN_ATEN_FAMILY
};
enum { FAMILIES = TERN_COUNT(families), MAX_ROWS = 2048, MAX_NAME = 64 };

static tern_operation operations[MAX_ROWS];
static char names[MAX_ROWS][MAX_NAME];
static int row_count;

static void build(void) {
  for (int f = 0; f < FAMILIES; f++) {
    families[f].first = row_count;
    families[f].count = *counts[f];
    for (int i = 0; i < families[f].count && row_count < MAX_ROWS; i++) {
      const tern_aten_row *row = &families[f].rows[i];
      const char *name = row->functional ? row->functional : row->inplace ? row->inplace : row->out ? row->out : row->internal;
      snprintf(names[row_count], MAX_NAME, "%s%s", name == row->internal ? "tern::" : "aten::", name ? name : "?");
      operations[row_count] = (tern_operation){names[row_count], (uint16_t)(row_count + 1), row->lower};
      row_count++;
    }
  }
}

static void build_once(void) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, build);
}

int tern_aten_row_count(void) {
  build_once();
  return row_count;
}

const tern_aten_row *tern_aten_row_at(int index) {
  build_once();
  for (int f = 0; f < FAMILIES && index >= 0; f++)
    if (index < families[f].first + families[f].count) return &families[f].rows[index - families[f].first];
  return NULL;
}

const tern_aten_row *tern_aten_internal_row(const char *name) {
  for (int i = 0; i < tern_aten_row_count(); i++) {
    const tern_aten_row *row = tern_aten_row_at(i);
    if (row->internal && strcmp(row->internal, name) == 0) return row;
  }
  return NULL;
}

const tern_operation *tern_aten_operation(const tern_aten_row *row) {
  build_once();
  for (int f = 0; f < FAMILIES; f++) {
    uintptr_t place = (uintptr_t)row - (uintptr_t)families[f].rows;
    if (place < (uintptr_t)families[f].count * sizeof *row) return &operations[families[f].first + (int)(place / sizeof *row)];
  }
  return NULL;
}
