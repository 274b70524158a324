/* Convolutions by groups that have too few results to fill a panel.
 *
 * Channels are interleaved: a panel has the numbers of all results of a group for `interleaved`
 * channels, those of each result side by side. So do these channels lie in the image, and one load
 * repeats them for all results. The sums of a result are added up in the end; results of some groups
 * fill a vector.
 */
#ifndef RELAX2XLA_PRODUCTS_INTERLEAVED_H_
#define RELAX2XLA_PRODUCTS_INTERLEAVED_H_

#include <relax2xla/activations.h>
#include <relax2xla/products/tile.h>
#include <relax2xla/turn.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <utility>

namespace relax2xla {

/* How many channels are interleaved, as `interleaving` in kernels/products.py; 1: none. */
inline int64_t interleaving_of(int64_t channels, int64_t results, int64_t groups) {
  const bool few = groups > 1 && (results == 4 || results == 8) && results * groups % kPanel == 0;
  return few && channels % (kPanel / results) == 0 ? kPanel / results : 1;
}

/* Groups that are computed together: those whose results fill a vector, if channels are interleaved. */
inline int64_t groups_beside(int64_t interleaved) {
  return std::max<int64_t>(1, kLanes * interleaved / kPanel);
}

/* `Beside` numbers, repeated. */
template <int Beside>
__attribute__((always_inline)) inline Vector repeated(const float* at) {
#if defined(__AVX512F__)
  if constexpr (Beside == 4) return (Vector)_mm512_broadcast_f32x4(_mm_loadu_ps(at));
#elif defined(__AVX__)
  if constexpr (Beside == 4) return (Vector)_mm256_broadcast_ps(reinterpret_cast<const __m128*>(at));
#endif
  if constexpr (Beside == 2) {
    typedef int64_t Pairs __attribute__((vector_size(4 * kLanes)));
    int64_t pair;
    std::memcpy(&pair, at, sizeof(pair));
    return (Vector)(Pairs{} + pair);
  }
  Vector made;
  for (int i = 0; i < kLanes; ++i) made[i] = at[i % Beside];
  return made;
}

/* The sums of pairs in two vectors. */
template <int... Lane>
__attribute__((always_inline)) inline Vector sums_of_pairs(Vector a, Vector b,
                                                           std::integer_sequence<int, Lane...>) {
  return RELAX2XLA_SHUFFLE(a, b, 2 * Lane...) + RELAX2XLA_SHUFFLE(a, b, (2 * Lane + 1)...);
}

/* The sums of each `Beside` neighbours in as many vectors. */
template <int Beside>
__attribute__((always_inline)) inline Vector added_up(const Vector* sums) {
  constexpr std::make_integer_sequence<int, kLanes> kAll{};
  if constexpr (Beside == 2) {
    return sums_of_pairs(sums[0], sums[1], kAll);
  } else {
    constexpr int kHalf = Beside / 2;
    return sums_of_pairs(added_up<kHalf>(sums), added_up<kHalf>(sums + kHalf), kAll);
  }
}

/* Each number of a vector `Beside` times, in as many vectors. */
template <int Beside, int Part = 0, int... Lane>
__attribute__((always_inline)) inline void spread(Vector v, Vector* to,
                                                  std::integer_sequence<int, Lane...> lanes) {
  to[Part] = RELAX2XLA_SHUFFLE(v, v, (Part * kLanes + Lane) / Beside...);
  if constexpr (Part + 1 < Beside) spread<Beside, Part + 1>(v, to, lanes);
}

/* A tile of `Rows` pixels by the results of groups that fill a vector. Of a strip `length` are the
 * channels of a group, which are `Own` unless that is 0, and the panels of the next group are `next`
 * numbers behind. */
template <int Beside, int Rows, int64_t Own>
void compute_interleaved(const Strip& strip) {
  // Vectors of a panel, and groups whose results fill one.
  constexpr int kParts = kPanel / kLanes, kGroups = Beside / kParts;
  Vector sum[Rows][Beside] = {};
  const float* const* under = strip.pixels;
  const float* panel = strip.panel;
  const int64_t length = Own > 0 ? Own : strip.length, next = strip.next;
  for (int64_t t = 0; t < strip.taps; ++t, under += strip.count) {
    const float* row[Rows];
#pragma GCC unroll 16
    for (int r = 0; r < Rows; ++r) row[r] = under[r] + strip.from;
    for (int64_t k = 0; k < length; k += Beside, panel += kPanel) {
#pragma GCC unroll 4
      for (int g = 0; g < kGroups; ++g) {
        Vector weights[kParts];
#pragma GCC unroll 2
        for (int v = 0; v < kParts; ++v) weights[v] = load(panel + g * next + v * kLanes);
#pragma GCC unroll 16
        for (int r = 0; r < Rows; ++r) {
          const Vector pixels = repeated<Beside>(row[r] + k + g * length);
#pragma GCC unroll 2
          for (int v = 0; v < kParts; ++v) sum[r][g * kParts + v] += pixels * weights[v];
        }
      }
    }
  }
  const Vector bias = load(strip.bias);
  const Last& last = *strip.last;
#pragma GCC unroll 16
  for (int r = 0; r < Rows; ++r) {
    Vector made = added_up<Beside>(sum[r]) + bias;
    if (last.added != nullptr) made += load(last.added + r * strip.apart);
    if (last.ending == kRelu) made = activated<kRelu>(made);
    if (last.ending == kRelu6) made = activated<kRelu6>(made);
    if (last.ending == kHardswish) made = activated<kHardswish>(made);
    store(strip.out + r * strip.apart, made);
  }
}

/* A tile's rows, and what computes it. */
struct InterleavedTile {
  void (*compute)(const Strip&);
  int64_t rows;
};

// The most rows of a tile: pointers to more of them would not stay in registers.
constexpr int kInterleavedRows = 8;

/* The largest tile for `rows` pixels, or fewer of them; groups have `channels` each. */
template <int Beside, int Rows = std::min(kInterleavedRows, kSums / Beside)>
InterleavedTile interleaved_tile_of(int64_t rows, int64_t channels) {
  if constexpr (Rows > 1) {
    if (rows < Rows) return interleaved_tile_of<Beside, Rows - 1>(rows, channels);
  }
  // Mostly there are as many channels as results: loops over so many are unrolled.
  constexpr int64_t kResults = kPanel / Beside;
  if (channels == kResults) return {compute_interleaved<Beside, Rows, kResults>, Rows};
  return {compute_interleaved<Beside, Rows, 0>, Rows};
}

inline InterleavedTile interleaved_tile_of(int64_t interleaved, int64_t rows, int64_t channels) {
  return interleaved == 2 ? interleaved_tile_of<2>(rows, channels)
                          : interleaved_tile_of<4>(rows, channels);
}

}  // namespace relax2xla

#endif  // RELAX2XLA_PRODUCTS_INTERLEAVED_H_
