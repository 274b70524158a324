/* Tensors whose axes change places, so that another one is the last.
 *
 * Numbers are of four bytes, and are moved as they are. Axes that stay neighbours are one axis. Blocks
 * of kLanes x kLanes numbers are turned in registers, between what lies side by side in the operand and
 * what lies so in the result: on each side the last axis, and with a short one (the taps of a filter)
 * those before it, as far as they do not belong to the other side.
 */
#include <dlpack/dlpack.h>
#include <relax2xla/activations.h>
#include <relax2xla/threads.h>
#include <relax2xla/turn.h>
#include <tvm/runtime/packed_func.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace {

using relax2xla::kLanes;
using relax2xla::load;
using relax2xla::load_first;
using relax2xla::store;
using relax2xla::store_first;
using relax2xla::Vector;

// Numbers that are worth a thread.
constexpr int64_t kWorth = 32 * 1024;
// Numbers of the sides of a tile, which stays in a near cache; of a side beside a short one.
constexpr int64_t kRows = 256, kColumns = 128, kLong = 1024;
// How many blocks before it is written the lines of a block are fetched.
constexpr int64_t kAhead = 2;

/* An axis, and how far its places are from each other in the operand and in the result. */
struct Axis {
  int64_t size, from, to;
};

/* How far a place among those of all axes is from the first one, by one of their distances. */
int64_t distance(const std::vector<Axis>& axes, int64_t place, int64_t Axis::*apart) {
  int64_t made = 0;
  for (size_t a = axes.size(); a-- > 0; place /= axes[a].size)
    made += place % axes[a].size * (axes[a].*apart);
  return made;
}

/* Axes that are cut into pieces together. */
struct Side {
  std::vector<Axis> axes;
  int64_t size = 1, piece = 1;

  void cut(int64_t longest) { piece = std::min(size, longest); }
  /* The last piece has what is left as well, so that none is short beside a long one. */
  int64_t pieces() const { return size / piece; }
  int64_t begin(int64_t i) const { return i * piece; }
  int64_t end(int64_t i) const { return i + 1 == pieces() ? size : (i + 1) * piece; }

  /* Where the places of a piece are, by a distance of its axes. */
  void list(int64_t i, int64_t Axis::*apart, int64_t* to) const {
    const Axis& last = axes.back();
    for (int64_t place = begin(i); place < end(i);) {
      const int64_t first = distance(axes, place, apart);
      const int64_t many = std::min(last.size - place % last.size, end(i) - place);
      for (int64_t k = 0; k < many; ++k) to[k] = first + k * (last.*apart);
      to += many;
      place += many;
    }
  }
};

struct Transpose {
  const float* operand;
  float* result;
  // In the order of the result; in the end those that are on neither side. To go backwards is to be
  // less than 0 apart.
  std::vector<Axis> axes;
  // What lies side by side in the result, and in the operand.
  Side rows{}, columns{};

  void compute() {
    choose();
    const int64_t across = rows.pieces(), tiles = across * columns.pieces();
    int64_t count = tiles;
    for (const Axis& axis : axes) count *= axis.size;
    const int64_t least = kWorth / (rows.piece * columns.piece);
    relax2xla::in_ranges(count, least, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i)
        tile(i / tiles, i % across, i % tiles / across);
    });
  }

  void choose() {
    take(rows, axes.size() - 1);
    take(columns, apart_in_operand(1));
    for (;;) {
      const size_t row = axes.size() - 1, column = apart_in_operand(columns.size);
      const bool higher = rows.size < kRows && !axes.empty() && axes[row].to == rows.size;
      const bool wider = columns.size < kColumns && column < axes.size();
      if (!higher && !wider) break;
      if (higher && (!wider || rows.size < columns.size))
        take(rows, row);
      else
        take(columns, column);
    }
    rows.cut(columns.size < kLanes ? kLong : kRows);
    columns.cut(rows.size < kLanes ? kLong : kColumns);
  }

  void take(Side& side, size_t i) {
    side.axes.insert(side.axes.begin(), axes[i]);
    side.size *= axes[i].size;
    axes.erase(axes.begin() + static_cast<std::ptrdiff_t>(i));
  }

  /* The axis whose places are this far from each other in the operand. */
  size_t apart_in_operand(int64_t distance) const {
    size_t i = 0;
    while (i < axes.size() && axes[i].from != distance) ++i;
    return i;
  }

  void tile(int64_t place, int64_t row, int64_t column) const {
    int64_t from[2 * kLong], to[2 * kLong];
    rows.list(row, &Axis::from, from);
    columns.list(column, &Axis::to, to);
    const int64_t height = rows.end(row) - rows.begin(row);
    const int64_t width = columns.end(column) - columns.begin(column);
    const float* const read = operand + distance(axes, place, &Axis::from) + columns.begin(column);
    float* const made = result + distance(axes, place, &Axis::to) + rows.begin(row);
    if (height < kLanes || width < kLanes) {
      for (int64_t j = 0; j < width; j += kLanes)
        for (int64_t i = 0; i < height; i += kLanes)
          part(read + j, from + i, std::min<int64_t>(kLanes, height - i), made + i, to + j,
               std::min<int64_t>(kLanes, width - j));
      return;
    }
    // The last blocks have some once more.
    for (int64_t j = 0;; j = std::min(j + kLanes, width - kLanes)) {
      for (int64_t i = 0;; i = std::min(i + kLanes, height - kLanes)) {
        if (i + (kAhead + 1) * kLanes <= height)
          for (int k = 0; k < kLanes; ++k)
            __builtin_prefetch(made + i + kAhead * kLanes + to[j + k], 1);
        whole(read + j, from + i, made + i, to + j);
        if (i + kLanes == height) break;
      }
      if (j + kLanes == width) break;
    }
  }

  static void whole(const float* read, const int64_t* from, float* made, const int64_t* to) {
    Vector v[kLanes];
#pragma GCC unroll 16
    for (int i = 0; i < kLanes; ++i) v[i] = load(read + from[i]);
    relax2xla::turn(v);
#pragma GCC unroll 16
    for (int i = 0; i < kLanes; ++i) store(made + to[i], v[i]);
  }

  static void part(const float* read, const int64_t* from, int64_t height, float* made,
                   const int64_t* to, int64_t width) {
    Vector v[kLanes];
#pragma GCC unroll 16
    for (int i = 0; i < kLanes; ++i)
      v[i] = i < height ? load_first(read + from[i], static_cast<int>(width)) : Vector{};
    relax2xla::turn(v);
#pragma GCC unroll 16
    for (int i = 0; i < kLanes; ++i)
      if (i < width) store_first(made + to[i], v[i], static_cast<int>(height));
  }
};

/* `order`: which axis of the operand is each one of the result, four bits for each. `flipped`: those of
 * the result that go backwards, a bit for each; not the last. */
void transpose(const DLTensor* operand, int64_t order, int64_t flipped, const DLTensor* result) {
  ICHECK(operand->dtype.bits == 32 && operand->dtype.lanes == 1) << "numbers are of four bytes";
  std::vector<Axis> given(static_cast<size_t>(operand->ndim)), axes;
  int64_t apart = 1;
  for (size_t i = given.size(); i-- > 0; apart *= given[i].size)
    given[i] = {operand->shape[i], apart, 0};
  float* first = static_cast<float*>(result->data);
  apart = 1;
  for (size_t i = given.size(); i-- > 0;) {
    Axis axis = given[order >> (4 * i) & 15];
    const bool backwards = flipped >> i & 1;
    axis.to = backwards ? -apart : apart;
    if (backwards) first += (axis.size - 1) * apart;
    apart *= axis.size;
    if (axis.size == 1) continue;
    if (!axes.empty() && axis.from == axes.back().from * axes.back().size &&
        backwards == (axes.back().to < 0))
      axes.back().size *= axis.size;
    else
      axes.push_back(axis);
  }
  std::reverse(axes.begin(), axes.end());
  ICHECK(axes.size() > 1 && axes.back().from != 1) << "another axis becomes the last";
  Transpose{static_cast<const float*>(operand->data), first, axes}.compute();
}

}  // namespace

TVM_DLL_EXPORT_TYPED_FUNC(relax2xla_transposes_transpose, transpose);
