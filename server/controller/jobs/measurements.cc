#include "server/controller/jobs/measurements.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/controller/state/reason_text.h"

namespace lynx::server {
namespace {

constexpr size_t kMaxShapes = 64;      // largest number of shapes in one AgentDesired
constexpr int32_t kMaxMoreRounds = 3;  // largest number of plans whose own shapes are measured, each time a job is planned
constexpr Nanos kNoticedWait{1'000'000'000};  // the shortest wait that a person who watches the job would notice

}  // namespace

void Measurements::Begin(LiveJob& job) {
  job.planning.wanted = options_.wanted_shapes(SpecToPlan(job), job.planning.reservation.topology);
  if (job.planning.wanted.size() > kMaxShapes) job.planning.wanted.resize(kMaxShapes);
  job.planning.more_rounds = 0;
  job.planning.asked_before = 0;
  job.planning.measure_end = step_.now() + options_.measure_timeout;
  Ask(job);
}

bool Measurements::BeginFor(LiveJob& job, const Plan& plan) {
  PlanningState& planning = job.planning;
  if (!options_.wanted_shape_of || step_.now() >= planning.measure_end) return false;
  if (planning.more_rounds >= kMaxMoreRounds || planning.wanted.size() >= kMaxShapes) return false;
  const LayerShape shape = options_.wanted_shape_of(SpecToPlan(job), plan);
  const std::vector<DeviceRef>& devices = planning.reservation.devices;
  if (std::none_of(devices.begin(), devices.end(), [&](const DeviceRef& device) { return Lacks(job, device, shape); })) {
    return false;
  }
  planning.asked_before = planning.wanted.size();
  planning.wanted.push_back(shape);
  ++planning.more_rounds;
  Ask(job);
  return true;
}

void Measurements::Ask(LiveJob& job) {
  job.planning.awaited = 0;
  job.planning.measured_since = step_.now();
  job.planning.measure_deadline = job.planning.measure_end;
  measuring_.insert(job.record.id);
  for (const DeviceRef& device : job.planning.reservation.devices) step_.TellAgent(device.node);
}

bool Measurements::Waits(LiveJob& job) {
  if (step_.now() >= job.planning.measure_deadline) return false;
  // The job waits for reports of agents, and this code runs after each such report. Usually the job still waits for the same
  // device as before, so the search begins with that device.
  const std::vector<DeviceRef>& devices = job.planning.reservation.devices;
  const auto awaits = [&](const DeviceRef& device) { return Awaits(job, device); };
  const auto known = devices.begin() + static_cast<std::ptrdiff_t>(std::min(job.planning.awaited, devices.size()));
  auto first = std::find_if(known, devices.end(), awaits);
  if (first == devices.end()) first = std::find_if(devices.begin(), devices.end(), awaits);
  job.planning.awaited = static_cast<size_t>(first - devices.begin());
  if (first == devices.end()) return false;
  awaited_[first->node].insert(job.record.id);
  return true;
}

std::set<JobId> Measurements::TakeWaiters(const NodeId& node) {
  auto waiting = awaited_.extract(node);
  return waiting.empty() ? std::set<JobId>() : std::move(waiting.mapped());
}

void Measurements::End(LiveJob& job) {
  for (const DeviceRef& device : job.planning.reservation.devices)
    step_.TellAgent(device.node);  // the agents have nothing more to measure
  measuring_.erase(job.record.id);
  job.planning.measure_deadline = Nanos(0);
}

// True if the device's node has not measured the shape, and is able to measure it for the job.
bool Measurements::Lacks(const LiveJob& job, const DeviceRef& device, const LayerShape& shape) const {
  const LiveNode* found = nodes_.Find(device.node);
  if (found == nullptr || !found->agent_attached() || !MayMeasure(*found, job)) return false;
  const AgentState& agent = found->agent;
  const auto has = [&](const ShapeTimes& times) { return times.shape == shape; };
  const bool measured =
      agent.profile != nullptr && std::any_of(agent.profile->measured.begin(), agent.profile->measured.end(), has);
  return !measured && std::find(agent.failed_shapes.begin(), agent.failed_shapes.end(), shape) == agent.failed_shapes.end();
}

// True if the device's node lacks any of the shapes that the job needs.
bool Measurements::Awaits(const LiveJob& job, const DeviceRef& device) const {
  const std::vector<LayerShape>& wanted = job.planning.wanted;
  return std::any_of(wanted.begin(), wanted.end(), [&](const LayerShape& shape) { return Lacks(job, device, shape); });
}

// False if the job trains while it is planned and ranks run on the node. Measuring would disturb these ranks, and the result
// would be inaccurate.
bool Measurements::MayMeasure(const LiveNode& node, const LiveJob& job) {
  return job.replanning.trigger.empty() || node.jobs.empty();
}

AgentDesired Measurements::ShapesFor(const LiveNode& node) const {
  AgentDesired desired;
  for (const JobId& id : measuring_) {
    const LiveJob& job = jobs_.At(id);
    if (!IsPlanned(job) || job.planning.asked || !MayMeasure(node, job)) continue;
    const std::vector<DeviceRef>& devices = job.planning.reservation.devices;
    const auto here = [&](const DeviceRef& device) { return device.node == node.name; };
    if (std::none_of(devices.begin(), devices.end(), here)) continue;
    for (const LayerShape& shape : job.planning.wanted) {
      const bool known = std::find(desired.shapes.begin(), desired.shapes.end(), shape) != desired.shapes.end();
      if (!known && desired.shapes.size() < kMaxShapes) desired.shapes.push_back(shape);
    }
  }
  return desired;
}

void Measurements::TellDuration(LiveJob& job) const {
  if (job.record.state != JobState::kPlanning) return;
  const std::string took = FormatDuration(step_.now() - job.planning.measured_since);
  std::vector<DeviceRef> late;
  if (step_.now() >= job.planning.measure_deadline) {
    for (const DeviceRef& device : job.planning.reservation.devices) {
      if (Awaits(job, device)) late.push_back(device);
    }
  }
  if (!late.empty()) {
    step_.AddEvent(job, EventKind::kMeasured,
                   absl::StrCat("not all has been measured within ", took, ", on ", NodeNames(late),
                                "; plans with what other nodes have measured, or with stated speeds"));
  } else if (step_.now() - job.planning.measured_since >= kNoticedWait) {
    const size_t shapes = job.planning.wanted.size() - job.planning.asked_before;
    step_.AddEvent(
        job, EventKind::kMeasured,
        absl::StrCat("op times of ", shapes, shapes == 1 ? " layer shape" : " layer shapes", " were measured in ", took));
  }
}

}  // namespace lynx::server
