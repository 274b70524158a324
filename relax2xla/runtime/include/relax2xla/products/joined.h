/* Matrices whose columns are those of several, one matrix behind the other, maybe prepared: numbers are
 * multiplied, added to and made positive as a batch norm with a relu does. Products gather the rows of a
 * block where they are needed, so that nothing is joined in memory. */
#ifndef RELAX2XLA_PRODUCTS_JOINED_H_
#define RELAX2XLA_PRODUCTS_JOINED_H_

#include <relax2xla/activations.h>

#include <algorithm>
#include <cstdint>
#include <vector>

namespace relax2xla {

struct Joined {
  struct Matrix {
    const float* numbers;
    int64_t columns;
  };
  std::vector<Matrix> matrices;
  // For each column of all, or neither.
  const float *scale = nullptr, *shift = nullptr;

  int64_t columns() const {
    int64_t all = 0;
    for (const Matrix& one : matrices) all += one.columns;
    return all;
  }

  /* Columns [begin, end) of `count` rows from `row` on, to rows that are `apart` numbers from each other. */
  void gather(int64_t begin, int64_t end, int64_t row, int64_t count, float* to, int64_t apart) const {
    int64_t first = 0;
    for (const Matrix& one : matrices) {
      const int64_t from = std::max(begin, first), behind = std::min(end, first + one.columns);
      const float* at = one.numbers + row * one.columns + from - first;
      float* out = to + from - begin;
      for (int64_t r = 0; from < behind && r < count; ++r, at += one.columns, out += apart) {
        if (scale == nullptr) std::copy_n(at, behind - from, out);
        else prepare(at, behind - from, scale + from, shift + from, out);
      }
      first += one.columns;
    }
  }

 private:
  static void prepare(const float* from, int64_t count, const float* scale, const float* shift,
                      float* to) {
    int64_t c = 0;
    for (; c + kLanes <= count; c += kLanes) {
      const Vector made = load(from + c) * load(scale + c) + load(shift + c);
      store(to + c, activated<kRelu>(made));
    }
    for (; c < count; ++c) {
      const float made = from[c] * scale[c] + shift[c];
      to[c] = made < 0.0f ? 0.0f : made;
    }
  }
};

}  // namespace relax2xla

#endif  // RELAX2XLA_PRODUCTS_JOINED_H_
