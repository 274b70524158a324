/* Means over the pixels of images, and images that are scaled by gates made of these.
 *
 * Numbers are float32, images [batch, pixels, channels]. A mean is made of the sums of pieces of the
 * pixels, the same ones however many threads there are: its rounding does not grow with the image, and
 * it does not depend on them. An image is read twice, for its means and to be scaled, few images at a
 * time, so that the second time it is in a near cache.
 */
#include <dlpack/dlpack.h>
#include <relax2xla/activations.h>
#include <relax2xla/numbers.h>
#include <relax2xla/products/few_rows.h>
#include <relax2xla/threads.h>
#include <tvm/runtime/packed_func.h>

#include <algorithm>
#include <cstdint>
#include <vector>

namespace {

using relax2xla::FewRows;
using relax2xla::kFewRows;
using relax2xla::kLanes;
using relax2xla::load;
using relax2xla::numbers;
using relax2xla::store;
using relax2xla::Vector;

// Pixels of a piece.
constexpr int64_t kPiece = 64;
// Numbers that are worth a thread, and of the images that are computed together.
constexpr int64_t kWorth = 24 * 1024, kNear = 256 * 1024;

constexpr int64_t over(int64_t count, int64_t size) { return (count + size - 1) / size; }

/* The sums of `rows` rows, `apart` numbers from each other, of `Vectors` vectors each: as several that do
 * not wait for each other. `last`: the place of the last vector, which may overlap with others. */
template <int Vectors>
inline void sums_of_vectors(const float* from, int64_t rows, int64_t apart, int64_t last, float* to) {
  constexpr int kChains = Vectors > 2 ? 2 : 8 / Vectors;
  Vector sums[Vectors][kChains] = {};
  const auto add = [&](const float* row, int chain) __attribute__((always_inline)) {
#pragma GCC unroll 4
    for (int v = 0; v < Vectors; ++v)
      sums[v][chain] += load(row + (v + 1 < Vectors ? v * kLanes : last));
  };
  int64_t r = 0;
  for (; r + kChains <= rows; r += kChains) {
#pragma GCC unroll 8
    for (int chain = 0; chain < kChains; ++chain) add(from + (r + chain) * apart, chain);
  }
  for (; r < rows; ++r) add(from + r * apart, 0);
#pragma GCC unroll 4
  for (int v = 0; v < Vectors; ++v) {
#pragma GCC unroll 4
    for (int half = kChains / 2; half > 0; half /= 2)
      for (int i = 0; i < half; ++i) sums[v][i] += sums[v][i + half];
    store(to + (v + 1 < Vectors ? v * kLanes : last), sums[v][0]);
  }
}

/* The sums of `rows` rows of `count` numbers. */
void sums_of_rows(const float* from, int64_t rows, int64_t count, float* to) {
  if (count < kLanes) {
    std::fill_n(to, count, 0.0f);
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t c = 0; c < count; ++c) to[c] += from[r * count + c];
    return;
  }
  constexpr int64_t kWide = 4 * kLanes;
  for (int64_t c = 0; c < count; c += kWide) {
    const int64_t wide = std::min(kWide, count - c), last = wide - kLanes;
    if (wide > 3 * kLanes) sums_of_vectors<4>(from + c, rows, count, last, to + c);
    else if (wide > 2 * kLanes) sums_of_vectors<3>(from + c, rows, count, last, to + c);
    else if (wide > kLanes) sums_of_vectors<2>(from + c, rows, count, last, to + c);
    else sums_of_vectors<1>(from + c, rows, count, last, to + c);
  }
}

// Of 32 bytes, so that those of channels in eights never lie in two lines of the cache.
constexpr int64_t kShort = 8;
typedef float Short __attribute__((vector_size(4 * kShort), aligned(4)));

inline void scale_short(const float* from, const float* by, float* to) {
  *reinterpret_cast<Short*>(to) =
      *reinterpret_cast<const Short*>(from) * *reinterpret_cast<const Short*>(by);
}

/* Each of `rows` rows of `count` numbers multiplied by the same ones. */
void scale_rows(const float* from, int64_t rows, int64_t count, const float* by, float* to) {
  const int64_t whole = count / kShort * kShort;
  for (int64_t r = 0; r < rows; ++r, from += count, to += count) {
#pragma GCC unroll 4
    for (int64_t c = 0; c < whole; c += kShort) scale_short(from + c, by + c, to + c);
    for (int64_t c = whole; c < count; ++c) to[c] = from[c] * by[c];
  }
}

/* Some images. */
struct Images {
  const float* from;
  int64_t images, pixels, channels;

  int64_t pieces() const { return over(pixels, kPiece); }
  /* Numbers for the sums of pieces. */
  int64_t room() const { return images * pieces() * channels; }

  void means(float* sums, float* to) const {
    const int64_t each = pieces(), least = over(kWorth, over(pixels, each) * channels);
    relax2xla::in_ranges(images * each, least, [&](int64_t at, int64_t end) {
      for (; at < end; ++at) {
        const int64_t image = at / each, piece = at % each;
        const int64_t begin = piece * pixels / each, behind = (piece + 1) * pixels / each;
        sums_of_rows(from + (image * pixels + begin) * channels, behind - begin, channels,
                     sums + at * channels);
      }
    });
    for (int64_t i = 0; i < images; ++i)
      sums_of_rows(sums + i * each * channels, each, channels, to + i * channels);
    const auto number = static_cast<float>(pixels);
    for (int64_t i = 0; i < images * channels; ++i) to[i] /= number;
  }

  /* Each channel of each image multiplied by a number. */
  void scale(const float* by, float* to) const {
    relax2xla::in_ranges(images * pixels, over(kWorth, channels), [&](int64_t at, int64_t end) {
      while (at < end) {
        const int64_t image = at / pixels, until = std::min(end, (image + 1) * pixels);
        scale_rows(from + at * channels, until - at, channels, by + image * channels,
                   to + at * channels);
        at = until;
      }
    });
  }
};

/* `work(images, first)` for all images of a tensor, at most kFewRows at once. */
template <typename Work>
void by_images(const DLTensor* image, Work work) {
  const float* const from = numbers(image);
  const int64_t batch = image->shape[0], pixels = image->shape[1] * image->shape[2];
  const int64_t channels = image->shape[3], size = pixels * channels;
  const int64_t most = std::clamp<int64_t>(kNear / size, 1, kFewRows);
  for (int64_t first = 0; first < batch; first += most)
    work(Images{from + first * size, std::min(most, batch - first), pixels, channels}, first);
}

void pool(const DLTensor* image, const DLTensor* result) {
  static thread_local std::vector<float> memory;
  auto* const to = static_cast<float*>(result->data);
  by_images(image, [&](const Images& some, int64_t first) {
    some.means(relax2xla::room(memory, some.room()), to + first * some.channels);
  });
}

void excite(const DLTensor* image, const DLTensor* down, const DLTensor* down_bias,
            const DLTensor* up, const DLTensor* up_bias, int64_t ending, int64_t gate,
            const DLTensor* result) {
  static thread_local std::vector<float> memory;
  auto* const to = static_cast<float*>(result->data);
  const int64_t squeezed = down_bias->shape[0];
  const float *const first_weight = numbers(down), *const first_bias = numbers(down_bias);
  const float *const second_weight = numbers(up), *const second_bias = numbers(up_bias);
  by_images(image, [&](const Images& some, int64_t first) {
    const int64_t channels = some.channels, count = some.images;
    const int64_t sums = some.room();
    float* const pieces = relax2xla::room(memory, sums + count * (channels + squeezed));
    // Gates take the place of the means, which nobody reads then.
    float *const means = pieces + sums, *const hidden = means + count * channels;
    some.means(pieces, means);
    FewRows{means, first_weight, first_bias, nullptr, hidden, channels, squeezed, ending}.compute(
        count);
    FewRows{hidden, second_weight, second_bias, nullptr, means, squeezed, channels, gate}.compute(
        count);
    some.scale(means, to + first * some.pixels * channels);
  });
}

}  // namespace

TVM_DLL_EXPORT_TYPED_FUNC(relax2xla_squeezes_pool, pool);
TVM_DLL_EXPORT_TYPED_FUNC(relax2xla_squeezes_excite, excite);
