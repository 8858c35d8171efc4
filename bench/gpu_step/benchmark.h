// Trains models on one device under several recomputation policies, and beside PyTorch, in turn and in several rounds, until
// the rounds are done or the time is over. Every case is a process of its own. A case that fails does not end the others.
#ifndef LYNX_BENCH_GPU_STEP_BENCHMARK_H_
#define LYNX_BENCH_GPU_STEP_BENCHMARK_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "bench/gpu_step/device.h"
#include "bench/gpu_step/page.h"
#include "bench/overlap/rank_network.h"
#include "planner/plan/plan.h"

namespace lynx::bench {

struct StepBenchOptions {
  std::string rank_binary;
  std::string folder;  // for files of the run; must exist
  // Called before a program is started in the folder. It does not return once the benchmark is to end.
  std::function<void()> may_start = [] {};
  std::string data;  // a text file to train on
  std::string python;
  std::string pytorch;  // PyTorch's side; "" = without it
  int32_t rounds = 3, steps = 10, warmup = 3;
  std::vector<int32_t> limit_percents = {110, 200};  // limits for activations, in percent of what full recomputation needs
  double budget_seconds = 0;                         // seconds for everything; 0: no limit
  double case_seconds = 120;                         // seconds of a case in a round, and to measure the device for a model
  double measure_seconds = 10;                       // after this number of seconds no further op is measured
};

class StepBenchmark {
 public:
  // The device and the network must outlive the object. `began`: the beginning of the budget.
  StepBenchmark(StepBenchOptions options, const BenchDevice& device, const RankNetwork& network,
                std::chrono::steady_clock::time_point began)
      : options_(std::move(options)), device_(device), network_(network), began_(began) {}

  // Fills `result`, which has the models already. `progress` is called after each case.
  void Run(StepBenchResult& result, const std::function<void()>& progress);

 private:
  // What a model's cases need: `plans` has one entry for each case; nullopt: the case is PyTorch, or has no plan.
  struct Work {
    JobSpec spec;
    std::vector<std::optional<Plan>> plans;
  };

  Work Prepare(ModelResult& model);
  absl::StatusOr<MeasureResult> MeasureShapes(const std::vector<LayerShape>& shapes) const;
  absl::Status Measure(const JobSpec& spec, ModelResult& model) const;
  absl::StatusOr<PlanResult> PlanOf(const JobSpec& spec, RecomputeMode mode, Bytes limit, const ModelResult& model) const;
  void MakePlans(Work& work, ModelResult& model) const;
  void RunCase(const Work& work, size_t index, ModelResult& model, StepBenchResult& result);
  absl::Status RunLynx(const JobSpec& spec, const Plan& plan, Nanos limit, CaseResult& row, StepBenchResult& result);
  absl::Status RunPytorch(const BenchModel& model, bool compile, Nanos limit, CaseResult& row) const;
  double SecondsSinceBegin() const;
  bool OutOfTime() const;
  Nanos LimitNow() const;  // the time limit of the next case

  const StepBenchOptions options_;
  const BenchDevice& device_;
  const RankNetwork& network_;
  const std::chrono::steady_clock::time_point began_;
};

}  // namespace lynx::bench

#endif  // LYNX_BENCH_GPU_STEP_BENCHMARK_H_
