// Stopping: ends a generation of a job. Its ranks stop at once, or they give way: they finish a step, write a checkpoint and
// end. When all of them are gone, the job starts again, is planned again, waits, or ends. Not thread-safe: the controller owns
// it.
#ifndef LYNX_SERVER_CONTROLLER_JOBS_STOPPING_H_
#define LYNX_SERVER_CONTROLLER_JOBS_STOPPING_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "server/controller/jobs/device_pool.h"
#include "server/controller/jobs/failure_analysis.h"
#include "server/controller/jobs/generations.h"
#include "server/controller/jobs/job_planning.h"
#include "server/controller/jobs/memory_replanning.h"
#include "server/controller/jobs/waiting_jobs.h"
#include "server/controller/state/controller_options.h"
#include "server/controller/state/leases.h"
#include "server/controller/state/node_table.h"
#include "server/controller/state/present_step.h"
#include "server/values/rank_logs.h"

namespace lynx::server {

class Stopping {
 public:
  // The objects that this class works with. The class keeps references to all of them.
  struct Parts {
    const ControllerOptions& options;
    PresentStep& step;
    const NodeTable& nodes;
    const Leases& leases;
    RankLogs& logs;
    const DevicePool& devices;
    WaitingJobs& waiting;
    JobPlanning& planning;
    MemoryReplanning& memory;
    Generations& generations;
    FailureAnalysis& failures;
  };
  explicit Stopping(const Parts& parts);

  // Tells the nodes to stop the ranks of this generation, or to let them give way. `kind` says which, and what the job does
  // when all ranks are gone. The ranks must not be stopping already.
  void BeginStop(LiveJob& job, StopKind kind, std::optional<EventKind> event_kind, const std::string& reason);
  // Asks the ranks to give way. If the job trains, they write a checkpoint first; if it is only starting, there is nothing to
  // save and they end at once. `deadline`: monotonic; ranks that have not given way by then are ended. 0: the usual time limit.
  void AskToGiveWay(LiveJob& job, StopKind kind, std::optional<EventKind> event_kind, const std::string& reason,
                    Nanos deadline = Nanos(0));
  // Ends the generation if it is being stopped and all its ranks are gone.
  void CheckStopped(LiveJob& job);
  // Called when the time to give way is over and some ranks still train. If some rank has given way already, the generation
  // cannot continue, and the remaining ranks are ended. They are also ended if the job must leave in any case: cancellation,
  // time limit, deadline of a drain. Otherwise the request is taken back.
  void OnYieldDeadline(LiveJob& job);

  // True if the rank's process does not exist any more, or can do no harm to the next generation.
  bool RankGone(const LiveJob& job, int32_t rank) const;
  // Time limit for the job's ranks to give way.
  Nanos YieldTime(const LiveJob& job) const;
  // True if the deadline for draining one of the job's nodes is over.
  bool IsPastDeadline(const LiveJob& job) const;

 private:
  void ForceOut(LiveJob& job);
  void EndGeneration(LiveJob& job);
  void EndFailed(LiveJob& job);
  bool MayGoOn(LiveJob& job, std::optional<int32_t> culprit, const Attributed& attributed, const std::string& reason);
  bool PauseIsOver(LiveJob& job, bool fruitless);
  void Restart(LiveJob& job, const std::string& reason);
  void StartAgain(LiveJob& job, EventKind kind, std::string reason);
  std::vector<NodeDevices> DevicesAgain(const LiveJob& job, const std::vector<DeviceRef>& had) const;
  void ChangePlan(LiveJob& job);
  void TakeYieldBack(LiveJob& job);

  const ControllerOptions& options_;
  PresentStep& step_;
  const NodeTable& nodes_;
  const Leases& leases_;
  RankLogs& logs_;
  const DevicePool& devices_;
  WaitingJobs& waiting_;
  JobPlanning& planning_;
  MemoryReplanning& memory_;
  Generations& generations_;
  FailureAnalysis& failures_;
};

}  // namespace lynx::server

#endif  // LYNX_SERVER_CONTROLLER_JOBS_STOPPING_H_
