// CheckpointWriter: writes one checkpoint with all ranks. Every rank that has a shard writes and verifies it beside the next
// steps (shard_writer.h). After the step in which the last shard is finished, all ranks agree that every shard is durable. Rank
// 0 publishes the checkpoint, reports it, and only then removes older checkpoints. Finally all ranks agree on the outcome. So
// either all ranks continue and know that the checkpoint is visible, or all continue without it.
//
//   Write (copies the states) -> step, Poll -> step, Poll: all have written -> agreed and published
//
// Only one checkpoint is written at a time: a Write that comes too early waits for the previous checkpoint.
//
// Owned by the rank's compute thread; borrows its arguments.
#ifndef LYNX_WORKER_RANK_STATES_CHECKPOINT_WRITER_H_
#define LYNX_WORKER_RANK_STATES_CHECKPOINT_WRITER_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "worker/checkpoint/checkpoint.h"
#include "worker/contract/rank_config.h"
#include "worker/model/model_state.h"
#include "worker/rank/peers/agreement.h"
#include "worker/rank/records/report_file.h"
#include "worker/rank/states/shard_writer.h"

namespace lynx::worker {

// True if a run writes a checkpoint after `steps_done` steps.
bool WritesCheckpoint(const JobSpec& spec, int64_t steps_done);

class CheckpointWriter {
 public:
  // `run`: the job's identity; its step is not used.
  CheckpointWriter(const RankConfig& config, const CheckpointIdentity& run, const RankGroup& seat, ModelState& state,
                   ReportFile& reports);

  // Begins to write a checkpoint. Collective: all ranks call it after the same step. If a checkpoint cannot be written, rank 0
  // reports it and the rank at fault says so on stderr. That is not an error: training continues. An error means that the run
  // must end. It is an error of the communicator. Or it is FailedPrecondition, on every rank, if a newer generation of the job
  // has begun or if another run's checkpoint is in the way.
  absl::Status Write(int64_t steps_done);

  bool under_way() const { return pending_ != 0; }
  // Collective; call it after each step. Does nothing if no checkpoint is in progress. Otherwise all ranks say whether their
  // shard is written; when all are, it completes what Write began. Errors are those of Write.
  absl::Status Poll();

  // Like Write, but training waits: returns true when the checkpoint is visible, or false if it cannot be written. The latter
  // is reported.
  absl::StatusOr<bool> WriteNow(int64_t steps_done);

  // Like Write, for the last step, whose checkpoint is the run's only result. It does not run beside training, and it retries
  // until config.last_checkpoint_patience has passed. After that it is DataLoss on every rank.
  absl::Status WriteLast(int64_t steps_done);

 private:
  // Why a checkpoint is not visible; OK: it is visible.
  struct Outcome {
    absl::Status failure;
  };
  CheckpointIdentity IdentityAt(int64_t steps_done) const;
  // Begins to write this rank's shard, if it writes one.
  void StartOwnShard(const CheckpointIdentity& identity);
  absl::Status FinishOwnShard(const CheckpointIdentity& identity);
  // Waits for the writing of the shards, then publishes or discards the checkpoint. Errors are those of Write.
  absl::StatusOr<Outcome> Conclude(const CheckpointIdentity& identity);
  // Concludes the checkpoint that is in progress, if there is one.
  absl::Status ConcludePending();
  // Returns true if the checkpoint is visible. If it is not, reports that.
  absl::StatusOr<bool> ConcludeAt(int64_t steps_done);
  // On rank 0: makes the checkpoint visible, reports it and removes older ones.
  absl::Status Publish(const CheckpointIdentity& identity);
  // On rank 0: reports a checkpoint that could not be written.
  void Report(int64_t steps_done, const absl::Status& failure);

  const RankConfig& config_;
  const CheckpointIdentity run_;
  const RankGroup seat_;
  const RankCoordinates coordinates_;
  ModelState& state_;
  ReportFile& reports_;
  ShardWriter shard_;
  int64_t pending_ = 0;  // steps done, of the checkpoint in progress; 0: there is none
};

}  // namespace lynx::worker

#endif  // LYNX_WORKER_RANK_STATES_CHECKPOINT_WRITER_H_
