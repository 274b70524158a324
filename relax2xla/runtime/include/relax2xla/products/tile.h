/* Tiles of results: pixels by columns, whose sums stay in registers. */
#ifndef RELAX2XLA_PRODUCTS_TILE_H_
#define RELAX2XLA_PRODUCTS_TILE_H_

#include <relax2xla/activations.h>

#include <algorithm>
#include <cstdint>

namespace relax2xla {

constexpr int kPanel = 16;
#ifdef __AVX512F__
// 24 registers of 32 hold sums.
constexpr int kRows = 12, kPanels = 2;
#else
// 12 registers of 16.
constexpr int kRows = 6, kPanels = 1;
#endif
constexpr int kColumns = kPanel * kPanels;

/* What becomes of the sums of a tile while they are in registers: what is added to them, or none,
 * and the bounds that they are held in. */
struct Last {
  const float* added;
  float low, high;
};

/* `Rows` pixels by `Vectors` vectors of results, rows `apart` numbers from each other. Sums begin
 * with the bias, or where there is none with what `out` has; `last`: none where more will come. */
template <int Rows, int Vectors>
void tile(const float* const* pixels, int64_t taps, int64_t from, int64_t length,
          const float* panel, int64_t next, const float* bias, const Last* last, float* out,
          int64_t apart) {
  Vector sum[Rows][Vectors];
#pragma GCC unroll 16
  for (int r = 0; r < Rows; ++r) {
#pragma GCC unroll 4
    for (int v = 0; v < Vectors; ++v)
      sum[r][v] = load((bias != nullptr ? bias : out + r * apart) + v * kLanes);
  }
  for (int64_t t = 0; t < taps; ++t, pixels += kRows) {
    const float* row[Rows];
#pragma GCC unroll 16
    for (int r = 0; r < Rows; ++r) row[r] = pixels[r] + from;
#pragma GCC unroll 2
    for (int64_t k = 0; k < length; ++k, panel += kPanel) {
      Vector weights[Vectors];
#pragma GCC unroll 4
      for (int v = 0; v < Vectors; ++v)
        weights[v] = load(panel + v * kLanes / kPanel * next + v * kLanes % kPanel);
#pragma GCC unroll 16
      for (int r = 0; r < Rows; ++r) {
        const Vector pixel = row[r][k] - Vector{};
#pragma GCC unroll 4
        for (int v = 0; v < Vectors; ++v) sum[r][v] += pixel * weights[v];
      }
    }
  }
  if (last != nullptr && last->added != nullptr) {
#pragma GCC unroll 16
    for (int r = 0; r < Rows; ++r) {
#pragma GCC unroll 4
      for (int v = 0; v < Vectors; ++v) sum[r][v] += load(last->added + r * apart + v * kLanes);
    }
  }
  if (last != nullptr) {
#pragma GCC unroll 16
    for (int r = 0; r < Rows; ++r) {
#pragma GCC unroll 4
      for (int v = 0; v < Vectors; ++v) sum[r][v] = limited(sum[r][v], last->low, last->high);
    }
  }
#pragma GCC unroll 16
  for (int r = 0; r < Rows; ++r) {
#pragma GCC unroll 4
    for (int v = 0; v < Vectors; ++v) store(out + r * apart + v * kLanes, sum[r][v]);
  }
}

using Tile = void(const float* const*, int64_t, int64_t, int64_t, const float*, int64_t,
                  const float*, const Last*, float*, int64_t);

/* The tile of that many rows and vectors. */
template <int Rows = kRows, int Vectors = kColumns / kLanes>
Tile* tile_of(int64_t rows, int64_t vectors) {
  if constexpr (Rows == 1 && Vectors == 1) {
    return tile<1, 1>;
  } else if constexpr (Rows == 1) {
    return vectors >= Vectors ? tile<1, Vectors> : tile_of<1, Vectors - 1>(1, vectors);
  } else if (rows < Rows) {
    return tile_of<Rows - 1, Vectors>(rows, vectors);
  } else if constexpr (Vectors == 1) {
    return tile<Rows, 1>;
  } else {
    return vectors >= Vectors ? tile<Rows, Vectors> : tile_of<Rows, Vectors - 1>(rows, vectors);
  }
}

/* How many of `count` pixels are computed together, about `most`, in whole tiles: blocks are of one
 * size, so that no few pixels behind the others read the whole weight again. */
inline int64_t block_of(int64_t count, int64_t most) {
  const int64_t blocks = std::max<int64_t>(1, (count + most / 2) / most);
  return ((count + blocks - 1) / blocks + kRows - 1) / kRows * kRows;
}

}  // namespace relax2xla

#endif  // RELAX2XLA_PRODUCTS_TILE_H_
