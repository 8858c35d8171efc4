#include "planner/stage_fits.h"

#include <algorithm>
#include <limits>

#include "common/check.h"
#include "planner/lower.h"
#include "planner/memory_model.h"
#include "planner/partition.h"

namespace lynx {
namespace {

// Microbatches beyond those in flight in the programs whose arena is looked at: by then it repeats itself.
constexpr int32_t kProbeMicrobatches = 2;
// Enough to see what a stage takes beside its layers.
constexpr int32_t kFewLayers = 2;
constexpr int kBudgetTries = 24;
// A share of the limit that is not worth another try.
constexpr int64_t kNextToNothing = 256;
// How far the estimated memory of a named policy may exceed the limit for the policy to be looked at.
constexpr int64_t kMemoryAllowancePercent = 10;

constexpr std::array kNamedModes = {RecomputeMode::kNone, RecomputeMode::kBalanced, RecomputeMode::kSelective,
                                    RecomputeMode::kFullKeepCollectives, RecomputeMode::kFull};

}  // namespace

StageFits::StageFits(const PlanRequest& request, const Candidate& candidate, PlanCaches& caches)
    : request_(request), candidate_(candidate),
      costs_(request.cluster, request.spec.model, candidate.layout, candidate.micro_batch),
      shape_(ShapeOf(request.spec.model, candidate.layout, candidate.micro_batch)), graph_(LayerGraph::Of(shape_)),
      fronts_(caches.fronts()), peaks_(caches.Peaks(candidate)), stalls_(candidate.layout.pp),
      reserves_(candidate.layout.pp) {
  for (int32_t stage = 0; stage < stages(); ++stage) {
    device_memory_.push_back(DeviceMemoryOfStage(request.cluster, candidate.layout, stage));
    auto& busy = busy_times_.emplace_back();
    if (stage > 0 && &costs_.Of(stage) == &costs_.Of(stage - 1)) {
      busy = busy_times_[stage - 1];
      continue;
    }
    for (LayerType type : {LayerType::kEmbedding, LayerType::kTransformer, LayerType::kHead}) {
      busy[static_cast<size_t>(type)] =
          costs_.Of(stage).LayerTime(type, Pass::kForward) + costs_.Of(stage).LayerTime(type, Pass::kBackward);
    }
  }
}

void StageFits::Reserve(int32_t stage, Bytes bytes) {
  reserves_[static_cast<size_t>(stage)] += bytes;
  fits_.clear();
}

void StageFits::SetStalls(std::vector<Nanos> stalls) {
  stalls_ = std::move(stalls);
  fits_.clear();
  heus_.clear();
}

void StageFits::SetBlockLayers(int32_t layers) {
  block_layers_ = layers;
  std::erase_if(fits_, [](const auto& fit) { return std::get<0>(fit.first) == RecomputeMode::kBlock; });
}

StageContext StageFits::Context(int32_t stage, int32_t first_layer, int32_t layers) const {
  return {.model = request_.spec.model,
          .layout = candidate_.layout,
          .micro_batch = candidate_.micro_batch,
          .microbatches = candidate_.microbatches,
          .pipeline_rank = stage,
          .slices = {SliceOf(candidate_.layout, stage, first_layer, first_layer + layers)}};
}

int32_t StageFits::InFlightOf(int32_t stage) const { return InFlight(stage, stages(), candidate_.microbatches); }

Nanos StageFits::BusyTime(int32_t stage, int32_t layers) const {
  const auto of = [&](LayerType type) { return busy_times_[stage][static_cast<size_t>(type)]; };
  Nanos time = of(LayerType::kTransformer) * layers;
  if (stage == 0) time += of(LayerType::kEmbedding);
  if (stage == stages() - 1) time += of(LayerType::kHead);
  return time;
}

StateBytes StageFits::States(int32_t stage, int32_t layers) const { return StatesOf(Context(stage, 0, layers)); }

std::optional<Bytes> StageFits::Limit(int32_t stage, int32_t layers) const {
  const Bytes activation = request_.spec.resources.activation_memory_per_rank;
  const Bytes device = device_memory_[stage];
  std::optional<Bytes> limit;
  if (device.value > 0) limit = device - States(stage, layers).total();
  if (activation.value > 0) limit = limit ? std::min(*limit, activation) : activation;
  if (limit) *limit -= reserves_[stage];
  return limit;
}

Bytes StageFits::Peak(int32_t stage, const StagePolicy& policy) {
  return peaks_.Peak(Ends(stage), policy, InFlightOf(stage), candidate_.microbatches);
}

Bytes StageFits::Arena(int32_t stage, const StagePolicy& policy) const {
  StageContext context = Context(stage, 0, static_cast<int32_t>(policy.layers.size()));
  context.microbatches = std::min(candidate_.microbatches, InFlightOf(stage) + kProbeMicrobatches);
  const absl::StatusOr<MemoryPlan> memory = PlanMemory(LowerStage(context, policy), context);
  LYNX_CHECK(memory.ok());
  return memory->arena;
}

RecomputeProblem StageFits::Problem(RecomputeMode mode, int32_t stage, int32_t layers) const {
  RecomputeProblem problem = MakeStageProblem(costs_.Of(stage), shape_,
                                              {.layers = layers,
                                               .in_flight = InFlightOf(stage),
                                               .below_head = stage == stages() - 1,
                                               .stall = stalls_[stage]});
  return mode == RecomputeMode::kNoOverlap ? WithoutWindows(problem) : problem;
}

const StageHeu& StageFits::Heu(RecomputeMode mode, int32_t stage, int32_t layers) {
  // Without stalls the fronts serve all numbers of layers.
  const std::tuple key{mode, stage, stalls_[stage].value == 0 ? 0 : layers};
  auto [it, inserted] = heus_.try_emplace(key, nullptr);
  if (inserted) it->second = &fronts_.Solve(Problem(mode, stage, layers));
  return *it->second;
}

Bytes StageFits::LayerInputs(int32_t stage, int32_t layers) const {
  return TensorBytes(Tensor::kX, shape_) * layers * InFlightOf(stage);
}

const StageFits::NamedUses& StageFits::UsesOf(RecomputeMode mode, int32_t stage) {
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

StagePolicy StageFits::PolicyOf(RecomputeMode mode, int32_t layers) const {
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

StageFits::Estimate StageFits::EstimateBlock(int32_t stage, int32_t layers) {
  const NamedUses& full = UsesOf(RecomputeMode::kFull, stage);
  const NamedUses& stored = UsesOf(RecomputeMode::kNone, stage);
  const int32_t recomputed = std::min(layers, block_layers_);
  std::vector<LayerUse> uses(static_cast<size_t>(layers), stored.inner);
  std::fill(uses.begin(), uses.begin() + recomputed, full.inner);
  uses.back() = recomputed == layers ? full.top : stored.top;
  const StageValue value = Combine(full.problem, uses);
  return {value.exposed, value.bytes()};
}

StageFits::Estimate StageFits::EstimateNamed(RecomputeMode mode, int32_t stage, int32_t layers) {
  if (mode == RecomputeMode::kUniform) mode = RecomputeMode::kFull;
  if (mode == RecomputeMode::kBlock) return EstimateBlock(stage, layers);
  const NamedUses& named = UsesOf(mode, stage);
  std::vector<LayerUse> uses(static_cast<size_t>(layers), named.inner);
  uses.back() = named.top;
  const StageValue value = Combine(named.problem, uses);
  return {value.exposed, value.bytes()};
}

Bytes StageFits::Fixed(int32_t stage) {
  auto [it, inserted] = fixed_.try_emplace(stage);
  if (inserted) {
    const int32_t layers = std::min(kFewLayers, request_.spec.model.layers);
    const Bytes peak = Peak(stage, NamedPolicy(graph_, RecomputeMode::kNone, layers));
    it->second = peak - EstimateNamed(RecomputeMode::kNone, stage, layers).bytes - LayerInputs(stage, layers);
  }
  return it->second;
}

StageFits::Estimate StageFits::EstimateHeu(RecomputeMode mode, int32_t stage, int32_t layers) {
  const StageHeu& heu = Heu(mode, stage, layers);
  Bytes budget = EstimateNamed(RecomputeMode::kNone, stage, layers).bytes;
  if (const std::optional<Bytes> limit = Limit(stage, layers)) {
    budget = std::min(budget, *limit - Fixed(stage) - LayerInputs(stage, layers));
  }
  const StageValue value = heu.Estimate(layers, budget);
  return {value.exposed, value.bytes()};
}

int64_t StageFits::EstimatedCost(RecomputeMode mode, int32_t stage, int32_t layers) {
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

bool StageFits::MayFit(RecomputeMode mode, int32_t stage, int32_t layers) {
  const std::optional<Bytes> limit = Limit(stage, layers);
  if (!limit) return true;
  const Bytes estimate = EstimateNamed(mode, stage, layers).bytes + LayerInputs(stage, layers) + Fixed(stage);
  return estimate / 100 * (100 - kMemoryAllowancePercent) <= *limit;
}

std::optional<StageFits::Fit> StageFits::FitNamed(RecomputeMode mode, int32_t stage, int32_t layers) {
  Fit fit{.policy = PolicyOf(mode, layers)};
  fit.peak = Peak(stage, fit.policy);
  const std::optional<Bytes> limit = Limit(stage, layers);
  if (limit && fit.peak > *limit) return std::nullopt;
  fit.exposed = EstimateNamed(mode, stage, layers).exposed;
  return fit;
}

// HEU's policy of least exposed time whose peak is within the limit. HEU's model of memory is off by an unknown
// amount, so its budget is corrected by what each peak has too much or to spare; where that steps outside of what is
// known to fit and not to fit, the budget halves the interval. Ends when next to nothing is to spare, or when more budget
// brings the same policy again.
std::optional<StageFits::Fit> StageFits::FitBudget(RecomputeMode mode, int32_t stage, int32_t layers, Bytes limit) {
  const StageHeu& heu = Heu(mode, stage, layers);
  const Bytes least = heu.LeastBytes(layers);
  Bytes fits = least - Bytes(1);  // no larger budget is known to fit
  Bytes exceeds = EstimateNamed(RecomputeMode::kNone, stage, layers).bytes + Bytes(1);
  const Bytes most = std::max(least, exceeds - Bytes(1));
  Bytes budget = std::clamp(limit - Fixed(stage) - LayerInputs(stage, layers), least, most);
  std::optional<Fit> best;
  std::optional<StagePolicy> last_fitting;
  for (int i = 0; i < kBudgetTries; ++i) {
    const std::optional<StageSolution> choice = heu.Best(layers, budget);
    LYNX_CHECK(choice.has_value());
    const Nanos exposed = choice->value.exposed;
    const Bytes bytes = choice->value.bytes();
    const bool again = last_fitting == choice->policy;
    const Bytes peak = Peak(stage, choice->policy);
    const Bytes spare = limit - peak;
    fixed_[stage] = peak - bytes - LayerInputs(stage, layers);
    if (spare.value >= 0) {
      if (!best || std::tie(exposed, peak) < std::tie(best->exposed, best->peak)) {
        best = Fit{choice->policy, exposed, peak};
      }
      fits = budget;
      if (again || exposed.value == 0 || spare < limit / kNextToNothing) break;
      last_fitting = choice->policy;
    } else {
      exceeds = bytes;
    }
    if (exceeds - fits <= Bytes(1)) break;
    budget = bytes + spare;
    if (budget <= fits || budget >= exceeds) budget = fits + (exceeds - fits) / 2;
  }
  return best;
}

std::optional<StageFits::Fit> StageFits::FitHeu(RecomputeMode mode, int32_t stage, int32_t layers) {
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

const std::optional<StageFits::Fit>& StageFits::FitOf(RecomputeMode mode, int32_t stage, int32_t layers) {
  const std::tuple key{mode, stage, layers};
  auto it = fits_.find(key);
  if (it == fits_.end()) {
    it = fits_.emplace(key, IsHeuristic(mode) ? FitHeu(mode, stage, layers) : FitNamed(mode, stage, layers))
             .first;
  }
  return it->second;
}

bool StageFits::Allowed(RecomputeMode mode) const {
  const RecomputeMode wanted = request_.spec.recompute;
  if (wanted != RecomputeMode::kAuto) return wanted == mode;
  const std::vector<RecomputeMode>& forbidden = request_.spec.recompute_options.forbidden;
  return std::find(forbidden.begin(), forbidden.end(), mode) == forbidden.end();
}

Bytes StageFits::LeastArena(int32_t stage, int32_t layers, bool estimate) {
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

}  // namespace lynx
