#include "python/extension/client.h"

#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "cli/connect/authority_renewal.h"
#include "cli/connect/submission.h"
#include "cli/spec/job_file.h"
#include "common/clock.h"
#include "common/status.h"
#include "proto/convert.h"
#include "python/extension/errors.h"
#include "python/extension/message_values.h"
#include "report/traced_job.h"

namespace lynx::python {
namespace {

namespace py = pybind11;

constexpr Nanos kPatience{120'000'000'000};  // how long a watch looks for a server that was lost
constexpr size_t kMaxWaiting = 256;
constexpr std::chrono::milliseconds kTick{50};

v1::GetJobRequest Named(const std::string& job) {
  v1::GetJobRequest request;
  request.set_job_id(job);
  return request;
}

// Returns the plan of the job. It has the machine for which it was made only if a step of the job was traced.
absl::StatusOr<std::shared_ptr<MadePlan>> FindPlan(cli::Client& client, const std::string& job) {
  v1::TraceJobRequest traced;
  traced.set_job_id(job);
  const absl::StatusOr<v1::TraceJobResponse> answer = client.Trace(traced);
  if (answer.ok()) {
    absl::StatusOr<std::unique_ptr<const TracedJob>> read = ReadTrace(*answer);
    if (read.ok() && (*read)->predicted.has_value()) {
      const std::shared_ptr<const TracedJob> whole = *std::move(read);
      return std::make_shared<MadePlan>(std::shared_ptr<const PlanRequest>(whole, &whole->request),
                                        std::shared_ptr<const Plan>(whole, &whole->plan), cli::TimesFrom::kProfile);
    }
  } else if (!absl::IsFailedPrecondition(answer.status())) {
    return answer.status();
  }
  v1::GetJobRequest request = Named(job);
  request.set_include_programs(true);
  LYNX_ASSIGN_OR_RETURN(const v1::Job found, client.Get(request));
  if (!found.has_plan()) return absl::FailedPreconditionError(absl::StrCat("job ", found.id(), " has no plan yet"));
  LYNX_ASSIGN_OR_RETURN(Plan plan, FromProto(found.plan()));
  return std::make_shared<MadePlan>(nullptr, std::make_shared<const Plan>(std::move(plan)), cli::TimesFrom::kProfile);
}

absl::StatusOr<v1::JobState> StateOf(const std::string& word) {
  v1::JobState state = v1::JOB_STATE_UNSPECIFIED;
  if (v1::JobState_Parse(absl::StrCat("JOB_STATE_", absl::AsciiStrToUpper(word)), &state) &&
      state != v1::JOB_STATE_UNSPECIFIED) {
    return state;
  }
  return absl::InvalidArgumentError(
      absl::StrCat("states: '", word, "': expected one of queued, planning, starting, running, succeeded, failed, cancelled"));
}

}  // namespace

JobWatch::JobWatch(cli::ServerAddress server, Nanos timeout, const std::string& job) : line_(std::make_shared<Line>()) {
  const auto work = [line = line_, server = std::move(server), timeout, job](const BackgroundTask& task) {
    cli::Client client(server, timeout);
    const auto going = [&] {
      const std::lock_guard lock(line->mutex);
      return !line->closed && !task.stopped();
    };
    const auto each = [&](const v1::WatchJobResponse& message) {
      std::unique_lock lock(line->mutex);
      while (line->messages.size() >= kMaxWaiting && !line->closed && !task.stopped()) line->changed.wait_for(lock, kTick);
      line->messages.push_back(message);
      line->changed.notify_all();
      return !line->closed && !task.stopped();
    };
    const absl::Status status = client.Watch(
        job, kPatience, each, [] {}, [] {}, going);
    const std::lock_guard lock(line->mutex);
    line->status = status;
    line->ended = true;
    line->changed.notify_all();
  };
  task_ = BackgroundTask::Start(work);
}

py::object JobWatch::Next() {
  while (true) {
    v1::WatchJobResponse message;
    absl::Status status;
    bool found = false, over = false;
    {
      const py::gil_scoped_release unlocked;
      std::unique_lock lock(line_->mutex);
      line_->changed.wait_for(lock, kTick, [&] { return !line_->messages.empty() || line_->ended || line_->closed; });
      found = !line_->messages.empty() && !line_->closed;
      over = line_->ended || line_->closed;
      if (found) {
        message = std::move(line_->messages.front());
        line_->messages.pop_front();
        line_->changed.notify_all();
      } else if (over && !line_->closed) {
        status = line_->status;
      }
    }
    if (found) return ValuesOf(message);
    if (!status.ok()) Raise(status);
    if (over) return py::none();
    if (PyErr_CheckSignals() != 0) throw py::error_already_set();
  }
}

void JobWatch::Close() {
  task_->Stop();
  const std::lock_guard lock(line_->mutex);
  line_->closed = true;
  line_->changed.notify_all();
}

Service::Service(const cli::ConnectionFlags& flags, double timeout_seconds)
    : address_(cli::FindServer(flags)), timeout_(static_cast<int64_t>(timeout_seconds * 1e9)) {
  if (!address_.status.ok()) Raise(address_.status);
  shared_ = std::shared_ptr<Shared>(new Shared{{}, cli::Client(address_, timeout_)});
  if (address_.context_file.empty()) return;
  const std::string note = Unlocked([shared = shared_, file = address_.context_file] {
    return cli::RenewAuthority(shared->client, file, RealClock().Wall());
  });
  if (!note.empty()) py::module_::import("warnings").attr("warn")(note);
}

template <class Call>
auto Service::Ask(Call call) {
  return Take(Unlocked([shared = shared_, call = std::move(call)] {
    const std::lock_guard lock(shared->mutex);
    return call(shared->client);
  }));
}

std::string Service::server() const { return address_.address; }

py::object Service::Submit(const std::string& text, const std::string& name, const std::string& folder,
                           const std::vector<std::string>& overrides, const std::string& key) {
  v1::SubmitJobRequest request;
  *request.mutable_spec() = ToProto(Take(cli::ParseJobFile(text, name, folder, overrides)));
  request.set_idempotency_key(key.empty() ? cli::FreshKey() : key);
  return ValuesOf(Ask([request](cli::Client& client) { return client.Submit(request); }));
}

py::object Service::Get(const std::string& job, bool events) {
  return ValuesOf(
      Ask([job, events](cli::Client& client) { return events ? client.GetWithEvents(job) : client.Get(Named(job)); }));
}

py::object Service::List(int32_t limit, const std::vector<std::string>& states, const std::string& user) {
  v1::ListJobsRequest request;
  request.set_limit(limit);
  request.set_owner(user);
  for (const std::string& word : states) request.add_states(Take(StateOf(word)));
  return ValuesOf(Ask([request](cli::Client& client) { return client.List(request); }));
}

py::object Service::Cancel(const std::string& job, const std::string& reason, bool checkpoint, double grace_seconds) {
  v1::CancelJobRequest request;
  request.set_job_id(job);
  request.set_reason(reason);
  request.set_checkpoint(checkpoint);
  request.set_grace_ns(static_cast<int64_t>(grace_seconds * 1e9));
  return ValuesOf(Ask([request](cli::Client& client) { return client.Cancel(request); }));
}

py::object Service::Hold(const std::string& job, const std::string& reason) {
  v1::HoldJobRequest request;
  request.set_job_id(job);
  request.set_reason(reason);
  return ValuesOf(Ask([request](cli::Client& client) { return client.Hold(request); }));
}

py::object Service::Release(const std::string& job) {
  v1::ReleaseJobRequest request;
  request.set_job_id(job);
  return ValuesOf(Ask([request](cli::Client& client) { return client.Release(request); }));
}

py::object Service::Logs(const std::string& job, int32_t rank, int32_t lines, int64_t attempt, int64_t after) {
  v1::GetLogsRequest request;
  request.set_job_id(job);
  request.set_rank(rank);
  request.set_lines(lines);
  request.set_generation(attempt);
  request.set_after(after);
  return ValuesOf(Ask([request](cli::Client& client) { return client.Logs(request); }));
}

py::object Service::Curves(const std::string& job) {
  v1::GetJobRequest request = Named(job);
  request.set_include_curves(true);
  return ValuesOf(Ask([request](cli::Client& client) { return client.GetAll(request); }).curves());
}

py::object Service::Nodes() {
  return ValuesOf(Ask([](cli::Client& client) { return client.Nodes(); }));
}

py::object Service::Queues() {
  return ValuesOf(Ask([](cli::Client& client) { return client.Queues(); }));
}

py::object Service::WhoAmI() {
  return ValuesOf(Ask(
      [](cli::Client& client) { return client.Admin<v1::WhoAmIRequest, v1::WhoAmIResponse>(&v1::Admin::Stub::WhoAmI, {}); }));
}

std::shared_ptr<MadePlan> Service::PlanOf(const std::string& job) {
  return Ask([job](cli::Client& client) { return FindPlan(client, job); });
}

std::unique_ptr<JobWatch> Service::Watch(const std::string& job) { return std::make_unique<JobWatch>(address_, timeout_, job); }

}  // namespace lynx::python
