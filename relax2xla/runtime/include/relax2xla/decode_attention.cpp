/* Attention of one new token of each sequence to the keys and values in a pool.
 *
 * The pool's rows (2 * kv_heads * slots, d) are keys and then values, head by head. Rows of a
 * sequence are read where they lie, once, and only those that its token sees: `table` (sequences,
 * keys) has their slots, `limits` (sequences, 1) the last one that is seen; from `window` on, 0 for
 * all, those before it are not. Scores become cap * tanh(score / cap), cap 0: they stay. q comes
 * scaled; a query that sees nothing gives zeros. All in float32.
 */
#include <dlpack/dlpack.h>
#include <tvm/runtime/packed_func.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <vector>

#if defined(__AVX2__)
#include <immintrin.h>
#endif

namespace {

// Features at once; GCC keeps wider vectors than the processor's in memory.
#if defined(__AVX512F__)
constexpr int kLanes = 16;
#else
constexpr int kLanes = 8;
#endif
// Vectors of 64 features, whose sums stay in registers.
constexpr int kWidest = 64 / kLanes;
// Floats of a line of the cache, and rows that are asked for ahead.
constexpr int kLine = 16;
constexpr int kAhead = 8;
typedef float Floats __attribute__((vector_size(4 * kLanes)));
typedef int32_t Ints __attribute__((vector_size(4 * kLanes)));

inline Floats load(const float* from) {
  Floats made;
  std::memcpy(&made, from, sizeof(made));
  return made;
}

inline Floats all(float x) { return Floats{} + x; }

/* The sum of all lanes, by halves, which are vectors again. */
inline float total(Floats x) {
  float lanes[kLanes];
  std::memcpy(lanes, &x, sizeof(x));
#pragma GCC unroll 4
  for (int half = kLanes / 2; half; half /= 2)
    for (int i = 0; i < half; ++i) lanes[i] += lanes[i + half];
  return lanes[0];
}

/* The sums of the lanes of four, one after the other. */
inline void totals(const Floats* sums, float* to) {
#if defined(__AVX2__)
  __m256 half[4];
  for (int j = 0; j < 4; ++j) {
#if defined(__AVX512F__)
    half[j] = _mm256_add_ps(_mm512_castps512_ps256((__m512)sums[j]),
                            _mm256_castpd_ps(_mm512_extractf64x4_pd((__m512d)sums[j], 1)));
#else
    half[j] = (__m256)sums[j];
#endif
  }
  const __m256 pairs = _mm256_hadd_ps(half[0], half[1]), others = _mm256_hadd_ps(half[2], half[3]);
  const __m256 quarters = _mm256_hadd_ps(pairs, others);
  _mm_storeu_ps(to, _mm_add_ps(_mm256_castps256_ps128(quarters),
                               _mm256_extractf128_ps(quarters, 1)));
#else
  for (int j = 0; j < 4; ++j) to[j] = total(sums[j]);
#endif
}

/* Numbers 1.0f to 0x1p-126f for x from 0 down; 0 below, and what is no number stays so.
 *
 * 2^n * e^r with |r| <= log(2) / 2 and six terms of the series: relative error below 3e-7.
 */
inline Floats exponential(Floats x) {
  const Floats turns = x * 1.44269504f;
  const Floats most = turns > -126.0f ? turns : all(-126.0f);
  const Ints n = __builtin_convertvector(most - 0.5f, Ints);
  const Floats whole = __builtin_convertvector(n, Floats);
  const Floats r = (x - whole * 0.693359375f) + whole * 2.12194440e-4f;
  Floats sum = all(1.0f / 720);
  for (float factor : {1.0f / 120, 1.0f / 24, 1.0f / 6, 0.5f, 1.0f, 1.0f}) sum = sum * r + factor;
  const Ints power = (n + 127) << 23;
  Floats scale;
  std::memcpy(&scale, &power, sizeof(scale));
  return x < -87.0f ? all(0.0f) : sum * scale;
}

/* A row is asked for, line by line, before it is read. */
inline void ask(const float* row, int64_t d) {
  for (int64_t k = 0; k < d; k += kLine) __builtin_prefetch(row + k);
}

/* kWide vectors of a row at once, so that sums of values stay in registers. */
template <int kWide>
void add_values(const float* weights, const int32_t* slots, int64_t count, const float* values,
                int64_t d, float* out) {
  Floats sums[kWide] = {};
  for (int64_t i = 0; i < count; ++i) {
    const float* row = values + slots[i] * d;
    if (i + kAhead < count) ask(values + slots[i + kAhead] * d, kWide * kLanes);
    for (int w = 0; w < kWide; ++w) sums[w] += weights[i] * load(row + w * kLanes);
  }
  std::memcpy(out, sums, sizeof(sums));
}

/* Scores of kTogether keys, whose sums run at the same time. Keys that come next are asked for. */
void add_scores(const float* query, const int32_t* slots, int64_t count, const float* keys,
                int64_t d, float* scores) {
  constexpr int kTogether = 4;
  int64_t i = 0;
  for (; i + kTogether <= count; i += kTogether) {
    const float* row[kTogether];
    for (int j = 0; j < kTogether; ++j) row[j] = keys + slots[i + j] * d;
    if (i + 3 * kTogether <= count)
      for (int j = 0; j < kTogether; ++j) ask(keys + slots[i + 2 * kTogether + j] * d, d);
    Floats sums[kTogether] = {};
    for (int64_t k = 0; k < d; k += kLanes) {
      const Floats part = load(query + k);
      for (int j = 0; j < kTogether; ++j) sums[j] += part * load(row[j] + k);
    }
    totals(sums, scores + i);
  }
  for (; i < count; ++i) {
    Floats sums = {};
    for (int64_t k = 0; k < d; k += kLanes) sums += load(query + k) * load(keys + slots[i] * d + k);
    scores[i] = total(sums);
  }
}

/* Weights in the place of scores, not divided yet; their sum. `count` is followed by room. */
float softened(float* scores, int64_t count, float cap) {
  float top = -std::numeric_limits<float>::infinity();
  for (int64_t i = 0; i < count; ++i) {
    if (cap != 0) scores[i] = cap * std::tanh(scores[i] / cap);
    top = std::max(top, scores[i]);
  }
  Floats sums = {};
  for (int64_t i = 0; i < count; i += kLanes) {
    // What is behind the last score weighs nothing.
    for (int64_t k = count; k < i + kLanes; ++k) scores[k] = -std::numeric_limits<float>::max();
    const Floats made = exponential(load(scores + i) - top);
    std::memcpy(scores + i, &made, sizeof(made));
    sums += made;
  }
  return total(sums);
}

int attend(DLTensor* q, DLTensor* pool, DLTensor* table, DLTensor* limits, int kv_heads,
           int64_t window, double cap, DLTensor* out) {
  const int64_t sequences = q->shape[0], heads = q->shape[1], d = q->shape[2];
  const int64_t keys = table->shape[1], slots = pool->shape[0] / (2 * kv_heads);
  const int64_t group = heads / kv_heads;
  ICHECK_EQ(d % kLanes, 0) << "features of a head must be a multiple of 16";
  ICHECK_EQ(d, pool->shape[1]);
  ICHECK_EQ(heads % kv_heads, 0);
  const auto* queries = static_cast<const float*>(q->data);
  const auto* rows = static_cast<const float*>(pool->data);
  std::vector<float> scores(keys + kLanes);
  for (int64_t b = 0; b < sequences; ++b) {
    const int64_t last = static_cast<const int32_t*>(limits->data)[b];
    const int64_t end = std::min(last + 1, keys);
    const int64_t first = window ? std::max<int64_t>(0, last + 1 - window) : 0;
    const int64_t count = std::max<int64_t>(0, end - first);
    const int32_t* seen = static_cast<const int32_t*>(table->data) + b * keys + first;
    for (int64_t h = 0; h < heads; ++h) {
      const float* query = queries + (b * heads + h) * d;
      const float* key = rows + h / group * slots * d;
      const float* value = key + kv_heads * slots * d;
      float* made = static_cast<float*>(out->data) + (b * heads + h) * d;
      if (count == 0) {
        std::fill(made, made + d, 0.0f);
        continue;
      }
      add_scores(query, seen, count, key, d, scores.data());
      const float sum = softened(scores.data(), count, static_cast<float>(cap));
      int64_t at = 0;
      for (; at + kWidest * kLanes <= d; at += kWidest * kLanes)
        add_values<kWidest>(scores.data(), seen, count, value + at, d, made + at);
      for (; at < d; at += kLanes)
        add_values<1>(scores.data(), seen, count, value + at, d, made + at);
      for (int64_t i = 0; i < d; ++i) made[i] /= sum;
    }
  }
  return 0;
}

}  // namespace

TVM_DLL_EXPORT_TYPED_FUNC(relax2xla_decode_attention, attend);
