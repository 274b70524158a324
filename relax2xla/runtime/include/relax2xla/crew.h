/* Threads that help with the parts of a call: one for each processor, which stays there.
 *
 * A thread that was asleep runs where the system puts it. On virtual machines that may be where the
 * one that woke it runs, while others do nothing: a processor that sleeps looks to the system like
 * one that the host took away. So helpers have a processor each, and a call asks those on others
 * than its own. One that has done its parts looks out for the next ones for a while, as waking up
 * takes as long as some calls; whatever else wants to run goes before it.
 */
#ifndef RELAX2XLA_CREW_H_
#define RELAX2XLA_CREW_H_

#include <relax2xla/threads.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#ifdef __linux__
#include <sched.h>
#endif

namespace relax2xla {

/* Wait until `done()`, for about this long, while others run. */
template <typename Done>
bool look_out(Done done) {
  constexpr std::chrono::microseconds kPatience{250};
  const auto end = std::chrono::steady_clock::now() + kPatience;
  while (!done()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::yield();
  }
  return true;
}

/* The parts of a call. Each thread takes those of its own share first, one after the other, then what
 * the others have left: so a thread finds near what it made of the same place in the call before. */
class Parts {
 public:
  Parts(int64_t count, Part* work, void* data, int64_t threads)
      : count_(count), work_(work), data_(data), shares_(static_cast<size_t>(threads)) {
    for (int64_t t = 0; t < threads; ++t) {
      Share& share = shares_[static_cast<size_t>(t)];
      share.next = t * count / threads;
      share.end = (t + 1) * count / threads;
    }
  }

  // The work and its data are there until the last part is done, and not asked for behind it.
  void run(size_t own) {
    for (size_t i = 0; i < shares_.size(); ++i) {
      Share& share = shares_[(own + i) % shares_.size()];
      for (int64_t part; (part = share.next++) < share.end;) run_one(part);
    }
  }

  void wait() {
    const auto done = [this] { return done_ == count_; };
    look_out(done);
    std::unique_lock<std::mutex> lock(mutex_);
    all_done_.wait(lock, done);
    if (failure_) std::rethrow_exception(failure_);
  }

 private:
  // Each in a line of the cache of its own.
  struct alignas(64) Share {
    std::atomic<int64_t> next{0};
    int64_t end = 0;
  };

  void run_one(int64_t part) {
    try {
      work_(data_, part);
    } catch (...) {
      std::lock_guard<std::mutex> lock(mutex_);
      failure_ = std::current_exception();
    }
    if (++done_ == count_) {
      std::lock_guard<std::mutex> lock(mutex_);
      all_done_.notify_all();
    }
  }

  const int64_t count_;
  Part* const work_;
  void* const data_;
  std::vector<Share> shares_;
  std::atomic<int64_t> done_{0};
  std::exception_ptr failure_;
  std::mutex mutex_;
  std::condition_variable all_done_;
};

/* A thread on a processor; less than 0: on any. */
class Helper {
 public:
  explicit Helper(int processor) : processor(processor) {
    std::thread([this] { work(); }).detach();
  }

  const int processor;

  /* The parts are this thread's next ones, and a share its own; false where it has others. */
  bool take(const std::shared_ptr<Parts>& parts, int64_t share) {
    if (is_busy_.exchange(true)) return false;
    {
      std::lock_guard<std::mutex> lock(mutex_);
      parts_ = parts;
      share_ = static_cast<size_t>(share);
      is_asked_ = true;
    }
    asked_.notify_one();
    return true;
  }

 private:
  void work() {
#ifdef __linux__
    if (processor >= 0) {
      cpu_set_t own;
      CPU_ZERO(&own);
      CPU_SET(static_cast<size_t>(processor), &own);
      sched_setaffinity(0, sizeof(own), &own);
    }
#endif
    const auto asked = [this] { return is_asked_.load(); };
    while (true) {
      look_out(asked);
      std::shared_ptr<Parts> parts;
      size_t share;
      {
        std::unique_lock<std::mutex> lock(mutex_);
        asked_.wait(lock, asked);
        is_asked_ = false;
        parts = std::move(parts_);
        share = share_;
      }
      parts->run(share);
      is_busy_ = false;
    }
  }

  std::atomic<bool> is_busy_{false}, is_asked_{false};
  std::shared_ptr<Parts> parts_;
  size_t share_ = 0;
  std::mutex mutex_;
  std::condition_variable asked_;
};

/* All helpers of the process. */
class Crew {
 public:
  static Crew& all() {
    // For ever: its threads are there until the process ends.
    static Crew* const made = new Crew;
    return *made;
  }

  /* Ask up to `wanted` who have nothing to do, on other processors than this thread's; its own share.
   * Shares are in the order of the processors, so that each has the same one next time, whichever of
   * them the caller is on then. */
  int64_t ask(int64_t wanted, const std::shared_ptr<Parts>& parts) {
    const int here = processor_here();
    int64_t share = 0, own = -1;
    for (const auto& helper : helpers_) {
      if (helper->processor >= 0 && helper->processor == here) {
        own = share++;
      } else if (wanted > 0 && helper->take(parts, share)) {
        --wanted;
        ++share;
      }
      if (wanted == 0 && own >= 0) break;
    }
    return own >= 0 ? own : share;
  }

 private:
  Crew() {
    for (int processor : processors()) helpers_.push_back(std::make_unique<Helper>(processor));
  }

#ifdef __linux__
  static int processor_here() { return sched_getcpu(); }

  static std::vector<int> processors() {
    std::vector<int> found;
    cpu_set_t allowed;
    CPU_ZERO(&allowed);
    if (sched_getaffinity(0, sizeof(allowed), &allowed) == 0) {
      for (int i = 0; i < CPU_SETSIZE; ++i) {
        if (CPU_ISSET(static_cast<size_t>(i), &allowed)) found.push_back(i);
      }
    }
    return found;
  }
#else
  static int processor_here() { return -1; }

  static std::vector<int> processors() {
    const auto count = static_cast<int64_t>(std::thread::hardware_concurrency());
    return std::vector<int>(static_cast<size_t>(std::max<int64_t>(1, count) - 1), -1);
  }
#endif

  std::vector<std::unique_ptr<Helper>> helpers_;
};

/* All parts, on up to `threads` threads: the caller works as well, and waits for parts that were
 * begun only. */
inline void in_parts(int64_t count, Part* work, void* data, int64_t threads) {
  const int64_t all = std::min(count, threads);
  const auto parts = std::make_shared<Parts>(count, work, data, all);
  parts->run(static_cast<size_t>(Crew::all().ask(all - 1, parts)));
  parts->wait();
}

}  // namespace relax2xla

#endif  // RELAX2XLA_CREW_H_
