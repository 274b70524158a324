/* tvm::runtime::DataType: a dtype that can be compared; the names are TVM's, the text is ours. */
#ifndef TVM_RUNTIME_DATA_TYPE_H_
#define TVM_RUNTIME_DATA_TYPE_H_

#include <dlpack/dlpack.h>

namespace tvm {
namespace runtime {

class DataType {
 public:
  enum TypeCode {
    kInt = kDLInt,
    kUInt = kDLUInt,
    kFloat = kDLFloat,
    kHandle = kDLOpaqueHandle,
    kBFloat = kDLBfloat
  };

  DataType() : DataType(kHandle, 0, 0) {}
  explicit DataType(DLDataType dtype) : data_(dtype) {}
  DataType(int code, int bits, int lanes) {
    data_.code = static_cast<uint8_t>(code);
    data_.bits = static_cast<uint8_t>(bits);
    data_.lanes = static_cast<uint16_t>(lanes);
  }

  int code() const { return data_.code; }
  int bits() const { return data_.bits; }
  int lanes() const { return data_.lanes; }
  int bytes() const { return (bits() + 7) / 8; }
  bool is_scalar() const { return lanes() == 1; }
  bool is_bool() const { return code() == kDLBool || (is_uint() && bits() == 1); }
  bool is_float() const { return code() == kDLFloat; }
  bool is_float16() const { return is_float() && bits() == 16; }
  bool is_bfloat16() const { return code() == kDLBfloat && bits() == 16; }
  bool is_int() const { return code() == kDLInt; }
  bool is_uint() const { return code() == kDLUInt; }

  static DataType Int(int bits, int lanes = 1) { return DataType(kDLInt, bits, lanes); }
  static DataType UInt(int bits, int lanes = 1) { return DataType(kDLUInt, bits, lanes); }
  static DataType Float(int bits, int lanes = 1) { return DataType(kDLFloat, bits, lanes); }
  static DataType BFloat(int bits, int lanes = 1) { return DataType(kDLBfloat, bits, lanes); }
  // A bool takes a byte, as numpy's and DLPack's do.
  static DataType Bool(int lanes = 1) { return DataType(kDLBool, 8, lanes); }

  bool operator==(const DataType& other) const {
    return code() == other.code() && bits() == other.bits() && lanes() == other.lanes();
  }
  bool operator!=(const DataType& other) const { return !(*this == other); }
  operator DLDataType() const { return data_; }

 private:
  DLDataType data_;
};

}  // namespace runtime

using DataType = runtime::DataType;

}  // namespace tvm

#endif  // TVM_RUNTIME_DATA_TYPE_H_
