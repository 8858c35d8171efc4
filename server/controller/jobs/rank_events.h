// RankEvents: processes what ranks report and what worker daemons observe about their processes, from the first sign of life to
// the end. Not thread-safe: the controller owns it.
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

namespace lynx::server {

class RankEvents {
 public:
  // The object keeps references to all arguments.
  RankEvents(const ControllerOptions& options, PresentStep& step, JobTable& jobs, const NodeTable& nodes,
             const FailureAnalysis& failures, Generations& generations, Stopping& stopping)
      : options_(options), step_(step), jobs_(jobs), nodes_(nodes), failures_(failures), generations_(generations),
        stopping_(stopping) {}

  // Processes a report of a live rank. Ignores reports that were processed before.
  void OnMessage(const RankMessage& message);
  // Processes what the worker reports about a rank of the current generation that should run on its node.
  void Observe(LiveJob& job, int32_t rank, const RankObservation& seen);
  // Notices ranks that are missing in the report of the node's worker daemon. The daemon lists each rank as soon as it is told
  // to run it. So a rank that is missing now was lost with the daemon's state or with the machine, even if the daemon has begun
  // to start it again.
  void ObserveMissing(LiveJob& job, const LiveNode& node);
  // If all ranks listen, sends them each other's addresses.
  void CheckListening(LiveJob& job);
  // Ends the job as succeeded if all ranks have done their work.
  void CheckSucceeded(LiveJob& job);
  // Ends the generation if one of two deadlines is over. Either ranks have lost a peer, and the rank at fault has not reported
  // its failure in time; or not all ranks have begun to listen in time.
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
  // The source of a failure report: the rank itself, or the worker daemon, which has seen the process end.
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

}  // namespace lynx::server

#endif  // LYNX_SERVER_CONTROLLER_JOBS_RANK_EVENTS_H_
