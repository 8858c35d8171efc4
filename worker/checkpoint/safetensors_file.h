// Safetensors files on disk: writes one from beginning to end, and reads single tensors of files that other programs wrote.
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

namespace lynx::worker {

// Returns the bytes of the header's tensor with this number; they stay valid until the next call.
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
  int64_t data_at = 0;  // where the tensors begin, in bytes from the beginning of the file
};
// DataLoss, naming the file, when it is not a safetensors file.
absl::StatusOr<SafetensorsFile> OpenSafetensorsFile(FileSystem& files, const std::string& path);
// True if fp32 holds every value of the tensor's type: F32, F16 and BF16.
bool IsReadAsFloat(const SafetensorsEntry& tensor);
// The tensor's elements as fp32, row-major. InvalidArgument, naming tensor and type, unless IsReadAsFloat.
absl::StatusOr<std::vector<float>> ReadAsFloat(FileSystem& files, const SafetensorsFile& file, const SafetensorsEntry& tensor);

// A tensor of a file.
struct TensorInFile {
  const SafetensorsFile* file = nullptr;
  const SafetensorsEntry* tensor = nullptr;
};
// True if both tensors have the same shape and the same bits as fp32. Reads them block by block. InvalidArgument, naming tensor
// and type, unless IsReadAsFloat holds for both.
absl::StatusOr<bool> SameContent(FileSystem& files, const TensorInFile& a, const TensorInFile& b);

}  // namespace lynx::worker

#endif  // LYNX_WORKER_CHECKPOINT_SAFETENSORS_FILE_H_
