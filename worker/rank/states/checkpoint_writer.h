// CheckpointWriter writes one checkpoint with all ranks. Every rank that has a shard writes and verifies it while the next
// steps run (shard_writer.h). After the step in which the last shard is finished, all ranks agree that every shard is durable.
// Rank 0 publishes the checkpoint, reports it, and only then removes older checkpoints. Finally all ranks agree on the outcome.
// So either all ranks continue and know that the checkpoint is visible, or all continue without it.
//
//   Write (copies the states) -> step, Poll -> step, Poll: all have written -> agreed and published
//
// Only one checkpoint is written at a time. If Write is called while a checkpoint is in progress, Write waits for it first.
//
// The rank's compute thread owns it. It borrows its arguments.
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
  CheckpointWriter(const RankConfig& config, const CheckpointIdentity& run, const RankGroup& group, ModelState& state,
                   ReportFile& reports);

  // Begins to write a checkpoint. Collective: all ranks call it after the same step. If a checkpoint cannot be written, rank 0
  // reports it, and the rank at fault says so on stderr. This is not an error, because training continues. If Write returns an
  // error, the run must end. The error is that of the communicator, or FailedPrecondition on every rank: a newer generation of
  // the job has begun, or another run's checkpoint is in the way.
  absl::Status Write(int64_t steps_done);

  bool under_way() const { return pending_ != 0; }
  // Collective; call it after each step. Does nothing if no checkpoint is in progress. Otherwise all ranks say whether their
  // shard is written. When all shards are written, Poll completes what Write began. It returns the same errors as Write.
  absl::Status Poll();

  // Writes a checkpoint while training waits. Returns true if the checkpoint is visible. If it cannot be written, reports this
  // and returns false. Otherwise like Write.
  absl::StatusOr<bool> WriteNow(int64_t steps_done);

  // Writes the checkpoint of the last step, which is the run's only result. The run waits for it. If it cannot be written,
  // WriteLast tries again until config.last_checkpoint_patience has passed, and then returns DataLoss on every rank. Otherwise
  // like Write.
  absl::Status WriteLast(int64_t steps_done);

 private:
  // Says why a checkpoint is not visible; OK if it is visible.
  struct Outcome {
    absl::Status failure;
  };
  CheckpointIdentity IdentityAt(int64_t steps_done) const;
  // Begins to write this rank's shard, if it writes one.
  void StartOwnShard(const CheckpointIdentity& identity);
  absl::Status FinishOwnShard(const CheckpointIdentity& identity);
  // Waits until all shards are written, then publishes or discards the checkpoint. Returns the same errors as Write.
  absl::StatusOr<Outcome> Conclude(const CheckpointIdentity& identity);
  // Concludes the checkpoint that is in progress, if there is one.
  absl::Status ConcludePending();
  // Returns true if the checkpoint is visible. If it is not visible, reports this and returns false.
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
  int64_t pending_ = 0;  // number of steps done, for the checkpoint in progress; 0: no checkpoint is in progress
};

}  // namespace lynx::worker

#endif  // LYNX_WORKER_RANK_STATES_CHECKPOINT_WRITER_H_
