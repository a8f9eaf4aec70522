// Reading and writing vectors: all lanes, or the first few at the end of a row.  kernels.h includes it.
#pragma once

template <class V, class T> INLINE V read(const T* p, All) { V v; __builtin_memcpy(&v, p, sizeof(V)); return v; }
template <class V, class T> INLINE V read(const T* p, Some m) { V v = {}; __builtin_memcpy(&v, p, m.n * sizeof(T)); return v; }
template <class T, class V> INLINE void write(T* p, V v, All) { __builtin_memcpy(p, &v, sizeof(V)); }
template <class T, class V> INLINE void write(T* p, V v, Some m) { __builtin_memcpy(p, &v, m.n * sizeof(T)); }
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
#define LANE_MASKS(T, kind, E) \
  SPECIAL T##v read<T##v>(const T* p, Some m) { return (T##v)__builtin_ia32_maskload##kind##256((const E*)p, first(m)); } \
  SPECIAL void write(T* p, T##v v, Some m) { __builtin_ia32_maskstore##kind##256((E*)p, first(m), (E)v); }
LANE_MASKS(f32, ps, f32v) LANE_MASKS(i32, d, i32v)
#endif
