#include "cli/connect/client.h"

#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <chrono>
#include <optional>
#include <thread>

#include "common/clock.h"
#include "common/status.h"
#include "google/rpc/retry.pb.h"
#include "proto/message_limit.h"
#include "security/credentials.h"
#include "security/presented.h"

namespace lynx::cli {
namespace {

constexpr int32_t kMaxPage = 1000;
constexpr Nanos kProbeLimit{2'000'000'000};
constexpr Nanos kTick{1'000'000'000};
constexpr Nanos kShortestRetry{50'000'000};
constexpr Nanos kMaxRetry{60'000'000'000};

std::shared_ptr<grpc::Channel> Dial(const ServerAddress& server) {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, 10'000);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 5'000);
  // A watch is silent while its job waits. Pings continue, so that a dead machine is noticed.
  arguments.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  // Proxies are not used, as in the daemons, because a web proxy does not lead to a server of the cluster.
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 1'000);
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 200);
  arguments.SetMaxReceiveMessageSize(kMaxMessageBytes);
  grpc_init();  // never shut down: the program exits directly
  return grpc::CreateCustomChannel(
      server.address,
      server.authority.empty() ? grpc::InsecureChannelCredentials() : AuthorityChannelCredentials(server.authority), arguments);
}

using Deadline = std::chrono::system_clock::time_point;

Deadline DeadlineIn(Nanos timeout) { return std::chrono::system_clock::now() + std::chrono::nanoseconds(timeout.value); }

// Waits until the deadline for the one pending operation of the call. If the operation is not complete by then, cancels the
// call, which ends the operation. Returns true if the operation succeeded.
bool Await(grpc::CompletionQueue& queue, grpc::ClientContext& context, Deadline deadline) {
  void* tag = nullptr;
  bool ok = false;
  if (queue.AsyncNext(&tag, &ok, deadline) == grpc::CompletionQueue::GOT_EVENT) return ok;
  context.TryCancel();
  queue.Next(&tag, &ok);
  return false;
}

// Waits for the operation as Await does, but without a deadline. Calls `silent` once a second while it waits.
bool AwaitLong(grpc::CompletionQueue& queue, const std::function<void()>& silent) {
  void* tag = nullptr;
  bool ok = false;
  while (queue.AsyncNext(&tag, &ok, DeadlineIn(kTick)) == grpc::CompletionQueue::TIMEOUT) silent();
  return ok;
}

// The likely reason why a connection failed. gRPC does not report the reason, so this function connects to the address itself
// to find it out.
std::string WhyNot(const ServerAddress& server) {
  const absl::StatusCode shown = PresentedCertificates(server.address, kProbeLimit).status().code();
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
    : server_(std::move(server)), timeout_(timeout), channel_(Dial(server_)), jobs_(v1::Jobs::NewStub(channel_)),
      cluster_(v1::Cluster::NewStub(channel_)), admin_(v1::Admin::NewStub(channel_)) {}

void Client::Pause(Nanos time) const {
  const Deadline end = DeadlineIn(time);
  channel_->WaitForConnected(end);
  std::this_thread::sleep_until(end);
}

absl::Status Client::Error(const grpc::Status& status) const {
  const auto code = static_cast<absl::StatusCode>(status.error_code());
  if (code == absl::StatusCode::kUnavailable) {
    return absl::Status(code, absl::StrCat("cannot reach lynx-server at ", server_.address, " (from ", server_.source,
                                           "): ", status.error_message(), WhyNot(server_)));
  }
  if (code == absl::StatusCode::kDeadlineExceeded) {
    return absl::Status(
        code, absl::StrCat("lynx-server at ", server_.address, " (from ", server_.source, ") did not answer within ",
                           FormatDuration(timeout_), ": it is busy, or nothing answers there; --timeout SECONDS waits longer"));
  }
  return absl::Status(code, status.error_message());
}

void Client::Prepare(grpc::ClientContext& context) const {
  if (!server_.token.empty()) context.AddMetadata("authorization", "Bearer " + server_.token);
}

absl::Status Client::Run(const std::function<grpc::Status(grpc::ClientContext*)>& call) const {
  if (!server_.status.ok()) return server_.status;
  const Deadline deadline = DeadlineIn(timeout_);
  while (true) {
    grpc::ClientContext context;
    context.set_deadline(deadline);
    Prepare(context);
    const grpc::Status status = call(&context);
    if (status.ok()) return absl::OkStatus();
    const std::optional<Nanos> later = RetryDelay(status);
    if (!later.has_value() || DeadlineIn(*later) >= deadline) return Error(status);
    std::this_thread::sleep_for(std::chrono::nanoseconds(later->value));
  }
}

absl::StatusOr<v1::SubmitJobResponse> Client::Submit(const v1::SubmitJobRequest& request) {
  return Call<v1::SubmitJobRequest, v1::SubmitJobResponse>([&](auto... a) { return jobs_->SubmitJob(a...); }, request);
}

absl::StatusOr<v1::GetJobResponse> Client::GetAll(const v1::GetJobRequest& request) {
  return Call<v1::GetJobRequest, v1::GetJobResponse>([&](auto... a) { return jobs_->GetJob(a...); }, request);
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
    auto page = Call<v1::ListJobsRequest, v1::ListJobsResponse>([&](auto... a) { return jobs_->ListJobs(a...); }, request);
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
  auto response = Call<v1::CancelJobRequest, v1::CancelJobResponse>([&](auto... a) { return jobs_->CancelJob(a...); }, request);
  if (!response.ok()) return response.status();
  return std::move(*response->mutable_job());
}

absl::StatusOr<v1::Job> Client::Hold(const v1::HoldJobRequest& request) {
  auto response = Call<v1::HoldJobRequest, v1::HoldJobResponse>([&](auto... a) { return jobs_->HoldJob(a...); }, request);
  if (!response.ok()) return response.status();
  return std::move(*response->mutable_job());
}

absl::StatusOr<v1::Job> Client::Release(const v1::ReleaseJobRequest& request) {
  auto response =
      Call<v1::ReleaseJobRequest, v1::ReleaseJobResponse>([&](auto... a) { return jobs_->ReleaseJob(a...); }, request);
  if (!response.ok()) return response.status();
  return std::move(*response->mutable_job());
}

absl::StatusOr<v1::ListQueuesResponse> Client::Queues() {
  return Call<v1::ListQueuesRequest, v1::ListQueuesResponse>([&](auto... a) { return jobs_->ListQueues(a...); }, {});
}

absl::StatusOr<v1::Queue> Client::SetQueue(const v1::SetQueueRequest& request) {
  auto response = Call<v1::SetQueueRequest, v1::SetQueueResponse>([&](auto... a) { return jobs_->SetQueue(a...); }, request);
  if (!response.ok()) return response.status();
  return std::move(*response->mutable_queue());
}

absl::StatusOr<v1::Node> Client::Cordon(const v1::CordonNodeRequest& request) {
  auto response =
      Call<v1::CordonNodeRequest, v1::CordonNodeResponse>([&](auto... a) { return cluster_->CordonNode(a...); }, request);
  if (!response.ok()) return response.status();
  return std::move(*response->mutable_node());
}

absl::StatusOr<v1::Node> Client::Uncordon(const v1::UncordonNodeRequest& request) {
  auto response =
      Call<v1::UncordonNodeRequest, v1::UncordonNodeResponse>([&](auto... a) { return cluster_->UncordonNode(a...); }, request);
  if (!response.ok()) return response.status();
  return std::move(*response->mutable_node());
}

absl::StatusOr<v1::GetLogsResponse> Client::Logs(const v1::GetLogsRequest& request) {
  return Call<v1::GetLogsRequest, v1::GetLogsResponse>([&](auto... a) { return jobs_->GetLogs(a...); }, request);
}

absl::StatusOr<v1::TraceJobResponse> Client::Trace(const v1::TraceJobRequest& request) {
  return Call<v1::TraceJobRequest, v1::TraceJobResponse>([&](auto... a) { return jobs_->TraceJob(a...); }, request);
}

absl::StatusOr<v1::ListNodesResponse> Client::Nodes(const v1::ListNodesRequest& request) {
  return Call<v1::ListNodesRequest, v1::ListNodesResponse>([&](auto... a) { return cluster_->ListNodes(a...); }, request);
}

grpc::Status Client::WatchOnce(const std::string& job_id, const std::function<bool(const v1::WatchJobResponse&)>& each,
                               const std::function<void()>& silent) {
  if (!server_.status.ok()) {
    return grpc::Status(static_cast<grpc::StatusCode>(server_.status.code()), std::string(server_.status.message()));
  }
  grpc::ClientContext context;
  Prepare(context);
  v1::WatchJobRequest request;
  request.set_job_id(job_id);
  grpc::CompletionQueue queue;
  const Deadline first = DeadlineIn(timeout_);
  const auto stream = jobs_->AsyncWatchJob(&context, request, &queue, nullptr);
  bool going = Await(queue, context, first);
  bool heard = false;
  bool stopped = false;
  v1::WatchJobResponse response;
  while (going) {
    stream->Read(&response, nullptr);
    if (!(heard ? AwaitLong(queue, silent) : Await(queue, context, first))) break;
    heard = true;
    stopped = !each(response);
    if (stopped) context.TryCancel();
    going = !stopped;
  }
  grpc::Status status;
  stream->Finish(&status, nullptr);
  Await(queue, context, Deadline::max());
  if (stopped) return grpc::Status(grpc::StatusCode::CANCELLED, "");
  if (!heard && status.error_code() == grpc::StatusCode::CANCELLED) {
    return grpc::Status(grpc::StatusCode::DEADLINE_EXCEEDED,
                        absl::StrCat("it did not begin to answer within ", FormatDuration(timeout_)));
  }
  return status;
}

absl::Status Client::Watch(const std::string& job_id, Nanos patience,
                           const std::function<bool(const v1::WatchJobResponse&)>& each, const std::function<void()>& lost,
                           const std::function<void()>& silent) {
  const RealClock clock;
  const Nanos began = clock.Monotonic();
  std::optional<Nanos> lost_at;  // when the server was lost; nullopt: it is not lost
  std::string watched = job_id;  // the job's id once it is known, because another job may take the name
  bool heard = false;
  bool stopped = false;
  while (true) {
    const auto hear = [&](const v1::WatchJobResponse& response) {
      heard = true;
      watched = response.job().id();
      lost_at.reset();
      stopped = !each(response);
      return !stopped;
    };
    const grpc::Status status = WatchOnce(watched, hear, silent);
    if (status.ok() || stopped) return absl::OkStatus();
    const std::optional<Nanos> later = RetryDelay(status);
    if (later.has_value() && !heard && clock.Monotonic() - began < timeout_) {
      std::this_thread::sleep_for(std::chrono::nanoseconds(later->value));
      continue;
    }
    // The error is final if the server has never answered or has refused the call. If the connection was lost or the server is
    // too busy, the watch tries again until `patience` is over.
    const bool gone = later.has_value() || status.error_code() == grpc::StatusCode::UNAVAILABLE ||
                      status.error_code() == grpc::StatusCode::DEADLINE_EXCEEDED;
    const Nanos now = clock.Monotonic();
    if (!lost_at.has_value()) lost_at = now;
    if (!gone || !heard || now - *lost_at > patience) return Error(status);
    lost();
    Pause(later.value_or(kTick));
  }
}

}  // namespace lynx::cli
