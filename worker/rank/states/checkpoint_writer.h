// CheckpointWriter: one checkpoint over all ranks. Every rank that has a shard writes and verifies it, beside the steps
// that follow (shard_writer.h); when all have, after whichever step, all ranks agree that every shard is durable; rank 0
// publishes, reports, and only then removes older checkpoints; all ranks agree on the outcome. So either every rank goes
// on knowing that the checkpoint is visible, or every rank goes on without it.
//
//   Write (copies the states) -> step, Poll -> step, Poll: all have written -> agreed and published
//
// One checkpoint is under way at a time: a Write that comes earlier waits for it.
//
// Owned by the rank's compute thread; borrows what it is given.
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

namespace lynx {

// Whether a run writes a checkpoint when so many steps are done.
bool WritesCheckpoint(const JobSpec& spec, int64_t steps_done);

class CheckpointWriter {
 public:
  // `run`: the job's identity, whatever its step.
  CheckpointWriter(const RankConfig& config, const CheckpointIdentity& run, const Seat& seat, ModelState& state,
                   ReportFile& reports);

  // Collective: every rank calls it after any one step, the same on all. A checkpoint that cannot be written is
  // reported by rank 0 and named on the stderr of the rank at fault, and is no error: training goes on. An error
  // means that the run must end: the communicator's, or, on every rank, FailedPrecondition when a newer generation of
  // the job has begun or another run's checkpoint stands in the way.
  absl::Status Write(int64_t steps_done);

  bool under_way() const { return pending_ != 0; }
  // Collective, after each step: nothing while no checkpoint is under way. Else all ranks say whether their shard is
  // written, and the last of them brings about what Write is for; errors as there.
  absl::Status Poll();

  // As Write, but not beside anything: returns when the checkpoint is visible (true) or cannot be written (false, reported).
  absl::StatusOr<bool> WriteNow(int64_t steps_done);

  // As Write after the last step, whose checkpoint is all that the run leaves: not beside anything, and it tries again until
  // config.last_checkpoint_patience has passed, and is then an error on every rank, DataLoss.
  absl::Status WriteLast(int64_t steps_done);

 private:
  // Why a checkpoint is not visible; OK: it is.
  struct Outcome {
    absl::Status failure;
  };
  CheckpointIdentity IdentityAt(int64_t steps_done) const;
  // Begins to write this rank's shard, if it has one to write.
  void StartOwnShard(const CheckpointIdentity& identity);
  absl::Status FinishOwnShard(const CheckpointIdentity& identity);
  // All that follows the writing of the shards, which it waits for. Errors are those of Write.
  absl::StatusOr<Outcome> Conclude(const CheckpointIdentity& identity);
  // Of the checkpoint that is under way, if one is.
  absl::Status ConcludePending();
  // Whether the checkpoint is visible; if not, that is reported.
  absl::StatusOr<bool> ConcludeAt(int64_t steps_done);
  // On rank 0: makes the checkpoint visible, reports it, removes older ones.
  absl::Status Publish(const CheckpointIdentity& identity);
  // On rank 0.
  void Report(int64_t steps_done, const absl::Status& failure);

  const RankConfig& config_;
  const CheckpointIdentity run_;
  const Seat seat_;
  const RankCoordinates coordinates_;
  ModelState& state_;
  ReportFile& reports_;
  ShardWriter shard_;
  int64_t pending_ = 0;  // steps done, of the checkpoint that is under way; 0: none is
};

}  // namespace lynx

#endif  // LYNX_WORKER_RANK_STATES_CHECKPOINT_WRITER_H_
