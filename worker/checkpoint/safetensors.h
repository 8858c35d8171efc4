// Reads and writes the header of the file format safetensors (https://huggingface.co/docs/safetensors). A file has three parts:
// a little-endian u64 n, n bytes of JSON padded with spaces, and the tensors' bytes one after another without gaps. Lynx writes
// only F32. The functions work on values; the callers read and write the bytes of the tensors. Pure; thread-safe.
#ifndef LYNX_WORKER_CHECKPOINT_SAFETENSORS_H_
#define LYNX_WORKER_CHECKPOINT_SAFETENSORS_H_

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace lynx::worker {

inline constexpr int64_t kSafetensorsPrefixBytes = 8;
// The largest size of the JSON that the reference implementation of safetensors allows.
inline constexpr uint64_t kSafetensorsHeaderLimitBytes = 100'000'000;

struct SafetensorsEntry {
  std::string name;
  std::vector<int64_t> shape;
  int64_t begin_bytes = 0;  // the tensor's bytes are [begin, end), counted from the end of the header
  int64_t end_bytes = 0;
  std::string type = "F32";  // the format's name for the type

  bool operator==(const SafetensorsEntry&) const = default;
};

struct SafetensorsHeader {
  std::vector<SafetensorsEntry> tensors;        // in the order of their bytes, without gaps
  std::map<std::string, std::string> metadata;  // "__metadata__"

  int64_t DataBytes() const { return tensors.empty() ? 0 : tensors.back().end_bytes; }
  // Adds a tensor after the last one.
  void Append(std::string name, std::vector<int64_t> shape);
  bool operator==(const SafetensorsHeader&) const = default;
};

// Returns everything that stands before the tensors in the file: the length, and the JSON padded to a multiple of 8 bytes.
std::string EncodeSafetensorsHeader(const SafetensorsHeader& header);

// Decodes a file's first 8 bytes. Returns the length of the JSON in bytes. Returns DataLoss if the length is above the limit or
// longer than the file.
absl::StatusOr<int64_t> DecodeSafetensorsPrefix(std::string_view prefix, int64_t file_bytes);
enum class SafetensorsTypes : uint8_t { kFloat32, kAll };
// Decodes the JSON. `data_bytes`: the number of bytes after the JSON. Returns DataLoss if the JSON is not a well-formed header,
// if a tensor has a type that `types` excludes, or if the tensors do not fill exactly `data_bytes`.
absl::StatusOr<SafetensorsHeader> DecodeSafetensorsHeader(std::string_view json, int64_t data_bytes,
                                                          SafetensorsTypes types = SafetensorsTypes::kFloat32);

}  // namespace lynx::worker

#endif  // LYNX_WORKER_CHECKPOINT_SAFETENSORS_H_
