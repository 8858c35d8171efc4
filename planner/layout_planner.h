// LayoutPlanner: the fastest way to run one candidate (parallel layout and micro-batch) within its memory: how many
// layers each stage gets and what each of them recomputes where. Estimates (HEU's model of memory, busy times) lead
// the search; what is kept has been lowered, its arena planned and its step simulated.
//
// Not thread-safe; keeps references to the request and the front cache, which outlive it.
#ifndef LYNX_PLANNER_LAYOUT_PLANNER_H_
#define LYNX_PLANNER_LAYOUT_PLANNER_H_

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "planner/cost_model.h"
#include "planner/plan.h"
#include "planner/search.h"
#include "planner/simulate.h"
#include "planner/stage_costs.h"
#include "planner/stage_heu.h"
#include "planner/stage_problem.h"

namespace lynx {

// HEU's fronts of stages. Candidates that share a problem share them.
class FrontCache {
 public:
  // The budget does not matter; nor do the layers, unless the stage shares a stall or copies among them.
  const StageHeu& Solve(RecomputeProblem problem);

 private:
  std::map<RecomputeProblem, StageHeu> fronts_;
};

// What remains to be assembled into a plan.
struct Draft {
  Candidate candidate;
  RecomputeMode mode = RecomputeMode::kNone;
  std::vector<int32_t> layers;  // of each stage
  std::vector<StagePolicy> policies;
  Bytes peaks;  // sum over stages, of a program with few microbatches
  Simulation simulation;
};
// Shorter step, then less memory.
bool Faster(const Draft& a, const Draft& b);

// How far a candidate is from fitting, with as little stored as its mode allows.
struct Shortfall {
  int32_t stage = 0;
  Bytes needed, limit;  // of the stage's arena
  Bytes states;         // of the stage
  Bytes excess() const { return needed - limit; }
};

class LayoutPlanner {
 public:
  LayoutPlanner(const PlanRequest& request, const Candidate& candidate, FrontCache& fronts);

  // No step of this candidate is shorter.
  Nanos LowerBound() const;
  // The fastest draft that the planner finds under the request's recompute mode; nullopt when none fits, or none
  // promises to be faster than `to_beat`.
  std::optional<Draft> Best(Nanos to_beat);
  // Plans the draft's partition again with what the draft's stages wait for gradients as a window of its own; nullopt
  // if that is no faster.
  std::optional<Draft> UseStalls(const Draft& draft);
  Shortfall LeastShortfall();

  // The plan, with the arenas of the whole step. nullopt if one of them exceeds its limit (the search looks at peaks
  // of few microbatches only); the planner then asks less of that stage next time.
  std::optional<Plan> Assemble(const Draft& draft);

 private:
  struct Fit {
    StagePolicy policy;
    Nanos exposed;  // per microbatch, by HEU's model
    Bytes peak;
  };
  struct Estimate {
    Nanos exposed;
    Bytes bytes;
  };

  int32_t stages() const { return candidate_.layout.pp; }
  StageContext Context(int32_t stage, int32_t first_layer, int32_t layers, int32_t microbatches) const;
  std::vector<StageContext> Contexts(const std::vector<int32_t>& layers) const;
  int32_t InFlightOf(int32_t stage) const;
  int64_t PassPermille(int32_t stage) const;
  Nanos BusyTime(LayerType type, int32_t stage) const;
  Nanos BusyTime(int32_t stage, int32_t layers) const;
  Nanos StepBound(const std::vector<int64_t>& stage_costs) const;
  StateBytes States(int32_t stage, int32_t layers) const;
  // nullopt: no limit.
  std::optional<Bytes> Limit(int32_t stage, int32_t layers) const;
  bool Fits(int32_t stage, int32_t layers, Bytes peak) const;
  StageContext ProbeContext(int32_t stage, int32_t layers) const;
  // Of a program with few microbatches: the peak of live memory, which its arena rarely exceeds, and its arena.
  Bytes Peak(int32_t stage, const StagePolicy& policy);
  Bytes Arena(int32_t stage, const StagePolicy& policy) const;

  RecomputeProblem Problem(RecomputeMode mode, int32_t stage, int32_t layers) const;
  const StageHeu& Heu(RecomputeMode mode, int32_t stage, int32_t layers);
  // What a stage's layers take under a mode that treats them alike, but for the top layer.
  struct NamedUses {
    RecomputeProblem problem;
    LayerUse inner, top;
  };
  const NamedUses& UsesOf(RecomputeMode mode, int32_t stage);
  // Of the stage's memory under the mode, all but what HEU's model counts: gradients, workspace, the embedding's and
  // the head's tensors. Learnt from the last peak found for the stage.
  Bytes Fixed(int32_t stage);
  Bytes LayerInputs(int32_t stage, int32_t layers) const;
  // Of any mode that names its policies; kBlock with block_layers_.
  StagePolicy PolicyOf(RecomputeMode mode, int32_t layers) const;
  Estimate EstimateNamed(RecomputeMode mode, int32_t stage, int32_t layers);
  Estimate EstimateBlock(int32_t stage, int32_t layers);
  // kAuto: HEU; kNoOverlap: HEU without windows.
  Estimate EstimateHeu(RecomputeMode mode, int32_t stage, int32_t layers);
  int64_t EstimatedCost(RecomputeMode mode, int32_t stage, int32_t layers);

  // By estimate, with an allowance.
  bool MayFit(RecomputeMode mode, int32_t stage, int32_t layers);
  std::optional<Fit> FitNamed(RecomputeMode mode, int32_t stage, int32_t layers);
  std::optional<Fit> FitHeu(RecomputeMode mode, int32_t stage, int32_t layers);
  std::optional<Fit> FitBudget(RecomputeMode mode, int32_t stage, int32_t layers, Bytes limit);
  const std::optional<Fit>& FitOf(RecomputeMode mode, int32_t stage, int32_t layers);

  bool Allowed(RecomputeMode mode) const;
  std::optional<Draft> BestBlock(Nanos to_beat);
  bool Promising(RecomputeMode mode, const std::vector<int32_t>& layers, Nanos to_beat);
  // Whether every stage of the partition that balances busy times has room for everything: nothing is faster then.
  bool StoresEverythingInBalance();
  std::optional<Draft> DraftOf(RecomputeMode mode, Nanos to_beat);
  std::optional<Draft> TryPartition(RecomputeMode mode, const std::vector<int32_t>& layers);
  Bytes LeastArena(int32_t stage, int32_t layers, bool estimate);

  const PlanRequest& request_;
  const Candidate candidate_;
  FrontCache& fronts_;
  const StageCosts costs_;
  std::vector<std::array<Nanos, kLayerTypeCount>> busy_times_;  // per stage and type: forward and backward of a layer
  const LayerShape shape_;
  const LayerGraph& graph_;
  int64_t pass_permille_ = 1000;  // share of a layer's time that its forward and input gradient are, at least
  std::vector<Nanos> stalls_;     // per stage and microbatch; empty until UseStalls
  std::vector<Bytes> device_memory_;  // per stage; 0 = unknown
  std::vector<Bytes> reserves_;   // per stage: taken off the limit
  int32_t block_layers_ = 0;      // N of kBlock, at the moment
  std::map<int32_t, Bytes> fixed_;
  std::map<std::tuple<RecomputeMode, int32_t, int32_t>, const StageHeu*> heus_;
  std::map<std::pair<int32_t, std::vector<LayerPolicy>>, Bytes> peaks_;
  std::map<std::pair<RecomputeMode, int32_t>, NamedUses> named_;
  std::map<std::tuple<RecomputeMode, int32_t, int32_t>, std::optional<Fit>> fits_;
};

}  // namespace lynx

#endif  // LYNX_PLANNER_LAYOUT_PLANNER_H_
