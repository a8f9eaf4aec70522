// Comparisons of and choices between numbers of 64 bits, of which a vector has two halves.  A mask has 32 bits for each lane;
// with AVX-512, comparisons give one bit, and halves need not be widened or narrowed in between.
#if defined(__AVX512DQ__) && !defined(__clang__)
typedef vector_of<long long, LANES / 2>::type longs;
enum { i64_eq = 0, i64_ne = 4, i64_lt = 1, i64_le = 2, i64_gt = 6, i64_ge = 5 };
enum { f64_eq = 0, f64_ne = 4, f64_lt = 17, f64_le = 18, f64_gt = 30, f64_ge = 29 };
#define i64_BITS(a, b, kind) (u8)__builtin_ia32_cmpq512_mask((longs)(a), (longs)(b), kind, (u8)-1)
#define f64_BITS(a, b, kind) (u8)__builtin_ia32_cmppd512_mask(a, b, kind, (u8)-1, 4)
#define COMPARE_HALVES(name, op, T) INLINE mask name(T##v a, T##v b) { \
  return (mask)__builtin_ia32_cvtmask2d512((u16)(T##_BITS(a.low, b.low, T##_##name) | T##_BITS(a.high, b.high, T##_##name) << 8)); }
INLINE i64v sel(mask m, i64v a, i64v b) {
  u16 k = __builtin_ia32_cvtd2mask512(m);
  return {(i64h)__builtin_ia32_blendmq_512_mask((longs)b.low, (longs)a.low, (u8)k), (i64h)__builtin_ia32_blendmq_512_mask((longs)b.high, (longs)a.high, (u8)__builtin_ia32_kshiftrihi(k, 8))};
}
INLINE f64v sel(mask m, f64v a, f64v b) {
  u16 k = __builtin_ia32_cvtd2mask512(m);
  return {__builtin_ia32_blendmpd_512_mask(b.low, a.low, (u8)k), __builtin_ia32_blendmpd_512_mask(b.high, a.high, (u8)__builtin_ia32_kshiftrihi(k, 8))};
}
#else
#define COMPARE_HALVES(name, op, T) INLINE mask name(T##v a, T##v b) { \
  return convert<mask>(i64v{(i64h)(a.low op b.low), (i64h)(a.high op b.high)}); }
template <class V> INLINE V sel_halves(mask m, V a, V b) {
  i64v c = convert<i64v>(m);
  return {c.low ? a.low : b.low, c.high ? a.high : b.high};
}
INLINE i64v sel(mask m, i64v a, i64v b) { return sel_halves(m, a, b); }
INLINE f64v sel(mask m, f64v a, f64v b) { return sel_halves(m, a, b); }
#endif
