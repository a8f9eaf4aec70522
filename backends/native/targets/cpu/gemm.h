// Our own matrix product of float32, beside the library's: which of them runs is measured (choosing.py).
#include "blocks.h"
#define BY_MKL 1
#define BY_TILES 2
#define PACK_HEAD 64  // a packed matrix begins with so many bytes, which say for which of the two it is

extern "C" u64 cblas_sgemm_pack_get_size(int, int, int, int) __attribute__((weak));
extern "C" void cblas_sgemm_pack(int, int, int, int, int, int, f32, const f32*, int, f32*) __attribute__((weak));
extern "C" void cblas_sgemm_compute(int, int, int, int, int, int, const f32*, int, const f32*, int, f32, f32*, int) __attribute__((weak));

// As product(), for `batch` of them, in tiles.
extern "C" void tiled_product(f32* out, const f32* x, i64 lx, i64 tx, const f32* y, i64 ly, i64 ty, i64 m, i64 n, i64 k, i64 batch, i64 sx, i64 sy) {
  i64 rx = tx ? 1 : lx, cx = tx ? lx : 1, ry = ty ? 1 : ly, cy = ty ? ly : 1;
  auto some = [&] (i64 from, i64 to) {
    for (i64 b = from; b < to; b++) in_tiles(out + b * m * n, x + b * sx, rx, cx, Right{y + b * sy, ry, cy, false}, m, n, k);
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
  in_tiles(out, x, lx, 1, Right{at, 0, 0, true}, m, n, k);
}
