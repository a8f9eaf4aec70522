// What code that runs without torch needs besides its kernels: memory, errors, and what torch's library does elsewhere.
// The functions of the library have the names that kernels.h and mathematics.h declare; none of them leaves the object.
#include "kernels.h"
#include "tiles.h"
#include "computed.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define OUT_OF_MEMORY "there is not enough memory"

// --- errors: a function returns what fail() returns, and the text stays with the thread -------------------------------
static thread_local char told[1024];
static int fail(const char* text) { snprintf(told, sizeof told, "%s", text); return -1; }
// The fault that a kernel has reported; see faults.py.
static int fail_at(const i64* found, const char* const* faults, int count) {
  i64 dim = (found[0] - 1) / count;
  const char* text = faults[(found[0] - 1) % count];
  char* to = told;
  char* end = told + sizeof told - 32;
  while (*text && to < end) {
    if (*text != '{') { *to++ = *text++; continue; }
    i64 number = text[1] == 'i' ? found[1] : text[1] == 'd' ? dim : found[2];  // {index}, {dim}, {size}
    to += snprintf(to, 24, "%ld", number);
    while (*text && *text++ != '}') {}
  }
  *to = 0;
  return -1;
}

// --- memory ------------------------------------------------------------------------------------------------------------
static char* take_memory(i64 size) { return (char*)aligned_alloc(64, size < 1 ? 64 : (size + 63) / 64 * 64); }
// Whether a tensor without gaps has got memory.
static bool give(torchmux_tensor& out, int dtype, int rank, const i64* sizes, i64 item) {
  i64 count = 1;
  for (int d = 0; d < rank; d++) out.sizes[d] = sizes[d], count *= sizes[d];
  out.rank = rank, out.dtype = dtype, out.data = take_memory(count * item);
  return out.data != nullptr;
}
static int fail_and_drop(torchmux_tensor* out, int count) {
  for (int i = 0; i < count; i++) free(out[i].data), out[i].data = nullptr;
  return fail(OUT_OF_MEMORY);
}
// What a call has allocated and not handed out goes when it ends.
struct Memory {
  struct Block { Block* next; char* at; };
  Block* first = nullptr;
  char* take(i64 size) {
    Block* block = (Block*)malloc(sizeof(Block));
    char* at = block ? take_memory(size) : nullptr;
    if (!at) { free(block); return nullptr; }
    *block = {first, at}, first = block;
    return at;
  }
  bool drop(char* at) {  // without freeing it
    for (Block** block = &first; *block; block = &(*block)->next)
      if ((*block)->at == at) { Block* found = *block; *block = found->next; free(found); return true; }
    return false;
  }
  void release(char* at) { if (drop(at)) free(at); }
  void hand(torchmux_tensor& out, int dtype, int rank, const i64* sizes, char* at) {
    for (int d = 0; d < rank; d++) out.sizes[d] = sizes[d];
    out.rank = rank, out.dtype = dtype, out.data = at;
    drop(at);
  }
  ~Memory() { while (first) { Block* block = first; first = block->next; free(block->at); free(block); } }
};
// The stride of a tensor without gaps.
static inline i64 stride_of(const torchmux_tensor& x, int dim) {
  i64 stride = 1;
  for (int d = x.rank - 1; d > dim; d--) stride *= x.sizes[d] > 1 ? x.sizes[d] : 1;
  return stride;
}
struct Numbers { i64 at[8]; };  // of as many dimensions as a torchmux_tensor may have
static void copy_strided(char* to, const i64* to_strides, const char* from, const i64* strides, const i64* sizes, int rank, i64 item) {
  if (!rank) { memcpy(to, from, item); return; }
  bool whole = to_strides[0] == strides[0] && to_strides[rank - 1] == 1 && strides[rank - 1] == 1;
  if (rank == 1 && whole) { memcpy(to, from, sizes[0] * item); return; }
  for (i64 i = 0; i < sizes[0]; i++)
    copy_strided(to + i * to_strides[0] * item, to_strides + 1, from + i * strides[0] * item, strides + 1, sizes + 1, rank - 1, item);
}

// --- matrix products ----------------------------------------------------------------------------------------------------
// out = x @ y in row-major order for few rows, or for float64: element (i, p) of x is at x[i * rx + p * cx], and so of y.
template <class T> static void few_rows(T* out, const T* x, i64 rx, i64 cx, const T* y, i64 ry, i64 cy, i64 m, i64 n, i64 k) {
  parallel(n, 1 + 200000 / (1 + m * k), [&] (i64 lo, i64 hi) {
    for (i64 i = 0; i < m; i++) {
      T* to = out + i * n;
      if (cy == 1) {
        for (i64 j = lo; j < hi; j++) to[j] = 0;
        for (i64 p = 0; p < k; p++) {
          const T factor = x[i * rx + p * cx];
          const T* row = y + p * ry;
          for (i64 j = lo; j < hi; j++) to[j] = __builtin_fma(row[j], factor, to[j]);
        }
      } else for (i64 j = lo; j < hi; j++) {
        const T* column = y + j * cy;
        T sum[LANES] = {};
        i64 p = 0;
        for (; p + LANES <= k; p += LANES)
          for (int l = 0; l < LANES; l++) sum[l] += x[i * rx + (p + l) * cx] * column[(p + l) * ry];
        for (; p < k; p++) sum[0] += x[i * rx + p * cx] * column[p * ry];
        T all = 0;
        for (int l = 0; l < LANES; l++) all += sum[l];
        to[j] = all;
      }
    }
  });
}
// In column-major order this is op(a) @ op(b), m by n; in row-major order it is the product of op(b) and op(a), n by m.
#define HIDDEN extern "C" __attribute__((visibility("hidden")))
HIDDEN void sgemm_(const char* ta, const char* tb, const int* m, const int* n, const int* k, const f32*, const f32* a, const int* la, const f32* b, const int* lb, const f32*, f32* c, const int*) {
  i64 rx = *tb == 'N' ? *lb : 1, cx = *tb == 'N' ? 1 : *lb, ry = *ta == 'N' ? *la : 1, cy = *ta == 'N' ? 1 : *la;
  if (*n >= TILE_ROWS && *k > 0) in_tiles(c, b, rx, cx, Right{a, ry, cy, false}, *n, *m, *k);
  else few_rows(c, b, rx, cx, a, ry, cy, *n, *m, *k);
}
HIDDEN void dgemm_(const char* ta, const char* tb, const int* m, const int* n, const int* k, const f64*, const f64* a, const int* la, const f64* b, const int* lb, const f64*, f64* c, const int*) {
  i64 rx = *tb == 'N' ? *lb : 1, cx = *tb == 'N' ? 1 : *lb, ry = *ta == 'N' ? *la : 1, cy = *ta == 'N' ? 1 : *la;
  few_rows(c, b, rx, cx, a, ry, cy, *n, *m, *k);
}

// --- convolutions ---------------------------------------------------------------------------------------------------------
struct Strides { i64 outer, channel, at[3]; };
struct Shape { i64 count, channels, inside, groups, out[3], in[3], kernel[3], step[3], pad[3], spread[3]; };
// The windows of an image as the right operand of a product in tiles, put together where a tile reads them: row p is an
// element of the window, column j a pixel of the result.
struct Windows3 {
  const f32* image; Strides is; const Shape& s;
  static constexpr bool packed = false;
  static constexpr const f32* at = nullptr;
  void pack(f32* to, i64 p, i64 depth, i64 column, i64 count) const {
    i32 z[TILE_COLUMNS], y[TILE_COLUMNS], x[TILE_COLUMNS], start[TILE_COLUMNS];
    i64 ky_kx = s.kernel[1] * s.kernel[2], window = s.kernel[0] * ky_kx;
    for (i64 j = 0; j < TILE_COLUMNS; j++) {
      i64 pixel = column + j;
      x[j] = pixel % s.out[2] * s.step[2] - s.pad[2];
      y[j] = pixel / s.out[2] % s.out[1] * s.step[1] - s.pad[1];
      z[j] = j < count ? pixel / s.out[2] / s.out[1] * s.step[0] - s.pad[0] : -(1 << 30);  // outside, whatever is added
      start[j] = j < count ? z[j] * is.at[0] + y[j] * is.at[1] + x[j] * is.at[2] : 0;
    }
    const u32 in_z = s.in[0], in_y = s.in[1], in_x = s.in[2];
    for (i64 d = p; d < p + depth; d++, to += TILE_COLUMNS) {
      i64 k = d % window;
      const i32 kz = k / ky_kx * s.spread[0], ky = k / s.kernel[2] % s.kernel[1] * s.spread[1], kx = k % s.kernel[2] * s.spread[2];
      const i32 more = kz * is.at[0] + ky * is.at[1] + kx * is.at[2];
      const f32* channel = image + d / window * is.channel;
      for (int j = 0; j < TILE_COLUMNS; j++) {  // without a branch, so that it becomes vectors
        bool inside = ((u32)(z[j] + kz) < in_z) & ((u32)(y[j] + ky) < in_y) & ((u32)(x[j] + kx) < in_x);
        f32 found = channel[inside ? start[j] + more : 0];
        to[j] = inside ? found : 0;
      }
    }
  }
};
// Whether the result and the weight lie so that tiles can be computed, and then does it.
static bool convolution_in_tiles(f32* out, Strides os, const f32* image, Strides is, const f32* weight, Strides ws, const f32* bias, i64 bias_step, const Shape& s) {
  i64 each = s.channels / s.groups, pixels = s.out[0] * s.out[1] * s.out[2];
  i64 window = s.kernel[0] * s.kernel[1] * s.kernel[2], depth = s.inside * window;
  auto adjacent = [] (i64 stride, i64 wanted, i64 size) { return size == 1 || stride == wanted; };
  bool plain = adjacent(os.channel, pixels, s.channels) && adjacent(ws.outer, depth, s.channels) && adjacent(ws.channel, window, s.inside);
  for (i64 d = 2, o = 1, w = 1; d >= 0; o *= s.out[d], w *= s.kernel[d], d--) plain = plain && adjacent(os.at[d], o, s.out[d]) && adjacent(ws.at[d], w, s.kernel[d]);
  i64 reach = 0;  // offsets have 32 bits
  for (int d = 0; d < 3; d++) reach += (s.in[d] + 2 * s.pad[d] + s.kernel[d] * s.spread[d]) * is.at[d];
  if (!plain || each < TILE_ROWS || !depth || !pixels || reach >= 1 << 30) return false;
  for (i64 n = 0; n < s.count; n++)
    for (i64 g = 0; g < s.groups; g++) {
      f32* to = out + n * os.outer + g * each * os.channel;
      in_tiles(to, weight + g * each * depth, depth, 1, Windows3{image + n * is.outer + g * s.inside * is.channel, is, s}, each, pixels, depth);
      if (!bias) continue;
      parallel(each, 1 + 100000 / (1 + pixels), [&] (i64 lo, i64 hi) {
        for (i64 o = lo; o < hi; o++) {
          const f32 shift = bias[(g * each + o) * bias_step];
          for (i64 i = 0; i < pixels; i++) to[o * pixels + i] += shift;
        }
      });
    }
  return true;
}
static bool convolution_in_tiles(f64*, Strides, const f64*, Strides, const f64*, Strides, const f64*, i64, const Shape&) { return false; }
#define ROW 256
// Rows of results are added up element by element of the window: what is read and written is adjacent.
template <class T> static void direct_convolution(T* out, Strides os, const T* image, Strides is, const T* weight, Strides ws, const T* bias, i64 bias_step, Shape s) {
  if (convolution_in_tiles(out, os, image, is, weight, ws, bias, bias_step, s)) return;
  i64 each = s.channels / s.groups, rows = s.count * s.channels * s.out[0] * s.out[1];
  i64 work = s.inside * s.kernel[0] * s.kernel[1] * s.kernel[2] * s.out[2];
  parallel(rows, 1 + 200000 / (1 + work), [&] (i64 lo, i64 hi) {
    for (i64 at = lo; at < hi; at++) {
      i64 y = at % s.out[1], z = at / s.out[1] % s.out[0], o = at / s.out[1] / s.out[0] % s.channels, n = at / s.out[1] / s.out[0] / s.channels;
      T* to = out + n * os.outer + o * os.channel + z * os.at[0] + y * os.at[1];
      for (i64 start = 0; start < s.out[2]; start += ROW) {
        i64 length = s.out[2] - start < ROW ? s.out[2] - start : ROW;
        T sum[ROW];
        for (i64 i = 0; i < length; i++) sum[i] = bias ? bias[o * bias_step] : 0;
        for (i64 c = 0; c < s.inside; c++)
          for (i64 kz = 0; kz < s.kernel[0]; kz++) {
            i64 iz = z * s.step[0] - s.pad[0] + kz * s.spread[0];
            if (iz < 0 || iz >= s.in[0]) continue;
            for (i64 ky = 0; ky < s.kernel[1]; ky++) {
              i64 iy = y * s.step[1] - s.pad[1] + ky * s.spread[1];
              if (iy < 0 || iy >= s.in[1]) continue;
              const T* row = image + n * is.outer + (o / each * s.inside + c) * is.channel + iz * is.at[0] + iy * is.at[1];
              for (i64 kx = 0; kx < s.kernel[2]; kx++) {
                T factor = weight[o * ws.outer + c * ws.channel + kz * ws.at[0] + ky * ws.at[1] + kx * ws.at[2]];
                i64 first = start * s.step[2] - s.pad[2] + kx * s.spread[2];  // the pixel for sum[0]
                i64 low = first < 0 ? (-first + s.step[2] - 1) / s.step[2] : 0;
                i64 high = first >= s.in[2] ? 0 : (s.in[2] - first + s.step[2] - 1) / s.step[2];
                if (high > length) high = length;
                const T* pixel = row + first * is.at[2];
                i64 step = s.step[2] * is.at[2];
                if (step == 1) for (i64 i = low; i < high; i++) sum[i] += pixel[i] * factor;
                else for (i64 i = low; i < high; i++) sum[i] += pixel[i * step] * factor;
              }
            }
          }
        for (i64 i = 0; i < length; i++) to[(start + i) * os.at[2]] = sum[i];
      }
    }
  });
}

// --- mathematics: the C library's functions, element by element ------------------------------------------------------------
#define EACH(V, count, call) V r; for (int i = 0; i < count; i++) r[i] = call; return r;
#define ONE(vectors, doubles, name, single) \
  HIDDEN f32v vectors(f32v x) { EACH(f32v, LANES, single(x[i])) } HIDDEN f64h doubles(f64h x) { EACH(f64h, LANES / 2, name(x[i])) }
#define TWO(vectors, doubles, name, single) \
  HIDDEN f32v vectors(f32v x, f32v y) { EACH(f32v, LANES, single(x[i], y[i])) } \
  HIDDEN f64h doubles(f64h x, f64h y) { EACH(f64h, LANES / 2, name(x[i], y[i])) }
#define OF_ONE(name, ulp) ONE(MATH(name, ulp), MATH64(name, ulp), name, name##f)
#define OF_TWO(name, ulp) TWO(MATH(name, ulp), MATH64(name, ulp), name, name##f)
OF_ONE(tan, u10) OF_ONE(asin, u10) OF_ONE(acos, u10) OF_ONE(atan, u10) OF_ONE(sinh, u10) OF_ONE(cosh, u10)
OF_ONE(asinh, u10) OF_ONE(acosh, u10) OF_ONE(atanh, u10) OF_ONE(erfc, u15) OF_ONE(lgamma, u10)
OF_ONE(exp, u10) OF_ONE(tanh, u10) OF_ONE(erf, u10) OF_ONE(sin, u10) OF_ONE(cos, u10) OF_ONE(exp2, u10)
OF_ONE(expm1, u10) OF_ONE(log, u10) OF_ONE(log1p, u10) OF_ONE(log2, u10) OF_ONE(log10, u10)
OF_TWO(pow, u10) OF_TWO(atan2, u10) OF_TWO(hypot, u05)
#define ROUND_ONE(name) ONE(ROUND(name), ROUND64(name), name, name##f)
#define ROUND_TWO(name) TWO(ROUND(name), ROUND64(name), name, name##f)
ROUND_ONE(floor) ROUND_ONE(ceil) ROUND_ONE(trunc) ROUND_ONE(rint)
ROUND_TWO(fmod) ROUND_TWO(copysign) ROUND_TWO(nextafter)

// --- what comes from outside ----------------------------------------------------------------------------------------------
// The first instruction that this processor lacks and the code has; null if it has all.
static const char* lacking() {
#ifdef __x86_64__
  __builtin_cpu_init();
#ifdef __AVX512F__
  if (!__builtin_cpu_supports("avx512f")) return "avx512f";
#endif
#ifdef __AVX512BW__
  if (!__builtin_cpu_supports("avx512bw")) return "avx512bw";
#endif
#ifdef __AVX512DQ__
  if (!__builtin_cpu_supports("avx512dq")) return "avx512dq";
#endif
#ifdef __AVX512VL__
  if (!__builtin_cpu_supports("avx512vl")) return "avx512vl";
#endif
#ifdef __AVX2__
  if (!__builtin_cpu_supports("avx2")) return "avx2";
#endif
#ifdef __FMA__
  if (!__builtin_cpu_supports("fma")) return "fma";
#endif
#ifdef __BMI2__
  if (!__builtin_cpu_supports("bmi2")) return "bmi2";
#endif
#endif
  return nullptr;
}
// 0 if an input is a tensor of this dtype and these sizes, of which -1 may be any.
static int check_tensor(const torchmux_tensor& x, const char* name, int dtype, const char* words, int rank, const i64* sizes) {
  if (x.dtype != dtype) { snprintf(told, sizeof told, "%s must be %s, which is dtype %d; its dtype is %d", name, words, dtype, x.dtype); return -1; }
  if (x.rank != rank) { snprintf(told, sizeof told, "%s must have %d dimensions, and has %d", name, rank, x.rank); return -1; }
  bool empty = false;
  for (int d = 0; d < rank; d++) {
    if (x.sizes[d] < 0 || (sizes[d] >= 0 && x.sizes[d] != sizes[d])) {
      snprintf(told, sizeof told, "dimension %d of %s has size %ld; this program takes %ld", d, name, (long)x.sizes[d], (long)sizes[d]);
      return -1;
    }
    empty = empty || x.sizes[d] == 0;
  }
  if (!x.data && !empty) { snprintf(told, sizeof told, "%s has no data", name); return -1; }
  return 0;
}
static u64 digest_of(const char* at, i64 size) {  // FNV-1a
  u64 digest = 0xcbf29ce484222325ul;
  for (i64 i = 0; i < size; i++) digest = (digest ^ (u8)at[i]) * 0x100000001b3ul;
  return digest;
}
