// MeasuringThread: does one measurement at a time while the agent's loop runs, or takes its result from the cache. The
// owner calls Begin, is woken when the result is there, and takes it. All calls of the owner come from one thread.
#ifndef LYNX_AGENT_MEASURING_THREAD_H_
#define LYNX_AGENT_MEASURING_THREAD_H_

#include <condition_variable>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <variant>
#include <vector>

#include "agent/agent_metrics.h"
#include "agent/agent_profile.h"
#include "agent/measurement.h"
#include "agent/measurement_cache.h"
#include "common/clock.h"

namespace lynx::agent {

struct MeasureOutcomeOf {
  MeasureTask task;
  std::variant<absl::StatusOr<LinkResult>, absl::StatusOr<GpuLinksResult>, absl::StatusOr<MeasureResult>>
      result;  // the kind of the task decides which alternative is set
};

class MeasuringThread {
 public:
  // All references must outlive this object. `wake` is raised when an outcome is there.
  MeasuringThread(MeasurementOptions options, std::vector<NodeDevice> devices, MeasurementCache cache, const Clock& clock,
                  AgentMetrics& metrics, WakeEvent& wake);
  // Kills a running measurement.
  ~MeasuringThread();

  // Begins the task. Call it only if Busy returns false.
  void Begin(const MeasureTask& task);
  // True from Begin until the outcome is taken.
  bool Busy() const;
  std::optional<MeasureOutcomeOf> Take();

 private:
  void Run();
  MeasureOutcomeOf Measure(const MeasureTask& task);
  absl::StatusOr<LinkResult> Link();
  absl::StatusOr<GpuLinksResult> GpuLinks();
  absl::StatusOr<MeasureResult> Devices(const std::vector<LayerShape>& shapes);

  const MeasurementOptions options_;
  const std::vector<NodeDevice> devices_;
  const Clock& clock_;
  AgentMetrics& metrics_;
  WakeEvent& wake_;
  WakeEvent cancel_;
  MeasurementCache cache_;  // only the thread uses it

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  // Guarded by mutex_.
  std::optional<MeasureTask> task_;  // the task to begin
  std::optional<MeasureOutcomeOf> outcome_;
  bool busy_ = false;
  bool stop_ = false;

  std::thread thread_;
};

}  // namespace lynx::agent

#endif  // LYNX_AGENT_MEASURING_THREAD_H_
