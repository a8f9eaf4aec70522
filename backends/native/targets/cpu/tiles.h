// Kernels that walk two loops in squares of LANES by LANES points, because some of what they read or write is contiguous
// in one loop and some in the other; and columns that are reduced side by side.
#pragma once

// Lane l of a where l has not the bit `half`, and of b, so many lanes before, where it has; or the lanes that this leaves.
template <int N, class I, class V> INLINE V interleave(V a, V b, int half, int other) {
#ifdef __clang__
  V r;
#pragma clang loop unroll(full)
  for (int l = 0; l < N; l++) r[l] = l & half ? b[l - half + other] : a[l + other];
  return r;
#else
  I l;
  for (int i = 0; i < N; i++) l[i] = i;
  I low = l + other;
  return __builtin_shuffle(a, b, (l & half) != 0 ? low + (N - half) : low);
#endif
}
// The N rows of a square become its columns.
template <int N, class I, class V> INLINE void turn(V* rows) {
#pragma GCC unroll 4
  for (int half = N / 2; half; half /= 2) {
#pragma GCC unroll 16
    for (int i = 0; i < N; i++) {
      if (i & half) continue;
      V a = rows[i], b = rows[i + half];
      rows[i] = interleave<N, I>(a, b, half, 0), rows[i + half] = interleave<N, I>(a, b, half, half);
    }
  }
}
INLINE void transpose(f32v* rows) { turn<LANES, i32v>(rows); }
// Elements of 64 bits are two registers a row: four squares, of which two change places.
template <class V> INLINE void transpose_wide(V* rows) {
  constexpr int N = LANES / 2;
  f64h quarter[2][2][N];
#pragma GCC unroll 16
  for (int l = 0; l < LANES; l++) {
    quarter[0][l / N][l % N] = (f64h)rows[l].low, quarter[1][l / N][l % N] = (f64h)rows[l].high;
  }
#pragma GCC unroll 4
  for (int q = 0; q < 4; q++) turn<N, i64h>(quarter[q / 2][q % 2]);
#pragma GCC unroll 16
  for (int l = 0; l < LANES; l++) {
    typedef decltype(rows[l].low) H;
    rows[l] = {(H)quarter[l / N][0][l % N], (H)quarter[l / N][1][l % N]};
  }
}
INLINE void transpose(f64v* rows) { transpose_wide(rows); }
INLINE void transpose(i64v* rows) { transpose_wide(rows); }

// What carries the elements of a type through a transposition, and brings them back.
INLINE f32v carried(f32v v) { return v; }
INLINE f32v carried(i32v v) { return (f32v)v; }
INLINE f64v carried(f64v v) { return v; }
INLINE i64v carried(i64v v) { return v; }
template <class V> INLINE f32v carried(V v) { return (f32v)convert<i32v>(v); }
INLINE void bring(f32v v, f32v& to) { to = v; }
INLINE void bring(f32v v, i32v& to) { to = (i32v)v; }
INLINE void bring(f64v v, f64v& to) { to = v; }
INLINE void bring(i64v v, i64v& to) { to = v; }
template <class V> INLINE void bring(f32v v, V& to) { to = convert<V>((i32v)v); }

// s[k], lane l = p[l * step + k] for k < n.n and l < m.n.
template <class V, class T, class N, class M> INLINE void load_square(V* s, const T* p, i64 step, N n, M m) {
  decltype(carried(V())) rows[LANES];
#pragma GCC unroll 16
  for (int l = 0; l < LANES; l++) rows[l] = carried(l < m.n ? load(p + l * step, n) : V{});
  transpose(rows);
#pragma GCC unroll 16
  for (int l = 0; l < LANES; l++) bring(rows[l], s[l]);
}
// p[l * step + k] = s[k], lane l.
template <class V, class T, class N, class M> INLINE void store_square(T* p, const V* s, i64 step, N n, M m) {
  decltype(carried(V())) rows[LANES];
#pragma GCC unroll 16
  for (int l = 0; l < LANES; l++) rows[l] = carried(l < n.n ? s[l] : V{});
  transpose(rows);
#pragma GCC unroll 16
  for (int l = 0; l < LANES; l++) {
    V v;
    bring(rows[l], v);
    if (l < m.n) store(p + l * step, v, n);
  }
}
// body(t, n, at, m) for squares of [from, to) by [0, extent), in blocks of whole cache lines either way.
template <int BLOCK, class F> INLINE void squares(i64 from, i64 to, i64 extent, F body) {
  for (i64 start = 0; start < extent; start += BLOCK) {
    i64 end = start + BLOCK < extent ? start + BLOCK : extent;
    for (i64 t = from; t < to; t += LANES)
      for (i64 at = start; at < end; at += LANES) {
        if (t + LANES <= to && at + LANES <= end) body(t, All(), at, All());
        else body(t, Some{(int)(to - t < LANES ? to - t : LANES)}, at, Some{(int)(end - at < LANES ? end - at : LANES)});
      }
  }
}

// Lanes of a where `from` is less than LANES, and of b, so many lanes later; where it is negative, lanes of a stay in place.
template <class I, class V> INLINE V picked(V a, V b, I from) {
  constexpr int N = sizeof(I) / sizeof(from[0]);
  I own;
  for (int i = 0; i < N; i++) own[i] = i;
  I at = from < 0 ? own : from;
#ifdef __clang__
  V r;
#pragma clang loop unroll(full)
  for (int i = 0; i < N; i++) r[i] = at[i] < N ? a[at[i]] : b[at[i] - N];
  return r;
#else
  return __builtin_shuffle(a, b, at);
#endif
}
template <class T, class H> INLINE halves<T, H> picked(halves<T, H> a, halves<T, H> b, i32v from) {  // through memory
  halves<T, H> held[2] = {a, b}, result;
  T element[2 * LANES], chosen[LANES];
  __builtin_memcpy(element, held, sizeof element);
  for (int i = 0; i < LANES; i++) chosen[i] = element[from[i] < 0 ? i : from[i]];
  __builtin_memcpy(&result, chosen, sizeof result);
  return result;
}
template <class I> INLINE I numbers() {
  I l;
  for (int i = 0; i < (int)(sizeof(I) / sizeof(l[0])); i++) l[i] = i;
  return l;
}
template <class I> INLINE I alike(int x) {
  I l;
  for (int i = 0; i < (int)(sizeof(I) / sizeof(l[0])); i++) l[i] = x;
  return l;
}
// Bytes are dealt as they are, and not as wider lanes, where a vector of them is a register.
template <class V, int N> constexpr bool dealt_as_bytes = LANES == 16 && sizeof(V) == LANES && N <= 4;
// Lane n - 1 - l of v, for l < n.
template <class V> INLINE void turn_back(V& v, int n) {
  if constexpr (dealt_as_bytes<V, 1>) {
    v = picked(v, v, (alike<i8v>(n - 1) - numbers<i8v>()) & alike<i8v>(LANES - 1));
  } else {
    auto all = carried(v);
    i32v at = n - 1 - count();
    bring(picked(all, all, at < 0 ? i32v{} : at), v);
  }
}
// Lane l = p[-l], where the condition holds.
template <class T, class M> INLINE auto load_some_back(mask c, const T* p, M m) {
  turn_back(c, m.n);
  auto v = load_some(c, p - (m.n - 1), m);
  turn_back(v, m.n);
  return v;
}
// Every STEP-th element; a negative STEP goes back from the first one.
template <int STEP, class T> INLINE auto in_steps(const T* p, All m) {
  auto v = zero<T>();
  if constexpr (STEP < 0) {
    if constexpr (STEP == -1) v = load(p - (LANES - 1), m);
    else v = in_steps<-STEP>(p + STEP * (LANES - 1), m);
    turn_back(v, LANES);
  } else if constexpr (dealt_as_bytes<decltype(v), STEP>) {
    const i8v at = numbers<i8v>() * alike<i8v>(STEP);
    v = load(p, All());
#pragma GCC unroll 4
    for (int j = 1; j < STEP; j++) {
      int start = j == STEP - 1 ? STEP * (LANES - 1) + 1 - LANES : j * LANES;
      i8v low = alike<i8v>(j * LANES), kept = j == 1 ? (at < alike<i8v>(LANES) ? at : alike<i8v>(-1)) : alike<i8v>(-1);
      v = picked(v, load(p + start, All()), (at >= low) & (at < low + alike<i8v>(LANES)) ? at - alike<i8v>(start - LANES) : kept);
    }
  } else {
    i32v at = count<i32v>() * STEP;
    auto all = carried(load(p, All()));
#pragma GCC unroll 4
    for (int j = 1; j < STEP; j++) {
      // The last vector ends with the last element that is wanted.
      int start = j == STEP - 1 ? STEP * (LANES - 1) + 1 - LANES : j * LANES;
      i32v here = at - start, first = j == 1 ? (at < LANES ? at : i32v{} - 1) : i32v{} - 1;
      all = picked(all, carried(load(p + start, All())), (at >= j * LANES) & (at < (j + 1) * LANES) ? here + LANES : first);
    }
    bring(all, v);
  }
  return v;
}
template <int STEP, class T> INLINE auto in_steps(const T* p, Some m) {
  if constexpr (STEP == -1) {
    auto v = load(p - (m.n - 1), m);
    turn_back(v, m.n);
    return v;
  } else return strided(p, STEP, m);
}
// What of N vectors the one numbered j holds, where m.n rows of N elements lie one after the other.
template <int N> INLINE All piece(All, int) { return All(); }
template <int N> INLINE Some piece(Some m, int j) {
  int rest = m.n * N - j * LANES;
  return Some{rest < 0 ? 0 : rest > LANES ? LANES : rest};
}
// Rows of N elements in N registers become one register for each element, and the other way round.  An even number of
// elements is two halves, of every other element each; the registers of an odd number are picked one after the other.
template <int N, class I, class V> INLINE void deal(const V* from, V* to) {
  const I count = numbers<I>();
  if constexpr (N == 1) to[0] = from[0];
  else if constexpr (N % 2 == 0) {
    V even[N / 2], odd[N / 2], first[N / 2], second[N / 2];
#pragma GCC unroll 8
    for (int j = 0; j < N / 2; j++) {
      even[j] = picked(from[2 * j], from[2 * j + 1], count * 2);
      odd[j] = picked(from[2 * j], from[2 * j + 1], count * 2 + 1);
    }
    deal<N / 2, I>(even, first), deal<N / 2, I>(odd, second);
#pragma GCC unroll 8
    for (int j = 0; j < N / 2; j++) to[2 * j] = first[j], to[2 * j + 1] = second[j];
  } else {
    constexpr int W = sizeof(I) / sizeof(count[0]);
#pragma GCC unroll 15
    for (int k = 0; k < N; k++) {
      I at = count * N + alike<I>(k);
      V all = from[0];
#pragma GCC unroll 15
      for (int j = 1; j < N; j++) {
        I rest = j == 1 ? (at < W ? at : I{} - 1) : I{} - 1, low = alike<I>(j * W);
        all = picked(all, from[j], (at >= low) & (at < low + W) ? at - (low - W) : rest);
      }
      to[k] = all;
    }
  }
}
template <int N, class I, class V> INLINE void gathered(const V* from, V* to) {
  const I count = numbers<I>();
  constexpr int W = sizeof(I) / sizeof(count[0]);
  if constexpr (N == 1) to[0] = from[0];
  else if constexpr (N % 2 == 0) {
    V even[N / 2], odd[N / 2], first[N / 2], second[N / 2];
#pragma GCC unroll 8
    for (int j = 0; j < N / 2; j++) first[j] = from[2 * j], second[j] = from[2 * j + 1];
    gathered<N / 2, I>(first, even), gathered<N / 2, I>(second, odd);
#pragma GCC unroll 8
    for (int j = 0; j < N / 2; j++) {
      I at = count / 2 + count % 2 * W;
      to[2 * j] = picked(even[j], odd[j], at), to[2 * j + 1] = picked(even[j], odd[j], at + W / 2);
    }
  } else {
#pragma GCC unroll 15
    for (int j = 0; j < N; j++) {
      I at = count + alike<I>(j * W), lane = at / N, source = at % N;
      V all = from[0];
#pragma GCC unroll 15
      for (int k = 1; k < N; k++) {
        I rest = k == 1 ? (source == 0 ? lane : I{} - 1) : I{} - 1;
        all = picked(all, from[k], source == alike<I>(k) ? lane + W : rest);
      }
      to[j] = all;
    }
  }
}
template <int N> INLINE void deal_all(const f32v* from, f32v* to) { deal<N, i32v>(from, to); }
template <int N> INLINE void gather_all(const f32v* from, f32v* to) { gathered<N, i32v>(from, to); }
// Elements of 64 bits are two registers a vector.
template <int N, class T, class H> INLINE void deal_all(const halves<T, H>* from, halves<T, H>* to) {
  H given[2 * N], low[N], high[N];
#pragma GCC unroll 16
  for (int j = 0; j < N; j++) given[2 * j] = from[j].low, given[2 * j + 1] = from[j].high;
  deal<N, i64h>(given, low), deal<N, i64h>(given + N, high);
#pragma GCC unroll 16
  for (int k = 0; k < N; k++) to[k].low = low[k], to[k].high = high[k];
}
template <int N, class T, class H> INLINE void gather_all(const halves<T, H>* from, halves<T, H>* to) {
  H made[2 * N], low[N], high[N];
#pragma GCC unroll 16
  for (int k = 0; k < N; k++) low[k] = from[k].low, high[k] = from[k].high;
  gathered<N, i64h>(low, made), gathered<N, i64h>(high, made + N);
#pragma GCC unroll 16
  for (int j = 0; j < N; j++) to[j].low = made[2 * j], to[j].high = made[2 * j + 1];
}
// s[k], lane l = p[l * N + k], and the other way round.
template <int N, class V, class T, class M> INLINE void load_few(V* s, const T* p, M m) {
  if constexpr (dealt_as_bytes<V, N>) {
    V part[N];
#pragma GCC unroll 4
    for (int j = 0; j < N; j++) part[j] = load(p + j * LANES, piece<N>(m, j));
    return deal<N, i8v>(part, s);
  } else {
    decltype(carried(V())) part[N], dealt[N];
#pragma GCC unroll 16
    for (int j = 0; j < N; j++) part[j] = carried(load(p + j * LANES, piece<N>(m, j)));
    deal_all<N>(part, dealt);
#pragma GCC unroll 16
    for (int k = 0; k < N; k++) bring(dealt[k], s[k]);
  }
}
// s[k], lane l = p[-l * N + k].
template <int N, class V, class T, class M> INLINE void load_few_back(V* s, const T* p, M m) {
  load_few<N>(s, p - (m.n - 1) * N, m);
#pragma GCC unroll 4
  for (int k = 0; k < N; k++) turn_back(s[k], m.n);
}
template <int N, class V, class T, class M> INLINE void store_few(T* p, const V* s, M m) {
  if constexpr (dealt_as_bytes<V, N>) {
    V made[N];
    gathered<N, i8v>(s, made);
#pragma GCC unroll 4
    for (int j = 0; j < N; j++) store(p + j * LANES, made[j], piece<N>(m, j));
  } else {
    decltype(carried(V())) part[N], made[N];
#pragma GCC unroll 16
    for (int k = 0; k < N; k++) part[k] = carried(s[k]);
    gather_all<N>(part, made);
#pragma GCC unroll 16
    for (int j = 0; j < N; j++) {
      V v;
      bring(made[j], v);
      store(p + j * LANES, v, piece<N>(m, j));
    }
  }
}
// As sweep, where points may be computed twice: the last vector of a row reaches back into the one before.
template <class F> INLINE void sweep_over(i64 from, i64 to, F body) {
  if (to - from < LANES) return sweep(from, to, body);
  for (i64 at = from;; at = at + 2 * LANES <= to ? at + LANES : to - LANES) {
    body(at, All());
    if (at + LANES >= to) break;
  }
}

// How many vectors of columns are reduced side by side, so that whole cache lines are read.
#define COLUMN_VECTORS (LANES < 8 ? 4 : 32 / LANES)
template <int N> struct Beside { static constexpr int n = N; };
// body(at, m, beside) for [from, to), MOST vectors at a time while there are so many.
template <int MOST, class F> INLINE void columns(i64 from, i64 to, F body) {
  i64 at = from;
  for (; at + MOST * LANES <= to; at += MOST * LANES) body(at, All(), Beside<MOST>());
  if (MOST > 1) for (; at + LANES <= to; at += LANES) body(at, All(), Beside<1>());
  if (at < to) body(at, Some{(int)(to - at)}, Beside<1>());
}
// The best so far in each column, and in which row; `at` is the same in all columns.
template <class V> struct BestRow { V value; i32v at; };
template <bool most, class V, class M> INLINE void better(BestRow<V>& best, V x, i32 at, M) {
  mask wins = (most ? gt(x, best.value) : lt(x, best.value)) | (ne(x, x) & eq(best.value, best.value));
  best.value = sel(wins, x, best.value);
  best.at = wins ? splat(at) : best.at;
}
