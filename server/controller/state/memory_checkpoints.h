// MemoryCheckpoints: which nodes keep in-memory checkpoints of which jobs. Worker daemons keep these copies of states for the
// next generation of a job. When a job has ended, the server tells them to delete its copies. Not thread-safe: the controller
// owns it.
#ifndef LYNX_SERVER_CONTROLLER_STATE_MEMORY_CHECKPOINTS_H_
#define LYNX_SERVER_CONTROLLER_STATE_MEMORY_CHECKPOINTS_H_

#include <map>
#include <set>
#include <vector>

#include "common/ids.h"
#include "server/controller/state/job_table.h"
#include "server/controller/state/live_node.h"
#include "server/controller/state/present_step.h"

namespace lynx::server {

class MemoryCheckpoints {
 public:
  // The object keeps references to both arguments.
  MemoryCheckpoints(PresentStep& step, const JobTable& jobs) : step_(step), jobs_(jobs) {}

  // The node reports that it keeps copies of the states of these jobs.
  void Note(LiveNode& node, const std::set<JobId>& copies);
  // Forgets the node, which the server does not know any more.
  void Forget(LiveNode& node);
  // The jobs among the node's copies that have ended or that the server does not know.
  std::vector<JobId> EndedOf(const LiveNode& node) const;
  // The job has ended: makes the server tell this to all nodes that keep copies of the job's states.
  void TellHoldersOf(const LiveJob& job);

 private:
  PresentStep& step_;
  const JobTable& jobs_;
  std::map<JobId, std::set<NodeId>> holders_;  // the nodes whose `copies` name the job
};

}  // namespace lynx::server

#endif  // LYNX_SERVER_CONTROLLER_STATE_MEMORY_CHECKPOINTS_H_
