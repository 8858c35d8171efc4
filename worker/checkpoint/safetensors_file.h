// Safetensors files on a disk: writing one from front to back, and reading single tensors of those that others wrote.
// Functions and values; thread-safe for different files.
#ifndef LYNX_WORKER_CHECKPOINT_SAFETENSORS_FILE_H_
#define LYNX_WORKER_CHECKPOINT_SAFETENSORS_FILE_H_

#include <cstddef>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/units.h"
#include "worker/checkpoint/file_system.h"
#include "worker/checkpoint/safetensors.h"

namespace lynx {

// The bytes of a header's tensor, by its number; they stay until the next call.
using TensorContent = std::function<absl::StatusOr<std::span<const char>>(size_t tensor)>;

struct WrittenFile {
  Bytes bytes;
  std::string sha256;  // 64 lower-case hexadecimal digits
};
// Writes and syncs the file. Its name is durable after SyncFolder of its folder.
absl::StatusOr<WrittenFile> WriteSafetensorsFile(FileSystem& files, const std::string& path, const SafetensorsHeader& header,
                                                 const TensorContent& content);

// A file that another program wrote, with tensors of any type.
struct SafetensorsFile {
  std::string path;
  SafetensorsHeader header;
  int64_t data_at = 0;  // where the tensors begin
};
// DataLoss naming the file when it is none.
absl::StatusOr<SafetensorsFile> OpenSafetensorsFile(FileSystem& files, const std::string& path);
// Whether fp32 holds every value of the type: F32, F16 and BF16.
bool IsReadAsFloat(const SafetensorsEntry& tensor);
// Its elements as fp32, row-major. InvalidArgument, naming tensor and type, unless IsReadAsFloat.
absl::StatusOr<std::vector<float>> ReadAsFloat(FileSystem& files, const SafetensorsFile& file, const SafetensorsEntry& tensor);

// A tensor of a file.
struct TensorInFile {
  const SafetensorsFile* file = nullptr;
  const SafetensorsEntry* tensor = nullptr;
};
// Whether both have the same shape and, as fp32, the same bits. Reads them block by block. InvalidArgument, naming
// tensor and type, unless IsReadAsFloat for both.
absl::StatusOr<bool> SameContent(FileSystem& files, const TensorInFile& a, const TensorInFile& b);

}  // namespace lynx

#endif  // LYNX_WORKER_CHECKPOINT_SAFETENSORS_FILE_H_
