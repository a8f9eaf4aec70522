// Reading and writing vectors: all lanes, or the first few at the end of a row.  kernels.h includes it.
#pragma once

// The first n bytes of one or two words, in elements of E bytes, by whole words that overlap.  A memcpy of so many is a
// call, and what reads the vector then waits for what it has stored: short rows of bytes would take ten times as long.
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
#define LITTLE_ENDIAN_WORDS
typedef vector_of<u64, 2>::type words;
template <class T> INLINE T word_at(const char* p) { T x; __builtin_memcpy(&x, p, sizeof x); return x; }
template <class T> INLINE void put_word(char* p, T x) { __builtin_memcpy(p, &x, sizeof x); }
template <int E> INLINE u64 some_bytes(const char* p, int n) {
  if (n >= 4) return word_at<u32>(p) | (u64)word_at<u32>(p + n - 4) << 8 * (n - 4);
  if (n >= 2) return word_at<u16>(p) | (u64)word_at<u16>(p + n - 2) << 8 * (n - 2);
  return E == 1 && n > 0 ? (u8)*p : 0;
}
template <int E> INLINE words some_words(const char* p, int n) {
  if (n <= 8) return words{some_bytes<E>(p, n), 0};
  return words{word_at<u64>(p), word_at<u64>(p + n - 8) >> 8 * (16 - n)};
}
template <int E> INLINE void put_bytes(char* p, u64 x, int n) {
  if (E == 8) { if (n > 0) put_word(p, x); }
  else if (n >= 4) { put_word(p, (u32)x); if (E < 4 || n > 4) put_word(p + n - 4, (u32)(x >> 8 * (n - 4))); }
  else if (E <= 2 && n >= 2) { put_word(p, (u16)x); put_word(p + n - 2, (u16)(x >> 8 * (n - 2))); }
  else if (E == 1 && n > 0) *p = x;
}
template <int E> INLINE void put_words(char* p, words x, int n) {
  if (n >= 8) put_word(p, (u64)x[0]);
  put_bytes<E>(n >= 8 ? p + 8 : p, n >= 8 ? x[1] : x[0], n >= 8 ? n - 8 : n);
}
#endif
template <class V, class T> INLINE V read(const T* p, All) { V v; __builtin_memcpy(&v, p, sizeof(V)); return v; }
template <class V, class T> INLINE V read(const T* p, Some m) {
  V v = {};
#ifdef LITTLE_ENDIAN_WORDS
  if constexpr (sizeof(V) <= 8) {
    u64 word = some_bytes<sizeof(T)>((const char*)p, m.n * (int)sizeof(T)); __builtin_memcpy(&v, &word, sizeof v); return v;
  } else if constexpr (sizeof(V) == 16) {
    words w = some_words<sizeof(T)>((const char*)p, m.n * (int)sizeof(T)); __builtin_memcpy(&v, &w, sizeof v); return v;
  }
#endif
  __builtin_memcpy(&v, p, m.n * sizeof(T));
  return v;
}
template <class T, class V> INLINE void write(T* p, V v, All) { __builtin_memcpy(p, &v, sizeof(V)); }
template <class T, class V> INLINE void write(T* p, V v, Some m) {
#ifdef LITTLE_ENDIAN_WORDS
  if constexpr (sizeof(V) <= 8) {
    u64 word = 0; __builtin_memcpy(&word, &v, sizeof v); put_bytes<sizeof(T)>((char*)p, word, m.n * (int)sizeof(T)); return;
  } else if constexpr (sizeof(V) == 16) {
    words w; __builtin_memcpy(&w, &v, sizeof v); put_words<sizeof(T)>((char*)p, w, m.n * (int)sizeof(T)); return;
  }
#endif
  __builtin_memcpy(p, &v, m.n * sizeof(T));
}
#define HALVES(T) \
  SPECIAL T##v read<T##v>(const T* p, All) { T##v v; __builtin_memcpy(&v.low, p, sizeof(v.low)); __builtin_memcpy(&v.high, p + LANES / 2, sizeof(v.high)); return v; } \
  SPECIAL void write(T* p, T##v v, All) { __builtin_memcpy(p, &v.low, sizeof(v.low)); __builtin_memcpy(p + LANES / 2, &v.high, sizeof(v.high)); }
HALVES(i64) HALVES(f64)
#ifdef __AVX512F__
#define BITS(m) ((1u << m.n) - 1)
SPECIAL f32v read<f32v>(const f32* p, Some m) { return __builtin_ia32_loadups512_mask(p, f32v{}, BITS(m)); }
SPECIAL void write(f32* p, f32v v, Some m) { __builtin_ia32_storeups512_mask(p, v, BITS(m)); }
SPECIAL i32v read<i32v>(const i32* p, Some m) { return __builtin_ia32_loaddqusi512_mask(p, i32v{}, BITS(m)); }
SPECIAL void write(i32* p, i32v v, Some m) { __builtin_ia32_storedqusi512_mask(p, v, BITS(m)); }
#define LANE_MASKS_64(T, kind, E) \
  SPECIAL T##v read<T##v>(const T* p, Some m) { \
    typedef vector_of<E, 8>::type part; \
    return {(T##h)__builtin_ia32_load##kind##512_mask((const E*)p, part{}, (u8)BITS(m)), (T##h)__builtin_ia32_load##kind##512_mask((const E*)p + 8, part{}, (u8)(BITS(m) >> 8))}; } \
  SPECIAL void write(T* p, T##v v, Some m) { \
    typedef vector_of<E, 8>::type part; \
    __builtin_ia32_store##kind##512_mask((E*)p, (part)v.low, (u8)BITS(m)); __builtin_ia32_store##kind##512_mask((E*)p + 8, (part)v.high, (u8)(BITS(m) >> 8)); }
LANE_MASKS_64(f64, upd, f64) LANE_MASKS_64(i64, dqudi, long long)
#if defined(__AVX512BW__) && defined(__AVX512VL__)
#define LANE_MASKS(T, kind, E) \
  SPECIAL T##v read<T##v>(const T* p, Some m) { typedef vector_of<E, 16>::type part; return (T##v)__builtin_ia32_loaddqu##kind##_mask((const E*)p, part{}, BITS(m)); } \
  SPECIAL void write(T* p, T##v v, Some m) { __builtin_ia32_storedqu##kind##_mask((E*)p, (vector_of<E, 16>::type)v, BITS(m)); }
LANE_MASKS(u16, hi256, short) LANE_MASKS(i16, hi256, short) LANE_MASKS(u8, qi128, char) LANE_MASKS(i8, qi128, char)
#endif
#elif defined(__AVX2__) && !defined(__clang__)
// Stores with masks take an AMD EPYC four times as long as two or three stores of parts.
typedef vector_of<long long, 4>::type longs;
template <int E> INLINE void put_register(char* p, longs v, int n) {
  words x = {(u64)v[0], (u64)v[1]};
  if (n >= 16) {
    put_word(p, x);
    x = words{(u64)v[2], (u64)v[3]};
  }
  put_words<E>(n >= 16 ? p + 16 : p, x, n >= 16 ? n - 16 : n);
}
#define LANE_MASKS(T, kind, E) \
  SPECIAL T##v read<T##v>(const T* p, Some m) { return (T##v)__builtin_ia32_maskload##kind##256((const E*)p, first(m)); } \
  SPECIAL void write(T* p, T##v v, Some m) { put_register<4>((char*)p, (longs)v, 4 * m.n); }
LANE_MASKS(f32, ps, f32v) LANE_MASKS(i32, d, i32v)
INLINE longs below(int n) { longs l = {0, 1, 2, 3}; return l < longs{} + n; }
#define LANE_MASKS_64(T, kind, E) \
  SPECIAL T##v read<T##v>(const T* p, Some m) { \
    return {(T##h)__builtin_ia32_maskload##kind##256((const E*)p, below(m.n)), (T##h)__builtin_ia32_maskload##kind##256((const E*)(p + 4), below(m.n - 4))}; } \
  SPECIAL void write(T* p, T##v v, Some m) { \
    if (m.n >= 4) put_word((char*)p, v.low); \
    put_register<8>(m.n >= 4 ? (char*)(p + 4) : (char*)p, (longs)(m.n >= 4 ? v.high : v.low), 8 * (m.n >= 4 ? m.n - 4 : m.n)); }
LANE_MASKS_64(f64, pd, f64h) LANE_MASKS_64(i64, q, longs)
#endif
