// JobMetrics: the series of single jobs at lynx-server's /metrics; the names are in common/metric_names.h. They are dropped some time
// after their job has ended, so that their number stays bounded. Not thread-safe but for the registry: the owner thread's.
#ifndef LYNX_SERVER_JOB_METRICS_H_
#define LYNX_SERVER_JOB_METRICS_H_

#include <array>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "common/units.h"
#include "node/metric_families.h"
#include "planner/cluster_topology.h"
#include "server/events.h"
#include "server/job.h"
#include "server/job_timeline.h"

namespace lynx {

class JobMetrics {
 public:
  explicit JobMetrics(prometheus::Registry& registry);
  ~JobMetrics();

  // `job`: as it is after the step.
  void Step(const StepRecorded& step, const JobRecord& job);
  void Evaluated(const EvaluationRecorded& recorded, const JobRecord& job);
  void CheckpointWritten(const InsertCheckpoint& checkpoint, const JobRecord& job);
  // The plan that it has from now on. `cluster`: that it was made for; null: not known.
  void Planned(const JobRecord& job, const Plan& plan, const ClusterTopology* cluster);
  // Whether the job has series.
  bool Shows(const JobId& job) const { return series_.contains(job); }
  // Of what an event says without its text, and what the record has counted.
  void Happened(const JobRecord& job, const JobEvent& event);
  void Updated(const JobRecord& job, int32_t devices);
  void Spent(const JobRecord& job, const std::vector<JobTimeline::Spent>& spent);
  void Ended(const JobId& job, Nanos now);
  // Drops the series of jobs that ended long before `now` (monotonic, as Ended's).
  void Prune(Nanos now);

 private:
  struct Families;
  struct Series;

  Series& SeriesOf(const JobRecord& job);

  const std::unique_ptr<Families> families_;
  std::map<JobId, std::unique_ptr<Series>> series_;
};

}  // namespace lynx

#endif  // LYNX_SERVER_JOB_METRICS_H_
