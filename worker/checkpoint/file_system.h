// FileSystem: the few things that checkpoints ask of a disk, as an interface, so that tests can fail any of them,
// lose what was not synced, and fill the disk.
//
// Durability is explicit, as in POSIX: a file's bytes survive a crash after Sync(), a name (created, renamed or
// removed) after SyncFolder() of the folder that holds it. Paths are absolute. Errors name the path and are NotFound,
// PermissionDenied, ResourceExhausted (a full disk), DataLoss (a file is not as long as it should be, or not a file at
// all) or else Internal: the other codes are left to those who call, for whom they mean something. File systems are
// thread-safe for different paths; a file belongs to one thread.
#ifndef LYNX_WORKER_CHECKPOINT_FILE_SYSTEM_H_
#define LYNX_WORKER_CHECKPOINT_FILE_SYSTEM_H_

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/units.h"

namespace lynx {

// A new file, written from front to back. The destructor closes it; what was not synced may be lost.
class WritableFile {
 public:
  virtual ~WritableFile() = default;
  virtual absl::Status Append(std::string_view bytes) = 0;
  virtual absl::Status Sync() = 0;
};

// A file read from front to back.
class ReadableFile {
 public:
  virtual ~ReadableFile() = default;
  virtual Bytes size() const = 0;
  // Fills `out`, or fails: DataLoss when the file ends before.
  virtual absl::Status Read(std::span<char> out) = 0;
  // Passes over bytes without reading them. DataLoss when the file ends before.
  virtual absl::Status Skip(int64_t bytes) = 0;
};

class FileSystem {
 public:
  virtual ~FileSystem() = default;

  // With missing parents. OK when it is there. The new names are durable on return.
  virtual absl::Status CreateFolders(const std::string& path) = 0;
  // Replaces an existing file.
  virtual absl::StatusOr<std::unique_ptr<WritableFile>> CreateFile(const std::string& path) = 0;
  virtual absl::StatusOr<std::unique_ptr<ReadableFile>> OpenFile(const std::string& path) = 0;
  // Atomic. Fails when `to` is a folder that is not empty.
  virtual absl::Status Rename(const std::string& from, const std::string& to) = 0;
  // A file, or a folder with all that is in it; not atomic. OK when there is none.
  virtual absl::Status RemoveTree(const std::string& path) = 0;
  virtual absl::Status SyncFolder(const std::string& path) = 0;
  // Names in a folder, sorted, without "." and "..". NotFound when there is no such folder.
  virtual absl::StatusOr<std::vector<std::string>> List(const std::string& path) = 0;
};

// The machine's own. Lives as long as the process.
FileSystem& PosixFileSystem();

// All of a small file; DataLoss when it is larger than `limit`.
absl::StatusOr<std::string> ReadWholeFile(FileSystem& files, const std::string& path, Bytes limit);
// Writes and syncs a small file; its name is durable after SyncFolder of its folder.
absl::Status WriteWholeFile(FileSystem& files, const std::string& path, std::string_view content);

}  // namespace lynx

#endif  // LYNX_WORKER_CHECKPOINT_FILE_SYSTEM_H_
