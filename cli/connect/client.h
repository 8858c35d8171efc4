// Client: makes calls to a lynx-server. Each call has a deadline, and each error says which server was called and what
// to do. One thread.
#ifndef LYNX_CLI_CONNECT_CLIENT_H_
#define LYNX_CLI_CONNECT_CLIENT_H_

#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "common/units.h"
#include "lynx/v1/admin.grpc.pb.h"
#include "lynx/v1/cluster.grpc.pb.h"
#include "lynx/v1/jobs.grpc.pb.h"

namespace lynx::cli {

// The server that a command talks to. `source` says what named it, for error messages.
struct ServerAddress {
  std::string address;
  std::string source;
  std::string authority;          // PEM; "" = plain text
  std::string token;              // "" = no token; it is only ever sent over TLS
  std::string context_file = {};  // the context file that `authority` is from; "" = it is from elsewhere
  absl::Status status;            // why no server was found; every call then fails with it
};

class Client {
 public:
  Client(ServerAddress server, Nanos timeout);

  absl::StatusOr<v1::SubmitJobResponse> Submit(const v1::SubmitJobRequest& request);
  absl::StatusOr<v1::Job> Get(const v1::GetJobRequest& request);
  // The job with all its events that the server keeps, oldest first.
  absl::StatusOr<v1::Job> GetWithEvents(const std::string& job);
  // Returns the server's whole answer: the job, and what the request asks for beside the job, such as curves.
  absl::StatusOr<v1::GetJobResponse> GetAll(const v1::GetJobRequest& request);
  // Accepts any limit: if one call does not return enough, asks page by page. A job that changes meanwhile may be missing, or
  // may be listed in its earlier state.
  absl::StatusOr<v1::ListJobsResponse> List(v1::ListJobsRequest request);
  absl::StatusOr<v1::Job> Cancel(const v1::CancelJobRequest& request);
  absl::StatusOr<v1::Job> Hold(const v1::HoldJobRequest& request);
  absl::StatusOr<v1::Job> Release(const v1::ReleaseJobRequest& request);
  absl::StatusOr<v1::ListQueuesResponse> Queues();
  absl::StatusOr<v1::Queue> SetQueue(const v1::SetQueueRequest& request);
  absl::StatusOr<v1::Node> Cordon(const v1::CordonNodeRequest& request);
  absl::StatusOr<v1::Node> Uncordon(const v1::UncordonNodeRequest& request);
  absl::StatusOr<v1::GetLogsResponse> Logs(const v1::GetLogsRequest& request);
  absl::StatusOr<v1::TraceJobResponse> Trace(const v1::TraceJobRequest& request);
  absl::StatusOr<v1::ListNodesResponse> Nodes(const v1::ListNodesRequest& request = {});
  // Calls a method of the Admin service.
  template <class Request, class Response>
  absl::StatusOr<Response> Admin(grpc::Status (v1::Admin::Stub::*method)(grpc::ClientContext*, const Request&, Response*),
                                 const Request& request) {
    return Call<Request, Response>([&](grpc::ClientContext* context, const Request& sent,
                                       Response* got) { return ((*admin_).*method)(context, sent, got); },
                                   request);
  }
  const ServerAddress& server() const { return server_; }
  // Waits before a call is tried again. gRPC connects only while somebody waits for the connection; after a plain sleep
  // a new server would be noticed up to 5 s late.
  void Pause(Nanos time) const;
  // Calls `each` for every message until the job has ended or `each` returns false. If a name is watched and a newer job takes
  // the name, the watch stays with the first job. A server that does not begin to answer within the timeout is an error, as in
  // every other call. If the server is lost later, connects again and again, until the server has been lost for `patience`;
  // calls `lost` after each failed attempt. Calls `silent` once a second while the server is connected but sends nothing.
  absl::Status Watch(
      const std::string& job_id, Nanos patience, const std::function<bool(const v1::WatchJobResponse&)>& each,
      const std::function<void()>& lost, const std::function<void()>& silent = [] {});

 private:
  // Makes one call of WatchJob and reads its messages to the end. Cancelled: `each` returned false.
  grpc::Status WatchOnce(const std::string& job_id, const std::function<bool(const v1::WatchJobResponse&)>& each,
                         const std::function<void()>& silent);
  absl::Status Error(const grpc::Status& status) const;
  void Prepare(grpc::ClientContext& context) const;
  // Makes one call with a deadline. If the server says that it will accept the call later, repeats the call until the deadline.
  absl::Status Run(const std::function<grpc::Status(grpc::ClientContext*)>& call) const;
  template <class Request, class Response, class Method>
  absl::StatusOr<Response> Call(Method method, const Request& request) {
    Response response;
    const absl::Status status = Run([&](grpc::ClientContext* context) { return method(context, request, &response); });
    if (!status.ok()) return status;
    return response;
  }

  ServerAddress server_;
  Nanos timeout_;
  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<v1::Jobs::Stub> jobs_;
  std::unique_ptr<v1::Cluster::Stub> cluster_;
  std::unique_ptr<v1::Admin::Stub> admin_;
};

}  // namespace lynx::cli

#endif  // LYNX_CLI_CONNECT_CLIENT_H_
