// See r2x.h. Needs pjrt_c_api.h (of XLA, or of a package that brings a plugin) and zlib.

#include "r2x.h"

#include <dlfcn.h>
#include <zlib.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <iterator>
#include <map>
#include <set>
#include <stdexcept>
#include <utility>

#include "pjrt_c_api.h"

namespace r2x {
namespace {

using Bytes = std::vector<unsigned char>;

[[noreturn]] void fail(const std::string& what) { throw std::runtime_error(what); }

// -- dtypes ---------------------------------------------------------------------------------------
struct Kind {
  PJRT_Buffer_Type pjrt;
  std::size_t size;
};

const Kind& kind_of(const std::string& dtype) {
  static const std::map<std::string, Kind> known = {
      {"bool", {PJRT_Buffer_Type_PRED, 1}},     {"int8", {PJRT_Buffer_Type_S8, 1}},
      {"int16", {PJRT_Buffer_Type_S16, 2}},     {"int32", {PJRT_Buffer_Type_S32, 4}},
      {"int64", {PJRT_Buffer_Type_S64, 8}},     {"uint8", {PJRT_Buffer_Type_U8, 1}},
      {"uint16", {PJRT_Buffer_Type_U16, 2}},    {"uint32", {PJRT_Buffer_Type_U32, 4}},
      {"uint64", {PJRT_Buffer_Type_U64, 8}},    {"float16", {PJRT_Buffer_Type_F16, 2}},
      {"bfloat16", {PJRT_Buffer_Type_BF16, 2}}, {"float32", {PJRT_Buffer_Type_F32, 4}},
      {"float64", {PJRT_Buffer_Type_F64, 8}},   {"complex64", {PJRT_Buffer_Type_C64, 8}},
      {"complex128", {PJRT_Buffer_Type_C128, 16}},
  };
  auto found = known.find(dtype);
  if (found == known.end()) fail("the dtype " + dtype + " is not supported by this loader");
  return found->second;
}

std::string text_of(const Type& type) {
  std::string text = type.dtype + "[";
  for (std::size_t i = 0; i < type.shape.size(); ++i)
    text += (i ? "," : "") + std::to_string(type.shape[i]);
  return text + "]";
}

// -- JSON: what the manifest is made of -----------------------------------------------------------
struct Json {
  enum Which { null, boolean, number, string, list, object } which = null;
  double value = 0;
  std::string text;
  std::vector<Json> items;
  std::map<std::string, Json> fields;

  const Json& operator[](const std::string& key) const {
    static const Json none;
    auto found = fields.find(key);
    return found == fields.end() ? none : found->second;
  }
};

class JsonReader {
 public:
  explicit JsonReader(const std::string& text) : text_(text) {}

  Json read() {
    Json made = value(0);
    space();
    if (at_ != text_.size()) fail("JSON: something follows the value");
    return made;
  }

 private:
  void space() {
    while (at_ < text_.size() && std::strchr(" \t\r\n", text_[at_])) ++at_;
  }
  char peek() {
    space();
    if (at_ >= text_.size()) fail("JSON: the text ends too early");
    return text_[at_];
  }
  bool take(char wanted) {
    if (peek() != wanted) return false;
    ++at_;
    return true;
  }
  void want(char wanted) {
    if (!take(wanted)) fail(std::string("JSON: expected ") + wanted);
  }
  bool word(const char* wanted) {
    if (text_.compare(at_, std::strlen(wanted), wanted) != 0) return false;
    at_ += std::strlen(wanted);
    return true;
  }

  Json value(int depth) {
    if (depth > 200) fail("JSON: nested too deep");
    Json made;
    char first = peek();
    if (first == '"') {
      made.which = Json::string;
      made.text = quoted();
    } else if (take('[')) {
      made.which = Json::list;
      while (!take(']')) {
        if (!made.items.empty()) want(',');
        made.items.push_back(value(depth + 1));
      }
    } else if (take('{')) {
      made.which = Json::object;
      while (!take('}')) {
        if (!made.fields.empty()) want(',');
        peek();
        std::string key = quoted();
        want(':');
        made.fields[key] = value(depth + 1);
      }
    } else if (word("true") || word("false")) {
      made.which = Json::boolean;
      made.value = first == 't';
    } else if (!word("null")) {
      made.which = Json::number;
      std::size_t end = text_.find_first_not_of("+-.0123456789eE", at_);
      std::string digits = text_.substr(at_, end == std::string::npos ? end : end - at_);
      if (digits.empty()) fail("JSON: no value");
      made.value = std::stod(digits);
      at_ += digits.size();
    }
    return made;
  }

  std::string quoted() {
    if (text_[at_] != '"') fail("JSON: expected a string");
    std::string made;
    for (++at_; at_ < text_.size() && text_[at_] != '"'; ++at_) {
      if (text_[at_] != '\\') {
        made += text_[at_];
        continue;
      }
      if (++at_ >= text_.size()) break;
      static const std::map<char, char> plain = {{'n', '\n'}, {'t', '\t'}, {'r', '\r'},
                                                 {'b', '\b'}, {'f', '\f'}};
      if (text_[at_] == 'u') {
        unsigned code = unit();
        if (code >= 0xD800 && code < 0xDC00 && text_.compare(at_ + 1, 2, "\\u") == 0) {
          at_ += 2;
          code = 0x10000 + ((code - 0xD800) << 10) + (unit() - 0xDC00);
        }
        append(made, code);
      } else {
        auto found = plain.find(text_[at_]);
        made += found == plain.end() ? text_[at_] : found->second;
      }
    }
    if (at_ >= text_.size()) fail("JSON: a string does not end");
    ++at_;
    return made;
  }
  // The four digits after \u; the last of them is the place after it.
  unsigned unit() {
    std::string digits = text_.substr(std::min(at_ + 1, text_.size()), 4);
    if (digits.size() != 4) fail("JSON: no character");
    at_ += 4;
    return static_cast<unsigned>(std::stoul(digits, nullptr, 16));
  }
  static void append(std::string& to, unsigned code) {
    if (code < 0x80) {
      to += static_cast<char>(code);
      return;
    }
    int more = code < 0x800 ? 1 : code < 0x10000 ? 2 : 3;
    static const unsigned heads[] = {0, 0xC0, 0xE0, 0xF0};
    to += static_cast<char>(heads[more] | (code >> (6 * more)));
    while (more--) to += static_cast<char>(0x80 | ((code >> (6 * more)) & 0x3F));
  }

  const std::string& text_;
  std::size_t at_ = 0;
};

// -- the container: a zip file of stored and deflated members -------------------------------------
class Archive {
 public:
  explicit Archive(const std::string& path) : path_(path) {
    std::ifstream file(path, std::ios::binary);
    if (!file) fail(path + ": cannot be opened");
    data_.assign(std::istreambuf_iterator<char>(file), {});
    // The end of the directory is followed by a comment of at most 64 KiB.
    std::size_t end = data_.size() < 22 ? 0 : data_.size() - 22;
    std::size_t least = end > 65535 ? end - 65535 : 0;
    while (end > least && number(end, 4) != 0x06054b50) --end;
    if (number(end, 4) != 0x06054b50) problem("it is no zip file");
    uint64_t count = number(end + 10, 2), at = number(end + 16, 4);
    if (at == 0xFFFFFFFF || count == 0xFFFF) {  // sizes of more than 32 bits
      uint64_t far = number(end - 20 + 8, 8);
      count = number(far + 32, 8);
      at = number(far + 48, 8);
    }
    while (count--) {
      if (number(at, 4) != 0x02014b50) problem("its directory is damaged");
      Member m{number(at + 10, 2), number(at + 20, 4), number(at + 24, 4), number(at + 42, 4)};
      uint64_t name = number(at + 28, 2), extra = number(at + 30, 2), comment = number(at + 32, 2);
      wide(m, at + 46 + name, extra);
      members_[std::string(bytes(at + 46, name), name)] = m;
      at += 46 + name + extra + comment;
    }
  }

  Bytes read(const std::string& name) const {
    auto found = members_.find(name);
    if (found == members_.end()) problem("it has no " + name);
    const Member& m = found->second;
    uint64_t start = m.start + 30 + number(m.start + 26, 2) + number(m.start + 28, 2);
    const char* packed = bytes(start, m.packed);
    if (m.method == 0) return Bytes(packed, packed + m.packed);
    if (m.method != 8 || m.size > 1040 * (m.packed + 1)) problem(name + " is compressed strangely");
    Bytes made(m.size + 1);
    z_stream stream{};
    if (inflateInit2(&stream, -MAX_WBITS) != Z_OK) fail("zlib cannot start");
    stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(packed));
    stream.avail_in = static_cast<uInt>(m.packed);
    stream.next_out = made.data();
    stream.avail_out = static_cast<uInt>(made.size());
    int status = inflate(&stream, Z_FINISH);
    uint64_t length = stream.total_out;
    inflateEnd(&stream);
    if (status != Z_STREAM_END || length != m.size) problem(name + " is damaged");
    made.pop_back();
    return made;
  }

  [[noreturn]] void problem(const std::string& what) const { fail(path_ + ": " + what); }

 private:
  struct Member {
    uint64_t method, packed, size, start;
  };

  const char* bytes(uint64_t at, uint64_t size) const {
    if (at > data_.size() || size > data_.size() - at) problem("it is truncated");
    return data_.data() + at;
  }
  uint64_t number(uint64_t at, int size) const {
    const char* from = bytes(at, size);
    uint64_t made = 0;
    for (int i = size; i--;) made = made << 8 | static_cast<unsigned char>(from[i]);
    return made;
  }
  // Fields that are too small are in an extra field of kind 1, in this order.
  void wide(Member& m, uint64_t at, uint64_t size) const {
    for (uint64_t end = at + size; at + 4 <= end; at += 4 + number(at + 2, 2)) {
      if (number(at, 2) != 1) continue;
      uint64_t field = at + 4;
      for (uint64_t* value : {&m.size, &m.packed, &m.start})
        if (*value == 0xFFFFFFFF) *value = number(field, 8), field += 8;
    }
  }

  std::string path_;
  std::string data_;
  std::map<std::string, Member> members_;
};

// -- arrays of the file ---------------------------------------------------------------------------
Type type_of(const Json& dtype, const Json& shape) {
  Type made{dtype.text, {}};
  for (const Json& size : shape.items) {
    if (size.which != Json::number || size.value < 0 || size.value > 9e15)
      fail("a shape is not of numbers");
    made.shape.push_back(static_cast<int64_t>(size.value));
  }
  return made;
}

class Tensors {
 public:
  explicit Tensors(Bytes file) : file_(std::move(file)) {
    uint64_t size = 0;
    if (file_.size() < 8) fail("tensors.safetensors is truncated");
    for (int i = 8; i--;) size = size << 8 | file_[i];
    if (size > file_.size() - 8) fail("tensors.safetensors is truncated");
    first_ = 8 + size;
    head_ = JsonReader(std::string(file_.begin() + 8, file_.begin() + first_)).read();
  }

  // The array that a row of the manifest refers to.
  Array array(const Json& row) const {
    Array made{type_of(row["dtype"], row["shape"]), {}};
    const Json& place = head_[row["tensor"].text]["data_offsets"];
    if (place.items.size() != 2) fail("there is no array " + row["tensor"].text);
    double begin = place.items[0].value, end = place.items[1].value;
    if (begin < 0 || end < begin || end > static_cast<double>(file_.size() - first_))
      fail("an array lies outside of the file");
    auto from = file_.begin() + static_cast<int64_t>(first_ + begin);
    made.data.assign(from, from + static_cast<int64_t>(end - begin));
    std::size_t one = made.data.size(), all = made.type.bytes();
    if (row["splat"].value != 0) {  // one element stands for all
      if (one != kind_of(made.type.dtype).size) fail("a splat has more than one element");
      made.data.resize(all);
      for (std::size_t i = one; i < all; ++i) made.data[i] = made.data[i - one];
    }
    if (made.data.size() != all) fail("an array has not the size of " + text_of(made.type));
    return made;
  }

 private:
  Bytes file_;
  uint64_t first_ = 0;
  Json head_;
};

// The serialised CompileOptionsProto: one replica, one partition, any device, and minimum and
// maximum that propagate NaN, as relax2xla compiles. The numbers of the fields are in XLA's
// xla/pjrt/proto/compile_options.proto.
std::string compile_options(bool cpu) {
  std::string build = "\x08" + std::string(9, '\xff') + "\x01\x20\x01\x28\x01";
  std::string made = "\x1a" + std::string(1, static_cast<char>(build.size())) + build;
  if (cpu) {
    std::string key = "xla_cpu_enable_fast_min_max";
    std::string value("\x12\x02\x10\x00", 4);  // an override whose bool_field is false
    std::string entry = "\x0a" + std::string(1, static_cast<char>(key.size())) + key + value;
    made += "\x3a" + std::string(1, static_cast<char>(entry.size())) + entry;
  }
  return made;
}

}  // namespace

std::size_t Type::bytes() const {
  std::size_t made = kind_of(dtype).size;
  for (int64_t size : shape)
    if (__builtin_mul_overflow(made, static_cast<std::size_t>(size), &made))
      fail(text_of(*this) + " is too large");
  return made;
}

// -- PJRT -----------------------------------------------------------------------------------------
struct Plugin::State {
  void* library = nullptr;
  const PJRT_Api* api = nullptr;
  PJRT_Client* client = nullptr;
  PJRT_Device* device = nullptr;
  std::string platform;

  void check(PJRT_Error* error) const {
    if (error == nullptr) return;
    PJRT_Error_Message_Args said{};
    said.struct_size = PJRT_Error_Message_Args_STRUCT_SIZE;
    said.error = error;
    api->PJRT_Error_Message(&said);
    std::string text(said.message, said.message_size);
    PJRT_Error_Destroy_Args gone{};
    gone.struct_size = PJRT_Error_Destroy_Args_STRUCT_SIZE;
    gone.error = error;
    api->PJRT_Error_Destroy(&gone);
    fail("PJRT: " + text);
  }

  void await(PJRT_Event* event) const {
    if (event == nullptr) return;
    PJRT_Event_Await_Args wait{};
    wait.struct_size = PJRT_Event_Await_Args_STRUCT_SIZE;
    wait.event = event;
    PJRT_Error* error = api->PJRT_Event_Await(&wait);
    PJRT_Event_Destroy_Args gone{};
    gone.struct_size = PJRT_Event_Destroy_Args_STRUCT_SIZE;
    gone.event = event;
    api->PJRT_Event_Destroy(&gone);
    check(error);
  }

  void destroy(PJRT_Buffer* buffer) const {
    PJRT_Buffer_Destroy_Args gone{};
    gone.struct_size = PJRT_Buffer_Destroy_Args_STRUCT_SIZE;
    gone.buffer = buffer;
    if (buffer != nullptr) api->PJRT_Buffer_Destroy(&gone);
  }

  PJRT_Buffer* to_device(const Array& array) const {
    PJRT_Client_BufferFromHostBuffer_Args put{};
    put.struct_size = PJRT_Client_BufferFromHostBuffer_Args_STRUCT_SIZE;
    put.client = client;
    put.data = array.data.data();
    put.type = kind_of(array.type.dtype).pjrt;
    put.dims = array.type.shape.data();
    put.num_dims = array.type.shape.size();
    put.host_buffer_semantics = PJRT_HostBufferSemantics_kImmutableUntilTransferCompletes;
    put.device = device;
    check(api->PJRT_Client_BufferFromHostBuffer(&put));
    await(put.done_with_host_buffer);
    return put.buffer;
  }

  ~State() {
    if (client != nullptr) {
      PJRT_Client_Destroy_Args gone{};
      gone.struct_size = PJRT_Client_Destroy_Args_STRUCT_SIZE;
      gone.client = client;
      api->PJRT_Client_Destroy(&gone);
    }
    // Plugins leave threads behind, so the library stays.
  }
};

Plugin::Plugin(const std::string& library) : state_(std::make_shared<State>()) {
  State& s = *state_;
  s.library = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (s.library == nullptr) fail(dlerror());
  auto get = reinterpret_cast<const PJRT_Api* (*)()>(dlsym(s.library, "GetPjrtApi"));
  if (get == nullptr || (s.api = get()) == nullptr) fail(library + " is no PJRT plugin");
  if (s.api->pjrt_api_version.major_version != PJRT_API_MAJOR)
    fail(library + " has another major version of the PJRT C API");
  PJRT_Plugin_Initialize_Args start{};
  start.struct_size = PJRT_Plugin_Initialize_Args_STRUCT_SIZE;
  s.check(s.api->PJRT_Plugin_Initialize(&start));
  PJRT_Client_Create_Args create{};
  create.struct_size = PJRT_Client_Create_Args_STRUCT_SIZE;
  s.check(s.api->PJRT_Client_Create(&create));
  s.client = create.client;
  PJRT_Client_PlatformName_Args name{};
  name.struct_size = PJRT_Client_PlatformName_Args_STRUCT_SIZE;
  name.client = s.client;
  s.check(s.api->PJRT_Client_PlatformName(&name));
  s.platform.assign(name.platform_name, name.platform_name_size);
  PJRT_Client_AddressableDevices_Args devices{};
  devices.struct_size = PJRT_Client_AddressableDevices_Args_STRUCT_SIZE;
  devices.client = s.client;
  s.check(s.api->PJRT_Client_AddressableDevices(&devices));
  if (devices.num_addressable_devices == 0) fail(library + " has no device");
  s.device = devices.addressable_devices[0];
}

Plugin::~Plugin() = default;
std::string Plugin::platform() const { return state_->platform; }

struct Model::State {
  std::shared_ptr<Plugin::State> plugin;
  PJRT_LoadedExecutable* executable = nullptr;
  std::vector<PJRT_Buffer*> weights;
  std::vector<Parameter> inputs;
  std::vector<Type> outputs;

  ~State() {
    for (PJRT_Buffer* weight : weights) plugin->destroy(weight);
    PJRT_LoadedExecutable_Destroy_Args gone{};
    gone.struct_size = PJRT_LoadedExecutable_Destroy_Args_STRUCT_SIZE;
    gone.executable = executable;
    if (executable != nullptr) plugin->api->PJRT_LoadedExecutable_Destroy(&gone);
  }
};

Model::Model(const Plugin& plugin, const std::string& file, const std::string& function)
    : state_(new State) {
  State& s = *state_;
  s.plugin = plugin.state_;
  Archive archive(file);
  Bytes text = archive.read("manifest.json");
  Json manifest = JsonReader(std::string(text.begin(), text.end())).read();
  if (manifest["format"].value != 1) archive.problem("its format is not 1");
  if (manifest["mesh"].which != Json::null) archive.problem("it is for several devices");
  for (const Json& target : manifest["custom_calls"].items)
    archive.problem("it calls " + target.text + ", which the plugin does not have");
  if (manifest["states"][function].which != Json::null)
    archive.problem(function + " has state, which this loader does not keep");
  const Json *row = nullptr, *program = nullptr;
  for (const Json& r : manifest["functions"].items)
    if (r["kind"].text == "entry" && r["name"].text == function) row = &r;
  if (row == nullptr) archive.problem("it has no function " + function + " of one program");
  for (const Json& p : (*row)["programs"].items)
    if (p["variant"].text == "main") program = &p;
  if (program == nullptr)
    archive.problem(function + " has symbolic sizes; fix them when it is compiled (--shape n=4)");
  const auto& params = (*row)["params"].items;
  for (std::size_t i = 0; i < params.size(); ++i) {
    const Json& info = params[i].items.at(1);
    if (info.items.size() != 3 || info.items[0].text != "tensor")
      archive.problem("the parameter " + params[i].items.at(0).text + " is no tensor");
    const Json& sources = (*row)["sources"];
    std::string name = i < sources.items.size() ? sources.items[i].text : "";
    if (name.empty()) name = params[i].items.at(0).text;
    s.inputs.push_back({name, type_of(info.items[2], info.items[1])});
  }
  for (const Json& o : (*program)["outputs"].items)
    s.outputs.push_back(type_of(o.items.at(1), o.items.at(0)));

  // Weights that are in no pack, then the packs: vectors of one dtype, each at a multiple of 64
  // bytes.
  Tensors tensors(archive.read("tensors.safetensors"));
  std::vector<Array> weights;
  for (const Json& w : (*row)["weights"].items) {
    const Json& ready = (*row)["ready"][std::to_string(static_cast<int64_t>(w.value))];
    if (w.which == Json::number && ready.which == Json::null)
      archive.problem("its weights are raw; save it without --raw-weights");
    weights.push_back(tensors.array(w.which == Json::number ? ready : w));
  }
  std::set<std::size_t> packed;
  for (const Json& pack : (*row)["packs"].items)
    for (const Json& place : pack.items) packed.insert(static_cast<std::size_t>(place.value));
  for (std::size_t i = 0; i < weights.size(); ++i)
    if (!packed.count(i)) s.weights.push_back(s.plugin->to_device(weights[i]));
  for (const Json& pack : (*row)["packs"].items) {
    Array joined;
    for (const Json& place : pack.items) {
      const Array& part = weights.at(static_cast<std::size_t>(place.value));
      joined.type.dtype = part.type.dtype;
      joined.data.insert(joined.data.end(), part.data.begin(), part.data.end());
      joined.data.resize((joined.data.size() + 63) / 64 * 64);
    }
    std::size_t one = kind_of(joined.type.dtype).size;
    joined.type.shape = {static_cast<int64_t>(joined.data.size() / one)};
    s.weights.push_back(s.plugin->to_device(joined));
  }

  Bytes code = archive.read((*program)["file"].text);
  std::string options = compile_options(s.plugin->platform == "cpu");
  PJRT_Program source{};
  source.struct_size = PJRT_Program_STRUCT_SIZE;
  source.code = reinterpret_cast<char*>(code.data());
  source.code_size = code.size();
  source.format = "mlir";
  source.format_size = 4;
  PJRT_Client_Compile_Args compile{};
  compile.struct_size = PJRT_Client_Compile_Args_STRUCT_SIZE;
  compile.client = s.plugin->client;
  compile.program = &source;
  compile.compile_options = options.data();
  compile.compile_options_size = options.size();
  s.plugin->check(s.plugin->api->PJRT_Client_Compile(&compile));
  s.executable = compile.executable;
}

Model::~Model() = default;
const std::vector<Parameter>& Model::inputs() const { return state_->inputs; }
const std::vector<Type>& Model::outputs() const { return state_->outputs; }

std::vector<Array> Model::operator()(const std::vector<Array>& arguments) const {
  const State& s = *state_;
  const Plugin::State& p = *s.plugin;
  if (arguments.size() != s.inputs.size())
    fail("expected " + std::to_string(s.inputs.size()) + " arguments, given " +
         std::to_string(arguments.size()));
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const Type &given = arguments[i].type, &wanted = s.inputs[i].type;
    if (given.dtype != wanted.dtype || given.shape != wanted.shape ||
        arguments[i].data.size() != wanted.bytes())
      fail(s.inputs[i].name + ": expected " + text_of(wanted) + ", given " + text_of(given) +
           " in " + std::to_string(arguments[i].data.size()) + " bytes");
  }
  // Buffers of this call, which end with it.
  struct Owned {
    const Plugin::State& plugin;
    std::vector<PJRT_Buffer*> buffers;
    ~Owned() {
      for (PJRT_Buffer* b : buffers) plugin.destroy(b);
    }
  } mine{p, {}}, results{p, std::vector<PJRT_Buffer*>(s.outputs.size())};
  for (const Array& argument : arguments) mine.buffers.push_back(p.to_device(argument));
  std::vector<PJRT_Buffer*> all = s.weights;
  all.insert(all.end(), mine.buffers.begin(), mine.buffers.end());
  // Weights are used again, whatever the program says of donation.
  std::vector<int64_t> kept(all.size());
  for (std::size_t i = 0; i < kept.size(); ++i) kept[i] = static_cast<int64_t>(i);

  PJRT_ExecuteOptions options{};
  options.struct_size = PJRT_ExecuteOptions_STRUCT_SIZE;
  options.non_donatable_input_indices = kept.data();
  options.num_non_donatable_input_indices = kept.size();
  PJRT_Buffer* const* given = all.data();
  PJRT_Buffer** made = results.buffers.data();
  PJRT_Event* done = nullptr;
  PJRT_LoadedExecutable_Execute_Args run{};
  run.struct_size = PJRT_LoadedExecutable_Execute_Args_STRUCT_SIZE;
  run.executable = s.executable;
  run.options = &options;
  run.argument_lists = &given;
  run.num_devices = 1;
  run.num_args = all.size();
  run.output_lists = &made;
  run.device_complete_events = &done;
  p.check(p.api->PJRT_LoadedExecutable_Execute(&run));
  p.await(done);

  std::vector<Array> arrays;
  for (std::size_t i = 0; i < s.outputs.size(); ++i) {
    Array array{s.outputs[i], Bytes(s.outputs[i].bytes())};
    PJRT_Buffer_ToHostBuffer_Args get{};
    get.struct_size = PJRT_Buffer_ToHostBuffer_Args_STRUCT_SIZE;
    get.src = results.buffers[i];
    get.dst = array.data.data();
    get.dst_size = array.data.size();
    p.check(p.api->PJRT_Buffer_ToHostBuffer(&get));
    p.await(get.event);
    arrays.push_back(std::move(array));
  }
  return arrays;
}

}  // namespace r2x
