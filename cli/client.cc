#include "cli/client.h"

#include <grpcpp/grpcpp.h>

#include <chrono>
#include <cstdlib>
#include <thread>

#include "cli/local_cluster.h"
#include "common/clock.h"
#include "common/status.h"
#include "proto/message_limit.h"

namespace lynx {
namespace {

std::shared_ptr<grpc::Channel> Dial(const std::string& address) {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, 10'000);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 5'000);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 1'000);
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 200);
  arguments.SetMaxReceiveMessageSize(kMaxMessageBytes);
  return grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), arguments);
}

std::chrono::system_clock::time_point Deadline(Nanos timeout) {
  return std::chrono::system_clock::now() + std::chrono::nanoseconds(timeout.value);
}

}  // namespace

ServerAddress FindServer(const std::string& flag) {
  if (!flag.empty()) return {flag, "--server"};
  if (const char* environment = std::getenv("LYNX_SERVER"); environment != nullptr && *environment != '\0') {
    return {environment, "LYNX_SERVER"};
  }
  if (auto local = ReadLocalCluster(LocalDirectory()); local.ok()) {
    return {local->server_address, "the local cluster in " + LocalDirectory()};
  }
  return {"127.0.0.1:7470", "the default"};
}

Client::Client(ServerAddress server, Nanos timeout)
    : server_(std::move(server)),
      timeout_(timeout),
      channel_(Dial(server_.address)),
      jobs_(v1::Jobs::NewStub(channel_)),
      cluster_(v1::Cluster::NewStub(channel_)) {}

absl::Status Client::Error(const grpc::Status& status) const {
  const auto code = static_cast<absl::StatusCode>(status.error_code());
  if (code == absl::StatusCode::kUnavailable || code == absl::StatusCode::kDeadlineExceeded) {
    return absl::Status(code, absl::StrCat("cannot reach lynx-server at ", server_.address, " (from ", server_.source,
                                           "): ", status.error_message(),
                                           "; is it running? 'lynxctl local up' starts a cluster on this machine, "
                                           "--server or LYNX_SERVER names another"));
  }
  return absl::Status(code, status.error_message());
}

template <class Request, class Response, class Method>
absl::StatusOr<Response> Client::Call(Method method, const Request& request) {
  grpc::ClientContext context;
  context.set_deadline(Deadline(timeout_));
  Response response;
  const grpc::Status status = method(&context, request, &response);
  if (!status.ok()) return Error(status);
  return response;
}

absl::StatusOr<v1::SubmitJobResponse> Client::Submit(const v1::SubmitJobRequest& request) {
  return Call<v1::SubmitJobRequest, v1::SubmitJobResponse>(
      [&](auto... a) { return jobs_->SubmitJob(a...); }, request);
}

absl::StatusOr<v1::Job> Client::Get(const v1::GetJobRequest& request) {
  auto response = Call<v1::GetJobRequest, v1::GetJobResponse>(
      [&](auto... a) { return jobs_->GetJob(a...); }, request);
  if (!response.ok()) return response.status();
  return std::move(*response->mutable_job());
}

absl::StatusOr<v1::ListJobsResponse> Client::List(const v1::ListJobsRequest& request) {
  return Call<v1::ListJobsRequest, v1::ListJobsResponse>(
      [&](auto... a) { return jobs_->ListJobs(a...); }, request);
}

absl::StatusOr<v1::Job> Client::Cancel(const v1::CancelJobRequest& request) {
  auto response = Call<v1::CancelJobRequest, v1::CancelJobResponse>(
      [&](auto... a) { return jobs_->CancelJob(a...); }, request);
  if (!response.ok()) return response.status();
  return std::move(*response->mutable_job());
}

absl::StatusOr<v1::GetLogsResponse> Client::Logs(const v1::GetLogsRequest& request) {
  return Call<v1::GetLogsRequest, v1::GetLogsResponse>(
      [&](auto... a) { return jobs_->GetLogs(a...); }, request);
}

absl::StatusOr<v1::ListNodesResponse> Client::Nodes() {
  return Call<v1::ListNodesRequest, v1::ListNodesResponse>(
      [&](auto... a) { return cluster_->ListNodes(a...); }, v1::ListNodesRequest());
}

absl::Status Client::Watch(const std::string& job_id, Nanos patience,
                           const std::function<bool(const v1::WatchJobResponse&)>& each,
                           const std::function<void()>& lost) {
  const RealClock clock;
  Nanos last_heard = clock.Monotonic();
  bool heard = false;
  while (true) {
    grpc::ClientContext context;
    v1::WatchJobRequest request;
    request.set_job_id(job_id);
    auto stream = jobs_->WatchJob(&context, request);
    v1::WatchJobResponse response;
    while (stream->Read(&response)) {
      heard = true;
      last_heard = clock.Monotonic();
      if (!each(response)) {
        context.TryCancel();
        stream->Finish();
        return absl::OkStatus();
      }
    }
    const grpc::Status status = stream->Finish();
    if (status.ok()) return absl::OkStatus();
    // A server that never answered, or a real refusal, is final; one that went away may come back.
    const bool gone = status.error_code() == grpc::StatusCode::UNAVAILABLE;
    if (!gone || !heard || clock.Monotonic() - last_heard > patience) return Error(status);
    lost();
    std::this_thread::sleep_for(std::chrono::seconds(1));
  }
}

}  // namespace lynx
