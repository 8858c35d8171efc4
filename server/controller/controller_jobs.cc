// Jobs: submission, dependencies, planning, placement and the end. See controller.h.
#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "common/status.h"
#include "server/controller/controller.h"
#include "server/controller/reason_text.h"
#include "server/scheduling/locality_selection.h"
#include "server/scheduling/node_groups.h"
#include "server/scheduling/shared_cores.h"

namespace lynx {
namespace {

// The part of an ended job's plan that is shown. The store keeps the programs.
Plan WithoutPrograms(const Plan& plan) {
  Plan summary = plan;
  for (StagePlan& stage : summary.stages) stage.program.clear();
  return summary;
}

}  // namespace

void Controller::OnSubmitted(const JobSubmitted& event) {
  if (const auto known = by_key_.find(event.idempotency_key); known != by_key_.end() && !Makes(Mistake::kForgetKeys)) {
    const JobRecord& earlier = jobs_.at(known->second).record;
    absl::Status status;
    if (earlier.spec_digest != event.spec_digest) {
      status = absl::AlreadyExistsError(absl::StrCat("idempotency key \"", event.idempotency_key, "\" was used for job ",
                                                     earlier.id.value, " with another spec; use a new key for a new job"));
    }
    effects_.push_back(Reply{event.request, status, earlier.id, true});
    return;
  }
  if (static_cast<int64_t>(unfinished_.size()) >= options_.max_unfinished_jobs) {
    effects_.push_back(Reply{event.request,
                             absl::ResourceExhaustedError(absl::StrCat("the server holds ", unfinished_.size(),
                                                                       " jobs that have not ended, its limit; "
                                                                       "submit again when some have")),
                             JobId(), false});
    return;
  }
  std::vector<JobId> waits_for;
  if (const absl::Status dependencies = ResolveDependencies(event.spec, waits_for); !dependencies.ok()) {
    effects_.push_back(Reply{event.request, dependencies, JobId(), false});
    return;
  }
  Job& job = jobs_[event.id];
  LYNX_CHECK(job.record.submission == 0);
  job.record.id = event.id;
  job.record.submission = ++last_submission_;
  job.record.idempotency_key = event.idempotency_key;
  job.record.spec = std::make_shared<const JobSpec>(event.spec);
  job.record.spec_digest = event.spec_digest;
  job.record.submitted = wall_;
  job.record.reason = "waits for its turn";
  job.record.held = event.spec.scheduling.hold;
  job.record.waits_for = std::move(waits_for);
  by_key_[event.idempotency_key] = event.id;
  by_submission_[job.record.submission] = event.id;
  unfinished_.insert(event.id);
  Enqueue(job);
  SetPending(job, job.record.pending);
  effects_.push_back(InsertJob{job.record});
  AddEvent(job, EventKind::kSubmitted, job.record.reason);
  Touch(job);
  effects_.push_back(Reply{event.request, absl::OkStatus(), event.id, false});
  schedule_ = true;
}

// Fills `waits_for` with the dependencies that have not succeeded yet.
absl::Status Controller::ResolveDependencies(const JobSpec& spec, std::vector<JobId>& waits_for) const {
  for (const std::string& name : spec.scheduling.after) {
    if (Makes(Mistake::kForgetDependencies)) break;
    const absl::StatusOr<JobId> id = Resolve(name);
    if (!id.ok()) return Annotate(id.status(), "scheduling.after");
    const JobRecord& other = jobs_.at(*id).record;
    if (other.state == JobState::kSucceeded) continue;
    if (IsFinal(other.state)) {
      return absl::FailedPreconditionError(absl::StrCat("scheduling.after: job ", name, " (", id->value, ") is ",
                                                        JobStateName(other.state), ", so this one would never begin"));
    }
    waits_for.push_back(*id);
  }
  return absl::OkStatus();
}

void Controller::OnSubmissionLost(const SubmissionLost& event) {
  const Job* job = FindJob(event.job);
  if (job == nullptr) return;
  LYNX_CHECK(job->record.ranks.empty());
  by_key_.erase(job->record.idempotency_key);
  by_submission_.erase(job->record.submission);
  Dequeue(jobs_.at(event.job));
  unfinished_.erase(event.job);
  active_.erase(event.job);
  ended_.erase({job->record.ended, job->record.submission});  // it may have been cancelled at once
  notices_.erase(event.job);
  measuring_.erase(event.job);
  jobs_.erase(event.job);
  schedule_ = true;
}

void Controller::OnCancel(const CancelRequested& event) {
  Job* job = FindJob(event.job);
  if (job == nullptr) {
    effects_.push_back(Reply{event.request, absl::NotFoundError(absl::StrCat("no job ", event.job.value)), event.job});
    return;
  }
  effects_.push_back(Reply{event.request, absl::OkStatus(), event.job});
  // A job that was asked to leave with a checkpoint can still be ended at once.
  const bool asked = job->record.cancel_requested;
  if (IsFinal(job->record.state) || (asked && (event.checkpoint || job->record.stop == StopKind::kCancel))) return;
  job->record.cancel_requested = true;
  const std::string reason = event.reason.empty() ? "cancelled on request" : absl::StrCat("cancelled: ", event.reason);
  if (job->record.state == JobState::kQueued || job->record.state == JobState::kPlanning) {
    EndPlanning(*job);
    EndJob(*job, JobState::kCancelled, EventKind::kCancelled, reason);
    return;
  }
  if (!IsStopping(*job) && event.checkpoint) {
    const Nanos deadline = event.grace > Nanos(0) ? now_ + event.grace : Nanos(0);
    return AskToGiveWay(*job, StopKind::kLeave, EventKind::kLeaving, reason, deadline);
  }
  if (!IsStopping(*job)) {
    BeginStop(*job, StopKind::kCancel, std::nullopt, reason);
    return;
  }
  job->record.stop = StopKind::kCancel;
  job->record.stop_reason = reason;
  job->record.reason = absl::StrCat("stopping: ", reason);
  notices_[event.job];
  Touch(*job);
}

Demand Controller::DemandOf(const Job& job) const {
  const JobSpec& spec = *job.record.spec;
  const auto at_least_one = [](int32_t n) { return std::max(n, 1); };
  const ParallelSpec& pinned = spec.parallel;
  const int32_t product = at_least_one(pinned.tp) * at_least_one(pinned.pp) * at_least_one(pinned.dp);
  Demand demand{.min_ranks = std::max({spec.resources.min_ranks, product, job.min_devices}),
                .max_ranks = spec.resources.max_ranks,
                .group = at_least_one(pinned.tp)};
  const auto queue = queues_.find(spec.scheduling.queue);
  if (queue == queues_.end() || queue->second.may_borrow || !IsElastic(job)) return demand;
  const int32_t own = static_cast<int32_t>(std::max(job.record.ranks.size(), job.reservation.devices.size()));
  const std::map<std::string, int32_t> used = UsedByQueue();
  const auto others = used.find(spec.scheduling.queue);
  const int32_t left =
      queue->second.quota - (others == used.end() ? 0 : others->second) + (job.record.state == JobState::kQueued ? 0 : own);
  demand.max_ranks = std::min(demand.max_ranks, std::max(0, left));
  return demand;
}

// The kind of device for the job's ranks. A job that leaves it open gets GPUs if the attached nodes have enough of them, free
// or not: that other jobs hold them now is no reason to train many times slower on CPUs.
DeviceKind Controller::KindOf(const Job& job) const {
  if (job.record.device_kind != DeviceKind::kAny) return job.record.device_kind;
  if (job.plan != nullptr) return DeviceKind::kCpu;  // the plan comes from a server that knew only CPUs
  if (job.tried_kind != DeviceKind::kAny) return job.tried_kind;
  const DeviceKind asked = job.record.spec->resources.device;
  if (asked != DeviceKind::kAny) return asked;
  if (gpu_nodes_.empty()) return DeviceKind::kCpu;
  const bool enough = Reserve(AttachedDevices(DeviceKind::kCuda, {}, true), DemandOf(job)).has_value();
  return enough ? DeviceKind::kCuda : DeviceKind::kCpu;
}

std::vector<NodeDevices> Controller::FreeDevices(DeviceKind kind, const Job* for_job) const {
  std::set<DeviceRef> used;
  for (const JobId& id : active_) {
    const Job& job = jobs_.at(id);
    if (&job == for_job || Makes(Mistake::kForgetWhatIsHeld)) continue;
    for (const RankRecord& rank : job.record.ranks) used.insert(rank.where);
    used.insert(job.reservation.devices.begin(), job.reservation.devices.end());
  }
  std::vector<NodeDevices> free = AttachedDevices(kind, used);
  return for_job == nullptr ? free : WithoutNodes(std::move(free), for_job->record.excluded);
}

// The node's devices of this kind that `wanted` accepts.
NodeDevices Controller::DevicesOf(const Node& node, DeviceKind kind, const std::function<bool(const DeviceRef&)>& wanted) {
  NodeDevices devices{.node = node.name, .domain = node.agent.network_domain, .slow = IsSlow(node.slowness)};
  for (const Device& device : node.agent.devices) {
    if (device.kind != kind || !wanted(DeviceRef{node.name, device.index})) continue;
    devices.free.push_back(device.index);
    const bool first = devices.free.size() == 1;
    devices.memory_per_device = first ? device.memory : std::min(devices.memory_per_device, device.memory);
  }
  std::sort(devices.free.begin(), devices.free.end());
  return devices;
}

bool Controller::TakesRanks(const Node& node, bool cordoned) const {
  return node.worker_attached() && !HasOrphans(node) && (cordoned || !cordons_.contains(node.name));
}

// All devices of this kind on attached nodes, except the used ones.
std::vector<NodeDevices> Controller::AttachedDevices(DeviceKind kind, const std::set<DeviceRef>& used, bool cordoned) const {
  std::vector<NodeDevices> free;
  for (const auto& [name, node] : nodes_) {
    if (!TakesRanks(node, cordoned)) continue;
    NodeDevices devices =
        DevicesOf(node, kind, [&](const DeviceRef& device) { return used.empty() || !used.contains(device); });
    if (!devices.free.empty()) free.push_back(std::move(devices));
  }
  SortByLocality(free);
  return free;
}

// The devices among `held` that can still have ranks. The job holds them or held them until now, so no other job has them.
std::vector<NodeDevices> Controller::StillThere(const std::vector<DeviceRef>& held, DeviceKind kind, const Job& job) const {
  const std::set<DeviceRef> wanted(held.begin(), held.end());
  const std::vector<NodeId>& excluded = job.record.excluded;
  std::vector<NodeDevices> there;
  for (auto at = wanted.begin(); at != wanted.end();) {
    const NodeId& name = at->node;
    const auto node = nodes_.find(name);
    const bool takes = node != nodes_.end() && TakesRanks(node->second, false) &&
                       std::find(excluded.begin(), excluded.end(), name) == excluded.end();
    NodeDevices devices;
    if (takes) devices = DevicesOf(node->second, kind, [&](const DeviceRef& device) { return wanted.contains(device); });
    if (!devices.free.empty()) there.push_back(std::move(devices));
    while (at != wanted.end() && at->node == name) ++at;
  }
  SortByLocality(there);
  return there;
}

void Controller::BeginPlanning(Job& job, Reservation reservation) {
  Dequeue(job);
  const std::vector<DeviceRef>& devices = reservation.devices;
  SetState(job, JobState::kPlanning, EventKind::kPlanning,
           absl::StrCat("measures and plans for ", CountText(static_cast<int32_t>(devices.size()), KindOf(job)), " on ",
                        NodeNames(devices)));
  Prepare(job, std::move(reservation));
}

// The cluster that the reservation describes, with the present profiles of its nodes.
ClusterTopology Controller::ClusterOf(const Reservation& reservation) const {
  const size_t per_node = static_cast<size_t>(reservation.topology.groups.front().devices_per_node);
  std::vector<std::shared_ptr<const HardwareProfile>> profiles;
  std::vector<Slowness> slowness;
  for (size_t first = 0; first < reservation.devices.size(); first += per_node) {
    const auto node = nodes_.find(reservation.devices[first].node);
    const bool known = node != nodes_.end();
    profiles.push_back(known ? node->second.agent.profile : nullptr);
    slowness.push_back(known ? node->second.slowness : Slowness());
  }
  profiles = ShareShapes(std::move(profiles));
  for (size_t i = 0; i < profiles.size(); ++i) {
    if (profiles[i] == nullptr || slowness[i] == Slowness()) continue;
    profiles[i] = std::make_shared<const HardwareProfile>(Slowed(*profiles[i], slowness[i]));
  }
  ClusterTopology cluster = GroupNodes(reservation.topology, profiles);
  std::vector<CoreUse> uses;
  for (const DeviceRef& device : reservation.devices) {
    const auto node = nodes_.find(device.node);
    uses.push_back(node != nodes_.end() ? CoreUseOf(node->second.agent, device.device) : CoreUse());
  }
  cluster.shared_cores = SharedCoresOf(uses);
  return cluster;
}

// The devices of the job's ranks, by rank. If its nodes do not all have the same number of its devices, each device counts as a
// node of its own.
Reservation Controller::HeldBy(const Job& job) {
  Reservation held;
  std::vector<int32_t> on_node;  // number of devices, node by node
  for (const RankRecord& rank : job.record.ranks) {
    if (held.devices.empty() || held.devices.back().node != rank.where.node) on_node.push_back(0);
    ++on_node.back();
    held.devices.push_back(rank.where);
  }
  const bool alike = std::all_of(on_node.begin(), on_node.end(), [&](int32_t count) { return count == on_node.front(); });
  const int32_t per_node = alike ? on_node.front() : 1;
  held.topology = UniformCluster(static_cast<int32_t>(held.devices.size()) / per_node, per_node);
  return held;
}

void Controller::AskForPlan(Job& job) {
  TellMeasured(job);
  job.plan_asked = true;
  measuring_.erase(job.record.id);
  job.measure_deadline = Nanos(0);
  job.slowness_asked.clear();
  for (const DeviceRef& device : job.reservation.devices) {
    job.slowness_asked[device.node] = NodeOf(device.node).slowness.compute;
    agent_dirty_.insert(device.node);  // the node has nothing more to measure for this job
  }
  const size_t per_node = static_cast<size_t>(job.reservation.topology.groups.front().devices_per_node);
  PlanJob ask{job.record.id, job.attempt, {.spec = *job.record.spec, .cluster = ClusterOf(job.reservation)}, TriggerOf(job)};
  if (job.record.state == JobState::kRunning) {
    ask.beside = job.plan;
    ask.beside_on = ClusterOf(HeldBy(job));
  }
  PlanRequest& request = ask.request;
  size_t first = 0;  // index of the group's first device
  for (NodeGroup& group : request.cluster.groups) {
    // A CPU's device memory is the host's memory, so the planner must not count it a second time for offloading.
    group.host_is_device = KindOf(job) == DeviceKind::kCpu;
    if (!group.host_is_device) TakeShares(SharesOf(job, first, group.nodes), group);
    const size_t end = first + per_node * static_cast<size_t>(group.nodes);
    const Bytes limit = MemoryLimitFor(job, first, end);
    if (limit > Bytes(0))
      group.memory_per_device = group.memory_per_device == Bytes(0) ? limit : std::min(group.memory_per_device, limit);
    first = end;
  }
  effects_.push_back(std::move(ask));
}

PlanTrigger Controller::TriggerOf(const Job& job) {
  if (job.record.state == JobState::kRunning) {
    return job.reservation.devices.size() > job.record.ranks.size() ? PlanTrigger::kGrowth : PlanTrigger::kDrift;
  }
  if (job.speculative) return PlanTrigger::kSpeculation;
  if (job.short_of_memory) return PlanTrigger::kMemory;
  return job.plan != nullptr ? PlanTrigger::kLoss : PlanTrigger::kFirst;
}

// The job's shares of `nodes` nodes, starting with the node of its device `first`.
std::vector<NodeShare> Controller::SharesOf(const Job& job, size_t first, int32_t nodes) const {
  const std::vector<DeviceRef>& devices = job.reservation.devices;
  const auto per_node = static_cast<size_t>(job.reservation.topology.groups.front().devices_per_node);
  std::vector<NodeShare> shares;
  for (int32_t node = 0; node < nodes; ++node, first += per_node) {
    const AgentState& agent = nodes_.at(devices[first].node).agent;
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

// Releases what the job holds while it is planned.
void Controller::EndPlanning(Job& job) {
  for (const DeviceRef& device : job.reservation.devices) agent_dirty_.insert(device.node);
  job.reservation = {};
  measuring_.erase(job.record.id);
  job.wanted.clear();
  job.plan_asked = false;
  job.measure_deadline = Nanos(0);
  schedule_ = true;
}

void Controller::OnPlanReady(const PlanReady& event) {
  Job* job = FindJob(event.job);
  const bool awaited = job != nullptr && IsPlanned(*job) && job->plan_asked && job->attempt == event.attempt;
  if (!awaited || job->replanning.plan != nullptr) return;
  if (job->record.state != JobState::kPlanning) return ConsiderPlan(*job, event);
  if (const auto* status = std::get_if<absl::Status>(&event.result)) {
    PlanRefused(*job, std::string(status->message()));
    return;
  }
  if (const auto* infeasible = std::get_if<Infeasible>(&event.result)) {
    std::string reason = infeasible->reason;
    if (!infeasible->suggestion.empty()) {
      absl::StrAppend(&reason, "; the smallest change that fits: ", infeasible->suggestion);
    }
    PlanRefused(*job, reason);
    return;
  }
  const std::shared_ptr<const Plan> plan = std::get<std::shared_ptr<const Plan>>(event.result);
  if (const absl::Status programs = CheckPrograms(*plan); !programs.ok()) {
    PlanRefused(*job, std::string(programs.message()));
    return;
  }
  const std::vector<DeviceRef> reserved = job->reservation.devices;
  const DeviceKind kind = KindOf(*job);
  std::optional<std::vector<DeviceRef>> placement = PlaceRanks(plan->layout, StillThere(reserved, kind, *job));
  EndPlanning(*job);
  if (!placement.has_value()) placement = PlaceRanksByLocality(plan->layout, FreeDevices(kind, job));
  const bool speculative = std::exchange(job->speculative, false);
  if (!placement.has_value()) {
    job->tried_kind = DeviceKind::kAny;  // there may be enough devices of another kind
    Enqueue(*job);
    SetState(*job, JobState::kQueued, EventKind::kQueued,
             absl::StrCat("devices on ", NodeNames(reserved), " went away while the job was planned"));
    return;
  }
  if (job->tried_kind != DeviceKind::kAny) job->record.device_kind = job->tried_kind;
  const bool less_memory = std::exchange(job->short_of_memory, false);
  const std::string change = less_memory ? LessMemoryText(*job, *plan) : "";
  SetPlan(*job, plan, event.cluster, reserved);
  if (speculative) {
    Enqueue(*job);
    SetState(
        *job, JobState::kQueued, EventKind::kQueued,
        absl::StrCat("takes about ", FormatDuration(Remaining(*job)), "; passes those before it if it ends before they begin"));
    return;
  }
  const std::string where = absl::StrCat(plan->layout.ranks(), " ranks on ", NodeNames(*placement));
  StartGeneration(*job, *placement, less_memory ? EventKind::kReplanned : EventKind::kPlaced,
                  less_memory ? absl::StrCat(change, "; ", where) : where);
}

std::vector<Bytes> Controller::ProgramTextOf(const Plan& plan) {
  std::vector<Bytes> sizes;
  for (const StagePlan& stage : plan.stages) {
    sizes.push_back(Bytes(static_cast<int64_t>(ProgramText(stage.program).size())));
  }
  return sizes;
}

// A program must fit into one message to its node.
absl::Status Controller::CheckPrograms(const Plan& plan) const {
  const std::vector<Bytes> sizes = ProgramTextOf(plan);
  const auto largest = std::max_element(sizes.begin(), sizes.end());
  if (largest == sizes.end() || *largest <= options_.most_program_text) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      absl::StrCat("the program of stage ", largest - sizes.begin(), " takes ", FormatBytes(*largest), " as text for ",
                   plan.microbatches, " microbatches, more than the ", FormatBytes(options_.most_program_text),
                   " that one message to a node may hold; a larger train.microBatch, more stages or more replicas make it "
                   "shorter"));
}

// The planner found no plan for the devices it was given. If the cluster has more devices that the job could get but others
// hold now, the job waits for them. Otherwise waiting does not help, and the job must not hold up the jobs behind it.
void Controller::PlanRefused(Job& job, const std::string& reason) {
  const int32_t tried = static_cast<int32_t>(job.reservation.devices.size());
  std::vector<DeviceRef> devices = job.reservation.devices;
  EndPlanning(job);
  job.speculative = false;
  if (job.short_of_memory) return PlanForMoreMemory(job, reason) ? void() : FailForMemory(job, reason);
  if (job.plan != nullptr) {  // it has trained and waits for its plan's devices, or for others than these
    job.replanning.considered = std::move(devices);
    Enqueue(job);
    SetState(job, JobState::kQueued, EventKind::kQueued,
             absl::StrCat("no plan for the ", CountText(tried, KindOf(job)), " that are left (", reason, "); waits for more"));
    return;
  }
  job.min_devices = tried + 1;
  if (!Reserve(AttachedDevices(KindOf(job), {}, true), DemandOf(job)).has_value()) {
    EndJob(job, JobState::kFailed, EventKind::kFailed, reason);
    return;
  }
  Enqueue(job);
  SetState(job, JobState::kQueued, EventKind::kQueued,
           absl::StrCat("no plan for the ", CountText(tried, KindOf(job)), " that were free (", reason, "); waits for more"));
}

void Controller::StartGeneration(Job& job, const std::vector<DeviceRef>& placement, EventKind kind, std::string reason) {
  LYNX_CHECK(job.plan != nullptr && placement.size() == static_cast<size_t>(job.plan->layout.ranks()));
  JobRecord& record = job.record;
  Dequeue(job);
  job.trained_before = Trained(job);
  LeaveNodes(job);
  if (!Makes(Mistake::kReuseGeneration) || record.generation == Generation(0)) {
    record.generation = Generation(record.generation.value + 1);
  }
  record.stop = StopKind::kNone;
  record.stop_reason.clear();
  record.resume_step = record.checkpoint_step;
  record.base_steps = record.best_steps;
  const NodeCheckPolicy policy = record.spec->node_check;
  record.check_due = policy == NodeCheckPolicy::kAlways || (record.check_due && policy == NodeCheckPolicy::kAuto);
  const std::vector<RankRecord> before = std::exchange(record.ranks, {});
  record.measured.clear();
  for (const DeviceRef& device : placement) {
    record.ranks.push_back({.where = device, .device_uuid = UuidOf(device, KindOf(job), before)});
    NodeOf(device.node).jobs.insert(record.id);
  }
  IndexRanks(job);
  job.ranks.assign(placement.size(), LiveRank());
  job.peers.reset();
  job.statistics = StepStatistics(job.plan->layout, {});
  job.speed = SpeedWatch(job.plan->layout.ranks());
  job.links = LinkWatch(job.plan->layout.ranks());
  job.slowness_watched = SlownessOf(job);
  job.traces = TraceAssembly(job.plan->stages.size());
  job.first_step = -1;
  job.from_copies = false;
  job.replanning.began = now_;
  job.replanning.steps_done = 0;
  job.failures = 0;
  job.restart_at = Nanos(0);
  job.stop_deadline = job.yield_deadline = job.stopping_since = Nanos(0);
  job.listen_deadline = now_ + options_.listen_timeout;
  SetState(job, JobState::kStarting, kind, Makes(Mistake::kStartSilently) ? "" : reason);
  TouchNodesOf(job);
}

// The UUID that the node's agent reports. While the agent is away: the UUID it reported when the ranks `before` began.
std::string Controller::UuidOf(const DeviceRef& where, DeviceKind kind, const std::vector<RankRecord>& before) const {
  for (const Device& device : nodes_.at(where.node).agent.devices) {
    if (device.index == where.device && device.kind == kind) return device.uuid;
  }
  const auto had = std::find_if(before.begin(), before.end(), [&](const RankRecord& rank) { return rank.where == where; });
  return had != before.end() ? had->device_uuid : "";
}

void Controller::IndexRanks(Job& job) {
  job.ranks_on.clear();
  for (size_t r = 0; r < job.record.ranks.size(); ++r)
    job.ranks_on[job.record.ranks[r].where.node].push_back(static_cast<int32_t>(r));
}

void Controller::LeaveNodes(Job& job) {
  TouchNodesOf(job);
  for (const RankRecord& rank : job.record.ranks) NodeOf(rank.where.node).jobs.erase(job.record.id);
}

void Controller::EndJob(Job& job, JobState state, EventKind kind, std::string reason) {
  JobRecord& record = job.record;
  Dequeue(job);
  unfinished_.erase(record.id);
  active_.erase(record.id);
  for (const NodeId& node : record.excluded) {
    const auto unused = unused_by_.find(node);
    if (unused != unused_by_.end() && unused->second.erase(record.id) > 0 && unused->second.empty()) unused_by_.erase(unused);
  }
  EndReplanning(job);
  record.trained = job.trained_before = Trained(job);
  LeaveNodes(job);
  if (!job.ranks.empty()) record.measured = job.statistics.Measured();
  measuring_.erase(record.id);
  job.ranks.clear();
  job.peers.reset();
  job.program_text.clear();
  job.speed = {};
  job.links = {};
  if (job.plan != nullptr) job.plan = std::make_shared<const Plan>(WithoutPrograms(*job.plan));
  job.listen_deadline = job.stop_deadline = Nanos(0);
  record.stop = StopKind::kNone;
  record.stop_reason.clear();
  record.ended = wall_;
  ended_.insert({record.ended, record.submission});
  SetState(job, state, kind, reason);
  TouchHoldersOf(job);
  schedule_ = true;
}

}  // namespace lynx
