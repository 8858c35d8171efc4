// ToldFiles: the disk, for work on checkpoints that takes long. It tells which file is at hand, and how much has been read and
// written.
//
// Thread-safe as FileSystem is.
#ifndef LYNX_CLI_VERBS_TOLD_FILES_H_
#define LYNX_CLI_VERBS_TOLD_FILES_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "worker/checkpoint/offline.h"

namespace lynx::cli {

class ToldFiles : public worker::FileSystem {
 public:
  // `tell`: called when a file is opened, and then about every 16 MiB: "1.5 GiB read, 512.0 MiB written, model.safetensors".
  // Control characters in the name are escaped. The caller keeps ownership of `disk`.
  explicit ToldFiles(std::function<void(const std::string&)> tell, worker::FileSystem& disk = worker::PosixFileSystem())
      : tell_(std::move(tell)), disk_(disk) {}

  absl::Status CreateFolders(const std::string& path) override { return disk_.CreateFolders(path); }
  absl::StatusOr<std::unique_ptr<worker::WritableFile>> CreateFile(const std::string& path) override;
  absl::StatusOr<std::unique_ptr<worker::ReadableFile>> OpenFile(const std::string& path) override;
  absl::Status Rename(const std::string& from, const std::string& to) override { return disk_.Rename(from, to); }
  absl::Status RemoveTree(const std::string& path) override { return disk_.RemoveTree(path); }
  absl::Status SyncFolder(const std::string& path) override { return disk_.SyncFolder(path); }
  absl::StatusOr<std::vector<std::string>> List(const std::string& path) override { return disk_.List(path); }

  // The files that this class opens call these functions after they have read or written `bytes` bytes of the file at `path`.
  void Read(const std::string& path, int64_t bytes) { Count(path, read_, bytes); }
  void Wrote(const std::string& path, int64_t bytes) { Count(path, written_, bytes); }

 private:
  void Count(const std::string& path, std::atomic<int64_t>& total, int64_t bytes);
  void Tell(const std::string& path);

  const std::function<void(const std::string&)> tell_;
  worker::FileSystem& disk_;
  std::atomic<int64_t> read_ = 0, written_ = 0, untold_ = 0;  // bytes
};

}  // namespace lynx::cli

#endif  // LYNX_CLI_VERBS_TOLD_FILES_H_
