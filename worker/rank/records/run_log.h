// RunLog writes the figures of a run's steps to files beside its checkpoints, for people and their tools:
//
//   DIRECTORY/metrics-JOB/metrics.csv               step,loss,learning_rate,gradient_norm,validation_loss
//   DIRECTORY/metrics-JOB/events.out.tfevents.*     the same for TensorBoard, a file for each generation
//
// Each line is about one step, and begins with the number of steps done. It has a validation loss if the model was evaluated
// after this step. The CSV file preserves numbers exactly. A generation that resumes continues the file after the step from
// which it resumes. It removes later lines of earlier generations, so the file has one line for each step.
//
// Training never waits for these files and never ends because of them. If they cannot be written, one message on stderr says
// so, and nothing more is written to them. The compute thread of rank 0 owns the RunLog.
#ifndef LYNX_WORKER_RANK_RECORDS_RUN_LOG_H_
#define LYNX_WORKER_RANK_RECORDS_RUN_LOG_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "common/clock.h"
#include "worker/contract/rank_config.h"
#include "worker/contract/rank_report.h"

namespace lynx::worker {

// Returns the folder of a job's log.
std::string RunLogPath(const std::string& checkpoint_directory, const JobId& job);

class RunLog {
 public:
  // Opens the files for a generation that begins after `first` steps.
  RunLog(const RankConfig& config, int64_t first, const Clock& clock);
  ~RunLog();
  RunLog(const RunLog&) = delete;
  RunLog& operator=(const RunLog&) = delete;

  void Add(const StepReport& step, const std::optional<EvaluationReport>& evaluation);

 private:
  absl::Status Open(const RankConfig& config, int64_t first);
  // Closes the files after an error, and writes the reason to stderr.
  void GiveUp(const absl::Status& reason);

  const Clock& clock_;
  std::string folder_;
  int csv_fd_ = -1;        // -1: closed
  int64_t csv_bytes_ = 0;  // bytes of whole lines
  int events_fd_ = -1;
};

}  // namespace lynx::worker

#endif  // LYNX_WORKER_RANK_RECORDS_RUN_LOG_H_
