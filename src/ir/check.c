/* Checks: what a program demands of values while it runs, and the words of its failure. PyTorch's kernels raise on the spot; here the launch fails, and the error
 * names the operation and line that recorded the check. */
#include "build.h"

static const char *const words[TERN_DOMAIN_COUNT] = { /* PyTorch's own */
    [TERN_DOMAIN_DIVISOR] = "ZeroDivisionError",
    [TERN_DOMAIN_PROBABILITY] = "Expected p_in >= 0 && p_in <= 1 to be true, but got false.",
    [TERN_DOMAIN_WEIGHT] = "probability tensor contains either `inf`, `nan` or element < 0",
    [TERN_DOMAIN_WEIGHT_SUM] = "invalid multinomial distribution (sum of probabilities <= 0)",
    [TERN_DOMAIN_DEVIATION] = "normal expects all elements of std >= 0.0",
};

const char *tern_domain_words(tern_domain domain) { return domain == TERN_DOMAIN_INDEX ? "index" : words[domain]; }

tern_status tern_check_failure(const tern_check *check, int64_t found) {
  if (check->domain != TERN_DOMAIN_INDEX) return tern_error_new(TERN_OUT_OF_DOMAIN, "%s", words[check->domain]);
  return tern_error_new(TERN_INDEX_OUT_OF_RANGE, "index %lld is out of range [%lld, %lld]", (long long)found, (long long)check->low, (long long)check->high);
}

static void check(tern_program *p, tern_value x, tern_check demand) {
  tern_build(p, TERN_OP_CHECK, 1, &x, &(tern_attrs){.check = demand}, TERN_PROPOSE_NOTHING);
}

void tern_check_index(tern_program *p, tern_value index, int64_t low, int64_t high) { check(p, index, (tern_check){low, high, TERN_DOMAIN_INDEX}); }

/* One number for all elements, which the chain that computes `holds` reduces in passing. */
void tern_check_holds(tern_program *p, tern_value holds, tern_domain domain) {
  int dims[TERN_MAX_RANK], rank = tern_value_rank(p, holds);
  for (int d = 0; d < rank; d++) dims[d] = d;
  tern_value all = rank ? tern_reduce(p, TERN_ALL, holds, rank, dims) : holds;
  check(p, tern_convert(p, all, TERN_I32), (tern_check){1, 1, domain});
}
