// HEU: heuristic scheduling of recomputation. For one transformer layer it finds, exactly, every worthwhile trade of
// memory against exposed recomputation: which tensors to store, and in which window (recompute_policy.h) each of the
// others is made again. For a stage it mixes those choices over the stage's identical layers so that they use the
// memory that one policy for all layers would leave.
//
// What is exact: SolveLayer, under the model below. What is heuristic: memory is estimated (the truth is PlanMemory
// on the lowered program), layers are solved apart from each other, and a stage mixes at most two choices for its
// layers, besides the one of its last layer, which has no layer above it and so no backward windows.
//
// The model, per microbatch in the steady state of 1F1B:
//  - A tensor's inputs are stored or made again no later than it. Tensors on the critical path come in two moments:
//    what the mlp segment of the layer's backward reads, directly or through recomputation, is made before that
//    segment; the rest after it, before the attn segment. A collective is never repeated inside a window, so x1 is
//    stored or critical, and its cost there includes the collective.
//  - A window of length T holds CostModel::OverlapCapacity(T) of work, less the weight gradients that run there first.
//    What exceeds it is exposed. b1 of layer l and b3 of layer l + 1 are the same window and share it. The lowering
//    puts what the last layer needs first into the window of the head above it.
//  - Held memory of a layer: in-flight microbatches x stored bytes + what is made again in forward windows or the
//    stall (one microbatch of the whole stage). Transient memory, once per stage: what two neighbouring layers make
//    again during their backward.
//
// Pure; thread-safe.
#ifndef LYNX_PLANNER_HEU_H_
#define LYNX_PLANNER_HEU_H_

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "common/units.h"
#include "planner/cost_model.h"
#include "planner/recompute_policy.h"

namespace lynx {

// Bit i stands for LayerGraph::recomputable()[i].
using RecomputableSet = uint16_t;

// All that HEU knows of a layer. Arrays over tensors are indexed as LayerGraph::recomputable().
struct LayerProblem {
  int32_t count = 0;  // of tensors
  std::array<Bytes, kMaxRecomputable> bytes{};               // of one microbatch
  std::array<Nanos, kMaxRecomputable> cost{};                // to make it again
  std::array<RecomputableSet, kMaxRecomputable> inputs{};    // what making it again reads
  RecomputableSet read_by_mlp = 0;   // by the B or W of the layer's mlp segment
  RecomputableSet read_by_attn = 0;  // by those of its attn and end segments
  RecomputableSet not_in_windows = 0;  // made with a collective: stored or critical
  // Work that fits into each window, by Placement. 0: there is no such window. kStore and kCritical are not read;
  // kOwn1 shares kAbove1's window where there is one.
  std::array<Nanos, kPlacementCount> capacity{};
  // Work that is hidden although it is critical and before the mlp segment, up to the first repeated collective:
  // below the head, the window of the head's backward.
  Nanos early;
  int32_t in_flight = 1;  // microbatches

  auto operator<=>(const LayerProblem&) const = default;
};

// What stands above a layer in its stage.
enum class LayerPosition : uint8_t { kInner, kTop, kTopBelowHead };

// The problem of a layer from the layer graph and the cost model. `in_flight`: InFlight of the stage. `stall`: the
// layer's share of the steady wait for the gradient, 0 = none.
LayerProblem MakeLayerProblem(const CostModel& costs, const LayerShape& shape, int32_t in_flight,
                              LayerPosition position, Nanos stall);

struct LayerChoice {
  LayerPolicy policy{};
  Bytes held;
  Bytes transient;
  Nanos exposed;
};

// The value of one policy under the model, for policies that obey its rules; nullopt for others.
std::optional<LayerChoice> EvaluateLayer(const LayerProblem& problem, const LayerPolicy& policy);

// All policies that no other betters in held, transient and exposed at once; one for each such triple. In order of
// exposed, then held. Branch and bound over all placements.
std::vector<LayerChoice> SolveLayer(const LayerProblem& problem);

struct StageChoice {
  StagePolicy policy;
  Bytes held;       // sum over layers
  Bytes transient;  // largest of the layers
  Nanos exposed;    // per microbatch, sum over layers
  Bytes bytes() const { return held + transient; }
};

// Mixes choices over the layers of a stage. Immutable after construction.
class StageMixer {
 public:
  // The fronts of the layers that have one above them, and of the last layer. Neither is empty.
  StageMixer(const std::vector<LayerChoice>& inner, const std::vector<LayerChoice>& top);

  // The mix of least exposed time with bytes() <= budget; least memory among those. nullopt if there is none. More
  // memory never gives more exposed time.
  std::optional<StageChoice> Best(int32_t layers, Bytes budget) const;
  // Memory of the mix of least memory.
  Bytes LeastBytes(int32_t layers) const;

 private:
  // Choices whose transient memory is at most `transient`, without those that another betters in held and exposed; in
  // order of held.
  struct Level {
    Bytes transient;
    std::vector<LayerChoice> inner;
    std::vector<LayerChoice> top;
    std::vector<LayerChoice> hull;  // the convex hull of inner
  };
  static Nanos LeastExposed(const Level& level, int32_t layers, Bytes held);

  std::vector<Level> levels_;
};

}  // namespace lynx

#endif  // LYNX_PLANNER_HEU_H_
