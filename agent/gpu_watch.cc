#include "agent/gpu_watch.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "node/log.h"

namespace lynx::agent {

GpuWatch::GpuWatch(std::unique_ptr<Nvml> nvml, const std::vector<NodeDevice>& devices, const std::string& node,
                   prometheus::Registry& registry, const Clock& clock, WakeEvent& wake)
    : nvml_(std::move(nvml)), clock_(clock), wake_(wake) {
  for (const NodeDevice& device : devices) {
    const std::string label = absl::StrCat("GPU ", device.index, " (", device.model, ")");
    gpus_.emplace(device.index,
                  Gpu{GpuHealth(label, device.uuid),
                      GpuMetrics(registry, {.index = device.index, .uuid = device.uuid, .model = device.model, .node = node})});
  }
  thread_ = std::thread([this] { Run(); });
}

GpuWatch::~GpuWatch() {
  stop_ = true;
  thread_.join();
}

std::vector<NodeCondition> GpuWatch::conditions() const {
  std::lock_guard lock(mutex_);
  return conditions_;
}

void GpuWatch::Run() {
  Nanos next_reading = clock_.Monotonic();
  while (!stop_) {
    if (clock_.Monotonic() >= next_reading) {
      for (auto& [index, gpu] : gpus_) {
        const GpuReadings readings = nvml_->Read(index);
        gpu.metrics.Set(readings);
        gpu.health.NoteReadings(readings, clock_.Wall());
      }
      next_reading = next_reading + kInterval;
    }
    // Waits only briefly, so that the agent can end soon.
    if (const std::optional<GpuXid> event = nvml_->AwaitXid(kInterval / 10)) {
      if (const auto gpu = gpus_.find(event->index); gpu != gpus_.end()) {
        gpu->second.metrics.SetXid(event->xid);
        gpu->second.health.NoteXid(event->xid, clock_.Wall());
      }
    }
    Publish();
  }
}

void GpuWatch::Publish() {
  std::vector<NodeCondition> conditions;
  for (const auto& [index, gpu] : gpus_) {
    for (NodeCondition& condition : gpu.health.Conditions(clock_.Wall())) conditions.push_back(std::move(condition));
  }
  std::lock_guard lock(mutex_);
  if (conditions == conditions_) return;
  for (const NodeCondition& condition : conditions) {
    const bool known = std::find(conditions_.begin(), conditions_.end(), condition) != conditions_.end();
    if (!known) LogWarn("{}", condition.message);
  }
  conditions_ = std::move(conditions);
  wake_.Raise();
}

}  // namespace lynx::agent
