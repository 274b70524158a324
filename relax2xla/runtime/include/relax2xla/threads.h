/* Work in parts, on the threads of the program that calls a function.
 *
 * A library that includes this is told of the threads once it is loaded; without them, and in a
 * program that has one, the caller does all parts.
 */
#ifndef RELAX2XLA_THREADS_H_
#define RELAX2XLA_THREADS_H_

#include <algorithm>
#include <cstdint>

namespace relax2xla {

using Part = void(void* data, int64_t part);
// Calls `work(data, part)` for each part below `parts`, some at the same time; then it returns how
// many threads there are. Without parts it does nothing else.
using Threads = int64_t(int64_t parts, Part* work, void* data);

static Threads* threads = nullptr;

inline int64_t count_threads() {
  return threads == nullptr ? 1 : std::max<int64_t>(1, threads(0, nullptr, nullptr));
}

/* `work(part)` for each part below `parts`. */
template <typename Work>
void each_part(int64_t parts, Work work) {
  if (threads == nullptr || parts <= 1) {
    for (int64_t part = 0; part < parts; ++part) work(part);
    return;
  }
  threads(parts, [](void* data, int64_t part) { (*static_cast<Work*>(data))(part); }, &work);
}

/* `work(from, to)` for ranges that are [0, count) together, each of about `least` or more: as many
 * for each thread, and some, since threads may have other work. */
template <typename Work>
void in_ranges(int64_t count, int64_t least, Work work) {
  constexpr int64_t kSome = 8;
  const int64_t all = count_threads(), worth = count / std::max<int64_t>(1, least);
  if (all == 1 || worth <= 1) {
    work(int64_t{0}, count);
    return;
  }
  const int64_t parts = std::min(worth, kSome * all);
  const int64_t even = parts < all ? parts : parts / all * all;
  each_part(even, [&](int64_t i) { work(i * count / even, (i + 1) * count / even); });
}

/* From `begin` on, before `end`. */
struct Range {
  int64_t begin, end;
};

/* How products are shared out: pieces of their rows, and bands of their columns. */
struct Shares {
  int64_t pieces, bands;

  int64_t parts() const { return pieces * bands; }
  int64_t piece_of(int64_t part) const { return part / bands; }
  /* What of `count` columns is the band of a part. */
  Range band_of(int64_t part, int64_t count) const {
    const int64_t band = part % bands;
    return {band * count / bands, (band + 1) * count / bands};
  }
};

/* Shares of rows that are computed in `blocks`, each of which reads the whole weight, and of
 * `columns` that can be told apart; `worth`: how many threads have enough to do. A band reads its
 * part of the weight, so that few rows are no reason to read it once for each thread. */
inline Shares shares_of(int64_t blocks, int64_t columns, int64_t worth) {
  constexpr int64_t kSome = 4;
  const int64_t all = std::min(count_threads(), worth);
  if (all <= 1) return {1, 1};
  if (blocks >= all) return {all * std::min(kSome, blocks / all), 1};
  int64_t bands = std::min(columns, (all + blocks - 1) / blocks);
  while (bands < columns && blocks * bands % all != 0) ++bands;
  return {blocks, bands};
}

}  // namespace relax2xla

extern "C" __attribute__((visibility("default"))) void relax2xla_use_threads(
    relax2xla::Threads* given) {
  relax2xla::threads = given;
}

#endif  // RELAX2XLA_THREADS_H_
