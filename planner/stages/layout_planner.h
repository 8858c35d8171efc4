// LayoutPlanner: the fastest way to run one candidate (parallel layout and micro-batch) within its memory: how many
// layers each stage gets and what each of them recomputes where. Estimates (HEU's model of memory, busy times) lead
// the search; what is kept has been lowered, its arena planned and its step simulated.
//
// Not thread-safe; keeps references to the request and the caches, which outlive it.
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

// What remains to be assembled into a plan.
struct Draft {
  Candidate candidate;
  RecomputeMode mode = RecomputeMode::kNone;
  bool offloading = false;                         // whether the mode could send tensors to the host
  std::vector<int32_t> layers;                     // of each pipeline rank
  std::vector<std::vector<StagePolicy>> policies;  // of each rank's virtual stages
  std::vector<Program> programs;
  Bytes peaks;  // sum over stages, of a program with few microbatches
  Simulation simulation;
  std::vector<std::optional<StageProof>> proofs;  // of each rank, or none at all
};
// Shorter step, then less memory.
bool Faster(const Draft& a, const Draft& b);

// How far a candidate is from fitting, with as little stored as its mode allows.
struct Shortfall {
  int32_t stage = 0;
  Bytes needed, limit;      // of the stage's arena
  Bytes states;             // of the stage
  bool offloading = false;  // what goes to the host is not in it
  Bytes excess() const { return needed - limit; }
};

// A candidate's step by estimates: no program is lowered.
struct StepGuess {
  Nanos step;
  bool fits = false;  // seems to
};
constexpr bool operator<(const StepGuess& a, const StepGuess& b) { return a.fits != b.fits ? a.fits : a.step < b.step; }

class LayoutPlanner {
 public:
  LayoutPlanner(const PlanRequest& request, const Candidate& candidate, PlanCaches& caches);

  // By HEU's estimates and the schedule's timeline, under the request's recompute mode.
  StepGuess Guess();
  // The fastest draft that the planner finds under the request's recompute mode; nullopt when none fits, or none
  // promises to be faster than `to_beat`.
  std::optional<Draft> Best(Nanos to_beat);
  // With the draft's mode, HEU's or without windows, in the partitions that the baselines would choose; nullopt if none is
  // faster.
  std::optional<Draft> TryBaselinePartitions(const Draft& draft);
  // Plans the draft's partition again with what the draft's stages wait for gradients as a window of its own; nullopt
  // if that is no faster.
  std::optional<Draft> UseStalls(const Draft& draft);
  // The draft with its partition's stages solved exactly by the request's solver, all of them or, where that is slower,
  // each that is not; and with what is proven of it.
  Draft SolveExact(Draft draft);
  // The same partition, with what Assemble has found out since; nullopt if it no longer fits.
  std::optional<Draft> ReplanSamePartition(RecomputeMode mode, bool offloading, const std::vector<int32_t>& layers);
  // The best draft that does without windows, forgetting what Assemble has found out: that was about other drafts.
  // nullopt where the request's mode does not come to it, or nothing promises to be faster than `to_beat`.
  std::optional<Draft> ReplanFreshWithoutOverlap(Nanos to_beat);
  // The same of the best draft of HEU that sends nothing to the host.
  std::optional<Draft> ReplanFreshWithoutHost(Nanos to_beat);
  Shortfall LeastShortfall();
  // Actions in the programs that were simulated so far.
  int64_t simulated_actions() const { return simulated_actions_; }
  struct Limits {
    // Beyond so many actions in simulated programs, only what promises most is simulated.
    int64_t many_actions = 1'000'000;
    // Then also what often turns out faster than it promises is left out: HEU without windows, or with stalls as windows.
    bool strict = false;
  };
  void SetLimits(const Limits& limits) { limits_ = limits; }
  bool MayTryVariants() const { return MaySimulateMore() || !limits_.strict; }

  // The plan, with the arenas of the whole step. nullopt if one of them exceeds its limit (the search looks at peaks
  // of few microbatches only), or what HEU sends to the host its share; the planner then asks less of that stage next time.
  std::optional<Plan> Assemble(Draft draft);

 private:
  int32_t stages() const { return candidate_.layout.pp; }
  // What each piece of the model gets where the ranks have so many layers.
  std::vector<int32_t> PieceLayers(const std::vector<int32_t>& layers) const;
  std::vector<StageContext> Contexts(const std::vector<int32_t>& layers) const;
  Nanos StepBound(const std::vector<int64_t>& stage_costs) const;
  // The best partition for such costs. In a bidirectional pipeline a piece of the model is on two ranks, so that ranks
  // cannot be balanced one by one: there the pieces are equal.
  std::optional<std::vector<int32_t>> Partition(const StageCost& cost, const StageFloor& floor) const;
  std::vector<int32_t> EqualPartition() const;
  PartitionMethod partition_method() const { return request_.spec.parallel.partition; }
  bool exact_partition() const { return partition_method() == PartitionMethod::kExact; }
  // By a method that is not kExact. In a bidirectional pipeline the equal one.
  std::vector<int32_t> BaselinePartition(PartitionMethod method, RecomputeMode mode);
  std::optional<Draft> DraftOfBaseline(RecomputeMode mode, Nanos to_beat);
  // By estimated costs, with fewer layers on each stage than those ruled out.
  std::optional<std::vector<int32_t>> Balanced(RecomputeMode mode, const std::vector<int32_t>& ruled_out);
  std::optional<std::vector<int32_t>> SeemsTooMany(RecomputeMode mode);
  // The best partition of those that seem to fit.
  std::optional<std::vector<int32_t>> SeemsBest(RecomputeMode mode);
  std::vector<StagePassTimes> GuessedPasses(const std::vector<int32_t>& layers, const std::vector<Nanos>& exposed) const;
  Nanos GuessedEnd(const std::vector<int32_t>& layers, const std::vector<StagePassTimes>& passes) const;
  std::optional<Draft> BestBlock(Nanos to_beat);
  std::optional<Draft> BestUniform(Nanos to_beat);
  // N of kUniform beyond which there is no use.
  int32_t MostGroup();
  StepGuess GuessOf(RecomputeMode mode);
  bool Promising(RecomputeMode mode, const std::vector<int32_t>& layers, Nanos to_beat);
  // Whether every stage of the partition that balances busy times has room for everything: nothing is faster then.
  bool StoresEverythingInBalance();
  bool MaySimulateMore() const { return simulated_actions_ < limits_.many_actions; }
  // Whether the request's mode may come to the best policy without overlap.
  bool MayDoWithoutWindows() const;
  std::optional<Draft> BestOfStored(Nanos to_beat);
  std::optional<Draft> DraftOf(RecomputeMode mode, Nanos to_beat);
  // HEU's, with offloading where it is offered and may be faster than without.
  std::optional<Draft> DraftOfHeu(Nanos to_beat);
  bool OffloadingMayHelp(const std::vector<int32_t>& layers);
  // nullopt also where its policies are known to take `to_beat` or longer.
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
  std::vector<KnownStep> steps_;    // of all that was simulated
  std::vector<StagePlan> refused_;  // of the last plan that Assemble found to be too large somewhere
};

}  // namespace lynx

#endif  // LYNX_PLANNER_STAGES_LAYOUT_PLANNER_H_
