// Generations: a job gets its devices and its ranks begin, or it gives its devices back, or it ends. Why a generation ends and
// what comes next, is decided in stopping.h. Not thread-safe: the controller owns it.
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

namespace lynx {

class Generations {
 public:
  // Keeps references to all.
  Generations(const ControllerOptions& options, PresentStep& step, JobTable& jobs, NodeTable& nodes,
              MemoryCheckpoints& checkpoints, const DevicePool& devices, WaitingJobs& waiting, JobPlanning& planning)
      : options_(options), step_(step), jobs_(jobs), nodes_(nodes), checkpoints_(checkpoints), devices_(devices),
        waiting_(waiting), planning_(planning) {}

  // The next generation of the job begins on these devices, one for each rank of its plan. `reason` is passed by value because
  // it may be a part of the record that changes.
  void Start(LiveJob& job, const std::vector<DeviceRef>& placement, EventKind kind, std::string reason);
  // An earlier server started the job's generation, and its ranks may go on.
  void Restore(LiveJob& job);
  // Releases the devices of a generation that is over.
  void LeaveDevices(LiveJob& job);
  // The same, and the job waits for its next turn.
  void Requeue(LiveJob& job, EventKind kind, std::string reason);
  // The job ends in this final state.
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

}  // namespace lynx

#endif  // LYNX_SERVER_CONTROLLER_JOBS_GENERATIONS_H_
