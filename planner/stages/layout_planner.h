// LayoutPlanner finds the fastest way to run one candidate (parallel layout and micro-batch) within its memory: how many layers
// each stage gets, and what each stage recomputes and where. Estimates (HEU's memory model, busy times) guide the search. If
// the search keeps a draft, the draft has been lowered and its step has been simulated. Assemble also plans the arenas of the
// whole step.
//
// Not thread-safe. The object keeps references to the request and the caches, which must outlive it.
#ifndef LYNX_PLANNER_STAGES_LAYOUT_PLANNER_H_
#define LYNX_PLANNER_STAGES_LAYOUT_PLANNER_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "planner/candidates/plan_caches.h"
#include "planner/candidates/search.h"
#include "planner/cost/simulate.h"
#include "planner/plan/plan.h"
#include "planner/problem/shorter_steps.h"
#include "planner/schedule/transfer_timeline.h"
#include "planner/stages/partition.h"
#include "planner/stages/stage_oracle.h"

namespace lynx {

// A solution from which a plan can be assembled.
struct Draft {
  Candidate candidate;
  RecomputeMode mode = RecomputeMode::kNone;
  bool offloading = false;                         // true if the mode was allowed to offload
  std::vector<int32_t> layers;                     // one entry per pipeline rank
  std::vector<std::vector<StagePolicy>> policies;  // for each rank, one policy per virtual stage
  Nanos step;                                      // the time of the whole step, with all microbatches
  Bytes peaks;  // sum of the stages' peaks; each peak is that of a program with few microbatches
  // A step of `microbatches` microbatches. These are fewer than the candidate's if `step` follows from shorter steps
  // (planner/problem/shorter_steps.h).
  int32_t microbatches = 0;
  std::vector<Program> programs;
  Simulation simulation;
  // Only if `step` follows from shorter steps: the simulation of the shortest one, and the number of its actions.
  Simulation simulation_of_fewer;
  int64_t actions_of_fewer = 0;
  std::vector<std::optional<StageProof>> proofs;  // one entry per rank, or no entries

  int64_t actions() const;  // number of actions in the programs
};
// True if `a` has a shorter step than `b`, or the same step and less memory.
bool Faster(const Draft& a, const Draft& b);

// How many bytes a candidate lacks if it stores as little as its mode allows.
struct Shortfall {
  int32_t stage = 0;
  Bytes needed, limit;      // bytes of the arena of the stage
  Bytes states;             // model states of the stage
  bool offloading = false;  // true if the stage offloads; `needed` does not contain the offloaded bytes
  Bytes excess() const { return needed - limit; }
};

// Estimate of a candidate's step; no program is lowered.
struct StepGuess {
  Nanos step;
  bool fits = false;  // true if the candidate seems to fit
};
constexpr bool operator<(const StepGuess& a, const StepGuess& b) { return a.fits != b.fits ? a.fits : a.step < b.step; }

class LayoutPlanner {
 public:
  LayoutPlanner(const PlanRequest& request, const Candidate& candidate, PlanCaches& caches);

  // Estimates the step under the request's recompute mode, with HEU and the schedule's timeline.
  StepGuess Guess();
  // Returns the fastest draft that the planner finds under the request's recompute mode. nullopt if no draft fits, or if no
  // draft is expected to be faster than `to_beat`.
  std::optional<Draft> Best(Nanos to_beat);
  // Tries the partitions of the methods kCompute and kGreedy. Plans each with HEU and with HEU without windows, if the
  // request's mode allows these. Plans each with the draft's mode if this mode names a policy, or if the request allows nothing
  // else. nullopt if no partition is faster than the draft.
  std::optional<Draft> TryBaselinePartitions(const Draft& draft);
  // Plans the draft's partition again. The time in which the draft's stages wait for gradients is then an additional window.
  // nullopt if the result is not faster.
  std::optional<Draft> UseStalls(const Draft& draft);
  // Makes the peaks of woven programs exact (see StageOracle). To be called for a candidate that seems not to fit.
  void LowerPeaksOfWoven() { fits_.LowerPeaksOfWoven(); }
  // Weaves the draft's programs again, with the same tuning (planner/lower/weave.h) for all stages, and tries every tuning. (A
  // stage alone does not know when other stages send.) Returns the fastest result if it is faster than the draft, and keeps its
  // tuning for everything that follows; otherwise returns nullopt.
  std::optional<Draft> TryTunings(const Draft& draft);
  // Solves the stages of the draft's partition exactly with the request's solver. First takes the solutions of all stages
  // together. If this makes the step longer, tries the solutions one by one and takes those that do not make the step longer.
  // The result also has the proofs.
  Draft SolveExact(Draft draft);
  // Plans the partition `layers` again, with the memory limits that Assemble has lowered in the meantime. nullopt if it no
  // longer fits.
  std::optional<Draft> ReplanSamePartition(RecomputeMode mode, bool offloading, const std::vector<int32_t>& layers);
  // Returns the best draft without windows. First restores the limits that Assemble has lowered, because they are for other
  // drafts. nullopt if the request's mode cannot use such a draft, or if no draft is expected to be faster than `to_beat`.
  std::optional<Draft> ReplanFreshWithoutOverlap(Nanos to_beat);
  // Also restores the limits first. Returns the best draft of HEU without offloading. nullopt if no draft is expected to be
  // faster than `to_beat`.
  std::optional<Draft> ReplanFreshWithoutHost(Nanos to_beat);
  Shortfall LeastShortfall();
  // Number of actions in the programs that were simulated so far.
  int64_t simulated_actions() const { return simulated_actions_; }
  // Number of times that HEU has made policies for a stage so far.
  int64_t solved_stages() const { return fits_.solved(); }
  struct Limits {
    // If more actions than this have been simulated, only the most promising drafts are simulated.
    int64_t many_actions = 1'000'000;
    // If true, the planner above many_actions also leaves out variants that are often faster than estimated: HEU without
    // windows, and HEU with stalls as windows.
    bool strict = false;
  };
  void SetLimits(const Limits& limits) { limits_ = limits; }
  bool MayTryVariants() const { return MaySimulateMore() || !limits_.strict; }

  // Makes the plan of a draft, with the arenas of the whole step. (The search uses only peaks for few microbatches.) nullopt if
  // an arena exceeds its limit, or if HEU offloads more than the rank's share of the host's memory. Then the limit of that
  // stage is lowered for the next draft.
  std::optional<Plan> Assemble(Draft draft);

 private:
  int32_t stages() const { return candidate_.layout.pp; }
  // Returns the number of layers of each piece of the model, given the number of layers of each rank.
  std::vector<int32_t> PieceLayers(const std::vector<int32_t>& layers) const;
  std::vector<StageContext> Contexts(const std::vector<int32_t>& layers, int32_t microbatches) const;
  Nanos StepBound(const std::vector<int64_t>& stage_costs) const;
  // The best partition for these costs. In a bidirectional pipeline, two ranks hold each piece of the model, so ranks cannot be
  // balanced one by one. There all pieces have an equal number of layers. If the job says the layers of each piece, there is
  // also only one partition. It is then nullopt if a stage has no cost.
  std::optional<std::vector<int32_t>> Partition(const StageCost& cost, const StageLowerBound& floor) const;
  // The partition that the job pins, or the one with an equal number of layers in each piece.
  std::vector<int32_t> EqualPartition() const;
  // The layers of each piece that the job pins; may be empty.
  const std::vector<int32_t>& pinned_layers() const { return request_.spec.parallel.stage_layers; }
  bool has_one_partition() const { return fits_.pipeline().bidirectional() || !pinned_layers().empty(); }
  PartitionMethod partition_method() const { return request_.spec.parallel.partition; }
  bool exact_partition() const { return partition_method() == PartitionMethod::kExact; }
  // The partition of a method other than kExact. If there is only one partition: this one.
  std::vector<int32_t> BaselinePartition(PartitionMethod method, RecomputeMode mode);
  std::optional<Draft> DraftOfBaseline(RecomputeMode mode, Nanos to_beat);
  // Returns the balanced partition by estimated costs in which each stage has fewer layers than its entry in `ruled_out`.
  std::optional<std::vector<int32_t>> Balanced(RecomputeMode mode, const std::vector<int32_t>& ruled_out);
  std::optional<std::vector<int32_t>> SeemsTooMany(RecomputeMode mode);
  // The best partition among those that seem to fit.
  std::optional<std::vector<int32_t>> SeemsBest(RecomputeMode mode);
  std::vector<TransferPassTimes> GuessedPasses(const std::vector<int32_t>& layers, const std::vector<Nanos>& exposed) const;
  Nanos GuessedEnd(const std::vector<int32_t>& layers, const std::vector<TransferPassTimes>& passes) const;
  std::optional<Draft> BestBlock(Nanos to_beat);
  std::optional<Draft> BestUniform(Nanos to_beat);
  // The largest N of kUniform that can be of use.
  int32_t MostGroup();
  StepGuess GuessOf(RecomputeMode mode);
  bool Promising(RecomputeMode mode, const std::vector<int32_t>& layers, Nanos to_beat);
  // True if every stage of the partition that balances busy times can store everything. Then no plan is faster.
  bool StoresEverythingInBalance();
  bool MaySimulateMore() const { return simulated_actions_ < limits_.many_actions; }
  // True if a plan without windows is allowed as the result for the request's mode.
  bool MayDoWithoutWindows() const;
  std::optional<Draft> BestOfStored(Nanos to_beat);
  std::optional<Draft> DraftOf(RecomputeMode mode, Nanos to_beat);
  // HEU's best draft. If the planner may offload and offloading may be faster, drafts with offloading are also tried.
  std::optional<Draft> DraftOfHeu(Nanos to_beat);
  std::optional<Nanos> SlowestWithOffloading(const std::vector<int32_t>& layers);
  // Plans and simulates one partition. nullopt if a stage does not fit, or if these policies have already been simulated and
  // take `to_beat` or longer.
  std::optional<Draft> TryPartition(RecomputeMode mode, const std::vector<int32_t>& layers,
                                    std::optional<Nanos> to_beat = std::nullopt);
  const StagePlan* FindRefused(int32_t stage, const Program& program) const;
  // Lowers and simulates the draft's policies. If the step has very many microbatches, simulates two shorter steps.
  void Run(Draft& draft);
  // Simulates a step of this number of microbatches.
  void Run(Draft& draft, int32_t microbatches);
  bool MayShorten(const Draft& draft) const;
  StageTimes WholeTimes(const Draft& draft, size_t stage) const;
  bool Adopt(const std::vector<std::optional<StageOracle::ExactFit>>& exact, const std::vector<int32_t>& stages, Draft& draft);

  const PlanRequest& request_;
  const Candidate candidate_;
  PlanCaches& caches_;
  StageOracle fits_;
  std::optional<Nanos> step_without_host_;     // the step of DraftOfHeu's newest draft without offloading
  const int64_t delay_permille_;               // see LayerLowerBound
  const std::optional<ShorterSteps> shorter_;  // shorter steps that are simulated in place of the whole step
  int64_t simulated_actions_ = 0;
  Limits limits_;
  struct KnownStep {
    std::vector<int32_t> layers;
    std::vector<std::vector<StagePolicy>> policies;
    Nanos step;
  };
  std::vector<KnownStep> steps_;    // all partitions and policies that were simulated
  std::vector<StagePlan> refused_;  // stages of the last plan that Assemble refused because a stage was too large
};

}  // namespace lynx

#endif  // LYNX_PLANNER_STAGES_LAYOUT_PLANNER_H_
