// Checkpoints: safetensors files and an index, in `DIRECTORY/step-00000100/`.
//
// When a generation begins, it raises its fence in the directory (ClaimDirectory). From then on, no older generation of the job
// publishes or removes anything there. After this the generation looks for a checkpoint to resume from.
//
// Every rank with data-parallel index 0 writes two files. `shard-SSSS-TTTT.safetensors` (SSSS: stage, TTTT: tensor-parallel
// rank) holds the rank's weights and both AdamW moments (see shard.h). `shard-SSSS-TTTT.safetensors.sha256` records the size
// and the digest of the shard. If ZeRO divides the optimizer's states among the replicas, every rank writes the part that it
// updates, as `shard-SSSS-TTTT-DDDD.safetensors` (DDDD: data-parallel index). If an expert group has ranks of several replicas,
// as many replicas as have all experts together write shards with such names. Experts that several ranks have are in the shard
// of the first of these ranks only (WrittenSlots).
//
// Both files go into the folder `DIRECTORY/.step-00000100.JOB.gG/` (G: the generation) and are fsynced. Then the rank reads its
// shard back and compares its SHA-256. When all ranks have reported that their shards are durable and verified, rank 0 writes
// `index.json` (job, generation, step, seed, model, layout, data, files with size and digest), fsyncs it, and renames the
// folder. This one rename makes the whole checkpoint visible. After a crash at any point there is either no new checkpoint or a
// whole one. Older checkpoints are removed last, after the new one has been reported (PruneCheckpoints).
//
// A job that restarts from an older checkpoint reaches steps that already have a checkpoint. If the existing checkpoint is
// whole and has the same job, model, seed and data, it stays and the new one is dropped. Training is deterministic, so both
// hold the same state (up to rounding, if the layouts differ), and a good checkpoint is always visible. If the existing
// checkpoint is damaged, it is renamed to `.removed-step-00000100`, the new one is renamed into its place, and the damaged one
// is removed. A crash between the two renames leaves the step without a checkpoint. Then the newest whole checkpoint of another
// step is used, as if the damaged one still existed.
//
// A name that begins with a dot is never read as a checkpoint; checkpoint_directory.h lists such names. Two generations of a
// job may run at the same time, if the server wrongly believed that the older one was lost. Two jobs may use one directory; a
// step then belongs to the job that publishes it first.
//
// These are free functions that work on a directory. The caller orders the calls of different ranks. Thread-safe for different
// shards.
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

// Names the job and the step of a checkpoint, and says what the checkpoint holds. Within one job, only generation and step
// change.
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

// Describes the shard file that one rank wrote.
struct ShardRecord {
  std::string file;
  Bytes bytes;
  std::string sha256;  // 64 lower-case hexadecimal digits

  bool operator==(const ShardRecord&) const = default;
};
Bytes TotalBytes(const std::vector<ShardRecord>& files);

std::string CheckpointPath(const std::string& directory, int64_t step);

// Creates the directory and raises the generation's fence; the fence is on disk when the function returns. Then removes what
// older generations left behind, and ignores errors of this removal. Call it once, on rank 0 only, before the generation reads
// or writes anything in the directory. Returns AlreadyExists if a newer generation of the job has raised its fence or published
// a checkpoint. `identity.step` is not used.
absl::Status ClaimDirectory(const std::string& directory, const CheckpointIdentity& identity,
                            FileSystem& files = PosixFileSystem());

// Writes the shard of this rank. Call it on every rank that writes a shard: the ranks of the first WritingReplicas
// replicas. `replica`: the rank's data-parallel index. Returns ResourceExhausted if the disk is full, DataLoss if the file does
// not read back as it was written, and other codes by errno. The error names the file. After an error, no remaining file can be
// mistaken for a checkpoint.
absl::StatusOr<ShardRecord> WriteShard(const std::string& directory, const CheckpointIdentity& identity,
                                       const StageContext& context, int32_t tp_rank, int32_t replica, ModelState& state,
                                       FileSystem& files = PosixFileSystem());
// Works like the function above, but takes the content of the tensors from `content`. `header` names the tensors (see
// ShardHeader in shard.h).
absl::StatusOr<ShardRecord> WriteShard(const std::string& directory, const CheckpointIdentity& identity,
                                       const StageContext& context, int32_t tp_rank, int32_t replica,
                                       const SafetensorsHeader& header, const TensorContent& content,
                                       FileSystem& files = PosixFileSystem());
// Publishes the checkpoint: writes the index, renames the folder, fsyncs the directory. Call it on rank 0 only, after all
// shards are written. Returns the bytes of all shards. If the step already has a checkpoint, the function verifies its digests:
// a whole checkpoint stays, a damaged one is replaced. It checks only the sizes of the new shards, since every rank has
// verified its own.
//
// Returns AlreadyExists if a newer generation of the job has begun, which means that the caller has been replaced.
// FailedPrecondition: another run has a checkpoint of this step, or the index cannot express the identity. DataLoss: a shard is
// missing, or its size is not what its rank wrote. After an error the checkpoint is not visible, unless only the last fsync
// failed.
absl::StatusOr<Bytes> PublishCheckpoint(const std::string& directory, const CheckpointIdentity& identity,
                                        FileSystem& files = PosixFileSystem());
// Removes older checkpoints of this job, and files that crashes left behind. The newest `keep` (>= 1) checkpoints stay,
// including the one of identity.step. Call it on rank 0 only, after that checkpoint was published and reported. Checkpoints
// that cannot be read stay, and so do checkpoints of later steps. (Later steps exist if the job resumed from an earlier
// checkpoint.) Ignores errors. Does nothing if a newer generation has begun.
void PruneCheckpoints(const std::string& directory, const CheckpointIdentity& identity, int32_t keep,
                      FileSystem& files = PosixFileSystem());
// Removes the temporary folder of this generation and step after a failure. Ignores errors.
void DiscardCheckpoint(const std::string& directory, const CheckpointIdentity& identity, FileSystem& files = PosixFileSystem());

struct CheckpointSummary {
  CheckpointIdentity identity;
  std::string path;
  Bytes bytes;  // sum over all shards
  std::vector<ShardRecord> files;
};

// Divides the work of checking digests among several readers of one checkpoint. This reader checks every `of`-th shard, and
// begins with shard `index`. If all readers succeed, every shard is whole. of = 0: this reader checks no digest, because the
// shards are known to be whole.
struct ReadShare {
  int32_t index = 0;
  int32_t of = 1;

  bool Has(size_t shard) const { return of > 0 && shard % static_cast<size_t>(of) == static_cast<size_t>(index); }
};

// Loads the weights and moments of step identity.step that this rank updates. Any layout may have written the checkpoint; the
// generation and the layout of `identity` are not compared. If the rank checks the digest of a shard, it reads the whole shard;
// from other shards it reads only the parts that it needs. NotFound: there is no such checkpoint. DataLoss: a file is missing
// or short, or its digest differs. FailedPrecondition: job, seed, model or data differ, or a shard belongs to another
// checkpoint. Each error names the file and the difference. After an error the content of the state is undefined.
absl::Status LoadCheckpoint(const std::string& directory, const CheckpointIdentity& identity, const StageContext& context,
                            int32_t tp_rank, ModelState& state, ReadShare share = {}, FileSystem& files = PosixFileSystem());

// Loads the shards of an in-memory checkpoint, otherwise like LoadCheckpoint. `files` finds the shards below copies.path.
absl::Status LoadCopies(const CheckpointSummary& copies, const CheckpointIdentity& identity, const StageContext& context,
                        int32_t tp_rank, ModelState& state, ReadShare share, FileSystem& files);

// Says which part of a checkpoint a run takes at its beginning.
enum class StartWith : uint8_t {
  kAll,      // the run continues from the checkpoint's step and takes its moments; at step 0 this is the same as kWeights
  kWeights,  // the run takes only the weights: it begins at step 0, and its moments are zero
};
// Loads the checkpoint of step `step` from `from`, which is the job's field checkpoint.from. `from` is a checkpoint, or a
// directory of checkpoints, of any job. Returns FailedPrecondition if the shapes or the meaning of the models' weights differ,
// or if the seed, the data or the samples are not those of the run (StartDifferenceText). With kWeights, only the weights are
// compared.
absl::Status LoadStart(const std::string& from, int64_t step, StartWith with, const CheckpointIdentity& identity,
                       const StageContext& context, int32_t tp_rank, ModelState& state, ReadShare share = {},
                       FileSystem& files = PosixFileSystem());

// Returns the visible checkpoints of all jobs, newest first. Reads only their indexes and checks no shard's digest. If
// `damaged` is not null, it receives each checkpoint that cannot be read, with the reason. A directory that does not exist has
// no checkpoints. If the directory cannot be listed, returns an error.
absl::StatusOr<std::vector<CheckpointSummary>> ListCheckpoints(const std::string& directory, std::vector<std::string>* damaged,
                                                               FileSystem& files = PosixFileSystem());

}  // namespace lynx::worker

#endif  // LYNX_WORKER_CHECKPOINT_CHECKPOINT_H_
