// Scores the planner's predictions of published runs, source by source: how many runs it can express, and how far its times and
// its memory are from the measured ones. Pure, apart from reading the cluster files; not thread-safe.
#ifndef LYNX_TESTS_VALIDATION_SCORE_H_
#define LYNX_TESTS_VALIDATION_SCORE_H_

#include <array>
#include <map>
#include <string>
#include <vector>

#include "planner/frameworks/memory_estimate.h"
#include "tests/validation/published_run.h"

namespace lynx::validation {

// What the planner predicts of one run. 0: not measured or not predicted.
struct Prediction {
  const RunOfFramework* run = nullptr;
  double step_seconds = 0;
  double memory_bytes = 0;
  double device_memory_bytes = 0;  // memory of the device for a job; 0 without a cluster file

  // Predicted by measured, minus 1. Only if both are known.
  double TimeError() const { return step_seconds / run->step_seconds - 1; }
  double MemoryError() const { return memory_bytes / run->memory_bytes - 1; }
  bool has_time() const { return step_seconds > 0 && run->step_seconds > 0; }
  bool has_memory() const { return memory_bytes > 0 && run->memory_bytes > 0; }
};

// Errors of one kind, as shares: 0.1 is 10%.
struct Errors {
  int32_t runs = 0;
  double median = 0;     // signed
  double mean = 0;       // the mean of the absolute errors
  double ninetieth = 0;  // 90% of the absolute errors are at most this
};
Errors ErrorsOf(std::vector<double> errors);

struct SourceScore {
  std::string source;
  int32_t runs = 0;
  int32_t expressed = 0;  // runs whose time or memory is predicted
  std::array<int32_t, kObstacleCount> obstacles{};
  Errors time, held_back_time;  // held_back_time: only runs to which no constant may be fitted
  Errors memory;
  int32_t false_overflows = 0;  // runs that say whether they recomputed, and ran, but do not fit by the prediction
};

// How the choice among the published layouts of one model does: the measured step of the layout that is predicted to be the
// fastest, divided by the shortest measured step, minus 1.
struct Choice {
  std::string source;
  int32_t groups = 0;  // number of groups of at least two runs that differ only in layout, micro-batch and recomputation
  double mean_regret = 0;
  double worst_regret = 0;
};

// A constant of planner/frameworks/framework.cc, or of the machine that a publication describes, that is fitted to the runs of
// one source. Every second run of the source is fitted to; the others only test the constant.
struct FittedConstant {
  const char* name;
  const char* source;
  int32_t FrameworkTraits::*trait;
  int32_t value;  // the value that was used for the runs
  int32_t step;   // every value is a multiple of `step`
};
const std::vector<FittedConstant>& FittedConstants();

class Scoreboard {
 public:
  // `source_dir` has tests/validation/reference and examples/clusters. Stops the program if they cannot be read.
  explicit Scoreboard(const std::string& source_dir);

  const std::vector<RunOfFramework>& runs() const { return runs_; }
  Prediction Predict(const RunOfFramework& run);
  // The value, of ten multiples of the constant's step on either side of it, with the least mean absolute error of the times of
  // the runs that it is fitted to.
  int32_t Refit(const FittedConstant& constant);
  std::vector<Prediction> PredictAll();

 private:
  const HardwareProfile& ProfileFor(const RunOfFramework& run);

  std::string source_dir_;
  std::vector<RunOfFramework> runs_;
  std::map<std::string, HardwareProfile> profiles_;
  std::map<std::string, double> memory_of_;    // for each cluster: bytes of a device for a job
  std::map<std::string, int32_t> devices_of_;  // for each cluster: devices of a node
};

// In the order in which sources first appear.
std::vector<SourceScore> ScoreBySource(const std::vector<Prediction>& predictions);
std::vector<Choice> ChoicesBySource(const std::vector<Prediction>& predictions);
// The tables of docs/validation.md.
std::string ErrorTable(const std::vector<Prediction>& predictions);
std::string ChoiceTable(const std::vector<Prediction>& predictions);

}  // namespace lynx::validation

#endif  // LYNX_TESTS_VALIDATION_SCORE_H_
