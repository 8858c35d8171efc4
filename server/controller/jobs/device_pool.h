// DevicePool: which devices a job can use, which devices are free, and how many devices each queue may use. It holds the
// queues' quotas; everything else follows from the jobs and nodes. Not thread-safe: the controller owns it.
#ifndef LYNX_SERVER_CONTROLLER_JOBS_DEVICE_POOL_H_
#define LYNX_SERVER_CONTROLLER_JOBS_DEVICE_POOL_H_

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "server/controller/state/controller_options.h"
#include "server/controller/state/job_table.h"
#include "server/controller/state/live_job.h"
#include "server/controller/state/live_node.h"
#include "server/controller/state/node_table.h"
#include "server/scheduling/placement.h"
#include "server/scheduling/queue_order.h"
#include "server/values/queue_config.h"

namespace lynx::server {

class DevicePool {
 public:
  // The object keeps references to all arguments.
  DevicePool(const ControllerOptions& options, const JobTable& jobs, const NodeTable& nodes)
      : options_(options), jobs_(jobs), nodes_(nodes) {}

  const std::map<std::string, QueueConfig>& queues() const { return queues_; }
  void SetQueue(QueueConfig queue);
  // Number of devices that the jobs of each queue, and of each user in it, have or are planned for.
  UsedDevices Used() const;

  // The kind of device for the job's ranks. If the job does not name a kind, it gets GPUs if the attached nodes have enough of
  // them, free or not. Training on CPUs is many times slower, so it is better to wait for GPUs.
  DeviceKind KindOf(const LiveJob& job) const;
  // How many devices the job wants, within its queue's quota and its user's quota there.
  Demand DemandOf(const LiveJob& job) const;
  // DemandOf(job).min_ranks, without a look at what other jobs use.
  int32_t MinRanksOf(const LiveJob& job) const;
  // The devices on which the ranks of a plan with this layout would run, by rank. `cluster`: the plan's cluster if it has
  // several kinds of nodes, else null. With a cluster, stages run on the kinds of nodes that they were planned for, as far as
  // `free` has them. Otherwise the nodes that lie closest together are taken. nullopt: the ranks do not all fit.
  std::optional<std::vector<DeviceRef>> PlacementOn(const std::vector<NodeDevices>& free, const ParallelLayout& layout,
                                                    const ClusterTopology* cluster) const;
  // The devices for the ranks of the job's present plan.
  std::optional<std::vector<DeviceRef>> PlacementOn(const std::vector<NodeDevices>& free, const LiveJob& job) const {
    return PlacementOn(free, job.plan->layout, job.planned_kinds.get());
  }
  // Returns the devices that the job would get from `free`: devices for its present plan, or devices for which it would be
  // planned again. nullopt: the job cannot begin with `free`.
  std::optional<std::vector<DeviceRef>> Fits(const LiveJob& job, const std::vector<NodeDevices>& free) const;

  // The free devices, without devices of nodes that are cordoned or that `for_job` excludes. Devices that `for_job` holds count
  // as free. `for_job` is nullptr: the devices that are free for any job.
  std::vector<NodeDevices> FreeDevices(DeviceKind kind, const LiveJob* for_job) const;
  enum class Cordoned : uint8_t { kExcluded, kIncluded };
  // All devices of this kind, free or not, on nodes that have a worker daemon attached and run no orphans.
  std::vector<NodeDevices> AttachedDevices(DeviceKind kind, Cordoned cordoned = Cordoned::kExcluded) const;
  // The devices among `held` on which ranks can still be started. The job reserves these devices, so no other job has them.
  // Devices on cordoned nodes and on nodes that the job excludes are left out.
  std::vector<NodeDevices> StillThere(const std::vector<DeviceRef>& held, DeviceKind kind, const LiveJob& job) const;
  // What is known about the node and its devices of this kind, without free devices.
  NodeDevices FactsOf(const NodeId& name, DeviceKind kind) const;
  // True if the job may use devices of this kind on the node. The node must have such devices, have a worker daemon attached,
  // and run no orphans. It must be neither cordoned nor excluded by the job.
  bool MayUse(const LiveJob& job, DeviceKind kind, const NodeId& name) const;
  // Number of devices of this kind on nodes with a worker daemon. `cordoned`, `plain`: how many of them are on cordoned nodes,
  // and on nodes whose ranks cannot encrypt although they must.
  struct AttachedCount {
    int32_t all = 0, cordoned = 0, plain = 0;
  };
  AttachedCount CountAttached(DeviceKind kind) const;
  // True if the node of every rank of the job can run this rank again, on the same device.
  bool NodesServe(const LiveJob& job) const;

  // The UUID that the node's agent reports. While the agent is not attached: the UUID that it reported when the ranks `before`
  // began.
  std::string UuidOf(const DeviceRef& where, DeviceKind kind, const std::vector<RankRecord>& before) const;
  // The memory limit of the job for its reserved devices with index in [first, end), which are in one node group. 0: the size
  // of the devices is the only limit.
  Bytes MemoryLimitFor(const LiveJob& job, size_t first, size_t end) const;
  // True if the job's plan takes more than the job's memory limit on one of the devices, or, for a plan for nodes of several
  // kinds, than the device has. `placement`: the device of each rank.
  bool IsTooLarge(const LiveJob& job, const std::vector<DeviceRef>& placement) const;

  // True if the rank belongs to its job's current generation and is placed on this node.
  bool IsLive(const RankKey& key, const LiveNode& node) const;
  // True if the node's ranks can encrypt their connections, or need not.
  bool MayEncrypt(const LiveNode& node) const;
  // True if orphans run on the node: processes of a generation that is over. This happens if the server has given up the node
  // as lost and the node comes back. The node's devices are not free until these processes have ended.
  bool HasOrphans(const LiveNode& node) const;

 private:
  // PlacementOn for nodes that may be used together.
  std::optional<std::vector<DeviceRef>> PlacementTogether(const std::vector<NodeDevices>& free, const ParallelLayout& layout,
                                                          const ClusterTopology* cluster) const;
  bool TakesRanks(const LiveNode& node, Cordoned cordoned) const;
  std::vector<NodeDevices> DevicesExcept(const std::set<DeviceRef>& used, DeviceKind kind, Cordoned cordoned) const;
  static NodeDevices DevicesOf(const LiveNode& node, DeviceKind kind, const std::function<bool(const DeviceRef&)>& wanted);

  const ControllerOptions& options_;
  const JobTable& jobs_;
  const NodeTable& nodes_;
  std::map<std::string, QueueConfig> queues_;
};

}  // namespace lynx::server

#endif  // LYNX_SERVER_CONTROLLER_JOBS_DEVICE_POOL_H_
