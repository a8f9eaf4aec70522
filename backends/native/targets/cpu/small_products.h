// Products in float32 that take less time than a call of the library.
// Products of a few elements each.
#define SMALL 8
template <class T> INLINE bool small_products(T*, const T*, i64, bool, const T*, i64, bool, i64, i64, i64, i64, i64, i64, i64) { return false; }
#ifdef __AVX512F__
static bool small_products(f32* out, const f32* x, i64 lx, bool tx, const f32* y, i64 ly, bool ty, i64 m, i64 n, i64 k, i64 from, i64 to, i64 sx, i64 sy) {
  if (m > SMALL || n > SMALL || k > SMALL || k < 1) return false;
  Some lanes{(int)n};
  i64 step = tx ? 1 : lx, next = tx ? lx : 1;
  for (i64 b = from; b < to; b++) {
    const f32* at = x + b * sx;
    f32v rows[SMALL];
    for (i64 l = 0; l < k; l++) rows[l] = ty ? strided(y + b * sy + l, ly, lanes) : load(y + b * sy + l * ly, lanes);
    for (i64 i = 0; i < m; i++) {
      f32v sum = splat(at[i * step]) * rows[0];
      for (i64 l = 1; l < k; l++) sum = fma(splat(at[i * step + l * next]), rows[l], sum);
      store(out + (b * m + i) * n, sum, lanes);
    }
  }
  return true;
}
#endif
// Matrices of a batch times a vector each, which the library begins anew for every matrix.  Element (i, l) of a matrix is at
// i * rows + l * next, one of which is 1.  False where the library is as fast, or a vector does not lie in a row.
#define SMALL_MATRIX 2048
template <class T> INLINE bool times_vectors(T*, const T*, i64, i64, i64, const T*, i64, i64, i64, i64, i64, i64) { return false; }
template <class M> INLINE f32v column_sums(const f32* at, i64 next, const f32* x, i64 step, i64 k, M m) {
  f32v sums[FOLDS] = ALIKE(f32v{});
  i64 l = 0;
  for (; l + FOLDS <= k; l += FOLDS)
    for (int u = 0; u < FOLDS; u++) sums[u] = fma(load(at + (l + u) * next, m), splat(x[(l + u) * step]), sums[u]);
  for (; l < k; l++) sums[0] = fma(load(at + l * next, m), splat(x[l * step]), sums[0]);
  return (sums[0] + sums[1]) + (sums[2] + sums[3]);
}
template <int R> INLINE void row_sums(f32* out, const f32* at, i64 rows, const f32* x, i64 k) {
  f32v sums[R]; for (auto& sum : sums) sum = f32v{};
  sweep(0, k, [&] (i64 l, auto m) INLINE_LAMBDA {
    f32v each = load(x + l, m);
    for (int r = 0; r < R; r++) sums[r] = fma(load(at + r * rows + l, m), each, sums[r]);
  });
  for (int r = 0; r < R; r++) out[r] = total(sums[r]);
}
static bool times_vectors(f32* out, const f32* a, i64 rows, i64 next, i64 sa, const f32* v, i64 step, i64 sv, i64 m, i64 k, i64 from, i64 to) {
  if (m * k > SMALL_MATRIX || (next != 1 && rows != 1) || (next == 1 && step != 1 && k > 1)) return false;
  for (i64 b = from; b < to; b++) {
    const f32* at = a + b * sa, * x = v + b * sv;
    f32* put = out + b * m;
    i64 i = 0;
    if (next == 1) {
      for (; i + 8 <= m; i += 8) row_sums<8>(put + i, at + i * rows, rows, x, k);
      for (; i < m; i++) row_sums<1>(put + i, at + i * rows, rows, x, k);
    } else sweep(0, m, [&] (i64 j, auto lanes) INLINE_LAMBDA { store(put + j, column_sums(at + j, next, x, step, k, lanes), lanes); });
  }
  return true;
}
