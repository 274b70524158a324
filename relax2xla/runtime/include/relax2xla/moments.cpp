/* Mean and variance of each channel, the two sums that gradients of norms are made of, and the gradient of
 * a batch norm, whose channels stay in the caches from their sums on.
 *
 * Numbers are float32, [outer, channels, inner]: what is added up is along the first axis and the last.
 * Without an inner axis rows of channels are read in blocks that the second cache holds: the squares of
 * what is left without a mean are added up there, and blocks are joined by their means and variances.
 * These means are of what numbers are more than the first row has. A mean is a sum, rounded: what it is
 * beside the exact one is the mean of what is left, which is found on the way. So numbers far from 0 lose
 * no digits.
 */
#include <dlpack/dlpack.h>
#include <relax2xla/activations.h>
#include <relax2xla/numbers.h>
#include <relax2xla/threads.h>
#include <relax2xla/turn.h>
#include <tvm/runtime/packed_func.h>

#include <algorithm>
#include <cstdint>
#include <type_traits>
#include <vector>

namespace {

using relax2xla::kLanes;
using relax2xla::load;
using relax2xla::numbers;
using relax2xla::store;
using relax2xla::total;
using relax2xla::Vector;

// Sums that do not wait for each other, and rows that are added up at once.
constexpr int kApart = 4;
// Numbers of a block, and numbers that are worth a thread.
constexpr int64_t kBlock = 64 * 1024, kWorth = 32 * 1024;

using Whole = std::true_type;
using Part = std::false_type;

/* A vector of numbers, or the first `count`. */
template <typename Filled>
__attribute__((always_inline)) inline Vector read(Filled, const float* at, int count) {
  if constexpr (Filled::value) return load(at);
  return relax2xla::load_first(at, count);
}

/* The axes of what is added up. */
struct Axes {
  int64_t outer, channels, inner;

  /* Numbers of a vector of one for each channel. */
  int64_t room() const { return (channels + kLanes - 1) / kLanes * kLanes; }
  int64_t rows_of_block() const { return std::max<int64_t>(kApart, kBlock / channels); }
};

/* Vectors of a number for each channel, filled up to whole vectors. */
struct Channels {
  std::vector<float> numbers;
  int64_t apart;

  Channels(const Axes& axes, int64_t count)
      : numbers(static_cast<size_t>(count * axes.room())), apart(axes.room()) {}
  float* operator[](int64_t i) { return numbers.data() + i * apart; }
  void clear() { std::fill(numbers.begin(), numbers.end(), 0.0f); }
};

/* Adds to `Count` vectors of sums what `of(filled, row, channel, count, values)` makes of the rows from
 * `begin` on, before `end`. */
template <int Count, typename Of>
void add_rows(const Axes& axes, int64_t begin, int64_t end, Channels& sums, Of of) {
  const auto add = [&](auto filled, auto rows, int64_t row, int64_t c, int count)
                       __attribute__((always_inline)) {
    Vector all[Count];
#pragma GCC unroll 2
    for (int k = 0; k < Count; ++k) all[k] = load(sums[k] + c);
#pragma GCC unroll 4
    for (int64_t r = 0; r < rows; ++r) {
      Vector values[Count];
      of(filled, row + r, c, count, values);
#pragma GCC unroll 2
      for (int k = 0; k < Count; ++k) all[k] += values[k];
    }
#pragma GCC unroll 2
    for (int k = 0; k < Count; ++k) store(sums[k] + c, all[k]);
  };
  const auto across = [&](auto rows, int64_t row) __attribute__((always_inline)) {
    int64_t c = 0;
    for (; c + kLanes <= axes.channels; c += kLanes) add(Whole{}, rows, row, c, kLanes);
    if (c < axes.channels) add(Part{}, rows, row, c, static_cast<int>(axes.channels - c));
  };
  int64_t row = begin;
  for (; row + kApart <= end; row += kApart) across(std::integral_constant<int64_t, kApart>{}, row);
  for (; row < end; ++row) across(std::integral_constant<int64_t, 1>{}, row);
}

/* Gives the numbers of one channel to `work(filled, place, count, turn)`, vectors that follow each other
 * another turn, below kApart. */
template <typename Work>
__attribute__((always_inline)) inline void each_of_channel(const Axes& axes, int64_t channel, Work work) {
  for (int64_t n = 0; n < axes.outer; ++n) {
    const int64_t begin = (n * axes.channels + channel) * axes.inner;
    int64_t i = 0;
    for (; i + kApart * kLanes <= axes.inner; i += kApart * kLanes) {
#pragma GCC unroll 4
      for (int a = 0; a < kApart; ++a) work(Whole{}, begin + i + a * kLanes, kLanes, a);
    }
    for (; i + kLanes <= axes.inner; i += kLanes) work(Whole{}, begin + i, kLanes, 0);
    if (i < axes.inner) work(Part{}, begin + i, static_cast<int>(axes.inner - i), 1);
  }
}

/* The sums of what `of(filled, place, count, values)` makes of the numbers of one channel. */
template <int Count, typename Of>
__attribute__((always_inline)) inline void sum_channel(const Axes& axes, int64_t channel,
                                                       float (&to)[Count], Of of) {
  Vector sums[kApart][Count] = {};
  each_of_channel(axes, channel, [&](auto filled, int64_t at, int count, int a)
                                     __attribute__((always_inline)) {
    Vector values[Count];
    of(filled, at, count, values);
#pragma GCC unroll 2
    for (int k = 0; k < Count; ++k) {
      if constexpr (!decltype(filled)::value) values[k] = relax2xla::lanes() < count ? values[k] : Vector{};
      sums[a][k] += values[k];
    }
  });
  for (int k = 0; k < Count; ++k)
    to[k] = total((sums[0][k] + sums[1][k]) + (sums[2][k] + sums[3][k]));
}

/* In how many parts the rows are shared out. */
int64_t parts_of(const Axes& axes) {
  const int64_t worth = axes.outer * axes.channels / kWorth;
  return std::max<int64_t>(1, std::min(relax2xla::count_threads(), worth));
}

/* Means, and sums of the squares of what is left without them, of some numbers of each channel. */
struct Moments {
  Channels of;
  int64_t count = 0;

  explicit Moments(const Axes& axes) : of(axes, 2) {}

  /* Those of these numbers and of `more` others. */
  void join(Moments& other) {
    const auto all = static_cast<float>(count + other.count);
    const float part = static_cast<float>(other.count) / all, both = part * static_cast<float>(count);
    for (int64_t c = 0; c < of.apart; c += kLanes) {
      const Vector apart = load(other.of[0] + c) - load(of[0] + c);
      store(of[0] + c, load(of[0] + c) + apart * part);
      store(of[1] + c, load(of[1] + c) + load(other.of[1] + c) + apart * apart * both);
    }
    count += other.count;
  }
};

/* The moments of a block of rows, means beside the first row of all. */
void of_block(const Axes& axes, const float* x, int64_t begin, int64_t end, Channels& sums,
              Moments& made) {
  made.count = end - begin;
  const float each = 1.0f / static_cast<float>(made.count);
  const int64_t channels = axes.channels;
  sums.clear();
  add_rows<1>(axes, begin, end, sums,
              [=](auto filled, int64_t row, int64_t c, int count, Vector* values)
                  __attribute__((always_inline)) {
                    const float* const at = x + row * channels + c;
                    values[0] = read(filled, at, count) - read(filled, x + c, count);
                  });
  float* const mean = made.of[0];
  for (int64_t c = 0; c < sums.apart; c += kLanes) store(mean + c, load(sums[0] + c) * each);
  sums.clear();
  add_rows<2>(axes, begin, end, sums,
              [=](auto filled, int64_t row, int64_t c, int count, Vector* values)
                  __attribute__((always_inline)) {
                    const float* const at = x + row * channels + c;
                    const Vector before = read(filled, at, count) - read(filled, x + c, count);
                    values[0] = before - load(mean + c);
                    values[1] = values[0] * values[0];
                  });
  for (int64_t c = 0; c < sums.apart; c += kLanes) {
    const Vector left = load(sums[0] + c), missed = left * each;
    store(mean + c, load(mean + c) + missed);
    store(made.of[1] + c, load(sums[1] + c) - left * missed);
  }
}

void moments_of_rows(const Axes& axes, const float* x, float* mean, float* variance) {
  const int64_t parts = parts_of(axes), block = axes.rows_of_block();
  std::vector<Moments> all(static_cast<size_t>(parts), Moments(axes));
  relax2xla::each_part(parts, [&](int64_t part) {
    const int64_t begin = part * axes.outer / parts, end = (part + 1) * axes.outer / parts;
    Channels sums(axes, 2);
    Moments &made = all[static_cast<size_t>(part)], more(axes);
    for (int64_t row = begin; row < end; row += block) {
      Moments& to = row == begin ? made : more;
      of_block(axes, x, row, std::min(end, row + block), sums, to);
      if (row > begin) made.join(more);
    }
  });
  Moments& whole = all[0];
  for (int64_t part = 1; part < parts; ++part) whole.join(all[static_cast<size_t>(part)]);
  const float each = 1.0f / static_cast<float>(axes.outer);
  for (int64_t c = 0; c < axes.channels; ++c) {
    mean[c] = x[c] + whole.of[0][c];
    variance[c] = std::max(whole.of[1][c] * each, 0.0f);
  }
}

void moments_of_planes(const Axes& axes, const float* x, float* means, float* variances) {
  const int64_t count = axes.outer * axes.inner;
  const float each = 1.0f / static_cast<float>(count);
  relax2xla::in_ranges(axes.channels, kWorth / count, [&](int64_t begin, int64_t end) {
    for (int64_t c = begin; c < end; ++c) {
      float all[1], left[2];
      sum_channel(axes, c, all, [=](auto filled, int64_t at, int some, Vector* values)
                                    __attribute__((always_inline)) {
                                      values[0] = read(filled, x + at, some);
                                    });
      const float mean = all[0] * each;
      sum_channel(axes, c, left, [=](auto filled, int64_t at, int some, Vector* values)
                                     __attribute__((always_inline)) {
                                       values[0] = read(filled, x + at, some) - mean;
                                       values[1] = values[0] * values[0];
                                     });
      const float missed = left[0] * each;
      means[c] = mean + missed;
      variances[c] = std::max(left[1] * each - missed * missed, 0.0f);
    }
  });
}

/* What the rows of a gradient add up to, and their products with what `other(filled, row, channel, count)`
 * gives: two vectors of a number for each channel. */
template <typename Other>
void sum_rows(const Axes& axes, const float* gradient, float* result, Other other) {
  const int64_t parts = parts_of(axes), block = axes.rows_of_block(), channels = axes.channels;
  std::vector<Channels> all(static_cast<size_t>(parts), Channels(axes, 2));
  relax2xla::each_part(parts, [&](int64_t part) {
    const int64_t begin = part * axes.outer / parts, end = (part + 1) * axes.outer / parts;
    Channels& made = all[static_cast<size_t>(part)];
    Channels sums(axes, 2);
    for (int64_t row = begin; row < end; row += block) {
      sums.clear();
      add_rows<2>(axes, row, std::min(end, row + block), sums,
                  [=](auto filled, int64_t row, int64_t c, int count, Vector* values)
                      __attribute__((always_inline)) {
                        values[0] = read(filled, gradient + row * channels + c, count);
                        values[1] = values[0] * other(filled, row, c, count);
                      });
      for (size_t i = 0; i < sums.numbers.size(); ++i) made.numbers[i] += sums.numbers[i];
    }
  });
  for (int64_t k = 0; k < 2; ++k) {
    float* const to = result + k * channels;
    std::copy_n(all[0][k], channels, to);
    for (int64_t part = 1; part < parts; ++part) {
      for (int64_t c = 0; c < channels; ++c) to[c] += all[static_cast<size_t>(part)][k][c];
    }
  }
}

/* The same of planes, and numbers without the mean of their channel; `then(channel, sums)` follows. */
template <typename Then>
void sum_planes(const Axes& axes, const float* gradient, const float* x, const float* mean, float* result,
                Then then) {
  relax2xla::in_ranges(axes.channels, kWorth / (axes.outer * axes.inner), [&](int64_t begin, int64_t end) {
    for (int64_t c = begin; c < end; ++c) {
      const float away = mean[c];
      float made[2];
      sum_channel(axes, c, made, [=](auto filled, int64_t at, int count, Vector* values)
                                     __attribute__((always_inline)) {
                                       values[0] = read(filled, gradient + at, count);
                                       values[1] = values[0] * (read(filled, x + at, count) - away);
                                     });
      for (int64_t k = 0; k < 2; ++k) result[k * axes.channels + c] = made[k];
      then(c, made);
    }
  });
}

/* What a batch norm's gradient takes for each channel. */
struct Batch {
  const float *mean, *power, *factor;
};

void differentiate_planes(const Axes& axes, const float* gradient, const float* x, const Batch& of,
                          float* result, float* sums) {
  const float each = 1.0f / static_cast<float>(axes.outer * axes.inner);
  sum_planes(axes, gradient, x, of.mean, sums, [=](int64_t c, const float* made) {
    const float mean = of.mean[c], slope = made[1] * each * of.power[c], shift = made[0] * each,
                factor = of.factor[c];
    each_of_channel(axes, c, [=](auto filled, int64_t at, int count, int) __attribute__((always_inline)) {
      const Vector left = read(filled, x + at, count) - mean, g = read(filled, gradient + at, count);
      const Vector value = (g - left * slope - shift) * factor;
      if constexpr (decltype(filled)::value) {
        store(result + at, value);
      } else {
        relax2xla::store_first(result + at, value, count);
      }
    });
  });
}

Axes axes_of(const DLTensor* x, const DLTensor* result) {
  ICHECK(x->ndim == 3 && result->ndim == 2) << "numbers are [outer, channels, inner]";
  return {x->shape[0], x->shape[1], x->shape[2]};
}

void moments(const DLTensor* x, const DLTensor* result) {
  const Axes axes = axes_of(x, result);
  float *const mean = static_cast<float*>(result->data), *const variance = mean + axes.channels;
  (axes.inner == 1 ? moments_of_rows : moments_of_planes)(axes, numbers(x), mean, variance);
}

void sums(const DLTensor* gradient, const DLTensor* x, const DLTensor* mean,
          const DLTensor* result) {
  const Axes axes = axes_of(x, result);
  const float *const g = numbers(gradient), *const from = numbers(x);
  auto* const to = static_cast<float*>(result->data);
  if (axes.inner > 1) {
    sum_planes(axes, g, from, numbers(mean), to, [](int64_t, const float*) {});
    return;
  }
  Channels means(axes, 1);
  std::copy_n(numbers(mean), axes.channels, means[0]);
  const float* const away = means[0];
  const int64_t channels = axes.channels;
  sum_rows(axes, g, to, [=](auto filled, int64_t row, int64_t c, int count)
                            __attribute__((always_inline)) {
                              return read(filled, from + row * channels + c, count) - load(away + c);
                            });
}

void row_sums(const DLTensor* gradient, const DLTensor* x, const DLTensor* mean, const DLTensor* factor,
              const DLTensor* result) {
  ICHECK(x->ndim == 2 && result->ndim == 2) << "numbers are [rows, channels]";
  const Axes axes{x->shape[0], x->shape[1], 1};
  const float *const from = numbers(x), *const away = numbers(mean), *const by = numbers(factor);
  const int64_t channels = axes.channels;
  sum_rows(axes, numbers(gradient), static_cast<float*>(result->data),
           [=](auto filled, int64_t row, int64_t c, int count) __attribute__((always_inline)) {
             return (read(filled, from + row * channels + c, count) - away[row]) * by[row];
           });
}

void batch_gradient(const DLTensor* gradient, const DLTensor* x, const DLTensor* mean, const DLTensor* power,
                    const DLTensor* factor, const DLTensor* result, const DLTensor* sums) {
  const Axes axes = axes_of(x, sums);
  const Batch of{numbers(mean), numbers(power), numbers(factor)};
  differentiate_planes(axes, numbers(gradient), numbers(x), of, static_cast<float*>(result->data),
                       static_cast<float*>(sums->data));
}

}  // namespace

TVM_DLL_EXPORT_TYPED_FUNC(relax2xla_moments_moments, moments);
TVM_DLL_EXPORT_TYPED_FUNC(relax2xla_moments_sums, sums);
TVM_DLL_EXPORT_TYPED_FUNC(relax2xla_moments_row_sums, row_sums);
TVM_DLL_EXPORT_TYPED_FUNC(relax2xla_moments_batch_gradient, batch_gradient);
