#include "server/controller/jobs/stopping.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "server/controller/state/reason_text.h"

namespace lynx::server {
namespace {

constexpr Nanos kSlack{1'000'000'000};  // allowed difference between the monotonic clock and the wall clock
// Time for ranks to give way, as a number of steps. It is long enough for a second try: after a failed checkpoint the ranks try
// again 20 steps later.
constexpr int64_t kStepsToYield = 30;

}  // namespace

Stopping::Stopping(const Parts& parts)
    : options_(parts.options), step_(parts.step), nodes_(parts.nodes), leases_(parts.leases), logs_(parts.logs),
      devices_(parts.devices), waiting_(parts.waiting), planning_(parts.planning), memory_(parts.memory),
      generations_(parts.generations), failures_(parts.failures) {}

void Stopping::BeginStop(LiveJob& job, StopKind kind, std::optional<EventKind> event_kind, const std::string& reason) {
  LYNX_CHECK(!IsStopping(job) && kind != StopKind::kNone);
  if (kind != StopKind::kReplan) planning_.EndReplanning(job);
  job.record.stop = kind;
  job.record.stop_reason = reason;
  job.record.reason = absl::StrCat("stopping: ", reason);
  job.generation.listen_deadline = Nanos(0);
  // Ranks that are only asked to give way keep their deadlines, because they still finish a step. If a rank fails before it has
  // given way, the failure is handled like any other. In every other kind of stop, all ranks must end at once.
  if (!GivesWay(kind)) {
    job.generation.stop_deadline = job.generation.yield_deadline = Nanos(0);
    job.generation.stopping_since = step_.now();
  }
  if (event_kind) step_.AddEvent(job, *event_kind, reason);
  step_.Notify(job.record.id);
  step_.Touch(job);
  step_.TellNodesOf(job);
  CheckStopped(job);
}

void Stopping::AskToGiveWay(LiveJob& job, StopKind kind, std::optional<EventKind> event_kind, const std::string& reason,
                            Nanos deadline) {
  const bool starting = job.record.state == JobState::kStarting;
  job.generation.yield_deadline = deadline != Nanos(0) ? deadline : step_.now() + YieldTime(job);
  BeginStop(job, kind, event_kind, reason);
  if (starting && job.record.stop == kind && !IsStopping(job)) ForceOut(job);
}

// Makes the job's ranks end now, without a checkpoint.
void Stopping::ForceOut(LiveJob& job) {
  job.generation.stopping_since = step_.now();
  step_.Touch(job);
  step_.TellNodesOf(job);
  CheckStopped(job);
}

void Stopping::CheckStopped(LiveJob& job) {
  if (IsFinal(job.record.state) || job.record.stop == StopKind::kNone) return;
  for (size_t r = 0; r < job.generation.ranks.size(); ++r) {
    if (!RankGone(job, static_cast<int32_t>(r))) return;
  }
  EndGeneration(job);
}

bool Stopping::RankGone(const LiveJob& job, int32_t rank) const {
  const LiveNode* found = nodes_.Find(job.record.ranks[static_cast<size_t>(rank)].where.node);
  LYNX_CHECK(found != nullptr);
  const LiveNode& node = *found;
  if (node.lost) return true;
  if (options_.Makes(Mistake::kStartBesideOldRanks) && job.generation.stopping_since != Nanos(0) &&
      step_.now() > job.generation.stopping_since)
    return true;
  const StopKind stop = job.record.stop;
  // The rule below lets a rank count as gone although the server has not seen its end: the rank's node has been out of contact
  // for long enough, and a peer of the rank has ended. The rule is used only if another generation may follow, because only
  // then does something wait for these ranks. It is safe, because the fence of the new generation keeps out ranks of the old
  // generation that still run.
  const bool next_begins = stop != StopKind::kCancel && stop != StopKind::kTimeLimit && stop != StopKind::kLeave;
  const bool stops = next_begins && job.generation.stopping_since != Nanos(0);
  const auto ended = [&](const LiveNode& at, int32_t r) {
    if (!at.heard) return false;
    const auto seen = at.ranks.find({job.record.id, job.record.generation, r});
    return seen == at.ranks.end() || seen->second.phase == RankPhase::kExited;
  };
  if (stops && !node.worker_attached() && leases_.AwayFor(node, options_.stop_timeout, job.generation.stopping_since)) {
    // The rank can do no step without its peers, so it is enough that one of its peers has ended. But all ranks may still run
    // together, cut off from the server. Then the wait ends only when the node is lost.
    for (size_t r = 0; r < job.record.ranks.size(); ++r) {
      const LiveNode& at = nodes_.At(job.record.ranks[r].where.node);
      if (at.worker_attached() && ended(at, static_cast<int32_t>(r))) return true;
    }
  }
  return ended(node, rank);
}

void Stopping::EndGeneration(LiveJob& job) {
  JobRecord& record = job.record;
  if (record.stop == StopKind::kCancel)
    return generations_.EndJob(job, JobState::kCancelled, EventKind::kCancelled, record.stop_reason);
  const std::string with_checkpoint = absl::StrCat(
      record.stop_reason, record.checkpoint_step < 0
                              ? "; it wrote no checkpoint"
                              : absl::StrCat("; its newest checkpoint, of step ", record.checkpoint_step, ", is ",
                                             record.checkpoint_path, ", from which another job can go on (checkpoint.from)"));
  // A cancelled job ends here even if a rank failed, or the job gave way for another reason, after the cancellation.
  if (record.cancel_requested) {
    return generations_.EndJob(job, JobState::kCancelled, EventKind::kCancelled,
                               absl::StrCat(record.stop == StopKind::kLeave ? "" : "cancelled; ", with_checkpoint));
  }
  if (record.stop == StopKind::kTimeLimit)
    return generations_.EndJob(job, JobState::kFailed, EventKind::kFailed, with_checkpoint);
  if (record.stop == StopKind::kReplan) return ChangePlan(job);
  if (record.stop == StopKind::kMove) return StartAgain(job, EventKind::kMoving, record.stop_reason);
  if (record.stop == StopKind::kPreempt) {
    if (job.makes_room) ++record.preemptions;
    return generations_.Requeue(job, job.makes_room ? EventKind::kPreempted : EventKind::kHeld, record.stop_reason);
  }
  EndFailed(job);
}

// Handles the end of a generation in which a rank or a node failed.
void Stopping::EndFailed(LiveJob& job) {
  JobRecord& record = job.record;
  const std::optional<int32_t> culprit = FailureAnalysis::Culprit(job);
  if (culprit.has_value()) logs_.NoteFailure({record.id, record.generation, *culprit});
  const std::string reason = culprit.has_value() ? failures_.FailureText(job, *culprit) : record.stop_reason;
  const FaultCause cause =
      culprit.has_value() ? job.generation.ranks[static_cast<size_t>(*culprit)].cause : FaultCause::kUnknown;
  const bool out_of_memory = cause == FaultCause::kMemory;
  const bool fruitless = !out_of_memory && record.generation > Generation(1) && record.best_steps <= record.base_steps;
  const int32_t charge = record.restart_charge + (fruitless ? 2 : 1);
  // If restart_at is set, the job has been allowed to start again, and only waits for the pause to end.
  if (job.generation.restart_at == Nanos(0)) {
    const std::vector<BadNode> bad = IsOfCheck(cause) ? failures_.FoundBad(job) : std::vector<BadNode>();
    const Attributed attributed = !culprit.has_value() ? Attributed{}
                                  : bad.empty()        ? failures_.Blame(job, *culprit)
                                                       : failures_.BlameFound(job, *culprit, bad);
    if (!MayGoOn(job, culprit, attributed, reason)) return;
    failures_.NoteFailure(job, attributed.to);
    if (failures_.ExcludeFound(job, bad)) return Restart(job, reason);
    if (charge > record.spec->max_restarts) {
      record.restart_charge = charge;
      generations_.EndJob(job, JobState::kFailed, EventKind::kFailed,
                          absl::StrCat(reason, "; after ", record.restarts, " restarts the budget, max_restarts ",
                                       record.spec->max_restarts, ", is spent (a restart without a new step counts twice)"));
      return;
    }
  }
  if (!PauseIsOver(job, fruitless)) return;
  record.restart_charge = charge;
  if (out_of_memory) memory_.NoteMemoryEnds(job, *culprit);
  Restart(job, reason);
}

// Decides whether the job may start again. Returns false if a restart would not help or the job's rules forbid it; the job has
// ended then. `culprit`: the rank whose failure ended the generation.
bool Stopping::MayGoOn(LiveJob& job, std::optional<int32_t> culprit, const Attributed& attributed, const std::string& reason) {
  const JobRecord& record = job.record;
  const FailureRule* rule = culprit.has_value() ? failures_.RuleFor(job, *culprit) : nullptr;
  bool elsewhere = false, hopeless = false;  // if a rule matches, only the rule decides
  if (culprit.has_value() && rule == nullptr) {
    const LiveRank& live = job.generation.ranks[static_cast<size_t>(*culprit)];
    elsewhere = live.cause == FaultCause::kPath && failures_.MayAllow(job, *culprit);
    hopeless = !elsewhere && FailureAnalysis::WouldRefuseAgain(job, live);
  }
  const bool refused = rule != nullptr && rule->action == FailureAction::kFail;
  const bool again = rule == nullptr && attributed.again;
  if (hopeless || refused || again) {
    const std::string why =
        refused ? "; onFailure says that it is not to be tried again"
        : again ? absl::StrCat("; attributed to ", AttributionName(attributed.to), ": ", attributed.why, "; no restart helps")
                : "";
    generations_.EndJob(job, JobState::kFailed, EventKind::kFailed, absl::StrCat(reason, why));
    return false;
  }
  const auto exclude = [&](const std::string& why) {
    failures_.ExcludeNode(job, record.ranks[static_cast<size_t>(*culprit)].where.node, why);
  };
  if (rule != nullptr && rule->action == FailureAction::kExcludeNode) exclude(", as onFailure says");
  if (elsewhere) exclude(": another may let it use that path");
  return true;
}

bool Stopping::PauseIsOver(LiveJob& job, bool fruitless) {
  if (!fruitless) {
    job.fruitless = 0;
    return true;
  }
  if (job.generation.restart_at == Nanos(0)) {
    Nanos pause = options_.restart_pause;
    for (int32_t i = 0; i < job.fruitless && pause < options_.most_restart_pause; ++i) pause = pause + pause;
    job.generation.restart_at = step_.now() + std::min(pause, options_.most_restart_pause);
    ++job.fruitless;
  }
  if (step_.now() < job.generation.restart_at) return false;
  job.generation.restart_at = Nanos(0);
  return true;
}

void Stopping::Restart(LiveJob& job, const std::string& reason) {
  ++job.record.restarts;
  StartAgain(job, EventKind::kRestarting, reason);
}

// Starts the job again: on the same devices, on others, or with another plan for the devices that exist.
void Stopping::StartAgain(LiveJob& job, EventKind kind, std::string reason) {
  JobRecord& record = job.record;
  if (record.held) return generations_.Requeue(job, EventKind::kHeld, reason);
  planning_.EndReplanning(job);
  std::vector<DeviceRef> had;
  for (const RankRecord& rank : record.ranks) had.push_back(rank.where);
  const std::vector<NodeDevices> free = DevicesAgain(job, had);
  const std::optional<std::vector<DeviceRef>> placement =
      devices_.NodesServe(job) ? std::optional(had) : devices_.PlacementOn(free, job);
  const bool too_large = placement.has_value() && devices_.IsTooLarge(job, *placement);
  if (placement.has_value() && !too_large) {
    generations_.Start(job, *placement, kind, reason);
    return;
  }
  generations_.LeaveDevices(job);
  if (too_large ? memory_.PlanForLess(job, free, reason) : planning_.ReplanForLess(job, free, reason)) return;
  waiting_.Enqueue(job);
  step_.SetState(job, JobState::kQueued, kind,
                 absl::StrCat(reason, "; waits for ", job.plan->layout.ranks(),
                              devices_.KindOf(job) == DeviceKind::kCuda ? " GPUs" : " devices"));
}

// The free devices for a job that starts again. `had`: the devices that the job had until now. If another waiting job comes
// before this job, only devices of `had` are returned.
std::vector<NodeDevices> Stopping::DevicesAgain(const LiveJob& job, const std::vector<DeviceRef>& had) const {
  std::vector<NodeDevices> free = devices_.FreeDevices(devices_.KindOf(job), &job);
  return waiting_.SomeoneIsBefore(job) ? Among(free, had) : free;
}

// Called when the ranks of the generation have given way for a new plan, or have ended in another way after the request. Starts
// the job with the new plan.
void Stopping::ChangePlan(LiveJob& job) {
  JobRecord& record = job.record;
  const std::string reason = record.stop_reason;
  if (job.replanning.plan != nullptr && !record.held) {
    const std::shared_ptr<const Plan> plan = job.replanning.plan;
    const std::shared_ptr<const ClusterTopology> cluster = job.replanning.cluster;
    const std::vector<DeviceRef> devices = job.planning.reservation.devices;
    const std::vector<NodeDevices> free = devices_.FreeDevices(devices_.KindOf(job), &job);
    std::optional<std::vector<DeviceRef>> placement = job.replanning.placement;
    if (CountDevices(Among(free, *placement)) < plan->layout.ranks())
      placement = devices_.PlacementOn(free, plan->layout, PlannedKinds(cluster).get());
    planning_.EndReplanning(job);
    if (placement.has_value()) {
      planning_.SetPlan(job, plan, cluster, devices);
      return generations_.Start(job, *placement, EventKind::kReplanned, reason);
    }
  }
  // The new devices are lost, or the job is held now, or this server does not have the new plan because an earlier server asked
  // the ranks to give way.
  StartAgain(job, EventKind::kResuming, reason);
}

Nanos Stopping::YieldTime(const LiveJob& job) const {
  return std::max(options_.yield_timeout, job.record.progress.step * kStepsToYield + CheckpointTime(job));
}

void Stopping::OnYieldDeadline(LiveJob& job) {
  job.generation.yield_deadline = Nanos(0);
  const StopKind stop = job.record.stop;
  if (!GivesWay(stop)) return;
  const bool any =
      std::any_of(job.generation.ranks.begin(), job.generation.ranks.end(), [](const LiveRank& r) { return r.gave_way; });
  if (any || stop == StopKind::kTimeLimit || stop == StopKind::kLeave || (stop == StopKind::kMove && IsPastDeadline(job)))
    return ForceOut(job);
  TakeYieldBack(job);
}

bool Stopping::IsPastDeadline(const LiveJob& job) const {
  return std::any_of(job.record.ranks.begin(), job.record.ranks.end(), [&](const RankRecord& rank) {
    const auto cordon = nodes_.cordons().find(rank.where.node);
    return cordon != nodes_.cordons().end() && cordon->second.drain && cordon->second.deadline != Nanos(0) &&
           step_.wall() + kSlack >= cordon->second.deadline;
  });
}

// The ranks have not given way in time: takes the request back.
void Stopping::TakeYieldBack(LiveJob& job) {
  JobRecord& record = job.record;
  const StopKind stop = std::exchange(record.stop, StopKind::kNone);
  record.stop_reason.clear();
  record.reason = "goes on as planned";
  step_.TellNodesOf(job);
  if (stop == StopKind::kReplan) return planning_.KeepPlan(job, "the ranks have not given way in time");
  job.spared_until = step_.now() + options_.yield_timeout;
  job.makes_room = false;
  step_.AddEvent(
      job, EventKind::kGoesOn,
      absl::StrCat("the ranks have not given way in time, and are asked again in ", FormatDuration(options_.yield_timeout)));
  step_.Touch(job);
}

}  // namespace lynx::server
