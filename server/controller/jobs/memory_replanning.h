// MemoryReplanning: jobs that run out of memory are planned again with a lower memory limit instead of being restarted with the
// plan that did not fit. Not thread-safe: the controller owns it.
#ifndef LYNX_SERVER_CONTROLLER_JOBS_MEMORY_REPLANNING_H_
#define LYNX_SERVER_CONTROLLER_JOBS_MEMORY_REPLANNING_H_

#include <string>
#include <vector>

#include "server/controller/jobs/device_pool.h"
#include "server/controller/jobs/job_planning.h"
#include "server/controller/state/node_table.h"
#include "server/controller/state/present_step.h"

namespace lynx::server {

class MemoryReplanning {
 public:
  // The object keeps references to all arguments.
  MemoryReplanning(PresentStep& step, const NodeTable& nodes, const DevicePool& devices, JobPlanning& planning)
      : step_(step), nodes_(nodes), devices_(devices), planning_(planning) {}

  // Called when a rank of the generation that is over ran out of memory. Lowers the memory limit of the rank's device model, if
  // the model and the plan's size are known.
  void NoteMemoryEnds(LiveJob& job, int32_t rank);
  // Called for a job without devices whose plan takes more memory than its devices are assumed to have. True: the job is now
  // being planned for devices of `free`.
  bool PlanForLess(LiveJob& job, const std::vector<NodeDevices>& free, const std::string& reason);
  // Called when no plan fits the lowered memory limits. Raises each limit halfway to the memory of the plan that did not fit.
  // True: the job is being planned with the raised limits.
  bool PlanForMore(LiveJob& job, const std::string& refusal);
  // The text of the event for the smaller plan that replaces the old one.
  std::string ReplacedText(const LiveJob& job, const Plan& plan) const;

 private:
  PresentStep& step_;
  const NodeTable& nodes_;
  const DevicePool& devices_;
  JobPlanning& planning_;
};

}  // namespace lynx::server

#endif  // LYNX_SERVER_CONTROLLER_JOBS_MEMORY_REPLANNING_H_
