/* Steps, one after the other, that threads take together: each computes a share of every step.
 *
 * A step of a recurrence takes a few microseconds, less than it takes to wake a thread. So threads that
 * have come stay until the last step, and look out for the next one meanwhile. Who comes first leads:
 * it takes the steps alone until others have come, which may be never.
 */
#ifndef RELAX2XLA_STEPS_H_
#define RELAX2XLA_STEPS_H_

#include <relax2xla/threads.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <thread>

namespace relax2xla {

class Steps {
 public:
  /* A share of a step: that of `member` of `members`. */
  template <typename Step>
  void take(int64_t count, Step step) {
    if (entered_++ == 0) {
      lead(count, step);
    } else {
      follow(step);
    }
  }

 private:
  // Of a ticket: the number of the step and how many take it; behind the last step.
  static constexpr int64_t kMembers = 1 << 10, kOver = -1;

  template <typename Step>
  void lead(int64_t count, Step step) {
    bool together = true;
    for (int64_t n = 0; n < count; ++n) {
      const int64_t members = together ? 1 + joined_.load() : 1;
      if (members == 1) {
        step(n, 0, 1);
        continue;
      }
      waiting_ = members - 1;
      ticket_ = (n + 1) * kMembers + members;
      step(n, 0, members);
      together = wait([this] { return waiting_ == 0; });
    }
    ticket_ = kOver;
  }

  template <typename Step>
  void follow(Step step) {
    const int64_t member = 1 + joined_++;
    int64_t last = 0;
    while (true) {
      int64_t ticket = last;
      wait([&] { return (ticket = ticket_) != last; });
      if (ticket == kOver) return;
      last = ticket;
      const int64_t members = ticket % kMembers;
      if (member >= members) continue;
      step(ticket / kMembers - 1, member, members);
      --waiting_;
    }
  }

  /* Until it is done; whether that took so little that nobody's processor was taken away. */
  template <typename Done>
  static bool wait(Done done) {
    constexpr int kBriefly = 2000;
    for (int i = 0; i < kBriefly; ++i) {
      if (done()) return true;
#if defined(__x86_64__)
      __builtin_ia32_pause();
#endif
    }
    constexpr std::chrono::microseconds kPatience{200};
    const auto end = std::chrono::steady_clock::now() + kPatience;
    while (!done()) std::this_thread::yield();
    return std::chrono::steady_clock::now() < end;
  }

  // Each in a line of the cache of its own.
  alignas(64) std::atomic<int64_t> entered_{0};
  alignas(64) std::atomic<int64_t> joined_{0};
  alignas(64) std::atomic<int64_t> ticket_{0};
  alignas(64) std::atomic<int64_t> waiting_{0};
};

/* `step(n, member, members)` for each n below `count`, for each member of as many threads as come, up to
 * `most`; a step begins when the one before is done. */
template <typename Step>
void in_steps(int64_t count, int64_t most, Step step) {
  Steps steps;
  each_part(std::min(most, count_threads()), [&](int64_t) { steps.take(count, step); });
}

}  // namespace relax2xla

#endif  // RELAX2XLA_STEPS_H_
