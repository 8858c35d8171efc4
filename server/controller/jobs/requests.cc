#include "server/controller/jobs/requests.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "common/status.h"
#include "server/values/access.h"

namespace lynx::server {

Requests::Requests(const Parts& parts)
    : options_(parts.options), step_(parts.step), jobs_(parts.jobs), nodes_(parts.nodes), devices_(parts.devices),
      waiting_(parts.waiting), measurements_(parts.measurements), planning_(parts.planning), generations_(parts.generations),
      stopping_(parts.stopping) {}

void Requests::OnSubmitted(const JobSubmitted& event) {
  if (const LiveJob* known = jobs_.WithKey(event.idempotency_key); known != nullptr && !options_.Makes(Mistake::kForgetKeys)) {
    const JobRecord& earlier = known->record;
    if (earlier.owner != event.owner && event.owner != kLocalUser) {
      step_.Emit(Reply{event.request,
                       absl::AlreadyExistsError(absl::StrCat("idempotency key \"", event.idempotency_key,
                                                             "\" was used by another user; use a new key")),
                       JobId()});
      return;
    }
    absl::Status status;
    if (earlier.spec_digest != event.spec_digest) {
      status = absl::AlreadyExistsError(absl::StrCat("idempotency key \"", event.idempotency_key, "\" was used for job ",
                                                     earlier.id.value, " with another spec; use a new key for a new job"));
    }
    step_.Emit(Reply{event.request, status, earlier.id, true});
    return;
  }
  if (static_cast<int64_t>(jobs_.unfinished().size()) >= options_.max_unfinished_jobs) {
    step_.Emit(Reply{event.request,
                     absl::ResourceExhaustedError(absl::StrCat("the server holds ", jobs_.unfinished().size(),
                                                               " jobs that have not ended, its limit; "
                                                               "submit again when some have")),
                     JobId(), false});
    return;
  }
  std::vector<JobId> waits_for;
  if (const absl::Status dependencies = ResolveDependencies(event, waits_for); !dependencies.ok()) {
    step_.Emit(Reply{event.request, dependencies, JobId(), false});
    return;
  }
  JobRecord record{.id = event.id,
                   .submission = jobs_.NextSubmission(),
                   .owner = event.owner,
                   .idempotency_key = event.idempotency_key,
                   .spec = std::make_shared<const JobSpec>(event.spec),
                   .spec_digest = event.spec_digest,
                   .reason = "waits for its turn",
                   .submitted = step_.wall(),
                   .held = event.spec.scheduling.hold,
                   .waits_for = std::move(waits_for)};
  LiveJob& job = jobs_.Add(std::move(record), step_.wall());
  waiting_.Enqueue(job);
  waiting_.SetPending(job, job.record.pending);
  step_.Emit(InsertJob{job.record});
  step_.AddEvent(job, EventKind::kSubmitted, job.record.reason);
  step_.Touch(job);
  step_.Emit(Reply{event.request, absl::OkStatus(), event.id, false});
  step_.LookAtQueue();
}

// Fills `waits_for` with the dependencies that have not succeeded yet.
absl::Status Requests::ResolveDependencies(const JobSubmitted& event, std::vector<JobId>& waits_for) const {
  for (const std::string& name : event.spec.scheduling.after) {
    if (options_.Makes(Mistake::kForgetDependencies)) break;
    const absl::StatusOr<JobId> id = jobs_.Resolve(name, event.owner);
    if (!id.ok()) return Annotate(id.status(), "scheduling.after");
    const JobRecord& other = jobs_.At(*id).record;
    if (other.state == JobState::kSucceeded) continue;
    if (IsFinal(other.state)) {
      return absl::FailedPreconditionError(absl::StrCat("scheduling.after: job ", name, " (", id->value, ") is ",
                                                        EnumName(other.state), ", so this one would never begin"));
    }
    waits_for.push_back(*id);
  }
  return absl::OkStatus();
}

void Requests::OnSubmissionLost(const SubmissionLost& event) {
  LiveJob* job = jobs_.Find(event.job);
  if (job == nullptr) return;
  LYNX_CHECK(job->record.ranks.empty());
  waiting_.Dequeue(*job);
  jobs_.Remove(event.job);
  step_.Forget(event.job);
  measurements_.Forget(event.job);
  step_.LookAtQueue();
}

void Requests::OnCancel(const CancelRequested& event) {
  LiveJob* job = jobs_.Find(event.job);
  if (job == nullptr) {
    step_.Emit(Reply{event.request, absl::NotFoundError(absl::StrCat("no job ", event.job.value)), event.job});
    return;
  }
  step_.Emit(Reply{event.request, absl::OkStatus(), event.job});
  // If the first request asked the job to write a checkpoint before it ends, a second request can still end the job at once.
  const bool asked = job->record.cancel_requested;
  if (IsFinal(job->record.state) || (asked && (event.checkpoint || job->record.stop == StopKind::kCancel))) return;
  job->record.cancel_requested = true;
  const std::string reason = event.reason.empty() ? "cancelled on request" : absl::StrCat("cancelled: ", event.reason);
  if (job->record.state == JobState::kQueued || job->record.state == JobState::kPlanning) {
    planning_.EndPlanning(*job);
    generations_.EndJob(*job, JobState::kCancelled, EventKind::kCancelled, reason);
    return;
  }
  if (!IsStopping(*job) && event.checkpoint) {
    const Nanos deadline = event.grace > Nanos(0) ? step_.now() + event.grace : Nanos(0);
    return stopping_.AskToGiveWay(*job, StopKind::kLeave, EventKind::kLeaving, reason, deadline);
  }
  if (!IsStopping(*job)) {
    stopping_.BeginStop(*job, StopKind::kCancel, std::nullopt, reason);
    return;
  }
  job->record.stop = StopKind::kCancel;
  job->record.stop_reason = reason;
  job->record.reason = absl::StrCat("stopping: ", reason);
  step_.Notify(event.job);
  step_.Touch(*job);
}

void Requests::OnHold(const HoldRequested& event) {
  LiveJob* job = jobs_.Find(event.job);
  if (job == nullptr || IsFinal(job->record.state)) {
    step_.Emit(Reply{event.request,
                     job == nullptr ? absl::NotFoundError(absl::StrCat("no job ", event.job.value))
                                    : absl::FailedPreconditionError(absl::StrCat("job ", event.job.value, " has ended: it is ",
                                                                                 EnumName(job->record.state))),
                     event.job});
    return;
  }
  step_.Emit(Reply{event.request, absl::OkStatus(), event.job});
  JobRecord& record = job->record;
  if (record.held) return;
  record.held = true;
  const std::string reason = event.reason.empty() ? "held on request" : absl::StrCat("held: ", event.reason);
  if (record.state == JobState::kPlanning) {
    job->planning.speculative = false;
    planning_.EndPlanning(*job);
    waiting_.Enqueue(*job);
    step_.SetState(*job, JobState::kQueued, EventKind::kHeld, reason);
  } else if (record.state == JobState::kQueued) {
    waiting_.SetReady(*job);
    record.expected_start = Nanos(0);
    step_.AddEvent(*job, EventKind::kHeld, reason);
    step_.Touch(*job);
  } else {
    step_.Touch(*job);
    if (record.stop == StopKind::kNone) stopping_.AskToGiveWay(*job, StopKind::kPreempt, EventKind::kHeld, reason);
    return;
  }
  waiting_.SetPending(*job, waiting_.WhyNotReady(*job));
  step_.LookAtQueue();
}

void Requests::OnRelease(const ReleaseRequested& event) {
  LiveJob* job = jobs_.Find(event.job);
  const absl::Status known = job != nullptr ? absl::OkStatus() : absl::NotFoundError(absl::StrCat("no job ", event.job.value));
  step_.Emit(Reply{event.request, known, event.job});
  if (job == nullptr || !job->record.held || IsFinal(job->record.state)) return;
  job->record.held = false;
  step_.AddEvent(*job, EventKind::kReleased, "released on request");
  step_.Touch(*job);
  if (job->record.state != JobState::kQueued) return;  // the job's ranks are giving way, and the job will be queued afterwards
  waiting_.SetReady(*job);
  waiting_.SetPending(*job, waiting_.WhyNotReady(*job));
  step_.LookAtQueue();
}

void Requests::OnCordon(const CordonRequested& event) {
  const auto known = nodes_.cordons().find(event.node);
  if (event.cordon.has_value() && known == nodes_.cordons().end() && nodes_.cordons().size() >= options_.max_nodes) {
    step_.Emit(
        Reply{event.request,
              absl::ResourceExhaustedError(absl::StrCat("the server has ", nodes_.cordons().size(),
                                                        " cordoned nodes, its limit; 'lynxctl nodes' shows them, "
                                                        "and 'lynxctl node uncordon' takes those out that are gone for good")),
              JobId()});
    return;
  }
  step_.Emit(Reply{event.request, absl::OkStatus(), JobId()});
  if (!event.cordon.has_value()) {
    if (known == nodes_.cordons().end()) return;
    nodes_.SetCordon(event.node, std::nullopt);
    step_.Emit(PutCordon{event.node, std::nullopt});
    step_.LookAtQueue();
    StopMoving(event.node);
    return;
  }
  Cordon cordon = *event.cordon;
  cordon.since = known == nodes_.cordons().end() ? step_.wall() : known->second.since;
  nodes_.SetCordon(event.node, cordon);
  step_.Emit(PutCordon{event.node, cordon});
  step_.LookAtQueue();
  StopMoving(event.node);
  const LiveNode* node = nodes_.Find(event.node);
  if (node == nullptr) return;
  const std::set<JobId> jobs = node->jobs;
  for (const JobId& id : jobs) Check(jobs_.At(id));
}

// Called when a drain has ended or changed. Jobs that were asked to leave the node stay, except those of which a rank has
// already given way.
void Requests::StopMoving(const NodeId& name) {
  const LiveNode* node = nodes_.Find(name);
  if (node == nullptr) return;
  for (const JobId& id : node->jobs) {
    LiveJob& job = jobs_.At(id);
    job.spared_until = Nanos(0);
    const bool left = std::any_of(job.generation.ranks.begin(), job.generation.ranks.end(),
                                  [](const LiveRank& rank) { return rank.gave_way; });
    if (job.record.stop != StopKind::kMove || IsStopping(job) || left) continue;
    job.record.stop = StopKind::kNone;
    job.record.stop_reason.clear();
    job.record.reason = "goes on as planned";
    job.generation.yield_deadline = Nanos(0);
    step_.Touch(job);
    step_.TellNodesOf(job);
  }
}

void Requests::OnQueue(const QueueRequested& event) {
  step_.Emit(Reply{event.request, absl::OkStatus(), JobId()});
  devices_.SetQueue(event.queue);
  step_.Emit(PutQueue{event.queue});
  step_.LookAtQueue();
}

void Requests::Check(LiveJob& job) {
  const JobRecord& record = job.record;
  const bool placed = record.state == JobState::kRunning || record.state == JobState::kStarting;
  if (!placed || record.stop != StopKind::kNone || (step_.now() < job.spared_until && !stopping_.IsPastDeadline(job))) return;
  const Nanos limit = record.spec->scheduling.time_limit;
  if (limit > Nanos(0) && TrainedBy(job, step_.now()) >= limit) {
    return stopping_.AskToGiveWay(job, StopKind::kTimeLimit, EventKind::kTimeLimit,
                                  absl::StrCat("its time limit of ", FormatDuration(limit), " is over"));
  }
  if (record.cancel_requested)
    return stopping_.AskToGiveWay(job, StopKind::kLeave, EventKind::kLeaving, "cancelled on request");
  if (record.held) return stopping_.AskToGiveWay(job, StopKind::kPreempt, EventKind::kHeld, "is held");
  for (const RankRecord& rank : record.ranks) {
    const auto cordon = nodes_.cordons().find(rank.where.node);
    if (cordon == nodes_.cordons().end() || !cordon->second.drain) continue;
    const std::string reason = cordon->second.reason.empty() ? "" : absl::StrCat(": ", cordon->second.reason);
    const Nanos deadline = cordon->second.deadline;
    return stopping_.AskToGiveWay(job, StopKind::kMove, EventKind::kDraining,
                                  absl::StrCat("node ", rank.where.node.value, " is drained", reason),
                                  deadline == Nanos(0) ? Nanos(0) : step_.now() + std::max(Nanos(1), deadline - step_.wall()));
  }
}

}  // namespace lynx::server
