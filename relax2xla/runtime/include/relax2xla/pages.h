/* Memory that a function is the first to write to. */
#ifndef RELAX2XLA_PAGES_H_
#define RELAX2XLA_PAGES_H_

#include <cstdint>

#ifdef __linux__
#include <sys/mman.h>
#endif

namespace relax2xla {

/* Let the system give large pages for a large result: the C library maps each of them anew, and pages of
 * 4 KiB that come one by one take longer than what is written to them. */
inline void ask_for_large_pages(void* at, int64_t bytes) {
#ifdef MADV_HUGEPAGE
  // What is smaller comes from memory that the process keeps.
  constexpr int64_t kLarge = 32 << 20, kPage = 2 << 20;
  if (bytes < kLarge) return;
  const auto from = (reinterpret_cast<intptr_t>(at) + kPage - 1) / kPage * kPage;
  const auto to = (reinterpret_cast<intptr_t>(at) + bytes) / kPage * kPage;
  madvise(reinterpret_cast<void*>(from), static_cast<size_t>(to - from), MADV_HUGEPAGE);
#else
  static_cast<void>(at);
  static_cast<void>(bytes);
#endif
}

}  // namespace relax2xla

#endif  // RELAX2XLA_PAGES_H_
