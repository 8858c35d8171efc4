#include "server/controller/state/node_table.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace lynx::server {

NodePresence PresenceOf(const LiveNode& node) {
  const bool agent = node.agent_attached(), worker = node.worker_attached();
  if (node.lost) return NodePresence::kLost;
  return agent && worker ? NodePresence::kAttached : agent || worker ? NodePresence::kPartial : NodePresence::kAbsent;
}

LiveNode* NodeTable::Find(const NodeId& name) {
  const auto found = nodes_.find(name);
  return found == nodes_.end() ? nullptr : &found->second;
}

const LiveNode* NodeTable::Find(const NodeId& name) const {
  const auto found = nodes_.find(name);
  return found == nodes_.end() ? nullptr : &found->second;
}

void NodeTable::Forget(const NodeId& name) {
  gpu_nodes_.erase(name);
  nodes_.erase(name);
}

LiveNode* NodeTable::Leave(int64_t stream) {
  const auto known = streams_.find(stream);
  if (known == streams_.end()) return nullptr;
  LiveNode& node = Of(known->second);
  streams_.erase(known);
  return &node;
}

void NodeTable::NoteDevices(const LiveNode& node) {
  const bool gpus = std::any_of(node.agent.devices.begin(), node.agent.devices.end(),
                                [](const Device& device) { return device.kind == DeviceKind::kCuda; });
  gpus ? void(gpu_nodes_.insert(node.name)) : void(gpu_nodes_.erase(node.name));
}

void NodeTable::SetCordon(const NodeId& name, const std::optional<Cordon>& cordon) {
  if (cordon.has_value()) {
    cordons_[name] = *cordon;
  } else {
    cordons_.erase(name);
  }
}

LiveNode& NodeTable::Of(const NodeId& name) {
  const auto [at, is_new] = nodes_.try_emplace(name);
  if (is_new) at->second.name = name;
  return at->second;
}

LiveNode* NodeTable::Admit(Party party, int64_t stream, const NodeId& name, const std::string& host, const std::string& boot) {
  if (const auto known = streams_.find(stream); known != streams_.end()) {
    if (known->second == name) return &Of(name);
    step_.Emit(
        CloseStream{stream, absl::InvalidArgumentError(absl::StrCat(
                                "node is \"", name.value, "\": this stream began as node \"", known->second.value, "\""))});
    return nullptr;
  }
  if (!nodes_.contains(name) && nodes_.size() >= options_.max_nodes) {
    step_.Emit(CloseStream{
        stream, absl::ResourceExhaustedError(absl::StrCat("the server knows ", nodes_.size(), " nodes, its limit"))});
    return nullptr;
  }
  LiveNode& node = Of(name);
  Attachment& link = party == Party::kAgent ? node.agent_link : node.worker_link;
  if (link.stream != 0) {
    if (link.host != host || link.boot != boot) {
      const char* what = party == Party::kAgent ? "agent" : "worker daemon";
      step_.Emit(CloseStream{
          stream, absl::AlreadyExistsError(absl::StrCat("another ", what, " is attached as node \"", name.value, "\" from ",
                                                        link.host, "; give this one a name of its own with --node"))});
      return nullptr;
    }
    // The node's process has connected again before the server noticed that its old connection was lost.
    step_.Emit(CloseStream{link.stream, absl::AbortedError("the node opened a newer stream")});
    streams_.erase(link.stream);
  }
  link = {.stream = stream, .host = host, .boot = boot};
  streams_[stream] = name;
  party == Party::kAgent ? step_.TellAgent(name) : step_.TellWorker(name);
  step_.LookAtQueue();
  return &node;
}

std::map<NodeId, Slowness> NodeTable::SlownessOf(const LiveJob& job) const {
  std::map<NodeId, Slowness> slowness;
  for (const RankRecord& rank : job.record.ranks) {
    const auto node = nodes_.find(rank.where.node);
    slowness[rank.where.node] = node == nodes_.end() ? Slowness() : node->second.slowness;
  }
  return slowness;
}

std::string NodeTable::ModelOf(const DeviceRef& where, DeviceKind kind) const {
  const auto node = nodes_.find(where.node);
  if (node == nodes_.end()) return "";
  for (const Device& device : node->second.agent.devices) {
    if (device.index == where.device && device.kind == kind) return device.model;
  }
  return "";
}

}  // namespace lynx::server
