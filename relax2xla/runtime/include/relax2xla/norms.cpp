/* Layer norm and RMS norm of rows, and the gradient of a layer norm.
 *
 * Numbers are float32. A row stays in the nearest cache while it is read for its mean, for the squares
 * of what is left without it, and for the result. The mean is a sum, rounded; what it is beside the
 * exact one is the mean of what is left, which is found on the way and taken away too. So rows far from
 * 0 lose no digits.
 */
#include <dlpack/dlpack.h>
#include <relax2xla/activations.h>
#include <relax2xla/numbers.h>
#include <relax2xla/threads.h>
#include <relax2xla/turn.h>
#include <tvm/runtime/packed_func.h>

#include <algorithm>
#include <cmath>
#include <cstdint>

namespace {

using relax2xla::kLanes;
using relax2xla::load;
using relax2xla::numbers;
using relax2xla::store;
using relax2xla::total;
using relax2xla::Vector;

// Sums that do not wait for each other, and numbers that are worth a thread.
constexpr int kApart = 4;
constexpr int64_t kWorth = 32 * 1024;

/* The last vector of a row; `filling` in the place of what the vector before, up to `seen`, has had. */
inline Vector last(const float* row, int64_t seen, int64_t size, float filling) {
  const auto known = static_cast<int32_t>(seen - (size - kLanes));
  return relax2xla::lanes() < known ? Vector{} + filling : load(row + size - kLanes);
}

/* The sums over a row of the values that `of` makes of its vectors, `Count` of them. `filling` makes
 * zeros. */
template <int Count, typename Of>
__attribute__((always_inline)) inline void sum(const float* row, int64_t size, float filling,
                                               float (&to)[Count], Of of) {
  Vector sums[kApart][Count] = {};
  const auto add = [&](Vector v, int a) __attribute__((always_inline)) {
    Vector values[Count];
    of(v, values);
#pragma GCC unroll 2
    for (int c = 0; c < Count; ++c) sums[a][c] += values[c];
  };
  int64_t i = 0;
  for (; i + kApart * kLanes <= size; i += kApart * kLanes) {
#pragma GCC unroll 4
    for (int a = 0; a < kApart; ++a) add(load(row + i + a * kLanes), a);
  }
  for (; i + kLanes <= size; i += kLanes) add(load(row + i), 0);
  if (i < size) add(last(row, i, size, filling), 1);
#pragma GCC unroll 2
  for (int c = 0; c < Count; ++c)
    to[c] = total((sums[0][c] + sums[1][c]) + (sums[2][c] + sums[3][c]));
}

struct Norm {
  const float *rows, *scale, *shift;
  float* result;
  int64_t count, size;
  float epsilon;

  float factor(float variance) const { return 1.0f / std::sqrt(variance + epsilon); }

  /* A row of the result: `of(vector, place)`. */
  template <typename Of>
  __attribute__((always_inline)) void write(int64_t row, Of of) const {
    const float* const from = rows + row * size;
    float* const to = result + row * size;
    int64_t i = 0;
    for (; i + kLanes <= size; i += kLanes) store(to + i, of(load(from + i), i));
    // Some once more, which become the same.
    if (i < size) store(to + size - kLanes, of(load(from + size - kLanes), size - kLanes));
  }

  void centered(int64_t row) const {
    const float *const from = rows + row * size, each = 1.0f / static_cast<float>(size);
    float all[1], left[2];
    sum(from, size, 0.0f, all, [](Vector v, Vector* values) __attribute__((always_inline)) {
      values[0] = v;
    });
    const float mean = all[0] * each;
    sum(from, size, mean, left, [=](Vector v, Vector* values) __attribute__((always_inline)) {
      values[0] = v - mean;
      values[1] = values[0] * values[0];
    });
    const float missed = left[0] * each;
    // In this order, what is no number stays so.
    const float by = factor(std::max(left[1] * each - missed * missed, 0.0f));
    write(row, [=](Vector v, int64_t i) __attribute__((always_inline)) {
      return ((v - mean) - missed) * by * load(scale + i) + load(shift + i);
    });
  }

  void uncentered(int64_t row) const {
    float all[1];
    const auto square = [](Vector v, Vector* values) __attribute__((always_inline)) {
      values[0] = v * v;
    };
    sum(rows + row * size, size, 0.0f, all, square);
    const float by = factor(all[0] / static_cast<float>(size));
    write(row, [=](Vector v, int64_t i) __attribute__((always_inline)) {
      return v * by * load(scale + i);
    });
  }

  void compute(bool is_centered) const {
    relax2xla::in_ranges(count, kWorth / size, [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) is_centered ? centered(row) : uncentered(row);
    });
  }
};

/* The gradient of a layer norm by its rows, of which the means and the factors are known. */
struct Gradient {
  const float *gradient, *rows, *mean, *factor, *scale;
  float* result;
  int64_t count, size;

  /* Two vectors of a row: the gradient of what is scaled, and what is left of the numbers without their
   * mean. `count` of them are filled. */
  template <typename Read>
  __attribute__((always_inline)) void see(Read read, int64_t row, int64_t i, Vector* seen) const {
    seen[0] = read(gradient + row * size + i) * read(scale + i);
    seen[1] = read(rows + row * size + i) - mean[row];
  }

  void of_row(int64_t row) const {
    Vector sums[kApart][2] = {}, seen[2];
    const auto add = [&](int a) __attribute__((always_inline)) {
      sums[a][0] += seen[0];
      sums[a][1] += seen[0] * seen[1];
    };
    int64_t i = 0;
    for (; i + kApart * kLanes <= size; i += kApart * kLanes) {
#pragma GCC unroll 4
      for (int a = 0; a < kApart; ++a) {
        see(load, row, i + a * kLanes, seen);
        add(a);
      }
    }
    for (; i + kLanes <= size; i += kLanes) {
      see(load, row, i, seen);
      add(0);
    }
    const auto rest = static_cast<int>(size - i);
    const auto first = [=](const float* at) { return relax2xla::load_first(at, rest); };
    if (rest > 0) {
      // Behind the end gradients are 0, and so are products with them.
      see(first, row, i, seen);
      add(1);
    }
    const float each = 1.0f / static_cast<float>(size), by = factor[row];
    float means[2];
    for (int k = 0; k < 2; ++k)
      means[k] = total((sums[0][k] + sums[1][k]) + (sums[2][k] + sums[3][k])) * each;
    const float along = means[1] * by * by;
    const auto made = [&]() __attribute__((always_inline)) {
      return (seen[0] - means[0] - seen[1] * along) * by;
    };
    float* const to = result + row * size;
    for (i = 0; i + kLanes <= size; i += kLanes) {
      see(load, row, i, seen);
      store(to + i, made());
    }
    if (rest > 0) {
      see(first, row, i, seen);
      relax2xla::store_first(to + i, made(), rest);
    }
  }

  void compute() const {
    relax2xla::in_ranges(count, kWorth / size, [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) of_row(row);
    });
  }
};

void normalise(const DLTensor* rows, const DLTensor* scale, const DLTensor* shift,
               int64_t centered, double epsilon, const DLTensor* result) {
  ICHECK(rows->ndim > 0 && rows->shape[rows->ndim - 1] >= kLanes) << "rows are not short";
  int64_t count = 1;
  for (int axis = 0; axis + 1 < rows->ndim; ++axis) count *= rows->shape[axis];
  Norm{numbers(rows), numbers(scale), numbers(shift), static_cast<float*>(result->data), count,
       rows->shape[rows->ndim - 1], static_cast<float>(epsilon)}
      .compute(centered != 0);
}

void differentiate(const DLTensor* gradient, const DLTensor* rows, const DLTensor* mean,
                   const DLTensor* factor, const DLTensor* scale, const DLTensor* result) {
  ICHECK(rows->ndim == 2) << "rows are [rows, numbers]";
  Gradient{numbers(gradient), numbers(rows), numbers(mean), numbers(factor), numbers(scale),
           static_cast<float*>(result->data), rows->shape[0], rows->shape[1]}
      .compute();
}

}  // namespace

TVM_DLL_EXPORT_TYPED_FUNC(relax2xla_norms_normalise, normalise);
TVM_DLL_EXPORT_TYPED_FUNC(relax2xla_norms_differentiate, differentiate);
