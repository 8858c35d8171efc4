// FailureAnalysis: when ranks fail, finds the rank whose failure explains the failures of the others. It decides what caused
// the failure, which of the job's own rules applies to it, and which nodes the job should not use any more. It remembers the
// failures of all jobs for a while. Not thread-safe: the controller owns it.
#ifndef LYNX_SERVER_CONTROLLER_JOBS_FAILURE_ANALYSIS_H_
#define LYNX_SERVER_CONTROLLER_JOBS_FAILURE_ANALYSIS_H_

#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "server/controller/jobs/device_pool.h"
#include "server/controller/state/job_table.h"
#include "server/controller/state/node_table.h"
#include "server/controller/state/present_step.h"
#include "server/health/attribution.h"
#include "server/health/check_verdict.h"
#include "server/values/rank_logs.h"

namespace lynx::server {

class FailureAnalysis {
 public:
  // The object keeps references to all arguments.
  FailureAnalysis(PresentStep& step, JobTable& jobs, const NodeTable& nodes, const DevicePool& devices, const RankLogs& logs)
      : step_(step), jobs_(jobs), nodes_(nodes), devices_(devices), logs_(logs) {}

  // The rank whose failure explains the failures of the other ranks. nullopt: no rank failed, or the failed ranks only lost a
  // peer or were told to end.
  static std::optional<int32_t> Culprit(const LiveJob& job);
  // Returns a text that tells people why the rank failed.
  std::string FailureText(const LiveJob& job, int32_t rank) const;
  // Attributes the failure of the rank that explains the failures of its peers. If the cause is known, an event reports it.
  Attributed Blame(LiveJob& job, int32_t rank);
  // True if the rank would fail in the same way again. That is so if the job has never trained, this rank had not started, and
  // one of two things happened: the node refused a path, or in the first generation the rank itself reported a failure that has
  // nothing to do with memory or a node check.
  static bool WouldRefuseAgain(const LiveJob& job, const LiveRank& culprit);
  // True if other nodes could run the job although this rank's node refused a path. Either the job names a wrong path, or the
  // node is configured with wrong --data-root or --checkpoint-root directories. If a second node refuses the path too, the path
  // is wrong. So a job that has never trained and already excludes a node, for any reason, gets no further try.
  bool MayAllow(const LiveJob& job, int32_t rank) const;
  // The job's first rule that matches the rank's failure; nullptr: no rule matches.
  const FailureRule* RuleFor(const LiveJob& job, int32_t rank) const;
  // Excludes the node from the job. Returns false if the job excluded the node before, or if it already excludes the maximum
  // number of nodes.
  bool ExcludeNode(LiveJob& job, const NodeId& node, const std::string& why);

  // Requests a node check of the job's nodes before its next start if a node caused the failure, or if the cause is unknown.
  static void NoteFailure(LiveJob& job, Attribution attribution);
  // The bad nodes according to the node checks of the generation that is over; empty: no check has failed.
  std::vector<BadNode> FoundBad(const LiveJob& job) const;
  // Attributes the failure to the bad nodes. Used instead of Blame when node checks have failed. `bad` is not empty.
  Attributed BlameFound(LiveJob& job, int32_t rank, const std::vector<BadNode>& bad);
  // Excludes the bad nodes from the job. Returns true if any of them was not excluded before. A node is not excluded if the job
  // would have no node left, because then the job could never run.
  bool ExcludeFound(LiveJob& job, const std::vector<BadNode>& bad);

 private:
  RankFailureFacts FactsOf(const LiveJob& job, int32_t rank) const;
  void Remember(RankFailureFacts facts);

  PresentStep& step_;
  JobTable& jobs_;
  const NodeTable& nodes_;
  const DevicePool& devices_;
  const RankLogs& logs_;
  std::deque<RankFailureFacts> faults_;  // recent failures of all jobs, the newest last
};

}  // namespace lynx::server

#endif  // LYNX_SERVER_CONTROLLER_JOBS_FAILURE_ANALYSIS_H_
