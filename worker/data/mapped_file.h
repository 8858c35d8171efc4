// MappedFile: a file's bytes, mapped read-only. Owns the mapping; movable. Immutable; thread-safe. The file must not be
// truncated while it is mapped: reading beyond its new end kills the process (SIGBUS).
#ifndef LYNX_WORKER_DATA_MAPPED_FILE_H_
#define LYNX_WORKER_DATA_MAPPED_FILE_H_

#include <cstddef>
#include <span>
#include <string>

#include "absl/status/statusor.h"

namespace lynx::worker {

class MappedFile {
 public:
  // NotFound, PermissionDenied, or InvalidArgument when it is a folder, a device or empty. Messages name the file.
  static absl::StatusOr<MappedFile> Open(const std::string& path);
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  ~MappedFile();

  const std::string& path() const { return path_; }
  std::span<const std::byte> bytes() const { return bytes_; }

 private:
  MappedFile() = default;

  std::string path_;
  std::span<const std::byte> bytes_;
};

}  // namespace lynx::worker

#endif  // LYNX_WORKER_DATA_MAPPED_FILE_H_
