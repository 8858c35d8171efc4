// Guarded services: the gRPC services that the server registers. Each method asks the gate and then the guard, and reads the
// request and calls the service only if both admit the call. The services themselves do not use gRPC's base classes, so nothing
// can call them without the guard. A method without a line in this file answers UNIMPLEMENTED. They are registered before the
// services exist, because a server that stands by listens, too. Thread-safe; gate, guard and services must outlive these
// objects.
//
// gRPC reads the request of a unary call, whatever its size, before it tells the server about the call. It does not do so for a
// call whose client may send a stream. On the wire both are the same. So each method is registered as one with a client's
// stream, of which one message is read, and not before the guard has seen the call's metadata. What a stranger sends stays
// within HTTP/2's window of the call, at most 64 KiB.
#ifndef LYNX_SERVER_SERVICES_GUARDED_SERVICES_H_
#define LYNX_SERVER_SERVICES_GUARDED_SERVICES_H_

#include <grpcpp/grpcpp.h>
#include <grpcpp/impl/rpc_service_method.h>
#include <grpcpp/impl/service_type.h>

#include <atomic>
#include <deque>
#include <functional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "server/access/gate.h"
#include "server/access/guard.h"
#include "server/services/admin_service.h"
#include "server/services/cluster_service.h"
#include "server/services/jobs_service.h"
#include "server/wire/grpc_status.h"

namespace lynx::server {

// The services that answer calls. They exist once this server leads.
struct Services {
  Guard* guard = nullptr;
  JobsService* jobs = nullptr;
  ClusterService* cluster = nullptr;
  AdminService* admin = nullptr;

  JobsService& Get(const JobsService*) const { return *jobs; }
  ClusterService& Get(const ClusterService*) const { return *cluster; }
  AdminService& Get(const AdminService*) const { return *admin; }
};
// The place where calls find the services. `services` is null until this server leads for the first time.
struct Front {
  const Gate& gate;
  std::atomic<const Services*> services{nullptr};
};

// One call with one request and one response. It deletes itself when gRPC is done with the call.
template <class Request, class Response>
class UnaryCall final : public grpc::ServerReadReactor<Request>, public UnaryAnswer {
 public:
  using Serve = std::function<void(const Call&, const Request*, Response*)>;
  // `call`: what gate and guard say. If it is an error, the call ends with it, and the request is not read.
  UnaryCall(const Gate& gate, absl::StatusOr<Call> call, Response* response, Serve serve)
      : gate_(gate), response_(response), serve_(std::move(serve)) {
    if (!call.ok()) {
      grpc::ServerReadReactor<Request>::Finish(ToGrpc(call.status()));
      return;
    }
    call_ = *std::move(call);
    call_.answer = this;
    this->StartRead(&request_);
  }
  // A call that was read while this server led is answered only if it still leads. So no answer is older than the call.
  void Finish(const grpc::Status& status) override {
    grpc::ServerReadReactor<Request>::Finish(gate_.IsOpen() ? status : ToGrpc(Gate::LostMeanwhile()));
  }

 private:
  void OnReadDone(bool ok) override {
    if (ok) {
      serve_(call_, &request_, response_);
    } else {
      Finish(ToGrpc(absl::InvalidArgumentError("the call has no request, or one that cannot be read")));
    }
  }
  void OnDone() override { delete this; }

  const Gate& gate_;
  Call call_;
  Request request_;
  Response* const response_;
  const Serve serve_;
};

// A stream that ends at once with an error.
template <class Request, class Response>
class RefusedStream final : public grpc::ServerBidiReactor<Request, Response> {
 public:
  explicit RefusedStream(const absl::Status& status) { this->Finish(ToGrpc(status)); }

 private:
  void OnDone() override { delete this; }
};

class GuardedService : public grpc::Service {
 protected:
  explicit GuardedService(const Front& front) : front_(front) {}

  // Registers the method, such as "Jobs.SubmitJob".
  template <class Service, class Request, class Response>
  void Unary(const std::string& method, void (Service::*serve)(const Call&, const Request*, Response*)) {
    const MethodRule& rule = RuleOf(method);
    auto begin = [this, &rule, serve](grpc::CallbackServerContext* context, Response* response) {
      const Services* const services = front_.services;
      return new UnaryCall<Request, Response>(front_.gate, Admit(services, rule, *context), response,
                                              [services, serve](const Call& call, const Request* request, Response* answer) {
                                                (services->Get(static_cast<const Service*>(nullptr)).*serve)(call, request,
                                                                                                             answer);
                                              });
    };
    Register(method, grpc::internal::RpcMethod::CLIENT_STREAMING,
             new grpc::internal::CallbackClientStreamingHandler<Request, Response>(std::move(begin)));
  }
  // Registers a method whose service reads the messages by itself.
  template <class Service, class Request, class Response>
  void Stream(const std::string& method, grpc::ServerBidiReactor<Request, Response>* (Service::*serve)(const Call&)) {
    const MethodRule& rule = RuleOf(method);
    auto begin = [this, &rule, serve](grpc::CallbackServerContext* context) -> grpc::ServerBidiReactor<Request, Response>* {
      const Services* const services = front_.services;
      const absl::StatusOr<Call> call = Admit(services, rule, *context);
      if (call.ok()) return (services->Get(static_cast<const Service*>(nullptr)).*serve)(*call);
      return new RefusedStream<Request, Response>(call.status());
    };
    Register(method, grpc::internal::RpcMethod::BIDI_STREAMING,
             new grpc::internal::CallbackBidiHandler<Request, Response>(std::move(begin)));
  }

 private:
  absl::StatusOr<Call> Admit(const Services* services, const MethodRule& rule, grpc::CallbackServerContext& context) const {
    if (services == nullptr || !front_.gate.IsOpen()) return front_.gate.Refuse(context);
    return services->guard->Admit(rule, context);
  }
  void Register(const std::string& method, grpc::internal::RpcMethod::RpcType type, grpc::internal::MethodHandler* handler) {
    paths_.push_back(absl::StrCat("/lynx.v1.", absl::StrReplaceAll(method, {{".", "/"}})));
    AddMethod(new grpc::internal::RpcServiceMethod(paths_.back().c_str(), type, nullptr));
    MarkMethodCallback(static_cast<int>(paths_.size()) - 1, handler);
  }

  const Front& front_;
  std::deque<std::string> paths_;  // gRPC keeps pointers to them
};

class GuardedJobs : public GuardedService {
 public:
  explicit GuardedJobs(const Front& front) : GuardedService(front) {
    Unary("Jobs.SubmitJob", &JobsService::SubmitJob);
    Unary("Jobs.GetJob", &JobsService::GetJob);
    Unary("Jobs.ListJobs", &JobsService::ListJobs);
    Unary("Jobs.CancelJob", &JobsService::CancelJob);
    Unary("Jobs.HoldJob", &JobsService::HoldJob);
    Unary("Jobs.ReleaseJob", &JobsService::ReleaseJob);
    Unary("Jobs.ListQueues", &JobsService::ListQueues);
    Unary("Jobs.SetQueue", &JobsService::SetQueue);
    Unary("Jobs.GetLogs", &JobsService::GetLogs);
    Unary("Jobs.TraceJob", &JobsService::TraceJob);
    Stream("Jobs.WatchJob", &JobsService::WatchJob);
  }
};

class GuardedCluster : public GuardedService {
 public:
  explicit GuardedCluster(const Front& front) : GuardedService(front) {
    Stream("Cluster.AttachAgent", &ClusterService::AttachAgent);
    Stream("Cluster.AttachWorker", &ClusterService::AttachWorker);
    Unary("Cluster.ListNodes", &ClusterService::ListNodes);
    Unary("Cluster.CordonNode", &ClusterService::CordonNode);
    Unary("Cluster.UncordonNode", &ClusterService::UncordonNode);
  }
};

class GuardedAdmin : public GuardedService {
 public:
  explicit GuardedAdmin(const Front& front) : GuardedService(front) {
    Unary("Admin.WhoAmI", &AdminService::WhoAmI);
    Unary("Admin.CreateJoinToken", &AdminService::CreateJoinToken);
    Unary("Admin.RevokeJoinTokens", &AdminService::RevokeJoinTokens);
    Unary("Admin.Join", &AdminService::Join);
    Unary("Admin.RotateCertificate", &AdminService::RotateCertificate);
    Unary("Admin.RevokeNode", &AdminService::RevokeNode);
    Unary("Admin.AddUser", &AdminService::AddUser);
    Unary("Admin.ListUsers", &AdminService::ListUsers);
    Unary("Admin.RevokeUser", &AdminService::RevokeUser);
    Unary("Admin.AddToken", &AdminService::AddToken);
    Unary("Admin.RevokeToken", &AdminService::RevokeToken);
    Unary("Admin.ListAudit", &AdminService::ListAudit);
    Unary("Admin.ListServers", &AdminService::ListServers);
  }
};

}  // namespace lynx::server

#endif  // LYNX_SERVER_SERVICES_GUARDED_SERVICES_H_
