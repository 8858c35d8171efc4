#include "planner/search.h"

#include <algorithm>
#include <string>
#include <tuple>

#include "absl/strings/str_cat.h"

namespace lynx {
namespace {

constexpr int32_t kLargestAutoMicroBatch = 8;
constexpr size_t kMostWantedShapes = 12;

std::vector<int32_t> MicroBatches(const JobSpec& spec, int32_t dp) {
  const TrainSpec& train = spec.train;
  std::vector<int32_t> sizes;
  if (train.micro_batch > 0) {
    sizes.push_back(train.micro_batch);
  } else {
    for (int32_t size = 1; size <= kLargestAutoMicroBatch; size *= 2) sizes.push_back(size);
  }
  std::erase_if(sizes, [&](int32_t size) { return train.global_batch % (int64_t{dp} * size) != 0; });
  return sizes;
}

bool TensorParallelFits(const ModelSpec& model, const ClusterTopology& cluster, int32_t tp) {
  return tp <= cluster.least_devices_per_node() && model.heads % tp == 0 && model.ffn % tp == 0 && tp <= model.vocab;
}

std::string PinnedText(const JobSpec& spec) {
  const auto text = [](int32_t value) { return value == 0 ? std::string("auto") : absl::StrCat(value); };
  return absl::StrCat("parallel.tp ", text(spec.parallel.tp), ", parallel.pp ", text(spec.parallel.pp),
                      ", parallel.dp ", text(spec.parallel.dp), ", train.microBatch ", text(spec.train.micro_batch));
}

absl::Status NoCandidate(const JobSpec& spec, const ClusterTopology& cluster, int32_t max_ranks) {
  if (spec.parallel.tp > cluster.least_devices_per_node()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "parallel.tp is ", spec.parallel.tp, ", but a node has ", cluster.least_devices_per_node(),
        " devices and a tensor-parallel group stays on one node: use at most ", cluster.least_devices_per_node()));
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "no parallel layout of ", spec.resources.min_ranks, " to ", max_ranks, " ranks fits the model: tp must divide ",
      spec.model.heads, " heads and ffn ", spec.model.ffn, " and be at most ", cluster.least_devices_per_node(),
      " (devices of a node), pp be at most ", spec.model.layers,
      " layers, dp times the micro-batch divide the global batch ", spec.train.global_batch, " (", PinnedText(spec),
      "); change train.globalBatch, resources.ranks or parallel"));
}

}  // namespace

absl::StatusOr<std::vector<Candidate>> Candidates(const JobSpec& spec, const ClusterTopology& cluster) {
  const int64_t devices = cluster.devices();
  if (spec.resources.min_ranks > devices) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the job asks for at least ", spec.resources.min_ranks, " ranks, but the cluster has ", devices, " devices (",
        NodesText(cluster), "): lower resources.ranks or add nodes"));
  }
  const int32_t max_ranks = static_cast<int32_t>(std::min<int64_t>(spec.resources.max_ranks, devices));
  const ParallelSpec& pinned = spec.parallel;
  const auto allowed = [](int32_t pin, int32_t value) { return pin == 0 || pin == value; };
  std::vector<Candidate> candidates;
  for (int32_t tp = 1; tp <= max_ranks; ++tp) {
    if (!allowed(pinned.tp, tp) || !TensorParallelFits(spec.model, cluster, tp)) continue;
    for (int32_t pp = 1; pp <= spec.model.layers && tp * pp <= max_ranks; ++pp) {
      if (!allowed(pinned.pp, pp)) continue;
      for (int32_t dp = 1; tp * pp * dp <= max_ranks; ++dp) {
        if (!allowed(pinned.dp, dp) || tp * pp * dp < spec.resources.min_ranks) continue;
        for (int32_t size : MicroBatches(spec, dp)) {
          candidates.push_back({{.tp = tp, .pp = pp, .dp = dp}, size, spec.train.global_batch / (dp * size)});
        }
      }
    }
  }
  if (candidates.empty()) return NoCandidate(spec, cluster, max_ranks);
  std::sort(candidates.begin(), candidates.end(), [](const Candidate& a, const Candidate& b) {
    const auto key = [](const Candidate& c) {
      return std::make_tuple(c.layout.ranks(), c.layout.tp, c.layout.pp, c.micro_batch);
    };
    return key(a) < key(b);
  });
  return candidates;
}

std::vector<LayerShape> WantedShapes(const JobSpec& spec, const ClusterTopology& cluster) {
  const auto candidates = Candidates(spec, cluster);
  std::vector<LayerShape> shapes;
  if (!candidates.ok()) return shapes;
  for (const Candidate& c : *candidates) shapes.push_back(ShapeOf(spec.model, c.layout, c.micro_batch));
  // LayerShape orders by micro-batch first: small ones, which nearly every layout can use, come first.
  std::sort(shapes.begin(), shapes.end());
  shapes.erase(std::unique(shapes.begin(), shapes.end()), shapes.end());
  if (shapes.size() > kMostWantedShapes) shapes.resize(kMostWantedShapes);
  return shapes;
}

}  // namespace lynx
