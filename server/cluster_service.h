// ClusterService: the RPCs of proto/lynx/v1/cluster.proto. It only decodes, posts to the core's loop and encodes. A stream
// costs no thread. Thread-safe; must not outlive the core.
#ifndef LYNX_SERVER_CLUSTER_SERVICE_H_
#define LYNX_SERVER_CLUSTER_SERVICE_H_

#include <optional>
#include <string>

#include "lynx/v1/cluster.grpc.pb.h"
#include "server/core.h"

namespace lynx {

class ClusterService : public v1::Cluster::CallbackService {
 public:
  explicit ClusterService(ServerCore& core) : core_(core) {}

  grpc::ServerBidiReactor<v1::AgentReport, v1::AgentDesired>* AttachAgent(
      grpc::CallbackServerContext* context) override;
  grpc::ServerBidiReactor<v1::WorkerReport, v1::WorkerDesired>* AttachWorker(
      grpc::CallbackServerContext* context) override;
  grpc::ServerUnaryReactor* CordonNode(grpc::CallbackServerContext* context, const v1::CordonNodeRequest* request,
                                       v1::CordonNodeResponse* response) override;
  grpc::ServerUnaryReactor* UncordonNode(grpc::CallbackServerContext* context, const v1::UncordonNodeRequest* request,
                                         v1::UncordonNodeResponse* response) override;
  grpc::ServerUnaryReactor* ListNodes(grpc::CallbackServerContext* context, const v1::ListNodesRequest* request,
                                      v1::ListNodesResponse* response) override;

 private:
  template <class Response>
  grpc::ServerUnaryReactor* ChangeNode(grpc::CallbackServerContext* context, absl::Status checked, const std::string& name,
                                       std::optional<Cordon> cordon, Response* response);

  ServerCore& core_;
};

// The host of gRPC's name for the other end: "ipv4:127.0.0.1:5000" and "ipv6:%5B::1%5D:5000" give "127.0.0.1" and "::1".
std::string HostOfPeer(const std::string& peer);

}  // namespace lynx

#endif  // LYNX_SERVER_CLUSTER_SERVICE_H_
