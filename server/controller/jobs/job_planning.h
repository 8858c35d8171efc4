// JobPlanning: reserves devices for a job, has them measured, and asks the planner for a plan. replanner.h decides what happens
// with the plan. Not thread-safe: the controller owns it.
#ifndef LYNX_SERVER_CONTROLLER_JOBS_JOB_PLANNING_H_
#define LYNX_SERVER_CONTROLLER_JOBS_JOB_PLANNING_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "server/controller/jobs/device_pool.h"
#include "server/controller/jobs/measurements.h"
#include "server/controller/jobs/waiting_jobs.h"
#include "server/controller/state/controller_options.h"
#include "server/controller/state/node_table.h"
#include "server/controller/state/present_step.h"
#include "server/scheduling/node_groups.h"

namespace lynx::server {

class JobPlanning {
 public:
  // The object keeps references to all arguments.
  JobPlanning(const ControllerOptions& options, PresentStep& step, JobTable& jobs, NodeTable& nodes, DevicePool& devices,
              WaitingJobs& waiting, Measurements& measurements)
      : options_(options), step_(step), jobs_(jobs), nodes_(nodes), devices_(devices), waiting_(waiting),
        measurements_(measurements) {}

  // Puts a job that has no devices into the state PLANNING and reserves these devices for it.
  void BeginPlanning(LiveJob& job, Reservation reservation);
  // Reserves the devices, has their agents measure what the planner needs, then requests a plan. The job may be training
  // meanwhile.
  void Prepare(LiveJob& job, Reservation reservation);
  // Called for an elastic job that cannot get all devices of its plan. True: the job is now being planned for devices of
  // `free`.
  bool ReplanForLess(LiveJob& job, const std::vector<NodeDevices>& free, const std::string& reason);
  // Requests the plan if nothing is left to measure or the time limit for measuring is over.
  void Advance(LiveJob& job);
  // Called for a plan that the planner has made for the job. True: the plan uses op times that a node of the job has not
  // measured; the node's agent measures them now, and then the job is planned again. False: the plan can be used.
  bool MeasureFor(LiveJob& job, const Plan& plan);
  // Calls Advance for the jobs that are known to wait for measurements of this node.
  void AdvanceJobsOn(const NodeId& node);

  // Checks that each program fits into one message to its node. ResourceExhausted: a program does not fit.
  absl::Status CheckPrograms(const Plan& plan) const;
  // Makes `plan` the job's plan. `cluster`: the cluster that it was made for. `considered`: the devices of that cluster.
  void SetPlan(LiveJob& job, std::shared_ptr<const Plan> plan, const std::shared_ptr<const ClusterTopology>& cluster,
               std::vector<DeviceRef> considered);
  // Releases the devices that the job reserves while it is being planned.
  void EndPlanning(LiveJob& job);
  // Ends planning, and also drops the new plan for which the ranks should give way. Does nothing if the job is not being
  // planned.
  void EndReplanning(LiveJob& job);
  // Lets a job that trains continue with its present plan. `reason` is shown in an event.
  void KeepPlan(LiveJob& job, const std::string& reason);

 private:
  void RequestPlan(LiveJob& job);
  ClusterTopology ClusterOf(const Reservation& reservation) const;
  std::vector<NodeShare> SharesOf(const LiveJob& job, size_t first, int32_t nodes) const;

  const ControllerOptions& options_;
  PresentStep& step_;
  JobTable& jobs_;
  NodeTable& nodes_;
  DevicePool& devices_;
  WaitingJobs& waiting_;
  Measurements& measurements_;
};

}  // namespace lynx::server

#endif  // LYNX_SERVER_CONTROLLER_JOBS_JOB_PLANNING_H_
