// Requests of people and time limits for jobs: hold, release, cordon, drain, end. See controller.h.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "server/controller/controller.h"
#include "server/controller/reason_text.h"

namespace lynx {

void Controller::RestoreSettings(Settings settings) {
  if (!Makes(Mistake::kForgetCordons)) cordons_ = std::move(settings.cordons);
  for (QueueConfig& queue : settings.queues) queues_[queue.name] = std::move(queue);
  for (const NodeId& name : settings.nodes) NodeOf(name).known = true;
}

void Controller::OnHold(const HoldRequested& event) {
  Job* job = FindJob(event.job);
  if (job == nullptr || IsFinal(job->record.state)) {
    effects_.push_back(Reply{event.request,
                             job == nullptr
                                 ? absl::NotFoundError(absl::StrCat("no job ", event.job.value))
                                 : absl::FailedPreconditionError(absl::StrCat("job ", event.job.value, " has ended: it is ",
                                                                              JobStateName(job->record.state))),
                             event.job});
    return;
  }
  effects_.push_back(Reply{event.request, absl::OkStatus(), event.job});
  JobRecord& record = job->record;
  if (record.held) return;
  record.held = true;
  const std::string reason = event.reason.empty() ? "held on request" : absl::StrCat("held: ", event.reason);
  if (record.state == JobState::kPlanning) {
    job->speculative = false;
    EndPlanning(*job);
    Enqueue(*job);
    SetState(*job, JobState::kQueued, EventKind::kHeld, reason);
  } else if (record.state == JobState::kQueued) {
    SetReady(*job);
    record.expected_start = Nanos(0);
    AddEvent(*job, EventKind::kHeld, reason);
    Touch(*job);
  } else {
    Touch(*job);
    if (record.stop == StopKind::kNone) AskToGiveWay(*job, StopKind::kPreempt, EventKind::kHeld, reason);
    return;
  }
  SetPending(*job, WhyNotReady(*job));
  schedule_ = true;
}

void Controller::OnRelease(const ReleaseRequested& event) {
  Job* job = FindJob(event.job);
  const absl::Status known = job != nullptr ? absl::OkStatus() : absl::NotFoundError(absl::StrCat("no job ", event.job.value));
  effects_.push_back(Reply{event.request, known, event.job});
  if (job == nullptr || !job->record.held || IsFinal(job->record.state)) return;
  job->record.held = false;
  AddEvent(*job, EventKind::kReleased, "released on request");
  Touch(*job);
  if (job->record.state != JobState::kQueued) return;  // it is giving way and will be queued afterwards
  SetReady(*job);
  SetPending(*job, WhyNotReady(*job));
  schedule_ = true;
}

// A cordon stays however long the node is away, even if the node has not come yet; only people remove it.
void Controller::OnCordon(const CordonRequested& event) {
  const auto known = cordons_.find(event.node);
  if (event.cordon.has_value() && known == cordons_.end() && cordons_.size() >= options_.max_nodes) {
    effects_.push_back(
        Reply{event.request,
              absl::ResourceExhaustedError(absl::StrCat("the server has ", cordons_.size(),
                                                        " cordoned nodes, its limit; 'lynxctl nodes' shows them, "
                                                        "and 'lynxctl node uncordon' takes those out that are gone for good")),
              JobId()});
    return;
  }
  effects_.push_back(Reply{event.request, absl::OkStatus(), JobId()});
  if (!event.cordon.has_value()) {
    if (known == cordons_.end()) return;
    cordons_.erase(known);
    effects_.push_back(PutCordon{event.node, std::nullopt});
    schedule_ = true;
    StopMoving(event.node);
    return;
  }
  Cordon cordon = *event.cordon;
  cordon.since = known == cordons_.end() ? wall_ : known->second.since;
  cordons_[event.node] = cordon;
  effects_.push_back(PutCordon{event.node, cordon});
  schedule_ = true;
  StopMoving(event.node);
  const auto node = nodes_.find(event.node);
  if (node == nodes_.end()) return;
  const std::set<JobId> jobs = node->second.jobs;
  for (const JobId& id : jobs) CheckRequests(jobs_.at(id));
}

// Takes back the request of an earlier call that jobs leave the node, unless some of their ranks have already left.
void Controller::StopMoving(const NodeId& name) {
  const auto node = nodes_.find(name);
  if (node == nodes_.end()) return;
  for (const JobId& id : node->second.jobs) {
    Job& job = jobs_.at(id);
    job.spared_until = Nanos(0);
    const bool left = std::any_of(job.ranks.begin(), job.ranks.end(), [](const LiveRank& rank) { return rank.gave_way; });
    if (job.record.stop != StopKind::kMove || IsStopping(job) || left) continue;
    job.record.stop = StopKind::kNone;
    job.record.stop_reason.clear();
    job.record.reason = "goes on as planned";
    job.yield_deadline = Nanos(0);
    Touch(job);
    TouchNodesOf(job);
  }
}

void Controller::OnQueue(const QueueRequested& event) {
  effects_.push_back(Reply{event.request, absl::OkStatus(), JobId()});
  queues_[event.queue.name] = event.queue;
  effects_.push_back(PutQueue{event.queue});
  schedule_ = true;
}

Nanos Controller::Trained(const Job& job) const {
  return job.record.ranks.empty() ? job.trained_before : job.trained_before + (now_ - job.replanning.began);
}

// Asks a job that has ranks to give way if there is a reason, unless it is already leaving.
void Controller::CheckRequests(Job& job) {
  const JobRecord& record = job.record;
  const bool placed = record.state == JobState::kRunning || record.state == JobState::kStarting;
  if (!placed || record.stop != StopKind::kNone || (now_ < job.spared_until && !IsPastDeadline(job))) return;
  const Nanos limit = record.spec->scheduling.time_limit;
  if (limit > Nanos(0) && Trained(job) >= limit) {
    return AskToGiveWay(job, StopKind::kTimeLimit, EventKind::kTimeLimit,
                        absl::StrCat("its time limit of ", FormatDuration(limit), " is over"));
  }
  if (record.cancel_requested) return AskToGiveWay(job, StopKind::kLeave, EventKind::kLeaving, "cancelled on request");
  if (record.held) return AskToGiveWay(job, StopKind::kPreempt, EventKind::kHeld, "is held");
  for (const RankRecord& rank : record.ranks) {
    const auto cordon = cordons_.find(rank.where.node);
    if (cordon == cordons_.end() || !cordon->second.drain) continue;
    const std::string reason = cordon->second.reason.empty() ? "" : absl::StrCat(": ", cordon->second.reason);
    const Nanos deadline = cordon->second.deadline;
    return AskToGiveWay(job, StopKind::kMove, EventKind::kDraining,
                        absl::StrCat("node ", rank.where.node.value, " is drained", reason),
                        deadline == Nanos(0) ? Nanos(0) : now_ + std::max(Nanos(1), deadline - wall_));
  }
}

// Asks the ranks to give way. If the job trains, they write a checkpoint first; if it is only starting, there is nothing to
// save and they end at once. `deadline`: monotonic; ranks that have not given way by then are ended. 0: the usual time limit.
void Controller::AskToGiveWay(Job& job, StopKind kind, std::optional<EventKind> event_kind, const std::string& reason,
                              Nanos deadline) {
  const bool starting = job.record.state == JobState::kStarting;
  job.yield_deadline = deadline != Nanos(0) ? deadline : now_ + YieldTime(job);
  BeginStop(job, kind, event_kind, reason);
  if (starting && job.record.stop == kind && !IsStopping(job)) ForceOut(job);
}

// Ends the job's ranks now.
void Controller::ForceOut(Job& job) {
  job.stopping_since = now_;
  Touch(job);
  TouchNodesOf(job);
  CheckStopped(job);
}

// Releases the devices of a generation that is over.
void Controller::LeaveDevices(Job& job) {
  job.trained_before = Trained(job);
  LeaveNodes(job);
  job.makes_room = false;
  job.record.ranks.clear();
  job.record.stop = StopKind::kNone;
  job.record.stop_reason.clear();
  job.ranks.clear();
  job.peers.reset();
  job.listen_deadline = job.stop_deadline = job.yield_deadline = job.stopping_since = Nanos(0);
  schedule_ = true;
}

void Controller::Requeue(Job& job, EventKind kind, std::string reason) {
  EndReplanning(job);
  LeaveDevices(job);
  Enqueue(job);
  SetState(job, JobState::kQueued, kind, reason);
  SetPending(job, job.record.pending);
}

}  // namespace lynx
