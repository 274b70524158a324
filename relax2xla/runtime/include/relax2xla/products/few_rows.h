/* Products of few rows, whose time is that of reading the weight: once, by turns from its first panel
 * to the last and back. What a call read last is what the next one reads first, so that a weight that
 * is a little larger than a cache, as those of recurrences are, is found there for the most part. */
#ifndef RELAX2XLA_PRODUCTS_FEW_ROWS_H_
#define RELAX2XLA_PRODUCTS_FEW_ROWS_H_

#include <relax2xla/activations.h>
#include <relax2xla/products/tile.h>
#include <relax2xla/threads.h>

#include <algorithm>
#include <cstdint>

namespace relax2xla {

constexpr int64_t kFewRows = 4;

/* Sums of `Rows` rows, `apart` numbers from each other, by `Vectors` vectors of weights that lie together
 * for each of `depth` numbers: as several that do not wait for each other, as far as registers hold them
 * beside others. `then`: the weights that are read next. */
template <int Rows, int Vectors>
__attribute__((always_inline)) inline void sums_of_rows(const float* rows, int64_t apart,
                                                        int64_t depth, const float* from,
                                                        const float* then,
                                                        Vector (&made)[Rows][Vectors]) {
  constexpr int kFit = kSums * 2 / 3 / (Rows * Vectors);
  constexpr int kParts = kFit >= 8 ? 8 : kFit >= 4 ? 4 : kFit >= 2 ? 2 : 1;
  // Numbers for each of those of a row, and numbers ahead of those that are read: as many as are on
  // their way from the last cache.
  constexpr int64_t kDeep = Vectors * kLanes, kComing = 1024;
  Vector sums[Rows][Vectors][kParts] = {};
  const float* ahead = from + kComing;
  const auto add = [&](int64_t k, int part) __attribute__((always_inline)) {
#pragma GCC unroll 4
    for (int64_t line = 0; line < kDeep; line += kLine) __builtin_prefetch(ahead + line, 0, 3);
#pragma GCC unroll 8
    for (int v = 0; v < Vectors; ++v) {
      const Vector read = load(from + v * kLanes);
#pragma GCC unroll 4
      for (int r = 0; r < Rows; ++r) sums[r][v][part] += read * rows[r * apart + k];
    }
    from += kDeep;
    ahead += kDeep;
  };
  const auto add_until = [&](int64_t k, int64_t end) __attribute__((always_inline)) {
    for (; k + kParts <= end; k += kParts) {
#pragma GCC unroll 8
      for (int part = 0; part < kParts; ++part) add(k + part, part);
    }
    for (; k < end; ++k) add(k, 0);
  };
  const int64_t behind = std::max<int64_t>(0, depth - kComing / kDeep) / kParts * kParts;
  add_until(0, behind);
  ahead = then;
  add_until(behind, depth);
#pragma GCC unroll 4
  for (int r = 0; r < Rows; ++r) {
#pragma GCC unroll 8
    for (int v = 0; v < Vectors; ++v) {
#pragma GCC unroll 4
      for (int half = kParts / 2; half > 0; half /= 2)
        for (int i = 0; i < half; ++i) sums[r][v][i] += sums[r][v][i + half];
      made[r][v] = sums[r][v][0];
    }
  }
}

struct FewRows {
  const float* rows;
  const float* weight;
  const float* bias;
  const float* added;
  float* out;
  int64_t depth, results, ending;

  // Vectors of a panel.
  static constexpr int kWide = kPanel / kLanes;
  // Numbers of a weight that are worth a thread, and of one of which no cache holds a part until the
  // next call.
  static constexpr int64_t kWorth = 24 * 1024, kLarge = 2 * 1024 * 1024;

  /* The results of a panel; `next`: the panel after it. */
  template <int Rows>
  void panel(int64_t at, int64_t next) const {
    Vector sums[Rows][kWide];
    const int64_t numbers = depth * kPanel;
    sums_of_rows<Rows, kWide>(rows, depth, depth, weight + at * numbers, weight + next * numbers,
                              sums);
    for (int r = 0; r < Rows; ++r) {
      float made[kPanel];
      for (int v = 0; v < kWide; ++v) store(made + v * kLanes, sums[r][v]);
      finish(r, at * kPanel, made);
    }
  }

  /* Bias, addition and what follows for a row of a panel. */
  void finish(int64_t row, int64_t column, float* made) const {
    const int64_t count = std::min<int64_t>(kPanel, results - column);
    float* const to = out + row * results + column;
    for (int64_t i = 0; i < count; ++i) made[i] += bias[column + i];
    if (added != nullptr) {
      for (int64_t i = 0; i < count; ++i) made[i] += added[row * results + column + i];
    }
    with_ending(ending, [&](auto known) {
      for (int v = 0; v < kPanel; v += kLanes)
        store(made + v, activated<decltype(known)::value>(load(made + v)));
    });
    std::copy_n(made, count, to);
  }

  /* A thread reads one part of the weight, so that it finds it in its own cache the next time. */
  template <int Rows>
  void compute() const {
    const int64_t panels = (results + kPanel - 1) / kPanel, numbers = panels * kPanel * depth;
    const int64_t parts = std::clamp<int64_t>(numbers / kWorth, 1, count_threads());
    each_part(parts, [&](int64_t part) {
      static thread_local bool back = false;
      back = !back && numbers <= kLarge;
      const int64_t begin = part * panels / parts, end = (part + 1) * panels / parts;
      for (int64_t i = begin; i < end; ++i) {
        const int64_t at = back ? begin + end - 1 - i : i;
        panel<Rows>(at, std::clamp(back ? at - 1 : at + 1, begin, end - 1));
      }
    });
  }

  /* `count` rows, at most kFewRows. */
  void compute(int64_t count) const {
    if (count == 1) compute<1>();
    if (count == 2) compute<2>();
    if (count == 3) compute<3>();
    if (count == 4) compute<4>();
  }
};

}  // namespace relax2xla

#endif  // RELAX2XLA_PRODUCTS_FEW_ROWS_H_
