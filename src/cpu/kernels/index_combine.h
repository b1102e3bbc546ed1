/* One element type's part of put and scatter. A template: index.c includes it once per type, with
 *   TYPE, NAME        the stored type, and its name as a suffix
 *   LOAD(x), STORE(x) to and from the type arithmetic is done in
 *   ADD, MULTIPLY, MAX, MIN (a, b)
 * `place` gives where each update goes, relative to `out`; NULL means 0, 1, 2 ... Elements are combined in order, so the result depends on nothing else. */
#define COMBINE_LOOP(expression)                                          \
  if (!place)                                                             \
    for (int64_t i = 0; i < n; i++) {                                     \
      __auto_type a = LOAD(out[i]);                                       \
      __auto_type b = LOAD(update[i * step]);                             \
      out[i] = STORE(expression);                                         \
    }                                                                     \
  else                                                                    \
    for (int64_t i = 0; i < n; i++) {                                     \
      __auto_type a = LOAD(out[place[i]]);                                \
      __auto_type b = LOAD(update[i * step]);                             \
      out[place[i]] = STORE(expression);                                  \
    }

#define COMBINE_FUNCTION_(how, name, expression)                                                                                     \
  static void combine_##how##_##name(int64_t n, void *out_data, const int64_t *place, const void *update_data, int64_t step) {       \
    TYPE *out = out_data;                                                                                                            \
    const TYPE *update = update_data;                                                                                                \
    COMBINE_LOOP(expression)                                                                                                         \
  }
#define COMBINE_FUNCTION(how, name, expression) COMBINE_FUNCTION_(how, name, expression)

COMBINE_FUNCTION(add, NAME, ADD(a, b))
COMBINE_FUNCTION(multiply, NAME, MULTIPLY(a, b))
#ifdef MAX
COMBINE_FUNCTION(max, NAME, MAX(a, b))
COMBINE_FUNCTION(min, NAME, MIN(a, b))
#endif

#undef COMBINE_LOOP
#undef COMBINE_FUNCTION_
#undef COMBINE_FUNCTION
#undef TYPE
#undef NAME
