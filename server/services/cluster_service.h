// ClusterService: the RPCs of proto/lynx/v1/cluster.proto. It decodes requests, posts them to the core's event loop, and
// encodes the answers; it decides nothing. A stream needs no thread. Thread-safe; must not outlive core and guard.
#ifndef LYNX_SERVER_SERVICES_CLUSTER_SERVICE_H_
#define LYNX_SERVER_SERVICES_CLUSTER_SERVICE_H_

#include <optional>
#include <string>

#include "lynx/v1/cluster.pb.h"
#include "server/access/guard.h"
#include "server/loop/core.h"

namespace lynx::server {

class ClusterService {
 public:
  ClusterService(ServerCore& core, const Guard& guard) : core_(core), guard_(guard) {}

  grpc::ServerBidiReactor<v1::AgentReport, v1::AgentDesired>* AttachAgent(const Call& call);
  grpc::ServerBidiReactor<v1::WorkerReport, v1::WorkerDesired>* AttachWorker(const Call& call);
  void CordonNode(const Call& call, const v1::CordonNodeRequest* request, v1::CordonNodeResponse* response);
  void UncordonNode(const Call& call, const v1::UncordonNodeRequest* request, v1::UncordonNodeResponse* response);
  void ListNodes(const Call& call, const v1::ListNodesRequest* request, v1::ListNodesResponse* response);

 private:
  template <class Response>
  void ChangeNode(const Call& call, absl::Status checked, const std::string& name, std::optional<Cordon> cordon,
                  Response* response);

  ServerCore& core_;
  const Guard& guard_;
};

}  // namespace lynx::server

#endif  // LYNX_SERVER_SERVICES_CLUSTER_SERVICE_H_
