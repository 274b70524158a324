/* Tiles of results: pixels by columns, whose sums stay in registers. */
#ifndef RELAX2XLA_PRODUCTS_TILE_H_
#define RELAX2XLA_PRODUCTS_TILE_H_

#include <relax2xla/activations.h>

#include <algorithm>
#include <cstdint>
#include <type_traits>

namespace relax2xla {

constexpr int kPanel = 16;

/* As many columns as their panels have. */
constexpr int64_t in_panels(int64_t columns) { return (columns + kPanel - 1) / kPanel * kPanel; }

// Vectors of results that a tile has, or one more where that leaves none; rows of one, and how many
// vectors of sums registers hold: 24 of 32, or 12 of 16.
constexpr int kVectors = 2, kMostRows = 12;
// Channels that a tile takes at once, as far as there are registers for their weights.
#ifdef __AVX512F__
constexpr int kSums = 24, kAtOnce = 2;
#else
constexpr int kSums = 12, kAtOnce = 1;
#endif

/* What becomes of the sums of a tile while they are in registers: what is added to them, or none,
 * and what follows then: nothing, a bound, or hard swish. */
struct Last {
  const float* added;
  int64_t ending;
};

/* Whether a tile computes an ending in registers. */
inline bool in_registers(int64_t ending) { return ending <= kHardswish; }

/* What will be read next, of each panel that a tile reads: `lines` of caches come nearer with `every`
 * so many channels. Few at once, or what is read now waits behind them. Of panels `apart` bytes from
 * each other; what lies in stretches goes on `jump` bytes behind their `end`, `stride` from one to
 * the next. */
struct Ahead {
  const char* at;
  int64_t lines, every, apart;
  const char* end;
  int64_t jump, stride;

  void step() {
    at += kLine * sizeof(float);
    if (at != end) return;
    at += jump;
    end += stride;
  }
};

/* As many channels from `at` on as each of `tiles` reads, of panels `next` numbers apart. */
inline Ahead ahead_of(const float* at, int64_t next, int64_t tiles) {
  const int64_t every = std::clamp<int64_t>(2 * tiles, 8, 64), lines = (every + tiles - 1) / tiles;
  const auto bytes = static_cast<int64_t>(sizeof(float));
  return {reinterpret_cast<const char*>(at), lines, every, next * bytes, nullptr, 0, 0};
}

/* The same of what lies in stretches of `length` numbers, `stride` from one to the next. */
inline Ahead ahead_in(const float* at, int64_t next, int64_t tiles, int64_t length,
                      int64_t stride) {
  Ahead ahead = ahead_of(at, next, tiles);
  const int64_t lines = (length + kLine - 1) / kLine * kLine;
  const auto bytes = static_cast<int64_t>(sizeof(float));
  if (lines >= stride) return ahead;
  ahead.end = ahead.at + lines * bytes;
  ahead.jump = (stride - lines) * bytes;
  ahead.stride = stride * bytes;
  return ahead;
}

/* Nothing, for `length` channels. */
inline Ahead nothing_ahead(int64_t length) { return {nullptr, 0, length, 0, nullptr, 0, 0}; }

/* Where `count` pixels of a row of `width` are, `step` from each other, the first one in `column`; those
 * beside the row are `nothing`. */
inline void find_pixels(const float* row, int64_t width, int64_t pitch, int64_t column, int64_t step,
                        int64_t count, const float* nothing, const float** at) {
  const auto before = [&](int64_t end) {
    const int64_t many = std::max<int64_t>(0, end - column);
    return std::min(count, step == 1 ? many : (many + step - 1) / step);
  };
  const int64_t begin = before(0), end = before(width);
  std::fill_n(at, begin, nothing);
  const float* pixel = row + (column + begin * step) * pitch;
  for (int64_t n = begin; n < end; ++n, pixel += step * pitch) at[n] = pixel;
  std::fill_n(at + end, count - end, nothing);
}

/* What tiles one below the other are made of. The pixels under a tap are `count` pointers behind those
 * under the one before; of even ones, `stride` numbers from each other, the first is enough. Of each of
 * them, `length` numbers from `from` on; of a weight in panels `next` numbers apart. Sums begin with the
 * bias, or where there is none with what `out` has, whose rows are `apart` numbers from each other;
 * `last`: none where more will come. */
struct Strip {
  const float* const* pixels;
  int64_t count, stride, taps, from, length;
  const float* panel;
  int64_t next;
  const float* bias;
  const Last* last;
  float* out;
  int64_t apart;
};

/* So many tiles of `Rows` pixels by `Vectors` vectors of results. Meanwhile what lies ahead comes
 * nearer. */
template <int Rows, int Vectors, bool Even>
void compute_tiles(int64_t tiles, const Strip& strip, Ahead* coming) {
  const float* const* const pixels = strip.pixels;
  const float *const bias = strip.bias, *const panels = strip.panel;
  const int64_t count = strip.count, stride = strip.stride, taps = strip.taps, first = strip.from;
  const int64_t length = strip.length, next = strip.next, apart = strip.apart;
  const Last* const last = strip.last;
  float* const results = strip.out;
  Ahead ahead = *coming;
  for (int64_t i = 0; i < tiles; ++i) {
    const int64_t below = i * Rows * apart;
    float* const out = results + below;
    Vector sum[Rows][Vectors];
    const auto each = [&](auto change) __attribute__((always_inline)) {
#pragma GCC unroll 16
      for (int r = 0; r < Rows; ++r) {
#pragma GCC unroll 4
        for (int v = 0; v < Vectors; ++v) change(sum[r][v], r * apart + v * kLanes, v * kLanes);
      }
    };
    if (bias != nullptr) {
      each([&](Vector& s, int64_t, int64_t at) { s = load(bias + at); });
    } else {
      each([&](Vector& s, int64_t at, int64_t) { s = load(out + at); });
    }
    const float* const* under = Even ? pixels : pixels + i * Rows;
    const int64_t from = Even ? first + i * Rows * stride : first;
    const float* panel = panels;
    for (int64_t t = 0; t < taps; ++t, under += count) {
      // Pointers to all rows are more than there are registers, and what is read from memory beside
      // the numbers costs a quarter of the speed where four instructions a cycle are all. So several
      // even rows have one pointer, which the compiler is not to see through, and the others are read
      // once for some channels.
      constexpr int kShare = Even ? 3 : 1, kPointers = (Rows + kShare - 1) / kShare;
      const float* row[kPointers];
#pragma GCC unroll 16
      for (int p = 0; p < kPointers; ++p) {
        row[p] = Even ? *under + from + p * kShare * stride : under[p] + from;
        if (Even) asm("" : "+r"(row[p]));
      }
      const auto channels = [&](int64_t k, auto some) __attribute__((always_inline)) {
        constexpr int kCount = decltype(some)::value;
        Vector weights[kCount][Vectors];
#pragma GCC unroll 4
        for (int c = 0; c < kCount; ++c) {
#pragma GCC unroll 4
          for (int v = 0; v < Vectors; ++v)
            weights[c][v] = load(panel + c * kPanel + v * kLanes / kPanel * next + v * kLanes % kPanel);
        }
        panel += kCount * kPanel;
#pragma GCC unroll 16
        for (int r = 0; r < Rows; ++r) {
#pragma GCC unroll 4
          for (int c = 0; c < kCount; ++c) {
            const Vector pixel = row[r / kShare][r % kShare * stride + k + c] - Vector{};
#pragma GCC unroll 4
            for (int v = 0; v < Vectors; ++v) sum[r][v] += pixel * weights[c][v];
          }
        }
      };
      constexpr int kPanels = std::max(1, Vectors * kLanes / kPanel);
      for (int64_t k = 0; k < length;) {
        for (int64_t line = 0; line < ahead.lines; ++line, ahead.step()) {
#pragma GCC unroll 4
          for (int p = 0; p < kPanels; ++p) __builtin_prefetch(ahead.at + p * ahead.apart, 0, 2);
        }
        const int64_t until = std::min(length, k + ahead.every);
        for (; k + kAtOnce <= until; k += kAtOnce)
          channels(k, std::integral_constant<int, kAtOnce>{});
        for (; k < until; ++k) channels(k, std::integral_constant<int, 1>{});
      }
    }
    if (last != nullptr) {
      if (last->added != nullptr)
        each([&](Vector& s, int64_t at, int64_t) { s += load(last->added + below + at); });
      if (last->ending == kRelu) each([](Vector& s, int64_t, int64_t) { s = activated<kRelu>(s); });
      if (last->ending == kRelu6) each([](Vector& s, int64_t, int64_t) { s = activated<kRelu6>(s); });
      if (last->ending == kHardswish)
        each([](Vector& s, int64_t, int64_t) { s = activated<kHardswish>(s); });
    }
    each([&](Vector& s, int64_t at, int64_t) { store(out + at, s); });
  }
  coming->at = ahead.at;
  coming->end = ahead.end;
}

/* A tile's size, and what computes some. */
struct Tile {
  void (*compute)(int64_t, const Strip&, Ahead*);
  int64_t rows, vectors;
};

/* The largest tile for `rows` pixels, or fewer of them, by `Vectors` vectors. */
template <int Vectors, bool Even, int Rows = std::min(kMostRows, kSums / Vectors)>
Tile tile_of_rows(int64_t rows) {
  if constexpr (Rows > 1) {
    // Of the larger ones every other is enough.
    constexpr int kFewer = Rows > 8 ? 8 : Rows > 6 ? 6 : Rows - 1;
    if (rows < Rows) return tile_of_rows<Vectors, Even, kFewer>(rows);
  }
  return {compute_tiles<Rows, Vectors, Even>, Rows, Vectors};
}

template <bool Even>
Tile tile_of(int64_t rows, int64_t vectors) {
  if (vectors == kVectors + 1) return tile_of_rows<kVectors + 1, Even>(rows);
  return vectors >= kVectors ? tile_of_rows<kVectors, Even>(rows) : tile_of_rows<1, Even>(rows);
}

/* The largest tile for `rows` pixels, or fewer, by `vectors` vectors, or fewer; pixels `stride`
 * numbers from each other, or 0 where that differs. */
inline Tile tile_of(int64_t rows, int64_t vectors, int64_t stride) {
  return stride != 0 ? tile_of<true>(rows, vectors) : tile_of<false>(rows, vectors);
}

/* Whether rows `stride` numbers from each other take each other's place in the nearest cache: pages
 * apart they are in the same few lines of it. */
inline bool collide(int64_t stride) { return stride % 1024 == 0; }

/* How far rows of `numbers` are from each other where they are written to be read by tiles. */
inline int64_t stride_of(int64_t numbers) {
  const int64_t lines = (numbers + kLine - 1) / kLine * kLine;
  return collide(lines) ? lines + kLine : lines;
}

// Rows of the tile that is mostly used.
constexpr int64_t kTileRows = kSums / kVectors;

/* How many of `count` come at once: about as many each time, no more than `most`, in whole `units`. */
inline int64_t even_part(int64_t count, int64_t most, int64_t units = 1) {
  const int64_t parts = (count + most - 1) / most;
  return ((count + parts - 1) / parts + units - 1) / units * units;
}

/* How many of `count` pixels are computed together, about `most`, in whole tiles: blocks are of one
 * size, so that no few pixels behind the others read the whole weight again. */
inline int64_t block_of(int64_t count, int64_t most) {
  const int64_t blocks = std::max<int64_t>(1, (count + most / 2) / most);
  return ((count + blocks - 1) / blocks + kTileRows - 1) / kTileRows * kTileRows;
}

/* `count` pixels in pieces of as many whole tiles. */
struct Pieces {
  int64_t count, pieces;
  int64_t begin(int64_t piece) const {
    const int64_t tiles = (count + kTileRows - 1) / kTileRows;
    return std::min(count, piece * tiles / pieces * kTileRows);
  }
};

}  // namespace relax2xla

#endif  // RELAX2XLA_PRODUCTS_TILE_H_
