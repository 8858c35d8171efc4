// Client: makes calls to a lynx-server. Each call has a deadline, and each error says which server was called and what
// to do. If several servers are named, a call goes to the one that leads (node/server_addresses.h). One thread.
#ifndef LYNX_CLI_CONNECT_CLIENT_H_
#define LYNX_CLI_CONNECT_CLIENT_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "common/units.h"
#include "lynx/v1/admin.grpc.pb.h"
#include "lynx/v1/cluster.grpc.pb.h"
#include "lynx/v1/jobs.grpc.pb.h"
#include "node/server_addresses.h"

namespace lynx::cli {

// The server that a command talks to, or several, of which it talks to the one that leads. `source` says what named it, for
// error messages.
struct ServerAddress {
  std::string address;  // HOST:PORT, or several with commas
  std::string source;
  std::string authority;          // PEM; "" = plain text
  std::string token;              // "" = no token; it is only ever sent over TLS
  std::string context_file = {};  // the context file that `authority` is from; "" = it is from elsewhere
  std::string leaders_file = {};  // where the leader of several servers is remembered (leader_memory.h); "" = nowhere
  absl::Status status;            // why no server was found; every call then fails with it
};

class Client {
 public:
  Client(ServerAddress server, Nanos timeout);

  absl::StatusOr<v1::SubmitJobResponse> Submit(const v1::SubmitJobRequest& request);
  absl::StatusOr<v1::Job> Get(const v1::GetJobRequest& request);
  // The job with all its events that the server keeps, oldest first.
  absl::StatusOr<v1::Job> GetWithEvents(const std::string& job);
  // Returns the server's whole answer: the job, and what else the request asks for, such as curves.
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
    return CallAdmin(Repeat::kIfUnread, method, request);
  }
  // Calls a method that changes nothing. So the call may be made again if it was lost on its way.
  template <class Request, class Response>
  absl::StatusOr<Response> ReadAdmin(grpc::Status (v1::Admin::Stub::*method)(grpc::ClientContext*, const Request&, Response*),
                                     const Request& request) {
    return CallAdmin(Repeat::kAlways, method, request);
  }
  const ServerAddress& server() const { return server_; }
  // The address of the server that answered last; before the first answer, the one that is called next.
  std::string present() const { return servers_.ok() ? servers_->present() : server_.address; }
  // What each address answers now, in the order of the addresses. Empty if there is only one address.
  struct Seen {
    std::string address;
    absl::Status status;                // why it cannot be called; OK: it leads, or it stands by
    std::optional<std::string> leader;  // it stands by and names this leader; "": none
  };
  std::vector<Seen> LookAtAll();
  // Waits before a call is tried again. gRPC connects only while somebody waits for the connection; after a plain sleep
  // a new server would be noticed up to 5 s late. Ends early if `going`, which it calls again and again, returns false.
  void Pause(
      Nanos time, const std::function<bool()>& going = [] { return true; });
  // Calls `each` for every message until the job has ended or `each` returns false. If a name is watched and a newer job takes
  // the name, the watch stays with the first job. A server that does not begin to answer within the timeout is an error, as in
  // every other call. If the server is lost later, connects again and again, until no server has led for `patience`; calls
  // `lost` after each failed round over the addresses. Calls `silent` once a second while the server is connected but sends
  // nothing. While it waits for a message, a connection or the next attempt, it calls `going` about twenty times a second;
  // false ends the watch. The answer of `going` may depend on what another thread sets. There is one exception: when a watch
  // fails at its end because no server could be reached, it may spend up to two seconds on finding the reason, without calling
  // `going`.
  absl::Status Watch(
      const std::string& job_id, Nanos patience, const std::function<bool(const v1::WatchJobResponse&)>& each,
      const std::function<void()>& lost, const std::function<void()>& silent = [] {},
      const std::function<bool()>& going = [] { return true; });

 private:
  // A channel to one address, and the services on it.
  struct Link {
    std::shared_ptr<grpc::Channel> channel;
    std::unique_ptr<v1::Jobs::Stub> jobs;
    std::unique_ptr<v1::Cluster::Stub> cluster;
    std::unique_ptr<v1::Admin::Stub> admin;
  };
  // If the connection is lost during a call, the server may have carried it out. kAlways: the call may be made again, because
  // it changes nothing or has an idempotency key.
  enum class Repeat : uint8_t { kIfUnread, kAlways };
  // How one call of WatchJob ended.
  struct WatchEnd {
    grpc::Status status;
    std::optional<std::string> leader;  // as LeaderOf
    std::string why;                    // why the call to this address failed
  };

  Link& LinkTo(const std::string& address);
  Link& present_link() { return LinkTo(present()); }
  // Waits until the present address is connected. Returns why it is not; "": it is. With one address, does not wait: gRPC then
  // connects within the call. Gives up if `going` returns false.
  std::string Reach(std::chrono::system_clock::time_point deadline, const std::function<bool()>& going);
  bool AnotherIsConnected();
  // Why a call that ended with this status failed at the present address, as the end of a sentence about the address.
  std::string Why(const grpc::Status& status, const std::optional<std::string>& leader) const;
  // The present address has failed the call because of `why`. Chooses the next address. True if all addresses were tried.
  bool MoveOn(const std::string& why, const std::string& leader);
  // Makes one call of WatchJob and reads its messages to the end. Ends early if `each` or `going` returns false; `going` must
  // then return false from then on.
  WatchEnd WatchOnce(const std::string& job_id, const std::function<bool(const v1::WatchJobResponse&)>& each,
                     const std::function<void()>& silent, const std::function<bool()>& going);
  absl::Status Error(const grpc::Status& status);
  // The error of a call that failed at every address.
  absl::Status NoneLeads();
  void Prepare(grpc::ClientContext& context) const;
  // The present address has answered as the leader.
  void Answered();
  // Makes one call with a deadline, at the server that leads. If the server says that it will accept the call later, or no
  // server leads, repeats the call until the deadline.
  absl::Status Run(Repeat repeat, const std::function<grpc::Status(Link&, grpc::ClientContext*)>& call);
  // `method`: called with a Link, a context, the request and the response.
  template <class Request, class Response, class Method>
  absl::StatusOr<Response> Call(Repeat repeat, Method method, const Request& request) {
    Response response;
    const absl::Status status =
        Run(repeat, [&](Link& link, grpc::ClientContext* context) { return method(link, context, request, &response); });
    if (!status.ok()) return status;
    return response;
  }
  template <class Request, class Response>
  absl::StatusOr<Response> CallAdmin(Repeat repeat,
                                     grpc::Status (v1::Admin::Stub::*method)(grpc::ClientContext*, const Request&, Response*),
                                     const Request& request) {
    return Call<Request, Response>(
        repeat,
        [&](Link& link, grpc::ClientContext* context, const Request& sent, Response* got) {
          return ((*link.admin).*method)(context, sent, got);
        },
        request);
  }

  ServerAddress server_;
  Nanos timeout_;
  absl::StatusOr<ServerAddresses> servers_;
  std::string remembered_;                       // the leader that leaders_file names
  std::map<std::string, Link> links_;            // the key is the address
  std::map<std::string, std::string> failures_;  // why each address failed in the present call
};

}  // namespace lynx::cli

#endif  // LYNX_CLI_CONNECT_CLIENT_H_
