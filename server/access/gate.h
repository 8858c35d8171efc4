// Gate: lets calls in only while this server leads. A server that stands by refuses each call of Jobs, Cluster and Admin before
// its message is read, and names the server that leads (common/standby.h). Thread-safe.
#ifndef LYNX_SERVER_ACCESS_GATE_H_
#define LYNX_SERVER_ACCESS_GATE_H_

#include <grpcpp/grpcpp.h>

#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "server/values/leadership.h"

namespace lynx::server {

class Gate {
 public:
  explicit Gate(std::shared_ptr<const Leadership> leadership) : leadership_(std::move(leadership)) {}

  bool IsOpen() const { return leadership_->Leads(); }
  // The address of the server that leads; empty: none, or it is not known.
  void SetLeader(const std::string& address);
  // "this server stands by; the server at ADDRESS leads".
  std::string Text() const;
  // Refuses the call unread: adds the metadata that say so, and returns the status.
  absl::Status Refuse(grpc::CallbackServerContext& context) const;
  // The answer to a call that was read while the server led, and is answered when it does not lead any more. It may have been
  // carried out.
  static absl::Status LostMeanwhile();

 private:
  const std::shared_ptr<const Leadership> leadership_;
  mutable std::mutex mutex_;
  std::string leader_;  // guarded by mutex_
};

}  // namespace lynx::server

#endif  // LYNX_SERVER_ACCESS_GATE_H_
