// Requests: what people ask for: submit, cancel, hold and release jobs, cordon and drain nodes, configure queues; and time
// limits of jobs. Not thread-safe: the controller owns it.
#ifndef LYNX_SERVER_CONTROLLER_JOBS_REQUESTS_H_
#define LYNX_SERVER_CONTROLLER_JOBS_REQUESTS_H_

#include <vector>

#include "absl/status/status.h"
#include "server/controller/jobs/device_pool.h"
#include "server/controller/jobs/generations.h"
#include "server/controller/jobs/job_planning.h"
#include "server/controller/jobs/measurements.h"
#include "server/controller/jobs/stopping.h"
#include "server/controller/jobs/waiting_jobs.h"
#include "server/controller/state/controller_options.h"
#include "server/controller/state/job_table.h"
#include "server/controller/state/node_table.h"
#include "server/controller/state/present_step.h"

namespace lynx {

class Requests {
 public:
  // What it works with. Keeps all references.
  struct Parts {
    const ControllerOptions& options;
    PresentStep& step;
    JobTable& jobs;
    NodeTable& nodes;
    DevicePool& devices;
    WaitingJobs& waiting;
    Measurements& measurements;
    JobPlanning& planning;
    Generations& generations;
    Stopping& stopping;
  };
  explicit Requests(const Parts& parts);

  void OnSubmitted(const JobSubmitted& event);
  void OnSubmissionLost(const SubmissionLost& event);
  void OnCancel(const CancelRequested& event);
  void OnHold(const HoldRequested& event);
  void OnRelease(const ReleaseRequested& event);
  // A cordon stays however long the node is away, even if the node has not come yet; only people remove it.
  void OnCordon(const CordonRequested& event);
  void OnQueue(const QueueRequested& event);
  // Asks a job that has ranks to give way if there is a reason, unless it is already leaving.
  void Check(LiveJob& job);

 private:
  absl::Status ResolveDependencies(const JobSpec& spec, std::vector<JobId>& waits_for) const;
  void StopMoving(const NodeId& name);

  const ControllerOptions& options_;
  PresentStep& step_;
  JobTable& jobs_;
  NodeTable& nodes_;
  DevicePool& devices_;
  WaitingJobs& waiting_;
  Measurements& measurements_;
  JobPlanning& planning_;
  Generations& generations_;
  Stopping& stopping_;
};

}  // namespace lynx

#endif  // LYNX_SERVER_CONTROLLER_JOBS_REQUESTS_H_
