// Safetensors files in the form that other programs write, for the tests of imports.
#ifndef LYNX_TESTS_WORKER_CHECKPOINT_HUGGING_FACE_FOLDER_H_
#define LYNX_TESTS_WORKER_CHECKPOINT_HUGGING_FACE_FOLDER_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/str_join.h"
#include "worker/checkpoint/safetensors.h"

namespace lynx::worker {

struct ForeignTensor {
  std::vector<int64_t> shape;
  std::string type;
  std::string bytes;
};
using ForeignTensors = std::map<std::string, ForeignTensor>;

inline ForeignTensor Floats(const std::vector<float>& values, std::vector<int64_t> shape = {}) {
  if (shape.empty()) shape = {static_cast<int64_t>(values.size())};
  return {shape, "F32", std::string(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float))};
}

inline std::string ForeignFile(const ForeignTensors& tensors) {
  SafetensorsHeader header;
  std::string data;
  for (const auto& [name, tensor] : tensors) {
    const auto begin = static_cast<int64_t>(data.size());
    data += tensor.bytes;
    header.tensors.push_back({name, tensor.shape, begin, static_cast<int64_t>(data.size()), tensor.type});
  }
  return EncodeSafetensorsHeader(header) + data;
}

// Returns the index that transformers writes beside shards.
inline std::string WeightIndex(const std::map<std::string, std::string>& weight_map) {
  std::vector<std::string> lines;
  for (const auto& [tensor, file] : weight_map) lines.push_back("    \"" + tensor + "\": \"" + file + "\"");
  return "{\n  \"metadata\": {\"total_size\": 8},\n  \"weight_map\": {\n" + absl::StrJoin(lines, ",\n") + "\n  }\n}\n";
}

inline std::string LfsPointer() {
  return "version https://git-lfs.github.com/spec/v1\noid sha256:" + std::string(64, 'a') + "\nsize 4976698672\n";
}

}  // namespace lynx::worker

#endif  // LYNX_TESTS_WORKER_CHECKPOINT_HUGGING_FACE_FOLDER_H_
