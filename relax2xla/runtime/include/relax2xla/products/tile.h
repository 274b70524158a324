/* Tiles of results: pixels by columns, whose sums stay in registers. */
#ifndef RELAX2XLA_PRODUCTS_TILE_H_
#define RELAX2XLA_PRODUCTS_TILE_H_

#include <relax2xla/activations.h>

#include <algorithm>
#include <cstdint>

namespace relax2xla {

constexpr int kPanel = 16;
// Vectors of results that a tile has, or one more where that leaves none; rows of one, and how many
// vectors of sums registers hold: 24 of 32, or 12 of 16.
constexpr int kVectors = 2, kMostRows = 12;
#ifdef __AVX512F__
constexpr int kSums = 24;
#else
constexpr int kSums = 12;
#endif

/* What becomes of the sums of a tile while they are in registers: what is added to them, or none,
 * and what follows then: nothing, a bound, or hard swish. */
struct Last {
  const float* added;
  int64_t ending;
};

/* Whether a tile computes an ending in registers. */
inline bool in_registers(int64_t ending) { return ending <= kHardswish; }

/* What will be read next: lines of caches, some with every `kSome` channels, of each panel that a
 * tile reads. */
struct Ahead {
  const char* at;
  int64_t lines;
};
constexpr int64_t kSome = 64;
inline int64_t chunks_of(int64_t channels) { return (channels + kSome - 1) / kSome; }

/* `Rows` pixels by `Vectors` vectors of results, rows `apart` numbers from each other. The pixels
 * under a tap are `count` pointers behind those under the one before. Sums begin with the bias, or
 * where there is none with what `out` has; `last`: none where more will come. Meanwhile what lies
 * ahead comes nearer. */
template <int Rows, int Vectors>
void tile(const float* const* pixels, int64_t count, int64_t taps, int64_t from, int64_t length,
          const float* panel, int64_t next, const float* bias, const Last* last, Ahead ahead,
          float* out, int64_t apart) {
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
  for (int64_t t = 0; t < taps; ++t, pixels += count) {
    const float* row[Rows];
#pragma GCC unroll 16
    for (int r = 0; r < Rows; ++r) row[r] = pixels[r] + from;
    const auto channel = [&](int64_t k) __attribute__((always_inline)) {
      Vector weights[Vectors];
#pragma GCC unroll 4
      for (int v = 0; v < Vectors; ++v)
        weights[v] = load(panel + v * kLanes / kPanel * next + v * kLanes % kPanel);
      panel += kPanel;
#pragma GCC unroll 16
      for (int r = 0; r < Rows; ++r) {
        const Vector pixel = row[r][k] - Vector{};
#pragma GCC unroll 4
        for (int v = 0; v < Vectors; ++v) sum[r][v] += pixel * weights[v];
      }
    };
    constexpr int kPanels = std::max(1, Vectors * kLanes / kPanel);
    for (int64_t k = 0; k < length;) {
      for (int64_t line = 0; line < ahead.lines; ++line, ahead.at += 64) {
#pragma GCC unroll 4
        for (int p = 0; p < kPanels; ++p)
          __builtin_prefetch(ahead.at + p * next * sizeof(float), 0, 2);
      }
      const int64_t until = std::min(length, k + kSome);
#pragma GCC unroll 2
      for (; k < until; ++k) channel(k);
    }
  }
  if (last != nullptr) {
    if (last->added != nullptr)
      each([&](Vector& s, int64_t at, int64_t) { s += load(last->added + at); });
    if (last->ending == kRelu) each([](Vector& s, int64_t, int64_t) { s = activated<kRelu>(s); });
    if (last->ending == kRelu6) each([](Vector& s, int64_t, int64_t) { s = activated<kRelu6>(s); });
    if (last->ending == kHardswish)
      each([](Vector& s, int64_t, int64_t) { s = activated<kHardswish>(s); });
  }
  each([&](Vector& s, int64_t at, int64_t) { store(out + at, s); });
}

/* A tile and its sizes. */
struct Tile {
  void (*run)(const float* const*, int64_t, int64_t, int64_t, int64_t, const float*, int64_t,
              const float*, const Last*, Ahead, float*, int64_t);
  int64_t rows, vectors;
};

/* The largest tile for `rows` pixels, or fewer of them, by `Vectors` vectors. */
template <int Vectors, int Rows = std::min(kMostRows, kSums / Vectors)>
Tile tile_of_rows(int64_t rows) {
  if constexpr (Rows > 1) {
    // Of the larger ones every other is enough.
    constexpr int kFewer = Rows > 8 ? 8 : Rows > 6 ? 6 : Rows - 1;
    if (rows < Rows) return tile_of_rows<Vectors, kFewer>(rows);
  }
  return {tile<Rows, Vectors>, Rows, Vectors};
}

/* The largest tile for `rows` pixels, or fewer, by `vectors` vectors, or fewer. */
inline Tile tile_of(int64_t rows, int64_t vectors) {
  if (vectors == kVectors + 1) return tile_of_rows<kVectors + 1>(rows);
  return vectors >= kVectors ? tile_of_rows<kVectors>(rows) : tile_of_rows<1>(rows);
}

// Numbers of a line of the cache.
constexpr int64_t kLine = 16;

/* The first place from `from` on where a line of the cache begins: vectors there are in one. */
inline float* aligned(float* from) {
  constexpr auto kBytes = kLine * sizeof(float);
  const auto at = reinterpret_cast<uintptr_t>(from);
  return reinterpret_cast<float*>((at + kBytes - 1) / kBytes * kBytes);
}

// Rows of the tile that is mostly used.
constexpr int64_t kTileRows = kSums / kVectors;

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
