// Matrix products with a right operand that was packed ahead: by MKL, or for our own kernel, whichever measured faster.
//
// A packed matrix begins with a line of 64 bytes that says which of the two it is for.
#define BY_MKL 1
#define BY_TILES 2
#define PACK_HEAD 64
#define TILE_ROWS 8
#define TILE_VECTORS 3
#define TILE_COLUMNS (TILE_VECTORS * LANES)
#define TILE_DEPTH 192  // sums of so many products are added up apart, which keeps rounding errors small

extern "C" u64 cblas_sgemm_pack_get_size(int, int, int, int) __attribute__((weak));
extern "C" void cblas_sgemm_pack(int, int, int, int, int, int, f32, const f32*, int, f32*) __attribute__((weak));
extern "C" void cblas_sgemm_compute(int, int, int, int, int, int, const f32*, int, const f32*, int, f32, f32*, int) __attribute__((weak));

// c = a @ b for TILE_ROWS rows of a and one panel of b; the accumulators stay in registers.
static void tile(f32* c, i64 lc, const f32* a, i64 la, const f32* b, i64 k, i64 columns) {
  f32v sum[TILE_ROWS][TILE_VECTORS] = {};
  for (i64 from = 0; from < k; from += TILE_DEPTH) {
    i64 to = from + TILE_DEPTH < k ? from + TILE_DEPTH : k;
    f32v part[TILE_ROWS][TILE_VECTORS] = {};
    for (i64 p = from; p < to; p++) {
      f32v y[TILE_VECTORS];
#pragma GCC unroll 3
      for (int j = 0; j < TILE_VECTORS; j++) y[j] = read<f32v>(b + p * TILE_COLUMNS + j * LANES, All());
#pragma GCC unroll 8
      for (int i = 0; i < TILE_ROWS; i++) {
        f32v x = splat(a[i * la + p]);
#pragma GCC unroll 3
        for (int j = 0; j < TILE_VECTORS; j++) part[i][j] = fma(y[j], x, part[i][j]);
      }
    }
#pragma GCC unroll 8
    for (int i = 0; i < TILE_ROWS; i++)
#pragma GCC unroll 3
      for (int j = 0; j < TILE_VECTORS; j++) sum[i][j] += part[i][j];
  }
  for (int i = 0; i < TILE_ROWS; i++)
    for (int j = 0; j < TILE_VECTORS; j++) {
      i64 left = columns - j * LANES;
      if (left >= LANES) write(c + i * lc + j * LANES, sum[i][j], All());
      else if (left > 0) write(c + i * lc + j * LANES, sum[i][j], Some{(int)left});
    }
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
    for (i64 panel = lo; panel < hi; panel++)
      for (i64 j = 0; j < TILE_COLUMNS; j++) {
        i64 column = panel * TILE_COLUMNS + j;
        f32* into = at + panel * k * TILE_COLUMNS + j;
        for (i64 p = 0; p < k; p++) into[p * TILE_COLUMNS] = column < n ? b[p * rows + column * columns] : 0;
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
  i64 panels = (n + TILE_COLUMNS - 1) / TILE_COLUMNS;
  parallel(panels, 1 + 400000 / (1 + m * k * TILE_COLUMNS), [&] (i64 lo, i64 hi) {
    for (i64 panel = lo; panel < hi; panel++)
      for (i64 i = 0; i < m; i += TILE_ROWS) {
        i64 row = i + TILE_ROWS <= m ? i : m - TILE_ROWS;  // the last tile does a few rows again
        tile(out + row * n + panel * TILE_COLUMNS, n, x + row * lx, lx, at + panel * k * TILE_COLUMNS, k, n - panel * TILE_COLUMNS);
      }
  });
}
