/* Templates that follow are made for f32 (and f16, bf16 converted to it). See real.h. No guard: included before each template. */
#undef REAL
#undef VECTOR
#undef LANES
#undef V
#undef R
#define REAL float
#define VECTOR vf32
#define LANES VF32_LANES
#define V(name) vf32_##name
#define R(name) name##_f32
