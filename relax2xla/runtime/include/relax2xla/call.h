/* How relax2xla calls a function of C++ with arguments whose types are known at run time.
 *
 * `call(function, arguments, count, message, size)` reads each argument as the type that the
 * function takes. It gives 0, or 1 with a message where the arguments do not fit, the function
 * throws, or the function itself gives another int than 0.
 */
#ifndef RELAX2XLA_CALL_H_
#define RELAX2XLA_CALL_H_

#include <dlpack/dlpack.h>

#include <cstdio>
#include <exception>
#include <limits>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>

namespace relax2xla {

enum Kind : int64_t { kTensor = 0, kInteger = 1, kFloating = 2, kText = 3 };

struct Argument {
  int64_t kind;
  union {
    DLTensor* tensor;
    int64_t integer;
    double floating;
    const char* text;
  };
};

inline std::runtime_error mismatch(int place, int64_t got, const char* wanted) {
  static const char* const names[] = {"a tensor", "an integer", "a float", "a string"};
  return std::runtime_error("argument " + std::to_string(place) + " is " + names[got] +
                            "; the function takes " + wanted);
}

template <typename T>
struct Read {
  static T from(const Argument& a, int place) {
    if constexpr (std::is_same_v<T, DLTensor*> || std::is_same_v<T, const DLTensor*>) {
      if (a.kind != kTensor) throw mismatch(place, a.kind, "a tensor");
      return a.tensor;
    } else if constexpr (std::is_integral_v<T>) {
      if (a.kind != kInteger) throw mismatch(place, a.kind, "an integer");
      T value = static_cast<T>(a.integer);
      if (static_cast<int64_t>(value) != a.integer) {
        throw std::runtime_error("argument " + std::to_string(place) + " is " +
                                 std::to_string(a.integer) + ", which the function's type of " +
                                 std::to_string(8 * sizeof(T)) + " bits does not hold");
      }
      return value;
    } else if constexpr (std::is_floating_point_v<T>) {
      if (a.kind == kInteger) return static_cast<T>(a.integer);
      if (a.kind != kFloating) throw mismatch(place, a.kind, "a float");
      return static_cast<T>(a.floating);
    } else {
      static_assert(std::is_same_v<T, const char*> || std::is_same_v<T, std::string>,
                    "an exported function takes DLTensor*, integers, floats, const char* and "
                    "std::string");
      if (a.kind != kText) throw mismatch(place, a.kind, "a string");
      return a.text;
    }
  }
};

template <typename R, typename... Args, size_t... I>
int spread(R (*function)(Args...), const Argument* arguments, std::index_sequence<I...>) {
  static_assert(std::is_void_v<R> || std::is_integral_v<R>,
                "an exported function writes into its last arguments, and gives void or int");
  (void)arguments;
  if constexpr (std::is_void_v<R>) {
    function(Read<std::decay_t<Args>>::from(arguments[I], static_cast<int>(I))...);
    return 0;
  } else {
    return static_cast<int>(
        function(Read<std::decay_t<Args>>::from(arguments[I], static_cast<int>(I))...));
  }
}

/* `run()`, which gives a status: 0, or 1 with a message where it throws or gives another. */
template <typename Run>
int guarded(Run run, char* message, size_t size) {
  try {
    const int status = run();
    if (status == 0) return 0;
    std::snprintf(message, size, "it gave the status %d, where 0 means success", status);
  } catch (const std::exception& error) {
    std::snprintf(message, size, "%s", error.what());
  } catch (...) {
    std::snprintf(message, size, "it threw something that is no std::exception");
  }
  return 1;
}

template <typename R, typename... Args>
int call(R (*function)(Args...), const Argument* arguments, int32_t count, char* message,
         size_t size) {
  return guarded(
      [&] {
        if (count != static_cast<int32_t>(sizeof...(Args))) {
          throw std::runtime_error("it takes " + std::to_string(sizeof...(Args)) +
                                   " arguments, results included; got " + std::to_string(count));
        }
        return spread(function, arguments, std::index_sequence_for<Args...>{});
      },
      message, size);
}

}  // namespace relax2xla

#endif  // RELAX2XLA_CALL_H_
