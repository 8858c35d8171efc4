// QueuePass: one look at the waiting jobs. It decides whose turn it is, which jobs may pass others and which give way, and says
// why a job waits. Not thread-safe: the controller owns it.
#ifndef LYNX_SERVER_CONTROLLER_JOBS_QUEUE_PASS_H_
#define LYNX_SERVER_CONTROLLER_JOBS_QUEUE_PASS_H_

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "server/controller/jobs/device_pool.h"
#include "server/controller/jobs/generations.h"
#include "server/controller/jobs/job_planning.h"
#include "server/controller/jobs/memory_replanning.h"
#include "server/controller/jobs/replanner.h"
#include "server/controller/jobs/stopping.h"
#include "server/controller/jobs/waiting_jobs.h"
#include "server/controller/state/controller_options.h"
#include "server/controller/state/job_table.h"
#include "server/controller/state/node_table.h"
#include "server/controller/state/present_step.h"
#include "server/scheduling/availability.h"
#include "server/scheduling/queue_order.h"

namespace lynx::server {

class QueuePass {
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
    Replanner& replanner;
  };
  explicit QueuePass(const Parts& parts);

  // Called at the end of every Step: looks at the queue if something has changed.
  void RunIfChanged();
  // Called at every tick. While jobs wait, looks at the queue every few seconds even if nothing has happened, for two reasons:
  // as time passes, more running jobs can be asked to give way, and expected start times change.
  void OnTick();

 private:
  struct PassState;  // the findings of one pass over the queue

  void Schedule();
  void SettleDependencies();
  void ForgetFree();
  std::vector<Turn> Turns();
  bool Pass();
  bool IsStructural(const LiveJob& job) const;
  void BecomeHead(LiveJob& job, const Turn& turn, PassState& pass);
  bool TryBegin(LiveJob& job, const std::vector<NodeDevices>& free);
  const std::vector<NodeDevices>& FreeFor(const LiveJob& job, PassState& pass);
  void TakeFromFree(const LiveJob& job);
  bool TryHead(LiveJob& job, PassState& pass);
  bool MakeSpeculatorsLeave(const LiveJob& job, PassState& pass);
  bool TryBackfill(LiveJob& job, PassState& pass);
  std::optional<Expectation> Expect(const LiveJob& job, PassState& pass);
  std::string WhoGivesWay(const std::vector<DeviceRef>& devices) const;
  std::string SelectVictims(const LiveJob& head, Standing standing, PassState& pass);
  NodeFacts FactsOf(DeviceKind kind) const;
  bool NeedsNodesTogether(const LiveJob& job, const std::vector<NodeDevices>& free) const;
  std::string WhyNodesAreApart(const LiveJob& job, DeviceKind kind) const;
  std::vector<WaitingJob> FirstInLine(const std::string& queue, const std::set<std::pair<int32_t, int64_t>>& line) const;
  bool GivesBack(const LiveJob& job, const LiveJob& head, const UsedDevices& used) const;
  std::optional<PendingReason> WhyBeyondQuota(const LiveJob& job, const Turn& turn, int32_t needed, DeviceKind kind) const;
  std::vector<PendingReason> WhyWaits(const LiveJob& job, const Turn& turn, PassState& pass);

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
  Replanner& replanner_;
  // Free devices by kind, during one look at the queue. The lists are for all jobs, so they also contain nodes that some job
  // excludes. A list is made, and sorted by locality, when it is first needed. Devices that jobs get afterwards are removed
  // from it.
  std::map<DeviceKind, std::vector<NodeDevices>> free_;
  std::optional<UsedDevices> used_;  // during one look at the queue
  // Monotonic times. There is no look at the queue before not_before_, whatever happens. At next_look_ there is a look even if
  // nothing has happened.
  Nanos not_before_, next_look_;
};

}  // namespace lynx::server

#endif  // LYNX_SERVER_CONTROLLER_JOBS_QUEUE_PASS_H_
