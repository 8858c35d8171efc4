// NodeTable: the nodes that the server knows, their streams, and the cordons. Not thread-safe: the controller owns it.
#ifndef LYNX_SERVER_CONTROLLER_STATE_NODE_TABLE_H_
#define LYNX_SERVER_CONTROLLER_STATE_NODE_TABLE_H_

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>

#include "common/ids.h"
#include "common/units.h"
#include "server/controller/state/controller_options.h"
#include "server/controller/state/live_job.h"
#include "server/controller/state/live_node.h"
#include "server/controller/state/present_step.h"

namespace lynx::server {

class NodeTable {
 public:
  // The object keeps references to both arguments.
  NodeTable(const ControllerOptions& options, PresentStep& step) : options_(options), step_(step) {}

  // The node with this name. If the server does not know it yet, it is added.
  LiveNode& Of(const NodeId& name);
  LiveNode& At(const NodeId& name) { return nodes_.at(name); }
  const LiveNode& At(const NodeId& name) const { return nodes_.at(name); }
  // Returns nullptr if the node is unknown.
  LiveNode* Find(const NodeId& name);
  const LiveNode* Find(const NodeId& name) const;
  std::map<NodeId, LiveNode>& all() { return nodes_; }
  const std::map<NodeId, LiveNode>& all() const { return nodes_; }
  void Forget(const NodeId& name);

  enum class Party : uint8_t { kAgent, kWorker };
  // Returns the node if the stream may report for it. Otherwise closes the stream and returns nullptr.
  LiveNode* Admit(Party party, int64_t stream, const NodeId& name, const std::string& host, const std::string& boot);
  // Removes the stream, which is closed. Returns its node; nullptr: the stream reported for no node.
  LiveNode* Leave(int64_t stream);
  // Call it when the node's agent has reported its devices.
  void NoteDevices(const LiveNode& node);
  // True if some node has GPUs.
  bool has_gpus() const { return !gpu_nodes_.empty(); }

  const std::map<NodeId, Cordon>& cordons() const { return cordons_; }
  void RestoreCordons(std::map<NodeId, Cordon> cordons) { cordons_ = std::move(cordons); }
  // Sets the node's cordon. nullopt: removes the cordon.
  void SetCordon(const NodeId& name, const std::optional<Cordon>& cordon);

  // The slowness of the nodes that the job's ranks are on.
  std::map<NodeId, Slowness> SlownessOf(const LiveJob& job) const;
  // Returns the device's model; empty: the node's agent has not reported it.
  std::string ModelOf(const DeviceRef& where, DeviceKind kind) const;

 private:
  const ControllerOptions& options_;
  PresentStep& step_;
  std::map<NodeId, LiveNode> nodes_;
  std::map<int64_t, NodeId> streams_;  // the nodes of the admitted streams, by stream number
  std::set<NodeId> gpu_nodes_;         // nodes that have reported GPUs
  std::map<NodeId, Cordon> cordons_;
};

}  // namespace lynx::server

#endif  // LYNX_SERVER_CONTROLLER_STATE_NODE_TABLE_H_
