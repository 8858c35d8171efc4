#include <sys/ioctl.h>
#include <unistd.h>

#include <cstdio>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "cli/client.h"
#include "cli/commands.h"
#include "cli/exit_code.h"
#include "cli/job_file.h"
#include "cli/render.h"
#include "cli/submission.h"
#include "common/clock.h"
#include "common/status.h"
#include "proto/convert.h"

namespace lynx {
namespace {

// How long `watch` outlives a lost server before it gives up.
constexpr Nanos kWatchPatience{120'000'000'000};
// Without a terminal a progress line is printed no more often than this.
constexpr Nanos kPlainInterval{5'000'000'000};
constexpr int32_t kMostListed = 1000;  // by one call

Client Connect(const GlobalOptions& global) {
  return Client(FindServer(global.connection), NanosFromSeconds(global.timeout_seconds));
}

Nanos Now() { return RealClock().Wall(); }

int PrintJob(const GlobalOptions& global, const v1::Job& job) {
  const std::string text = global.output == OutputFormat::kJson ? JsonText(job) : JobPage(job, StyleOf(STDOUT_FILENO), Now());
  std::fputs(text.c_str(), stdout);
  return kExitOk;
}

// Prints changes as they come: one live line on a terminal, a line now and then elsewhere.
class ProgressPrinter {
 public:
  ProgressPrinter() : terminal_(isatty(STDOUT_FILENO) == 1), style_(StyleOf(STDOUT_FILENO)) {}

  void Update(const v1::WatchJobResponse& update) {
    for (const v1::JobEvent& event : update.events()) {
      if (event.sequence() <= last_event_) continue;
      last_event_ = event.sequence();
      if (event.kind() == "checkpoint") continue;  // in the page at the end; too many to show
      ClearLine();
      std::printf("%s  %s\n", Colored(event.state(), absl::StrFormat("%-9s", StateName(event.state())), style_).c_str(),
                  event.reason().c_str());
    }
    const v1::Job& job = update.job();
    if (job.state() == v1::JOB_STATE_RUNNING && job.progress().steps_done() > 0) Draw(job);
    std::fflush(stdout);
  }

  void Lost() {
    ClearLine();
    if (!lost_) std::printf("           the server is away; training goes on; trying again\n");
    lost_ = true;
    std::fflush(stdout);
  }

  void Finish(const v1::Job& job) {
    ClearLine();
    if (job.progress().steps_done() > 0) std::printf("%s\n", ProgressLine(job, Width()).c_str());
  }

 private:
  void ClearLine() {
    if (drawn_) std::printf("\r\033[K");
    drawn_ = false;
  }

  void Draw(const v1::Job& job) {
    lost_ = false;
    if (terminal_) {
      std::printf("\r%s\033[K", ProgressLine(job, Width()).c_str());
      drawn_ = true;
      return;
    }
    const Nanos now = clock_.Monotonic();
    if (now - last_plain_ < kPlainInterval) return;
    last_plain_ = now;
    std::printf("%s\n", ProgressLine(job, Width()).c_str());
  }

  int Width() const {
    winsize size{};
    if (terminal_ && ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) return size.ws_col - 1;
    return 100;
  }

  RealClock clock_;
  bool terminal_;
  Style style_;
  bool drawn_ = false;
  bool lost_ = false;
  int64_t last_event_ = 0;
  Nanos last_plain_;
};

int ExitCodeOf(const v1::Job& job) { return job.state() == v1::JOB_STATE_SUCCEEDED ? kExitOk : kExitJobFailed; }

int FollowToEnd(const GlobalOptions& global, Client& client, const std::string& id) {
  ProgressPrinter printer;
  v1::Job last;
  const absl::Status watched = client.Watch(
      id, kWatchPatience,
      [&](const v1::WatchJobResponse& update) {
        last = update.job();
        if (global.output == OutputFormat::kTable) printer.Update(update);
        return true;
      },
      [&] {
        if (global.output == OutputFormat::kTable) printer.Lost();
      });
  if (!watched.ok()) return Fail(watched);
  if (global.output == OutputFormat::kTable) {
    printer.Finish(last);
    std::printf("\n");
  }
  v1::GetJobRequest request;
  request.set_job_id(last.id());
  auto job = client.Get(request);
  if (!job.ok()) return Fail(job.status());
  PrintJob(global, *job);
  return ExitCodeOf(*job);
}

absl::StatusOr<v1::Job> CancelOne(Client& client, const std::string& id, const std::string& reason) {
  v1::CancelJobRequest request;
  request.set_job_id(id);
  request.set_reason(reason);
  return client.Cancel(request);
}

std::string CancelLine(const v1::Job& job) {
  if (IsFinal(job.state())) return absl::StrCat("job ", job.id(), " is ", StateName(job.state()), "\n");
  return absl::StrCat("job ", job.id(), " is being cancelled\n");
}

}  // namespace

int Fail(const absl::Status& status) {
  std::fflush(stdout);
  std::fprintf(stderr, "lynxctl: %s\n", std::string(status.message()).c_str());
  return ExitCodeOf(status);
}

int Submit(const GlobalOptions& global, const SubmitOptions& options) {
  const bool several = options.files.size() > 1;
  if (several && options.wait) return Fail(absl::InvalidArgumentError("--wait follows one job: submit one file, or without it"));
  std::vector<v1::SubmitJobRequest> requests;
  for (const std::string& file : options.files) {
    auto spec = ReadJobFile(file, options.overrides);
    if (!spec.ok()) return Fail(spec.status());
    v1::SubmitJobRequest& request = requests.emplace_back();
    *request.mutable_spec() = ToProto(*spec);
    const std::string& key = options.idempotency_key;
    request.set_idempotency_key(key.empty() ? FreshKey() : several ? absl::StrCat(key, ".", requests.size()) : key);
  }
  Client client = Connect(global);
  int code = kExitOk;
  for (size_t i = 0; i < requests.size(); ++i) {
    auto response = client.Submit(requests[i]);
    if (!response.ok()) {
      const int failed = Fail(several ? Annotate(response.status(), options.files[i]) : response.status());
      if (code == kExitOk) code = failed;
      if (code == kExitUnreachable) return code;
      continue;
    }
    const v1::Job& job = response->job();
    if (options.wait) {
      if (global.output == OutputFormat::kTable) std::printf("job %s submitted\n", job.id().c_str());
      return FollowToEnd(global, client, job.id());
    }
    if (global.output == OutputFormat::kJson) {
      std::fputs(JsonText(job).c_str(), stdout);
    } else {
      std::fputs(SubmittedText(job.id(), response->existed()).c_str(), stdout);
    }
  }
  return code;
}

int List(const GlobalOptions& global, int32_t limit) {
  v1::ListJobsRequest request;
  request.set_limit(limit);
  auto response = Connect(global).List(request);
  if (!response.ok()) return Fail(response.status());
  const std::string text = global.output == OutputFormat::kJson
                               ? JsonText(*response)
                               : JobTable({response->jobs().begin(), response->jobs().end()}, Now());
  std::fputs(text.c_str(), stdout);
  return kExitOk;
}

int Get(const GlobalOptions& global, const std::string& id, bool events) {
  v1::GetJobRequest request;
  request.set_job_id(id);
  request.set_include_events(events);
  auto job = Connect(global).Get(request);
  if (!job.ok()) return Fail(job.status());
  return PrintJob(global, *job);
}

int Watch(const GlobalOptions& global, const std::string& id) {
  Client client = Connect(global);
  return FollowToEnd(global, client, id);
}

int Cancel(const GlobalOptions& global, const std::string& id, const std::string& reason) {
  Client client = Connect(global);
  auto job = CancelOne(client, id, reason);
  if (!job.ok()) return Fail(job.status());
  const std::string text = global.output == OutputFormat::kJson ? JsonText(*job) : CancelLine(*job);
  std::fputs(text.c_str(), stdout);
  return kExitOk;
}

int CancelAll(const GlobalOptions& global, const std::string& reason) {
  Client client = Connect(global);
  v1::ListJobsRequest unfinished;
  unfinished.set_limit(kMostListed);
  for (const v1::JobState state :
       {v1::JOB_STATE_QUEUED, v1::JOB_STATE_PLANNING, v1::JOB_STATE_STARTING, v1::JOB_STATE_RUNNING}) {
    unfinished.add_states(state);
  }
  v1::ListJobsResponse cancelled;
  std::set<std::string> asked;
  size_t before = 0;
  do {
    before = asked.size();
    auto jobs = client.List(unfinished);
    if (!jobs.ok()) return Fail(jobs.status());
    for (const v1::Job& listed : jobs->jobs()) {
      if (!asked.insert(listed.id()).second) continue;
      auto job = CancelOne(client, listed.id(), reason);
      if (!job.ok()) return Fail(job.status());
      if (global.output == OutputFormat::kTable) std::fputs(CancelLine(*job).c_str(), stdout);
      *cancelled.add_jobs() = *std::move(job);
    }
    // A job that runs is listed until its ranks have stopped, so the last list is one without a job that is new.
  } while (asked.size() > before);
  if (global.output == OutputFormat::kJson) std::fputs(JsonText(cancelled).c_str(), stdout);
  return kExitOk;
}

int Logs(const GlobalOptions& global, const LogsOptions& options) {
  v1::GetLogsRequest request;
  request.set_job_id(options.job);
  request.set_rank(options.rank);
  request.set_lines(options.lines);
  auto response = Connect(global).Logs(request);
  if (!response.ok()) return Fail(response.status());
  if (global.output == OutputFormat::kJson) {
    std::fputs(JsonText(*response).c_str(), stdout);
    return kExitOk;
  }
  if (response->lines().empty()) std::fprintf(stderr, "no rank of this job has written anything\n");
  for (const v1::LogLine& line : response->lines()) {
    std::printf("[rank %d g%lld] %s\n", line.rank(), static_cast<long long>(line.generation()), line.text().c_str());
  }
  return kExitOk;
}

int Nodes(const GlobalOptions& global) {
  auto response = Connect(global).Nodes();
  if (!response.ok()) return Fail(response.status());
  const std::string text = global.output == OutputFormat::kJson
                               ? JsonText(*response)
                               : NodeTable({response->nodes().begin(), response->nodes().end()}, Now());
  std::fputs(text.c_str(), stdout);
  return kExitOk;
}

}  // namespace lynx
