// WaitingJobs: the QUEUED jobs. It knows which of them wait only for their turn, in what order, and why the others are not
// ready. queue_pass.h decides whose turn it is. Not thread-safe: the controller owns it.
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

namespace lynx::server {

class WaitingJobs {
 public:
  // The object keeps references to all arguments.
  WaitingJobs(const ControllerOptions& options, PresentStep& step, JobTable& jobs)
      : options_(options), step_(step), jobs_(jobs) {}

  // Enqueue puts the job among the QUEUED jobs, and Dequeue takes it out. Both may be called for a job that is in or out
  // already.
  void Enqueue(LiveJob& job);
  void Dequeue(LiveJob& job);
  // Call it when the reasons why the job cannot have its turn may have changed: whether it is held, and the jobs that it
  // depends on.
  void SetReady(LiveJob& job);
  // The job no longer waits for other jobs to succeed.
  void DependsNoMore(const JobId& id) { dependents_.erase(id); }
  // Reasons why the job cannot have its turn; empty: it waits only for its turn.
  std::vector<PendingReason> WhyNotReady(const LiveJob& job) const;
  // Sets the reasons that people see for the job's wait.
  void SetPending(LiveJob& job, std::vector<PendingReason> pending);
  // Removes jobs from the line when the time for which they keep their place in it is over.
  void LeaveLine();

  // SomeoneIsBefore: true if a waiting job comes before `job`, which has trained and is to start again. SomeoneWaits: true if
  // any job waits for its turn. Neither counts jobs that hold up no other job (QueueState).
  bool SomeoneIsBefore(const LiveJob& job) const;
  bool SomeoneWaits() const;

  // The jobs that wait only for their turn: for each queue its jobs in their order. A job's key is (-priority, submission
  // number).
  const std::map<std::string, std::set<std::pair<int32_t, int64_t>>>& ready() const { return ready_; }
  // Jobs that wait for other jobs to succeed.
  const std::set<JobId>& dependents() const { return dependents_; }
  // The first job in line, if other jobs give way to it; empty: no job.
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

}  // namespace lynx::server

#endif  // LYNX_SERVER_CONTROLLER_JOBS_WAITING_JOBS_H_
