// Controller: makes all decisions of the server. It is a pure state machine: Step(event) changes its state and returns the
// effects that it wants. The event carries the time; there is no I/O, clock, thread, randomness or protobuf. Not thread-safe:
// one thread owns it.
//
// States of a job:
//
//             submit
//               |
//               v       devices free, its turn        plan, placement
//      +----> QUEUED ------------------------> PLANNING ------> STARTING ------> RUNNING ------> SUCCEEDED
//      |        |  \__ has a plan, devices free __________________^  |  all ready   |   all ranks done
//      |        |                                  |                 | or a step    |
//      |        |           infeasible, no layout  |                 |              |
//      |        |                                  v                 v              v
//      |        |                                FAILED <--- [stopping: ranks of this generation end]
//      |        |                                  budget spent,     |    |         ^ ^
//      |        |                                  own first fault   |    |         | rank lost, node lost, cancel
//      |        |                                                    |    |
//      |        |                          restart, new generation: STARTING (same devices, or others)
//      +--------|---------------------- no devices for a restart ----+
//               +--- cancel: CANCELLED (at once, or when the ranks have stopped)
//
// States of one generation: first each rank only listens (its desired state has no addresses of peers yet). When all ranks
// listen, each gets the addresses of its peers and runs. At the end each rank has finished and exited with 0. Before the next
// generation begins, every rank's worker must report that the rank is gone, or the rank's node must be lost.
//
// A job with a range of ranks is elastic. If it loses devices and no others replace them, it is planned again for the devices
// that are left. If more devices are free and no other job waits for them, it is planned for these devices too while it trains.
// If the new plan saves enough time, the job's ranks give way: they finish a step and write a checkpoint, and the next
// generation begins with the new plan (jobs/replanner.h).
//
// Parts: the controller only routes events to its parts and collects effects. state/ holds what is known: jobs, nodes, leases,
// in-memory checkpoints. jobs/ has the parts that decide. In order, these parts are: devices and the line of waiting jobs,
// planning, generations, the reaction to failures, reports of ranks, the use of new plans, drift, the queue, and requests of
// people. A part calls only parts that come before it in this order.
//
// Turns: waiting jobs get devices in the order of server/scheduling/queue_order.h. The first job that must wait holds up the
// jobs behind it. But jobs that do not delay this first job may begin before it: jobs that use other devices than it will get,
// or that end before it begins. The first job may make running jobs give way (jobs/queue_pass.h). Jobs leave a node that is
// drained (jobs/requests.h).
#ifndef LYNX_SERVER_CONTROLLER_CONTROLLER_H_
#define LYNX_SERVER_CONTROLLER_CONTROLLER_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "server/controller/cluster_views.h"
#include "server/controller/jobs/desired_states.h"
#include "server/controller/jobs/device_pool.h"
#include "server/controller/jobs/drift_watch.h"
#include "server/controller/jobs/failure_analysis.h"
#include "server/controller/jobs/generations.h"
#include "server/controller/jobs/job_planning.h"
#include "server/controller/jobs/measurements.h"
#include "server/controller/jobs/memory_replanning.h"
#include "server/controller/jobs/queue_pass.h"
#include "server/controller/jobs/rank_events.h"
#include "server/controller/jobs/replanner.h"
#include "server/controller/jobs/requests.h"
#include "server/controller/jobs/stopping.h"
#include "server/controller/jobs/waiting_jobs.h"
#include "server/controller/state/controller_options.h"
#include "server/controller/state/job_table.h"
#include "server/controller/state/leases.h"
#include "server/controller/state/memory_checkpoints.h"
#include "server/controller/state/node_table.h"
#include "server/controller/state/present_step.h"
#include "server/values/cluster_stats.h"
#include "server/values/events.h"
#include "server/values/rank_logs.h"

namespace lynx::server {

class Controller {
 public:
  explicit Controller(ControllerOptions options);
  Controller(const Controller&) = delete;
  Controller& operator=(const Controller&) = delete;

  struct StoredJob {
    JobRecord record;
    std::shared_ptr<const Plan> plan;                          // null: there is no plan, or the job has ended
    std::shared_ptr<const ClusterTopology> cluster = nullptr;  // the plan is made for it; null: one kind of node, or unknown
  };
  struct Settings {
    std::map<NodeId, Cordon> cordons;
    std::vector<QueueConfig> queues;
    std::vector<NodeId> nodes;  // nodes that attached before and may be witnesses
  };
  // Restores the settings that people have made, and the nodes that attached under an earlier server. Call before Restore.
  void RestoreSettings(Settings settings);
  // Continues from the state that an earlier server stored. Call once, before the first Step.
  std::vector<Effect> Restore(std::vector<StoredJob> jobs, Nanos now, Nanos wall);

  std::vector<Effect> Step(const Event& event);
  // This server had stopped leading for a while, and had ended the streams of all nodes. The nodes get as much time to return
  // as after a start. `now`: monotonic.
  void LeadsAgain(Nanos now) { leases_.Begin(now); }

  // Returns nullptr if the job is unknown.
  const JobRecord* Find(const JobId& id) const;
  // Returns the job's plan. The plan of a job that has ended comes without programs. Returns null if there is no plan, or if
  // the job ended under an earlier server. In the second case the store has the plan.
  std::shared_ptr<const Plan> PlanOf(const JobId& id) const;
  // See JobTable::Resolve and JobTable::List.
  absl::StatusOr<JobId> Resolve(const std::string& text, const std::string& asker) const { return jobs_.Resolve(text, asker); }
  std::vector<const JobRecord*> List(size_t limit, const std::vector<JobState>& states, const JobRecord* before = nullptr,
                                     const std::string& owner = "") const {
    return jobs_.List(limit, states, before, owner);
  }
  std::vector<NodeView> Nodes() const { return views_.Nodes(); }
  NodeView ViewOf(const NodeId& name) const { return views_.ViewOf(name); }
  // Summaries of the nodes in Nodes(), by name.
  std::vector<NodeSummary> Summaries() const { return views_.Summaries(); }
  // See ClusterViews::WholeNodes.
  std::vector<WholeNode> WholeNodes() const { return views_.WholeNodes(); }
  std::vector<QueueView> Queues() const { return views_.Queues(); }
  // Names of the users who may change all jobs of the queue.
  std::vector<std::string> ManagersOf(const std::string& queue) const;
  const RankLogs& logs() const { return logs_; }
  ClusterStats TakeClusterStats() const { return views_.TakeClusterStats(); }
  // Number of devices that an unfinished job has or is planned for.
  int32_t DevicesHeld(const JobId& id) const;

 private:
  std::vector<Effect> Finish();
  void OnAgentReported(const AgentReported& event);
  void OnWorkerReported(const WorkerReported& event);
  void OnAgentGone(const AgentGone& event);
  void OnWorkerGone(const WorkerGone& event);
  void OnTick();
  void JobTimers(LiveJob& job);
  void LoseNode(LiveNode& node);
  void ForgetNode(const NodeId& name);

  const ControllerOptions options_;
  // Each part keeps references to parts that come before it in this list.
  PresentStep step_;
  JobTable jobs_;
  NodeTable nodes_;
  Leases leases_;
  MemoryCheckpoints checkpoints_;
  RankLogs logs_;
  DevicePool devices_;
  WaitingJobs waiting_;
  Measurements measurements_;
  JobPlanning planning_;
  MemoryReplanning memory_;
  Generations generations_;
  FailureAnalysis failures_;
  Stopping stopping_;
  RankEvents ranks_;
  Replanner replanner_;
  DriftWatch drift_;
  QueuePass queue_;
  Requests requests_;
  DesiredStates desired_;
  ClusterViews views_;
};

}  // namespace lynx::server

#endif  // LYNX_SERVER_CONTROLLER_CONTROLLER_H_
