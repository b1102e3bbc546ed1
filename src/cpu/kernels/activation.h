/* GELU and its gradient on one vector: a template over REAL (real.h). Whoever computes GELU takes it from here, so that its bits are the same everywhere.
 * The formulas are PyTorch's. */

/* x Phi(x), Phi(x) = (1 + erf(x / sqrt 2)) / 2 */
TERN_INLINE VECTOR V(gelu_erf)(VECTOR x) { return (REAL)0.5 * x * V(twice_normal_cdf)(x); }

/* x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))) / 2 */
TERN_INLINE VECTOR V(gelu_tanh)(VECTOR x) {
  VECTOR inner = (REAL)0.79788456080286535588 * (x + (REAL)0.044715 * (x * x * x));
  return (REAL)0.5 * x * ((REAL)1 + V(tanh)(inner));
}

/* gy (Phi(x) + x phi(x)), phi(x) = exp(-x^2/2) / sqrt(2 pi) */
TERN_INLINE VECTOR V(gelu_erf_grad)(VECTOR gy, VECTOR x) {
  VECTOR cdf = (REAL)0.5 * V(twice_normal_cdf)(x), pdf = V(exp)(x * x * (REAL)-0.5) * (REAL)0.39894228040143267794;
  return gy * (cdf + x * pdf);
}

TERN_INLINE VECTOR V(gelu_tanh_grad)(VECTOR gy, VECTOR x) {
  VECTOR square = x * x, inner = (REAL)0.79788456080286535588 * (x + (REAL)0.044715 * (square * x)), t = V(tanh)(inner);
  VECTOR left = (REAL)0.5 * ((REAL)1 + t), inner_slope = (REAL)0.79788456080286535588 * ((REAL)1 + (REAL)(3 * 0.044715) * square);
  return gy * (left + (REAL)0.5 * x * ((REAL)1 - t * t) * inner_slope);
}
