/* Numbers in registers that change places: rows and columns of blocks, and those of a vector. */
#ifndef RELAX2XLA_TURN_H_
#define RELAX2XLA_TURN_H_

#include <relax2xla/activations.h>

#include <utility>

namespace relax2xla {

#if defined(__has_builtin)
#if __has_builtin(__builtin_shufflevector)
#define RELAX2XLA_SHUFFLE(a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#endif
#endif
#ifndef RELAX2XLA_SHUFFLE
typedef int Places __attribute__((vector_size(4 * kLanes)));
#define RELAX2XLA_SHUFFLE(a, b, ...) __builtin_shuffle(a, b, Places{__VA_ARGS__})
#endif

/* Exchange rows and columns of blocks of `Size` numbers, and of smaller ones. What calls it has the
 * rows in registers, where loops over them are unrolled. */
template <int Size, int... Lane>
__attribute__((always_inline)) inline void turn(Vector* rows, std::integer_sequence<int, Lane...> lanes) {
#pragma GCC unroll 16
  for (int i = 0; i < kLanes; ++i) {
    if (i & Size) continue;
    const Vector a = rows[i], b = rows[i + Size];
    rows[i] = RELAX2XLA_SHUFFLE(a, b, (Lane & Size ? Lane - Size + kLanes : Lane)...);
    rows[i + Size] = RELAX2XLA_SHUFFLE(a, b, (Lane & Size ? Lane + kLanes : Lane + Size)...);
  }
  if constexpr (Size > 1) turn<Size / 2>(rows, lanes);
}

/* Of kLanes vectors. */
__attribute__((always_inline)) inline void turn(Vector* rows) {
  turn<kLanes / 2>(rows, std::make_integer_sequence<int, kLanes>{});
}

/* What an operation of two makes of all numbers of a vector, in each place. */
template <int Half, typename F, int... Lane>
__attribute__((always_inline)) inline Vector folded(Vector v, F both,
                                                    std::integer_sequence<int, Lane...> lanes) {
  v = both(v, RELAX2XLA_SHUFFLE(v, v, (Lane ^ Half)...));
  if constexpr (Half > 1) return folded<Half / 2>(v, both, lanes);
  return v;
}
template <typename F>
__attribute__((always_inline)) inline Vector folded(Vector v, F both) {
  return folded<kLanes / 2>(v, both, std::make_integer_sequence<int, kLanes>{});
}

#ifdef __AVX__
#ifdef __AVX512F__
using Quarters = __m512;
inline Quarters joined(const float* from, int64_t apart) {
  const auto quarter = [=](int64_t i) { return _mm_loadu_ps(from + i * apart); };
  __m512 made = _mm512_castps128_ps512(quarter(0));
  made = _mm512_insertf32x4(made, quarter(1), 1);
  made = _mm512_insertf32x4(made, quarter(2), 2);
  return _mm512_insertf32x4(made, quarter(3), 3);
}
inline Quarters unpacked_low(Quarters a, Quarters b) { return _mm512_unpacklo_ps(a, b); }
inline Quarters unpacked_high(Quarters a, Quarters b) { return _mm512_unpackhi_ps(a, b); }
inline Quarters halves_low(Quarters a, Quarters b) { return _mm512_shuffle_ps(a, b, 0x44); }
inline Quarters halves_high(Quarters a, Quarters b) { return _mm512_shuffle_ps(a, b, 0xee); }
#else
using Quarters = __m256;
inline Quarters joined(const float* from, int64_t apart) {
  return _mm256_insertf128_ps(_mm256_castps128_ps256(_mm_loadu_ps(from)), _mm_loadu_ps(from + apart), 1);
}
inline Quarters unpacked_low(Quarters a, Quarters b) { return _mm256_unpacklo_ps(a, b); }
inline Quarters unpacked_high(Quarters a, Quarters b) { return _mm256_unpackhi_ps(a, b); }
inline Quarters halves_low(Quarters a, Quarters b) { return _mm256_shuffle_ps(a, b, 0x44); }
inline Quarters halves_high(Quarters a, Quarters b) { return _mm256_shuffle_ps(a, b, 0xee); }
#endif
#endif

/* The sum of the numbers of a vector. */
inline float total(Vector v) {
  return folded(v, [](Vector x, Vector y) { return x + y; })[0];
}

/* `kLanes` rows of as many numbers, `apart` numbers from each other: vectors of their columns. */
__attribute__((always_inline)) inline void load_turned(const float* from, int64_t apart, Vector* columns) {
#ifdef __AVX__
  // Quarters, or halves, are joined while they are read: what is left to exchange lies within them, and
  // takes half as many instructions of those that one port alone has.
  for (int c = 0; c < kLanes; c += 4, from += 4) {
    Quarters row[4];
#pragma GCC unroll 4
    for (int r = 0; r < 4; ++r) row[r] = joined(from + r * apart, 4 * apart);
    const Quarters a = unpacked_low(row[0], row[1]), b = unpacked_low(row[2], row[3]);
    const Quarters d = unpacked_high(row[0], row[1]), e = unpacked_high(row[2], row[3]);
    columns[c] = (Vector)halves_low(a, b);
    columns[c + 1] = (Vector)halves_high(a, b);
    columns[c + 2] = (Vector)halves_low(d, e);
    columns[c + 3] = (Vector)halves_high(d, e);
  }
#else
#pragma GCC unroll 16
  for (int r = 0; r < kLanes; ++r) columns[r] = load(from + r * apart);
  turn(columns);
#endif
}

}  // namespace relax2xla

#endif  // RELAX2XLA_TURN_H_
