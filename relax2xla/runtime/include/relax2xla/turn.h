/* Rows and columns of a block of numbers in registers, exchanged. */
#ifndef RELAX2XLA_TURN_H_
#define RELAX2XLA_TURN_H_

#include <relax2xla/activations.h>

#include <utility>

namespace relax2xla {

#if defined(__has_builtin)
#if __has_builtin(__builtin_shufflevector)
#define RELAX2XLA_SHUFFLE(a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#endif
#endif
#ifndef RELAX2XLA_SHUFFLE
typedef int Places __attribute__((vector_size(4 * kLanes)));
#define RELAX2XLA_SHUFFLE(a, b, ...) __builtin_shuffle(a, b, Places{__VA_ARGS__})
#endif

/* Exchange rows and columns of blocks of `Size` numbers, and of smaller ones. What calls it has the
 * rows in registers, where loops over them are unrolled. */
template <int Size, int... Lane>
__attribute__((always_inline)) inline void turn(Vector* rows, std::integer_sequence<int, Lane...> lanes) {
#pragma GCC unroll 16
  for (int i = 0; i < kLanes; ++i) {
    if (i & Size) continue;
    const Vector a = rows[i], b = rows[i + Size];
    rows[i] = RELAX2XLA_SHUFFLE(a, b, (Lane & Size ? Lane - Size + kLanes : Lane)...);
    rows[i + Size] = RELAX2XLA_SHUFFLE(a, b, (Lane & Size ? Lane + kLanes : Lane + Size)...);
  }
  if constexpr (Size > 1) turn<Size / 2>(rows, lanes);
}

/* Of kLanes vectors. */
__attribute__((always_inline)) inline void turn(Vector* rows) {
  turn<kLanes / 2>(rows, std::make_integer_sequence<int, kLanes>{});
}

}  // namespace relax2xla

#endif  // RELAX2XLA_TURN_H_
