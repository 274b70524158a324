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
// Calls `work(data, part)` for each part below `parts`, some at the same time; then it returns.
using Threads = void(int64_t parts, Part* work, void* data);

static Threads* threads = nullptr;

/* `work(from, to)` for ranges that are [0, count) together, each of about `least` or more. */
template <typename Work>
void in_ranges(int64_t count, int64_t least, Work work) {
  const int64_t length = std::max<int64_t>(1, least);
  const int64_t parts = (count + length - 1) / length;
  if (threads == nullptr || parts <= 1) {
    work(int64_t{0}, count);
    return;
  }
  auto part = [&](int64_t i) { work(i * length, std::min(count, (i + 1) * length)); };
  threads(parts, [](void* data, int64_t i) { (*static_cast<decltype(part)*>(data))(i); }, &part);
}

}  // namespace relax2xla

extern "C" __attribute__((visibility("default"))) void relax2xla_use_threads(
    relax2xla::Threads* given) {
  relax2xla::threads = given;
}

#endif  // RELAX2XLA_THREADS_H_
