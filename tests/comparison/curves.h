// Steps of one model in one layout, under each recomputation policy, over limits for the activation memory. Schedule and
// layout are fixed (1F1B), so that only the policy differs. Each figure is a plan of its own (MakePlan), simulated action
// by action. Thread-safe.
#ifndef LYNX_TESTS_COMPARISON_CURVES_H_
#define LYNX_TESTS_COMPARISON_CURVES_H_

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "planner/plan/plan.h"

namespace lynx::comparison {

struct Setting {
  std::string cluster;  // a file's name in examples/clusters, without its extension
  std::string model;    // a preset
  int32_t seq = 0;
  int32_t tp = 1, pp = 1;
  int32_t micro_batch = 1;
};
// The microbatches of one replica in one step.
inline constexpr int32_t kMicrobatches = 16;

// What Lynx is compared with: nothing here makes anything again inside a window.
enum class Baseline : uint8_t {
  kMegatronFull,         // Megatron-LM's full recomputation of every layer
  kFullKeepCollectives,  // all but the collectives
  kSelective,            // the attention core
  kBlock,                // the first N layers of each stage in full, N the best that fits
  kBalanced,             // norms and activation function
  kNoOverlap,            // per tensor, layer and stage: the least exposed time that fits
  kStoreAll,
};
inline constexpr int kBaselineCount = static_cast<int>(Baseline::kStoreAll) + 1;
const char* BaselineName(Baseline baseline);

struct Point {
  Bytes limit;                                                 // of a rank's activations
  double share = 0;                                            // of what storing everything takes
  std::array<std::optional<Nanos>, kBaselineCount> baselines;  // step; nullopt: does not fit
  std::optional<Nanos> lynx;                                   // HEU's step

  std::optional<Nanos> Step(Baseline baseline) const { return baselines[static_cast<size_t>(baseline)]; }
  // The fastest of all; of equal ones the last, which is the simplest.
  std::optional<Baseline> Best() const;
  // Whether anything has to be recomputed: storing everything does not fit.
  bool Tight() const { return !Step(Baseline::kStoreAll); }
  // How many times as fast Lynx is; 0 where either does not fit.
  double SpeedupOver(std::optional<Nanos> step) const;
};

struct Curve {
  Setting setting;
  Bytes stored;               // what storing everything takes, on the fullest rank
  Bytes states;               // weights, gradients and optimizer states there
  Nanos unlimited;            // step with everything stored, as if it fitted
  std::vector<Point> points;  // by ascending share; without those that the device has no room for beside the states
};

// Shares of what storing everything takes at which docs/comparison.md looks.
const std::vector<double>& Shares();
// The settings of docs/comparison.md: by cluster, then by model, then by sequence length.
const std::vector<Setting>& Settings();

// `source_dir`: the root of the source tree, for the cluster file. Errors as of reading it and of MakePlan.
// `shares` ascend.
absl::StatusOr<Curve> CurveOf(const std::string& source_dir, const Setting& setting, const std::vector<double>& shares);

}  // namespace lynx::comparison

#endif  // LYNX_TESTS_COMPARISON_CURVES_H_
