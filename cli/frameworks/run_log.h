// Reads what a training framework logs of its steps: their times, and the memory of the ranks.
//
// Megatron-LM (megatron/training/training.py): "iteration 10/ 100 | ... | elapsed time per iteration (ms): 1234.5 | ...", and
// "[Rank 0] (after 2 iterations) memory (MB) | allocated: ... | max allocated: ...", in units of 2^20 bytes. NeMo:
// "global_step: 10 | ... train_step_timing in s: 1.23" or "global_step=10.0, ... train_step_timing in s=1.23". Pure;
// thread-safe.
#ifndef LYNX_CLI_FRAMEWORKS_RUN_LOG_H_
#define LYNX_CLI_FRAMEWORKS_RUN_LOG_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "cli/frameworks/imported_run.h"
#include "common/units.h"

namespace lynx::cli {

struct LoggedStep {
  int64_t step = 0;
  Nanos time;
  int64_t batch = 0;  // samples; 0 = the log does not say
  double tflops = 0;  // the framework's own figure for one device; 0 = the log does not say
};

struct RunLog {
  // The steps with the last batch size, in the log's order; one for each logged step, or for each logged group of steps.
  std::vector<LoggedStep> steps;
  size_t other_batches = 0;  // steps that were left out because of another batch size, as when a run increases it
  Bytes most_allocated;      // the largest memory that a rank has allocated (torchtitan: reserved); 0 = not in the log
  double tflops = 0;         // the median of the steps that TimesOf uses; 0 = the log does not say
  int64_t global_batch = 0;  // samples of a step as the log says; 0 = the log does not say
};

// Reads the log of the run. `file` is for errors. InvalidArgument: no line of it has the time of a step, or the framework's
// logs are not read.
absl::StatusOr<RunLog> ReadRunLog(const ImportedRun& run, const std::string& text, const std::string& file);

// The times of steps without those at the beginning, which start libraries and fill caches: the first two, if there are more
// than four, else the first, if there are more than one. The median of an even count is between the two middle times.
struct StepTimes {
  Nanos median, shortest, longest;
  size_t count = 0;
  int64_t first = 0, last = 0;  // numbers of the steps
};
StepTimes TimesOf(const RunLog& log);

}  // namespace lynx::cli

#endif  // LYNX_CLI_FRAMEWORKS_RUN_LOG_H_
