/* Convolutions and products of quantised numbers, and what stands between them, on one processor.
 *
 * Images are [n, height, width, channels]. Sums are exact; scales are applied in float32, in the
 * order that ONNX's QLinearConv has, and halves are rounded to even.
 */
#include <dlpack/dlpack.h>
#include <relax2xla/integers/image.h>
#include <relax2xla/integers/product.h>
#include <relax2xla/integers/tiles.h>
#include <tvm/runtime/packed_func.h>

#include <cmath>
#include <limits>
#include <type_traits>
#include <vector>

namespace {

using namespace relax2xla_integers;

// Numbers of the left operand that a block of rows holds, and the rows.
constexpr int64_t kNear = 320 * 1024 / sizeof(Left);
constexpr int64_t kMostRows = 40 * kRows;
#if RELAX2XLA_TILES
// Numbers of rows that are copied into tiles at once.
constexpr int64_t kNearTiles = 768 * 1024;
// The fewest rows, and numbers of their parts, that are worth it: a part is copied by itself.
constexpr int64_t kFewestForTiles = 8;
constexpr int64_t kShortestForTiles = 8;
#endif

template <typename T>
T* data(const DLTensor* t) {
  return static_cast<T*>(t->data);
}

int64_t elements(const DLTensor* t) {
  int64_t made = 1;
  for (int i = 0; i < t->ndim; ++i) made *= t->shape[i];
  return made;
}

bool is(const DLTensor* t, int code, int bits) {
  return t->dtype.code == code && t->dtype.bits == bits && t->dtype.lanes == 1;
}

/* An operand of uint8, or of int8 as uint8 that is 128 more: `flip` exchanges the halves. */
struct Bytes {
  const uint8_t* data;
  uint8_t flip;

  explicit Bytes(const DLTensor* t)
      : data(static_cast<const uint8_t*>(t->data)), flip(t->dtype.code == kDLInt ? 128 : 0) {
    ICHECK(is(t, kDLUInt, 8) || is(t, kDLInt, 8)) << "an operand is of uint8 or int8";
  }
};

/* `call` with a number of the result's type; bytes have no sign, since only limits differ. */
template <typename F>
void with_result(const DLTensor* t, F call) {
  if (is(t, kDLInt, 32)) return call(int32_t{});
  if (is(t, kDLFloat, 32)) return call(float{});
  ICHECK(is(t, kDLUInt, 8) || is(t, kDLInt, 8)) << "a result is of 8 bits, int32 or float32";
  call(uint8_t{});
}

int32_t sum_of(const Left* row, const Rows& rows) {
  int32_t sum = 0;
  for (int64_t at : rows.parts)
    for (int64_t k = 0; k < rows.length; ++k) sum += row[at + k];
  return sum;
}

#if RELAX2XLA_TILES
/* As `multiply`, in tiles. */
template <typename T>
void multiply_in_tiles(const Rows& rows, const Right* right, int64_t columns, const Ends& ends,
                       T* to, int64_t stride) {
  const Tiles tiles;
  const int64_t count = static_cast<int64_t>(rows.starts.size());
  const int64_t depth = static_cast<int64_t>(rows.parts.size()) * rows.steps * kDepth;
  const int64_t whole = depth / kTileDepth, behind = depth % kTileDepth;
  const int64_t of_rows = (whole + (behind > 0)) * kTile;
  const auto pieces = pieces_of(rows);
  // Two tiles of rows share the loading of columns.
  constexpr int64_t kPair = 2 * kTileRows;
  const int64_t pairs = std::min((count + kPair - 1) / kPair,
                                 std::max<int64_t>(1, kNearTiles / (2 * of_rows)));
  const int64_t block = pairs * kPair;
  Left* left = room<Left, 2>(block / kTileRows * of_rows);
  alignas(64) int32_t sums[kPair * kColumns];
  alignas(64) Right last[kTileDepth * kColumns] = {};
  std::vector<int32_t> row_sums(block);
  for (int64_t m = 0; m < count; m += block) {
    const int64_t end_of_block = std::min(m + block, count);
    place(rows, pieces, m, end_of_block, of_rows, left);
    bool summed = false;
    for (int64_t n = 0; n < columns; n += kColumns) {
      const Right* panel = right + n * depth;
      const int64_t own = std::min<int64_t>(kColumns, columns - n);
      const PanelEnds end(ends, n, own);
      if (!end.centred && !summed) {
        for (int64_t i = m; i < end_of_block; ++i) row_sums[i - m] = sum_of(rows.starts[i], rows);
        summed = true;
      }
      if (behind) std::memcpy(last, panel + whole * kTileDepth * kColumns, behind * kColumns);
      // Compilers do not know that tiles are loaded from memory.
      std::atomic_signal_fence(std::memory_order_seq_cst);
      for (int64_t i = m; i < end_of_block; i += kPair) {
        const int64_t some = std::min(kPair, end_of_block - i);
        const Left* own_left = left + (i - m) / kTileRows * of_rows;
        auto* multiply_some = some > kTileRows ? multiply_tiles<true> : multiply_tiles<false>;
        for (int64_t c = 0; c < own; c += kColumns / 2)
          multiply_some(own_left, of_rows, whole, panel + c * kDepth,
                        behind ? last + c * kDepth : nullptr, sums + c);
        finish<true>(ends, end, sums, row_sums.data() + (i - m), some, own, to + i * stride + n,
                     stride);
      }
    }
  }
}
#endif

/* `columns` results of all rows, to `to` and rows of `stride` behind it. */
template <typename T>
void multiply(const Rows& rows, const Right* right, int64_t columns, const Ends& ends, T* to,
              int64_t stride) {
  const int64_t count = static_cast<int64_t>(rows.starts.size());
#if RELAX2XLA_TILES
  if (count >= kFewestForTiles && rows.length >= kShortestForTiles && may_have_tiles())
    return multiply_in_tiles(rows, right, columns, ends, to, stride);
#endif
  const int64_t parts = static_cast<int64_t>(rows.parts.size());
  const int64_t of_panel = parts * rows.steps * kColumns * kDepth;
  const int64_t fit = kNear / std::max<int64_t>(1, parts * rows.steps * kDepth);
  const int64_t block = std::clamp(fit / kRows * kRows, int64_t(4 * kRows), kMostRows);
  int32_t sums[kRows * kColumns];
  std::vector<int32_t> row_sums(kBytes ? block : 0);
  for (int64_t m = 0; m < count; m += block) {
    const int64_t end_of_block = std::min(m + block, count);
    bool summed = false;
    for (int64_t n = 0; n < columns; n += kColumns) {
      const Right* panel = right + n / kColumns * of_panel;
      const int64_t own = std::min<int64_t>(kColumns, columns - n);
      const PanelEnds end(ends, n, own);
      if (kBytes && !end.centred && !summed) {
        for (int64_t i = m; i < end_of_block; ++i) row_sums[i - m] = sum_of(rows.starts[i], rows);
        summed = true;
      }
      for (int64_t i = m; i < end_of_block; i += kRows) {
        const int64_t some = std::min<int64_t>(kRows, end_of_block - i);
        tile(rows, i, some, panel, sums);
        finish<false>(ends, end, sums, row_sums.data() + (i - m), some, own, to + i * stride + n,
                      stride);
      }
    }
  }
}

void limit(Ends& ends, const DLTensor* y, int32_t point, bool relu) {
  const int32_t least = y->dtype.code == kDLInt ? -128 : 0;
  ends.point = point;
  ends.low = relu ? std::max(0, least - point) : least - point;
  ends.high = least + 255 - point;
}

struct Window {
  int64_t height, width, stride_h, stride_w, dilation_h, dilation_w, groups;
};

struct Extent {
  int64_t height, width;
};

template <typename L>
Extent extent(const Image<L>& image, const Window& w) {
  return {(image.height - (w.height - 1) * w.dilation_h - 1) / w.stride_h + 1,
          (image.width - (w.width - 1) * w.dilation_w - 1) / w.stride_w + 1};
}

/* One row of the window after the other where they lie so, else one tap after the other. */
Rows rows_of(const Image<Left>& image, int64_t count, const Window& w, int64_t group) {
  const int64_t own = image.channels / w.groups;
  const bool whole = w.groups == 1 && (w.dilation_w == 1 || w.width == 1);
  Rows made;
  made.length = whole ? w.width * own : own;
  made.steps = (made.length + kDepth - 1) / kDepth;
  for (int64_t i = 0; i < w.height; ++i)
    for (int64_t j = 0; j < (whole ? 1 : w.width); ++j)
      made.parts.push_back((i * w.dilation_h * image.width + j * w.dilation_w) * image.channels);
  const Extent size = extent(image, w);
  made.starts.reserve(count * size.height * size.width);
  for (int64_t n = 0; n < count; ++n)
    for (int64_t i = 0; i < size.height; ++i)
      for (int64_t j = 0; j < size.width; ++j)
        made.starts.push_back(image.at(n, i * w.stride_h, j * w.stride_w) + group * own);
  return made;
}

/* Each channel by itself: w is [height, width, channels] of int16, its zero point taken away. */
template <typename T>
void depthwise(const Image<int16_t>& image, int64_t count, const Window& w, const int16_t* right,
               const Ends& ends, T* to) {
  const Extent size = extent(image, w);
  const int64_t channels = image.channels;
  // As it lies in a panel of the product: the corrections of bytes are not for this one.
  Ends own = ends;
  own.left_point = 0;
  const int64_t taps = w.height * w.width;
  std::vector<int32_t> window(taps * kColumns);
  for (int64_t c = 0; c < channels; c += kColumns) {
    const int64_t some = std::min<int64_t>(kColumns, channels - c);
    for (int64_t t = 0; t < taps; ++t)
      for (int64_t k = 0; k < some; ++k) window[t * kColumns + k] = right[t * channels + c + k];
    PanelEnds end(own, c, some);
    end.centred = true;
    for (int64_t row = 0; row < count * size.height; ++row) {
      const int64_t n = row / size.height, i = row % size.height;
      for (int64_t j = 0; j < size.width; ++j) {
        // What is behind the last channel is read, too, and left out of the results.
        const int16_t* x = image.at(n, i * w.stride_h, j * w.stride_w) + c;
        Ints sums[kWide] = {};
        const int32_t* y = window.data();
        for (int64_t a = 0; a < w.height; ++a, x += w.dilation_h * image.width * channels) {
          const int16_t* at = x;
          for (int64_t b = 0; b < w.width; ++b, at += w.dilation_w * channels, y += kColumns)
#pragma GCC unroll 4
            for (int v = 0; v < kWide; ++v) {
              typedef int16_t Halves __attribute__((vector_size(2 * kLanes)));
              Halves part;
              std::memcpy(&part, at + v * kLanes, sizeof(part));
              sums[v] += __builtin_convertvector(part, Ints) * ints_of(y + v * kLanes);
            }
        }
        finish<false>(own, end, (const int32_t*)sums, nullptr, 1, some,
                      to + (row * size.width + j) * channels + c, channels);
      }
    }
  }
}

/* Ends as a call gives them: `integers` are bias, and zero points and sums of the right operand. */
Ends ends_of(const DLTensor* integers, const DLTensor* factors, const DLTensor* addends,
             const int32_t* points, int64_t columns, uint8_t flip, int64_t depth) {
  ICHECK(is(integers, kDLInt, 32) && is(factors, kDLFloat, 32) && is(addends, kDLFloat, 32));
  ICHECK_EQ(elements(integers), (kBytes ? 3 : 1) * columns) << "bias, zero points and sums";
  const int64_t factor_count = elements(factors), addend_count = elements(addends);
  ICHECK(factor_count == 1 || factor_count == columns) << "one factor, or one a column";
  ICHECK(addend_count == 1 || addend_count == columns) << "one addend, or one a column";
  const auto* numbers = data<int32_t>(integers);
  return Ends{numbers,
              data<float>(factors),
              factor_count,
              data<float>(addends),
              addend_count,
              numbers + columns,
              numbers + 2 * columns,
              points[0] + flip,
              depth,
              0,
              0,
              0,
              {}};
}

/* y = what `ends` make of the convolution of x. points: the zero points of x and of y, and that of
 * `rest`, bytes that are added with their scale, where there are any.
 */
int convolve_and_add(DLTensor* x, DLTensor* right, DLTensor* integers, DLTensor* factors,
                     DLTensor* addends, DLTensor* points, DLTensor* rest, DLTensor* rest_scale,
                     int64_t height, int64_t width, int64_t stride_h, int64_t stride_w, int64_t top,
                     int64_t left, int64_t bottom, int64_t right_pad, int64_t dilation_h,
                     int64_t dilation_w, int64_t groups, int added, int relu, DLTensor* y) {
  ICHECK(x->ndim == 4 && y->ndim == 4) << "images have 4 axes";
  ICHECK(is(points, kDLInt, 32) && elements(points) == (rest ? 3 : 2));
  const Sizes size{x->shape[0], x->shape[1], x->shape[2], x->shape[3]};
  const Padding pad{top, left, bottom, right_pad};
  const Window w{height, width, stride_h, stride_w, dilation_h, dilation_w, groups};
  const int64_t columns = y->shape[3], own = columns / std::max<int64_t>(1, groups);
  ICHECK(std::min({height, width, stride_h, stride_w, dilation_h, dilation_w, groups}) >= 1);
  ICHECK(std::min({top, left, bottom, right_pad}) >= 0);
  ICHECK(size.channels % groups == 0 && columns % groups == 0);
  const int64_t of_group = size.channels / groups;
  const bool apart = groups > 1 && of_group == 1 && own == 1;
  const auto* point = data<int32_t>(points);
  const int64_t depth = height * width * of_group;
  const Bytes from(x);
  Ends ends = ends_of(integers, factors, addends, point, columns, from.flip, depth);
  if (!added) ends.addends = nullptr;
  limit(ends, y, point[1], relu != 0);
  if (rest) {
    const Bytes more(rest);
    ICHECK(elements(rest) == elements(y)) << "what is added has the shape of the result";
    ICHECK(is(rest_scale, kDLFloat, 32) && elements(rest_scale) == 1);
    ends.rest = {more.data, y->data, data<float>(rest_scale)[0], point[2], more.flip};
  }
  auto fits = [&](const auto& image) {
    const Extent made = extent(image, w);
    ICHECK(image.height >= (height - 1) * dilation_h + 1 &&
           image.width >= (width - 1) * dilation_w + 1 && y->shape[0] == size.count &&
           y->shape[1] == made.height && y->shape[2] == made.width)
        << "the result has another size than the convolution";
  };
  if (apart) {
    ICHECK(is(right, kDLInt, 16) && elements(right) == height * width * columns);
    const auto image = padded<int16_t>(from.data, from.flip, size, pad, point[0], false);
    fits(image);
    with_result(y, [&](auto made) {
      depthwise(image, size.count, w, data<int16_t>(right), ends, data<decltype(made)>(y));
    });
    return 0;
  }
  const bool whole = groups == 1 && (dilation_w == 1 || width == 1);
  const int64_t length = whole ? width * of_group : of_group;
  const auto image =
      padded<Left>(from.data, from.flip, size, pad, point[0], length % kDepth == 0);
  fits(image);
  const int64_t panels = (own + kColumns - 1) / kColumns, steps = (length + kDepth - 1) / kDepth;
  const int64_t of_one = panels * height * (whole ? 1 : width) * steps * kColumns * kDepth;
  ICHECK(is(right, kDLInt, 8 * sizeof(Right)) && elements(right) == groups * of_one)
      << "the weight is not packed for this processor";
  with_result(y, [&](auto made) {
    using Y = decltype(made);
    for (int64_t g = 0; g < groups; ++g) {
      Ends some = ends;
      some.bias += g * own;
      some.right_points += g * own;
      some.right_sums += g * own;
      if (ends.factor_count > 1) some.factors += g * own;
      if (ends.addend_count > 1 && added) some.addends += g * own;
      multiply(rows_of(image, size.count, w, g), data<Right>(right) + g * of_one, own, some,
               data<Y>(y) + g * own, columns);
    }
  });
  return 0;
}

int convolve(DLTensor* x, DLTensor* right, DLTensor* integers, DLTensor* factors,
             DLTensor* addends, DLTensor* points, int64_t height, int64_t width, int64_t stride_h,
             int64_t stride_w, int64_t top, int64_t left, int64_t bottom, int64_t right_pad,
             int64_t dilation_h, int64_t dilation_w, int64_t groups, int added, int relu,
             DLTensor* y) {
  return convolve_and_add(x, right, integers, factors, addends, points, nullptr, nullptr, height,
                          width, stride_h, stride_w, top, left, bottom, right_pad, dilation_h,
                          dilation_w, groups, added, relu, y);
}

/* Columns of [depth, columns], or turned [columns, depth], as panels; their sums, where needed. */
void pack(const Bytes& given, int64_t at, int64_t depth, int64_t columns, bool turned,
          int32_t point, Right* to, int32_t* sums) {
  const int64_t steps = (depth + kDepth - 1) / kDepth, panels = (columns + kColumns - 1) / kColumns;
  const uint8_t* from = given.data + at;
  // Columns in bytes are of int8, and 128 less than uint8.
  const uint8_t flip = given.flip;
  const int32_t taken = kBytes ? 128 : point + flip;
  std::fill(to, to + panels * steps * kColumns * kDepth, Right(0));
  std::fill(sums, sums + columns, 0);
  for (int64_t n = 0; n < columns; n += kColumns) {
    const int64_t some = std::min<int64_t>(kColumns, columns - n);
    Right* panel = to + n / kColumns * steps * kColumns * kDepth;
    const int64_t by_depth = turned ? 1 : columns, by_column = turned ? depth : 1;
    for (int64_t k = 0; k < depth; ++k) {
      Right* row = panel + k / kDepth * kColumns * kDepth + k % kDepth;
      const uint8_t* own = from + k * by_depth + n * by_column;
      for (int64_t i = 0; i < some; ++i)
        row[i * kDepth] = static_cast<Right>((own[i * by_column] ^ flip) - taken);
      if (kBytes)
        for (int64_t i = 0; i < some; ++i) sums[n + i] += row[i * kDepth];
    }
  }
}

/* y = what `factor` makes of a * b. points: the zero points of a, of b and of y. */
int multiply_both(DLTensor* a, DLTensor* b, DLTensor* factor, DLTensor* points, int turned,
                  DLTensor* y) {
  ICHECK(a->ndim == 3 && b->ndim == 3 && y->ndim == 3) << "operands have 3 axes";
  ICHECK(is(points, kDLInt, 32) && elements(points) == 3);
  ICHECK(is(factor, kDLFloat, 32) && elements(factor) == 1);
  const int64_t batch = a->shape[0], rows = a->shape[1], depth = a->shape[2];
  const int64_t columns = b->shape[turned ? 1 : 2];
  ICHECK(b->shape[0] == batch && b->shape[turned ? 2 : 1] == depth);
  ICHECK(y->shape[0] == batch && y->shape[1] == rows && y->shape[2] == columns);
  const auto* point = data<int32_t>(points);
  const Bytes left(a), right(b);
  const int64_t steps = (depth + kDepth - 1) / kDepth;
  const int64_t of_one = (columns + kColumns - 1) / kColumns * steps * kColumns * kDepth;
  Right* panels = room<Right, 1>(of_one);
  std::vector<int32_t> sums(columns);
  const std::vector<int32_t> right_points(columns, point[1] + right.flip - 128);
  Ends ends{nullptr, data<float>(factor),  1,           nullptr,
            0,       right_points.data(),  sums.data(), point[0] + left.flip,
            depth,   0,                    0,           0,
            {}};
  limit(ends, y, point[2], false);
  const Sizes size{1, batch, rows, depth};
  const auto image =
      padded<Left>(left.data, left.flip, size, Padding{}, point[0], depth % kDepth == 0);
  with_result(y, [&](auto made) {
    using Y = decltype(made);
    Rows here{std::vector<const Left*>(rows), {0}, steps, depth};
    for (int64_t i = 0; i < batch; ++i) {
      pack(right, i * depth * columns, depth, columns, turned != 0, point[1], panels, sums.data());
      for (int64_t m = 0; m < rows; ++m) here.starts[m] = image.at(0, i, m);
      multiply(here, panels, columns, ends, data<Y>(y) + i * rows * columns, columns);
    }
  });
  return 0;
}

/* `x / by` to the nearest integers, in limits. */
struct Divider {
  float by, inverse;
  Ends ends;
  bool exact;

  Divider(float by, const Ends& ends)
      : by(by), inverse(1 / by), ends(ends), exact(!std::isnormal(by) || !std::isnormal(1 / by)) {}

  // The nearest integers to quotients that are off by at most 0.0005, and how far they are from
  // these: where that is near to a half, another one may be right.
  inline Ints about(Floats x, Floats& far) const {
    const Floats made = within(x, ends.low, ends.high);
    const Ints whole = nearest(made);
    const Floats off = made - __builtin_convertvector(whole, Floats);
    const Floats size = off > -off ? off : -off;
    far = size > far ? size : far;
    return whole + ends.point;
  }

  inline Ints exactly(Floats x) const {
    return nearest(within(x / by, ends.low, ends.high)) + ends.point;
  }
};

/* What `divided` makes of `count` numbers: `make(i)` are a vector of them from i on, and `near(i)`
 * their quotients, off by at most 0.0005 in the limits. What is behind the last is read from
 * operands that `last` has put elsewhere.
 */
template <typename F, typename N, typename G>
void by_vectors(int64_t count, uint8_t* to, const Divider& divided, F make, N near, G last) {
  Ints made[kWide];
  auto whole = [&](int64_t i, uint8_t* place) __attribute__((always_inline)) {
    Floats far{};
#pragma GCC unroll 4
    for (int v = 0; v < kWide; ++v) made[v] = divided.about(near(i + v * kLanes), far);
    if (__builtin_expect(divided.exact || is_any_above(far, 0.4995f), false))
      for (int v = 0; v < kWide; ++v) made[v] = divided.exactly(make(i + v * kLanes));
    store_bytes(made, place);
  };
  int64_t i = 0;
  for (; i + kColumns <= count; i += kColumns) whole(i, to + i);
  if (i == count) return;
  uint8_t rest[kColumns];
  last(i, count - i);
  whole(0, rest);
  std::memcpy(to + i, rest, count - i);
}

/* y = a + b, each with its scale and zero point. */
int add(DLTensor* a, DLTensor* b, DLTensor* scales, DLTensor* points, int relu, DLTensor* y) {
  ICHECK(is(scales, kDLFloat, 32) && elements(scales) == 3);
  ICHECK(is(points, kDLInt, 32) && elements(points) == 3);
  const int64_t count = elements(y);
  ICHECK(elements(a) == count && elements(b) == count && y->dtype.bits == 8);
  const float of_a = data<float>(scales)[0], of_b = data<float>(scales)[1];
  const int32_t point_a = data<int32_t>(points)[0], point_b = data<int32_t>(points)[1];
  Bytes left(a), right(b);
  Ends ends{};
  limit(ends, y, data<int32_t>(points)[2], relu != 0);
  const Divider divided(data<float>(scales)[2], ends);
  uint8_t room_a[kColumns] = {}, room_b[kColumns] = {};
  auto make = [&](int64_t i) __attribute__((always_inline)) {
    const Floats x = reals(left.data + i, left.flip, point_a) * of_a;
    return x + reals(right.data + i, right.flip, point_b) * of_b;
  };
  auto last = [&](int64_t i, int64_t some) {
    std::memcpy(room_a, left.data + i, some);
    std::memcpy(room_b, right.data + i, some);
    left.data = room_a;
    right.data = room_b;
  };
  auto* to = data<uint8_t>(y);
  const float by_a = of_a * divided.inverse, by_b = of_b * divided.inverse;
  // Quotients of larger ones would be off by more. Nor are there any where one is no number.
  if (!(std::abs(by_a) + std::abs(by_b) <= 3)) {
    auto near = [&](int64_t i) { return make(i) * divided.inverse; };
    by_vectors(count, to, divided, make, near, last);
    return 0;
  }
  const auto taken = static_cast<float>(-(double(by_a) * (point_a + left.flip) +
                                          double(by_b) * (point_b + right.flip)));
  const Floats factor_a = Floats{} + by_a, factor_b = Floats{} + by_b, addend = Floats{} + taken;
  auto near = [&](int64_t i) __attribute__((always_inline)) {
    const Floats x = __builtin_convertvector(bytes_of(left.data + i, left.flip), Floats);
    const Floats z = __builtin_convertvector(bytes_of(right.data + i, right.flip), Floats);
    return plus_product(x, factor_a, plus_product(z, factor_b, addend));
  };
  by_vectors(count, to, divided, make, near, last);
  return 0;
}

/* y = x / scale, rounded. */
int quantise(DLTensor* x, DLTensor* scale, DLTensor* point, DLTensor* y) {
  ICHECK(is(x, kDLFloat, 32) && is(scale, kDLFloat, 32) && is(point, kDLInt, 32));
  ICHECK(elements(scale) == 1 && elements(point) == 1 && y->dtype.bits == 8);
  const int64_t count = elements(y);
  ICHECK_EQ(elements(x), count);
  Ends ends{};
  limit(ends, y, *data<int32_t>(point), false);
  const Divider divided(*data<float>(scale), ends);
  const float* from = data<float>(x);
  float room_x[kColumns] = {};
  by_vectors(
      count, data<uint8_t>(y), divided, [&](int64_t i) { return floats_of(from + i); },
      [&](int64_t i) { return floats_of(from + i) * divided.inverse; },
      [&](int64_t i, int64_t some) {
        std::memcpy(room_x, from + i, sizeof(float) * some);
        from = room_x;
      });
  return 0;
}

/* The largest number of each window; what is outside of the image is none. */
int max_pool(DLTensor* x, int64_t height, int64_t width, int64_t stride_h, int64_t stride_w,
             int64_t top, int64_t left, int64_t bottom, int64_t right, int64_t dilation_h,
             int64_t dilation_w, DLTensor* y) {
  ICHECK(x->ndim == 4 && y->ndim == 4) << "images have 4 axes";
  ICHECK(std::min({height, width, stride_h, stride_w, dilation_h, dilation_w}) >= 1);
  ICHECK(std::min({top, left, bottom, right}) >= 0);
  const int64_t rows = x->shape[1], columns = x->shape[2], channels = x->shape[3];
  const Image<int8_t> all{nullptr, rows + top + bottom, columns + left + right, channels};
  const Extent made = extent(all, {height, width, stride_h, stride_w, dilation_h, dilation_w, 1});
  ICHECK(y->shape[0] == x->shape[0] && y->shape[1] == made.height && y->shape[2] == made.width &&
         y->shape[3] == channels);
  const Bytes from(x);
  ICHECK(is(y, x->dtype.code, 8));
  const uint8_t flip = from.flip;
  auto* to = data<uint8_t>(y);
  for (int64_t n = 0; n < x->shape[0]; ++n)
    for (int64_t i = 0; i < made.height; ++i)
      for (int64_t j = 0; j < made.width; ++j, to += channels) {
        std::fill(to, to + channels, flip);
        for (int64_t a = 0; a < height; ++a) {
          const int64_t row = i * stride_h + a * dilation_h - top;
          if (row < 0 || row >= rows) continue;
          for (int64_t b = 0; b < width; ++b) {
            const int64_t column = j * stride_w + b * dilation_w - left;
            if (column < 0 || column >= columns) continue;
            const uint8_t* own = from.data + ((n * rows + row) * columns + column) * channels;
            for (int64_t c = 0; c < channels; ++c)
              to[c] = std::max<uint8_t>(to[c] ^ flip, own[c] ^ flip) ^ flip;
          }
        }
      }
  return 0;
}

}  // namespace

TVM_DLL_EXPORT_TYPED_FUNC(relax2xla_integers_convolve, convolve);
TVM_DLL_EXPORT_TYPED_FUNC(relax2xla_integers_convolve_and_add, convolve_and_add);
TVM_DLL_EXPORT_TYPED_FUNC(relax2xla_integers_multiply, multiply_both);
TVM_DLL_EXPORT_TYPED_FUNC(relax2xla_integers_add, add);
TVM_DLL_EXPORT_TYPED_FUNC(relax2xla_integers_max_pool, max_pool);
TVM_DLL_EXPORT_TYPED_FUNC(relax2xla_integers_quantise, quantise);
