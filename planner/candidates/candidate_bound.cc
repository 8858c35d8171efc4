#include "planner/candidates/candidate_bound.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "common/check.h"
#include "planner/candidates/plan_caches.h"
#include "planner/candidates/search.h"
#include "planner/problem/layout_schedule.h"
#include "planner/problem/stage_context.h"
#include "planner/program/memory_model.h"
#include "planner/recompute/recompute_policy.h"
#include "planner/recompute/stage_problem.h"
#include "planner/schedule/schedule_memory.h"

namespace lynx {
namespace {

constexpr LayerType kLayer = LayerType::kTransformer;
// Bounds are relaxed by a thousandth, which is far more than the rounding errors of the doubles below.
constexpr double kRoundedDown = 0.999;
// 13 days. No step of a job takes this long.
constexpr Nanos kMaxStep{int64_t{1} << 50};

Nanos WholeCompute(const CostModel& costs, LayerType type) {
  return costs.ComputeOfLayer(type, Pass::kForward) + costs.ComputeOfLayer(type, Pass::kBackward);
}
Nanos WholeTransfers(const CostModel& costs, LayerType type) {
  return costs.TransfersOfLayer(type, Pass::kForward) + costs.TransfersOfLayer(type, Pass::kBackward);
}

// The least time for the forward and the backward of one microbatch. If passes run side by side, transfers and computation may
// hide each other completely, even if they belong to different layers. So only the longer of the two counts for a transformer
// layer.
Nanos WholeTime(const CostModel& costs, LayerType type) {
  if (costs.woven()) {
    // Recomputation lengthens the computation of a stage. So it is not known whether the computation or the transfers of the
    // stage take longer, and the embedding and the head count only with the shorter of their two times.
    if (type != kLayer) return std::min(WholeTransfers(costs, type), WholeCompute(costs, type));
    return std::max(WholeTransfers(costs, type), WholeCompute(costs, type));
  }
  return costs.LayerTime(type, Pass::kForward) + costs.LayerTime(type, Pass::kBackward);
}

// Time of the forward pass and the input gradient of a layer, without weight gradients.
Nanos PassTime(const CostModel& costs, const LayerGraph& graph) {
  Nanos passes;
  for (const Segment segment : graph.SegmentsOf(kLayer, Pass::kForward)) {
    for (const Op op : graph.OpsOf(kLayer, segment, Pass::kForward)) {
      passes += costs.OpTime(op, Pass::kForward) + costs.OpTime(op, Pass::kBackward);
    }
  }
  return passes;
}

// The number of (group, chunk) pairs of a schedule of `groups` groups that a rank holds at the same time. 1 if no other lower
// bound is known.
int64_t GroupsInFlight(const ParallelLayout& layout, int32_t rank, int64_t groups) {
  const int64_t p = layout.pp, v = layout.virtual_stages;
  switch (layout.schedule) {
    case ScheduleKind::kGpipe: return groups;
    case ScheduleKind::kInterleaved:
      if (groups % p != 0) return InterleavedInFlight(PipelineOf(layout), rank, groups);
      return std::min((v - 1) * p + 2 * (p - rank - 1) + 1, v * groups);
    case ScheduleKind::kOneForwardOneBackward:
    case ScheduleKind::kZeroBubble: return std::min(p - rank, groups);
    default: return 1;
  }
}

// A rank holds at least this number of (microbatch, chunk) pairs at the same time. Passes that run side by side move through
// the pipeline as a group of microbatches (weave). The last group may have fewer microbatches than the others, on every chunk.
// When a forward pass begins, other passes that run at the same time may already free what they read.
int64_t ChunksInFlight(const ParallelLayout& layout, int32_t rank, int64_t microbatches) {
  const int64_t group = GroupOf(layout.weave), groups = (microbatches + group - 1) / group;
  const int64_t missing = (groups * group - microbatches) * layout.virtual_stages;
  const int64_t held = GroupsInFlight(layout, rank, groups) * group - missing;
  return std::max<int64_t>(1, held + 1 - StrandsOf(layout.weave));
}

// The time of a step with `groups` groups, as a multiple of a virtual stage's time (see CandidateBound::Rough).
int64_t StagesPassed(const PipelineShape& pipeline, int64_t groups) {
  const int64_t p = pipeline.ranks, v = pipeline.chunks;
  return (groups < p ? p * (v - 1) + groups : groups * v) + p - 1;
}

// Binary search for the last number for which `fits` holds. `fits` must hold at `low` and not at `high`. If `fits` does not
// hold for a number, it must hold for no larger number. The search first looks around `guess`, in steps that double.
template <class Fits>
int32_t LastThatFits(int32_t low, int32_t high, int32_t guess, const Fits& fits) {
  guess = std::clamp(guess, low, high - 1);
  const bool up = guess == low || fits(guess);
  (up ? low : high) = guess;
  for (int32_t step = 1; high - low > 1; step *= 2) {
    const int32_t next = up ? low + step : high - step;
    if (next <= low || next >= high) break;
    const bool holds = fits(next);
    (holds ? low : high) = next;
    if (holds != up) break;
  }
  while (high - low > 1) {
    const int32_t middle = low + (high - low) / 2;
    (fits(middle) ? low : high) = middle;
  }
  return low;
}

}  // namespace

LayerLowerBound::LayerLowerBound(const CostModel& costs, const LayerShape& shape)
    : layer_(WholeTime(costs, kLayer)), any_layer_(std::min(layer_, WholeTime(costs.dense(), kLayer))),
      rough_layer_(costs.LayerTime(kLayer, Pass::kForward) + costs.LayerTime(kLayer, Pass::kBackward)),
      embedding_(WholeTime(costs, LayerType::kEmbedding)), head_(WholeTime(costs, LayerType::kHead)),
      forward_(costs.woven() ? costs.ComputeOfLayer(kLayer, Pass::kForward) : costs.LayerTime(kLayer, Pass::kForward)),
      input_(TensorBytes(Tensor::kX, shape)) {
  const auto permille = [&](Nanos part) { return std::clamp<int64_t>(part.value / (layer_.value / 1000 + 1), 0, 1000); };
  pass_permille_ = permille(PassTime(costs, LayerGraph::Of(shape)));
  forward_permille_ = permille(forward_);
  if (&costs.dense() != &costs) {
    const LayerLowerBound dense(costs.dense(), DenseShape(shape));
    forward_ = std::min(forward_, dense.forward_);
    pass_permille_ = std::min(pass_permille_, dense.pass_permille_);
    forward_permille_ = std::min(forward_permille_, dense.forward_permille_);
  }
  const RecomputeProblem problem = MakeStageProblem(costs, shape, {.layers = 1, .in_flight = 2});
  for (const Nanos window : problem.forward) windows_ += window;
  for (const Nanos window : problem.backward) windows_ += window;
  rough_windows_ = windows_;
  // If passes run side by side, recomputation can fill all the time in which transfers take longer than the computation.
  if (costs.woven()) windows_ = layer_ - WholeCompute(costs, kLayer);
  const HostLink& host = costs.host_link();
  copied_per_second_ =
      std::min({host.to_host_bytes_per_second, host.from_host_bytes_per_second, host.both_bytes_per_second / 2 + 1});
  for (const RecomputeItem& item : problem.items) {
    stored_ += item.bytes;
    items_.push_back({item.bytes, item.cost});
  }
  SortByPrice();
}

void LayerLowerBound::SortByPrice() {
  by_price_ = items_;
  std::stable_sort(by_price_.begin(), by_price_.end(), [](const Item& a, const Item& b) {
    return static_cast<__int128>(a.cost.value) * b.bytes.value < static_cast<__int128>(b.cost.value) * a.bytes.value;
  });
}

void LayerLowerBound::Lower(const LayerLowerBound& other) {
  LYNX_CHECK(items_.size() == other.items_.size());
  layer_ = std::min(layer_, other.layer_);
  any_layer_ = std::min(any_layer_, other.any_layer_);
  rough_layer_ = std::min(rough_layer_, other.rough_layer_);
  embedding_ = std::min(embedding_, other.embedding_);
  head_ = std::min(head_, other.head_);
  forward_ = std::min(forward_, other.forward_);
  pass_permille_ = std::min(pass_permille_, other.pass_permille_);
  forward_permille_ = std::min(forward_permille_, other.forward_permille_);
  windows_ = std::max(windows_, other.windows_);
  rough_windows_ = std::max(rough_windows_, other.rough_windows_);
  copied_per_second_ = std::max(copied_per_second_, other.copied_per_second_);
  for (size_t i = 0; i < items_.size(); ++i) items_[i].cost = std::min(items_[i].cost, other.items_[i].cost);
  SortByPrice();
}

Nanos LayerLowerBound::Recomputed(Bytes stored) const {
  int64_t left = (stored_ - stored).value;
  double cost = 0;
  for (const Item& item : by_price_) {
    if (left <= 0) break;
    if (item.bytes.value <= left) {
      cost += static_cast<double>(item.cost.value);
    } else {
      cost += static_cast<double>(item.cost.value) * static_cast<double>(left) / static_cast<double>(item.bytes.value);
    }
    left -= item.bytes.value;
  }
  return Nanos(static_cast<int64_t>(cost * kRoundedDown));
}

Nanos LayerLowerBound::Exposed(Bytes stored) const { return std::max(Nanos(0), Recomputed(stored) - windows_); }

Nanos LayerLowerBound::RoughlyExposed(Bytes stored) const { return std::max(Nanos(0), Recomputed(stored) - rough_windows_); }

Bytes LayerLowerBound::CopiedIn(Nanos time) const {
  return Bytes(static_cast<int64_t>(Seconds(time) * static_cast<double>(copied_per_second_) / kRoundedDown) + 1);
}

CandidateBound::CandidateBound(const PlanRequest& request, const Candidate& candidate, PlanCaches& caches,
                               Offloading offloading)
    : request_(request), candidate_(candidate), caches_(caches), floor_(caches.Floor(candidate)),
      pipeline_(PipelineOf(candidate.layout)), offloads_(offloading == Offloading::kIfOffered && OffersOffloading(request)) {
  if (pipeline_.placement == StagePlacement::kLooping) {
    before_share_ = static_cast<double>(floor_.delay_permille(DelaysWeights(candidate.layout))) / 1000 / pipeline_.chunks;
  }
  total_ = AllLayers() + floor_.embedding() + floor_.head();
}

Nanos CandidateBound::AllLayers() const {
  const ModelSpec& model = request_.spec.model;
  return floor_.layer() * (model.layers - model.moe.dense_layers) + floor_.any_layer() * model.moe.dense_layers;
}

Nanos CandidateBound::RoughModelTime() const {
  const ModelSpec& model = request_.spec.model;
  const Nanos layers =
      floor_.rough_layer() * (model.layers - model.moe.dense_layers) + floor_.any_layer() * model.moe.dense_layers;
  return std::max(total_, layers + floor_.embedding() + floor_.head());
}

// The step is shortest if the bound (1) has the same value for every rank. Let g be the share of a rank's time that delays the
// ranks after it. M x_r + g (x_0 + ... + x_{r-1}) is the same for all r if x_r decreases by the factor 1 - g/M from one rank to
// the next. The sum of all x_r is known.
Nanos CandidateBound::Quick() const {
  const double total = static_cast<double>(total_.value);
  const double microbatches = candidate_.microbatches;
  const int32_t p = candidate_.layout.pp;
  if (before_share_ <= 0) return Nanos(static_cast<int64_t>(microbatches * total / p * kRoundedDown));
  const double rest = std::pow(1 - before_share_ / microbatches, p);
  return Nanos(static_cast<int64_t>(before_share_ * total / (1 - rest) * kRoundedDown));
}

Nanos CandidateBound::Rough() const {
  using enum ScheduleKind;
  const ParallelLayout& layout = candidate_.layout;
  const bool split = layout.schedule == kZeroBubble;
  if (!split && layout.schedule != kGpipe && layout.schedule != kOneForwardOneBackward && layout.schedule != kInterleaved) {
    return Nanos(0);
  }
  const int64_t group = GroupOf(layout.weave);
  const int64_t groups = (candidate_.microbatches + group - 1) / group;
  const Nanos stage = RoughModelTime() * candidate_.microbatches / groups / pipeline_.stages();
  Nanos saved;
  if (split) {
    const Nanos weights = stage * (1000 - floor_.delay_permille(/*splits_weight=*/false)) / 1000;
    saved = std::min(stage, weights * 2) * (layout.pp - 1);
  }
  return stage * StagesPassed(pipeline_, groups) - saved;
}

CandidateBound::Rank CandidateBound::RankAt(int32_t rank) const {
  const ParallelLayout& layout = candidate_.layout;
  const PipelineShape& pipeline = pipeline_;
  const int32_t dense = request_.spec.model.moe.dense_layers;
  const auto states = [&](int32_t first, int32_t layers) {
    StageContext context{.model = request_.spec.model,
                         .layout = layout,
                         .micro_batch = candidate_.micro_batch,
                         .microbatches = candidate_.microbatches,
                         .pipeline_rank = rank,
                         .slices = {}};
    for (int32_t chunk = 0; chunk < pipeline.chunks; ++chunk) {
      context.slices.push_back(SliceOf(layout, pipeline.StageOn(rank, chunk), first, first + (chunk == 0 ? layers : 0)));
    }
    return StatesOf(context).total();
  };
  Rank result{.chunks_in_flight = ChunksInFlight(layout, rank, candidate_.microbatches)};
  for (int32_t chunk = 0; chunk < pipeline.chunks; ++chunk) {
    const int32_t stage = pipeline.StageOn(rank, chunk);
    result.embedding = result.embedding || pipeline.Previous(stage) == kNoStage;
    result.head = result.head || pipeline.Next(stage) == kNoStage;
    if (pipeline.Previous(stage) == kNoStage) result.ends += floor_.embedding();
    if (pipeline.Next(stage) == kNoStage) result.ends += floor_.head();
  }
  // Each pipe has its own embedding and head, which run for only half of the microbatches. Their time is left out, so that the
  // result stays a lower bound.
  if (pipeline.bidirectional()) result.ends = Nanos(0);
  const auto known = std::find_if(ranks_.begin(), ranks_.end(), [&](const Rank& other) {
    return other.embedding == result.embedding && other.head == result.head;  // then a layer has the same states on both ranks
  });
  if (known != ranks_.end()) {
    result.states = known->states;
    result.states_per_layer = known->states_per_layer;
    result.states_per_any_layer = known->states_per_any_layer;
  } else {
    result.states = states(dense, 0);
    result.states_per_layer = result.states_per_any_layer = states(dense, 1) - result.states;
    if (dense > 0) result.states_per_any_layer = std::min(result.states_per_layer, states(0, 1) - result.states);
  }
  for (int32_t chunk = 0; dense > 0 && chunk < pipeline.chunks; ++chunk) {
    result.most_dense += std::max(0, dense - pipeline.PieceOf(pipeline.StageOn(rank, chunk)));
  }
  const Bytes device = DeviceMemoryOfStage(request_.cluster, layout, rank);
  if (device.value > 0) result.memory = device;
  return result;
}

const std::vector<CandidateBound::Rank>& CandidateBound::Ranks() const {
  for (auto rank = static_cast<int32_t>(ranks_.size()); rank < candidate_.layout.pp; ++rank) {
    ranks_.push_back(RankAt(rank));
  }
  return ranks_;
}

const StateLowerBound& CandidateBound::States() const {
  if (states_ == nullptr) states_ = &caches_.States(candidate_);
  return *states_;
}

Nanos CandidateBound::BoundOfBoundaries() const {
  if (of_boundaries_) return *of_boundaries_;
  of_boundaries_ = Nanos(0);
  const int32_t p = candidate_.layout.pp;
  if (p == 1 || pipeline_.placement != StagePlacement::kLooping) return *of_boundaries_;
  Nanos slowest;
  for (int32_t rank = 0; rank + 1 < p; ++rank) {
    slowest = std::max(slowest, States().BoundaryTransfer(rank, floor_.input()));
  }
  of_boundaries_ = slowest * candidate_.microbatches * pipeline_.chunks;
  if (pipeline_.chunks == 1 && candidate_.layout.weave == WeaveMode::kOff) {
    *of_boundaries_ += AllLayers() * floor_.delay_permille(DelaysWeights(candidate_.layout)) / 1000;
  }
  return *of_boundaries_;
}

std::optional<Bytes> CandidateBound::Budget(const Rank& rank, int32_t layers) const {
  // The bound assumes that every layer stores its input and that no fixed share is offloaded. Otherwise memory is not checked.
  const RecomputeOptions& options = request_.spec.recompute_options;
  const bool chains = request_.spec.recompute == RecomputeMode::kUniform && options.layers != 1;
  if (chains || options.offload_permille > 0) return std::nullopt;
  const Bytes limit = request_.spec.resources.activation_memory_per_rank;
  std::optional<Bytes> budget;
  const int32_t dense = std::min(layers, rank.most_dense);
  const Bytes states = rank.states + rank.states_per_layer * (layers - dense) + rank.states_per_any_layer * dense;
  if (rank.memory) budget = *rank.memory - states;
  if (limit.value > 0) budget = budget ? std::min(*budget, limit) : limit;
  return budget;
}

// The layers of a rank are divided evenly over its chunks (EvenPartition). So each chunk has at least this number of layers,
// rounded down. If the job says the layers of each chunk, some chunk may have fewer.
int32_t CandidateBound::LeastOfChunk(int32_t layers) const {
  const std::vector<int32_t>& pinned = request_.spec.parallel.stage_layers;
  if (pipeline_.chunks == 1 || pinned.empty()) return layers / pipeline_.chunks;
  return *std::min_element(pinned.begin(), pinned.end());
}

Bytes CandidateBound::Lacking() const {
  Bytes most(std::numeric_limits<int64_t>::min() / 2);
  for (const Rank& rank : Ranks()) {
    const int32_t layers = request_.spec.model.layers / candidate_.layout.pp;
    const std::optional<Bytes> budget = Budget(rank, layers);
    if (!budget) continue;
    most = std::max(most, floor_.input() * (rank.chunks_in_flight * LeastOfChunk(layers)) - *budget);
  }
  return most;
}

// Divides the bytes that can be copied in a step by the number of (microbatch, layer) pairs of the step. `layers` may be
// rounded down: this makes the result larger, so the result remains an upper bound.
Bytes CandidateBound::Offloaded(Nanos step, int32_t layers) const {
  const int64_t microbatches = std::max(1, candidate_.microbatches / pipeline_.pipes());
  return std::min(floor_.stored(), floor_.CopiedIn(step) / (microbatches * layers) + Bytes(1));
}

std::optional<Nanos> CandidateBound::Least(const Rank& rank, int32_t layers, Nanos step) const {
  const std::optional<Bytes> budget = Budget(rank, layers);
  const Nanos busy = Busy(rank, layers);
  if (!budget) return busy;
  const int64_t held_layers = rank.chunks_in_flight * LeastOfChunk(layers);
  if (held_layers == 0) return budget->value >= 0 ? std::optional(busy) : std::nullopt;
  Bytes each = *budget / held_layers - floor_.input();
  if (each.value < 0) return std::nullopt;
  // Layers without experts may hold only their inputs. Then the other layers can hold more. With several chunks, the layers
  // without experts are in the first chunks, which hold more microbatches than the other chunks. Then no bound is known.
  const int32_t recomputing = layers - std::min(layers, rank.most_dense);
  if (recomputing == 0 || (recomputing < layers && pipeline_.chunks > 1)) return busy;
  if (recomputing < layers) each = each * layers / recomputing;
  const Bytes offloaded = offloads_ ? Offloaded(step, layers / pipeline_.chunks * pipeline_.chunks) : Bytes(0);
  return busy + floor_.Exposed(each + offloaded) * recomputing;
}

std::optional<Nanos> CandidateBound::RoughlyExposed(int32_t rank, int32_t layers, const InFlightCount& in_flight) const {
  const Rank& of = Ranks()[static_cast<size_t>(rank)];
  std::optional<Bytes> budget = Budget(of, layers);
  if (!budget) return Nanos(0);
  const int32_t chunks = pipeline_.chunks;
  if (SplitsWeight(candidate_.layout)) {
    StagePeaks& peaks = caches_.Peaks(candidate_);
    const LayerGraph& graph = LayerGraph::Of(ShapeOf(request_.spec.model, candidate_.layout, candidate_.micro_batch));
    const auto held = [&](int32_t count) {
      return peaks.StoredForWeights({}, NamedPolicy(graph, RecomputeMode::kNone, count));
    };
    *budget -= (held(2) - held(1)) * (int64_t{in_flight.either - in_flight.activations} * layers / chunks);
  }
  const int32_t recomputing = layers - std::min(layers, of.most_dense);
  const Bytes each = *budget * chunks / (int64_t{in_flight.activations} * layers) - floor_.input();
  if (each.value < 0) return std::nullopt;
  if (recomputing == 0) return Nanos(0);
  return floor_.RoughlyExposed(each * layers / recomputing) * recomputing;
}

std::optional<Nanos> CandidateBound::LeastStep(int32_t rank, int32_t layers, Nanos ahead, Nanos step) const {
  const std::optional<Nanos> time = Least(Ranks()[static_cast<size_t>(rank)], layers, step);
  if (!time) return std::nullopt;
  const int64_t microbatches = candidate_.microbatches;
  const StateLowerBound& states = States();
  const Nanos end = states.End(rank, layers);
  const Nanos of_rank = *time * microbatches / pipeline_.pipes() + ahead + end;
  if (pipeline_.bidirectional()) return of_rank;
  Nanos of_links = states.TransfersOfMicrobatch(rank, layers, pipeline_.chunks) * microbatches + end;
  if (of_links == end && pipeline_.chunks == 1) {
    // The reductions of the step can begin only when the last backward or weight slot begins. If passes run side by side, it is
    // not known what has run by then.
    const int64_t before = candidate_.layout.weave == WeaveMode::kOff ? microbatches - 1 : 0;
    of_links = *time * before + floor_.forward() * layers + states.EndWithReductions(rank, layers);
  }
  return std::max(of_rank, of_links);
}

bool CandidateBound::MayTake(Nanos step) const {
  const int32_t p = candidate_.layout.pp;
  const int32_t model_layers = request_.spec.model.layers * pipeline_.pipes();
  const int32_t least = pipeline_.chunks, most = model_layers - (p - 1) * least;
  const Nanos allowed(static_cast<int64_t>(static_cast<double>(step.value) / kRoundedDown));
  if (BoundOfBoundaries() > allowed) return false;
  double before = before_share_ * static_cast<double>(total_.value);  // delay by the ranks that come earlier in the pipeline,
                                                                      // which the loop has not visited yet
  int64_t taken = 0;
  std::vector<int32_t> pinned;  // the layers of each rank, if the job says them
  if (!request_.spec.parallel.stage_layers.empty()) pinned = RankLayers(pipeline_, request_.spec.parallel.stage_layers);
  int32_t guess = model_layers / p;  // a rank probably gets about as many layers as the rank after it
  for (int32_t r = p - 1; r >= 0; --r) {
    const Rank& rank = Ranks()[static_cast<size_t>(r)];
    // The time of these ranks is subtracted from the time of all ranks, so each layer counts with the longer time of both
    // kinds.
    const auto share = [&](int32_t layers) {
      return before_share_ * static_cast<double>((floor_.layer() * layers + rank.ends).value);
    };
    const auto fits = [&](int32_t layers) {
      const Nanos ahead(static_cast<int64_t>(std::max(0.0, before - share(layers))));
      const std::optional<Nanos> least_step = LeastStep(r, layers, ahead, step);
      return least_step && *least_step <= allowed;
    };
    if (!fits(pinned.empty() ? least : pinned[static_cast<size_t>(r)])) return false;
    guess = pinned.empty() ? LastThatFits(least, most + 1, guess, fits) : pinned[static_cast<size_t>(r)];
    before -= share(guess);
    taken += guess;
  }
  return taken >= model_layers;
}

std::optional<Nanos> CandidateBound::Bound() const {
  Nanos low = std::max(Quick(), BoundOfBoundaries());
  if (MayTake(low)) return low;
  // No real step takes as long as kMaxStep. So if MayTake is false even for this step, the reason is that the request does not
  // fit into memory. A small multiple of `low` would not be enough: between many nodes, reductions can take a thousand times
  // as long as computation.
  if (!MayTake(std::max(low * 256, kMaxStep))) return std::nullopt;
  Nanos high = low * 2;
  while (!MayTake(high)) {
    low = high;
    high = high * 2;
  }
  while (high - low > low / 1000 + Nanos(1)) {
    const Nanos middle = low + (high - low) / 2;
    (MayTake(middle) ? high : low) = middle;
  }
  return low;
}

}  // namespace lynx
