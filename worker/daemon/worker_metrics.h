// WorkerMetrics: the metrics that lynx-worker serves about the ranks of its node. Thread-safe as prometheus' objects are. Only
// one thread may call AddRank and RemoveRank.
#ifndef LYNX_WORKER_DAEMON_WORKER_METRICS_H_
#define LYNX_WORKER_DAEMON_WORKER_METRICS_H_

#include <map>
#include <memory>
#include <utility>

#include "common/rank_key.h"
#include "node/metric_families.h"
#include "worker/daemon/rank_ending.h"

namespace lynx::worker {

class WorkerMetrics {
 public:
  // `of_ranks`: also serve series for each rank.
  explicit WorkerMetrics(bool of_ranks);
  const std::shared_ptr<prometheus::Registry>& registry() const { return registry_; }

  void SetAttached(bool attached);
  const prometheus::Gauge& attached() const { return attached_; }
  void SetRanksRunning(int count);
  void CountExit(RankOutcome outcome);

  // The series of a rank, if they are served, exist from AddRank to RemoveRank. The generations of a job share them.
  void AddRank(const RankKey& key);
  void RemoveRank(const RankKey& key);
  // The rank must have been added.
  void Observe(const RankKey& key, const StepReport& step);

 private:
  struct RankSeries {
    int users = 0;  // number of generations
    prometheus::Counter* steps;
    prometheus::Counter* tokens;
    prometheus::Counter* bytes_sent;
    prometheus::Gauge* loss;
    prometheus::Gauge* arena_peak;
    prometheus::Gauge* resident;
    prometheus::Histogram* step_seconds;
    std::map<std::string, prometheus::Counter*> phases;
  };

  const bool of_ranks_;
  std::shared_ptr<prometheus::Registry> registry_;
  prometheus::Gauge& attached_;
  prometheus::Gauge& ranks_running_;
  CounterFamily& exits_;
  prometheus::Counter& node_steps_;
  prometheus::Counter& node_bytes_sent_;
  prometheus::Counter& node_core_wait_;
  CounterFamily& steps_;
  CounterFamily& tokens_;
  CounterFamily& bytes_sent_;
  CounterFamily& phase_seconds_;
  GaugeFamily& loss_;
  GaugeFamily& arena_peak_;
  GaugeFamily& resident_;
  HistogramFamily& step_seconds_;
  std::map<std::pair<JobId, int32_t>, RankSeries> ranks_;
};

}  // namespace lynx::worker

#endif  // LYNX_WORKER_DAEMON_WORKER_METRICS_H_
