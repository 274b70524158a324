/* TVM_DLL_EXPORT_TYPED_FUNC(symbol, function): relax2xla calls `function` under the name `symbol`.
 *
 * The macro's name is TVM's; how the call is made is relax2xla's own, see <relax2xla/call.h>.
 */
#ifndef TVM_RUNTIME_PACKED_FUNC_H_
#define TVM_RUNTIME_PACKED_FUNC_H_

#include <dlpack/dlpack.h>
#include <relax2xla/call.h>
#include <tvm/runtime/c_runtime_api.h>
#include <tvm/runtime/data_type.h>
#include <tvm/runtime/logging.h>

#define TVM_DLL_EXPORT_TYPED_FUNC(symbol, function)                                           \
  extern "C" TVM_DLL int relax2xla_call_##symbol(const relax2xla::Argument* arguments,        \
                                                 int32_t count, char* message, size_t size) { \
    return relax2xla::call(function, arguments, count, message, size);                        \
  }

#endif  // TVM_RUNTIME_PACKED_FUNC_H_
