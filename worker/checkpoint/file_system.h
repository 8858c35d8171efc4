// FileSystem is an interface for the few disk operations that checkpoints need. Tests implement it to let any operation fail,
// to lose data that was not synced, and to fill the disk.
//
// As in POSIX, the caller must sync explicitly: a file's bytes survive a crash after Sync(). A name that was created, renamed
// or removed survives a crash after SyncFolder() of the folder that holds it. Paths are absolute. Errors name the path. Their
// codes are NotFound, PermissionDenied, ResourceExhausted (the disk is full), DataLoss (a file is shorter or longer than it
// should be, or is not a regular file), and Internal for anything else. Callers may give all other codes a meaning of their
// own. File systems are thread-safe for different paths; a file belongs to one thread.
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

namespace lynx::worker {

// A new file, written from beginning to end. The destructor closes the file; bytes that were not synced may be lost.
class WritableFile {
 public:
  virtual ~WritableFile() = default;
  virtual absl::Status Append(std::string_view bytes) = 0;
  virtual absl::Status Sync() = 0;
};

// A file that is read from beginning to end.
class ReadableFile {
 public:
  virtual ~ReadableFile() = default;
  virtual Bytes size() const = 0;
  // Fills `out`. Returns DataLoss if the file ends before `out` is full.
  virtual absl::Status Read(std::span<char> out) = 0;
  // Skips bytes without reading them. Returns DataLoss if the file ends before the last of these bytes.
  virtual absl::Status Skip(int64_t bytes) = 0;
};

class FileSystem {
 public:
  virtual ~FileSystem() = default;

  // Creates the folder and its missing parents. Returns OK if the folder exists. The new names survive a crash after the call.
  virtual absl::Status CreateFolders(const std::string& path) = 0;
  // Creates a file for writing. If the file exists, its content is replaced.
  virtual absl::StatusOr<std::unique_ptr<WritableFile>> CreateFile(const std::string& path) = 0;
  virtual absl::StatusOr<std::unique_ptr<ReadableFile>> OpenFile(const std::string& path) = 0;
  // Renames a file or a folder atomically. Returns an error if `to` is a folder that is not empty.
  virtual absl::Status Rename(const std::string& from, const std::string& to) = 0;
  // Removes a file, or a folder with everything in it. The removal is not atomic. Returns OK if the path does not exist.
  virtual absl::Status RemoveTree(const std::string& path) = 0;
  virtual absl::Status SyncFolder(const std::string& path) = 0;
  // Returns the names in a folder, sorted, without "." and "..". Returns NotFound if there is no such folder.
  virtual absl::StatusOr<std::vector<std::string>> List(const std::string& path) = 0;
};

// Returns the file system of this machine. The object lives as long as the process.
FileSystem& PosixFileSystem();

// Returns the whole content of a small file, or DataLoss if the file is larger than `limit`.
absl::StatusOr<std::string> ReadWholeFile(FileSystem& files, const std::string& path, Bytes limit);
// Writes and syncs a small file. Call SyncFolder for its folder afterwards, so that its name survives a crash.
absl::Status WriteWholeFile(FileSystem& files, const std::string& path, std::string_view content);

}  // namespace lynx::worker

#endif  // LYNX_WORKER_CHECKPOINT_FILE_SYSTEM_H_
