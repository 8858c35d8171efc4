// Guarded services: the gRPC services that the server registers. Each method asks the guard first, and reads the request and
// calls the service only if the guard admits the call. The services themselves do not use gRPC's base classes, so nothing can
// call them without the guard. A method without a line in this file answers UNIMPLEMENTED. Thread-safe; guard and services must
// outlive these objects.
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

#include <deque>
#include <functional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "server/access/guard.h"
#include "server/services/admin_service.h"
#include "server/services/cluster_service.h"
#include "server/services/jobs_service.h"
#include "server/wire/grpc_status.h"

namespace lynx::server {

// One call with one request and one response. It deletes itself when gRPC is done with the call.
template <class Request, class Response>
class UnaryCall final : public grpc::ServerReadReactor<Request>, public UnaryAnswer {
 public:
  using Serve = std::function<void(const Call&, const Request*, Response*)>;
  // `call`: what the guard says. If it is an error, the call ends with it, and the request is not read.
  UnaryCall(absl::StatusOr<Call> call, Response* response, Serve serve) : response_(response), serve_(std::move(serve)) {
    if (!call.ok()) {
      Finish(ToGrpc(call.status()));
      return;
    }
    call_ = *std::move(call);
    call_.answer = this;
    this->StartRead(&request_);
  }
  void Finish(const grpc::Status& status) override { grpc::ServerReadReactor<Request>::Finish(status); }

 private:
  void OnReadDone(bool ok) override {
    if (ok) {
      serve_(call_, &request_, response_);
    } else {
      Finish(ToGrpc(absl::InvalidArgumentError("the call has no request, or one that cannot be read")));
    }
  }
  void OnDone() override { delete this; }

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
  explicit GuardedService(Guard& guard) : guard_(guard) {}

  // Registers the method, such as "Jobs.SubmitJob".
  template <class Service, class Request, class Response>
  void Unary(const std::string& method, Service& service, void (Service::*serve)(const Call&, const Request*, Response*)) {
    const MethodRule& rule = RuleOf(method);
    auto begin = [this, &rule, &service, serve](grpc::CallbackServerContext* context, Response* response) {
      return new UnaryCall<Request, Response>(guard_.Admit(rule, *context), response,
                                              [&service, serve](const Call& call, const Request* request, Response* answer) {
                                                (service.*serve)(call, request, answer);
                                              });
    };
    Register(method, grpc::internal::RpcMethod::CLIENT_STREAMING,
             new grpc::internal::CallbackClientStreamingHandler<Request, Response>(std::move(begin)));
  }
  // The same for a method whose service reads the messages by itself.
  template <class Service, class Request, class Response>
  void Stream(const std::string& method, Service& service,
              grpc::ServerBidiReactor<Request, Response>* (Service::*serve)(const Call&)) {
    const MethodRule& rule = RuleOf(method);
    auto begin = [this, &rule, &service,
                  serve](grpc::CallbackServerContext* context) -> grpc::ServerBidiReactor<Request, Response>* {
      const absl::StatusOr<Call> call = guard_.Admit(rule, *context);
      if (call.ok()) return (service.*serve)(*call);
      return new RefusedStream<Request, Response>(call.status());
    };
    Register(method, grpc::internal::RpcMethod::BIDI_STREAMING,
             new grpc::internal::CallbackBidiHandler<Request, Response>(std::move(begin)));
  }

 private:
  void Register(const std::string& method, grpc::internal::RpcMethod::RpcType type, grpc::internal::MethodHandler* handler) {
    paths_.push_back(absl::StrCat("/lynx.v1.", absl::StrReplaceAll(method, {{".", "/"}})));
    AddMethod(new grpc::internal::RpcServiceMethod(paths_.back().c_str(), type, nullptr));
    MarkMethodCallback(static_cast<int>(paths_.size()) - 1, handler);
  }

  Guard& guard_;
  std::deque<std::string> paths_;  // gRPC keeps pointers to them
};

class GuardedJobs : public GuardedService {
 public:
  GuardedJobs(Guard& guard, JobsService& service) : GuardedService(guard) {
    Unary("Jobs.SubmitJob", service, &JobsService::SubmitJob);
    Unary("Jobs.GetJob", service, &JobsService::GetJob);
    Unary("Jobs.ListJobs", service, &JobsService::ListJobs);
    Unary("Jobs.CancelJob", service, &JobsService::CancelJob);
    Unary("Jobs.HoldJob", service, &JobsService::HoldJob);
    Unary("Jobs.ReleaseJob", service, &JobsService::ReleaseJob);
    Unary("Jobs.ListQueues", service, &JobsService::ListQueues);
    Unary("Jobs.SetQueue", service, &JobsService::SetQueue);
    Unary("Jobs.GetLogs", service, &JobsService::GetLogs);
    Unary("Jobs.TraceJob", service, &JobsService::TraceJob);
    Stream("Jobs.WatchJob", service, &JobsService::WatchJob);
  }
};

class GuardedCluster : public GuardedService {
 public:
  GuardedCluster(Guard& guard, ClusterService& service) : GuardedService(guard) {
    Stream("Cluster.AttachAgent", service, &ClusterService::AttachAgent);
    Stream("Cluster.AttachWorker", service, &ClusterService::AttachWorker);
    Unary("Cluster.ListNodes", service, &ClusterService::ListNodes);
    Unary("Cluster.CordonNode", service, &ClusterService::CordonNode);
    Unary("Cluster.UncordonNode", service, &ClusterService::UncordonNode);
  }
};

class GuardedAdmin : public GuardedService {
 public:
  GuardedAdmin(Guard& guard, AdminService& service) : GuardedService(guard) {
    Unary("Admin.WhoAmI", service, &AdminService::WhoAmI);
    Unary("Admin.CreateJoinToken", service, &AdminService::CreateJoinToken);
    Unary("Admin.RevokeJoinTokens", service, &AdminService::RevokeJoinTokens);
    Unary("Admin.Join", service, &AdminService::Join);
    Unary("Admin.RotateCertificate", service, &AdminService::RotateCertificate);
    Unary("Admin.RevokeNode", service, &AdminService::RevokeNode);
    Unary("Admin.AddUser", service, &AdminService::AddUser);
    Unary("Admin.ListUsers", service, &AdminService::ListUsers);
    Unary("Admin.RevokeUser", service, &AdminService::RevokeUser);
    Unary("Admin.AddToken", service, &AdminService::AddToken);
    Unary("Admin.RevokeToken", service, &AdminService::RevokeToken);
    Unary("Admin.ListAudit", service, &AdminService::ListAudit);
  }
};

}  // namespace lynx::server

#endif  // LYNX_SERVER_SERVICES_GUARDED_SERVICES_H_
