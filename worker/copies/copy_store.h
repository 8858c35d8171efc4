// CopyStore: the copies of one job's states in a node's memory: files in a directory of a file system that lives in memory,
// which outlive the ranks, but not the node.
//
//   DIRECTORY/JOB/gG-sS-shard-0001-0000.safetensors        a shard after S steps, written by generation G
//   DIRECTORY/JOB/gG-sS-shard-0001-0000.safetensors.json   its record: an index of that one file, with its digest
//   DIRECTORY/JOB/resumed-gG-sS                            generation G went on from step S
//
// A shard without its record is none: the record is written last, and removed first. A file that is not needed any more is
// renamed and written over, which spares the kernel finding and clearing its memory.
//
// A generation that has resumed is a fence: an older one completes no copy any more, and what it had of later steps than that
// does not count (copy_choice.h). Nothing is synced: what a machine's end leaves behind is gone.
//
// Thread-safe for different files; ranks of one node have one store.
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

namespace lynx {

struct CopyKey {
  Generation generation;
  int64_t step = 0;
  std::string file;  // as ShardFile names it
  auto operator<=>(const CopyKey&) const = default;
};

struct CopyRecord {
  CheckpointIdentity identity;
  ShardRecord shard;  // its file as ShardFile names it
  CopyKey key() const { return {identity.generation, identity.step, shard.file}; }
};

// A generation went on from there.
struct ResumedMark {
  Generation generation;
  int64_t step = 0;
  bool operator==(const ResumedMark&) const = default;
};

// What a node has of a job.
struct NodeCopies {
  std::vector<CopyRecord> copies;
  std::vector<ResumedMark> resumed;
  std::vector<std::string> damaged;  // what is wrong with each record that is not to be read
};

class CopyStore {
 public:
  CopyStore(const std::string& directory, const JobId& job);

  const std::string& folder() const { return folder_; }
  // With its parents, for the user alone. PermissionDenied when the directory is somebody else's.
  absl::Status Create() const;

  // The shard's file, to be written from its beginning: in the place of `replaced`, which is none from now on, else new.
  // ResourceExhausted when there is no room.
  absl::StatusOr<OwnedFd> BeginShard(const CopyKey& key, const std::optional<CopyKey>& replaced) const;
  // Makes what was written the copy that `record` says. FailedPrecondition when a newer generation has resumed.
  absl::Status Complete(const CopyRecord& record) const;
  absl::StatusOr<OwnedFd> OpenShard(const CopyKey& key) const;
  // Whether the shard is what its record says. DataLoss naming the difference.
  absl::Status Verify(const CopyRecord& record) const;
  // Best effort.
  void Remove(const CopyKey& key) const;

  // Copies by their records, of the size that these say; an absent folder has none.
  NodeCopies List() const;
  absl::Status MarkResumed(const ResumedMark& mark) const;
  // Everything of generations before this one, but for their marks. Best effort.
  void RemoveOlderThan(Generation generation) const;
  // Of all files.
  Bytes Used() const;

  std::string ShardPath(const CopyKey& key) const;

 private:
  std::string RecordPath(const CopyKey& key) const;
  absl::Status CheckFence(Generation generation) const;

  std::string directory_, folder_;
};

// All of the bytes, from the file's position on; ResourceExhausted on a full disk or memory.
absl::Status WriteAll(int fd, std::span<const char> bytes, const std::string& what);
// Fills `out` from there; DataLoss when the file ends before.
absl::Status ReadAt(int fd, int64_t offset, std::span<char> out, const std::string& what);

}  // namespace lynx

#endif  // LYNX_WORKER_COPIES_COPY_STORE_H_
