// Checkpoints: safetensors files and an index, in `DIRECTORY/step-00000100/`.
//
// A generation first raises its fence in the directory (ClaimDirectory): from then on no older generation of the job
// publishes or removes anything there. Only then does it look for what to resume from.
//
// Every rank with data-parallel index 0 writes `shard-SSSS-TTTT.safetensors` (stage, tensor-parallel rank): its
// weights and both AdamW moments (see shard.h), and `shard-SSSS-TTTT.safetensors.sha256`, which says what it wrote.
// Where ZeRO shares out the optimizer's states, every rank writes what it updates, `shard-SSSS-TTTT-DDDD.safetensors`.
// Both go into `DIRECTORY/.step-00000100.JOB.gG/` (G: the generation), fsynced; and the rank reads its shard back and
// compares its SHA-256. When all ranks say that their shard is durable and verified, rank 0 writes `index.json` (job,
// generation, step, seed, model, layout, data, files with size and digest), fsyncs, and makes all of it visible by
// one rename. A crash at any point leaves either no new checkpoint or a whole one. Older ones are removed last, after
// the new one has been reported (PruneCheckpoints).
//
// The same step twice. After a restart from an older checkpoint a job comes to a step that has a checkpoint already.
// If that one is whole and of the same job, model, seed and data, it stays and the new one is dropped: training is
// deterministic, so they hold the same state (to rounding, if the layouts differ), and a good checkpoint is never out
// of sight. If it is damaged, it is renamed to `.removed-step-00000100`, the new one is renamed into its place, and
// it is removed. A crash between the two renames leaves the step without a checkpoint: then, as before, the newest
// whole one of another step is the newest.
//
// What begins with a dot is never read as a checkpoint; see checkpoint_directory.h for what it is. Two generations of
// a job may run at once, where an older one was given up for lost; so may two jobs, but a step belongs to the first
// that publishes it.
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
#include "planner/problem/job_spec.h"
#include "planner/problem/layout.h"
#include "worker/checkpoint/file_system.h"
#include "worker/checkpoint/safetensors_file.h"
#include "worker/data/data_fingerprint.h"
#include "worker/model/model_state.h"

namespace lynx {

// Whose checkpoint it is and of what. All but generation and step are the same throughout a job.
struct CheckpointIdentity {
  JobId job;  // [a-zA-Z0-9._-]+: it is a part of names in the directory
  Generation generation;
  int64_t step = 0;  // optimizer steps done
  uint64_t seed = 0;
  ModelSpec model;
  ParallelLayout layout;
  DataFingerprint data;

  bool operator==(const CheckpointIdentity&) const = default;
};

// What one rank wrote.
struct ShardRecord {
  std::string file;
  Bytes bytes;
  std::string sha256;  // 64 lower-case hexadecimal digits

  bool operator==(const ShardRecord&) const = default;
};
Bytes TotalBytes(const std::vector<ShardRecord>& files);

std::string CheckpointPath(const std::string& directory, int64_t step);

// On rank 0 only, once, before the generation reads or writes anything there: creates the directory and raises the
// generation's fence, durably; then, best effort, clears away what older generations left behind. AlreadyExists when
// a newer generation of the job was there before. `identity.step` is not used.
absl::Status ClaimDirectory(const std::string& directory, const CheckpointIdentity& identity,
                            FileSystem& files = PosixFileSystem());

// On every rank that writes one (ReplicasWriteShards); `replica`: its data-parallel index. ResourceExhausted on a full
// disk, DataLoss when the file does not read back as it was written, others as errno says; names the file. Leaves
// nothing half-written that could be mistaken for a checkpoint.
absl::StatusOr<ShardRecord> WriteShard(const std::string& directory, const CheckpointIdentity& identity,
                                       const StageContext& context, int32_t tp_rank, int32_t replica, ModelState& state,
                                       FileSystem& files = PosixFileSystem());
// The same from any source of the tensors that the header (see ShardHeader in shard.h) names.
absl::StatusOr<ShardRecord> WriteShard(const std::string& directory, const CheckpointIdentity& identity,
                                       const StageContext& context, int32_t tp_rank, int32_t replica,
                                       const SafetensorsHeader& header, const TensorContent& content,
                                       FileSystem& files = PosixFileSystem());
// On rank 0 only, after all shards: writes the index, renames, fsyncs the directory. Returns the bytes of all shards.
// It reads the shards of a checkpoint that has the step already, but of the new ones only the sizes: every rank has
// verified its own.
//
// AlreadyExists when a newer generation of the job has begun: the caller has been replaced. FailedPrecondition when
// that step has a checkpoint of another run, or the index cannot say what the identity says. DataLoss when a shard is
// missing or has another size than its rank wrote. After an error the checkpoint is not visible, unless only the last
// fsync failed.
absl::StatusOr<Bytes> PublishCheckpoint(const std::string& directory, const CheckpointIdentity& identity,
                                        FileSystem& files = PosixFileSystem());
// On rank 0 only, after the checkpoint of identity.step was published and reported: removes this job's older ones
// beyond the `keep` newest (>= 1, this one included) and what crashes left behind. Checkpoints of later steps (all
// but this one were damaged once, or the job went back) and unreadable ones stay. Best effort; nothing at all where a
// newer generation has begun.
void PruneCheckpoints(const std::string& directory, const CheckpointIdentity& identity, int32_t keep,
                      FileSystem& files = PosixFileSystem());
// After a failure: removes this attempt's temporary folder. Best effort.
void DiscardCheckpoint(const std::string& directory, const CheckpointIdentity& identity, FileSystem& files = PosixFileSystem());

struct CheckpointSummary {
  CheckpointIdentity identity;
  std::string path;
  Bytes bytes;  // of all shards
  std::vector<ShardRecord> files;
};

// Of several readers of one checkpoint, one that takes the digests of every `of`-th shard, from `index` on. Where all
// of them say OK, every shard is whole. of = 0: of none, since that is known.
struct ReadShare {
  int32_t index = 0;
  int32_t of = 1;

  bool Has(size_t shard) const { return of > 0 && shard % static_cast<size_t>(of) == static_cast<size_t>(index); }
};

// Loads the weights and moments that this rank updates of identity.step, whatever layout they were written in: generation
// and layout do not matter. The rank reads its own parts of the tensors, and all of the shards whose digests it takes.
// NotFound when there is none; DataLoss when a file is missing, short, or its digest differs; FailedPrecondition when
// job, seed, model or data differ, or a shard is of another checkpoint. Each names file and difference. After an
// error the state holds anything.
absl::Status LoadCheckpoint(const std::string& directory, const CheckpointIdentity& identity, const StageContext& context,
                            int32_t tp_rank, ModelState& state, ReadShare share = {}, FileSystem& files = PosixFileSystem());

// The same of shards that are not a checkpoint on disk: `files` finds them below copies.path.
absl::Status LoadCopies(const CheckpointSummary& copies, const CheckpointIdentity& identity, const StageContext& context,
                        int32_t tp_rank, ModelState& state, ReadShare share, FileSystem& files);

// What of a checkpoint a run begins with.
enum class StartWith : uint8_t {
  kAll,      // goes on from its step, with its moments; of step 0, as kWeights
  kWeights,  // begins at step 0, with moments of zero
};
// The same from step `step` of what a job names as checkpoint.from: a checkpoint or a directory of them, of any job.
// FailedPrecondition when model, seed or data are not those that the run would go on with, or, for the weights alone,
// the models' weights differ in shape or meaning.
absl::Status LoadStart(const std::string& from, int64_t step, StartWith with, const CheckpointIdentity& identity,
                       const StageContext& context, int32_t tp_rank, ModelState& state, ReadShare share = {},
                       FileSystem& files = PosixFileSystem());

// Visible checkpoints of all jobs, newest first, by their index only (no digests of shards). Each unreadable one is
// named in `damaged` (unless null) with the reason. An absent directory has none; an error when it cannot be listed.
absl::StatusOr<std::vector<CheckpointSummary>> ListCheckpoints(const std::string& directory, std::vector<std::string>* damaged,
                                                               FileSystem& files = PosixFileSystem());

}  // namespace lynx

#endif  // LYNX_WORKER_CHECKPOINT_CHECKPOINT_H_
