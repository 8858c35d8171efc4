#include "server/controller/jobs/drift_watch.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "server/health/link_verdict.h"

namespace lynx::server {
namespace {

// The smallest factor by which a speed must change to be noticed. Two measurements of the same thing differ by less
// (server/scheduling/node_groups.h).
constexpr double kDrift = 1.3;
constexpr double kMaxSlowness = 100;
// The largest slowness of links. It is higher than that of processors, because a link can lose much more of its speed.
constexpr double kMaxLinkSlowness = 10'000;
// A measured skew is rounded up to a multiple of 1 / kSkewSteps, because agents measure op times for each skew.
constexpr double kSkewSteps = 10;

}  // namespace

void DriftWatch::Check(LiveJob& job) {
  if (!replanner_.MayBeReplanned(job) || step_.now() < job.drift.not_before) return;
  job.drift.not_before = step_.now() + options_.replan_after;
  std::vector<DeviceRef> had;
  for (const RankRecord& rank : job.record.ranks) had.push_back(rank.where);
  const int32_t ranks = job.plan->layout.ranks();
  const Demand same{.min_ranks = ranks, .max_ranks = ranks, .group = devices_.DemandOf(job).group};
  // Stops if the job may not use some of its devices any more, for example because their node is cordoned.
  if (!Reserve(Among(devices_.FreeDevices(devices_.KindOf(job), &job), had), same).has_value()) return;
  std::vector<std::string> texts = NoteComputeDrift(job);
  const std::vector<std::string> of_links = NoteLinkDrift(job);
  texts.insert(texts.end(), of_links.begin(), of_links.end());
  if (!texts.empty()) {
    job.drift.speed.Rebase();
    job.drift.links.Rebase();
    job.drift.slowness_watched = nodes_.SlownessOf(job);
  }
  const std::vector<std::string> of_experts = NoteSkewDrift(job);
  texts.insert(texts.end(), of_experts.begin(), of_experts.end());
  if (texts.empty()) return;
  const std::string text = absl::StrJoin(texts, ", ");
  step_.AddEvent(job, EventKind::kDrift, text);
  step_.Touch(job);
  job.replanning.trigger = text;
  step_.AddEvent(job, EventKind::kReplan, absl::StrCat("plans for the same ", ranks, " devices beside ", SummaryOf(*job.plan)));
  // Reserves the same devices in the present locality order, in which slow nodes come last.
  planning_.Prepare(job, *Reserve(Among(devices_.FreeDevices(devices_.KindOf(job), &job), had), same));
}

// Updates the slowness of the job's nodes. The rank whose speed changed most determines the value for its whole node. Returns
// texts, one for each node whose slowness changed.
std::vector<std::string> DriftWatch::NoteComputeDrift(LiveJob& job) {
  const std::vector<double> changes = job.drift.speed.Changes();
  std::map<NodeId, double> nodes;
  for (size_t r = 0; r < changes.size(); ++r) {
    double& of_node = nodes.emplace(job.record.ranks[r].where.node, 1).first->second;
    if (std::abs(std::log(changes[r])) > std::abs(std::log(of_node))) of_node = changes[r];
  }
  std::vector<std::string> texts;
  for (const auto& [name, change] : nodes) {
    if (std::max(change, 1 / change) < kDrift) continue;
    // The new value is computed from the value at the start of the watch. So if two jobs see the same change, it counts only
    // once.
    nodes_.Of(name).slowness.compute =
        std::clamp(job.drift.slowness_watched[name].compute * change, 1 / kMaxSlowness, kMaxSlowness);
    texts.push_back(
        absl::StrCat("node ", name.value, " computes ",
                     absl::StrFormat("%.1f times %s", std::max(change, 1 / change), change > 1 ? "slower" : "faster"),
                     " than before, beside the others"));
  }
  return texts;
}

// Predicted time to send this many bytes over the link; 0: there is no prediction.
Nanos DriftWatch::PredictedOn(const LiveJob& job, const NodeId& from, const NodeId& to, int64_t bytes) const {
  double longest = 0;
  for (const NodeId& name : {from, to}) {
    const LiveNode* node = nodes_.Find(name);
    if (node == nullptr || node->agent.profile == nullptr) return Nanos(0);
    const auto watched = job.drift.slowness_watched.find(name);
    const double slowness = watched == job.drift.slowness_watched.end() ? 1 : watched->second.links;
    longest = std::max(
        longest, slowness * static_cast<double>(bytes) / static_cast<double>(node->agent.profile->inter_node.bytes_per_second));
  }
  return Nanos(static_cast<int64_t>(longest * 1e9));
}

// Updates the slowness of nodes at the ends of links whose speed has changed. Returns a text for each change. The factor of a
// link is (predicted time + measured increase) / predicted time. The ratio of the two measured times would be wrong, because
// both times may include time in which messages waited for the link.
std::vector<std::string> DriftWatch::NoteLinkDrift(LiveJob& job) {
  std::vector<SlowLink> slower;
  std::map<NodeId, double> faster;  // for each node, the largest factor of its links that became faster; from 0 to 1
  for (const LinkWatch::Change& change : job.drift.links.Changes()) {
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
    const double before = job.drift.slowness_watched[name].links;
    const double now = std::clamp(before * factor, 1.0, kMaxLinkSlowness);
    if (std::max(now / before, before / now) < kDrift) return false;
    nodes_.Of(name).slowness.links = now;
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

// Notes the skew of the newest steps if it differs from the one that plans for the job assume. The skew that the job states is
// the least one that is planned for. Memory does not depend on it: jobs that train have a capacity (model.moe.capacity), which
// bounds the rows of each expert. On GPUs, products and transfers take the whole rooms of that capacity, however many rows they
// hold, so the time of a step does not depend on the skew either. (With model.moe.dropless, rounds make it depend on the skew;
// no plan can change how many there are.)
std::vector<std::string> DriftWatch::NoteSkewDrift(LiveJob& job) const {
  const MoeSpec& stated = job.record.spec->model.moe;
  const std::optional<double> lasting = job.drift.skew.Lasting();
  // With one rank per expert group, the load is always even. This does not tell what the load of larger groups would be.
  if (!stated.any() || job.plan->layout.ep == 1 || !lasting.has_value()) return {};
  if (devices_.KindOf(job) == DeviceKind::kCuda) return {};
  const double assumed = SkewOf(job), now = std::max(*lasting, stated.skew);
  if (std::max(now / assumed, assumed / now) < kDrift) return {};
  if (now > assumed) {
    job.drift.uneven_in = job.plan->layout;
  } else if (job.drift.uneven_in.has_value() && *job.drift.uneven_in != job.plan->layout) {
    return {};
  }
  const double found =
      std::max(stated.skew, std::min(std::ceil(*lasting * kSkewSteps) / kSkewSteps, static_cast<double>(stated.experts)));
  const double planned = job.plan->model.moe.skew;
  if (found == planned) {  // no other plan was better, and the load is again as planned
    job.drift.skew_found = 0;
    return {};
  }
  job.drift.skew_found = found;
  return {absl::StrCat("the experts of the fullest rank receive ", absl::StrFormat("%.2f", *lasting),
                       " times the even share of rows, and ", absl::StrFormat("%.2f", planned),
                       " times was planned for (model.moe.skew); memory suffices, because model.moe.capacity bounds the rows")};
}

}  // namespace lynx::server
