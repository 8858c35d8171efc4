// DesiredStates: builds the desired state that each worker daemon gets, with the acknowledgements of its reports. Not
// thread-safe: the controller owns it.
#ifndef LYNX_SERVER_CONTROLLER_JOBS_DESIRED_STATES_H_
#define LYNX_SERVER_CONTROLLER_JOBS_DESIRED_STATES_H_

#include <cstdint>
#include <map>
#include <vector>

#include "server/controller/jobs/device_pool.h"
#include "server/controller/state/controller_options.h"
#include "server/controller/state/job_table.h"
#include "server/controller/state/live_node.h"
#include "server/controller/state/memory_checkpoints.h"
#include "server/controller/state/present_step.h"

namespace lynx::server {

class DesiredStates {
 public:
  // The object keeps references to all arguments.
  DesiredStates(const ControllerOptions& options, PresentStep& step, const JobTable& jobs, const DevicePool& devices,
                const MemoryCheckpoints& checkpoints)
      : options_(options), step_(step), jobs_(jobs), devices_(devices), checkpoints_(checkpoints) {}

  // Returns what the node's worker daemon should do now.
  WorkerDesired Of(const LiveNode& node) const;
  // Acknowledges reports of orphans: ranks whose job or generation is over, perhaps ended by this very report. The server
  // has processed or refused the reports, so the node must not send them again. Of() then releases the orphans that have ended.
  void AcknowledgeOrphans(const WorkerState& state, const LiveNode& node);
  // Forgets the acknowledgements of orphans' reports: the desired states of this Step already contain them.
  void EndStep() { orphan_acks_.clear(); }
  // Number of reports of orphans since this server began.
  int64_t fenced_reports() const { return fenced_reports_; }

 private:
  RankAssignment AssignmentOf(const LiveJob& job, int32_t rank, const LiveNode& node) const;
  void HoldBack(WorkerDesired& desired) const;

  const ControllerOptions& options_;
  PresentStep& step_;
  const JobTable& jobs_;
  const DevicePool& devices_;
  const MemoryCheckpoints& checkpoints_;
  std::map<NodeId, std::vector<ReportAck>> orphan_acks_;
  int64_t fenced_reports_ = 0;
};

}  // namespace lynx::server

#endif  // LYNX_SERVER_CONTROLLER_JOBS_DESIRED_STATES_H_
