// Resume finds the step after which a generation continues to train, and loads the states of that step.
//
//   rank 0 claims the checkpoint directory -> looks for the job's checkpoints, newest first
//   all ranks load one -> all agree that it is whole; if not, the previous one, and so on
//
// The newest checkpoint that the server knows may be older than the newest that exists, because reports can be lost with a
// machine. So the directory decides, and a report tells the server which checkpoint was found. If there was a checkpoint, no
// generation starts from the beginning: if no checkpoint is whole, this is an error.
//
// The newest in-memory checkpoint (copy_resume.h) is usually newer than the newest on disk. Then the ranks resume from it and
// load nothing from disk. Rank 0 still claims the directory and looks for the checkpoints there. All ranks know what is in
// memory and on disk, so all choose the same checkpoint.
//
// If the job never had a checkpoint and checkpoint.from is set, the job begins with the newest whole checkpoint that
// checkpoint.from names. This checkpoint may be of any job.
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
// Resumes from `copies` if they are not null and newer than the checkpoints on disk. Returns the step of the checkpoint that
// was loaded into `state`. Returns 0 steps if `state` is unchanged, or if only the weights of another run were loaded. `run` is
// the job's identity; its step is not used.
//
// FailedPrecondition: a newer generation has begun, another job's checkpoint is where this run will write one, or the run
// cannot begin with the checkpoint that checkpoint.from names. NotFound or DataLoss: there should be a checkpoint, but none is
// whole; the error says for each what is wrong. Other errors are those of the communicator, or follow errno.
absl::StatusOr<ResumePoint> LoadResumePoint(const RankConfig& config, const CheckpointIdentity& run, const RankGroup& group,
                                            CopyResume* copies, ModelState& state, ReportFile& reports);

// Returns the error of a generation that finds that a newer generation has begun.
absl::Status ReplacedError(const RankConfig& config, const absl::Status& reason);

}  // namespace lynx::worker

#endif  // LYNX_WORKER_RANK_STATES_RESUME_H_
