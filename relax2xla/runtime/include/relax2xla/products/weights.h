/* Weights of products as calls are given them: in panels, or as they lie.
 *
 * Of a weight that lies with its results last, [taps, channels, results], or first, [results,
 * channels, taps], or with its windows turned, [channels, results, taps from the last to the first], a
 * panel is packed into memory of the thread right before tiles read it: that reads what has to be read
 * anyway, and writes where it is near.
 */
#ifndef RELAX2XLA_PRODUCTS_WEIGHTS_H_
#define RELAX2XLA_PRODUCTS_WEIGHTS_H_

#include <relax2xla/activations.h>
#include <relax2xla/products/tile.h>
#include <relax2xla/turn.h>

#include <algorithm>
#include <cstdint>
#include <vector>

namespace relax2xla {

/* As `LIES` in kernels/products.py. */
enum Lies : int64_t { kInPanels = 0, kResultsLast = 1, kResultsFirst = 2, kTurned = 3 };

/* Numbers [from, from + count) of each result in the order in which they lie; where those under other
 * taps are neighbours, of as many `channels`. */
struct Stretch {
  int64_t from, count, channels;
};

struct Weight {
  const float* numbers;
  int64_t lies;
  // What the numbers of each result are multiplied by where they are packed, or none.
  const float* scale;
  int64_t taps, channels, results;

  int64_t depth() const { return taps * channels; }
  bool is_packed() const { return lies == kInPanels; }
  /* Whether neighbours are under other taps. */
  bool taps_last() const { return lies == kTurned || (lies == kResultsFirst && taps > 1); }

  /* Numbers [from, from + count) of each result, in the order in which they lie, of the panel that
   * begins with result `column`, `apart` rows of the panel from each other. */
  void pack(int64_t column, int64_t from, int64_t count, float* to, int64_t apart = 1) const {
    if (lies == kTurned) {
      pack_turned(column, from, count, to, apart * kPanel);
      return;
    }
    const int64_t wide = std::min<int64_t>(kPanel, results - column), end = from + count;
    const int64_t along = lies == kResultsLast ? results : 1;
    const int64_t across = lies == kResultsLast ? 1 : depth();
    const float* const first = numbers + column * across;
    const int64_t pitch = apart * kPanel;
    int64_t i = from;
    if (wide == kPanel) {
      Vector factors[kHalves];
      for (int v = 0; v < kHalves; ++v)
        factors[v] = scale == nullptr ? Vector{} + 1.0f : load(scale + column + v * kLanes);
      if (lies == kResultsLast) {
        for (; i < end; ++i, to += pitch) {
          for (int v = 0; v < kHalves; ++v)
            store(to + v * kLanes, load(first + i * along + v * kLanes) * factors[v]);
        }
      }
      // Rows that take each other's place in the nearest cache: some lines of one vector of results, and
      // then of the others.
      const int64_t run = collide(across) ? kRun : kLanes;
      for (int64_t until; i + kLanes <= end; to += (until - i) * pitch, i = until) {
        until = i + std::min(run, (end - i) / kLanes * kLanes);
        for (int v = 0; v < kHalves; ++v) {
          for (int64_t at = i; at < until; at += kLanes) {
            Vector block[kLanes];
            load_turned(first + v * kLanes * across + at, across, block);
            float* const made = to + (at - i) * pitch + v * kLanes;
#pragma GCC unroll 16
            for (int k = 0; k < kLanes; ++k) store(made + k * pitch, block[k] * factors[v]);
          }
        }
      }
    }
    for (; i < end; ++i, to += pitch) {
      for (int64_t r = 0; r < wide; ++r)
        to[r] = first[r * across + i * along] * (scale == nullptr ? 1.0f : scale[column + r]);
      std::fill(to + wide, to + kPanel, 0.0f);
    }
  }

  /* The panels of columns [begin, begin + wide), `next` numbers from each other, that hold a stretch. */
  void pack_panels(int64_t begin, int64_t wide, const Stretch& stretch, float* to,
                   int64_t next) const {
    for (int64_t column = begin; column < begin + wide && column < results; column += kPanel) {
      if (taps_last()) {
        pack_taps(column, stretch, to);
      } else {
        pack(column, stretch.from, stretch.count, to);
      }
      to += next;
    }
  }

  /* The windows of 3x3 numbers of channels [from, from + count) of a panel, tap after tap. */
  void pack_windows(int64_t column, int64_t from, int64_t count, float* to) const {
    if (lies != kResultsLast) {
      pack(column, 9 * from, 9 * count, to);
      return;
    }
    for (int64_t tap = 0; tap < 9; ++tap)
      pack(column, tap * channels + from, count, to + tap * kPanel, 9);
  }

  /* What is read to pack a stretch of panels from `column` on, in the time of some tiles. */
  Ahead coming(int64_t column, const Stretch& stretch, int64_t tiles) const {
    if (lies == kResultsLast)
      return ahead_in(numbers + stretch.from * results + column, kPanel, tiles, kPanel, results);
    if (lies == kTurned) {
      const int64_t from = stretch.from / taps * results + column;
      return ahead_in(numbers + from * taps, kPanel * taps, tiles, kPanel * taps, results * taps);
    }
    const float* const at = numbers + column * depth() + stretch.from;
    return ahead_in(at, kPanel * depth(), tiles, stretch.count, depth());
  }

 private:
  /* Of a weight with turned windows: each channel has those of all results. */
  void pack_turned(int64_t column, int64_t from, int64_t count, float* to, int64_t pitch) const {
    const int64_t wide = std::min<int64_t>(kPanel, results - column);
    float factors[kPanel];
    for (int64_t r = 0; r < wide; ++r) factors[r] = scale == nullptr ? 1.0f : scale[column + r];
    for (int64_t i = from; i < from + count; ++i, to += pitch) {
      const float* const first = numbers + (i / taps * results + column + 1) * taps - 1 - i % taps;
      for (int64_t r = 0; r < wide; ++r) to[r] = first[r * taps] * factors[r];
      std::fill(to + wide, to + kPanel, 0.0f);
    }
  }

  /* A stretch of a panel tap by tap: some channels as they lie, then in their order. */
  void pack_taps(int64_t column, const Stretch& stretch, float* to) const {
    // A third of the nearest cache, which has what is read and written as well; 16 windows of 3x3.
    constexpr int64_t kNear = 160;
    float near[kNear * kPanel];
    const int64_t most = kNear / taps >= kLine ? kNear / taps / kLine * kLine : kNear / taps;
    const int64_t some = std::clamp<int64_t>(most, 1, stretch.channels);
    for (int64_t c = 0; c < stretch.channels; c += some) {
      const int64_t count = std::min(some, stretch.channels - c);
      if (count * taps > kNear) {
        // A window of so many taps is copied number by number.
        for (int64_t tap = 0; tap < taps; ++tap)
          pack(column, stretch.from + c * taps + tap, 1, to + (tap * stretch.channels + c) * kPanel);
        continue;
      }
      pack(column, stretch.from + c * taps, count * taps, near);
      for (int64_t tap = 0; tap < taps; ++tap) {
        float* const made = to + (tap * stretch.channels + c) * kPanel;
        for (int64_t i = 0; i < count; ++i) {
          for (int v = 0; v < kPanel; v += kLanes)
            store(made + i * kPanel + v, load(near + (i * taps + tap) * kPanel + v));
        }
      }
    }
  }

  static constexpr int kHalves = kPanel / kLanes;
  // Numbers of each result that are packed together.
  static constexpr int64_t kRun = 8 * kLine;
};

}  // namespace relax2xla

#endif  // RELAX2XLA_PRODUCTS_WEIGHTS_H_
