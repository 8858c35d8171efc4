// See cluster_service.h.
#include "server/services/cluster_service.h"

#include <functional>
#include <memory>
#include <set>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/peer_version.h"
#include "common/status.h"
#include "common/version.h"
#include "proto/bounds.h"
#include "server/wire/messages.h"
#include "server/wire/retry_later.h"

namespace lynx::server {
namespace {

constexpr size_t kMaxReasonLength = 512;

}  // namespace

grpc::ServerBidiReactor<v1::AgentReport, v1::AgentDesired>* ClusterService::AttachAgent(const Call& call) {
  const int64_t id = core_.NextStream();
  auto stream = std::make_shared<AgentStream>(
      [this, id, caller = call.caller](const v1::AgentReport& report, std::function<void()> next) {
        LYNX_RETURN_IF_ERROR(guard_.CheckReport(caller, report.node()));
        LYNX_RETURN_IF_ERROR(CheckPeerVersion(kVersion, "lynx-agent", report.version()));
        absl::StatusOr<AgentState> state = Decode(report);
        if (!state.ok()) return state.status();
        const bool posted =
            core_.loop().PostReport(AgentReported{id, caller.from, *std::move(state)},
                                    [this, next = std::move(next)]() mutable { core_.executor().Post(std::move(next)); });
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

grpc::ServerBidiReactor<v1::WorkerReport, v1::WorkerDesired>* ClusterService::AttachWorker(const Call& call) {
  const int64_t id = core_.NextStream();
  auto stream = std::make_shared<WorkerStream>(
      [this, id, caller = call.caller](const v1::WorkerReport& report, std::function<void()> next) {
        LYNX_RETURN_IF_ERROR(guard_.CheckReport(caller, report.node()));
        LYNX_RETURN_IF_ERROR(CheckPeerVersion(kVersion, "lynx-worker", report.version()));
        absl::StatusOr<WorkerState> state = Decode(report);
        if (!state.ok()) return state.status();
        const bool posted =
            core_.loop().PostReport(WorkerReported{id, caller.from, *std::move(state)},
                                    [this, next = std::move(next)]() mutable { core_.executor().Post(std::move(next)); });
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

void ClusterService::CordonNode(const Call& call, const v1::CordonNodeRequest* request, v1::CordonNodeResponse* response) {
  absl::Status checked = CheckLine("reason", request->reason(), kMaxReasonLength);
  if (checked.ok()) checked = CheckRange("grace_ns", request->grace_ns(), 0, kMaxWireNanos);
  if (checked.ok() && request->grace_ns() > 0 && !request->drain()) {
    checked = BadField("grace_ns", absl::StrCat(request->grace_ns()), "is for a drain");
  }
  Cordon cordon{.reason = request->reason(), .drain = request->drain()};
  if (request->grace_ns() > 0) cordon.deadline = core_.clock().Wall() + Nanos(request->grace_ns());
  return ChangeNode(call, checked, request->node(), std::move(cordon), response);
}

void ClusterService::UncordonNode(const Call& call, const v1::UncordonNodeRequest* request,
                                  v1::UncordonNodeResponse* response) {
  return ChangeNode(call, absl::OkStatus(), request->node(), std::nullopt, response);
}

template <class Response>
void ClusterService::ChangeNode(const Call& call, absl::Status checked, const std::string& name, std::optional<Cordon> cordon,
                                Response* response) {
  UnaryAnswer* answer = call.answer;
  if (checked.ok()) checked = CheckName("node", name);
  if (!checked.ok()) {
    answer->Finish(ToGrpc(checked));
    return;
  }
  const NodeId node(name);
  const int64_t id = core_.Await([this, answer, response, node](const Reply& reply) {
    if (reply.status.ok()) *response->mutable_node() = Encode(core_.controller().ViewOf(node));
    answer->Finish(ToGrpc(reply.status));
  });
  const bool posted = core_.loop().Post(CordonRequested{id, node, std::move(cordon)}, call.Audit(node.value));
  if (!posted && core_.Forget(id)) answer->Finish(ToGrpc(Overloaded()));
}

void ClusterService::ListNodes(const Call& call, const v1::ListNodesRequest* request, v1::ListNodesResponse* response) {
  UnaryAnswer* answer = call.answer;
  const bool posted = core_.loop().Run([this, answer, request, response] {
    std::set<std::string> wanted(request->nodes().begin(), request->nodes().end());
    const bool all = wanted.empty();
    const ProfileShapes shapes = request->include_measurements() ? ProfileShapes::kIncluded : ProfileShapes::kLeftOut;
    for (const NodeView& node : core_.controller().Nodes()) {
      if (all || wanted.erase(node.name.value) > 0) *response->add_nodes() = Encode(node, shapes);
    }
    if (!wanted.empty()) {
      answer->Finish(ToGrpc(absl::NotFoundError(absl::StrCat("no node has the name \"", wanted.begin()->substr(0, 80), "\""))));
      return;
    }
    response->set_server_version(kVersion);
    response->set_server_time_unix_ns(core_.clock().Wall().value);
    answer->Finish(grpc::Status::OK);
  });
  if (!posted) answer->Finish(ToGrpc(Overloaded()));
}

}  // namespace lynx::server
