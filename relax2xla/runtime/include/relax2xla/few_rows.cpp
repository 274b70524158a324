/* Products of few rows with a weight, which is read once: y = x * w^T, all in float32.
 *
 * x (..., in), w (out, in), y (..., out). Of up to four rows the time is that of reading the weight,
 * which is asked for ahead; of more, what was read is multiplied with all rows while it is in the
 * nearest cache.
 */
#include <dlpack/dlpack.h>
#include <tvm/runtime/packed_func.h>

#include <cstdint>
#include <cstring>

namespace {

#if defined(__AVX512F__)
constexpr int kLanes = 16;
// Rows of w whose sums, with those of kRows rows of x, stay in registers.
constexpr int kOut = 4;
#else
constexpr int kLanes = 8;
constexpr int kOut = 3;
#endif
constexpr int kRows = 4;
// Floats of a line of the cache.
constexpr int kLine = 16;
typedef float Floats __attribute__((vector_size(4 * kLanes)));

inline Floats load(const float* from) {
  Floats made;
  std::memcpy(&made, from, sizeof(made));
  return made;
}

inline Floats part(const float* from, int64_t count) {
  Floats made = {};
  std::memcpy(&made, from, sizeof(float) * count);
  return made;
}

/* The sum of all lanes, by halves, which are vectors again. */
inline float total(Floats x) {
  float lanes[kLanes];
  std::memcpy(lanes, &x, sizeof(x));
#pragma GCC unroll 4
  for (int half = kLanes / 2; half; half /= 2)
    for (int i = 0; i < half; ++i) lanes[i] += lanes[i + half];
  return lanes[0];
}

/* kMany rows of x by kWide rows of w. `first`: they are the first that read these rows of w. */
template <int kMany, int kWide>
void tile(const float* x, const float* w, int64_t in, int64_t out, bool first, float* y) {
  Floats sums[kWide][kMany] = {};
  int64_t k = 0;
  for (; k + kLanes <= in; k += kLanes) {
    Floats read[kWide];
    for (int j = 0; j < kWide; ++j) {
      // Behind the end of w it is asked for in vain, which is no error.
      if (first && k % kLine == 0) __builtin_prefetch(w + (kWide + j) * in + k, 0, 2);
      read[j] = load(w + j * in + k);
    }
    for (int i = 0; i < kMany; ++i) {
      const Floats value = load(x + i * in + k);
      for (int j = 0; j < kWide; ++j) sums[j][i] += value * read[j];
    }
  }
  if (k < in) {
    for (int i = 0; i < kMany; ++i) {
      const Floats value = part(x + i * in + k, in - k);
      for (int j = 0; j < kWide; ++j) sums[j][i] += value * part(w + j * in + k, in - k);
    }
  }
  for (int i = 0; i < kMany; ++i)
    for (int j = 0; j < kWide; ++j) y[i * out + j] = total(sums[j][i]);
}

template <int kWide>
void rows(const float* x, const float* w, int64_t in, int64_t out, int64_t count, float* y) {
  int64_t i = 0;
  for (; i + kRows <= count; i += kRows)
    tile<kRows, kWide>(x + i * in, w, in, out, i == 0, y + i * out);
  const float* rest = x + i * in;
  float* made = y + i * out;
  if (count - i == 3) tile<3, kWide>(rest, w, in, out, i == 0, made);
  if (count - i == 2) tile<2, kWide>(rest, w, in, out, i == 0, made);
  if (count - i == 1) tile<1, kWide>(rest, w, in, out, i == 0, made);
}

int matmul(DLTensor* x, DLTensor* w, DLTensor* y) {
  ICHECK_EQ(w->ndim, 2);
  const int64_t out = w->shape[0], in = w->shape[1];
  int64_t count = 1;
  for (int i = 0; i + 1 < x->ndim; ++i) count *= x->shape[i];
  ICHECK_EQ(x->shape[x->ndim - 1], in);
  ICHECK_EQ(y->shape[y->ndim - 1], out);
  const auto* from = static_cast<const float*>(x->data);
  const auto* weight = static_cast<const float*>(w->data);
  auto* to = static_cast<float*>(y->data);
  int64_t o = 0;
  for (; o + kOut <= out; o += kOut) rows<kOut>(from, weight + o * in, in, out, count, to + o);
  for (; o < out; ++o) rows<1>(from, weight + o * in, in, out, count, to + o);
  return 0;
}

}  // namespace

TVM_DLL_EXPORT_TYPED_FUNC(relax2xla_few_rows, matmul);
