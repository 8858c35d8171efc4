// Checkpoints: safetensors files and an index, in `DIRECTORY/step-00000100/`.
//
// Every rank with data-parallel index 0 writes `shard-SSSS-TTTT.safetensors` (stage, tensor-parallel rank): its weights
// and both AdamW moments (`NAME`, `NAME.exp_avg`, `NAME.exp_avg_sq`), with each piece's place in the global parameter in
// the file's metadata. Written into `DIRECTORY/.step-00000100.gG/` (G: the generation), fsynced; then, when all ranks
// say their shard is durable, rank 0 reads every file back, compares its SHA-256, writes `index.json` (job, generation,
// step, seed, model, layout, files with size and digest), fsyncs, and makes all of it visible by one rename. A crash at
// any point leaves either no new checkpoint or a whole one.
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
#include "worker/model/model_state.h"

namespace lynx {

struct CheckpointIdentity {
  JobId job;
  Generation generation;
  int64_t step = 0;  // optimizer steps done
  uint64_t seed = 0;
  ModelSpec model;
  ParallelLayout layout;
};

// What one rank wrote.
struct ShardRecord {
  std::string file;
  Bytes bytes;
  std::string sha256;
};

std::string CheckpointPath(const std::string& directory, int64_t step);

// On every dp-0 rank. ResourceExhausted on a full disk, others as errno says; names the file. Leaves nothing half-written
// that could be mistaken for a checkpoint.
absl::StatusOr<ShardRecord> WriteShard(const std::string& directory, const CheckpointIdentity& identity,
                                       const StageContext& context, int32_t tp_rank, ModelState& state);
// On rank 0 only, after all shards: verifies, writes the index, renames, fsyncs the directory; then removes older
// checkpoints beyond `keep` and left-over temporary folders of older generations. Returns the bytes of all files.
// AlreadyExists when a checkpoint of that step of a *newer* generation is there: the caller has been replaced.
absl::StatusOr<Bytes> PublishCheckpoint(const std::string& directory, const CheckpointIdentity& identity, int32_t keep);
// After a failure: removes this attempt's temporary folder. Best effort.
void DiscardCheckpoint(const std::string& directory, const CheckpointIdentity& identity);

// Loads this rank's weights and moments. NotFound when there is none; DataLoss when a file is missing, short, or its digest
// differs; FailedPrecondition when model or layout differ. Each names file and difference.
absl::Status LoadCheckpoint(const std::string& directory, int64_t step, const StageContext& context, int32_t tp_rank,
                            ModelState& state);

struct CheckpointSummary {
  CheckpointIdentity identity;
  std::string path;
  Bytes bytes;
  std::vector<ShardRecord> files;
};
// Visible checkpoints, newest first, by their index only (no digests). Unreadable ones are reported in `damaged`.
std::vector<CheckpointSummary> ListCheckpoints(const std::string& directory, std::vector<std::string>* damaged);
// The newest step whose files all verify; earlier ones are tried in turn and each skipped one is named in `skipped`.
// NotFound when there is no checkpoint at all; DataLoss when there are some but none is whole.
absl::StatusOr<int64_t> NewestVerifiedStep(const std::string& directory, std::vector<std::string>* skipped);

}  // namespace lynx

#endif  // LYNX_WORKER_CHECKPOINT_CHECKPOINT_H_
