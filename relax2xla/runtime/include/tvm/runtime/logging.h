/* Checks of kernels: CHECK, ICHECK and LOG throw, or print. The names are TVM's, the text is ours.
 *
 * What is thrown becomes a TVMError of the Python caller.
 */
#ifndef TVM_RUNTIME_LOGGING_H_
#define TVM_RUNTIME_LOGGING_H_

#include <iostream>
#include <sstream>
#include <stdexcept>
#include <string>

namespace tvm {
namespace runtime {

class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Collects a message with <<; throws it at the end of the statement.
class FatalMessage {
 public:
  FatalMessage(const char* file, int line) { text_ << file << ":" << line << ": "; }
  ~FatalMessage() noexcept(false) { throw Error(text_.str()); }
  std::ostream& stream() { return text_; }

 private:
  std::ostringstream text_;
};

// The same for a message that is only printed.
class PrintedMessage {
 public:
  PrintedMessage(const char* file, int line) { text_ << file << ":" << line << ": "; }
  ~PrintedMessage() { std::cerr << text_.str() << std::endl; }
  std::ostream& stream() { return text_; }

 private:
  std::ostringstream text_;
};

using InternalError = Error;

}  // namespace runtime
}  // namespace tvm

#define LOG_FATAL ::tvm::runtime::FatalMessage(__FILE__, __LINE__).stream()
#define LOG_INFO ::tvm::runtime::PrintedMessage(__FILE__, __LINE__).stream()
#define LOG_WARNING LOG_INFO
#define LOG_ERROR LOG_INFO
#define LOG(level) LOG_##level

// The branch that does nothing makes an `else` behind the macro belong to the caller's own `if`.
#define ICHECK(condition) \
  if (condition) {        \
  } else                  \
    LOG_FATAL << "Check failed: (" #condition ") is false: "
#define RELAX2XLA_CHECK_OP(op, x, y) \
  if ((x)op(y)) {                    \
  } else                             \
    LOG_FATAL << "Check failed: " #x " " #op " " #y " (" << (x) << " vs. " << (y) << "): "
#define ICHECK_EQ(x, y) RELAX2XLA_CHECK_OP(==, x, y)
#define ICHECK_NE(x, y) RELAX2XLA_CHECK_OP(!=, x, y)
#define ICHECK_LT(x, y) RELAX2XLA_CHECK_OP(<, x, y)
#define ICHECK_LE(x, y) RELAX2XLA_CHECK_OP(<=, x, y)
#define ICHECK_GT(x, y) RELAX2XLA_CHECK_OP(>, x, y)
#define ICHECK_GE(x, y) RELAX2XLA_CHECK_OP(>=, x, y)

#define CHECK ICHECK
#define CHECK_EQ ICHECK_EQ
#define CHECK_NE ICHECK_NE
#define CHECK_LT ICHECK_LT
#define CHECK_LE ICHECK_LE
#define CHECK_GT ICHECK_GT
#define CHECK_GE ICHECK_GE
#define DCHECK ICHECK

#endif  // TVM_RUNTIME_LOGGING_H_
