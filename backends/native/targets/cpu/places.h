// Elements that do not lie side by side, and those that may be read only where a condition holds.  A part of
// kernels.h.
template <class F> INLINE void each(All, F body) {
#pragma GCC unroll 16
  for (int i = 0; i < LANES; i++) body(i);
}
template <class F> INLINE void each(Some m, F body) { for (int i = 0; i < m.n; i++) body(i); }
template <class T, class M> INLINE auto gather(const T* p, i64v at, M m) {
  auto v = zero<T>();
  each(m, [&] (int i) INLINE_LAMBDA { put(v, i, load(p + at[i])); });
  return v;
}
#if defined(__AVX512F__) && !defined(__clang__)
INLINE f32v gather_bits(const f32* p, i64v at, u16 bits) {
  typedef vector_of<long long, 8>::type half;
  return join<f32v>((f32h)__builtin_ia32_gatherdiv16sf(f32h{}, p, (half)at.low, (char)bits, 4),
                    (f32h)__builtin_ia32_gatherdiv16sf(f32h{}, p, (half)at.high, (char)(bits >> 8), 4));
}
template <class M> INLINE f32v gather(const f32* p, i64v at, M m) { return gather_bits(p, at, (u16)BITS(m)); }
template <class M> INLINE f32v gather_if(mask c, const f32* p, i64v at, M m) {
  return gather_bits(p, at, __builtin_ia32_ptestmd512(c, c, (u16)BITS(m)));
}
#ifndef __SANITIZE_ADDRESS__
// Elements at positions that do not depend on data, most of them near the first one: two loads and a permutation take a
// fifth of the time.  What is read besides lies in the same page of memory, so it can be read.
template <class M> INLINE f32v gather_near(const f32* p, i32v at, M m) {
  const f32* first = p + at[0];
  i32v apart = at - at[0], far = apart & ~(2 * LANES - 1);
  if (__builtin_ia32_ptestmd512(far, far, (u16)-1) || ((u64)first & 4095) > 4096 - sizeof(f32v) * 2)
    return gather(p, convert<i64v>(at), m);
  return __builtin_shuffle(read<f32v>(first, All()), read<f32v>(first + LANES, All()), apart);
}
#endif
#endif
template <class T, class M> INLINE auto gather_near(const T* p, i32v at, M m) { return gather(p, convert<i64v>(at), m); }
template <class T, class M> INLINE auto strided(const T* p, i64 step, M m) {
  auto v = zero<T>();
  each(m, [&] (int i) INLINE_LAMBDA { put(v, i, load(p + i * step)); });
  return v;
}
// A function of its own: unrolled loops have it many times, and compiling its loops takes far longer than calling it.
template <class T, class M> NOINLINE auto gather_if(mask c, const T* p, i64v at, M m) {
  auto v = zero<T>();
  if (!any_of(keep(m, ~c, mask{}))) return gather(p, at, m);
  for (int i = 0; i < m.n; i++) if (c[i]) put(v, i, load(p + at[i]));
  return v;
}
// One element for all lanes, which may be read only if the condition holds in some lane that counts.
template <class T, class M> INLINE auto read_if(mask c, const T* p, M m) {
  return any_of(keep(m, c, mask{})) ? splat(load(p)) : zero<T>();
}
// Neighbours that may be read only where a condition holds.
template <class T, class M> INLINE auto load_some(mask c, const T* p, M m) {
  auto v = zero<T>();
  if (!any_of(keep(m, ~c, mask{}))) return load(p, m);
  for (int i = 0; i < m.n; i++) if (c[i]) put(v, i, load(p + i));
  return v;
}
#ifdef __AVX512F__
template <class M> INLINE f32v load_some(mask c, const f32* p, M m) {
  return __builtin_ia32_loadups512_mask(p, f32v{}, __builtin_ia32_cmpd512_mask(c, mask{}, 4, (u16)((1u << m.n) - 1)));
}
#elif defined(__AVX2__)
template <class M> INLINE f32v load_some(mask c, const f32* p, M m) {
  return __builtin_ia32_maskloadps256((const f32v*)p, c & (count() < m.n));
}
template <class M> INLINE i64v load_some(mask c, const i64* p, M m) {
  typedef vector_of<long long, 4>::type part;
  auto held = convert<i64v>(c & (count() < m.n));
  return join<i64v>((i64h)__builtin_ia32_maskloadq256((const part*)p, (part)held.low), (i64h)__builtin_ia32_maskloadq256((const part*)(p + 4), (part)held.high));
}
#endif
// Neighbours in a row of `extent` elements that begins anew where it ends.
template <class T> NOINLINE static auto around(const T* p, i64 first, i64 extent, int lanes) {
  if (lanes > extent) {
    auto v = zero<T>();
    for (int i = 0; i < lanes; i++, first = first + 1 == extent ? 0 : first + 1) put(v, i, load(p + first));
    return v;
  }
  int before = (int)(extent - first);
  mask ahead = count() < before;
  Some all{lanes};
  return sel(ahead, load_some(ahead, p + first, all), load_some(~ahead, p - before, all));
}
INLINE int lanes_of(All) { return LANES; }
INLINE int lanes_of(Some m) { return m.n; }
template <class T, class M> INLINE auto wrapped(const T* p, i64 first, i64 extent, M m) {
  return first + lanes_of(m) <= extent ? load(p + first, m) : around(p, first, extent, lanes_of(m));
}
template <class T> INLINE auto load_if(bool c, const T* p) { decltype(load(p)) x = {}; if (c) x = load(p); return x; }
template <class T, class V, class M> INLINE void scatter(T* p, i64v at, V v, M m) {
  for (int i = 0; i < m.n; i++) store(p + at[i], v[i]);
}
template <class M> INLINE void scatter(flag* p, i64v at, mask v, M m) {
  for (int i = 0; i < m.n; i++) store(p + at[i], (bool)v[i]);
}
