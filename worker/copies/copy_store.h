// CopyStore: one job's in-memory checkpoints on one node. They are files in a directory of an in-memory file system; they
// survive the ranks but not the node. A "copy" is one shard of an in-memory checkpoint.
//
//   DIRECTORY/JOB/gG-sS-shard-0001-0000.safetensors        a shard after S steps, written by generation G
//   DIRECTORY/JOB/gG-sS-shard-0001-0000.safetensors.json   its record: an index of that one file, with its digest
//   DIRECTORY/JOB/resumed-gG-sS                            generation G went on from step S
//
// A shard without its record does not count: the record is written last and removed first. A file that is not needed any more
// is renamed and overwritten, so that the kernel need not find and clear new memory for it.
//
// The mark of a generation that has resumed is a fence: an older generation completes no copy from then on, and its copies of
// later steps than the mark's step do not count (copy_choice.h). Nothing is synced, because nothing here survives the end of
// the machine.
//
// Thread-safe for different files. The ranks of one node share one store.
#ifndef LYNX_WORKER_COPIES_COPY_STORE_H_
#define LYNX_WORKER_COPIES_COPY_STORE_H_

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/ids.h"
#include "common/units.h"
#include "worker/checkpoint/checkpoint.h"
#include "worker/collectives/socket.h"
#include "worker/copies/copies_directory.h"

namespace lynx::worker {

struct CopyKey {
  Generation generation;
  int64_t step = 0;
  std::string file;  // as ShardFile names it
  auto operator<=>(const CopyKey&) const = default;
};

struct CopyRecord {
  CheckpointIdentity identity;
  ShardRecord shard;  // the field `file` is the name that ShardFile returns
  CopyKey key() const { return {identity.generation, identity.step, shard.file}; }
};

// A generation that has resumed, and the step that it resumed from.
struct ResumedMark {
  Generation generation;
  int64_t step = 0;
  bool operator==(const ResumedMark&) const = default;
};

// The in-memory checkpoints of a job that a node has.
struct NodeCopies {
  std::vector<CopyRecord> copies;
  std::vector<ResumedMark> resumed;
  std::vector<std::string> damaged;  // what is wrong with each record that cannot be read
};

class CopyStore {
 public:
  CopyStore(const std::string& directory, const JobId& job);

  const std::string& folder() const { return folder_; }
  // Creates the folder with its parents, for this user alone. PermissionDenied when another user owns the directory.
  absl::Status Create() const;

  // Opens the shard's file, to be written from its beginning. It reuses the file of `replaced`, which is invalid from now on;
  // without `replaced` the file is new. ResourceExhausted when there is no room.
  absl::StatusOr<UniqueFd> BeginShard(const CopyKey& key, const std::optional<CopyKey>& replaced) const;
  // Makes the written file valid as the copy that `record` describes. FailedPrecondition if a newer generation has resumed.
  absl::Status Complete(const CopyRecord& record) const;
  absl::StatusOr<UniqueFd> OpenShard(const CopyKey& key) const;
  // Checks the shard against its record. DataLoss names the difference.
  absl::Status Verify(const CopyRecord& record) const;
  // Removes the copy, best effort.
  void Remove(const CopyKey& key) const;

  // The copies that have a record and the size that the record says. If the folder does not exist, there are none.
  NodeCopies List() const;
  absl::Status MarkResumed(const ResumedMark& mark) const;
  // Removes all files of generations before this one, except their marks. Best effort.
  void RemoveOlderThan(Generation generation) const;
  // The total size of all files.
  Bytes Used() const;

  std::string ShardPath(const CopyKey& key) const;

 private:
  std::string RecordPath(const CopyKey& key) const;
  absl::Status CheckFence(Generation generation) const;

  std::string directory_, folder_;
};

// Writes all of the bytes at the file's position; ResourceExhausted when the disk or the memory is full.
absl::Status WriteAll(int fd, std::span<const char> bytes, const std::string& what);
// Fills `out` from `offset` on; DataLoss when the file ends before.
absl::Status ReadAt(int fd, int64_t offset, std::span<char> out, const std::string& what);

}  // namespace lynx::worker

#endif  // LYNX_WORKER_COPIES_COPY_STORE_H_
