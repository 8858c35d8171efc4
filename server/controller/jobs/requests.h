// Requests: carries out what people request: submit, cancel, hold and release jobs, cordon and drain nodes, configure queues.
// It also applies the time limits of jobs. Not thread-safe: the controller owns it.
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

namespace lynx::server {

class Requests {
 public:
  // The objects that this class works with. The class keeps references to all of them.
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
  // Only people remove a cordon. It stays even if the node is absent for a long time, and people may set it before the node
  // attaches for the first time.
  void OnCordon(const CordonRequested& event);
  void OnQueue(const QueueRequested& event);
  // Asks the job's ranks to give way if there is a reason, such as a drain or a time limit. Does nothing if they are already
  // leaving.
  void Check(LiveJob& job);

 private:
  absl::Status ResolveDependencies(const JobSubmitted& event, std::vector<JobId>& waits_for) const;
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

}  // namespace lynx::server

#endif  // LYNX_SERVER_CONTROLLER_JOBS_REQUESTS_H_
