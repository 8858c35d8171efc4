#include "server/controller/cluster_views.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"

namespace lynx::server {

NodeView ClusterViews::ViewOf(const NodeId& name) const {
  NodeView view{.name = name};
  if (const auto cordon = nodes_.cordons().find(name); cordon != nodes_.cordons().end()) view.cordon = cordon->second;
  const LiveNode* found = nodes_.Find(name);
  if (found == nullptr) return view;
  const LiveNode& node = *found;
  view.address = node.address.empty() ? node.agent_link.host : node.address;
  view.agent_attached = node.agent_attached();
  view.worker_attached = node.worker_attached();
  view.devices = node.agent.devices;
  view.network_domain = node.agent.network_domain;
  view.agent_version = node.agent.version;
  view.worker_version = node.worker_version;
  view.last_seen = node.seen;
  view.profile = node.agent.profile;
  view.conditions = node.agent.conditions;
  if (node.worker_attached() && !devices_.MayEncrypt(node)) {
    view.conditions.push_back(
        {.kind = "plain",
         .message = absl::StrCat("gets no ranks: its lynx-worker ", node.worker_version,
                                 " cannot encrypt connections, which lynx-server --encrypt-ranks demands; "
                                 "install the server's release there"),
         .since = node.seen});
  }
  if (const std::map<JobId, Nanos>* jobs = jobs_.ExcludedBy(name); jobs != nullptr) {
    for (const auto& [id, since] : *jobs) {
      view.conditions.push_back(
          {.kind = "excluded",
           .message = absl::StrCat("job ", NameText(jobs_.At(id)), " does not use this node, for a failure there"),
           .since = since});
    }
  }
  for (const JobId& id : node.jobs) {
    view.jobs.push_back(id);
    view.devices_used += static_cast<int32_t>(jobs_.At(id).generation.ranks_on.at(name).size());
  }
  return view;
}

std::vector<NodeView> ClusterViews::Nodes() const {
  std::set<NodeId> names;
  for (const auto& [name, node] : nodes_.all()) {
    // Leaves out nodes without jobs that only an earlier server has seen.
    if (node.seen > Nanos(0) || !node.jobs.empty()) names.insert(name);
  }
  for (const auto& [name, cordon] : nodes_.cordons()) names.insert(name);
  std::vector<NodeView> views;
  for (const NodeId& name : names) views.push_back(ViewOf(name));
  return views;
}

std::vector<NodeSummary> ClusterViews::Summaries() const {
  std::map<NodeId, NodeSummary> summaries;
  for (const auto& [name, node] : nodes_.all()) {
    if (node.seen == Nanos(0) && node.jobs.empty()) continue;  // skips a node that only an earlier server has seen
    NodeSummary& summary = summaries[name];
    summary.presence = PresenceOf(node);
    summary.devices = static_cast<int32_t>(node.agent.devices.size());
    std::set<std::string> withdrawn;
    for (const ReportedCondition& condition : node.agent.conditions) {
      if (condition.withdrawn && !condition.device.empty()) withdrawn.insert(condition.device);
    }
    summary.withdrawn = static_cast<int32_t>(withdrawn.size());
    summary.warned = !node.agent.conditions.empty() || jobs_.ExcludedBy(name) != nullptr;
    for (const JobId& id : node.jobs) summary.used += static_cast<int32_t>(jobs_.At(id).generation.ranks_on.at(name).size());
  }
  for (const auto& [name, cordon] : nodes_.cordons()) summaries[name].cordoned = true;
  std::vector<NodeSummary> list;
  for (auto& [name, summary] : summaries) {
    summary.name = name;
    list.push_back(std::move(summary));
  }
  return list;
}

std::vector<WholeNode> ClusterViews::WholeNodes() const {
  DeviceKind kind = DeviceKind::kCuda;
  std::vector<NodeDevices> attached = devices_.AttachedDevices(kind);
  const auto measured = [&](const NodeDevices& node) { return nodes_.At(node.node).agent.profile != nullptr; };
  if (std::none_of(attached.begin(), attached.end(), measured)) attached = devices_.AttachedDevices(kind = DeviceKind::kCpu);
  std::vector<WholeNode> nodes;
  for (NodeDevices& devices : attached) {
    const LiveNode& node = nodes_.At(devices.node);
    WholeNode& whole =
        nodes.emplace_back(WholeNode{.kind = kind, .profile = node.agent.profile, .host_memory = node.agent.host_memory});
    if (whole.profile != nullptr && node.slowness != Slowness()) {
      whole.profile = std::make_shared<const HardwareProfile>(Slowed(*node.agent.profile, node.slowness));
    }
    for (const int32_t device : devices.free) whole.cores.push_back(CoreUseOf(node.agent, device));
    whole.devices = std::move(devices);
  }
  return nodes;
}

ClusterStats ClusterViews::TakeClusterStats() const {
  ClusterStats stats{.cordoned = static_cast<int64_t>(nodes_.cordons().size()), .fenced_reports = desired_.fenced_reports()};
  for (const auto& [id, job] : jobs_.all()) ++stats.jobs.at(static_cast<size_t>(job.record.state));
  for (const JobId& id : jobs_.unfinished()) {
    const LiveJob& job = jobs_.At(id);
    if (const int32_t held = DevicesUsed(jobs_.At(id)); held > 0)
      (devices_.KindOf(job) == DeviceKind::kCuda ? stats.cuda : stats.cpu).used += held;
    if (job.record.state != JobState::kQueued) continue;
    const std::vector<PendingReason>& pending = job.record.pending;
    for (auto reason = pending.begin(); reason != pending.end(); ++reason) {
      const auto same = [&](const PendingReason& other) { return other.kind == reason->kind; };
      if (std::none_of(pending.begin(), reason, same)) ++stats.pending[reason->kind];
    }
  }
  for (const auto& [name, node] : nodes_.all()) {
    const bool worker = node.worker_attached();
    stats.agents += node.agent_attached() ? 1 : 0;
    stats.workers += worker ? 1 : 0;
    if (node.seen > Nanos(0) || !node.jobs.empty()) ++stats.nodes.at(static_cast<size_t>(PresenceOf(node)));
    if (!worker) continue;
    for (const Device& device : node.agent.devices) ++(device.kind == DeviceKind::kCuda ? stats.cuda : stats.cpu).all;
  }
  return stats;
}

std::vector<QueueView> ClusterViews::Queues() const {
  std::map<std::string, QueueView> views;
  views[kDefaultQueue].config.name = kDefaultQueue;
  for (const auto& [name, config] : devices_.queues()) views[name].config = config;
  for (const auto& [name, used] : devices_.Used().by_queue) views[name].devices = used;
  for (const JobId& id : jobs_.unfinished()) {
    const JobRecord& record = jobs_.At(id).record;
    QueueView& view = views[record.spec->scheduling.queue];
    (record.state == JobState::kQueued ? view.waiting : view.running) += 1;
  }
  std::vector<QueueView> all;
  for (auto& [name, view] : views) {
    view.config.name = name;
    all.push_back(std::move(view));
  }
  return all;
}

}  // namespace lynx::server
