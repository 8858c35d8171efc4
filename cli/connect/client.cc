#include "cli/connect/client.h"

#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <chrono>
#include <optional>
#include <thread>

#include "absl/strings/match.h"
#include "absl/strings/str_join.h"
#include "cli/connect/leader_memory.h"
#include "common/clock.h"
#include "common/status.h"
#include "google/rpc/retry.pb.h"
#include "node/channel.h"
#include "proto/message_limit.h"
#include "security/credentials.h"
#include "security/presented.h"

namespace lynx::cli {
namespace {

constexpr int32_t kMaxPage = 1000;
constexpr Nanos kProbeLimit{2'000'000'000};
constexpr Nanos kTick{1'000'000'000};
// How often a watch that waits asks whether it should go on. A person who ends it does not notice this time.
constexpr Nanos kAskEvery{50'000'000};
constexpr Nanos kShortestRetry{50'000'000};
constexpr Nanos kMaxRetry{60'000'000'000};
// How long to wait for a connection if there are several addresses. kReachBesideOthers: if another address is connected
// already, because the server there can say at once who leads. kReachNamed: if a server has named this address as the leader.
// That may be wrong, because the leader may just have failed.
constexpr Nanos kReachLimit{2'000'000'000}, kReachNamed{500'000'000}, kReachBesideOthers{200'000'000};
constexpr int64_t kAttempts = 3;  // the first attempt of a call has this part of its time
constexpr Nanos kReachTick{20'000'000};
// The wait between two rounds over the addresses.
constexpr Nanos kRoundWait{150'000'000};
constexpr char kSilent[] = "does not answer";  // the text about an address

std::shared_ptr<grpc::Channel> Dial(const ServerAddress& server, const std::string& address, bool several) {
  grpc::ChannelArguments arguments;
  const PingPace pings = PingPaceFor(several);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, pings.every_ms);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, pings.limit_ms);
  // A watch is silent while its job waits. Pings continue, so that a failed machine is noticed.
  arguments.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  // Proxies are not used, as in the daemons, because a web proxy does not lead to a server of the cluster.
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 1'000);
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 200);
  arguments.SetMaxReceiveMessageSize(kMaxMessageBytes);
  // A channel that replaces a failed one makes a connection of its own at once.
  if (several) arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  grpc_init();  // never shut down: the program exits directly
  return grpc::CreateCustomChannel(
      address, server.authority.empty() ? grpc::InsecureChannelCredentials() : AuthorityChannelCredentials(server.authority),
      arguments);
}

using Deadline = std::chrono::system_clock::time_point;

Deadline DeadlineIn(Nanos timeout) { return std::chrono::system_clock::now() + std::chrono::nanoseconds(timeout.value); }

bool GoOn() { return true; }

// Waits until the deadline for the one pending operation of the call, and asks `going` meanwhile. If the operation is not
// complete by then, or `going` returns false, cancels the call, which ends the operation. Returns true if the operation
// succeeded.
bool Await(grpc::CompletionQueue& queue, grpc::ClientContext& context, Deadline deadline, const std::function<bool()>& going) {
  void* tag = nullptr;
  bool ok = false;
  while (queue.AsyncNext(&tag, &ok, std::min(deadline, DeadlineIn(kAskEvery))) == grpc::CompletionQueue::TIMEOUT) {
    if (going() && std::chrono::system_clock::now() < deadline) continue;
    context.TryCancel();
    queue.Next(&tag, &ok);
    return false;
  }
  return ok;
}

// The likely reason why a connection failed. gRPC does not report the reason, so this function connects to the address itself
// to find it out.
std::string WhyNot(const ServerAddress& server, const std::string& address) {
  const absl::StatusCode shown = PresentedCertificates(address, kProbeLimit).status().code();
  if (shown == absl::StatusCode::kOk && server.authority.empty()) {
    return "; it speaks TLS, and this call was in plain text: give --context FILE, or --ca-file and --token-file (an admin "
           "makes "
           "one with 'lynxctl admin user add --context-file'; the first admin's is admin.context in the server's --data-dir)";
  }
  if (shown == absl::StatusCode::kOk) {
    return "; its certificate is not of the authority that the context or --ca-file names, or does not name this host "
           "(lynx-server's --tls-names adds names)";
  }
  if (shown == absl::StatusCode::kFailedPrecondition && !server.authority.empty()) {
    return "; it does not speak TLS, and the context or --ca-file asks for it";
  }
  return "; is it running? 'lynxctl local up' starts a cluster on this machine, --server or LYNX_SERVER names another";
}

// How long the server asks the caller to wait; nullopt: the server does not say.
std::optional<Nanos> RetryDelay(const grpc::Status& status) {
  google::rpc::Status details;
  google::rpc::RetryInfo info;
  if (status.error_code() != grpc::StatusCode::RESOURCE_EXHAUSTED || !details.ParseFromString(status.error_details())) {
    return std::nullopt;
  }
  for (const google::protobuf::Any& detail : details.details()) {
    if (!detail.UnpackTo(&info)) continue;
    const Nanos delay(info.retry_delay().seconds() * 1'000'000'000 + info.retry_delay().nanos());
    return std::clamp(delay, kShortestRetry, kMaxRetry);
  }
  return std::nullopt;
}

}  // namespace

Client::Client(ServerAddress server, Nanos timeout)
    : server_(std::move(server)), timeout_(timeout), servers_(ServerAddresses::Parse(server_.address)) {
  if (server_.status.ok() && !servers_.ok()) server_.status = Annotate(servers_.status(), server_.source);
  if (!servers_.ok() || !servers_->several()) return;
  remembered_ = RememberedLeader(server_.leaders_file, servers_->text());
  servers_->BeginWith(remembered_);
}

void Client::Answered() {
  servers_->Answered();
  if (!servers_->several() || present() == remembered_) return;
  remembered_ = present();
  RememberLeader(server_.leaders_file, servers_->text(), remembered_);
}

Client::Link& Client::LinkTo(const std::string& address) {
  Link& link = links_[address];
  if (link.channel == nullptr) {
    link.channel = Dial(server_, address, servers_.ok() && servers_->several());
    link.jobs = v1::Jobs::NewStub(link.channel);
    link.cluster = v1::Cluster::NewStub(link.channel);
    link.admin = v1::Admin::NewStub(link.channel);
  }
  return link;
}

void Client::Pause(Nanos time, const std::function<bool()>& going) {
  const Deadline end = DeadlineIn(time);
  while (std::chrono::system_clock::now() < end && going()) {
    const Deadline tick = std::min(end, DeadlineIn(kAskEvery));
    if (servers_.ok()) present_link().channel->WaitForConnected(tick);
    std::this_thread::sleep_until(tick);
  }
}

bool Client::AnotherIsConnected() {
  bool found = false;
  for (const std::string& address : servers_->all()) {
    if (address == present()) continue;
    // Asking for the state also begins to connect.
    found = LinkTo(address).channel->GetState(/*try_to_connect=*/true) == GRPC_CHANNEL_READY || found;
  }
  return found;
}

std::string Client::Reach(Deadline deadline, const std::function<bool()>& going) {
  if (!servers_->several()) return "";
  const std::shared_ptr<grpc::Channel> channel = present_link().channel;
  const Deadline limit = std::min(deadline, DeadlineIn(kReachLimit));
  // An address that failed earlier in this call gets no time: it is only checked, and its connection can still be made later.
  const Nanos patience = failures_.contains(present()) ? Nanos(0) : servers_->named() ? kReachNamed : kReachBesideOthers;
  const Deadline beside_others = DeadlineIn(patience);
  while (true) {
    const grpc_connectivity_state state = channel->GetState(/*try_to_connect=*/true);
    if (state == GRPC_CHANNEL_READY) return "";
    if (state == GRPC_CHANNEL_TRANSIENT_FAILURE || state == GRPC_CHANNEL_SHUTDOWN) {
      links_.erase(present());
      return kSilent;
    }
    const Deadline now = std::chrono::system_clock::now();
    if (now >= limit) return absl::StrCat(kSilent, " within ", FormatDuration(kReachLimit));
    if (!going()) return kSilent;
    if (now >= beside_others && AnotherIsConnected()) return absl::StrCat(kSilent, " yet");
    channel->WaitForStateChange(state, std::min(limit, DeadlineIn(kReachTick)));
  }
}

std::string Client::Why(const grpc::Status& status, const std::optional<std::string>& leader) const {
  return leader.has_value() ? StandbyText(*servers_, *leader) : absl::StrCat("has failed: ", status.error_message());
}

bool Client::MoveOn(const std::string& why, const std::string& leader) {
  failures_[present()] = why;
  return servers_->Failed(leader) == ServerAddresses::Next::kAfterWait;
}

absl::Status Client::NoneLeads() {
  std::vector<std::string> reasons;
  std::string advice;  // advice about the first address that does not answer
  for (const std::string& address : servers_->all()) {
    const auto failure = failures_.find(address);
    if (failure == failures_.end()) continue;
    reasons.push_back(absl::StrCat(address, " ", failure->second));
    if (advice.empty() && absl::StartsWith(failure->second, kSilent)) advice = WhyNot(server_, address);
  }
  return absl::UnavailableError(absl::StrCat("no lynx-server that leads answers at ", servers_->text(), " (from ",
                                             server_.source, "): ", absl::StrJoin(reasons, "; "), advice));
}

absl::Status Client::Error(const grpc::Status& status) {
  const auto code = static_cast<absl::StatusCode>(status.error_code());
  const std::string address = present();
  if (code == absl::StatusCode::kUnavailable) {
    return absl::Status(code, absl::StrCat("cannot reach lynx-server at ", address, " (from ", server_.source,
                                           "): ", status.error_message(), WhyNot(server_, address)));
  }
  if (code == absl::StatusCode::kDeadlineExceeded) {
    return absl::Status(
        code, absl::StrCat("lynx-server at ", address, " (from ", server_.source, ") did not answer within ",
                           FormatDuration(timeout_), ": it is busy, or nothing answers there; --timeout SECONDS waits longer"));
  }
  return absl::Status(code, status.error_message());
}

void Client::Prepare(grpc::ClientContext& context) const {
  if (!server_.token.empty()) context.AddMetadata("authorization", "Bearer " + server_.token);
}

absl::Status Client::Run(Repeat repeat, const std::function<grpc::Status(Link&, grpc::ClientContext*)>& call) {
  if (!server_.status.ok()) return server_.status;
  const Deadline deadline = DeadlineIn(timeout_);
  // A server that stops during the call sends no answer, and another server may lead. So the first attempt gets only a part of
  // the time.
  const bool may_leave = repeat == Repeat::kAlways && servers_->several();
  bool first = true;
  failures_.clear();
  while (true) {
    std::string leader;
    std::string failure = Reach(deadline, GoOn);
    if (failure.empty()) {
      grpc::ClientContext context;
      context.set_deadline(may_leave && first ? DeadlineIn(timeout_ / kAttempts) : deadline);
      first = false;
      Prepare(context);
      const grpc::Status status = call(present_link(), &context);
      if (status.ok()) {
        Answered();
        return absl::OkStatus();
      }
      const std::optional<Nanos> later = RetryDelay(status);
      if (later.has_value() && DeadlineIn(*later) < deadline) {
        std::this_thread::sleep_for(std::chrono::nanoseconds(later->value));
        continue;
      }
      const std::optional<std::string> standby = LeaderOf(status, context);
      const bool silent = status.error_code() == grpc::StatusCode::DEADLINE_EXCEEDED;
      const bool lost =
          status.error_code() == grpc::StatusCode::UNAVAILABLE || (silent && std::chrono::system_clock::now() < deadline);
      if (!standby.has_value() && !(lost && may_leave)) {
        const absl::Status error = Error(status);
        if (lost || silent) MoveOn(status.error_message(), "");  // the next call begins with another address
        return error;
      }
      leader = standby.value_or("");
      failure = Why(status, standby);
    }
    const bool round_over = MoveOn(failure, leader);
    if (std::chrono::system_clock::now() >= deadline || (round_over && DeadlineIn(kRoundWait) >= deadline)) return NoneLeads();
    if (round_over) std::this_thread::sleep_for(std::chrono::nanoseconds(kRoundWait.value));
  }
}

std::vector<Client::Seen> Client::LookAtAll() {
  std::vector<Seen> seen;
  if (!servers_.ok() || !servers_->several()) return seen;
  for (const std::string& address : servers_->all()) {
    grpc::ClientContext context;
    context.set_deadline(DeadlineIn(std::min(timeout_, kReachLimit)));
    Prepare(context);
    v1::WhoAmIResponse response;
    const grpc::Status status = LinkTo(address).admin->WhoAmI(&context, v1::WhoAmIRequest(), &response);
    Seen one{.address = address, .status = absl::OkStatus(), .leader = LeaderOf(status, context)};
    if (!status.ok() && !one.leader.has_value()) {
      one.status = absl::Status(static_cast<absl::StatusCode>(status.error_code()), status.error_message());
    }
    seen.push_back(std::move(one));
  }
  return seen;
}

absl::StatusOr<v1::SubmitJobResponse> Client::Submit(const v1::SubmitJobRequest& request) {
  return Call<v1::SubmitJobRequest, v1::SubmitJobResponse>(
      Repeat::kAlways, [](Link& link, auto... a) { return link.jobs->SubmitJob(a...); }, request);
}

absl::StatusOr<v1::GetJobResponse> Client::GetAll(const v1::GetJobRequest& request) {
  return Call<v1::GetJobRequest, v1::GetJobResponse>(
      Repeat::kAlways, [](Link& link, auto... a) { return link.jobs->GetJob(a...); }, request);
}

absl::StatusOr<v1::Job> Client::Get(const v1::GetJobRequest& request) {
  auto response = GetAll(request);
  if (!response.ok()) return response.status();
  return std::move(*response->mutable_job());
}

absl::StatusOr<v1::Job> Client::GetWithEvents(const std::string& job) {
  v1::GetJobRequest request;
  request.set_job_id(job);
  request.set_include_events(true);
  auto found = Get(request);
  if (!found.ok() || found->events().empty()) return found;
  request.set_job_id(found->id());
  std::vector<v1::Job> older;  // pages of older events, the newest page first
  int64_t first = found->events(0).sequence();
  while (first > 1) {
    request.set_events_before(first);
    auto page = Get(request);
    if (!page.ok()) return page.status();
    // If the server has no older events, the loop ends. (A server of an earlier release sends the newest events again.)
    if (page->events().empty() || page->events(0).sequence() >= first) break;
    first = page->events(0).sequence();
    older.push_back(*std::move(page));
  }
  google::protobuf::RepeatedPtrField<v1::JobEvent> all;
  for (auto page = older.rbegin(); page != older.rend(); ++page) all.MergeFrom(page->events());
  all.MergeFrom(found->events());
  found->mutable_events()->Swap(&all);
  return found;
}

absl::StatusOr<v1::ListJobsResponse> Client::List(v1::ListJobsRequest request) {
  const int32_t wanted = request.limit();
  v1::ListJobsResponse all;
  while (true) {
    request.set_limit(std::min(wanted - all.jobs_size(), kMaxPage));
    auto page = Call<v1::ListJobsRequest, v1::ListJobsResponse>(
        Repeat::kAlways, [](Link& link, auto... a) { return link.jobs->ListJobs(a...); }, request);
    // NotFound: the server has forgotten the last job of the previous page, and so has forgotten all older jobs.
    if (page.status().code() == absl::StatusCode::kNotFound && !request.before().empty()) return all;
    if (!page.ok()) return page.status();
    all.mutable_jobs()->MergeFrom(page->jobs());
    all.set_more(page->more());
    all.set_owner(page->owner());
    if (!page->more() || page->jobs().empty() || all.jobs_size() >= wanted) return all;
    request.set_before(all.jobs().rbegin()->id());
  }
}

absl::StatusOr<v1::Job> Client::Cancel(const v1::CancelJobRequest& request) {
  auto response = Call<v1::CancelJobRequest, v1::CancelJobResponse>(
      Repeat::kIfUnread, [](Link& link, auto... a) { return link.jobs->CancelJob(a...); }, request);
  if (!response.ok()) return response.status();
  return std::move(*response->mutable_job());
}

absl::StatusOr<v1::Job> Client::Hold(const v1::HoldJobRequest& request) {
  auto response = Call<v1::HoldJobRequest, v1::HoldJobResponse>(
      Repeat::kIfUnread, [](Link& link, auto... a) { return link.jobs->HoldJob(a...); }, request);
  if (!response.ok()) return response.status();
  return std::move(*response->mutable_job());
}

absl::StatusOr<v1::Job> Client::Release(const v1::ReleaseJobRequest& request) {
  auto response = Call<v1::ReleaseJobRequest, v1::ReleaseJobResponse>(
      Repeat::kIfUnread, [](Link& link, auto... a) { return link.jobs->ReleaseJob(a...); }, request);
  if (!response.ok()) return response.status();
  return std::move(*response->mutable_job());
}

absl::StatusOr<v1::ListQueuesResponse> Client::Queues() {
  return Call<v1::ListQueuesRequest, v1::ListQueuesResponse>(
      Repeat::kAlways, [](Link& link, auto... a) { return link.jobs->ListQueues(a...); }, {});
}

absl::StatusOr<v1::Queue> Client::SetQueue(const v1::SetQueueRequest& request) {
  auto response = Call<v1::SetQueueRequest, v1::SetQueueResponse>(
      Repeat::kIfUnread, [](Link& link, auto... a) { return link.jobs->SetQueue(a...); }, request);
  if (!response.ok()) return response.status();
  return std::move(*response->mutable_queue());
}

absl::StatusOr<v1::Node> Client::Cordon(const v1::CordonNodeRequest& request) {
  auto response = Call<v1::CordonNodeRequest, v1::CordonNodeResponse>(
      Repeat::kIfUnread, [](Link& link, auto... a) { return link.cluster->CordonNode(a...); }, request);
  if (!response.ok()) return response.status();
  return std::move(*response->mutable_node());
}

absl::StatusOr<v1::Node> Client::Uncordon(const v1::UncordonNodeRequest& request) {
  auto response = Call<v1::UncordonNodeRequest, v1::UncordonNodeResponse>(
      Repeat::kIfUnread, [](Link& link, auto... a) { return link.cluster->UncordonNode(a...); }, request);
  if (!response.ok()) return response.status();
  return std::move(*response->mutable_node());
}

absl::StatusOr<v1::GetLogsResponse> Client::Logs(const v1::GetLogsRequest& request) {
  return Call<v1::GetLogsRequest, v1::GetLogsResponse>(
      Repeat::kAlways, [](Link& link, auto... a) { return link.jobs->GetLogs(a...); }, request);
}

absl::StatusOr<v1::TraceJobResponse> Client::Trace(const v1::TraceJobRequest& request) {
  return Call<v1::TraceJobRequest, v1::TraceJobResponse>(
      Repeat::kAlways, [](Link& link, auto... a) { return link.jobs->TraceJob(a...); }, request);
}

absl::StatusOr<v1::ListNodesResponse> Client::Nodes(const v1::ListNodesRequest& request) {
  return Call<v1::ListNodesRequest, v1::ListNodesResponse>(
      Repeat::kAlways, [](Link& link, auto... a) { return link.cluster->ListNodes(a...); }, request);
}

Client::WatchEnd Client::WatchOnce(const std::string& job_id, const std::function<bool(const v1::WatchJobResponse&)>& each,
                                   const std::function<void()>& silent, const std::function<bool()>& going) {
  // If one server does not answer, there must be time left to ask the others.
  const Nanos patience = servers_->several() ? timeout_ / kAttempts : timeout_;
  const Deadline first = DeadlineIn(patience);
  if (const std::string failure = Reach(first, going); !failure.empty()) {
    return {.status = grpc::Status(grpc::StatusCode::UNAVAILABLE, failure), .leader = std::nullopt, .why = failure};
  }
  grpc::ClientContext context;
  Prepare(context);
  v1::WatchJobRequest request;
  request.set_job_id(job_id);
  grpc::CompletionQueue queue;
  const auto stream = present_link().jobs->AsyncWatchJob(&context, request, &queue, nullptr);
  bool open = Await(queue, context, first, going);
  bool heard = false;
  v1::WatchJobResponse response;
  while (open) {
    stream->Read(&response, nullptr);
    Deadline next_tick = DeadlineIn(kTick);
    const auto still = [&] {
      if (heard && std::chrono::system_clock::now() >= next_tick) {
        silent();
        next_tick = DeadlineIn(kTick);
      }
      return going();
    };
    // A message that comes while the watch is being ended is not looked at.
    if (!Await(queue, context, heard ? Deadline::max() : first, still) || !going()) break;
    heard = true;
    open = each(response);
  }
  if (!going()) context.TryCancel();
  grpc::Status status;
  stream->Finish(&status, nullptr);
  Await(queue, context, Deadline::max(), GoOn);
  if (!going()) return {.status = grpc::Status(grpc::StatusCode::CANCELLED, ""), .leader = std::nullopt, .why = ""};
  if (!heard && status.error_code() == grpc::StatusCode::CANCELLED) {
    status = grpc::Status(grpc::StatusCode::DEADLINE_EXCEEDED,
                          absl::StrCat("it did not begin to answer within ", FormatDuration(patience)));
  }
  const std::optional<std::string> leader = LeaderOf(status, context);
  return {.status = status, .leader = leader, .why = Why(status, leader)};
}

absl::Status Client::Watch(const std::string& job_id, Nanos patience,
                           const std::function<bool(const v1::WatchJobResponse&)>& each, const std::function<void()>& lost,
                           const std::function<void()>& silent, const std::function<bool()>& going) {
  if (!server_.status.ok()) return server_.status;
  const RealClock clock;
  const Nanos began = clock.Monotonic();
  std::optional<Nanos> lost_at;  // when the server was lost; nullopt: it is not lost
  std::string watched = job_id;  // the job's id once it is known, because another job may take the name
  bool heard = false;
  bool stopped = false;
  failures_.clear();
  while (true) {
    const auto hear = [&](const v1::WatchJobResponse& response) {
      heard = true;
      watched = response.job().id();
      lost_at.reset();
      failures_.clear();
      Answered();
      stopped = stopped || !each(response);
      return !stopped;
    };
    const auto still = [&] {
      stopped = stopped || !going();
      return !stopped;
    };
    const WatchEnd end = WatchOnce(watched, hear, silent, still);
    const grpc::Status& status = end.status;
    if (status.ok() || !still()) return absl::OkStatus();
    const std::optional<Nanos> later = RetryDelay(status);
    const Nanos now = clock.Monotonic();
    const bool may_begin = !heard && now - began < timeout_;
    if (later.has_value() && may_begin) {
      Pause(*later, still);
      if (stopped) return absl::OkStatus();
      continue;
    }
    // The error is final if the server has never answered or has refused the call. If the connection was lost or the server is
    // too busy, the watch tries again until `patience` is over. A server that stands by, or one of several that does not
    // answer, sends the watch to the next address.
    const bool gone = later.has_value() || status.error_code() == grpc::StatusCode::UNAVAILABLE ||
                      status.error_code() == grpc::StatusCode::DEADLINE_EXCEEDED;
    const bool elsewhere = end.leader.has_value() || (servers_->several() && gone && !later.has_value());
    if (!gone) return Error(status);
    bool round_over = true;
    if (elsewhere) round_over = MoveOn(end.why, end.leader.value_or(""));
    if (!lost_at.has_value()) lost_at = now;
    const bool over = heard ? now - *lost_at > patience : !(elsewhere && may_begin);
    if (over) return elsewhere ? NoneLeads() : Error(status);
    if (!round_over) continue;
    if (heard) lost();
    Pause(later.value_or(heard ? kTick : kRoundWait), still);
    if (!still()) return absl::OkStatus();
  }
}

}  // namespace lynx::cli
