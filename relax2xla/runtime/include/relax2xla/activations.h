/* Vectors of float32, and what follows a sum in one call. */
#ifndef RELAX2XLA_ACTIVATIONS_H_
#define RELAX2XLA_ACTIVATIONS_H_

#ifdef __AVX__
#include <immintrin.h>
#endif

#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <vector>

namespace relax2xla {

#ifdef __AVX512F__
constexpr int kLanes = 16;
#else
constexpr int kLanes = 8;
#endif

typedef float Vector __attribute__((vector_size(4 * kLanes), aligned(4)));
typedef int32_t Integers __attribute__((vector_size(4 * kLanes)));

inline Vector load(const float* at) { return *reinterpret_cast<const Vector*>(at); }
inline void store(float* at, Vector v) { *reinterpret_cast<Vector*>(at) = v; }

/* The places of the numbers of a vector. */
inline Integers lanes() {
  Integers made;
  for (int i = 0; i < kLanes; ++i) made[i] = i;
  return made;
}

/* `count` numbers, fewer than a vector has; zeros behind them, where nothing is read. */
inline Vector load_first(const float* at, int count) {
#if defined(__AVX512F__)
  return (Vector)_mm512_maskz_loadu_ps(static_cast<__mmask16>((1u << count) - 1), at);
#elif defined(__AVX__)
  return (Vector)_mm256_maskload_ps(at, (__m256i)(lanes() < count));
#else
  Vector made = {};
  for (int i = 0; i < count; ++i) made[i] = at[i];
  return made;
#endif
}

/* The first `count` numbers of a vector; behind them nothing is written. */
inline void store_first(float* at, Vector v, int count) {
#if defined(__AVX512F__)
  _mm512_mask_storeu_ps(at, static_cast<__mmask16>((1u << count) - 1), (__m512)v);
#elif defined(__AVX__)
  _mm256_maskstore_ps(at, (__m256i)(lanes() < count), (__m256)v);
#else
  for (int i = 0; i < count; ++i) at[i] = v[i];
#endif
}

// Numbers of a line of the cache.
constexpr int64_t kLine = 16;

/* The first place from `from` on where a line of the cache begins: vectors there are in one. */
inline float* aligned(float* from) {
  constexpr auto kBytes = kLine * sizeof(float);
  const auto at = reinterpret_cast<uintptr_t>(from);
  return reinterpret_cast<float*>((at + kBytes - 1) / kBytes * kBytes);
}

/* Room for numbers, from the beginning of a line of the cache on, in memory that is kept. */
inline float* room(std::vector<float>& memory, int64_t numbers) {
  const auto needed = static_cast<size_t>(numbers + kLine);
  if (memory.size() < needed) memory.resize(needed);
  return aligned(memory.data());
}

/* As `ENDINGS` in kernels/products.py. */
enum Ending : int64_t {
  kNone = 0,
  kRelu = 1,
  kRelu6 = 2,
  kHardswish = 3,
  kSigmoid = 4,
  kSilu = 5,
  kGelu = 6,
  kGeluTanh = 7,
  kHardsigmoid = 8,
};

/* The larger and the smaller of two; of a `v` that is no number, `v`. Compilers take two
 * instructions for what has one. */
inline Vector larger(float bound, Vector v) {
#if defined(__AVX512F__)
  return (Vector)_mm512_max_ps(_mm512_set1_ps(bound), (__m512)v);
#elif defined(__AVX__)
  return (Vector)_mm256_max_ps(_mm256_set1_ps(bound), (__m256)v);
#else
  const Vector other = Vector{} + bound;
  return other > v ? other : v;
#endif
}
inline Vector smaller(float bound, Vector v) {
#if defined(__AVX512F__)
  return (Vector)_mm512_min_ps(_mm512_set1_ps(bound), (__m512)v);
#elif defined(__AVX__)
  return (Vector)_mm256_min_ps(_mm256_set1_ps(bound), (__m256)v);
#else
  const Vector other = Vector{} + bound;
  return other < v ? other : v;
#endif
}

/* What is no number stays so. */
inline Vector limited(Vector v, float low, float high) { return smaller(high, larger(low, v)); }

// Behind this number there are no digits but whole ones.
constexpr float kWhole = 12582912.0f;

/* 2 to the power of `shifted` - `kWhole`, times e to the power of `rest`, which is within 0.35; in
 * all from 2e-38 on. */
inline Vector power(Vector shifted, Vector rest) {
  // Taylor's series in pairs, which do not wait for each other.
  const Vector square = rest * rest;
  const Vector low = (rest + 1.0f) + square * (rest * (1.0f / 6) + 0.5f);
  const Vector last = rest * (1.0f / 5040) + 1.0f / 720;
  const Vector high = (rest * (1.0f / 120) + 1.0f / 24) + square * last;
  const Vector sum = square * square * high + low;
  return (Vector)((Integers)sum + ((Integers)shifted << 23));
}

/* e to the power of `v`, within 1e-7 of it; of less than -87 it is 1e-38. */
inline Vector exponential(Vector v) {
  v = limited(v, -87.0f, 88.0f);
  const Vector shifted = v * 1.44269504f + kWhole;
  const Vector whole = shifted - kWhole;
  return power(shifted, (v - whole * 0.693145752f) - whole * 1.42860677e-6f);
}

inline Vector sigmoid(Vector v) { return 1.0f / (1.0f + exponential(-v)); }

/* The hyperbolic tangent, within 3e-7 of its size. */
inline Vector tangent(Vector v) {
  // Near 0 a polynomial, with the least error at Chebyshev's points.
  const Vector square = v * v;
  const Vector low = square * 0.13325822f - 0.3333314f;
  const Vector high = square * 0.017235477f - 0.053042207f;
  const Vector near = v + v * square * (low + square * square * high);
  const Vector far = 1.0f - 2.0f / (1.0f + exponential(2.0f * v));
  return square < 0.25f ? near : far;
}

/* How much of the normal distribution lies beyond `v`, within 7e-8; of 0 to 9. */
inline Vector beyond(Vector v) {
  // Its logarithm to base 2 as a polynomial: that of least error by Lawson's method up to 5.5, where
  // nothing is left but 2e-8.
  const Vector square = v * v, fourth = square * square;
  const Vector first = (v * -1.15110572f - 0.999999978f) + square * (v * -0.0525050204f - 0.45920491f);
  const Vector last = (v * -1.45857208e-4f + 0.00707545752f) +
                      square * (v * 3.86223044e-5f - 1.82553913e-4f);
  const Vector exponent = first + fourth * (last + fourth * -2.77220073e-6f);
  const Vector shifted = exponent + kWhole;
  return power(shifted, (exponent - (shifted - kWhole)) * 0.693147181f);
}

inline Vector gelu(Vector v) {
  // Beyond 9 lie 1e-24: of what is farther the part is 0, also of infinity.
  const Vector size = smaller(9.0f, (Vector)((Integers)v & 0x7fffffff));
  return larger(0.0f, v) - size * beyond(size);
}

/* What follows, known to the compiler. */
template <int64_t Ending>
inline Vector activated(Vector v) {
  if constexpr (Ending == kRelu) return larger(0.0f, v);
  if constexpr (Ending == kRelu6) return limited(v, 0.0f, 6.0f);
  if constexpr (Ending == kHardswish) return v * limited(v + 3.0f, 0.0f, 6.0f) * (1.0f / 6.0f);
  if constexpr (Ending == kSigmoid) return sigmoid(v);
  if constexpr (Ending == kSilu) return v / (1.0f + exponential(-v));
  if constexpr (Ending == kGelu) return gelu(v);
  if constexpr (Ending == kGeluTanh)
    return v * sigmoid(1.59576912f * v * (1.0f + 0.044715f * v * v));
  if constexpr (Ending == kHardsigmoid) return limited(v + 3.0f, 0.0f, 6.0f) * (1.0f / 6.0f);
  return v;
}

/* `call` with the ending as a number of the compiler. */
template <int64_t Ending = kNone, typename F>
inline void with_ending(int64_t ending, F call) {
  if (ending == Ending) return call(std::integral_constant<int64_t, Ending>{});
  if constexpr (Ending < kHardsigmoid) with_ending<Ending + 1>(ending, call);
}

}  // namespace relax2xla

#endif  // RELAX2XLA_ACTIVATIONS_H_
