// JobMetrics: the series of single jobs at lynx-server's /metrics; the names are in common/metric_names.h. They are dropped a
// quarter of an hour after their job has ended, or when kMaxEnded others have ended since, so that their number stays bounded.
// Not thread-safe: the owner thread's, but for page().
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

namespace lynx {

class JobMetrics {
 public:
  JobMetrics();
  ~JobMetrics();

  // For the page; any thread. Lives for as long as somebody has it.
  std::shared_ptr<prometheus::Collectable> page() const;

  // `job`: as it is after the step.
  void Step(const StepRecorded& step, const JobRecord& job);
  void Evaluated(const EvaluationRecorded& recorded, const JobRecord& job);
  void CheckpointWritten(const InsertCheckpoint& checkpoint, const JobRecord& job);
  // Whether the job has series, and has written a checkpoint that they do not tell of, since an earlier server heard of it.
  bool LacksCheckpoint(const JobRecord& job) const;
  // Its newest one, which is not counted again.
  void CheckpointRestored(const InsertCheckpoint& checkpoint, const JobRecord& job);
  // The plan that it has from now on. `cluster`: that it was made for; null: not known.
  void Planned(const JobRecord& job, const Plan& plan, const ClusterTopology* cluster);
  // Whether the job has series.
  bool Shows(const JobId& job) const;
  // Of what an event says without its text, and what the record has counted.
  void Happened(const JobRecord& job, const JobEvent& event);
  void Updated(const JobRecord& job, int32_t devices);
  void Spent(const JobRecord& job, const std::vector<JobTimeline::Spent>& spent);
  static constexpr size_t kMaxEnded = 500;
  void Ended(const JobId& job, Nanos now);
  // Share of the time in which the job held devices that they trained new steps; nullopt: it has held none, or its series are
  // dropped.
  std::optional<double> GoodputOf(const JobId& job) const;
  // Drops the series of jobs that ended long before `now` (monotonic, as Ended's).
  void Prune(Nanos now);

 private:
  struct Series;
  class Book;

  const std::shared_ptr<Book> book_;
  std::deque<std::pair<Nanos, JobId>> ended_;  // the newest last; when, monotonic
};

}  // namespace lynx

#endif  // LYNX_SERVER_METRICS_JOB_METRICS_H_
