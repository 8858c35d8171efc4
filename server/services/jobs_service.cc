// See jobs_service.h.
#include "server/services/jobs_service.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <utility>

#include "common/status.h"
#include "planner/problem/layout.h"
#include "proto/bounds.h"
#include "server/access/gate.h"
#include "server/access/job_permissions.h"
#include "server/loop/strand.h"
#include "server/wire/messages.h"
#include "server/wire/retry_later.h"

namespace lynx::server {
namespace {

constexpr int64_t kMaxEvents = 1000;
constexpr int32_t kDefaultList = 100;
constexpr int32_t kMaxList = 1000;
constexpr int32_t kDefaultLines = 100;
constexpr int32_t kMaxLines = 1000;
constexpr int64_t kMaxGenerations = int64_t{1} << 40;
constexpr size_t kMaxKey = 128;
constexpr size_t kMaxReasonLength = 512;
constexpr size_t kMaxSpec = 4 << 20;  // large enough for a job with its own schedule

absl::Status CheckKey(const std::string& key) {
  LYNX_RETURN_IF_ERROR(CheckSize("idempotency_key", key.size(), 1, kMaxKey, "characters"));
  const bool printable = std::all_of(key.begin(), key.end(), [](char c) { return c >= 0x20 && c < 0x7F; });
  return printable ? absl::OkStatus() : BadField("idempotency_key", "not printable", "must be printable ASCII characters");
}

// One call of WatchJob. It reads one request, and then writes one message at a time. Messages that must wait are merged into
// one message, which has the newest state of the job and all events.
class WatchCall : public grpc::ServerBidiReactor<v1::WatchJobRequest, v1::WatchJobResponse>,
                  public WatchStream,
                  public std::enable_shared_from_this<WatchCall> {
 public:
  // `on_request` runs when the request has been read. `on_end` runs once, when gRPC is done with the call.
  void Start(std::function<void(const v1::WatchJobRequest&)> on_request, std::function<void()> on_end) {
    on_request_ = std::move(on_request);
    on_end_ = std::move(on_end);
    self_ = shared_from_this();
    StartRead(&request_);
  }

  void Send(const v1::WatchJobResponse& response, bool last) override {
    Post([this, response, last] {
      if (closing_.has_value() || last_) return;
      if (next_.has_value()) {
        *next_->mutable_job() = response.job();
        next_->mutable_events()->MergeFrom(response.events());
      } else {
        next_ = response;
      }
      last_ = last;
      Go();
    });
  }

  void Close(const absl::Status& status) override {
    Post([this, status] {
      if (closing_.has_value()) return;
      closing_ = status;
      Go();
    });
  }

 private:
  void OnReadDone(bool ok) override {
    if (ok) {
      on_request_(request_);
    } else {
      Close(absl::InvalidArgumentError("the call has no request, or one that cannot be read"));
    }
  }
  void OnWriteDone(bool ok) override {
    Post([this, ok] {
      writing_ = false;
      if (!ok && !closing_.has_value()) closing_ = absl::CancelledError("the watcher has gone");
      Go();
    });
  }
  void OnCancel() override { Close(absl::CancelledError("the watcher has gone")); }
  void OnDone() override {
    on_end_();
    self_.reset();
  }

  // Writes the waiting message, then ends the call if it must end.
  void Go() {
    if (writing_ || finished_) return;
    if (next_.has_value() && !closing_.has_value()) {
      writing_ = true;
      current_ = *std::exchange(next_, std::nullopt);
      StartWrite(&current_);
    } else if (closing_.has_value() || last_) {
      finished_ = true;
      Finish(closing_.has_value() ? ToGrpc(*closing_) : grpc::Status::OK);
    }
  }

  template <class Closure>
  void Post(Closure closure) {
    strand_.Post([self = shared_from_this(), closure = std::move(closure)]() mutable { closure(); });
  }

  Strand strand_;
  std::shared_ptr<WatchCall> self_;
  v1::WatchJobRequest request_;
  std::function<void(const v1::WatchJobRequest&)> on_request_;
  std::function<void()> on_end_;
  // Used only on the strand; gRPC also uses current_ while it writes.
  v1::WatchJobResponse current_;
  std::optional<v1::WatchJobResponse> next_;
  std::optional<absl::Status> closing_;
  bool last_ = false;
  bool writing_ = false;
  bool finished_ = false;
};

// Runs `work` on the owner thread and ends the call with its status.
void OnLoop(ServerCore& core, const Call& call, std::function<absl::Status()> work) {
  UnaryAnswer* answer = call.answer;
  if (!core.loop().Run([answer, work = std::move(work)] { answer->Finish(ToGrpc(work())); })) {
    answer->Finish(ToGrpc(Overloaded()));
  }
}

}  // namespace

void JobsService::SubmitJob(const Call& call, const v1::SubmitJobRequest* request, v1::SubmitJobResponse* response) {
  UnaryAnswer* answer = call.answer;
  absl::Status status = CheckKey(request->idempotency_key());
  if (status.ok()) status = CheckSize("spec", request->spec().ByteSizeLong(), 0, kMaxSpec, "bytes");
  absl::StatusOr<JobSpec> spec = status.ok() ? FromProto(request->spec()) : absl::StatusOr<JobSpec>(status);
  if (status.ok()) status = spec.status();
  if (status.ok()) status = CheckEngineRuns(spec->model, PinnedLayout(spec->parallel));
  if (!status.ok()) {
    answer->Finish(ToGrpc(status));
    return;
  }
  const int64_t id = core_.Await([this, answer, response](const Reply& reply) {
    const JobRecord* job = reply.status.ok() ? core_.controller().Find(reply.job) : nullptr;
    if (job != nullptr) {
      *response->mutable_job() = Encode(*job, core_.controller().PlanOf(job->id).get(), PlanPrograms::kLeftOut);
      response->set_existed(reply.existed);
    }
    answer->Finish(ToGrpc(reply.status));
  });
  const std::string digest = SpecDigest(*spec);
  const bool posted = core_.loop().Post(JobSubmitted{.request = id,
                                                     .id = core_.NewJobId(),
                                                     .idempotency_key = request->idempotency_key(),
                                                     .spec = *std::move(spec),
                                                     .spec_digest = digest,
                                                     .owner = CallerText(call.caller)},
                                        call.Audit(""));
  if (!posted && core_.Forget(id)) answer->Finish(ToGrpc(Overloaded()));
}

absl::Status JobsService::FillJob(const v1::GetJobRequest& request, const std::string& asker, v1::GetJobResponse& response) {
  LYNX_ASSIGN_OR_RETURN(const JobId id, core_.controller().Resolve(request.job_id(), asker));
  const JobRecord& job = *core_.controller().Find(id);
  const PlanPrograms programs = request.include_programs() ? PlanPrograms::kIncluded : PlanPrograms::kLeftOut;
  LYNX_ASSIGN_OR_RETURN(const std::shared_ptr<const Plan> plan, core_.PlanOf(job, programs));
  *response.mutable_job() = Encode(job, plan.get(), programs);
  if (request.include_curves()) {
    LYNX_ASSIGN_OR_RETURN(const JobCurves curves, core_.curves().Of(id));
    *response.mutable_curves() = Encode(curves);
  }
  if (!request.include_events()) return absl::OkStatus();
  const int64_t before = request.events_before() == 0 ? std::numeric_limits<int64_t>::max() : request.events_before();
  LYNX_RETURN_IF_ERROR(CheckRange("events_before", request.events_before(), 0, std::numeric_limits<int64_t>::max()));
  LYNX_ASSIGN_OR_RETURN(const std::vector<JobEvent> events, core_.store().LoadEvents(id, 0, kMaxEvents, before));
  for (const JobEvent& event : events) *response.mutable_job()->add_events() = Encode(event);
  return absl::OkStatus();
}

void JobsService::GetJob(const Call& call, const v1::GetJobRequest* request, v1::GetJobResponse* response) {
  return OnLoop(core_, call,
                [this, request, response, asker = CallerText(call.caller)] { return FillJob(*request, asker, *response); });
}

void JobsService::ListJobs(const Call& call, const v1::ListJobsRequest* request, v1::ListJobsResponse* response) {
  return OnLoop(core_, call, [this, request, response]() -> absl::Status {
    LYNX_RETURN_IF_ERROR(CheckRange("limit", request->limit(), 0, kMaxList));
    if (!request->owner().empty()) LYNX_RETURN_IF_ERROR(CheckName("owner", request->owner()));
    response->set_owner(request->owner());
    std::vector<JobState> states;
    for (int i = 0; i < request->states_size(); ++i) {
      LYNX_ASSIGN_OR_RETURN(const JobState state, Decode(request->states(i), FieldPath("", "states", i)));
      states.push_back(state);
    }
    const JobRecord* before = nullptr;
    if (!request->before().empty()) {
      before = core_.controller().Find(JobId(request->before()));
      if (before == nullptr)
        return absl::NotFoundError(absl::StrCat("before: no job has the id \"", request->before().substr(0, 80), "\""));
    }
    const size_t limit = static_cast<size_t>(request->limit() == 0 ? kDefaultList : request->limit());
    std::vector<const JobRecord*> jobs = core_.controller().List(limit + 1, states, before, request->owner());
    response->set_more(jobs.size() > limit);
    jobs.resize(std::min(jobs.size(), limit));
    for (const JobRecord* job : jobs) {
      v1::Job& listed = *response->add_jobs();
      listed = Encode(*job, nullptr, PlanPrograms::kLeftOut);
      listed.mutable_spec()
          ->mutable_parallel()
          ->clear_schedule_text();  // with these texts, a list of a thousand jobs would exceed the message limit
    }
    return absl::OkStatus();
  });
}

absl::StatusOr<JobId> JobsService::FindToChange(const std::string& name, const Call& call) {
  LYNX_ASSIGN_OR_RETURN(const JobId id, core_.controller().Resolve(name, CallerText(call.caller)));
  const JobRecord& job = *core_.controller().Find(id);
  const absl::Status allowed =
      CheckJobCall(call.method, call.caller, job, core_.controller().ManagersOf(job.spec->scheduling.queue),
                   book_.FindUser(job.owner).has_value());
  if (allowed.ok()) return id;
  AuditRecord record = call.Audit(id.value);
  record.time = core_.clock().Wall();
  record.refused = true;
  SetOutcome(record, allowed);
  core_.Refused(std::move(record));
  return allowed;
}

// Posts the event that `make` returns for the job with this name. Answers with the job when the event has been handled.
template <class Response>
void JobsService::ChangeJob(const Call& call, const std::string& name, const std::string& reason, Response* response,
                            std::function<EventBody(int64_t, const JobId&)> make) {
  UnaryAnswer* answer = call.answer;
  const absl::Status checked = CheckLine("reason", reason, kMaxReasonLength);
  if (!checked.ok()) {
    answer->Finish(ToGrpc(checked));
    return;
  }
  const int64_t id = core_.Await([this, answer, response](const Reply& reply) {
    const JobRecord* job = reply.status.ok() ? core_.controller().Find(reply.job) : nullptr;
    if (job != nullptr) {
      *response->mutable_job() = Encode(*job, core_.controller().PlanOf(job->id).get(), PlanPrograms::kLeftOut);
    }
    answer->Finish(ToGrpc(reply.status));
  });
  // Only the owner thread can look up the job by its name. The change is then posted as an ordinary event.
  const bool posted = core_.loop().Run([this, id, name, make = std::move(make), call] {
    const absl::StatusOr<JobId> job = FindToChange(name, call);
    if (!job.ok()) {
      core_.Complete(Reply{.request = id, .status = job.status()});
    } else {
      core_.loop().PostAlways(make(id, *job), call.Audit(name));
    }
  });
  if (!posted && core_.Forget(id)) answer->Finish(ToGrpc(Overloaded()));
}

void JobsService::CancelJob(const Call& call, const v1::CancelJobRequest* request, v1::CancelJobResponse* response) {
  absl::Status checked = CheckRange("grace_ns", request->grace_ns(), 0, kMaxWireNanos);
  if (checked.ok() && request->grace_ns() > 0 && !request->checkpoint()) {
    checked = BadField("grace_ns", absl::StrCat(request->grace_ns()), "is for a cancellation with a checkpoint");
  }
  if (!checked.ok()) {
    UnaryAnswer* answer = call.answer;
    answer->Finish(ToGrpc(checked));
    return;
  }
  const CancelRequested wanted{
      .reason = request->reason(), .checkpoint = request->checkpoint(), .grace = Nanos(request->grace_ns())};
  return ChangeJob(call, request->job_id(), request->reason(), response, [wanted](int64_t id, const JobId& job) {
    CancelRequested event = wanted;
    event.request = id;
    event.job = job;
    return event;
  });
}

void JobsService::HoldJob(const Call& call, const v1::HoldJobRequest* request, v1::HoldJobResponse* response) {
  return ChangeJob(call, request->job_id(), request->reason(), response,
                   [reason = request->reason()](int64_t id, const JobId& job) {
                     return HoldRequested{id, job, reason};
                   });
}

void JobsService::ReleaseJob(const Call& call, const v1::ReleaseJobRequest* request, v1::ReleaseJobResponse* response) {
  return ChangeJob(call, request->job_id(), "", response, [](int64_t id, const JobId& job) {
    return ReleaseRequested{id, job};
  });
}

void JobsService::ListQueues(const Call& call, const v1::ListQueuesRequest*, v1::ListQueuesResponse* response) {
  return OnLoop(core_, call, [this, response]() -> absl::Status {
    for (const QueueView& queue : core_.controller().Queues()) *response->add_queues() = Encode(queue);
    return absl::OkStatus();
  });
}

absl::Status JobsService::CheckManagers(const Call& call, const QueueConfig& queue) const {
  if (call.caller.kind == Caller::Kind::kLocal) return absl::OkStatus();  // without TLS, any name may be given
  for (size_t i = 0; i < queue.managers.size(); ++i) {
    const std::string& name = queue.managers[i];
    const std::optional<User> user = book_.FindUser(name);
    const std::string path = FieldPath("queue", "managers", static_cast<int64_t>(i));
    if (!user.has_value()) return BadField(path, name, "must be the name of a user ('lynxctl admin user add' makes one)");
    if (user->role < Role::kSubmitter) return BadField(path, name, "must be a submitter or more; viewers may change no job");
  }
  return absl::OkStatus();
}

void JobsService::SetQueue(const Call& call, const v1::SetQueueRequest* request, v1::SetQueueResponse* response) {
  UnaryAnswer* answer = call.answer;
  absl::StatusOr<QueueConfig> queue = Decode(request->queue());
  if (queue.ok()) {
    if (const absl::Status known = CheckManagers(call, *queue); !known.ok()) queue = known;
  }
  if (!queue.ok()) {
    answer->Finish(ToGrpc(queue.status()));
    return;
  }
  const int64_t id = core_.Await([this, answer, response, name = queue->name](const Reply& reply) {
    for (const QueueView& known : core_.controller().Queues()) {
      if (reply.status.ok() && known.config.name == name) *response->mutable_queue() = Encode(known);
    }
    answer->Finish(ToGrpc(reply.status));
  });
  const bool posted = core_.loop().Post(QueueRequested{id, *std::move(queue)}, call.Audit(request->queue().name()));
  if (!posted && core_.Forget(id)) answer->Finish(ToGrpc(Overloaded()));
}

void JobsService::BeginWatch(const std::string& job, const Caller& caller, const std::shared_ptr<WatchStream>& stream,
                             JobId& watched) {
  const std::string who = caller.kind == Caller::Kind::kLocal ? "" : CallerText(caller);
  const absl::StatusOr<JobId> id = core_.controller().Resolve(job, CallerText(caller));
  if (!id.ok()) return stream->Close(id.status());
  const JobRecord& record = *core_.controller().Find(*id);
  if (!core_.Leads()) return stream->Close(Gate::LostMeanwhile());
  v1::WatchJobResponse first;
  const absl::StatusOr<std::shared_ptr<const Plan>> plan = core_.PlanOf(record, PlanPrograms::kLeftOut);
  if (!plan.ok()) return stream->Close(plan.status());
  *first.mutable_job() = Encode(record, plan->get(), PlanPrograms::kLeftOut);
  const absl::StatusOr<std::vector<JobEvent>> events = core_.store().LoadEvents(*id, 0, kMaxEvents);
  if (!events.ok()) return stream->Close(events.status());
  for (const JobEvent& event : *events) *first.add_events() = Encode(event);
  if (IsFinal(record.state)) return stream->Send(first, true);
  if (const absl::Status added = core_.watchers().Add(*id, who, stream); !added.ok()) return stream->Close(added);
  watched = *id;
  stream->Send(first, false);
}

grpc::ServerBidiReactor<v1::WatchJobRequest, v1::WatchJobResponse>* JobsService::WatchJob(const Call& admitted) {
  auto call = std::make_shared<WatchCall>();
  // Used only on the owner thread.
  auto watched = std::make_shared<JobId>();
  ServerCore* core = &core_;
  WatchCall* raw = call.get();
  const std::weak_ptr<WatchCall> stream = call;
  call->Start(
      [this, stream, watched, caller = admitted.caller](const v1::WatchJobRequest& request) {
        const std::shared_ptr<WatchCall> held = stream.lock();  // the call keeps itself until it ends
        const bool begins = core_.loop().Run(
            [this, job = request.job_id(), caller, held, watched] { BeginWatch(job, caller, held, *watched); });
        if (!begins) held->Close(Overloaded());
      },
      [core, watched, stream] {
        // `held` keeps the call alive until it is removed from the watchers.
        core->loop().RunAlways([core, watched, held = stream.lock()] { core->watchers().Remove(*watched, held.get()); });
      });
  return raw;
}

void JobsService::GetLogs(const Call& call, const v1::GetLogsRequest* request, v1::GetLogsResponse* response) {
  return OnLoop(core_, call, [this, request, response, asker = CallerText(call.caller)]() -> absl::Status {
    LYNX_RETURN_IF_ERROR(CheckRange("rank", request->rank(), -1, kMaxWireRanks - 1));
    LYNX_RETURN_IF_ERROR(CheckRange("lines", request->lines(), 0, kMaxLines));
    LYNX_RETURN_IF_ERROR(CheckRange("generation", request->generation(), 0, kMaxGenerations));
    LYNX_RETURN_IF_ERROR(CheckRange("after", request->after(), 0, std::numeric_limits<int64_t>::max()));
    LYNX_ASSIGN_OR_RETURN(const JobId job, core_.controller().Resolve(request->job_id(), asker));
    const RankLogs& logs = core_.controller().logs();
    const LogQuery query{.rank = request->rank(),
                         .generation = Generation(request->generation()),
                         .after = request->after(),
                         .limit = static_cast<size_t>(request->lines() == 0 ? kDefaultLines : request->lines())};
    for (const LogLine& line : logs.Last(job, query)) *response->add_lines() = Encode(line);
    if (const std::optional<FailedRank> failure = logs.FirstFailure(job); failure.has_value()) {
      response->mutable_first_failure()->set_rank(failure->rank);
      response->mutable_first_failure()->set_generation(failure->generation.value);
    }
    response->set_state(Encode(core_.controller().Find(job)->state));
    return absl::OkStatus();
  });
}

absl::Status JobsService::FillTrace(const v1::TraceJobRequest& request, const std::string& asker,
                                    v1::TraceJobResponse& response) {
  LYNX_ASSIGN_OR_RETURN(const JobId id, core_.controller().Resolve(request.job_id(), asker));
  const JobRecord& job = *core_.controller().Find(id);
  LYNX_ASSIGN_OR_RETURN(const std::optional<StepTrace> trace, core_.store().LoadTrace(id));
  if (!trace.has_value() || trace->plan_digest != job.plan_digest) {
    return absl::FailedPreconditionError(
        absl::StrCat("no step of job ", id.value, ", which is ", EnumName(job.state),
                     ", has been traced yet: ranks trace their first step, then the 2nd, 4th, 8th and so on"));
  }
  LYNX_ASSIGN_OR_RETURN(const std::shared_ptr<const Plan> plan, core_.PlanOf(job, PlanPrograms::kIncluded));
  LYNX_ASSIGN_OR_RETURN(const std::shared_ptr<const ClusterTopology> cluster, core_.store().LoadCluster(id));
  *response.mutable_job() = Encode(job, plan.get(), PlanPrograms::kIncluded);
  if (cluster != nullptr) *response.mutable_cluster() = ToProto(*cluster);
  *response.mutable_trace() = Encode(*trace);
  return absl::OkStatus();
}

void JobsService::TraceJob(const Call& call, const v1::TraceJobRequest* request, v1::TraceJobResponse* response) {
  return OnLoop(core_, call,
                [this, request, response, asker = CallerText(call.caller)] { return FillTrace(*request, asker, *response); });
}

}  // namespace lynx::server
