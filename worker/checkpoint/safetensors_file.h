// Handles safetensors files on disk: writes a file from beginning to end, and reads single tensors of files that other programs
// wrote. Functions and values; thread-safe for different files.
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

namespace lynx::worker {

// Returns the bytes of the tensor with this number in the header. The bytes stay valid until the next call.
using TensorContent = std::function<absl::StatusOr<std::span<const char>>(size_t tensor)>;

struct WrittenFile {
  Bytes bytes;
  std::string sha256;  // 64 lower-case hexadecimal digits
};
// Writes and syncs the file. Call SyncFolder for its folder afterwards, so that its name survives a crash.
absl::StatusOr<WrittenFile> WriteSafetensorsFile(FileSystem& files, const std::string& path, const SafetensorsHeader& header,
                                                 const TensorContent& content);

// A file that another program wrote, with tensors of any type.
struct SafetensorsFile {
  std::string path;
  SafetensorsHeader header;
  int64_t data_at = 0;  // where the tensors begin, in bytes from the beginning of the file
};
// Returns DataLoss, with the name of the file, if the file is not a safetensors file.
absl::StatusOr<SafetensorsFile> OpenSafetensorsFile(FileSystem& files, const std::string& path);
// True if the tensor's type is F32, F16 or BF16. Only these types are read as fp32.
bool IsReadAsFloat(const SafetensorsEntry& tensor);
// Returns the tensor's elements as fp32, in row-major order. Returns InvalidArgument, with the tensor's name and type, unless
// IsReadAsFloat holds.
absl::StatusOr<std::vector<float>> ReadAsFloat(FileSystem& files, const SafetensorsFile& file, const SafetensorsEntry& tensor);

// A tensor and the file that holds it.
struct TensorInFile {
  const SafetensorsFile* file = nullptr;
  const SafetensorsEntry* tensor = nullptr;
};
// True if both tensors have the same shape, and their elements have the same bits as fp32. Reads the tensors block by block.
// Returns InvalidArgument, with the tensor's name and type, unless IsReadAsFloat holds for both.
absl::StatusOr<bool> SameContent(FileSystem& files, const TensorInFile& a, const TensorInFile& b);

}  // namespace lynx::worker

#endif  // LYNX_WORKER_CHECKPOINT_SAFETENSORS_FILE_H_
