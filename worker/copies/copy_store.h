// CopyStore holds one job's in-memory checkpoints on one node. They are files in a directory of an in-memory file system. They
// survive the end of the ranks, but not of the node. A "copy" is one shard of an in-memory checkpoint.
//
//   DIRECTORY/JOB/gG-sS-shard-0001-0000.safetensors        a shard after S steps, written by generation G
//   DIRECTORY/JOB/gG-sS-shard-0001-0000.safetensors.json   its record: an index of that one file, with its digest
//   DIRECTORY/JOB/resumed-gG-sS                            generation G went on from step S
//
// A shard without its record does not count. So the record is written last and removed first. A file that is not needed any
// more is renamed and overwritten; the kernel then need not find and clear new memory.
//
// The file `resumed-gG-sS` is a fence. After it exists, no older generation completes a copy, and copies of older generations
// count only up to step S (copy_choice.h). Nothing is synced, because the files do not survive the end of the machine anyway.
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
  std::string file;  // the name that ShardFile returns
  auto operator<=>(const CopyKey&) const = default;
};

struct CopyRecord {
  CheckpointIdentity identity;
  ShardRecord shard;  // its field `file` is the name that ShardFile returns
  CopyKey key() const { return {identity.generation, identity.step, shard.file}; }
};

// Says that a generation has resumed, and from which step.
struct ResumedMark {
  Generation generation;
  int64_t step = 0;
  bool operator==(const ResumedMark&) const = default;
};

// The in-memory checkpoints of a job on one node.
struct NodeCopies {
  std::vector<CopyRecord> copies;
  std::vector<ResumedMark> resumed;
  std::vector<std::string> damaged;  // for each record that is unreadable or does not fit its shard: path and fault
};

class CopyStore {
 public:
  CopyStore(const std::string& directory, const JobId& job);

  const std::string& folder() const { return folder_; }
  // Creates the folder and its parents. Only this user may access them. Returns PermissionDenied if another user owns the
  // directory.
  absl::Status Create() const;

  // Opens the shard's file for writing from its beginning. With `replaced`, reuses the file of that copy, which becomes
  // invalid; without `replaced`, creates a new file. Returns ResourceExhausted if there is no room.
  absl::StatusOr<UniqueFd> BeginShard(const CopyKey& key, const std::optional<CopyKey>& replaced) const;
  // Makes the written file valid as the copy that `record` describes. Returns FailedPrecondition if a newer generation has
  // resumed.
  absl::Status Complete(const CopyRecord& record) const;
  absl::StatusOr<UniqueFd> OpenShard(const CopyKey& key) const;
  // Checks the shard against its record. Returns DataLoss if they differ; the text names the difference.
  absl::Status Verify(const CopyRecord& record) const;
  // Removes the copy. Ignores errors.
  void Remove(const CopyKey& key) const;

  // Returns the copies that have a record and the size that the record says. Returns no copies if the folder does not exist.
  NodeCopies List() const;
  absl::Status MarkResumed(const ResumedMark& mark) const;
  // Removes all files of generations older than `generation`, except their marks. Ignores errors.
  void RemoveOlderThan(Generation generation) const;
  // Returns the total size of all files.
  Bytes Used() const;

  std::string ShardPath(const CopyKey& key) const;

 private:
  std::string RecordPath(const CopyKey& key) const;
  absl::Status CheckFence(Generation generation) const;

  std::string directory_, folder_;
};

// Writes all of the bytes at the file's position. Returns ResourceExhausted if the disk or the memory is full.
absl::Status WriteAll(int fd, std::span<const char> bytes, const std::string& what);
// Fills `out` with the file's bytes from `offset` on. Returns DataLoss if the file ends before `out` is full.
absl::Status ReadAt(int fd, int64_t offset, std::span<char> out, const std::string& what);

}  // namespace lynx::worker

#endif  // LYNX_WORKER_COPIES_COPY_STORE_H_
