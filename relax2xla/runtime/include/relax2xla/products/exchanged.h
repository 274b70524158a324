/* Products of few pixels with a weight that lies with its results first: with exchanged roles.
 *
 * Rows of the weight are read as they lie, in the place of pixels, and what windows see is laid out in
 * panels of pixels, in the place of the weight: that has far fewer numbers. Pixels that are too few for
 * a vector are added up along the rows, in as many parts as a vector has numbers.
 */
#ifndef RELAX2XLA_PRODUCTS_EXCHANGED_H_
#define RELAX2XLA_PRODUCTS_EXCHANGED_H_

#include <relax2xla/activations.h>
#include <relax2xla/products/tile.h>
#include <relax2xla/products/weights.h>
#include <relax2xla/threads.h>
#include <relax2xla/turn.h>

#include <algorithm>
#include <cstdint>
#include <vector>

namespace relax2xla {

/* Products of `Rows` rows, `stride` numbers from each other, with one, in parts; added to those of each
 * row in `sums`, `apart` numbers from each other. */
template <int Rows>
inline void add_along(const float* rows, int64_t stride, const float* by, int64_t length, float* sums,
                      int64_t apart) {
  Vector sum[Rows];
#pragma GCC unroll 16
  for (int r = 0; r < Rows; ++r) sum[r] = load(sums + r * apart);
  const auto add = [&](int64_t k, auto read) __attribute__((always_inline)) {
    const Vector other = read(by + k);
#pragma GCC unroll 16
    for (int r = 0; r < Rows; ++r) sum[r] += read(rows + r * stride + k) * other;
  };
  int64_t k = 0;
  for (; k + kLanes <= length; k += kLanes) add(k, load);
  if (const int rest = static_cast<int>(length - k); rest > 0)
    add(k, [=](const float* at) { return load_first(at, rest); });
#pragma GCC unroll 16
  for (int r = 0; r < Rows; ++r) store(sums + r * apart, sum[r]);
}

/* How pixels fill vectors: those of a number of pixels each, and then `alone` of one pixel each. */
struct Filled {
  int64_t vectors, alone;

  int64_t pixels() const { return vectors * kLanes; }
  /* Numbers of the sums of a result. */
  int64_t wide() const { return (vectors + alone) * kLanes; }
  int64_t panels() const { return (pixels() + kPanel - 1) / kPanel; }
};

inline Filled filled(int64_t pixels) {
  // One alone takes about as long as an eighth of a vector of two or three.
  constexpr int64_t kAlone = kLanes / 8;
  const int64_t rest = pixels % kLanes;
  if (rest > kAlone) return {pixels / kLanes + 1, 0};
  return {pixels / kLanes, rest};
}

struct Exchanged {
  // Numbers of each row for which pixels are laid out at once: they stay in the second cache. Rows that are
  // read again for the next pixels, at once where pixels are alone, and whose sums are kept for the next
  // numbers.
  static constexpr int64_t kDepth = 1152, kBlock = 48, kRows = 8, kBand = 43 * kBlock;

  // Vectors of a tile, which begins with a panel.
  static constexpr int64_t kMostVectors = kPanel == kLanes ? kVectors + 1 : kVectors;

  // Pixels under windows, tap by tap, each a row of `channels` numbers.
  const float* const* under;
  int64_t pixels, channels;
  Weight weight;
  const float* bias;
  const float* added;
  float* result;
  int64_t results, ending;

  /* Whether it takes less time than to pack the weight does. One core with AVX-512, beside that, of weights
   * that no near cache has: 3x3 windows on 7x7 pixels 0.75 to 0.8, on 1x1 to 8x8 0.5 to 0.95, on 10x10 1.04
   * to 1.13; matrices by 31 to 49 rows 0.75 to 1.0, by 2 to 18 0.85 to 1.3, by 64 1.0 to 1.15; by 64 to 128
   * with 1024, 2048 or 3072 numbers in a row 0.9 to 1.0. */
  static bool pays(const Weight& weight, int64_t pixels) {
    constexpr int64_t kMost = 64, kMostApart = 128;
    if (weight.lies != kResultsFirst) return false;
    if (weight.taps > 1) return pixels <= kMost;
    // Tiles read rows once, or these lie pages apart, which takes time to pack; and few numbers of vectors
    // are nobody's, or of pixels that are alone, which take as long.
    const Filled into = filled(pixels);
    const bool once = into.vectors <= kMostVectors || (collide(weight.depth()) && pixels <= kMostApart);
    return into.vectors >= kVectors && once && 10 * (into.pixels() + 4 * into.alone) <= 11 * pixels;
  }

  int64_t depth() const { return weight.depth(); }

  /* Some channels, under all taps, for results [begin, end): numbers [from, from + count) of each row, and
   * pixels for these. */
  struct Part {
    int64_t begin, end, channel, channels, from, count;
    float *panels, *alone;
  };

  /* Pixels in panels whose rows are in the order in which a row of the weight lies, and those alone as such
   * rows, one behind the other. */
  void lay_out(const Filled& into, const Part& part) const {
    const int64_t taps = weight.taps, all = into.pixels();
    for (int64_t p = 0; p < all; p += kLanes) {
      const int64_t count = std::min<int64_t>(kLanes, pixels - p);
      float* const made = part.panels + p / kPanel * part.count * kPanel + p % kPanel;
      float near[kLanes * kLanes] = {};
      for (int64_t c = 0; c < part.channels; c += kLanes) {
        const int some = static_cast<int>(std::min<int64_t>(kLanes, part.channels - c));
        for (int64_t tap = 0; tap < taps; ++tap) {
          const float* const* const seen = under + tap * pixels + p;
          for (int64_t i = 0; i < count; ++i)
            store(near + i * kLanes, load_first(seen[i] + part.channel + c, some));
          Vector block[kLanes];
          load_turned(near, kLanes, block);
          for (int i = 0; i < some; ++i) store(made + ((c + i) * taps + tap) * kPanel, block[i]);
        }
      }
    }
    for (int64_t p = all; p < pixels; ++p) {
      float* const made = part.alone + (p - all) * part.count;
      for (int64_t c = 0; c < part.channels; ++c) {
        for (int64_t tap = 0; tap < taps; ++tap)
          made[c * taps + tap] = under[tap * pixels + p][part.channel + c];
      }
    }
  }

  /* What comes nearer while `rows` rows are read: as many behind them, of this part or the next. */
  Ahead ahead(int64_t row, int64_t rows, int64_t vectors, const Part& part) const {
    int64_t next = row + rows, from = part.from;
    if (next >= part.end && from + part.count < depth()) {
      next = part.begin;
      from += part.count;
    } else if (next >= part.end) {
      from = 0;
    }
    if (next + rows > results) return nothing_ahead(part.count);
    const int64_t some = std::min(part.count, depth() - from);
    const int64_t streams = std::max<int64_t>(1, vectors * kLanes / kPanel);
    const int64_t each = (rows + streams - 1) / streams, lines = (some + kLine - 1) / kLine;
    const float* const at = weight.numbers + next * depth() + from;
    Ahead made = ahead_in(at, each * depth(), 1, some, depth());
    made.every = std::max<int64_t>(1, part.count / (each * lines));
    made.lines = (each * lines * made.every + part.count - 1) / part.count;
    return made;
  }

  /* Sums of results [begin, end), `wide` numbers for each, over a part of the depth. */
  void add(int64_t begin, int64_t end, const Filled& into, const Part& part, float* sums) const {
    static const float zeros[(kVectors + 1) * kLanes] = {};
    const int64_t wide = into.wide();
    const float* const start = part.from == 0 ? zeros : nullptr;
    for (int64_t v = 0, some; v < into.vectors; v += some) {
      // A tile of one vector takes longer than the sums of one more.
      some = std::min(into.vectors - v, kMostVectors);
      if (into.vectors - v == kMostVectors + 1) some = kVectors;
      const float* const panel = part.panels + v * kLanes / kPanel * part.count * kPanel;
      Tile tile = tile_of(kSums, some, depth());
      for (int64_t r = begin; r < end; r += tile.rows) {
        if (end - r < tile.rows) tile = tile_of(end - r, some, depth());
        const float* const row = weight.numbers + r * depth();
        Ahead coming = v == 0 ? ahead(r, tile.rows, some, part) : nothing_ahead(part.count);
        tile.compute(1,
                     {&row, 0, depth(), 1, part.from, part.count, panel, part.count * kPanel, start, nullptr,
                      sums + (r - begin) * wide + v * kLanes, wide},
                     &coming);
        // The rows are near now.
        if (v + some == into.vectors) add_alone(r, tile.rows, into, part, sums + (r - begin) * wide);
      }
    }
    if (into.vectors == 0) add_alone(begin, end - begin, into, part, sums);
  }

  /* The same of pixels alone, for `count` results. */
  void add_alone(int64_t row, int64_t count, const Filled& into, const Part& part, float* sums) const {
    const int64_t wide = into.wide();
    const float* const rows = weight.numbers + row * depth() + part.from;
    for (int64_t p = 0; p < into.alone; ++p) {
      float* const made = sums + into.pixels() + p * kLanes;
      const float* const by = part.alone + p * part.count;
      for (int64_t r = 0; part.from == 0 && r < count; ++r) store(made + r * wide, Vector{});
      int64_t r = 0;
      for (; r + kRows <= count; r += kRows)
        add_along<kRows>(rows + r * depth(), depth(), by, part.count, made + r * wide, wide);
      for (; r < count; ++r)
        add_along<1>(rows + r * depth(), depth(), by, part.count, made + r * wide, wide);
    }
  }

  /* Results [begin, end) from their sums. */
  template <int64_t Ending>
  void finish(int64_t begin, int64_t end, const Filled& into, const float* sums) const {
    const int64_t all = into.pixels(), wide = into.wide();
    for (int64_t r = begin; r < end; r += kLanes) {
      const int count = static_cast<int>(std::min<int64_t>(kLanes, end - r));
      const Vector shift = load_first(bias + r, count);
      const Vector scale = weight.scale == nullptr ? Vector{} + 1.0f : load_first(weight.scale + r, count);
      const auto give = [&](int64_t p, Vector sum) __attribute__((always_inline)) {
        const int64_t at = p * results + r;
        sum = sum * scale + shift;
        if (added != nullptr) sum += load_first(added + at, count);
        store_first(result + at, activated<Ending>(sum), count);
      };
      const float* const from = sums + (r - begin) * wide;
      Vector block[kLanes];
      for (int64_t p = 0; p < all; p += kLanes) {
        load_turned(from + p, wide, block);
        for (int64_t i = 0; i < kLanes && p + i < pixels; ++i) give(p + i, block[i]);
      }
      for (int64_t p = all; p < pixels; ++p) {
        load_turned(from + all + (p - all) * kLanes, wide, block);
        for (int i = 1; i < kLanes; ++i) block[0] += block[i];
        give(p, block[0]);
      }
    }
  }

  /* All results; `work`: multiplications that are worth a thread. */
  void compute(int64_t work) const {
    static thread_local std::vector<float> memory;
    const Filled into = filled(pixels);
    const int64_t most = std::max<int64_t>(1, kDepth / weight.taps / kLanes) * kLanes;
    const int64_t each = even_part(channels, most, kLanes);
    // The rows that are turned last are as many as a vector has numbers.
    const int64_t rows = std::min(kBand, (results + kBlock - 1) / kBlock * kBlock);
    const int64_t of_panels = into.panels() * kPanel * each * weight.taps, of_sums = rows * into.wide();
    float* const panels = room(memory, of_panels + of_sums + into.alone * each * weight.taps);
    float *const sums = panels + of_panels, *const alone = sums + of_sums;
    for (int64_t band = 0; band < results; band += kBand) {
      const int64_t beyond = std::min(results, band + kBand), blocks = (beyond - band + kBlock - 1) / kBlock;
      for (int64_t c = 0; c < channels; c += each) {
        const int64_t some = std::min(each, channels - c);
        const Part part{band, beyond, c, some, c * weight.taps, some * weight.taps, panels, alone};
        lay_out(into, part);
        const int64_t least = work / (kBlock * pixels * part.count) + 1;
        in_ranges(blocks, least, [&](int64_t first, int64_t behind) {
          for (int64_t block = first; block < behind; ++block) {
            const int64_t begin = band + block * kBlock, end = std::min(beyond, begin + kBlock);
            float* const made = sums + block * kBlock * into.wide();
            add(begin, end, into, part, made);
            if (c + some < channels) continue;
            with_ending(ending,
                        [&](auto known) { finish<decltype(known)::value>(begin, end, into, made); });
          }
        });
      }
    }
  }
};

}  // namespace relax2xla

#endif  // RELAX2XLA_PRODUCTS_EXCHANGED_H_
