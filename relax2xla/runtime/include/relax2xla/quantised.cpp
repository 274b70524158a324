/* Products with weights that are packed in groups: y = x * w^T, w read as its words.
 *
 * A row of `words` (uint32) has the values of one row of the weight, `32 / bits` a word, the first
 * in the lowest bits; `group` of them share a scale. A value q stands for (q - max) * scale, with
 * max = 2^(bits - 1) - 1. Sums are of float32: products of a group first, which then are scaled.
 */
#include <dlpack/dlpack.h>
#include <tvm/runtime/packed_func.h>

#if defined(__F16C__)
#include <immintrin.h>
#endif

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

namespace {

constexpr int kLanes = 16;
// Rows of x that share the unpacking of a word.
constexpr int kRows = 4;
typedef float Floats __attribute__((vector_size(kLanes * 4)));
typedef int32_t Ints __attribute__((vector_size(kLanes * 4)));

float widened(uint16_t half) {
  const uint32_t sign = (half & 0x8000u) << 16, exponent = (half >> 10) & 31, rest = half & 1023;
  uint32_t bits;
  if (exponent == 31) {
    bits = sign | 0x7f800000u | (rest << 13);
  } else if (exponent) {
    bits = sign | ((exponent + 112) << 23) | (rest << 13);
  } else {
    float small = rest * 5.9604644775390625e-8f;  // 2^-24
    std::memcpy(&bits, &small, 4);
    bits |= sign;
  }
  float made;
  std::memcpy(&made, &bits, 4);
  return made;
}

template <typename Scale>
float scale_of(Scale given);
template <>
inline float scale_of(float given) { return given; }
#if defined(__F16C__)
template <>
inline float scale_of(uint16_t given) { return _cvtsh_ss(given); }
#else
template <>
inline float scale_of(uint16_t given) { return widened(given); }
#endif

struct Sizes {
  int64_t rows, in, out, words, groups;
};

/* kBits: of a value; kWords: words of a group. */
template <int kBits, int kWords, int kCount, typename Scale>
void block(const Sizes& n, const float* x, const uint32_t* words, const Scale* scales, float* y,
           std::vector<Floats>& turned, std::vector<Floats>& scale) {
  constexpr int kPer = 32 / kBits;
  constexpr int32_t kMask = (1 << kBits) - 1, kMax = (1 << (kBits - 1)) - 1;
  const int64_t blocks = (n.words + kLanes - 1) / kLanes;
  // turned[(b * kPer + j) * kCount + i]: value j of each of the words of block b, of row i;
  // behind them what `max` takes from each word's sum.
  Floats* taken = turned.data() + blocks * kPer * kCount;
  std::memset(turned.data(), 0, sizeof(Floats) * blocks * (kPer + 1) * kCount);
  for (int i = 0; i < kCount; ++i) {
    for (int64_t k = 0; k < n.in; ++k) {
      const int64_t word = k / kPer, j = k % kPer;
      const int64_t b = word / kLanes, lane = word % kLanes;
      const float value = x[i * n.in + k];
      turned[(b * kPer + j) * kCount + i][lane] = value;
      taken[b * kCount + i][lane] -= kMax * value;
    }
  }
  float* wide = reinterpret_cast<float*>(scale.data());
  uint32_t last[kLanes];
  for (int64_t r = 0; r < n.out; ++r) {
    const uint32_t* row = words + r * n.words;
    const Scale* own = scales + r * n.groups;
    for (int64_t g = 0; g < n.groups; ++g) {
      const float s = scale_of<Scale>(own[g]);
      for (int l = 0; l < kWords; ++l) wide[g * kWords + l] = s;
    }
    Floats sums[kCount] = {};
    for (int64_t b = 0; b < blocks; ++b) {
      const uint32_t* from = row + b * kLanes;
      if ((b + 1) * kLanes > n.words) {
        std::memset(last, 0, sizeof(last));
        std::memcpy(last, from, sizeof(uint32_t) * (n.words - b * kLanes));
        from = last;
      }
      Ints packed;
      std::memcpy(&packed, from, sizeof(packed));
      Floats part[kCount];
      for (int i = 0; i < kCount; ++i) part[i] = taken[b * kCount + i];
      const Floats* given = turned.data() + b * kPer * kCount;
#pragma GCC unroll 10
      for (int j = 0; j < kPer; ++j) {
        const Floats value = __builtin_convertvector((packed >> (j * kBits)) & kMask, Floats);
        for (int i = 0; i < kCount; ++i) part[i] += value * given[j * kCount + i];
      }
      for (int i = 0; i < kCount; ++i) sums[i] += part[i] * scale[b];
    }
    for (int i = 0; i < kCount; ++i) {
      float sum = 0;
      for (int l = 0; l < kLanes; ++l) sum += sums[i][l];
      y[i * n.out + r] = sum;
    }
  }
}

template <int kBits, int kWords, typename Scale>
void product(const Sizes& n, const float* x, const uint32_t* words, const Scale* scales, float* y) {
  const int64_t blocks = (n.words + kLanes - 1) / kLanes;
  std::vector<Floats> turned(blocks * (32 / kBits + 1) * kRows), scale(blocks);
  int64_t i = 0;
  for (; i + kRows <= n.rows; i += kRows)
    block<kBits, kWords, kRows>(n, x + i * n.in, words, scales, y + i * n.out, turned, scale);
  for (; i < n.rows; ++i)
    block<kBits, kWords, 1>(n, x + i * n.in, words, scales, y + i * n.out, turned, scale);
}

template <typename Scale>
void by_bits(int bits, const Sizes& n, const float* x, const uint32_t* words, const Scale* scales,
             float* y) {
  switch (bits) {
    case 3: return product<3, 4>(n, x, words, scales, y);
    case 4: return product<4, 4>(n, x, words, scales, y);
    case 8: return product<8, 8>(n, x, words, scales, y);
    default: throw std::runtime_error("weights are of 3, 4 or 8 bits");
  }
}

int matmul(DLTensor* x, DLTensor* words, DLTensor* scales, int bits, DLTensor* y) {
  ICHECK_EQ(x->ndim, 2);
  const Sizes n{x->shape[0], x->shape[1], words->shape[0], words->shape[1], scales->shape[1]};
  const int64_t per = bits == 3 ? 4 : bits == 4 ? 4 : 8;
  ICHECK_EQ(n.words, n.groups * per) << "words of the rows and their groups do not agree";
  ICHECK_EQ(scales->shape[0], n.out);
  ICHECK(n.in <= n.words * (32 / bits));
  const auto* in = static_cast<const float*>(x->data);
  const auto* packed = static_cast<const uint32_t*>(words->data);
  auto* out = static_cast<float*>(y->data);
  if (tvm::DataType(scales->dtype) == tvm::DataType::Float(32))
    by_bits(bits, n, in, packed, static_cast<const float*>(scales->data), out);
  else
    by_bits(bits, n, in, packed, static_cast<const uint16_t*>(scales->data), out);
  return 0;
}

}  // namespace

TVM_DLL_EXPORT_TYPED_FUNC(relax2xla_quantised_matmul, matmul);
