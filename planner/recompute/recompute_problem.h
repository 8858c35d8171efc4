// RecomputeProblem: what to store, recompute and offload in one pipeline stage, as numbers alone. It knows no model
// family: an *item* is a recomputable tensor of a layer, reduced to bytes, times and who reads it. HEU (stage_heu.h)
// and OPT (opt/stage_opt.h) solve it; EvaluateStage says what a policy is worth, independently of both.
// docs/formulation.md derives it.
//
// A stage has `layers` identical layers, numbered from the bottom; the last one is its *top* layer. The unit of time is
// one microbatch in the steady state. For one layer it passes through these *moments*, in this order:
//
//   f1 .. fF        windows of the layer's own forward, of the microbatch whose forward runs just before
//   stall           before the wait for the gradient from the next stage
//   b1 .. bW        windows of the backward of the layer above; the top layer has none
//   c0 s0 o1 c1 s1 o2 ... cW sW    the layer's own backward: segments s0 .. sW with a window between each two. o1 .. oW
//                   are those windows, c0 .. cW the critical path just before each segment. A *phase* k is ok ck sk
//
// What makes an item again runs at one moment; its inputs are stored, offloaded, or made no later. Item order is a
// topological order, and within a moment items are made in that order. A critical item is made as late as its readers
// allow: before the first segment that reads it, or at the latest c that precedes all recomputation that reads it.
//
// Time. A window or the stall hides work up to its capacity; what exceeds it is exposed, as are critical items. Window
// bk of layer l is window ok of layer l + 1: they share its capacity. The stall is shared by all layers of the stage.
// The top layer's critical work at c0 is hidden up to `early`, as far as no item of it repeats a collective.
//
// Memory. held: the stored bytes of all microbatches in flight, and what forward windows and the stall make (one
// microbatch of the whole stage). Transient: what is made during the backward pass, over two neighbouring layers at
// their worst phase. In phase k of layer l that is what layer l has made by then, if it is new in k or a segment from
// sk on or recomputation in phase k or later reads it; and what layer l - 1 has made in b1 .. bk.
//
// Offloading. An offloaded item is there at every moment, as if stored. It takes host memory for every microbatch in
// flight, device memory for `resident` of them (those on their way), and time on both copy directions. What exceeds a
// direction's capacity is exposed; the two directions run at once.
//
// A LayerPolicy is indexed by item here. An item that no segment and no recomputation reads does not exist: it is kStore
// and takes nothing.
//
// Pure values; thread-safe.
#ifndef LYNX_PLANNER_RECOMPUTE_RECOMPUTE_PROBLEM_H_
#define LYNX_PLANNER_RECOMPUTE_RECOMPUTE_PROBLEM_H_

#include <array>
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

// Limits of a problem's numbers: sums over a stage stay far within 64 bits.
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
  Bytes bytes;                           // of one microbatch
  Nanos cost;                            // to make it again alone, its collective included
  ItemSet inputs = 0;                    // items before it that making it again reads
  SegmentSet read_by = 0;                // backward segments that read it, for the input or the weight gradient
  bool collective = false;               // making it again repeats a collective: never in a window of another one
  PlacementSet allowed = kAnyPlacement;  // besides kStore, which always is
  Nanos copy_out, copy_in;               // to the host and back, alone

  auto operator<=>(const RecomputeItem&) const = default;
};

struct RecomputeProblem {
  std::vector<RecomputeItem> items;  // of one layer, in topological order; at most kMaxItems
  // Work that fits into the windows of a layer's forward and backward, net of what runs there anyway and of contention.
  // 0: there is no such window. The size of `backward` says how many segments there are: one more.
  std::vector<Nanos> forward, backward;
  Nanos stall;  // of the whole stage; 0: none
  Nanos early;  // for the top layer
  int32_t layers = 1;
  int32_t in_flight = 1;  // microbatches
  Bytes budget;           // for held and transient memory

  int32_t resident = 2;     // microbatches of an offloaded item that are on the device at most
  Nanos copy_out, copy_in;  // copy time of the whole stage that is hidden, for each direction
  Bytes host_budget;        // of the whole stage; 0: nothing can be offloaded

  int segments() const { return static_cast<int>(backward.size()) + 1; }
  auto operator<=>(const RecomputeProblem&) const = default;
};

// InvalidArgument naming the field unless all is within the limits above, nothing is negative, layers, in_flight and
// resident are at least 1, inputs come before their readers, and the segments that read items exist.
absl::Status ValidateProblem(const RecomputeProblem& problem);

// Placements besides kStore that item i may have at all: allowed, the window exists, no collective in a window, an own
// window only before all segments that read it, offloading only with host memory.
PlacementSet PossiblePlacements(const RecomputeProblem& problem, int item, bool top);

// What one layer takes of everything that it shares with others. Arrays by window or phase.
struct LayerUse {
  Bytes held;
  std::array<Bytes, kMaxPhases> live{};   // transient, of this layer's own results in its phase
  std::array<Bytes, kMaxPhases> above{};  // transient, of this layer's results in that phase of the layer above
  std::array<Nanos, kMaxWindows> above_work{}, own_work{};
  Nanos stall;
  Nanos exposed;  // critical, and beyond the forward windows
  Nanos early;    // of the top layer, part of critical: work at c0 before the first collective
  Nanos copy_out, copy_in;
  Bytes host;

  auto operator<=>(const LayerUse&) const = default;
};

// InvalidArgument naming item and rule if the policy breaks one.
absl::StatusOr<LayerUse> UseOf(const RecomputeProblem& problem, const LayerPolicy& policy, bool top);

struct StageValue {
  Bytes held;
  Bytes transient;
  Bytes host;
  Nanos exposed;  // per microbatch

  Bytes bytes() const { return held + transient; }
  auto operator<=>(const StageValue&) const = default;
};

// What layers with these uses are worth together, from the bottom on. At least one.
StageValue Combine(const RecomputeProblem& problem, const std::vector<LayerUse>& layers);

// InvalidArgument naming layer, item and rule if the policy breaks one. Budgets are not looked at; see Fits.
absl::StatusOr<StageValue> EvaluateStage(const RecomputeProblem& problem, const StagePolicy& policy);

bool Fits(const RecomputeProblem& problem, const StageValue& value);
// The objective: less exposed time, then less device memory, then less host memory.
bool Better(const StageValue& a, const StageValue& b);

}  // namespace lynx

#endif  // LYNX_PLANNER_RECOMPUTE_RECOMPUTE_PROBLEM_H_
