// StageOracle answers questions about each pipeline rank of one candidate (parallel layout and micro-batch): if the rank has a
// given number of layers, what would it recompute, and what would this cost? It gives quick estimates for the search, and
// policies whose peak is known to fit. It does not lower or simulate a step.
//
// Virtual stages. A rank's layers are distributed evenly over its virtual stages. Each virtual stage is solved as a stage of
// its own. It gets an equal part of the rank's microbatches in flight, and a share of the memory in proportion to its layers.
// If a rank serves two copies of the model (a bidirectional pipeline), times are averages over both, because a microbatch
// passes through one of them.
//
// Offloading. HEU's policies may offload tensors if the request lets the planner choose the tensors (OffersOffloading) and
// SetOffloading allows offloading, on stages whose devices and hosts support it (stage_offload.h).
//
// Not thread-safe. The object keeps references to the request and the caches, which must outlive it.
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

// Estimated cost of a stage that seems not to fit: this number plus the missing memory in bytes. The number is above the cost
// of any stage that fits, and sums over a thousand stages stay within 64 bits. An estimate does not prove that a stage does not
// fit; only the exact peak of the stage does.
inline constexpr int64_t kSeemsNotToFit = int64_t{1} << 52;

// True if HEU, the heuristic solver (planner/recompute/stage_heu.h), makes the policies of the mode, with or without windows.
constexpr bool IsHeuristic(RecomputeMode mode) { return mode == RecomputeMode::kAuto || mode == RecomputeMode::kNoOverlap; }

class StageOracle {
 public:
  struct Fit {
    std::vector<StagePolicy> policies;  // one for each virtual stage of the rank; the index is the chunk
    Nanos exposed;                      // per microbatch, by HEU's model; contains the slowdown by copies
    Bytes peak;
  };

  StageOracle(const PlanRequest& request, const Candidate& candidate, PlanCaches& caches);

  int32_t stages() const { return candidate_.layout.pp; }
  const StageCosts& costs() const { return costs_; }
  const LayerGraph& graph() const { return graph_; }
  const LayerShape& shape() const { return shape_; }

  const PipelineShape& pipeline() const { return pipeline_; }
  // Time of the forward and backward pass of one microbatch, without recomputation.
  Nanos BusyTime(int32_t stage, int32_t layers) const;
  StateBytes States(int32_t stage, int32_t layers) const;
  // The limit for the arena of a stage with this number of layers. nullopt: no limit.
  std::optional<Bytes> Limit(int32_t stage, int32_t layers) const;
  // Returns the limit for a rank whose layers are known. It differs only if some layers of the model have no experts, and the
  // rank has another number of them than Context assumes.
  std::optional<Bytes> Limit(const StageContext& context) const;
  Bytes reserve(int32_t stage) const { return reserves_[static_cast<size_t>(stage)]; }
  // Must be called when the arena of a stage has turned out to exceed its limit by `bytes`. From then on, the stage's limit is
  // lower by this amount, or peaks are found by lowering instead of sums. Forgets the fits of the stage, or all of them.
  void Reserve(int32_t stage, Bytes bytes);
  // Undoes the effect of all calls of Reserve on the limits. Forgets all fits.
  void ForgetReserves();
  // Sets how long, on each stage, the backward of a microbatch waits for its gradient. Recomputation can also run during this
  // wait. Forgets all fits.
  void SetStalls(std::vector<Nanos> stalls);
  // From now on, peaks of woven programs come from lowered programs, which are exact, and no longer from slots.
  void LowerPeaksOfWoven();
  // Sets the tuning of all woven programs from now on (planner/lower/weave.h). nullopt: the best for each program by itself.
  void SetTuning(std::optional<int32_t> tuning) { tuning_ = tuning; }
  // True if the live bytes of the program never exceed the stage's limit.
  bool WithinLimit(const StageContext& context, const Program& program) const;
  // True if some stage can offload and the request lets the planner choose the tensors.
  bool OffersOffloading() const;
  // Sets whether HEU may offload from now on, on the stages that can offload. At the beginning, it may not.
  void SetOffloading(bool offloading) { offloading_ = offloading; }
  bool offloading() const { return offloading_; }
  // Sets the time per microbatch up to which a stage does not offload, because others take longer. At the beginning 0. Forgets
  // the fits with offloading.
  void OffloadAbove(Nanos cost);
  // The share of the host's memory that each rank of the stage gets, if the activations take `activations` bytes of its device.
  // 0: no memory, or an unknown amount.
  Bytes HostShare(int32_t stage, int32_t layers, Bytes activations) const;
  // Must be called when a stage's program with these policies has turned out to take `taken` bytes of the host's memory, which
  // is more than `share`. From then on, HEU gets less host memory, so that these policies no longer fit. Forgets the fits of
  // the stage.
  void ReserveHost(int32_t stage, const std::vector<StagePolicy>& policies, Bytes taken, Bytes share);
  // Sets N, the parameter of kUniform and kBlock (RecomputeOptions::layers). At the beginning, N is the request's value.
  void SetNamedLayers(int32_t layers);

  // The program of a stage with these policies: lowered, and woven within the stage's limit if the layout says so. `slots` are
  // of this rank, for the context's number of microbatches.
  Program Lower(const StageContext& context, const std::vector<RankSlot>& slots,
                const std::vector<StagePolicy>& policies) const;

  // Returns the N of kUniform (the number of layers in a group) for which the estimated memory is smallest. A larger N takes
  // more time and does not save memory.
  int32_t LeastMemoryGroup(int32_t stage, int32_t layers);

  // True if the request allows the mode.
  bool Allowed(RecomputeMode mode) const;
  // The mode whose estimates are used for the request's mode. For kBlock this is kNoOverlap, which mixes the same policies in a
  // better way.
  RecomputeMode EstimatedMode() const;
  // BusyTime plus the exposed recomputation, per microbatch. At least kSeemsNotToFit if the stage seems not to fit.
  int64_t EstimatedCost(RecomputeMode mode, int32_t stage, int32_t layers);
  // True if EstimatedCost is below kSeemsNotToFit. It is usually faster than a call of EstimatedCost.
  bool SeemsToFit(RecomputeMode mode, int32_t stage, int32_t layers);
  // True if the mode's policy may fit. This is an estimate that allows for errors. `mode` must not be heuristic (see
  // IsHeuristic).
  bool MayFit(RecomputeMode mode, int32_t stage, int32_t layers);
  // Returns the policies of the mode, if their peak fits. nullopt: no policy of the mode fits.
  const std::optional<Fit>& FitOf(RecomputeMode mode, int32_t stage, int32_t layers);
  struct ExactFit {
    std::optional<Fit> fit;  // set if its policies have less exposed time than the known policies
    // `known`: exposed time of the known policies. `bound`: lower bound for all policies that take at most as much memory
    Nanos known, bound;
    bool stopped = false;  // the solver ran out of time
  };
  // Number of times that HEU has made policies for a stage, for FitOf or LeastArena; one with offloading counts as several.
  // Most of the search's time goes into these.
  int64_t solved() const { return solved_; }
  // Solves the stage exactly, to find policies that are better than `known`. The policies `known` must fit. nullopt: there is
  // no memory limit, the model cannot express `known`, or the solver fails.
  std::optional<ExactFit> FitExact(const StageSolver& solver, int32_t stage, const std::vector<StagePolicy>& known);
  // The least memory that the request's mode needs. For most modes, this is the memory of the mode's own policy. For a mode
  // whose policies HEU makes (auto, heu, opt), it is the smallest memory of HEU's policies and of both ways to recompute
  // everything. If `estimate`, the memory is estimated; otherwise the result is the size of the arena.
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
  // The memory and time of a stage's layers under a mode with the same policy for all layers. All layers except the top layer
  // have the same values.
  struct NamedUses {
    RecomputeProblem problem;
    LayerUse inner, top;
    // Values of a stage with one, two and three layers. Each further layer adds the difference between the third and the second
    // value.
    std::array<StageValue, 3> values;
  };

  void ForgetFits(int32_t stage);
  std::vector<Part> PartsOf(int32_t stage, int32_t layers) const;
  // A context for one rank. The layers of the other ranks are not known. So the slices have the right number of layers, but the
  // indices of these layers start at 0. If only some layers of the model have experts, the indices are computed in another way:
  // for each piece of the rank, they assume that every earlier piece has as many layers as this piece.
  StageContext Context(int32_t stage, int32_t layers) const;
  // The first layer of a piece of the model if every piece before it had this number of layers, or those that the job says.
  int32_t FirstLayerOf(int32_t piece, int32_t layers) const;
  // Number of layers of the rank that have no experts, if other layers of the model have them; see Context.
  int32_t DenseLayersOf(int32_t stage, int32_t layers) const;
  // Number of microbatches whose activations one virtual stage of the rank holds: the largest number that the rank holds at any
  // time over all its virtual stages, divided by the number of virtual stages and rounded up.
  int32_t InFlightOf(int32_t stage) const { return in_flight_[static_cast<size_t>(stage)]; }
  // Peak of a program with few microbatches. If there is a `limit`, the search for a small arena may stop early (see Probe).
  // nullopt: no limit.
  Bytes Peak(int32_t stage, const std::vector<StagePolicy>& policies, std::optional<Bytes> limit);
  enum class Probed : uint8_t { kLiveness, kArena };
  // PeakOfSums finds the peak by sums over microbatches in flight, as if all layers had experts if any has: by StagePeaks, or
  // by PeakOfSlots over the slots of the schedule. The policies must pass StoresAlike. PeakOfProgram finds it by lowering a
  // program: the peak of the live bytes, or the size of the arena.
  Bytes PeakOfSums(int32_t stage, const std::vector<StagePolicy>& policies);
  Bytes PeakOfSlots(int32_t stage, const std::vector<StagePolicy>& policies);
  Bytes PeakOfProgram(int32_t stage, const std::vector<StagePolicy>& policies, Probed probed, std::optional<Bytes> limit);
  // The program whose memory Probe computes.
  Program LowerToProbe(const StageContext& context, const std::vector<RankSlot>& slots,
                       const std::vector<StagePolicy>& policies, std::optional<Bytes> limit);
  // Lowers a program with few microbatches. The arena is as small as the search can make it. In a long program with a `limit`,
  // the search stops as soon as the arena is within the limit. If the arena is above the limit, it may not be the smallest
  // possible one.
  MemoryPlan Probe(int32_t stage, const std::vector<StagePolicy>& policies, Probed probed,
                   std::optional<Bytes> limit = std::nullopt);
  // The problem of a virtual stage without offloading.
  RecomputeProblem Problem(RecomputeMode mode, int32_t stage, const Part& part) const;
  const StageHeu& Heu(RecomputeMode mode, int32_t stage, const Part& part);
  // The problem of a virtual stage with offloading; nullptr if the stage may not offload under the mode.
  const RecomputeProblem* OffloadProblem(RecomputeMode mode, int32_t stage, const Part& part);
  int32_t CopySlowdown(int32_t stage) const { return costs_.Of(stage).host_link().op_slowdown_permille; }
  const NamedUses& UsesOf(RecomputeMode mode, int32_t stage, SliceEnds ends);
  // Bytes of the rank's memory that are neither in HEU's model nor in LayerInputs: gradients, workspace, the tensors of the
  // embedding and the head. They are computed from the last peak that was found for the rank. Plans without windows have a
  // separate value, which must not depend on whether other plans were tried before. Plans with offloading also have a separate
  // value, because HEU's model is less exact for them.
  Bytes Fixed(RecomputeMode mode, int32_t stage);
  std::tuple<bool, bool, int32_t> FixedKey(RecomputeMode mode, int32_t stage) const {
    return {mode == RecomputeMode::kNoOverlap, offloading_, stage};
  }
  // Memory of the inputs of all layers for the microbatches in flight, and of what the pending weight-gradient passes (W) of
  // other microbatches need. This memory does not depend on the policy.
  Bytes LayerInputs(int32_t stage, int32_t layers) const;
  // The part of the limit that HEU may use. It follows from the present value of Fixed.
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
  const PlanCaches::ScheduleFacts* facts_ = nullptr;  // facts of the whole step or, if it is very long, of a shorter step
  StagePeaks& peaks_;
  std::vector<int32_t> in_flight_;  // one entry per rank
  // for each rank, the number of further microbatches of which only the inputs of the weight-gradient pass (W) are held
  std::vector<int32_t> for_weights_;
  std::vector<std::array<Nanos, kLayerTypeCount>> busy_times_;  // for each stage and layer type, the time of the forward and
                                                                // backward pass of a layer
  std::vector<Nanos> dense_busy_times_;                         // for each stage, as busy_times_, for a layer without experts
  std::vector<Bytes> device_memory_;                            // one entry per stage; 0 = unknown
  std::vector<Nanos> stalls_;                                   // for each stage, the stall per microbatch
  std::vector<Bytes> reserves_;                                 // for each stage, the bytes that are subtracted from the limit
  int32_t named_layers_;
  bool lowers_peaks_ = false;
  std::optional<int32_t> tuning_;  // see SetTuning
  // The tuning of probed woven programs. `least`: no tuning needs less memory.
  struct ProbeTuning {
    int32_t tuning = 0;
    bool least = false;
  };
  std::map<int32_t, ProbeTuning> tunings_;  // the key is the stage
  // the key is stage, probed, limit, policies
  std::map<std::tuple<int32_t, Probed, Bytes, std::vector<LayerPolicy>>, Bytes> lowered_peaks_;
  bool offloading_ = false;
  int64_t solved_ = 0;
  Nanos offload_above_;
  // For each stage: host memory that each virtual stage may use, if all stages have an equal number of layers. 0: the stage
  // cannot or may not offload.
  std::vector<Bytes> host_memory_;
  std::map<std::tuple<int32_t, int32_t, bool>, RecomputeProblem> offload_problems_;  // the key is stage, layers, whether it has
                                                                                     // the head
  std::map<std::tuple<bool, bool, int32_t>, Bytes> fixed_;                           // the key is FixedKey
  std::map<std::tuple<RecomputeMode, int32_t, int32_t, bool>, const StageHeu*> heus_;
  std::map<std::tuple<RecomputeMode, int32_t, bool>, NamedUses> named_;
  std::map<std::tuple<RecomputeMode, int32_t, int32_t, bool>, std::optional<Fit>> fits_;  // the last part of the key: with
                                                                                          // offloading
};

}  // namespace lynx

#endif  // LYNX_PLANNER_STAGES_STAGE_ORACLE_H_
