// Matrix products of float32 whose right operand is computed while it is read: converted from half precision or integers,
// scaled, or whatever else a program does to a weight.  No copy of it is written.
#include "blocks.h"

template <int N> struct Times { static constexpr int n = N; };
template <int N, class F> INLINE void each(F f) { if constexpr (N > 0) { each<N - 1>(f); f(Times<N - 1>()); } }

// f of numbers from 0 to 15: with so many lanes, of all of them once, from which the lanes choose.
template <class V, class F> INLINE f32v of_sixteen(V v, F f) {
#if LANES == 16 && !defined(__clang__)
  return __builtin_shuffle(f(convert<V>(count())), convert<i32v>(v));
#else
  return f(v);
#endif
}

struct Nothing { INLINE_MEMBER void operator()(i64, i64) const {} };
// The right operand: `get(p, j, lanes, turn)` are elements that begin at (p * turns + turn, j), in a vector that runs along p
// if `down`, and along j otherwise.  There is nothing beyond `lanes`.  `fetch(p, j)` asks for the memory that they are in.
template <bool down, int turns, class F, class G> struct Computed {
  F get;
  G fetch;
  static constexpr int E = turns;
  static constexpr bool packed = false;
  static constexpr const f32* at = nullptr;
  void pack(f32* to, i64 p, i64 depth, i64 column, i64 count) const {
    p /= E, depth /= E;
    if constexpr (down) {
      for (i64 d = 0; d < depth; d += LANES)
        for (i64 j = 0; j < TILE_COLUMNS; j += LANES)
          each<E>([&] (auto e) {
            f32v square[LANES];
            i64 left = depth - d;
#pragma GCC unroll 16
            for (int l = 0; l < LANES; l++)
              square[l] = j + l >= count ? f32v{} : left >= LANES ? get(p + d, column + j + l, All(), e) : get(p + d, column + j + l, Some{(int)left}, e);
            transpose(square);
            for (int l = 0; l < LANES && l < left; l++) write(to + ((d + l) * E + e.n) * TILE_COLUMNS + j, square[l], All());
          });
    } else {
      for (i64 d = 0; d < depth; d++)
        each<E>([&] (auto e) {
#pragma GCC unroll 3
          for (i64 j = 0; j < TILE_COLUMNS; j += LANES) {
            i64 left = count - j;
            write(to + j, left >= LANES ? get(p + d, column + j, All(), e) : left > 0 ? keep(Some{(int)left}, get(p + d, column + j, Some{(int)left}, e), f32v{}) : f32v{}, All());
          }
          to += TILE_COLUMNS;
        });
    }
  }
};

// --- products of few rows, which take as long as it takes to read the right operand once --------------------------------
#define FEW_ROWS 8
#define FEW_BYTES 131072  // so much of the rows is used at a time
#define DEEP 512         // so many rows of it are added to one sum, where a sum waits in memory
#define AHEAD 4          // so many rows of the right operand are read side by side

// The sums of the lanes of LANES vectors.
INLINE f32v sums_of(f32v* rows) {
  transpose(rows);
#pragma GCC unroll 4
  for (int half = LANES / 2; half; half /= 2)
#pragma GCC unroll 8
    for (int i = 0; i < half; i++) rows[i] += rows[i + half];
  return rows[0];
}

// Columns from `lo` to `hi` of a product of M rows, or of m < M: the vectors run along the sums.  Columns are read from end
// to end, and those behind them are fetched meanwhile: the processor would begin anew for each column, which are short
// where numbers have 8 or 4 bits.  R rows by J columns have their sums in registers.
template <int M, class Y> static void few_down(f32* out, const f32* x, i64 lx, Y y, i64 m, i64 n, i64 k, i64 lo, i64 hi) {
  constexpr int most = LANES == 16 ? 8 : 4, R = M < most ? M : most, J = M < 4 ? 4 : 3;  // R by J sums are in registers
  constexpr int E = Y::E;
  constexpr i64 block = FEW_BYTES / (M * E * (i64)sizeof(f32));
  k /= E;
  alignas(64) f32 rows[FEW_BYTES / sizeof(f32)];  // a vector of each row, one after the other
  for (i64 from = 0; from < k; from += block) {
    i64 to = from + block < k ? from + block : k;
    sweep(from, to, [&] (i64 p, auto lanes) {
      for (int e = 0; e < E; e++)
        for (int i = 0; i < M; i++) {
          const f32* row = x + (i < m ? i : 0) * lx + p * E + e;
          write(rows + ((p - from) * E + e * LANES) * M + i * LANES, E == 1 ? load(row, lanes) : strided(row, E, lanes), All());
        }
    });
    auto columns = [&] (i64 j, int top, auto count) {
      constexpr int C = decltype(count)::n, all = C * R;
      const f32* at = rows + top * LANES;
      f32v sum[C][R] = {};
      sweep(from, to, [&] (i64 p, auto lanes) {
#pragma GCC unroll 4
        for (int c = 0; c < C; c++) y.fetch(p, j + C + c);
        each<E>([&] (auto e) {
          f32v w[C];
#pragma GCC unroll 4
          for (int c = 0; c < C; c++) w[c] = keep(lanes, y.get(p, j + c, lanes, e), f32v{});
#pragma GCC unroll 8
          for (int i = 0; i < R; i++) {
            f32v row = load(at + ((p - from) * E + e.n * LANES) * M + i * LANES, All());
#pragma GCC unroll 4
            for (int c = 0; c < C; c++) sum[c][i] = fma(w[c], row, sum[c][i]);
          }
        });
      });
#pragma GCC unroll 4
      for (int first = 0; first < all; first += LANES) {
        f32v square[LANES];
#pragma GCC unroll 16
        for (int l = 0; l < LANES; l++) square[l] = first + l < all ? sum[(first + l) / R][(first + l) % R] : f32v{};
        f32v found = sums_of(square);
        for (int l = 0; l < LANES && first + l < all; l++) {
          i64 c = (first + l) / R, i = top + (first + l) % R;
          if (i < m) out[i * n + j + c] = from ? out[i * n + j + c] + found[l] : found[l];
        }
      }
    };
    i64 j = lo;
    for (; j + J <= hi; j += J) for (int top = 0; top < M; top += R) columns(j, top, Times<J>());
    for (; j < hi; j++) for (int top = 0; top < M; top += R) columns(j, top, Times<1>());
  }
}

// The same where the vectors run along the columns: sums wait in `out`, a few rows of y are added at a time.  Those of DEEP
// rows are added to the others as a whole, so that no sum is rounded more often.
template <int M, class Y> static void few_across(f32* out, const f32* x, i64 lx, Y y, i64 m, i64 n, i64 k, i64 lo, i64 hi) {
  constexpr int E = Y::E, ahead = AHEAD / E;
  const f32* row[M];
  f32 *to[M], *own = k > DEEP ? (f32*)__builtin_malloc(M * (hi - lo) * sizeof(f32)) : nullptr;
  for (int i = 0; i < M; i++) row[i] = x + (i < m ? i : 0) * lx;
  for (i64 from = 0; from < k / E; from += DEEP / E) {
    bool more = from && own;
    i64 last = own && from + DEEP / E < k / E ? from + DEEP / E : k / E;
    for (int i = 0; i < M; i++) to[i] = more ? own + i * (hi - lo) - lo : out + (i < m ? i : 0) * n;
    auto rows = [&] (i64 p, auto count) {
      constexpr int P = decltype(count)::n * E;
      f32v factor[M][P];
#pragma GCC unroll 8
      for (int i = 0; i < M; i++)
#pragma GCC unroll 4
        for (int q = 0; q < P; q++) factor[i][q] = splat(row[i][p * E + q]);
      sweep(lo, hi, [&] (i64 j, auto lanes) {
        f32v w[P];
#pragma GCC unroll 4
        for (int q = 0; q < P / E; q++) each<E>([&] (auto e) { w[q * E + e.n] = y.get(p + q, j, lanes, e); });
#pragma GCC unroll 8
        for (int i = 0; i < M; i++) {
          f32v sum = p > from ? load(to[i] + j, lanes) : f32v{};
#pragma GCC unroll 4
          for (int q = 0; q < P; q++) sum = fma(w[q], factor[i][q], sum);
          if (i < m) store(to[i] + j, sum, lanes);
        }
      });
    };
    i64 p = from;
    for (; p + ahead <= last; p += ahead) rows(p, Times<ahead>());
    for (; p < last; p++) rows(p, Times<1>());
    for (int i = 0; more && i < M && i < m; i++)
      sweep(lo, hi, [&] (i64 j, auto lanes) { store(out + i * n + j, load(out + i * n + j, lanes) + load(to[i] + j, lanes), lanes); });
    if (!own) break;
  }
  __builtin_free(own);
}

template <int M, bool down, int E, class F, class G> static void few(f32* out, const f32* x, i64 lx, Computed<down, E, F, G> y, i64 m, i64 n, i64 k) {
  constexpr i64 step = 4 * LANES;
  parallel((n + step - 1) / step, 1 + 100000 / (1 + step * k), [&] (i64 from, i64 to) {
    i64 lo = from * step, hi = to * step < n ? to * step : n;
    if constexpr (down) few_down<M>(out, x, lx, y, m, n, k, lo, hi);
    else few_across<M>(out, x, lx, y, m, n, k, lo, hi);
  });
}

// out = x @ y, m by n, of which M is the least power of two that is not less than m, or 0 where m is many or not known; the
// rows of x are lx apart.
template <int M, bool down, int turns, class F, class G = Nothing> INLINE void computed_product(f32* out, const f32* x, i64 lx, i64 m, i64 n, i64 k, F get, G fetch = {}) {
  Computed<down, turns, F, G> y = {get, fetch};
  if constexpr (M != 0) few<M>(out, x, lx, y, m, n, k);
  else if (m >= TILE_ROWS) in_tiles(out, x, lx, 1, y, m, n, k);
  else if (m > 4) few<8>(out, x, lx, y, m, n, k);
  else if (m > 1) few<4>(out, x, lx, y, m, n, k);
  else if (m > 0) few<1>(out, x, lx, y, m, n, k);
}
