// Checkpoints: safetensors files and an index, in `DIRECTORY/step-00000100/`.
//
// Every rank with data-parallel index 0 writes `shard-SSSS-TTTT.safetensors` (stage, tensor-parallel rank): its
// weights and both AdamW moments (see shard.h), and `shard-SSSS-TTTT.safetensors.sha256`, which says what it wrote.
// Both go into `DIRECTORY/.step-00000100.gG/` (G: the generation), fsynced; then, when all ranks say their shard is
// durable, rank 0 reads every file back, compares its SHA-256, writes `index.json` (job, generation, step, seed,
// model, layout, files with size and digest), fsyncs, and makes all of it visible by one rename. A crash at any point
// leaves either no new checkpoint or a whole one.
//
// The same step twice. After a restart from an older checkpoint a job comes to a step that has a checkpoint already.
// If that one is whole and of the same job, model, layout and seed, it stays and the new one is dropped: training is
// deterministic, so they hold the same state, and a good checkpoint is never out of sight. If it is damaged, it is
// renamed to `.removed-step-00000100`, the new one is renamed into its place, and it is removed. A crash between the
// two renames leaves the step without a checkpoint: then, as before, the newest whole one of another step is the
// newest.
//
// What begins with a dot is never read as a checkpoint; the next publication clears away what crashes left. One job
// at a time may write to a directory.
//
// Free functions over a directory; the caller orders them between ranks. Thread-safe for different shards.
#ifndef LYNX_WORKER_CHECKPOINT_CHECKPOINT_H_
#define LYNX_WORKER_CHECKPOINT_CHECKPOINT_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/ids.h"
#include "common/units.h"
#include "planner/job_spec.h"
#include "planner/layout.h"
#include "worker/checkpoint/file_system.h"
#include "worker/model/model_state.h"

namespace lynx {

struct CheckpointIdentity {
  JobId job;
  Generation generation;
  int64_t step = 0;  // optimizer steps done
  uint64_t seed = 0;
  ModelSpec model;
  ParallelLayout layout;

  bool operator==(const CheckpointIdentity&) const = default;
};

// What one rank wrote.
struct ShardRecord {
  std::string file;
  Bytes bytes;
  std::string sha256;  // 64 lower-case hexadecimal digits

  bool operator==(const ShardRecord&) const = default;
};

std::string CheckpointPath(const std::string& directory, int64_t step);

// On every dp-0 rank. ResourceExhausted on a full disk, others as errno says; names the file. Leaves nothing
// half-written that could be mistaken for a checkpoint.
absl::StatusOr<ShardRecord> WriteShard(const std::string& directory, const CheckpointIdentity& identity,
                                       const StageContext& context, int32_t tp_rank, ModelState& state,
                                       FileSystem& files = PosixFileSystem());
// On rank 0 only, after all shards: verifies, writes the index, renames, fsyncs the directory; then removes, best
// effort, this job's older checkpoints beyond the `keep` newest (>= 1, this one included) and what crashes left
// behind. Checkpoints of later steps (all but this one were damaged once, or the job went back) and unreadable ones
// stay. Returns the bytes of all shards.
//
// AlreadyExists when a newer generation of the job has published any step: the caller has been replaced.
// FailedPrecondition when that step has a checkpoint of another job, model, layout or seed. DataLoss when a shard is
// missing or is not what its rank wrote. After an error the checkpoint is not visible, unless only the last fsync
// failed.
absl::StatusOr<Bytes> PublishCheckpoint(const std::string& directory, const CheckpointIdentity& identity,
                                        int32_t keep, FileSystem& files = PosixFileSystem());
// After a failure: removes this attempt's temporary folder. Best effort.
void DiscardCheckpoint(const std::string& directory, const CheckpointIdentity& identity,
                       FileSystem& files = PosixFileSystem());

// Loads this rank's weights and moments. NotFound when there is none; DataLoss when a file is missing, short, or its
// digest differs; FailedPrecondition when the model, the layout or the division of layers into stages differ. Each
// names file and difference. After an error the state holds anything.
absl::Status LoadCheckpoint(const std::string& directory, int64_t step, const StageContext& context, int32_t tp_rank,
                            ModelState& state, FileSystem& files = PosixFileSystem());

struct CheckpointSummary {
  CheckpointIdentity identity;
  std::string path;
  Bytes bytes;  // of all shards
  std::vector<ShardRecord> files;
};
// Visible checkpoints, newest first, by their index only (no digests of shards). Each unreadable one, or the
// directory if it cannot be listed, is named in `damaged` (unless null) with the reason. An absent directory has
// none.
std::vector<CheckpointSummary> ListCheckpoints(const std::string& directory, std::vector<std::string>* damaged,
                                               FileSystem& files = PosixFileSystem());
// The newest step whose files all verify; earlier ones are tried in turn and each skipped one is named in `skipped`
// (unless null). NotFound when there is no checkpoint at all; DataLoss when there are some but none is whole; another
// code when the directory cannot be listed.
absl::StatusOr<int64_t> NewestVerifiedStep(const std::string& directory, std::vector<std::string>* skipped,
                                           FileSystem& files = PosixFileSystem());

}  // namespace lynx

#endif  // LYNX_WORKER_CHECKPOINT_CHECKPOINT_H_
