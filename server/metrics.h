// ServerMetrics: what lynx-server shows at /metrics; the names are in common/metric_names.h. Thread-safe. Series of a job
// are dropped some time after it has ended, so that their number stays bounded.
#ifndef LYNX_SERVER_METRICS_H_
#define LYNX_SERVER_METRICS_H_

#include <array>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "common/units.h"
#include "node/metric_families.h"
#include "server/events.h"
#include "server/job.h"

namespace lynx {

class ServerMetrics {
 public:
  ServerMetrics();

  const std::shared_ptr<prometheus::Registry>& registry() const { return registry_; }

  void SetJobs(const std::array<int64_t, kJobStateCount>& counts);
  void SetAttached(int64_t agents, int64_t workers);
  void SetQueue(size_t length) { queue_->Set(static_cast<double>(length)); }
  void PlanMade(const PlanReady& ready, Nanos took);
  void Committed(Nanos took, bool ok);

  void Step(const StepRecorded& step, const std::string& name);
  void Evaluated(const EvaluationRecorded& recorded, const std::string& name);
  // So often by now.
  void Restarted(const JobId& job, const std::string& name, int32_t restarts);
  // `decision`: kept, adopted, forced.
  void Replanned(const JobId& job, const std::string& name, const std::string& decision);
  void ResumedFromCopies(const JobId& job, const std::string& name);
  void Planned(const JobId& job, const std::string& name, const Plan& plan);
  void Ended(const JobId& job, Nanos now);
  // Drops the series of jobs that ended long before `now` (monotonic, as Ended's).
  void Prune(Nanos now);

 private:
  struct JobSeries {
    prometheus::Labels labels;
    std::map<prometheus::Counter*, CounterFamily*> counters;
    std::map<prometheus::Gauge*, GaugeFamily*> gauges;
    std::map<prometheus::Histogram*, HistogramFamily*> histograms;
    Nanos ended;  // 0 = not yet
  };

  JobSeries& SeriesOf(const JobId& job, const std::string& name);
  prometheus::Counter& CounterOf(JobSeries& series, CounterFamily& family, const prometheus::Labels& more = {});
  prometheus::Gauge& GaugeOf(JobSeries& series, GaugeFamily& family, const prometheus::Labels& more = {});

  std::shared_ptr<prometheus::Registry> registry_;
  GaugeFamily& jobs_;
  HistogramFamily& plan_seconds_;
  CounterFamily& restarts_;
  CounterFamily& replans_;
  CounterFamily& resumes_from_copies_;
  CounterFamily& steps_;
  CounterFamily& tokens_;
  GaugeFamily& loss_;
  GaugeFamily& validation_loss_;
  GaugeFamily& gradient_norm_;
  HistogramFamily& step_seconds_;
  CounterFamily& phase_seconds_;
  GaugeFamily& memory_planned_;
  GaugeFamily& memory_measured_;
  prometheus::Gauge* agents_;
  prometheus::Gauge* workers_;
  prometheus::Gauge* queue_;
  prometheus::Histogram* commit_seconds_;
  prometheus::Counter* commit_failures_;

  std::mutex mutex_;
  std::map<JobId, JobSeries> series_;  // guarded by mutex_
};

}  // namespace lynx

#endif  // LYNX_SERVER_METRICS_H_
