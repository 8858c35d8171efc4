// See cluster_service.h.
#include "server/cluster_service.h"

#include <functional>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "common/status.h"
#include "proto/bounds.h"
#include "server/messages.h"

namespace lynx {
namespace {

constexpr size_t kLongestReason = 512;

absl::Status Overloaded() {
  return absl::ResourceExhaustedError("the server's queue is full or it is stopping; dial again in a moment");
}

}  // namespace

std::string HostOfPeer(const std::string& peer) {
  const size_t scheme = peer.find(':');
  const size_t port = peer.rfind(':');
  if (scheme == std::string::npos || port <= scheme) return peer;
  const std::string host = peer.substr(scheme + 1, port - scheme - 1);
  return absl::StrReplaceAll(host, {{"%5B", ""}, {"%5D", ""}, {"[", ""}, {"]", ""}});
}

grpc::ServerBidiReactor<v1::AgentReport, v1::AgentDesired>* ClusterService::AttachAgent(
    grpc::CallbackServerContext* context) {
  const int64_t id = core_.NextStream();
  auto stream = std::make_shared<AgentStream>(
      [this, id, host = HostOfPeer(context->peer())](const v1::AgentReport& report, std::function<void()> next) {
        absl::StatusOr<AgentState> state = Decode(report);
        if (!state.ok()) return state.status();
        const bool posted = core_.loop().PostReport(AgentReported{id, host, *std::move(state)}, std::move(next));
        return posted ? absl::OkStatus() : Overloaded();
      },
      [this, id] {
        core_.agents().Remove(id);
        core_.loop().PostAlways(AgentGone{id});
      });
  core_.agents().Add(id, stream);
  stream->Start();
  return stream.get();
}

grpc::ServerBidiReactor<v1::WorkerReport, v1::WorkerDesired>* ClusterService::AttachWorker(
    grpc::CallbackServerContext* context) {
  const int64_t id = core_.NextStream();
  auto stream = std::make_shared<WorkerStream>(
      [this, id, host = HostOfPeer(context->peer())](const v1::WorkerReport& report, std::function<void()> next) {
        absl::StatusOr<WorkerState> state = Decode(report);
        if (!state.ok()) return state.status();
        const bool posted = core_.loop().PostReport(WorkerReported{id, host, *std::move(state)}, std::move(next));
        return posted ? absl::OkStatus() : Overloaded();
      },
      [this, id] {
        core_.workers().Remove(id);
        core_.loop().PostAlways(WorkerGone{id});
      });
  core_.workers().Add(id, stream);
  stream->Start();
  return stream.get();
}

grpc::ServerUnaryReactor* ClusterService::CordonNode(grpc::CallbackServerContext* context,
                                                     const v1::CordonNodeRequest* request, v1::CordonNodeResponse* response) {
  absl::Status checked = CheckSize("reason", request->reason().size(), 0, kLongestReason, "bytes");
  if (checked.ok()) checked = CheckRange("grace_ns", request->grace_ns(), 0, kMaxWireNanos);
  if (checked.ok() && request->grace_ns() > 0 && !request->drain()) {
    checked = BadField("grace_ns", absl::StrCat(request->grace_ns()), "is for a drain");
  }
  Cordon cordon{.reason = request->reason(), .drain = request->drain()};
  if (request->grace_ns() > 0) cordon.deadline = core_.clock().Wall() + Nanos(request->grace_ns());
  return ChangeNode(context, checked, request->node(), std::move(cordon), response);
}

grpc::ServerUnaryReactor* ClusterService::UncordonNode(grpc::CallbackServerContext* context,
                                                       const v1::UncordonNodeRequest* request,
                                                       v1::UncordonNodeResponse* response) {
  return ChangeNode(context, absl::OkStatus(), request->node(), std::nullopt, response);
}

template <class Response>
grpc::ServerUnaryReactor* ClusterService::ChangeNode(grpc::CallbackServerContext* context, absl::Status checked,
                                                     const std::string& name, std::optional<Cordon> cordon,
                                                     Response* response) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  if (checked.ok()) checked = CheckName("node", name);
  if (!checked.ok()) {
    reactor->Finish(ToGrpc(checked));
    return reactor;
  }
  const NodeId node(name);
  const int64_t id = core_.Await([this, reactor, response, node](const Reply& reply) {
    if (reply.status.ok()) *response->mutable_node() = Encode(core_.controller().ViewOf(node));
    reactor->Finish(ToGrpc(reply.status));
  });
  const bool posted = core_.loop().Post(CordonRequested{id, node, std::move(cordon)});
  if (!posted && core_.Forget(id)) reactor->Finish(ToGrpc(Overloaded()));
  return reactor;
}

grpc::ServerUnaryReactor* ClusterService::ListNodes(grpc::CallbackServerContext* context, const v1::ListNodesRequest*,
                                                    v1::ListNodesResponse* response) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  const bool posted = core_.loop().Run([this, reactor, response] {
    for (const NodeView& node : core_.controller().Nodes()) *response->add_nodes() = Encode(node);
    reactor->Finish(grpc::Status::OK);
  });
  if (!posted) reactor->Finish(ToGrpc(Overloaded()));
  return reactor;
}

}  // namespace lynx
