// Loads a saved executable (model.r2x, see docs/format.md) and runs it by a PJRT plugin.
//
//   r2x::Plugin plugin("/path/to/pjrt_plugin.so");
//   r2x::Model model(plugin, "model.r2x");           // compiles the StableHLO in the file
//   std::vector<r2x::Array> results = model(inputs); // arrays as model.inputs() says
//
// What is wrong with a file, a plugin or an argument is a std::runtime_error. Only data of the file
// are used, never the machine code in it; checksums are not compared. Functions of static shapes on
// one device can be run, without state and without custom calls; of others the constructor says
// what they need.

#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace r2x {

// A dtype by numpy's name ("float32"), and a shape.
struct Type {
  std::string dtype;
  std::vector<int64_t> shape;
  std::size_t bytes() const;  // of all elements
};

// An argument or a result: elements in C order, little endian.
struct Array {
  Type type;
  std::vector<unsigned char> data;
};

struct Parameter {
  std::string name;
  Type type;
};

// A PJRT plugin: a shared library with the function GetPjrtApi, and a client of it.
class Plugin {
 public:
  explicit Plugin(const std::string& library);
  ~Plugin();
  std::string platform() const;

 private:
  friend class Model;
  struct State;
  std::shared_ptr<State> state_;
};

// One function of a file, compiled, with its weights on the plugin's first device.
class Model {
 public:
  Model(const Plugin& plugin, const std::string& file, const std::string& function = "main");
  ~Model();
  const std::vector<Parameter>& inputs() const;
  const std::vector<Type>& outputs() const;  // leaves of nested results, in order
  std::vector<Array> operator()(const std::vector<Array>& arguments) const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace r2x
