// Checkpoints: safetensors files and an index, in `DIRECTORY/step-00000100/`.
//
// A generation first raises its fence in the directory (ClaimDirectory). From then on, no older generation of the job publishes
// or removes anything there. Only after that does the generation look for a checkpoint to resume from.
//
// Every rank with data-parallel index 0 writes `shard-SSSS-TTTT.safetensors` (stage, tensor-parallel rank), which holds its
// weights and both AdamW moments (see shard.h), and `shard-SSSS-TTTT.safetensors.sha256`, which records what it wrote. Where
// ZeRO divides the optimizer's states among the replicas, every rank writes what it updates, as
// `shard-SSSS-TTTT-DDDD.safetensors`. Both files go into `DIRECTORY/.step-00000100.JOB.gG/` (G: the generation) and are
// fsynced; then the rank reads its shard back and compares its SHA-256. When all ranks report that their shards are durable and
// verified, rank 0 writes `index.json` (job, generation, step, seed, model, layout, data, files with size and digest), fsyncs
// it, and makes everything visible by one rename. A crash at any point leaves either no new checkpoint or a whole one. Older
// checkpoints are removed last, after the new one has been reported (PruneCheckpoints).
//
// Writing the same step twice: after a restart from an older checkpoint, a job reaches a step that already has a checkpoint. If
// that checkpoint is whole and of the same job, model, seed and data, it stays and the new one is dropped. Training is
// deterministic, so both hold the same state (up to rounding, if the layouts differ), and a good checkpoint is always visible.
// If the existing one is damaged, it is renamed to `.removed-step-00000100`, the new one is renamed into its place, and the
// damaged one is removed. A crash between the two renames leaves the step without a checkpoint; the newest whole checkpoint of
// another step is then the newest, as before.
//
// A name that begins with a dot is never read as a checkpoint; checkpoint_directory.h lists such names. Two generations of a
// job may run at once, if the older one was wrongly believed lost. Two jobs may use one directory too; a step then belongs to
// the job that publishes it first.
//
// Free functions over a directory; the caller orders the calls of different ranks. Thread-safe for different shards.
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

namespace lynx::worker {

// The job that the checkpoint belongs to, and what it holds. All fields except generation and step stay the same throughout a
// job.
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

// The shard file that one rank wrote.
struct ShardRecord {
  std::string file;
  Bytes bytes;
  std::string sha256;  // 64 lower-case hexadecimal digits

  bool operator==(const ShardRecord&) const = default;
};
Bytes TotalBytes(const std::vector<ShardRecord>& files);

std::string CheckpointPath(const std::string& directory, int64_t step);

// Creates the directory and raises the generation's fence, durably. Then it removes what older generations left behind, best
// effort. Call it once, on rank 0 only, before the generation reads or writes anything in the directory. AlreadyExists if a
// newer generation of the job has raised its fence. `identity.step` is not used.
absl::Status ClaimDirectory(const std::string& directory, const CheckpointIdentity& identity,
                            FileSystem& files = PosixFileSystem());

// Writes the shard of this rank. Call it on every rank that writes a shard (ReplicasWriteShards). `replica`: the rank's
// data-parallel index. ResourceExhausted if the disk is full, DataLoss if the file does not read back as it was written, other
// codes by errno. The error names the file. Nothing that is left after an error can be mistaken for a checkpoint.
absl::StatusOr<ShardRecord> WriteShard(const std::string& directory, const CheckpointIdentity& identity,
                                       const StageContext& context, int32_t tp_rank, int32_t replica, ModelState& state,
                                       FileSystem& files = PosixFileSystem());
// Like the function above, but takes the content of the tensors from any source. `header` names the tensors (see ShardHeader in
// shard.h).
absl::StatusOr<ShardRecord> WriteShard(const std::string& directory, const CheckpointIdentity& identity,
                                       const StageContext& context, int32_t tp_rank, int32_t replica,
                                       const SafetensorsHeader& header, const TensorContent& content,
                                       FileSystem& files = PosixFileSystem());
// Publishes the checkpoint: writes the index, renames the folder, fsyncs the directory. Call it on rank 0 only, after all
// shards are written. Returns the bytes of all shards. If the step already has a checkpoint, the function reads that
// checkpoint's shards. It checks only the sizes of the new shards, since every rank has verified its own.
//
// AlreadyExists if a newer generation of the job has begun, so that the caller has been replaced. FailedPrecondition if the
// step has a checkpoint of another run, or if the index cannot express the identity. DataLoss if a shard is missing or its size
// is not what its rank wrote. After an error the checkpoint is not visible, unless only the last fsync failed.
absl::StatusOr<Bytes> PublishCheckpoint(const std::string& directory, const CheckpointIdentity& identity,
                                        FileSystem& files = PosixFileSystem());
// Removes older checkpoints of this job, and what crashes left behind. The newest `keep` (>= 1) checkpoints stay, including the
// one of identity.step. Call it on rank 0 only, after that checkpoint was published and reported. Unreadable checkpoints stay,
// and also checkpoints of later steps. (Later steps exist if the job resumed from an earlier checkpoint.) Best effort; does
// nothing if a newer generation has begun.
void PruneCheckpoints(const std::string& directory, const CheckpointIdentity& identity, int32_t keep,
                      FileSystem& files = PosixFileSystem());
// Removes this attempt's temporary folder after a failure. Best effort.
void DiscardCheckpoint(const std::string& directory, const CheckpointIdentity& identity, FileSystem& files = PosixFileSystem());

struct CheckpointSummary {
  CheckpointIdentity identity;
  std::string path;
  Bytes bytes;  // sum over all shards
  std::vector<ShardRecord> files;
};

// Divides the work of checking digests among several readers of one checkpoint: this reader checks every `of`-th shard,
// starting with shard `index`. If all readers succeed, every shard is whole. of = 0: this reader checks no digest, because the
// shards are known to be whole.
struct ReadShare {
  int32_t index = 0;
  int32_t of = 1;

  bool Has(size_t shard) const { return of > 0 && shard % static_cast<size_t>(of) == static_cast<size_t>(index); }
};

// Loads the weights and moments of identity.step that this rank updates, whatever layout wrote them. The generation and layout
// of `identity` do not matter. Of the shards whose digests it checks, the rank reads everything; of the other shards it reads
// only the parts that it needs. NotFound if there is no such checkpoint. DataLoss if a file is missing or short, or its digest
// differs. FailedPrecondition if job, seed, model or data differ, or if a shard belongs to another checkpoint. Each error names
// the file and the difference. After an error the content of the state is undefined.
absl::Status LoadCheckpoint(const std::string& directory, const CheckpointIdentity& identity, const StageContext& context,
                            int32_t tp_rank, ModelState& state, ReadShare share = {}, FileSystem& files = PosixFileSystem());

// Like LoadCheckpoint, for the shards of an in-memory checkpoint: `files` finds them below copies.path.
absl::Status LoadCopies(const CheckpointSummary& copies, const CheckpointIdentity& identity, const StageContext& context,
                        int32_t tp_rank, ModelState& state, ReadShare share, FileSystem& files);

// Which part of a checkpoint a run begins with.
enum class StartWith : uint8_t {
  kAll,      // continue from its step, with its moments; for a checkpoint of step 0 the same as kWeights
  kWeights,  // begin at step 0, with moments of zero
};
// Loads step `step` of the job's checkpoint.from. `from` is a checkpoint, or a directory of checkpoints, of any job.
// FailedPrecondition if model, seed or data are not those of the run. With kWeights, FailedPrecondition only if the shapes or
// the meaning of the models' weights differ.
absl::Status LoadStart(const std::string& from, int64_t step, StartWith with, const CheckpointIdentity& identity,
                       const StageContext& context, int32_t tp_rank, ModelState& state, ReadShare share = {},
                       FileSystem& files = PosixFileSystem());

// The visible checkpoints of all jobs, newest first. Reads only their indexes and checks no shard's digest. `damaged`, unless
// null, receives each unreadable checkpoint with the reason. A directory that does not exist has no checkpoints. It is an error
// if the directory cannot be listed.
absl::StatusOr<std::vector<CheckpointSummary>> ListCheckpoints(const std::string& directory, std::vector<std::string>* damaged,
                                                               FileSystem& files = PosixFileSystem());

}  // namespace lynx::worker

#endif  // LYNX_WORKER_CHECKPOINT_CHECKPOINT_H_
