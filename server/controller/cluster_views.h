// ClusterViews: the view of nodes, queues and devices that people and metrics get. Not thread-safe: the controller owns it.
#ifndef LYNX_SERVER_CONTROLLER_CLUSTER_VIEWS_H_
#define LYNX_SERVER_CONTROLLER_CLUSTER_VIEWS_H_

#include <vector>

#include "server/controller/jobs/desired_states.h"
#include "server/controller/jobs/device_pool.h"
#include "server/controller/state/job_table.h"
#include "server/controller/state/node_table.h"
#include "server/scheduling/whole_cluster.h"
#include "server/values/cluster_stats.h"
#include "server/values/queue_config.h"

namespace lynx::server {

class ClusterViews {
 public:
  // The object keeps references to all arguments.
  ClusterViews(const JobTable& jobs, const NodeTable& nodes, const DevicePool& devices, const DesiredStates& desired)
      : jobs_(jobs), nodes_(nodes), devices_(devices), desired_(desired) {}

  std::vector<NodeView> Nodes() const;
  NodeView ViewOf(const NodeId& name) const;
  // Summaries of the nodes in Nodes(), by name.
  std::vector<NodeSummary> Summaries() const;
  // The nodes that can take ranks, in locality order, with their GPUs if a GPU has been measured, else with their CPUs.
  // Cordoned nodes are left out.
  std::vector<WholeNode> WholeNodes() const;
  std::vector<QueueView> Queues() const;
  ClusterStats TakeClusterStats() const;

 private:
  const JobTable& jobs_;
  const NodeTable& nodes_;
  const DevicePool& devices_;
  const DesiredStates& desired_;
};

}  // namespace lynx::server

#endif  // LYNX_SERVER_CONTROLLER_CLUSTER_VIEWS_H_
