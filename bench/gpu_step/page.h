// The results of gpu_step_bench, as a Markdown page and as JSON. Pure.
#ifndef LYNX_BENCH_GPU_STEP_PAGE_H_
#define LYNX_BENCH_GPU_STEP_PAGE_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "bench/gpu_step/device.h"
#include "bench/gpu_step/models.h"
#include "bench/overlap/report.h"
#include "common/units.h"
#include "worker/contract/measurement.h"
#include "worker/contract/rank_report.h"

namespace lynx::bench {

// A pass of an op, as the agent measures it.
struct OpRow {
  std::string op, pass;
  int64_t runs = 0;  // number of runs in a step that recomputes nothing
  Nanos time;        // the time of one run
  int64_t flops = 0;
  Bytes bytes;
};

// The planner's predictions for a case of Lynx.
struct Predicted {
  Nanos step;
  StepParts parts;
  Bytes arena, states;
};

// One row of a model's tables: Lynx with a recomputation policy, or PyTorch.
struct CaseResult {
  std::string name;
  // Why there are no figures, or no further ones. left_out: this is not a failure (too little time or memory, or a missing
  // program).
  std::string error;
  bool left_out = false;
  std::vector<double> round_ms;      // the median of each round's steps
  std::vector<double> step_ms;       // the times of the steps of all rounds
  std::optional<Bytes> device_peak;  // the largest use of the device's memory
  // Lynx only:
  std::optional<Predicted> predicted;
  std::vector<StepReport> steps;
  std::optional<RankReady> ready;
};

struct ModelResult {
  BenchModel model;
  std::string error;  // why the device could not be measured with the model's shape
  MeasureResult rates;
  std::string ops_error;  // why `ops` is empty
  std::vector<OpRow> ops;
  Nanos optimizer;  // its time in a step, scaled from the time for the number of parameters that was measured
  std::vector<CaseResult> cases;
};

struct StepBenchResult {
  std::string command, date;
  agent::NodeDevice device;
  std::string driver;
  std::optional<StatedPeak> peak;
  int32_t rounds = 0, steps = 0, warmup = 0;
  double foreign_share = 0;  // the largest share of all runs of Lynx
  double seconds = 0;        // duration of the whole run
  std::vector<ModelResult> models;
};

std::string Page(const StepBenchResult& result);
std::string Json(const StepBenchResult& result);

}  // namespace lynx::bench

#endif  // LYNX_BENCH_GPU_STEP_PAGE_H_
