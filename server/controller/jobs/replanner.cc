#include "server/controller/jobs/replanner.h"

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/controller/state/reason_text.h"

namespace lynx::server {
namespace {

constexpr Nanos kHour{3'600'000'000'000};
// A new plan is used only if it makes the step at least this much shorter. A smaller gain may be an error of the prediction.
constexpr int64_t kLeastGainPercent = 5;

std::string Newcomers(const std::vector<DeviceRef>& devices, const std::vector<RankRecord>& ranks) {
  std::set<NodeId> names;
  for (const DeviceRef& device : devices) names.insert(device.node);
  for (const RankRecord& rank : ranks) names.erase(rank.where.node);
  std::string text;
  for (const NodeId& name : names) absl::StrAppend(&text, text.empty() ? "" : ", ", name.value);
  return text;
}

// A part of a sentence with the step time of the present plan, as predicted under present conditions. `step`: this time; 0:
// unknown, and the text is empty.
std::string NowText(Nanos step) {
  return step > Nanos(0) ? absl::StrCat(", which takes ", FormatDuration(step), " by what is known now") : "";
}

}  // namespace

Replanner::Replanner(const Parts& parts)
    : options_(parts.options), step_(parts.step), jobs_(parts.jobs), nodes_(parts.nodes), devices_(parts.devices),
      waiting_(parts.waiting), planning_(parts.planning), memory_(parts.memory), generations_(parts.generations),
      stopping_(parts.stopping) {}

void Replanner::OnPlanReady(const PlanReady& event) {
  LiveJob* job = jobs_.Find(event.job);
  const bool awaited = job != nullptr && IsPlanned(*job) && job->planning.asked && job->planning.attempt == event.attempt;
  if (!awaited || job->replanning.plan != nullptr) return;
  const auto* made = std::get_if<std::shared_ptr<const Plan>>(&event.result);
  if (made != nullptr && !IsBreaking(*job) && planning_.MeasureFor(*job, **made)) return;
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
  if (const absl::Status programs = planning_.CheckPrograms(*plan); !programs.ok()) {
    PlanRefused(*job, std::string(programs.message()));
    return;
  }
  Place(*job, plan, event);
}

// The devices for the ranks of the new plan, by rank, among those that are reserved for the job: exactly those that the plan
// was made for, unless the job cannot use some of them any more. nullopt: too few are left.
std::optional<std::vector<DeviceRef>> Replanner::PlacementOf(const LiveJob& job, const Plan& plan,
                                                             const PlanReady& event) const {
  const DeviceKind kind = devices_.KindOf(job);
  const std::vector<NodeDevices> planned = NodesOf(InNodeOrder(job.planning.reservation, event.node_order));
  std::optional<std::vector<DeviceRef>> placement = PlaceRanks(plan.layout, planned);
  const bool there =
      placement.has_value() && CountDevices(devices_.StillThere(*placement, kind, job)) == std::ssize(*placement);
  if (there) return placement;
  return devices_.PlacementOn(devices_.StillThere(job.planning.reservation.devices, kind, job), plan.layout,
                              PlannedKinds(event.cluster).get());
}

// Places the job on the devices that were reserved for it, or on others if some of the reserved devices cannot be used any
// more. If there are too few devices, the job waits in the queue again. If the job was planned speculatively, it keeps the plan
// and waits.
void Replanner::Place(LiveJob& job, std::shared_ptr<const Plan> plan, const PlanReady& event) {
  const std::vector<DeviceRef> reserved = job.planning.reservation.devices;
  const DeviceKind kind = devices_.KindOf(job);
  std::optional<std::vector<DeviceRef>> placement = PlacementOf(job, *plan, event);
  planning_.EndPlanning(job);
  if (!placement.has_value())
    placement = devices_.PlacementOn(devices_.FreeDevices(kind, &job), plan->layout, PlannedKinds(event.cluster).get());
  const bool speculative = std::exchange(job.planning.speculative, false);
  if (!placement.has_value()) {
    job.planning.tried_kind = DeviceKind::kAny;  // there may be enough devices of another kind
    waiting_.Enqueue(job);
    step_.SetState(job, JobState::kQueued, EventKind::kQueued,
                   absl::StrCat("devices on ", NodeNames(reserved), " went away while the job was planned"));
    return;
  }
  if (job.planning.tried_kind != DeviceKind::kAny) job.record.device_kind = job.planning.tried_kind;
  const bool less_memory = std::exchange(job.memory.is_short, false);
  const std::string change = less_memory ? memory_.ReplacedText(job, *plan) : "";
  planning_.SetPlan(job, plan, event.cluster, reserved);
  if (speculative) {
    waiting_.Enqueue(job);
    step_.SetState(job, JobState::kQueued, EventKind::kQueued,
                   absl::StrCat("takes about ", FormatDuration(Remaining(job, step_.now())),
                                "; passes those before it if it ends before they begin"));
    return;
  }
  const std::string where = absl::StrCat(plan->layout.ranks(), " ranks on ", NodeNames(*placement));
  generations_.Start(job, *placement, less_memory ? EventKind::kReplanned : EventKind::kPlaced,
                     less_memory ? absl::StrCat(change, "; ", where) : where);
}

// Called when the planner found no plan for the reserved devices. A job that ran out of memory is planned with higher limits,
// or fails. A job that has a plan waits for other devices. Any other job waits if the attached nodes have more devices than
// were tried; otherwise it fails, because waiting does not help and would hold up the jobs behind it.
void Replanner::PlanRefused(LiveJob& job, const std::string& reason) {
  const int32_t tried = static_cast<int32_t>(job.planning.reservation.devices.size());
  std::vector<DeviceRef> devices = job.planning.reservation.devices;
  planning_.EndPlanning(job);
  job.planning.speculative = false;
  if (job.memory.is_short) return memory_.PlanForMore(job, reason) ? void() : FailForMemory(job, reason);
  if (job.plan != nullptr) {  // the job waits for the devices of its plan, or for others than these
    job.replanning.considered = std::move(devices);
    waiting_.Enqueue(job);
    step_.SetState(job, JobState::kQueued, EventKind::kQueued,
                   absl::StrCat("no plan for the ", CountText(tried, devices_.KindOf(job)), " that are left (", reason,
                                "); waits for more"));
    return;
  }
  job.planning.min_devices = tried + 1;
  // Nodes that are not used together because the rate of their network is not known are included, too: the job waits for them,
  // and says so.
  const auto attached = AllTogether(devices_.AttachedDevices(devices_.KindOf(job), DevicePool::Cordoned::kIncluded));
  if (!Reserve(attached, devices_.DemandOf(job)).has_value()) {
    generations_.EndJob(job, JobState::kFailed, EventKind::kFailed, reason);
    return;
  }
  waiting_.Enqueue(job);
  step_.SetState(job, JobState::kQueued, EventKind::kQueued,
                 absl::StrCat("no plan for the ", CountText(tried, devices_.KindOf(job)), " that were free (", reason,
                              "); waits for more"));
}

// Ends the job as failed: no plan fits into the memory, so a restart would not help.
void Replanner::FailForMemory(LiveJob& job, const std::string& reason) {
  std::string limits;
  for (const MemoryLimit& limit : job.record.memory_limits) {
    absl::StrAppend(&limits, limits.empty() ? "" : ", ", limit.times, limit.times == 1 ? " time" : " times",
                    " on devices of model ", limit.device_model, ", which count as having ", FormatBytes(limit.limit));
  }
  planning_.EndPlanning(job);
  generations_.EndJob(
      job, JobState::kFailed, EventKind::kFailed,
      absl::StrCat("ran out of memory ", limits, ", and no plan fits that: ", reason,
                   "; free memory on these nodes, or give the job more ranks, a smaller train.microBatch or model.seq"));
}

// Decides about a plan for more devices, or for changed speeds of the nodes.
void Replanner::ConsiderPlan(LiveJob& job, const PlanReady& event) {
  if (IsBreaking(job)) return planning_.KeepPlan(job, "ranks were lost while it was planned");
  const std::vector<DeviceRef> before = std::exchange(job.replanning.considered, job.planning.reservation.devices);
  if (const auto* status = std::get_if<absl::Status>(&event.result)) {
    return planning_.KeepPlan(job, std::string(status->message()));
  }
  if (const auto* infeasible = std::get_if<Infeasible>(&event.result)) return planning_.KeepPlan(job, infeasible->reason);
  const Plan& plan = *std::get<std::shared_ptr<const Plan>>(event.result);
  if (const absl::Status programs = planning_.CheckPrograms(plan); !programs.ok()) {
    return planning_.KeepPlan(job, std::string(programs.message()));
  }
  if (const std::string why_not = WhyNot(job, plan, event.beside); !why_not.empty()) return planning_.KeepPlan(job, why_not);
  std::optional<std::vector<DeviceRef>> placement = PlacementOf(job, plan, event);
  if (!placement.has_value()) {
    job.replanning.considered = before;
    return planning_.KeepPlan(job, "devices went away while it was planned");
  }
  GiveWay(job, event, *std::move(placement));
}

// The reason why the job should keep its present plan; empty: it should change to `plan`. `beside`: step time of the present
// plan, predicted for present conditions; 0: unknown.
std::string Replanner::WhyNot(const LiveJob& job, const Plan& plan, Nanos beside) const {
  const JobRecord& record = job.record;
  const double now = beside > Nanos(0) ? static_cast<double>(beside.value)
                                       : static_cast<double>(job.plan->step.value) * SlowedSincePlanned(job);
  const double then = static_cast<double>(plan.step.value);
  const std::string text =
      absl::StrCat("the best found now is ", SummaryOf(plan), ", beside its own ", SummaryOf(*job.plan), NowText(beside));
  if (then * 100 > now * (100 - kLeastGainPercent)) {
    return absl::StrCat(text, ": a step would not become ", kLeastGainPercent, "% shorter");
  }
  // The saving is computed from the measured step time, because the predicted times may both be wrong by the same factor.
  const int64_t left = record.spec->train.steps - job.replanning.steps_done;
  const double gain = static_cast<double>(record.progress.step.value) * (1 - then / now) * static_cast<double>(left);
  const Nanos cost = CostOfChange(job);
  if (gain <= 2 * static_cast<double>(cost.value)) {
    return absl::StrCat(text, ": the ", FormatDuration(Nanos(static_cast<int64_t>(gain))), " that it would save in the ", left,
                        " steps left do not pay for a change of about ", FormatDuration(cost));
  }
  return "";
}

// The new plan is ready and its devices are reserved: asks the ranks to give way.
void Replanner::GiveWay(LiveJob& job, const PlanReady& event, std::vector<DeviceRef> placement) {
  Replanning& replanning = job.replanning;
  replanning.plan = std::get<std::shared_ptr<const Plan>>(event.result);
  replanning.cluster = event.cluster;
  replanning.placement = std::move(placement);
  std::erase_if(replanning.changes, [&](Nanos change) { return step_.now() - change >= kHour; });
  replanning.changes.push_back(step_.now());
  const std::string reason =
      absl::StrCat(replanning.trigger, ": ", SummaryOf(*replanning.plan), " replaces ", SummaryOf(*job.plan),
                   NowText(event.beside), "; a change takes about ", FormatDuration(CostOfChange(job)));
  replanning.considered.clear();  // cleared, so that there may be another attempt if the change fails
  job.generation.yield_deadline = step_.now() + stopping_.YieldTime(job);
  stopping_.BeginStop(job, StopKind::kReplan, EventKind::kReplanAdopted, reason);
}

bool Replanner::MayBeReplanned(const LiveJob& job) const {
  const JobRecord& record = job.record;
  if (record.state != JobState::kRunning || record.stop != StopKind::kNone || IsPlanned(job)) return false;
  const bool measured = record.progress.step.value > 0 && job.replanning.steps_done > 0;
  if (!measured || IsBreaking(job) || step_.now() < job.replanning.not_before) return false;
  const std::vector<Nanos>& changes = job.replanning.changes;
  const auto recent = std::count_if(changes.begin(), changes.end(), [&](Nanos change) { return step_.now() - change < kHour; });
  return recent < options_.most_replans_per_hour;
}

bool Replanner::MayGrow(const LiveJob& job) const {
  return MayBeReplanned(job) && IsElastic(job) && job.plan->layout.ranks() < job.record.spec->resources.max_ranks;
}

void Replanner::LookForMore() {
  if (waiting_.SomeoneWaits()) return;
  std::map<int64_t, JobId> growing;
  for (const JobId& id : jobs_.active()) {
    const LiveJob& job = jobs_.At(id);
    if (MayGrow(job)) growing[job.record.submission] = id;
  }
  for (const auto& [submission, id] : growing) {
    LiveJob& job = jobs_.At(id);
    Demand demand = devices_.DemandOf(job);
    demand.min_ranks = std::max(demand.min_ranks, job.plan->layout.ranks() + 1);
    std::optional<Reservation> more = Reserve(devices_.FreeDevices(devices_.KindOf(job), &job), demand);
    if (!more.has_value() || more->devices == job.replanning.considered) continue;
    const std::string nodes = Newcomers(more->devices, job.record.ranks);
    job.replanning.trigger = nodes.empty() ? "devices are free" : absl::StrCat("there are free devices on ", nodes);
    step_.AddEvent(
        job, EventKind::kReplan,
        absl::StrCat(job.replanning.trigger, "; plans for ", more->devices.size(), " devices beside ", SummaryOf(*job.plan)));
    step_.Touch(job);
    planning_.Prepare(job, *std::move(more));
  }
}

// The factor by which a step of the present plan now takes longer than predicted. It is the factor of the node that has slowed
// down most since the plan was made.
double Replanner::SlowedSincePlanned(const LiveJob& job) const {
  double most = 1;
  for (const auto& [name, slowness] : nodes_.SlownessOf(job)) {
    const auto planned = job.drift.slowness_planned.find(name);
    most = std::max(most, slowness.compute / (planned == job.drift.slowness_planned.end() ? 1 : planned->second));
  }
  return most;
}

}  // namespace lynx::server
