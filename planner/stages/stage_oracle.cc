#include "planner/stages/stage_oracle.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "common/check.h"
#include "planner/lower/lower.h"
#include "planner/lower/weave.h"
#include "planner/problem/layout_schedule.h"
#include "planner/problem/shorter_steps.h"
#include "planner/problem/stage_context.h"
#include "planner/program/arena_layout.h"
#include "planner/program/memory_model.h"
#include "planner/stages/partition.h"

namespace lynx {
namespace {

constexpr int kExactTries = 3;
constexpr int kBudgetTries = 24;
// With offloading, HEU takes about this many times as long.
constexpr int64_t kSolvesOfOffloading = 10;
// If less than 1 / kNextToNothing of the limit is unused, another attempt is not worthwhile.
constexpr int64_t kNextToNothing = 256;
// A larger budget can lead to a smaller peak, but never to one that is so much smaller. So if the peak of the smallest budget
// is so far above the limit, no budget fits.
constexpr bool FarAbove(Bytes peak, Bytes limit) { return peak / 3 > limit / 2; }

constexpr std::array kNamedModes = {RecomputeMode::kNone, RecomputeMode::kBalanced, RecomputeMode::kSelective,
                                    RecomputeMode::kFullKeepCollectives, RecomputeMode::kFull};

}  // namespace

StageOracle::StageOracle(const PlanRequest& request, const Candidate& candidate, PlanCaches& caches)
    : request_(request), candidate_(candidate),
      costs_(request.cluster, request.spec.model, candidate.layout, candidate.micro_batch),
      shape_(ShapeOf(request.spec.model, candidate.layout, candidate.micro_batch)), graph_(LayerGraph::Of(shape_)),
      pipeline_(PipelineOf(candidate.layout)), caches_(caches), peaks_(caches.Peaks(candidate)), stalls_(candidate.layout.pp),
      reserves_(candidate.layout.pp), named_layers_(request.spec.recompute_options.layers) {
  const std::optional<ShorterSteps> shorter = ShorterStepsOf(candidate.layout, candidate.microbatches);
  facts_ = &caches.FactsOf(candidate.layout, shorter ? shorter->more : candidate.microbatches);
  for (const InFlightCount& count : facts_->in_flight) {
    const auto of_slice = [&](int32_t slots) { return (slots + pipeline_.chunks - 1) / pipeline_.chunks; };
    in_flight_.push_back(of_slice(count.activations));
    for_weights_.push_back(of_slice(count.either - count.activations));
  }
  for (int32_t stage = 0; stage < stages(); ++stage) {
    device_memory_.push_back(DeviceMemoryOfStage(request.cluster, candidate.layout, stage));
    const bool copies = costs_.Of(stage).OffloadTime(Bytes(1)) < kMaxTime;
    const bool offers = copies && lynx::OffersOffloading(request);
    const int32_t layers = request.spec.parallel.stage_layers.empty()
                               ? std::max(pipeline_.chunks, request.spec.model.layers * pipeline_.pipes() / stages())
                               : RankLayers(pipeline_, request.spec.parallel.stage_layers)[static_cast<size_t>(stage)];
    const Bytes limit = offers ? Limit(stage, layers).value_or(Bytes(0)) : Bytes(0);
    host_memory_.push_back(offers ? HostShare(stage, layers, limit) / pipeline_.chunks : Bytes(0));
    auto& busy = busy_times_.emplace_back();
    const CostModel& dense = costs_.Of(stage).dense();
    if (stage > 0 && &costs_.Of(stage) == &costs_.Of(stage - 1)) {
      busy = busy_times_[stage - 1];
      dense_busy_times_.push_back(dense_busy_times_.back());
      continue;
    }
    dense_busy_times_.push_back(dense.LayerTime(LayerType::kTransformer, Pass::kForward) +
                                dense.LayerTime(LayerType::kTransformer, Pass::kBackward));
    for (LayerType type : {LayerType::kEmbedding, LayerType::kTransformer, LayerType::kHead}) {
      busy[static_cast<size_t>(type)] =
          costs_.Of(stage).LayerTime(type, Pass::kForward) + costs_.Of(stage).LayerTime(type, Pass::kBackward);
    }
  }
}

void StageOracle::LowerPeaksOfWoven() {
  if (candidate_.layout.weave == WeaveMode::kOff || lowers_peaks_) return;
  lowers_peaks_ = true;
  fixed_.clear();
  fits_.clear();
}

void StageOracle::Reserve(int32_t stage, Bytes bytes) {
  // If the peak came from PeakOfSlots (`sums`), it was too small. From now on, peaks come from lowered programs and are exact.
  const bool sums = candidate_.layout.weave == WeaveMode::kOff &&
                    candidate_.layout.schedule != ScheduleKind::kOneForwardOneBackward && !lowers_peaks_;
  if (sums) {
    lowers_peaks_ = true;
    fixed_.clear();
    fits_.clear();
  } else {
    reserves_[static_cast<size_t>(stage)] += bytes;
    ForgetFits(stage);
  }
}

void StageOracle::ForgetFits(int32_t stage) {
  std::erase_if(fits_, [stage](const auto& fit) { return std::get<1>(fit.first) == stage; });
}

void StageOracle::ForgetReserves() {
  std::fill(reserves_.begin(), reserves_.end(), Bytes(0));
  fits_.clear();
}

Bytes StageOracle::HostShare(int32_t stage, int32_t layers, Bytes activations) const {
  const Bytes taken = States(stage, layers).total() + activations;
  return HostShareOfStage(request_.cluster, candidate_.layout, stage, taken).value_or(Bytes(0));
}

// HEU's model assumes that the offloaded tensors of all microbatches in flight are on the host at the same time: `most` bytes.
// The program takes `taken` bytes for the same policies. So the limit for the model is not `share`, but share * most / taken.
void StageOracle::ReserveHost(int32_t stage, const std::vector<StagePolicy>& policies, Bytes taken, Bytes share) {
  Bytes most;
  for (const StagePolicy& policy : policies) {
    Bytes offloaded;
    for (const LayerPolicy& layer : policy.layers) {
      for (size_t i = 0; i < graph_.recomputable().size(); ++i) {
        if (layer[i] == Placement::kOffload) offloaded += StoredBytes(graph_.recomputable()[i], shape_);
      }
    }
    most = std::max(most, offloaded * InFlightOf(stage));
  }
  const double part = static_cast<double>(share.value) / static_cast<double>(taken.value);
  Bytes& host = host_memory_[static_cast<size_t>(stage)];
  host = std::min(host, Bytes(static_cast<int64_t>(part * static_cast<double>(most.value))));
  std::erase_if(offload_problems_, [stage](const auto& problem) { return std::get<0>(problem.first) == stage; });
  ForgetFits(stage);
}

bool StageOracle::OffersOffloading() const {
  return std::any_of(host_memory_.begin(), host_memory_.end(), [](Bytes host) { return host.value > 0; });
}

void StageOracle::SetStalls(std::vector<Nanos> stalls) {
  stalls_ = std::move(stalls);
  fits_.clear();
  heus_.clear();
  offload_problems_.clear();
}

void StageOracle::OffloadAbove(Nanos cost) {
  offload_above_ = cost;
  std::erase_if(fits_, [](const auto& fit) { return std::get<3>(fit.first); });
}

void StageOracle::SetNamedLayers(int32_t layers) {
  named_layers_ = layers;
  std::erase_if(fits_, [](const auto& fit) {
    return std::get<0>(fit.first) == RecomputeMode::kBlock || std::get<0>(fit.first) == RecomputeMode::kUniform;
  });
}

int32_t StageOracle::LeastMemoryGroup(int32_t stage, int32_t layers) {
  const int32_t before = named_layers_;
  int32_t best = 1;
  std::optional<Bytes> least;
  for (named_layers_ = 1; named_layers_ <= layers; ++named_layers_) {
    const Bytes bytes = EstimateUniform(stage, layers).bytes;
    if (least && bytes >= *least) continue;
    least = bytes;
    best = named_layers_;
  }
  named_layers_ = before;
  return best;
}

std::vector<StageOracle::Part> StageOracle::PartsOf(int32_t stage, int32_t layers) const {
  std::vector<int32_t> counts = EvenPartition(pipeline_.chunks, layers);
  // In a bidirectional pipeline, both ranks of a piece have the same number of layers for this piece.
  const int32_t first = pipeline_.PieceOf(stage);
  if (pipeline_.bidirectional() && first >= pipeline_.pieces() / 2) std::reverse(counts.begin(), counts.end());
  // The job may say the layers of each chunk. Other numbers of layers are asked for only to estimate memory.
  const std::vector<int32_t>& pinned = request_.spec.parallel.stage_layers;
  if (!pinned.empty() && RankLayers(pipeline_, pinned)[static_cast<size_t>(stage)] == layers) {
    for (int32_t chunk = 0; chunk < pipeline_.chunks; ++chunk) {
      counts[static_cast<size_t>(chunk)] = pinned[static_cast<size_t>(pipeline_.PieceOf(pipeline_.StageOn(stage, chunk)))];
    }
  }
  std::vector<Part> parts;
  for (int32_t chunk = 0; chunk < pipeline_.chunks; ++chunk) {
    const int32_t virtual_stage = pipeline_.StageOn(stage, chunk);
    parts.push_back({counts[static_cast<size_t>(chunk)],
                     {pipeline_.Previous(virtual_stage) == kNoStage, pipeline_.Next(virtual_stage) == kNoStage}});
  }
  return parts;
}

StageContext StageOracle::Context(int32_t stage, int32_t layers) const {
  StageContext context{.model = request_.spec.model,
                       .layout = candidate_.layout,
                       .micro_batch = candidate_.micro_batch,
                       .microbatches = candidate_.microbatches,
                       .pipeline_rank = stage,
                       .slices = {}};
  const bool mixed = request_.spec.model.moe.dense_layers > 0;
  int32_t first = 0, chunk = 0;
  for (const Part& part : PartsOf(stage, layers)) {
    if (mixed) first = std::max(first, FirstLayerOf(pipeline_.PieceOf(pipeline_.StageOn(stage, chunk)), part.layers));
    context.slices.push_back(SliceOf(candidate_.layout, pipeline_.StageOn(stage, chunk++), first, first + part.layers));
    first += part.layers;
  }
  return context;
}

int32_t StageOracle::FirstLayerOf(int32_t piece, int32_t layers) const {
  const std::vector<int32_t>& pinned = request_.spec.parallel.stage_layers;
  return pinned.empty() ? piece * layers : std::accumulate(pinned.begin(), pinned.begin() + piece, 0);
}

int32_t StageOracle::DenseLayersOf(int32_t stage, int32_t layers) const {
  const MoeSpec& moe = request_.spec.model.moe;
  if (moe.dense_layers == 0 || layers < pipeline_.chunks) return 0;  // no rank has fewer layers than chunks
  // A rank whose first piece comes after all layers without experts has none of them, because every piece has a layer.
  if (pipeline_.PieceOf(pipeline_.StageOn(stage, 0)) >= moe.dense_layers) return 0;
  int32_t dense = 0;
  for (const StageSlice& slice : Context(stage, layers).slices) dense += slice.DenseLayers(moe);
  return dense;
}

Nanos StageOracle::BusyTime(int32_t stage, int32_t layers) const {
  const auto of = [&](LayerType type) { return busy_times_[stage][static_cast<size_t>(type)]; };
  const int32_t dense = DenseLayersOf(stage, layers);
  Nanos time = of(LayerType::kTransformer) * (layers - dense) + dense_busy_times_[stage] * dense;
  for (int32_t chunk = 0; chunk < pipeline_.chunks; ++chunk) {
    const int32_t virtual_stage = pipeline_.StageOn(stage, chunk);
    if (pipeline_.Previous(virtual_stage) == kNoStage) time += of(LayerType::kEmbedding);
    if (pipeline_.Next(virtual_stage) == kNoStage) time += of(LayerType::kHead);
  }
  return time / pipeline_.pipes();
}

StateBytes StageOracle::States(int32_t stage, int32_t layers) const { return StatesOf(Context(stage, layers)); }

std::optional<Bytes> StageOracle::Limit(int32_t stage, int32_t layers) const { return Limit(Context(stage, layers)); }

std::optional<Bytes> StageOracle::Limit(const StageContext& context) const {
  const auto stage = static_cast<size_t>(context.pipeline_rank);
  const Bytes activation = request_.spec.resources.activation_memory_per_rank;
  const Bytes device = device_memory_[stage];
  std::optional<Bytes> limit;
  if (device.value > 0) limit = device - StatesOf(context).total();
  if (activation.value > 0) limit = limit ? std::min(*limit, activation) : activation;
  if (limit) *limit -= reserves_[stage];
  return limit;
}

RecomputeProblem StageOracle::Problem(RecomputeMode mode, int32_t stage, const Part& part) const {
  RecomputeProblem problem = MakeStageProblem(costs_.Of(stage), shape_,
                                              {.layers = part.layers,
                                               .in_flight = InFlightOf(stage),
                                               .below_head = part.ends.head,
                                               .stall = stalls_[stage] / pipeline_.chunks});
  return mode == RecomputeMode::kNoOverlap ? WithoutWindows(problem) : problem;
}

const RecomputeProblem* StageOracle::OffloadProblem(RecomputeMode mode, int32_t stage, const Part& part) {
  const Bytes host = host_memory_[static_cast<size_t>(stage)];
  if (!offloading_ || mode != RecomputeMode::kAuto || host.value == 0) return nullptr;
  auto [it, inserted] = offload_problems_.try_emplace({stage, part.layers, part.ends.head});
  if (inserted) {
    it->second = MakeStageProblem(costs_.Of(stage), shape_,
                                  {.layers = part.layers,
                                   .in_flight = InFlightOf(stage),
                                   .below_head = part.ends.head,
                                   .stall = stalls_[stage] / pipeline_.chunks,
                                   .host_memory = host});
  }
  return it->second.host_budget.value > 0 ? &it->second : nullptr;
}

const StageHeu& StageOracle::Heu(RecomputeMode mode, int32_t stage, const Part& part) {
  // Without stalls, one Pareto front serves all numbers of layers.
  const std::tuple key{mode, stage, stalls_[stage].value == 0 ? 0 : part.layers, part.ends.head};
  auto [it, inserted] = heus_.try_emplace(key, nullptr);
  if (inserted) it->second = &caches_.fronts().Solve(Problem(mode, stage, part));
  return *it->second;
}

Bytes StageOracle::LayerInputs(int32_t stage, int32_t layers) const {
  const Bytes inputs = TensorBytes(Tensor::kX, shape_) * InFlightOf(stage);
  if (!SplitsWeight(candidate_.layout)) return inputs * layers;
  const auto held = [&](int32_t count) {
    return peaks_.StoredForWeights({}, NamedPolicy(graph_, RecomputeMode::kNone, count));
  };
  return (inputs + (held(2) - held(1)) * for_weights_[static_cast<size_t>(stage)]) * layers;
}

StagePolicy StageOracle::PolicyOf(RecomputeMode mode, int32_t layers) const {
  RecomputeOptions options = request_.spec.recompute_options;
  if (mode == RecomputeMode::kBlock || mode == RecomputeMode::kUniform) options.layers = named_layers_;
  return NamedPolicy(shape_, mode, options, layers);
}

std::vector<StagePolicy> StageOracle::PoliciesOf(RecomputeMode mode, int32_t stage, int32_t layers) const {
  std::vector<StagePolicy> policies;
  for (const Part& part : PartsOf(stage, layers)) policies.push_back(PolicyOf(mode, part.layers));
  return policies;
}

// Returns the smallest budget with which HEU finds policies for all virtual stages of the rank. The shares of the virtual
// stages are proportional to their layers. Each share must be enough for the least memory of its virtual stage.
Bytes StageOracle::LeastOfHeu(RecomputeMode mode, int32_t stage, int32_t layers) {
  Bytes least;
  for (const Part& part : PartsOf(stage, layers)) {
    const RecomputeProblem* offload = OffloadProblem(mode, stage, part);
    const StageHeu& heu = Heu(mode, stage, part);
    const Bytes of_part = offload == nullptr ? heu.LeastBytes(part.layers) : LeastBytesWithOffloading(heu, *offload);
    if (pipeline_.chunks == 1) return of_part;
    least = std::max(least, (of_part + Bytes(part.layers - 1)) / part.layers * layers);
  }
  return least;
}

std::pair<std::vector<StagePolicy>, StageOracle::Estimate> StageOracle::BestOfHeu(RecomputeMode mode, int32_t stage,
                                                                                  int32_t layers, Bytes budget) {
  solved_ += offloading_ && mode == RecomputeMode::kAuto ? kSolvesOfOffloading : 1;
  std::vector<StagePolicy> policies;
  Estimate sum;
  std::optional<Part> known;  // the last part that was solved; most parts have the same solution
  OffloadSolution best;
  for (const Part& part : PartsOf(stage, layers)) {
    const Bytes share = pipeline_.chunks == 1 ? budget : budget / layers * part.layers;
    if (!known || !known->Alike(part)) best = BestOfPart(mode, stage, part, share);
    known = part;
    sum.exposed += (best.value.exposed + best.slowed) / pipeline_.pipes();
    sum.bytes += best.value.bytes();
    policies.push_back(best.policy);
  }
  return {std::move(policies), sum};
}

OffloadSolution StageOracle::BestOfPart(RecomputeMode mode, int32_t stage, const Part& part, Bytes budget) {
  const StageHeu& heu = Heu(mode, stage, part);
  if (const RecomputeProblem* offload = OffloadProblem(mode, stage, part)) {
    RecomputeProblem problem = *offload;
    problem.budget = budget;
    const StageHeu& offloading = caches_.fronts().Solve(*offload);
    std::optional<OffloadSolution> best = BestWithOffloading(heu, offloading, problem, CopySlowdown(stage));
    LYNX_CHECK(best.has_value());
    return *std::move(best);
  }
  std::optional<StageSolution> best = heu.Best(part.layers, budget);
  LYNX_CHECK(best.has_value());
  return {std::move(best->policy), best->value, Nanos(0)};
}

std::optional<StageOracle::Fit> StageOracle::FitNamed(RecomputeMode mode, int32_t stage, int32_t layers) {
  Fit fit{.policies = PoliciesOf(mode, stage, layers)};
  const std::optional<Bytes> limit = Limit(stage, layers);
  fit.peak = Peak(stage, fit.policies, limit);
  if (limit && fit.peak > *limit) return std::nullopt;
  fit.exposed = EstimateNamed(mode, stage, layers).exposed;
  return fit;
}

// Finds HEU's policy with the least exposed time whose peak is within the limit. HEU's memory model has an unknown error, so
// each attempt corrects the budget by the difference between the peak and the limit. The function keeps two bounds: the largest
// budget known to fit, and the smallest known not to fit. If the corrected budget is not between them, it takes their middle.
// It ends when almost no memory is unused, or when a larger budget gives the same policy.
std::optional<StageOracle::Fit> StageOracle::FitBudget(RecomputeMode mode, int32_t stage, int32_t layers, Bytes limit) {
  const Bytes least = LeastOfHeu(mode, stage, layers);
  Bytes fits = least - Bytes(1);  // the largest budget that is known to fit
  Bytes exceeds = EstimateNamed(RecomputeMode::kNone, stage, layers).bytes + Bytes(1);
  const Bytes most = std::max(least, exceeds - Bytes(1));
  Bytes budget = std::clamp(BudgetOf(mode, stage, layers, limit), least, most);
  std::optional<Fit> best;
  std::optional<std::vector<StagePolicy>> last_fitting;
  for (int i = 0; i < kBudgetTries; ++i) {
    auto [policies, estimate] = BestOfHeu(mode, stage, layers, budget);
    const auto [exposed, bytes] = estimate;
    const bool again = last_fitting == policies;
    const Bytes peak = Peak(stage, policies, limit);
    const Bytes spare = limit - peak;
    fixed_[FixedKey(mode, stage)] = peak - bytes - LayerInputs(stage, layers);
    if (spare.value >= 0) {
      if (!best || std::tie(exposed, peak) < std::tie(best->exposed, best->peak)) {
        best = Fit{policies, exposed, peak};
      }
      fits = budget;
      if (again || exposed.value == 0 || spare < limit / kNextToNothing) break;
      last_fitting = std::move(policies);
    } else {
      exceeds = bytes;
      if (i == 0 && budget > least && FarAbove(peak, limit)) {
        const Bytes of_least = Peak(stage, BestOfHeu(mode, stage, layers, least).first, limit);
        if (FarAbove(of_least, limit)) break;
      }
    }
    if (exceeds - fits <= Bytes(1)) break;
    budget = bytes + spare;
    if (budget <= fits || budget >= exceeds) budget = fits + (exceeds - fits) / 2;
  }
  return best;
}

std::optional<StageOracle::Fit> StageOracle::FitHeu(RecomputeMode mode, int32_t stage, int32_t layers) {
  std::optional<Fit> best;
  if (MayFit(RecomputeMode::kNone, stage, layers)) best = FitNamed(RecomputeMode::kNone, stage, layers);
  if (best) return best;
  const std::optional<Bytes> limit = Limit(stage, layers);
  LYNX_CHECK(limit.has_value());
  if (offloading_) {
    SetOffloading(false);
    const std::optional<Fit> recomputed = FitOf(mode, stage, layers);
    SetOffloading(true);
    const bool enough = recomputed && BusyTime(stage, layers) + recomputed->exposed <= offload_above_;
    if (enough || (recomputed && recomputed->exposed.value == 0)) return recomputed;
  }
  best = FitBudget(mode, stage, layers, *limit);
  // HEU also considers the named policies. They are tried again here, because HEU's memory estimate may be wrong.
  for (RecomputeMode other : kNamedModes) {
    if (other == RecomputeMode::kNone || !Allowed(other)) continue;
    if (best && EstimateNamed(other, stage, layers).exposed >= best->exposed) continue;
    if (best && !MayFit(other, stage, layers)) continue;
    const std::optional<Fit> named = FitNamed(other, stage, layers);
    if (named) best = named;
  }
  return best;
}

// Solves the virtual stages exactly. The budget follows from the error that HEU's memory model had at its last peak. The budget
// is at least the memory of the known policies by the model. If the peak of the exact solution is too large, the budget is
// reduced by the excess.
std::optional<StageOracle::ExactFit> StageOracle::FitExact(const StageSolver& solver, int32_t stage,
                                                           const std::vector<StagePolicy>& known) {
  int32_t layers = 0;
  for (const StagePolicy& policy : known) layers += static_cast<int32_t>(policy.layers.size());
  const std::optional<Bytes> limit = Limit(stage, layers);
  if (!limit) return std::nullopt;
  const std::vector<Part> parts = PartsOf(stage, layers);
  ExactFit exact;
  std::vector<RecomputeProblem> problems;
  for (size_t i = 0; i < parts.size(); ++i) {
    const RecomputeProblem* offload = OffloadProblem(RecomputeMode::kAuto, stage, parts[i]);
    RecomputeProblem& problem =
        problems.emplace_back(offload != nullptr ? *offload : Problem(RecomputeMode::kAuto, stage, parts[i]));
    const absl::StatusOr<StageValue> value = EvaluateStage(problem, known[i]);
    if (!value.ok()) return std::nullopt;
    exact.known += value->exposed / pipeline_.pipes();
    const Bytes budget = BudgetOf(RecomputeMode::kAuto, stage, layers, *limit);
    problem.budget = std::max(value->bytes(), parts.size() == 1 ? budget : budget / layers * parts[i].layers);
  }
  for (int i = 0; i < kExactTries; ++i) {
    Fit fit;
    Nanos bound;
    for (const RecomputeProblem& problem : problems) {
      absl::StatusOr<StageAnswer> answer = solver(problem);
      if (!answer.ok()) return std::nullopt;
      if (i == 0) bound += answer->bound / pipeline_.pipes();
      if (i == 0) exact.stopped = exact.stopped || !answer->proven;
      if (!answer->solution) return exact;
      fit.exposed += answer->solution->value.exposed / pipeline_.pipes();
      fit.policies.push_back(std::move(answer->solution->policy));
    }
    // A later attempt has less memory, so its exposed time is at least as long, and the bound of the first attempt stays valid.
    if (i == 0) exact.bound = std::min(bound, exact.known);
    if (fit.exposed >= exact.known) return exact;
    fit.peak = Peak(stage, fit.policies, limit);
    if (fit.peak <= *limit) {
      exact.fit = std::move(fit);
      return exact;
    }
    const Bytes excess = fit.peak - *limit;
    for (size_t part = 0; part < parts.size(); ++part) {
      problems[part].budget = std::max(Bytes(0), problems[part].budget - (excess / layers + Bytes(1)) * parts[part].layers);
    }
  }
  return exact;
}

const std::optional<StageOracle::Fit>& StageOracle::FitOf(RecomputeMode mode, int32_t stage, int32_t layers) {
  const std::tuple key{mode, stage, layers, offloading_};
  auto it = fits_.find(key);
  if (it == fits_.end()) {
    it = fits_.emplace(key, IsHeuristic(mode) ? FitHeu(mode, stage, layers) : FitNamed(mode, stage, layers)).first;
  }
  return it->second;
}

bool StageOracle::Allowed(RecomputeMode mode) const {
  const RecomputeMode wanted = request_.spec.recompute;
  if (wanted != RecomputeMode::kAuto) return wanted == mode;
  const std::vector<RecomputeMode>& forbidden = request_.spec.recompute_options.forbidden;
  return std::find(forbidden.begin(), forbidden.end(), mode) == forbidden.end();
}

Bytes StageOracle::LeastArena(int32_t stage, int32_t layers, bool estimate) {
  const RecomputeMode wanted = request_.spec.recompute;
  const bool by_heu = wanted == RecomputeMode::kHeu || wanted == RecomputeMode::kOpt;
  const bool heuristic = IsHeuristic(wanted) || by_heu;
  std::vector<RecomputeMode> modes{wanted};
  if (heuristic) modes = {RecomputeMode::kFull, RecomputeMode::kFullKeepCollectives};
  if (request_.spec.recompute_options.layers == 0) {
    if (wanted == RecomputeMode::kBlock) named_layers_ = layers;
    if (wanted == RecomputeMode::kUniform) named_layers_ = LeastMemoryGroup(stage, layers);
  }
  const Bytes rest = estimate ? LayerInputs(stage, layers) + Fixed(wanted, stage) : Bytes(0);
  Bytes least(std::numeric_limits<int64_t>::max());
  for (RecomputeMode mode : modes) {
    least = std::min(least, estimate ? EstimateNamed(mode, stage, layers).bytes + rest
                                     : Probe(stage, PoliciesOf(mode, stage, layers), Probed::kArena).arena);
  }
  if (!heuristic) return least;
  const RecomputeMode mode = by_heu ? RecomputeMode::kAuto : wanted;
  const bool offers = offloading_;
  for (const bool offloading : offers ? std::vector{false, true} : std::vector{false}) {
    offloading_ = offloading;
    const Bytes bytes = LeastOfHeu(mode, stage, layers);
    least = std::min(least,
                     estimate ? bytes + rest : Probe(stage, BestOfHeu(mode, stage, layers, bytes).first, Probed::kArena).arena);
  }
  return least;
}

}  // namespace lynx
