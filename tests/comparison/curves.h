// Computes step times of one model in one layout, for each recomputation policy and for several limits of the activation
// memory. Schedule (1F1B) and layout are fixed, so that only the policy differs. Each figure comes from a plan of its own
// (MakePlan), which is simulated action by action. Thread-safe.
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
// The number of microbatches of one replica in one step.
inline constexpr int32_t kMicrobatches = 16;

// The policies with which Lynx is compared. None of them recomputes anything inside a window, or runs passes side by side.
enum class Baseline : uint8_t {
  kMegatronFull,         // Megatron-LM's full recomputation of every layer
  kFullKeepCollectives,  // recomputes everything except the collectives
  kSelective,            // recomputes the attention core
  kBlock,                // recomputes the first N layers of each stage in full; N is the best number that fits
  kBalanced,             // recomputes norms and the activation function
  kNoOverlap,            // chooses for each tensor, layer and stage; has the least exposed time that fits
  kStoreAll,
};
inline constexpr int kBaselineCount = static_cast<int>(Baseline::kStoreAll) + 1;
const char* BaselineName(Baseline baseline);

struct Point {
  Bytes limit;                                                 // the limit for the activations of a rank
  double share = 0;                                            // the limit divided by the activations if everything is stored
  std::array<std::optional<Nanos>, kBaselineCount> baselines;  // step times; nullopt: the policy does not fit
  std::optional<Nanos> alone;                                  // step time with HEU, one pass at a time; nullopt: nothing fits
  std::optional<Nanos> halves;                                 // like `alone`, with twice as many microbatches of half the size
  // The shortest step time with HEU, if passes may run side by side and microbatches may have half the size. Two half
  // microbatches that run side by side need as much memory as one whole microbatch.
  std::optional<Nanos> lynx;

  std::optional<Nanos> Step(Baseline baseline) const { return baselines[static_cast<size_t>(baseline)]; }
  // Returns the fastest baseline. If several are equally fast, returns the one that comes last in the enum.
  std::optional<Baseline> Best() const;
  // True if something has to be recomputed, because storing everything does not fit.
  bool Tight() const { return !Step(Baseline::kStoreAll); }
  // Returns `step` divided by Lynx's step time, or 0 if one of the two does not fit.
  double SpeedupOver(std::optional<Nanos> step) const;
  // Returns `step` divided by the step time of HEU with one pass at a time (`alone`), or 0 if one of the two does not fit.
  double AloneOver(std::optional<Nanos> step) const;
  // Returns the step time of the fastest policy that runs one pass at a time: a baseline or HEU, with whole microbatches or
  // with halves.
  std::optional<Nanos> BestNotWoven() const;
};

struct Curve {
  Setting setting;
  Bytes stored;     // the activations of the fullest rank if everything is stored
  Bytes states;     // weights, gradients and optimizer states of the fullest rank
  Nanos unlimited;  // the step time if everything is stored, even if this does not fit
  // By ascending share. Points for which the device has no room in addition to the states are left out.
  std::vector<Point> points;
};

// Returns the memory limits of docs/comparison.md, as shares of the memory that the activations take if everything is stored.
const std::vector<double>& Shares();
// Returns the settings of docs/comparison.md, ordered by cluster, then model, then sequence length.
const std::vector<Setting>& Settings();

// `source_dir`: the root of the source tree, which has the cluster file. `shares` must ascend. Returns errors of reading the
// file and of MakePlan.
absl::StatusOr<Curve> CurveOf(const std::string& source_dir, const Setting& setting, const std::vector<double>& shares);

}  // namespace lynx::comparison

#endif  // LYNX_TESTS_COMPARISON_CURVES_H_
