// Guarded services: the gRPC services that the server registers. Each method asks the guard first, and calls the service only
// if the guard admits the call. The services themselves do not use gRPC's base classes, so nothing can call them without the
// guard. A method without a line in this file answers UNIMPLEMENTED. Thread-safe; guard and services must outlive these
// objects.
#ifndef LYNX_SERVER_SERVICES_GUARDED_SERVICES_H_
#define LYNX_SERVER_SERVICES_GUARDED_SERVICES_H_

#include "lynx/v1/admin.grpc.pb.h"
#include "lynx/v1/cluster.grpc.pb.h"
#include "lynx/v1/jobs.grpc.pb.h"
#include "server/access/guard.h"
#include "server/services/admin_service.h"
#include "server/services/cluster_service.h"
#include "server/services/jobs_service.h"
#include "server/wire/grpc_status.h"

namespace lynx::server {

template <class Work>
grpc::ServerUnaryReactor* GuardUnary(Guard& guard, const MethodRule& rule, grpc::CallbackServerContext* context, Work work) {
  absl::StatusOr<Call> call = guard.Admit(rule, context);
  if (call.ok()) return work(*call);
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  reactor->Finish(ToGrpc(call.status()));
  return reactor;
}

// A stream that ends at once with an error.
template <class Base>
class RefusedStream : public Base {
 public:
  explicit RefusedStream(const absl::Status& status) { this->Finish(ToGrpc(status)); }

 private:
  void OnDone() override { delete this; }
};

template <class Reactor, class Work>
Reactor* GuardStream(Guard& guard, const MethodRule& rule, grpc::CallbackServerContext* context, Work work) {
  absl::StatusOr<Call> call = guard.Admit(rule, context);
  if (call.ok()) return work(*call);
  return new RefusedStream<Reactor>(call.status());
}

#define LYNX_GUARDED_UNARY(Service, Method)                                                                               \
  grpc::ServerUnaryReactor* Method(grpc::CallbackServerContext* context, const v1::Method##Request* request,              \
                                   v1::Method##Response* response) override {                                             \
    static const MethodRule& rule = RuleOf(#Service "." #Method);                                                         \
    return GuardUnary(guard_, rule, context, [&](const Call& call) { return service_.Method(call, request, response); }); \
  }
#define LYNX_GUARDED_NODE_STREAM(Method, Report, Desired)                                                                  \
  grpc::ServerBidiReactor<Report, Desired>* Method(grpc::CallbackServerContext* context) override {                        \
    static const MethodRule& rule = RuleOf("Cluster." #Method);                                                            \
    return GuardStream<grpc::ServerBidiReactor<Report, Desired>>(guard_, rule, context,                                    \
                                                                 [&](const Call& call) { return service_.Method(call); }); \
  }

class GuardedJobs : public v1::Jobs::CallbackService {
 public:
  GuardedJobs(Guard& guard, JobsService& service) : guard_(guard), service_(service) {}
  LYNX_GUARDED_UNARY(Jobs, SubmitJob)
  LYNX_GUARDED_UNARY(Jobs, GetJob)
  LYNX_GUARDED_UNARY(Jobs, ListJobs)
  LYNX_GUARDED_UNARY(Jobs, CancelJob)
  LYNX_GUARDED_UNARY(Jobs, HoldJob)
  LYNX_GUARDED_UNARY(Jobs, ReleaseJob)
  LYNX_GUARDED_UNARY(Jobs, ListQueues)
  LYNX_GUARDED_UNARY(Jobs, SetQueue)
  LYNX_GUARDED_UNARY(Jobs, GetLogs)
  LYNX_GUARDED_UNARY(Jobs, TraceJob)
  grpc::ServerWriteReactor<v1::WatchJobResponse>* WatchJob(grpc::CallbackServerContext* context,
                                                           const v1::WatchJobRequest* request) override {
    static const MethodRule& rule = RuleOf("Jobs.WatchJob");
    return GuardStream<grpc::ServerWriteReactor<v1::WatchJobResponse>>(
        guard_, rule, context, [&](const Call& call) { return service_.WatchJob(call, request); });
  }

 private:
  Guard& guard_;
  JobsService& service_;
};

class GuardedCluster : public v1::Cluster::CallbackService {
 public:
  GuardedCluster(Guard& guard, ClusterService& service) : guard_(guard), service_(service) {}
  LYNX_GUARDED_NODE_STREAM(AttachAgent, v1::AgentReport, v1::AgentDesired)
  LYNX_GUARDED_NODE_STREAM(AttachWorker, v1::WorkerReport, v1::WorkerDesired)
  LYNX_GUARDED_UNARY(Cluster, ListNodes)
  LYNX_GUARDED_UNARY(Cluster, CordonNode)
  LYNX_GUARDED_UNARY(Cluster, UncordonNode)

 private:
  Guard& guard_;
  ClusterService& service_;
};

class GuardedAdmin : public v1::Admin::CallbackService {
 public:
  GuardedAdmin(Guard& guard, AdminService& service) : guard_(guard), service_(service) {}
  LYNX_GUARDED_UNARY(Admin, WhoAmI)
  LYNX_GUARDED_UNARY(Admin, CreateJoinToken)
  LYNX_GUARDED_UNARY(Admin, RevokeJoinTokens)
  LYNX_GUARDED_UNARY(Admin, Join)
  LYNX_GUARDED_UNARY(Admin, RotateCertificate)
  LYNX_GUARDED_UNARY(Admin, RevokeNode)
  LYNX_GUARDED_UNARY(Admin, AddUser)
  LYNX_GUARDED_UNARY(Admin, ListUsers)
  LYNX_GUARDED_UNARY(Admin, RevokeUser)
  LYNX_GUARDED_UNARY(Admin, AddToken)
  LYNX_GUARDED_UNARY(Admin, RevokeToken)
  LYNX_GUARDED_UNARY(Admin, ListAudit)

 private:
  Guard& guard_;
  AdminService& service_;
};

#undef LYNX_GUARDED_UNARY
#undef LYNX_GUARDED_NODE_STREAM

}  // namespace lynx::server

#endif  // LYNX_SERVER_SERVICES_GUARDED_SERVICES_H_
