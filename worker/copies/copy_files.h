// CopyFiles: shows an in-memory checkpoint as a FileSystem, so that it can be loaded like one on disk. All shards of one step
// have paths below one path. Each shard is read from this node's memory or from the node that has it. Files can only be opened
// for reading. One thread.
#ifndef LYNX_WORKER_COPIES_COPY_FILES_H_
#define LYNX_WORKER_COPIES_COPY_FILES_H_

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "worker/checkpoint/file_system.h"
#include "worker/copies/copy_choice.h"
#include "worker/copies/copy_client.h"

namespace lynx::worker {

class CopyFiles : public FileSystem {
 public:
  // `node`: the reader's own node. `client`: returns a client to a rank of another node. Borrows the store.
  CopyFiles(WholeCopies copies, const CopyStore& store, int32_t node, std::function<CopyClient&(int32_t node)> client)
      : copies_(std::move(copies)), store_(store), node_(node), client_(std::move(client)) {}

  // Describes the checkpoint to load: TensorReader opens path/FILE.
  CheckpointSummary Summary() const;

  absl::StatusOr<std::unique_ptr<ReadableFile>> OpenFile(const std::string& path) override;

  absl::Status CreateFolders(const std::string& path) override { return ReadOnly(path); }
  absl::StatusOr<std::unique_ptr<WritableFile>> CreateFile(const std::string& path) override { return ReadOnly(path); }
  absl::Status Rename(const std::string& from, const std::string&) override { return ReadOnly(from); }
  absl::Status RemoveTree(const std::string& path) override { return ReadOnly(path); }
  absl::Status SyncFolder(const std::string& path) override { return ReadOnly(path); }
  absl::StatusOr<std::vector<std::string>> List(const std::string& path) override { return ReadOnly(path); }

 private:
  static absl::Status ReadOnly(const std::string& path);

  const WholeCopies copies_;
  const CopyStore& store_;
  const int32_t node_;
  const std::function<CopyClient&(int32_t node)> client_;
};

}  // namespace lynx::worker

#endif  // LYNX_WORKER_COPIES_COPY_FILES_H_
