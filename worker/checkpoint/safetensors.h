// Safetensors: the header of the file format (https://huggingface.co/docs/safetensors). A file is a little-endian u64
// n, n bytes of JSON padded with spaces, and the tensors' bytes one after another without gaps. What is written here
// is F32. Functions on values; the bytes of tensors are moved by the caller. Pure; thread-safe.
#ifndef LYNX_WORKER_CHECKPOINT_SAFETENSORS_H_
#define LYNX_WORKER_CHECKPOINT_SAFETENSORS_H_

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace lynx {

inline constexpr int64_t kSafetensorsPrefixBytes = 8;
// The reference implementation's limit for the JSON.
inline constexpr uint64_t kSafetensorsHeaderLimitBytes = 100'000'000;

struct SafetensorsEntry {
  std::string name;
  std::vector<int64_t> shape;
  int64_t begin_bytes = 0;  // [begin, end) after the header
  int64_t end_bytes = 0;
  std::string type = "F32";  // as the format names it

  bool operator==(const SafetensorsEntry&) const = default;
};

struct SafetensorsHeader {
  std::vector<SafetensorsEntry> tensors;        // in the order of their bytes, without gaps
  std::map<std::string, std::string> metadata;  // "__metadata__"

  int64_t DataBytes() const { return tensors.empty() ? 0 : tensors.back().end_bytes; }
  // Adds a tensor behind the last one.
  void Append(std::string name, std::vector<int64_t> shape);
  bool operator==(const SafetensorsHeader&) const = default;
};

// The length and the JSON, a multiple of 8 bytes: all that precedes the tensors.
std::string EncodeSafetensorsHeader(const SafetensorsHeader& header);

// The length of the JSON from a file's first 8 bytes. DataLoss when it is beyond the limit or beyond the file.
absl::StatusOr<int64_t> DecodeSafetensorsPrefix(std::string_view prefix, int64_t file_bytes);
enum class SafetensorsTypes : uint8_t { kFloat32, kAll };
// From the JSON and the number of bytes that follow it. DataLoss for anything but a well-formed header of tensors of
// these types that fill exactly those bytes.
absl::StatusOr<SafetensorsHeader> DecodeSafetensorsHeader(std::string_view json, int64_t data_bytes,
                                                          SafetensorsTypes types = SafetensorsTypes::kFloat32);

}  // namespace lynx

#endif  // LYNX_WORKER_CHECKPOINT_SAFETENSORS_H_
