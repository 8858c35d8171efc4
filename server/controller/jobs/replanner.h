// Replanner: decides what happens with a new plan, and which training jobs are planned again for more devices. Not thread-safe:
// the controller owns it.
#ifndef LYNX_SERVER_CONTROLLER_JOBS_REPLANNER_H_
#define LYNX_SERVER_CONTROLLER_JOBS_REPLANNER_H_

#include <optional>
#include <string>
#include <vector>

#include "server/controller/jobs/device_pool.h"
#include "server/controller/jobs/generations.h"
#include "server/controller/jobs/job_planning.h"
#include "server/controller/jobs/memory_replanning.h"
#include "server/controller/jobs/stopping.h"
#include "server/controller/jobs/waiting_jobs.h"
#include "server/controller/state/controller_options.h"
#include "server/controller/state/job_table.h"
#include "server/controller/state/node_table.h"
#include "server/controller/state/present_step.h"

namespace lynx::server {

class Replanner {
 public:
  // The objects that this class works with. The class keeps references to all of them.
  struct Parts {
    const ControllerOptions& options;
    PresentStep& step;
    JobTable& jobs;
    const NodeTable& nodes;
    const DevicePool& devices;
    WaitingJobs& waiting;
    JobPlanning& planning;
    MemoryReplanning& memory;
    Generations& generations;
    Stopping& stopping;
  };
  explicit Replanner(const Parts& parts);

  void OnPlanReady(const PlanReady& event);
  // Looks for free devices that no waiting job needs, and plans training jobs again for them, in the order of their submission.
  void LookForMore();
  // True if the job may be planned again while it trains: for more devices, or because the speeds of its nodes have changed.
  bool MayBeReplanned(const LiveJob& job) const;
  bool MayGrow(const LiveJob& job) const;

 private:
  std::optional<std::vector<DeviceRef>> PlacementOf(const LiveJob& job, const Plan& plan, const PlanReady& event) const;
  void Place(LiveJob& job, std::shared_ptr<const Plan> plan, const PlanReady& event);
  void PlanRefused(LiveJob& job, const std::string& reason);
  void FailForMemory(LiveJob& job, const std::string& reason);
  void ConsiderPlan(LiveJob& job, const PlanReady& event);
  double SlowedSincePlanned(const LiveJob& job) const;
  std::string WhyNot(const LiveJob& job, const Plan& plan, Nanos beside) const;
  void GiveWay(LiveJob& job, const PlanReady& event, std::vector<DeviceRef> placement);

  const ControllerOptions& options_;
  PresentStep& step_;
  JobTable& jobs_;
  const NodeTable& nodes_;
  const DevicePool& devices_;
  WaitingJobs& waiting_;
  JobPlanning& planning_;
  MemoryReplanning& memory_;
  Generations& generations_;
  Stopping& stopping_;
};

}  // namespace lynx::server

#endif  // LYNX_SERVER_CONTROLLER_JOBS_REPLANNER_H_
