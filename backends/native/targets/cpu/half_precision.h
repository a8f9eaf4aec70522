// bfloat16 and float16, which are computed in float32.  kernels.h includes it.
#pragma once

INLINE f32 widen(bf16 x) { u32 b = (u32)x.bits << 16; f32 f; __builtin_memcpy(&f, &b, 4); return f; }
#if defined(__AVX512F__) && !defined(__clang__)
INLINE u32v widen(u16v x) { return (u32v)__builtin_ia32_pmovzxwd512_mask((vector_of<short, 16>::type)x, i32v{}, (u16)-1); }
INLINE u16v narrow(u32v x) { return (u16v)__builtin_ia32_pmovdw512_mask((i32v)x, vector_of<short, 16>::type{}, (u16)-1); }
#elif defined(__AVX2__) && !defined(__clang__)
INLINE u32v widen(u16v x) { return (u32v)__builtin_ia32_pmovzxwd256((vector_of<short, 8>::type)x); }
INLINE u16v narrow(u32v x) { auto h = split<i32h>((i32v)x); return (u16v)__builtin_ia32_packusdw128(h.low, h.high); }  // of numbers of 16 bits
#else
INLINE u32v widen(u16v x) { return convert<u32v>(x); }
INLINE u16v narrow(u32v x) { return convert<u16v>(x); }
#endif
// The nearest bfloat16, in the upper half of the bits; what is below is anything.
INLINE u32v near_bf16(f32v x) {
  u32v b = (u32v)x, rounded = b + 0x7fff + ((b >> 16) & 1);
  return x == x ? rounded : u32v{} + 0x7fc00000;
}
INLINE f32v widen_bf16(u16v x) { return (f32v)(widen(x) << 16); }
INLINE u16v narrow_bf16(f32v x) { return narrow(near_bf16(x) >> 16); }
#ifdef __AVX512F__
INLINE f32v widen_f16(u16v x) { return __builtin_ia32_vcvtph2ps512_mask((vector_of<short, 16>::type)x, f32v{}, (u16)-1, 4); }
INLINE u16v narrow_f16(f32v x) { return (u16v)__builtin_ia32_vcvtps2ph512_mask(x, 0, vector_of<short, 16>::type{}, (u16)-1); }
#elif defined(__F16C__)
INLINE f32v widen_f16(u16v x) { return __builtin_ia32_vcvtph2ps256((vector_of<short, 8>::type)x); }
INLINE u16v narrow_f16(f32v x) { return (u16v)__builtin_ia32_vcvtps2ph256(x, 0); }
#elif defined(__aarch64__)
typedef vector_of<__fp16, LANES>::type f16v;
INLINE f32v widen_f16(u16v x) { return __builtin_convertvector((f16v)x, f32v); }
INLINE u16v narrow_f16(f32v x) { return (u16v)__builtin_convertvector(x, f16v); }
#else  // by hand: _Float16 is not known to each compiler here
INLINE f32v widen_f16(u16v x) {
  u32v b = convert<u32v>(x), magnitude = b & 0x7fff;
  f32v tiny = convert<f32v>((i32v)magnitude) * 0x1p-24f, value = (f32v)((magnitude << 13) + (112u << 23));
  value = magnitude >= 0x7c00 ? (f32v)((magnitude << 13) | 0x7f800000) : value;
  value = magnitude < 0x400 ? tiny : value;
  return (f32v)((u32v)value | (b & 0x8000) << 16);
}
INLINE u16v narrow_f16(f32v x) {
  u32v b = (u32v)x, magnitude = b & 0x7fffffff;
  f32v shifted = (f32v)magnitude + 0.5f;  // below 2^-14 the last bit of this sum is worth as much as that of the result
  u32v tiny = (u32v)shifted - 0x3f000000;
  u32v value = (magnitude - (112u << 23) + 0xfff + ((magnitude >> 13) & 1)) >> 13;
  value = magnitude >= 0x47800000 ? u32v{} + 0x7c00 : value;
  value = magnitude > 0x7f800000 ? u32v{} + 0x7e00 : value;
  value = magnitude < (113u << 23) ? tiny : value;
  return convert<u16v>((i32v)(value | (b & 0x80000000) >> 16));
}
#endif
