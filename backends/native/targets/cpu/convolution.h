// Our own convolution of float32 in two dimensions, channels last, beside the library's: which of them runs is measured
// (choosing_convolutions.py).  The weight is constant and packed ahead.
//
// It is the matrix product of the windows of the image, one for each pixel of the result, with the weight, in tiles of
// some pixels by TILE_CHANNELS whose sums stay in registers; DEPTH products at a time, added up apart.  Windows are put
// together in a small copy, with zeros beyond the border, as a tile needs them.  See Georganas et al., "Anatomy of
// High-Performance Deep Learning Convolutions on SIMD Architectures", SC 2018.
#if defined(__AVX512F__) || defined(__aarch64__)
#define MOST_PIXELS 14
#else
#define MOST_PIXELS 6  // there are 16 registers instead of 32
#endif
#define CHANNEL_VECTORS 2
#define TILE_CHANNELS (CHANNEL_VECTORS * LANES)
#define DEPTH 384
#define MOST_SUMS 65536  // of a group of tiles: they stay in the cache

// The pixels of the largest tile if `pixels` are divided into as few as can be, as evenly as can be.
constexpr i64 tile_pixels(i64 pixels) {
  i64 tiles = (pixels + MOST_PIXELS - 1) / MOST_PIXELS;
  return (pixels + tiles - 1) / tiles;
}

// What a tile's first sums are added to, if anything, and what becomes of the last.
struct Ends { const f32* addend; const f32* bias; bool relu, first, last; };

// The channels of PIXELS pixels that lie `step` apart in c, by windows `lead` apart in a and packed weights b.
// Meanwhile the weights at `next` are fetched, `share` of them in each of `depth` steps.
template <int PIXELS> INLINE void channels_tile(f32* c, i64 step, const f32* a, i64 lead, const f32* b, i64 depth, Ends ends, const f32* next, i64 share) {
  f32v sum[PIXELS][CHANNEL_VECTORS] = {};
  for (i64 p = 0; p < depth; p++, a++, b += TILE_CHANNELS, next += share) {
    __builtin_prefetch(next, 0, 2);
    f32v y[CHANNEL_VECTORS];
#pragma GCC unroll 2
    for (int j = 0; j < CHANNEL_VECTORS; j++) y[j] = read<f32v>(b + j * LANES, All());
#pragma GCC unroll 16
    for (int i = 0; i < PIXELS; i++) {
      f32v x = splat(a[i * lead]);
#pragma GCC unroll 2
      for (int j = 0; j < CHANNEL_VECTORS; j++) sum[i][j] = fma(y[j], x, sum[i][j]);
    }
  }
#pragma GCC unroll 16
  for (int i = 0; i < PIXELS; i++, c += step)
#pragma GCC unroll 2
    for (int j = 0; j < CHANNEL_VECTORS; j++) {
      f32* at = c + j * LANES;
      f32v r = sum[i][j];
      if (!ends.first) r = r + read<f32v>(at, All());
      else if (ends.addend) r = r + read<f32v>(ends.addend + i * step + j * LANES, All());
      if (ends.last) {
        if (ends.bias) r = r + read<f32v>(ends.bias + j * LANES, All());
        if (ends.relu) r = r < f32v{} ? f32v{} : r;  // not-a-numbers stay
      }
      write(at, r, All());
    }
}

struct Image { const f32* at; i64 height, width, channels; };
struct Windows { i64 height, width, stride_y, stride_x, pad_y, pad_x; };  // of the weight; steps and borders in the image

// The elements from `from` to `to` of the row of a window that begins at pixel (y, x), which may lie outside.
INLINE void window_row(f32* out, const f32* image, Image shape, i64 y, i64 x, i64 from, i64 to) {
  i64 c = shape.channels, low = from, high = from;
  if (y >= 0 && y < shape.height) {
    low = -x * c, high = (shape.width - x) * c;
    low = low < from ? from : low > to ? to : low;
    high = high < low ? low : high > to ? to : high;
  }
  const f32* row = image + (y * shape.width + x) * c;
  for (i64 e = from; e < low; e++) out[e - from] = 0;
  if (low < high) __builtin_memcpy(out + (low - from), row + low, (high - low) * sizeof(f32));
  for (i64 e = high; e < to; e++) out[e - from] = 0;
}

// out = addend + convolution + bias, at least 0 with relu; `count` images of height by width pixels with n channels each, a
// multiple of TILE_CHANNELS.  `addend` may be null, or out itself; so may be `bias`.  PIXELS is tile_pixels() of all pixels.
template <int PIXELS>
static void convolution(f32* out, const f32* addend, i64 count, i64 height, i64 width, i64 n, Image image, Windows k, const f32* weight, const f32* bias, bool relu) {
  i64 all = count * height * width, tiles = (all + PIXELS - 1) / PIXELS, pixels = all / tiles, longer = all % tiles;
  i64 panels = n / TILE_CHANNELS, run = k.width * image.channels, depth = k.height * run;
  // At a time: some rows of the windows, or a part of a row.
  i64 rows = run < DEPTH ? DEPTH / run : 1, pieces = (run + DEPTH - 1) / DEPTH, part = (run + pieces - 1) / pieces, most = rows * part;
  // Windows of one pixel need no copy, unless they lie so far apart that they all want the same places in the cache.
  bool plain = k.height == 1 && k.width == 1 && k.stride_y == 1 && k.stride_x == 1 && k.pad_y == 0 && k.pad_x == 0;
  plain = plain && image.channels % 512 != 0;
  auto some = [&] (i64 begin, i64 end, i64 low, i64 high) {  // of the tiles, and of the panels of TILE_CHANNELS
    alignas(64) f32 copies[PIXELS * (DEPTH + LANES)];
    i64 group = 1 + MOST_SUMS / (PIXELS * (high - low) * TILE_CHANNELS);
    for (i64 start = begin, stop; start < end; start = stop) {
      stop = start + group < end ? start + group : end;
      for (i64 top = 0, bottom; top < k.height; top = bottom) {
        bottom = top + rows < k.height ? top + rows : k.height;
        for (i64 from = 0; from < run; from += part) {
          i64 to = from + part < run ? from + part : run, much = (bottom - top) * (to - from);
          bool first = top == 0 && from == 0, last = bottom == k.height && to == run;
          for (i64 t = start; t < stop; t++) {
            i64 pixel = t * pixels + (t < longer ? t : longer), here = pixels + (t < longer);
            const f32* a = copies;
            i64 lead = most + LANES;
            if (plain) a = image.at + pixel * image.channels + from, lead = image.channels;
            else {
              i64 x = pixel % width, line = pixel / width, y = line % height;
              const f32* whole = image.at + line / height * image.height * image.width * image.channels;
              for (i64 i = 0; i < here; i++, x++) {
                if (x == width) {
                  x = 0;
                  if (++y == height) y = 0, whole += image.height * image.width * image.channels;
                }
                for (i64 r = top; r < bottom; r++)
                  window_row(copies + i * lead + (r - top) * run, whole, image, y * k.stride_y + r - k.pad_y, x * k.stride_x - k.pad_x, from, to);
              }
            }
            // The pieces of the weight that the next turn reads lie behind these; each tile asks for its share of them.
            i64 step = TILE_CHANNELS / (stop - start) + 1, share = (t - start) * much * step;
            for (i64 panel = low; panel < high; panel++) {
              const f32* b = weight + (panel * depth + top * run + from) * TILE_CHANNELS;
              i64 channel = panel * TILE_CHANNELS, c = pixel * n + channel;
              Ends ends = {addend ? addend + c : nullptr, bias ? bias + channel : nullptr, relu, first, last};
              const f32* next = b + much * TILE_CHANNELS + share;
              if (here == PIXELS) channels_tile<PIXELS>(out + c, n, a, lead, b, much, ends, next, step);
              else channels_tile<PIXELS - 1>(out + c, n, a, lead, b, much, ends, next, step);
            }
          }
        }
      }
    }
  };
  // Each thread reads either all windows or all of the weight, and windows take a copy.
  i64 threads = omp_in_parallel() ? 1 : omp_get_max_threads();
  bool by_panels = panels >= threads ? n > 2 * all || tiles < threads : panels > tiles;
  i64 work = all * depth * n;
  if (by_panels) parallel(panels, 1 + 400000 * panels / (1 + work), [&] (i64 lo, i64 hi) { some(0, tiles, lo, hi); });
  else parallel(tiles, 1 + 400000 * tiles / (1 + work), [&] (i64 lo, i64 hi) { some(lo, hi, 0, panels); });
}

// Pack a contiguous weight of n by channels by height by width into panels of TILE_CHANNELS of the n.
extern "C" void pack_weight(f32* to, const f32* weight, i64 n, i64 channels, i64 height, i64 width) {
  i64 window = height * width, depth = channels * window;
  parallel(n / TILE_CHANNELS, 1 + 100000 / (1 + depth * TILE_CHANNELS), [&] (i64 lo, i64 hi) {
    for (i64 panel = lo; panel < hi; panel++)
      for (i64 at = 0; at < window; at++)
        for (i64 c = 0; c < channels; c++) {
          f32* row = to + ((panel * window + at) * channels + c) * TILE_CHANNELS;
          for (i64 j = 0; j < TILE_CHANNELS; j++) row[j] = weight[((panel * TILE_CHANNELS + j) * channels + c) * window + at];
        }
  });
}
