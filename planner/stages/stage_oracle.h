// StageOracle: what each pipeline rank of one candidate (parallel layout and micro-batch) would recompute, and what that
// costs, for any number of layers on it: quick estimates for the search, and policies whose peak is known to fit. No
// step is lowered or simulated here.
//
// Virtual stages. A rank's layers are spread evenly over its virtual stages. Each of these is solved as a stage of its
// own, with an equal part of the rank's microbatches in flight and its layers' share of the memory. Where a rank serves
// two copies of the model (a bidirectional pipeline), times are means over both, since a microbatch goes through one.
//
// Offloading. Where the request leaves what goes to the host to the planner (OffersOffloading) and SetOffloading says so,
// HEU's policies may send tensors there, on the stages whose devices and hosts can (stage_offload.h).
//
// Not thread-safe; keeps references to the request and the caches, which outlive it.
#ifndef LYNX_PLANNER_STAGES_STAGE_ORACLE_H_
#define LYNX_PLANNER_STAGES_STAGE_ORACLE_H_

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include "planner/candidates/plan_caches.h"
#include "planner/candidates/search.h"
#include "planner/cost/cost_model.h"
#include "planner/cost/stage_costs.h"
#include "planner/plan/plan.h"
#include "planner/program/memory_model.h"
#include "planner/recompute/stage_heu.h"
#include "planner/recompute/stage_offload.h"
#include "planner/recompute/stage_problem.h"

namespace lynx {

// Estimated cost of a stage that seems not to fit: worse than any that does, and the worse the more it lacks; sums
// over a thousand stages stay within 64 bits. Only the memory model shows that it really does not fit.
inline constexpr int64_t kSeemsNotToFit = int64_t{1} << 52;

// Whether the mode's policies come from HEU: with its windows, or without.
constexpr bool IsHeuristic(RecomputeMode mode) { return mode == RecomputeMode::kAuto || mode == RecomputeMode::kNoOverlap; }

class StageOracle {
 public:
  struct Fit {
    std::vector<StagePolicy> policies;  // of the rank's virtual stages, by chunk
    Nanos exposed;                      // per microbatch, by HEU's model; also what copies slow
    Bytes peak;
  };

  StageOracle(const PlanRequest& request, const Candidate& candidate, PlanCaches& caches);

  int32_t stages() const { return candidate_.layout.pp; }
  const StageCosts& costs() const { return costs_; }
  const LayerGraph& graph() const { return graph_; }
  const LayerShape& shape() const { return shape_; }

  const PipelineShape& pipeline() const { return pipeline_; }
  // Forward and backward of one microbatch, nothing recomputed.
  Nanos BusyTime(int32_t stage, int32_t layers) const;
  StateBytes States(int32_t stage, int32_t layers) const;
  // nullopt: no limit.
  std::optional<Bytes> Limit(int32_t stage, int32_t layers) const;
  Bytes reserve(int32_t stage) const { return reserves_[static_cast<size_t>(stage)]; }
  // A stage's arena was found to be larger than its limit by so much. From now on its limit is lower by that, or peaks are
  // found by lowering where they were not. Forgets all fits.
  void Reserve(int32_t stage, Bytes bytes);
  // Limits are whole again. Forgets all fits.
  void ForgetReserves();
  // What a microbatch's backward waits for its gradient on each stage: a window of its own. Forgets all fits.
  void SetStalls(std::vector<Nanos> stalls);
  // Whether any stage can offload, and the request leaves it to the planner.
  bool OffersOffloading() const;
  // Whether HEU may offload from now on, on the stages that can. At first it may not.
  void SetOffloading(bool offloading) { offloading_ = offloading; }
  bool offloading() const { return offloading_; }
  // Of the host's memory, each rank's share, if activations take so much; 0: none or unknown.
  Bytes HostShare(int32_t stage, int32_t layers, Bytes activations) const;
  // A stage's program was found to take so much of the host's memory with these policies, more than `share`. From now on
  // they send too much there. Forgets all fits.
  void ReserveHost(int32_t stage, const std::vector<StagePolicy>& policies, Bytes taken, Bytes share);
  // N of kUniform and kBlock from now on; at first the request's.
  void SetNamedLayers(int32_t layers);

  // N of kUniform that takes least memory, by estimate: a larger one costs time and memory.
  int32_t LeastMemoryGroup(int32_t stage, int32_t layers);

  // Whether the request lets the planner choose the mode.
  bool Allowed(RecomputeMode mode) const;
  // The mode whose estimates stand for the request's: kBlock mixes what kNoOverlap mixes better.
  RecomputeMode EstimatedMode() const;
  // BusyTime with the exposed recomputation, per microbatch; kSeemsNotToFit and above where it seems not to fit.
  int64_t EstimatedCost(RecomputeMode mode, int32_t stage, int32_t layers);
  // Whether EstimatedCost is below kSeemsNotToFit; most often quicker.
  bool SeemsToFit(RecomputeMode mode, int32_t stage, int32_t layers);
  // By estimate, with an allowance. `mode` is not heuristic.
  bool MayFit(RecomputeMode mode, int32_t stage, int32_t layers);
  // nullopt: nothing of that mode fits.
  const std::optional<Fit>& FitOf(RecomputeMode mode, int32_t stage, int32_t layers);
  struct ExactFit {
    std::optional<Fit> fit;  // exposes less than the known policies
    Nanos known, bound;      // what they expose, and what none that takes as much memory goes below
    bool stopped = false;    // out of time
  };
  // What an exact solver finds beside policies that are known to fit. nullopt: memory has no limit, the known
  // policies are none of the model's, or the solver fails.
  std::optional<ExactFit> FitExact(const StageSolver& solver, int32_t stage, const std::vector<StagePolicy>& known);
  // The least memory that the request's mode needs: its own policy, or for auto the least of HEU's and of both ways to
  // recompute everything. By estimate, or the arena.
  Bytes LeastArena(int32_t stage, int32_t layers, bool estimate);

 private:
  struct Estimate {
    Nanos exposed;
    Bytes bytes;
  };
  // A virtual stage.
  struct Part {
    int32_t layers = 0;
    SliceEnds ends;

    // Whether what HEU makes of one, it makes of the other.
    bool Alike(const Part& other) const { return layers == other.layers && ends.head == other.ends.head; }
  };
  // What a stage's layers take under a mode that treats them alike, but for the top layer.
  struct NamedUses {
    RecomputeProblem problem;
    LayerUse inner, top;
    // Of a stage of one, two and three layers: a further one adds what the third adds to the two.
    std::array<StageValue, 3> values;
  };

  std::vector<Part> PartsOf(int32_t stage, int32_t layers) const;
  // A context of the rank alone; which layers of the model its slices hold is made up.
  StageContext Context(int32_t stage, int32_t layers) const;
  // Microbatches whose activations a virtual stage of the rank holds at most, on average over its virtual stages.
  int32_t InFlightOf(int32_t stage) const { return in_flight_[static_cast<size_t>(stage)]; }
  // Of a program of few microbatches, within the limit or above it; nullopt: no limit.
  Bytes Peak(int32_t stage, const std::vector<StagePolicy>& policies, std::optional<Bytes> limit);
  // By sums over the slots of the schedule, or by lowering.
  Bytes PeakOfSlots(int32_t stage, const std::vector<StagePolicy>& policies);
  Bytes PeakOfProgram(int32_t stage, const std::vector<StagePolicy>& policies, std::optional<Bytes> limit);
  enum class Probed : uint8_t { kLiveness, kArena };
  // Lowers a program of few microbatches. The arena is as small as the search makes it, or with a limit small enough to
  // be within it; an arena above its limit says no more than that.
  MemoryPlan Probe(int32_t stage, const std::vector<StagePolicy>& policies, Probed probed,
                   std::optional<Bytes> limit = std::nullopt);
  // Without offloading.
  RecomputeProblem Problem(RecomputeMode mode, int32_t stage, const Part& part) const;
  const StageHeu& Heu(RecomputeMode mode, int32_t stage, const Part& part);
  // With offloading; null where the stage may not offload under the mode.
  const RecomputeProblem* OffloadProblem(RecomputeMode mode, int32_t stage, const Part& part);
  int32_t CopySlowdown(int32_t stage) const { return costs_.Of(stage).host_link().op_slowdown_permille; }
  const NamedUses& UsesOf(RecomputeMode mode, int32_t stage, SliceEnds ends);
  // Of the rank's memory, all but what HEU's model counts and the layers' inputs: gradients, workspace, the
  // embedding's and the head's tensors. Learnt from the last peak found for the rank, apart for plans without windows:
  // these must not depend on whether others were looked at before; and apart for plans with offloading, which HEU's model
  // knows less well.
  Bytes Fixed(RecomputeMode mode, int32_t stage);
  std::tuple<bool, bool, int32_t> FixedKey(RecomputeMode mode, int32_t stage) const {
    return {mode == RecomputeMode::kNoOverlap, offloading_, stage};
  }
  // Inputs of the layers of the microbatches in flight, and what is held for W of others: no policy changes it.
  Bytes LayerInputs(int32_t stage, int32_t layers) const;
  // What HEU may use of the limit, as far as is known.
  Bytes BudgetOf(RecomputeMode mode, int32_t stage, int32_t layers, Bytes limit);
  // Of any mode that names its policies; kUniform and kBlock with named_layers_.
  StagePolicy PolicyOf(RecomputeMode mode, int32_t layers) const;
  std::vector<StagePolicy> PoliciesOf(RecomputeMode mode, int32_t stage, int32_t layers) const;
  StageValue ValueOfNamed(RecomputeMode mode, int32_t stage, const Part& part);
  Estimate EstimateNamed(RecomputeMode mode, int32_t stage, int32_t layers);
  Estimate EstimateUniform(int32_t stage, int32_t layers);
  Estimate EstimateHeu(RecomputeMode mode, int32_t stage, int32_t layers);
  Bytes LeastOfHeu(RecomputeMode mode, int32_t stage, int32_t layers);
  StageValue EstimateOfPart(RecomputeMode mode, int32_t stage, const Part& part, Bytes budget);
  OffloadSolution BestOfPart(RecomputeMode mode, int32_t stage, const Part& part, Bytes budget);
  // HEU's best policies for that budget, and what they are worth.
  std::pair<std::vector<StagePolicy>, Estimate> BestOfHeu(RecomputeMode mode, int32_t stage, int32_t layers, Bytes budget);
  std::optional<Fit> FitNamed(RecomputeMode mode, int32_t stage, int32_t layers);
  std::optional<Fit> FitHeu(RecomputeMode mode, int32_t stage, int32_t layers);
  std::optional<Fit> FitBudget(RecomputeMode mode, int32_t stage, int32_t layers, Bytes limit);

  const PlanRequest& request_;
  const Candidate& candidate_;
  const StageCosts costs_;
  const LayerShape shape_;
  const LayerGraph& graph_;
  const PipelineShape pipeline_;
  PlanCaches& caches_;
  StagePeaks& peaks_;
  std::vector<int32_t> in_flight_;    // per rank
  std::vector<int32_t> for_weights_;  // per rank: microbatches beside these of which what W reads is held
  std::vector<std::array<Nanos, kLayerTypeCount>> busy_times_;  // per stage and type: forward and backward of a layer
  std::vector<Bytes> device_memory_;                            // per stage; 0 = unknown
  std::vector<Nanos> stalls_;                                   // per stage and microbatch
  std::vector<Bytes> reserves_;                                 // per stage: taken off the limit
  int32_t named_layers_;
  bool lowers_peaks_ = false;
  std::map<std::tuple<int32_t, Bytes, std::vector<LayerPolicy>>, Bytes> lowered_peaks_;  // by stage, limit, policies
  bool offloading_ = false;
  // Per stage: what each virtual stage may offload to, in a partition of even stages; 0: the stage cannot, or may
  // not.
  std::vector<Bytes> host_memory_;
  std::map<std::tuple<int32_t, int32_t, bool>, RecomputeProblem> offload_problems_;  // by stage, layers, head
  std::map<std::tuple<bool, bool, int32_t>, Bytes> fixed_;                           // by FixedKey
  std::map<std::tuple<RecomputeMode, int32_t, int32_t, bool>, const StageHeu*> heus_;
  std::map<std::tuple<RecomputeMode, int32_t, bool>, NamedUses> named_;
  std::map<std::tuple<RecomputeMode, int32_t, int32_t, bool>, std::optional<Fit>> fits_;  // last: with offloading
};

}  // namespace lynx

#endif  // LYNX_PLANNER_STAGES_STAGE_ORACLE_H_
