// LayoutPlanner finds the fastest way to run one candidate (parallel layout and micro-batch) within its memory: how many layers
// each stage gets, and what each stage recomputes and where. Estimates (HEU's memory model, busy times) direct the search. A
// draft that is kept has been lowered, and its step has been simulated. Assemble also plans the arenas of its whole step.
//
// Not thread-safe. Keeps references to the request and the caches, which must outlive it.
#ifndef LYNX_PLANNER_STAGES_LAYOUT_PLANNER_H_
#define LYNX_PLANNER_STAGES_LAYOUT_PLANNER_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "planner/candidates/plan_caches.h"
#include "planner/candidates/search.h"
#include "planner/cost/simulate.h"
#include "planner/plan/plan.h"
#include "planner/schedule/schedule_timeline.h"
#include "planner/stages/partition.h"
#include "planner/stages/stage_oracle.h"

namespace lynx {

// A solution from which a plan can be assembled.
struct Draft {
  Candidate candidate;
  RecomputeMode mode = RecomputeMode::kNone;
  bool offloading = false;                         // whether the mode was allowed to offload
  std::vector<int32_t> layers;                     // per pipeline rank
  std::vector<std::vector<StagePolicy>> policies;  // per rank, for each of its virtual stages
  std::vector<Program> programs;
  Bytes peaks;  // sum of the stages' peaks, each for a program with few microbatches
  Simulation simulation;
  std::vector<std::optional<StageProof>> proofs;  // one per rank, or empty
};
// Orders by shorter step, then by less memory.
bool Faster(const Draft& a, const Draft& b);

// By how much a candidate exceeds its memory if it stores as little as its mode allows.
struct Shortfall {
  int32_t stage = 0;
  Bytes needed, limit;      // for the stage's arena
  Bytes states;             // model states of the stage
  bool offloading = false;  // the stage offloads; `needed` does not include the offloaded bytes
  Bytes excess() const { return needed - limit; }
};

// Estimate of a candidate's step; no program is lowered.
struct StepGuess {
  Nanos step;
  bool fits = false;  // seems to fit
};
constexpr bool operator<(const StepGuess& a, const StepGuess& b) { return a.fits != b.fits ? a.fits : a.step < b.step; }

class LayoutPlanner {
 public:
  LayoutPlanner(const PlanRequest& request, const Candidate& candidate, PlanCaches& caches);

  // Estimates the step by HEU and the schedule's timeline, under the request's recompute mode.
  StepGuess Guess();
  // The fastest draft that the planner finds under the request's recompute mode. nullopt if no draft fits, or if no draft
  // is expected to be faster than `to_beat`.
  std::optional<Draft> Best(Nanos to_beat);
  // Tries the partitions of the methods kCompute and kGreedy. Plans each with HEU and with HEU without windows, if the
  // request's mode allows them, and with the draft's mode if that names a policy or nothing else is allowed. nullopt if no
  // partition is faster.
  std::optional<Draft> TryBaselinePartitions(const Draft& draft);
  // Plans the draft's partition again and uses the time in which the draft's stages wait for gradients as an additional window.
  // nullopt if the result is no faster.
  std::optional<Draft> UseStalls(const Draft& draft);
  // Solves the stages of the draft's partition exactly with the request's solver. Takes the solutions of all stages together.
  // If this makes the step longer, takes the solution of each stage that alone does not make it longer. The result also has the
  // proofs.
  Draft SolveExact(Draft draft);
  // Plans the partition `layers` again, with the lower memory limits that Assemble has set since. nullopt if it no longer fits.
  std::optional<Draft> ReplanSamePartition(RecomputeMode mode, bool offloading, const std::vector<int32_t>& layers);
  // Returns the best draft without windows. First restores the limits that Assemble has lowered, because they apply to other
  // drafts. nullopt if the request's mode cannot use such a draft, or if no draft is expected to be faster than `to_beat`.
  std::optional<Draft> ReplanFreshWithoutOverlap(Nanos to_beat);
  // Does the same for the best draft of HEU without offloading.
  std::optional<Draft> ReplanFreshWithoutHost(Nanos to_beat);
  Shortfall LeastShortfall();
  // Number of actions in the programs that were simulated so far.
  int64_t simulated_actions() const { return simulated_actions_; }
  struct Limits {
    // Above this number of simulated actions, only the most promising drafts are simulated.
    int64_t many_actions = 1'000'000;
    // Above many_actions, the planner also leaves out variants that are often faster than estimated: HEU without windows, or
    // with stalls as windows.
    bool strict = false;
  };
  void SetLimits(const Limits& limits) { limits_ = limits; }
  bool MayTryVariants() const { return MaySimulateMore() || !limits_.strict; }

  // Makes the plan of a draft, with the arenas of the whole step (the search uses only peaks for few microbatches). nullopt if
  // an arena exceeds its limit, or if HEU offloads more than the rank's share of the host's memory. Then the limit of that
  // stage is lowered for the next draft.
  std::optional<Plan> Assemble(Draft draft);

 private:
  int32_t stages() const { return candidate_.layout.pp; }
  // The layers of each piece of the model, from the layers of each rank.
  std::vector<int32_t> PieceLayers(const std::vector<int32_t>& layers) const;
  std::vector<StageContext> Contexts(const std::vector<int32_t>& layers) const;
  Nanos StepBound(const std::vector<int64_t>& stage_costs) const;
  // The best partition for these costs. In a bidirectional pipeline two ranks hold each piece of the model, so ranks
  // cannot be balanced one by one; there all pieces are equal.
  std::optional<std::vector<int32_t>> Partition(const StageCost& cost, const StageLowerBound& floor) const;
  std::vector<int32_t> EqualPartition() const;
  PartitionMethod partition_method() const { return request_.spec.parallel.partition; }
  bool exact_partition() const { return partition_method() == PartitionMethod::kExact; }
  // The partition by a method other than kExact. In a bidirectional pipeline: the equal partition.
  std::vector<int32_t> BaselinePartition(PartitionMethod method, RecomputeMode mode);
  std::optional<Draft> DraftOfBaseline(RecomputeMode mode, Nanos to_beat);
  // Returns the balanced partition by estimated costs in which each stage has fewer layers than its entry in `ruled_out`.
  std::optional<std::vector<int32_t>> Balanced(RecomputeMode mode, const std::vector<int32_t>& ruled_out);
  std::optional<std::vector<int32_t>> SeemsTooMany(RecomputeMode mode);
  // The best of the partitions that seem to fit.
  std::optional<std::vector<int32_t>> SeemsBest(RecomputeMode mode);
  std::vector<StagePassTimes> GuessedPasses(const std::vector<int32_t>& layers, const std::vector<Nanos>& exposed) const;
  Nanos GuessedEnd(const std::vector<int32_t>& layers, const std::vector<StagePassTimes>& passes) const;
  std::optional<Draft> BestBlock(Nanos to_beat);
  std::optional<Draft> BestUniform(Nanos to_beat);
  // The largest N of kUniform that can be useful.
  int32_t MostGroup();
  StepGuess GuessOf(RecomputeMode mode);
  bool Promising(RecomputeMode mode, const std::vector<int32_t>& layers, Nanos to_beat);
  // True if every stage of the partition that balances busy times can store everything. No plan is faster then.
  bool StoresEverythingInBalance();
  bool MaySimulateMore() const { return simulated_actions_ < limits_.many_actions; }
  // True if the best policy without overlap can be the result under the request's mode.
  bool MayDoWithoutWindows() const;
  std::optional<Draft> BestOfStored(Nanos to_beat);
  std::optional<Draft> DraftOf(RecomputeMode mode, Nanos to_beat);
  // HEU's draft, with offloading if it is offered and may be faster than without.
  std::optional<Draft> DraftOfHeu(Nanos to_beat);
  bool OffloadingMayHelp(const std::vector<int32_t>& layers);
  // nullopt if a stage does not fit, or if these policies were already simulated and take `to_beat` or longer.
  std::optional<Draft> TryPartition(RecomputeMode mode, const std::vector<int32_t>& layers,
                                    std::optional<Nanos> to_beat = std::nullopt);
  const StagePlan* FindRefused(int32_t stage, const Program& program) const;
  // Lowers and simulates the draft's policies.
  void Run(Draft& draft);
  bool Adopt(const std::vector<std::optional<StageOracle::ExactFit>>& exact, const std::vector<int32_t>& stages, Draft& draft);

  const PlanRequest& request_;
  const Candidate candidate_;
  PlanCaches& caches_;
  StageOracle fits_;
  const int64_t delay_permille_;  // see LayerLowerBound
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
