#include "server/controller/jobs/job_planning.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "planner/search/faster_model.h"
#include "server/controller/state/reason_text.h"
#include "server/scheduling/shared_cores.h"

namespace lynx::server {
namespace {

// The plan, with times for experts of this skew. Its sizes are the same, because a model that trains has a capacity.
std::shared_ptr<const Plan> AtSkew(const std::shared_ptr<const Plan>& plan, double skew) {
  if (plan->model.moe.skew == skew) return plan;
  Plan other = *plan;
  other.model.moe.skew = skew;
  return std::make_shared<const Plan>(std::move(other));
}

}  // namespace

void JobPlanning::BeginPlanning(LiveJob& job, Reservation reservation) {
  waiting_.Dequeue(job);
  const std::vector<DeviceRef>& devices = reservation.devices;
  step_.SetState(job, JobState::kPlanning, EventKind::kPlanning,
                 absl::StrCat("measures and plans for ", CountText(static_cast<int32_t>(devices.size()), devices_.KindOf(job)),
                              " on ", NodeNames(devices)));
  Prepare(job, std::move(reservation));
}

void JobPlanning::Prepare(LiveJob& job, Reservation reservation) {
  job.planning.reservation = std::move(reservation);
  job.planning.asked = false;
  ++job.planning.attempt;
  measurements_.Begin(job);
  Advance(job);
}

bool JobPlanning::MeasureFor(LiveJob& job, const Plan& plan) {
  if (!measurements_.BeginFor(job, plan)) return false;
  step_.AddEvent(
      job, EventKind::kMeasured,
      absl::StrCat("the best plan, ", SummaryOf(plan), ", uses op times that were not measured; the nodes measure them for tp ",
                   plan.layout.tp, " and micro-batch ", plan.micro_batch, ", and the job is planned again"));
  job.planning.asked = false;
  ++job.planning.attempt;
  Advance(job);
  return true;
}

void JobPlanning::AdvanceJobsOn(const NodeId& node) {
  for (const JobId& id : measurements_.TakeWaiters(node)) {
    if (LiveJob* job = jobs_.Find(id); job != nullptr) Advance(*job);
  }
}

void JobPlanning::Advance(LiveJob& job) {
  if (!IsPlanned(job) || job.planning.asked || measurements_.Waits(job)) return;
  RequestPlan(job);
}

void JobPlanning::RequestPlan(LiveJob& job) {
  measurements_.TellDuration(job);
  measurements_.End(job);
  job.planning.asked = true;
  job.drift.slowness_asked.clear();
  for (const DeviceRef& device : job.planning.reservation.devices) {
    job.drift.slowness_asked[device.node] = nodes_.Of(device.node).slowness.compute;
  }
  const size_t per_node = static_cast<size_t>(job.planning.reservation.topology.groups.front().devices_per_node);
  PlanJob ask{job.record.id,
              job.planning.attempt,
              {.spec = SpecToPlan(job), .cluster = ClusterOf(job.planning.reservation)},
              TriggerOf(job)};
  ask.may_arrange = ask.request.cluster.groups.size() > 1 && AreWholeNodes(job.planning.reservation);
  if (job.record.state == JobState::kRunning) {
    ask.beside = AtSkew(job.plan, SkewOf(job));
    ask.beside_on = ClusterOf(HeldBy(job));
  }
  PlanRequest& request = ask.request;
  size_t first = 0;  // index of the group's first device
  for (NodeGroup& group : request.cluster.groups) {
    // A CPU's device memory is the host's memory, so the planner must not count it a second time for offloading.
    group.host_is_device = devices_.KindOf(job) == DeviceKind::kCpu;
    if (!group.host_is_device) TakeShares(SharesOf(job, first, group.nodes), group);
    const size_t end = first + per_node * static_cast<size_t>(group.nodes);
    const Bytes limit = devices_.MemoryLimitFor(job, first, end);
    if (limit > Bytes(0))
      group.memory_per_device = group.memory_per_device == Bytes(0) ? limit : std::min(group.memory_per_device, limit);
    first = end;
  }
  step_.Emit(std::move(ask));
}

// The cluster that the reservation describes, with the present profiles of its nodes.
ClusterTopology JobPlanning::ClusterOf(const Reservation& reservation) const {
  const size_t per_node = static_cast<size_t>(reservation.topology.groups.front().devices_per_node);
  std::vector<std::shared_ptr<const HardwareProfile>> profiles;
  std::vector<Slowness> slowness;
  for (size_t first = 0; first < reservation.devices.size(); first += per_node) {
    const LiveNode* node = nodes_.Find(reservation.devices[first].node);
    const bool known = node != nullptr;
    profiles.push_back(known ? node->agent.profile : nullptr);
    slowness.push_back(known ? node->slowness : Slowness());
  }
  profiles = ShareShapes(std::move(profiles));
  for (size_t i = 0; i < profiles.size(); ++i) {
    if (profiles[i] == nullptr || slowness[i] == Slowness()) continue;
    profiles[i] = std::make_shared<const HardwareProfile>(Slowed(*profiles[i], slowness[i]));
  }
  ClusterTopology cluster = GroupNodes(reservation.topology, profiles, reservation.node_memory);
  std::vector<CoreUse> uses;
  for (const DeviceRef& device : reservation.devices) {
    const LiveNode* node = nodes_.Find(device.node);
    uses.push_back(node != nullptr ? CoreUseOf(node->agent, device.device) : CoreUse());
  }
  cluster.shared_cores = SharedCoresOf(uses);
  return cluster;
}

// For each of `nodes` consecutive nodes, the share of the node's devices that the job has. `first`: index of the reserved
// device with which the first of these nodes begins.
std::vector<NodeShare> JobPlanning::SharesOf(const LiveJob& job, size_t first, int32_t nodes) const {
  const std::vector<DeviceRef>& devices = job.planning.reservation.devices;
  const auto per_node = static_cast<size_t>(job.planning.reservation.topology.groups.front().devices_per_node);
  std::vector<NodeShare> shares;
  for (int32_t node = 0; node < nodes; ++node, first += per_node) {
    const AgentState& agent = nodes_.At(devices[first].node).agent;
    NodeShare& share = shares.emplace_back();
    share.devices = static_cast<int32_t>(agent.devices.size());
    share.host_memory = agent.host_memory;
    for (size_t i = first; i < first + per_node; ++i) {
      const auto place = std::find_if(agent.devices.begin(), agent.devices.end(),
                                      [&](const Device& device) { return device.index == devices[i].device; });
      share.places.push_back(static_cast<int32_t>(place - agent.devices.begin()));
    }
  }
  return shares;
}

absl::Status JobPlanning::CheckPrograms(const Plan& plan) const {
  const std::vector<Bytes> sizes = ProgramTextOf(plan);
  const auto largest = std::max_element(sizes.begin(), sizes.end());
  if (largest == sizes.end() || *largest <= options_.most_program_text) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      absl::StrCat("the program of stage ", largest - sizes.begin(), " takes ", FormatBytes(*largest), " as text for ",
                   plan.microbatches, " microbatches, more than the ", FormatBytes(options_.most_program_text),
                   " that one message to a node may hold; a larger train.microBatch, more stages or more replicas make it "
                   "shorter"));
}

void JobPlanning::SetPlan(LiveJob& job, std::shared_ptr<const Plan> plan, const std::shared_ptr<const ClusterTopology>& cluster,
                          std::vector<DeviceRef> considered) {
  job.replanning.considered = std::move(considered);
  job.plan = std::move(plan);
  job.planned_kinds = PlannedKinds(cluster);
  job.drift.slowness_planned = job.drift.slowness_asked;
  job.drift.skew_found = 0;  // the new plan was made for this skew
  job.program_text = ProgramTextOf(*job.plan);
  job.record.plan_digest = job.plan->digest;
  step_.Emit(InsertPlan{job.record.id, job.plan, cluster});
  const std::string slow_type = cluster == nullptr ? "" : SlowTypeText(job.record.spec->model, *cluster);
  step_.AddEvent(
      job, EventKind::kPlanned,
      absl::StrCat(LayoutText(job.plan->layout), ", micro-batch ", job.plan->micro_batch, ", ", job.plan->microbatches,
                   " microbatches, ", job.plan->empty_places > 0 ? absl::StrCat(job.plan->empty_places, " empty places, ") : "",
                   EnumName(job.plan->mode), "; predicted step ", FormatDuration(job.plan->step),
                   job.plan->measured_profile ? "" : " (from stated speeds: nothing was measured)",
                   slow_type.empty() ? "" : "; ", slow_type));
}

void JobPlanning::EndPlanning(LiveJob& job) {
  measurements_.End(job);
  job.planning.reservation = {};
  job.planning.wanted.clear();
  job.planning.asked = false;
  step_.LookAtQueue();
}

void JobPlanning::EndReplanning(LiveJob& job) {
  if (!IsPlanned(job)) return;
  Replanning& replanning = job.replanning;
  replanning.trigger.clear();
  replanning.plan.reset();
  replanning.cluster.reset();
  replanning.placement.clear();
  replanning.not_before = step_.now() + options_.replan_after;
  EndPlanning(job);
}

void JobPlanning::KeepPlan(LiveJob& job, const std::string& reason) {
  step_.AddEvent(job, EventKind::kReplanKept, absl::StrCat("goes on as planned: ", reason));
  step_.Touch(job);
  EndReplanning(job);
}

bool JobPlanning::ReplanForLess(LiveJob& job, const std::vector<NodeDevices>& free, const std::string& reason) {
  if (!IsElastic(job)) return false;
  std::optional<Reservation> others = Reserve(free, devices_.DemandOf(job));
  if (!others.has_value() || others->devices == job.replanning.considered) return false;
  step_.AddEvent(job, EventKind::kReplanForced,
                 absl::StrCat(reason, "; plans for ", others->devices.size(), " devices in place of ", SummaryOf(*job.plan)));
  BeginPlanning(job, *std::move(others));
  return true;
}

}  // namespace lynx::server
