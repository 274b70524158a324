/* Images [n, height, width, channels] of bytes as products read them: padded, and centred in words. */
#ifndef RELAX2XLA_INTEGERS_IMAGE_H_
#define RELAX2XLA_INTEGERS_IMAGE_H_

#include <relax2xla/integers/product.h>

#include <vector>

namespace relax2xla_integers {

/* Memory of one thread that calls take again and again. It begins where a line of the cache does:
 * vectors that lie in two lines take twice the time.
 */
template <typename T, int kPlace>
T* room(size_t count) {
  constexpr uintptr_t kLine = 64;
  thread_local std::vector<T> kept;
  if (kept.size() < count + kLine) kept = std::vector<T>(count + kLine);
  const auto begin = reinterpret_cast<uintptr_t>(kept.data());
  return reinterpret_cast<T*>((begin + kLine - 1) / kLine * kLine);
}

/* Numbers behind the last one that a step may read. */
constexpr int64_t kSlack = 64;

/* As what a product takes bytes of an operand on its left: uint8, or int16 without zero point.
 *
 * flip: 128 where they are of int8, whose halves are exchanged by it.
 */
template <typename L>
inline void turn(const uint8_t* from, uint8_t flip, int64_t count, int32_t point, L* to) {
  if constexpr (sizeof(L) == 2) {
    const auto taken = static_cast<int16_t>(point + flip);
    for (int64_t i = 0; i < count; ++i)
      to[i] = static_cast<int16_t>(static_cast<uint8_t>(from[i] ^ flip) - taken);
  } else {
    for (int64_t i = 0; i < count; ++i) to[i] = from[i] ^ flip;
  }
}

struct Sizes {
  int64_t count, height, width, channels;
};
struct Padding {
  int64_t top, left, bottom, right;
};

/* A padded image; `data` may be the given one. */
template <typename L>
struct Image {
  const L* data;
  int64_t height, width, channels;

  const L* at(int64_t n, int64_t row, int64_t column) const {
    return data + ((n * height + row) * width + column) * channels;
  }
};

/* `keep`: nothing behind the image is read. */
template <typename L>
Image<L> padded(const uint8_t* from, uint8_t flip, Sizes size, Padding by, int32_t point, bool keep) {
  Image<L> made{nullptr, size.height + by.top + by.bottom, size.width + by.left + by.right,
                size.channels};
  const bool plain = made.height == size.height && made.width == size.width;
  if constexpr (sizeof(L) == 1) {
    if (plain && keep && !flip) {
      made.data = from;
      return made;
    }
  }
  const int64_t row = made.width * size.channels, own = size.width * size.channels;
  const int64_t total = size.count * made.height * row;
  L* to = room<L, 0>(total + kSlack);
  made.data = to;
  // What is behind the last number meets zeros on the right.
  std::fill(to + total, to + total + kSlack, L(0));
  if (plain) {
    turn(from, flip, total, point, to);
    return made;
  }
  // Padding stands for zero: in words it is that.
  const L empty = sizeof(L) == 2 ? L(0) : static_cast<L>(point + flip);
  for (int64_t n = 0; n < size.count; ++n) {
    std::fill(to, to + by.top * row, empty);
    to += by.top * row;
    for (int64_t h = 0; h < size.height; ++h, to += row, from += own) {
      std::fill(to, to + by.left * size.channels, empty);
      turn(from, flip, own, point, to + by.left * size.channels);
      std::fill(to + by.left * size.channels + own, to + row, empty);
    }
    std::fill(to, to + by.bottom * row, empty);
    to += by.bottom * row;
  }
  return made;
}

}  // namespace relax2xla_integers

#endif  // RELAX2XLA_INTEGERS_IMAGE_H_
