// Measurements: what agents measure for jobs that are being planned, and how long the server waits for them. See controller.h.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "server/controller/controller.h"
#include "server/controller/reason_text.h"

namespace lynx {
namespace {

constexpr size_t kMaxShapes = 64;             // in one AgentDesired
constexpr Nanos kNoticedWait{1'000'000'000};  // a wait that a person who watches the job would notice

}  // namespace

// Reserves the devices, has their agents measure what the planner needs, then requests a plan.
void Controller::Prepare(Job& job, Reservation reservation) {
  job.reservation = std::move(reservation);
  job.wanted = options_.wanted_shapes(*job.record.spec, job.reservation.topology);
  if (job.wanted.size() > kMaxShapes) job.wanted.resize(kMaxShapes);
  job.awaited = 0;
  job.plan_asked = false;
  ++job.attempt;
  job.measured_since = now_;
  job.measure_deadline = now_ + options_.measure_timeout;
  measuring_.insert(job.record.id);
  for (const DeviceRef& device : job.reservation.devices) agent_dirty_.insert(device.node);
  AdvancePlanning(job);
}

// Looks again at the jobs that are known to wait for measurements of this node.
void Controller::AdvancePlanningOn(const NodeId& node) {
  const auto waiting = awaited_.extract(node);  // jobs that still wait are added again
  if (waiting.empty()) return;
  for (const JobId& id : waiting.mapped()) {
    if (Job* job = FindJob(id); job != nullptr) AdvancePlanning(*job);
  }
}

void Controller::AdvancePlanning(Job& job) {
  if (!IsPlanned(job) || job.plan_asked) return;
  if (now_ < job.measure_deadline) {
    // This runs for every report of the node. Usually the job still waits for the same device, so begin there.
    const std::vector<DeviceRef>& devices = job.reservation.devices;
    const auto awaits = [&](const DeviceRef& device) { return AwaitsMeasurements(job, device); };
    const auto known = devices.begin() + static_cast<std::ptrdiff_t>(std::min(job.awaited, devices.size()));
    auto first = std::find_if(known, devices.end(), awaits);
    if (first == devices.end()) first = std::find_if(devices.begin(), devices.end(), awaits);
    job.awaited = static_cast<size_t>(first - devices.begin());
    if (first != devices.end()) {
      awaited_[first->node].insert(job.record.id);
      return;
    }
  }
  AskForPlan(job);
}

// True if the device's node has something left to measure for the job and is able to.
bool Controller::AwaitsMeasurements(const Job& job, const DeviceRef& device) const {
  const auto found = nodes_.find(device.node);
  if (found == nodes_.end() || !found->second.agent_attached() || !Measures(found->second, job)) return false;
  const AgentState& agent = found->second.agent;
  return std::any_of(job.wanted.begin(), job.wanted.end(), [&](const LayerShape& shape) {
    const auto has = [&](const ShapeTimes& times) { return times.shape == shape; };
    const bool measured =
        agent.profile != nullptr && std::any_of(agent.profile->measured.begin(), agent.profile->measured.end(), has);
    return !measured && std::find(agent.failed_shapes.begin(), agent.failed_shapes.end(), shape) == agent.failed_shapes.end();
  });
}

// Tells in an event why a job waited this long for its first plan. There is no event for a wait that nobody would notice.
void Controller::TellMeasured(Job& job) {
  if (job.record.state != JobState::kPlanning) return;
  const std::string took = FormatDuration(now_ - job.measured_since);
  std::vector<DeviceRef> late;
  if (now_ >= job.measure_deadline) {
    for (const DeviceRef& device : job.reservation.devices) {
      if (AwaitsMeasurements(job, device)) late.push_back(device);
    }
  }
  if (!late.empty()) {
    AddEvent(job, EventKind::kMeasured,
             absl::StrCat("not all has been measured within ", took, ", on ", NodeNames(late),
                          "; plans with what other nodes have measured, or with stated speeds"));
  } else if (now_ - job.measured_since >= kNoticedWait) {
    AddEvent(job, EventKind::kMeasured,
             absl::StrCat("op times of ", job.wanted.size(), job.wanted.size() == 1 ? " layer shape" : " layer shapes",
                          " were measured in ", took));
  }
}

// Measuring for a job that trains meanwhile would disturb the jobs that train on the node, and the result would be inaccurate.
bool Controller::Measures(const Node& node, const Job& job) { return job.replanning.trigger.empty() || node.jobs.empty(); }

AgentDesired Controller::ShapesFor(const Node& node) const {
  AgentDesired desired;
  for (const JobId& id : measuring_) {
    const Job& job = jobs_.at(id);
    if (!IsPlanned(job) || job.plan_asked || !Measures(node, job)) continue;
    const std::vector<DeviceRef>& devices = job.reservation.devices;
    const auto here = [&](const DeviceRef& device) { return device.node == node.name; };
    if (std::none_of(devices.begin(), devices.end(), here)) continue;
    for (const LayerShape& shape : job.wanted) {
      const bool known = std::find(desired.shapes.begin(), desired.shapes.end(), shape) != desired.shapes.end();
      if (!known && desired.shapes.size() < kMaxShapes) desired.shapes.push_back(shape);
    }
  }
  return desired;
}

}  // namespace lynx
