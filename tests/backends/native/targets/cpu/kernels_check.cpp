// What kernels.h promises of an instruction set, computed with it: says what is wrong, and ends with the number of faults.

#include "kernels.h"
#include <cmath>
#include <cstdio>
#include <cstring>
#include <initializer_list>

static int faults = 0;
static void expect(bool right, const char* what, double at) {
  if (!right && faults++ < 20) std::printf("%s is wrong at %.9g\n", what, at);
}

static f32 from_f16(int bits) { return widen_f16(u16v{} + (u16)bits)[LANES - 1]; }
static int to_f16(f32 x) { return narrow_f16(splat(x))[LANES - 1]; }
static f32 from_bits(u32 bits) { f32 x; std::memcpy(&x, &bits, 4); return x; }

static void half_precision() {
  for (int bits = 0; bits < 0x8000; bits++) {
    int exponent = bits >> 10, mantissa = bits & 0x3ff;
    f32 value = exponent ? std::ldexp(1024 + mantissa, exponent - 25) : std::ldexp(mantissa, -24);
    if (exponent == 31) value = mantissa ? NAN : INFINITY;
    f32 found = from_f16(bits), negative = from_f16(bits | 0x8000);
    expect(found == value || (found != found && value != value), "float16 to float32", bits);
    expect(std::signbit(negative) && (negative == -value || value != value), "negative float16 to float32", bits);
    if (value != value) {
      expect(from_f16(to_f16(value)) != from_f16(to_f16(value)), "nan to float16", bits);
      continue;
    }
    expect(to_f16(value) == bits, "float32 to float16", value);
    expect(to_f16(-value) == (bits | 0x8000), "negative float32 to float16", value);
    if (exponent == 31) continue;
    f32 next = bits == 0x7bff ? 65536.f : from_f16(bits + 1), middle = value + (next - value) / 2;
    expect(to_f16(middle) == bits + (bits & 1), "a tie to float16", middle);
    expect(to_f16(std::nextafterf(middle, 0.f)) == bits, "less than a tie to float16", middle);
    expect(to_f16(std::nextafterf(middle, 1e9f)) == bits + 1, "more than a tie to float16", middle);
  }
  for (u32 bits = 0; bits < 0x7f80; bits++) {
    f32 value = from_bits(bits << 16), tie = from_bits((bits << 16) | 0x8000);
    expect(round_bf16(splat(value))[0] == value, "bfloat16", value);
    expect(round_bf16(splat(tie))[0] == from_bits((bits + (bits & 1)) << 16), "a tie to bfloat16", tie);
    expect(round_bf16(splat(from_bits((bits << 16) | 0x8001)))[0] == from_bits((bits + 1) << 16), "to bfloat16", tie);
  }
  expect(round_bf16(splat(NAN))[0] != round_bf16(splat(NAN))[0], "nan to bfloat16", 0);
}

// Units in the last place between a result and the exact one.
static double ulps(f32 found, double exact) {
  f32 near = (f32)exact;
  if (found == near) return 0;
  double unit = std::fabs((double)std::nextafterf(near, INFINITY) - near);
  return std::fabs(found - exact) / unit;
}

static void mathematics() {
  for (f32 x = -110.f; x < 95.f; x += 0.0137f) {
    expect(ulps(m_exp(x), std::exp((double)x)) <= 2, "exp", x);
    f32 small = x / 16;
    expect(ulps(m_tanh(small), std::tanh((double)small)) <= 2, "tanh", small);
    expect(ulps(m_erf(small), std::erf((double)small)) <= 2, "erf", small);
    f32 positive = std::fabs(x);
    expect(m_sqrt(splat(positive))[LANES - 1] == std::sqrt(positive), "sqrt", positive);
    expect(m_sqrt(splat((f64)positive))[LANES - 1] == std::sqrt((f64)positive), "sqrt of float64", positive);
  }
#if defined(__FMA__) || defined(__aarch64__)
  f32 more = 1.f + 0x1p-20f, less = 1.f - 0x1p-20f;
  expect(fma(splat(more), splat(less), splat(-1.f))[LANES - 1] == -0x1p-40f, "fma", more);
#endif
  expect(maximum(splat(NAN), splat(1.f))[0] != maximum(splat(NAN), splat(1.f))[0], "maximum of nan", 0);
}

template <class T> static void tails(const char* what) {
  for (int n = 1; n <= LANES; n++) {
    T from[LANES + 1], to[LANES + 1];
    for (int i = 0; i <= LANES; i++) from[i] = (T)(i + 1), to[i] = (T)77;
    auto v = load(from, Some{n});
    for (int i = 0; i < LANES; i++) expect(v[i] == (T)(i < n ? i + 1 : 0), what, n);
    store(to, v, Some{n});
    for (int i = 0; i <= LANES; i++) expect(to[i] == (T)(i < n ? i + 1 : 77), what, n);
    auto some = load_some(count<i32v>() % 2 == 0, from, Some{n});
    for (int i = 0; i < LANES; i++) expect(some[i] == (T)(i < n && i % 2 == 0 ? i + 1 : 0), what, n);
  }
}

template <class H> static void tails_of_halves(const char* what) {
  for (int n = 1; n <= LANES; n++) {
    H from[LANES + 1], to[LANES + 1];
    for (int i = 0; i <= LANES; i++) store(from + i, (f32)(i + 1)), store(to + i, 77.f);
    f32v v = load(from, Some{n});
    for (int i = 0; i < LANES; i++) expect(v[i] == (i < n ? i + 1 : 0), what, n);
    store(to, v + 1.f, Some{n});
    for (int i = 0; i <= LANES; i++) expect(load(to + i) == (i < n ? i + 2 : 77), what, n);
  }
}

// Whatever stands in the last lane of each half of a vector.
template <class T, class V> static void extremes(const char* what) {
  const T some[] = {(T)-INFINITY, -2, -0.5f, -0.f, 0.f, 1, 3.5f, (T)INFINITY, (T)NAN};
  for (T a : some) for (T b : some) {
    V x = splat((T)1), y = splat((T)2);
    for (int at : {0, LANES / 2 - 1, LANES - 1}) put(x, at, a), put(y, at, b);
    V most = maximum(x, y), least = minimum(x, y);
    bool none = a != a || b != b;
    for (int at : {0, LANES / 2 - 1, LANES - 1}) {
      expect(none ? most[at] != most[at] : most[at] == std::fmax(a, b), what, a);
      expect(none ? least[at] != least[at] : least[at] == std::fmin(a, b), what, b);
    }
    if (LANES > 4) expect(most[1] == 2 && least[1] == 1, what, 0);
  }
}

#ifdef __AVX2__
template <class T, class V> static void rounding(const char* what) {
  auto alike = [] (T a, T b) { return a != a ? b != b : a == b && std::signbit(a) == std::signbit(b); };
  for (T x : {(T)-INFINITY, (T)-1e10, (T)-2.5, (T)-1.5, (T)-0.3, (T)-0., (T)0.3, (T)0.5, (T)2.5, (T)7.9, (T)1e30, (T)NAN}) {
    V v = splat((T)1);
    put(v, LANES - 1, x), put(v, 0, x);
    for (int at : {0, LANES - 1}) {
      expect(alike(m_floor(v)[at], std::floor(x)) && alike(m_ceil(v)[at], std::ceil(x)), what, x);
      expect(alike(m_trunc(v)[at], std::trunc(x)) && alike(m_rint(v)[at], std::nearbyint(x)), what, x);
      expect(alike(m_copysign(v, splat((T)-0.))[at], std::copysign(x, (T)-0.)), what, x);
    }
  }
}
#endif

static void reductions() {
  f32v v = convert<f32v>(count<i32v>()) + 1.f;
  expect(total(v) == LANES * (LANES + 1) / 2, "total", 0);
  expect(greatest<f32>(v) == LANES && smallest<f32>(v) == 1, "greatest", 0);
  f64v wide = convert<f64v>(v);
  i64v whole = convert<i64v>(v);
  expect(greatest<f64>(wide) == LANES && smallest<f64>(wide) == 1 && total(wide) == LANES * (LANES + 1) / 2, "float64", 0);
  expect(greatest<i64>(whole) == LANES && smallest<i64>(whole) == 1 && total(whole) == LANES * (LANES + 1) / 2, "int64", 0);
  expect(greatest<u8>(convert<u8v>(v)) == LANES && smallest<i16>(convert<i16v>(v)) == 1, "short integers", 0);
  expect(times(wide) == std::tgamma(LANES + 1.) && times(whole - whole + 2) == 1l << LANES, "product", 0);
  put(wide, LANES - 2, NAN);
  expect(greatest<f64>(wide) != greatest<f64>(wide), "greatest with nan of float64", 0);
  v[1] = NAN;
  expect(greatest<f32>(v) != greatest<f32>(v), "greatest with nan", 0);
  Best<f32v> best = {v, count<i64v>()};
  expect(best_of<true>(best).at == 1, "the place of nan", 0);
  put(best.at, 1, 7l), put(best.at, LANES - 1, 3l), v[LANES - 1] = NAN;
  best.value = v;
  expect(best_of<true>(best).at == 3 && best_of<false>(best).at == 3, "the first nan", 0);
  Best<u8v> bytes = {splat((u8)200), count<i64v>() + 5}, unseen = {splat((u8)0), i64v{}};
  put(bytes.value, 0, (u8)100), put(bytes.at, LANES - 1, 2l);
  expect(best_of<true>(bytes).at == 2 && best_of<false>(bytes).at == 5, "the first of equal bytes", 0);
  expect(best_of<true>(unseen).at == 0, "bytes of which none is more than the least", 0);
  Best<f64v> wide_best = {convert<f64v>(count<i32v>() % 2), count<i64v>()};
  expect(best_of<true>(wide_best).at == 1 && best_of<false>(wide_best).at == 0, "the first of equal float64", 0);
  expect(any_of(v != v) && !all_of(v != v), "any and all", 0);
  i32v a = count<i32v>() - 2;
  for (int i = 0; i < LANES; i++) expect(floor_div(a, splat((i32)3))[i] == std::floor((i - 2) / 3.), "floor_div", i);
}

// Lanes that differ, of numbers that `To` has as well, or that wrap around.
template <class To, class From, class Vector, class Wide> static void conversion(const char* what) {
  bool whole = (To)0.5 == 0, from_whole = (From)0.5 == 0;
  for (i64 start : {0l, 1l, -3l, 100l, 127l, 200l, 250l, 1000l, 32760l, 65530l, -32770l, 2147483640l, -2147483650l, 4294967290l, 1l << 40, -(1l << 40) - 5}) {
    Vector v;
    From each[LANES];
    for (int i = 0; i < LANES; i++) {
      i64 number = start + 3 * i;
      bool fits = (i64)(To)number == number;
      each[i] = from_whole ? (From)number : (From)(whole && !fits ? i - 3 : number) + (From)(i % 2 ? 0.25 : 0);
      if (!from_whole && (To)-1 > 0 && each[i] < 0) each[i] = i;
      put(v, i, each[i]);
    }
    Wide found = convert<Wide>(v);
    for (int i = 0; i < LANES; i++) expect(found[i] == (To)each[i], what, (double)each[i]);
  }
}
#define BETWEEN_TYPES(A, B) conversion<A, B, B##v, A##v>(#B " to " #A); conversion<B, A, A##v, B##v>(#A " to " #B);
static void conversions() {
  BETWEEN_TYPES(i8, i32) BETWEEN_TYPES(u8, i32) BETWEEN_TYPES(i16, i32) BETWEEN_TYPES(i64, i32)
  BETWEEN_TYPES(i8, i64) BETWEEN_TYPES(u8, i64) BETWEEN_TYPES(i16, i64) BETWEEN_TYPES(i8, i16) BETWEEN_TYPES(u8, i16)
  BETWEEN_TYPES(f32, i32) BETWEEN_TYPES(f64, i32) BETWEEN_TYPES(f32, i64) BETWEEN_TYPES(f64, i64) BETWEEN_TYPES(f32, f64)
  conversion<f32, i8, i8v, f32v>("i8 to f32"), conversion<f32, u8, u8v, f32v>("u8 to f32"), conversion<f32, i16, i16v, f32v>("i16 to f32");
  conversion<f64, i8, i8v, f64v>("i8 to f64"), conversion<f64, u8, u8v, f64v>("u8 to f64"), conversion<f64, i16, i16v, f64v>("i16 to f64");
}

int main() {
  conversions();
  half_precision();
  mathematics();
  tails<f32>("float32 at the end of a row");
  tails<f64>("float64 at the end of a row");
  tails<i64>("int64 at the end of a row");
  tails<i32>("int32 at the end of a row");
  tails<i16>("int16 at the end of a row");
  tails<u8>("uint8 at the end of a row");
  tails<i8>("int8 at the end of a row");
  tails_of_halves<bf16>("bfloat16 at the end of a row");
  tails_of_halves<f16>("float16 at the end of a row");
  extremes<f32, f32v>("an extreme of float32");
  extremes<f64, f64v>("an extreme of float64");
#ifdef __AVX2__  // elsewhere they are Sleef's
  rounding<f32, f32v>("rounding of float32");
  rounding<f64, f64v>("rounding of float64");
#endif
  reductions();
  return faults < 100 ? faults : 100;
}
