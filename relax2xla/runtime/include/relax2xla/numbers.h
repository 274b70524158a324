/* What tensors hold. */
#ifndef RELAX2XLA_NUMBERS_H_
#define RELAX2XLA_NUMBERS_H_

#include <dlpack/dlpack.h>
#include <tvm/runtime/packed_func.h>

namespace relax2xla {

/* The numbers of a tensor of float32; an error for another. */
inline const float* numbers(const DLTensor* t) {
  ICHECK(t->dtype.code == kDLFloat && t->dtype.bits == 32) << "numbers are of float32";
  return static_cast<const float*>(t->data);
}

}  // namespace relax2xla

#endif  // RELAX2XLA_NUMBERS_H_
