// Resume: from which step a generation trains, and its states.
//
//   rank 0 claims the checkpoint directory -> looks for the job's checkpoints, newest first
//   all ranks load one -> all agree that it is whole; where it is not, the one before, and so on
//
// What the server knows to be published may be older than what is there: reports of the newest may have been lost
// with a machine. So the directory decides, and the server learns by a report. No generation begins afresh where
// there was a checkpoint: if none is whole, that is an error.
//
// What the nodes hold in memory (copy_resume.h) is newer as a rule; then the ranks go on from that, and the directory is only
// claimed. All ranks know what both have, so all choose the same.
//
// A job that has none, nor ever had, begins with what its checkpoint.from names, if it names anything: the newest whole
// checkpoint there, of whatever job.
//
// Collective; runs on the rank's compute thread.
#ifndef LYNX_WORKER_RANK_STATES_RESUME_H_
#define LYNX_WORKER_RANK_STATES_RESUME_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "worker/checkpoint/checkpoint.h"
#include "worker/contract/rank_config.h"
#include "worker/model/model_state.h"
#include "worker/rank/peers/agreement.h"
#include "worker/rank/records/report_file.h"
#include "worker/rank/states/copy_resume.h"

namespace lynx {

struct ResumePoint {
  int64_t steps_done = 0;
  bool from_copies = false;
};
// From `copies`, unless null, where these are newer than what is on disk. The number of steps done is 0 with `state` as it was
// or with weights of another run, or that of the checkpoint or the copies loaded into it. `run` is the job's identity, whatever
// its step. Errors: FailedPrecondition when a newer
// generation has begun, another job's checkpoint stands where this run will come to write one, or the run cannot
// begin with what checkpoint.from names; NotFound or DataLoss when there should be a checkpoint and none is whole
// (naming what is wrong with each); the communicator's; others as errno says.
absl::StatusOr<ResumePoint> LoadResumePoint(const RankConfig& config, const CheckpointIdentity& run, const Seat& seat,
                                            CopyResume* copies, ModelState& state, ReportFile& reports);

// The error of a generation that finds that a newer one has begun.
absl::Status ReplacedError(const RankConfig& config, const absl::Status& reason);

}  // namespace lynx

#endif  // LYNX_WORKER_RANK_STATES_RESUME_H_
