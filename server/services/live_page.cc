// See live_page.h.
#include "server/services/live_page.h"

#include <algorithm>
#include <chrono>
#include <future>
#include <optional>
#include <string_view>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "common/status.h"
#include "common/version.h"
#include "node/log.h"
#include "planner/report/page_text.h"
#include "planner/report/step_trace.h"
#include "report/texts.h"
#include "server/services/live_views.h"
#include "server/wire/retry_later.h"

namespace lynx::server {
namespace {

constexpr size_t kMaxKept = 64;  // largest number of kept answers, and of kept traced steps
constexpr size_t kMaxName = 63;  // longest name of a job or a node
constexpr char kHtml[] = "text/html; charset=utf-8";
constexpr char kStyle[] = "text/css; charset=utf-8";
constexpr char kScript[] = "text/javascript; charset=utf-8";
constexpr char kJson[] = "application/json; charset=utf-8";
constexpr char kPolicy[] =
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src data:; connect-src 'self'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'";

// The RPC that tells as much as the page's files and the studio do: the studio tells about nodes and what agents measured on
// them, and to answer its questions changes nothing.
constexpr char kListNodes[] = "Cluster.ListNodes";

struct Rule {
  std::string path;
  std::string method;  // the RPC that returns the same data
  std::vector<std::string> parameters;
  const char* type = kJson;
  std::vector<std::string_view (*)()> texts = {};  // of a file, which is the same for everybody; empty: it is data
};
const std::vector<Rule>& Rules() {
  static const auto* rules = new std::vector<Rule>{{"/", kListNodes, {}, kHtml, {LivePageHtml}},
                                                   {"/page.css", kListNodes, {}, kStyle, {PageStyle, LivePageStyle}},
                                                   {"/page.js", kListNodes, {}, kScript, {LivePageScript}},
                                                   {"/shared.js", kListNodes, {}, kScript, {SharedScript}},
                                                   {"/api/cluster", kListNodes, {}},
                                                   {"/api/jobs", "Jobs.ListJobs", {}},
                                                   {"/api/nodes", kListNodes, {"from", "to"}},
                                                   {"/api/job", "Jobs.GetJob", {"id"}}};
  return *rules;
}

HttpReply Plain(int status, const std::string& text) { return {.status = status, .body = text + "\n"}; }

int HttpStatus(absl::StatusCode code) {
  switch (code) {
    case absl::StatusCode::kInvalidArgument: return 400;
    case absl::StatusCode::kUnauthenticated: return 401;
    case absl::StatusCode::kPermissionDenied: return 403;
    case absl::StatusCode::kNotFound: return 404;
    case absl::StatusCode::kResourceExhausted:
    case absl::StatusCode::kUnavailable:
    case absl::StatusCode::kCancelled: return 503;
    default: return 500;
  }
}

HttpReply Refusal(const absl::Status& status) {
  HttpReply reply = Plain(HttpStatus(status.code()), std::string(status.message()));
  if (reply.status == 401) {
    reply.headers.emplace_back(
        "WWW-Authenticate",
        "Basic realm=\"Lynx: any name, and as the password a token of 'lynxctl admin token add'\", charset=\"UTF-8\"");
  }
  if (reply.status == 503) {
    const std::optional<Nanos> delay = RetryDelayOf(status);
    reply.headers.emplace_back("Retry-After", absl::StrCat(delay.has_value() ? 1 + delay->value / 1'000'000'000 : 2));
  }
  return reply;
}

// Converts the token of basic or bearer authentication to the form that the guard expects. Other text is returned unchanged.
std::string BearerOf(const std::string& authorization) {
  constexpr std::string_view kBasic = "basic ";
  std::string pair;
  if (!absl::StartsWithIgnoreCase(authorization, std::string(kBasic))) return authorization;
  if (!absl::Base64Unescape(authorization.substr(kBasic.size()), &pair)) return authorization;
  const size_t colon = pair.find(':');
  return colon == std::string::npos ? authorization : "Bearer " + pair.substr(colon + 1);
}

// Parses a query "a=b&c=d" that must have exactly the parameters `names`. The values must be valid names of jobs or nodes.
// Returns the values in the order of `names`.
absl::StatusOr<std::vector<std::string>> Parameters(const std::string& query, const std::vector<std::string>& names) {
  std::vector<std::string> values(names.size());
  for (const absl::string_view part : absl::StrSplit(query, '&', absl::SkipEmpty())) {
    const std::pair<std::string, std::string> pair = absl::StrSplit(part, absl::MaxSplits('=', 1));
    const auto name = std::find(names.begin(), names.end(), pair.first);
    if (name == names.end())
      return absl::InvalidArgumentError(
          absl::StrCat("no such parameter; this address takes ", names.empty() ? "none" : absl::StrJoin(names, ", ")));
    values[static_cast<size_t>(name - names.begin())] = pair.second;
  }
  for (size_t i = 0; i < names.size(); ++i) {
    const bool good = std::all_of(values[i].begin(), values[i].end(), [](char c) {
      return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '.' || c == '_' || c == '-';
    });
    if (values[i].empty() || values[i].size() > kMaxName || !good) {
      return absl::InvalidArgumentError(absl::StrCat("the parameter '", names[i], "' must be 1 to ", kMaxName,
                                                     " letters, digits, dots, dashes and underscores"));
    }
  }
  return values;
}

std::set<std::string> LowerCase(const std::vector<std::string>& names) {
  std::set<std::string> lower;
  for (const std::string& name : names) lower.insert(absl::AsciiStrToLower(name));
  return lower;
}

JobSummary JobSummaryOf(const JobRecord& job, const Plan* plan, std::optional<double> goodput) {
  return {.id = job.id,
          .name = job.spec->name,
          .reason = job.reason,
          .state = job.state,
          .pending = job.pending,
          .progress = job.progress,
          .steps = job.spec->train.steps,
          .predicted = plan == nullptr ? Nanos(0) : plan->step,
          .restarts = job.restarts,
          .goodput = goodput};
}

}  // namespace

struct LivePage::Entry {
  std::mutex mutex;  // held while the answer is made; other threads wait for it
  Nanos made;        // guarded by mutex; 0: no answer has been made yet
  HttpReply reply;   // guarded by mutex
  Nanos asked;       // guarded by LivePage::mutex_
};

LivePage::LivePage(ServerCore& core, JobsService& jobs, Guard& guard, LivePageOptions options, const Clock& clock)
    : core_(core), jobs_(jobs), guard_(guard), options_(std::move(options)), hosts_(LowerCase(options_.hosts)), clock_(clock),
      studio_(
          hosts_,
          [this] { return OnOwner<std::vector<WholeNode>>([core = &core_] { return core->controller().WholeNodes(); }); },
          options_.fresh, clock) {}

HttpReply LivePage::Answer(const HttpRequest& request) {
  std::optional<HttpReply> reply = RefusedHost(request);
  if (!reply.has_value() && StudioTab::Has(request.path)) {
    reply = RefusedCaller(request, kListNodes);
    if (!reply.has_value()) return studio_.Answer(request);
  }
  if (!reply.has_value()) reply = Route(request);
  AddPageHeaders(kPolicy, *reply);
  if (request.method == "HEAD") reply->body.clear();
  return *std::move(reply);
}

std::optional<HttpReply> LivePage::RefusedBody(const HttpRequest& request) {
  if (!StudioTab::Has(request.path)) return Answer(request);  // nothing else of the page reads a body
  std::optional<HttpReply> reply = RefusedHost(request);
  if (!reply.has_value()) reply = RefusedCaller(request, kListNodes);
  if (reply.has_value()) AddPageHeaders(kPolicy, *reply);
  return reply;
}

std::optional<HttpReply> LivePage::RefusedHost(const HttpRequest& request) const {
  if (hosts_.contains(HostName(request.host))) return std::nullopt;
  return Plain(421,
               "this page is not served under the name that was asked for: use localhost, or name it with --tls-names where "
               "a proxy stands before the server");
}

std::optional<HttpReply> LivePage::RefusedCaller(const HttpRequest& request, const std::string& method) {
  const absl::StatusOr<Caller> caller = guard_.AdmitHttp(RuleOf(method), BearerOf(request.authorization), request.from);
  if (caller.ok()) return std::nullopt;
  return Refusal(caller.status());
}

HttpReply LivePage::Route(const HttpRequest& request) {
  if (request.method != "GET" && request.method != "HEAD") {
    return {
        .status = 405, .body = "this page only shows: use lynxctl to change something\n", .headers = {{"Allow", "GET, HEAD"}}};
  }
  const auto rule = std::find_if(Rules().begin(), Rules().end(), [&](const Rule& known) { return known.path == request.path; });
  if (rule == Rules().end()) return Plain(404, "there is no such page; the page is at /");
  if (std::optional<HttpReply> refusal = RefusedCaller(request, rule->method)) return *std::move(refusal);
  const absl::StatusOr<std::vector<std::string>> values = Parameters(request.query, rule->parameters);
  if (!values.ok()) return Refusal(values.status());

  HttpReply reply{.type = rule->type};
  for (const auto text : rule->texts) reply.body += text();
  if (!rule->texts.empty()) return reply;
  const std::string key = absl::StrCat(request.path, " ", absl::StrJoin(*values, " "));
  if (request.path == "/api/cluster") return Kept(key, [&] { return Cluster(); });
  if (request.path == "/api/jobs") return Kept(key, [&] { return Jobs(); });
  if (request.path == "/api/nodes") return Kept(key, [&] { return Nodes(values->at(0), values->at(1)); });
  return Kept(key, [&] { return Job(values->at(0)); });
}

HttpReply LivePage::Kept(const std::string& key, const std::function<absl::StatusOr<std::string>()>& make) {
  std::shared_ptr<Entry> entry;
  {
    const std::lock_guard lock(mutex_);
    const Nanos now = clock_.Monotonic();
    std::erase_if(kept_, [&](const auto& one) { return now - one.second->asked >= options_.forget; });
    std::erase_if(traces_, [&](const auto& one) { return now - one.second.looked >= options_.forget; });
    // The cache is emptied when it is full. This costs little: a dropped answer is made again when it is next requested.
    if (kept_.size() >= kMaxKept && !kept_.contains(key)) kept_.clear();
    std::shared_ptr<Entry>& kept = kept_[key];
    if (kept == nullptr) kept = std::make_shared<Entry>();
    kept->asked = now;
    entry = kept;
  }
  const std::lock_guard lock(entry->mutex);
  const Nanos now = clock_.Monotonic();
  if (entry->made > Nanos(0) && now - entry->made < options_.fresh) return entry->reply;
  const absl::StatusOr<std::string> made = make();
  entry->reply = made.ok() ? HttpReply{.type = kJson, .body = *made} : Refusal(made.status());
  entry->made = clock_.Monotonic();
  return entry->reply;
}

template <class Value>
absl::StatusOr<Value> LivePage::OnOwner(std::function<absl::StatusOr<Value>()> work) {
  // The task shares the promise, because the requester may be gone when the task runs.
  auto promise = std::make_shared<std::promise<absl::StatusOr<Value>>>();
  std::future<absl::StatusOr<Value>> answer = promise->get_future();
  if (!core_.loop().Run([promise, work = std::move(work)] { promise->set_value(work()); })) return Overloaded();
  if (answer.wait_for(std::chrono::nanoseconds(options_.patience.value)) != std::future_status::ready) {
    return absl::UnavailableError("the server is behind with its work; look again soon");
  }
  return answer.get();
}

absl::StatusOr<std::string> LivePage::Cluster() {
  LYNX_ASSIGN_OR_RETURN(
      const ClusterSummary cluster, OnOwner<ClusterSummary>([core = &core_] {
        return ClusterSummary{core->controller().Summaries(), core->controller().TakeClusterStats().jobs, core->clock().Wall()};
      }));
  return ClusterJson(cluster);
}

absl::StatusOr<std::string> LivePage::Jobs() {
  LYNX_ASSIGN_OR_RETURN(
      std::vector<JobSummary> jobs, OnOwner<std::vector<JobSummary>>([core = &core_] {
        std::vector<JobSummary> list;
        const auto add = [&](const std::vector<JobState>& states) {
          for (const JobRecord* job : core->controller().List(kMaxJobs + 1 - list.size(), states)) {
            list.push_back(JobSummaryOf(*job, core->controller().PlanOf(job->id).get(), core->GoodputOf(job->id)));
          }
        };
        add({JobState::kRunning, JobState::kStarting, JobState::kPlanning});
        add({JobState::kQueued});
        add({JobState::kSucceeded, JobState::kFailed, JobState::kCancelled});
        return list;
      }));
  const bool more = jobs.size() > kMaxJobs;
  if (more) jobs.resize(kMaxJobs);
  return JobsJson(jobs, more);
}

absl::StatusOr<std::string> LivePage::Nodes(const std::string& from, const std::string& to) {
  using Views = std::vector<NodeView>;
  LYNX_ASSIGN_OR_RETURN(Views views, OnOwner<Views>([core = &core_, from, to] {
                          Views list;
                          for (const NodeSummary& node : core->controller().Summaries()) {
                            if (node.name.value < from || node.name.value > to) continue;
                            if (list.size() > kMaxNodes) break;
                            list.push_back(core->controller().ViewOf(node.name));
                          }
                          return list;
                        }));
  const bool more = views.size() > kMaxNodes;
  if (more) views.resize(kMaxNodes);
  return NodesJson(views, more);
}

absl::StatusOr<std::string> LivePage::Job(const std::string& id) {
  v1::GetJobRequest request;
  request.set_job_id(id);
  request.set_include_events(true);
  request.set_include_curves(true);
  LYNX_ASSIGN_OR_RETURN(const v1::GetJobResponse got,
                        OnOwner<v1::GetJobResponse>([jobs = &jobs_, request]() -> absl::StatusOr<v1::GetJobResponse> {
                          v1::GetJobResponse response;
                          LYNX_RETURN_IF_ERROR(jobs->FillJob(request, "", response));
                          return response;
                        }));
  const v1::Job& job = got.job();
  LYNX_ASSIGN_OR_RETURN(const Traced traced, TraceOf(job));
  Plan plan;
  if (job.has_plan()) {
    LYNX_ASSIGN_OR_RETURN(plan, FromProto(job.plan(), PlanPrograms::kLeftOut));
  }
  LYNX_ASSIGN_OR_RETURN(std::vector<PagePart> parts, JobReportParts({.job = &job,
                                                                     .curves = &got.curves(),
                                                                     .plan = traced.step != nullptr ? &traced.step->plan
                                                                             : job.has_plan()       ? &plan
                                                                                                    : nullptr,
                                                                     .traced = traced.step.get(),
                                                                     .version = kVersion,
                                                                     .now = clock_.Wall()}));
  for (PagePart& part : parts) {
    const bool left_out = part.html.size() > kMaxPartLength || (traced.too_large && part.id == "step");
    if (left_out)
      part.html = ReportSection(
          part.id, "Left out", "",
          absl::StrCat("<p class=\"note\">This part of so large a job is in its report: lynxctl report ", job.id(), "</p>\n"));
  }
  return JobJson(job.id(), job.spec().name(), absl::AsciiStrToLower(StateName(job.state())), parts);
}

absl::StatusOr<LivePage::Traced> LivePage::TraceOf(const v1::Job& job) {
  const std::string key = absl::StrCat(job.id(), " ", job.generation(), " ", job.plan().digest());
  {
    const std::lock_guard lock(mutex_);
    const auto found = traces_.find(key);
    if (found != traces_.end() && clock_.Monotonic() - found->second.looked < options_.trace_fresh) return found->second;
  }
  struct Answer {
    std::optional<v1::TraceJobResponse> response;
    bool too_large = false;
  };
  LYNX_ASSIGN_OR_RETURN(const Answer answer, OnOwner<Answer>([core = &core_, jobs = &jobs_, id = JobId(job.id()),
                                                              most = options_.most_actions]() -> absl::StatusOr<Answer> {
                          LYNX_ASSIGN_OR_RETURN(const std::optional<StepTrace> trace, core->store().LoadTrace(id));
                          if (!trace.has_value()) return Answer{};
                          size_t times = 0;
                          for (const std::vector<int64_t>& stage : trace->stages) times += stage.size();
                          if (times > most * kTimesPerAction) return Answer{.too_large = true};
                          v1::TraceJobRequest request;
                          request.set_job_id(id.value);
                          Answer filled{.response = v1::TraceJobResponse()};
                          const absl::Status status = jobs->FillTrace(request, "", *filled.response);
                          if (status.code() == absl::StatusCode::kFailedPrecondition)
                            return Answer{};  // the newest trace was made with an earlier plan
                          LYNX_RETURN_IF_ERROR(status);
                          return filled;
                        }));
  Traced traced{.too_large = answer.too_large, .looked = clock_.Monotonic()};
  if (answer.response.has_value()) {
    // If the traced step cannot be read, the page shows the rest of the job without it. The page does not read the step again
    // until `trace_fresh` is over.
    absl::StatusOr<std::unique_ptr<const TracedJob>> step = ReadTrace(*answer.response);
    if (step.ok()) {
      traced.step = *std::move(step);
    } else {
      LogWarn("live page: the traced step of job {} is left out: {}", job.id(), std::string(step.status().message()));
    }
  }
  const std::lock_guard lock(mutex_);
  if (traces_.size() >= kMaxKept) traces_.clear();
  traces_[key] = traced;
  return traced;
}

}  // namespace lynx::server
