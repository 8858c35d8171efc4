// MappedFile holds a file's bytes, mapped read-only. Owns the mapping; movable. Immutable; thread-safe. No process may truncate
// the file while it is mapped: a read beyond the new end kills this process (SIGBUS).
#ifndef LYNX_WORKER_DATA_MAPPED_FILE_H_
#define LYNX_WORKER_DATA_MAPPED_FILE_H_

#include <cstddef>
#include <span>
#include <string>

#include "absl/status/statusor.h"

namespace lynx::worker {

class MappedFile {
 public:
  // Returns InvalidArgument if the path is a folder, a device or an empty file. Other errors follow errno, such as NotFound
  // and PermissionDenied. Messages name the file.
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
