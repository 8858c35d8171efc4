// ServerMetrics: what lynx-server shows at /metrics; the names are in common/metric_names.h. The page is made of what was
// written here: whoever asks for it waits for nothing of the server's. PlanMade, Committed, Called and Refused: any thread. The
// rest: the owner thread.
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

namespace lynx {

class ServerMetrics {
 public:
  ServerMetrics();

  // What the page is made of. Any thread; lives for as long as somebody has it.
  std::shared_ptr<prometheus::Collectable> page() const;

  void Counted(const ClusterStats& census);
  // What waits for the owner thread, and for the courier's.
  void SetQueues(size_t events, size_t errands);
  void PlanMade(const PlanReady& ready, PlanTrigger trigger, Nanos took);
  void Committed(Nanos took, bool ok);
  void LeaseRenewed() { leases_->Increment(); }
  // A call that is answered. `method`: one of server/access/rpc_permissions.h; `code`: of gRPC, by name.
  void Called(const std::string& method, const std::string& code, Nanos took);
  void Refused() { refused_->Increment(); }

  // Of one job. `devices`: that it holds now.
  void Step(const StepRecorded& step, const JobRecord& job, int32_t devices, Nanos wall);
  void Happened(const JobRecord& job, const std::vector<JobEvent>& events, int32_t devices);
  void Ended(const JobId& job, Nanos now);
  JobMetrics& jobs() { return of_jobs_; }
  const JobMetrics& jobs() const { return of_jobs_; }
  // Drops what is kept of jobs that ended long before `now` (monotonic, as Ended's).
  void Prune(Nanos now) { of_jobs_.Prune(now); }

 private:
  void Account(const JobRecord& job, const JobTimeline::Report& report);

  const std::shared_ptr<prometheus::Registry> registry_;
  JobMetrics of_jobs_;
  std::map<JobId, JobTimeline> timelines_;  // of jobs that have not ended

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

}  // namespace lynx

#endif  // LYNX_SERVER_METRICS_METRICS_H_
