#include "agent/agent.h"

#include <poll.h>
#include <string.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "common/rng.h"
#include "common/version.h"
#include "lynx/v1/cluster.grpc.pb.h"
#include "node/daemon.h"
#include "node/heartbeat.h"
#include "node/log.h"
#include "node/stream.h"
#include "proto/convert.h"

namespace lynx::agent {
namespace {

using AgentStream = NodeStream<v1::AgentReport, v1::AgentDesired>;

class Loop {
 public:
  Loop(const AgentOptions& options, const std::vector<NodeDevice>& devices, AgentProfile profile, MeasuringThread& measuring,
       const GpuWatch* gpus, WakeEvent& wake, AgentMetrics& metrics, const Clock& clock)
      : options_(options), boot_id_(NewBootId()), devices_(devices), profile_(std::move(profile)), measuring_(measuring),
        gpus_(gpus), wake_(wake), metrics_(metrics), clock_(clock),
        stream_(
            {.servers = options.servers,
             .seed = Mix64(static_cast<uint64_t>(clock.Wall().value)),
             .credentials = options.credentials},
            [](const std::shared_ptr<grpc::Channel>& channel, grpc::ClientContext* context) {
              return v1::Cluster::NewStub(channel)->AttachAgent(context);
            },
            wake_) {}

  // Does one round, then sleeps until there is something to do, or until `signal_fd` is readable.
  void Round(int signal_fd) {
    wake_.Clear();
    for (const v1::AgentDesired& desired : stream_.TakeDesired()) TakeDesired(desired);
    TakeOutcome();
    TakeConditions();
    if (!measuring_.Busy()) {
      if (const std::optional<MeasureTask> task = profile_.Next()) measuring_.Begin(*task);
    }
    Report();
    pollfd fds[] = {{.fd = wake_.fd(), .events = POLLIN, .revents = 0}, {.fd = signal_fd, .events = POLLIN, .revents = 0}};
    const bool attached = stream_.attachment() != 0;
    const Nanos idle = attached ? heartbeat_.Left(clock_.Monotonic()) : Nanos(1'000'000'000);
    ::poll(fds, 2, static_cast<int>(idle.value / 1'000'000) + 1);
  }

  void Stop() { stream_.Stop(); }

  bool AllHold() const {
    return std::none_of(devices_.begin(), devices_.end(),
                        [&](const NodeDevice& device) { return IsWithdrawn(device, conditions_); });
  }

 private:
  void TakeConditions() {
    std::vector<NodeCondition> conditions = options_.conditions;
    if (gpus_ != nullptr) {
      const std::vector<NodeCondition> seen = gpus_->conditions();
      conditions.insert(conditions.end(), seen.begin(), seen.end());
    }
    if (conditions == conditions_) return;
    conditions_ = std::move(conditions);
    changed_ = true;
  }

  void TakeDesired(const v1::AgentDesired& desired) {
    heartbeat_.SetInterval(Nanos(desired.heartbeat_ns()));
    std::vector<LayerShape> shapes;
    for (const v1::LayerShape& message : desired.shapes()) {
      const absl::StatusOr<LayerShape> shape = FromProto(message);
      if (shape.ok()) {
        shapes.push_back(*shape);
      } else {
        LogError("passed over a shape to measure: {}", std::string(shape.status().message()));
      }
    }
    profile_.SetWanted(shapes);
  }

  void TakeOutcome() {
    const std::optional<MeasureOutcomeOf> outcome = measuring_.Take();
    if (!outcome.has_value()) return;
    if (const auto* link = std::get_if<absl::StatusOr<LinkResult>>(&outcome->result)) {
      profile_.RecordLink(*link);
    } else if (const auto* links = std::get_if<absl::StatusOr<GpuLinksResult>>(&outcome->result)) {
      profile_.RecordGpuLinks(*links);
    } else {
      profile_.RecordDevices(outcome->task, std::get<absl::StatusOr<MeasureResult>>(outcome->result));
    }
    changed_ = true;
  }

  void Report() {
    const int64_t attachment = stream_.attachment();
    metrics_.SetAttached(stream_.accepted());
    if (attachment != 0 && attachment != attachment_) heartbeat_.Attached();
    attachment_ = attachment;
    const Nanos now = clock_.Monotonic();
    if (!stream_.CanSend() || (!changed_ && !heartbeat_.Due(now))) return;
    v1::AgentReport report = Compose();
    // If the stream has just ended, this report is lost. That does no harm: the next stream begins with a full report.
    stream_.TrySend(report);
    changed_ = false;
    heartbeat_.Sent(now);
  }

  v1::AgentReport Compose() const {
    v1::AgentReport report;
    report.set_node(options_.node);
    report.set_boot_id(boot_id_);
    report.set_version(kVersion);
    for (const NodeDevice& device : devices_) {
      v1::Device& message = *report.add_devices();
      message.set_index(device.index);
      message.set_kind(EnumName(device.kind));
      message.set_model(device.model);
      message.set_memory_bytes(OfferedMemory(device, profile_.nccl_memory()).value);
      message.mutable_cores()->Assign(device.cores.begin(), device.cores.end());
      message.set_uuid(device.uuid);
      message.set_detail(device.detail);
    }
    report.set_host_memory_bytes(options_.host_memory.value);
    report.set_network_domain(options_.network_domain);
    report.set_network_rate_assumed(options_.network_rate_assumed);
    if (devices_.front().kind == DeviceKind::kCpu) {
      v1::NodeCores& cores = *report.mutable_cores();
      cores.set_machine(options_.cores.machine);
      cores.set_limit_group(options_.cores.limit_group);
      cores.set_limit_permille(options_.cores.limit_permille);
    }
    if (const std::optional<HardwareProfile> profile = profile_.Profile()) *report.mutable_profile() = ToProto(*profile);
    for (const LayerShape& shape : profile_.FailedShapes()) *report.add_failed_shapes() = ToProto(shape);
    report.set_failure(profile_.Failure());
    for (const NodeCondition& condition : conditions_) {
      v1::NodeCondition& message = *report.add_conditions();
      message.set_kind(condition.kind);
      message.set_device(condition.device);
      message.set_withdrawn(condition.withdrawn);
      message.set_message(condition.message);
      message.set_since_unix_ns(condition.since.value);
    }
    return report;
  }

  const AgentOptions& options_;
  const std::string boot_id_;
  const std::vector<NodeDevice>& devices_;
  AgentProfile profile_;
  MeasuringThread& measuring_;
  const GpuWatch* const gpus_;  // null: the devices are not GPUs
  std::vector<NodeCondition> conditions_;
  WakeEvent& wake_;
  AgentMetrics& metrics_;
  const Clock& clock_;
  Heartbeat heartbeat_{Mix64(static_cast<uint64_t>(clock_.Wall().value) ^ static_cast<uint64_t>(::getpid()))};
  int64_t attachment_ = 0;
  bool changed_ = true;  // something has changed since the last report
  AgentStream stream_;
};

}  // namespace

AgentEnd RunAgent(const AgentOptions& options, const std::vector<NodeDevice>& devices, AgentProfile profile,
                  MeasuringThread& measuring, const GpuWatch* gpus, WakeEvent& wake, AgentMetrics& metrics,
                  StopSignals& signals, const Clock& clock) {
  Loop loop(options, devices, std::move(profile), measuring, gpus, wake, metrics, clock);
  std::optional<int> signal;
  while (!signal.has_value() && loop.AllHold()) {
    loop.Round(signals.fd());
    signal = signals.Take();
  }
  if (signal.has_value()) LogInfo("{}: leaving", ::strsignal(*signal));
  loop.Stop();
  return signal.has_value() ? AgentEnd::kStopSignal : AgentEnd::kDeviceWithdrawn;
}

}  // namespace lynx::agent
