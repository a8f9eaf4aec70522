// Our own matrix product of float32, beside the library's: which of them runs is measured (choosing.py).
//
// c = a @ b is computed in tiles of TILE_ROWS by TILE_COLUMNS whose sums stay in registers, TILE_DEPTH products at a time:
// then the piece of b that a tile reads stays in the fastest cache, and rounding errors stay small, since sums of so
// many products are added up apart.  Operands are read tile by tile through small copies in the order in which they are
// needed; a constant right operand is packed whole, ahead.  See Goto and van de Geijn, "Anatomy of High-Performance
// Matrix Multiplication", ACM TOMS 34 (3), 2008.
#include "tiles.h"
#define BY_MKL 1
#define BY_TILES 2
#define PACK_HEAD 64  // a packed matrix begins with so many bytes, which say for which of the two it is
#ifdef __AVX512F__
#define TILE_ROWS 8
#else
#define TILE_ROWS 4  // there are 16 registers instead of 32
#endif
#define TILE_VECTORS 3
#define TILE_COLUMNS (TILE_VECTORS * LANES)
#define TILE_DEPTH 192
#define PANELS 4  // so many panels of b lie packed at a time

extern "C" u64 cblas_sgemm_pack_get_size(int, int, int, int) __attribute__((weak));
extern "C" void cblas_sgemm_pack(int, int, int, int, int, int, f32, const f32*, int, f32*) __attribute__((weak));
extern "C" void cblas_sgemm_compute(int, int, int, int, int, int, const f32*, int, const f32*, int, f32, f32*, int) __attribute__((weak));

// What is fetched from memory meanwhile: `share` elements in each of `depth` steps.
struct Ahead { const f32* at; i64 share; };

// A tile of c is, or gets more by, a @ b.  Element (i, p) of a is at a[i * ra + p * ca]; b is packed.
static void tile(f32* c, i64 lc, const f32* a, i64 ra, i64 ca, const f32* b, i64 depth, bool more, Ahead ahead) {
  f32v sum[TILE_ROWS][TILE_VECTORS] = {};
  for (i64 p = 0; p < depth; p++, a += ca, b += TILE_COLUMNS, ahead.at += ahead.share) {
    __builtin_prefetch(ahead.at, 0, 2);
    f32v y[TILE_VECTORS];
#pragma GCC unroll 3
    for (int j = 0; j < TILE_VECTORS; j++) y[j] = read<f32v>(b + j * LANES, All());
#pragma GCC unroll 8
    for (int i = 0; i < TILE_ROWS; i++) {
      f32v x = splat(a[i * ra]);
#pragma GCC unroll 3
      for (int j = 0; j < TILE_VECTORS; j++) sum[i][j] = fma(y[j], x, sum[i][j]);
    }
  }
#pragma GCC unroll 8
  for (int i = 0; i < TILE_ROWS; i++, c += lc)
#pragma GCC unroll 3
    for (int j = 0; j < TILE_VECTORS; j++) {
      f32* at = c + j * LANES;
      write(at, more ? sum[i][j] + read<f32v>(at, All()) : sum[i][j], All());
    }
}
// The same for the first `columns` of a tile, without the first `skip` rows, which are not this tile's.
static void part_of_tile(f32* c, i64 lc, const f32* a, i64 ra, i64 ca, const f32* b, i64 depth, bool more, i64 columns, i64 skip, Ahead ahead) {
  alignas(64) f32 whole[TILE_ROWS * TILE_COLUMNS];
  tile(whole, TILE_COLUMNS, a, ra, ca, b, depth, false, ahead);
  for (i64 i = skip; i < TILE_ROWS; i++)
    for (i64 j = 0; j < columns; j++) {
      f32* at = c + i * lc + j;
      *at = more ? *at + whole[i * TILE_COLUMNS + j] : whole[i * TILE_COLUMNS + j];
    }
}

// depth rows of a panel of up to TILE_COLUMNS columns, one row behind the other; b[p * rows + j * columns] is element (p, j).
static void pack_panel(f32* to, const f32* b, i64 rows, i64 columns, i64 depth, i64 count) {
  if (columns == 1 && rows != 1) {
    for (i64 p = 0; p < depth; p++, b += rows, to += TILE_COLUMNS)
#pragma GCC unroll 3
      for (int j = 0; j < TILE_VECTORS; j++) {
        i64 left = count - j * LANES;
        const f32* at = b + j * LANES;
        write(to + j * LANES, left >= LANES ? read<f32v>(at, All()) : left > 0 ? read<f32v>(at, Some{(int)left}) : f32v{}, All());
      }
    return;
  }
  i64 whole = rows == 1 ? depth / LANES * LANES : 0;
  for (i64 j = 0; j < TILE_COLUMNS; j += LANES)
    for (i64 p = 0; p < whole; p += LANES) {
      f32v square[LANES];
#pragma GCC unroll 16
      for (int l = 0; l < LANES; l++) square[l] = j + l < count ? read<f32v>(b + p + (j + l) * columns, All()) : f32v{};
      transpose(square);
#pragma GCC unroll 16
      for (int l = 0; l < LANES; l++) write(to + (p + l) * TILE_COLUMNS + j, square[l], All());
    }
  for (i64 p = whole; p < depth; p++)
    for (i64 j = 0; j < TILE_COLUMNS; j++) to[p * TILE_COLUMNS + j] = j < count ? b[p * rows + j * columns] : 0;
}

// The right operand: a matrix whose element (p, j) is at `at[p * rows + j * columns]`, or one that was packed ahead.
struct Right { const f32* at; i64 rows, columns; bool packed; };

// out = x @ y in row-major order, m by n, k at least 1 and m at least TILE_ROWS; element (i, p) of x is at x[i * rx + p * cx],
// and one of rx and cx is 1.
static void in_tiles(f32* out, const f32* x, i64 rx, i64 cx, Right y, i64 m, i64 n, i64 k) {
  i64 panels = (n + TILE_COLUMNS - 1) / TILE_COLUMNS, tiles = (m + TILE_ROWS - 1) / TILE_ROWS;
  // Rows are divided among threads only where there are few columns, as each piece packs y for itself.
  i64 threads = omp_in_parallel() ? 1 : omp_get_max_threads(), pieces = (threads + panels - 1) / panels;
  i64 rows = (tiles + pieces - 1) / pieces * TILE_ROWS;
  if (rows < 4 * TILE_ROWS) rows = 4 * TILE_ROWS;
  pieces = (m + rows - 1) / rows;
  parallel(panels * pieces, 1 + 400000 / (1 + rows * k * TILE_COLUMNS), [&] (i64 lo, i64 hi) {
    alignas(64) f32 block[PANELS][TILE_DEPTH * TILE_COLUMNS], left[TILE_DEPTH * TILE_ROWS];
    for (i64 at = lo, count; at < hi; at += count) {
      i64 first = at % panels, from = at / panels * rows, to = from + rows < m ? from + rows : m;
      count = panels - first < PANELS ? panels - first : PANELS;
      if (count > hi - at) count = hi - at;
      for (i64 p = 0; p < k; p += TILE_DEPTH) {
        i64 depth = k - p < TILE_DEPTH ? k - p : TILE_DEPTH;
        const f32* b[PANELS];
        for (i64 q = 0; q < count; q++) {
          i64 column = (first + q) * TILE_COLUMNS;
          b[q] = y.packed ? y.at + column * k + p * TILE_COLUMNS : block[q];
          if (!y.packed) pack_panel(block[q], y.at + p * y.rows + column * y.columns, y.rows, y.columns, depth, n - column);
        }
        for (i64 i = from; i < to; i += TILE_ROWS) {
          i64 row = i + TILE_ROWS <= m ? i : m - TILE_ROWS;  // the last tile computes a few rows again
          const f32* a = x + row * rx + p * cx;
          i64 ra = rx, ca = cx;
          if (cx != 1) {
            for (i64 d = 0; d < depth; d++) __builtin_memcpy(left + d * TILE_ROWS, a + d * cx, TILE_ROWS * sizeof(f32));
            a = left, ra = 1, ca = TILE_ROWS;
          }
          for (i64 q = 0; q < count; q++) {
            i64 column = (first + q) * TILE_COLUMNS, columns = n - column;
            // Of the weight that is multiplied by next, each tile asks for its share.
            Ahead ahead = {b[q], 0};
            if (y.packed) {
              const f32* next = p + depth < k ? b[q] + depth * TILE_COLUMNS : y.at + (column + count * TILE_COLUMNS) * k;
              i64 share = TILE_COLUMNS * TILE_ROWS / (to - from) + 1;
              ahead = {next + (i - from) / TILE_ROWS * depth * share, share};
            }
            f32* c = out + row * n + column;
            if (i == row && columns >= TILE_COLUMNS) tile(c, n, a, ra, ca, b[q], depth, p > 0, ahead);
            else part_of_tile(c, n, a, ra, ca, b[q], depth, p > 0, columns < TILE_COLUMNS ? columns : TILE_COLUMNS, i - row, ahead);
          }
        }
      }
    }
  });
}

// As product(), for `batch` of them, in tiles.
extern "C" void tiled_product(f32* out, const f32* x, i64 lx, i64 tx, const f32* y, i64 ly, i64 ty, i64 m, i64 n, i64 k, i64 batch, i64 sx, i64 sy) {
  i64 rx = tx ? 1 : lx, cx = tx ? lx : 1, ry = ty ? 1 : ly, cy = ty ? ly : 1;
  auto some = [&] (i64 from, i64 to) {
    for (i64 b = from; b < to; b++) in_tiles(out + b * m * n, x + b * sx, rx, cx, {y + b * sy, ry, cy, false}, m, n, k);
  };
  if (batch > 1) parallel(batch, 1 + 200000 / (1 + m * n * k), some);
  else some(0, 1);
}
extern "C" void library_product(f32* out, const f32* x, i64 lx, i64 tx, const f32* y, i64 ly, i64 ty, i64 m, i64 n, i64 k, i64 batch, i64 sx, i64 sy) {
  product(out, x, lx, tx, y, ly, ty, m, n, k, batch, sx, sy);
}
// By the way that was chosen, where it can.
INLINE void chosen_product(char way, f32* out, const f32* x, i64 lx, bool tx, const f32* y, i64 ly, bool ty, i64 m, i64 n, i64 k, i64 batch, i64 sx, i64 sy) {
  (way == BY_TILES && m >= TILE_ROWS && k > 0 ? tiled_product : library_product)(out, x, lx, tx, y, ly, ty, m, n, k, batch, sx, sy);
}

// Bytes that a packed matrix of k rows and n columns takes, for products with m rows; 0 if it cannot be done.
extern "C" i64 packed_size(i64 kind, i64 m, i64 n, i64 k) {
  if (kind == BY_MKL) return cblas_sgemm_pack_get_size ? PACK_HEAD + (i64)cblas_sgemm_pack_get_size(162, m, n, k) : 0;
  i64 panels = (n + TILE_COLUMNS - 1) / TILE_COLUMNS;
  return m < TILE_ROWS ? 0 : PACK_HEAD + panels * k * TILE_COLUMNS * (i64)sizeof(f32);
}

// Pack b, whose element (p, j) is at b[p * rows + j * columns]; one of these is 1.
extern "C" void pack(char* to, i64 kind, const f32* b, i64 rows, i64 columns, i64 m, i64 n, i64 k) {
  *(i64*)to = kind;
  f32* at = (f32*)(to + PACK_HEAD);
  if (kind == BY_MKL) {
    bool plain = columns == 1;
    i64 lead = plain ? rows : columns, least = plain ? n : k;
    cblas_sgemm_pack(101, 162, plain ? 111 : 112, m, n, k, 1.f, b, lead > least ? lead : least, at);
    return;
  }
  parallel((n + TILE_COLUMNS - 1) / TILE_COLUMNS, 1 + 100000 / (1 + k * TILE_COLUMNS), [&] (i64 lo, i64 hi) {
    for (i64 panel = lo; panel < hi; panel++) {
      i64 column = panel * TILE_COLUMNS;
      pack_panel(at + column * k, b + column * columns, rows, columns, k, n - column);
    }
  });
}

// out = x @ y for a packed y; the rows of x are lx apart.
extern "C" void packed_product(f32* out, const f32* x, i64 lx, const void* y, i64 m, i64 n, i64 k) {
  const f32* at = (const f32*)((const char*)y + PACK_HEAD);
  if (*(const i64*)y == BY_MKL) {
    cblas_sgemm_compute(101, 111, 151, m, n, k, x, lx > k ? lx : k, at, n, 0.f, out, n);
    return;
  }
  in_tiles(out, x, lx, 1, {at, 0, 0, true}, m, n, k);
}
