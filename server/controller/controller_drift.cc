// Drift: nodes of a job compute slower or faster, or links are slower or faster, than its plan assumes. See controller.h.
#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "server/controller/controller.h"
#include "server/health/link_verdict.h"

namespace lynx {
namespace {

// A change counts from this factor on: it is more than two measurements of the same thing differ
// (server/scheduling/node_groups.h).
constexpr double kDrift = 1.3;
constexpr double kMaxSlowness = 100;
// A link may lose much more of its speed than a processor.
constexpr double kMaxLinkSlowness = 10'000;
// A node counts as slow above this factor (NodeDevices::slow in placement.h).
constexpr double kSlow = 1.5;

}  // namespace

bool Controller::IsSlow(const Slowness& slowness) { return slowness.compute > kSlow || slowness.links > kSlow; }

// Updates the slowness of the job's nodes from the rank that changed most on each, as this holds for the whole node. Returns a
// clause for each change.
std::vector<std::string> Controller::NoteComputeDrift(Job& job) {
  const std::vector<double> changes = job.speed.Changes();
  std::map<NodeId, double> nodes;
  for (size_t r = 0; r < changes.size(); ++r) {
    double& of_node = nodes.emplace(job.record.ranks[r].where.node, 1).first->second;
    if (std::abs(std::log(changes[r])) > std::abs(std::log(of_node))) of_node = changes[r];
  }
  std::vector<std::string> texts;
  for (const auto& [name, change] : nodes) {
    if (std::max(change, 1 / change) < kDrift) continue;
    // Based on the value at the start of the watch, so two jobs that see the same change do not count it twice.
    NodeOf(name).slowness.compute = std::clamp(job.slowness_watched[name].compute * change, 1 / kMaxSlowness, kMaxSlowness);
    texts.push_back(
        absl::StrCat("node ", name.value, " computes ",
                     absl::StrFormat("%.1f times %s", std::max(change, 1 / change), change > 1 ? "slower" : "faster"),
                     " than before, beside the others"));
  }
  return texts;
}

// Predicted time to send this many bytes over the link; 0: there is no prediction.
Nanos Controller::PredictedOn(const Job& job, const NodeId& from, const NodeId& to, int64_t bytes) const {
  double longest = 0;
  for (const NodeId& name : {from, to}) {
    const auto node = nodes_.find(name);
    if (node == nodes_.end() || node->second.agent.profile == nullptr) return Nanos(0);
    const auto watched = job.slowness_watched.find(name);
    const double slowness = watched == job.slowness_watched.end() ? 1 : watched->second.links;
    longest = std::max(longest, slowness * static_cast<double>(bytes) /
                                    static_cast<double>(node->second.agent.profile->inter_node.bytes_per_second));
  }
  return Nanos(static_cast<int64_t>(longest * 1e9));
}

// Adds the slowdown of a link to its predicted time, because its messages may have had to wait for the link before, too.
std::vector<std::string> Controller::NoteLinkDrift(Job& job) {
  std::vector<SlowLink> slower;
  std::map<NodeId, double> faster;  // the factor by which the node's slowest link has changed; below 1
  for (const LinkWatch::Change& change : job.links.Changes()) {
    const NodeId& from = job.record.ranks[static_cast<size_t>(change.from)].where.node;
    const NodeId& to = job.record.ranks[static_cast<size_t>(change.to)].where.node;
    if (from == to) continue;
    const auto said = static_cast<double>(std::max(Nanos(1), PredictedOn(job, from, to, change.bytes)).value);
    const double factor = (said + static_cast<double>((change.now - change.before).value)) / said;
    if (change.slower()) {
      slower.push_back(
          {.from = from, .to = to, .factor = factor, .bytes = change.bytes, .before = change.before, .now = change.now});
      continue;
    }
    for (const NodeId& name : {from, to}) {
      double& of_node = faster.emplace(name, 0).first->second;
      of_node = std::max(of_node, factor);
    }
  }
  std::vector<std::string> texts;
  const auto note = [&](const NodeId& name, double factor) {
    const double before = job.slowness_watched[name].links;
    const double now = std::clamp(before * factor, 1.0, kMaxLinkSlowness);
    if (std::max(now / before, before / now) < kDrift) return false;
    NodeOf(name).slowness.links = now;
    return true;
  };
  for (const SlowNodes& verdict : NodesOfSlowLinks(slower)) {
    bool any = false;
    for (const NodeId& name : verdict.nodes) any = note(name, verdict.factor) || any;
    if (any) texts.push_back(verdict.text);
  }
  for (const auto& [name, factor] : faster) {
    const bool is_slow =
        std::any_of(slower.begin(), slower.end(), [&](const SlowLink& link) { return link.from == name || link.to == name; });
    if (!is_slow && note(name, factor)) texts.push_back(absl::StrCat("the links of node ", name.value, " are faster again"));
  }
  return texts;
}

// Looks for changes since the generation began or since the last look. If there are any, plans the job again for its present
// devices.
void Controller::CheckDrift(Job& job) {
  if (!MayBeReplanned(job) || now_ < job.drift_not_before) return;
  job.drift_not_before = now_ + options_.replan_after;
  std::vector<DeviceRef> had;
  for (const RankRecord& rank : job.record.ranks) had.push_back(rank.where);
  const int32_t ranks = job.plan->layout.ranks();
  const Demand same{.min_ranks = ranks, .max_ranks = ranks, .group = DemandOf(job).group};
  // Some of its devices may not be used any more.
  if (!Reserve(Among(FreeDevices(KindOf(job), &job), had), same).has_value()) return;
  std::vector<std::string> texts = NoteComputeDrift(job);
  const std::vector<std::string> of_links = NoteLinkDrift(job);
  texts.insert(texts.end(), of_links.begin(), of_links.end());
  if (texts.empty()) return;
  job.speed.Rebase();
  job.links.Rebase();
  job.slowness_watched = SlownessOf(job);
  const std::string text = absl::StrJoin(texts, ", ");
  AddEvent(job, EventKind::kDrift, text);
  Touch(job);
  job.replanning.trigger = text;
  AddEvent(job, EventKind::kReplan, absl::StrCat("plans for the same ", ranks, " devices beside ", SummaryOf(*job.plan)));
  // In the present order, which puts slow nodes last.
  Prepare(job, *Reserve(Among(FreeDevices(KindOf(job), &job), had), same));
}

std::map<NodeId, Slowness> Controller::SlownessOf(const Job& job) const {
  std::map<NodeId, Slowness> slowness;
  for (const RankRecord& rank : job.record.ranks) {
    const auto node = nodes_.find(rank.where.node);
    slowness[rank.where.node] = node == nodes_.end() ? Slowness() : node->second.slowness;
  }
  return slowness;
}

// The factor by which the present plan takes longer than predicted, from the node that has slowed down most since.
double Controller::SlowedSincePlanned(const Job& job) const {
  double most = 1;
  for (const auto& [name, slowness] : SlownessOf(job)) {
    const auto planned = job.slowness_planned.find(name);
    most = std::max(most, slowness.compute / (planned == job.slowness_planned.end() ? 1 : planned->second));
  }
  return most;
}

}  // namespace lynx
