// What generated kernels are written in: vectors of LANES elements of every type, with the same functions for scalars.
//
// Vectors are the compiler's own extension, so this needs no header of an instruction set, which is most of what makes
// other generated code slow to compile.  A bool vector is a mask: an int32 vector of 0 and -1.  Mathematics is in
// mathematics.h.

typedef signed char i8;
typedef unsigned char u8;
typedef short i16;
typedef unsigned short u16;
typedef int i32;
typedef unsigned int u32;
typedef long i64;
typedef unsigned long u64;
typedef float f32;
typedef double f64;
struct bf16 { u16 bits; };
struct f16 { u16 bits; };
struct flag { u8 value; };  // a bool in memory

#define INLINE static inline __attribute__((always_inline))
#define INLINE_MEMBER inline __attribute__((always_inline))
#define INLINE_LAMBDA __attribute__((always_inline))
#define NOINLINE __attribute__((noinline))  // where many functions in one would take a compiler long
#define SPECIAL template <> inline __attribute__((always_inline))
#ifdef __AVX512F__
#define LANES 16
#define MATH(name, ulp) Sleef_##name##f16_##ulp
#define MATH64(name, ulp) Sleef_##name##d8_##ulp
#define ROUND(name) Sleef_##name##f16
#define ROUND64(name) Sleef_##name##d8
#elif defined(__AVX2__)
#define LANES 8
#define MATH(name, ulp) Sleef_##name##f8_##ulp
#define MATH64(name, ulp) Sleef_##name##d4_##ulp
#define ROUND(name) Sleef_##name##f8
#define ROUND64(name) Sleef_##name##d4
#else  // NEON, SSE
#define LANES 4
#define MATH(name, ulp) Sleef_##name##f4_##ulp
#define MATH64(name, ulp) Sleef_##name##d2_##ulp
#define ROUND(name) Sleef_##name##f4
#define ROUND64(name) Sleef_##name##d2
#endif

template <class T, int N> struct vector_of { typedef T type __attribute__((vector_size(sizeof(T) * N))); };
#define VECTOR(T) typedef vector_of<T, LANES>::type T##v;
VECTOR(i8) VECTOR(u8) VECTOR(i16) VECTOR(u16) VECTOR(i32) VECTOR(u32) VECTOR(f32)
typedef i32v mask;
typedef vector_of<f64, LANES / 2>::type f64h;  // half as many lanes: one register
typedef vector_of<f32, LANES / 2>::type f32h;
typedef vector_of<i64, LANES / 2>::type i64h;
typedef vector_of<i32, LANES / 2>::type i32h;

// Vectors of two registers: a compiler would keep one that is wider than a register in memory, and compare its lanes one
// by one.  Comparisons of these are only those of integers, with 0 and -1; lt() and the like below give masks.
template <class T, class H> struct halves {
  H low, high;
  INLINE_MEMBER T operator[](int i) const { return i < LANES / 2 ? low[i] : high[i - LANES / 2]; }
#define BETWEEN(op) \
  friend INLINE_MEMBER halves operator op(halves a, halves b) { return {(H)(a.low op b.low), (H)(a.high op b.high)}; } \
  friend INLINE_MEMBER halves operator op(halves a, T b) { return {(H)(a.low op b), (H)(a.high op b)}; } \
  friend INLINE_MEMBER halves operator op(T a, halves b) { return {(H)(a op b.low), (H)(a op b.high)}; }
  BETWEEN(+) BETWEEN(-) BETWEEN(*) BETWEEN(/) BETWEEN(%) BETWEEN(&) BETWEEN(|) BETWEEN(^) BETWEEN(<<) BETWEEN(>>)
  BETWEEN(<) BETWEEN(!=)
  INLINE_MEMBER halves operator-() const { return {-low, -high}; }
  INLINE_MEMBER halves operator~() const { return {~low, ~high}; }
};
typedef halves<i64, i64h> i64v;
typedef halves<f64, f64h> f64v;
template <class V> struct two { V low, high; };
#if defined(__has_builtin) && (LANES == 16 || LANES == 8 || LANES == 4)
#if __has_builtin(__builtin_shufflevector)
#define JOINS_IN_REGISTERS
#endif
#endif
// Through memory, a store that a load waits for takes a processor 5 to 15 cycles.
template <class H, class V> INLINE two<H> split(V v) {
#ifdef JOINS_IN_REGISTERS
  constexpr int n = sizeof(H) / sizeof(v[0]);
  if constexpr (n == 8) return {__builtin_shufflevector(v, v, 0, 1, 2, 3, 4, 5, 6, 7), __builtin_shufflevector(v, v, 8, 9, 10, 11, 12, 13, 14, 15)};
  else if constexpr (n == 4) return {__builtin_shufflevector(v, v, 0, 1, 2, 3), __builtin_shufflevector(v, v, 4, 5, 6, 7)};
  else if constexpr (n == 2) return {__builtin_shufflevector(v, v, 0, 1), __builtin_shufflevector(v, v, 2, 3)};
  else
#endif
  { two<H> h; __builtin_memcpy(&h, &v, sizeof(V)); return h; }
}
template <class H> INLINE i64v split(i64v v) { return v; }
template <class H> INLINE f64v split(f64v v) { return v; }
template <class V, class H> INLINE V join(H low, H high) {
#ifndef JOINS_IN_REGISTERS
  two<H> h = {low, high}; V v; __builtin_memcpy(&v, &h, sizeof(V)); return v;
#elif LANES == 16
  return __builtin_shufflevector(low, high, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
#elif LANES == 8
  return __builtin_shufflevector(low, high, 0, 1, 2, 3, 4, 5, 6, 7);
#else
  return __builtin_shufflevector(low, high, 0, 1, 2, 3);
#endif
}
SPECIAL i64v join<i64v>(i64h low, i64h high) { return {low, high}; }
SPECIAL f64v join<f64v>(f64h low, f64h high) { return {low, high}; }

// --- conversions: cast<To>(value) for scalars, to_T(value) for vectors ------------------------------------------------
template <class To, class V> INLINE To convert(V v) { return __builtin_convertvector(v, To); }
// An integer whose origin is hidden from the compiler: gcc takes (float)(int)x for trunc(x), which keeps -0 and nan.
template <class T> INLINE T settled(T v) { asm("" : "+r"(v)); return v; }
// The same of vectors whose lanes gcc converts one by one, where no instruction does.
#ifdef __AVX512DQ__
template <class T> INLINE T settled_lanes(T v) { return v; }
#else
template <class T> INLINE T settled_lanes(T v) { asm("" : "+m"(v)); return v; }
#endif
#define BY_HALVES(To, From, ToH, FromH) \
  SPECIAL To##v convert<To##v, From##v>(From##v v) { \
    auto h = split<FromH>(v); return join<To##v>(__builtin_convertvector(h.low, ToH), __builtin_convertvector(h.high, ToH)); }
BY_HALVES(f64, i64, f64h, i64h) BY_HALVES(i64, f64, i64h, f64h)
BY_HALVES(f32, i64, f32h, i64h) BY_HALVES(i32, f64, i32h, f64h)
#if defined(__AVX512DQ__) && !defined(__clang__)
SPECIAL i64v convert<i64v, f32v>(f32v v) {
  auto h = split<f32h>(v);
  return {(i64h)__builtin_ia32_cvttps2qq512_mask(h.low, vector_of<long long, 8>::type{}, (u8)-1, 4),
          (i64h)__builtin_ia32_cvttps2qq512_mask(h.high, vector_of<long long, 8>::type{}, (u8)-1, 4)}; }
#else
BY_HALVES(i64, f32, i64h, f32h)
#endif
SPECIAL i64v convert<i64v, i64v>(i64v v) { return v; }
SPECIAL f64v convert<f64v, f64v>(f64v v) { return v; }
// A compiler that sees no single instruction for a conversion takes the lanes one by one; these have two or three.
#if defined(__AVX512F__) && !defined(__clang__)
SPECIAL f64v convert<f64v, f32v>(f32v v) {
  auto h = split<f32h>(v);
  return {__builtin_ia32_cvtps2pd512_mask(h.low, f64h{}, (u8)-1, 4), __builtin_ia32_cvtps2pd512_mask(h.high, f64h{}, (u8)-1, 4)}; }
SPECIAL f32v convert<f32v, f64v>(f64v v) {
  return join<f32v>((f32h)__builtin_ia32_cvtpd2ps512_mask(v.low, f32h{}, (u8)-1, 4), (f32h)__builtin_ia32_cvtpd2ps512_mask(v.high, f32h{}, (u8)-1, 4)); }
#elif defined(__AVX2__) && !defined(__clang__)
SPECIAL f64v convert<f64v, f32v>(f32v v) {
  auto h = split<f32h>(v); return {__builtin_ia32_cvtps2pd256(h.low), __builtin_ia32_cvtps2pd256(h.high)}; }
SPECIAL f32v convert<f32v, f64v>(f64v v) {
  return join<f32v>((f32h)__builtin_ia32_cvtpd2ps256(v.low), (f32h)__builtin_ia32_cvtpd2ps256(v.high)); }
#else
BY_HALVES(f64, f32, f64h, f32h) BY_HALVES(f32, f64, f32h, f64h)
#endif
#define THROUGH(To, From, Middle) SPECIAL To##v convert<To##v, From##v>(From##v v) { return convert<To##v>(convert<Middle##v>(v)); }
#if defined(__AVX512F__) && !defined(__clang__)
typedef vector_of<char, 16>::type chars;
typedef vector_of<long long, 8>::type longs;
#define AT_ONCE(To, From, value) SPECIAL To##v convert<To##v, From##v>(From##v v) { return (To##v)value; }
AT_ONCE(i32, i8, __builtin_ia32_pmovsxbd512_mask((chars)v, i32v{}, (u16)-1)) AT_ONCE(i8, i32, __builtin_ia32_pmovdb512_mask(v, chars{}, (u16)-1))
AT_ONCE(i32, u8, __builtin_ia32_pmovzxbd512_mask((chars)v, i32v{}, (u16)-1)) AT_ONCE(u8, i32, __builtin_ia32_pmovdb512_mask(v, chars{}, (u16)-1))
AT_ONCE(i32, i16, __builtin_ia32_pmovsxwd512_mask(v, i32v{}, (u16)-1)) AT_ONCE(i16, i32, __builtin_ia32_pmovdw512_mask(v, i16v{}, (u16)-1))
SPECIAL i64v convert<i64v, i32v>(i32v v) {
  auto h = split<i32h>(v);
  return {(i64h)__builtin_ia32_pmovsxdq512_mask(h.low, longs{}, (u8)-1), (i64h)__builtin_ia32_pmovsxdq512_mask(h.high, longs{}, (u8)-1)}; }
SPECIAL i32v convert<i32v, i64v>(i64v v) {
  return join<i32v>((i32h)__builtin_ia32_pmovqd512_mask((longs)v.low, i32h{}, (u8)-1), (i32h)__builtin_ia32_pmovqd512_mask((longs)v.high, i32h{}, (u8)-1)); }
SPECIAL f64v convert<f64v, i32v>(i32v v) {
  auto h = split<i32h>(v);
  return {__builtin_ia32_cvtdq2pd512_mask(h.low, f64h{}, (u8)-1), __builtin_ia32_cvtdq2pd512_mask(h.high, f64h{}, (u8)-1)}; }
#elif defined(__AVX2__) && !defined(__clang__)
BY_HALVES(f64, i32, f64h, i32h)
SPECIAL i64v convert<i64v, i32v>(i32v v) {
  auto h = split<i32h>(v); return join<i64v>((i64h)__builtin_ia32_pmovsxdq256(h.low), (i64h)__builtin_ia32_pmovsxdq256(h.high)); }
SPECIAL i32v convert<i32v, i64v>(i64v v) { return __builtin_shuffle((i32v)v.low, (i32v)v.high, i32v{0, 2, 4, 6, 8, 10, 12, 14}); }
// Eight bytes are a number to the compiler.
INLINE vector_of<char, 16>::type sixteen(const void* v) { vector_of<i64, 2>::type x = {}; __builtin_memcpy(&x, v, 8); return (vector_of<char, 16>::type)x; }
SPECIAL i32v convert<i32v, i8v>(i8v v) { return __builtin_ia32_pmovsxbd256(sixteen(&v)); }
SPECIAL i32v convert<i32v, u8v>(u8v v) { return __builtin_ia32_pmovzxbd256(sixteen(&v)); }
THROUGH(i8, i32, i16) THROUGH(u8, i32, i16)
#else
BY_HALVES(f64, i32, f64h, i32h) BY_HALVES(i64, i32, i64h, i32h) BY_HALVES(i32, i64, i32h, i64h)
THROUGH(i32, i8, i16) THROUGH(i32, u8, i16) THROUGH(i8, i32, i16) THROUGH(u8, i32, i16)
#endif
THROUGH(f32, i8, i32) THROUGH(f32, u8, i32) THROUGH(f32, i16, i32)
THROUGH(i64, i16, i32) THROUGH(i64, i8, i32) THROUGH(i64, u8, i32) THROUGH(i16, i64, i32) THROUGH(i8, i64, i32) THROUGH(u8, i64, i32)
THROUGH(f64, i16, i32) THROUGH(f64, i8, i32) THROUGH(f64, u8, i32) THROUGH(i16, f64, i32) THROUGH(i8, f64, i32) THROUGH(u8, f64, i64)
#ifdef __x86_64__  // what has more than 32 bits ends in a byte of zeros, and conversion out of range gives one
INLINE u8v bytes(f32v v) { return convert<u8v>(convert<i32v>(v)); }
INLINE u8 bytes(f32 v) { return (u8)(i32)v; }  // AVX2 has no conversion to 64 bits: loops would take elements one by one
#else
INLINE u8v bytes(f32v v) { return convert<u8v>(convert<i64v>(v)); }
INLINE u8 bytes(f32 v) { return (u8)(i64)v; }
#endif
INLINE mask as_mask(mask m) { return m; }
#define AS_MASK(W) INLINE mask as_mask(W##v m) { return convert<mask>(m); }
AS_MASK(i8) AS_MASK(i16) AS_MASK(i64)

// The bits of floating-point numbers as integers, and back.
#define BITS_OF(F, I) INLINE I bits(F x) { I b; __builtin_memcpy(&b, &x, sizeof b); return b; } \
  INLINE F number(I b) { F x; __builtin_memcpy(&x, &b, sizeof x); return x; }
BITS_OF(f32, i32) BITS_OF(f64, i64) BITS_OF(f32v, i32v) BITS_OF(f64v, i64v)

// --- splat, indices of lanes ------------------------------------------------------------------------------------------
#define SPLAT(T) INLINE T##v splat(T x) { T##v v = {}; return v + x; }
SPLAT(i8) SPLAT(u8) SPLAT(i16) SPLAT(i32) SPLAT(i64)
INLINE f32v splat(f32 x) { return x - f32v{}; }  // and not 0 + x, which loses the sign of zero
INLINE f64v splat(f64 x) { return x - f64v{}; }
INLINE mask splat(bool x) { return mask{} - (x ? 1 : 0); }
template <class V = i32v> INLINE V count() { V v; for (int i = 0; i < LANES; i++) v[i] = i; return v; }
INLINE i64v lanes_from(i64 base, i64 step) {
  i64h v; for (int i = 0; i < LANES / 2; i++) v[i] = i;
  return i64v{v, v + LANES / 2} * step + base;
}
SPECIAL i64v count<i64v>() { return lanes_from(0, 1); }
INLINE i32v short_lanes(i32 base, i32 step) { return count() * step + base; }
// A number as 32 bits, where all that is less than 0, or more than any index is, may be the same.
INLINE i32 bounded(i64 x) { return x < 0 ? -1 : x > 0x7fffffff ? 0x7fffffff : (i32)x; }

// --- how many lanes of a vector count: all, or the first few at the end of a row --------------------------------------
struct All { static constexpr int n = LANES; };
struct Some { int n; };
template <class V> INLINE V keep(All, V v, V) { return v; }
INLINE mask first(Some m) { return count() < m.n; }
INLINE f32v sel(mask m, f32v a, f32v b) { return m ? a : b; }
INLINE i32v sel(mask m, i32v a, i32v b) { return m ? a : b; }
#include "masks.h"
INLINE i16v sel(mask m, i16v a, i16v b) { return convert<i16v>(m) ? a : b; }
INLINE i8v sel(mask m, i8v a, i8v b) { return convert<i8v>(m) ? a : b; }
INLINE u8v sel(mask m, u8v a, u8v b) { return convert<i8v>(m) ? a : b; }
template <class T> INLINE T sel(bool m, T a, T b) { return m ? a : b; }
template <class V> INLINE V keep(Some m, V v, V other) { return sel(first(m), v, other); }

#if defined(__AVX512F__) && !defined(__clang__)
INLINE bool any_of(mask m) { return __builtin_ia32_ptestmd512(m, m, (u16)-1) != 0; }
#elif defined(__AVX2__)
INLINE bool any_of(mask m) { return __builtin_ia32_movmskps256((f32v)m) != 0; }
#else
INLINE bool any_of(mask m) { i32 x = 0; for (int i = 0; i < LANES; i++) x |= m[i]; return x != 0; }
#endif
INLINE bool all_of(mask m) { return !any_of(~m); }

#include "memory.h"
#include "half_precision.h"

template <class M> INLINE f32v load(const f32* p, M m) { return read<f32v>(p, m); }
template <class M> INLINE f64v load(const f64* p, M m) { return read<f64v>(p, m); }
template <class M> INLINE i64v load(const i64* p, M m) { return read<i64v>(p, m); }
template <class M> INLINE i32v load(const i32* p, M m) { return read<i32v>(p, m); }
template <class M> INLINE i16v load(const i16* p, M m) { return read<i16v>(p, m); }
template <class M> INLINE i8v load(const i8* p, M m) { return read<i8v>(p, m); }
template <class M> INLINE u8v load(const u8* p, M m) { return read<u8v>(p, m); }
template <class M> INLINE mask load(const flag* p, M m) { return convert<i32v>(read<u8v>((const u8*)p, m)) != 0; }
template <class M> INLINE f32v load(const bf16* p, M m) { return widen_bf16(read<u16v>((const u16*)p, m)); }
template <class M> INLINE f32v load(const f16* p, M m) { return widen_f16(read<u16v>((const u16*)p, m)); }
#define PLAIN(T) INLINE T load(const T* p) { return *p; } INLINE void store(T* p, T x) { *p = x; } \
  template <class M> INLINE void store(T* p, T##v v, M m) { write(p, v, m); }
PLAIN(f32) PLAIN(f64) PLAIN(i64) PLAIN(i32) PLAIN(i16) PLAIN(i8) PLAIN(u8)
template <class M> INLINE void store(flag* p, mask v, M m) { write((u8*)p, convert<u8v>(v & 1), m); }
template <class M> INLINE void store(bf16* p, f32v v, M m) { write((u16*)p, narrow_bf16(v), m); }
template <class M> INLINE void store(f16* p, f32v v, M m) { write((u16*)p, narrow_f16(v), m); }
INLINE bool load(const flag* p) { return p->value != 0; }
INLINE f32 load(const bf16* p) { return widen(*p); }
INLINE f32 load(const f16* p) { u16v v = {}; v[0] = p->bits; return widen_f16(v)[0]; }
INLINE void store(flag* p, bool x) { p->value = x; }
INLINE void store(bf16* p, f32 x) {
  u32 b; __builtin_memcpy(&b, &x, 4);
  p->bits = x == x ? (b + 0x7fff + ((b >> 16) & 1)) >> 16 : 0x7fc0;
}
INLINE void store_exact(bf16* p, f32 x) { u32 b; __builtin_memcpy(&b, &x, 4); p->bits = b >> 16; }
INLINE void store(f16* p, f32 x) { p->bits = narrow_f16(splat(x))[0]; }
INLINE f32v round_bf16(f32v x) { return (f32v)(near_bf16(x) & 0xffff0000); }
INLINE f32 round_bf16(f32 x) { bf16 y; store(&y, x); return widen(y); }  // scalars only: compilers make vectors of loops
INLINE f32 round_f16(f32 x) { return widen_f16(narrow_f16(splat(x)))[0]; }
INLINE f32v round_f16(f32v x) { return widen_f16(narrow_f16(x)); }

template <class T> INLINE auto zero() { return decltype(load((const T*)0, All())){}; }
INLINE void put(mask& v, int i, bool x) { v[i] = x ? -1 : 0; }
template <class V, class T> INLINE void put(V& v, int i, T x) { v[i] = x; }
template <class T, class H, class X> INLINE void put(halves<T, H>& v, int i, X x) {
  if (i < LANES / 2) v.low[i] = x; else v.high[i - LANES / 2] = x;
}
#include "places.h"

// --- comparisons and choices ------------------------------------------------------------------------------------------
#define COMPARE(name, op) \
  template <class V> INLINE mask name(V a, V b) { return as_mask(a op b); } \
  COMPARE_HALVES(name, op, i64) COMPARE_HALVES(name, op, f64) \
  INLINE bool name(f32 a, f32 b) { return a op b; } INLINE bool name(f64 a, f64 b) { return a op b; } \
  INLINE bool name(i64 a, i64 b) { return a op b; } INLINE bool name(i32 a, i32 b) { return a op b; } \
  INLINE bool name(i16 a, i16 b) { return a op b; } INLINE bool name(i8 a, i8 b) { return a op b; } \
  INLINE bool name(u8 a, u8 b) { return a op b; } INLINE bool name(bool a, bool b) { return a op b; }
COMPARE(lt, <) COMPARE(le, <=) COMPARE(gt, >) COMPARE(ge, >=) COMPARE(eq, ==) COMPARE(ne, !=)
// A nan on either side comes out, as torch has it.
template <class T> INLINE T maximum(T a, T b) { return sel(ne(a, a), a, sel(gt(a, b), a, b)); }
template <class T> INLINE T minimum(T a, T b) { return sel(ne(a, a), a, sel(lt(a, b), a, b)); }
// The instructions return b unless a is more, or less, and so for a nan.
#if (defined(__AVX512F__) || defined(__AVX2__)) && !defined(__clang__)
#ifdef __AVX512F__
#define EXTREME(name, i) \
  INLINE f32v name##_or_second(f32v a, f32v b) { return __builtin_ia32_##i##ps512_mask(a, b, b, (u16)-1, 4); } \
  INLINE f64h name##_or_second(f64h a, f64h b) { return __builtin_ia32_##i##pd512_mask(a, b, b, (u8)-1, 4); }
INLINE f32v unless_nan(f32v a, f32v b) { return __builtin_ia32_blendmps_512_mask(b, a, __builtin_ia32_cmpps512_mask(a, a, 3, (u16)-1, 4)); }
INLINE f64h unless_nan(f64h a, f64h b) { return __builtin_ia32_blendmpd_512_mask(b, a, __builtin_ia32_cmppd512_mask(a, a, 3, (u8)-1, 4)); }
#else
#define EXTREME(name, i) \
  INLINE f32v name##_or_second(f32v a, f32v b) { return __builtin_ia32_##i##ps256(a, b); } \
  INLINE f64h name##_or_second(f64h a, f64h b) { return __builtin_ia32_##i##pd256(a, b); }
INLINE f32v unless_nan(f32v a, f32v b) { return a == a ? b : a; }
INLINE f64h unless_nan(f64h a, f64h b) { return a == a ? b : a; }
#endif
#define EXTREMES(name, i) EXTREME(name, i) \
  INLINE f32v name(f32v a, f32v b) { return unless_nan(a, name##_or_second(a, b)); } \
  INLINE f64v name(f64v a, f64v b) { return {unless_nan(a.low, name##_or_second(a.low, b.low)), unless_nan(a.high, name##_or_second(a.high, b.high))}; }
EXTREMES(maximum, max) EXTREMES(minimum, min)
#endif

#define WHOLE(T) \
  INLINE T##v maximum(T##v a, T##v b) { return sel(gt(a, b), a, b); } INLINE T##v minimum(T##v a, T##v b) { return sel(lt(a, b), a, b); }
#define WHOLE_NATIVE(T) \
  INLINE T##v maximum(T##v a, T##v b) { return a > b ? a : b; } INLINE T##v minimum(T##v a, T##v b) { return a < b ? a : b; }
WHOLE(i64) WHOLE_NATIVE(i32) WHOLE_NATIVE(i16) WHOLE_NATIVE(i8) WHOLE_NATIVE(u8)

// a * b + c, rounded once.  Products and sums of a program are rounded each, as in eager, which is what makes equal terms
// cancel; so this is for the functions below, where it pays.
#ifdef __AVX512F__
INLINE f32v fma(f32v a, f32v b, f32v c) { return __builtin_ia32_vfmaddps512_mask(a, b, c, (u16)-1, 4); }
#elif defined(__FMA__)
INLINE f32v fma(f32v a, f32v b, f32v c) { return __builtin_ia32_vfmaddps256(a, b, c); }
#elif defined(__aarch64__)  // the loop becomes one instruction
INLINE f32v fma(f32v a, f32v b, f32v c) { for (int i = 0; i < LANES; i++) c[i] = __builtin_fmaf(a[i], b[i], c[i]); return c; }
#else
INLINE f32v fma(f32v a, f32v b, f32v c) { return a * b + c; }
#endif
INLINE f32v fma(f32v a, f32v b, f32 c) { return fma(a, b, splat(c)); }
INLINE f32v fma(f32v a, f32 b, f32v c) { return fma(a, splat(b), c); }
INLINE f32v fma(f32v a, f32 b, f32 c) { return fma(a, splat(b), splat(c)); }

// --- mathematics ------------------------------------------------------------------------------------------------------
#include "mathematics.h"

// --- reductions -------------------------------------------------------------------------------------------------------
// Lanes combined in pairs, whose results are combined in turn.
template <int step = LANES / 2, class V, class F> INLINE auto fold_lanes(V v, F f) {
  if constexpr (step == 0) return v[0];
  else return fold_lanes<step / 2>(f(v, __builtin_shuffle(v, (count<decltype(v < v)>() + step) & (LANES - 1))), f);
}
template <int step = LANES / 2, class T, class H, class F> INLINE T fold_lanes(halves<T, H> v, F f) {
  if constexpr (step == 0) return v.low[0];
  else if constexpr (step == LANES / 2) return fold_lanes<step / 2>(f(v, halves<T, H>{v.high, v.low}), f);
  else {
    decltype(v.low < v.low) at; for (int i = 0; i < LANES / 2; i++) at[i] = (i + step) & (LANES / 2 - 1);
    return fold_lanes<step / 2>(f(v, halves<T, H>{__builtin_shuffle(v.low, at), v.low}), f);
  }
}
template <class V> INLINE auto total(V v) { return fold_lanes(v, [] (auto a, auto b) INLINE_LAMBDA { return a + b; }); }
template <class V> INLINE f64 sum_in_pairs(V v) {
  constexpr int n = sizeof(V) / sizeof(f64);
  if constexpr (n == 2) return v[0] + v[1];
  else {
    auto h = split<typename vector_of<f64, n / 2>::type>(v);
    return sum_in_pairs(h.low + h.high);
  }
}
// Lanes of float32 are added in float64: they are few, and may cancel.
INLINE f64 total(f32v v) {
  auto h = split<f64h>(convert<f64v>(v));
  return sum_in_pairs(h.low + h.high);
}
template <class V> INLINE auto times(V v) { return fold_lanes(v, [] (auto a, auto b) INLINE_LAMBDA { return a * b; }); }
template <class T, class V> INLINE T greatest(V v) { return fold_lanes(v, [] (auto a, auto b) INLINE_LAMBDA { return maximum(a, b); }); }
template <class T, class V> INLINE T smallest(V v) { return fold_lanes(v, [] (auto a, auto b) INLINE_LAMBDA { return minimum(a, b); }); }
// The first of the best: a nan is better than anything.
template <class T> INLINE bool beats(T a, i64 i, T b, i64 j, bool most) {
  bool nan_a = ne(a, a), nan_b = ne(b, b);
  if (nan_a || nan_b) return nan_a && (!nan_b || i < j);
  return (most ? gt(a, b) : lt(a, b)) || (eq(a, b) && i < j);
}
// The best so far in each lane, and where it was; then the best of all lanes, and of all threads.
template <class V> struct Best { V value; i64v at; };
template <class T> struct One { T value; i64 at; };
template <bool most, class V, class M> INLINE void better(Best<V>& best, V x, i64v at, M m) {
  mask wins = (most ? gt(x, best.value) : lt(x, best.value)) | (ne(x, x) & eq(best.value, best.value));
  wins = keep(m, wins, mask{});
  best.value = sel(wins, x, best.value);
  best.at = sel(wins, at, best.at);
}
template <bool most, class V> INLINE auto best_of(Best<V> best) {
  auto first = best.value[0];  // of the type of an element, also where sums of two are an int
  typedef decltype(first) T;
  T top = most ? greatest<T>(best.value) : smallest<T>(best.value);
  mask alike = eq(top, top) ? eq(best.value, splat(top)) : ne(best.value, best.value);
  return One<T>{top, smallest<i64>(sel(alike, best.at, splat((i64)0x7fffffffffffffff)))};
}
#define MOST_THREADS 256
template <bool most, class T> INLINE i64 best_part(One<T>* parts, bool* used) {
  int best = -1;
  for (int i = 0; i < MOST_THREADS; i++)
    if (used[i] && (best < 0 || beats(parts[i].value, parts[i].at, parts[best].value, parts[best].at, most))) best = i;
  return best < 0 ? 0 : parts[best].at;
}

// --- loops ------------------------------------------------------------------------------------------------------------
extern "C" int omp_get_max_threads(void);
extern "C" int omp_get_num_threads(void);
extern "C" int omp_get_thread_num(void);
extern "C" int omp_in_parallel(void);
extern "C" void GOMP_parallel(void (*)(void*), void*, unsigned, unsigned);
INLINE int piece() { return omp_in_parallel() ? omp_get_thread_num() : 0; }
// body(from, to) for pieces of [0, n), on all threads if there is work for more than one.
template <class F> static inline void parallel(i64 n, i64 grain, F body) {
  if (n <= grain || omp_in_parallel() || omp_get_max_threads() == 1) { if (n > 0) body((i64)0, n); return; }
  auto work = [&] {
    i64 threads = omp_get_num_threads(), most = (n + grain - 1) / grain;
    if (threads > most) threads = most;
    if (threads > MOST_THREADS) threads = MOST_THREADS;
    i64 piece = (n + threads - 1) / threads, from = omp_get_thread_num() * piece, to = from + piece < n ? from + piece : n;
    if (from < to) body(from, to);
  };
#ifdef __clang__  // its own pragma wants another library of threads than torch's
  GOMP_parallel([] (void* given) { (*(decltype(work)*)given)(); }, &work, 0, 0);
#else
#pragma omp parallel
  work();
#endif
}
// body(at, lanes) for [from, to) in vectors.
template <class F> INLINE void sweep(i64 from, i64 to, F body) {
  i64 at = from;
  for (; at + LANES <= to; at += LANES) body(at, All());
  if (at < to) body(at, Some{(int)(to - at)});
}
// body(at, rows) for [from, to), some rows at a time.
template <int N> struct Rows { static constexpr int n = N; };
template <class F> INLINE void some_rows(i64 from, i64 to, F body) {
  i64 at = from;
  for (; at + 4 <= to; at += 4) body(at, Rows<4>());
  for (; at < to; at++) body(at, Rows<1>());
}
// Lanes moved up by so many, with ``first`` in those that are left; each half of a vector in two by itself.
template <int by, class V, class T> INLINE V moved_up(V v, T first) {
  constexpr int n = sizeof(V) / sizeof(T);
  typedef decltype(v < v) I;
  I at; for (int i = 0; i < n; i++) at[i] = i < by ? i : n + i - by;
  return __builtin_shuffle(first - V{}, v, at);
}
template <int by, class H, class T> INLINE halves<T, H> moved_up(halves<T, H> v, T first) {
  return {moved_up<by>(v.low, first), moved_up<by>(v.high, first)};
}
// Each lane combined with those before it, as far as these lie in the same n lanes.
template <int n, int by = 1, class V, class T, class F> INLINE V prefixes(V v, T first, F f) {
  if constexpr (by >= n) return v;
  else return prefixes<n, 2 * by>(f(moved_up<by>(v, first), v), first, f);
}
// Each lane combined with all before it and with ``carry``, which becomes the last; ``first`` changes nothing.
template <class V, class T, class F> INLINE V running(V v, T& carry, T first, F f) {
  v = prefixes<LANES>(v, first, f);
  T before = carry;
  carry = f(carry, (T)v[LANES - 1]);  // a vector waits for no more than this of the one before
  return f(splat(before), v);
}
template <class H, class T, class F> INLINE halves<T, H> running(halves<T, H> v, T& carry, T first, F f) {
  v = prefixes<LANES / 2>(v, first, f);
  v = f(halves<T, H>{first - H{}, v.low[LANES / 2 - 1] - H{}}, v);
  T before = carry;
  carry = f(carry, (T)v.high[LANES / 2 - 1]);
  return f(splat(before), v);
}
// As sweep, with the number of one of FOLDS accumulators, so that sums need not wait for each other.
#define FOLDS 4
#define ALIKE(x) {x, x, x, x}
template <class F> INLINE void fold_sweep(i64 from, i64 to, F body) {
  i64 at = from;
  for (; at + FOLDS * LANES <= to; at += FOLDS * LANES) {
#pragma GCC unroll 4
    for (int u = 0; u < FOLDS; u++) body(at + u * LANES, All(), u);
  }
  for (; at + LANES <= to; at += LANES) body(at, All(), 0);
  if (at < to) body(at, Some{(int)(to - at)}, 0);
}

// --- verified indices: 0 is read instead of a bad one, which is reported: what is wrong, the index, the size ------------
INLINE i64 check(i64 at, i64 size, bool wrap, i64 fault, i64* bad, All) {
  i64 found = wrap && at < 0 ? at + size : at;
  if ((u64)found < (u64)size) return found;
  i64 none = 0;
  if (__atomic_compare_exchange_n(bad, &none, fault, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) { bad[1] = at; bad[2] = size; }
  return 0;
}
template <class M> NOINLINE static i64v check_each(i64v at, i64 size, bool wrap, i64 fault, i64* bad, M m) {
  for (int i = 0; i < LANES; i++) put(at, i, i < m.n ? check(at[i], size, wrap, fault, bad, All()) : 0);
  return at;
}
template <class M> INLINE i64v check(i64v at, i64 size, bool wrap, i64 fault, i64* bad, M m) {
  i64v found = keep(m, at, i64v{});
  if (wrap) found = found + ((found < 0l) & size);
  i64v wrong = (found < 0l) | (size - 1 < found);
  i64h both = wrong.low | wrong.high;
  i64 any = 0; for (int i = 0; i < LANES / 2; i++) any |= both[i];
  return __builtin_expect(any != 0, false) ? check_each(at, size, wrap, fault, bad, m) : found;
}

// --- matrix products, by the library that torch's own are made of -------------------------------------------------------
extern "C" void sgemm_(const char*, const char*, const int*, const int*, const int*, const f32*, const f32*, const int*, const f32*, const int*, const f32*, f32*, const int*);
extern "C" void dgemm_(const char*, const char*, const int*, const int*, const int*, const f64*, const f64*, const int*, const f64*, const int*, const f64*, f64*, const int*);
INLINE void gemm(const char* a, const char* b, const int* m, const int* n, const int* k, const f32* x, const int* lx, const f32* y, const int* ly, f32* z, const int* lz) {
  const f32 one = 1, none = 0;
  sgemm_(a, b, m, n, k, &one, x, lx, y, ly, &none, z, lz);
}
INLINE void gemm(const char* a, const char* b, const int* m, const int* n, const int* k, const f64* x, const int* lx, const f64* y, const int* ly, f64* z, const int* lz) {
  const f64 one = 1, none = 0;
  dgemm_(a, b, m, n, k, &one, x, lx, y, ly, &none, z, lz);
}
#include "small_products.h"
// out = x @ y in row-major order: the library's column-major order computes the transposed product of swapped operands.
template <class T>
static void product(T* out, const T* x, i64 lx, bool tx, const T* y, i64 ly, bool ty, i64 m, i64 n, i64 k, i64 batch, i64 sx, i64 sy) {
  if (m > 0x7fffffff || n > 0x7fffffff || k > 0x7fffffff || lx > 0x7fffffff || ly > 0x7fffffff) {
    // More than the library's interface can say, of symbolic sizes: plain loops, which are right.
    for (i64 b = 0; b < batch; b++) for (i64 i = 0; i < m; i++) for (i64 j = 0; j < n; j++) {
      f64 sum = 0;
      for (i64 l = 0; l < k; l++) sum += (f64)x[b * sx + (tx ? l * lx + i : i * lx + l)] * (f64)y[b * sy + (ty ? j * ly + l : l * ly + j)];
      out[(b * m + i) * n + j] = (T)sum;
    }
    return;
  }
  i64 least_x = tx ? m : k, least_y = ty ? k : n;
  int M = m, N = n, K = k, LX = lx > least_x ? lx : least_x, LY = ly > least_y ? ly : least_y;
  auto some = [&](i64 from, i64 to) {
    if (batch > 1 && small_products(out, x, lx, tx, y, ly, ty, m, n, k, from, to, sx, sy)) return;
    if (batch > 1 && n == 1 && times_vectors(out, x, tx ? 1 : lx, tx ? lx : 1, sx, y, ty ? 1 : ly, sy, m, k, from, to)) return;
    if (batch > 1 && m == 1 && times_vectors(out, y, ty ? ly : 1, ty ? 1 : ly, sy, x, tx ? lx : 1, sx, n, k, from, to)) return;
    for (i64 b = from; b < to; b++) gemm(ty ? "T" : "N", tx ? "T" : "N", &N, &M, &K, y + b * sy, &LY, x + b * sx, &LX, out + b * m * n, &N);
  };
  if (batch > 1) parallel(batch, 1 + 200000 / (1 + m * n * k), some); else some(0, 1);
}
