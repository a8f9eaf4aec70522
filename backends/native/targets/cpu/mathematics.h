// Functions of numbers, for vectors and scalars; a part of kernels.h, whose types it uses.
//
// Sleef's functions are those that torch's library exports.  The others are ours where Sleef's take longer.

#define MATH1(name, ulp) \
  extern "C" f32v MATH(name, ulp)(f32v); extern "C" f64h MATH64(name, ulp)(f64h); \
  INLINE f32v m_##name(f32v x) { return MATH(name, ulp)(x); } \
  INLINE f64v m_##name(f64v x) { auto h = split<f64h>(x); return join<f64v>(MATH64(name, ulp)(h.low), MATH64(name, ulp)(h.high)); } \
  INLINE f32 m_##name(f32 x) { return m_##name(splat(x))[0]; } INLINE f64 m_##name(f64 x) { return m_##name(splat(x))[0]; }
#define MATH2(name, ulp) \
  extern "C" f32v MATH(name, ulp)(f32v, f32v); extern "C" f64h MATH64(name, ulp)(f64h, f64h); \
  INLINE f32v m_##name(f32v x, f32v y) { return MATH(name, ulp)(x, y); } \
  INLINE f64v m_##name(f64v x, f64v y) { auto a = split<f64h>(x), b = split<f64h>(y); \
    return join<f64v>(MATH64(name, ulp)(a.low, b.low), MATH64(name, ulp)(a.high, b.high)); } \
  INLINE f32 m_##name(f32 x, f32 y) { return m_##name(splat(x), splat(y))[0]; } \
  INLINE f64 m_##name(f64 x, f64 y) { return m_##name(splat(x), splat(y))[0]; }
#define ROUND1(name) \
  extern "C" f32v ROUND(name)(f32v); extern "C" f64h ROUND64(name)(f64h); \
  INLINE f32v m_##name(f32v x) { return ROUND(name)(x); } \
  INLINE f64v m_##name(f64v x) { auto h = split<f64h>(x); return join<f64v>(ROUND64(name)(h.low), ROUND64(name)(h.high)); } \
  INLINE f32 m_##name(f32 x) { return m_##name(splat(x))[0]; } INLINE f64 m_##name(f64 x) { return m_##name(splat(x))[0]; }
#define ROUND2(name) \
  extern "C" f32v ROUND(name)(f32v, f32v); extern "C" f64h ROUND64(name)(f64h, f64h); \
  INLINE f32v m_##name(f32v x, f32v y) { return ROUND(name)(x, y); } \
  INLINE f64v m_##name(f64v x, f64v y) { auto a = split<f64h>(x), b = split<f64h>(y); \
    return join<f64v>(ROUND64(name)(a.low, b.low), ROUND64(name)(a.high, b.high)); } \
  INLINE f32 m_##name(f32 x, f32 y) { return m_##name(splat(x), splat(y))[0]; } \
  INLINE f64 m_##name(f64 x, f64 y) { return m_##name(splat(x), splat(y))[0]; }
MATH1(expm1, u10) MATH1(log, u10) MATH1(log1p, u10) MATH1(log2, u10) MATH1(log10, u10) MATH1(exp2, u10)
MATH1(sin, u10) MATH1(cos, u10) MATH1(tan, u10) MATH1(asin, u10) MATH1(acos, u10) MATH1(atan, u10)
MATH1(sinh, u10) MATH1(cosh, u10) MATH1(asinh, u10) MATH1(acosh, u10) MATH1(atanh, u10)
MATH1(erfc, u15) MATH1(lgamma, u10)
MATH2(pow, u10) MATH2(atan2, u10) MATH2(hypot, u05)
ROUND1(floor) ROUND1(ceil) ROUND1(trunc) ROUND1(rint) ROUND2(fmod) ROUND2(copysign) ROUND2(nextafter)
#define MATH64_1(name, ulp) \
  extern "C" f64h MATH64(name, ulp)(f64h); \
  INLINE f64v m_##name(f64v x) { auto h = split<f64h>(x); return join<f64v>(MATH64(name, ulp)(h.low), MATH64(name, ulp)(h.high)); } \
  INLINE f64 m_##name(f64 x) { return m_##name(splat(x))[0]; }
MATH64_1(exp, u10) MATH64_1(tanh, u10) MATH64_1(erf, u10)
// min and max of a number and a constant; a nan stays what it is.
#ifdef __AVX512F__
INLINE f32v at_least(f32v x, f32 least) { return __builtin_ia32_maxps512_mask(splat(least), x, x, (u16)-1, 4); }
INLINE f32v at_most(f32v x, f32 most) { return __builtin_ia32_minps512_mask(splat(most), x, x, (u16)-1, 4); }
#elif defined(__AVX2__)
INLINE f32v at_least(f32v x, f32 least) { return __builtin_ia32_maxps256(splat(least), x); }
INLINE f32v at_most(f32v x, f32 most) { return __builtin_ia32_minps256(splat(most), x); }
#else
INLINE f32v at_least(f32v x, f32 least) { return x < least ? splat(least) : x; }
INLINE f32v at_most(f32v x, f32 most) { return x > most ? splat(most) : x; }
#endif
// e**x in line: x = n ln 2 + r, a polynomial for e**r, and n put into the exponent.  A nan makes the polynomial one.
struct Power { f32v p; i32v n; };
INLINE Power exp_parts(f32v x) {
  f32v n = fma(x, 1.44269504f, 12582912.f) - 12582912.f;
  f32v r = fma(n, 2.12194440e-4f, fma(n, -0.693359375f, x));
  f32v p = splat(1.9875691500e-4f);
  p = fma(p, r, 1.3981999507e-3f);
  p = fma(p, r, 8.3334519073e-3f);
  p = fma(p, r, 4.1665795894e-2f);
  p = fma(p, r, 1.6666665459e-1f);
  p = fma(p, r, 5.0000001201e-1f);
  return {fma(p * r, r, r) + 1.f, convert<i32v>(n)};
}
INLINE f32v exp_near(f32v x) {  // between -87 and 88
  Power e = exp_parts(x);
  return e.p * (f32v)((e.n + 127) << 23);
}
// In two steps, so that the smallest results come out as subnormals.  Off by at most 1.1 units in the last place.
INLINE f32v m_exp(f32v x) {
  Power e = exp_parts(at_most(at_least(x, -104.f), 89.f));
  i32v half = e.n >> 1;
  return e.p * (f32v)((half + 127) << 23) * (f32v)((e.n - half + 127) << 23);
}
INLINE f32 m_exp(f32 x) { return m_exp(splat(x))[0]; }
INLINE f32v with_sign(f32v magnitude, f32v x) { return (f32v)((i32v)magnitude | ((i32v)x & (i32)0x80000000)); }
// The polynomials of these two are fitted to float64 values; both are off by at most 1.7 units in the last place.
INLINE f32v m_tanh(f32v x) {
  f32v s = x * x, p = splat(2.231089128e-03f), t = (f32v)((i32v)x & 0x7fffffff);
  p = fma(p, s, -8.267118970e-03f);
  p = fma(p, s, 2.173445166e-02f);
  p = fma(p, s, -5.395247793e-02f);
  p = fma(p, s, 1.333324781e-01f);
  p = fma(p, s, -3.333333178e-01f);
  f32v large = 1.f - 2.f / (exp_near(at_most(t + t, 20.f)) + 1.f);
  return with_sign(t < 0.6f ? fma(p * s, t, t) : large, x);
}
INLINE f32 m_tanh(f32 x) { return m_tanh(splat(x))[0]; }
INLINE f32v m_erf(f32v x) {
  f32v s = x * x, p = splat(8.698962884e-05f), t = (f32v)((i32v)x & 0x7fffffff);
  p = fma(p, s, -8.216546208e-04f);
  p = fma(p, s, 5.207219197e-03f);
  p = fma(p, s, -2.686177351e-02f);
  p = fma(p, s, 1.128373643e-01f);
  p = fma(p, s, -3.761263629e-01f);
  p = fma(p, s, 1.283791669e-01f);
  f32v u = at_most(t, 4.1f);
  f32v q = splat(-9.408792104e-07f);  // of the logarithm of 1 - erf
  q = fma(q, u, -8.486264308e-06f);
  q = fma(q, u, 3.620708322e-04f);
  q = fma(q, u, -3.938427862e-03f);
  q = fma(q, u, 2.466160773e-02f);
  q = fma(q, u, -1.077148590e-01f);
  q = fma(q, u, -6.337746461e-01f);
  q = fma(q, u, -1.129333430e+00f);
  q = fma(q, u, 1.416016222e-04f);
  return t < 0.875f ? fma(p, x, x) : with_sign(1.f - exp_near(q), x);
}
INLINE f32 m_erf(f32 x) { return m_erf(splat(x))[0]; }
INLINE f32 m_sqrt(f32 x) { return __builtin_sqrtf(x); }
INLINE f64 m_sqrt(f64 x) { return __builtin_sqrt(x); }
#ifdef __AVX512F__
#ifdef __clang__
INLINE f32v m_sqrt(f32v x) { return __builtin_ia32_sqrtps512(x, 4); }
INLINE f64h sqrt_half(f64h x) { return __builtin_ia32_sqrtpd512(x, 4); }
#else
INLINE f32v m_sqrt(f32v x) { return __builtin_ia32_sqrtps512_mask(x, x, (u16)-1, 4); }
INLINE f64h sqrt_half(f64h x) { return __builtin_ia32_sqrtpd512_mask(x, x, (u8)-1, 4); }
#endif
#elif defined(__AVX2__)
INLINE f32v m_sqrt(f32v x) { return __builtin_ia32_sqrtps256(x); }
INLINE f64h sqrt_half(f64h x) { return __builtin_ia32_sqrtpd256(x); }
#else
INLINE f32v m_sqrt(f32v x) { for (int i = 0; i < LANES; i++) x[i] = __builtin_sqrtf(x[i]); return x; }
INLINE f64h sqrt_half(f64h x) { for (int i = 0; i < LANES / 2; i++) x[i] = __builtin_sqrt(x[i]); return x; }
#endif
INLINE f64v m_sqrt(f64v x) { auto h = split<f64h>(x); return join<f64v>(sqrt_half(h.low), sqrt_half(h.high)); }
INLINE f32v m_abs(f32v x) { return (f32v)((i32v)x & 0x7fffffff); }
INLINE f64v m_abs(f64v x) { return {(f64h)((i64h)x.low & 0x7fffffffffffffff), (f64h)((i64h)x.high & 0x7fffffffffffffff)}; }
INLINE f32 m_abs(f32 x) { return __builtin_fabsf(x); }
INLINE f64 m_abs(f64 x) { return __builtin_fabs(x); }
template <class T> INLINE T m_abs(T x) { return sel(lt(x, x - x), (T)-x, x); }
// Division that rounds down, and its remainder, which has the sign of the divisor.
template <class T> INLINE T floor_div(T a, T b) { T q = a / b; T wrong = (a % b != 0) & ((a ^ b) < 0); return q + wrong; }
INLINE u8v floor_div(u8v a, u8v b) { return a / b; }
template <class T> INLINE T floor_rem(T a, T b) { T r = a % b; return r + (b & ((r != 0) & ((r ^ b) < 0))); }
INLINE u8v floor_rem(u8v a, u8v b) { return a % b; }
#define SCALAR_DIVISION(T) INLINE T floor_div(T a, T b) { return a / b - ((a % b != 0) & ((a ^ b) < 0)); } \
  INLINE T floor_rem(T a, T b) { T r = a % b; return r != 0 && (r ^ b) < 0 ? r + b : r; }
SCALAR_DIVISION(i64) SCALAR_DIVISION(i32) SCALAR_DIVISION(i16) SCALAR_DIVISION(i8) SCALAR_DIVISION(u8)
