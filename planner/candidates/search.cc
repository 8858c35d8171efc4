#include "planner/candidates/search.h"

#include <algorithm>
#include <set>
#include <string>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "planner/candidates/no_layout.h"
#include "planner/problem/layout_schedule.h"
#include "planner/problem/stage_context.h"

namespace lynx {
namespace {

constexpr int32_t kMaxAutoContext = 8;
constexpr int32_t kMaxAutoVirtualStages = 8;       // any number of them
constexpr int32_t kMaxAutoEvenVirtualStages = 64;  // if all chunks have the same number of layers
constexpr size_t kMaxWantedShapes = 12;

// Possible values of a degree: the pinned value, or, if the degree is left open (0), `choices`.
std::vector<int32_t> Degrees(int32_t pinned, std::vector<int32_t> choices) {
  return pinned > 0 ? std::vector<int32_t>{pinned} : choices;
}

std::vector<int32_t> PowersOfTwo(int32_t largest) {
  std::vector<int32_t> powers;
  for (int32_t n = 1; n <= largest; n *= 2) powers.push_back(n);
  return powers;
}

std::vector<int32_t> UpTo(int32_t largest) {
  std::vector<int32_t> numbers;
  for (int32_t n = 1; n <= largest; ++n) numbers.push_back(n);
  return numbers;
}

// Generates the candidates: all combinations of the values that a request allows.
class Space {
 public:
  Space(const JobSpec& spec, const ClusterTopology& cluster, PlanTarget target, bool even_batches)
      : spec_(spec), model_(spec.model), pinned_(spec.parallel), fixed_(PinnedLayout(spec.parallel)),
        any_(target == PlanTarget::kAnyFramework), even_batches_(even_batches), same_links_(SameLinks(cluster)),
        least_devices_(cluster.least_devices_per_node()),
        max_ranks_(static_cast<int32_t>(std::min<int64_t>(spec.resources.max_ranks, cluster.devices()))) {
    micro_batches_ = Degrees(spec.train.micro_batch, PowersOfTwo(kMaxAutoMicroBatch));
    replicas_ = Degrees(pinned_.dp, UpTo(std::min(spec.train.global_batch, max_ranks_)));
  }

  std::vector<Candidate> All() {
    for (int32_t tp : TensorDegrees()) AddTensorDegree(tp);
    return std::move(candidates_);
  }

  // Returns one candidate for each pair of tp and micro-batch that has any.
  std::vector<Candidate> OneOfEachSize() {
    std::vector<Candidate> found;
    const std::vector<int32_t> sizes = micro_batches_;
    only_one_ = true;
    for (int32_t tp : TensorDegrees()) {
      for (int32_t size : sizes) {
        micro_batches_ = {size};
        AddTensorDegree(tp);
        if (!candidates_.empty()) found.push_back(candidates_.front());
        candidates_.clear();
      }
    }
    return found;
  }

 private:
  std::vector<int32_t> TensorDegrees() const {
    std::vector<int32_t> degrees = Degrees(pinned_.tp, UpTo(std::min(max_ranks_, least_devices_)));
    std::erase_if(degrees, [&](int32_t tp) { return !TensorParallelFits(tp); });
    return degrees;
  }

  // True if enough candidates were found.
  bool Done() const { return only_one_ && !candidates_.empty(); }

  void AddTensorDegree(int32_t tp) {
    for (int32_t cp : Degrees(pinned_.cp, PowersOfTwo(any_ ? kMaxAutoContext : 1))) {
      if (cp > 1 && model_.seq % (2 * cp) != 0) continue;
      for (int32_t pp : Degrees(pinned_.pp, UpTo(model_.layers))) {
        if (int64_t{tp} * cp * pp > max_ranks_ || Done()) break;
        if (pp <= model_.layers) AddReplicas({.tp = tp, .pp = pp, .cp = cp});
      }
    }
  }

  // Returns a number n such that any n consecutive ranks have the same links and the same kind of devices, and either all
  // share cores with each other or share no cores. Then all orders of n ranks have the same step time.
  static int32_t SameLinks(const ClusterTopology& cluster) {
    const NodeGroup& first = cluster.groups.front();
    const std::vector<LinkLevel>& inner = first.profile.inner_links;
    int32_t ranks = inner.empty() ? first.devices_per_node : inner.front().devices;
    for (const SharedCores& shared : cluster.shared_cores) {
      const auto in_node = std::count_if(shared.devices.begin(), shared.devices.end(), [&](int32_t d) { return d < ranks; });
      if (in_node > 0 && in_node < ranks) ranks = 1;
    }
    return ranks;
  }

  std::vector<RankOrder> RankOrders(const ParallelLayout& layout) const {
    using enum RankOrder;
    if (layout.pp == 1 || layout.dp == 1) return {kTpPpDp};
    if (pinned_.rank_order != kAuto) return {pinned_.rank_order};
    if (layout.ranks() <= same_links_) return {kTpPpDp};
    return {kTpPpDp, kTpDpPp};
  }

  bool TensorParallelFits(int32_t tp) const {
    return tp <= least_devices_ && model_.heads % tp == 0 && model_.key_heads() % tp == 0 &&
           (!model_.HasDenseBlock() || model_.ffn % tp == 0) && tp <= model_.vocab &&
           (any_ || !model_.qk_norm_whole || tp == 1);  // the engine norms all queries on one rank
  }

  void AddReplicas(ParallelLayout layout) {
    const int32_t replica = layout.ranks();
    for (int32_t dp : replicas_) {
      const int64_t ranks = int64_t{replica} * dp;
      if (ranks > max_ranks_ || Done()) break;
      if (ranks < spec_.resources.min_ranks) continue;
      if (pinned_.zero_group > 0 && dp % pinned_.zero_group != 0) continue;
      layout.dp = dp;
      layout.zero_group = pinned_.zero_group == dp ? 0 : pinned_.zero_group;
      for (int32_t size : micro_batches_) {
        const BatchSplit split{spec_.train.global_batch, dp, size};
        if (!Allows(split, even_batches_) || (!split.Even() && IsBetween(split, replica))) continue;
        for (const RankOrder order : RankOrders(layout)) {
          ParallelLayout numbered = layout;
          numbered.rank_order = order;
          for (const int32_t ep : ExpertDegrees(layout)) {
            numbered.ep = ep;
            AddModes({numbered, size, split.microbatches()});
          }
        }
      }
    }
  }

  // True if the job may also have one replica less, and one more, and both numbers need as many microbatches as this number.
  bool IsBetween(const BatchSplit& split, int64_t ranks_of_replica) const {
    if (pinned_.dp > 0) return false;
    BatchSplit fewer = split, more = split;
    --fewer.replicas;
    ++more.replicas;
    return ranks_of_replica * fewer.replicas >= std::max(spec_.resources.min_ranks, 1) &&
           ranks_of_replica * more.replicas <= max_ranks_ && more.Possible() && fewer.microbatches() == split.microbatches() &&
           more.microbatches() == split.microbatches();
  }

  std::vector<int32_t> ExpertDegrees(const ParallelLayout& layout) const {
    const int32_t ranks = RanksOfStage(layout), experts = model_.moe.experts;
    std::vector<int32_t> degrees = Degrees(pinned_.ep, UpTo(std::max(1, std::min(ranks, experts))));
    std::erase_if(degrees, [&](int32_t ep) { return ranks % ep != 0 || (experts > 0 && experts % ep != 0); });
    return degrees;
  }

  std::vector<bool> SequenceParallel(const ParallelLayout& layout) const {
    if (pinned_.sequence_parallel == Choice::kOn) return {layout.tp > 1};
    if (pinned_.sequence_parallel == Choice::kOff || layout.tp == 1) return {false};
    const bool divides = model_.seq / layout.cp % layout.tp == 0;
    // With experts, each tensor-parallel rank sends its own share of the tokens to experts, so sequence parallelism is needed.
    if (model_.moe.any()) return divides ? std::vector<bool>{true} : std::vector<bool>{};
    if (!divides) return {false};
    return {false, true};
  }

  std::vector<ZeroStage> Zero(const ParallelLayout& layout) const {
    if (pinned_.zero != ZeroStage::kAuto) return {pinned_.zero};
    if (pinned_.zero_group > 0) {
      if (!any_) return {ZeroStage::kOptimizer};
      return {ZeroStage::kOptimizer, ZeroStage::kGradients, ZeroStage::kWeights};
    }
    // Experts may have replicas on the tensor-parallel ranks even if no other part of the model has replicas.
    const bool experts_shared = model_.moe.any() && ExpertReplicas(layout) > 1;
    if (layout.dp * layout.cp == 1 && !experts_shared) return {ZeroStage::kNone};
    if (!any_ || model_.moe.any()) return {ZeroStage::kNone, ZeroStage::kOptimizer};
    return {ZeroStage::kNone, ZeroStage::kOptimizer, ZeroStage::kGradients, ZeroStage::kWeights};
  }

  // If the job leaves the choice open (kAuto), the candidates do not weave here. WovenCandidates makes woven ones from them.
  WeaveMode Weave() const { return pinned_.weave == WeaveMode::kAuto ? WeaveMode::kOff : pinned_.weave; }

  std::vector<ScheduleKind> Schedules(const ParallelLayout& layout, int32_t virtual_stages) const {
    using enum ScheduleKind;
    if (pinned_.schedule != kAuto) return {pinned_.schedule};
    if (virtual_stages > 1) return {kInterleaved};
    if (layout.pp == 1) return {kOneForwardOneBackward};
    return {kOneForwardOneBackward, kZeroBubble};
  }

  // True if the last group of an interleaved schedule may have fewer than parallel.pp microbatches. Other frameworks run only
  // whole groups (docs/schedules.md). With a rest the schedule waits longer, so it is a candidate only if the job asks for it.
  bool MayHaveRest() const {
    return !even_batches_ && (pinned_.schedule == ScheduleKind::kInterleaved || pinned_.virtual_stages > 1);
  }

  bool ScheduleFits(const Candidate& c) const {
    if (!CheckScheduleOf(c.layout, c.microbatches).ok()) return false;
    const int32_t pieces = PipelineOf(c.layout).pieces();
    if (pieces > model_.layers) return false;  // each piece must have at least one layer
    const size_t pinned_pieces = pinned_.stage_layers.size();
    if (pinned_pieces > 0 && static_cast<size_t>(pieces) != pinned_pieces) return false;
    switch (c.layout.schedule) {
      case ScheduleKind::kInterleaved: return c.layout.pp > 1 && (c.microbatches % c.layout.pp == 0 || MayHaveRest());
      case ScheduleKind::kChimera: return c.layout.pp % 2 == 0 && c.microbatches % 2 == 0;
      default: return true;
    }
  }

  // With one rank, interleaving has no effect.
  std::vector<int32_t> VirtualStages(const ParallelLayout& layout) const {
    const bool interleaves = pinned_.schedule == ScheduleKind::kAuto || pinned_.schedule == ScheduleKind::kInterleaved;
    if (layout.pp == 1 || !interleaves) return {1};
    std::vector<int32_t> numbers = UpTo(kMaxAutoVirtualStages);
    const int32_t most = std::min(kMaxAutoEvenVirtualStages, model_.layers / layout.pp);
    for (int32_t n = kMaxAutoVirtualStages + 1; n <= most; ++n) {
      if (model_.layers % (n * layout.pp) == 0) numbers.push_back(n);
    }
    return numbers;
  }

  void AddModes(Candidate c) {
    for (int32_t virtual_stages : Degrees(pinned_.virtual_stages, VirtualStages(c.layout))) {
      // More chunks would have less than one layer each.
      if (int64_t{virtual_stages} * c.layout.pp > model_.layers) break;
      c.layout.virtual_stages = virtual_stages;
      c.layout.custom = fixed_.custom;
      c.layout.weave = Weave();
      for (ScheduleKind schedule : Schedules(c.layout, virtual_stages)) {
        c.layout.schedule = schedule;
        if (!ScheduleFits(c)) continue;
        for (bool sequence_parallel : SequenceParallel(c.layout)) {
          c.layout.sequence_parallel = sequence_parallel;
          for (ZeroStage zero : Zero(c.layout)) {
            c.layout.zero = zero;
            candidates_.push_back(c);
          }
        }
      }
    }
  }

  const JobSpec& spec_;
  const ModelSpec& model_;
  const ParallelSpec& pinned_;
  const ParallelLayout fixed_;
  const bool any_, even_batches_;
  const int32_t same_links_;  // see SameLinks
  const int32_t least_devices_;
  const int32_t max_ranks_;
  std::vector<int32_t> micro_batches_, replicas_;
  bool only_one_ = false;  // see Done
  std::vector<Candidate> candidates_;
};

// One shape is enough with and without sequence parallelism: the cost model derives the times of each from those of the other.
LayerShape MeasuredShape(const JobSpec& spec, const ParallelLayout& layout, int32_t micro_batch) {
  LayerShape shape = ShapeOf(spec.model, layout, micro_batch);
  if (spec.parallel.sequence_parallel == Choice::kAuto && !shape.moe()) shape.sequence_parallel = false;
  return shape;
}

}  // namespace

absl::StatusOr<std::vector<Candidate>> Candidates(const JobSpec& spec, const ClusterTopology& cluster, PlanTarget target,
                                                  bool even_batches) {
  const int64_t devices = cluster.devices();
  if (spec.resources.min_ranks > devices) {
    return absl::InvalidArgumentError(absl::StrCat("the job asks for at least ", spec.resources.min_ranks,
                                                   " ranks, but the cluster has ", devices, " devices (", NodesText(cluster),
                                                   "): lower resources.ranks or add nodes"));
  }
  std::vector<Candidate> candidates = SearchSpace(spec, cluster, target, even_batches);
  if (candidates.empty()) return ExplainNoLayout(spec, cluster, target, even_batches);
  return candidates;
}

std::vector<Candidate> SearchSpace(const JobSpec& spec, const ClusterTopology& cluster, PlanTarget target, bool even_batches) {
  std::vector<Candidate> candidates = Space(spec, cluster, target, even_batches).All();
  std::sort(candidates.begin(), candidates.end(), [](const Candidate& a, const Candidate& b) {
    const auto key = [](const Candidate& c) {
      const ParallelLayout& l = c.layout;
      return std::make_tuple(l.ranks(), l.tp, l.pp, c.micro_batch, l.cp, l.virtual_stages, l.schedule, l.sequence_parallel,
                             l.zero, l.dp, l.rank_order, l.ep);
    };
    return key(a) < key(b);
  });
  return candidates;
}

bool MayChooseWeave(const PlanRequest& request) {
  return request.spec.parallel.weave == WeaveMode::kAuto && request.target == PlanTarget::kLynxEngine;
}

std::vector<Candidate> WovenCandidates(const std::vector<Candidate>& candidates, WeaveMode weave) {
  std::vector<Candidate> woven;
  for (const Candidate& candidate : candidates) {
    if (candidate.layout.weave != WeaveMode::kOff || candidate.layout.tp * candidate.layout.ep == 1) continue;
    if (candidate.microbatches < StrandsOf(weave)) continue;
    Candidate& one = woven.emplace_back(candidate);
    one.layout.weave = weave;
    if (!CheckScheduleOf(one.layout, one.microbatches).ok()) woven.pop_back();
  }
  return woven;
}

LayerShape WantedShapeOf(const JobSpec& spec, const Plan& plan) { return MeasuredShape(spec, plan.layout, plan.micro_batch); }

std::vector<LayerShape> WantedShapes(const JobSpec& spec, const ClusterTopology& cluster) {
  std::vector<LayerShape> shapes;
  for (const Candidate& c : Space(spec, cluster, PlanTarget::kLynxEngine, /*even_batches=*/false).OneOfEachSize()) {
    shapes.push_back(MeasuredShape(spec, c.layout, c.micro_batch));
  }
  // LayerShape orders by micro-batch first. So shapes with a small micro-batch come first, which nearly every layout can use.
  std::sort(shapes.begin(), shapes.end());
  shapes.erase(std::unique(shapes.begin(), shapes.end()), shapes.end());
  if (shapes.size() > kMaxWantedShapes) shapes.resize(kMaxWantedShapes);
  if (spec.model.moe.dense_layers == 0) return shapes;
  std::set<LayerShape> dense;
  for (const LayerShape& shape : shapes) dense.insert(DenseShape(shape));
  shapes.insert(shapes.end(), dense.begin(), dense.end());
  return shapes;
}

bool OffersOffloading(const PlanRequest& request) {
  using enum RecomputeMode;
  const RecomputeMode mode = request.spec.recompute;
  const RecomputeOptions& options = request.spec.recompute_options;
  const std::vector<RecomputeMode>& forbidden = options.forbidden;
  const bool heu =
      mode == kHeu || mode == kOpt || (mode == kAuto && std::find(forbidden.begin(), forbidden.end(), kHeu) == forbidden.end());
  // If the host's memory is the device's memory, offloading helps only if the job sets a limit for activations.
  const bool limited = request.spec.resources.activation_memory_per_rank.value > 0;
  const bool room = std::any_of(request.cluster.groups.begin(), request.cluster.groups.end(), [&](const NodeGroup& group) {
    return group.host_is_device ? limited && group.memory_per_device.value > 0 : group.host_memory.value > 0;
  });
  return room && heu && !options.forbids_offload;
}

}  // namespace lynx
