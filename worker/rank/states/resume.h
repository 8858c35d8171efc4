// Resume: finds the step from which a generation trains, and loads its states.
//
//   rank 0 claims the checkpoint directory -> looks for the job's checkpoints, newest first
//   all ranks load one -> all agree that it is whole; if not, the previous one, and so on
//
// The newest checkpoint that the server knows may be older than the newest that exists, because reports may be lost with a
// machine. So the directory decides, and a report tells the server. No generation starts from the beginning if there was a
// checkpoint: if none is whole, that is an error.
//
// The in-memory checkpoint (copy_resume.h) is usually newer. Then the ranks resume from it, and only claim the directory. All
// ranks know what both have, so all choose the same.
//
// A job that has no checkpoint and never had one begins with the newest whole checkpoint that its checkpoint.from names, of any
// job, if that is set.
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

namespace lynx::worker {

struct ResumePoint {
  int64_t steps_done = 0;
  bool from_copies = false;
};
// Resumes from `copies`, unless null, if they are newer than the checkpoints on disk. Returns 0 steps done if `state` is
// unchanged or has weights of another run; otherwise the step of the checkpoint that was loaded into `state`. `run` is the
// job's identity; its step is not used.
//
// Errors: FailedPrecondition if a newer generation has begun, if another job's checkpoint is where this run will write one, or
// if the run cannot begin with what checkpoint.from names. NotFound or DataLoss if there should be a checkpoint but none is
// whole; the error names what is wrong with each. Other errors are the communicator's, or follow errno.
absl::StatusOr<ResumePoint> LoadResumePoint(const RankConfig& config, const CheckpointIdentity& run, const RankGroup& seat,
                                            CopyResume* copies, ModelState& state, ReportFile& reports);

// The error of a generation when it finds that a newer one has begun.
absl::Status ReplacedError(const RankConfig& config, const absl::Status& reason);

}  // namespace lynx::worker

#endif  // LYNX_WORKER_RANK_STATES_RESUME_H_
