// New plans for jobs that have a plan: for fewer devices when some were lost, for more when some are free. See controller.h.
#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "server/controller/controller.h"

namespace lynx {
namespace {

constexpr Nanos kSlack{1'000'000'000};  // difference allowed between the two clocks
constexpr Nanos kHour{3'600'000'000'000};
// The step must become shorter by at least this much: predictions are not more accurate than that.
constexpr int64_t kLeastGainPercent = 5;
// Least time that a change is assumed to take. The measured start time contains neither the checkpoint nor the slow first steps
// with cold caches.
constexpr Nanos kLeastCost{5'000'000'000};
// Time for ranks to give way, in steps of the generation. After a failed checkpoint the ranks try again 20 steps later.
constexpr int64_t kStepsToYield = 30;
constexpr double kSlowDisk = 32 << 20;  // bytes per second

std::string Newcomers(const std::vector<DeviceRef>& devices, const std::vector<RankRecord>& ranks) {
  std::set<NodeId> names;
  for (const DeviceRef& device : devices) names.insert(device.node);
  for (const RankRecord& rank : ranks) names.erase(rank.where.node);
  std::string text;
  for (const NodeId& name : names) absl::StrAppend(&text, text.empty() ? "" : ", ", name.value);
  return text;
}

// Text about a plan's step time as predicted under present conditions; 0: unknown.
std::string NowText(Nanos step) {
  return step > Nanos(0) ? absl::StrCat(", which takes ", FormatDuration(step), " by what is known now") : "";
}

}  // namespace

std::string SummaryOf(const Plan& plan) {
  return absl::StrCat(LayoutText(plan.layout), " on ", plan.layout.ranks(), " devices (", plan.digest.substr(0, 12),
                      ", predicted step ", FormatDuration(plan.step), ")");
}

bool Controller::IsElastic(const Job& job) {
  const ResourceSpec& resources = job.record.spec->resources;
  return resources.min_ranks < resources.max_ranks;
}

// True if the ranks must end at once, not only give way.
bool Controller::IsStopping(const Job& job) {
  if (GivesWay(job.record.stop)) return job.stopping_since != Nanos(0);
  return job.record.stop != StopKind::kNone;
}

bool Controller::IsPlanned(const Job& job) {
  return job.record.state == JobState::kPlanning || !job.replanning.trigger.empty();
}

// The free devices for a job that starts again. `had`: its devices until now; it gets only these if another job is before it.
std::vector<NodeDevices> Controller::DevicesAgain(const Job& job, const std::vector<DeviceRef>& had) const {
  std::vector<NodeDevices> free = FreeDevices(KindOf(job), &job);
  return SomeoneIsBefore(job) ? Among(free, had) : free;
}

// For a job that cannot have all its devices any more. True: the job is now being planned for devices of `free`.
bool Controller::ReplanForLess(Job& job, const std::vector<NodeDevices>& free, const std::string& reason) {
  if (!IsElastic(job)) return false;
  std::optional<Reservation> others = Reserve(free, DemandOf(job));
  if (!others.has_value() || others->devices == job.replanning.considered) return false;
  AddEvent(job, EventKind::kReplanForced,
           absl::StrCat(reason, "; plans for ", others->devices.size(), " devices in place of ", SummaryOf(*job.plan)));
  BeginPlanning(job, *std::move(others));
  return true;
}

// True if the job may be planned again while it trains: for more devices, or because its nodes' speeds have changed.
bool Controller::MayBeReplanned(const Job& job) const {
  const JobRecord& record = job.record;
  if (record.state != JobState::kRunning || record.stop != StopKind::kNone || IsPlanned(job)) return false;
  const bool measured = record.progress.step.value > 0 && job.replanning.steps_done > 0;
  if (!measured || IsBreaking(job) || now_ < job.replanning.not_before) return false;
  const std::vector<Nanos>& changes = job.replanning.changes;
  const auto recent = std::count_if(changes.begin(), changes.end(), [&](Nanos change) { return now_ - change < kHour; });
  return recent < options_.most_replans_per_hour;
}

bool Controller::MayGrow(const Job& job) const {
  return MayBeReplanned(job) && IsElastic(job) && job.plan->layout.ranks() < job.record.spec->resources.max_ranks;
}

// Offers devices that nobody waits for to jobs that train, in the order in which these were submitted.
void Controller::LookForMore() {
  if (SomeoneWaits()) return;
  std::map<int64_t, JobId> growing;
  for (const JobId& id : active_) {
    const Job& job = jobs_.at(id);
    if (MayGrow(job)) growing[job.record.submission] = id;
  }
  for (const auto& [submission, id] : growing) {
    Job& job = jobs_.at(id);
    Demand demand = DemandOf(job);
    demand.min_ranks = std::max(demand.min_ranks, job.plan->layout.ranks() + 1);
    std::optional<Reservation> more = Reserve(FreeDevices(KindOf(job), &job), demand);
    if (!more.has_value() || more->devices == job.replanning.considered) continue;
    const std::string nodes = Newcomers(more->devices, job.record.ranks);
    job.replanning.trigger = nodes.empty() ? "devices are free" : absl::StrCat("there are free devices on ", nodes);
    AddEvent(
        job, EventKind::kReplan,
        absl::StrCat(job.replanning.trigger, "; plans for ", more->devices.size(), " devices beside ", SummaryOf(*job.plan)));
    Touch(job);
    Prepare(job, *std::move(more));
  }
}

// True if some of its ranks have lost a peer; then the generation will end.
bool Controller::IsBreaking(const Job& job) { return job.stop_deadline != Nanos(0); }

// Decides about a plan for more devices, or for changed speeds of the nodes.
void Controller::ConsiderPlan(Job& job, const PlanReady& event) {
  if (IsBreaking(job)) return KeepPlan(job, "ranks were lost while it was planned");
  const std::vector<DeviceRef> before = std::exchange(job.replanning.considered, job.reservation.devices);
  if (const auto* status = std::get_if<absl::Status>(&event.result)) {
    return KeepPlan(job, std::string(status->message()));
  }
  if (const auto* infeasible = std::get_if<Infeasible>(&event.result)) return KeepPlan(job, infeasible->reason);
  const Plan& plan = *std::get<std::shared_ptr<const Plan>>(event.result);
  if (const absl::Status programs = CheckPrograms(plan); !programs.ok()) {
    return KeepPlan(job, std::string(programs.message()));
  }
  if (const std::string why_not = WhyNot(job, plan, event.beside); !why_not.empty()) return KeepPlan(job, why_not);
  std::optional<std::vector<DeviceRef>> placement =
      PlaceRanks(plan.layout, StillThere(job.reservation.devices, KindOf(job), job));
  if (!placement.has_value()) {
    job.replanning.considered = before;
    return KeepPlan(job, "devices went away while it was planned");
  }
  GiveWay(job, event, *std::move(placement));
}

// Time to write a checkpoint if each rank writes its share to a slow disk; 0 before the first checkpoint.
Nanos Controller::CheckpointTime(const Job& job) {
  const int64_t share = job.replanning.checkpoint.value / std::max<int64_t>(1, job.plan->layout.ranks());
  return Nanos(static_cast<int64_t>(static_cast<double>(share) / kSlowDisk * 1e9));
}

// Time that the job's ranks get to give way.
Nanos Controller::YieldTime(const Job& job) const {
  return std::max(options_.yield_timeout, job.record.progress.step * kStepsToYield + CheckpointTime(job));
}

// Time without training that a change of the plan costs.
Nanos Controller::CostOfChange(const Job& job) {
  return std::max(kLeastCost, job.replanning.start_took + job.record.progress.step + CheckpointTime(job));
}

// Why the job should keep its present plan; empty: it should change. `beside`: present step time of its plan; 0: unknown.
std::string Controller::WhyNot(const Job& job, const Plan& plan, Nanos beside) const {
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

void Controller::KeepPlan(Job& job, const std::string& reason) {
  AddEvent(job, EventKind::kReplanKept, absl::StrCat("goes on as planned: ", reason));
  Touch(job);
  EndReplanning(job);
}

// The new plan is ready and its devices are reserved: asks the ranks to give way.
void Controller::GiveWay(Job& job, const PlanReady& event, std::vector<DeviceRef> placement) {
  Replanning& replanning = job.replanning;
  replanning.plan = std::get<std::shared_ptr<const Plan>>(event.result);
  replanning.cluster = event.cluster;
  replanning.placement = std::move(placement);
  std::erase_if(replanning.changes, [&](Nanos change) { return now_ - change >= kHour; });
  replanning.changes.push_back(now_);
  const std::string reason =
      absl::StrCat(replanning.trigger, ": ", SummaryOf(*replanning.plan), " replaces ", SummaryOf(*job.plan),
                   NowText(event.beside), "; a change takes about ", FormatDuration(CostOfChange(job)));
  replanning.considered.clear();  // if the change fails, there may be another attempt
  job.yield_deadline = now_ + YieldTime(job);
  BeginStop(job, StopKind::kReplan, EventKind::kReplanAdopted, reason);
}

// A rank has written the checkpoint and ends. Its peers do the same unless something prevents it. (The request may have come
// from an earlier server and may have been taken back; the rank has left in any case.)
void Controller::OnGaveWay(Job& job, int32_t rank) {
  job.ranks[static_cast<size_t>(rank)].gave_way = true;
  if (IsStopping(job)) return;
  job.yield_deadline = now_ + options_.exit_grace;
  if (GivesWay(job.record.stop)) return;
  BeginStop(job, StopKind::kReplan, std::nullopt,
            absl::StrCat("rank ", rank, " on node ", job.record.ranks[static_cast<size_t>(rank)].where.node.value,
                         " gave way to another plan"));
}

// Called when the time to give way is over and some ranks still train. If another rank has given way already, or if the reason
// is final, the remaining ranks are ended, because the generation cannot continue. Otherwise the request is taken back.
void Controller::OnYieldDeadline(Job& job) {
  job.yield_deadline = Nanos(0);
  const StopKind stop = job.record.stop;
  if (!GivesWay(stop)) return;
  const bool any = std::any_of(job.ranks.begin(), job.ranks.end(), [](const LiveRank& r) { return r.gave_way; });
  if (any || stop == StopKind::kTimeLimit || stop == StopKind::kLeave || (stop == StopKind::kMove && IsPastDeadline(job)))
    return ForceOut(job);
  TakeYieldBack(job);
}

// True if the deadline for draining one of the job's nodes is over.
bool Controller::IsPastDeadline(const Job& job) const {
  return std::any_of(job.record.ranks.begin(), job.record.ranks.end(), [&](const RankRecord& rank) {
    const auto cordon = cordons_.find(rank.where.node);
    return cordon != cordons_.end() && cordon->second.drain && cordon->second.deadline != Nanos(0) &&
           wall_ + kSlack >= cordon->second.deadline;
  });
}

// The ranks of the generation have given way, or ended otherwise after the request.
void Controller::ChangePlan(Job& job) {
  JobRecord& record = job.record;
  const std::string reason = record.stop_reason;
  if (job.replanning.plan != nullptr && !record.held) {
    const std::shared_ptr<const Plan> plan = job.replanning.plan;
    const std::shared_ptr<const ClusterTopology> cluster = job.replanning.cluster;
    const std::vector<DeviceRef> devices = job.reservation.devices;
    const std::vector<NodeDevices> free = FreeDevices(KindOf(job), &job);
    std::optional<std::vector<DeviceRef>> placement = PlaceRanks(plan->layout, Among(free, job.replanning.placement));
    if (!placement.has_value()) placement = PlaceRanksByLocality(plan->layout, free);
    EndReplanning(job);
    if (placement.has_value()) {
      SetPlan(job, plan, cluster, devices);
      return StartGeneration(job, *placement, EventKind::kReplanned, reason);
    }
  }
  // The new devices are lost, or this server never had the new plan.
  StartAgain(job, EventKind::kResuming, reason);
}

// The ranks have not given way in time: takes the request back.
void Controller::TakeYieldBack(Job& job) {
  JobRecord& record = job.record;
  const StopKind stop = std::exchange(record.stop, StopKind::kNone);
  record.stop_reason.clear();
  record.reason = "goes on as planned";
  TouchNodesOf(job);
  if (stop == StopKind::kReplan) return KeepPlan(job, "the ranks have not given way in time");
  job.spared_until = now_ + options_.yield_timeout;
  job.makes_room = false;
  AddEvent(
      job, EventKind::kGoesOn,
      absl::StrCat("the ranks have not given way in time, and are asked again in ", FormatDuration(options_.yield_timeout)));
  Touch(job);
}

void Controller::EndReplanning(Job& job) {
  if (!IsPlanned(job)) return;
  Replanning& replanning = job.replanning;
  replanning.trigger.clear();
  replanning.plan.reset();
  replanning.cluster.reset();
  replanning.placement.clear();
  replanning.not_before = now_ + options_.replan_after;
  EndPlanning(job);
}

void Controller::SetPlan(Job& job, std::shared_ptr<const Plan> plan, const std::shared_ptr<const ClusterTopology>& cluster,
                         std::vector<DeviceRef> considered) {
  job.replanning.considered = std::move(considered);
  job.plan = std::move(plan);
  job.slowness_planned = job.slowness_asked;
  job.program_text = ProgramTextOf(*job.plan);
  job.record.plan_digest = job.plan->digest;
  effects_.push_back(InsertPlan{job.record.id, job.plan, cluster});
  AddEvent(
      job, EventKind::kPlanned,
      absl::StrCat(LayoutText(job.plan->layout), ", micro-batch ", job.plan->micro_batch, ", ", job.plan->microbatches,
                   " microbatches, ", RecomputeModeName(job.plan->mode), "; predicted step ", FormatDuration(job.plan->step),
                   job.plan->measured_profile ? "" : " (from stated speeds: nothing was measured)"));
}

}  // namespace lynx
