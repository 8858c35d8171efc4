// JobMetrics: the series of single jobs at lynx-server's /metrics; common/metric_names.h has the names. The series of a job are
// dropped a quarter of an hour after the job has ended, or earlier if kMaxEnded other jobs have ended since. This bounds the
// number of series. Not thread-safe: owner thread only, except page().
#ifndef LYNX_SERVER_METRICS_JOB_METRICS_H_
#define LYNX_SERVER_METRICS_JOB_METRICS_H_

#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/units.h"
#include "planner/cost/cluster_topology.h"
#include "prometheus/collectable.h"
#include "server/metrics/job_timeline.h"
#include "server/values/events.h"
#include "server/values/job.h"

namespace lynx::server {

class JobMetrics {
 public:
  JobMetrics();
  ~JobMetrics();

  // The series for the metrics page. May be called on any thread. The result stays valid as long as the caller holds it.
  std::shared_ptr<prometheus::Collectable> page() const;

  // Updates metrics after a step. `job`: its record after the step. `ranks`: number of its ranks.
  void Step(const StepRecorded& step, const JobRecord& job, int32_t ranks);
  void Evaluated(const EvaluationRecorded& recorded, const JobRecord& job);
  void CheckpointWritten(const InsertCheckpoint& checkpoint, const JobRecord& job);
  // True if the job has series that do not show its newest checkpoint, because an earlier server recorded the checkpoint.
  bool LacksCheckpoint(const JobRecord& job) const;
  // Sets the job's newest checkpoint without counting it again.
  void CheckpointRestored(const InsertCheckpoint& checkpoint, const JobRecord& job);
  // Sets the job's new plan. `cluster`: the cluster that the plan was made for; null: unknown.
  void Planned(const JobRecord& job, const Plan& plan, const ClusterTopology* cluster);
  // True if the job has series.
  bool Shows(const JobId& job) const;
  // Happened updates the metrics that follow from an event of the job. Updated sets the metrics that show the job's record.
  // `devices`: number of devices that the job holds.
  void Happened(const JobRecord& job, const JobEvent& event);
  void Updated(const JobRecord& job, int32_t devices);
  void Spent(const JobRecord& job, const std::vector<JobTimeline::Spent>& spent);
  static constexpr size_t kMaxEnded = 500;
  void Ended(const JobId& job, Nanos now);
  // Share of the job's device time that trained new steps; nullopt: the job has had no devices yet, or its series are dropped.
  std::optional<double> GoodputOf(const JobId& job) const;
  // Drops the series of jobs that ended long before `now` (monotonic, like that of Ended).
  void Prune(Nanos now);

 private:
  struct Series;
  class Book;

  const std::shared_ptr<Book> book_;
  std::deque<std::pair<Nanos, JobId>> ended_;  // newest last; monotonic time of the end
};

}  // namespace lynx::server

#endif  // LYNX_SERVER_METRICS_JOB_METRICS_H_
