#include "planner/layout_planner.h"

#include <algorithm>
#include <array>
#include <limits>
#include <tuple>

#include "common/check.h"
#include "planner/lower.h"
#include "planner/partition.h"

namespace lynx {
namespace {

// Estimated cost of a stage that seems not to fit: worse than any that does, and the worse the more it lacks; sums
// over a thousand stages stay within 64 bits. Only the memory model shows that it really does not fit.
constexpr int64_t kSeemsNotToFit = int64_t{1} << 52;
// Microbatches beyond those in flight in the programs whose memory the search looks at: by then it repeats itself.
constexpr int32_t kProbeMicrobatches = 2;
constexpr int kBudgetTries = 40;
constexpr int kSimulatedPartitions = 3;

// A candidate whose slowest stage alone takes longer than the step to beat is dropped, with this allowance for HEU's
// estimates.
constexpr int64_t kEstimateAllowancePercent = 98;
// How far the estimated memory of a named policy may exceed the limit for the policy to be looked at.
constexpr int64_t kMemoryAllowancePercent = 10;

constexpr std::array kNamedModes = {RecomputeMode::kNone, RecomputeMode::kBalanced, RecomputeMode::kSelective,
                                    RecomputeMode::kFullKeepCollectives, RecomputeMode::kFull};

// Whether the mode's policies come from HEU: with its windows, or without.
bool IsHeuristic(RecomputeMode mode) { return mode == RecomputeMode::kAuto || mode == RecomputeMode::kNoOverlap; }

}  // namespace

const StageHeu& FrontCache::Solve(RecomputeProblem problem) {
  problem.budget = Bytes(0);
  if (problem.stall.value == 0 && problem.host_budget.value == 0) problem.layers = 1;
  const auto it = fronts_.find(problem);
  return it != fronts_.end() ? it->second : fronts_.emplace(problem, StageHeu(problem)).first->second;
}

bool Faster(const Draft& a, const Draft& b) {
  return std::tie(a.simulation.step, a.peaks) < std::tie(b.simulation.step, b.peaks);
}

LayoutPlanner::LayoutPlanner(const PlanRequest& request, const Candidate& candidate, FrontCache& fronts)
    : request_(request), candidate_(candidate), fronts_(fronts),
      costs_(request.cluster, request.spec.model, candidate.layout, candidate.micro_batch),
      shape_(ShapeOf(request.spec.model, candidate.layout, candidate.micro_batch)),
      graph_(LayerGraph::Of(shape_)), stalls_(candidate.layout.pp), reserves_(candidate.layout.pp) {
  for (int32_t stage = 0; stage < stages(); ++stage) {
    device_memory_.push_back(DeviceMemoryOfStage(request.cluster, candidate.layout, stage));
  }
  for (int32_t stage = 0; stage < stages(); ++stage) {
    auto& busy = busy_times_.emplace_back();
    if (stage > 0 && &costs_.Of(stage) == &costs_.Of(stage - 1)) {
      busy = busy_times_[stage - 1];
      continue;
    }
    for (LayerType type : {LayerType::kEmbedding, LayerType::kTransformer, LayerType::kHead}) {
      busy[static_cast<size_t>(type)] =
          costs_.Of(stage).LayerTime(type, Pass::kForward) + costs_.Of(stage).LayerTime(type, Pass::kBackward);
    }
    pass_permille_ = std::min(pass_permille_, PassPermille(stage));
  }
}

// Of a layer's time on the stage, its forward and its input gradient.
int64_t LayoutPlanner::PassPermille(int32_t stage) const {
  Nanos passes;
  for (Segment segment : graph_.SegmentsOf(LayerType::kTransformer, Pass::kForward)) {
    for (Op op : graph_.OpsOf(LayerType::kTransformer, segment, Pass::kForward)) {
      passes += costs_.Of(stage).OpTime(op, Pass::kForward) + costs_.Of(stage).OpTime(op, Pass::kBackward);
    }
  }
  const Nanos layer = BusyTime(LayerType::kTransformer, stage);
  return std::clamp<int64_t>(passes.value / std::max<int64_t>(1, layer.value / 1000), 0, 1000);
}

StageContext LayoutPlanner::Context(int32_t stage, int32_t first_layer, int32_t layers, int32_t microbatches) const {
  return {.model = request_.spec.model,
          .layout = candidate_.layout,
          .micro_batch = candidate_.micro_batch,
          .microbatches = microbatches,
          .pipeline_rank = stage,
          .slices = {SliceOf(candidate_.layout, stage, first_layer, first_layer + layers)}};
}

std::vector<StageContext> LayoutPlanner::Contexts(const std::vector<int32_t>& layers) const {
  std::vector<StageContext> contexts;
  int32_t first = 0;
  for (int32_t stage = 0; stage < stages(); first += layers[stage], ++stage) {
    contexts.push_back(Context(stage, first, layers[stage], candidate_.microbatches));
  }
  return contexts;
}

int32_t LayoutPlanner::InFlightOf(int32_t stage) const { return InFlight(stage, stages(), candidate_.microbatches); }

Nanos LayoutPlanner::BusyTime(LayerType type, int32_t stage) const {
  return busy_times_[stage][static_cast<size_t>(type)];
}

Nanos LayoutPlanner::BusyTime(int32_t stage, int32_t layers) const {
  Nanos time = BusyTime(LayerType::kTransformer, stage) * layers;
  if (stage == 0) time += BusyTime(LayerType::kEmbedding, stage);
  if (stage == stages() - 1) time += BusyTime(LayerType::kHead, stage);
  return time;
}

// Let x_s be the time per microbatch of stage s, which adds up to T. Stage s takes M x_s, and cannot begin before the
// forwards of the stages before it have run once, nor end the step before their backwards have: with g the share of a
// stage's time that these two are, at least M x_s + g (x_0 + ... + x_{s-1}). The largest of these is least when all
// are equal: g T / (1 - (1 - g/M)^p). Where stages differ in speed, every layer counts as on the fastest; and the layers
// that stage s takes, x_s / l_s with l_s its time of a layer, must be all of them: M L / sum(1 / l_s) is a bound too. Rounded
// down by a thousandth for the sake of the arithmetic.
Nanos LayoutPlanner::LowerBound() const {
  Nanos fastest = BusyTime(LayerType::kTransformer, 0);
  double layers_per_nano = 0;
  for (int32_t stage = 0; stage < stages(); ++stage) {
    fastest = std::min(fastest, BusyTime(LayerType::kTransformer, stage));
    layers_per_nano += 1 / static_cast<double>(std::max<int64_t>(1, BusyTime(LayerType::kTransformer, stage).value));
  }
  Nanos total = fastest * request_.spec.model.layers;
  total += BusyTime(LayerType::kEmbedding, 0) + BusyTime(LayerType::kHead, stages() - 1);
  const double microbatches = candidate_.microbatches;
  const double share = std::max<double>(1, static_cast<double>(pass_permille_)) / 1000;
  double rest = 1;
  for (int32_t stage = 0; stage < stages(); ++stage) rest *= 1 - share / microbatches;
  double step = share * static_cast<double>(total.value) / (1 - rest);
  if (!costs_.alike()) step = std::max(step, microbatches * request_.spec.model.layers / layers_per_nano);
  return Nanos(static_cast<int64_t>(step * 0.999));
}

// As above, for known stages.
Nanos LayoutPlanner::StepBound(const std::vector<int64_t>& stage_costs) const {
  int64_t bound = 0, before = 0;
  for (int64_t cost : stage_costs) {
    bound = std::max(bound, cost * candidate_.microbatches + before / 1000 * pass_permille_);
    before += cost;
  }
  return Nanos(bound);
}

StateBytes LayoutPlanner::States(int32_t stage, int32_t layers) const {
  return StatesOf(Context(stage, 0, layers, candidate_.microbatches));
}

std::optional<Bytes> LayoutPlanner::Limit(int32_t stage, int32_t layers) const {
  const Bytes activation = request_.spec.resources.activation_memory_per_rank;
  const Bytes device = device_memory_[stage];
  std::optional<Bytes> limit;
  if (device.value > 0) limit = device - States(stage, layers).total();
  if (activation.value > 0) limit = limit ? std::min(*limit, activation) : activation;
  if (limit) *limit -= reserves_[stage];
  return limit;
}

bool LayoutPlanner::Fits(int32_t stage, int32_t layers, Bytes peak) const {
  const std::optional<Bytes> limit = Limit(stage, layers);
  return !limit || peak <= *limit;
}

StageContext LayoutPlanner::ProbeContext(int32_t stage, int32_t layers) const {
  return Context(stage, 0, layers, std::min(candidate_.microbatches, InFlightOf(stage) + kProbeMicrobatches));
}

Bytes LayoutPlanner::Peak(int32_t stage, const StagePolicy& policy) {
  auto [it, inserted] = peaks_.try_emplace({stage, policy.layers});
  if (inserted) {
    const StageContext context = ProbeContext(stage, static_cast<int32_t>(policy.layers.size()));
    const absl::StatusOr<MemoryPlan> memory = FoldLiveness(LowerStage(context, policy), context);
    LYNX_CHECK(memory.ok());
    it->second = memory->live_peak;
  }
  return it->second;
}

Bytes LayoutPlanner::Arena(int32_t stage, const StagePolicy& policy) const {
  const StageContext context = ProbeContext(stage, static_cast<int32_t>(policy.layers.size()));
  const absl::StatusOr<MemoryPlan> memory = PlanMemory(LowerStage(context, policy), context);
  LYNX_CHECK(memory.ok());
  return memory->arena;
}

RecomputeProblem LayoutPlanner::Problem(RecomputeMode mode, int32_t stage, int32_t layers) const {
  RecomputeProblem problem = MakeStageProblem(costs_.Of(stage), shape_,
                                              {.layers = layers,
                                               .in_flight = InFlightOf(stage),
                                               .below_head = stage == stages() - 1,
                                               .stall = stalls_[stage]});
  return mode == RecomputeMode::kNoOverlap ? WithoutWindows(problem) : problem;
}

const StageHeu& LayoutPlanner::Heu(RecomputeMode mode, int32_t stage, int32_t layers) {
  // Without stalls the fronts serve all numbers of layers.
  const std::tuple key{mode, stage, stalls_[stage].value == 0 ? 0 : layers};
  auto [it, inserted] = heus_.try_emplace(key, nullptr);
  if (inserted) it->second = &fronts_.Solve(Problem(mode, stage, layers));
  return *it->second;
}

Bytes LayoutPlanner::LayerInputs(int32_t stage, int32_t layers) const {
  return TensorBytes(Tensor::kX, shape_) * layers * InFlightOf(stage);
}

const LayoutPlanner::NamedUses& LayoutPlanner::UsesOf(RecomputeMode mode, int32_t stage) {
  auto [it, inserted] = named_.try_emplace({mode, stage});
  if (inserted) {
    // No named policy uses the stall, so the number of layers that share it does not matter.
    const LayerPolicy policy = NamedPolicy(graph_, mode, 1).layers[0];
    it->second.problem = Problem(mode, stage, 1);
    const absl::StatusOr<LayerUse> inner = UseOf(it->second.problem, policy, false);
    const absl::StatusOr<LayerUse> top = UseOf(it->second.problem, policy, true);
    LYNX_CHECK(inner.ok() && top.ok());
    it->second.inner = *inner;
    it->second.top = *top;
  }
  return it->second;
}

StagePolicy LayoutPlanner::PolicyOf(RecomputeMode mode, int32_t layers) const {
  switch (mode) {
    case RecomputeMode::kUniform: return NamedPolicy(graph_, RecomputeMode::kFull, layers);
    case RecomputeMode::kBlock: {
      StagePolicy policy = NamedPolicy(graph_, RecomputeMode::kNone, layers);
      const StagePolicy full = NamedPolicy(graph_, RecomputeMode::kFull, std::min(layers, block_layers_));
      std::copy(full.layers.begin(), full.layers.end(), policy.layers.begin());
      return policy;
    }
    default: return NamedPolicy(graph_, mode, layers);
  }
}

LayoutPlanner::Estimate LayoutPlanner::EstimateBlock(int32_t stage, int32_t layers) {
  const NamedUses& full = UsesOf(RecomputeMode::kFull, stage);
  const NamedUses& stored = UsesOf(RecomputeMode::kNone, stage);
  const int32_t recomputed = std::min(layers, block_layers_);
  std::vector<LayerUse> uses(static_cast<size_t>(layers), stored.inner);
  std::fill(uses.begin(), uses.begin() + recomputed, full.inner);
  uses.back() = recomputed == layers ? full.top : stored.top;
  const StageValue value = Combine(full.problem, uses);
  return {value.exposed, value.bytes()};
}

LayoutPlanner::Estimate LayoutPlanner::EstimateNamed(RecomputeMode mode, int32_t stage, int32_t layers) {
  if (mode == RecomputeMode::kUniform) mode = RecomputeMode::kFull;
  if (mode == RecomputeMode::kBlock) return EstimateBlock(stage, layers);
  const NamedUses& named = UsesOf(mode, stage);
  std::vector<LayerUse> uses(static_cast<size_t>(layers), named.inner);
  uses.back() = named.top;
  const StageValue value = Combine(named.problem, uses);
  return {value.exposed, value.bytes()};
}

Bytes LayoutPlanner::Fixed(int32_t stage) {
  auto it = fixed_.find(stage);
  if (it == fixed_.end()) {
    const int32_t layers = EvenPartition(stages(), request_.spec.model.layers)[stage];
    const Bytes peak = Peak(stage, NamedPolicy(graph_, RecomputeMode::kNone, layers));
    const Bytes model = EstimateNamed(RecomputeMode::kNone, stage, layers).bytes + LayerInputs(stage, layers);
    it = fixed_.emplace(stage, peak - model).first;
  }
  return it->second;
}

LayoutPlanner::Estimate LayoutPlanner::EstimateHeu(RecomputeMode mode, int32_t stage, int32_t layers) {
  const StageHeu& heu = Heu(mode, stage, layers);
  Bytes budget = EstimateNamed(RecomputeMode::kNone, stage, layers).bytes;
  if (const std::optional<Bytes> limit = Limit(stage, layers)) {
    budget = std::min(budget, *limit - Fixed(stage) - LayerInputs(stage, layers));
  }
  const StageValue value = heu.Estimate(layers, budget);
  return {value.exposed, value.bytes()};
}

int64_t LayoutPlanner::EstimatedCost(RecomputeMode mode, int32_t stage, int32_t layers) {
  const Nanos busy = BusyTime(stage, layers);
  const auto known = fits_.find({mode, stage, layers});
  if (known != fits_.end() && known->second) return (busy + known->second->exposed).value;
  const Estimate estimate =
      IsHeuristic(mode) ? EstimateHeu(mode, stage, layers) : EstimateNamed(mode, stage, layers);
  if (const std::optional<Bytes> limit = Limit(stage, layers)) {
    const Bytes lacking = estimate.bytes + LayerInputs(stage, layers) + Fixed(stage) - *limit;
    if (lacking.value > 0) return kSeemsNotToFit + lacking.value;
  }
  return (busy + estimate.exposed).value;
}

bool LayoutPlanner::MayFit(RecomputeMode mode, int32_t stage, int32_t layers) {
  const std::optional<Bytes> limit = Limit(stage, layers);
  if (!limit) return true;
  const Bytes estimate = EstimateNamed(mode, stage, layers).bytes + LayerInputs(stage, layers) + Fixed(stage);
  return estimate / 100 * (100 - kMemoryAllowancePercent) <= *limit;
}

std::optional<LayoutPlanner::Fit> LayoutPlanner::FitNamed(RecomputeMode mode, int32_t stage, int32_t layers) {
  Fit fit{.policy = PolicyOf(mode, layers)};
  fit.peak = Peak(stage, fit.policy);
  if (!Fits(stage, layers, fit.peak)) return std::nullopt;
  fit.exposed = EstimateNamed(mode, stage, layers).exposed;
  return fit;
}

// HEU's policy of least exposed time whose peak is within the limit. HEU's model of memory is off by an unknown
// amount, so its budget is corrected by what each peak has too much or to spare; where that steps outside
// of what is known to fit and not to fit, the budget halves the interval.
std::optional<LayoutPlanner::Fit> LayoutPlanner::FitBudget(RecomputeMode mode, int32_t stage, int32_t layers,
                                                          Bytes limit) {
  const StageHeu& heu = Heu(mode, stage, layers);
  const Bytes least = heu.LeastBytes(layers);
  Bytes fits = least - Bytes(1);  // no larger budget is known to fit
  Bytes exceeds = EstimateNamed(RecomputeMode::kNone, stage, layers).bytes + Bytes(1);
  const Bytes most = std::max(least, exceeds - Bytes(1));
  Bytes budget = std::clamp(limit - Fixed(stage) - LayerInputs(stage, layers), least, most);
  std::optional<Fit> best;
  for (int i = 0; i < kBudgetTries; ++i) {
    const std::optional<StageSolution> choice = heu.Best(layers, budget);
    LYNX_CHECK(choice.has_value());
    const Nanos exposed = choice->value.exposed;
    const Bytes bytes = choice->value.bytes();
    const Bytes peak = Peak(stage, choice->policy);
    const Bytes spare = limit - peak;
    fixed_[stage] = peak - bytes - LayerInputs(stage, layers);
    if (spare.value >= 0) {
      if (!best || std::tie(exposed, peak) < std::tie(best->exposed, best->peak)) {
        best = Fit{choice->policy, exposed, peak};
      }
      fits = budget;
    } else {
      exceeds = bytes;
    }
    if (exceeds - fits <= Bytes(1)) break;
    budget = bytes + spare;
    if (budget <= fits || budget >= exceeds) budget = fits + (exceeds - fits) / 2;
  }
  return best;
}

std::optional<LayoutPlanner::Fit> LayoutPlanner::FitHeu(RecomputeMode mode, int32_t stage, int32_t layers) {
  std::optional<Fit> best;
  if (MayFit(RecomputeMode::kNone, stage, layers)) best = FitNamed(RecomputeMode::kNone, stage, layers);
  if (best) return best;
  const std::optional<Bytes> limit = Limit(stage, layers);
  LYNX_CHECK(limit.has_value());
  best = FitBudget(mode, stage, layers, *limit);
  // HEU knows the named policies too; they are looked at for what its estimate of memory may have missed.
  for (RecomputeMode other : kNamedModes) {
    if (other == RecomputeMode::kNone || !Allowed(other)) continue;
    if (best && EstimateNamed(other, stage, layers).exposed >= best->exposed) continue;
    if (best && !MayFit(other, stage, layers)) continue;
    const std::optional<Fit> named = FitNamed(other, stage, layers);
    if (named) best = named;
  }
  return best;
}

const std::optional<LayoutPlanner::Fit>& LayoutPlanner::FitOf(RecomputeMode mode, int32_t stage, int32_t layers) {
  const std::tuple key{mode, stage, layers};
  auto it = fits_.find(key);
  if (it == fits_.end()) {
    it = fits_.emplace(key, IsHeuristic(mode) ? FitHeu(mode, stage, layers) : FitNamed(mode, stage, layers))
             .first;
  }
  return it->second;
}

std::optional<Draft> LayoutPlanner::TryPartition(RecomputeMode mode, const std::vector<int32_t>& layers) {
  Draft draft{.candidate = candidate_, .mode = mode, .layers = layers};
  bool all_stored = true;
  for (int32_t stage = 0; stage < stages(); ++stage) {
    const std::optional<Fit>& fit = FitOf(mode, stage, layers[stage]);
    if (!fit) return std::nullopt;
    draft.policies.push_back(fit->policy);
    draft.peaks += fit->peak;
    all_stored = all_stored && fit->policy == NamedPolicy(graph_, RecomputeMode::kNone, layers[stage]);
  }
  if (all_stored) draft.mode = RecomputeMode::kNone;
  const std::vector<StageContext> contexts = Contexts(layers);
  std::vector<Program> programs;
  for (int32_t stage = 0; stage < stages(); ++stage) {
    programs.push_back(LowerStage(contexts[stage], draft.policies[stage]));
  }
  absl::StatusOr<Simulation> simulation = Simulate(programs, contexts, costs_);
  LYNX_CHECK(simulation.ok());
  draft.simulation = *std::move(simulation);
  return draft;
}

// Whether, by what is known of its stages, the partition may be faster. One that seems not to fit at all may.
bool LayoutPlanner::Promising(RecomputeMode mode, const std::vector<int32_t>& layers, Nanos to_beat) {
  std::vector<int64_t> stage_costs;
  for (int32_t stage = 0; stage < stages(); ++stage) {
    stage_costs.push_back(EstimatedCost(mode, stage, layers[stage]));
    if (stage_costs.back() >= kSeemsNotToFit) return true;
  }
  return StepBound(stage_costs) / 100 * kEstimateAllowancePercent < to_beat;
}

// Balances by estimates; where a stage's peak shows that it does not fit, that many layers or more are ruled out
// for it, and so on until all fit or nothing is left. What the fits teach can move the balance: a few more rounds.
std::optional<Draft> LayoutPlanner::DraftOf(RecomputeMode mode, Nanos to_beat) {
  std::vector<int32_t> ruled_out(stages(), std::numeric_limits<int32_t>::max());
  std::set<std::vector<int32_t>> tried;
  std::optional<Draft> best;
  for (int32_t stage = 0; stage < stages(); ++stage) {
    if (!MayFit(RecomputeMode::kFull, stage, 1) && !FitOf(mode, stage, 1)) return std::nullopt;
  }
  const auto attempt = [&](const std::vector<int32_t>& layers) {
    std::optional<Draft> draft = TryPartition(mode, layers);
    if (draft && (!best || Faster(*draft, *best))) best = std::move(draft);
  };
  for (int simulated = 0; simulated < kSimulatedPartitions;) {
    const auto layers = BalancedPartition(stages(), request_.spec.model.layers,
                                          [&](int32_t stage, int32_t count) -> std::optional<int64_t> {
                                            if (count >= ruled_out[stage]) return std::nullopt;
                                            return EstimatedCost(mode, stage, count);
                                          });
    if (!layers || tried.contains(*layers)) break;
    if (!Promising(mode, *layers, to_beat)) return best;
    bool fits = true;
    for (int32_t stage = 0; stage < stages(); ++stage) {
      if (FitOf(mode, stage, (*layers)[stage])) continue;
      if (!FitOf(mode, stage, 1)) return std::nullopt;
      ruled_out[stage] = std::min(ruled_out[stage], (*layers)[stage]);
      fits = false;
    }
    if (!fits) continue;
    tried.insert(*layers);
    if (!Promising(mode, *layers, to_beat)) return best;
    attempt(*layers);
    ++simulated;
  }
  const std::vector<int32_t> even = EvenPartition(stages(), request_.spec.model.layers);
  if (best && !tried.contains(even)) attempt(even);
  return best;
}

bool LayoutPlanner::StoresEverythingInBalance() {
  const auto layers = BalancedPartition(stages(), request_.spec.model.layers, [&](int32_t stage, int32_t count) {
    return std::optional<int64_t>(BusyTime(stage, count).value);
  });
  for (int32_t stage = 0; stage < stages(); ++stage) {
    if (!FitOf(RecomputeMode::kNone, stage, (*layers)[stage])) return false;
  }
  return true;
}

bool LayoutPlanner::Allowed(RecomputeMode mode) const {
  const RecomputeMode wanted = request_.spec.recompute;
  if (wanted != RecomputeMode::kAuto) return wanted == mode;
  const std::vector<RecomputeMode>& forbidden = request_.spec.recompute_options.forbidden;
  return std::find(forbidden.begin(), forbidden.end(), mode) == forbidden.end();
}

// Megatron-LM has one number for all stages. Fewer recomputed layers are faster, unless they fit only in a worse balance
// of the stages: then recomputing all may be.
std::optional<Draft> LayoutPlanner::BestBlock(Nanos to_beat) {
  const auto with = [&](int32_t layers) {
    block_layers_ = layers;
    std::erase_if(fits_, [](const auto& fit) { return std::get<0>(fit.first) == RecomputeMode::kBlock; });
    return DraftOf(RecomputeMode::kBlock, to_beat);
  };
  if (request_.spec.recompute_options.layers > 0) return with(request_.spec.recompute_options.layers);
  int32_t low = 0, high = request_.spec.model.layers - stages() + 1;  // at `high` all is recomputed
  const std::optional<Draft> all = with(high);
  std::optional<Draft> best = all;
  while (best && low < high) {
    const int32_t middle = low + (high - low) / 2;
    if (std::optional<Draft> draft = with(middle)) {
      best = std::move(draft);
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  return all && Faster(*all, *best) ? all : best;
}

std::optional<Draft> LayoutPlanner::Best(Nanos to_beat) {
  const RecomputeMode wanted = request_.spec.recompute;
  if (wanted == RecomputeMode::kBlock) return BestBlock(to_beat);
  if (wanted != RecomputeMode::kAuto && wanted != RecomputeMode::kHeu) return DraftOf(wanted, to_beat);
  if (StoresEverythingInBalance()) return DraftOf(RecomputeMode::kNone, to_beat);
  // Where HEU finds nothing that fits or promises to be faster, no named policy does.
  std::optional<Draft> best;
  if (Allowed(RecomputeMode::kHeu)) {
    best = DraftOf(RecomputeMode::kAuto, to_beat);
    if (!best) return best;
  }
  const auto consider = [&](RecomputeMode mode) {
    std::optional<Draft> draft = DraftOf(mode, best ? std::min(to_beat, best->simulation.step) : to_beat);
    if (draft && (!best || Faster(*draft, *best))) best = std::move(draft);
  };
  for (RecomputeMode mode : kNamedModes) {
    if (wanted == RecomputeMode::kAuto && Allowed(mode)) consider(mode);
  }
  // What HEU's model thinks hidden may be exposed in the simulation: then doing without windows can be faster.
  if (Allowed(RecomputeMode::kNoOverlap) || wanted == RecomputeMode::kHeu) consider(RecomputeMode::kNoOverlap);
  return best;
}

std::optional<Draft> LayoutPlanner::UseStalls(const Draft& draft) {
  const std::vector<StageContext> contexts = Contexts(draft.layers);
  bool any = false;
  for (int32_t stage = 0; stage < stages(); ++stage) {
    const Program program = LowerStage(contexts[stage], draft.policies[stage]);
    const std::vector<ActionSpan>& spans = draft.simulation.stages[stage].spans;
    Nanos waited;
    for (size_t i = 0; i < program.size(); ++i) {
      if (program[i].kind == ActionKind::kRecvBackwardWait) waited += spans[i].end - spans[i].begin;
    }
    stalls_[stage] = waited / candidate_.microbatches;
    any = any || stalls_[stage].value > 0;
  }
  if (!any) return std::nullopt;
  fits_.clear();
  heus_.clear();
  std::optional<Draft> better = TryPartition(RecomputeMode::kAuto, draft.layers);
  if (!better || !Faster(*better, draft)) return std::nullopt;
  return better;
}

// The least memory that the request's mode needs: its own policy, or for auto the least of HEU's and of both ways to
// recompute everything.
Bytes LayoutPlanner::LeastArena(int32_t stage, int32_t layers, bool estimate) {
  const RecomputeMode wanted = request_.spec.recompute;
  const bool heuristic = IsHeuristic(wanted) || wanted == RecomputeMode::kHeu;
  std::vector<RecomputeMode> modes{wanted};
  if (heuristic) modes = {RecomputeMode::kFull, RecomputeMode::kFullKeepCollectives};
  if (wanted == RecomputeMode::kBlock) {
    block_layers_ = request_.spec.recompute_options.layers > 0 ? request_.spec.recompute_options.layers : layers;
  }
  const Bytes rest = estimate ? LayerInputs(stage, layers) + Fixed(stage) : Bytes(0);
  Bytes least(std::numeric_limits<int64_t>::max());
  for (RecomputeMode mode : modes) {
    least = std::min(least, estimate ? EstimateNamed(mode, stage, layers).bytes + rest
                                     : Arena(stage, PolicyOf(mode, layers)));
  }
  if (heuristic) {
    const StageHeu& heu = Heu(wanted == RecomputeMode::kHeu ? RecomputeMode::kAuto : wanted, stage, layers);
    const Bytes bytes = heu.LeastBytes(layers);
    least = std::min(least, estimate ? bytes + rest : Arena(stage, heu.Best(layers, bytes)->policy));
  }
  return least;
}

Shortfall LayoutPlanner::LeastShortfall() {
  const auto lacking = [&](int32_t stage, int32_t layers, bool estimate) {
    const std::optional<Bytes> limit = Limit(stage, layers);
    LYNX_CHECK(limit.has_value());  // without a limit everything fits
    return LeastArena(stage, layers, estimate) - *limit;
  };
  const std::optional<std::vector<int32_t>> layers =
      BalancedPartition(stages(), request_.spec.model.layers, [&](int32_t stage, int32_t count) {
        return std::optional<int64_t>(lacking(stage, count, true).value);
      });
  LYNX_CHECK(layers.has_value());
  Shortfall worst;
  for (int32_t stage = 0; stage < stages(); ++stage) {
    const int32_t count = (*layers)[stage];
    const Bytes excess = lacking(stage, count, false);
    if (stage > 0 && excess <= worst.excess()) continue;
    const Bytes limit = *Limit(stage, count);
    worst = {stage, limit + excess, limit, States(stage, count).total()};
  }
  return worst;
}

std::optional<Plan> LayoutPlanner::Assemble(const Draft& draft) {
  Plan plan{.model = request_.spec.model,
            .layout = candidate_.layout,
            .micro_batch = candidate_.micro_batch,
            .microbatches = candidate_.microbatches,
            .mode = draft.mode,
            .activation_limit = request_.spec.resources.activation_memory_per_rank,
            .step = draft.simulation.step,
            .measured_profile = costs_.measured()};
  const std::vector<StageContext> contexts = Contexts(draft.layers);
  bool fits = true;
  for (int32_t stage = 0; stage < stages(); ++stage) {
    const StageContext& context = contexts[stage];
    const StageTimes& times = draft.simulation.stages[stage];
    StagePlan part{.first_layer = context.only_slice().first_layer,
                   .end_layer = context.only_slice().end_layer,
                   .policy = draft.policies[stage],
                   .program = LowerStage(context, draft.policies[stage])};
    const absl::StatusOr<MemoryPlan> memory = PlanMemory(part.program, context);
    LYNX_CHECK(memory.ok());
    part.arena = memory->arena;
    part.live_peak = memory->live_peak;
    part.states = StatesOf(context);
    part.forward = times.forward;
    part.backward = times.backward;
    part.weight = times.weight;
    part.optimizer = times.optimizer;
    part.recompute_hidden = times.recompute_hidden;
    part.recompute_exposed = times.recompute_exposed;
    part.communication_exposed = times.communication_exposed;
    part.stall = times.stall;
    if (const std::optional<Bytes> limit = Limit(stage, draft.layers[stage])) {
      if (request_.spec.resources.activation_memory_per_rank.value == 0) {
        plan.activation_limit = std::max(plan.activation_limit, *limit + reserves_[stage]);
      }
      const Bytes excess = part.arena - (*limit + reserves_[stage]);
      if (excess.value > 0) {
        reserves_[stage] += excess;
        fits = false;
      }
    }
    plan.stages.push_back(std::move(part));
  }
  if (fits) return plan;
  fits_.clear();
  return std::nullopt;
}

}  // namespace lynx
