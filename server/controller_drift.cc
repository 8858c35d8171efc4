// Jobs whose nodes compute slower or faster than their plans take for granted. See controller.h.
#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/check.h"
#include "server/controller.h"

namespace lynx {
namespace {

// A change that is worth a look: more than what one measurement differs from another (server/node_groups.h).
constexpr double kDrift = 1.3;
constexpr double kMostSlowness = 100;

Nanos Times(Nanos time, double factor) {
  return std::min(kLongestTime, Nanos(static_cast<int64_t>(static_cast<double>(time.value) * factor)));
}

int64_t Divided(int64_t rate, double factor) {
  return rate == 0 ? 0 : std::max<int64_t>(1, static_cast<int64_t>(static_cast<double>(rate) / factor));
}

}  // namespace

HardwareProfile Slowed(HardwareProfile profile, double factor) {
  for (ShapeTimes& times : profile.measured) {
    for (OpTimes& op : times.ops) op = {Times(op.forward, factor), Times(op.backward, factor), Times(op.weight, factor)};
    times.optimizer_per_mega_parameter = Times(times.optimizer_per_mega_parameter, factor);
  }
  profile.flops_per_second = Divided(profile.flops_per_second, factor);
  profile.bfloat16_flops_per_second = Divided(profile.bfloat16_flops_per_second, factor);
  profile.memory_bytes_per_second = Divided(profile.memory_bytes_per_second, factor);
  profile.op_overhead = Times(profile.op_overhead, factor);
  return profile;
}

// Of one node at least, since the generation began or was last looked at: then the job is planned again for the devices that it has.
void Controller::CheckDrift(Job& job) {
  if (!MayBeReplanned(job) || now_ < job.drift_not_before) return;
  job.drift_not_before = now_ + options_.replan_after;
  const std::vector<double> changes = job.speed.Changes();
  // What one process of a node shows holds for the node.
  std::map<NodeId, double> nodes;
  for (size_t r = 0; r < changes.size(); ++r) {
    double& of_node = nodes.emplace(job.record.ranks[r].where.node, 1).first->second;
    if (std::abs(std::log(changes[r])) > std::abs(std::log(of_node))) of_node = changes[r];
  }
  std::erase_if(nodes, [](const auto& node) { return std::max(node.second, 1 / node.second) < kDrift; });
  if (nodes.empty()) return;
  std::vector<DeviceRef> had;
  for (const RankRecord& rank : job.record.ranks) had.push_back(rank.where);
  const int32_t ranks = job.plan->layout.ranks();
  std::optional<Reservation> own = Reserve(Among(FreeDevices(KindOf(job), &job), had),
                                           {.min_ranks = ranks, .max_ranks = ranks, .group = DemandOf(job).group});
  if (!own.has_value()) return;  // some are not to be used any more
  std::string text;
  for (const auto& [name, change] : nodes) {
    // Two jobs that see the same do not count it twice.
    NodeOf(name).slowness = std::clamp(job.slowness_watched[name] * change, 1 / kMostSlowness, kMostSlowness);
    absl::StrAppend(&text, text.empty() ? "" : ", ", "node ", name.value, " computes ",
                    absl::StrFormat("%.1f times %s", std::max(change, 1 / change), change > 1 ? "slower" : "faster"),
                    " than before, beside the others");
  }
  job.speed.Rebase();
  job.slowness_watched = SlownessOf(job);
  AddEvent(job, "drift", text);
  Touch(job);
  job.replanning.trigger = text;
  AddEvent(job, "replan", absl::StrCat("plans for the same ", ranks, " devices beside ", SummaryOf(*job.plan)));
  Prepare(job, *std::move(own));
}

std::map<NodeId, double> Controller::SlownessOf(const Job& job) const {
  std::map<NodeId, double> slowness;
  for (const RankRecord& rank : job.record.ranks) {
    const auto node = nodes_.find(rank.where.node);
    slowness[rank.where.node] = node == nodes_.end() ? 1 : node->second.slowness;
  }
  return slowness;
}

// By what factor the plan that it has takes longer than predicted, for the node that has become slower most.
double Controller::SlowedSincePlanned(const Job& job) const {
  double most = 1;
  for (const auto& [name, slowness] : SlownessOf(job)) {
    const auto planned = job.slowness_planned.find(name);
    most = std::max(most, slowness / (planned == job.slowness_planned.end() ? 1 : planned->second));
  }
  return most;
}

}  // namespace lynx
