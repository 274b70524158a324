/* Vectors of float32, and what follows a sum in one call. */
#ifndef RELAX2XLA_ACTIVATIONS_H_
#define RELAX2XLA_ACTIVATIONS_H_

#include <cstdint>
#include <type_traits>

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
};

/* What is no number stays so. */
inline Vector limited(Vector v, float low, float high) {
  const Vector least = Vector{} + low, most = Vector{} + high;
  v = v < least ? least : v;
  return v > most ? most : v;
}

/* e to the power of `v`, within 1e-7 of it; of less than -87 it is 1e-38. */
inline Vector exponential(Vector v) {
  v = limited(v, -87.0f, 88.0f);
  // Behind this number there are no digits but whole ones.
  const Vector magic = Vector{} + 12582912.0f;
  const Vector shifted = v * 1.44269504f + magic;
  const Vector whole = shifted - magic;
  const Vector rest = (v - whole * 0.693145752f) - whole * 1.42860677e-6f;
  // Taylor's series in pairs, which do not wait for each other.
  const Vector square = rest * rest;
  const Vector low = (rest + 1.0f) + square * (rest * (1.0f / 6) + 0.5f);
  const Vector last = rest * (1.0f / 5040) + 1.0f / 720;
  const Vector high = (rest * (1.0f / 120) + 1.0f / 24) + square * last;
  const Vector sum = square * square * high + low;
  const Integers power = (Integers)shifted << 23;
  const Integers scale = power + (127 << 23);
  return sum * (Vector)scale;
}

inline Vector sigmoid(Vector v) { return 1.0f / (1.0f + exponential(-v)); }

/* 1 minus the error function of what is 0 or more (Abramowitz and Stegun, 7.1.26). */
inline Vector complement_of_error(Vector v) {
  // Smaller numbers than those of 9 are multiplied slowly.
  v = limited(v, 0.0f, 9.0f);
  const Vector t = 1.0f / (1.0f + 0.3275911f * v);
  Vector sum = 1.061405429f * t - 1.453152027f;
  sum = sum * t + 1.421413741f;
  sum = sum * t - 0.284496736f;
  sum = sum * t + 0.254829592f;
  return sum * t * exponential(-v * v);
}

inline Vector gelu(Vector v) {
  const Vector zero = {};
  const Vector size = v < zero ? -v : v;
  // Of what is far from 0 the part is 0, also of infinity.
  const Vector part = 0.5f * limited(v, -13.0f, 13.0f) * complement_of_error(size * 0.707106781f);
  return v < zero ? part : v - part;
}

/* What follows, known to the compiler. */
template <int64_t Ending>
inline Vector activated(Vector v) {
  if constexpr (Ending == kRelu) return v < Vector{} ? Vector{} : v;
  if constexpr (Ending == kRelu6) return limited(v, 0.0f, 6.0f);
  if constexpr (Ending == kHardswish) return v * limited(v + 3.0f, 0.0f, 6.0f) * (1.0f / 6.0f);
  if constexpr (Ending == kSigmoid) return sigmoid(v);
  if constexpr (Ending == kSilu) return v * sigmoid(v);
  if constexpr (Ending == kGelu) return gelu(v);
  if constexpr (Ending == kGeluTanh)
    return v * sigmoid(1.59576912f * v * (1.0f + 0.044715f * v * v));
  return v;
}

/* `call` with the ending as a number of the compiler. */
template <int64_t Ending = kNone, typename F>
inline void with_ending(int64_t ending, F call) {
  if (ending == Ending) return call(std::integral_constant<int64_t, Ending>{});
  if constexpr (Ending < kGeluTanh) with_ending<Ending + 1>(ending, call);
}

}  // namespace relax2xla

#endif  // RELAX2XLA_ACTIVATIONS_H_
