// Measurements: what agents measure for jobs that are being planned, and which jobs wait for it. Not thread-safe: the
// controller owns it.
#ifndef LYNX_SERVER_CONTROLLER_JOBS_MEASUREMENTS_H_
#define LYNX_SERVER_CONTROLLER_JOBS_MEASUREMENTS_H_

#include <map>
#include <set>

#include "server/controller/state/controller_options.h"
#include "server/controller/state/job_table.h"
#include "server/controller/state/live_job.h"
#include "server/controller/state/live_node.h"
#include "server/controller/state/node_table.h"
#include "server/controller/state/present_step.h"

namespace lynx::server {

class Measurements {
 public:
  // The object keeps references to all arguments.
  Measurements(const ControllerOptions& options, PresentStep& step, const JobTable& jobs, const NodeTable& nodes)
      : options_(options), step_(step), jobs_(jobs), nodes_(nodes) {}

  // Has the agents of the job's reserved devices measure what the planner needs, within the time limit.
  void Begin(LiveJob& job);
  // Called for a plan that the planner has made. True: a node of the reserved devices has not measured the shape from whose op
  // times the plan was made, and its agent measures it now, within what is left of the time limit. False: all of them have
  // measured it, or cannot.
  bool BeginFor(LiveJob& job, const Plan& plan);
  // True if the job must still wait. The job is then registered with the first node that it waits for (TakeWaiters).
  bool Waits(LiveJob& job);
  // Returns the jobs that are registered with this node, and forgets them. Call Waits again for each of them.
  std::set<JobId> TakeWaiters(const NodeId& node);
  // Ends measuring for the job, because its plan is requested or not wanted any more.
  void End(LiveJob& job);
  // Forgets the job, which does not exist any more.
  void Forget(const JobId& job) { measuring_.erase(job); }
  // For a job in the state PLANNING, adds an event about the measurements: how long they took, or which nodes did not finish
  // within the time limit. If the wait was too short to be noticed, there is no event.
  void TellDuration(LiveJob& job) const;
  // What the node's agent should measure now.
  AgentDesired ShapesFor(const LiveNode& node) const;

 private:
  void Ask(LiveJob& job);
  bool Lacks(const LiveJob& job, const DeviceRef& device, const LayerShape& shape) const;
  bool Awaits(const LiveJob& job, const DeviceRef& device) const;
  static bool MayMeasure(const LiveNode& node, const LiveJob& job);

  const ControllerOptions& options_;
  PresentStep& step_;
  const JobTable& jobs_;
  const NodeTable& nodes_;
  std::set<JobId> measuring_;  // jobs for which agents are measuring
  // Jobs by the first node that they wait for. Jobs that no longer wait may still be in the map.
  std::map<NodeId, std::set<JobId>> awaited_;
};

}  // namespace lynx::server

#endif  // LYNX_SERVER_CONTROLLER_JOBS_MEASUREMENTS_H_
