/* blocks_reduce_dtype: the four reductions of one dtype, from the template blocks_reduce.h. REAL and DTYPE are set by the includer. */
#define COMBINE SUM
#define NAMED(x) PASTE(x, sum, DTYPE)
#include "blocks_reduce.h"
#undef COMBINE
#define COMBINE PROD
#define NAMED(x) PASTE(x, prod, DTYPE)
#include "blocks_reduce.h"
#undef COMBINE
#define COMBINE MAX
#define NAMED(x) PASTE(x, max, DTYPE)
#include "blocks_reduce.h"
#undef COMBINE
#define COMBINE MIN
#define NAMED(x) PASTE(x, min, DTYPE)
#include "blocks_reduce.h"
#undef COMBINE
#undef REAL
#undef DTYPE
