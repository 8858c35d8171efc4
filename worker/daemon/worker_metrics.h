// WorkerMetrics holds the metrics that lynx-worker serves about the ranks of its node. It is as thread-safe as prometheus'
// objects, but only one thread may call AddRank and RemoveRank.
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
  // `of_ranks`: if true, the metrics also have series for each single rank.
  explicit WorkerMetrics(bool of_ranks);
  const std::shared_ptr<prometheus::Registry>& registry() const { return registry_; }

  void SetAttached(bool attached);
  const prometheus::Gauge& attached() const { return attached_; }
  void SetRanksRunning(int count);
  void CountExit(RankOutcome outcome);

  // If series for single ranks are served, a rank has series from AddRank to RemoveRank. All generations of a job share the
  // series of a rank.
  void AddRank(const RankKey& key);
  void RemoveRank(const RankKey& key);
  // Counts a step of a rank. The rank must have been added.
  void Observe(const RankKey& key, const StepReport& step);

 private:
  struct RankSeries {
    int users = 0;  // number of generations that use the series
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
