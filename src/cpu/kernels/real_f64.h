/* Templates that follow are made for f64. See real.h. No guard: included before each template. */
#undef REAL
#undef VECTOR
#undef LANES
#undef V
#undef R
#define REAL double
#define VECTOR vf64
#define LANES VF64_LANES
#define V(name) vf64_##name
#define R(name) name##_f64
