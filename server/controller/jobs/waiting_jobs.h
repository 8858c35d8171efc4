// WaitingJobs: the QUEUED jobs: which of them wait only for their turn, in what order, and what the others wait for. Whose turn
// it is, is decided in queue_pass.h. Not thread-safe: the controller owns it.
#ifndef LYNX_SERVER_CONTROLLER_JOBS_WAITING_JOBS_H_
#define LYNX_SERVER_CONTROLLER_JOBS_WAITING_JOBS_H_

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "server/controller/state/controller_options.h"
#include "server/controller/state/job_table.h"
#include "server/controller/state/live_job.h"
#include "server/controller/state/present_step.h"

namespace lynx {

class WaitingJobs {
 public:
  // Keeps references to all.
  WaitingJobs(const ControllerOptions& options, PresentStep& step, JobTable& jobs)
      : options_(options), step_(step), jobs_(jobs) {}

  // The job becomes QUEUED, or stops being QUEUED. Both may be called for a job that is so already.
  void Enqueue(LiveJob& job);
  void Dequeue(LiveJob& job);
  // What the job waits for may have changed: whether it is held, and the jobs that it depends on.
  void SetReady(LiveJob& job);
  // The job does not wait for others to succeed any more.
  void DependsNoMore(const JobId& id) { dependents_.erase(id); }
  // Why a job cannot have its turn; empty: it waits only for its turn.
  std::vector<PendingReason> WhyNotReady(const LiveJob& job) const;
  // Says to people why the job waits.
  void SetPending(LiveJob& job, std::vector<PendingReason> pending);
  // Jobs whose time to keep their place in the line is over leave it.
  void LeaveLine();

  // True if some waiting job comes before this one, which has trained.
  bool SomeoneIsBefore(const LiveJob& job) const;
  bool SomeoneWaits() const;

  // Jobs that wait only for their turn: for each queue, in its order, as keys: (-priority, submission).
  const std::map<std::string, std::set<std::pair<int32_t, int64_t>>>& ready() const { return ready_; }
  // Jobs that wait for other jobs to succeed.
  const std::set<JobId>& dependents() const { return dependents_; }
  // The first job in line, to which others give way; empty: no job.
  const JobId& favoured() const { return favoured_; }
  void SetFavoured(JobId job) { favoured_ = std::move(job); }

 private:
  const ControllerOptions& options_;
  PresentStep& step_;
  JobTable& jobs_;
  std::set<int64_t> queue_;  // submission numbers of QUEUED jobs
  std::map<std::string, std::set<std::pair<int32_t, int64_t>>> ready_;
  std::set<JobId> in_line_;  // QUEUED jobs that keep their place in the line for a while (QueueState::line_until)
  std::set<JobId> dependents_;
  JobId favoured_;
};

}  // namespace lynx

#endif  // LYNX_SERVER_CONTROLLER_JOBS_WAITING_JOBS_H_
