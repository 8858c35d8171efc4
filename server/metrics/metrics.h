// ServerMetrics: what lynx-server shows at /metrics; common/metric_names.h has the names. The page shows values that were
// stored earlier, so a scrape never waits for the server. page, PlanMade, Committed, Called and Refused may be called on any
// thread, all other functions on the owner thread only.
#ifndef LYNX_SERVER_METRICS_METRICS_H_
#define LYNX_SERVER_METRICS_METRICS_H_

#include <array>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "common/units.h"
#include "node/metric_families.h"
#include "server/metrics/job_metrics.h"
#include "server/metrics/job_timeline.h"
#include "server/values/cluster_stats.h"
#include "server/values/events.h"
#include "server/values/job.h"

namespace lynx::server {

class ServerMetrics {
 public:
  ServerMetrics();

  // The series for the metrics page. May be called on any thread. The result stays valid as long as the caller holds it.
  std::shared_ptr<prometheus::Collectable> page() const;

  void Counted(const ClusterStats& stats);
  // `events`: number of events that wait for the owner thread. `tasks`: number of tasks that wait for the SerialExecutor.
  void SetQueues(size_t events, size_t tasks);
  void PlanMade(const PlanReady& ready, PlanTrigger trigger, Nanos took);
  void Committed(Nanos took, bool ok);
  void LeaseRenewed() { leases_->Increment(); }
  // Counts an answered call. `method`: a name of server/access/rpc_permissions.h; `code`: the name of the gRPC code.
  void Called(const std::string& method, const std::string& code, Nanos took);
  void Refused() { refused_->Increment(); }

  // The next functions update the metrics of one job. `devices`: number of devices that the job holds now.
  void Step(const StepRecorded& step, const JobRecord& job, int32_t devices, Nanos wall);
  void Happened(const JobRecord& job, const std::vector<JobEvent>& events, int32_t devices);
  void Ended(const JobId& job, Nanos now);
  JobMetrics& jobs() { return of_jobs_; }
  const JobMetrics& jobs() const { return of_jobs_; }
  // Drops the series of jobs that ended long before `now` (monotonic, like that of Ended).
  void Prune(Nanos now) { of_jobs_.Prune(now); }

 private:
  void Account(const JobRecord& job, const JobTimeline::Report& report);

  const std::shared_ptr<prometheus::Registry> registry_;
  JobMetrics of_jobs_;
  std::map<JobId, JobTimeline> timelines_;  // the timelines of unfinished jobs

  GaugeFamily &jobs_, &pending_, &nodes_, &devices_, &devices_used_;
  HistogramFamily &plan_seconds_, &call_seconds_;
  CounterFamily &ended_, &calls_;
  std::array<prometheus::Counter*, kDeviceUseCount> device_seconds_;
  std::array<prometheus::Counter*, kLossCauseCount> device_seconds_lost_;
  std::array<prometheus::Histogram*, kRecoveryPhaseCount> recovery_;
  prometheus::Histogram *recovery_total_, *queue_wait_, *first_step_, *commit_seconds_;
  prometheus::Gauge *agents_, *workers_, *cordoned_, *queue_, *outbox_;
  prometheus::Counter *submitted_, *commit_failures_, *leases_, *fenced_, *refused_;
};

}  // namespace lynx::server

#endif  // LYNX_SERVER_METRICS_METRICS_H_
