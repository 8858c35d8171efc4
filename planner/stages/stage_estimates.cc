// The estimates of StageOracle: memory and exposed time of each mode on a stage. They come from HEU's model, and no program is
// lowered.
#include <algorithm>
#include <optional>

#include "common/check.h"
#include "planner/stages/stage_oracle.h"

namespace lynx {
namespace {

// The function Fixed finds the memory that a stage needs in addition to its layers. It uses a program with this number of
// layers per virtual stage.
constexpr int32_t kFewLayers = 2;
// If an estimate exceeds the limit by at most 1 / kDoubtfulShare of the limit, the estimate may be wrong. Then the stage seems
// to fit, and its exact peak decides later.
constexpr int64_t kDoubtfulShare = 200;
// A named policy is tried if its estimated memory exceeds the limit by at most about this percentage.
constexpr int64_t kMemoryAllowancePercent = 10;

}  // namespace

const StageOracle::NamedUses& StageOracle::UsesOf(RecomputeMode mode, int32_t stage, SliceEnds ends) {
  auto [it, inserted] = named_.try_emplace({mode, stage, ends.head});
  if (inserted) {
    // No named policy uses the stall, so the number of layers that share the stall does not matter.
    const LayerPolicy policy = NamedPolicy(graph_, mode, 1, request_.spec.recompute_options.modules).layers[0];
    it->second.problem = Problem(mode, stage, {1, ends});
    const absl::StatusOr<LayerUse> inner = UseOf(it->second.problem, policy, LayerPlace::kInner);
    const absl::StatusOr<LayerUse> top = UseOf(it->second.problem, policy, LayerPlace::kTop);
    LYNX_CHECK(inner.ok() && top.ok());
    it->second.inner = *inner;
    it->second.top = *top;
    std::vector<LayerUse> uses{*top};
    for (StageValue& value : it->second.values) {
      value = Combine(it->second.problem, uses);
      uses.insert(uses.begin(), *inner);
    }
  }
  return it->second;
}

StageValue StageOracle::ValueOfNamed(RecomputeMode mode, int32_t stage, const Part& part) {
  const bool block = mode == RecomputeMode::kBlock;
  const NamedUses& named = UsesOf(block ? RecomputeMode::kNone : mode, stage, part.ends);
  if (!block) {
    const auto [one, two, three] = named.values;
    if (part.layers <= 2) return part.layers == 1 ? one : two;
    StageValue value = three;
    value.held += (three.held - two.held) * (part.layers - 3);
    value.exposed += (three.exposed - two.exposed) * (part.layers - 3);
    return value;
  }
  std::vector<LayerUse> uses(static_cast<size_t>(part.layers), named.inner);
  uses.back() = named.top;
  const NamedUses& full = UsesOf(RecomputeMode::kFull, stage, part.ends);
  const int32_t recomputed = std::min(part.layers, named_layers_);
  std::fill(uses.begin(), uses.begin() + recomputed, full.inner);
  if (recomputed == part.layers) uses.back() = full.top;
  return Combine(named.problem, uses);
}

StageOracle::Estimate StageOracle::EstimateNamed(RecomputeMode mode, int32_t stage, int32_t layers) {
  if (mode == RecomputeMode::kUniform) return EstimateUniform(stage, layers);
  Estimate sum;
  Bytes transient;
  for (const Part& part : PartsOf(stage, layers)) {
    const StageValue value = ValueOfNamed(mode, stage, part);
    sum.exposed += value.exposed / pipeline_.pipes();
    sum.bytes += value.held;
    transient = std::max(transient, value.transient);
  }
  sum.bytes += transient;
  // Copies run at the same time as the passes. The estimate assumes that they are hidden; the simulation shows how much of
  // their time is exposed.
  sum.bytes = sum.bytes / 1000 * (1000 - request_.spec.recompute_options.offload_permille);
  return sum;
}

// The estimate for kFull, with three corrections: inputs that are not stored, the memory of the other layers of a group, and
// the time to recompute the inputs of these layers.
StageOracle::Estimate StageOracle::EstimateUniform(int32_t stage, int32_t layers) {
  Estimate estimate = EstimateNamed(RecomputeMode::kFull, stage, layers);
  const int32_t group = std::clamp(named_layers_, 1, layers);
  const int32_t below = layers - (layers + group - 1) / group;
  Bytes layer;
  for (const Tensor tensor : graph_.recomputable()) layer += StoredBytes(tensor, shape_);
  estimate.bytes += layer * (group - 1) - TensorBytes(Tensor::kX, shape_) * below * InFlightOf(stage);
  const CostModel& costs = costs_.Of(stage);
  const auto if_any = [&](Op op) { return graph_.Has(op) ? costs.OpTime(op, Pass::kForward) : Nanos(0); };
  const Nanos again = if_any(Op::kUnpermute) + if_any(Op::kSharedFc2) + costs.OpTime(Op::kFc2, Pass::kForward) +
                      costs.OpTime(Op::kAdd2, Pass::kForward) +
                      costs.WindowTime(LayerType::kTransformer, Segment::kMlp, Pass::kForward);
  estimate.exposed += again * below / pipeline_.pipes();
  return estimate;
}

Bytes StageOracle::Fixed(RecomputeMode mode, int32_t stage) {
  auto [it, inserted] = fixed_.try_emplace(FixedKey(mode, stage));
  if (inserted) {
    const int32_t layers = pipeline_.chunks * kFewLayers;
    const std::vector<StagePolicy> all_stored = PoliciesOf(RecomputeMode::kNone, stage, layers);
    const Bytes peak = lowers_peaks_ ? Peak(stage, all_stored, std::nullopt) : PeakOfSums(stage, all_stored);
    it->second = peak - EstimateNamed(RecomputeMode::kNone, stage, layers).bytes - LayerInputs(stage, layers);
  }
  return it->second;
}

Bytes StageOracle::BudgetOf(RecomputeMode mode, int32_t stage, int32_t layers, Bytes limit) {
  return limit - Fixed(mode, stage) - LayerInputs(stage, layers);
}

StageOracle::Estimate StageOracle::EstimateHeu(RecomputeMode mode, int32_t stage, int32_t layers) {
  const Estimate all_stored = EstimateNamed(RecomputeMode::kNone, stage, layers);
  const std::optional<Bytes> limit = Limit(stage, layers);
  if (!limit) return all_stored;
  const Bytes budget = BudgetOf(mode, stage, layers, *limit);
  if (budget >= all_stored.bytes) return all_stored;
  Estimate sum;
  std::optional<Part> known;  // the last part that was solved; most parts have the same solution
  StageValue value;
  for (const Part& part : PartsOf(stage, layers)) {
    if (!known || !known->Alike(part)) value = EstimateOfPart(mode, stage, part, budget / layers * part.layers);
    known = part;
    sum.exposed += value.exposed / pipeline_.pipes();
    sum.bytes += value.bytes();
  }
  return sum;
}

StageValue StageOracle::EstimateOfPart(RecomputeMode mode, int32_t stage, const Part& part, Bytes budget) {
  const StageHeu& heu = Heu(mode, stage, part);
  const RecomputeProblem* offload = OffloadProblem(mode, stage, part);
  if (offload == nullptr) return heu.Estimate(part.layers, budget);
  return EstimateWithOffloading(heu, *offload, budget, CopySlowdown(stage));
}

RecomputeMode StageOracle::EstimatedMode() const {
  switch (request_.spec.recompute) {
    case RecomputeMode::kAuto: return Allowed(RecomputeMode::kHeu) ? RecomputeMode::kAuto : RecomputeMode::kNoOverlap;
    case RecomputeMode::kHeu:
    case RecomputeMode::kOpt: return RecomputeMode::kAuto;
    case RecomputeMode::kBlock: return RecomputeMode::kNoOverlap;
    default: return request_.spec.recompute;
  }
}

int64_t StageOracle::EstimatedCost(RecomputeMode mode, int32_t stage, int32_t layers) {
  const Nanos busy = BusyTime(stage, layers);
  const auto known = fits_.find({mode, stage, layers, offloading_});
  if (known != fits_.end() && known->second) return (busy + known->second->exposed).value;
  const Estimate estimate = IsHeuristic(mode) ? EstimateHeu(mode, stage, layers) : EstimateNamed(mode, stage, layers);
  if (const std::optional<Bytes> limit = Limit(stage, layers)) {
    const Bytes lacking = estimate.bytes + LayerInputs(stage, layers) + Fixed(mode, stage) - *limit;
    if (lacking > *limit / kDoubtfulShare) return kSeemsNotToFit + lacking.value;
  }
  return (busy + estimate.exposed).value;
}

bool StageOracle::SeemsToFit(RecomputeMode mode, int32_t stage, int32_t layers) {
  const std::optional<Bytes> limit = Limit(stage, layers);
  if (!limit) return true;
  if (IsHeuristic(mode) && !offloading_ && !fits_.contains({mode, stage, layers, offloading_})) {
    // The stage seems to fit if HEU estimates for each virtual stage that some mix fits the budget.
    const Bytes budget = BudgetOf(mode, stage, layers, *limit);
    if (budget >= EstimateNamed(RecomputeMode::kNone, stage, layers).bytes) return true;
    const std::vector<Part> parts = PartsOf(stage, layers);
    if (std::all_of(parts.begin(), parts.end(), [&](const Part& part) {
          return Heu(mode, stage, part).Estimates(part.layers, budget / layers * part.layers);
        })) {
      return true;
    }
  }
  return EstimatedCost(mode, stage, layers) < kSeemsNotToFit;
}

bool StageOracle::MayFit(RecomputeMode mode, int32_t stage, int32_t layers) {
  const std::optional<Bytes> limit = Limit(stage, layers);
  if (!limit) return true;
  const Bytes estimate = EstimateNamed(mode, stage, layers).bytes + LayerInputs(stage, layers) + Fixed(mode, stage);
  return estimate / 100 * (100 - kMemoryAllowancePercent) <= *limit;
}

}  // namespace lynx
