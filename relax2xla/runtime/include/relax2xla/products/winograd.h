/* 3x3 windows one pixel apart, by Winograd's minimal filtering.
 *
 * A patch of (Size + 2)^2 pixels makes Size^2 results: it is seen as polynomials, whose values at
 * some points are multiplied by those of the window. The points are 0, 1, -1 and infinity for
 * Size 2; 0, and both signs of sqrt(1/2) and sqrt(2), and infinity for Size 4, which keep rounding
 * small. The weight holds its values: [panels, points^2, channels, kPanel]. See S. Winograd,
 * Arithmetic Complexity of Computations, 1980; A. Lavin and S. Gray, arXiv:1509.09308.
 */
#ifndef RELAX2XLA_PRODUCTS_WINOGRAD_H_
#define RELAX2XLA_PRODUCTS_WINOGRAD_H_

#include <relax2xla/activations.h>
#include <relax2xla/products/tile.h>
#include <relax2xla/threads.h>

#include <algorithm>
#include <cstdint>
#include <vector>

namespace relax2xla {

/* The values of a line of pixels at the points. */
template <int Size>
inline void values_of(const Vector* d, Vector* v) {
  if constexpr (Size == 2) {
    v[0] = d[2] - d[0];
    v[1] = d[2] + d[1];
    v[2] = d[2] - d[1];
    v[3] = d[3] - d[1];
  } else {
    constexpr float kA = 0.707106781f, kB = 1.41421356f;
    const Vector a = d[4] - 2.0f * d[2], b = kA * (d[3] - 2.0f * d[1]);
    const Vector e = d[4] - 0.5f * d[2], f = kB * (d[3] - 0.5f * d[1]);
    v[0] = d[0] - 2.5f * d[2] + d[4];
    v[1] = a + b;
    v[2] = a - b;
    v[3] = e + f;
    v[4] = e - f;
    v[5] = d[1] - 2.5f * d[3] + d[5];
  }
}

/* A line of results of products at the points. */
template <int Size>
inline void results_of(const Vector* m, Vector* y) {
  if constexpr (Size == 2) {
    y[0] = m[0] + m[1] + m[2];
    y[1] = m[1] - m[2] + m[3];
  } else {
    constexpr float kA = 0.707106781f, kB = 1.41421356f;
    const Vector a = m[1] + m[2], b = kA * (m[1] - m[2]);
    const Vector e = m[3] + m[4], f = kB * (m[3] - m[4]);
    y[0] = m[0] + a + e;
    y[1] = b + f;
    y[2] = 0.5f * a + 2.0f * e;
    y[3] = 0.5f * b + 2.0f * f + m[5];
  }
}

template <int Size>
struct Winograd {
  static constexpr int kPoints = Size + 2, kAll = kPoints * kPoints, kColumns = kVectors * kLanes;
  // Numbers of the values of some patches, which the second cache holds, and of a panel; patches
  // that are worth reading the weight once more.
  static constexpr int64_t kNear = 72 * 1024, kDepth = 256, kLeast = 48;

  const float* image;
  const float* weight;
  const float* bias;
  const float* added;
  float* result;
  int64_t batch, height, width, channels, rows, columns, results, top, left, ending;

  int64_t down() const { return (rows + Size - 1) / Size; }
  int64_t across() const { return (columns + Size - 1) / Size; }

  /* The values of a patch, `apart` numbers from point to point; `nothing`: a pixel of zeros. */
  void transform(int64_t patch, const float* nothing, float* to, int64_t apart) const {
    const int64_t x = patch % across() * Size - left, line = patch / across();
    const int64_t y = line % down() * Size - top;
    const float* plane = image + line / down() * height * width * channels;
    const float* pixels[kPoints][kPoints];
    for (int i = 0; i < kPoints; ++i) {
      for (int j = 0; j < kPoints; ++j) {
        const bool inside = y + i >= 0 && y + i < height && x + j >= 0 && x + j < width;
        pixels[i][j] = inside ? plane + ((y + i) * width + x + j) * channels : nothing;
      }
    }
    for (int64_t c = 0; c < channels; c += kLanes) {
      Vector half[kPoints][kPoints];
#pragma GCC unroll 6
      for (int j = 0; j < kPoints; ++j) {
        Vector d[kPoints], v[kPoints];
#pragma GCC unroll 6
        for (int i = 0; i < kPoints; ++i) d[i] = load(pixels[i][j] + c);
        values_of<Size>(d, v);
#pragma GCC unroll 6
        for (int i = 0; i < kPoints; ++i) half[i][j] = v[i];
      }
#pragma GCC unroll 6
      for (int i = 0; i < kPoints; ++i) {
        Vector v[kPoints];
        values_of<Size>(half[i], v);
#pragma GCC unroll 6
        for (int j = 0; j < kPoints; ++j) store(to + (i * kPoints + j) * apart + c, v[j]);
      }
    }
  }

  /* Results of a patch in the columns of a panel, from products `apart` from point to point. */
  template <int64_t Ending>
  void finish(int64_t patch, int64_t column, int64_t wide, const float* from, int64_t apart) const {
    const int64_t x = patch % across() * Size, line = patch / across();
    const int64_t y = line % down() * Size, first = line / down() * rows;
    for (int64_t c = 0; c < wide; c += kLanes) {
      Vector half[Size][kPoints];
#pragma GCC unroll 6
      for (int j = 0; j < kPoints; ++j) {
        Vector m[kPoints], v[Size];
#pragma GCC unroll 6
        for (int i = 0; i < kPoints; ++i) m[i] = load(from + (i * kPoints + j) * apart + c);
        results_of<Size>(m, v);
#pragma GCC unroll 4
        for (int i = 0; i < Size; ++i) half[i][j] = v[i];
      }
      const Vector constant = load(bias + column + c);
      for (int i = 0; i < Size && y + i < rows; ++i) {
        Vector v[Size];
        results_of<Size>(half[i], v);
        const int64_t at = (((first + y + i) * columns + x) * results) + column + c;
        for (int j = 0; j < Size && x + j < columns; ++j) {
          Vector made = v[j] + constant;
          if (added != nullptr) made += load(added + at + j * results);
          store(result + at + j * results, activated<Ending>(made));
        }
      }
    }
  }

  /* Patches [from, to), columns [begin, end). */
  void run(int64_t from, int64_t to, int64_t begin, int64_t end,
           std::vector<float>& memory) const {
    const int64_t count = to - from;
    const int64_t stride = stride_of(channels);
    const int64_t of_values = count * stride, of_products = count * kColumns;
    const int64_t needed = kAll * (of_values + of_products) + channels + kColumns + kLine;
    if (static_cast<int64_t>(memory.size()) < needed) memory.resize(static_cast<size_t>(needed));
    float* values = aligned(memory.data());
    float* products = values + kAll * of_values;
    float* nothing = products + kAll * of_products;
    const float* zeros = nothing + channels;
    std::fill_n(nothing, channels + kColumns, 0.0f);
    for (int64_t p = 0; p < count; ++p)
      transform(from + p, nothing, values + p * stride, of_values);
    const int64_t next = kAll * channels * kPanel;
    for (int64_t column = begin; column < end; column += kColumns) {
      const int64_t wide = std::min<int64_t>(kColumns, end - column);
      const float* panel = weight + column / kPanel * next;
      for (int64_t point = 0; point < kAll; ++point, panel += channels * kPanel) {
        // The values of the window at the next point come nearer, a part with each tile.
        Tile tile = tile_of(count, wide / kLanes, stride);
        const int64_t tiles = (count + tile.rows - 1) / tile.rows;
        Ahead ahead = ahead_of(panel + channels * kPanel, tiles);
        for (int64_t p = 0; p < count; p += tile.rows) {
          if (count - p < tile.rows) tile = tile_of(count - p, tile.vectors, stride);
          const float* const pixels = values + point * of_values + p * stride;
          float* out = products + point * of_products + p * kColumns;
          for (int64_t c = 0; c < channels; c += kDepth) {
            tile.run(&pixels, 0, stride, 1, c, std::min(kDepth, channels - c), panel + c * kPanel,
                     next, c == 0 ? zeros : nullptr, nullptr, &ahead, out, kColumns);
          }
        }
      }
      with_ending(ending, [&](auto known) {
        for (int64_t p = 0; p < count; ++p) {
          finish<decltype(known)::value>(from + p, column, wide, products + p * kColumns,
                                         of_products);
        }
      });
    }
  }

  /* All results; `work`: multiplications that are worth a thread. */
  void compute(int64_t work) const {
    const int64_t patches = batch * down() * across();
    const int64_t most = std::max<int64_t>(kLeast, kNear / (kAll * channels));
    const int64_t each = block_of(patches, most), columns = (results + kColumns - 1) / kColumns;
    const Shares shares = shares_of((patches + each - 1) / each, columns,
                                    patches * kAll * channels * results / work);
    const Pieces pieces{patches, shares.pieces};
    each_part(shares.parts(), [&](int64_t part) {
      static thread_local std::vector<float> memory;
      const auto [first, beyond] = shares.band_of(part, columns);
      const int64_t begin = first * kColumns, end = std::min(results, beyond * kColumns);
      const int64_t piece = shares.piece_of(part), last = pieces.begin(piece + 1);
      const int64_t length = block_of(last - pieces.begin(piece), most);
      for (int64_t from = pieces.begin(piece); from < last; from += length)
        run(from, std::min(last, from + length), begin, end, memory);
    });
  }
};

}  // namespace relax2xla

#endif  // RELAX2XLA_PRODUCTS_WINOGRAD_H_
