/* Slices of volumes side by side: those under the depth of a window as channels of one.
 *
 * A convolution of volumes is then one of planes. Nothing is computed; rows of channels are copied.
 */
#include <dlpack/dlpack.h>
#include <relax2xla/activations.h>
#include <relax2xla/threads.h>
#include <tvm/runtime/packed_func.h>

#include <algorithm>
#include <cstdint>

namespace {

using relax2xla::kLanes;
using relax2xla::load;
using relax2xla::load_first;
using relax2xla::store;
using relax2xla::store_first;
using relax2xla::Vector;

// Numbers that are worth a thread.
constexpr int64_t kWorth = 32 * 1024;

struct Join {
  const float* volume;
  float* result;
  int64_t deep, pixels, groups, each;
  int64_t slices, depth, step, apart, before;

  void compute(int64_t batch) const {
    const int64_t count = batch * slices * pixels;
    const int64_t least = kWorth / (groups * depth * each) + 1;
    relax2xla::in_ranges(count, least, [&](int64_t begin, int64_t end) {
      // Up to the end of a slice, then from the beginning of the next.
      while (begin < end) {
        const int64_t many = std::min(end - begin, pixels - begin % pixels);
        in_slice(begin / pixels, begin % pixels, many);
        begin += many;
      }
    });
  }

  /* `many` pixels of one slice of the result; numbers of the window's slices beside each other. */
  void in_slice(int64_t slice, int64_t first, int64_t many) const {
    const int64_t image = slice / slices, at = slice % slices * step - before;
    const int64_t wide = groups * each;
    float* const made = result + (slice * pixels + first) * wide * depth;
    for (int64_t k = 0; k < depth; ++k) {
      const int64_t under = at + k * apart;
      const bool known = under >= 0 && under < deep;
      const float* const read =
          known ? volume + ((image * deep + under) * pixels + first) * wide : nullptr;
      for (int64_t row = 0; row < many * groups; ++row)
        copy(read == nullptr ? nullptr : read + row * each, made + (row * depth + k) * each);
    }
  }

  /* The channels of a group; zeros from nowhere. */
  void copy(const float* from, float* to) const {
    int64_t i = 0;
    for (; i + kLanes <= each; i += kLanes)
      store(to + i, from == nullptr ? Vector{} : load(from + i));
    const int left = static_cast<int>(each - i);
    if (left > 0)
      store_first(to + i, from == nullptr ? Vector{} : load_first(from + i, left), left);
  }
};

/* `depth` slices of the volume, `apart` from each other; the first `before` the volume's. */
void join(const DLTensor* volume, int64_t depth, int64_t step, int64_t apart, int64_t before,
          const DLTensor* result) {
  const int64_t* const sizes = volume->shape;
  const int64_t groups = result->shape[4];
  Join{static_cast<const float*>(volume->data),
       static_cast<float*>(result->data),
       sizes[1],
       sizes[2] * sizes[3],
       groups,
       sizes[4] / groups,
       result->shape[1],
       depth,
       step,
       apart,
       before}
      .compute(sizes[0]);
}

}  // namespace

TVM_DLL_EXPORT_TYPED_FUNC(relax2xla_slices_join, join);
