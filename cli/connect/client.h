// Client: calls to a lynx-server, each with a deadline, each error with where it looked and what to do. One thread.
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

namespace lynx {

// The server that a command talks to. `source` says what named it, for error messages.
struct ServerAddress {
  std::string address;
  std::string source;
  std::string authority;  // PEM; "" = plain text
  std::string token;      // "" = none; only ever sent over TLS
  absl::Status status;    // why there is none: every call then fails with it
};

class Client {
 public:
  Client(ServerAddress server, Nanos timeout);

  absl::StatusOr<v1::SubmitJobResponse> Submit(const v1::SubmitJobRequest& request);
  absl::StatusOr<v1::Job> Get(const v1::GetJobRequest& request);
  // With all events that the server keeps of it, oldest first.
  absl::StatusOr<v1::Job> GetWithEvents(const std::string& job);
  absl::StatusOr<v1::GetJobResponse> GetAll(const v1::GetJobRequest& request);  // with what stands beside the job
  // Any limit: what one call does not give is asked for page by page. A job that changes meanwhile may be missing, or be there
  // as it was.
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
  // Waits that long before a call is tried again. gRPC goes on connecting only while somebody waits for it, so after a plain
  // sleep a server that has come would be noticed up to 5 s late.
  void Pause(Nanos time) const;
  // Calls `each` for every message until the job has ended or `each` returns false; of a name's newest job, if a newer one has
  // it meanwhile, too. A server that does not begin to answer within the timeout is an error as in every other call; one that
  // is lost later is dialled again until it has been away for `patience` without a message between, and meanwhile `lost` is
  // called once a second. So is `silent`, while there is a server that has nothing to say.
  absl::Status Watch(
      const std::string& job_id, Nanos patience, const std::function<bool(const v1::WatchJobResponse&)>& each,
      const std::function<void()>& lost, const std::function<void()>& silent = [] {});

 private:
  // One call of WatchJob, to its end; Cancelled when `each` returned false.
  grpc::Status WatchOnce(const std::string& job_id, const std::function<bool(const v1::WatchJobResponse&)>& each,
                         const std::function<void()>& silent);
  absl::Status Error(const grpc::Status& status) const;
  void Prepare(grpc::ClientContext& context) const;
  // One call with a deadline. Where the server says that it will take it later, it is made again, until the time is over.
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

}  // namespace lynx

#endif  // LYNX_CLI_CONNECT_CLIENT_H_
