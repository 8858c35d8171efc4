// See core.h.
#include "server/loop/core.h"

#include <random>
#include <utility>

#include "absl/strings/str_format.h"
#include "common/status.h"
#include "node/log.h"
#include "proto/event_kind.h"
#include "proto/message_limit.h"
#include "server/wire/messages.h"

namespace lynx::server {

namespace {

// The rate limit for audit records of refused calls.
constexpr Rate kRefusalRate{.per_second = 1, .burst = 100};
absl::Status StoppedLeading() { return absl::UnavailableError("this server does not lead any more: ask the one that leads"); }
constexpr Nanos kStatsEvery{1'000'000'000}, kCheckEvery{2'000'000'000};

}  // namespace

static_assert(kMaxProgramText.value <= kMaxMessageBytes * 3 / 4, "a desired state holds more than programs");

ServerCore::ServerCore(CoreOptions options, std::unique_ptr<Store> store, const Clock& clock)
    : options_(std::move(options)), clock_(clock), store_(std::move(store)), curves_(*store_), controller_(options_.controller),
      refusals_(kRefusalRate, clock.Monotonic()) {}

absl::StatusOr<std::unique_ptr<ServerCore>> ServerCore::Start(CoreOptions options, std::unique_ptr<Store> store,
                                                              const Clock& clock) {
  std::unique_ptr<ServerCore> core(new ServerCore(std::move(options), std::move(store), clock));
  LYNX_ASSIGN_OR_RETURN(std::vector<Store::StoredJob> stored, core->store_->LoadJobs());
  std::vector<Controller::StoredJob> jobs;
  int64_t unfinished = 0;
  for (Store::StoredJob& job : stored) {
    unfinished += IsFinal(job.record.state) ? 0 : 1;
    jobs.push_back({std::move(job.record), std::move(job.plan), std::move(job.cluster)});
  }
  LYNX_ASSIGN_OR_RETURN(Controller::Settings settings, core->store_->LoadSettings());
  core->controller_.RestoreSettings(std::move(settings));
  if (!jobs.empty()) LogInfo("the store has {} jobs, {} of them unfinished", jobs.size(), unfinished);
  ServerCore* self = core.get();
  core->loop_ = std::make_unique<EventLoop>(
      core->options_.loop, core->controller_, clock,
      [self](const std::vector<Effect>& effects) { return self->TimedCommit(effects); },
      [self](Effect& effect) { self->Carry(effect); });
  core->pool_ = std::make_unique<PlanningPool>(core->options_.planning_threads, core->options_.planner,
                                               [self](PlanReady ready, PlanTrigger trigger, Nanos took) {
                                                 self->metrics_.PlanMade(ready, trigger, took);
                                                 self->loop_->PostAlways(std::move(ready));
                                               });
  core->loop_->Start(core->controller_.Restore(std::move(jobs), clock.Monotonic(), clock.Wall()), [self] { self->OnTick(); });
  return core;
}

void ServerCore::Stop() {
  {
    std::lock_guard lock(mutex_);
    if (std::exchange(stopped_, true)) return;
  }
  const absl::Status stopping = absl::UnavailableError("the server is stopping");
  if (pool_ != nullptr) pool_->Stop();
  if (loop_ != nullptr) {
    loop_->RunAlways([this, stopping] {
      watchers_.CloseAll(stopping);
      curves_.WriteAll();
    });
    loop_->Stop();
  }
  executor_.Stop();
  for (const auto& agent : agents_.All()) agent->Close(stopping);
  for (const auto& worker : workers_.All()) worker->Close(stopping);
  std::map<int64_t, Answer> left;
  {
    std::lock_guard lock(mutex_);
    left.swap(answers_);
  }
  for (const auto& [request, answer] : left) answer(Reply{.request = request, .status = stopping});
}

void ServerCore::EndStreams() {
  for (const auto& agent : agents_.All()) agent->Close(StoppedLeading());
  for (const auto& worker : workers_.All()) worker->Close(StoppedLeading());
  loop_->RunAlways([this] { watchers_.CloseAll(StoppedLeading()); });
}

int64_t ServerCore::Await(Answer answer) {
  std::lock_guard lock(mutex_);
  answers_[++last_request_] = std::move(answer);
  return last_request_;
}

bool ServerCore::Forget(int64_t request) {
  std::lock_guard lock(mutex_);
  return answers_.erase(request) > 0;
}

void ServerCore::Refused(AuditRecord record) {
  metrics_.Refused();
  {
    std::lock_guard lock(mutex_);
    if (refusals_.Take(clock_.Monotonic()) > Nanos(0)) {
      ++refusals_left_out_;
      return;
    }
    if (refusals_left_out_ > 0)
      absl::StrAppend(&record.detail, " (", refusals_left_out_, " refusals before it were not recorded)");
    refusals_left_out_ = 0;
  }
  loop_->Record(std::move(record));
}

JobId ServerCore::NewJobId() {
  static thread_local std::random_device random;  // creating it takes longer than using it
  const uint64_t bits = (uint64_t{random()} << 32) | random();
  return JobId(absl::StrFormat("%012x", bits & 0xFFFFFFFFFFFFull));
}

absl::StatusOr<std::shared_ptr<const Plan>> ServerCore::PlanOf(const JobRecord& job, PlanPrograms programs) {
  if (job.plan_digest.empty()) return std::shared_ptr<const Plan>();
  const std::shared_ptr<const Plan> kept = controller_.PlanOf(job.id);
  const bool complete = !IsFinal(job.state);
  if (kept != nullptr && (complete || programs == PlanPrograms::kLeftOut)) return kept;
  return store_->LoadPlan(job.id);
}

absl::Status ServerCore::TimedCommit(const std::vector<Effect>& effects) {
  const Nanos begin = clock_.Monotonic();
  absl::Status status = store_->Commit(effects);
  metrics_.Committed(clock_.Monotonic() - begin, status.ok());
  if (status.ok()) CountWritten(effects);
  ReportTaken(status);
  return status;
}

void ServerCore::ReportTaken(const absl::Status& status) {
  if (status.code() == absl::StatusCode::kFailedPrecondition && options_.store_taken != nullptr) options_.store_taken(status);
}

// Updates the metrics that follow from stored effects. Other code does not see these effects, because only the store handles
// them.
void ServerCore::CountWritten(const std::vector<Effect>& effects) {
  for (const Effect& effect : effects) {
    if (const auto* plan = std::get_if<InsertPlan>(&effect)) {
      if (const JobRecord* job = controller_.Find(plan->job)) metrics_.jobs().Planned(*job, *plan->plan, plan->cluster.get());
    } else if (const auto* checkpoint = std::get_if<InsertCheckpoint>(&effect)) {
      if (const JobRecord* job = controller_.Find(checkpoint->job)) metrics_.jobs().CheckpointWritten(*checkpoint, *job);
    }
  }
}

void ServerCore::Carry(Effect& effect) {
  if (auto* agent = std::get_if<SendAgent>(&effect)) {
    executor_.Post([this, sent = std::move(*agent)] {
      const auto stream = agents_.Find(sent.stream);
      if (stream == nullptr) return;
      if (!Leads()) return stream->Close(StoppedLeading());
      stream->Send(Encode(sent.desired, options_.controller.heartbeat));
    });
  } else if (auto* worker = std::get_if<SendWorker>(&effect)) {
    executor_.Post([this, sent = std::move(*worker)] {
      const auto stream = workers_.Find(sent.stream);
      if (stream == nullptr) return;
      if (!Leads()) return stream->Close(StoppedLeading());
      stream->Send(Encode(sent.desired, options_.controller.heartbeat, options_.connection_key));
    });
  } else if (auto* renew = std::get_if<RenewLease>(&effect)) {
    metrics_.LeaseRenewed();
    executor_.Post([this, sent = std::move(*renew)] {
      const auto stream = workers_.Find(sent.stream);
      if (stream == nullptr) return;
      if (!Leads()) return stream->Close(StoppedLeading());
      stream->SendBeside(Encode(sent.renewal));
    });
  } else if (auto* close = std::get_if<CloseStream>(&effect)) {
    LogWarn("closes a node's stream: {}", std::string(close->reason.message()));
    executor_.Post([this, closed = std::move(*close)] {
      if (const auto stream = agents_.Find(closed.stream)) stream->Close(closed.reason);
      if (const auto stream = workers_.Find(closed.stream)) stream->Close(closed.reason);
    });
  } else if (auto* plan = std::get_if<PlanJob>(&effect)) {
    pool_->Post(std::move(*plan));
  } else if (auto* notice = std::get_if<NotifyWatchers>(&effect)) {
    CarryNotice(*notice);
  } else if (auto* reply = std::get_if<Reply>(&effect)) {
    Complete(*reply);
  } else if (auto* evaluation = std::get_if<EvaluationRecorded>(&effect)) {
    const JobRecord* const job = controller_.Find(evaluation->job);
    if (job == nullptr) return;
    metrics_.jobs().Evaluated(*evaluation, *job);
    curves_.Evaluated(*job, *evaluation);
  } else if (auto* step = std::get_if<StepRecorded>(&effect)) {
    const JobRecord* const job = controller_.Find(step->job);
    if (job == nullptr) return;
    metrics_.Step(*step, *job, controller_.DevicesHeld(job->id), clock_.Wall());
    curves_.Step(*job, *step, clock_.Wall());
  }
}

void ServerCore::CarryNotice(NotifyWatchers& notice) {
  const JobRecord* job = controller_.Find(notice.job);
  // There is no such job: its submission was lost, or the server has dropped it because many jobs have ended since then.
  if (job == nullptr) {
    metrics_.Ended(notice.job, clock_.Monotonic());
    watchers_.Close(notice.job,
                    absl::NotFoundError(absl::StrCat("job ", notice.job.value,
                                                     " has ended, and the server remembers no more of it (--keep-jobs)")));
    return;
  }
  for (const JobEvent& event : notice.events) {
    LogInfo("job {} ({}): {}{}{}", job->id.value, job->spec->name, event.kind, event.reason.empty() ? "" : ": ", event.reason);
    if (event.kind == EventKindName(EventKind::kServerRestarted)) CountRestored(*job);
  }
  if (!notice.events.empty()) metrics_.Happened(*job, notice.events, controller_.DevicesHeld(job->id));
  if (metrics_.jobs().LacksCheckpoint(*job)) CountRestoredCheckpoint(*job);
  if (IsFinal(job->state)) metrics_.Ended(job->id, clock_.Monotonic());
  if (!Leads()) return watchers_.CloseAll(StoppedLeading());
  watchers_.Changed(notice.job, IsFinal(job->state), notice.events, clock_.Monotonic(), [this](const JobId& id) {
    return Encode(*controller_.Find(id), controller_.PlanOf(id).get(), PlanPrograms::kLeftOut);
  });
}

// Restores the metrics of a plan that an earlier server made.
void ServerCore::CountRestored(const JobRecord& job) {
  const std::shared_ptr<const Plan> plan = controller_.PlanOf(job.id);
  if (plan == nullptr) return;
  const absl::StatusOr<std::shared_ptr<const ClusterTopology>> cluster = store_->LoadCluster(job.id);
  metrics_.jobs().Planned(job, *plan, cluster.ok() ? cluster->get() : nullptr);
}

// Restores the metrics of a checkpoint that an earlier server recorded. Otherwise the age of this checkpoint would be unknown
// until the next one.
void ServerCore::CountRestoredCheckpoint(const JobRecord& job) {
  const absl::StatusOr<std::optional<InsertCheckpoint>> newest = store_->LoadCheckpoint(job.id);
  if (newest.ok() && newest->has_value()) metrics_.jobs().CheckpointRestored(**newest, job);
}

void ServerCore::Complete(const Reply& reply) {
  Answer answer;
  {
    std::lock_guard lock(mutex_);
    const auto found = answers_.find(reply.request);
    if (found == answers_.end()) return;
    answer = std::move(found->second);
    answers_.erase(found);
  }
  answer(reply);
}

void ServerCore::OnTick() {
  if (options_.health != nullptr) options_.health->Ticked();
  if (const Nanos now = clock_.Monotonic(); now >= next_stats_) {
    metrics_.Counted(controller_.TakeClusterStats());
    next_stats_ = now + kStatsEvery;
  }
  // Even a server that has nothing to write must notice that another server has taken the store.
  if (const Nanos now = clock_.Monotonic(); now >= next_check_) {
    ReportTaken(store_->CheckHeld());
    next_check_ = now + kCheckEvery;
  }
  metrics_.SetQueues(loop_->QueueLength(), executor_.Length());
  metrics_.Prune(clock_.Monotonic());
  curves_.Write(clock_.Monotonic(), [this](const JobId& id) { return controller_.Find(id); });
  if (!Leads()) return watchers_.CloseAll(StoppedLeading());
  watchers_.Tick(clock_.Monotonic(), [this](const JobId& id) {
    return Encode(*controller_.Find(id), controller_.PlanOf(id).get(), PlanPrograms::kLeftOut);
  });
}

}  // namespace lynx::server
