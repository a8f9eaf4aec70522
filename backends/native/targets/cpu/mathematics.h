// Functions of numbers, for vectors and scalars; a part of kernels.h, whose types it uses.
//
// Sleef's functions are those that torch's library exports.  The others are ours where Sleef's take longer.

#define MATH1(name, ulp) \
  extern "C" f32v MATH(name, ulp)(f32v); extern "C" f64h MATH64(name, ulp)(f64h); \
  INLINE f32v m_##name(f32v x) { return MATH(name, ulp)(x); } \
  INLINE f64v m_##name(f64v x) { auto h = split<f64h>(x); return join<f64v>(MATH64(name, ulp)(h.low), MATH64(name, ulp)(h.high)); } \
  INLINE f32 m_##name(f32 x) { return m_##name(splat(x))[0]; } INLINE f64 m_##name(f64 x) { return MATH64(name, ulp)(f64h{} + x)[0]; }
#define MATH2(name, ulp) \
  extern "C" f32v MATH(name, ulp)(f32v, f32v); extern "C" f64h MATH64(name, ulp)(f64h, f64h); \
  INLINE f32v m_##name(f32v x, f32v y) { return MATH(name, ulp)(x, y); } \
  INLINE f64v m_##name(f64v x, f64v y) { auto a = split<f64h>(x), b = split<f64h>(y); \
    return join<f64v>(MATH64(name, ulp)(a.low, b.low), MATH64(name, ulp)(a.high, b.high)); }
// To whole numbers: the number of the instruction's kind, or Sleef's function where there is no instruction.
#if defined(__AVX512F__)
#define ROUND1(name, kind) \
  INLINE f32v m_##name(f32v x) { return __builtin_ia32_rndscaleps_mask(x, kind, x, (u16)-1, 4); } \
  INLINE f64h m_##name(f64h x) { return __builtin_ia32_rndscalepd_mask(x, kind, x, (u8)-1, 4); }
#elif defined(__AVX2__)
#define ROUND1(name, kind) \
  INLINE f32v m_##name(f32v x) { return __builtin_ia32_roundps256(x, kind); } INLINE f64h m_##name(f64h x) { return __builtin_ia32_roundpd256(x, kind); }
#else
#define ROUND1(name, kind) \
  extern "C" f32v ROUND(name)(f32v); extern "C" f64h ROUND64(name)(f64h); \
  INLINE f32v m_##name(f32v x) { return ROUND(name)(x); } INLINE f64h m_##name(f64h x) { return ROUND64(name)(x); }
#endif
#define ROUNDED(name, kind) ROUND1(name, kind) \
  INLINE f64v m_##name(f64v x) { auto h = split<f64h>(x); return join<f64v>(m_##name(h.low), m_##name(h.high)); } \
  INLINE f32 m_##name(f32 x) { return __builtin_##name##f(x); } INLINE f64 m_##name(f64 x) { return __builtin_##name(x); }
#define ROUND2(name) \
  extern "C" f32v ROUND(name)(f32v, f32v); extern "C" f64h ROUND64(name)(f64h, f64h); \
  INLINE f32v m_##name(f32v x, f32v y) { return ROUND(name)(x, y); } \
  INLINE f64v m_##name(f64v x, f64v y) { auto a = split<f64h>(x), b = split<f64h>(y); \
    return join<f64v>(ROUND64(name)(a.low, b.low), ROUND64(name)(a.high, b.high)); } \
  INLINE f32 m_##name(f32 x, f32 y) { return m_##name(splat(x), splat(y))[0]; } \
  INLINE f64 m_##name(f64 x, f64 y) { return m_##name(splat(x), splat(y))[0]; }
MATH1(tan, u10) MATH1(asin, u10) MATH1(acos, u10) MATH1(atan, u10)
MATH1(asinh, u10) MATH1(acosh, u10) MATH1(atanh, u10)
MATH1(lgamma, u10)
MATH2(pow, u10) MATH2(atan2, u10) MATH2(hypot, u05)
// Of single numbers, such as what is left of a row that was reduced: the C library takes a fifth of the vectors' time.
#define SINGLE2(name) \
  INLINE f32 m_##name(f32 x, f32 y) { return __builtin_##name##f(x, y); } INLINE f64 m_##name(f64 x, f64 y) { return __builtin_##name(x, y); }
SINGLE2(pow) SINGLE2(atan2) SINGLE2(hypot)
ROUNDED(rint, 8) ROUNDED(floor, 9) ROUNDED(ceil, 10) ROUNDED(trunc, 11) ROUND2(fmod) ROUND2(nextafter)
INLINE f32v m_copysign(f32v x, f32v y) { return (f32v)(((i32v)x & 0x7fffffff) | ((i32v)y & (i32)0x80000000)); }
INLINE f64h m_copysign(f64h x, f64h y) { return (f64h)(((i64h)x & 0x7fffffffffffffff) | ((i64h)y & (i64)0x8000000000000000)); }
INLINE f64v m_copysign(f64v x, f64v y) { return {m_copysign(x.low, y.low), m_copysign(x.high, y.high)}; }
INLINE f32 m_copysign(f32 x, f32 y) { return __builtin_copysignf(x, y); }
INLINE f64 m_copysign(f64 x, f64 y) { return __builtin_copysign(x, y); }
#define MATH64_1(name, ulp) \
  extern "C" f64h MATH64(name, ulp)(f64h); \
  INLINE f64v m_##name(f64v x) { auto h = split<f64h>(x); return join<f64v>(MATH64(name, ulp)(h.low), MATH64(name, ulp)(h.high)); } \
  INLINE f64 m_##name(f64 x) { return MATH64(name, ulp)(f64h{} + x)[0]; }
MATH64_1(exp, u10) MATH64_1(tanh, u10) MATH64_1(erf, u10) MATH64_1(sin, u10) MATH64_1(cos, u10) MATH64_1(exp2, u10)
MATH64_1(sinh, u10) MATH64_1(cosh, u10) MATH64_1(erfc, u15) MATH64_1(expm1, u10) MATH64_1(log, u10) MATH64_1(log1p, u10) MATH64_1(log2, u10) MATH64_1(log10, u10)
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
struct Power { f32v p, n; };
INLINE Power exp_parts(f32v x) {
  f32v n = fma(x, 1.44269504f, 12582912.f) - 12582912.f;
  f32v r = fma(n, 2.12194440e-4f, fma(n, -0.693359375f, x));
  f32v p = splat(1.9875691500e-4f);
  p = fma(p, r, 1.3981999507e-3f);
  p = fma(p, r, 8.3334519073e-3f);
  p = fma(p, r, 4.1665795894e-2f);
  p = fma(p, r, 1.6666665459e-1f);
  p = fma(p, r, 5.0000001201e-1f);
  return {fma(p * r, r, r) + 1.f, n};
}
// p 2**n: of other processors in two steps, so that the smallest results come out as subnormals.
#ifdef __AVX512F__
INLINE f32v scaled(f32v p, f32v n) { return __builtin_ia32_scalefps512_mask(p, n, p, (u16)-1, 4); }
INLINE f32v scaled_near(f32v p, f32v n) { return scaled(p, n); }
#else
INLINE f32v scaled(f32v p, f32v n) {
  i32v whole = convert<i32v>(n), half = whole >> 1;
  return p * (f32v)((half + 127) << 23) * (f32v)((whole - half + 127) << 23);
}
INLINE f32v scaled_near(f32v p, f32v n) { return p * (f32v)((convert<i32v>(n) + 127) << 23); }
#endif
INLINE f32v exp_near(f32v x) {  // between -87 and 88
  Power e = exp_parts(x);
  return scaled_near(e.p, e.n);
}
// Off by at most 1.1 units in the last place.
// What is masked in attention becomes zero before it is scaled: processors take long over results that vanish.
INLINE f32v m_exp(f32v x) {
  Power e = exp_parts(at_most(at_least(x, -104.f), 89.f));
  e.p = x <= -104.f ? f32v{} : e.p;
  return scaled(e.p, e.n);
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
// From half of e**|x|, which is finite where the results are; of Sleef's they are infinite from 88.8 on.  Off by at most 1.6
// units in the last place.
INLINE f32v half_exp(f32v t) {
  Power e = exp_parts(at_most(t, 91.f));
  return scaled(e.p, e.n - 1.f);
}
INLINE f32v m_sinh(f32v x) {
  f32v t = (f32v)((i32v)x & 0x7fffffff), s = t * t, p = splat(2.7557319e-06f), h = half_exp(t);
  p = fma(p, s, 1.9841270e-04f);
  p = fma(p, s, 8.3333333e-03f);
  p = fma(p, s, 1.6666667e-01f);
  return with_sign(t < 1.f ? fma(p * s, t, t) : h - 0.25f / h, x);
}
INLINE f32v m_cosh(f32v x) {
  f32v h = half_exp((f32v)((i32v)x & 0x7fffffff));
  return h + 0.25f / h;
}
INLINE f32 m_sinh(f32 x) { return m_sinh(splat(x))[0]; }
INLINE f32 m_cosh(f32 x) { return m_cosh(splat(x))[0]; }
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
// e**(-x**2 / 2), and zero from |x| = 12 on, where it is less than 6e-32: with subnormal results, whatever is computed of
// them takes a processor many times as long.  Eager's GELU is zero from 5.6 on.
INLINE f32v bell(f32v x) {
  f32v y = x * x * -0.5f;
  Power e = exp_parts(at_least(y, -87.f));
  return scaled_near(y <= -72.f ? f32v{} : e.p, e.n);
}
// The distribution function of a normal variable, and its density.  Of a negative x the first is the density times a
// polynomial in 1 / (1 + c |x|), which was fitted to float64 values; so nothing cancels where it is small.
INLINE f32v m_normal_cdf(f32v x) {
  f32v t = 1.f / fma((f32v)((i32v)x & 0x7fffffff), 0.3f, 1.f), p = splat(3.575442403e-02f);
  p = fma(p, t, -1.217409448e-01f);
  p = fma(p, t, 8.505351493e-02f);
  p = fma(p, t, 3.101645603e-02f);
  p = fma(p, t, 1.597401475e-01f);
  p = fma(p, t, 2.596112099e-01f);
  p = fma(p, t, 3.803710316e-01f);
  p = fma(p, t - 1.f, 0.5f);  // a half at 0
  f32v below = p * t * bell(x);
  return x < 0.f ? below : 1.f - below;
}
INLINE f32v m_normal_pdf(f32v x) { return bell(x) * 0.3989422804f; }
INLINE f32 m_normal_cdf(f32 x) { return m_normal_cdf(splat(x))[0]; }
INLINE f32 m_normal_pdf(f32 x) { return m_normal_pdf(splat(x))[0]; }
template <class T> INLINE T m_normal_cdf(T x) { return m_erfc(x * -0.7071067811865476) * 0.5; }
template <class T> INLINE T m_normal_pdf(T x) { return m_exp(x * x * -0.5) * 0.3989422804014327; }
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
// With fused multiplication, what follows is exact where it has to be; elsewhere Sleef's functions take its place.
#if defined(__FMA__) || defined(__AVX512F__) || defined(__aarch64__)
// sin and cos: x less a multiple of pi/2, in two parts (reduction of W. J. Cody and W. M. Waite, "Software Manual for the
// Elementary Functions", 1980, with fused multiplication), and polynomials between -pi/4 and pi/4, fitted to float64 values.  All
// float32 numbers up to 1e5 are off by at most 1.3 units in the last place; for larger ones Sleef's reduction takes over.
struct Turned { f32v high, low; i32v quarter; };
INLINE Turned turned(f32v x) {
  f32v n = fma(x, 0.636619772f, 12582912.f) - 12582912.f;
  f32v r = fma(n, -1.57079637e+00f, x), w = n * -4.37113883e-08f;
  f32v high = r - w, low = (r - high) - w;
  low = fma(n, 1.71512449e-15f, low - fma(n, -4.37113883e-08f, -w));
  return {high, low, convert<i32v>(n)};
}
INLINE f32v sine(Turned t, i32v quarter) {  // of the angle that lies `quarter` quarter turns further
  f32v s = t.high * t.high, p = splat(2.830801805e-06f), q = splat(2.443066842e-05f);
  p = fma(p, s, -1.985298295e-04f);
  p = fma(p, s, 8.333379403e-03f);
  p = fma(p, s, -1.666666716e-01f);
  f32v odd = t.high + fma(p, t.high * s, t.low);
  q = fma(q, s, -1.388730132e-03f);
  q = fma(q, s, 4.166664556e-02f);
  f32v even = fma(s, -0.5f, 1.f) + fma(q, s * s, -t.high * t.low);
  quarter = quarter + t.quarter;
  f32v found = (quarter & 1) != 0 ? even : odd;
  return (f32v)((i32v)found ^ ((quarter & 2) << 30));
}
#define LARGE_ANGLE 1e5f
#define LARGE_ANGLES(name) \
  extern "C" f32v MATH(name, u10)(f32v); \
  NOINLINE static f32v large_##name(f32v x, f32v known) { return m_abs(x) <= LARGE_ANGLE ? known : MATH(name, u10)(x); }
LARGE_ANGLES(sin) LARGE_ANGLES(cos)
INLINE f32v m_sin(f32v x) {
  f32v t = m_abs(x), known = sine(turned(t), i32v{});
  known = (f32v)((i32v)known ^ ((i32v)x & (i32)0x80000000));
  return __builtin_expect(any_of(~(t <= LARGE_ANGLE)), false) ? large_sin(x, known) : known;
}
INLINE f32v m_cos(f32v x) {
  f32v t = m_abs(x), known = sine(turned(t), i32v{} + 1);
  return __builtin_expect(any_of(~(t <= LARGE_ANGLE)), false) ? large_cos(x, known) : known;
}
// Logarithms: 1 + f between sqrt(1/2) and sqrt(2), times a power of two.  The polynomial is fitted to float64 values.
struct Logarithm { f32v high, low; };  // of 1 + f, their sum
INLINE Logarithm log_near_one(f32v f, f32v n, f32 low_part) {
  f32v p = splat(-7.636427879e-02f), s = f * f;
  p = fma(p, f, 1.276221275e-01f);
  p = fma(p, f, -1.315961033e-01f);
  p = fma(p, f, 1.420157999e-01f);
  p = fma(p, f, -1.662340909e-01f);
  p = fma(p, f, 2.000124156e-01f);
  p = fma(p, f, -2.500081956e-01f);
  p = fma(p, f, 3.333333135e-01f);
  return {f, fma(fma(p, f, -0.5f), s, n * low_part)};
}
#define LN2_HIGH 0.693359375f
#define LN2_LOW -2.12194440e-4f
struct Scaled { f32v f, n; };
INLINE Scaled scaled(f32v x) {
  mask tiny = x < 0x1p-126f;
  f32v y = tiny ? x * 0x1p23f : x;
  i32v e = ((i32v)y - 0x3f3504f3) & (i32)0xff800000;
  return {(f32v)((i32v)y - e) - 1.f, convert<f32v>(e >> 23) - (tiny ? splat(23.f) : f32v{})};
}
INLINE f32v of_positive(f32v x, f32v known) {  // what a logarithm is at the ends of its domain, and beyond
  known = x < __builtin_inff() ? known : x;
  return x > 0.f ? known : x == 0.f ? splat(-__builtin_inff()) : splat(__builtin_nanf(""));
}
INLINE f32v m_log(f32v x) {  // off by at most 0.9 units in the last place
  Scaled a = scaled(x);
  Logarithm l = log_near_one(a.f, a.n, LN2_LOW);
  return of_positive(x, fma(a.n, LN2_HIGH, l.high + l.low));
}
// Times 1 / ln(base), which is `high` and `low`, and n times the logarithm of 2, which is `whole` and `rest`.
INLINE f32v log_to_base(f32v x, f32 high, f32 low, f32 whole, f32 rest) {
  Scaled a = scaled(x);
  Logarithm l = log_near_one(a.f, f32v{}, 0);
  f32v sum = l.high + l.low, error = (l.high - sum) + l.low, product = sum * high;
  f32v more = fma(sum, high, -product) + fma(sum, low, fma(error, high, a.n * rest));
  f32v first = fma(a.n, whole, product);  // n * whole is exact
  f32v lost = fma(a.n, whole, -first) + product;
  return of_positive(x, first + (lost + more));
}
INLINE f32v m_log2(f32v x) { return log_to_base(x, 1.44269502f, 1.92596303e-08f, 1.f, 0.f); }
INLINE f32v m_log10(f32v x) { return log_to_base(x, 4.34294492e-01f, -1.01030461e-08f, 3.010253906e-01f, 4.60503907e-06f); }
// The scaling of 1 + x is found first, then applied to x and to 1, so that nothing of a small x is lost: the way of
// N. Juffa's log1pf.  Off by at most 1.5 units in the last place.
INLINE f32v m_log1p(f32v x) {
  i32v e = ((i32v)(x + 1.f) - 0x3f3504f3) & (i32)0xff800000;
  f32v unit = (f32v)(0x40800000 - e), n = convert<f32v>(e >> 23);
  Logarithm l = log_near_one((f32v)((i32v)x - e) + fma(unit, 0.25f, -1.f), n, LN2_LOW);
  f32v known = fma(n, LN2_HIGH, l.high + l.low);
  known = x == 0.f ? x : x < __builtin_inff() ? known : x;
  return x > -1.f ? known : x == -1.f ? splat(-__builtin_inff()) : splat(__builtin_nanf(""));
}
// e**x - 1: half of 2**n, so that the largest results are no overflow, times e**r - 1, which is not rounded before.
INLINE f32v m_expm1(f32v x) {  // off by at most 1.5 units in the last place
  f32v t = at_most(at_least(x, -18.f), 89.f), n = fma(t, 1.44269504f, 12582912.f) - 12582912.f;
  f32v r = fma(n, 2.12194440e-4f, fma(n, -0.693359375f, t)), p = splat(1.976314961e-04f);
  p = fma(p, r, 1.393276965e-03f);
  p = fma(p, r, 8.333545178e-03f);
  p = fma(p, r, 4.166648909e-02f);
  p = fma(p, r, 1.666666567e-01f);
  p = fma(p, r, 5.000000000e-01f);
  p = fma(p * r, r, r);
  f32v half = (f32v)((convert<i32v>(n) + 126) << 23), large = fma(p, half, half - 0.5f);
  f32v known = n == 0.f ? p : large + large;
  return (f32v)((i32v)known | ((i32v)x & (i32)0x80000000));
}
// Near 0 by the polynomial of erf; else the exponential of -x**2, of which no digit is lost, times a polynomial in
// 1 / (1 + c |x|), fitted to float64 values.  Off by at most 4.5 units in the last place.
INLINE f32v m_erfc(f32v x) {
  f32v t = m_abs(x), s = t * t, p = splat(8.698962884e-05f), u = at_most(t, 11.f);
  p = fma(p, s, -8.216546208e-04f);
  p = fma(p, s, 5.207219197e-03f);
  p = fma(p, s, -2.686177351e-02f);
  p = fma(p, s, 1.128373643e-01f);
  p = fma(p, s, -3.761263629e-01f);
  p = fma(p, s, 1.283791669e-01f);
  f32v r = 1.f / fma(u, 0.8f, 1.f), q = splat(-1.817592761e-01f), square = u * u;
  q = fma(q, r, 1.091299525e+00f);
  q = fma(q, r, -2.600344564e+00f);
  q = fma(q, r, 3.084883598e+00f);
  q = fma(q, r, -1.675704963e+00f);
  q = fma(q, r, 1.186606145e-01f);
  q = fma(q, r, -5.385584672e-02f);
  q = fma(q, r, 3.149820507e-01f);
  q = fma(q, r, 4.508450747e-01f);
  q = fma(q, r, 4.513652557e-01f);
  f32v power = m_exp(-square), beyond = q * r * fma(power, -fma(u, u, -square), power);
  return t < 0.5f ? fma(p, -x, 1.f - x) : x < 0.f ? 2.f - beyond : beyond;
}
INLINE f32v m_exp2(f32v x) {  // off by at most 0.9 units in the last place
  f32v t = at_most(at_least(x, -151.f), 129.f), n = (t + 12582912.f) - 12582912.f, r = t - n, p = splat(1.467585480e-05f);
  p = fma(p, r, 1.545187697e-04f);
  p = fma(p, r, 1.333665568e-03f);
  p = fma(p, r, 9.618087672e-03f);
  p = fma(p, r, 5.550406128e-02f);
  p = fma(p, r, 2.402265072e-01f);
  p = fma(p, r, 6.931471825e-01f);
  return scaled(fma(p, r, 1.f), n);
}
#else
#define MATH32_1(name) extern "C" f32v MATH(name, u10)(f32v); INLINE f32v m_##name(f32v x) { return MATH(name, u10)(x); }
extern "C" f32v MATH(erfc, u15)(f32v); INLINE f32v m_erfc(f32v x) { return MATH(erfc, u15)(x); }
MATH32_1(sin) MATH32_1(cos) MATH32_1(log) MATH32_1(log2) MATH32_1(log10) MATH32_1(log1p) MATH32_1(expm1) MATH32_1(exp2)
#endif
#define ONE_NUMBER(name) INLINE f32 m_##name(f32 x) { return m_##name(splat(x))[0]; }
ONE_NUMBER(erfc) ONE_NUMBER(sin) ONE_NUMBER(cos) ONE_NUMBER(log) ONE_NUMBER(log2) ONE_NUMBER(log10) ONE_NUMBER(log1p) ONE_NUMBER(expm1) ONE_NUMBER(exp2)
// Division that rounds down, and its remainder, which has the sign of the divisor.  In vectors by floating-point numbers that
// hold all operands: the nearest whole number to the quotient is the result or one more, as the remainder, exact, tells.
template <class V> struct Divided { V quotient, rest; };
template <class V> INLINE Divided<V> divided(V a, V b, V shift) {
  V q = (a / b + shift) - shift, r = a - q * b;
  auto wrong = r * b < V{};
  return {wrong ? q - 1 : q, wrong ? r + b : r};
}
INLINE Divided<i32v> divided(i32v a, i32v b) {
  auto x = split<f64h>(convert<f64v>(a)), y = split<f64h>(convert<f64v>(b));
  auto low = divided(x.low, y.low, f64h{} + 0x1.8p52), high = divided(x.high, y.high, f64h{} + 0x1.8p52);
  return {convert<i32v>(join<f64v>(low.quotient, high.quotient)), convert<i32v>(join<f64v>(low.rest, high.rest))};
}
template <class V> INLINE Divided<V> divided(V a, V b) {  // of less than 32 bits
  auto d = divided(convert<f32v>(convert<i32v>(a)), convert<f32v>(convert<i32v>(b)), f32v{} + 0x1.8p23f);
  return {convert<V>(convert<i32v>(d.quotient)), convert<V>(convert<i32v>(d.rest))};
}
#define SCALAR_DIVISION(T) \
  INLINE T floor_div(T a, T b) { return b == (T)-1 && (T)-1 < 0 ? (T)(0 - a) : (T)(a / b - ((a % b != 0) & ((a ^ b) < 0))); } \
  INLINE T floor_rem(T a, T b) { if (b == (T)-1 && (T)-1 < 0) return 0; T r = a % b; return r != 0 && (r ^ b) < 0 ? r + b : r; }
SCALAR_DIVISION(i64) SCALAR_DIVISION(i32) SCALAR_DIVISION(i16) SCALAR_DIVISION(i8) SCALAR_DIVISION(u8)
NOINLINE static Divided<i64v> divided_each(i64v a, i64v b) {
  Divided<i64v> d;
  for (int i = 0; i < LANES; i++) { i64 by = b[i] ? b[i] : 1; put(d.quotient, i, floor_div(a[i], by)); put(d.rest, i, floor_rem(a[i], by)); }  // 0 lies beyond the row
  return d;
}
INLINE Divided<i64h> divided(i64h a, i64h b) {  // of numbers of up to 51 bits
  const i64 bits = 0x4338000000000000;  // those of 1.5 * 2**52, which has the units in its last place
  f64h shift = f64h{} + 0x1.8p52;
  auto d = divided((f64h)(a + bits) - shift, (f64h)(b + bits) - shift, shift);
  return {(i64h)(d.quotient + shift) - bits, (i64h)(d.rest + shift) - bits};
}
INLINE Divided<i64v> divided(i64v a, i64v b) {
  const i64 most = 1l << 50;
  i64h wide = (a.low + most) | (b.low + most) | (a.high + most) | (b.high + most);
  wide = wide & ~(2 * most - 1);
  i64 any = 0; for (int i = 0; i < LANES / 2; i++) any |= wide[i];
  if (__builtin_expect(any != 0, false)) return divided_each(a, b);
  auto low = divided(a.low, b.low), high = divided(a.high, b.high);
  return {{low.quotient, high.quotient}, {low.rest, high.rest}};
}
#define VECTOR_DIVISION(T) INLINE T##v floor_div(T##v a, T##v b) { return divided(a, b).quotient; } \
  INLINE T##v floor_rem(T##v a, T##v b) { return divided(a, b).rest; }
// By a constant, which compilers turn into a product.
template <class V> INLINE V floor_div_by(V a, V b) { V q = a / b; V wrong = (a % b != 0) & ((a ^ b) < 0); return q + wrong; }
template <class V> INLINE V floor_rem_by(V a, V b) { V r = a % b; return r + (b & ((r != 0) & ((r ^ b) < 0))); }
INLINE u8v floor_div_by(u8v a, u8v b) { return a / b; }
INLINE u8v floor_rem_by(u8v a, u8v b) { return a % b; }
VECTOR_DIVISION(i64) VECTOR_DIVISION(i32) VECTOR_DIVISION(i16) VECTOR_DIVISION(i8) VECTOR_DIVISION(u8)
