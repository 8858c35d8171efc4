// WorkerMetrics: what lynx-worker serves about the ranks of its node. Thread-safe as prometheus' objects are; the
// members that add and remove ranks are for one thread.
#ifndef LYNX_WORKER_DAEMON_WORKER_METRICS_H_
#define LYNX_WORKER_DAEMON_WORKER_METRICS_H_

#include <map>
#include <memory>
#include <utility>

#include "common/rank_key.h"
#include "prometheus/counter.h"
#include "prometheus/gauge.h"
#include "prometheus/histogram.h"
#include "prometheus/registry.h"
#include "worker/daemon/rank_ending.h"

namespace lynx {

class WorkerMetrics {
 public:
  WorkerMetrics();
  const std::shared_ptr<prometheus::Registry>& registry() const { return registry_; }

  void SetAttached(bool attached);
  void SetRanksRunning(int count);
  void CountExit(RankOutcome outcome);

  // A rank's own series exist from AddRank to RemoveRank. Generations of a job share them.
  void AddRank(const RankKey& key);
  void RemoveRank(const RankKey& key);
  // Of a rank that was added.
  void Observe(const RankKey& key, const StepReport& step);

 private:
  struct RankSeries {
    int users = 0;  // generations
    prometheus::Counter* steps;
    prometheus::Counter* tokens;
    prometheus::Counter* bytes_sent;
    prometheus::Gauge* loss;
    prometheus::Gauge* arena_peak;
    prometheus::Histogram* step_seconds;
    std::map<std::string, prometheus::Counter*> phases;
  };

  std::shared_ptr<prometheus::Registry> registry_;
  prometheus::Gauge& attached_;
  prometheus::Gauge& ranks_running_;
  prometheus::Family<prometheus::Counter>& exits_;
  prometheus::Family<prometheus::Counter>& steps_;
  prometheus::Family<prometheus::Counter>& tokens_;
  prometheus::Family<prometheus::Counter>& bytes_sent_;
  prometheus::Family<prometheus::Counter>& phase_seconds_;
  prometheus::Family<prometheus::Gauge>& loss_;
  prometheus::Family<prometheus::Gauge>& arena_peak_;
  prometheus::Family<prometheus::Histogram>& step_seconds_;
  std::map<std::pair<JobId, int32_t>, RankSeries> ranks_;
};

}  // namespace lynx

#endif  // LYNX_WORKER_DAEMON_WORKER_METRICS_H_
