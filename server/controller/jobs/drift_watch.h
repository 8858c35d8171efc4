// DriftWatch: notices when nodes or links of a job are slower or faster than the job's plan assumes, or when the load of its
// experts is more or less even, and has the job planned again. Not thread-safe: the controller owns it.
#ifndef LYNX_SERVER_CONTROLLER_JOBS_DRIFT_WATCH_H_
#define LYNX_SERVER_CONTROLLER_JOBS_DRIFT_WATCH_H_

#include <cstdint>
#include <string>
#include <vector>

#include "server/controller/jobs/device_pool.h"
#include "server/controller/jobs/job_planning.h"
#include "server/controller/jobs/replanner.h"
#include "server/controller/state/controller_options.h"
#include "server/controller/state/node_table.h"
#include "server/controller/state/present_step.h"

namespace lynx::server {

class DriftWatch {
 public:
  // The object keeps references to all arguments.
  DriftWatch(const ControllerOptions& options, PresentStep& step, NodeTable& nodes, const DevicePool& devices,
             JobPlanning& planning, const Replanner& replanner)
      : options_(options), step_(step), nodes_(nodes), devices_(devices), planning_(planning), replanner_(replanner) {}

  // Compares the present speeds with those at the start of the generation, or with those when the last change was found. If a
  // speed has changed, plans the job again for its present devices. Does the same if the skew of experts differs from the one
  // that the plan assumes.
  void Check(LiveJob& job);

 private:
  std::vector<std::string> NoteComputeDrift(LiveJob& job);
  Nanos PredictedOn(const LiveJob& job, const NodeId& from, const NodeId& to, int64_t bytes) const;
  std::vector<std::string> NoteLinkDrift(LiveJob& job);
  std::vector<std::string> NoteSkewDrift(LiveJob& job) const;

  const ControllerOptions& options_;
  PresentStep& step_;
  NodeTable& nodes_;
  const DevicePool& devices_;
  JobPlanning& planning_;
  const Replanner& replanner_;
};

}  // namespace lynx::server

#endif  // LYNX_SERVER_CONTROLLER_JOBS_DRIFT_WATCH_H_
