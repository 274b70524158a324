/* A custom call of XLA that runs an external function: one handler for all of them.
 *
 * The call's attribute "function" is the key under which `relax2xla_bind` has put the function into
 * the table below; a program holds no addresses. Its attribute "arguments" says, item by item, what
 * the function gets before its results: "t" the next operand, "i5" an integer, "f0x1.8p+0" a
 * float, "s6869" a string, whose bytes are written in hexadecimal.
 */
#include <relax2xla/call.h>
#include <relax2xla/crew.h>
#include <xla/ffi/api/c_api.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

namespace {

using Typed = int(const relax2xla::Argument*, int32_t, char*, size_t);

struct Function {
  void* address;
  bool typed;
};

std::mutex mutex;

// Found by texts that are no std::string, without one being made for it.
template <typename Value>
using ByText = std::map<std::string, Value, std::less<>>;

ByText<Function>& table() {
  static ByText<Function> functions;
  return functions;
}

XLA_FFI_Error* failure(XLA_FFI_CallFrame* frame, const std::string& message) {
  XLA_FFI_Error_Create_Args args;
  std::memset(&args, 0, sizeof(args));
  args.struct_size = XLA_FFI_Error_Create_Args_STRUCT_SIZE;
  args.message = message.c_str();
  args.errc = XLA_FFI_Error_Code_INVALID_ARGUMENT;
  return frame->api->XLA_FFI_Error_Create(&args);
}

std::string_view text_of(const XLA_FFI_ByteSpan* span) { return {span->ptr, span->len}; }

std::string_view attribute(const XLA_FFI_Attrs& attrs, const char* name) {
  for (int64_t i = 0; i < attrs.size; ++i) {
    if (attrs.types[i] == XLA_FFI_AttrType_STRING && text_of(attrs.names[i]) == name)
      return text_of(static_cast<const XLA_FFI_ByteSpan*>(attrs.attrs[i]));
  }
  throw std::runtime_error(std::string("the custom call has no attribute ") + name);
}

DLDataType dtype_of(XLA_FFI_DataType dtype) {
  auto made = [](int code, int bits) {
    return DLDataType{static_cast<uint8_t>(code), static_cast<uint8_t>(bits), 1};
  };
  switch (dtype) {
    case XLA_FFI_DataType_PRED: return made(kDLBool, 8);
    case XLA_FFI_DataType_S8: return made(kDLInt, 8);
    case XLA_FFI_DataType_S16: return made(kDLInt, 16);
    case XLA_FFI_DataType_S32: return made(kDLInt, 32);
    case XLA_FFI_DataType_S64: return made(kDLInt, 64);
    case XLA_FFI_DataType_U8: return made(kDLUInt, 8);
    case XLA_FFI_DataType_U16: return made(kDLUInt, 16);
    case XLA_FFI_DataType_U32: return made(kDLUInt, 32);
    case XLA_FFI_DataType_U64: return made(kDLUInt, 64);
    case XLA_FFI_DataType_F16: return made(kDLFloat, 16);
    case XLA_FFI_DataType_F32: return made(kDLFloat, 32);
    case XLA_FFI_DataType_F64: return made(kDLFloat, 64);
    case XLA_FFI_DataType_BF16: return made(kDLBfloat, 16);
    case XLA_FFI_DataType_C64: return made(kDLComplex, 64);
    case XLA_FFI_DataType_C128: return made(kDLComplex, 128);
    default: throw std::runtime_error("a tensor is of a dtype that external functions do not take");
  }
}

DLTensor tensor_of(void* given) {
  const auto* buffer = static_cast<const XLA_FFI_Buffer*>(given);
  return DLTensor{buffer->data, DLDevice{kDLCPU, 0}, static_cast<int32_t>(buffer->rank),
                  dtype_of(buffer->dtype), buffer->dims, nullptr, 0};
}

/* The name of a function, of its key. */
std::string name_of(std::string_view key) { return std::string(key.substr(0, key.find('@'))); }

relax2xla::Argument argument_of(DLTensor* tensor) {
  relax2xla::Argument made;
  made.kind = relax2xla::kTensor;
  made.tensor = tensor;
  return made;
}

// A call of a C function, whose arguments are as many tensors as there are.
template <size_t... I>
int spread(void* function, DLTensor* tensors, std::index_sequence<I...>) {
  return reinterpret_cast<int (*)(decltype(&tensors[I])...)>(function)(&tensors[I]...);
}

template <size_t N = 1>
int plain(void* function, std::vector<DLTensor>& tensors) {
  if constexpr (N > RELAX2XLA_LONGEST_PLAIN) {
    throw std::runtime_error("a plain C function has too many arguments");
  } else {
    if (tensors.size() == N) {
      return spread(function, tensors.data(), std::make_index_sequence<N>{});
    }
    return plain<N + 1>(function, tensors);
  }
}

// -- threads ---------------------------------------------------------------------------------------
// The call that this thread is in.
thread_local const XLA_FFI_CallFrame* current = nullptr;

bool succeeded(const XLA_FFI_Api* api, XLA_FFI_Error* error) {
  if (error == nullptr) return true;
  XLA_FFI_Error_Destroy_Args args;
  std::memset(&args, 0, sizeof(args));
  args.struct_size = XLA_FFI_Error_Destroy_Args_STRUCT_SIZE;
  args.error = error;
  api->XLA_FFI_Error_Destroy(&args);
  return false;
}

int64_t count_threads(const XLA_FFI_CallFrame* frame) {
  int64_t count = 1;
  XLA_FFI_ThreadPool_NumThreads_Args args;
  std::memset(&args, 0, sizeof(args));
  args.struct_size = XLA_FFI_ThreadPool_NumThreads_Args_STRUCT_SIZE;
  args.ctx = frame->ctx;
  args.num_threads = &count;
  return succeeded(frame->api, frame->api->XLA_FFI_ThreadPool_NumThreads(&args)) ? count : 1;
}

/* `current` is the call, for as long as this is there. */
struct Within {
  explicit Within(const XLA_FFI_CallFrame* frame) { current = frame; }
  ~Within() { current = nullptr; }
};

/* What a function gets before its results: the attribute "arguments", read. Tensors have no values. */
struct Items {
  std::vector<relax2xla::Argument> values;
  // What arguments that are texts point to.
  std::list<std::string> texts;

  explicit Items(const std::string& given) {
    for (size_t start = 0; start < given.size();) {
      const size_t end = std::min(given.find(' ', start), given.size());
      values.push_back(read(given[start], given.substr(start + 1, end - start - 1)));
      start = end + 1;
    }
  }

 private:
  relax2xla::Argument read(char kind, const std::string& value) {
    relax2xla::Argument made;
    switch (kind) {
      case 't':
        made.kind = relax2xla::kTensor;
        break;
      case 'i':
        made.kind = relax2xla::kInteger;
        made.integer = std::strtoll(value.c_str(), nullptr, 10);
        break;
      case 'f':
        made.kind = relax2xla::kFloating;
        made.floating = std::strtod(value.c_str(), nullptr);
        break;
      default: {
        std::string& text = texts.emplace_back();
        for (size_t i = 0; i + 1 < value.size(); i += 2)
          text.push_back(static_cast<char>(std::stoi(value.substr(i, 2), nullptr, 16)));
        made.kind = relax2xla::kText;
        made.text = text.c_str();
      }
    }
    return made;
  }
};

/* The items of a text, which a thread reads once: calls of small networks take a few microseconds. */
std::shared_ptr<const Items> items_of(std::string_view given) {
  constexpr size_t kMost = 1000;
  static thread_local ByText<std::shared_ptr<const Items>> known;
  if (const auto found = known.find(given); found != known.end()) return found->second;
  if (known.size() == kMost) known.clear();
  return known.emplace(given, std::make_shared<const Items>(std::string(given))).first->second;
}

Function function_of(std::string_view key) {
  std::lock_guard<std::mutex> lock(mutex);
  if (const auto found = table().find(key); found != table().end()) return found->second;
  throw std::runtime_error("the external function " + name_of(key) +
                           " is not loaded in this process: build the model here, with its external "
                           "modules attached");
}

void run(XLA_FFI_CallFrame* frame) {
  const std::string_view key = attribute(frame->attrs, "function");
  const Function function = function_of(key);
  std::vector<DLTensor> tensors;
  tensors.reserve(frame->args.size + frame->rets.size);
  for (int64_t i = 0; i < frame->args.size; ++i) tensors.push_back(tensor_of(frame->args.args[i]));
  for (int64_t i = 0; i < frame->rets.size; ++i) tensors.push_back(tensor_of(frame->rets.rets[i]));
  if (!function.typed) {
    const int status = plain(function.address, tensors);
    if (status != 0) {
      throw std::runtime_error(name_of(key) + " gave the status " + std::to_string(status) +
                               "; a plain C function gives an int, 0 for success");
    }
    return;
  }
  const std::shared_ptr<const Items> items = items_of(attribute(frame->attrs, "arguments"));
  std::vector<relax2xla::Argument> arguments = items->values;
  size_t next = 0;
  for (relax2xla::Argument& argument : arguments) {
    if (argument.kind == relax2xla::kTensor) argument.tensor = &tensors.at(next++);
  }
  while (next < tensors.size()) arguments.push_back(argument_of(&tensors[next++]));
  char message[4096];
  message[0] = '\0';
  const Within within(frame);
  auto* typed = reinterpret_cast<Typed*>(function.address);
  if (typed(arguments.data(), static_cast<int32_t>(arguments.size()), message, sizeof(message))) {
    throw std::runtime_error(name_of(key) + ": " + message);
  }
}

}  // namespace

extern "C" void relax2xla_bind(const char* key, void* address, int typed) {
  std::lock_guard<std::mutex> lock(mutex);
  table()[key] = Function{address, typed != 0};
}

// What libraries are told of the threads (relax2xla/threads.h).
extern "C" int64_t relax2xla_in_parts(int64_t count, relax2xla::Part* work, void* data) {
  const int64_t threads = current == nullptr ? 1 : count_threads(current);
  if (count > 0) relax2xla::in_parts(count, work, data, threads);
  return threads;
}

extern "C" XLA_FFI_Error* relax2xla_external(XLA_FFI_CallFrame* frame) {
  // auto: jaxlib 0.12 has another name for its type.
  auto* extension = frame->extension_start;
  if (extension != nullptr && extension->type == XLA_FFI_Extension_Metadata) {
    XLA_FFI_Metadata* metadata =
        reinterpret_cast<XLA_FFI_Metadata_Extension*>(extension)->metadata;
    metadata->api_version.major_version = XLA_FFI_API_MAJOR;
    metadata->api_version.minor_version = XLA_FFI_API_MINOR;
    metadata->traits = 0;
    return nullptr;
  }
  try {
    run(frame);
  } catch (const std::exception& error) {
    return failure(frame, error.what());
  } catch (...) {
    return failure(frame, "an external function threw something that is no std::exception");
  }
  return nullptr;
}
