/* 3x3 windows one pixel apart, by Winograd's minimal filtering.
 *
 * A patch of (Size + 2)^2 pixels makes Size^2 results: it is seen as polynomials, whose values at
 * some points are multiplied by those of the window. The points are 0, 1, -1 and infinity for
 * Size 2; 0, and both signs of sqrt(1/2) and sqrt(2), and infinity for Size 4, which keep rounding
 * small. The weight holds its values, [panels, points^2, channels, kPanel], or lies as windows do, of
 * which these are computed where they are multiplied (products/weights.h). See S. Winograd,
 * Arithmetic Complexity of Computations, 1980; A. Lavin and S. Gray, arXiv:1509.09308.
 */
#ifndef RELAX2XLA_PRODUCTS_WINOGRAD_H_
#define RELAX2XLA_PRODUCTS_WINOGRAD_H_

#include <relax2xla/activations.h>
#include <relax2xla/products/tile.h>
#include <relax2xla/products/weights.h>
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

/* A line of results of products at the points, which are divided by the distances of each from the
 * others. */
template <int Size>
inline void results_of(const Vector* m, Vector* y) {
  if constexpr (Size == 2) {
    y[0] = 0.5f * (m[1] + m[2]) - m[0];
    y[1] = 0.5f * (m[1] - m[2]) + m[3];
  } else {
    constexpr float kA = 0.235702260f, kB = 0.471404521f, kC = 1.0f / 3, kD = 1.0f / 6;
    const Vector a = m[1] + m[2], b = m[1] - m[2], e = m[3] + m[4], f = m[3] - m[4];
    y[0] = m[0] + (kD * e - 2 * kC * a);
    y[1] = kA * f - kB * b;
    y[2] = kC * (e - a);
    y[3] = m[5] + (kB * f - kA * b);
  }
}

/* The values of a line of a window at the points. */
template <int Size>
inline void values_of_window(const Vector* w, Vector* v) {
  v[0] = w[0];
  if constexpr (Size == 2) {
    const Vector a = w[0] + w[2];
    v[1] = a + w[1];
    v[2] = a - w[1];
    v[3] = w[2];
  } else {
    constexpr float kA = 0.707106781f, kB = 1.41421356f;
    const Vector a = w[0] + 0.5f * w[2], e = w[0] + 2.0f * w[2];
    v[1] = a + kA * w[1];
    v[2] = a - kA * w[1];
    v[3] = e + kB * w[1];
    v[4] = e - kB * w[1];
    v[5] = w[2];
  }
}

template <int Size>
struct Winograd {
  static constexpr int kPoints = Size + 2, kAll = kPoints * kPoints, kColumns = kVectors * kLanes;
  // Numbers of the values of some patches, which the second cache holds, and of a panel; patches
  // that are worth reading the weight once more.
  static constexpr int64_t kNear = 72 * 1024, kDepth = 256, kLeast = 48;

  const float* image;
  Weight weight;
  // What results are multiplied by, or none.
  const float* scale;
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
      const Vector factor = scale == nullptr ? Vector{} + 1.0f : load(scale + column + c);
      for (int i = 0; i < Size && y + i < rows; ++i) {
        Vector v[Size];
        results_of<Size>(half[i], v);
        const int64_t at = (((first + y + i) * columns + x) * results) + column + c;
        for (int j = 0; j < Size && x + j < columns; ++j) {
          Vector made = v[j] * factor + constant;
          if (added != nullptr) made += load(added + at + j * results);
          store(result + at + j * results, activated<Ending>(made));
        }
      }
    }
  }

  /* Numbers of a panel from a point to the next: those that are packed do not take each other's place in
   * the nearest cache. */
  int64_t apart() const { return channels * kPanel + (weight.is_packed() ? 0 : kLine); }

  /* The values of the windows of a panel at all points. */
  void transform_panel(int64_t column, float* to) const {
    constexpr int64_t kSome = 16;
    float windows[kSome * 9 * kPanel];
    for (int64_t from = 0; from < channels; from += kSome) {
      const int64_t count = std::min(kSome, channels - from);
      weight.pack_windows(column, from, count, windows);
      for (int64_t c = 0; c < count * kPanel; c += kLanes) {
        const float* const window = windows + c / kPanel * 9 * kPanel + c % kPanel;
        Vector half[kPoints][3];
#pragma GCC unroll 3
        for (int j = 0; j < 3; ++j) {
          Vector w[3], v[kPoints];
#pragma GCC unroll 3
          for (int i = 0; i < 3; ++i) w[i] = load(window + (3 * i + j) * kPanel);
          values_of_window<Size>(w, v);
#pragma GCC unroll 6
          for (int i = 0; i < kPoints; ++i) half[i][j] = v[i];
        }
#pragma GCC unroll 6
        for (int i = 0; i < kPoints; ++i) {
          Vector v[kPoints];
          values_of_window<Size>(half[i], v);
#pragma GCC unroll 6
          for (int j = 0; j < kPoints; ++j)
            store(to + (i * kPoints + j) * apart() + from * kPanel + c, v[j]);
        }
      }
    }
  }

  /* What comes nearer with the products at a point: the values of the next, or a part of the windows
   * of the columns behind these. */
  Ahead ahead(const float* panel, int64_t point, int64_t column, int64_t next, bool due,
              int64_t tiles) const {
    if (!due) return ahead_of(panel + apart(), next, tiles);
    if (point >= 9 || column >= results) return nothing_ahead(channels);
    return weight.coming(column, {point * channels, channels, channels}, tiles);
  }

  /* Patches [from, to), columns [begin, end), whose values are in `panels`, or become so if that is
   * `due`: those of all columns, or of a tile's. */
  void run(int64_t from, int64_t to, int64_t begin, int64_t end, float* panels, bool due, bool kept,
           std::vector<float>& memory) const {
    const int64_t count = to - from;
    const int64_t stride = stride_of(channels);
    const int64_t of_values = count * stride, of_products = count * kColumns;
    const int64_t needed = kAll * (of_values + of_products) + channels + kColumns;
    float* values = room(memory, needed);
    float* products = values + kAll * of_values;
    float* nothing = products + kAll * of_products;
    const float* zeros = nothing + channels;
    std::fill_n(nothing, channels + kColumns, 0.0f);
    for (int64_t p = 0; p < count; ++p)
      transform(from + p, nothing, values + p * stride, of_values);
    const int64_t next = kAll * apart();
    for (int64_t column = begin; column < end; column += kColumns) {
      const int64_t wide = std::min<int64_t>(kColumns, end - column);
      const float* panel = weight.numbers + column / kPanel * next;
      if (!weight.is_packed()) {
        float* const made = panels + (kept ? (column - begin) / kPanel * next : 0);
        for (int64_t c = 0; due && c < wide; c += kPanel)
          transform_panel(column + c, made + c / kPanel * next);
        panel = made;
      }
      for (int64_t point = 0; point < kAll; ++point, panel += apart()) {
        Tile tile = tile_of(count, wide / kLanes, stride);
        const int64_t tiles = (count + tile.rows - 1) / tile.rows;
        Ahead coming = ahead(panel, point, column + wide, next, due && !weight.is_packed(), tiles);
        for (int64_t p = 0, some; p < count; p += some * tile.rows) {
          if (count - p < tile.rows) tile = tile_of(count - p, tile.vectors, stride);
          some = (count - p) / tile.rows;
          const float* const pixels = values + point * of_values + p * stride;
          float* const out = products + point * of_products + p * kColumns;
          for (int64_t c = 0; c < channels; c += kDepth) {
            tile.compute(some,
                         {&pixels, 0, stride, 1, c, std::min(kDepth, channels - c),
                          panel + c * kPanel, next, c == 0 ? zeros : nullptr, nullptr, out, kColumns},
                         &coming);
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
      static thread_local std::vector<float> memory, packed;
      const auto [first, beyond] = shares.band_of(part, columns);
      const int64_t begin = first * kColumns, end = std::min(results, beyond * kColumns);
      const int64_t piece = shares.piece_of(part), last = pieces.begin(piece + 1);
      const int64_t length = block_of(last - pieces.begin(piece), most);
      const bool again = last - pieces.begin(piece) > length;
      const int64_t kept = again ? in_panels(end - begin) : kColumns;
      float* const panels = weight.is_packed() ? nullptr : room(packed, kAll * apart() * kept / kPanel);
      for (int64_t from = pieces.begin(piece); from < last; from += length) {
        const bool due = from == pieces.begin(piece);
        run(from, std::min(last, from + length), begin, end, panels, due, again, memory);
      }
    });
  }
};

}  // namespace relax2xla

#endif  // RELAX2XLA_PRODUCTS_WINOGRAD_H_
