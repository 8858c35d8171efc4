#include "planner/stages/layout_planner.h"

#include <algorithm>
#include <limits>
#include <set>
#include <tuple>

#include "common/check.h"
#include "planner/lower/lower.h"
#include "planner/lower/weave.h"
#include "planner/problem/layout_schedule.h"
#include "planner/problem/shorter_steps.h"
#include "planner/problem/stage_context.h"
#include "planner/stages/partition.h"

namespace lynx {
namespace {

constexpr int kSimulatedPartitions = 3;
// The StepBound of a partition is computed from estimated stage times. A partition is dropped if this percentage of its bound
// is not shorter than the step to beat. It is below 100, because HEU's estimates have errors.
constexpr int64_t kEstimateAllowancePercent = 98;

// Offloading is planned for a partition only if it saves at least 1 / kNoticeableShare of the stages' time.
constexpr int64_t kNoticeableShare = 200;

constexpr std::array kNamedModes = {RecomputeMode::kNone, RecomputeMode::kBalanced, RecomputeMode::kSelective,
                                    RecomputeMode::kFullKeepCollectives, RecomputeMode::kFull};

// True if a plan of HEU is allowed as the result for the request's mode `wanted`.
bool MayOverlap(RecomputeMode wanted) {
  return wanted == RecomputeMode::kAuto || wanted == RecomputeMode::kHeu || wanted == RecomputeMode::kOpt;
}

}  // namespace

bool Faster(const Draft& a, const Draft& b) { return std::tie(a.step, a.peaks) < std::tie(b.step, b.peaks); }

LayoutPlanner::LayoutPlanner(const PlanRequest& request, const Candidate& candidate, PlanCaches& caches)
    : request_(request), candidate_(candidate), caches_(caches), fits_(request, candidate_, caches),
      delay_permille_(caches.Floor(candidate).delay_permille(DelaysWeights(candidate.layout))),
      shorter_(ShorterStepsOf(candidate.layout, candidate.microbatches)) {}

std::vector<int32_t> LayoutPlanner::PieceLayers(const std::vector<int32_t>& layers) const {
  const PipelineShape& pipeline = fits_.pipeline();
  if (!pinned_layers().empty()) return pinned_layers();
  if (pipeline.bidirectional()) return EvenPartition(pipeline.pieces(), request_.spec.model.layers);
  std::vector<int32_t> pieces(static_cast<size_t>(pipeline.pieces()));
  for (int32_t rank = 0; rank < stages(); ++rank) {
    const std::vector<int32_t> parts = EvenPartition(pipeline.chunks, layers[rank]);
    for (int32_t chunk = 0; chunk < pipeline.chunks; ++chunk) {
      pieces[pipeline.PieceOf(pipeline.StageOn(rank, chunk))] = parts[chunk];
    }
  }
  return pieces;
}

std::vector<StageContext> LayoutPlanner::Contexts(const std::vector<int32_t>& layers, int32_t microbatches) const {
  return PipelineContexts(request_.spec.model, candidate_.layout, candidate_.micro_batch, microbatches, PieceLayers(layers));
}

std::vector<int32_t> LayoutPlanner::EqualPartition() const {
  if (!pinned_layers().empty()) return RankLayers(fits_.pipeline(), pinned_layers());
  const std::vector<int32_t> equal = EvenPartition(stages(), request_.spec.model.layers);
  if (!fits_.pipeline().bidirectional()) return equal;
  std::vector<int32_t> both;
  for (int32_t rank = 0; rank < stages(); ++rank) both.push_back(equal[rank] + equal[stages() - 1 - rank]);
  return both;
}

std::optional<std::vector<int32_t>> LayoutPlanner::Partition(const StageCost& cost, const StageLowerBound& floor) const {
  if (has_one_partition()) {
    const std::vector<int32_t> equal = EqualPartition();
    for (int32_t rank = 0; rank < stages(); ++rank) {
      if (!cost(rank, equal[rank])) return std::nullopt;
    }
    return equal;
  }
  const auto with_all_chunks = [&](int32_t rank, int32_t layers) -> std::optional<int64_t> {
    if (layers < fits_.pipeline().chunks) return std::nullopt;
    return cost(rank, layers);
  };
  return BalancedPartition(stages(), request_.spec.model.layers, with_all_chunks, floor);
}

std::vector<int32_t> LayoutPlanner::BaselinePartition(PartitionMethod method, RecomputeMode mode) {
  const std::vector<int32_t> equal = EqualPartition();
  if (has_one_partition() || method == PartitionMethod::kEven) return equal;
  if (method == PartitionMethod::kCompute) {
    const auto busy = [&](int32_t stage, int32_t count) { return fits_.BusyTime(stage, count).value; };
    return Partition(busy, busy).value_or(equal);
  }
  return GreedyPartition(equal, fits_.pipeline().chunks,
                         [&](int32_t stage, int32_t count) { return fits_.EstimatedCost(mode, stage, count); });
}

std::optional<std::vector<int32_t>> LayoutPlanner::Balanced(RecomputeMode mode, const std::vector<int32_t>& ruled_out) {
  return Partition(
      [&](int32_t stage, int32_t count) -> std::optional<int64_t> {
        if (count >= ruled_out[stage]) return std::nullopt;
        return fits_.EstimatedCost(mode, stage, count);
      },
      [&](int32_t stage, int32_t count) {
        return count >= ruled_out[stage] ? std::numeric_limits<int64_t>::max() : fits_.BusyTime(stage, count).value;
      });
}

// A lower bound for the step of a partition. `stage_costs` has the time of each rank per microbatch. A rank works for M
// microbatches. It begins only after each rank before it has run one forward, on the first of its virtual stages. Unless the
// schedule splits weight gradients off, it also ends before the last backwards of these ranks. See CandidateBound.
Nanos LayoutPlanner::StepBound(const std::vector<int64_t>& stage_costs) const {
  const int32_t chunks = fits_.pipeline().chunks;
  const bool looping = fits_.pipeline().placement == StagePlacement::kLooping;
  int64_t bound = 0, before = 0;
  for (int64_t cost : stage_costs) {
    bound = std::max(bound, cost * candidate_.microbatches + before / 1000 * delay_permille_ / chunks);
    before += looping ? cost : 0;
  }
  return Nanos(bound);
}

std::optional<Draft> LayoutPlanner::TryPartition(RecomputeMode mode, const std::vector<int32_t>& layers,
                                                 std::optional<Nanos> to_beat) {
  Draft draft{.candidate = candidate_, .mode = mode, .offloading = fits_.offloading(), .layers = layers};
  bool all_stored = true;
  for (int32_t stage = 0; stage < stages(); ++stage) {
    const std::optional<StageOracle::Fit>& fit = fits_.FitOf(mode, stage, layers[stage]);
    if (!fit) return std::nullopt;
    draft.policies.push_back(fit->policies);
    draft.peaks += fit->peak;
    for (const StagePolicy& policy : fit->policies) {
      const auto count = static_cast<int32_t>(policy.layers.size());
      all_stored = all_stored && policy == NamedPolicy(fits_.graph(), RecomputeMode::kNone, count);
    }
  }
  if (all_stored) draft.mode = RecomputeMode::kNone;
  const auto known = std::find_if(steps_.begin(), steps_.end(),
                                  [&](const KnownStep& k) { return k.layers == draft.layers && k.policies == draft.policies; });
  if (known != steps_.end() && to_beat && known->step >= *to_beat) return std::nullopt;
  Run(draft);
  return draft;
}

void LayoutPlanner::Run(Draft& draft) {
  Run(draft, shorter_ ? shorter_->fewer : candidate_.microbatches);
  if (shorter_) {
    const Nanos of_fewer = draft.step;
    draft.simulation_of_fewer = std::move(draft.simulation);
    for (StageTimes& times : draft.simulation_of_fewer.stages) times.spans = {};
    draft.actions_of_fewer = draft.actions();
    Run(draft, shorter_->more);
    draft.step = shorter_->Extrapolated(candidate_.microbatches, of_fewer, draft.step);
  }
  steps_.push_back({draft.layers, draft.policies, draft.step});
}

void LayoutPlanner::Run(Draft& draft, int32_t microbatches) {
  draft.programs.clear();
  const std::vector<StageContext> contexts = Contexts(draft.layers, microbatches);
  const PipelineSlots& slots = caches_.SlotsOf(candidate_.layout, microbatches);
  for (int32_t stage = 0; stage < stages(); ++stage) {
    draft.programs.push_back(fits_.Lower(contexts[stage], slots[stage], draft.policies[stage]));
    simulated_actions_ += static_cast<int64_t>(draft.programs.back().size());
  }
  absl::StatusOr<Simulation> simulation = Simulate(draft.programs, contexts, fits_.costs());
  LYNX_CHECK(simulation.ok());
  draft.microbatches = microbatches;
  draft.simulation = *std::move(simulation);
  draft.step = draft.simulation.step;
}

// True if, by the estimates of the stages, the partition may take less than `to_beat`. Also true for a partition that seems not
// to fit.
bool LayoutPlanner::Promising(RecomputeMode mode, const std::vector<int32_t>& layers, Nanos to_beat) {
  std::vector<int64_t> stage_costs;
  for (int32_t stage = 0; stage < stages(); ++stage) {
    stage_costs.push_back(fits_.EstimatedCost(mode, stage, layers[stage]));
    if (stage_costs.back() >= kSeemsNotToFit) return true;
  }
  return StepBound(stage_costs) / 100 * kEstimateAllowancePercent < to_beat;
}

// FitOf improves the estimates of the stages, and with better estimates the greedy partition can be a different one. So the
// planner makes the partition again until one fits, for at most kSimulatedPartitions partitions.
std::optional<Draft> LayoutPlanner::DraftOfBaseline(RecomputeMode mode, Nanos to_beat) {
  std::set<std::vector<int32_t>> tried;
  while (tried.size() < kSimulatedPartitions) {
    const std::vector<int32_t> layers = BaselinePartition(partition_method(), mode);
    if (!tried.insert(layers).second || !Promising(mode, layers, to_beat)) return std::nullopt;
    if (std::optional<Draft> draft = TryPartition(mode, layers)) return draft;
  }
  return std::nullopt;
}

// Balances the stages by estimates. If a stage does not fit with its number of layers, it may no longer get this number or
// more. This repeats until all stages fit or no partition is left. FitOf improves the estimates, and then another partition can
// be the balanced one; so up to kSimulatedPartitions partitions are simulated. At the end, the equal partition is also tried.
std::optional<Draft> LayoutPlanner::DraftOf(RecomputeMode mode, Nanos to_beat) {
  if (!exact_partition()) return DraftOfBaseline(mode, to_beat);
  std::vector<int32_t> ruled_out(stages(), std::numeric_limits<int32_t>::max());
  const int32_t least = fits_.pipeline().chunks;  // minimum number of layers per rank
  std::set<std::vector<int32_t>> tried;
  std::optional<Draft> best;
  for (int32_t stage = 0; stage < stages(); ++stage) {
    if (!fits_.MayFit(RecomputeMode::kFull, stage, least) && !fits_.FitOf(mode, stage, least)) return std::nullopt;
  }
  const auto attempt = [&](const std::vector<int32_t>& layers) {
    std::optional<Draft> draft = TryPartition(mode, layers);
    if (draft && (!best || Faster(*draft, *best))) best = std::move(draft);
  };
  for (int simulated = 0; simulated < kSimulatedPartitions;) {
    const std::optional<std::vector<int32_t>> layers = Balanced(mode, ruled_out);
    if (!layers || tried.contains(*layers) || (best && !MaySimulateMore())) break;
    if (!Promising(mode, *layers, to_beat)) return best;
    bool fits = true;
    for (int32_t stage = 0; stage < stages(); ++stage) {
      if (fits_.FitOf(mode, stage, (*layers)[stage])) continue;
      if (!fits_.FitOf(mode, stage, least)) return std::nullopt;
      ruled_out[stage] = std::min(ruled_out[stage], (*layers)[stage]);
      fits = false;
    }
    if (!fits) continue;
    tried.insert(*layers);
    if (!Promising(mode, *layers, to_beat)) return best;
    attempt(*layers);
    ++simulated;
  }
  const std::vector<int32_t> even = EqualPartition();
  if (best && !tried.contains(even) && MaySimulateMore()) attempt(even);
  return best;
}

// Returns the time per microbatch of the slowest stage if all offload, by estimates. nullopt: offloading does not make the sum
// of the stages' times noticeably shorter for this partition.
std::optional<Nanos> LayoutPlanner::SlowestWithOffloading(const std::vector<int32_t>& layers) {
  int64_t slowest = 0, with = 0, without = 0;
  for (int32_t stage = 0; stage < stages(); ++stage) {
    fits_.SetOffloading(false);
    without += fits_.EstimatedCost(RecomputeMode::kAuto, stage, layers[stage]);
    fits_.SetOffloading(true);
    const int64_t cost = fits_.EstimatedCost(RecomputeMode::kAuto, stage, layers[stage]);
    with += cost;
    slowest = std::max(slowest, cost);
  }
  fits_.SetOffloading(false);
  if (with >= without - without / kNoticeableShare) return std::nullopt;
  return Nanos(slowest);
}

// Stages that are faster without offloading than the slowest one is with it do not offload: it would hardly shorten the step.
std::optional<Draft> LayoutPlanner::DraftOfHeu(Nanos to_beat) {
  fits_.OffloadAbove(Nanos(0));
  std::optional<Draft> best = DraftOf(RecomputeMode::kAuto, to_beat);
  if (!fits_.OffersOffloading()) return best;
  step_without_host_ = best ? std::optional(best->step) : std::nullopt;
  if (best) {
    const std::optional<Nanos> slowest = SlowestWithOffloading(best->layers);
    if (!slowest) return best;
    fits_.OffloadAbove(*slowest);
  }
  fits_.SetOffloading(true);
  std::optional<Draft> with = DraftOf(RecomputeMode::kAuto, best ? std::min(to_beat, best->step) : to_beat);
  fits_.SetOffloading(false);
  return with && (!best || Faster(*with, *best)) ? with : best;
}

bool LayoutPlanner::StoresEverythingInBalance() {
  const auto busy = [&](int32_t stage, int32_t count) { return fits_.BusyTime(stage, count).value; };
  const auto layers = exact_partition() ? Partition(busy, busy) : BaselinePartition(partition_method(), RecomputeMode::kNone);
  for (int32_t stage = 0; stage < stages(); ++stage) {
    if (!fits_.FitOf(RecomputeMode::kNone, stage, (*layers)[stage])) return false;
  }
  return true;
}

// As in Megatron-LM, all stages have the same N (number of recomputed layers). A smaller N is usually faster. But if a smaller
// N fits only in a partition with worse balance, recomputing all layers may be faster.
std::optional<Draft> LayoutPlanner::BestBlock(Nanos to_beat) {
  const auto with = [&](int32_t layers) {
    fits_.SetNamedLayers(layers);
    return DraftOf(RecomputeMode::kBlock, to_beat);
  };
  if (request_.spec.recompute_options.layers > 0) return with(request_.spec.recompute_options.layers);
  int32_t low = 0, high = request_.spec.model.layers - stages() + 1;  // at `high` all layers are recomputed
  int32_t best_layers = high;
  const std::optional<Draft> all = with(high);
  std::optional<Draft> best = all;
  while (best && low < high) {
    const int32_t middle = low + (high - low) / 2;
    if (std::optional<Draft> draft = with(middle)) {
      best = std::move(draft);
      high = best_layers = middle;
    } else {
      low = middle + 1;
    }
  }
  const bool recompute_all = all && Faster(*all, *best);
  // A later ReplanSamePartition must use the same N.
  fits_.SetNamedLayers(recompute_all ? request_.spec.model.layers - stages() + 1 : best_layers);
  return recompute_all ? all : best;
}

int32_t LayoutPlanner::MostGroup() {
  const std::vector<int32_t> layers = EqualPartition();
  int32_t most = 1;
  for (int32_t stage = 0; stage < stages(); ++stage) {
    most = std::max(most, fits_.LeastMemoryGroup(stage, layers[stage]));
  }
  return most;
}

// As in Megatron-LM, all stages have the same N (layers per group). A larger N recomputes more. So it is used only if with a
// smaller N the stages do not fit or are balanced worse.
std::optional<Draft> LayoutPlanner::BestUniform(Nanos to_beat) {
  if (request_.spec.recompute_options.layers > 0) return DraftOf(RecomputeMode::kUniform, to_beat);
  std::optional<Draft> best;
  int32_t best_group = 1;
  for (int32_t group = 1, most = MostGroup(); group <= most; ++group) {
    if (best && !MaySimulateMore()) break;
    fits_.SetNamedLayers(group);
    std::optional<Draft> draft = DraftOf(RecomputeMode::kUniform, best ? std::min(to_beat, best->step) : to_beat);
    if (!draft || (best && !Faster(*draft, *best))) continue;
    best = std::move(draft);
    best_group = group;
  }
  fits_.SetNamedLayers(best_group);
  return best;
}

bool LayoutPlanner::MayDoWithoutWindows() const {
  const RecomputeMode wanted = request_.spec.recompute;
  return (wanted != RecomputeMode::kAuto && MayOverlap(wanted)) || fits_.Allowed(RecomputeMode::kNoOverlap);
}

// By estimates, no draft is faster than the one that stores everything in the partition that balances busy times. But if memory
// is nearly full, the best policy without overlap may have another partition with the same estimated balance. This partition
// can be faster in the simulation, so it is also tried.
std::optional<Draft> LayoutPlanner::BestOfStored(Nanos to_beat) {
  std::optional<Draft> best = DraftOf(RecomputeMode::kNone, to_beat);
  if (!best || !MayDoWithoutWindows() || !fits_.Limit(0, best->layers[0])) return best;
  const std::vector<int32_t> none_ruled_out(stages(), std::numeric_limits<int32_t>::max());
  const std::optional<std::vector<int32_t>> layers = Balanced(RecomputeMode::kNoOverlap, none_ruled_out);
  if (!layers || *layers == best->layers) return best;
  std::optional<Draft> other = DraftOf(RecomputeMode::kNoOverlap, std::min(to_beat, best->step));
  return other && Faster(*other, *best) ? std::move(other) : std::move(best);
}

std::optional<Draft> LayoutPlanner::Best(Nanos to_beat) {
  // If the job itself names the way to weave, exact peaks are computed. If the planner chooses, exact peaks would take too
  // long.
  if (request_.spec.parallel.weave != WeaveMode::kAuto) fits_.LowerPeaksOfWoven();
  const RecomputeMode wanted = request_.spec.recompute;
  if (wanted == RecomputeMode::kBlock) return BestBlock(to_beat);
  if (wanted == RecomputeMode::kUniform) return BestUniform(to_beat);
  const bool heu = wanted == RecomputeMode::kHeu || wanted == RecomputeMode::kOpt;
  if (wanted != RecomputeMode::kAuto && !heu) return DraftOf(wanted, to_beat);
  if (StoresEverythingInBalance()) return BestOfStored(to_beat);
  // If HEU finds no draft that fits and is expected to be faster, no named policy gives such a draft.
  std::optional<Draft> best;
  if (heu || fits_.Allowed(RecomputeMode::kHeu)) {
    best = DraftOfHeu(to_beat);
    if (!best) return best;
  }
  const auto consider = [&](RecomputeMode mode) {
    std::optional<Draft> draft = DraftOf(mode, best ? std::min(to_beat, best->step) : to_beat);
    if (draft && (!best || Faster(*draft, *best))) best = std::move(draft);
  };
  for (RecomputeMode mode : kNamedModes) {
    if (wanted != RecomputeMode::kAuto || !fits_.Allowed(mode)) continue;
    if (!best || MaySimulateMore()) consider(mode);
  }
  // HEU's model may count recomputation as hidden that is exposed in the simulation. Then a plan without windows can be faster.
  if (MayDoWithoutWindows() && (!best || MayTryVariants())) consider(RecomputeMode::kNoOverlap);
  return best;
}

// The exact partition is based on estimates. If the simulation gives other times than the estimates, a partition of a simpler
// method can be faster.
std::optional<Draft> LayoutPlanner::TryBaselinePartitions(const Draft& draft) {
  if (!exact_partition() || has_one_partition() || stages() == 1) return std::nullopt;
  const RecomputeMode wanted = request_.spec.recompute;
  std::vector<RecomputeMode> modes;
  if (MayOverlap(wanted)) {
    if (wanted != RecomputeMode::kAuto || fits_.Allowed(RecomputeMode::kHeu)) modes.push_back(RecomputeMode::kAuto);
    if (MayDoWithoutWindows()) modes.push_back(RecomputeMode::kNoOverlap);
  }
  const bool named = !IsHeuristic(draft.mode) && draft.mode != RecomputeMode::kNone;
  if (named || modes.empty()) modes.push_back(draft.mode);
  std::set<std::vector<int32_t>> tried{draft.layers};
  std::optional<Draft> best;
  fits_.SetOffloading(draft.offloading);
  for (const PartitionMethod method : {PartitionMethod::kCompute, PartitionMethod::kGreedy}) {
    const std::vector<int32_t> layers = BaselinePartition(method, modes.front());
    if (!tried.insert(layers).second) continue;
    for (const RecomputeMode mode : modes) {
      const Nanos to_beat = best ? best->step : draft.step;
      if (!MaySimulateMore() || !Promising(mode, layers, to_beat)) continue;
      std::optional<Draft> other = TryPartition(mode, layers, to_beat);
      if (other && Faster(*other, best ? *best : draft)) best = std::move(other);
    }
  }
  fits_.SetOffloading(false);
  return best;
}

std::optional<Draft> LayoutPlanner::UseStalls(const Draft& draft) {
  const bool worth_it = std::any_of(draft.simulation.stages.begin(), draft.simulation.stages.end(),
                                    [](const StageTimes& times) { return times.recompute_exposed.value > 0; });
  if (!worth_it || !MayTryVariants()) return std::nullopt;
  std::vector<Nanos> stalls;
  for (int32_t stage = 0; stage < stages(); ++stage) {
    const Program& program = draft.programs[stage];
    const std::vector<ActionSpan>& spans = draft.simulation.stages[stage].spans;
    Nanos waited;
    for (size_t i = 0; i < program.size(); ++i) {
      if (program[i].kind == ActionKind::kRecvBackwardWait) waited += spans[i].end - spans[i].begin;
    }
    // A stage that exposes no recomputation has nothing to hide in its stall.
    const bool exposes = draft.simulation.stages[stage].recompute_exposed.value > 0;
    stalls.push_back(exposes ? waited / draft.microbatches : Nanos(0));
  }
  if (std::all_of(stalls.begin(), stalls.end(), [](Nanos stall) { return stall.value == 0; })) return std::nullopt;
  fits_.SetStalls(std::move(stalls));
  fits_.SetOffloading(draft.offloading);
  std::optional<Draft> better = TryPartition(RecomputeMode::kAuto, draft.layers, draft.step);
  fits_.SetOffloading(false);
  if (better && Faster(*better, draft)) return better;
  fits_.SetStalls(std::vector<Nanos>(stages()));  // a later replan must not use the stalls
  return std::nullopt;
}

std::optional<Draft> LayoutPlanner::TryTunings(const Draft& draft) {
  if (candidate_.layout.weave == WeaveMode::kOff) return std::nullopt;
  const std::vector<StageContext> contexts = Contexts(draft.layers, draft.microbatches);
  const auto fits = [&](const Draft& other) {
    for (int32_t stage = 0; stage < stages(); ++stage) {
      if (!fits_.WithinLimit(contexts[stage], other.programs[stage])) return false;
    }
    return true;
  };
  std::optional<Draft> best;
  std::optional<int32_t> chosen;
  for (int32_t tuning = 0; tuning < kWeaveTunings && MaySimulateMore(); ++tuning) {
    fits_.SetTuning(tuning);
    Draft other = draft;
    Run(other);
    if (!Faster(other, best ? *best : draft) || !fits(other)) continue;
    best = std::move(other);
    chosen = tuning;
  }
  fits_.SetTuning(chosen);
  return best;
}

// Puts the exact solutions of `stages` into the draft if the step does not become longer; otherwise returns false.
bool LayoutPlanner::Adopt(const std::vector<std::optional<StageOracle::ExactFit>>& exact, const std::vector<int32_t>& stages,
                          Draft& draft) {
  Draft solved = draft;
  for (const int32_t stage : stages) solved.policies[stage] = exact[stage]->fit->policies;
  Run(solved);
  if (solved.step > draft.step) return false;
  draft = std::move(solved);
  return true;
}

Draft LayoutPlanner::SolveExact(Draft draft) {
  draft.mode = RecomputeMode::kOpt;
  std::vector<std::optional<StageOracle::ExactFit>> exact;
  std::vector<int32_t> better;
  fits_.SetOffloading(draft.offloading);
  for (int32_t stage = 0; stage < stages(); ++stage) {
    exact.push_back(fits_.FitExact(request_.exact, stage, draft.policies[stage]));
    if (exact.back() && exact.back()->fit) better.push_back(stage);
  }
  fits_.SetOffloading(false);
  std::set<int32_t> adopted;
  if (!better.empty() && Adopt(exact, better, draft)) {
    adopted.insert(better.begin(), better.end());
  } else if (better.size() > 1) {
    // With all exact solutions together, the step was longer. So each is tried alone: the model may be wrong for only one of
    // them.
    for (const int32_t stage : better) {
      if (MaySimulateMore() && Adopt(exact, {stage}, draft)) adopted.insert(stage);
    }
  }
  draft.proofs.clear();
  for (int32_t stage = 0; stage < stages(); ++stage) {
    const std::optional<StageOracle::ExactFit>& of = exact[stage];
    if (!of) {
      draft.proofs.emplace_back();
      continue;
    }
    const Nanos exposed = adopted.contains(stage) ? of->fit->exposed : of->known;
    const ProofStatus status = exposed == of->bound ? ProofStatus::kOptimal
                               : of->stopped        ? ProofStatus::kTimeLimit
                                                    : ProofStatus::kModel;
    draft.proofs.push_back(StageProof{status, exposed, of->bound});
  }
  return draft;
}

std::optional<Draft> LayoutPlanner::ReplanSamePartition(RecomputeMode mode, bool offloading,
                                                        const std::vector<int32_t>& layers) {
  // If the request's mode allows HEU, a draft that stores everything came from HEU, so HEU plans it again.
  const bool overlaps = mode == RecomputeMode::kNone && MayOverlap(request_.spec.recompute);
  fits_.SetOffloading(offloading);
  std::optional<Draft> draft = TryPartition(overlaps ? RecomputeMode::kAuto : mode, layers);
  fits_.SetOffloading(false);
  return draft;
}

std::optional<Draft> LayoutPlanner::ReplanFreshWithoutOverlap(Nanos to_beat) {
  if (!MayOverlap(request_.spec.recompute) || !MayDoWithoutWindows()) return std::nullopt;
  fits_.ForgetReserves();
  return DraftOf(RecomputeMode::kNoOverlap, to_beat);
}

std::optional<Draft> LayoutPlanner::ReplanFreshWithoutHost(Nanos to_beat) {
  const bool known = step_without_host_ && *step_without_host_ >= to_beat;
  if (known && request_.spec.recompute != RecomputeMode::kOpt) return std::nullopt;
  fits_.ForgetReserves();
  return DraftOf(RecomputeMode::kAuto, to_beat);
}

Shortfall LayoutPlanner::LeastShortfall() {
  fits_.SetOffloading(fits_.OffersOffloading());
  const auto lacking = [&](int32_t stage, int32_t layers, bool estimate) {
    const std::optional<Bytes> limit = fits_.Limit(stage, layers);
    LYNX_CHECK(limit.has_value());  // without a limit everything fits
    return fits_.LeastArena(stage, layers, estimate) - *limit;
  };
  const std::optional<std::vector<int32_t>> layers =
      exact_partition() ? Partition([&](int32_t stage, int32_t count) { return lacking(stage, count, true).value; },
                                    [](int32_t, int32_t) { return std::numeric_limits<int64_t>::min(); })
                        : BaselinePartition(partition_method(), fits_.EstimatedMode());
  LYNX_CHECK(layers.has_value());
  Shortfall worst;
  for (int32_t stage = 0; stage < stages(); ++stage) {
    const int32_t count = (*layers)[stage];
    const Bytes excess = lacking(stage, count, false);
    if (stage > 0 && excess <= worst.excess()) continue;
    const Bytes limit = *fits_.Limit(stage, count);
    worst = {stage, limit + excess, limit, fits_.States(stage, count).total(), fits_.offloading()};
  }
  fits_.SetOffloading(false);
  return worst;
}

}  // namespace lynx
