#include <google/protobuf/util/json_util.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <limits>
#include <optional>
#include <set>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "cli/connect/authority_renewal.h"
#include "cli/connect/client.h"
#include "cli/connect/log_printer.h"
#include "cli/connect/submission.h"
#include "cli/connect/waiting_reason.h"
#include "cli/local/find_server.h"
#include "cli/output/exit_code.h"
#include "cli/output/listings.h"
#include "cli/output/narrow.h"
#include "cli/output/render.h"
#include "cli/spec/job_file.h"
#include "cli/spec/scalar_text.h"
#include "cli/verbs/commands.h"
#include "common/check.h"
#include "common/clock.h"
#include "common/status.h"
#include "common/utf8.h"
#include "planner/problem/layout.h"
#include "proto/convert.h"
#include "proto/event_kind.h"

namespace lynx::cli {
namespace {

// How long `watch` waits for a lost server before it gives up.
constexpr Nanos kWatchPatience{120'000'000'000};
// Without a terminal a progress line is printed no more often than this.
constexpr Nanos kPlainInterval{5'000'000'000};
// The state of a job, and two spaces.
constexpr size_t kStateColumns = 11;
constexpr int32_t kAllJobs = std::numeric_limits<int32_t>::max();

bool IsTable(const GlobalOptions& global) {
  return global.output == OutputFormat::kTable || global.output == OutputFormat::kWide;
}

int PrintJob(const GlobalOptions& global, const v1::Job& job) {
  return Show(global.output, job, JobListing({job}, Cells(global)), JobPage(job, StyleOf(STDOUT_FILENO), RealClock().Wall()));
}

// Prints the job; in table formats prints a line about it instead.
int PrintLine(const GlobalOptions& global, const v1::Job& job, const std::string& line) {
  return Show(global.output, job, JobListing({job}, Cells(global)), line);
}

std::vector<v1::JobState> AllStates(bool ended) {
  std::vector<v1::JobState> states;
  for (int i = v1::JOB_STATE_QUEUED; i <= v1::JOB_STATE_CANCELLED; ++i) {
    if (IsFinal(static_cast<v1::JobState>(i)) == ended) states.push_back(static_cast<v1::JobState>(i));
  }
  return states;
}

absl::StatusOr<v1::JobState> ParseState(const std::string& name, const std::vector<v1::JobState>& among) {
  v1::JobState state = v1::JOB_STATE_UNSPECIFIED;
  std::vector<std::string> names;
  for (const v1::JobState known : among) {
    if (StateName(known) == absl::AsciiStrToUpper(name)) state = known;
    names.push_back(absl::AsciiStrToLower(StateName(known)));
  }
  if (state != v1::JOB_STATE_UNSPECIFIED) return state;
  return absl::InvalidArgumentError(absl::StrCat("--state ", name, ": expected ", absl::StrJoin(names, ", ")));
}

// The user whose jobs a list has if no user is named: a submitter's own, because a submitter may change no others. Empty:
// everybody's.
absl::StatusOr<std::string> OwnJobsOnly(Client& client) {
  if (client.server().token.empty()) return "";  // the server has no users
  LYNX_ASSIGN_OR_RETURN(const v1::WhoAmIResponse me, client.ReadAdmin(&v1::Admin::Stub::WhoAmI, v1::WhoAmIRequest()));
  return me.role() == v1::ROLE_SUBMITTER ? me.name() : "";
}

// Lists jobs. FailedPrecondition: the request names an owner, and the server is of a release that does not know owners; it then
// lists everybody's jobs.
absl::StatusOr<v1::ListJobsResponse> ListOfOwner(Client& client, const v1::ListJobsRequest& request) {
  LYNX_ASSIGN_OR_RETURN(v1::ListJobsResponse response, client.List(request));
  if (response.owner() == request.owner()) return response;
  return absl::FailedPreconditionError(
      "this lynx-server is of an earlier release and does not know whose jobs are whose: upgrade it");
}

// Lists jobs in one of the requested states, or in one of the states `among` if no state is requested.
absl::StatusOr<v1::ListJobsResponse> FindJobs(const GlobalOptions& global, const ListOptions& options,
                                              const std::vector<v1::JobState>& among) {
  v1::ListJobsRequest request;
  Client client = Connect(global);
  request.set_limit(options.limit);
  for (const std::string& name : options.states) {
    LYNX_ASSIGN_OR_RETURN(const v1::JobState state, ParseState(name, among));
    request.add_states(state);
  }
  if (options.states.empty()) request.mutable_states()->Add(among.begin(), among.end());
  request.set_owner(options.user);
  if (!options.user.empty()) return ListOfOwner(client, request);
  if (!options.all_users) {
    LYNX_ASSIGN_OR_RETURN(*request.mutable_owner(), OwnJobsOnly(client));
  }
  return client.List(request);
}

// A note below a table that does not show all jobs.
std::string LeftOut(const v1::ListJobsResponse& response, const ListOptions& options) {
  std::string note;
  if (!response.owner().empty() && options.user.empty()) {
    note = absl::StrCat("\nonly jobs of ", response.owner(), "; --all-users lists everybody's\n");
  }
  if (response.more()) absl::StrAppend(&note, "\nthe newest ", response.jobs_size(), "; there are more: --limit N\n");
  return note;
}

// Prints changes as they come. On a terminal it updates one line; elsewhere it prints a line now and then.
class ProgressPrinter {
 public:
  ProgressPrinter() : terminal_(IsTerminal(STDOUT_FILENO)), style_(StyleOf(STDOUT_FILENO)) {}

  void Update(const v1::WatchJobResponse& update) {
    for (const v1::JobEvent& event : update.events()) {
      if (event.sequence() <= last_event_) continue;
      last_event_ = event.sequence();
      // There are too many checkpoints to show. The page at the end tells about them.
      if (event.kind() == EventKindName(EventKind::kCheckpoint)) continue;
      PrintState(event.state(), event.reason());
      why_.Said(event.reason());
    }
    const v1::Job& job = update.job();
    if (job.state() == v1::JOB_STATE_RUNNING && job.progress().steps_done() > 0) Draw(job);
    std::fflush(stdout);
    Wait(job);
  }

  // Prints why the job waits, if it is time to do so. Called after each message, and once a second while no message comes.
  void Wait(const v1::Job& job) {
    const std::string why = why_.Due(job, clock_.Monotonic());
    if (why.empty()) return;
    PrintState(job.state(), why);
    std::fflush(stdout);
  }

  void Lost() {
    ClearLine();
    if (!lost_) {
      constexpr char kLost[] = "the server is away; training goes on; trying again";
      std::printf("%*s%s\n", static_cast<int>(kStateColumns), "", Fitted(kLost).c_str());
    }
    lost_ = true;
    std::fflush(stdout);
  }

  void Finish(const v1::Job& job) {
    ClearLine();
    if (job.progress().steps_done() > 0) std::printf("%s\n", ProgressLine(job, Width()).c_str());
  }

 private:
  void PrintState(v1::JobState state, const std::string& reason) {
    ClearLine();
    std::printf("%s  %s\n", Colored(state, absl::StrFormat("%-9s", StateName(state)), style_).c_str(),
                Fitted(VisibleLine(reason)).c_str());
  }

  // The text as it stands right of the state. On a terminal it is broken between words.
  static std::string Fitted(const std::string& text) {
    const std::optional<size_t> width = TerminalWidth(STDOUT_FILENO);
    return width.has_value() ? Wrapped(text, *width, kStateColumns, kStateColumns) : text;
  }

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

  static int Width() {
    const std::optional<size_t> width = TerminalWidth(STDOUT_FILENO);
    return width.has_value() ? static_cast<int>(*width) - 1 : 100;
  }

  RealClock clock_;
  bool terminal_;
  Style style_;
  bool drawn_ = false;
  bool lost_ = false;
  int64_t last_event_ = 0;
  WaitingReason why_;
  Nanos last_plain_;
};

int ExitCodeOf(const v1::Job& job) { return job.state() == v1::JOB_STATE_SUCCEEDED ? kExitOk : kExitJobFailed; }

int PrintEnd(const GlobalOptions& global, Client& client, const std::string& id) {
  v1::GetJobRequest request;
  request.set_job_id(id);
  auto job = client.Get(request);
  if (!job.ok()) return Fail(job.status());
  const int printed = PrintJob(global, *job);
  return printed == kExitOk ? ExitCodeOf(*job) : printed;
}

int FollowToEnd(const GlobalOptions& global, Client& client, const std::string& id) {
  ProgressPrinter printer;
  v1::Job last;
  const absl::Status watched = client.Watch(
      id, kWatchPatience,
      [&](const v1::WatchJobResponse& update) {
        last = update.job();
        if (IsTable(global)) printer.Update(update);
        return true;
      },
      [&] {
        if (IsTable(global)) printer.Lost();
      },
      [&] {
        if (IsTable(global)) printer.Wait(last);
      });
  if (!watched.ok()) return Fail(watched);
  if (IsTable(global)) {
    printer.Finish(last);
    std::printf("\n");
  }
  return PrintEnd(global, client, last.id());
}

// Prints what the job's ranks write, and at the end the same as `watch` without logs.
int FollowWithLogs(const GlobalOptions& global, Client& client, const std::string& id) {
  v1::GetLogsRequest request;
  request.set_job_id(id);
  request.set_rank(-1);
  const absl::Status followed = FollowLogs(client, std::move(request), PrintLogLine);
  if (!followed.ok()) return Fail(followed);
  std::printf("\n");
  return PrintEnd(global, client, id);
}

std::string CancelLine(const v1::Job& job, bool checkpoint) {
  if (IsFinal(job.state())) return absl::StrCat("job ", job.id(), " is ", StateName(job.state()), "\n");
  return absl::StrCat("job ", job.id(), checkpoint ? " writes a checkpoint and ends\n" : " is being cancelled\n");
}

int CancelAll(const GlobalOptions& global, Client& client, const std::string& user, v1::CancelJobRequest request) {
  v1::ListJobsRequest unfinished;
  unfinished.set_owner(user);
  if (user.empty()) {
    const absl::StatusOr<std::string> own = OwnJobsOnly(client);
    if (!own.ok()) return Fail(own.status());
    unfinished.set_owner(*own);
  }
  unfinished.set_limit(kAllJobs);
  const std::vector<v1::JobState> states = AllStates(false);
  unfinished.mutable_states()->Add(states.begin(), states.end());
  v1::ListJobsResponse cancelled;
  std::set<std::string> asked;
  size_t before = 0;
  do {
    before = asked.size();
    auto jobs = ListOfOwner(client, unfinished);
    if (!jobs.ok()) return Fail(jobs.status());
    for (const v1::Job& listed : jobs->jobs()) {
      if (!asked.insert(listed.id()).second) continue;
      request.set_job_id(listed.id());
      auto job = client.Cancel(request);
      if (!job.ok()) return Fail(job.status());
      if (IsTable(global)) std::fputs(CancelLine(*job, request.checkpoint()).c_str(), stdout);
      *cancelled.add_jobs() = *std::move(job);
    }
    // A running job is listed until its ranks have stopped. So the loop ends with the first list that has no new job.
  } while (asked.size() > before);
  if (IsTable(global)) return kExitOk;
  return Show(global.output, cancelled, JobListing({cancelled.jobs().begin(), cancelled.jobs().end()}, Cells(global)));
}

absl::Status CheckSubmit(const GlobalOptions& global, const SubmitOptions& options) {
  const bool follows = options.wait || options.follow;
  if (follows && options.files.size() > 1) {
    return absl::InvalidArgumentError("--wait and --follow are for one job: submit one file, or without them");
  }
  if (follows && options.dry_run) return absl::InvalidArgumentError("--dry-run submits nothing: there is nothing to wait for");
  if (!options.follow) return absl::OkStatus();
  // JSON, YAML and csv have no place for lines of logs.
  return Annotate(CheckOutput(global.output, {OutputFormat::kTable, OutputFormat::kWide}), "--follow");
}

// Prints the job files with all their defaults, as they would be submitted.
int PrintDryRun(const GlobalOptions& global, const std::vector<v1::SubmitJobRequest>& requests) {
  using enum OutputFormat;
  if (const absl::Status known = CheckOutput(global.output, {kTable, kWide, kJson, kYaml}); !known.ok()) return Fail(known);
  for (const v1::SubmitJobRequest& request : requests) {
    const absl::StatusOr<JobSpec> spec = FromProto(request.spec());
    if (!spec.ok()) return Fail(spec.status());
    if (requests.size() > 1 && global.output != kJson) std::printf("---\n");
    std::fputs((global.output == kJson ? JsonText(request.spec()) : JobFileText(*spec)).c_str(), stdout);
  }
  std::fprintf(stderr, "nothing was submitted; 'lynxctl plan' tells what would be planned\n");
  return kExitOk;
}

bool IsWanted(const EventsOptions& options, const v1::JobEvent& event) {
  return options.kinds.empty() || std::find(options.kinds.begin(), options.kinds.end(), event.kind()) != options.kinds.end();
}

std::string EventOutput(const GlobalOptions& global, const v1::JobEvent& event, Style style) {
  if (IsTable(global)) {
    const size_t width = TerminalWidth(STDOUT_FILENO).value_or(std::numeric_limits<size_t>::max());
    return EventLine(event, Cells(global).Time(event.time_unix_ns()), width, style);
  }
  if (global.output == OutputFormat::kYaml) return absl::StrCat("---\n", YamlText(event));
  std::string json;
  LYNX_CHECK(google::protobuf::util::MessageToJsonString(event, &json).ok());
  return json + "\n";
}

// Follows events until the job has ended; one line per event.
int FollowEvents(const GlobalOptions& global, const EventsOptions& options) {
  using enum OutputFormat;
  if (const absl::Status known = CheckOutput(global.output, {kTable, kWide, kJson, kYaml}); !known.ok())
    return Fail(Annotate(known, "--follow"));
  Client client = Connect(global);
  const Style style = StyleOf(STDOUT_FILENO);
  int64_t last = 0;
  const auto told = client.GetWithEvents(options.job);
  if (!told.ok()) return Fail(told.status());
  for (const v1::JobEvent& event : told->events()) {
    last = event.sequence();
    if (IsWanted(options, event)) std::fputs(EventOutput(global, event, style).c_str(), stdout);
  }
  std::fflush(stdout);
  const absl::Status watched = client.Watch(
      told->id(), kWatchPatience,
      [&](const v1::WatchJobResponse& update) {
        for (const v1::JobEvent& event : update.events()) {
          if (event.sequence() <= last) continue;
          last = event.sequence();
          if (IsWanted(options, event)) std::fputs(EventOutput(global, event, style).c_str(), stdout);
        }
        std::fflush(stdout);
        return true;
      },
      [] {});
  return watched.ok() ? kExitOk : Fail(watched);
}

}  // namespace

Client Connect(const GlobalOptions& global) {
  Client client(FindServer(global.connection), NanosFromSeconds(global.timeout_seconds));
  const std::string& file = client.server().context_file;
  if (file.empty()) return client;
  const std::string note = RenewAuthority(client, file, RealClock().Wall());
  if (!note.empty()) std::fprintf(stderr, "note: %s\n", note.c_str());
  return client;
}

CellText Cells(const GlobalOptions& global) { return CellText(global.output, RealClock().Wall()); }

int Submit(const GlobalOptions& global, const SubmitOptions& options) {
  const bool several = options.files.size() > 1;
  if (const absl::Status checked = CheckSubmit(global, options); !checked.ok()) return Fail(checked);
  std::vector<v1::SubmitJobRequest> requests;
  for (const std::string& file : options.files) {
    auto spec = ReadJobFile(file, options.overrides);
    if (!spec.ok()) return Fail(spec.status());
    if (const absl::Status runs = CheckEngineRuns(spec->model, PinnedLayout(spec->parallel)); options.dry_run && !runs.ok()) {
      return Fail(Annotate(runs, file));
    }
    v1::SubmitJobRequest& request = requests.emplace_back();
    *request.mutable_spec() = ToProto(*spec);
    const std::string& key = options.idempotency_key;
    request.set_idempotency_key(key.empty() ? FreshKey() : several ? absl::StrCat(key, ".", requests.size()) : key);
  }
  if (options.dry_run) return PrintDryRun(global, requests);
  Client client = Connect(global);
  int code = kExitOk;
  bool headed = false;  // true once the header is printed; a csv has only one
  for (size_t i = 0; i < requests.size(); ++i) {
    auto response = client.Submit(requests[i]);
    if (!response.ok()) {
      absl::Status why = response.status();
      if (absl::IsDeadlineExceeded(why)) {
        why = absl::Status(why.code(),
                           absl::StrCat(why.message(), "; it may have taken the job: the same command with --idempotency-key ",
                                        requests[i].idempotency_key(), " makes no second one"));
      }
      const int failed = Fail(several ? Annotate(why, options.files[i]) : why);
      if (code == kExitOk) code = failed;
      if (code == kExitUnreachable) break;
      continue;
    }
    const v1::Job& job = response->job();
    if (options.wait || options.follow) {
      if (IsTable(global)) std::printf("job %s submitted\n", job.id().c_str());
      std::fflush(stdout);
      return options.follow ? FollowWithLogs(global, client, job.id()) : FollowToEnd(global, client, job.id());
    }
    if (several && global.output == OutputFormat::kYaml) std::printf("---\n");
    if (global.output == OutputFormat::kCsv) {
      const absl::StatusOr<std::string> csv = ListingText(JobListing({job}, Cells(global)), global.output);
      LYNX_CHECK(csv.ok());
      std::fputs(csv->c_str() + (std::exchange(headed, true) ? csv->find('\n') + 1 : 0), stdout);
      continue;
    }
    const int printed = PrintLine(global, job, SubmittedText(job.id(), response->existed()));
    if (code == kExitOk) code = printed;
  }
  return code;
}

int List(const GlobalOptions& global, const ListOptions& options) {
  std::vector<v1::JobState> all = AllStates(false);
  const std::vector<v1::JobState> ended = AllStates(true);
  all.insert(all.end(), ended.begin(), ended.end());
  const auto response = FindJobs(global, options, all);
  if (!response.ok()) return Fail(response.status());
  Listing listing = JobListing({response->jobs().begin(), response->jobs().end()}, Cells(global));
  listing.notes += LeftOut(*response, options);
  return Show(global.output, *response, listing);
}

int History(const GlobalOptions& global, const ListOptions& options) {
  const auto response = FindJobs(global, options, AllStates(true));
  if (!response.ok()) return Fail(response.status());
  Listing listing = HistoryListing({response->jobs().begin(), response->jobs().end()}, Cells(global));
  listing.notes += LeftOut(*response, options);
  return Show(global.output, *response, listing);
}

int Get(const GlobalOptions& global, const std::string& id, bool events) {
  v1::GetJobRequest request;
  request.set_job_id(id);
  Client client = Connect(global);
  const auto job = events ? client.GetWithEvents(id) : client.Get(request);
  if (!job.ok()) return Fail(job.status());
  return PrintJob(global, *job);
}

int Watch(const GlobalOptions& global, const std::string& id) {
  Client client = Connect(global);
  return FollowToEnd(global, client, id);
}

int Events(const GlobalOptions& global, const EventsOptions& options) {
  if (options.follow) return FollowEvents(global, options);
  auto job = Connect(global).GetWithEvents(options.job);
  if (!job.ok()) return Fail(job.status());
  const bool from_the_first = job->events().empty() || job->events(0).sequence() <= 1;
  v1::WatchJobResponse shown;
  for (v1::JobEvent& event : *job->mutable_events()) {
    if (IsWanted(options, event)) *shown.add_events() = std::move(event);
  }
  Listing listing = EventListing({shown.events().begin(), shown.events().end()}, Cells(global));
  if (!from_the_first) listing.notes += "\nearlier events are not kept\n";
  return Show(global.output, shown, listing);
}

int Cancel(const GlobalOptions& global, const CancelOptions& options) {
  v1::CancelJobRequest request;
  request.set_job_id(options.job);
  request.set_reason(options.reason);
  request.set_checkpoint(options.checkpoint);
  if (!options.grace.empty()) {
    const absl::StatusOr<Nanos> grace = ParseDuration(options.grace);
    if (!grace.ok()) return Fail(Annotate(grace.status(), "--grace"));
    request.set_grace_ns(grace->value);
  }
  Client client = Connect(global);
  if (options.all) return CancelAll(global, client, options.user, request);
  const auto job = client.Cancel(request);
  if (!job.ok()) return Fail(job.status());
  return PrintLine(global, *job, CancelLine(*job, options.checkpoint));
}

int Nodes(const GlobalOptions& global, const std::vector<std::string>& names) {
  v1::ListNodesRequest request;
  request.set_include_measurements(global.output == OutputFormat::kJson ||
                                   global.output == OutputFormat::kYaml);  // table formats show no measurements
  request.mutable_nodes()->Add(names.begin(), names.end());
  const auto response = Connect(global).Nodes(request);
  if (!response.ok()) return Fail(response.status());
  return Show(global.output, *response, NodeListing({response->nodes().begin(), response->nodes().end()}, Cells(global)));
}

}  // namespace lynx::cli
