/* Products with weights that are packed in groups: y = x * w^T, w read as its words.
 *
 * A row of `words` (uint32) has the values of one row of the weight, `32 / bits` a word, the first
 * in the lowest bits; `group` of them share a scale. A value q stands for (q - max) * scale, with
 * max = 2^(bits - 1) - 1.
 *
 * Activations are rounded to integers of 16 bits, with a scale for each group of each row: half of
 * 1 / 32767 of the largest one there is the error. Sums within a group are of integers and exact;
 * groups are scaled and added in float32. Processors multiply pairs of such integers in one
 * instruction, and values of weights need no conversion.
 */
#include <dlpack/dlpack.h>
#include <tvm/runtime/packed_func.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

#if defined(__AVX2__)
#include <immintrin.h>
#endif
#if defined(__AVX512BW__) && defined(__AVX512VNNI__)
#define RELAX2XLA_WIDE
#endif

namespace {

// Words that are unpacked at once.
#if defined(RELAX2XLA_WIDE)
constexpr int kLanes = 16;
#else
constexpr int kLanes = 8;
#endif
// Rows of x that share the unpacking of a word.
constexpr int kRows = 4;
typedef float Floats __attribute__((vector_size(4 * kLanes)));
typedef int32_t Ints __attribute__((vector_size(4 * kLanes)));
typedef uint32_t Words __attribute__((vector_size(4 * kLanes)));
typedef int16_t Shorts __attribute__((vector_size(4 * kLanes)));
typedef uint16_t Halves __attribute__((vector_size(4 * kLanes)));

/* Added to each lane of `sum` the products of its two halves. */
inline Ints plus_pairs(Ints sum, Shorts a, Shorts b) {
#if defined(RELAX2XLA_WIDE)
  return (Ints)_mm512_dpwssd_epi32((__m512i)sum, (__m512i)a, (__m512i)b);
#elif defined(__AVX2__)
  return sum + (Ints)_mm256_madd_epi16((__m256i)a, (__m256i)b);
#else
  for (int i = 0; i < kLanes; ++i)
    sum[i] += int32_t(a[2 * i]) * b[2 * i] + int32_t(a[2 * i + 1]) * b[2 * i + 1];
  return sum;
#endif
}

/* Each of kLanes / kWords scales in the lanes of its kWords words. */
template <int kWords>
inline Floats spread(const float* scales) {
#if defined(RELAX2XLA_WIDE)
  if (kWords == 4)
    return (Floats)_mm512_permutexvar_ps(
        _mm512_set_epi32(3, 3, 3, 3, 2, 2, 2, 2, 1, 1, 1, 1, 0, 0, 0, 0),
        _mm512_castps128_ps512(_mm_loadu_ps(scales)));
  const __m512d low = _mm512_castps_pd(_mm512_set1_ps(scales[0]));
  const __m512d high = _mm512_castps_pd(_mm512_set1_ps(scales[1]));
  return (Floats)_mm512_mask_blend_pd(0xf0, low, high);
#elif defined(__AVX2__)
  if (kWords == 8) return (Floats)_mm256_broadcast_ss(scales);
  const __m256 low = _mm256_castps128_ps256(_mm_broadcast_ss(scales));
  return (Floats)_mm256_insertf128_ps(low, _mm_broadcast_ss(scales + 1), 1);
#else
  Floats made;
  for (int i = 0; i < kLanes; ++i) made[i] = scales[i / kWords];
  return made;
#endif
}

inline float total(Floats x) {
#if defined(RELAX2XLA_WIDE)
  return _mm512_reduce_add_ps((__m512)x);
#else
  float sum = 0;
  for (int l = 0; l < kLanes; ++l) sum += x[l];
  return sum;
#endif
}

/* Values `step` and `step + per / 2` of each word, in the low and the high half of its lane. */
template <int kBits>
inline Shorts unpacked(Words words, int step) {
  constexpr int kMask = (1 << kBits) - 1;
  if (kBits == 3) {
    const Words low = (words >> (3 * step)) & 7u, high = ((words << 1) >> (3 * step)) & 0x70000u;
    return (Shorts)(low | high);
  }
  return (Shorts)(((Halves)words >> (kBits * step)) & (uint16_t)kMask);
}

float widened(uint16_t half) {
  const uint32_t sign = (half & 0x8000u) << 16, exponent = (half >> 10) & 31, rest = half & 1023;
  if (exponent == 0) return (sign ? -1.0f : 1.0f) * rest * 5.9604644775390625e-8f;  // 2^-24
  const uint32_t bits =
      sign | (exponent == 31 ? 0x7f800000u : (exponent + 112) << 23) | (rest << 13);
  float made;
  std::memcpy(&made, &bits, 4);
  return made;
}

void widen(const uint16_t* from, int64_t count, float* to) {
  int64_t i = 0;
#if defined(__F16C__) && defined(__AVX2__)
  for (; i + 8 <= count; i += 8)
    _mm256_storeu_ps(to + i, _mm256_cvtph_ps(_mm_loadu_si128((const __m128i*)(from + i))));
#endif
  for (; i < count; ++i) to[i] = widened(from[i]);
}

struct Weight {
  int64_t in, out, words, groups;
  const uint32_t* packed;
  const void* scales;
  bool half;

  const float* scales_of(int64_t row, std::vector<float>& room) const {
    if (!half) return static_cast<const float*>(scales) + row * groups;
    widen(static_cast<const uint16_t*>(scales) + row * groups, groups, room.data());
    return room.data();
  }
};

/* kCount rows of x as `block` reads them: b, then step, then row. */
struct Given {
  std::vector<Shorts> values;
  // What `max` takes from the sums of each lane, and the scales of x.
  std::vector<Ints> taken;
  std::vector<Floats> scales;
};

/* The largest magnitude; infinite, or no number, where one is. */
inline float largest(const float* x, int64_t count) {
  uint32_t most = 0;  // magnitudes are ordered as their bits
  for (int64_t k = 0; k < count; ++k) {
    uint32_t bits;
    std::memcpy(&bits, x + k, sizeof(bits));
    most = std::max(most, bits & 0x7fffffffu);
  }
  float made;
  std::memcpy(&made, &most, sizeof(made));
  return made;
}

/* x * by, at most 32767, rounded: added to this number, its last bits are those of the integer. */
inline void rounded(const float* x, int64_t count, float by, int32_t* numbers) {
  constexpr float kMoved = 12582912.0f;
  for (int64_t k = 0; k < count; ++k) {
    const float moved = x[k] * by + kMoved;
    int32_t bits;
    std::memcpy(&bits, &moved, sizeof(bits));
    numbers[k] = std::max(-32767, std::min(32767, bits - 0x4b400000));
  }
}

template <int kBits, int kWords, int kCount>
void turn(const Weight& w, const float* const* x, Given& given) {
  constexpr int kPer = 32 / kBits, kSteps = kPer / 2, kGroup = kPer * kWords;
  constexpr int32_t kMax = (1 << (kBits - 1)) - 1;
  const int64_t blocks = (w.words + kLanes - 1) / kLanes;
  std::memset(given.values.data(), 0, sizeof(Shorts) * blocks * kSteps * kCount);
  std::memset(given.taken.data(), 0, sizeof(Ints) * blocks * kCount);
  std::memset(given.scales.data(), 0, sizeof(Floats) * blocks * kCount);
  for (int i = 0; i < kCount; ++i) {
    const float* row = x[i];
    for (int64_t g = 0; g < w.groups; ++g) {
      const int64_t from = g * kGroup, count = std::min<int64_t>(kGroup, w.in - from);
      const float most = largest(row + from, count);
      const bool finite = std::isfinite(most);
      // What is infinite or no number stays so in the result.
      const float scale = finite ? most / 32767.0f : NAN;
      int32_t numbers[kGroup] = {};
      if (finite && most > 0) rounded(row + from, count, 1 / scale, numbers);
      for (int k = 0; k < kWords; ++k) {
        const int64_t b = (g * kWords + k) / kLanes, lane = (g * kWords + k) % kLanes;
        const int32_t* own = numbers + k * kPer;
        int32_t sum = 0;
        for (int v = 0; v < kPer; ++v) {
          sum += own[v];
          given.values[(b * kSteps + v % kSteps) * kCount + i][2 * lane + v / kSteps] = own[v];
        }
        given.taken[b * kCount + i][lane] = -kMax * sum;
        given.scales[b * kCount + i][lane] = scale;
      }
    }
  }
}

template <int kBits, int kWords, int kCount>
void block(const Weight& w, const float* const* x, float* const* y, Given& given,
           std::vector<float>& room) {
  constexpr int kSteps = 32 / kBits / 2;
  turn<kBits, kWords, kCount>(w, x, given);
  const int64_t blocks = w.words / kLanes, rest = w.words % kLanes;
  // Not read again for each row, as if results might lie there.
  float* results[kCount];
  std::copy(y, y + kCount, results);
  for (int64_t r = 0; r < w.out; ++r) {
    const uint32_t* row = w.packed + r * w.words;
    const float* own = w.scales_of(r, room);
    Floats sums[kCount] = {};
    auto add = [&](const uint32_t* from, int64_t b, Floats scale) __attribute__((always_inline)) {
      Words words;
      std::memcpy(&words, from, sizeof(words));
      Ints part[kCount];
      for (int i = 0; i < kCount; ++i) part[i] = given.taken[b * kCount + i];
      const Shorts* values = given.values.data() + b * kSteps * kCount;
#pragma GCC unroll 5
      for (int step = 0; step < kSteps; ++step) {
        const Shorts weight = unpacked<kBits>(words, step);
        for (int i = 0; i < kCount; ++i)
          part[i] = plus_pairs(part[i], weight, values[step * kCount + i]);
      }
      for (int i = 0; i < kCount; ++i)
        sums[i] += __builtin_convertvector(part[i], Floats) * (scale * given.scales[b * kCount + i]);
    };
    constexpr int kScales = kLanes / kWords;
    for (int64_t b = 0; b < blocks; ++b)
      add(row + b * kLanes, b, spread<kWords>(own + b * kScales));
    if (rest) {
      uint32_t words[kLanes] = {};
      float scales[kScales] = {};
      std::memcpy(words, row + blocks * kLanes, sizeof(uint32_t) * rest);
      std::memcpy(scales, own + blocks * kScales, sizeof(float) * (rest / kWords));
      add(words, blocks, spread<kWords>(scales));
    }
    for (int i = 0; i < kCount; ++i) {
      results[i][r] = total(sums[i]);
    }
  }
}

template <int kBits, int kWords>
void product(const Weight& w, const float* const* x, int64_t rows, float* const* y) {
  constexpr int kSteps = 32 / kBits / 2;
  const int64_t blocks = (w.words + kLanes - 1) / kLanes * kRows;
  Given given{std::vector<Shorts>(blocks * kSteps), std::vector<Ints>(blocks),
              std::vector<Floats>(blocks)};
  std::vector<float> room(w.groups);
  int64_t i = 0;
  for (; i + kRows <= rows; i += kRows)
    block<kBits, kWords, kRows>(w, x + i, y + i, given, room);
  for (; i < rows; ++i) block<kBits, kWords, 1>(w, x + i, y + i, given, room);
}

void multiply(const Weight& w, const std::vector<const float*>& x, int bits,
              const std::vector<float*>& y) {
  const auto rows = static_cast<int64_t>(x.size());
  if (bits == 3) product<3, 4>(w, x.data(), rows, y.data());
  if (bits == 4) product<4, 4>(w, x.data(), rows, y.data());
  if (bits == 8) product<8, 8>(w, x.data(), rows, y.data());
}

/* The weight of the last two axes of words and scales, the first one where there are several. */
Weight weight_of(const DLTensor* words, const DLTensor* scales, int64_t in, int bits) {
  const int64_t *of = words->shape + words->ndim - 2, *by = scales->shape + scales->ndim - 2;
  const Weight w{in,
                 of[0],
                 of[1],
                 by[1],
                 static_cast<const uint32_t*>(words->data),
                 scales->data,
                 tvm::DataType(scales->dtype) == tvm::DataType::Float(16)};
  ICHECK(bits == 3 || bits == 4 || bits == 8) << "weights are of 3, 4 or 8 bits";
  ICHECK(w.half || tvm::DataType(scales->dtype) == tvm::DataType::Float(32));
  ICHECK_EQ(w.words, w.groups * (bits == 8 ? 8 : 4)) << "words and groups of a row do not agree";
  ICHECK_EQ(by[0], w.out);
  ICHECK(w.in <= w.words * (32 / bits));
  return w;
}

int matmul(DLTensor* x, DLTensor* words, DLTensor* scales, int bits, DLTensor* y) {
  ICHECK_EQ(x->ndim, 2);
  const Weight w = weight_of(words, scales, x->shape[1], bits);
  std::vector<const float*> from;
  std::vector<float*> to;
  for (int64_t i = 0; i < x->shape[0]; ++i) {
    from.push_back(static_cast<const float*>(x->data) + i * w.in);
    to.push_back(static_cast<float*>(y->data) + i * w.out);
  }
  multiply(w, from, bits, to);
  return 0;
}

/* y[i, j] = x[i, j] * w[which[i, j]]^T; x may have one j for all. Rows of one weight go together,
 * and a weight that nobody chose is not read.
 */
int chosen(DLTensor* x, DLTensor* words, DLTensor* scales, DLTensor* which, int bits,
           DLTensor* y) {
  ICHECK_EQ(x->ndim, 3);
  ICHECK_EQ(words->ndim, 3);
  ICHECK_EQ(words->shape[0], scales->shape[0]);
  Weight w = weight_of(words, scales, x->shape[2], bits);
  const int64_t several = which->shape[1], rows = which->shape[0] * several;
  const auto* number = static_cast<const int32_t*>(which->data);
  for (int64_t i = 0; i < rows; ++i)
    ICHECK(number[i] >= 0 && number[i] < words->shape[0]) << "there is no weight " << number[i];
  for (int32_t g = 0; g < words->shape[0]; ++g) {
    std::vector<const float*> from;
    std::vector<float*> to;
    for (int64_t i = 0; i < rows; ++i) {
      if (number[i] != g) continue;
      const int64_t row = x->shape[1] == 1 ? i / several : i;
      from.push_back(static_cast<const float*>(x->data) + row * w.in);
      to.push_back(static_cast<float*>(y->data) + i * w.out);
    }
    if (!from.empty()) multiply(w, from, bits, to);
    w.packed += w.out * w.words;
    w.scales = static_cast<const char*>(w.scales) + w.out * w.groups * (w.half ? 2 : 4);
  }
  return 0;
}

}  // namespace

TVM_DLL_EXPORT_TYPED_FUNC(relax2xla_quantised_matmul, matmul);
TVM_DLL_EXPORT_TYPED_FUNC(relax2xla_quantised_chosen, chosen);
