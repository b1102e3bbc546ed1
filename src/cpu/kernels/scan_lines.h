/* Running and arg reductions of one element type: a template, included by scan.c once per dtype with
 *   TYPE, NAME        the stored type, and its name as a suffix
 *   TOTAL             the type running sums and products are kept in
 *   LOAD(x), STORE(x) to TOTAL and back
 *   ADD, MULTIPLY     of TOTAL
 *   ORDERED           1 where the dtype has an order: maximum, minimum and arg reductions are made
 *   ORDER(x), ORDER_TYPE  what is compared; IS_NAN(it)
 * An array is [outer, length, inner]; lines of the last dimension (inner 1) are walked one by one, others side by side, COLUMNS at a time. */
#define PASTE_(a, b) a##_##b
#define PASTE(a, b) PASTE_(a, b)
#define N(name) PASTE(name, NAME)

/* `columns` neighbouring lines; the first total is the first element. */
#define SCAN_FUNCTION(how, ACCUMULATOR, FROM, TO, expression)                                                                        \
  static void N(how)(const void *x_data, void *out_data, int64_t length, int64_t along, int64_t columns) {                           \
    const TYPE *x = x_data;                                                                                                          \
    TYPE *out = out_data;                                                                                                            \
    if (columns == 1) { /* the total stays in a register */                                                                          \
      ACCUMULATOR total = FROM(x[0]);                                                                                                \
      out[0] = x[0];                                                                                                                 \
      for (int64_t i = 1; i < length; i++) {                                                                                         \
        const ACCUMULATOR value = FROM(x[i * along]);                                                                                \
        total = expression;                                                                                                          \
        out[i * along] = TO(total);                                                                                                  \
      }                                                                                                                              \
      return;                                                                                                                        \
    }                                                                                                                                \
    ACCUMULATOR totals[COLUMNS];                                                                                                     \
    for (int64_t c = 0; c < columns; c++) {                                                                                          \
      totals[c] = FROM(x[c]);                                                                                                        \
      out[c] = x[c];                                                                                                                 \
    }                                                                                                                                \
    for (int64_t i = 1; i < length; i++)                                                                                             \
      for (int64_t c = 0; c < columns; c++) {                                                                                        \
        ACCUMULATOR total = totals[c], value = FROM(x[i * along + c]);                                                               \
        total = expression;                                                                                                          \
        totals[c] = total;                                                                                                           \
        out[i * along + c] = TO(total);                                                                                              \
      }                                                                                                                              \
  }
#define SAME(x) (x)
SCAN_FUNCTION(scan_sum, TOTAL, LOAD, STORE, (TOTAL)ADD(total, value))
SCAN_FUNCTION(scan_product, TOTAL, LOAD, STORE, (TOTAL)MULTIPLY(total, value))
#if ORDERED
/* NaN wins, and stays. */
SCAN_FUNCTION(scan_max, TYPE, SAME, SAME, ORDER(value) >= ORDER(total) || IS_NAN(ORDER(value)) ? value : total)
SCAN_FUNCTION(scan_min, TYPE, SAME, SAME, ORDER(value) <= ORDER(total) || IS_NAN(ORDER(value)) ? value : total)

/* The place of the largest (or smallest) element of a contiguous line: the first NaN, else the first of equals. The best value of each of WAYS interleaved
 * sublines is found without branches; then the first element equal to the best of those is looked for. */
static int64_t N(arg_line)(const TYPE *x, int64_t length, bool is_max) {
  const ORDER_TYPE first = ORDER(x[0]);
  ORDER_TYPE best[WAYS];
  int32_t nan[WAYS] = {0};
  for (int w = 0; w < WAYS; w++) best[w] = first;
  const int64_t whole = length / WAYS * WAYS;
  if (is_max)
    for (int64_t i = 0; i < whole; i += WAYS)
      for (int w = 0; w < WAYS; w++) {
        const ORDER_TYPE value = ORDER(x[i + w]);
        best[w] = value > best[w] ? value : best[w];
        nan[w] |= IS_NAN(value);
      }
  else
    for (int64_t i = 0; i < whole; i += WAYS)
      for (int w = 0; w < WAYS; w++) {
        const ORDER_TYPE value = ORDER(x[i + w]);
        best[w] = value < best[w] ? value : best[w];
        nan[w] |= IS_NAN(value);
      }
  bool any_nan = IS_NAN(first);
  ORDER_TYPE winner = best[0];
  for (int w = 0; w < WAYS; w++) {
    winner = is_max ? (best[w] > winner ? best[w] : winner) : (best[w] < winner ? best[w] : winner);
    any_nan |= nan[w] != 0;
  }
  for (int64_t i = whole; i < length; i++) {
    const ORDER_TYPE value = ORDER(x[i]);
    winner = is_max ? (value > winner ? value : winner) : (value < winner ? value : winner);
    any_nan |= IS_NAN(value);
  }
  for (int64_t i = 0; i < length; i++) {
    const ORDER_TYPE value = ORDER(x[i]);
    if (any_nan ? IS_NAN(value) : value == winner) return i;
  }
  return 0;
}

/* `columns` neighbouring lines side by side. */
static void N(arg_columns)(const void *x_data, int64_t length, int64_t along, int64_t columns, bool is_max, int64_t *index) {
  const TYPE *x = x_data;
  if (along == 1) {
    index[0] = N(arg_line)(x, length, is_max);
    return;
  }
  ORDER_TYPE best[COLUMNS];
  int32_t at[COLUMNS] = {0};
  for (int64_t c = 0; c < columns; c++) best[c] = ORDER(x[c]);
  for (int64_t i = 1; i < length; i++)
    for (int64_t c = 0; c < columns; c++) {
      const ORDER_TYPE value = ORDER(x[i * along + c]);
      const bool better = ((is_max ? value > best[c] : value < best[c]) | IS_NAN(value)) & !IS_NAN(best[c]);
      best[c] = better ? value : best[c];
      at[c] = better ? (int32_t)i : at[c];
    }
  for (int64_t c = 0; c < columns; c++) index[c] = at[c];
}
#endif
#undef SCAN_FUNCTION
#undef SAME
#undef PASTE_
#undef PASTE
#undef N
#undef TYPE
#undef NAME
