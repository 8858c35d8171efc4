// StageOracle says what each pipeline rank of one candidate (parallel layout and micro-batch) would recompute, and what
// that costs, for any number of layers on the rank: quick estimates for the search, and policies whose peak is known to
// fit. It does not lower or simulate a step.
//
// Virtual stages. A rank's layers are distributed evenly over its virtual stages. Each virtual stage is solved as a stage
// of its own, with an equal part of the rank's microbatches in flight and a share of the memory in proportion to its
// layers. If a rank serves two copies of the model (a bidirectional pipeline), times are averages over both, because a
// microbatch passes through one of them.
//
// Offloading. If the request lets the planner choose what goes to the host (OffersOffloading) and SetOffloading allows
// it, HEU's policies may send tensors there, on stages whose devices and hosts support it (stage_offload.h).
//
// Not thread-safe. Keeps references to the request and the caches, which must outlive it.
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

// Estimated cost of a stage that seems not to fit. It is above the cost of any stage that fits and grows with the missing
// memory; sums over a thousand stages stay within 64 bits. Only the memory model can prove that a stage does not fit.
inline constexpr int64_t kSeemsNotToFit = int64_t{1} << 52;

// True if HEU makes the mode's policies, with or without its windows.
constexpr bool IsHeuristic(RecomputeMode mode) { return mode == RecomputeMode::kAuto || mode == RecomputeMode::kNoOverlap; }

class StageOracle {
 public:
  struct Fit {
    std::vector<StagePolicy> policies;  // by chunk: for the rank's virtual stages
    Nanos exposed;                      // per microbatch, by HEU's model; includes the slowdown by copies
    Bytes peak;
  };

  StageOracle(const PlanRequest& request, const Candidate& candidate, PlanCaches& caches);

  int32_t stages() const { return candidate_.layout.pp; }
  const StageCosts& costs() const { return costs_; }
  const LayerGraph& graph() const { return graph_; }
  const LayerShape& shape() const { return shape_; }

  const PipelineShape& pipeline() const { return pipeline_; }
  // Forward and backward of one microbatch without recomputation.
  Nanos BusyTime(int32_t stage, int32_t layers) const;
  StateBytes States(int32_t stage, int32_t layers) const;
  // nullopt: no limit.
  std::optional<Bytes> Limit(int32_t stage, int32_t layers) const;
  Bytes reserve(int32_t stage) const { return reserves_[static_cast<size_t>(stage)]; }
  // Call this when a stage's arena was found to exceed its limit by `bytes`. From now on the stage's limit is lower by
  // that amount, or peaks are found by lowering instead of sums. Forgets all fits.
  void Reserve(int32_t stage, Bytes bytes);
  // Restores all limits. Forgets all fits.
  void ForgetReserves();
  // Sets how long a microbatch's backward waits for its gradient on each stage. Recomputation can run during this wait too.
  // Forgets all fits.
  void SetStalls(std::vector<Nanos> stalls);
  // True if any stage can offload and the request leaves the choice to the planner.
  bool OffersOffloading() const;
  // Whether HEU may offload from now on, on the stages that can. Initially it may not.
  void SetOffloading(bool offloading) { offloading_ = offloading; }
  bool offloading() const { return offloading_; }
  // Each rank's share of the host's memory if activations take this much; 0: no memory, or unknown.
  Bytes HostShare(int32_t stage, int32_t layers, Bytes activations) const;
  // Call this when a stage's program with these policies was found to take `taken` bytes of the host's memory, which is
  // more than `share`. From now on these policies count as sending too much. Forgets all fits.
  void ReserveHost(int32_t stage, const std::vector<StagePolicy>& policies, Bytes taken, Bytes share);
  // Sets N of kUniform and kBlock; initially the request's.
  void SetNamedLayers(int32_t layers);

  // The N of kUniform that takes the least memory by estimate; a larger N costs time and memory.
  int32_t LeastMemoryGroup(int32_t stage, int32_t layers);

  // True if the request lets the planner choose the mode.
  bool Allowed(RecomputeMode mode) const;
  // The mode whose estimates represent the request's mode: kNoOverlap for kBlock, because it mixes the same policies
  // better.
  RecomputeMode EstimatedMode() const;
  // BusyTime plus the exposed recomputation, per microbatch; at least kSeemsNotToFit if the stage seems not to fit.
  int64_t EstimatedCost(RecomputeMode mode, int32_t stage, int32_t layers);
  // True if EstimatedCost is below kSeemsNotToFit; usually faster.
  bool SeemsToFit(RecomputeMode mode, int32_t stage, int32_t layers);
  // By estimate, with an allowance. `mode` must not be heuristic.
  bool MayFit(RecomputeMode mode, int32_t stage, int32_t layers);
  // nullopt: no policy of that mode fits.
  const std::optional<Fit>& FitOf(RecomputeMode mode, int32_t stage, int32_t layers);
  struct ExactFit {
    std::optional<Fit> fit;  // set if it exposes less than the known policies
    Nanos known, bound;      // time that the known policies expose; lower bound for policies that take as much memory
    bool stopped = false;    // the solver ran out of time
  };
  // Solves the stage exactly, to improve on the policies `known`, which are known to fit. nullopt: there is no memory
  // limit, the model cannot express `known`, or the solver fails.
  std::optional<ExactFit> FitExact(const StageSolver& solver, int32_t stage, const std::vector<StagePolicy>& known);
  // The least memory that the request's mode needs: with the mode's own policy, or for auto the smallest of HEU's
  // policies and both ways to recompute everything. `estimate`: by estimate, else the arena.
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

    // True if HEU's solution is the same for both.
    bool Alike(const Part& other) const { return layers == other.layers && ends.head == other.ends.head; }
  };
  // The memory and time of a stage's layers under a mode that treats all layers alike, except the top layer.
  struct NamedUses {
    RecomputeProblem problem;
    LayerUse inner, top;
    // Values of a stage of one, two and three layers. Each further layer adds what the third adds to the first two.
    std::array<StageValue, 3> values;
  };

  std::vector<Part> PartsOf(int32_t stage, int32_t layers) const;
  // A context for the rank alone; which layers of the model its slices hold is arbitrary.
  StageContext Context(int32_t stage, int32_t layers) const;
  // Maximum number of microbatches whose activations a virtual stage of the rank holds, averaged over its virtual stages.
  int32_t InFlightOf(int32_t stage) const { return in_flight_[static_cast<size_t>(stage)]; }
  // Peak of a program with few microbatches, within the limit or above it; nullopt: no limit.
  Bytes Peak(int32_t stage, const std::vector<StagePolicy>& policies, std::optional<Bytes> limit);
  // By sums over the slots of the schedule, or by lowering a program.
  Bytes PeakOfSlots(int32_t stage, const std::vector<StagePolicy>& policies);
  Bytes PeakOfProgram(int32_t stage, const std::vector<StagePolicy>& policies, std::optional<Bytes> limit);
  enum class Probed : uint8_t { kLiveness, kArena };
  // Lowers a program with few microbatches. The arena is as small as the search makes it. In a long program with `limit`,
  // the search stops once the arena is within it, and an arena above its limit gives no more information than that.
  MemoryPlan Probe(int32_t stage, const std::vector<StagePolicy>& policies, Probed probed,
                   std::optional<Bytes> limit = std::nullopt);
  // The problem without offloading.
  RecomputeProblem Problem(RecomputeMode mode, int32_t stage, const Part& part) const;
  const StageHeu& Heu(RecomputeMode mode, int32_t stage, const Part& part);
  // The problem with offloading; nullptr if the stage may not offload under the mode.
  const RecomputeProblem* OffloadProblem(RecomputeMode mode, int32_t stage, const Part& part);
  int32_t CopySlowdown(int32_t stage) const { return costs_.Of(stage).host_link().op_slowdown_permille; }
  const NamedUses& UsesOf(RecomputeMode mode, int32_t stage, SliceEnds ends);
  // Bytes of the rank's memory that neither HEU's model nor the layers' inputs include: gradients, workspace, the
  // embedding's and the head's tensors. Learnt from the last peak found for the rank. Plans without windows are learnt
  // separately, because they must not depend on whether other plans were tried before; plans with offloading also,
  // because HEU's model is less exact for them.
  Bytes Fixed(RecomputeMode mode, int32_t stage);
  std::tuple<bool, bool, int32_t> FixedKey(RecomputeMode mode, int32_t stage) const {
    return {mode == RecomputeMode::kNoOverlap, offloading_, stage};
  }
  // Inputs of the layers of the microbatches in flight, and what is held for W of other microbatches. No policy changes
  // it.
  Bytes LayerInputs(int32_t stage, int32_t layers) const;
  // The part of the limit that HEU may use, as far as is known.
  Bytes BudgetOf(RecomputeMode mode, int32_t stage, int32_t layers, Bytes limit);
  // The policy of any mode that names its policies; kUniform and kBlock use named_layers_.
  StagePolicy PolicyOf(RecomputeMode mode, int32_t layers) const;
  std::vector<StagePolicy> PoliciesOf(RecomputeMode mode, int32_t stage, int32_t layers) const;
  StageValue ValueOfNamed(RecomputeMode mode, int32_t stage, const Part& part);
  Estimate EstimateNamed(RecomputeMode mode, int32_t stage, int32_t layers);
  Estimate EstimateUniform(int32_t stage, int32_t layers);
  Estimate EstimateHeu(RecomputeMode mode, int32_t stage, int32_t layers);
  Bytes LeastOfHeu(RecomputeMode mode, int32_t stage, int32_t layers);
  StageValue EstimateOfPart(RecomputeMode mode, int32_t stage, const Part& part, Bytes budget);
  OffloadSolution BestOfPart(RecomputeMode mode, int32_t stage, const Part& part, Bytes budget);
  // HEU's best policies for that budget, and their estimate.
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
  std::vector<int32_t> in_flight_;                              // per rank
  std::vector<int32_t> for_weights_;                            // per rank: further microbatches for which what W reads is held
  std::vector<std::array<Nanos, kLayerTypeCount>> busy_times_;  // per stage and type: forward and backward of a layer
  std::vector<Bytes> device_memory_;                            // per stage; 0 = unknown
  std::vector<Nanos> stalls_;                                   // per stage and microbatch
  std::vector<Bytes> reserves_;                                 // per stage: bytes subtracted from the limit
  int32_t named_layers_;
  bool lowers_peaks_ = false;
  std::map<std::tuple<int32_t, Bytes, std::vector<LayerPolicy>>, Bytes> lowered_peaks_;  // by stage, limit, policies
  bool offloading_ = false;
  // Per stage: host memory that each virtual stage may use, in a partition of even stages; 0: the stage cannot or may not
  // offload.
  std::vector<Bytes> host_memory_;
  std::map<std::tuple<int32_t, int32_t, bool>, RecomputeProblem> offload_problems_;  // by stage, layers, head
  std::map<std::tuple<bool, bool, int32_t>, Bytes> fixed_;                           // by FixedKey
  std::map<std::tuple<RecomputeMode, int32_t, int32_t, bool>, const StageHeu*> heus_;
  std::map<std::tuple<RecomputeMode, int32_t, bool>, NamedUses> named_;
  std::map<std::tuple<RecomputeMode, int32_t, int32_t, bool>, std::optional<Fit>> fits_;  // last: with offloading
};

}  // namespace lynx

#endif  // LYNX_PLANNER_STAGES_STAGE_ORACLE_H_
