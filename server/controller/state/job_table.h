// JobTable: all jobs that the server knows, with the indices by which they are found. Not thread-safe: the controller owns it.
#ifndef LYNX_SERVER_CONTROLLER_STATE_JOB_TABLE_H_
#define LYNX_SERVER_CONTROLLER_STATE_JOB_TABLE_H_

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "common/ids.h"
#include "common/units.h"
#include "server/controller/state/live_job.h"

namespace lynx::server {

class JobTable {
 public:
  // Adds a job with its record. Its id and its submission number must be new. `wall`: the present time; from then on the nodes
  // that the record excludes count as excluded.
  LiveJob& Add(JobRecord record, Nanos wall);
  // Removes everything about the job, because its submission was lost or the job is dropped.
  void Remove(const JobId& id);
  // Drops the jobs that ended first until at most `kept` ended jobs are left. Returns the ids of the dropped jobs.
  std::vector<JobId> DropOldest(size_t kept);
  // Call it when the job has ended, with `record.ended` set.
  void MarkEnded(const LiveJob& job);
  // Sets whether the job is active: unfinished and not QUEUED. Active jobs have devices or are planned for some.
  void SetActive(const JobId& id, bool active);
  // Excludes the node: the job does not use it from now on. `wall`: the present time.
  void Exclude(LiveJob& job, const NodeId& node, Nanos wall);

  bool empty() const { return jobs_.empty(); }
  bool Contains(const JobId& id) const { return jobs_.contains(id); }
  LiveJob& At(const JobId& id) { return jobs_.at(id); }
  const LiveJob& At(const JobId& id) const { return jobs_.at(id); }
  // Returns nullptr if the job is unknown.
  LiveJob* Find(const JobId& id);
  const LiveJob* Find(const JobId& id) const;
  LiveJob& OfSubmission(int64_t submission) { return jobs_.at(by_submission_.at(submission)); }
  const LiveJob& OfSubmission(int64_t submission) const { return jobs_.at(by_submission_.at(submission)); }
  // The job that was submitted with this idempotency key; nullptr: no job.
  const LiveJob* WithKey(const std::string& key) const;
  int64_t NextSubmission() const { return last_submission_ + 1; }
  // `text` is an id, the name of a job, or a unique prefix of an id. A name means the newest job of `asker` with that name, or
  // else the newest of all, so nobody's job takes the name of another's. `asker`: name of a user; empty or kLocalUser: a name
  // means the newest of all. NotFound: no such job. InvalidArgument: an ambiguous prefix.
  absl::StatusOr<JobId> Resolve(const std::string& text, const std::string& asker) const;
  // Lists at most `limit` jobs, the newest first. `states`: only jobs in one of these states; empty: jobs in all states.
  // `before`: only jobs that were submitted before this job; nullptr: no such condition. `owner`: only jobs of this user;
  // empty: jobs of all users.
  std::vector<const JobRecord*> List(size_t limit, const std::vector<JobState>& states, const JobRecord* before,
                                     const std::string& owner = "") const;

  const std::map<JobId, LiveJob>& all() const { return jobs_; }
  const std::set<JobId>& unfinished() const { return unfinished_; }
  const std::set<JobId>& active() const { return active_; }
  // Unfinished jobs that do not use the node (JobRecord::excluded), and since when (wall clock); nullptr: no job.
  const std::map<JobId, Nanos>* ExcludedBy(const NodeId& node) const;

 private:
  std::map<JobId, LiveJob> jobs_;
  std::map<std::string, JobId> by_key_;
  std::map<int64_t, JobId> by_submission_;
  std::set<JobId> unfinished_, active_;
  std::set<std::pair<Nanos, int64_t>> ended_;  // wall clock time of the end, and submission number
  std::map<NodeId, std::map<JobId, Nanos>> excluded_by_;
  int64_t last_submission_ = 0;
};

}  // namespace lynx::server

#endif  // LYNX_SERVER_CONTROLLER_STATE_JOB_TABLE_H_
