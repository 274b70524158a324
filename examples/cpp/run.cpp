// Runs a saved executable: reads each input from a file of raw elements, writes each output so.
//
//   run plugin.so model.r2x input_0.bin ... -- output_0.bin ...
//
// Without files it says what the model takes and gives.

#include <cstring>
#include <exception>
#include <fstream>
#include <iostream>
#include <iterator>

#include "r2x.h"

static void say(const char* what, const std::string& name, const r2x::Type& type) {
  std::cout << what << " " << name << " " << type.dtype;
  for (int64_t size : type.shape) std::cout << " " << size;
  std::cout << "\n";
}

int main(int count, char** words) try {
  if (count < 3) {
    std::cerr << "run plugin.so model.r2x input_0.bin ... -- output_0.bin ...\n";
    return 2;
  }
  r2x::Plugin plugin(words[1]);
  r2x::Model model(plugin, words[2]);
  if (count == 3) {
    std::cout << "platform " << plugin.platform() << "\n";
    for (const auto& input : model.inputs()) say("input", input.name, input.type);
    for (std::size_t i = 0; i < model.outputs().size(); ++i)
      say("output", std::to_string(i), model.outputs()[i]);
    return 0;
  }
  std::vector<r2x::Array> inputs;
  int at = 3;
  for (; at < count && std::strcmp(words[at], "--") != 0; ++at) {
    if (inputs.size() == model.inputs().size()) throw std::runtime_error("too many inputs");
    std::ifstream file(words[at], std::ios::binary);
    if (!file) throw std::runtime_error(std::string(words[at]) + ": cannot be opened");
    inputs.push_back({model.inputs()[inputs.size()].type,
                      {std::istreambuf_iterator<char>(file), {}}});
  }
  auto outputs = model(inputs);
  for (std::size_t i = 0; i < outputs.size() && ++at < count; ++i) {
    std::ofstream file(words[at], std::ios::binary);
    const auto& data = outputs[i].data;
    file.write(reinterpret_cast<const char*>(data.data()),
               static_cast<std::streamsize>(data.size()));
    if (!file.flush()) throw std::runtime_error(std::string(words[at]) + ": cannot be written");
  }
  return 0;
} catch (const std::exception& e) {
  std::cerr << "error: " << e.what() << "\n";
  return 1;
}
