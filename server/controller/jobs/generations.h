// Generations: begins a generation on a job's devices, gives the devices back, and ends jobs. stopping.h decides why a
// generation ends and what comes next. Not thread-safe: the controller owns it.
#ifndef LYNX_SERVER_CONTROLLER_JOBS_GENERATIONS_H_
#define LYNX_SERVER_CONTROLLER_JOBS_GENERATIONS_H_

#include <string>
#include <vector>

#include "server/controller/jobs/device_pool.h"
#include "server/controller/jobs/job_planning.h"
#include "server/controller/jobs/measurements.h"
#include "server/controller/jobs/waiting_jobs.h"
#include "server/controller/state/controller_options.h"
#include "server/controller/state/job_table.h"
#include "server/controller/state/memory_checkpoints.h"
#include "server/controller/state/node_table.h"
#include "server/controller/state/present_step.h"

namespace lynx::server {

class Generations {
 public:
  // The object keeps references to all arguments.
  Generations(const ControllerOptions& options, PresentStep& step, JobTable& jobs, NodeTable& nodes,
              MemoryCheckpoints& checkpoints, const DevicePool& devices, WaitingJobs& waiting, JobPlanning& planning)
      : options_(options), step_(step), jobs_(jobs), nodes_(nodes), checkpoints_(checkpoints), devices_(devices),
        waiting_(waiting), planning_(planning) {}

  // Begins the next generation of the job on these devices, one for each rank of its plan. `reason` is passed by value because
  // it may be a part of the record that changes.
  void Start(LiveJob& job, const std::vector<DeviceRef>& placement, EventKind kind, std::string reason);
  // Continues a generation that an earlier server started. Its ranks may still run.
  void Restore(LiveJob& job);
  // Releases the devices of a generation that is over.
  void LeaveDevices(LiveJob& job);
  // Releases the devices like LeaveDevices. Then the job waits for its next turn.
  void Requeue(LiveJob& job, EventKind kind, std::string reason);
  // Ends the job in the final state `state`.
  void EndJob(LiveJob& job, JobState state, EventKind kind, std::string reason);

 private:
  void BeginWatching(LiveJob& job, std::vector<StageMeasurement> measured);
  void LeaveNodes(LiveJob& job);

  const ControllerOptions& options_;
  PresentStep& step_;
  JobTable& jobs_;
  NodeTable& nodes_;
  MemoryCheckpoints& checkpoints_;
  const DevicePool& devices_;
  WaitingJobs& waiting_;
  JobPlanning& planning_;
};

}  // namespace lynx::server

#endif  // LYNX_SERVER_CONTROLLER_JOBS_GENERATIONS_H_
