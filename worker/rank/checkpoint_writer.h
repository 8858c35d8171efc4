// CheckpointWriter: one checkpoint over all ranks. Every dp-0 rank writes its shard; all ranks agree that every shard
// is durable; rank 0 verifies and publishes; all ranks agree on the outcome. So either every rank goes on knowing
// that the checkpoint is visible, or every rank goes on without it.
//
// Owned by the rank's compute thread; borrows what it is given.
#ifndef LYNX_WORKER_RANK_CHECKPOINT_WRITER_H_
#define LYNX_WORKER_RANK_CHECKPOINT_WRITER_H_

#include <cstdint>

#include "absl/status/status.h"
#include "worker/checkpoint/checkpoint.h"
#include "worker/collectives/communicator.h"
#include "worker/model/model_state.h"
#include "worker/rank/report_file.h"
#include "worker/rank_config.h"

namespace lynx {

class CheckpointWriter {
 public:
  CheckpointWriter(const RankConfig& config, Communicator& communicator, ModelState& state, ReportFile& reports);

  // Collective: every rank calls it after the same step. A checkpoint that cannot be written is reported by rank 0
  // and named on the stderr of the rank at fault, and is no error: training goes on. An error, the same on every
  // rank, means that the run must end: the communicator's, or FailedPrecondition when a newer generation of the job
  // has written this step.
  absl::Status Write(int64_t steps_done);

 private:
  // Writes this rank's shard, if it has one to write.
  absl::Status WriteOwnShard(const CheckpointIdentity& identity);
  // On rank 0: makes the checkpoint visible and reports it.
  absl::Status Publish(const CheckpointIdentity& identity);
  // On rank 0: forgets the attempt and reports why.
  void GiveUp(const CheckpointIdentity& identity, const absl::Status& reason);

  const RankConfig& config_;
  const RankCoordinates coordinates_;
  Communicator& communicator_;
  ModelState& state_;
  ReportFile& reports_;
};

}  // namespace lynx

#endif  // LYNX_WORKER_RANK_CHECKPOINT_WRITER_H_
