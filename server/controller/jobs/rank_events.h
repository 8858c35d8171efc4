// RankEvents: what ranks report and what their worker daemons see of them, from the first sign of life to the end. Not
// thread-safe: the controller owns it.
#ifndef LYNX_SERVER_CONTROLLER_JOBS_RANK_EVENTS_H_
#define LYNX_SERVER_CONTROLLER_JOBS_RANK_EVENTS_H_

#include <cstdint>

#include "server/controller/jobs/failure_analysis.h"
#include "server/controller/jobs/generations.h"
#include "server/controller/jobs/stopping.h"
#include "server/controller/state/controller_options.h"
#include "server/controller/state/job_table.h"
#include "server/controller/state/node_table.h"
#include "server/controller/state/present_step.h"

namespace lynx {

class RankEvents {
 public:
  // Keeps references to all.
  RankEvents(const ControllerOptions& options, PresentStep& step, JobTable& jobs, const NodeTable& nodes,
             const FailureAnalysis& failures, Generations& generations, Stopping& stopping)
      : options_(options), step_(step), jobs_(jobs), nodes_(nodes), failures_(failures), generations_(generations),
        stopping_(stopping) {}

  // A report of a live rank. Reports that were processed before are ignored.
  void OnMessage(const RankMessage& message);
  // Processes what the worker reports about a rank of the current generation that should run on its node.
  void Observe(LiveJob& job, int32_t rank, const RankObservation& seen);
  // A worker lists every rank from the time it first should run it. If a rank is missing now, it was lost with the daemon's
  // state or with the machine, even if the worker has begun to start it again.
  void ObserveMissing(LiveJob& job, const LiveNode& node);
  // When all ranks listen, they get each other's addresses.
  void CheckListening(LiveJob& job);
  // When all ranks have done their work, the job has succeeded.
  void CheckSucceeded(LiveJob& job);
  // Ends a generation whose ranks wait for something in vain: for a peer that lost them, or for a rank that does not come up.
  void CheckDeadlines(LiveJob& job);

 private:
  void FoldMessage(LiveJob& job, int32_t rank, const RankMessage& message);
  void FoldStarted(LiveJob& job, int32_t rank, const RankReady& started);
  void FoldStep(LiveJob& job, int32_t rank, const StepReport& step);
  void FoldEvaluation(LiveJob& job, const EvaluationReport& evaluation);
  void FoldTrace(LiveJob& job, int32_t rank, const TraceReport& trace);
  void FoldCheckpoint(LiveJob& job, const CheckpointReport& checkpoint);
  void FoldCheck(LiveJob& job, const NodeCheckReport& checked);
  void ObserveExit(LiveJob& job, int32_t rank, const RankObservation& seen);
  // Who reports a failure: the rank itself, or its daemon, which has seen its end.
  enum class Source : uint8_t { kRank, kDaemon };
  void Failed(LiveJob& job, int32_t rank, const RankFailure& fault, Source source);
  void OnGaveWay(LiveJob& job, int32_t rank);
  void CheckRunning(LiveJob& job);
  bool IsOver(const LiveJob& job, int32_t rank) const;

  const ControllerOptions& options_;
  PresentStep& step_;
  JobTable& jobs_;
  const NodeTable& nodes_;
  const FailureAnalysis& failures_;
  Generations& generations_;
  Stopping& stopping_;
};

}  // namespace lynx

#endif  // LYNX_SERVER_CONTROLLER_JOBS_RANK_EVENTS_H_
