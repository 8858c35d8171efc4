// Runs a plan as real rank processes over a RankNetwork, each rank on its own cores, and reports how its steps went.
#ifndef LYNX_BENCH_OVERLAP_TRAINING_RUN_H_
#define LYNX_BENCH_OVERLAP_TRAINING_RUN_H_

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "bench/overlap/rank_network.h"
#include "planner/plan/plan.h"
#include "worker/contract/rank_config.h"
#include "worker/contract/rank_report.h"

namespace lynx::bench {

struct RunSettings {
  std::string rank_binary;
  std::string folder;          // for configurations, reports and checkpoints; must exist
  std::vector<int32_t> cores;  // rank i is pinned to `cores_per_rank` of these, from cores[i * cores_per_rank % count] on
  int32_t cores_per_rank = 1;
  RankDevice device;         // every rank has this kind of device
  int64_t warmup_steps = 1;  // the first steps, which are left out of the reports
  // 0: the ranks do all steps of the job, and write its checkpoint. Above 0: each rank is killed after this number of steps, or
  // at the time limit if it has then done more than the warm-up steps. The job must have more steps. No checkpoint is written,
  // which for a large model takes longer than the steps.
  int64_t stop_after = 0;
  Nanos limit{300'000'000'000};
};

struct TrainingRun {
  std::vector<RankReady> ready;                // one entry for each rank
  std::vector<std::vector<StepReport>> steps;  // one list for each rank, without warm-up steps
  double foreign_share = 0;  // share of the machine's processor time during the run that was not used by the ranks
};

// Trains. Errors: the error of the first rank that fails, with the reason that it reported or the last line of its log;
// ResourceExhausted if the rank reported that memory was missing; DeadlineExceeded after settings.limit.
absl::StatusOr<TrainingRun> Train(const JobSpec& spec, const Plan& plan, const RankNetwork& network,
                                  const RunSettings& settings);

// Processor time in seconds. `machine`: used by all processes, plus what the hypervisor gave to other machines. `own`: used by
// this process and its ended children.
struct ProcessorTime {
  double machine = 0, own = 0;
};
ProcessorTime ProcessorTimeNow();

// Measures how much of the machine other processes use, from its construction on.
class ForeignLoad {
 public:
  ForeignLoad();
  // Share of the machine's processor time that neither this process nor its children used. Children that have not ended count
  // as others.
  double Share() const;

 private:
  const ProcessorTime before_;
  const std::chrono::steady_clock::time_point begin_;
};

}  // namespace lynx::bench

#endif  // LYNX_BENCH_OVERLAP_TRAINING_RUN_H_
