// StageOracle answers, for each pipeline rank of one candidate (parallel layout and micro-batch) and any number of layers on
// the rank, what the rank would recompute and what this costs. It gives quick estimates for the search, and policies whose peak
// is known to fit. It does not lower or simulate a step.
//
// Virtual stages. A rank's layers are distributed evenly over its virtual stages. Each virtual stage is solved as a stage
// of its own, with an equal part of the rank's microbatches in flight and a share of the memory in proportion to its
// layers. If a rank serves two copies of the model (a bidirectional pipeline), times are averages over both, because a
// microbatch passes through one of them.
//
// Offloading. HEU's policies may offload tensors if the request lets the planner choose the tensors (OffersOffloading) and
// SetOffloading allows it, on stages whose devices and hosts support it (stage_offload.h).
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

// Estimated cost of a stage that seems not to fit. The estimate is this number plus the missing memory in bytes. The number is
// above the cost of any stage that fits, and sums over a thousand stages stay within 64 bits. An estimate does not prove that a
// stage does not fit; only its exact peak does.
inline constexpr int64_t kSeemsNotToFit = int64_t{1} << 52;

// True if HEU makes the policies of the mode, with or without windows.
constexpr bool IsHeuristic(RecomputeMode mode) { return mode == RecomputeMode::kAuto || mode == RecomputeMode::kNoOverlap; }

class StageOracle {
 public:
  struct Fit {
    std::vector<StagePolicy> policies;  // one for each virtual stage of the rank, by chunk
    Nanos exposed;                      // per microbatch, by HEU's model; includes the slowdown by copies
    Bytes peak;
  };

  StageOracle(const PlanRequest& request, const Candidate& candidate, PlanCaches& caches);

  int32_t stages() const { return candidate_.layout.pp; }
  const StageCosts& costs() const { return costs_; }
  const LayerGraph& graph() const { return graph_; }
  const LayerShape& shape() const { return shape_; }

  const PipelineShape& pipeline() const { return pipeline_; }
  // Time of the forward and backward of one microbatch without recomputation.
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
  // Sets whether HEU may offload from now on, on the stages that can offload. Initially it may not.
  void SetOffloading(bool offloading) { offloading_ = offloading; }
  bool offloading() const { return offloading_; }
  // The share of the host's memory of each rank of the stage, if the activations on its device take `activations` bytes; 0: no
  // memory, or unknown.
  Bytes HostShare(int32_t stage, int32_t layers, Bytes activations) const;
  // Call this when a stage's program with these policies was found to take `taken` bytes of the host's memory, which is more
  // than `share`. From now on HEU gets so little host memory that these policies do not fit. Forgets all fits.
  void ReserveHost(int32_t stage, const std::vector<StagePolicy>& policies, Bytes taken, Bytes share);
  // Sets N of kUniform and kBlock. Initially it is the N of the request.
  void SetNamedLayers(int32_t layers);

  // The program of a stage with these policies: lowered, and woven within the stage's limit if the layout says so. `slots` are
  // of this rank, for the context's number of microbatches.
  Program Lower(const StageContext& context, const std::vector<RankSlot>& slots,
                const std::vector<StagePolicy>& policies) const;

  // The N of kUniform that takes the least memory by estimate. A larger N than this costs more time and more memory.
  int32_t LeastMemoryGroup(int32_t stage, int32_t layers);

  // True if the request allows the mode.
  bool Allowed(RecomputeMode mode) const;
  // The mode whose estimates represent the request's mode: kNoOverlap for kBlock, because it mixes the same policies
  // better.
  RecomputeMode EstimatedMode() const;
  // BusyTime plus the exposed recomputation, per microbatch; at least kSeemsNotToFit if the stage seems not to fit.
  int64_t EstimatedCost(RecomputeMode mode, int32_t stage, int32_t layers);
  // True if EstimatedCost is below kSeemsNotToFit. It is usually faster than a call of EstimatedCost.
  bool SeemsToFit(RecomputeMode mode, int32_t stage, int32_t layers);
  // True if the mode's policy may fit, by an estimate with an allowance for errors. `mode` must not be heuristic.
  bool MayFit(RecomputeMode mode, int32_t stage, int32_t layers);
  // Returns the policies of the mode whose peak fits. nullopt: no policy of the mode fits.
  const std::optional<Fit>& FitOf(RecomputeMode mode, int32_t stage, int32_t layers);
  struct ExactFit {
    std::optional<Fit> fit;  // set if it has less exposed time than the known policies
    // exposed time of the known policies; lower bound for all policies that take at most as much memory
    Nanos known, bound;
    bool stopped = false;  // the solver ran out of time
  };
  // Solves the stage exactly, to improve on the policies `known`, which are known to fit. nullopt: there is no memory
  // limit, the model cannot express `known`, or the solver fails.
  std::optional<ExactFit> FitExact(const StageSolver& solver, int32_t stage, const std::vector<StagePolicy>& known);
  // The least memory that the request's mode needs: with the mode's own policy, or for auto the smallest of HEU's policies and
  // both ways to recompute everything. `estimate`: estimates the memory; otherwise returns the size of the arena.
  Bytes LeastArena(int32_t stage, int32_t layers, bool estimate);

 private:
  struct Estimate {
    Nanos exposed;
    Bytes bytes;
  };
  // A virtual stage of the rank.
  struct Part {
    int32_t layers = 0;
    SliceEnds ends;

    // True if HEU's solution is the same for both parts.
    bool Alike(const Part& other) const { return layers == other.layers && ends.head == other.ends.head; }
  };
  // The memory and time of a stage's layers under a mode that has the same policy for all layers. Only the top layer has other
  // values.
  struct NamedUses {
    RecomputeProblem problem;
    LayerUse inner, top;
    // Values of a stage of one, two and three layers. Each further layer adds what the third adds to the first two.
    std::array<StageValue, 3> values;
  };

  std::vector<Part> PartsOf(int32_t stage, int32_t layers) const;
  // A context for one rank, made without knowing the other ranks. Its slices have the right number of layers, but the indices
  // of these layers start at 0.
  StageContext Context(int32_t stage, int32_t layers) const;
  // Maximum number of microbatches whose activations a virtual stage of the rank holds, averaged over its virtual stages.
  int32_t InFlightOf(int32_t stage) const { return in_flight_[static_cast<size_t>(stage)]; }
  // Peak of a program with few microbatches. With `limit`, the search for a small arena may stop early (see Probe); nullopt: no
  // limit.
  Bytes Peak(int32_t stage, const std::vector<StagePolicy>& policies, std::optional<Bytes> limit);
  // PeakOfSlots finds the peak by sums over the slots of the schedule, PeakOfProgram by lowering a program.
  Bytes PeakOfSlots(int32_t stage, const std::vector<StagePolicy>& policies);
  Bytes PeakOfProgram(int32_t stage, const std::vector<StagePolicy>& policies, std::optional<Bytes> limit);
  enum class Probed : uint8_t { kLiveness, kArena };
  // Lowers a program with few microbatches. The arena is as small as the search makes it. In a long program with `limit`, the
  // search stops as soon as the arena is within the limit. If it is not, the arena is above the limit, but may not be the
  // smallest.
  MemoryPlan Probe(int32_t stage, const std::vector<StagePolicy>& policies, Probed probed,
                   std::optional<Bytes> limit = std::nullopt);
  // The problem without offloading.
  RecomputeProblem Problem(RecomputeMode mode, int32_t stage, const Part& part) const;
  const StageHeu& Heu(RecomputeMode mode, int32_t stage, const Part& part);
  // The problem with offloading; nullptr if the stage may not offload under the mode.
  const RecomputeProblem* OffloadProblem(RecomputeMode mode, int32_t stage, const Part& part);
  int32_t CopySlowdown(int32_t stage) const { return costs_.Of(stage).host_link().op_slowdown_permille; }
  const NamedUses& UsesOf(RecomputeMode mode, int32_t stage, SliceEnds ends);
  // Bytes of the rank's memory that are neither in HEU's model nor in LayerInputs: gradients, workspace, the tensors of the
  // embedding and the head. They are computed from the last peak found for the rank. There are separate values for plans
  // without windows, which must not depend on whether other plans were tried before, and for plans with offloading, for which
  // HEU's model is less exact.
  Bytes Fixed(RecomputeMode mode, int32_t stage);
  std::tuple<bool, bool, int32_t> FixedKey(RecomputeMode mode, int32_t stage) const {
    return {mode == RecomputeMode::kNoOverlap, offloading_, stage};
  }
  // Memory of the inputs of all layers for the microbatches in flight, and of what is held for the W of other microbatches. It
  // does not depend on the policy.
  Bytes LayerInputs(int32_t stage, int32_t layers) const;
  // The part of the limit that HEU may use, by the present value of Fixed.
  Bytes BudgetOf(RecomputeMode mode, int32_t stage, int32_t layers, Bytes limit);
  // The policy of a mode that is not heuristic. kUniform and kBlock use named_layers_.
  StagePolicy PolicyOf(RecomputeMode mode, int32_t layers) const;
  std::vector<StagePolicy> PoliciesOf(RecomputeMode mode, int32_t stage, int32_t layers) const;
  StageValue ValueOfNamed(RecomputeMode mode, int32_t stage, const Part& part);
  Estimate EstimateNamed(RecomputeMode mode, int32_t stage, int32_t layers);
  Estimate EstimateUniform(int32_t stage, int32_t layers);
  Estimate EstimateHeu(RecomputeMode mode, int32_t stage, int32_t layers);
  Bytes LeastOfHeu(RecomputeMode mode, int32_t stage, int32_t layers);
  StageValue EstimateOfPart(RecomputeMode mode, int32_t stage, const Part& part, Bytes budget);
  OffloadSolution BestOfPart(RecomputeMode mode, int32_t stage, const Part& part, Bytes budget);
  // Returns HEU's best policies for `budget`, and their estimated time and memory.
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
  std::vector<int32_t> in_flight_;  // per rank
  // per rank: further microbatches of which only the tensors that W reads are held
  std::vector<int32_t> for_weights_;
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
