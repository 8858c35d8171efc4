#include "agent/measuring_thread.h"

#include "common/check.h"
#include "node/log.h"

namespace lynx::agent {

MeasuringThread::MeasuringThread(MeasurementOptions options, std::vector<NodeDevice> devices, MeasurementCache cache,
                                 const Clock& clock, AgentMetrics& metrics, WakeEvent& wake)
    : options_(std::move(options)), devices_(std::move(devices)), clock_(clock), metrics_(metrics), wake_(wake),
      cache_(std::move(cache)), thread_([this] { Run(); }) {}

MeasuringThread::~MeasuringThread() {
  {
    std::lock_guard lock(mutex_);
    stop_ = true;
    changed_.notify_all();
  }
  cancel_.Raise();
  thread_.join();
}

void MeasuringThread::Begin(const MeasureTask& task) {
  std::lock_guard lock(mutex_);
  LYNX_CHECK(!busy_);
  busy_ = true;
  task_ = task;
  changed_.notify_all();
}

bool MeasuringThread::Busy() const {
  std::lock_guard lock(mutex_);
  return busy_;
}

std::optional<MeasureOutcomeOf> MeasuringThread::Take() {
  std::lock_guard lock(mutex_);
  if (outcome_.has_value()) busy_ = false;
  return std::exchange(outcome_, std::nullopt);
}

void MeasuringThread::Run() {
  while (true) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return stop_ || task_.has_value(); });
    if (stop_) return;
    const MeasureTask task = *std::exchange(task_, std::nullopt);
    lock.unlock();
    MeasureOutcomeOf outcome = Measure(task);
    lock.lock();
    outcome_ = std::move(outcome);
    lock.unlock();
    wake_.Raise();
  }
}

MeasureOutcomeOf MeasuringThread::Measure(const MeasureTask& task) {
  if (task.kind == MeasureTaskKind::kLink) return {task, Link()};
  if (task.kind == MeasureTaskKind::kGpuLinks) return {task, GpuLinks()};
  std::vector<LayerShape> shapes;
  if (task.kind == MeasureTaskKind::kShape) shapes.push_back(task.shape);
  return {task, Devices(shapes)};
}

absl::StatusOr<LinkResult> MeasuringThread::Link() {
  if (std::optional<LinkResult> kept = cache_.FindLink()) {
    metrics_.Count(MeasureSubject::kLink, MeasureOutcome::kCached, Nanos(0));
    return *std::move(kept);
  }
  const Nanos begin = clock_.Monotonic();
  absl::StatusOr<LinkResult> result = MeasureLink(options_, devices_, cancel_);
  const Nanos took = clock_.Monotonic() - begin;
  metrics_.Count(MeasureSubject::kLink, result.ok() ? MeasureOutcome::kMeasured : MeasureOutcome::kFailed, took);
  if (!result.ok()) {
    LogError("{}", std::string(result.status().message()));
    return result;
  }
  LogInfo("measured the link in {}: {} and {} MB/s", FormatDuration(took), FormatDuration(result->link.latency),
          result->link.bytes_per_second / 1'000'000);
  cache_.KeepLink(*result);
  return result;
}

absl::StatusOr<GpuLinksResult> MeasuringThread::GpuLinks() {
  if (std::optional<GpuLinksResult> kept = cache_.FindGpuLinks()) {
    metrics_.Count(MeasureSubject::kLink, MeasureOutcome::kCached, Nanos(0));
    return *std::move(kept);
  }
  const Nanos begin = clock_.Monotonic();
  absl::StatusOr<GpuLinksResult> result = MeasureGpuLinks(options_, devices_, cancel_);
  const Nanos took = clock_.Monotonic() - begin;
  metrics_.Count(MeasureSubject::kLink, result.ok() ? MeasureOutcome::kMeasured : MeasureOutcome::kFailed, took);
  if (!result.ok()) {
    LogError("{}", std::string(result.status().message()));
    return result;
  }
  LogInfo("measured the links between {} GPUs in {}: {} and {} MB/s", devices_.size(), FormatDuration(took),
          FormatDuration(result->link.latency), result->link.bytes_per_second / 1'000'000);
  cache_.KeepGpuLinks(*result);
  return result;
}

absl::StatusOr<MeasureResult> MeasuringThread::Devices(const std::vector<LayerShape>& shapes) {
  if (std::optional<MeasureResult> kept = cache_.FindDevices(shapes)) {
    metrics_.Count(MeasureSubject::kShape, MeasureOutcome::kCached, Nanos(0));
    return *std::move(kept);
  }
  const Nanos begin = clock_.Monotonic();
  absl::StatusOr<MeasureResult> result = MeasureDevices(options_, devices_, shapes, cancel_);
  const Nanos took = clock_.Monotonic() - begin;
  const bool whole = result.ok() && result->measured.size() == shapes.size();
  metrics_.Count(MeasureSubject::kShape, whole ? MeasureOutcome::kMeasured : MeasureOutcome::kFailed, took);
  if (!result.ok()) {
    LogError("{}", std::string(result.status().message()));
    return result;
  }
  LogInfo("measured {} on {} devices in {}: {} GFLOP/s each", shapes.empty() ? "the general rates" : "a layer shape",
          devices_.size(), FormatDuration(took), result->flops_per_second / 1'000'000'000);
  if (whole) cache_.KeepDevices(shapes, *result);
  return result;
}

}  // namespace lynx::agent
