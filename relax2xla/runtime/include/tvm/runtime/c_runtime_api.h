/* What of TVM's C interface kernels use: DLPack's structs, and how symbols are exported. */
#ifndef TVM_RUNTIME_C_RUNTIME_API_H_
#define TVM_RUNTIME_C_RUNTIME_API_H_

#include <dlpack/dlpack.h>

#ifndef TVM_DLL
#define TVM_DLL __attribute__((visibility("default")))
#endif

#endif  // TVM_RUNTIME_C_RUNTIME_API_H_
