// StrangerFilter: refuses strangers' calls of services that gRPC itself serves (health, reflection) before gRPC reads their
// messages. The services in lynx.v1 ask the guard by themselves, which also records whom it refuses. Thread-safe; gate and
// guard must outlive the server.
#ifndef LYNX_SERVER_ACCESS_STRANGER_FILTER_H_
#define LYNX_SERVER_ACCESS_STRANGER_FILTER_H_

#include <grpcpp/security/auth_metadata_processor.h>

#include <atomic>

#include "server/access/gate.h"
#include "server/access/guard.h"

namespace lynx::server {

class StrangerFilter : public grpc::AuthMetadataProcessor {
 public:
  // `guard`: null as long as this server stands by; then it refuses everybody.
  StrangerFilter(const Gate& gate, const std::atomic<const Guard*>& guard) : gate_(gate), guard_(guard) {}

  bool IsBlocking() const override { return false; }
  // gRPC calls this when a call's metadata are there. Only after an OK it begins to read the call's message.
  grpc::Status Process(const InputMetadata& metadata, grpc::AuthContext* connection, OutputMetadata* consumed,
                       OutputMetadata* response) override;

 private:
  const Gate& gate_;
  const std::atomic<const Guard*>& guard_;
};

}  // namespace lynx::server

#endif  // LYNX_SERVER_ACCESS_STRANGER_FILTER_H_
