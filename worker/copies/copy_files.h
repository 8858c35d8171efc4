// CopyFiles shows an in-memory checkpoint as a FileSystem, so that it can be loaded in the same way as a checkpoint on disk.
// All shards of one step have paths below one path. Each shard is read from this node's memory, or from another node that has
// it. Files can only be opened for reading. One thread.
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
  // `node`: the number of this rank's node. `client`: returns a client that is connected to a rank of another node. Borrows the
  // store.
  CopyFiles(WholeCopies copies, const CopyStore& store, int32_t node, std::function<CopyClient&(int32_t node)> client)
      : copies_(std::move(copies)), store_(store), node_(node), client_(std::move(client)) {}

  // Returns the description of the checkpoint that is loaded. TensorReader opens path/FILE for each of its files.
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
