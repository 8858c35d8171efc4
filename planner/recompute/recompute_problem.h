// RecomputeProblem describes, as plain numbers, what one pipeline stage can store, recompute and offload. It does not depend on
// a model family: an *item* is a recomputable tensor of a layer, described by its bytes, times and readers. HEU (stage_heu.h)
// and OPT (opt/stage_opt.h) solve the problem. EvaluateStage computes the value of a policy, independently of both.
// docs/formulation.md derives the problem.
//
// A stage has `layers` identical layers, numbered from the bottom; the last one is its *top* layer. All times are for one
// microbatch in the steady state. While a microbatch passes through one layer, there are these *moments*, in this order:
//
//   f1 .. fF        windows of the layer's own forward pass, of the microbatch whose forward runs just before this backward
//   stall           the wait for the gradient from the next stage
//   b1 .. bW        windows of the backward pass of the layer above; the top layer has none
//   c0 s0 o1 c1 s1 o2 ... cW sW    the layer's own backward pass: s0 .. sW are its segments, o1 .. oW the windows between
//                   them, and c0 .. cW the critical path just before each segment. Phase k consists of ok, ck and sk
//
// The work that recomputes an item runs at one moment; the item's inputs must be stored, offloaded, or recomputed no later.
// Items are in topological order, and items of the same moment are recomputed in this order. A critical item is recomputed at
// the latest possible moment c: before the first segment that reads the item, and before or together with every recomputation
// that reads the item.
//
// Time. A window or the stall hides work up to its capacity. Work beyond the capacity is exposed, and so is the work for
// critical items. Window bk of layer l is the same window as ok of layer l + 1, so the two layers share its capacity. All
// layers of the stage share the stall. The top layer has one exception: its critical work at c0, as far as this comes before
// the first item that repeats a collective, is hidden up to the time `early`.
//
// Memory. Held memory is the stored bytes of all microbatches in flight, and what forward windows and the stall recompute (for
// one microbatch of the whole stage). Transient memory is what is recomputed during the backward pass: the sum over two
// neighbouring layers, in the phase in which this sum is largest. In phase k of layer l, the sum has two parts. First, the
// items that layer l has recomputed by then, if they are recomputed in phase k, or if a segment from sk on or a recomputation
// in phase k or later reads them. Second, the items that layer l - 1 has recomputed in b1 .. bk.
//
// Offloading. An offloaded item is available at every moment, like a stored item. It takes host memory for every microbatch in
// flight, device memory for `resident` of these microbatches (those that are being copied), and time in both copy directions.
// If the copy time of a direction exceeds its capacity, the excess is exposed. The two directions run at the same time.
//
// In this file, the index of a LayerPolicy is the item. An item that no segment and no recomputation reads is treated as if it
// did not exist: its placement must be kStore, and it takes no memory and no time.
//
// Pure values; thread-safe.
#ifndef LYNX_PLANNER_RECOMPUTE_RECOMPUTE_PROBLEM_H_
#define LYNX_PLANNER_RECOMPUTE_RECOMPUTE_PROBLEM_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/units.h"
#include "planner/recompute/recompute_policy.h"

namespace lynx {

inline constexpr int kMaxItems = kMaxRecomputable;
inline constexpr int kMaxPhases = kMaxWindows + 1;

using ItemSet = uint16_t;       // bit i: item i
using SegmentSet = uint8_t;     // bit k: backward segment k
using PlacementSet = uint16_t;  // bit p: Placement p

// Limits for the numbers of a problem. They keep sums over a stage far below the limit of 64 bits.
inline constexpr Bytes kMaxItem{int64_t{1} << 36};
inline constexpr Bytes kMaxBudget{int64_t{1} << 62};
inline constexpr Nanos kMaxWork{int64_t{1} << 44};  // 4.9 hours
inline constexpr int32_t kMaxProblemLayers = 1 << 10;
inline constexpr int32_t kMaxInFlight = 1 << 12;

constexpr PlacementSet BitOf(Placement placement) { return static_cast<PlacementSet>(1 << static_cast<int>(placement)); }
constexpr bool Contains(PlacementSet set, Placement placement) { return (set & BitOf(placement)) != 0; }
inline constexpr PlacementSet kAnyPlacement = 0xffff;
constexpr int IndexOf(Placement placement, Placement first) { return static_cast<int>(placement) - static_cast<int>(first); }

struct RecomputeItem {
  Bytes bytes;              // bytes of one microbatch
  Nanos cost;               // time to recompute only this item, including the collective that this repeats
  ItemSet inputs = 0;       // earlier items that the recomputation of this item reads
  SegmentSet read_by = 0;   // backward segments that read this item, for the gradient of the input or of the weights
  bool collective = false;  // recomputing this item repeats a collective, so this cannot run in the window of another
                            // collective
  PlacementSet allowed = kAnyPlacement;  // allowed placements; kStore is always allowed
  Nanos copy_out, copy_in;               // time of the item's copy to the host and back, if no other copy runs

  auto operator<=>(const RecomputeItem&) const = default;
};

struct RecomputeProblem {
  std::vector<RecomputeItem> items;  // items of one layer, in topological order; at most kMaxItems
  // Time for recomputation in each window of a layer's forward and backward pass: the length of the window, minus the time of
  // the work that runs there in any case, and minus what contention costs. 0: there is no such window. The number of segments
  // is the size of `backward` plus one.
  std::vector<Nanos> forward, backward;
  Nanos stall;  // capacity of the stall for the whole stage; 0: no stall
  Nanos early;  // time of the top layer's critical work at c0 that is hidden
  int32_t layers = 1;
  int32_t in_flight = 1;  // microbatches in flight
  Bytes budget;           // limit for held and transient memory together

  int32_t resident = 2;     // maximum number of microbatches of an offloaded item that are on the device
  Nanos copy_out, copy_in;  // for each direction, the copy time of the whole stage that can be hidden
  Bytes host_budget;        // host memory for the whole stage; 0: nothing can be offloaded

  int segments() const { return static_cast<int>(backward.size()) + 1; }
  auto operator<=>(const RecomputeProblem&) const = default;
};

// Returns InvalidArgument with the field if the problem is not valid. It is valid if everything is within the limits above,
// nothing is negative, layers, in_flight and resident are at least 1, inputs come before their readers, and the segments that
// read items exist.
absl::Status ValidateProblem(const RecomputeProblem& problem);

// The place of a layer in its stage: kTop for the last layer, kInner for a layer that has another layer of the stage above it.
enum class LayerPlace : uint8_t { kInner, kTop };
constexpr LayerPlace PlaceOf(size_t layer, size_t layers) {
  return layer + 1 == layers ? LayerPlace::kTop : LayerPlace::kInner;
}
// Returns the placements that `item` can have. kStore is one of them. Any other placement must meet these conditions: it is
// allowed, its window exists, an item with a collective is not in a window, an own window lies before all segments that read
// the item, and there is host memory for offloading.
PlacementSet PossiblePlacements(const RecomputeProblem& problem, int item, LayerPlace place);

// What one layer uses of the resources that it shares with other layers. The index of an array is the window or the phase.
struct LayerUse {
  Bytes held;
  std::array<Bytes, kMaxPhases> live{};   // transient memory of this layer's results in each phase of this layer
  std::array<Bytes, kMaxPhases> above{};  // transient memory of this layer's results in each phase of the layer above
  std::array<Nanos, kMaxWindows> above_work{}, own_work{};
  Nanos stall;
  Nanos exposed;  // time on the critical path, and time of work that does not fit into the forward windows
  Nanos early;    // only for the top layer: the part of the critical time at c0 that comes before the first collective
  Nanos copy_out, copy_in;
  Bytes host;

  auto operator<=>(const LayerUse&) const = default;
};

// Returns what the layer uses. Returns InvalidArgument with item and rule if the policy breaks a rule.
absl::StatusOr<LayerUse> UseOf(const RecomputeProblem& problem, const LayerPolicy& policy, LayerPlace place);

struct StageValue {
  Bytes held;
  Bytes transient;
  Bytes host;
  Nanos exposed;  // per microbatch

  Bytes bytes() const { return held + transient; }
  auto operator<=>(const StageValue&) const = default;
};

// Returns the value of a stage. `layers` has what each layer uses, from the bottom to the top, and must not be empty.
StageValue Combine(const RecomputeProblem& problem, const std::vector<LayerUse>& layers);

// Returns the value of a policy, or InvalidArgument with layer, item and rule if the policy breaks a rule. The function does
// not check budgets; see Fits.
absl::StatusOr<StageValue> EvaluateStage(const RecomputeProblem& problem, const StagePolicy& policy);

bool Fits(const RecomputeProblem& problem, const StageValue& value);
// True if `a` is better than `b`: less exposed time; if this is equal, less device memory; if this is equal, too, less host
// memory.
bool Better(const StageValue& a, const StageValue& b);

}  // namespace lynx

#endif  // LYNX_PLANNER_RECOMPUTE_RECOMPUTE_PROBLEM_H_
