// A witness is a daemon that tells another daemon when the server last answered it (node/lease.h, proto/lynx/v1/witness.proto).
#ifndef LYNX_WORKER_DAEMON_WITNESS_H_
#define LYNX_WORKER_DAEMON_WITNESS_H_

#include <grpcpp/grpcpp.h>

#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "lynx/v1/witness.grpc.pb.h"
#include "node/lease.h"
#include "node/wake.h"
#include "security/node_identity.h"

namespace lynx::worker {

// Answers the questions of other daemons. Thread-safe.
class WitnessServer {
 public:
  // Listens on a free port of `address`, which is numeric. Returns Unavailable if the server cannot listen.
  static absl::StatusOr<std::unique_ptr<WitnessServer>> Start(const std::string& address,
                                                              const std::shared_ptr<grpc::ServerCredentials>& credentials);
  WitnessServer(const WitnessServer&) = delete;
  WitnessServer& operator=(const WitnessServer&) = delete;
  ~WitnessServer();

  int port() const { return port_; }
  // Sets the answer to later questions. Its times are on the clock of BootTime.
  void Set(std::optional<Witnessed> witnessed);

 private:
  class Service final : public v1::Witness::CallbackService {
   public:
    grpc::ServerUnaryReactor* WhenRenewed(grpc::CallbackServerContext* context, const v1::WhenRenewedRequest* request,
                                          v1::WhenRenewedResponse* response) override;
    std::mutex mutex;
    std::optional<Witnessed> witnessed;  // guarded by mutex
  };

  WitnessServer() = default;

  Service service_;
  std::unique_ptr<grpc::Server> server_;
  int port_ = 0;
};

// Asks other daemons. Only one thread may call it. It raises the WakeEvent when answers have arrived.
class WitnessClient {
 public:
  struct Answer {
    std::string witness;
    // When the server last answered the witness, on the clock of BootTime; nullopt if it never did.
    std::optional<Witnessed> witnessed;
  };

  // `credentials`: used for new connections; if it is null, connections are plain text.
  WitnessClient(CredentialSource credentials, WakeEvent& wake);
  WitnessClient(const WitnessClient&) = delete;
  WitnessClient& operator=(const WitnessClient&) = delete;
  ~WitnessClient();

  // Asks each witness that has no open question. Ignores a witness that does not answer within a second. `witnesses`:
  // host:port.
  void Ask(const std::vector<std::string>& witnesses);
  // Returns the answers that have arrived since the last call.
  std::vector<Answer> Take();

 private:
  struct Call;
  std::shared_ptr<grpc::Channel> Dial(const std::string& witness) const;
  void Finish(Call* call, const grpc::Status& status);

  const CredentialSource credentials_;
  WakeEvent& wake_;
  std::map<std::string, std::shared_ptr<grpc::Channel>> channels_;
  std::mutex mutex_;
  std::condition_variable changed_;
  // Guarded by mutex_.
  std::map<std::string, std::unique_ptr<Call>> open_;
  std::vector<Answer> answers_;
};

}  // namespace lynx::worker

#endif  // LYNX_WORKER_DAEMON_WITNESS_H_
