/* Products of rows of small integers by packed columns, summed up in int32, exactly.
 *
 * Two ways, by the processor. "Bytes": uint8 by int8, four products an instruction (VNNI). "Words":
 * int16 by int16 in pairs, for all others; the zero points are taken away before, so that no
 * correction is needed, and no sum of two products saturates.
 *
 * Columns lie in panels of kColumns: a panel holds, step by step, kDepth numbers of each column.
 */
#ifndef RELAX2XLA_INTEGERS_PRODUCT_H_
#define RELAX2XLA_INTEGERS_PRODUCT_H_

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <vector>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#ifndef RELAX2XLA_BYTES
#define RELAX2XLA_BYTES 0
#endif
#ifndef RELAX2XLA_LANES
#define RELAX2XLA_LANES 8
#endif

namespace relax2xla_integers {

constexpr bool kBytes = RELAX2XLA_BYTES;
constexpr int kLanes = RELAX2XLA_LANES;
// Vectors of a panel, and rows that share the loading of them: as many as registers hold.
constexpr int kWide = kLanes == 16 ? 4 : 2;
constexpr int kRows = 6;
constexpr int kColumns = kLanes * kWide;
// What the sums of a step take of each row and column.
constexpr int kDepth = kBytes ? 4 : 2;

#if RELAX2XLA_BYTES
typedef uint8_t Left;
typedef int8_t Right;
#else
typedef int16_t Left;
typedef int16_t Right;
#endif

typedef int32_t Ints __attribute__((vector_size(4 * kLanes)));
typedef float Floats __attribute__((vector_size(4 * kLanes)));
typedef int16_t Shorts __attribute__((vector_size(4 * kLanes)));

/* Added to each lane of `sum` the products of its numbers. */
inline Ints plus_products(Ints sum, Ints left, Ints right) {
#if RELAX2XLA_BYTES && RELAX2XLA_LANES == 16 && defined(__AVX512VNNI__)
  return (Ints)_mm512_dpbusd_epi32((__m512i)sum, (__m512i)left, (__m512i)right);
#elif RELAX2XLA_BYTES && RELAX2XLA_LANES == 8 && defined(__AVXVNNI__)
  return (Ints)_mm256_dpbusd_avx_epi32((__m256i)sum, (__m256i)left, (__m256i)right);
#elif !RELAX2XLA_BYTES && RELAX2XLA_LANES == 16 && defined(__AVX512BW__)
  return sum + (Ints)_mm512_madd_epi16((__m512i)left, (__m512i)right);
#elif !RELAX2XLA_BYTES && RELAX2XLA_LANES == 8 && defined(__AVX2__)
  return sum + (Ints)_mm256_madd_epi16((__m256i)left, (__m256i)right);
#elif RELAX2XLA_BYTES
  for (int k = 0; k < 32; k += 8) sum += ((left >> k) & 255) * ((right << (24 - k)) >> 24);
  return sum;
#else
  return sum + ((left << 16) >> 16) * ((right << 16) >> 16) + (left >> 16) * (right >> 16);
#endif
}

/* Where rows of a product begin, and the parts of a row: from where, and how many steps. */
struct Rows {
  std::vector<const Left*> starts;
  std::vector<int64_t> parts;
  int64_t steps;   // of each part
  int64_t length;  // numbers of each part
};

/* Sums of kCount rows, from `from` on, by a panel: kColumns for each. */
template <int kCount>
void tile(const Rows& rows, int64_t from, const Right* right, int32_t* sums) {
  Ints made[kCount][kWide] = {};
  for (int64_t at : rows.parts) {
    const Left* own[kCount];
#pragma GCC unroll 8
    for (int i = 0; i < kCount; ++i) own[i] = rows.starts[from + i] + at;
#pragma GCC unroll 2
    for (int64_t k = 0; k < rows.steps; ++k, right += kColumns * kDepth) {
      Ints columns[kWide];
#pragma GCC unroll 4
      for (int v = 0; v < kWide; ++v)
        std::memcpy(&columns[v], right + v * kLanes * kDepth, sizeof(Ints));
#pragma GCC unroll 8
      for (int i = 0; i < kCount; ++i) {
        int32_t several;
        std::memcpy(&several, own[i] + k * kDepth, sizeof(several));
        const Ints row = Ints{} + several;
#pragma GCC unroll 4
        for (int v = 0; v < kWide; ++v) made[i][v] = plus_products(made[i][v], row, columns[v]);
      }
    }
  }
#pragma GCC unroll 8
  for (int i = 0; i < kCount; ++i)
#pragma GCC unroll 4
    for (int v = 0; v < kWide; ++v)
      std::memcpy(sums + i * kColumns + v * kLanes, &made[i][v], sizeof(Ints));
}

/* The same of `count` rows, at most kRows. */
inline void tile(const Rows& rows, int64_t from, int64_t count, const Right* right, int32_t* sums) {
  switch (count) {
    case 1: return tile<1>(rows, from, right, sums);
    case 2: return tile<2>(rows, from, right, sums);
    case 3: return tile<3>(rows, from, right, sums);
    case 4: return tile<4>(rows, from, right, sums);
    case 5: return tile<5>(rows, from, right, sums);
    default: return tile<kRows>(rows, from, right, sums);
  }
}

/* Bytes of the shape of the results that are added to these, `(bytes - point) * scale`. */
struct Rest {
  const uint8_t* data;
  // Where the results begin.
  const void* results;
  float scale;
  int32_t point;
  uint8_t flip;
};

/* What is made of the sums of a column: (sum + bias) * factor + addend + rest, and of that the
 * result.
 */
struct Ends {
  // Of all columns; factors and addends may be one for all, and there may be no addends.
  const int32_t* bias;
  const float* factors;
  int64_t factor_count;
  const float* addends;
  int64_t addend_count;
  // Of the right operand: zero points and sums of columns, where the left one keeps its own.
  const int32_t* right_points;
  const int32_t* right_sums;
  int32_t left_point;
  // Numbers that are summed up.
  int64_t depth;
  // Of the result: its zero point, and its limits without it.
  int32_t point;
  float low, high;
  Rest rest;
};

/* The ends of one panel, whose columns behind the last are whatever. */
struct PanelEnds {
  int32_t bias[kColumns] = {}, points[kColumns] = {};
  float factors[kColumns] = {}, addends[kColumns] = {};
  bool centred = true;

  PanelEnds(const Ends& ends, int64_t from, int64_t count) {
    for (int64_t i = 0; i < count; ++i) {
      const int64_t at = from + i;
      bias[i] = ends.bias ? ends.bias[at] : 0;
      if (ends.factors) factors[i] = ends.factors[ends.factor_count == 1 ? 0 : at];
      if (ends.addends) addends[i] = ends.addends[ends.addend_count == 1 ? 0 : at];
      if (!kBytes) continue;
      // Sums wrap around as those of int32 do.
      const auto point = static_cast<uint32_t>(ends.right_points[at]);
      const auto left = static_cast<uint32_t>(ends.left_point);
      const auto sum = static_cast<uint32_t>(ends.right_sums[at]);
      const auto taken = left * (sum - point * static_cast<uint32_t>(ends.depth));
      bias[i] = static_cast<int32_t>(static_cast<uint32_t>(bias[i]) - taken);
      points[i] = static_cast<int32_t>(point);
      centred &= point == 0;
    }
  }
};

inline Ints ints_of(const int32_t* from) {
  Ints made;
  std::memcpy(&made, from, sizeof(made));
  return made;
}

inline Floats floats_of(const float* from) {
  Floats made;
  std::memcpy(&made, from, sizeof(made));
  return made;
}

/* Whether any number is above a limit. */
inline bool is_any_above(Floats x, float limit) {
  const Floats least = Floats{} + limit;
#if RELAX2XLA_LANES == 8 && defined(__AVX2__)
  return _mm256_movemask_ps(_mm256_cmp_ps((__m256)x, (__m256)least, _CMP_GT_OQ));
#elif RELAX2XLA_LANES == 16 && defined(__AVX512F__)
  return _mm512_cmp_ps_mask((__m512)x, (__m512)least, _CMP_GT_OQ);
#else
  const Ints above = x > least;
  int32_t any = 0;
  for (int i = 0; i < kLanes; ++i) any |= above[i];
  return any;
#endif
}

/* a * b + c, rounded once where the processor does so in one step. */
inline Floats plus_product(Floats a, Floats b, Floats c) {
#if RELAX2XLA_LANES == 8 && defined(__FMA__)
  return (Floats)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)c);
#elif RELAX2XLA_LANES == 16 && defined(__AVX512F__)
  return (Floats)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c);
#else
  return a * b + c;
#endif
}

/* The nearest integers to numbers of at most 2^22, halves to even. */
inline Ints nearest(Floats x) {
#if RELAX2XLA_LANES == 16 && defined(__AVX512F__)
  return (Ints)_mm512_cvtps_epi32((__m512)x);
#else
  const Floats moved = x + 12582912.0f;
  Ints bits;
  std::memcpy(&bits, &moved, sizeof(bits));
  return bits - 0x4b400000;
#endif
}

/* Numbers in limits; what is no number becomes the lower one. */
inline Floats within(Floats x, float low, float high) {
  const Floats least = Floats{} + low, most = Floats{} + high;
  x = x > least ? x : least;
  return x < most ? x : most;
}

/* One vector of bytes. */
inline Ints bytes_of(const uint8_t* from, uint8_t flip) {
  typedef uint8_t Narrow __attribute__((vector_size(kLanes)));
  Narrow bytes;
  std::memcpy(&bytes, from, sizeof(bytes));
  // GCC takes wider vectors apart.
#if RELAX2XLA_LANES == 8 && defined(__AVX2__)
  return (Ints)_mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i*)&bytes)) ^ int32_t(flip);
#elif RELAX2XLA_LANES == 16 && defined(__AVX512F__)
  return (Ints)_mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i*)&bytes)) ^ int32_t(flip);
#else
  return __builtin_convertvector(bytes, Ints) ^ int32_t(flip);
#endif
}

/* One vector of bytes, less a zero point. */
inline Floats reals(const uint8_t* from, uint8_t flip, int32_t point) {
  return __builtin_convertvector(bytes_of(from, flip) - (point + flip), Floats);
}

inline void store(Ints from, int32_t* to) { std::memcpy(to, &from, sizeof(from)); }

inline void store(Floats from, float* to) { std::memcpy(to, &from, sizeof(from)); }

/* The lowest 8 bits of kWide vectors, which are those of int8 as well as of uint8. */
inline void store_bytes(const Ints* from, uint8_t* to) {
#if RELAX2XLA_LANES == 8 && defined(__AVX2__)
  const Ints mask = Ints{} + 255;
  // Halves of vectors are packed by themselves, so that quarters come out of order.
  const __m256i words = _mm256_permute4x64_epi64(
      _mm256_packus_epi32((__m256i)(from[0] & mask), (__m256i)(from[1] & mask)), 0xd8);
  _mm_storeu_si128((__m128i*)to, _mm_packus_epi16(_mm256_castsi256_si128(words),
                                                  _mm256_extracti128_si256(words, 1)));
#elif RELAX2XLA_LANES == 16 && defined(__AVX512BW__)
  const Ints mask = Ints{} + 255;
  // Quarters of vectors are packed by themselves, so that sixteenths come out of order.
  const __m512i low =
      _mm512_packus_epi32((__m512i)(from[0] & mask), (__m512i)(from[1] & mask));
  const __m512i high =
      _mm512_packus_epi32((__m512i)(from[2] & mask), (__m512i)(from[3] & mask));
  const __m512i order =
      _mm512_set_epi32(15, 11, 7, 3, 14, 10, 6, 2, 13, 9, 5, 1, 12, 8, 4, 0);
  _mm512_storeu_si512(to, _mm512_permutexvar_epi32(order, _mm512_packus_epi16(low, high)));
#else
  typedef uint8_t Narrow __attribute__((vector_size(kLanes)));
  for (int v = 0; v < kWide; ++v) {
    const Narrow made = __builtin_convertvector(from[v], Narrow);
    std::memcpy(to + v * kLanes, &made, sizeof(made));
  }
#endif
}

/* Results of `rows` rows from their sums, `count` columns of which are there.
 *
 * kKept: what is made of the sums is loaded once for all rows, of which there are many; for few it
 * takes less time to read it again.
 */
template <bool kKept, typename T>
void finish(const Ends& ends, const PanelEnds& own, const int32_t* sums, const int32_t* row_sums,
            int64_t rows, int64_t count, T* to, int64_t stride) {
  // Not read again for each row, as if results might lie there.
  const Rest added = ends.rest;
  const float low = ends.low, high = ends.high;
  const int32_t point = ends.point;
  const bool centred = own.centred, moved = ends.addends != nullptr;
  Ints bias[kWide];
  Floats factors[kWide], addends[kWide];
  auto load = [&](int v) __attribute__((always_inline)) {
    bias[v] = ints_of(own.bias + v * kLanes);
    factors[v] = floats_of(own.factors + v * kLanes);
    addends[v] = floats_of(own.addends + v * kLanes);
  };
  if constexpr (kKept) {
#pragma GCC unroll 4
    for (int v = 0; v < kWide; ++v) load(v);
  }
  for (int64_t i = 0; i < rows; ++i, sums += kColumns, to += stride) {
    T made[kColumns];
    T* results = count == kColumns ? to : made;
    uint8_t few[kColumns];
    const uint8_t* rest = nullptr;
    if (added.data) {
      rest = added.data + (to - static_cast<const T*>(added.results));
      if (count != kColumns) rest = static_cast<const uint8_t*>(std::memcpy(few, rest, count));
    }
    Ints whole[kWide];
#pragma GCC unroll 4
    for (int v = 0; v < kWide; ++v) {
      if constexpr (!kKept) load(v);
      Ints sum = ints_of(sums + v * kLanes) + bias[v];
      if (kBytes && !centred) sum -= row_sums[i] * ints_of(own.points + v * kLanes);
      if constexpr (std::is_same_v<T, int32_t>) {
        store(sum, results + v * kLanes);
      } else {
        Floats real = __builtin_convertvector(sum, Floats) * factors[v];
        if (moved) real += addends[v];
        if (rest) real += reals(rest + v * kLanes, added.flip, added.point) * added.scale;
        if constexpr (std::is_same_v<T, float>)
          store(real, results + v * kLanes);
        else
          whole[v] = nearest(within(real, low, high)) + point;
      }
    }
    if constexpr (sizeof(T) == 1) store_bytes(whole, results);
    if (count != kColumns) std::memcpy(to, made, sizeof(T) * count);
  }
}

}  // namespace relax2xla_integers

#endif  // RELAX2XLA_INTEGERS_PRODUCT_H_
